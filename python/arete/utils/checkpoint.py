"""Less memory for more computing: activations are not kept but computed again during backward.

    x = checkpoint(block, x, use_reentrant=False)

runs `block(x)` without keeping what it would need for backward, only its inputs; backward runs it again.
"""
from __future__ import annotations

import enum
import warnings
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, Callable, ContextManager, Iterable, Iterator, List, Optional, Tuple

from .. import _C, autograd, random
from ..amp import autocast_mode
from ..nn import Sequential
from ..nn.utils.stateless import _in_places, _swaps

__all__ = ["checkpoint", "checkpoint_sequential", "CheckpointError", "CheckpointPolicy", "create_selective_checkpoint_contexts",
           "get_device_states", "noop_context_fn", "set_checkpoint_debug_enabled", "set_checkpoint_early_stop", "set_device_states"]

_debug_enabled: Optional[bool] = None


class CheckpointError(RuntimeError):
    """The second run of a function made other tensors than the first."""


def noop_context_fn() -> Tuple[ContextManager, ContextManager]:
    """Two contexts that do nothing."""
    return nullcontext(), nullcontext()


class CheckpointPolicy(enum.Enum):
    """What a policy of create_selective_checkpoint_contexts() answers.

    >>> arete.utils.checkpoint.CheckpointPolicy.MUST_SAVE.value
    0
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4


def create_selective_checkpoint_contexts(policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False) -> tuple:
    """NotImplementedError: a checkpointed function is computed again as a whole.

    >>> arete.utils.checkpoint.create_selective_checkpoint_contexts([])
    Traceback (most recent call last):
    NotImplementedError: create_selective_checkpoint_contexts: a checkpointed function is computed again as a whole...
    """
    raise NotImplementedError("create_selective_checkpoint_contexts: a checkpointed function is computed again as a whole, without a "
                              "choice of operators whose results are kept; checkpoint smaller functions")


def get_device_states(*args: Any) -> Tuple[List[int], List[Any]]:
    """The GPUs of the tensors in these arguments, containers among them, and the states of their random numbers.

    >>> arete.utils.checkpoint.get_device_states(arete.ones(2), {"x": [arete.zeros(1)]})
    ([], [])
    """
    tensors: List[Any] = []
    _take_out(args, tensors)
    devices = sorted({t.device.index for t in tensors if t.device.type == "cuda"})
    return devices, [random.get_rng_state() for _ in devices]  # one generator serves all devices


def set_device_states(devices: Iterable[int], states: Iterable[Any], *, device_type: Optional[str] = None) -> None:
    """Puts the states of get_device_states() back.

    >>> arete.utils.checkpoint.set_device_states(*arete.utils.checkpoint.get_device_states(arete.ones(2)))
    """
    if device_type not in (None, "cpu", "cuda"):
        raise ValueError(f"set_device_states: there are states of GPUs (device_type 'cuda'), not of '{device_type}'")
    for _, state in zip(devices, states):
        random.set_rng_state(state)


@contextmanager
def set_checkpoint_debug_enabled(enabled: Optional[bool]) -> Iterator[None]:
    """Inside, decides over `debug` of checkpoint(); None leaves it to that.

    >>> with arete.utils.checkpoint.set_checkpoint_debug_enabled(True):
    ...     y = arete.utils.checkpoint.checkpoint(arete.exp, arete.ones(2, requires_grad=True), use_reentrant=False)
    """
    global _debug_enabled
    before, _debug_enabled = _debug_enabled, enabled
    try:
        yield
    finally:
        _debug_enabled = before


@contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Inside, decides over `early_stop` of checkpoint(), which changes nothing: the second run always reaches the end.

    >>> with arete.utils.checkpoint.set_checkpoint_early_stop(False):
    ...     y = arete.utils.checkpoint.checkpoint(arete.exp, arete.ones(2, requires_grad=True), use_reentrant=False)
    """
    yield


class _Place:
    """Stands for the i-th tensor in arguments or results whose tensors were taken out."""

    def __init__(self, index: int) -> None:
        self.index = index


