"""FullyShardedDataParallel: fully_shard() for modules that a policy names, with torch's older words."""
from __future__ import annotations

import contextlib
import warnings
from typing import Any, Callable, Iterable, Iterator, Optional

from ... import _C, nn
from ..._grad_mode import no_grad
from ...nn.utils import clip_grad_norm_
from ...utils._pytree import tree_leaves, tree_map
from .. import distributed_c10d as c10d
from ..checkpoint import state_dict as states
from ..device_mesh import DeviceMesh
from ..tensor._dtensor import DTensor, own_values
from ._fully_shard import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from .api import (BackwardPrefetch, CPUOffload, FullOptimStateDictConfig, FullStateDictConfig, LocalOptimStateDictConfig,
                  LocalStateDictConfig, MixedPrecision, ShardedOptimStateDictConfig, ShardedStateDictConfig, ShardingStrategy,
                  StateDictSettings, StateDictType)
from .api import OptimStateDictConfig as OptimStateDictConfig, StateDictConfig as StateDictConfig
from .wrap import wrapped_by

__all__ = ["FullyShardedDataParallel", "OptimStateKeyType"]

_WRAPPED = "_fsdp_wrapped_module"
_CONFIGS = {StateDictType.FULL_STATE_DICT: (FullStateDictConfig, FullOptimStateDictConfig),
            StateDictType.LOCAL_STATE_DICT: (LocalStateDictConfig, LocalOptimStateDictConfig),
            StateDictType.SHARDED_STATE_DICT: (ShardedStateDictConfig, ShardedOptimStateDictConfig)}


class OptimStateKeyType:
    """How states of optimizers name parameters."""

    PARAM_NAME = "PARAM_NAME"
    PARAM_ID = "PARAM_ID"


def _keep_whole_precision(module: nn.Module, kinds: tuple, ignored: set, shard: Callable) -> None:
    """Modules of these classes are sharded alone without mixed precision, see float32, and give results of their inputs' dtype."""
    kept = [m for m in module.modules() if isinstance(m, kinds) and m not in ignored and not isinstance(m, FSDPModule)]
    if kept:
        kinds_kept = sorted({type(m).__name__ for m in kept})
        warnings.warn("Both mixed precision and an auto_wrap_policy were specified to FSDP, where the wrapped module has submodules of "
                      f"type:\n{kinds_kept}\nThese modules will be wrapped as separate FSDP instances with mixed precision disabled.",
                      stacklevel=3)
    for m in kept:
        shard(m)
        narrow: list = []  # dtypes of the inputs of calls under way

        def widen(_: nn.Module, args: tuple, narrow: list = narrow) -> Any:
            dtypes = [t.dtype for t in tree_leaves(args) if isinstance(t, _C.Tensor) and t.is_floating_point()]
            narrow.append(next((d for d in dtypes if d != _C.float32), None))
            return tree_map(lambda t: t.float() if isinstance(t, _C.Tensor) and t.is_floating_point() else t, args)

        def restore(_: nn.Module, args: tuple, result: Any, narrow: list = narrow) -> Any:
            dtype = narrow.pop()
            return result if dtype is None else tree_map(
                lambda t: t.to(dtype) if isinstance(t, _C.Tensor) and t.is_floating_point() else t, result)

        m.register_forward_pre_hook(widen)
        m.register_forward_hook(restore)


def _check_group(model: nn.Module, group: Any) -> None:
    """States are spread over the network's own processes, which programs may name."""
    wrappers = FullyShardedDataParallel.fsdp_modules(model)
    meshes = [w.device_mesh for w in wrappers[:1]]
    if group is not None and not any(group._ranks == mesh.get_group(d)._ranks for mesh in meshes for d in range(mesh.ndim)):
        raise NotImplementedError("FullyShardedDataParallel: the group of the network is the group of its state, got that of "
                                  f"{group._ranks}")


def _mesh_of(group: Any, strategy: ShardingStrategy, mesh: Optional[DeviceMesh], device: str) -> DeviceMesh:
    hybrid = strategy in (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)
    if mesh is None and isinstance(group, tuple):
        if not hybrid:
            raise ValueError("a pair of process groups is for HYBRID_SHARD")
        shard, replicas = group
        mesh = DeviceMesh.from_group([replicas, shard], device)
    if mesh is None:
        if hybrid:
            raise NotImplementedError("FullyShardedDataParallel: HYBRID_SHARD needs device_mesh, of two dimensions, or a pair of groups")
        mesh = DeviceMesh.from_group(c10d._of(group), device)
    if strategy is ShardingStrategy.NO_SHARD and mesh.ndim == 1:
        ranks = mesh.mesh.reshape(-1, 1)
        return DeviceMesh(device, ranks)
    if mesh.ndim != 1 + hybrid and strategy is not ShardingStrategy.NO_SHARD:
        raise ValueError(f"{strategy} needs a mesh of {1 + hybrid} dimensions, got {mesh}")
    return mesh


