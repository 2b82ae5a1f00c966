"""Profiling under torch.profiler's names: which operator ran when and for how long, which kernels it started, and
what held it back. The recording itself is C++ (arete/profile/)."""
from __future__ import annotations

import enum
import functools
import os
import warnings
import weakref
from typing import Any, Callable

from .. import _C

_P = _C._profile
_P.install_stack_source(os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep)


class ProfilerActivity(enum.Enum):
    """What is recorded: the host, or the work of GPUs.

    >>> arete.profiler.ProfilerActivity.CPU in arete.profiler.supported_activities()
    True
    """

    CPU = 0
    CUDA = 1
    XPU = 2  # of devices that there are not
    MTIA = 3
    HPU = 4
    PrivateUse1 = 5


class DeviceType(enum.Enum):
    """Where an event ran.

    >>> with arete.profiler.profile() as p:
    ...     x = arete.ones(2).exp()
    >>> {e.device_type for e in p.events()}
    {<DeviceType.CPU: 0>}
    """

    CPU = 0
    CUDA = 1


def kineto_available() -> bool:
    """Whether profiles and trace files can be had: always.

    >>> arete.profiler.kineto_available()
    True
    """
    return True


class ProfilerAction(enum.IntEnum):
    """What a profiler does in a step.

    >>> arete.profiler.schedule(wait=1, warmup=1, active=1)(0).name
    'NONE'
    """

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities() -> set[ProfilerActivity]:
    """The activities that can be recorded here.

    >>> all(a.name in ("CPU", "CUDA") for a in arete.profiler.supported_activities())
    True
    """
    return {ProfilerActivity.CPU} | ({ProfilerActivity.CUDA} if _C._cuda.is_available() else set())


def schedule(*, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0):
    """A function of the step that says what to do: after `skip_first` steps, leave out `wait`, record and forget
    `warmup`, record and hand over `active`; over and over, or `repeat` times.

    >>> f = arete.profiler.schedule(wait=1, warmup=1, active=2, repeat=1)
    >>> [f(step).name for step in range(5)]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    action = _P.schedule(wait, warmup, active, repeat, skip_first, bool(skip_first_wait))

    def of_step(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        return ProfilerAction(action(step))

    return of_step


class Interval:
    """Microseconds since the recording began.

    >>> arete.profiler.Interval(2.0, 5.0).elapsed_us()
    3.0
    """

    def __init__(self, start: float, end: float):
        self.start, self.end = start, end

    def elapsed_us(self) -> float:
        return self.end - self.start

    def __repr__(self):
        return f"Interval(start={self.start}, end={self.end})"


_P.FunctionEvent.time_range = property(lambda e: Interval(*e._time_range))
for _class in (_P.FunctionEvent, _P.FunctionEventAvg):
    _class.device_type = property(lambda e: DeviceType.CUDA if e._on_device else DeviceType.CPU)
    _class.use_device = property(lambda e: "cuda" if e._has_device_times else None)
    # What no event here is, under torch's names.
    _class.is_async = _class.is_remote = _class.is_legacy = False
    _class.node_id, _class.overload_name = -1, ""
    for _name in ("cpu_time", "device_time", "cpu_time_total", "device_time_total", "self_cpu_time_total", "self_device_time_total"):
        setattr(_class, _name + "_str", property(lambda e, name=_name: _P.format_time(getattr(e, name))))
    # The names of before torch 2.3.
    for _old in ("cuda_time_total", "self_cuda_time_total", "cuda_memory_usage", "self_cuda_memory_usage"):
        setattr(_class, _old, property(lambda e, name=_old.replace("cuda", "device"): getattr(e, name)))
    _class.cuda_time = property(lambda e: e.device_time)


class EventList(list):
    """Events, or averages of them, of one recording.

    >>> with arete.profiler.profile() as p:
    ...     x = arete.ones(2).exp().exp()
    >>> [(e.key, e.count) for e in p.events().key_averages()]
    [('ones', 1), ('exp', 2)]
    """

    def __init__(self, items, trace):
        super().__init__(items)
        self._trace = trace

    def table(self, sort_by=None, row_limit=100, max_src_column_width=75, max_name_column_width=55,
              max_shapes_column_width=80, header=None, top_level_events_only=False) -> str:
        """A readable table. `sort_by`: cpu_time_total, self_cpu_time_total, cuda_time_total, self_cuda_time_total,
        cpu_time, cuda_time, cpu_memory_usage, self_cpu_memory_usage, cuda_memory_usage, count, flops, bytes. A row for each
        event; `top_level_events_only` leaves out what ran within other events."""
        rows = [e if isinstance(e, _P.FunctionEventAvg) else e._row for e in self]
        return self._trace.table(rows, sort_by or "", row_limit, max_src_column_width, max_name_column_width,
                                 max_shapes_column_width, header or "", top_level_events_only)

    def key_averages(self, group_by_input_shape=False, group_by_stack_n=0, group_by_overload_name=False) -> "EventList":
        """Events of one name (and shapes, and innermost frames of the stack) added up. Names have no overloads."""
        return EventList(self._trace.key_averages(group_by_input_shape, group_by_stack_n), self._trace)

    def total_average(self):
        """All events in one."""
        return self._trace.total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds."""
        return sum(e.self_cpu_time_total for e in self)

    def export_chrome_trace(self, path) -> None:
        """Writes trace events as JSON."""
        self._trace.export_chrome_trace(os.fspath(path))

    def export_stacks(self, path, metric="self_cpu_time_total") -> None:
        """Writes folded stacks for flame graphs."""
        self._trace.export_stacks(os.fspath(path), metric)

    def __str__(self):
        return self.table()


