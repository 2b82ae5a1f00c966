"""What a thing is, whether two are equal, and which dtype comes of some."""
from __future__ import annotations

import builtins

from ... import _C
from .. import _ops
from ..._C import Tensor, dtype as _dtype
from .._storage import TypedStorage, UntypedStorage
from ._methods import METHODS, also_method, numpy_names


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


@also_method
def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not zero.

    >>> arete.is_nonzero(arete.tensor([0.5]))
    True
    >>> arete.is_nonzero(arete.ones(2))
    Traceback (most recent call last):
    RuntimeError: Boolean value of Tensor with more than one value is ambiguous
    """
    return builtins.bool(input)


def _no_flag(name, what):
    def function(input: Tensor) -> bool:
        if not isinstance(input, Tensor):
            raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
        return False

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""False: {what}, so there is nothing that would have to be resolved.

    >>> arete.{name}(arete.tensor([1 + 2j]).conj())
    False
    """
    return also_method(function)


is_conj = _no_flag("is_conj", "tensors have the values that they show, also those that conj() gives")
is_neg = _no_flag("is_neg", "tensors have the values that they show, also the imaginary part of what conj() gives")


def numel(input: Tensor) -> int:
    """The number of elements.

    >>> arete.numel(arete.ones(2, 3))
    6
    """
    return input.numel()


def _of_method(name, shown, doc):
    """The function that is the method of this name."""

    def function(input: Tensor, *args):
        if not isinstance(input, Tensor):
            raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
        return getattr(input, name)(*args)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{doc}

    >>> arete.{name}({shown[0]})
    {shown[1]}
    """
    return function


get_device = _of_method("get_device", ("arete.ones(2)", "-1"), "The number of the GPU that has the tensor, -1 in host memory.")
is_inference = _of_method("is_inference", ("arete.ones(2)", "False"), "Whether it was made in inference mode.")
is_same_size = _of_method("is_same_size", ("arete.ones(2), arete.zeros(2)", "True"), "Whether both tensors have the same shape.")
is_signed = _of_method("is_signed", ("arete.tensor([1], dtype=arete.uint8)", "False"), "Whether the dtype has negative numbers.")


def typename(obj) -> str:
    """The name of the type of an object, of a tensor that of its old class.

    >>> arete.typename(arete.ones(2)), arete.typename(1)
    ('torch.FloatTensor', 'int')
    """
    if isinstance(obj, Tensor):
        return obj.type()
    kind = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(kind, "__module__", None)
    return kind.__qualname__ if module in (None, "builtins") else f"{module}.{kind.__qualname__}"


def is_storage(obj) -> bool:
    """Whether it is the memory of a tensor.

    >>> arete.is_storage(arete.ones(2)), arete.is_storage(arete.ones(2).untyped_storage())
    (False, True)
    """
    return isinstance(obj, (TypedStorage, UntypedStorage))


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


@also_method
@numpy_names
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether both have the same shape and elements.

    >>> arete.equal(arete.tensor([1, 2]), arete.tensor([1, 2]))
    True
    >>> arete.equal(arete.tensor([1, 2]), arete.tensor([[1, 2]]))
    False
    """
    return input.shape == other.shape and _same_elements(input, other)


def result_type(tensor1, tensor2):
    """The dtype that arithmetic of these gives.

    >>> arete.result_type(arete.tensor([1, 2]), 1.5)
    arete.float32
    """
    first, second = isinstance(tensor1, Tensor), isinstance(tensor2, Tensor)
    if first and second:
        return _C._result_type((tensor1, tensor2), ())
    if first:
        return _C._result_type((tensor1,), (tensor2,))
    return _C._result_type((tensor2,), (tensor1,)) if second else _C._result_type((), (tensor1, tensor2))


def can_cast(from_: _dtype, to: _dtype) -> bool:
    """Whether promotion allows the conversion: complex > float > integer > bool.

    >>> arete.can_cast(arete.int32, arete.float32), arete.can_cast(arete.float32, arete.int32)
    (True, False)
    """

    def category(t):
        return 3 if t.is_complex else 2 if t.is_floating_point else 0 if t is _C.bool else 1

    return category(from_) <= category(to)
