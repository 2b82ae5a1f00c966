"""Spectral normalization by a hook: the weight divided by its largest singular value."""

from __future__ import annotations

from typing import Any, Optional, Tuple, TypeVar

from ... import _operators
from ..._C import Tensor
from ..._grad_mode import no_grad
from .. import functional as F
from ..parameter import Parameter
from .weight_norm import drop_hook, find_hook

__all__ = ["SpectralNorm", "spectral_norm", "remove_spectral_norm"]

M = TypeVar("M")


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """The weight as a matrix whose rows are its dimension `dim`."""
    if dim != 0:
        weight = weight.permute(dim, *(d for d in range(weight.dim()) if d != dim))
    return weight.reshape(weight.shape[0], -1)


def power_iteration(w: Tensor, u: Tensor, v: Tensor, steps: int, eps: float) -> None:
    """Moves u and v (in place) towards the singular vectors of the largest singular value."""
    with no_grad():
        for _ in range(steps):
            v.copy_(F.normalize(_operators.mv(w.t(), u), dim=0, eps=eps))
            u.copy_(F.normalize(_operators.mv(w, v), dim=0, eps=eps))


def largest_singular_value(w: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """u^T w v, which is the largest singular value when u and v are its singular vectors."""
    return _operators.dot(u, _operators.mv(w, v))


def default_dim(module: Any) -> int:
    """1 for transposed convolutions, whose outputs are their weight's second dimension."""
    return 1 if getattr(module, "transposed", False) is True else 0


class SpectralNorm:
    """The hook, which makes the weight anew before each forward."""

    _version = 1

    def __init__(
        self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got n_power_iterations="
                f"{n_power_iterations}"
            )
        self.name = name
        self.n_power_iterations = n_power_iterations
        self.dim = dim
        self.eps = eps

    def _vectors(self, module: Any) -> Tuple[Tensor, Tensor]:
        return getattr(module, self.name + "_u"), getattr(module, self.name + "_v")

    def compute_weight(self, module: Any, do_power_iteration: bool) -> Tensor:
        weight = getattr(module, self.name + "_orig")
        u, v = self._vectors(module)
        w = as_matrix(weight, self.dim)
        if do_power_iteration:
            power_iteration(w, u, v, self.n_power_iterations, self.eps)
            u, v = u.clone(), v.clone()  # the next call overwrites them
        return weight / largest_singular_value(w, u, v)

    @staticmethod
    def apply(
        module: Any, name: str, n_power_iterations: int, dim: int, eps: float
    ) -> "SpectralNorm":
        if find_hook(module, SpectralNorm, name) is not None:
            raise RuntimeError(
                f"Cannot register two spectral_norm hooks on the same parameter {name}"
            )
        hook = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters[name]
        if weight is None:
            raise ValueError(
                f"`SpectralNorm` cannot be applied as parameter `{name}` is None"
            )
        w = as_matrix(weight.detach(), dim)
        u = F.normalize(w.new_empty(w.shape[0]).normal_(0, 1), dim=0, eps=eps)
        v = F.normalize(w.new_empty(w.shape[1]).normal_(0, 1), dim=0, eps=eps)
        delattr(module, name)
        module.register_parameter(name + "_orig", weight)
        setattr(module, name, weight.detach())  # a plain attribute until the first call
        module.register_buffer(name + "_u", u)
        module.register_buffer(name + "_v", v)
        module.register_forward_pre_hook(hook)
        return hook

    def remove(self, module: Any) -> None:
        with no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        for end in ("", "_u", "_v", "_orig"):
            delattr(module, self.name + end)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, module.training))


def spectral_norm(
    module: M,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: Optional[int] = None,
) -> M:
    """Divides a parameter by its largest singular value, estimated by power iteration.

    >>> layer = nn.utils.spectral_norm(nn.Linear(3, 4))
    >>> [name for name, _ in layer.named_parameters()]
    ['bias', 'weight_orig']
    >>> nn.utils.spectral_norm(layer)
    Traceback (most recent call last):
    RuntimeError: Cannot register two spectral_norm hooks on the same parameter weight
    """
    dim = default_dim(module) if dim is None else dim
    SpectralNorm.apply(module, name, n_power_iterations, dim, eps)
    return module


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """Undoes :func:`spectral_norm`.

    >>> layer = nn.utils.remove_spectral_norm(nn.utils.spectral_norm(nn.Linear(3, 4)))
    >>> [name for name, _ in layer.named_parameters()]
    ['bias', 'weight']
    """
    drop_hook(module, SpectralNorm, name, "spectral_norm").remove(module)
    return module
