"""Tensors and their operators under torch's names, made from the records of the C++ library. This package is one room of the house: the
modules of the others import it, or names of this file from it, and none of its parts; `_ops` has every record under its own name.
"""
from __future__ import annotations

import builtins as _builtins

from .. import _C
from .._C import (  # noqa: F401
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
    uint16,
    uint32,
    uint64,
)
from . import _c_names, _foreach, _functions, _ops, _schemas, _storage, _tensor_types  # noqa: F401
from ._families import install as _install_family  # noqa: F401
from ._functions._methods import given as _given  # noqa: F401
from ._layouts import (  # noqa: F401
    _Layout, channels_last, channels_last_3d, contiguous_format, layout, legacy_contiguous_format, memory_format, preserve_format,
    jagged, sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr, strided,
)
from ._limits import finfo, iinfo  # noqa: F401
from ._overrides import (  # noqa: F401
    TorchFunctionMode as _TorchFunctionMode, get_default_nowrap_functions as _get_default_nowrap_functions,
    handle_torch_function as _handle_torch_function,
    _asking_members, overloaded_arguments as _overloaded_arguments,
)
from ._storage import StorageBase, TypedStorage, UntypedStorage, count_write as _count_write, from_file  # noqa: F401
from ._tensor import (  # noqa: F401
    RemovableHandle as _RemovableHandle, from_cuda_array_interface as _from_cuda_array_interface, from_dlpack, from_numpy,
    memory_order as _memory_order,
)

half, float, double = float16, float32, float64  # noqa: A001
short, int, long = int16, int32, int64  # noqa: A001
cfloat, cdouble = complex64, complex128
newaxis = None


def _reductions():
    """What sends tensors to other processes: loads multiprocessing."""
    from . import _sharing

    return _sharing


def _sparse():
    """What makes and takes sparse tensors: loaded with the first of them, since operators look for their class from then on."""
    from . import _sparse_functions

    return _sparse_functions


def _install() -> None:
    """Puts operators under torch's names: functions here, methods into Tensor."""
    here = globals()
    families = ("linalg_", "fft_", "special_")  # modules of their own
    for name, in_place, function, method in _C._operators():
        if name.startswith(families):
            continue
        if function and name not in here:
            here[name] = _C.Operator(name, in_place)
        if method and name not in Tensor.__dict__:
            setattr(Tensor, name, _C.OperatorMethod(name, in_place))
    for alias, name in _C._aliases().items():
        if alias.startswith(families):
            continue
        for end in ("", "_"):
            if name + end in here:
                here.setdefault(alias + end, here[name + end])
            if name + end in Tensor.__dict__ and alias + end not in Tensor.__dict__:
                setattr(Tensor, alias + end, Tensor.__dict__[name + end])
    for name, value in vars(_functions).items():
        if not name.startswith("_") and (callable(value) or isinstance(value, _builtins.float)) and \
                getattr(value, "__module__", "arete._functions") == "arete._functions":
            here[name] = value
    for name, function in _functions.METHODS.items():
        setattr(Tensor, name, function)


_install()
globals().update(_foreach.functions())
globals().update(_tensor_types.CPU)
globals().update({_n: getattr(_storage, _n) for _n in _storage.TYPED})

# What `arete` has of these.
__all__ = [_n for _n, _v in vars().items() if not _n.startswith("_") or isinstance(_v, _C.Operator) or _n.startswith("_foreach_")]
