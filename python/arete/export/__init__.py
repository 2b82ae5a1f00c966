"""`arete.export`: a module's calls as a program with a signature, under torch.export's names (docs/program.md).

    ep = arete.export.export(net, (x,), dynamic_shapes={"x": {0: arete.export.Dim("batch")}})
    arete.export.save(ep, "net.arete")
    arete.export.load("net.arete").module()(x)
"""
from __future__ import annotations

import base64 as _base64
import io as _io
from typing import Any

from .._program import ProgramModule as _ProgramModule, Recorded as _Recorded, check_module as _check_module, state_of as _state_of
from ..nn import Module as _Module
from ..serialization import load as _load_tensors, save as _save_tensors
from ..utils import _pytree
from . import dynamic_shapes as dynamic_shapes, exported_program as exported_program, graph_signature as graph_signature
from .dynamic_shapes import AdditionalInputs, Dim, ShapesCollection, _check_dynamic, _dynamic, _one_by_one, dims
from .exported_program import ExportedProgram
from .graph_signature import (
    ArgumentSpec as ArgumentSpec, ConstantArgument as ConstantArgument, ExportBackwardSignature, ExportGraphSignature,
    InputKind as InputKind, InputSpec as InputSpec, OutputKind as OutputKind, OutputSpec as OutputSpec, TensorArgument as TensorArgument,
)

__all__ = ["AdditionalInputs", "Dim", "ExportBackwardSignature", "ExportGraphSignature", "ExportedProgram", "ShapesCollection", "dims",
           "draft_export", "export", "load", "register_dataclass", "save", "unflatten"]


def export(mod: Any, args: tuple, kwargs: dict | None = None, *, dynamic_shapes: Any = None, strict: bool = False,
           preserve_module_call_signature: tuple = ()) -> ExportedProgram:
    """The calls that a module makes on example arguments, with a signature.

    `dynamic_shapes` says which sizes may differ: a dict by the names of forward's arguments, or a tuple in their order, of what is said
    of each: for a tensor a dict from dimensions to Dims (or Dim.AUTO, Dim.DYNAMIC, None), or a tuple of such; for trees trees. The
    module is recorded with three values of each, so integers that it computes from them are right for all; a loop over a dynamic size,
    or a branch on a value, is a ValueError with its line. The program shares its parameters with the module.

    `strict=True` and `preserve_module_call_signature` are refused: Python runs while recording, and modules leave no trace.

    >>> net = arete.nn.Linear(4, 2)
    >>> ep = arete.export.export(net, (arete.ones(3, 4),), dynamic_shapes={"input": {0: arete.export.Dim("batch", max=64)}})
    >>> arete.equal(ep.module()(arete.ones(9, 4)), net(arete.ones(9, 4)))
    True
    >>> ep.module()(arete.ones(65, 4))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    arete.ArgumentError: Expected input 'input' at dimension 0 to be <= 64, but got 65. ...
    """
    if not isinstance(mod, _Module):
        raise ValueError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    if not isinstance(args, tuple):
        raise ValueError(f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}")
    if strict:
        raise NotImplementedError("export(): strict=True is an analysis of Python's code; calls are recorded (strict=False)")
    if preserve_module_call_signature:
        raise NotImplementedError("export(): modules inside leave nothing but their calls in a program")
    _check_module(mod)
    if isinstance(dynamic_shapes, (AdditionalInputs, ShapesCollection)):
        dynamic_shapes = dynamic_shapes.dynamic_shapes(mod, args, kwargs)
    dynamic_shapes = _one_by_one(mod.forward, len(args), dynamic_shapes)
    kept: list = []

    def dynamic(form: dict, tensors: list) -> tuple[list, list]:
        kept[:] = form, tensors
        return _dynamic(form, tensors, dynamic_shapes) if dynamic_shapes else ([], [])

    recorded = _Recorded.record(mod, args, kwargs or {}, what="export()", kind="exported", state=_state_of(mod), dynamic=dynamic,
                               training=mod.training)
    if dynamic_shapes:
        _check_dynamic(recorded.program, *kept, dynamic_shapes)
    return ExportedProgram(recorded, (args, kwargs or {}))


