"""`arete.save` and `arete.load`: tensors, state dicts and checkpoints in files.

    arete.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, "run.pt")
    checkpoint = arete.load("run.pt", map_location="cpu")

`save` writes PyTorch's zip files, which its torch.load reads with weights_only=True, and under names that end in .safetensors that format,
in which every other program finds the tensors under names like "model.0.weight"; `load` makes the very same structure of it again. The
mapping is described in `arete/_formats/structure.py`. `load` reads NumPy's .npy and .npz as well. Other objects (modules, optimizers, the
program's own) are written as PyTorch does, by pickle, which `load` executes with weights_only=False only.
"""
from __future__ import annotations

import os
from contextlib import contextmanager
from typing import Any, BinaryIO, Callable, Iterator, List, Optional, Union
from _pickle import UnpicklingError

from . import _C
from ._grad_mode import no_grad
from ._formats.source import FormatError, Source

__all__ = ["save", "load", "add_safe_globals", "clear_safe_globals", "get_safe_globals", "get_unsafe_globals_in_checkpoint",
           "safe_globals", "FormatError", "UnpicklingError"]

DEFAULT_PROTOCOL = 2  # of the pickles that are written
MAP_LOCATION = Any  # what load() takes: a device, a dict from devices to devices, a function, or None


def save(obj: Any, f: Union[str, os.PathLike, BinaryIO], *args: Any, **kwargs: Any) -> None:
    """Writes a tensor, or dicts, lists, tuples and sets of tensors, numbers, texts, None, ..., to a path or an open file.

    Types, key types and the order of keys come back as they were; so do requires_grad, Parameters, memory formats and tensors
    that are the same. A path that ends in ".safetensors" gets that format, other paths PyTorch's; so do open files in programs that run
    under arete.as_torch, elsewhere those get safetensors. What holds other objects is written in PyTorch's format in any case, which load()
    reads with weights_only=False; what pickle cannot write is its error, before anything is written.

    At a path the new file appears complete or not at all: it is written beside the old one, synced, and renamed over it.
    PyTorch's further arguments (pickle_module, ...) are accepted and not used.

    >>> import io
    >>> file = io.BytesIO()
    >>> arete.save({"weight": arete.ones(2), "epoch": 3}, file)
    >>> _ = file.seek(0)
    >>> arete.load(file)
    {'weight': tensor([1., 1.]), 'epoch': 3}
    >>> file = io.BytesIO()
    >>> arete.save({"hook": print}, file)
    >>> _ = file.seek(0)
    >>> arete.load(file, weights_only=False)
    {'hook': <built-in function print>}
    """
    if not isinstance(f, (str, os.PathLike)) and not hasattr(f, "write"):
        raise TypeError(f"save needs a path or an open file, not a {type(f).__name__}")
    with no_grad():
        write = _safetensors_writer(obj) if _wants_safetensors(f) else None
        if write is None:
            from ._formats.torch_objects import TorchWriter

            write = TorchWriter(obj).write
        if isinstance(f, (str, os.PathLike)):
            with _replacing(os.fspath(f)) as out:
                write(out)
        else:
            write(f)


def _wants_safetensors(f: Any) -> bool:
    if isinstance(f, (str, os.PathLike)):
        return os.fsdecode(f).endswith(".safetensors")
    return _C.Tensor.__module__ != "torch"


def _safetensors_writer(obj: Any) -> Optional[Callable[[BinaryIO], Any]]:
    """None for what holds other objects."""
    from ._formats.safetensors import write_safetensors
    from ._formats.structure import Encoder

    try:
        encoder = Encoder(obj)
        metadata = encoder.metadata()
    except TypeError:
        return None
    return lambda out: write_safetensors(out, encoder.tensors, metadata)


