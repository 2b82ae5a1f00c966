"""Folders of checkpoints, by the name of torch's module."""
from ._files import FileSystemReader, FileSystemWriter

__all__ = ["FileSystemReader", "FileSystemWriter"]
