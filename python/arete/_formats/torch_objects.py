"""PyTorch's zip files of any objects, by pickle: modules, optimizers, objects of the program.

Names of this library are written as torch's, so that PyTorch finds its own classes, and read as this library's.
"""
from __future__ import annotations

import io
import pickle
import struct
import sys
import types
import zipfile
from typing import Any, BinaryIO, Callable, Dict, List, Tuple

from .. import _C
from .._C import Tensor
from .source import check, raw_bytes
from .torch_pickle import Functions, StorageType, StorageView, STORAGES, load_legacy, storages_of
from .zipfile import ZipArchive

_STORAGE_NAMES = {dtype: name for name, dtype in STORAGES.items()}
_PACKAGE = __name__.partition(".")[0]


class _Name:
    """A global of torch's, in a pickle that is being written."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self) -> None:  # which reductions ask of what they call
        pass


_REBUILD, _REBUILD_UNTYPED, _PARAMETER, _TYPED = (
    _Name("torch._utils", "_rebuild_tensor_v2"), _Name("torch._utils", "_rebuild_tensor_v3"), _Name("torch._utils", "_rebuild_parameter"),
    _Name("torch._tensor", "_rebuild_from_type_v2"))
_UNTYPED = _Name("torch.storage", "UntypedStorage")
_SPARSE, _LAYOUT = _Name("torch._utils", "_rebuild_sparse_tensor"), _Name("torch.serialization", "_get_layout")
_ORDERED = _Name("collections", "OrderedDict")


class _Pickler(pickle._Pickler):  # type: ignore[name-defined]  # whose names of globals can be others than where they are
    def __init__(self, file: BinaryIO, protocol: int) -> None:
        super().__init__(file, protocol=protocol)
        self.storages: Dict[int, Tuple[str, Any]] = {}

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, _Stored):
            return None
        kind = _Name("torch", _STORAGE_NAMES[obj.dtype]) if obj.dtype in _STORAGE_NAMES else _UNTYPED
        return ("storage", kind, obj.key, obj.device, obj.count)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, _Name):
            return obj.name
        if isinstance(obj, _C.dtype):
            return obj._name
        if isinstance(obj, _C.device):
            return _Name("torch", "device"), (obj.type,) if obj.index is None else (obj.type, obj.index)
        if isinstance(obj, _C.Size):
            return _Name("torch", "Size"), (tuple(obj),)
        if isinstance(obj, Tensor):
            return self._tensor(obj)
        return NotImplemented

    def _tensor(self, t: Any) -> Any:
        nn = sys.modules.get(f"{_PACKAGE}.nn")
        parameter = nn is not None and type(t) is nn.Parameter
        sparse = sys.modules.get(f"{_PACKAGE}._operators._sparse_tensor")
        if sparse is not None and type(t) is sparse.SparseTensor:
            t, size = t.detach(), _C.Size(t.shape)
            if t._crow_ is not None:
                return _SPARSE, (_Call(_LAYOUT, (f"torch.{t.layout._name}",)), (t._crow_, t._columns_, t._values_, size))
            return _SPARSE, (_Call(_LAYOUT, ("torch.sparse_coo",)), (t._indices_, t._values_, size, t._coalesced_))
        if type(t) is not Tensor and not parameter:
            return NotImplemented
        values = t.detach()
        storage = values.untyped_storage()
        if t.device.type == "meta":
            raise pickle.PicklingError("a tensor without values (device meta) cannot be saved")
        key, _ = self.storages.setdefault(storage._cdata, (str(len(self.storages)), storage))
        name = values.dtype._name
        typed = name in _STORAGE_NAMES  # the dtypes of later versions of PyTorch lie in bytes, and the tensor says its own
        stored = _Stored(key, name, str(t.device), storage.nbytes() // (values.element_size() if typed else 1))
        plain: Any = (stored, values.storage_offset(), tuple(values.shape), values.stride(), t.requires_grad and not parameter,
                      _Call(_ORDERED))
        plain = (_REBUILD, plain) if typed else (_REBUILD_UNTYPED, (*plain, values.dtype))
        if parameter:
            plain = _PARAMETER, (_Call(*plain), t.requires_grad, _Call(_ORDERED))
        return (_TYPED, (plain[0], _Name("torch.nn.parameter", "Parameter") if parameter else _Name("torch", "Tensor"), plain[1],
                         dict(t.__dict__))) \
            if t.__dict__ else plain

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        if type(obj) is _Call:
            self.save_reduce(obj.function, obj.args)
        else:
            super().save(obj, save_persistent_id)

    def save_global(self, obj: Any, name: Any = None) -> None:
        module = obj.module if isinstance(obj, _Name) else getattr(obj, "__module__", None)
        if isinstance(obj, _C.dtype):
            module = "torch"
        if isinstance(module, str) and module.partition(".")[0] == _PACKAGE:
            module = "torch" + module[len(_PACKAGE):]
        if isinstance(module, str) and (module.partition(".")[0] == "torch" or isinstance(obj, _Name)):
            text = name or (obj.name if isinstance(obj, _Name) else getattr(obj, "__qualname__", None) or obj.__name__)
            self.write(pickle.GLOBAL + module.encode() + b"\n" + text.encode() + b"\n")
            self.memoize(obj)
        else:
            super().save_global(obj, name)

    dispatch = {**pickle._Pickler.dispatch}  # type: ignore[attr-defined]

    def save_type(self, obj: Any) -> None:
        if obj in (type(None), type(NotImplemented), type(...)):
            super().save_type(obj)
        else:
            self.save_global(obj)

    dispatch[type] = save_type
    dispatch[types.FunctionType] = save_global


class _Stored:
    def __init__(self, key: str, dtype: str, device: str, count: int) -> None:
        self.key, self.dtype, self.device, self.count = key, dtype, device, count


class _Call:
    """What the pickle calls in its place."""

    def __init__(self, function: Any, args: tuple = ()) -> None:
        self.function, self.args = function, args


class TorchWriter:
    """PyTorch's zip file of an object that pickle can write. What pickle raises for others, it raises when it is made."""

    def __init__(self, obj: Any, protocol: int = 2) -> None:
        data = io.BytesIO()
        self.pickler = _Pickler(data, protocol)
        self.pickler.dump(obj)
        self.data = data.getvalue()

    def write(self, f: Any) -> None:
        with zipfile.ZipFile(f, "w", zipfile.ZIP_STORED) as archive:
            entries: List[Tuple[str, Any]] = [("data.pkl", self.data), ("byteorder", b"little")]
            entries += [(f"data/{key}", storage) for key, storage in self.pickler.storages.values()]
            for name, content in [*entries, ("version", b"3\n")]:
                info = zipfile.ZipInfo(f"archive/{name}")
                start = archive.fp.tell() + 30 + len(info.filename) + 4  # type: ignore[union-attr]
                padding = -start % 64  # so that what is mapped into memory is aligned
                info.extra = b"FB" + struct.pack("<H", padding) + b"Z" * padding
                raw = content if isinstance(content, bytes) else raw_bytes(content._view)
                with archive.open(info, "w", force_zip64=len(raw) > 1 << 31) as out:
                    out.write(raw)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: BinaryIO, storage: Callable[[StorageType, str, str, int], StorageView], **options: Any) -> None:
        super().__init__(file, **options)
        self.storage = storage

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] == "torch":
            if module in ("torch", "torch.cuda") and name in STORAGES:
                return StorageType(STORAGES[name])
            if (module, name) in (("torch", "UntypedStorage"), ("torch.storage", "UntypedStorage")):
                return StorageType(None)
            known = {"_rebuild_tensor_v2": Functions.rebuild_tensor_v2, "_rebuild_tensor_v3": Functions.rebuild_tensor_v3,
                     "_rebuild_parameter": Functions.rebuild_parameter, "_rebuild_sparse_tensor": Functions.rebuild_sparse_tensor,
                     "_rebuild_parameter_with_state": Functions.rebuild_parameter_with_state}
            if module == "torch._utils" and name in known:
                return known[name]
            if (module, name) == ("torch._tensor", "_rebuild_from_type_v2"):
                return _rebuild_from_type
            if (module, name) == ("torch.serialization", "_get_layout"):
                return Functions.layout
            module = _PACKAGE + module[len("torch"):]
        return super().find_class(module, name)

    def persistent_load(self, pid: Any) -> Any:
        check(isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage" and isinstance(pid[1], StorageType),
              "an unknown kind of storage")
        return self.storage(*pid[1:5])


def _rebuild_from_type(function: Any, kind: type, args: tuple, state: Any) -> Any:
    made = function(*args)
    if type(made) is not kind and issubclass(kind, Tensor):
        made = made.as_subclass(kind)
    made.__dict__.update(state if isinstance(state, dict) else {})
    return made


def load_objects(archive: ZipArchive, folder: str, place: Callable[[Any, str], Any], **options: Any) -> Any:
    """The object in one of PyTorch's zip files, by executing its pickle."""
    pickled = bytes(archive.read(archive.entries[folder + "data.pkl"], False))
    return _Unpickler(io.BytesIO(pickled), storages_of(archive, folder, place), **options).load()


def load_legacy_objects(source: Any, place: Callable[[Any, str], Any], **options: Any) -> Any:
    """The object in a file of PyTorch's from before version 1.6, by executing its pickle."""

    def run(data: bytes, at: int, storage: Callable) -> Tuple[Any, int]:
        file = io.BytesIO(data)
        file.seek(at)
        return _Unpickler(file, storage, **options).load(), file.tell()

    return load_legacy(source, place, run)
