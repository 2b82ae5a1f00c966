"""Processes as a grid of ranks, with a group for each line of it.

>>> dist = arete.distributed
>>> dist.init_process_group("fake", rank=5, world_size=8)
>>> mesh = dist.init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
>>> mesh.get_coordinate(), mesh["tp"].get_local_rank(), dist.get_process_group_ranks(mesh.get_group("dp"))
((1, 1), 1, [1, 5])
>>> dist.destroy_process_group()
"""
from __future__ import annotations

import math
import threading
import weakref
from typing import Any, Optional, Sequence, Union

from .. import _C
from . import distributed_c10d as c10d

__all__ = ["DeviceMesh", "init_device_mesh"]


def _flat(ranks: Any) -> tuple[list, tuple]:
    """The ranks in a nest of lists, and its sizes."""
    if not isinstance(ranks, (list, tuple)):
        return [int(ranks)], ()
    parts = [_flat(r) for r in ranks]
    shapes = {shape for _, shape in parts}
    if len(shapes) > 1:
        raise ValueError("the rows of a mesh must have one length")
    return [r for flat, _ in parts for r in flat], (len(parts), *(shapes.pop() if shapes else ()))


def _has_chosen_gpu() -> bool:
    """Whether this process has a GPU that is the program's choice, or none at all."""
    return _C._cuda.device_count() == 0 or _C._cuda.current_device() != 0 or _C._cuda.has_chosen_device()


def _choose_gpu() -> None:
    """Makes this process' GPU the current one, where the program has not: the default group's, or, before any is in use, that of this
    process' number on its machine."""
    if _has_chosen_gpu():
        return
    home = c10d._of(None)._home
    if home.type == "cuda":
        _C._cuda.set_device(home.index, True)
    elif not _C._cuda.is_initialized():
        _C._cuda.set_device(c10d.get_node_local_rank(c10d.get_rank()) % _C._cuda.device_count(), True)


class _Open(threading.local):
    """The meshes of a thread's blocks that are open."""

    def __init__(self) -> None:
        self.meshes: list = []


_open = _Open()
# By their ids. Plans have the mesh that has them, and so its groups, which are to end when they are destroyed.
_living: weakref.WeakValueDictionary = weakref.WeakValueDictionary()


def _forget_plans() -> None:
    for mesh in list(_living.values()):
        mesh._plans.clear()


c10d._at_end_of_groups.append(_forget_plans)


