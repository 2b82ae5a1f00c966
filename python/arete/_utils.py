"""Small functions of torch's that programs and pickles name."""
from __future__ import annotations

import importlib
import sys
from typing import Any

from . import _C
from ._C import Tensor
from ._operators import _ops
from .nn.parameter import Parameter

__all__: list[str] = []


def _element_size(dtype: Any) -> int:
    """Bytes of an element.

    >>> arete._utils._element_size(arete.float64)
    8
    """
    return dtype.itemsize


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of a device; -1 of the CPU with `allow_cpu`; the current one where there is none, with `optional`.

    >>> arete._utils._get_device_index("cuda:1")
    1
    """
    if isinstance(device, str):
        device = _C.device(device)
    if isinstance(device, _C.device):
        if device.type == "cpu" and not allow_cpu:
            raise ValueError(f"Expected a non cpu device, but got: {device}")
        device = -1 if device.type == "cpu" else device.index
    if isinstance(device, int):
        return device
    if device is None and optional:
        return _C._cuda.current_device()
    raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")


def _get_available_device_type() -> str | None:
    """The kind of accelerator that is there, if any."""
    return "cuda" if _C._cuda.is_available() else None


def _get_device_module(device_type: str) -> Any:
    """The module of a kind of devices.

    >>> arete._utils._get_device_module("cuda") is arete.cuda
    True
    """
    if device_type not in ("cpu", "cuda", "mps", "mtia", "xpu"):
        raise RuntimeError(f"Device '{device_type}' does not have a corresponding module registered as 'torch.{device_type}'.")
    return importlib.import_module(f"{__package__}.{device_type}")


def _flatten_dense_tensors(tensors: Any) -> Tensor:
    """The elements of all tensors in one row."""
    return _ops.cat([t.reshape(-1) for t in tensors]) if len(tensors) else _ops.empty((0,))


def _unflatten_dense_tensors(flat: Tensor, tensors: Any) -> tuple:
    """Views of a row in the shapes of these tensors."""
    return tuple(part.view(t.shape) for part, t in zip(flat.split([t.numel() for t in tensors]), tensors))


def _rebuild_tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> Tensor:
    """A tensor over a storage."""
    return storage._numbers().as_strided(size, stride, storage_offset)


def _rebuild_tensor_v2(storage: Any, storage_offset: int, size: Any, stride: Any, requires_grad: bool, backward_hooks: Any,
                       metadata: Any = None) -> Tensor:
    return _rebuild_tensor(storage, storage_offset, size, stride).requires_grad_(requires_grad)


def _rebuild_parameter(data: Tensor, requires_grad: bool, backward_hooks: Any) -> Parameter:
    return Parameter(data, requires_grad)


class ExceptionWrapper:
    """An exception on its way from a worker to the program."""

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        import traceback

        kind, error, trace = exc_info or sys.exc_info()
        self.exc_type, self.exc_msg, self.where = kind, "".join(traceback.format_exception(kind, error, trace)), where

    def reraise(self) -> None:
        message = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            raise RuntimeError(message)
        try:
            error = self.exc_type(message)
        except Exception:
            raise RuntimeError(message) from None
        raise error
