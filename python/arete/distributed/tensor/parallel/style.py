"""Modules whose parameters, or inputs, are spread over the processes of a mesh: tensor and sequence parallelism.

Tensors between modules stay plain ones, of this process' part, unless a style has use_local_output=False: then a DTensor says of them how
they are placed. A style says how plain inputs of its module are placed, and how its results are to be. Losses are the same in all
processes of the mesh, and so are gradients of what is whole."""
from __future__ import annotations

import fnmatch
import warnings
from typing import Any, Optional, Sequence, Union

from .... import _C, nn
from ...._grad_mode import no_grad
from ....autograd import Function
from ....nn import functional as F
from ...device_mesh import DeviceMesh
from .._dtensor import DTensor, Spec, given
from .._parameters import mark, spread_states
from .._redistribute import cut, exchanged, gathered, part_of, reduce_scattered, reduced
from ..placement_types import Partial, Placement, Replicate, Shard

__all__ = ["ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput", "RowwiseParallel",
           "SequenceParallel", "parallelize_module"]


class _Move(Function):
    """From one placement to another, with the gradient's way back: of what is whole it is whole (or, for `partial`, terms of a sum), of
    parts parts. `total`: the size of all parts together; None: they are equal."""

    @staticmethod
    def forward(ctx: Any, x: Any, mesh: DeviceMesh, here: Placement, there: Placement, partial: bool, total: Optional[int]) -> Any:
        ctx.mesh, ctx.here, ctx.there, ctx.partial = mesh, here, there, partial
        if isinstance(there, Shard):
            ctx.size = x.shape[there.dim]
            # Features are cut as weights are, whose sizes are known.
            if here != there and there.dim != x.dim() - 1 and ctx.size % mesh.size():
                raise ValueError(f"size {ctx.size} of dimension {there.dim} is not divisible by the {mesh.size()} processes of the mesh")
        if isinstance(here, Shard):
            ctx.total = total or x.shape[here.dim] * mesh.size()
        moved = _moved(x, mesh.get_group(), here, there, ctx)
        return moved.view_as(moved)

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple:
        here: Placement = Replicate() if isinstance(ctx.here, Partial) else ctx.here
        there: Placement = Partial() if isinstance(ctx.there, Replicate) and ctx.partial else ctx.there
        return _moved(g, ctx.mesh.get_group(), there, here, ctx, back=True), None, None, None, None, None


def _moved(x: Any, group: Any, here: Placement, there: Placement, ctx: Any, back: bool = False) -> Any:
    if here == there:
        return x
    if isinstance(here, Partial):
        return reduce_scattered(x, group, there.dim) if isinstance(there, Shard) else reduced(x, group)
    if isinstance(here, Shard):
        total = ctx.size if back else ctx.total
        return exchanged(x, group, here.dim, there.dim, total) if isinstance(there, Shard) else gathered(x, group, here.dim, total)
    return cut(x, group, there.dim)


def _move(x: Any, mesh: DeviceMesh, here: Optional[Placement], there: Optional[Placement], partial: bool = False,
          total: Optional[int] = None) -> Any:
    if isinstance(x, DTensor):  # it says itself how it is placed
        if x.device_mesh != mesh:
            raise ValueError(f"a tensor on {x.device_mesh} is given to a module on {mesh}")
        (here,), x, whole = x.placements, x.to_local(), x.shape
        there = here if there is None else there
        total = whole[here.dim] if isinstance(here, Shard) else None
    if here is None or there is None or not isinstance(x, _C.Tensor):
        return x
    if isinstance(there, Partial):
        raise NotImplementedError("parallelize_module: nothing is placed as Partial()")
    here, there = (Shard(p.dim % x.dim()) if isinstance(p, Shard) else p for p in (here, there))
    if here == there and not partial:
        return x
    return _Move.apply(x, mesh, here, there, partial, total)


def _shown(x: Any, mesh: DeviceMesh, placement: Optional[Placement], use_local_output: bool, total: Optional[int] = None) -> Any:
    """A result as a style gives it: plain, or with its placement. `total`: the size of all parts; None: they are equal."""
    if use_local_output or placement is None or not isinstance(x, _C.Tensor):
        return x
    shape = list(x.shape)
    if isinstance(placement, Shard):
        placement = Shard(placement.dim % x.dim())
        shape[placement.dim] = total or shape[placement.dim] * mesh.size()
    return DTensor._of(x, Spec(mesh, (placement,), _C.Size(shape)))


