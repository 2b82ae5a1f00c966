"""dtypes: NumPy's names and objects over those that tensors have, how they are written and how they meet (NEP 50)."""
from __future__ import annotations

import builtins as _b
from typing import Any

from .. import _C

__all__ = [
    "dtype", "generic", "number", "integer", "signedinteger", "unsignedinteger", "inexact", "floating", "complexfloating",
    "bool_", "byte", "ubyte", "short", "ushort", "intc", "uintc", "uint", "ulong", "ulonglong", "uintp",
    "int_", "long", "longlong", "intp", "half", "single", "double", "csingle", "cdouble",
    "finfo", "iinfo", "result_type", "promote_types", "can_cast", "issubdtype", "isdtype", "min_scalar_type", "common_type",
    "mintypecode", "typename", "ScalarType", "sctypeDict", "typecodes",
]

# Name, kind, size in bytes, NumPy's letter, and the letter in `str`.
_TABLE = [
    ("bool", "b", 1, "?"), ("int8", "i", 1, "b"), ("uint8", "u", 1, "B"), ("int16", "i", 2, "h"), ("uint16", "u", 2, "H"),
    ("int32", "i", 4, "i"), ("uint32", "u", 4, "I"), ("int64", "i", 8, "l"), ("uint64", "u", 8, "L"), ("float16", "f", 2, "e"),
    ("bfloat16", "f", 2, "E"), ("float32", "f", 4, "f"), ("float64", "f", 8, "d"), ("complex64", "c", 8, "F"),
    ("complex128", "c", 16, "D"),
]
_ORDER = [row[0] for row in _TABLE]


class _ScalarType(type):
    """Classes of numbers, as NumPy's: `float32(3)` makes an array without dimensions, and such an array is an instance of it."""

    dtype: Any

    def __instancecheck__(cls, value):
        found = getattr(value, "dtype", None)
        if found is None or getattr(value, "shape", None) != ():
            return False
        found = getattr(found, "type", None)
        return found is not None and issubclass(_BY_NAME.get(found.__name__, generic), cls)

    def __eq__(cls, other):
        if cls is other:
            return True
        if getattr(other, "__module__", "") == "numpy" and getattr(other, "__name__", None) == cls.__name__:
            return True
        return NotImplemented  # a dtype has an answer of its own

    def __hash__(cls):
        return hash(cls.__name__)


class generic(metaclass=_ScalarType):
    """The class of all numbers."""

    make: Any = None  # the function `array`, set where it is defined

    def __new__(cls, value=0):
        if not hasattr(cls, "dtype"):
            raise TypeError(f"cannot create '{cls.__name__}' instances: it is a class of several dtypes")
        if isinstance(value, (_b.str, bytes)):
            value = {"b": _b.bool, "f": _b.float, "c": _b.complex}.get(cls.dtype.kind, _b.int)(value)
        number = _C._number_from(value, cls.dtype._tensor_dtype)
        return _C._result_of(generic.make(value, cls.dtype)._tensor) if number is None else number


class number(generic):
    """The class of numbers that are not bool."""


class integer(number):
    """The class of whole numbers."""


class signedinteger(integer):
    """The class of whole numbers with a sign."""


class unsignedinteger(integer):
    """The class of whole numbers from zero on."""


class inexact(number):
    """The class of floating and complex numbers."""


class floating(inexact):
    """The class of floating numbers."""


class complexfloating(inexact):
    """The class of complex numbers."""


