"""Why rows of the breadth benchmark may be slower than PyTorch: each reason with the rows that it holds for."""

from __future__ import annotations

import re

# (how the name of the device begins, regular expression that is found in the names of the rows, reason)
REASONS = (
    ("CPU", r"^torch\.randperm ", "sorts random keys of 63 bits, so that all devices give one permutation; PyTorch exchanges elements"),
    ("CPU", r"grid_sample", "an interpreted program, whose look-ups take what PyTorch's whole kernel takes; gradients scatter tap by tap"),
    ("CPU", r"\b[pc]dist ", "differences, squares and sums in f64 are passes over blocks; PyTorch keeps a pair in registers"),
    ("CPU", r"\b(gelu|GELU) ", "an error function within one unit in the last place; PyTorch's is off by four"),
    ("CPU", r"\b(elu|celu|selu)_? ", "what needs no exponential is found and skipped in two further passes through the cache"),
    ("CPU", r"\b(hardswish|leaky_relu|LeakyReLU|angle|lerp|clamp|prelu|huber_loss|HuberLoss|smooth_l1_loss|SmoothL1Loss|rrelu_) ",
     "each step of a program is a pass through the first cache; PyTorch has one loop"),
    ("CPU", r"\b(kron|outer|ger) ", "short rows are repeated into a buffer first"),
    ("CPU", r"\b(igammac?_?|gammaincc?|i1e) ", "series in f64, for all digits of f32"),
    ("CPU", r"\bbmm .*\| host ", "a call of oneDNN for each matrix"),
    ("CPU", r"\bconv3d .*groups", "oneDNN of Debian 12 has no own way for groups of odd channels"),
    ("CPU", r"(log_softmax|softmax|softmin|Softmax|Softmin) ", "exponentials are computed for the sum and again for the result"),
    ("CPU", r"([Ll]ayer|[Gg]roup|[Ii]nstance)_?[Nn]orm.*backward", "gradients of input, weight and bias are passes of their own"),
    ("CPU", r"\b(cum)?prod .*backward", "running products from both sides: right for zero factors, and differentiable twice"),
    ("CPU", r"(Replication|Reflection)Pad", "a call for each band of the border"),
    ("CPU", r"max_unpool", "gathers of rows of two or three elements"),
    ("CPU", r"^torch\.unfold_copy ", "sums of overlapping windows go through an index"),
)


def reason_of(name, device):
    """Why this row may be slower on the device; None: it should not be."""
    return next((why for where, pattern, why in REASONS if device.startswith(where) and re.search(pattern, name)), None)
