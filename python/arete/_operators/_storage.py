"""The memory of tensors as objects: bytes, or elements of one dtype."""
from __future__ import annotations

import mmap
import os
from typing import Any, Callable

from .. import _C
from .._C import Tensor
from . import _ops
from ._layouts import strided

# The names of classes of elements, as torch has them.
TYPED = {"FloatStorage": _C.float32, "DoubleStorage": _C.float64, "HalfStorage": _C.float16, "BFloat16Storage": _C.bfloat16,
         "LongStorage": _C.int64, "IntStorage": _C.int32, "ShortStorage": _C.int16, "CharStorage": _C.int8, "ByteStorage": _C.uint8,
         "BoolStorage": _C.bool, "ComplexFloatStorage": _C.complex64, "ComplexDoubleStorage": _C.complex128}


class _Storage:
    """What both kinds have: `_view`, all elements as a tensor of one dimension, `_of`, a tensor over the memory, and `_over(view)`,
    another of the kind over such a tensor."""

    __slots__ = ("_of", "__dict__", "__weakref__")
    is_sparse = False
    _view: Tensor
    _over: Callable
    _default_dtype: Any

    def data_ptr(self):
        """The address."""
        return self._view.data_ptr()

    def nbytes(self):
        """How many bytes."""
        return len(self) * self.element_size()

    def __len__(self):
        return self._view.numel()

    def size(self):
        """How many elements: bytes of an untyped storage."""
        return len(self)

    def element_size(self):
        """Bytes of an element."""
        return self._view.element_size()

    def __getitem__(self, index):
        return self._view[index].item()

    def __setitem__(self, index, value):
        self._view[index] = value._view if isinstance(value, _Storage) else value

    def __eq__(self, other):
        return isinstance(other, _Storage) and (self._cdata, self.data_ptr(), len(self)) == (other._cdata, other.data_ptr(), len(other))

    def __hash__(self):
        return hash(self._cdata)

    def __iter__(self):
        return iter(self.tolist())

    def tolist(self):
        """The elements as Python numbers."""
        return self._view.tolist()

    def fill_(self, value):
        """All elements to this number."""
        self._view.fill_(value)
        return self

    def copy_(self, source, non_blocking=False):
        """The bytes of another storage."""
        self.untyped()._view.copy_(source.untyped()._view, non_blocking=non_blocking)
        return self

    def clone(self):
        """Memory of its own with the same elements."""
        return self._over(self._view.clone())

    __copy__ = clone

    def __reduce__(self):
        return _load, (isinstance(self, TypedStorage), self._view)

    def _moved(self, move):
        here = self._view
        there = move(here)
        return self if there is here else self._over(there)

    def cpu(self):
        """In host memory; itself if it is there."""
        return self._moved(Tensor.cpu)

    def cuda(self, device=None, non_blocking=False):
        """On a GPU; itself if it is there."""
        return self._moved(lambda view: view.cuda(device, non_blocking=non_blocking))

    def to(self, *, device, non_blocking=False):
        """On a device; itself if it is there."""
        return self._moved(lambda view: view.to(device, non_blocking=non_blocking))

    def pin_memory(self, device="cuda"):
        """In host memory that GPUs reach by themselves; itself if it is there."""
        return self._moved(Tensor.pin_memory)

    def resize_(self, size):
        """Nothing for the size that it has; NotImplementedError for another: memory keeps its size as long as it lives."""
        if size != len(self):
            raise NotImplementedError(f"resize_(): memory of {len(self)} elements keeps its size; a tensor's own resize_() takes other "
                                      "memory")
        return self

    def is_shared(self):
        """Whether processes share it."""
        return self._of.is_shared()

    def share_memory_(self):
        """Moves it to where processes share it."""
        self._of.share_memory_()
        return self

    def is_pinned(self, device="cuda"):
        """Whether it is host memory that GPUs reach by themselves."""
        return self._of.is_pinned(device)

    @property
    def device(self):
        """Where it is."""
        return self._of.device

    @property
    def is_cuda(self):
        """Whether it is on a GPU."""
        return self._of.is_cuda

    @property
    def _cdata(self):
        return self._of._storage_key()

    def __dlpack__(self, **options):
        return self._view.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._view.__dlpack_device__()

    @classmethod
    def from_buffer(cls, buffer: Any, byte_order: str = "native", count: int = -1, offset: int = 0, *, dtype: Any = None):
        """A copy of what an object with the buffer protocol has from `offset` on: all of it, or `count` elements of a dtype."""
        dtype = dtype or cls._default_dtype or _C.get_default_dtype()
        if byte_order not in ("native", "little") and dtype.itemsize > 1:
            raise NotImplementedError(f"from_buffer(): byte_order={byte_order!r}: the lowest byte of a number comes first")
        content = bytearray(buffer)
        return cls._over(_C.frombuffer(content, dtype=dtype, count=count, offset=offset) if content else _ops.empty(0, dtype=dtype))


