"""Documentation of operators, made from their records when somebody asks for it: what they do, shapes, dtypes, gradients,
errors, and an example that has just been run.

Examples are run in the whole package, as users see it: this file is above all the others, and C++ calls it when it is asked."""
from __future__ import annotations

import ast
import functools
import inspect
import keyword
import math
import warnings

from . import _C
from ._operators import _schemas


def _tensors(value) -> list:
    if isinstance(value, _C.Tensor):
        return [value]
    return [t for v in value for t in _tensors(v)] if isinstance(value, (list, tuple)) else []


def _shape(t) -> str:
    return str(tuple(t.shape))


def _number(value) -> str:
    """A number or nested list of them, rounded."""
    if isinstance(value, list):
        return "[" + ", ".join(map(_number, value)) + "]"
    if isinstance(value, complex):
        return repr(complex(round(value.real, 2), round(value.imag, 2)))
    if isinstance(value, float):
        return repr(round(value, 2)) if math.isfinite(value) else f"float('{value}')"
    return repr(value)


def _literal(value) -> str:
    if isinstance(value, _C.Tensor):
        text = f"arete.tensor({_number(value.tolist())}"
        usual = {bool: "bool", int: "int64", float: "float32", complex: "complex64"}
        first = value.reshape(-1)[0].item() if value.numel() else 0.0
        return text + (")" if value.dtype._name == usual[type(first)] else f", dtype={value.dtype!r})")
    if isinstance(value, _C.device):
        return repr(str(value))
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return repr(value)


def _fits(t) -> bool:
    return 0 < t.numel() <= 12 and t.dim() <= 3


def signature(operator) -> inspect.Signature:
    """That of the first overload, as Python writes it."""
    parameters = []
    for name, default, keyword_only in _schemas.arguments(operator._records[0][1]):
        if keyword.iskeyword(name):
            name += "_"
        try:
            value = ast.literal_eval(default) if default else inspect.Parameter.empty
        except ValueError:
            value = float(default)  # inf
        kind = inspect.Parameter.KEYWORD_ONLY if keyword_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters.append(inspect.Parameter(name, kind, default=value))
    return inspect.Signature(parameters)


def _public(operator, surface: str) -> str:
    name = operator.__name__
    if operator.__module__ != "arete":
        return f"{operator.__module__}.{name}"
    for family in ("linalg", "fft", "special"):
        if name.startswith(family + "_"):
            return f"arete.{family}.{name[len(family) + 1 :]}"
    return ("arete._ops." if surface == "internal" else "arete.") + name


def _large(t) -> str:
    """Some tensor like this one."""
    if t.is_floating_point():
        return f"arete.randn({', '.join(map(str, t.shape))})"
    return f"arete.zeros({', '.join(map(str, t.shape))}, dtype={t.dtype!r})"


