"""What op_db.py compares with: PyTorch's values as arete's and back, PyTorch's own wrappers over arete, and when two results
are the same."""
from __future__ import annotations

import contextlib
import functools
import math
import operator
import types

import torch

import arete

DTYPES = {getattr(torch, n): getattr(arete, n) for n in (
    "float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool", "complex64",
    "complex128", "float8_e4m3fn", "float8_e5m2")}
BACK = {v: k for k, v in DTYPES.items()}


class Unsupported(Exception):
    """The sample needs what the package does not have at all: a layout, a dtype, a generator of PyTorch's."""


# ---- values of one library as those of the other


def to_arete(x, device=None):
    """The same value for arete: tensors with their strides, offset and requires_grad, functions by name.

    On `device`, if it is given, else where PyTorch has it."""
    if isinstance(x, torch.Tensor):
        return _tensor_to_arete(x, device)
    if isinstance(x, torch.dtype):
        if x not in DTYPES:
            raise Unsupported(str(x))
        return DTYPES[x]
    if isinstance(x, torch.device):
        return arete.device(x.type if x.type == "meta" else device or x.type)
    if isinstance(x, torch.memory_format):
        return getattr(arete, str(x).split(".")[1])
    if isinstance(x, torch.layout):
        if x is not torch.strided:
            raise Unsupported(str(x))
        return arete.strided
    if isinstance(x, torch.Size):
        return arete.Size(x)
    if isinstance(x, torch.Generator):
        raise Unsupported("a generator of PyTorch's")
    if isinstance(x, torch.nn.PairwiseDistance):
        return arete.nn.PairwiseDistance(x.norm, x.eps, x.keepdim)
    if isinstance(x, tuple):
        return tuple(to_arete(e, device) for e in x)
    if isinstance(x, list):
        return [to_arete(e, device) for e in x]
    if isinstance(x, dict):
        return {k: to_arete(v, device) for k, v in x.items()}
    return translated(x) if callable(x) and not isinstance(x, type) else x


def _tensor_to_arete(x, device):
    if x.layout is not torch.strided or x.dtype not in DTYPES or x.is_quantized:
        raise Unsupported(f"{x.layout} {x.dtype}")
    if x.is_meta:
        return arete.empty_strided(tuple(x.shape), x.stride(), dtype=DTYPES[x.dtype], device="meta")
    t = x.detach().resolve_conj().resolve_neg()
    # The whole memory with the same strides, so that views and layouts are tested, too; taken before
    # it leaves the GPU, which brings what is viewed alone.
    span = t.untyped_storage().nbytes() // t.element_size() if t.numel() else 0
    a = _values_to_arete(torch.as_strided(t, (span,), (1,), 0).cpu()).to(device or x.device.type)
    if span:
        a = a.as_strided(tuple(t.shape), tuple(t.stride()), t.storage_offset()).detach()
    else:
        a = a.reshape(tuple(t.shape))
    return a.requires_grad_() if x.requires_grad else a


def _values_to_arete(flat):
    if flat.dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
        return arete.from_numpy(flat.float().numpy()).to(DTYPES[flat.dtype])
    if flat.numel() == 0:
        return arete.empty(0, dtype=DTYPES[flat.dtype])
    return arete.from_numpy(flat.numpy().copy())


def copied(x):
    """The same without history in memory of its own, so that what writes into its arguments leaves the sample as it is."""
    if isinstance(x, torch.Tensor):
        t = x.detach()
        if t.layout is not torch.strided or t.is_quantized:
            return t
        storage = t.untyped_storage().clone()
        made = torch.empty(0, dtype=t.dtype, device=t.device).set_(storage, t.storage_offset(), t.shape, t.stride())
        made = made.conj() if t.is_conj() else made
        return torch._neg_view(made) if t.is_neg() else made
    if isinstance(x, (tuple, list)) and not isinstance(x, torch.Size) and not hasattr(x, "_fields"):
        return type(x)(copied(e) for e in x)
    return {k: copied(v) for k, v in x.items()} if isinstance(x, dict) else x


def to_torch(x):
    if isinstance(x, arete.Tensor):
        t = x.detach().cpu()
        if t.numel() == 0:
            return torch.empty(tuple(t.shape), dtype=BACK[t.dtype])
        if t.dtype in (arete.bfloat16, arete.float8_e4m3fn, arete.float8_e5m2):
            return torch.from_numpy(t.float().numpy().copy()).to(BACK[t.dtype])
        return torch.from_numpy(t.numpy().copy())
    if isinstance(x, (tuple, list)) and not isinstance(x, arete.Size):
        return [to_torch(e) for e in x]
    return BACK[x] if isinstance(x, arete.dtype) else x


