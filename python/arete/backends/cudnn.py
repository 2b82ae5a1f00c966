"""What convolutions and attention on GPUs may use."""
from __future__ import annotations

import contextlib as _contextlib

from .. import _C
from . import _switches


class _Convolutions:
    __slots__ = ()

    @property
    def fp32_precision(self) -> str:
        """cudnn.allow_tf32 as "tf32" or "ieee"; set to "none" it follows that of products again."""
        return "tf32" if _C._convolution_tf32(None) else "ieee"

    @fp32_precision.setter
    def fp32_precision(self, precision: str):
        _C._set_convolution_tf32_setting(_switches.is_tf32(precision))


class _Cudnn(_switches.Switches):
    fp32_precision = _Convolutions.fp32_precision

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
        """Whether cuDNN may only use algorithms that give the same bits each time; use_deterministic_algorithms(True), a switch
        of its own, says the same to it."""
        return _C._cudnn_deterministic(None)

    @deterministic.setter
    def deterministic(self, value: bool):
        _C._cudnn_deterministic(bool(value))

    @_contextlib.contextmanager
    def flags(self, enabled=None, benchmark=None, benchmark_limit=None, deterministic=None, allow_tf32=None, fp32_precision="none"):
        """Sets what is given inside. `fp32_precision`: "ieee" or "tf32" decides over `allow_tf32`, its older name; "none" leaves
        the decision to it."""
        if fp32_precision is not None and _switches.is_tf32(fp32_precision) is not None:
            allow_tf32 = _switches.is_tf32(fp32_precision)
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


conv = _Convolutions()
_switches.become(__name__, _Cudnn)
