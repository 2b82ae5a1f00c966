"""Methods of Tensor that are written in Python: conversions, hooks, the protocols of other libraries."""
from __future__ import annotations

import copyreg
import functools
import sys
import warnings

from .. import _C, _cuda_streams
from .._C import Tensor
from .._grad_mode import no_grad
from . import _ops, _storage, _tensor_types
from ._layouts import _Layout, channels_last, memory_format, sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr, strided


class RemovableHandle:
    """What register_hook returns; `remove()` takes the hook away.

    >>> x = arete.ones(2, requires_grad=True)
    >>> with x.register_hook(lambda gradient: 0 * gradient):
    ...     x.sum().backward()
    >>> x.grad
    tensor([0., 0.])
    """

    def __init__(self, remove):
        self._remove = remove

    def remove(self):
        if self._remove is not None:
            self._remove()
            self._remove = None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.remove()


def _method(function, name=None):
    function.__name__ = name or function.__name__
    function.__qualname__ = f"Tensor.{function.__name__}"
    setattr(Tensor, name or function.__name__, function)
    return function


@_method
def register_hook(self, hook):
    """Calls `hook(gradient)` when the gradient of this tensor is known; a Tensor it returns replaces it.

    >>> x = arete.ones(2, requires_grad=True)
    >>> handle = x.register_hook(lambda gradient: 2 * gradient)
    >>> x.sum().backward()
    >>> x.grad
    tensor([2., 2.])
    >>> handle.remove()
    """
    number = self._register_hook(hook)
    return RemovableHandle(lambda: self._remove_hook(number))


@_method
def register_post_accumulate_grad_hook(self, hook):
    """Calls `hook(tensor)` on a leaf each time a gradient has been added to its `.grad`, which the hook may use and take away: an
    optimizer's step within backward, without keeping all gradients at once.

    >>> x = arete.ones(2, requires_grad=True)
    >>> def step(x):
    ...     x.data.sub_(0.5 * x.grad)
    ...     x.grad = None
    >>> handle = x.register_post_accumulate_grad_hook(step)
    >>> x.sum().backward()
    >>> x, x.grad is None
    (tensor([0.5000, 0.5000], requires_grad=True), True)
    >>> handle.remove()
    """
    number = self._register_post_accumulate(hook)
    return RemovableHandle(lambda: self._remove_post_accumulate(number))


def _register_node_hook(self, fn):
    """Calls `fn(gradients of the inputs, gradients of the outputs)`, two tuples, each time after this node has computed the former; a
    tuple that it returns takes the former's place. Gives a handle with `remove()`.

    >>> y = arete.ones(2, requires_grad=True).exp()
    >>> handle = y.grad_fn.register_hook(lambda inputs, outputs: print(len(inputs), outputs))
    >>> y.sum().backward()
    1 (tensor([1., 1.]),)
    """
    number = self._register_hook(fn)
    return RemovableHandle(lambda: self._remove_hook(number))


def _register_node_prehook(self, fn):
    """Calls `fn(gradients of the outputs)`, a tuple, each time before this node computes those of its inputs; a tuple that it returns takes
    its place. Gives a handle with `remove()`.

    >>> x = arete.ones(2, requires_grad=True)
    >>> y = 3 * x
    >>> handle = y.grad_fn.register_prehook(lambda outputs: (2 * outputs[0],))
    >>> y.sum().backward()
    >>> x.grad
    tensor([6., 6.])
    """
    number = self._register_prehook(fn)
    return RemovableHandle(lambda: self._remove_hook(number))


def _saved_values(node):
    """What a node keeps for its backward: {"_saved_" + name: tensor, None, or a tuple of these where the operator takes a list}."""
    kept, lists = {}, {}
    for name, tensor, in_list in node._saved():
        if in_list:
            lists.setdefault("_saved_" + name, []).append(tensor)
        else:
            kept["_saved_" + name] = tensor
    return kept | {name: tuple(tensors) for name, tensors in lists.items()}


def _saved_value(self, name):
    if name.startswith("_saved_"):
        kept = _saved_values(self)
        if name in kept:
            return kept[name]
    raise AttributeError(f"'{self.name()}' object has no attribute '{name}'")


def _node_dir(self):
    try:
        kept = _saved_values(self)
    except RuntimeError:  # the graph was freed
        kept = {}
    return sorted({*object.__dir__(self), *kept})


