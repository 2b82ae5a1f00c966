"""Cases of PyTorch's own module tests for both libraries: every entry of common_modules.module_db, and the module, functional and
criterion tests of common_nn, with arete in torch's place for ours. module_db.py drives them."""
from __future__ import annotations

import functools
import itertools
import types

import torch
from op_db import DTYPES, to_arete, to_torch

import arete
import arete.nn.functional

with torch.backends.__allow_nonbracketed_mutation():
    from torch.testing._internal import common_modules, common_nn

# ---- PyTorch's definitions with our names in place of torch's


class Names:
    """Stands for the module torch in a definition that is evaluated with arete. Random numbers are torch's, so that both libraries get
    the same ones after the same seed."""

    _drawn = ("rand", "randn", "randperm", "randint", "rand_like", "randn_like", "make_tensor")

    def __init__(self, device):
        self._device = device

    def __getattr__(self, name):
        if name == "double":
            return arete.float64
        if name not in self._drawn:
            return getattr(arete, name)
        function = torch.testing.make_tensor if name == "make_tensor" else getattr(torch, name)

        def draw(*args, **kwargs):
            args, kwargs = back(args), back(kwargs)
            if "device" in kwargs:
                kwargs["device"] = "cpu"
            return to_arete(function(*args, **kwargs), self._device)

        return draw


def back(x):
    """Arguments of a call of ours as torch takes them."""
    if isinstance(x, arete.dtype):
        return next(k for k, v in DTYPES.items() if v is x)
    if isinstance(x, arete.Tensor):
        return to_torch(x)
    if isinstance(x, (tuple, list)):
        return type(x)(map(back, x)) if type(x) in (tuple, list) else tuple(map(back, x))
    return {k: back(v) for k, v in x.items()} if isinstance(x, dict) else x


class drawing_as_torch:
    """Inside, tensors of ours are filled with torch's random numbers."""

    names = ("uniform_", "normal_", "random_", "bernoulli_")

    def __enter__(self):
        self.own = {n: arete.Tensor.__dict__[n] for n in self.names}
        for name in self.names:

            def fill(tensor, *args, _name=name, **kwargs):
                drawn = getattr(torch.empty(tuple(tensor.shape), dtype=back(tensor.dtype)), _name)(*args, **kwargs)
                return tensor.detach().copy_(to_arete(drawn, tensor.device))

            setattr(arete.Tensor, name, fill)

    def __exit__(self, *error):
        for name, method in self.own.items():
            setattr(arete.Tensor, name, method)


def rebound(function, scope):
    """The same function over other globals; functions among its defaults and what it closes over, too."""

    def one(value):
        if isinstance(value, types.FunctionType) and value.__module__ in scope["__rebound__"]:
            return rebound(value, scope)
        return value

    cells = function.__closure__ and tuple(types.CellType(one(c.cell_contents)) for c in function.__closure__)
    new = types.FunctionType(function.__code__, scope, function.__name__, function.__defaults__ and
                             tuple(map(one, function.__defaults__)), cells)
    new.__kwdefaults__ = function.__kwdefaults__
    new.__module__ = function.__module__
    return new


def translated(module, device):
    """The globals of one of torch's test modules with arete in torch's place."""
    scope = dict(vars(module))
    scope["__rebound__"] = (module.__name__,)
    names = Names(device)
    scope.update(torch=names, nn=arete.nn, F=arete.nn.functional, make_tensor=names.make_tensor, Tensor=arete.Tensor,
                 Variable=arete.autograd.Variable, pack_padded_sequence=arete.nn.utils.rnn.pack_padded_sequence)
    for name, value in vars(module).items():
        if isinstance(value, types.FunctionType) and value.__module__ == module.__name__:
            scope[name] = rebound(value, scope)
    return scope


# ---- cases


class Case:
    """A module (or a function wrapped as one) and arguments of a call, of either library."""

    def __init__(self, name, build, inputs, kwargs=None, dtype=torch.float32, training=True, constructor=None):
        self.name, self.dtype, self.training = name, dtype, training
        self.build = build  # by library: makes the module
        self.inputs, self.kwargs = inputs, kwargs or {}  # torch's
        self.constructor = constructor  # (class name, args, kwargs by library), of modules that torch names

    def module(self, ours):
        """A new one, in this case's dtype and mode."""
        torch.manual_seed(0)
        m = self.build(ours)
        if any(True for _ in m.parameters()) or any(True for _ in m.buffers()):
            m = m.to(DTYPES[self.dtype]) if ours else m.to(self.dtype)
        return m.train(self.training)

    def arguments(self, ours, device="cpu", dtype=None):
        """New leaves of the call's values."""

        def one(x):
            if isinstance(x, torch.Tensor):
                t = x.detach()
                t = t.clone(memory_format=torch.preserve_format) if 0 not in t.stride() else t
                return t.requires_grad_(x.requires_grad)
            if isinstance(x, torch.nn.utils.rnn.PackedSequence):
                return type(x)(*map(one, x))
            if type(x) in (tuple, list):
                return type(x)(map(one, x))
            return {k: one(v) for k, v in x.items()} if isinstance(x, dict) else x

        args, kwargs = one(self.inputs), one(self.kwargs)
        return (convert(args, device), convert(kwargs, device)) if ours else (args, kwargs)

    def pair(self, device):
        """Both modules with the same state."""
        theirs, ours = self.module(False), self.module(True).to(device)
        if is_lazy(theirs):
            args, kwargs = self.arguments(False)
            with torch.no_grad():
                theirs(*args, **kwargs)
            args, kwargs = self.arguments(True, device)
            with arete.no_grad():
                ours(*args, **kwargs)
        copy_state(theirs, ours, device)
        return theirs, ours


