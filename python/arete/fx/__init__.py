"""Modules taken apart into graphs of their calls, changed, and made modules again: torch.fx.

A graph is recorded by calling a module with stand-ins (`Proxy`) for its inputs; branches on their values are refused. What runs is Python
that the graph is written as.

>>> class Net(arete.nn.Module):
...     def forward(self, x):
...         return arete.relu(x) + 1
>>> program = arete.fx.symbolic_trace(Net())
>>> print(program.code.strip())
def forward(self, x):
    relu = arete.relu(x);  x = None
    add = relu + 1;  relu = None
    return add
>>> for node in program.graph.nodes:
...     if node.target is arete.relu:
...         node.target = arete.sigmoid
>>> _ = program.recompile()
>>> program(arete.zeros(1))
tensor([1.5000])
"""
from __future__ import annotations

from .graph import CodeGen, Graph
from .graph_module import GraphModule
from .interpreter import Interpreter, Transformer
from .node import Node, has_side_effect, map_aggregate, map_arg
from .proxy import Proxy, TraceError, TracerBase
from .subgraph_rewriter import replace_pattern
from .tracer import PH, Tracer, symbolic_trace, wrap

__all__ = ["CodeGen", "Graph", "GraphModule", "Interpreter", "Node", "PH", "Proxy", "TraceError", "Tracer", "TracerBase", "Transformer",
           "has_side_effect", "map_aggregate", "map_arg", "replace_pattern", "symbolic_trace", "wrap"]
