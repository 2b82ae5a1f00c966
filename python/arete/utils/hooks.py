"""Handles of modules' hooks, where torch has them."""
from __future__ import annotations

from ..nn._hooks import RemovableHandle

__all__ = ["RemovableHandle"]
