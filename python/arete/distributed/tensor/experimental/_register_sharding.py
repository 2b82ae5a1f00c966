"""Operators that programs define (arete.library), computed part by part as a rule of the program says."""
from __future__ import annotations

import math
from typing import Any, Callable, Optional, Sequence, Union

from .... import _C, _operators
from ...._library import DEFINITIONS
from ....autograd import Function
from ....utils import _pytree
from ...device_mesh import DeviceMesh
from .._dtensor import DTensor, Spec, _with_history, spread_over
from .._parts import _OfAllParts, check_plain
from ..placement_types import Placement, Replicate, Shard

__all__ = ["register_sharding"]


def register_sharding(op: Union[Any, list]) -> Callable:
    """A decorator for a rule of an operator that arete.library has defined, or of several: the rule is called with the operator's
    arguments, and gives pairs of placements along one dimension of a mesh, of the results and of the arguments that go with them (None for
    what is no tensor). Along each dimension of the mesh the pair is taken for which the fewest bytes lie otherwise, the first of equals;
    tensors come to lie as it says, and the operator is called with the parts. What the operator writes to has to lie so already: ValueError
    if no pair says so. NotImplementedError for other operators, whose rules are known.

    >>> from arete.distributed.tensor import Replicate, Shard, distribute_tensor
    >>> @arete.library.custom_op("doc::rowsum", mutates_args=())
    ... def rowsum(x: arete.Tensor) -> arete.Tensor:
    ...     return x.sum(1)
    >>> @arete.distributed.tensor.experimental.register_sharding(arete.ops.doc.rowsum.default)
    ... def rule(x):
    ...     return [([Replicate()], [Replicate()]), ([Shard(0)], [Shard(0)])]
    >>> dist = arete.distributed
    >>> dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    >>> rowsum(distribute_tensor(arete.ones(2, 3), dist.init_device_mesh("cpu", (1,)), [Shard(0)])).placements
    (Shard(dim=0),)
    >>> dist.destroy_process_group()
    """
    definitions = []
    for one in op if isinstance(op, (list, tuple)) else [op]:
        name = str(getattr(one, "_qualname", one))
        if name not in DEFINITIONS:
            raise NotImplementedError(f"register_sharding: {name} is no operator that arete.library has defined; how others compute part "
                                      "by part is known")
        definitions.append(DEFINITIONS[name])

    def register(rule: Callable) -> Callable:
        for definition in definitions:
            definition.sharded = lambda args, kwargs, definition=definition: _by_rule(definition, rule, args, kwargs)
        return rule

    return register


def _by_rule(definition: Any, rule: Callable, args: tuple, kwargs: dict) -> Any:
    leaves, form = _pytree.tree_flatten((args, kwargs))
    leaves = [_with_history(a) for a in leaves]
    mesh = next(a for a in leaves if isinstance(a, DTensor)).device_mesh
    for k, a in enumerate(leaves):
        if isinstance(a, DTensor) and a.device_mesh != mesh:
            raise ValueError(f"{definition.name}: the tensors are on different meshes")
        check_plain(definition.name, a)
        if isinstance(a, _C.Tensor):
            leaves[k] = spread_over(a, mesh)
    args, kwargs = _pytree.tree_unflatten(leaves, form)
    pairs = [(list(results), list(inputs)) for results, inputs in rule(*args, **kwargs)]
    for _, inputs in pairs:
        if len(inputs) != len(leaves) or any(isinstance(a, DTensor) != isinstance(p, Placement) for a, p in zip(leaves, inputs)):
            raise ValueError(f"{definition.name}: its rule gives placements {inputs} for {len(leaves)} arguments; there must be one for "
                             "each tensor, and None for what is none")
    if not pairs:
        raise ValueError(f"{definition.name}: its rule allows no placements")
    written = _written(definition, args, kwargs, leaves)
    chosen = []
    for d in range(mesh.ndim):
        possible = [pair for pair in pairs if all(pair[1][k] == leaves[k].placements[d] for k in written)]
        if not possible:
            raise ValueError(f"{definition.name}: it writes to {', '.join(definition.changes)}, and its rule has no placements for tensors "
                             f"that lie as {[leaves[k].placements for k in written]}: redistribute() them before")
        chosen.append(min(possible, key=lambda pair: _moved(leaves, pair[1], d)))
    local = [_part(a, mesh, chosen, k) if isinstance(a, DTensor) else a for k, a in enumerate(leaves)]
    args, kwargs = _pytree.tree_unflatten(local, form)
    result = definition(*args, **kwargs)
    several = isinstance(result, (tuple, list))
    results = list(result) if several else [] if result is None else [result]
    whole = _whole_sizes(definition, leaves, form, mesh, chosen) if results else None
    if any(len(outputs) != len(results) for outputs, _ in chosen):
        raise ValueError(f"{definition.name}: it has {len(results)} results, and its rule gives placements of others")
    made = []
    for k, y in enumerate(results):
        places = tuple(outputs[k] for outputs, _ in chosen)
        sizes = list(y.shape) if whole is None else list(whole[k])
        if whole is None:
            for d, p in enumerate(places):
                if isinstance(p, Shard):
                    sizes[p.dim] *= mesh.size(d)
        alike = [mesh.size(d) for d, (outputs, _) in enumerate(chosen) if isinstance(places[d], Replicate) and _sums(outputs)]
        if alike and y.requires_grad:
            y = _Alike.apply(y, math.prod(alike))
        made.append(DTensor._of(y, Spec(mesh, places, _C.Size(sizes))))
    return type(result)(made) if several else made[0] if made else None


