"""Drives PyTorch's own module tests against arete: every entry of common_modules.module_db, and the module, functional and
criterion tests of common_nn, under both libraries.

    python module_db.py [--device cuda] [--dtype float32,float64] [--filter REGEX] [--check NAME] [--verbose]

What is compared is what CHECKS lists. Prints the differences, those that are meant among them marked as such (DELIBERATE), and a
line of totals; fails where there is another difference, or one that is meant and is there no longer. Needs torch, whose results on
the CPU are the reference."""
from __future__ import annotations

import argparse
import copy
import functools
import inspect
import itertools
import pickle
import re
import sys
import warnings

import torch
from module_db_cases import back, common_nn_cases, is_lazy, module_db_cases
from op_db_compare import DTYPES, Unsupported, compare, in_float64, tensors_in, to_arete, to_torch

import arete
import arete.nn.functional

warnings.filterwarnings("ignore")

# ---- checks: each raises AssertionError with what differs


def shapes_only(x):
    if isinstance(x, torch.Tensor):
        return torch.zeros(x.shape, dtype=x.dtype)
    return [shapes_only(e) for e in x] if isinstance(x, (tuple, list)) else x


def call(module, args, kwargs):
    try:
        return module(*args, **kwargs)
    except (RuntimeError, ValueError, IndexError) as e:
        if isinstance(module, torch.nn.Module) and not expecting_errors:
            raise Unsupported(f"torch: {first_line(e)}") from None
        raise


expecting_errors = []  # not empty where torch may refuse


def is_random(case):
    """Whether a call draws numbers: then only shapes and dtypes can agree."""
    seen = []
    for seed in (1, 2):
        module = case.module(False)
        args, kwargs = case.arguments(False)
        if is_lazy(module):
            call(module, args, kwargs)
        if seen:
            module.load_state_dict(state)
        state = copy.deepcopy(module.state_dict())
        torch.manual_seed(seed)
        with torch.no_grad():
            seen.append([t for t in tensors_in(flat(call(module, args, kwargs)))])
    return any(not torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(*seen))


def flat(x):
    """Results as lists of tensors; packed sequences too."""
    if isinstance(x, (torch.nn.utils.rnn.PackedSequence, arete.nn.utils.rnn.PackedSequence)):
        return [t for t in x if t is not None]
    return [flat(e) for e in x] if isinstance(x, (tuple, list)) else x


def results(case, modules, device, random, **options):
    """The outputs of both, compared, and their leaves."""
    found = []
    for ours, module in zip((False, True), modules):
        args, kwargs = case.arguments(ours, device)
        found.append((flat(call(module, args, kwargs)), [t for t in tensors_in((flat(list(args)), kwargs)) if t.requires_grad]))
    (y, leaves), (x, own) = found
    x_, y_ = to_torch(x), y
    if random:
        x_, y_ = shapes_only(x_), shapes_only(y_)
    compare(x_, y_, "result", lambda: precise(case, modules[0])[0])
    return (y, leaves), (x, own)


def precise(case, module):
    """torch's outputs and leaves in float64."""
    module = copy.deepcopy(module).double()
    args, kwargs = case.arguments(False)
    args, kwargs = in_float64(args), in_float64(kwargs)
    return flat(call(module, args, kwargs)), [t for t in tensors_in((flat(list(args)), kwargs)) if t.requires_grad], module


def weights_of(outputs):
    return [torch.linspace(0.5, 1.5, o.numel(), dtype=torch.float64).to(o.dtype).reshape(o.shape) for o in outputs]


def differentiable(x):
    return [t for t in tensors_in(x) if t.requires_grad]


def gradients(lib, outputs, leaves, create_graph=False, device=None):
    weights = weights_of(outputs) if lib is torch else [to_arete(w, device) for w in weights_of([torch.empty(
        tuple(o.shape), dtype=back(o.dtype)) for o in outputs])]
    try:
        return lib.autograd.grad(outputs, leaves, weights, allow_unused=True, create_graph=create_graph)
    except RuntimeError as e:
        if lib is torch:
            raise Unsupported(f"torch: {first_line(e)}") from None
        raise


