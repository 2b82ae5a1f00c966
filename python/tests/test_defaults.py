"""Defaults are torch's: of every function, method and class that both libraries have, and of every switch. What differs on purpose
stands in docs/python.md with its reason, and a line there that is true no more fails here, too.

Compared are the default of each argument that both have under one name, the order of arguments that may be given without their names,
and what switches and getters say in a fresh process. An argument that torch demands may have a default here."""
import ast
import importlib
import inspect
import json
import math
import pathlib
import pkgutil
import re
import subprocess
import sys
import warnings

import pytest
from peer import peer

import arete
from arete import _C
from arete._operators._schemas import split

torch = peer()
DOCS = pathlib.Path(__file__).parents[2] / "docs" / "python.md"
NONE = "(none)"  # no default
# What the program's environment says, and what is there for other devices and other makers.
ELSEWHERE = re.compile(r"torch\.(version|utils\.(cpp_extension|tensorboard|backcompat|collect_env)|cuda\.(amp\.|nccl|tunable))")


# ---- one form for both libraries


def text(value):
    """A default as the table of the documentation has it."""
    if value is inspect.Parameter.empty:
        return NONE
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, (int, float)):
        return f"{value:g}" if math.isfinite(value) else str(float(value))
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, (tuple, list, set, frozenset)):
        return "(" + ", ".join(map(text, value)) + ")"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{text(k)}: {text(v)}" for k, v in value.items()) + "}"
    if callable(value) and hasattr(value, "__name__"):
        return value.__name__
    if "object at 0x" in repr(value):
        return type(value).__name__
    shown = re.sub(r"<RedOpType\.(\w+): \d+>", r"<ReduceOp.\1>", repr(value))
    return re.sub(r"\b(torch|arete)\.", "", shown)


class Overload:
    """Arguments by torch's names, in their order: the default, and whether one may be given by its position."""

    def __init__(self, source):
        self.arguments = {}
        for name, default, keyword in source:
            self.arguments[{"input": "self", "dims": "dim", "x1": "self"}.get(name, name)] = (default, keyword)

    def __getitem__(self, name):
        return self.arguments[name][0]


def from_signature(signature, bound):
    found = []
    for p in list(signature.parameters.values())[1 if bound else 0 :]:
        if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL, p.POSITIONAL_ONLY):
            continue
        found.append((p.name, text(p.default), p.kind == p.KEYWORD_ONLY))
    return Overload(found)


def literal(written):
    """A default as a signature is written: -1, [0, 0], inf, "mean", torch.float32."""
    if written == "":
        return NONE
    try:
        return text(ast.literal_eval(written))
    except (ValueError, SyntaxError):
        return text(float(written)) if written in ("inf", "-inf", "nan") else re.sub(r"^(torch|arete)\.", "", written)


def from_text(written, defaults=()):
    """Of "(Tensor self, int dim=-1, *, keepdim: bool = False)"; \\N stands for a default that is listed apart."""
    found, keyword = [], False
    for part in split(written[1:-1]):
        left, _, default = map(str.strip, part.partition("="))
        if left == "*":
            keyword = True
        elif left != "/" and not left.startswith("*"):
            value = text(defaults[int(default[1:])]) if default.startswith("\\") else literal(default)
            found.append((re.findall(r"\w+", left.partition(":")[0])[-1], value, keyword))
    return Overload(found)


def overloads_here(o, bound):
    if hasattr(o, "_records"):
        return [from_text(signature) for _, signature in o._records]
    if hasattr(o, "__nb_signature__"):
        return [from_text(re.match(r"def \w+(\(.*\)) ->", s, re.S)[1], defaults) for s, _, defaults in o.__nb_signature__]
    try:
        return [from_signature(inspect.signature(o), bound)]
    except (ValueError, TypeError):
        return []


def schema_default(argument):
    if not argument.has_default_value():
        return NONE
    # Dtypes and memory formats are numbers here: int64, which functions of indices have without being told, and row-major order.
    codes = {("dtype", 4): "None", ("memory_format", 0): "contiguous_format"}
    value = argument.default_value
    return codes.get((argument.name, value) if isinstance(value, int) else None, text(value))


def schemas():
    """The arguments of torch's operators, by their names."""
    found = {}
    for s in torch._C._jit_get_all_schemas():
        namespace, _, name = s.name.partition("::")
        if namespace == "aten":
            found.setdefault(name, []).append(Overload(
                (a.name, schema_default(a), a.kwarg_only) for a in s.arguments if not a.is_out))
    return found


