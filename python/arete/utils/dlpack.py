"""Exchange of tensors with other libraries without copying."""
from __future__ import annotations

from typing import Any

import arete

__all__ = ["from_dlpack", "to_dlpack"]


def from_dlpack(ext_tensor: Any) -> Any:
    """A tensor over the memory of an object with `__dlpack__`, or of a DLPack capsule."""
    return arete.from_dlpack(ext_tensor)


def to_dlpack(tensor: Any) -> Any:
    """A DLPack capsule of the tensor, which can be consumed once. Objects with `__dlpack__` need none."""
    return tensor.__dlpack__()
