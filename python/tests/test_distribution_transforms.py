"""Transforms of distributions and constraints of their parameters beside PyTorch's."""
import copy
import math
import pickle

import pytest
from distribution_cases import close, matrix, real, theirs, torch

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


def events(library):
    t = library.transforms
    return {
        "StickBreaking": (t.StickBreakingTransform(), (2, 3)), "Softmax": (t.SoftmaxTransform(), (2, 3)),
        "CorrCholesky": (t.CorrCholeskyTransform(), (2, 6)), "CorrCholesky of two": (t.CorrCholeskyTransform(), (4, 1)),
        "LowerCholesky": (t.LowerCholeskyTransform(), (2, 3, 3)), "Reshape": (t.ReshapeTransform((2, 3), (3, 2)), (4, 2, 3)),
        "PositiveDefinite": (t.PositiveDefiniteTransform(), (2, 3, 3)),
        "Cat": (t.CatTransform([t.ExpTransform(), t.AffineTransform(1.0, 2.0)], dim=-1, lengths=[1, 2]), (2, 3)),
        "Cat of vectors": (t.CatTransform([t.AffineTransform(0.5, 2.0, event_dim=1),
                                           t.IndependentTransform(t.ExpTransform(), 1)], dim=0, lengths=[1, 3]), (4, 2)),
        "Cat along the event": (t.CatTransform([t.IndependentTransform(t.ExpTransform(), 1)] * 2, -1, [2, 1]), (4, 3)),
        "Stack": (t.StackTransform([t.ExpTransform(), t.TanhTransform()], dim=1), (3, 2)),
        "CumulativeDistribution": (t.CumulativeDistributionTransform(library.Normal(0.5, 2.0)), (2, 3)),
    }


@pytest.mark.parametrize("name", sorted(events(ours)))
def test_transforms_of_events(name):
    (mine, shape), (other, _) = events(ours)[name], events(theirs)[name]
    values = real(*shape)
    x, y = arete.tensor(values), torch.tensor(values)
    close(mine(x), other(y))
    close(mine.inv(mine(x)), other.inv(other(y)), rtol=1e-7)
    if mine.bijective:
        close(mine.inv(mine(x)), x, rtol=1e-7)
    try:
        expected = other.log_abs_det_jacobian(y, other(y))
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            mine.log_abs_det_jacobian(x, mine(x))
    else:
        close(mine.log_abs_det_jacobian(x, mine(x)), expected)
    assert mine.bijective == other.bijective
    assert (mine.domain.event_dim, mine.codomain.event_dim) == (other.domain.event_dim, other.codomain.event_dim)
    assert tuple(mine.forward_shape(x.shape)) == tuple(other.forward_shape(y.shape)) == mine(x).shape
    assert tuple(mine.inverse_shape(mine(x).shape)) == x.shape
    assert mine.codomain.check(mine(x)).all() and mine.domain.check(x).all()
    cached = mine.with_cache()
    assert cached.inv(z := cached(x)) is x and cached(x) is z and mine.with_cache(0) is mine


def test_pieces_that_do_not_fit():
    t = ours.transforms
    for make in (lambda: t.CatTransform([t.ExpTransform()], lengths=[1, 2]), lambda: t.StackTransform([3]),
                 lambda: t.CatTransform([t.ExpTransform()], lengths=[2])(arete.ones(3)),
                 lambda: t.StackTransform([t.ExpTransform()])(arete.ones(3)),
                 lambda: ours.constraints.cat([ours.constraints.real], lengths=[1, 2])):
        with pytest.raises(AssertionError):
            make()


@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
@pytest.mark.parametrize("name", [
    "real", "real_vector", "positive", "nonnegative", "unit_interval", "simplex", "corr_cholesky", "lower_cholesky",
    "positive_definite", "positive_semidefinite", "greater", "greater_eq", "less", "interval", "half_open", "vectors", "cat",
    "stack"])
def test_registries(registry, name):
    def made(library):
        c = library.constraints
        constraint = {"greater": lambda: c.greater_than(2.0), "greater_eq": lambda: c.greater_than_eq(2.0),
                      "less": lambda: c.less_than(2.0), "interval": lambda: c.interval(-1.0, 2.0),
                      "half_open": lambda: c.half_open_interval(0.0, 2.0), "vectors": lambda: c.independent(c.positive, 1),
                      "cat": lambda: c.cat([c.positive, c.real], -1, [1, 2]),
                      "stack": lambda: c.stack([c.positive, c.real, c.unit_interval], -1)}.get(
                          name, lambda: getattr(c, name))()
        return constraint, getattr(library, registry)(constraint)

    try:
        other = made(theirs)[1]
    except NotImplementedError:
        with pytest.raises(NotImplementedError, match="Cannot transform"):
            made(ours)
        return
    constraint, mine = made(ours)
    values = real(4, 3, 3)
    close(mine(arete.tensor(values)), other(torch.tensor(values)))
    assert constraint.check(mine(arete.tensor(values))).all()


def test_registries_are_extended():
    class Odd(ours.constraints.Constraint):
        pass

    registry = ours.constraint_registry.ConstraintRegistry()
    with pytest.raises(NotImplementedError, match="Cannot transform Odd"):
        registry(Odd())
    registry.register(Odd)(lambda constraint: ours.ExpTransform())
    assert registry(Odd()) == ours.ExpTransform()
    with pytest.raises(TypeError, match="Constraint subclass or instance"):
        registry.register(int, lambda constraint: None)


def test_constraints_of_matrices():
    values = [matrix(3, 3), -matrix(3, 3), real(3, 3), [[1.0, 0, 0], [0.6, 0.8, 0], [0, 0, 1]], [[1.0, 0, 0]] * 3,
              [[1.0, 1, 0], [1, 1, 0], [0, 0, 0]]]
    for name in ("square", "symmetric", "lower_triangular", "lower_cholesky", "corr_cholesky", "positive_definite",
                 "positive_semidefinite"):
        for value in values:
            mine = getattr(ours.constraints, name).check(arete.tensor(value, dtype=arete.float64))
            assert mine.item() == getattr(theirs.constraints, name).check(torch.tensor(value, dtype=torch.float64)).item()
    assert not ours.constraints.symmetric.check(arete.ones(2, 3)) and not ours.constraints.square.check(arete.ones(2, 3))
    assert ours.constraints.square.check(arete.ones(4, 2, 2)).tolist() == [True] * 4


def test_triangles_as_vectors():
    for n in (1, 2, 4):
        for diag in range(1 - n, n):
            full = real(2, n, n)
            mine = ours.utils.tril_matrix_to_vec(arete.tensor(full), diag)
            close(mine, theirs.utils.tril_matrix_to_vec(torch.tensor(full), diag))
            close(ours.utils.vec_to_tril_matrix(mine, diag), arete.tensor(full).tril(diag))
    x = real(2, 3)
    for binary in (True, False):
        close(ours.utils.logits_to_probs(arete.tensor(x), binary), theirs.utils.logits_to_probs(torch.tensor(x), binary))
        p = ours.utils.logits_to_probs(arete.tensor(x), binary)
        close(ours.utils.probs_to_logits(p, binary), theirs.utils.probs_to_logits(torch.tensor(p.numpy()), binary))