class dtype:
    """The dtype of an array, equal to NumPy's of the same name, to its class of numbers and to its names.

    There is one object for each; `dtype(x)` finds it for a name, a class, a dtype of NumPy or of tensors. TypeError for any
    other, and for those that no array has: text, dates, objects and records."""

    __slots__ = ("name", "kind", "itemsize", "char", "type", "_tensor_dtype", "_at")
    name: str
    kind: str
    itemsize: int
    type: Any
    names, fields, subdtype, shape, metadata, hasobject, isnative, isbuiltin, ndim = None, None, None, (), None, False, True, 1, 0
    byteorder = property(lambda self: "|" if self.itemsize == 1 else "=")

    def __new__(cls, dtype=None, align=False, copy=False):
        return FLOAT64 if dtype is None else _found(dtype)

    @property
    def str(self):
        return ("|" if self.itemsize == 1 else "<") + self.kind + _b.str(self.itemsize)

    @property
    def num(self):
        return {"l": 7, "L": 8}.get(self.char, "?bBhHiIlLqQfdgFDG".find(self.char)) if self.char != "e" else 23

    @property
    def alignment(self):
        return self.itemsize // 2 if self.kind == "c" else self.itemsize

    @property
    def base(self):
        return self

    descr = property(lambda self: [("", self.str)])

    @property
    def dtype(self):
        """NumPy's own, which asks for it where it is given one of these."""
        import numpy

        return numpy.dtype(self.name)

    def newbyteorder(self, new_order="S"):
        if new_order not in ("=", "|", "<", "little", "L", "N", "native"):
            raise ValueError("arrays have the byte order of the machine")
        return self

    def __repr__(self):
        return f"dtype('{self.name}')"

    def __str__(self):
        return self.name

    def __eq__(self, other):
        if self is other:
            return True
        if other is None:
            return False
        try:
            return _found(other) is self
        except TypeError:
            return False

    def __hash__(self):
        try:
            return hash(self.dtype)
        except ImportError:
            return hash(self.name)

    def __lt__(self, other):
        other = as_dtype(other)
        return self is not other and promote(self, other) is other

    def __le__(self, other):
        return promote(self, as_dtype(other)) is as_dtype(other)

    def __gt__(self, other):
        return as_dtype(other) < self

    def __ge__(self, other):
        return as_dtype(other) <= self

    def __bool__(self):
        return True

    def __reduce__(self):
        return dtype, (self.name,)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self


_KNOWN: dict[Any, dtype] = {}     # by everything that names one
_BY_NAME: dict[str, Any] = {}     # classes of numbers
OF_TENSOR: dict[Any, dtype] = {}  # by the dtype of a tensor
_PARENTS = {"b": generic, "i": signedinteger, "u": unsignedinteger, "f": floating, "c": complexfloating}

for _name, _kind, _size, _char in _TABLE:
    _native = getattr(_C, _name)
    _d = object.__new__(dtype)
    _d.name, _d.kind, _d.itemsize, _d.char, _d._tensor_dtype, _d._at = _name, _kind, _size, _char, _native, _ORDER.index(_name)
    _d.type = _ScalarType(_name, (_PARENTS[_kind],), {"dtype": _d, "__doc__": f"Numbers of the dtype {_name}.", "__module__": __name__})
    _BY_NAME[_name] = globals()[_name] = _d.type
    _KNOWN[_name] = OF_TENSOR[_native] = _KNOWN[_d.type] = _KNOWN[_native] = _d
    if _char != "E":
        _KNOWN[_char] = _KNOWN[_d.str] = _KNOWN[_d.str[1:]] = _KNOWN["=" + _d.str[1:]] = _KNOWN["|" + _d.str[1:]] = _d
for _cls in (generic, number, integer, signedinteger, unsignedinteger, inexact, floating, complexfloating):
    _BY_NAME[_cls.__name__] = _cls

bool_ = globals()["bool"]
byte, short, intc, int_, long, longlong, intp = (_BY_NAME[n] for n in ("int8", "int16", "int32", "int64", "int64", "int64", "int64"))
half, single, double, csingle, cdouble = (_BY_NAME[n] for n in ("float16", "float32", "float64", "complex64", "complex128"))
ubyte, ushort, uintc, uint, ulong, ulonglong, uintp = (
    _BY_NAME[n] for n in ("uint8", "uint16", "uint32", "uint64", "uint64", "uint64", "uint64"))
for _name, _target in {
        _b.bool: "bool", _b.int: "int64", _b.float: "float64", _b.complex: "complex128", "bool_": "bool", "int": "int64",
        "float": "float64", "complex": "complex128", "q": "int64", "p": "int64", "n": "int64", "long": "int64", "longlong": "int64",
        "intp": "int64", "intc": "int32", "short": "int16", "byte": "int8", "ubyte": "uint8", "ushort": "uint16", "uintc": "uint32",
        "uint": "uint64", "ulong": "uint64", "ulonglong": "uint64", "uintp": "uint64", "Q": "uint64", "P": "uint64", "N": "uint64",
        "half": "float16", "single": "float32",
        "double": "float64", "csingle": "complex64", "cdouble": "complex128", "int_": "int64", "float_": "float64"}.items():
    _KNOWN[_name] = _KNOWN[_target]
__all__ += [*(d.name for d in OF_TENSOR.values())]

BOOL, INT8, INT64 = _KNOWN["bool"], _KNOWN["int8"], _KNOWN["int64"]
FLOAT16, FLOAT32, FLOAT64, COMPLEX64, COMPLEX128 = (_KNOWN[n] for n in ("float16", "float32", "float64", "complex64", "complex128"))


