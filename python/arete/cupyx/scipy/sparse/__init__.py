"""Sparse matrices under SciPy's names. A matrix keeps the rows, columns and values of its elements, in the order of rows; the classes
differ in which arrays they show."""
from __future__ import annotations

from .... import _C, _operators as _t, numpy as _np, sparse as _sparse
from ....numpy._array import ordered
from .._arrays import like, tensor, together
from . import linalg

__all__ = ["bmat", "coo_matrix", "csc_matrix", "csr_matrix", "diags", "eye", "find", "hstack", "identity", "issparse", "isspmatrix",
           "isspmatrix_coo", "isspmatrix_csc", "isspmatrix_csr", "kron", "linalg", "random", "spmatrix", "tril", "triu", "vstack"]


def _starts(index, count):
    """Where each row (or column) begins in the list of elements, and where the last ends."""
    counts = _t.zeros(count + 1, dtype=_C.int64, device=index.device)
    counts.index_add_(0, index + 1, _t.ones(index.numel(), dtype=_C.int64, device=index.device))
    return counts.cumsum(0)


def _rows(starts):
    """The row of each element."""
    return _t.repeat_interleave(_t.arange(starts.numel() - 1, device=starts.device), starts[1:] - starts[:-1])


def _fixed(t):
    """An array that cannot be written, of a tensor that is no storage of the matrix or that others share."""
    a = _np.ndarray(t)
    a.flags.writeable = False
    return a


def _is_number(x):
    return isinstance(x, (int, float, complex)) or getattr(x, "ndim", None) == 0


