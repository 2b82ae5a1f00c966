"""Spectra of signals, of the whole and of parts of it."""
from __future__ import annotations

from .... import _C, _operators as _t, fft as _fft, numpy as _np
from .._arrays import floating, like, tensor, together
from . import _filters as _f
from .windows import get_window

__all__ = ["coherence", "csd", "istft", "periodogram", "spectrogram", "stft", "welch"]


class _Parts:
    """How a signal is cut: windows of `nperseg` elements that have `noverlap` in common."""

    def __init__(self, n, window, nperseg, noverlap, nfft):
        if isinstance(window, (str, tuple)):
            nperseg = min(256 if nperseg is None else int(nperseg), n)
            self.window = tensor(get_window(window, nperseg))
        else:
            self.window = tensor(window)
            if self.window.dim() != 1:
                raise ValueError("window must be 1-D")
            if nperseg not in (None, self.window.numel()):
                raise ValueError("value specified for nperseg is different from length of window")
            nperseg = self.window.numel()
        if nperseg < 1 or nperseg > n:
            raise ValueError("nperseg must be a positive integer, and the window no longer than the signal")
        self.size, self.common, self.points = nperseg, nperseg // 2 if noverlap is None else int(noverlap), nfft or nperseg
        if self.common >= nperseg:
            raise ValueError("noverlap must be less than nperseg.")
        if self.points < nperseg:
            raise ValueError("nfft must be greater than or equal to nperseg.")


