"""Recorded programs: what arete.jit, arete.export and arete.onnx are made of.

A Recorded is a program (docs/program.md) with what Python adds to it: trees of arguments and results, and how the arguments are called.
"""
from __future__ import annotations

import base64
import collections
import contextlib
import copy
import functools
import inspect
import io
import itertools
import json
import operator
import os
import tempfile
from typing import Any, Callable, Iterable, Iterator

from . import _C
from ._grad_mode import enable_grad, inference_mode, no_grad
from .nn import Module, Parameter
from .nn.parameter import is_lazy
from .utils import _pytree

Tensor = _C.Tensor


class Different(RuntimeError):
    """A program does something else than the function from which it came."""


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

def argument_of(j: Any, values: list) -> Any:
    """An argument of a saved program's call: tensors are taken from `values`, dtypes stay names."""
    if j is None:
        return None
    (kind, value), = j.items()
    if kind == "tensor":
        return values[value]
    if kind == "tensors":
        return [None if v is None else values[v] for v in value]
    if kind == "scalar":
        return argument_of(value, values)
    if kind in ("float", "floats", "reals"):  # infinities and NaN are texts
        return [float(x) for x in value] if isinstance(value, list) else float(value)
    return value


def next_mark(calls: list, k: int) -> int:
    """Of a saved program's calls, the mark of cond() or while_loop() that follows the mark k."""
    depth = 0
    for n in range(k + 1, len(calls)):
        form = calls[n].get("form")
        if form in ("branch", "loop"):
            depth += 1
        elif form in ("otherwise", "join", "test", "repeat"):
            if depth == 0:
                return n
            depth -= form in ("join", "repeat")
    raise ValueError("a mark of a program has none behind it")


def places_of_sizes(j: dict) -> list[tuple[int, int, int, int]]:
    """Where a saved program reads each dynamic size: (input, dimension, factor, offset), the dimension being factor * size + offset."""
    found: dict[int, list] = {}
    for i, x in enumerate(j["inputs"]):
        for d, e in enumerate(x["shape"]):
            if isinstance(e, list):
                (factor, size), = (t for t in e if len(t) == 2)
                found.setdefault(size, []).append((factor, sum(t[0] for t in e if len(t) == 1), i, d))
    return [(i, d, factor, offset) for k in range(len(j["symbols"]))
            for factor, offset, i, d in [min(found[k], key=lambda place: (place[0], abs(place[1])))]]


_DTYPES = {str(x).rpartition(".")[2]: x for x in vars(_C).values() if isinstance(x, _C.dtype)}


class _Hole:
    """Stands for a tensor."""

    def __repr__(self) -> str:
        return "Tensor"


_BUILT_IN = frozenset((tuple, list, dict, collections.OrderedDict, collections.defaultdict, collections.deque, collections.namedtuple))


def _parts(tree: Any) -> tuple[list[str], list, Any, Callable | type] | None:
    """Names and values of what is in a named tuple, in what operators with several results give, and in an object of a class that
    utils._pytree knows; what else such an object has, and what makes one of a list of values."""
    kind = type(tree)
    if isinstance(tree, tuple):
        if hasattr(tree, "_fields"):
            return list(tree._fields), list(tree), None, kind._make
        if hasattr(tree, "n_sequence_fields"):
            return list(kind.__match_args__), list(tree), None, kind
    node = None if kind in _BUILT_IN else _pytree.SUPPORTED_NODES.get(kind)
    if node is None:
        return None
    _pytree._check_whole(tree)
    children, context = node.flatten_fn(tree)
    keys = [str(k) for k, _ in node.flatten_with_keys_fn(tree)[0]] if node.flatten_with_keys_fn else []
    keys = ["".join(c if c.isalnum() or c == "_" else "" for c in k) for k in keys]
    if len(set(keys)) != len(children) or not all(k.isidentifier() and not k.startswith("_") for k in keys):
        keys = [f"item_{k}" for k in range(len(children))]
    return keys, list(children), context, lambda values: node.unflatten_fn(values, context)


