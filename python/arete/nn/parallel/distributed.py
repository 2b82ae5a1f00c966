"""DistributedDataParallel: each process has the same network and batches of its own, and all make the same steps."""
from __future__ import annotations

import copy
import dataclasses
import math
import weakref
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Optional

from ... import _C
from ... import distributed as dist
from ...distributed.algorithms.ddp_comm_hooks.default_hooks import _compress_hook
from ...distributed.algorithms.join import Join, Joinable, JoinHook
from ..modules import Embedding, EmbeddingBag, Module
from ..parameter import is_lazy
from ..utils.stateless import _swapped
from .scatter_gather import to_device, to_dtype

__all__ = ["DistributedDataParallel"]

_MB = 1024 * 1024
_REFUSED = ("delay_all_reduce_named_params", "param_to_hook_all_reduce")
# By the ids of parameters, the wrapper that exchanges their gradients, and keeps them.
_exchanged_by: weakref.WeakValueDictionary = weakref.WeakValueDictionary()


@dataclasses.dataclass
class _MixedPrecision:
    """`param_dtype`: what parameters and inputs are in passes forward and backward; `reduce_dtype`: in which gradients are summed (none:
    in `param_dtype`); `buffer_dtype`: what buffers become. None leaves them. Parameters, their gradients and the optimizer's state stay as
    they are. Of floating tensors only.
    """

    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None


def _step_own(p: Any) -> None:
    """The optimizers that a parameter has for the backward pass step, and its gradient goes."""
    for optimizer in p._in_backward_optimizers:
        optimizer.step()
    p.grad = None


class _Shadow(JoinHook):
    def __init__(self, ddp: "DistributedDataParallel", divide_by_initial_world_size: bool) -> None:
        self._ddp = ddp
        ddp._divides_by_all = divide_by_initial_world_size

    def main_hook(self) -> None:
        ddp = self._ddp
        ddp._shadows = True
        syncs = ddp._will_anybody_sync(False)
        if ddp.will_sync_module_buffers():
            ddp._sync_buffers()
        ddp.require_forward_param_sync = syncs
        if syncs:
            ddp.reducer.shadow()

    def post_hook(self, is_last_joiner: bool) -> None:
        ddp = self._ddp
        ddp._shadows = False
        ddp.reducer.set_divisor(ddp.process_group.size())
        _C._distributed.broadcast_coalesced(ddp.process_group, ddp._state(), ddp._common_rank(is_last_joiner))