class spmatrix:
    """A sparse matrix: from an array, another sparse matrix, a shape, (data, (row, column)), or, of rows or columns, (data, indices,
    indptr). Values of one place are summed."""

    format = "coo"
    ndim = 2
    __array_ufunc__ = None  # NumPy's numbers leave products to the methods here

    def __init__(self, arg1, shape=None, dtype=None, copy=False):
        sorted_already = False
        if isinstance(arg1, spmatrix):
            row, col, data, shape, sorted_already = arg1._row, arg1._col, arg1._data, arg1.shape, True
            data = data.clone() if copy or arg1.format != self.format else data
        elif isinstance(arg1, tuple) and len(arg1) == 2 and all(isinstance(n, int) for n in arg1):
            shape = arg1
            row = col = _t.zeros(0, dtype=_C.int64, device=_np.get_device())
            data = _t.zeros(0, dtype=_C.float64, device=_np.get_device())
        elif isinstance(arg1, tuple) and len(arg1) == 2:
            data, (row, col) = tensor(arg1[0]), (tensor(i, _C.int64) for i in arg1[1])
            shape = shape or (int(row.max()) + 1, int(col.max()) + 1)
        elif isinstance(arg1, tuple) and len(arg1) == 3:
            data, inner, starts = tensor(arg1[0]), tensor(arg1[1], _C.int64), tensor(arg1[2], _C.int64)
            outer = _rows(starts)
            row, col = (inner, outer) if self.format == "csc" else (outer, inner)
            minor = int(inner.max()) + 1 if inner.numel() else 0
            shape = shape or ((minor, starts.numel() - 1) if self.format == "csc" else (starts.numel() - 1, minor))
        elif all(hasattr(arg1, n) for n in ("tocoo", "nnz", "shape")):  # SciPy's
            c = arg1.tocoo()
            data, row, col, shape = tensor(c.data), tensor(c.row, _C.int64), tensor(c.col, _C.int64), c.shape
        else:
            dense = tensor(arg1)
            if dense.dim() != 2:
                raise ValueError("a sparse matrix has two dimensions")
            row, col = dense.nonzero().unbind(1)
            data, shape, sorted_already = dense[row, col], tuple(dense.shape), True
        self.shape = tuple(int(n) for n in shape)
        if dtype is not None:
            data = _np.ndarray(data).astype(dtype, copy=False)._tensor
        if row.numel() and not sorted_already:
            if int(row.min()) < 0 or int(col.min()) < 0 or int(row.max()) >= self.shape[0] or int(col.max()) >= self.shape[1]:
                raise ValueError("an index lies outside of the matrix")
            keys, place = (row * self.shape[1] + col).unique(return_inverse=True)
            data = _t.zeros(keys.numel(), dtype=data.dtype, device=data.device).index_add_(0, place, data)
            row, col = keys // self.shape[1], keys % self.shape[1]
        self._row, self._col, self._data = row, col, data
        self._matrix = None

    def _new(self, data=None, row=None, col=None, shape=None):
        other = object.__new__(type(self))
        other._data = self._data if data is None else data
        other._row, other._col = (self._row if row is None else row), (self._col if col is None else col)
        other.shape, other._matrix = shape or self.shape, None
        return other

    # --- parts ---

    @property
    def nnz(self):
        return self._data.numel()

    size = nnz
    has_canonical_format = has_sorted_indices = True

    def getnnz(self, axis=None):
        """How many elements there are, of all, or of each column (axis 0) or row."""
        if axis is None:
            return self.nnz
        starts = _starts(self._col if axis % 2 == 0 else self._row, self.shape[1 - axis % 2])
        return _np.ndarray(starts[1:] - starts[:-1])

    def count_nonzero(self):
        return int((self._data != 0).sum())

    def nonzero(self):
        """The rows and columns of what is not zero."""
        here = self._data != 0
        return _np.ndarray(self._row[here]), _np.ndarray(self._col[here])

    def sum_duplicates(self):
        """Does nothing: there are no two elements of one place."""

    def sort_indices(self):
        """Does nothing: elements are in order."""

    def eliminate_zeros(self):
        """Forgets elements that are zero."""
        here = self._data != 0
        self._row, self._col, self._data, self._matrix = self._row[here], self._col[here], self._data[here], None

    @property
    def dtype(self):
        return _np.ndarray(self._data).dtype

    def _order(self):
        return (self._col * self.shape[0] + self._row).argsort() if self.format == "csc" else slice(None)

    @property
    def data(self):
        """The values; of a csc matrix, which keeps them in another order, a copy that cannot be written."""
        return _fixed(self._data[self._order()]) if self.format == "csc" else _np.ndarray(self._data)

    @data.setter
    def data(self, values):
        values = tensor(values).to(self._data.device)
        if values.shape != self._data.shape:
            raise ValueError(f"the matrix has {self.nnz} values, not {tuple(values.shape)}")
        if self.format == "csc":
            at = self._order()
            values = _t.empty_like(values).index_copy_(0, at, values)
        self._data, self._matrix = values, None

    def __repr__(self):
        return (f"<{self.shape[0]}x{self.shape[1]} sparse matrix of type '{self.dtype}' with {self.nnz} stored elements in {self.format} "
                "format>")

    def toarray(self, order=None, out=None):
        dense = _t.zeros(*self.shape, dtype=self._data.dtype, device=self._data.device)
        dense[self._row, self._col] = self._data
        if out is None:
            return _np.ndarray(ordered(dense, order))
        if order is not None:
            raise ValueError("order cannot be specified if out is not None")
        if out.shape != self.shape or out.dtype != self.dtype:
            raise ValueError(f"out must have shape {self.shape} and dtype {self.dtype}")
        out[...] = _np.ndarray(dense)
        return out

    todense = toarray

    def get(self, stream=None):
        """SciPy's matrix."""
        import scipy.sparse

        parts = self._data, self._row, self._col
        data, row, col = (t.cpu().numpy() for t in parts)
        return getattr(scipy.sparse, f"{self.format}_matrix")((data, (row, col)), shape=self.shape)

    def tocoo(self, copy=False):
        return coo_matrix(self, copy=copy)

    def tocsr(self, copy=False):
        return csr_matrix(self, copy=copy)

    def tocsc(self, copy=False):
        return csc_matrix(self, copy=copy)

    def copy(self):
        return self._new(self._data.clone())

    def astype(self, dtype):
        return self._new(_np.ndarray(self._data).astype(dtype)._tensor)

    def diagonal(self, k=0):
        rows = max(0, min(self.shape[0] + min(k, 0), self.shape[1] - max(k, 0)))
        here = self._col - self._row == k
        result = _t.zeros(rows, dtype=self._data.dtype, device=self._data.device)
        result[(self._row if k >= 0 else self._col)[here]] = self._data[here]
        return _np.ndarray(result)

    def sum(self, axis=None):
        if axis is None:
            return _np.ndarray(self._data.sum())
        if axis not in (0, 1, -1, -2):
            raise ValueError("axis out of range")
        data = self._data
        if not (data.dtype.is_floating_point or data.dtype.is_complex):
            data = data.to(_C.int64)
        kept = 1 if axis in (0, -2) else 0
        total = _t.zeros(self.shape[kept], dtype=data.dtype, device=data.device)
        total.index_add_(0, self._col if kept else self._row, data)
        return _np.ndarray(total[None, :] if kept else total[:, None])

    def mean(self, axis=None):
        total = self.sum(axis)
        count = self.shape[0] * self.shape[1] if axis is None else self.shape[axis]
        return total / count

    def _extreme(self, axis, name):
        if not self.shape[0] * self.shape[1]:
            raise ValueError("zero-size array to reduction operation")
        if axis is None:
            found = getattr(_np, name)(_np.ndarray(self._data)) if self.nnz else None
            zero = _np.zeros((), self.dtype, device=self._data.device)
            if found is None or self.nnz == self.shape[0] * self.shape[1]:
                return zero if found is None else found
            return getattr(_np, f"{name}imum")(found, zero)
        return type(self)(getattr(_np, name)(self.toarray(), axis=axis, keepdims=True))

    def max(self, axis=None):
        """The greatest element, zeros that are not kept among them; along an axis a sparse matrix of them."""
        return self._extreme(axis, "max")

    def min(self, axis=None):
        """The least one."""
        return self._extreme(axis, "min")

    # --- elements ---

    def _rows_at(self, rows):
        """The matrix of these rows, in this order and as often as they are named."""
        starts = _starts(self._row, self.shape[0])
        counts = (starts[1:] - starts[:-1])[rows]
        row = _t.repeat_interleave(_t.arange(rows.numel(), device=rows.device), counts)
        before = counts.cumsum(0) - counts
        at = starts[rows][row] + _t.arange(row.numel(), device=rows.device) - before[row]
        return self._new(self._data[at], row, self._col[at], (rows.numel(), self.shape[1]))

    def _places(self, key, axis):
        n = self.shape[axis]
        if isinstance(key, slice):
            return _t.arange(*key.indices(n), device=self._data.device)
        if _is_number(key):
            i = int(key)
            if not -n <= i < n:
                raise IndexError(f"index ({i}) out of range")
            return _t.full((1,), i % n, dtype=_C.int64, device=self._data.device)
        t = tensor(key).to(self._data.device)
        if t.dtype is _C.bool:
            t = t.nonzero().reshape(-1)
        if t.dim() != 1:
            raise IndexError("rows and columns are chosen by numbers, slices, masks and vectors of indices")
        t = t.to(_C.int64)
        if t.numel() and (int(t.min()) < -n or int(t.max()) >= n):
            raise IndexError("index out of range")
        return t % n if n else t

    def __getitem__(self, key):
        """An element, or the matrix of the rows and columns that numbers, slices, masks and vectors choose."""
        if self.format == "coo":
            raise TypeError("'coo_matrix' object is not subscriptable")
        row, col = key if isinstance(key, tuple) else (key, slice(None))
        if _is_number(row) and _is_number(col):
            here = (self._row == self._places(row, 0)) & (self._col == self._places(col, 1))
            return _np.ndarray(self._data[here].sum(dtype=self._data.dtype)) if self._data.dtype is not _C.bool else _np.ndarray(
                self._data[here].any())
        whole = slice(None)
        if not (isinstance(row, slice) or _is_number(row)) and not (isinstance(col, slice) or _is_number(col)):
            raise NotImplementedError("two vectors of indices; m[rows][:, columns] chooses a grid")
        r = self if isinstance(row, slice) and row == whole else self._rows_at(self._places(row, 0))
        if isinstance(col, slice) and col == whole:
            return r
        return r.transpose()._rows_at(r._places(col, 1)).transpose()

    def getrow(self, i):
        return self._rows_at(self._places(i, 0))

    def getcol(self, i):
        return self.transpose()._rows_at(self._places(i, 1)).transpose()

    # --- algebra ---

    def transpose(self):
        order = (self._col * self.shape[0] + self._row).argsort()
        return self._new(self._data[order], self._col[order], self._row[order], (self.shape[1], self.shape[0]))

    T = property(transpose)

    def conj(self):
        return self._new(self._data.conj() if self._data.is_complex() else self._data.clone())

    @property
    def H(self):
        return self.transpose().conj()

    def _product(self, t):
        if t.shape[0] != self.shape[1]:
            raise ValueError("dimension mismatch")
        data, t = together(self._data, t)
        matrix = self._matrix if data is self._data else None
        if matrix is None:
            matrix = _sparse.sparse_csr_tensor(_starts(self._row, self.shape[0]), self._col, data, self.shape)
        if data is self._data:  # of a converted copy nothing is kept: values may be written
            self._matrix = matrix
        return _sparse.mm(matrix, t[:, None] if t.dim() == 1 else t).reshape(self.shape[0], *t.shape[1:])

    def dot(self, other):
        """The product with a sparse matrix, an array, or a number."""
        if isinstance(other, spmatrix):
            return self._times_sparse(other)
        if _is_number(other):
            return self._scaled(other)
        return like(other, self._product(tensor(other)))

    __matmul__ = __mul__ = dot

    def _scaled(self, number):
        return self._new((_np.ndarray(self._data) * number)._tensor)

    def __rmatmul__(self, other):
        t = tensor(other)
        return like(other, self.transpose()._product(t.T if t.dim() == 2 else t).T if t.dim() == 2 else self.transpose()._product(t))

    def __rmul__(self, other):
        return self._scaled(other) if _is_number(other) else self.__rmatmul__(other)

    def _times_sparse(self, other):
        if other.shape[0] != self.shape[1]:
            raise ValueError("dimension mismatch")
        # Each element meets the elements of the other's row that its column names.
        starts = _starts(other._row, other.shape[0])
        counts = (starts[1:] - starts[:-1])[self._col]
        mine = _t.repeat_interleave(_t.arange(self.nnz, device=counts.device), counts)
        before = counts.cumsum(0) - counts
        theirs = starts[self._col[mine]] + _t.arange(mine.numel(), device=counts.device) - before[mine]
        data, row, col = map(_np.ndarray, (self._data[mine] * other._data[theirs], self._row[mine], other._col[theirs]))
        return type(self)((data, (row, col)), shape=(self.shape[0], other.shape[1]))

    def __truediv__(self, other):
        if not _is_number(other):
            raise NotImplementedError("a sparse matrix is divided by numbers only; multiply(1 / other) goes by elements")
        return self._new((_np.ndarray(self._data) / other)._tensor)

    def __neg__(self):
        return self._new(-self._data)

    def _sum(self, other, sign):
        if not isinstance(other, spmatrix):
            d, t = together(tensor(self.toarray()), tensor(other))
            return like(other, d + t if sign > 0 else d - t)
        if other.shape != self.shape:
            raise ValueError("inconsistent shapes")
        mine, theirs = together(self._data, other._data)
        pairs = (mine, theirs if sign > 0 else -theirs), (self._row, other._row), (self._col, other._col)
        data, row, col = (_np.ndarray(_t.cat(pair)) for pair in pairs)
        return type(self)((data, (row, col)), shape=self.shape)

    def __add__(self, other):
        return self._sum(other, 1)

    def __sub__(self, other):
        return self._sum(other, -1)

    def multiply(self, other):
        """Element by element."""
        if _is_number(other):
            return self._scaled(other)
        dense = _t.broadcast_to(tensor(other.toarray() if isinstance(other, spmatrix) else other), self.shape)
        return self._scaled(_np.ndarray(dense[self._row, self._col]))

    def power(self, n):
        return self._new((_np.ndarray(self._data) ** n)._tensor)

    def __pow__(self, n):
        """The product of n of them."""
        if n != int(n) or n < 0 or self.shape[0] != self.shape[1]:
            raise ValueError("only square matrices have powers, of whole numbers from 0 on")
        r = _FORMATS[self.format](identity(self.shape[0], self.dtype))
        for _ in range(int(n)):
            r = r @ self
        return r

    def _greater(self, other, name):
        other = other if isinstance(other, spmatrix) else type(self)(_np.broadcast_to(_np.asarray(other), self.shape))
        d = getattr(_np, name)(self.toarray(), other.toarray())
        return type(self)(d)

    def maximum(self, other):
        """The greater elements of two; computed densely."""
        return self._greater(other, "maximum")

    def minimum(self, other):
        """The lesser ones."""
        return self._greater(other, "minimum")

    def __abs__(self):
        return self._new(self._data.abs())


