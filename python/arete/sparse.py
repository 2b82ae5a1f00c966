"""Tensors of which most elements are zero: layouts, products, sums and softmax of them, with gradients."""
from __future__ import annotations

import functools
from typing import Any

from . import _C
from ._C import Tensor
from ._operators import _ops, _sparse, as_tensor

_functions = _sparse()
SparseTensor, make, make_csr, keys_of = _functions.SparseTensor, _functions.make, _functions.make_csr, _functions.keys_of


class check_sparse_tensor_invariants:
    """Whether constructors refuse indices that break what a layout promises, also on GPUs, which must be waited for: those of a compressed
    layout ascend in each line, those of a coalesced tensor do. That indices lie inside is always looked at on CPUs. A context, a decorator,
    or functions that set it.

    >>> with arete.sparse.check_sparse_tensor_invariants():
    ...     arete.sparse.check_sparse_tensor_invariants.is_enabled()
    True
    """

    _on = False

    def __init__(self, enable: bool = True):
        self.state, self._saved = enable, []

    @staticmethod
    def is_enabled() -> bool:
        """Whether it is on."""
        return check_sparse_tensor_invariants._on

    @staticmethod
    def enable() -> None:
        """On."""
        check_sparse_tensor_invariants._on = True

    @staticmethod
    def disable() -> None:
        """Off."""
        check_sparse_tensor_invariants._on = False

    def __enter__(self) -> None:
        self._saved.append(self.is_enabled())
        check_sparse_tensor_invariants._on = self.state

    def __exit__(self, *error: Any) -> None:
        check_sparse_tensor_invariants._on = self._saved.pop()

    def __call__(self, function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.state):
                return function(*args, **kwargs)

        return call


def _checked(check_invariants: bool | None) -> bool:
    return check_sparse_tensor_invariants.is_enabled() if check_invariants is None else check_invariants


def sparse_coo_tensor(indices: Any = None, values: Any = None, size: Any = None, *, dtype: Any = None, device: Any = None,
                      pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
                      is_coalesced: bool | None = None) -> SparseTensor:
    """A sparse tensor from indices (dimensions, n) and values (n, ...); without a size the smallest that has room. Values of one place
    count together. Gradients flow to `values`. Given a size alone, it has no elements.

    RuntimeError for parts that do not go together. Indices are looked at on CPUs, on GPUs with `check_invariants`, and with this also
    whether they are coalesced where `is_coalesced` says so.

    >>> arete.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (1, 2)).to_dense()
    tensor([[0., 3.]])
    """
    if pin_memory:
        raise NotImplementedError("sparse_coo_tensor(): pin_memory: sparse tensors are not pinned")
    if values is None:
        size = tuple(indices if size is None else size)  # the size may come first
        return _ops.zeros(size, dtype=dtype, layout=_functions.sparse_coo, device=device, requires_grad=requires_grad)
    values = as_tensor(values, dtype=dtype, device=device)
    indices = as_tensor(indices, device=values.device).to(_C.int64)
    if indices.dim() != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {tuple(indices.shape)}")
    if values.dim() == 0 or len(values) != indices.shape[1]:
        raise RuntimeError(f"indices and values must have same nnz, but got nnz from indices: {indices.shape[1]}, nnz from values: "
                           f"{len(values) if values.dim() else 'none'}")
    if size is None:
        if not indices.shape[1]:
            raise RuntimeError("sparse_coo_tensor(): a size is wanted where there are no indices")
        size = (*(indices.amax(1) + 1).tolist(), *values.shape[1:])
    size = tuple(size)
    if len(size) != len(indices) + values.dim() - 1 or size[len(indices):] != tuple(values.shape[1:]):
        raise RuntimeError(f"sparse_coo_tensor(): the size {size} does not go with {len(indices)} rows of indices and values of shape "
                           f"{tuple(values.shape)}")
    if indices.numel() and (_checked(check_invariants) or indices.device.type == "cpu"):
        limits = _C.tensor(size[: len(indices)], device=indices.device)[:, None]
        if ((indices < 0) | (indices >= limits)).any():
            raise RuntimeError(f"sparse_coo_tensor(): size {size} is inconsistent with indices: some lie outside")
    if is_coalesced and _checked(check_invariants) and (keys_of(indices, size[: len(indices)]).diff() <= 0).any():
        raise RuntimeError("sparse_coo_tensor(): is_coalesced: the indices are not in order, each once")
    x = make(indices, values.detach() if requires_grad and not values.requires_grad else values, size, bool(is_coalesced))
    return x.requires_grad_() if requires_grad else x


