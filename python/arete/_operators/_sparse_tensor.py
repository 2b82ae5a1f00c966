"""Tensors that keep the elements which are not zero: the class, and how it is made.

A sparse tensor is an object of a subclass of Tensor. What it has of its own are plain tensors: `_indices_` and `_values_` (`_crow_`,
`_columns_` and `_values_` of compressed rows; of compressed columns those of the transposed), through which gradients flow. The tensor that
it is for C++ lies on the device `meta`: it has the shape and the dtype, so what is only about these works as it does for all tensors, and
nothing else can take it for a tensor with values. Indices and values are C++'s (Note [Sparse tensors] in core/sparse.h), so gradients of
tables are such tensors; those of compressed layouts are attributes.
Operators ask the class (`__torch_function__`); those in _sparse_functions.py have an answer, the others are refused by their names.
"""
from __future__ import annotations

from typing import Any, Callable

from .. import _C
from . import _ops
from ._layouts import BLOCKS, BY_COLUMNS, sparse_coo, sparse_csr

Tensor = _C.Tensor

FUNCTIONS: dict[str, Callable] = {}  # by the names of operators and methods


def function(*names: str) -> Callable:
    """Registers what operators and methods of these names (of none: its own) do with sparse tensors."""

    def register(f: Callable) -> Callable:
        FUNCTIONS.update(dict.fromkeys(names or (f.__name__,), f))
        return f

    return register


def _turned(x: SparseTensor, attribute: str) -> SparseTensor:
    """Its matrices transposed, for attributes that others do not have."""
    if x.dim() == 0:
        return x
    if x.dim() == 1 or x.dim() > 2 and attribute == "H":
        kinds = " (2-D tensors)" if attribute == "H" else " or batches of matrices"
        hint = " For batches of matrices, consider using tensor.mH" if x.dim() > 2 else ""
        raise RuntimeError(f"tensor.{attribute} is only supported on matrices{kinds}. Got {x.dim()}-D tensor.{hint}")
    return FUNCTIONS["transpose"](x, -2, -1)