def _spectra(x, parts, fs, detrend, return_onesided, scaling, axis):
    """Frequencies, times, and the spectra of the parts of a signal, with frequencies and then parts as the last dimensions."""
    t = floating(tensor(x)).movedim(axis, -1)
    w = parts.window.to(t.device, t.real.dtype if t.dtype.is_complex else t.dtype)
    rows = t.unfold(-1, parts.size, parts.size - parts.common)
    if detrend:
        rows = tensor(detrend(rows)) if callable(detrend) else tensor(_f.detrend(rows, -1, detrend))
    if scaling not in ("density", "spectrum"):
        raise ValueError(f"Unknown scaling: {scaling!r}")
    scale = 1.0 / (fs * float((w * w).sum())) if scaling == "density" else 1.0 / float(w.sum()) ** 2
    one = return_onesided and not t.dtype.is_complex
    r = (_fft.rfft if one else _fft.fft)(rows * w, parts.points, -1)
    r = r * scale**0.5
    k = _t.arange(r.shape[-1], dtype=_C.float64)
    frequencies = (k if one else _t.where(k < (parts.points + 1) // 2, k, k - parts.points)) * (fs / parts.points)
    times = (_t.arange(rows.shape[-2], dtype=_C.float64) * (parts.size - parts.common) + parts.size / 2) / fs
    return like(None, frequencies), like(None, times), r.transpose(-1, -2), one


def _doubled(power, points, one):
    """With what stands for frequencies of both signs twice."""
    if one:
        power[..., 1:power.shape[-2] - (points % 2 == 0), :] *= 2
    return power


def spectrogram(x, fs=1.0, window=("tukey", 0.25), nperseg=None, noverlap=None, nfft=None, detrend="constant", return_onesided=True,
                scaling="density", axis=-1, mode="psd"):
    """Frequencies, times, and the power of the parts of a signal; `mode`: "psd", "complex", "magnitude", "angle" or "phase"."""
    if mode not in ("psd", "complex", "magnitude", "angle", "phase"):
        raise ValueError(f"unknown value for mode {mode}, must be one of ['psd', 'complex', 'magnitude', 'angle', 'phase']")
    n = tensor(x).shape[axis]
    size = min(nperseg or 256, n) if isinstance(window, (str, tuple)) else tensor(window).numel()
    parts = _Parts(n, window, nperseg, size // 8 if noverlap is None else noverlap, nfft)
    f, t, r, one = _spectra(x, parts, fs, detrend, return_onesided, scaling, axis)
    if mode == "psd":
        r = _doubled(r.abs().square(), parts.points, one)
    elif mode == "magnitude":
        r = r.abs()
    elif mode != "complex":
        r = r.angle()
        r = tensor(_np.unwrap(_np.ndarray(r), axis=-2)) if mode == "phase" else r
    return f, t, like(x, r.movedim(-2, axis % (r.dim() - 1)).contiguous())


def _averaged(r, average):
    if average == "mean":
        return r.mean(-1)
    if average != "median":
        raise ValueError(f"average must be 'median' or 'mean', got {average}")
    n = r.shape[-1]
    bias = 1 + sum(1.0 / (k + 1) - 1.0 / k for k in range(2, n, 2))  # of a median of exponentially distributed numbers
    return tensor(_np.median(_np.ndarray(r), axis=-1)) / bias


def csd(x, y, fs=1.0, window="hann", nperseg=None, noverlap=None, nfft=None, detrend="constant", return_onesided=True, scaling="density",
        axis=-1, average="mean"):
    """Frequencies, and the cross power of two signals of one length, averaged over parts."""
    a, b = together(floating(tensor(x)), floating(tensor(y)))
    if a.shape[axis] != b.shape[axis]:
        raise NotImplementedError("csd(): both signals have one length")
    parts = _Parts(a.shape[axis], window, nperseg, noverlap, nfft)
    f, _, first, one = _spectra(a, parts, fs, detrend, return_onesided, scaling, axis)
    second = first if y is x else _spectra(b, parts, fs, detrend, return_onesided, scaling, axis)[2]
    power = _doubled(first.abs().square() if y is x else first.conj() * second, parts.points, one)
    if power.dtype.is_complex and average == "median":
        r = _t._ops.complex(_averaged(power.real, average), _averaged(power.imag, average))
    else:
        r = _averaged(power, average)
    return f, like(x, r.movedim(-1, axis))


def welch(x, fs=1.0, window="hann", nperseg=None, noverlap=None, nfft=None, detrend="constant", return_onesided=True, scaling="density",
          axis=-1, average="mean"):
    """Frequencies, and the power of a signal, averaged over parts."""
    return csd(x, x, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average)


def periodogram(x, fs=1.0, window="boxcar", nfft=None, detrend="constant", return_onesided=True, scaling="density", axis=-1):
    """Frequencies, and the power of the whole signal."""
    n = tensor(x).shape[axis]
    if nfft is not None and nfft < n:
        raise NotImplementedError("periodogram(): nfft is at least the length of the signal")
    return welch(x, fs, window, n, 0, nfft, detrend, return_onesided, scaling, axis)


def coherence(x, y, fs=1.0, window="hann", nperseg=None, noverlap=None, nfft=None, detrend="constant", axis=-1):
    """Frequencies, and how far two signals follow each other there, from 0 to 1."""
    options = dict(window=window, nperseg=nperseg, noverlap=noverlap, nfft=nfft, detrend=detrend, axis=axis)
    f, a = welch(x, fs, **options)
    _, b = welch(y, fs, **options)
    _, c = csd(x, y, fs, **options)
    return f, like(x, tensor(c).abs().square() / tensor(a) / tensor(b))


def stft(x, fs=1.0, window="hann", nperseg=256, noverlap=None, nfft=None, detrend=False, return_onesided=True, boundary="zeros",
         padded=True, axis=-1, scaling="spectrum"):
    """Frequencies, times, and the spectra of parts of a signal with zeros around it."""
    if boundary not in ("zeros", None):
        raise NotImplementedError("stft(): beyond the ends are zeros, or nothing (None)")
    if scaling not in ("spectrum", "psd"):
        raise ValueError(f"Parameter scaling={scaling!r} not in ['spectrum', 'psd']!")
    t = floating(tensor(x)).movedim(axis, -1)
    parts = _Parts(t.shape[-1], window, nperseg, noverlap, nfft)
    more = [parts.size // 2 if boundary else 0] * 2
    if padded:
        n = t.shape[-1] + sum(more)
        more[1] += -(n - parts.size) % (parts.size - parts.common)
    t = _f._n._padded(t, [0] * (t.dim() - 1) + more[:1], [0] * (t.dim() - 1) + more[1:], "constant", 0)
    f, times, r, _ = _spectra(t, parts, fs, detrend, return_onesided, "spectrum" if scaling == "spectrum" else "density", -1)
    times = times - parts.size / 2 / fs if boundary else times
    axis %= tensor(x).dim()
    return f, times, like(x, r.movedim(-2, axis).contiguous())


def istft(Zxx, fs=1.0, window="hann", nperseg=None, noverlap=None, nfft=None, input_onesided=True, boundary=True, time_axis=-1,
          freq_axis=-2, scaling="spectrum"):
    """Times, and the signal whose parts have these spectra: parts that lie over each other are added."""
    z = tensor(Zxx)
    freq_axis, time_axis = freq_axis % z.dim(), time_axis % z.dim()
    if freq_axis == time_axis:
        raise ValueError("Must specify differing time and frequency axes!")
    z = z.movedim((freq_axis, time_axis), (-2, -1))
    points = nfft or (2 * (z.shape[-2] - 1) if input_onesided else z.shape[-2])
    parts = _Parts(nperseg or points, window, nperseg or points, noverlap, points)
    if scaling not in ("spectrum", "psd"):
        raise ValueError(f"Parameter scaling={scaling!r} not in ['spectrum', 'psd']!")
    pieces = (_fft.irfft if input_onesided else _fft.ifft)(z, points, -2).narrow(-2, 0, parts.size)
    w = parts.window.to(z.device, pieces.real.dtype if pieces.dtype.is_complex else pieces.dtype)
    pieces = pieces * (w.sum() if scaling == "spectrum" else (fs * (w * w).sum()).sqrt()) * w[:, None]
    step, count = parts.size - parts.common, z.shape[-1]
    n = parts.size + (count - 1) * step
    at = (_t.arange(parts.size)[:, None] + _t.arange(count) * step).reshape(-1).to(z.device)
    total = _t.zeros(*pieces.shape[:-2], n, dtype=pieces.dtype, device=z.device).index_add(-1, at, pieces.flatten(-2))
    squares = _t.broadcast_to((w * w)[:, None], (parts.size, count)).reshape(-1)
    weight = _t.zeros(n, dtype=w.dtype, device=z.device).index_add(0, at, squares)
    if boundary:
        total, weight = (v.narrow(-1, parts.size // 2, n - parts.size // 2 * 2) for v in (total, weight))
    r = total / _t.where(weight > 1e-10, weight, 1.0)
    times = like(None, _t.arange(r.shape[-1], dtype=_C.float64) / fs)
    return times, like(Zxx, r.movedim(-1, time_axis - (freq_axis < time_axis)).contiguous())
