"""Attention over sequences that are spread over processes: context parallelism.

Each process has a part of the sequence of queries, keys and values. Results of attention to the others' parts are put together by the
logarithms of their rows' sums (Liu, Zaharia and Abbeel, "Ring Attention with Blockwise Transformers for Near-Infinite Context"), or
the processes change parts of the sequence for parts of the heads (Jacobs et al., "DeepSpeed Ulysses")."""
from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, Iterator, Optional

from .... import _C, _operators
from ...._grad_mode import no_grad
from ...._operators import _ops, _TorchFunctionMode
from ....autograd import Function
from ... import distributed_c10d as c10d
from ...device_mesh import DeviceMesh

__all__ = ["context_parallel", "context_parallel_unshard", "set_rotate_method"]


@dataclasses.dataclass
class _Options:
    """`enable_load_balance`: each process has a piece from the front of the sequence and one from its end, so that a causal mask leaves
    all of them as much to do."""

    enable_load_balance: bool = True
    rotate_method: str = "allgather"


_cp_options = _Options()


def set_rotate_method(rotate_method: str) -> None:
    """How keys and values of the others come: "allgather": all of them before the first is used; "alltoall": around a ring, those of one
    process at a time while the ones before are computed with. "heads" is not torch's: processes change their parts of the sequence for
    all of some heads and back; it has one process' bits, and wants as many heads as processes, or a multiple.

    >>> arete.distributed.tensor.experimental._attention.set_rotate_method("allgather")
    """
    if rotate_method not in ("allgather", "alltoall", "heads"):
        raise NotImplementedError(f"Unknown rotate method {rotate_method}")
    _cp_options.rotate_method = rotate_method


# ---- parts of sequences


def _order(size: int, length: int) -> Optional[list]:
    """The pieces of a sequence in the order of processes; None: as they are."""
    if not _cp_options.enable_load_balance:
        if length % size:
            raise ValueError(f"context_parallel: a sequence of {length} is not divisible by the {size} processes")
        return None
    if length % (2 * size):
        raise ValueError(f"context_parallel: a sequence of {length} is not divisible by {2 * size}, two pieces for each process")
    return [piece for rank in range(size) for piece in (rank, 2 * size - 1 - rank)]


def _sorted(x: Any, dim: int, pieces: list) -> Any:
    """Pieces of a dimension in another order."""
    every = x.chunk(len(pieces), dim)
    return _operators.cat([every[k] for k in pieces], dim)


def _line(mesh: DeviceMesh) -> Any:
    if mesh.ndim != 1:
        raise ValueError(f"context_parallel wants a mesh of one dimension, as mesh[\"cp\"], got {mesh}")
    return mesh.get_group()


def _part(x: Any, dim: int, group: Any) -> Any:
    size, rank = group.size(), group.rank()
    if _order(size, x.shape[dim]) is None:
        return x.chunk(size, dim)[rank].contiguous()
    every = x.chunk(2 * size, dim)
    return _operators.cat([every[rank], every[2 * size - 1 - rank]], dim)


def context_parallel_unshard(mesh: DeviceMesh, buffers: list, seq_dims: list, load_balancer: Any = None) -> list:
    """The whole of tensors of which each process has its part of the sequence. They have no history. `load_balancer` is refused: the order
    is the one of context_parallel()."""
    if load_balancer is not None:
        raise NotImplementedError("context_parallel_unshard: load_balancer is not supported")
    if len(buffers) != len(seq_dims):
        raise ValueError("`seq_dims` must have the same number of elements as `buffers`.")
    group = _line(mesh)
    size = group.size()
    whole = []
    with no_grad():
        for x, dim in zip(buffers, seq_dims):
            x = x.detach().contiguous()
            parts = [_operators.empty_like(x) for _ in range(size)]
            c10d.all_gather(parts, x, group=group)
            joined = _operators.cat(parts, dim)
            pieces = _order(size, joined.shape[dim])
            whole.append(joined if pieces is None else _sorted(joined, dim, _inverse(pieces)))
    return whole


def _inverse(pieces: list) -> list:
    back = [0] * len(pieces)
    for place, piece in enumerate(pieces):
        back[piece] = place
    return back


# ---- attention


