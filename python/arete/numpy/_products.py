"""Products of vectors and matrices."""
from __future__ import annotations

import builtins as _b
import operator as _operator

from .. import _C, _operators as _t
from ._array import axis_of, cast, check_cast, in_words, ndarray, not_together, ordered, result, result_into, short_way, tensor_of
from ._types import OF_TENSOR, PROMOTED_NATIVE, as_dtype, native

__all__ = [
    "dot", "matmul", "matvec", "vecmat", "vecdot", "inner", "outer", "vdot", "tensordot", "einsum", "einsum_path", "kron", "cross",
    "convolve", "correlate", "cov", "corrcoef",
]


def pair(a, b, dtype=None):
    """Two tensors in the dtype that they have together."""
    a = a._tensor if type(a) is ndarray else tensor_of(a)
    b = b._tensor if type(b) is ndarray else tensor_of(b)
    if dtype is not None:
        d = native(dtype)
        return cast(a, d), cast(b, d)
    if a.dtype is b.dtype:
        return a, b
    d = PROMOTED_NATIVE[a.dtype, b.dtype]
    return cast(a, d), cast(b, d)


def _product(operator, a, b):
    """A product; that of bool is whether any pair holds."""
    if a.dtype is _C.bool:
        return operator(a.to(_C.float32), b.to(_C.float32)) != 0
    return operator(a, b)


def matmul(x1, x2, /, out=None, *, casting="same_kind", order="K", dtype=None, subok=True, axes=None, axis=None):
    """The product of matrices, of stacks of them and of vectors."""
    if axes is not None or axis is not None:
        raise NotImplementedError("matmul(): axes; move the axes of the operands")
    a, b = pair(x1, x2, dtype)
    if not a.dim() or not b.dim():
        raise ValueError("matmul: Input operand does not have enough dimensions")
    if a.shape[-1] != b.shape[-2 if b.dim() > 1 else 0]:
        raise ValueError("matmul: Input operand 1 has a mismatch in its core dimension 0, with gufunc signature (n?,k),(k,m?)->(n?,m?) "
                         f"(size {b.shape[-2 if b.dim() > 1 else 0]} is different from {a.shape[-1]})")
    try:
        r = _product(_t.matmul, a, b)
    except RuntimeError as e:
        raise ValueError(f"operands could not be broadcast together: {e}") from None
    return result(ordered(r, order)) if out is None else result_into(r, out, casting)


def _not_aligned(a, b, size):
    shapes = f"shapes {in_words(a.shape)} and {in_words(b.shape)}"
    return ValueError(f"{shapes} not aligned: {a.shape[-1]} (dim {a.dim() - 1}) != {size} (dim {max(b.dim() - 2, 0)})")


@short_way
def dot(a, b, out=None):
    """Inner product over a's last axis and b's last but one."""
    a, b = pair(a, b)
    if not a.dim() or not b.dim():
        return result_into(a * b, out)
    if a.shape[-1] != b.shape[-2 if b.dim() > 1 else 0]:
        raise _not_aligned(a, b, b.shape[-2 if b.dim() > 1 else 0])
    if b.dim() <= 2:
        r = _product(_t.matmul, a, b)
    else:
        r = _product(lambda x, y: _t.tensordot(x, y, ([a.dim() - 1], [b.dim() - 2])), a, b)
    return result_into(r, out, "no")


def inner(a, b, /):
    """Products over the last axes of both."""
    a, b = pair(a, b)
    if not a.dim() or not b.dim():
        return result(a * b)
    if a.shape[-1] != b.shape[-1]:
        raise _not_aligned(a, b, b.shape[-1])
    return result(_product(lambda x, y: _t.tensordot(x, y, ([a.dim() - 1], [b.dim() - 1])), a, b))


def outer(a, b, out=None):
    """Each element of the one times each of the other."""
    a, b = pair(a, b)
    return result_into(a.reshape(-1, 1) * b.reshape(1, -1), out)