_C.Node.__getattr__, _C.Node.__dir__ = _saved_value, _node_dir
_C.Node.register_hook, _C.Node.register_prehook = _register_node_hook, _register_node_prehook


@_method
def __reversed__(self):
    """The elements of the first dimension from the last to the first.

    >>> reversed(arete.tensor([1, 2, 3]))
    tensor([3, 2, 1])
    """
    return self.flip(0) if self.dim() else self


@_method
def numpy(self, *, force: bool = False):
    """A NumPy array over the same memory. CPU only, no history; `force` makes what copies it takes.

    >>> arete.tensor([1.0, 2.0]).numpy()
    array([1., 2.], dtype=float32)
    >>> arete.ones(1, requires_grad=True).numpy()
    Traceback (most recent call last):
    RuntimeError: Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.
    """
    import numpy as np

    t = self.detach().cpu() if force else self
    if t.dtype is _C.bfloat16:
        raise TypeError("Got unsupported ScalarType BFloat16")
    return np.asarray(memoryview(t))


@_method
def __array__(self, dtype=None, copy=None):
    import numpy as np

    array = self.numpy()
    if dtype is not None and array.dtype != dtype:
        return array.astype(dtype)
    return np.array(array, copy=True) if copy else array


@_method
def __array_wrap__(self, array, context=None, return_scalar=False):
    import numpy as np

    return from_numpy(array) if isinstance(array, np.ndarray) else array


Tensor.__array_priority__ = 1000  # so that array * tensor is a Tensor's business


def from_numpy(array):
    """A tensor over the memory of an array; writing to the one changes the other.

    TypeError for what is no array and for dtypes that Arete lacks (texts, longdouble, ...), ValueError for foreign byte
    order. To an array that may not be written the tensor must not write either.

    >>> import numpy
    >>> array = numpy.zeros(2)
    >>> x = arete.from_numpy(array)
    >>> array[0] = 7
    >>> x
    tensor([7., 0.], dtype=arete.float64)
    >>> arete.from_numpy([1, 2])
    Traceback (most recent call last):
    TypeError: expected np.ndarray (got list)
    """
    if not _C._is_numpy_array(array):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    tensor = _C._over_array(array)
    if not array.flags.writeable and array.size:
        warnings.warn("The given NumPy array is not writable, and PyTorch does not support non-writable tensors, nor does Arete: to write "
                      "to the tensor is undefined behaviour. Copy the array first, or only read.", UserWarning, stacklevel=2)
    return tensor


# ---- DLPack, https://dmlc.github.io/dlpack and the Python array API


@_method
def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
    if dl_device is not None and dl_device[0] not in (1, 2):
        raise BufferError(f"cannot export to device type {dl_device[0]}")
    t = self
    if dl_device is not None and dl_device[0] == 1 and self.is_cuda:
        if copy is False:
            raise BufferError("a copy from the GPU is needed")
        t = self.detach().cpu()
    elif copy:
        t = self.detach().clone()
    if t.is_cuda and stream not in (None, -1):
        if stream == 0:
            raise BufferError("stream 0 is ambiguous; the legacy default stream is 1, the per-thread one 2")
        # 1 and 2 are CUDA's own handles of the legacy and the per-thread default stream.
        other = _cuda_streams.ExternalStream(stream, device=t.device)
        current = _cuda_streams.current_stream(t.device)
        if other != current:
            other.wait_stream(current)
    versioned = max_version is not None and max_version[0] >= 1
    return t._dlpack_capsule(versioned, t is not self)


@_method
def __dlpack_device__(self):
    return (2, self.device.index or 0) if self.is_cuda else (1, 0)


def from_dlpack(source, device=None, copy=None):
    """A tensor over the memory of an object with `__dlpack__`, or of a capsule.

    >>> import numpy
    >>> arete.from_dlpack(numpy.arange(3.0))
    tensor([0., 1., 2.], dtype=arete.float64)
    """
    if not hasattr(source, "__dlpack__"):
        return _C._from_dlpack(source)
    kind = source.__dlpack_device__()
    keywords = {}
    if int(kind[0]) == 2:
        # The consumer's stream; 1 stands for the legacy default stream, 0 is forbidden.
        keywords["stream"] = _cuda_streams.current_stream(int(kind[1])).cuda_stream or 1
    try:
        capsule = source.__dlpack__(max_version=(1, 0), **keywords)
    except TypeError:  # a producer that does not know versions yet
        capsule = source.__dlpack__(**keywords)
    t = _C._from_dlpack(capsule)
    if device is not None:
        t = t.to(device)
    return t.clone() if copy else t


