"""numpy.fft: Fourier transforms; of float32 complex64, of other real numbers complex128."""
from __future__ import annotations

import builtins as _b

from .. import _C, _operators as _t, fft as _fft
from ._array import (
    axes_of as _axes_of,
    axis_of as _axis_of,
    get_device as _get_device,
    result_into as _result_into,
    tensor_of as _tensor_of,
    wrap as _wrap,
)

__all__ = [
    "fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn", "fftfreq",
    "rfftfreq", "fftshift", "ifftshift",
]


def _input(a, name):
    t = _tensor_of(a)
    if t.dtype in (_C.float16, _C.bfloat16):
        t = t.float()
    t = t if t.is_floating_point() or t.is_complex() else t.to(_C.float64)
    if t.is_complex() and name in ("rfft", "rfft2", "rfftn", "ihfft"):
        raise TypeError(f"ufunc '{name}' did not contain a loop for complex numbers")
    return t


def _norm(norm):
    if norm not in (None, "backward", "ortho", "forward"):
        raise ValueError(f'Invalid norm value {norm}; should be "backward", "ortho" or "forward".')
    return norm


def _one(name):
    operator = getattr(_fft, name)

    def function(a, n=None, axis=-1, norm=None, out=None):
        t = _input(a, name)
        if n is not None and n < 1:
            raise ValueError(f"Invalid number of FFT data points ({n}) specified.")
        return _result_into(operator(t, n, _axis_of(axis, t.dim()), _norm(norm)), out)

    function.__name__ = name
    function.__doc__ = f"The transform `{name}` along an axis."
    return function


def _several(name, axes_default):
    operator = getattr(_fft, name.replace("2", "n"))

    def function(a, s=None, axes=axes_default, norm=None, out=None):
        t = _input(a, name)
        if axes is None:
            axes = tuple(range(t.dim())) if s is None else tuple(range(t.dim() - len(s), t.dim()))
        axes = tuple(_axis_of(x, t.dim()) for x in axes)
        if s is not None:
            if len(s) != len(axes):
                raise ValueError("Shape and axes have different lengths.")
            s = [t.shape[x] if n == -1 else n for n, x in zip(s, axes)]
        if len({*axes}) != len(axes):  # an axis that is named again is transformed again
            r = t
            for i in reversed(range(len(axes))):
                step = name[:-1] if name[0] != "r" and name[:2] != "ir" else None
                if step is None:
                    raise ValueError(f"{name}(): an axis is named twice")
                r = getattr(_fft, step)(r, None if s is None else s[i], axes[i], _norm(norm))
            return _result_into(r, out)
        if not axes:
            return _result_into(t.to(_C.complex64 if t.dtype is _C.float32 else _C.complex128) if not t.is_complex() else t.clone(), out)
        return _result_into(operator(t, s, axes, _norm(norm)), out)

    function.__name__ = name
    function.__doc__ = f"The transform `{name}` along several axes."
    return function


fft, ifft, rfft, irfft, hfft, ihfft = map(_one, ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"))
fft2, ifft2, rfft2, irfft2 = (_several(n, (-2, -1)) for n in ("fft2", "ifft2", "rfft2", "irfft2"))
fftn, ifftn, rfftn, irfftn = (_several(n, None) for n in ("fftn", "ifftn", "rfftn", "irfftn"))


def _frequencies(name, places):
    def function(n, d=1.0, device=None, dtype=None):
        if not isinstance(n, _b.int):
            raise ValueError("n should be an integer")
        from ._types import native

        t = _t.tensor(places(n), dtype=_C.float64, device=device or _get_device()) / (n * d)
        return _wrap(t if dtype is None else t.to(native(dtype)))

    function.__name__ = name
    function.__doc__ = "The frequencies of the elements of a transform."
    return function


fftfreq = _frequencies("fftfreq", lambda n: [*range((n - 1) // 2 + 1), *range(-(n // 2), 0)])
rfftfreq = _frequencies("rfftfreq", lambda n: [*range(n // 2 + 1)])


def _shift(name, sign):
    def function(x, axes=None):
        t = _tensor_of(x)
        axes = _axes_of(axes, t.dim())
        return _wrap(t.roll(tuple((t.shape[a] // 2) if sign > 0 else -(t.shape[a] // 2) for a in axes), axes) if axes else t.clone())

    function.__name__ = name
    function.__doc__ = "The zero frequency in the middle." if sign > 0 else "The zero frequency in front again."
    return function


fftshift, ifftshift = _shift("fftshift", 1), _shift("ifftshift", -1)
