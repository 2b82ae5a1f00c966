"""How arrays and numbers are printed, with NumPy's options."""
from __future__ import annotations

import builtins as _b
import contextlib as _contextlib
import decimal as _decimal
import math as _math
import struct as _struct

from .. import _C, _operators as _t
from ._array import ndarray, rounded, tensor_of
from ._types import BOOL, COMPLEX128, FLOAT64, INT64, OF_TENSOR, finfo

__all__ = [
    "array2string", "array_repr", "array_str", "set_printoptions", "get_printoptions", "printoptions", "format_float_positional",
    "format_float_scientific", "base_repr", "binary_repr", "errstate", "seterr", "geterr", "seterrcall", "geterrcall", "setbufsize",
    "getbufsize",
]

_options = {"edgeitems": 3, "threshold": 1000, "floatmode": "maxprec", "precision": 8, "suppress": False, "linewidth": 75, "nanstr": "nan",
            "infstr": "inf", "sign": "-", "formatter": None, "legacy": False, "override_repr": None}
_MODES = ("fixed", "unique", "maxprec", "maxprec_equal")


def _checked(options):
    r = {k: v for k, v in options.items() if v is not None}
    if r.get("floatmode", "fixed") not in _MODES:
        raise ValueError(f"floatmode option must be one of {', '.join(map(repr, _MODES))}")
    if r.get("sign", "-") not in ("-", "+", " "):
        raise ValueError("sign option must be one of ' ', '+', or '-'")
    if r.get("legacy"):
        raise NotImplementedError("there are no older ways of printing")
    if not isinstance(r.get("threshold", 0), (int, float)):
        raise TypeError("threshold must be numeric")
    if r.get("threshold", 0) != r.get("threshold", 0):
        raise ValueError("threshold must be non-NAN, try sys.maxsize for untruncated representation")
    return r


def set_printoptions(
    precision=None,
    threshold=None,
    edgeitems=None,
    linewidth=None,
    suppress=None,
    nanstr=None,
    infstr=None,
    formatter=None,
    sign=None,
    floatmode=None,
    *,
    legacy=None,
    override_repr=None,
):
    """How arrays are printed from now on."""
    _options.update(_checked(dict(precision=precision, threshold=threshold, edgeitems=edgeitems, linewidth=linewidth, suppress=suppress,
                                  nanstr=nanstr, infstr=infstr, sign=sign, floatmode=floatmode, legacy=legacy)))
    _options["formatter"], _options["override_repr"] = formatter, override_repr
    if floatmode is None and precision is not None and _options["floatmode"] not in _MODES:
        _options["floatmode"] = "maxprec"


def get_printoptions():
    """How arrays are printed."""
    return dict(_options)


@_contextlib.contextmanager
def printoptions(*args, **kwargs):
    """How arrays are printed inside a block."""
    before = dict(_options)
    try:
        set_printoptions(*args, **kwargs)
        yield dict(_options)
    finally:
        _options.update(before)


# --- digits --------------------------------------------------------------------------------------------------------------------

_EXACT = _decimal.Context(prec=1200)
_PACK = {"float16": "e", "float32": "f"}


def _shortest(x, dtype):
    """The decimal with the fewest digits that is this number of its dtype and of no other."""
    if dtype not in _PACK and dtype != "bfloat16":
        return _decimal.Decimal(repr(x))
    for digits in range(1, 10):
        text = f"{x:.{digits - 1}e}"
        if dtype == "bfloat16":
            same = float(_t.full((), float(text), dtype=_C.bfloat16)) == x
        else:
            try:
                same = _struct.unpack(_PACK[dtype], _struct.pack(_PACK[dtype], float(text)))[0] == x
            except OverflowError:
                same = False
        if same:
            return _decimal.Decimal(text)
    return _decimal.Decimal(repr(x))


def _rounded(x, dtype, places, unique, least=0):
    """A decimal with at most so many places after the point, and at least so many digits of the number itself."""
    unit = _decimal.Decimal(1).scaleb(-places) if places is not None else None
    short = _shortest(x, dtype) if unique else None
    if short is not None and (unit is None or -short.as_tuple().exponent <= places):
        if -short.as_tuple().exponent >= least:
            return short
        unit = _decimal.Decimal(1).scaleb(-least)
    return _decimal.Decimal(x).quantize(unit, _decimal.ROUND_HALF_EVEN, _EXACT)


