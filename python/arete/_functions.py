"""Functions of torch's that are no single record: other defaults, lists of arguments, several results."""
from __future__ import annotations

import builtins
import math as _math
from collections import namedtuple as _namedtuple

from . import _C, _ops
from ._C import Tensor, dtype as _dtype

# Names given here replace records of the same name; those of METHODS become methods of Tensor, too.
METHODS: dict[str, object] = {}


def _also_method(function):
    METHODS[function.__name__] = function
    return function


# ---- what a thing is


def is_tensor(obj) -> bool:
    """Whether `obj` is a Tensor.

    >>> arete.is_tensor(arete.ones(2)), arete.is_tensor([1.0])
    (True, False)
    """
    return isinstance(obj, Tensor)


def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is a floating one.

    >>> arete.is_floating_point(arete.ones(2)), arete.is_floating_point(arete.tensor([1]))
    (True, False)
    """
    return input.is_floating_point()


def is_complex(input: Tensor) -> bool:
    """Whether the dtype is complex.

    >>> arete.is_complex(arete.tensor([1j]))
    True
    """
    return input.is_complex()


def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not zero.

    >>> arete.is_nonzero(arete.tensor([0.5]))
    True
    >>> arete.is_nonzero(arete.ones(2))
    Traceback (most recent call last):
    RuntimeError: Boolean value of Tensor with more than one value is ambiguous
    """
    return builtins.bool(input)


def numel(input: Tensor) -> int:
    """The number of elements.

    >>> arete.numel(arete.ones(2, 3))
    6
    """
    return input.numel()


def is_storage(obj) -> bool:
    """False: storages are not shown as objects.

    >>> arete.is_storage(arete.ones(2))
    False
    """
    return False


def _truth(name, doc):
    """A record whose 0-d result is a Python bool."""

    def function(*args, **kwargs):
        return builtins.bool(operator(*args, **kwargs))

    operator = getattr(_ops, name)
    function.__name__ = name
    function.__doc__ = doc
    METHODS[name] = function
    return function


_same_elements = _truth("equal", "")
allclose = _truth("allclose", """allclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False)

    Whether |input - other| <= atol + rtol * |other| everywhere, as a bool; shapes are broadcast.

    >>> arete.allclose(arete.tensor([1.0, 2.0]), arete.tensor([1.0, 2.000001]))
    True
    >>> arete.allclose(arete.tensor([arete.nan]), arete.tensor([arete.nan]), equal_nan=True)
    True
    """)


