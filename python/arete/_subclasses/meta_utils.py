"""Copies without values: Tensor.to("meta") makes them."""
from __future__ import annotations

from .._refused import refused

__all__ = ["MetaConverter"]

globals().update(refused("arete._subclasses.meta_utils", 'Tensor.to("meta") makes copies without values', *__all__))
