"""The names of NumPy that arete.numpy has: its own, NumPy's handed on, and those that are not there, with the reason.

    python tools/numpy_names.py [--modules] [--table FILE]

Needs NumPy. `--modules` looks into linalg, fft, random, polynomial, ma, emath and the class of arrays, too; `--table` writes Markdown.
"""
from __future__ import annotations

import argparse
import pathlib
from typing import Any

import numpy

import arete.numpy as own
from arete.numpy._interchange import HOST


def classified(theirs: Any, ours: Any) -> dict[str, list[tuple[str, str]]]:
    """Names with a remark: "own", "NumPy's" or "absent"."""
    found: dict[str, list[tuple[str, str]]] = {"own": [], "NumPy's": [], "absent": []}
    for name in sorted(n for n in dir(theirs) if not n.startswith("_")):
        if ours is own and name in HOST:
            found["NumPy's"].append((name, "about the host"))
            continue
        try:
            getattr(ours, name)
        except AttributeError as e:
            found["absent"].append((name, str(e)))
        else:
            found["own"].append((name, ""))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", action="store_true")
    parser.add_argument("--table", type=pathlib.Path, help="a Markdown file for all names")
    given = parser.parse_args()

    places = {"numpy": (numpy, own)}
    if given.modules:
        for part in ("linalg", "fft", "random", "polynomial", "ma", "emath", "exceptions", "ndarray", "dtype", "random.Generator"):
            theirs, ours = numpy, own
            for step in part.split("."):
                theirs, ours = getattr(theirs, step), getattr(ours, step)
            places[f"numpy.{part}"] = (theirs, ours)
    lines = []
    for place, (theirs, ours) in places.items():
        found = classified(theirs, ours)
        total, handed = sum(map(len, found.values())), found["NumPy's"]
        print(f"{place:24}{total:5} names: {len(found['own']):4} own, {len(handed):3} NumPy's, "
              f"{len(found['absent']):3} absent")
        for name, why in found["absent"]:
            print(f"    {name:20} {why}")
        lines += [f"| {place}.{name} | {kind} | {why} |" for kind, names in found.items() for name, why in names]
    if given.table:
        given.table.write_text("\n".join(["| name | here | |", "|---|---|---|", *lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
