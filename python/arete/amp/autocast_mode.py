"""Regions in which operators choose between half types and float32 by themselves."""
from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Callable, Optional

from .. import _C
from .._C import Tensor

_HALF = (_C.bfloat16, _C.float16)


def is_autocast_available(device_type: str) -> bool:
    """Whether there is autocast for this kind of device."""
    return str(device_type).split(":")[0] in ("cpu", "cuda")


def _known(device_type: Any) -> str:
    kind: str = device_type if isinstance(device_type, str) else device_type.type
    if not is_autocast_available(kind):
        raise RuntimeError(f"User specified an unsupported autocast device_type '{kind}'")
    return kind.split(":")[0]


def _warn(message: str) -> None:
    """On behalf of what made a region. A function of its own: code that names warnings is none that calls could skip."""
    warnings.warn(message, stacklevel=3)


class autocast:
    """Inside, products, convolutions and attention on tensors of one kind of device compute in `dtype` (float16 on
    GPUs, bfloat16 on CPUs by default), what needs range or precision in float32, the rest as it comes. A context
    manager and a decorator; regions nest, `enabled=False` makes one where nothing is cast.

    >>> with arete.autocast("cpu", dtype=arete.bfloat16):
    ...     y = arete.ones(2, 2) @ arete.ones(2, 2)
    >>> y.dtype
    arete.bfloat16
    """

    def __init__(self, device_type: str, dtype: Any = None, enabled: bool = True,
                 cache_enabled: Optional[bool] = None) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        self.device = _known(device_type)
        self.fast_dtype = get_autocast_dtype(self.device) if dtype is None else dtype
        if enabled and self.device == "cuda" and not _C._cuda.is_available():
            _warn("User provided device_type of 'cuda', but CUDA is not available. Disabling autocast.")
            enabled = False
        if self.fast_dtype not in _HALF and (enabled or self.fast_dtype != _C.float32):
            kind = self.device.upper()
            _warn(f"In {kind} autocast, but the target dtype is not supported. Disabling autocast.\n{kind} Autocast only supports "
                  "dtypes of arete.bfloat16, arete.float16 currently.")
            enabled, self.fast_dtype = False, get_autocast_dtype(self.device)
        self._enabled = bool(enabled)
        self._cache_enabled = is_autocast_cache_enabled() if cache_enabled is None else cache_enabled
        self._before: list = []

    def __enter__(self) -> "autocast":
        self._before.append((_C._is_autocast_enabled(self.device), _C._autocast_dtype(self.device), is_autocast_cache_enabled()))
        _C._set_autocast(self.device, self._enabled, self.fast_dtype, self._cache_enabled)
        _C._enter_autocast_region()
        return self

    def __exit__(self, *error: Any) -> bool:
        _C._leave_autocast_region()
        _C._set_autocast(self.device, *self._before.pop())
        return False

    def __call__(self, func: Callable) -> Callable:
        @functools.wraps(func)
        def decorated(*args: Any, **kwargs: Any) -> Any:
            region = object.__new__(type(self))  # calls may run in several threads
            region.__dict__.update(self.__dict__, _before=[])
            with region:
                return func(*args, **kwargs)

        return decorated


# ---- the switches one by one, of this thread


def is_autocast_enabled(device_type: Any = "cuda") -> bool:
    """Whether autocast is on for a kind of device; False for those of torch's that are not here.

    >>> arete.is_autocast_enabled("cpu"), arete.is_autocast_enabled("mps")
    (False, False)
    """
    if device_type in ("mps", "xpu", "hpu", "ipu", "xla", "mtia", "maia"):
        return False
    return _C._is_autocast_enabled(_known(device_type))


def set_autocast_enabled(device_type: Any, enabled: Optional[bool] = None) -> None:
    """set_autocast_enabled(device_type, enabled), or set_autocast_enabled(enabled) for GPUs.

    >>> arete.set_autocast_enabled("cpu", False)
    """
    if enabled is None:
        device_type, enabled = "cuda", device_type
    kind = _known(device_type)
    _C._set_autocast(kind, bool(enabled), _C._autocast_dtype(kind), is_autocast_cache_enabled())


def get_autocast_dtype(device_type: Any) -> Any:
    """The dtype that autocast takes for products.

    >>> arete.get_autocast_dtype("cpu")
    arete.bfloat16
    """
    return _C._autocast_dtype(_known(device_type))


