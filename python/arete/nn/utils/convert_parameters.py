"""Parameters as one vector, and back."""

from __future__ import annotations

from typing import Iterable

from ... import _operators
from ..._C import Tensor

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements of the parameters, one after the other (with gradients).

    >>> nn.utils.parameters_to_vector([arete.ones(2), arete.zeros(1, 2)])
    tensor([1., 1., 0., 0.])
    """
    parts = list(parameters)
    if any(p.device != parts[0].device for p in parts):
        raise TypeError(
            "Found two parameters on different devices, this is currently not supported."
        )
    return _operators.cat([p.reshape(-1) for p in parts])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Writes the elements of `vec` into the parameters.

    >>> a, b = arete.zeros(2), arete.zeros(1, 2)
    >>> nn.utils.vector_to_parameters(arete.arange(4.0), [a, b])
    >>> a, b
    (tensor([0., 1.]), tensor([[2., 3.]]))
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    start = 0
    for param in parameters:
        if param.device != vec.device:
            raise TypeError(
                "Found two parameters on different devices, this is currently not supported."
            )
        end = start + param.numel()
        param.data = vec[start:end].reshape(param.shape).detach()
        start = end