def _found(x) -> dtype:
    if type(x) is dtype:
        return x
    try:
        return _KNOWN[x]
    except (KeyError, TypeError):
        return _understood(x)


def _understood(x) -> dtype:
    name = x if isinstance(x, _b.str) else None
    if name is None and type(x).__module__.partition(".")[0] == "numpy" and hasattr(x, "name") or type(x).__module__ == "ml_dtypes":
        if getattr(x, "byteorder", "=") == ">":
            raise TypeError(f"data type {x!r} is not of this machine's byte order, and arrays have no other")
        name = x.name
    elif isinstance(x, type) and x.__module__.partition(".")[0] in ("numpy", "ml_dtypes"):
        name = x.__name__
    elif name is None and hasattr(x if isinstance(x, type) else type(x), "dtype") and isinstance(x.dtype, dtype):
        return x.dtype
    if name in _KNOWN:
        return _KNOWN[name]
    if isinstance(x, (list, dict)) or name is not None and "," in name:
        raise TypeError(f"data type {x!r}: there are no records; keep an array for each field")
    raise TypeError(f"data type {x!r} not understood")


def as_dtype(x):
    """The dtype that `x` names, or None for None."""
    return None if x is None else _found(x)


def native(x):
    """The dtype of tensors that `x` names, or None for None."""
    return None if x is None else _found(x)._tensor_dtype


# --- how dtypes meet --------------------------------------------------------------------------------------------------------


def _signed(size):
    return _KNOWN[f"int{8 * size}"] if size <= 8 else FLOAT64


def _meet(a: dtype, b: dtype) -> dtype:
    if a is b:
        return a
    kinds = "biufc"
    if kinds.index(a.kind) > kinds.index(b.kind) or (a.kind == b.kind and a.itemsize > b.itemsize):
        a, b = b, a
    if a.kind == "b" or (a.kind == b.kind and a.itemsize < b.itemsize):
        return b
    if a.kind == "i" and b.kind == "u":  # a sign and all of the other's numbers
        return a if a.itemsize > b.itemsize else _signed(2 * b.itemsize)
    if b.kind == "f":
        if a.kind == "f":  # float16 and bfloat16
            return FLOAT32
        least = 2 if a.itemsize == 1 else 4 if a.itemsize == 2 else 8
        return b if b.itemsize >= least else FLOAT32 if least == 4 else FLOAT64
    wide = a.itemsize > 4 or (a.kind in "iu" and a.itemsize > 2)
    return COMPLEX128 if wide else b


PROMOTED_NATIVE = {(a._tensor_dtype, b._tensor_dtype): _meet(a, b)._tensor_dtype for a in OF_TENSOR.values() for b in OF_TENSOR.values()}


def promote(a: dtype, b: dtype) -> dtype:
    return OF_TENSOR[PROMOTED_NATIVE[a._tensor_dtype, b._tensor_dtype]]


def with_number(a: dtype, kind: type) -> dtype:
    """The dtype of an array of `a` and one of Python's numbers of this type, which only says of what kind it is."""
    if kind is _b.bool:
        return a
    if kind is _b.int:
        return INT64 if a is BOOL else a
    if kind is _b.float:
        return FLOAT64 if a.kind in "biu" else a
    return COMPLEX64 if a in (FLOAT16, FLOAT32) or a.name == "bfloat16" else COMPLEX128 if a.kind != "c" else a


def number_type(x):
    """The Python type of a number that has no dtype of its own, else None."""
    kind = type(x)
    return kind if kind in (_b.float, _b.int, _b.bool, _b.complex) else None


def promote_types(type1, type2):
    """The smallest dtype that both can be cast to without loss of kind."""
    return promote(as_dtype(type1), as_dtype(type2))


def result_type(*arrays_and_dtypes):
    """The dtype that an operation of these arrays, dtypes and numbers has."""
    if not arrays_and_dtypes:
        raise ValueError("at least one array or dtype is required")
    found, numbers = None, []
    for x in arrays_and_dtypes:
        kind = number_type(x)
        if kind is not None:
            numbers.append(kind)
            continue
        own = getattr(x, "dtype", None)
        d = as_dtype(own) if own is not None and not isinstance(x, (type, dtype)) else as_dtype(x)
        found = d if found is None else promote(found, d)
    if found is None:
        found = {_b.bool: BOOL, _b.int: INT64, _b.float: FLOAT64, _b.complex: COMPLEX128}[numbers[0]]
        for kind in numbers:
            found = promote(found, _KNOWN[kind])
        one = arrays_and_dtypes[0] if len(numbers) == 1 else 0
        return found if type(one) is not _b.int or -2**63 <= one < 2**63 else min_scalar_type(one)
    for kind in numbers:
        found = with_number(found, kind)
    return found