def compare_gradients(found, expected, what, exact):
    for i, (a, b) in enumerate(zip(found, expected)):
        if b is None or a is None:  # a gradient that is zero everywhere may be missing
            given = a if b is None else b
            if given is not None and bool((given != 0).any()):
                raise AssertionError(f"{what} {i}: {'missing' if a is None else 'unexpected'}")
            continue
        compare(to_torch(a), b.detach(), f"{what} {i}", lambda i=i: exact()[i])


def check_text(case, device):
    theirs, ours = case.pair(device)
    if "FunctionalModule" not in repr(theirs) and repr(ours) != repr(theirs):
        raise AssertionError(f"{ours!r} instead of {theirs!r}")


def facts_of(module):
    kinds = [("parameter", module.named_parameters()), ("buffer", module.named_buffers())]
    return [(kind, name, tuple(t.shape), str(t.dtype).split(".")[-1], t.requires_grad, tuple(t.stride())) for kind, all_ in kinds
            for name, t in all_] + [("state", *k) for k in ((n, tuple(v.shape) if hasattr(v, "shape") else v)
            for n, v in module.state_dict().items())] + [("module", n, type(m).__name__, m.training) for n, m in module.named_modules()]


def check_state(case, device):
    theirs, ours = case.pair(device)
    a, b = facts_of(ours), facts_of(theirs)
    if a != b:
        raise AssertionError(f"{[x for x in a if x not in b]} instead of {[x for x in b if x not in a]}")


def plain(x):
    """A value of an attribute, where it can be compared."""
    if isinstance(x, (torch.Tensor, arete.Tensor)):
        return ("tensor", tuple(x.shape))
    if isinstance(x, (torch.dtype, arete.dtype, torch.device, arete.device)):
        return str(x).split(".")[-1]
    if isinstance(x, (tuple, list)):
        return type(x).__name__, tuple(map(plain, x))
    return x if isinstance(x, (int, float, str, bool, type(None))) else type(x).__name__


def check_attributes(case, device):
    theirs, ours = case.pair(device)
    for (name, a), b in zip(ours.named_modules(), theirs.modules()):
        for key, value in vars(b).items():
            if key.startswith("_") or callable(value):
                continue
            own = getattr(a, key, "missing")
            if plain(own) != plain(value):
                raise AssertionError(f"{name + '.' if name else ''}{key}: {plain(own)!r} instead of {plain(value)!r}")
        left = set(getattr(type(b), "__constants__", ())) - set(getattr(type(a), "__constants__", ()))
        if left:
            raise AssertionError(f"__constants__ lacks {sorted(left)}")


def check_result(case, device):
    modules = case.pair(device)
    results(case, modules, device, is_random(case))
    a, b = ({k: v for k, v in m.state_dict().items() if hasattr(v, "shape")} for m in modules[::-1])
    if not is_random(case):
        for (k, v), w in zip(a.items(), b.values()):
            compare(to_torch(v), w, f"state {k}")


def check_gradients(case, device):
    modules = case.pair(device)
    random = is_random(case)
    (y, leaves), (x, own) = results(case, modules, device, random)
    y, x = differentiable(y), differentiable(x)
    if len(x) != len(y):
        raise AssertionError(f"{len(x)} outputs with history instead of {len(y)}")
    leaves, own = leaves + list(modules[0].parameters()), own + list(modules[1].parameters())
    if not y or not leaves or random:
        return
    expected, found = gradients(torch, y, leaves), gradients(arete, x, own, device=device)

    def exact():
        out, inputs, module = precise(case, modules[0])
        return gradients(torch, differentiable(out), inputs + list(module.parameters()))

    compare_gradients(found, expected, "gradient", exact)


def check_second_gradients(case, device):
    modules = case.pair(device)
    if is_random(case):
        return
    (y, leaves), (x, own) = results(case, modules, device, False)
    y, x = differentiable(y), differentiable(x)
    leaves, own = leaves + list(modules[0].parameters()), own + list(modules[1].parameters())
    if not y or not leaves:
        return

    def second(lib, outputs, leaves, device=None):
        first = [g for g in gradients(lib, outputs, leaves, True, device) if g is not None and g.requires_grad]
        if not first:
            return [None] * len(leaves)
        return gradients(lib, first, leaves, device=device)

    expected = second(torch, y, leaves)
    found = second(arete, x, own, device)

    def exact():
        out, inputs, module = precise(case, modules[0])
        return second(torch, differentiable(out), inputs + list(module.parameters()))

    compare_gradients(found, expected, "second gradient", exact)


