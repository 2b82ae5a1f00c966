"""What becomes of functions of DTensors that are not computed element by element: products and reductions have rules of their own; anything
else is computed on whole tensors, the same in all processes."""
from __future__ import annotations

import functools
import math
from typing import Any, Callable

from ... import _C, _operators
from ...autograd import Function
from ...nn import functional as F
from ...utils import _pytree
from ._dtensor import HANDLERS, DTensor, Spec, _Tensor, spread_over
from ._parts import Plan, beside, by_parts, check_plain, check_regular, computed, run
from ._random import agree
from ._redistribute import part_of
from .placement_types import Partial, Placement, Replicate, Shard

__all__ = ["on_whole_tensors"]


# ---- products


def _labels(a: Any, b: Any) -> tuple[list, list]:
    """For each dimension of two factors its place in the product, or None for the one that is summed over."""
    batch = max(a.dim() - 2, b.dim() - 2, 0)

    def of(x: Any, rest: list) -> list:
        return [batch - (x.dim() - 2) + i for i in range(x.dim() - 2)] + rest

    last = batch + (a.dim() > 1)
    return of(a, [batch, None] if a.dim() > 1 else [None]), of(b, [None, last] if b.dim() > 1 else [None])


def _agreed(d: int, a: DTensor, b: DTensor, labels: tuple) -> tuple[Placement, Placement, Placement]:
    """How the factors and the product lie along a dimension of the mesh: as the first that is in parts asks for, if the other can follow
    without messages, and else whole."""
    places = [Replicate() if isinstance(x._spec.placements[d], Partial) else x._spec.placements[d] for x in (a, b)]
    found = [labels[i][p.dim] if isinstance(p, Shard) else ... for i, p in enumerate(places)]
    if found[0] is ... and found[1] is ...:
        return Replicate(), Replicate(), Replicate()
    if found[0] is not ... and found[1] is not ... and found[0] != found[1]:
        places[1], found[1] = Replicate(), ...  # becomes whole
    place = found[0] if found[0] is not ... else found[1]
    for i, x in enumerate((a, b)):
        if place in labels[i]:
            at = labels[i].index(place)
            own = places[i].dim if isinstance(places[i], Shard) else at
            if x.shape[own] == 1 and place is not None:  # is repeated along a batch
                places[i] = Replicate()
            elif not isinstance(places[i], Shard):
                places[i] = Shard(at)
    if not any(isinstance(p, Shard) for p in places):
        return places[0], places[1], Replicate()
    return places[0], places[1], Partial() if place is None else Shard(place)


def _product(a: Any, b: Any) -> DTensor:
    """a @ b: rows of a, columns of b, batches of both or terms of their sums in different processes, as they lie."""
    mesh = (a if isinstance(a, DTensor) else b)._spec.mesh
    for x in (a, b):
        check_plain("matmul", x)
    a, b = spread_over(a, mesh), spread_over(b, mesh)
    if a._spec.mesh != mesh or b._spec.mesh != mesh:
        raise ValueError("matmul: the tensors are on different meshes")
    return computed("matmul", _plan_product, (a, b), {})


def _plan_product(a: DTensor, b: DTensor) -> Plan:
    mesh, shape = a._spec.mesh, _shape_of_product(tuple(a.shape), tuple(b.shape))
    for x in (a, b):
        check_regular("matmul", x)
    labels = _labels(a, b)
    agreed = [_agreed(d, a, b, labels) for d in range(mesh.ndim)]
    places = tuple(p[2] for p in agreed)
    if any(isinstance(p, Partial) for p in places[:-1]) and any(isinstance(p, Shard) for p in places):
        # Terms of sums are kept along one dimension of the mesh only where nothing is in parts along another.
        agreed = [(Replicate(),) * 3 if isinstance(p[2], Partial) else p for p in agreed]
        places = tuple(p[2] for p in agreed)
    lie = [tuple(p[i] for p in agreed) for i in range(2)]
    return Plan(_operators.matmul, Spec(mesh, places, shape), tuple((wanted, beside(wanted, places)) for wanted in lie))


@functools.lru_cache(1024)
def _shape_of_product(a: tuple, b: tuple) -> Any:
    return _C.Size(_operators.matmul(_operators.empty(a, device="meta"), _operators.empty(b, device="meta")).shape)


