#!/usr/bin/env python3
"""Kills processes that write by the preload library, and looks what is left.

    kills.py SHOAL KIND ROUNDS HOME          all rounds, in HOME/dir; says what it saw
    kills.py work DIR LOG SEED PREFIX        what the processes do: random calls, each noted in LOG before and after it
    kills.py look DIR MODEL                  compares files with a model; run by the library too

The model is what LOG says: calls that returned have happened, and the last one, if it did not return, has happened, or has not, or in
part. All names of a process begin with its prefix, so what the others wrote is known too.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time

ROUND_SECONDS_MAX = 0.4
FILES = 12
TORN = re.compile(r"block \d+ of blocks\.\d+ is torn at byte \d+: what followed there is lost$")


def content(seed, size):
    return random.Random(seed).randbytes(size)


# The processes.


class Worker:
    """Random calls, noted."""

    def __init__(self, dir, log, seed, prefix):
        self.dir, self.prefix = dir, prefix
        self.draw = random.Random(seed)
        self.log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.sizes = {}

    def note(self, *words):
        os.write(self.log, (json.dumps(words) + "\n").encode())

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, fd, data):
        """In parts, as programs do."""
        parts = self.draw.choice([1, 1, 3, 7])
        step = max(1, -(-len(data) // parts))
        for at in range(0, len(data), step):
            part = data[at : at + step]
            assert os.write(fd, part) == len(part)

    def make(self, name):
        seed, size = self.draw.getrandbits(48), self.draw.choice([0, 1, 700, 8192, 8192, 70_000, 1_500_000])
        self.note("make", name, seed, size)
        fd = os.open(self.path(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        self.write(fd, content(seed, size))
        if self.draw.random() < 0.3:
            os.fsync(fd)
        os.close(fd)
        self.sizes[name] = size

    def append(self, name):
        seed, size = self.draw.getrandbits(48), self.draw.choice([1, 300, 9000, 200_000])
        self.note("append", name, seed, size)
        fd = os.open(self.path(name), os.O_WRONLY | os.O_APPEND)
        self.write(fd, content(seed, size))
        os.close(fd)
        self.sizes[name] += size

    def truncate(self, name):
        size = self.draw.randrange(self.sizes[name] + 2000)
        self.note("truncate", name, size)
        os.truncate(self.path(name), size)
        self.sizes[name] = size

    def unlink(self, name):
        self.note("unlink", name)
        os.unlink(self.path(name))
        del self.sizes[name]

    def rename(self, name):
        to = self.draw.choice([to for to in (f"{self.prefix}{n}" for n in range(FILES)) if to != name])
        self.note("rename", name, to)
        os.rename(self.path(name), self.path(to))
        self.sizes[to] = self.sizes.pop(name)

    def run(self):
        self.note("ready")
        while True:
            name = f"{self.prefix}{self.draw.randrange(FILES)}"
            calls = [self.make, self.append, self.append, self.truncate, self.unlink, self.rename]
            (self.draw.choice(calls) if name in self.sizes else self.make)(name)
            self.note("done")


# The model: the content of each name, or several that are allowed.


def cut(data, size):
    return data[:size] + bytes(max(0, size - len(data)))


def apply(files, call):
    kind, name, *rest = call
    if kind == "make":
        files[name] = content(*rest)
    elif kind == "append":
        files[name] = files[name] + content(*rest)
    elif kind == "truncate":
        files[name] = cut(files[name], rest[0])
    elif kind == "unlink":
        del files[name]
    elif kind == "rename":
        files[rest[0]] = files.pop(name)


def replay(log):
    """All that returned, and the call that did not."""
    files, under_way = {}, None
    for line in open(log):
        if not line.endswith("\n"):
            break
        call = json.loads(line)
        if call[0] == "done":
            apply(files, under_way)
            under_way = None
        elif call[0] != "ready":
            under_way = call
    return files, under_way


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def is_allowed(found, before, call, name):
    """What a name of the call under way may lead to."""
    kind, first, *rest = call
    old = before.get(name)
    if found == old:
        return True
    if kind == "make":
        # Made, or cut, and a beginning of the new bytes.
        return found is not None and content(*rest).startswith(found)
    if kind == "append":
        return found is not None and found.startswith(old) and content(*rest).startswith(found[len(old) :])
    if kind == "truncate":
        return found == cut(old, rest[0])
    if kind == "unlink":
        return found is None
    return found == (None if name == first else before[first])


def look(dir, model):
    """The names in MODEL, a line each: a log of a process, and whether it was killed. What is wrong, in words."""
    wrong, known = [], set()
    there = {entry.name for entry in os.scandir(dir)}
    for log, prefix in json.load(open(model)):
        files, under_way = replay(log)
        touched = set() if under_way is None else {name for name in under_way[1:] if isinstance(name, str)}
        found = {name: read(os.path.join(dir, name)) for name in set(files) | touched}
        for name, bytes_found in found.items():
            good = files.get(name)
            if name in touched:
                is_good = is_allowed(bytes_found, files, under_way, name)
            else:
                is_good = bytes_found == good
            if not is_good:
                sizes = [None if data is None else len(data) for data in (bytes_found, good)]
                wrong.append(f"{name}: {sizes[0]} bytes, not the {sizes[1]} that were written; under way: {under_way}")
            if (bytes_found is not None) != (name in there):
                wrong.append(f"{name}: {'not ' if name not in there else ''}in the listing, and opens otherwise")
        if under_way and under_way[0] == "rename" and [found[name] for name in under_way[1:]].count(None) == 2:
            wrong.append(f"{under_way}: neither name is there")
        known |= {name for name, data in found.items() if data is not None}
        wrong += [f"{name}: was never made, or was removed" for name in there - known if name.startswith(prefix)]
    for line in wrong:
        print(line)
    sys.exit(1 if wrong else 0)


# The rounds.


class Rounds:
    def __init__(self, shoal, kind, home):
        self.shoal, self.kind, self.home = shoal, kind, home
        self.dir = os.path.join(home, "dir")
        os.mkdir(self.dir)
        self.model, self.workers, self.torn, self.draw = [], [], 0, random.Random(1)

    def over(self, *words):
        return [self.shoal, "run", "--over", f"{self.dir}={self.kind}", "--", sys.executable, os.path.abspath(__file__), *words]

    def start(self, name):
        log = os.path.join(self.home, f"{name}.log")
        words = self.over("work", self.dir, log, str(self.draw.getrandbits(32)), f"{name}.")
        worker = subprocess.Popen(words, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.workers.append(worker)
        self.model.append((log, f"{name}."))
        deadline = time.monotonic() + 60
        while not (os.path.exists(log) and os.path.getsize(log)):
            if worker.poll() is not None or time.monotonic() > deadline:
                self.fails(f"{name} did not begin: status {worker.poll()}")
            time.sleep(0.002)
        return worker

    def kill(self, worker, name):
        if worker.poll() is not None:
            self.fails(f"{name} ended: status {worker.returncode}")
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
        self.workers.remove(worker)

    def look(self, model):
        path = os.path.join(self.home, "model.json")
        with open(path, "w") as file:
            json.dump(model, file)
        looked = subprocess.run(self.over("look", self.dir, path), capture_output=True, text=True, timeout=1200)
        if looked.returncode:
            self.fails(looked.stdout + looked.stderr)

    def tool(self, *words):
        done = subprocess.run([self.shoal, self.kind, *words], capture_output=True, text=True, timeout=300)
        # A write that was under way may have torn the end of a block: at most one for each that was killed.
        torn = [line for line in done.stdout.splitlines() if TORN.match(line)]
        is_torn = done.returncode == 1 and len(torn) == len(done.stdout.splitlines()) <= len(self.model)
        self.torn = max(self.torn, len(torn))
        if done.returncode and not is_torn:
            self.fails(f"shoal {self.kind} {' '.join(words)}: status {done.returncode}: {done.stdout}{done.stderr}")

    def fails(self, words):
        print(f"{self.kind}: round {self.round}: {words}", flush=True)
        for worker in self.workers:
            worker.kill()
        sys.exit(1)

    def run(self, rounds):
        for self.round in range(1, rounds + 1):
            killed, other = f"k{self.round}", f"o{self.round}"
            workers = [self.start(killed), self.start(other)]
            time.sleep(self.draw.random() * ROUND_SECONDS_MAX)
            self.kill(workers[0], killed)
            self.look(self.model[-2:-1])
            time.sleep(0.05)
            # It was between two calls, or in one: the same is true of it.
            self.kill(workers[1], other)
            self.look(self.model[-2:] + self.draw.sample(self.model, min(2, len(self.model))))
            if self.round % 25 == 0 or self.round == rounds:
                self.tend()
                print(f"{self.kind}: {self.round} of {rounds} rounds", flush=True)
        self.look(self.model)
        calls = sum(sum(1 for line in open(log) if line == '["done"]\n') for log, _ in self.model)
        print(f"kills {self.kind}: {rounds} rounds, {2 * rounds} processes killed, {calls} calls that returned, {self.torn} blocks torn: ok")

    def tend(self):
        """The tools find no damage, and what they tidy leaves all files as they are."""
        if self.kind == "composed":
            for what in ["check", "compact", "check"]:
                self.tool(what, self.dir)
        else:
            for name in sorted(name for name in os.listdir(self.dir) if not name.startswith(".")):
                for what in ["check", "recover", "check"]:
                    self.tool(what, os.path.join(self.dir, name))
            self.tool("recover", self.dir)
        self.look(self.draw.sample(self.model, min(50, len(self.model))))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["work", dir, log, seed, prefix]:
            Worker(dir, log, int(seed), prefix).run()
        case ["look", dir, model]:
            look(dir, model)
        case [shoal, kind, rounds, home]:
            Rounds(shoal, kind, home).run(int(rounds))
        case _:
            sys.exit(__doc__)
