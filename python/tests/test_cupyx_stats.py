"""cupyx.scipy.stats and cupyx.scipy.spatial beside loops of NumPy."""
import itertools
import math

import numpy
import pytest
from device_helpers import device_of_arrays, host, on_devices_of_arrays  # noqa: F401

import arete.cupy as cp
from arete.cupyx.scipy import spatial, stats
from arete.cupyx.scipy.spatial import distance

pytestmark = on_devices_of_arrays
RANDOM = numpy.random.default_rng(23)


def test_entropy():
    p, q = RANDOM.random((5, 3)), RANDOM.random((5, 3))
    p[0, 0] = q[0, 0] = 0
    pn, qn = p / p.sum(0), q / q.sum(0)
    with numpy.errstate(all="ignore"):
        plain = -numpy.nansum(pn * numpy.log(pn), 0)
        relative = numpy.nansum(pn * numpy.log(pn / qn), 0)
    numpy.testing.assert_allclose(host(stats.entropy(cp.array(p))), plain)
    numpy.testing.assert_allclose(host(stats.entropy(cp.array(p), base=2)), plain / math.log(2))
    numpy.testing.assert_allclose(host(stats.entropy(cp.array(p), cp.array(q))), relative)
    numpy.testing.assert_allclose(host(stats.entropy(cp.array(p.T), axis=1)), plain)
    q[1, 1] = 0
    assert math.isinf(host(stats.entropy(cp.array(p), cp.array(q)))[1])
    assert math.isclose(float(stats.entropy(cp.array([1, 1]), base=2)), 1)
    with pytest.raises(ValueError):
        stats.entropy(cp.array(p), base=-1)


def test_scores():
    x = RANDOM.normal(size=(6, 4))
    numpy.testing.assert_allclose(host(stats.zscore(cp.array(x), ddof=1)), (x - x.mean(0)) / x.std(0, ddof=1))
    numpy.testing.assert_allclose(host(stats.zscore(cp.array(x), axis=None)), (x - x.mean()) / x.std())
    numpy.testing.assert_allclose(host(stats.zmap(cp.array(x), cp.array(2 * x), axis=1)),
                                  (x - 2 * x.mean(1, keepdims=True)) / (2 * x.std(1, keepdims=True)))
    x[2, 1], x[:, 3] = numpy.nan, 5
    found = host(stats.zscore(cp.array(x)))
    assert numpy.isnan(found[:, 1]).all() and numpy.isnan(found[:, 3]).all() and numpy.isfinite(found[:, [0, 2]]).all()
    found = host(stats.zscore(cp.array(x), nan_policy="omit"))
    numpy.testing.assert_allclose(found[:, 1], (x[:, 1] - numpy.nanmean(x[:, 1])) / numpy.nanstd(x[:, 1]))
    found = host(stats.zmap(cp.zeros(1), cp.array([1, numpy.inf, 3, numpy.nan]), nan_policy="omit"))
    assert numpy.isnan(found).all()  # no finite mean, so no score
    for shape in ((0, 3), (3, 0), (0,)):
        for axis in (0, -1, None):
            for policy in ("propagate", "omit"):
                assert stats.zscore(cp.zeros(shape), axis=axis, nan_policy=policy).shape == shape
    assert numpy.isnan(host(stats.zmap(cp.zeros((2, 3)), cp.zeros((0, 3))))).tolist() == [[True] * 3] * 2
    for policy, text in (("raise", "nan"), ("guess", "nan_policy")):
        with pytest.raises(ValueError, match=text):
            stats.zscore(cp.array(x), nan_policy=policy)


@pytest.mark.parametrize("share", [0, 0.1, 0.25, 0.4])
def test_trimmed_means(share):
    x = RANDOM.normal(size=(9, 4))
    cut = int(share * 9)
    wanted = numpy.sort(x, 0)[cut:9 - cut].mean(0)
    numpy.testing.assert_allclose(host(stats.trim_mean(cp.array(x), share)), wanted)
    numpy.testing.assert_allclose(host(stats.trim_mean(cp.array(x.T), share, axis=1)), wanted)
    cut = int(share * 36)
    assert math.isclose(float(stats.trim_mean(cp.array(x), share, axis=None)), numpy.sort(x, None)[cut:36 - cut].mean())
    with pytest.raises(ValueError):
        stats.trim_mean(cp.array(x), 0.6)


@pytest.mark.parametrize("exponent", [0, 0.5, -1, 3])
def test_box_and_cox(exponent):
    x = RANDOM.random((20, 2)) + 0.2
    moved = numpy.log(x) if exponent == 0 else (x ** exponent - 1) / exponent
    wanted = (exponent - 1) * numpy.log(x).sum(0) - 10 * numpy.log(moved.var(0))
    numpy.testing.assert_allclose(host(stats.boxcox_llf(exponent, cp.array(x))), wanted)
    assert math.isfinite(float(stats.boxcox_llf(900, cp.array(x[:, 0] * 9))))


def kullback(p, q):
    return sum(0 if a == 0 else math.inf if b == 0 else a * math.log(a / b) for a, b in zip(p, q))