class _Results:
    """What can be asked of a recording; a subclass has _trace()."""

    def events(self) -> EventList:
        """Every event, by its begin."""
        trace = self._trace()
        return EventList(trace.events(), trace)

    def key_averages(self, group_by_input_shape=False, group_by_stack_n=0, group_by_overload_name=False) -> EventList:
        """Events of one name (and shapes, and innermost frames of the stack) added up."""
        trace = self._trace()
        return EventList(trace.key_averages(group_by_input_shape, group_by_stack_n), trace)

    def total_average(self):
        """All events in one."""
        return self._trace().total_average()

    def export_chrome_trace(self, path) -> None:
        """Writes trace events as JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing open; packed where the
        name ends in ".gz"."""
        self._trace().export_chrome_trace(os.fspath(path))

    def export_stacks(self, path, metric="self_cpu_time_total") -> None:
        """Writes folded stacks for flame graphs; needs with_stack. `metric`: self_cpu_time_total or
        self_cuda_time_total."""
        self._trace().export_stacks(os.fspath(path), metric)

    def export_memory_timeline(self, path, device=None) -> None:
        """Writes how much memory was held for what, at each moment; needs profile_memory. `device`: the first GPU if there
        is one, else the CPU.

        The name's end says how: ".html" is a page that needs no network; ".json" and ".json.gz" hold [times, sizes], times in
        microseconds and with each the bytes of PyTorch's categories (0, PARAMETER, OPTIMIZER_STATE, INPUT, TEMPORARY,
        ACTIVATION, GRADIENT, AUTOGRAD_DETAIL, unknown); ".raw.json.gz" holds each change as [time in nanoseconds, action,
        bytes, category]. Categories are told by who took the memory and how long it was held. PARAMETER and INPUT are not
        told: what was there before the recording, or was made by operators without gradients, is unknown."""
        device = device or ("cuda:0" if _C._cuda.is_available() else "cpu")
        self._trace().export_memory_timeline(os.fspath(path), str(device))

    def synchronizations(self) -> list:
        """Every wait of the host for a device and every transfer, in order: what, kind, device, bytes, blocking,
        host_time (microseconds), operator, source."""
        return self._trace().synchronizations()

    def synchronization_table(self) -> str:
        """The same as a readable table."""
        return self._trace().synchronization_table()

    def operator_rates(self) -> list:
        """For each operator and dtype the rates it reached, and what bounds it (regime): "overhead", "memory" or
        "compute". Measures the machine's ceilings where they are not known yet."""
        return self._trace().rates()

    def rate_table(self) -> str:
        """The same as a readable table."""
        return self._trace().rate_table()

    def export_roofline(self, path) -> None:
        """Draws the operators under the machine's roofs: an SVG image where `path` ends in ".svg", a page where it ends in
        ".html"."""
        self._trace().export_roofline(os.fspath(path))


