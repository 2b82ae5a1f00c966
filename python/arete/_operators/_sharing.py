"""How tensors travel to another process: as a descriptor of their memory, or what a GPU's driver opens it by."""
from __future__ import annotations

import warnings
from multiprocessing.reduction import DupFd
from typing import Any

from .. import _C
from .._C import Tensor
from ._storage import UntypedStorage

_by_value: set[str] = set()  # reasons that were told


def reduce_tensor(tensor: Any) -> tuple:
    """What a pickle for another process holds of a tensor, whose memory is shared from then on: a function and its arguments, for a tensor
    of a GPU rebuild_cuda_tensor(). Memory of a GPU stays until the other process has let go of it; where it cannot be shared its values are
    sent, with a warning that says why."""
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError("Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support crossing "
                           "process boundaries.  If you just want to transfer the data, call detach() on the tensor before serializing "
                           "(e.g., putting it on the queue).")
    if tensor.device.type == "cuda":
        return _reduce_cuda_tensor(tensor)
    tensor.share_memory_()
    layout = tensor.dtype, list(tensor.shape), list(tensor.stride()), tensor.storage_offset()
    return rebuild_tensor, (type(tensor), DupFd(tensor._shared_file()), tensor._storage_bytes(), *layout, tensor.requires_grad,
                            dict(tensor.__dict__))


def _reduce_cuda_tensor(tensor: Any) -> tuple:
    if not tensor._storage_bytes():
        return tensor.__reduce_ex__(2)
    try:
        device, handle, offset, nbytes, counter = _C._cuda.share_memory(tensor)
    except RuntimeError as e:
        reason = str(e)
        if reason not in _by_value:
            _by_value.add(reason)
            warnings.warn(f"a tensor of a GPU is sent to another process by its values, so that the two do not share it: {reason}",
                          stacklevel=3)
        return tensor.__reduce_ex__(2)
    # torch's order, on which programs that send these by ways of their own rely.
    return rebuild_cuda_tensor, (type(tensor), tensor.shape, tensor.stride(), tensor.storage_offset(), UntypedStorage, tensor.dtype, device,
                                 handle, nbytes, offset, tensor.requires_grad, counter, 0, b"", False)


def _as(cls: type, tensor: Any, requires_grad: bool) -> Any:
    if cls is not Tensor:
        return Tensor._make_subclass(cls, tensor, requires_grad)
    return tensor.requires_grad_() if requires_grad else tensor


def rebuild_tensor(cls: type, file: Any, nbytes: int, dtype: Any, sizes: list, strides: list, offset: int, requires_grad: bool,
                   attributes: dict) -> Any:
    tensor = _as(cls, _C._map_shared(file.detach(), nbytes, dtype, sizes, strides, offset), requires_grad)
    tensor.__dict__.update(attributes)
    return tensor


def rebuild_cuda_tensor(tensor_cls: type, tensor_size: Any, tensor_stride: Any, tensor_offset: int, storage_cls: type, dtype: Any,
                        storage_device: int, storage_handle: bytes, storage_size_bytes: int, storage_offset_bytes: int,
                        requires_grad: bool, ref_counter_handle: bytes, ref_counter_offset: int = 0, event_handle: bytes = b"",
                        event_sync_required: bool = False) -> Any:
    """The tensor that reduce_tensor() described, over the same memory of the GPU. Each description is for one tensor. The values were
    waited for when it was made, so that there is no event. RuntimeError where the process that made it is gone or the driver does not open
    the memory."""
    if event_sync_required or ref_counter_offset:
        raise NotImplementedError("rebuild_cuda_tensor(): descriptions that another library made are not understood")
    tensor = _C._cuda.open_shared_memory(storage_device, storage_handle, storage_offset_bytes, storage_size_bytes, ref_counter_handle,
                                         dtype, list(tensor_size), list(tensor_stride), tensor_offset)
    return _as(tensor_cls, tensor, requires_grad)


rebuild_cuda_tensor.__module__ = reduce_tensor.__module__ = "arete.multiprocessing.reductions"  # where pickles have them
