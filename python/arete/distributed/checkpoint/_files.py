"""Checkpoints that many processes write and read: each its pieces, in safetensors files of a folder, and one of them the index, last."""
from __future__ import annotations

import copy
import dataclasses
import enum
import json
import os
import pathlib
import re
import time
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Optional, Union

from ... import _C
from .. import distributed_c10d as c10d
from ..tensor._dtensor import DTensor
from .default_planner import HOOKS, DefaultLoadPlanner, DefaultSavePlanner
from .hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter, checked_count, in_threads
from .metadata import Metadata, metadata_of
from .staging import BlockingAsyncStager, DefaultStager, _Copies

__all__ = ["AsyncCheckpointerType", "AsyncSaveResponse", "CheckpointException", "FileSystemReader", "FileSystemWriter", "async_save",
           "load", "save"]

_OF_SAVES = re.compile(r"\.?([0-9a-f]{12})-\d+(-\d+)?\.(safetensors|json|tmp)")
_SKELETON = ".skeleton"  # among objects: how what rank 0 has saved was nested
_under_way: set = set()  # generations that this process writes
_d = _C._distributed


class CheckpointException(Exception):
    """What went wrong in a process, for all.

    >>> str(arete.distributed.checkpoint.CheckpointException("disk full"))
    'disk full'
    """


class AsyncCheckpointerType(enum.Enum):
    """Who writes what async_save() has copied; PROCESS is refused there."""

    THREAD = "thread"
    PROCESS = "process"


@dataclasses.dataclass
class AsyncSaveResponse:
    """What async_save() gives where a thread copies: when the program may change its tensors, and when the checkpoint is there."""

    staging_completion: Future
    upload_completion: Future


class FileSystemWriter:
    """Where a checkpoint is written: a folder, which all processes reach. Files are always durable before the index is written, and an
    older checkpoint in the folder is replaced then, or with overwrite=False is an error. `thread_count`: each process writes so many files
    side by side, of pieces that are about equally large together; without `single_file_per_rank` each piece is a file.
    `cache_staged_state_dict`: async_save() copies into the memory of the copies before, which have been written then."""

    def __init__(self, path: Any, single_file_per_rank: bool = True, sync_files: bool = True, thread_count: int = 1,
                 per_thread_copy_ahead: int = 10_000_000, cache_staged_state_dict: bool = False, overwrite: bool = True) -> None:
        if not sync_files:
            raise NotImplementedError("FileSystemWriter: files are always durable (sync_files)")
        if per_thread_copy_ahead != 10_000_000:
            raise NotImplementedError("FileSystemWriter: per_thread_copy_ahead keeps its default: all pieces of a file are copied before "
                                      "it is written")
        self.path, self.overwrite = os.fspath(path), overwrite
        self.single_file_per_rank, self.thread_count = single_file_per_rank, checked_count(thread_count, "FileSystemWriter: thread_count")
        self._stager = BlockingAsyncStager(cache_staged_state_dict)


class FileSystemReader:
    """Where a checkpoint is read from."""

    def __init__(self, path: Any) -> None:
        self.path = os.fspath(path)

    def read_metadata(self) -> Metadata:
        """The names, sizes and pieces of what is there."""
        return metadata_of(self.path)


def _place(checkpoint_id: Any, given: Any, kind: type) -> str:
    if given is not None and not isinstance(given, kind):
        raise NotImplementedError(f"checkpoints are in folders: give a {kind.__name__}, or checkpoint_id")
    if given is None and checkpoint_id is None:
        raise ValueError("the folder is missing: give checkpoint_id")
    return os.fspath(checkpoint_id) if checkpoint_id is not None else given.path


# ---- names of what is in nested dictionaries


def _flat(value: Any, name: str, out: dict) -> None:
    """The leaves of dictionaries and of lists that have tensors in them, by names with dots."""
    if isinstance(value, dict) and value and all(isinstance(k, (str, int)) for k in value):
        items = value.items()
    elif isinstance(value, (list, tuple)) and _has_tensors(value):
        items = enumerate(value)
    else:
        if name in out:
            raise ValueError(f"two values of the state would have the name {name!r}")
        out[name] = value
        return
    for k, v in items:
        _flat(v, f"{name}.{k}" if name else str(k), out)


