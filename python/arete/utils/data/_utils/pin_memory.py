"""Moves the tensors of a batch to page-locked memory."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import arete

from .collate import _is_namedtuple, _rebuilt_mapping, _rebuilt_sequence


def pin_memory(data: Any) -> Any:
    """`data` with `pin_memory()` called on its tensors, and on other objects that have such a method."""
    if isinstance(data, arete.Tensor):
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
