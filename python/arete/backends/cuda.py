"""How products and attention are computed on GPUs."""
from __future__ import annotations

import contextlib as _contextlib
import warnings as _warnings

from .. import _C
from . import _switches


class _Matmul:
    """f32 products in TF32 where the hardware has it. Products in half types add up in f32 in any case: what allows less is
    kept, and not made use of."""

    __slots__ = ("_allowed",)

    def __init__(self):
        object.__setattr__(self, "_allowed", {"allow_fp16_reduced_precision_reduction": True,
                                              "allow_bf16_reduced_precision_reduction": True, "allow_fp16_accumulation": False})

    def __getattr__(self, name: str):
        if name in self._allowed:
            return self._allowed[name]
        raise AttributeError("Unknown attribute " + name)

    def __setattr__(self, name: str, value):
        if name in self._allowed:
            self._allowed[name] = bool(value)
        elif isinstance(getattr(type(self), name, None), property):
            object.__setattr__(self, name, value)
        else:
            raise AttributeError("Unknown attribute " + name)

    allow_tf32 = _switches.allows_tf32(_switches.PRODUCTS, "Whether they may; set_float32_matmul_precision() is the same switch.")
    fp32_precision = _switches.precision_of(_switches.PRODUCTS, """The same as "tf32" or "ieee"; "none": as cudnn.fp32_precision says.""")


matmul = _Matmul()


def is_built() -> bool:
    return True


# ---- how attention is computed: see arete.nn.attention


def _attention_switch(position: int, value: bool) -> None:
    allowed = _C._attention_backends(None)
    allowed[position] = bool(value)
    _C._attention_backends(allowed)


def flash_sdp_enabled() -> bool:
    return _C._attention_backends(None)[0]


def enable_flash_sdp(enabled: bool) -> None:
    """The kernel that does not store the scores may be used as long as it is allowed under one of its three names: flash,
    mem_efficient, cudnn."""
    _attention_switch(0, enabled)


def mem_efficient_sdp_enabled() -> bool:
    return _C._attention_backends(None)[1]


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """See enable_flash_sdp."""
    _attention_switch(1, enabled)


def cudnn_sdp_enabled() -> bool:
    return _C._attention_backends(None)[2]


def enable_cudnn_sdp(enabled: bool) -> None:
    """See enable_flash_sdp."""
    _attention_switch(2, enabled)


def math_sdp_enabled() -> bool:
    return _C._attention_backends(None)[3]


def enable_math_sdp(enabled: bool) -> None:
    """Whether attention may be two products around a softmax. Without it a call on a GPU that the other kernel cannot do (a
    mask, dropout, float32) is an error; CPUs have nothing else."""
    _attention_switch(3, enabled)


@_contextlib.contextmanager
def sdp_kernel(enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True, enable_cudnn: bool = True):
    """The older form of arete.nn.attention.sdpa_kernel."""
    _warnings.warn("arete.backends.cuda.sdp_kernel() is deprecated: use arete.nn.attention.sdpa_kernel()", FutureWarning, stacklevel=3)
    before = _C._attention_backends(None)
    _C._attention_backends([bool(enable_flash), bool(enable_mem_efficient), bool(enable_cudnn), bool(enable_math)])
    try:
        yield {}
    finally:
        _C._attention_backends(before)


_switches.become(__name__, _switches.Switches)
