"""Kernels from Python functions of scalars, on every device, each one pass over the tensors, with gradients of any order.

The functions run once, on symbols: `if` and `max(a, b)` of Python do not work in them, `where` and `maximum` of this module do. Numbers
among the arguments may change from call to call; numbers that a function takes from elsewhere are part of the kernel.

    >>> import arete
    >>> from arete import kernels
    >>> x = arete.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> kernels.apply_program(lambda x, a: kernels.exp(-a * x), x, 0.0)
    tensor([[1., 1.],
            [1., 1.]])
    >>> kernels.apply_reduce(lambda x: x * x, x, dim=1)
    tensor([ 5., 25.])
    >>> def rms_norm(rows, x, eps):
    ...     return x * kernels.rsqrt(rows.mean(x * x) + eps)
    >>> kernels.apply_rows(rms_norm, x, 0.0, dim=1)
    tensor([[0.6325, 1.2649],
            [0.8485, 1.1314]])
    >>> weight, scale = arete.tensor([[1, -2], [3, 4]], dtype=arete.int8), arete.tensor([[0.5, 0.25]])
    >>> kernels.apply_matmul(x, weight, right=(lambda w, s: w * s, scale), result=lambda y: kernels.maximum(y, 0.0))
    tensor([[3.5000, 1.5000],
            [7.5000, 2.5000]])
"""
from __future__ import annotations

from . import _C
from ._C import Tensor
from ._kernels import ElementwiseKernel, In, InOut, Out, RawKernel, RawModule, ReductionKernel, SourceModule, checked

_e = _C._expr

for _name in ("abs acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh digamma erf erfc erfinv exp exp2 expm1 floor fmod "
              "lgamma log log10 log1p log2 pow reciprocal round rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc where").split():
    globals()[_name] = getattr(_e, _name)
maximum, minimum, isnan, isinf = _e.max, _e.min, _e.is_nan, _e.is_inf

__all__ = ["ElementwiseKernel", "In", "InOut", "Out", "RawKernel", "RawModule", "ReductionKernel", "SourceModule", "apply_matmul",
           "apply_program", "apply_reduce", "apply_rows", "checked"]


class _RowsOf:
    """What a function of rows gets as its first argument: reductions of the row that the element is in."""

    def __init__(self, rows):
        self._rows = rows

    def sum(self, value):
        return self._rows._reduce("sum", value, True)

    def prod(self, value):
        """A product, which has no gradient."""
        return self._rows._reduce("prod", value, True)

    def max(self, value, gradient=True):
        """The largest value; without `gradient` a constant to the derivative, as where it is taken off to avoid overflow."""
        return self._rows._reduce("max", value, gradient)

    def min(self, value, gradient=True):
        return self._rows._reduce("min", value, gradient)

    def all(self, value):
        return self._rows._reduce("all", value, True)

    def any(self, value):
        return self._rows._reduce("any", value, True)

    def mean(self, value):
        total = self.sum(value if value.is_floating else value.cast(_C.float32))
        return total / self._rows._length().cast(total.dtype)

    def length(self):
        """The number of elements of a row, as float64."""
        return self._rows._length()


class _Call:
    """The arguments of one call: tensors, and numbers in the dtypes in which the kernel computes with them."""

    def __init__(self, name, args):
        self.name = name
        self.is_tensor = [isinstance(a, Tensor) for a in args]
        self.tensors = [a for a in args if isinstance(a, Tensor)]
        self.numbers = [a for a in args if not isinstance(a, Tensor)]
        if not self.tensors:
            raise TypeError(f"{name}(): at least one argument must be a tensor")
        for n in self.numbers:
            if not isinstance(n, (bool, int, float)):
                raise TypeError(f"{name}(): arguments must be tensors or numbers, not {type(n).__name__}")
        self.dtypes = [t.dtype for t in self.tensors]
        for t in self.dtypes:
            if t.is_complex:
                raise TypeError(f"{name}(): kernels compute with real numbers, not {t}")
        self.promoted = self.dtypes[0]
        for t in self.dtypes[1:]:
            self.promoted = _C.promote_types(self.promoted, t)
        wide = _C.float64 in self.dtypes
        self.params = [_C.bool if isinstance(n, bool) else self._of_int(n) if isinstance(n, int) else _C.float64 if wide else _C.float32
                       for n in self.numbers]

    def _of_int(self, n):
        return _C.int32 if -(1 << 31) <= n < 1 << 31 and _C.int64 not in self.dtypes else _C.int64

    def in_order(self, values):
        """Values of tensors, then of numbers, as the function takes them."""
        tensors, numbers = iter(values), iter(values[len(self.tensors):])
        return [next(tensors if t else numbers) for t in self.is_tensor]

    def typed(self, results):
        """Results with their dtypes: that of the tensors together, where it is of the result's kind."""
        many = isinstance(results, (tuple, list))
        pairs = []
        for value in results if many else [results]:
            if not isinstance(value, _e.Value):
                raise TypeError(f"{self.name}(): the function returned {type(value).__name__}, not what it computed from its arguments")
            pairs.append((value, self._dtype_of(value)))
        if not pairs:
            raise TypeError(f"{self.name}(): the function returned nothing")
        return pairs, many

    def _dtype_of(self, value):
        own, shared = value.dtype, self.promoted
        if own is _C.bool or own.is_floating_point is not shared.is_floating_point or shared is _C.bool:
            return own
        return own if own in (_C.float64, _C.int64) else shared


