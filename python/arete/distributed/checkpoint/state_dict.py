"""States of modules and optimizers under the parameters' names, whichever wrappers are around them, whole or spread."""
from __future__ import annotations

import dataclasses
import re
from typing import Any, Iterable, Optional, Union

from ... import _C, _operators
from .. import distributed_c10d as c10d
from ..object_collectives import broadcast_object_list
from ..tensor._dtensor import DTensor, distribute_tensor

__all__ = ["StateDictOptions", "get_model_state_dict", "get_optimizer_state_dict", "get_state_dict", "local_optimizer_state",
           "set_model_state_dict", "set_optimizer_state_dict", "set_state_dict"]


@dataclasses.dataclass
class StateDictOptions:
    """`full_state_dict`: whole tensors in the place of DTensors; with `cpu_offload` in host memory, and in rank 0 alone.
    `keep_submodule_prefixes`: names of submodules' tensors are those that the model has for them, else, in get_model_state_dict() alone,
    their own.
    `ignore_frozen_params`: without parameters that need no gradient. `strict`: what is missing is an error. `broadcast_from_rank0`: what is
    set is what rank 0 has. `flatten_optimizer_state_dict`: states of optimizers in one dictionary."""

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


_WRAPPERS = re.compile(r"(^|\.)(_fsdp_wrapped_module|_orig_mod|_checkpoint_wrapped_module)\.")


def _clean(model: Any, name: str) -> str:
    """Without what wrappers add."""
    if type(model).__name__ == "DistributedDataParallel" and name.startswith("module."):
        name = name[len("module."):]
    while True:
        shorter = _WRAPPERS.sub(r"\1", name)
        if shorter == name:
            return name
        name = shorter


def _names(model: Any) -> dict:
    """The names of parameters, by identity."""
    return {id(p): _clean(model, name) for name, p in model.named_parameters()}


def _checked(options: Optional[StateDictOptions], submodules: Any = None, cuts_prefixes: bool = False) -> StateDictOptions:
    options = options or StateDictOptions()
    if not options.keep_submodule_prefixes and not cuts_prefixes:
        raise NotImplementedError("keep_submodule_prefixes=False is for get_model_state_dict() alone: give the submodule as the model")
    if submodules:
        raise NotImplementedError("states of optimizers for submodules: give the submodule as the model")
    if options.dsd_fqn_modifiers != "_fqn_modifiers":
        raise NotImplementedError("dsd_fqn_modifiers keeps its default: names of parameters are those that the model has")
    if options.broadcast_from_rank0 and not options.full_state_dict:
        raise ValueError("full_state_dict must be True when broadcast_from_rank0 is True.")
    return options


def _as_wanted(value: Any, options: StateDictOptions) -> Any:
    if options.full_state_dict and isinstance(value, _C.Tensor):  # of its own
        value = value.full_tensor() if isinstance(value, DTensor) else value.detach().clone()
    if isinstance(value, _C.Tensor) and options.cpu_offload:
        value = value.cpu()
    return value


def _is_elsewhere(options: StateDictOptions) -> bool:
    """Whether rank 0 alone has the result."""
    return options.full_state_dict and options.cpu_offload and c10d.is_initialized() and c10d.get_rank() != 0


def get_model_state_dict(model: Any, *, submodules: Any = None, options: Optional[StateDictOptions] = None) -> dict:
    """model.state_dict(), with the names that the bare model has, and DTensors where parameters are spread; of `submodules` what these
    have. All processes call it.

    >>> arete.distributed.checkpoint.state_dict.get_model_state_dict(nn.Linear(1, 2)).keys()
    dict_keys(['weight', 'bias'])
    """
    options = _checked(options, cuts_prefixes=True)
    prefixes = [_clean(model, f"{name}." if name else "") for name, m in model.named_modules() if m in submodules] if submodules else [""]
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad} if options.ignore_frozen_params else set()
    frozen = {_clean(model, name) for name in frozen}
    result = {}
    for name, value in _spread_state(model).items():
        name = _clean(model, name)
        within = [p for p in prefixes if name.startswith(p)]
        if name in frozen or not within:
            continue
        value = _as_wanted(value, options)
        if not options.keep_submodule_prefixes:
            name = name[len(max(within, key=len)):]
        if not _is_elsewhere(options):
            result[name] = value
    return result


def _spread_state(model: Any) -> dict:
    """model.state_dict() with DTensors, whatever a FullyShardedDataParallel would make of them."""
    wrappers = [m for m in model.modules() if hasattr(m, "_settings") and type(m).__name__ == "FullyShardedDataParallel"]
    if not wrappers:
        return model.state_dict()
    kind = type(wrappers[0])
    with kind.state_dict_type(model, type(wrappers[0]._settings.state_dict_type).SHARDED_STATE_DICT):
        return model.state_dict()


