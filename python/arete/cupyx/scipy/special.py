"""Special functions under SciPy's names: those of arete.special, of arrays."""
from __future__ import annotations

from ... import special as _special
from ._arrays import floating, like, tensor

# SciPy's name: the operator's.
_NAMES = {name: name for name in (
    "digamma entr erf erfc erfcx erfinv exp2 expit expm1 gammainc gammaincc gammaln i0 i0e i1 i1e log1p log_ndtr logit ndtr ndtri "
    "polygamma psi round sinc xlog1py xlogy zeta").split() if hasattr(_special, name)}
_NAMES |= {"j0": "bessel_j0", "j1": "bessel_j1", "y0": "bessel_y0", "y1": "bessel_y1", "k0": "modified_bessel_k0",
           "k1": "modified_bessel_k1", "k0e": "scaled_modified_bessel_k0", "k1e": "scaled_modified_bessel_k1"}

__all__ = [*_NAMES, "gamma", "log_softmax", "logsumexp", "softmax"]


def _of_arrays(name, operator):
    def function(*args, out=None):
        first = next((a for a in args if not isinstance(a, (int, float))), args[0])
        result = operator(*(a if name == "polygamma" and k == 0 else floating(tensor(a)) for k, a in enumerate(args)))
        if out is not None:
            tensor(out).copy_(result)
            return out
        return like(first, result)

    function.__name__, function.__doc__ = name, operator.__doc__
    return function


globals().update({name: _of_arrays(name, getattr(_special, operator)) for name, operator in _NAMES.items() if hasattr(_special, operator)})


def gamma(x):
    """The gamma function."""
    t = floating(tensor(x))
    size = _special.gammaln(t).exp()
    # Below 0 its sign changes from one whole number to the next.
    negative = (t < 0) & (t.floor() % 2 != 0)
    return like(x, size.where(~negative, -size))


def _axes(t, axis):
    return list(range(t.dim())) if axis is None else list(axis) if isinstance(axis, tuple) else [axis]


def logsumexp(a, axis=None, b=None, keepdims=False):
    """log(sum(b * exp(a))), without overflow."""
    t = floating(tensor(a))
    axes = _axes(t, axis)
    if b is None:
        return like(a, t.logsumexp(axes, keepdims))
    top = t.amax(axes, True)
    total = ((t - top).exp() * tensor(b, t.dtype)).sum(axes, True).log() + top
    return like(a, total if keepdims else total.squeeze(tuple(axes)))


def softmax(x, axis=None):
    t = floating(tensor(x))
    return like(x, (t - t.logsumexp(_axes(t, axis), True)).exp())


def log_softmax(x, axis=None):
    t = floating(tensor(x))
    return like(x, t - t.logsumexp(_axes(t, axis), True))
