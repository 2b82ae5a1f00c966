"""Kernels in the source of CUDA C++."""
from __future__ import annotations

import math
import re
import weakref

from .. import _C
from ._launch import NUMBER_KINDS, on_stream, raw_argument, written_tensor


def _check_options(name, backend, translate_cucomplex, enable_cooperative_groups, jitify):
    if backend != "nvrtc":
        raise ValueError(f"kernels are compiled by nvrtc, and by no {backend!r}")
    for option, value in (("translate_cucomplex", translate_cucomplex), ("enable_cooperative_groups", enable_cooperative_groups),
                          ("jitify", jitify)):
        if value:
            raise NotImplementedError(f"{name}: {option} is not there")


def _with_own_headers(code):
    """CuPy's header for complex numbers is the library's own."""
    return re.sub(r'(#\s*include\s*)[<"]cupy/complex\.cuh[>"]', r'\1"complex.cuh"', code)


_FACTS = ("max_threads_per_block", "shared_size_bytes", "const_size_bytes", "local_size_bytes", "num_regs", "ptx_version", "binary_version",
          "cache_mode_ca", "max_dynamic_shared_size_bytes", "preferred_shared_memory_carveout")
_SETTABLE = _FACTS[-2:]


class Function:
    """What CUDA knows a kernel by: `kernel.kernel.ptr` is its handle."""

    known: weakref.WeakValueDictionary[int, RawKernel] = weakref.WeakValueDictionary()

    def __init__(self, kernel):
        self._kernel = kernel

    @property
    def ptr(self):
        handle = self._kernel._kernel.native_handle
        self.known[handle] = self._kernel
        return handle


class MemoryPointer:
    """Memory from a place on; `arete.cupy.ndarray(shape, dtype, memptr)` is the array over it."""

    def __init__(self, tensor, offset=0):
        self._bytes, self._offset = tensor, offset

    memory = property(lambda self: self._bytes[self._offset:])
    ptr = property(lambda self: self._bytes.data_ptr() + self._offset)
    size = property(lambda self: self._bytes.numel() - self._offset)
    device_id = property(lambda self: self._bytes.device.index)

    def __int__(self):
        return self.ptr

    def __add__(self, offset):
        return MemoryPointer(self._bytes, self._offset + offset)

    def tensor(self, shape, dtype):
        """The tensor of the memory's beginning."""
        need = dtype.itemsize * math.prod(shape)
        if need > self.size:
            raise ValueError(f"{need} bytes do not fit into a memory of {self.size}")
        return self._bytes[self._offset:self._offset + need].view(dtype).reshape(shape)


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
        self._kernel, self._numbers = _C._cuda.RawKernel(_with_own_headers(code), name, list(options)), None

    def __repr__(self):
        return f"<RawKernel {self.name}>"

    def _argument(self, a, place):
        """An argument that is no array with dimensions and no number of Python's or NumPy's. An array without dimensions, as
        `cupy.int32(3)` is here, is a number where the kernel takes one."""
        t = written_tensor(a)
        if t is None or t.dim() or not self._takes_number(place):
            return raw_argument(a)
        kind = NUMBER_KINDS.get(t.dtype._name)
        if kind is None:
            raise TypeError(f"{self.name}: kernels have no numbers of {t.dtype}")
        return kind, t.item()

    def _takes_number(self, place):
        """Whether the parameter is plainly of a type of numbers."""
        if self._numbers is None:
            text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", self.code, flags=re.S)
            name = re.escape(self.name.partition("<")[0].rpartition("::")[2])
            found = re.search(rf"__global__[^;{{}}]*\b{name}\s*\(([^(){{}};]*)\)", text)
            words = r"\b(?:int|long|short|char|float|double|bool|unsigned|signed|size_t|ptrdiff_t|u?int(?:8|16|32|64)_t)\b"
            listed = found[1].split(",") if found else []
            self._numbers = [not re.search(r"[*&\[]", p) and re.search(words, p) is not None for p in listed]
        return place < len(self._numbers) and self._numbers[place]

    def compile(self, log_stream=None) -> None:
        """Compiles now: for the current GPU, or the CPU where there is none. What the compiler has against the source is written to
        `log_stream`, too, before it is raised."""
        try:
            self._kernel.compile()
        except ValueError as e:
            if log_stream is not None:
                log_stream.write(f"{e}\n")
            raise

    @property
    def attributes(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in _FACTS}

    @property
    def kernel(self) -> Function:
        return Function(self)

    def __call__(self, grid, block, args, *, shared_mem: int = 0):
        self._kernel.launch(grid, block, args, shared_mem, self._argument)


def _fact(number, name):
    def get(self):
        return self._kernel.fact(number)

    def put(self, value):
        if _C._cuda.is_available():  # on the CPU every launch has the shared memory that it asks for
            self._kernel.set(number, value)

    return property(get, put if name in _SETTABLE else None)