def _take_out(value: Any, tensors: List[Any]) -> Any:
    """`value` with the tensors in its tuples, lists and dicts moved to a list."""
    if isinstance(value, _C.Tensor):
        tensors.append(value)
        return _Place(len(tensors) - 1)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_take_out(v, tensors) for v in value))
    if type(value) in (tuple, list):
        return type(value)(_take_out(v, tensors) for v in value)
    if type(value) is dict:
        return {k: _take_out(v, tensors) for k, v in value.items()}
    return value


def _put_back(value: Any, tensors: List[Any]) -> Any:
    if isinstance(value, _Place):
        return tensors[value.index]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_put_back(v, tensors) for v in value))
    if type(value) in (tuple, list):
        return type(value)(_put_back(v, tensors) for v in value)
    if type(value) is dict:
        return {k: _put_back(v, tensors) for k, v in value.items()}
    return value


def _autocast_states() -> List[tuple]:
    """How autocast is set for each kind of device."""
    kinds = ("cpu", "cuda") if _C._cuda.is_available() else ("cpu",)
    return [(kind, autocast_mode.is_autocast_enabled(kind), autocast_mode.get_autocast_dtype(kind)) for kind in kinds]


@contextmanager
def _autocast(states: List[tuple]) -> Iterator[None]:
    with ExitStack() as stack:
        for kind, enabled, dtype in states:
            stack.enter_context(autocast_mode.autocast(kind, dtype=dtype, enabled=enabled))
        yield


class _Run:
    """One checkpointed call without its tensors: what is needed to run it again."""

    def __init__(self, function: Callable, arguments: Any, recompute_context: ContextManager, preserve_rng: bool,
                 check: bool, debug: bool) -> None:
        self.function = function
        self.arguments = arguments
        self.recompute_context = recompute_context
        self.rng = random.get_rng_state() if preserve_rng else None
        self.autocast = _autocast_states()
        self.swaps = _swaps.under_way
        self.check = check
        self.debug = debug
        self.operators: List[str] = []
        self.results: Any = None
        self.made: List[tuple] = []

    def _call(self, tensors: List[Any]) -> Tuple[Any, List[Any]]:
        args, kwargs = _put_back(self.arguments, tensors)
        made: List[Any] = []
        return _take_out(self.function(*args, **kwargs), made), made

    def _traced_call(self, tensors: List[Any]) -> Tuple[Any, List[Any], List[str]]:
        """The same and, with debug, the operators that were called."""
        if not self.debug:
            return (*self._call(tensors), [])
        trace = _C._CallTrace()
        trace.start()
        try:
            results, made = self._call(tensors)
        finally:
            trace.stop()
        return results, made, trace.calls()

    def first(self, tensors: Tuple[Any, ...]) -> List[Any]:
        self.results, made, self.operators = self._traced_call(tensors)
        self.made = [_kind(t) for t in made]
        return made

    def again(self, tensors: Tuple[Any, ...]) -> List[Any]:
        before = random.get_rng_state() if self.rng is not None else None
        if self.rng is not None:
            random.set_rng_state(self.rng)
        for registry, name, _ in (place for swap in self.swaps for place in swap):
            if name not in registry:
                raise CheckpointError(f"computed again during backward, a checkpointed function meets a module without {name!r}, in whose "
                                      "place functional_call() or DistributedDataParallel had another tensor the first time")
        try:
            with autograd.enable_grad(), _autocast(self.autocast), _in_places(*self.swaps), self.recompute_context:
                if not _C.is_grad_enabled():
                    raise CheckpointError("torch.utils.checkpoint: A different number of tensors was saved during the "
                                          "original forward and recomputation: the second context of context_fn "
                                          "switches gradients off")
                _, made, operators = self._traced_call(tensors)
        finally:
            if before is not None:
                random.set_rng_state(before)
        found = [_kind(t) for t in made]
        if self.check and found != self.made:
            raise CheckpointError(f"computed again during backward, a checkpointed function gave other tensors: {self.made} in forward, "
                                  f"{found} in backward. It must do the same both times{self._traces(operators)}")
        return made

    def _traces(self, again: List[str]) -> str:
        if not self.debug:
            return ". debug=True lists the operators of both runs"
        lists = [f"\n{title}:\n" + "\n".join(f"    {line}" for line in lines)
                 for title, lines in (("Operators in forward", self.operators), ("Operators in backward", again))]
        return "".join(lists)