def jensen(u, v):
    p, q = u / u.sum(), v / v.sum()
    return math.sqrt((kullback(p, (p + q) / 2) + kullback(q, (p + q) / 2)) / 2)


METRICS = {
    "canberra": lambda u, v: sum(abs(a - b) / (abs(a) + abs(b)) if a or b else 0 for a, b in zip(u, v)),
    "chebyshev": lambda u, v: abs(u - v).max(),
    "cityblock": lambda u, v: abs(u - v).sum(),
    "correlation": lambda u, v: 1 - numpy.corrcoef(u, v)[0, 1],
    "cosine": lambda u, v: 1 - u @ v / math.sqrt(u @ u * (v @ v)),
    "euclidean": lambda u, v: math.sqrt(((u - v) ** 2).sum()),
    "hamming": lambda u, v: (u != v).mean(),
    "hellinger": lambda u, v: math.sqrt(max(0, 1 - numpy.sqrt(u * v).sum())),
    "jensenshannon": jensen,
    "kl_divergence": kullback,
    "russellrao": lambda u, v: 1 - ((u != 0) & (v != 0)).mean(),
    "sqeuclidean": lambda u, v: ((u - v) ** 2).sum(),
    "minkowski": lambda u, v: (abs(u - v) ** 3).sum() ** (1 / 3),
}


@pytest.mark.parametrize("metric", METRICS)
def test_distances(metric):
    x, y = RANDOM.random((7, 5)), RANDOM.random((4, 5))
    x /= x.sum(1, keepdims=True)
    y /= y.sum(1, keepdims=True)
    x[3, 2] = y[1, 2] = 0
    x[5] = y[2]
    options, f = {"p": 3} if metric == "minkowski" else {}, METRICS[metric]
    close = {"rtol": 1e-9, "atol": 1e-7 if metric in ("hellinger", "jensenshannon") else 1e-12}
    found = host(distance.cdist(cp.array(x), cp.array(y), metric, **options))
    numpy.testing.assert_allclose(found, [[f(u, v) for v in y] for u in x], **close)
    pairs = host(distance.pdist(cp.array(x), metric, **options))
    numpy.testing.assert_allclose(pairs, [f(u, v) for u, v in itertools.combinations(x, 2)], **close)
    numpy.testing.assert_allclose(host(getattr(distance, metric)(cp.array(x[0]), cp.array(y[0]), **options)), f(x[0], y[0]), **close)
    out = cp.empty((7, 4))
    assert distance.cdist(cp.array(x), cp.array(y), metric, out=out, **options) is out and numpy.isclose(host(out)[1, 1], f(x[1], y[1]))


def test_distances_of_many_points(monkeypatch):
    x, y = RANDOM.random((50, 3)), RANDOM.random((40, 3))
    wanted = host(distance.cdist(cp.array(x), cp.array(y), "canberra"))
    monkeypatch.setattr(distance, "_BYTES", 5000)
    numpy.testing.assert_allclose(host(distance.cdist(cp.array(x), cp.array(y), "canberra")), wanted, rtol=1e-14)  # GPUs may add otherwise
    # Points that are near each other and far from the origin.
    near = 1e6 + 1e-3 * x
    numpy.testing.assert_allclose(host(distance.cdist(cp.array(near), cp.array(near)))[0], numpy.sqrt(((near[0] - near) ** 2).sum(1)))
    numpy.testing.assert_allclose(host(spatial.distance_matrix(cp.array(x), cp.array(y), 1)), abs(x[:, None] - y).sum(2))


def test_square_forms():
    x = RANDOM.random((6, 2))
    pairs = distance.pdist(cp.array(x))
    square = distance.squareform(pairs)
    numpy.testing.assert_allclose(host(square), host(distance.cdist(cp.array(x), cp.array(x))), atol=1e-12)
    numpy.testing.assert_array_equal(host(distance.squareform(square)), host(pairs))
    assert distance.squareform(cp.array([])).shape == (1, 1)
    for bad in (cp.ones(4), cp.ones((2, 3)), cp.array([[0.0, 1], [2, 0]]), cp.ones((2, 2))):
        with pytest.raises(ValueError):
            distance.squareform(bad)


def test_what_is_refused():
    x = cp.ones((3, 2))
    for call, error in ((lambda: distance.cdist(x, cp.ones((3, 3))), ValueError), (lambda: distance.cdist(x, x, "miles"), ValueError),
                        (lambda: distance.cdist(x, cp.ones(3)), ValueError),
                        (lambda: distance.cdist(x, x, w=cp.ones(2)), NotImplementedError),
                        (lambda: distance.cdist(x, x, q=1), TypeError), (lambda: distance.cdist(x, x, "minkowski", p=-1), ValueError),
                        (lambda: distance.pdist(x, out=cp.ones(2)), ValueError)):
        with pytest.raises(error):
            call()
    for metric in ("cosine", "cos", "euclidean"):
        with pytest.raises(TypeError, match="the metric '(cosine|euclidean)' has no option 'p'"):
            distance.cdist(x, x, metric, p=3)
    with pytest.raises(TypeError, match="the metric 'minkowski' has no option 'name'"):
        distance.cdist(x, x, "minkowski", name=3)
