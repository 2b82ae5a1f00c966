"""Errors of torch's compiler that programs catch."""
from __future__ import annotations

from typing import Any

from .._C import ArgumentError as Unsupported

__all__ = ["InvalidBackend", "TorchDynamoException", "Unsupported"]

# A look at a value under fullgraph=True, and in a function for a backend of the program, is an ArgumentError.
TorchDynamoException = RuntimeError


class InvalidBackend(TorchDynamoException):
    """The error of a name that no backend has.

    >>> arete._dynamo.lookup_backend("nobody's")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    arete._dynamo.exc.InvalidBackend: Invalid backend: "nobody's", ...
    """

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"Invalid backend: {name!r}, see `torch._dynamo.list_backends()` for available backends.")

    def __reduce__(self) -> Any:
        return type(self), (self.name,)
