"""The same names as arete.distributed.tensor, where older programs have them."""
from __future__ import annotations

from ..tensor import *  # noqa: F403
