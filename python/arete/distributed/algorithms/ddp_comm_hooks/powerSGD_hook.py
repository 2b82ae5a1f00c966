"""PowerSGD: gradients travel as products of thin matrices (Vogels et al., 2019).

A gradient M of n x m is approximated by P Q^T of rank r. From the last Q: P = M Q is summed over the processes and made orthogonal, then
Q = M^T P is averaged; the gradient is P Q^T. What the approximation leaves out is added to the next gradient (error feedback).
"""
from __future__ import annotations

import math
from typing import Any

from ... import distributed_c10d as dist
from ....futures import Future, _WorkFuture
from .... import _C
from . import default_hooks as default

__all__ = ["PowerSGDState", "powerSGD_hook", "batched_powerSGD_hook"]


class PowerSGDState:
    """What the hook keeps from step to step.

    For the first `start_powerSGD_iter` steps gradients are exchanged as they are. A gradient is compressed if that makes it
    `min_compression_rate` times as small; vectors never are. `warm_start` begins each step with the last Q instead of random numbers.
    """

    def __init__(self, process_group: Any, matrix_approximation_rank: int = 1, start_powerSGD_iter: int = 1000,
                 min_compression_rate: float = 2, use_error_feedback: bool = True, warm_start: bool = True,
                 orthogonalization_epsilon: float = 0, random_seed: int = 0, compression_stats_logging_frequency: int = 10000,
                 batch_tensors_with_same_shape: bool = False) -> None:
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError("Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, because PowerSGD can "
                             "only be applied after the first two iterations in DDP.")
        if matrix_approximation_rank < 1:
            raise ValueError("matrix_approximation_rank must be positive")
        self.process_group = process_group
        self.matrix_approximation_rank = matrix_approximation_rank
        self.start_powerSGD_iter = start_powerSGD_iter
        self.min_compression_rate = min_compression_rate
        self.use_error_feedback = use_error_feedback
        self.warm_start = warm_start
        self.orthogonalization_epsilon = orthogonalization_epsilon
        self.compression_stats_logging_frequency = compression_stats_logging_frequency
        self.batch_tensors_with_same_shape = batch_tensors_with_same_shape
        self.random_seed = random_seed
        self.iter = 0
        self.error_dict: dict[int, Any] = {}
        self.q_memory_dict: dict[int, list] = {}
        self.total_numel_before_compression = self.total_numel_after_compression = 0
        self._draws = 0

    def __getstate__(self) -> dict:
        return {name: value for name, value in self.__dict__.items() if name != "process_group"}

    def __setstate__(self, state: dict) -> None:
        """The group is the default one."""
        self.__dict__.update(state)
        self.process_group = dist.group.WORLD

    def maybe_increase_iter(self, bucket: dist.GradBucket) -> None:
        """Counts steps, by their last buckets."""
        if bucket.is_last():
            self.iter += 1

    def compression_stats(self) -> tuple:
        """How many times as many numbers there were as travelled, and both."""
        before, after = self.total_numel_before_compression, self.total_numel_after_compression
        return (before / after if after > 0 else 0, before, after)

    def _random(self, rows: int, columns: int, like: Any) -> Any:
        # The same numbers in all processes.
        self._draws += 1
        generator = _C.Generator().manual_seed(self.random_seed * 1000003 + self._draws)
        return _empty([rows, columns], like.dtype, _C.device("cpu")).normal_(generator=generator).to(like.device)


def _empty(sizes: list, dtype: Any, device: Any) -> Any:
    strides = [math.prod(sizes[i + 1:]) for i in range(len(sizes))]
    return _C._empty_strided(sizes, strides, dtype, device)


def _orthogonalize(matrix: Any, epsilon: float) -> None:
    """Makes the columns orthonormal, one after the other; `epsilon` keeps columns of zeros from dividing by zero."""
    if epsilon == 0 and str(matrix.dtype).endswith(("float32", "float64")):
        matrix.copy_(_C.Operator("linalg_qr", False)(matrix, "reduced")[0])
        return
    for i in range(matrix.shape[1]):
        column = matrix[:, i:i + 1]
        column.div_(column.norm() + epsilon)
        if i + 1 < matrix.shape[1]:
            rest = matrix[:, i + 1:]
            rest.sub_(column * (column * rest).sum(0))


