"""Arete: tensors, differentiation and training on CPUs and GPUs under the names of torch.

    import arete as torch
"""
from __future__ import annotations

import builtins as _builtins

from . import _C, _functions, _ops, _signatures
from ._C import (  # noqa: F401
    ArgumentError,
    DTypeError,
    AutogradError,
    BugError,
    DeviceError,
    Generator,
    OutOfMemoryError,
    Size,
    Tensor,
    bfloat16,
    bool,  # noqa: A004
    complex64,
    complex128,
    default_generator,
    device,
    dtype,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    float64,
    frombuffer,
    get_default_dtype,
    get_num_threads,
    int8,
    int16,
    int32,
    int64,
    is_grad_enabled,
    is_inference_mode_enabled,
    promote_types,
    set_num_threads,
    set_printoptions,
    tensor,
    uint8,
)
from ._grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled  # noqa: F401
from ._scaled import _scaled_mm  # noqa: F401
from ._streams import Event, Stream  # noqa: F401
from ._tensor import from_dlpack, from_numpy  # noqa: F401

__version__ = "0.1.0"

half, float, double = float16, float32, float64  # noqa: A001
short, int, long = int16, int32, int64  # noqa: A001
cfloat, cdouble = complex64, complex128
newaxis = None


class _Layout:
    """How the elements of a tensor are stored; `strided` is the only one.

    >>> arete.ones(2).layout
    arete.strided
    """

    def __init__(self, name):
        self._name = name

    def __repr__(self):
        return f"arete.{self._name}"


class memory_format(_Layout):
    """How a copy lays out its memory.

    >>> arete.zeros(1, 2, 3, 3).to(memory_format=arete.channels_last).stride()
    (18, 1, 6, 2)
    """


strided = _Layout("strided")
contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
layout = _Layout


class finfo:
    """Limits of a floating dtype: eps, max, min, tiny, bits.

    >>> arete.finfo(arete.float32).max, arete.finfo().eps
    (3.4028234663852886e+38, 1.1920928955078125e-07)
    >>> arete.finfo(arete.int32)
    Traceback (most recent call last):
    TypeError: torch.finfo() requires a floating point input type. Use torch.iinfo to handle 'arete.int32'
    """

    def __init__(self, type=None):  # noqa: A002
        type = get_default_dtype() if type is None else type
        if not type.is_floating_point and not type.is_complex:
            raise TypeError(f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle '{type}'")
        type = type.to_real()
        self.dtype = type._name
        self.bits = 8 * type.itemsize
        self.eps, self.max, self.min = type._eps, type._max, type._min
        self.tiny = self.smallest_normal = {
            "float16": 2.0**-14, "float64": 2.0**-1022, "float8_e4m3fn": 2.0**-6, "float8_e5m2": 2.0**-14,
        }.get(type._name, 2.0**-126)  # fmt: skip
        self.resolution = {"float64": 1e-15, "float32": 1e-6, "float16": 1e-3, "bfloat16": 1e-2}.get(type._name, 1.0)

    def __repr__(self):
        return f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, " \
               f"smallest_normal={self.tiny:g}, tiny={self.tiny:g}, dtype={self.dtype})"


class iinfo:
    """Limits of an integer dtype: max, min, bits.

    >>> arete.iinfo(arete.int8).min, arete.iinfo(arete.int8).max
    (-128, 127)
    >>> arete.iinfo(arete.float32)
    Traceback (most recent call last):
    TypeError: torch.iinfo() requires an integer input type. Use torch.finfo to handle 'arete.float32'
    """

    def __init__(self, type):  # noqa: A002
        if type.is_floating_point or type.is_complex or type is _C.bool:
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{type}'")
        self.dtype = type._name
        self.bits = 8 * type.itemsize
        self.max = 2 ** (self.bits - (1 if type.is_signed else 0)) - 1
        self.min = -(2 ** (self.bits - 1)) if type.is_signed else 0

    def __repr__(self):
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


