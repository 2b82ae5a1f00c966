#!/usr/bin/env python3
"""Compiles each public header alone, with nothing but the project's root on the include path.

With --record FILE, headers whose text (and that of every header of ours they reach) has not changed since they passed
are skipped. Where many are due, as in a new clone, a quarter of them is compiled, which one the commit says: other commits
check the others. --all compiles all.

What many of them reach is compiled once, ahead of each. A header that includes it anyway sees the same: each compiles
alone, whatever comes before it.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"](arete/[^>"]+)[>"]', re.MULTILINE)


def public_headers(root):
    for path in sorted((root / "arete").rglob("*.h")):
        name = path.relative_to(root).as_posix()
        if "/detail/" in name or name.endswith(("_internal.h", ".inl.h", ".inc.h")) or name.startswith("arete/backend/"):
            continue
        yield name


def reachable(root, name, seen):
    if name in seen or not (root / name).is_file():
        return seen
    seen.add(name)
    for include in INCLUDE.findall((root / name).read_text(errors="replace")):
        reachable(root, include, seen)
    return seen


def digest(root, name, command):
    state = hashlib.sha256(" ".join(command).encode())
    for path in sorted(reachable(root, name, set())):
        state.update(path.encode() + b"\0" + (root / path).read_bytes())
    return state.hexdigest()


def quarter(root, due, digests):
    """The quarter of these headers that this commit checks; all of few, or outside a clone."""
    few = 40
    result = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True)
    if len(due) <= few or result.returncode:
        return due
    turn = int(result.stdout, 16) % 4
    return [name for name in due if int(digests[name], 16) % 4 == turn]


def includes_always(path):
    """What a header includes whatever macros say: other files of ours, and of others."""
    ours, others, depth = [], [], 0
    for line in path.read_text(errors="replace").splitlines():
        if re.match(r"\s*#\s*if", line):
            depth += 1
        elif re.match(r"\s*#\s*endif", line):
            depth -= 1
        elif match := re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line):
            if depth == 0:
                (ours if match[1].startswith("arete/") else others).append(match[1])
    return ours, others


def bases(root, due):
    """For each of these headers the one that is compiled ahead of it, itself for none: so that as little as possible is read."""
    reached, sizes = {}, {}

    def reach(name):
        if name not in reached:
            reached[name] = ({name}, set())
            ours, others = includes_always(root / name) if (root / name).is_file() else ([], [])
            reached[name][1].update(others)
            for other in ours:
                for mine, more in zip(reached[name], reach(other)):
                    mine |= more
        return reached[name]

    for name in due:
        reach(name)
    for name, (ours, others) in reached.items():
        sizes[name] = len(ours) + 3 * len(others)  # files of the standard library are long
    base = {name: name for name in due}
    saved = dict.fromkeys(due, 0)
    public = [name for name in reached if (root / name).is_file() and name.endswith(".h") and not name.endswith((".inl.h", ".inc.h"))]
    while True:
        def gain(b):
            return sum(max(0, sizes[b] - saved[h]) for h in due if h != b and b in reached[h][0]) - 2 * sizes[b]

        best = max(public, key=gain, default=None)
        if best is None or gain(best) <= 0:
            return base
        for h in due:
            if h != best and best in reached[h][0] and sizes[best] > saved[h]:
                base[h], saved[h] = best, sizes[best]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--compiler", default=os.environ.get("CXX", "c++"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--record", type=pathlib.Path)
    parser.add_argument("--all", action="store_true")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    command = [arguments.compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{root}"]

    record = {}
    if arguments.record and arguments.record.is_file():
        record = json.loads(arguments.record.read_text())
    names = list(public_headers(root))
    digests = {name: digest(root, name, command) for name in names}
    due = [name for name in names if record.get(name) != digests[name]]
    if not arguments.all:
        due = quarter(root, due, digests)

    failed = 0
    with tempfile.TemporaryDirectory(prefix="headers") as folder, concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        base = bases(root, due)

        def precompile(number_and_name):
            number, name = number_and_name
            path = pathlib.Path(folder) / f"base{number}.h"
            path.write_text(f'#include "{name}"\n')
            whole = [option for option in command if option != "-fsyntax-only"]
            result = subprocess.run([*whole, "-x", "c++-header", str(path), "-o", f"{path}.gch"], capture_output=True)
            return name, path, result.returncode

        ahead = {name: ["-Winvalid-pch", "-include", str(path)]
                 for name, path, code in pool.map(precompile, enumerate(sorted({b for h, b in base.items() if b != h}))) if not code}

        def compile_one(name):
            # -include and an empty file rather than the header as the main file, where #pragma once is a warning.
            first = ahead.get(base[name], []) if base[name] != name else []
            result = subprocess.run([*command, *first, "-include", name, "-x", "c++", "/dev/null"], capture_output=True, text=True)
            return name, result.returncode, result.stderr

        for name, code, errors in pool.map(compile_one, due):
            if code:
                failed += 1
                print(f"{name} does not compile alone:\n{errors}")
            else:
                record[name] = digests[name]
    if arguments.record:
        arguments.record.write_text(json.dumps(record))
    print(f"{len(names)} public headers, {len(due)} compiled, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