class _Context:
    """What an object of a class that utils._pytree knows has besides its parts; `text` is all that a file says of it."""

    def __init__(self, kind: type, value: Any = None, text: str | None = None) -> None:
        self.kind, self.value, self.text = kind, value, text

    @classmethod
    def of(cls, kind: type, value: Any) -> "_Context":
        dump = _pytree._dumpers.get(kind, (None, None))[0]
        try:
            return cls(kind, value, json.dumps(dump(value) if dump else value))
        except (TypeError, ValueError):
            return cls(kind, value)

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, _Context):
            return False
        if _Context in (self.kind, other.kind):  # of a file
            return self.text is not None and self.text == other.text
        if self.kind is not other.kind:
            return False
        if self.value is other.value and self.text == other.text:
            return True
        try:
            return type(self.value) is type(other.value) and self.text == other.text and bool(self.value == other.value)
        except (TypeError, ValueError, RuntimeError) as e:
            raise TypeError(f"what a {self.kind.__qualname__} has besides its parts cannot be compared with what the program was recorded "
                            f"with: {e}") from None

    def __hash__(self) -> int:
        return 0


def _unwritten(form: Any) -> str | None:
    """The name of a class of which a file could not say what its objects have besides their parts."""
    if isinstance(form, dict):
        if "namedtuple" in form and form.get("context", "") is None:
            return form["namedtuple"]
        form = list(form.values())
    return next((name for x in form if (name := _unwritten(x)) is not None), None) if isinstance(form, (list, tuple)) else None


def _refused(tree: Any, what: str) -> TypeError:
    return TypeError(f"{what}: a program takes and gives tensors, numbers, texts and None, in tuples, lists and dicts, and no "
                     f"{type(tree).__module__}.{type(tree).__qualname__}")


def _check_keys(tree: dict, what: str) -> None:
    if not all(type(k) in (str, int) for k in tree):
        raise TypeError(f"{what}: the keys of dicts are texts and integers, not {[type(k).__name__ for k in tree]}")


def _encode(tree: Any, tensors: list, what: str, classes: list | None = None) -> Any:
    """The form of a tree, which JSON can hold; `classes` gets what makes its named tuples, which JSON cannot."""
    kind = type(tree)
    if isinstance(tree, Tensor):
        tensors.append(tree)
        return {"tensor": len(tensors) - 1}
    if tree is None or kind in (bool, int, str):
        return {"is": tree}
    if kind in (float, complex):
        return {kind.__name__: repr(tree)}
    if kind is _C.dtype:
        return {"dtype": str(tree).rpartition(".")[2]}
    if kind is _C.device:
        return {"device": str(tree)}
    if kind in (tuple, list, _C.Size):
        return {kind.__name__: [_encode(x, tensors, what, classes) for x in tree]}
    if kind in (dict, collections.OrderedDict):
        _check_keys(tree, what)
        return {kind.__name__: [[k, _encode(x, tensors, what, classes)] for k, x in tree.items()]}
    if (parts := _parts(tree)) is not None:
        names, values, context, make = parts
        if classes is not None:
            classes.append(make)
        more = {} if context is None else {"context": _Context.of(kind, context).text}
        return {"namedtuple": kind.__name__, "fields": names, "items": [_encode(x, tensors, what, classes) for x in values], **more}
    raise _refused(tree, what)


def _signature(tree: Any, tensors: list, what: str) -> Any:
    """What two trees have in common that differ in their tensors alone: by type and value, so 1 is neither True nor 1.0."""
    if isinstance(tree, Tensor):
        tensors.append(tree)
        return Tensor
    kind = type(tree)
    if kind is _Hole:
        return Tensor
    if tree is None or kind in (bool, int, str):
        return kind, tree
    if kind in (float, complex, _C.dtype, _C.device):
        return kind, repr(tree)  # of -0.0 and nan, too
    if kind in (tuple, list, _C.Size):
        return (kind, *[_signature(x, tensors, what) for x in tree])
    if kind in (dict, collections.OrderedDict):
        _check_keys(tree, what)
        return (kind, *[(k, _signature(x, tensors, what)) for k, x in tree.items()])
    if (parts := _parts(tree)) is not None:
        names, values, context, _ = parts
        read = getattr(kind, "_context_of_file", None)
        besides = [_Context(_Context, text=read)] if read is not None else [] if context is None else [_Context.of(kind, context)]
        return (kind.__name__, *names, *besides, *[_signature(x, tensors, what) for x in values])
    raise _refused(tree, what)


