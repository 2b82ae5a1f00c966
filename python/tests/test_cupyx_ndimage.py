"""cupyx.scipy.ndimage: measurements and shapes against plain loops of NumPy."""
import math

import numpy
import nvrtc
import pytest
from device_helpers import device_of_arrays, host, on_devices_of_arrays  # noqa: F401

import arete
import arete.cupy as cp
from arete.cupyx.scipy import ndimage

pytestmark = on_devices_of_arrays
RANDOM = numpy.random.default_rng(7)


X, LABELS = RANDOM.integers(-9, 10, (8, 11)), RANDOM.integers(-1, 5, (8, 11))


@pytest.mark.parametrize("labels, index", [(None, None), (LABELS, None), (LABELS, 2), (LABELS, [3, 1, 0, 3])], ids=str)
def test_measurements(labels, index):
    x = X / 4
    given = None if labels is None else cp.array(labels), cp.array(index) if isinstance(index, list) else index
    masks = [numpy.full(X.shape, True) if labels is None else labels > 0 if index is None else labels == k
             for k in (index if isinstance(index, list) else [index])]

    def of_each(f):
        values = [f(x[m], numpy.argwhere(m)) for m in masks]
        return values if isinstance(index, list) else values[0]

    wanted = {
        "sum_labels": lambda v, p: v.sum(), "mean": lambda v, p: v.mean(), "variance": lambda v, p: v.var(),
        "standard_deviation": lambda v, p: v.std(), "minimum": lambda v, p: v.min(), "maximum": lambda v, p: v.max(),
        "median": lambda v, p: numpy.median(v), "minimum_position": lambda v, p: p[v.argmin()],
        "maximum_position": lambda v, p: p[v.argmax()],
        "center_of_mass": lambda v, p: (v[:, None] * p).sum(0) / v.sum()}
    for name, f in wanted.items():
        found = host(getattr(ndimage, name)(cp.array(x), *given))
        assert numpy.allclose(found, of_each(f)), name
    low, high, at_low, at_high = ndimage.extrema(cp.array(x), *given)
    assert numpy.allclose(host(low), of_each(wanted["minimum"])) and numpy.array_equal(at_high, of_each(wanted["maximum_position"]))
    assert numpy.allclose(host(high), of_each(wanted["maximum"])) and numpy.array_equal(at_low, of_each(wanted["minimum_position"]))
    counts = ndimage.histogram(cp.array(x), -2, 2, 5, *given)
    assert numpy.array_equal(host(counts), of_each(lambda v, p: numpy.histogram(v, 5, (-2, 2))[0]))


def test_measurements_of_nothing_and_of_whole_numbers():
    assert ndimage.sum(cp.array(X)).dtype == numpy.int64 and int(ndimage.sum(cp.array(X))) == X.sum()
    means = host(ndimage.mean(cp.array(X), cp.array(LABELS), cp.array([77, 1])))
    assert math.isnan(means[0]) and means[1] == X[LABELS == 1].mean()
    for f in (ndimage.maximum, ndimage.minimum_position):
        with pytest.raises(ValueError, match="an index has no elements"):
            f(cp.array(X), cp.array(LABELS), 77)
    with pytest.raises(ValueError, match="without defined labels"):
        ndimage.sum(cp.array(X), None, 1)
    parts = numpy.array([[1, 1, 0, 3], [0, 1, 0, 3], [5, 0, 0, 0]])
    found = [(slice(0, 2), slice(0, 2)), None, (slice(0, 2), slice(3, 4)), None, (slice(2, 3), slice(0, 1))]
    assert ndimage.find_objects(cp.array(parts)) == found
    with pytest.raises(RuntimeError, match="data type"):
        ndimage.find_objects(cp.ones((2, 2)))


