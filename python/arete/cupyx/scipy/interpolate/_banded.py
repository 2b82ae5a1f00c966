"""Systems of equations whose rows have few unknowns side by side."""
from __future__ import annotations

from .... import _operators as _t, linalg as _l

_BLOCK, _DENSE = 64, 256


def solve(first, band, right):
    """x of A @ x = right (n, ...), where row i of A has `band[i]` (n, w) from column `first[i]` on, all within _BLOCK of the diagonal. Many
    unknowns are eliminated block after block, where a block's own rows are exchanged and others are not: for matrices of splines, whose
    minors are not negative, for positive definite ones, and for those whose diagonal outweighs the rest."""
    n, w = band.shape
    flat = right.reshape(n, -1)
    dtype = flat.dtype if flat.dtype.is_complex else band.dtype
    band, flat = band.to(dtype), flat.to(dtype)
    if n <= _DENSE:
        whole = band.new_zeros(n, n + w)
        whole.scatter_(1, first[:, None] + _t.arange(w, device=first.device), band)  # columns behind the last have zeros
        return _l.solve(whole[:, :n], flat).reshape(right.shape)
    blocks = -(-n // _BLOCK)
    # Each block of rows has three blocks of columns: that before its own, its own, and the next.
    rows = band.new_zeros(blocks * _BLOCK, 3 * _BLOCK + w)
    start = _t.arange(n, device=first.device) // _BLOCK * _BLOCK - _BLOCK
    rows[:n].scatter_(1, (first - start)[:, None] + _t.arange(w, device=first.device), band)
    rows = rows[:, :3 * _BLOCK].reshape(blocks, _BLOCK, 3, _BLOCK)
    padding = blocks * _BLOCK - n
    if padding:
        rows[-1, -padding:, 1, -padding:] = _t.eye(padding, dtype=dtype, device=band.device)
    values = flat.new_zeros(blocks * _BLOCK, flat.shape[1])
    values[:n] = flat
    values = values.reshape(blocks, _BLOCK, -1)
    solved, above = [], None
    for k in range(blocks):
        own, value = rows[k, :, 1], values[k]
        if above is not None:
            own, value = own - rows[k, :, 0] @ above[:, :_BLOCK], value - rows[k, :, 0] @ above[:, _BLOCK:]
        # Of the next block's columns and of the values at once.
        above = _l.solve(own, _t.cat([rows[k, :, 2], value], 1))
        solved.append(above)
    x = solved[-1][:, _BLOCK:]
    parts = [x]
    for s in reversed(solved[:-1]):
        x = s[:, _BLOCK:] - s[:, :_BLOCK] @ x
        parts.append(x)
    return _t.cat(parts[::-1])[:n].reshape(right.shape)
