"""Calls that grow: the small call of a sample becomes the same call on more elements.

A sample says which arguments go together, but not which of its sizes may grow. A `Template` finds that out by trial:
it tries plans (all sizes; all sizes and the integers equal to one of them; the first or last axis; the sizes of one
value; integers alone) until PyTorch takes the call with the sizes multiplied, and computes more by it."""

from __future__ import annotations

import contextlib
import functools
import math
import re

import torch

# Elements of inputs and outputs: what the host costs, what a cache holds, and what comes from memory.
SIZES = {
    "host": {"cpu": 1 << 11, "cuda": 1 << 11},
    "cache": {"cpu": 1 << 17, "cuda": 1 << 22},
    "memory": {"cpu": 1 << 23, "cuda": 1 << 27},
}
SECONDS = {"cpu": 0.1, "cuda": 0.03}  # the longest that PyTorch's call may take at a size that is made here

# Integers that are no sizes, and that would make another kind of call if they grew.
HELD_INTS = {"kernel_size", "stride", "padding", "output_padding", "dilation", "groups", "num_groups", "num_layers"}
HELD_INTS |= {"num_heads", "nhead", "num_encoder_layers", "num_decoder_layers", "upscale_factor", "downscale_factor"}
HELD_INTS |= {"dim", "dims", "dim0", "dim1", "axis", "start_dim", "end_dim", "p", "ord", "scale_factor", "decimals"}
# Integers that are sizes of what a layer makes, though no input has them.
SIZE_INTS = {"hidden_size", "out_features", "out_channels", "dim_feedforward", "embedding_dim", "num_classes"}
LAYOUTS = {"transposed": (2, 99), "channels last": (4, 5), "sliced": (1, 99)}  # axes of tensors that have them
PROBES = (2, 3)  # factors by which plans are tried
MOST_TRIED = 1 << 20  # elements of the arguments of a trial
MOST_TRIALS = 16  # of sizes
HEAD = 64  # elements of a head of attention, which do not grow with a sequence


def elements(x):
    """Elements of all tensors in x."""
    return sum(t.numel() for t in tensors_in(x))


def tensors_in(x):
    if isinstance(x, (tuple, list)):
        for e in x:
            yield from tensors_in(e)
    elif isinstance(x, dict):
        yield from tensors_in(list(x.values()))
    elif hasattr(x, "requires_grad") and hasattr(x, "numel"):  # a tensor of either library
        yield x


def mapped(x, leaf, name="", place=None):
    """x with leaf(value, name of the argument, place in its list) instead of all that is no tuple, list or dict."""
    if type(x) in (tuple, list):
        return type(x)(mapped(e, leaf, name, i) for i, e in enumerate(x))
    if isinstance(x, tuple):  # torch.Size and named tuples
        return tuple(mapped(e, leaf, name, i) for i, e in enumerate(x))
    if type(x) is dict:
        return {k: mapped(v, leaf, k) for k, v in x.items()}
    return leaf(x, name, place)


# ---- which sizes grow


SEQUENCES = ("query", "key", "value")  # of attention
PIVOTS = ("pivots", "LU_pivots")  # of factorizations: PyTorch writes where they point, without a look at them


def _held(name, axis, rank):
    """Axes that do not grow: kernels of convolutions, heads of attention and all but the length of its sequences."""
    if name == "weight" and rank >= 3:
        return axis >= 2
    if name in SEQUENCES:
        return axis != rank - 2
    return name == "attn_mask" and axis < rank - 2


class Plan:
    """Which axes of tensors and which integers grow: functions of (axis, rank, size) and of (value, place, sizes)."""

    def __init__(self, text, axes, ints=lambda value, place, sizes: False):
        self.text, self._axes, self._ints = text, axes, ints

    def axis(self, name, axis, rank, size):
        return size > 1 and not _held(name, axis, rank) and self._axes(axis, rank, size)

    def integer(self, name, value, place, sizes):
        if type(value) is not int or name in HELD_INTS or value < 2:
            return False
        return self._ints(value, place, sizes) or name in SIZE_INTS


