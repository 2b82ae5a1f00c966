"""Tensors that a module owns: Parameter (trained) and Buffer (state that is not)."""

from __future__ import annotations

from typing import Any, Optional

from .. import _C, _operators
from .._C import Tensor
from .._grad_mode import no_grad

__all__ = [
    "Parameter",
    "Buffer",
    "UninitializedParameter",
    "UninitializedBuffer",
    "UninitializedTensorMixin",
    "is_lazy",
]


def _rebuild(cls: type, data: Tensor, requires_grad: bool) -> Tensor:
    return Tensor._make_subclass(cls, data, requires_grad)


class Parameter(Tensor):
    """A tensor that a :class:`Module` registers by itself when it is assigned as an attribute.

    It shares its memory with `data` and requires gradients unless told otherwise; operations on it
    give ordinary tensors.

    >>> p = nn.Parameter(arete.zeros(2, 3))
    >>> p.requires_grad
    True
    """

    __torch_function__ = _C._disabled_torch_function_impl

    def __new__(cls, data: Optional[Tensor] = None, requires_grad: bool = True) -> "Parameter":
        if data is None:
            data = _operators.empty(0)
        elif not isinstance(data, Tensor):
            raise TypeError(f"Parameter expects a Tensor, but got {type(data).__name__}")
        made = Tensor._make_subclass(cls, data, requires_grad)
        spec = getattr(data, "_spec", None)
        if spec is not None:  # a part of a tensor that is spread over processes
            spec.mark(made)
        return made

    def __init__(self, data: Optional[Tensor] = None, requires_grad: bool = True) -> None:
        pass

    def __deepcopy__(self, memo: dict) -> "Parameter":
        known = memo.get(id(self))
        if known is not None:
            return known
        with no_grad():
            result = Tensor._make_subclass(type(self), self.detach().clone(), self.requires_grad)
        memo[id(self)] = result
        return result

    def __reduce_ex__(self, protocol: Any) -> tuple:
        state = dict(getattr(self, "__dict__", ())) or None
        return _rebuild, (type(self), self.detach(), self.requires_grad), state

    def __repr__(self) -> str:
        return "Parameter containing:\n" + Tensor.__repr__(self)


_ParameterMeta = type(Parameter)


class Buffer(Tensor):
    """A tensor that a :class:`Module` registers as a buffer when it is assigned as an attribute.

    `persistent=False` keeps it out of the state dict.

    >>> net = nn.Module()
    >>> net.mean = nn.Buffer(arete.zeros(2))
    >>> list(net.state_dict())
    ['mean']
    """

    __torch_function__ = _C._disabled_torch_function_impl

    def __new__(cls, data: Optional[Tensor] = None, *, persistent: bool = True) -> "Buffer":
        if data is None:
            data = _operators.empty(0)
        result = Tensor._make_subclass(cls, data, data.requires_grad)
        result.persistent = persistent
        return result

    def __init__(self, data: Optional[Tensor] = None, *, persistent: bool = True) -> None:
        pass

    def __deepcopy__(self, memo: dict) -> "Buffer":
        known = memo.get(id(self))
        if known is not None:
            return known
        result = Tensor._make_subclass(type(self), self.detach().clone(), self.requires_grad)
        result.persistent = self.persistent
        memo[id(self)] = result
        return result

    __reduce_ex__ = Parameter.__reduce_ex__


_WITHOUT_SHAPE = {
    "__get__", "__set__", "__hash__", "__repr__", "__format__", "bfloat16", "char", "copy_", "cpu", "cuda", "double", "float",
    "get_device", "half", "int", "is_complex", "is_floating_point", "long", "requires_grad_", "share_memory_", "short", "size", "to",
    "type",
}


class UninitializedTensorMixin:
    """What parameters and buffers of lazy modules share: they have no shape yet."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") not in _WITHOUT_SHAPE:
            name = getattr(func, "__qualname__", func)
            raise ValueError(
                f"Attempted to use an uninitialized parameter in {name}. It has no shape yet: call its "
                "module with a batch, or `materialize` it, before"
            )
        return _C._disabled_torch_function_impl(func, types, args, kwargs)

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Gives the tensor memory of `shape` (values are not set) and its final class."""
        with no_grad():
            self.data = _operators.empty(
                shape, device=device or self.data.device, dtype=dtype or self.data.dtype
            )
        self.__class__ = self.cls_to_become

    def __deepcopy__(self, memo: dict) -> Any:
        if id(self) not in memo:
            memo[id(self)] = type(self)(*self._arguments())
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return type(self), self._arguments()

    @property
    def shape(self) -> Any:
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually "
            "happens in `load_state_dict` when trying to load an uninitialized parameter into an "
            "initialized one. Call `forward` to initialize the parameters before accessing their "
            "attributes."
        )

    def share_memory_(self) -> None:
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to "
            "initialize the parameters before calling `module.share_memory()`."
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter whose shape the first call of its lazy module decides.

    >>> w = nn.UninitializedParameter()
    >>> w.materialize((2, 3))
    >>> w.shape
    arete.Size([2, 3])
    """

    cls_to_become = Parameter

    def __new__(
        cls, requires_grad: bool = True, device: Any = None, dtype: Any = None
    ) -> "UninitializedParameter":
        data = _operators.empty(0, device=device, dtype=dtype)
        return Tensor._make_subclass(cls, data, requires_grad)

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> None:
        pass

    def _arguments(self) -> tuple:
        return self.requires_grad, self.data.device, self.data.dtype


class UninitializedBuffer(UninitializedTensorMixin, Buffer):
    """A buffer whose shape the first call of its lazy module decides.

    >>> b = nn.UninitializedBuffer()
    >>> b.materialize((2,))
    >>> b.shape
    arete.Size([2])
    """

    cls_to_become = Buffer

    def __new__(
        cls,
        requires_grad: bool = False,
        device: Any = None,
        dtype: Any = None,
        persistent: bool = True,
    ) -> "UninitializedBuffer":
        data = _operators.empty(0, device=device, dtype=dtype)
        result = Tensor._make_subclass(cls, data, requires_grad)
        result.persistent = persistent
        return result

    def __init__(
        self,
        requires_grad: bool = False,
        device: Any = None,
        dtype: Any = None,
        persistent: bool = True,
    ) -> None:
        pass

    def _arguments(self) -> tuple:
        return self.requires_grad, self.data.device, self.data.dtype, self.persistent


def is_lazy(param: Any) -> bool:
    """Whether `param` is a parameter or buffer that has no shape yet."""
    return isinstance(param, UninitializedTensorMixin)
