"""Writes python/arete/__init__.pyi and nn/functional/__init__.pyi, the types of names that are made from operator records at import:

    python tools/make_stubs.py [--check]

With --check it writes nothing and fails if the file is not up to date."""
from __future__ import annotations

import inspect
import pathlib
import re
import sys

import arete
import arete._absent_dtypes
import arete._refused
import arete.nn.functional
from arete import _C
from arete._operators._schemas import split

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "python" / "arete"

KINDS = {
    "Tensor": "Tensor", "Tensor[]": "Sequence[Tensor]", "bool": "_bool", "int": "_int", "float": "_float",
    "Scalar": "Number", "int[]": "_int | Sequence[_int]", "float[]": "Sequence[_float]", "str": "str",
    "dtype": "_DType", "device": "Device", "Generator": "Generator",
}

HEAD = '''\
# Made by tools/make_stubs.py from the operator records; do not edit.
from builtins import bool as _bool, complex as _complex, float as _float, int as _int
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ContextManager, NoReturn, Optional, TypeVar, Union

from . import _custom_ops as _custom_ops, _dynamo as _dynamo, _higher_order_ops as _higher_order_ops, _inductor as _inductor
from . import _utils as _utils, ao as ao, as_torch as as_torch, functional as functional, fx as fx, hub as hub, library as library
from . import metrics as metrics, mps as mps, mtia as mtia, ops as ops, quantization as quantization, torch_version as torch_version
from . import accelerator as accelerator, amp as amp, autograd as autograd, backends as backends, compiler as compiler
from . import cpu as cpu, cuda as cuda, cupy as cupy, cupyx as cupyx, distributed as distributed, distributions as distributions
from . import fft as fft, futures as futures
from . import export as export, func as func, jit as jit, linalg as linalg, masked as masked, multiprocessing as multiprocessing
from . import nn as nn, numba as numba, numpy as numpy, onnx as onnx, optim as optim, overrides as overrides
from . import profiler as profiler, pycuda as pycuda, random as random
from . import signal as signal, sparse as sparse, special as special, storage as storage, testing as testing, types as types
from . import training as training, utils as utils, vision as vision, xpu as xpu
from ._grad_mode import enable_grad as enable_grad, inference_mode as inference_mode, no_grad as no_grad
from .sparse import dsmm as dsmm, saddmm as saddmm, smm as smm, sparse_bsc_tensor as sparse_bsc_tensor
from .sparse import sparse_bsr_tensor as sparse_bsr_tensor, sparse_compressed_tensor as sparse_compressed_tensor
from .sparse import sparse_coo_tensor as sparse_coo_tensor, sparse_csc_tensor as sparse_csc_tensor
from .sparse import sparse_csr_tensor as sparse_csr_tensor, spmm as spmm
from .storage import TypedStorage as TypedStorage, UntypedStorage as StorageBase, UntypedStorage as UntypedStorage
from ._grad_mode import set_grad_enabled as set_grad_enabled
from .amp.autocast_mode import autocast_decrement_nesting as autocast_decrement_nesting
from .amp.autocast_mode import autocast_increment_nesting as autocast_increment_nesting
from .amp.autocast_mode import autocast as autocast, clear_autocast_cache as clear_autocast_cache
from .amp.autocast_mode import get_autocast_cpu_dtype as get_autocast_cpu_dtype, get_autocast_dtype as get_autocast_dtype
from .amp.autocast_mode import get_autocast_gpu_dtype as get_autocast_gpu_dtype
from .amp.autocast_mode import is_autocast_cache_enabled as is_autocast_cache_enabled
from .amp.autocast_mode import is_autocast_cpu_enabled as is_autocast_cpu_enabled, is_autocast_enabled as is_autocast_enabled
from .amp.autocast_mode import set_autocast_cache_enabled as set_autocast_cache_enabled
from .amp.autocast_mode import set_autocast_cpu_dtype as set_autocast_cpu_dtype
from .amp.autocast_mode import set_autocast_cpu_enabled as set_autocast_cpu_enabled, set_autocast_dtype as set_autocast_dtype
from .amp.autocast_mode import set_autocast_enabled as set_autocast_enabled, set_autocast_gpu_dtype as set_autocast_gpu_dtype
from .amp.grad_scaler import GradScaler as GradScaler
from ._absent_dtypes import AbsentDType
from ._checks import _assert as _assert, _assert_async as _assert_async, _check_tensor_all as _check_tensor_all
from ._checks import _check_tensor_all_with as _check_tensor_all_with, _check_with as _check_with
from ._checks import _shape_as_tensor as _shape_as_tensor
from ._symbolic import sym_float as sym_float, sym_int as sym_int, sym_ite as sym_ite, sym_max as sym_max, sym_min as sym_min
from ._symbolic import sym_not as sym_not, sym_sqrt as sym_sqrt, sym_sum as sym_sum
from .autograd import is_anomaly_enabled as is_anomaly_enabled
from .compiler import compile as compile
from ._higher_order_ops.cond import cond as cond
from .func import vmap as vmap
from .futures import Future as Future
from .jit import ScriptFunction as ScriptFunction, ScriptModule as ScriptModule
from .types import TensorType as TensorType
from .random import get_rng_state as get_rng_state, initial_seed as initial_seed, seed as seed, set_rng_state as set_rng_state
from .serialization import load as load, save as save
from .signal._periodic import bartlett_window as bartlett_window, blackman_window as blackman_window
from .signal._periodic import hamming_window as hamming_window, hann_window as hann_window, kaiser_window as kaiser_window

Number = Union[_int, _float, _bool, _complex]

class dtype:
    is_floating_point: _bool
    is_complex: _bool
    is_signed: _bool
    itemsize: _int
    def to_real(self) -> dtype: ...
    def to_complex(self) -> dtype: ...

class device:
    type: str
    index: Optional[_int]
    def __init__(self, device: Union[str, _int, "device"], index: Optional[_int] = None) -> None: ...
    def __enter__(self) -> device: ...
    def __exit__(self, *error: Any) -> None: ...

_DType = dtype
_DeviceType = device
Device = Union[device, str, _int]

class Size(tuple[_int, ...]):
    def numel(self) -> _int: ...

class Generator:
    def __init__(self, device: Optional[Device] = None) -> None: ...
    def manual_seed(self, seed: _int) -> Generator: ...
    def initial_seed(self) -> _int: ...
    def seed(self) -> _int: ...
    def get_state(self) -> Tensor: ...
    def set_state(self, new_state: Tensor) -> Generator: ...

class ArgumentError(RuntimeError, ValueError): ...
class DTypeError(TypeError, RuntimeError): ...
class AutogradError(RuntimeError): ...
class DeviceError(RuntimeError): ...
class OutOfMemoryError(RuntimeError, MemoryError): ...
class BugError(RuntimeError): ...

class finfo:
    bits: _int
    eps: _float
    max: _float
    min: _float
    tiny: _float
    smallest_normal: _float
    resolution: _float
    dtype: str
    def __init__(self, type: Optional[_DType] = None) -> None: ...

class iinfo:
    bits: _int
    max: _int
    min: _int
    dtype: str
    def __init__(self, type: _DType) -> None: ...

class Stream:
    device: Any
    device_index: _int
    priority: _int
    stream_id: _int
    def __init__(self, device: Any = None, *args: Any, priority: _int = 0, **kwargs: Any) -> None: ...
    def query(self) -> _bool: ...
    def synchronize(self) -> None: ...
    def wait_event(self, event: Event) -> None: ...
    def wait_stream(self, stream: Stream) -> None: ...
    def record_event(self, event: Optional[Event] = None) -> Event: ...
    def __enter__(self) -> Stream: ...
    def __exit__(self, *error: Any) -> None: ...

class Event:
    device: Any
    event_id: _int
    def __init__(self, device: Any = None, *args: Any, enable_timing: _bool = False, **kwargs: Any) -> None: ...
    def record(self, stream: Optional[Stream] = None) -> None: ...
    def wait(self, stream: Optional[Stream] = None) -> None: ...
    def query(self) -> _bool: ...
    def synchronize(self) -> None: ...
    def elapsed_time(self, end_event: Event) -> _float: ...

class memory_format: ...
class layout: ...

'''

