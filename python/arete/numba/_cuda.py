"""numba.cuda: kernels from Python functions, arrays of the device, streams and events.

    >>> import numpy as np
    >>> from arete.numba import cuda
    >>> @cuda.jit
    ... def double(x):
    ...     i = cuda.grid(1)
    ...     if i < x.size:
    ...         x[i] *= 2
    >>> x = np.arange(4.0)
    >>> double[1, 32](x)
    >>> x
    array([0., 2., 4., 6.])

Without a GPU the kernels run on the CPU, every access checked. Whole numbers of Python's are int64 and floating ones float64, as in
Numba. Arguments are arrays of the library or NumPy's, which are copied to the device and back. What a kernel may have is said in
arete.cupyx.jit."""
from __future__ import annotations

import contextlib as _contextlib
import types as _types

from .. import numpy as _np
from .._kernels._launch import on_stream as _on_stream
from .._kernels._python import AXES, INTRINSICS, Intrinsic, PythonKernel, warpsize
from ..cupy import cuda as _cuda
from . import types
from .types import (
    Signature, boolean, float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64, void,
)

__all__ = ["Reduce", "atomic", "blockDim", "blockIdx", "boolean", "device_array", "device_array_like", "event", "event_elapsed_time",
           "float16", "float32", "float64", "get_current_device", "grid", "gridDim", "gridsize", "int16", "int32", "int64", "int8",
           "is_available", "is_cuda_array", "jit", "laneid", "local", "pinned_array", "reduce", "select_device", "shared",
           "shfl_down_sync", "shfl_sync", "shfl_up_sync", "shfl_xor_sync", "stream", "synchronize", "syncthreads", "syncwarp",
           "threadIdx", "threadfence", "to_device", "types", "uint16", "uint32", "uint64", "uint8", "void", "warpsize"]

threadIdx, blockIdx, blockDim, gridDim = (AXES[n] for n in ("threadIdx", "blockIdx", "blockDim", "gridDim"))
grid, gridsize, syncthreads, syncwarp, threadfence, shfl_sync = (INTRINSICS[n] for n in (
    "grid", "gridsize", "syncthreads", "syncwarp", "threadfence", "shfl_sync"))
shfl_up_sync, shfl_down_sync, shfl_xor_sync = (INTRINSICS[f"shfl_{n}_sync"] for n in ("up", "down", "xor"))
laneid = Intrinsic("laneid", "(int)((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32)")
shared, local = (_types.SimpleNamespace(array=Intrinsic(f"{n}_memory", order=("shape", "dtype"))) for n in ("shared", "local"))
atomic = _types.SimpleNamespace(
    **{n: INTRINSICS[f"atomic_{n}"] for n in ("add", "sub", "min", "max", "exch", "cas", "xor")},
    and_=INTRINSICS["atomic_and"], or_=INTRINSICS["atomic_or"])
is_available, synchronize = _cuda.is_available, _cuda.synchronize


def _device():
    return "cuda" if is_available() else "cpu"


