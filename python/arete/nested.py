"""Nested tensors: batches of sequences of different lengths, without padding.

A nested tensor of layout `jagged` has its sequences one after the other in `values()`, and where they begin and end in `offsets()`; the
dimension of the lengths is a NestedInt in its shape, and tensors that share it (`j1`) have the same lengths. Gradients flow through the
values. What works on elements, on rows and on the other dimensions does so on the values; attention and what reduces a sequence pads it.

>>> x = arete.nested.nested_tensor([arete.ones(2, 3), arete.ones(4, 3)], layout=arete.jagged)
>>> x.values().shape, x.offsets(), [len(t) for t in (x * 2).unbind()]
(arete.Size([6, 3]), tensor([0, 2, 6]), [2, 4])
>>> arete.nn.Linear(3, 5)(x).shape[2], x.to_padded_tensor(0.0).shape
(5, arete.Size([2, 4, 3]))
"""
from __future__ import annotations

import functools
import itertools
from typing import Any, Callable, Optional

from . import _C
from ._C import Tensor
from ._operators import arange, cat, jagged, repeat_interleave, strided, tensor as _tensor, where
from .nn import functional as _F

__all__ = ["as_nested_tensor", "masked_select", "narrow", "nested_tensor", "nested_tensor_from_jagged", "to_padded_tensor"]

_FUNCTIONS: dict[str, Callable] = {}  # by the names of operators and methods
_numbers = itertools.count(1)


def _function(*names: str) -> Callable:
    """Registers what operators and methods of these names do with nested tensors."""

    def register(f: Callable) -> Callable:
        _FUNCTIONS.update(dict.fromkeys(names, f))
        return f

    return register


class NestedInt:
    """The lengths of a batch as a size: equal to itself only. `max()` and `min()` wait for the device once.

    >>> x = arete.nested.nested_tensor([[1.0], [2.0, 3.0]], layout=arete.jagged)
    >>> x.shape[1] == (x + 1).shape[1], x.shape[1].max()
    (True, 2)
    """

    def __init__(self, offsets: Tensor, longest: Optional[int] = None, shortest: Optional[int] = None) -> None:
        self._number, self._offsets, self._max, self._min = next(_numbers), offsets.detach(), longest, shortest
        self._moved = {self._offsets.device: self}  # the same lengths, by where they are

    def on(self, device: Any) -> NestedInt:
        """These lengths on a device: always the same object."""
        if device not in self._moved:
            moved = NestedInt(self._offsets.to(device), self._max, self._min)
            self._moved[device], moved._moved = moved, self._moved
        return self._moved[device]

    def max(self) -> int:
        if self._max is None:
            self._max = int(self._offsets.diff().max()) if len(self._offsets) > 1 else 0
        return self._max

    def min(self) -> int:
        if self._min is None:
            self._min = int(self._offsets.diff().min()) if len(self._offsets) > 1 else 0
        return self._min

    def __repr__(self) -> str:
        return f"j{self._number}"


