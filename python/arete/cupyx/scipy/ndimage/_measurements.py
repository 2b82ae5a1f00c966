"""Parts of pictures that lie together, and what is in them."""
from __future__ import annotations

from .... import _C, _operators as _t
from .._arrays import given, like, tensor
from ._filters import _padded

__all__ = ["label"]


def label(input, structure=None, output=None):
    """The connected parts of what is not 0, numbered from 1 in the order of their first elements, and how many there are."""
    t = tensor(input) != 0
    n = t.dim()
    if structure is None:
        offsets = [tuple(v if k == d else 0 for k in range(n)) for d in range(n) for v in (-1, 1)]
    else:
        s = tensor(structure)
        if list(s.shape) != [3] * n:
            raise ValueError("structure dimensions must be equal to 3")
        offsets = [tuple(i - 1 for i in p) for p in s.nonzero().tolist() if any(i != 1 for i in p)]
    size = t.numel()
    none = size  # a number above all
    mine = _t.where(t, _t.arange(size, device=t.device).reshape(t.shape), none)
    while size:
        # The smallest number among neighbours, and then the number that its element has by now: paths halve.
        padded = _padded(mine, [1] * n, [1] * n, "constant", none)
        best = mine
        for o in offsets:
            best = _t._ops.minimum(best, padded[tuple(slice(1 + v, 1 + v + d) for v, d in zip(o, t.shape))])
        best = _t.where(t, best, none)
        flat = _t.cat([best.reshape(-1), _t.full((1,), none, device=t.device, dtype=best.dtype)])
        best = flat[flat[:-1]].reshape(t.shape)
        if _t.equal(best, mine):
            break
        mine = best
    roots = mine[t].unique() if size else mine.reshape(-1)
    numbers = _t.zeros(size + 1, dtype=_C.int32, device=t.device)
    numbers[roots] = _t.arange(1, roots.numel() + 1, dtype=_C.int32, device=t.device)
    result = numbers[mine] if size else mine.to(_C.int32)
    return given(like(input, result), result, output), roots.numel()