def sparse_compressed_tensor(compressed_indices: Any, plain_indices: Any, values: Any, size: Any = None, *, dtype: Any = None,
                             layout: Any = None, device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
                             check_invariants: bool | None = None) -> SparseTensor:
    """A sparse matrix by rows (`layout` sparse_csr, sparse_bsr) or columns (sparse_csc, sparse_bsc): the places where these begin in the
    list of elements or blocks (one more than there are), the places of those in them, and values, (n) of elements, (n, rows, columns) of
    blocks; without a size as large as there must be. A batch of matrices has n of each, and its sizes before the others of all parts.
    Gradients flow to `values`.

    RuntimeError for parts that do not go together. Indices are looked at on CPUs, on GPUs with `check_invariants`, and with this also
    whether those of each line ascend.

    >>> arete.sparse_compressed_tensor([0, 1, 2], [1, 0], [1.0, 2.0], layout=arete.sparse_csc).to_dense()
    tensor([[0., 2.],
            [1., 0.]])
    """
    if layout not in _functions.COMPRESSED:
        raise RuntimeError(f"sparse_compressed_tensor(): the layout is sparse_csr, sparse_csc, sparse_bsr or sparse_bsc, not {layout}")
    name = f"{layout._name}_tensor()"
    by_columns, blocks = layout in _functions.BY_COLUMNS, layout in _functions.BLOCKS
    first, second = ("columns", "rows") if by_columns else ("rows", "columns")
    if pin_memory:
        raise NotImplementedError(f"{name}: pin_memory: sparse tensors are not pinned")
    values = as_tensor(values, dtype=dtype, device=device)
    starts, across = (as_tensor(i, device=values.device) for i in (compressed_indices, plain_indices))
    dims = starts.dim()
    if (not dims or across.dim() != dims or values.dim() != dims + 2 * blocks or across.shape != values.shape[:dims]
            or starts.shape[:-1] != across.shape[:-1] or not starts.shape[-1]):
        raise RuntimeError(f"{name}: {first} + 1 places, and as many {second} as {'blocks (n, rows, columns)' if blocks else 'values'} are "
                           "wanted, of a batch behind its sizes, but the shapes are "
                           f"{tuple(starts.shape)}, {tuple(across.shape)} and {tuple(values.shape)}")
    batch, lines, each = tuple(starts.shape[:-1]), starts.shape[-1] - 1, across.shape[-1]
    if starts.dtype != across.dtype or starts.dtype not in (_C.int32, _C.int64):
        raise RuntimeError(f"{name}: both indices are int32 or int64, not {starts.dtype} and {across.dtype}")
    high, wide = values.shape[dims:] if blocks else (1, 1)
    if blocks and not high * wide:
        raise RuntimeError(f"{name}: blocks have elements, but values are of shape {tuple(values.shape)}")
    if size is None:
        most = int(across.amax()) + 1 if across.numel() else 0
        size = (*batch, most * high, lines * wide) if by_columns else (*batch, lines * high, most * wide)
    size = tuple(size)
    if len(size) != dims + 1 or size[:-2] != batch or size[-2] % high or size[-1] % wide:
        raise RuntimeError(f"{name}: the size {size} is not that of a matrix" + f" of blocks of {high} x {wide}" * blocks
                           + f", a batch of {batch}" * bool(batch))
    height, width = size[-2] // high, size[-1] // wide
    if lines != (width if by_columns else height):
        raise RuntimeError(f"{name}: the size {size} does not go with {lines + 1} places of {first}")
    # The indices are in no order as far as is known.
    x = make_csr(starts, across, values.detach() if requires_grad and not values.requires_grad else values, size, layout, False)
    if _checked(check_invariants) or values.device.type == "cpu":
        most = height if by_columns else width
        ends = ((starts[..., 0] != 0) | (starts[..., -1] != each)).any()
        if ends or (starts.diff() < 0).any() or ((across < 0) | (across >= most)).any():
            raise RuntimeError(f"{name}: places of {first} must ascend from 0 to {each}, {second} lie below {most}")
        one = _functions.as_one(x)
        rows, columns = _functions.places_of(one)
        places = _ops.stack([columns, rows] if by_columns else [rows, columns])
        x._in_order_ = not (keys_of(places, one.shape[::-1] if by_columns else one.shape).diff() <= 0).any()
        if _checked(check_invariants) and not x._in_order_:
            raise RuntimeError(f"{name}: {second} must ascend in each of the {first}, each once")
    return x.requires_grad_() if requires_grad else x


def sparse_csr_tensor(crow_indices: Any, col_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, device: Any = None,
                      pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None) -> SparseTensor:
    """A sparse matrix from the places where its rows begin in the list of elements (rows + 1), columns and values (n).
    See sparse_compressed_tensor().

    >>> arete.sparse_csr_tensor([0, 1, 2], [1, 0], [1.0, 2.0]).to_dense()
    tensor([[0., 1.],
            [2., 0.]])
    """
    return sparse_compressed_tensor(crow_indices, col_indices, values, size, dtype=dtype, layout=_functions.sparse_csr, device=device,
                                    pin_memory=pin_memory, requires_grad=requires_grad, check_invariants=check_invariants)


