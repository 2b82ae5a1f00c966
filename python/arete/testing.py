"""For tests: `assert_close` compares, `make_tensor` makes inputs."""
from __future__ import annotations

import cmath
import collections.abc
import numbers
from typing import Any, Callable, List, Optional, Tuple, Union

from . import _C, _operators
from ._grad_mode import no_grad

__all__ = ["assert_close", "make_tensor"]

_TOLERANCES = {
    "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7), "complex32": (1e-3, 1e-5),
    "complex64": (1.3e-6, 1e-5), "complex128": (1e-7, 1e-7),
}
Path = Tuple[Any, ...]


def _name(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


class _Comparison:
    """The settings of one call of assert_close; `compare` goes through containers."""

    def __init__(self, rtol: Optional[float], atol: Optional[float], equal_nan: bool, check_device: bool, check_dtype: bool,
                 check_layout: bool, check_stride: bool, allow_subclasses: bool, msg: Union[None, str, Callable[[str], str]]) -> None:
        if (rtol is None) != (atol is None):
            raise ValueError("give rtol and atol both, or none of them")
        self.rtol, self.atol, self.equal_nan = rtol, atol, equal_nan
        self.check_device, self.check_dtype, self.check_layout, self.check_stride = check_device, check_dtype, check_layout, check_stride
        self.allow_subclasses, self.msg = allow_subclasses, msg

    def fail(self, text: str, path: Path, error: type = AssertionError) -> None:
        if path:
            text += "\n\nThe failure occurred for item " + "".join(f"[{step!r}]" for step in path)
        if error is AssertionError and self.msg is not None:
            text = self.msg(text) if callable(self.msg) else self.msg
        raise error(text)

    def tolerances(self, *dtypes: str) -> Tuple[float, float]:
        if self.rtol is not None:
            return self.rtol, self.atol  # type: ignore[return-value]
        found = [_TOLERANCES.get(d, (0.0, 0.0)) for d in dtypes]
        return max(r for r, _ in found), max(a for _, a in found)

    def compare(self, a: Any, b: Any, path: Path) -> None:
        if _is_sequence(a) and _is_sequence(b):
            if len(a) != len(b):
                self.fail(f"The length of the sequences mismatch: {len(a)} != {len(b)}", path)
            for i, (x, y) in enumerate(zip(a, b)):
                self.compare(x, y, (*path, i))
        elif isinstance(a, collections.abc.Mapping) and isinstance(b, collections.abc.Mapping):
            if set(a) != set(b):
                missing, extra = [k for k in b if k not in a], [k for k in a if k not in b]
                self.fail("The keys of the mappings do not match:\n"
                          f"Missing keys in the actual mapping: {missing}\nAdditional keys in the actual mapping: {extra}", path)
            for key in a:
                self.compare(a[key], b[key], (*path, key))
        elif a is None or b is None:
            if a is not b:
                self.fail(f"None mismatch: {a!r} is not {b!r}", path)
        elif isinstance(a, bool) and isinstance(b, bool):
            if a is not b:
                self.fail(f"Booleans mismatch: {a!r} is not {b!r}", path)
        elif _is_number(a) and _is_number(b):
            self.numbers(a, b, path)
        else:
            self.tensors(self.tensor(a, b, path), self.tensor(b, a, path), path)

    def tensor(self, value: Any, other: Any, path: Path) -> Any:
        if isinstance(value, _C.Tensor):
            if isinstance(other, _C.Tensor) and (self.allow_subclasses or type(value) is type(other)):
                return value.detach()
        elif type(value).__module__ == "numpy" and hasattr(value, "dtype") and type(value) is type(other):
            return _operators.as_tensor(value)
        self.fail(f"No comparison of a {type(value).__name__} and a {type(other).__name__} is possible", path, TypeError)

    def numbers(self, a: Any, b: Any, path: Path) -> None:
        if self.check_dtype and type(a) is not type(b):
            self.fail(f"The (d)types do not match: {type(a)} != {type(b)}", path)
        kinds = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}
        rtol, atol = self.tolerances(*(kinds.get(type(x), "float64") for x in (a, b)))
        if a == b or (self.equal_nan and cmath.isnan(a) and cmath.isnan(b)):
            return
        diff, allowed = abs(a - b), atol + rtol * abs(b)
        if cmath.isfinite(diff) and diff <= allowed:
            return
        self.fail("Scalars are not " + self._scalar_text(a, b, float(diff), float(diff) / abs(b) if b else float("inf"), rtol, atol), path)

    @staticmethod
    def _scalar_text(a: Any, b: Any, diff: float, relative: float, rtol: float, atol: float) -> str:
        if rtol == 0 and atol == 0:
            return f"equal!\n\nExpected {b} but got {a}.\nAbsolute difference: {diff}\nRelative difference: {relative}"
        return (f"close!\n\nExpected {b} but got {a}.\nAbsolute difference: {diff} (up to {atol} allowed)\n"
                f"Relative difference: {relative} (up to {rtol} allowed)")

    def tensors(self, a: Any, b: Any, path: Path) -> None:
        if tuple(a.shape) != tuple(b.shape):
            self.fail(f"The values for attribute 'shape' do not match: {a.shape} != {b.shape}.", path)
        if self.check_layout and getattr(a, "layout", None) != getattr(b, "layout", None):
            self.fail(f"The values for attribute 'layout' do not match: {a.layout} != {b.layout}.", path)
        if self.check_stride and tuple(a.stride()) != tuple(b.stride()):
            self.fail(f"The values for attribute 'stride()' do not match: {tuple(a.stride())} != {tuple(b.stride())}.", path)
        if self.check_device and a.device != b.device:
            self.fail(f"The values for attribute 'device' do not match: {a.device} != {b.device}.", path)
        if self.check_dtype and a.dtype != b.dtype:
            self.fail(f"The values for attribute 'dtype' do not match: {a.dtype} != {b.dtype}.", path)
        rtol, atol = self.tolerances(_name(a.dtype), _name(b.dtype))
        with no_grad():
            self.values(a, b.to(a.device), rtol, atol, path)

    def complex_values(self, a: Any, b: Any, rtol: float, atol: float) -> Tuple[Any, Any, Any]:
        """(which are close, differences, sizes) of complex tensors, element by element in Python."""
        pairs = list(zip(a.reshape(-1).tolist(), b.reshape(-1).tolist()))

        def near(x: complex, y: complex) -> bool:
            if x == y or (self.equal_nan and cmath.isnan(x) and cmath.isnan(y)):
                return True
            return bool(rtol or atol) and cmath.isfinite(x - y) and abs(x - y) <= atol + rtol * abs(y)

        columns = [near(x, y) for x, y in pairs], [abs(x - y) for x, y in pairs], [abs(complex(y)) for _, y in pairs]
        close, diff, size = (_C.tensor(c, dtype=_C.bool if i == 0 else _C.float64).reshape(a.shape) for i, c in enumerate(columns))
        return close, diff, size

    def values(self, a: Any, b: Any, rtol: float, atol: float, path: Path) -> None:
        if a.numel() == 0:
            return
        wide = _C.complex128 if a.is_complex() or b.is_complex() else \
            _C.float64 if a.is_floating_point() or b.is_floating_point() else _C.int64
        if wide == _C.complex128:
            close, diff, size = self.complex_values(a, b, rtol, atol)
        else:
            a, b = a.to(wide), b.to(wide)
            close, diff, size = a == b, (a - b).abs(), b.abs()
            if rtol or atol:
                near = diff <= atol + rtol * size
                if wide == _C.float64:
                    near = _operators.logical_and(near, diff < float("inf"))
                close = _operators.logical_or(close, near)
            if self.equal_nan and wide == _C.float64:
                close = _operators.logical_or(close, _operators.logical_and(a != a, b != b))
        if bool(close.all()):
            return
        wrong = _operators.logical_not(close)
        if not a.shape:
            d, s = float(diff), float(size)
            self.fail("Scalars are not " + self._scalar_text(a.item(), b.item(), d, d / s if s else float("inf"), rtol, atol), path)
        count = int(wrong.sum())
        zero = _operators.zeros_like(diff)
        diff = _operators.where(wrong, diff, zero)
        floating = diff.to(_C.float64)
        relative = _operators.where(wrong, floating / size.to(_C.float64), _operators.zeros_like(floating))
        exact = rtol == 0 and atol == 0
        lines = [f"Tensor-likes are not {'equal' if exact else 'close'}!", "",
                 f"Mismatched elements: {count} / {a.numel()} ({count / a.numel():.1%})"]
        for kind, values, limit in (("absolute", diff, atol), ("relative", relative, rtol)):
            value, index = _greatest(values)
            lines.append(f"Greatest {kind} difference: {value} at index {index}" + ("" if exact else f" (up to {limit} allowed)"))
        self.fail("\n".join(lines), path)