def _plans(sizes, main):
    """All that are tried; `main`: sizes of the first tensor, which say what the call is about."""
    every, none = (lambda axis, rank, size: True), (lambda axis, rank, size: False)
    first, last = (lambda axis, rank, size: axis == 0), (lambda axis, rank, size: axis == rank - 1)
    yield Plan("all sizes", every)
    yield Plan("all sizes, and integers equal to one", every, lambda value, place, sizes: value in sizes)
    yield Plan(
        "sizes of the first tensor, and integers equal to one",
        lambda axis, rank, size: size in main,
        lambda value, place, sizes: value in main,
    )
    yield Plan("all sizes and integers", every, lambda value, place, sizes: True)
    yield Plan("the first axis", first)
    yield Plan("the first axis and integer", first, lambda value, place, sizes: not place)
    yield Plan("the last axis", last)
    yield Plan("the last axis, and integers equal to it", last, lambda value, place, sizes: value in sizes)
    for v in sorted(sizes, reverse=True):
        yield Plan(f"sizes of {v}", lambda axis, rank, size, v=v: size == v)
        yield Plan(
            f"sizes and integers of {v}",
            lambda axis, rank, size, v=v: size == v,
            lambda value, place, sizes, v=v: value == v,
        )
    yield Plan("integers", none, lambda value, place, sizes: True)


def _volume(run, args, kwargs):
    """Elements of a call's arguments and results. ValueError where they are too many for a trial."""
    if elements((args, kwargs)) > MOST_TRIED:
        raise ValueError("too large for a trial")
    return elements((args, kwargs, run(args, kwargs)))


# ---- values


class Filler:
    """Makes tensors with the kind of values that those of a sample have, in other shapes."""

    def __init__(self, seed, device, bounds):
        self.device, self.bounds = device, bounds
        self.generator = torch.Generator(device).manual_seed(seed)

    def uniform(self, shape, low, high, dtype=torch.float32):
        return torch.rand(shape, generator=self.generator, device=self.device, dtype=dtype) * (high - low) + low

    def integers(self, shape, low, high):
        return torch.randint(low, high, shape, generator=self.generator, device=self.device)

    def like(self, sample, shape):
        if not sample.numel() or not math.prod(shape):
            return torch.zeros(shape, dtype=sample.dtype, device=self.device)
        if sample.dtype == torch.bool:
            share = min(max(sample.float().mean().item(), 0.0), 1.0)
            return self.uniform(shape, 0.0, 1.0) < share
        if sample.is_complex():
            return torch.complex(self.uniform(shape, -1.0, 1.0), self.uniform(shape, -1.0, 1.0)).to(sample.dtype)
        return self.floats(sample, shape) if sample.is_floating_point() else self.indices(sample, shape)

    def indices(self, sample, shape):
        """Positions all over the smallest size that the sample's lie in; sorted or all different as those are."""
        low, high = int(sample.min()), int(sample.max())
        bound = min((old for old in self.bounds if high < old), default=None)
        if low < 0 or bound is None:
            return self.integers(shape, low, high + 1).to(sample.dtype)
        top, count = self.bounds[bound], math.prod(shape)
        flat = sample.flatten()
        if sample.dim() == 1 and 1 < flat.numel() == flat.unique().numel() and count <= top:
            made = torch.randperm(top, generator=self.generator, device=self.device)[:count].reshape(shape)
        else:
            made = self.integers(shape, low, top)
        if sample.dim() and flat.numel() > 2 and bool((sample.diff(dim=-1) >= 0).all()):
            made = made.sort(-1).values
            if bool((sample[..., 0] == 0).all()):  # offsets
                made[..., 0] = 0
        return made.to(sample.dtype)

    def pivots(self, shape, dtype):
        """Row k, from 1, changes places with itself or a later one."""
        first = torch.arange(shape[-1], device=self.device)
        return (1 + first + (self.uniform(shape, 0.0, 1.0) * (shape[-1] - first)).long()).to(dtype)

    def floats(self, sample, shape):
        finite = sample[sample.isfinite()].double()
        if not finite.numel():
            return torch.full(shape, sample.flatten()[0].item(), dtype=sample.dtype, device=self.device)
        low, high = finite.min().item(), finite.max().item()
        values = finite.unique()
        if values.numel() <= 3 and finite.numel() > 1 and set(values.tolist()) <= {-1.0, 0.0, 1.0}:  # labels and masks
            return values.float().to(self.device)[self.integers(shape, 0, values.numel())].to(sample.dtype)
        if high - low < 0.1:  # one number says nothing of the others
            low, high = min(low, 0.9 * low, 1.1 * low), max(high, 0.9 * high, 1.1 * high)
        made = self.uniform(shape, low, high)
        made = self.structured(sample, made) if sample.dim() > 1 and sample.shape[-1] == sample.shape[-2] > 1 else made
        if sample.dim() and sample.numel() > 2 and sample.shape[-1] > 2 and bool((sample.diff(dim=-1) >= 0).all()):
            made = made.sort(-1).values
        return made.to(sample.dtype)

    def structured(self, sample, made):
        """Matrices: symmetric, positive definite or triangular as the sample's."""
        n = made.shape[-1]
        identity = torch.eye(n, device=self.device)
        if torch.allclose(sample, sample.mT):
            if not bool(torch.linalg.cholesky_ex(sample)[1].any()):
                return made @ made.mT / n + identity
            return (made + made.mT) / 2
        for triangle in (torch.tril, torch.triu):
            if torch.equal(sample, triangle(sample)):
                return triangle(made / n) + identity
        return made


