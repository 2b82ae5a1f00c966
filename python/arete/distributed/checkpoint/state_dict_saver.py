"""Saving, by the name of torch's module."""
from ._files import AsyncCheckpointerType, AsyncSaveResponse, async_save, save

__all__ = ["AsyncCheckpointerType", "AsyncSaveResponse", "async_save", "save"]