def draft_export(mod: Any, args: tuple, kwargs: dict | None = None, *, dynamic_shapes: Any = None,
                 preserve_module_call_signature: tuple = (), strict: bool = False) -> ExportedProgram:
    """export(): it records with real values, and an error says what cannot be a program; there is no report to read afterwards.

    >>> arete.export.draft_export(arete.nn.ReLU(), (arete.ones(2),)).module()(arete.tensor([-1.0, 1.0]))
    tensor([0., 1.])
    """
    return export(mod, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict,
                  preserve_module_call_signature=preserve_module_call_signature)


def register_dataclass(cls: type, *, serialized_type_name: str | None = None) -> None:
    """Makes a dataclass a kind of argument and result of programs (and of utils._pytree), which tensors are in. In a program that was
    loaded a named tuple stands for it.

    >>> import dataclasses
    >>> Pair = dataclasses.make_dataclass("Pair", ["a", "b"])
    >>> arete.export.register_dataclass(Pair)
    >>> class Net(arete.nn.Module):
    ...     def forward(self, pair):
    ...         return Pair(pair.a + pair.b, pair.b)
    >>> ep = arete.export.export(Net(), (Pair(arete.ones(1), arete.ones(1)),))
    >>> ep.module()(Pair(arete.ones(1), arete.zeros(1)))
    Pair(a=tensor([1.]), b=tensor([0.]))
    """
    _pytree.register_dataclass(cls, serialized_type_name=serialized_type_name)


_MOST_OF_EXAMPLES = 16 << 20


def save(ep: ExportedProgram, f: Any, *, extra_files: dict | None = None) -> None:
    """Writes a program to a path or an open file, with its example inputs, if they have no more than 16 MiB; `extra_files`: texts or
    bytes by name, which load() gives back.

    >>> import io
    >>> file = io.BytesIO()
    >>> arete.export.save(arete.export.export(arete.nn.ReLU(), (arete.ones(2),)), file)
    >>> _ = file.seek(0)
    >>> arete.export.load(file).module()(arete.tensor([-1.0, 1.0]))
    tensor([0., 1.])
    """
    if not isinstance(ep, ExportedProgram):
        raise TypeError(f"The 'ep' parameter must be an instance of 'ExportedProgram', got '{type(ep).__name__}' instead.")
    if ep.example_inputs is not None:
        tensors = [t.detach() for t in ep._recorded.tensors_of(*ep.example_inputs)]
        if sum(t.numel() * t.element_size() for t in tensors) <= _MOST_OF_EXAMPLES:
            file = _io.BytesIO()
            _save_tensors(tensors, file)
            ep._recorded.program.set_metadata("examples", _base64.b64encode(file.getvalue()).decode())
    ep._recorded.save(f, extra_files)


def load(f: Any, *, extra_files: dict | None = None) -> ExportedProgram:
    """A program from a path or an open file, which may be hostile: OSError says what is wrong with it. What jit.save() wrote is read,
    too.

    >>> arete.export.load("no such file")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    OSError: cannot open 'no such file': No such file or directory...
    """
    recorded = _Recorded.load(f, extra=extra_files)
    text, examples = recorded.program.metadata().get("examples"), None
    if text is not None:
        try:
            tensors = _load_tensors(_io.BytesIO(_base64.b64decode(text, validate=True)), map_location=recorded.program.device())
            examples = recorded.arguments(tensors) if recorded.program.fits(tensors) else None
        except Exception:  # a hostile file may hold anything
            raise OSError("load: the file says nothing sensible about the example inputs of its program") from None
    return ExportedProgram(recorded, examples)


def unflatten(module: ExportedProgram, flat_args_adapter: Any = None) -> _ProgramModule:
    """A module that runs the program, with its parameters and buffers in a tree of modules; those inside cannot be called or replaced.

    >>> net = arete.nn.Sequential(arete.nn.Linear(2, 2), arete.nn.ReLU())
    >>> arete.export.unflatten(arete.export.export(net, (arete.ones(1, 2),))).get_parameter("0.weight").shape
    arete.Size([2, 2])
    """
    if flat_args_adapter is not None:
        raise NotImplementedError("unflatten(): flat_args_adapter: arguments are those of the recording")
    return module.module()
