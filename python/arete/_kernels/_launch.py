"""What launches of all users' kernels have in common: arguments, arrays of others, and the mode that checks indices on a GPU."""
from __future__ import annotations

import contextlib
import ctypes
import struct

from .. import _C
from .._C import Tensor
from .._operators import _from_cuda_array_interface, _ops, from_dlpack

NUMBER_KINDS = {"bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q",
                "uint64": "Q", "float32": "f", "float64": "d"}


def tensor_of(a):
    """The tensor that an argument is or has (an arete.numpy array, anything with DLPack that is no NumPy scalar, or with the CUDA Array
    Interface), or None."""
    if isinstance(a, Tensor):
        return a
    inner = getattr(a, "_tensor", None)
    if isinstance(inner, Tensor):
        return inner
    if hasattr(a, "__dlpack__") and getattr(a, "ndim", 1):
        try:
            return from_dlpack(a)
        except BufferError as e:  # records, texts, dates, another byte order
            raise TypeError(f"Unsupported type {getattr(a, 'dtype', type(a))} of a kernel argument: kernels take arrays of numbers") from e
    return _from_cuda_array_interface(a) if hasattr(a, "__cuda_array_interface__") else None


def array_type(args):
    """The type of arrays around tensors among the arguments, in which results are given back; None: tensors."""
    kind = next((type(a) for a in args if not isinstance(a, Tensor) and isinstance(getattr(a, "_tensor", None), Tensor)), None)
    return getattr(kind, "_plain", kind)


def written_tensor(a):
    """The tensor of an argument that the kernel may write to, or None."""
    if hasattr(a, "_axes"):  # its tensor is a copy
        raise ValueError("an array with a negative step is no argument that a kernel writes to; pass x.copy()")
    return tensor_of(a)


def raw_argument(a):
    """A tensor, or a number with the C type it is passed as, of what is neither an array of the library nor a number of Python's or
    NumPy's: arrays of others, NumPy's 0-d arrays, subclasses of numbers. The bytes of structs (NumPy's records, those of ctypes) and of
    complex numbers."""
    if isinstance(a, (int, float)):
        return "q" if isinstance(a, int) else "d", a
    if isinstance(a, complex) or isinstance(a, ctypes.Structure):
        return struct.pack("dd", a.real, a.imag) if type(a) is complex else bytes(a)
    t = written_tensor(a)
    if t is not None:
        return t
    if hasattr(a, "memory"):  # a MemoryPointer
        return "P", a.memory
    if hasattr(a, "dtype") and hasattr(a, "item"):
        if a.dtype.kind in "Vc" and not a.ndim:
            return a.tobytes()
        kind = NUMBER_KINDS.get(a.dtype.name)
        if kind is None:
            raise TypeError(f"Unsupported type {a.dtype} of a kernel argument")
        return kind, a.item()
    raise TypeError(f"Unsupported type {type(a)} of a kernel argument")


def on_stream(stream):
    """What a launch on it stands in; None and 0 are the current one."""
    if stream is None or isinstance(stream, int) and stream == 0:
        return contextlib.nullcontext()
    if not hasattr(stream, "__enter__"):
        raise TypeError(f"a stream is one of arete.cuda or arete.cupy.cuda, not {type(stream).__name__}")
    return stream


def device_of(tensors, name):
    """The one device of the tensors; the current GPU, or the CPU, where there are none."""
    found = {t.device for t in tensors}
    if len(found) > 1:
        raise RuntimeError(f"{name}: all arrays of a kernel must be on one device, not on {' and '.join(sorted(map(str, found)))}")
    return found.pop() if found else _C.device("cpu")


def is_bound_as_given(args, bound):
    """Whether the tensors among `bound` are those of the arguments themselves, converted in no way."""
    return all(not isinstance(b, Tensor) or b is a or b is getattr(a, "_tensor", None) for a, b in zip(args, bound))


def refuse_gradient(tensors, name):
    if _C.is_grad_enabled() and any(t.requires_grad for t in tensors):
        raise RuntimeError(f"{name}: kernels of statements have no gradient but those of expressions alone; pass x.detach()")


_checking = False


@contextlib.contextmanager
def checked(on: bool = True):
    """Within it, elementwise, reduction and Python kernels on GPUs look at every index before they use it; the call of one that is out
    of range waits for the kernel and raises an IndexError that names the line. On the CPU they do always.

    >>> with arete.kernels.checked():
    ...     arete.cupy.ElementwiseKernel("raw float32 x, int64 k", "float32 y", "y = x[i + k]", "behind")(arete.ones(3), 1, size=3)
    Traceback (most recent call last):
    ...
    IndexError: line 1: index 3 is out of range for x, which has 3, by thread (2, 0, 0) of block (0, 0, 0): `y = x[i + k]`. Operator: behind
    """
    global _checking
    before, _checking = _checking, on
    try:
        yield
    finally:
        _checking = before


def is_checking(device):
    return _checking and device.type == "cuda"


class Fault:
    """Memory for what a checked kernel found."""

    def __init__(self, device):
        self.tensor = _ops.zeros(4, dtype=_C.int64, device=device)

    def look(self, name, source_lines=()):
        failed, line, index, size = self.tensor.tolist()
        if failed:
            text = f": `{source_lines[line - 1].strip()}`" if 0 < line <= len(source_lines) else ""
            raise IndexError(f"{name}: line {line}: index {index} is out of range for an array or a dimension of {size}{text}")
