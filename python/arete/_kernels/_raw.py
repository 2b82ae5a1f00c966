"""Kernels in the source of CUDA C++."""
from __future__ import annotations

from .. import _C
from ._launch import raw_argument, three


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

    Compiled at its first launch on a GPU, kept on disk. Numbers are passed as the types they have: Python's int and float are long
    long and double. Errors of compilation show the lines of the source. With arrays of the CPU it runs there, every access checked, if
    its source is the C part of the language (docs/kernels.md)."""

    def __init__(self, code: str, name: str, options=(), backend: str = "nvrtc", *, translate_cucomplex: bool = False,
                 enable_cooperative_groups: bool = False, jitify: bool = False):
        _check_backend(backend)
        for option, value in (("translate_cucomplex", translate_cucomplex), ("enable_cooperative_groups", enable_cooperative_groups),
                              ("jitify", jitify)):
            if value:
                raise NotImplementedError(f"RawKernel: {option} is not there")
        self.code, self.name, self.options, self.backend = code, name, tuple(options), backend
        self._kernel = _C._cuda.RawKernel(code, name, list(options))

    def __repr__(self):
        return f"<RawKernel {self.name}>"

    def compile(self) -> None:
        """Compiles now: for the current GPU, or the CPU where there is none."""
        self._kernel.compile()

    def __call__(self, grid, block, args, *, shared_mem: int = 0):
        self._kernel.launch(three(grid), three(block), [raw_argument(a) for a in args], shared_mem)


class RawModule:
    """Several functions in one source: get_function(name) gives each as a RawKernel."""

    def __init__(self, *, code: str, options=(), backend: str = "nvrtc"):
        _check_backend(backend)
        self.code, self.options, self.backend = code, tuple(options), backend

    def get_function(self, name: str) -> RawKernel:
        return RawKernel(self.code, name, self.options)
