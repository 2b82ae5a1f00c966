"""Tensors that several processes have together."""
from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import math
import threading
from typing import Any, Callable, Iterator, Optional, Sequence

from ... import _C, _operators
from ..._grad_mode import no_grad
from ...autograd import Function, backward
from ...utils import _pytree
from .. import distributed_c10d as c10d
from ..device_mesh import DeviceMesh
from ._random import agree
from ._redistribute import GradientFrom, cut, part_of, placed
from .placement_types import Partial, Placement, Replicate, Shard

__all__ = ["DTensor", "distribute_tensor", "Spec", "mark", "own_values"]

_Tensor = _C.Tensor


@dataclasses.dataclass(frozen=True)
class Spec:
    """Where the parts of a tensor are. `part`: this process', where it does not follow from the placements; `gather`: what makes
    the whole of such a part then, or with None of what its parameter has."""

    mesh: DeviceMesh
    placements: tuple
    shape: Any
    part: Optional[tuple] = None
    gather: Optional[Callable[..., Any]] = dataclasses.field(default=None, compare=False)

    def offsets(self) -> tuple[tuple, tuple]:
        """The sizes of this process' part, and where it begins."""
        return self.part or part_of(self.shape, self.mesh, self.placements)

    def agree(self, number: Any) -> None:
        """Gives all processes the largest of their numbers."""
        for d in range(self.mesh.ndim):
            c10d.all_reduce(number, c10d.ReduceOp.MAX, self.mesh.get_group(d))

    def whole(self, local: Any) -> Any:
        """The whole tensor, from this process' part."""
        return placed(local, self, (Replicate(),) * self.mesh.ndim)

    def same_in_all(self, x: Any) -> "DTensor":
        """What all processes have, as functions of DTensors give it."""
        return spread_over(x, self.mesh)

    def mark(self, parameter: Any) -> None:
        """Makes a parameter that is such a part a DTensor, for operators, too."""
        mark(parameter, self, asks=True)


def _normal(mesh: DeviceMesh, placements: Optional[Sequence[Placement]], dims: int) -> tuple:
    if placements is None:
        placements = [Replicate()] * mesh.ndim
    if len(placements) != mesh.ndim:
        raise ValueError(f"`placements` must have the same length as `device_mesh.ndim`! Found placements length: {len(placements)}, and "
                         f"device_mesh.ndim: {mesh.ndim}.")
    normal = []
    for p in placements:
        if not isinstance(p, Placement):
            raise TypeError(f"a placement is Shard, Replicate or Partial, got {p!r}")
        if isinstance(p, Shard) and not -dims <= p.dim < dims:
            raise IndexError(f"{p} of a tensor with {dims} dimensions")
        normal.append(Shard(p.dim % dims) if isinstance(p, Shard) else p)
    return tuple(normal)


def own_values(parameter: Any) -> Any:
    """What this process has of a parameter, without history: its part, or all of it while a module runs that gathered it."""
    with _C.DisableTorchFunctionSubclass():
        return _Tensor.detach(parameter)