_TYPESTR = {_C.float16: "<f2", _C.float32: "<f4", _C.float64: "<f8", _C.uint8: "|u1", _C.uint16: "<u2", _C.uint32: "<u4",
            _C.uint64: "<u8", _C.int8: "|i1",
            _C.int16: "<i2", _C.int32: "<i4", _C.int64: "<i8", _C.bool: "|b1", _C.complex64: "<c8",
            _C.complex128: "<c16"}


def _cuda_array_interface(self):
    """Version 3 of the CUDA Array Interface (CuPy, Numba)."""
    if not self.is_cuda:
        raise AttributeError("Can't get __cuda_array_interface__ on non-CUDA tensor")
    if self.requires_grad:
        raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad. "
                           "If gradients aren't required, use var.detach()")
    if self.dtype not in _TYPESTR:
        raise TypeError(f"the CUDA Array Interface has no name for {self.dtype}")
    size = self.element_size()
    return {
        "version": 3,
        "shape": tuple(self.shape),
        "typestr": _TYPESTR[self.dtype],
        "data": (self.data_ptr() if self.numel() else 0, False),
        "strides": None if self.is_contiguous() else tuple(s * size for s in self.stride()),
        "stream": _cuda_streams.current_stream(self.device).cuda_stream or 1,
    }


Tensor.__cuda_array_interface__ = property(_cuda_array_interface)


def from_cuda_array_interface(source):
    """A tensor over the memory of an object with `__cuda_array_interface__`, on the GPU that has it, whose work on it is waited for."""
    said = source.__cuda_array_interface__
    dtype = next((d for d, name in _TYPESTR.items() if name == said["typestr"]), None)
    if dtype is None or said.get("mask") is not None:
        raise TypeError(f"no tensor lies over masked elements, or elements of {said['typestr']!r}")
    shape, size = tuple(said["shape"]), dtype.itemsize
    steps = said.get("strides")
    if steps is None:
        steps, step = [], size
        for n in reversed(shape):
            steps.insert(0, step)
            step *= n
    if any(s < 0 or s % size for s in steps):
        raise ValueError(f"a tensor has no strides of {tuple(steps)} bytes; make a copy first")
    address, stream = said["data"][0], said.get("stream")
    device = _cuda_streams.device_of_memory(address)
    here = _cuda_streams.current_stream(device)
    if stream is not None and stream != (here.cuda_stream or 1):
        here.wait_stream(_cuda_streams.ExternalStream(stream, device))
    return _C._over_address(address, list(shape), [s // size for s in steps], dtype, device, source)


# ---- copies and pickles


@_method
def __deepcopy__(self, memo):
    if not self.is_leaf:
        raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol "
                           "at the moment.")
    if id(self) in memo:
        return memo[id(self)]
    from copy import deepcopy

    with no_grad():
        values = self.detach().clone()
        if type(self) is Tensor:
            new = values
            if self.requires_grad:
                new.requires_grad_()
        else:
            new = Tensor._make_subclass(type(self), values, self.requires_grad)
        if self.grad is not None:
            new.grad = deepcopy(self.grad, memo)  # which keeps the object that the memo knows by its address
    memo[id(self)] = new
    for key, value in self.__dict__.items():
        new.__dict__[key] = deepcopy(value, memo)
    return new


@_method
def __copy__(self):
    # The same memory, and a leaf: as torch's.
    new = Tensor._make_subclass(type(self), self.detach(), self.requires_grad)
    new.__dict__.update(self.__dict__)
    return new


def memory_order(tensor):
    """The dimensions as they lie in memory, the outermost first; None for a tensor that does not fill its memory, each element once."""
    strides = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda d: (-strides[d], d))
    return order if tensor.detach().permute(order).is_contiguous() else None