class SparseTensor(Tensor):
    """A tensor of layout `sparse_coo` (indices of elements, and their values), or a matrix of elements (`sparse_csr`, `sparse_csc`) or
    blocks (`sparse_bsr`, `sparse_bsc`) by compressed rows or columns, or a batch of such matrices with as many elements or blocks each.

    >>> x = arete.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3))
    >>> x @ arete.ones(3, 1)
    tensor([[3.],
            [4.]])
    >>> x.to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    """

    _crow_: Tensor | None = None
    _layout_ = sparse_csr
    _in_order_ = True  # whether the places of each line are known to ascend, in a compressed layout
    _columns_: Tensor
    _row_values_: Tensor
    _indices_ = property(lambda self: _C._sparse_indices(self))
    _coalesced_ = property(lambda self: self._crow_ is not None or _C._sparse_is_coalesced(self))
    _values_ = property(lambda self: _C._sparse_values(self) if self._crow_ is None else self._row_values_)
    shape, dtype, ndim, itemsize, names = Tensor.shape, Tensor.dtype, Tensor.ndim, Tensor.itemsize, Tensor.names
    size, dim, numel, nelement, element_size = Tensor.size, Tensor.dim, Tensor.numel, Tensor.nelement, Tensor.element_size
    is_floating_point, is_complex, is_signed = Tensor.is_floating_point, Tensor.is_complex, Tensor.is_signed
    is_nested, is_quantized, is_mkldnn = Tensor.is_nested, Tensor.is_quantized, Tensor.is_mkldnn
    is_mps, is_xpu = Tensor.is_mps, Tensor.is_xpu
    is_xla, is_mtia, is_ipu, is_maia, is_vulkan = Tensor.is_xla, Tensor.is_mtia, Tensor.is_ipu, Tensor.is_maia, Tensor.is_vulkan
    ndimension, is_same_size = Tensor.ndimension, Tensor.is_same_size
    __len__ = Tensor.__len__
    is_sparse = property(lambda self: self._crow_ is None)
    is_sparse_csr = property(lambda self: self.layout is sparse_csr)
    layout = property(lambda self: sparse_coo if self._crow_ is None else self._layout_)
    device = property(lambda self: self._values_.device)
    is_cuda = property(lambda self: self._values_.is_cuda)
    is_cpu = property(lambda self: self._values_.is_cpu)
    is_meta = property(lambda self: self._values_.is_meta)
    requires_grad = property(lambda self: self._values_.requires_grad, lambda self, value: self.requires_grad_(value))
    is_leaf = property(lambda self: self._values_.is_leaf)
    grad_fn = property(lambda self: self._values_.grad_fn)
    retains_grad = property(lambda self: self._values_.retains_grad)
    output_nr = property(lambda self: self._values_.output_nr)
    T = property(lambda self: FUNCTIONS["t"](self))
    mT = property(lambda self: _turned(self, "mT"))
    H = property(lambda self: FUNCTIONS["conj"](_turned(self, "H")))
    mH = property(lambda self: FUNCTIONS["conj"](_turned(self, "mH")))
    data = property(lambda self: with_values(self, self._values_.data))

    @property
    def grad(self):
        gradient = self._values_.grad
        if gradient is None or self._crow_ is not None or self._coalesced_:
            return None if gradient is None else with_values(self, gradient)
        # Values of one place have the same gradient, which is that of their sum.
        sizes = self.shape[: len(self._indices_)]
        keys, places = unique(keys_of(self._indices_, sizes))
        once = gradient.new_zeros((len(keys), *gradient.shape[1:])).index_copy(0, places, gradient)
        return make(from_keys(keys, sizes), once, self.shape, True)

    @grad.setter
    def grad(self, value):
        self._values_.grad = value if value is None else value._values_

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        answer = FUNCTIONS.get(getattr(func, "__name__", ""))
        if answer is None:
            owner = getattr(func, "__self__", None)  # of an attribute: the descriptor
            name = getattr(owner, "__name__", getattr(func, "__name__", func))
            raise NotImplementedError(f"{name}() has no form for sparse tensors; to_dense() makes one that has them all")
        return answer(*args, **(kwargs or {}))

    def __deepcopy__(self, memo):
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.")
        if id(self) not in memo:
            values = self._values_.detach().clone().requires_grad_(self.requires_grad)
            if self._values_.grad is not None:
                values.grad = self._values_.grad.clone()
            memo[id(self)] = clone_parts(self, values)
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        if self._crow_ is not None:
            return make_csr, (self._crow_, self._columns_, self._values_, tuple(self.shape), self._layout_, self._in_order_)
        return make, (self._indices_, self._values_, tuple(self.shape), self._coalesced_)


def make(indices: Tensor, values: Tensor, size, coalesced: bool) -> SparseTensor:
    """Of indices (dimensions, n) and values (n, ...). Fewer than two are in order and once there."""
    return _C._sparse_tensor(indices, values, tuple(size), coalesced)


def make_csr(crow: Tensor, columns: Tensor, values: Tensor, size, layout: Any = sparse_csr, in_order: bool = True) -> SparseTensor:
    """Of the places where rows begin (rows + 1), columns and values (n), or what these are in another compressed layout: values of blocks
    are (n, rows of a block, columns of a block). A batch has its sizes before all of these. `in_order`: the columns of each row are known
    to ascend, each once."""
    x = Tensor._make_subclass(SparseTensor, _ops.empty(tuple(size), dtype=values.dtype, device="meta"))
    x._crow_, x._columns_, x._row_values_, x._layout_, x._in_order_ = crow, columns, values, layout, in_order
    return x


def become(x: SparseTensor, other: SparseTensor) -> SparseTensor:
    """x with the parts of another tensor of its layout."""
    if x._crow_ is None:
        _C._replace_sparse_parts(x, other._indices_, other._values_, other._coalesced_)
    else:
        x._crow_, x._columns_, x._row_values_ = other._crow_, other._columns_, other._row_values_
        x._layout_, x._in_order_ = other._layout_, other._in_order_
    return x


def with_values(x: SparseTensor, values: Tensor) -> SparseTensor:
    """The same elements with other values."""
    if x._crow_ is not None:
        return make_csr(x._crow_, x._columns_, values, x.shape, x._layout_, x._in_order_)
    return make(x._indices_, values, x.shape, x._coalesced_)