def _skeleton(value: Any, name: str) -> Any:
    """The state with the names of its leaves in their places, in JSON."""
    if isinstance(value, dict) and value and all(isinstance(k, (str, int)) for k in value):
        return {"dict": [[k, _skeleton(v, f"{name}.{k}" if name else str(k))] for k, v in value.items()]}
    if isinstance(value, (list, tuple)) and _has_tensors(value):
        inner = [_skeleton(v, f"{name}.{i}" if name else str(i)) for i, v in enumerate(value)]
        return {"list" if isinstance(value, list) else "tuple": inner}
    return name


def _filled(skeleton: Any, leaf: Any) -> Any:
    if not isinstance(skeleton, dict):
        return leaf(skeleton)
    (kind, inner), = skeleton.items()
    if kind == "dict":
        return {k: _filled(v, leaf) for k, v in inner}
    return (list if kind == "list" else tuple)(_filled(v, leaf) for v in inner)


def _has_tensors(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_has_tensors(v) for v in value)
    if isinstance(value, dict):
        return any(_has_tensors(v) for v in value.values())
    return isinstance(value, _C.Tensor)


def _put(state: Any, path: list, value: Any) -> Any:
    """The state with a value at a place: the same one, but for tuples."""
    k, *rest = path
    inner = _put(state[k], rest, value) if rest else value
    if not isinstance(state, tuple):
        state[k] = inner
        return state
    items = [inner if i == k else v for i, v in enumerate(state)]
    return type(state)(*items) if hasattr(state, "_fields") else type(state)(items)


def _paths(value: Any, name: str, path: list, out: dict) -> None:
    """Where the leaves are."""
    if isinstance(value, dict) and value and all(isinstance(k, (str, int)) for k in value):
        items: Any = value.items()
    elif isinstance(value, (list, tuple)) and _has_tensors(value):
        items = enumerate(value)
    else:
        out[name] = path
        return
    for k, v in items:
        _paths(v, f"{name}.{k}" if name else str(k), [*path, k], out)