class DeviceMesh:
    """`mesh`: ranks, as a tensor or nested lists. All processes of the default group make the same meshes in the same order; each line
    of ranks along each dimension is a group. `backend_override`: the backends of dimensions, by their names or numbers; options of
    backends are refused.

    >>> arete.distributed.init_process_group("fake", rank=3, world_size=4)
    >>> arete.distributed.DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("dp", "tp"))["tp"].mesh.tolist()
    [2, 3]
    >>> arete.distributed.destroy_process_group()
    """

    def __init__(self, device_type: str, mesh: Any = None, *, mesh_dim_names: Optional[Sequence[str]] = None, backend_override: Any = None,
                 _init_backend: bool = True):
        if mesh is None:
            raise TypeError("DeviceMesh: the ranks are missing: give them as `mesh`")
        ranks, shape = _flat(mesh.tolist() if isinstance(mesh, _C.Tensor) else mesh)
        shape = shape or (1,)
        names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        if names is not None and (len(names) != len(shape) or len(set(names)) != len(names)):
            raise RuntimeError(f"a mesh of {len(shape)} dimensions needs as many different names, got {list(names)}")
        if len(set(ranks)) != len(ranks):
            raise ValueError("a rank is in the mesh twice")
        if not c10d.is_initialized():
            c10d.init_process_group()
        world = c10d.get_world_size()
        if ranks and not 0 <= min(ranks) <= max(ranks) < world:
            raise RuntimeError(f"Mesh should not be bigger than default world size {world}, but found {len(ranks)} ranks!")
        if device_type == "cuda":
            _choose_gpu()
        self._fill(device_type, ranks, shape, names, None)
        backends = self._backends(backend_override)
        if _init_backend:
            self._groups = [self._make_groups(d, backends.get(d)) for d in range(len(shape))]

    def _fill(self, device_type: str, ranks: list, shape: tuple, names: Optional[tuple], root: Optional["DeviceMesh"]) -> None:
        self.device_type, self._ranks, self._shape, self.mesh_dim_names = device_type, ranks, shape, names
        self._root, self._groups, self._flattened = root, None, {}
        self._plans: dict = {}  # of functions of tensors: Note [Plans]
        _living[id(self)] = self
        here = c10d.get_rank()
        self._coordinate = None
        if here in ranks:
            at, self._coordinate = ranks.index(here), []
            for n in reversed(shape):
                self._coordinate.insert(0, at % n)
                at //= n

    @staticmethod
    def from_group(group: Any, device_type: str, mesh: Any = None, *, mesh_dim_names: Optional[Sequence[str]] = None) -> "DeviceMesh":
        """The mesh of a group that there is, or of one group of this process for each dimension: the ranks are then `mesh`, or, of two
        groups, those of the second for each of the first."""
        groups = list(group) if isinstance(group, (list, tuple)) else [group]
        ranks = [c10d.get_process_group_ranks(g) for g in groups]
        names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        if mesh is not None:
            flat, shape = _flat(mesh.tolist() if isinstance(mesh, _C.Tensor) else mesh)
        elif len(groups) == 1:
            flat, shape = ranks[0], (len(ranks[0]),)
        elif len(groups) == 2:
            # Of others nothing is known; ranks of a line are as far from each other everywhere.
            first, second = ranks
            flat, shape = [r + s - c10d.get_rank() for r in first for s in second], (len(first), len(second))
        else:
            raise ValueError("Must pass mesh if passing multiple ProcessGroups")
        if len(shape) != len(groups):
            raise ValueError(f"Expects mesh with ndim equal to number of ProcessGroups but got mesh {shape} and {len(groups)} "
                             "ProcessGroups")
        made = object.__new__(DeviceMesh)
        made._fill(device_type, flat, shape, names, None)
        made._groups = groups
        return made

    @staticmethod
    def _innermost() -> Optional["DeviceMesh"]:
        """The mesh of this thread's innermost `with mesh:`, for functions that are given none."""
        return _open.meshes[-1] if _open.meshes else None

    def __enter__(self) -> "DeviceMesh":
        _open.meshes.append(self)
        return self

    def __exit__(self, *error: Any) -> None:
        _open.meshes.pop()

    def _lines(self, dim: int) -> list[list[int]]:
        step, n = math.prod(self._shape[dim + 1:]), self._shape[dim]
        return [[self._ranks[block + inner + i * step] for i in range(n)]
                for block in range(0, len(self._ranks), step * n) for inner in range(step)]

    def _backends(self, override: Optional[dict], dims: Optional[range] = None) -> dict[int, str]:
        """By dimensions, of these if not of all: numbers count from the first of them."""
        dims = range(self.ndim) if dims is None else dims
        backends: dict[int, str] = {}
        for name, backend in (override or {}).items():
            if isinstance(backend, tuple) and len(backend) == 2 and backend[1] is None:
                backend = backend[0]
            if not isinstance(backend, str):
                raise NotImplementedError(f"DeviceMesh: backend_override names backends, and has no options, got {backend!r}")
            dim = self._dim(name, "backend_override") if isinstance(name, str) else None
            if dim is None and not -len(dims) <= name < len(dims) or dim is not None and dim not in dims:
                raise IndexError(f"backend_override: there is no dimension {name!r} among {len(dims)}")
            dim = dims[name] if dim is None else dim
            if dim in backends:
                raise RuntimeError(f"backend_override has dimension {dim} twice, by name and by number")
            backends[dim] = backend
        return backends

    def _make_groups(self, dim: int, backend: Optional[str] = None) -> Any:
        """The group of this process' line; all processes make all lines."""
        mine = None
        for line in self._lines(dim):
            if backend is None and len(line) == c10d.get_world_size() and line == list(range(len(line))):
                group = c10d._of(None)
            else:
                group = c10d.new_group(line, backend=backend)
            if c10d.get_rank() in line:
                mine = group
        return mine

    @property
    def mesh(self) -> Any:
        """The ranks, as a tensor of int32 in host memory."""
        return _C.tensor(self._ranks, dtype=_C.int32, device=_C.device("cpu")).reshape(self._shape)

    @property
    def ndim(self) -> int:
        return len(self._shape)

    @property
    def shape(self) -> tuple:
        return self._shape

    def size(self, mesh_dim: Optional[int] = None) -> int:
        """How many ranks there are, in all or along a dimension."""
        return math.prod(self._shape) if mesh_dim is None else self._shape[mesh_dim]

    def _dim(self, mesh_dim: Union[int, str, None], what: str) -> int:
        if mesh_dim is None:
            if self.ndim > 1:
                raise RuntimeError(f"Found the DeviceMesh have {self.ndim} dimensions. Optional kwarg `mesh_dim` needs to be specified "
                                   f"when device_mesh.ndim > 1: {what} is of one of them.")
            return 0
        if isinstance(mesh_dim, str):
            if self.mesh_dim_names is None or mesh_dim not in self.mesh_dim_names:
                raise KeyError(f"Invalid mesh_dim_name '{mesh_dim}': the names are {self.mesh_dim_names}")
            return self.mesh_dim_names.index(mesh_dim)
        if not -self.ndim <= mesh_dim < self.ndim:
            raise IndexError(f"a mesh of {self.ndim} dimensions has no dimension {mesh_dim}")
        return mesh_dim % self.ndim

    def get_group(self, mesh_dim: Union[int, str, None] = None) -> Any:
        """The group of this process along a dimension."""
        dim = self._dim(mesh_dim, "get_group")
        if self._groups is None:
            raise RuntimeError("DeviceMesh process groups not initialized!")
        return self._groups[dim]

    def get_all_groups(self) -> list:
        """Those along all dimensions."""
        return [self.get_group(d) for d in range(self.ndim)]

    def get_rank(self) -> int:
        """Of this process in the default group."""
        return c10d.get_rank()

    def get_local_rank(self, mesh_dim: Union[int, str, None] = None) -> int:
        """The place of this process along a dimension."""
        dim = self._dim(mesh_dim, "get_local_rank")
        if self._coordinate is None:
            raise RuntimeError("this process is not in the mesh")
        return self._coordinate[dim]

    def get_coordinate(self) -> Optional[tuple[int, ...]]:
        """Its place along all dimensions; None if it is not in the mesh."""
        return None if self._coordinate is None else tuple(self._coordinate)

    def __getitem__(self, names: Union[str, tuple]) -> "DeviceMesh":
        """The part of the mesh that this process shares these dimensions with. It uses the mesh's groups."""
        names = (names,) if isinstance(names, str) else tuple(names)
        if self.mesh_dim_names is None:
            raise RuntimeError("Cannot slice a DeviceMesh without mesh_dim_names!")
        if len(names) == 1 and names[0] in self._flattened:
            return self._flattened[names[0]]
        if names == self.mesh_dim_names:
            return self
        at = [self._dims_of(name) for name in names]
        dims = [d for own in at for d in own]
        if len(set(dims)) != len(dims):
            raise RuntimeError(f"Slicing overlapping dim_names {names} is not allowed: each dimension of {self.mesh_dim_names} once")
        here = self._coordinate or [0] * self.ndim
        steps = [math.prod(self._shape[d + 1:]) for d in range(self.ndim)]
        if any(steps[before[-1]] < steps[after[-1]] for before, after in zip(at, at[1:])):  # those of 1 are in any
            raise KeyError(f"Invalid mesh_dim_names {names}: in the order of {self.mesh_dim_names}")
        places = [sum(here[d] * steps[d] for d in range(self.ndim) if d not in dims)]
        for d in dims:
            places = [p + i * steps[d] for p in places for i in range(self._shape[d])]
        part = object.__new__(DeviceMesh)
        part._fill(self.device_type, [self._ranks[p] for p in places], tuple(math.prod(self._shape[d] for d in own) for own in at), names,
                   self._root or self)
        if self._groups is not None:
            part._groups = [self._flattened[name]._groups[0] if name in self._flattened else self._groups[own[0]]
                            for name, own in zip(names, at)]
        return part

    def _dims_of(self, name: str) -> list[int]:
        """The dimension of this name, or those that _flatten() has put together under it."""
        flat = self._flattened.get(name)
        return [self._dim(name, "a slice")] if flat is None else flat._parts

    def _get_root_mesh(self) -> "DeviceMesh":
        return self._root or self

    def _is_current_rank_part_of_mesh(self) -> bool:
        return self._coordinate is not None

    def _flatten(self, mesh_dim_name: Optional[str] = None) -> "DeviceMesh":
        """All ranks of it as one dimension, with a group of its own; the mesh that it is a part of knows it by the name. All processes
        call this."""
        root = self._root or self
        name = mesh_dim_name or "_".join(self.mesh_dim_names or ())
        if self.mesh_dim_names == (name,):
            return self
        if name in root._flattened:
            return root._flattened[name]
        if name in (root.mesh_dim_names or ()):
            raise ValueError(f"{name} already exists for submesh of the {root}: give another name than {root.mesh_dim_names}")
        lines, dims = {tuple(self._ranks)}, list(range(root.ndim))
        if self._root is not None:  # all parts like this one make their groups
            dims = [d for n in self.mesh_dim_names for d in root._dims_of(n)]
            order = [d for d in range(root.ndim) if d not in dims] + dims
            moved = root.mesh.permute(order).reshape(-1, len(self._ranks))
            lines = {tuple(line) for line in moved.tolist()}
        flat = object.__new__(DeviceMesh)
        flat._fill(self.device_type, self._ranks, (len(self._ranks),), (name,), root)
        flat._parts = dims
        for line in sorted(lines):
            group = c10d.new_group(list(line))
            if c10d.get_rank() in line:
                flat._groups = [group]
        root._flattened[name] = flat
        return flat

    def _unflatten(self, dim: Union[int, str], mesh_sizes: Sequence[int], mesh_dim_names: Sequence[str] = (),
                   backend_override: Optional[dict] = None) -> "DeviceMesh":
        """The mesh with a dimension divided into several, which have groups of their own. All processes call this."""
        at, sizes, names = self._dim(dim, "_unflatten"), tuple(mesh_sizes), tuple(mesh_dim_names)
        if self.mesh_dim_names is None or len(names) != len(sizes):
            raise RuntimeError("mesh_dim_names must have same length as mesh_sizes in _unflatten, and the mesh names, too")
        if math.prod(sizes) != self._shape[at]:
            raise ValueError(f"Cannot unflatten dimension {at} with size {self._shape[at]} into sizes {sizes}")
        if self._root is not None:  # all parts like this one are divided
            if set(self.mesh_dim_names) - set(self._root.mesh_dim_names or ()):
                raise NotImplementedError("_unflatten: of dimensions that were put together only the mesh that has them is divided")
            whole = self._root._unflatten(self.mesh_dim_names[at], sizes, names, backend_override)
            return whole[self.mesh_dim_names[:at] + names + self.mesh_dim_names[at + 1:]]
        made = DeviceMesh(self.device_type, self.mesh.reshape(self._shape[:at] + sizes + self._shape[at + 1:]),
                          mesh_dim_names=self.mesh_dim_names[:at] + names + self.mesh_dim_names[at + 1:], _init_backend=False)
        if self._groups is not None:
            backends = made._backends(backend_override, range(at, at + len(sizes)))
            new = [made._make_groups(at + d, backends.get(at + d)) for d in range(len(sizes))]
            made._groups = [*self._groups[:at], *new, *self._groups[at + 1:]]
        return made

    @staticmethod
    def _concatenate(device_mesh_list: Sequence["DeviceMesh"]) -> "DeviceMesh":
        """The part of a mesh that has the dimensions of these parts of it."""
        roots = {id(m._root or m): m._root or m for m in device_mesh_list}
        if len(roots) != 1:
            raise RuntimeError("Concatenation of meshes needs parts of one mesh")
        (root,) = roots.values()
        names = tuple(name for m in device_mesh_list for name in m.mesh_dim_names or ())
        if set(names) - set(root.mesh_dim_names or ()):
            raise NotImplementedError("_concatenate: dimensions that were put together are not put beside others")
        return root[names]

    def _group_names(self) -> Optional[list]:
        return self._groups and [None if g is None else g.group_name for g in self._groups]

    def _take_groups(self, names: Optional[list]) -> None:
        """This process' groups of these names, if they are there and their ranks are this mesh's lines; else there are none."""
        known = {g.group_name: g for g in c10d._pg_map}
        groups = []
        for d, name in enumerate(names or ()):
            lines = [line for line in self._lines(d) if c10d.get_rank() in line]
            group = known.get(name)
            if lines and (group is None or list(group._ranks) != lines[0]):
                return
            groups.append(group)
        self._groups = groups or None

    @staticmethod
    def _remade(device_type: str, ranks: list, shape: tuple, names: Optional[tuple], group_names: Optional[list]) -> "DeviceMesh":
        """A mesh from what a file says of it."""
        made = object.__new__(DeviceMesh)
        made._fill(device_type, ranks, shape, names, None)
        made._take_groups(group_names)
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        return DeviceMesh._remade, (self.device_type, list(self._ranks), self._shape, self.mesh_dim_names, self._group_names())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceMesh) and (self.device_type, self._ranks, self._shape, self.mesh_dim_names) == (
            other.device_type, other._ranks, other._shape, other.mesh_dim_names)

    def __hash__(self) -> int:
        return hash((self.device_type, tuple(self._ranks), self._shape, self.mesh_dim_names))

    def __repr__(self) -> str:
        names = self.mesh_dim_names or [None] * self.ndim
        sizes = ", ".join(f"{name}={n}" if name else str(n) for name, n in zip(names, self._shape))
        sizes += "," * (self.ndim == 1 and not names[0])
        steps = ", ".join(str(math.prod(self._shape[d + 1:])) for d in range(self.ndim)) + "," * (self.ndim == 1)
        return f"DeviceMesh(({sizes}), '{self.device_type}', stride=({steps}))"


