#!/usr/bin/env python3
"""Locks of files of a ShoalFS under `shoal run`: they exclude other processes, which have sessions of their own.

    locks.py DIR
"""

import errno
import fcntl
import os
import subprocess
import sys
import time

PROCESSES, TIMES = 4, 25
LOCKS = {"record": fcntl.lockf, "flock": fcntl.flock}


def refused(number, work):
    try:
        work()
    except OSError as error:
        assert error.errno == number, error
        return
    raise AssertionError(f"not refused with {errno.errorcode[number]}")


def count(path, lock):
    for _ in range(TIMES):
        fd = os.open(path, os.O_RDWR)
        lock(fd, fcntl.LOCK_EX)
        value = int(os.pread(fd, 32, 0))
        os.pwrite(fd, b"%d\n" % (value + 1), 0)
        lock(fd, fcntl.LOCK_UN)
        os.close(fd)


def child(path, kind, *more, **options):
    return subprocess.Popen([sys.executable, __file__, path, kind, *more], **options)


def tries(path, kind, wanted):
    """Another process tries, and does not wait."""
    assert child(path, "try", kind).wait() == wanted, (kind, wanted)


def check(path):
    for kind, lock in LOCKS.items():
        with open(path, "w", encoding="ascii") as file:
            file.write("0\n")
        children = [child(path, kind) for _ in range(PROCESSES)]
        assert all(one.wait() == 0 for one in children)
        with open(path, encoding="ascii") as file:
            assert int(file.read()) == PROCESSES * TIMES, kind
        fd = os.open(path, os.O_RDWR)
        lock(fd, fcntl.LOCK_EX)
        tries(path, kind, 1)
        lock(fd, fcntl.LOCK_UN)
        tries(path, kind, 0)
        lock(fd, fcntl.LOCK_SH)
        tries(path, "shared " + kind, 0)
        tries(path, kind, 1)
        # Any close of the file ends the process's record locks, and none of a description's.
        os.close(os.open(path, os.O_RDONLY))
        tries(path, kind, 0 if kind == "record" else 1)
        os.close(fd)
        tries(path, kind, 0)
    # A lock of a process that ends without a close is free when it has ended.
    assert child(path, "ends").wait() == 0
    tries(path, "record", 0)
    tries(path, "flock", 0)
    # A process that computes calls nothing, and has its lock all the same: for longer than a lease, if that is wanted.
    fd = os.open(path, os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    end = time.monotonic() + float(os.environ.get("COMPUTES", "1"))
    while time.monotonic() < end:
        time.sleep(0.1)
    tries(path, "flock", 1)
    os.close(fd)
    # The description's locks are those of the process that opened it.
    fd = os.open(path, os.O_RDWR)
    os.set_inheritable(fd, True)
    assert child(path, "inherits", str(fd), close_fds=False).wait() == 0
    refused(errno.EBADF, lambda: fcntl.lockf(os.open(path, os.O_RDONLY), fcntl.LOCK_EX))


def main():
    path, kind = (sys.argv + [""])[1:3]
    if kind in LOCKS:
        count(path, LOCKS[kind])
    elif kind == "try":
        name = sys.argv[3].split()
        fd = os.open(path, os.O_RDWR)
        try:
            LOCKS[name[-1]](fd, (fcntl.LOCK_SH if len(name) > 1 else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(1)
    elif kind == "ends":
        for lock in LOCKS.values():
            lock(os.open(path, os.O_RDWR), fcntl.LOCK_SH)
        sys.exit(0)
    elif kind == "inherits":
        refused(errno.ENOLCK, lambda: fcntl.flock(int(sys.argv[3]), fcntl.LOCK_EX))
    else:
        check(os.path.join(path, "locks.count"))


main()
