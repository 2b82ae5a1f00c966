"""Levels of vmap, as func and autograd use them: see Note [Batched tensors] in arete/ops/vmap.h."""
from __future__ import annotations

import contextlib

from . import _C


@contextlib.contextmanager
def level(batch: int, randomness: str = "error"):
    """Inside, what _C._batch() enters is one element of a batch of that many."""
    _C._enter_vmap(batch, randomness)
    try:
        yield
    finally:
        _C._exit_vmap()
