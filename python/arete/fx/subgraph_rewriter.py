"""Parts of a graph that look like a function are replaced by another one.

>>> class Net(arete.nn.Module):
...     def forward(self, x, y):
...         return arete.relu(x + y) * 2
>>> program = arete.fx.symbolic_trace(Net())
>>> found = arete.fx.replace_pattern(program, lambda a, b: arete.relu(a + b), lambda a, b: arete.maximum(a, b))
>>> len(found), program(arete.tensor([1.0]), arete.tensor([3.0])).item()
(1, 6.0)
"""
from __future__ import annotations

from typing import Any, Callable, Iterator, NamedTuple, Optional

from .graph import Graph
from .graph_module import GraphModule, _copy_attr
from .node import Node, map_arg
from .tracer import symbolic_trace

__all__ = ["Match", "replace_pattern"]


class Match(NamedTuple):
    """A part that was replaced: the node that gave the pattern's (first) result, and what each node of the pattern stood for."""

    anchor: Node
    nodes_map: dict


def _graph_of(what: Any) -> Graph:
    return what if isinstance(what, Graph) else what.graph if isinstance(what, GraphModule) else symbolic_trace(what).graph


def _results(graph: Graph) -> list:
    """The nodes that a graph returns."""
    found: list = []
    map_arg(graph.output_node().args, found.append)
    return found


def _fits(p: Any, g: Any, known: dict) -> bool:
    """Whether what a node of the pattern (or an argument of one) says holds for one of the graph; fills `known`."""
    if isinstance(p, Node):
        if p in known:
            return known[p] is g
        if p.op == "placeholder":
            known[p] = g
            return True
        if not isinstance(g, Node) or p.op != g.op or p.target != g.target or any(
                g is other for q, other in known.items() if q.op != "placeholder"):
            return False
        known[p] = g
        return _fits(p.args, g.args, known) and _fits(p.kwargs, g.kwargs, known)
    if isinstance(p, (tuple, list)):
        return isinstance(g, (tuple, list)) and len(p) == len(g) and all(_fits(a, b, known) for a, b in zip(p, g))
    if isinstance(p, dict):
        return isinstance(g, dict) and p.keys() == g.keys() and all(_fits(p[k], g[k], known) for k in p)
    if isinstance(p, slice):
        return isinstance(g, slice) and _fits((p.start, p.stop, p.step), (g.start, g.stop, g.step), known)
    return type(p) is type(g) and p == g


def _matches(results: list, nodes: list, known: dict) -> Iterator[dict]:
    """What the pattern's nodes stand for, in each of the ways in which its results can be found."""
    if not results:
        yield known
        return
    for g in nodes:
        more = dict(known)
        if _fits(results[0], g, more):
            yield from _matches(results[1:], nodes, more)


def replace_pattern(gm: GraphModule, pattern: Any, replacement: Any) -> list[Match]:
    """Finds where the graph computes what `pattern` does (a function, a module or a GraphModule), and computes there what `replacement`
    does, whose arguments are those of the pattern in their order. Arguments of the pattern stand for anything; what else it computes than
    its results must be used in no other place. Of matches that share nodes the first one counts, and none whose arguments are computed
    from its results.

    ValueError for a pattern that computes nothing, and for a replacement with other arguments or another number of results.
    """
    wanted, new = _graph_of(pattern), _graph_of(replacement)
    inputs = [n for n in wanted.nodes if n.op == "placeholder"]
    results, new_results = _results(wanted), _results(new)
    if not results or any(r.op == "placeholder" for r in results):
        raise ValueError("replace_pattern: the pattern must compute its results")
    if len(inputs) != sum(n.op == "placeholder" for n in new.nodes) or len(results) != len(new_results):
        raise ValueError("replace_pattern: pattern and replacement must have the same numbers of arguments and results")
    inner = {n for n in wanted.nodes if n.op not in ("placeholder", "output")} - set(results)
    order = {n: i for i, n in enumerate(gm.graph.nodes)}
    taken: set = set()
    chosen: list[dict] = []
    for first in list(gm.graph.nodes):
        start: dict = {}
        if not _fits(results[0], first, start):
            continue
        for known in _matches(results[1:], list(gm.graph.nodes), start):
            own = {known[p] for p in known if p.op != "placeholder"}
            if own & taken or any(user not in own for p in inner if p in known for user in known[p].users):
                continue
            taken |= own
            chosen.append(known)
            break
    done: list[Match] = []
    replaced: dict[Node, Any] = {}  # results of matches before
    for known in chosen:
        known = {p: replaced.get(g, g) if isinstance(g, Node) and p.op == "placeholder" else g for p, g in known.items()}
        late = _dependents(known, results) if len(results) > 1 else set()
        if any(p.op == "placeholder" and isinstance(g, Node) and g in late for p, g in known.items()):
            continue  # together its results would depend on themselves
        order = {n: i for i, n in enumerate(gm.graph.nodes)} if late else order
        values = {q: known.get(p) for p, q in zip(inputs, (n for n in new.nodes if n.op == "placeholder"))}
        last = max((known[r] for r in results), key=lambda n: order[n])
        with gm.graph.inserting_before(last):
            _take_attributes(gm, replacement, new)
            gm.graph.graph_copy(new, values)
        for n in sorted((n for n in late if order[n] < order[last]), key=lambda n: order[n]):
            last.prepend(n)  # behind the new nodes
        for r, q in zip(results, new_results):
            known[r].replace_all_uses_with(values[q])
            replaced[known[r]] = values[q]
        for n in sorted((known[p] for p in known if p.op != "placeholder"), key=lambda n: order[n], reverse=True):
            gm.graph.erase_node(n)
        done.append(Match(known[results[0]], known))
    if done:
        gm.recompile()
    return done


def _dependents(known: dict, results: list) -> set:
    """The nodes beside the match that are computed from its results."""
    own = {g for p, g in known.items() if p.op != "placeholder"}
    found: set = set()
    new = [u for r in results for u in known[r].users]
    while new:
        n = new.pop()
        if n not in found and n not in own:
            found.add(n)
            new += n.users
    return found


def _take_attributes(gm: GraphModule, replacement: Callable, graph: Graph) -> None:
    """Modules and parameters that the replacement names and the module has not."""
    root: Optional[Any] = replacement if hasattr(replacement, "named_modules") else graph.owning_module
    for node in graph.nodes:
        if node.op in ("call_module", "get_attr") and root is not None and not _has(gm, node.target):
            _copy_attr(root, gm, node.target)


def _has(module: Any, path: str) -> bool:
    for part in path.split("."):
        module = getattr(module, part, None)
    return module is not None