class NestedTensor(Tensor):
    """A tensor of layout `jagged`: made by the functions of arete.nested.

    >>> arete.nested.nested_tensor([[1.0], [2.0, 3.0]], layout=arete.jagged).exp().sum(1)
    tensor([ 2.7183, 27.4746])
    """

    _values_: Tensor
    _offsets_: Tensor
    _ragged_: int  # the dimension of the lengths; one less in the values
    _length_: NestedInt
    dtype, itemsize, element_size = Tensor.dtype, Tensor.itemsize, Tensor.element_size
    is_floating_point, is_complex = Tensor.is_floating_point, Tensor.is_complex
    layout = property(lambda self: jagged)
    is_nested = property(lambda self: True)
    device = property(lambda self: self._values_.device)
    is_cuda = property(lambda self: self._values_.is_cuda)
    is_cpu = property(lambda self: self._values_.is_cpu)
    is_meta = property(lambda self: self._values_.is_meta)
    requires_grad = property(lambda self: self._values_.requires_grad, lambda self, on: self._values_.requires_grad_(on))
    is_leaf = property(lambda self: self._values_.is_leaf)
    grad_fn = property(lambda self: self._values_.grad_fn)
    data = property(lambda self: _with(self, self._values_.data))
    grad = property(lambda self: None if self._values_.grad is None else _with(self, self._values_.grad))
    ndim = property(lambda self: self._values_.dim() + 1)
    _max_seqlen = property(lambda self: self._length_.max())
    _min_seqlen = property(lambda self: self._length_.min())
    _ragged_idx = property(lambda self: self._ragged_)

    @property
    def shape(self) -> Any:
        sizes = list(self._values_.shape)
        sizes[self._ragged_ - 1] = self._length_
        return _C.Size((len(self._offsets_) - 1, *sizes))

    def __repr__(self) -> str:  # type: ignore[override]
        history = f", grad_fn={self.grad_fn!r}" if self.grad_fn is not None else ", requires_grad=True" if self.requires_grad else ""
        return f"NestedTensor(size={tuple(self.shape)}, offsets={self._offsets_}{history}, contiguous=True)"

    def values(self) -> Tensor:
        """The sequences one after the other; what is computed with them has this tensor's history."""
        return self._values_

    def offsets(self) -> Tensor:
        """Where sequences begin, and at last where the last one ends."""
        return self._offsets_

    def lengths(self) -> None:
        """None: there are no gaps between sequences."""
        return None

    def to_padded_tensor(self, padding: float, output_size: Any = None) -> Tensor:
        """See arete.nested.to_padded_tensor()."""
        return to_padded_tensor(self, padding, output_size)

    def __len__(self) -> int:
        return len(self._offsets_) - 1

    def __iter__(self) -> Any:
        return iter(_unbind(self))

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return nested_tensor_from_jagged, (self._values_, self._offsets_, None, self._ragged_)

    def __deepcopy__(self, memo: dict) -> "NestedTensor":
        return _with(self, self._values_.detach().clone().requires_grad_(self.requires_grad))

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: Optional[dict] = None) -> Any:
        name = getattr(func, "__name__", "")
        answer = _FUNCTIONS.get(name)
        if answer is not None:
            return answer(*args, **(kwargs or {}))
        if name in _pointwise_names():
            return _on_values(func, args, kwargs or {})
        owner = getattr(func, "__self__", None)  # of an attribute: the descriptor
        name = getattr(owner, "__name__", name or func)
        raise NotImplementedError(f"{name}() has no form for nested tensors; values() has their elements, to_padded_tensor() pads them")


def _make(values: Tensor, offsets: Tensor, ragged: int = 1, length: Optional[NestedInt] = None) -> NestedTensor:
    x = Tensor._make_subclass(NestedTensor, values.new_empty((0,) * (values.dim() + 1), device="meta"))
    if length is None:
        length = getattr(offsets, "_nested_int", None) or NestedInt(offsets)
    offsets._nested_int = length  # type: ignore[attr-defined]
    x._values_, x._offsets_, x._ragged_, x._length_ = values, offsets, ragged, length
    return x


def _with(x: NestedTensor, values: Tensor, ragged: Optional[int] = None) -> NestedTensor:
    """Other values for the same lengths."""
    return _make(values, x._offsets_, x._ragged_ if ragged is None else ragged, x._length_)


# ---- elements

_SLOTS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor")


@functools.lru_cache(maxsize=None)
def _pointwise_names() -> frozenset:
    names = {name.partition(".")[0] for name in _C._record_names() if _C._record_facts(name)["pointwise"]}
    slots = {f"__{kind}{s}__" for s in _SLOTS for kind in ("", "r", "i")}
    slots |= {f"__{s}__" for s in ("neg", "pos", "abs", "invert", "eq", "ne", "lt", "le", "gt", "ge")}
    others = {"to", "type", "type_as", "float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool", "cpu", "cuda",
              "clone", "detach", "contiguous", "dropout", "alpha_dropout", "zeros_like", "ones_like", "empty_like", "full_like",
              "rand_like", "randn_like", "masked_fill", "where", "zero_", "fill_", "copy_", "gelu", "softplus", "clamp"}
    return frozenset(names | {n + "_" for n in names} | slots | others)