def _summed(x: DTensor) -> DTensor:
    """Without terms of sums."""
    places = tuple(Replicate() if isinstance(p, Partial) else p for p in x._spec.placements)
    return x if places == x._spec.placements else x.redistribute(placements=places)


def _linear(input: Any, weight: Any, bias: Any = None) -> DTensor:  # noqa: A002
    turned = weight
    if isinstance(weight, DTensor) and weight.dim() == 2:
        turned = computed("linear", _plan_turned, (weight,), {})
    elif weight.dim() > 1:
        turned = weight.transpose(0, 1)
    product = _product(input, turned)
    return product if bias is None else _summed(product) + bias


def _plan_turned(weight: DTensor) -> Plan:
    check_regular("linear", weight)
    spec = weight._spec
    places = tuple(Shard(1 - p.dim) if isinstance(p, Shard) else p for p in spec.placements)
    return Plan(lambda w: w.transpose(0, 1), Spec(spec.mesh, places, _C.Size(spec.shape[::-1])))


def _addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1, out: Any = None) -> DTensor:  # noqa: A002
    _refuse_out("addmm", out)
    product = _summed(_product(mat1, mat2))
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    return product + (input if beta == 1 else input * beta)


# ---- reductions


def _reduction(name: str, /, *args: Any, **kwargs: Any) -> Any:
    return computed(name, functools.partial(_plan_reduction, name), args, kwargs)


def _plan_reduction(name: str, input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, axis: Any = None,  # noqa: A002
                    keepdims: bool = False, out: Any = None) -> Any:
    _refuse_out(name, out)
    dim, keepdim = dim if axis is None else axis, keepdim or keepdims
    kept = {"sum": "sum", "mean": "avg", "amax": "max", "amin": "min"}[name]
    alone = all(p.is_replicate() or p.is_partial(kept) for p in input._spec.placements)
    # What is so of terms is so of theirs.
    lies = input._spec.placements if alone and dtype is None and input.dtype != _C.bool else _like(input)
    check_regular(name, input)
    mesh, shape, n = input._spec.mesh, tuple(input.shape), input.dim()
    over = {d % n for d in ((dim,) if isinstance(dim, int) else dim)} if n and dim not in (None, (), []) else set(range(n))
    cut = [p.dim for p in lies if isinstance(p, Shard) and p.dim in over]
    largest = bool(cut) and name in ("amax", "amin")
    if largest and (input.requires_grad or any(shape[d] < 2 * mesh.size() for d in cut)) or cut and any(
            isinstance(p, Shard) and p.dim not in over for p in lies):
        # A largest element has its gradient in one process, and needs an element in each; parts of terms are not redistributed.
        return on_whole_tensors(getattr(_operators, name), name, (input, *(() if dim is None else (dim,))),
                                {**({"keepdim": keepdim} if dim is not None else {}), **({"dtype": dtype} if dtype else {})})
    more, dims, own = {"dtype": dtype} if dtype else {}, sorted(over), part_of(shape, mesh, lies)[0]
    count = math.prod(shape[d] for d in dims)
    number = math.prod(mesh.size(d) for d, p in enumerate(lies) if isinstance(p, Shard))
    alike = bool(cut) and number * math.prod(own[d] for d in dims) == count
    places: list[Placement] = []
    for p in lies:
        if not isinstance(p, Shard):
            places.append(p)
        elif p.dim in over:
            places.append(Partial("sum" if name == "mean" and not alike else kept))
        else:
            places.append(Shard(p.dim if keepdim else p.dim - sum(d < p.dim for d in over)))
    sizes = [1 if d in over else size for d, size in enumerate(shape) if keepdim or d not in over]
    if name == "mean":
        kind = _operators.empty(1, dtype=input.dtype, device="meta").mean(**more).dtype  # of integers there is none
        wide = _C.float32 if kind in (_C.float16, _C.bfloat16) else kind

        def of_part(local: Any) -> Any:
            if alike and local.requires_grad and _C.is_grad_enabled():
                return _MeanOfPart.apply(local, dims, keepdim, kind, count)
            if alike or not n:
                return local.mean(dims, keepdim=keepdim, dtype=kind)
            return (local.sum(dims, keepdim=keepdim, dtype=wide) / count).to(kind)
    else:
        def of_part(local: Any) -> Any:
            return getattr(local, name)(dims, keepdim=keepdim, **more)
    plan = Plan(of_part, Spec(mesh, tuple(places), _C.Size(sizes)), ((lies, ()),))
    return run(plan, (input,), {}) if largest else plan  # another one with a gradient is done otherwise