class _Ring:
    """Keys and values of all processes, one after the other, beginning with this one's. With gradients: sums of theirs travel on with
    them, and come home at the end."""

    def __init__(self, group: Any, k: Any, v: Any) -> None:
        self.group, self.size, self.rank = group, group.size(), group.rank()
        self.k, self.v = k.contiguous(), v.contiguous()

    def _pass_on(self, tensors: list) -> tuple[list, list]:
        """Begins to send tensors to the next process, and to receive those of the one before."""
        arriving = [_operators.empty_like(t) for t in tensors]
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        ops = [c10d.P2POp(c10d.isend, t, group=self.group, group_peer=after) for t in tensors]
        ops += [c10d.P2POp(c10d.irecv, t, group=self.group, group_peer=before) for t in arriving]
        return arriving, c10d.batch_isend_irecv(ops)

    def _gathered(self) -> list:
        every = []
        for t in (self.k, self.v):
            parts = [_operators.empty_like(t) for _ in range(self.size)]
            c10d.all_gather(parts, t, group=self.group)
            every.append(parts)
        return list(zip(*every))

    def blocks(self, ring: bool) -> Iterator[tuple]:
        """Number of the process, its keys and its values."""
        if not ring:
            every = self._gathered()
            for i in range(self.size):
                source = (self.rank - i) % self.size
                yield (source, *every[source])
            return
        here = [self.k, self.v]
        for i in range(self.size):
            last = i == self.size - 1
            arriving, works = ([], []) if last else self._pass_on(here)
            yield ((self.rank - i) % self.size, *here)
            for work in works:
                work.wait()
            here = arriving

    def gradients(self, ring: bool, compute: Any) -> list:
        """The sums of what compute(process, keys, values) gives for keys and values in all processes."""
        if not ring:
            every: list = [None] * self.size
            for source, k, v in self.blocks(False):
                every[source] = compute(source, k, v)
            sums = []
            for place, like in enumerate((self.k, self.v)):
                parts = [_operators.zeros_like(like) if e is None else e[place].contiguous() for e in every]
                out = _operators.empty_like(like)
                c10d.reduce_scatter(out, parts, group=self.group)
                sums.append(out)
            return sums
        sums, works = [], []
        for source, k, v in self.blocks(True):
            found = compute(source, k, v)
            for work in works:  # the sums of those before, for these keys
                work.wait()
            if not sums:
                sums = [_operators.zeros_like(self.k), _operators.zeros_like(self.v)]
            if found is not None:
                sums = [s + f for s, f in zip(sums, found)]
            if self.size > 1:
                sums, works = self._pass_on(sums)
        for work in works:
            work.wait()
        return sums


class _RingAttention(Function):
    """Attention of this process' queries to all keys. A causal mask leaves of other processes' pieces all or nothing: with balanced
    parts those before give their first half to all queries, those after give both halves to the second half of the queries."""

    @staticmethod
    def _share(source: int, rank: int, causal: bool, balanced: bool, length: int) -> tuple:
        """Whether a block has a causal mask, and the first query and the number of keys that take part; no keys: none does."""
        if not causal:
            return False, 0, length
        if source == rank:
            return True, 0, length
        if not balanced:
            return False, 0, length if source < rank else 0
        return (False, 0, length // 2) if source < rank else (False, length // 2, length)

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, group: Any, causal: bool, scale: float, balanced: bool, ring: bool) -> Any:
        length = q.shape[2]
        total = logs = None
        for source, ks, vs in _Ring(group, k, v).blocks(ring):
            masked, first, keys = _RingAttention._share(source, group.rank(), causal, balanced, ks.shape[2])
            if keys == 0:
                continue
            out, lse = _ops.fused_attention(q[:, :, first:], ks[:, :, :keys], vs[:, :, :keys], None, scale, masked)
            out = out if out.dtype == _C.float64 else out.float()
            if total is None:  # the first block is this process' own, of all queries
                total, logs = out, lse
                continue
            old = logs[:, :, first:]
            new = _operators.logaddexp(old, lse)
            mixed = total[:, :, first:] * (old - new).exp().unsqueeze(-1) + out * (lse - new).exp().unsqueeze(-1)
            total = mixed if first == 0 else _operators.cat([total[:, :, :first], mixed], 2)
            logs = new if first == 0 else _operators.cat([logs[:, :, :first], new], 2)
        result = total.to(q.dtype)
        ctx.save_for_backward(q, k, v, result, logs)
        ctx.facts = (group, causal, scale, balanced, ring, length)
        return result

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple:
        q, k, v, result, logs = ctx.saved_tensors
        group, causal, scale, balanced, ring, length = ctx.facts
        slope = _operators.zeros_like(q)

        def compute(source: int, ks: Any, vs: Any) -> Any:
            nonlocal slope
            masked, first, keys = _RingAttention._share(source, group.rank(), causal, balanced, ks.shape[2])
            if keys == 0:
                return None
            part = [x[:, :, first:].contiguous() for x in (g, q, result, logs)]
            used = [x[:, :, :keys].contiguous() for x in (ks, vs)]
            dq, dk, dv, _ = _ops.fused_attention_backward(part[0], part[1], *used, None, part[2], part[3], False, scale, masked)
            slope = slope + dq if first == 0 else _operators.cat([slope[:, :, :first], slope[:, :, first:] + dq], 2)
            if keys == ks.shape[2]:
                return dk, dv
            rest = ks.shape[2] - keys
            return tuple(_operators.cat([d, d.new_zeros((*d.shape[:2], rest, d.shape[3]))], 2) for d in (dk, dv))

        dk, dv = _Ring(group, k, v).gradients(ring, compute)
        return slope, dk, dv, None, None, None, None, None


