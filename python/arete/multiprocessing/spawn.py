"""Processes that run one function side by side and fail together."""
from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import signal
import time
import traceback
import warnings
from typing import Any, Callable, Optional, Sequence


_MOST = 60000  # bytes of a traceback: a pipe holds them, so that nobody waits for it to be read


class ProcessException(Exception):
    def __init__(self, msg: str, error_index: int, error_pid: int):
        super().__init__(msg)
        self.msg, self.error_index, self.error_pid = msg, error_index, error_pid

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.error_pid)


class ProcessRaisedException(ProcessException):
    """One of the processes raised an exception; the text holds its traceback."""


class ProcessExitedException(ProcessException):
    """One of the processes ended with another code than 0, or by a signal."""

    def __init__(self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: Optional[str] = None):
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.error_pid, self.exit_code, self.signal_name)


def _run(fn: Callable, index: int, args: Sequence[Any], report: Any) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGINT)  # PR_SET_PDEATHSIG: nobody is left behind
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        report.send_bytes(traceback.format_exc().encode()[-_MOST:])
        raise SystemExit(1) from None


class ProcessContext:
    """Processes that start_processes() has started."""

    def __init__(self, processes: Sequence[Any], reports: Sequence[Any]):
        self.processes, self._reports = list(processes), list(reports)
        self.sentinels = {p.sentinel: i for i, p in enumerate(self.processes)}

    def pids(self) -> list[int]:
        return [int(p.pid) for p in self.processes]

    def join(self, timeout: Optional[float] = None, grace_period: Optional[float] = None) -> bool:
        """Waits until a process has ended, at most so many seconds; True once all have. Where one fails the others are ended, after
        `grace_period` seconds in which they may end by themselves, and what it failed with is raised."""
        if not self.sentinels:
            return True
        for sentinel in multiprocessing.connection.wait(list(self.sentinels), timeout):
            index = self.sentinels.pop(sentinel)
            self.processes[index].join()
            if self.processes[index].exitcode != 0:
                self._end_all(grace_period)
                self._raise(index)
        return not self.sentinels

    def _end_all(self, grace_period: Optional[float]) -> None:
        def wait(seconds: float) -> None:
            end = time.monotonic() + seconds
            for p in self.processes:
                p.join(max(0.0, end - time.monotonic()))

        if grace_period is not None:
            wait(grace_period)
        for p in self.processes:
            p.terminate()
        wait(30 if grace_period is None else grace_period)
        for p in self.processes:
            if p.is_alive():
                warnings.warn(f"the process {p.pid} does not react to SIGTERM and is killed", stacklevel=4)
                p.kill()
            p.join()

    def _raise(self, index: int) -> None:
        process, report = self.processes[index], self._reports[index]
        try:
            raised = report.recv_bytes().decode(errors="replace") if report.poll() else None
        except EOFError:
            raised = None
        if raised is not None:
            raise ProcessRaisedException(f"\n\n-- Process {index} terminated with the following error:\n{raised}", index, process.pid)
        code, name = process.exitcode, None
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"<Unknown signal {-code}>"
        how = f"signal {name}" if name else f"exit code {code}"
        raise ProcessExitedException(f"process {index} terminated with {how}", index, process.pid, code, name)


def start_processes(fn: Callable, args: Sequence[Any] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
                    start_method: str = "spawn") -> Optional[ProcessContext]:
    """Starts processes that call fn(i, *args) for i from 0 to nprocs - 1, and waits for them; with join=False gives a ProcessContext
    instead. What one of them raises is raised here, with its traceback, after the others have been ended.

    >>> def work(i, x):
    ...     x[i] = i + 1
    >>> x = arete.zeros(2).share_memory_()
    >>> arete.multiprocessing.start_processes(work, (x,), nprocs=2, start_method="fork")
    >>> x
    tensor([1., 2.])
    """
    context: Any = multiprocessing.get_context(start_method)
    processes, reports = [], []
    for i in range(nprocs):
        receive, send = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(fn, i, args, send), daemon=daemon)
        process.start()
        send.close()
        processes.append(process)
        reports.append(receive)
    started = ProcessContext(processes, reports)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(fn: Callable, args: Sequence[Any] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
          start_method: str = "spawn") -> Optional[ProcessContext]:
    """start_processes() with new interpreters, which CUDA needs; `fn` must be a function of a module."""
    if start_method != "spawn":
        warnings.warn(f"This method only supports start_method=spawn (got: {start_method}). To use a different start_method use "
                      "start_processes() instead.", FutureWarning, stacklevel=2)
    return start_processes(fn, args, nprocs, join, daemon, "spawn")
