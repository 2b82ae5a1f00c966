#!/usr/bin/env python3
"""Looks for code compiled for newer processors that the linker could give to everybody.

An inline function or template instance that two objects define is kept once, in whichever form the linker meets first.
If that is the AVX-512 form, the program dies on a processor without it, in a place that has nothing to do with SIMD. So
the objects of *.simd.cpp may define weak symbols only inside the namespace of their instruction set.

usage: check_simd_objects.py NM NAMESPACE OBJECT...
"""

import subprocess
import sys


def main():
    nm, namespace, *objects = sys.argv[1:]
    if not objects:
        print("no objects given")
        return 1
    bad = 0
    for path in objects:
        for line in subprocess.run([nm, "-C", path], capture_output=True, text=True, check=True).stdout.splitlines():
            kind, _, name = line[17:].partition(" ")
            # DW.ref.*: a pointer to the personality routine, no code.
            if kind in "WVu" and line[:16].strip() and f"::{namespace}::" not in name and not name.startswith("DW.ref."):
                bad += 1
                print(f"{path}: {name} is not in namespace {namespace}")
    print(f"{len(objects)} objects for {namespace}, {bad} symbols that others could get")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
