"""Who copies a state to host memory, from which async_save() writes it."""
from __future__ import annotations

import dataclasses
import io
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import Any, Callable, Iterable, Optional, Protocol, Union, runtime_checkable

from ... import _C, _operators, cuda
from ..tensor._dtensor import DTensor

__all__ = ["AsyncStager", "BlockingAsyncStager", "DefaultStager", "StagingOptions"]


@runtime_checkable
class AsyncStager(Protocol):
    """What async_save() takes: `stage` gives the state in host memory, or a future of it."""

    _synchronize_after_execute: bool = True

    @property
    def should_synchronize_after_execute(self) -> bool:
        """Whether synchronize_staging() is to be called before the program goes on."""
        return self._synchronize_after_execute

    def stage(self, state_dict: dict) -> Union[dict, Future]:
        """The state in host memory."""

    def synchronize_staging(self) -> None:
        """Returns when the program may change its tensors."""

    def close(self) -> None:
        """Nothing is staged any more."""


@dataclasses.dataclass
class StagingOptions:
    """`use_pinned_memory`: copies of tensors of GPUs are in memory that the GPU writes itself, all at a time with `use_non_blocking_copy`.
    `use_async_staging`: a thread copies, and tensors may be changed when it says so. A thread of this process writes the copies, so that
    `use_shared_memory` changes nothing.

    >>> arete.distributed.checkpoint.staging.StagingOptions(use_pinned_memory=False).use_async_staging
    True
    """

    use_pinned_memory: bool = True
    use_shared_memory: bool = True
    use_async_staging: bool = True
    use_non_blocking_copy: bool = True


class _Copies:
    """Copies in host memory; with `kept` in the memory of those of before, by names."""

    def __init__(self, pinned: bool = False, at_once: bool = False, kept: Optional[dict] = None) -> None:
        self._pinned, self._at_once, self._kept = pinned, at_once, kept

    def __call__(self, named: list) -> list:
        copies: list = []
        for name, t in named:
            if isinstance(t, DTensor):
                copies.append((name, t.clone() if t.device.type == "cpu" else t.cpu()))
                continue
            to = None if self._kept is None else self._kept.get(name)
            if to is None or to.shape != t.shape or to.dtype != t.dtype:
                pins = self._pinned and t.device.type == "cuda"
                to = _operators.empty(t.shape, dtype=t.dtype, pin_memory=pins)
            to.copy_(t, non_blocking=self._at_once)
            copies.append((name, to))
        if self._at_once:
            for stream in _streams_of(t for _, t in named):
                stream.synchronize()
        if self._kept is not None:
            self._kept.update(copies)
        return copies


def _streams_of(tensors: Iterable) -> list:
    """The current streams of the GPUs that have them."""
    return [cuda.current_stream(d) for d in {t.device for t in tensors if t.device.type == "cuda"}]


def _mapped(value: Any, copy: Callable[[Any], Any]) -> Any:
    if isinstance(value, _C.Tensor):
        return copy(value)
    if isinstance(value, dict):
        return {k: _mapped(v, copy) for k, v in value.items()}
    return type(value)(_mapped(v, copy) for v in value) if type(value) in (list, tuple) else value


def _check_types(value: Any) -> None:
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
        _check_types(inner)
    if not isinstance(value, (_C.Tensor, dict, list, tuple, int, float, str, bytes, io.BytesIO, type(None))):
        raise ValueError(f"Unexpected value type {type(value)}: with type_check a state has tensors, numbers, texts, bytes, lists and "
                         "dictionaries")


def _tensors_of(state: Any) -> list:
    tensors: list = []
    _mapped(state, tensors.append)
    return tensors


class DefaultStager:
    """Copies a state, in a thread of its own unless `use_async_staging=False`: async_save() then gives an AsyncSaveResponse, whose
    `staging_completion` says when the program may change its tensors.

    >>> stager = arete.distributed.checkpoint.staging.DefaultStager()
    >>> stager.stage({"x": arete.ones(2)}).result()
    {'x': tensor([1., 1.])}
    >>> stager.close()
    """

    _synchronize_after_execute = False
    should_synchronize_after_execute = False

    def __init__(self, config: StagingOptions = StagingOptions()) -> None:  # noqa: B008  (it is only read)
        self._config = config
        self._thread = ThreadPoolExecutor(1, "arete-staging") if self._config.use_async_staging else None
        self._last: Optional[Future] = None

    def _copies(self) -> _Copies:
        return _Copies(self._config.use_pinned_memory, self._config.use_non_blocking_copy)

    def _run(self, tensors: Iterable, copy: Callable[[], Any]) -> Any:
        """What copy() of the tensors gives, or where a thread does it a future of that."""
        if self._thread is None:
            return copy()
        streams = _streams_of(tensors)

        def run() -> Any:
            with ExitStack() as stack:  # what it gives the GPUs comes after what this thread has given them
                for stream in streams:
                    stack.enter_context(cuda.stream(stream))
                return copy()

        self._last = self._thread.submit(run)
        return self._last

    def stage(self, state_dict: dict, **kwargs: Any) -> Union[dict, Future]:
        """The state with tensors in host memory, or a future of it."""
        copies, tensors = self._copies(), _tensors_of(state_dict)
        return self._run(tensors, lambda: _mapped(state_dict, lambda t: copies([("", t.detach())])[0][1]))

    def synchronize_staging(self) -> None:
        """Waits for the last copies."""
        if self._last is not None:
            self._last.result()

    def close(self) -> None:
        """Waits for the last copies, and ends the thread."""
        if self._thread is not None:
            self._thread.shutdown()


class BlockingAsyncStager:
    """Copies a state before async_save() returns; with `cache_staged_state_dict` into the memory of the copies before, which have been
    written then. With `type_check` ValueError for what is no tensor, number, text, bytes, None, list or dictionary."""

    _synchronize_after_execute = False
    should_synchronize_after_execute = False

    def __init__(self, cache_staged_state_dict: bool = False, type_check: bool = False) -> None:
        self.cache_staged_state_dict, self.type_check = cache_staged_state_dict, type_check
        self.state_dict_cache: Optional[dict] = {} if cache_staged_state_dict else None
        self._reading: list = []  # futures of what is written from this memory

    def stage(self, state_dict: dict) -> dict:
        """The state with tensors in host memory."""
        if self.type_check:
            _check_types(state_dict)
        copies = iter(self._copies()([(k, t.detach()) for k, t in enumerate(_tensors_of(state_dict))]))
        return _mapped(state_dict, lambda t: next(copies)[1])

    def _copies(self) -> _Copies:
        wait(self._reading)
        return _Copies(self.cache_staged_state_dict, self.cache_staged_state_dict, self.state_dict_cache)

    def synchronize_staging(self) -> None:
        """Nothing: what is staged has been copied."""

    def close(self) -> None:
        """Nothing: there is nothing to end."""