def _of_elements(name):
    def method(self):
        return self._new(getattr(_np, name)(_np.ndarray(self._data))._tensor)

    method.__name__, method.__doc__ = name, f"{name} of the elements; that of zero is zero."
    return method


for _name in ("arcsin arcsinh arctan arctanh ceil deg2rad expm1 floor log1p rad2deg rint sign sin sinh sqrt tan tanh trunc").split():
    setattr(spmatrix, _name, _of_elements(_name))


class coo_matrix(spmatrix):
    format = "coo"
    row = property(lambda self: _fixed(self._row))
    col = property(lambda self: _fixed(self._col))


class csr_matrix(spmatrix):
    format = "csr"
    indices = property(lambda self: _fixed(self._col))
    indptr = property(lambda self: _fixed(_starts(self._row, self.shape[0])))


class csc_matrix(spmatrix):
    format = "csc"
    indices = property(lambda self: _fixed(self._row[self._order()]))
    indptr = property(lambda self: _fixed(_starts(self._col, self.shape[1])))


def issparse(x):
    return isinstance(x, spmatrix)


isspmatrix = issparse


def isspmatrix_csr(x):
    return isinstance(x, csr_matrix)


def isspmatrix_csc(x):
    return isinstance(x, csc_matrix)


def isspmatrix_coo(x):
    return isinstance(x, coo_matrix)


