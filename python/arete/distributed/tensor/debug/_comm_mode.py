"""Which collectives a program calls, counted by modules."""
from __future__ import annotations

import collections
import json
import re
from typing import Any, Optional

from .... import _C, ops
from ....nn.modules.module import register_module_forward_pre_hook, register_module_full_backward_pre_hook
from ....overrides import TorchFunctionMode
from ..._functional_collectives import watching
from ...failures import flight_record
from .._dtensor import DTensor

__all__ = ["CommDebugMode"]

# What the flight recorder calls what functional collectives are noted as, and its calls by torch's names of operators: of several tensors,
# and of one.
_RECORDED = {"all_gather_into_tensor": "all_gather", "reduce_scatter_tensor": "reduce_scatter", "all_to_all_single": "all_to_all",
             "shard_dim_alltoall": "all_to_all"}
_OPERATORS = {"all_reduce": ("allreduce_",) * 2, "all_gather": ("allgather_", "_allgather_base_"),
              "reduce_scatter": ("reduce_scatter_", "_reduce_scatter_base_"), "all_to_all": ("alltoall_", "alltoall_base_"),
              "broadcast": ("broadcast_",) * 2, "gather": ("gather_",) * 2, "scatter": ("scatter_",) * 2, "reduce": ("reduce_",) * 2}
_TRIVIAL = frozenset("detach t view reshape to transpose as_strided view_as contiguous clone".split())


def _counts() -> dict:
    return {"forward": collections.defaultdict(int), "backward": collections.defaultdict(int)}