def set_autocast_dtype(device_type: Any, dtype: Any) -> None:
    """Sets the dtype that autocast takes for products.

    >>> arete.set_autocast_dtype("cpu", arete.bfloat16)
    """
    kind = _known(device_type)
    _C._set_autocast(kind, _C._is_autocast_enabled(kind), dtype, is_autocast_cache_enabled())


def get_autocast_gpu_dtype() -> Any:
    """The dtype that autocast takes for products on GPUs.

    >>> arete.get_autocast_gpu_dtype()
    arete.float16
    """
    return get_autocast_dtype("cuda")


def get_autocast_cpu_dtype() -> Any:
    """The dtype that autocast takes for products on CPUs.

    >>> arete.get_autocast_cpu_dtype()
    arete.bfloat16
    """
    return get_autocast_dtype("cpu")


def set_autocast_gpu_dtype(dtype: Any) -> None:
    """Sets that for GPUs.

    >>> arete.set_autocast_gpu_dtype(arete.float16)
    """
    set_autocast_dtype("cuda", dtype)


def set_autocast_cpu_dtype(dtype: Any) -> None:
    """Sets that for CPUs.

    >>> arete.set_autocast_cpu_dtype(arete.bfloat16)
    """
    set_autocast_dtype("cpu", dtype)


def is_autocast_cpu_enabled() -> bool:
    """Whether autocast is on for CPUs.

    >>> arete.is_autocast_cpu_enabled()
    False
    """
    return is_autocast_enabled("cpu")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """Switches autocast for CPUs.

    >>> arete.set_autocast_cpu_enabled(False)
    """
    set_autocast_enabled("cpu", enabled)


def is_autocast_cache_enabled() -> bool:
    """Whether casts of parameters are kept for the length of a region.

    >>> arete.is_autocast_cache_enabled()
    True
    """
    return _C._autocast_cache(None)


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Whether casts of parameters are kept from now on.

    >>> arete.set_autocast_cache_enabled(True)
    """
    _C._autocast_cache(bool(enabled))


def clear_autocast_cache() -> None:
    """Drops the casts of parameters that are kept for the current region.

    >>> arete.clear_autocast_cache()
    """
    _C._clear_autocast_cache()


def autocast_increment_nesting() -> int:
    """Enters a region; gives how deep it is. autocast does it by itself.

    >>> arete.autocast_increment_nesting(), arete.autocast_decrement_nesting()
    (1, 0)
    """
    return _C._enter_autocast_region()


def autocast_decrement_nesting() -> int:
    """Leaves a region; gives how deep the one around it is, whose end drops the kept casts.

    >>> arete.autocast_increment_nesting(), arete.autocast_decrement_nesting()
    (1, 0)
    """
    return _C._leave_autocast_region()


# ---- functions with a backward of their own


def _cast(value: Any, device_type: str, dtype: Any) -> Any:
    """Floating tensors, also in containers, in another dtype."""
    if isinstance(value, Tensor):
        eligible = value.is_floating_point() and value.device.type == device_type and value.dtype is not _C.float64
        return value.to(dtype) if eligible else value
    if isinstance(value, (str, bytes)) or hasattr(value, "__array__"):
        return value
    if isinstance(value, Mapping):
        return {_cast(k, device_type, dtype): _cast(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, Iterable):
        values = (_cast(v, device_type, dtype) for v in value)
        return type(value)(values) if isinstance(value, (list, tuple)) else values
    return value


def custom_fwd(fwd: Optional[Callable] = None, *, device_type: str, cast_inputs: Any = None) -> Callable:
    """Decorates the forward() of an autograd.Function: with `cast_inputs` its tensors are cast to that dtype in a region
    and it runs without autocast; else it runs as its caller does."""
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        inside = is_autocast_enabled(device_type)
        args[0]._dtype = get_autocast_dtype(device_type)
        args[0]._fwd_used_autocast = inside and cast_inputs is None
        if not inside or cast_inputs is None:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(args[0], *_cast(args[1:], device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))

    return decorated


def custom_bwd(bwd: Optional[Callable] = None, *, device_type: str) -> Callable:
    """Decorates the backward() of an autograd.Function: it runs under autocast if and as its forward() did."""
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        with autocast(device_type, enabled=args[0]._fwd_used_autocast, dtype=args[0]._dtype):
            return bwd(*args, **kwargs)

    return decorated