@functools.lru_cache(maxsize=256)
def _named_tuple(name: str, fields: tuple, context: str | None = None) -> type:
    made = collections.namedtuple(name, fields)
    if context is not None:
        made._context_of_file = context  # type: ignore[attr-defined]
    return made


def _leaf(kind: str, value: Any) -> Any:
    if kind == "is" and (value is None or type(value) in (bool, int, str)):
        return value
    if kind in ("float", "complex", "dtype", "device") and type(value) is str:
        return {"float": float, "complex": complex, "dtype": _DTYPES.__getitem__, "device": _C.device}[kind](value)
    raise ValueError(f"a saved program has an argument or result of an unknown kind, {kind!r}")


def _builder(form: Any, classes: Iterator, order: list) -> Callable[[list], Any]:
    """A function that makes the tree from its tensors; `order` gets their numbers. The form may be hostile."""
    (kind, value), *rest = form.items()
    if kind == "tensor" and type(value) is int:
        order.append(value)
        return operator.itemgetter(value)
    if kind in ("dict", "OrderedDict"):
        make: Callable = dict if kind == "dict" else collections.OrderedDict
        keys = [k for k, _ in value]
        _check_keys(dict.fromkeys(keys), "load")
        items = [_builder(x, classes, order) for _, x in value]
        return lambda tensors: make(zip(keys, [item(tensors) for item in items]))
    if kind == "namedtuple":
        fields = dict(rest)
        known = next(classes, None)
        if type(fields.get("context", "")) not in (str, type(None)):
            raise ValueError(f"a saved program has a {value!r} with something else than a text besides its items")
        parts = fields["items"]
        make = _named_tuple(value, tuple(fields["fields"]), fields.get("context"))._make if known is None else known
        if len(parts) != len(fields["fields"]):
            raise ValueError(f"a saved program has a {value!r} of {len(parts)} items")
    elif kind in ("tuple", "list", "Size"):
        make, parts = {"tuple": tuple, "list": list, "Size": _C.Size}[kind], value
    else:
        leaf = _leaf(kind, value)
        return lambda tensors: leaf
    before = len(order)
    items = [_builder(x, classes, order) for x in parts]
    if before == 0 and order == list(range(len(items))) and all("tensor" in x for x in parts):
        # The whole tree, or a part before all others: the tensors as they come.
        count = len(items)
        return lambda tensors: make(tensors if len(tensors) == count else tensors[:count])
    return lambda tensors: make([item(tensors) for item in items])


def _names(form: Any, name: str) -> list[str]:
    """Names of a tree's tensors: "x", "x_0", "x_mask"."""
    (kind, value), *rest = form.items()
    if kind == "tensor":
        return [name]
    if kind in ("tuple", "list", "Size"):
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
    if isinstance(function, ProgramModule):
        names = list(function._program.form["names"])
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


def check_module(module: Module) -> None:
    """ValueError for hooks whose Python a program would leave out, in the backward pass, and for parameters that are not there yet."""
    for m in module.modules():
        if m._backward_hooks or m._backward_pre_hooks:
            raise ValueError(f"Modules that have backward hooks assigned can't be compiled: {m}")
        for name, p in m._parameters.items():
            if is_lazy(p):
                raise ValueError(f"'{name}' of {m} is an uninitialized parameter: call the module once before it is recorded")


def _owner(function: Callable) -> Any:
    return function if isinstance(function, Module) else getattr(function, "__self__", None)


