"""Polynomials by their coefficients, the highest power first: NumPy's old functions and `poly1d`."""
from __future__ import annotations

import builtins as _b
import warnings as _warnings

from .. import _C, _operators as _t
from . import linalg
from ._array import cast, result, tensor_of
from ._products import convolve
from ._types import OF_TENSOR, PROMOTED_NATIVE, finfo, number_type
from ._ufuncs import _ALL
from .exceptions import RankWarning

__all__ = ["poly", "poly1d", "polyadd", "polysub", "polymul", "polydiv", "polyval", "polyder", "polyint", "polyfit", "roots"]


def _coefficients(p):
    t = p.coeffs._tensor if isinstance(p, poly1d) else tensor_of(p)
    return t.reshape(1) if not t.dim() else t


def _as(like, t):
    """A polynomial where any of them was one."""
    return poly1d(result(t)) if _b.any(isinstance(p, poly1d) for p in like) else result(t)


def _trimmed(t):
    """Without zeros in front."""
    found = _t.nonzero(t)
    return t[int(found[0]):] if found.numel() else t[:0]


def poly(seq_of_zeros):
    """The polynomial with these zeros, or the characteristic one of a matrix."""
    t = tensor_of(seq_of_zeros)
    if t.dim() == 2 and t.shape[0] == t.shape[1] and t.shape[0]:
        t = linalg.eigvals(result(t))._tensor
    elif t.dim() != 1:
        if not t.dim():
            return result(_t.ones(1, dtype=_C.float64))
        raise ValueError("input must be 1d or non-empty square 2d array.")
    t = t if t.is_floating_point() or t.is_complex() else t.to(_C.float64)
    r = _t.ones(1, dtype=t.dtype, device=t.device)
    for z in t.unbind(0):
        r = _t.cat([r, r.new_zeros(1)]) - _t.cat([r.new_zeros(1), r * z])
    if r.is_complex():
        a, b = sorted((complex(v) for v in t.tolist()), key=lambda v: (v.real, v.imag)), sorted(
            (complex(v).conjugate() for v in t.tolist()), key=lambda v: (v.real, v.imag))
        r = r.real.contiguous() if a == b else r
    return result(r)


def roots(p):
    """The zeros: eigenvalues of the companion matrix."""
    t = _coefficients(p)
    if t.dim() != 1:
        raise ValueError("Input must be a rank-1 array.")
    found = _t.nonzero(t)
    if not found.numel():
        return result(_t.zeros(0, dtype=_C.float64))
    last = int(found[-1])
    zeros = t.shape[0] - last - 1
    t = t[int(found[0]): last + 1]
    t = t if t.is_floating_point() or t.is_complex() else t.to(_C.float64)
    n = t.shape[0] - 1
    r = _t.zeros(0, dtype=t.dtype, device=t.device)
    if n:
        companion = _t.diag_embed(_t.ones(n - 1, dtype=t.dtype, device=t.device), -1)
        companion[0] = -t[1:] / t[0]
        r = linalg.eigvals(result(companion))._tensor
    return result(_t.cat([r, _t.zeros(zeros, dtype=r.dtype, device=r.device)]))


def _sum(name, operator):
    def function(a1, a2):
        a, b = _coefficients(a1), _coefficients(a2)
        n = _b.max(a.shape[0], b.shape[0])
        d = PROMOTED_NATIVE[a.dtype, b.dtype]
        a, b = (_t.cat([_t.zeros(n - t.shape[0], dtype=d, device=t.device), cast(t, d)]) for t in (a, b))
        return _as((a1, a2), operator(a, b))

    function.__name__ = name
    function.__doc__ = "The sum of polynomials." if name == "polyadd" else "The difference of polynomials."
    return function


polyadd, polysub = _sum("polyadd", _t.add), _sum("polysub", _t.sub)


def polymul(a1, a2):
    """The product of polynomials."""
    return _as((a1, a2), convolve(result(_coefficients(a1)), result(_coefficients(a2)))._tensor)


