"""How nested Python values become a safetensors file: tensors under dotted names, and the rest as JSON in the metadata.

The metadata entry "arete.structure" is `{"version": 1, "root": NODE}`, where a NODE is

    null, true, false, text, a number with a fraction or exponent (float), one without (int, up to 63 bits)
    [NODE, ...]                            list
    {"tensor": NAME, ...}                  the tensor NAME of the file; with "grad": requires_grad, "param": a Parameter, "stride": its
                                           strides where it was dense but not row-major, "device": where it was, "dtype": "complex128"
                                           (stored as F64 with one dimension more), "same": it shares memory with the tensor of that name
    {"dict": [[KEY, NODE], ...]}           dict; "odict" an OrderedDict (with "metadata": NODE its _metadata), "counter" a Counter
    {"tuple": [...]}, {"size": [...]}, {"set": [...]}, {"frozenset": [...]}
    {"int": HEX}, {"float": "nan" | "inf" | "-inf"}, {"complex": [NODE, NODE]}, {"bytes": BASE64}
    {"dtype": NAME}, {"device": TEXT}, {"ndarray": NAME}, {"scalar": [NumPy dtype, HEX]}

A tensor's name is the path to it: `{"model": {"0.weight": w}, "steps": [s]}` gives "model.0.weight" and "steps.0". So a plain dict of
tensors is a plain safetensors file, with the same names.
"""
from __future__ import annotations

import base64
import json
import math
import re
import sys
from collections import Counter, OrderedDict
from typing import Any, Callable, Dict, List, Optional, Tuple

from .. import _C, _operators
from .safetensors import SafetensorsFile, parse_json
from .source import DTYPE_SIZES, FormatError, check, dtype_name, dtype_named

KEY = "arete.structure"
MAX_DEPTH = 100


def _parameter_type() -> Any:
    """The class Parameter, without loading arete.nn for it: where that is not loaded, there is none."""
    nn = sys.modules.get("arete.nn")
    return () if nn is None else nn.Parameter