class _Registered:
    """The parameters and buffers that a module has."""

    def __init__(self, module: Any) -> None:
        modules = module.named_modules() if isinstance(module, Module) else ()
        self.before = [(prefix, d, dict(d)) for prefix, m in modules for d in (m._parameters, m._buffers)]

    def changed(self) -> str | None:
        """The name of one that is another tensor now."""
        for prefix, now, before in self.before:
            for k in {**before, **now}:
                if now.get(k) is not before.get(k):
                    return f"{prefix}.{k}" if prefix else k
        return None

    def restore(self) -> None:
        for _, now, before in self.before:
            now.clear()
            now.update(before)

    def write_back(self) -> None:
        """Writes tensors that were put in the places of buffers into these, which are then there again: programs write, and assign
        nothing. Tensors of other dtypes or sizes stay."""
        for _, now, before in self.before:
            for k, old in before.items():
                new = now.get(k)
                if new is old or any(not isinstance(t, Tensor) or isinstance(t, Parameter) for t in (old, new)):
                    continue
                if (new.dtype, new.shape, new.device) == (old.dtype, old.shape, old.device):
                    with no_grad():
                        old.copy_(new)
                    now[k] = old


class Recorded:
    """A program that is called as the function was from which it came."""

    def __init__(self, program: Any, form: dict, classes: Iterable[Callable] = ()) -> None:
        self.program, self.form, self.classes = program, form, list(classes)
        left, order = iter(self.classes), []
        make = [(name, _builder(a, left, order)) for name, a in zip(form["names"], form["args"])]
        make += [(k, _builder(a, left, order)) for k, a in form["kwargs"]]
        results: list[int] = []
        self._result = _builder(form["out"], left, results)
        if order != list(range(len(order))) or results != list(range(len(results))):
            raise ValueError("the tensors of a saved program are not in their order")
        self.counts = len(order), len(results)
        holes = [_Hole()] * len(order)
        self._wanted = [(name, _signature(f(holes), [], ""), f) for name, f in make]
        # With nothing but tensors by position.
        self._plain = len(make) if not form["kwargs"] and all("tensor" in a for a in form["args"]) else -1
        self.shown_by: Any = None  # of the modules that show its state, the one that did last

    @classmethod
    def record(cls, function: Callable, args: tuple, kwargs: dict, *, what: str, kind: str, state: Any = None,
               dynamic: Callable[[dict, list], tuple[list, list]] | None = None, no_gradients: bool = False,
               whole: list[str] | None = None, **more: Any) -> "Recorded":
        """Runs the function on copies of the arguments. `dynamic` gives, for the form of the arguments and their tensors,
        dimensions that are dynamic, (name, tensor, dimension, least, most), and dimensions that may be, (tensor, dimension);
        `no_gradients`: it runs, and so will the program, under no_grad(); `whole`: operators that stay whole, where others are to be
        what they are composed of; `more` is kept with the program."""
        tensors: list = []
        classes: list[Callable] = []
        names = _parameter_names(function, args, kwargs)
        form = {"args": [_encode(a, tensors, what, classes) for a in args],
                "kwargs": [[k, _encode(v, tensors, what, classes)] for k, v in kwargs.items()], "names": names, "kind": kind, **more}
        input_names = [n for a, name in zip(form["args"], names) for n in _names(a, name)]
        input_names += [n for k, v in form["kwargs"] for n in _names(v, k)]
        owner = _owner(function)
        stopped: list[BaseException] = []
        result_classes: list[Callable] = []

        def run(given: list) -> list:
            if stopped:
                raise stopped[0]
            try:
                args, kwargs = _trees(form, classes, given)
                with no_grad() if no_gradients else contextlib.nullcontext():
                    result = function(*args, **kwargs)
                registered.write_back()
            except (KeyboardInterrupt, SystemExit) as e:  # not a reason to try other sizes
                stopped.append(e)
                raise
            found: list = []
            met: list[Callable] = []
            out = _encode(result, found, f"{what}, result", met)
            if "out" not in form:
                form["out"] = out
                result_classes[:] = met
            elif json.dumps(form["out"]) != json.dumps(out):  # as texts True is not 1
                raise RuntimeError(f"{what}: the structure of the result, or a number in it, depends on the sizes of the inputs")
            return found

        exact, maybe = dynamic(form, tensors) if dynamic else ([], [])

        def recording(given: list) -> Any:
            form.pop("out", None)
            held = state if state is not None else state_of(owner) if isinstance(owner, Module) else []
            return _C._SavedProgram.record(run, given, _apart(input_names, [s[0] for s in held]), exact, maybe, held, whole)

        def recording_of_any() -> Any:
            try:
                return recording(tensors)
            except _C.AutogradError:
                # Copies of inputs are leaves of the graph, which must not be written: these may be.
                if all(t.is_leaf for t in tensors):
                    raise
                return recording([t if t.is_leaf else t.detach() for t in tensors])

        registered = _Registered(owner)
        try:
            with inference_mode(False):  # the program may be run to get gradients
                program = recording_of_any()
                if registered.changed():  # tables that are made when they are first wanted are there now
                    again = _Registered(owner)
                    program = recording_of_any()
                    if name := again.changed():
                        raise NotImplementedError(f"{what}: the function puts another tensor in the place of '{name}' of its module, which "
                                                  "a program cannot do: write into it (copy_(), add_())")
        except BaseException:
            registered.restore()
            raise
        if stopped:
            raise stopped[0]
        program.set_metadata("python", json.dumps(form))
        return cls(program, form, classes + result_classes)

    def _arranged(self, args: tuple, kwargs: dict) -> list:
        """The arguments in the order of the recording's, however they are given."""
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
        return args + [kwargs[k] for k, _ in form["kwargs"]]

    def tensors_of(self, args: tuple, kwargs: dict) -> list:
        """The program's inputs; TypeError for arguments of another structure than those it was recorded with."""
        tensors: list = []
        for (name, wanted, make), given in zip(self._wanted, self._arranged(args, kwargs)):
            if _signature(given, tensors, "a program's argument") != wanted:
                met: list[Callable] = []
                leaves: list = []
                tree = _builder(_encode(given, leaves, "", met), iter(met), [])
                shown = [f([_Hole()] * n) for f, n in ((tree, len(leaves)), (make, self.counts[0]))]
                raise TypeError(f"argument '{name}' is another one than when the program was recorded: {shown[0]!r} in place of "
                                f"{shown[1]!r}")
        return tensors

    def arguments(self, tensors: list) -> tuple[tuple, dict]:
        """The arguments of which these are the tensors."""
        return _trees(self.form, self.classes, tensors)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == self._plain and not kwargs:
            for a in args:
                if not isinstance(a, Tensor):
                    break
            else:
                return self._result(self.program(args))
        return self._result(self.program(self.tensors_of(args, kwargs)))

    def run(self, tensors: list) -> Any:
        """The results for the program's inputs."""
        return self._result(self.program(tensors))

    def compare(self, function: Callable, args: tuple, kwargs: dict, tolerance: float) -> None:
        """Different unless program and function give the same, and leave the same in their arguments, from the same buffers and
        random numbers, in the caller's modes."""
        written = set(self.program.written())
        state = [(t, t.detach().clone()) for name, t, _, _ in self.program.state() if name in written]
        random = _C.default_generator.get_state()
        tensors: list = []
        classes: list[Callable] = []
        form = {"args": [_encode(a, tensors, "trace", classes) for a in args],
                "kwargs": [(k, _encode(v, tensors, "trace", classes)) for k, v in kwargs.items()]}
        results = []
        registered = _Registered(_owner(function))
        for run in (function, self):
            with no_grad():
                copies = [t.detach().clone().requires_grad_(t.requires_grad) for t in tensors]
            with enable_grad():
                copies = [c if t.is_leaf else c.clone() for c, t in zip(copies, tensors)]
            found: list = []
            args, kwargs = _trees(form, classes, copies)
            try:
                result = run(*args, **kwargs)
            except _C.AutogradError:
                if run is function:
                    raise
                with no_grad():  # what has no gradient, such as a custom function, may serve without
                    result = run(*args, **kwargs)
            registered.restore()
            out = _encode(result, found, "trace")
            results.append((json.dumps(out), found + copies))
            with no_grad():
                for t, before in state:
                    t.copy_(before)
            _C.default_generator.set_state(random)
        (wanted_form, all_wanted), (got_form, all_got) = results
        if wanted_form != got_form:
            raise Different("the structure of the program's result differs from that of the function's")
        with no_grad():
            for k, (wanted, got) in enumerate(zip(all_wanted, all_got)):
                if wanted.shape != got.shape or wanted.dtype != got.dtype or not _close(wanted, got, tolerance):
                    count = len(all_wanted) - len(tensors)
                    which = f"result {k}" if k < count else f"what is left in input {k - count}"
                    raise Different(f"{which} of the program differs from the function's: the function does not make the same calls "
                                    "each time, or for sizes of 1 and others")

    def clone(self) -> "Recorded":
        return Recorded(self.program.clone(), self.form, self.classes)

    def save(self, f: Any, extra: dict | None = None) -> None:
        if (name := _unwritten([self.form["args"], self.form["kwargs"]])) is not None:
            raise NotImplementedError(f"save: what a {name} among the arguments has besides its parts is nothing that JSON can say: "
                                      "utils._pytree.register_pytree_node(to_dumpable_context=) says it")
        files = {name: base64.b64encode(content.encode() if isinstance(content, str) else bytes(content)).decode()
                 for name, content in (extra or {}).items()}
        if files or "files" in self.program.metadata():  # of an earlier save() none are left
            self.program.set_metadata("files", json.dumps(files) if files else "")
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
        try:
            files = json.loads(metadata.get("files") or "{}")
            for name in extra or {}:
                extra[name] = base64.b64decode(files.get(name, ""), validate=True)
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise OSError("load: the file says nothing sensible about the files that were saved with its program") from None
        return cls._read(metadata.get("python"), program)

    @classmethod
    def _read(cls, text: str | None, program: Any) -> "Recorded":
        """How a program that was loaded is called: one that Python did not save takes and gives its tensors one by one."""
        inputs, outputs = [i[0] for i in program.inputs()], program.output_count()
        if text is None:
            out = [{"tensor": k} for k in range(outputs)]
            return cls(program, {"args": [{"tensor": k} for k in range(len(inputs))], "kwargs": [], "names": inputs, "kind": "program",
                                 "out": out[0] if outputs == 1 else {"tuple": out}})
        try:
            form = json.loads(text)
            texts = [form["kind"], *(form.get(k, "") for k in ("name", "place", "class")), *form["names"], *(k for k, _ in form["kwargs"])]
            if not all(type(x) is str for x in texts) or type(form["names"]) is not list or len(form["names"]) < len(form["args"]):
                raise ValueError
            made = cls(program, form)
            if made.counts != (len(inputs), outputs):
                raise ValueError
            return made
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, RuntimeError):
            raise OSError("load: the file says nothing sensible about the arguments of its program") from None


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


