"""What becomes of functions of DTensors: those that are computed element by element, only move elements or write to them are computed
part by part; the rules of others are in _rules.py."""
from __future__ import annotations

import contextlib
import functools
import math
import threading
from typing import Any, Callable, Iterator, NamedTuple, Optional, Sequence

from ... import _C, _operators
from ...autograd import Function
from ...utils import _pytree
from .. import distributed_c10d as c10d
from ._dtensor import HANDLERS, DTensor, Spec, _Tensor, _with_history, spread_over
from ._parameters import DRAWN
from ._random import agree
from ._redistribute import placed
from .placement_types import Partial, Placement, Replicate, Shard

__all__ = ["Plan", "by_parts", "check_plain", "check_regular", "computed", "implicit_replication", "operand", "run"]

# What is the same on each part, and what is known of a tensor without its elements.
_LOCAL = frozenset(("clone", "detach", "to", "cpu", "cuda", "float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte",
                    "bool", "contiguous", "is_contiguous", "element_size", "data_ptr", "zeros_like", "ones_like", "empty_like"))
_WRITES = {f"__i{name}__": f"{method}_" for name, method in {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide", "mod": "remainder", "pow": "pow",
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift"}.items()}


def _is_in_place(name: str) -> bool:
    return name == "__setitem__" or name.endswith("_") and not name.endswith("__") and name not in ("requires_grad_", "detach_")


def called(func: Callable, name: str, types: Any, args: tuple, kwargs: dict) -> Any:
    """What a function becomes: __torch_function__ of DTensors."""
    first = args[0] if args else None
    if isinstance(first, DTensor) and first._spec.mesh.get_coordinate() is None and name not in _LOCAL:
        return _outside(func, name, first, args, kwargs)
    if name in _WRITES and isinstance(first, DTensor):
        name = _WRITES[name]
        func = getattr(_Tensor, name)
    if name in _LOCAL and isinstance(first, DTensor):
        if any(isinstance(a, _Tensor) for a in (*args[1:], *kwargs.values())):
            raise TypeError(f"{name}: a tensor is no argument of it")
        if name == "ones_like" and any(isinstance(p, Partial) for p in first.placements):
            return HANDLERS["full_like"](first, 1, **kwargs)
        local = func(first.to_local(), *args[1:], **kwargs)
        if isinstance(local, _Tensor) and local.dtype != first.dtype and not (local.is_floating_point() or local.is_complex()) and any(
                isinstance(p, Partial) for p in first.placements):  # the whole part of a sum is not the sum of whole parts
            first = first.redistribute(placements=tuple(Replicate() if isinstance(p, Partial) else p for p in first.placements))
            local = func(first.to_local(), *args[1:], **kwargs)
        return DTensor._of(local, first._spec) if isinstance(local, _Tensor) else local
    if isinstance(first, DTensor) and _is_in_place(name):
        return _written(func, name, first, args[1:], kwargs)
    if isinstance(kwargs.get("out"), DTensor):
        kwargs = dict(kwargs)
        out = kwargs.pop("out")
        result = DTensor.__torch_function__(func, types, args, kwargs)
        if tuple(result.shape) != tuple(out.shape):
            raise ValueError(f"{name}: a result of shape {tuple(result.shape)} is not written to one of shape {tuple(out.shape)}")
        return out.copy_(result)
    args, kwargs = tuple(map(_with_history, args)), {k: _with_history(a) for k, a in kwargs.items()}
    first = args[0] if args else None
    if name in _SHAPES and isinstance(first, DTensor) and not any(isinstance(a, _C.dtype) for a in args):
        return _reshaped(name, first, args[1:], kwargs)
    if name in HANDLERS:
        return HANDLERS[name](*args, **kwargs)
    plain = _plain_name(name)
    if plain in _OTHERS or (_is_elementwise(plain) and kwargs.get("out") is None and (plain != "where" or len(args) > 1)):
        return by_parts(func, plain, args, kwargs)
    return HANDLERS["anything else"](func, name, args, kwargs)


def _outside(func: Callable, name: str, x: DTensor, args: tuple, kwargs: dict) -> Any:
    """What a process that is not in the mesh gets of a function: the sizes of the result, and no elements."""
    mesh, places = x._spec.mesh, (Replicate(),) * x._spec.mesh.ndim
    if _is_in_place(name) or name in _WRITES:
        return x

    def meta(a: Any) -> Any:
        return _operators.empty(tuple(a.shape), dtype=a.dtype, device="meta") if isinstance(a, _Tensor) else a

    def made(y: Any) -> Any:
        return DTensor(_operators.empty(0, dtype=y.dtype, device=x.device), Spec(mesh, places, _C.Size(y.shape))) if isinstance(
            y, _Tensor) else y

    return _pytree.tree_map(made, func(*_pytree.tree_map(meta, args), **_pytree.tree_map(meta, kwargs)))


def _is_of_terms(name: str, x: DTensor, others: list, args: tuple, kwargs: dict, whole: Sequence[DTensor] = ()) -> bool:
    """Whether a function that is done to terms, or writes to them, does what it is to do to what they are terms of. `others`: its other
    tensors; `whole`: those that are no terms, of which _as_terms() makes some; `args`: what follows the first."""
    if any(not isinstance(a, DTensor) or a._spec != x._spec or a.dtype != x.dtype and not x.is_floating_point() for a in others):
        return False  # of integers, too: a term has another fraction than the sum
    number = len(others) + len(whole)
    if name in ("zero", "neg") or name in ("copy", "add", "sub") and number or name == "lerp" and number == 1:
        factor = None
    elif name in ("mul", "div") and not others and not kwargs.get("rounding_mode"):
        factor = (*args, kwargs.get("other"))[0]
    else:
        return False
    if whole and (not x.is_floating_point() or any(a.requires_grad for a in whole) and _C.is_grad_enabled()):
        return False
    ops = {p.reduce_op for p in x._spec.placements if isinstance(p, Partial)}
    if ops <= {"sum", "avg"} or name in ("copy", "zero"):
        return True
    return ops <= {"sum", "avg", "max", "min"} and isinstance(factor, (int, float)) and 0 < factor < math.inf


def _as_terms(name: str, a: DTensor, x: DTensor) -> Any:
    """This process' part of what is no terms as one beside the terms of `x`: a factor is what it is, of a summand each term of a sum has
    the same share."""
    mesh, places = x._spec.mesh, [Replicate() if isinstance(p, Partial) else p for p in x._spec.placements]
    own = a.redistribute(mesh, _under(a, places, x.dim())).to_local()
    if name in ("mul", "div"):
        return own
    return own / math.prod(n for n, p in zip(mesh.shape, x._spec.placements) if isinstance(p, Partial) and p.reduce_op == "sum")


def _is_linear(func: Callable, name: str, args: tuple, kwargs: dict) -> bool:
    """The same of a function that gives another tensor, whose arguments may be the wrong way round."""
    called = getattr(func, "__name__", name)
    if called == "__rmul__":
        name = "mul"
    elif called.startswith("__r") or not isinstance(args[0], DTensor) or name == "mul" and args[0].dtype == _C.bool:
        return False
    return _is_of_terms(name, args[0], [a for a in (*args[1:], *kwargs.values()) if isinstance(a, _Tensor)], args[1:], kwargs)


def _written(func: Callable, name: str, x: DTensor, args: tuple, kwargs: dict) -> DTensor:
    """A function that writes to a tensor: element by element to the parts, others lying as the tensor does; else what it makes of the whole
    tensor, of which each process keeps its part, where plain tensors are the same in all processes. Terms are written to where that is
    what is done to their sum."""
    spec, mesh = x._spec, x._spec.mesh
    others = [a for a in (*args, *kwargs.values()) if isinstance(a, _Tensor)]
    if any(isinstance(p, Partial) for p in spec.placements):
        whole = [a for a in others if isinstance(a, DTensor) and a._spec.mesh == mesh and not any(
            isinstance(p, Partial) for p in a._spec.placements)]
        terms = [a for a in others if not any(a is w for w in whole)]
        if not _is_of_terms(name[:-1], x, terms, args, kwargs, whole):
            raise NotImplementedError(f"{name}: terms of a sum are redistribute()d first")

        def term(a: Any) -> Any:
            return _as_terms(name[:-1], a, x) if any(a is w for w in whole) else a.to_local() if isinstance(a, DTensor) else a

        func(x.to_local(), *map(term, args), **{k: term(a) for k, a in kwargs.items()})
        return x
    if name in DRAWN:
        agree(mesh, x.device)
        whole = func(_operators.empty(tuple(spec.shape), dtype=x.dtype, device=x.device), *args, **kwargs)
        x.to_local().copy_(placed(whole, Spec(mesh, (Replicate(),) * mesh.ndim, spec.shape), spec.placements))
        return x
    if name == "copy_" and not isinstance(args[0], DTensor) or not _is_elementwise(name[:-1]) and name not in _ELEMENTWISE_WRITES:
        if name == "copy_" and isinstance(args[0], _Tensor) and args[0].numel() != 1:
            raise ValueError("copy_: a plain tensor is written to one that is spread over processes; distribute_tensor() it")
        check_regular(name, x)
        whole = x.full_tensor().clone()
        func(whole, *(a.full_tensor() if isinstance(a, DTensor) else a for a in args),
             **{k: a.full_tensor() if isinstance(a, DTensor) else a for k, a in kwargs.items()})
        if tuple(whole.shape) != tuple(x.shape):
            raise NotImplementedError(f"{name}: the shape of a tensor that is spread over processes is not changed in place")
        x.to_local().copy_(placed(whole, Spec(mesh, (Replicate(),) * mesh.ndim, spec.shape), spec.placements))
        return x

    def of(a: Any) -> Any:
        if not isinstance(a, _Tensor) or not isinstance(a, DTensor) and a.numel() == 1 and not a.requires_grad:
            return a
        check_plain(name, a)
        if not isinstance(a, DTensor) and a.numel() == 1:
            a = spread_over(a, mesh)
        if not isinstance(a, DTensor):
            raise ValueError(f"{name}: a plain tensor is written to one that is spread over processes; distribute_tensor() it")
        if a._spec == spec:
            return a.to_local()
        if a._spec.mesh != mesh:
            raise ValueError(f"{name}: the tensors are on different meshes")
        check_regular(name, x)
        wanted = _under(a, spec.placements, x.dim())
        return operand(a, tuple(wanted), beside(wanted, spec.placements))

    func(x.to_local(), *map(of, args), **{k: of(a) for k, a in kwargs.items()})
    return x


def _under(a: DTensor, places: Sequence[Placement], dims: int) -> list[Placement]:
    """How an operand lies for a result of so many dimensions that lies as `places` say; where it has size 1 it is whole."""
    wanted: list[Placement] = []
    for p in places:
        at = p.dim - (dims - a.dim()) if isinstance(p, Shard) else -1
        wanted.append(Shard(at) if at >= 0 and a.shape[at] != 1 else Replicate())
    return wanted


_ELEMENTWISE_WRITES = frozenset(("copy_", "zero_", "fill_", "clamp_", "clip_", "nan_to_num_", "true_divide_", "clamp_min_", "clamp_max_"))
_SHAPES = frozenset(("flatten", "reshape", "unflatten", "view"))


def _reshaped(name: str, x: DTensor, args: tuple, kwargs: dict) -> Any:
    return computed(name, functools.partial(_plan_reshaped, name), (x, *args), kwargs)


def _plan_reshaped(name: str, x: DTensor, /, *args: Any, **kwargs: Any) -> Any:
    """Another shape. The dimension that is in parts stays, or is cut or joined where its parts stay what is together: heads of features;
    else the tensor becomes whole along that dimension of the mesh first."""
    shape = tuple(x.shape)
    check_regular(name, x)
    new = list(getattr(_operators.empty(shape, device="meta"), name)(*args, **kwargs).shape)
    own, places = x._spec.offsets()[0], []
    sizes = list(new)
    for number, p in zip(x._spec.mesh.shape, x._spec.placements):
        if isinstance(p, Shard):
            before = math.prod(shape[:p.dim])
            d = next((k for k in range(len(new)) if math.prod(new[:k]) == before and new[k] > 1), len(new))
            if d < len(new) and new[d] == shape[p.dim]:
                sizes[d] = own[p.dim]
            elif d < len(new) and sizes[d] % number == 0 and shape[p.dim] % number == 0:
                sizes[d] //= number
            else:  # the parts become others
                wanted = tuple(Replicate() if p == q else q for q in x._spec.placements)
                return _reshaped(name, x.redistribute(placements=wanted), args, kwargs)
            p = Shard(d)
        places.append(p)
    return Plan(lambda local: local.reshape(sizes), Spec(x._spec.mesh, tuple(places), _C.Size(new)))


# Functions whose result has parts where their arguments have them, beside those that are computed element by element: of one tensor, and
# of several. Then functions that are made of those.
_MOVES = frozenset(("swapaxes", "transpose", "view_as_complex", "view_as_real"))
_OTHERS = _MOVES | {"scaled_dot_product_attention"}
_COMPOSED = frozenset(("clamp", "clip", "gelu", "nan_to_num", "square", "true_divide"))


@functools.lru_cache(None)
def _is_elementwise(name: str) -> bool:
    try:
        return name in _COMPOSED or bool(_C._record_facts(name)["pointwise"])
    except KeyError:
        return False


def _plain_name(name: str) -> str:
    """add of __add__ and __radd__."""
    if name.startswith("__") and name.endswith("__"):
        name = name.strip("_")
        name = {"truediv": "div", "rtruediv": "div", "radd": "add", "rsub": "sub", "rmul": "mul", "rpow": "pow", "and": "bitwise_and",
                "or": "bitwise_or", "xor": "bitwise_xor", "invert": "bitwise_not", "floordiv": "floor_divide",
                "mod": "remainder"}.get(name, name)
    return name


# ---- how functions are computed on parts


class Plan(NamedTuple):
    """How a function is computed on parts (Note [Plans])."""

    func: Optional[Callable]  # of this process' parts; None: the function itself, which gets its other arguments, too
    spec: Any  # of the result, or a list of those
    wanted: tuple = ((None, ()),)  # for each DTensor how it is to lie, None for as it does, and where it is beside parts (operand())


# Note [Plans]
# What a function becomes on parts (how its arguments come to lie, how the result does) depends on the specs and dtypes of its DTensors and
# on its other arguments, and to find out takes longer than to compute small parts. So a mesh keeps plans by these. None are kept where
# the other arguments are tensors, or a DTensor is a part of a part or knows itself how it is gathered. A factor or summand of a function
# that is computed element by element stands for all others of its type.
_MOST_PLANS = 4096
_NUMBERS = (int, float, complex)


def _key(name: str, args: tuple, kwargs: dict) -> Optional[tuple]:
    key: list = [name]
    for a in (*args, *kwargs, *kwargs.values()) if kwargs else args:
        kind = type(a)
        if kind is DTensor:
            spec = a._spec
            if spec.part is not None or spec.gather is not None:
                return None
            key += (spec, a.dtype)
        elif isinstance(a, _Tensor):
            return None
        elif kind in _NUMBERS and name in _of_any_number:
            key.append(kind)
        elif kind is slice:
            key.append(a.__reduce__())
        elif kind is tuple or kind is list:
            key.append((kind, *(i.__reduce__() if type(i) is slice else i for i in a)))
        else:
            key.append(a)
    return tuple(key)


_of_any_number: set = set()  # names of functions that are computed element by element


def computed(name: str, planner: Callable, args: tuple, kwargs: dict, func: Optional[Callable] = None) -> Any:
    """What planner(*args, **kwargs) gives, or says how to compute by a Plan, which is kept under the name. `func`: the function itself."""
    key, plans, plan = _key(name, args, kwargs), {}, None
    if key is not None:
        plans = next(k for k in key if type(k) is Spec).mesh._plans
        try:
            plan = plans.get(key)
        except TypeError:  # an argument that has no hash
            key = None
    if plan is None:
        plan = planner(*args, **kwargs)
        if type(plan) is not Plan:
            return plan
        if key is not None:
            if len(plans) >= _MOST_PLANS:
                plans.clear()
            plans[key] = plan
    return run(plan, args, kwargs, func)


def run(plan: Plan, args: tuple, kwargs: dict, func: Optional[Callable] = None) -> Any:
    """The function of the parts of these arguments."""
    lies = iter(plan.wanted)

    def part(a: Any) -> Any:
        return operand(a, *next(lies)) if isinstance(a, _Tensor) and isinstance(a, DTensor) else a

    if plan.func is None:
        own = func(*map(part, args), **{k: part(v) for k, v in kwargs.items()})  # type: ignore[misc]
    else:
        own = plan.func(*[part(a) for a in (*args, *kwargs.values()) if isinstance(a, _Tensor)])
    if type(plan.spec) is list:
        return type(own)(DTensor._of(y, spec) for y, spec in zip(own, plan.spec))
    return DTensor._of(own, plan.spec)


def beside(wanted: Sequence[Placement], places: Sequence[Placement]) -> tuple:
    """Along which dimensions of the mesh what lies as `wanted` is whole where a result that lies as `places` is in parts."""
    return tuple(d for d, (p, q) in enumerate(zip(wanted, places)) if isinstance(q, Shard) and isinstance(p, Replicate))


def operand(x: DTensor, wanted: Optional[tuple], sums: tuple = ()) -> Any:
    """This process' part of what lies as `wanted`, None for as it does; its gradient is the sum of those along the dimensions `sums` of the
    mesh, for which the result has parts."""
    own = (x if wanted is None or wanted == x._spec.placements else x.redistribute(placements=wanted)).to_local()
    if sums and own.requires_grad and _C.is_grad_enabled():
        return _OfAllParts.apply(own, [x._spec.mesh.get_group(d) for d in sums])
    return own


class _OfAllParts(Function):
    """What is whole beside something that is in parts over a dimension of the mesh: its gradient is the sum of what the parts give."""

    @staticmethod
    def forward(ctx: Any, x: Any, groups: list) -> Any:
        ctx.groups = groups
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple:
        recorded = g.requires_grad and _C.is_grad_enabled()
        return (_OfAllTerms.apply(g, ctx.groups) if recorded else _OfAllTerms.forward(None, g, ctx.groups)), None


class _OfAllTerms(Function):
    """The sum of what the processes have; the gradient is the same for each term."""

    @staticmethod
    def forward(ctx: Any, g: Any, groups: list) -> Any:
        g = g.contiguous().clone()
        for group in groups:
            c10d.all_reduce(g, group=group)
        return g

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple:
        return g, None


def check_regular(name: str, x: DTensor) -> None:
    if x._spec.part is not None:
        raise NotImplementedError(f"{name}: the tensor's parts are parts of what tensor parallelism has left; take full_tensor()")


_plain_ones = threading.local()


@contextlib.contextmanager
def implicit_replication() -> Iterator[None]:
    """A block in which plain tensors beside such that are spread over processes may require gradients: they are taken for tensors that all
    processes have alike, as others are in any case, and get the whole gradient in each."""
    before = getattr(_plain_ones, "allowed", False)
    _plain_ones.allowed = True
    try:
        yield
    finally:
        _plain_ones.allowed = before


def check_plain(name: str, a: Any) -> None:
    """NotImplementedError for a plain tensor that requires a gradient, which may be one process' own, outside of implicit_replication()."""
    if getattr(_plain_ones, "allowed", False):
        return
    if isinstance(a, _Tensor) and not isinstance(a, DTensor) and a.requires_grad and _C.is_grad_enabled():
        raise NotImplementedError(f"{name}: a plain tensor beside one that is spread over processes has no gradient; make it one by "
                                  "DTensor.from_local()")


def by_parts(func: Callable, name: str, args: tuple, kwargs: dict) -> Any:
    """The function of the parts that each process has. Plain tensors are the same in all processes, and have no gradient. Tensors that lie
    otherwise than the first that is in parts come to lie as it does; terms of sums are added first."""
    called = getattr(func, "__name__", name)
    return computed(f"{name} {called}", functools.partial(_plan_by_parts, func, name), args, kwargs, func)


def _plan_by_parts(func: Callable, name: str, /, *args: Any, **kwargs: Any) -> Any:
    spread = [a for a in (*args, *kwargs.values()) if isinstance(a, DTensor)]
    first = spread[0]._spec
    mesh = first.mesh
    if any(x._spec.mesh != mesh for x in spread):
        raise ValueError(f"{name}: the tensors are on different meshes")
    tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, _Tensor)]
    for a in tensors:
        check_plain(name, a)
    alike = all(x._spec is first or x._spec == first for x in spread)
    if alike and name not in _OTHERS and len(spread) == len(tensors):
        shape = first.shape
    else:
        def meta(a: Any) -> Any:
            return _operators.empty(tuple(a.shape), dtype=a.dtype, device="meta") if isinstance(a, _Tensor) else a

        shape = func(*map(meta, args), **{k: meta(v) for k, v in kwargs.items()}).shape
    dims, same = len(shape), alike and tuple(shape) == tuple(first.shape)
    terms = any(isinstance(p, Partial) for p in first.placements)
    if same and name not in _OTHERS and not any(a.numel() != 1 or a.requires_grad for a in tensors if not isinstance(a, DTensor)) and (
            not terms or _is_linear(func, name, args, kwargs)):
        plan = Plan(None, first, ((None, ()),) * len(spread))
        if terms:  # what is done to them depends on numbers
            return run(plan, args, kwargs, func)
        _of_any_number.add(f"{name} {getattr(func, '__name__', name)}")
        return plan
    for x in spread:
        check_regular(name, x)
    places: list[Placement] = []
    for d in range(mesh.ndim):
        found = [_out_dim(name, x, x._spec.placements[d].dim, dims, args) for x in spread if isinstance(x._spec.placements[d], Shard)]
        own = first.placements[d]
        places.append(own if name in _MOVES and isinstance(own, Partial) else
                      Replicate() if not found or found[0] is None else Shard(found[0]))

    def lies(a: DTensor) -> tuple:
        if name in _MOVES:
            wanted = [Replicate() if isinstance(p, Replicate) else a._spec.placements[d] for d, p in enumerate(places)]
        else:
            wanted = _under(a, places, dims)
        return tuple(wanted), beside(wanted, places)

    args = tuple(spread_over(a, mesh) if isinstance(a, _Tensor) else a for a in args)
    kwargs = {k: spread_over(v, mesh) if isinstance(v, _Tensor) else v for k, v in kwargs.items()}
    spread = [a for a in (*args, *kwargs.values()) if isinstance(a, DTensor)]
    plan = Plan(None, Spec(mesh, tuple(places), _C.Size(shape)), tuple(map(lies, spread)))
    return plan if all(t is a for t, a in zip(tensors, spread)) else run(plan, args, kwargs, func)


def _out_dim(name: str, x: DTensor, dim: int, dims: int, args: tuple) -> Optional[int]:
    """Where a dimension of an argument is in the result; None: it is computed of whole ones."""
    if name in ("transpose", "swapaxes"):
        a, b = (d % dims for d in args[1:3])
        return b if dim == a else a if dim == b else dim
    if name == "view_as_complex" and dim == x.dim() - 1:
        return None  # a number's two parts are in different processes
    if name == "scaled_dot_product_attention" and (x.dim() != 4 or dim > 1):
        return None  # sequences and features; of batches and heads parts are computed
    return dim if name in ("view_as_complex", "view_as_real") else dim + dims - x.dim()


HANDLERS["a call"] = called