class _Alike(Function):
    """A result that all have alike, beside one that is in parts: each gives its share of the gradient, which is summed up."""

    @staticmethod
    def forward(ctx: Any, y: Any, count: int) -> Any:
        ctx.count = count
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple:
        return g / ctx.count, None


def _sums(outputs: Sequence) -> bool:
    """Whether gradients of what is whole are sums over the processes."""
    return not all(isinstance(p, Replicate) for p in outputs)


def _written(definition: Any, args: tuple, kwargs: dict, leaves: Sequence) -> list:
    """The places of the tensors to which the operator writes."""
    given = definition.signature.bind(*args, **kwargs).arguments
    tensors = {id(t) for name in definition.changes for t in _pytree.tree_leaves(given.get(name))}
    return [k for k, a in enumerate(leaves) if isinstance(a, DTensor) and id(a) in tensors]


def _moved(leaves: Sequence, inputs: Sequence, d: int) -> int:
    """How many bytes lie otherwise along a dimension of the mesh."""
    return sum(max(a.nbytes, 1) for a, p in zip(leaves, inputs) if isinstance(a, DTensor) and a.placements[d] != p)


def _part(x: DTensor, mesh: DeviceMesh, chosen: list, k: int) -> Any:
    wanted = [inputs[k] for _, inputs in chosen]
    own = x.redistribute(placements=wanted).to_local()
    # What is whole where results are not has the gradient of all of them.
    sums = [mesh.get_group(d) for d, (outputs, _) in enumerate(chosen) if isinstance(wanted[d], Replicate) and _sums(outputs)]
    return _OfAllParts.apply(own, sums) if sums and own.requires_grad and _C.is_grad_enabled() else own


def _whole_sizes(definition: Any, leaves: list, form: Any, mesh: DeviceMesh, chosen: list) -> Optional[list]:
    """Of the results, where parts are not equal."""
    even = all(a.shape[p.dim] % mesh.size() == 0 for k, a in enumerate(leaves) if isinstance(a, DTensor)
               for p in (inputs[k] for _, inputs in chosen) if isinstance(p, Shard))
    if even:
        return None
    if definition.fake is None:
        raise NotImplementedError(f"{definition.name}: of unequal parts the sizes of results are known by register_fake() alone")
    meta = [_operators.empty(tuple(a.shape), dtype=a.dtype, device="meta") if isinstance(a, DTensor) else a for a in leaves]
    args, kwargs = _pytree.tree_unflatten(meta, form)
    result = definition(*args, **kwargs)
    return [y.shape for y in (result if isinstance(result, (tuple, list)) else [result])]
