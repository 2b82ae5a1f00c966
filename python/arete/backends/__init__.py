"""Switches of torch.backends that mean something here."""
from __future__ import annotations

import contextlib

from .. import _C


class _Matmul:
    """f32 products in TF32 where the hardware has it. Products in half types add up in f32 in any case."""

    allow_fp16_reduced_precision_reduction = False
    allow_bf16_reduced_precision_reduction = False

    @property
    def allow_tf32(self) -> bool:
        return _C._matmul_precision(None) != "highest"

    @allow_tf32.setter
    def allow_tf32(self, value: bool):
        _C._matmul_precision("high" if value else "highest")


class _Cuda:
    matmul = _Matmul()

    @staticmethod
    def is_built() -> bool:
        return True


class _Cudnn:
    """What convolutions and attention on GPUs may use."""

    @property
    def enabled(self) -> bool:
        """Whether they may use cuDNN; else the library's own kernels compute them, which is slower."""
        return _C._cudnn_enabled(None)

    @enabled.setter
    def enabled(self, value: bool):
        _C._cudnn_enabled(bool(value))

    @property
    def benchmark(self) -> bool:
        """Whether cuDNN's algorithms are timed once for each shape and the fastest is kept (True at the start, other than
        in torch), or the first in the opinion of its heuristics is taken."""
        return _C._cudnn_benchmark(None)

    @benchmark.setter
    def benchmark(self, value: bool):
        _C._cudnn_benchmark(bool(value))

    @property
    def benchmark_limit(self) -> int:
        """How many algorithms are timed at most; 0 stands for all."""
        return _C._cudnn_benchmark_limit(None)

    @benchmark_limit.setter
    def benchmark_limit(self, value: int):
        _C._cudnn_benchmark_limit(int(value))

    @property
    def allow_tf32(self) -> bool:
        """As backends.cuda.matmul.allow_tf32 until it is set."""
        return _C._convolution_tf32(None)

    @allow_tf32.setter
    def allow_tf32(self, value: bool):
        _C._convolution_tf32(bool(value))

    @property
    def deterministic(self) -> bool:
        return _C._deterministic(None)

    @deterministic.setter
    def deterministic(self, value: bool):
        _C._deterministic(bool(value))

    @contextlib.contextmanager
    def flags(self, enabled=None, benchmark=None, benchmark_limit=None, deterministic=None, allow_tf32=None):
        """Sets what is given inside."""
        wanted = {"enabled": enabled, "benchmark": benchmark, "benchmark_limit": benchmark_limit,
                  "deterministic": deterministic, "allow_tf32": allow_tf32}
        wanted = {name: value for name, value in wanted.items() if value is not None}
        before = {name: getattr(self, name) for name in wanted}
        for name, value in wanted.items():
            setattr(self, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)

    @staticmethod
    def is_available() -> bool:
        return _C._cuda.is_available()

    @staticmethod
    def version():
        for name, version in _C._cuda.versions() if _C._cuda.is_available() else []:
            if name.lower() == "cudnn":
                major, minor, patch = (*version.split("."), "0", "0")[:3]
                return int(major) * 10000 + int(minor) * 100 + int(patch)
        return None


cuda = _Cuda()
cudnn = _Cudnn()
