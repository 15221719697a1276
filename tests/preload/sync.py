#!/usr/bin/env python3
"""Ranks that write, sync, meet, sync and read: each reads what its neighbour wrote, as MPI has it.

    sync.py FILE
"""

import os
import subprocess
import sys

RANKS, BYTES, ROUNDS = 4, 4096, 3


def rank(path, number):
    fd = os.open(path, os.O_RDWR)
    neighbour = (number + 1) % RANKS
    for turn in range(ROUNDS):
        os.pwrite(fd, bytes([16 * turn + number + 1]) * BYTES, number * BYTES)
        os.fsync(fd)
        # The others meet here: each says so, and waits for a word.
        print("written", flush=True)
        sys.stdin.readline()
        os.fsync(fd)
        found = os.pread(fd, BYTES, neighbour * BYTES)
        assert found == bytes([16 * turn + neighbour + 1]) * BYTES, (number, turn, found[:4])
        print("read", flush=True)
        sys.stdin.readline()


def main():
    path = sys.argv[1]
    if len(sys.argv) > 2:
        rank(path, int(sys.argv[2]))
        return
    with open(path, "wb"):
        pass
    words = [sys.executable, __file__, path]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    ranks = [subprocess.Popen([*words, str(number)], **pipes) for number in range(RANKS)]
    for word in ["written", "read"] * ROUNDS:
        for one in ranks:
            assert one.stdout.readline().strip() == word
        for one in ranks:
            print("go on", file=one.stdin, flush=True)
    assert all(one.wait() == 0 for one in ranks)


main()
