"""What torch.compile() gives for modules, where torch has it."""
from __future__ import annotations

from ..nn.modules._compiled import OptimizedModule as OptimizedModule


def is_dynamo_supported() -> bool:
    """True: arete.compile() works everywhere.

    >>> arete._dynamo.eval_frame.is_dynamo_supported()
    True
    """
    return True
