"""Embeddings."""

from __future__ import annotations

from typing import Any, Optional

from ... import _operators
from ..._C import Tensor
from ..._grad_mode import no_grad
from .. import functional as F
from .. import init
from ..parameter import Parameter
from ._records import check, layer
from .module import Module

__all__ = ["Embedding", "EmbeddingBag"]


def _padding_row(padding_idx: Optional[int], rows: int) -> Optional[int]:
    """Counted from the first row."""
    return padding_idx + rows if padding_idx is not None and padding_idx < 0 else padding_idx


@layer
class Embedding(Module):
    """A table of num_embeddings rows: integers (*) -> (*, embedding_dim).

    Rows start standard normal; the row padding_idx starts as zeros and gets no gradient.

    >>> nn.Embedding(10, 3)(arete.tensor([[1, 2], [9, 0]])).shape
    arete.Size([2, 2, 3])
    >>> nn.Embedding.from_pretrained(arete.tensor([[1.0, 2.0], [3.0, 4.0]]))(arete.tensor([1]))
    tensor([[3., 4.]])
    >>> nn.Embedding(10, 3)(arete.tensor([10]))
    Traceback (most recent call last):
    IndexError: index 10 is out of bounds for dimension 0 with size 10. Operator: embedding. Argument: index
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: Optional[int] = None,
        max_norm: Optional[float] = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Optional[Tensor] = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        options = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
        check("Embedding", num_embeddings, embedding_dim, *options)
        self.padding_idx = _padding_row(padding_idx, num_embeddings)
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        if _weight is None:
            self.weight = Parameter(
                _operators.empty((num_embeddings, embedding_dim), device=device, dtype=dtype),
                requires_grad=not _freeze,
            )
            self.reset_parameters()
        else:
            if tuple(_weight.shape) != (num_embeddings, embedding_dim):
                raise AssertionError(
                    "Shape of weight does not match num_embeddings and embedding_dim"
                )
            self.weight = Parameter(_weight, requires_grad=not _freeze)
        self.sparse = sparse

    def reset_parameters(self) -> None:
        """Sets the initial values anew."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: Optional[int] = None,
        max_norm: Optional[float] = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> "Embedding":
        """An embedding with the given rows, not trained unless freeze is False."""
        if embeddings.dim() != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, columns = embeddings.shape
        return cls(
            num_embeddings=rows,
            embedding_dim=columns,
            _weight=embeddings,
            _freeze=freeze,
            padding_idx=padding_idx,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
            sparse=sparse,
        )


@layer
class EmbeddingBag(Module):
    """Sums, means or maxima of bags of rows, without making the rows: -> (bags, embedding_dim).

    Bags are the rows of a 2-d input, or the stretches of a 1-d one that start at `offsets`.

    >>> nn.EmbeddingBag(10, 3, mode="sum")(arete.tensor([1, 2, 9]), arete.tensor([0, 2])).shape
    arete.Size([2, 3])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: Optional[float] = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Optional[Tensor] = None,
        include_last_offset: bool = False,
        padding_idx: Optional[int] = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        options = (norm_type, scale_grad_by_freq, mode, sparse, include_last_offset, padding_idx)
        check("EmbeddingBag", num_embeddings, embedding_dim, max_norm, *options)
        self.padding_idx = _padding_row(padding_idx, num_embeddings)
        if _weight is None:
            self.weight = Parameter(
                _operators.empty((num_embeddings, embedding_dim), device=device, dtype=dtype)
            )
            self.reset_parameters()
        else:
            if tuple(_weight.shape) != (num_embeddings, embedding_dim):
                raise AssertionError(
                    "Shape of weight does not match num_embeddings and embedding_dim"
                )
            self.weight = Parameter(_weight)
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset

    reset_parameters = Embedding.reset_parameters

    def forward(
        self,
        input: Tensor,
        offsets: Optional[Tensor] = None,
        per_sample_weights: Optional[Tensor] = None,
    ) -> Tensor:
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: Optional[float] = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: Optional[int] = None,
    ) -> "EmbeddingBag":
        """An embedding bag with the given rows, not trained unless freeze is False."""
        if embeddings.dim() != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, columns = embeddings.shape
        bag = cls(
            num_embeddings=rows,
            embedding_dim=columns,
            _weight=embeddings,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
            mode=mode,
            sparse=sparse,
            include_last_offset=include_last_offset,
            padding_idx=padding_idx,
        )
        bag.weight.requires_grad = not freeze
        return bag
