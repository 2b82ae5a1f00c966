"""Recorded programs: what arete.jit, arete.export and arete.onnx are made of.

A Recorded is a program (docs/program.md) with what Python adds to it: trees of arguments and results, and how the arguments are called.
"""
from __future__ import annotations

import base64
import collections
import inspect
import io
import json
import os
import tempfile
from typing import Any, Callable

from . import _C
from ._grad_mode import no_grad
from .nn import Module, Parameter

Tensor = _C.Tensor


class Graph:
    """The calls of a program, one a line.

    >>> str(arete.jit.trace(lambda x: x.sin(), arete.ones(2)).graph).splitlines()[0]
    'program(%x: float32[s0]):'
    """

    def __init__(self, program: Any) -> None:
        self._program = program

    def __str__(self) -> str:
        return str(self._program)

    __repr__ = __str__


# ---- trees as JSON: tensors are numbers in the order of their leaves, everything else stands for itself

def _encode(tree: Any, tensors: list, what: str) -> Any:
    if isinstance(tree, Tensor):
        tensors.append(tree)
        return {"tensor": len(tensors) - 1}
    if tree is None or isinstance(tree, (bool, int, float, str)) and type(tree) in (bool, int, float, str):
        return {"is": tree} if not isinstance(tree, float) else {"float": repr(tree)}
    if isinstance(tree, _C.dtype):
        return {"dtype": str(tree).rpartition(".")[2]}
    if isinstance(tree, _C.device):
        return {"device": str(tree)}
    if type(tree) in (tuple, list):
        return {type(tree).__name__: [_encode(x, tensors, what) for x in tree]}
    if type(tree) in (dict, collections.OrderedDict):
        keys = list(tree)
        if not all(type(k) in (str, int) for k in keys):
            raise TypeError(f"{what}: the keys of dicts are texts and integers, not {[type(k).__name__ for k in keys]}")
        return {type(tree).__name__: [[k, _encode(tree[k], tensors, what)] for k in keys]}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return {"namedtuple": type(tree).__name__, "fields": list(tree._fields), "items": [_encode(x, tensors, what) for x in tree]}
    raise TypeError(f"{what}: a program takes and gives tensors, numbers, texts and None, in tuples, lists and dicts, and no "
                    f"{type(tree).__module__}.{type(tree).__qualname__}")


def _decode(form: Any, tensors: list) -> Any:
    (kind, value), *rest = form.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "is":
        return value
    if kind == "float":
        return float(value)
    if kind == "dtype":
        return getattr(_C, value)
    if kind == "device":
        return _C.device(value)
    if kind in ("tuple", "list"):
        items = [_decode(x, tensors) for x in value]
        return tuple(items) if kind == "tuple" else items
    if kind in ("dict", "OrderedDict"):
        pairs = [(k, _decode(x, tensors)) for k, x in value]
        return dict(pairs) if kind == "dict" else collections.OrderedDict(pairs)
    if kind == "namedtuple":
        fields = dict(rest)
        made = collections.namedtuple(value, fields["fields"])  # noqa: PYI024
        return made(*(_decode(x, tensors) for x in fields["items"]))
    raise ValueError(f"a saved program has a result of an unknown kind, {kind!r}")


def _names(form: Any, name: str) -> list[str]:
    """Names of a tree's tensors: "x", "x_0", "x_mask"."""
    (kind, value), *rest = form.items()
    if kind == "tensor":
        return [name]
    if kind in ("tuple", "list"):
        parts = enumerate(value)
    elif kind in ("dict", "OrderedDict"):
        parts = value
    elif kind == "namedtuple":
        fields = dict(rest)
        parts = zip(fields["fields"], fields["items"])
    else:
        return []
    return [n for key, part in parts for n in _names(part, f"{name}_{key}")]


