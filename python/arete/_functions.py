"""Functions of torch's that are no single record: other defaults, lists of arguments, several results."""
from __future__ import annotations

import builtins
import math as _math

from . import _C, _ops
from ._C import Tensor, dtype as _dtype

# Names given here replace records of the same name; those of METHODS become methods of Tensor, too.
METHODS: dict[str, object] = {}


def _also_method(function):
    METHODS[function.__name__] = function
    return function


# ---- what a thing is


def is_tensor(obj) -> bool:
    """Whether `obj` is a Tensor."""
    return isinstance(obj, Tensor)


def is_floating_point(input: Tensor) -> bool:
    return input.is_floating_point()


def is_complex(input: Tensor) -> bool:
    return input.is_complex()


def is_nonzero(input: Tensor) -> bool:
    return builtins.bool(input)


def numel(input: Tensor) -> int:
    """The number of elements."""
    return input.numel()


def is_storage(obj) -> bool:
    return False


@_also_method
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether both have the same shape and elements."""
    if input.shape != other.shape:
        return False
    return builtins.bool((input == other).all())


@_also_method
def isclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False):
    """Element by element: |input - other| <= atol + rtol |other|, or equal."""
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{input.dtype} did not match {other.dtype}")
    if rtol < 0 or atol < 0:
        raise RuntimeError("rtol and atol must not be negative")
    close = input == other
    if equal_nan and input.is_floating_point():
        close = close | (input.isnan() & other.isnan())
    if rtol == 0 and atol == 0:
        return close
    a, b = (input, other) if input.is_floating_point() else (input.to(_C.get_default_dtype()),
                                                             other.to(_C.get_default_dtype()))
    difference = (a - b).abs()
    return close | (difference.isfinite() & (difference <= atol + rtol * b.abs()))


@_also_method
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether isclose() holds everywhere."""
    return builtins.bool(isclose(input, other, rtol, atol, equal_nan).all())


# ---- from data


def as_tensor(data, dtype=None, device=None):
    """`data` itself if it is a fitting tensor, a tensor over its memory if it is a fitting array, else a copy."""
    if isinstance(data, Tensor):
        return data.to(device or data.device, dtype or data.dtype)
    if type(data).__module__ == "numpy" and hasattr(data, "ndim") and data.ndim > 0:
        from ._tensor import from_numpy

        t = from_numpy(data)
        return t.to(device or "cpu", dtype or t.dtype)
    return _C.tensor(data, dtype=dtype, device=device)


def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=False):
    """As as_tensor; also takes objects with DLPack. `copy` asks for or forbids a copy."""
    if isinstance(obj, Tensor) or not hasattr(obj, "__dlpack__") or type(obj).__module__ == "numpy":
        t = as_tensor(obj, dtype, device)
    else:
        from ._tensor import from_dlpack

        t = from_dlpack(obj).to(device or "cpu" if device else _C.device("cpu"), dtype) if device else from_dlpack(obj)
        t = t.to(dtype) if dtype else t
    if copy and isinstance(obj, Tensor) and t is obj or copy:
        t = t.clone()
    t = t.detach()
    return t.requires_grad_() if requires_grad else t


def scalar_tensor(s, *, dtype=None, device=None, requires_grad=False):
    """A 0-d tensor, of the default dtype."""
    return _C.tensor(s, dtype=dtype or _C.get_default_dtype(), device=device, requires_grad=requires_grad)


def complex(real: Tensor, imag: Tensor):  # noqa: A001
    raise NotImplementedError("complex(): there is no arithmetic of complex numbers yet")


def _new(name):
    def method(self, *size, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False):
        if len(size) == 1 and not isinstance(size[0], int):
            size = tuple(size[0])
        return globals_of_package()[name](size, dtype=dtype or self.dtype, device=device or self.device,
                                          requires_grad=requires_grad)

    method.__name__ = f"new_{name}"
    return method


def globals_of_package():
    import sys

    return vars(sys.modules[__package__])


for _name in ("zeros", "ones", "empty"):
    METHODS[f"new_{_name}"] = _new(_name)


def _new_full(self, size, fill_value, *, dtype=None, device=None, requires_grad=False):
    return _ops.full(size, fill_value, dtype=dtype or self.dtype, device=device or self.device,
                     requires_grad=requires_grad)  # fmt: skip


def _new_tensor(self, data, *, dtype=None, device=None, requires_grad=False):
    return _C.tensor(data, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)


METHODS["new_full"] = _new_full
METHODS["new_tensor"] = _new_tensor