TENSOR = '''\
class Tensor:
    def __init__(self, *args: Any) -> None: ...
    @property
    def shape(self) -> Size: ...
    dtype: _DType
    device: _DeviceType
    ndim: _int
    itemsize: _int
    nbytes: _int
    requires_grad: _bool
    is_leaf: _bool
    is_cuda: _bool
    is_cpu: _bool
    is_meta: _bool
    grad: Optional[Tensor]
    grad_fn: Any
    data: Tensor
    @property
    def T(self) -> Tensor: ...
    @property
    def mT(self) -> Tensor: ...
    def size(self, dim: Optional[_int] = None) -> Any: ...
    def stride(self, dim: Optional[_int] = None) -> Any: ...
    def dim(self) -> _int: ...
    def numel(self) -> _int: ...
    def item(self) -> Any: ...
    def tolist(self) -> Any: ...
    def tobytes(self) -> bytes: ...
    def data_ptr(self) -> _int: ...
    def storage_offset(self) -> _int: ...
    def element_size(self) -> _int: ...
    def is_contiguous(self, memory_format: Optional[memory_format] = None) -> _bool: ...
    def is_floating_point(self) -> _bool: ...
    def is_complex(self) -> _bool: ...
    def is_pinned(self, device: Any = None) -> _bool: ...
    def is_shared(self) -> _bool: ...
    def share_memory_(self) -> Tensor: ...
    def detach(self) -> Tensor: ...
    def detach_(self) -> Tensor: ...
    def retain_grad(self) -> None: ...
    def requires_grad_(self, requires_grad: _bool = True) -> Tensor: ...
    def backward(self, gradient: Optional[Tensor] = None, retain_graph: Optional[_bool] = None, create_graph: _bool = False,
                 inputs: Any = None) -> None: ...
    def register_hook(self, hook: Callable[[Tensor], Optional[Tensor]]) -> Any: ...
    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> Any: ...
    def to(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def clone(self, *, memory_format: Optional[memory_format] = None) -> Tensor: ...
    def contiguous(self, memory_format: Optional[memory_format] = None) -> Tensor: ...
    def pin_memory(self) -> Tensor: ...
    def copy_(self, other: Tensor, non_blocking: _bool = False) -> Tensor: ...
    def zero_(self) -> Tensor: ...
    def numpy(self, *, force: _bool = False) -> Any: ...
    def __len__(self) -> _int: ...
    def __getitem__(self, index: Any) -> Tensor: ...
    def __setitem__(self, index: Any, value: Any) -> None: ...
    def __iter__(self) -> Iterator[Tensor]: ...
    def __contains__(self, value: Any) -> _bool: ...
    def __bool__(self) -> _bool: ...
    def __int__(self) -> _int: ...
    def __float__(self) -> _float: ...
    def __index__(self) -> _int: ...
    def __eq__(self, other: Any) -> Tensor: ...  # type: ignore[override]
    def __ne__(self, other: Any) -> Tensor: ...  # type: ignore[override]
    def __hash__(self) -> _int: ...
'''

