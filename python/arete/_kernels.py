"""Kernels that users write, under CuPy's names: ElementwiseKernel and ReductionKernel, on every device."""
from __future__ import annotations

import re

from . import _C
from ._C import Tensor
from ._operators import _ops, from_dlpack
from ._snippets import TYPES, Evaluator, SnippetError

_e = _C._expr


def _parameters(text: str) -> list[tuple[str, str]]:
    """(type, name) of "float32 x, T y"."""
    result = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        words = part.split()
        if len(words) != 2 or not re.fullmatch(r"[A-Za-z_]\w*", words[1]):
            raise ValueError(f"a parameter must be 'type name', not {part!r}" + (
                " (raw arrays are for RawKernel)" if words and words[0] == "raw" else ""))
        result.append((words[0], words[1]))
    return result


def _is_generic(name: str) -> bool:
    return len(name) == 1 and name.isupper()


class _Types:
    """The dtypes that type names stand for in one call."""

    def __init__(self, parameters):
        self.generic = {}
        for name, _ in parameters:
            if not _is_generic(name) and name not in TYPES:
                raise TypeError(f"unknown type {name!r}; known are {', '.join(sorted(TYPES))} and single capital letters")

    def bind(self, name, dtype):
        if not _is_generic(name):
            return TYPES[name]
        known = self.generic.setdefault(name, dtype)
        if known is not dtype:
            raise TypeError(f"Type is mismatched: {name} is {known._name} and {dtype._name}")
        return known


def _arguments(parameters, args, kernel):
    """Tensors of the parameters' dtypes on one device."""
    if len(args) != len(parameters):
        raise TypeError(f"{kernel} takes {len(parameters)} arguments ({len(args)} given)")
    types = _Types(parameters)
    device = next((a.device for a in args if isinstance(a, Tensor)), _C.device("cpu"))
    for (type_name, _), a in zip(parameters, args):
        if isinstance(a, Tensor):
            types.bind(type_name, a.dtype)
    tensors = []
    for (type_name, name), a in zip(parameters, args):
        if isinstance(a, Tensor):
            dtype = types.bind(type_name, a.dtype)
            tensors.append(a if a.dtype is dtype else a.to(dtype))
            continue
        dtype = TYPES.get(type_name) or types.generic.get(type_name)
        t = _C.tensor(a, dtype=dtype, device=device)
        types.bind(type_name, t.dtype)
        tensors.append(t)
    return tensors, types


class ElementwiseKernel:
    """A function of elements written as statements of C, which runs over tensors with broadcasting:

        squared = ElementwiseKernel("float32 x, float32 y", "float32 z", "z = (x - y) * (x - y)", "squared")
        z = squared(x, y)

    Type names are dtypes or single capital letters, which stand for whatever is passed. The statements are compiled to
    one fused program for the device of the arguments; see arete._snippets for what they may contain. Gradients flow
    through it."""

    def __init__(self, in_params: str, out_params: str, operation: str, name: str = "kernel"):
        self.in_params, self.out_params = _parameters(in_params), _parameters(out_params)
        self.operation, self.name = operation, name
        if not self.in_params or not self.out_params:
            raise ValueError("a kernel needs at least one input and one output")
        names = [n for _, n in self.in_params + self.out_params]
        if len(set(names)) != len(names):
            raise ValueError("parameters must have different names")
        _Types(self.in_params + self.out_params)
        self._programs = {}

    def __repr__(self):
        return f"<ElementwiseKernel {self.name}>"

    def _program(self, dtypes, types):
        key = tuple(dtypes)
        program = self._programs.get(key)
        if program is None:
            out_dtypes = []
            for type_name, name in self.out_params:
                if _is_generic(type_name) and type_name not in types.generic:
                    raise TypeError(f"the type {type_name} of {name!r} follows from no input")
                out_dtypes.append(types.generic.get(type_name) or TYPES[type_name])

            def definition(*values):
                variables = {n: v for (_, n), v in zip(self.in_params, values)}
                evaluator = Evaluator(self.operation, variables, types.generic, values[0])
                result = evaluator.run()
                outputs = []
                for (_, n), dtype in zip(self.out_params, out_dtypes):
                    if n not in result:
                        raise SnippetError(f"{n!r} is never assigned in {self.operation!r}")
                    outputs.append((evaluator._value(result[n]).cast(dtype), dtype))
                return outputs

            program = self._programs[key] = _e.trace(definition, list(dtypes), [], self.name)
        return program

    def __call__(self, *args):
        """Results as new tensors, or written into output arguments that follow the inputs."""
        given = args[len(self.in_params):]
        tensors, types = _arguments(self.in_params, args[: len(self.in_params)], self.name)
        if len(given) not in (0, len(self.out_params)):
            raise TypeError(f"{self.name} takes {len(self.in_params)} inputs and {len(self.out_params)} outputs")
        for (type_name, _), out in zip(self.out_params, given):
            if _is_generic(type_name):
                types.generic.setdefault(type_name, out.dtype)
        results = self._program([t.dtype for t in tensors], types)(tensors)
        if given:
            for out, r in zip(given, results):
                out.copy_(r)
            results = list(given)
        return results[0] if len(results) == 1 else tuple(results)


_NUMPY_KINDS = {"bool": "?", "int8": "b", "uint8": "B", "int16": "h", "int32": "i", "uint32": "I", "int64": "q",
                "uint64": "Q", "float32": "f", "float64": "d"}