class _Face:
    """What tensors say that processes have together: of all of it, not of this process' part."""

    __slots__ = ()
    _spec: Spec

    @staticmethod
    def _on_lists(name: str) -> Callable:
        """What computes on lists of such tensors."""
        return HANDLERS[name]

    def __getattr__(self, name: str) -> Any:
        if name == "_local_tensor":  # by torch's name, of a leaf, which is the part itself
            return own_values(self)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _spread_beside(self, value: Any) -> Any:
        """What an optimizer keeps for each element of this process' part, as one that is spread as this is; else the value."""
        if isinstance(value, DTensor) or not isinstance(value, _Tensor) or value.dim() == 0:
            return value
        return DTensor(value, self._spec) if tuple(value.shape) == tuple(self._spec.offsets()[0]) else value

    def _part_beside(self, value: Any) -> Any:
        """This process' part of what belongs beside this, whole or spread; else the value."""
        if not isinstance(value, _Tensor):
            return value
        if isinstance(value, DTensor):
            spec, own = value._spec, self._spec
            if spec.mesh == own.mesh and spec.placements == own.placements and spec.offsets() == own.offsets():
                return value.to_local()
            value = value.full_tensor()
        if value.dim() == 0 or tuple(value.shape) != tuple(self.shape):
            return value
        for d, (n, start) in enumerate(zip(*self._spec.offsets())):
            value = value.narrow(d, start, n)
        return value.clone()

    def to_local(self, *, grad_placements: Optional[Sequence[Placement]] = None) -> Any:
        """This process' part, over the same memory. `grad_placements`: how the gradients of the parts are placed; else as this is, and
        whole where this is a sum's terms."""
        if grad_placements is not None:
            places = _normal(self._spec.mesh, grad_placements, len(self._spec.shape))
            return GradientFrom.apply(self.to_local(), self._spec, places)
        local = self.__dict__.get("_local_tensor")
        if local is not None:
            return local
        if not (self.requires_grad and _C.is_grad_enabled()):
            return own_values(self)
        with _C.DisableTorchFunctionSubclass():
            return _operators.view_as(self, self)

    def full_tensor(self, *, grad_placements: Optional[Sequence[Placement]] = None) -> Any:
        """All of it, in each process; all call this. `grad_placements`: as in to_local()."""
        if grad_placements is not None:
            return self.redistribute(placements=(Replicate(),) * self._spec.mesh.ndim).to_local(grad_placements=grad_placements)
        if self._spec.gather is not None:
            return self._spec.gather(self.__dict__.get("_local_tensor"))
        return self._spec.whole(self.to_local())

    def redistribute(self, device_mesh: Optional[DeviceMesh] = None, placements: Optional[Sequence[Placement]] = None, *,
                     async_op: bool = False, forward_dtype: Any = None, backward_dtype: Any = None) -> "DTensor":
        """The same values, placed otherwise on the same mesh. `async_op`: nobody waits for the message but who uses the result.
        `forward_dtype`: what the values become before they travel, and are then; `backward_dtype`: what gradients do on their way."""
        if device_mesh is not None and device_mesh != self._spec.mesh:
            raise NotImplementedError("DTensor.redistribute: Cross device mesh comm not supported yet!")
        spec = self._spec
        places = _normal(spec.mesh, placements, len(spec.shape))
        local = self.to_local()
        if spec.gather is not None and places != spec.placements:
            local, spec = self.full_tensor(), Spec(spec.mesh, (Replicate(),) * spec.mesh.ndim, spec.shape)
        return DTensor._of(placed(local, spec, places, async_op, forward_dtype, backward_dtype), Spec(spec.mesh, places, spec.shape))

    def _of_pass(self, gradient: Any) -> tuple:
        """What a pass backward begins with in this process: its part, of sums all terms, and that of the gradient."""
        places = tuple(p if isinstance(p, Shard) else Replicate() for p in self._spec.placements)
        if gradient is None and self.numel() != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        if isinstance(gradient, DTensor):
            gradient = gradient.redistribute(placements=places).to_local()
        elif gradient is not None:
            gradient = distribute_tensor(gradient, self._spec.mesh, places).to_local()
        return self.redistribute(placements=places).to_local(), gradient

    def _of_gradient(self, g: Any) -> Any:
        """The gradient of this process' part, which says where the others are."""
        if g is None or isinstance(g, DTensor) or tuple(g.shape) != tuple(self._spec.offsets()[0]):
            return g  # of all of it, while a pass backward is under way
        spec = self._spec
        if any(isinstance(p, Partial) for p in spec.placements):  # each term has that of the sum
            spec = Spec(spec.mesh, tuple(Replicate() if isinstance(p, Partial) else p for p in spec.placements), spec.shape)
        return DTensor._of(g, spec)

    def _part_of_gradient(self, g: Any) -> Any:
        """The other way."""
        if not isinstance(g, DTensor):
            return g
        return g.redistribute(placements=tuple(Replicate() if isinstance(p, Partial) else p for p in self._spec.placements)).to_local()

    def _with_part(self, local: Any) -> "DTensor":
        """Another tensor that lies as this one does."""
        return DTensor._of(local, self._spec)

    @property
    def device_mesh(self) -> DeviceMesh:
        return self._spec.mesh

    @property
    def placements(self) -> tuple:
        return self._spec.placements

    @property
    def shape(self) -> Any:
        return self._spec.shape

    def size(self, dim: Optional[int] = None) -> Any:
        return self._spec.shape if dim is None else self._spec.shape[dim]

    def stride(self, dim: Optional[int] = None) -> Any:
        """Of all of it, in the order of dimensions that this process' part has; without gaps."""
        with _C.DisableTorchFunctionSubclass():
            own = own_values(self).stride()
        strides, step = [0] * len(own), 1
        for d in sorted(range(len(own)), key=lambda d: (own[d], -d)):
            if own[d] or self._spec.shape[d] == 1:
                strides[d] = step
                step *= max(self._spec.shape[d], 1)
        return tuple(strides) if dim is None else strides[dim]

    def dim(self) -> int:
        return len(self._spec.shape)

    def numel(self) -> int:
        return math.prod(self._spec.shape)

    nelement = numel

    def __len__(self) -> int:
        return self._spec.shape[0]

    @property
    def T(self) -> "DTensor":  # noqa: N802
        return self.transpose(0, 1) if self.dim() == 2 else self.permute(*reversed(range(self.dim())))

    @property
    def mT(self) -> "DTensor":  # noqa: N802
        return self.transpose(-2, -1)

    def __repr__(self) -> str:
        return f"DTensor(local_tensor={self.to_local()}, device_mesh={self._spec.mesh}, placements={self._spec.placements})"


class _Kind(type):
    """Parameters that were marked are DTensors, too."""

    def __instancecheck__(cls, other: object) -> bool:
        return isinstance(other, _Face) if cls is DTensor else super().__instancecheck__(other)


