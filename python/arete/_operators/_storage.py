"""Storages as objects: the bytes behind tensors, and such bytes as numbers of one dtype."""
from __future__ import annotations

from .. import _C
from .._C import Tensor
from . import _ops


class UntypedStorage:
    """The bytes behind a tensor and its views. UntypedStorage(n) makes n uninitialized ones, UntypedStorage([1, 2]) those bytes.

    >>> x = arete.ones(4)
    >>> x.untyped_storage().data_ptr() == x[1:].untyped_storage().data_ptr()
    True
    >>> x.untyped_storage()[2:4].tolist()
    [128, 63]
    """

    __slots__ = ("_tensor", "__dict__", "__weakref__")
    is_sparse = False

    def __init__(self, content=0, *, device=None):
        if isinstance(content, Tensor):
            self._tensor = content
        elif isinstance(content, int):
            self._tensor = _ops.empty((content,), dtype=_C.uint8, device=device)
        else:
            self._tensor = _C.tensor(list(content), dtype=_C.uint8, device=device)

    @classmethod
    def from_file(cls, filename, shared=None, size=0, *, nbytes=None):
        """The first bytes of a file, read when they are used: with `shared` writes go into the file, which is made as long as that."""
        import mmap
        import os

        nbytes = size if nbytes is None else nbytes
        with open(filename, "r+b" if shared else "rb") as file:
            if shared and os.fstat(file.fileno()).st_size < nbytes:
                file.truncate(nbytes)
            if nbytes == 0:
                return cls(0)
            memory = mmap.mmap(file.fileno(), nbytes, access=mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY)
        return cls(_C.frombuffer(memory, dtype=_C.uint8))

    @classmethod
    def from_buffer(cls, buffer, *args, **kwargs):
        """A copy of the bytes of an object with the buffer protocol."""
        content = bytearray(buffer)
        return cls(_C.frombuffer(content, dtype=_C.uint8) if content else 0)

    def _bytes(self):
        """A tensor of all of them, over the same memory."""
        if self.nbytes() == 0:
            return _ops.empty((0,), dtype=_C.uint8, device=self.device)
        t = self._tensor.detach()
        return t.as_strided((self.nbytes() // t.element_size(),), (1,), 0).view(_C.uint8)

    def data_ptr(self):
        return self._tensor._storage_data()

    def nbytes(self):
        return self._tensor._storage_bytes()

    size = nbytes
    __len__ = nbytes

    def element_size(self):
        return 1

    def __getitem__(self, index):
        """A byte, or for a slice the storage of these bytes, a view."""
        if isinstance(index, slice):
            return _Part(self._bytes()[index])
        return int(self._bytes()[index])

    def __setitem__(self, index, value):
        self._bytes()[index] = value

    def __iter__(self):
        return iter(self.tolist())

    def tolist(self):
        return self._bytes().tolist()

    def clone(self):
        return UntypedStorage(self._bytes().clone())

    def cpu(self):
        return self if self.device.type == "cpu" else UntypedStorage(self._bytes().cpu())

    def cuda(self, device=None, non_blocking=False):
        return UntypedStorage(self._bytes().cuda(device, non_blocking))

    def to(self, *, device, non_blocking=False):
        return UntypedStorage(self._bytes().to(device, non_blocking=non_blocking))

    def copy_(self, source, non_blocking=False):
        self._bytes().copy_(source._bytes(), non_blocking=non_blocking)
        return self

    def fill_(self, value):
        self._bytes().fill_(value)
        return self

    def untyped(self):
        return self

    def resize_(self, size):
        if size != self.nbytes():
            raise RuntimeError("a storage keeps its size: make a new tensor, or use Tensor.resize_()")
        return self

    def is_shared(self):
        return self._tensor.is_shared()

    def share_memory_(self):
        self._tensor.share_memory_()
        return self

    def is_pinned(self, device="cuda"):
        return self._tensor.is_pinned()

    def pin_memory(self, device="cuda"):
        return UntypedStorage(self._bytes().pin_memory())

    @property
    def device(self):
        return self._tensor.device

    @property
    def is_cuda(self):
        return self.device.type == "cuda"

    @property
    def _cdata(self):
        return self._tensor._storage_key()

    def __dlpack__(self, **options):
        return self._bytes().__dlpack__(**options)

    def __dlpack_device__(self):
        return self._bytes().__dlpack_device__()

    def __reduce__(self):
        return _load, (bytes(self._bytes().cpu().numpy()), str(self.device))


class _Part(UntypedStorage):
    """The bytes of a slice."""

    def _bytes(self):
        return self._tensor

    def data_ptr(self):
        return self._tensor.data_ptr()

    def nbytes(self):
        return self._tensor.numel()

    size = __len__ = nbytes


def _load(content, device):
    return UntypedStorage.from_buffer(content).to(device=device)


class TypedStorage:
    """A storage as numbers of one dtype.

    >>> arete.ones(2).storage().dtype
    arete.float32
    """

    dtype = None

    def __init__(self, *content, wrap_storage=None, dtype=None, device=None, _internal=False):
        self.dtype = dtype or type(self).dtype or _C.get_default_dtype()
        if wrap_storage is not None:
            self._untyped_storage = wrap_storage.untyped()
        elif content and not isinstance(content[0], int):
            self._untyped_storage = UntypedStorage(_C.tensor(list(content[0]), dtype=self.dtype, device=device))
        else:
            self._untyped_storage = UntypedStorage(_ops.empty((content[0] if content else 0,), dtype=self.dtype, device=device))

    def _numbers(self):
        return self._untyped_storage._bytes().view(self.dtype)

    @classmethod
    def _from_buffer(cls, *args, **kwargs):
        return cls(wrap_storage=UntypedStorage.from_buffer(*args), dtype=kwargs.get("dtype"))

    from_buffer = _from_buffer

    @classmethod
    def from_file(cls, filename, shared=False, size=0):
        dtype = cls.dtype or _C.get_default_dtype()
        return cls(wrap_storage=UntypedStorage.from_file(filename, shared, size * dtype.itemsize), dtype=dtype)

    def untyped(self):
        return self._untyped_storage

    def __len__(self):
        return self._untyped_storage.nbytes() // self.dtype.itemsize

    size = _size = __len__

    def __getitem__(self, index):
        if isinstance(index, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        return self._numbers()[index].item()

    def __setitem__(self, index, value):
        self._numbers()[index] = value

    def __iter__(self):
        return iter(self.tolist())

    def tolist(self):
        return self._numbers().tolist()

    def element_size(self):
        return self.dtype.itemsize

    def fill_(self, value):
        self._numbers().fill_(value)
        return self

    def clone(self):
        return type(self)(wrap_storage=self._untyped_storage.clone(), dtype=self.dtype)

    def cpu(self):
        return type(self)(wrap_storage=self._untyped_storage.cpu(), dtype=self.dtype)

    def __getattr__(self, name):  # data_ptr, nbytes, device, is_shared, ...
        if name.startswith("__") or name == "_untyped_storage":
            raise AttributeError(name)
        return getattr(self._untyped_storage, name)


def _typed(name, dtype):
    doc = f"""A storage as numbers of {dtype}: of as many uninitialized ones, or of those given.

    >>> len(arete.{name}(3)), arete.{name}([1, 0]).dtype
    (3, {dtype})
    """
    return type(name, (TypedStorage,), {"__module__": "arete", "dtype": dtype, "__doc__": doc})


TYPES = {f"{name}Storage": _typed(f"{name}Storage", dtype) for name, dtype in {
    "Float": _C.float32, "Double": _C.float64, "Half": _C.float16, "BFloat16": _C.bfloat16, "Byte": _C.uint8, "Char": _C.int8,
    "Short": _C.int16,
    "Int": _C.int32, "Long": _C.int64, "Bool": _C.bool, "ComplexFloat": _C.complex64, "ComplexDouble": _C.complex128}.items()}