def _in_parts(numbers: Any, shapes: list) -> list:
    """A vector as matrices of these shapes, one after the other."""
    parts, at = [], 0
    for n, m in shapes:
        parts.append(numbers[at:at + n * m].view(n, m))
        at += n * m
    return parts


def _exchange(state: PowerSGDState, bucket: dist.GradBucket, tensors: list, whole: list) -> Future:
    """Averages `tensors` (anything that reshapes to a matrix) by approximations and `whole` as they are, in place."""
    group, buffer = dist._of(state.process_group), bucket.buffer()
    index, size = bucket.index(), group.size()
    before = None
    if state.use_error_feedback:
        if index in state.error_dict:
            buffer.add_(state.error_dict[index])
        before = buffer.clone()
    matrices = [t.reshape(t.shape[0], -1) for t in tensors]
    ranks = [min(*m.shape, state.matrix_approximation_rank) for m in matrices]
    p_shapes, q_shapes = ([(m.shape[side], r) for m, r in zip(matrices, ranks)] for side in (0, 1))
    state.total_numel_before_compression += buffer.numel()
    state.total_numel_after_compression += sum(n * r for n, r in p_shapes + q_shapes) + sum(t.numel() for t in whole)

    rest = _empty([sum(t.numel() for t in whole)], buffer.dtype, buffer.device)
    at = 0
    for t in whole:
        rest[at:at + t.numel()].copy_(t.reshape(-1))
        at += t.numel()
    rest_work = dist.all_reduce(rest, group=group, async_op=True) if at else None
    qs = state.q_memory_dict.get(index) if state.warm_start else None
    if qs is None or [tuple(q.shape) for q in qs] != q_shapes:
        qs = [state._random(n, r, buffer) for n, r in q_shapes]
    for q in qs:
        _orthogonalize(q, state.orthogonalization_epsilon)
    all_p = _empty([sum(n * r for n, r in p_shapes)], buffer.dtype, buffer.device)
    for p, m, q in zip(_in_parts(all_p, p_shapes), matrices, qs):
        p.copy_(m @ q)
    p_work = dist.all_reduce(all_p, group=group, async_op=True) if matrices else None

    def finish() -> Any:
        if rest_work is not None:
            rest_work.wait()
            rest.div_(size)
            at = 0
            for t in whole:
                t.copy_(rest[at:at + t.numel()].view(t.shape))
                at += t.numel()
        if p_work is not None:
            p_work.wait()
            ps = _in_parts(all_p, p_shapes)
            all_q = _empty([sum(n * r for n, r in q_shapes)], buffer.dtype, buffer.device)
            new_qs = _in_parts(all_q, q_shapes)
            for p, m, q in zip(ps, matrices, new_qs):
                _orthogonalize(p, state.orthogonalization_epsilon)
                q.copy_(m.mT @ p)
            dist.all_reduce(all_q, group=group)
            all_q.div_(size)
            for t, p, q in zip(tensors, ps, new_qs):
                t.copy_((p @ q.mT).reshape(t.shape))
            if state.warm_start:
                state.q_memory_dict[index] = [q.clone() for q in new_qs]
        if before is not None:
            state.error_dict[index] = before.sub_(buffer)
        return buffer

    state.maybe_increase_iter(bucket)
    return _WorkFuture(finish, lambda: False)


def powerSGD_hook(state: PowerSGDState, bucket: dist.GradBucket) -> Future:
    """Exchanges each gradient of two or more dimensions as a product of thin matrices."""
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return default._allreduce_fut(state.process_group, bucket.buffer())
    compressed, whole = [], []
    for t in bucket.gradients():
        n = t.shape[0] if t.dim() > 1 else 1
        m = t.numel() // max(n, 1)
        rank = min(n, m, state.matrix_approximation_rank)
        pays = t.dim() > 1 and t.numel() > 0 and (n + m) * rank * state.min_compression_rate < n * m
        (compressed if pays else whole).append(t)
    return _exchange(state, bucket, compressed, whole)


def batched_powerSGD_hook(state: PowerSGDState, bucket: dist.GradBucket) -> Future:
    """The same of a whole bucket as one square matrix: quicker, and less exact."""
    buffer = bucket.buffer()
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return default._allreduce_fut(state.process_group, buffer)
    side = math.isqrt(buffer.numel())
    square = buffer[:side * side].view(side, side)
    return _exchange(state, bucket, [square] if side else [], [buffer[side * side:]])
