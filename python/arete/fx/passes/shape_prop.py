"""Sizes and dtypes of a graph's values, found by running it."""
from __future__ import annotations

from typing import Any, NamedTuple

from ... import _C
from ..._operators import channels_last, channels_last_3d, contiguous_format
from ..interpreter import Interpreter
from ..node import Node

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """What a tensor looks like; `is_quantized` and `qparams` are those of tensors that do not exist here."""

    shape: _C.Size
    dtype: _C.dtype
    requires_grad: bool
    stride: tuple
    memory_format: Any
    is_quantized: bool
    qparams: dict


def _metadata(value: Any) -> Any:
    """The same tree with the metadata of its tensors; others are None."""
    if isinstance(value, _C.Tensor):
        formats = (contiguous_format, *({4: (channels_last,), 5: (channels_last_3d,)}.get(value.dim(), ())))
        order = next((f for f in formats if value.is_contiguous(memory_format=f)), None)
        return TensorMetadata(value.shape, value.dtype, value.requires_grad, value.stride(), order, False, {})
    if isinstance(value, (tuple, list)):
        return type(value)(map(_metadata, value)) if type(value) in (tuple, list) else tuple(map(_metadata, value))
    return {k: _metadata(v) for k, v in value.items()} if isinstance(value, dict) else None


def _has_tensors(metadata: Any) -> bool:
    if isinstance(metadata, TensorMetadata):
        return True
    parts = metadata.values() if isinstance(metadata, dict) else metadata if isinstance(metadata, (tuple, list)) else ()
    return any(map(_has_tensors, parts))


class ShapeProp(Interpreter):
    """Runs a graph, and leaves what its values look like in `meta["tensor_meta"]` of the nodes and their types in `meta["type"]`.

    >>> from arete.fx.passes.shape_prop import ShapeProp
    >>> program = arete.fx.symbolic_trace(arete.nn.Linear(2, 3))
    >>> _ = ShapeProp(program).propagate(arete.ones(4, 2))
    >>> [tuple(node.meta["tensor_meta"].shape) for node in program.graph.nodes]
    [(4, 2), (4, 3), (4, 3)]
    """

    def __init__(self, gm: Any, fake_mode: Any = None) -> None:
        if fake_mode is not None:
            raise NotImplementedError("ShapeProp: graphs run with the tensors that they are given: for sizes alone with those of meta")
        super().__init__(gm)

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        metadata = _metadata(result)
        if _has_tensors(metadata):
            n.meta["tensor_meta"] = metadata
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """run()."""
        return self.run(*args)
