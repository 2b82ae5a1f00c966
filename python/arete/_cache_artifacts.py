"""Compiled kernels as bytes, which another machine with such a GPU takes: torch.compiler.save_cache_artifacts and load_cache_artifacts.

The cache is a folder of files, whose names are hashes of all that a kernel depends on (source, compiler, GPU) and which say the hash of
what they hold (arete/backend/cuda/runtime/kernel_store.h): what was damaged on the way counts as absent when a kernel is looked for.
"""
from __future__ import annotations

import dataclasses
import io
import os
import re
import tempfile
import warnings
import zipfile

_MAGIC, _NAME, _LARGEST = b"ARETEKN1", re.compile(r"[0-9a-f]{32}"), 1 << 26


@dataclasses.dataclass
class CacheInfo:
    """The kernels that were saved or loaded, by the names of their files."""

    kernels: list[str] = dataclasses.field(default_factory=list)


def _folder() -> str:
    own, cache, home = (os.environ.get(name) for name in ("ARETE_KERNEL_CACHE", "XDG_CACHE_HOME", "HOME"))
    return own if own is not None else f"{cache}/arete/kernels" if cache else f"{home}/.cache/arete/kernels" if home else ""


def save() -> "tuple[bytes, CacheInfo] | None":
    folder, info, data = _folder(), CacheInfo(), io.BytesIO()
    try:
        names = sorted(os.listdir(folder)) if folder else []
    except OSError:
        names = []
    with zipfile.ZipFile(data, "w") as archive:
        for name in filter(_NAME.fullmatch, names):
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    content = file.read(_LARGEST + 1)
            except OSError:
                continue  # another process's, which is gone
            if content.startswith(_MAGIC) and len(content) <= _LARGEST:
                archive.writestr(name, content)
                info.kernels.append(name)
    return (data.getvalue(), info) if info.kernels else None


def _keep(folder: str, name: str, content: bytes) -> bool:
    """Whether the folder has it then; as the library itself writes: all of a file or none."""
    path = os.path.join(folder, name)
    if os.path.exists(path):
        return True
    try:
        os.makedirs(folder, exist_ok=True)
        file, temporary = tempfile.mkstemp(prefix=f"{name}.", dir=folder)
    except OSError:
        return False
    try:
        with open(file, "wb") as out:
            out.write(content)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        return False
    return True


def load(artifacts: bytes) -> "CacheInfo | None":
    folder, info = _folder(), CacheInfo()
    if not folder:
        return None
    try:
        with zipfile.ZipFile(io.BytesIO(artifacts)) as archive:
            for entry in archive.infolist():
                if not _NAME.fullmatch(entry.filename) or entry.file_size > _LARGEST or entry.compress_type != zipfile.ZIP_STORED:
                    raise ValueError(f"{entry.filename!r} is no kernel")
                content = archive.read(entry)
                if not content.startswith(_MAGIC):
                    raise ValueError(f"{entry.filename!r} is no kernel")
                if _keep(folder, entry.filename, content):
                    info.kernels.append(entry.filename)
    except (ValueError, zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError) as e:
        warnings.warn(f"load_cache_artifacts(): these are no artifacts of save_cache_artifacts(): {e}", stacklevel=3)
        return None
    return info
