"""Gradients against central differences."""
from __future__ import annotations

import itertools
import math
import warnings

from .._C import Generator, Tensor
from .._grad_mode import enable_grad, no_grad
from .._operators import contiguous_format, empty_like, stack, view_as_real, zeros, zeros_like
from . import forward_ad
from ._passes import grad


class GradcheckError(RuntimeError):
    """A gradient that differs from the central difference."""


def gradcheck(func, inputs, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3, raise_exception: bool = True,
              nondet_tol: float = 0.0, check_undefined_grad: bool = True, check_grad_dtypes: bool = False,
              check_batched_grad: bool = False, check_batched_forward_grad: bool = False, check_forward_ad: bool = False,
              check_backward_ad: bool = True, fast_mode: bool = False, masked=None) -> bool:
    """Compares gradients with central differences; inputs that require grad should be float64 or complex128.

    fast_mode compares a random combination of the elements of each Jacobian in place of all. nondet_tol is how far two passes may
    differ. check_undefined_grad asks for the gradient of one output at a time, so that those of the others are undefined;
    check_batched_grad for several at once, too. check_forward_ad compares what forward mode gives, as well, or alone without
    check_backward_ad. NotImplementedError for check_batched_forward_grad and masked.

    >>> x = arete.tensor([0.5, 2.0], dtype=arete.float64, requires_grad=True)
    >>> arete.autograd.gradcheck(arete.sin, [x])
    True
    >>> arete.autograd.gradcheck(lambda x: x.detach() * x, [x])
    Traceback (most recent call last):
    arete.autograd.gradcheck.GradcheckError: Jacobian mismatch for output 0 with respect to input 0,...
    """
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_forward_grad:
        raise NotImplementedError("gradcheck(): check_batched_forward_grad: tangents are pushed one after the other")
    if masked:
        raise NotImplementedError("gradcheck(): masked: gradients are of all elements, in values of sparse tensors, too")
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    check = _Check(func, inputs, eps, atol, rtol, nondet_tol, check_undefined_grad, check_grad_dtypes, check_batched_grad,
                   check_forward_ad, check_backward_ad)
    try:
        check.run(_directions if fast_mode else _elements)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(func, inputs, grad_outputs=None, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
                  gen_non_contig_grad_outputs: bool = False, raise_exception: bool = True, nondet_tol: float = 0.0,
                  check_undefined_grad: bool = True, check_grad_dtypes: bool = False, check_batched_grad: bool = False,
                  check_fwd_over_rev: bool = False, check_rev_over_rev: bool = True, fast_mode: bool = False,
                  masked: bool = False) -> bool:
    """gradcheck of the gradient, as a function of the inputs and of the gradients of the outputs (random ones unless given):
    backwards (check_rev_over_rev) and in forward mode (check_fwd_over_rev).

    >>> x = arete.tensor([0.5, 2.0], dtype=arete.float64, requires_grad=True)
    >>> arete.autograd.gradgradcheck(arete.sin, [x])
    True
    """
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    if grad_outputs is None:
        generator = Generator().manual_seed(0)
        given = [_random(o, generator).requires_grad_() for o in _differentiable(func(*inputs))]
        if gen_non_contig_grad_outputs:
            given = [_strided(g) for g in given]
    else:
        given = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)

    def gradients(*args):
        with enable_grad():
            outputs = _differentiable(func(*args[: len(inputs)]))
            leaves = [t for t in args[: len(inputs)] if isinstance(t, Tensor) and t.requires_grad]
            found = grad(outputs, leaves, args[len(inputs) :], create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    return gradcheck(gradients, [*inputs, *given], eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception,
                     nondet_tol=nondet_tol, check_undefined_grad=check_undefined_grad, check_grad_dtypes=check_grad_dtypes,
                     check_batched_grad=check_batched_grad, check_forward_ad=check_fwd_over_rev, check_backward_ad=check_rev_over_rev,
                     fast_mode=fast_mode, masked=masked)


def _differentiable(results) -> list[Tensor]:
    results = [results] if isinstance(results, Tensor) else results
    return [r for r in results if isinstance(r, Tensor) and r.requires_grad]


def _real(t: Tensor) -> Tensor:
    """The numbers in a tensor: complex ones as pairs, over the same memory."""
    return view_as_real(t) if t.is_complex() else t


def _random(like: Tensor, generator) -> Tensor:
    t = empty_like(like.detach())
    with no_grad():
        _real(t).uniform_(-1, 1, generator=generator)
    return t


def _strided(t: Tensor) -> Tensor:
    """A leaf of the same values with gaps between its elements."""
    return stack([t.detach()] * 2, t.dim()).select(t.dim(), 0).requires_grad_()


class _Check:
    """One call of gradcheck(). What needs the recorded graph comes before the leaves' numbers are moved."""

    def __init__(self, func, inputs, eps, atol, rtol, nondet_tol, undefined, dtypes, batched, forward, backward):
        self.func, self.inputs = func, inputs
        self.eps, self.atol, self.rtol, self.nondet_tol = eps, atol, rtol, nondet_tol
        self.undefined, self.dtypes, self.batched = undefined, dtypes, batched
        self.forward, self.backward = forward, backward
        self.leaves = [t for t in inputs if isinstance(t, Tensor) and t.requires_grad]
        if not self.leaves:
            raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of the them have "
                             "requires_grad=True.")
        for i, t in enumerate(inputs):
            if not isinstance(t, Tensor) or not t.requires_grad:
                continue
            if t.dtype._name not in ("float64", "complex128"):
                warnings.warn(f"Input #{i} requires gradient and is not a double precision floating point or complex. This check "
                              "will likely fail if all the inputs are not of double precision floating point or complex. ",
                              stacklevel=4)
            if any(step == 0 and size > 1 for step, size in zip(t.stride(), t.size())):
                raise RuntimeError(f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs that are "
                                   "non-overlapping to be able to compute the numerical gradients correctly. You should call "
                                   ".contiguous on the input before passing it to gradcheck.")

    def values(self) -> list[Tensor]:
        """What func gives now, called as it was at first: what it gives may depend on what requires a gradient."""
        results = self.func(*self.inputs)
        results = [results] if isinstance(results, Tensor) else results
        return [_real(r.detach()).clone() for r in results if isinstance(r, Tensor)]

    def gradients(self, outputs, k, weight):
        """Of output k along `weight`, for all leaves."""
        weights = [weight if i == k else _zeros(o) for i, o in enumerate(outputs)]
        if self.undefined:
            outputs, weights = [outputs[k]], [weight]
        return grad(outputs, self.leaves, weights, retain_graph=True, allow_unused=True)

    def run(self, compare):
        results = self.func(*self.inputs)
        results = [results] if isinstance(results, Tensor) else [r for r in results if isinstance(r, Tensor)]
        kept = [i for i, r in enumerate(results) if r.requires_grad]
        if not kept:
            for leaf in self.leaves:
                for cell in _cells(leaf):
                    if any((c != 0).any() for c in self.difference(cell)):
                        raise GradcheckError("Numerical gradient for function expected to be zero")
            return
        outputs = [results[i] for i in kept]
        if self.backward:
            self.check_zero(outputs)
        compare(self, outputs, kept)

    def tangents(self, leaf, tangent) -> list[Tensor]:
        """Of all outputs, of this tangent of a leaf: zeros where they have none."""
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(leaf.detach().requires_grad_(), tangent)
            results = self.func(*[dual if t is leaf else t for t in self.inputs])
            results = [results] if isinstance(results, Tensor) else results
            found = [(r, forward_ad.unpack_dual(r).tangent) for r in results if isinstance(r, Tensor)]
            return [_zeros(_real(r.detach())) if t is None else _real(t.detach()) for r, t in found]

    def difference(self, move) -> list[Tensor]:
        """The central difference of all outputs when `move(step)` moves some of the numbers in a leaf."""
        move(self.eps)
        above = self.values()
        move(-self.eps)
        below = self.values()
        move(0.0)
        for what in ("shape", "dtype"):
            if [getattr(a, what) for a in above] != [getattr(b, what) for b in below]:
                raise AssertionError(f"Expected `func` to return outputs with the same {what} when inputs are perturbed on index by eps, "
                                     "but got other ones")
        return [(a - b) / (2 * self.eps) for a, b in zip(above, below)]

    def check_zero(self, outputs):
        """A gradient of zeros gives zeros, of the inputs' kinds."""
        found = grad(outputs, self.leaves, [_zeros(o) for o in outputs], retain_graph=True, allow_unused=True)
        for g, leaf in zip(found, self.leaves):
            if g is None:
                continue
            if not bool((g == 0).all()):
                raise GradcheckError("backward not multiplied by grad_output")
            for what, a, b in (("type", g.dtype, leaf.dtype), ("device", g.device, leaf.device), ("size", g.size(), leaf.size())):
                if a != b:
                    raise GradcheckError(f"grad is incorrect {what}")

    def check_again(self, first, second):
        for a, b, leaf in zip(first, second, self.leaves):
            if a is None:
                continue
            if self.dtypes and a.dtype != leaf.dtype:
                raise GradcheckError("Gradient has dtype mismatch")
            if not bool(((a == b) | (a - b).abs().le(self.nondet_tol) | (a.isnan() & b.isnan())).all()):
                raise GradcheckError(
                    "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives "
                    "different values, although analytical gradient matches numerical gradient. The tolerance for nondeterminism "
                    f"was {self.nondet_tol}.")


