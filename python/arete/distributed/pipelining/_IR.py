"""Networks cut into stages by what their forward() calls."""
from __future__ import annotations

import copy
import dataclasses
import enum
import inspect
import operator
from typing import Any, Callable, Optional

from ... import _C, fx, nn
from ..._grad_mode import no_grad
from ...random import fork_rng
from ...utils import _pytree as pytree
from ...utils.flop_counter import FlopCounterMode
from .stage import PipelineStage, build_stage

__all__ = ["Pipe", "PipeInfo", "SplitPoint", "pipe_split", "pipeline", "split_by_cost"]

_Tensor = _C.Tensor


class SplitPoint(enum.Enum):
    """Where a module of `pipeline(split_spec=)` begins or ends a stage."""

    BEGINNING = 1
    END = 2


class _Watch:
    """Who hears of pipe_split(): a tracer, or the run that finds the modules which call it."""

    tracer: Any = None
    calls: Any = None


def pipe_split() -> None:
    """Within forward(), says that a stage ends here; elsewhere it does nothing.

    >>> arete.distributed.pipelining.pipe_split()
    """
    if _Watch.calls is not None:
        _Watch.calls()
    elif _Watch.tracer is not None:
        _Watch.tracer.create_proxy("call_function", pipe_split, (), {})


fx.node.has_side_effect(pipe_split)


class _Tracer(fx.Tracer):
    """Looks into modules that hold a cut, and into containers; all others are calls."""

    def __init__(self, opened: set, spec: dict) -> None:
        super().__init__()
        self._opened, self._spec = opened, spec

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name not in self._opened and type(m) is not nn.Sequential

    def call_module(self, m: nn.Module, forward: Callable, args: tuple, kwargs: dict) -> Any:
        where = self._spec.get(self.path_of_module(m))
        if where is SplitPoint.BEGINNING:
            pipe_split()
        result = super().call_module(m, forward, args, kwargs)
        if where is SplitPoint.END:
            pipe_split()
        return result


class _Values(fx.Interpreter):
    """Runs a graph, and notes what each node gives and how much it computes."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.values: dict = {}
        self.flops: dict = {}

    def run_node(self, n: Any) -> Any:
        with FlopCounterMode(display=False) as counter:
            value = super().run_node(n)
        # A number for each element counts what is no product.
        self.values[n.name], self.flops[n.name] = value, counter.get_total_flops() + (value.numel() if isinstance(value, _Tensor) else 0)
        return value


def _on_meta(value: Any) -> Any:
    return fx.node.map_aggregate(value, lambda v: v.to("meta") if isinstance(v, _Tensor) else v)


def _copy_on_meta(module: nn.Module) -> nn.Module:
    memo: dict = {}
    for p in module.parameters():
        memo[id(p)] = nn.Parameter(p.detach().to("meta"), requires_grad=p.requires_grad)
    for b in module.buffers():
        memo[id(b)] = b.detach().to("meta")
    return copy.deepcopy(module, memo)


def _modules_with_cuts(module: nn.Module, args: tuple, kwargs: dict, spec: dict) -> set:
    """The names of the modules within which a stage ends; runs the network."""
    names = {m: name for name, m in module.named_modules()}
    opened = {""}
    for path in spec:
        parts = path.split(".")
        opened |= {".".join(parts[:i]) for i in range(1, len(parts))}
    stack: list = []
    hooks = []
    for m in names:
        hooks.append(m.register_forward_pre_hook(lambda m, _: stack.append(names[m])))
        hooks.append(m.register_forward_hook(lambda m, _, out: stack.pop() and None))
    _Watch.calls = lambda: opened.update(stack)
    try:
        with no_grad():
            module(*args, **kwargs)
    finally:
        _Watch.calls = None
        for h in hooks:
            h.remove()
    return opened


@dataclasses.dataclass
class PipeInfo:
    """What `build_stage()` is told of a network in stages."""

    graph: Any
    num_stages: int
    has_loss_and_backward: bool = False


class Pipe(nn.Module):
    """A network in stages, which `pipeline()` makes. Called, it runs them all in this process."""

    def __init__(self, split_gm: Any, stages: list, bind: Callable) -> None:
        super().__init__()
        self.split_gm = split_gm
        self.num_stages = len(stages)
        self._bind = bind
        for k, stage in enumerate(stages):
            self.add_module(f"submod_{k}", stage)

    def forward(self, *args: Any, **kwargs: Any) -> tuple:
        """All stages here, one after the other; a tuple, of one result, too."""
        values = self._bind(args, kwargs)
        for k in range(self.num_stages):
            values = self.get_stage_module(k)(*values)
            values = values if isinstance(values, tuple) else (values,)
        return values

    def get_stage_module(self, stage_idx: int) -> nn.Module:
        """A stage: the network's own modules, under their names."""
        if not 0 <= stage_idx < self.num_stages:
            raise ValueError(f"Invalid stage index {stage_idx}!")
        return getattr(self, f"submod_{stage_idx}")

    def info(self) -> PipeInfo:
        return PipeInfo(self.split_gm.graph, self.num_stages)

    def build_stage(self, stage_index: int, device: Any, group: Any = None) -> PipelineStage:
        """Moves a stage to a device, for a schedule."""
        return build_stage(self.get_stage_module(stage_index), stage_index, self.info(), device, group)

    def print_readable(self) -> None:
        for k in range(self.num_stages):
            self.get_stage_module(k).print_readable()


