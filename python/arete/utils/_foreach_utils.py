"""What optimizers ask before they work on many tensors at once."""
from __future__ import annotations

from typing import Any, Optional

from .._C import Tensor

__all__: list[str] = []


def _get_foreach_kernels_supported_devices() -> list[str]:
    """The kinds of devices on which `_foreach_` functions are fewer kernels than tensors."""
    return ["cuda"]


def _get_fused_kernels_supported_devices() -> list[str]:
    """The kinds of devices on which a step of an optimizer is one kernel."""
    return ["cuda", "cpu"]


def _device_has_foreach_support(device: Any) -> bool:
    """Whether a device is one of _get_foreach_kernels_supported_devices(), or the CPU, which has the functions.

    >>> from arete.utils._foreach_utils import _device_has_foreach_support
    >>> _device_has_foreach_support(arete.device("cpu"))
    True
    """
    return device.type in (*_get_foreach_kernels_supported_devices(), "cpu")


def _has_foreach_support(tensors: list, device: Any) -> bool:
    """Whether all are tensors, on a device that has it."""
    return _device_has_foreach_support(device) and all(t is None or type(t) is Tensor for t in tensors)


def _group_tensors_by_device_and_dtype(tensorlistlist: list, with_indices: bool = False) -> dict:
    """Lists of as many tensors each, divided by the device and dtype that those of the first list have: {(device, dtype): (lists,
    indices)}, where the indices (empty unless they are wanted) say which they were. Later lists may be empty, or have None.

    >>> x, y = arete.ones(1), arete.ones(1, dtype=arete.float64)
    >>> from arete.utils._foreach_utils import _group_tensors_by_device_and_dtype
    >>> found = _group_tensors_by_device_and_dtype([[x, y, x]], with_indices=True)
    >>> [(dtype, len(lists[0]), indices) for (device, dtype), (lists, indices) in found.items()]
    [(arete.float32, 2, [0, 2]), (arete.float64, 1, [1])]
    """
    if not tensorlistlist or not tensorlistlist[0]:
        raise RuntimeError("_group_tensors_by_device_and_dtype: the first list has no tensors")
    first = tensorlistlist[0]
    if any(one and len(one) != len(first) for one in tensorlistlist):
        raise RuntimeError("_group_tensors_by_device_and_dtype: the lists are not of one length")
    where: dict[Any, list[int]] = {}
    for i, t in enumerate(first):
        if t is None:
            raise RuntimeError("_group_tensors_by_device_and_dtype: the first list has tensors, not None")
        where.setdefault((t.device, t.dtype), []).append(i)

    def part(one: list, indices: list[int]) -> list[Optional[Tensor]]:
        return [one[i] for i in indices] if one else []

    return {key: ([part(one, indices) for one in tensorlistlist], indices if with_indices else []) for key, indices in where.items()}
