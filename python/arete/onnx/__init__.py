"""`arete.onnx.export`: recorded programs as ONNX models, for other runtimes (docs/program.md). Needs the package `onnx` from PyPI.

    arete.onnx.export(net, (x,), "net.onnx", input_names=["image"], dynamic_axes={"image": {0: "batch"}})
"""
from __future__ import annotations

import enum as _enum
import functools as _functools
import os as _os
from typing import Any

from .._grad_mode import no_grad as _no_grad
from .._program import Recorded as _Recorded, state_of as _state_of
from ..export import ExportedProgram as _ExportedProgram, _dynamic
from ..jit import ScriptModule as _ScriptModule
from ..nn import Module as _Module

__all__ = ["ONNXProgram", "OperatorExportTypes", "TrainingMode", "export", "is_in_onnx_export", "register_custom_op_symbolic",
           "supported_operators"]


class TrainingMode(_enum.Enum):
    """Which mode modules are exported in: EVAL, whatever is said.

    >>> arete.onnx.TrainingMode.EVAL.value
    0
    """

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(_enum.Enum):
    """Which operators models have: ONNX.

    >>> arete.onnx.OperatorExportTypes.ONNX.value
    0
    """

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


def is_in_onnx_export() -> bool:
    """False: programs are recorded as they run, and then written.

    >>> arete.onnx.is_in_onnx_export()
    False
    """
    return False


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Any, opset_version: int) -> None:
    """How torch's older exporter writes an operator of a library. Those of this name never come up here: what is exported is recorded as
    operators of this library, and others are refused by export().

    >>> arete.onnx.register_custom_op_symbolic("torchvision::nms", print, 11)
    """


class ONNXProgram:
    """An ONNX model: `model_proto` is onnx's object, save() writes it.

    >>> program = arete.onnx.ONNXProgram(None)  # export() makes them
    >>> program.model_proto is None
    True
    """

    def __init__(self, model_proto: Any) -> None:
        self.model_proto = model_proto

    def save(self, destination: Any) -> None:
        """Writes the model to a path or an open file."""
        data = self.model_proto.SerializeToString()
        if hasattr(destination, "write"):
            destination.write(data)
            return
        from ..serialization import _replacing

        with _replacing(_os.fspath(destination)) as file:
            file.write(data)


def supported_operators() -> list[str]:
    """Names of the operators that models can have.

    >>> "linear" in arete.onnx.supported_operators()
    True
    """
    from . import _layers, _places, _shapes  # noqa: F401
    from ._operators import HANDLERS

    return sorted(HANDLERS)


def _dynamic_axes(axes: dict, names: list[str], outputs: Any) -> list:
    """torch's dynamic_axes as dynamic sizes."""
    exact = []
    for name, said in axes.items():
        if name not in names:
            if name in (outputs or ()):
                continue  # sizes of results follow
            raise ValueError(f"onnx.export(): dynamic_axes names {name!r}, but the inputs are {names}")
        tensor = names.index(name)
        pairs = said.items() if isinstance(said, dict) else [(d, f"{name}_dim_{d}") for d in said]
        exact += [(text, tensor, dim, 1, None, 1, 0) for dim, text in pairs]
    return exact


def _input_names(model: Any, args: tuple, kwargs: dict, state: list) -> list[str]:
    """What the inputs of the model's program are called: a program of the same arguments that does nothing tells."""
    nothing = _functools.wraps(model.forward)(lambda *args, **kwargs: ())
    recorded = _Recorded.record(nothing, args, kwargs, what="onnx.export()", kind="exported", state=state)
    return [i[0] for i in recorded.program.inputs()]


def _same(a: list, b: list) -> bool:
    def close(x: Any, y: Any) -> bool:
        if x.shape != y.shape or x.dtype != y.dtype:
            return False
        apart = (x.double() - y.double()).abs() > 1e-3 + 1e-3 * y.double().abs()
        return not bool((apart & (x != y)).any()) and bool((x.isnan() == y.isnan()).all())

    with _no_grad():
        return all(close(x, y) for x, y in zip(a, b))


