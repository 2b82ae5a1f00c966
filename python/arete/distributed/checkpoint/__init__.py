"""Checkpoints that many processes write together: there are none; arete.save() writes files of one process."""
from __future__ import annotations

from ..._refused import refused as _refused

globals().update(_refused(__name__, "checkpoints are written by one process: arete.save()",
                          "FileSystemReader", "FileSystemWriter", "LoadPlan", "LoadPlanner", "Metadata", "SavePlan", "SavePlanner",
                          "StorageReader", "StorageWriter", "async_save", "load", "load_state_dict", "save", "save_state_dict"))