class FullyShardedDataParallel(nn.Module):
    """A network of which each process keeps a part of the parameters; see fully_shard(), which does the work for the modules that
    `auto_wrap_policy` names, and for the whole. Parameters are always those of the module (`use_orig_params`), and are gathered one group
    ahead in any case (`limit_all_gathers`, `forward_prefetch` change nothing; with `backward_prefetch=None` none is gathered ahead in the
    backward pass). `sync_module_states`: all get the values of rank 0.

    >>> dist = arete.distributed
    >>> dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    >>> policy = dist.fsdp.wrap.ModuleWrapPolicy({nn.Linear})
    >>> net = dist.fsdp.FullyShardedDataParallel(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)), auto_wrap_policy=policy)
    >>> net(arete.ones(1, 2)).sum().backward()
    >>> list(net.state_dict())
    ['0.weight', '0.bias', '1.weight', '1.bias']
    >>> dist.destroy_process_group()
    """

    def __init__(self, module: nn.Module, process_group: Any = None, sharding_strategy: Optional[ShardingStrategy] = None,
                 cpu_offload: Optional[CPUOffload] = None, auto_wrap_policy: Any = None,
                 backward_prefetch: Optional[BackwardPrefetch] = BackwardPrefetch.BACKWARD_PRE,
                 mixed_precision: Optional[MixedPrecision] = None, ignored_modules: Optional[Iterable] = None,
                 param_init_fn: Optional[Callable] = None, device_id: Any = None, sync_module_states: bool = False,
                 forward_prefetch: bool = False, limit_all_gathers: bool = True, use_orig_params: bool = False,
                 ignored_states: Optional[Iterable] = None, device_mesh: Optional[DeviceMesh] = None) -> None:
        super().__init__()
        strategy = ShardingStrategy.FULL_SHARD if sharding_strategy is None else sharding_strategy
        if not isinstance(strategy, ShardingStrategy):
            raise TypeError(f"sharding_strategy must be a ShardingStrategy, got {strategy!r}")
        ignored_things = list(ignored_states or ())
        ignored = {m for top in [*(ignored_modules or ()), *(t for t in ignored_things if isinstance(t, nn.Module))] for m in top.modules()}
        ignored_params = {p for m in ignored for p in m.parameters()} | {t for t in ignored_things if not isinstance(t, nn.Module)}
        mp = mixed_precision or MixedPrecision()
        if mp.keep_low_precision_grads:
            raise NotImplementedError("FullyShardedDataParallel: keep_low_precision_grads is not supported")
        device = _C.device("cuda", device_id) if isinstance(device_id, int) else _C.device(device_id) if device_id is not None else None
        first = next((p for p in module.parameters() if not p.is_meta), None)
        kind = device.type if device is not None else first.device.type if first is not None else "cpu"
        if device is not None and device.type == "cuda" and device.index is not None:
            _C._cuda.set_device(device.index, True)
        mesh = _mesh_of(process_group, strategy, device_mesh, kind)
        metas = [m for m in module.modules() if any(p.is_meta for p in m._parameters.values() if p is not None) and m not in ignored]
        for m in metas:
            if param_init_fn is not None:
                param_init_fn(m)
            else:
                m.to_empty(device=device or kind, recurse=False)
                m.reset_parameters()
        if sync_module_states:
            values = [t.detach() for t in [*module.parameters(), *module.buffers()]]
            if device is not None and any(t.device.type != device.type for t in values):
                module.to(device)
                values = [t.detach() for t in [*module.parameters(), *module.buffers()]]
            for d in range(mesh.ndim):
                _C._distributed.broadcast_coalesced(mesh.get_group(d), values, 0)
        if mp.buffer_dtype is not None:
            for m in module.modules():
                for name, b in m._buffers.items():
                    if b is not None and b.is_floating_point():
                        m._buffers[name] = b.to(mp.buffer_dtype)
        reshards = strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.HYBRID_SHARD)
        offload: OffloadPolicy = CPUOffloadPolicy() if cpu_offload is not None and cpu_offload.offload_params else OffloadPolicy()

        def options(casts: bool) -> dict:
            policy = MixedPrecisionPolicy(mp.param_dtype, mp.reduce_dtype, None, casts)
            return {"mesh": mesh, "reshard_after_forward": reshards, "mp_policy": policy, "offload_policy": offload,
                    "ignored_params": ignored_params}

        if auto_wrap_policy is not None:
            if mixed_precision is not None:
                _keep_whole_precision(module, tuple(mp._module_classes_to_ignore), ignored,
                                      lambda m: fully_shard(m, **{**options(False), "mp_policy": MixedPrecisionPolicy()}))
            for m, own in wrapped_by(module, auto_wrap_policy, ignored, {}):
                if own:
                    raise NotImplementedError(f"FullyShardedDataParallel: settings of single modules are not supported: {sorted(own)}")
                if not isinstance(m, (FSDPModule, FullyShardedDataParallel)):
                    fully_shard(m, **options(mp.cast_forward_inputs))
        self._modules[_WRAPPED] = module if isinstance(module, FSDPModule) else fully_shard(module, **options(mp.cast_root_forward_inputs))
        if backward_prefetch is None:
            for m in module.modules():
                if isinstance(m, FSDPModule) and m._fsdp_state.group is not None:
                    m.set_modules_to_backward_prefetch([])
        self.sharding_strategy, self.device_mesh = strategy, mesh
        self._settings = StateDictSettings(StateDictType.FULL_STATE_DICT, FullStateDictConfig(), FullOptimStateDictConfig())
        self._register_state_dict_hook(_in_its_type)
        self._register_load_state_dict_pre_hook(_with_its_names, with_module=True)

    @property
    def module(self) -> nn.Module:
        """What was wrapped."""
        return self._modules[_WRAPPED]

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._modules[_WRAPPED], name)

    def __getitem__(self, key: Any) -> Any:
        return self.module[key]  # type: ignore[index]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def check_is_root(self) -> bool:
        """Whether no other wrapper is around this one; known after the first forward pass."""
        return self.module._fsdp_state.is_root

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """A block of passes whose gradients are only summed up."""
        self.module.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self.module.set_requires_gradient_sync(True)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Any:
        """As nn.utils.clip_grad_norm_() of all parameters."""
        return clip_grad_norm_(self.parameters(), max_norm, norm_type)

    def register_comm_hook(self, state: object, hook: Callable) -> None:
        """Refused."""
        raise NotImplementedError("FullyShardedDataParallel.register_comm_hook is not supported; reduce_dtype says in which dtype "
                                  "gradients travel")

    def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator:
        """Under the module's names."""
        for name, p in super().named_parameters(prefix, recurse, remove_duplicate):
            yield name.replace(_WRAPPED + ".", ""), p

    def named_buffers(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator:
        """Under the module's names."""
        for name, b in super().named_buffers(prefix, recurse, remove_duplicate):
            yield name.replace(_WRAPPED + ".", ""), b

    # ---- of whole networks

    @staticmethod
    def fsdp_modules(module: nn.Module, root_only: bool = False) -> list:
        """The wrappers in a network, or its outermost ones."""
        found = [m for m in module.modules() if isinstance(m, FullyShardedDataParallel)]
        inner = {m for w in found for m in w.module.modules()}
        return [m for m in found if not root_only or m not in inner]

    @staticmethod
    @contextlib.contextmanager
    def summon_full_params(module: nn.Module, recurse: bool = True, writeback: bool = True, rank0_only: bool = False,
                           offload_to_cpu: bool = False, with_grads: bool = False) -> Iterator[None]:
        """A block in which parameters are whole (with `rank0_only` in rank 0); what it wrote stays if `writeback`."""
        if with_grads:
            raise NotImplementedError("summon_full_params: with_grads is not supported; take p.grad.full_tensor()")
        if writeback and rank0_only:
            raise NotImplementedError("writeback=True and rank0_only=True is not supported, as model parameter shapes will be different "
                                      "across ranks, and writing to them can lead to inconsistencies across ranks when the context is "
                                      "exited.")
        modules = module.modules() if recurse else [module, getattr(module, "module", module)]
        found = {id(m._fsdp_state): m._fsdp_state for m in modules if isinstance(m, FSDPModule) and m._fsdp_state.group is not None}
        shown = []
        for state in found.values():
            state.group.reshard()
            for i, p in enumerate(state.parameters()):
                shard, full = own_values(p), state.group.gathered(i)
                if not rank0_only or c10d.get_rank() == 0:
                    shown.append((p, shard, state.group.first_row(i)))
                    p.data = full.cpu() if offload_to_cpu else full
        try:
            yield
        finally:
            for p, shard, first in shown:
                if writeback:
                    with no_grad():
                        shard.copy_(own_values(p).narrow(0, first, shard.shape[0]))
                p.data = shard
            for state in found.values():
                state.rebind()

    @staticmethod
    def set_state_dict_type(module: nn.Module, state_dict_type: StateDictType, state_dict_config: Any = None,
                            optim_state_dict_config: Any = None) -> StateDictSettings:
        """What state dictionaries of a network's wrappers are from now on; gives what they were."""
        kinds = _CONFIGS[state_dict_type]
        model, optim = state_dict_config or kinds[0](), optim_state_dict_config or kinds[1]()
        for config, kind in ((model, kinds[0]), (optim, kinds[1])):
            if type(config) is not kind:
                raise RuntimeError(f"{state_dict_type} goes with a {kind.__name__}, got {type(config).__name__}")
            if not getattr(config, "_use_dtensor", True):
                raise NotImplementedError(f"{kind.__name__}: what is spread over processes is a DTensor, and no ShardedTensor")
        before = FullyShardedDataParallel.get_state_dict_type(module)
        for m in FullyShardedDataParallel.fsdp_modules(module):
            m._settings = StateDictSettings(state_dict_type, model, optim)
        return before

    @staticmethod
    def get_state_dict_type(module: nn.Module) -> StateDictSettings:
        """What they are."""
        wrappers = FullyShardedDataParallel.fsdp_modules(module)
        if not wrappers:
            raise RuntimeError("the module has no FullyShardedDataParallel in it")
        return wrappers[0]._settings

    @staticmethod
    @contextlib.contextmanager
    def state_dict_type(module: nn.Module, state_dict_type: StateDictType, state_dict_config: Any = None,
                        optim_state_dict_config: Any = None) -> Iterator[None]:
        """A block in which they are so."""
        before = FullyShardedDataParallel.set_state_dict_type(module, state_dict_type, state_dict_config, optim_state_dict_config)
        try:
            yield
        finally:
            FullyShardedDataParallel.set_state_dict_type(module, before.state_dict_type, before.state_dict_config,
                                                         before.optim_state_dict_config)

    @staticmethod
    def optim_state_dict(model: nn.Module, optim: Any, optim_state_dict: Optional[dict] = None, group: Any = None) -> dict:
        """The optimizer's state under the parameters' names, in the network's type."""
        if optim_state_dict is not None:
            raise NotImplementedError("optim_state_dict: states other than the optimizer's own are not supported")
        _check_group(model, group)
        settings = FullyShardedDataParallel.get_state_dict_type(model)
        config = settings.optim_state_dict_config
        full = settings.state_dict_type is StateDictType.FULL_STATE_DICT
        return states.get_optimizer_state_dict(model, optim, options=states.StateDictOptions(
            full_state_dict=full, cpu_offload=full and config.offload_to_cpu and getattr(config, "rank0_only", False)))

    @staticmethod
    def full_optim_state_dict(model: nn.Module, optim: Any, optim_input: Any = None, rank0_only: bool = True, group: Any = None) -> dict:
        """The optimizer's state with whole tensors, in rank 0. The optimizer knows its parameters, so that `optim_input` has no say."""
        _check_group(model, group)
        return states.get_optimizer_state_dict(model, optim, options=states.StateDictOptions(full_state_dict=True, cpu_offload=rank0_only))

    @staticmethod
    def sharded_optim_state_dict(model: nn.Module, optim: Any, group: Any = None) -> dict:
        """The optimizer's state with DTensors."""
        _check_group(model, group)
        return states.get_optimizer_state_dict(model, optim)

    @staticmethod
    def optim_state_dict_to_load(model: nn.Module, optim: Any, optim_state_dict: Optional[dict], is_named_optimizer: bool = False,
                                 load_directly: bool = False, group: Any = None) -> dict:
        """What optim.load_state_dict() takes, from such a state, which only rank 0 need have where the network's type says `rank0_only`;
        with `load_directly` it does."""
        if is_named_optimizer:
            raise NotImplementedError("optim_state_dict_to_load: named optimizers are not supported")
        _check_group(model, group)
        if getattr(FullyShardedDataParallel.get_state_dict_type(model).optim_state_dict_config, "rank0_only", False):
            optim_state_dict = states.state_from_rank0(model, [optim], optim_state_dict)
        local = states.local_optimizer_state(model, optim, optim_state_dict)
        if load_directly:
            optim.load_state_dict(local)
        return local

    @staticmethod
    def rekey_optim_state_dict(optim_state_dict: dict, optim_state_key_type: str, model: nn.Module, optim_input: Any = None,
                               optim: Any = None) -> dict:
        """A state of an optimizer under the parameters' names instead of their numbers, or under numbers instead of names. Parameters are
        numbered as `optim`, or `optim_input` (parameters or groups of them), has them, else as the module. ValueError for names and
        numbers that the module has not.

        >>> net = nn.Linear(2, 1)
        >>> optim = arete.optim.SGD(net.parameters(), 0.1)
        >>> FSDP = arete.distributed.fsdp.FullyShardedDataParallel
        >>> FSDP.rekey_optim_state_dict(optim.state_dict(), "PARAM_NAME", net)["param_groups"][0]["params"]
        ['weight', 'bias']
        """
        if optim_state_key_type not in (OptimStateKeyType.PARAM_NAME, OptimStateKeyType.PARAM_ID):
            raise ValueError(f"rekey_optim_state_dict: a type of keys is a member of OptimStateKeyType, got {optim_state_key_type!r}")
        if optim is not None:
            numbered = [p for group in optim.param_groups for p in group["params"]]
        elif optim_input is not None:
            numbered = [p for x in optim_input for p in (x["params"] if isinstance(x, dict) else (x,))]
        else:
            numbered = list(model.parameters())
        names = {id(p): name.replace(_WRAPPED + ".", "") for name, p in model.named_parameters()}
        by_name = optim_state_key_type == OptimStateKeyType.PARAM_NAME
        keys = dict(enumerate(names.get(id(p)) for p in numbered))
        keys = keys if by_name else {name: i for i, name in keys.items()}

        def renamed(key: Any) -> Any:
            if isinstance(key, str) is by_name:
                return key
            if keys.get(key) is None:
                raise ValueError(f"rekey_optim_state_dict: the module has no parameter {key!r}")
            return keys[key]

        return {"state": {renamed(k): v for k, v in optim_state_dict["state"].items()},
                "param_groups": [{**group, "params": [renamed(k) for k in group["params"]]} for group in optim_state_dict["param_groups"]]}

    @staticmethod
    def shard_full_optim_state_dict(full_optim_state_dict: dict, model: nn.Module, optim_input: Any = None, optim: Any = None) -> dict:
        """What optim.load_state_dict() takes, from a state with whole tensors; `optim` is needed, which knows its parameters."""
        if optim is None:
            raise NotImplementedError("shard_full_optim_state_dict: give the optimizer as optim, not its parameters as optim_input")
        return states.local_optimizer_state(model, optim, full_optim_state_dict)


def _in_its_type(module: FullyShardedDataParallel, destination: dict, prefix: str, metadata: Any) -> None:
    """After the module's hooks, which have put DTensors in the place of shards."""
    settings = module._settings
    config = settings.state_dict_config
    inner = prefix + _WRAPPED + "."
    keep = not (getattr(config, "rank0_only", False) and c10d.get_rank() != 0)
    for key in [k for k in destination if k.startswith(inner)]:
        value = destination.pop(key)
        if isinstance(value, DTensor) and settings.state_dict_type is StateDictType.FULL_STATE_DICT:
            value = value.full_tensor()
        elif isinstance(value, DTensor) and settings.state_dict_type is StateDictType.LOCAL_STATE_DICT:
            value = value.to_local()
        if keep:
            offload = config.offload_to_cpu and isinstance(value, _C.Tensor)
            destination[prefix + key[len(inner):]] = value.cpu() if offload else value


def _with_its_names(module: FullyShardedDataParallel, state_dict: dict, prefix: str, *rest: Any) -> None:
    for key in [k for k in state_dict if k.startswith(prefix) and not k.startswith(prefix + _WRAPPED + ".")]:
        state_dict[f"{prefix}{_WRAPPED}.{key[len(prefix):]}"] = state_dict.pop(key)
