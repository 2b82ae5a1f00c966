"""Transforms of distributions and constraints of their parameters beside PyTorch's."""
import copy
import math
import pickle

import pytest
from distribution_cases import close, real, theirs, torch

import arete
from arete import distributions as ours


def test_constraints():
    c = ours.constraints
    x = arete.tensor([-1.0, 0.0, 0.5, 1.0, 2.0, math.nan])
    for constraint, expected in [
            (c.real, [1, 1, 1, 1, 1, 0]), (c.positive, [0, 0, 1, 1, 1, 0]), (c.nonnegative, [0, 1, 1, 1, 1, 0]),
            (c.unit_interval, [0, 1, 1, 1, 0, 0]), (c.boolean, [0, 1, 0, 1, 0, 0]),
            (c.nonnegative_integer, [0, 1, 0, 1, 1, 0]), (c.positive_integer, [0, 0, 0, 1, 1, 0]),
            (c.half_open_interval(0, 1), [0, 1, 1, 0, 0, 0]), (c.less_than(1), [1, 1, 1, 0, 0, 0])]:
        assert constraint.check(x).tolist() == [bool(e) for e in expected], constraint
        assert repr(constraint)
    assert c.simplex.check(arete.tensor([[0.5, 0.5], [1.5, -0.5], [0.5, 0.4]])).tolist() == [True, False, False]
    matrices = arete.tensor([[[1.0, 0], [0, 1]], [[1, 2], [2, 1]], [[1, 0.5], [0, 1]]])
    assert c.positive_definite.check(matrices).tolist() == [True, False, False]
    assert not c.positive_definite.check(arete.ones(2, 3))
    matrices = arete.tensor([[[1.0, 0], [5, 1]], [[1, 1], [0, 1]], [[-1, 0], [0, 1]]])
    assert c.lower_cholesky.check(matrices).tolist() == [True, False, False]
    assert c.is_dependent(c.dependent) and not c.is_dependent(c.real)
    with pytest.raises(ValueError):
        c.dependent.check(x)
    with pytest.raises(NotImplementedError, match="event_dim"):
        c.dependent.event_dim
    assert ours.Uniform.support.event_dim == c.dependent(event_dim=0).event_dim == 0


@pytest.mark.parametrize("name, arguments", [
    ("AffineTransform", (1.0, -2.0)), ("ExpTransform", ()), ("SigmoidTransform", ()), ("TanhTransform", ()),
    ("SoftplusTransform", ())])
def test_transforms(name, arguments):
    mine, other = getattr(ours.transforms, name)(*arguments), getattr(theirs.transforms, name)(*arguments)
    values = real(2, 3)
    x, y = arete.tensor(values), torch.tensor(values)
    close(mine(x), other(y))
    close(mine.inv(mine(x)), x)
    close(mine.log_abs_det_jacobian(x, mine(x)), other.log_abs_det_jacobian(y, other(y)))
    close(mine.inv.log_abs_det_jacobian(mine(x), x), other.inv.log_abs_det_jacobian(other(y), y))
    assert (mine.sign, mine.bijective, mine.event_dim) == (other.sign, other.bijective, other.event_dim)
    assert repr(mine.domain) == repr(other.domain) and repr(mine.codomain) == repr(other.codomain)
    assert mine.inv.inv is mine and mine == getattr(ours.transforms, name)(*arguments)
    assert mine != ours.transforms.AbsTransform()
    assert mine.inv == copy.copy(mine).inv
    cached = mine.with_cache()
    assert cached.inv(y := cached(x)) is x and cached(x) is y and mine.with_cache(0) is mine
    assert pickle.loads(pickle.dumps(mine)) == mine


def test_composition():
    t = ours.transforms
    vectors = t.AffineTransform(arete.tensor([1.0, 2.0]), 3.0, event_dim=1)
    mine = t.ComposeTransform([vectors, t.ExpTransform(), t.AffineTransform(0.0, -1.0)])
    x = arete.tensor([[0.1, 0.2]], requires_grad=True)
    assert (mine.domain.event_dim, mine.codomain.event_dim, mine.sign) == (1, 1, -1)
    jacobian = arete.autograd.functional.jacobian(mine, x).reshape(2, 2)
    close(mine.log_abs_det_jacobian(x, mine(x)), arete.linalg.slogdet(jacobian).logabsdet.reshape(1), rtol=1e-5)
    close(mine.inv(mine(x)), x, rtol=1e-5)
    assert mine.forward_shape((3, 1)) == (3, 2)
    assert mine == t.ComposeTransform(mine.parts) and mine != t.identity_transform and t.identity_transform(x) is x
    wider = t.AffineTransform(arete.zeros(3, 2), 1.0, event_dim=1)
    d = ours.TransformedDistribution(ours.Normal(arete.zeros(2), 1.0), wider)
    assert (d.batch_shape, d.event_shape) == ((3,), (2,))
    assert (d.sample((5,)).shape, d.expand((4, 3)).sample().shape) == ((5, 3, 2), (4, 3, 2))