class Encoder:
    """Turns a value into `root` (a NODE) and `tensors` (by name)."""

    def __init__(self, value: Any) -> None:
        self.tensors: Dict[str, Any] = {}
        self._seen: Dict[tuple, str] = {}
        self._keep: list = []
        self.root = self._node(value, (), "obj", 0)

    def metadata(self) -> Dict[str, str]:
        return {"format": "pt", KEY: json.dumps({"version": 1, "root": self.root}, separators=(",", ":"), allow_nan=False)}

    def _node(self, v: Any, path: Tuple[str, ...], where: str, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ValueError(f"cannot save {where[:200]}...: nested more than {MAX_DEPTH} deep (does it contain itself?)")
        kind = type(v)
        if v is None or kind in (bool, str):
            return v
        if kind is int:
            return v if -2 ** 63 <= v < 2 ** 63 else {"int": hex(v)}
        if kind is float:
            return v if math.isfinite(v) else {"float": repr(v)}
        if isinstance(v, _C.Tensor):
            if hasattr(v, "_spec"):  # a part of one that is spread over processes
                return self._special(v, path, where)
            return self._tensor(v, path, where)
        if kind in (dict, OrderedDict, Counter):
            return self._mapping(v, path, where, depth)
        if kind is list:
            return self._items(v, path, where, depth)
        if isinstance(v, _C.Size):
            return {"size": [int(n) for n in v]}
        if kind is tuple:
            return {"tuple": self._items(v, path, where, depth)}
        if kind in (set, frozenset):
            return {kind.__name__: [self._key(x, where) for x in v]}
        return self._key(v, where) if kind in (bytes, complex) else self._special(v, path, where)

    def _items(self, values: Any, path: Tuple[str, ...], where: str, depth: int) -> list:
        return [self._node(x, (*path, str(i)), f"{where}[{i}]", depth + 1) for i, x in enumerate(values)]

    def _mapping(self, v: Any, path: Tuple[str, ...], where: str, depth: int) -> dict:
        pairs = []
        for i, (k, x) in enumerate(v.items()):
            step = k if type(k) is str else str(k) if type(k) in (int, bool, float) else str(i)
            pairs.append([self._key(k, where), self._node(x, (*path, step), f"{where}[{k!r}]", depth + 1)])
        node: Dict[str, Any] = {{dict: "dict", OrderedDict: "odict", Counter: "counter"}[type(v)]: pairs}
        if type(v) is OrderedDict and getattr(v, "_metadata", None) is not None:
            node["metadata"] = self._node(v._metadata, (*path, "_metadata"), f"{where}._metadata", depth + 1)
        return node

    def _key(self, k: Any, where: str, depth: int = 0) -> Any:
        """A hashable value."""
        kind = type(k)
        if kind is bytes:
            return {"bytes": base64.b64encode(k).decode("ascii")}
        if kind is complex:
            return {"complex": [self._key(k.real, where), self._key(k.imag, where)]}
        if kind is tuple and depth < 8:
            return {"tuple": [self._key(x, where, depth + 1) for x in k]}
        if kind is frozenset and depth < 8:
            return {"frozenset": [self._key(x, where, depth + 1) for x in k]}
        if k is None or kind in (bool, str, int, float):
            return self._node(k, (), where, 0)
        return self._special(k, None, where)

    def _special(self, v: Any, path: Optional[Tuple[str, ...]], where: str) -> dict:
        if isinstance(v, _C.dtype):
            return {"dtype": dtype_name(v)}
        if isinstance(v, _C.device):
            return {"device": str(v)}
        if type(v).__module__ == "numpy" and hasattr(v, "dtype") and v.dtype.kind in "biufc":
            if not hasattr(v, "__array_finalize__") or not hasattr(v, "setflags") or type(v).__name__ != "ndarray":
                return {"scalar": [v.dtype.newbyteorder("<").str, v.tobytes().hex()]}
            if path is not None:
                return {"ndarray": self._add(_operators.as_tensor(v.copy()), path)}
        raise TypeError(f"cannot save {where[:300]}: a {type(v).__module__}.{type(v).__qualname__}. Saved are tensors, numbers, texts, "
                        "None and dicts, lists, tuples and sets of them; of a module or an optimizer save its state_dict()")

    def _add(self, t: Any, path: Tuple[str, ...]) -> str:
        base = ".".join(path) or "tensor"
        name, count = base, 1
        while name in self.tensors or name == "__metadata__":
            count += 1
            name = f"{base}~{count}"
        self.tensors[name] = t
        return name

    def _tensor(self, t: Any, path: Tuple[str, ...], where: str) -> dict:
        try:
            pointer = t.data_ptr()
        except (RuntimeError, NotImplementedError) as error:
            raise TypeError(f"cannot save {where[:300]}: a tensor without memory ({error})") from None
        node: Dict[str, Any] = {}
        name = dtype_name(t.dtype)
        grad, param = bool(t.requires_grad), isinstance(t, _parameter_type())
        flat = t.detach()
        self._keep.append(t)
        identity = (pointer, tuple(t.shape), tuple(t.stride()), name, str(t.device))
        if grad:
            node["grad"] = True
        if param:
            node["param"] = True
        if t.device.type != "cpu":
            node["device"] = str(t.device)
        if not t.is_contiguous() and _operators._memory_order(t) is not None:
            node["stride"] = [int(n) for n in t.stride()]
        if name == "complex128":
            node["dtype"] = name
        elif name not in DTYPE_SIZES:
            raise TypeError(f"cannot save {where[:300]}: a tensor of dtype {name}")
        key = self._add(flat, path)
        if t.numel():
            same = self._seen.setdefault(identity, key)
            if same != key:
                node["same"] = same
        return {"tensor": key, **node}


class Decoder:
    """Makes the value of a file again. `place(tensor, device)` moves a tensor that was on a device."""

    def __init__(self, file: SafetensorsFile, place: Callable[[Any, str], Any]) -> None:
        self.file = file
        self.place = place
        self.name = file.source.name
        self._made: Dict[str, Any] = {}

    def value(self) -> Any:
        text = self.file.metadata.get(KEY)
        if text is None:
            return {key: self.place(self.file.tensor(key), "cpu") for key in self.file.entries}
        structure = parse_json(text, f"{self.name}: {KEY}")
        check(isinstance(structure, dict) and structure.get("version") == 1 and "root" in structure,
              f"{self.name}: the structure is of another version")
        try:
            return self._value(structure["root"], 0)
        except RecursionError:
            raise FormatError(f"{self.name}: nested too deeply") from None

    def _value(self, node: Any, depth: int) -> Any:
        check(depth <= 2 * MAX_DEPTH, f"{self.name}: nested too deeply")
        if node is None or type(node) in (bool, int, float, str):
            return node
        if type(node) is list:
            return [self._value(x, depth + 1) for x in node]
        tag, content = next(iter(node.items()), ("nothing", None))
        if tag == "tensor":
            return self._tensor(node)
        if tag in ("dict", "odict", "counter"):
            return self._mapping(tag, content, node, depth)
        if tag in ("tuple", "size", "set", "frozenset"):
            check(type(content) is list, f"{self.name}: {tag} of no list")
            if tag == "tuple":
                return tuple(self._value(x, depth + 1) for x in content)
            if tag == "size":
                check(all(type(n) is int and -2 ** 63 <= n < 2 ** 63 for n in content), f"{self.name}: a Size of no ints")
                return _C.Size(content)
            values = [self._key(x, depth + 1) for x in content]
            return set(values) if tag == "set" else frozenset(values)
        if tag == "ndarray":
            check(type(content) is str and content in self.file.entries, f"{self.name}: tensor {str(content)[:100]!r} is missing")
            return self.file.tensor(content).numpy()
        return self._leaf(tag, content, depth)

    def _leaf(self, tag: str, content: Any, depth: int) -> Any:
        try:
            if tag == "int":
                return int(content, 16)
            if tag == "float":
                return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[content]
            if tag == "complex":
                real, imag = (self._value(x, depth + 1) for x in content)
                return complex(real, imag)
            if tag == "bytes":
                return base64.b64decode(content, validate=True)
            if tag == "dtype":
                return dtype_named(content)
            if tag == "device" and type(content) is str:
                return _C.device(content)
            if tag == "scalar":
                return _numpy_scalar(content[0], bytes.fromhex(content[1]))
        except (ValueError, TypeError, KeyError, IndexError, RuntimeError) as error:
            check(False, f"{self.name}: a bad {tag}: {error}")
        check(False, f"{self.name}: {tag[:100]!r} is an unknown kind of value")

    def _key(self, node: Any, depth: int) -> Any:
        key = self._value(node, depth)
        self._check_key(key, 0)
        return key

    def _check_key(self, key: Any, depth: int) -> None:
        """Nothing deep: hashing recurses."""
        check(depth < 16, f"{self.name}: a key is nested too deeply")
        if isinstance(key, (tuple, frozenset)):
            for x in key:
                self._check_key(x, depth + 1)
        else:
            check(not isinstance(key, (list, dict, set, _C.Tensor)), f"{self.name}: a {type(key).__name__} is no key")

    def _mapping(self, tag: str, content: Any, node: dict, depth: int) -> Any:
        check(type(content) is list and all(type(p) is list and len(p) == 2 for p in content), f"{self.name}: a {tag} of no pairs")
        pairs: List[tuple] = [(self._key(k, depth + 1), self._value(x, depth + 1)) for k, x in content]
        result: Any = {"dict": dict, "odict": OrderedDict, "counter": Counter}[tag]()
        for k, x in pairs:
            result[k] = x
        check(len(result) == len(pairs), f"{self.name}: a key occurs twice")
        if tag == "odict" and "metadata" in node:
            result._metadata = self._value(node["metadata"], depth + 1)
        return result

    def _tensor(self, node: dict) -> Any:
        name = node["tensor"]
        check(type(name) is str and name in self.file.entries, f"{self.name}: tensor {str(name)[:100]!r} is missing")
        same = node.get("same")
        flags = (node.get("param") is True, node.get("grad") is True)
        if type(same) is str and same in self._made:
            first, other = self.file.entries[same], self.file.entries[name]
            check(first[:2] == other[:2], f"{self.name}: {name[:100]!r} is said to be {same[:100]!r}, but differs from it")
            made, made_flags = self._made[same]
            if flags != made_flags:
                made = self._flagged(made.detach(), flags, name)
        else:
            made = self._flagged(self._loaded(node, name), flags, name)
        self._made[name] = (made, flags)
        return made

    def _loaded(self, node: dict, name: str) -> Any:
        t = self.file.tensor(name, node.get("dtype") == "complex128")
        if "stride" in node:
            t = self._restrided(t, node["stride"], name)
        device = node.get("device", "cpu")
        check(type(device) is str, f"{self.name}: a device that is no text")
        return self.place(t, device)

    def _flagged(self, t: Any, flags: Tuple[bool, bool], name: str) -> Any:
        param, grad = flags
        check(not grad or t.is_floating_point() or t.is_complex(), f"{self.name}: {name[:100]!r} cannot require a gradient")
        if param:
            from ..nn import Parameter  # only where one is read: it loads much

            return Parameter(t, requires_grad=grad)
        return t.requires_grad_(True) if grad else t

    def _restrided(self, t: Any, strides: Any, name: str) -> Any:
        """The same values in another order of memory: by permuting to that order and back."""
        check(type(strides) is list and len(strides) == len(t.shape) and all(type(s) is int and s > 0 for s in strides),
              f"{self.name}: {name[:100]!r} has bad strides")
        order = sorted(range(len(strides)), key=lambda i: (-strides[i], i))
        back = [order.index(i) for i in range(len(order))]
        return t.permute(order).contiguous().permute(back)


def _numpy_scalar(dtype: str, raw: bytes) -> Any:
    import numpy

    if not re.fullmatch(r"[<|]?[biufc]\d{1,2}", dtype):
        raise ValueError("no simple dtype")
    kind = numpy.dtype(dtype)
    if kind.itemsize != len(raw):
        raise ValueError(f"{dtype!r} of {len(raw)} bytes")
    return numpy.frombuffer(raw, dtype=kind)[0]