# ---- PyTorch's functions as arete's

_FOREIGN = ("torch.testing._internal", "torch.testing")


class _Globals(dict):
    """The globals of a function of PyTorch's tests, with arete where it says torch."""

    def __init__(self, original):
        super().__init__()
        self.original = original

    def __missing__(self, name):
        if name not in self.original:
            raise KeyError(name)
        self[name] = translated(self.original[name])
        return self[name]


_GLOBALS = {}


def _globals_of(function):
    original = function.__globals__
    return _GLOBALS.setdefault(id(original), _Globals(original))


def translated(x):
    """A module, class or function of PyTorch's in arete; functions that its tests define, over arete; else the thing itself.

    AttributeError says what arete does not have."""
    if isinstance(x, functools.partial):
        return functools.partial(translated(x.func), *x.args, **x.keywords)
    if isinstance(x, types.ModuleType):
        return _by_path(x.__name__) if x.__name__.partition(".")[0] == "torch" and not x.__name__.startswith(_FOREIGN) else x
    if getattr(x, "__name__", "") == "freeze_rng_state":  # random numbers of the two differ in any case
        return contextlib.nullcontext
    if isinstance(x, types.FunctionType) and (x.__module__ or "").startswith(_FOREIGN):
        cells = tuple(types.CellType(_translated_cell(c)) for c in x.__closure__ or ())
        made = types.FunctionType(x.__code__, _globals_of(x), x.__name__, x.__defaults__, cells)
        made.__kwdefaults__ = x.__kwdefaults__
        if hasattr(x, "__wrapped__"):
            made.__wrapped__ = translated(x.__wrapped__)
        return made
    if isinstance(x, type) and x.__module__.partition(".")[0] == "torch":
        return _by_path("torch." + x.__name__)
    if isinstance(x, (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.FunctionType)):
        return _function(x)
    if type(x).__module__.startswith(("torch._ops", "torch.cuda.jiterator")):
        raise AttributeError(f"arete has nothing for {x}")
    if isinstance(x, (torch.dtype, torch.layout, torch.memory_format)):
        return to_arete(x, "cpu")
    return x


def _translated_cell(cell):
    try:
        return translated(cell.cell_contents)
    except AttributeError as e:  # only a fault if the function comes to use it
        return _Absent(e)


class _Absent:
    def __init__(self, error):
        self.error = error

    def __call__(self, *_, **__):
        raise self.error


def _function(x):
    name, module = getattr(x, "__name__", ""), getattr(x, "__module__", None) or ""
    if getattr(operator, name, None) is x:
        return x
    if isinstance(x, (types.MethodDescriptorType, types.WrapperDescriptorType)) or getattr(torch.Tensor, name, None) is x:
        return getattr(arete.Tensor, name)
    for place in (torch, torch.nn.functional, torch.linalg, torch.fft, torch.special, torch.masked, torch.signal.windows):
        if getattr(place, name, None) is x:
            return getattr(_by_path(place.__name__), name)
    for place, prefix in ((torch.linalg, "linalg_"), (torch.fft, "fft_"), (torch.special, "special_")):
        if name.startswith(prefix) and getattr(place, name[len(prefix):], None) is x:
            return getattr(_by_path(place.__name__), name[len(prefix):])
    if module.startswith("torch"):
        raise AttributeError(f"arete has nothing for {module}.{name}")
    return x


def _by_path(path):
    found = arete
    for part in path.split(".")[1:]:
        found = getattr(found, part)
    return found


def counterpart(op):
    """The function of an entry of the database in arete."""
    plain = op.op
    found = torch
    for part in op.name.split("."):
        found = getattr(found, part, None)
    return _by_path("torch." + op.name) if found is plain and found is not None else translated(plain)


# ---- the same or not


def tensors_in(x):
    if isinstance(x, (torch.Tensor, arete.Tensor)):
        yield x
    elif isinstance(x, (tuple, list)):
        for e in x:
            yield from tensors_in(e)
    elif isinstance(x, dict):
        for e in x.values():
            yield from tensors_in(e)