def vdot(a, b, /):
    """The inner product of flat arrays, the first conjugated."""
    a, b = pair(a, b)
    if a.numel() != b.numel():
        raise ValueError("cannot reshape array: vdot takes as many elements of both")
    return result(_product(_t.matmul, a.reshape(-1).conj() if a.is_complex() else a.reshape(-1), b.reshape(-1)))


def vecdot(x1, x2, /, out=None, *, axis=-1, casting="same_kind", dtype=None, subok=True):
    """Inner products along an axis, the first conjugated."""
    a, b = pair(x1, x2, dtype)
    if not a.dim() or not b.dim():
        raise ValueError("vecdot: Input operand does not have enough dimensions")
    a, b = a.movedim(axis_of(axis, a.dim()), -1), b.movedim(axis_of(axis, b.dim()), -1)
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(
            f"vecdot: Input operand 1 has a mismatch in its core dimension 0 (size {b.shape[-1]} is different from {a.shape[-1]})"
        )
    a = a.conj() if a.is_complex() else a
    try:
        r = _product(lambda x, y: _t.matmul(x.unsqueeze(-2), y.unsqueeze(-1)).squeeze(-1).squeeze(-1), a, b)
    except RuntimeError as e:
        raise ValueError(f"operands could not be broadcast together: {e}") from None
    return result_into(r, out, casting)


def matvec(x1, x2, /, out=None, *, casting="same_kind", dtype=None, subok=True):
    """Products of matrices and vectors."""
    a, b = pair(x1, x2, dtype)
    return result_into(matmul(result(a), result(b.unsqueeze(-1)))._tensor.squeeze(-1), out, casting)


def vecmat(x1, x2, /, out=None, *, casting="same_kind", dtype=None, subok=True):
    """Products of vectors, conjugated, and matrices."""
    a, b = pair(x1, x2, dtype)
    a = a.conj() if a.is_complex() else a
    return result_into(matmul(result(a.unsqueeze(-2)), result(b))._tensor.squeeze(-2), out, casting)


def tensordot(a, b, axes=2):
    """Sums of products over axes of both."""
    a, b = pair(a, b)
    try:
        n = _operator.index(axes)
    except TypeError:
        left, right = axes
        left, right = ([v] if isinstance(v, _b.int) else list(v) for v in (left, right))
    else:
        left, right = list(range(a.dim() - n, a.dim())), list(range(n))
    if len(left) != len(right) or len(left) > _b.min(a.dim(), b.dim()) or _b.any(
            a.shape[axis_of(i, a.dim())] != b.shape[axis_of(j, b.dim())] for i, j in zip(left, right)):
        raise ValueError("shape-mismatch for sum")
    return result(
        _product(lambda x, y: _t.tensordot(x, y, ([axis_of(i, a.dim()) for i in left], [axis_of(j, b.dim()) for j in right])), a, b)
    )


