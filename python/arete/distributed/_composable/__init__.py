"""Functions that change modules for work on several processes, where older programs have them."""
from __future__ import annotations

from ..fsdp import fully_shard as fully_shard
from .checkpoint_activation import checkpoint as checkpoint
from .replicate import replicate as replicate