@contextmanager
def _replacing(path: str) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` when all is written."""
    target = os.path.realpath(path)
    if os.path.exists(target) and not os.path.isfile(target):
        with open(target, "wb") as out:  # a pipe or a device cannot be replaced
            yield out
        return
    import tempfile

    folder = os.path.dirname(target)
    handle, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(target)[:100]}.", suffix=".tmp", dir=folder)
    try:
        with os.fdopen(handle, "wb") as out:
            try:
                mode = os.stat(target).st_mode & 0o7777
            except FileNotFoundError:
                mask = os.umask(0)
                os.umask(mask)
                mode = 0o666 & ~mask
            os.fchmod(out.fileno(), mode)
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, target)
    except BaseException:
        try:
            os.unlink(temporary)
        except FileNotFoundError:
            pass
        raise
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    except OSError:  # some file systems sync no folders
        pass
    finally:
        os.close(directory)


def add_safe_globals(safe_globals: List[Any]) -> None:
    """Functions and classes that load() may call where one of PyTorch's files names them, besides those that it knows:
    each by itself, or as a pair with the name that it has in files ("module.name"), where that is another one.

    >>> import argparse
    >>> arete.serialization.add_safe_globals([argparse.Namespace])
    >>> arete.serialization.get_safe_globals()
    [<class 'argparse.Namespace'>]
    >>> arete.serialization.clear_safe_globals()
    >>> arete.serialization.add_safe_globals(["argparse.Namespace"])
    Traceback (most recent call last):
    TypeError: a function or a class, or a pair of one and its name in files, not 'argparse.Namespace'
    """
    from ._formats import torch_pickle

    given = list(safe_globals)
    for thing in given:
        named = isinstance(thing, tuple) and len(thing) == 2 and callable(thing[0]) and isinstance(thing[1], str)
        if not named and not (callable(thing) and hasattr(thing, "__qualname__")):
            raise TypeError(f"a function or a class, or a pair of one and its name in files, not {thing!r}")
    torch_pickle.safe_globals += [thing for thing in given if thing not in torch_pickle.safe_globals]


def get_safe_globals() -> List[Any]:
    """What add_safe_globals() was given.

    >>> arete.serialization.get_safe_globals()
    []
    """
    from ._formats import torch_pickle

    return list(torch_pickle.safe_globals)


def get_unsafe_globals_in_checkpoint(f: Union[str, os.PathLike, BinaryIO]) -> List[str]:
    """The functions and classes that one of PyTorch's zip files names and load() would refuse: neither known nor allowed. Nothing of the
    file is executed. ValueError for other files.

    >>> import argparse, io
    >>> file = io.BytesIO()
    >>> arete.save({"options": argparse.Namespace(lr=0.1), "weight": arete.ones(2)}, file)
    >>> _ = file.seek(0)
    >>> arete.serialization.get_unsafe_globals_in_checkpoint(file)
    ['argparse.Namespace']
    """
    from ._formats import torch_pickle
    from ._formats.zipfile import ZipArchive

    source = Source(f, False)
    try:
        if bytes(source.read(0, min(4, source.size))) not in (b"PK\3\4", b"PK\5\6"):
            raise ValueError("Expected input to be a checkpoint returned by torch.save")
        archive = ZipArchive(source)
        folder = torch_pickle.torch_folder(archive)
        if folder is None:
            raise ValueError("Expected input to be a checkpoint returned by torch.save")
        return torch_pickle.unknown_globals(archive, folder)
    finally:
        source.close()


def clear_safe_globals() -> None:
    """Takes back what add_safe_globals() allowed.

    >>> arete.serialization.clear_safe_globals()
    """
    from ._formats import torch_pickle

    torch_pickle.safe_globals.clear()


@contextmanager
def safe_globals(safe_globals: List[Any]) -> Iterator[None]:
    """add_safe_globals() for a block.

    >>> import argparse
    >>> with arete.serialization.safe_globals([argparse.Namespace]):
    ...     arete.serialization.get_safe_globals()
    [<class 'argparse.Namespace'>]
    >>> arete.serialization.get_safe_globals()
    []
    """
    from ._formats import torch_pickle

    before = get_safe_globals()
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        torch_pickle.safe_globals[:] = before


class StorageStub:
    """What a callable map_location gets as its first argument: returned as it is, the storage stays on the CPU; `cuda(i)` and
    `cpu()` give one for another device."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = _C.device(device)

    def cuda(self, device: Any = None, *args: Any, **kwargs: Any) -> "StorageStub":
        if device is None:
            device = _C._cuda.current_device()
        return StorageStub(f"cuda:{device}" if isinstance(device, int) else str(device))

    def cpu(self) -> "StorageStub":
        return StorageStub("cpu")


def _placer(map_location: Any) -> Callable[[Any, str], Any]:
    """A function (CPU tensor, device where it was) giving the tensor where it shall be."""
    if map_location is not None and not isinstance(map_location, (str, dict, _C.device)) and not callable(map_location):
        raise TypeError(f"map_location must be None, a device, a dict or a function, not a {type(map_location).__name__}")

    def target(saved: str) -> str:
        if isinstance(map_location, dict):
            return str(map_location.get(saved, saved))
        if isinstance(map_location, (str, _C.device)):
            return str(map_location)
        if callable(map_location):
            chosen = map_location(StorageStub(), saved)
            return saved if chosen is None else str(chosen.device)
        return saved

    def place(tensor: Any, saved: str) -> Any:
        device = target(saved)
        if device == "cpu":
            return tensor
        if device.startswith("cuda") and not _C._cuda.is_available():
            raise RuntimeError(f"the file has tensors of the device {device!r}, but no CUDA device is available: "
                               "load with map_location='cpu'")
        return tensor.to(device)

    return place


def load(f: Union[str, os.PathLike, BinaryIO], map_location: Any = None, pickle_module: Any = None, *, weights_only: Optional[bool] = None,
         mmap: Optional[bool] = None, **pickle_load_args: Any) -> Any:
    """Reads what `save` wrote, any other safetensors file (a dict of tensors), PyTorch's .pt files, .npy (a tensor), .npz (a dict).

    `map_location` says where the tensors go: None (where they were), a device, a dict from devices to devices, or a function
    (storage, device) as in PyTorch. With `mmap=True` tensors are copy-on-write views of the file, read when they are used; the file
    must then not be made shorter while they live. `weights_only=False` executes the pickle of a .pt file, which may run anything: for files
    that the program trusts.

    FormatError (a RuntimeError and ValueError) for a damaged or unknown file, UnpicklingError for a .pt file with other things than
    tensors, numbers, texts and containers, and what add_safe_globals() has allowed.

    >>> import io
    >>> file = io.BytesIO()
    >>> arete.save([arete.tensor([1, 2]), "text"], file)
    >>> _ = file.seek(0)
    >>> arete.load(file, map_location="cpu")
    [tensor([1, 2]), 'text']
    """
    from ._formats import npy, safetensors, torch_pickle
    from ._formats.structure import Decoder
    from ._formats.zipfile import ZipArchive

    place = _placer(map_location)
    source = Source(f, bool(mmap))
    try:
        start = bytes(source.read(0, min(64, source.size)))
        if start[:4] in (b"PK\3\4", b"PK\5\6"):
            archive = ZipArchive(source)
            folder = torch_pickle.torch_folder(archive)
            if folder is not None and weights_only is False:
                from ._formats.torch_objects import load_objects

                return load_objects(archive, folder, place, **pickle_load_args)
            if folder is not None:
                return torch_pickle.load_torch(archive, folder, place)
            if all(name.endswith(".npy") for name in archive.entries):
                return {name: place(t, "cpu") for name, t in npy.load_npz(archive).items()}
            raise FormatError(f"{source.name} is a zip archive, but neither PyTorch's nor NumPy's")
        if start[:6] == npy.MAGIC:
            return place(npy.load_npy(source), "cpu")
        if safetensors.is_safetensors(start, source.size):
            return Decoder(safetensors.SafetensorsFile(source), place).value()
        if torch_pickle.is_legacy(start):
            if weights_only is False:
                from ._formats.torch_objects import load_legacy_objects

                return load_legacy_objects(source, place, **pickle_load_args)
            return torch_pickle.load_legacy(source, place)
        torch_pickle.refuse_legacy(source, start)
        raise FormatError(f"{source.name} is no file that arete.load reads, or it is truncated ({source.size} bytes, "
                          f"beginning with {start[:8]!r})")
    finally:
        source.close()