def _on_values(func: Any, args: tuple, kwargs: dict) -> Any:
    x = next(a for a in (*args, *kwargs.values()) if isinstance(a, NestedTensor))

    def part(a: Any) -> Any:
        if isinstance(a, NestedTensor):
            if a._length_._moved is not x._length_._moved or a._ragged_ != x._ragged_:
                raise RuntimeError(f"{func.__name__}: cannot call it with inputs of shapes {tuple(x.shape)} and {tuple(a.shape)}: their "
                                   "lengths are of different tensors (make both from the same offsets)")
            return a._values_
        return _aligned(a, x) if isinstance(a, Tensor) and a.dim() > 0 else a

    result = func(*map(part, args), **{k: part(v) for k, v in kwargs.items()})
    if result is x._values_:  # in place, or nothing to do
        return x
    if not isinstance(result, Tensor):
        return result
    if result.device == x._offsets_.device:
        return _with(x, result)
    length = x._length_.on(result.device)
    return _make(result, length._offsets.detach(), x._ragged_, length)


def _aligned(t: Tensor, x: NestedTensor) -> Tensor:
    """A plain tensor as it is broadcast over the values."""
    lead = x.ndim - t.dim()
    if lead < 0 or (lead <= x._ragged_ and t.shape[x._ragged_ - lead] != 1):
        raise RuntimeError(f"cannot broadcast a tensor of shape {tuple(t.shape)} over a nested one of shape {tuple(x.shape)}: it must have "
                           "size 1 where the lengths are")
    if lead > 0:
        return t
    if t.shape[0] == 1:
        return t.squeeze(0)
    if t.shape[0] != len(x):
        raise RuntimeError(f"cannot broadcast a tensor of shape {tuple(t.shape)} over a nested one of shape {tuple(x.shape)}")
    return repeat_interleave(t.squeeze(x._ragged_), x._offsets_.diff(), dim=0).movedim(0, x._ragged_ - 1)


def _inner(x: NestedTensor, dim: int, what: str) -> int:
    """The dimension of the values; those of the batch and of the lengths are refused."""
    d = dim + x.ndim if dim < 0 else dim
    if not 0 <= d < x.ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-x.ndim}, {x.ndim - 1}], but got {dim})")
    if d in (0, x._ragged_):
        raise RuntimeError(f"{what}(): not supported for NestedTensor on dim={d}")
    return d - 1


# ---- parts

_function("dim", "ndimension")(lambda x: x.ndim)
_function("numel", "nelement")(lambda x: x._values_.numel())
_function("is_contiguous")(lambda x, *args, **kwargs: True)
_function("tolist")(lambda x: [t.tolist() for t in _unbind(x)])
_function("size")(lambda x, dim=None: x.shape if dim is None else x.shape[dim])


@_function("requires_grad_")
def _requires_grad(x: NestedTensor, requires_grad: bool = True) -> NestedTensor:
    x._values_.requires_grad_(requires_grad)
    return x


@_function("unbind")
def _unbind(x: NestedTensor, dim: int = 0) -> tuple:
    if dim not in (0, -x.ndim):
        raise RuntimeError("unbind(): only supported for NestedTensor on dim=0")
    ends = x._offsets_.tolist()
    return tuple(x._values_.narrow(x._ragged_ - 1, a, b - a) for a, b in zip(ends, ends[1:]))


@_function("__getitem__")
def _getitem(x: NestedTensor, index: Any) -> Any:
    if isinstance(index, int):
        return _unbind(x)[index]
    index = index if isinstance(index, tuple) else (index,)
    if Ellipsis in index:
        at = index.index(Ellipsis)
        index = index[:at] + (slice(None),) * (x.ndim - len(index) + 1) + index[at + 1:]
    every = slice(None)
    if len(index) > x.ndim or any(i != every for d, i in enumerate(index) if d in (0, x._ragged_)) or not all(
            isinstance(i, slice) for i in index):
        raise RuntimeError("indexing: a nested tensor takes the number of a sequence, or slices of dimensions that are not its lengths")
    return _with(x, x._values_[index[1:]])


# ---- shapes


@_function("transpose", "swapaxes", "swapdims")
def _transpose(x: NestedTensor, a: int, b: int) -> NestedTensor:
    a, b = (d + x.ndim if d < 0 else d for d in (a, b))
    if 0 in (a, b) and a != b:
        raise RuntimeError("transpose(): not supported for NestedTensor on dim=0")
    ragged = {a: b, b: a}.get(x._ragged_, x._ragged_)
    return x if a == b else _with(x, x._values_.transpose(a - 1, b - 1), ragged)


