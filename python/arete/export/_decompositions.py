"""Programs of other operators."""
from __future__ import annotations

import json
from typing import Any

from .. import _C
from .._grad_mode import no_grad
from .._operators import _ops
from .._program import Recorded, _close

__all__ = ["composed", "replaced"]


def _examples(ep: Any) -> list:
    """Inputs of the program: those of the recording, or zeros."""
    if ep.example_inputs is not None:
        return ep._recorded.tensors_of(*ep.example_inputs)
    ranges = {name: (low, high) for name, low, high in ep._recorded.program.sizes()}
    shapes = [[int(n) if n.isdigit() else max(2, ranges[n][0]) for n in sizes] for _, _, sizes in ep._recorded.program.inputs()]
    return [_ops.zeros(shape, dtype=dtype) for shape, (_, dtype, _) in zip(shapes, ep._recorded.program.inputs())]


def _recorded_again(ep: Any, run: Any, inputs: list, whole: list | None = None) -> Recorded:
    """What `run` calls, with the inputs, sizes and state of the program; its results are the program's."""
    old = ep._recorded
    info, ranges, exact = old.program.inputs(), old.program.sizes(), []
    for k, x in enumerate(json.loads(old.program.text(for_file=False))["inputs"]):
        for d, terms in enumerate(x["shape"]):
            if isinstance(terms, list):
                (factor, size), = (t for t in terms if len(t) == 2)
                name, low, high = ranges[size]
                exact.append((name, k, d, low, high, factor, sum(t[0] for t in terms if len(t) == 1)))
    state = [(name, t, kind == "parameter", lasting) for name, t, kind, lasting in old.program.state() if kind != "constant"]
    program = _C._SavedProgram.record(run, inputs, [i[0] for i in info], exact, [], state, whole)
    for key, text in old.program.metadata().items():
        program.set_metadata(key, text)
    return Recorded(program, old.form, old.classes)


def composed(ep: Any) -> Recorded:
    inputs = _examples(ep)
    program = ep._recorded.program

    def results(p: Any) -> list:
        copy, random = p.clone(), _C.default_generator.get_state()
        given = [t.detach().clone() for t in inputs]
        with no_grad():
            found = copy(given)
        _C.default_generator.set_state(random)
        return found + given + [t for _, t, kind, _ in copy.state() if kind != "constant"]  # with what it wrote

    try:
        wanted = results(program)
    except (ValueError, TypeError, RuntimeError):  # of what is there instead of the inputs of a recording
        return ep._recorded
    if not {"batch_norm", "batch_norm_relu"}.isdisjoint(program.operators()):
        ep = _with_batch_norms_apart(ep, results, wanted)
        program = ep._recorded.program

    def taken_apart(whole: list) -> Recorded | None:
        """None where what an operator is composed of is not all that it does, or cannot be saved or looked at."""
        try:
            made = _recorded_again(ep, program, inputs, whole)
            made.program.text(for_file=True)
            _ = type(ep)(made).graph_module
            same = _all_close(results(made.program), wanted)
        except (ValueError, TypeError, RuntimeError, NotImplementedError):
            return None
        return made if same else None

    names = program.operators()
    made = taken_apart([])
    return made or taken_apart([op for op in names if not taken_apart([n for n in names if n != op])]) or ep._recorded


def _batch_norm_apart(x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float,
                      cudnn_enabled: bool = True) -> Any:
    """In training the statistics, and what they do with running ones, operator by operator."""
    if not training:
        return _ops.batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
    wide = x.float() if x.element_size() < 4 else x
    dims, shape = [0, *range(2, x.dim())], [1, -1] + [1] * (x.dim() - 2)
    mean, var = wide.mean(dims, keepdim=True), wide.var(dims, correction=0, keepdim=True)
    with no_grad():
        for running, now in ((running_mean, mean), (running_var, wide.var(dims, correction=1, keepdim=True))):
            if running is not None:
                running.lerp_(now.view(running.shape).to(running.dtype), momentum)
    y = (wide - mean) * (var + eps).rsqrt()
    y = y if weight is None else y * weight.view(shape)
    return (y if bias is None else y + bias.view(shape)).to(x.dtype)


def _batch_norm_relu_apart(x: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False,
                           momentum: float = 0.1, eps: float = 1e-5, residual: Any = None) -> Any:
    y = _batch_norm_apart(x, weight, bias, running_mean, running_var, training, momentum, eps)
    return _ops.relu(y if residual is None else y + residual)


def _with_batch_norms_apart(ep: Any, results: Any, wanted: list) -> Any:
    """The program with what batch norms do in training, where it can be written anew."""
    try:
        made = replaced(ep, {_ops.batch_norm: _batch_norm_apart, _ops.batch_norm_relu: _batch_norm_relu_apart})
        if _all_close(results(made.program), wanted):
            return type(ep)(made, ep.example_inputs)
    except (ValueError, TypeError, RuntimeError, NotImplementedError):
        pass
    return ep


def _all_close(a: list, b: list) -> bool:
    return all(x.shape == y.shape and x.dtype == y.dtype and _close(x, y, 1e-4) for x, y in zip(a, b))


def replaced(ep: Any, table: dict) -> Recorded:
    from ..fx import GraphModule, Interpreter

    functions = {}
    for op, function in table.items():
        name = getattr(op, "_opname", None) or getattr(op, "__name__", None)
        if name is None or not callable(function):
            raise TypeError(f"run_decompositions(): a table is from operators of ops.aten to functions, not from {op!r} to {function!r}")
        functions[name] = function
    if not functions:
        return ep._recorded

    class Replacing(Interpreter):
        def call_function(self, target: Any, args: tuple, kwargs: dict) -> Any:
            name = getattr(target, "_opname", getattr(target, "__name__", ""))
            # Of cond and while_loop, whose functions are graphs, too.
            args = tuple((lambda *given, inner=a: Replacing(inner).run(*given)) if isinstance(a, GraphModule) else a for a in args)
            return functions.get(name, target)(*args, **kwargs)

    module = ep.graph_module
    state = [t for _, t, _, _ in ep._recorded.program.state()]
    return _recorded_again(ep, lambda given: list(Replacing(module).run(*state, *given)), _examples(ep))
