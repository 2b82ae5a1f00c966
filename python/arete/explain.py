"""Runs a program and says what became of its compiled functions: `python -m arete.explain prog.py [arguments]`, or `arete explain`."""
from __future__ import annotations

import argparse
import ast
import os
import runpy
import sys
import threading
import traceback
from concurrent.futures import thread as executors
from typing import Any

from . import _C, compiler

_DESCRIPTION = """\
Runs a Python program and explains its compiled functions when it has ended: where values are looked at and what that costs, why there
are several plans, which kernels the calls became, and what stayed apart. The exit code is the program's. A program that ends itself
without Python's help (os._exit, a signal) is not explained."""

_WHAT_TO_COMPILE = """\
Compiled is best what runs again and again as a whole: a step with forward pass, loss, backward pass and the optimizer's step, or the
forward pass of a model that is evaluated:

    @arete.compile
    def step(x, y): ...
"""


def _status_of(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    print(error.code, file=sys.stderr)
    return 1


def _run(program: str, arguments: list[str]) -> int:
    """Runs the program as Python would, and gives its exit code."""
    sys.argv = [program, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    before = threading.enumerate()
    try:
        runpy.run_path(program, run_name="__main__")
        status = 0
    except SystemExit as error:
        status = _status_of(error)
    except BaseException as error:  # it is told as Python tells it, and the explanation follows
        own = (__file__, runpy.__file__)
        frames = error.__traceback__
        while frames is not None and (frames.tb_frame.f_code.co_filename in own or "<frozen runpy>" in frames.tb_frame.f_code.co_filename):
            frames = frames.tb_next
        traceback.print_exception(type(error), error, frames)
        status = 130 if isinstance(error, KeyboardInterrupt) else 1
    try:
        for thread in threading.enumerate():
            # Those of executors wait for work until the interpreter ends.
            if thread not in before and not thread.daemon and thread not in getattr(executors, "_threads_queues", ()):
                thread.join()
    except KeyboardInterrupt:
        status = 130
    return status


def _steps_in(program: str) -> list[str]:
    """Lines of the program that say what a step is: functions that call backward(), or the loops around such calls."""
    try:
        with open(program, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    found = []
    nodes: list[tuple[ast.AST, Any]] = [(tree, None)]  # expressions may be nested deeper than Python calls
    while nodes:
        node, inside = nodes.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.For, ast.While)):
            inside = node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward" and inside is not None:
            what = f"the function {inside.name}()" if isinstance(inside, (ast.FunctionDef, ast.AsyncFunctionDef)) else (
                "the body of the loop, as a function,")
            found.append(f"{program}:{inside.lineno}: {what} has a backward pass (line {node.lineno})")
        nodes += [(child, inside) for child in ast.iter_child_nodes(node)]
    return sorted(dict.fromkeys(found))


def _nothing_compiled(program: str) -> str:
    text = f"{program} compiled no function.\n"
    if compiler._stance == "force_eager" or "1" in (os.environ.get("TORCH_COMPILE_DISABLE"), os.environ.get("TORCHDYNAMO_DISABLE")):
        return text + "Compilation is switched off, by TORCH_COMPILE_DISABLE or set_stance(\"force_eager\").\n"
    steps = _steps_in(program)
    return text + _WHAT_TO_COMPILE + ("\nHere this may be:\n" + "".join(f"    {s}\n" for s in steps) if steps else "")


def main(argv: "list[str] | None" = None) -> int:
    """The command; gives the program's exit code, or 2 where the arguments are wrong."""
    parser = argparse.ArgumentParser("arete explain", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="write all that is known to this file, too")
    parser.add_argument("--html", metavar="FILE", help="write a page with the plans drawn to this file, too")
    parser.add_argument("program", help="a Python program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    options = parser.parse_args(argv)
    if not os.path.exists(options.program):
        parser.error(f"there is no program {options.program!r}")
    # Before the program runs, which may take long; and it may change the folder.
    files = []
    for format in ("json", "html"):
        name = getattr(options, format)
        if name is not None:
            try:
                files.append((open(name, "w", encoding="utf-8"), format))
            except OSError as error:
                parser.error(f"--{format}: {error}")
    kept: list[Any] = []
    compiler._kept = kept
    output = sys.stdout  # the program may close or replace it
    try:
        status = _run(options.program, options.arguments)
    finally:
        compiler._kept = None
    programs = [own.program for own in kept]
    for file, format in files:
        with file:
            file.write(_C._explain(programs, format))
    told = f"\n== what became of the compiled functions of {options.program} ==\n"
    told += _C._explain(programs, "text") if programs else _nothing_compiled(options.program)
    told += "".join(f"wrote {file.name}\n" for file, _ in files)
    try:
        if sys.stdout is not None and sys.stdout is not output:
            sys.stdout.flush()
    except (AttributeError, OSError, ValueError):
        pass
    try:
        if output is not None:
            print(told, end="", file=output, flush=True)
    except (OSError, ValueError):
        pass
    return status


if __name__ == "__main__":
    sys.exit(main())