_SAME_KIND = {"b": 0, "u": 1, "i": 2, "f": 3, "c": 4}


def can_cast(from_, to, casting="safe"):
    """Whether `casting` allows it; TypeError for numbers, whose dtype is not said."""
    if number_type(from_) is not None:
        raise TypeError("can_cast() does not support Python ints, floats, and complex because the result used to depend on the value.")
    a = from_.dtype if hasattr(from_, "shape") and not isinstance(from_, (dtype, type)) else as_dtype(from_)
    a, b = as_dtype(a), as_dtype(to)
    return castable(a, b, casting)


def castable(a: dtype, b: dtype, casting: _b.str) -> _b.bool:
    if casting == "unsafe" or a is b:
        return True
    if casting in ("no", "equiv"):
        return False
    if casting == "safe":
        return promote(a, b) is b
    if casting != "same_kind":
        raise ValueError(f"casting must be one of 'no', 'equiv', 'safe', 'same_kind', or 'unsafe' (got {casting!r})")
    return _SAME_KIND[a.kind] <= _SAME_KIND[b.kind] or promote(a, b) is b


def _class_of(x):
    if isinstance(x, type):
        if isinstance(x, _ScalarType):
            return x
        if x.__module__.partition(".")[0] == "numpy" and x.__name__ in _BY_NAME:
            return _BY_NAME[x.__name__]
    return as_dtype(x).type


def issubdtype(arg1, arg2):
    """Whether the first is the second, or of its class."""
    return issubclass(_class_of(arg1), _class_of(arg2))


_KINDS = {"bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f",
          "complex floating": "c", "numeric": "iufc"}


def isdtype(dtype, kind):
    """Whether the dtype is of a kind of the array API standard, a dtype or one of a tuple of them."""
    d = as_dtype(dtype)
    if isinstance(kind, tuple):
        return _b.any(isdtype(d, k) for k in kind)
    if isinstance(kind, _b.str):
        if kind not in _KINDS:
            raise ValueError(f"kind argument is a string, but {kind!r} is not a known kind name.")
        return d.kind in _KINDS[kind]
    return d is _found(kind) if not isinstance(kind, _ScalarType) or hasattr(kind, "dtype") else issubdtype(d, kind)


def min_scalar_type(a):
    """The smallest dtype that holds this number; the dtype of an array."""
    if getattr(a, "shape", ()) != ():
        return a.dtype
    v = a.item() if hasattr(a, "item") else a
    if isinstance(v, _b.bool):
        return BOOL
    if isinstance(v, _b.int):
        for d in ([d for d in OF_TENSOR.values() if d.kind == "u"] if v >= 0 else []) + [_signed(s) for s in (1, 2, 4, 8)]:
            if iinfo(d).min <= v <= iinfo(d).max:
                return d
        raise TypeError(f"{v} is too large for any dtype")
    wide = _b.max(_b.abs(v.real), _b.abs(v.imag)) if isinstance(v, _b.complex) else _b.abs(v)
    if isinstance(v, _b.complex):
        return COMPLEX64 if not wide < float("inf") or wide <= finfo(FLOAT32).max else COMPLEX128
    return next(d for d in (FLOAT16, FLOAT32, FLOAT64) if not wide < float("inf") or wide <= finfo(d).max or d is FLOAT64)


def common_type(*arrays):
    """The class of floating or complex numbers that these arrays share."""
    found = FLOAT16
    for a in arrays:
        if a.dtype.kind == "b":
            raise TypeError("can't get common type for non-numeric array")
        found = promote(found, FLOAT64 if a.dtype.kind in "iu" else a.dtype)
    return found.type


typecodes = {"Character": "c", "Integer": "bhilqnp", "UnsignedInteger": "BHILQNP", "Float": "efd", "Complex": "FD",
             "AllInteger": "bBhHiIlLqQnNpP", "AllFloat": "efdFD", "All": "?bhilqnpBHILQNPefdFD"}
ScalarType = (_b.int, _b.float, _b.complex, _b.bool, _b.bytes, _b.str, memoryview, *(d.type for d in OF_TENSOR.values()))
sctypeDict = {k: v.type for k, v in _KNOWN.items() if isinstance(k, _b.str)}


