"""Storages, where torch has them."""
from __future__ import annotations

from ._operators import _storage as _all

__all__ = ["TypedStorage", "UntypedStorage"]

TypedStorage, UntypedStorage = _all.TypedStorage, _all.UntypedStorage