@_also_method
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether both have the same shape and elements.

    >>> arete.equal(arete.tensor([1, 2]), arete.tensor([1, 2]))
    True
    >>> arete.equal(arete.tensor([1, 2]), arete.tensor([[1, 2]]))
    False
    """
    return input.shape == other.shape and _same_elements(input, other)


# ---- from data


def as_tensor(data, dtype=None, device=None):
    """`data` itself if it is a fitting tensor, a tensor over its memory if it is a fitting array, else a copy.

    >>> x = arete.ones(2)
    >>> arete.as_tensor(x) is x
    True
    >>> arete.as_tensor([1, 2], dtype=arete.float32)
    tensor([1., 2.])
    """
    if isinstance(data, Tensor):
        return data.to(device or data.device, dtype or data.dtype)
    if type(data).__module__ == "numpy" and hasattr(data, "ndim") and data.ndim > 0:
        from ._tensor import from_numpy

        t = from_numpy(data)
        return t.to(device or "cpu", dtype or t.dtype)
    return _C.tensor(data, dtype=dtype, device=device)


def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=False):
    """As as_tensor; also takes objects with DLPack. `copy` True asks for a copy.

    >>> arete.asarray([1.0, 2.0], requires_grad=True)
    tensor([1., 2.], requires_grad=True)
    """
    if isinstance(obj, Tensor) or not hasattr(obj, "__dlpack__") or type(obj).__module__ == "numpy":
        t = as_tensor(obj, dtype, device)
    else:
        from ._tensor import from_dlpack

        t = from_dlpack(obj)
        t = t.to(device or t.device, dtype or t.dtype)
    t = t.clone() if copy else t
    t = t.detach()
    return t.requires_grad_() if requires_grad else t


def _new_tensor(self, data, *, dtype=None, device=None, requires_grad=False):
    """A tensor of `data` with this one's dtype and device.

    >>> arete.ones(1, dtype=arete.float64).new_tensor([1, 2])
    tensor([1., 2.], dtype=arete.float64)
    """
    return _C.tensor(data, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)


METHODS["new_tensor"] = _new_tensor


# ---- shapes


def einsum(equation, *operands):
    """Products and sums by Einstein's notation: letters that the result lacks are summed over.

    "->" and the result may be left out (the letters that occur once, sorted); "..." stands for further dimensions.

    >>> a, b = arete.tensor([[1, 2], [3, 4]]), arete.tensor([[1, 0], [0, 2]])
    >>> arete.einsum("ij,jk->ik", a, b)
    tensor([[1, 4],
            [3, 8]])
    >>> arete.einsum("ii", a)
    tensor(5)
    >>> arete.einsum("ij,jk", a, arete.ones(3, 3))
    Traceback (most recent call last):
    arete.ArgumentError: einsum(): operands do not broadcast with remapped shapes [original->remapped]: ...
    """
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = operands[0]
    return _ops.einsum(equation, list(operands))


def meshgrid(*tensors, indexing="ij"):
    """Coordinates of a grid, one tensor for each axis.

    Vectors (m), (n) -> (m, n) each; indexing "xy" exchanges the first two dimensions.

    >>> arete.meshgrid(arete.tensor([1, 2]), arete.tensor([5, 6, 7]))
    (tensor([[1, 1, 1],
            [2, 2, 2]]), tensor([[5, 6, 7],
            [5, 6, 7]]))
    """
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tensors[0]
    return _ops.meshgrid(list(tensors), indexing=indexing or "ij")


def broadcast_shapes(*shapes):
    """The shape to which all of these broadcast.

    >>> arete.broadcast_shapes((3, 1), (4,), 1)
    arete.Size([3, 4])
    >>> arete.broadcast_shapes((2,), (3,))
    Traceback (most recent call last):
    RuntimeError: Shape mismatch: objects cannot be broadcast to a single shape
    """
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
    """All tensors expanded to their common shape.

    >>> [t.shape for t in arete.broadcast_tensors(arete.ones(3, 1), arete.ones(4))]
    [arete.Size([3, 4]), arete.Size([3, 4])]
    """
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tensors[0]
    return _ops.broadcast_tensors(list(tensors))


def _listed(name, doc):
    """A record of a list of tensors, which may be given one by one."""

    def function(*tensors):
        if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
            return tuple(operator(t) for t in tensors[0]) if name.startswith("atleast") else operator(list(tensors[0]))
        if name.startswith("atleast"):
            return operator(tensors[0]) if len(tensors) == 1 else tuple(operator(t) for t in tensors)
        return operator(list(tensors))

    operator = getattr(_ops, name)
    function.__name__ = name
    function.__doc__ = doc
    return function


atleast_1d = _listed("atleast_1d", """The tensor with at least 1 dimension; of several tensors or a list a tuple.

    >>> arete.atleast_1d(arete.tensor(5))
    tensor([5])
    """)
atleast_2d = _listed("atleast_2d", """The tensor with at least 2 dimensions: () and (n) become (1, 1) and (1, n).

    >>> arete.atleast_2d(arete.tensor([5, 6]), arete.tensor(7))
    (tensor([[5, 6]]), tensor([[7]]))
    """)
atleast_3d = _listed("atleast_3d", """The tensor with at least 3 dimensions: (n) becomes (1, n, 1), (m, n) becomes (m, n, 1).

    >>> arete.atleast_3d(arete.zeros(2, 3)).shape
    arete.Size([2, 3, 1])
    """)
cartesian_prod = _listed("cartesian_prod", """All combinations of the elements of n vectors: (combinations, n), or (elements) of one.

    >>> arete.cartesian_prod(arete.tensor([1, 2]), arete.tensor([5, 6]))
    tensor([[1, 5],
            [1, 6],
            [2, 5],
            [2, 6]])
    """)
block_diag = _listed("block_diag", """A matrix with the given ones (of at most 2 dimensions) along its diagonal, else zeros.

    >>> arete.block_diag(arete.tensor([[1, 2]]), arete.tensor(3))
    tensor([[1, 2, 0],
            [0, 0, 3]])
    """)


@_also_method
def unique(input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim=None):
    """The different elements in order (or slices along dim), with each one's place and counts if asked for.

    >>> arete.unique(arete.tensor([3, 1, 3, 2]))
    tensor([1, 2, 3])
    >>> arete.unique(arete.tensor([3, 1, 3, 2]), return_inverse=True, return_counts=True)
    (tensor([1, 2, 3]), tensor([2, 0, 2, 1]), tensor([1, 1, 2]))
    """
    return _asked(_ops.unique(input, sorted, return_inverse, return_counts, dim), return_inverse, return_counts)


@_also_method
def unique_consecutive(input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim=None):
    """The first of each group of equal neighbours, with each one's group and sizes if asked for.

    >>> arete.unique_consecutive(arete.tensor([1, 1, 2, 1]), return_counts=True)
    (tensor([1, 2, 1]), tensor([2, 1, 1]))
    """
    return _asked(_ops.unique_consecutive(input, return_inverse, return_counts, dim), return_inverse, return_counts)


def _asked(results, return_inverse, return_counts):
    values, inverse, counts = results
    result = (values,) + ((inverse,) if return_inverse else ()) + ((counts,) if return_counts else ())
    return result if len(result) > 1 else values


@_also_method
def resize_(self: Tensor, *sizes, memory_format=None):
    """Changes the shape in place; elements beyond the old ones have no values.

    >>> arete.arange(4).resize_(3)
    tensor([0, 1, 2])
    >>> arete.ones(2, requires_grad=True).resize_(3)
    Traceback (most recent call last):
    RuntimeError: cannot resize variables that require grad
    """
    sizes = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    if self.requires_grad:
        raise RuntimeError("cannot resize variables that require grad")
    count = _math.prod(sizes)
    flat = self.detach().reshape(-1)
    if count <= flat.numel():
        self.data = flat[:count].reshape(sizes)
    else:
        grown = _ops.empty((count,), dtype=self.dtype, device=self.device)
        grown[: flat.numel()] = flat
        self.data = grown.reshape(sizes)
    return self


@_also_method
def resize_as_(self: Tensor, other: Tensor, memory_format=None):
    """resize_() to the shape of another tensor.

    >>> arete.arange(4).resize_as_(arete.ones(1, 2))
    tensor([[0, 1]])
    """
    return resize_(self, other.shape)


@_also_method
def tensordot(input: Tensor, other: Tensor, dims=2, out=None):
    """Products summed over pairs of dimensions: the last n and the first n, or two lists.

    >>> arete.tensordot(arete.tensor([[1, 2], [3, 4]]), arete.tensor([10, 1]), dims=1)
    tensor([12, 34])
    >>> arete.tensordot(arete.ones(2, 3, 4), arete.ones(4, 3, 5), dims=([1, 2], [1, 0])).shape
    arete.Size([2, 5])
    >>> arete.tensordot(arete.ones(2), arete.ones(2), dims=-1)
    Traceback (most recent call last):
    RuntimeError: tensordot expects dims >= 0, but got dims=-1
    """
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        first, second = list(range(input.dim() - dims, input.dim())), list(range(dims))
    else:
        first, second = ([d] if isinstance(d, int) else list(d) for d in dims)
    result = _ops.tensordot(input, other, first, second)
    return out.copy_(result) if out is not None else result


def chain_matmul(*matrices, out=None):
    """The product of matrices, in the order that costs least.

    >>> arete.chain_matmul(arete.ones(2, 3), arete.ones(3, 4), arete.ones(4, 1))
    tensor([[12.],
            [12.]])
    """
    result = _ops.linalg_multi_dot(list(matrices))
    return out.copy_(result) if out is not None else result


def svd_lowrank(A: Tensor, q: int = 6, niter: int = 2, M=None):
    """U, S, V of A - M to about q singular values, by random projection (Halko, Martinsson and Tropp).

    (..., m, n) -> (..., m, q), (..., q), (..., n, q). `niter` rounds make the basis more exact.

    >>> U, S, V = arete.svd_lowrank(arete.ones(5, 4), q=2)
    >>> U.shape, S.shape, V.shape
    (arete.Size([5, 2]), arete.Size([2]), arete.Size([4, 2]))
    """
    from . import linalg

    if M is not None:
        A = A - M
    tall = A.size(-2) >= A.size(-1)
    B = A if tall else A.mT
    # An orthonormal basis of most of the range of B; each round of iteration separates the singular values further.
    basis = linalg.qr(B @ _ops.randn((B.size(-1), q), dtype=B.dtype, device=B.device))[0]
    for _ in range(niter):
        basis = linalg.qr(B.mT @ basis)[0]
        basis = linalg.qr(B @ basis)[0]
    U, S, Vh = linalg.svd(basis.mT @ B, full_matrices=False)
    U, V = basis @ U, Vh.mT
    return (U, S, V) if tall else (V, S, U)


def pca_lowrank(A: Tensor, q=None, center: bool = True, niter: int = 2):
    """U, S, V of the rows of A (less their mean, if `center`) to about q principal components.

    (..., m, n) -> (..., m, q), (..., q), (..., n, q); q is min(6, m, n) by default.

    >>> [t.shape for t in arete.pca_lowrank(arete.randn(5, 4), q=2)]
    [arete.Size([5, 2]), arete.Size([2]), arete.Size([4, 2])]
    >>> arete.pca_lowrank(arete.ones(5, 4), q=5)
    Traceback (most recent call last):
    ValueError: q(=5) must be non-negative integer and not greater than min(m, n)=4
    """
    m, n = A.shape[-2:]
    q = builtins.min(6, m, n) if q is None else q
    if not 0 <= q <= builtins.min(m, n):
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)={builtins.min(m, n)}")
    return svd_lowrank(A - A.mean(-2, True) if center else A, q, niter)


def lu(A: Tensor, pivot: bool = True, get_infos: bool = False, out=None):
    """Both LU factors in one matrix, and the row exchanges; also an error number for each matrix, if asked for.

    (..., m, n) -> (..., m, n), int32 (..., min(m, n)), whose numbers begin with 1.

    >>> arete.lu(arete.tensor([[0.0, 2.0], [4.0, 8.0]]))
    (tensor([[4., 8.],
            [0., 2.]]), tensor([2, 2], dtype=arete.int32))
    """
    from . import linalg

    if get_infos:
        result = tuple(linalg.lu_factor_ex(A, pivot=pivot))
    else:
        result = tuple(linalg.lu_factor(A, pivot=pivot))
    return tuple(o.copy_(r) for o, r in zip(out, result)) if out is not None else result


METHODS["lu"] = lu


@_also_method
def gradient(input: Tensor, *, spacing=1, dim=None, edge_order: int = 1):
    """Derivatives along dimensions; `spacing` is a step, or for each dimension a step or its coordinates.

    A tuple with a tensor like the input for each dimension. edge_order is 1 or 2.

    >>> arete.gradient(arete.tensor([1.0, 4.0, 9.0, 16.0]))
    (tensor([3., 4., 6., 7.]),)
    >>> arete.gradient(arete.tensor([1.0, 4.0, 9.0]), spacing=2.0)
    (tensor([1.5000, 2.0000, 2.5000]),)
    >>> arete.gradient(arete.tensor([1.0]))
    Traceback (most recent call last):
    arete.ArgumentError: torch.gradient expected each dimension size to be at least edge_order+1...
    """
    if isinstance(dim, int):
        dim = [dim]
    if isinstance(spacing, Tensor):
        spacing = [spacing]
    if not isinstance(spacing, (list, tuple)):
        return tuple(_ops.gradient(input, spacing=spacing, dim=dim, edge_order=edge_order))
    real = input.dtype if input.is_floating_point() else None
    steps = [s if isinstance(s, Tensor) else _C.tensor(builtins.float(s), dtype=real, device=input.device)
             for s in spacing]
    return tuple(_ops.gradient_coordinates(input, spacing=steps, dim=dim, edge_order=edge_order))


@_also_method
def histogram(input: Tensor, bins=100, *, range=None, weight=None, density: bool = False, out=None):  # noqa: A002
    """Counts (or sums of weights, or densities) and edges: `bins` is 1-d edges, or how many equal intervals of `range`
    (lowest and highest) or of the data's range there are.

    Elements outside of the intervals are not counted; the last one includes its upper edge.

    >>> hist, edges = arete.histogram(arete.tensor([1.0, 2.0, 2.5, 4.0]), bins=3, range=(1.0, 4.0))
    >>> hist, edges
    (tensor([1., 2., 1.]), tensor([1., 2., 3., 4.]))
    """
    if isinstance(bins, Tensor):
        result = _ops.histogram(input, bins, weight=weight, density=density)
    else:
        low, high = range if range is not None else (None, None)
        result = _ops.histogram_count(input, bins, min=low, max=high, weight=weight, density=density)
    return tuple(o.copy_(r) for o, r in zip(out, result)) if out is not None else result


def histogramdd(input: Tensor, bins, *, range=None, weight=None, density: bool = False):  # noqa: A002
    """Counts (or sums of weights, or densities) of points in a grid, and its edges.

    `bins` holds edges for each element of the last dimension, or how many equal intervals of `range` (the lowest and
    highest value of each element in turn) or of the data's range there are; one number stands for all.

    >>> hist, edges = arete.histogramdd(arete.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), bins=2)
    >>> hist
    tensor([[0., 1.],
            [1., 1.]])
    >>> edges[0]
    tensor([0.0000, 0.5000, 1.0000])
    >>> arete.histogramdd(arete.ones(3, 2), bins=2, range=[0.0, 1.0])
    Traceback (most recent call last):
    RuntimeError: range should have 4 elements, but got 2
    """
    rank = input.size(-1)
    bins = [bins] * rank if isinstance(bins, int) else list(bins)
    if not builtins.all(isinstance(b, Tensor) for b in bins):
        points = input.detach().reshape(-1, rank)
        if range is not None and len(range) != 2 * rank:
            raise RuntimeError(f"range should have {2 * rank} elements, but got {len(range)}")
        edges = []
        for d, count in enumerate(bins):
            if range is not None:
                low, high = range[2 * d], range[2 * d + 1]
            elif points.numel() == 0:
                low, high = 0.0, 1.0
            else:
                low, high = points[:, d].min().item(), points[:, d].max().item()
            if low == high:
                low, high = low - 0.5, high + 0.5
            edges.append(_ops.linspace(low, high, count + 1, dtype=input.dtype, device=input.device))
        bins = edges
    return _histogramdd_result(_ops.histogramdd(input, bins, weight=weight, density=density), tuple(bins))


_histogramdd_result = _namedtuple("histogramdd", ("hist", "bin_edges"))


_GRID_MODES, _GRID_PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def grid_sampler(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool):
    """grid_sample with its modes as numbers: bilinear, nearest, bicubic; zeros, border, reflection.

    >>> arete.grid_sampler(arete.tensor([[[[1.0, 3.0]]]]), arete.zeros(1, 1, 1, 2), 0, 0, True)
    tensor([[[[2.]]]])
    """
    return _ops.grid_sample(input, grid, _GRID_MODES[interpolation_mode], _GRID_PADDINGS[padding_mode], align_corners)


def grid_sampler_2d(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool):
    """grid_sampler of images (N, C, H, W).

    >>> arete.grid_sampler_2d(arete.zeros(1, 3, 4, 4), arete.zeros(1, 2, 2, 2), 0, 0, False).shape
    arete.Size([1, 3, 2, 2])
    """
    return grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)


def grid_sampler_3d(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool):
    """grid_sampler of volumes (N, C, D, H, W).

    >>> arete.grid_sampler_3d(arete.zeros(1, 3, 4, 4, 4), arete.zeros(1, 2, 2, 2, 3), 0, 0, False).shape
    arete.Size([1, 3, 2, 2, 2])
    """
    return grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)


def native_layer_norm(input: Tensor, normalized_shape, weight, bias, eps: float):
    """layer_norm, and the mean and the reciprocal of the deviation that it divides by.

    >>> out, mean, rstd = arete.native_layer_norm(arete.tensor([[1.0, 3.0]]), [2], None, None, 1e-5)
    >>> mean, rstd
    (tensor([[2.]]), tensor([[1.0000]]))
    """
    dims = list(builtins.range(-len(normalized_shape), 0))
    spread, mean = var_mean(input, dims, correction=0, keepdim=True)  # noqa: F821
    return _ops.layer_norm(input, list(normalized_shape), weight, bias, eps), mean, (spread + eps).rsqrt()


# ---- bounds and choice


def _clamp_(self, min=None, max=None):
    """clamp(), written into this tensor; bounds are numbers or tensors, at least one of them.

    >>> arete.tensor([1, 5, 9]).clamp_(2, 6)
    tensor([2, 5, 6])
    """
    if isinstance(min, Tensor) or isinstance(max, Tensor) or min is None or max is None:
        return self.copy_(self.clamp(min, max))
    return _clamp_in_place(self, min, max)


_clamp_in_place = _C.Operator("clamp_", [("clamp_point", None)], True)
METHODS["clamp_"] = _clamp_
METHODS["clip_"] = _clamp_

_where = _C.Operator("where", [("where", "where(Tensor condition, Tensor input, Tensor other)")])


def where(condition, input=None, other=None, *, out=None):
    """`input` where the condition holds, `other` elsewhere; alone: the positions where it holds.

    Condition, input and other (tensors or numbers) are broadcast; dtypes are promoted.

    >>> arete.where(arete.tensor([True, False, True]), arete.tensor([1, 2, 3]), 0)
    tensor([1, 0, 3])
    >>> arete.where(arete.tensor([True, False, True]))
    (tensor([0, 2]),)
    """
    if input is None and other is None:
        return nonzero(condition, as_tuple=True)
    return _where(condition, input, other, out=out)


def _where_method(self, condition, other):
    """This tensor where the condition holds, `other` elsewhere.

    >>> arete.tensor([1, 2]).where(arete.tensor([True, False]), 0)
    tensor([1, 0])
    """
    return _where(condition, self, other)


METHODS["where"] = _where_method


@_also_method
def nonzero(input: Tensor, *, out=None, as_tuple: bool = False):
    """The positions of elements that are not zero: (n, rank), or a tuple of vectors.

    >>> arete.nonzero(arete.tensor([[0, 5], [7, 0]]))
    tensor([[0, 1],
            [1, 0]])
    >>> arete.nonzero(arete.tensor([[0, 5], [7, 0]]), as_tuple=True)
    (tensor([0, 1]), tensor([1, 0]))
    """
    positions = _ops.nonzero(input)
    if as_tuple:
        if input.dim() == 0:
            return (_ops.nonzero(input.reshape(1))[:, 0],)
        return positions.unbind(1)
    return out.copy_(positions) if out is not None else positions


# ---- statistics


def _spread(name, operator, title, example):
    def function(input, dim=None, unbiased=None, keepdim=False, *, correction=None, out=None):
        if isinstance(dim, builtins.bool):  # var(x, unbiased)
            dim, unbiased = None, dim
        if correction is None:
            correction = 1 if unbiased is None or unbiased else 0
        return operator(input, dim, correction=correction, keepdim=keepdim, out=out)

    function.__name__ = name
    function.__doc__ = f"""The {title} of all elements or over `dim` (an int or several).

    `correction` is taken off the count: 1 by default, 0 with unbiased=False. The result is NaN where nothing is left.

    >>> arete.{name}(arete.tensor([[1.0, 3.0], [2.0, 6.0]]), dim=1)
    tensor([{example}])
    """
    METHODS[name] = function
    return function


def _install_spread():
    from ._signatures import SIGNATURES

    for name, title, example in (("var", "variance", "2., 8."), ("std", "standard deviation", "1.4142, 2.8284")):
        globals()[name] = _spread(name, _C.Operator(name, SIGNATURES[f"_{name}"]), title, example)


_install_spread()


@_also_method
def var_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """Variance and mean.

    >>> arete.var_mean(arete.tensor([1.0, 3.0]))
    (tensor(2.), tensor(2.))
    """
    if isinstance(dim, builtins.bool):
        dim, unbiased = None, dim
    return var(input, dim, unbiased, keepdim, correction=correction), input.mean(dim, keepdim)  # noqa: F821


@_also_method
def std_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """Standard deviation and mean.

    >>> arete.std_mean(arete.tensor([1.0, 3.0]), correction=0)
    (tensor(1.), tensor(2.))
    """
    if isinstance(dim, builtins.bool):
        dim, unbiased = None, dim
    return std(input, dim, unbiased, keepdim, correction=correction), input.mean(dim, keepdim)  # noqa: F821


@_also_method
def norm(input: Tensor, p="fro", dim=None, keepdim: bool = False, out=None, dtype=None):
    """(sum |x|^p)^(1/p); "fro" is p = 2, "nuc" the sum of singular values.

    >>> arete.norm(arete.tensor([[3.0, 4.0], [6.0, 8.0]]), dim=1)
    tensor([ 5., 10.])
    >>> arete.norm(arete.tensor([3.0, -4.0]), p=1)
    tensor(7.)
    """
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
    """self[indices] = values, or += with accumulate, in place.

    >>> arete.zeros(3).index_put_((arete.tensor([0, 2]),), arete.tensor(5.0))
    tensor([5., 0., 5.])
    """
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
@_also_method
def index_put(input, indices, values, accumulate=False):
    """A copy with `values` written (or added) at `indices`.

    >>> arete.index_put(arete.zeros(3), (arete.tensor([0, 0, 2]),), arete.tensor([1.0, 2.0, 5.0]), accumulate=True)
    tensor([3., 0., 5.])
    """
    return _index_put_(input.clone(), indices, values, accumulate)


def _no_grad():
    from ._grad_mode import no_grad

    return no_grad()


def fill(input: Tensor, value):
    """A copy with all elements set.

    >>> arete.fill(arete.tensor([1, 2]), 7)
    tensor([7, 7])
    """
    return input.clone().fill_(value)


def _with_tensor(name, place, doc):
    """A record whose argument number `place` may be a number where it wants a tensor."""

    def function(*args, **kwargs):
        if len(args) > place and not isinstance(args[place], Tensor):
            like = next(a for a in args if isinstance(a, Tensor))
            number = _C.tensor(args[place], dtype=like.dtype if like.is_floating_point() else None, device=like.device)
            args = (*args[:place], number, *args[place + 1:])
        return operator(*args, **kwargs)

    operator = getattr(_ops, name)
    function.__name__ = name
    function.__doc__ = doc
    return function


quantile = _with_tensor("quantile", 1, """quantile(input, q, dim=None, keepdim=False, *, interpolation="linear")

    The values below which shares q (a number or a vector, in [0, 1]) lie, of all elements or along dim; NaN wins.

    A vector q comes first in the shape. float32 and float64; interpolation "linear", "lower", "higher", "midpoint" or
    "nearest".

    >>> arete.quantile(arete.tensor([4.0, 1.0, 2.0, 3.0]), arete.tensor([0.25, 0.5]))
    tensor([1.7500, 2.5000])
    >>> arete.quantile(arete.ones(3), 2.0)
    Traceback (most recent call last):
    arete.ArgumentError: quantile() q values must be in the range [0, 1]...
    """)
nanquantile = _with_tensor("nanquantile", 1, """nanquantile(input, q, dim=None, keepdim=False, *, interpolation="linear")

    quantile() of the elements that are not NaN; NaN where there are none.

    >>> arete.nanquantile(arete.tensor([1.0, arete.nan, 2.0]), 0.5)
    tensor(1.5000)
    """)
METHODS["quantile"], METHODS["nanquantile"] = quantile, nanquantile
searchsorted = _with_tensor("searchsorted", 1, """searchsorted(sorted_sequence, input, *, out_int32=False, right=False, ...)

    Where values would have to be put into a sorted sequence (n), or in each row of (..., n) those of (..., m).

    The place is before equal elements, with right=True after them. int64 in the shape of the values.

    >>> arete.searchsorted(arete.tensor([1, 3, 5]), arete.tensor([0, 3, 6]))
    tensor([0, 1, 3])
    >>> arete.searchsorted(arete.tensor([1, 3, 5]), 3, right=True)
    tensor(2)
    """)
bucketize = _with_tensor("bucketize", 0, """bucketize(input, boundaries, *, out_int32=False, right=False)

    The number of the interval between sorted boundaries (n) in which each element lies, 0 to n.

    An element equal to a boundary lies below it, with right=True above.

    >>> arete.bucketize(arete.tensor([0.5, 1.0, 7.0]), arete.tensor([1.0, 5.0]))
    tensor([0, 0, 2])
    """)
def _polygamma(self, n: int):
    """The n-th derivative of the digamma function.

    >>> arete.tensor([1.0]).polygamma(1)
    tensor([1.6449])
    """
    return _ops.polygamma(n, self)


METHODS["polygamma"] = _polygamma
METHODS["normal_"] = _C.OperatorMethod("normal_", [("normal", None)], True)
METHODS["random_"] = _C.OperatorMethod("random_", [("random", None)], True)


def detach(input: Tensor):
    """The same memory without history.

    >>> arete.detach(arete.ones(2, requires_grad=True)).requires_grad
    False
    """
    return input.detach()


def clone(input: Tensor, *, memory_format=None):
    """A copy, with history.

    >>> x = arete.tensor([1, 2])
    >>> y = arete.clone(x).add_(1)
    >>> x, y
    (tensor([1, 2]), tensor([2, 3]))
    """
    return input.clone(memory_format=memory_format)


def result_type(tensor1, tensor2):
    """The dtype that arithmetic of these gives.

    >>> arete.result_type(arete.tensor([1, 2]), 1.5)
    arete.float32
    """
    tensors = [t for t in (tensor1, tensor2) if isinstance(t, Tensor)]
    numbers = [t for t in (tensor1, tensor2) if not isinstance(t, Tensor)]
    return _C._result_type(tensors, numbers)


def can_cast(from_: _dtype, to: _dtype) -> bool:
    """Whether promotion allows the conversion: complex > float > integer > bool.

    >>> arete.can_cast(arete.int32, arete.float32), arete.can_cast(arete.float32, arete.int32)
    (True, False)
    """

    def category(t):
        return 3 if t.is_complex else 2 if t.is_floating_point else 0 if t is _C.bool else 1

    return category(from_) <= category(to) and not (from_.is_signed and not to.is_signed and category(to) == 1)


inf, nan, pi, e = _math.inf, _math.nan, _math.pi, _math.e
