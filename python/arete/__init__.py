"""Arete: tensors, differentiation and training on CPUs and GPUs under the names of torch.

    import arete as torch
"""
from __future__ import annotations

import builtins as _builtins

from . import _threads  # noqa: F401  # before _C
from . import _C
from ._C import Generator, bfloat16, default_generator, float16, float32, float64
from ._grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled  # noqa: F401
from ._grouped import grouped_mm as _grouped_mm  # noqa: F401
from ._operators import *  # noqa: F403
from ._operators import _Layout, _ops, _tensor_types  # noqa: F401
from ._scaled import _scaled_mm  # noqa: F401
from ._streams import Event, Stream  # noqa: F401
from .version import __version__  # noqa: F401


def manual_seed(seed: _builtins.int) -> Generator:
    """Seeds the random numbers of all devices.

    The same seed gives the same numbers on every run and device.

    >>> _ = arete.manual_seed(1)
    >>> x = arete.rand(3)
    >>> _ = arete.manual_seed(1)
    >>> arete.equal(x, arete.rand(3))
    True
    """
    from .random import _check_may_set  # loaded when it is wanted

    _check_may_set()
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


def set_default_tensor_type(t) -> None:
    """set_default_dtype() and set_default_device() by an old type or its name, with a warning: they have taken its
    place.

    >>> arete.set_default_tensor_type(arete.DoubleTensor)
    >>> arete.tensor([1.0]).dtype
    arete.float64
    >>> arete.set_default_tensor_type("torch.FloatTensor")
    >>> arete.set_default_tensor_type(arete.LongTensor)
    Traceback (most recent call last):
    TypeError: only floating-point types are supported as the default type
    """
    import warnings

    old = _tensor_types.named(t)
    if old is None:
        raise TypeError("invalid type object: only floating-point types are supported as the default type")
    set_default_dtype(old.dtype)
    warnings.warn("torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use "
                  "torch.set_default_dtype() and torch.set_default_device() as alternatives.", UserWarning,
                  stacklevel=2)
    set_default_device("cuda" if old.is_cuda else None)


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
_LAZY = ("__config__", "_custom_ops", "_dynamo", "_functorch", "_guards", "_higher_order_ops", "_inductor", "_logging", "_subclasses",
         "_tensor_str", "_utils", "accelerator", "amp", "ao", "as_torch", "autograd", "backends", "compiler", "cpu",
         "cuda", "cupy", "cupyx", "distributed", "distributions", "export", "fft", "func", "functional", "futures",
         "fx", "hub", "jit", "kernels", "library", "linalg", "masked", "metrics", "mps", "mtia", "multiprocessing",
         "nested", "nn", "numba", "numpy", "onnx", "ops", "optim", "overrides", "profiler", "pycuda", "quantization",
         "quasirandom", "random", "return_types", "serialization", "signal", "sparse", "special", "storage", "testing",
         "torch_version", "training", "types", "utils", "version", "vision", "xpu")

# Names that are loaded when they are used, by the modules that have them.
_FROM = {name: module for module, names in {
    "_absent_dtypes": "complex32 float4_e2m1fn_x2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu int1 int2 int3 int4 int5 int6 "
                      "int7 qint32 qint8 quint2x4 quint4x2 quint8 uint1 uint2 uint3 uint4 uint5 uint6 uint7",
    "_higher_order_ops": "cond",
    "_aten": "_embedding_bag",
    "_checks": "_assert _assert_async _check_is_size _check_tensor_all _check_tensor_all_with _check_with _shape_as_tensor",
    "_refused": "PyTorchFileReader PyTorchFileWriter",
    "_symbolic": "SymBool SymFloat SymInt sym_float sym_int sym_ite sym_max sym_min sym_not sym_sqrt sym_sum",
    "amp.autocast_mode": "autocast autocast_decrement_nesting autocast_increment_nesting clear_autocast_cache get_autocast_cpu_dtype "
                         "get_autocast_dtype get_autocast_gpu_dtype is_autocast_cache_enabled is_autocast_cpu_enabled is_autocast_enabled "
                         "set_autocast_cache_enabled set_autocast_cpu_dtype set_autocast_cpu_enabled set_autocast_dtype "
                         "set_autocast_enabled set_autocast_gpu_dtype",
    "amp.grad_scaler": "GradScaler", "autograd": "is_anomaly_enabled", "distributions.gamma": "_sample_dirichlet", "func": "vmap",
    "futures": "Future",
    "jit": "ScriptFunction ScriptModule",
    "nn.functional._activation": "_softmax_backward_data",
    "random": "seed initial_seed get_rng_state set_rng_state",
    "serialization": "save load", "signal._periodic": "bartlett_window blackman_window hamming_window hann_window kaiser_window",
    "sparse": "dsmm saddmm smm sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor "
              "sparse_csr_tensor spmm",
    "types": "TensorType",
}.items() for name in names.split()}

