"""Checkpoints that many processes write and read together, in safetensors files. docs/sharding.md has examples."""
from __future__ import annotations

from ..._refused import refused as _refused
from . import state_dict as state_dict
from ._files import CheckpointException as CheckpointException
from ._files import FileSystemReader as FileSystemReader
from ._files import FileSystemWriter as FileSystemWriter
from ._files import async_save as async_save
from ._files import load as load
from ._files import save as save

globals().update(_refused(__name__, "checkpoints are folders, and what is saved is the state that is given",
                          "LoadPlan", "LoadPlanner", "Metadata", "SavePlan", "SavePlanner", "StorageReader", "StorageWriter"))
load_state_dict, save_state_dict = load, save
