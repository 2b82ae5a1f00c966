"""Power series by their coefficients, lowest power first."""
from __future__ import annotations

import builtins as _b

from ... import _C, _operators as _t
from .. import _polynomials as _old, _printing, linalg as _linalg
from .._array import ndarray, tensor_of, wrap
from .._types import number_type
from .._ufuncs import _ALL

__all__ = [
    "polyzero",
    "polyone",
    "polyx",
    "polydomain",
    "polyline",
    "polyadd",
    "polysub",
    "polymulx",
    "polymul",
    "polydiv",
    "polypow",
    "polyval",
    "polyval2d",
    "polyval3d",
    "polyvalfromroots",
    "polyder",
    "polyint",
    "polyfromroots",
    "polyvander",
    "polyvander2d",
    "polyfit",
    "polytrim",
    "polyroots",
    "polycompanion",
    "Polynomial",
]
polyzero, polyone, polyx, polydomain = (wrap(_t.tensor(v, dtype=_C.float64)) for v in ([0.0], [1.0], [0.0, 1.0], [-1.0, 1.0]))


def _series(c):
    t = tensor_of(c)
    t = t.reshape(1) if not t.dim() else t
    if not t.numel():
        raise ValueError("Coefficient array is empty")
    if t.dim() != 1:
        raise ValueError("Coefficient array is not 1-d")
    return t if t.is_floating_point() or t.is_complex() else t.to(_C.float64)


def _high(c):
    """The coefficients with the highest power first."""
    return wrap(_series(c).flip(0))


def _low(p):
    return wrap(_short(p._tensor.flip(0)))


def _short(t):
    """Without zeros of high powers."""
    found = _t.nonzero(t)
    return t[: int(found[-1]) + 1 if found.numel() else 1]


def polytrim(c, tol=0):
    """Without small coefficients of high powers."""
    if tol < 0:
        raise ValueError("tol must be non-negative")
    t = _series(c)
    found = _t.nonzero(t.abs() > tol)
    return wrap(t[: int(found[-1]) + 1] if found.numel() else t[:1] * 0)


def polyline(off, scl):
    """off + scl * x."""
    return wrap(_series([off, scl] if scl != 0 else [off]))


def polyadd(c1, c2):
    """The sum."""
    return _low(_old.polyadd(_high(c1), _high(c2)))


def polysub(c1, c2):
    """The difference."""
    return _low(_old.polysub(_high(c1), _high(c2)))


def polymul(c1, c2):
    """The product."""
    return _low(_old.polymul(_high(c1), _high(c2)))


def polymulx(c):
    """The product with x."""
    t = _series(c)
    return wrap(_t.cat([t.new_zeros(1), t])) if t.numel() > 1 or t[0] != 0 else wrap(t)


def polydiv(c1, c2):
    """Quotient and remainder."""
    if not _series(c2)[-1]:
        raise ZeroDivisionError("the divisor's highest coefficient is zero")
    q, r = _old.polydiv(_high(c1), _high(c2))
    return _low(q), _low(r)


def polypow(c, pow, maxpower=None):
    """A power."""
    if pow != int(pow) or pow < 0:
        raise ValueError("Power must be a non-negative integer.")
    if maxpower is not None and pow > maxpower:
        raise ValueError("Power is too large")
    r = wrap(_t.ones(1, dtype=_C.float64))
    for _ in range(int(pow)):
        r = polymul(r, c)
    return r


def polyval(x, c, tensor=True):
    """The value at x; of several series, in columns, each."""
    t, v = tensor_of(c), tensor_of(x)
    t = t if t.is_floating_point() or t.is_complex() else t.to(_C.float64)
    t = t.reshape(1) if not t.dim() else t
    if tensor:
        t = t.reshape(tuple(t.shape) + (1,) * v.dim())
    v = v if v.is_floating_point() or v.is_complex() else v.to(_C.float64)
    r = t[-1] + v * 0
    for i in range(t.shape[0] - 2, -1, -1):
        r = t[i] + r * v
    return wrap(r)


def polyval2d(x, y, c):
    """The value of a series of two variables."""
    return polyval(y, polyval(x, c), False)


def polyval3d(x, y, z, c):
    """The value of a series of three variables."""
    return polyval(z, polyval(y, polyval(x, c), False), False)