class DistributedDataParallel(Module, Joinable):
    """A network whose gradients are the mean over the processes of a group, each of which calls it on batches of its own.

    Gradients are exchanged in buckets of `bucket_cap_mb` while the backward pass goes on, and are views into these afterwards.
    Parameters that a pass does not use are found in any case, so `find_unused_parameters` changes nothing. A gradient that the program
    keeps beyond `zero_grad()` stays as it is; with `gradient_as_bucket_view` it may be overwritten, and gradients have the same
    addresses in each pass. `device_mesh`, of one dimension,
    says the group. `static_graph`: it is an error if a pass uses other parameters than the first one did. `deterministic`:
    gradients are added in one order, whichever processes have them, so 1, 2 and 4 processes with equal micro-batches make the same bits.
    `mixed_precision`, a _MixedPrecision, computes with copies of parameters in another dtype.

    >>> dist = arete.distributed
    >>> dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    >>> net = nn.parallel.DistributedDataParallel(nn.Linear(2, 1, bias=False))
    >>> net(arete.ones(3, 2)).sum().backward()
    >>> net.module.weight.grad, list(net.state_dict())
    (tensor([[3., 3.]]), ['module.weight'])
    >>> dist.destroy_process_group()
    """

    def __init__(
        self, module: Module, device_ids: Optional[list] = None, output_device: Any = None, dim: int = 0, broadcast_buffers: bool = True,
        init_sync: bool = True, process_group: Any = None, bucket_cap_mb: Optional[float] = None, find_unused_parameters: bool = False,
        check_reduction: bool = False, gradient_as_bucket_view: bool = False, static_graph: bool = False,
        delay_all_reduce_named_params: Any = None, param_to_hook_all_reduce: Any = None, mixed_precision: Any = None,
        device_mesh: Any = None, skip_all_reduce_unused_params: bool = False, bucket_cap_mb_list: Optional[list] = None,
        deterministic: bool = False,
    ) -> None:
        Module.__init__(self)
        Joinable.__init__(self)
        given = locals()
        for name in _REFUSED:
            if given[name] is not None:
                raise NotImplementedError(f"DistributedDataParallel: {name} is not supported")
        if skip_all_reduce_unused_params:
            raise NotImplementedError("DistributedDataParallel: skip_all_reduce_unused_params is not supported")
        for name, sizes in (("bucket_cap_mb", bucket_cap_mb), ("bucket_cap_mb_list", bucket_cap_mb_list)):
            for n in [sizes] if isinstance(sizes, (int, float)) else sizes or ():
                if not 1 <= n * _MB < math.inf:
                    raise ValueError(f"{name} must be positive, of a byte at least and finite, but got {sizes}")
        if device_mesh is not None:
            if process_group is not None:
                raise RuntimeError("Cannot specify both process_group and device_mesh arguments.")
            if device_mesh.ndim != 1:
                raise RuntimeError(f"Only 1D device mesh is supported, but got {device_mesh}.")
            process_group = device_mesh.get_group()
        self.process_group = dist.distributed_c10d._of(process_group)
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", []))
        parameters = [p for name, p in module.named_parameters() if name not in ignored]
        if any(is_lazy(p) for p in parameters):
            raise RuntimeError("Modules with uninitialized parameters can't be used with `DistributedDataParallel`. Run a dummy forward "
                               "pass to correctly initialize the modules")
        if not any(p.requires_grad for p in parameters):
            raise RuntimeError("DistributedDataParallel is not needed when a module doesn't have any parameters that require a gradient.")
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError("device_ids can only be None or contain a single element.")
        devices = {p.device for p in parameters}
        types = {d.type for d in devices}
        if len(types) != 1:
            raise ValueError("DistributedDataParallel's input module must be on the same type of devices, but input module parameters "
                             f"locate in {sorted(types)}.")
        if len(devices) > 1 and types == {"cuda"}:
            raise NotImplementedError("DistributedDataParallel: a network on several GPUs of one process is not supported, but its "
                                      f"parameters are on {sorted(map(str, devices))}.")
        if (device_ids or output_device is not None) and (types == {"cpu"} or len(devices) > 1):
            raise ValueError("DistributedDataParallel device_ids and output_device arguments only work with single-device/multiple-device "
                             f"GPU modules or CPU modules, but got device_ids {device_ids}, output_device {output_device}, and module "
                             f"parameters {devices}.")
        self.device = next(iter(devices))
        self.device_type = self.device.type
        self.device_ids = [_index(d, self.device_type) for d in device_ids] if device_ids else None
        output_device = device_ids[0] if output_device is None and device_ids else output_device
        self.output_device = None if output_device is None else _index(output_device, self.device_type)
        self.is_multi_device_module = len(devices) > 1
        self.module = module
        self.dim = dim
        self.broadcast_buffers = broadcast_buffers
        self.find_unused_parameters = find_unused_parameters
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.static_graph = static_graph
        self.deterministic = deterministic
        self.parameters_to_ignore = ignored
        self.bucket_bytes_cap_list = [int(n * _MB) for n in bucket_cap_mb_list or ()]
        self.bucket_bytes_cap_default = bucket_cap_mb is None and not bucket_cap_mb_list
        self.bucket_bytes_cap = max(self.bucket_bytes_cap_list, default=int((25 if bucket_cap_mb is None else bucket_cap_mb) * _MB))
        self.require_backward_grad_sync = True
        self.require_forward_param_sync = True
        self._divides_by_all = True
        self.mixed_precision = mixed_precision
        if mixed_precision is not None:
            self._take_dtypes(mixed_precision)
        if init_sync:
            _C._distributed.check_same_parameters(self.process_group, [p for p in parameters if p.requires_grad])
            _C._distributed.broadcast_coalesced(self.process_group, self._state(), 0)
        self._make_reducer()

    def _make_reducer(self) -> None:
        named = [(name, p) for name, p in self.module.named_parameters() if name not in self.parameters_to_ignore]
        first = [min(_MB, self.bucket_bytes_cap)] if self.bucket_bytes_cap_default else []
        trained = [(name, p) for name, p in named if p.requires_grad]
        frozen = [p for _, p in named if not p.requires_grad]
        tables = {id(m.weight) for m in self.module.modules() if isinstance(m, (Embedding, EmbeddingBag)) and m.sparse}
        sparse = [i for i, (_, p) in enumerate(trained) if id(p) in tables]
        self.reducer = _C._distributed.Reducer([p for _, p in trained], [name for name, _ in trained], self.process_group,
                                               self.bucket_bytes_cap_list or [*first, self.bucket_bytes_cap], self.static_graph,
                                               self.gradient_as_bucket_view, frozen, self.deterministic, sparse)
        self._exchanged = [p for _, p in trained]
        _exchanged_by.update({id(p): self for p in self._exchanged})
        if any(getattr(p, "_steps_in_backward", False) for p in self._exchanged):
            self._step_after_exchange()
        mixed = self.mixed_precision
        reduced = mixed and (mixed.reduce_dtype or mixed.param_dtype)
        if reduced is not None and any(p.dtype != reduced for p in self._exchanged):
            group = self.process_group
            self.reducer.set_hook(lambda bucket: _compress_hook(reduced, group, bucket))

    def _step_after_exchange(self) -> None:
        """Of parameters that have optimizers for the backward pass (_apply_optimizer_in_backward): these wait for the exchange."""
        exchanged = self._exchanged  # without this object, which the reducer would keep

        def step() -> None:
            for p in exchanged:
                if p.grad is not None and getattr(p, "_steps_in_backward", False):
                    _step_own(p)

        self.reducer.set_after(step)

    # ---- other dtypes than those of parameters

    def _take_dtypes(self, mixed: Any) -> None:
        if not isinstance(mixed, _MixedPrecision):
            raise TypeError(f"DistributedDataParallel: mixed_precision must be a _MixedPrecision, got {type(mixed).__name__}")
        if mixed.buffer_dtype is not None:
            for b in self._buffers_of_module():
                if b.is_floating_point():
                    b.data = b.to(mixed.buffer_dtype)

    # ---- calls

    def prepare_forward(self) -> None:
        """What comes before a forward pass of the module: says whether the passes backward after it exchange gradients."""
        trains = _C.is_grad_enabled()
        syncs = trains and self.require_backward_grad_sync
        if self._join_config.enable and trains:
            self._say_that_it_is_there(syncs)
        if trains:
            self.reducer.prepare(syncs)
        if self.require_forward_param_sync and self.broadcast_buffers:
            self._sync_buffers()
        self.require_forward_param_sync = syncs

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        self.prepare_forward()
        if self.device_ids:
            device = _C.device(self.device_type, self.device_ids[0])
            inputs, kwargs = to_device(inputs, device), to_device(kwargs, device)
        dtype = self.mixed_precision and self.mixed_precision.param_dtype
        if dtype is None:
            return self.module(*inputs, **kwargs)
        inputs, kwargs = to_dtype((inputs, kwargs), dtype)
        # The gradients of copies are the parameters' own.
        copies = {name: p.to(dtype) for name, p in self.module.named_parameters()
                  if p.is_floating_point() and p.dtype != dtype and name not in self.parameters_to_ignore}
        with _swapped(self.module, copies, True, False):
            return self.module(*inputs, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """A block whose passes, forward and backward, only accumulate gradients; the next pass outside of it exchanges the sums."""
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state: Any, hook: Callable) -> None:
        """Exchanges gradients by `hook(state, bucket)`, which gives a future of the bucket's new values. Gradients are not divided
        before it."""
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        self.reducer.set_hook(lambda bucket: hook(state, bucket))

    def _register_builtin_comm_hook(self, comm_hook_type: Any) -> None:
        self.reducer.set_builtin_hook(comm_hook_type is dist.BuiltinCommHookType.FP16_COMPRESS)

    def _set_static_graph(self) -> None:
        if not self.static_graph:
            if self.reducer.rebuilt:
                raise RuntimeError("_set_static_graph should be called before training loop starts")
            self.static_graph = True
            self.reducer.set_static_graph()

    # ---- buffers

    def will_sync_module_buffers(self) -> bool:
        """Whether the next forward pass begins with the buffers of rank 0."""
        return self.require_forward_param_sync and self.broadcast_buffers and bool(self._buffers_of_module())

    def _buffers_of_module(self) -> list:
        return [b for name, b in self.module.named_buffers() if name not in self.parameters_to_ignore]

    def _state(self) -> list:
        parameters = [p for name, p in self.module.named_parameters() if name not in self.parameters_to_ignore]
        return parameters + self._buffers_of_module()

    def _sync_buffers(self) -> None:
        buffers = self._buffers_of_module()
        if buffers:
            # Rank 0 may have no more batches, and old buffers.
            source = self._common_rank(not self._shadows) if self._join_config.enable else 0
            _C._distributed.broadcast_coalesced(self.process_group, buffers, source)

    # ---- unequally many batches

    _shadows = False

    def join(self, divide_by_initial_world_size: bool = True, enable: bool = True, throw_on_early_termination: bool = False) -> Join:
        """A block in which processes may have unequally many batches: those that have no more answer the others' calls, and have the
        network of the last ones at its end. Gradients are divided by the number of all processes, or of those that are left."""
        return Join([self], enable, throw_on_early_termination, divide_by_initial_world_size=divide_by_initial_world_size)

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What a process without batches does."""
        return _Shadow(self, kwargs.get("divide_by_initial_world_size", True))

    @property
    def join_device(self) -> Any:
        return self.device

    @property
    def join_process_group(self) -> Any:
        return self.process_group

    def _number(self, value: float, op: dist.ReduceOp) -> float:
        number = _C.tensor([value], dtype=_C.float32, device=self.device)
        dist.all_reduce(number, op, self.process_group)
        return float(number[0])

    def _common_rank(self, is_candidate: bool) -> int:
        rank = int(self._number(self.process_group.rank() if is_candidate else -1, dist.ReduceOp.MAX))
        if rank < 0:
            raise ValueError("BUG! Expected rank_cond to be true for at least one process.")
        return rank

    def _will_anybody_sync(self, syncs: bool) -> bool:
        return self._number(float(syncs), dist.ReduceOp.SUM) > 0

    def _say_that_it_is_there(self, syncs: bool) -> None:
        work = Join.notify_join_context(self)
        self._will_anybody_sync(syncs)
        if work is not None and not self._divides_by_all:
            self.reducer.set_divisor(float(work.result()[0][0]))

    # ---- copies

    def __getstate__(self) -> dict:
        default = dist.group.WORLD
        if self.process_group is not default:
            raise RuntimeError("DDP Pickling/Unpickling are only supported when using DDP with the default process group. That is, when "
                               "you have called init_process_group and have not passed process_group argument to DDP constructor")
        attributes = copy.copy(self.__dict__)
        del attributes["process_group"], attributes["reducer"]
        return attributes

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        self.process_group = dist.distributed_c10d._of(None)
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self._make_reducer()

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module: Module, params_and_buffers_to_ignore: list) -> None:
        module._ddp_params_and_buffers_to_ignore = params_and_buffers_to_ignore

    def _get_ddp_logging_data(self) -> dict:
        named = self.module.named_parameters()
        parameters = [p for name, p in named if name not in self.parameters_to_ignore and p.requires_grad]
        sizes = [sum(parameters[i].nbytes for i in bucket) for bucket in self.reducer.buckets]
        return {
            "world_size": self.process_group.size(), "rank": self.process_group.rank(), "module_name": type(self.module).__name__,
            "backend_name": dist.get_backend(self.process_group), "num_parameter_tensors": len(parameters),
            "total_parameter_size_bytes": sum(p.nbytes for p in parameters), "bucket_cap_bytes": self.bucket_bytes_cap,
            "broadcast_buffers": self.broadcast_buffers, "find_unused_parameters": self.find_unused_parameters,
            "gradient_as_bucket_view": self.gradient_as_bucket_view, "static_graph": self.static_graph,
            "has_rebuilt_buckets": self.reducer.rebuilt > 0,
            "bucket_sizes": ", ".join(map(str, sizes)),
        }


def _index(device: Any, kind: str) -> int:
    if isinstance(device, int):
        return device
    device = _C.device(device)
    if device.index is not None:
        return device.index
    return _C._cuda.current_device() if kind == "cuda" else 0
