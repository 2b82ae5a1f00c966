"""DataParallel: one process divides its batches among several GPUs."""
from __future__ import annotations

from typing import Any, Optional, Sequence

from ... import _C
from ..modules import Module
from .parallel_apply import parallel_apply
from .replicate import replicate
from .scatter_gather import device_of, gather, scatter_kwargs

__all__ = ["DataParallel", "data_parallel"]


def _gpus(device_ids: Optional[Sequence[Any]]) -> list[int]:
    if device_ids is None:
        return list(range(_C._cuda.device_count())) if _C._cuda.is_available() else []
    return [device_of(d).index or 0 for d in device_ids]


def _run(module: Any, inputs: tuple, kwargs: dict, gpus: list[int], output_device: Any, dim: int) -> Any:
    first = _C.device("cuda", gpus[0])
    for tensor in [*module.parameters(), *module.buffers()]:
        if tensor.device != first:
            raise RuntimeError(f"module must have its parameters and buffers on device {first} (device_ids[0]) but found one of them on "
                               f"device: {tensor.device}")
    parts, named = scatter_kwargs(inputs, kwargs, gpus, dim)
    if not parts:  # a module without inputs runs once
        parts, named = ((),), ({},)
    if len(gpus) == 1:
        return module(*parts[0], **named[0])
    used = gpus[:len(parts)]
    outputs = parallel_apply(replicate(module, used, not _C.is_grad_enabled()), parts, named, used)
    return gather(outputs, output_device, dim)


class DataParallel(Module):
    """Divides the batch among GPUs, each of which has a copy of the network for the call; outputs and gradients come together on
    the first one, where the network is. Without GPUs it calls the network.

    DistributedDataParallel is faster, on one machine, too.

    >>> net = nn.DataParallel(nn.Linear(2, 1))
    >>> list(net.state_dict())
    ['module.weight', 'module.bias']
    """

    def __init__(self, module: Module, device_ids: Optional[Sequence[Any]] = None, output_device: Any = None, dim: int = 0) -> None:
        super().__init__()
        self.module = module
        self.dim = dim
        self.device_ids = _gpus(device_ids) if _C._cuda.is_available() else []
        if not self.device_ids:
            return
        self.output_device = self.device_ids[0] if output_device is None else device_of(output_device).index
        self.src_device_obj = _C.device("cuda", self.device_ids[0])
        if len(self.device_ids) == 1:
            self.module.to(self.src_device_obj)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        return _run(self.module, inputs, kwargs, self.device_ids, self.output_device, self.dim)


def data_parallel(module: Module, inputs: Any, device_ids: Optional[Sequence[Any]] = None, output_device: Any = None, dim: int = 0,
                  module_kwargs: Optional[dict] = None) -> Any:
    """One call of a network on several GPUs, as DataParallel makes it; `inputs` is a tuple, or the only one."""
    inputs = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    gpus = _gpus(device_ids)
    if not gpus:
        raise RuntimeError("device_ids could not be inferred: there is no GPU")
    return _run(module, inputs, module_kwargs or {}, gpus, gpus[0] if output_device is None else output_device, dim)
