"""The tensors of a batch: moving them to page-locked memory, taking them out and putting others in."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Iterator, List

from .... import _C
from .collate import _is_namedtuple, _rebuilt_mapping, _rebuilt_sequence


def pin_memory(data: Any) -> Any:
    """`data` with `pin_memory()` called on its tensors, and on other objects that have such a method."""
    if isinstance(data, _C.Tensor):
        return data.pin_memory()
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, Mapping):
        return _rebuilt_mapping(data, {key: pin_memory(value) for key, value in data.items()})
    if _is_namedtuple(data):
        return type(data)(*(pin_memory(value) for value in data))
    if isinstance(data, tuple):
        return [pin_memory(value) for value in data]
    if isinstance(data, Sequence):
        return _rebuilt_sequence(data, [pin_memory(value) for value in data])
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    return data


def tensors_in(data: Any, found: List[Any]) -> List[Any]:
    """The tensors of a batch, in order."""
    if isinstance(data, _C.Tensor):
        found.append(data)
    elif isinstance(data, Mapping):
        for value in data.values():
            tensors_in(value, found)
    elif isinstance(data, (tuple, list)):
        for value in data:
            tensors_in(value, found)
    return found


def with_tensors(data: Any, tensors: Iterator[Any]) -> Any:
    """`data` with other tensors."""
    if isinstance(data, _C.Tensor):
        return next(tensors)
    if isinstance(data, Mapping):
        return {key: with_tensors(value, tensors) for key, value in data.items()}
    if _is_namedtuple(data):
        return type(data)(*(with_tensors(value, tensors) for value in data))
    if isinstance(data, (tuple, list)):
        return type(data)(with_tensors(value, tensors) for value in data)
    return data
