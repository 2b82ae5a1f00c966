"""What the inputs, outputs and state of a program are."""
from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any, Union

__all__ = ["ArgumentSpec", "ConstantArgument", "ExportBackwardSignature", "ExportGraphSignature", "InputKind", "InputSpec", "OutputKind",
           "OutputSpec", "TensorArgument"]


class InputKind(enum.Enum):
    """What an input of a program is. Programs have no objects and no tokens.

    >>> arete.export.graph_signature.InputKind.PARAMETER.name
    'PARAMETER'
    """

    USER_INPUT = 1
    PARAMETER = 2
    BUFFER = 3
    CONSTANT_TENSOR = 4
    CUSTOM_OBJ = 5
    TOKEN = 6


class OutputKind(enum.Enum):
    """What an output of a program is: here always USER_OUTPUT, since programs write into what they change.

    >>> arete.export.graph_signature.OutputKind.USER_OUTPUT.name
    'USER_OUTPUT'
    """

    USER_OUTPUT = 1
    LOSS_OUTPUT = 2
    BUFFER_MUTATION = 3
    PARAMETER_MUTATION = 4
    GRADIENT_TO_PARAMETER = 5
    GRADIENT_TO_USER_INPUT = 6
    USER_INPUT_MUTATION = 7
    TOKEN = 8


@dataclasses.dataclass
class TensorArgument:
    """A tensor of a program, by its name.

    >>> arete.export.graph_signature.TensorArgument("x")
    TensorArgument(name='x')
    """

    name: str


@dataclasses.dataclass
class ConstantArgument:
    """A value that is no tensor.

    >>> arete.export.graph_signature.ConstantArgument("n", 3).value
    3
    """

    name: str
    value: Any = None


ArgumentSpec = Union[TensorArgument, ConstantArgument]


@dataclasses.dataclass
class InputSpec:
    """An input: its kind, the name it has in the program (`arg.name`), the name of the state that it is, if it is one (`target`), and
    whether a buffer is saved (`persistent`).

    >>> arete.export.export(arete.nn.Linear(2, 2), (arete.ones(1, 2),)).graph_signature.input_specs[0].arg
    TensorArgument(name='p_weight')
    """

    kind: InputKind
    arg: ArgumentSpec
    target: str | None
    persistent: bool | None = None

    def __str__(self) -> str:
        target = "" if self.target is None else f" target={self.target!r}"
        return f"{self.arg.name}: {self.kind.name}{target}" + ("" if self.persistent is None else f" persistent={self.persistent}")


@dataclasses.dataclass
class OutputSpec:
    """An output: its kind and the name that it has in the program's graph (`arg.name`).

    >>> arete.export.export(arete.nn.ReLU(), (arete.ones(2),)).graph_signature.output_specs[0].arg
    TensorArgument(name='relu')
    """

    kind: OutputKind
    arg: ArgumentSpec
    target: str | None

    def __str__(self) -> str:
        return f"{self.arg.name}: {self.kind.name}" + ("" if self.target is None else f" target={self.target!r}")


@dataclasses.dataclass
class ExportBackwardSignature:
    """Which outputs are gradients: no program has this, gradients go through its calls.

    >>> print(arete.export.export(arete.nn.ReLU(), (arete.ones(2),)).graph_signature.backward_signature)
    None
    """

    gradients_to_parameters: dict
    gradients_to_user_inputs: dict
    loss_output: str


# What torch calls state of a kind among a program's inputs.
_STATE = {"parameter": ("p", InputKind.PARAMETER), "buffer": ("b", InputKind.BUFFER), "constant": ("c", InputKind.CONSTANT_TENSOR)}


def placeholder_name(name: str, kind: str) -> str:
    """The name of a graph's input that is a tensor of the state."""
    return f"{_STATE[kind][0]}_{name.replace('.', '_')}"


@dataclasses.dataclass
class ExportGraphSignature:
    """What the inputs, outputs and state of a program are called; `input_specs` has the state before the inputs, as torch has.

    >>> arete.export.export(arete.nn.Linear(2, 2), (arete.ones(1, 2),)).graph_signature.parameters
    ('weight', 'bias')
    """

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]
    written: tuple[str, ...] = ()  # state that the program writes into

    def _targets(self, kind: InputKind) -> tuple[str, ...]:
        return tuple(s.target for s in self.input_specs if s.kind is kind and s.target is not None)

    def _by_name(self, kind: InputKind) -> Mapping[str, str]:
        return {s.arg.name: s.target for s in self.input_specs if s.kind is kind and s.target is not None}

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters."""
        return self._targets(InputKind.PARAMETER)

    @property
    def buffers(self) -> tuple[str, ...]:
        """The names of the buffers."""
        return self._targets(InputKind.BUFFER)

    @property
    def non_persistent_buffers(self) -> frozenset[str]:
        """Of the buffers those that are not saved."""
        return frozenset(s.target for s in self.input_specs if s.kind is InputKind.BUFFER and s.persistent is False and s.target)

    @property
    def lifted_tensor_constants(self) -> tuple[str, ...]:
        """The names of other tensors that the program holds."""
        return self._targets(InputKind.CONSTANT_TENSOR)

    @property
    def lifted_custom_objs(self) -> tuple[str, ...]:
        """None: programs hold tensors alone."""
        return ()

    @property
    def user_inputs(self) -> tuple[str, ...]:
        """The names of what a call gives."""
        return tuple(s.arg.name for s in self.input_specs if s.kind is InputKind.USER_INPUT)

    @property
    def user_outputs(self) -> tuple[str, ...]:
        """The names of the results in the graph."""
        return tuple(s.arg.name for s in self.output_specs)

    @property
    def inputs_to_parameters(self) -> Mapping[str, str]:
        """Parameters by the names of the graph's inputs."""
        return self._by_name(InputKind.PARAMETER)

    @property
    def inputs_to_buffers(self) -> Mapping[str, str]:
        """Buffers by the names of the graph's inputs."""
        return self._by_name(InputKind.BUFFER)

    @property
    def inputs_to_lifted_tensor_constants(self) -> Mapping[str, str]:
        """Other tensors by the names of the graph's inputs."""
        return self._by_name(InputKind.CONSTANT_TENSOR)

    @property
    def buffers_to_mutate(self) -> Mapping[str, str]:
        """The state that the program writes into, by its own names: no outputs stand for it."""
        return {name: name for name in self.written}

    @property
    def backward_signature(self) -> None:
        """None: gradients go through the program's calls."""
        return None

    def __str__(self) -> str:
        return "\n".join(["# inputs", *map(str, self.input_specs), "", "# outputs", *map(str, self.output_specs), ""])


def signature_of(program: Any, results: list[str]) -> ExportGraphSignature:
    """That of a program, whose results have these names."""
    inputs = [InputSpec(_STATE[kind][1], TensorArgument(placeholder_name(name, kind)), name, lasting if kind == "buffer" else None)
              for name, _, kind, lasting in program.state()]
    inputs += [InputSpec(InputKind.USER_INPUT, TensorArgument(i[0]), None) for i in program.inputs()]
    outputs = [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(name), None) for name in results]
    return ExportGraphSignature(inputs, outputs, tuple(program.written()))
