"""Graphs run node by node."""
from __future__ import annotations

from typing import Any

from .graph import Graph
from .graph_module import GraphModule
from .node import Node, map_arg
from .proxy import Proxy
from .tracer import Tracer

__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Runs the graph of a GraphModule; subclasses say what becomes of each kind of node.

    >>> program = arete.fx.symbolic_trace(lambda x: (x + 1).exp())
    >>> arete.fx.Interpreter(program).run(arete.zeros(1))
    tensor([2.7183])
    """

    def __init__(self, module: Any, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module, self.graph = module, module.graph if graph is None else graph
        self.submodules = dict(module.named_modules())
        self.garbage_collect_values = garbage_collect_values
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"

    def run(self, *args: Any, initial_env: dict | None = None, enable_io_processing: bool = True) -> Any:
        self.env = dict(initial_env or {})
        self.args_iter = iter(args)
        last = {n: node for node in self.graph.nodes for n in node.all_input_nodes} if self.garbage_collect_values else {}
        for node in self.graph.nodes:
            if node not in self.env:
                try:
                    self.env[node] = self.run_node(node)
                except Exception as error:
                    if hasattr(error, "add_note"):
                        error.add_note(f"While executing {node.format_node()}")
                    raise
            if node.op == "output":
                return self.env[node]
            for n in node.all_input_nodes:
                if last.get(n) is node:
                    del self.env[n]
        return None

    def boxed_run(self, args_list: list) -> Any:
        args = list(args_list)
        args_list.clear()
        return self.run(*args)

    def run_node(self, n: Node) -> Any:
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Any, args: tuple, kwargs: dict) -> Any:
        if target.startswith("*"):  # run() takes no arguments by name
            return {} if target.startswith("**") else list(self.args_iter)
        for value in self.args_iter:
            return value
        if args:
            return args[0]
        raise RuntimeError(f"Expected positional argument for parameter {target}, but one was not passed in!")

    def get_attr(self, target: Any, args: tuple, kwargs: dict) -> Any:
        return self.fetch_attr(target)

    def call_function(self, target: Any, args: tuple, kwargs: dict) -> Any:
        return target(*args, **kwargs)

    def call_method(self, target: Any, args: tuple, kwargs: dict) -> Any:
        return getattr(args[0], target)(*args[1:], **kwargs)

    def call_module(self, target: Any, args: tuple, kwargs: dict) -> Any:
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Any, args: tuple, kwargs: dict) -> Any:
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        at = self.module
        for part in target.split("."):
            if not hasattr(at, part):
                raise RuntimeError(f"Node referenced nonexistent target {target}")
            at = getattr(at, part)
        return at

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple:
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Any, n: Node) -> Any:
        return map_arg(args, lambda node: self.env[node])


class Transformer(Interpreter):
    """Makes a GraphModule of another one, node by node: methods give what stands for the results."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.new_graph = Graph()

        class OfTransformer(Tracer):
            def __init__(self, graph: Graph) -> None:
                super().__init__()
                self.graph, self.root = graph, module

            def is_leaf_module(self, m: Any, name: str) -> bool:
                return True

        self.tracer = OfTransformer(self.new_graph)

    def placeholder(self, target: Any, args: tuple, kwargs: dict) -> Any:
        return Proxy(self.new_graph.placeholder(target, default_value=args[0] if args else ...), self.tracer)

    def get_attr(self, target: Any, args: tuple, kwargs: dict) -> Any:
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Any, args: tuple, kwargs: dict) -> Any:
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def call_function(self, target: Any, args: tuple, kwargs: dict) -> Any:
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(self, target: Any, args: tuple, kwargs: dict) -> Any:
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def transform(self) -> GraphModule:
        result = super().run()
        if result is not None:
            self.new_graph.output(map_proxies(result))
        return GraphModule(self.module, self.new_graph)


def map_proxies(result: Any) -> Any:
    from .node import map_aggregate

    return map_aggregate(result, lambda a: a.node if isinstance(a, Proxy) else a)
