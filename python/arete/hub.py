"""Models from folders with a hubconf.py, and files of weights from addresses, kept where they have been fetched: torch.hub."""
from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import types
import uuid
import zipfile
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlparse
from urllib.request import Request, urlopen

from .serialization import load as _load

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
READ_DATA_CHUNK = 128 * 1024
_dir: str | None = None


def _get_torch_home() -> str:
    cache = os.getenv("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.getenv("TORCH_HOME", os.path.join(cache, "torch")))


def get_dir() -> str:
    """Where what is fetched is kept: what set_dir() says, or the folder "hub" in $TORCH_HOME."""
    return _dir if _dir is not None else os.path.join(_get_torch_home(), "hub")


def set_dir(d: Any) -> None:
    """Where what is fetched is kept from now on."""
    global _dir
    _dir = os.path.expanduser(str(d))


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Fetches a file, which appears complete or not at all. RuntimeError if its SHA-256 does not begin with `hash_prefix`."""
    dst = os.path.expanduser(dst)
    request = Request(url, headers={"User-Agent": "torch.hub"})
    temporary = os.path.join(os.path.dirname(dst), f".{uuid.uuid4().hex}.partial")
    try:
        digest = hashlib.sha256()
        with urlopen(request) as source, open(temporary, "xb") as file:
            size, done = int(source.headers.get("Content-Length") or 0), 0
            while block := source.read(READ_DATA_CHUNK):
                file.write(block)
                digest.update(block)
                done += len(block)
                if progress and sys.stderr.isatty():
                    sys.stderr.write(f"\r{done / 2**20:.1f} of {size / 2**20:.1f} MiB")
        if progress and sys.stderr.isatty():
            sys.stderr.write("\n")
        if hash_prefix is not None and digest.hexdigest()[: len(hash_prefix)] != hash_prefix:
            raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}")')
        os.replace(temporary, dst)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def load_state_dict_from_url(url: str, model_dir: str | None = None, map_location: Any = None, progress: bool = True,
                             check_hash: bool = False, file_name: str | None = None, weights_only: bool = True) -> Any:
    """The content of a file of weights, which is fetched if it is not in `model_dir` (get_dir()/checkpoints). With `check_hash` the
    file's name ends with the beginning of its SHA-256. A zip archive around one file is unpacked. What was fetched executes nothing,
    unless `weights_only` is False (torch's default here): then the file's pickle is run as arete.load() does."""
    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    try:
        os.makedirs(folder)
    except OSError as error:
        if error.errno != errno.EEXIST:
            raise
    name = file_name or os.path.basename(urlparse(url).path)
    cached = os.path.join(folder, name)
    if not os.path.exists(cached):
        print(f'Downloading: "{url}" to {cached}', file=sys.stderr)
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, cached, found.group(1) if found else None, progress=progress)
    if zipfile.is_zipfile(cached):
        with zipfile.ZipFile(cached) as archive:
            members = archive.infolist()
            if len(members) == 1:  # PyTorch's own files are archives of several
                cached = archive.extract(members[0], folder)  # which is in the folder, whatever the member's name
    return _load(cached, map_location=map_location, weights_only=weights_only)


def _folder(repo_or_dir: str, source: str, force_reload: bool, trust_repo: Any, verbose: bool) -> str:
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "local":
        return os.path.expanduser(repo_or_dir)
    found = re.fullmatch(r"([^/:]+)/([^/:]+)(?::(.+))?", repo_or_dir)
    if found is None:
        raise ValueError(f"a repository is owner/name or owner/name:branch, not {repo_or_dir!r}")
    owner, name, branch = found.groups()
    if trust_repo not in (True, "check", None):
        raise Exception(f"the repository {owner}/{name} is not trusted (trust_repo={trust_repo!r}): its code would run")
    names = [branch] if branch else ["main", "master"]
    for ref in names:
        folder = os.path.join(get_dir(), f"{owner}_{name}_{ref.replace('/', '_')}")
        if os.path.isdir(folder) and not force_reload:
            return folder
    if trust_repo is not True:
        raise Exception(f"the repository {owner}/{name} has not been fetched; its code would run, so say trust_repo=True to fetch it")
    os.makedirs(get_dir(), exist_ok=True)
    last: Exception | None = None
    for ref in names:
        folder = os.path.join(get_dir(), f"{owner}_{name}_{ref.replace('/', '_')}")
        file = folder + ".zip"
        try:
            download_url_to_file(f"https://github.com/{owner}/{name}/zipball/{ref}", file, progress=verbose)
        except OSError as error:
            last = error
            continue
        with tempfile.TemporaryDirectory(dir=get_dir()) as parts:
            with zipfile.ZipFile(file) as archive:
                archive.extractall(parts)
            os.unlink(file)
            shutil.rmtree(folder, ignore_errors=True)
            shutil.move(os.path.join(parts, os.listdir(parts)[0]), folder)
        return folder
    raise RuntimeError(f"the repository {owner}/{name} cannot be fetched: {last}")


@contextlib.contextmanager
def _hubconf(folder: str) -> Iterator[types.ModuleType]:
    """The module of a folder, which is among those that are searched for modules within the block."""
    path = os.path.join(folder, "hubconf.py")
    spec = importlib.util.spec_from_file_location("hubconf", path)
    if spec is None or spec.loader is None or not os.path.exists(path):
        raise FileNotFoundError(f"{path}: a folder of models has a hubconf.py")
    sys.path.insert(0, folder)
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        missing = [name for name in getattr(module, "dependencies", []) if importlib.util.find_spec(name) is None]
        if missing:
            raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
        yield module
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _entry(module: types.ModuleType, name: str) -> Any:
    if not isinstance(name, str):
        raise ValueError("Invalid input: model should be a string of function name")
    function = getattr(module, name, None)
    if not callable(function):
        raise RuntimeError(f"Cannot find callable {name} in hubconf")
    return function


def list(github: str, force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = "check",  # noqa: A001
         verbose: bool = True, source: str = "github") -> Any:
    """The names of what a hubconf.py makes."""
    with _hubconf(_folder(github, source, force_reload, trust_repo, verbose)) as module:
        return [name for name in dir(module) if callable(getattr(module, name)) and not name.startswith("_")]


def help(github: str, model: str, force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = "check",  # noqa: A001
         source: str = "github") -> Any:
    """The docstring of what makes a model."""
    with _hubconf(_folder(github, source, force_reload, trust_repo, False)) as module:
        return _entry(module, model).__doc__


def load(repo_or_dir: str, model: str, *args: Any, source: str = "github", trust_repo: Any = "check", force_reload: bool = False,
         verbose: bool = True,
         skip_validation: bool = False, **kwargs: Any) -> Any:
    """What the function `model` of a hubconf.py makes: in a folder (source="local"), or in a repository of GitHub, which is fetched once,
    and only with trust_repo=True."""
    with _hubconf(_folder(repo_or_dir, source, force_reload, trust_repo, verbose)) as module:
        return _entry(module, model)(*args, **kwargs)
