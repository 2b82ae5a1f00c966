"""Ready-made parametrizations: weight norm, spectral norm, orthogonal matrices."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from ... import _operators, linalg
from ..._C import Tensor
from .. import functional as F
from ..modules.module import Module
from . import parametrize
from .spectral_norm import as_matrix, default_dim, largest_singular_value, power_iteration
from .weight_norm import norm_except_dim

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


class _WeightNorm(Module):
    def __init__(self, dim: Optional[int] = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / norm_except_dim(weight_v, 2, self.dim))

    def right_inverse(self, weight: Tensor) -> Tuple[Tensor, Tensor]:
        return norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: Optional[int] = 0) -> Module:
    """Parametrizes a tensor by its norm (original0) and direction (original1).

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))
    >>> sorted(layer.state_dict())
    ['bias', 'parametrizations.weight.original0', 'parametrizations.weight.original1']
    """
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def read_older(
        state_dict: dict, prefix: str, local_metadata: Any, *rest: Any
    ) -> None:
        for end, new in (("_g", "original0"), ("_v", "original1")):
            if prefix + name + end in state_dict:
                state_dict[f"{prefix}parametrizations.{name}.{new}"] = state_dict.pop(
                    prefix + name + end
                )

    module._register_load_state_dict_pre_hook(read_older)
    return module


class _SpectralNorm(Module):
    def __init__(
        self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        super().__init__()
        if not -weight.dim() <= dim < weight.dim():
            raise IndexError(
                "Dimension out of range (expected to be in range of "
                f"[-{weight.dim()}, {weight.dim() - 1}] but got {dim})"
            )
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got n_power_iterations="
                f"{n_power_iterations}"
            )
        self.dim = dim % weight.dim()
        self.eps = eps
        if weight.dim() > 1:
            self.n_power_iterations = n_power_iterations
            w = as_matrix(weight.detach(), self.dim)
            u, v = w.new_empty(w.shape[0]).normal_(0, 1), w.new_empty(w.shape[1]).normal_(0, 1)
            self.register_buffer("_u", F.normalize(u, dim=0, eps=eps))
            self.register_buffer("_v", F.normalize(v, dim=0, eps=eps))
            power_iteration(w.t(), self._v, self._u, 15, eps)  # u first, other than the hook's

    def forward(self, weight: Tensor) -> Tensor:
        if weight.dim() == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        w = as_matrix(weight, self.dim)
        if self.training:
            power_iteration(w.t(), self._v, self._u, self.n_power_iterations, self.eps)
        return weight / largest_singular_value(w, self._u.clone(), self._v.clone())

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: Optional[int] = None,
) -> Module:
    """Divides a tensor by its largest singular value, estimated by power iteration.

    >>> layer = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4), n_power_iterations=50)
    >>> round(arete.linalg.matrix_norm(layer.weight, 2).item(), 3)
    1.0
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    dim = default_dim(module) if dim is None else dim
    parametrize.register_parametrization(
        module, name, _SpectralNorm(weight, n_power_iterations, dim, eps)
    )
    return module


