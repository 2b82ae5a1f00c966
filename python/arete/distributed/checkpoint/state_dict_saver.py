"""Saving, by the name of torch's module."""
from ._files import AsyncCheckpointerType, async_save, save

__all__ = ["AsyncCheckpointerType", "async_save", "save"]
