"""What the breadth benchmark measures: every public callable of both libraries, and samples of its arguments.

Callables come from the public namespaces and from the operator records, samples from PyTorch's databases of operators
and modules and from the records' own. There is no list of operators: what has no sample is reported as not measured,
with the reason."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import inspect
import itertools
import operator
import re
import sys
import types
import unittest
import warnings

import breadth_typical
import torch
from breadth_scale import Template, form_of, mapped, tensors_in

import arete
from arete import _C
from arete._operators import _schemas

NAMESPACES = {
    "torch": "",
    "nn.functional": "nn.functional",
    "linalg": "linalg",
    "fft": "fft",
    "special": "special",
    "signal.windows": "signal.windows",
    "Tensor": "Tensor",
}
MOST_SAMPLES = 80  # of one entry of a database that are looked at
LIKED = 1000  # elements of the best samples
MOST_FORMS = 6  # of one callable that are measured

DTYPES = {
    getattr(torch, name): getattr(arete, name)
    for name in "float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 bool complex64 complex128".split()
}


@functools.cache
def databases():
    """PyTorch's op_db, module_db and common_nn. They ask for expecttest, which only their own tests use."""
    try:
        importlib.import_module("expecttest")
    except ImportError:
        sys.modules["expecttest"] = types.ModuleType("expecttest")
        sys.modules["expecttest"].TestCase = unittest.TestCase
    place = "torch.testing._internal."
    return (
        importlib.import_module(place + "common_methods_invocations").op_db,
        importlib.import_module(place + "common_modules").module_db,
        importlib.import_module(place + "common_nn"),
    )


# ---- values of PyTorch's as Arete's and back


def to_arete(x):
    """The same value for Arete; tensors share their memory."""

    def leaf(v, *_):
        if isinstance(v, torch.Tensor):
            return arete.from_dlpack(v.detach().resolve_conj().resolve_neg())
        if isinstance(v, torch.dtype):
            return DTYPES[v]
        if isinstance(v, torch.device):
            return arete.device(str(v))
        if isinstance(v, (torch.memory_format, torch.layout)):
            return getattr(arete, str(v).split(".")[1])
        return v

    return mapped(x, leaf)


def to_torch(x):
    """Arete's tensors as PyTorch's, sparse ones dense."""

    def leaf(v, *_):
        if not isinstance(v, arete.Tensor):
            return v
        return torch.from_dlpack((v if v.layout is arete.strided else v.to_dense()).detach())

    return mapped(x, leaf)


def resolved(library, path):
    return functools.reduce(getattr, path.split("."), library)


# ---- callables


class Subject:
    """A public callable under the path that it has in both libraries."""

    def __init__(self, path, kind):
        self.path, self.kind = path, kind  # "function", "method", "module" or "optimizer"
        self.name = path if "." in path else "torch." + path
        self.base = path.rpartition(".")[2]
        self.bare = _bare(self.base)
        writes = self.base.endswith("_") and not self.base.startswith("__")
        assigns = re.fullmatch("__(setitem|i(?!nvert)[a-z]+)__", self.base)
        self.in_place = kind in ("function", "method") and bool(writes or assigns)

    def bind(self, library, args, kwargs, state=None):
        """(call, leaves, state): a function without arguments that computes, the tensors that may get gradients, and
        the state of a layer as PyTorch has it, which a second binding takes.

        A function that writes to its first argument gets a copy of it each time, so that calls see the same values."""
        if self.kind == "module":
            return self._bind_module(library, *args, state)
        if self.kind == "optimizer":
            return self._bind_optimizer(library, *args)
        leaves = [t for t in tensors_in((args, kwargs)) if is_real(t)]
        function = getattr(library.Tensor, self.base) if self.kind == "method" else resolved(library, self.path)
        if not self.in_place:
            return (lambda: function(*args, **kwargs)), leaves, None
        written, *rest = args

        def call():
            target = written.clone()
            result = function(target, *rest, **kwargs)
            return target if result is None else result

        return call, leaves, None

    def _bind_module(self, library, options, inputs, named, state):
        """The layer in the dtype and on the device of its inputs."""
        torch.manual_seed(0)
        options = dict(options)
        given = options.pop("", ())
        module = resolved(library, self.path)(*given, **options)
        like = next((t for t in tensors_in((inputs, named)) if is_real(t)), next(tensors_in((inputs, named)), None))
        if like is not None:
            module = module.to(device=like.device, dtype=like.dtype if is_real(like) else None)
        if self.base.startswith("Lazy"):  # has its parameters once it has seen an input
            module(*inputs, **named)
        if state is not None:
            module.load_state_dict(to_arete(state) if library is arete else state)
        elif library is torch:
            state = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in module.state_dict().items()}
        return (
            (lambda: module(*inputs, **named)),
            [*filter(is_real, tensors_in((inputs, named))), *module.parameters()],
            state,
        )

    def _bind_optimizer(self, library, parameters, gradients):
        parameters = [p.clone().requires_grad_() for p in parameters]
        for p, g in zip(parameters, gradients):
            p.grad = g.clone()
        optimizer = resolved(library, self.path)(parameters)
        loss = library.zeros((), device=parameters[0].device)
        needs_closure = inspect.signature(optimizer.step).parameters["closure"].default is inspect.Parameter.empty

        def call():
            optimizer.step(lambda: loss) if needs_closure else optimizer.step()
            return [p.detach() for p in parameters]

        return call, [], None