def sparse_csc_tensor(ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, device: Any = None,
                      pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None) -> SparseTensor:
    """A sparse matrix from the places where its columns begin in the list of elements (columns + 1), rows and values (n).
    See sparse_compressed_tensor().

    >>> arete.sparse_csc_tensor([0, 1, 2], [1, 0], [1.0, 2.0]).to_dense()
    tensor([[0., 2.],
            [1., 0.]])
    """
    return sparse_compressed_tensor(ccol_indices, row_indices, values, size, dtype=dtype, layout=_functions.sparse_csc, device=device,
                                    pin_memory=pin_memory, requires_grad=requires_grad, check_invariants=check_invariants)


def sparse_bsr_tensor(crow_indices: Any, col_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, device: Any = None,
                      pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None) -> SparseTensor:
    """A sparse matrix of blocks, from the places where rows of blocks begin in the list of these, columns of blocks and values (n, h, w).
    See sparse_compressed_tensor().

    >>> arete.sparse_bsr_tensor([0, 1], [1], [[[1.0, 2.0]]]).to_dense()
    tensor([[0., 0., 1., 2.]])
    """
    return sparse_compressed_tensor(crow_indices, col_indices, values, size, dtype=dtype, layout=_functions.sparse_bsr, device=device,
                                    pin_memory=pin_memory, requires_grad=requires_grad, check_invariants=check_invariants)


def sparse_bsc_tensor(ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, device: Any = None,
                      pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None) -> SparseTensor:
    """A sparse matrix of blocks, from the places where columns of blocks begin in the list of these, rows of blocks and values (n, h, w).
    See sparse_compressed_tensor().

    >>> arete.sparse_bsc_tensor([0, 1], [1], [[[1.0, 2.0]]]).to_dense()
    tensor([[0., 0.],
            [1., 2.]])
    """
    return sparse_compressed_tensor(ccol_indices, row_indices, values, size, dtype=dtype, layout=_functions.sparse_bsc, device=device,
                                    pin_memory=pin_memory, requires_grad=requires_grad, check_invariants=check_invariants)


def mm(mat1: Tensor, mat2: Tensor, reduce: str | None = None) -> Tensor:
    """The product of matrices, one of them or both sparse; sparse if both are.

    >>> arete.sparse.mm(arete.eye(2).to_sparse(), arete.tensor([[1.0], [2.0]]))
    tensor([[1.],
            [2.]])
    """
    if reduce not in (None, "sum"):
        raise NotImplementedError(f"sparse.mm(): reduce={reduce!r}: products are added")
    return _functions.matmul(mat1, mat2) if isinstance(mat1, SparseTensor) or isinstance(mat2, SparseTensor) else _ops.mm(mat1, mat2)


def addmm(mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0) -> Tensor:
    """beta * mat + alpha * (mat1 @ mat2), with a sparse mat1.

    >>> arete.sparse.addmm(arete.ones(1, 1), arete.ones(1, 1).to_sparse(), arete.ones(1, 1))
    tensor([[2.]])
    """
    return _functions.addmm(mat, mat1, mat2, beta=beta, alpha=alpha)


spmm = dsmm = smm = mm  # the names that the package has for them
saddmm = addmm


def sampled_addmm(input: SparseTensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0) -> SparseTensor:
    """beta * input + alpha * (mat1 @ mat2) at the places of `input` alone: other products are not computed.

    >>> arete.sparse.sampled_addmm(arete.eye(2).to_sparse_csr(), arete.ones(2, 3), arete.ones(3, 2)).values()
    tensor([4., 4.])
    """
    *batch, rows, columns = _functions.indices_of(input)
    products = (mat1[(*batch, rows)] * mat2.mT[(*batch, columns)]).sum(1).reshape(input._values_.shape)
    return _functions.with_values(input, beta * input._values_ + alpha * products)


def sum(input: SparseTensor, dim: Any = None, dtype: Any = None) -> Tensor:
    """The sum of all elements, or over dimensions: sparse where a sparse one is left.

    >>> arete.sparse.sum(arete.tensor([[1.0, 0.0], [0.0, 2.0]]).to_sparse())
    tensor(3.)
    """
    return _functions.total(input, dim, dtype=dtype)


def softmax(input: SparseTensor, dim: int, *, dtype: Any = None) -> SparseTensor:
    """Over the elements that are there; the others count as minus infinity.

    >>> arete.sparse.softmax(arete.tensor([[1.0, 1.0, 0.0]]).to_sparse(), 1).to_dense()
    tensor([[0.5000, 0.5000, 0.0000]])
    """
    return _functions.softmax(input if dtype is None else input.to(dtype), dim, False)


def log_softmax(input: SparseTensor, dim: int, *, dtype: Any = None) -> SparseTensor:
    """The logarithm of softmax().

    >>> arete.sparse.log_softmax(arete.tensor([[1.0, 0.0]]).to_sparse(), 1).values()
    tensor([0.])
    """
    return _functions.softmax(input if dtype is None else input.to(dtype), dim, True)
