"""Packed sequences, which recurrent layers and nn.utils.rnn know."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from .. import _C, _operators
from .._C import Tensor


class _Fields(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Optional[Tensor]
    unsorted_indices: Optional[Tensor]


def invert_permutation(permutation: Optional[Tensor]) -> Optional[Tensor]:
    """The permutation that undoes `permutation`.

    >>> nn.utils.rnn.invert_permutation(arete.tensor([2, 0, 1]))
    tensor([1, 2, 0])
    """
    if permutation is None:
        return None
    places = _operators.arange(permutation.numel(), dtype=_C.int64, device=permutation.device)
    return _operators.empty_like(places).scatter_(0, permutation, places)


class PackedSequence(_Fields):
    """Sequences without padding: the elements of all at time 0, at time 1, ...

    `data` holds them, `batch_sizes` (on the CPU) says how many sequences reach each time;
    sequences are sorted by length, and sorted_indices and unsorted_indices map from and to the
    caller's order (None: the same). pack_padded_sequence and pack_sequence make such objects.

    >>> packed = nn.utils.rnn.pack_sequence([arete.tensor([1, 2, 3]), arete.tensor([4, 5])])
    >>> packed.data, packed.batch_sizes
    (tensor([1, 4, 2, 5, 3]), tensor([2, 2, 1]))
    """

    __slots__ = ()

    def __new__(
        cls,
        data: Any,
        batch_sizes: Optional[Tensor] = None,
        sorted_indices: Optional[Tensor] = None,
        unsorted_indices: Optional[Tensor] = None,
    ) -> "PackedSequence":
        if batch_sizes is None:
            data, batch_sizes = data
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes.device.type != "cpu":
            raise ValueError(
                "batch_sizes should always be on CPU. Instances of PackedSequence should never be "
                "created manually. They should be instantiated by functions like pack_sequence and "
                "pack_padded_sequences in nn.utils.rnn. "
            )
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def __reduce__(self) -> tuple:
        return PackedSequence, tuple(self)

    def _with(self, data: Tensor) -> "PackedSequence":
        def follow(t: Optional[Tensor]) -> Optional[Tensor]:
            return t if t is None else t.to(data.device)

        if data is self.data:
            return self
        return PackedSequence(
            data, self.batch_sizes, follow(self.sorted_indices), follow(self.unsorted_indices)
        )

    def to(self, *args: Any, **kwargs: Any) -> "PackedSequence":
        """Moves or casts the data as Tensor.to does."""
        return self._with(self.data.to(*args, **kwargs))

    def cuda(self, *args: Any, **kwargs: Any) -> "PackedSequence":
        return self._with(self.data.cuda(*args, **kwargs))

    def cpu(self) -> "PackedSequence":
        return self._with(self.data.to("cpu"))

    def pin_memory(self) -> "PackedSequence":
        return self._with(self.data.pin_memory())

    def double(self) -> "PackedSequence":
        return self.to(dtype=_C.float64)

    def float(self) -> "PackedSequence":
        return self.to(dtype=_C.float32)

    def half(self) -> "PackedSequence":
        return self.to(dtype=_C.float16)

    def long(self) -> "PackedSequence":
        return self.to(dtype=_C.int64)

    def int(self) -> "PackedSequence":
        return self.to(dtype=_C.int32)

    def short(self) -> "PackedSequence":
        return self.to(dtype=_C.int16)

    def char(self) -> "PackedSequence":
        return self.to(dtype=_C.int8)

    def byte(self) -> "PackedSequence":
        return self.to(dtype=_C.uint8)

    @property
    def is_cuda(self) -> bool:
        return self.data.is_cuda

    def is_pinned(self) -> bool:
        return self.data.is_pinned()


for _shown in (_Fields, PackedSequence, invert_permutation):
    _shown.__module__ = "arete.nn.utils.rnn"  # where they are shown, and pickles have them
