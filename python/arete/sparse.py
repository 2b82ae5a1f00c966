"""Tensors of which most elements are zero: layouts `sparse_coo` and `sparse_csr`, products, sums and softmax of them, with gradients."""
from __future__ import annotations

from typing import Any

from . import _C
from ._C import Tensor
from ._operators import _ops, _sparse, as_tensor

_functions = _sparse()
SparseTensor, make, make_csr = _functions.SparseTensor, _functions.make, _functions.make_csr


def sparse_coo_tensor(indices: Any = None, values: Any = None, size: Any = None, *, dtype: Any = None, device: Any = None,
                      pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
                      is_coalesced: bool | None = None) -> SparseTensor:
    """A sparse tensor from indices (dimensions, n) and values (n, ...); without a size the smallest that has room. Values of one place
    count together. Gradients flow to `values`. Given a size alone, it has no elements.

    RuntimeError for parts that do not go together. Indices are looked at on CPUs, on GPUs with `check_invariants`.

    >>> arete.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (1, 2)).to_dense()
    tensor([[0., 3.]])
    """
    if pin_memory:
        raise NotImplementedError("sparse_coo_tensor(): pin_memory: sparse tensors are not pinned")
    if values is None:
        size = tuple(indices if size is None else size)  # the size may come first
        indices = _ops.zeros((len(size), 0), dtype=_C.int64, device=device)
        values = _ops.zeros(0, dtype=dtype, device=device)
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
    if indices.numel() and (check_invariants or indices.device.type == "cpu"):
        limits = _C.tensor(size[: len(indices)], device=indices.device)[:, None]
        if ((indices < 0) | (indices >= limits)).any():
            raise RuntimeError(f"sparse_coo_tensor(): size {size} is inconsistent with indices: some lie outside")
    x = make(indices, values.detach() if requires_grad and not values.requires_grad else values, size, bool(is_coalesced))
    return x.requires_grad_() if requires_grad else x


def sparse_csr_tensor(crow_indices: Any, col_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, device: Any = None,
                      pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None) -> SparseTensor:
    """A sparse matrix from the places where its rows begin in the list of elements (rows + 1), columns and values (n); without a size as
    many columns as there must be. Gradients flow to `values`.

    RuntimeError for parts that do not go together. Indices are looked at on CPUs, on GPUs with `check_invariants`.

    >>> arete.sparse_csr_tensor([0, 1, 2], [1, 0], [1.0, 2.0]).to_dense()
    tensor([[0., 1.],
            [2., 0.]])
    """
    if pin_memory:
        raise NotImplementedError("sparse_csr_tensor(): pin_memory: sparse tensors are not pinned")
    values = as_tensor(values, dtype=dtype, device=device)
    crow, columns = (as_tensor(i, device=values.device) for i in (crow_indices, col_indices))
    if crow.dim() != 1 or columns.dim() != 1 or values.dim() != 1 or len(columns) != len(values) or not len(crow):
        raise RuntimeError(f"sparse_csr_tensor(): rows + 1 places, and as many columns as values are wanted, but the shapes are "
                           f"{tuple(crow.shape)}, {tuple(columns.shape)} and {tuple(values.shape)}: batches are not there")
    if crow.dtype != columns.dtype or crow.dtype not in (_C.int32, _C.int64):
        raise RuntimeError(f"sparse_csr_tensor(): both indices are int32 or int64, not {crow.dtype} and {columns.dtype}")
    if size is None:
        size = (len(crow) - 1, int(columns.amax()) + 1 if len(columns) else 0)
    size = tuple(size)
    if len(size) != 2 or size[0] != len(crow) - 1:
        raise RuntimeError(f"sparse_csr_tensor(): the size {size} does not go with {len(crow)} places of rows")
    if check_invariants or values.device.type == "cpu":
        ends = crow[[0, -1]].tolist()
        if ends != [0, len(values)] or (crow.diff() < 0).any() or (len(columns) and ((columns < 0) | (columns >= size[1])).any()):
            raise RuntimeError(f"sparse_csr_tensor(): places of rows must ascend from 0 to {len(values)}, columns lie below {size[1]}")
    x = make_csr(crow, columns, values.detach() if requires_grad and not values.requires_grad else values, size)
    return x.requires_grad_() if requires_grad else x


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
    rows, columns = _functions.indices_of(input)
    return _functions.with_values(input, beta * input._values_ + alpha * (mat1[rows] * mat2.T[columns]).sum(1))


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