def strided(x):
    """The same values behind other strides (as ModuleTest.noncontiguize does)."""
    if isinstance(x, torch.Tensor):
        if x.dim() == 0 or not x.is_floating_point():
            return x
        dim = next((d + 1 for d in range(x.dim()) if x.size(d) > 1), x.dim())
        t = torch.stack([torch.empty_like(x), x], dim).select(dim, 1).detach()
        return t.requires_grad_(x.requires_grad)
    if type(x) in (tuple, list):
        return type(x)(map(strided, x))
    return {k: strided(v) for k, v in x.items()} if isinstance(x, dict) else x


def in_channels_last(x):
    if isinstance(x, torch.Tensor) and x.dim() in (4, 5):
        order = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
        return x.detach().contiguous(memory_format=order).requires_grad_(x.requires_grad)
    if type(x) in (tuple, list):
        return type(x)(map(in_channels_last, x))
    return {k: in_channels_last(v) for k, v in x.items()} if isinstance(x, dict) else x


def changed(case, change):
    other = copy.copy(case)
    other.inputs, other.kwargs = change(case.inputs), change(case.kwargs)
    return other


def check_strided(case, device):
    check_gradients(changed(case, strided), device)


def check_memory_format(case, device):
    if not any(t.dim() in (4, 5) for t in tensors_in((case.inputs, case.kwargs))):
        return
    rank = max(t.dim() for t in tensors_in((case.inputs, case.kwargs)))
    other = changed(case, in_channels_last)
    check_gradients(other, device)
    for both in (False, True):
        modules = list(case.pair(device))
        if both:
            name = "channels_last" if max([rank, *(p.dim() for p in modules[0].parameters())]) == 4 else "channels_last_3d"
            modules[0].to(memory_format=getattr(torch, name))
            modules[1].to(memory_format=getattr(arete, name))
        (y, _), (x, _) = results(other, modules, device, is_random(case))
        for a, b in zip(tensors_in(x), tensors_in(y)):
            if b.dim() == rank and b.numel() and not b.is_contiguous() and tuple(a.stride()) != b.stride():
                raise AssertionError(f"strides {tuple(a.stride())} instead of {b.stride()}, module {'too' if both else 'not'}")


def check_copies(case, device):
    """deepcopy and pickle give independent modules of the same text, state and results."""
    theirs, ours = case.pair(device)
    args, kwargs = case.arguments(True, device)
    named = type(ours).__module__.startswith("arete")
    for what, copied in (("deepcopy", copy.deepcopy), ("pickle", lambda m: pickle.loads(pickle.dumps(m)))):
        if what == "pickle" and not named:
            continue
        other = copied(ours)
        if repr(other) != repr(ours) or facts_of(other) != facts_of(ours):
            raise AssertionError(f"{what}: another text or state")
        shared = {p.data_ptr() for p in ours.parameters() if p.numel()} & {p.data_ptr() for p in other.parameters() if p.numel()}
        if shared:
            raise AssertionError(f"{what}: shares memory")
        if set(vars(other)) != set(vars(ours)):
            raise AssertionError(f"{what}: other attributes")
        if not is_random(case):
            with arete.no_grad():
                a, b = call(copied(ours), args, kwargs), call(copied(ours), args, kwargs)
            compare(to_torch(flat(a)), to_torch(flat(b)), what)
    with torch.no_grad():
        copy.deepcopy(theirs)