def clone_parts(x: SparseTensor, values: Tensor) -> SparseTensor:
    """with_values() that shares no indices with x."""
    if x._crow_ is not None:
        return make_csr(x._crow_.clone(), x._columns_.clone(), values, x.shape, x._layout_, x._in_order_)
    return make(x._indices_.clone(), values, x.shape, x._coalesced_)


def is_sparse(x: Any) -> bool:
    """Whether x is one of these."""
    return isinstance(x, SparseTensor)


def with_parts(x: SparseTensor, change: Callable, size) -> SparseTensor:
    """Of a compressed layout: what `change` makes of each part, in another size."""
    return make_csr(change(x._crow_), change(x._columns_), change(x._values_), size, x._layout_, x._in_order_)


def block_of(x: SparseTensor) -> tuple:
    """The sizes of the blocks of a layout of blocks; () of one of elements."""
    assert x._crow_ is not None
    return tuple(x._values_.shape[x._crow_.dim():])


def as_one(x: SparseTensor) -> SparseTensor:
    """A batch of matrices in a compressed layout as one matrix that has them on its diagonal; one matrix as it is."""
    if x._crow_ is None or x._crow_.dim() == 1:
        return x
    batch, (height, width) = x.shape[:-2], x.shape[-2:]
    count, lines, each = batch.numel(), x._crow_.shape[-1] - 1, x._columns_.shape[-1]
    high, wide = block_of(x) or (1, 1)
    which = _ops.arange(count, device=x.device)[:, None]
    starts = (x._crow_.reshape(count, lines + 1)[:, :-1] + which * each).flatten()
    starts = _ops.cat([starts, starts.new_full((1,), count * each)])
    across = x._columns_.reshape(count, each) + which * (height // high if x._layout_ in BY_COLUMNS else width // wide)
    return make_csr(starts, across.flatten(), x._values_.flatten(0, len(batch)), (count * height, count * width), x._layout_, x._in_order_)


def places_of(x: SparseTensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of what a compressed layout lists, of one matrix: elements or blocks."""
    lines = _ops.repeat_interleave(_ops.arange(len(x._crow_) - 1, device=x.device), x._crow_.diff())
    across = x._columns_.to(lines.dtype)
    return (across, lines) if x._layout_ in BY_COLUMNS else (lines, across)


def indices_of(x: SparseTensor) -> Tensor:
    """(dimensions, n) of the elements, in the order of their values, of any layout."""
    if x._crow_ is None:
        return x._indices_
    one = as_one(x)
    rows, columns = places_of(one)
    if x._layout_ in BLOCKS:
        shape, (high, wide) = one._values_.shape, block_of(one)
        rows = (rows[:, None, None] * high + _ops.arange(high, device=x.device)[:, None]).expand(shape).flatten()
        columns = (columns[:, None, None] * wide + _ops.arange(wide, device=x.device)).expand(shape).flatten()
    if one is x:
        return _ops.stack([rows, columns])
    height, width = (max(s, 1) for s in x.shape[-2:])
    return _ops.cat([from_keys(rows // height, x.shape[:-2]), _ops.stack([rows % height, columns % width])])


def as_coo(x: SparseTensor) -> SparseTensor:
    """The layout of coordinates."""
    return x if x._crow_ is None else make(indices_of(x), x._values_.flatten(), x.shape,
                                               x._layout_ is sparse_csr and x._in_order_)


def unique(keys: Tensor) -> tuple[Tensor, Tensor]:
    """The keys in order, each once, and the place of each in these."""
    return _ops.unique(keys, True, True, False, None)[:2]


def keys_of(indices: Tensor, size) -> Tensor:
    """The number that each element has in a dense tensor of this size."""
    keys = _ops.zeros(indices.shape[1], dtype=_C.int64, device=indices.device)
    for d, extent in enumerate(size):
        keys = keys * extent + indices[d]
    return keys


def from_keys(keys: Tensor, size) -> Tensor:
    """Indices from the numbers that elements have in a dense tensor."""
    parts = []
    for extent in reversed(size):
        parts.append(keys % extent if extent else keys)
        keys = keys // extent if extent else keys
    return _ops.stack(parts[::-1]) if parts else keys.new_empty((0, len(keys)))


for _shown in (SparseTensor, make, make_csr):
    _shown.__module__ = "arete.sparse"  # where pickles have it
