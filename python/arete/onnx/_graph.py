"""Nodes and constants of an ONNX graph."""
from __future__ import annotations

from typing import Any

import numpy as np

from .. import _C

# The numbers of onnx.TensorProto.
TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11, "bfloat16": 16}
_NUMPY = {"float32": np.float32, "float64": np.float64, "float16": np.float16, "int64": np.int64, "int32": np.int32, "int16": np.int16,
          "int8": np.int8, "uint8": np.uint8, "bool": np.bool_}


class Value:
    """A tensor of the graph: its name there, its dtype, and its sizes (numbers, sums of dynamic ones, None)."""

    def __init__(self, name: str, dtype: str, shape: list) -> None:
        self.name, self.dtype, self.shape = name, dtype, shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_floating(self) -> bool:
        return "float" in self.dtype


class Call:
    """One call of the program: arguments by their names."""

    def __init__(self, op: str, args: dict, results: list[Value]) -> None:
        self.op, self.args, self.results = op, args, results

    def __getitem__(self, name: str) -> Any:
        return self.args[name]

    def refuse(self, why: str) -> Any:
        raise NotImplementedError(f"onnx.export(): the operator '{self.op}' {why}")

    def dim(self, name: str = "dim", rank: int | None = None) -> int:
        d = self.args[name]
        rank = self.args[next(iter(self.args))].rank if rank is None else rank
        return d + rank if d < 0 else d

    def fixed(self, name: str) -> list[int]:
        """Integers that no size decides."""
        given = self.args[name]
        if not all(isinstance(n, int) for n in given):
            self.refuse(f"has an argument '{name}' that depends on dynamic sizes")
        return given


class Graph:
    """Nodes and constants of the model that is being made."""

    def __init__(self, opset: int) -> None:
        from onnx import helper, numpy_helper

        self.helper, self.from_array = helper, numpy_helper.from_array
        self.opset = opset
        self.nodes: list = []
        self.initializers: dict[str, Any] = {}
        self.sizes: list[str] = []  # of each dynamic size a tensor [n]
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"_{self.count}"

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

    def like(self, value: Any, v: Value) -> str:
        """A number of v's dtype."""
        return self.constant(value, v.dtype)

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