def _made(data, row, col, shape, format, dtype=None):
    return _FORMATS[format]((_np.ndarray(data), (_np.ndarray(row), _np.ndarray(col))), shape=shape, dtype=dtype)


_FORMATS = {None: csr_matrix, "csr": csr_matrix, "csc": csc_matrix, "coo": coo_matrix}


def diags(diagonals, offsets=0, shape=None, format=None, dtype=None):
    """A matrix with these diagonals."""
    offsets = [offsets] if isinstance(offsets, int) else list(offsets)
    numbers = not getattr(diagonals[0], "ndim", hasattr(diagonals[0], "__len__"))
    diagonals = [diagonals] if len(offsets) == 1 and numbers else list(diagonals)
    diagonals = [tensor(d).reshape(-1) for d in diagonals]
    if shape is None:
        side = diagonals[0].numel() + abs(offsets[0])
        shape = side, side
    row, col, data = [], [], []
    for d, k in zip(diagonals, offsets):
        count = min(shape[0] + min(k, 0), shape[1] - max(k, 0))
        if d.numel() not in (1, count):
            raise ValueError(f"Diagonal length (index {k}: {d.numel()} at offset {k}) does not agree with array size {shape}.")
        i = _t.arange(count, device=d.device)
        row.append(i - min(k, 0))
        col.append(i + max(k, 0))
        data.append(_t.broadcast_to(d, (count,)))
    parts = [_np.ndarray(_t.cat(p)) for p in (data, row, col)]
    return _FORMATS[format]((parts[0], (parts[1], parts[2])), shape=shape, dtype=dtype)


