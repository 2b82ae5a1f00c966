"""The state of the random numbers of GPUs, under the names of torch.cuda.random.

All devices draw from one stream of numbers (arete.default_generator): the state of each GPU is the state of that, and setting it for
one sets it for all. Without a GPU the functions that ask for a state raise, the lists are empty and nothing is set.
"""
from __future__ import annotations

from typing import Any, Iterable, List

from .. import _C
from .._cuda_streams import _number
from ..random import _check_may_set, default_generator, manual_seed as _manual_seed

__all__ = ["get_rng_state", "get_rng_state_all", "set_rng_state", "set_rng_state_all", "manual_seed", "manual_seed_all", "seed",
           "seed_all", "initial_seed"]

_c = _C._cuda


def _check(device: Any) -> None:
    """DeviceError where there is no such GPU."""
    number = _number(device)
    now = _c.current_device()
    _c.set_device(now if number < 0 else number)
    _c.set_device(now)


def get_rng_state(device: Any = "cuda") -> Any:
    """The state for a GPU, as a uint8 tensor in host memory. RuntimeError without a GPU."""
    _check(device)
    return default_generator.get_state()


def get_rng_state_all() -> List[Any]:
    """The states of all GPUs, as a checkpoint keeps them.

    >>> len(arete.cuda.get_rng_state_all()) == arete.cuda.device_count()
    True
    """
    return [get_rng_state(i) for i in range(_c.device_count())]


def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
    """Restores a state of get_rng_state(). Without a GPU: nothing."""
    _check_may_set()
    if _c.is_available():
        _check(device)
        default_generator.set_state(new_state)


def set_rng_state_all(new_states: Iterable[Any]) -> None:
    """Restores the states of get_rng_state_all().

    >>> arete.cuda.set_rng_state_all(arete.cuda.get_rng_state_all())
    """
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def manual_seed(seed: int) -> None:
    """Seeds the random numbers of all devices."""
    _manual_seed(seed)


manual_seed_all = manual_seed


def seed() -> None:
    """Seeds from the operating system. Without a GPU: nothing."""
    _check_may_set()
    if _c.is_available():
        default_generator.seed()


seed_all = seed


def initial_seed() -> int:
    """The seed of the current GPU's numbers. RuntimeError without a GPU."""
    _check(None)
    return default_generator.initial_seed()
