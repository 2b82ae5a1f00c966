"""Helpers of wrappers of modules, which torch's own and other libraries' wrappers use."""
from __future__ import annotations

import dataclasses
import traceback
from typing import Any, Callable, Container, Optional, Sequence

from .. import _C
from .._C import Tensor
from ..nn.parallel.scatter_gather import _is_namedtuple
from ..nn.utils.rnn import PackedSequence

__all__: list = []


def _pack_kwargs(*args: Any, **kwargs: Any) -> tuple:
    """All values, and the names of the last of them.

    >>> from arete.distributed.utils import _pack_kwargs
    >>> _pack_kwargs(1, 2, a=3)
    ((1, 2, 3), ('a',))
    """
    return (*args, *kwargs.values()), tuple(kwargs)


def _unpack_kwargs(flat_args: tuple, kwarg_keys: tuple) -> tuple:
    """The inverse of _pack_kwargs()."""
    start = len(flat_args) - len(kwarg_keys)
    if start < 0:
        raise AssertionError(f"too many keys {len(kwarg_keys)} vs. {len(flat_args)}")
    return flat_args[:start], dict(zip(kwarg_keys, flat_args[start:]))


def _p_assert(cond: Any, s: str, raise_assertion_error: bool = True) -> None:
    """An assertion that also prints: within backward() exceptions may be lost."""
    if not cond:
        print(s)
        traceback.print_stack()
        if raise_assertion_error:
            raise AssertionError(s)


def _apply_to_tensors(fn: Callable[[Tensor], Any], container: Any) -> Any:
    """The same dictionaries, lists, tuples, sets and data classes with fn(tensor) for each tensor in them."""
    def apply(x: Any) -> Any:
        if isinstance(x, Tensor):
            return fn(x)
        if isinstance(x, PackedSequence):
            return x._replace(data=fn(x.data))
        if dataclasses.is_dataclass(x) and not isinstance(x, type):
            return dataclasses.replace(x, **{f.name: apply(getattr(x, f.name)) for f in dataclasses.fields(x) if f.init})
        if isinstance(x, dict):
            return type(x)((key, apply(value)) for key, value in x.items())
        if _is_namedtuple(x):
            return type(x)(*map(apply, x))
        return type(x)(map(apply, x)) if isinstance(x, (list, tuple, set)) else x

    return apply(container)


def _cast_forward_inputs(dtype: Any, *args: Any, **kwargs: Any) -> tuple:
    """Arguments whose floating tensors have that dtype; None leaves them."""
    if dtype is None:
        return args, kwargs

    def cast(x: Tensor) -> Tensor:
        return x.to(dtype) if x.is_floating_point() else x

    return _apply_to_tensors(cast, args), _apply_to_tensors(cast, kwargs)


def _recursive_to(inputs: Any, target_device: Any, use_side_stream_for_tensor_copies: bool) -> list:
    """The inputs on a device, in a list of one, as wrappers of several devices want it."""
    if use_side_stream_for_tensor_copies:
        raise NotImplementedError("_recursive_to: copies run on the stream of the caller: pass "
                                  "use_side_stream_for_tensor_copies=False")
    return [_apply_to_tensors(lambda x: x.to(target_device), inputs)]


def _to_kwargs(inputs: tuple, kwargs: Optional[dict], target_device: Any, use_side_stream_for_tensor_copies: bool) -> tuple:
    """Positional and named arguments on a device, each in a tuple of one."""
    moved = (tuple(_recursive_to(v, target_device, use_side_stream_for_tensor_copies)) for v in (tuple(inputs), kwargs or {}))
    return tuple(moved)


def _sync_module_states(module: Any, process_group: Any, broadcast_bucket_size: int, src: int,
                        params_and_buffers_to_ignore: Container[str], broadcast_buffers: bool = True) -> None:
    """Gives all processes of the group the parameters, and buffers, that rank `src` of it has, but for those names."""
    named = [*module.named_parameters(), *(module.named_buffers() if broadcast_buffers else ())]
    states = [value.detach() for name, value in named if name not in params_and_buffers_to_ignore]
    _sync_params_and_buffers(process_group, states, broadcast_bucket_size, src)


def _sync_params_and_buffers(process_group: Any, module_states: Sequence[Tensor], broadcast_bucket_size: int, src: int) -> None:
    """The same of tensors; they travel together, in pieces whose size is not the caller's."""
    if module_states:
        _C._distributed.broadcast_coalesced(process_group, list(module_states), src)


def _replace_by_prefix(state_dict: dict, old_prefix: str, new_prefix: str) -> None:
    """Renames the keys that begin so.

    >>> from arete.distributed.utils import _replace_by_prefix
    >>> state = {"layer.x": 1}
    >>> _replace_by_prefix(state, "layer.", "module.layer.")
    >>> state
    {'module.layer.x': 1}
    """
    if old_prefix == new_prefix:
        raise ValueError("old_prefix and new_prefix must be distinct")
    for key in [key for key in state_dict if key.startswith(old_prefix)]:
        state_dict[new_prefix + key[len(old_prefix):]] = state_dict.pop(key)


def _get_root_modules(modules: Sequence[Any]) -> list:
    """Those that are in no other one of them."""
    inside = {id(child) for module in modules for child in module.modules() if child is not module}
    return [module for module in modules if id(module) not in inside]
