"""Quantised layers: there are none."""
from __future__ import annotations

from ..._refused import refused as _refused

globals().update(_refused(
    __name__, "there are no quantised tensors; arete.kernels.apply_matmul multiplies by weights of int8",
    "BatchNorm2d", "BatchNorm3d", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d",
    "ConvTranspose3d", "DeQuantize", "Dropout", "ELU", "Embedding", "EmbeddingBag", "FXFloatFunctional",
    "FloatFunctional", "GroupNorm", "Hardswish", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LSTM",
    "LayerNorm", "LeakyReLU", "Linear", "MultiheadAttention", "PReLU", "QFunctional", "Quantize", "ReLU6",
    "Sigmoid", "Softmax",
))
