"""Checkpoints that many processes write and read together, in safetensors files. docs/sharding.md has examples."""
from __future__ import annotations

from ..._refused import refused as _refused
from . import format_utils as format_utils
from . import staging as staging
from . import state_dict as state_dict
from . import stateful as stateful
from ._files import AsyncCheckpointerType as AsyncCheckpointerType
from ._files import AsyncSaveResponse as AsyncSaveResponse
from ._files import CheckpointException as CheckpointException
from ._files import FileSystemReader as FileSystemReader
from ._files import FileSystemWriter as FileSystemWriter
from ._files import async_save as async_save
from ._files import load as load
from ._files import save as save

from .hf_storage import HuggingFaceStorageReader as HuggingFaceStorageReader
from .hf_storage import HuggingFaceStorageWriter as HuggingFaceStorageWriter
from .default_planner import DefaultLoadPlanner as DefaultLoadPlanner
from .default_planner import DefaultSavePlanner as DefaultSavePlanner
from .metadata import BytesStorageMetadata as BytesStorageMetadata
from .metadata import ChunkStorageMetadata as ChunkStorageMetadata
from .metadata import Metadata as Metadata
from .metadata import TensorStorageMetadata as TensorStorageMetadata
from .planner import LoadPlan as LoadPlan  # type: ignore[attr-defined]
from .planner import LoadPlanner as LoadPlanner  # type: ignore[attr-defined]
from .planner import SavePlan as SavePlan  # type: ignore[attr-defined]
from .planner import SavePlanner as SavePlanner  # type: ignore[attr-defined]

globals().update(_refused(__name__, "checkpoints are folders, and what is saved is the state that is given",
                          "StorageReader", "StorageWriter"))
load_state_dict, save_state_dict = load, save