def _refuse(**options) -> None:
    """What would be accepted and do nothing is an error."""
    asked = [name for name, value in options.items() if value]
    if asked:
        raise NotImplementedError(f"profile: there is no {', '.join(asked)}")


def _warn_without_gpu(asked: bool) -> None:
    if asked and not _C._cuda.is_available():
        warnings.warn("CUDA is not available, disabling CUDA profiling", stacklevel=4)


def __getattr__(name: str):
    if name == "profiler":
        import importlib

        return importlib.import_module(f"{__name__}.profiler")
    raise AttributeError(f"module 'arete.profiler' has no attribute '{name}'")


def _default_schedule_fn(_: int) -> ProfilerAction:
    return ProfilerAction.RECORD


_latest: Callable[[], Any] = lambda: None  # the profile that began last, while there is one


def _profiler_enabled() -> bool:
    """Whether a profiler runs."""
    running = _latest()
    return running is not None and running._profiler.is_running


def _disable_profiler() -> None:
    """Ends the one that runs. What it has recorded stays with its `profile`."""
    if not _profiler_enabled():
        raise RuntimeError("Can't disable the profiler when it's not running")
    _latest().stop()


class profile(_Results):
    """Records what the library does between start() and stop(), or within a `with` block, on all threads; with a
    schedule, only in the steps that it names. GPU work shows where there is a GPU. `with_stack`: Python frames of
    each event. `with_flops`: FLOPs in tables (operator_rates() has them in any case). `custom_trace_id_callback` names
    each recording in its trace file.

    >>> with arete.profiler.profile(record_shapes=True) as p:
    ...     with arete.profiler.record_function("products"):
    ...         x = arete.mm(arete.ones(2, 3), arete.ones(3, 4))
    >>> [(e.name, e.input_shapes, e.flops) for e in p.events() if e.name in ("products", "mm")]
    [('products', [], 0.0), ('mm', [[2, 3], [3, 4]], 48.0)]
    >>> "# of Calls" in p.key_averages().table(sort_by="self_cpu_time_total", row_limit=10)
    True
    """

    def __init__(self, *, activities=None, schedule=None, on_trace_ready=None, record_shapes=False,
                 profile_memory=False, with_stack=False, with_flops=False, with_modules=False,
                 experimental_config=None, execution_trace_observer=None, acc_events=False, use_cuda=None,
                 custom_trace_id_callback=None, post_processing_timeout_s=None):
        _refuse(acc_events=acc_events, execution_trace_observer=execution_trace_observer, with_modules=with_modules,
                experimental_config=experimental_config, post_processing_timeout_s=post_processing_timeout_s)
        chosen = set(activities) if activities is not None else supported_activities()
        if use_cuda is not None:
            chosen = (chosen | {ProfilerActivity.CUDA}) if use_cuda else (chosen - {ProfilerActivity.CUDA})
        if not chosen or not all(isinstance(a, ProfilerActivity) for a in chosen):
            raise ValueError("No valid profiler activities found")
        for absent in [a for a in chosen if a not in (ProfilerActivity.CPU, ProfilerActivity.CUDA)]:
            warnings.warn(f"{absent.name} is not available, disabling {absent.name} profiling", stacklevel=2)
            chosen.discard(absent)
        if not chosen:
            raise ValueError("No valid profiler activities found")
        self.activities = chosen
        self.schedule = schedule
        self.on_trace_ready = on_trace_ready
        self.custom_trace_id_callback = custom_trace_id_callback
        # The C++ object must not hold what may hold it: collectors of cycles do not see through it.
        me = weakref.ref(self)
        self._profiler = _P.Profiler(
            cpu=ProfilerActivity.CPU in chosen, cuda=ProfilerActivity.CUDA in chosen, record_shapes=record_shapes,
            profile_memory=profile_memory, with_stack=with_stack, with_flops=with_flops,
            schedule=(lambda step: int(me().schedule(step))) if schedule else None,
            on_trace_ready=(lambda: me().on_trace_ready(me())) if on_trace_ready else None,
            trace_id=lambda: str(me().custom_trace_id_callback()) if me().custom_trace_id_callback else "")

    def _trace(self):
        return self._profiler.trace()

    @property
    def step_num(self) -> int:
        """The number of the present step."""
        return self._profiler.step_num

    @property
    def current_action(self) -> ProfilerAction:
        """What the schedule says of the present step."""
        if self._profiler.is_running:
            return ProfilerAction(self._profiler.action)
        return ProfilerAction(self.schedule(self.step_num)) if self.schedule else ProfilerAction.RECORD

    def start(self) -> None:
        global _latest
        _latest = weakref.ref(self)
        _warn_without_gpu(ProfilerActivity.CUDA in self.activities and ProfilerActivity.CPU not in self.activities)
        self._profiler.start()

    def stop(self) -> None:
        self._profiler.stop()

    def step(self) -> None:
        """The next step begins."""
        self._profiler.step()

    def prepare_trace(self) -> None:
        """Records from now on, to forget it at start_trace()."""
        self._profiler.prepare_trace()

    def start_trace(self) -> None:
        """Records from now on, without the schedule."""
        self._profiler.start_trace()

    def stop_trace(self) -> None:
        """Ends what start_trace() began; on_trace_ready is not called."""
        self._profiler.stop_trace()

    def toggle_collection_dynamic(self, enable: bool, activities) -> None:
        """While it records: leaves these activities out from now on, or takes them again."""
        chosen = set(activities)
        if not all(isinstance(a, ProfilerActivity) for a in chosen):
            raise ValueError("toggle_collection_dynamic: activities are members of ProfilerActivity")
        self._profiler.toggle(enable, ProfilerActivity.CPU in chosen, ProfilerActivity.CUDA in chosen)

    def add_metadata(self, key: str, value: str) -> None:
        """Text for the trace file."""
        self._profiler.add_metadata(key, value)

    def add_metadata_json(self, key: str, value: str) -> None:
        """A value in JSON for the trace file."""
        self._profiler.add_metadata_json(key, value)

    def preset_metadata_json(self, key: str, value: str) -> None:
        """The same, before the recording."""
        self._profiler.add_metadata_json(key, value)

    def set_custom_trace_id_callback(self, callback) -> None:
        """callback() names each recording that begins from now on."""
        self.custom_trace_id_callback = callback

    def get_trace_id(self):
        """The name of the last recording that has begun; None before."""
        return self._profiler.trace_id or None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()


