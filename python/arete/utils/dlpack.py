"""Exchange of tensors with other libraries without copying."""
from __future__ import annotations

from typing import Any

from .. import _operators

__all__ = ["from_dlpack", "to_dlpack"]


def from_dlpack(ext_tensor: Any) -> Any:
    """A tensor over the memory of an object with `__dlpack__`, or of a DLPack capsule.

    >>> arete.utils.dlpack.from_dlpack(arete.utils.dlpack.to_dlpack(arete.tensor([1, 2])))
    tensor([1, 2])
    """
    return _operators.from_dlpack(ext_tensor)


def to_dlpack(tensor: Any) -> Any:
    """A DLPack capsule of the tensor, which can be consumed once. Objects with `__dlpack__` need none.

    >>> x = arete.tensor([1, 2])
    >>> arete.utils.dlpack.from_dlpack(arete.utils.dlpack.to_dlpack(x)).data_ptr() == x.data_ptr()
    True
    """
    return tensor.__dlpack__()