@pytest.mark.parametrize("bad", [(2, 3), (0, 1)])
def test_measurements_of_what_is_no_number(bad):
    x, labels = X / 4, numpy.arange(88).reshape(8, 11) % 3
    x[bad], group = math.nan, labels[bad]
    for given in ((), (cp.array(labels), int(group))):
        for name in ("minimum", "maximum", "median", "mean"):
            assert math.isnan(host(getattr(ndimage, name)(cp.array(x), *given))), name
        low, high, *places = ndimage.extrema(cp.array(x), *given)
        assert math.isnan(host(low)) and math.isnan(host(high)) and places == [bad, bad]
        assert ndimage.maximum_position(cp.array(x), *given) == bad == ndimage.minimum_position(cp.array(x), *given)
    several = cp.array(labels), cp.array([0, 1, 2])  # the greatest in order, as SciPy has it
    assert host(ndimage.minimum(cp.array(x), *several)).tolist() == [numpy.nanmin(x[labels == k]) for k in range(3)]
    assert numpy.isnan(host(ndimage.maximum(cp.array(x), *several))).tolist() == [k == group for k in range(3)]
    assert ndimage.maximum_position(cp.array(x), *several)[group] == bad


def test_ends_beside_infinities_and_of_nan_alone():
    x = cp.array([math.nan, math.inf, math.nan, math.nan, -math.inf, -math.inf, math.inf, 1.0])
    labels, index = cp.array([1, 1, 2, 2, 3, 3, 3, 4]), cp.array([4, 1, 2, 3])
    low, high, at_low, at_high = ndimage.extrema(x, labels, index)
    assert numpy.array_equal(host(low), [1, math.inf, math.nan, -math.inf], equal_nan=True)
    assert numpy.array_equal(host(high), [1, math.nan, math.nan, math.inf], equal_nan=True)
    assert at_low == [(7,), (1,), (2,), (4,)] and at_high == [(7,), (0,), (2,), (6,)]
    assert ndimage.extrema(cp.array([[True, False], [True, False]]))[2:] == ((0, 1), (0, 0))


def test_measurements_of_no_index_and_of_labels_that_are_not_there():
    x, labels, none = cp.array(X / 4), cp.array(LABELS), cp.array(numpy.array([], dtype=int))
    for name in ("sum", "mean", "variance", "minimum", "maximum", "median"):
        assert host(getattr(ndimage, name)(x, labels, none)).shape == (0,), name
    assert ndimage.minimum_position(x, labels, none) == [] == ndimage.center_of_mass(x, labels, none)
    assert math.isnan(host(ndimage.median(x, labels, 99)))
    found = host(ndimage.median(x, labels, cp.array([99, 1])))
    assert math.isnan(found[0]) and found[1] == numpy.median(X[LABELS == 1] / 4)


def test_complex_pictures():
    x, w = numpy.arange(12).reshape(3, 4) ** 2 % 23 * 1.0, numpy.array([[1, 2j], [0, -1]])
    real, conjugated = host(ndimage.correlate(cp.array(x), cp.array(w.real))), host(ndimage.correlate(cp.array(x), cp.array(w)))
    assert numpy.array_equal(conjugated, real - 1j * host(ndimage.correlate(cp.array(x), cp.array(w.imag))))
    turned = host(ndimage.convolve(cp.array(x * (1 + 2j)), cp.array(w)))
    wanted = host(ndimage.convolve(cp.array(x), cp.array(w.real))) + 1j * host(ndimage.convolve(cp.array(x), cp.array(w.imag)))
    assert numpy.allclose(turned, wanted * (1 + 2j))
    assert ndimage.correlate(cp.array(x.astype("f4")), cp.array(w)).dtype == numpy.complex64
    along = host(ndimage.correlate1d(cp.array(x), cp.array([1, 1j, 0]), axis=0))
    assert numpy.allclose(along[1], x[0] - 1j * x[1])
    edge = host(ndimage.correlate(cp.array(x + 0j), cp.array(w), mode="constant", cval=1 + 2j))
    assert numpy.isclose(edge[0, 0], (1 + 2j) * (1 - 2j) - x[0, 0])
    with pytest.raises(RuntimeError, match="complex"):
        ndimage.correlate(cp.array(x), cp.array(w), output=cp.zeros((3, 4)))
    z = RANDOM.normal(size=(3, 4)) + 1j * RANDOM.normal(size=(3, 4))
    with pytest.raises(TypeError, match="real"):
        ndimage.histogram(cp.array(z), -1, 1, 3)
    parts = [host(ndimage.spline_filter1d(cp.array(v))) for v in (z.real, z.imag)]
    assert numpy.allclose(host(ndimage.spline_filter1d(cp.array(z))), parts[0] + 1j * parts[1])
    assert numpy.isclose(host(ndimage.mean(cp.array(z))), z.mean()) and numpy.isclose(host(ndimage.variance(cp.array(z))), z.var())
    assert numpy.isclose(host(ndimage.standard_deviation(cp.array(z))), z.std())
    assert numpy.allclose(host(ndimage.center_of_mass(cp.array(z))), [(z * i).sum() / z.sum() for i in numpy.indices(z.shape)])


