"""Attention whose scores are changed and masked by functions of the program: torch.nn.attention.flex_attention.

The functions see all scores at once, with indices that broadcast, and what they compute is masked and summed by operators: the scores are
stored. Without a function of scores the work is that of scaled_dot_product_attention with a mask.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ..._C import Tensor
from ..._grad_mode import no_grad
from ..._operators import _ops, bool as _bool, float32, float64, int32
from ...nn import functional as F

__all__ = ["AuxOutput", "AuxRequest", "BlockMask", "and_masks", "create_block_mask", "create_mask", "flex_attention", "noop_mask",
           "or_masks"]

_DEFAULT_SPARSE_BLOCK_SIZE = 128


def noop_mask(batch: Any, head: Any, token_q: Any, token_kv: Any) -> Any:
    """A mask that lets everything be seen."""
    return _ops.ones((), dtype=_bool, device=getattr(batch, "device", None))


def _identity(score: Any, batch: Any, head: Any, token_q: Any, token_kv: Any) -> Any:
    return score


def and_masks(*mask_mods: Callable) -> Callable:
    """A mask of what all of these let be seen."""
    if not all(callable(m) for m in mask_mods):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")

    def and_mask(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        result = noop_mask(b, h, q_idx, kv_idx)
        for mask in mask_mods:
            result = result & mask(b, h, q_idx, kv_idx)
        return result

    return and_mask


def or_masks(*mask_mods: Callable) -> Callable:
    """A mask of what one of these lets be seen."""
    if not all(callable(m) for m in mask_mods):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")

    def or_mask(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        result = ~noop_mask(b, h, q_idx, kv_idx)
        for mask in mask_mods:
            result = result | mask(b, h, q_idx, kv_idx)
        return result

    return or_mask


_MOST_CALLS = 1 << 16


def _of_places(function: Callable, shape: tuple, device: Any, scores: Any = None) -> Any:
    """function([score,] b, h, q, kv) at each place of `shape`: with indices that broadcast, and if what comes out has another shape, as
    from `table[h][q - kv]`, one call for each place."""
    places = [_ops.arange(n, device=device, dtype=int32).view([-1 if d == i else 1 for d in range(4)]) for i, n in enumerate(shape)]
    given = places if scores is None else [scores, *places]
    error: Exception | None = None
    try:
        result = function(*given)
        fits = result.dim() <= 4 and all(a in (1, b) for a, b in zip(reversed(result.shape), reversed(shape)))
    except (IndexError, RuntimeError, ValueError, TypeError) as e:
        error, fits = e, False
    if fits:
        return result.expand(shape)
    if math.prod(shape) > _MOST_CALLS:
        raise RuntimeError(f"the function of attention does not work with indices that broadcast, and {math.prod(shape)} calls "
                           "are too many; "
                           "write table[h, q - kv] for table[h][q - kv]") from error
    flat = [p.expand(shape).reshape(-1) for p in places]
    values = None if scores is None else scores.reshape(-1)
    each = [function(*(() if values is None else (values[i],)), *(p[i] for p in flat)) for i in range(math.prod(shape))]
    return _ops.stack(each).view(shape)


def create_mask(mod_fn: Callable, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None) -> Any:
    """What a function of masks (of four arguments) or of scores (of five) lets be seen: [B, H, Q_LEN, KV_LEN]; None is 1.

    >>> flex = arete.nn.attention.flex_attention
    >>> flex.create_mask(lambda b, h, q, k: q >= k, None, None, 2, 2)
    tensor([[[[ True, False],
              [ True,  True]]]])
    """
    import inspect

    device = "cpu" if device is None else device
    shape = (B or 1, H or 1, Q_LEN, KV_LEN)
    count = sum(p.default is p.empty for p in inspect.signature(mod_fn).parameters.values())
    if count == 5:
        scores = _ops.zeros(shape, device=device)
        return _ops.isfinite(_of_places(mod_fn, shape, device, scores))
    return _of_places(mod_fn, shape, device).to(_bool)


def _ordered(blocks: Any) -> tuple:
    """Of a 0/1 matrix of blocks how many each row has, and their columns, the ones first."""
    counts = blocks.sum(-1, dtype=int32)
    return counts, _ops.argsort(blocks, dim=-1, descending=True, stable=True).to(int32).contiguous()


def _dense(counts: Any, indices: Any, columns: int) -> Any:
    """The 0/1 matrix of blocks again."""
    place = _ops.arange(indices.shape[-1], device=indices.device, dtype=int32)
    taken = place < counts.unsqueeze(-1)
    made = _ops.zeros((*counts.shape, columns + 1), dtype=int32, device=indices.device)
    where = _ops.where(taken, indices, _ops.full_like(indices, columns))
    return made.scatter(-1, where.long(), _ops.ones_like(indices))[..., :columns]


def _mask_of_a_part(*places: Any) -> Any:
    raise RuntimeError("Cannot use mask_mod from a sliced BlockMask: set its mask_mod to a function of the places in it, made from that of "
                       "the whole BlockMask")


class BlockMask:
    """Which blocks of scores are computed, and by what function those that are seen in part are masked.

    Of each row of blocks (of BLOCK_SIZE queries) `kv_num_blocks` and `kv_indices` say the columns (of BLOCK_SIZE keys) that are seen in
    part, `full_kv_num_blocks` and `full_kv_indices` those that are seen whole; `q_...` and `full_q_...` the same by columns.
    """

    _PARTS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "q_indices", "full_q_num_blocks",
              "full_q_indices")

    def __init__(self, seq_lengths: tuple, kv_num_blocks: Any, kv_indices: Any, full_kv_num_blocks: Any, full_kv_indices: Any,
                 q_num_blocks: Any,
                 q_indices: Any, full_q_num_blocks: Any, full_q_indices: Any, BLOCK_SIZE: tuple, mask_mod: Callable) -> None:
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        self.seq_lengths, self.BLOCK_SIZE, self.mask_mod = seq_lengths, BLOCK_SIZE, mask_mod
        self.kv_num_blocks, self.kv_indices, self.full_kv_num_blocks, self.full_kv_indices = (
            kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices)
        self.q_num_blocks, self.q_indices, self.full_q_num_blocks, self.full_q_indices = (
            q_num_blocks, q_indices, full_q_num_blocks, full_q_indices)

    @classmethod
    def from_kv_blocks(cls, kv_num_blocks: Any, kv_indices: Any, full_kv_num_blocks: Any = None, full_kv_indices: Any = None,
                       BLOCK_SIZE: Any = _DEFAULT_SPARSE_BLOCK_SIZE, mask_mod: Callable | None = None, seq_lengths: tuple | None = None,
                       compute_q_blocks: bool = True) -> BlockMask:
        """Of the columns that each row of blocks sees."""
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError("full_kv_num_blocks and full_kv_indices must be both provided or omitted")
        if isinstance(BLOCK_SIZE, int):
            BLOCK_SIZE = (BLOCK_SIZE, BLOCK_SIZE)
        columns = kv_indices.shape[-1]
        by_columns: list = [None] * 4
        if compute_q_blocks:
            by_columns[:2] = _ordered(_dense(kv_num_blocks, kv_indices, columns).transpose(-2, -1))
            if full_kv_num_blocks is not None:
                by_columns[2:] = _ordered(_dense(full_kv_num_blocks, full_kv_indices, columns).transpose(-2, -1))
        if seq_lengths is None:
            seq_lengths = (kv_indices.shape[-2] * BLOCK_SIZE[0], columns * BLOCK_SIZE[1])
        return cls(seq_lengths, kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices, *by_columns, BLOCK_SIZE,
                   mask_mod or noop_mask)

    def as_tuple(self, flatten: bool = True) -> tuple:
        parts = tuple(getattr(self, name) for name in self._PARTS)
        return (*self.seq_lengths, *parts, *self.BLOCK_SIZE, self.mask_mod) if flatten else (self.seq_lengths, *parts, self.BLOCK_SIZE,
                                                                                             self.mask_mod)

    @property
    def shape(self) -> tuple:
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self) -> int:
        return math.prod(self.shape)

    def to_dense(self) -> Any:
        """1 for each block that is computed: [..., rows, columns]."""
        columns = self.kv_indices.shape[-1]
        partial = _dense(self.kv_num_blocks, self.kv_indices, columns)
        return partial if self.full_kv_num_blocks is None else partial | _dense(self.full_kv_num_blocks, self.full_kv_indices, columns)

    def sparsity(self) -> float:
        """What share of the scores is not computed, in percent."""
        computed = self.kv_num_blocks.sum().item()
        if self.full_kv_num_blocks is not None:
            computed += self.full_kv_num_blocks.sum().item()
        return 100 * (1 - computed * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1] / self.numel())

    def __getitem__(self, index: Any) -> BlockMask:
        """The mask of some of the batches, heads and rows of blocks; numbers keep their dimension. Places are then others than those
        that `mask_mod` knows, so that has to be set anew."""
        index = index if isinstance(index, tuple) else (index,)
        index = tuple((slice(i, i + 1) if i >= 0 else slice(n + i, n + i + 1)) if isinstance(i, int) else i
                      for i, n in zip(index, self.kv_num_blocks.shape, strict=False))
        parts = [None if (p := getattr(self, name)) is None else p[index] for name in self._PARTS[:4]]
        return BlockMask.from_kv_blocks(*parts, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=_mask_of_a_part, seq_lengths=self.seq_lengths,
                                        compute_q_blocks=self.q_indices is not None)

    def to(self, device: Any) -> BlockMask:
        parts = [None if (p := getattr(self, name)) is None else p.to(device) for name in self._PARTS]
        return BlockMask(self.seq_lengths, *parts, self.BLOCK_SIZE, self.mask_mod)

    def __repr__(self) -> str:
        return f"BlockMask(shape={tuple(self.shape)}, sparsity={self.sparsity():.2f}%, BLOCK_SIZE={self.BLOCK_SIZE})"

    def _seen(self, shape: tuple, device: Any) -> Any:
        """What each query sees, for scores of this shape."""
        rows, columns = self.BLOCK_SIZE

        def places(blocks: Any) -> Any:
            wide = blocks.repeat_interleave(rows, -2).repeat_interleave(columns, -1)[..., : shape[-2], : shape[-1]].to(_bool)
            if wide.shape[-2:] != shape[-2:]:
                raise ValueError(f"block_mask was created for {self.shape} but got q_len={shape[-2]} and kv_len={shape[-1]}. "
                                 "As the block mask was created for a smaller length than you're using it for, you likely need to create "
                                 "a new one")
            return wide

        count = self.kv_indices.shape[-1]
        masked = _of_places(self.mask_mod, shape, device).to(_bool)
        seen = places(_dense(self.kv_num_blocks, self.kv_indices, count)) & masked
        if self.full_kv_num_blocks is not None:
            seen = seen | places(_dense(self.full_kv_num_blocks, self.full_kv_indices, count))
        return seen


def create_block_mask(mask_mod: Callable, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None,
                      BLOCK_SIZE: Any = _DEFAULT_SPARSE_BLOCK_SIZE, _compile: bool = False) -> BlockMask:
    """The BlockMask of a function mask_mod(b, h, q, kv), which is asked about every place.

    >>> flex = arete.nn.attention.flex_attention
    >>> flex.create_block_mask(lambda b, h, q, k: q >= k, None, None, 256, 256)
    BlockMask(shape=(1, 1, 256, 256), sparsity=25.00%, BLOCK_SIZE=(128, 128))
    """
    rows, columns = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    with no_grad():
        mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
        padded = F.pad(mask.to(int32), (0, -KV_LEN % columns, 0, -Q_LEN % rows))
        counts = padded.unflatten(-1, (-1, columns)).sum(-1).unflatten(-2, (-1, rows)).sum(-2)
        full = (counts == rows * columns).to(int32)
        partial = ((counts > 0) & (counts < rows * columns)).to(int32)
        return BlockMask.from_kv_blocks(*_ordered(partial), *_ordered(full), BLOCK_SIZE=(rows, columns), mask_mod=mask_mod,
                                        seq_lengths=(Q_LEN, KV_LEN))


class AuxRequest(NamedTuple):
    """What flex_attention() gives besides its result."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What AuxRequest has asked for."""

    lse: Any = None
    max_scores: Any = None