def _name_of(function):
    name = getattr(function, "__name__", "kernel")
    return name if name.isidentifier() else "kernel"


def apply_program(function, *args):
    """The function of scalars, for every element of the tensors among the arguments, which broadcast. It returns a value, or several as a
    tuple or list."""
    call = _Call("apply_program", args)
    many = False

    def definition(*values):
        nonlocal many
        pairs, many = call.typed(function(*call.in_order(values)))
        return pairs

    results = _e.trace(definition, call.dtypes, call.params, _name_of(function))(call.tensors, call.numbers)
    return tuple(results) if many else results[0]


def apply_rows(function, *args, dim=-1):
    """The same of rows, along `dim` (one, several, None: all): function(rows, ...) may use sums, means, maxima and so on of its row, as in
    rows.sum(x * x). Results that are one value for a row have size 1 along `dim`."""
    call = _Call("apply_rows", args)
    many = False

    def definition(rows, *values):
        nonlocal many
        pairs, many = call.typed(function(_RowsOf(rows), *call.in_order(values)))
        return pairs

    dims = [] if dim is None else [dim] if isinstance(dim, int) else list(dim)
    results = _e.trace_rows(definition, call.dtypes, call.params, _name_of(function))(call.tensors, call.numbers, dims)
    return tuple(results) if many else results[0]


def apply_reduce(function, *args, dim=None, keepdim=False, reduce="sum"):
    """The function of scalars, reduced over `dim` (one, several, None: all) by "sum", "mean", "prod", "amax", "amin", "all" or "any"."""
    reductions = {"sum": _RowsOf.sum, "mean": _RowsOf.mean, "prod": _RowsOf.prod, "amax": _RowsOf.max, "amin": _RowsOf.min,
                  "all": _RowsOf.all, "any": _RowsOf.any}
    if reduce not in reductions:
        raise ValueError(f"apply_reduce(): reduce must be one of {', '.join(reductions)}, not {reduce!r}")

    def body(rows, *values):
        return reductions[reduce](rows, function(*values))

    body.__name__ = _name_of(function)
    kept = apply_rows(body, *args, dim=dim)
    if keepdim:
        return kept
    return kept.squeeze(tuple(range(kept.dim())) if dim is None else dim if isinstance(dim, int) else tuple(dim))


def apply_matmul(a, b, *, left=None, right=None, result=None):
    """result(left(a) @ right(b)): a product of matrices, or batches of them, whose elements go through functions of scalars on their way in
    and out. Each is a function, or a tuple of one and what else it is given: tensors that broadcast to its matrix, and numbers. So a weight
    may be stored as integers with scales, and a bias and an activation cost no pass of their own. Both operands must have one dtype behind
    their functions; a function of integers and floating tensors gives the latter's. With four vectors or fewer on one side it is one
    kernel, which reads the matrices as they are stored; with a gradient wanted each part is a call of its own."""
    name = "apply_matmul"

    def program(part, first):
        if part is None:
            return (None, [], []), first.dtype
        function, *others = part if isinstance(part, tuple) else (part,)
        if not callable(function):
            raise TypeError(f"{name}(): left, right and result are functions, not {type(function).__name__}")
        call = _Call(name, [first, *others])

        def definition(*values):
            pairs, many = call.typed(function(*call.in_order(values)))
            if many:
                raise TypeError(f"{name}(): the function of a matrix gives one value")
            return pairs

        traced = _e.trace(definition, call.dtypes, call.params, _name_of(function))
        return (traced, call.tensors[1:], call.numbers), traced._output

    for matrix in (a, b):
        if not isinstance(matrix, Tensor):
            raise TypeError(f"{name}(): the operands must be tensors, not {type(matrix).__name__}")
    of_a, dtype = program(left, a)
    of_b, _ = program(right, b)
    of_result, _ = program(result, a.new_empty(0, dtype=dtype))
    return _e.apply_matmul(a, b, of_a, of_b, of_result, name)
