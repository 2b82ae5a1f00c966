"""The profiler's older names."""
from __future__ import annotations

from .. import _C, profiler as _profiler
from ..profiler import DeviceType, EventList, kineto_available, record_function  # noqa: F401


class profile(_profiler._Results):
    """Records a `with` block; arete.profiler.profile does more.

    >>> with arete.autograd.profiler.profile() as p:
    ...     x = arete.ones(2).exp()
    >>> [e.name for e in p.function_events]
    ['ones', 'exp']
    """

    def __init__(self, enabled=True, *, use_cuda=False, use_device=None, record_shapes=False, with_flops=False,
                 profile_memory=False, with_stack=False, with_modules=False, use_kineto=False, use_cpu=True,
                 experimental_config=None, acc_events=False):
        _profiler._refuse(acc_events=acc_events, with_modules=with_modules, experimental_config=experimental_config)
        if use_device not in (None, "cuda"):
            raise ValueError(f"autograd.profiler.profile: use_device is 'cuda' or None, not {use_device!r}")
        use_cuda = use_cuda or use_device == "cuda"
        if enabled:
            _profiler._warn_without_gpu(use_cuda)
        activities = ({_profiler.ProfilerActivity.CPU} if use_cpu else set()) | (
            {_profiler.ProfilerActivity.CUDA} if use_cuda else set())
        self.enabled = enabled
        self.use_device = "cuda" if use_cuda and _C._cuda.is_available() else None
        self._profile = _profiler.profile(activities=activities, record_shapes=record_shapes, with_flops=with_flops,
                                          profile_memory=profile_memory, with_stack=with_stack)

    def _trace(self):
        return self._profile._trace()

    def __enter__(self):
        if self.enabled:
            self._profile.start()
        return self

    def __exit__(self, *_):
        if self.enabled:
            self._profile.stop()

    @property
    def function_events(self) -> EventList | None:
        """The events; None before the end."""
        return self.events() if self.enabled and not self._profile._profiler.is_running else None

    def __repr__(self):
        return self.table() if self._profile._profiler.has_trace else "<unfinished arete.autograd.profiler.profile>"

    def table(self, *args, **kwargs) -> str:
        """key_averages() as a table."""
        return self.key_averages().table(*args, **kwargs)

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds."""
        return self.events().self_cpu_time_total


class emit_nvtx:
    """In a `with` block operators are NVTX ranges, which Nsight Systems shows.

    >>> with arete.autograd.profiler.emit_nvtx():
    ...     x = arete.ones(2).exp()
    """

    def __init__(self, enabled=True, record_shapes=False):
        self.enabled, self.record_shapes = enabled, record_shapes
        self._on = None

    def __enter__(self):
        if self.enabled:
            self._on = _C._profile.EmitNvtx(self.record_shapes)
        return self

    def __exit__(self, *_):
        self._on = None