def _greatest(values: Any) -> Tuple[Any, Tuple[int, ...]]:
    """The greatest element (NaN counts as greatest) and its index."""
    flat = values.reshape(-1)
    nans = flat != flat
    at = int((nans if bool(nans.any()) else flat).to(_C.float64).argmax()) if flat.is_floating_point() else int(flat.argmax())
    index: List[int] = []
    rest = at
    for n in reversed(values.shape):
        index.insert(0, rest % n)
        rest //= n
    return flat[at].item(), tuple(index)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, collections.abc.Sequence) and not isinstance(value, (str, bytes))


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Number) and not hasattr(value, "dtype")


def assert_close(actual: Any, expected: Any, *, allow_subclasses: bool = True, rtol: Optional[float] = None, atol: Optional[float] = None,
                 equal_nan: bool = False, check_device: bool = True, check_dtype: bool = True, check_layout: bool = True,
                 check_stride: bool = False, msg: Union[None, str, Callable[[str], str]] = None) -> None:
    """AssertionError unless |actual - expected| <= atol + rtol * |expected| everywhere, or both are equal.

    Tensors, NumPy arrays, numbers, and sequences and mappings of them. The tolerances depend on the dtypes (float32: rtol=1.3e-6,
    atol=1e-5; float64: 1e-7 both; integers: 0); give both to change them. Shapes must be the same, and unless switched off dtypes and
    devices. The message tells how many elements differ, by how much and where; `msg` replaces it or is a function of it.

    >>> arete.testing.assert_close(arete.ones(2), arete.tensor([1.0, 1.000001]))
    >>> arete.testing.assert_close(arete.ones(2), arete.ones(3))
    Traceback (most recent call last):
    AssertionError: The values for attribute 'shape' do not match: arete.Size([2]) != arete.Size([3]).
    """
    _Comparison(rtol, atol, equal_nan, check_device, check_dtype, check_layout, check_stride, allow_subclasses, msg).compare(
        actual, expected, ())


