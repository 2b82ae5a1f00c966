"""The same names, where older programs have them."""
from __future__ import annotations

from . import *  # noqa: F403
