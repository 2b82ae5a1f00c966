"""Sizes as tensors, which programs compute with."""
from __future__ import annotations

from .._checks import _shape_as_tensor as shape_as_tensor

__all__ = ["reshape_from_tensor_shape", "shape_as_tensor"]


def reshape_from_tensor_shape(x, shape):
    """x.reshape() to the sizes in a tensor.

    >>> arete.onnx.operators.reshape_from_tensor_shape(arete.ones(4), arete.tensor([2, 2])).shape
    arete.Size([2, 2])
    """
    return x.reshape(shape.tolist())
