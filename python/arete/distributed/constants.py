"""How long processes wait for others unless they say so."""
from __future__ import annotations

from .distributed_c10d import default_pg_timeout as default_pg_timeout

__all__ = ["default_pg_timeout"]