def _encoded(value: Any, name: str) -> Any:
    """What is no tensor, in JSON."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**53 else {"int": str(value)}
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else {"float": str(value)}
    if isinstance(value, (list, tuple)):
        return {"list" if isinstance(value, list) else "tuple": [_encoded(v, name) for v in value]}
    if isinstance(value, dict):
        return {"dict": [[_encoded(k, name), _encoded(v, name)] for k, v in value.items()]}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, _C.dtype):
        return {"dtype": str(value).rsplit(".", 1)[-1]}
    raise TypeError(f"{name}: a {type(value).__name__} cannot be in a checkpoint of many processes, which has tensors, numbers, texts, "
                    "bytes, lists and dictionaries")


def _decoded(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    (kind, inner), = value.items()
    if kind in ("int", "float"):
        return {"int": int, "float": float}[kind](inner)
    if kind in ("list", "tuple"):
        return (list if kind == "list" else tuple)(_decoded(v) for v in inner)
    if kind == "dict":
        return {_decoded(k): _decoded(v) for k, v in inner}
    if kind == "bytes":
        return bytes.fromhex(inner)
    if kind == "dtype":
        return getattr(_C, inner)
    raise CheckpointException(f"the checkpoint has an object of an unknown kind {kind!r}")


# ---- processes


class _Group:
    """Those who write or read together."""

    def __init__(self, group: Any, alone: bool) -> None:
        self.group = c10d._of(group) if c10d.is_initialized() and not alone else None
        self.rank = 0 if self.group is None else self.group.rank()
        self.size = 1 if self.group is None else self.group.size()

    def all(self, value: Any) -> list:
        """What each has, which JSON can say."""
        if self.group is None:
            return [value]
        home = self.group._home
        text = json.dumps(value).encode()
        counts = _C.tensor([0] * self.size, dtype=_C.int64).to(home)
        c10d.all_gather_into_tensor(counts, _C.tensor([len(text)], dtype=_C.int64).to(home), self.group)
        sizes = counts.tolist()
        longest = max(sizes)
        own = _C.tensor(list(text.ljust(longest)), dtype=_C.uint8).to(home)
        every = _C.tensor([0], dtype=_C.uint8).to(home).repeat(self.size * longest)
        c10d.all_gather_into_tensor(every, own, self.group)
        every = every.cpu()
        return [json.loads(_d.bytes_of(every.narrow(0, r * longest, n).contiguous())) for r, n in enumerate(sizes)]

    def agree(self, problem: Optional[str]) -> None:
        """All fail where one did."""
        found = [f"rank {r}: {p}" for r, p in enumerate(self.all(problem)) if p]
        if found:
            raise CheckpointException("; ".join(found))


# ---- saving


class _Save:
    """A checkpoint that is being written. What needs the others is done when it is made; write() needs them only through files."""

    def __init__(self, chosen: Callable[[], dict], writer: FileSystemWriter, group: _Group, lowest: bool = False) -> None:
        self.writer, self.folder, self.group = writer, pathlib.Path(writer.path), group
        problem, flat = None, {}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not writer.overwrite and (self.folder / "index.json").exists():
                raise FileExistsError(f"{self.folder} has a checkpoint, which overwrite=False keeps")
            if group.rank == 0:
                self._clean()
            state = chosen()
            _flat(state, "", flat)
            self.objects = {name: _encoded(v, name) for name, v in flat.items() if not isinstance(v, _C.Tensor)}
            self.objects[_SKELETON] = _skeleton(state, "")
        except Exception as error:
            problem, self.objects = f"{type(error).__name__}: {error}", {}
        pieces, held = [], {}
        for name, t in flat.items() if problem is None else ():
            if not isinstance(t, _C.Tensor):
                continue
            local = (t.to_local() if isinstance(t, DTensor) else t).detach()
            whole = list(t.shape)
            sizes, start = t._spec.offsets() if isinstance(t, DTensor) else (whole, [0] * len(whole))
            if isinstance(t, DTensor) and any(p.is_partial() for p in t.placements):
                problem = f"{name} has terms that were not summed up: redistribute() it"
                break
            pieces.append([name, _d.dtype_code(local), whole, list(start), list(sizes), local.nbytes])
            held[(name, tuple(start))] = local
        names = group.all([uuid.uuid4().hex[:12], problem, pieces])
        self.generation = names[0][0]
        _under_way.add(self.generation)
        wrong = [f"rank {r}: {p}" for r, (_, p, _) in enumerate(names) if p]
        if wrong:
            raise CheckpointException("; ".join(wrong))
        # Of pieces that several processes have, the one that has least to write writes it, or the first one.
        self.tensors: dict = {}
        holders: dict = {}
        for r, (_, _, list_) in enumerate(names):
            for name, code, whole, start, sizes, nbytes in list_:
                known = self.tensors.setdefault(name, [code, whole, []])
                if known[:2] != [code, whole]:
                    raise CheckpointException(f"{name} has another shape or dtype in rank {r}")
                if 0 not in sizes:
                    holders.setdefault((name, tuple(start)), (sizes, nbytes, []))[2].append(r)
        loads = [0] * group.size
        self.mine: list = []
        for (name, start), (sizes, nbytes, ranks) in holders.items():
            owner = ranks[0] if lowest else min(ranks, key=lambda r: loads[r])
            loads[owner] += nbytes
            self.tensors[name][2].append([owner, list(start), sizes])
            if owner == group.rank:
                self.mine.append((f"{name}@{','.join(map(str, start))}", held[(name, start)]))
        self.timeout = 3600.0

    def stage(self, copies: _Copies) -> None:
        """Copies to host memory, after which the program may change its tensors."""
        self.mine = copies(self.mine)

    def _files(self) -> list:
        """The files that this process writes, each with its pieces."""
        count = self.writer.thread_count if self.writer.single_file_per_rank else len(self.mine)
        files: list = [[] for _ in range(min(count, len(self.mine)))]
        loads = [0] * len(files)
        for piece in sorted(self.mine, key=lambda p: -p[1].nbytes) if count > 1 else self.mine:
            least = loads.index(min(loads))
            files[least].append(piece)
            loads[least] += piece[1].nbytes
        name = f"{self.generation}-{self.group.rank}"
        return [(f"{name}{f'-{i}' if i else ''}.safetensors", pieces) for i, pieces in enumerate(files)]

    def _note(self, rank: int) -> pathlib.Path:
        return self.folder / f".{self.generation}-{rank}.json"

    def write(self, together: bool = False) -> None:
        """This process' pieces; in rank 0 the index, once all have written theirs, of which all hear. `together`: they tell each other
        that pieces are written in a call that all make, after which rank 0 alone fails."""
        tells = not together and self.group.size > 1
        try:
            self._write(together)
        except BaseException as error:
            if tells and self.group.rank == 0:
                self._store.set(self._key("end"), str(error) if isinstance(error, CheckpointException) else
                                f"rank 0: {type(error).__name__}: {error}")
            raise
        finally:
            _under_way.discard(self.generation)
        if self.group.rank == 0:
            self._clean()
            if tells:
                self._store.set(self._key("end"), "")
        elif tells:
            self._hear_of_the_end()

    @property
    def _store(self) -> Any:
        return self.group.group._store  # type: ignore[union-attr]

    def _hear_of_the_end(self) -> None:
        key, until, pause = self._key("end"), time.monotonic() + self.timeout, 0.005
        try:
            while not self._store.check([key]):
                if time.monotonic() > until:
                    raise CheckpointException(f"rank 0 has not written the index within {self.timeout} s")
                time.sleep(pause)
                pause = min(pause * 1.5, 0.1)
            problem = self._store.get(key).decode()
            if self._store.add(key + "/heard", 1) == self.group.size - 1:
                self._store.delete_key(key)
                self._store.delete_key(key + "/heard")
        except (c10d.DistStoreError, c10d.DistNetworkError):  # which rank 0 may have had that has come to its end
            if not any(file.startswith(self.generation) for file in _d.Checkpoint(str(self.folder)).files):
                raise
            problem = ""
        if problem:
            raise CheckpointException(problem)

    def _write(self, together: bool) -> None:
        note: dict = {}
        try:
            files = self._files()
            sums = in_threads(self.writer.thread_count, lambda file: _d.write_pieces(str(self.folder / file[0]), *zip(*file[1])), files)
            note = {"files": {name: (self.folder / name).stat().st_size for name, _ in files},
                    "pieces": {key: (name, crc) for (name, pieces), of in zip(files, sums) for (key, _), crc in zip(pieces, of)}}
        except Exception as error:
            note = {"problem": f"rank {self.group.rank}: {type(error).__name__}: {error}"}
        self.mine = []
        if together:
            notes = dict(enumerate(self.group.all(note)))
            if self.group.rank != 0:
                return
        elif self.group.rank != 0:
            temporary = self._note(self.group.rank).with_suffix(".tmp")
            try:
                temporary.write_text(json.dumps(note))
                os.replace(temporary, self._note(self.group.rank))
            except Exception as error:  # a full disk, a folder that is gone: rank 0 hears it another way
                note.setdefault("problem", f"rank {self.group.rank}: {type(error).__name__}: {error}")
                self._tell(note["problem"])
            if "problem" in note:
                raise CheckpointException(note["problem"])
            return
        else:
            notes = {0: note, **self._notes_of_others()}
        wrong = [n["problem"] for n in notes.values() if "problem" in n]
        if wrong:
            raise CheckpointException("; ".join(wrong))
        index = {}
        for name, (code, whole, pieces) in self.tensors.items():
            rows = []
            for owner, start, sizes in pieces:
                key = f"{name}@{','.join(map(str, start))}"
                file, crc = notes[owner]["pieces"][key]
                rows.append((file, key, start, sizes, crc))
            index[name] = (code, whole, rows)
        files = {name: size for note in notes.values() for name, size in note["files"].items()}
        _d.write_checkpoint_index(str(self.folder), index, files, json.dumps(self.objects))

    def _key(self, what: Union[int, str]) -> str:
        return f"checkpoint/{self.generation}/{what}"

    def _tell(self, problem: str) -> None:
        """Tells rank 0 through the group's store."""
        self._store.set(self._key(self.group.rank), problem)

    def _notes_of_others(self) -> dict:
        notes, until, look = {}, time.monotonic() + self.timeout, 0.0
        for r in range(1, self.group.size):
            while not self._note(r).exists():
                if time.monotonic() > until:
                    raise CheckpointException(f"rank {r} has not written its pieces within {self.timeout} s")
                time.sleep(0.005)
                if time.monotonic() < look:
                    continue
                look = time.monotonic() + 0.2
                store = self._store
                if store.check([self._key(r)]):
                    problem = store.get(self._key(r)).decode()
                    store.delete_key(self._key(r))
                    notes[r] = {"problem": problem}
                    break
            else:
                notes[r] = json.loads(self._note(r).read_text())
        return notes

    def _clean(self) -> None:
        """Removes files of saves that were replaced, or never came to their end."""
        try:
            kept = set(_d.Checkpoint(str(self.folder)).files)
        except Exception:  # there is none yet, or something else, which the new index will replace
            kept = set()
        for file in self.folder.iterdir():
            found = _OF_SAVES.match(file.name)
            if found and file.name not in kept and found[1] not in _under_way:
                file.unlink(missing_ok=True)