def _load(typed, view):
    return (TypedStorage if typed else UntypedStorage)._over(view)


class UntypedStorage(_Storage):
    """The bytes behind a tensor and its views; or new ones, as many as said or with the values of a sequence.

    >>> x = arete.ones(4)
    >>> x.untyped_storage().data_ptr() == x[1:].untyped_storage().data_ptr()
    True
    >>> arete.UntypedStorage([1, 2])[1]
    2
    """

    _part, _default_dtype = None, _C.uint8

    def __init__(self, content: Any = 0, *, device: Any = None):
        if isinstance(content, int):
            self._of = _ops.empty(content, dtype=_C.uint8, device=device)
        else:
            self._of = _C.tensor(list(content), dtype=_C.uint8, device=device)

    @classmethod
    def _of_tensor(cls, tensor):
        storage = cls.__new__(cls)
        storage._of = tensor
        return storage

    @classmethod
    def _over(cls, view):
        storage = cls._of_tensor(view)
        storage._part = view.view(_C.uint8)
        return storage

    def __getitem__(self, index):
        """A byte, or the storage of a slice of them."""
        return self._over(self._view[index]) if isinstance(index, slice) else super().__getitem__(index)

    @property
    def _view(self):
        if self._part is not None:
            return self._part
        return self._of.detach().as_strided((0,), (1,), 0).view(_C.uint8).as_strided((len(self),), (1,), 0)

    def data_ptr(self):
        """The address."""
        return self._of._storage_data() if self._part is None else self._part.data_ptr()

    def __len__(self):
        return self._of._storage_bytes() if self._part is None else self._part.numel()

    def untyped(self):
        """Itself."""
        return self

    def element_size(self):
        """1."""
        return 1

    @staticmethod
    def from_file(filename: Any, shared: bool | None = None, nbytes: int = 0) -> UntypedStorage:
        """The bytes of a file, read as they are used. With `shared` what is written goes to the file, which is made or made longer where
        it must be; else it stays here.

        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "bytes"
        >>> _ = path.write_bytes(b"abc")
        >>> arete.UntypedStorage.from_file(path, nbytes=3).tolist()
        [97, 98, 99]
        """
        return UntypedStorage._over(mapped(filename, shared, nbytes))


StorageBase = UntypedStorage  # torch's name for what its own class is made of