def overloads_there(o, name, schemas, bound):
    """From the signature, where the object is no builtin, else from operators' schemas, else from the first line of its text."""
    try:
        return [from_signature(inspect.signature(o), bound)]
    except (ValueError, TypeError):
        pass
    family = re.match(r"torch\.(linalg|fft|special)\.(\w+)$", name)
    for key in (f"{family[1]}_{family[2]}",) if family else (name.rpartition(".")[2],):
        if key in schemas:
            return schemas[key]
    line = next(filter(None, map(str.strip, (o.__doc__ or "").splitlines())), "")
    m = re.match(r"\w+(\(.*?\))( ->|$)", line)
    return [from_text(m[1])] if m else []


def same(a, b):
    """Whether two defaults mean the same: one number for all dimensions, nothing for an empty list, a reduction by its number."""
    def plain(t):
        items = re.fullmatch(r"\(([^()]*)\)", t)
        parts = set(items[1].split(", ")) if items else {t}
        return "None" if items and items[1] == "" else parts.pop() if len(parts) == 1 else t

    a, b = plain(a), plain(b)
    return a == b or {a, b} in ({"1", '"mean"'}, {"None", "preserve_format"}, {"None", "contiguous_format"}, {"None", "cpu"},
                                {"0", "False"}, {"strided", "None"})


def differences_of(name, here, all_there):
    """Compares one overload with the one of torch that has most of its arguments."""
    there = max(all_there, key=lambda t: (len(t.arguments.keys() & here.arguments.keys()) - len(t.arguments.keys() - here.arguments.keys()),
                                          sum(same(t[n], here[n]) for n in t.arguments.keys() & here.arguments.keys())))
    shared = [n for n in there.arguments if n in here.arguments]
    for n in shared:
        a, b = there[n], here[n]
        if a != NONE and not same(a, b) and not any(n in t.arguments and same(t[n], b) for t in all_there):
            yield f"{name}({n})", a, b
    in_order = [n for n in shared if not there.arguments[n][1] and not here.arguments[n][1]]
    if in_order != sorted(in_order, key=list(here.arguments).index):
        own = sorted(in_order, key=list(here.arguments).index)
        if not any([n for n in t.arguments if n in own] == own for t in all_there):
            yield name, "(" + ", ".join(in_order) + ")", "(" + ", ".join(own) + ")"


# ---- what there is


def public(module):
    names = getattr(module, "__all__", None) or dir(module)
    return [n for n in names if not n.startswith("_")]


def modules():
    """Pairs of a name and the module of each library, for those that both have."""
    todo, seen = ["torch"], set()
    while todo:
        name = todo.pop()
        if name in seen or ELSEWHERE.match(name):
            continue
        seen.add(name)
        try:
            here, there = importlib.import_module(name.replace("torch", "arete", 1)), importlib.import_module(name)
        except ImportError:
            continue
        yield name, here, there
        todo += [f"{name}.{m.name}" for m in pkgutil.iter_modules(getattr(there, "__path__", [])) if not m.name.startswith("_")]


def callables():
    """(name, here, there, whether the first argument is bound) of every function, class and method that both have."""
    done = set()
    for module, here, there in modules():
        for n in public(there):
            a, b = getattr(here, n, None), getattr(there, n, None)
            if a is None or inspect.ismodule(b) or not callable(b) or not callable(a) or id(b) in done:
                continue
            done.add(id(b))
            yield f"{module}.{n}", a, b, False
            if not inspect.isclass(a) or not inspect.isclass(b):
                continue
            for m in dir(b):
                in_a, in_b = inspect.getattr_static(a, m, None), inspect.getattr_static(b, m)
                kinds = [type(x).__name__ for x in (in_a, in_b)]
                in_a, in_b = getattr(in_a, "__func__", in_a), getattr(in_b, "__func__", in_b)
                if m.startswith("_") or not callable(in_a) or not callable(in_b) or id(in_b) in done:
                    continue
                done.add(id(in_b))
                yield f"{module}.{n}.{m}", in_a, in_b, "staticmethod" not in kinds


# Forms with a number before the tensors, which torch takes with a warning and lists nowhere.
OF_OLD = re.compile(r"torch\.Tensor\.(add|sub|subtract|addcmul|addcdiv)_")


def compare_arguments():
    known, found, compared = schemas(), {}, 0
    for name, here, there, bound in callables():
        is_operator = hasattr(here, "_records")
        own = overloads_here(here, bound and not is_operator)
        others = overloads_there(there, name, known, bound and not is_operator)
        if not own or not others:
            continue
        compared += 1
        for o in own:
            if OF_OLD.fullmatch(name) and any(o[n] == NONE for n in ("alpha", "value") if n in o.arguments):
                continue
            for key, a, b in differences_of(name, o, others):
                found[key] = (a, b)
    return found, compared