def _rebuild(cls, content, dtype, shape, device, requires_grad, attributes, order=None):
    """`order`: the dimensions as they lie in memory, where that is not the order that the shape has; `shape` is in that order, too."""
    if content:
        t = _C.frombuffer(bytearray(content), dtype=dtype).reshape(shape)
    else:
        t = _ops.empty(shape, dtype=dtype)
    t = t.to(device)
    if order is not None:
        t = t.permute(sorted(range(len(order)), key=order.__getitem__))
    if cls is not Tensor:
        t = Tensor._make_subclass(cls, t, requires_grad)
    elif requires_grad:
        t.requires_grad_()
    t.__dict__.update(attributes)
    return t


@_method
def dim_order(self, *, ambiguity_check=False):
    """The dimensions from the outermost in memory to the innermost. With `ambiguity_check` RuntimeError where others would do as
    well: dimensions of one element, equal strides; a list of memory formats accepts those of which the tensor has just one.

    >>> arete.ones(2, 3, 4, 5).to(memory_format=arete.channels_last).dim_order()
    (0, 2, 3, 1)
    """
    formats = ambiguity_check if isinstance(ambiguity_check, list) else []
    if not isinstance(ambiguity_check, (bool, list)) or not all(isinstance(f, memory_format) for f in formats):
        raise TypeError("The ambiguity_check argument must be a bool or a list of memory formats.")
    sizes, strides = self.shape, self.stride()
    if ambiguity_check and (1 in sizes or any(a == b for a, b in zip(strides, strides[1:]))):
        if sum(self.is_contiguous(memory_format=f) for f in formats) != 1:
            raise RuntimeError("The tensor does not have unique dim order, or cannot map to exact one of the given memory formats.")
    plain, last = self.is_contiguous(), self.dim() == 4 and self.is_contiguous(memory_format=channels_last)
    if plain != last:
        return tuple(range(self.dim())) if plain else (0, 2, 3, 1)
    # Insertion from the innermost on, as torch orders the dimensions of its loops: an expanded dimension has no place of its own.
    order = list(reversed(range(self.dim())))
    for i in range(1, len(order)):
        moving = i
        for j in range(i - 1, -1, -1):
            a, b = order[j], order[moving]
            if 0 in (strides[a], strides[b]) or (strides[a] == strides[b] and sizes[a] <= sizes[b]):
                if ambiguity_check:
                    raise RuntimeError("The tensor does not have unique dim order.")
                continue
            if strides[a] < strides[b]:
                break
            order[j], order[moving] = b, a
            moving = j
    return tuple(reversed(order))


@_method
def __reduce_ex__(self, protocol):
    # Pickled by multiprocessing: the other process shares the memory, as in torch.
    if self.device.type in ("cpu", "cuda") and sys._getframe(1).f_globals.get("__name__") == "multiprocessing.reduction":
        from ._sharing import reduce_tensor  # loads much, and few programs need it

        return reduce_tensor(self)
    values = self.detach()
    order = None if self.is_contiguous() else memory_order(self)
    if order is not None:
        values = values.permute(order)
    return _rebuild, (type(self), values.tobytes(), self.dtype, tuple(values.shape), str(self.device), self.requires_grad,
                      dict(self.__dict__), order)


@_method
def __format__(self, spec):
    if self.dim() == 0 and type(self) is Tensor and self.device.type != "meta":
        return self.item().__format__(spec)
    return object.__format__(self, spec)


@_method
def __complex__(self):
    return complex(self.item())


def _part(name):
    """The property of the real or imaginary part: a view, which may be written."""

    def get(self):
        return getattr(_ops, name)(self)

    def put(self, value):
        part = get(self)
        part.copy_(value) if isinstance(value, Tensor) else part.fill_(value)

    title, shown = ("real", "1., 3.") if name == "real" else ("imaginary", "2., 4.")
    return property(get, put, doc=f"""The {title} part, a view of the same memory.

    >>> arete.tensor([1 + 2j, 3 + 4j]).{name}
    tensor([{shown}])
    """)


Tensor.real, Tensor.imag = _part("real"), _part("imag")


@_method
def __rdiv__(self, other):
    """Division by this tensor, under a name from before Python 3."""
    return other / self


# ---- conversions by name

