"""Statistics of samples, under the names of scipy.stats."""
from __future__ import annotations

import math

from ... import _operators as _t, special as _special
from ._arrays import floating, like, tensor, together

__all__ = ["boxcox_llf", "entropy", "trim_mean", "zmap", "zscore"]


def entropy(pk, qk=None, base=None, axis=0):
    """-sum(pk * log(pk)), or with `qk` the Kullback-Leibler divergence sum(pk * log(pk / qk)), along an axis; both are made to sum to 1.
    In units of e, or of `base`."""
    if base is not None and base <= 0:
        raise ValueError("`base` must be a positive number.")
    p = floating(tensor(pk))
    if qk is None:
        p = p / p.sum(axis, True)
        total = _special.entr(p).sum(axis)
    else:
        p, q = _t.broadcast_tensors(*together(p, floating(tensor(qk))))
        p, q = p / p.sum(axis, True), q / q.sum(axis, True)
        total = _relative_entropy(p, q).sum(axis)
    return like(pk, total if base is None else total / math.log(base))


def _relative_entropy(p, q):
    """p log(p / q) of each element; 0 where p is, and infinite below 0 or where q alone is 0."""
    usual = p * (p / q).log()
    return usual.where((p > 0) & (q > 0), ((p != 0) | (q < 0)).to(p.dtype) * math.inf).where((p != 0) | (q < 0), 0.0)


def trim_mean(a, proportiontocut, axis=0):
    """The mean without this share of the least and of the greatest elements each, rounded down; of all for axis=None."""
    t = floating(tensor(a))
    if axis is None:
        t, axis = t.reshape(-1), 0
    n = t.shape[axis] if t.dim() else 1
    cut = int(proportiontocut * n)
    if 2 * cut > n:
        raise ValueError("Proportion too big.")
    return like(a, t if not t.dim() else t.sort(axis)[0].narrow(axis, cut, n - 2 * cut).mean(axis))


def boxcox_llf(lmb, data):
    """The log-likelihood of Box and Cox's transform of `data` (along the first axis) with this exponent."""
    t = floating(tensor(data))
    n = t.shape[0]
    if not n:
        return like(data, t.new_tensor(math.nan))
    logs = t.log()
    if lmb:
        # (x**lmb - 1) / lmb varies as x**lmb does, but for a factor, and that is scaled so that it does not overflow.
        top = (lmb * logs).amax(0)
        log_variance = (lmb * logs - top).exp().var(0, correction=0).log() + 2 * top - 2 * math.log(abs(lmb))
    else:
        log_variance = logs.var(0, correction=0).log()
    return like(data, (lmb - 1) * logs.sum(0) - n / 2 * log_variance)


def zmap(scores, compare, axis=0, ddof=0, nan_policy="propagate"):
    """How many standard deviations of `compare` the scores are from its mean, along an axis (None: of all). nan_policy "omit" leaves out
    NaN in `compare`, "raise" refuses it. Where all that is compared with is the same it is NaN."""
    s, c = together(floating(tensor(scores)), floating(tensor(compare)))
    if nan_policy not in ("propagate", "omit", "raise"):
        raise ValueError("nan_policy must be one of {'propagate', 'raise', 'omit'}")
    missing = c.isnan()
    if nan_policy == "raise" and bool(missing.any()):
        raise ValueError("The input contains nan values")
    axes = tuple(range(c.dim())) if axis is None else axis
    if not c.numel():  # nothing has no extremes
        return like(scores, s * (c.sum(axes, True) + math.nan))
    if nan_policy == "omit":
        count = (~missing).sum(axes, True)
        center = c.where(~missing, 0.0).sum(axes, True) / count
        spread = ((c - center).where(~missing, 0.0).square().sum(axes, True) / (count - ddof)).sqrt()
    else:
        center, spread = c.mean(axes, True), c.std(axes, correction=ddof, keepdim=True)
    known = c.where(~missing, center)
    spread = spread.where(known.amax(axes, True) != known.amin(axes, True), math.nan)
    return like(scores, (s - center) / spread)


def zscore(a, axis=0, ddof=0, nan_policy="propagate"):
    """How many standard deviations each element is from the mean: zmap(a, a)."""
    return zmap(a, a, axis, ddof, nan_policy)