def _zeros(t: Tensor) -> Tensor:
    return zeros_like(t.detach(), memory_format=contiguous_format)  # so that a flat view of it can be written


def _units(like: Tensor):
    """For each number in a tensor one of zeros with a one there."""
    for j in range(_real(like).numel()):
        unit = _zeros(like)
        _real(unit).reshape(-1)[j] = 1.0
        yield unit


def _cells(leaf: Tensor):
    """For each number in a leaf a function that moves it by a step from where it was."""
    numbers = _real(leaf.detach())
    for index in itertools.product(*map(range, numbers.shape)):
        was = numbers[index].item()

        def move(step, index=index, was=was):
            with no_grad():
                numbers[index] = was + step

        yield move


def _elements(check: _Check, outputs, kept) -> None:
    """Compares all elements of all Jacobians."""
    analytical = []  # by output and leaf: (numbers in the leaf, numbers in the output)
    for k, out in enumerate(outputs if check.backward else []):
        flat = list(_units(out))
        rows = []
        for weight in flat:
            rows.append(check.gradients(outputs, k, weight))
            check.check_again(rows[-1], check.gradients(outputs, k, weight))
        if check.batched and flat:
            together = grad([out], check.leaves, [stack(flat)], retain_graph=True, allow_unused=True, is_grads_batched=True)
            for i, all_ in enumerate(together):
                if all_ is not None:
                    check.check_again([all_], [stack([r[i] for r in rows])])
        analytical.append([
            stack([_zeros(_real(leaf)).reshape(-1) if r[i] is None else _real(r[i].detach()).reshape(-1) for r in rows], 1)
            if rows else zeros(_real(leaf).numel(), 0, dtype=leaf.dtype.to_real()) for i, leaf in enumerate(check.leaves)])
    for i, leaf in enumerate(check.leaves):
        columns = [check.difference(move) for move in _cells(leaf)]
        pushed = [check.tangents(leaf, unit) for unit in _units(leaf)] if check.forward else []
        for k, place in enumerate(kept):
            if not columns:
                continue
            numerical = stack([c[place].reshape(-1) for c in columns])
            if check.backward:
                _compare(check, analytical[k][i], numerical.to(analytical[k][i].dtype), k, i, 1.0)
            if check.forward:
                _compare(check, stack([t[place].reshape(-1) for t in pushed]), numerical, k, i, 1.0, " computed with forward mode")