def _from_rank0(value: Any, shape: Any, dtype: Any, device: Any) -> Any:
    home = c10d._of(None)._home
    way = home if home.type == "cuda" else device  # NCCL alone takes no tensors of the host
    if c10d.get_rank() != 0:
        value = _operators.empty(tuple(shape), dtype=dtype, device=way)
    value = value.detach().to(device=way, dtype=dtype).contiguous()  # rank 0's may be of another dtype
    c10d.broadcast(value, 0)
    return value.to(device)


def _all_from_rank0(state: dict, own: dict) -> dict:
    """What rank 0 has in `state`, its tensors as `own` has them. What one process would stumble over all hear of first."""
    kinds = {name: (tuple(v.shape), v.dtype, isinstance(v, DTensor)) for name, v in state.items() if isinstance(v, _C.Tensor)}
    box = [kinds, {name: v for name, v in state.items() if name not in kinds}] if c10d.get_rank() == 0 else [None, None]
    broadcast_object_list(box, 0)
    kinds, result = box
    for name, (shape, _, is_spread) in kinds.items():
        if is_spread:
            raise ValueError(f"broadcast_from_rank0 takes whole tensors, and {name} of rank 0 is a DTensor")
        if isinstance(own.get(name), _C.Tensor) and tuple(own[name].shape) != shape:
            raise ValueError(f"size mismatch for {name}: rank 0 has {list(shape)}, the state {list(own[name].shape)}")
    for name, (shape, dtype, _) in kinds.items():
        like, device = own.get(name), c10d._of(None)._home
        if isinstance(like, _C.Tensor):
            dtype, device = like.dtype, device if like.is_meta else like.device
        result[name] = _from_rank0(state.get(name), shape, dtype, device)
    return result


def set_model_state_dict(model: Any, model_state_dict: dict, *, options: Optional[StateDictOptions] = None) -> Any:
    """Loads such a state, whole or spread in whatever way. All processes call it. Parameters on meta become those of the state."""
    options = _checked(options)
    own = _spread_state(model)
    if options.broadcast_from_rank0:
        model_state_dict = _all_from_rank0(model_state_dict, {_clean(model, name): value for name, value in own.items()})
    given = {name: model_state_dict[_clean(model, name)] for name in own if _clean(model, name) in model_state_dict}
    known = {_clean(model, name) for name in own}
    given.update((name, value) for name, value in model_state_dict.items() if name not in known)
    assign = any(isinstance(v, _C.Tensor) and v.is_meta for v in own.values())
    if assign:
        given = {name: _placed_as(value, own.get(name)) for name, value in given.items()}
    return model.load_state_dict(given, strict=options.strict, assign=assign)


def _placed_as(value: Any, like: Any) -> Any:
    """A whole value as a DTensor, where the parameter whose place it takes is one."""
    if not isinstance(like, DTensor) or isinstance(value, DTensor):
        return value
    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)


# ---- optimizers


def _optimizers(optimizers: Any) -> list:
    return list(optimizers) if isinstance(optimizers, (list, tuple)) else [optimizers]


def _fill_state(optimizer: Any) -> None:
    """Makes the state that the first step makes, as it is before this: a loaded state needs somewhere to go."""
    if optimizer.state:
        return
    parameters = [p for g in optimizer.param_groups for p in g["params"] if p.requires_grad]
    if any(p.grad is not None for p in parameters):
        raise RuntimeError("state_dict can only be used if the optimizer states are initialized (usually after one step() with gradients) "
                           "or gradients are None. For the later case, state_dict will fake the gradients as zero to initialize the "
                           "optimizer states. However, the gradients are not None.")
    for p in parameters:
        p.grad = _operators.zeros_like(p.detach())
    rates = [g["lr"] for g in optimizer.param_groups]
    for g in optimizer.param_groups:
        g["lr"] = _operators.zeros_like(g["lr"]) if isinstance(g["lr"], _C.Tensor) else 0.0
    optimizer.step()
    for g, lr in zip(optimizer.param_groups, rates):
        g["lr"] = lr
    optimizer.zero_grad(set_to_none=True)
    if not type(optimizer).__module__.startswith("arete.optim"):
        return  # nobody knows how others begin
    for g in optimizer.param_groups:
        for p in g["params"]:
            # The step has counted, decayed parameters and moved what does not begin with zero.
            state = optimizer.state[p] if p in optimizer.state else {}
            for k, v in state.items():
                if isinstance(v, _C.Tensor) and k != "master_param":
                    v.fill_({"mu_product": 1.0, "mu": 1.0, "eta": g["lr"], "step_size": g["lr"]}.get(k, 0.0))
                elif k == "step":
                    state[k] = 0


_init_optim_state = _fill_state  # by torch's name, which programs import