def _letters(operands):
    """The other form of einsum's arguments, arrays and lists of axes in turn, as a text and arrays."""
    names = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

    def text(axes):
        return "".join("..." if x is Ellipsis else names[x] for x in axes)

    arrays, lists = list(operands[0:len(operands) // 2 * 2:2]), list(operands[1::2])
    subscripts = ",".join(text(x) for x in lists)
    return subscripts + ("->" + text(operands[-1]) if len(operands) % 2 else ""), arrays


def einsum(*operands, out=None, optimize=False, dtype=None, order="K", casting="safe"):
    """Sums of products in Einstein's notation. `optimize` chooses between orders that give the same, so any is taken."""
    if not operands:
        raise ValueError("must specify the einstein sum subscripts string and at least one operand, or at least one operand and its "
                         "corresponding subscripts list")
    subscripts, arrays = (operands[0], list(operands[1:])) if isinstance(operands[0], str) else _letters(operands)
    ts = [tensor_of(a) for a in arrays]
    if not ts:
        raise ValueError("no operands provided to einstein sum function")
    d = ts[0].dtype
    for t in ts:
        d = PROMOTED_NATIVE[d, t.dtype]
    if dtype is not None:
        check_cast(OF_TENSOR[d], as_dtype(dtype), casting)
        d = native(dtype)
    try:
        if d is _C.bool:
            r = _t.einsum(subscripts, *[t.to(_C.float32) for t in ts]) != 0
        else:
            r = _t.einsum(subscripts, *[cast(t, d) for t in ts])
    except RuntimeError as e:
        raise ValueError(f"einsum: {e}") from None
    return result_into(ordered(r, order), out, "same_kind")


def einsum_path(*operands, optimize="greedy", einsum_call=False):
    """The order that einsum contracts in: from the left, a pair at a time."""
    arrays = list(operands[1:]) if isinstance(operands[0], str) else _letters(operands)[1]
    steps = [(0, 1)] + [(0, n) for n in range(len(arrays) - 2, 0, -1)] if len(arrays) > 2 else [tuple(range(len(arrays)))]
    return ["einsum_path", *steps], f"  Complete contraction:  {operands[0] if isinstance(operands[0], str) else ''}"


def kron(a, b):
    """Kronecker's product."""
    a, b = pair(a, b)
    return result(_t.kron(a, b) if a.dtype is not _C.bool else _t.kron(a.to(_C.uint8), b.to(_C.uint8)).to(_C.bool))


def cross(a, b, axisa=-1, axisb=-1, axisc=-1, axis=None):
    """The cross product of vectors of three elements; those of two get a zero."""
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = pair(a, b)
    if not a.dim() or not b.dim():
        raise ValueError("At least one array has zero dimension")
    a, b = a.movedim(axis_of(axisa, a.dim()), -1), b.movedim(axis_of(axisb, b.dim()), -1)
    if a.shape[-1] not in (2, 3) or b.shape[-1] not in (2, 3):
        raise ValueError("incompatible dimensions for cross product\n(dimension must be 2 or 3)")
    flat = a.shape[-1] == b.shape[-1] == 2
    a, b = (_t.constant_pad_nd(t, [0, 1]) if t.shape[-1] == 2 else t for t in (a, b))
    try:
        a, b = _t.broadcast_tensors(a, b)
    except RuntimeError:
        raise not_together(a.shape, b.shape) from None
    (a0, a1, a2), (b0, b1, b2) = a.unbind(-1), b.unbind(-1)
    if flat:
        return result(a0 * b1 - a1 * b0)
    r = _t.stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], -1)
    return result(r.movedim(-1, axis_of(axisc, r.dim())))