class CommDebugMode(TorchFunctionMode):
    """A block in which the collectives that this process calls are counted: those of DTensors and `_functional_collectives` as operators of
    `ops.c10d_functional`, others, of `DistributedDataParallel` and `fully_shard`, too, as those of `ops.c10d`; in all, and by the module
    that runs, forward and backward. Functions of DTensors are listed that the program calls, not those of backward passes.

    >>> dist = arete.distributed
    >>> dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    >>> x = dist.tensor.distribute_tensor(arete.ones(2), dist.init_device_mesh("cpu", (1,)), [dist.tensor.Shard(0)])
    >>> with dist.tensor.debug.CommDebugMode() as mode:
    ...     y = x.full_tensor()
    >>> {str(name): n for name, n in mode.get_comm_counts().items()}, mode.get_total_counts()
    ({'c10d_functional.all_gather_into_tensor': 1}, 1)
    >>> dist.destroy_process_group()
    """

    def __init__(self) -> None:
        super().__init__()
        self.comm_counts: dict = collections.defaultdict(int)
        self.comm_module_counts: dict = {}
        self._clear()

    def _clear(self) -> None:
        self.comm_counts.clear()
        self.comm_module_counts.clear()
        self.comm_module_counts["Global"] = _counts()
        self._modules: dict = {"Global": {"depth": 0}}  # by names, in the order in which they ran first
        self._names: dict = {}  # of modules, by identity
        self._running = ["Global"]
        self._backward: Optional[str] = None
        self._parameters: dict = {}
        self._sharding: dict = {}
        self._operations: dict = collections.defaultdict(list)
        self._pending: collections.Counter = collections.Counter()  # functional ones that the recorder has, too

    def __enter__(self) -> "CommDebugMode":
        self._clear()
        self._seen = max((e["record_id"] for e in flight_record()["entries"]), default=0)
        watching.append(self)
        self._handles = [register_module_forward_pre_hook(self._begin), register_module_full_backward_pre_hook(self._begin_backward)]
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        try:
            self._look()
        except RuntimeError:
            if error[0] is None:  # else the program's own error is the one to see
                raise
        finally:
            watching.remove(self)
            for handle in self._handles:
                handle.remove()

    # ---- modules

    def _name_of(self, module: Any) -> str:
        if id(module) not in self._names:
            root = type(module).__name__
            for path, inner in module.named_modules():
                self._names.setdefault(id(inner), (f"{root}.{path}" if path else root, inner))  # which lives as long
        return self._names[id(module)][0]

    def _begin(self, module: Any, inputs: Any) -> None:
        if _C._passes_under_way():  # computed again for the pass backward
            return
        self._look()
        name = self._name_of(module)
        if name not in self._modules:
            self._modules[name] = {"depth": len(self._running), "module_type": str(type(module)).strip("<>"), "parameters": {},
                                   "parent": self._running[-1]}
        for key, p in module._parameters.items():
            if p is None:
                continue
            self._parameters.setdefault(name, {})[key] = p.data
            if isinstance(p, DTensor):
                self._sharding[f"{name}.{key}"] = p.placements
                self._modules[name]["parameters"][key] = str(p.placements)
        self._running.append(name)

        def end(*_: Any) -> None:  # after the module's own hooks
            handle.remove()
            try:
                self._look()
            finally:
                self._running.pop()

        handle = module.register_forward_hook(end, always_call=True)

    def _begin_backward(self, module: Any, gradients: Any) -> None:
        self._look()
        self._backward = self._name_of(module)

    # ---- calls

    def _count(self, operator: Any) -> None:
        self.comm_counts[operator] += 1
        backward = bool(_C._passes_under_way())
        name: Optional[str] = self._backward or "Global" if backward else self._running[-1]
        while name is not None:
            self.comm_module_counts.setdefault(name, _counts())["backward" if backward else "forward"][operator] += 1
            name = self._modules.get(name, {}).get("parent")

    def _note(self, name: str) -> None:
        self._pending[_RECORDED.get(name, name)] += 1
        self._count(getattr(ops._dtensor if name == "shard_dim_alltoall" else ops.c10d_functional, name))

    def _look(self) -> None:
        """Counts what the flight recorder has had since the last time, which remembers 2048 calls."""
        if self not in watching:
            return
        new = [e for e in flight_record()["entries"] if e["record_id"] > self._seen]
        if new and new[0]["record_id"] > self._seen + 1:
            raise RuntimeError("CommDebugMode: more than 2048 collectives were called between two looks (where modules begin and end, and "
                               "get_comm_counts()); the first of them are forgotten")
        for e in new:
            self._seen, kind = e["record_id"], e["operation"]
            if self._pending[kind] > 0:
                self._pending[kind] -= 1
            elif kind in _OPERATORS:
                sizes = e["output_sizes"] if kind == "all_gather" else e["input_sizes"]
                self._count(getattr(ops.c10d, _OPERATORS[kind][len(sizes) == 1]))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        spread = [a for a in args if isinstance(a, DTensor)]
        self._operations[self._running[-1]].append({
            "name": getattr(func, "__name__", str(func)), "input_shape": [tuple(x.shape) for x in spread],
            "input_sharding": [x.placements for x in spread], "device_mesh": str(spread[0].device_mesh) if spread else ""})
        return func(*args, **(kwargs or {}))

    # ---- what was found

    def get_total_counts(self) -> int:
        """How many collectives were called."""
        self._look()
        return sum(self.comm_counts.values())

    def get_comm_counts(self) -> dict:
        """How many of each."""
        self._look()
        return self.comm_counts

    def get_parameter_info(self) -> dict:
        """The parameters of each module that has run, by names."""
        return self._parameters

    def get_sharding_info(self) -> dict:
        """How those are placed that are spread over processes."""
        return self._sharding

    def _shown(self, name: str, noise_level: int) -> list:
        """The functions of a module: of DTensors (1), all but trivial ones (2), all (3)."""
        return [o for o in self._operations.get(name, ()) if noise_level > 2 or noise_level > 0 and o["name"] not in _TRIVIAL
                and (noise_level > 1 or o["input_shape"])]

    def generate_comm_debug_tracing_table(self, noise_level: int = 3) -> str:
        """A text of modules and collectives (0), with placements of parameters and functions of DTensors (1), of plain tensors (2) and
        trivial ones (3), too."""
        lines = []
        for name, facts in self._modules.items():
            indent = "    " * facts["depth"]
            lines.append(f"{indent}{name}")
            if noise_level > 0 and "module_type" in facts:
                lines.append(f"{indent}*module type: {facts['module_type']}")
                if facts["parameters"]:
                    lines.append(f"{indent}*Parameter List")
                    lines += [f"{indent} *{key}: {placements}" for key, placements in facts["parameters"].items()]
            counts = self.comm_module_counts.get(name, _counts())
            shown = self._shown(name, noise_level)
            for title, found, operations in (("FORWARD PASS", counts["forward"], shown), ("BACKWARD PASS", counts["backward"], [])):
                if found or operations:
                    lines.append(f"{indent}  {title}")
                    lines += [f"\033[1;33m{indent}    *{operator}: {n}\033[0m" for operator, n in found.items()]
                for o in operations:
                    lines.append(f"\033[1;33m{indent}    **{o['name']}\033[0m")
                    if o["input_shape"]:
                        lines += [f"\033[1;31m{indent}      {what}: {o[key]}\033[0m" for what, key in (
                            ("shape", "input_shape"), ("sharding", "input_sharding"), ("device mesh", "device_mesh"))]
        return "\n".join(lines) + "\n"

    def log_comm_debug_tracing_table_to_file(self, file_name: str = "comm_mode_log.txt", noise_level: int = 3) -> None:
        """Writes that text without colours."""
        with open(file_name, "w") as file:
            file.write(re.sub(r"\x1b\[[0-9;]*m", "", self.generate_comm_debug_tracing_table(noise_level)))

    def generate_json_dump(self, file_name: str = "comm_mode_log.json", noise_level: int = 3) -> None:
        """Writes the same as JSON: modules, each with its children."""

        def said(name: str) -> dict:
            facts, counts = self._modules[name], self.comm_module_counts.get(name, _counts())
            more = noise_level > 0
            return {"fqn": name, "module_type": facts.get("module_type", "") if more else "",
                    "parameters": [list(p) for p in facts.get("parameters", {}).items()] if more else [],
                    "children": [said(child) for child, of in self._modules.items() if of.get("parent") == name],
                    "collectives_forward": [[str(k), n] for k, n in counts["forward"].items()],
                    "collectives_backward": [[str(k), n] for k, n in counts["backward"].items()],
                    "operations_forward": [{k: str(v) if k != "input_shape" else list(map(str, v)) for k, v in o.items()}
                                           for o in self._shown(name, noise_level)]}

        with open(file_name, "w") as file:
            json.dump(said("Global"), file, indent=4)

    def __repr__(self) -> str:
        return f"CommDebugMode(get_total_counts()={self.get_total_counts()})"
