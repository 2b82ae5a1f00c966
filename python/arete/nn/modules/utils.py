"""Small helpers of layers: one number for each of n dimensions."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any, Callable, List, Tuple

__all__ = ["consume_prefix_in_state_dict_if_present"]


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], Tuple]:
    def parse(x: Any) -> Tuple:
        return tuple(x) if isinstance(x, Iterable) else tuple(repeat(x, n))

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: Tuple, n: int) -> Tuple:
    """The elements from the last to the first, each n times."""
    return tuple(x for x in reversed(t) for _ in range(n))


def _list_with_default(out_size: List, defaults: List) -> List:
    """out_size with None replaced by the last defaults."""
    if isinstance(out_size, int):
        return out_size
    if len(defaults) <= len(out_size):
        raise ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    last = defaults[-len(out_size) :]
    return [d if v is None else v for v, d in zip(out_size, last)]


def consume_prefix_in_state_dict_if_present(state_dict: dict, prefix: str) -> None:
    """Takes `prefix` (such as "module.") off the keys that have it, in place."""
    for key in list(state_dict):
        if key.startswith(prefix):
            state_dict[key[len(prefix) :]] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is None:
        return
    for key in list(metadata):
        if key and (key == prefix.rstrip(".") or key.startswith(prefix)):
            metadata[key[len(prefix) :]] = metadata.pop(key)
