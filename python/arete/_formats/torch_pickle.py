"""Reading of PyTorch's zip files (.pt, .pth) without executing the pickle in them.

An interpreter of a few opcodes builds numbers, texts, containers and tensors; the functions that a pickle may name are
those of `Functions`, each of which checks its arguments, and what the program itself has put into `safe_globals`.
Everything else is refused with an UnpicklingError that names it.
"""
from __future__ import annotations

import struct
import sys
from collections import Counter, OrderedDict
from typing import Any, Callable, Dict, List, Optional, Tuple
from _pickle import UnpicklingError

from .. import _C, _operators
from .source import DTYPE_SIZES, Source, check, checked_count, dtype_named, flat_tensor
from .zipfile import ZipArchive

STORAGES = {
    "FloatStorage": "float32", "DoubleStorage": "float64", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8",
    "BoolStorage": "bool", "ComplexFloatStorage": "complex64", "ComplexDoubleStorage": "complex128",
}
_PACKAGE = __name__.partition(".")[0]
_LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


# Functions and classes that files may name, or pairs of one and its name there: serialization.add_safe_globals().
safe_globals: List[Any] = []


def _safe_by_name() -> Dict[str, Any]:
    pairs = [s if isinstance(s, tuple) else (s, f"{s.__module__}.{s.__qualname__}") for s in safe_globals]
    # Operators keep this library's name where it stands for torch; files have torch's.
    return {"torch" + name[len(_PACKAGE):] if name.startswith(_PACKAGE + ".") else name: thing for thing, name in pairs}


def _fail(message: str) -> Any:
    raise UnpicklingError(message)


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise UnpicklingError(message)


def _show(value: Any) -> str:
    """A short text of a value that may be anything, also a container of exponential size."""
    return repr(value)[:80] if type(value) in (str, bytes, bool, float, type(None)) else f"a {type(value).__name__}"


class _Outside(Exception):
    """Carries an error that is not the pickle's through the interpreter."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class _Function:
    """What a pickle may call: stands for a global of Python."""

    def __init__(self, name: str, call: Callable) -> None:
        self.name = name
        self.call = call

    def __repr__(self) -> str:
        return f"<{self.name}>"


class StorageType:
    def __init__(self, dtype: Optional[str]) -> None:
        self.dtype = dtype


class _NumpyType:
    """A NumPy dtype on its way: its text, and the byte order that is set after."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.order = "|"


