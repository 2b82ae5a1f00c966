"""Indexing by tensors within torch.vmap."""
from __future__ import annotations

import contextlib

__all__ = ["TransformGetItemToIndex"]


class TransformGetItemToIndex(contextlib.nullcontext):
    """Nothing: `x[index]` with an index of one element is what it says within arete.vmap(), too, which calls its function with each."""
