"""What operators and methods of Tensor do with sparse tensors. All is made of operators on indices and values, so that it has gradients and
runs on every device; what makes a sparse tensor of another number of elements waits for that number."""
from __future__ import annotations

from typing import Any

from .. import _C
from . import _ops
from ._layouts import sparse_coo, sparse_csr, strided
from ._sparse_tensor import (
    FUNCTIONS, SparseTensor, Tensor, as_coo, become, from_keys, function, indices_of, is_sparse, keys_of, make, make_csr,
    unique, with_values,
)

# ---- parts and layouts


@function("coalesce")
def coalesce(x: SparseTensor) -> SparseTensor:
    """Elements in order, each once: values of the same place are added."""
    x = _coordinates(x, "coalesce")
    if x._coalesced_:
        return x
    if x.dtype == _C.bool:  # which are not added
        return to(_C._coalesce(to(x, _C.int32)), _C.bool)
    return _C._coalesce(x)


def _coordinates(x: Tensor, name: str) -> SparseTensor:
    if not is_sparse(x) or x._crow_ is not None:
        kind = "SparseCsr" if is_sparse(x) else "Strided"
        raise RuntimeError(f"{name} expected sparse coordinate tensor layout but got {kind}")
    return x


def _coalesced(x: SparseTensor, what: str) -> SparseTensor:
    if not _coordinates(x, what)._coalesced_:
        raise RuntimeError(f"Cannot get {what} on an uncoalesced tensor, please call .coalesce() first")
    return x


function("is_coalesced")(lambda x: _coordinates(x, "is_coalesced")._coalesced_)
function("indices")(lambda x: _coalesced(x, "indices")._indices_)
function("values")(lambda x: x._values_ if x._crow_ is not None else _coalesced(x, "values")._values_)
function("_indices")(lambda x: _coordinates(x, "_indices")._indices_)
function("_values")(lambda x: x._values_)
function("_nnz")(lambda x: len(x._values_))
function("sparse_dim")(lambda x: 2 if x._crow_ is not None else len(x._indices_))
function("dense_dim")(lambda x: x._values_.dim() - 1)


def _rows(x: Tensor, name: str) -> SparseTensor:
    if not is_sparse(x) or x._crow_ is None:
        raise RuntimeError(f"{name} expected sparse row compressed tensor layout but got {'Sparse' if is_sparse(x) else 'Strided'}")
    return x


function("crow_indices")(lambda x: _rows(x, "crow_indices")._crow_)
function("col_indices")(lambda x: _rows(x, "col_indices")._columns_)


