"""Tensors that several processes have together."""
from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any, Callable, Optional, Sequence

from ... import _C, _operators
from ..._grad_mode import no_grad
from ...autograd import Function, backward
from .. import distributed_c10d as c10d
from ..device_mesh import DeviceMesh
from ._redistribute import GradientFrom, cut, part_of, placed
from .placement_types import Partial, Placement, Replicate, Shard

__all__ = ["DTensor", "Spec", "distribute_tensor", "own_values", "spread_over"]

_Tensor = _C.Tensor

# Functions of other modules that know what to do with a DTensor, by their names; "anything else" takes the function, its name and its
# arguments.
HANDLERS: dict[str, Callable] = {}
_FACTS = frozenset(("dim", "is_floating_point", "is_complex", "__hash__", "untyped_storage"))


@dataclasses.dataclass(frozen=True)
class Spec:
    """Where the parts of a tensor are. `part`: this process', where it does not follow from the placements; `gather`: what makes
    the whole of such a part then, or with None of what its parameter has."""

    mesh: DeviceMesh
    placements: tuple
    shape: Any
    part: Optional[tuple] = None
    gather: Optional[Callable[..., Any]] = dataclasses.field(default=None, compare=False)

    def __hash__(self) -> int:  # which is asked for in each call of a function (Note [Plans])
        found = self.__dict__.get("_hash")
        if found is None:
            found = self.__dict__["_hash"] = hash((self.mesh, self.placements, tuple(self.shape), self.part))
        return found

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
        HANDLERS["mark"](parameter, self, asks=True)


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
    dtype, device = _Tensor.dtype, _Tensor.device  # which ask nobody

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
        return HANDLERS["a call"](func, name, types, args, kwargs or {})


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


def spread_over(a: Any, mesh: DeviceMesh) -> DTensor:
    """A plain tensor, which is the same in all processes, as a DTensor."""
    return a if isinstance(a, DTensor) else DTensor._of(a, Spec(mesh, (Replicate(),) * mesh.ndim, _C.Size(a.shape)))


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


_own_grad = _Tensor.grad


def _grad(self: Any) -> Any:
    return self._of_gradient(_own_grad.__get__(self))


def _set_grad(self: Any, value: Any) -> None:
    _own_grad.__set__(self, _part_placed_as(self._spec, value) if isinstance(value, DTensor) else value)