class DTensor(_Face, _Tensor, metaclass=_Kind):
    """A part of a tensor, with where the others are. It stores, becomes whole and is placed otherwise; elementwise functions, changes of
    shape, products, sums, means, extremes, softmax, norms and attention compute on parts. Anything else gathers whole tensors and is
    computed in each process, except what draws random numbers or writes in place. Gradients flow through these and through `from_local()`,
    `redistribute()` and changes of dtype and shape, to this process' part, or to a DTensor that requires them.

    >>> dist = arete.distributed
    >>> dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    >>> x = dist.tensor.distribute_tensor(arete.ones(4, 2), dist.init_device_mesh("cpu", (1,)), [dist.tensor.Shard(0)])
    >>> x.placements, x.shape, x.full_tensor().sum()
    ((Shard(dim=0),), Size([4, 2]), tensor(8.))
    >>> dist.destroy_process_group()
    """

    _history_is_of_parts = True

    def __new__(cls, local: Any, spec: Spec, requires_grad: bool = False) -> "DTensor":
        self = _Tensor._make_subclass(cls, local.detach(), requires_grad)
        self._spec = spec
        if not requires_grad:  # a leaf is the part itself, which has the gradient
            self._local_tensor = local.detach()
        return self

    @classmethod
    def _of(cls, local: Any, spec: Spec) -> "DTensor":
        """Of a part that keeps its history."""
        self = _Tensor._make_subclass(cls, local.detach(), False)
        self._spec, self._local_tensor = spec, local
        return self

    @staticmethod
    def from_local(local_tensor: Any, device_mesh: Optional[DeviceMesh] = None, placements: Optional[Sequence[Placement]] = None, *,
                   run_check: bool = False, shape: Any = None, stride: Any = None, grad_placements: Any = None) -> "DTensor":
        """This process' part as one of a tensor, of equal parts unless `shape` says otherwise. `run_check`: the first process of each
        dimension along which all are whole says their values. `stride`: of the whole tensor, whose dimensions are in the order that the
        part's are in. The gradient of the part is placed as it is itself, of terms whole; other `grad_placements` are refused. ValueError
        for sizes and strides that are not those of such a part."""
        mesh = _mesh(device_mesh, local_tensor.device)
        places = _normal(mesh, placements, local_tensor.dim())
        if shape is None:
            shape = list(local_tensor.shape)
            for d, p in enumerate(places):
                if isinstance(p, Shard):
                    shape[p.dim] *= mesh.size(d)
        shape = _C.Size(shape)
        if run_check:
            for d, p in enumerate(places):
                if isinstance(p, Replicate) and mesh.get_coordinate() is not None:
                    with no_grad():
                        c10d.broadcast(local_tensor, group=mesh.get_group(d), group_src=0)
        spec = Spec(mesh, places, shape)
        if mesh.get_coordinate() is None:
            local_tensor = _operators.empty(0, dtype=local_tensor.dtype, device=local_tensor.device)
        elif part_of(shape, mesh, places)[0] != tuple(local_tensor.shape):
            raise ValueError(f"a part of {tuple(shape)} placed as {places} has sizes {part_of(shape, mesh, places)[0]} in this process, "
                             f"got {tuple(local_tensor.shape)}; give the whole tensor's as `shape`")
        back = tuple(Replicate() if isinstance(p, Partial) else p for p in places)
        if grad_placements is not None and _normal(mesh, grad_placements, local_tensor.dim()) != back:
            raise NotImplementedError(f"DTensor.from_local: the gradient of parts placed as {places} comes summed up, and placed as {back}")
        made = DTensor._of(_Given.apply(local_tensor) if local_tensor.requires_grad else local_tensor, spec)
        if stride is not None and mesh.get_coordinate() is not None and tuple(stride) != made.stride():
            raise ValueError(f"DTensor.from_local: a tensor of such parts has strides {made.stride()}, got {tuple(stride)}")
        return made

    @property
    def data(self) -> "DTensor":
        return self.detach()

    @property
    def requires_grad(self) -> bool:
        local = self.__dict__.get("_local_tensor")
        return _Tensor.requires_grad.__get__(self) if local is None else local.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> "DTensor":
        """Whether it gets a gradient, which is a DTensor, too, and placed as this is."""
        local = self.__dict__.get("_local_tensor")
        if local is not None and local.requires_grad:  # of other tensors
            local.requires_grad_(requires_grad)
            return self
        self.__dict__.pop("_local_tensor", None)
        _Tensor.requires_grad.__set__(self, requires_grad)
        return self

    @property
    def grad(self) -> Any:
        return _grad(self) if self.is_leaf else self._of_gradient(self._local_tensor.grad)

    @grad.setter
    def grad(self, value: Any) -> None:
        if self.is_leaf:
            _set_grad(self, value)
        else:
            self._local_tensor.grad = _part_placed_as(self._spec, value) if isinstance(value, DTensor) else value

    @property
    def is_leaf(self) -> bool:
        local = self.__dict__.get("_local_tensor")
        return local is None or local.is_leaf

    def retain_grad(self) -> None:
        """Has `grad` also be there of one that operators gave: placed as this is, and of terms of a sum whole."""
        if not self.is_leaf:
            self._local_tensor.retain_grad()

    def register_hook(self, hook: Callable) -> Any:
        """Has `hook(gradient)` called in each pass backward, with a DTensor; what it gives, if that is not None, takes its place."""
        return _register_hook(self, hook)

    def backward(self, gradient: Any = None, retain_graph: Optional[bool] = None, create_graph: bool = False, inputs: Any = None) -> None:
        """Of a number that all processes have, or the sum of terms that each has; `gradient` is placed as this is."""
        backward(self, gradient, retain_graph, create_graph, inputs)

    def __deepcopy__(self, memo: dict) -> "DTensor":
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment; "
                               "copy x.detach() instead")
        with no_grad():
            made = DTensor(self.to_local().clone(), self._spec).requires_grad_(self.requires_grad)
        if self.grad is not None:
            made.grad = copy.deepcopy(self.grad, memo)
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        """This process' part, the mesh and how it is placed: who loads it has a part, too, and a mesh of the same ranks."""
        if not self.is_leaf:
            raise RuntimeError("a DTensor that operators gave is pickled without history: detach() it")
        return _remade, (own_values(self), *_pickled(self), self.requires_grad)

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", str(func))
        if name in _FACTS or name == "__get__" or name == "__set__":
            return super().__torch_function__(func, types, args, kwargs or {})
        first = args[0] if args else None
        if isinstance(first, DTensor) and first._spec.mesh.get_coordinate() is None and name not in _LOCAL:
            return _outside(func, name, first, args, kwargs or {})
        if name in _WRITES and isinstance(first, DTensor):
            name = _WRITES[name]
            func = getattr(_Tensor, name)
        if name in _LOCAL and isinstance(first, DTensor):
            kwargs = kwargs or {}
            if any(isinstance(a, _Tensor) for a in (*args[1:], *kwargs.values())):
                raise TypeError(f"{name}: a tensor is no argument of it")
            if name == "ones_like" and any(isinstance(p, Partial) for p in first.placements):
                return HANDLERS["full_like"](first, 1, **kwargs)
            local = func(first.to_local(), *args[1:], **kwargs)
            if isinstance(local, _Tensor) and local.dtype != first.dtype and not (local.is_floating_point() or local.is_complex()) and any(
                    isinstance(p, Partial) for p in first.placements):  # the whole part of a sum is not the sum of whole parts
                first = first.redistribute(placements=tuple(Replicate() if isinstance(p, Partial) else p for p in first.placements))
                local = func(first.to_local(), *args[1:], **kwargs)
            return DTensor._of(local, first._spec) if isinstance(local, _Tensor) else local
        if isinstance(first, DTensor) and _is_in_place(name):
            return _written(func, name, first, args[1:], kwargs or {})
        if isinstance((kwargs or {}).get("out"), DTensor):
            kwargs = dict(kwargs)
            out = kwargs.pop("out")
            result = cls.__torch_function__(func, types, args, kwargs)
            if tuple(result.shape) != tuple(out.shape):
                raise ValueError(f"{name}: a result of shape {tuple(result.shape)} is not written to one of shape {tuple(out.shape)}")
            return out.copy_(result)
        args, kwargs = tuple(map(_with_history, args)), {k: _with_history(a) for k, a in (kwargs or {}).items()}
        first = args[0] if args else None
        if name in _SHAPES and isinstance(first, DTensor) and not any(isinstance(a, _C.dtype) for a in args):
            return _reshaped(name, first, args[1:], kwargs)
        if name in HANDLERS:
            return HANDLERS[name](*args, **kwargs)
        plain = _plain_name(name)
        if plain in _OTHERS or (_is_elementwise(plain) and kwargs.get("out") is None and (plain != "where" or len(args) > 1)):
            return _by_parts(func, plain, args, kwargs)
        return HANDLERS["anything else"](func, name, args, kwargs)


