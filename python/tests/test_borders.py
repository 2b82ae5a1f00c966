"""Promotion of limits, and gradients at NaN, kinks and the ends of domains: what PyTorch 2.11 gives."""

from __future__ import annotations

import math

import numpy as np
import pytest

import arete
from arete.nn import functional as F

DTYPES = ("bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64")
LIMITS = {"a fraction": 0.5, "a whole number": 1, "0-d float64": arete.tensor(0.5, dtype=arete.float64),
          "0-d bfloat16": arete.tensor(0.5, dtype=arete.bfloat16), "0-d int64": arete.tensor(1)}


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_limits_promote(dtype, limit):
    """Numbers and 0-d tensors as result_type() has them; what the tensor's dtype does not have is not written into it."""
    x = arete.tensor([0, 1, 3]).to(getattr(arete, dtype))
    wanted = arete.result_type(x, limit)
    below, above = ([f(v, float(limit)) for v in x.tolist()] for f in (max, min))
    for f, g, values in ((arete.clamp_min, "clamp_min_", below), (arete.clamp, "clamp_", below), (arete.clamp_max, "clamp_max_", above)):
        y = f(x, limit)
        assert y.dtype == wanted and y.tolist() == values
        z = x.clone()
        if arete.can_cast(wanted, x.dtype):
            assert getattr(z, g)(limit).dtype == x.dtype and z.tolist() == values
        else:
            with pytest.raises(TypeError, match="can't be cast"):
                getattr(z, g)(limit)
            assert arete.equal(z, x)


def test_limits_of_both_kinds_and_none():
    x = arete.tensor([0, 1, 3])
    y = x.clamp(arete.tensor(0.5), 2)  # a number, where no form takes both
    assert y.dtype == arete.float32 and y.tolist() == [0.5, 1, 2]
    for call in (lambda: x.clamp(), lambda: x.clone().clamp_()):
        with pytest.raises(RuntimeError, match="At least one of 'min' or 'max' must not be None"):
            call()
    for call in (lambda: x.clamp_min(1j), lambda: arete.ones(2, dtype=arete.complex64).clamp_max(1)):
        with pytest.raises(NotImplementedError, match="clamp is not supported for complex types"):
            call()
    limit = arete.tensor(1.0, requires_grad=True)
    arete.tensor([0.0, 2.0]).clamp_min(limit).sum().backward()
    assert limit.grad == 1


NAN, INF = float("nan"), float("inf")
# The gradients at these, of float32 and of what fits into it of the halves.
AT = (NAN, 0.0, -0.0, 1.0, 0.5, -0.5, 4.0)
GRADIENTS = {
    "relu": (arete.relu, (1, 0, 0, 1, 1, 0, 1)),
    "relu_": (lambda x: arete.relu_(x * 1), (1, 0, 0, 1, 1, 0, 1)),
    "hardsigmoid": (F.hardsigmoid, (0, 1 / 6, 1 / 6, 1 / 6, 1 / 6, 1 / 6, 0)),
    "softshrink": (F.softshrink, (1, 0, 0, 1, 0, 0, 1)),
    "logit": (arete.logit, (NAN, INF, -INF, INF, 4, NAN, NAN)),
}


@pytest.mark.parametrize("dtype", DTYPES[-4:])
@pytest.mark.parametrize("function,wanted", GRADIENTS.values(), ids=GRADIENTS)
def test_gradients_at_borders(function, wanted, dtype):
    x = arete.tensor(AT, dtype=getattr(arete, dtype)).requires_grad_()
    function(x).sum().backward()
    np.testing.assert_allclose(x.grad.double().numpy(), wanted, rtol=1e-2 if "16" in dtype else 1e-6)


def test_sinc_at_zero_and_beside_it():
    x = arete.tensor([0.0, -0.0, 1e-40, -1e-40, 1e-3]).requires_grad_()
    (slope,) = arete.autograd.grad(arete.sinc(x).sum(), x, create_graph=True)
    (second,) = arete.autograd.grad(slope.sum(), x)
    np.testing.assert_allclose(slope.detach().numpy()[:4], 0, atol=1e-30)
    np.testing.assert_allclose(second.numpy()[:4], -math.pi**2 / 3, rtol=1e-6)


# Of a = b, of a half more, and of NaN: the gradients to a, and the second derivatives.
SECONDS = {
    "huber_loss": (lambda a, b: F.huber_loss(a, b, reduction="none"), (0, 0.5, NAN), (1, 1, NAN)),
    "smooth_l1_loss": (lambda a, b: F.smooth_l1_loss(a, b, reduction="none"), (0, 0.5, NAN), (1, 1, NAN)),
    "logaddexp": (arete.logaddexp, (0.5, 0.6224593312018546, NAN), (0.25, 0.2350037122015945, NAN)),
    "logaddexp2": (arete.logaddexp2, (0.5, 0.585786437626905, NAN), (0.17328679513998632, 0.16818570816586034, NAN)),
    "log_ndtr": (lambda a, b: arete.special.log_ndtr(a - b),
                 (0.7978845608028654, 0.5091604338370335, NAN), (-0.6366197723675814, -0.5138245643036329, NAN)),
}


@pytest.mark.parametrize("function,slope,second", SECONDS.values(), ids=SECONDS)
def test_second_derivatives_where_arguments_are_equal(function, slope, second):
    a = arete.tensor([1.0, 1.5, NAN], dtype=arete.float64).requires_grad_()
    b = arete.ones(3, dtype=arete.float64, requires_grad=True)
    (first,) = arete.autograd.grad(function(a, b).sum(), a, create_graph=True)
    np.testing.assert_allclose(first.detach().numpy(), slope, rtol=1e-9)
    of_a, of_b = arete.autograd.grad(first.sum(), (a, b))
    np.testing.assert_allclose(of_a.numpy()[:2], second[:2], rtol=1e-9)
    np.testing.assert_allclose(of_b.numpy()[:2], -np.array(second[:2]), rtol=1e-9)


def test_log_ndtr_far_from_zero():
    """Its second derivative was NaN beyond 20 in float32."""
    x = arete.tensor([10.0, 20.0, 100.0, -100.0]).requires_grad_()
    (slope,) = arete.autograd.grad(arete.special.log_ndtr(x).sum(), x, create_graph=True)
    (second,) = arete.autograd.grad(slope.sum(), x)
    np.testing.assert_allclose(second.numpy(), [-10 * math.exp(-50) / math.sqrt(2 * math.pi), 0, 0, -0.99990006], rtol=1e-3, atol=1e-30)