class _Storage:
    """A storage of the archive as one byte buffer; `typed` gives the flat tensor over it, on its device."""

    def __init__(self, data: Any, offset: int, size: int, device: str, place: Callable[[Any, str], Any]) -> None:
        self.data, self.offset, self.size = data, offset, size
        self.device, self.place = device, place
        self.made: Dict[str, Any] = {}

    def typed(self, dtype: str) -> Any:
        if dtype not in self.made:
            flat = flat_tensor(self.data, self.offset, self.size // DTYPE_SIZES[dtype], dtype_named(dtype))
            try:
                self.made[dtype] = self.place(flat, self.device)
            except Exception as error:
                raise _Outside(error) from None
        return self.made[dtype]


class StorageView:
    """A storage as the pickle names it: with the type that it has there."""

    def __init__(self, storage: _Storage, dtype: Optional[str]) -> None:
        self.storage, self.dtype = storage, dtype


def _check_key(key: Any) -> Any:
    """A key of a dict or element of a set: nothing that is deep, for hashing recurses."""
    todo, seen = [(key, 0)], 0
    while todo:
        k, depth = todo.pop()
        seen += 1
        _need(depth <= 8 and seen <= 1000, "a key is nested too deeply")
        if type(k) in (tuple, frozenset, _C.Size):
            todo += [(x, depth + 1) for x in k]
        else:
            _need(k is None or type(k) in (bool, int, float, str, bytes, complex) or isinstance(k, (_C.dtype, _C.device))
                  or type(k).__module__ == "numpy", f"a {type(k).__name__} as a key")
    return key


def _rebuild_tensor(storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, dtype: Optional[str],
                    metadata: Any) -> Any:
    _need(isinstance(storage, StorageView), "a tensor without a storage")
    dtype = dtype or storage.dtype
    _need(dtype is not None, "a tensor without a dtype")
    _need(type(size) in (tuple, _C.Size) and type(stride) in (tuple, _C.Size) and len(size) == len(stride), "a tensor with a bad size")
    _need(type(requires_grad) is bool and type(offset) is int and 0 <= offset < 2 ** 62, "a tensor with a bad offset")
    _need(all(type(s) is int and 0 <= s < 2 ** 62 for s in stride), "a tensor with bad strides")
    _need(not hooks, "a tensor with hooks")
    count = checked_count(size, "a tensor")
    available = storage.storage.size // DTYPE_SIZES[dtype]  # type: ignore[index]
    flat = storage.storage.typed(dtype)
    if count == 0:
        t = _operators.empty(tuple(size), dtype=flat.dtype, device=flat.device)
    else:
        last = offset + sum((n - 1) * s for n, s in zip(size, stride))
        _need(last < available, f"a tensor of shape {list(size)} reaches element {last} of a storage of {available}")
        expected, rows = 1, True
        for n, s in zip(reversed(size), reversed(stride)):
            rows = rows and (n == 1 or s == expected)
            expected *= n
        t = flat[offset:offset + count].reshape(tuple(size)) if rows else flat.as_strided(tuple(size), tuple(stride), offset)
    if metadata:
        _need(type(metadata) is dict and set(metadata) <= {"conj", "neg"}, "a tensor with unknown metadata")
        if metadata.get("conj"):
            t = _C.tensor([z.conjugate() for z in t.reshape(-1).tolist()], dtype=t.dtype).reshape(t.shape)
        t = -t if metadata.get("neg") else t
    if requires_grad:
        _need(t.is_floating_point() or t.is_complex(), "a tensor of integers that requires a gradient")
        t.requires_grad_(True)
    return t


class Functions:
    """The globals that are known."""

    @staticmethod
    def rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks, metadata=None):
        return _rebuild_tensor(storage, offset, size, stride, requires_grad, hooks, None, metadata)

    @staticmethod
    def rebuild_tensor_v3(storage, offset, size, stride, requires_grad, hooks, dtype, metadata=None):
        _need(isinstance(dtype, _C.dtype), "a tensor without a dtype")
        return _rebuild_tensor(storage, offset, size, stride, requires_grad, hooks, str(dtype).rpartition(".")[2], metadata)

    @staticmethod
    def rebuild_parameter(data, requires_grad, hooks):
        _need(isinstance(data, _C.Tensor) and type(requires_grad) is bool and not hooks, "a bad parameter")
        from ..nn import Parameter  # only where one is read: it loads much

        return Parameter(data.detach(), requires_grad=requires_grad)

    COMPRESSED = "torch.sparse_csr", "torch.sparse_csc", "torch.sparse_bsr", "torch.sparse_bsc"

    @staticmethod
    def layout(name):
        _need(name == "torch.sparse_coo" or name in Functions.COMPRESSED, f"a tensor of the layout {_show(name)}")
        return name

    @staticmethod
    def rebuild_sparse_tensor(layout, parts):
        count = 3 if layout in Functions.COMPRESSED else 2
        _need(type(parts) is tuple and count < len(parts) <= count + 2, "a sparse tensor without its parts")
        tensors, size, more = parts[:count], parts[count], parts[count + 1:]
        _need(all(isinstance(t, _C.Tensor) for t in tensors) and type(size) is _C.Size and all(type(m) is bool for m in more),
              "a sparse tensor of bad parts")
        from .. import sparse
        from .._operators import _layouts

        try:
            if count == 3:
                kind = getattr(_layouts, layout.removeprefix("torch."))
                return sparse.sparse_compressed_tensor(*tensors, size, layout=kind, check_invariants=True)
            return sparse.sparse_coo_tensor(*tensors, size, check_invariants=True, is_coalesced=more == (True,))
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            _fail(f"a sparse tensor whose parts do not go together: {error}")

    @staticmethod
    def rebuild_parameter_with_state(data, requires_grad, hooks, state):
        return Functions.set_attributes(Functions.rebuild_parameter(data, requires_grad, hooks), state)

    @staticmethod
    def rebuild_from_type(function, kind, args, state):
        _need(isinstance(function, _Function) and function.name.startswith("torch._utils._rebuild_") and type(args) is tuple,
              "a tensor made by an unknown function")
        _need(isinstance(kind, _Function) and kind.name in ("torch.Tensor", "torch.nn.parameter.Parameter"),
              f"a tensor of the class {getattr(kind, 'name', '?')}")
        return Functions.set_attributes(function.call(*args), state)

    @staticmethod
    def set_attributes(tensor, state):
        _need(isinstance(tensor, _C.Tensor) and type(state) is dict, "attributes of no tensor")
        for name, value in state.items():
            _need(type(name) is str and name.isidentifier() and not name.startswith("_") and not hasattr(_C.Tensor, name),
                  f"a tensor with the attribute {_show(name)}")
            setattr(tensor, name, value)
        return tensor

    @staticmethod
    def ordered_dict(pairs=()):
        _need(type(pairs) in (list, tuple), "an OrderedDict of no pairs")
        result: OrderedDict = OrderedDict()
        for pair in pairs:
            _need(type(pair) in (list, tuple) and len(pair) == 2, "an OrderedDict of no pairs")
            result[_check_key(pair[0])] = pair[1]
        return result

    @staticmethod
    def counter(content=None):
        _need(content is None or type(content) is dict, "a Counter of no dict")
        result: Counter = Counter()
        for key, value in (content or {}).items():
            result[key] = value
        return result

    @staticmethod
    def size(values=()):
        _need(type(values) in (tuple, list) and all(type(n) is int and -2 ** 63 <= n < 2 ** 63 for n in values), "a Size of no ints")
        return _C.Size(values)

    @staticmethod
    def device(kind, index=None):
        _need(type(kind) is str and len(kind) < 32 and (index is None or type(index) is int), "a bad device")
        return _C.device(kind) if index is None else _C.device(kind, index)

    @staticmethod
    def encode(text, encoding):
        _need(type(text) is str and encoding in ("latin1", "latin-1", "utf-8"), "a bad encoding")
        return text.encode(encoding)

    @staticmethod
    def numpy_dtype(text, align=False, copy=True):
        _need(type(text) is str and len(text) <= 4 and text.lstrip("<>|=")[:1] in tuple("biufc"), f"the NumPy dtype {_show(text)}")
        return _NumpyType(text)

    @staticmethod
    def numpy_scalar(kind, raw):
        import numpy

        _need(isinstance(kind, (_NumpyType, numpy.dtype)) and type(raw) is bytes and len(raw) <= 16, "a bad NumPy scalar")
        dtype = numpy.dtype(kind.text) if isinstance(kind, _NumpyType) else kind
        _need(dtype.kind in "biufc", "a bad NumPy scalar")
        if isinstance(kind, _NumpyType) and kind.order in "<>":
            dtype = dtype.newbyteorder(kind.order)
        _need(dtype.itemsize == len(raw), "a NumPy scalar of a wrong size")
        return numpy.frombuffer(raw, dtype=dtype)[0]

    @staticmethod
    def of_list(kind):
        def make(values=()):
            _need(type(values) in (list, tuple, set, frozenset), f"a {kind.__name__} of a {type(values).__name__}")
            return kind([_check_key(v) for v in values] if kind in (set, frozenset) else values)

        return make

    @staticmethod
    def empty_dict(content=()):
        _need(not content, "a dict of values")
        return {}

    @staticmethod
    def number(kind):
        def make(*values):
            _need(len(values) <= 2 and all(type(v) in (bool, int, float) for v in values), f"a bad {kind.__name__}")
            return kind(*values)

        return make

    @staticmethod
    def raw(kind):
        def make(*values):
            if len(values) == 2 and type(values[0]) is str and values[1] in ("latin1", "latin-1"):
                return kind(values[0].encode("latin1"))
            _need(not values or (len(values) == 1 and type(values[0]) is bytes), f"a bad {kind.__name__}")
            return kind(*values)

        return make

    @staticmethod
    def dtensor(local: Any, mesh: Any, places: Any, shape: Any, requires_grad: Any) -> Any:
        whole, names = tuple, (str, type(None))
        _need(isinstance(local, _C.Tensor) and type(mesh) is tuple and len(mesh) == 5 and type(requires_grad) is bool
              and type(mesh[0]) is str and type(mesh[1]) is list and all(type(r) is int for r in mesh[1])
              and all(type(x) is whole for x in (mesh[2], places, shape)) and all(type(n) is int for n in (*mesh[2], *shape))
              and (mesh[3] is None or type(mesh[3]) is tuple and all(type(n) is str for n in mesh[3]))
              and (mesh[4] is None or type(mesh[4]) is list and all(type(n) in names for n in mesh[4]))
              and len(places) == len(mesh[2]) and all(type(p) in (int, *names) for p in places), "a bad DTensor")
        spread = sys.modules.get(f"{_PACKAGE}.distributed.tensor._dtensor")
        _need(spread is not None, "import distributed.tensor, and make a group, before a tensor is loaded that is spread over processes")
        try:
            return spread._remade(local, mesh, places, shape, requires_grad)
        except Exception as error:  # there is no group yet, or another one
            raise _Outside(error) from None

    @staticmethod
    def not_callable(*args):
        _fail("a class is called that is known by name only")