class Template:
    """A call that PyTorch takes: a sample's arguments, and how they grow. `names` are those of positional arguments."""

    def __init__(self, args, kwargs, names, form):
        known = {*names, *kwargs}
        other = {n for n in ("weight",) if "stride" not in known} | {n for n in SEQUENCES if "scale" not in known}
        names = [n + " of another kind" if n in other else n for n in names]
        self.args, self.kwargs, self.names, self.form = args, kwargs, names, form
        self.sizes = sorted({n for t in tensors_in((args, kwargs)) for n in t.shape if n > 1})
        self.plan, self.factors, self.computes, self.refusal = None, {}, True, None

    def at(self, factor, seed=0, device="cpu", plan=None):
        """Arguments and keyword arguments with sizes `factor` times as large, on `device`."""
        plan = plan or self.plan
        grown = {
            n: n * factor
            for t in tensors_in((self.args, self.kwargs))
            for a, n in enumerate(t.shape)
            if plan and plan.axis("", a, t.dim(), n)
        }
        filler = Filler(seed, device, {n: grown.get(n, n) for n in self.sizes})

        def leaf(x, name, place):
            if isinstance(x, torch.Tensor):
                shape = [n * factor if plan and plan.axis(name, a, x.dim(), n) else n for a, n in enumerate(x.shape)]
                if name in SEQUENCES:
                    shape[-1] = HEAD
                if name in PIVOTS and shape and math.prod(shape):
                    return filler.pivots(tuple(shape), x.dtype)
                return filler.like(x, tuple(shape))
            if isinstance(x, torch.device) or name == "device" and isinstance(x, str):
                return torch.device(device)
            return x * factor if plan and plan.integer(name, x, place, self.sizes) else x

        names = [*self.names, *[""] * len(self.args)]
        args = tuple(mapped(x, leaf, name) for x, name in zip(self.args, names))
        return args, mapped(self.kwargs, leaf)

    def _dim_place(self):
        """Where among the positional arguments the dim is; None: it is a keyword."""
        return self.names.index("dim") if "dim" in self.names[: len(self.args)] else None

    def has_dim(self):
        """Whether it is a call of a tensor of several axes along one of them, which may be another."""
        place = self._dim_place()
        given = self.kwargs.get("dim") if place is None else self.args[place]
        x = next(tensors_in(self.args), None)
        return x is not None and x.dim() > 1 and (type(given) is int or given is None and "dim" in self.names)

    def with_dim(self, text, dim):
        """The same call along another dim."""
        place = self._dim_place()
        if place is None:
            return Template(self.args, {**self.kwargs, "dim": dim}, self.names, f"{self.form}; over {text}")
        return Template(
            (*self.args[:place], dim, *self.args[place + 1 :]), self.kwargs, self.names, f"{self.form}; over {text}"
        )

    def find_plan(self, run):
        """Chooses the first plan by which the call grows; run(args, kwargs) gives PyTorch's results. False: it does not
        run at all."""
        if next(tensors_in((self.args, self.kwargs)), None) is None and "device" not in self.kwargs:
            options = {**self.kwargs, "device": torch.device("cpu")}  # what creates tensors is to do so on the device
            with contextlib.suppress(Exception):
                run(self.args, options)
                self.kwargs = options
        try:
            before = _volume(run, *self.at(1))
            self.computes = before > 0
        except Exception as e:  # noqa: BLE001: PyTorch refuses in many ways
            self.refusal = f"{type(e).__name__}: {e}".splitlines()[0][:100]
            return False
        main = set(next(tensors_in((self.args, self.kwargs)), torch.empty(0)).shape)
        for plan in _plans(self.sizes, main):
            try:
                if all(_volume(run, *self.at(f, plan=plan)) >= (f + 1) / 2 * before for f in PROBES):
                    self.plan = plan
                    return True
            except Exception:  # noqa: BLE001
                continue
        return True

    def find_factors(self, run, timed, device, sizes, scale=1.0, longest=1.0):
        """Sets `factors` for these sizes: the largest found for which inputs and outputs have no more elements than the
        size says, and PyTorch takes no longer than `longest` of SECONDS. timed(function) gives its result and
        seconds."""
        kind = device.partition(":")[0]
        targets = {name: max(int(SIZES[name][kind] * scale), SIZES["host"][kind]) for name in sizes}
        limit, points = longest * SECONDS[kind], []

        def attempt(factor):
            args, kwargs = self.at(factor, device=device)
            result, seconds = timed(functools.partial(run, args, kwargs))
            points.append((factor, max(elements((args, kwargs, result)), 1), seconds))
            points.sort()

        attempt(1)
        for target in sorted(targets.values()):
            while self.plan and len(points) < MOST_TRIALS and (factor := self._following(points, target, limit)):
                attempt(factor)
        for name, target in targets.items():
            self.factors[name] = max((f for f, n, s in points if n <= target and s <= limit), default=1)

    @staticmethod
    def _following(points, most, limit):
        """The factor to try after these points, by the powers at which elements and seconds grew: at most four times
        the largest that was not too much, and None where there is none that is larger by a fourth."""
        good = [p for p in points if p[1] <= most and p[2] <= limit]
        if not good:
            return None
        (factor, n, seconds), beyond = good[-1], points[len(good) :]
        room, power, slope = (4.0, 1.0, 1.0) if len(points) > 1 else (2.0, 4.0, 3.0)
        for f, n0, seconds0 in beyond[:1] or good[-2:-1]:
            length = math.log(f / factor)
            power = max(math.log(n0 / n) / length, 0.1)
            slope = min(max(math.log(seconds0 / seconds) / length, power), 4.0)
        room = min((most / n) ** (1 / power), (limit / seconds) ** (1 / slope), room)
        following = min(int(factor * room), beyond[0][0] - 1 if beyond else math.inf)
        return following if following >= max(1.25 * factor, factor + 1) else None


