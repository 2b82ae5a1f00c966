"""What a checkpoint says of itself: FileSystemReader.read_metadata()."""
from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Union

from ... import _C
from ..._formats.safetensors import CODES

__all__ = ["BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "TensorProperties", "TensorStorageMetadata", "metadata_of"]


@dataclass
class ChunkStorageMetadata:
    """A piece of a tensor: where it begins, and how large it is.

    >>> arete.distributed.checkpoint.metadata.ChunkStorageMetadata(arete.Size([2, 0]), arete.Size([2, 4])).sizes
    Size([2, 4])
    """

    offsets: Any
    sizes: Any


@dataclass
class TensorProperties:
    """What a tensor is beside its size."""

    dtype: Any = field(default_factory=_C.get_default_dtype)


@dataclass
class TensorStorageMetadata:
    """A tensor of a checkpoint."""

    properties: TensorProperties
    size: Any
    chunks: list[ChunkStorageMetadata]


@dataclass
class BytesStorageMetadata:
    """What is no tensor."""


@dataclass
class Metadata:
    """What a checkpoint has, under the names of nested dictionaries with dots between.

    >>> dcp = arete.distributed.checkpoint
    >>> _ = dcp.save({"model": {"weight": arete.zeros(2, 3)}, "step": 7}, checkpoint_id="run")
    >>> facts = dcp.FileSystemReader("run").read_metadata().state_dict_metadata
    >>> facts["model.weight"].size, facts["step"]
    (Size([2, 3]), BytesStorageMetadata())
    """

    state_dict_metadata: dict[str, Union[TensorStorageMetadata, BytesStorageMetadata]] = field(default_factory=dict)


_DTYPES = {**CODES, "C128": "complex128"}  # which an index has, and no file of pieces


def metadata_of(folder: str) -> Metadata:
    """Of a folder, whose index is checked."""
    checkpoint = _C._distributed.Checkpoint(folder)
    pieces = checkpoint.pieces
    facts: dict[str, Union[TensorStorageMetadata, BytesStorageMetadata]] = {
        name: BytesStorageMetadata() for name in json.loads(checkpoint.objects) if not name.startswith(".")}
    for name, (code, shape) in checkpoint.tensors.items():
        chunks = [ChunkStorageMetadata(_C.Size(start), _C.Size(sizes)) for start, sizes in pieces[name]]
        facts[name] = TensorStorageMetadata(TensorProperties(getattr(_C, _DTYPES[code])), _C.Size(shape), chunks)
    return Metadata(facts)
