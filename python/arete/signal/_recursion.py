"""Linear recursions in time, in blocks."""
from __future__ import annotations

from .._C import Tensor
from .._operators import _ops

_BLOCK = 128  # outputs that one triangular system gives; a system of more costs more than the calls that it saves


def recursion(x: Tensor, coefficients: Tensor, before: Tensor) -> Tensor:
    """y[t] = x[t] - a[1] y[t - 1] - ... - a[n] y[t - n] for x (batch, channel, time): a[n], ..., a[1], 1 are the channel's row of
    `coefficients` (channel, n + 1), and `before` (batch, channel, n) has the outputs before time 0. Each block of outputs solves a
    system whose matrix has the coefficients on its diagonals: substitution is the recursion itself, as exact as it, of outputs that grow
    too, as powers of coefficients are not multiplied. After a NaN all outputs are NaN, by coefficients of 0 too."""
    order, time = coefficients.shape[1] - 1, x.shape[2]
    if not order or not time:
        return x
    size = min(_BLOCK, time)
    # Row i has the coefficients in columns i ... i + n: those of outputs before the block, and those of the block.
    rows = _ops.zeros(x.shape[1], size, size + order, dtype=x.dtype, device=x.device)
    for lag in range(order + 1):
        rows.diagonal(lag, 1, 2).copy_(coefficients[:, lag:lag + 1].expand(-1, size))
    x, past, blocks = x.permute(1, 2, 0), before.permute(1, 2, 0), []  # (channel, time, batch)
    for start in range(0, time, size):
        count = min(size, time - start)
        right = x[:, start:start + count] - rows[:, :count, :order] @ past
        block = _ops.linalg_solve_triangular(rows[:, :count, order:order + count], right, upper=False)
        past = block[:, count - order:] if count >= order else _ops.cat([past[:, count:], block], 1)
        blocks.append(block)
    return _ops.cat(blocks, 1).permute(2, 0, 1)