def _trim(text, trim, least=0):
    """Without zeros at the end of what follows the point, but for `least` of them, as NumPy's letters say."""
    head, _, tail = text.partition(".")
    if trim != "k":
        tail = tail[:least] + tail[least:].rstrip("0")
    if trim == "0" and not tail:
        tail = "0"
    return head if trim == "-" and not tail else f"{head}.{tail}"


def _positional(x, dtype, precision, unique, trim, plus, least=0, fractional=True):
    if fractional:
        d = _rounded(x, dtype, precision, unique, least)
    else:
        d = _shortest(x, dtype) if unique else _decimal.Decimal(x)
        if precision is not None and len(d.as_tuple().digits) > precision:
            d = _decimal.Context(prec=_b.max(precision, 1), rounding=_decimal.ROUND_HALF_EVEN).create_decimal(_decimal.Decimal(x))
    text = f"{d:f}"
    if "." not in text:
        text += "."
    head, _, tail = text.partition(".")
    wanted = least if trim != "k" or unique and not least else precision if not unique and precision is not None else least
    tail = tail.ljust(wanted or 0, "0")
    text = _trim(f"{head}.{tail}", "." if trim == "k" and unique and not least else trim, least)
    if _math.copysign(1, x) < 0 and not text.startswith("-"):
        text = "-" + text
    return "+" + text if plus and not text.startswith("-") else text


def _scientific(x, dtype, precision, unique, trim, plus, least=0, exponent_digits=2):
    if x == 0:
        d, exponent = _decimal.Decimal(0), 0
    else:
        d = _shortest(x, dtype) if unique else _decimal.Decimal(x)
        exponent = d.adjusted()
        digits = len(d.as_tuple().digits) - 1
        if digits < least or precision is not None and (not unique or digits > precision):
            d = _decimal.Context(prec=(least if digits < least else precision) + 1, rounding=_decimal.ROUND_HALF_EVEN).create_decimal(
                _decimal.Decimal(x)
            )
            exponent = d.adjusted()
        d = d.scaleb(-exponent, _EXACT)
    head, _, tail = f"{_b.abs(d):f}".partition(".")
    tail = tail.ljust(least or (precision if trim == "k" and not unique else 0) or 0, "0")
    text = _trim(f"{head}.{tail}", "." if trim == "k" and unique and not least else trim, least or 0)
    sign = "-" if _math.copysign(1, x) < 0 else "+" if plus else ""
    return f"{sign}{text}e{'-' if exponent < 0 else '+'}{_b.abs(exponent):0{_b.max(exponent_digits, 2)}d}"


def _number_of(x):
    t = tensor_of(x)
    return t.item(), OF_TENSOR[t.dtype].name


def format_float_positional(x, precision=None, unique=True, fractional=True, trim="k", sign=False, pad_left=None, pad_right=None,
                            min_digits=None):
    """A number in decimal notation."""
    v, dtype = _number_of(x)
    _check_digits(precision, unique, min_digits)
    if not _math.isfinite(v):
        return "nan" if v != v else "-inf" if v < 0 else "+inf" if sign else "inf"
    text = _positional(float(v), dtype, precision, unique, trim, sign, min_digits or 0, fractional)
    return _padded(text, pad_left, pad_right)


def format_float_scientific(x, precision=None, unique=True, trim="k", sign=False, pad_left=None, exp_digits=None, min_digits=None):
    """A number in scientific notation."""
    v, dtype = _number_of(x)
    _check_digits(precision, unique, min_digits)
    if not _math.isfinite(v):
        return "nan" if v != v else "-inf" if v < 0 else "+inf" if sign else "inf"
    return _padded(_scientific(float(v), dtype, precision, unique, trim, sign, min_digits or 0, exp_digits or 2), pad_left, None)


def _check_digits(precision, unique, min_digits):
    if precision is not None and precision < 0 or min_digits is not None and min_digits < 0:
        raise ValueError("precision must be >= 0")
    if not unique and precision is None:
        raise ValueError("in non-unique mode `precision` must be supplied")
    if min_digits is not None and precision is not None and min_digits > precision:
        raise ValueError("min_digits must be less than or equal to precision")