def mintypecode(typechars, typeset="GDFgdf", default="d"):
    """The letter of the smallest type of `typeset` that holds all of these."""
    chars = [t if isinstance(t, _b.str) else t.dtype.char for t in typechars]
    inside = [t for t in chars if t in typeset]
    if not inside:
        return default
    if "F" in inside and "d" in inside:
        return "D"
    return _b.min(inside, key="GDFgdf".index)


_TEXTS = {"?": "bool", "b": "signed char", "B": "unsigned char", "h": "short", "H": "unsigned short", "i": "integer",
          "I": "unsigned integer", "l": "long integer", "L": "unsigned long integer", "q": "long long integer", "f": "single precision",
          "d": "double precision", "g": "long precision", "F": "complex single precision", "D": "complex double precision",
          "S": "string", "U": "unicode", "V": "void", "O": "object", "S1": "character"}


def typename(char):
    """What a letter of a type stands for."""
    return _TEXTS[char]


class finfo:
    """Limits of floating numbers; of complex ones those of their parts."""

    def __init__(self, dtype):
        d = as_dtype(dtype if isinstance(dtype, (type, _b.str)) or not hasattr(dtype, "shape") or isinstance(dtype, globals()["dtype"])
                     else dtype.dtype)
        if d.kind not in "fc":
            raise ValueError(f"data type {dtype!r} not inexact")
        d = {"complex64": FLOAT32, "complex128": FLOAT64}.get(d.name, d)
        exponent, mantissa = {"float16": (5, 10), "bfloat16": (8, 7), "float32": (8, 23), "float64": (11, 52)}[d.name]
        self.dtype, self.bits, self.nmant, self.nexp, self.iexp = d, d.itemsize * 8, mantissa, exponent, exponent
        self.eps, self.epsneg, self.machep, self.negep = 2.0**-mantissa, 2.0**(-mantissa - 1), -mantissa, -mantissa - 1
        self.maxexp, self.minexp = 2**(exponent - 1), 2 - 2**(exponent - 1)
        self.max = 2.0**(self.maxexp - 1) * (2 - self.eps)
        self.min = -self.max
        self.smallest_normal = self.tiny = 2.0**self.minexp
        self.smallest_subnormal = 2.0**self.minexp * self.eps
        self.precision = _b.int(mantissa * 0.30103)
        self.resolution = 10.0**-self.precision
        for name in ("eps", "epsneg", "max", "min", "smallest_normal", "tiny", "smallest_subnormal", "resolution"):
            number = _C._number_from(getattr(self, name), d._tensor_dtype)
            if number is not None:
                setattr(self, name, number)

    def __str__(self):
        rule = "-" * 63
        return (f"Machine parameters for {self.dtype}\n{rule}\nprecision = {self.precision}   resolution = {self.resolution!s}\n"
                f"machep = {self.machep}   eps =        {self.eps!s}\nnegep =  {self.negep}   epsneg =     {self.epsneg!s}\n"
                f"minexp = {self.minexp}   tiny =       {self.tiny!s}\nmaxexp = {self.maxexp}   max =        {self.max!s}\n"
                f"nexp =   {self.nexp}   min =        -max\n"
                f"smallest_normal = {self.smallest_normal!s}   smallest_subnormal = {self.smallest_subnormal!s}\n{rule}\n")

    def __repr__(self):
        return f"finfo(resolution={self.resolution!r}, min={self.min!r}, max={self.max!r}, dtype={self.dtype})"


class iinfo:
    """Limits of whole numbers."""

    def __init__(self, int_type):
        d = as_dtype(int_type.dtype if not isinstance(int_type, type) and hasattr(int_type, "shape") and hasattr(int_type, "item")
                     else type(int_type) if isinstance(int_type, _b.int) else int_type)
        if d.kind not in "iu":
            raise ValueError(f"Invalid integer data type {d.kind!r}.")
        self.dtype, self.kind, self.bits = d, d.kind, d.itemsize * 8
        self.min = 0 if d.kind == "u" else -2**(self.bits - 1)
        self.max = 2**(self.bits - (d.kind == "i")) - 1

    def __str__(self):
        rule = "-" * 63
        return f"Machine parameters for {self.dtype}\n{rule}\nmin = {self.min}\nmax = {self.max}\n{rule}\n"

    def __repr__(self):
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


LIMITS = {d._tensor_dtype: (iinfo(d).min, iinfo(d).max) for d in OF_TENSOR.values() if d.kind in "iu"}