class ParallelStyle:
    """How a module is spread. `src_data_rank`: whose parameters count; None: each process' own."""

    src_data_rank: Optional[int] = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in vars(self).items() if name != 'src_data_rank')})"

    def _apply(self, module: nn.Module, mesh: DeviceMesh) -> None:
        raise NotImplementedError

    def _spread(self, module: nn.Module, name: str, mesh: DeviceMesh, placement: Placement) -> None:
        """Keeps a part of a parameter."""
        p = module._parameters.get(name)
        if p is None:
            return
        with no_grad():
            whole = p.detach()
            if whole.device.type != mesh.device_type and not whole.is_meta:
                whole = whole.to(mesh.device_type)
            source = None if whole.is_meta else self.src_data_rank
            local = given(whole.contiguous().clone(), mesh.get_group(), placement, source)
        part = nn.Parameter(local, p.requires_grad)
        mark(part, Spec(mesh, (placement,), _C.Size(p.shape)))
        module._parameters[name] = part
        spread_states(module)


def _sums_gradient(module: nn.Module, name: str, mesh: DeviceMesh) -> None:
    """Each process' gradient of a whole parameter is that of its part of a sequence."""
    p = module._parameters.get(name)
    if p is not None and p.requires_grad:
        p.register_hook(lambda g: reduced(g, mesh.get_group()))


class ColwiseParallel(ParallelStyle):
    """A Linear of which each process has some outputs, or an Embedding of which it has some columns.

    >>> arete.distributed.tensor.parallel.ColwiseParallel().output_layouts
    (Shard(dim=-1),)
    """

    def __init__(self, *, input_layouts: Optional[Placement] = None, output_layouts: Optional[Placement] = None,
                 use_local_output: bool = True) -> None:
        self.input_layouts, self.output_layouts = (input_layouts or Replicate(),), (output_layouts or Shard(-1),)
        self.use_local_output = use_local_output

    def _apply(self, module: nn.Module, mesh: DeviceMesh) -> None:
        if isinstance(module, nn.Linear):
            self._spread(module, "weight", mesh, Shard(0))
            self._spread(module, "bias", mesh, Shard(0))
        elif isinstance(module, nn.Embedding):
            self._spread(module, "weight", mesh, Shard(1))
        else:
            raise NotImplementedError("ColwiseParallel currently only support nn.Linear and nn.Embedding!")
        here, there = self.input_layouts[0], self.output_layouts[0]
        is_linear = isinstance(module, nn.Linear)
        module.register_forward_pre_hook(lambda m, args: (_move(args[0], mesh, here, Replicate(), partial=is_linear), *args[1:]))
        total = module.out_features if is_linear else module.embedding_dim

        def after(m: Any, args: tuple, out: Any) -> Any:
            of_all = total if isinstance(there, Shard) and there.dim in (-1, out.dim() - 1) else None
            return _shown(_move(out, mesh, Shard(-1), there, total=total), mesh, there, self.use_local_output, of_all)

        module.register_forward_hook(after)


class RowwiseParallel(ParallelStyle):
    """A Linear of which each process has some inputs, or an Embedding of which it has some rows.

    >>> arete.distributed.tensor.parallel.RowwiseParallel().input_layouts
    (Shard(dim=-1),)
    """

    def __init__(self, *, input_layouts: Optional[Placement] = None, output_layouts: Optional[Placement] = None,
                 use_local_output: bool = True) -> None:
        self.input_layouts, self.output_layouts = (input_layouts or Shard(-1),), (output_layouts or Replicate(),)
        self.use_local_output = use_local_output

    def _apply(self, module: nn.Module, mesh: DeviceMesh) -> None:
        here, there = self.input_layouts[0], self.output_layouts[0]
        if isinstance(module, nn.Linear):
            self._spread(module, "weight", mesh, Shard(1))
            self._spread(module, "bias", mesh, Replicate())
            if isinstance(there, Shard):
                _sums_gradient(module, "bias", mesh)

            def forward(x: Any) -> Any:
                terms = F.linear(_move(x, mesh, here, Shard(-1)), module.weight)
                y = _move(terms, mesh, Partial(), there)
                return _shown(y if module.bias is None else y + module.bias, mesh, there, self.use_local_output)

            if isinstance(there, Shard) and there.dim in (-1,):
                raise NotImplementedError("RowwiseParallel: results spread along their last dimension")
        elif isinstance(module, nn.Embedding):
            rows = module.num_embeddings
            self._spread(module, "weight", mesh, Shard(0))
            (n, _), (first, _) = part_of((rows, 1), mesh, (Shard(0),))
            if module.max_norm is not None:
                raise NotImplementedError("RowwiseParallel: an Embedding with max_norm")
            if module.padding_idx is not None and not first <= module.padding_idx < first + n:
                padding = None
            else:
                padding = None if module.padding_idx is None else module.padding_idx - first

            def forward(x: Any) -> Any:
                x = _move(x, mesh, Replicate() if isinstance(here, Shard) and here.dim == -1 else here, Replicate())
                elsewhere = (x < first) | (x >= first + n)
                y = F.embedding((x - first).masked_fill(elsewhere, 0), module.weight, padding)
                y = _move(y.masked_fill(elsewhere.unsqueeze(-1), 0.0), mesh, Partial(), there)
                return _shown(y, mesh, there, self.use_local_output)
        else:
            raise NotImplementedError("RowwiseParallel currently only support nn.Linear and nn.Embedding!")
        module.forward = forward  # type: ignore[method-assign]