def _bare(name):
    """The name of what a method computes: "add" for add, add_, __add__ and __iadd__; "getitem" for assignments, too."""
    if not name.startswith("__"):
        return name.removesuffix("_")
    inner = name.strip("_")
    if inner[0] == "i" and hasattr(torch.Tensor, f"__{inner[1:]}__"):
        return inner[1:]
    return "getitem" if inner == "setitem" else inner


def is_real(t):
    return t.is_floating_point()


def subjects():
    """Every callable that both libraries have, and why others are not among them: ({name: Subject}, {name: reason})."""
    found, missing = {}, {}
    signs = {n for n, f in vars(operator).items() if n.startswith("__") and isinstance(f, types.BuiltinFunctionType)}
    signs &= set(dir(torch.Tensor))  # __add__, __getitem__, ...
    signs |= {op.name for op in databases()[0] if op.name.startswith("__")}  # __radd__, ...
    for place in NAMESPACES.values():
        theirs, ours = (resolved(library, place) if place else library for library in (torch, arete))
        names = {n for space in (theirs, ours) for n in dir(space) if not n.startswith("_") and _computes(space, n)}
        if place == "Tensor":
            names |= signs
        for n in sorted(names):
            subject = Subject(f"{place}.{n}" if place else n, "method" if place == "Tensor" else "function")
            _sort_in(subject, hasattr(theirs, n), hasattr(ours, n), found, missing)
    for place, kind, base in (("nn", "module", torch.nn.Module), ("optim", "optimizer", torch.optim.Optimizer)):
        theirs, ours = resolved(torch, place), resolved(arete, place)
        for n, c in vars(theirs).items():
            if isinstance(c, type) and issubclass(c, base) and c is not base:
                _sort_in(Subject(f"{place}.{n}", kind), True, hasattr(ours, n), found, missing)
    return found, missing


def _computes(space, name):
    value = getattr(space, name)
    return callable(value) and not isinstance(value, type)


def _sort_in(subject, theirs, ours, found, missing):
    if theirs and ours:
        found[subject.name] = subject
    else:
        missing[subject.name] = "PyTorch has none" if ours else "Arete has none"


def records_of(subject):
    """(record, signature) of each overload of an operator that is made from records."""
    try:
        return list(getattr(resolved(arete, subject.path), "_records", None) or ())
    except AttributeError:
        return []


def internal_records():
    """Records that have no public name of their own: parts of other operators."""
    return [n for n in _C._record_names() if _C._record(n)["surface"] == "internal"]


def is_second_name(subject, known):
    """Whether it is another name of what another subject measures: a method of a function, an alias."""
    if subject.kind != "method" and not subject.path.startswith("special."):
        return False
    return f"torch.{subject.bare}" in known or f"nn.functional.{subject.bare}" in known


# ---- samples


