"""Sequences of different lengths: padded, packed and lists of tensors."""

from __future__ import annotations

from typing import Any, Iterable, List, Optional, Tuple, Union

from ... import _C, _operators
from ..._C import Tensor
from .._packed import PackedSequence, _Fields, invert_permutation  # noqa: F401

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpad_sequence",
    "pack_sequence",
    "unpack_sequence",
]


def _cells(lengths: Tensor, steps: int) -> Tensor:
    """Places (time * sequences + sequence) of what is no padding, time by time."""
    alive = _operators.arange(steps).unsqueeze(1) < lengths.unsqueeze(0)
    return alive.reshape(-1).nonzero().reshape(-1)


def pack_padded_sequence(
    input: Tensor,
    lengths: Union[Tensor, List[int]],
    batch_first: bool = False,
    enforce_sorted: bool = True,
) -> PackedSequence:
    """Packs padded sequences (T, N, *), or (N, T, *) with batch_first, of the given lengths.

    Unsorted lengths need enforce_sorted=False. RuntimeError for lengths that are not positive,
    not sorted or of another number than N.

    >>> packed = nn.utils.rnn.pack_padded_sequence(arete.tensor([[1, 3], [2, 0]]), arete.tensor([2, 1]))
    >>> packed.data
    tensor([1, 3, 2])
    >>> nn.utils.rnn.pack_padded_sequence(arete.ones(2, 2), arete.tensor([1, 2]))
    Traceback (most recent call last):
    RuntimeError: `lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can ...
    """
    if not isinstance(lengths, Tensor):
        lengths = _C.tensor([int(n) for n in lengths], dtype=_C.int64)
    lengths = lengths.detach().to("cpu", _C.int64)
    order = None
    if not enforce_sorted:
        lengths, order = _operators.sort(lengths, descending=True)
        order = order.to(input.device)
        input = input.index_select(0 if batch_first else 1, order)
    if batch_first:
        input = input.transpose(0, 1)
    steps, batch = input.shape[:2]
    counts = lengths.tolist()
    if len(counts) != batch:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(counts)} "
            f"(batch_size={batch})."
        )
    if not counts or counts[-1] <= 0 or min(counts) <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' "
            "that is <= 0"
        )
    if any(a < b for a, b in zip(counts, counts[1:])):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. "
            "You can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to "
            "sidestep this requirement if you do not need ONNX exportability."
        )
    if counts[0] > steps:
        raise RuntimeError(
            f"Expected lengths not above the number of steps {steps}, but got {counts[0]}"
        )
    cells = _cells(lengths, counts[0]).to(input.device)
    flat = input[: counts[0]].reshape(counts[0] * batch, *input.shape[2:])
    sizes = (_operators.arange(counts[0]).unsqueeze(1) < lengths.unsqueeze(0)).sum(1)
    return PackedSequence(flat.index_select(0, cells), sizes, order)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: Optional[int] = None,
) -> Tuple[Tensor, Tensor]:
    """The padded sequences (T, N, *), or (N, T, *), and their lengths (int64, on the CPU).

    >>> packed = nn.utils.rnn.pack_sequence([arete.tensor([1, 2]), arete.tensor([3])])
    >>> nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    (tensor([[1, 2],
            [3, 0]]), tensor([2, 1]))
    """
    sizes = sequence.batch_sizes
    steps, batch = sizes.numel(), int(sizes[0])
    total = steps if total_length is None else total_length
    if total < steps:
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, "
            f"but got total_length={total_length} and max sequence length being {steps}"
        )
    data = sequence.data
    lengths = (_operators.arange(batch).unsqueeze(0) < sizes.unsqueeze(1)).sum(0)
    cells = _cells(lengths, steps).to(data.device)
    shape = (total * batch, *data.shape[1:])
    padded = _operators.full(shape, padding_value, dtype=data.dtype, device=data.device)
    padded = padded.index_copy(0, cells, data).reshape(total, batch, *data.shape[1:])
    order = sequence.unsorted_indices
    if order is not None:
        padded = padded.index_select(1, order)
        lengths = lengths.index_select(0, order.to("cpu"))
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def pad_sequence(
    sequences: Union[Tensor, Iterable[Tensor]],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Stacks tensors (L_i, *) to (T, N, *), or (N, T, *), filled up with padding_value.

    >>> nn.utils.rnn.pad_sequence([arete.tensor([1, 2]), arete.tensor([3])], batch_first=True)
    tensor([[1, 2],
            [3, 0]])
    """
    if padding_side not in ("left", "right"):
        raise RuntimeError("pad_sequence: padding_side must be 'left' or 'right'")
    if not isinstance(sequences, Tensor) and not isinstance(sequences, Iterable):
        raise RuntimeError(
            f"pad_sequence: Expected iterable for input sequences, but got arg of type: "
            f"{type(sequences)}"
        )
    parts = list(sequences.unbind(0)) if isinstance(sequences, Tensor) else list(sequences)
    if not parts:
        raise RuntimeError("received an empty list of sequences")
    longest = max(p.shape[0] for p in parts)
    filled = []
    for part in parts:
        missing = longest - part.shape[0]
        if missing:
            shape = (missing, *part.shape[1:])
            rest = _operators.full(shape, padding_value, dtype=part.dtype, device=part.device)
            part = _operators.cat([rest, part] if padding_side == "left" else [part, rest])
        filled.append(part)
    return _operators.stack(filled, 0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False
) -> List[Tensor]:
    """The sequences of a padded tensor, each of its own length.

    >>> nn.utils.rnn.unpad_sequence(arete.tensor([[1, 2], [3, 0]]), arete.tensor([2, 1]), batch_first=True)
    [tensor([1, 2]), tensor([3])]
    """
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    counts = lengths.tolist() if isinstance(lengths, Tensor) else list(lengths)
    return [row[:n] for row, n in zip(padded_sequences.unbind(0), counts)]


def pack_sequence(sequences: List[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs tensors (L_i, *), sorted by length unless enforce_sorted is False.

    >>> nn.utils.rnn.pack_sequence([arete.tensor([1, 2]), arete.tensor([3])]).batch_sizes
    tensor([2, 1])
    """
    lengths = _C.tensor([s.shape[0] for s in sequences], dtype=_C.int64)
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> List[Tensor]:
    """The sequences of a packed one.

    >>> nn.utils.rnn.unpack_sequence(nn.utils.rnn.pack_sequence([arete.tensor([1, 2]), arete.tensor([3])]))
    [tensor([1, 2]), tensor([3])]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
