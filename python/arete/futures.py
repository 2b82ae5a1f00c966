"""Results that are still to come, under torch.futures' names: communication hooks of DistributedDataParallel give them.

>>> from arete.futures import Future
>>> f = Future()
>>> g = f.then(lambda done: done.value() + 1)
>>> f.set_result(1)
>>> g.wait()
2
"""
from __future__ import annotations

import threading
from typing import Any, Callable, Generic, Optional, TypeVar

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")


class Future(Generic[T]):
    """A result that somebody will set. Callbacks run where it is set, or at once if it is there.

    >>> f = arete.futures.Future()
    >>> f.done()
    False
    >>> f.set_result("text")
    >>> f.value()
    'text'
    """

    def __init__(self, *, devices: Optional[list] = None) -> None:
        self._condition = threading.Condition()
        self._done = False
        self._result: Any = None
        self._error: Optional[BaseException] = None
        self._callbacks: list[Callable[[Future], Any]] = []

    def done(self) -> bool:
        """Whether there is a result, or an error."""
        return self._done

    def wait(self) -> T:
        """The result, once it is there; raises the error that was set."""
        with self._condition:
            self._condition.wait_for(lambda: self._done)
        return self.value()

    def value(self) -> T:
        """The result, which must be there."""
        if not self.done():
            raise RuntimeError("the future has no result yet: wait() for it")
        if self._error is not None:
            raise self._error
        return self._result

    def _finish(self, result: Any, error: Optional[BaseException]) -> None:
        with self._condition:
            if self._done:
                raise RuntimeError("the future has a result already")
            self._result, self._error, self._done = result, error, True
            self._condition.notify_all()
        failed: Optional[Exception] = None
        for callback in self._callbacks:
            try:
                callback(self)
            except Exception as error:  # the others are called all the same
                failed = failed or error
        if failed is not None:
            raise failed

    def set_result(self, result: T) -> None:
        """Gives the result, once."""
        self._finish(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Says what went wrong: wait() and value() raise it."""
        if not isinstance(result, Exception):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._finish(None, result)

    def add_done_callback(self, callback: Callable[[Future], None]) -> None:
        """Calls a function with the future, when it is done."""
        with self._condition:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback(self)

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """The future of what a function gives of this one, when it is done."""
        result: Future = Future()

        def run(done: Future) -> None:
            try:
                value = callback(done)
            except Exception as error:
                result.set_exception(error)
            else:
                result.set_result(value)

        self.add_done_callback(run)
        return result


class _WorkFuture(Future):
    """Of a call of a group: the result is there for whoever waits, in whose thread and stream what is to be done with it runs."""

    def __init__(self, wait: Callable[[], Any], is_completed: Callable[[], bool]) -> None:
        super().__init__()
        self._wait, self._is_completed, self._lock = wait, is_completed, threading.RLock()

    def done(self) -> bool:
        return self._done or self._is_completed()

    def wait(self) -> Any:
        with self._lock:
            if not self._done:
                try:
                    value = self._wait()
                except Exception as error:
                    self._finish(None, error)
                else:
                    self._finish(value, None)
        return super().value()

    value = wait

    def add_done_callback(self, callback: Callable[[Future], None]) -> None:
        # Nobody may ever wait for it, so a thread does.
        threading.Thread(target=lambda: (self._settle(), callback(self)), daemon=True).start()

    def _settle(self) -> None:
        try:
            self.wait()
        except Exception:
            pass  # the callback asks for it

    def then(self, callback: Callable[[Future], Any]) -> Future:
        return _WorkFuture(lambda: (self._settle(), callback(self))[1], self.done)


def collect_all(futures: list[Future]) -> Future[list[Future]]:
    """A future of them all, which is done when each of them is.

    >>> from arete.futures import Future, collect_all
    >>> f, g = Future(), Future()
    >>> both = collect_all([f, g])
    >>> f.set_result(1)
    >>> g.set_result(2)
    >>> [one.value() for one in both.wait()]
    [1, 2]
    """
    def wait() -> list[Future]:
        for future in futures:
            future.wait()
        return futures

    return _WorkFuture(wait, lambda: all(future.done() for future in futures))


def wait_all(futures: list[Future]) -> list:
    """The results of all of them; raises the first error.

    >>> from arete.futures import Future, wait_all
    >>> f = Future()
    >>> f.set_result(3)
    >>> wait_all([f])
    [3]
    """
    return [future.wait() for future in futures]
