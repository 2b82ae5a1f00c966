"""compile(backend=f): what a function calls as a graph, which f, a function of the program, makes runnable.

Each call runs the Python of the function, while its calls of operators are recorded (arete._program) on copies of the tensors that it is
given; writes and random numbers are undone. It runs once more where a tensor that is no leaf is written into, which the copies at first
are, and where a module gets a buffer. What a function does to its arguments that is no call of an operator would be
lost: it is refused. The same list of calls is the same graph, which f has seen; what f gave for it then computes
the results. So nothing is guarded and nothing can be stale, at the price that operators run while recording, too.
"""
from __future__ import annotations

import contextlib
import inspect
import json
import keyword
import re
import types
from typing import Any, Callable, Iterator

from . import _C, compiler
from ._operators import strided
from ._program import Recorded, _apart, check_module, state_of
from .amp.autocast_mode import autocast
from .fx import Graph, GraphModule, Node
from .fx.experimental._program_graph import Writer, show
from .nn import Module
from .random import _no_new_states
from .utils import _pytree

__all__ = ["GraphProgram"]

_MOST = 64  # graphs of a function: the oldest is let go
_TENSOR = object()  # stands for one
_KEPT = (type(None), bool, int, float, complex, str, bytes, _C.dtype, _C.device, _C.Size)


@contextlib.contextmanager
def _without_autocast() -> Iterator[None]:
    """The casts of autocast are calls of the graph."""
    with autocast("cpu", enabled=False), autocast("cuda", enabled=False):
        yield


def _graph_of(recorded: Recorded, text: str) -> tuple[GraphModule, list[int]]:
    """The graph, whose inputs are the tensors of the state that it uses and then those that were given, and which of the state these
    are."""
    j = json.loads(text)
    graph, attributes, values = Graph(), {}, {}
    count = len(j["inputs"])
    for k, (name, tensor, kind, _) in enumerate(recorded.program.state()[: len(j["constants"])]):
        values[count + k] = graph.placeholder(f"{'p' if kind == 'parameter' else 'b'}_{name.replace('.', '_')}")
        values[count + k].meta["val"] = tensor.detach().to("meta")
    for k, x in enumerate(j["inputs"]):
        values[k] = graph.placeholder(x["name"])
        show(values[k], x)
    state = [values[count + k] for k in range(len(j["constants"]))]
    Writer(j, has_gradients=_C.is_grad_enabled()).write(graph, attributes, values)
    graph.output(tuple(values[k] for k in j["outputs"]))
    used = [k for k, node in enumerate(state) if node.users]
    for node in state:
        if not node.users:
            graph.erase_node(node)
    return GraphModule(attributes, graph), used


