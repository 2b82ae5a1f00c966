"""Coefficients of filters, and what filters do to frequencies. All but responses is arithmetic of a few numbers, done by Python."""
from __future__ import annotations

import cmath
import math
import operator

from .... import _C, _operators as _t, numpy as _np
from .._arrays import like, tensor
from .windows import get_window

__all__ = ["bilinear_zpk", "butter", "cheby1", "firwin", "freqz", "iirfilter", "sos2tf", "sosfreqz", "tf2zpk", "zpk2sos", "zpk2tf"]


def firwin(numtaps, cutoff, *, width=None, window="hamming", pass_zero=True, scale=True, fs=2.0):
    """The coefficients of a filter of finite response, by a window."""
    if width is not None:
        raise NotImplementedError("firwin(): say which window, and not the width of the transition")
    edges = [2 * float(c) / fs for c in (cutoff if hasattr(cutoff, "__len__") else [cutoff])]
    if not edges or any(not 0 < c < 1 for c in edges) or sorted(set(edges)) != edges:
        raise ValueError("Invalid cutoff frequency: frequencies must be greater than 0 and less than fs/2, in increasing order.")
    if not isinstance(pass_zero, bool):
        if pass_zero not in ("lowpass", "highpass", "bandpass", "bandstop"):
            raise ValueError(f"Parameter pass_zero={pass_zero!r} not in (True, False, 'bandpass', 'lowpass', 'highpass', 'bandstop')")
        if (len(edges) == 1) != (pass_zero in ("lowpass", "highpass")):
            count = "at least two elements" if len(edges) == 1 else "one element"
            raise ValueError(f'cutoff must have {count} if pass_zero=="{pass_zero}", got {len(edges)}')
        pass_zero = pass_zero in ("lowpass", "bandstop")
    first = pass_zero
    last = first != (len(edges) % 2 == 1)
    if last and numtaps % 2 == 0:
        raise ValueError("A filter with an even number of coefficients must have zero response at the Nyquist frequency.")
    edges = [0.0] * first + edges + [1.0] * last
    m = _t.arange(numtaps, dtype=_C.float64) - 0.5 * (numtaps - 1)
    h = sum(r * _t._ops.sinc(r * m) - l * _t._ops.sinc(l * m) for l, r in zip(edges[::2], edges[1::2]))  # noqa: E741
    h = h * tensor(get_window(window, numtaps, False)).to(h.device)
    if scale:
        left, right = edges[:2]
        at = 0.0 if left == 0 else 1.0 if right == 1 else 0.5 * (left + right)
        h = h / (h * (math.pi * m * at).cos()).sum()
    return like(None, h)


def _numbers(values):
    return [complex(v) for v in tensor(values).reshape(-1).tolist()]


def _array(values):
    """Real numbers, or complex ones where any is."""
    real = all(v.imag == 0 for v in values)
    return like(None, _t.tensor([v.real for v in values] if real else values, dtype=_C.float64 if real else _C.complex128))


def _polynomial(roots):
    """The coefficients from the highest power on; real ones where roots are in pairs."""
    c = [1 + 0j]
    for r in roots:
        c = [a - r * b for a, b in zip([*c, 0j], [0j, *c])]
    above, below = (sorted((r.real, abs(r.imag)) for r in roots if s * r.imag > 0) for s in (1, -1))
    return [complex(v.real) for v in c] if above == below else c


def zpk2tf(z, p, k):
    """The polynomials b and a of zeros, poles and a gain."""
    return _array([k * v for v in _polynomial(_numbers(z))]), _array(_polynomial(_numbers(p)))


def tf2zpk(b, a):
    """Zeros, poles and the gain of two polynomials."""
    b, a = (_np.trim_zeros(_np.asarray(v, dtype=float), "f") for v in (b, a))
    if not a.size:
        raise ValueError("Denominator must have at least on nonzero element.")
    return _np.roots(b), _np.roots(a), (b[0] / a[0]).item() if b.size else 0.0


def _pairs(roots):
    """The complex ones above the real axis, each of which stands for two, in order, and then the real ones in order."""
    near = [r if abs(r.imag) > 100 * 2.2e-16 * abs(r) else complex(r.real) for r in roots]
    above, below = (sorted((r for r in near if s * r.imag > 0), key=lambda r: (r.real, abs(r.imag))) for s in (1, -1))
    if len(above) != len(below) or any(abs(a - b.conjugate()) > 1e-8 * abs(a) for a, b in zip(above, below)):
        raise ValueError("Array contains complex value with no matching conjugate.")
    return [(a + b.conjugate()) / 2 for a, b in zip(above, below)], sorted((r for r in near if r.imag == 0), key=lambda r: r.real)


