"""Names of kinds of arguments, for annotations."""
from __future__ import annotations

import builtins
import os
from typing import IO, Any, Sequence, Union

from ._C import Size, device, dtype  # noqa: F401

__all__ = ["Device", "FileLike", "Number", "Storage"]

Number = Union[builtins.int, builtins.float, builtins.bool]
Device = Union[device, str, builtins.int, None]
FileLike = Union[str, os.PathLike, IO[bytes]]
Storage = Any

_int, _float, _bool, _complex = builtins.int, builtins.float, builtins.bool, builtins.complex
_dtype, _device, _size = dtype, device, Union[Size, Sequence[builtins.int]]
