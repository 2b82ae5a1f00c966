"""What operators and methods of Tensor do with sparse tensors. All is made of operators on indices and values, so that it has gradients and
runs on every device; what makes a sparse tensor of another number of elements waits for that number."""
from __future__ import annotations

from typing import Any

from .. import _C
from . import _ops
from ._layouts import (
    BLOCKS, BY_COLUMNS, COMPRESSED, contiguous_format, preserve_format, sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr, strided,
)
from ._sparse_tensor import (
    FUNCTIONS, SparseTensor, Tensor, as_coo, as_one, become, block_of, clone_parts, from_keys, function, indices_of, is_sparse, keys_of,
    make, make_csr, places_of, unique, with_parts, with_values,
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


def _kind(x: Tensor) -> str:
    """The name that messages have for a layout: SparseCsr."""
    if not is_sparse(x):
        return "Strided"
    return "Sparse" if x._crow_ is None else "Sparse" + x._layout_._name.removeprefix("sparse_").capitalize()


def _coordinates(x: Tensor, name: str) -> SparseTensor:
    if not is_sparse(x) or x._crow_ is not None:
        raise RuntimeError(f"{name} expected sparse coordinate tensor layout but got {_kind(x)}")
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
function("_nnz")(lambda x: x._values_.shape[0 if x._crow_ is None else x._crow_.dim() - 1])
function("sparse_dim")(lambda x: 2 if x._crow_ is not None else len(x._indices_))
function("dense_dim")(lambda x: x._values_.dim() - 1 if x._crow_ is None else 0)


def _lines(x: Tensor, name: str, columns: bool) -> SparseTensor:
    if not is_sparse(x) or x._crow_ is None or (x._layout_ in BY_COLUMNS) != columns:
        raise RuntimeError(f"{name} expected sparse {'column' if columns else 'row'} compressed tensor layout but got {_kind(x)}")
    return x


function("crow_indices")(lambda x: _lines(x, "crow_indices", False)._crow_)
function("col_indices")(lambda x: _lines(x, "col_indices", False)._columns_)
function("ccol_indices")(lambda x: _lines(x, "ccol_indices", True)._crow_)
function("row_indices")(lambda x: _lines(x, "row_indices", True)._columns_)


@function("to_dense")
def to_dense(x: SparseTensor, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """All elements."""
    if dtype is not None:
        raise RuntimeError("dtype argument is not supported by sparse_to_dense")
    if masked_grad is False:
        raise NotImplementedError("to_dense(): gradients are those of the elements that are there, as with masked_grad=True")
    if x.dtype == _C.bool:
        return to_dense(with_values(x, x._values_.to(_C.int32))) > 0
    if x.layout in BLOCKS:
        one, batch, (high, wide) = as_one(x), x.shape[:-2], block_of(x)
        (rows, columns), grid = places_of(one), (x.shape[-2] // high, x.shape[-1] // wide)
        total = _ops.zeros((batch.numel() * grid[0] * grid[1], high, wide), dtype=x.dtype, device=x.device)
        total = total.index_add(0, rows * grid[1] + (columns if one is x else columns % max(grid[1], 1)), one._values_)
        return total.reshape(*batch, *grid, high, wide).transpose(-3, -2).reshape(x.shape)
    x = as_coo(x)
    sizes, rest = x.shape[: len(x._indices_)], x._values_.shape[1:]
    total = _ops.zeros((sizes.numel(), *rest), dtype=x.dtype, device=x.device)
    return total.index_add(0, keys_of(x._indices_, sizes), x._values_).reshape(x.shape)


@function("to_sparse", "to_sparse_coo")
def to_sparse(x: SparseTensor, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None, dense_dim: Any = None):
    """Itself in another layout."""
    if dense_dim:
        raise NotImplementedError("to_sparse(): compressed layouts are those of matrices, without dense dimensions")
    if sparse_dim is not None and sparse_dim != x.sparse_dim():
        raise RuntimeError("to_sparse: conversion from Sparse to Sparse with sparse_dim argument !=self.sparse_dim() is not supported")
    if layout in (None, sparse_coo):
        return as_coo(x) if x._in_order_ else coalesce(as_coo(x))
    blocksize = _checked_blocks(x, layout, blocksize or (block_of(x) if x.layout in BLOCKS and layout in BLOCKS else None))
    if x.layout is layout and (layout not in BLOCKS or block_of(x) == blocksize):
        return x
    return compress(coalesce(as_coo(x)), layout, blocksize)


def _checked_blocks(x: Tensor, layout: Any, blocksize: Any) -> tuple | None:
    """The sizes of blocks that a layout wants, which must divide those of the matrices."""
    if layout not in COMPRESSED:
        raise NotImplementedError(f"to_sparse(): there is no {layout}")
    if x.dim() < 2:
        raise RuntimeError(f"to_{layout._name}(): matrices are wanted, not {x.dim()} dimensions")
    if 0 in x.shape[:-2]:
        raise RuntimeError(f"to_{layout._name}: Expected product of batch dimensions to be non-zero.")
    if layout not in BLOCKS:
        if blocksize is not None:
            raise RuntimeError(f"to_{layout._name}(): blocks have layouts of their own, sparse_bsr and sparse_bsc")
        return None
    source = "dense" if not is_sparse(x) else _kind(x)
    if blocksize is None:
        raise RuntimeError(f"{source}_to_sparse: conversion from {_kind(x)} to {_name_of(layout)} without blocksize argument given is not "
                           "supported")
    blocksize = (blocksize,) * 2 if isinstance(blocksize, int) else tuple(blocksize)
    if len(blocksize) != 2 or min(blocksize) < 1:
        raise RuntimeError(f"{source}_to_{layout._name}: blocks have two sizes of at least 1, but blocksize is {blocksize}")
    if x.shape[-2] % blocksize[0] or x.shape[-1] % blocksize[1]:
        raise RuntimeError(f"{source}_to_{layout._name}: tensor sparse size ({x.shape[-2]},{x.shape[-1]}) must be divisible by given "
                           f"blocksize ({blocksize[0]},{blocksize[1]})")
    return blocksize


def _name_of(layout: Any) -> str:
    return "Sparse" + layout._name.removeprefix("sparse_").capitalize()


def _to_elements(layout: Any):
    return lambda x, dense_dim=None: to_sparse(x, layout=layout, dense_dim=dense_dim)


def _to_blocks(layout: Any):
    return lambda x, blocksize=None, dense_dim=None: to_sparse(x, layout=layout, blocksize=blocksize, dense_dim=dense_dim)


FUNCTIONS["to_sparse_csr"], FUNCTIONS["to_sparse_csc"] = _to_elements(sparse_csr), _to_elements(sparse_csc)
FUNCTIONS["to_sparse_bsr"], FUNCTIONS["to_sparse_bsc"] = _to_blocks(sparse_bsr), _to_blocks(sparse_bsc)


def compress(x: SparseTensor, layout: Any = sparse_csr, blocksize: Any = None) -> SparseTensor:
    """A coalesced matrix, or a batch of such, by rows or columns, of elements or blocks."""
    if len(x._indices_) < 2 or x._values_.dim() != 1:
        raise RuntimeError(f"to_{layout._name}(): matrices without dense dimensions are wanted, not {x.dim()} dimensions, of which "
                           f"{x.dense_dim()} are dense")
    batch = x.shape[:-2]
    which = keys_of(x._indices_[:-2], batch) if batch else 0
    if layout is sparse_csr:
        lines = x._indices_[-2] + which * x.shape[-2] if batch else x._indices_[0]
        return _by_lines(_starts(lines, batch.numel() * x.shape[-2]), x._indices_[-1], x._values_, x.shape, layout)
    high, wide = blocksize or (1, 1)
    (rows, inner_rows), (columns, inner_columns) = ((i // n, i % n) for i, n in zip(x._indices_[-2:], (high, wide)))
    by_columns, height = layout in BY_COLUMNS, x.shape[-2] // high
    lines, across = (columns, rows) if by_columns else (rows, columns)
    count, width = (x.shape[-1] // wide, height) if by_columns else (height, x.shape[-1] // wide)
    keys = (which * count + lines) * width + across
    if layout in BLOCKS:
        keys, block = unique(keys)
        values = _ops.zeros(len(keys) * high * wide, dtype=x.dtype, device=x.device)
        values = values.index_copy(0, (block * high + inner_rows) * wide + inner_columns, x._values_).reshape(-1, high, wide)
    else:
        order = _ops.argsort(keys)
        keys, values = keys[order], x._values_[order]
    lines = keys // max(width, 1)
    return _by_lines(_starts(lines, batch.numel() * count), keys - lines * width, values, x.shape, layout)


def _by_lines(starts: Tensor, across: Tensor, values: Tensor, size: Any, layout: Any) -> SparseTensor:
    """A compressed layout from where the lines of all matrices begin and the last ends, and the places in these."""
    batch = size[:-2]
    if not batch:
        return make_csr(starts, across, values, size, layout)
    number = batch.numel()
    count = (len(starts) - 1) // number
    which = _ops.arange(number, device=values.device)[:, None] * count + _ops.arange(count + 1, device=values.device)
    starts = starts[which] - starts[which[:, :1]]
    if (starts[:, -1] * number != len(values)).any():
        raise RuntimeError("Expect the same number of specified elements per batch.")
    each = len(values) // number
    return make_csr(starts.reshape(*batch, count + 1), across.reshape(*batch, each), values.reshape(*batch, each, *values.shape[1:]), size,
                    layout)


def _starts(lines: Tensor, count: int) -> Tensor:
    """Where each of so many lines begins, and the last ends, in a list of elements that are in the order of lines."""
    return _ops.searchsorted(lines.contiguous(), _ops.arange(count + 1, device=lines.device))


def _indices_at(places: Tensor, size: Any) -> Tensor:
    """A row of indices for each dimension, of places in the order of memory: unravel_index, written where it stays."""
    indices = _ops.empty(len(size), len(places), dtype=places.dtype, device=places.device)
    step = 1
    for d in range(len(size) - 1, -1, -1):
        row = places if step == 1 else places // step
        if d == 0:
            indices[0].copy_(row)
        else:
            _ops.remainder(row, max(size[d], 1), out=indices[d])
        step *= size[d] or 1
    return indices


def from_dense(x: Tensor, sparse_dim: int | None = None, layout: Any = sparse_coo, blocksize: Any = None) -> Tensor:
    """The elements of a plain tensor that are not zero; its last dimensions stay dense where sparse_dim says so. Blocks are kept whole
    where one element is not zero."""
    if layout is strided:
        return x
    if layout is not sparse_coo:
        blocksize = _checked_blocks(x, layout, blocksize)
        if sparse_dim not in (None, x.dim()):
            raise RuntimeError(f"to_{layout._name}(): all dimensions are sparse, but sparse_dim is {sparse_dim}")
    elif blocksize is not None:
        raise RuntimeError("to_sparse(): blocks have layouts of their own, sparse_bsr and sparse_bsc")
    if layout in BLOCKS:
        high, wide = blocksize
        parts = x.reshape(*x.shape[:-2], x.shape[-2] // high, high, x.shape[-1] // wide, wide).transpose(-3, -2)
        there = (parts.detach() != 0).flatten(-2).any(-1)
        if layout is sparse_bsc:
            there, parts = there.mT, parts.transpose(-4, -3)
    elif layout in COMPRESSED:
        parts = x.mT if layout is sparse_csc else x
        there = parts.detach() != 0
    if layout in COMPRESSED:  # in the order in which they are kept
        lines, width = there.shape[:-1].numel(), there.shape[-1]
        places = _ops.nonzero(there.flatten())[:, 0]
        starts = _ops.searchsorted(places, _ops.arange(lines + 1, device=x.device) * width)
        return _by_lines(starts, places % max(width, 1), parts.flatten(0, there.dim() - 1)[places], x.shape, layout)
    count = x.dim() if sparse_dim is None else sparse_dim
    if not 0 < count <= x.dim():
        raise RuntimeError(f"to_sparse(): sparse_dim must be between 1 and {x.dim()}, but it is {count}")
    there = x.detach() != 0
    if count < x.dim():
        there = there.flatten(count).any(-1)
    places = _ops.nonzero(there.flatten())[:, 0]
    return make(_indices_at(places, x.shape[:count]), x.flatten(0, count - 1)[places], x.shape, True)


def without_elements(like: Tensor, layout: Any, device: Any, requires_grad: bool) -> SparseTensor:
    """No elements, in the size and dtype of a tensor: what zeros(layout=layout) and its neighbours give."""
    size, index = like.shape, {"dtype": _C.int64, "device": device}
    values = _ops.zeros(0, dtype=like.dtype, device=device)
    if layout is sparse_coo:
        x = make(_ops.zeros((len(size), 0), **index), values, size, True)
    elif layout in (sparse_csr, sparse_csc) and len(size) > 1:
        batch, lines = size[:-2], size[-1 if layout is sparse_csc else -2]
        x = make_csr(_ops.zeros((*batch, lines + 1), **index), _ops.zeros((*batch, 0), **index), values.reshape(*batch, 0), size, layout)
    else:
        raise RuntimeError(f"zeros(): layout {layout} has no tensor of {len(size)} dimensions without elements"
                           + ": the size of its blocks is not known" * (layout in BLOCKS))
    return x.requires_grad_() if requires_grad else x


@function("sparse_mask")
def sparse_mask(x: Tensor, mask: SparseTensor) -> SparseTensor:
    """The elements of a plain tensor at the places of a sparse one."""
    if x.shape != mask.shape:
        raise RuntimeError(f"sparse_mask(): operands have incompatible sizes; self has size {tuple(x.shape)} but mask has size "
                           f"{tuple(mask.shape)}")
    if is_sparse(x):
        x = to_dense(x)
    return with_values(mask, x[tuple(indices_of(mask).unbind())].reshape(mask._values_.shape))


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


for _name in ("detach", "float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool", "cfloat", "cdouble",
              "neg", "negative", "conj"):
    _of_values(_name)
# Functions that are 0 at 0. Those of a sum are not the sum of those.
for _name in ("abs", "absolute", "asin", "arcsin", "asinh", "atan", "arctan", "atanh", "ceil", "deg2rad", "erf", "erfinv", "expm1", "floor",
              "isinf", "isnan", "log1p", "rad2deg", "relu", "round", "sgn", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh",
              "trunc"):
    _of_values(_name, in_order=True)
FUNCTIONS["__neg__"], FUNCTIONS["__abs__"] = FUNCTIONS["neg"], FUNCTIONS["abs"]


def _answer_of_values(name: str) -> None:
    FUNCTIONS[name] = lambda x: getattr(x._values_, name)()


for _name in ("get_device", "is_conj", "is_inference", "is_neg"):
    _answer_of_values(_name)


@function("resolve_conj", "resolve_neg")
def itself(input: SparseTensor) -> SparseTensor:
    return input


@function("positive", "__pos__")
def positive(input: SparseTensor) -> SparseTensor:
    _ops.positive(input._values_)  # refuses bool
    return input


@function("clone")
def clone(x: SparseTensor, **kwargs: Any) -> SparseTensor:
    """With indices of its own, too."""
    return clone_parts(x, x._values_.clone(**kwargs))


function("__copy__")(lambda x: with_values(x, x._values_))


@function("to", "cpu", "cuda", "type")
def to(x: SparseTensor, *args: Any, **kwargs: Any) -> SparseTensor:
    """Another dtype of the values, another device of all."""
    values = x._values_.to(*args, **kwargs)
    if values is x._values_:
        return x
    if x._crow_ is not None:
        return make_csr(x._crow_.to(values.device), x._columns_.to(values.device), values, x.shape, x._layout_, x._in_order_)
    return make(x._indices_.to(values.device), values, x.shape, x._coalesced_)


FUNCTIONS["cpu"] = lambda x: to(x, "cpu")
FUNCTIONS["cuda"] = lambda x, device=None, non_blocking=False: to(x, "cuda" if device is None else device, non_blocking=non_blocking)
FUNCTIONS["type"] = lambda x, dtype: to(x, dtype)


def _refuse_order(memory_format: Any, layout: Any) -> None:
    """Sparse tensors have no order in memory but their own; dense ones that are made of them are contiguous."""
    if memory_format not in (None, preserve_format) and not (layout is strided and memory_format is contiguous_format):
        raise RuntimeError("memory format option is only supported by strided tensors")


@function("zeros_like")
def zeros_like(x: SparseTensor, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
               memory_format: Any = None) -> Tensor:
    """No elements; of another layout, which may be that of dense tensors, if one is given."""
    _refuse_order(memory_format, layout)
    dtype, device = x.dtype if dtype is None else dtype, x.device if device is None else device
    if layout is strided:
        return _ops.zeros(x.shape, dtype=dtype, device=device, requires_grad=requires_grad)
    if layout is not None and layout is not x.layout:
        made = without_elements(x, layout, device, False)
    elif x._crow_ is not None:
        n = x._crow_.dim() - 1
        made = make_csr(_ops.zeros_like(x._crow_), x._columns_[..., :0], x._values_.detach().narrow(n, 0, 0), x.shape, x._layout_)
    else:
        made = make(x._indices_[:, :0], x._values_.detach()[:0], x.shape, True)
    return to(made, device, dtype).requires_grad_(requires_grad)


@function("empty_like")
def empty_like(x: SparseTensor, **options: Any) -> Tensor:
    """No elements of coordinates; those of compressed layouts, with other values."""
    if x._crow_ is None or options.get("layout") not in (None, x.layout):
        return zeros_like(x, **options)
    return _filled_like(x, 0, **options)


@function("ones_like")
def ones_like(x: SparseTensor, **options: Any) -> Tensor:
    """Ones in the places of the elements, of compressed layouts; or a dense tensor of ones (layout=strided)."""
    if options.get("layout") is strided:
        return zeros_like(x, **options | {"requires_grad": False}).fill_(1).requires_grad_(options.get("requires_grad", False))
    if x._crow_ is None:
        raise NotImplementedError("ones_like() of coordinates is dense, in another layout: give layout=torch.strided")
    return _filled_like(x, 1, **options)


def _filled_like(x: SparseTensor, value: int, *, dtype: Any = None, layout: Any = None, device: Any = None,
                 requires_grad: bool = False, memory_format: Any = None) -> SparseTensor:
    """In the layout of x, which is compressed: the same number in each of its places."""
    _refuse_order(memory_format, layout)
    if layout is not None and layout is not x.layout:
        raise NotImplementedError(f"a tensor of layout {x.layout} has no neighbour of layout {layout} with the same places")
    made = with_values(x, _ops.full_like(x._values_.detach(), value, dtype=x.dtype if dtype is None else dtype))
    return to(made, x.device if device is None else device).requires_grad_(requires_grad)


@function("__repr__", "__str__")
def show(x: SparseTensor) -> str:
    """The parts."""
    margin = " " * len("tensor(")

    def part(name: str, t: Tensor) -> str:
        begin = f"{name}=tensor("
        text = _C._values_to_string(t, len(margin) + len(begin))
        return begin + text + (")" if t.numel() else f", size={tuple(t.shape)})")

    names = ("ccol_indices", "row_indices") if x._layout_ in BY_COLUMNS else ("crow_indices", "col_indices")
    parts = [part("indices", x._indices_)] if x._crow_ is None else [part(names[0], x._crow_), part(names[1], x._columns_)]
    text = f",\n{margin}".join([*parts, part("values", x._values_.detach())])
    ends = [] if x.is_cpu else [f"device='{x.device}'"]
    ends += [f"size={tuple(x.shape)}", f"nnz={x._nnz()}"]
    floating = _C.get_default_dtype()
    if x.dtype not in (floating, _C.int64, _C.bool, _C.complex128 if floating == _C.float64 else _C.complex64):
        ends.append(f"dtype={x.dtype}")
    ends.append(f"layout={x.layout}")
    if x.grad_fn is not None:
        ends.append(f"grad_fn={x.grad_fn!r}")
    elif x.requires_grad:
        ends.append("requires_grad=True")
    room = _C._print_options()["linewidth"]
    column = len(text) - text.rfind("\n") + len(margin) * ("\n" not in text) + 1
    for i, end in enumerate(ends):
        if (i == 0 and x._crow_ is None) or column + len(end) + 2 > room:
            text, column = f"{text},\n{margin}{end}", len(margin) + len(end)
        else:
            text, column = f"{text}, {end}", column + len(end) + 2
    return f"tensor({text})"


# ---- elementwise functions of two


def _is_number(x: Any) -> bool:
    return not isinstance(x, Tensor) or (x.dim() == 0 and not is_sparse(x))


def _as(x: SparseTensor, like: Tensor) -> SparseTensor:
    if not is_sparse(like) or like._crow_ is None:
        return x
    return compress(coalesce(x), like._layout_, block_of(like) if like._layout_ in BLOCKS else None)


@function("mul", "multiply", "__mul__", "__rmul__")
def mul(x: Any, y: Any) -> SparseTensor:
    """With a number, a plain tensor, whose elements at other places do not matter, or a sparse one."""
    if not is_sparse(x):
        x, y = y, x
    if _is_number(y):
        return with_values(x, x._values_ * y)
    if not is_sparse(y):
        return with_values(x, x._values_ * y.expand(x.shape)[tuple(indices_of(x).unbind())].reshape(x._values_.shape))
    _same_size(x, y, "mul")
    a, b = coalesce(as_coo(x)), coalesce(as_coo(y))
    sizes = a.shape[: len(a._indices_)]
    first, second = keys_of(a._indices_, sizes), keys_of(b._indices_, sizes)
    if first.equal(second):
        return _as(make(a._indices_, a._values_ * b._values_, a.shape, True), x)
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
    if is_sparse(x) and is_sparse(y) and x.sparse_dim() != y.sparse_dim():
        raise RuntimeError(f"{name}(): sparse tensors must have as many sparse dimensions, but they have {x.sparse_dim()} and "
                           f"{y.sparse_dim()}")


@function("add", "__add__", "__radd__")
def add(x: Any, y: Any, *, alpha: Any = 1) -> Tensor:
    """Of two sparse tensors, or of a sparse one to a plain one."""
    if is_sparse(x) and not is_sparse(y):
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    if not is_sparse(x):
        if _is_number(x):
            raise RuntimeError("add(): a sparse tensor is added to a tensor of its size, not to a number")
        if not is_sparse(y):
            return x.add(y, alpha=alpha)
        _same_size(x, y, "add")
        return x.add(to_dense(y), alpha=alpha)
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
            if name == "div":
                return div(x, *args, **kwargs)  # says why not
            if name != "mul":
                _same_size(x, args[0], name)
            return getattr(x, f"{name}_")(to_dense(args[0]), *args[1:], **kwargs)
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
    """(n, m) sparse times (m, p) plain, or batches of such: the matrices of a compressed layout on the diagonal of one."""
    if x._crow_ is not None and x.dim() > 2 and dense.dim() > 1:
        batch, (height, width) = x.shape[:-2], x.shape[-2:]
        if dense.shape[-2] != width or dense.dim() > x.dim():
            raise RuntimeError(f"a batch of sparse matrices and one of plain ones cannot be multiplied ({tuple(x.shape)} and "
                               f"{tuple(dense.shape)})")
        dense = dense.expand(*batch, *dense.shape[-2:])
        product = _product(as_one(x), dense.reshape(batch.numel() * width, dense.shape[-1]))
        return product.reshape(*batch, height, dense.shape[-1])
    if x.dim() != 2 or dense.dim() != 2 or x.dense_dim():
        raise RuntimeError(f"products of sparse tensors are those of matrices, but there are {x.dim()} and {dense.dim()} dimensions")
    if x.shape[1] != dense.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({x.shape[0]}x{x.shape[1]} and {dense.shape[0]}x{dense.shape[1]})")
    if x.dtype != dense.dtype:
        raise RuntimeError(f"expected scalar type {x.dtype} but found {dense.dtype}")
    if x.layout in BLOCKS:
        # One product for each block; those of a row of blocks are added.
        rows, columns = places_of(x)
        high, wide = x._values_.shape[1:]
        products = x._values_ @ dense.reshape(len(dense) // wide, wide, dense.shape[1])[columns]
        return _added_up(x.shape[0] // high, rows, products).reshape(x.shape[0], dense.shape[1])
    if x.layout is sparse_csc:
        x = to_sparse(x, layout=sparse_csr)
    if x.is_floating_point() and (x._crow_ is not None or x._coalesced_) and len(x._values_) and dense.numel():
        # Rows are bags: one kernel, which keeps nothing of the size of elements times columns.
        crow, columns = (x._crow_, x._columns_) if x._crow_ is not None else (_starts(x._indices_[0], x.shape[0]), x._indices_[1])
        return _ops.embedding_bag(columns, dense, crow.to(columns.dtype), mode="sum", per_sample_weights=x._values_,
                                  include_last_offset=True)
    rows, columns = indices_of(x)
    return _added_up(x.shape[0], rows, x._values_[:, None] * dense[columns])


def _added_up(count: int, rows: Tensor, products: Tensor) -> Tensor:
    """The sum of the products of each row. Halves are added as floats and rounded once."""
    half = products.is_floating_point() and products.element_size() < 4
    products, dtype = products.float() if half else products, products.dtype
    return _ops.zeros((count, *products.shape[1:]), dtype=products.dtype, device=products.device).index_add(0, rows, products).to(dtype)


def _sparse_product(x: SparseTensor, y: SparseTensor) -> SparseTensor:
    """Both sparse: each element of x meets the row of y that its column names."""
    if x.dim() != 2 or y.dim() != 2 or x.shape[1] != y.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({tuple(x.shape)} and {tuple(y.shape)})")
    a, b = as_coo(x), coalesce(as_coo(y))
    starts = _starts(b._indices_[0], b.shape[0])
    counts = starts.diff()[a._indices_[1]]
    first = _ops.repeat_interleave(_ops.arange(len(counts), device=x.device), counts)
    before = counts.cumsum(0) - counts
    second = starts[a._indices_[1][first]] + _ops.arange(len(first), device=x.device) - before[first]
    indices = _ops.stack([a._indices_[0][first], b._indices_[1][second]])
    product = coalesce(make(indices, a._values_[first] * b._values_[second], (x.shape[0], y.shape[1]), False))
    return product if x._crow_ is None else compress(product)


def _into(out: Tensor | None, result: Tensor) -> Tensor:
    """What a function with `out` gives: the result in a plain tensor."""
    if out is None:
        return result
    if is_sparse(out) or is_sparse(result):
        raise NotImplementedError("out= takes plain results of sparse tensors into plain tensors")
    return _ops.mul(result, 1, out=out)


@function("mm", "matmul", "spmm", "dsmm", "smm", "mv", "__matmul__", "_sparse_mm")
def matmul(x: Tensor, y: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Of matrices, at least one of them sparse: plain, or sparse if both are. The second may be a plain vector. Batches of compressed
    layouts are multiplied with plain tensors, of as many dimensions at most."""
    if out is not None:
        return _into(out, matmul(x, y))
    if is_sparse(x) and is_sparse(y):
        return _sparse_product(x, y)
    if is_sparse(x):
        return _product(x, y[:, None])[..., 0] if y.dim() == 1 else _product(x, y)
    turned = transpose(y, -2, -1)
    return matmul(turned, x) if x.dim() == 1 else matmul(turned, x.mT).mT


@function("bmm")
def bmm(x: SparseTensor, y: Tensor) -> Tensor:
    """Sparse matrices, one for each of plain ones: a product of one matrix with these on its diagonal."""
    if is_sparse(y) and not is_sparse(x) and x.dim() == y.dim() == 3:
        return bmm(transpose(y, 1, 2), x.mT).mT
    if not is_sparse(x) or is_sparse(y) or x.dim() != 3 or y.dim() != 3 or x.dense_dim():
        raise RuntimeError("bmm(): a batch of sparse matrices and one of plain ones are expected, but they have "
                           f"{x.dim()} and {y.dim()} dimensions")
    count, height, width = x.shape
    if y.shape[:2] != (count, width):
        raise RuntimeError(f"bmm(): Expected size for first two dimensions of batch2 tensor to be: [{count}, {width}] but got: "
                           f"[{y.shape[0]}, {y.shape[1]}].")
    if x._crow_ is not None:
        return _product(x, y)
    x = coalesce(x)
    which, rows, columns = x._indices_.unbind()
    diagonal = make(_ops.stack([which * height + rows, which * width + columns]), x._values_, (count * height, count * width), True)
    return _product(diagonal, y.reshape(count * width, y.shape[2])).reshape(count, height, y.shape[2])


FUNCTIONS["__rmatmul__"] = lambda x, y: matmul(y, x)


@function("addmm", "addmv", "saddmm", "baddbmm")
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1, out: Tensor | None = None) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2), of matrices or batches of these; `mat2` may be a vector."""
    product = alpha * matmul(mat1, mat2)
    if beta != 0:
        product = add(mul(input, beta) if is_sparse(input) else beta * input, product)
    return _into(out, product)


@function("linear")
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias."""
    product = matmul(input, weight.T)
    return product if bias is None else product + bias


# ---- shapes


_TURNED = {sparse_csr: sparse_csc, sparse_csc: sparse_csr, sparse_bsr: sparse_bsc, sparse_bsc: sparse_bsr}


@function("transpose", "swapaxes", "swapdims")
def transpose(x: SparseTensor, dim0: int, dim1: int) -> SparseTensor:
    """Of sparse dimensions, or two of a batch. Rows become columns: the indices of a compressed layout stay what they are."""
    order = list(range(x.dim()))
    a, b = order[dim0], order[dim1]
    if x._crow_ is not None:
        if a == b:
            return x
        kinds = ["Batch" if d < x.dim() - 2 else "Sparse" for d in (a, b)]
        if kinds[0] != kinds[1]:
            raise RuntimeError("transpose(): can only transpose dimensions of the same type (Batch, Sparse, Dense), got "
                               f"{a}({kinds[0]}) and {b}({kinds[1]})")
        order[a], order[b] = b, a
        size = [x.shape[d] for d in order]
        if kinds[0] == "Batch":
            return with_parts(x, lambda part: part.transpose(a, b), size)
        values = x._values_.transpose(-2, -1) if x._layout_ in BLOCKS else x._values_
        return make_csr(x._crow_, x._columns_, values, size, _TURNED[x._layout_], x._in_order_)
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
    x = as_coo(x)
    values = x._values_ if dtype is None else x._values_.to(dtype)
    if dim is None:
        return values.sum()
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
        size = [len(index) if i == d else s for i, s in enumerate(x.shape)]
        return make(x._indices_, x._values_.index_select(d - len(x._indices_) + 1, index), size, x._coalesced_)
    in_order = d == 0 and x._coalesced_
    order = None if in_order else _ops.argsort(x._indices_[d], stable=True)
    places = x._indices_[d].contiguous() if in_order else x._indices_[d][order]
    if index.is_cpu and ((index < 0) | (index >= x.shape[d])).any():
        raise IndexError(f"index_select(): index out of range for dimension {dim} of size {x.shape[d]}")
    begin, end = _ops.searchsorted(places, index), _ops.searchsorted(places, index, right=True)
    counts = end - begin
    which = _ops.repeat_interleave(_ops.arange(len(index), device=x.device), counts)
    before = counts.cumsum(0) - counts
    chosen = begin[which] + _ops.arange(len(which), device=x.device) - before[which]
    chosen = chosen if in_order else order[chosen]
    indices = x._indices_[:, chosen].clone()
    indices[d] = which
    return make(indices, x._values_[chosen], [len(index) if i == d else s for i, s in enumerate(x.shape)], False)


@function("narrow_copy")
def narrow_copy(x: SparseTensor, dim: int, start: int, length: int) -> SparseTensor:
    """A range of a dimension."""
    x = as_coo(x)
    d = range(x.dim())[dim]
    begin = start + x.shape[d] if start < 0 else start
    if length < 0 or not 0 <= begin <= begin + length <= x.shape[d]:
        raise RuntimeError(f"narrow_copy(): start ({start}) + length ({length}) exceeds dimension size ({x.shape[d]})")
    size = [length if i == d else s for i, s in enumerate(x.shape)]
    if d >= len(x._indices_):
        return make(x._indices_, x._values_.narrow(d - len(x._indices_) + 1, begin, length), size, x._coalesced_)
    there = _ops.nonzero((x._indices_[d] >= begin) & (x._indices_[d] < begin + length))[:, 0]
    indices = x._indices_[:, there].clone()
    indices[d] -= begin
    return make(indices, x._values_[there], size, x._coalesced_)


@function("select")
def select(x: SparseTensor, dim: int, index: int) -> Tensor:
    """One slice: sparse, or plain where no sparse dimension is left. Of a batch of a compressed layout one of it, in this layout."""
    d = range(x.dim())[dim]
    if not -x.shape[d] <= index < x.shape[d]:
        raise IndexError(f"select(): index {index} out of range for tensor of size {tuple(x.shape)} at dimension {dim}")
    if x._crow_ is not None and x.dim() > 2:
        if d >= x.dim() - 2:
            raise RuntimeError("select(): selecting sparse dimensions is not supported for batched sparse compressed tensors.")
        return with_parts(x, lambda part: part.select(d, index), [s for i, s in enumerate(x.shape) if i != d])
    x = coalesce(as_coo(x))
    if d >= len(x._indices_):
        return make(x._indices_, x._values_.select(d - len(x._indices_) + 1, index), [s for i, s in enumerate(x.shape) if i != d], True)
    where = _ops.nonzero(x._indices_[d] == index % x.shape[d])[:, 0]
    left = [i for i in range(len(x._indices_)) if i != d]
    if not left:
        return x._values_[where].sum(0)
    return make(x._indices_[left][:, where], x._values_[where], [s for i, s in enumerate(x.shape) if i != d], True)


@function("unbind")
def unbind(x: SparseTensor, dim: int = 0) -> tuple:
    """All slices of a dimension."""
    return tuple(select(x, dim, i) for i in range(x.shape[dim]))


FUNCTIONS["__iter__"] = lambda x: iter(unbind(x))


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
