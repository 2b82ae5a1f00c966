"""Names of kinds of arguments, for annotations."""
from __future__ import annotations

import builtins
import os
from typing import IO, Any, Sequence, Union

from ._C import Size, device, dtype  # noqa: F401

__all__ = ["Device", "FileLike", "Number", "Storage", "TensorType"]

Number = Union[builtins.int, builtins.float, builtins.bool]
Device = Union[device, str, builtins.int, None]
FileLike = Union[str, os.PathLike, IO[bytes]]
Storage = Any

_int, _float, _bool, _complex = builtins.int, builtins.float, builtins.bool, builtins.complex
_dtype, _device, _size = dtype, device, Union[Size, Sequence[builtins.int]]


class TensorType:
    """The type that any tensor has in the signatures of operators and programs.

    >>> str(arete.TensorType.get())
    'Tensor'
    """

    annotation_str = "Tensor"
    _it: Any = None

    @classmethod
    def get(cls) -> "TensorType":
        """The one of its kind."""
        cls._it = cls._it or cls()
        return cls._it

    def isSubtypeOf(self, other: Any) -> bool:  # noqa: N802, torch's name
        """Whether `other` is this type, too."""
        return isinstance(other, TensorType)

    def kind(self) -> str:
        return "TensorType"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorType)

    def __hash__(self) -> int:
        return hash(TensorType)

    def __repr__(self) -> str:
        return "Tensor"
