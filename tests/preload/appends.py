#!/usr/bin/env python3
"""Two processes append to one open file in turn: each goes to the end that the other one left.

    appends.py FILE
"""

import os
import subprocess
import sys

TURNS, BYTES = 5, 10


def writer(path, letter):
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    print("open", flush=True)
    for _ in range(TURNS):
        sys.stdin.readline()
        os.write(fd, letter.encode() * BYTES)
        print("written", flush=True)


def main():
    path = sys.argv[1]
    if len(sys.argv) > 2:
        writer(path, sys.argv[2])
        return
    words = [sys.executable, __file__, path]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    writers = [subprocess.Popen([*words, letter], **pipes) for letter in "ab"]
    for one in writers:
        one.stdout.readline()
    for _ in range(TURNS):
        for one in writers:
            print("go on", file=one.stdin, flush=True)
            one.stdout.readline()
    assert all(one.wait() == 0 for one in writers)
    with open(path, encoding="ascii") as file:
        found = file.read()
    assert found == ("a" * BYTES + "b" * BYTES) * TURNS, found


main()