OPERATORS = ("add sub mul truediv floordiv mod pow matmul and or xor lshift rshift radd rsub rmul rtruediv rfloordiv rmod "
             "rpow rand ror rxor iadd isub imul itruediv ifloordiv ipow imod iand ior ixor lt le gt ge").split()


def parameters(signature: str, method: bool) -> list[str]:
    """Python parameters of "(Tensor self, int dim=-1, *, ...)"."""
    result, star, optional = [], False, False
    for part in split(signature[1:-1]):
        if part == "*":
            star = True
            result.append("*")
            continue
        left, _, default = part.partition("=")
        kind, name = left.rsplit(" ", 1)
        none = kind.endswith("?")
        kind = KINDS[kind.rstrip("?")]
        if none:
            kind = f"Optional[{'Union[_int, Sequence[_int]]' if '|' in kind else kind}]"
        elif "|" in kind:
            kind = "Union[_int, Sequence[_int]]"
        if name in ("from", "lambda", "in", "is"):
            name += "_"
        if not result and method:
            result.append("self")
            continue
        optional = optional or bool(default) and not star
        value = " = ..." if default or optional and not star or none and star else ""
        result.append(f"{name}: {kind}{value}")
    if star and result[-1] == "*":
        result.pop()
    return result


def results(record: str) -> str:
    text = _C._record(record)["schema"].split("->")[1].strip()
    if text == "Tensor":
        return "Tensor"
    if text == "Tensor[]":
        return "tuple[Tensor, ...]"
    return "Any"  # a named tuple


def lines_of(name: str, operator, method: bool) -> list[str]:
    indent = "    " if method else ""
    found = []
    for record, signature in operator._records:
        p = parameters(signature, method)
        kind = results(record)
        if kind == "Tensor" and not name.endswith("_"):
            keyword = "out: Optional[Tensor] = ..."
            makes = any(x.startswith("device:") for x in p)
            grad = ", layout: Optional[layout] = ..., requires_grad: _bool = ..., pin_memory: _bool = ..." if makes else ""
            order = ", memory_format: Optional[memory_format] = ..." if name.endswith("_like") else ""
            p = p + (["*"] if "*" not in p else []) + [keyword + grad + order]
        found.append(f"def {name}({', '.join(p)}) -> {kind}: ...")
    spread = any("Union[_int, Sequence[_int]]" in f for f in found)
    if len(found) > 1 or spread:
        kind = results(operator._records[0][0]) if len({results(r) for r, _ in operator._records}) == 1 else "Any"
        arguments = "self, *args: Any, **kwargs: Any" if method else "*args: Any, **kwargs: Any"
        return [f"{indent}def {name}({arguments}) -> {kind}: ..."]
    return [indent + found[0]]