def _kind(t: Any) -> tuple:
    return tuple(t.shape), str(t.dtype), str(t.device)


def checkpoint(function: Callable, *args: Any, use_reentrant: Optional[bool] = None,
               context_fn: Callable[[], Tuple[ContextManager, ContextManager]] = noop_context_fn, determinism_check: str = "default",
               debug: bool = False, early_stop: bool = True, **kwargs: Any) -> Any:
    """`function(*args, **kwargs)`, computed again in backward instead of keeping its activations.

    Tensors may be anywhere in tuples, lists and dicts of the arguments and results. `preserve_rng_state=False` lets the second run
    draw other random numbers. `determinism_check` "none" does not compare the shapes of both runs. `context_fn` gives contexts for the
    first and the second run. With use_reentrant=True the results require a gradient only if an argument does, as in PyTorch; else
    also parameters that the function uses by itself get theirs. `debug` lists the operators of both runs in the error about runs
    that differ. The second run always reaches the end of the function: `early_stop` changes nothing.

    Gradients flow to the tensors in the arguments and to all that the function uses by itself, with `backward()` as with
    `autograd.grad`, and can be differentiated again.

    >>> layer, x = nn.Linear(2, 3), arete.ones(1, 2, requires_grad=True)
    >>> arete.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum().backward()
    >>> x.grad.shape
    arete.Size([1, 2])
    """
    preserve = kwargs.pop("preserve_rng_state", True)
    if use_reentrant and kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    if use_reentrant and (context_fn is not noop_context_fn or debug):
        raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
    if determinism_check not in ("default", "none"):
        raise ValueError(f"determinism_check should be one of ['default', 'none'], but got {determinism_check}")
    traced = not use_reentrant and (debug if _debug_enabled is None else _debug_enabled)
    if traced and context_fn is not noop_context_fn:
        raise ValueError("debug=True is incompatible with non-default context_fn")
    tensors: List[Any] = []
    arguments = _take_out((args, kwargs), tensors)
    if use_reentrant and not any(t.requires_grad for t in tensors):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)
    context, recompute_context = context_fn()
    if not _C.is_grad_enabled():
        return function(*args, **kwargs)
    run = _Run(function, arguments, recompute_context, preserve, determinism_check == "default", traced)
    with context:
        if not _C.is_grad_enabled():  # switched off by the context: there is nothing to compute again
            return function(*args, **kwargs)
        made = _C._checkpoint(run.first, run.again, tensors, not use_reentrant)
    return _put_back(run.results, made)


def checkpoint_sequential(functions: Iterable, segments: int, input: Any, use_reentrant: Optional[bool] = None, **kwargs: Any) -> Any:
    """Runs the layers of a Sequential (or a list) in `segments` pieces, each but the last one checkpointed.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> arete.utils.checkpoint.checkpoint_sequential(net, 2, arete.ones(4, 2), use_reentrant=False).shape
    arete.Size([4, 1])
    """
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError(f"unknown arguments {sorted(kwargs)}")
    layers = list(functions.children()) if isinstance(functions, Sequential) else list(functions)
    if not 1 <= segments <= max(1, len(layers)):
        raise ValueError(f"{segments} segments of {len(layers)} layers")

    def piece(begin: int, end: int) -> Callable:
        def forward(x: Any) -> Any:
            for layer in layers[begin:end]:
                x = layer(x)
            return x

        return forward

    size, begin = len(layers) // segments, 0
    for _ in range(segments - 1):
        input = checkpoint(piece(begin, begin + size), input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
        begin += size
    return piece(begin, len(layers))(input)