class _MeanOfPart(Function):
    """The mean of one of several equally large parts. The gradient is that of the mean of all their elements, `count` of them."""

    @staticmethod
    def forward(ctx: Any, x: Any, dims: list, keepdim: bool, dtype: Any, count: int) -> Any:
        ctx.shape, ctx.dtype, ctx.dims, ctx.count = x.shape, x.dtype, dims, count
        return x.mean(dims, keepdim=keepdim, dtype=dtype)

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple:
        whole = [1 if d in ctx.dims else n for d, n in enumerate(ctx.shape)]
        return (g.reshape(whole) / ctx.count).to(ctx.dtype).expand(ctx.shape), None, None, None, None


# ---- anything else


# What draws numbers by other operators.
_DRAWS = frozenset(("normal", "svd_lowrank", "pca_lowrank", "gumbel_softmax"))
# What is done to a tensor itself, of which a whole one would be another.
_OF_ITSELF = frozenset(("backward", "record_stream"))


def _refusal(name: str) -> Exception:
    return NotImplementedError(f"{name}: there is no such operator on tensors that are spread over processes; take to_local() or "
                               "full_tensor(), or give the module to parallelize_module or fully_shard")


def _refuse_out(name: str, out: Any) -> None:
    if out is not None:
        raise _refusal(f"{name} with out=")


def _is_random(name: str) -> bool:
    try:
        return bool(_C._record_facts(name)["random"])
    except KeyError:
        return name in _DRAWS or "dropout" in name or name.startswith("rand")


def on_whole_tensors(func: Callable, name: str, args: tuple, kwargs: dict) -> Any:
    """The function of whole tensors, which each process gathers: results are whole, too, and the same in all processes."""
    if name in _OF_ITSELF:
        raise _refusal(name)
    _refuse_out(name, kwargs.get("out"))
    leaves, form = _pytree.tree_flatten((args, kwargs))
    spread = [a for a in leaves if isinstance(a, DTensor)]
    mesh = spread[0]._spec.mesh
    for a in leaves:
        if isinstance(a, DTensor) and a._spec.mesh != mesh:
            raise ValueError(f"{name}: the tensors are on different meshes")
        check_plain(name, a)
    if _is_random(name) or kwargs.get("dropout_p"):
        agree(mesh, spread[0].device)
    args, kwargs = _pytree.tree_unflatten([a.full_tensor() if isinstance(a, DTensor) else a for a in leaves], form)
    return _pytree.tree_map(lambda y: spread_over(y, mesh) if isinstance(y, _Tensor) else y, func(*args, **kwargs))


def _whole_weight(a: Any) -> Any:
    return a.redistribute() if isinstance(a, DTensor) else a


# Functions that compute each row by itself: where the rows are not cut they are computed part by part.
def _rowwise(name: str, func: Callable, x: Any, args: tuple, kwargs: dict, rows: Callable) -> Any:
    if isinstance(x, DTensor):
        x = _summed(x)
        cut = {p.dim for p in x._spec.placements if isinstance(p, Shard)}
        if not cut & set(rows(x)):
            return by_parts(func, name, (x, *map(_whole_weight, args)), {k: _whole_weight(v) for k, v in kwargs.items()})
    return on_whole_tensors(func, name, (x, *args), kwargs)


def _softmax(name: str) -> Callable:
    func = getattr(_operators, name)

    def handler(input: Any, dim: Any = None, *args: Any, **kwargs: Any) -> Any:  # noqa: A002
        return _rowwise(name, func, input, (dim, *args), kwargs, lambda x: [dim % x.dim() if dim is not None and x.dim() else 0])

    return handler