def in_float64(x):
    """The same arguments with all that is of less precision in float64 or complex128, as new leaves."""
    if isinstance(x, torch.Tensor):
        t = x.detach()
        if t.dtype.is_floating_point or t.dtype.is_complex:
            t = t.to(torch.complex128 if t.dtype.is_complex else torch.float64)
        t = t.clone() if t is x.detach() else t
        return t.requires_grad_() if x.requires_grad else t
    if isinstance(x, torch.dtype):
        return torch.float64 if x.is_floating_point else torch.complex128 if x.is_complex else x
    if isinstance(x, (list, tuple)) and not isinstance(x, torch.Size):
        return type(x)(in_float64(e) for e in x) if not hasattr(x, "_fields") else x
    return {k: in_float64(v) for k, v in x.items()} if isinstance(x, dict) else x


# Relative to the larger of 1 and the element; what differs more is judged by the result in float64.
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 2e-5, torch.complex64: 2e-5,
             torch.float64: 1e-9, torch.complex128: 1e-9}
_WIDE = {torch.complex64: torch.complex128, torch.complex128: torch.complex128}


def _apart(a, b):
    """Distances of elements, 0 where they are the same number, both infinite or both not numbers."""
    if a.is_complex():
        a, b = torch.view_as_real(a), torch.view_as_real(b)
        parts = _apart(a, b)
        return parts.amax(-1) if parts.numel() else parts.sum(-1)
    same = (a == b) | (a.isnan() & b.isnan())
    return torch.where(same, 0.0, (a - b).abs()).nan_to_num(nan=math.inf, posinf=math.inf)


def _wide(t):
    return t.detach().resolve_conj().resolve_neg().to(_WIDE.get(t.dtype, torch.float64))


def _allowed(exact, tolerance):
    """How far each element may be off: by its own size, and a little by that of the largest, of which it may be a difference."""
    size = exact.abs().nan_to_num(nan=0.0, posinf=0.0)
    return tolerance * (size.clamp(min=1.0) + (size.max() / 16 if size.numel() else 0.0))


def compare_tensors(ours, theirs, what, precise):
    if not isinstance(ours, torch.Tensor):
        raise AssertionError(f"{what}: {type(ours).__name__} instead of a tensor")
    if tuple(ours.shape) != tuple(theirs.shape):
        raise AssertionError(f"{what}: shape {tuple(ours.shape)} instead of {tuple(theirs.shape)}")
    if ours.dtype is not theirs.dtype:
        raise AssertionError(f"{what}: {ours.dtype} instead of {theirs.dtype}")
    theirs = theirs.cpu()
    tolerance = TOLERANCE.get(theirs.dtype, 0.0)
    if tolerance == 0:
        if not torch.equal(ours, theirs):
            wrong = ours != theirs
            raise AssertionError(f"{what}: {ours[wrong][:3].tolist()} instead of {theirs[wrong][:3].tolist()}, "
                                 f"{int(wrong.sum())} of {wrong.numel()} elements")
        return
    a, b = _wide(ours), _wide(theirs)
    allowed = _allowed(b, tolerance)
    wrong = _apart(a, b) > allowed
    if not bool(wrong.any()):
        return
    exact = precise() if callable(precise) else precise
    if isinstance(exact, torch.Tensor) and exact.shape == theirs.shape and theirs.dtype not in (torch.float64, torch.complex128):
        c = _wide(exact.cpu())
        wrong &= ~(_apart(a, c) <= 1.5 * _apart(b, c) + _allowed(c, tolerance))
    if bool(wrong.any()):
        raise AssertionError(f"{what}: {ours[wrong][:3].tolist()} instead of {theirs[wrong][:3].tolist()}, "
                             f"{int(wrong.sum())} of {wrong.numel()} elements")


def compare(ours, theirs, what, precise=None):
    """AssertionError where the two differ. `precise` is PyTorch's result in float64, or what computes it."""
    if isinstance(theirs, torch.Tensor):
        compare_tensors(ours, theirs, what, precise)
    elif isinstance(theirs, (tuple, list)):
        if not isinstance(ours, (tuple, list)) or len(ours) != len(theirs):
            raise AssertionError(f"{what}: {ours!r:.200} instead of a sequence of {len(theirs)}")
        for i, (a, b) in enumerate(zip(ours, theirs)):
            compare(a, b, f"{what}[{i}]", precise and (lambda i=i: (precise() if callable(precise) else precise)[i]))
    elif isinstance(theirs, (float, complex)):
        if not (ours == theirs or ours != ours and theirs != theirs or abs(ours - theirs) <= 1e-4 * max(1, abs(theirs))):
            raise AssertionError(f"{what}: {ours} instead of {theirs}")
    elif isinstance(theirs, (int, bool, str, type(None), torch.dtype)) and ours != theirs:
        raise AssertionError(f"{what}: {ours} instead of {theirs}")