def _slide(a, v, mode):
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"mode must be one of 'valid', 'same', or 'full' (got {mode!r})")
    n, k = a.shape[0], v.shape[0]
    d = a.dtype
    if d is _C.bool:
        full = _full_convolution(a.to(_C.float32), v.to(_C.float32)) != 0
    elif k <= 32 or not (a.is_floating_point() or a.is_complex()):  # sums of shifted products, which are exact for whole numbers
        full = a.new_zeros(n + k - 1)
        for i in range(k):
            full.narrow(0, i, n).addcmul_(a, v[i])
    elif a.is_complex():
        re = _full_convolution(a.real, v.real) - _full_convolution(a.imag, v.imag)
        full = _t.complex(re, _full_convolution(a.real, v.imag) + _full_convolution(a.imag, v.real))
    else:
        full = _full_convolution(a, v)
    if mode == "full":
        return full
    return full[(k - 1) // 2:(k - 1) // 2 + n] if mode == "same" else full[k - 1:n]


def _full_convolution(a, v):
    return _t.conv1d(a.reshape(1, 1, -1), v.flip((0,)).reshape(1, 1, -1), padding=v.shape[0] - 1).reshape(-1)


def _vectors(a, v, name):
    a, v = pair(a, v)
    a, v = a.reshape(1) if not a.dim() else a, v.reshape(1) if not v.dim() else v
    if a.dim() != 1 or v.dim() != 1:
        raise ValueError("object too deep for desired array")
    if not a.numel() or not v.numel():
        raise ValueError(f"{'a' if not a.numel() else 'v'} cannot be empty")
    return a, v


def convolve(a, v, mode="full"):
    """The discrete convolution of two vectors."""
    a, v = _vectors(a, v, "convolve")
    return result(_slide(v, a, mode) if v.shape[0] > a.shape[0] else _slide(a, v, mode))


def correlate(a, v, mode="valid"):
    """The correlation of two vectors, the second conjugated."""
    a, v = _vectors(a, v, "correlate")
    v = v.conj() if v.is_complex() else v
    if v.shape[0] > a.shape[0]:  # as the other way about, backwards
        return result(_slide(v, a.flip((0,)), mode).flip((0,)))
    return result(_slide(a, v.flip((0,)), mode))


def cov(m, y=None, rowvar=True, bias=False, ddof=None, fweights=None, aweights=None, *, dtype=None):
    """The covariances of variables in rows."""
    if ddof is not None and ddof != _b.int(ddof):
        raise ValueError("ddof must be integer")
    x = tensor_of(m)
    if x.dim() > 2:
        raise ValueError("m has more than 2 dimensions")
    x = cast(x, PROMOTED_NATIVE[x.dtype, _C.float64] if dtype is None else native(dtype))
    x = x.reshape(1, -1) if x.dim() < 2 else x if rowvar else x.T
    if y is not None:
        other = tensor_of(y)
        other = cast(other, PROMOTED_NATIVE[x.dtype, other.dtype] if dtype is None else x.dtype)
        other = other.reshape(1, -1) if other.dim() < 2 else other if rowvar else other.T
        x = _t.cat([cast(x, other.dtype), other], 0)
    ddof = (0 if bias else 1) if ddof is None else ddof
    w, n = None, x.shape[1]
    if fweights is not None:
        f = tensor_of(fweights)
        if f.is_floating_point() and _b.bool((f != f.round()).any()):
            raise TypeError("fweights must be integer")
        if f.dim() > 1:
            raise RuntimeError("cannot handle multidimensional fweights")
        if f.shape[0] != n:
            raise RuntimeError("incompatible numbers of samples and fweights")
        if _b.bool((f < 0).any()):
            raise ValueError("fweights cannot be negative")
        w = f.to(_C.float64)
    aw = None
    if aweights is not None:
        aw = tensor_of(aweights).to(_C.float64)
        if aw.dim() > 1:
            raise RuntimeError("cannot handle multidimensional aweights")
        if aw.shape[0] != n:
            raise RuntimeError("incompatible numbers of samples and aweights")
        if _b.bool((aw < 0).any()):
            raise ValueError("aweights cannot be negative")
        w = aw if w is None else w * aw
    if w is None:
        total, mean, fact = n, x.mean(1, True), n - ddof
    else:
        total = w.sum()
        mean = (x * w).sum(1, True) / total
        fact = total - ddof if aw is None else total - ddof * (w * aw).sum() / total if ddof else total
        fact = float(fact)
    if fact <= 0:
        import warnings

        warnings.warn("Degrees of freedom <= 0 for slice", RuntimeWarning, stacklevel=2)
        fact = 0.0
    c = x - mean
    right = (c if w is None else c * w).mT
    r = _t.matmul(c, right.conj() if right.is_complex() else right)
    r = r / fact if fact else r / _t.zeros((), dtype=r.dtype, device=r.device)
    return result(r.squeeze())


def corrcoef(x, y=None, rowvar=True, *, dtype=None):
    """The correlations of variables in rows."""
    c = cov(x, y, rowvar, dtype=dtype)._tensor
    if not c.dim():
        return result(c / c)
    d = (c.diagonal().real if c.is_complex() else c.diagonal()).sqrt()
    r = c / d.unsqueeze(1) / d.unsqueeze(0)
    return result(r if r.is_complex() else r.clamp(-1, 1))


_C._set_array_operator("matmul", None, matmul, lambda a, b: matmul(b, a))
ndarray.__imatmul__ = lambda self, other: matmul(self, other, out=self)  # type: ignore[attr-defined]