def polydiv(u, v):
    """Quotient and remainder."""
    a, b = _coefficients(u), _coefficients(v)
    d = (
        PROMOTED_NATIVE[PROMOTED_NATIVE[a.dtype, b.dtype], _C.float64]
        if not (a.is_floating_point() or a.is_complex())
        else PROMOTED_NATIVE[a.dtype, b.dtype]
    )
    a, b = cast(a, d).clone(), cast(b, d)
    m, n = a.shape[0] - 1, b.shape[0] - 1
    q = _t.zeros(_b.max(m - n + 1, 1), dtype=d, device=a.device)
    for k in range(m - n + 1):
        q[k] = a[k] / b[0]
        a[k: k + n + 1] -= q[k] * b
    while a.shape[0] > 1 and _b.abs(a[0].item()) <= 1e-14:
        a = a[1:]
    return _as((u, v), q), _as((u, v), a)


def polyval(p, x):
    """The value at x, by Horner's rule; of a polynomial at a polynomial a polynomial."""
    if isinstance(x, poly1d):
        r = poly1d([0])
        for c in _coefficients(p).unbind(0):
            r = r * x + c.item()
        return r
    t = tensor_of(x)
    c = _coefficients(p)
    r = _t.zeros_like(t)
    for v in c.unbind(0):
        r = _ALL["add"]._compute(result(_ALL["multiply"]._compute(result(r), result(t))), result(v))
    return result(r)


def polyder(p, m=1):
    """The derivative, m times."""
    if m < 0:
        raise ValueError("Order of derivative must be positive (see polyint)")
    t = _coefficients(p)
    for _ in range(m):
        n = t.shape[0] - 1
        t = t[:-1] * _t.arange(n, 0, -1, device=t.device)
    return _as((p,), t)


def polyint(p, m=1, k=None):
    """The antiderivative, m times, with constants."""
    if m < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    k = [0.0] * m if k is None else tensor_of(k).reshape(-1).tolist()
    k = k * m if len(k) == 1 and m > 1 else k
    if len(k) < m:
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or >m.")
    t = _coefficients(p)
    t = t if t.is_floating_point() or t.is_complex() else t.to(_C.float64)
    for i in range(m):
        n = t.shape[0]
        t = _t.cat([t / _t.arange(n, 0, -1, device=t.device), t.new_full((1,), k[i])])
    return _as((p,), t)


def polyfit(x, y, deg, rcond=None, full=False, w=None, cov=False):
    """The coefficients with the least squares; with `full` also of the fit, with `cov` their covariances."""
    t, v = tensor_of(x).to(_C.float64), tensor_of(y)
    v = v if v.is_complex() else v.to(_C.float64)
    if deg < 0:
        raise ValueError("expected deg >= 0")
    if t.dim() != 1:
        raise TypeError("expected 1D vector for x")
    if not t.numel():
        raise TypeError("expected non-empty vector for x")
    if not 1 <= v.dim() <= 2:
        raise TypeError("expected 1D or 2D array for y")
    if t.shape[0] != v.shape[0]:
        raise TypeError("expected x and y to have same length")
    rcond = t.shape[0] * float(finfo(OF_TENSOR[t.dtype]).eps) if rcond is None else rcond
    order = deg + 1
    left = _t.pow(t.unsqueeze(1), _t.arange(deg, -1, -1, device=t.device).to(t.dtype))
    right = v
    if w is not None:
        weights = tensor_of(w).to(t.dtype)
        if weights.dim() != 1:
            raise TypeError("expected a 1-d array for weights")
        if weights.shape[0] != v.shape[0]:
            raise TypeError("expected w and y to have the same length")
        left = left * weights.unsqueeze(1)
        right = v * (weights.unsqueeze(1) if v.dim() == 2 else weights)
    scale = (left * left).sum(0).sqrt()
    c, rest, rank, s = linalg.lstsq(result(left / scale), result(right), rcond)
    c = c._tensor / (scale.unsqueeze(1) if v.dim() == 2 else scale)
    if rank != order and not full:
        _warnings.warn("Polyfit may be poorly conditioned", RankWarning, stacklevel=2)
    if full:
        return result(c), rest, rank, s, rcond
    if cov:
        base = linalg.inv(result(_t.matmul((left / scale).T, left / scale)))._tensor / _t.outer(scale, scale)
        if cov == "unscaled":
            factor = 1
        else:
            if t.shape[0] <= order:
                raise ValueError("the number of data points must exceed order to scale the covariance matrix")
            factor = rest._tensor / (t.shape[0] - order)
        return result(c), result(base * factor if v.dim() == 1 or isinstance(factor, int) else base.unsqueeze(-1) * factor)
    return result(c)


