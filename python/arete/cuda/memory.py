"""Memory of GPUs: counters, the cache, and histories of who allocated what, which record the tensors of the CPU, too."""
from __future__ import annotations

import atexit
import collections
import contextlib
import sys
import threading
from typing import Any, Dict, List, Optional, Tuple, Union

from .. import _C
from .._C import device as _device
from .._cuda_streams import _number
from ._pool import MemPool, use_mem_pool

__all__ = [
    "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "reset_peak_memory_stats",
    "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached", "memory_cached", "max_memory_cached",
    "memory_stats", "memory_stats_as_nested_dict", "memory_summary", "memory_snapshot", "mem_get_info", "empty_cache",
    "MemPool", "use_mem_pool", "set_per_process_memory_fraction", "get_per_process_memory_fraction", "list_gpu_processes",
    "GPUMemoryTracker", "name_scope",
]

_c, _m = _C._cuda, _C._memory


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors hold."""
    return _c.memory_allocated(_number(device))


def max_memory_allocated(device: Any = None) -> int:
    """The most that tensors held at once, since the start or reset_peak_memory_stats()."""
    return _c.max_memory_allocated(_number(device))


def memory_reserved(device: Any = None) -> int:
    """Bytes taken from the driver."""
    return _c.memory_reserved(_number(device))


def max_memory_reserved(device: Any = None) -> int:
    return _c.max_memory_reserved(_number(device))


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def reset_peak_memory_stats(device: Any = None) -> None:
    """Peaks begin anew at what is held now."""
    _c.reset_peak_memory_stats(_number(device))


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Counts of what was allocated and freed begin at 0 again."""
    _c.reset_accumulated_memory_stats(_number(device))


def memory_stats(device: Any = None) -> Dict[str, int]:
    """All counters by name, "allocated_bytes.all.peak" and so on. Small and large blocks have no pools of their own here:
    everything counts as large_pool."""
    return collections.OrderedDict(_c.memory_stats(_number(device)))


def memory_stats_as_nested_dict(device: Any = None) -> Dict[str, Any]:
    """memory_stats() with a dict for each part of a name."""
    nested: Dict[str, Any] = {}
    for name, value in memory_stats(device).items():
        at = nested
        *folders, last = name.split(".")
        for f in folders:
            at = at.setdefault(f, {})
        at[last] = value
    return nested


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """A table of the counters with torch's rows, then the allocator's pools and who holds most; abbreviated: the main rows alone."""
    if not _c.is_available():
        return "no GPU: " + _c.unavailable_reason()
    return _c.memory_summary(_number(device), abbreviated)


def mem_get_info(device: Any = None) -> Tuple[int, int]:
    """Free and total bytes of a GPU, whoever uses it."""
    return _c.mem_get_info(_number(device))


def empty_cache() -> None:
    """Gives memory that no tensor holds back to the driver."""
    _c.empty_cache()


_fractions: Dict[int, float] = {}


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """At most this part of a GPU's memory is taken."""
    if not isinstance(fraction, (int, float)):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 < fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: more than 0 and at most 1")
    number = _number(device)
    _c.set_per_process_memory_fraction(fraction, number)
    _fractions[_c.current_device() if number < 0 else number] = fraction


def get_per_process_memory_fraction(device: Any = None) -> float:
    number = _number(device)
    return _fractions.get(_c.current_device() if number < 0 else number, 1.0)


def list_gpu_processes(device: Any = None) -> str:
    """The processes that use a GPU, and how much memory each takes, as nvidia-smi tells."""
    import shutil
    import subprocess

    number = _number(device)
    number = _c.current_device() if number < 0 else number
    program = shutil.which("nvidia-smi")
    if program is None:
        return f"GPU:{number}\nnvidia-smi is not there to ask"
    asked = subprocess.run([program, f"--id={_c.pci_bus_id(number)}", "--query-compute-apps=pid,used_memory",
                            "--format=csv,noheader,nounits"], capture_output=True, text=True)
    lines = [f"GPU:{number}"]
    if asked.returncode:
        return "\n".join([*lines, asked.stdout.strip() or asked.stderr.strip()])
    for line in filter(None, asked.stdout.splitlines()):
        pid, used = (part.strip() for part in line.split(",", 1))
        lines.append(f"process {pid:>10s} uses {used:>12s} MB GPU memory")
    return "\n".join(lines if len(lines) > 1 else [*lines, "no processes are running"])


# ---- histories


