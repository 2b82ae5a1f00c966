"""The names of torch._dynamo that programs use beside torch.compile (arete.compiler has what they are about)."""
from __future__ import annotations

import dataclasses as _dataclasses
import json as _json
import re as _re
import traceback as _traceback
from typing import Any, Callable

from .. import _C
from ..compiler import _program_of
from ..compiler import allow_in_graph as allow_in_graph
from ..compiler import assume_constant_result as assume_constant_result
from ..compiler import compile as compile
from ..compiler import disable as disable
from ..compiler import is_compiling as is_compiling
from ..compiler import list_backends as list_backends
from ..compiler import nested_compile_region as nested_compile_region
from ..compiler import reset as reset
from ..compiler import set_stance as set_stance
from ..compiler import substitute_in_graph as substitute_in_graph
from ..nn.modules._compiled import OptimizedModule as OptimizedModule
from . import backends as backends
from . import config as config
from . import eval_frame as eval_frame
from . import exc as exc
from . import utils as utils
from .backends.registry import lookup_backend as lookup_backend
from .backends.registry import register_backend as register_backend
from .eval_frame import is_dynamo_supported as is_dynamo_supported


def mark_dynamic(t: Any, index: Any, **_: Any) -> None:
    """Does nothing: all sizes may change.

    >>> arete._dynamo.mark_dynamic(arete.ones(3), 0)
    """


maybe_mark_dynamic = mark_unbacked = mark_dynamic


def mark_static(t: Any, index: Any = None) -> None:
    """Does nothing: a size that stays has one plan.

    >>> arete._dynamo.mark_static(arete.ones(3))
    """


def optimize(backend: Any = "inductor", *, nopython: bool = False, disable: bool = False,
             dynamic: bool | None = None) -> Callable[[Any], Any]:
    """The older spelling of arete.compile(backend=..., fullgraph=nopython). There are no guards to pass functions for.

    >>> arete._dynamo.optimize("inductor")(lambda x: x + 1)(arete.ones(1))
    tensor([2.])
    """
    return compile(backend=backend, fullgraph=nopython, disable=disable, dynamic=dynamic)


def optimize_assert(backend: Any, **more: Any) -> Callable[[Any], Any]:
    """optimize() with nopython=True.

    >>> arete._dynamo.optimize_assert("eager")(lambda x: x + 1)(arete.ones(1))
    tensor([2.])
    """
    return optimize(backend, nopython=True, **more)


def run(fn: Any = None) -> Any:
    """Gives the function: there is nothing that is only to be found again.

    >>> arete._dynamo.run(len) is len
    True
    """
    return (lambda function: function) if fn is None else fn


def nonstrict_trace(traceable_fn: Callable) -> Callable:
    """Marks a function that a compiler shall not look into, as none does: gives the function.

    >>> arete._dynamo.nonstrict_trace(len) is len
    True
    """
    return traceable_fn


class error_on_graph_break:
    """As a `with` block or a decorator, with False: a look at a value is no error, but where compile() has fullgraph=True, which goes
    on. True is refused.

    >>> with arete._dynamo.error_on_graph_break(False):
    ...     pass
    """

    def __init__(self, error_on_graph_break: bool) -> None:
        if error_on_graph_break:
            raise NotImplementedError("_dynamo.error_on_graph_break(True): whole functions may have no breaks: compile(fullgraph=True)")

    def __call__(self, fn: Callable) -> Callable:
        return fn

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: Any) -> None:
        return None


def disallow_in_graph(fn: Any) -> Any:
    """Marks a function whose calls are made at once: see compiler.disable().

    >>> arete._dynamo.disallow_in_graph(len)([1, 2])
    2
    """
    return disable(fn)


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Does nothing: addresses are looked at in each run.

    >>> arete._dynamo.mark_static_address(arete.ones(3))
    """


def graph_break(msg: str = "") -> None:
    """Makes the calls that were put off so far.

    >>> arete.compile(lambda x: (x + 1, arete._dynamo.graph_break())[0] * 2)(arete.ones(1))
    tensor([4.])
    """
    _C._graph_break()


@_dataclasses.dataclass
class GraphCompileReason:
    """Why a plan ended before the function did: `user_stack` has the line, if it is known."""

    reason: str
    user_stack: list[_traceback.FrameSummary]
    graph_break: bool = True


@_dataclasses.dataclass(repr=False)
class ExplainOutput:
    """What became of one call, under torch's names: a graph is a plan that ran. `explanation` is all that is known, as a dictionary."""

    graphs: list[dict]
    graph_count: int
    graph_break_count: int
    break_reasons: list[GraphCompileReason]
    op_count: int
    ops_per_graph: list[list[str]]
    out_guards: list
    compile_times: str
    explanation: dict
    text: str

    def __repr__(self) -> str:
        return (f"Graph Count: {self.graph_count}\nGraph Break Count: {self.graph_break_count}\nOp Count: {self.op_count}\n\n{self.text}")


_LINE = _re.compile(r"(.*):(\d+) in (.*)")


def _reason_of(its: dict) -> GraphCompileReason:
    line = _LINE.fullmatch(its["where"])
    stack = [_traceback.FrameSummary(line[1], int(line[2]), line[3])] if line else []
    return GraphCompileReason(f"a value is looked at, of {its['what']}: {its['advice']}", stack)


def _output_of(own: Any) -> ExplainOutput:
    (its,) = _json.loads(own.explain("json"))["functions"]
    # A plan that ran several times is as many graphs of the call.
    plans = [p for t in its["traces"] for p in t["plans"] for _ in range(p["runs"])]
    operators = [[name for step in p["steps"] for name in step["operators"]] for p in plans]
    stats = its["stats"]
    return ExplainOutput(
        graphs=plans,
        graph_count=stats["runs"],
        graph_break_count=stats["breaks"],
        break_reasons=[_reason_of(b) for b in its["breaks"] for _ in range(b["count"])],
        op_count=sum(map(len, operators)),
        ops_per_graph=operators,
        out_guards=[],  # there is nothing to guard
        compile_times=f"planning: {stats['planning']:.4f} s",
        explanation=its,
        text=own.explain(),
    )


def explain(f: Callable, *extra_args: Any, **extra_kwargs: Any) -> Any:
    """Calls `f` compiled, and says what became of it, as torch does: `graph_count` plans ran, between `graph_break_count` looks at values,
    for `break_reasons`, of `op_count` operators. Of what is compiled, for a backend of the program, too, the function itself is called.

    >>> told = arete._dynamo.explain(lambda x: x * 2 + 1)(arete.ones(2))
    >>> told.graph_count, told.graph_break_count, told.ops_per_graph
    (1, 0, [['mul', 'add']])
    """

    while (inner := getattr(f, "_orig_mod", None) or getattr(f, "_torchdynamo_orig_callable", None)) is not None:
        f = inner

    def call(*args: Any, **kwargs: Any) -> ExplainOutput:
        own = _program_of(f)
        assert own is not None
        own.run(f, args, kwargs)
        return _output_of(own)

    return call(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else call
