"""Functions and modules as programs that run without their Python: torch.jit's names over recorded programs (docs/program.md).

`trace` records at once, `script` at the first call; both write down the calls of operators that are made, so a branch that depends on
values is an error with its line, and Python that is run while recording (numbers, loops over lists, hooks) leaves only its calls.
"""
from __future__ import annotations

from typing import Final  # noqa: F401

from .._refused import refused as _refused
from ..futures import Future as Future
from ._freeze import freeze, optimize_for_inference, run_frozen_optimizations
from ._marks import (
    _overload as _overload, _overload_method as _overload_method, _script_if_tracing as _script_if_tracing,
    _unwrap_optional as _unwrap_optional, annotate, export, fork, fuser, ignore, interface, isinstance, optimized_execution,
    script_if_tracing, set_fusion_strategy, strict_fusion, unused, wait,
)
from ._programs import ScriptFunction, ScriptModule, export_opnames, load, save
from ._script import RecursiveScriptModule as RecursiveScriptModule
from ._script import script, script_method
from ._trace import TracerWarning, TracingCheckError as TracingCheckError, is_scripting, is_tracing, trace, trace_module
from ._trace import TopLevelTracedModule as TopLevelTracedModule, TracedModule as TracedModule

__all__ = ["ScriptFunction", "ScriptModule", "TracerWarning", "annotate", "export", "export_opnames", "fork", "freeze", "fuser", "ignore",
           "interface", "is_scripting", "is_tracing", "isinstance", "load", "optimize_for_inference", "optimized_execution",
           "run_frozen_optimizations", "save", "script", "script_if_tracing", "script_method", "set_fusion_strategy", "strict_fusion",
           "trace", "trace_module", "unused", "wait"]

Error = RuntimeError
globals().update(_refused("arete.jit", "programs are recorded calls, and there is no compiler of Python", "CompilationUnit"))
