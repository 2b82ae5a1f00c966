"""Kernels in the source of CUDA C++."""
from __future__ import annotations

import re

from .. import _C
from ._launch import on_stream, raw_argument


def _check_options(name, backend, translate_cucomplex, enable_cooperative_groups, jitify):
    if backend != "nvrtc":
        raise ValueError(f"kernels are compiled by nvrtc, and by no {backend!r}")
    for option, value in (("translate_cucomplex", translate_cucomplex), ("enable_cooperative_groups", enable_cooperative_groups),
                          ("jitify", jitify)):
        if value:
            raise NotImplementedError(f"{name}: {option} is not there")


class RawKernel:
    """A function `extern "C" __global__ void name(...)` in CUDA C++ source:

        scale = RawKernel(r'''
        extern "C" __global__ void scale(float* x, float a, int n) {
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          if (i < n) x[i] *= a;
        }''', "scale")
        scale((blocks,), (256,), (x, np.float32(2), np.int32(x.numel())))

    Which tensors it writes to is not known: nothing saved for a backward pass notices.

    Compiled at its first launch on a GPU, kept on disk. Numbers are passed as the types they have: Python's int and float are long
    long and double. Errors of compilation show the lines of the source. With arrays of the CPU it runs there, every access checked, if
    its source is the C part of the language (docs/kernels.md)."""

    def __init__(self, code: str, name: str, options=(), backend: str = "nvrtc", *, translate_cucomplex: bool = False,
                 enable_cooperative_groups: bool = False, jitify: bool = False):
        _check_options("RawKernel", backend, translate_cucomplex, enable_cooperative_groups, jitify)
        self.code, self.name, self.options, self.backend = code, name, tuple(options), backend
        self._kernel = _C._cuda.RawKernel(code, name, list(options))

    def __repr__(self):
        return f"<RawKernel {self.name}>"

    def compile(self) -> None:
        """Compiles now: for the current GPU, or the CPU where there is none."""
        self._kernel.compile()

    def __call__(self, grid, block, args, *, shared_mem: int = 0):
        self._kernel.launch(grid, block, args, shared_mem, raw_argument)


def _variable(code):
    """The name of a `__device__` variable in a source that functions may change, or None."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", code, flags=re.S)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.M)
    text = re.sub(r"\b(?:__align__|alignas|__attribute__)\s*\(+[^()]*\)+", " ", text)
    for before, after in re.findall(r"([^(){};]*)\b(?:__device__|__managed__)\b([^(){};=\[]*)(?=[;=\[{])", text):
        said = (before + after).rpartition("*")[2]  # of a pointer, what is said of itself
        if not re.search(r"\b(?:const|constexpr|__constant__|operator)\b", said):
            return re.findall(r"\w+", after)[-1]
    return None


class RawModule:
    """Several functions in one source: get_function(name) gives each as a RawKernel. Of a template an instance is named as in the
    source, get_function("scale<float>"); those that `name_expressions` lists, if it is given, are all there are. Functions do not share
    `__device__` variables: a second one of a source that has some which are not const is refused."""

    def __init__(self, *, code: str, options=(), backend: str = "nvrtc", name_expressions=None, translate_cucomplex: bool = False,
                 enable_cooperative_groups: bool = False, jitify: bool = False):
        _check_options("RawModule", backend, translate_cucomplex, enable_cooperative_groups, jitify)
        self.code, self.options, self.backend = code, tuple(options), backend
        self.name_expressions = None if name_expressions is None else tuple(name_expressions)
        self._functions: dict[str, RawKernel] = {}

    def compile(self, log_stream=None) -> None:
        """Compiles the functions that `name_expressions` lists; others are compiled when they are first launched."""
        for name in self.name_expressions or ():
            self.get_function(name).compile()

    def get_function(self, name: str) -> RawKernel:
        if "<" in name and self.name_expressions is not None and name not in self.name_expressions:
            raise ValueError(f"RawModule: {name!r} is not among the name_expressions")
        if name not in self._functions:
            if self._functions and (variable := _variable(self.code)):
                raise NotImplementedError(f"RawModule: functions of one source do not share the variable {variable!r}; give it to them as "
                                          "an array")
            self._functions[name] = RawKernel(self.code, name, self.options)
        return self._functions[name]


class SourceModule:
    """The same as PyCUDA has it: the source is taken for C (unless `no_extern_c`), and functions are called with block and grid by
    name. What In, Out and InOut are around is copied to and from the device for the call."""

    def __init__(self, source: str, options=(), no_extern_c: bool = False):
        self._module = RawModule(code=source if no_extern_c else f'extern "C" {{\n#line 1\n{source}\n}}\n', options=options or ())

    def get_function(self, name: str):
        kernel = self._module.get_function(name)

        def call(*args, block, grid=(1, 1), shared: int = 0, stream=None):
            with on_stream(stream):
                given = [a.to_device() if isinstance(a, In) else a for a in args]
                kernel(grid, block, given, shared_mem=shared)
                for a, t in zip(args, given):
                    if isinstance(a, In):
                        a.to_host(t)

        call.__name__, call.prepare = name, lambda *types: call
        return call


class In:
    """A NumPy array that a kernel reads."""

    _back = False

    def __init__(self, array):
        self.array = array

    def to_device(self):
        device = "cuda" if _C._cuda.is_available() else "cpu"
        return _C.tensor(self.array, device=device)

    def to_host(self, t):
        if self._back:
            self.array[...] = t.cpu().numpy()


class InOut(In):
    """A NumPy array that a kernel reads and writes."""

    _back = True


class Out(InOut):
    """A NumPy array that a kernel writes."""