@function("to_dense")
def to_dense(x: SparseTensor, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """All elements."""
    if dtype is not None:
        raise RuntimeError("dtype argument is not supported by sparse_to_dense")
    if masked_grad is False:
        raise NotImplementedError("to_dense(): gradients are those of the elements that are there, as with masked_grad=True")
    x = as_coo(x)
    if x.dtype == _C.bool:
        return to_dense(with_values(x, x._values_.to(_C.int32))) > 0
    sizes, rest = x.shape[: len(x._indices_)], x._values_.shape[1:]
    total = _ops.zeros((sizes.numel(), *rest), dtype=x.dtype, device=x.device)
    return total.index_add(0, keys_of(x._indices_, sizes), x._values_).reshape(x.shape)


@function("to_sparse", "to_sparse_coo", "to_sparse_csr")
def to_sparse(x: SparseTensor, sparse_dim: int | None = None, *, layout: Any = None, blocksize: Any = None, dense_dim: Any = None):
    """Itself in the other layout."""
    if blocksize is not None or dense_dim or layout not in (None, sparse_coo, sparse_csr):
        raise NotImplementedError("to_sparse(): the layouts are sparse_coo and sparse_csr, without blocks and dense dimensions of rows")
    if sparse_dim is not None and sparse_dim != x.sparse_dim():
        raise RuntimeError("to_sparse: conversion from Sparse to Sparse with sparse_dim argument !=self.sparse_dim() is not supported")
    if layout is not sparse_csr:
        return as_coo(x)
    return x if x._crow_ is not None else compress(coalesce(x))


FUNCTIONS["to_sparse_csr"] = lambda x, dense_dim=None: to_sparse(x, layout=sparse_csr, dense_dim=dense_dim)


def compress(x: SparseTensor) -> SparseTensor:
    """A coalesced matrix by rows."""
    if len(x.shape) != 2 or x._values_.dim() != 1:
        raise RuntimeError(f"to_sparse_csr(): a matrix is wanted, not {x.dim()} dimensions")
    return make_csr(_row_starts(x), x._indices_[1], x._values_, x.shape)


def _row_starts(x: SparseTensor) -> Tensor:
    return _ops.searchsorted(x._indices_[0].contiguous(), _ops.arange(x.shape[0] + 1, device=x.device))


def from_dense(x: Tensor, sparse_dim: int | None = None, layout: Any = sparse_coo) -> Tensor:
    """The elements of a plain tensor that are not zero; its last dimensions stay dense where sparse_dim says so."""
    if layout is strided:
        return x
    if layout not in (sparse_coo, sparse_csr):
        raise NotImplementedError(f"to_sparse(): there is no {layout}, but sparse_coo and sparse_csr")
    count = x.dim() if sparse_dim is None else sparse_dim
    if not 0 < count <= x.dim():
        raise RuntimeError(f"to_sparse(): sparse_dim must be between 1 and {x.dim()}, but it is {count}")
    there = x.detach() != 0
    if count < x.dim():
        there = there.flatten(count).any(-1)
    where = _ops.nonzero(there)
    found = make(where.T.contiguous(), x[tuple(where.unbind(1))], x.shape, True)
    return found if layout is sparse_coo else compress(found)


@function("sparse_mask")
def sparse_mask(x: Tensor, mask: SparseTensor) -> SparseTensor:
    """The elements of a plain tensor at the places of a sparse one."""
    return with_values(mask, x[tuple(indices_of(mask).unbind())])


# ---- what is done to values alone


@function("requires_grad_")
def requires_grad_(x: SparseTensor, requires_grad: bool = True) -> SparseTensor:
    """Of its values. The tensor has memory of its own from then on, if it was made of a tensor that was no leaf's."""
    if x._values_.requires_grad != requires_grad:
        if not x._values_.is_leaf:
            raise RuntimeError("you can only change requires_grad flags of leaf variables.")
        become(x, with_values(x, x._values_.detach().requires_grad_(requires_grad)))
    return x


def _of_values(name: str, in_order: bool = False) -> None:
    def call(x, *args, **kwargs):
        x = coalesce(x) if in_order and x._crow_ is None else x
        return with_values(x, getattr(x._values_, name)(*args, **kwargs))

    call.__name__ = name
    FUNCTIONS[name] = call


for _name in ("clone", "detach", "float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool", "cfloat", "cdouble",
              "neg", "negative", "conj"):
    _of_values(_name)
# Functions that are 0 at 0. Those of a sum are not the sum of those.
for _name in ("abs", "absolute", "asin", "arcsin", "asinh", "atan", "arctan", "atanh", "ceil", "deg2rad", "erf", "erfinv", "expm1", "floor",
              "isinf", "isnan", "log1p", "rad2deg", "relu", "round", "sgn", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh",
              "trunc"):
    _of_values(_name, in_order=True)
FUNCTIONS["__neg__"], FUNCTIONS["__abs__"] = FUNCTIONS["neg"], FUNCTIONS["abs"]


function("__copy__")(lambda x: with_values(x, x._values_))


@function("to", "cpu", "cuda", "type")
def to(x: SparseTensor, *args: Any, **kwargs: Any) -> SparseTensor:
    """Another dtype of the values, another device of all."""
    values = x._values_.to(*args, **kwargs)
    if values is x._values_:
        return x
    if x._crow_ is not None:
        return make_csr(x._crow_.to(values.device), x._columns_.to(values.device), values, x.shape)
    return make(x._indices_.to(values.device), values, x.shape, x._coalesced_)


FUNCTIONS["cpu"] = lambda x: to(x, "cpu")
FUNCTIONS["cuda"] = lambda x, device=None, non_blocking=False: to(x, "cuda" if device is None else device, non_blocking=non_blocking)
FUNCTIONS["type"] = lambda x, dtype: to(x, dtype)


@function("zeros_like")
def zeros_like(x: SparseTensor) -> SparseTensor:
    """No elements."""
    if x._crow_ is not None:
        return make_csr(_ops.zeros_like(x._crow_), x._columns_[:0], x._values_.detach()[:0], x.shape)
    return make(x._indices_[:, :0], x._values_.detach()[:0], x.shape, True)


@function("__repr__", "__str__")
def show(x: SparseTensor) -> str:
    """The parts."""
    def part(name: str, t: Tensor, margin: str = "       ") -> str:
        return f"{name}=" + repr(t).replace("\n", "\n" + margin + " " * (len(name) + 1))

    parts = [part("indices", x._indices_)] if x._crow_ is None else [part("crow_indices", x._crow_), part("col_indices", x._columns_)]
    parts.append(part("values", x._values_.detach()))
    end = f"size={tuple(x.shape)}, nnz={len(x._values_)}, layout={x.layout}"
    if x.grad_fn is not None:
        end += f", grad_fn={x.grad_fn!r}"
    elif x.requires_grad:
        end += ", requires_grad=True"
    return "tensor(" + ",\n       ".join([*parts, end]) + ")"


# ---- elementwise functions of two


def _is_number(x: Any) -> bool:
    return not isinstance(x, Tensor) or (x.dim() == 0 and not is_sparse(x))


def _as(x: SparseTensor, like: Tensor) -> SparseTensor:
    return compress(coalesce(x)) if is_sparse(like) and like._crow_ is not None else x


@function("mul", "multiply", "__mul__", "__rmul__")
def mul(x: Any, y: Any) -> SparseTensor:
    """With a number, a plain tensor, whose elements at other places do not matter, or a sparse one."""
    if not is_sparse(x):
        x, y = y, x
    if _is_number(y):
        return with_values(x, x._values_ * y)
    if not is_sparse(y):
        return with_values(x, x._values_ * y.expand(x.shape)[tuple(indices_of(x).unbind())])
    _same_size(x, y, "mul")
    a, b = coalesce(as_coo(x)), coalesce(as_coo(y))
    sizes = a.shape[: len(a._indices_)]
    first, second = keys_of(a._indices_, sizes), keys_of(b._indices_, sizes)
    if not len(second):
        return _as(zeros_like(a), x)
    place = _ops.searchsorted(second, first).clamp(max=len(second) - 1)
    both = _ops.nonzero(second[place] == first)[:, 0]
    return _as(make(a._indices_[:, both], a._values_[both] * b._values_[place[both]], a.shape, True), x)


@function("div", "divide", "true_divide", "__truediv__")
def div(x: Any, y: Any, *, rounding_mode: str | None = None) -> SparseTensor:
    """By a number."""
    if not is_sparse(x) or not _is_number(y):
        raise RuntimeError("Sparse division requires a scalar or zero-dim dense tensor divisor")
    return with_values(x, x._values_.div(y, rounding_mode=rounding_mode))


@function("pow", "__pow__")
def power(x: Any, exponent: Any) -> SparseTensor:
    """By a positive number: others are not 0 at 0."""
    if not is_sparse(x) or not _is_number(exponent) or exponent <= 0:
        raise RuntimeError("pow(): sparse tensors are raised to positive numbers")
    x = coalesce(x) if x._crow_ is None else x
    return with_values(x, x._values_ ** exponent)


def _same_size(x: Tensor, y: Tensor, name: str) -> None:
    if x.shape != y.shape:
        raise RuntimeError(f"{name}(): sizes of sparse tensors must be the same, but they are {tuple(x.shape)} and {tuple(y.shape)}")


@function("add", "__add__", "__radd__")
def add(x: Any, y: Any, *, alpha: Any = 1) -> Tensor:
    """Of two sparse tensors, or of a sparse one to a plain one."""
    if is_sparse(x) and not is_sparse(y):
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    if not is_sparse(x):
        if _is_number(x):
            raise RuntimeError("add(): a sparse tensor is added to a tensor of its size, not to a number")
        return x.add(to_dense(y) if is_sparse(y) else y, alpha=alpha)
    _same_size(x, y, "add")
    a, b = as_coo(x), as_coo(y)
    dtype = _C._result_type((a._values_, b._values_), ())
    both = make(_ops.cat([a._indices_, b._indices_], 1), _ops.cat([a._values_.to(dtype), (alpha * b._values_).to(dtype)]), x.shape, False)
    return _as(coalesce(both), x)


FUNCTIONS["__radd__"] = lambda x, y: add(y, x)


@function("sub", "subtract", "__sub__")
def sub(x: Any, y: Any, *, alpha: Any = 1) -> Tensor:
    """See add()."""
    return add(x, y, alpha=-alpha)


FUNCTIONS["__rsub__"] = lambda x, y: add(y, x, alpha=-1)


def _in_place(name: str) -> None:
    def call(x, *args, **kwargs):
        if not is_sparse(x):
            return x.copy_(FUNCTIONS[name](x, *args, **kwargs))
        if x.requires_grad and x.is_leaf and _C.is_grad_enabled():
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        changed = FUNCTIONS[name](x, *args, **kwargs)
        return become(x, changed)

    FUNCTIONS[f"{name}_"] = FUNCTIONS[f"__i{name if name != 'div' else 'truediv'}__"] = call


for _name in ("add", "sub", "mul", "div"):
    _in_place(_name)


@function("zero_")
def zero_(x: SparseTensor) -> SparseTensor:
    """No elements any more."""
    return become(x, zeros_like(x))


# ---- products


def _product(x: SparseTensor, dense: Tensor) -> Tensor:
    """(n, m) sparse times (m, p) plain."""
    if x.dim() != 2 or dense.dim() != 2 or x._values_.dim() != 1:
        raise RuntimeError(f"products of sparse tensors are those of matrices, but there are {x.dim()} and {dense.dim()} dimensions")
    if x.shape[1] != dense.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({x.shape[0]}x{x.shape[1]} and {dense.shape[0]}x{dense.shape[1]})")
    if x.dtype != dense.dtype:
        raise RuntimeError(f"expected scalar type {x.dtype} but found {dense.dtype}")
    if x.is_floating_point() and (x._crow_ is not None or x._coalesced_) and len(x._values_) and dense.numel():
        # Rows are bags: one kernel, which keeps nothing of the size of elements times columns.
        crow, columns = (x._crow_, x._columns_) if x._crow_ is not None else (_row_starts(x), x._indices_[1])
        return _ops.embedding_bag(columns, dense, crow.to(columns.dtype), mode="sum", per_sample_weights=x._values_,
                                  include_last_offset=True)
    rows, columns = indices_of(x)
    total = _ops.zeros((x.shape[0], dense.shape[1]), dtype=x.dtype, device=x.device)
    return total.index_add(0, rows, x._values_[:, None] * dense[columns])


def _sparse_product(x: SparseTensor, y: SparseTensor) -> SparseTensor:
    """Both sparse: each element of x meets the row of y that its column names."""
    if x.shape[-1] != y.shape[0] or x.dim() != 2 or y.dim() != 2:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({tuple(x.shape)} and {tuple(y.shape)})")
    a, b = as_coo(x), coalesce(as_coo(y))
    starts = _row_starts(b)
    counts = starts.diff()[a._indices_[1]]
    first = _ops.repeat_interleave(_ops.arange(len(counts), device=x.device), counts)
    before = counts.cumsum(0) - counts
    second = starts[a._indices_[1][first]] + _ops.arange(len(first), device=x.device) - before[first]
    indices = _ops.stack([a._indices_[0][first], b._indices_[1][second]])
    return _as(coalesce(make(indices, a._values_[first] * b._values_[second], (x.shape[0], y.shape[1]), False)), x)


@function("mm", "matmul", "spmm", "dsmm", "smm", "mv", "__matmul__", "_sparse_mm")
def matmul(x: Tensor, y: Tensor) -> Tensor:
    """Of matrices, at least one of them sparse: plain, or sparse if both are. The second may be a plain vector."""
    if is_sparse(x) and is_sparse(y):
        return _sparse_product(x, y)
    if is_sparse(x):
        return _product(x, y[:, None])[:, 0] if y.dim() == 1 else _product(x, y)
    turned = transpose(as_coo(y), 0, 1)
    return matmul(turned, x) if x.dim() == 1 else matmul(turned, x.T).T


FUNCTIONS["__rmatmul__"] = lambda x, y: matmul(y, x)


@function("addmm", "saddmm")
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2)."""
    product = alpha * matmul(mat1, mat2)
    if beta == 0:
        return product
    return add(mul(input, beta) if is_sparse(input) else beta * input, product)


@function("linear")
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias."""
    product = matmul(input, weight.T)
    return product if bias is None else product + bias


