"""Folders of safetensors files as Hugging Face's libraries have them, which processes write and read together."""
from __future__ import annotations

import contextlib
import itertools
import json
import os
import pathlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterable, Iterator, Optional

from ... import _C, serialization
from ..._formats.safetensors import SafetensorsFile
from ..._formats.source import Source
from ..tensor._dtensor import DTensor
from .metadata import ChunkStorageMetadata, Metadata, TensorProperties, TensorStorageMetadata

__all__ = ["HuggingFaceStorageReader", "HuggingFaceStorageWriter"]

_INDEX = "model.safetensors.index.json"


def checked_count(count: int, name: str) -> int:
    """The number of threads that an option says."""
    if type(count) is not int or count < 1:
        raise ValueError(f"{name} is the number of threads, from 1 on, got {count!r}")
    return count


def in_threads(count: int, function: Callable[[Any], Any], items: Iterable) -> list:
    """function(item) of each item, in order, by so many threads, or with one by this."""
    if count == 1:
        return list(map(function, items))
    with ThreadPoolExecutor(count, "arete-checkpoint") as threads:
        return list(threads.map(function, items))


class HuggingFaceStorageReader:
    """Where load() reads tensors from: a folder with safetensors files. Each process maps the files and reads its parts, in `thread_count`
    threads.

    >>> dcp = arete.distributed.checkpoint
    >>> _ = dcp.save({"w": arete.ones(2)}, storage_writer=dcp.HuggingFaceStorageWriter("model"))
    >>> state = {"w": arete.zeros(2)}
    >>> dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader("model"))
    >>> state["w"]
    tensor([1., 1.])
    """

    def __init__(self, path: Any, thread_count: int = 1) -> None:
        self.path, self.thread_count = os.fspath(path), checked_count(thread_count, "HuggingFaceStorageReader: thread_count")

    def _open(self) -> "_Folder":
        return _Folder(self.path)

    def read_metadata(self) -> Metadata:
        """The names and sizes of what is there."""
        return Metadata({name: TensorStorageMetadata(
            TensorProperties(getattr(_C, dtype)), _C.Size(shape), [ChunkStorageMetadata(_C.Size([0] * len(shape)), _C.Size(shape))])
            for name, (dtype, shape) in self._open().tensors.items()})


class _Folder:
    """What load() asks of a checkpoint."""

    objects = "{}"

    def __init__(self, path: str) -> None:
        folder = pathlib.Path(path)
        names = sorted(f.name for f in folder.glob("*.safetensors"))
        if (folder / _INDEX).exists():
            listed = sorted(set(json.loads((folder / _INDEX).read_text())["weight_map"].values()))
            if any(os.path.basename(name) != name for name in listed):
                raise ValueError(f"{folder / _INDEX} names a file that is not in the folder")
            names = listed
        if not names:
            raise FileNotFoundError(f"there is no safetensors file in {folder}")
        self._files: dict = {}
        self.tensors: dict = {}
        for name in names:
            file = SafetensorsFile(Source(str(folder / name), True))
            for key, (dtype, shape, *_) in file.entries.items():
                self._files[key], self.tensors[key] = file, [dtype, list(shape)]

    def read(self, name: str, start: list, sizes: list) -> Any:
        tensor = self._files[name].tensor(name)
        for d, (first, n) in enumerate(zip(start, sizes)):
            tensor = tensor.narrow(d, first, n)
        return tensor


class HuggingFaceStorageWriter:
    """Where save() writes a state of tensors: rank 0 a folder with one safetensors file, or several as `fqn_to_index_mapping` says, by the
    names of tensors, from 1 on, and their index. Tensors that are spread over processes are gathered one after the other, so with
    `save_distributed` it must be `enable_consolidation=True`: files of parts are what FileSystemWriter writes. So many files are written
    side by side, and in memory, as `thread_count` says, or with `enable_consolidation` `thread_count_consolidation`. Files take the
    places of those that are there when all are written, the index last; of a write that fails there are none.

    >>> arete.distributed.checkpoint.HuggingFaceStorageWriter("model", {"a": 1, "b": 2}).path
    'model'
    """

    def __init__(self, path: Any, fqn_to_index_mapping: Optional[dict] = None, thread_count: int = 1, save_distributed: bool = False,
                 enable_consolidation: bool = False, thread_count_consolidation: int = 1) -> None:
        if save_distributed and not enable_consolidation:
            raise NotImplementedError("HuggingFaceStorageWriter: files of parts are not written: enable_consolidation, or FileSystemWriter")
        self.path, self.mapping = os.fspath(path), fqn_to_index_mapping
        counts = [checked_count(n, "HuggingFaceStorageWriter: a thread_count") for n in (thread_count, thread_count_consolidation)]
        self.thread_count = counts[enable_consolidation]

    def _check(self, flat: dict) -> None:
        others = [name for name, v in flat.items() if not isinstance(v, _C.Tensor)]
        if others:
            raise TypeError(f"{others[0]} is no tensor, which is all that such files have")
        places = self._places(flat)
        if set(flat) - set(places) or any(type(places[name]) is not int or places[name] < 1 for name in flat):
            raise ValueError("fqn_to_index_mapping needs the number of a file, from 1 on, for each tensor")

    def _places(self, flat: dict) -> dict:
        return {name: 1 for name in flat} if self.mapping is None else self.mapping

    def _write(self, flat: dict, order: list, is_first: bool) -> None:
        """All processes call it with what _check() has seen, and gather all tensors, whatever becomes of the files of the first one."""
        wholes = self._wholes(flat, order)
        try:
            if is_first:
                self._write_files(flat, wholes)
        finally:
            for _ in wholes:
                pass

    def _order(self, flat: dict) -> list:
        """Names, file by file."""
        places = self._places(flat)
        return sorted(flat, key=lambda name: places[name])

    def _wholes(self, flat: dict, order: list) -> Iterator[tuple]:
        """In that order, tensors with their names."""
        for name in order:
            yield name, (flat[name].full_tensor() if isinstance(flat[name], DTensor) else flat[name]).detach()

    def _write_files(self, flat: dict, wholes: Iterator[tuple]) -> None:
        places, folder = self._places(flat), pathlib.Path(self.path)
        last = max((places[name] for name in flat), default=1)
        names = {i: f"model-{i:05d}-of-{last:05d}.safetensors" for i in range(1, last + 1)}
        folder.mkdir(parents=True, exist_ok=True)
        total = 0
        with contextlib.ExitStack() as files:  # which take their places from the last to the first
            index = files.enter_context(serialization._replacing(str(folder / _INDEX)))
            under_way: deque = deque()
            with ThreadPoolExecutor(self.thread_count, "arete-checkpoint") as threads:
                for i, group in itertools.groupby(wholes, key=lambda found: places[found[0]]):
                    if len(under_way) == self.thread_count:
                        under_way.popleft().result()
                    held = {name: whole.cpu().contiguous() for name, whole in group}
                    total += sum(t.nbytes for t in held.values())
                    write = serialization._safetensors_writer(held)
                    if write is None:
                        raise TypeError(f"{names[i]} would have a tensor of a dtype that such files have not")
                    under_way.append(threads.submit(write, files.enter_context(serialization._replacing(str(folder / names[i])))))
                    del held, write
            for written in under_way:
                written.result()
            of_names = {name: names[places[name]] for name in flat}
            index.write(json.dumps({"metadata": {"total_size": total}, "weight_map": of_names}, indent=2).encode())