def _pickled(x: Any) -> tuple:
    if x._spec.part is not None:
        raise NotImplementedError("a tensor whose parts are parts of what tensor parallelism has left is not pickled: save it with "
                                  "distributed.checkpoint, or its full_tensor()")
    mesh = x._spec.mesh
    places = tuple(p.dim if isinstance(p, Shard) else p.reduce_op if isinstance(p, Partial) else None for p in x._spec.placements)
    return (mesh.device_type, list(mesh._ranks), tuple(mesh.shape), mesh.mesh_dim_names, mesh._group_names()), places, tuple(x._spec.shape)


def _remade(local: Any, mesh: tuple, places: tuple, shape: tuple, requires_grad: bool) -> DTensor:
    return DTensor(local, _remade_spec(mesh, places, shape), requires_grad)


def _remade_spec(mesh: tuple, places: tuple, shape: tuple) -> Spec:
    placements = tuple(Replicate() if p is None else Shard(p) if isinstance(p, int) else Partial(p) for p in places)
    return Spec(DeviceMesh._remade(*mesh), placements, _C.Size(shape))


def _remade_parameter(kind: type, local: Any, mesh: tuple, places: tuple, shape: tuple, requires_grad: bool, asks: bool) -> Any:
    made = kind(local, requires_grad)
    mark(made, _remade_spec(mesh, places, shape), asks)
    return made


class _Given(Function):
    """What a program gives as a part, over the same memory, but no leaf and no view."""

    @staticmethod
    def forward(ctx: Any, local: Any) -> Any:
        return local.detach()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g


def _with_history(a: Any) -> Any:
    """A parameter as a DTensor whose gradient is the parameter's."""
    return DTensor._of(a.to_local(), a._spec) if isinstance(a, _Face) and not issubclass(type(a), DTensor) else a


# What is the same on each part, and what is known of a tensor without its elements.
_LOCAL = frozenset(("clone", "detach", "to", "cpu", "cuda", "float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte",
                    "bool", "contiguous", "is_contiguous", "element_size", "data_ptr", "zeros_like", "ones_like", "empty_like"))