def _globals() -> Dict[str, Any]:
    table: Dict[str, Any] = {
        "collections.OrderedDict": Functions.ordered_dict, "collections.Counter": Functions.counter,
        "torch._utils._rebuild_tensor_v2": Functions.rebuild_tensor_v2, "torch._utils._rebuild_tensor_v3": Functions.rebuild_tensor_v3,
        "torch._utils._rebuild_parameter": Functions.rebuild_parameter,
        "torch._utils._rebuild_sparse_tensor": Functions.rebuild_sparse_tensor, "torch.serialization._get_layout": Functions.layout,
        "torch._utils._rebuild_parameter_with_state": Functions.rebuild_parameter_with_state,
        "torch._tensor._rebuild_from_type_v2": Functions.rebuild_from_type,
        "torch.distributed.tensor._dtensor._remade": Functions.dtensor,
        "torch.Tensor": Functions.not_callable, "torch.nn.parameter.Parameter": Functions.not_callable,
        "torch.Size": Functions.size, "torch.device": Functions.device, "_codecs.encode": Functions.encode,
        "numpy.dtype": Functions.numpy_dtype, "numpy.core.multiarray.scalar": Functions.numpy_scalar,
        "numpy._core.multiarray.scalar": Functions.numpy_scalar,
    }
    for module in ("builtins", "__builtin__"):
        for kind in (list, tuple, set, frozenset):
            table[f"{module}.{kind.__name__}"] = Functions.of_list(kind)
        for number in (int, float, complex, bool):
            table[f"{module}.{number.__name__}"] = Functions.number(number)
        table[f"{module}.dict"] = Functions.empty_dict
        table[f"{module}.bytes"] = Functions.raw(bytes)
        table[f"{module}.bytearray"] = Functions.raw(bytearray)
    table = {name: _Function(name, call) for name, call in table.items()}
    for name, dtype in STORAGES.items():
        table[f"torch.{name}"] = table[f"torch.cuda.{name}"] = StorageType(dtype)
    table["torch.UntypedStorage"] = table["torch.storage.UntypedStorage"] = StorageType(None)
    return table