@_function("unsqueeze")
def _unsqueeze(x: NestedTensor, dim: int) -> NestedTensor:
    d = dim + x.ndim + 1 if dim < 0 else dim
    if d == 0:
        raise RuntimeError("unsqueeze(): not supported for NestedTensor on dim=0")
    return _with(x, x._values_.unsqueeze(d - 1), x._ragged_ + (d <= x._ragged_))


@_function("squeeze")
def _squeeze(x: NestedTensor, dim: int) -> NestedTensor:
    d = _inner(x, dim, "squeeze")
    values = x._values_.squeeze(d)
    return _with(x, values, x._ragged_ - (d + 1 < x._ragged_ and values.dim() < x._values_.dim()))


@_function("flatten")
def _flatten(x: NestedTensor, start_dim: int = 0, end_dim: int = -1) -> NestedTensor:
    a, b = (d + x.ndim if d < 0 else d for d in (start_dim, end_dim))
    if a <= x._ragged_ <= b or a == 0:
        raise RuntimeError("flatten(): not supported for NestedTensor over the dimensions of the batch and the lengths")
    return _with(x, x._values_.flatten(a - 1, b - 1), x._ragged_ - (b - a if b < x._ragged_ else 0))


@_function("unflatten")
def _unflatten(x: NestedTensor, dim: int, sizes: Any) -> NestedTensor:
    d = _inner(x, dim, "unflatten")
    return _with(x, x._values_.unflatten(d, sizes), x._ragged_ + (len(sizes) - 1 if d + 1 < x._ragged_ else 0))


