"""Resampling of pictures by splines."""
from __future__ import annotations

import functools
import math

from .... import _C, _operators as _t, fft as _fft, kernels
from ...._kernels import ElementwiseKernel
from ....numpy._types import LIMITS
from .._arrays import dtype_given, each, floating, given, tensor
from ._filters import BEYOND, KERNEL_MODES, _beyond, _mode, _padded, cut

__all__ = ["affine_transform", "map_coordinates", "rotate", "shift", "spline_filter", "spline_filter1d", "zoom"]

_BLOCK = 1 << 17  # elements of a result that the CPU makes one after the other
_EDGE = 12  # elements that stand for a border that goes on without end


def _weights(part, order):
    """The B-splines of an order at a place, `part` behind the first knot before it: de Boor's recursion for knots a step apart."""
    w = [part * 0 + 1]
    for k in range(1, order + 1):
        saved, left = 0, []
        for r in range(k):
            v = w[r] / k
            left.append(saved + (r + 1 - part) * v)
            saved = (part + k - r - 1) * v
        w = [*left, saved]
    return w


@functools.cache
def _inverse(order):
    """What undoes sampling a spline: its response from one side to the other, up to what is nothing beside the middle."""
    at = _weights(_t.tensor(0.0 if order % 2 else 0.5, dtype=_C.float64), order)[:order + 1 - order % 2]
    ring = _t.zeros(256, dtype=_C.float64)
    for k, v in enumerate(at):
        ring[k - len(at) // 2] = v
    response = _fft.irfft(1 / _fft.rfft(ring), 256)
    reach = next(k for k in range(1, 128) if float(response[k:128].abs().max()) < 5e-16)
    return [*response[1:reach].flip(0).tolist(), *response[:reach].tolist()]


@functools.cache
def _band(order, block):
    """The matrix that takes a block of elements, with those around it that count, to their coefficients."""
    weights = _inverse(order)
    band = _t.zeros(block + len(weights) - 1, block, dtype=_C.float64)
    for k, w in enumerate(weights):
        band.diagonal(-k).fill_(w)
    return band


def _coefficients(t, order, axis, mode):
    """Of the spline along an axis, by products of blocks with a band: as many multiplications as a matrix has, and as fast."""
    if not t.numel():
        return t
    reach, n, block = len(_inverse(order)) // 2, t.shape[axis], 64
    more = [0] * t.dim()
    more[-1] = reach
    t = t.movedim(axis, -1)
    t = _padded(t, more, [*more[:-1], reach - n % -block], mode, 0.0)
    band = _band(order, block).to(t.device, t.dtype)
    r = t.unfold(-1, band.shape[0], block).reshape(-1, band.shape[0]) @ band
    return r.reshape(*t.shape[:-1], -1).narrow(-1, 0, n).movedim(-1, axis)


def _order(order, least=0):
    if order not in range(least, 6):
        raise RuntimeError("spline order not supported")
    return order


def _spline_mode(mode):
    """The border of the coefficients."""
    return {"reflect": "reflect", "nearest": "reflect", "wrap": "wrap"}.get(_mode(mode), "mirror")


def spline_filter1d(input, order=3, axis=-1, output="float64", mode="mirror"):
    """The coefficients of the spline through the elements, along an axis."""
    t = floating(tensor(input))
    t = t.to(_C.complex128 if t.dtype.is_complex else _C.float64)
    return given(input, t if _order(order) < 2 else _coefficients(t, order, axis % t.dim(), _spline_mode(mode)), output)


def spline_filter(input, order=3, output="float64", mode="mirror"):
    """The coefficients of the spline through the elements, along all axes."""
    t = floating(tensor(input))
    _order(order, 2)
    for axis in range(t.dim()):
        t = tensor(spline_filter1d(t, order, axis, None if t.dtype.is_complex else "float64", mode))
    return given(input, t, None if t.dtype.is_complex and output == "float64" else output)


@functools.cache
def _kernel_at(dims, order, mode, edge, by_matrix):
    """The kernel of a sampler: an element of the result finds its place along each dimension, what is around it and how much of each."""
    lines, inner, product = ["bool away = false;"], [], []
    for d in range(dims):
        n = f"n{d}"
        place, row = f"places[{d} * n + i]", d * (dims + 1)
        if by_matrix:
            place = " + ".join([f"places[{row + dims}]", *(f"places[{row + k}] * _ind.get()[{k}]" for k in range(dims))])
        lines += [f"const ptrdiff_t {n} = x.shape()[{d}]; double c{d} = {place}; T w{d}[{order + 1}]; ptrdiff_t at{d}[{order + 1}];", "{"]
        if mode == "constant":
            lines.append(f"away = away || c{d} < 0 || c{d} > {n} - 1;")
            lines.append(f"if (away) c{d} = 0;")
        elif mode in ("reflect", "mirror"):
            period, last, turned = (f"(2.0 * {n})", f"{n} - 0.5", f"2.0 * {n} - 1 - c{d}") if mode == "reflect" else (
                f"(2.0 * ({n} - 1))", f"{n} - 1", f"2.0 * ({n} - 1) - c{d}")
            lines.append(f"if ({n} > 1 && (c{d} < 0 || c{d} > {n} - 1)) {{ c{d} -= {period} * floor(c{d} / {period}); "
                         f"if (c{d} > {last}) c{d} = {turned}; }}")
        elif mode == "nearest":
            lines.append(f"c{d} += {edge}; c{d} = c{d} < 0 ? 0 : c{d} > {n} - 1 ? {n} - 1 : c{d};")
        middle = f"c{d}" if order % 2 else f"c{d} + 0.5"
        lines.append(f"const double first = floor({middle}), part = {middle} - first;")
        weights = ["1.0"]
        for k in range(1, order + 1):  # as in _weights
            for r in range(k):
                lines.append(f"const double s{k}_{r} = {weights[r]} / {k};")
            weights = [f"v{k}_{r}" for r in range(k + 1)]
            for r in range(k + 1):
                terms = [f"(part + {k - r}) * s{k}_{r - 1}"] * (r > 0) + [f"({r + 1} - part) * s{k}_{r}"] * (r < k)
                lines.append(f"const double v{k}_{r} = {' + '.join(terms)};")
        for k, w in enumerate(weights):
            lines.append(f"w{d}[{k}] = {w}; at{d}[{k}] = beyond((ptrdiff_t)first + {k - order // 2}, n{d});")
        lines.append("}")
        inner.append(f"for (int k{d} = 0; k{d} < {order + 1}; ++k{d})")
        product.append(f"w{d}[k{d}]")
    flat = "at0[k0]"
    for d in range(1, dims):
        flat = f"({flat}) * n{d} + at{d}[k{d}]"
    value = f"x[{flat}]" + (" * " + " * ".join(product) if order else "")
    lines += ["T sum = 0;", *inner, f"sum += {value};", "y = away ? (T)cval : sum;"]
    border = KERNEL_MODES.index("mirror" if mode == "constant" else mode)
    return ElementwiseKernel("raw T x, raw float64 places, float64 cval", "T y", "\n".join(lines), "resampled", preamble=BEYOND,
                             options=[f"-DMODE={border}", "-DPLACE=ptrdiff_t"], reduce_dims=not by_matrix)


@functools.cache
def _taps(order, border):
    """The elements around a place, which is at most an element beyond a border, and how much of each."""
    def taps(c, n):
        middle = c if order % 2 else c + 0.5
        first, places = kernels.floor(middle), []
        for k in range(order + 1):
            i = first.cast(_C.int64) + (k - order // 2)
            if border == "nearest":
                places.append(kernels.minimum(kernels.maximum(i, 0), n - 1))
            else:
                turn = int(border == "reflect")
                i = kernels.maximum(i, -i - turn)
                places.append(kernels.minimum(i, 2 * (n - 1) + turn - i))
        return *places, *_weights(middle - first, order)

    return taps


class _Sampler:
    """Values between the elements of an array, by the splines of an order."""

    def __init__(self, input, order, mode, cval, prefilter):
        if mode in ("wrap", "grid-constant"):
            other = "'grid-wrap', with pictures side by side," if mode == "wrap" else "'constant', with cval from the border on,"
            raise NotImplementedError(f"resampling has no mode {mode!r}; {other} is there")
        t = floating(tensor(input))
        self.sizes, self.order, self.mode, self.cval, self.edge = list(t.shape), _order(order), _mode(mode), cval, 0
        if order > 1:
            t = t.to(_C.complex128 if t.dtype.is_complex else _C.float64)
            if self.mode == "nearest" and prefilter and t.numel():
                self.edge = _EDGE
                t = _padded(t, [_EDGE] * t.dim(), [_EDGE] * t.dim(), "nearest", 0)
            t = tensor(spline_filter(t, order, None, mode)) if prefilter else t
        self.tensor = t

    def places(self):
        """The dtype of places: float32 or float64."""
        return _C.float32 if self.tensor.dtype in (_C.float32, _C.float16, _C.bfloat16, _C.complex64) else _C.float64

    def around(self, c, d):
        """The elements around places along a dimension, and how much of each. Only weights have the dtype of the elements: places do not
        fit into few bits."""
        n, border = self.sizes[d], self.mode if self.mode != "constant" else "mirror"
        if self.mode == "reflect":
            c = c.remainder(2.0 * n)  # from the border of the first element
            c = _t.where(c > n - 0.5, 2.0 * n - 1 - c, c)
        elif self.mode == "mirror" and n > 1:
            c = c.remainder(2.0 * (n - 1))
            c = _t.where(c > n - 1, 2.0 * (n - 1) - c, c)
        c = c + self.edge
        n += 2 * self.edge
        if self.mode == "nearest":
            c = c.clamp(0, n - 1)
        elif self.mode == "constant":
            c = c.clamp(-1, n)  # further away it is not read
        if border == "wrap" or n <= 2 * self.order + 2:
            first = (c if self.order % 2 else c + 0.5).floor()
            at, part = first.to(_C.int64) - self.order // 2, c - first if self.order % 2 else c + 0.5 - first
            places, weights = [_beyond(at + k, n, border) for k in range(self.order + 1)], _weights(part, self.order)
        else:
            found = kernels.apply_program(_taps(self.order, border), c, n)
            places, weights = found[:self.order + 1], found[self.order + 1:]
        return [(i, w.to(self.tensor.dtype)) for i, w in zip(places, weights)]

    def outside(self, c, d):
        return (c < 0) | (c > self.sizes[d] - 1) if self.mode == "constant" else None

    def at(self, places, shape, *, by_matrix=False):
        """At the places of each element of a result: row d of `places` has those along dimension d, or with `by_matrix` the factors of
        the element's own indices and a number beside them."""
        t = self.tensor.contiguous()
        if not t.numel():
            return _t.full(shape, self.cval, dtype=t.dtype, device=t.device)
        if t.dtype.is_complex:
            parts = []
            for self.tensor in (t.real, t.imag):
                parts.append(self.at(places, shape, by_matrix=by_matrix))
            return _t._ops.complex(*parts)
        self.tensor = t.to(_C.float32) if t.dtype in (_C.float16, _C.bfloat16) else t
        places = places.to(t.device, _C.float64)
        if t.device.type == "cpu":  # which interprets kernels, and has operators for each of their steps
            return self._summed(self._split(places, shape, by_matrix), shape, by_matrix)
        return self._by_kernel(places, shape, by_matrix)

    def _by_kernel(self, places, shape, by_matrix):
        y = _t.empty(shape, dtype=self.tensor.dtype, device=self.tensor.device)
        kernel = _kernel_at(len(self.sizes), self.order, self.mode, self.edge, by_matrix)
        kernel(self.tensor, places.contiguous(), float(self.cval), y)
        return y

    def _split(self, places, shape, by_matrix):
        """The places of `at` along each dimension, which broadcast to the shape."""
        if not by_matrix:
            return list(places)
        n, rows = len(shape), places.tolist()
        steps = [_t.arange(s, dtype=_C.float64).reshape([-1 if k == d else 1 for k in range(n)]) for d, s in enumerate(shape)]
        return [sum((f * step for f, step in zip(row, steps) if f), _t.full([1] * n, row[n], dtype=_C.float64)) for row in rows]

    def _summed(self, places, shape, known):
        """The values at places that broadcast to the shape: a step after the other, of as many elements as the caches hold. Where the
        places are `known`, and depend on no array, those outside are left out."""
        if not shape:
            return self._summed([c[None] for c in places], [1], known)[0]
        parts = cut(shape, 1, _BLOCK)
        if parts is not None:
            d, starts, step = parts
            several = [(at, min(step, shape[d] - at)) for at in starts]
            return _t.cat([self._summed([c if c.shape[d] == 1 else c.narrow(d, at, n) for c in places], [*shape[:d], n, *shape[d + 1:]],
                                        known) for at, n in several], d)
        outside = None
        if self.mode == "constant":
            outside = _t.broadcast_to(functools.reduce(lambda a, b: a | b, [self.outside(c, d) for d, c in enumerate(places)]), shape)
        if known and outside is not None:
            here = (~outside).reshape(-1).nonzero()[:, 0]
            if here.numel() < outside.numel() * 3 // 4:
                y = _t.full([outside.numel()], self.cval, dtype=self.tensor.dtype)
                if here.numel():
                    y[here] = self._weighted([_t.broadcast_to(c, shape).reshape(-1)[here] for c in places], [here.numel()])
                return y.reshape(shape)
        y = self._weighted(places, shape)
        return y if outside is None else _t.where(outside, self.cval, y)

    def _weighted(self, places, shape):
        flat, strides = self.tensor.contiguous().reshape(-1), self.tensor.contiguous().stride()
        around = [[(i * strides[d], w) for i, w in self.around(c, d)] for d, c in enumerate(places)]

        def total(d, before):
            y = None
            for i, w in around[d]:
                at = i if before is None else before + i
                v = total(d + 1, at) if d + 1 < len(around) else flat.index_select(0, _t.broadcast_to(at, shape).reshape(-1)).reshape(shape)
                y = v if not self.order else v * w if y is None else _t._ops.addcmul(y, v, w)
            return y

        return total(0, None)

    def along(self, places):
        """At all combinations of places along each dimension: one after the other. `at` could take them too, but reads (order + 1)**n
        elements for each, where these are n sums of order + 1."""
        t, away = self.tensor, None
        if not t.numel():
            return _t.full([c.numel() for c in places], self.cval, dtype=t.dtype, device=t.device)
        for d, c in enumerate(places):
            shape = [-1 if k == d else 1 for k in range(t.dim())]
            parts = [t.index_select(d, i) * w.reshape(shape) if self.order else t.index_select(d, i) for i, w in self.around(c, d)]
            t = functools.reduce(lambda a, b: a + b, parts)
            here = self.outside(c, d)
            if here is not None:
                away = here.reshape(shape) if away is None else away | here.reshape(shape)
        return t if away is None else _t.where(away, self.cval, t)


def _given(input, t, output):
    """The result: whole numbers are the nearest ones that there are."""
    dtype = dtype_given(input, output)
    if not (dtype.is_floating_point or dtype.is_complex or dtype is _C.bool):
        t = (t + t.sign() * 0.5).trunc().clamp(*LIMITS[dtype])
    return given(input, t, output)


def map_coordinates(input, coordinates, output=None, order=3, mode="constant", cval=0.0, prefilter=True):
    """Values of the array at places between its elements: coordinates[d] are the places along dimension d."""
    sampler, c = _Sampler(input, order, mode, cval, prefilter), tensor(coordinates)
    if not c.dim() or c.shape[0] != len(sampler.sizes):
        raise RuntimeError("invalid shape for coordinate array")
    return _given(input, sampler.at(c, list(c.shape[1:])), output)


def affine_transform(input, matrix, offset=0.0, output_shape=None, output=None, order=3, mode="constant", cval=0.0, prefilter=True):
    """The element at `o` of the result is the input's at matrix @ o + offset; a vector is a diagonal."""
    sampler = _Sampler(input, order, mode, cval, prefilter)
    n, m = len(sampler.sizes), tensor(matrix).to(_C.float64).tolist()
    shape = sampler.sizes if output_shape is None else list(output_shape)
    device, dtype = sampler.tensor.device, sampler.places()
    if not isinstance(m[0], list):
        places = [_t.arange(s, device=device, dtype=dtype) * f + o for s, f, o in zip(shape, m, each(offset, n, "offset"))]
        return _given(input, sampler.along(places), output)
    if len(m[0]) == n + 1:
        m, offset = [r[:n] for r in m[:n]], [r[n] for r in m[:n]]
    rows = [[*r, float(o)] for r, o in zip(m, each(offset, n, "offset"))]
    return _given(input, sampler.at(_t.tensor(rows, dtype=_C.float64), shape, by_matrix=True), output)


def shift(input, shift, output=None, order=3, mode="constant", cval=0.0, prefilter=True):
    """Moved by so many elements along each dimension."""
    n = tensor(input).dim()
    offset = [-float(s) for s in each(shift, n, "shift")]
    return affine_transform(input, [1.0] * n, offset, None, output, order, mode, cval, prefilter)


def zoom(input, zoom, output=None, order=3, mode="constant", cval=0.0, prefilter=True, *, grid_mode=False):
    """Stretched, so that the first and the last elements stay where they are; with `grid_mode` the outer edges of both."""
    sampler, places = _Sampler(input, order, mode, cval, prefilter), []
    for n, z in zip(sampler.sizes, each(zoom, len(sampler.sizes), "zoom")):
        size = int(round(n * z))
        c = _t.arange(size, dtype=_C.float64, device=sampler.tensor.device)
        # By way of whole steps the last place may come to lie beyond the border by a rounding.
        c = (c + 0.5) * (n / max(size, 1)) - 0.5 if grid_mode else (c * ((n - 1) / (size - 1) if size > 1 else 1.0)).clamp(max=n - 1)
        places.append(c.to(sampler.places()))
    return _given(input, sampler.along(places), output)


def rotate(input, angle, axes=(1, 0), reshape=True, output=None, order=3, mode="constant", cval=0.0, prefilter=True):
    """Turned by `angle` degrees in the plane of two axes; with `reshape` all of it is in the result."""
    t = tensor(input)
    a, b = sorted(k % t.dim() for k in axes)
    quarters = angle / 90
    if quarters == int(quarters):  # cosines of them are not 0 in radians, and rows at the border would be beyond it
        c, s = ((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0))[int(quarters) % 4]
    else:
        c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    shape = list(t.shape)
    h, w = shape[a], shape[b]
    if reshape:
        shape[a], shape[b] = (int(v + 0.5) for v in (abs(h * c) + abs(w * s), abs(h * s) + abs(w * c)))
    m = [[float(k == d) for k in range(t.dim())] for d in range(t.dim())]
    m[a][a], m[a][b], m[b][a], m[b][b] = c, s, -s, c
    offset = [0.0] * t.dim()
    ca, cb = (shape[a] - 1) / 2, (shape[b] - 1) / 2
    offset[a], offset[b] = (h - 1) / 2 - (c * ca + s * cb), (w - 1) / 2 - (-s * ca + c * cb)
    return affine_transform(input, _t.tensor(m, dtype=_C.float64), offset, shape, output, order, mode, cval, prefilter)