def flex_attention(query: Tensor, key: Tensor, value: Tensor, score_mod: Callable | None = None, block_mask: BlockMask | None = None,
                   scale: float | None = None, enable_gqa: bool = False, return_lse: bool = False, kernel_options: Any = None, *,
                   return_aux: AuxRequest | None = None) -> Any:
    """Attention with score_mod(score, b, h, q, kv) for each score, of what `block_mask` lets be seen. Queries that see nothing get zeros.

    query [B, H, L, E], key [B, H, S, E], value [B, H, S, Ev]; with `enable_gqa` H of key and value divides that of query, and a batch of 1
    of these serves all. `return_lse`: also the logarithm of the sum of exponentials of each query's scores. `kernel_options` choose how
    torch's kernel is cut, and nothing here.

    >>> q = arete.ones(1, 1, 2, 4)
    >>> arete.nn.attention.flex_attention.flex_attention(q, q, q, lambda score, b, h, i, j: score - 100 * (i != j)).shape
    arete.Size([1, 1, 2, 4])
    """
    for name, t in (("query", query), ("key", key), ("value", value)):
        if t.dim() != 4:
            raise ValueError(f"Expected query, key, and value to be 4D tensors, but got {name} of {t.dim()} dimensions")
    if query.dtype != key.dtype or query.dtype != value.dtype:
        raise ValueError(f"Expected query, key, and value to have the same dtype, but got query.dtype: {query.dtype}, "
                         f"key.dtype: {key.dtype}, "
                         f"and value.dtype: {value.dtype} instead.")
    batch, heads, length, width = query.shape
    if not enable_gqa and heads != key.shape[1]:
        raise ValueError(f"Expect query and key/value to have the same number of heads but got Hq={heads} and Hkv={key.shape[1]}. "
                         "Try setting enable_gqa=True for GQA.")
    if heads % key.shape[1]:
        raise ValueError("Expect number of query heads to be a multiple of kv heads for GQA but got "
                         f"Hq={heads} and Hkv={key.shape[1]}.")
    shape = (batch, heads, length, key.shape[2])
    if block_mask is not None and (batch != block_mask.shape[0] and block_mask.shape[0] != 1 or heads != block_mask.shape[1]
                                   and block_mask.shape[1] != 1):
        raise ValueError(f"block_mask of shape {block_mask.shape} does not fit query of shape {tuple(query.shape)}")
    seen = None if block_mask is None else block_mask._seen(shape, query.device)
    key, value = key.expand(batch, -1, -1, -1), value.expand(batch, -1, -1, -1)
    if enable_gqa and heads != key.shape[1]:
        key, value = (t.repeat_interleave(heads // t.shape[1], 1) for t in (key, value))
    wants = return_aux or AuxRequest(lse=return_lse)
    scale = width**-0.5 if scale is None else scale
    if score_mod is None and not any(wants):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=seen, scale=scale)

    scores = (query @ key.transpose(-2, -1)).to(float64 if query.dtype == float64 else float32) * scale
    if score_mod is not None:
        scores = _of_places(score_mod, shape, query.device, scores)
    if seen is not None:
        scores = scores.masked_fill(~seen, -math.inf)
    blind = (scores == -math.inf).all(-1, keepdim=True)
    weights = scores.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)
    result = weights.to(query.dtype) @ value
    if not any(wants):
        return result
    lse = _ops.logsumexp(scores.masked_fill(blind, 0.0), -1).masked_fill(blind.squeeze(-1), -math.inf)
    if return_aux is not None:
        return result, AuxOutput(lse if wants.lse else None, scores.amax(-1) if wants.max_scores else None)
    return result, lse