class _LayerScopes:
    """While histories are recorded: layers that run are scopes, named by their class and then by their parents' names for them."""

    def __init__(self) -> None:
        self._handles: tuple = ()
        self._running = threading.local()

    def begin(self) -> None:
        from ..nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

        if not self._handles:
            self._handles = (register_module_forward_pre_hook(self._enter),
                             register_module_forward_hook(self._leave, always_call=True))

    def end(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = ()

    def _enter(self, module: Any, args: Any) -> None:
        stack = self._running.__dict__.setdefault("stack", [])
        children = stack[-1]._modules.items() if stack else ()
        _m.push_scope(next((name for name, child in children if child is module), type(module).__name__))
        stack.append(module)

    def _leave(self, module: Any, args: Any, result: Any) -> None:
        stack = self._running.__dict__.get("stack")
        if stack and stack[-1] is module:  # it was running when recording began otherwise
            stack.pop()
            _m.pop_scope()


_layer_scopes = _LayerScopes()


# What other forms of the function take in torch. All but the first say what else is written down, which is decided by
# `context` and `stacks` here.
_OLDER_OPTIONS = {"trace_alloc_max_entries", "record_context", "trace_alloc_record_context", "record_context_cpp", "compile_context",
                  "global_record_annotations"}


def _record_memory_history(enabled: Union[None, bool, str] = "all", context: Optional[str] = "all", stacks: str = "all",
                           max_entries: int = sys.maxsize, device: Any = None, clear_history: bool = False, **older: Any) -> None:
    """Records who allocates what from now on, on the CPU and on GPUs. `enabled`: "all" (each allocation and free), "state" (only
    what is live) or None (stop, and forget). `context`: call stacks of live memory ("state"), of allocations ("alloc"), of frees,
    too ("all"), or none. `stacks`: "python" frames, or C++ ones, too ("all"). Layers that run are scopes by themselves. The last
    `max_entries` (in older programs trace_alloc_max_entries) are kept."""
    unknown = sorted(older.keys() - _OLDER_OPTIONS)
    if unknown:
        raise TypeError(f"_record_memory_history() got an unexpected keyword argument '{unknown[0]}'")
    max_entries = older.get("trace_alloc_max_entries", max_entries)
    if not isinstance(max_entries, int) or isinstance(max_entries, bool):
        raise TypeError(f"max_entries must be an int, not {type(max_entries).__name__}")
    if max_entries < 0:
        raise ValueError(f"max_entries must not be negative, got {max_entries}")
    max_entries = min(max_entries, sys.maxsize)
    enabled = {True: "all", False: None}.get(enabled, enabled) if isinstance(enabled, bool) else enabled
    if enabled not in (None, "state", "all"):
        raise ValueError(f"enabled must be None, 'state' or 'all', not {enabled!r}")
    if context not in (None, "state", "alloc", "all"):
        raise ValueError(f"context must be None, 'state', 'alloc' or 'all', not {context!r}")
    if stacks not in ("python", "all"):
        raise ValueError(f"stacks must be 'python' or 'all', not {stacks!r}")
    if enabled is None:
        _layer_scopes.end()
        _m.stop()
    else:
        _layer_scopes.begin()
        _m.record(enabled == "all", context or "none", stacks == "all", max_entries, clear_history)


def _snapshot(device: Any = None) -> Dict[str, Any]:
    """What is live ("segments") and, by device, what happened ("device_traces"); the last device is the CPU."""
    import pickle

    return pickle.loads(_m.pickle())


def memory_snapshot(mempool_id: Any = None, include_traces: bool = True) -> List[Dict[str, Any]]:
    """The live memory that a history knows, or all of a MemPool's; traces, which _snapshot() has, are no part of it."""
    if mempool_id is not None:
        return MemPool._find(mempool_id).snapshot()
    return _snapshot()["segments"]


def _dump_snapshot(filename: str = "dump_snapshot.pickle") -> None:
    """Writes the history: .pickle for PyTorch's memory viewer, .html as a page of its own, .json as data."""
    _m.dump(str(filename))


@contextlib.contextmanager
def name_scope(name: str):
    """Names what runs inside, for histories."""
    _m.push_scope(name)
    try:
        yield
    finally:
        _m.pop_scope()


class GPUMemoryTracker:
    """How much memory what runs inside takes: `peak` and `delta` in bytes above what was held at its beginning, `allocated`
    bytes in `allocations` calls. device="cpu" follows the memory of tensors on the CPU. Trackers may be nested.

    with GPUMemoryTracker() as t:
        loss.backward()
    print(t)
    """

    def __init__(self, device: Any = "cuda"):
        self._device = _device("cuda", device) if isinstance(device, int) else _device(device)
        if self._device.type == "cuda" and self._device.index is None:
            self._device = _device("cuda", _c.current_device())
        self._tracker: Any = None

    def __enter__(self) -> "GPUMemoryTracker":
        self._tracker = _m.GPUMemoryTracker(self._device)
        return self

    def __exit__(self, *error: Any) -> None:
        self._tracker.stop()

    def __getattr__(self, name: str) -> int:
        if name in ("before", "delta", "peak", "allocated", "allocations"):
            return getattr(self._tracker, name) if self._tracker is not None else 0
        raise AttributeError(f"'GPUMemoryTracker' object has no attribute {name!r}")

    def __repr__(self) -> str:
        return self._tracker.report() if self._tracker is not None else f"GPUMemoryTracker(device={str(self._device)!r})"


atexit.register(_m.shut_down)
