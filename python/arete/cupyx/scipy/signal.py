"""Convolutions and filters of signals, under the names of scipy.signal."""
from __future__ import annotations

import math

from ... import _C, _operators as _t, fft as _fft
from ..._kernels._python import INTRINSICS, PythonKernel
from .ndimage import _filters as _n
from ._arrays import each, floating, like, tensor, together

__all__ = ["choose_conv_method", "convolve", "convolve2d", "correlate", "correlate2d", "detrend", "fftconvolve", "firwin", "hilbert",
           "lfilter", "medfilt", "medfilt2d", "resample", "sosfilt", "wiener"]

_grid = INTRINSICS["grid"]


def _pair(a, b):
    x, y = tensor(a), tensor(b)
    dtype = _C.promote_types(x.dtype, y.dtype)
    if x.dim() != y.dim():
        raise ValueError("in1 and in2 should have the same dimensionality")
    return x.to(dtype), y.to(dtype)


def _cut(full, x, y, mode, axes=None):
    """The part of the whole that a mode asks for, along some axes."""
    if mode == "full":
        return full
    if mode == "same":
        sizes = list(x.shape)
    elif mode == "valid":
        pairs = [(x.shape[d], y.shape[d]) for d in (range(x.dim()) if axes is None else axes)]
        if not all(p >= q for p, q in pairs) and not all(p <= q for p, q in pairs):
            raise ValueError("For 'valid' mode, one must be at least as large as the other in every dimension")
        sizes = [abs(p - q) + 1 for p, q in zip(x.shape, y.shape)]
    else:
        raise ValueError("acceptable mode flags are 'valid', 'same', or 'full'")
    for d in range(full.dim()) if axes is None else axes:
        s = sizes[d]
        full = full.narrow(d, (full.shape[d] - s) // 2, s)
    return full


def choose_conv_method(in1, in2, mode="full", measure=False):
    """"direct" or "fft": what takes less arithmetic for the whole convolution; integers are summed directly, which is exact."""
    if measure:
        raise NotImplementedError("choose_conv_method(): the ways are compared by their arithmetic, not measured")
    x, y = _pair(in1, in2)
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        return "direct"
    size = math.prod(p + q - 1 for p, q in zip(x.shape, y.shape))
    return "direct" if min(x.numel(), y.numel()) < 40 * math.log2(max(size, 2)) else "fft"


def _direct(x, y):
    """The whole convolution, by sums."""
    n = x.dim()
    if n == 0:
        return x * y
    if x.dtype.is_complex:
        (a, b), (c, d) = (x.real, x.imag), (y.real, y.imag)
        return _t._ops.complex(_direct(a, c) - _direct(b, d), _direct(a, d) + _direct(b, c))
    if x.numel() < y.numel():
        x, y = y, x
    whole = not x.dtype.is_floating_point
    widths = [s - 1 for s in y.shape]
    t = _n._padded(x, widths, widths, "constant", 0)
    w = y.flip(list(range(n)))
    if n <= 3 and not whole:
        return (_t._ops.conv1d, _t._ops.conv2d, _t._ops.conv3d)[n - 1](t[None, None], w[None, None])[0, 0]
    for d, s in enumerate(w.shape):
        t = t.unfold(d, s, 1)
    return (t * w).sum(list(range(n, 2 * n))).to(x.dtype)


def _by_fft(x, y, axes=None):
    axes = list(range(x.dim())) if axes is None else axes
    sizes = [x.shape[a] + y.shape[a] - 1 for a in axes]
    if x.dtype.is_complex:
        return _fft.ifftn(_fft.fftn(x, sizes, axes) * _fft.fftn(y, sizes, axes), sizes, axes)
    x, y = floating(x), floating(y)
    return _fft.irfftn(_fft.rfftn(x, sizes, axes) * _fft.rfftn(y, sizes, axes), sizes, axes)


def fftconvolve(in1, in2, mode="full", axes=None):
    """The convolution by way of the Fourier transform, along all axes or some; the others broadcast."""
    x, y = _pair(in1, in2)
    axes = range(x.dim()) if axes is None else axes if hasattr(axes, "__len__") else [axes]
    if any(not -x.dim() <= a < x.dim() for a in axes):
        raise ValueError("axes exceeds dimensionality of input")
    axes = [a % x.dim() for a in axes]
    if not axes or len({*axes}) != len(axes):
        raise ValueError("axes must name dimensions, each once")
    if any(p != q and 1 not in (p, q) for d, (p, q) in enumerate(zip(x.shape, y.shape)) if d not in axes):
        raise ValueError(f"incompatible shapes for in1 and in2: {tuple(x.shape)} and {tuple(y.shape)}")
    return like(in1, _cut(_by_fft(x, y, axes), x, y, mode, axes).contiguous())


def convolve(in1, in2, mode="full", method="auto"):
    """The convolution of arrays of any number of dimensions."""
    x, y = _pair(in1, in2)
    method = choose_conv_method(x, y) if method == "auto" else method
    if method not in ("direct", "fft"):
        raise ValueError("Acceptable method flags are 'auto', 'direct', or 'fft'.")
    full = _direct(x, y) if method == "direct" else _by_fft(x, y)
    if method == "fft" and not (x.dtype.is_floating_point or x.dtype.is_complex):
        full = full.round().to(x.dtype)
    return like(in1, _cut(full, x, y, mode).contiguous())


def correlate(in1, in2, mode="full", method="auto"):
    """The same with the second turned around and conjugated."""
    x, y = _pair(in1, in2)
    return like(in1, tensor(convolve(x, y.flip(list(range(y.dim()))).conj(), mode, method)))


def convolve2d(in1, in2, mode="full", boundary="fill", fillvalue=0):
    """The convolution of two matrices; `boundary`: "fill", "wrap" or "symm"."""
    kinds = {"fill": "constant", "wrap": "wrap", "circular": "wrap", "symm": "reflect", "symmetric": "reflect"}
    if boundary not in kinds:
        raise ValueError("Acceptable boundary flags are 'fill', 'circular' (or 'wrap'), and 'symmetric' (or 'symm').")
    x, y = _pair(in1, in2)
    if x.dim() != 2:
        raise ValueError("convolve2d inputs must both be 2-D arrays")
    if mode == "valid" or boundary == "fill" and not fillvalue:
        return like(in1, _cut(_direct(x, y), x, y, mode).contiguous())
    widths = [s - 1 for s in y.shape]
    t = _n._padded(x, widths, widths, kinds[boundary], fillvalue)
    full = _direct(t, y)
    for d, s in enumerate(widths):
        full = full.narrow(d, s, x.shape[d] + s)
    return like(in1, _cut(full, x, y, mode).contiguous())


def correlate2d(in1, in2, mode="full", boundary="fill", fillvalue=0):
    """The same with the second turned around and conjugated."""
    return convolve2d(in1, like(in1, tensor(in2).flip([0, 1]).conj()), mode, boundary, fillvalue)


def _recursion(b, a, x, state, y):
    # A thread a row: y[n] = b[0] x[n] + s[0], s[k] = b[k+1] x[n] - a[k+1] y[n] + s[k+1].
    row = _grid(1)
    order = len(b) - 1
    if row < x.shape[0]:
        for n in range(x.shape[1]):
            v = x[row, n]
            r = b[0] * v
            if order > 0:
                r += state[row, 0]
            for k in range(order):
                s = b[k + 1] * v - a[k + 1] * r
                if k + 1 < order:
                    s += state[row, k + 1]
                state[row, k] = s
            y[row, n] = r


_recursion_kernel = PythonKernel(_recursion)


def lfilter(b, a, x, axis=-1, zi=None):
    """The filter with the polynomials b / a along an axis; with the state `zi` also the state after it."""
    t = floating(tensor(x))
    if any(tensor(v).dtype.is_complex for v in (b, a, t, *([] if zi is None else [zi]))):
        raise NotImplementedError("lfilter(): signals, coefficients and states are real")
    for v in (b, a):
        if hasattr(v, "dtype"):  # a list has the signal's dtype
            t, _ = together(t, tensor(v))
    top, low = (tensor(v, t.dtype).reshape(-1).to(t.device) for v in (b, a))
    if low.numel() == 0 or low[0].item() == 0:
        raise ValueError("The first filter coefficient must not be 0")
    count = max(top.numel(), low.numel())
    top, low = (_t.cat([v / low[0], _t.zeros(count - v.numel(), dtype=t.dtype, device=t.device)]) for v in (top, low))
    moved = t.movedim(axis, -1)
    rows = moved.reshape(-1, moved.shape[-1]).contiguous()
    state = _t.zeros(rows.shape[0], max(count - 1, 1), dtype=t.dtype, device=t.device)
    if zi is not None:
        state.copy_(_t.broadcast_to(tensor(zi, t.dtype).movedim(axis, -1), (*moved.shape[:-1], count - 1)).reshape(-1, count - 1))
    y = _t.empty(rows.shape, dtype=t.dtype, device=t.device)
    if rows.numel():
        _recursion_kernel.forall(rows.shape[0], 64)(top, low, rows, state, y)
    result = like(x, y.reshape(moved.shape).movedim(-1, axis))
    if zi is None:
        return result
    return result, like(x, state.reshape(*moved.shape[:-1], -1).movedim(-1, axis))


def sosfilt(sos, x, axis=-1):
    """Sections of second order, one after the other."""
    for section in tensor(sos):
        x = lfilter(section[:3], section[3:], x, axis)
    return x


def firwin(numtaps, cutoff, *, window="hamming", pass_zero=True, scale=True, fs=2.0):
    """The coefficients of a filter of finite response, by a window ("hamming", "hann", "blackman" or "boxcar")."""
    shapes = {"hamming": (0.54, 0.46, 0.0), "hann": (0.5, 0.5, 0.0), "blackman": (0.42, 0.5, 0.08), "boxcar": (1.0, 0.0, 0.0)}
    if window not in shapes:
        raise ValueError(f"firwin(): windows are {', '.join(shapes)}, not {window!r}")
    edges = [2 * c / fs for c in (cutoff if hasattr(cutoff, "__len__") else [cutoff])]
    if not edges or any(not 0 < c < 1 for c in edges) or sorted(set(edges)) != edges:
        raise ValueError("Invalid cutoff frequency: frequencies must be greater than 0 and less than fs/2, in increasing order.")
    first = pass_zero if isinstance(pass_zero, bool) else pass_zero in ("lowpass", "bandstop")
    last = first != (len(edges) % 2 == 1)
    if last and numtaps % 2 == 0:
        raise ValueError("A filter with an even number of coefficients must have zero response at the Nyquist frequency.")
    edges = [0.0] * first + edges + [1.0] * last
    m = _t.arange(numtaps, dtype=_C.float64) - 0.5 * (numtaps - 1)
    h = sum(r * _t._ops.sinc(r * m) - l * _t._ops.sinc(l * m) for l, r in zip(edges[::2], edges[1::2]))  # noqa: E741
    c0, c1, c2 = shapes[window]
    k = _t.arange(numtaps, dtype=_C.float64) * (2 * math.pi / max(numtaps - 1, 1))
    h = h * (c0 - c1 * k.cos() + c2 * (2 * k).cos())
    if scale:
        left, right = edges[:2]
        at = 0.0 if left == 0 else 1.0 if right == 1 else 0.5 * (left + right)
        h = h / (h * (math.pi * m * at).cos()).sum()
    return like(None, h)


def medfilt(volume, kernel_size=3):
    """The median of each element's neighbours, with zeros beyond the border."""
    t = tensor(volume)
    sizes = each(kernel_size, t.dim(), "kernel_size")
    if any(s % 2 == 0 for s in sizes):
        raise ValueError("Each element of kernel_size should be odd.")
    return _n.median_filter(volume, sizes, mode="constant")


def medfilt2d(input, kernel_size=3):
    if tensor(input).dim() != 2:
        raise ValueError("input must be 2d")
    return medfilt(input, kernel_size)


def wiener(im, mysize=3, noise=None):
    """Wiener's filter: means, where a neighbourhood varies no more than the noise (the mean variance, if it is not given)."""
    t = floating(tensor(im))
    sizes = each(mysize, t.dim(), "mysize")
    count = math.prod(sizes)
    ones = _t.ones(sizes, dtype=t.dtype, device=t.device)
    mean = tensor(correlate(t, ones, "same")) / count
    variance = tensor(correlate(t * t, ones, "same")) / count - mean * mean
    noise = variance.mean() if noise is None else _t.tensor(float(noise), dtype=t.dtype, device=t.device)
    result = mean + (t - mean) * (1 - noise / variance)
    return like(im, _t.where(variance < noise, mean, result))


def hilbert(x, N=None, axis=-1):
    """The analytic signal."""
    t = floating(tensor(x))
    if t.dtype.is_complex:
        raise ValueError("x must be real.")
    n = t.shape[axis] if N is None else N
    h = _t.zeros(n, dtype=t.dtype, device=t.device)
    h[0] = 1
    if n % 2 == 0:
        h[n // 2] = 1
    h[1:(n + 1) // 2] = 2
    shape = [1] * t.dim()
    shape[axis] = n
    return like(x, _fft.ifft(_fft.fft(t, n, axis) * h.reshape(shape), n, axis))


def detrend(data, axis=-1, type="linear"):
    """Without its mean ("constant"), or without the line through it ("linear")."""
    t = floating(tensor(data))
    mean = t.mean(axis, keepdim=True)
    if type in ("constant", "c"):
        return like(data, t - mean)
    if type not in ("linear", "l"):
        raise ValueError("Trend type must be 'linear' or 'constant'.")
    shape = [1] * t.dim()
    shape[axis] = -1
    k = _t.arange(t.shape[axis], dtype=t.dtype, device=t.device)
    k = (k - k.mean()).reshape(shape)
    slope = (k * t).sum(axis, keepdim=True) / (k * k).sum()
    return like(data, t - mean - slope * k)


def resample(x, num, axis=0):
    """`num` samples for those that are there, by way of the Fourier transform."""
    t = floating(tensor(x))
    n = t.shape[axis]
    spectrum = _fft.rfft(t, n, axis)
    keep = min(num, n)
    part = spectrum.narrow(axis, 0, keep // 2 + 1).clone()
    if keep % 2 == 0 and num != n:  # the highest frequency of both signs
        last = part.narrow(axis, keep // 2, 1)
        last.mul_(2.0 if num < n else 0.5)
    return like(x, _fft.irfft(part, num, axis) * (num / n))