for _name, _dtype in {
    "float": _C.float32, "double": _C.float64, "half": _C.float16, "bfloat16": _C.bfloat16, "int": _C.int32,
    "long": _C.int64, "short": _C.int16, "char": _C.int8, "byte": _C.uint8, "bool": _C.bool,
    "cfloat": _C.complex64, "cdouble": _C.complex128,
}.items():

    def _convert(self, memory_format=None, _dtype=_dtype):
        return self.to(_dtype) if memory_format is None else self.to(_dtype, memory_format=memory_format)

    _convert.__doc__ = f"""The values as {_dtype}; the tensor itself if it has this dtype.

    >>> arete.zeros(2).{_name}().dtype
    {_dtype}
    """
    _method(_convert, _name)


@_method
def cpu(self, memory_format=None):
    """A copy in host memory; itself if it is there.

    >>> arete.ones(2).cpu().device
    device(type='cpu')
    """
    return self.to("cpu", memory_format=memory_format)


@_method
def cuda(self, device=None, non_blocking=False, memory_format=None):
    """A copy on a GPU; itself if it is there.

    RuntimeError where there is no GPU.
    """
    return self.to("cuda" if device is None else device, non_blocking=non_blocking, memory_format=memory_format)


@functools.cache
def _old_type(dtype, kind):
    """The name of the old class of tensors of a dtype in the memory of a kind of device."""
    name = {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int32": "Int",
            "int64": "Long", "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool", "complex64": "ComplexFloat",
            "complex128": "ComplexDouble", "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64"}.get(
                dtype._name, dtype._name.capitalize())
    return f"torch.{'' if kind == 'cpu' else kind + '.'}{name}Tensor"


def _type(self, dtype=None, non_blocking=False):
    """The name of the old tensor class ("torch.FloatTensor"), or a conversion.

    >>> arete.ones(2).type()
    'torch.FloatTensor'
    >>> arete.ones(2).type(arete.int64)
    tensor([1, 1])
    >>> arete.ones(2).type("torch.LongTensor")
    tensor([1, 1])
    """
    if dtype is None:
        return _old_type(self.dtype, self.device.type)
    old = _tensor_types.named(dtype)
    if old is not None:
        return self.to(old.place, old.dtype, non_blocking=non_blocking)
    return self.to(dtype, non_blocking=non_blocking)


_method(_type, "type")


@_method
def type_as(self, other):
    """The values with the dtype of `other`.

    >>> arete.tensor([1, 2]).type_as(arete.ones(1))
    tensor([1., 2.])
    """
    if not isinstance(other, Tensor):
        raise TypeError(f"type_as(): argument 'other' (position 1) must be Tensor, not {type(other).__name__}")
    return self.to(other.dtype)


@_method
def view_as(self, other):
    """A view in the shape of `other`.

    >>> arete.arange(4).view_as(arete.ones(2, 2))
    tensor([[0, 1],
            [2, 3]])
    """
    return self.view(other.shape)


@_method
def reshape_as(self, other):
    """The elements in the shape of `other`.

    >>> arete.arange(4).reshape_as(arete.ones(2, 2))
    tensor([[0, 1],
            [2, 3]])
    """
    return self.reshape(other.shape)


@_method
def expand_as(self, other):
    """Repeated to the shape of `other`, without copying.

    >>> arete.tensor([1, 2]).expand_as(arete.ones(2, 2))
    tensor([[1, 2],
            [1, 2]])
    """
    return self.expand(other.shape)


@_method
def is_same_size(self, other):
    """Whether both have the same shape.

    >>> arete.ones(2, 3).is_same_size(arete.zeros(2, 3))
    True
    """
    return self.shape == other.shape


@_method
def is_set_to(self, other):
    """Whether both show the same memory in the same way.

    >>> x = arete.ones(4)
    >>> x.is_set_to(x.detach()), x.is_set_to(x.view(2, 2))
    (True, False)
    """
    return (self._storage_key() == other._storage_key() and self.shape == other.shape
            and self.stride() == other.stride() and self.storage_offset() == other.storage_offset())


@_method
def record_stream(self, stream):
    """Nothing to do: operators note which streams use a tensor, and its memory waits for them.

    >>> arete.ones(2).record_stream(None)
    """


@_method
def apply_(self, function):
    """Replaces every element x by function(x); slow, CPU only.

    >>> arete.tensor([1.0, 2.0]).apply_(lambda x: 10 * x)
    tensor([10., 20.])
    """
    values = [function(v) for v in self.detach().reshape(-1).tolist()]
    with no_grad():
        self.copy_(_C.tensor(values, dtype=self.dtype).reshape(self.shape))
    return self


