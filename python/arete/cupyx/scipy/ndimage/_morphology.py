"""Shapes: what of a picture of truths, or of grey, a structure fits into."""
from __future__ import annotations

import math

from .... import _C, _operators as _t
from ...._kernels._python import INTRINSICS, PythonKernel
from .._arrays import each, given, like, tensor
from ._filters import _padded, grey_closing, grey_dilation, grey_erosion, grey_opening
from ._measurements import components

__all__ = ["binary_closing", "binary_dilation", "binary_erosion", "binary_fill_holes", "binary_hit_or_miss", "binary_opening",
           "binary_propagation", "black_tophat", "distance_transform_edt", "generate_binary_structure", "iterate_structure",
           "morphological_gradient", "morphological_laplace", "white_tophat"]


def generate_binary_structure(rank, connectivity):
    """The neighbours of the middle of 3 x 3 x ... elements that are at most `connectivity` steps along axes away."""
    if rank < 1:
        return like(None, _t.ones((), dtype=_C.bool))
    steps = _t.zeros([3] * rank, dtype=_C.int64)
    for d in range(rank):
        steps = steps + _t.tensor([1, 0, 1]).reshape([-1 if k == d else 1 for k in range(rank)])
    return like(None, steps <= max(connectivity, 1))


def iterate_structure(structure, iterations, origin=None):
    """The structure dilated by itself, `iterations` - 1 times; with `origin` also that of the result."""
    s = tensor(structure) != 0
    if iterations < 2:
        r = s.clone()
    else:
        wide = [(iterations - 1) * (n // 2) for n in s.shape]
        r = tensor(binary_dilation(_padded(s, wide, wide, "constant", False), s, iterations - 1))
    if origin is None:
        return like(structure, r)
    return like(structure, r), [iterations * o for o in each(origin, s.dim(), "origin")]


def _structure(structure, t):
    s = tensor(generate_binary_structure(t.dim(), 1) if structure is None else structure).to(t.device) != 0
    if s.dim() != t.dim():
        raise RuntimeError("structure and input must have same dimensionality")
    if not s.numel():
        raise RuntimeError("structure must not be empty")
    return s


def _eroded(input, structure, iterations, mask, output, border_value, origin, dilates):
    t = tensor(input) != 0
    s, origins = _structure(structure, t), each(origin, t.dim(), "origin")
    if dilates:  # the holes of what is around are eroded by the structure turned around
        s, origins = s.flip(list(range(s.dim()))), [-o - (n % 2 == 0) for o, n in zip(origins, s.shape)]
    before = [n // 2 + o for n, o in zip(s.shape, origins)]
    after = [n - 1 - b for n, b in zip(s.shape, before)]
    if any(b < 0 or a < 0 for b, a in zip(before, after)):
        raise RuntimeError("invalid origin")
    offsets = [tuple(slice(k, k + n) for k, n in zip(at, t.shape)) for at in s.nonzero().tolist()]
    mask = None if mask is None else tensor(mask).to(t.device) != 0
    x, border = ~t if dilates else t, bool(border_value) != dilates

    def result():
        return given(input, ~x if dilates else x, _C.bool if output is None else output)

    whole = iterations < 1 and t.numel() and before == after == [1] * t.dim()
    if whole and bool(s[(1,) * t.dim()] & (s == s.flip(list(range(s.dim())))).all()):
        # What is not there spreads in the mask until nothing changes: to all that is connected with it.
        holes = _padded(~x, before, after, "constant", not border)
        free = _padded(x if mask is None else x & mask, before, after, "constant", False)
        part = components(holes | free, [tuple(i - 1 for i in at) for at in s.nonzero().tolist()])
        reached = _t.zeros(part.numel(), dtype=_C.bool, device=t.device)
        reached[part[holes]] = True
        x = x & ~(free & reached[part.clamp(min=0)])[(slice(1, -1),) * t.dim()]
        return result()
    done = 0
    while done < iterations or iterations < 1:
        wide = _padded(x, before, after, "constant", border)
        r = _t.ones(t.shape, dtype=_C.bool, device=t.device)
        for at in offsets:
            r = r & wide[at]
        r = r if mask is None else _t.where(mask, r, x)
        if _t.equal(r, x):  # and stays so
            break
        x, done = r, done + 1
    return result()


def binary_erosion(input, structure=None, iterations=1, mask=None, output=None, border_value=0, origin=0, brute_force=False):
    """Where the structure around an element lies inside; `iterations` times, or below 1 until nothing changes. Elements outside of `mask`
    stay. `brute_force` changes nothing."""
    return _eroded(input, structure, iterations, mask, output, border_value, origin, False)


def binary_dilation(input, structure=None, iterations=1, mask=None, output=None, border_value=0, origin=0, brute_force=False):
    """What the structure around any element covers; `iterations` times, or below 1 until nothing changes."""
    return _eroded(input, structure, iterations, mask, output, border_value, origin, True)


def binary_opening(input, structure=None, iterations=1, output=None, origin=0, mask=None, border_value=0, brute_force=False):
    """An erosion, and a dilation of it."""
    r = binary_erosion(input, structure, iterations, mask, None, border_value, origin)
    return binary_dilation(r, structure, iterations, mask, output, border_value, origin)


def binary_closing(input, structure=None, iterations=1, output=None, origin=0, mask=None, border_value=0, brute_force=False):
    """A dilation, and an erosion of it."""
    r = binary_dilation(input, structure, iterations, mask, None, border_value, origin)
    return binary_erosion(r, structure, iterations, mask, output, border_value, origin)


def binary_propagation(input, structure=None, mask=None, output=None, border_value=0, origin=0):
    """Dilations inside of a mask until nothing changes."""
    return binary_dilation(input, structure, -1, mask, output, border_value, origin)


def binary_fill_holes(input, structure=None, output=None, origin=0):
    """Without the holes that the outside does not reach."""
    t = tensor(input) != 0
    outside = tensor(binary_dilation(_t.zeros_like(t), structure, -1, ~t, None, 1, origin))
    return given(input, ~outside, _C.bool if output is None else output)


def binary_hit_or_miss(input, structure1=None, structure2=None, output=None, origin1=0, origin2=None):
    """Where the first structure fits into what is there, and the second into what is not."""
    t = tensor(input) != 0
    s = _structure(structure1, t)
    hit = tensor(binary_erosion(t, s, origin=origin1))
    other, origin2 = ~s if structure2 is None else structure2, origin1 if origin2 is None else origin2
    miss = tensor(binary_erosion(~t, other, border_value=1, origin=origin2))
    return given(input, hit & miss, _C.bool if output is None else output)


def _grey(function, input, size, footprint, structure, mode, cval, origin):
    if structure is not None:
        raise NotImplementedError("grey morphology is by flat structures: give size or footprint")
    return tensor(function(input, size, footprint, None, mode, cval, origin))


def morphological_gradient(input, size=None, footprint=None, structure=None, output=None, mode="reflect", cval=0.0, origin=0):
    """The dilation without the erosion."""
    high, low = (_grey(f, input, size, footprint, structure, mode, cval, origin) for f in (grey_dilation, grey_erosion))
    return given(input, high - low, output)


def morphological_laplace(input, size=None, footprint=None, structure=None, output=None, mode="reflect", cval=0.0, origin=0):
    """The dilation and the erosion without two times the picture."""
    high, low = (_grey(f, input, size, footprint, structure, mode, cval, origin) for f in (grey_dilation, grey_erosion))
    return given(input, high + low - 2 * tensor(input), output)


def white_tophat(input, size=None, footprint=None, structure=None, output=None, mode="reflect", cval=0.0, origin=0):
    """The picture without its opening."""
    t, opened = tensor(input), _grey(grey_opening, input, size, footprint, structure, mode, cval, origin)
    return given(input, t ^ opened if t.dtype is _C.bool else t - opened, output)


def black_tophat(input, size=None, footprint=None, structure=None, output=None, mode="reflect", cval=0.0, origin=0):
    """The closing without the picture."""
    t, closed = tensor(input), _grey(grey_closing, input, size, footprint, structure, mode, cval, origin)
    return given(input, t ^ closed if t.dtype is _C.bool else closed - t, output)


_grid = INTRINSICS["grid"]


def _nearest(squares, step, sites, ends, out):
    # A thread a row: the lower envelope of parabolas (Felzenszwalb and Huttenlocher, 2012). `squares` are the distances so far.
    row = _grid(1)
    n = squares.shape[1]
    if row < squares.shape[0]:
        k = -1
        for q in range(n):
            f = squares[row, q]
            if f < 1e300:
                at = f / step + q * q * step
                s = -1e300
                while k >= 0:
                    v = sites[row, k]
                    s = (at - (squares[row, v] / step + v * v * step)) / (2 * step * (q - v))
                    if s > ends[row, k]:
                        break
                    k -= 1
                if k < 0:
                    s = -1e300
                k += 1
                sites[row, k] = q
                ends[row, k] = s
        top = k
        k = 0
        for q in range(n):
            if top < 0:
                out[row, q] = 1e301
            else:
                while k < top and ends[row, k + 1] < q:
                    k += 1
                v = sites[row, k]
                out[row, q] = (q - v) * step * (q - v) * step + squares[row, v]


_nearest_kernel = PythonKernel(_nearest, mode="numpy")


def distance_transform_edt(input, sampling=None, return_distances=True, return_indices=False, distances=None, indices=None):
    """The distance of each element that is not 0 to the nearest that is, in steps of `sampling` along each dimension."""
    if return_indices or indices is not None or not return_distances:
        raise NotImplementedError("distance_transform_edt(): distances are there, and the indices of the nearest elements not")
    t = tensor(input)
    squares = _t.where(t != 0, 1e301, 0.0).to(_C.float64)
    for axis, step in enumerate(each(1.0 if sampling is None else sampling, t.dim(), "sampling")):
        moved = squares.movedim(axis, -1)
        rows = moved.reshape(math.prod(moved.shape[:-1]), moved.shape[-1]).contiguous()
        out = _t.empty_like(rows)
        if rows.numel():
            sites = _t.empty(rows.shape, dtype=_C.int64, device=t.device)
            _nearest_kernel.forall(rows.shape[0], 64)(rows, float(step), sites, _t.empty_like(rows), out)
        squares = out.reshape(moved.shape).movedim(-1, axis)
    r = _t.where(squares < 1e300, squares.sqrt(), math.inf)
    if distances is None:
        return like(input, r)
    return given(input, r, distances)
