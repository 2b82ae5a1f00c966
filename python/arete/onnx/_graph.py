"""Nodes and constants of an ONNX graph."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import _C

# The numbers of onnx.TensorProto.
TYPES = {"float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11,
         "uint32": 12, "uint64": 13, "bfloat16": 16}
_NUMPY = {"float32": np.float32, "float64": np.float64, "float16": np.float16, "int64": np.int64, "int32": np.int32, "int16": np.int16,
          "int8": np.int8, "uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32, "uint64": np.uint64, "bool": np.bool_}


def same_in(number: float, dtype: str) -> bool:
    """Whether a number is itself in a dtype of two bytes."""
    if not math.isfinite(number):
        return True
    if dtype == "float16":
        return abs(number) <= 65504 and float(np.float16(number)) == number  # as Python compares: numpy would narrow the other one, too
    single = np.float32(number)
    return float(single) == number and int(single.view(np.int32)) & 0xFFFF == 0


def wrapped(value: int, dtype: str) -> int:
    """What an integer is in an integer dtype: the rest of it that fits."""
    kind = np.iinfo(_NUMPY[dtype])
    return (int(value) - int(kind.min)) % 2**kind.bits + int(kind.min)


class Value:
    """A tensor of the graph: its name there, its dtype, its sizes (numbers, sums of dynamic ones, None), and whether its memory is known
    to be its own, and whether it is made of constants alone."""

    def __init__(self, name: str, dtype: str, shape: list, own: bool = False, fixed: bool = False) -> None:
        self.name, self.dtype, self.shape, self.own, self.fixed = name, dtype, shape, own, fixed

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_floating(self) -> bool:
        return "float" in self.dtype


# Arguments that say where a result is and how it lies there, which a model does not decide.
_OF_MEMORY = {"device", "memory_format", "non_blocking"}


class NoCounterpart(NotImplementedError):
    """What ONNX has nothing for: a call of `op`."""

    def __init__(self, op: str, text: str) -> None:
        super().__init__(text)
        self.op = op


class Call:
    """One call of the program: arguments by their names. It notes which of them a handler looks at, since another one may be left
    out of the model only where it has its default: finish()."""

    def __init__(self, op: str, args: dict, results: list[Value], where: str | None = None) -> None:
        self.op, self.results, self.where = op, results, where or op
        self._args = args
        self._read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        return self._args[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self._args else default

    def leading(self, count: int) -> list:
        """The first arguments, whatever they are called (operators call their operands differently)."""
        return [self[name] for name in list(self._args)[:count]]

    @property
    def first(self) -> Any:
        return self.leading(1)[0]

    @property
    def dtype(self) -> str:
        """The first result's, which is what an argument `dtype` asks for."""
        self._read.add("dtype")
        return self.results[0].dtype

    def leave(self, *names: str) -> None:
        """Arguments that the model does not need, for a reason that the caller tells."""
        self._read.update(names)

    def refuse(self, why: str) -> Any:
        raise NoCounterpart(self.op, f"onnx.export(): the operator '{self.where}' {why}")

    def finish(self, defaults: dict) -> None:
        """Refuses arguments that the handler did not look at and that are not as the schema has them."""
        for name, value in self._args.items():
            if name in self._read or name in _OF_MEMORY:
                continue
            default = defaults.get(name)  # where there is none, None still says nothing
            # One number stands for a list of it.
            if value != default and not (isinstance(value, list) and value and all(v == default for v in value)):
                self.refuse(f"has no counterpart that heeds the argument '{name}'"
                            f"{'' if isinstance(value, (Value, list)) else f' ({value!r})'}")

    def dim(self, name: str = "dim", rank: int | None = None) -> int:
        d = self[name]
        rank = self.first.rank if rank is None else rank
        if rank == 0:
            self.refuse("has a counterpart for tensors with dimensions only")
        return d + rank if d < 0 else d

    def fixed(self, name: str) -> list[int]:
        """Integers that no size decides; none for None."""
        given = self[name] or []
        if not all(isinstance(n, int) for n in given):
            self.refuse(f"has an argument '{name}' that depends on dynamic sizes")
        return given