def init_device_mesh(device_type: str, mesh_shape: Sequence[int], *, mesh_dim_names: Optional[Sequence[str]] = None,
                     backend_override: Any = None) -> DeviceMesh:
    """A mesh of all ranks, in order, of these sizes. Makes the default group if there is none, and on GPUs makes that of this process'
    local rank the current one if the default group is made here and the program has not chosen one.

    >>> arete.distributed.init_process_group("fake", rank=0, world_size=4)
    >>> arete.distributed.init_device_mesh("cpu", (2, 2)).mesh.tolist()
    [[0, 1], [2, 3]]
    >>> arete.distributed.destroy_process_group()
    """
    if not isinstance(device_type, str) or not device_type.isalpha():
        raise RuntimeError(f"Device type with index is not supported but got {device_type}. "
                           "If you maintained a 'torch.device' object, it's recommended to pass in 'device.type'.")
    shape = tuple(int(n) for n in mesh_shape)
    if not c10d.is_initialized():
        if device_type == "cuda":
            local = c10d._d.environment_local_rank()
            if local is not None and not _has_chosen_gpu():
                _C._cuda.set_device(local % _C._cuda.device_count(), True)
        c10d.init_process_group()
    if math.prod(shape) > c10d.get_world_size():
        raise RuntimeError(f"Mesh should not be bigger than default world size {c10d.get_world_size()}, but found {math.prod(shape)} "
                           "ranks!")
    ranks = _C.tensor(list(range(math.prod(shape))), dtype=_C.int64, device=_C.device("cpu")).reshape(shape)
    return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names, backend_override=backend_override)
