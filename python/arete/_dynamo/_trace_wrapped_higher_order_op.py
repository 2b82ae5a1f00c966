"""Indexing by tensors within torch.vmap."""
from __future__ import annotations

import contextlib

__all__ = ["TransformGetItemToIndex"]


class TransformGetItemToIndex(contextlib.nullcontext):
    """Nothing: within arete.vmap() `x[index]` with a batched index of no dimensions reads the element without looking at the index."""
