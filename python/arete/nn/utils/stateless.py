"""functional_call: a module called with other tensors in place of its own."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence, Union

from ..._C import Tensor

__all__ = ["functional_call"]


def _slots(module: Any) -> Dict[str, list]:
    """The places (registry, name) of each parameter and buffer by path; shared ones together."""
    by_path: Dict[str, list] = {}
    same: Dict[int, list] = {}
    for path, part in module.named_modules(remove_duplicate=False):
        for registry in (part._parameters, part._buffers):
            for name, value in registry.items():
                if value is not None:
                    places = same.setdefault(id(value), [])
                    if not any(r is registry and n == name for r, n in places):
                        places.append((registry, name))
                    by_path[f"{path}.{name}" if path else name] = places
    return by_path


class _Swaps(threading.local):
    """What is in places of modules on this thread, the outermost first."""

    under_way: tuple = ()


_swaps = _Swaps()


@contextmanager
def _in_places(*swaps: list) -> Iterator[None]:
    """Has values in places of modules, each a (registry, name, value). A checkpointed function that is called inside has them there when
    it is computed again, too."""
    outer, before = _swaps.under_way, []
    _swaps.under_way = outer + swaps
    try:
        for swap in swaps:
            for registry, name, value in swap:
                before.append((registry, name, registry[name]))
                registry[name] = value
        yield
    finally:
        _swaps.under_way = outer
        for registry, name, value in reversed(before):
            registry[name] = value


def _swapped(module: Any, tensors: Mapping[str, Tensor], tie: bool, strict: bool) -> Any:
    slots = _slots(module)
    unexpected = [k for k in tensors if k not in slots]
    missing = [k for k in slots if k not in tensors] if strict else []
    if unexpected and strict or missing:
        raise RuntimeError(
            f"Error(s) in loading state_dict for {type(module).__name__}:\n"
            f"Unexpected key(s): {unexpected}. Missing key(s): {missing}."
        )
    return _in_places([(registry, name, value) for key, value in tensors.items() if key in slots
                       for registry, name in (slots[key] if tie else slots[key][:1])])


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Union[Mapping[str, Tensor], Sequence[Mapping[str, Tensor]]],
    args: Any = None,
    kwargs: Optional[Mapping[str, Any]] = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Calls `module` with some or all parameters and buffers replaced, by their paths.

    >>> arete.func.functional_call(nn.Linear(2, 1, bias=False), {"weight": arete.ones(1, 2)}, (arete.ones(2),))
    tensor([2.])
    """
    if isinstance(parameter_and_buffer_dicts, Mapping):
        tensors = parameter_and_buffer_dicts
    else:
        tensors = {}
        for part in parameter_and_buffer_dicts:
            for key in part:
                if key in tensors:
                    raise ValueError(
                        f"{key} appears in multiple dictionaries; behavior of functional call is "
                        "ambiguous"
                    )
            tensors.update(part)
    if args is None:
        args = ()
    elif not isinstance(args, tuple):
        args = (args,)
    with _swapped(module, tensors, tie_weights, strict):
        return module(*args, **dict(kwargs or {}))