def check_hooks(case, device):
    """The hooks that run, in order, with the kinds and shapes of what they are given."""

    def shapes(x):
        return [tuple(t.shape) if t is not None else None for t in nested(x)]

    def nested(x):
        if isinstance(x, (tuple, list)):
            return [t for e in x for t in nested(e)]
        return [x] if x is None or hasattr(x, "shape") else []

    seen = []
    for ours in (False, True):
        module = case.pair(device)[ours]
        args, kwargs = case.arguments(ours, device)
        events = []
        for name, m in module.named_modules():
            m.register_forward_pre_hook(lambda m, a, name=name: events.append(("before", name, shapes(a))))
            m.register_forward_hook(lambda m, a, y, name=name: events.append(("after", name, shapes(a), shapes(y))))
        module.register_full_backward_hook(lambda m, gi, go: events.append(("backward", shapes(gi), shapes(go))))
        module.register_full_backward_pre_hook(lambda m, go: events.append(("before backward", shapes(go))))
        try:
            y = [t for t in tensors_in(flat(call(module, args, kwargs))) if t.requires_grad]
        except RuntimeError as e:  # a view or an in-place result under a backward hook
            seen.append(type(e).__name__ + str(e)[:20])
            continue
        if y:
            sum((t.sum() if not t.is_complex() else t.abs().sum() for t in y[1:]),
                y[0].sum() if not y[0].is_complex() else y[0].abs().sum()).backward()
        seen.append(events)
    if seen[0] != seen[1] and isinstance(seen[0], list):
        a, b = seen[::-1]
        first = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
        raise AssertionError(f"{len(a)} events, {a[first:first + 1]} instead of {len(b)}, {b[first:first + 1]}")


def check_factories(case, device):
    """device= and dtype= of the constructor."""
    if case.constructor is None or is_lazy(case.module(False)):
        return
    name, arguments = case.constructor
    cls = getattr(torch.nn, name)
    parameters, own = (inspect.signature(c).parameters for c in (cls, getattr(arete.nn, name)))
    if not {"device", "dtype"} & set(own):
        if {"device", "dtype"} & set(parameters):
            raise AssertionError("lacks device and dtype")
        return
    if not {"device", "dtype"} <= set(parameters) and not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        raise AssertionError("device and dtype are no arguments of torch's")
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        (args, kwargs), (own, own_kwargs) = arguments
        rest = {k: v for k, v in kwargs.items() if k not in ("device", "dtype")}
        own_rest = {k: v for k, v in own_kwargs.items() if k not in ("device", "dtype")}
        theirs = cls(*args, **rest, device="cpu", dtype=dtype)
        ours = getattr(arete.nn, name)(*own, **own_rest, device=device, dtype=DTYPES[dtype])
        a, b = facts_of(ours), facts_of(theirs)
        if a != b:
            raise AssertionError(f"{dtype}: {[x for x in a if x not in b]} instead of {[x for x in b if x not in a]}")
        wrong = [t.device for t in (*ours.parameters(), *ours.buffers()) if t.device.type != arete.device(device).type]
        if wrong:
            raise AssertionError(f"device: {wrong[0]}")
        meta = getattr(arete.nn, name)(*own, **own_rest, device="meta")
        if any(not t.is_meta for t in (*meta.parameters(), *meta.buffers())):
            raise AssertionError("device meta")


def check_dtypes(case, device):
    """Results in other dtypes, or the same refusal."""
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        other = changed(case, functools.partial(cast, dtype=dtype))
        other.dtype = dtype
        try:
            modules = other.pair(device)
            results(other, modules, device, is_random(case))
        except Unsupported:
            continue  # torch lacks a kernel


def cast(x, dtype):
    if isinstance(x, torch.Tensor):
        return x.detach().to(dtype).requires_grad_(x.requires_grad) if x.is_floating_point() else x
    if isinstance(x, torch.nn.utils.rnn.PackedSequence):
        return x.to(dtype)
    if type(x) in (tuple, list):
        return type(x)(cast(e, dtype) for e in x)
    return {k: cast(v, dtype) for k, v in x.items()} if isinstance(x, dict) else x


# ---- what is refused


def outcome(f):
    """What a call gives, or the error that it ends with."""
    expecting_errors.append(True)
    try:
        return f(), None
    except Exception as e:  # noqa: BLE001
        return None, e
    finally:
        expecting_errors.pop()


def same_kind(ours, theirs):
    """Whether who catches torch's exception catches ours: arete.ArgumentError is a RuntimeError and a ValueError."""
    if isinstance(theirs, AssertionError):
        return isinstance(ours, (AssertionError, RuntimeError, ValueError, TypeError))
    accidents = AttributeError, OverflowError, SystemError, ZeroDivisionError, UnboundLocalError
    accidental = type(theirs) is IndexError and re.match("tuple index|Dimension (out of range|specified as)|index 0 is out", str(theirs))
    return isinstance(ours, (type(theirs), TypeError)) or type(theirs) in accidents or bool(accidental) or (
        type(theirs) is TypeError and not re.search("argument|must be", str(theirs)))


