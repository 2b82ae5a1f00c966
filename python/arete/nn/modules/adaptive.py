"""Softmax over very many classes, of which few are frequent."""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

from ... import _operators
from ..._C import Tensor
from .. import functional as F
from .container import ModuleList, Sequential
from .linear import Linear
from .module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class _ASMoutput(NamedTuple):
    output: Tensor
    loss: Tensor


_ASMoutput.__name__ = _ASMoutput.__qualname__ = "ASMoutput"


class AdaptiveLogSoftmaxWithLoss(Module):
    """Classes by frequency in clusters that begin at `cutoffs`; rare ones get fewer features.

    Called with input (N, in_features) and classes (N) it gives the log probabilities of the
    targets and their mean loss; log_prob gives all (N, n_classes), predict the likeliest class.

    ValueError unless cutoffs are increasing numbers between 1 and n_classes - 1.

    >>> layer = nn.AdaptiveLogSoftmaxWithLoss(8, 100, cutoffs=[10, 50])
    >>> output, loss = layer(arete.randn(4, 8), arete.tensor([0, 9, 20, 99]))
    >>> output.shape, loss.shape, layer.log_prob(arete.randn(4, 8)).shape
    (arete.Size([4]), arete.Size([]), arete.Size([4, 100]))
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        ordered = all(a < b for a, b in zip(cutoffs, cutoffs[1:]))
        if (
            not ordered
            or min(cutoffs) <= 0
            or max(cutoffs) > n_classes - 1
            or any(int(c) != c for c in cutoffs)
        ):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing "
                "order, where each value is between 1 and n_classes-1"
            )
        options: dict = {"device": device, "dtype": dtype}
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = cutoffs + [n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, **options)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            hidden = int(in_features // (div_value ** (i + 1)))
            classes = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(
                Sequential(
                    Linear(in_features, hidden, bias=False, **options),
                    Linear(hidden, classes, bias=False, **options),
                )
            )

    def reset_parameters(self) -> None:
        """Sets the initial values anew."""
        self.head.reset_parameters()
        for projection, classes in self.tail:
            projection.reset_parameters()
            classes.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        if target_.dim() == 1:
            if input_.size(0) != target_.size(0):
                raise RuntimeError(
                    "Input and target should have the same size in the batch dimension."
                )
            if input_.dim() != 2:
                raise RuntimeError(
                    "1D target tensor expects 2D input tensors, but found inputs with size",
                    input_.size(),
                )
        elif target_.dim() == 0:
            if input_.dim() != 1:
                raise RuntimeError(
                    "0D target tensor expects 1D input tensors, but found inputs with size",
                    input_.size(),
                )
        else:
            raise RuntimeError(
                "0D or 1D target tensor expected, multi-target not supported"
            )
        batched = target_.dim() > 0
        input = input_ if batched else input_.unsqueeze(0)
        target = target_ if batched else target_.unsqueeze(0)
        if target.numel() and (
            int(target.min()) < 0 or int(target.max()) >= self.n_classes
        ):
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{int(target.min())}, {int(target.max())}] were found. "
            )
        head = F.log_softmax(self.head(input), dim=1)
        index = target
        rare = _operators.zeros(target.shape, dtype=head.dtype, device=head.device)
        for i in range(self.n_clusters):
            low, high = self.cutoffs[i], self.cutoffs[i + 1]
            mine = (target >= low) & (target < high)
            rows = mine.nonzero().reshape(-1)
            if rows.numel() == 0:
                continue
            log_prob = F.log_softmax(self.tail[i](input.index_select(0, rows)), dim=1)
            within = (target.index_select(0, rows) - low).unsqueeze(1)
            rare = rare.index_copy(0, rows, log_prob.gather(1, within).squeeze(1))
            index = index.masked_fill(mine, self.shortlist_size + i)
        output = head.gather(1, index.unsqueeze(1)).squeeze(1) + rare
        loss = -output.mean()
        return _ASMoutput(output if batched else output.squeeze(0), loss)

    def _all(self, input: Tensor, head: Tensor) -> Tensor:
        log_head = F.log_softmax(head, dim=1)
        parts = [log_head[:, : self.shortlist_size]]
        for i, tail in enumerate(self.tail):
            column = log_head[:, self.shortlist_size + i].unsqueeze(1)
            parts.append(F.log_softmax(tail(input), dim=1) + column)
        return _operators.cat(parts, 1)

    def log_prob(self, input: Tensor) -> Tensor:
        """Log probabilities of all classes: (N, in_features) -> (N, n_classes)."""
        return self._all(input, self.head(input))

    def predict(self, input: Tensor) -> Tensor:
        """The likeliest classes (N)."""
        return self.log_prob(input).argmax(1)