def make_tensor(*shape: Any, dtype: Any, device: Any, low: Optional[float] = None, high: Optional[float] = None,
                requires_grad: bool = False, noncontiguous: bool = False, exclude_zero: bool = False, memory_format: Any = None) -> Any:
    """A tensor of random values in [low, high): by default [-9, 9) for floating and complex dtypes, [-9, 10) for signed integers,
    [0, 10) for uint8, both values for bool.

    `exclude_zero` replaces zeros by the smallest value that is none; `noncontiguous` spreads the elements over twice the memory.

    >>> x = arete.testing.make_tensor(2, 3, dtype=arete.float32, device="cpu", low=0, high=1)
    >>> x.shape, bool((x >= 0).all())
    (arete.Size([2, 3]), True)
    """
    if len(shape) == 1 and isinstance(shape[0], (list, tuple)):
        shape = tuple(shape[0])
    name = _name(dtype)
    floating = name.startswith(("float", "bfloat", "complex"))
    if requires_grad and not floating:
        raise ValueError(f"requires_grad=True with the dtype {dtype}")
    if noncontiguous and memory_format is not None:
        raise ValueError("give noncontiguous or memory_format, not both")
    default = {"bool": (0, 2), "uint8": (0, 10)}.get(name, (-9, 9) if floating else (-9, 10))
    limits = (0, 2) if name == "bool" else None
    if not floating and name != "bool":
        info = _operators.iinfo(dtype)
        limits = (info.min, min(info.max + 1, 2 ** 63 - 1))
    elif floating:
        info = _operators.finfo(dtype)
        limits = (info.min, info.max)
    low, high = default[0] if low is None else low, default[1] if high is None else high
    if low != low or high != high or not low < high:
        raise ValueError(f"low must be less than high, got low={low} and high={high}")
    low, high = max(low, limits[0]), min(high, limits[1])  # type: ignore[index]
    if low >= high:
        raise ValueError(f"the dtype {dtype} has no value between low and high")
    if floating:
        result = _floats(shape, name, dtype, device, low, high)
    else:
        low, high = -(-low // 1), -(-high // 1)
        result = _operators.randint(int(low), max(int(high), int(low) + 1), shape, dtype=_C.int64, device=device).to(dtype)
    if exclude_zero and name.startswith("complex"):
        small = complex(_operators.finfo(dtype).tiny)
        result = _C.tensor([z or small for z in result.reshape(-1).tolist()], dtype=dtype, device=device).reshape(result.shape)
    elif exclude_zero and name != "bool":
        small = _operators.finfo(dtype).tiny if floating else 1
        result = _operators.where(result == 0, _operators.full((), small, dtype=dtype, device=device), result)
    elif exclude_zero:
        result = _operators.ones_like(result)
    if noncontiguous and result.numel() > 1:
        result = _operators.stack([result, result], -1)[..., 0]
    elif memory_format is not None:
        result = result.clone(memory_format=memory_format)
    return result.requires_grad_(requires_grad)


def _floats(shape: Any, name: str, dtype: Any, device: Any, low: float, high: float) -> Any:
    def uniform() -> Any:
        part = _operators.rand(shape, dtype=_C.float64, device=device)
        return low * (1 - part) + high * part  # the difference of the limits need not be representable

    if name.startswith("complex"):
        pairs = zip(uniform().reshape(-1).tolist(), uniform().reshape(-1).tolist())
        return _C.tensor([complex(*pair) for pair in pairs], dtype=dtype, device=device).reshape(shape)
    result = uniform().to(dtype)
    below = _operators.finfo(dtype)
    step = abs(high) * below.eps / 2 or below.tiny
    top = _operators.full((), high - step, dtype=_C.float64, device=device).to(dtype)
    if name.startswith("float8"):
        return result
    return _operators.where(result >= high, top, result)  # rounding may have reached the limit
