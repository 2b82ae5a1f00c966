"""How tensors travel to another process: as a descriptor of their memory."""
from __future__ import annotations

from multiprocessing.reduction import DupFd
from typing import Any

from .. import _C
from .._C import Tensor


def reduce_tensor(tensor: Any) -> tuple:
    """What a pickle for another process holds of a tensor in host memory, which is shared from then on."""
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError("Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support crossing "
                           "process boundaries.  If you just want to transfer the data, call detach() on the tensor before serializing "
                           "(e.g., putting it on the queue).")
    tensor.share_memory_()
    layout = tensor.dtype, list(tensor.shape), list(tensor.stride()), tensor.storage_offset()
    return rebuild_tensor, (type(tensor), DupFd(tensor._shared_file()), tensor._storage_bytes(), *layout, tensor.requires_grad,
                            dict(tensor.__dict__))


def rebuild_tensor(cls: type, file: Any, nbytes: int, dtype: Any, sizes: list, strides: list, offset: int, requires_grad: bool,
                   attributes: dict) -> Any:
    tensor = _C._map_shared(file.detach(), nbytes, dtype, sizes, strides, offset)
    if cls is not Tensor:
        tensor = Tensor._make_subclass(cls, tensor, requires_grad)
    elif requires_grad:
        tensor.requires_grad_()
    tensor.__dict__.update(attributes)
    return tensor
