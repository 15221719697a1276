#!/usr/bin/env python3
"""Counts how often a job opens the index logs of a container.

    tests/mpi/opens.py CONTAINER WRITERS alone|together READERS COMMAND...

Runs the command, which has READERS ranks open the container. The kernel counts the opens (inotify). `together`: the exit status is 0 if
each of the WRITERS index logs was opened once. `alone`: if each rank opened each of them; ranks leave a barrier together, and the kernel
reports equal events one after the other as one, so half of them are enough. The command's own failure is a failure too.
"""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "preload"))
from groups import Opens  # noqa: E402

container, writers, way, readers, *command = sys.argv[1:]
writers, readers = int(writers), int(readers)
opens = Opens(container)
status = subprocess.call(command)
names = opens.take()
print(f"{way}: {len(names)} opens of {len(set(names))} index logs, {readers} readers of {writers} writers")
wanted = [writers] if way == "together" else range(readers * writers // 2, readers * writers + 1)
left = [name for name in os.listdir(container) if name.startswith("g.")]
if left:
    print(f"meetings left: {left}")
sys.exit(status or (0 if len(names) in wanted and len(set(names)) == writers and not left else 1))