class Kernel(PythonKernel):
    """A kernel: `kernel[blocks, threads](*args)`, `kernel[blocks, threads, stream, shared_bytes](*args)`, `kernel.forall(n)(*args)`."""

    def __init__(self, function, signature=None, *, device=False, options=()):
        super().__init__(function, mode="numpy", device=device, options=options)
        self.signature, self.py_func = signature, function

    def __call__(self, grid, block, args, shared_mem=0, stream=None):
        args = list(args)
        if self.signature is not None:
            args = self._checked(args)
        hosts = [k for k, a in enumerate(args) if type(a).__module__ == "numpy" and getattr(a, "ndim", 0)]
        arrays = {k: to_device(args[k]) for k in hosts}
        super().__call__(grid, block, [arrays.get(k, a) for k, a in enumerate(args)], shared_mem, stream)
        for k, a in arrays.items():
            if args[k].flags.writeable:
                args[k][...] = a.get()

    def _checked(self, args):
        """The arguments, numbers in the signature's types."""
        import numpy

        if len(args) != len(self.signature):
            raise TypeError(f"{self.name}() takes {len(self.signature)} arguments ({len(args)} given)")
        result = []
        for type_, a in zip(self.signature, args):
            ndim = getattr(a, "ndim", 0)
            if ndim != type_.ndim or ndim and str(a.dtype).rpartition(".")[2] != type_.name:
                found = f"{a.dtype} of {ndim} dimensions" if ndim else type(a).__name__
                raise TypeError(f"{self.name}: an argument is {type_} by the signature, and {found} is given")
            result.append(a if ndim else numpy.dtype(type_.name).type(a))
        return result

    def forall(self, count, tpb=0, stream=0, sharedmem=0):
        """Launches a thread for each of `count` elements, in one dimension."""
        threads = tpb or 256
        return self[(count + threads - 1) // threads, threads, stream, sharedmem]


def jit(func_or_sig=None, *, device=False, fastmath=False, max_registers=None, lineinfo=False, cache=False, inline=False, opt=True,
        debug=None, link=()):
    """Makes a kernel of a function, or with `device` a function that kernels call: `@cuda.jit`, `@cuda.jit(device=True)`,
    `@cuda.jit("void(float32[:], int32)")`, whose types arguments must have then.

    `fastmath`, `max_registers` and `lineinfo` are the compiler's on GPUs; code is kept on disk with `cache` and without, and the compiler
    decides what to inline. `opt=False`, `debug` and `link` are refused."""
    for name, value in (("opt=False", not opt), ("debug", debug), ("link", link)):
        if value:
            raise NotImplementedError(f"cuda.jit(): {name} is not there" + ("; accesses are checked on the CPU, and under "
                                                                            "arete.kernels.checked()" if name == "debug" else ""))
    if isinstance(func_or_sig, list):
        raise NotImplementedError("cuda.jit(): one signature; without any, a kernel is translated for what it is called with")
    options = [*(["--use_fast_math"] if fastmath else []), *([f"--maxrregcount={max_registers}"] if max_registers else []),
               *(["--generate-line-info"] if lineinfo else [])]
    if callable(func_or_sig) and not isinstance(func_or_sig, types.Type):
        return Kernel(func_or_sig, device=device, options=options)
    signature = None
    if func_or_sig is not None:
        found = Signature.of(func_or_sig)
        if not device and found.result != void:
            raise TypeError(f"cuda.jit(): a kernel gives nothing (void), and not {found.result}")
        if device:
            raise NotImplementedError("cuda.jit(): a function of kernels takes the types it is called with, and no signature")
        signature = found.arguments
    return lambda function: Kernel(function, signature, device=device, options=options)


class Reduce:
    """A function that puts the elements of an array together: `@cuda.reduce` makes it of one of two elements, which may come in any order.

    >>> from arete.numba import cuda
    >>> @cuda.reduce
    ... def add(a, b):
    ...     return a + b
    >>> int(add(cuda.to_device([1, 2, 3])))
    6"""

    def __init__(self, functor):
        together = Kernel(functor, device=True)

        def fold(x, out):
            i = grid(1)
            if i < out.size:
                total = x[i]
                for k in range(i + out.size, x.size, out.size):
                    total = together(total, x[k])
                out[i] = total

        self._fold = Kernel(fold)

    def __call__(self, arr, size=None, res=None, init=0, stream=0):
        """`init` and the first `size` elements, put together: a number, or None, and the number in `res[0]`, an array of the device."""
        if arr.ndim != 1:
            raise TypeError("only support 1D array")
        x = arr if isinstance(arr, _np.ndarray) else to_device(arr, stream)
        x = x[:size]
        with _on_stream(stream):
            while x.size > 1:
                x = self._once(x)
            x = self._once(_np.concatenate([_np.full(1, init, x.dtype, device=x.device), x])) if x.size else _np.full(1, init, x.dtype)
            if res is not None:
                res[:1] = x
                return None
        return x.get()[0]

    def _once(self, x):
        """Each thread takes some dozens of elements, in whose number all that is left goes on to the next round."""
        out = _np.empty((x.size + 63) // 64, x.dtype, device=x.device)
        self._fold.forall(out.size)(x, out)
        return out


reduce = Reduce


def to_device(obj, stream=0, copy=True, to=None):
    """An array on the GPU, or on the CPU where there is none; with `to` that array, written."""
    if copy and to is None and hasattr(obj, "flags") and not obj.flags.writeable:
        obj = obj.copy()
    with _on_stream(stream):
        if to is None:
            return _np.asarray(obj, device=_device(), copy=True if copy else None)
        to[...] = _np.asarray(obj)
        return to


def device_array(shape, dtype=float, strides=None, order="C", stream=0):
    """An array on the GPU, or on the CPU where there is none, whose elements are not set."""
    if strides is not None:
        raise NotImplementedError("cuda.device_array(): strides follow from the order")
    with _on_stream(stream):
        return _np.empty(shape, getattr(dtype, "name", dtype), order, device=_device())


def device_array_like(ary, stream=0):
    """device_array of the shape and dtype of another."""
    return device_array(ary.shape, ary.dtype, stream=stream)


def pinned_array(shape, dtype=float, strides=None, order="C"):
    """An array of NumPy in page-locked memory, whose elements are not set."""
    from ..cupyx import empty_pinned

    if strides is not None:
        raise NotImplementedError("cuda.pinned_array(): strides follow from the order")
    return empty_pinned(shape, getattr(dtype, "name", dtype), order)


def is_cuda_array(obj):
    """Whether an array is one of a device."""
    return isinstance(obj, _np.ndarray) or hasattr(obj, "__cuda_array_interface__")


class Stream(_cuda.Stream):
    """A stream; within `auto_synchronize()` what it is given is done at the end."""

    @_contextlib.contextmanager
    def auto_synchronize(self):
        with self:
            yield self
        self.synchronize()


def stream():
    """A new stream."""
    return Stream()


def event(timing=True):
    """A new event."""
    return _cuda.Event(disable_timing=not timing)


def event_elapsed_time(evtstart, evtend):
    """Milliseconds between two events."""
    return _cuda.get_elapsed_time(evtstart, evtend)


def get_current_device():
    """The current GPU."""
    return _cuda.Device()


def select_device(device_id):
    """Makes a GPU the current one."""
    device = _cuda.Device(device_id)
    device.use()
    return device


_REFUSED = {
    "cg": "a kernel has no barrier of all its blocks: launch two",
    "const": "take an array as an argument",
    **dict.fromkeys(("mapped_array", "managed_array"), "memory is the host's or the device's"),
}


def __getattr__(name):
    reason = _REFUSED.get(name)
    raise AttributeError(f"module 'arete.numba.cuda' has no attribute {name!r}" + (f": {reason}" if reason else ""))
