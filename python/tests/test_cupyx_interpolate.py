"""cupyx.scipy.interpolate: splines beside their definitions and, where SciPy is installed, beside it."""
import numpy
import pytest
from device_helpers import device_of_arrays, host, on_devices_of_arrays  # noqa: F401

import arete
import arete.cupy as cp
from arete.cupyx.scipy import interpolate

pytestmark = on_devices_of_arrays
RANDOM = numpy.random.default_rng(19)


def evenly(n):
    return numpy.cumsum(RANDOM.random(n) + 0.1)


def ends_of_pieces(c, x):
    """Values and two derivatives (3, pieces, ...) of cubics at the right end of each piece, and at its left."""
    h = numpy.diff(x).reshape(-1, *[1] * (c.ndim - 2))
    right = [((c[0] * h + c[1]) * h + c[2]) * h + c[3], (3 * c[0] * h + 2 * c[1]) * h + c[2], 6 * c[0] * h + 2 * c[1]]
    return numpy.stack(right), numpy.stack([c[3], c[2], 2 * c[1]])


@pytest.mark.parametrize("n", [2, 3, 4, 5, 17, 256, 257, 700])
@pytest.mark.parametrize("ends", ["not-a-knot", "natural", "clamped", "periodic", "given"])
def test_cubic_splines_are_smooth(n, ends):
    x, shape = evenly(n), (2, n, 3)
    y = RANDOM.normal(size=shape) + 1j * RANDOM.normal(size=shape) * (n % 2)
    y = y if n % 2 else y.real
    if ends == "periodic":
        y[:, -1] = y[:, 0]
    given = RANDOM.normal(size=(2, 3))
    condition = ((1, cp.array(given)), (2, cp.array(2 * given))) if ends == "given" else ends
    spline = interpolate.CubicSpline(cp.array(x), cp.array(y), axis=1, bc_type=condition)
    c = host(spline.c)
    right, left = ends_of_pieces(c, x)
    close = {"rtol": 1e-9, "atol": 1e-9}
    values = numpy.moveaxis(y, 1, 0)
    numpy.testing.assert_allclose(left[0], values[:-1], **close)
    numpy.testing.assert_allclose(right[0], values[1:], **close)
    numpy.testing.assert_allclose(right[1:, :-1], left[1:, 1:], **close)
    if ends == "natural":
        assert abs(left[2, 0]).max() < 1e-9 and abs(right[2, -1]).max() < 1e-9
    elif ends == "clamped":
        assert abs(left[1, 0]).max() < 1e-9 and abs(right[1, -1]).max() < 1e-9
    elif ends == "periodic":
        numpy.testing.assert_allclose(left[:, 0], right[:, -1], **close)
        at = numpy.linspace(x[0], x[-1], 9)
        numpy.testing.assert_allclose(host(spline(cp.array(at + 2 * (x[-1] - x[0])))), host(spline(cp.array(at))), rtol=1e-7, atol=1e-7)
    elif ends == "given":
        numpy.testing.assert_allclose(left[1, 0], given, **close)
        numpy.testing.assert_allclose(right[2, -1], 2 * given, **close)
    elif n > 3:
        numpy.testing.assert_allclose(c[0, 0], c[0, 1], **close)
        numpy.testing.assert_allclose(c[0, -1], c[0, -2], **close)
    assert spline(cp.array(x)).shape == y.shape and spline(cp.zeros((4, 5))).shape == (2, 4, 5, 3)


def basis_by_definition(t, k, i, v):
    if k == 0:
        return ((t[i] <= v) & (v < t[i + 1])).astype(float)
    r = numpy.zeros_like(v)
    if t[i + k] > t[i]:
        r += (v - t[i]) / (t[i + k] - t[i]) * basis_by_definition(t, k - 1, i, v)
    if t[i + k + 1] > t[i + 1]:
        r += (t[i + k + 1] - v) / (t[i + k + 1] - t[i + 1]) * basis_by_definition(t, k - 1, i + 1, v)
    return r