class TypedStorage(_Storage):
    """Memory as elements of one dtype. The classes `arete.FloatStorage`, `LongStorage`, ... make new ones.

    >>> arete.ones(4)[:2].storage().size()
    4
    >>> arete.FloatStorage([1.0, 2.0])[1]
    2.0
    """

    _default_dtype = None

    def __init__(self, content: Any = 0, *, wrap_storage: Any = None, dtype: Any = None, device: Any = None, _internal: bool = False):
        dtype = dtype or self._default_dtype or _C.get_default_dtype()
        if wrap_storage is not None:
            self._of = elements(wrap_storage, dtype)
        elif isinstance(content, int):
            self._of = _ops.empty(content, dtype=dtype, device=device)
        else:
            self._of = _C.tensor(list(content), dtype=dtype, device=device)

    @classmethod
    def _over(cls, view):
        storage = TypedStorage.__new__(TypedStorage)
        storage._of = view
        return storage

    @property
    def _view(self):
        return self._of

    @property
    def dtype(self):
        """Of the elements."""
        return self._of.dtype

    def untyped(self):
        """The bytes."""
        return UntypedStorage._of_tensor(self._of)

    _untyped_storage = property(untyped)
    _size, _from_buffer = _Storage.size, _Storage.from_buffer

    def __getitem__(self, index):
        """An element."""
        if isinstance(index, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        return super().__getitem__(index)

    @classmethod
    def from_file(cls, filename: Any, shared: bool | None = None, size: int = 0) -> TypedStorage:
        """As many elements of a file: see UntypedStorage.from_file()."""
        if cls._default_dtype is None:
            raise RuntimeError("from_file can only be called on derived classes")
        return cls._over(mapped(filename, shared, size * cls._default_dtype.itemsize).view(cls._default_dtype))

    def copy_(self, source, non_blocking=None):
        """The bytes of another storage."""
        return super().copy_(source, bool(non_blocking))

    def pickle_storage_type(self):
        """The name of its class in torch's files."""
        return next(name for name, dtype in TYPED.items() if dtype == self.dtype)


def elements(storage: Any, dtype: Any) -> Tensor:
    """All whole elements that the bytes of a storage hold."""
    view = storage._view
    if isinstance(storage, TypedStorage):
        if storage.dtype != dtype:
            raise RuntimeError(f"Could not set tensor of type {storage.dtype} to a tensor of type {dtype}")
        return view
    return view[: len(view) // dtype.itemsize * dtype.itemsize].view(dtype)


def of_elements(tensor: Tensor) -> TypedStorage:
    """The memory of a tensor as its elements."""
    bytes_ = tensor._storage_bytes()
    return TypedStorage._over(tensor.detach().as_strided((bytes_ // tensor.element_size(),), (1,), 0))


def count_write(tensor: Tensor) -> None:
    """Notes a write that went past the operators; those to tensors of inference mode are not counted."""
    _C._count_write(tensor)


def mapped(filename: Any, shared: bool | None, nbytes: int) -> Tensor:
    """The first bytes of a file as a tensor."""
    if nbytes < 0:
        raise RuntimeError(f"from_file(): {nbytes} bytes")
    if nbytes == 0:
        return _ops.empty(0, dtype=_C.uint8)
    filename = os.fspath(filename)  # open() takes the number of an open file, too, and would close it
    try:
        file = open(filename, "a+b" if shared else "rb")  # noqa: SIM115 -- closed below
    except OSError as e:
        raise RuntimeError(f"unable to open file <{filename}> in {'read-write' if shared else 'read-only'} mode: {e.strerror}") from e
    with file:
        size = file.seek(0, 2)
        if size < nbytes:
            if not shared:
                raise RuntimeError(f"file <{filename}> size <{size}> is smaller than the required mapping size <{nbytes}>")
            file.truncate(nbytes)
        memory = mmap.mmap(file.fileno(), nbytes, access=mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY)
    return _C.frombuffer(memory, dtype=_C.uint8)


def from_file(filename: Any, shared: bool | None = None, size: int | None = 0, *, dtype: Any = None, layout: Any = None, device: Any = None,
              pin_memory: bool | None = None, requires_grad: bool = False) -> Tensor:
    """The first `size` elements of a file as a tensor in host memory, read as they are used. With `shared` what is written goes to the
    file, which is made or made longer where it must be; else it stays here.

    RuntimeError for a file that cannot be opened, or is too short.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "numbers"
    >>> arete.from_file(path, shared=True, size=2, dtype=arete.int32)[0] = 7
    >>> arete.from_file(path, size=2, dtype=arete.int32)
    tensor([7, 0], dtype=arete.int32)
    """
    if pin_memory or (device is not None and _C.device(device).type != "cpu") or layout not in (None, strided):
        raise NotImplementedError("from_file(): a file is mapped to plain host memory, strided")
    dtype = dtype or _C.get_default_dtype()
    t = mapped(filename, shared, (size or 0) * dtype.itemsize).view(dtype)
    return t.requires_grad_() if requires_grad else t


for _name, _dtype in TYPED.items():
    _class = type(_name, (TypedStorage,), {"__module__": "arete", "_default_dtype": _dtype, "__doc__": f"""Memory as elements of {_dtype}.

    >>> arete.{_name}(3).size()
    3
    """})
    globals()[_name] = _class
for _shown in (UntypedStorage, TypedStorage):
    _shown.__module__ = "arete.storage"