def manual_seed(seed: _builtins.int) -> Generator:
    """Seeds the random numbers of all devices.

    The same seed gives the same numbers on every run and device.

    >>> _ = arete.manual_seed(1)
    >>> x = arete.rand(3)
    >>> _ = arete.manual_seed(1)
    >>> arete.equal(x, arete.rand(3))
    True
    """
    _C.manual_seed(seed)
    return default_generator


def set_default_dtype(d) -> None:
    """The dtype of floating tensors made without one.

    TypeError for other than float16, bfloat16, float32 and float64.

    >>> arete.set_default_dtype(arete.float64)
    >>> arete.tensor([1.0]).dtype
    arete.float64
    >>> arete.set_default_dtype(arete.float32)
    >>> arete.set_default_dtype(arete.int32)
    Traceback (most recent call last):
    TypeError: only floating-point types are supported as the default type
    """
    if d not in (float16, bfloat16, float32, float64):
        raise TypeError("only floating-point types are supported as the default type")
    _C.set_default_dtype(d)


def set_default_device(device) -> None:
    """Where this thread makes tensors that are given no device; None: in host memory again.

    >>> arete.set_default_device("meta")
    >>> arete.zeros(2).device, arete.get_default_device()
    (device(type='meta'), device(type='meta'))
    >>> arete.set_default_device(None)
    """
    _C._set_default_device(None if device is None else _C.device(device))


def get_default_device():
    """What set_default_device() or a surrounding `with arete.device(...)` says.

    >>> arete.get_default_device()
    device(type='cpu')
    >>> with arete.device("meta"):
    ...     arete.get_default_device()
    device(type='meta')
    """
    return _C._default_device() or _C.device("cpu")


# Parts that are loaded when they are used.
_LAZY = ("accelerator", "autograd", "backends", "cpu", "cuda", "fft", "linalg", "masked", "multiprocessing", "nn", "numpy", "optim", "random", "special",
         "testing", "utils", "serialization", "amp", "profiler", "signal", "version", "vision", "xpu")  # fmt: skip

_AUTOCAST = ("autocast", "autocast_decrement_nesting", "autocast_increment_nesting", "clear_autocast_cache", "get_autocast_cpu_dtype",
             "get_autocast_dtype", "get_autocast_gpu_dtype", "is_autocast_cache_enabled", "is_autocast_cpu_enabled",
             "is_autocast_enabled", "set_autocast_cache_enabled", "set_autocast_cpu_dtype", "set_autocast_cpu_enabled",
             "set_autocast_dtype", "set_autocast_enabled", "set_autocast_gpu_dtype")  # fmt: skip


def _install() -> None:
    """Puts operators under torch's names: functions here, methods into Tensor."""
    here = globals()
    surfaces = _C._record_surfaces()
    signatures = {k: v for k, v in _signatures.SIGNATURES.items() if not k.startswith("_")}
    for name in sorted(surfaces.keys() | signatures.keys()):
        overloads = signatures.get(name, [(name, None)])
        surface = surfaces.get(name) or surfaces[overloads[0][0]]
        if surface in ("internal", "functional") or name.startswith(("linalg_", "fft_", "special_")):
            continue
        if name not in here and name not in _LAZY:
            here[name] = _C.Operator(name, overloads)
        schema = _C._record(overloads[0][0])["schema"]
        takes_self = schema[schema.index("(") + 1 :].startswith(("Tensor self", "Tensor input"))
        if surface == "function" or not takes_self:
            continue
        if name not in Tensor.__dict__:
            setattr(Tensor, name, _C.OperatorMethod(name, overloads))
        writers = [o for o in overloads if _C._record(o[0])["in_place"]]
        if writers:
            if not hasattr(Tensor, name + "_"):
                setattr(Tensor, name + "_", _C.OperatorMethod(name + "_", writers, True))
            if name + "_" not in here:
                here[name + "_"] = _C.Operator(name + "_", writers, True)
    for alias, name in {**_C._aliases(), **_signatures.ALIASES}.items():
        for end in ("", "_"):
            if name + end in here:
                here.setdefault(alias + end, here[name + end])
            if hasattr(Tensor, name + end) and not hasattr(Tensor, alias + end):
                setattr(Tensor, alias + end, Tensor.__dict__[name + end])
    for name, value in vars(_functions).items():
        if not name.startswith("_") and (callable(value) or isinstance(value, _builtins.float)) and \
                getattr(value, "__module__", _functions.__name__) == _functions.__name__:
            here[name] = value
    for name, function in _functions.METHODS.items():
        setattr(Tensor, name, function)