def normal(mean, std=1.0, size=None, *, generator=None, dtype=None, device=None, out=None, requires_grad=False,
           layout=None, pin_memory=False):  # fmt: skip
    """Normal random numbers; mean and std are numbers (with size) or tensors."""
    if size is not None:
        r = _ops.normal_sized(float(mean), float(std), size, generator=generator, dtype=dtype, device=device)
    else:
        m, s = mean, std
        shape = _ops.broadcast_shape(m, s) if hasattr(_ops, "broadcast_shape") else (
            (m + s).shape if isinstance(m, Tensor) or isinstance(s, Tensor) else ())
        like = m if isinstance(m, Tensor) else s
        if isinstance(s, Tensor) and s.numel() and builtins.bool((s < 0).any()):
            raise RuntimeError("normal expects all elements of std >= 0.0")
        r = _ops.randn(tuple(shape), dtype=like.dtype, device=like.device, generator=generator) * s + m
    if out is not None:
        return out.copy_(r)
    return r.requires_grad_() if requires_grad else r


# ---- shapes


def einsum(equation, *operands):
    """Products and sums by Einstein's notation: einsum("ij,jk->ik", a, b)."""
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = operands[0]
    return _ops.einsum(equation, list(operands))


def meshgrid(*tensors, indexing="ij"):
    """Coordinates of a grid, one tensor for each axis."""
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tensors[0]
    return _ops.meshgrid(list(tensors), indexing=indexing or "ij")