def tensorboard_trace_handler(dir_name, worker_name=None, use_gzip=False):
    """For on_trace_ready: writes each recording into a folder, as TensorBoard's profiler plug-in wants it.

    >>> import os, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with arete.profiler.profile(on_trace_ready=arete.profiler.tensorboard_trace_handler(folder.name, "me")):
    ...     x = arete.ones(2) + 1
    >>> [name.endswith(".pt.trace.json") for name in os.listdir(folder.name)]
    [True]
    """
    return lambda p: _P.write_tensorboard_trace(p._profiler, os.fspath(dir_name), worker_name or "", use_gzip)


class record_function:
    """Names a part of the program in recordings: a `with` block, or a function that it decorates.

    >>> @arete.profiler.record_function("double")
    ... def f(x):
    ...     return x + x
    >>> with arete.profiler.profile() as p:
    ...     x = f(arete.ones(2))
    >>> [(e.name, e.cpu_parent.name) for e in p.events() if e.name == "add"]
    [('add', 'double')]
    """

    def __init__(self, name: str, args: str | None = None):
        self.name, self.args = name, args
        self._open: list = []

    def __enter__(self):
        self._open.append(_P.RecordFunction(self.name))
        return self

    def __exit__(self, *_):
        self._open.pop().end()

    def __call__(self, function):
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return wrapped


def ceilings(device="cpu", again=False) -> dict:
    """What the machine can do at most, measured once and kept: bandwidth (bytes per second of a copy),
    launch_overhead (seconds) and gemm (FLOP per second by dtype); cache (bytes). And how far to trust them: date, spread (how
    much slower the middle round was than the best), load (of the processors, before) and doubts (text; "" if there are none).

    >>> sorted(arete.profiler.ceilings("cpu"))
    ['bandwidth', 'cache', 'date', 'device', 'doubts', 'gemm', 'launch_overhead', 'load', 'spread']
    """
    return _P.ceilings(str(device), again)