def templates(subject, most=MOST_FORMS):
    """Calls that PyTorch takes, one for each form, and a reason where there are none."""
    source = {"module": _module_samples, "optimizer": _optimizer_samples}.get(subject.kind, _function_samples)
    forms = {}
    for args, kwargs in source(subject):
        form = form_of(args, kwargs)
        worth = _worth(args, kwargs)
        if form not in forms or worth > forms[form][0]:
            forms[form] = worth, args, kwargs
    ranked = sorted(forms, key=lambda form: (-forms[form][0][0][0], len(form)))  # of several axes, and simple
    found, refused = _accepted(subject, [forms[form][1:] for form in ranked], most)
    if not found:
        found, _ = _accepted(subject, _typical_samples(subject), 1)
        refused = refused or "there is no sample of it, nor any kind of arguments that PyTorch takes"
    if found and not any(t.computes for t in found):
        return [], "no tensors go in or come out"
    return found, None if found else refused


def _accepted(subject, samples, most):
    """Templates of the samples that PyTorch takes, those with a dim to choose first, and why it refused the last."""
    names = argument_names(subject)
    made = [Template(*sample, names, form_of(*sample)) for sample in samples]
    found, refused = [], None
    for template in sorted(made, key=lambda t: not t.has_dim()):
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            if template.find_plan(functools.partial(run, subject)):
                found.extend([template] if found else _along_dims(subject, template))
            else:
                refused = f"PyTorch refuses its samples with other values: {template.refusal}"
        if len(found) >= most:
            break
    return found, refused


def _typical_samples(subject):
    """By kind of signature; not of functions that change settings."""
    if subject.kind == "module":
        return [(sample, {}) for sample in breadth_typical.of_layer(resolved(torch, subject.path))]
    if subject.kind == "optimizer" or re.match("set_|use_|manual_|autocast_|save|load|share_", subject.base):
        return []
    return list(breadth_typical.of_function(resolved(torch, subject.path)))


def run(subject, args, kwargs):
    """PyTorch's results."""
    results = subject.bind(torch, args, kwargs)[0]()
    if results is NotImplemented:
        raise TypeError("not implemented for these arguments")
    return results


def _worth(args, kwargs):
    """How good a sample is for measuring: of several axes, and large."""
    shapes, numbers = [t.shape for t in tensors_in((args, kwargs)) if t.numel()], [0]
    mapped((args, kwargs), lambda x, *_: numbers.append(x) if type(x) is int else None)
    best = max(((min(sum(n > 1 for n in s), 4), -abs(s.numel() - LIKED)) for s in shapes), default=(0, -LIKED))
    return best, max(numbers)


def argument_names(subject):
    """Names of the positional arguments, as far as they are known; those of an inner call have none."""
    if subject.kind in ("module", "optimizer"):
        return []
    for _, signature in records_of(subject):
        return [n for n, _, by_keyword in _schemas.arguments(signature) if not by_keyword]
    try:
        return list(inspect.signature(resolved(torch, subject.path)).parameters)
    except (ValueError, TypeError):
        return []


def _along_dims(subject, template):
    """The template; or, if it has a dim to choose, one for each of the first, a middle, the last and all."""
    if not template.has_dim():
        return [template]
    inner = next(tensors_in(template.args)).shape[1:-1]
    dims = {"first": 0, "last": -1, "all": None}
    if max(inner, default=1) > 1:
        dims["middle"] = 1 + inner.index(max(inner))
    made = [template.with_dim(text, dim) for text, dim in dims.items()]
    return [t for t in made if t.find_plan(functools.partial(run, subject))] or [template]


def _plain(x):
    """Whether a sample is made of what both libraries have."""
    good = True

    def leaf(v, *_):
        nonlocal good
        if isinstance(v, torch.Tensor):
            good &= v.layout is torch.strided and v.dtype in DTYPES and not v.is_quantized and not v.is_meta
        else:
            good &= (
                not isinstance(v, (torch.Generator, torch.nn.Module))
                and (not callable(v) or isinstance(v, torch.dtype))
                and not (isinstance(v, torch.layout) and v is not torch.strided)
            )

    mapped(x, leaf)
    return good


def _function_samples(subject):
    """Those of op_db under its path, and of the records; then of what has the same last name."""
    wanted = {subject.bare, f"__{subject.bare}__"}
    entries = [
        op
        for op in databases()[0]
        if op.name.rpartition(".")[2] in wanted or not wanted.isdisjoint(a.name.rpartition(".")[2] for a in op.aliases)
    ]
    exact = [op for op in entries if op.name == subject.path or subject.kind == "method" and op.name in wanted]
    found = False
    for args, kwargs in itertools.chain.from_iterable(map(_entry_samples, exact)):
        found = True
        yield (*args, 1.5) if subject.base == "__setitem__" else args, kwargs
    for record, _ in records_of(subject):
        for sample in _record_samples(record):
            found = True
            yield sample
    if not found:
        yield from itertools.chain.from_iterable(map(_entry_samples, entries))
        for record in _C._record_names():
            if record.partition(".")[0] == subject.bare:
                yield from _record_samples(record)