def compare_outcomes(ours, theirs, what):
    """Both calls give something, or both refuse with the same kind of error."""
    (_, a), (_, b) = ours, theirs
    if b is not None and a is None:
        raise AssertionError(f"{what}: accepted; torch: {type(b).__name__}: {first_line(b)}")
    if a is not None and b is None:
        raise AssertionError(f"{what}: refused: {type(a).__name__}: {first_line(a)}")
    if a is not None and not same_kind(a, b):
        raise AssertionError(f"{what}: {type(a).__name__}: {first_line(a)}; torch: {type(b).__name__}: {first_line(b)}")


def first_line(e):
    return " ".join(str(e).split())[:150]


BAD_OPTIONS = (None, "x", -1, 0, 2.5, True, (), (1,) * 7)


def bad_options(case, device):
    """For each option and each bad value the difference in what becomes of it."""
    name, ((args, kwargs), (own, own_kwargs)) = case.constructor
    cls, ours = getattr(torch.nn, name), getattr(arete.nn, name)
    signature = inspect.signature(ours)
    bound, own_bound = signature.bind(*args, **kwargs), signature.bind(*own, **own_kwargs)
    for parameter, value in itertools.product(signature.parameters.values(), BAD_OPTIONS):
        if parameter.name in ("device", "dtype") or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue

        def run(build, bound, is_ours, parameter=parameter, value=value):
            given = {**bound.arguments, parameter.name: value}
            rest = given.pop("kwargs", {}), given.pop("args", ())
            module = build(**given, **rest[0]).train(case.training)
            module = module.to(device) if is_ours else module
            x, k = case.arguments(is_ours, device)
            text = repr(module)
            return text, shapes_only(to_torch(flat(call(module, x, k))) if is_ours else flat(call(module, x, k)))

        theirs = outcome(lambda: run(cls, bound, False))
        mine = outcome(lambda: run(ours, own_bound, True))
        yield mine, theirs, f"{parameter.name}={value!r}"


def bad_inputs(case, device):
    """For each tensor of a call and each way to spoil it what becomes of it."""

    def spoiled(t):
        yield "int64", t.detach().to(torch.int64) if not t.is_complex() else None
        yield "float64" if t.dtype is not torch.float64 else "float32", t.detach().to(
            torch.float64 if t.dtype is not torch.float64 else torch.float32)
        yield "complex", t.detach().to(torch.complex64)
        yield "bool", t.detach().to(torch.bool)
        yield "one dimension more", t.detach()[None]
        if t.dim():
            yield "one dimension less", t.detach()[0]
            yield "none of them", t.detach()[:0]
            yield "two more", torch.cat([t.detach(), t.detach()[:1], t.detach()[:1]])
        if t.dim() > 1:
            yield "fewer channels", t.detach()[:, :-1]
            yield "last one less", t.detach()[..., :-1]
            yield "transposed", t.detach().transpose(0, -1)
        yield "no dimension", t.detach().reshape(-1)[0]
        yield "None", None
        yield "a list", t.detach().tolist()

    places = [("inputs", i) for i in range(len(case.inputs))] + [("kwargs", k) for k in case.kwargs]
    for where, key in places:
        t = getattr(case, where)[key]
        if not isinstance(t, torch.Tensor) or t.numel() == 0:
            continue
        for how, value in spoiled(t):
            other = copy.copy(case)
            setattr(other, where, {**case.kwargs, key: value} if where == "kwargs" else
                    (*case.inputs[:key], value, *case.inputs[key + 1:]))
            modules = other.pair(device) if not is_lazy(case.module(False)) else (other.module(False), other.module(True).to(device))

            def run(ours, other=other, modules=modules):
                x, k = other.arguments(ours, device)
                y = flat(call(modules[ours], x, k))
                return to_torch(y) if ours else y

            theirs, mine = outcome(lambda: run(False)), outcome(lambda: run(True))
            yield mine, theirs, f"{key}: {how}"