def _trees(form: dict, classes: Iterable[Callable], tensors: list) -> tuple[tuple, dict]:
    """The arguments of a form."""
    left, order = iter(classes), []
    args = tuple(_builder(a, left, order)(tensors) for a in form["args"])
    return args, {k: _builder(a, left, order)(tensors) for k, a in form["kwargs"]}


def every_dimension(tensors: list, least: int = 0) -> list[tuple[int, int]]:
    """(input, dimension) of all of at least this size."""
    return [(i, d) for i, t in enumerate(tensors) for d, n in enumerate(t.shape) if n >= least]


def addresses(dicts: list[dict]) -> tuple[int, ...]:
    """Which objects the dicts hold: quick, but whoever compares has to keep them, or an address may become another object's."""
    return tuple(map(id, itertools.chain.from_iterable(map(dict.values, dicts))))


class _Part(Module):
    """Where the parameters of a module inside of a program are."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("a module inside of a recorded program left its calls and parameters there and cannot be called: call "
                                  "the whole, or record this one, too")

    def _no_hook(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("a module inside of a recorded program is not called, so a hook would never run: register it before recording, "
                           "if it calls operators, or on the whole")

    register_forward_hook = register_forward_pre_hook = _no_hook
    register_full_backward_hook = register_full_backward_pre_hook = register_backward_hook = _no_hook

    def _get_name(self) -> str:
        return "Module"


class ProgramModule(Module):
    """A recorded program as a module: its parameters and buffers are the program's."""

    def __init__(self, recorded: Recorded) -> None:
        super().__init__()
        own = self.__dict__
        own["_program"] = recorded
        own["_mark"] = object()
        self.training = bool(recorded.form.get("training", False))
        made: dict[int, tuple] = {}
        first: dict[int, str] = {}  # tied tensors are set by their first names
        own["_places"], own["_parts"] = [], {}
        for name, tensor, kind, persistent in recorded.program.state():
            if kind == "constant":
                continue
            *path, last = name.split(".")
            place: Module = self
            for depth, part in enumerate(path):
                if part not in place._modules:
                    place._modules[part] = self._parts[tuple(path[: depth + 1])] = _Part()
                    place._modules[part].training = self.training
                place = place._modules[part]
            tied = first.setdefault(id(tensor), name)
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
            self._places.append((name, tied, place._buffers if kind == "buffer" else place._parameters, last))
        own["_dicts"] = [d for m in (self, *self._parts.values()) for d in (m._parameters, m._buffers, m._modules)]
        own["_kept"] = ()
        own["_seen"] = None

    @property
    def _recorded(self) -> Recorded:
        """The program, with the tensors that this module has now."""
        program = self._program
        if program.shown_by is not self._mark or addresses(self._dicts) != self._seen:
            self._hand_over()
        return program

    def _hand_over(self) -> None:
        """Gives the program what was assigned; RuntimeError for what it cannot use."""
        for path, part in self._parts.items():
            place: Any = self
            for name in path:
                place = None if place is None else place._modules.get(name)
            if place is not part:
                raise RuntimeError(f"Cannot re-assign modules in a recorded program, but '{'.'.join(path)}' was replaced or deleted: "
                                   "record it again")
        found: dict[str, Tensor] = {}
        for name, tied, tensors, last in self._places:
            tensor = tensors.get(last)
            if tensor is None:
                raise RuntimeError(f"the program needs '{name}', which was taken from its module: record it again")
            if found.setdefault(tied, tensor) is not tensor:
                raise RuntimeError(f"'{tied}' and '{name}' were one tensor when the program was recorded, and are two now: assign one "
                                   "tensor to both, or record it again")
        program = self._program.program
        for name, old, _, _ in program.state():
            new = found.pop(name, old)
            if new is old:
                continue
            if (new.dtype, new.shape, new.device) != (old.dtype, old.shape, old.device):
                shown = [f"{str(t.dtype).rpartition('.')[2]}{list(t.shape)} on {t.device}" for t in (new, old)]
                raise RuntimeError(f"'{name}' was replaced by a tensor that does not fit the program, {shown[0]} in place of {shown[1]}: "
                                   "record it again")
            program.set_state(name, new)
        own = self.__dict__
        own["_kept"], own["_seen"] = [list(d.values()) for d in self._dicts], addresses(self._dicts)
        self._program.shown_by = self._mark

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
        twin = type(self)(self._recorded.clone())
        for (_, _, tensors, last), (_, _, copies, _) in zip(self._places, twin._places):
            copies[last] = copy.deepcopy(tensors[last], memo)  # with its gradient, and tied to what is copied beside it
        return twin

    def __reduce_ex__(self, protocol: Any) -> Any:
        file = io.BytesIO()
        self._recorded.save(file)
        return _unpickle, (type(self), file.getvalue())

    def extra_repr(self) -> str:
        return f"{len(self._recorded.program.operators())} operators"


def _unpickle(cls: type, data: bytes) -> Any:
    return cls(Recorded.load(io.BytesIO(data)))