class _Interpreter:
    """Runs one pickle. `storage(kind, key, device, count)` gives a StorageView."""

    def __init__(self, data: bytes, storage: Callable[[StorageType, str, str, int], StorageView]) -> None:
        self.data = data
        self.at = 0
        self.stack: List[Any] = []
        self.marks: List[List[Any]] = []
        self.memo: Dict[int, Any] = {}
        self.copied = 0
        self.storage = storage
        self.globals = _globals()
        self.safe = _safe_by_name()

    def take(self, count: int) -> bytes:
        _need(0 <= count <= len(self.data) - self.at, f"the pickle ends within a value at byte {self.at}")
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, code: str) -> int:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def long(self, size: int) -> int:
        _need(size <= 1024, f"a number of {size} bytes")  # texts of longer ones take long to make
        return int.from_bytes(self.take(size), "little", signed=True)

    def line(self) -> str:
        end = self.data.find(b"\n", self.at, self.at + 400)
        _need(end >= 0, f"a name without end at byte {self.at}")
        text = self.data[self.at:end].decode("utf-8")
        self.at = end + 1
        return text

    def pop(self) -> Any:
        _need(bool(self.stack), f"a value is missing at byte {self.at}")
        return self.stack.pop()

    def pop_mark(self) -> list:
        _need(bool(self.marks), f"a mark is missing at byte {self.at}")
        values, self.stack = self.stack, self.marks.pop()
        return values

    def top(self, *kinds: type) -> Any:
        _need(bool(self.stack) and type(self.stack[-1]) in kinds,
              f"an item for something else than a {kinds[0].__name__} at byte {self.at}")
        return self.stack[-1]

    def run(self) -> Any:
        try:
            while True:
                op = self.take(1)
                if op == b".":
                    _need(len(self.stack) == 1 and not self.marks, "values are left over at the end of the pickle")
                    return self.stack.pop()
                handler = _OPCODES.get(op)
                if handler is None:
                    _fail(f"the pickle has the instruction {op!r} at byte {self.at - 1}, which is not allowed")
                handler(self)  # type: ignore[misc]
        except _Outside as outside:
            raise outside.error
        except (IndexError, KeyError, TypeError, ValueError, AttributeError, OverflowError, RuntimeError, RecursionError) as error:
            raise UnpicklingError(f"the pickle is damaged at byte {self.at}: {error}") from error

    def find(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        # The program's own numpy.dtype, where it has allowed it: arrays want one, and numbers take either.
        found = self.safe.get(full) if full == "numpy.dtype" else None
        found = self.globals.get(full) if found is None else found
        if found is None and module == "torch" and name in DTYPE_SIZES:
            return dtype_named(name)
        if found is None:
            found = self.safe.get(full)
        if found is None:
            _fail(f"the file names the global {full[:300]!r}, which arete.load does not know: it reads tensors, numbers, texts and "
                  "containers of them only. Save the state_dict() in PyTorch, or allow it with "
                  "serialization.add_safe_globals()")
        return found

    def is_safe(self, thing: Any) -> bool:
        return any(thing is s for s in self.safe.values())

    def persistent(self, pid: Any) -> StorageView:
        _need(type(pid) is tuple and (len(pid) == 5 or pid[5:] == (None,)) and pid[0] == "storage", "a persistent id of no storage")
        _, kind, key, device, count = pid[:5]
        _need(isinstance(kind, StorageType) and type(key) is str and type(device) is str and type(count) is int, "a bad storage")
        return self.storage(kind, key, device, count)

    def call(self, function: Any, args: Any) -> Any:
        if self.is_safe(function) and type(args) is tuple:
            return function(*args)
        _need(isinstance(function, _Function) and type(args) is tuple, f"a call of a {type(function).__name__}")
        # Few bytes may ask for a copy of much, again and again.
        self.copied += sum(len(a) for a in args if isinstance(a, (str, bytes, list, tuple, dict, set, frozenset)))
        _need(self.copied <= 16 * len(self.data) + 100_000, "its values are copied too often")
        try:
            return function.call(*args)
        except UnpicklingError as error:
            raise UnpicklingError(f"{function.name}: {error}") from None

    def set_items(self, target: Any, values: list) -> None:
        _need(len(values) % 2 == 0, "a key without a value")
        for i in range(0, len(values), 2):
            target[_check_key(values[i])] = values[i + 1]

    def build(self) -> None:
        state = self.pop()
        target = self.stack[-1]
        if type(target) is OrderedDict and type(state) is dict and set(state) <= {"_metadata"}:
            for name, value in state.items():
                setattr(target, name, value)
        elif isinstance(target, _NumpyType) and type(state) is tuple and len(state) >= 2 and state[1] in ("<", ">", "|", "="):
            target.order = state[1]
        elif self.is_safe(type(target)):
            self.set_state(target, state)
        else:
            _fail(f"the state of a {type(target).__name__} at byte {self.at}")

    @staticmethod
    def set_state(target: Any, state: Any) -> None:
        """As pickle does it."""
        if hasattr(target, "__setstate__"):
            target.__setstate__(state)
            return
        plain, slots = state if type(state) is tuple and len(state) == 2 else (state, None)
        if plain:
            target.__dict__.update(plain)
        for name, value in (slots or {}).items():
            setattr(target, name, value)

    def recall(self, index: int) -> None:
        _need(index in self.memo, f"value {index} is used before it is made")
        self.stack.append(self.memo[index])

    def store(self, index: int) -> None:
        _need(bool(self.stack), f"a value is missing at byte {self.at}")
        self.memo[index] = self.stack[-1]

    def pop_some(self) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self.pop_mark()

    def reduce(self) -> None:
        args = self.pop()
        self.stack.append(self.call(self.pop(), args))

    def new_object(self) -> None:
        args, kind = self.pop(), self.pop()
        if self.is_safe(kind) and isinstance(kind, type) and type(args) is tuple:
            self.stack.append(kind.__new__(kind, *args))
        else:
            self.stack.append(self.call(kind, args))

    def stack_global(self) -> None:
        name, module = self.pop(), self.pop()
        _need(type(name) is str and type(module) is str, "a global without a name")
        self.stack.append(self.find(module, name))

    def last_tuple(self, count: int) -> None:
        _need(len(self.stack) >= count, f"a value is missing at byte {self.at}")
        values = tuple(self.stack[len(self.stack) - count:])
        del self.stack[len(self.stack) - count:]
        self.stack.append(values)

    def mark(self) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def protocol(self) -> None:
        version = self.take(1)[0]
        _need(2 <= version <= 5, f"protocol {version} of pickle")

    def set_item(self) -> None:
        value, key = self.pop(), self.pop()
        self.set_items(self.top(dict, OrderedDict, Counter), [key, value])

    def append(self) -> None:
        value = self.pop()
        self.top(list).append(value)


def _push(make: Callable[[_Interpreter], Any]) -> Callable[[_Interpreter], None]:
    return lambda m: m.stack.append(make(m))


def _on_mark(act: Callable[[_Interpreter, list], Any]) -> Callable[[_Interpreter], None]:
    return lambda m: act(m, m.pop_mark())


def _text(code: str) -> Callable[[_Interpreter], None]:
    return _push(lambda m: m.take(m.number(code)).decode("utf-8", "surrogatepass"))


def _bytes(code: str) -> Callable[[_Interpreter], None]:
    return _push(lambda m: m.take(m.number(code)))


def _long(code: str) -> Callable[[_Interpreter], None]:
    return _push(lambda m: m.long(m.number(code)))


_OPCODES: Dict[bytes, Callable[[_Interpreter], Any]] = {
    b"\x80": _Interpreter.protocol, b"\x95": lambda m: m.number("Q"),
    b"N": _push(lambda m: None), b"\x88": _push(lambda m: True), b"\x89": _push(lambda m: False),
    b"J": _push(lambda m: m.number("i")), b"K": _push(lambda m: m.number("B")), b"M": _push(lambda m: m.number("H")),
    b"\x8a": _long("B"), b"\x8b": _long("i"), b"G": _push(lambda m: struct.unpack(">d", m.take(8))[0]),
    b"X": _text("I"), b"\x8c": _text("B"), b"\x8d": _text("Q"), b"B": _bytes("I"), b"C": _bytes("B"), b"\x8e": _bytes("Q"),
    b"\x96": _push(lambda m: bytearray(m.take(m.number("Q")))),
    b"U": _push(lambda m: m.take(m.number("B")).decode("latin1")),
    b"}": _push(lambda m: {}), b"]": _push(lambda m: []), b")": _push(lambda m: ()), b"\x8f": _push(lambda m: set()),
    b"(": _Interpreter.mark, b"0": _Interpreter.pop_some, b"1": _on_mark(lambda m, v: None),
    b"t": _on_mark(lambda m, v: m.stack.append(tuple(v))),
    b"\x85": lambda m: m.last_tuple(1), b"\x86": lambda m: m.last_tuple(2), b"\x87": lambda m: m.last_tuple(3),
    b"d": _on_mark(lambda m, v: (m.stack.append({}), m.set_items(m.stack[-1], v))),
    b"l": _on_mark(lambda m, v: m.stack.append(v)),
    b"\x91": _on_mark(lambda m, v: m.stack.append(frozenset(_check_key(x) for x in v))),
    b"s": _Interpreter.set_item, b"u": _on_mark(lambda m, v: m.set_items(m.top(dict, OrderedDict, Counter), v)),
    b"a": _Interpreter.append, b"e": _on_mark(lambda m, v: m.top(list).extend(v)),
    b"\x90": _on_mark(lambda m, v: m.top(set).update([_check_key(x) for x in v])),
    b"q": lambda m: m.store(m.number("B")), b"r": lambda m: m.store(m.number("I")), b"\x94": lambda m: m.store(len(m.memo)),
    b"h": lambda m: m.recall(m.number("B")), b"j": lambda m: m.recall(m.number("I")),
    b"c": _push(lambda m: m.find(m.line(), m.line())), b"\x93": _Interpreter.stack_global,
    b"R": _Interpreter.reduce, b"\x81": _Interpreter.new_object, b"b": _Interpreter.build,
    b"Q": lambda m: m.stack.append(m.persistent(m.pop())),
}


def torch_folder(archive: ZipArchive) -> Optional[str]:
    """The folder of the archive in which PyTorch's files lie, if it is one of PyTorch's."""
    for name in archive.entries:
        if name == "data.pkl" or (name.endswith("/data.pkl") and name.count("/") == 1):
            return name[:-len("data.pkl")]
    return None


def storages_of(archive: ZipArchive, folder: str, place: Callable[[Any, str], Any]) -> Callable[[StorageType, str, str, int], StorageView]:
    """The storages in one of PyTorch's zip files, by type, key, device and count. `place(flat_tensor, device)` puts each where
    it shall be."""
    source, entries = archive.source, archive.entries
    check(folder + "constants.pkl" not in entries, f"{source.name} is a TorchScript program: save its state_dict() with torch.save instead")
    order = entries.get(folder + "byteorder")
    if order is not None:
        check(order.size < 16 and bytes(archive.read(order, False)) == b"little",
              f"{source.name}: numbers in another byte order than little-endian")
    storages: Dict[str, _Storage] = {}

    def storage(kind: StorageType, key: str, device: str, count: int) -> StorageView:
        entry = entries.get(f"{folder}data/{key}")
        _need(entry is not None, f"storage {key[:100]!r} is missing")
        _need(entry.method == 0, f"storage {key[:100]!r} is compressed")
        size = DTYPE_SIZES[kind.dtype] if kind.dtype else 1
        _need(count >= 0 and count * size == entry.size, f"storage {key[:100]!r} has {entry.size} bytes, not {count} elements of {size}")
        if key not in storages:
            data, offset = source.buffer(entry.start, entry.size, 64)
            storages[key] = _Storage(data, offset, entry.size, device, place)
        return StorageView(storages[key], kind.dtype)

    return storage


def load_torch(archive: ZipArchive, folder: str, place: Callable[[Any, str], Any]) -> Any:
    """The object in one of PyTorch's zip files, whose pickle is not executed."""
    storage = storages_of(archive, folder, place)
    pickled = bytes(archive.read(archive.entries[folder + "data.pkl"], False))
    return _Interpreter(pickled, storage).run()


def unknown_globals(archive: ZipArchive, folder: str) -> List[str]:
    """What a pickle names that load_torch() would refuse; nothing is executed."""
    import pickletools

    known, safe = _globals(), _safe_by_name()
    names: List[str] = []
    texts: List[str] = []  # the latest ones, which may be the two halves of a name
    memo: Dict[int, str] = {}
    last = ""  # the text on the top of the stack
    for op, arg, _ in pickletools.genops(bytes(archive.read(archive.entries[folder + "data.pkl"], False))):
        if op.name == "GLOBAL":
            names.append(str(arg).replace(" ", "."))
        elif op.name == "STACK_GLOBAL":
            names.append(".".join(texts[-2:]))
        elif op.name in ("MEMOIZE", "BINPUT", "LONG_BINPUT"):
            memo[len(memo) if arg is None else int(arg)] = last
            continue
        last = str(arg) if "UNICODE" in op.name else memo.get(int(arg), "") if op.name in ("BINGET", "LONG_BINGET") else ""  # type: ignore
        texts = [*texts[-1:], last] if last else texts
    return [n for n in dict.fromkeys(names)
            if n not in known and n not in safe and not (n.startswith("torch.") and n[6:] in DTYPE_SIZES)]


def is_legacy(start: bytes) -> bool:
    """Whether a file begins as those of PyTorch before version 1.6."""
    return start.startswith(_LEGACY_MAGIC)


Runner = Callable[[bytes, int, Callable], Tuple[Any, int]]


def _run(data: bytes, at: int, storage: Callable[[StorageType, str, str, int], StorageView]) -> Tuple[Any, int]:
    machine = _Interpreter(data, storage)
    machine.at = at
    return machine.run(), machine.at


def load_legacy(source: Source, place: Callable[[Any, str], Any], run: Runner = _run) -> Any:
    """The object in a file of one pickle after another and the storages behind them. Its pickle runs twice: the first time says how long
    it is and which storages it has."""
    data, at = bytes(source.read(0, source.size)), len(_LEGACY_MAGIC)
    known: Dict[str, Tuple[int, int]] = {}
    empty: Dict[str, _Storage] = {}

    def note(kind: StorageType, key: str, device: str, count: int) -> StorageView:
        size = DTYPE_SIZES[kind.dtype] if kind.dtype else 1
        _need(known.setdefault(key, (count, size)) == (count, size), f"storage {key[:100]!r} has two sizes")
        if key not in empty:
            total = sum(n * s for n, s in known.values())
            _need(0 <= count and total <= source.size, f"storage {key[:100]!r} has {count} elements, more than the file has")
            empty[key] = _Storage(bytearray(count * size), 0, count * size, "cpu", lambda t, device: t)
        return StorageView(empty[key], kind.dtype)

    def none(*args: Any) -> StorageView:
        return _fail("a storage where the file describes itself")

    protocol, at = _run(data, at, none)
    _need(protocol == 1001, f"protocol {_show(protocol)} of the file")
    system, at = _run(data, at, none)
    _need(type(system) is dict and system.get("little_endian") is True, "numbers in another byte order than little-endian")
    begin = at
    _, at = run(data, begin, note)
    keys, at = _run(data, at, none)
    _need(type(keys) is list and all(type(k) is str for k in keys) and len(keys) == len(set(keys)) and set(keys) == set(known),
          "the storages are not those that the tensors name")
    places: Dict[str, int] = {}
    for key in keys:
        count, size = known[key]
        _need(len(data) - at >= 8 and int.from_bytes(data[at:at + 8], "little") == count, f"storage {key[:100]!r} has another size")
        places[key], at = at + 8, at + 8 + count * size
    _need(at == len(data), "the file is truncated, or there is something behind the last storage")
    storages: Dict[str, _Storage] = {}

    def storage(kind: StorageType, key: str, device: str, count: int) -> StorageView:
        if key not in storages:
            content, offset = source.buffer(places[key], count * known[key][1], known[key][1])
            storages[key] = _Storage(content, offset, count * known[key][1], device, place)
        return StorageView(storages[key], kind.dtype)

    return run(data, begin, storage)[0]


def refuse_legacy(source: Source, start: bytes) -> None:
    """Errors for the oldest of PyTorch's formats and for bare pickles."""
    if source.size > 262 and bytes(source.read(257, 5)) == b"ustar":
        _fail(f"{source.name} is in PyTorch's format from before version 0.1.10. Write it anew in PyTorch: "
              "torch.save(torch.load(path), path)")
    if start[:1] == b"\x80" and start[1:2] <= b"\x05":
        _fail(f"{source.name} is a bare pickle, which arete.load does not execute")