_install()

def __getattr__(name: str):
    if name in _LAZY:
        import importlib

        try:
            return importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as e:
            if e.name == f"{__name__}.{name}":
                raise AttributeError(f"module 'arete' has no attribute '{name}'") from None
            raise
    if name in _AUTOCAST:
        from .amp import autocast_mode

        return getattr(autocast_mode, name)
    if name in ("save", "load"):
        from . import serialization

        return getattr(serialization, name)
    if name in ("seed", "initial_seed", "get_rng_state", "set_rng_state"):
        from . import random

        return getattr(random, name)
    raise AttributeError(f"module 'arete' has no attribute '{name}'")


def __dir__():
    return sorted(set(globals()) | set(_LAZY) | set(_AUTOCAST) | {"save", "load"})


def set_float32_matmul_precision(precision: str) -> None:
    """"highest" (f32 throughout), "high" or "medium" (TF32 where the hardware has it).

    >>> arete.set_float32_matmul_precision("highest")
    >>> arete.set_float32_matmul_precision("low")
    Traceback (most recent call last):
    arete.ArgumentError: unknown precision...
    """
    _C._matmul_precision(precision)


def get_float32_matmul_precision() -> str:
    """What set_float32_matmul_precision() set.

    >>> arete.get_float32_matmul_precision()
    'highest'
    """
    return _C._matmul_precision(None)


_deterministic_warn_only = False


def use_deterministic_algorithms(mode: _builtins.bool, *, warn_only: _builtins.bool = False) -> None:
    """Only algorithms that give the same bits each time. No operator is refused for it, so `warn_only` is only remembered.
    backends.cudnn.deterministic is a switch of its own.

    >>> arete.use_deterministic_algorithms(True)
    >>> arete.are_deterministic_algorithms_enabled()
    True
    >>> arete.use_deterministic_algorithms(False)
    """
    global _deterministic_warn_only
    _C._deterministic(_builtins.bool(mode))
    _deterministic_warn_only = _builtins.bool(warn_only)


def are_deterministic_algorithms_enabled() -> _builtins.bool:
    """Whether only such algorithms are used.

    >>> arete.are_deterministic_algorithms_enabled()
    False
    """
    return _C._deterministic(None)


def is_deterministic_algorithms_warn_only_enabled() -> _builtins.bool:
    """What use_deterministic_algorithms() got as warn_only.

    >>> arete.is_deterministic_algorithms_warn_only_enabled()
    False
    """
    return _deterministic_warn_only


def set_deterministic_debug_mode(debug_mode) -> None:
    """use_deterministic_algorithms() in one word: "default" (0, off), "warn" (1) or "error" (2).

    >>> arete.set_deterministic_debug_mode("warn")
    >>> arete.are_deterministic_algorithms_enabled(), arete.get_deterministic_debug_mode()
    (True, 1)
    >>> arete.set_deterministic_debug_mode(0)
    """
    modes = ("default", "warn", "error")
    if not isinstance(debug_mode, (str, _builtins.int)):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    mode = modes.index(debug_mode) if debug_mode in modes else debug_mode
    if mode not in (0, 1, 2):
        expected = "one of `default`, `warn`, `error`" if isinstance(debug_mode, str) else "0, 1, or 2"
        raise RuntimeError(f"invalid value of debug_mode, expected {expected}, but got {debug_mode}")
    use_deterministic_algorithms(mode > 0, warn_only=mode == 1)


def get_deterministic_debug_mode() -> _builtins.int:
    """0, 1 or 2: see set_deterministic_debug_mode().

    >>> arete.get_deterministic_debug_mode()
    0
    """
    return 0 if not are_deterministic_algorithms_enabled() else 1 if _deterministic_warn_only else 2