def _exchanged(x: Any, group: Any, to_heads: bool) -> Any:
    """(batch, heads, part of the sequence, features) of all heads as all of the sequence of some heads, or back."""
    size = group.size()
    if to_heads:
        sent = x.transpose(0, 1).contiguous()  # heads first
        got = _ops.collective_all_to_all(sent, [], [], group._number)
        heads, batch, length, features = sent.shape
        got = got.reshape(size, heads // size, batch, length, features)
        return got.permute(2, 1, 0, 3, 4).reshape(batch, heads // size, size * length, features)
    batch, heads, length, features = x.shape
    sent = x.reshape(batch, heads, size, length // size, features).permute(2, 1, 0, 3, 4).contiguous()
    got = _ops.collective_all_to_all(sent.reshape(size * heads, batch, length // size, features), [], [], group._number)
    return got.reshape(size * heads, batch, length // size, features).transpose(0, 1)


def _by_heads(q: Any, k: Any, v: Any, group: Any, causal: bool, scale: Optional[float]) -> Any:
    size = group.size()
    if q.shape[1] % size or k.shape[1] % size:
        raise ValueError(f"context_parallel: {q.shape[1]} heads of queries and {k.shape[1]} of keys are not divided among {size} "
                         "processes; take another rotate method")
    pieces = _order(size, q.shape[2] * size)
    q, k, v = (_exchanged(x, group, True) for x in (q, k, v))
    if pieces is not None:
        q, k, v = (_sorted(x, 2, _inverse(pieces)) for x in (q, k, v))
    y = _ops.scaled_dot_product_attention(q, k, v, None, 0.0, causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1])
    return _exchanged(y if pieces is None else _sorted(y, 2, pieces), group, False)


class _Attention(_TorchFunctionMode):
    """Has scaled_dot_product_attention, whoever calls it, look at the whole sequence."""

    def __init__(self, group: Any) -> None:
        super().__init__()
        self.group = group

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ != "scaled_dot_product_attention":
            return func(*args, **(kwargs or {}))
        return self.attention(*args, **(kwargs or {}))

    def attention(self, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
                  scale: Optional[float] = None, enable_gqa: bool = False) -> Any:
        if attn_mask is not None or dropout_p:
            raise NotImplementedError("scaled_dot_product_attention within context_parallel(): attn_mask and dropout_p are not supported")
        if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
            raise NotImplementedError("scaled_dot_product_attention within context_parallel(): tensors are of shape (batch, heads, length, "
                                      "features)")
        if query.shape[2] != key.shape[2]:
            raise NotImplementedError("scaled_dot_product_attention within context_parallel(): queries and keys are of one sequence")
        if query.shape[1] != key.shape[1] and not enable_gqa:
            raise ValueError("scaled_dot_product_attention: fewer heads of keys than of queries want enable_gqa=True")
        group = self.group
        if _cp_options.rotate_method == "heads":
            return _by_heads(query, key, value, group, is_causal, scale)
        balanced = _cp_options.enable_load_balance
        return _RingAttention.apply(query.contiguous(), key.contiguous(), value.contiguous(), group, is_causal,
                                    query.shape[-1]**-0.5 if scale is None else float(scale), balanced,
                                    _cp_options.rotate_method == "alltoall")


@contextlib.contextmanager
def context_parallel(mesh: DeviceMesh, *, buffers: Optional[list] = None, buffer_seq_dims: Optional[list] = None,
                     no_restore_buffers: Optional[set] = None) -> Iterator[None]:
    """A block in which each process of the mesh has its part of the sequence of `buffers` (inputs, targets, positions), along
    `buffer_seq_dims`, and `scaled_dot_product_attention` looks at all of it. Afterwards buffers are whole again, but for
    `no_restore_buffers`. Masks other than `is_causal` and dropout are refused.

    >>> dist = arete.distributed
    >>> dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    >>> x = arete.ones(1, 2, 4, 8)
    >>> with dist.tensor.experimental.context_parallel(dist.init_device_mesh("cpu", (1,)), buffers=[x], buffer_seq_dims=[2]):
    ...     nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True).sum()
    tensor(64.)
    >>> dist.destroy_process_group()
    """
    buffers, dims, lost = list(buffers or []), list(buffer_seq_dims or []), no_restore_buffers or set()
    if len(buffers) != len(dims):
        raise ValueError("`seq_dims` must have the same number of elements as `buffers`.")
    if any(not any(b is x for x in buffers) for b in lost):
        raise ValueError("`no_restore_buffers` must be a subset of `buffers`.")
    group = _line(mesh)
    with no_grad():
        parts = [_part(b.detach(), d, group) for b, d in zip(buffers, dims)]
    before = [b.data for b in buffers]
    for b, part in zip(buffers, parts):
        b.data = part
    try:
        with _Attention(group):
            yield
    finally:
        for b, whole in zip(buffers, before):
            if not any(b is x for x in lost):
                b.data = whole