for _number, _name in enumerate(_FACTS):
    setattr(RawKernel, _name, _fact(_number, _name))


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
    source, get_function("scale<float>"); those that `name_expressions` lists, if it is given, are all there are. Functions share the
    variables of the source, which get_global(name) gives, but instances of templates do not: beside another function of a source with
    `__device__` variables that are not const one is refused."""

    def __init__(self, *, code: str, options=(), backend: str = "nvrtc", name_expressions=None, translate_cucomplex: bool = False,
                 enable_cooperative_groups: bool = False, jitify: bool = False):
        _check_options("RawModule", backend, translate_cucomplex, enable_cooperative_groups, jitify)
        self.code, self.options, self.backend = code, tuple(options), backend
        self.name_expressions = None if name_expressions is None else tuple(name_expressions)
        self._functions: dict[str, RawKernel] = {}

    def compile(self, log_stream=None) -> None:
        """Compiles the functions that `name_expressions` lists; others are compiled when they are first launched. `log_stream` is as
        RawKernel's."""
        for name in self.name_expressions or ():
            self.get_function(name).compile(log_stream)

    def get_function(self, name: str) -> RawKernel:
        if "<" in name and self.name_expressions is not None and name not in self.name_expressions:
            raise ValueError(f"RawModule: {name!r} is not among the name_expressions")
        if name not in self._functions:
            if self._functions and any("<" in n for n in (name, *self._functions)) and (variable := _variable(self.code)):
                raise NotImplementedError(f"RawModule: instances of templates do not share the variable {variable!r} with others; give it "
                                          "to them as an array")
            self._functions[name] = RawKernel(self.code, name, self.options)
        return self._functions[name]

    def get_global(self, name: str) -> MemoryPointer:
        """The memory of a `__device__` or `__constant__` variable: on the current GPU, or on the CPU where there is none."""
        bounds = r"(?:__launch_bounds__\s*\([^)]*\)\s*)?"
        found = re.search(rf"__global__\s+{bounds}void\s+{bounds}(\w+)", self.code)  # any function: all have the variables
        if found is None:
            raise ValueError("RawModule: the source has no kernel")
        return MemoryPointer(self.get_function(found[1])._kernel.variable(name))


class SourceModule:
    """The same as PyCUDA has it: the source is taken for C (unless `no_extern_c`), and functions are called with block and grid by
    name. What In, Out and InOut are around is copied to and from the device for the call."""

    def __init__(self, source: str, options=(), no_extern_c: bool = False):
        self._module = RawModule(code=source if no_extern_c else f'extern "C" {{\n#line 1\n{source}\n}}\n', options=options or ())

    def get_function(self, name: str):
        return SourceFunction(self._module.get_function(name))

    def get_global(self, name: str):
        """Address and bytes of a variable; the address is a pointer to its memory."""
        memory = self._module.get_global(name)
        return memory, memory.size


class SourceFunction:
    """A function of a SourceModule: `f(*args, block=(64, 1, 1), grid=(8, 1))`, or `f.prepare("PPi")` and `f.prepared_call(grid, block,
    *args)`, whose numbers are passed as the types say. RawKernel's attributes are its own, too."""

    def __init__(self, kernel):
        self.kernel, self._kinds = kernel, None

    def __getattr__(self, name):
        if name in _FACTS:
            return getattr(self.kernel, name)
        raise AttributeError(f"a function of a SourceModule has no {name!r}")

    def __call__(self, *args, block, grid=(1, 1), shared: int = 0, stream=None):
        with on_stream(stream):
            given = [a.to_device() if isinstance(a, In) else a for a in args]
            self.kernel(grid, block, given, shared_mem=shared)
            for a, t in zip(args, given):
                if isinstance(a, In):
                    a.to_host(t)

    def prepare(self, types):
        """`types`: letters of struct's, or types of NumPy's; "P" is an array."""
        kinds = [t if isinstance(t, str) and len(t) == 1 else NUMBER_KINDS.get(getattr(t, "__name__", None) or str(t)) for t in types]
        kinds = [{"l": "q", "L": "Q"}.get(k, k) for k in kinds]
        if not all(k == "P" or k in NUMBER_KINDS.values() for k in kinds):
            raise ValueError(f"types of a kernel's arguments are among P{''.join(NUMBER_KINDS.values())}, not {types!r}")
        self._kinds = kinds
        return self

    def prepared_call(self, grid, block, *args, shared_size: int = 0):
        if self._kinds is None:
            raise RuntimeError("prepare() says first what types the arguments have")
        if len(args) != len(self._kinds):
            raise TypeError(f"{self.kernel.name} is prepared for {len(self._kinds)} arguments ({len(args)} given)")
        given = [a if k == "P" else (k, a) for k, a in zip(self._kinds, args)]
        self.kernel._kernel.launch(grid, block, given, shared_size, lambda a, k: a if isinstance(a, tuple) else raw_argument(a))

    def prepared_async_call(self, grid, block, stream, *args, shared_size: int = 0):
        with on_stream(stream):
            self.prepared_call(grid, block, *args, shared_size=shared_size)


class In:
    """A NumPy array that a kernel reads; anything that becomes one."""

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