def split_by_cost(num_stages: int) -> Callable:
    """A `split_policy` that cuts a network into stages of about equal time: as few as can be of the operations, forward, are in the one
    that has most of them. Values that live across a cut travel, so it is between the modules that the network calls, and within
    Sequential ones.

    >>> dist = arete.distributed
    >>> net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 64), nn.Linear(64, 4))
    >>> pipe = dist.pipelining.pipeline(net, (arete.ones(2, 4),), split_policy=dist.pipelining.split_by_cost(2))
    >>> [len(list(pipe.get_stage_module(k).parameters())) // 2 for k in range(2)]
    [3, 1]
    """
    if num_stages < 1:
        raise ValueError(f"split_by_cost: {num_stages} stages")

    def policy(gm: Any) -> Any:
        graph = gm.graph
        nodes = [n for n in graph.nodes if n.op not in ("placeholder", "output", "get_attr")]
        heavy = [n for n in nodes if n.op == "call_module"] or nodes
        if len(heavy) < num_stages:
            raise ValueError(f"split_by_cost: {len(heavy)} modules are not cut into {num_stages} stages")
        # Costs of what comes from one of them up to the next; what is before the first is its own.
        costs, at = [0] * len(heavy), -1
        places = {n: k for k, n in enumerate(heavy)}
        for n in nodes:
            at = places.get(n, at)
            costs[max(at, 0)] += n.meta["flops"]
        for first in _cuts(costs, num_stages):
            with graph.inserting_before(heavy[first]):
                graph.call_function(pipe_split)
        return gm

    return policy


def _cuts(costs: list, parts: int) -> list:
    """Where parts begin but for the first, so that the largest sum of a part is as small as can be."""
    sums = [0]
    for c in costs:
        sums.append(sums[-1] + c)
    n = len(costs)
    best = [sums[:]]  # of the first so many, in so many parts
    where: list = []
    for k in range(1, parts):
        row, cut = [float("inf")] * (n + 1), [0] * (n + 1)
        for end in range(k + 1, n + 1):
            for start in range(k, end):
                largest = max(best[-1][start], sums[end] - sums[start])
                if largest < row[end]:
                    row[end], cut[end] = largest, start
        best.append(row)
        where.append(cut)
    cuts, end = [], n
    for cut in reversed(where):
        end = cut[end]
        cuts.append(end)
    return cuts[::-1]


def _stages_of(gm: Any, root: nn.Module, values: dict) -> tuple[list, list]:
    """Modules of what is between the cuts, and the names of the first one's inputs."""
    stage_of: dict = {}
    number, count = 0, 0
    for n in gm.graph.nodes:
        if n.op == "call_function" and n.target is pipe_split:
            # Cuts before anything, after everything or beside each other end no stage.
            number += 1 if count else 0
            count = 0
            continue
        stage_of[n] = number
        if n.op == "call_function" and n.target is operator.getitem and not isinstance(values[n.args[0].name], _Tensor):
            stage_of[n] = stage_of[n.args[0]]  # parts of a tuple are there with it
        count += n.op not in ("placeholder", "get_attr", "output")
    inputs = [n for n in gm.graph.nodes if n.op == "placeholder"]
    for n in inputs:
        stage_of[n] = 0
    output = next(n for n in gm.graph.nodes if n.op == "output")
    number = max((s for n, s in stage_of.items() if n.op not in ("placeholder", "get_attr", "output")), default=0)
    stage_of[output] = number

    def travels(n: Any) -> bool:
        return n.op != "get_attr" and isinstance(values[n.name], _Tensor)

    last_use: dict = {}
    for n in gm.graph.nodes:
        for used in n.all_input_nodes if n in stage_of else ():
            last_use[used] = max(last_use.get(used, 0), stage_of[n])
    stages = []
    carried = inputs
    for k in range(number + 1):
        graph, made = fx.Graph(), {}
        for n in carried:
            placeholder = graph.placeholder(n.target if k == 0 else n.name)
            if k == 0 and n.args:
                placeholder.args = tuple(n.args)
            made[n] = placeholder

        def value_of(n: Any) -> Any:
            if n not in made:
                if n.op == "get_attr":
                    made[n] = graph.node_copy(n)
                elif any(isinstance(v, _Tensor) for v in pytree.tree_leaves(values[n.name])):
                    raise NotImplementedError(f"pipeline: {n} crosses the end of a stage and holds tensors; cut where single tensors do")
                else:
                    return values[n.name]  # a number, as it was with the example
            return made[n]

        for n in gm.graph.nodes:
            if stage_of.get(n) == k and n.op not in ("placeholder", "output", "get_attr"):
                made[n] = graph.node_copy(n, value_of)
        if k == number:
            graph.output(fx.node.map_arg(output.args[0], value_of))
        else:
            carried = [n for n in gm.graph.nodes if n in stage_of and stage_of[n] <= k < last_use.get(n, 0) and travels(n)]
            out = tuple(made[n] for n in carried)
            graph.output(out[0] if len(out) == 1 else out)
        stages.append(fx.GraphModule(root, graph))
    return stages, inputs