class _Orthogonal(Module):
    """An orthogonal matrix from any one, by the matrix exponential, the Cayley map or reflections."""

    base: Optional[Tensor]

    def __init__(self, orthogonal_map: str, base: Optional[Tensor]) -> None:
        super().__init__()
        self.orthogonal_map = orthogonal_map
        self.register_buffer("base", base)

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = x.shape[-2:]
        flipped = rows < columns
        if flipped:
            x = x.transpose(-2, -1)
            rows, columns = columns, rows
        lower = x.tril(-1 if self.orthogonal_map == "householder" else 0)
        if rows != columns and self.orthogonal_map != "householder":
            zeros = x.new_zeros((*x.shape[:-2], rows, rows - columns))
            lower = _operators.cat([lower, zeros], -1)
        if self.orthogonal_map == "householder":
            # Reflections by vectors below a diagonal of ones; x has signs of the columns on its own.
            tau = 2 / (1 + lower.square().sum(-2))
            signs = _operators.diagonal(x, dim1=-2, dim2=-1).detach().sign()
            q = linalg.householder_product(lower, tau) * signs.unsqueeze(-2)
        elif self.orthogonal_map == "matrix_exp":
            q = _operators.matrix_exp(lower - lower.mH)
        else:
            eye = _operators.eye(rows, dtype=x.dtype, device=x.device)
            half = (lower - lower.mH) / 2
            q = linalg.solve(eye - half, eye + half)
        if self.base is not None:
            q = self.base @ q
        q = q[..., :columns]
        return q.transpose(-2, -1) if flipped else q

    def right_inverse(self, q: Tensor) -> Tensor:
        """Starts at the orthogonal matrix next to q. With a base that takes all of it, else x is of
        the reflections that make q."""
        flipped = q.shape[-2] < q.shape[-1]
        tall = q.transpose(-2, -1) if flipped else q
        if self.base is None:
            if self.orthogonal_map != "householder":
                raise NotImplementedError(
                    "It is not possible to assign to the matrix exponential or the Cayley "
                    "parametrizations when use_trivialization=False."
                )
            vectors, tau = _operators.geqrf(tall)
            signs = _operators.diagonal(vectors, dim1=-2, dim2=-1)
            # Where there is none to make, tau is 0, and forward() reflects a sign away.
            signs.copy_(signs.sign() * _operators.where(tau == 0, -1.0, 1.0))
            return vectors.transpose(-2, -1) if flipped else vectors
        rows, columns = tall.shape[-2:]
        basis, r = linalg.qr(tall, mode="reduced")
        basis = basis * _operators.diagonal(r, dim1=-2, dim2=-1).sgn().unsqueeze(-2)
        if rows != columns:
            noise = tall.new_empty((*tall.shape[:-2], rows, rows - columns)).normal_(0, 1)
            noise = noise - basis @ (basis.mH @ noise)
            basis = _operators.cat([basis, linalg.qr(noise, mode="reduced")[0]], -1)
        self.base.copy_(basis)
        start = _operators.zeros_like(q)
        if self.orthogonal_map == "householder":
            _operators.diagonal(start, dim1=-2, dim2=-1).fill_(-1)  # each reflection turns one sign
        return start


def orthogonal(
    module: Module,
    name: str = "weight",
    orthogonal_map: Optional[str] = None,
    *,
    use_trivialization: bool = True,
) -> Module:
    """Keeps a matrix orthogonal (its rows or columns, whichever are fewer).

    orthogonal_map: "matrix_exp" (of square and of complex matrices by default), "cayley" or
    "householder" (of others; of real ones). With use_trivialization the map is around a matrix that
    a buffer `base` holds, at first and after an assignment the one that is wanted; without it only
    "householder" can be assigned to.

    >>> w = nn.utils.parametrizations.orthogonal(nn.Linear(3, 4)).weight
    >>> arete.allclose(w.T @ w, arete.eye(3), atol=1e-5)
    True
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.dim() < 2:
        raise ValueError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.dim()} dimensions."
        )
    if orthogonal_map is None:
        plain = weight.shape[-2] == weight.shape[-1] or weight.is_complex()
        orthogonal_map = "matrix_exp" if plain else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        raise ValueError(
            f"orthogonal_map has to be one of 'matrix_exp', 'cayley', 'householder'. Got: {orthogonal_map}"
        )
    if orthogonal_map == "householder" and weight.is_complex():
        raise ValueError("The householder parametrization does not support complex tensors.")
    base = None
    if use_trivialization:
        n = max(weight.shape[-2:])
        base = weight.new_zeros((*weight.shape[:-2], n, n))
    parametrization = _Orthogonal(orthogonal_map, base)
    parametrize.register_parametrization(module, name, parametrization, unsafe=True)
    return module