_WRITES = {f"__i{name}__": f"{method}_" for name, method in {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide", "mod": "remainder", "pow": "pow",
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift"}.items()}


def _is_in_place(name: str) -> bool:
    return name == "__setitem__" or name.endswith("_") and not name.endswith("__") and name not in ("requires_grad_", "detach_")


def _outside(func: Callable, name: str, x: DTensor, args: tuple, kwargs: dict) -> Any:
    """What a process that is not in the mesh gets of a function: the sizes of the result, and no elements."""
    mesh, places = x._spec.mesh, (Replicate(),) * x._spec.mesh.ndim
    if _is_in_place(name) or name in _WRITES:
        return x

    def meta(a: Any) -> Any:
        return _operators.empty(tuple(a.shape), dtype=a.dtype, device="meta") if isinstance(a, _Tensor) else a

    def made(y: Any) -> Any:
        return DTensor(_operators.empty(0, dtype=y.dtype, device=x.device), Spec(mesh, places, _C.Size(y.shape))) if isinstance(
            y, _Tensor) else y

    return _pytree.tree_map(made, func(*_pytree.tree_map(meta, args), **_pytree.tree_map(meta, kwargs)))


def _is_of_terms(name: str, x: DTensor, others: list, args: tuple, kwargs: dict) -> bool:
    """Whether a function that is done to terms, or writes to them, does what it is to do to what they are terms of. `others`: its other
    tensors; `args`: what follows the first."""
    if any(not isinstance(a, DTensor) or a._spec != x._spec or a.dtype != x.dtype and not x.is_floating_point() for a in others):
        return False  # of integers, too: a term has another fraction than the sum
    if name in ("zero", "neg") or name in ("copy", "add", "sub") and others or name == "lerp" and len(others) == 1:
        factor = None
    elif name in ("mul", "div") and not others and not kwargs.get("rounding_mode"):
        factor = (*args, kwargs.get("other"))[0]
    else:
        return False
    ops = {p.reduce_op for p in x._spec.placements if isinstance(p, Partial)}
    if ops <= {"sum", "avg"} or name in ("copy", "zero"):
        return True
    return ops <= {"sum", "avg", "max", "min"} and isinstance(factor, (int, float)) and 0 < factor < math.inf


def _is_linear(func: Callable, name: str, args: tuple, kwargs: dict) -> bool:
    """The same of a function that gives another tensor, whose arguments may be the wrong way round."""
    called = getattr(func, "__name__", name)
    if called == "__rmul__":
        name = "mul"
    elif called.startswith("__r") or not isinstance(args[0], DTensor) or name == "mul" and args[0].dtype == _C.bool:
        return False
    return _is_of_terms(name, args[0], [a for a in (*args[1:], *kwargs.values()) if isinstance(a, _Tensor)], args[1:], kwargs)


def _written(func: Callable, name: str, x: DTensor, args: tuple, kwargs: dict) -> DTensor:
    """A function that writes to a tensor: element by element to the parts, others lying as the tensor does; else what it makes of the whole
    tensor, of which each process keeps its part, where plain tensors are the same in all processes. Terms are written to where that is
    what is done to their sum."""
    spec, mesh = x._spec, x._spec.mesh
    others = [a for a in (*args, *kwargs.values()) if isinstance(a, _Tensor)]
    if any(isinstance(p, Partial) for p in spec.placements):
        if not _is_of_terms(name[:-1], x, others, args, kwargs):
            raise NotImplementedError(f"{name}: terms of a sum are redistribute()d first")
        local = [a.to_local() if isinstance(a, DTensor) else a for a in args]
        func(x.to_local(), *local, **{k: a.to_local() if isinstance(a, DTensor) else a for k, a in kwargs.items()})
        return x
    if name in _DRAWN:
        agree(mesh, x.device)
        whole = func(_operators.empty(tuple(spec.shape), dtype=x.dtype, device=x.device), *args, **kwargs)
        x.to_local().copy_(placed(whole, Spec(mesh, (Replicate(),) * mesh.ndim, spec.shape), spec.placements))
        return x
    if name == "copy_" and not isinstance(args[0], DTensor) or not _is_elementwise(name[:-1]) and name not in _ELEMENTWISE_WRITES:
        if name == "copy_" and isinstance(args[0], _Tensor) and args[0].numel() != 1:
            raise ValueError("copy_: a plain tensor is written to one that is spread over processes; distribute_tensor() it")
        _check_regular(name, x)
        whole = x.full_tensor().clone()
        func(whole, *(a.full_tensor() if isinstance(a, DTensor) else a for a in args),
             **{k: a.full_tensor() if isinstance(a, DTensor) else a for k, a in kwargs.items()})
        if tuple(whole.shape) != tuple(x.shape):
            raise NotImplementedError(f"{name}: the shape of a tensor that is spread over processes is not changed in place")
        x.to_local().copy_(placed(whole, Spec(mesh, (Replicate(),) * mesh.ndim, spec.shape), spec.placements))
        return x

    def of(a: Any) -> Any:
        if not isinstance(a, _Tensor) or not isinstance(a, DTensor) and a.numel() == 1 and not a.requires_grad:
            return a
        check_plain(name, a)
        if not isinstance(a, DTensor) and a.numel() == 1:
            a = spread_over(a, mesh)
        if not isinstance(a, DTensor):
            raise ValueError(f"{name}: a plain tensor is written to one that is spread over processes; distribute_tensor() it")
        if a._spec == spec:
            return a.to_local()
        if a._spec.mesh != mesh:
            raise ValueError(f"{name}: the tensors are on different meshes")
        _check_regular(name, x)
        return operand(a, _under(a, spec.placements, x.dim()), spec.placements)

    func(x.to_local(), *map(of, args), **{k: of(a) for k, a in kwargs.items()})
    return x


def _under(a: DTensor, places: Sequence[Placement], dims: int) -> list[Placement]:
    """How an operand lies for a result of so many dimensions that lies as `places` say; where it has size 1 it is whole."""
    wanted: list[Placement] = []
    for p in places:
        at = p.dim - (dims - a.dim()) if isinstance(p, Shard) else -1
        wanted.append(Shard(at) if at >= 0 and a.shape[at] != 1 else Replicate())
    return wanted


_ELEMENTWISE_WRITES = frozenset(("copy_", "zero_", "fill_", "clamp_", "clip_", "nan_to_num_", "true_divide_", "clamp_min_", "clamp_max_"))
_SHAPES = frozenset(("flatten", "reshape", "unflatten", "view"))
_FACTS = frozenset(("dim", "is_floating_point", "is_complex", "__hash__", "untyped_storage"))


# Functions of other modules that know what to do with a DTensor, by their names; "anything else" takes the function, its name and its
# arguments.
HANDLERS: dict[str, Callable] = {}


def _reshaped(name: str, x: DTensor, args: tuple, kwargs: dict) -> DTensor:
    """Another shape. The dimension that is in parts stays, or is cut or joined where its parts stay what is together: heads of features;
    else the tensor becomes whole along that dimension of the mesh first."""
    shape = tuple(x.shape)
    _check_regular(name, x)
    new = list(getattr(_operators.empty(shape, device="meta"), name)(*args, **kwargs).shape)
    local, places = x.to_local(), []
    sizes = list(new)
    for number, p in zip(x._spec.mesh.shape, x._spec.placements):
        if isinstance(p, Shard):
            before = math.prod(shape[:p.dim])
            d = next((k for k in range(len(new)) if math.prod(new[:k]) == before and new[k] > 1), len(new))
            if d < len(new) and new[d] == shape[p.dim]:
                sizes[d] = local.shape[p.dim]
            elif d < len(new) and sizes[d] % number == 0 and shape[p.dim] % number == 0:
                sizes[d] //= number
            else:  # the parts become others
                wanted = tuple(Replicate() if p == q else q for q in x._spec.placements)
                return _reshaped(name, x.redistribute(placements=wanted), args, kwargs)
            p = Shard(d)
        places.append(p)
    return DTensor._of(local.reshape(sizes), Spec(x._spec.mesh, tuple(places), _C.Size(new)))


# Functions whose result has parts where their arguments have them, beside those that are computed element by element: of one tensor, and
# of several. Then functions that are made of those.
_MOVES = frozenset(("swapaxes", "transpose", "view_as_complex", "view_as_real"))
_OTHERS = _MOVES | {"scaled_dot_product_attention"}
_COMPOSED = frozenset(("clamp", "clip", "gelu", "nan_to_num", "square", "true_divide"))


@functools.lru_cache(None)
def _is_elementwise(name: str) -> bool:
    try:
        return name in _COMPOSED or bool(_C._record_facts(name)["pointwise"])
    except KeyError:
        return False


def _plain_name(name: str) -> str:
    """add of __add__ and __radd__."""
    if name.startswith("__") and name.endswith("__"):
        name = name.strip("_")
        name = {"truediv": "div", "rtruediv": "div", "radd": "add", "rsub": "sub", "rmul": "mul", "rpow": "pow", "and": "bitwise_and",
                "or": "bitwise_or", "xor": "bitwise_xor", "invert": "bitwise_not", "floordiv": "floor_divide",
                "mod": "remainder"}.get(name, name)
    return name


class _OfAllParts(Function):
    """What is whole beside something that is in parts over a dimension of the mesh: its gradient is the sum of what the parts give."""

    @staticmethod
    def forward(ctx: Any, x: Any, groups: list) -> Any:
        ctx.groups = groups
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple:
        recorded = g.requires_grad and _C.is_grad_enabled()
        return (_OfAllTerms.apply(g, ctx.groups) if recorded else _OfAllTerms.forward(None, g, ctx.groups)), None


class _OfAllTerms(Function):
    """The sum of what the processes have; the gradient is the same for each term."""

    @staticmethod
    def forward(ctx: Any, g: Any, groups: list) -> Any:
        g = g.contiguous().clone()
        for group in groups:
            c10d.all_reduce(g, group=group)
        return g

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple:
        return g, None


def _check_regular(name: str, x: DTensor) -> None:
    if x._spec.part is not None:
        raise NotImplementedError(f"{name}: the tensor's parts are parts of what tensor parallelism has left; take full_tensor()")


_plain_ones = threading.local()


@contextlib.contextmanager
def implicit_replication() -> Iterator[None]:
    """A block in which plain tensors beside such that are spread over processes may require gradients: they are taken for tensors that all
    processes have alike, as others are in any case, and get the whole gradient in each."""
    before = getattr(_plain_ones, "allowed", False)
    _plain_ones.allowed = True
    try:
        yield
    finally:
        _plain_ones.allowed = before


def check_plain(name: str, a: Any) -> None:
    """NotImplementedError for a plain tensor that requires a gradient, which may be one process' own, outside of implicit_replication()."""
    if getattr(_plain_ones, "allowed", False):
        return
    if isinstance(a, _Tensor) and not isinstance(a, DTensor) and a.requires_grad and _C.is_grad_enabled():
        raise NotImplementedError(f"{name}: a plain tensor beside one that is spread over processes has no gradient; make it one by "
                                  "DTensor.from_local()")


def spread_over(a: Any, mesh: DeviceMesh) -> DTensor:
    """A plain tensor, which is the same in all processes, as a DTensor."""
    return a if isinstance(a, DTensor) else DTensor._of(a, Spec(mesh, (Replicate(),) * mesh.ndim, _C.Size(a.shape)))


def operand(x: DTensor, wanted: Sequence[Placement], places: Sequence[Placement]) -> Any:
    """This process' part of what lies as `wanted` for a result that lies as `places`; where that is in parts and this is whole, its
    gradient is the sum of all parts'."""
    mesh = x._spec.mesh
    own = (x if tuple(wanted) == x._spec.placements else x.redistribute(mesh, wanted)).to_local()
    sums = [mesh.get_group(d) for d, (p, q) in enumerate(zip(wanted, places)) if isinstance(q, Shard) and isinstance(p, Replicate)]
    return _OfAllParts.apply(own, sums) if sums and own.requires_grad and _C.is_grad_enabled() else own


def _by_parts(func: Callable, name: str, args: tuple, kwargs: dict) -> DTensor:
    """The function of the parts that each process has. Plain tensors are the same in all processes, and have no gradient. Tensors that lie
    otherwise than the first that is in parts come to lie as it does; terms of sums are added first."""
    spread = [a for a in (*args, *kwargs.values()) if isinstance(a, DTensor)]
    mesh = spread[0]._spec.mesh
    if any(x._spec.mesh != mesh for x in spread):
        raise ValueError(f"{name}: the tensors are on different meshes")
    tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, _Tensor)]
    for a in tensors:
        check_plain(name, a)

    def mapped(of: Callable) -> Any:
        return func(*map(of, args), **{k: of(v) for k, v in kwargs.items()})

    alike = all(x._spec is spread[0]._spec or x._spec == spread[0]._spec for x in spread)
    if alike and name not in _OTHERS and len(spread) == len(tensors):
        shape = spread[0]._spec.shape
    else:
        shape = mapped(lambda a: _operators.empty(tuple(a.shape), dtype=a.dtype, device="meta") if isinstance(a, _Tensor) else a).shape
    dims, same = len(shape), alike and tuple(shape) == tuple(spread[0].shape)
    terms = any(isinstance(p, Partial) for p in spread[0]._spec.placements)
    if same and name not in _OTHERS and not any(a.numel() != 1 or a.requires_grad for a in tensors if not isinstance(a, DTensor)) and (
            not terms or _is_linear(func, name, args, kwargs)):
        return DTensor._of(mapped(lambda a: a.to_local() if isinstance(a, DTensor) else a), spread[0]._spec)
    for x in spread:
        _check_regular(name, x)
    places: list[Placement] = []
    for d in range(mesh.ndim):
        found = [_out_dim(name, x, x._spec.placements[d].dim, dims, args) for x in spread
                 if isinstance(x._spec.placements[d], Shard)]
        own = spread[0]._spec.placements[d]
        places.append(own if name in _MOVES and isinstance(own, Partial) else
                      Replicate() if not found or found[0] is None else Shard(found[0]))

    def of(a: Any) -> Any:
        if not isinstance(a, _Tensor):
            return a
        a = spread_over(a, mesh)
        if name in _MOVES:
            return operand(a, [Replicate() if isinstance(p, Replicate) else a._spec.placements[d] for d, p in enumerate(places)], places)
        return operand(a, _under(a, places, dims), places)

    return DTensor._of(mapped(of), Spec(mesh, tuple(places), _C.Size(shape)))