def polyvalfromroots(x, r, tensor=True):
    """The value at x of the product of x - r."""
    t, v = tensor_of(r), tensor_of(x)
    t = t.reshape(1) if not t.dim() else t
    if tensor:
        t = t.reshape(tuple(t.shape) + (1,) * v.dim())
    return wrap((v - t).prod(0))


def polyder(c, m=1, scl=1, axis=0):
    """The derivative, m times."""
    if m < 0:
        raise ValueError("The order of derivation must be non-negative")
    t = tensor_of(c).movedim(axis, 0)
    t = t if t.is_floating_point() or t.is_complex() else t.to(_C.float64)
    for _ in range(m):
        n = t.shape[0]
        t = t[1:] * _t.arange(1, n, device=t.device).reshape((-1,) + (1,) * (t.dim() - 1)) * scl if n > 1 else t[:1] * 0
    return wrap(t.movedim(0, axis))


def polyint(c, m=1, k=[], lbnd=0, scl=1, axis=0):  # noqa: B006
    """The antiderivative, m times, with constants."""
    if m < 0:
        raise ValueError("The order of integration must be non-negative")
    k = [k] if number_type(k) is not None else list(k)
    if len(k) > m:
        raise ValueError("Too many integration constants")
    t = tensor_of(c).movedim(axis, 0)
    t = t if t.is_floating_point() or t.is_complex() else t.to(_C.float64)
    for i in range(m):
        t = t * scl
        n = t.shape[0]
        t = _t.cat([t[:1] * 0, t / _t.arange(1, n + 1, device=t.device).reshape((-1,) + (1,) * (t.dim() - 1))])
        first = (k[i] if i < len(k) else 0) - polyval(lbnd, wrap(t))._tensor
        t = _t.cat([(t[0] + first).unsqueeze(0), t[1:]])
    return wrap(t.movedim(0, axis))


def polyfromroots(roots):
    """The series with these zeros and the highest coefficient 1."""
    return wrap(_old.poly(roots)._tensor.flip(0))


def polyvander(x, deg):
    """The powers of x up to deg."""
    if deg < 0:
        raise ValueError("deg must be non-negative")
    t = tensor_of(x)
    t = t if t.is_floating_point() or t.is_complex() else t.to(_C.float64)
    t = t.reshape(1) if not t.dim() else t
    return wrap(_t.stack([t**i for i in range(deg + 1)], -1))


def polyvander2d(x, y, deg):
    """The products of powers of x and y."""
    a, b = polyvander(x, deg[0])._tensor, polyvander(y, deg[1])._tensor
    return wrap((a.unsqueeze(-1) * b.unsqueeze(-2)).reshape(tuple(a.shape[:-1]) + (-1,)))


def polyfit(x, y, deg, rcond=None, full=False, w=None):
    """The coefficients with the least squares."""
    if number_type(deg) is None:
        raise NotImplementedError("polyfit(): deg is a number; terms by a list of powers are not chosen")
    r = _old.polyfit(x, y, deg, rcond, full, w)
    return (wrap(r[0]._tensor.flip(0)), list(r[1:])) if full else wrap(r._tensor.flip(0))


def polycompanion(c):
    """The companion matrix."""
    t = _series(c)
    n = t.shape[0] - 1
    if n < 1:
        raise ValueError("Series must have maximum degree of at least 1.")
    r = _t.diag_embed(_t.ones(n - 1, dtype=t.dtype, device=t.device), -1) if n > 1 else t.new_zeros(1, 1)
    r[:, -1] -= t[:-1] / t[-1]
    return wrap(r)


def polyroots(c):
    """The zeros, sorted."""
    t = _short(_series(c))
    if t.numel() < 2:
        return wrap(t[:0])
    from .._searching import sort

    return sort(_linalg.eigvals(polycompanion(wrap(t))))


_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_style = "unicode"


def _check_style(style, where=""):
    if style not in ("ascii", "unicode"):
        raise ValueError(f"Unsupported format string '{style}'{where}. Valid options are 'ascii' and 'unicode'")


def set_default_printstyle(style):
    """How polynomials are printed: "unicode" (2.0·x²) or "ascii" (2.0 x**2)."""
    global _style
    _check_style(style)
    _style = style