def _padded(text, left, right):
    head, point, tail = text.partition(".")
    if left is not None:
        head = head.rjust(left)
    if right is not None:
        tail = tail.ljust(right)
    return head + point + tail


def _in_own_type(dtype):
    """How the dtype rounds a number."""
    kind = {16: "e", 32: "f"}.get(finfo(dtype).bits)
    return (lambda x: rounded(x, kind)) if kind else lambda x: x


class _Floats:
    """One width and notation for all floating numbers of an array."""

    def __init__(self, values, dtype, options, sign):
        self.dtype, self.options, self.plus = dtype, options, sign == "+"
        mode, precision = options["floatmode"], options["precision"]
        precision = None if mode == "unique" else precision
        finite = [v for v in values if _math.isfinite(v)]
        sizes = [_b.abs(v) for v in finite if v]
        cutoff = 10.0 ** _b.min(8, finfo(dtype).precision)
        own = _in_own_type(dtype)
        self.exponential = bool(sizes) and (_b.max(sizes) >= cutoff or (not options["suppress"] and (
            _b.min(sizes) < own(0.0001) or own(_b.max(sizes) / _b.min(sizes)) > 1000.0)))
        self.unique = mode != "fixed"
        trim = "." if self.unique else "k"
        self.least, self.trim, self.precision = 0, ".", precision
        self.left = self.right = 0
        if finite and self.exponential:
            texts = [_scientific(v, dtype, precision, self.unique, trim, self.plus) for v in finite]
            parts = [(*t.partition("e")[0].split("."), t.partition("e")[2]) for t in texts]
            self.exponent = _b.max(len(p[2]) for p in parts) - 1
            self.trim, self.precision = "k", _b.max(len(p[1]) for p in parts)
            self.least = self.precision
            self.left = _b.max(len(p[0]) for p in parts)
            self.right = self.exponent + 2 + self.precision
        elif finite:
            parts = [
                _positional(v, dtype, precision, self.unique, trim, self.plus, precision if not self.unique else 0).split(".")
                for v in finite
            ]
            self.left, self.right = (_b.max(len(p[i]) for p in parts) for i in (0, 1))
            if mode in ("fixed", "maxprec_equal"):
                self.precision = self.least = self.right
                self.trim = "k"
        if sign == " " and not _b.any(_math.copysign(1, v) < 0 for v in finite):
            self.left += 1
        if len(finite) != len(values):
            negative = sign != "-" or _b.any(v == -_math.inf for v in values)
            offset = self.right + 1
            self.left = _b.max(self.left, len(options["nanstr"]) - offset, len(options["infstr"]) + negative - offset)

    def __call__(self, v):
        if not _math.isfinite(v):
            text = ("+" if self.plus else "") + self.options["nanstr"] if v != v else (
                "-" if v < 0 else "+" if self.plus else "") + self.options["infstr"]
            return text.rjust(self.left + self.right + 1)
        if self.exponential:
            return _padded(
                _scientific(v, self.dtype, self.precision, self.unique, self.trim, self.plus, self.least, self.exponent), self.left, None
            )
        return _padded(_positional(v, self.dtype, self.precision, self.unique, self.trim, self.plus, self.least), self.left, self.right)


class _Complex:
    def __init__(self, values, dtype, options, sign):
        part = "float32" if dtype == "complex64" else "float64"
        self.real = _Floats([v.real for v in values], part, options, sign)
        self.imag = _Floats([v.imag for v in values], part, options, "+")

    def __call__(self, v):
        imag = self.imag(v.imag)
        n = len(imag.rstrip())
        return self.real(v.real) + imag[:n] + "j" + imag[n:]


def _whole_numbers(values, sign):
    texts = [f"{v:+d}" if sign == "+" else f"{v: d}" if sign == " " and _b.any(w >= 0 for w in values) else str(v) for v in values]
    width = _b.max((len(t) for t in texts), default=0)
    return lambda v: (f"{v:+d}" if sign == "+" else str(v)).rjust(width)