def get_optimizer_state_dict(model: Any, optimizers: Any, *, submodules: Any = None, options: Optional[StateDictOptions] = None) -> dict:
    """The optimizers' states under the parameters' names. An optimizer that has made no step gets the state of its beginning.

    >>> net = nn.Linear(1, 2)
    >>> state = arete.distributed.checkpoint.state_dict.get_optimizer_state_dict(net, arete.optim.Adam(net.parameters()))
    >>> sorted(state["state"]["bias"]), state["param_groups"][0]["params"]
    (['exp_avg', 'exp_avg_sq', 'step'], ['weight', 'bias'])
    """
    options = _checked(options, submodules)
    names, result = _names(model), {"state": {}, "param_groups": []}
    for optimizer in _optimizers(optimizers):
        _fill_state(optimizer)
        for group in optimizer.state_dict()["param_groups"]:
            result["param_groups"].append(dict(group))
        for group, out in zip(optimizer.param_groups, result["param_groups"][-len(optimizer.param_groups):]):
            for p in group["params"]:
                if id(p) not in names:
                    raise RuntimeError("the optimizer has a parameter that the model has not")
            out["params"] = [names[id(p)] for p in group["params"]]
            for p in group["params"]:
                if p in optimizer.state:
                    values = optimizer.state[p]
                    if isinstance(p, DTensor):
                        values = {k: p._spread_beside(v) for k, v in values.items()}
                    result["state"][names[id(p)]] = {k: _as_wanted(v, options) for k, v in values.items()}
    if _is_elsewhere(options):
        return {}
    return _flat(result) if options.flatten_optimizer_state_dict else result


def _flat(state: dict) -> dict:
    flat = {f"state.{name}.{k}": v for name, values in state["state"].items() for k, v in values.items()}
    for group in state["param_groups"]:
        for name in group["params"]:
            flat.update((f"param_groups.{name}.{k}", v) for k, v in group.items() if k != "params")
    return flat


def _nested(flat: dict, model: Any, optimizers: list) -> dict:
    names, state, groups = _names(model), {}, []
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            own = [names[id(p)] for p in group["params"]]
            values: dict = {"params": own}
            for k in group:
                key = f"param_groups.{own[0]}.{k}"
                if k != "params" and key in flat:
                    values[k] = flat[key]
            groups.append(values)
            for name in own:
                prefix = f"state.{name}."
                found = {key[len(prefix):]: v for key, v in flat.items() if key.startswith(prefix) and "." not in key[len(prefix):]}
                if found:
                    state[name] = found
    return {"state": state, "param_groups": groups}


def _part(value: Any, parameter: Any) -> Any:
    """This process' part, of a state that is whole or spread."""
    if isinstance(parameter, DTensor):
        return parameter._part_beside(value)
    return value.full_tensor() if isinstance(value, DTensor) else value


def local_optimizer_state(model: Any, optimizer: Any, state: dict) -> dict:
    """What optimizer.load_state_dict() takes, from a state under names."""
    names, result, number = _names(model), {"state": {}, "param_groups": []}, 0
    groups = {name: g for g in state["param_groups"] for name in g["params"]}
    for group in optimizer.param_groups:
        own = [names[id(p)] for p in group["params"]]
        given = next((groups[n] for n in own if n in groups), None)
        if given is None:
            raise RuntimeError(f"the state has no group of the parameter {own[0] if own else None}")
        result["param_groups"].append({**given, "params": list(range(number, number + len(own)))})
        for p, name in zip(group["params"], own):
            if name in state["state"]:
                result["state"][number] = {k: _part(v, p) for k, v in state["state"][name].items()}
            number += 1
    return result


def set_optimizer_state_dict(model: Any, optimizers: Any, optim_state_dict: dict, *, options: Optional[StateDictOptions] = None) -> None:
    """Loads such a state into optimizers. All processes call it."""
    options = _checked(options)
    every = _optimizers(optimizers)
    if options.broadcast_from_rank0:
        optim_state_dict = state_from_rank0(model, every, optim_state_dict)
    elif "state" not in optim_state_dict or not isinstance(optim_state_dict["state"], dict):
        optim_state_dict = _nested(optim_state_dict, model, every)
    for optimizer in every:
        optimizer.load_state_dict(local_optimizer_state(model, optimizer, optim_state_dict))


def state_from_rank0(model: Any, optimizers: list, state: Optional[dict]) -> dict:
    """The state under names that rank 0 has; what others have is not looked at."""
    own, state = _flat(get_optimizer_state_dict(model, optimizers)), state or {}
    if isinstance(state.get("state"), dict) and state.get("param_groups") is not None:
        state = _flat(state)
    return _nested(_all_from_rank0(state, own), model, optimizers)


def get_state_dict(model: Any, optimizers: Any, *, submodules: Any = None,
                   options: Optional[StateDictOptions] = None) -> tuple[dict, dict]:
    """Both."""
    return (get_model_state_dict(model, submodules=submodules, options=options),
            get_optimizer_state_dict(model, optimizers, submodules=submodules, options=options))


def set_state_dict(model: Any, optimizers: Union[Any, Iterable], *, model_state_dict: dict, optim_state_dict: dict,
                   options: Optional[StateDictOptions] = None) -> Any:
    """Both."""
    result = set_model_state_dict(model, model_state_dict, options=options)
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return result