def _coefficient(v, within=False):
    """The text of a coefficient by the options of printing; those of powers of ten have parentheses within a sum."""
    if isinstance(v, complex):
        return str(v)
    options = _printing.get_printoptions()
    if v != v or _b.abs(v) == float("inf"):
        return options["nanstr"] if v != v else "-" * (v < 0) + options["infstr"]
    fixed = options["floatmode"] == "fixed"
    how = {"precision": options["precision"], "unique": not fixed, "trim": "k" if fixed else "0", "sign": options["sign"] == "+"}
    if v and not 10.0 ** _b.min(0, -(options["precision"] - 1) // 2) <= _b.abs(v) < 1e8:
        text = _printing.format_float_scientific(v, **how)
        return f"({text})" if within else text
    return _printing.format_float_positional(v, fractional=True, **how)


class Polynomial:
    """A power series in x, mapped from `domain` to `window`."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, coef, domain=None, window=None, symbol="x"):
        if not symbol.isidentifier():
            raise ValueError("Symbol string must be a valid Python identifier")
        self.coef = wrap(_series(coef))
        self.domain = wrap(tensor_of(polydomain if domain is None else domain, float))
        self.window = wrap(tensor_of(polydomain if window is None else window, float))
        self.symbol = symbol

    def _new(self, coef):
        return Polynomial(coef, self.domain, self.window, self.symbol)

    def _other(self, other):
        if not isinstance(other, Polynomial):
            return other
        if not (
            _b.bool((self.domain._tensor == other.domain._tensor).all()) and _b.bool((self.window._tensor == other.window._tensor).all())
        ):
            raise TypeError("Domains differ")
        if self.symbol != other.symbol:
            raise ValueError("Polynomial symbols differ")
        return other.coef

    def mapparms(self):
        """Offset and scale of the map from domain to window."""
        (a, b), (c, d) = self.domain.tolist(), self.window.tolist()
        return (b * c - a * d) / (b - a), (d - c) / (b - a)

    def __call__(self, arg):
        off, scl = self.mapparms()
        if isinstance(arg, Polynomial):
            r = arg * 0
            for c in reversed(self.coef.tolist()):
                r = r * (arg * scl + off) + c
            return r
        return polyval(_ALL["add"](_ALL["multiply"](arg, scl), off), self.coef)

    def degree(self):
        """The highest power."""
        return len(self.coef) - 1

    def __len__(self):
        return len(self.coef)

    def __iter__(self):
        return iter(self.coef)

    def __neg__(self):
        return self._new(-self.coef)

    def __add__(self, other):
        return self._new(polyadd(self.coef, self._other(other)))

    __radd__ = __add__

    def __sub__(self, other):
        return self._new(polysub(self.coef, self._other(other)))

    def __rsub__(self, other):
        return self._new(polysub(other, self.coef))

    def __mul__(self, other):
        return self._new(polymul(self.coef, self._other(other)))

    __rmul__ = __mul__

    def __truediv__(self, other):
        if number_type(other) is None and not (isinstance(other, ndarray) and not other.ndim):
            raise TypeError("unsupported types for true division: a polynomial is divided by numbers; // divides by polynomials")
        return self._new(self.coef / other)

    def __floordiv__(self, other):
        return self._new(polydiv(self.coef, self._other(other))[0])

    def __mod__(self, other):
        return self._new(polydiv(self.coef, self._other(other))[1])

    def __divmod__(self, other):
        return tuple(self._new(c) for c in polydiv(self.coef, self._other(other)))

    def __pow__(self, n):
        return self._new(polypow(self.coef, n))

    def __eq__(self, other):
        return isinstance(other, Polynomial) and self.coef.shape == other.coef.shape and _b.bool(
            (self.coef._tensor == other.coef._tensor).all()) and _b.bool((self.domain._tensor == other.domain._tensor).all())

    def copy(self):
        """The same again."""
        return self._new(self.coef.copy())

    def deriv(self, m=1):
        """The derivative."""
        return self._new(polyder(self.coef, m, self.mapparms()[1]))

    def integ(self, m=1, k=[], lbnd=None):  # noqa: B006
        """The antiderivative."""
        off, scl = self.mapparms()
        return self._new(polyint(self.coef, m, k, 0 if lbnd is None else off + scl * lbnd, 1 / scl))

    def roots(self):
        """The zeros."""
        off, scl = self.mapparms()
        return (polyroots(self.coef) - off) / scl

    def trim(self, tol=0):
        """Without small coefficients of high powers."""
        return self._new(polytrim(self.coef, tol))

    def truncate(self, size):
        """The lowest `size` powers."""
        if size != int(size) or size < 1:
            raise ValueError("size must be a positive integer")
        return self._new(self.coef[: int(size)])

    def cutdeg(self, deg):
        """The powers up to `deg`."""
        return self.truncate(deg + 1)

    def linspace(self, n=100, domain=None):
        """n numbers of the domain, and the values there."""
        from .._creation import linspace

        a, b = (self.domain if domain is None else wrap(tensor_of(domain))).tolist()
        x = linspace(a, b, n)
        return x, self(x)

    def convert(self, domain=None, kind=None, window=None):
        """The same polynomial with another domain and window."""
        if kind not in (None, Polynomial):
            raise NotImplementedError("convert(): there are no other series")
        return self(Polynomial.identity(domain, window, self.symbol))

    @classmethod
    def identity(cls, domain=None, window=None, symbol="x"):
        """The polynomial x."""
        p = cls([0.0, 1.0], domain, window, symbol)
        off, scl = p.mapparms()
        return cls([-off / scl, 1 / scl], domain, window, symbol)

    @classmethod
    def basis(cls, deg, domain=None, window=None, symbol="x"):
        """x to the power of deg."""
        if deg != int(deg) or deg < 0:
            raise ValueError("deg must be non-negative integer")
        return cls([0.0] * int(deg) + [1.0], domain, window, symbol)

    @classmethod
    def fromroots(cls, roots, domain=[], window=None, symbol="x"):  # noqa: B006
        """The polynomial with these zeros."""
        r = tensor_of(roots)
        domain = [float(r.min()), float(r.max())] if domain is None else domain if len(domain) else None
        p = cls([0.0, 1.0], domain, window, symbol)
        off, scl = p.mapparms()
        return cls(polyfromroots(wrap(off + scl * r))._tensor / scl ** len(r), domain, window, symbol)

    @classmethod
    def fit(cls, x, y, deg, domain=None, rcond=None, full=False, w=None, window=None, symbol="x"):
        """The polynomial with the least squares."""
        t = tensor_of(x).to(_C.float64)
        if domain is None:
            low, high = float(t.min()), float(t.max())
            domain = [low, high] if low != high else [low - 1, high + 1]
        elif not isinstance(domain, ndarray) and not len(domain):
            domain = polydomain
        p = cls([0.0, 1.0], domain, window, symbol)
        off, scl = p.mapparms()
        r = polyfit(wrap(off + scl * t), y, deg, rcond, full, w)
        return (cls(r[0], domain, window, symbol), r[1]) if full else cls(r, domain, window, symbol)

    def __repr__(self):
        return (f"Polynomial({repr(self.coef)[6:-1]}, domain={repr(self.domain)[6:-1]}, window={repr(self.window)[6:-1]}, "
                f"symbol='{self.symbol}')")

    def __str__(self):
        return format(self, _style)

    def __format__(self, style):
        _check_style(style or _style, " passed to <class 'numpy.polynomial.polynomial.Polynomial'>.__format__")
        unicode, width = (style or _style) == "unicode", max(_printing.get_printoptions()["linewidth"], 1)
        off, scl = self.mapparms()
        inner = f"{'' if scl == 1 else _coefficient(scl, True)}{self.symbol}"
        inner = f"({_coefficient(off, True)} + {inner})" if off != 0 else f"({inner})" if scl != 1 else inner
        c = self.coef.tolist()
        r, line = _coefficient(c[0]), 0
        for i, v in enumerate(c[1:], 1):
            negative = not (v.real, v.imag) >= (0, 0)
            power = "" if i == 1 else str(i).translate(_RAISED) if unicode else f"**{i}"
            term = f"{'-' if negative else '+'} {_coefficient(-v if negative else v, True)}{'·' if unicode else ' '}{inner}{power}"
            # Two more columns are for the sign of the term behind it.
            full = len(r) - line + 1 + len(term) + (2 if i < len(c) - 1 else 0) >= width
            sign, rest = term.split(" ", 1)
            r += f" {sign}" + ("\n" if full else " ")
            line = len(r) if full else line
            r += rest
        return r