@_function("view", "reshape")
def _view(x: NestedTensor, *sizes: Any) -> NestedTensor:
    given = list(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else list(sizes)
    marks = [i for i, s in enumerate(given) if s is x._length_] or [i for i, s in enumerate(given) if isinstance(s, int) and s == -1]
    if len(marks) != 1 or given[0] not in (len(x), -1) or marks[0] == 0:
        raise RuntimeError(f"view(): cannot view shape {tuple(x.shape)} as {given}: the batch stays, and one size is the lengths or -1")
    place = marks[0]
    given[place] = x._values_.shape[x._ragged_ - 1]
    before = functools.reduce(lambda a, b: a * b, x._values_.shape[: x._ragged_ - 1], 1)
    if functools.reduce(lambda a, b: a * b, given[1:place], 1) != before:
        raise RuntimeError(f"view(): cannot view shape {tuple(x.shape)} as {given}: the dimensions before the lengths must stay apart from "
                           "those behind")
    return _with(x, x._values_.reshape(given[1:]), place)


def _parts(name: str) -> Callable:
    def parts(x: NestedTensor, size: Any, dim: int = 0) -> tuple:
        return tuple(_with(x, v) for v in getattr(x._values_, name)(size, _inner(x, dim, name)))

    return parts


_FUNCTIONS.update({name: _parts(name) for name in ("chunk", "split")})


@_function("cat", "concat")
def _cat(tensors: Any, dim: int = 0) -> NestedTensor:
    x = next(t for t in tensors if isinstance(t, NestedTensor))
    if not all(isinstance(t, NestedTensor) and t._ragged_ == x._ragged_ for t in tensors):
        raise RuntimeError("cat(): nested tensors are joined with nested ones")
    if dim % x.ndim == 0:
        ends, total = [tensors[0]._offsets_], tensors[0]._offsets_[-1]
        for t in tensors[1:]:
            ends.append(t._offsets_[1:] + total)
            total = total + t._offsets_[-1]
        return _make(cat([t._values_ for t in tensors], x._ragged_ - 1), cat(ends), x._ragged_)
    if any(t._length_ is not x._length_ for t in tensors):
        raise RuntimeError("cat(): the lengths of the nested tensors are of different tensors")
    return _with(x, cat([t._values_ for t in tensors], _inner(x, dim, "cat")))


# ---- rows


def _by_rows(name: str) -> Callable:
    """What works on the last dimensions does so on the values."""

    def rows(x: Any, *args: Any, **kwargs: Any) -> NestedTensor:
        taken = len(args[0]) if name in ("layer_norm", "rms_norm") and args and isinstance(args[0], (tuple, list)) else 1
        if not isinstance(x, NestedTensor) or (name != "embedding" and x._ragged_ >= x.ndim - taken):
            raise RuntimeError(f"{name}(): a nested tensor is its first argument, and its lengths are no dimension that it works on")
        if any(isinstance(a, NestedTensor) for a in (*args, *kwargs.values())):
            raise RuntimeError(f"{name}(): only the first argument may be a nested tensor")
        return _with(x, getattr(_F, name)(x._values_, *args, **kwargs))

    return rows


_FUNCTIONS.update({name: _by_rows(name) for name in ("linear", "layer_norm", "rms_norm", "embedding")})


@_function("matmul", "__matmul__")
def _matmul(x: Any, other: Any) -> NestedTensor:
    if not isinstance(x, NestedTensor) or isinstance(other, NestedTensor) or other.dim() != 2 or x._ragged_ == x.ndim - 1:
        raise RuntimeError("matmul(): a nested tensor is multiplied with a plain matrix on its right, by its last dimension")
    return _with(x, x._values_ @ other)


@_function("softmax")
def _softmax(x: NestedTensor, dim: int, *args: Any, **kwargs: Any) -> NestedTensor:
    return _along(x, dim, "softmax", -float("inf"), lambda t, d: t.softmax(d, *args, **kwargs))


@_function("log_softmax")
def _log_softmax(x: NestedTensor, dim: int, *args: Any, **kwargs: Any) -> NestedTensor:
    return _along(x, dim, "log_softmax", -float("inf"), lambda t, d: t.log_softmax(d, *args, **kwargs))


def _along(x: NestedTensor, dim: int, name: str, padding: float, f: Callable) -> NestedTensor:
    if dim % x.ndim == x._ragged_:
        return _with(x, _unpadded(f(to_padded_tensor(x, padding), x._ragged_), x))
    return _with(x, f(x._values_, _inner(x, dim, name)))


def _reduction(name: str, padding: Optional[float]) -> Callable:
    def reduce(x: NestedTensor, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Any:
        if dim is None:
            return getattr(x._values_, name)(**kwargs)
        dims = sorted({d % x.ndim for d in ([dim] if isinstance(dim, int) else dim)})
        if 0 in dims and x._ragged_ not in dims:
            raise RuntimeError(f"{name}(): reducing along the batch dimension but not the ragged dimension is not supported for nested "
                               "tensors")
        if x._ragged_ not in dims:
            result = getattr(x._values_, name)([d - 1 for d in dims], keepdim, **kwargs)
            return _with(x, result, x._ragged_ - (0 if keepdim else sum(d < x._ragged_ for d in dims)))
        if 0 in dims:
            result = getattr(x._values_, name)([d - 1 for d in dims if d], keepdim, **kwargs)
            return result.unsqueeze(0) if keepdim else result
        if padding is None:  # the mean is that of what is there
            total, others = _FUNCTIONS["sum"](x, dims, keepdim, **kwargs), [d for d in dims if d != x._ragged_]
            count = x._offsets_.diff().to(total.dtype) * functools.reduce(lambda a, d: a * x._values_.shape[d - 1], others, 1)
            return total / count.reshape(-1, *(1,) * (total.dim() - 1))
        neutral: Any = padding
        if name != "sum" and not x._values_.is_floating_point():
            dtype = x._values_.dtype
            bits, signed = 1 if dtype == _C.bool else 8 * dtype.itemsize, dtype.is_signed
            neutral = (1 << (bits - signed)) - 1 if padding > 0 else -(1 << (bits - 1)) if signed else 0
        return getattr(to_padded_tensor(x, neutral), name)(dims, keepdim, **kwargs)

    return reduce


_FUNCTIONS.update({"sum": _reduction("sum", 0.0), "mean": _reduction("mean", None), "amax": _reduction("amax", -float("inf")),
                   "amin": _reduction("amin", float("inf"))})


# ---- padding


def to_padded_tensor(input: NestedTensor, padding: Any, output_size: Any = None) -> Tensor:
    """The sequences side by side, filled up with `padding` to the longest, or to the length in output_size.

    >>> x = arete.nested.nested_tensor([arete.ones(1), arete.ones(3)], layout=arete.jagged)
    >>> arete.nested.to_padded_tensor(x, 0.0)
    tensor([[1., 0., 0.],
            [1., 1., 1.]])
    """
    x = input
    longest = x._length_.max() if output_size is None else output_size[x._ragged_]
    if longest < x._length_.max():
        raise RuntimeError(f"to_padded_tensor(): output_size has {longest} for sequences of up to {x._length_.max()}")
    values = x._values_.movedim(x._ragged_ - 1, 0)
    there, rows = _positions(x, longest)
    if len(values) == 0:
        padded = values.new_full((*there.shape, *values.shape[1:]), padding)
    else:
        padded = values[rows]
        padded = padded.masked_fill(~there.reshape(*there.shape, *(1,) * (values.dim() - 1)), padding)
    return padded.movedim(1, x._ragged_)


def _positions(x: NestedTensor, longest: int) -> tuple:
    """(sequences, longest): whether there is an element, and its row in the values."""
    steps = arange(longest, device=x.device)
    there = steps < x._offsets_.diff()[:, None]
    return there, where(there, x._offsets_[:-1, None] + steps, 0)


def _unpadded(padded: Tensor, x: NestedTensor) -> Tensor:
    """The values again, of x's lengths."""
    lengths = x._offsets_.diff()
    batch = repeat_interleave(arange(len(x), device=x.device), lengths, output_size=x._values_.shape[x._ragged_ - 1])
    step = arange(len(batch), device=x.device) - x._offsets_[batch]
    flat = padded.movedim(x._ragged_, 1)
    return flat[batch, step].movedim(0, x._ragged_ - 1)


@_function("scaled_dot_product_attention")
def _attention(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, scale: Any = None,
               enable_gqa: bool = False) -> NestedTensor:
    if not all(isinstance(t, NestedTensor) and t.ndim == 4 and t._ragged_ == 2 for t in (query, key, value)):
        raise RuntimeError("scaled_dot_product_attention(): nested queries, keys and values are of shape (batch, heads, lengths, channels)")
    if key._length_ is not value._length_ or len(query) != len(key):
        raise RuntimeError("scaled_dot_product_attention(): keys and values have the same lengths, and queries as many sequences")
    if attn_mask is not None:
        raise NotImplementedError("scaled_dot_product_attention(): attn_mask: nested tensors have none but is_causal")
    q, k, v = (to_padded_tensor(t, 0.0) for t in (query, key, value))
    longest = k.shape[2]
    mask = (arange(longest, device=k.device) < key._offsets_.diff()[:, None])[:, None, None]
    if is_causal:
        mask = mask & (arange(q.shape[2], device=k.device)[:, None] >= arange(longest, device=k.device))
    result = _F.scaled_dot_product_attention(q, k, v, mask, dropout_p, False, scale=scale, enable_gqa=enable_gqa)
    return _make(_unpadded(result, query), query._offsets_, 2, query._length_)


# ---- making them


def _check_layout(layout: Any, what: str) -> None:
    if layout is not jagged:
        raise NotImplementedError(f"{what}(): layout={layout or strided!r}: nested tensors are of layout jagged (layout=torch.jagged)")


def _joined(tensors: list, length: Any = None) -> NestedTensor:
    if not tensors:
        raise RuntimeError("Cannot construct a nested tensor from an empty list of tensors")
    if any(t.dim() == 0 or t.dim() != tensors[0].dim() for t in tensors):
        raise RuntimeError("nested_tensor(): all tensors must have the same number of dimensions, and at least one")
    places = [d for d in range(tensors[0].dim()) if len({t.shape[d] for t in tensors}) > 1] or [0]
    if len(places) > 1:
        raise RuntimeError("Cannot represent given tensor list as a nested tensor with the jagged layout. Note that the jagged layout only "
                           "allows for a single ragged dimension. For example: (B, *, D_0, ..., D_N), with ragged * dim.")
    lengths = [t.shape[places[0]] for t in tensors]
    offsets = _tensor([0, *itertools.accumulate(lengths)], device=tensors[0].device)
    return _make(cat(tensors, places[0]), offsets, places[0] + 1, NestedInt(offsets, max(lengths), min(lengths)))


def nested_tensor(tensor_list: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
                  pin_memory: bool = False) -> NestedTensor:
    """Of sequences (tensors or lists of numbers) that differ in one dimension: a copy of their values, a leaf.

    NotImplementedError for other layouts than arete.jagged, which torch has, too.

    >>> arete.nested.nested_tensor([[1.0], [2.0, 3.0]], layout=arete.jagged).values()
    tensor([1., 2., 3.])
    """
    _check_layout(layout, "nested_tensor")
    parts = [t.detach() if isinstance(t, Tensor) else _tensor(t) for t in tensor_list]
    x = _joined([t.to(device=device or t.device, dtype=dtype or t.dtype) for t in parts])
    values = x._values_.pin_memory() if pin_memory else x._values_
    return _with(x, values.requires_grad_(requires_grad))


def as_nested_tensor(ts: Any, dtype: Any = None, device: Any = None, layout: Any = None) -> NestedTensor:
    """The same with the history of the sequences; or of a plain tensor, each of whose elements is a sequence.

    >>> w = arete.ones(2, requires_grad=True)
    >>> arete.nested.as_nested_tensor([w, w[:1] * 3], layout=arete.jagged).values().sum().backward()
    >>> w.grad
    tensor([4., 1.])
    """
    if isinstance(ts, NestedTensor):
        return ts.to(device=device or ts.device, dtype=dtype or ts.dtype)
    _check_layout(layout, "as_nested_tensor")
    tensors = list(ts.unbind()) if isinstance(ts, Tensor) else list(ts)
    return _joined([t.to(device=device or t.device, dtype=dtype or t.dtype) for t in tensors])


def nested_tensor_from_jagged(values: Tensor, offsets: Optional[Tensor] = None, lengths: Optional[Tensor] = None,
                              jagged_dim: Optional[int] = None, min_seqlen: Optional[int] = None,
                              max_seqlen: Optional[int] = None) -> NestedTensor:
    """Of values with the sequences one after the other in dimension jagged_dim - 1, and where they begin and end, or how long they are.

    With both, of sequences that begin at the offsets and have these lengths: a copy, since there may be gaps.

    >>> arete.nested.nested_tensor_from_jagged(arete.arange(5), lengths=arete.tensor([2, 3])).unbind()
    (tensor([0, 1]), tensor([2, 3, 4]))
    """
    ragged = 1 if jagged_dim is None else jagged_dim
    if offsets is None:
        if lengths is None:
            raise RuntimeError("nested_tensor_from_jagged(): At least one of offsets or lengths is required.")
        offsets = cat([lengths.new_zeros(1), lengths.cumsum(0)])
    elif lengths is not None:
        return _picked(values.movedim(ragged - 1, 0), offsets[:-1] if len(offsets) == len(lengths) + 1 else offsets, lengths, ragged)
    length = getattr(offsets, "_nested_int", None) or NestedInt(offsets, max_seqlen, min_seqlen)
    return _make(values, offsets, ragged, length)


def _picked(rows: Tensor, starts: Tensor, lengths: Tensor, ragged: int = 1) -> NestedTensor:
    """Of the rows from `starts` on."""
    offsets = cat([lengths.new_zeros(1), lengths.cumsum(0)])
    batch = repeat_interleave(arange(len(lengths), device=rows.device), lengths)
    at = starts[batch] + arange(len(batch), device=rows.device) - offsets[batch]
    return _make(rows[at].movedim(0, ragged - 1), offsets, ragged)


def narrow(tensor: Tensor, dim: int, start: Any, length: Any, layout: Any = None) -> NestedTensor:
    """Of a plain tensor (batch, time, ...) the sequences from `start` on of this `length`, numbers or one for each; a copy.

    >>> arete.nested.narrow(arete.arange(8).view(2, 4), 1, 1, arete.tensor([1, 3]), layout=arete.jagged).unbind()
    (tensor([1]), tensor([5, 6, 7]))
    """
    _check_layout(layout, "narrow")
    if dim != 1:
        raise RuntimeError("jagged layout only supports dim=1")
    count, time = tensor.shape[:2]
    start, length = (t if isinstance(t, Tensor) else _tensor([t] * count, device=tensor.device) for t in (start, length))
    return _picked(tensor.flatten(0, 1), start + arange(count, device=tensor.device) * time, length)


def masked_select(tensor: Tensor, mask: Tensor) -> NestedTensor:
    """Of a matrix the elements where the mask is true, of each row a sequence.

    >>> arete.nested.masked_select(arete.ones(2, 3), arete.tensor([[True, False, True], [False, True, False]])).unbind()
    (tensor([1., 1.]), tensor([1.]))
    """
    if tensor.dim() != 2:
        raise RuntimeError(f"masked_select(): expected a matrix, but got {tensor.dim()} dimensions")
    mask = mask.expand(tensor.shape)
    return nested_tensor_from_jagged(tensor.masked_select(mask), lengths=mask.sum(1))