def _norm(name: str) -> Callable:
    func = getattr(_operators, name)

    def handler(input: Any, normalized_shape: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A002
        return _rowwise(name, func, input, (normalized_shape, *args), kwargs,
                        lambda x: range(x.dim() - len(normalized_shape), x.dim()))

    return handler


def _product_of(second: str) -> Callable:
    """A product under the names of an operator's arguments."""

    def handler(input: Any, *args: Any, out: Any = None, **kwargs: Any) -> DTensor:  # noqa: A002
        _refuse_out("matmul", out)
        (other,) = args or (kwargs.pop(second),)
        return _product(input, other)

    return handler


def _like(x: DTensor) -> tuple:
    """How something lies that is made after the likeness of a tensor."""
    return tuple(Replicate() if isinstance(p, Partial) else p for p in x._spec.placements)


def _kept(whole: Any, x: DTensor) -> DTensor:
    """Of what all processes have made alike the part that this one has of `x`."""
    return spread_over(whole, x._spec.mesh).redistribute(placements=_like(x))


def _drawing(name: str) -> Callable:
    """Numbers after the likeness of a tensor, or drawn for each of its elements."""
    func = getattr(_operators, name)

    def handler(input: Any, *args: Any, requires_grad: bool = False, **kwargs: Any) -> Any:  # noqa: A002
        agree(input._spec.mesh, input.device)
        if name.endswith("_like"):
            like = _operators.empty(tuple(input.shape), dtype=input.dtype, device=input.device)
        else:
            like = input.full_tensor()
        return _kept(func(like, *args, **kwargs), input).requires_grad_(requires_grad)

    return handler


def _dropping(name: str, default: bool) -> Callable:
    """Where nothing is left out, no numbers are drawn; else all processes draw which factors the elements of the whole tensor have."""
    func = getattr(F, name, None) or getattr(_operators, name)

    def handler(input: Any, p: float = 0.5, training: bool = default, inplace: bool = False, **kwargs: Any) -> Any:  # noqa: A002
        if not kwargs.get("train", training) or p == 0.0:
            return input
        if "alpha" in name:  # which adds, too
            result = on_whole_tensors(func, name, (input, p, True), {}).redistribute(placements=_like(input))
        else:
            agree(input._spec.mesh, input.device)
            factors = func(_operators.ones(tuple(input.shape), dtype=input.dtype, device=input.device), p, True)
            result = _summed(input) * _kept(factors, input)
        return input.copy_(result) if inplace else result

    return handler


def _full_like(input: Any, fill_value: Any, *, requires_grad: bool = False, **kwargs: Any) -> Any:  # noqa: A002
    return DTensor(_operators.full_like(input.to_local(), fill_value, **kwargs), Spec(input._spec.mesh, _like(input), input.shape),
                   requires_grad)


def _new(name: str) -> Callable:
    """A new tensor, which lies as this one does if it has the same shape, and else is whole in all processes."""

    def handler(input: Any, size: Any, *args: Any, requires_grad: bool = False, **kwargs: Any) -> Any:  # noqa: A002
        strides: tuple = ()
        if isinstance(size, int):  # one after the other
            size, args = (size, *args), ()
        elif name == "new_empty_strided":
            strides, *args = args
        size, mesh = tuple(size), input._spec.mesh
        places = _like(input) if size == tuple(input.shape) else (Replicate(),) * mesh.ndim
        own, _ = part_of(size, mesh, places)
        if name == "new_empty_strided":
            order = sorted(range(len(size)), key=lambda d: (-strides[d], d))
            like = input.to_local().new_empty([own[d] for d in order], *args, **kwargs)
            local = like.permute(*(order.index(d) for d in range(len(size)))) if order else like
        else:
            local = getattr(input.to_local(), name)(own, *args, **kwargs)
        made = DTensor(local.detach(), Spec(mesh, places, _C.Size(size)), requires_grad)
        if strides and made.stride() != tuple(strides):
            raise _refusal(f"{name} with gaps or repeated elements")
        return made

    return handler


def _loss(name: str) -> Callable:
    """A loss of each element, added up or averaged."""
    func = getattr(F, name)

    def handler(input: Any, target: Any, *args: Any, reduction: Any = "mean", **kwargs: Any) -> Any:  # noqa: A002
        if args or set(kwargs) - {"beta", "delta"} or reduction not in ("mean", "sum", "none"):
            return on_whole_tensors(func, name, (input, target, *args), {"reduction": reduction, **kwargs})
        each = by_parts(functools.partial(func, reduction="none", **kwargs), name, (input, target), {})
        return each if reduction == "none" else _reduction(reduction, each)

    return handler


# ---- views, and functions along one dimension


def _places_of_view(shown: Any, probe: Any, places: tuple) -> Any:
    """How a view of a tensor lies that has other strides for each dimension; None: a dimension that is in parts is not there any more."""
    out: list[Placement] = []
    for p in places:
        if isinstance(p, Shard):
            step, size = probe.stride(p.dim), probe.shape[p.dim]
            at = [d for d in range(shown.dim()) if shown.stride(d) == step and shown.shape[d] == size]
            if len(at) != 1:
                return None
            p = Shard(at[0])
        out.append(p)
    return tuple(out)


def _plan_view(name: str, func: Callable, x: DTensor, /, *args: Any, **kwargs: Any) -> Any:
    """A function that only looks at a tensor in another way: at each process' part, if what is divided stays whole in it, and else at all
    of the tensor."""
    mesh, shape = x._spec.mesh, tuple(x.shape)
    if name == "__getitem__":
        index = args[0] if isinstance(args[0], tuple) else (args[0],)
        if not all(i is None or i is Ellipsis or isinstance(i, slice) or type(i) is int for i in index):
            return on_whole_tensors(func, name, (x, *args), kwargs)
    if name == "squeeze":
        given = args[0] if args else kwargs.get("dim", tuple(range(len(shape))))
        dims = tuple(d for d in ((given,) if isinstance(given, int) else given) if shape[d] == 1)
        if not dims:
            return Plan(lambda local: local.view_as(local), x._spec)
        args, kwargs = (dims,), {}
    steps, step = [0] * len(shape), 1
    for d in reversed(range(len(shape))):
        steps[d] = step
        step *= shape[d] + 1
    probe = _operators.empty_strided(shape, steps, device="meta")
    shown = func(probe, *args, **kwargs)
    leaves = list(shown) if isinstance(shown, (tuple, list)) else [shown]
    places = [_places_of_view(y, probe, x._spec.placements) for y in leaves]
    cut = {p.dim for p in x._spec.placements if isinstance(p, Shard)}
    # What an argument says of sizes along a dimension is of the whole one.
    at = {"narrow": 0, "split": 1, "tensor_split": 1}.get(name)
    counted = at is not None and kwargs.get("dim", args[at] if len(args) > at else 0) % len(shape) in cut
    if x._spec.part is not None or None in places or counted:
        return on_whole_tensors(func, name, (x, *args), kwargs)
    if name == "expand":
        args = args or (kwargs["size"],)
        sizes = list(args[0] if len(args) == 1 and not isinstance(args[0], int) else args)
        new = len(sizes) - len(shape)
        args, kwargs = (tuple(-1 if i >= new and i - new in cut else n for i, n in enumerate(sizes)),), {}
    specs = [Spec(mesh, p, _C.Size(whole.shape)) for p, whole in zip(places, leaves)]
    return Plan(lambda local: func(local, *args, **kwargs), specs if isinstance(shown, (tuple, list)) else specs[0])


def _looking(name: str) -> Callable:
    func = getattr(_Tensor, name)
    planner = functools.partial(_plan_view, name, func)
    return lambda *args, **kwargs: computed(name, planner, args, kwargs)


# Functions that compute along one dimension, the place of which is here among their arguments, and what it is if not given.
_ALONG: dict[str, tuple[int, Any]] = {
    **{name: (0, None) for name in ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "logsumexp", "prod", "argmax", "argmin", "all",
                                    "any", "flip", "var", "std", "index_select")},
    "median": (0, None), **{name: (0, -1) for name in ("sort", "argsort", "mode")}, "topk": (1, -1), "kthvalue": (1, -1),
    "roll": (1, None)}