@pytest.mark.parametrize("k", [0, 1, 2, 3, 5])
def test_b_splines_are_sums(k):
    t = numpy.r_[[0.0] * (k + 1), 1, 2, 2, 3.5, [4.0] * (k + 1)] if k else numpy.r_[0.0, 1, 2, 3.5, 4]
    n = len(t) - k - 1
    c, v = RANDOM.normal(size=(2, n)), numpy.linspace(0, 3.99, 57)
    all_of_them = numpy.stack([basis_by_definition(t, k, i, v) for i in range(n)], 1)
    spline = interpolate.BSpline(cp.array(t), cp.array(c), k, axis=1)
    numpy.testing.assert_allclose(host(spline(cp.array(v))), c @ all_of_them.T, atol=1e-12)
    numpy.testing.assert_allclose(host(interpolate.BSpline.design_matrix(cp.array(v), cp.array(t), k).toarray()), all_of_them, atol=1e-14)
    inside = v[(abs(v[:, None] - t) > 1e-3).all(1)]
    if k:
        step = 1e-5
        slope = (host(spline(cp.array(inside + step))) - host(spline(cp.array(inside - step)))) / (2 * step)
        numpy.testing.assert_allclose(host(spline(cp.array(inside), 1)), slope, atol=1e-5)
        numpy.testing.assert_allclose(host(spline.derivative()(cp.array(inside))), slope, atol=1e-5)
        assert not host(spline(cp.array(v), k + 1)).any()
    area = spline.antiderivative()
    numpy.testing.assert_array_equal(host(spline.derivative(-2).c), host(spline.antiderivative(2).c))
    numpy.testing.assert_array_equal(host(area.antiderivative(-1).c), host(area.derivative().c))
    numpy.testing.assert_allclose(host(area.derivative()(cp.array(inside))), host(spline(cp.array(inside))), atol=1e-10)
    numpy.testing.assert_allclose(host(spline.integrate(0.3, 3.1)), host(area(3.1)) - host(area(0.3)), atol=1e-12)
    spline.extrapolate = False
    assert numpy.isnan(host(spline(cp.array([-0.1, 4.1, numpy.nan])))).all()
    pieces = interpolate.PPoly.from_spline(spline)
    numpy.testing.assert_allclose(host(pieces(cp.array(v))), host(spline(cp.array(v))), atol=1e-12)


