#!/usr/bin/env python3
"""What a program does with locks on a file; each mode is one process of a test of two mounts (tests/locks/run).

    guarded.py count FILE TIMES flock|fcntl|ofd      increment the number in FILE so often, each time under a lock
    guarded.py insert DATABASE TIMES WRITER      so many commits of SQLite, each of its own
    guarded.py hold FILE flock|fcntl|ofd             lock, say "held", keep it until the end of the process
    guarded.py try FILE flock|fcntl|ofd              status 0: the lock is free, 1: another has it
    guarded.py wait FILE flock|fcntl|ofd SECONDS     wait for the lock, with a signal after so many seconds; status 0: the signal ended it
    guarded.py steady FILE SECONDS               hold a lock, and write and read the file under it all the time
"""

import fcntl
import os
import signal
import sqlite3
import struct
import sys
import time


def lock(fd, way, flags):
    if way == "flock":
        fcntl.flock(fd, flags)
    elif way == "ofd":
        command = fcntl.F_OFD_SETLK if flags & fcntl.LOCK_NB else fcntl.F_OFD_SETLKW
        kind = fcntl.F_UNLCK if flags & fcntl.LOCK_UN else fcntl.F_WRLCK
        fcntl.fcntl(fd, command, struct.pack("@hhqqi0q", kind, os.SEEK_SET, 0, 0, 0))
    else:
        fcntl.lockf(fd, flags)


def is_free(fd, way):
    try:
        lock(fd, way, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def count(path, times, way):
    fd = os.open(path, os.O_RDWR)
    for _ in range(int(times)):
        lock(fd, way, fcntl.LOCK_EX)
        number = int(os.pread(fd, 32, 0) or b"0")
        os.pwrite(fd, b"%d" % (number + 1), 0)
        lock(fd, way, fcntl.LOCK_UN)


def insert(path, times, writer):
    database = sqlite3.connect(path, timeout=120, isolation_level=None)
    for at in range(int(times)):
        database.execute("BEGIN IMMEDIATE")
        database.execute("INSERT INTO log VALUES (?, ?)", (int(writer), at))
        database.execute("UPDATE total SET n = n + 1")
        database.execute("COMMIT")


def hold(path, way):
    fd = os.open(path, os.O_RDWR)
    lock(fd, way, fcntl.LOCK_EX)
    print("held", flush=True)
    time.sleep(3600)


def wait(path, way, seconds):
    fd = os.open(path, os.O_RDWR)

    def end(*_):
        raise InterruptedError

    signal.signal(signal.SIGALRM, end)
    signal.siginterrupt(signal.SIGALRM, True)
    signal.setitimer(signal.ITIMER_REAL, float(seconds))
    begun = time.monotonic()
    try:
        lock(fd, way, fcntl.LOCK_EX)
    except InterruptedError:
        took = time.monotonic() - begun
        print(f"interrupted after {took:.2f} s")
        sys.exit(0 if took < float(seconds) + 2 else 1)
    sys.exit(1)


def steady(path, seconds):
    fd = os.open(path, os.O_RDWR)
    lock(fd, "fcntl", fcntl.LOCK_EX)
    print("held", flush=True)
    end, number = time.monotonic() + float(seconds), 0
    while time.monotonic() < end:
        number += 1
        os.pwrite(fd, b"%08d" % number, 0)
        if int(os.pread(fd, 8, 0)) != number:
            sys.exit("another wrote under this lock")
        time.sleep(0.01)
    print(f"{number} writes", flush=True)


mode, args = sys.argv[1], sys.argv[2:]
if mode == "try":
    sys.exit(0 if is_free(os.open(args[0], os.O_RDWR), args[1]) else 1)
{"count": count, "insert": insert, "hold": hold, "wait": wait, "steady": steady}[mode](*args)