def zpk2sos(z, p, k):
    """Sections of second order: poles nearest to the unit circle come last, each with the zeros nearest to them."""
    zeros, poles = _numbers(z), _numbers(p)
    count = (max(len(zeros), len(poles)) + 1) // 2
    zeros += [0j] * (2 * count - len(zeros))
    poles += [0j] * (2 * count - len(poles))
    (zc, zr), (pc, pr) = _pairs(zeros), _pairs(poles)
    zeros, poles = zc + zr, pc + pr

    def take(values, key, kind=lambda v: True):
        at = min((n for n, v in enumerate(values) if kind(v)), key=lambda n: key(values[n]))
        return values.pop(at)

    def is_real(v):
        return v.imag == 0

    def near(to):
        return lambda v: abs(v - to)

    def worst(v):
        return abs(1 - abs(v))

    sections = []
    for _ in range(count):
        p1 = take(poles, worst)
        if not is_real(p1) and len(poles) + 1 == len(zeros) and sum(map(is_real, poles)) == sum(map(is_real, zeros)) == 1:
            z1 = take(zeros, near(p1), lambda v: not is_real(v))  # the last real one is for the last real pole
            sections.append(([z1, z1.conjugate()], [p1, p1.conjugate()]))
            continue
        p2 = take(poles, worst, is_real) if is_real(p1) else p1.conjugate()
        z1 = take(zeros, near(p1))
        sections.append(([z1, take(zeros, near(p1), is_real) if is_real(z1) else z1.conjugate()], [p1, p2]))
    rows = [[*(v.real for v in _polynomial(a)), *(v.real for v in _polynomial(b))] for a, b in reversed(sections)]
    if rows:
        rows[0][:3] = [k * v for v in rows[0][:3]]
    return like(None, _t.tensor(rows, dtype=_C.float64).reshape(-1, 6))


def sos2tf(sos):
    """The polynomials b and a of sections of second order."""
    b, a = _np.ones(1), _np.ones(1)
    for section in _np.asarray(sos):
        b, a = _np.convolve(b, section[:3]), _np.convolve(a, section[3:])
    return b, a


def bilinear_zpk(z, p, k, fs):
    """Zeros, poles and gain of the digital filter of an analog one."""
    z, p, twice = _numbers(z), _numbers(p), 2.0 * fs
    if len(z) > len(p):
        raise ValueError("Improper transfer function. Must have at least as many poles as zeros.")
    gain = k
    for sign, values in ((1, z), (-1, p)):
        product = 1 + 0j
        for v in values:
            product *= twice - v
        gain = gain * product if sign == 1 else gain / product
    moved = [[(twice + v) / (twice - v) for v in values] for values in (z, p)]
    return _array(moved[0] + [-1 + 0j] * (len(p) - len(z))), _array(moved[1]), complex(gain).real