def eye(m, n=None, k=0, dtype="d", format=None):
    """Ones along a diagonal."""
    return diags([[1.0]], [k], (m, m if n is None else n), format, dtype)


def identity(n, dtype="d", format=None):
    return eye(n, dtype=dtype, format=format)


def random(m, n, density=0.01, format="coo", dtype=None, random_state=None):
    """A matrix with random elements in [0, 1) at random places; `random_state`: a seed, or a generator of arete.numpy.random."""
    if random_state is not None and not hasattr(random_state, "_own"):
        random_state = _np.random.RandomState(random_state)
    options = {"device": _np.get_device(), "generator": getattr(random_state, "_own", None)}
    places = _t.randperm(m * n, **options)[: round(density * m * n)]
    data = _np.ndarray(_t.rand(places.numel(), dtype=_C.float64, **options))
    return _FORMATS[format]((data, (_np.ndarray(places // n), _np.ndarray(places % n))), shape=(m, n), dtype=dtype)


def bmat(blocks, format=None, dtype=None):
    """A matrix of blocks, each a matrix or None."""
    grid = [[b if b is None or issparse(b) else coo_matrix(b) for b in row] for row in blocks]
    heights = [next((b.shape[0] for b in row if b is not None), None) for row in grid]
    widths = [next((row[j].shape[1] for row in grid if row[j] is not None), None) for j in range(len(grid[0]))]
    if None in heights or None in widths:
        raise ValueError("a row or a column of blocks has none")
    data, rows, cols = [], [], []
    for i, row in enumerate(grid):
        for j, b in enumerate(row):
            if b is None:
                continue
            if b.shape != (heights[i], widths[j]):
                raise ValueError(f"block {i}, {j} has shape {b.shape}, not {(heights[i], widths[j])}")
            data.append(_np.ndarray(b._data))
            rows.append(b._row + sum(heights[:i]))
            cols.append(b._col + sum(widths[:j]))
    return _made(_np.concatenate(data)._tensor, _t.cat(rows), _t.cat(cols), (sum(heights), sum(widths)), format or "coo", dtype)


def vstack(blocks, format=None, dtype=None):
    """Matrices one above the other."""
    return bmat([[b] for b in blocks], format, dtype)


def hstack(blocks, format=None, dtype=None):
    """Matrices side by side."""
    return bmat([list(blocks)], format, dtype)


def kron(A, B, format=None):
    """Kronecker's product."""
    a, b = (m if issparse(m) else coo_matrix(m) for m in (A, B))
    x, y = together(a._data, b._data)
    row, col = ((i[:, None] * n + k[None, :]).reshape(-1) for i, k, n in ((a._row, b._row, b.shape[0]), (a._col, b._col, b.shape[1])))
    return _made((x[:, None] * y[None, :]).reshape(-1), row, col, (a.shape[0] * b.shape[0], a.shape[1] * b.shape[1]), format or "coo")


def _part(A, format, here):
    a = A if issparse(A) else coo_matrix(A)
    keep = here(a._col - a._row)
    return _made(a._data[keep], a._row[keep], a._col[keep], a.shape, format or "coo")


def tril(A, k=0, format=None):
    """What is on and below a diagonal."""
    return _part(A, format, lambda d: d <= k)


def triu(A, k=0, format=None):
    """What is on and above a diagonal."""
    return _part(A, format, lambda d: d >= k)


def find(A):
    """Rows, columns and values of what is not zero."""
    a = (A if issparse(A) else coo_matrix(A)).copy()
    a.eliminate_zeros()
    return tuple(_np.ndarray(t) for t in (a._row, a._col, a._data))