def _part_buffers(stages: list) -> None:
    """Stages that read one buffer have one each, as they would in processes of their own."""
    seen, modules = set(), set()
    for stage in stages:
        for m in stage.modules():
            for name, b in m._buffers.items():
                if b is not None and b in seen and m not in modules:
                    m._buffers[name] = b.clone()
        seen.update(stage.buffers())
        modules.update(stage.modules())


def _check_parameters(root: nn.Module, stages: list) -> None:
    names = {p: name for name, p in root.named_parameters()}
    owner: dict = {}
    for k, stage in enumerate(stages):
        for p in stage.parameters():
            if owner.setdefault(p, k) != k:
                raise NotImplementedError(f"pipeline: {names.get(p, 'a parameter')} is used in stages {owner[p]} and {k}; a parameter is "
                                          "one stage's, as nobody would add up its gradients")


def pipeline(module: nn.Module, mb_args: tuple, mb_kwargs: Optional[dict] = None, split_spec: Optional[dict] = None,
             split_policy: Optional[Callable] = None) -> Pipe:
    """Cuts a network into stages: where its forward() calls `pipe_split()`, before or after the modules that `split_spec` names, or as
    `split_policy` says, which gets a graph and inserts calls of `pipe_split`. `mb_args` and `mb_kwargs` are those of a microbatch;
    numbers that are computed from their shapes are taken for fixed.

    The modules around a cut must be recordable by `fx`; others are called as they are. Values that a later stage wants pass through
    those in between.

    >>> P = arete.distributed.pipelining
    >>> net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    >>> pipe = P.pipeline(net, (arete.ones(1, 2),), split_spec={"2": P.SplitPoint.BEGINNING})
    >>> [list(pipe.get_stage_module(k).state_dict()) for k in range(pipe.num_stages)]
    [['0.weight', '0.bias'], ['2.weight', '2.bias']]
    """
    if split_spec is not None and split_policy is not None:
        raise ValueError("Cannot specify both `split_spec` and `split_policy`. Please use only one of them.")
    spec, kwargs = split_spec or {}, mb_kwargs or {}
    for path, where in spec.items():
        module.get_submodule(path)
        if not isinstance(where, SplitPoint):
            raise ValueError(f"Unknown split point type: {where}")
    meta = _copy_on_meta(module)
    signature = inspect.signature(module.forward)
    tensors = {name: p.default for name, p in signature.parameters.items() if isinstance(p.default, _Tensor)}
    given = signature.bind(*mb_args, **kwargs)
    given.apply_defaults()
    args_on_meta, kwargs_on_meta = _on_meta(given.args), _on_meta(given.kwargs)
    with fork_rng():
        opened = _modules_with_cuts(meta, args_on_meta, kwargs_on_meta, spec)
    tracer = _Tracer(opened, spec)
    _Watch.tracer = tracer
    try:
        graph = tracer.trace(module)
    finally:
        _Watch.tracer = None
    inputs = [n for n in graph.nodes if n.op == "placeholder"]
    defaults: dict = {}
    wanted = False  # what follows: a tensor, which the text of a function cannot say, so that it cannot say defaults before it
    for n in reversed(inputs):
        default = n.args[0] if n.args else None
        if isinstance(default, fx.Node):
            n.args, wanted = (), True
            defaults[n.target] = tensors[n.target]
            graph.erase_node(default)
        elif n.args:
            defaults[n.target] = default
            n.args = () if wanted else n.args
    gm = fx.GraphModule(module, graph)
    for n in inputs:
        if str(n.target).startswith("*"):
            raise NotImplementedError("pipeline: forward() with *args or **kwargs is not cut")
    names = [n.target for n in inputs]

    def bind(args: tuple, kwargs: dict) -> tuple:
        given = dict(zip(names, args), **kwargs)
        if len(args) > len(names) or any(name not in names for name in given):
            raise TypeError(f"the network takes {names}")
        missing = [name for name in names if name not in given and name not in defaults]
        if missing:
            raise TypeError(f"the network wants {missing}, too")
        return tuple(given.get(name, defaults.get(name)) for name in names)

    with no_grad(), fork_rng():
        run = _Values(fx.GraphModule(meta, copy.deepcopy(graph)))
        run.run(*bind(args_on_meta, kwargs_on_meta))
    for n in graph.nodes:
        n.meta["flops"] = run.flops.get(n.name, 0)
    if split_policy is not None:
        gm = split_policy(gm)
    stages, _ = _stages_of(gm, module, run.values)
    if len(stages) > 1:
        _check_parameters(module, stages)
        _part_buffers(stages)
    return Pipe(gm, stages, bind)
