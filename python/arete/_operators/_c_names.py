"""Names of torch._C that libraries touch."""
from __future__ import annotations

import sys
import types

from .. import _C
from .._C import Tensor
from .._refused import refused as _refused

_FUSER = "there is no fuser of torch.jit; arete.compile() puts calls together"


def _log_api_usage_once(event: str) -> None:
    """Nothing: what programs use is told to nobody."""


def _parse_to(*args, **kwargs):
    """The arguments of Module.to(): device, dtype, non_blocking and memory format.

    >>> arete._C._nn._parse_to("cpu", arete.float64)
    (device(type='cpu'), arete.float64, False, None)
    """
    args = list(args)
    device, dtype, non_blocking = kwargs.pop("device", None), kwargs.pop("dtype", None), kwargs.pop("non_blocking", False)
    memory_format, _ = kwargs.pop("memory_format", None), kwargs.pop("copy", False)
    if kwargs:
        raise TypeError(f"to() received an unexpected keyword argument '{next(iter(kwargs))}'")
    if args and isinstance(args[0], Tensor):
        other = args.pop(0)
        device, dtype = other.device, other.dtype
    elif args and not isinstance(args[0], _C.dtype):
        device = args.pop(0)
    if args and (args[0] is None or isinstance(args[0], _C.dtype)):
        dtype = args.pop(0)
    if args:
        non_blocking = args.pop(0)
    return None if device is None else _C.device(device), dtype, bool(non_blocking), memory_format


def _add_batch_dim(tensor, in_dim, level):
    """One element of a batch along the dimension, inside vmap."""
    return _C._batch(tensor, in_dim)


def _remove_batch_dim(tensor, level, batch_size, out_dim):
    """The whole batch with it as the dimension; what is the same for all elements, repeated."""
    return _C._unbatch(tensor, out_dim)


def _jit_set_profiling(on):
    """False, which is how it was: nothing collects profiles, so that there is nothing to switch off, and on is an error."""
    if on:
        raise NotImplementedError(f"torch._C: {_FUSER}")
    return False


def _is_alias_of(one, other):
    """Whether two tensors are over the same memory."""
    return one is other or one.untyped_storage()._cdata == other.untyped_storage()._cdata


_C._log_api_usage_once = _log_api_usage_once
_C._is_alias_of = _is_alias_of
_C._has_xpu = False
_C._TensorMeta = type(Tensor)
_C._get_privateuse1_backend_name = lambda: "privateuseone"
_C._cuda_isInBadFork = lambda: _C._cuda.is_in_bad_fork()
_C._get_tracing_state = lambda: True if _C._is_recording_program() else None  # which libraries ask for being there only
_C._nn = types.ModuleType("arete._C._nn")
_C._nn._parse_to = _parse_to
# Importable as a module, too: the extension is none that has modules inside.
_C._functorch = sys.modules["arete._C._functorch"] = types.ModuleType("arete._C._functorch", "Batched tensors of arete.func.vmap.")
_C._are_functorch_transforms_active = _C._in_vmap  # those of gradients are passes backwards
_C._functorch.is_batchedtensor = _C._is_batched
_C._functorch._add_batch_dim = _add_batch_dim
_C._functorch._remove_batch_dim = _remove_batch_dim
_C._functorch.get_unwrapped = lambda tensor: _C._unbatch(tensor, 0)
for _name, _class in _refused("arete._C", _FUSER, "Graph", "Value", "_jit_can_fuse_on_cpu", "_jit_can_fuse_on_gpu",
                              "_jit_override_can_fuse_on_cpu",
                              "_jit_override_can_fuse_on_gpu", "_jit_set_nvfuser_enabled", "_jit_set_nvfuser_guard_mode",
                              "_jit_set_texpr_fuser_enabled").items():
    setattr(_C, _name, _class)
_C._jit_set_profiling_executor = _C._jit_set_profiling_mode = _jit_set_profiling