def check_options(case, device):
    """What becomes of each option with each bad value: the text and the shapes of the result, or a refusal."""
    for mine, theirs, what in bad_options(case, device) if case.constructor else ():
        try:
            compare_outcomes(mine, theirs, what)
            if mine[1] is None:
                if mine[0][0] != theirs[0][0]:
                    raise AssertionError(f"{what}: {mine[0][0]!r} instead of {theirs[0][0]!r}")
                compare(mine[0][1], theirs[0][1], what)
        except AssertionError as e:
            yield e


def in_float32(x):
    """What was computed of numbers of several dtypes is as precise as the least of them."""
    if isinstance(x, torch.Tensor):
        return x.float() if x.dtype is torch.float64 else x
    return [in_float32(e) for e in x] if isinstance(x, (tuple, list)) else x


def check_inputs(case, device):
    """What becomes of each tensor of a call that was spoiled in each way: the results, or a refusal."""
    random = is_random(case) or is_lazy(case.module(False))
    for mine, theirs, what in bad_inputs(case, device):
        try:
            compare_outcomes(mine, theirs, what)
            if mine[1] is None:
                a, b = (shapes_only(mine[0]), shapes_only(theirs[0])) if random else (mine[0], theirs[0])
                compare(shapes_only(a), shapes_only(b), what)
                compare(in_float32(a), in_float32(b), what)
        except AssertionError as e:
            yield f"{what}: {e}" if not str(e).startswith(what) else e


CHECKS = {n[6:].replace("_", " "): f for n, f in list(globals().items()) if n.startswith("check_")}
# Of these one case of a class is enough, and one of each rank of its inputs.
ONCE = {"factories": lambda case: (), "options": lambda case: (), "inputs": lambda case: [getattr(t, "dim", int)() for t in case.inputs]}

# Differences that are meant: a pattern of the line that shows them, and why.
DELIBERATE = {
    r"attributes \| .*(use_nested_tensor|activation_relu_or_gelu)":
        "which of its fused kernels a layer of torch's takes; here operators choose",
    r"FractionalMaxPool2d.* \| dtypes": "torch computes where windows start in the tensor's dtype, which bfloat16 rounds",
    r"Embedding(Bag)?_sparse \| gradients": "gradients are dense",
    r"CrossMapLRN2d \| gradients": "torch's are of float32; those of F.local_response_norm agree",
    r"Unflatten.*(arete|torch)\.Size": "each prints its own Size",
    r"inputs .*(int64|bool|complex): accepted": "operators take dtypes that torch has no kernel for, or refuses",
    r"options \| (inplace|return_indices|full|include_last_offset)=.* must be bool": "flags are booleans",
    r"Cell/\d+ \| options \| bias=.* instead of": "flags are shown as booleans",
    r"options \| (norm_type|dropout)=.*must be float": "numbers are numbers, where they are not used, too",
    r"options \| dropout=.* \[0, 1\] .*torch: TypeError": "a ValueError for what is no probability",
    r"Adaptive.* \| options \| output_size=(None|-1): accepted": "both keep a size",
    r"options .*(out_channels|kernel_size)=0: accepted": "an empty result; torch has no kernel for it",
    r"options .*=True: .*(must be|normalized_shape|reshape\(\))": "a boolean is no size",
    r"options .*num_(encoder_|decoder_|)layers=(-1|0|True): accepted": "no layers give back what they are given; True is one",
    r"_random_samples to have the same dtype|FractionalMaxPool.*output_ratio=\(\)|label_smoothing=-1|_zero_batch .* dilation=0: refused":
        "options that torch forgets to look at",
    r"num_embeddings=0: IndexError|inputs \| 0: .*IndexError: .*out of bounds.*; torch: RuntimeError":
        "indices that are out of bounds are IndexErrors",
    r"EmbeddingBag_max \| options \| sparse=True": "gradients are dense, of maxima, too",
    r"ReplicationPad3d.* \| options \| padding=-1: accepted": "what is left may be empty",
    r"(Reflection|Replication)Pad\d.* \| inputs \| 0: one dimension (more|less): accepted": "the last dimensions of any tensor are padded",
    r"CircularPad\dd/\d+ \| options \| padding=.*: ValueError: expected": "the number of dimensions is looked at first",
    r"inputs \| 0: none of them: (accepted; torch: RuntimeError: .*(non-|optional 0|possibly 0|at least 1)|shape )"
    r"|PixelUnshuffle.* channels: shape":
        "channels may be none: the result is empty, of the shape that the operator gives",
    r"inputs \| \d: (float32|float64|int64): "
    r"(torch\.float\d\d instead of torch\.|accepted; torch: RuntimeError: (Found dtype|mixed dtype|prelu))"
    r"|PReLU_no_batch_dim \| options .*Type promoting": "arguments of several dtypes are promoted, by all operators",
    r"CrossMapLRN2d \| (inputs|options)": "that of any dimensions, with the arguments of F.local_response_norm",
    r"GaussianNLLLoss.* 2: no dimension: accepted": "variances are broadcast",
    r"CTCLoss.* \| inputs \| ([123]: .*(targets must be|_lengths must be|a list: accepted)|0: last one less: refused)":
        "targets are integers below the number of classes, lengths are of one dimension or numbers",
    r"inputs \| 0: complex: refused": "complex numbers have no order, and so no softmax; they are not normalized",
    r"interpolate.* \| inputs \| 0: (no dimension|one dimension (more|less)): NotImplementedError: ": "the mode is looked at first",
    r"Conv\dd_.* \| inputs \| 0: one dimension more: ArgumentError": "the number of dimensions is looked at first",
    r"MultiLabelMarginLoss.* one dimension more: refused": "targets have the input's shape",
    r"LPPool.* \| inputs \| 0: no dimension": "the averages under it are named",
    r"Unflatten.* \| options \| dim='x'|Transformer.* a list: AttributeError": "another kind of exception for what is neither",
}