def broadcast_shapes(*shapes):
    """The shape to which all of these broadcast."""
    rank = builtins.max((1 if isinstance(s, int) else len(s) for s in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        shape = (shape,) if isinstance(shape, int) else shape
        for i, n in enumerate(reversed(shape)):
            if n < 0:
                raise RuntimeError(f"Trying to create tensor with negative dimension ({n}): ({n})")
            if n == 1 or n == result[-1 - i]:
                continue
            if result[-1 - i] != 1:
                raise RuntimeError("Shape mismatch: objects cannot be broadcast to a single shape")
            result[-1 - i] = n
    return _C.Size(result)


def broadcast_tensors(*tensors):
    """All tensors expanded to their common shape."""
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tensors[0]
    shape = broadcast_shapes(*(t.shape for t in tensors))
    return tuple(t.expand(shape) for t in tensors)


@_also_method
def tensor_split(input: Tensor, indices_or_sections, dim: int = 0):
    """Parts at given positions, or as equal as possible in number."""
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    if isinstance(indices_or_sections, int):
        return _ops.tensor_split(input, indices_or_sections, None, dim)
    return _ops.tensor_split(input, None, list(indices_or_sections), dim)


@_also_method
def unique(input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim=None):
    """The different elements in order, with the positions that restore the input and counts if asked for."""
    if dim is not None:
        raise NotImplementedError("unique(): dim is not supported yet")
    values, inverse, counts = _ops.unique(input, return_inverse, return_counts)
    result = (values,) + ((inverse,) if return_inverse else ()) + ((counts,) if return_counts else ())
    return result if len(result) > 1 else values


@_also_method
def argsort(input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False):
    """The positions that sort."""
    return _ops.sort(input, dim, descending, stable).indices


# ---- bounds and choice


@_also_method
def clamp(input: Tensor, min=None, max=None, *, out=None):
    """Elements no smaller than min and no larger than max (numbers or tensors)."""
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        result = input
        if min is not None:
            result = _ops.maximum(result, min)
        if max is not None:
            result = _ops.minimum(result, max)
    elif max is None:
        result = _ops.clamp_min(input, min)
    elif min is None:
        result = _ops.clamp_max(input, max)
    else:
        result = _ops.clamp(input, min, max)
    return out.copy_(result) if out is not None else result


def _clamp_(self, min=None, max=None):
    if isinstance(min, Tensor) or isinstance(max, Tensor) or min is None or max is None:
        return self.copy_(clamp(self, min, max))
    return _clamp_in_place(self, min, max)


_clamp_in_place = _C.Operator("clamp_", [("clamp", None)], True)
METHODS["clamp_"] = _clamp_
METHODS["clip"] = clamp
METHODS["clip_"] = _clamp_
clip = clamp

_where = _C.Operator("where", [("where", "where(Tensor condition, Tensor input, Tensor other)")])


def where(condition, input=None, other=None, *, out=None):
    """input where the condition holds, other elsewhere; alone: the positions where it holds."""
    if input is None and other is None:
        return nonzero(condition, as_tuple=True)
    return _where(condition, input, other, out=out)


METHODS["where"] = lambda self, condition, other: _where(condition, self, other)


@_also_method
def nonzero(input: Tensor, *, out=None, as_tuple: bool = False):
    """The positions of elements that are not zero: (n, rank), or a tuple of vectors."""
    positions = _ops.nonzero(input)
    if as_tuple:
        if input.dim() == 0:
            return (_ops.nonzero(input.reshape(1))[:, 0],)
        return positions.unbind(1)
    return out.copy_(positions) if out is not None else positions


# ---- statistics


def _spread(name, operator):
    def function(input, dim=None, unbiased=None, keepdim=False, *, correction=None, out=None):
        if isinstance(dim, builtins.bool):  # var(x, unbiased)
            dim, unbiased = None, dim
        if correction is None:
            correction = 1 if unbiased is None or unbiased else 0
        return operator(input, dim, correction=correction, keepdim=keepdim, out=out)

    function.__name__ = name
    function.__doc__ = f"The {name} over dimensions; `correction` is taken off the count."
    METHODS[name] = function
    return function


def _install_spread():
    from ._signatures import SIGNATURES

    for name in ("var", "std"):
        globals()[name] = _spread(name, _C.Operator(name, SIGNATURES[f"_{name}"]))


_install_spread()


@_also_method
def var_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """Variance and mean."""
    if isinstance(dim, builtins.bool):
        dim, unbiased = None, dim
    return var(input, dim, unbiased, keepdim, correction=correction), input.mean(dim, keepdim)  # noqa: F821


@_also_method
def std_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """Standard deviation and mean."""
    if isinstance(dim, builtins.bool):
        dim, unbiased = None, dim
    return std(input, dim, unbiased, keepdim, correction=correction), input.mean(dim, keepdim)  # noqa: F821


@_also_method
def norm(input: Tensor, p="fro", dim=None, keepdim: bool = False, out=None, dtype=None):
    """(sum |x|^p)^(1/p); "fro" is p = 2, "nuc" the sum of singular values."""
    if dtype is not None:
        input = input.to(dtype)
    if p == "nuc":
        from . import linalg

        result = linalg.matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim)
    else:
        p = 2.0 if p in ("fro", None) else float(p)
        result = _ops.norm(input, p, dim, keepdim)
    return out.copy_(result) if out is not None else result


# ---- elements


def _index_put_(self, indices, values, accumulate=False):
    """self[indices] = values, or += with accumulate, in place."""
    if accumulate:
        result = _index_add_by_put(self, indices, values)
        return self.copy_(result)
    self[tuple(slice(None) if i is None else i for i in indices)] = values
    return self


def _index_add_by_put(self, indices, values):
    # Through flat positions, so that repeated ones add up.
    positions = _C.Operator("arange", [("arange", None)])(0, self.numel(), device=self.device).reshape(self.shape)
    chosen = positions[tuple(slice(None) if i is None else i for i in indices)]
    flat = _ops.index_add(self.reshape(-1), 0, chosen.reshape(-1), values.expand(chosen.shape).reshape(-1))
    return flat.reshape(self.shape)


METHODS["index_put_"] = _index_put_
METHODS["index_put"] = lambda self, indices, values, accumulate=False: _index_put_(
    self.clone(), indices, values, accumulate)  # fmt: skip


def index_put(input, indices, values, accumulate=False):
    return _index_put_(input.clone(), indices, values, accumulate)


def _random_(self, *bounds, generator=None):
    """Whole numbers in [from, to)."""
    if len(bounds) == 2:
        low, high = bounds
    else:
        low = 0
        if bounds:
            high = bounds[0]
        elif self.is_floating_point():
            from . import finfo

            high = int(1 / finfo(self.dtype).eps) * 2 + 1
        elif self.dtype is _C.bool:
            high = 2
        else:
            high = 2 ** (8 * self.element_size() - (1 if self.dtype.is_signed else 0)) - 1
    with _no_grad():
        return self.copy_(_ops.randint(low, high, tuple(self.shape), device=self.device, generator=generator))


def _no_grad():
    from ._grad_mode import no_grad

    return no_grad()


METHODS["random_"] = _random_


def _fill_(self, value):
    """Sets all elements."""
    if isinstance(value, Tensor):
        if value.dim() != 0:
            raise RuntimeError(
                f"fill_ only supports 0-dimension value tensor but got tensor with {value.dim()} dimensions.")
        return self.copy_(value.expand(self.shape))
    return _fill_number(self, value)


_fill_number = _C.Operator("fill_", [("fill", None)], True)
METHODS["fill_"] = _fill_


def fill(input, value):
    return _fill_(input.clone(), value)


METHODS["fill"] = fill


def detach(input: Tensor):
    return input.detach()


def clone(input: Tensor, *, memory_format=None):
    """A copy, with history."""
    return input.clone(memory_format=memory_format)


def result_type(tensor1, tensor2):
    """The dtype that arithmetic of these gives."""
    tensors = [t for t in (tensor1, tensor2) if isinstance(t, Tensor)]
    numbers = [t for t in (tensor1, tensor2) if not isinstance(t, Tensor)]
    return _C._result_type(tensors, numbers)


def can_cast(from_: _dtype, to: _dtype) -> bool:
    """Whether promotion allows the conversion: complex > float > integer > bool."""

    def category(t):
        return 3 if t.is_complex else 2 if t.is_floating_point else 0 if t is _C.bool else 1

    return category(from_) <= category(to) and not (from_.is_signed and not to.is_signed and category(to) == 1)


inf, nan, pi, e = _math.inf, _math.nan, _math.pi, _math.e
