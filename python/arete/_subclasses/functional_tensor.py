"""Tensors that turn writes into results: arete.compile does that to what it has recorded."""
from __future__ import annotations

from .._refused import refused

__all__ = ["FunctionalTensor", "FunctionalTensorMode"]

globals().update(refused("arete._subclasses.functional_tensor", "arete.compile records calls of operators", *__all__))