def is_lazy(module):
    return isinstance(module, torch.nn.modules.lazy.LazyModuleMixin)


def convert(x, device):
    if isinstance(x, torch.nn.utils.rnn.PackedSequence):
        return arete.nn.utils.rnn.PackedSequence(*(convert(v, device if i != 1 else "cpu") for i, v in enumerate(x)))
    if type(x) in (tuple, list):
        return type(x)(convert(e, device) for e in x)
    if isinstance(x, dict):
        return {k: convert(v, device) for k, v in x.items()}
    return to_arete(x, device)


def copy_state(theirs, ours, device):
    state = {k: to_arete(v, device) if isinstance(v, torch.Tensor) else v for k, v in theirs.state_dict().items()}
    ours.load_state_dict(state)


def module_db_cases(dtypes, device):
    """Those of common_modules.module_db."""
    scope = translated(common_modules, device)
    for info in common_modules.module_db:
        name = info.module_cls.__name__
        if info.module_cls.__module__.startswith("torch.ao"):
            continue
        for dtype, training in itertools.product(dtypes, (True, False) if info.train_and_eval_differ else (True,)):
            if dtype not in info.supported_dtypes("cpu"):
                continue
            found = []
            for ours in (False, True):
                torch.manual_seed(1)
                function = info.module_inputs_func
                if ours:
                    function = functools.partial(rebound(function.func, scope), *function.args, **function.keywords) if isinstance(
                        function, functools.partial) else rebound(function, scope)
                own = types.SimpleNamespace(**{**vars(info), "module_cls": getattr(arete.nn, name)}) if ours else info
                with drawing_as_torch():
                    found.append(function(own, device=device if ours else "cpu", dtype=DTYPES[dtype] if ours else dtype,
                                          requires_grad=True, training=training))
            for i, (a, b) in enumerate(zip(*found)):
                inputs = (b.constructor_input, a.constructor_input)

                def build(ours, name=name, inputs=inputs):
                    made = inputs[not ours]
                    return getattr(arete.nn if ours else torch.nn, name)(*made.args, **made.kwargs)

                title = f"{name}/{i}{' ' + a.desc if a.desc else ''}{'' if training else ' eval'}"
                given = a.forward_input
                yield Case(title, build, given.args, given.kwargs, dtype, training,
                           (name, [(c.args, c.kwargs) for c in inputs[::-1]]))


def value(test, name):
    """An argument of a test of common_nn, as TestBase finds it."""

    def of_sizes(sizes):
        if isinstance(sizes, list):
            return [of_sizes(s) for s in sizes]
        return sizes.double() if isinstance(sizes, torch.Tensor) else torch.randn(sizes)

    if name in test:
        return test[name]
    if name + "_fn" in test:
        return test[name + "_fn"]()
    return of_sizes(test[name + "_size"]) if name + "_size" in test else None


def with_gradient(x):
    if isinstance(x, torch.Tensor):
        return x.detach().requires_grad_() if x.is_floating_point() or x.is_complex() else x
    return type(x)(map(with_gradient, x)) if isinstance(x, (tuple, list)) else x


class default_dtype:
    def __init__(self, dtype):
        self.dtype = dtype

    def __enter__(self):
        self.old = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)
        arete.set_default_dtype(DTYPES[self.dtype])

    def __exit__(self, *error):
        torch.set_default_dtype(self.old)
        arete.set_default_dtype(DTYPES[self.old])


def common_nn_cases(device):
    """Those of common_nn: module_tests, get_new_module_tests() and criterion_tests."""
    scope = translated(common_nn, device)
    torch.manual_seed(0)
    with drawing_as_torch():
        new = [common_nn.get_new_module_tests(), scope["get_new_module_tests"]()]
    sources = [("module", common_nn.module_tests, common_nn.module_tests), ("new", *new),
               ("criterion", common_nn.criterion_tests, common_nn.criterion_tests)]
    for source, theirs, ours in sources:
        for i, (test, own) in enumerate(zip(theirs, ours)):
            name = test.get("fullname") or test["module_name"] + ("_" + test["desc"] if "desc" in test else "")
            dtype = test.get("default_dtype") or torch.float32
            with default_dtype(dtype):
                torch.manual_seed(i)
                inputs = value(test, "input")
                inputs = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
                inputs = with_gradient(inputs)
                target = value(test, "target")
                if target is not None:
                    inputs += tuple(target) if isinstance(target, (tuple, list)) else (target,)
                args = value(test, "constructor_args") or ()

            def build(ours, test=test, own=own, args=args, dtype=dtype):
                with default_dtype(dtype):
                    if "constructor" not in test:
                        return getattr(arete.nn if ours else torch.nn, test["module_name"])(*(convert(args, device) if ours else args))
                    if not ours:
                        return test["constructor"](*args)
                    constructor = own["constructor"]
                    if isinstance(constructor, types.FunctionType) and constructor.__globals__ is vars(common_nn):
                        constructor = rebound(constructor, scope)
                    return constructor(*convert(args, device))

            yield Case(f"{source}:{name}", build, inputs, dtype=dtype,
                       constructor=(test["module_name"], [(args, {}), (args, {})]) if "module_name" in test else None)