def _signature_of(function: Callable, args: tuple, kwargs: dict, tensors: dict) -> inspect.Signature:
    """Names for the tensors among the arguments, by id, in their order."""
    try:
        bound: dict = inspect.signature(function.forward if isinstance(function, Module) else function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        bound = {**{f"input_{k}": a for k, a in enumerate(args)}, **kwargs}
    names: dict[int, str] = {}
    try:
        for path, x in _pytree.tree_flatten_with_path(bound)[0]:
            names.setdefault(id(x), re.sub(r"\W+", "_", _pytree.keystr(path)).strip("_"))
    except ValueError:  # a class whose places have no names
        pass
    own = [names.get(key, "") for key in tensors]
    own = _apart([n if n.isidentifier() and not keyword.iskeyword(n) else f"input_{k}" for k, n in enumerate(own)], [])
    return inspect.Signature([inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in (*_apart(["owner"], own), *own)])


def _lost(what: str) -> NotImplementedError:
    return NotImplementedError(f"compile(backend=): the function {what}, which is no call of an operator: a graph would leave it out. Give "
                               "what it makes as a result, or do it outside of the function")


def _no_hook(*_: Any, **__: Any) -> Any:
    raise _lost("sets retain_grad() or a hook on an argument")


class _Copy:
    """The copy of an argument that a function sees, made as the argument is."""

    def __init__(self, copy: Any, x: Any) -> None:
        if type(copy) is not type(x):
            copy.__class__ = type(x)
        vars(copy).update(vars(x))
        for name in ("register_hook", "register_post_accumulate_grad_hook", *(() if x.is_leaf else ("retain_grad",))):
            setattr(copy, name, _no_hook)
        if x.is_leaf and x.grad is not None:
            copy.grad = x.grad
        self.copy, self.before = copy, self._state_of(copy)

    @staticmethod
    def _state_of(copy: Any) -> tuple:
        return copy.requires_grad, type(copy), copy.grad, dict(vars(copy))

    def check(self) -> None:
        """NotImplementedError for what is another than before."""
        for name, here, there in zip(("requires_grad", "__class__", "grad"), self._state_of(self.copy), self.before):
            if here is not there:
                raise _lost(f"sets {name} of an argument")
        here, there = vars(self.copy), self.before[-1]
        if here.keys() != there.keys() or any(here[k] is not there[k] for k in here):
            raise _lost("sets an attribute of an argument")


def _places(tensors: list) -> list:
    """How tensors lie in memory, and which of them in the same."""
    first: dict[int, tuple[int, int]] = {}
    found: list = []
    for k, x in enumerate(tensors):
        if x.layout is not strided:
            found.append(str(x.layout))
        elif x.numel() == 0 or x.is_meta:
            found.append(x.stride())
        else:
            offset = x.storage_offset()
            which, start = first.setdefault(x.untyped_storage().data_ptr(), (k, offset))
            found.append((x.stride(), which, offset - start))
    return found


class GraphProgram(compiler._Program):
    """A compiled function whose lists of calls a backend of the program runs."""

    def __init__(self, backend: Callable, more: dict, name: str) -> None:
        super().__init__(False, True, name)
        self._backend, self._more = backend, more
        self._graphs: dict[tuple, tuple[Callable, list[int], str]] = {}
        self._calls = 0

    def __reduce__(self) -> tuple:
        return GraphProgram, (self._backend, self._more, self._made_by[2])

    def reset(self) -> None:
        self._graphs.clear()
        self._calls = 0

    def stats(self) -> dict:
        """How many calls there were, and graphs for the backend."""
        return {"calls": self._calls, "graphs": len(self._graphs)}

    def explain(self, format: str = "text", file: Any = None) -> "str | None":
        """The calls, and the graphs as Python."""
        if format != "text":
            raise NotImplementedError("explain(): what a backend of the program does is not known: its graphs are told as text")
        text = f"{self._made_by[2]}: {self._calls} calls of {len(self._graphs)} graphs for a backend of the program\n"
        return compiler._hand_out(text + "\n".join(code for *_, code in self._graphs.values()), file)

    def run(self, function: Callable, args: tuple, kwargs: dict) -> Any:
        if compiler._stance == "force_eager" or _C._is_recording_program():  # a part of another program
            return _C._call_eagerly(function, args, kwargs)
        return _C._call_eagerly(self._run, (function, args, kwargs), {})

    def _run(self, function: Callable, args: tuple, kwargs: dict) -> Any:
        leaves, form = _pytree.tree_flatten((args, kwargs), is_leaf=_pytree._check_whole)
        tensors = {id(x): x for x in leaves if isinstance(x, _C.Tensor)}  # one that is given twice is one input
        place = {key: k for k, key in enumerate(tensors)}
        rest: list = []
        form_of_results: Any = None
        of_result: list = []

        def flat(_: Any, *given: Any) -> list:
            nonlocal rest, form_of_results
            copies, seed = [_Copy(c, x) for c, x in zip(given, tensors.values())], _C.default_generator.initial_seed()
            own = [given[place[id(x)]] if id(x) in place else x for x in leaves]
            own_args, own_kwargs = _pytree.tree_unflatten(own, form)
            result = function(*own_args, **own_kwargs)
            left, form_left = _pytree.tree_flatten((own_args, own_kwargs), is_leaf=_pytree._check_whole)
            if form_left != form or any(x is not y for x, y in zip(left, own)):
                raise _lost("changes what is in a list, dict or object among its arguments")
            for copy in copies:
                copy.check()
            if _C.default_generator.initial_seed() != seed:
                raise _lost("sets a seed or state of random numbers")
            rest, form_of_results = _pytree.tree_flatten(result, is_leaf=_pytree._check_whole)
            for x in rest:
                if not isinstance(x, (_C.Tensor, *_KEPT)):
                    raise TypeError(f"compile(backend=): a graph gives tensors, numbers and texts in trees, and no {type(x).__qualname__}: "
                                    "utils._pytree.register_pytree_node() says what is in objects of a class")
            found = [x for x in rest if isinstance(x, _C.Tensor)]
            of_result[:] = [x for x in found if not any(x is c for c in given)]
            rest = [_TENSOR if isinstance(x, _C.Tensor) else x for x in rest]
            return found

        owner = function if isinstance(function, Module) else getattr(function, "__self__", None)
        if isinstance(function, Module):
            check_module(function)
        method = types.MethodType(flat, owner if isinstance(owner, Module) else self)
        flat.__signature__ = _signature_of(function, args, kwargs, tensors)  # type: ignore[attr-defined]
        with compiler._recording_graph(), _no_new_states("compile(backend=)"):
            recorded = Recorded.record(method, tuple(tensors.values()), {}, what="compile(backend=)", kind="function",
                                       no_gradients=not _C.is_grad_enabled())
        text, state = recorded.program.text(for_file=False), recorded.program.state()
        everything = [*[s[1] for s in state], *tensors.values()]
        for x in of_result:
            if x.requires_grad and (x.is_leaf and not any(x is t for t in everything) or not any(t.requires_grad for t in everything)):
                raise _lost("sets requires_grad of a tensor that it makes")
            if not x.is_leaf and x.retains_grad:
                raise _lost("calls retain_grad() of a result")
        key = text, _C.is_grad_enabled(), *[x.requires_grad for x in everything], *_places(everything)
        if key not in self._graphs:
            if len(self._graphs) >= _MOST:
                self._graphs.pop(next(iter(self._graphs)))
            graph, used = _graph_of(recorded, text)
            code = graph.code
            run = self._backend(graph, [*[state[k][1] for k in used], *tensors.values()], **self._more)
            if not callable(run):
                raise TypeError(f"compile(backend=): a backend gives a function, not {type(run).__name__}")
            self._graphs[key] = run, used, code
        run, used, _ = self._graphs[key]
        self._calls += 1
        given = [*[state[k][1] for k in used], *tensors.values()]
        with _without_autocast():
            found = run(given) if getattr(run, "_boxed_call", False) else run(*given)
        found = list(found) if isinstance(found, (tuple, list)) else [found]
        if len(found) != recorded.counts[1]:
            raise RuntimeError(f"compile(backend=): the backend's function gave {len(found)} results of a graph that has "
                               f"{recorded.counts[1]}")
        left = iter(found)
        return _pytree.tree_unflatten([next(left) if x is _TENSOR else x for x in rest], form_of_results)