def _is_stateful(value: Any) -> bool:
    return not isinstance(value, _C.Tensor) and callable(getattr(value, "state_dict", None)) and callable(
        getattr(value, "load_state_dict", None))


def _states(state: dict) -> dict:
    return {k: v.state_dict() if _is_stateful(v) else v for k, v in state.items()}


def _check_plans(planner: Any, kind: type, use_collectives: bool = True) -> None:
    if planner is not None and not isinstance(planner, kind):
        raise NotImplementedError(f"distributed.checkpoint: there is no planner but {kind.__name__} and classes made of it")
    others = sorted(name for name in HOOKS if hasattr(planner, name))
    if others:
        raise NotImplementedError(f"distributed.checkpoint: a planner chooses the state, by set_up_planner(); {others[0]} is never called")
    if not use_collectives:
        raise NotImplementedError("distributed.checkpoint: what the processes save goes into one index; no_dist=True saves one's own alone")


def save(state_dict: dict, *, checkpoint_id: Any = None, storage_writer: Any = None, planner: Any = None, process_group: Any = None,
         no_dist: bool = False, use_collectives: bool = True) -> Metadata:
    """Writes tensors, DTensors and what is made of numbers and texts, in dictionaries, to a folder; objects that have state_dict() give
    theirs. All processes of the group call it, and it is there for all when it returns: before that, what was there. Of tensors that are
    no DTensors the values of some process are written. Gives what the checkpoint says of itself, in all processes.

    >>> dcp = arete.distributed.checkpoint
    >>> list(dcp.save({"x": arete.arange(3), "step": 7}, checkpoint_id="run").state_dict_metadata)
    ['step', 'x']
    >>> state = {"x": arete.zeros(3, dtype=arete.int64), "step": 0}
    >>> dcp.load(state, checkpoint_id="run")
    >>> state
    {'x': tensor([0, 1, 2]), 'step': 7}
    """
    _check_plans(planner, DefaultSavePlanner, use_collectives)
    group = _Group(process_group, no_dist)
    if isinstance(storage_writer, HuggingFaceStorageWriter):
        return _save_whole(lambda: _chosen(state_dict, planner, group), storage_writer, group)
    work = _planned(lambda: state_dict, checkpoint_id, storage_writer, planner, group)
    problem = None
    try:
        work.write(together=True)
    except Exception as error:  # whatever it is, the others wait to hear of it
        problem = str(error) if isinstance(error, CheckpointException) else f"{type(error).__name__}: {error}"
    group.agree(problem)
    return metadata_of(os.fspath(work.folder))