def _formatter(values, dtype, options):
    own = options["formatter"] or {}
    kinds = {"b": ("bool",), "i": ("int", "int_kind"), "u": ("int", "int_kind"), "f": ("float", "float_kind"),
             "c": ("complexfloat", "complex_kind")}[dtype.kind]
    for name in (*kinds, "numpystr", "all"):
        if own.get(name) is not None:
            return own[name]
    if dtype.kind == "b":
        return lambda v: str(v).rjust(5)
    if dtype.kind in "iu":
        return _whole_numbers(values, options["sign"])
    return (_Complex if dtype.kind == "c" else _Floats)(values, dtype.name, options, options["sign"])


def _flat(x):
    return [v for row in x for v in _flat(row)] if isinstance(x, list) else [x]


def _corners(t, n):
    """Of each long axis the first and last n."""
    for axis, size in enumerate(t.shape):
        if size > 2 * n:
            t = _t.cat([t.narrow(axis, 0, n), t.narrow(axis, size - n, n)], axis) if n else t.narrow(axis, 0, 0)
    return t


def array2string(a, max_line_width=None, precision=None, suppress_small=None, separator=" ", prefix="", *, formatter=None, threshold=None,
                 edgeitems=None, sign=None, floatmode=None, suffix="", legacy=None):
    """The text of an array."""
    options = {
        **_options,
        **_checked(
            dict(
                precision=precision,
                suppress=suppress_small,
                threshold=threshold,
                edgeitems=edgeitems,
                sign=sign,
                floatmode=floatmode,
                linewidth=max_line_width,
                formatter=formatter,
                legacy=legacy,
            )
        ),
    }
    t = tensor_of(a).detach()
    if not t.numel():
        return "[]"
    edge, width = options["edgeitems"], options["linewidth"] - len(suffix)
    summary = t.numel() > options["threshold"]
    shape = tuple(t.shape)
    data = (_corners(t, edge) if summary else t).tolist()
    text = _formatter(_flat(data), OF_TENSOR[t.dtype], options)
    if not shape:
        word = text(data)
        return word.strip() if OF_TENSOR[t.dtype] is BOOL else word

    def rows(data, axis, indent, room):
        """The text of one axis; a line that would be too long goes on below."""
        cut = summary and shape[axis] > 2 * edge
        parts = data if axis == len(shape) - 1 else [rows(d, axis + 1, indent + " ", room - 1) for d in data]
        if axis < len(shape) - 1:
            join = separator.rstrip() + "\n" * (len(shape) - 1 - axis) + indent
            if cut:
                parts = parts[:edge] + ["..."] + parts[edge:]
            return "[" + join.join(parts) + "]"
        words = [text(v) for v in parts]
        if cut:
            words = words[:edge] + ["..."] + words[edge:]
        lines, line = [], indent
        for i, word in enumerate(words):
            last = i == len(words) - 1
            limit = room - _b.max(len(separator.rstrip()), 1)
            if len(line) + len(word) > limit and len(line) > len(indent):
                lines.append(line.rstrip())
                line = indent
            line += word + ("" if last else separator)
        lines.append(line)
        return "[" + "\n".join(lines)[len(indent):] + "]"

    return rows(data, 0, " " + " " * len(prefix), width)


def array_repr(arr, max_line_width=None, precision=None, suppress_small=None):
    """What `repr` shows."""
    if _options["override_repr"] is not None:
        return _options["override_repr"](arr)
    width = _options["linewidth"] if max_line_width is None else max_line_width
    text = "array(" + array2string(arr, width, precision, suppress_small, ", ", "array(", suffix=")")
    extras, d = [], arr.dtype
    if (arr.size == 0 and arr.shape != (0,)) or arr.size > _options["threshold"]:
        extras.append(f"shape={arr.shape}")
    if not (d is FLOAT64 or d is INT64 or d is BOOL or d is COMPLEX128) or arr.size == 0:
        extras.append(f"dtype={d.name}")
    if not extras:
        return text + ")"
    more, text = ", ".join(extras) + ")", text + ","
    last = len(text) - (text.rfind("\n") + 1)
    return text + ("\n" + " " * 6 if last + len(more) + 1 > width else " ") + more


def array_str(a, max_line_width=None, precision=None, suppress_small=None):
    """What `str` and `print` show."""
    t = tensor_of(a)
    if not t.dim():
        return _scalar(t)
    return array2string(a, max_line_width, precision, suppress_small, " ")