@pytest.mark.parametrize("n", [6, 40, 300, 1000])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_splines_go_through_the_points(n, k):
    x = evenly(n)
    y = RANDOM.normal(size=(n, 2))
    spline = interpolate.make_interp_spline(cp.array(x), cp.array(y), k)
    numpy.testing.assert_allclose(host(spline(cp.array(x))), y, atol=1e-8)
    # A polynomial of the degree is met everywhere.
    power = numpy.polynomial.Polynomial(RANDOM.normal(size=k + 1), [x[0], x[-1]])
    at = numpy.linspace(x[0], x[-1], 31)
    spline = interpolate.make_interp_spline(cp.array(x), cp.array(power(x)), k)
    numpy.testing.assert_allclose(host(spline(cp.array(at))), power(at), atol=1e-7)
    if k == 3:
        spline = interpolate.make_interp_spline(cp.array(x), cp.array(y), bc_type=([(1, [0.5, 1.0])], [(2, [0.0, -1.0])]))
        numpy.testing.assert_allclose(host(spline(cp.array(x[[0]]), 1))[0], [0.5, 1], atol=1e-8)
        numpy.testing.assert_allclose(host(spline(cp.array(x[[-1]]), 2))[0], [0, -1], atol=1e-7)
        natural = interpolate.make_interp_spline(cp.array(x), cp.array(y), bc_type="natural")
        other = interpolate.CubicSpline(cp.array(x), cp.array(y), bc_type="natural")
        numpy.testing.assert_allclose(host(natural(cp.array(at))), host(other(cp.array(at))), atol=1e-8)
    knots = numpy.r_[[x[0]] * (k + 1), x[n // 2], [x[-1]] * (k + 1)]
    if n > k + 2:
        weights = RANDOM.random(n) + 0.5
        fit = interpolate.make_lsq_spline(cp.array(x), cp.array(y), cp.array(knots), k, w=cp.array(weights))
        matrix = host(interpolate.BSpline.design_matrix(cp.array(x), cp.array(knots), k).toarray()) * weights[:, None]
        wanted = numpy.linalg.lstsq(matrix, y * weights[:, None], rcond=None)[0]
        numpy.testing.assert_allclose(host(fit.c), wanted, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("k", [0, 1, 3, 5])
@pytest.mark.parametrize("factor", [1.0, 2 - 1j])
def test_least_squares_by_many_splines(k, factor):
    """More than are solved as one dense system."""
    x = numpy.sort(RANDOM.uniform(0, 10, 8000))
    knots = numpy.r_[[x[0]] * (k + 1), numpy.quantile(x, numpy.linspace(0, 1, 401)[1:-1]), [x[-1]] * (k + 1)]
    y, weights = numpy.sin(x)[:, None] * [factor, 3] + RANDOM.normal(size=(8000, 2)), RANDOM.random(8000) + 0.5
    with arete.utils.GPUMemoryTracker(cp.array(x)._tensor.device) as tracker:
        fit = interpolate.make_lsq_spline(cp.array(x), cp.array(y), cp.array(knots), k, w=cp.array(weights))
    assert tracker.peak < 8 * 8000 * 400 / 2  # half the matrix, if it were dense; on GPUs some 4 MiB are scratch memory of libraries
    matrix = host(interpolate.BSpline.design_matrix(cp.array(x), cp.array(knots), k).toarray()) * weights[:, None]
    q, r = numpy.linalg.qr(matrix)  # a tenth of the work of lstsq, which takes singular values, of complex numbers for complex ones
    wanted = numpy.linalg.solve(r, q.T @ (y * weights[:, None]))
    numpy.testing.assert_allclose(host(fit.c), wanted, rtol=0, atol=1e-11)
    bad = numpy.r_[knots[:k + 1], x[0] + (x[1] - x[0]) * numpy.linspace(0.1, 0.9, k + 3), knots[-k - 1:]]
    with pytest.raises(arete.linalg.LinAlgError):
        interpolate.make_lsq_spline(cp.array(x), cp.array(y), cp.array(bad), k)


def test_shapes_of_curves_are_kept():
    x, y = numpy.arange(8.0), numpy.array([0, 0, 0, 1, 4, 4, 4, 3.0])
    at = numpy.linspace(0, 7, 200)
    values = host(interpolate.PchipInterpolator(cp.array(x), cp.array(y))(cp.array(at)))
    assert (numpy.diff(values[at < 4]) >= -1e-14).all() and values.max() <= 4 and not values[at <= 2].any()
    assert numpy.allclose(host(interpolate.pchip_interpolate(cp.array(x), cp.array(y), cp.array(x))), y)
    for method in ("akima", "makima"):
        f = interpolate.Akima1DInterpolator(cp.array(x), cp.array(y), method=method)
        assert numpy.allclose(host(f(cp.array(x))), y) and numpy.isnan(float(f(cp.array(7.5))))
    assert not host(interpolate.Akima1DInterpolator(cp.array(x), cp.array(y), method="makima")(cp.array(at[at <= 2]))).any()
    line = interpolate.CubicHermiteSpline(cp.array(x), cp.array(2 * x + 1), cp.array(0 * x + 2))
    assert numpy.allclose(host(line(cp.array(at))), 2 * at + 1)


def test_pieces():
    c, x = RANDOM.normal(size=(3, 4, 2)), numpy.array([0.0, 1, 1.5, 4, 5])
    f = interpolate.PPoly(cp.array(c), cp.array(x))
    at = numpy.linspace(-1, 6, 40)
    piece = numpy.clip(numpy.searchsorted(x, at, side="right") - 1, 0, 3)
    step = (at - x[piece])[:, None]
    numpy.testing.assert_allclose(host(f(cp.array(at))), (c[0, piece] * step + c[1, piece]) * step + c[2, piece], rtol=1e-12)
    numpy.testing.assert_allclose(host(f(cp.array(at), 1)), 2 * c[0, piece] * step + c[1, piece], rtol=1e-12)
    numpy.testing.assert_allclose(host(f.derivative(2)(cp.array(at))), 2 * c[0, piece], rtol=1e-12)
    numpy.testing.assert_allclose(host(f.antiderivative().derivative().c), c)
    fine = numpy.linspace(0.5, 4.5, 200001)
    rectangles = host(f(cp.array((fine[1:] + fine[:-1]) / 2))).sum(0) * (fine[1] - fine[0])
    numpy.testing.assert_allclose(host(f.integrate(0.5, 4.5)), rectangles, atol=1e-4)
    numpy.testing.assert_allclose(host(f.integrate(0, 10, "periodic")), 2 * host(f.integrate(0, 5)), rtol=1e-10)
    assert numpy.isnan(host(f(cp.array([-1.0, 6.0]), extrapolate=False))).all()
    back = interpolate.PPoly(cp.array(c), cp.array(-x))
    numpy.testing.assert_allclose(host(back(cp.array([-0.5])))[0], (c[0, 0] * -0.5 + c[1, 0]) * -0.5 + c[2, 0])
    f.extend(cp.array(c[1:]), cp.array(x[1:] + 5))
    numpy.testing.assert_allclose(host(f(cp.array([6.2])))[0], c[1, 1] * 0.2 + c[2, 1], rtol=1e-12)


def test_integrals_of_pieces():
    x = numpy.linspace(0, 2 * numpy.pi, 9)
    f = interpolate.CubicSpline(cp.array(x), cp.array(numpy.r_[numpy.sin(x[:-1]), 0.0]) + 1, bc_type="periodic")
    for area in (f.antiderivative(), f.derivative(-1)):
        numpy.testing.assert_allclose(host(area(cp.array([2 * numpy.pi, 7.0]))), [2 * numpy.pi, numpy.nan])
    assert f.antiderivative(0).extrapolate == f.extrapolate == "periodic"
    numpy.testing.assert_allclose(host(f.integrate(1.0, 1 + 4 * numpy.pi)), 4 * numpy.pi)
    # A large piece hides nothing of the small ones before it.
    c = numpy.array([[1e-3, 2e-3, 1e20, 3e-3]])
    area = interpolate.PPoly(cp.array(c), cp.arange(5.0)).antiderivative()
    assert host(area.c)[-1].tolist() == [0, *numpy.cumsum(c[0, :-1])]


@pytest.mark.parametrize("kind", ["linear", "nearest", "nearest-up", "previous", "next", "zero", "slinear", "quadratic", "cubic"])
def test_interp1d(kind):
    x, y = evenly(9), RANDOM.normal(size=(2, 9))
    order = RANDOM.permutation(9)
    f = interpolate.interp1d(cp.array(x[order]), cp.array(y[:, order]), kind)
    numpy.testing.assert_allclose(host(f(cp.array(x))), y, atol=1e-12)
    between = (x[1:] + x[:-1]) / 2
    wanted = {"linear": (y[:, 1:] + y[:, :-1]) / 2, "previous": y[:, :-1], "zero": y[:, :-1], "next": y[:, 1:]}
    wanted["slinear"] = wanted["linear"]
    if kind in wanted:
        numpy.testing.assert_allclose(host(f(cp.array(between))), wanted[kind], atol=1e-12)
    if kind.startswith("nearest"):
        numpy.testing.assert_array_equal(host(f(cp.array(between + 0.01))), y[:, 1:])
        halves = interpolate.interp1d(cp.array([0.0, 1.0]), cp.array([5.0, 6.0]), kind)
        assert float(halves(cp.array(0.5))) == (6 if kind == "nearest-up" else 5)
    with pytest.raises(ValueError, match="interpolation range"):
        f(cp.array([x[0] - 1]))
    filled = interpolate.interp1d(cp.array(x), cp.array(y), kind, bounds_error=False, fill_value=(-1.0, 7.0))
    assert host(filled(cp.array([x[0] - 1, x[-1] + 1]))).tolist() == [[-1, 7]] * 2
    filled = interpolate.interp1d(cp.array(x), cp.array(y), kind, bounds_error=False, fill_value=[2.0, 3.0])
    assert host(filled(cp.array([x[0] - 1, x[-1] + 1, x[-1] + 2]))).tolist() == [[2] * 3, [3] * 3]
    for bad in ([1.0, 2, 3], (1.0, 2, 3), ([1.0], [1.0, 2, 3]), numpy.zeros((1, 2))):
        with pytest.raises(ValueError, match="broadcast up to shape"):
            interpolate.interp1d(cp.array(x), cp.array(y), kind, bounds_error=False, fill_value=bad)
    with pytest.raises(ValueError, match="broadcast up to shape"):
        interpolate.interp1d(cp.array(x), cp.array(y[0]), kind, bounds_error=False, fill_value=[1.0, 2.0])
    places, values = cp.array(x), cp.array(y)
    copied = interpolate.interp1d(places, values, kind, assume_sorted=True)
    places[:], values[:] = 0, 0
    numpy.testing.assert_allclose(host(copied(cp.array(x))), y, atol=1e-12)
    if kind in ("linear", "slinear"):
        beyond = interpolate.interp1d(cp.array(x), cp.array(3 * x), kind, fill_value="extrapolate")
        assert numpy.isclose(float(beyond(cp.array(100.0))), 300)


@pytest.mark.parametrize("method", ["linear", "nearest", "slinear", "cubic", "quintic"])
def test_grids(method):
    lines = [evenly(n) for n in (7, 6, 8)]
    mesh = numpy.meshgrid(*lines, indexing="ij")
    degree = {"cubic": 3, "quintic": 5}.get(method, 1)

    def polynomial(a, b, c):
        return (a - 2) ** degree * (b + 1) - 0.5 * c ** degree + a * b * c

    values = polynomial(*mesh)
    inside = numpy.stack([line[0] + RANDOM.random(40) * (line[-1] - line[0]) for line in lines], 1)
    given = [cp.array(line) for line in lines]
    f = interpolate.RegularGridInterpolator(given, cp.array(values), method)
    found = host(f(cp.array(inside)))
    if method == "nearest":
        wanted = values[tuple(abs(inside[:, d, None] - lines[d]).argmin(1) for d in range(3))]
    else:
        wanted = polynomial(*inside.T)
    numpy.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-8)
    # On the lines; with more dimensions of values, lines that fall, and a tuple of places.
    numpy.testing.assert_allclose(host(f(tuple(cp.array(m) for m in mesh))), values, rtol=1e-8, atol=1e-8)
    both = interpolate.interpn([given[0], given[1]], cp.array(values), cp.array(inside[:, :2].reshape(4, 10, 2)), method)
    assert both.shape == (4, 10, 8)
    numpy.testing.assert_array_equal(host(f(cp.array(inside[0]))), found[:1])  # one point
    falling = interpolate.RegularGridInterpolator([given[0][::-1].copy(), *given[1:]], cp.array(values[::-1].copy()), method)
    numpy.testing.assert_allclose(host(falling(cp.array(inside))), found, rtol=1e-8, atol=1e-8)
    outside = inside.copy()
    outside[3, 1] = 99
    with pytest.raises(ValueError, match="out of bounds in dimension 1"):
        f(cp.array(outside))
    for fill in (-5.0, None):
        other = host(interpolate.RegularGridInterpolator(given, cp.array(values), method, False, fill)(cp.array(outside)))
        numpy.testing.assert_allclose(numpy.delete(other, 3), numpy.delete(found, 3), rtol=1e-8, atol=1e-8)
        assert other[3] == -5 if fill else numpy.isfinite(other[3])
    if degree > 1:
        slope = host(f(cp.array(inside), nu=(1, 0, 1)))
        numpy.testing.assert_allclose(slope, inside[:, 1], rtol=1e-6, atol=1e-6)
        for bad in ((1, 0), (1, 0, 1, 0), (1, -1, 0)):
            with pytest.raises(ValueError, match="nu must have one order"):
                f(cp.array(inside), nu=bad)


def test_scattered_points():
    points, values = RANDOM.random((30, 2)), RANDOM.normal(size=(30, 2))
    at = RANDOM.random((20, 2))
    nearest = interpolate.NearestNDInterpolator(cp.array(points), cp.array(values))
    numpy.testing.assert_array_equal(host(nearest(cp.array(at))), values[((at[:, None] - points) ** 2).sum(2).argmin(1)])
    for one in (nearest(cp.array(points[4])), nearest(cp.array(points[4:5, 0]), cp.array(points[4:5, 1]))):
        numpy.testing.assert_array_equal(host(one), values[4:5])
    plane = points @ [2.0, -3] + 1
    for kernel in ("linear", "thin_plate_spline", "cubic", "quintic", "multiquadric", "inverse_multiquadric", "inverse_quadratic",
                   "gaussian"):
        f = interpolate.RBFInterpolator(cp.array(points), cp.array(values), kernel=kernel, epsilon=4.0)
        numpy.testing.assert_allclose(host(f(cp.array(points))), values, atol=1e-5)
        f = interpolate.RBFInterpolator(cp.array(points), cp.array(plane), kernel=kernel, epsilon=4.0, degree=2)
        numpy.testing.assert_allclose(host(f(cp.array(at))), at @ [2.0, -3] + 1, atol=1e-6)
    smooth = interpolate.RBFInterpolator(cp.array(points), cp.array(values), smoothing=1e9)
    fit = numpy.linalg.lstsq(numpy.c_[points, numpy.ones(30)], values, rcond=None)[0]
    numpy.testing.assert_allclose(host(smooth(cp.array(at))), numpy.c_[at, numpy.ones(20)] @ fit, atol=1e-5)
    x = numpy.cos(numpy.arange(9))
    power = numpy.polynomial.Polynomial(RANDOM.normal(size=9))
    f = interpolate.BarycentricInterpolator(cp.array(x), cp.array(power(x)))
    numpy.testing.assert_allclose(host(f(cp.array(numpy.r_[at[:, 0], x]))), power(numpy.r_[at[:, 0], x]), atol=1e-9)


def test_what_is_refused():
    x, y = cp.arange(5.0), cp.arange(5.0)
    j = interpolate
    for call, error in (
            (lambda: j.CubicSpline(x[::-1], y), ValueError), (lambda: j.CubicSpline(x, y[:4]), ValueError),
            (lambda: j.CubicSpline(x, y, bc_type="tight"), ValueError), (lambda: j.CubicSpline(x, y, bc_type="periodic"), ValueError),
            (lambda: j.CubicSpline(x, y, bc_type=((3, 0.0), (1, 0.0))), ValueError), (lambda: j.CubicSpline(x, y * numpy.nan), ValueError),
            (lambda: j.BSpline(x, y[:3], 1)(x, -1), ValueError),
            (lambda: j.BarycentricInterpolator([0, 1, 1], [1, 2, 3]), ValueError),
            (lambda: j.BarycentricInterpolator([1, 1], [1, 2]), ValueError), (lambda: j.BSpline(x, y, 3), ValueError),
            (lambda: j.BSpline(x[::-1].copy(), y, 1), ValueError),
            (lambda: j.make_interp_spline(x, y, bc_type=([(1, 0.0)], None)), ValueError),
            (lambda: j.make_interp_spline(x, y, bc_type="periodic"), NotImplementedError),
            (lambda: j.make_interp_spline(x, y, 1, t=cp.array([0.0, 0, 0.1, 0.2, 0.3, 4, 4])), arete.linalg.LinAlgError),
            (lambda: j.make_lsq_spline(x, y, cp.arange(12.0)), ValueError), (lambda: j.PPoly(y, x), ValueError),
            (lambda: j.interp1d(x, y, "bumpy"), NotImplementedError),
            (lambda: j.RegularGridInterpolator([x], y, "pchip"), NotImplementedError),
            (lambda: j.RegularGridInterpolator([x, x], y), ValueError), (lambda: j.RegularGridInterpolator([x * 0], y), ValueError),
            (lambda: j.RBFInterpolator(x[:, None], y, neighbors=3), NotImplementedError),
            (lambda: j.PchipInterpolator(x, y * 1j), ValueError), (lambda: j.PchipInterpolator(x, y * numpy.nan), ValueError),
            (lambda: j.Akima1DInterpolator(x, y / 0), ValueError), (lambda: j.CubicHermiteSpline(x, y * numpy.nan, y), ValueError),
            *[(lambda k=k, n=n: j.interp1d(x[:n], y[:n], k), ValueError) for k, n in
              (("slinear", 1), (1, 1), ("linear", 1), ("quadratic", 2), ("cubic", 3), (5, 5), ("nearest", 0), ("zero", 0))],
            (lambda: j.interp1d(x * numpy.nan, y, "nearest"), ValueError),
            (lambda: j.RBFInterpolator(x[:, None], y, kernel="gaussian"), ValueError)):
        with pytest.raises(error):
            call()


def test_beside_scipy():
    theirs = pytest.importorskip("scipy.interpolate")
    x, at = evenly(23), numpy.linspace(-1, 15, 90)
    y = RANDOM.normal(size=(23, 2))
    for make in (lambda m, f: m.CubicSpline(f(x), f(y)), lambda m, f: m.CubicSpline(f(x), f(y), bc_type=("natural", "clamped")),
                 lambda m, f: m.PchipInterpolator(f(x), f(y)), lambda m, f: m.Akima1DInterpolator(f(x), f(y)),
                 lambda m, f: m.Akima1DInterpolator(f(x), f(y), method="makima", extrapolate=True),
                 *[lambda m, f, k=k: m.make_interp_spline(f(x), f(y), k) for k in range(6)],
                 lambda m, f: m.make_interp_spline(f(x), f(y), bc_type="natural"),
                 lambda m, f: m.BarycentricInterpolator(f(x[:7]), f(y[:7])),
                 *[lambda m, f, k=k: m.interp1d(f(x), f(y), k, axis=0, fill_value="extrapolate") for k in
                   ("linear", "nearest", "previous", "next", "zero", "quadratic", "cubic")]):
        own, wanted = make(interpolate, cp.array), make(theirs, numpy.asarray)
        numpy.testing.assert_allclose(host(own(cp.array(at))), wanted(at), rtol=1e-6, atol=1e-6)