def _chosen(state: dict, planner: Any, group: _Group) -> dict:
    """What the planner makes of a state."""
    state = _states(state)
    return state if planner is None else _states(_given_on(planner, state, None, group))


def _given_on(planner: Any, state: dict, metadata: Any, group: _Group) -> dict:
    planner.state_dict = None
    planner.set_up_planner(state, metadata, group.rank == 0)
    if planner.state_dict is None:
        raise ValueError(f"{type(planner).__name__}.set_up_planner() gives no state on: it calls that of the class that it is made of")
    return planner.state_dict


def _planned(state: Callable[[], dict], checkpoint_id: Any, writer: Any, planner: Any, group: _Group) -> _Save:
    folder = _place(checkpoint_id, writer, FileSystemWriter)
    writer = copy.copy(writer) if writer is not None else FileSystemWriter(folder)
    writer.path = folder
    lowest = planner is not None and planner.dedup_save_to_lowest_rank
    return _Save(lambda: _chosen(state(), planner, group), writer, group, lowest)


def _save_whole(chosen: Callable[[], dict], writer: HuggingFaceStorageWriter, group: _Group) -> Metadata:
    problem, flat = None, {}
    try:
        _flat(chosen(), "", flat)
        writer._check(flat)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    group.agree(problem)  # before any gathers
    order = writer._order(flat)  # of the files that the first process writes: all gather as it does
    spread = group.all([(name, list(flat[name].shape), str(flat[name].dtype)) for name in order if isinstance(flat[name], DTensor)])
    if group.rank:
        order = [name for name, *_ in spread[0]]
    if any(sorted(its) != sorted(spread[0]) for its in spread):
        raise CheckpointException("the processes have other tensors that are spread over them")
    try:
        writer._write(flat, order, group.rank == 0)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    group.agree(problem)
    return HuggingFaceStorageReader(writer.path).read_metadata()