def _along(name: str) -> Callable:
    func, (at, default) = getattr(_operators, name, None) or getattr(_Tensor, name), _ALONG[name]

    def handler(input: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A002
        _refuse_out(name, kwargs.get("out"))
        dims = next((kwargs[k] for k in ("dims", "dim", "axis") if k in kwargs), args[at] if len(args) > at else default)
        if name == "flip" and type(dims) is int:  # one after the other
            dims = args
        elif type(dims) is int:
            dims = (dims,)
        rest = [a for a in (*args, *kwargs.values()) if isinstance(a, _Tensor)]
        listed = isinstance(dims, (tuple, list)) and dims and all(type(d) is int for d in dims)
        if not isinstance(input, DTensor) or not listed or any(isinstance(a, DTensor) and _like(a) != (Replicate(),) * a._spec.mesh.ndim
                                                               for a in rest):
            return on_whole_tensors(func, name, (input, *args), kwargs)
        x = _summed(input)
        over = {d % max(x.dim(), 1) for d in dims}
        if x._spec.part is not None or any(isinstance(p, Shard) and p.dim in over for p in x._spec.placements):
            return on_whole_tensors(func, name, (input, *args), kwargs)
        local = [a.to_local() if isinstance(a, DTensor) else a for a in args]
        own = func(x.to_local(), *local, **{k: v.to_local() if isinstance(v, DTensor) else v for k, v in kwargs.items()})

        def made(y: Any) -> DTensor:
            gone = over if y.dim() < x.dim() else set()
            places = tuple(Shard(p.dim - sum(d < p.dim for d in gone)) if isinstance(p, Shard) else p for p in x._spec.placements)
            shape = [n for d, n in enumerate(x.shape) if d not in gone]
            for k, n in enumerate(y.shape):
                if not any(isinstance(p, Shard) and p.dim == k for p in places):
                    shape[k] = n
            return DTensor._of(y, Spec(x._spec.mesh, places, _C.Size(shape)))

        return type(own)(list(map(made, own))) if isinstance(own, tuple) else made(own)  # with its names

    return handler


def _joined(name: str) -> Callable:
    """cat and stack: the tensors come to lie as the first that is in parts, unless that is along the dimension that joins them."""
    func = getattr(_operators, name)

    def handler(tensors: Any, dim: int = 0, *, out: Any = None) -> Any:
        _refuse_out(name, out)
        spread = [x for x in tensors if isinstance(x, DTensor)]
        first = next((x for x in spread if any(isinstance(p, Shard) for p in x._spec.placements)), spread[0] if spread else None)
        if first is None or any(x.dim() != first.dim() or x._spec.part is not None for x in spread) or len(spread) < len(tensors):
            return on_whole_tensors(func, name, (tensors, dim), {})
        dim = dim % (first.dim() + (name == "stack"))
        places = _like(first)
        if name == "cat" and any(isinstance(p, Shard) and p.dim == dim for p in places):
            return on_whole_tensors(func, name, (tensors, dim), {})
        meta = func([_operators.empty(tuple(x.shape), dtype=x.dtype, device="meta") for x in tensors], dim)
        local = func([x.redistribute(first._spec.mesh, places).to_local() for x in tensors], dim)
        shift = [Shard(p.dim + (name == "stack" and p.dim >= dim)) if isinstance(p, Shard) else p for p in places]
        return DTensor._of(local, Spec(first._spec.mesh, tuple(shift), _C.Size(meta.shape)))

    return handler


HANDLERS.update({name: _drawing(name) for name in ("rand_like", "randn_like", "randint_like", "bernoulli")})
HANDLERS.update({name: _new(name) for name in ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros")})
HANDLERS["full_like"] = _full_like
HANDLERS.update({name: _looking(name) for name in (
    "__getitem__", "adjoint", "chunk", "expand", "moveaxis", "movedim", "narrow", "permute", "select", "split", "squeeze", "swapdims", "t",
    "tensor_split", "unbind", "unsqueeze")})
HANDLERS["expand_as"] = lambda input, other: HANDLERS["expand"](input, *other.shape)  # noqa: A006
HANDLERS.update({name: _along(name) for name in _ALONG})
HANDLERS.update({name: _joined(name) for name in ("cat", "concat", "stack")})
HANDLERS.update({name: _dropping(name, "alpha" not in name) for name in (
    "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")})
HANDLERS.update({name: _product_of(second) for name, second in (
    ("matmul", "other"), ("__matmul__", "other"), ("mm", "mat2"), ("bmm", "mat2"), ("mv", "vec"))})
HANDLERS["anything else"] = on_whole_tensors
# A text is of this process' part, so that one process may print alone.
HANDLERS["__format__"] = lambda x, spec: format(x.item(), spec) if spec and x.dim() == 0 else format(repr(x), spec)
# So is a number, as in PyTorch: of what is no terms it is the same in all.
HANDLERS.update({name: functools.partial(lambda name, x: getattr(x.to_local(), name)(), name) for name in (
    "item", "__bool__", "__complex__", "__float__", "__index__", "__int__")})
HANDLERS["type_as"] = lambda x, other: x.to(other.dtype)
HANDLERS.update(__rmatmul__=lambda b, a: _product(a, b), linear=_linear, addmm=_addmm)
HANDLERS.update({name: functools.partial(_reduction, name) for name in ("sum", "mean", "amax", "amin")})
HANDLERS.update({name: _loss(name) for name in ("huber_loss", "l1_loss", "mse_loss", "smooth_l1_loss")})
HANDLERS.update({name: _softmax(name) for name in ("softmax", "log_softmax")})
HANDLERS.update({name: _norm(name) for name in ("layer_norm", "rms_norm")})
