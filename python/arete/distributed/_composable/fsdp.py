"""The same names as arete.distributed.fsdp, where older programs have them."""
from __future__ import annotations

from ..fsdp import *  # noqa: F403