# What torch has and Arete does not, with the reason.
_ABSENT = {
    "package": "programs are not packed",
    **dict.fromkeys(("fake_quantize_per_tensor_affine", "fake_quantize_per_channel_affine"),
                    "there are no quantised tensors; round and clamp in an autograd.Function"),
    **dict.fromkeys(("quantize_per_tensor", "quantize_per_channel"), "there are no quantised tensors"),
}

def __getattr__(name: str):
    import importlib

    if name in _LAZY:
        try:
            return importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as e:
            if e.name == f"{__name__}.{name}":
                raise AttributeError(f"module 'arete' has no attribute '{name}'") from None
            raise
    if name in _FROM:
        module = importlib.import_module(f"{__name__}.{_FROM[name]}")
        value = module.NAMES[name] if _FROM[name] in ("_absent_dtypes", "_refused") else getattr(module, name)
        return globals().setdefault(name, value)  # found without asking here again, also by what watches a call
    if name == "torch":  # PyTorch's own module has its name inside, and programs write it so
        import sys

        return sys.modules[__name__]
    if name == "set_anomaly_enabled":
        return _C._set_anomaly
    if name == "compile":
        if _compilation_is_off():
            return _as_it_is
        from .compiler import compile

        return compile
    raise AttributeError(f"module 'arete' has no attribute '{name}'" + (f": {_ABSENT[name]}" if name in _ABSENT else ""))


def _compilation_is_off() -> _builtins.bool:
    import os

    return "1" in (os.environ.get("TORCH_COMPILE_DISABLE"), os.environ.get("TORCHDYNAMO_DISABLE"))


def _as_it_is(model=None, *, fullgraph=False, dynamic=None, backend="inductor", mode=None, options=None, disable=False):
    """torch.compile where it is switched off: the function or module itself, as a decorator with or without arguments."""
    return (lambda function: function) if model is None else model


def __dir__():
    return sorted(set(globals()) | set(_LAZY) | set(_FROM) | {"compile"})


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


_interop_threads = None


def set_num_interop_threads(num: _builtins.int) -> None:
    """What get_num_interop_threads() says from now on. In torch that many threads run what programs of torch.jit fork;
    there, too, other programs call operators one after the other. How many threads each has, set_num_threads() says.

    >>> arete.set_num_interop_threads(2)
    >>> arete.get_num_interop_threads()
    2
    >>> arete.set_num_interop_threads(0)
    Traceback (most recent call last):
    RuntimeError: set_num_interop_threads expects a positive integer
    """
    global _interop_threads
    if not isinstance(num, _builtins.int) or isinstance(num, _builtins.bool):
        raise RuntimeError(f"set_num_interop_threads expects an int, but got {type(num).__name__}")
    if num <= 0:
        raise RuntimeError("set_num_interop_threads expects a positive integer")
    _interop_threads = num


def get_num_interop_threads() -> _builtins.int:
    """What set_num_interop_threads() set, the number of processors before.

    >>> arete.get_num_interop_threads() > 0
    True
    """
    if _interop_threads is not None:
        return _interop_threads
    import os

    return os.cpu_count() or 1


def _check(cond, message=None) -> None:
    """RuntimeError with message() if `cond` is False.

    >>> arete._check(1 > 2, lambda: "one is not more than two")
    Traceback (most recent call last):
    RuntimeError: one is not more than two
    """
    if not isinstance(cond, _builtins.bool):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if not cond:
        if message is not None and not callable(message):
            raise TypeError("message must be a callable")
        raise RuntimeError("Expected cond to be True, but got False" if message is None else str(message()))


def get_device_module(device=None):
    """The module of a kind of device: arete.cuda or arete.cpu; without one that of GPUs where there are any.

    >>> arete.get_device_module("cpu") is arete.cpu
    True
    """
    import importlib

    kind = ("cuda" if _C._cuda.is_available() else "cpu") if device is None else _C.device(device).type
    if kind not in ("cpu", "cuda"):
        raise RuntimeError(f"Invalid device '{kind}': there is no module for it")
    return importlib.import_module(f"{__name__}.{kind}")


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