@_method
def map_(self, tensor, callable):
    """Replaces every element x by callable(x, y) with the element y of another tensor; slow, CPU only.

    >>> arete.tensor([1.0, 2.0]).map_(arete.tensor([3.0, 4.0]), lambda x, y: x * y)
    tensor([3., 8.])
    """
    others = iter(tensor.detach().expand(self.shape).reshape(-1).tolist())
    return self.apply_(lambda x: callable(x, next(others)))


@_method
def map2_(self, x, y, callable):
    """See map_(), with the elements of two other tensors.

    >>> one = arete.ones(2)
    >>> arete.tensor([1.0, 2.0]).map2_(one, one, lambda x, y, z: x + y + z)
    tensor([3., 4.])
    """
    others = zip(*(t.detach().expand(self.shape).reshape(-1).tolist() for t in (x, y)))
    return self.apply_(lambda x: callable(x, *next(others)))


@_method
def _is_view(self):
    return self._base is not None


@_method
def set_(self, source=None, storage_offset=0, size=None, stride=None):
    """Shows the memory of another tensor or storage: all of it, or a part of this size.

    >>> arete.ones(2).set_(arete.tensor([1.0, 2.0, 3.0]))
    tensor([1., 2., 3.])
    >>> arete.ones(2).set_(arete.arange(6.0).untyped_storage(), 1, (2, 2))
    tensor([[1., 2.],
            [3., 4.]])
    """
    if isinstance(source, _storage._Storage):
        source = _storage.elements(source, self.dtype)
    if source is not None and size is not None:
        if stride is None:
            stride = _ops.empty(size, device="meta").stride()
        source = source.detach().as_strided(size, stride, storage_offset)
    if source is None:
        source = _C._empty_strided([0], [1], self.dtype, self.device)
    elif source.dtype != self.dtype:
        raise RuntimeError(f"Could not set tensor of type {source.dtype} to a tensor of type {self.dtype}")
    if self.is_leaf and self.requires_grad and _C.is_grad_enabled():
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    _C._check_inference(self, "set_")
    self.data = source
    _storage.count_write(self)
    return self


@_method
def untyped_storage(self):
    """The bytes that views share.

    >>> arete.ones(4)[:2].untyped_storage().nbytes()
    16
    """
    return _storage.UntypedStorage._of_tensor(self)


@_method
def storage(self):
    """The elements that views share.

    >>> arete.ones(4)[:2].storage().size()
    4
    """
    return _storage.of_elements(self)


@_method
def to_dense(self, dtype=None, *, masked_grad=None):
    """Itself, or another dtype of it: the elements are all there. Of a sparse tensor a plain one.

    >>> arete.eye(2).to_sparse().to_dense()
    tensor([[1., 0.],
            [0., 1.]])
    """
    return self if dtype is None else self.to(dtype)


@_method
def to_sparse(self, sparse_dim=None, *, layout=None, blocksize=None, dense_dim=None):
    """The elements that are not zero, as a sparse tensor of layout sparse_coo or, of matrices, sparse_csr or sparse_csc; sparse_bsr and
    sparse_bsc keep blocks of `blocksize` (rows, columns) in which one element is not zero. The last dimensions stay dense if there are
    more than `sparse_dim`. Dimensions before those of a matrix are a batch, whose matrices have as many elements or blocks each:
    RuntimeError otherwise.

    >>> arete.tensor([0.0, 2.0]).to_sparse()
    tensor(indices=tensor([[1]]),
           values=tensor([2.]),
           size=(2,), nnz=1, layout=arete.sparse_coo)
    """
    if dense_dim:
        raise NotImplementedError("to_sparse(): compressed layouts are those of matrices, without dense dimensions")
    from ._sparse_functions import from_dense  # which makes operators look for its class

    if isinstance(sparse_dim, _Layout):
        sparse_dim, layout = None, sparse_dim
    return from_dense(self, sparse_dim, layout or sparse_coo, blocksize)


@_method
def to_sparse_coo(self):
    """See to_sparse().

    >>> arete.tensor([0.0, 2.0]).to_sparse_coo().layout
    arete.sparse_coo
    """
    return self.to_sparse()