def iirfilter(N, Wn, rp=None, rs=None, btype="band", analog=False, ftype="butter", output="ba", fs=None):
    """A filter of infinite response: "butter", or "cheby1" with ripples of `rp` dB; as "ba", "zpk" or "sos"."""
    kinds = {"low": "low", "lowpass": "low", "lp": "low", "l": "low", "high": "high", "highpass": "high", "hp": "high", "h": "high",
             "band": "band", "bandpass": "band", "bp": "band", "pass": "band", "bandstop": "stop", "stop": "stop", "bs": "stop"}
    if btype.lower() not in kinds:
        raise ValueError(f"'{btype}' is an invalid bandtype for filter.")
    if ftype not in ("butter", "cheby1"):
        raise NotImplementedError(f"iirfilter(): there are 'butter' and 'cheby1', and not {ftype!r}")
    if output not in ("ba", "zpk", "sos"):
        raise ValueError(f"'{output}' is not a valid output form.")
    if N < 0 or N != int(N):
        raise ValueError("Filter order must be a nonnegative integer")
    N, edges = int(N), [float(w) for w in (Wn if hasattr(Wn, "__len__") else [Wn])]
    kind = kinds[btype.lower()]
    if len(edges) != (1 if kind in ("low", "high") else 2):
        raise ValueError("Must specify a single critical frequency Wn for lowpass or highpass filter" if kind in ("low", "high") else
                         "Wn must specify start and stop frequencies for bandpass or bandstop filter")
    if edges != sorted({*edges}):
        raise ValueError("Wn[0] must be less than Wn[1]")
    if analog and fs is not None:
        raise ValueError("fs cannot be specified for an analog filter")
    if fs is not None:
        edges = [2 * w / fs for w in edges]
    if any(w <= 0 for w in edges) or not analog and any(w >= 1 for w in edges):
        raise ValueError("Digital filter critical frequencies must be 0 < Wn < fs/2" if not analog else
                         "filter critical frequencies must be greater than 0")
    if ftype == "cheby1" and (rp is None or rp < 0):
        raise ValueError("passband ripple (rp) must be positive, and given for Chebyshev I filters")
    # The lowpass with its edge at 1.
    angles = [math.pi * m / (2 * N) for m in range(1 - N, N, 2)]
    zeros, gain = [], 1.0
    if ftype == "butter":
        poles = [-cmath.exp(1j * t) if t else -1 + 0j for t in angles]
    else:
        ripple = math.sqrt(10 ** (0.1 * rp) - 1)
        mu = math.asinh(1 / ripple) / N
        poles = [-cmath.sinh(mu + 1j * t) for t in angles]
        for v in poles:
            gain = gain * -v
        gain = complex(gain).real / (math.sqrt(1 + ripple * ripple) if N % 2 == 0 else 1)
    warped = edges if analog else [4 * math.tan(math.pi * w / 2) for w in edges]
    if kind == "low":
        w = warped[0]
        poles, gain = [w * v for v in poles], gain * w ** len(poles)
    elif kind == "high":
        for v in poles:
            gain = gain / -v
        zeros, poles, gain = [0j] * len(poles), [warped[0] / v for v in poles], complex(gain).real
    else:
        width, middle = warped[1] - warped[0], math.sqrt(warped[0] * warped[1])
        if kind == "band":
            halves = [v * width / 2 for v in poles]
            zeros, gain = [0j] * len(poles), gain * width ** len(poles)
        else:
            for v in poles:
                gain = gain / -v
            halves, gain = [width / 2 / v for v in poles], complex(gain).real
            zeros = [1j * middle] * len(poles) + [-1j * middle] * len(poles)
        roots = [cmath.sqrt(h * h - middle * middle) for h in halves]
        poles = [h + r for h, r in zip(halves, roots)] + [h - r for h, r in zip(halves, roots)]
    z, p, k = (_array(zeros), _array(poles), gain) if analog else bilinear_zpk(_array(zeros), _array(poles), gain, 2.0)
    if output == "zpk":
        return z, p, k
    if output == "sos" and analog:
        raise NotImplementedError("sections of analog filters are not there")
    return zpk2tf(z, p, k) if output == "ba" else zpk2sos(z, p, k)


def butter(N, Wn, btype="low", analog=False, output="ba", fs=None):
    """Butterworth's filter of order N with its edge, or its two edges, at Wn: as flat as can be where it passes."""
    return iirfilter(N, Wn, None, None, btype, analog, "butter", output, fs)


def cheby1(N, rp, Wn, btype="low", analog=False, output="ba", fs=None):
    """Chebyshev's filter of the first kind, with ripples of `rp` dB where it passes."""
    return iirfilter(N, Wn, rp, None, btype, analog, "cheby1", output, fs)


def _frequencies(worN, whole, fs, include_nyquist=False):
    try:
        n = 512 if worN is None else None if getattr(worN, "shape", ()) else operator.index(worN)
    except TypeError:
        n = None
    if n is None:
        return tensor(worN).to(_C.float64).reshape(-1) * (2 * math.pi / fs)
    if n < 0:
        raise ValueError(f"worN must be nonnegative, got {n}")
    return _t.arange(n, dtype=_C.float64) * ((2 if whole else 1) * math.pi / max(n - (include_nyquist and not whole), 1))


def freqz(b, a=1, worN=512, whole=False, *, fs=2 * math.pi, include_nyquist=False):
    """Frequencies, and what b / a makes of them."""
    w = _frequencies(worN, whole, fs, include_nyquist)
    turn = _t._ops.polar(_t.ones_like(w), -w)

    def value(c):
        total = _t.zeros_like(turn)
        for v in reversed(tensor(c).reshape(-1).tolist()):
            total = total * turn + v
        return total

    return like(None, w * (fs / (2 * math.pi))), like(None, value(b) / value(a))


def sosfreqz(sos, worN=512, whole=False, fs=2 * math.pi):
    """Frequencies, and what sections of second order make of them."""
    h = 1
    for section in tensor(sos):
        w, part = freqz(section[:3], section[3:], worN, whole, fs=fs)
        h = h * part
    return w, h
