"""Operators as torch's older exporter writes them for version 12: this library's exporter writes them by itself."""
from __future__ import annotations

from .._refused import refused as _refused

globals().update(_refused(__name__, "arete.onnx.export writes operators by itself", "add", "cast_pytorch_to_onnx", "dropout",
                          "masked_fill", "mul", "nms",
                          "select", "softmax", "squeeze", "sub", "unsqueeze"))
