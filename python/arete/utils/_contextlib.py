"""Context managers that decorate functions, too: what those of programs are derived from."""
from __future__ import annotations

from typing import Any, Callable

from .._grad_mode import _Switch

__all__: list[str] = []


class _DecoratorContextManager(_Switch):
    """A context manager that decorates functions and generator functions, each call of which, or each step, is inside of a clone().

    >>> class Said(arete.utils._contextlib._DecoratorContextManager):
    ...     def __enter__(self):
    ...         print("in")
    ...     def __exit__(self, *error):
    ...         print("out")
    >>> @Said()
    ... def f():
    ...     return 3
    >>> f()
    in
    out
    3
    """

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, *error: Any) -> Any:
        raise NotImplementedError

    def clone(self) -> "_DecoratorContextManager":
        """One of the kind, as it was made: for those that take arguments to define anew."""
        return type(self)()

    def _again(self) -> "_DecoratorContextManager":
        return self.clone()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """One that decorates without parentheses, too."""

    def __new__(cls, orig_func: Callable | None = None) -> Any:
        self = super().__new__(cls)
        return self if orig_func is None else self(orig_func)