def _example(operator, record: str, signature: str, sample, random: bool, in_place: bool) -> list[str]:
    """Lines of a call of this sample, and what it printed: the shape where tensors are large or random."""
    import arete

    given = dict(zip((n for n, _, _ in _schemas.arguments(_schemas.signature_of(record))), sample))
    for name, own in (("input", "self"), ("self", "input"), ("dim", "dims"), ("dims", "dim")):  # torch's names
        given.setdefault(name, given.get(own))
    shown = _schemas.arguments(signature)
    if shown and sample and isinstance(sample[0], _C.Tensor):
        given.setdefault(shown[0][0], sample[0])  # which may have a name of its own
    lines, call = [], []
    skipped = False  # a positional argument was left out: the others are named
    for name, default, keyword_only in shown:
        value = given.get(name)
        if isinstance(value, _C.Tensor) and not _fits(value):
            random = True
            lines.append(f"{name} = {_large(value)}")
            call.append(f"{name}={name}" if keyword_only or skipped else name)
            continue
        usual = name == "dtype" and value is _C.float32 or name == "device"
        if value is None or usual or (default and _literal(value) == default.replace("\"", "'")):
            skipped = True
            continue
        text = _literal(value)
        if isinstance(value, _C.Tensor) or value and isinstance(value, list) and isinstance(value[0], _C.Tensor):
            lines.append(f"{name} = {text}")
            text = name
        call.append(f"{name}={text}" if keyword_only or skipped else text)
    surface = _C._record(record)["surface"]
    method = operator.__module__ == "arete" and (in_place or isinstance(operator, _C.OperatorMethod))
    if method and call and lines:
        last = f"{call[0]}.{operator.__name__}({', '.join(call[1:])})"
    else:
        last = f"{_public(operator, surface)}({', '.join(call)})"
    scope = {"arete": arete}
    for line in lines:
        exec(line, scope)  # texts that were made above
    result = eval(last, scope)
    if random:
        several = not isinstance(result, _C.Tensor)
        result = [t.shape for t in result] if several else result.shape
        last = f"[t.shape for t in {last}]" if several else last + ".shape"
    # The form of doctest, by which the examples are checked.
    return [">>> " + line for line in (*lines, last)] + [line or "<BLANKLINE>" for line in repr(result).splitlines()]


def _shapes(record: str, samples) -> str:
    """"(2, 3), (3) -> (2, 3)" of a few samples."""
    operator = _C.Operator(record)
    names = _schemas.arguments(_schemas.signature_of(record))
    found = []
    for sample in samples:
        try:
            named = {n: v for (n, _, k), v in zip(names, sample) if k}
            result = operator(*[v for (_, _, k), v in zip(names, sample) if not k], **named)
        except Exception:  # noqa: BLE001: a sample that needs what this machine lacks
            continue
        inputs, outputs = (", ".join(map(_shape, _tensors(x))) for x in (sample, result))
        text = f"{inputs} -> {outputs}" if inputs else outputs
        if text not in found and text:
            found.append(text)
        if len(found) == 3:
            break
    return "; ".join(found)


@functools.cache  # functools.wraps asks for it
def describe(operator) -> str:
    """The documentation of an operator object."""
    with warnings.catch_warnings():  # samples that are told of
        warnings.simplefilter("ignore")
        return _describe(operator)


def _describe(operator) -> str:
    overloads = operator._records
    name = operator.__name__
    record, signature = overloads[0]
    facts = _C._record_facts(record)
    in_place = name.endswith("_")
    blocks = ["\n".join(name + s for _, s in overloads), facts["doc"]]
    samples = _C._record_samples(record)
    lines = []
    if facts["pointwise"]:
        several = sum(bool(_tensors(a)) for a in samples[0]) > 1 if samples else False
        lines.append("Shapes: " + ("inputs are broadcast to the shape of the result" if several else "(*) -> (*)"))
    else:
        shapes = _shapes(record, samples)
        if shapes:
            lines.append("Shapes, for example: " + shapes)
    dtypes = [d._name for d in facts["dtypes"]] + ["complex"] * facts["complex"]
    lines.append("Dtypes: " + ", ".join(dtypes))
    lines.append({"none": "No gradient", "once": "Gradient: of first order", "any order": "Gradient: of any order"}[facts["gradient"]])
    blocks.append("\n".join(lines))
    errors = []
    for kind, text in _C._record_errors(record):
        line = f"    {kind.__name__}: {text}"
        if line not in errors and len(errors) < 4:
            errors.append(line)
    if errors:
        blocks.append("Errors:\n" + "\n".join(errors))
    for sample in sorted(samples, key=lambda s: not all(map(_fits, _tensors(s)))):
        try:
            example = _example(operator, record, signature, sample, facts["random"], in_place)
        except Exception:  # noqa: BLE001: a sample that this signature cannot express
            continue
        blocks.append("Example:\n" + "\n".join("    " + line for line in example))
        break
    return "\n\n".join(blocks) + "\n"
