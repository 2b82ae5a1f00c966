"""Softmax and its relatives, whose dimension may be left out."""

from __future__ import annotations

from typing import Any, Callable, Optional

from ..._C import Tensor
from ..._operators import _ops
from ._common import named


def _over_dim(name: str, doc: str) -> Callable[..., Tensor]:
    def function(
        input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Any = None
    ) -> Tensor:
        if dim is None:
            import warnings

            warnings.warn(
                f"Implicit dimension choice for {name} has been deprecated. "
                "Change the call to include dim=X as an argument.",
                stacklevel=max(1, _stacklevel - 1),
            )
            dim = 0 if input.dim() in (0, 1, 3) else 1
        return op(input, dim, dtype=dtype)

    op = getattr(_ops, name)
    return named(function, name, doc)


softmax = _over_dim(
    "softmax",
    """exp(x) / sum(exp(x)) along `dim`; `dtype` converts the input first.

    Without `dim` there is a warning, and a dimension is chosen by the number of dimensions.

    >>> F.softmax(arete.tensor([[0.0, 0.0], [0.0, 1.0]]), dim=1)
    tensor([[0.5000, 0.5000],
            [0.2689, 0.7311]])
    >>> F.softmax(arete.ones(2), dim=1)
    Traceback (most recent call last):
    IndexError: Dimension out of range (expected to be in range of [-1, 0], but got 1)...
    """,
)
log_softmax = _over_dim(
    "log_softmax",
    """The logarithm of softmax, accurate for small probabilities.

    >>> F.log_softmax(arete.tensor([0.0, 1.0]), dim=0)
    tensor([-1.3133, -0.3133])
    """,
)
softmin = _over_dim(
    "softmin",
    """softmax(-x).

    >>> F.softmin(arete.tensor([0.0, 1.0]), dim=0)
    tensor([0.7311, 0.2689])
    """,
)


def _softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any) -> Tensor:
    """The gradient of softmax's input from those of its output."""
    part = output * grad_output
    return (part - output * part.sum(dim, keepdim=True)).to(input_dtype)