class poly1d:
    """A polynomial of one variable: `p = poly1d([1, 2]); p(3); p * p; p.roots`."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, c_or_r, r=False, variable=None):
        if isinstance(c_or_r, poly1d):
            self.coeffs, self.variable = c_or_r.coeffs, variable or c_or_r.variable
            return
        t = _coefficients(poly(c_or_r) if r else c_or_r)
        if t.dim() > 1:
            raise ValueError("Polynomial must be 1d only.")
        t = _trimmed(t)
        self.coeffs = result(t if t.numel() else _t.zeros(1, dtype=t.dtype))
        self.variable = variable or "x"

    c = coef = coefficients = property(lambda self: self.coeffs)
    order = o = property(lambda self: len(self.coeffs) - 1)
    roots = r = property(lambda self: roots(self.coeffs))

    def __call__(self, val):
        return polyval(self.coeffs, val)

    def __len__(self):
        return self.order

    def __iter__(self):
        return iter(self.coeffs)

    def __getitem__(self, power):
        return self.coeffs[self.order - power] if 0 <= power <= self.order else 0

    def __setitem__(self, power, value):
        if power < 0:
            raise ValueError("Does not support negative powers.")
        if power > self.order:
            t = self.coeffs._tensor
            self.coeffs = result(_t.cat([t.new_zeros(power - self.order), t]))
        self.coeffs[self.order - power] = value

    def __neg__(self):
        return poly1d(-self.coeffs)

    def __add__(self, other):
        return polyadd(self, other)

    __radd__ = __add__

    def __sub__(self, other):
        return polysub(self, other)

    def __rsub__(self, other):
        return polysub(other, self)

    def __mul__(self, other):
        return poly1d(self.coeffs * other) if number_type(other) is not None else polymul(self, other)

    __rmul__ = __mul__

    def __truediv__(self, other):
        return poly1d(self.coeffs / other) if number_type(other) is not None else polydiv(self, other)

    def __rtruediv__(self, other):
        return polydiv(poly1d(other), self)

    def __pow__(self, n):
        if n != int(n) or n < 0:
            raise ValueError("Power to non-negative integers only.")
        r = poly1d([1])
        for _ in range(int(n)):
            r = r * self
        return r

    def __eq__(self, other):
        from ._mathematics import array_equal

        return array_equal(self.coeffs, other.coeffs) if isinstance(other, poly1d) else NotImplemented

    def deriv(self, m=1):
        """The derivative."""
        return polyder(self, m)

    def integ(self, m=1, k=0):
        """The antiderivative."""
        return polyint(self, m, k)

    def __array__(self, dtype=None, copy=None):
        return self.coeffs.__array__(dtype)

    def __repr__(self):
        return f"poly1d({repr(self.coeffs)[6:-1]})"

    def __str__(self):
        """Powers stand on a line above."""
        high, low = "", ""
        for i, c in enumerate(self.coeffs.tolist()):
            k = self.order - i
            if c == 0 and self.order:
                continue
            text = f"{c:.4g}" if isinstance(c, float) else str(c)
            sign = "" if not low else " - " if text.startswith("-") else " + "
            text = text.lstrip("-") if low else text
            term = sign + text + (" " if text and k else "") + (self.variable if k else "")
            low += term
            if k > 1:
                high = high.ljust(len(low)) + str(k)
                low = low.ljust(len(high) - 1)
        return f"{high.rstrip()}\n{low}" if high.strip() else f" \n{low}"