def _raw_argument(a):
    """A tensor, or a number with the C type it is passed as: Python's int is long long, float is double, as in CuPy;
    NumPy's scalars and 0-d arrays are what they are."""
    if isinstance(a, Tensor):
        return a
    if hasattr(a, "dtype") and hasattr(a, "item"):
        kind = _NUMPY_KINDS.get(a.dtype.name)
        if kind is None:
            raise TypeError(f"Unsupported type {a.dtype} of a kernel argument")
        return kind, a.item()
    if isinstance(a, bool):
        return "?", a
    if isinstance(a, int):
        return "q", a
    if isinstance(a, float):
        return "d", a
    if hasattr(a, "__dlpack__"):
        return from_dlpack(a)
    raise TypeError(f"Unsupported type {type(a)} of a kernel argument")


def _three(x):
    x = (x,) if isinstance(x, int) else tuple(x)
    if not 1 <= len(x) <= 3 or any(v < 0 for v in x):
        raise ValueError(f"grid and block are one to three sizes, not {x}")
    return (*x, 1, 1)[:3]


def _check_backend(backend):
    if backend != "nvrtc":
        raise ValueError(f"kernels are compiled by nvrtc, and by no {backend!r}")


class RawKernel:
    """A function `extern "C" __global__ void name(...)` in CUDA C++ source:

        scale = RawKernel(r'''
        extern "C" __global__ void scale(float* x, float a, int n) {
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          if (i < n) x[i] *= a;
        }''', "scale")
        scale((blocks,), (256,), (x, np.float32(2), np.int32(x.numel())))

    Compiled at its first launch on a GPU, kept on disk. Numbers are passed as the types they have: Python's int and
    float are long long and double. Errors of compilation show the lines of the source."""

    def __init__(self, code: str, name: str, options=(), backend: str = "nvrtc"):
        _check_backend(backend)
        self.code, self.name, self.options = code, name, tuple(options)
        self._kernel = _C._cuda.RawKernel(code, name, list(options))

    def __repr__(self):
        return f"<RawKernel {self.name}>"

    def compile(self) -> None:
        """Compiles now, for the current GPU."""
        self._kernel.compile()

    def __call__(self, grid, block, args, *, shared_mem: int = 0):
        self._kernel.launch(_three(grid), _three(block), [_raw_argument(a) for a in args], shared_mem)


class RawModule:
    """Several functions in one source: get_function(name) gives each as a RawKernel."""

    def __init__(self, *, code: str, options=(), backend: str = "nvrtc"):
        _check_backend(backend)
        self.code, self.options = code, tuple(options)

    def get_function(self, name: str) -> RawKernel:
        return RawKernel(self.code, name, self.options)


_REDUCTIONS = {"a+b": "sum", "a*b": "prod", "max(a,b)": "max", "min(a,b)": "min", "a&&b": "all", "a||b": "any",
               "b+a": "sum", "b*a": "prod", "fmax(a,b)": "max", "fmin(a,b)": "min", "a|b": "any",
               "a&b": "all"}


class ReductionKernel:
    """map, reduce, map again, over any axes, in one kernel:

        l2norm = ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "l2norm")
        l2norm(x, axis=1)

    The reduction is one of a + b, a * b, max(a, b), min(a, b), a && b, a || b, whose `identity` is known without being said."""

    def __init__(self, in_params, out_params, map_expr, reduce_expr, post_map_expr, identity, name="reduction"):
        self.in_params, self.out_params = _parameters(in_params), _parameters(out_params)
        if len(self.out_params) != 1:
            raise ValueError("a reduction has one output")
        self.map_expr, self.post_map_expr, self.name = map_expr, post_map_expr, name
        self._reduce = _REDUCTIONS.get(re.sub(r"\s+", "", reduce_expr))
        if self._reduce is None:
            raise ValueError(f"the reduction {reduce_expr!r} is not one of {', '.join(_REDUCTIONS)}")
        self._programs = {}

    def __repr__(self):
        return f"<ReductionKernel {self.name}>"

    def _program(self, dtypes, types):
        if dtypes not in self._programs:
            type_name, out_name = self.out_params[0]
            out_dtype = types.generic.get(type_name) or TYPES.get(type_name)
            if out_dtype is None:
                raise TypeError(f"the type {type_name} of {out_name!r} follows from no input")

            def definition(rows, *values):
                variables = {n: v for (_, n), v in zip(self.in_params, values)}
                mapped = Evaluator(self.map_expr, variables, types.generic, values[0]).expression_only()
                if self._reduce not in ("any", "all"):
                    mapped = mapped.cast(out_dtype)
                reduced = rows._reduce(self._reduce, mapped, True)
                evaluator = Evaluator(self.post_map_expr, {"a": reduced}, types.generic, values[0])
                result = evaluator.run()
                if out_name not in result:
                    raise SnippetError(f"{out_name!r} is never assigned in {self.post_map_expr!r}")
                return [(evaluator._value(result[out_name]).cast(out_dtype), out_dtype)]

            self._programs[dtypes] = _e.trace_rows(definition, list(dtypes), [], self.name)
        return self._programs[dtypes]

    def __call__(self, *args, out=None, axis=None, keepdims=False):
        tensors, types = _arguments(self.in_params, args, self.name)
        axes = [] if axis is None else [axis] if isinstance(axis, int) else list(axis)
        if axis is not None and not axes:
            raise ValueError("axis=() reduces nothing: an ElementwiseKernel does that")
        (result,) = self._program(tuple(t.dtype for t in tensors), types)(tensors, [], axes)
        if not keepdims:
            result = _ops.squeeze(result, axes or list(range(result.dim())))
        return out.copy_(result) if out is not None else result