def test_neighbours_of_weight_0_do_not_count_but_along_one_axis():
    x = numpy.arange(30.0).reshape(5, 6)
    clean, x[2, 3] = x.copy(), math.nan
    for w in (numpy.eye(3), numpy.pad(numpy.eye(3), 4), numpy.pad(numpy.eye(3), 5)):
        found, wanted = (host(ndimage.correlate(cp.array(v), cp.array(w), mode="nearest")) for v in (x, clean))
        hit = numpy.zeros(x.shape, dtype=bool)
        hit[[1, 2, 3], [2, 3, 4]] = True
        assert numpy.array_equal(numpy.isnan(found), hit) and numpy.allclose(found[~hit], wanted[~hit])
    deep = numpy.stack([clean, x, clean, clean])
    for v, w in ((deep, numpy.pad([[[1.0]]], 1)), (deep[None], numpy.pad([[[[1.0]]]], 1))):
        assert numpy.array_equal(host(ndimage.convolve(cp.array(v), cp.array(w))), v, equal_nan=True)
    assert numpy.isnan(host(ndimage.correlate1d(cp.array(x), [1.0, 0.0, 0.0])))[2].tolist() == [False, False, True, True, True, False]


def test_whole_numbers_are_cut_off_after_each_axis():
    # The values are SciPy's.
    x = (numpy.arange(12).reshape(3, 4) ** 2 % 23 * 10).astype("u1")
    for name, args, wanted in (
            ("gaussian_filter", (1.0,), [[47, 45, 56, 66], [94, 78, 70, 65], [134, 106, 82, 66]]),
            ("uniform_filter", (3,), [[39, 45, 51, 70], [92, 82, 64, 67], [144, 118, 77, 65]]),
            ("laplace", (), [[170, 30, 110, 146], [232, 84, 162, 190], [176, 176, 70, 246]]),
            ("gaussian_gradient_magnitude", (1.0,), [[14, 14, 7, 12], [7, 14, 13, 5], [9, 3, 14, 15]])):
        found = host(getattr(ndimage, name)(cp.array(x), *args))
        assert found.dtype == numpy.uint8 and found.tolist() == wanted, name
    found = host(ndimage.sobel(cp.array(x.astype("i2"))))
    assert found.tolist() == [[-110, 90, 250, 50], [-330, -120, 40, -170], [-320, -330, -170, -160]]


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (2, 0, 3)], ids=str)
def test_pictures_of_nothing(shape):
    x, n = cp.zeros(shape), len(shape)
    for f in (*(lambda v, name=name: getattr(ndimage, name)(v, 3) for name in (
            "maximum_filter", "minimum_filter", "median_filter", "uniform_filter", "grey_erosion", "grey_dilation", "grey_opening",
            "grey_closing", "white_tophat", "morphological_gradient")),
              lambda v: ndimage.gaussian_filter(v, 1.0), ndimage.sobel, ndimage.laplace, ndimage.spline_filter,
              lambda v: ndimage.correlate(v, cp.ones((3,) * n)), lambda v: ndimage.convolve(v, cp.ones((2,) * n), mode="constant"),
              lambda v: ndimage.shift(v, 1.5), lambda v: ndimage.shift(v, 1.5, mode="nearest"), ndimage.distance_transform_edt):
        assert f(x).shape == shape
    assert ndimage.zoom(x, 2.0).shape == tuple(2 * s for s in shape)
    assert host(ndimage.map_coordinates(x, cp.zeros((n, 2)), cval=7.0)).tolist() == [7, 7]


