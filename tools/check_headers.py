#!/usr/bin/env python3
"""Compiles each public header alone, with nothing but the project's root on the include path.

With --record FILE, headers whose text (and that of every header of ours they reach) has not changed since they passed
are skipped. Where many are due, as in a new clone, a quarter of them is compiled, which one the commit says: other commits
check the others. --all compiles all.
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

    def compile_one(name):
        # -include and an empty file rather than the header as the main file, where #pragma once is a warning.
        result = subprocess.run([*command, "-include", name, "-x", "c++", "/dev/null"], capture_output=True, text=True)
        return name, result.returncode, result.stderr

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
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