def _out_dim(name: str, x: DTensor, dim: int, dims: int, args: tuple) -> Optional[int]:
    """Where a dimension of an argument is in the result; None: it is computed of whole ones."""
    if name in ("transpose", "swapaxes"):
        a, b = (d % dims for d in args[1:3])
        return b if dim == a else a if dim == b else dim
    if name == "view_as_complex" and dim == x.dim() - 1:
        return None  # a number's two parts are in different processes
    if name == "scaled_dot_product_attention" and (x.dim() != 4 or dim > 1):
        return None  # sequences and features; of batches and heads parts are computed
    return dim if name in ("view_as_complex", "view_as_real") else dim + dims - x.dim()


def _mesh(mesh: Optional[DeviceMesh], device: Any) -> DeviceMesh:
    """The mesh that is given, that of the innermost `with mesh:`, or one of all processes."""
    mesh = DeviceMesh._innermost() if mesh is None else mesh
    return mesh if mesh is not None else DeviceMesh(device.type, list(range(c10d.get_world_size())))


def distribute_tensor(tensor: Any, device_mesh: Optional[DeviceMesh] = None, placements: Optional[Sequence[Placement]] = None, *,
                      src_data_rank: Optional[int] = 0) -> DTensor:
    """A tensor that each process has whole as one of which each keeps its part, with Partial() the whole divided by their
    number. The values are those of rank `src_data_rank` along each dimension of the mesh, with None each process' own.

    >>> dist = arete.distributed
    >>> dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.tensor.distribute_tensor(arete.ones(2), dist.init_device_mesh("cpu", (1,))).to_local()
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    mesh = _mesh(device_mesh, tensor.device)
    if isinstance(tensor, DTensor):
        if tensor._spec.mesh != mesh:
            raise ValueError(f"Cannot distribute a DTensor with device mesh {tensor._spec.mesh} to a different device mesh {mesh}.")
        return tensor.redistribute(mesh, placements)
    places = _normal(mesh, placements, tensor.dim())
    for p in places:
        if isinstance(p, Partial) and p.reduce_op not in ("sum", "avg", "min", "max"):
            raise ValueError(f"distribute_tensor: parts of which {p.reduce_op!r} makes a tensor are not known: Partial of 'sum', 'avg', "
                             "'min' or 'max'")
    whole = tensor.detach()
    if mesh.device_type != whole.device.type and not whole.is_meta:
        whole = whole.to(mesh.device_type)
    spec = Spec(mesh, places, _C.Size(tensor.shape))
    if mesh.get_coordinate() is None:
        return DTensor(_operators.empty(0, dtype=whole.dtype, device=whole.device), spec, tensor.requires_grad)
    local = whole.clone()
    for d, p in enumerate(places):
        local = given(local, mesh.get_group(d), p, None if whole.is_meta else src_data_rank)
    return DTensor(local, spec, tensor.requires_grad)


def given(local: Any, group: Any, place: Placement, source: Optional[int]) -> Any:
    """What this process has of a tensor along a dimension of the mesh: of that of the process `source`, which sends to each its part."""
    if isinstance(place, (Replicate, Partial)):
        if source is not None:
            c10d.broadcast(local, group=group, group_src=source)
        return local / group.size() if isinstance(place, Partial) and place.reduce_op == "sum" else local
    if source is None:
        return cut(local, group, place.dim)
    sizes = [Shard.local_shard_size_and_offset(local.shape[place.dim], group.size(), r)[0] for r in range(group.size())]
    parts = [part.contiguous() for part in local.split(sizes, place.dim)]
    own = _operators.empty_like(parts[group.rank()])
    c10d.scatter(own, parts if group.rank() == source else None, group=group, group_src=source)
    return own


_marked: dict[type, type] = {}


def mark(parameter: Any, spec: Spec, asks: bool = False) -> None:
    """Makes a parameter of which this process has a part a DTensor, too. With `asks` operators take it for one; else they see the part,
    or what a module gathered before it computes."""
    kind = type(parameter)
    kind = getattr(kind, "_unmarked", kind)
    if (kind, asks) not in _marked:
        asking = {"__torch_function__": classmethod(_ask), "register_hook": _register_hook}
        _marked[kind, asks] = type(kind.__name__, (_Face, kind), {
            **_DRAWN, "copy_": _copy, "grad": property(_grad, _set_grad), "detach": _detach, "data": property(_detach, _set_data),
            "__deepcopy__": _copied, "__reduce_ex__": _reduced,
            "__module__": kind.__module__, "_unmarked": kind, **(asking if asks else {})})
    parameter.__class__ = _marked[kind, asks]
    parameter._spec = spec


def asks(parameter: Any) -> bool:
    """Whether operators take it for a DTensor."""
    return isinstance(parameter, DTensor) and type(parameter).__torch_function__ is not _C._disabled_torch_function_impl


# What is of a parameter as an object, not of its values.
_OF_OBJECTS = _FACTS | frozenset(("__get__", "__set__", "requires_grad_", "retain_grad", "register_post_accumulate_grad_hook", "get_device",
                                  "is_pinned", "is_shared", "is_inference", "ndimension"))


def _ask(cls: type, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Operators on a parameter are those on DTensors, and it may be written to."""
    name = getattr(func, "__name__", "")
    if name not in _OF_OBJECTS or not isinstance(args[0], cls):
        return DTensor.__torch_function__(func, types, args, kwargs)
    with _C.DisableTorchFunctionSubclass():
        result = func(*args, **(kwargs or {}))
    if isinstance(result, _Tensor) and result is not args[0]:
        raise NotImplementedError("no such attribute of a parameter that is spread over processes; take to_local() or full_tensor()")
    return result