# ---- layouts and dtypes


def in_dtype(x, dtype):
    """Floating tensors of float32 in `dtype`; for integers their values times ten."""

    def leaf(t, *_):
        if not isinstance(t, torch.Tensor) or t.dtype != torch.float32:
            return t
        return t.to(dtype) if dtype.is_floating_point else (t * 10).round().to(dtype)

    return mapped(x, leaf)


def in_layout(x, layout):
    """The same values, laid out otherwise: "transposed" (the last two axes), "sliced" (part of a larger tensor, not
    aligned) or "channels last". Tensors that have no such layout stay."""

    def leaf(t, *_):
        if not isinstance(t, torch.Tensor) or not (t.is_floating_point() or t.dtype == torch.int64) or not t.numel():
            return t
        if layout == "transposed" and t.dim() > 1:
            return t.mT.contiguous().mT
        if layout == "sliced" and t.dim():
            room = t.new_empty((*t.shape[:-1], t.shape[-1] + 3))
            part = room[..., 1:-2]
            part.copy_(t)
            return part
        if layout == "channels last" and t.dim() in (4, 5):
            return t.contiguous(memory_format=torch.channels_last if t.dim() == 4 else torch.channels_last_3d)
        return t

    return mapped(x, leaf)


def is_layout_of(x, layout):
    """Whether the layout makes any tensor of x another."""
    least, most = LAYOUTS[layout]
    return any(least <= t.dim() <= most and t.is_floating_point() for t in tensors_in(x))


def form_of(args, kwargs):
    """What kind of call it is, apart from sizes and numbers: calls of one form measure the same."""
    first = next(tensors_in((args, kwargs)), None)

    def text(x):
        if isinstance(x, torch.Tensor):
            kind = {torch.bool: "mask", torch.int64: "index"}.get(x.dtype, "tensor") if x.dim() else "scalar"
            return kind if x.shape == first.shape or not x.dim() else f"{kind} {x.dim()}d"
        if isinstance(x, (bool, str, type(None), torch.dtype)):
            return str(x)
        if isinstance(x, (int, float, complex)):
            return "number"
        if isinstance(x, slice):
            return ":"
        if isinstance(x, (tuple, list)):
            return ("many " if len(x) > 16 else "") + "[" + ",".join(sorted({text(e) for e in x})) + "]"
        if isinstance(x, dict):
            return "{" + ",".join(f"{k}={text(v)}" for k, v in sorted(x.items())) + "}"
        return type(x).__name__

    parts = [text(x) for x in args] + [f"{k}={text(v)}" for k, v in sorted(kwargs.items())]
    return re.sub(r"torch\.", "", ", ".join(parts))
