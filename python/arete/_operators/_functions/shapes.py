"""Shapes, and functions of lists of tensors that may be given one by one."""
from __future__ import annotations

import builtins
import math
import string

from ... import _C
from .. import _ops
from ..._C import Tensor
from .._layouts import channels_last, channels_last_3d, contiguous_format, preserve_format
from ._methods import METHODS, also_method


def einsum(equation, *operands):
    """Products and sums by Einstein's notation: letters that the result lacks are summed over.

    "->" and the result may be left out (the letters that occur once, sorted); "..." stands for further dimensions. In place of letters
    there may be lists of numbers below 52, each behind its operand and that of the result last: einsum(a, [0, 1], b, [1, 2], [0, 2]).

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
    if not isinstance(equation, str):
        return _einsum_of_lists([equation, *operands])
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = operands[0]
    return _ops.einsum(equation, list(operands))


def _einsum_of_lists(given):
    def letters(subscripts):
        if builtins.any(s is not Ellipsis and not 0 <= s < 52 for s in subscripts):
            raise ValueError("einsum(): subscript in subscript list is not within the valid range [0, 52)")
        return "".join("..." if s is Ellipsis else (string.ascii_uppercase + string.ascii_lowercase)[s] for s in subscripts)

    if len(given) < 2:
        raise ValueError("einsum(): must specify the equation string and at least one operand, or at least one operand and its subscripts "
                         "list")
    operands = given[0 : len(given) // 2 * 2 : 2]
    equation = ",".join(map(letters, given[1 : 2 * len(operands) : 2]))
    if len(given) % 2:
        equation += "->" + letters(given[-1])
    return _ops.einsum(equation, operands)


def meshgrid(*tensors, indexing=None):
    """Coordinates of a grid, one tensor for each axis.

    Vectors (m), (n) -> (m, n) each; indexing "xy", other than "ij", exchanges the first two dimensions. A warning where it is not given.

    >>> arete.meshgrid(arete.tensor([1, 2]), arete.tensor([5, 6, 7]), indexing="ij")
    (tensor([[1, 1, 1],
            [2, 2, 2]]), tensor([[5, 6, 7],
            [5, 6, 7]]))
    """
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tensors[0]
    return _ops.meshgrid(list(tensors), indexing=indexing)


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


def _in_place_view(name, shape, arguments, result):
    def method(self, *args, **kwargs):
        return self._become(getattr(self, name)(*args, **kwargs))

    method.__name__ = name + "_"
    method.__doc__ = f"""{name}() in place: this tensor becomes its view.

    >>> x = arete.zeros({shape})
    >>> x.{name}_({arguments}) is x, x.shape
    (True, arete.Size([{result}]))
    """
    METHODS[method.__name__] = method


_in_place_view("t", "2, 1", "", "1, 2")
_in_place_view("transpose", "2, 1", "0, 1", "1, 2")
_in_place_view("swapaxes", "2, 1", "0, 1", "1, 2")
_in_place_view("swapdims", "2, 1", "0, 1", "1, 2")
_in_place_view("squeeze", "2, 1", "1", "2")
_in_place_view("unsqueeze", "2", "0", "1, 2")
_in_place_view("as_strided", "2, 1", "(1, 2), (2, 1)", "1, 2")


@also_method
def resize_(self: Tensor, *sizes, memory_format=None):
    """Changes the shape in place, over the same memory where that is large enough; elements beyond the old ones have no values.

    >>> arete.arange(4).resize_(3)
    tensor([0, 1, 2])
    >>> arete.ones(2, requires_grad=True).resize_(3)
    Traceback (most recent call last):
    RuntimeError: cannot resize variables that require grad
    """
    sizes = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    if self.requires_grad:
        raise RuntimeError("cannot resize variables that require grad")
    if self.shape == sizes and memory_format is None:
        return self
    strides = _ops.empty(sizes, dtype=self.dtype, device="meta", memory_format=memory_format or contiguous_format).stride()
    if self.shape == sizes and self.stride() == strides:
        return self
    _C._check_inference(self, "resize_")
    _C._count_write(self)  # what was saved before had another shape
    # The elements that lie in memory from the first one on, in the order in which they lie there, whatever the strides were.
    memory, offset = self.detach(), self.storage_offset()
    there, count = self.untyped_storage().nbytes() // self.element_size() - offset, math.prod(sizes)
    if count > there:
        grown = _ops.empty((count,), dtype=self.dtype, device=self.device)
        grown[:there] = memory.as_strided((there,), (1,), offset)
        memory, offset = grown, 0
    self.data = memory.as_strided(sizes, strides, offset)
    return self


@also_method
def resize_as_(self: Tensor, other: Tensor, memory_format=None):
    """resize_() to the shape of another tensor.

    >>> arete.arange(4).resize_as_(arete.ones(1, 2))
    tensor([[0, 1]])
    """
    if memory_format is preserve_format:
        fitting = {4: channels_last, 5: channels_last_3d}.get(other.dim())
        kept = fitting is not None and not other.is_contiguous() and other.is_contiguous(memory_format=fitting)
        memory_format = fitting if kept else contiguous_format
    return resize_(self, other.shape, memory_format=memory_format)
