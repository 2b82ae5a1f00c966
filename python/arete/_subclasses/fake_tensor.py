"""Tensors without values: those of the device meta are such."""
from __future__ import annotations

from typing import Any

from .._refused import refused

__all__ = ["FakeTensor", "FakeTensorMode", "UnsupportedFakeTensorException", "is_fake"]

globals().update(refused("arete._subclasses.fake_tensor", "tensors of the device 'meta' have shapes without values",
                         "FakeTensor", "FakeTensorMode"))


class UnsupportedFakeTensorException(RuntimeError):
    """For programs that catch it."""


def is_fake(x: Any) -> bool:
    """False: no tensor is one.

    >>> arete._subclasses.fake_tensor.is_fake(arete.ones(2))
    False
    """
    return False