_writers = ThreadPoolExecutor(1, "arete-checkpoint")


def async_save(state_dict: dict, *, checkpoint_id: Any = None, storage_writer: Any = None, planner: Any = None,
               process_group: Any = None, async_checkpointer_type: Any = AsyncCheckpointerType.THREAD, async_stager: Any = None,
               no_dist: bool = False, use_collectives: bool = True) -> Union[Future, AsyncSaveResponse]:
    """As save(), but once copies are in host memory it goes on at once; the future is done, with what save() gives, when the checkpoint is
    there. The folder is the meeting point meanwhile. `async_stager` copies: a DefaultStager in a thread, too, and then an
    AsyncSaveResponse has two futures."""
    _check_plans(planner, DefaultSavePlanner, use_collectives)
    if getattr(async_checkpointer_type, "value", "thread") != "thread":
        raise NotImplementedError("async_save: a thread writes copies in host memory; other checkpointers are not supported")
    stager = async_stager if async_stager is not None else getattr(storage_writer, "_stager", BlockingAsyncStager())
    own = getattr(stager.stage, "__func__", None) not in (DefaultStager.stage, BlockingAsyncStager.stage)
    staged: Any = None

    def state() -> dict:
        nonlocal staged
        if not own:
            return state_dict
        staged = stager.stage(_states(state_dict))
        return staged.result() if isinstance(staged, Future) else staged

    work = _planned(state, checkpoint_id, storage_writer, planner, _Group(process_group, no_dist))
    if own:
        if stager.should_synchronize_after_execute:
            stager.synchronize_staging()
    elif isinstance(stager, DefaultStager):
        staged = stager._run([t for _, t in work.mine], lambda: work.stage(stager._copies()))
    else:
        work.stage(stager._copies())
    in_thread = isinstance(staged, Future)

    def write() -> Metadata:
        if in_thread:
            staged.result()
        work.write()
        return metadata_of(os.fspath(work.folder))

    written = _writers.submit(write)
    if getattr(stager, "cache_staged_state_dict", False):
        stager._reading = [written]
    return AsyncSaveResponse(staged, written) if in_thread else written


# ---- loading


