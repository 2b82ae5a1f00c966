"""How much of real programs finds its names: of the sources of installed packages, the names of torch that they use and Arete has.

    python -m arete.as_torch tools/count_names.py --torch NAMES [--folder SITE-PACKAGES] PACKAGE ...
    python tools/count_names.py --write-torch NAMES [--folder SITE-PACKAGES] PACKAGE ...

A name is what follows an import in the syntax tree: `torch.nn.functional.relu`, also by `import torch.nn as nn` and `from torch import nn`.
Methods of tensors are not in it. The second form, run where PyTorch is, writes which of them PyTorch has: names that it lacks, too (of
other versions and devices), do not count. A file counts as whole when it finds all of its names that PyTorch has.
"""
from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import importlib
import io
import json
import pathlib
import sys
import sysconfig
import warnings


def names_of(source: str) -> set[str]:
    """The names of torch in a file, the longest of each chain of attributes."""
    tree = ast.parse(source)
    aliases: dict[str, str] = {}
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for a in node.names:
                if a.name.partition(".")[0] == "torch":
                    aliases[a.asname or "torch"] = a.name if a.asname else "torch"
                    found.add(a.name)
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").partition(".")[0] == "torch":
            for a in node.names:
                if a.name == "*":
                    found.add(node.module)
                else:
                    aliases[a.asname or a.name] = f"{node.module}.{a.name}"
                    found.add(f"{node.module}.{a.name}")
    inner: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or id(node) in inner:
            continue
        parts, at = [], node
        while isinstance(at, ast.Attribute):
            inner.add(id(at))
            parts.append(at.attr)
            at = at.value
        if isinstance(at, ast.Name) and at.id in aliases:
            found.add(".".join([aliases[at.id], *reversed(parts)]))
    return {name for name in found if name != "torch"}


def finds(name: str) -> bool:
    """Whether the library has it. Attributes of what is no module or class are not looked at: nobody says what objects hold."""
    parts = name.split(".")
    at = importlib.import_module("torch")
    for i, part in enumerate(parts[1:], 2):
        if not isinstance(at, (type, type(sys))):
            return True
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                if not hasattr(at, part):
                    importlib.import_module(".".join(parts[:i]))
                at = getattr(at, part)
        except Exception:
            return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="+")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(sysconfig.get_paths()["purelib"]))
    parser.add_argument("--torch", type=pathlib.Path, help="what --write-torch wrote")
    parser.add_argument("--write-torch", type=pathlib.Path, help="write which of the names this library has")
    parser.add_argument("--missing", type=int, default=60, help="how many missing names are shown")
    given = parser.parse_args()

    used: dict[str, dict[pathlib.Path, set[str]]] = {}
    for package in given.packages:
        files = used.setdefault(package, {})
        for file in sorted((given.folder / package).rglob("*.py")):
            try:
                names = names_of(file.read_text(encoding="utf-8"))
            except (SyntaxError, UnicodeDecodeError):
                continue
            if names:
                files[file] = names
    every = sorted(set().union(*(names for files in used.values() for names in files.values())))
    has = {name for name in every if finds(name)}
    if given.write_torch:
        given.write_torch.write_text(json.dumps(sorted(has)))
        return
    known = set(json.loads(given.torch.read_text())) if given.torch else set(every)

    missing: collections.Counter[str] = collections.Counter()
    alone: collections.Counter[str] = collections.Counter()
    totals = [0, 0, 0, 0]
    print(f"{'package':24}{'files':>8}{'whole':>8}{'share':>8}{'names found':>14}")
    for package, files in [*used.items(), ("all", {})]:
        whole = pairs = found = 0
        for names in files.values():
            wanted = names & known
            lacks = wanted - has
            whole += not lacks
            pairs, found = pairs + len(wanted), found + len(wanted) - len(lacks)
            missing.update(lacks)
            if len(lacks) == 1:
                alone.update(lacks)
        figures = [len(files), whole, pairs, found] if package != "all" else totals
        if package != "all":
            totals = [a + b for a, b in zip(totals, figures)]
        print(f"{package:24}{figures[0]:8}{figures[1]:8}{figures[1] / max(figures[0], 1):8.1%}{figures[3] / max(figures[2], 1):14.1%}")
    print(f"\n{len(known & set(every))} names, of which {len(known & set(every) & has)} are found. "
          "Missing, with files, and files that lack nothing else:")
    for name, count in missing.most_common(given.missing):
        print(f"{count:6}{alone[name]:6}  {name}")


if __name__ == "__main__":
    main()