def _entry_samples(op):
    """Arguments of the samples of an entry of op_db."""
    dtypes = op.supported_dtypes("cpu")
    dtype = next((t for t in (torch.float32, torch.int64, torch.bool, torch.complex64) if t in dtypes), None)
    if dtype is None:
        return
    torch.manual_seed(0)
    found = 0
    with contextlib.suppress(ImportError):  # some samples need packages that are not there
        for sample in op.sample_inputs("cpu", dtype):
            args = (sample.input, *sample.args)
            if _plain((args, sample.kwargs)) and all(t.numel() for t in tensors_in((args, sample.kwargs))):
                yield args, dict(sample.kwargs)
                found += 1
            if found == MOST_SAMPLES:
                return


def _record_samples(record):
    """Arguments of a record's samples as PyTorch takes them: what is left at its default is left out."""
    schema = _schemas.arguments(_schemas.signature_of(record))
    for values in _C._record_samples(record):
        args, kwargs, complete = [], {}, True
        for (name, default, by_keyword), value in zip(schema, to_torch(values)):
            if name == "device" or default and _is_default(value, default):
                complete = False
            elif by_keyword or not complete:
                kwargs[name] = value
            else:
                args.append(value)
        if _plain((args, kwargs)) and not any(isinstance(v, arete.dtype) for v in kwargs.values()):
            yield tuple(args), kwargs


def _is_default(value, text):
    if value is None:
        return text == "None"
    try:
        return not isinstance(value, torch.Tensor) and value == ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return False


def _module_samples(subject):
    """Arguments of constructors and of forward() from module_db and common_nn, which have no recurrent layers with a
    batch."""
    cls = resolved(torch, subject.path)
    if issubclass(cls, torch.nn.RNNBase):
        yield from _typical_samples(subject)
        return
    for info in databases()[1]:
        if info.module_cls is cls:
            torch.manual_seed(0)
            for sample in info.module_inputs_func(
                info, device="cpu", dtype=torch.float32, requires_grad=False, training=True
            ):
                made, given = sample.constructor_input, sample.forward_input
                if given is not None and _plain((made.args, made.kwargs, given.args, given.kwargs)):
                    yield (_by_name(cls, made.args, made.kwargs), tuple(given.args), dict(given.kwargs)), {}
    common = databases()[2]
    for test in [*common.module_tests, *common.get_new_module_tests(), *common.criterion_tests]:
        if test.get("module_name") == subject.base and "constructor" not in test:
            inputs = [_described(test, name) for name in ("input", "target")]
            given = tuple(t for x in inputs if x is not None for t in (x if isinstance(x, (tuple, list)) else [x]))
            made = tuple(_described(test, "constructor_args") or ())
            if given and _plain((made, given)):
                yield (_by_name(cls, made, {}), given, {}), {}


def _by_name(cls, args, kwargs):
    """The arguments of a constructor with their names, which say what integers are."""
    parameters = inspect.signature(cls).parameters.items()
    names = [n for n, p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    return {"": args, **kwargs} if len(names) < len(args) else {**dict(zip(names, args)), **kwargs}


def _described(test, name):
    """An argument of a test of common_nn, in float32."""
    value = test.get(name)
    if value is None:
        value = test[name + "_fn"]() if name + "_fn" in test else None
    if value is None and name + "_size" in test:
        value = _of_sizes(test[name + "_size"])
    return mapped(value, lambda t, *_: t.float() if isinstance(t, torch.Tensor) and t.dtype == torch.float64 else t)


def _of_sizes(sizes):
    return [_of_sizes(s) for s in sizes] if isinstance(sizes, list) else torch.randn(sizes)


def _optimizer_samples(subject):
    """A few parameters, and many small ones, with gradients."""
    torch.manual_seed(0)
    for count in (4, 64):
        shapes = [(4, 8)] * count
        yield ([torch.randn(s) for s in shapes], [torch.randn(s) for s in shapes]), {}