class SequenceParallel(ParallelStyle):
    """A normalization, or dropout, of which each process computes a part of the sequence: inputs and results are spread along
    `sequence_dim`.

    >>> arete.distributed.tensor.parallel.SequenceParallel().sequence_sharding
    Shard(dim=1)
    """

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        self.sequence_sharding, self.use_local_output = Shard(sequence_dim), use_local_output

    def __repr__(self) -> str:
        return f"SequenceParallel(sequence_dim={self.sequence_sharding.dim}, use_local_output={self.use_local_output})"

    def _apply(self, module: nn.Module, mesh: DeviceMesh) -> None:
        for name in list(module._parameters):
            self._spread(module, name, mesh, Replicate())
            _sums_gradient(module, name, mesh)
        where = self.sequence_sharding
        # A DTensor that is placed otherwise is cut; plain tensors are parts of the sequence.
        module.register_forward_pre_hook(lambda m, args: (_move(args[0], mesh, where, where), *args[1:]))
        module.register_forward_hook(lambda m, args, out: _shown(out, mesh, where, self.use_local_output))


Layouts = Union[Placement, Sequence[Optional[Placement]], None]


def _listed(layouts: Layouts) -> Optional[tuple]:
    return None if layouts is None else (layouts,) if isinstance(layouts, Placement) else tuple(layouts)


class PrepareModuleInput(ParallelStyle):
    """Places the inputs of a module otherwise; None: what is no tensor, or stays. They are DTensors then, with `use_local_output` plain
    tensors of this process' part.

    >>> S, R = arete.distributed.tensor.Shard(1), arete.distributed.tensor.Replicate()
    >>> arete.distributed.tensor.parallel.PrepareModuleInput(input_layouts=S, desired_input_layouts=R).input_layouts
    (Shard(dim=1),)
    """

    def __init__(self, *, input_layouts: Layouts = None, desired_input_layouts: Layouts = None, input_kwarg_layouts: Optional[dict] = None,
                 desired_input_kwarg_layouts: Optional[dict] = None, use_local_output: bool = False) -> None:
        self.input_layouts, self.desired_input_layouts = _listed(input_layouts), _listed(desired_input_layouts)
        self.input_kwarg_layouts, self.desired_input_kwarg_layouts = input_kwarg_layouts or {}, desired_input_kwarg_layouts or {}
        if len(self.input_layouts or ()) != len(self.desired_input_layouts or ()):
            raise AssertionError("input_layouts and desired_input_layouts should have same length!")
        if self.input_kwarg_layouts.keys() != self.desired_input_kwarg_layouts.keys():
            raise AssertionError("input_kwarg_layouts and desired_input_kwarg_layouts should have the same names!")
        self.use_local_output = use_local_output

    def _apply(self, module: nn.Module, mesh: DeviceMesh) -> None:
        def before(m: Any, args: tuple, kwargs: dict) -> tuple:
            if self.input_layouts is not None:
                if len(args) != len(self.input_layouts):
                    raise ValueError("module inputs and input_layouts should have same length!")
                args = tuple(self._placed(x, mesh, h, t) for x, h, t in zip(args, self.input_layouts, self.desired_input_layouts))
            here, there = self.input_kwarg_layouts, self.desired_input_kwarg_layouts
            kwargs = {k: self._placed(x, mesh, here.get(k), there.get(k)) for k, x in kwargs.items()}
            return args, kwargs

        module.register_forward_pre_hook(before, with_kwargs=True)

    def _placed(self, x: Any, mesh: DeviceMesh, here: Optional[Placement], there: Optional[Placement]) -> Any:
        if here is None or not isinstance(x, _C.Tensor):
            return x
        total = None
        if isinstance(x, DTensor) and isinstance(there, Shard):
            total = x.shape[there.dim]
        elif isinstance(there, Shard) and not isinstance(here, Shard):
            total = x.shape[there.dim]
        return _shown(_move(x, mesh, here, there), mesh, here if there is None else there, self.use_local_output, total)


