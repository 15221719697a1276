#!/usr/bin/env python3
"""Processes of a job open one container together: the same bytes, and each index log is opened once.

    tests/preload/groups.py SHOAL DIR [WRITERS [READERS]]

Unchanged programs under `shoal run --over DIR=container,index=…`. The kernel counts the opens of files in DIR (inotify). Prints a line for
each design; the exit status is 0 if the bytes are right and the counts are those of the design.
"""

import ctypes
import os
import struct
import subprocess
import sys

IN_OPEN, IN_NONBLOCK = 0x20, 0o4000
WRITE = """
import sys
path, writer, writers, records, size = sys.argv[1], *map(int, sys.argv[2:])
with open(path, "r+b", buffering=0) as f:
    for record in range(records):
        f.seek((record * writers + writer) * size)
        f.write(bytes([(writer + record) % 251]) * size)
"""
READ = """
import hashlib, sys
with open(sys.argv[1], "rb") as f: print(hashlib.sha256(f.read()).hexdigest())
"""
# Logs so long that no writer folds them at its close (see `container/fold.rs`).
RECORDS, SIZE = 3, 300_000


class Opens:
    """Opens of the index logs and flattened indexes of a container."""

    def __init__(self, container):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(IN_NONBLOCK)
        folders = [e.path for e in os.scandir(container) if e.is_dir()]
        for path in [container, *folders]:
            if self.libc.inotify_add_watch(self.fd, path.encode(), IN_OPEN) < 0:
                raise OSError(ctypes.get_errno(), path)

    def take(self):
        names = []
        while True:
            try:
                events = os.read(self.fd, 1 << 20)
            except BlockingIOError:
                return [name for name in names if name.startswith(("index.", "f."))]
            at = 0
            while at < len(events):
                _, mask, _, length = struct.unpack_from("iIII", events, at)
                if mask & 0x4000:
                    raise OverflowError("events were lost")
                names.append(events[at + 16 : at + 16 + length].rstrip(b"\0").decode())
                at += 16 + length


def run(shoal, over, program, *args, rank=None, size=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PMI", "OMPI", "SLURM", "SHOAL_GROUP"))}
    if rank is not None:
        # As MPICH's launcher sets them.
        env |= {"PMI_RANK": str(rank), "PMI_SIZE": str(size), "MPI_LOCALNRANKS": str(size), "SHOAL_GROUP_SECONDS": "60"}
    words = [shoal, "run", "--over", over, "--", sys.executable, "-c", program, *map(str, args)]
    return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True)


def main():
    shoal, home = sys.argv[1], sys.argv[2]
    writers, readers = (int(sys.argv[3]) if len(sys.argv) > 3 else 16), (int(sys.argv[4]) if len(sys.argv) > 4 else 8)
    path = os.path.join(home, "together")
    over = lambda design: f"{home}=container,index={design}"
    run(shoal, over("original"), 'import sys; open(sys.argv[1], "xb").close()', path).wait()
    at_once = 8
    for begin in range(0, writers, at_once):
        some = range(begin, min(writers, begin + at_once))
        running = [run(shoal, over("original"), WRITE, path, w, writers, RECORDS, SIZE) for w in some]
        assert all(process.wait() == 0 for process in running)
    expected = run(shoal, over("original"), READ, path).communicate()[0]
    opens, failed = Opens(path), 0
    # One after the other where each opens all logs: the kernel reports two equal opens that follow each other as one.
    for design, at_once, wanted in [("original", 1, readers * writers), ("parallel", readers, writers)]:
        said = []
        for begin in range(0, readers, at_once):
            ranks = range(begin, begin + at_once)
            running = [run(shoal, over(design), READ, path, rank=rank, size=readers) for rank in ranks]
            said += [process.communicate()[0] for process in running]
        names = opens.take()
        is_right = said == [expected] * readers and len(expected) == 65 and len(names) == wanted and len(set(names)) == writers
        failed += not is_right
        counts = f"{len(names)} opens of {len(set(names))} index logs"
        print(f"{design}: {readers} readers of {writers} writers: {counts}", "" if is_right else "WRONG")
    left = [name for name in os.listdir(path) if name.startswith("g.")]
    print(f"meetings left: {len(left)}")
    return 1 if failed or left else 0


if __name__ == "__main__":
    sys.exit(main())