def _directions(check: _Check, outputs, kept) -> None:
    """Compares u J v with random u and v for each Jacobian J."""
    generator = Generator().manual_seed(0)
    directions = [_random(leaf, generator) for leaf in check.leaves]
    directions = [v / _real(v).norm().clamp_min(1e-300) for v in directions]
    along = [_real(v) for v in directions]
    weights = [_random(o, generator) for o in outputs]
    analytical = []  # by output and leaf
    for k, weight in enumerate(weights if check.backward else []):
        found = check.gradients(outputs, k, weight)
        check.check_again(found, check.gradients(outputs, k, weight))
        analytical.append([0 * v.sum() if g is None else (_real(g.detach()) * v).sum() for g, v in zip(found, along)])
    for i, (leaf, v) in enumerate(zip(check.leaves, along)):
        numbers = _real(leaf.detach())
        was = numbers.clone()

        def move(step, numbers=numbers, was=was, v=v):
            with no_grad():
                numbers.copy_(was + step * v)

        column = check.difference(move)
        pushed = check.tangents(leaf, directions[i]) if check.forward else []
        for k, place in enumerate(kept):
            u = _real(weights[k])
            scale = max(1.0, float(u.abs().sum()) * float(v.abs().sum()))
            numerical = (column[place] * u).sum()
            if check.backward:
                _compare(check, analytical[k][i], numerical.to(analytical[k][i].dtype), k, i, scale)
            if check.forward:
                _compare(check, (pushed[place] * u).sum(), numerical, k, i, scale, " computed with forward mode")


def _compare(check, analytical, numerical, k, i, scale, how="") -> None:
    difference = (analytical - numerical).abs()
    allowed = check.atol * scale + check.rtol * numerical.abs()
    if not bool((difference <= allowed).all()):  # NaN is no agreement
        worst = difference.nan_to_num(math.inf).reshape(-1).argmax().item()
        number, by = divmod(int(worst), max(1, analytical.reshape(analytical.size(0) if analytical.dim() else 1, -1).size(1)))
        raise GradcheckError(
            f"Jacobian{how} mismatch for output {k} with respect to input {i},\nnumerical:{numerical}\nanalytical:{analytical}\n"
            f"(numbers of the input by numbers of the output; they differ most at [{number}, {by}])")
