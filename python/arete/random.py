"""The state of the random numbers: seeding, saving, restoring.

arete has one default generator for all devices, so the functions of `arete.cuda` for random states are these. In the workers of a
DataLoader they are about the worker's own generator, and leave the program's alone.
"""
from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import Any, Iterable, Iterator, Optional

from . import _C

__all__ = ["default_generator", "manual_seed", "seed", "initial_seed", "get_rng_state", "set_rng_state", "fork_rng"]

default_generator = _C.default_generator


class _Fixed(threading.local):
    """What records calls that draw, and would lose where the numbers come from."""

    by = ""


_fixed = _Fixed()


@contextmanager
def _no_new_states(by: str) -> Iterator[None]:
    """Seeds and states that are set meanwhile in this thread are an error, named by `by`."""
    before, _fixed.by = _fixed.by, by
    try:
        yield
    finally:
        _fixed.by = before


def _check_may_set() -> None:
    """NotImplementedError where a seed or a state would be lost."""
    if _fixed.by:
        raise NotImplementedError(f"{_fixed.by}: a seed or state of random numbers is set inside of the function, and a list of "
                                  "calls draws without: set it before the call")


class _Shown(threading.local):
    """A seed and the one that is shown for it. Batches of a loader draw from streams of the epoch's seed, whoever makes them."""

    pair = (-1, -1)


_shown = _Shown()


def manual_seed(seed: int) -> Any:
    """Seeds the random numbers of all devices; any int of 64 bits, also a negative one. Gives the default generator.

    >>> arete.random.manual_seed(7).initial_seed()
    7
    >>> arete.random.manual_seed(2**64)
    Traceback (most recent call last):
    RuntimeError: the seed 18446744073709551616 does not fit 64 bits
    """
    _check_may_set()
    seed = int(seed)
    if not -2 ** 63 <= seed < 2 ** 64:
        raise RuntimeError(f"the seed {seed} does not fit 64 bits")
    _C.manual_seed(seed - 2 ** 64 if seed >= 2 ** 63 else seed)
    return default_generator


def seed() -> int:
    """Seeds from the operating system, and gives the seed.

    >>> state = arete.random.get_rng_state()
    >>> arete.random.seed() == arete.random.initial_seed()
    True
    >>> arete.random.set_rng_state(state)
    """
    _check_may_set()
    return default_generator.seed()


def initial_seed() -> int:
    """The seed of the default generator. In a worker of a DataLoader that is the worker's, `get_worker_info().seed`, unless the
    worker called `manual_seed`.

    >>> _ = arete.manual_seed(7)
    >>> arete.random.initial_seed()
    7
    """
    seed = default_generator.initial_seed()
    hidden, shown = _shown.pair
    return shown if seed == hidden else seed


def get_rng_state() -> Any:
    """The state of the default generator, as a uint8 tensor.

    >>> arete.random.get_rng_state().dtype
    arete.uint8
    """
    return default_generator.get_state()


def set_rng_state(new_state: Any) -> None:
    """Restores a state of `get_rng_state()`.

    >>> state = arete.random.get_rng_state()
    >>> x = arete.rand(2)
    >>> arete.random.set_rng_state(state)
    >>> arete.equal(x, arete.rand(2))
    True
    """
    _check_may_set()
    default_generator.set_state(new_state)


@contextmanager
def fork_rng(devices: Optional[Iterable] = None, enabled: bool = True, _caller: str = "fork_rng", _devices_kw: str = "devices",
             device_type: str = "cuda") -> Iterator[None]:
    """Afterwards the random numbers go on as if the block had drawn none. `devices` means nothing: all share one generator.

    >>> state = arete.random.get_rng_state()
    >>> with arete.random.fork_rng():
    ...     _ = arete.rand(2)
    >>> arete.equal(state, arete.random.get_rng_state())
    True
    """
    if not enabled:
        yield
        return
    state = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(state)