# ---- shapes


@function("transpose", "swapaxes", "swapdims")
def transpose(x: SparseTensor, dim0: int, dim1: int) -> SparseTensor:
    """Of sparse dimensions; of compressed rows in the layout of coordinates."""
    x = as_coo(x)
    order = list(range(x.dim()))
    a, b = order[dim0], order[dim1]
    if max(a, b) >= len(x._indices_) and a != b:
        raise RuntimeError("transpose(): only sparse dimensions change places")
    order[a], order[b] = order[b], order[a]
    size = [x.shape[d] for d in order]
    return make(x._indices_[order[: len(x._indices_)]], x._values_, size, False)


@function("t")
def t(x: SparseTensor) -> SparseTensor:
    """Of a matrix."""
    if x.dim() > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {x.dim()}D")
    return transpose(x, 0, 1) if x.dim() == 2 else x


@function("sum")
def total(x: SparseTensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Of all, or over dimensions: sparse where a sparse one is left."""
    values = x._values_ if dtype is None else x._values_.to(dtype)
    if dim is None:
        return values.sum()
    x = as_coo(x)
    count, given = len(x._indices_), [dim] if isinstance(dim, int) else list(dim)
    gone = sorted(range(x.dim())[d] for d in given)
    dense = [d - count + 1 for d in gone if d >= count]
    if dense:
        values = values.sum(dense, keepdim=keepdim)
    if keepdim:
        size = [1 if d in gone else s for d, s in enumerate(x.shape)]
        indices = _ops.stack([_ops.zeros_like(i) if d in gone else i for d, i in enumerate(x._indices_)])
        return coalesce(make(indices, values, size, False))
    left = [d for d in range(count) if d not in gone]
    if not left:
        return values.sum(0)
    size = [s for d, s in enumerate(x.shape) if d not in gone]
    return coalesce(make(x._indices_[left], values, size, len(left) == count and x._coalesced_))


@function("norm")
def norm(x: SparseTensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """Of all elements."""
    if dim is not None or keepdim:
        raise NotImplementedError("norm(): that of a sparse tensor is of all elements")
    x = coalesce(x) if x._crow_ is None else x
    return x._values_.norm(p, dtype=dtype)


function("any")(lambda x: (coalesce(as_coo(x))._values_ != 0).any())


@function("cat", "concat", "concatenate")
def cat(tensors, dim: int = 0) -> SparseTensor:
    """Along a sparse dimension."""
    if not all(map(is_sparse, tensors)):
        raise RuntimeError("cat(): sparse tensors do not go with plain ones: to_sparse() or to_dense() these")
    parts = [as_coo(x) for x in tensors]
    count, d = len(parts[0]._indices_), range(parts[0].dim())[dim]
    sizes = [[s for i, s in enumerate(x.shape) if i != d] for x in parts]
    if d >= count or any(len(x._indices_) != count for x in parts) or any(s != sizes[0] for s in sizes):
        raise RuntimeError("cat(): sparse tensors of the same other sizes are joined along a sparse dimension")
    indices, end = [], 0
    for x in parts:
        step = _ops.zeros((count, 1), dtype=x._indices_.dtype, device=x.device)
        step[d] = end
        indices.append(x._indices_ + step)
        end += x.shape[d]
    size = [end if i == d else s for i, s in enumerate(parts[0].shape)]
    return make(_ops.cat(indices, 1), _ops.cat([x._values_ for x in parts]), size, d == 0 and all(x._coalesced_ for x in parts))


@function("unsqueeze")
def unsqueeze(x: SparseTensor, dim: int) -> SparseTensor:
    """With one more dimension, sparse among sparse ones."""
    x = as_coo(x)
    d = range(x.dim() + 1)[dim]
    size, count = [*x.shape[:d], 1, *x.shape[d:]], len(x._indices_)
    if d > count:
        return make(x._indices_, x._values_.unsqueeze(d - count + 1), size, x._coalesced_)
    indices = _ops.cat([x._indices_[:d], _ops.zeros_like(x._indices_[:1]), x._indices_[d:]])
    return make(indices, x._values_, size, x._coalesced_)


@function("stack")
def stack(tensors, dim: int = 0) -> SparseTensor:
    """Along a new sparse dimension."""
    return cat([unsqueeze(x, dim) for x in tensors], dim)


@function("index_select")
def index_select(x: SparseTensor, dim: int, index: Tensor) -> SparseTensor:
    """Slices of a sparse dimension."""
    x = as_coo(x)
    d = range(x.dim())[dim]
    if d >= len(x._indices_):
        return with_values(x, x._values_.index_select(d - len(x._indices_) + 1, index))
    order = _ops.argsort(x._indices_[d], stable=True)
    places = x._indices_[d][order]
    index = _ops.where(index < 0, index + x.shape[d], index)
    begin, end = _ops.searchsorted(places, index), _ops.searchsorted(places, index, right=True)
    counts = end - begin
    which = _ops.repeat_interleave(_ops.arange(len(index), device=x.device), counts)
    before = counts.cumsum(0) - counts
    chosen = order[begin[which] + _ops.arange(len(which), device=x.device) - before[which]]
    indices = x._indices_[:, chosen].clone()
    indices[d] = which
    return make(indices, x._values_[chosen], [len(index) if i == d else s for i, s in enumerate(x.shape)], False)


@function("select")
def select(x: SparseTensor, dim: int, index: int) -> Tensor:
    """One slice: sparse, or plain where no sparse dimension is left."""
    x = coalesce(as_coo(x))
    d = range(x.dim())[dim]
    if not -x.shape[d] <= index < x.shape[d]:
        raise IndexError(f"select(): index {index} out of range for tensor of size {tuple(x.shape)} at dimension {dim}")
    if d >= len(x._indices_):
        return make(x._indices_, x._values_.select(d - len(x._indices_) + 1, index), [s for i, s in enumerate(x.shape) if i != d], True)
    where = _ops.nonzero(x._indices_[d] == index % x.shape[d])[:, 0]
    left = [i for i in range(len(x._indices_)) if i != d]
    if not left:
        return x._values_[where].sum(0)
    return make(x._indices_[left][:, where], x._values_[where], [s for i, s in enumerate(x.shape) if i != d], True)


@function("__getitem__")
def getitem(x: SparseTensor, index: Any) -> Tensor:
    """By whole numbers, one for each of the first dimensions."""
    for i in index if isinstance(index, tuple) else (index,):
        if not isinstance(i, int) or isinstance(i, bool):
            raise NotImplementedError("sparse tensors are indexed by whole numbers; index_select() takes several")
        x = x.select(0, i)
    return x


# ---- what torch says of them without looking at elements

function("is_contiguous")(lambda x, memory_format=None: False)
function("is_pinned")(lambda x, device=None: False)
function("numpy", "__array__")(lambda x, *args, **kwargs: _no_numpy())


def _no_numpy():
    raise TypeError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")


def softmax(x: SparseTensor, dim: int, logarithm: bool) -> SparseTensor:
    """Over the elements that are there: the others count as minus infinity."""
    given, x = x, coalesce(as_coo(x))
    d = range(x.dim())[dim]
    if d >= len(x._indices_):
        values = x._values_.log_softmax(d - len(x._indices_) + 1) if logarithm else x._values_.softmax(d - len(x._indices_) + 1)
        return _as(with_values(x, values), given)
    left = [i for i in range(len(x._indices_)) if i != d]
    keys = keys_of(x._indices_[left], [x.shape[i] for i in left])
    rows, place = unique(keys)
    shape = (len(rows), *x._values_.shape[1:])
    whole = place.reshape(-1, *[1] * (x._values_.dim() - 1)).expand(x._values_.shape)
    most = _ops.full(shape, -float("inf"), dtype=x.dtype, device=x.device).scatter_reduce(0, whole, x._values_.detach(), "amax")
    shifted = x._values_ - most[place]
    sums = _ops.zeros(shape, dtype=x.dtype, device=x.device).index_add(0, place, shifted.exp())[place]
    return _as(with_values(x, shifted - sums.log() if logarithm else shifted.exp() / sums), given)


for _name, _f in FUNCTIONS.items():
    if hasattr(Tensor, _name):
        setattr(SparseTensor, _name, _f)
