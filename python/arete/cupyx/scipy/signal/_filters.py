"""Convolutions and filters of signals."""
from __future__ import annotations

import math

from .... import _C, _operators as _t, fft as _fft, linalg as _l
from ....signal._recursion import recursion
from ..ndimage import _filters as _n
from .._arrays import each, floating, like, tensor, together

__all__ = ["choose_conv_method", "convolve", "convolve2d", "correlate", "correlate2d", "detrend", "fftconvolve", "filtfilt",
           "hilbert", "lfilter", "lfilter_zi", "medfilt", "medfilt2d", "resample", "resample_poly", "savgol_coeffs", "savgol_filter",
           "sosfilt", "sosfilt_zi", "sosfiltfilt", "upfirdn", "wiener"]

def _pair(a, b):
    x, y = tensor(a), tensor(b)
    dtype = _C.promote_types(x.dtype, y.dtype)
    if x.dim() != y.dim():
        raise ValueError("in1 and in2 should have the same dimensionality")
    return x.to(dtype), y.to(dtype)


def _halves(t):
    """The real and the imaginary part."""
    return (t.real, t.imag) if t.dtype.is_complex else (t, _t.zeros_like(t))


def _cut(full, x, y, mode, axes=None, up=0):
    """The part of the whole that a mode asks for, along some axes; of an odd rest half is cut off before, rounded down, or up."""
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
        full = full.narrow(d, (full.shape[d] - s + up) // 2, s)
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
    if x.numel() < y.numel():
        x, y = y, x
    widths, w = [s - 1 for s in y.shape], y.flip(list(range(n)))
    if x.dtype.is_floating_point or x.dtype.is_complex:
        return _n._correlated(_n._padded(x, [0] * n, widths, "constant", 0), w, [s - 1 - s // 2 for s in y.shape], "constant", 0)
    t = _n._padded(x, widths, widths, "constant", 0)
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
    if not x.numel() or not y.numel():
        return like(in1, _t.zeros(0, dtype=_C.float64, device=x.device))
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


def _convolve2d(in1, in2, mode, boundary, fillvalue, up=0):
    kinds = {"fill": "constant", "wrap": "wrap", "circular": "wrap", "symm": "reflect", "symmetric": "reflect"}
    if boundary not in kinds:
        raise ValueError("Acceptable boundary flags are 'fill', 'circular' (or 'wrap'), and 'symmetric' (or 'symm').")
    x, y = _pair(in1, in2)
    if x.dim() != 2:
        raise ValueError("convolve2d inputs must both be 2-D arrays")
    if mode == "valid" or boundary == "fill" and not fillvalue:
        return like(in1, _cut(_direct(x, y), x, y, mode, up=up).contiguous())
    widths = [s - 1 for s in y.shape]
    t = _n._padded(x, widths, widths, kinds[boundary], fillvalue)
    full = _direct(t, y)
    for d, s in enumerate(widths):
        full = full.narrow(d, s, x.shape[d] + s)
    return like(in1, _cut(full, x, y, mode, up=up).contiguous())


def convolve2d(in1, in2, mode="full", boundary="fill", fillvalue=0):
    """The convolution of two matrices; `boundary`: "fill", "wrap" or "symm"."""
    return _convolve2d(in1, in2, mode, boundary, fillvalue)


def correlate2d(in1, in2, mode="full", boundary="fill", fillvalue=0):
    """The same with the second turned around and conjugated."""
    return _convolve2d(in1, tensor(in2).flip([0, 1]).conj(), mode, boundary, fillvalue, 1)


def _response(w, t):
    """Rows filtered by the finite response `w`, with zeros before them."""
    n = w.numel()
    return _n._correlated(t, w.flip([0])[None], [0, n - 1 - n // 2], "constant", 0)


def lfilter(b, a, x, axis=-1, zi=None):
    """The filter with the polynomials b / a along an axis; with the state `zi` also the state after it."""
    t = floating(tensor(x))
    if any(tensor(v).dtype.is_complex for v in (b, a)):
        raise NotImplementedError("lfilter(): coefficients are real")
    if t.dtype.is_complex or zi is not None and tensor(zi).dtype.is_complex:
        states = (None, None) if zi is None else _halves(tensor(zi))
        parts = [lfilter(b, a, v, axis, state) for v, state in zip(_halves(t), states)]
        results = [like(x, _t._ops.complex(*p)) for p in ([parts] if zi is None else zip(*parts))]
        return results[0] if zi is None else tuple(results)
    for v in (b, a):
        if hasattr(v, "dtype"):  # a list has the signal's dtype
            t, _ = together(t, tensor(v))
    dtype = t.dtype
    t = t.to(_C.float32) if dtype in (_C.float16, _C.bfloat16) else t
    top, low = (tensor(v, t.dtype).reshape(-1).to(t.device) for v in (b, a))
    if low.numel() == 0 or low[0].item() == 0:
        raise ValueError("The first filter coefficient must not be 0")
    top, low = top / low[0], low / low[0]
    order = max(top.numel(), low.numel()) - 1
    moved = t.movedim(axis, -1)
    n = moved.shape[-1]
    rows = moved.reshape(math.prod(moved.shape[:-1]), n)
    none = _t.zeros(rows.shape[0], order, dtype=t.dtype, device=t.device)
    # The state is what the filter's numerator, and less than that its denominator, give for zeros after the end: added to the first
    # elements at the beginning, and read behind the last.
    x_part = _response(top, rows if zi is None else _t.cat([rows, none], 1))
    if zi is not None and order:
        states = _t.broadcast_to(tensor(zi, t.dtype).to(t.device).movedim(axis, -1), (*moved.shape[:-1], order))
        x_part = _t.cat([x_part[:, :order] + states.reshape(none.shape), x_part[:, order:]], 1)
    y = recursion(x_part[:, None, :n], low.flip([0])[None], none[:, None, :low.numel() - 1])[:, 0]
    result = like(x, y.to(dtype).reshape(moved.shape).movedim(-1, axis))
    if zi is None:
        return result
    last = _t.cat([none, y, none], 1)[:, n:]
    after = x_part[:, n:] - _response(low, last)[:, order:]
    return result, like(x, after.to(dtype).reshape(*moved.shape[:-1], order).movedim(-1, axis))


def lfilter_zi(b, a):
    """The state of lfilter in which a step has its last value from the first on."""
    top, low = together(*(floating(tensor(v)).reshape(-1) for v in (b, a)))
    top, low = (v.to(_C.complex128 if v.dtype.is_complex else _C.float64) for v in (top, low))
    if low[0].item() == 0:
        raise ValueError("There must be at least one nonzero `a` coefficient.")
    count = max(top.numel(), low.numel())
    top, low = (_t.cat([v / low[0], _t.zeros(count - v.numel(), dtype=v.dtype, device=v.device)]) for v in (top, low))
    if count == 1:
        return like(a, top[1:])
    m = _t.eye(count - 1, dtype=low.dtype, device=low.device)
    m[:-1, 1:] -= _t.eye(count - 2, dtype=low.dtype, device=low.device)
    m[:, 0] += low[1:]
    return like(a, _l.solve(m, (top[1:] - low[1:] * top[0])[:, None])[:, 0])


def _sections(sos):
    t = floating(tensor(sos))
    if t.dim() != 2 or t.shape[1] != 6:
        raise ValueError("sos array must be shape (n_sections, 6)")
    if not _t._ops.all(t[:, 3] == 1):
        raise ValueError("sos[:, 3] should be all ones")
    return t


def sosfilt(sos, x, axis=-1, zi=None):
    """Sections of second order, one after the other; with the states `zi`, of shape (sections, ..., 2, ...), also those after it."""
    after = []
    for k, section in enumerate(_sections(sos)):
        x = lfilter(section[:3], section[3:], x, axis, None if zi is None else zi[k])
        if zi is not None:
            x, state = x
            after.append(tensor(state))
    return x if zi is None else (x, like(zi, _t.stack(after)))


def sosfilt_zi(sos):
    """The states of sosfilt in which a step has its last value from the first on, of shape (sections, 2)."""
    states, scale = [], 1.0
    for section in _sections(sos):
        states.append(tensor(lfilter_zi(section[:3], section[3:])) * scale)
        scale = scale * (section[:3].sum() / section[3:].sum())
    return like(sos, _t.stack(states))


def _extended(t, axis, padtype, padlen):
    """With `padlen` more elements on both sides."""
    if padtype not in (None, "odd", "even", "constant"):
        raise ValueError(f"Unknown value '{padtype}' given to padtype.  padtype must be 'even', 'odd', 'constant', or None.")
    if padtype is None or not padlen:
        return t
    n = t.shape[axis]
    if n <= padlen:
        raise ValueError(f"The length of the input vector x must be greater than padlen, which is {padlen}.")
    first, last = t.narrow(axis, 0, 1), t.narrow(axis, n - 1, 1)
    left, right = t.narrow(axis, 1, padlen).flip([axis]), t.narrow(axis, n - 1 - padlen, padlen).flip([axis])
    if padtype == "odd":
        left, right = 2 * first - left, 2 * last - right
    elif padtype == "constant":
        left, right = _t.broadcast_to(first, left.shape), _t.broadcast_to(last, right.shape)
    return _t.cat([left, t, right], axis)


def _both_ways(run, zi, x, axis, padtype, padlen):
    """A filter forth and back over a signal with more on both sides; `zi` begins with the value 1, along the last axis."""
    t = floating(tensor(x))
    axis %= t.dim()
    wide = _extended(t, axis, padtype, padlen)
    shape = [1] * t.dim()
    shape[axis] = -1
    state = zi.to(t.device, t.dtype).reshape([*zi.shape[:-1], *shape])

    def begun(v):
        return run(v, state * v.narrow(axis, 0, 1))

    y = tensor(begun(tensor(begun(wide)).flip([axis]))).flip([axis])
    more = (wide.shape[axis] - t.shape[axis]) // 2
    return like(x, y.narrow(axis, more, t.shape[axis]).contiguous())


def filtfilt(b, a, x, axis=-1, padtype="odd", padlen=None, method="pad", irlen=None):
    """lfilter forth and back, which leaves phases alone."""
    if method != "pad":
        raise NotImplementedError("filtfilt(): the method is 'pad'")
    count = max(tensor(a).numel(), tensor(b).numel())
    return _both_ways(lambda v, s: lfilter(b, a, v, axis, s)[0], tensor(lfilter_zi(b, a)), x, axis, padtype,
                      3 * count if padlen is None else padlen)


def sosfiltfilt(sos, x, axis=-1, padtype="odd", padlen=None):
    """sosfilt forth and back, which leaves phases alone."""
    t = _sections(sos)
    if padlen is None:
        count = 2 * len(t) + 1 - min(int((t[:, 2] == 0).sum()), int((t[:, 5] == 0).sum()))
        padlen = 3 * count
    return _both_ways(lambda v, s: sosfilt(sos, v, axis, s)[0], tensor(sosfilt_zi(sos)), x, axis, padtype, padlen)


def savgol_coeffs(window_length, polyorder, deriv=0, delta=1.0, pos=None, use="conv"):
    """The weights of a fit of a polynomial to a window, for its value or derivative at `pos` (the middle)."""
    if polyorder >= window_length:
        raise ValueError("polyorder must be less than window_length.")
    middle = (window_length - 1) / 2 if pos is None else pos
    if not 0 <= middle < window_length:
        raise ValueError("pos must be nonnegative and less than window_length.")
    if use not in ("conv", "dot"):
        raise ValueError("`use` must be 'conv' or 'dot'")
    if deriv > polyorder:
        return like(None, _t.zeros(window_length, dtype=_C.float64))
    x = _t.arange(window_length, dtype=_C.float64) - middle
    powers = _t.stack([x**k for k in range(polyorder + 1)])
    right = _t.zeros(polyorder + 1, 1, dtype=_C.float64)
    right[deriv] = math.factorial(deriv) / delta**deriv
    # The least solution of powers @ w = right: Q of the transposed matrix times what R makes of the right side.
    q, r = _l.qr(powers.mT)
    w = (q @ _l.solve_triangular(r.mT, right, upper=False))[:, 0]
    return like(None, w.flip([0]) if use == "conv" else w)


def savgol_filter(x, window_length, polyorder, deriv=0, delta=1.0, axis=-1, mode="interp", cval=0.0):
    """The values (or derivatives) in the middle of polynomials that are fitted to each window; with "interp" those at the ends are of the
    first and the last polynomial."""
    if mode not in ("mirror", "constant", "nearest", "wrap", "interp"):
        raise ValueError("mode must be 'mirror', 'constant', 'nearest' 'wrap' or 'interp'.")
    t = floating(tensor(x))
    n, half = t.shape[axis], window_length // 2
    weights, origin = tensor(savgol_coeffs(window_length, polyorder, deriv, delta, use="dot")).tolist(), -(window_length % 2 == 0)
    if mode != "interp":
        return like(x, _n._along(t, weights, axis % t.dim(), mode, cval, origin))
    if window_length > n:
        raise ValueError("If mode is 'interp', window_length must be less than or equal to the size of x.")
    y = _n._along(t, weights, axis % t.dim(), "nearest", 0.0, origin)
    if not half:
        return like(x, y)
    ends = [_t.stack([tensor(savgol_coeffs(window_length, polyorder, deriv, delta, k, "dot")) for k in places]).to(t.device, t.dtype)
            for places in (range(half), range(window_length - half, window_length))]
    sides = [(t.narrow(axis, at, window_length).movedim(axis, -1) @ m.mT).movedim(-1, axis) for at, m in zip((0, n - window_length), ends)]
    return like(x, _t.cat([sides[0], y.narrow(axis, half, n - 2 * half), sides[1]], axis))


def upfirdn(h, x, up=1, down=1, axis=-1):
    """With up - 1 zeros between the elements, filtered by h, and each `down`-th of what comes out."""
    t, w = floating(tensor(x)), floating(tensor(h))
    if w.dim() != 1 or not w.numel():
        raise ValueError("h must be 1-D with non-zero length")
    if t.dtype.is_complex or w.dtype.is_complex:
        pairs = [(w, v) for v in _halves(t)] if t.dtype.is_complex else [(v, t) for v in _halves(w)]
        real, imag = (upfirdn(*p, up, down, axis) for p in pairs)
        return like(x, real + 1j * imag)
    t, w = together(t, w)
    moved = t.movedim(axis, -1)
    n, taps = moved.shape[-1], -(-w.numel() // up)
    count = -(-((n - 1) * up + w.numel()) // down)
    # Of each `phases` outputs one after the other has each of them a filter of its own, and the next ones `step` elements later.
    phases, step = up // math.gcd(up, down), down // math.gcd(up, down)
    times = -(-count // phases)
    after = (phases - 1) * down // up + (times - 1) * step + 1 - n
    rows = _n._padded(moved.reshape(math.prod(moved.shape[:-1]), 1, n), [0, 0, taps - 1], [0, 0, max(after, 0)], "constant", 0)
    y = _t.zeros(rows.shape[0], times, phases, dtype=t.dtype, device=t.device)
    for k in range(phases):
        first, phase = divmod(k * down, up)
        part = w[phase::up].flip([0])
        if part.numel():
            window = rows.narrow(-1, first + taps - part.numel(), (times - 1) * step + part.numel())
            y[:, :, k] = _t._ops.conv1d(window, part[None, None], stride=step)[:, 0]
    return like(x, y.flatten(1)[:, :count].reshape(*moved.shape[:-1], count).movedim(-1, axis).contiguous())


def resample_poly(x, up, down, axis=0, window=("kaiser", 5.0), padtype="constant", cval=None):
    """up / down times as many samples, by a filter of finite response: a window's, or the coefficients `window`."""
    if padtype != "constant" or cval not in (None, 0):
        raise NotImplementedError("resample_poly(): what is beyond the ends is 0")
    if up != int(up) or down != int(down) or up < 1 or down < 1:
        raise ValueError("up and down must be >= 1")
    factor = math.gcd(int(up), int(down))
    up, down = int(up) // factor, int(down) // factor
    t = floating(tensor(x))
    if up == down == 1:
        return like(x, t.clone())
    if isinstance(window, (tuple, str)):
        from ._design import firwin

        half = 10 * max(up, down)
        h = tensor(firwin(2 * half + 1, 1.0 / max(up, down), window=window)).to(t.device, t.real.dtype if t.dtype.is_complex else t.dtype)
    else:
        h = tensor(window).to(t.device)
        half = (h.numel() - 1) // 2
    n = t.shape[axis] * up
    n = n // down + bool(n % down)
    before = down - half % down
    skip = (half + before) // down
    y = tensor(upfirdn(_t.cat([_t.zeros(before, dtype=h.dtype, device=h.device), h * up]), t, up, down, axis))
    short = skip + n - y.shape[axis]
    if short > 0:
        more = list(y.shape)
        more[axis] = short
        y = _t.cat([y, _t.zeros(more, dtype=y.dtype, device=y.device)], axis)
    return like(x, y.narrow(axis, skip, n).contiguous())


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
    if not t.numel():
        return like(im, t.clone())
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
    if type not in ("linear", "l", "constant", "c"):
        raise ValueError("Trend type must be 'linear' or 'constant'.")
    if type in ("constant", "c") or t.shape[axis] < 2:
        return like(data, t - mean)
    shape = [1] * t.dim()
    shape[axis] = -1
    k = _t.arange(t.shape[axis], dtype=t.real.dtype if t.dtype.is_complex else t.dtype, device=t.device)
    k = (k - k.mean()).reshape(shape).to(t.dtype)
    slope = (k * t).sum(axis, keepdim=True) / (k * k).sum()
    return like(data, t - mean - slope * k)


def resample(x, num, axis=0):
    """`num` samples for those that are there, by way of the Fourier transform."""
    t = floating(tensor(x))
    if t.dtype.is_complex:
        return like(x, _t._ops.complex(*(resample(v, num, axis) for v in _halves(t))))
    n = t.shape[axis]
    spectrum = _fft.rfft(t, n, axis)
    keep = min(num, n)
    part = spectrum.narrow(axis, 0, keep // 2 + 1).clone()
    if keep % 2 == 0 and num != n:  # the highest frequency of both signs
        last = part.narrow(axis, keep // 2, 1)
        last.mul_(2.0 if num < n else 0.5)
    return like(x, _fft.irfft(part, num, axis) * (num / n))
