"""What convolutions and attention on GPUs may use."""
from __future__ import annotations

import contextlib as _contextlib
import sys as _sys

from .. import _C
from . import _switches


class _Convolutions:
    __slots__ = ()
    fp32_precision = _switches.precision_of(_switches.CONVOLUTIONS,
                                            """cudnn.allow_tf32 as "tf32" or "ieee"; "none": as cudnn.fp32_precision says.""")


class _Recurrences:
    """Recurrent layers are products of matrices here; in f32 they are rounded as cuDNN's are in torch. Gradients of packed sequences
    and of layers with projections are products like others: `backends.cuda.matmul` decides for them."""

    __slots__ = ()
    fp32_precision = _switches.precision_of(_switches.RECURRENCES,
                                            """cudnn.allow_tf32 as "tf32" or "ieee"; "none": as cudnn.fp32_precision says.""")


class _Cudnn(_switches.Switches):
    fp32_precision = _switches.precision_of(_switches.GPU, "That of products, convolutions and recurrent layers without one.")

    @property
    def allow_tf32(self) -> bool:
        """Whether convolutions and recurrent layers of f32 tensors may round their operands to TF32; True at the start. Reads as
        what is in force for convolutions."""
        return _switches.PRECISIONS[_C._float32_precision(_switches.CONVOLUTIONS)] == "tf32"

    @allow_tf32.setter
    def allow_tf32(self, value: bool):
        for scope in (_switches.CONVOLUTIONS, _switches.RECURRENCES):
            _switches.set_precision(scope, "tf32" if value else "ieee")

    @property
    def enabled(self) -> bool:
        """Whether they may use cuDNN; else the library's own kernels compute them, which is slower."""
        return _C._cudnn_enabled(None)

    @enabled.setter
    def enabled(self, value: bool):
        _C._cudnn_enabled(bool(value))

    @property
    def benchmark(self) -> bool:
        """Whether cuDNN's algorithms are timed once for each shape and the fastest is kept, or the first in the opinion of its
        heuristics is taken, as at the start."""
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
    def deterministic(self) -> bool:
        """Whether cuDNN may only use algorithms that give the same bits each time; use_deterministic_algorithms(True), a switch
        of its own, says the same to it."""
        return _C._cudnn_deterministic(None)

    @deterministic.setter
    def deterministic(self, value: bool):
        _C._cudnn_deterministic(bool(value))

    @staticmethod
    def set_flags(_enabled=None, _benchmark=None, _benchmark_limit=None, _deterministic=None, _allow_tf32=None, _fp32_precision="none"):
        """Sets what is not None, and gives what was set before."""
        here = _sys.modules[__name__]
        before = (here.enabled, here.benchmark, here.benchmark_limit, here.deterministic, here.allow_tf32,
                  _switches.PRECISIONS[_C._float32_precision_setting(_switches.GPU)])
        for name, value in (("enabled", _enabled), ("benchmark", _benchmark), ("benchmark_limit", _benchmark_limit),
                            ("deterministic", _deterministic), ("allow_tf32", _allow_tf32), ("fp32_precision", _fp32_precision)):
            if value is not None:
                setattr(here, name, value)
        return before

    @_contextlib.contextmanager
    def flags(self, enabled=False, benchmark=False, benchmark_limit=10, deterministic=False, allow_tf32=True, fp32_precision="none"):
        """Sets all of them inside; what is left out is set to what stands here, as in torch: without `enabled=True` cuDNN is off."""
        scopes = _switches.CONVOLUTIONS, _switches.RECURRENCES
        settings = [_C._float32_precision_setting(scope) for scope in scopes]
        before = self.set_flags(_fp32_precision=None)
        try:
            self.set_flags(enabled, benchmark, benchmark_limit, deterministic, allow_tf32, fp32_precision)
            yield
        finally:
            self.set_flags(*before)
            for scope, setting in zip(scopes, settings):
                _C._set_float32_precision(scope, setting)

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


conv, rnn = _Convolutions(), _Recurrences()
_switches.become(__name__, _Cudnn)