def python_function(name: str, function) -> str:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return f"def {name}(*args: Any, **kwargs: Any) -> Any: ..."
    parts, star = [], False
    for p in signature.parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            parts.append(f"*{p.name}: Any")
            star = True
        elif p.kind is p.VAR_KEYWORD:
            parts.append(f"**{p.name}: Any")
        else:
            if p.kind is p.KEYWORD_ONLY and not star:
                parts.append("*")
                star = True
            parts.append(f"{p.name}: Any" + ("" if p.default is p.empty else " = ..."))
    returns = signature.return_annotation
    text = {"bool": "_bool", "int": "_int", "None": "None"}.get(str(returns), "Any")
    return f"def {name}({', '.join(parts)}) -> {text}: ..."


def make() -> str:
    out = [HEAD]
    own = set(re.findall(r"    (?:def |)(\w+)[(:]", TENSOR))
    out.append(TENSOR)
    for o in OPERATORS:
        out.append(f"    def __{o}__(self, other: Any) -> Tensor: ...\n")
    out.append("    def __neg__(self) -> Tensor: ...\n    def __abs__(self) -> Tensor: ...\n"
               "    def __pos__(self) -> Tensor: ...\n    def __invert__(self) -> Tensor: ...\n")
    for name in sorted(vars(arete.Tensor)):
        value = vars(arete.Tensor)[name]
        if name in own or name.startswith("_") or not name.isidentifier():
            continue
        if isinstance(value, _C.OperatorMethod):
            out.append("\n".join(lines_of(name, value, True)) + "\n")
        elif inspect.isfunction(value) or isinstance(value, _C.Operator):
            out.append(f"    def {name}(self, *args: Any, **kwargs: Any) -> Any: ...\n")
    out.append("\n")
    out += [f"class {name}: ...\n" for name in sorted(arete._refused.NAMES) + ["SymBool", "SymFloat", "SymInt"]]
    out += [f"{name}: AbsentDType\n" for name in sorted(arete._absent_dtypes.NAMES)]
    for name in sorted(vars(arete)):
        value = getattr(arete, name)
        if name.startswith("_") or re.search(rf"(class|as) {name}\b", HEAD):
            continue
        if isinstance(value, _C.Operator):
            out.append("\n".join(lines_of(name, value, False)) + "\n")
        elif isinstance(value, arete.dtype):
            out.append(f"{name}: _DType\n")
        elif inspect.isfunction(value):
            out.append(python_function(name, value) + "\n")
        elif isinstance(value, (float, int)):
            out.append(f"{name}: _float\n")
        elif type(value).__name__ == "nb_func":
            out.append(f"def {name}(*args: Any, **kwargs: Any) -> Any: ...\n")
        elif isinstance(value, type(arete.FloatTensor)):
            out.append(f"class {name}:\n    dtype: _DType\n"
                       "    def __new__(cls, *args: Any, **kwargs: Any) -> Tensor: ...  # type: ignore[misc]\n")
        elif isinstance(value, type) and issubclass(value, arete.TypedStorage) and value is not arete.TypedStorage:
            out.append(f"class {name}(TypedStorage): ...\n")
        elif isinstance(value, arete.memory_format):
            out.append(f"{name}: memory_format\n")
        elif isinstance(value, arete.layout):
            out.append(f"{name}: layout\n")
        elif isinstance(value, arete.Generator):
            out.append(f"{name}: Generator\n")
    return "".join(out)


FUNCTIONAL_HEAD = '''\
# Made by tools/make_stubs.py from the operator records; do not edit.
from collections.abc import Sequence
from typing import Any, Optional, Union, overload

from arete import Device, Generator, Number, Tensor, dtype as _DType

_bool = bool
_int = int
_float = float

'''


def make_functional() -> str:
    """The operators among arete.nn.functional; what is written there is imported."""
    out = [FUNCTIONAL_HEAD]
    functions = vars(arete.nn.functional)
    for name in sorted(functions):
        value = functions[name]
        if inspect.isfunction(value):
            out.append(f"from .{value.__module__.rpartition('.')[2]} import {name} as {name}\n")
    for name in sorted(functions):
        operator = functions[name]
        if not isinstance(operator, _C.Operator):
            continue
        for record, signature in operator._records:
            kind = "Any" if "return_indices" in signature else results(record)
            if len(operator._records) > 1:
                out.append("@overload\n")
            out.append(f"def {name}({', '.join(parameters(signature, False))}) -> {kind}: ...\n")
    return "".join(out)


def main() -> int:
    for target, text in (("__init__.pyi", make()), ("nn/functional/__init__.pyi", make_functional())):
        path = PACKAGE / target
        if "--check" not in sys.argv[1:]:
            path.write_text(text)
            print(f"wrote {path}: {len(text.splitlines())} lines")
        elif not path.exists() or path.read_text() != text:
            print(f"{path} is not up to date: run python tools/make_stubs.py")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