def test_quarters_of_turns_are_exact():
    x = numpy.arange(12.0).reshape(3, 4)
    for quarters in range(-3, 6):
        for order in (0, 1, 3):
            assert numpy.allclose(host(ndimage.rotate(cp.array(x), 90 * quarters, order=order)), numpy.rot90(x, quarters))


def eroded(x, s, border):
    """Where the structure around an element lies inside."""
    before = [n // 2 for n in s.shape]
    wide = numpy.pad(x, [(b, n - 1 - b) for b, n in zip(before, s.shape)], constant_values=border)
    windows = numpy.lib.stride_tricks.sliding_window_view(wide, s.shape)
    return (windows | ~s).all((2, 3))


@pytest.mark.parametrize("structure", [None, [[1, 0, 1], [1, 1, 0], [0, 1, 0]], [[1, 1, 1, 0]]], ids=str)
def test_shapes(structure):
    x = RANDOM.random((9, 14)) < 0.7
    cross = numpy.array([[0, 1, 0], [1, 1, 1], [0, 1, 0]], dtype=bool)
    s = cross if structure is None else numpy.array(structure, dtype=bool)
    given = None if structure is None else cp.array(s)
    once, twice = eroded(x, s, False), eroded(eroded(x, s, False), s, False)
    assert numpy.array_equal(host(ndimage.binary_erosion(cp.array(x), given)), once)
    assert numpy.array_equal(host(ndimage.binary_erosion(cp.array(x), given, 2)), twice)
    assert numpy.array_equal(host(ndimage.binary_erosion(cp.array(x), given, border_value=1)), eroded(x, s, True))
    covered = numpy.zeros(x.shape, dtype=bool)
    for i, j in numpy.argwhere(x):
        for a, b in numpy.argwhere(s):
            p, q = i + a - s.shape[0] // 2, j + b - s.shape[1] // 2
            if 0 <= p < x.shape[0] and 0 <= q < x.shape[1]:
                covered[p, q] = True
    assert numpy.array_equal(host(ndimage.binary_dilation(cp.array(x), given)), covered)
    opened = host(ndimage.binary_opening(cp.array(x), given))
    assert numpy.array_equal(opened, host(ndimage.binary_dilation(cp.array(once), given))) and not (opened & ~x).any()
    hit = once & eroded(~x, ~s, True)
    assert numpy.array_equal(host(ndimage.binary_hit_or_miss(cp.array(x), cp.array(s))), hit)


def test_holes_masks_and_structures():
    ring = numpy.zeros((7, 8), dtype=bool)
    ring[1:6, 1:6] = True
    ring[2:5, 2:5] = False
    filled = ring.copy()
    filled[2:5, 2:5] = True
    assert numpy.array_equal(host(ndimage.binary_fill_holes(cp.array(ring))), filled)
    seed = numpy.zeros_like(ring)
    seed[1, 1] = True
    assert numpy.array_equal(host(ndimage.binary_propagation(cp.array(seed), mask=cp.array(ring))), ring)
    for connectivity, count in ((1, 7), (2, 19), (3, 27)):
        assert int(ndimage.generate_binary_structure(3, connectivity).sum()) == count
    wide = host(ndimage.iterate_structure(ndimage.generate_binary_structure(2, 1), 3))
    i, j = numpy.indices((7, 7)) - 3
    assert numpy.array_equal(wide, abs(i) + abs(j) <= 3)
    x = cp.array(X)
    assert numpy.array_equal(host(ndimage.white_tophat(x, 3)), X - host(ndimage.grey_opening(x, 3)))
    high, low = (host(f(x, 3)) for f in (ndimage.maximum_filter, ndimage.minimum_filter))
    assert numpy.array_equal(host(ndimage.morphological_gradient(x, 3)), high - low)
    with pytest.raises(NotImplementedError, match="flat structures"):
        ndimage.black_tophat(x, structure=cp.ones((3, 3)))


@pytest.mark.parametrize("steps", [None, (0.5, 3.0)], ids=str)
def test_distances(steps):
    x = RANDOM.random((13, 17)) < 0.9
    zeros, weights = numpy.argwhere(~x), numpy.array(steps or (1, 1))
    wanted = [[numpy.sqrt((((zeros - (i, j)) * weights) ** 2).sum(1).min()) for j in range(17)] for i in range(13)]
    assert numpy.allclose(host(ndimage.distance_transform_edt(cp.array(x), steps)), wanted)
    assert numpy.isinf(host(ndimage.distance_transform_edt(cp.ones((2, 3))))).all()
    with pytest.raises(NotImplementedError, match="indices"):
        ndimage.distance_transform_edt(cp.array(x), return_indices=True)


def test_windows_are_sorted_some_after_the_other(monkeypatch):
    x = RANDOM.normal(size=(23, 17))
    whole = [host(ndimage.rank_filter(cp.array(x), 4, **sizes)) for sizes in ({"size": 5}, {"footprint": cp.eye(7)})]
    monkeypatch.setattr(ndimage._filters, "_SORTED", (2500, 2500))
    for wanted, sizes in zip(whole, ({"size": 5}, {"footprint": cp.eye(7)})):
        assert numpy.array_equal(host(ndimage.rank_filter(cp.array(x), 4, **sizes)), wanted)
    wide = numpy.pad(x, 2, mode="symmetric")
    windows = numpy.lib.stride_tricks.sliding_window_view(wide, (5, 5)).reshape(23, 17, 25)
    assert numpy.array_equal(whole[0], numpy.sort(windows)[..., 4])


@pytest.mark.parametrize("shape", [(1, 400), (1, 1, 90), (3, 20, 15), (40, 2, 7)], ids=str)
def test_blocks_of_any_dimensions(monkeypatch, shape):
    """No more windows or places than the limit at once, however the dimensions are."""
    x, places = cp.array(RANDOM.normal(size=shape)), cp.array(RANDOM.uniform(-1, 20, (len(shape), *shape)))
    spins = [0.5, -1.5, 0.25][:len(shape)]

    def results():
        return [host(f) for f in (ndimage.median_filter(x, 3), ndimage.rank_filter(x, 1, footprint=cp.ones((1,) * (len(shape) - 1) + (5,))),
                                  ndimage.map_coordinates(x, places), ndimage.affine_transform(x, cp.eye(len(shape)), spins, order=1))]

    whole, sizes = results(), []
    limit = 27 * 8
    monkeypatch.setattr(ndimage._filters, "_SORTED", (limit, limit))
    monkeypatch.setattr(ndimage._interpolation, "_BLOCK", 10)
    sort, weighted = arete.Tensor.sort, ndimage._interpolation._Sampler._weighted
    monkeypatch.setattr(arete.Tensor, "sort", lambda t, *how: sizes.append(t.numel() / limit) or sort(t, *how))
    monkeypatch.setattr(ndimage._interpolation._Sampler, "_weighted",
                        lambda self, c, shape: sizes.append(math.prod(shape) / 10) or weighted(self, c, shape))
    assert all(numpy.array_equal(a, b) for a, b in zip(whole, results()))
    assert 0 < max(sizes) <= 1 and len(sizes) > (10 if x._tensor.is_cuda else 20)  # a GPU resamples by a kernel


def test_sorted_windows_do_not_stay_in_memory(monkeypatch):
    x = cp.array(RANDOM.normal(size=(2, 100, 100)))
    monkeypatch.setattr(ndimage._filters, "_SORTED", (1 << 16, 1 << 16))
    with arete.utils.GPUMemoryTracker(x._tensor.device) as tracker:
        ndimage.median_filter(x, 5)
    assert 1 << 19 < tracker.peak < 4 << 20  # of 20 MB of windows


def test_pictures_without_dimensions():
    for number in (0, 1):
        x = cp.array(number)
        for structure in (None, cp.array(1)):
            found, count = ndimage.label(x, structure)
            assert found.shape == () and int(found) == count == number
        for f in (ndimage.binary_erosion, ndimage.binary_dilation):
            assert host(f(x, iterations=-1)).tolist() is host(f(x)).tolist() is bool(number)
    assert bool(ndimage.binary_fill_holes(cp.array(1)))


def test_neighbours_of_parts_are_so_on_both_sides():
    for structure in ([[1, 0, 0], [0, 1, 0], [0, 0, 0]], [[0, 1, 1], [0, 1, 0], [0, 1, 0]]):
        with pytest.raises(ValueError, match="not symmetric"):
            ndimage.label(cp.ones((3, 3)), cp.array(structure))
    assert ndimage.label(cp.eye(3), cp.array([[2, 0, 0], [0, 1, 0], [0, 0, 1]]))[1] == 1


def parts_of(x, structure):
    """The numbers of connected parts, by filling one after the other."""
    steps, found, count = numpy.argwhere(structure) - 1, numpy.zeros(x.shape, int), 0
    for start in map(tuple, numpy.argwhere(x)):
        if not found[start]:
            count += 1
            found[start], left = count, [start]
            while left:
                for place in map(tuple, numpy.array(left.pop()) + steps):
                    if all(0 <= i < n for i, n in zip(place, x.shape)) and x[place] and not found[place]:
                        found[place] = count
                        left.append(place)
    return found, count


STRUCTURES = [((9,), 1), ((30, 37), 1), ((30, 37), 2), ((30, 37), [[1, 0, 0], [0, 1, 0], [0, 0, 1]]), ((5, 6, 7), 2), ((4, 3, 5, 4), 1)]


@pytest.mark.parametrize("share", [0.3, 0.6, 1.0])
@pytest.mark.parametrize("shape, structure", STRUCTURES, ids=str)
def test_connected_parts(shape, structure, share):
    x = RANDOM.random(shape) < share
    structure = host(ndimage.generate_binary_structure(len(shape), structure)) if isinstance(structure, int) else numpy.array(structure)
    wanted, many = parts_of(x, structure)
    found, count = ndimage.label(cp.array(x), cp.array(structure))
    assert count == many and numpy.array_equal(host(found), wanted) and host(found).dtype == "int32"


def test_parts_of_no_and_of_one_element():
    for x, wanted in ((cp.array(1), 1), (cp.zeros((0, 3)), 0), (cp.ones((1, 1, 1)), 1)):
        found, count = ndimage.label(x)
        assert count == wanted and host(found).shape == x.shape and host(found).sum() == wanted


@pytest.mark.parametrize("border", [0, 1])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shape, structure", STRUCTURES, ids=str)
def test_shapes_until_nothing_changes(shape, structure, masked, border):
    """As by one iteration after the other."""
    x, mask = RANDOM.random(shape) < 0.1, cp.array(RANDOM.random(shape) < 0.6) if masked else None
    structure = ndimage.generate_binary_structure(len(shape), structure) if isinstance(structure, int) else cp.array(structure)
    for function, given in ((ndimage.binary_dilation, x), (ndimage.binary_erosion, ~x)):
        found = host(function(cp.array(given), structure, -1, mask, border_value=border))
        for _ in range(x.size):
            before, given = given, host(function(cp.array(given), structure, 1, mask, border_value=border))
            if (given == before).all():
                break
        assert numpy.array_equal(found, given)


@pytest.mark.skipif(nvrtc.opened() is None, reason="no NVRTC")
def test_the_kernels_of_parts_compile_for_gpus():
    ndimage.label(cp.array(RANDOM.random((20, 20)) < 0.7))
    for kernel in (ndimage._measurements._unite, ndimage._measurements._follow):
        assert kernel._compiled and not any(nvrtc.problems(c.text, c.options) for c in kernel._compiled.values())


@pytest.mark.skipif(nvrtc.opened() is None, reason="no NVRTC")
def test_the_kernel_of_distances_compiles_for_gpus():
    ndimage.distance_transform_edt(cp.eye(3))
    compiled = [c for c, *_ in ndimage._morphology._nearest_kernel._compiled.values()]
    assert compiled and not any(nvrtc.problems(c.text, c.options) for c in compiled)