def _model_of(recorded: Any, record: Any, tensors: list, *options: Any) -> Any:
    """The model; where an operator has no counterpart the operators that it is composed of may have some, so it is recorded as those
    (`record`, of the operators that stay whole). What it then does is compared, for the inputs and for the same numbers in other places,
    since an operator may also do something by itself."""
    from ._graph import NoCounterpart
    from ._model import to_model

    first: NotImplementedError | None = None
    whole, program = set(supported_operators()), recorded.program
    while True:
        try:
            return to_model(program, *options)
        except NoCounterpart as e:
            first = first or e
            if record is None or e is not first and e.op not in whole:
                raise first from None  # it is not composed of others, or not of such
            whole.discard(e.op)
        except NotImplementedError as e:  # such as a part of an operator that is none of its own
            raise first or e from None
        try:
            program = record(sorted(whole)).program
            moved = [t.detach().flatten().roll(1).view(t.shape) for t in tensors]
            is_same = all(_same(program(given), recorded.program(given)) for given in (tensors, moved))
        except Exception:
            raise first from None
        if not is_same:
            raise first


def export(model: Any, args: Any = (), f: Any = None, *, kwargs: dict | None = None, input_names: Any = None, output_names: Any = None,
           opset_version: int | None = None, dynamic_axes: dict | None = None, dynamic_shapes: Any = None) -> ONNXProgram:
    """A module, a traced module or an exported program as an ONNX model, which is also written to `f` (a path or an open file) if given.

    A module is recorded on `args` in evaluation mode. `dynamic_axes` ({"name": {0: "batch"}} or {"name": [0]}, by `input_names`) or
    `dynamic_shapes` (as of arete.export.export) say which sizes may differ. `opset_version` is 18 (the default) to 21.

    ImportError without the package onnx; NotImplementedError names an operator that ONNX has no counterpart of here.

    >>> arete.onnx.export(3)
    Traceback (most recent call last):
    TypeError: onnx.export(): a module or a program is exported, not int
    """
    if isinstance(model, _ExportedProgram) or isinstance(model, _ScriptModule):
        if args not in ((), None) and not isinstance(model, _ScriptModule) or dynamic_axes or dynamic_shapes:
            raise ValueError("onnx.export(): a program that is recorded has its arguments and sizes")
        recorded, record, tensors = model._recorded, None, []
        if recorded.form.get("training"):
            raise RuntimeError("onnx.export(): the program was recorded in training mode; record the module after eval()")
    elif isinstance(model, _Module):
        if dynamic_axes and dynamic_shapes:
            raise ValueError("onnx.export(): dynamic_axes and dynamic_shapes say the same: give one")

        def dynamic(form: dict, tensors: list) -> tuple[list, list]:
            if dynamic_axes:
                names = list(input_names or _input_names(model, args, kwargs, state))
                if len(names) != len(tensors):
                    raise ValueError(f"onnx.export(): {len(names)} input_names are given for {len(tensors)} inputs")
                return _dynamic_axes(dynamic_axes, names, output_names), []
            return _dynamic(form, tensors, dynamic_shapes) if dynamic_shapes else ([], [])

        args, kwargs = args if isinstance(args, tuple) else (args,), kwargs or {}
        state = _state_of(model)

        def record(whole: Any = None) -> Any:
            modes = [(m, m.training) for m in model.modules()]
            model.eval()
            try:
                return _Recorded.record(model, args, kwargs, what="onnx.export()", kind="exported", state=state, dynamic=dynamic,
                                        whole=whole, training=False)
            finally:
                for m, training in modes:
                    m.training = training

        recorded = record()
        tensors = recorded.tensors_of(args, kwargs)
    else:
        raise TypeError(f"onnx.export(): a module or a program is exported, not {type(model).__name__}")
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise ImportError("onnx.export() needs the package onnx: pip install onnx") from None
    program = ONNXProgram(_model_of(recorded, record, tensors, input_names, output_names, opset_version or 18))
    if f is not None:
        program.save(f)
    return program