def _parameter_names(function: Callable, args: tuple, kwargs: dict) -> list[str]:
    """What the arguments are called, the positional ones first."""
    try:
        signature = inspect.signature(function.forward if isinstance(function, Module) else function)
        names = [p.name for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        rest = [p.name for p in signature.parameters.values() if p.kind == p.VAR_POSITIONAL]
    except (TypeError, ValueError):
        names, rest = [], ["input"]
    for k in range(len(names), len(args)):
        names.append(f"{rest[0] if rest else 'input'}_{k}")
    return names


def state_of(*modules: Any) -> list:
    """(name, tensor, is_parameter, persistent) of all parameters and buffers, under each of their names."""
    entries = []
    for module in modules:
        entries += [(n, p, True, True) for n, p in module.named_parameters(remove_duplicate=False)]
        passing = {f"{prefix}.{n}" if prefix else n for prefix, m in module.named_modules(remove_duplicate=False)
                   for n in m._non_persistent_buffers_set}
        entries += [(n, b, False, n not in passing) for n, b in module.named_buffers(remove_duplicate=False)]
    return entries


class Recorded:
    """A program that is called as the function was from which it came."""

    def __init__(self, program: Any, form: dict) -> None:
        self.program, self.form = program, form

    @classmethod
    def record(cls, function: Callable, args: tuple, kwargs: dict, *, what: str, kind: str, state: Any = None,
               dynamic: Callable[[dict, list], tuple[list, list]] | None = None, **more: Any) -> "Recorded":
        """Runs the function on copies of the arguments. `dynamic` gives, for the form of the arguments and their tensors,
        dimensions that are dynamic, (name, tensor, dimension, least, most), and dimensions that may be, (tensor, dimension);
        `more` is kept with the program."""
        tensors: list = []
        names = _parameter_names(function, args, kwargs)
        form = {"args": [_encode(a, tensors, what) for a in args], "kwargs": [[k, _encode(v, tensors, what)] for k, v in kwargs.items()],
                "names": names, "kind": kind, **more}
        input_names = [n for a, name in zip(form["args"], names) for n in _names(a, name)]
        input_names += [n for k, v in form["kwargs"] for n in _names(v, k)]
        if state is None:
            owner = function if isinstance(function, Module) else getattr(function, "__self__", None)
            state = state_of(owner) if isinstance(owner, Module) else []
        input_names = _apart(input_names, [s[0] for s in state])
        stopped: list[BaseException] = []

        def run(given: list) -> list:
            if stopped:
                raise stopped[0]
            try:
                result = function(*(_decode(a, given) for a in form["args"]), **{k: _decode(v, given) for k, v in form["kwargs"]})
            except (KeyboardInterrupt, SystemExit) as e:  # not a reason to try other sizes
                stopped.append(e)
                raise
            found: list = []
            out = _encode(result, found, f"{what}, result")
            if form.setdefault("out", out) != out:
                raise RuntimeError(f"{what}: the structure of the result, or a number in it, depends on the sizes of the inputs")
            return found

        exact, maybe = dynamic(form, tensors) if dynamic else ([], [])
        program = _C._SavedProgram.record(run, tensors, input_names, exact, maybe, state)
        if stopped:
            raise stopped[0]
        program.set_metadata("python", json.dumps(form))
        return cls(program, form)

    def tensors_of(self, args: tuple, kwargs: dict) -> list:
        """The program's inputs; TypeError for arguments of another structure than those it was recorded with."""
        form = self.form
        args, kwargs = list(args), dict(kwargs)
        names = form["names"]
        for name in names[len(args) : len(form["args"])]:  # given by name
            if name not in kwargs:
                raise TypeError(f"missing argument '{name}': the program was recorded with it")
            args.append(kwargs.pop(name))
        for position, (name, _) in enumerate(form["kwargs"]):  # given by position
            if len(args) > len(form["args"]) and name not in kwargs and names[len(form["args"]) + position :][:1] == [name]:
                kwargs[name] = args.pop(len(form["args"]))
        if len(args) != len(form["args"]) or kwargs.keys() != {k for k, _ in form["kwargs"]}:
            raise TypeError(f"the program was recorded with {len(form['args'])} arguments"
                            f"{''.join(', ' + k + '=' for k, _ in form['kwargs'])} but got {len(args)}{''.join(f', {k}=' for k in kwargs)}")
        tensors: list = []
        for position, (recorded, given) in enumerate(zip(form["args"], args)):
            self._match(recorded, _encode(given, tensors, "a program's argument"), names[position])
        for k, recorded in form["kwargs"]:
            self._match(recorded, _encode(kwargs[k], tensors, "a program's argument"), k)
        return tensors

    @staticmethod
    def _match(recorded: Any, given: Any, name: str) -> None:
        if _strip(recorded) != _strip(given):
            shown = [_shown(_decode(f, ["Tensor"] * 1000)) for f in (recorded, given)]
            raise TypeError(f"argument '{name}' is another one than when the program was recorded: {shown[1]} in place of {shown[0]}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(self.tensors_of(args, kwargs))

    def run(self, tensors: list) -> Any:
        """The results for the program's inputs."""
        return _decode(self.form["out"], self.program(tensors))

    def compare(self, function: Callable, args: tuple, kwargs: dict, tolerance: float) -> None:
        """RuntimeError unless program and function give the same, from the same buffers and random numbers."""
        written = set(self.program.written())
        state = [(t, t.detach().clone()) for name, t, _, _ in self.program.state() if name in written]
        random = _C.default_generator.get_state()
        results = []
        with no_grad():
            for run in (function, self):
                tensors: list = []
                forms = [_encode(a, tensors, "trace") for a in args], {k: _encode(v, tensors, "trace") for k, v in kwargs.items()}
                copies = [t.detach().clone() for t in tensors]
                found: list = []
                result = run(*(_decode(a, copies) for a in forms[0]), **{k: _decode(v, copies) for k, v in forms[1].items()})
                _encode(result, found, "trace")
                results.append(found)
                for t, before in state:
                    t.detach().copy_(before)
                _C.default_generator.set_state(random)
        for k, (wanted, got) in enumerate(zip(*results)):
            if wanted.shape != got.shape or wanted.dtype != got.dtype or not _close(wanted, got, tolerance):
                raise RuntimeError(f"result {k} of the program differs from the function's: the function does not make the same calls "
                                   "each time")

    def clone(self) -> "Recorded":
        return Recorded(self.program.clone(), self.form)

    def save(self, f: Any, extra: dict | None = None) -> None:
        for key in [k for k in self.program.metadata() if k.startswith("file:")]:
            self.program.set_metadata(key, "")
        for name, content in (extra or {}).items():
            data = content.encode() if isinstance(content, str) else bytes(content)
            self.program.set_metadata(f"file:{name}", base64.b64encode(data).decode() or "=")
        if isinstance(f, (str, os.PathLike)):
            self.program.save(os.fspath(f))
        elif hasattr(f, "write"):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "program")
                self.program.save(path)
                with open(path, "rb") as file:
                    f.write(file.read())
        else:
            raise TypeError(f"a program is saved to a path or an open file, not to a {type(f).__name__}")

    @classmethod
    def load(cls, f: Any, device: Any = None, extra: dict | None = None) -> "Recorded":
        device = None if device is None else _C.device(device)
        if isinstance(f, (str, os.PathLike)):
            program = _C._SavedProgram.load(os.fspath(f), device)
        elif hasattr(f, "read"):
            program = _C._SavedProgram.parse(f.read(), str(getattr(f, "name", "file")), device)
        else:
            raise TypeError(f"a program is loaded from a path or an open file, not from a {type(f).__name__}")
        metadata = program.metadata()
        for name in extra or {}:
            content = metadata.get(f"file:{name}", "")
            extra[name] = b"" if content in ("", "=") else base64.b64decode(content)
        return cls(program, _read_form(metadata.get("python"), program))


def _close(a: Any, b: Any, tolerance: float) -> bool:
    if not (a.is_floating_point() or a.is_complex()):
        return bool(a.eq(b).all())
    same = a.eq(b) | (a.isnan() & b.isnan())
    return bool((same | (a - b).abs().le(tolerance + tolerance * a.abs())).all())


def _apart(names: list[str], taken: list[str]) -> list[str]:
    """The names, made different from each other and from `taken`."""
    seen = set(taken)
    result = []
    for name in names:
        new, k = name, 1
        while new in seen:
            new, k = f"{name}_{k}", k + 1
        seen.add(new)
        result.append(new)
    return result


def _strip(form: Any) -> Any:
    """The form with all tensors alike."""
    if isinstance(form, dict):
        return {k: 0 if k == "tensor" else _strip(v) for k, v in form.items()}
    if isinstance(form, list):
        return [_strip(x) for x in form]
    return form


def _shown(tree: Any) -> str:
    return repr(tree).replace("'Tensor'", "Tensor")


def _read_form(text: str | None, program: Any) -> dict:
    """How a program that was loaded is called: one that Python did not save takes and gives its tensors one by one."""
    inputs, outputs = [i[0] for i in program.inputs()], program.output_count()
    if text is None:
        out = [{"tensor": k} for k in range(outputs)]
        return {"args": [{"tensor": k} for k in range(len(inputs))], "kwargs": [], "names": inputs, "kind": "program",
                "out": out[0] if outputs == 1 else {"tuple": out}}
    try:
        form = json.loads(text)
        given = ["Tensor"] * len(inputs)
        for a in form["args"]:
            _decode(a, given)
        for _, v in form["kwargs"]:
            _decode(v, given)
        _decode(form["out"], ["Tensor"] * outputs)
        names = form["names"]
        if not all(isinstance(n, str) for n in names) or len(names) < len(form["args"]) or not isinstance(form["kind"], str):
            raise ValueError
        return form
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise OSError("load: the file says nothing sensible about the arguments of its program") from None


def every_dimension(tensors: list) -> list[tuple[int, int]]:
    """(input, dimension) of all."""
    return [(i, d) for i, t in enumerate(tensors) for d in range(t.dim())]


class ProgramModule(Module):
    """A recorded program as a module: its parameters and buffers are the program's."""

    def __init__(self, recorded: Recorded) -> None:
        super().__init__()
        self._recorded = recorded
        self.training = bool(recorded.form.get("training", False))
        made: dict[int, tuple] = {}
        for name, tensor, kind, persistent in recorded.program.state():
            if kind == "constant":
                continue
            *path, last = name.split(".")
            place: Module = self
            for part in path:
                if part not in place._modules:
                    place._modules[part] = Module()
                    place._modules[part].training = self.training
                place = place._modules[part]
            if kind == "parameter":
                if not isinstance(tensor, Parameter):  # of a program that was loaded
                    if id(tensor) not in made:
                        made[id(tensor)] = tensor, Parameter(tensor.detach(), tensor.requires_grad)
                        recorded.program.set_state(name, made[id(tensor)][1])
                    tensor = made[id(tensor)][1]
                place._parameters[last] = tensor
            else:
                place._buffers[last] = tensor
                if not persistent:
                    place._non_persistent_buffers_set.add(last)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._recorded(*args, **kwargs)

    @property
    def graph(self) -> Graph:
        """The calls; print it."""
        return Graph(self._recorded.program)

    @property
    def code(self) -> str:
        """The calls as text: what `graph` prints."""
        return str(self._recorded.program)

    def train(self, mode: bool = True) -> "ProgramModule":
        if mode != self.training:
            recorded, wanted = ("training", "evaluation") if self.training else ("evaluation", "training")
            raise RuntimeError(f"this program was recorded in {recorded} mode and cannot be switched to {wanted} mode: record it again")
        return self

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        raise RuntimeError("the dtypes of a recorded program are fixed: to(device) moves it, another dtype has to be recorded")

    def to(self, *args: Any, **kwargs: Any) -> "ProgramModule":
        from .nn.modules._arguments import parse_to

        device, dtype, _, memory_format = parse_to(args, kwargs)
        if dtype is not None or memory_format is not None:
            self._apply(None)
        if device is not None:
            self._recorded.program.to(device)
        return self

    def __deepcopy__(self, memo: Any) -> "ProgramModule":
        return type(self)(self._recorded.clone())

    def __reduce_ex__(self, protocol: Any) -> Any:
        file = io.BytesIO()
        self._recorded.save(file)
        return _unpickle, (type(self), file.getvalue())

    def extra_repr(self) -> str:
        return f"{len(self._recorded.program.operators())} operators"


def _unpickle(cls: type, data: bytes) -> Any:
    return cls(Recorded.load(io.BytesIO(data)))