class Graph:
    """Nodes and constants of the model that is being made."""

    def __init__(self, opset: int, taken: set[str]) -> None:
        from onnx import helper, numpy_helper

        self.helper, self.from_array = helper, numpy_helper.from_array
        self.opset, self.taken = opset, taken  # names that the inputs, results and constants have
        self.nodes: list = []
        self.initializers: dict[str, Any] = {}
        self.sizes: list[str] = []  # of each dynamic size a tensor [n]
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"_{self.count}" if f"_{self.count}" not in self.taken else self.name()

    def op(self, kind: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        """Adds a node; the name of its output, or their names."""
        names = [self.name() for _ in range(outputs)]
        given = [x.name if isinstance(x, Value) else x or "" for x in inputs]
        while given and not given[-1]:
            given.pop()
        self.nodes.append(self.helper.make_node(kind, given, names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        array = np.asarray(value, _NUMPY.get(dtype, dtype) if isinstance(dtype, str) and dtype != "bfloat16" else
                           np.float32 if dtype == "bfloat16" else dtype)
        name = self.name()
        self.initializers[name] = self.from_array(array, name)
        if dtype == "bfloat16":
            return self.op("Cast", name, to=TYPES["bfloat16"])
        return name

    def number(self, value: Any, dtype: str) -> Any:
        """A number of the program in this dtype; sizes may decide it."""
        if isinstance(value, list):
            return self.cast(self.op("Squeeze", self.integer(value), self.constant([0])), dtype)
        if "int" in dtype and isinstance(value, int):
            value = wrapped(value, dtype)
        elif dtype == "float16" and math.isfinite(value) and abs(value) > float(np.finfo(np.float16).max):
            # Operators take numbers in float32, in which this one is finite.
            raise NotImplementedError(f"onnx.export(): the number {value} does not fit into float16, and a model has no wider one there")
        return self.constant(value, dtype)

    def like(self, value: Any, v: Value) -> Any:
        """A number of v's dtype."""
        return self.number(value, v.dtype)

    def integer(self, extent: Any) -> str:
        """A tensor [n] with an integer, which sizes may decide."""
        if isinstance(extent, int):
            return self.constant([extent])
        total = None
        for term in extent:
            product = self.constant([term[0]]) if term[0] != 1 or len(term) == 1 else None
            for size in term[1:]:
                product = self.sizes[size] if product is None else self.op("Mul", product, self.sizes[size])
            total = product if total is None else self.op("Add", total, product)
        return total

    def integers(self, extents: list) -> str:
        """A tensor of integers."""
        if all(isinstance(e, int) for e in extents):
            return self.constant(extents)
        return self.op("Concat", *(self.integer(e) for e in extents), axis=0)

    def cast(self, x: Any, dtype: str) -> Any:
        return self.op("Cast", x, to=TYPES[dtype])

    def as_dtype(self, x: Value, dtype: str) -> Any:
        """x in this dtype."""
        return x if x.dtype == dtype else self.cast(x, dtype)

    def value(self, x: Value, dtype: str) -> Value:
        """x in this dtype, with its sizes."""
        return x if x.dtype == dtype else Value(self.cast(x, dtype), dtype, x.shape)

    def where(self, condition: Any, a: Any, b: Any, dtype: str) -> Any:
        if dtype != "bool":
            return self.op("Where", condition, a, b)
        # Runtimes choose no truths.
        return self.op("Or", self.op("And", condition, a), self.op("And", self.op("Not", condition), b))

    def tensor(self, name: str, t: Any) -> None:
        """A constant of the program."""
        t = t.detach().cpu().contiguous()
        dtype = str(t.dtype).rpartition(".")[2]
        if dtype not in TYPES:
            raise NotImplementedError(f"onnx.export(): the constant '{name}' has the dtype {dtype}, which the model cannot have")
        if dtype == "bfloat16":
            data = t.view(_C.int16).numpy().tobytes()
            self.initializers[name] = self.helper.make_tensor(name, TYPES["bfloat16"], list(t.shape), data, raw=True)
        else:
            self.initializers[name] = self.from_array(t.numpy(), name)