def _register_hook(self: Any, hook: Callable) -> Any:
    def of_whole(g: Any) -> Any:
        new = hook(self._of_gradient(g))
        return _part_placed_as(self._spec, new) if isinstance(new, DTensor) else new

    with _C.DisableTorchFunctionSubclass():
        local = self.__dict__.get("_local_tensor")
        return _Tensor.register_hook(self if local is None else local, of_whole)


def _part_placed_as(spec: Spec, x: DTensor) -> Any:
    """This process' part of a DTensor that is to lie as another does."""
    return (x if x._spec.placements == spec.placements else x.redistribute(placements=spec.placements)).to_local()


def _drawn(name: str) -> Callable:
    """A method that draws: the numbers of all of the tensor, of which this process keeps its own, so that equal seeds give one process'
    values."""
    own = getattr(_Tensor, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        sizes, starts = self._spec.offsets()
        local = own_values(self)
        if tuple(local.shape) == tuple(self.shape) or local.is_meta or (self.requires_grad and _C.is_grad_enabled()):
            with _C.DisableTorchFunctionSubclass():
                return own(self, *args, **kwargs)
        whole = getattr(_operators.empty(tuple(self.shape), dtype=local.dtype, device=local.device), name)(*args, **kwargs)
        for d, (n, first) in enumerate(zip(sizes, starts)):
            whole = whole.narrow(d, first, n)
        local.copy_(whole)
        return self

    method.__name__ = name
    return method


_DRAWN = {name: _drawn(name) for name in ("uniform_", "normal_", "log_normal_", "exponential_", "cauchy_", "geometric_", "bernoulli_",
                                          "random_")}


def _copy(self: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
    """A whole source gives this process' part, and one that lies otherwise is placed as this is."""
    if isinstance(source, DTensor):
        source = source.to_local() if source._spec == self._spec else source.full_tensor()
    if isinstance(source, _Tensor) and tuple(source.shape) == tuple(self.shape):
        if tuple(own_values(self).shape) != tuple(source.shape):
            for d, (n, first) in enumerate(zip(*self._spec.offsets())):
                source = source.narrow(d, first, n)
    with _C.DisableTorchFunctionSubclass():
        return _Tensor.copy_(self, source, *args, **kwargs)


_own_grad = _Tensor.grad


def _grad(self: Any) -> Any:
    return self._of_gradient(_own_grad.__get__(self))


def _set_grad(self: Any, value: Any) -> None:
    _own_grad.__set__(self, _part_placed_as(self._spec, value) if isinstance(value, DTensor) else value)


def _detach(self: Any) -> Any:
    """The values without history: a DTensor, or all of them while a module runs that gathered them."""
    local = own_values(self)
    return DTensor(local, self._spec) if tuple(local.shape) == tuple(self._spec.offsets()[0]) else local


_own_data = _Tensor.data


def _set_data(self: Any, value: Any) -> None:
    """Of a parameter that operators take for a DTensor another one, whose placements it has then."""
    if asks(self):
        if not isinstance(value, DTensor):
            raise RuntimeError("set_data: a parameter that is a DTensor gets data of one, not of a plain tensor: distribute_tensor() it")
        self._spec = value._spec
    elif isinstance(value, DTensor) and value._spec != self._spec:
        raise ValueError(f"set_data: the parameter is placed as {self._spec.placements} of {tuple(self.shape)}, the value as "
                         f"{value.placements} of {tuple(value.shape)}; redistribute() it")
    _own_data.__set__(self, value.to_local() if isinstance(value, DTensor) else value)


def _check_own(self: Any, what: str) -> None:
    if getattr(self, "_fsdp_state", None) is not None:
        raise NotImplementedError(f"a parameter that fully_shard() spread is not {what}: its module gathers it. Take its state_dict()")


def _copied(self: Any, memo: dict) -> Any:
    _check_own(self, "copied")
    with no_grad():
        made = self._unmarked(own_values(self).clone(), self.requires_grad)
    mark(made, self._spec, asks(self))
    if self.grad is not None:
        made.grad = copy.deepcopy(self.grad, memo)
    memo[id(self)] = made
    return made


def _reduced(self: Any, protocol: Any) -> Any:
    _check_own(self, "pickled")
    return _remade_parameter, (self._unmarked, own_values(self), *_pickled(self), self.requires_grad, asks(self))


# ---- states of modules


def spread_states(module: Any) -> None:
    """Has state dictionaries of a module give DTensors for its own parameters that were marked, and take whole ones and others' parts."""
    if "_spreads_states" in module.__dict__:
        return
    module.__dict__["_spreads_states"] = True
    module.register_state_dict_pre_hook(_show_parts)
    module._register_state_dict_hook(_as_dtensors)
    module._register_load_state_dict_pre_hook(_take_parts, with_module=True)


def _show_parts(module: Any, *rest: Any) -> None:
    for p in module._parameters.values():
        state = getattr(p, "_fsdp_state", None)
        if state is not None:
            state.group.reshard()


def _as_dtensors(module: Any, destination: dict, prefix: str, metadata: Any) -> None:
    for name, p in module._parameters.items():
        value = destination.get(prefix + name)
        if isinstance(p, DTensor) and value is not None and not isinstance(value, DTensor):
            destination[prefix + name] = DTensor(value, p._spec)


def _take_parts(module: Any, state_dict: dict, prefix: str, metadata: dict, *rest: Any) -> None:
    _show_parts(module)
    for name, p in module._parameters.items():
        value = state_dict.get(prefix + name)
        if not isinstance(p, DTensor) or not isinstance(value, _Tensor) or value is p:
            continue
        own = tuple(own_values(p).shape)
        if tuple(value.shape) not in (tuple(p.shape), own):
            continue  # an error, which the module makes
        if isinstance(value, DTensor):
            alike = value.placements == p.placements and value.device_mesh == p.device_mesh and value._spec.offsets() == p._spec.offsets()
            value = value.to_local() if alike else value.full_tensor()
        if tuple(value.shape) != own:
            for d, (n, first) in enumerate(zip(*p._spec.offsets())):
                value = value.narrow(d, first, n)
        if metadata.get("assign_to_params_buffers"):
            q = type(p)(own_values(value), p.requires_grad)
            mark(q, p._spec, asks(p))
            state_dict[prefix + name] = q
            continue
        with no_grad():
            own_values(p).copy_(value)
        state_dict[prefix + name] = p  # which is as it should be
