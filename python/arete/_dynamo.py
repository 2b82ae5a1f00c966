"""The names of torch._dynamo that programs use beside torch.compile (arete.compiler has what they are about)."""
from __future__ import annotations

from typing import Any, Callable

from . import _C
from .compiler import _program_of, _wrap
from .compiler import disable as disable
from .compiler import is_compiling as is_compiling
from .compiler import reset as reset


class _Config:
    """What programs switch that speaks of a compiler of Python. `suppress_errors` has nothing to suppress: what is not put together runs
    as it is called. Other settings are refused."""

    def __init__(self) -> None:
        self.__dict__.update(suppress_errors=False)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__dict__:
            raise AttributeError(f"_dynamo.config has no '{name}': functions are run and not translated, so that there is nothing to set")
        self.__dict__[name] = value


config = _Config()


def mark_dynamic(t: Any, index: Any, **_: Any) -> None:
    """Does nothing: all sizes may change.

    >>> arete._dynamo.mark_dynamic(arete.ones(3), 0)
    """


maybe_mark_dynamic = mark_static = mark_dynamic


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Does nothing: addresses are looked at in each run.

    >>> arete._dynamo.mark_static_address(arete.ones(3))
    """


def graph_break(msg: str = "") -> None:
    """Makes the calls that were put off so far.

    >>> arete.compile(lambda x: (x + 1, arete._dynamo.graph_break())[0] * 2)(arete.ones(1))
    tensor([4.])
    """
    _C._make_calls()


class _Explanation:
    def __init__(self, program: Any) -> None:
        self.stats, self.break_reasons = program.stats(), program.breaks()
        self.graph_count = self.stats["runs"]
        self.graph_break_count = self.stats["breaks"]
        self._text = program.explain()

    def __repr__(self) -> str:
        return self._text


def explain(f: Callable, *extra_args: Any, **extra_kwargs: Any) -> Any:
    """Calls `f` compiled, and says what became of it: text, with `graph_count`, `graph_break_count`, `break_reasons`.

    >>> arete._dynamo.explain(lambda x: x * 2 + 1)(arete.ones(2)).graph_break_count
    0
    """

    def call(*args: Any, **kwargs: Any) -> _Explanation:
        own = _program_of()
        assert own is not None
        _wrap(f, own)(*args, **kwargs)
        return _Explanation(own.program)

    return call(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else call
