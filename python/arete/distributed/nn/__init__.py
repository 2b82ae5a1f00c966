"""Collectives with gradients (distributed.nn.functional)."""
from . import functional as functional
from .functional import (  # noqa: F401
    all_gather, all_reduce, all_to_all, all_to_all_single, broadcast, gather, reduce, reduce_scatter, scatter,
)
