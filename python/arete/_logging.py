"""torch._logging.set_logs: what torch's compiler tells while it works is told here when the program ends."""
from __future__ import annotations

import atexit
import logging
import sys
from typing import Any

from . import _C, compiler

__all__ = ["set_logs"]

# What torch tells of compiled functions that explain() tells, too, and of its parts, which are one here.
_TOLD = {"all", "dynamo", "aot", "autograd", "inductor", "cudagraphs", "dynamic", "graph", "graph_code", "graph_sizes", "graph_breaks",
         "aot_graphs", "aot_joint_graph", "post_grad_graphs", "recompiles", "recompiles_verbose", "fusion", "schedule", "perf_hints",
         "output_code", "kernel_code", "overlap", "benchmarking"}
_kept: list = []


def _tell() -> None:
    programs = [own.program for own in _kept]
    if programs and sys.stderr is not None:
        print(_C._explain(programs, "text"), end="", file=sys.stderr)


def set_logs(*, modules: Any = None, **artifacts: Any) -> None:
    """Has all functions that are compiled from now on explained on stderr when the program ends, as `arete explain` does, where torch
    would tell of them while it compiles: with the name of a part of its compiler and a level of INFO or below, or an artifact such as
    `graph_breaks=True` or `recompiles=True`. Without any, or with those false, nobody is told. ValueError for other names;
    NotImplementedError for `modules`.

    >>> arete._logging.set_logs(graph_breaks=False)
    """
    if modules:
        raise NotImplementedError("set_logs(): no module of the package logs; compiled functions are explained when the program ends")
    unknown = artifacts.keys() - _TOLD
    if unknown:
        raise ValueError(f"set_logs(): {', '.join(sorted(unknown))}: the names of what is told are {', '.join(sorted(_TOLD))}")
    wanted = any(v is True or isinstance(v, int) and not isinstance(v, bool) and v <= logging.INFO for v in artifacts.values())
    atexit.unregister(_tell)
    if wanted:
        compiler._kept = _kept if compiler._kept is None else compiler._kept
        if compiler._kept is _kept:  # else arete explain runs the program, and tells it
            atexit.register(_tell)
    elif compiler._kept is _kept:
        compiler._kept = None
