"""Switches of torch.backends that mean something here."""
from __future__ import annotations

import contextlib
import sys
import types

from .. import _C


def _is_tf32(precision: str):
    """What a name of a precision says of TF32; None: nothing."""
    if precision not in ("none", "ieee", "tf32"):
        raise ValueError(f"fp32_precision must be 'ieee', 'tf32' or 'none', not {precision!r}")
    return None if precision == "none" else precision == "tf32"


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

    @property
    def fp32_precision(self) -> str:
        """The same as "tf32" or "ieee"."""
        return "tf32" if self.allow_tf32 else "ieee"

    @fp32_precision.setter
    def fp32_precision(self, precision: str):
        self.allow_tf32 = bool(_is_tf32(precision))


class _Convolutions:
    @property
    def fp32_precision(self) -> str:
        """cudnn.allow_tf32 as "tf32" or "ieee"; set to "none" it follows that of products again."""
        return "tf32" if _C._convolution_tf32(None) else "ieee"

    @fp32_precision.setter
    def fp32_precision(self, precision: str):
        _C._set_convolution_tf32_setting(_is_tf32(precision))


class _Cuda:
    matmul = _Matmul()

    @staticmethod
    def is_built() -> bool:
        return True


class _Mps:
    """GPUs of another maker: there are none here."""

    @staticmethod
    def is_available() -> bool:
        return False

    @staticmethod
    def is_built() -> bool:
        return False


class _Cudnn(_Convolutions):
    """What convolutions and attention on GPUs may use."""

    conv = _Convolutions()

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
    def flags(self, enabled=None, benchmark=None, benchmark_limit=None, deterministic=None, allow_tf32=None, fp32_precision="none"):
        """Sets what is given inside. `fp32_precision`: "ieee" or "tf32" decides over `allow_tf32`, its older name; "none" leaves
        the decision to it."""
        if fp32_precision is not None and _is_tf32(fp32_precision) is not None:
            allow_tf32 = _is_tf32(fp32_precision)
        wanted = {"enabled": enabled, "benchmark": benchmark, "benchmark_limit": benchmark_limit, "deterministic": deterministic}
        wanted = {name: value for name, value in wanted.items() if value is not None}
        before = {name: getattr(self, name) for name in wanted}
        tf32_before = _C._convolution_tf32_setting()
        try:
            for name, value in wanted.items():
                setattr(self, name, value)
            if allow_tf32 is not None:
                self.allow_tf32 = allow_tf32
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)
            if allow_tf32 is not None:
                _C._set_convolution_tf32_setting(tf32_before)

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


class _Backends(types.ModuleType):
    @property
    def fp32_precision(self) -> str:
        """That of products; setting it sets that of convolutions, too."""
        return cuda.matmul.fp32_precision

    @fp32_precision.setter
    def fp32_precision(self, precision: str):
        cuda.matmul.fp32_precision = cudnn.fp32_precision = precision


cuda = _Cuda()
cudnn = _Cudnn()
mps = _Mps()
sys.modules[__name__].__class__ = _Backends