class PrepareModuleOutput(ParallelStyle):
    """Places the results of a module otherwise."""

    def __init__(self, *, output_layouts: Layouts, desired_output_layouts: Layouts, use_local_output: bool = True) -> None:
        self.output_layouts, self.desired_output_layouts = _listed(output_layouts) or (), _listed(desired_output_layouts) or ()
        self.use_local_output = use_local_output
        if len(self.output_layouts) != len(self.desired_output_layouts):
            raise AssertionError("output_layouts and desired_output_layouts should have same length!")

    def _apply(self, module: nn.Module, mesh: DeviceMesh) -> None:
        def after(m: Any, args: tuple, out: Any) -> Any:
            every = out if isinstance(out, tuple) else (out,)
            if len(every) != len(self.output_layouts):
                raise ValueError("module outputs and output_layouts should have same length!")
            moved = tuple(_shown(_move(x, mesh, h, t), mesh, t, self.use_local_output)
                          for x, h, t in zip(every, self.output_layouts, self.desired_output_layouts))
            return moved if isinstance(out, tuple) else moved[0]

        module.register_forward_hook(after)


class PrepareModuleInputOutput(ParallelStyle):
    """Both; `use_local_input` changes nothing, as there."""

    def __init__(self, *, input_layouts: Layouts = None, desired_input_layouts: Layouts = None, input_kwarg_layouts: Optional[dict] = None,
                 desired_input_kwarg_layouts: Optional[dict] = None, use_local_input: bool = False, output_layouts: Layouts = None,
                 desired_output_layouts: Layouts = None, use_local_output: bool = True) -> None:
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts, desired_input_layouts=desired_input_layouts, input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts, use_local_output=use_local_input)
        self.prepare_module_output = PrepareModuleOutput(output_layouts=output_layouts, desired_output_layouts=desired_output_layouts,
                                                         use_local_output=use_local_output)

    def _apply(self, module: nn.Module, mesh: DeviceMesh) -> None:
        self.prepare_module_input._apply(module, mesh)
        self.prepare_module_output._apply(module, mesh)


def parallelize_module(module: nn.Module, device_mesh: Optional[DeviceMesh] = None,
                       parallelize_plan: Union[ParallelStyle, dict, None] = None, *, src_data_rank: Optional[int] = 0) -> nn.Module:
    """Spreads a module over a mesh of one dimension as a style says, or modules below it as a dictionary of styles by their names does, in
    which `*` stands for one name and `?` for a letter; names of no module are left out with a warning. Then make the
    optimizer; `fully_shard` over another dimension of the mesh comes after it.

    >>> dist = arete.distributed
    >>> P = dist.tensor.parallel
    >>> dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    >>> net = nn.Sequential(nn.Linear(2, 4), nn.GELU(), nn.Linear(4, 2))
    >>> plan = {"0": P.ColwiseParallel(), "2": P.RowwiseParallel()}
    >>> net = P.parallelize_module(net, dist.init_device_mesh("cpu", (1,)), plan)
    >>> net[0].weight.placements, net(arete.ones(1, 2)).shape
    ((Shard(dim=0),), Size([1, 2]))
    >>> dist.destroy_process_group()
    """
    device_mesh = DeviceMesh._innermost() if device_mesh is None else device_mesh
    if device_mesh is None:
        raise ValueError("parallelize_module: the mesh is missing")
    if device_mesh.ndim != 1:
        raise ValueError(f"parallelize_module wants a mesh of one dimension, as mesh[\"tp\"], got {device_mesh}")
    if parallelize_plan is None:
        return module
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan.src_data_rank = src_data_rank
        parallelize_plan._apply(module, device_mesh)
        return module
    if not isinstance(parallelize_plan, dict):
        raise TypeError(f"Expect Union[ParallelStyle, Dict[str, ParallelStyle]] for parallelize_plan, {type(parallelize_plan)} found!")
    for path, style in parallelize_plan.items():
        found = [module] if path == "" else _below(module, path.split("."))
        if not found:
            warnings.warn(f"parallelize_module: there is no module of the name {path!r}: its style is left out", stacklevel=2)
        for m in found:
            parallelize_module(m, device_mesh, style, src_data_rank=src_data_rank)
    return module


def _below(module: nn.Module, path: list) -> list:
    found = [m for name, m in module.named_children() if fnmatch.fnmatch(name, path[0])]
    return found if len(path) == 1 else [inner for m in found for inner in _below(m, path[1:])]