# ---- switches

SWITCHES = """
import functools, importlib, json, sys, warnings
warnings.simplefilter("ignore")
root = importlib.import_module(sys.argv[1])
found = {}
def plain(v):
    if isinstance(v, (bool, int, float, str, type(None))):
        return v
    return repr(sorted(v) if isinstance(v, set) else v).replace("torch.", "").replace("arete.", "")
def look(name, read):
    try:
        found["torch." + name] = plain(read())
    except Exception:  # one that this library lacks
        pass
for path, names in {
    "backends": "fp32_precision",
    "backends.cudnn": "enabled benchmark benchmark_limit deterministic allow_tf32 fp32_precision",
    "backends.cudnn.conv": "fp32_precision",
    "backends.cudnn.rnn": "fp32_precision",
    "backends.cuda.matmul": "allow_tf32 fp32_precision allow_fp16_accumulation allow_fp16_reduced_precision_reduction "
                            "allow_bf16_reduced_precision_reduction",
}.items():
    for name in names.split():
        look(f"{path}.{name}", lambda: functools.reduce(getattr, f"{path}.{name}".split("."), root))
for m in ("", ".amp", ".backends.cuda", ".autograd", ".multiprocessing", ".utils.data", ".autograd.graph"):
    try:
        module = importlib.import_module(sys.argv[1] + m)
    except ImportError:
        continue
    for n in dir(module):
        if n.startswith(("get_", "is_", "are_")) or n.endswith(("_enabled", "_allowed")):
            look(f"{m}.{n}()".lstrip("."), lambda: getattr(module, n)())
for device in ("cpu", "cuda"):
    look(f"is_autocast_enabled({device!r})", lambda: root.is_autocast_enabled(device))
    look(f"get_autocast_dtype({device!r})", lambda: root.get_autocast_dtype(device))
look("Generator().initial_seed()", lambda: root.Generator().initial_seed())
for n in ("e", "pi", "inf", "newaxis"):
    look(n, lambda: getattr(root, n))
print(json.dumps(found))
"""
# What depends on the machine.
MACHINE = re.compile(r".*(num_threads|num_interop|worker_info|is_available|is_built|version|rng_state|is_flash_attention_available|"
                     r"cpu_count|start_method|get_context|get_device_module|backends\.mps\.)")


def switches_of(library):
    done = subprocess.run([sys.executable, "-c", SWITCHES, library], capture_output=True, text=True, check=True)
    return {n: v for n, v in json.loads(done.stdout.splitlines()[-1]).items() if not MACHINE.match(n)}


def compare_switches():
    here, there = switches_of("arete"), switches_of("torch")
    return {n: (text(there[n]), text(here[n])) for n in here.keys() & there.keys() if here[n] != there[n]}, len(here.keys() & there.keys())


# ---- the table of the documentation


def documented():
    """Name, torch's default, Arete's of each line of the table."""
    section = DOCS.read_text().split("## Defaults that differ", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \| `([^`]+)` \| (.+) \|$", section, re.M)
    assert all(reason.strip() for *_, reason in rows)
    return {name: (a, b) for name, a, b, _ in rows}


def report(found):
    return "\n".join(f"| `{name}` | `{a}` | `{b}` | |" for name, (a, b) in sorted(found.items()))


def test_defaults_are_those_of_torch():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (found, functions), (switched, switches) = compare_arguments(), compare_switches()
    assert functions > 2000 and switches > 35, "less was compared than there is"
    found.update(switched)
    known = documented()
    if arete.cuda.is_available():  # with a GPU, torch has the timer that waits, too
        del known["torch.utils.benchmark.Timer(timer)"]
    new = {n: v for n, v in found.items() if known.get(n) != v}
    gone = {n: v for n, v in known.items() if found.get(n) != v}
    assert not new, "not in docs/python.md:\n" + report(new)
    assert not gone, "in docs/python.md, but not so:\n" + report(gone)


@pytest.mark.parametrize("wrong", ["(int dim=0)", "(int keepdim=False, int dim=-1)", "(int dim, bool keepdim)"])
def test_differences_are_found(wrong):
    there = [from_text("(Tensor self, int dim=-1, bool keepdim=False)")]
    assert list(differences_of("f", from_text(wrong), there))


@pytest.mark.parametrize("right", ["(Tensor input, int dim=-1, bool keepdim=False)", "(Tensor self=None, int dim=-1, *, bool keepdim=0)"])
def test_what_is_the_same_is_none(right):
    there = [from_text("(Tensor self, int dim=-1, bool keepdim=False)")]
    assert not list(differences_of("f", from_text(right), there))