def _scalar(t):
    """A number as NumPy prints it."""
    v, d = t.detach().item(), OF_TENSOR[t.dtype]
    if d.kind == "f":
        return _float(v, d.name)
    if d.kind == "c":
        part = "float32" if d is not COMPLEX128 else "float64"
        short = lambda x: (s[:-2] if (s := _float(x, part)).endswith(".0") else s)  # noqa: E731
        if v.real == 0 and _math.copysign(1, v.real) > 0:
            return short(v.imag) + "j"
        imag = short(v.imag)
        return f"({short(v.real)}{'' if imag[0] in '+-' else '+'}{imag}j)"
    return str(v)


def _float(v, dtype):
    if not _math.isfinite(v):
        return "nan" if v != v else "-inf" if v < 0 else "inf"
    if v == 0 or 1e-4 <= _b.abs(v) < 1e16:
        return _positional(v, dtype, None, True, "0", False)
    return _scientific(v, dtype, None, True, "-", False)


def _repr(self):
    if not self._is_number:
        return array_repr(self)
    name, text = self.dtype.name, array_str(self)
    return f"np.{text}_" if name == "bool" else f"np.{name}({text[1:-1] if text[0] == '(' else text})"


ndarray.__repr__ = _repr  # type: ignore[method-assign]
ndarray.__str__ = lambda self: array_str(self)  # type: ignore[method-assign]


def base_repr(number, base=2, padding=0):
    """A whole number in a base up to 36."""
    if not 2 <= base <= 36:
        raise ValueError("Bases greater than 36 not handled in base_repr." if base > 36 else "Bases less than 2 not handled in base_repr.")
    digits, n, r = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", _b.abs(int(number)), []
    while n:
        n, d = divmod(n, base)
        r.append(digits[d])
    r += "0" * padding
    return ("-" if number < 0 else "") + "".join(reversed(r or ["0"]))


def binary_repr(num, width=None):
    """A whole number in base 2; a negative one with a width as its complement."""
    num = int(num)
    if width is None:
        return f"{num:b}"
    text = f"{num:b}" if num >= 0 else f"{(1 << width) + num:b}" if -num <= 1 << (width - 1) else None if width else None
    if text is None or len(text) > width:
        raise ValueError(f"Insufficient bit width={width} provided for binwidth={len(f'{_b.abs(num):b}') + (num < 0)}")
    return text.rjust(width, "0" if num >= 0 else "1")


# --- errors of floating numbers: nothing is reported, infinities and NaN come as they are ----------------------------------------

_KINDS = ("divide", "over", "under", "invalid")


def _ignores(given):
    for kind, what in given.items():
        if kind not in ("all", *_KINDS):
            raise TypeError(f"seterr() got an unexpected keyword argument {kind!r}")
        if what not in (None, "ignore", "warn", "raise", "call", "print", "log"):
            raise ValueError(f"invalid error handling {what!r}")
        if what not in (None, "ignore", "warn"):
            raise NotImplementedError(f"{kind}={what!r}: errors of floating numbers are not looked for, since a GPU reports none")


class errstate(_contextlib.ContextDecorator):
    """A block in which errors of floating numbers are ignored, as they are everywhere; `raise` and `call` are refused.
    `warn` stands for NumPy's default and warns of nothing."""

    def __init__(self, *, call=None, **kwargs):
        if call is not None:
            raise NotImplementedError("call: errors of floating numbers are not looked for")
        _ignores(kwargs)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


def seterr(all=None, divide=None, over=None, under=None, invalid=None):
    """What becomes of errors of floating numbers: nothing else than `ignore` is there."""
    _ignores(dict(all=all, divide=divide, over=over, under=under, invalid=invalid))
    return geterr()


def geterr():
    """What becomes of errors of floating numbers."""
    return dict.fromkeys(_KINDS, "ignore")


def seterrcall(func):
    """Refused but for None: errors of floating numbers call nothing."""
    if func is not None:
        raise NotImplementedError("seterrcall(): errors of floating numbers are not looked for")


def geterrcall():
    """None: errors of floating numbers call nothing."""


def getbufsize():
    """The size of ufuncs' buffers, in elements: NumPy's number, which nothing here depends on."""
    return 8192


def setbufsize(size):
    """Refused but for the size that there is: operands are cast without buffers."""
    if size != getbufsize():
        raise NotImplementedError("setbufsize(): there are no buffers")
    return getbufsize()
