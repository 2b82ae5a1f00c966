"""GPUs: devices, streams, events, graphs, memory, under the names of torch.cuda. Works on machines without a GPU, too:
is_available() is False there and counters are 0."""
from __future__ import annotations

import contextlib

from .. import _C
from .._C import OutOfMemoryError  # noqa: F401
from .._operators import _tensor_types
from .._cuda_streams import (  # noqa: F401
    Event, ExternalStream, Stream, StreamContext, _number, current_stream, default_stream, set_stream, stream,
)
from . import amp, memory, nccl, nvtx, profiler, random  # noqa: F401
from ._graph import CUDAGraph, graph, graph_pool_handle  # noqa: F401
from ._management import *  # noqa: F403
from ._pool import MemPool, use_mem_pool  # noqa: F401
from .memory import *  # noqa: F403
from .random import (  # noqa: F401
    get_rng_state, get_rng_state_all, initial_seed, manual_seed, manual_seed_all, seed, seed_all, set_rng_state,
    set_rng_state_all,
)

_c = _C._cuda
globals().update(_tensor_types.CUDA)


def is_available() -> bool:
    """Whether there is a GPU that can be used."""
    return _c.is_available()


def unavailable_reason() -> str:
    """Why is_available() is False."""
    return _c.unavailable_reason()


def is_tf32_supported() -> bool:
    """Whether the GPU has units for TF32."""
    return is_available() and get_device_capability()[0] >= 8


def is_initialized() -> bool:
    """Whether a GPU is in use: CUDA starts when it is first used."""
    return _c.is_initialized()


def init() -> None:
    """Starts CUDA, which otherwise the first use does. RuntimeError that says why where that is not possible."""
    _c.init()


def _is_in_bad_fork() -> bool:
    """Whether this process was forked while its parent used CUDA, so that it cannot."""
    return _c.is_in_bad_fork()


def ipc_collect() -> None:
    """Frees memory that was sent to other processes and that nobody uses any more, which sending does, too."""
    _c.ipc_collect()


def get_arch_list() -> list[str]:
    """The architectures that kernels are made for: those of the GPUs at hand, when they are first used."""
    return sorted({"sm_%d%d" % get_device_capability(i) for i in range(device_count())})


def device_count() -> int:
    return _c.device_count()


def current_device() -> int:
    return _c.current_device()


def set_device(device) -> None:
    number = _number(device)
    if number >= 0:
        _c.set_device(number, True)


class device(contextlib.ContextDecorator):  # noqa: A001
    """Makes a GPU the current one inside."""

    def __init__(self, device):
        self._to = _number(device)

    def __enter__(self):
        self._from = _c.current_device()
        if self._to >= 0:
            _c.set_device(self._to)

    def __exit__(self, *error):
        if self._to >= 0:
            _c.set_device(self._from)


class device_of(device):
    """Makes the GPU of a tensor the current one inside."""

    def __init__(self, obj):
        super().__init__(obj.device if obj.is_cuda else None)


class _Properties:
    def __init__(self, values):
        self.__dict__.update(values)

    def __repr__(self):
        return (f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
                f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count})")


def get_device_properties(device=None) -> _Properties:
    """name, major, minor, total_memory, multi_processor_count."""
    return _Properties(_c.properties(_number(device)))


def get_device_name(device=None) -> str:
    return get_device_properties(device).name


def get_device_capability(device=None) -> tuple[int, int]:
    p = get_device_properties(device)
    return p.major, p.minor


def can_device_access_peer(device, peer_device) -> bool:
    return _c.can_device_access_peer(_number(device), _number(peer_device))


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return is_available() and (including_emulation or get_device_capability()[0] >= 8)


def synchronize(device=None) -> None:
    """Waits until all work of a GPU is done; raises what its kernels reported."""
    _c.synchronize(_number(device))


_SYNC_DEBUG_MODES = ("default", "warn", "error")


def set_sync_debug_mode(debug_mode) -> None:
    """What happens where a call makes the host wait for a GPU without saying so by its name: nothing ("default", 0), a warning with the
    line ("warn", 1), or a RuntimeError instead of the wait ("error", 2). Such calls are `item()` and what else reads values, `nonzero()`
    and what else has as many elements as the data say, copies to and from memory that is not pinned, and the first look at a
    `non_blocking` copy.

    >>> arete.cuda.set_sync_debug_mode("default")
    >>> arete.cuda.get_sync_debug_mode()
    0
    """
    if isinstance(debug_mode, str):
        if debug_mode not in _SYNC_DEBUG_MODES:
            raise RuntimeError(f"invalid value of debug_mode, expected one of {', '.join(_SYNC_DEBUG_MODES)}, not {debug_mode!r}")
        debug_mode = _SYNC_DEBUG_MODES.index(debug_mode)
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(f"invalid value of debug_mode, expected 0, 1 or 2, not {debug_mode!r}")
    _c.set_sync_debug_mode(debug_mode)


def get_sync_debug_mode() -> int:
    """See set_sync_debug_mode()."""
    return _c.get_sync_debug_mode()


def is_current_stream_capturing() -> bool:
    return is_available() and _c.is_current_stream_capturing()


def make_graphed_callables(callables, sample_args, num_warmup_iters=3, allow_unused_input=False, pool=None):
    """Callables that replay CUDA graphs of their forward and backward passes: see arete.cuda.graphs."""
    from .graphs import make_graphed_callables as make

    return make(callables, sample_args, num_warmup_iters, allow_unused_input, pool)
