"""Processes with unequally many batches: those that have no more take part in the calls of the others.

Each process says in each iteration whether it is still there, by notify_join_context() of the first of the objects that take part.
Those that are through answer, and run the hooks of all objects, until nobody is left.
"""
from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, NamedTuple, Optional, Type

from ... import _C
from .. import distributed_c10d as dist

__all__ = ["JoinHook", "Joinable", "Join"]


class JoinHook:
    """What a process without batches does for an object: main_hook() in each iteration of the others, post_hook(is_last_joiner) when
    all are through."""

    def main_hook(self) -> None:
        """Answers the calls of one iteration."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Runs once at the end, in all processes."""


class Joinable(ABC):
    """An object whose calls can be answered by processes without batches."""

    @abstractmethod
    def __init__(self) -> None:
        super().__init__()
        self._join_config = _JoinConfig.construct_disabled_join_config()

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """The hook, made with what Join got by name."""

    @property
    @abstractmethod
    def join_device(self) -> Any:
        """Where the numbers that processes exchange lie."""

    @property
    @abstractmethod
    def join_process_group(self) -> Any:
        """The processes that take part."""


class _JoinConfig(NamedTuple):
    enable: bool
    throw_on_early_termination: bool
    is_first_joinable: bool

    @staticmethod
    def construct_disabled_join_config() -> "_JoinConfig":
        return _JoinConfig(False, False, False)


class Join:
    """A block in which processes may have unequally many batches.

    With `throw_on_early_termination` the first process without a batch makes all of them raise a RuntimeError instead.
    """

    def __init__(self, joinables: list[Joinable], enable: bool = True, throw_on_early_termination: bool = False, **kwargs: Any) -> None:
        if len(joinables) == 0:
            raise ValueError("The join context manager requires at least one joinable")
        self._joinables = joinables
        self._hooks = [joinable.join_hook(**kwargs) for joinable in joinables]
        self._enable = enable
        self._throw = throw_on_early_termination
        for i, joinable in enumerate(joinables):
            joinable._join_config = _JoinConfig(enable, throw_on_early_termination, i == 0)
        if any(joinable.join_process_group is not joinables[0].join_process_group for joinable in joinables):
            raise ValueError("Using join context manager with multiple process groups")
        if any(joinable.join_device != joinables[0].join_device for joinable in joinables):
            raise ValueError("Using join context manager with multiple devices")
        self._group = joinables[0].join_process_group
        self._device = joinables[0].join_device

    def __enter__(self) -> None:
        pass

    def __exit__(self, type: Optional[Type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> Optional[bool]:
        try:
            if self._enable and not type:
                self._answer_the_others()
        finally:
            for joinable in self._joinables:
                joinable._join_config = _JoinConfig.construct_disabled_join_config()
        return None

    def _answer_the_others(self) -> None:
        is_last, rounds = True, 0
        while True:
            there = _numbers([0], self._device)
            dist.all_reduce(there, group=self._group)
            left = int(there[0])
            if left == 0:
                break
            if self._throw:
                self._say_that_this_process_is_through()
            is_last = False
            rounds += 1
            if rounds == 1000:
                warnings.warn("Detected uneven input skew of greater than 1000. This means that rank "
                              f"{dist.get_rank(self._group)} has at least 1000 fewer inputs than other currently-active ranks.",
                              stacklevel=2)
            for hook in self._hooks:
                hook.main_hook()
        for hook in self._hooks:
            hook.post_hook(is_last)

    def _say_that_this_process_is_through(self) -> None:
        dist.all_reduce(_numbers([1], self._device), group=self._group)
        raise RuntimeError(f"Rank {dist.get_rank(self._group)} exhausted all inputs.")

    @staticmethod
    def notify_join_context(joinable: Joinable) -> Optional[Any]:
        """Says that this process is still there, for the first object of a block; None for others, else what can be waited for."""
        config = joinable._join_config
        if not config.is_first_joinable or not config.enable:
            return None
        device, group = joinable.join_device, joinable.join_process_group
        work = dist.all_reduce(_numbers([1], device), group=group, async_op=True)
        if config.throw_on_early_termination:
            through = _numbers([0], device)
            dist.all_reduce(through, group=group)
            if int(through[0]):
                raise RuntimeError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")
        return work


def _numbers(values: list, device: Any) -> Any:
    return _C.tensor(values, dtype=_C.float32, device=device)
