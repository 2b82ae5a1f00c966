"""Helpers of functions that write operators for torch's older exporter: this library's exporter has no such functions."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._refused import refused as _refused

globals().update(_refused(__name__, "arete.onnx.export writes operators by itself", "_get_tensor_dim_size", "_get_tensor_sizes", "_is_none",
                          "_maybe_get_const", "_unimplemented", "cast_pytorch_to_onnx"))


def parse_args(*arg_descriptors: str) -> Callable:
    """Marks such a function, which is never called: gives it back."""

    def same(function: Any) -> Any:
        return function

    return same