def load(state_dict: dict, *, checkpoint_id: Any = None, storage_reader: Any = None, planner: Any = None, process_group: Any = None,
         no_dist: bool = False) -> None:
    """Fills the tensors of a state from such a folder, whoever wrote it with however many processes, each process its parts, and replaces
    what is no tensor; objects that have load_state_dict() are given their state. What the folder has beyond that is left alone; what it has
    not is an error."""
    _check_plans(planner, DefaultLoadPlanner)
    group = _Group(process_group, no_dist)
    problem = None
    try:
        hugging_face = isinstance(storage_reader, HuggingFaceStorageReader)
        folder = None if hugging_face else _place(checkpoint_id, storage_reader, FileSystemReader)
        checkpoint = storage_reader._open() if hugging_face else _d.Checkpoint(folder)
        if planner is not None and type(planner) is not DefaultLoadPlanner:
            whole = storage_reader.read_metadata() if hugging_face else metadata_of(folder)
            state_dict = _given_on(planner, dict(state_dict), whole, group)
        _load(state_dict, checkpoint, getattr(planner, "allow_partial_load", False), getattr(storage_reader, "thread_count", 1))
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        if group.size == 1:
            raise CheckpointException(problem) from error
    group.agree(problem)


class _EmptyStateDictLoadPlanner:
    """For _load_state_dict(): all that the folder has is wanted."""


def _load_state_dict(state_dict: dict, storage_reader: Any, process_group: Any = None, coordinator_rank: int = 0, no_dist: bool = False,
                     planner: Any = None) -> None:
    """load(), or with an _EmptyStateDictLoadPlanner all that the folder has, whole, into an empty dictionary. Nobody coordinates, so it
    does not matter who is to."""
    if not isinstance(planner, _EmptyStateDictLoadPlanner):
        return load(state_dict, storage_reader=storage_reader, planner=planner, process_group=process_group, no_dist=no_dist)
    if state_dict:
        raise ValueError("_load_state_dict: with an _EmptyStateDictLoadPlanner the state must be empty")
    state_dict.update(read_all(_place(None, storage_reader, FileSystemReader)))


def read_all(folder: Any) -> Any:
    """The state that a folder has, whole, nested as it was saved. What rank 0 has not saved itself is under its name."""
    checkpoint = _d.Checkpoint(os.fspath(folder))
    objects = json.loads(checkpoint.objects)
    if _SKELETON not in objects:
        raise CheckpointException("the checkpoint does not say how its state was nested: load() it into one")
    left = {**dict.fromkeys(checkpoint.tensors), **objects}
    skeleton = left.pop(_SKELETON)
    del objects[_SKELETON]

    def leaf(name: str) -> Any:
        left.pop(name, None)
        if name in objects:
            return _decoded(objects[name])
        sizes = checkpoint.tensors[name][1]
        return checkpoint.read(name, [0] * len(sizes), sizes)

    state = _filled(skeleton, leaf)
    state.update((name, leaf(name)) for name in list(left))
    return state


def _load(state: dict, checkpoint: Any, partial: bool, threads: int) -> None:
    objects = json.loads(checkpoint.objects)
    own = _states(state)
    flat: dict = {}
    _flat(own, "", flat)
    paths: dict = {}
    _paths(own, "", [], paths)
    tensors, parts = checkpoint.tensors, []
    missing = {n: None for n, v in flat.items() if n not in (tensors if isinstance(v, _C.Tensor) else objects)}
    if missing and not partial:
        more = f" and {len(missing) - 1} others" if len(missing) > 1 else ""
        raise KeyError(f"Missing key in checkpoint state_dict: {next(iter(missing))}{more}")
    for name, t in flat.items():
        if name in missing:
            continue
        if not isinstance(t, _C.Tensor):
            _put(own, paths[name], _decoded(objects[name]))
            continue
        whole = list(t.shape)
        if whole != tensors[name][1]:
            raise ValueError(f"size mismatch for {name}: the checkpoint has {tensors[name][1]}, the state {whole}")
        sizes, start = t._spec.offsets() if isinstance(t, DTensor) else (whole, [0] * len(whole))
        local = (t.to_local() if isinstance(t, DTensor) else t).detach()
        parts.append((local, name, list(start), list(sizes)))
    in_threads(threads, lambda part: part[0].copy_(checkpoint.read(*part[1:])), parts)
    for k, v in state.items():
        if _is_stateful(v):
            v.load_state_dict(own[k])
        else:
            state[k] = own[k]