@_method
def to_sparse_csr(self, dense_dim=None):
    """A sparse matrix of layout sparse_csr, or a batch of such: see to_sparse().

    >>> arete.eye(2).to_sparse_csr().crow_indices()
    tensor([0, 1, 2])
    """
    return self.to_sparse(layout=sparse_csr, dense_dim=dense_dim)


@_method
def to_sparse_csc(self, dense_dim=None):
    """A sparse matrix of layout sparse_csc, or a batch of such: see to_sparse().

    >>> arete.eye(2).to_sparse_csc().ccol_indices()
    tensor([0, 1, 2])
    """
    return self.to_sparse(layout=sparse_csc, dense_dim=dense_dim)


@_method
def to_sparse_bsr(self, blocksize, dense_dim=None):
    """A sparse matrix of layout sparse_bsr, or a batch of such: of blocks of that size, which divides the matrix. See to_sparse().

    >>> arete.eye(4).to_sparse_bsr((2, 2)).values().shape
    arete.Size([2, 2, 2])
    """
    return self.to_sparse(layout=sparse_bsr, blocksize=blocksize, dense_dim=dense_dim)


@_method
def to_sparse_bsc(self, blocksize, dense_dim=None):
    """A sparse matrix of layout sparse_bsc: see to_sparse_bsr().

    >>> arete.eye(4).to_sparse_bsc((2, 2)).row_indices()
    tensor([0, 1])
    """
    return self.to_sparse(layout=sparse_bsc, blocksize=blocksize, dense_dim=dense_dim)


@_method
def sparse_mask(self, mask):
    """The elements at the places of a sparse tensor.

    >>> arete.full((2, 2), 3.0).sparse_mask(arete.eye(2).to_sparse()).values()
    tensor([3., 3.])
    """
    from ._sparse_functions import sparse_mask as chosen

    return chosen(self, mask)


def _of_sparse(name, layout):
    def refuse(self):
        raise RuntimeError(f"{name} expected {layout} tensor layout but got Strided")

    refuse.__doc__ = f"""A part of a sparse tensor: of a plain one it is a RuntimeError.

    >>> arete.ones(2).{name}()
    Traceback (most recent call last):
    RuntimeError: {name} expected {layout} tensor layout but got Strided
    """
    _method(refuse, name)


for _name in ("coalesce", "is_coalesced", "indices", "values", "_indices", "_values", "_nnz"):
    _of_sparse(_name, "sparse coordinate")
for _name in ("crow_indices", "col_indices"):
    _of_sparse(_name, "sparse row compressed")
for _name in ("ccol_indices", "row_indices"):
    _of_sparse(_name, "sparse column compressed")


@_method
def sparse_dim(self):
    """How many dimensions are sparse: none of a plain tensor.

    >>> arete.eye(2).sparse_dim(), arete.eye(2).to_sparse().sparse_dim()
    (0, 2)
    """
    return 0


@_method
def dense_dim(self):
    """How many dimensions are dense: all of a plain tensor.

    >>> arete.eye(2).dense_dim(), arete.eye(2).to_sparse().dense_dim()
    (2, 0)
    """
    return self.dim()


Tensor.is_sparse_csr = property(lambda self: False, doc="""Whether it is a sparse matrix of layout sparse_csr.

    >>> arete.eye(2).is_sparse_csr, arete.eye(2).to_sparse_csr().is_sparse_csr
    (False, True)
    """)
Tensor.grad_fn = property(lambda self: _C._grad_fn(self), doc="The node that made it, or None.")
Tensor.names = property(lambda self: (None,) * self.dim(), doc="None for each dimension: dimensions have no names.")
Tensor.layout = property(lambda self: strided, doc="arete.strided; sparse tensors have others.")


def _load_dtype(name):
    return getattr(_C, name)


def _load_generator(device, state):
    made = _C.Generator(device)
    made.set_state(state)
    return made


copyreg.pickle(_C.dtype, lambda d: (_load_dtype, (d._name,)))
copyreg.pickle(_C.Generator, lambda g: (_load_generator, (str(g.device), g.get_state())))

for _shown in (*vars(Tensor).values(), *vars().values()):
    if getattr(_shown, "__module__", None) == __name__:
        _shown.__module__ = "arete._tensor"  # where pickles have it