def differences(case, check, device):
    """The lines of one check of a case; "skipped: ..." where torch itself fails."""
    try:
        found = CHECKS[check](case, device)
        for e in found or ():
            yield f"{case.name} | {check} | {' '.join(str(e).split())[:300]}"
    except Unsupported as e:
        yield f"skipped: {case.name} | {check} | {e}"
    except Exception as e:  # noqa: BLE001
        kind = "" if isinstance(e, AssertionError) else type(e).__name__ + ": "
        yield f"{case.name} | {check} | {kind}{' '.join(str(e).split())[:300]}"


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", help="of module_db's cases; one or more, separated by commas")
    parser.add_argument("--filter", default="", help="a regular expression of the names of cases")
    parser.add_argument("--check", default=",".join(CHECKS), help="one or more, separated by commas")
    parser.add_argument("--verbose", action="store_true", help="show the deliberate differences, too, and what was skipped")
    options = parser.parse_args(argv)
    for library in (torch, arete):
        library.backends.cudnn.allow_tf32 = False
    dtypes = [getattr(torch, name) for name in options.dtype.split(",")]
    cases = [*module_db_cases(dtypes, options.device), *common_nn_cases(options.device)]
    cases = [c for c in cases if re.search(options.filter, c.name)]
    done, seen, used = 0, set(), set()
    meant = skipped = wrong = 0
    for case, check in itertools.product(cases, options.check.split(",")):
        if check in ONCE:
            key = (check, case.name.split("/")[0], case.training, *ONCE[check](case))
            if key in seen:
                continue
            seen.add(key)
        done += 1
        for line in differences(case, check, options.device):
            reasons = [p for p in DELIBERATE if re.search(p, line)]
            used.update(reasons)
            if line.startswith("skipped: "):
                skipped += 1
            elif reasons:
                meant += 1
                line = "meant: " + line
            else:
                wrong += 1
            if options.verbose or line.startswith(case.name):
                print(line, flush=True)
    unused = [p for p in DELIBERATE if p not in used]
    if not options.filter and options.check == ",".join(CHECKS) and options.dtype == "float32" and options.device == "cpu":
        wrong += len(unused)
        for pattern in unused:
            print(f"no difference any more: {pattern} ({DELIBERATE[pattern]})")
    print(f"{options.device}: {len(cases)} cases, {done} checks: {wrong} differences, {meant} that are meant (of {len(used)} kinds), "
          f"{skipped} checks skipped")
    return wrong


if __name__ == "__main__":
    sys.exit(bool(main()))
