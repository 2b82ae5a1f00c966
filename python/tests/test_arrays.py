"""arete.numpy beside NumPy: ufuncs for all pairs of dtypes, reductions with their options, tables of calls and of programs, and what the
class of arrays is."""
import copy
import functools
import itertools
import operator
import pickle
import random
import subprocess
import sys
import warnings

import numpy
import pytest
from array_cases import CALLS
from array_programs import PROGRAMS
from array_texts import TEXTS
from device_helpers import device_of_arrays  # noqa: F401

import arete
import arete.numpy as np
from arete.numpy._ufuncs import _ALL

DTYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64",
          "complex128"]
ERRORS = (ValueError, TypeError, IndexError, ZeroDivisionError, OverflowError)
rng = numpy.random.default_rng(0)


def values(dtype, shape):
    kind = numpy.dtype(dtype).kind
    whole = rng.integers(0, 2 if kind == "b" else 5, shape) - (0 if kind in "bu" else 2)
    return numpy.asarray(whole / (2 if kind in "fc" else 1) * (1 + (0.5j if kind == "c" else 0))).astype(dtype)


def to_own(x):
    if isinstance(x, (list, tuple)):
        return type(x)(to_own(v) for v in x)
    return {k: to_own(v) for k, v in x.items()} if isinstance(x, dict) else np.array(x) if isinstance(x, numpy.ndarray) else x


def leaves(x):
    return [v for part in x for v in leaves(part)] if isinstance(x, (list, tuple)) else [x]


def outcome(function, args, options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*args, **options), None
        except Exception as e:
            return None, e


def difference(theirs, ours, args, options):
    """What differs between two functions: the class of an error, dtypes, values."""
    (expected, error), (found, own) = outcome(theirs, args, options), outcome(ours, to_own(args), to_own(options))
    if error is not None and np.get_device().type != "cpu":
        outcome(arete.cuda.synchronize, (), {})
        return None  # what values are wrong for is found when the GPU is waited for, and for whole powers not at all
    if error is not None or own is not None:
        if any(isinstance(error, c) and isinstance(own, c) for c in ERRORS):
            return None
        return f"NumPy: {error!r}, {expected!r:.80}; arete: {own!r}, {found!r:.80}"
    expected, found = leaves(expected), leaves(found)
    if len(expected) != len(found):
        return f"{len(expected)} results, not {len(found)}"
    for e, f in zip(expected, found):
        e, f = numpy.asarray(e), numpy.asarray(f)
        if e.dtype.kind not in "biufc":
            if str(e) != str(f):
                return f"{e} is not {f}"
            continue
        if e.shape != f.shape or e.dtype != f.dtype:
            return f"{e.dtype}{e.shape} is not {f.dtype}{f.shape}"
        close = {"float16": 2e-2, "float32": 2e-5, "complex64": 2e-5}.get(f.dtype.name, 1e-9)
        if not numpy.allclose(f.astype(complex), e.astype(complex), rtol=close, atol=close, equal_nan=True):
            return f"{e!r:.120} is not {f!r:.120}"
    return None


def compare(name, args, options, told):
    theirs, ours = numpy, np
    for part in name.split("."):
        theirs, ours = getattr(theirs, part), getattr(ours, part)
    found = difference(theirs, ours, args, options)
    if found:
        told.append(f"{name}{tuple(getattr(a, 'dtype', a) for a in args)!r:.80} {options}: {found}")


@pytest.mark.parametrize("name", list(_ALL))
def test_ufuncs(name, device):
    """Every ufunc for every dtype, with every other one and with numbers: results, dtypes and errors."""
    told = []
    if _ALL[name].nin == 1:
        for d in DTYPES:
            x = values(d, (3, 4))
            # NumPy's result of 1 // 0 depends on the width, and is a warning.
            compare(name, (x if name != "reciprocal" else numpy.where(x == 0, 1, x).astype(d),), {}, told)
    else:
        for a, b in itertools.product(DTYPES, DTYPES):
            compare(name, (values(a, (3, 4)), values(b, (4,))), {}, told)
        for d, s in itertools.product(DTYPES, (2, 2.5, True, 1 + 2j, -1, 300)):
            compare(name, (values(d, (3, 4)), s), {}, told)
            compare(name, (s, values(d, (3, 4))), {}, told)
        for d in ("bool", "int32", "float64") if _ALL[name].nout == 1 else ():
            compare(f"{name}.reduce", (values(d, (3, 4)),), {}, told)
            compare(f"{name}.accumulate", (values(d, (3, 4)), 1), {}, told)
            compare(f"{name}.outer", (values(d, (3,)), values(d, (2,))), {}, told)
            # NumPy's vector loops of these two read results before they are written.
            if name == "arctan2" or name == "power" and d == "float64":
                x = values(d, (5,))
                one_by_one = [functools.reduce(getattr(numpy, name), part) for part in (x[0:2], x[2:3], x[1:])]
                found = np.asnumpy(getattr(np, name).reduceat(np.array(x), [0, 2, 1]))
                if not numpy.allclose(found, one_by_one, rtol=1e-2 if d == "bool" else 1e-9, equal_nan=True):
                    told.append(f"{name}.reduceat({x}): {found} is not {one_by_one}")
            else:
                compare(f"{name}.reduceat", (values(d, (5,)), [0, 2, 1]), {}, told)
    assert not told, "\n".join(told)


REDUCTIONS = "sum prod max min any all mean var std ptp median argmax argmin cumsum cumprod count_nonzero nansum nanprod nanmax nanmin " \
    "nanmean nancumsum average sort diff flip squeeze trapezoid round real imag isreal nan_to_num triu copy zeros_like ones_like".split()
# quantile's steps between two elements are taken from NumPy's own dtypes; these are choices of theirs that are not followed.
WITHOUT = {("trapezoid", "bool"), ("ptp", "bool")}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name, device):
    told = []
    for d, shape in itertools.product(DTYPES, ((3, 4), (5,), (2, 0, 3), ())):
        x = values(d, shape)
        compare(name, (x,), {}, told)
        if name in "real imag isreal nan_to_num triu copy zeros_like ones_like round":
            continue
        for axis in (0, -1, 5, (0, 1), None):
            compare(name, (x,), {"axis": axis}, told)
        if REDUCTIONS.index(name) < 13:
            compare(name, (x,), {"keepdims": True}, told)
        if REDUCTIONS.index(name) < 9:
            compare(name, (x,), {"where": x != 0}, told)
        if REDUCTIONS.index(name) < 4:
            compare(name, (x,), {"where": x != 0, "initial": 1}, told)
        if name in ("sum", "prod", "mean", "cumsum"):
            compare(name, (x,), {"dtype": "complex128"}, told)
    assert not told, "\n".join(told)


@pytest.mark.parametrize("name", sorted({c[0] for c in CALLS}))
def test_calls(name, device):
    told = []
    for n, args, options in CALLS:
        if n == name:
            compare(n, args, options, told)
    assert not told, "\n".join(told)


@pytest.mark.parametrize("program", PROGRAMS + TEXTS, ids=lambda p: p.__name__)
def test_programs(program):
    """What strangers' programs do gives and prints the same; numbers of NumPy's are arrays without dimensions here, so texts of
    lists of them are compared by their values."""

    def text(result):
        if isinstance(result, (list, tuple)):
            return [text(v) for v in result]
        return str(result)

    (expected, error), (found, own) = outcome(program, (numpy,), {}), outcome(program, (np,), {})
    if error is not None:
        assert any(isinstance(error, c) and isinstance(own, c) for c in ERRORS), (error, own)
        return
    assert own is None, own
    assert text(found) == text(expected)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"precision": 3},
        {"suppress": True},
        {"floatmode": "fixed"},
        {"floatmode": "unique"},
        {"sign": "+"},
        {"sign": " "},
        {"linewidth": 40},
        {"threshold": 5, "edgeitems": 1},
        {"floatmode": "maxprec_equal"},
        {"nanstr": "missing", "infstr": "big"},
    ],
)
def test_printing(options):
    """Texts are NumPy's to the last blank, for all dtypes, sizes and options."""
    arrays = [values(d, shape) for d in DTYPES for shape in ((), (3,), (2, 3), (2, 2, 3), (0,), (2, 0))]
    arrays += [
        numpy.arange(1200),
        numpy.arange(2400.0).reshape(40, 60),
        numpy.array([1e10, 1e-10, 0]),
        numpy.array([numpy.nan, numpy.inf, -1.5]),
        numpy.array([1.123456789, 100.5]),
        numpy.array([1e-5, 1.0]),
        rng.normal(size=(5, 5)),
        rng.normal(size=20).astype("float32") * 1e6,
        numpy.array([1e16, 1e17]),
        numpy.array(1e-7),
        numpy.array(1e20),
        numpy.array([-0.0, 0.0]),
        numpy.array([1 + 1e-9j, numpy.nan]),
    ]
    with numpy.printoptions(**options), np.printoptions(**options):
        for a in arrays:
            own = np.array(a)
            assert repr(own) == repr(a) and str(own) == str(a)


def test_arrays_share_the_memory_of_tensors():
    t = arete.arange(6.0)
    a = np.ndarray(t)
    a[2] = 10
    assert a._tensor is t and t[2] == 10 and type(a) is np.ndarray and not isinstance(a, arete.Tensor)
    b = np.asarray(t).reshape(2, 3)
    b[0] = 7
    assert t[:3].tolist() == [7, 7, 7]
    n = numpy.arange(4.0)
    np.asarray(n)[0] = 5
    assert n[0] == 5 and np.array(n)[0] == 5
    np.array(n)[0] = 6
    assert n[0] == 5
    view = numpy.asarray(np.asarray(n))
    view[1] = 9
    assert n[1] == 9
    assert arete.from_dlpack(a).data_ptr() == t.data_ptr() and numpy.from_dlpack(a)[2] == 7


def test_a_gradient_goes_through_arrays():
    t = arete.ones(3, requires_grad=True)
    (np.exp(np.ndarray(t)) * 2).sum()._tensor.backward()
    assert arete.allclose(t.grad, arete.ones(3).exp() * 2)


def test_negative_steps_write_through(device):
    a, n = np.arange(12).reshape(3, 4), numpy.arange(12).reshape(3, 4)
    for m in (a, n):
        r = m[::-1, ::2]
        r[0] = -1
        r += 5
        m[:, ::-1][1:, 0] = 9
        r[r > 10] = 0
        m[::-1][0, ::-1] = [1, 2, 3, 4]
        m[::-1][[0, 1], 1] = [50, 60]
    assert numpy.array_equal(a.get(), n)
    assert np.array_equal(a[::-1][::-1], a) and (a[::-1] + 1).shape == (3, 4) and np.array_equal(np.flip(a), a[::-1, ::-1])


def test_numbers_do_not_follow_the_array():
    a = np.arange(3)
    first = a[0]
    a[0] = 5
    assert first == 0 and int(first) == 0 and list(range(a[1])) == [0] and f"{np.float32(2.5):.1f}" == "2.5"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_numbers_are_values():
    """What NumPy has scalars for does not change, is found in dicts, and computes as arrays of its dtype do."""
    texts = []
    for m in (np, numpy):
        a = m.array([1.5, 2.5, -3.5])
        i = m.array([7, -7, 3])
        x = a[0]
        y = x
        x += 1
        assert y == 1.5 and x == 2.5 and {a[1]: "b"}[2.5] == "b" and len({i[0], i[0], i[1]}) == 2
        total = a.sum()
        again = total
        total -= 1
        assert again == 0.5 and total == -0.5 and a.max() in {2.5}
        assert [repr(v) for v in (a[0], i[1], a[0] > 0, m.float32(0.5), m.complex128(1 + 2j))] == [
            "np.float64(1.5)", "np.int64(-7)", "np.True_", "np.float32(0.5)", "np.complex128(1+2j)"]
        found = (m.linalg.norm(a), m.searchsorted(a, 2.0), m.dot(a, a), m.interp(1.5, i, i), m.median(a), m.array(3.0)[()],
                 m.where(a > 0)[0][0])
        assert all(m.isscalar(v) and hash(v) == hash(v.item()) for v in found)
        texts.append([repr(v) for v in found])
        assert m.float64(2.5).is_integer() is False and m.int64(6).bit_count() == 2 and not hasattr(a, "is_integer")
        with pytest.raises(TypeError, match="unhashable"):
            hash(a)
        with pytest.raises(IndexError):
            a[3]
        with pytest.raises(IndexError):
            a[0, 0]
        with pytest.raises(TypeError):
            len(a[0])
        with pytest.raises(AttributeError, match="not writable"):
            y.shape = (1,)
        y.resize((3,))
        assert y == 1.5 and y.shape == ()
    assert texts[0] == texts[1]
    names = ["bool", "int8", "uint8", "int16", "uint32", "int32", "int64", "float32", "float64", "complex128"]
    for dtypes in itertools.product(names, repeat=2):
        values = [1, 3] if "bool" in dtypes or any(d.startswith("u") for d in dtypes) else [-3, 2]
        for op in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "le", "eq", "ne", "gt", "ge", "and_", "or_", "xor",
                   "lshift", "rshift"):
            if op == "pow" and "bool" in dtypes:
                continue  # a**2 is square(a) in NumPy, whose bool is int8
            found = []
            for m in (np, numpy):
                a, b = m.array(values, dtype=dtypes[0]), m.array([2, 3], dtype=dtypes[1])
                pairs = ((a[0], b[1]), (a[1], b), (a, b[0]), (a, b), (a[1], 2), (2, b[0]), (a, 2), (2, b), (a[1], 0.5), (a, 0.5))
                for n, (x, y) in enumerate(pairs):
                    try:
                        r = getattr(operator, op)(x, y)
                        found.append((n, r.dtype.name, numpy.asarray(r).tolist()))
                    except (TypeError, ValueError) as e:
                        found.append((n, type(e).__mro__[-3].__name__, ""))
            half = len(found) // 2
            for own, theirs in zip(found[:half], found[half:]):
                assert own[1] == theirs[1], (dtypes, op, own, theirs)
                assert numpy.allclose(own[2] or 0, theirs[2] or 0, rtol=1e-6, equal_nan=True), (dtypes, op, own, theirs)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_numbers_at_the_ends_of_their_dtype(dtype):
    ends = numpy.iinfo(dtype)
    given = numpy.array([ends.min, ends.max, 1, 3, 0, ends.bits - 1, ends.bits], dtype=dtype)
    own = np.array(given)
    with numpy.errstate(all="ignore"):
        for op in ("add", "sub", "mul", "floordiv", "mod", "and_", "or_", "xor", "lshift", "rshift", "lt", "eq"):
            f = getattr(operator, op)
            for i, j in itertools.product(range(len(given)), repeat=2):
                r, wanted = f(own[i], own[j]), f(given[i], given[j])
                assert r == wanted and r.dtype == wanted.dtype, (op, given[i], given[j], r, wanted)


def test_overlapping_writes(device):
    n = 5000
    a, b = np.arange(n), numpy.arange(n)
    for m in (a, b):
        m[1:] += m[:-1]
        m[2:] = m[:-2]
        m[:-3] -= m[3:]
    assert numpy.array_equal(a.get(), b)


def test_dtypes_equal_numpys():
    for d in DTYPES:
        own = np.zeros(1, d).dtype
        assert own == numpy.dtype(d) and numpy.dtype(d) == own and own == d and own == getattr(np, d) and getattr(np, d) == own
        assert own == getattr(arete, d) and hash(own) == hash(numpy.dtype(d)) and numpy.zeros(1, own).dtype == d
        assert own.kind == numpy.dtype(d).kind and own.str == numpy.dtype(d).str and own.num == numpy.dtype(d).num
        assert pickle.loads(pickle.dumps(own)) is own and copy.deepcopy(own) is own
    assert (
        isinstance(np.arange(2)[0], np.integer) and not isinstance(np.arange(2), np.integer) and isinstance(numpy.int8(1), np.signedinteger)
    )
    for bad in ("S3", object, [("a", "f4")], "M8", ">f4"):
        with pytest.raises(TypeError):
            np.zeros(2, bad)
    for a, b in itertools.product(DTYPES, DTYPES):
        expected = numpy.promote_types(a, b)
        assert np.promote_types(a, b) == expected
        for casting in ("no", "safe", "same_kind", "unsafe"):
            assert np.can_cast(a, b, casting) == numpy.can_cast(a, b, casting), (a, b, casting)


def test_numpys_functions_and_operators_find_arrays():
    a, n = np.arange(3.0), numpy.arange(3.0)
    for r in (n + a, a + n, numpy.exp(a), numpy.concatenate([a, a]), numpy.linalg.norm(a), numpy.add.reduce(a), numpy.fft.fft(a)):
        assert isinstance(r, np.ndarray)
    assert isinstance(numpy.asarray(a), numpy.ndarray) and numpy.asarray(a, dtype="float32").dtype == "float32"
    numpy.testing.assert_allclose(a + 1, n + 1)
    n += a
    assert n.tolist() == [0, 2, 4]


def test_what_is_refused():
    a = np.arange(4.0)
    for call in (lambda: np.seterr(all="raise"), lambda: np.load("x.npy", mmap_mode="r"), lambda: np.matmul(a, a, axes=[0, 0, 0]),
                 lambda: np.set_printoptions(legacy="1.13"), lambda: np.ndarray((2,), buffer=b"12")):
        with pytest.raises(NotImplementedError):
            call()
    with pytest.raises(NotImplementedError, match="C order, not 'F'"):
        np.ma.array([[1, 2]], order="F")
    with pytest.raises(AttributeError, match="no dtype is wider"):
        np.longdouble  # noqa: B018
    with pytest.raises(TypeError, match="unexpected keyword"):
        np.add(a, a, nonsense=1)
    with pytest.raises(ValueError, match="read-only"):
        a.flags.writeable = False
        a[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        a += 1
    for write in (lambda: a[1:].fill(2), lambda: a.sort(), lambda: np.add(1, 1, out=a[0:1]), lambda: np.broadcast_to(a, (2, 4)).fill(0),
                  lambda: np.copyto(a, 1), lambda: a.flat.__setitem__(0, 1), lambda: a[::-1].fill(0)):
        with pytest.raises(ValueError):
            write()
    assert a.tolist() == [0, 1, 2, 3]
    for wrong in (lambda: np.array({"a": 1}), lambda: np.array(["a"]), lambda: np.array([None])):
        with pytest.raises(TypeError):
            wrong()


def test_random_numbers(device):
    r, s = np.random.default_rng(5), np.random.default_rng(5)
    x = r.normal(2, 3, (200, 100))
    assert np.array_equal(x, s.normal(2, 3, (200, 100))) and abs(float(x.mean()) - 2) < 0.1 and abs(float(x.std()) - 3) < 0.1
    infinite = r.gamma([np.inf, 2]).tolist()
    assert infinite[0] == np.inf > infinite[1] and np.isnan(r.standard_t(np.inf, 2)).all()
    moments = {
        "gamma": ((2.5, 2), 5, 10),
        "beta": ((2, 3), 0.4, 0.04),
        "binomial": ((100, 0.3), 30, 21),
        "poisson": ((4,), 4, 4),
        "exponential": ((2,), 2, 4),
        "geometric": ((0.25,), 4, 12),
        "chisquare": ((3,), 3, 6),
        "laplace": ((1, 2), 1, 8),
        "logistic": ((1, 2), 1, 4 * numpy.pi**2 / 3),
        "gumbel": ((0, 1), 0.5772, numpy.pi**2 / 6),
        "lognormal": ((0, 0.5), 1.1331, 0.3646),
        "rayleigh": ((2,), 2.5066, 1.7168),
        "weibull": ((2,), 0.8862, 0.2146),
        "triangular": ((0, 1, 2), 1, 1 / 6),
        "wald": ((2, 3), 2, 8 / 3),
        "power": ((3,), 0.75, 0.0375),
        "uniform": ((1, 3), 2, 1 / 3),
        "negative_binomial": ((5, 0.5), 5, 10),
        "pareto": ((5,), 0.25, 0.1042),
        "hypergeometric": ((10, 20, 6), 2, 1.1494),
        "logseries": ((0.5,), 1.4427, 0.8041),
        "standard_t": ((10,), 0, 1.25),
        "f": ((4, 20), 1.1111, 0.8488),
        "noncentral_chisquare": ((3, 2), 5, 14),
        "vonmises": ((0.5, 4), 0.5, 0.293),
    }
    for name, (args, mean, variance) in moments.items():
        x = getattr(np.random.default_rng(1), name)(*args, size=20000)
        assert abs(float(x.mean()) - mean) < 6 * (variance / 20000) ** 0.5 and abs(float(x.var()) / variance - 1) < 0.2, name
    assert sorted(r.permutation(5).tolist()) == [0, 1, 2, 3, 4] and len({*r.choice(9, 5, replace=False).tolist()}) == 5
    assert r.multinomial(10, [0.2, 0.3, 0.5], 4).sum(axis=1).tolist() == [10] * 4 and np.allclose(r.dirichlet([1, 2, 3], 5).sum(1), 1)
    assert r.integers(0, 5, (3, 2), endpoint=True).max() <= 5 and r.multivariate_normal([0, 1], [[1, 0.5], [0.5, 2]], 7).shape == (7, 2)
    again = pickle.loads(pickle.dumps(r))
    assert np.array_equal(again.random(3), r.random(3))
    np.random.seed(3)
    first = np.random.rand(2)
    np.random.seed(3)
    assert np.array_equal(first, np.random.rand(2)) and np.random.get_state()[0] == "Philox"
    for bad in (
        lambda: r.choice(3, 5, replace=False),
        lambda: r.normal(0, -1),
        lambda: r.choice(3, p=[0.5, 0.1, 0.1]),
        lambda: r.poisson(-1),
    ):
        with pytest.raises(ValueError):
            bad()


# Of m and k below; the results, their texts, masks and fill values are NumPy's.
MASKED = """
    m; k; m + 1; 10 - k; m / k[0, 0]; k // 0; m % [1, 0, 2, 3]; m > 1; m == 2; ~(m > 1); 2 ** m; abs(-m); m * np.ma.masked
    np.ma.array([1., 2]); np.ma.array([1, 2], mask=True); np.ma.array([1, np.ma.masked, 3]); np.ma.array(m, mask=[1, 0, 0, 0])
    np.ma.array(m, mask=[1, 0, 0, 0], keep_mask=False); np.ma.array(m, keep_mask=False).mask;
    np.ma.array(m, keep_mask=False, shrink=False).mask
    np.ma.array(m, order='C'); np.ma.array([True, False], mask=[0, 1]); np.ma.array(5, mask=True)
    np.ma.array([1 + 2j, 3], mask=[0, 1]); np.ma.array([], dtype=float); k[:1]; np.ma.masked_less(np.arange(8.).reshape(2, 2, 2), 3)
    np.ma.masked_less(np.ma.arange(2000), 3); np.ma.zeros((2, 2)); m.mean(); m.sum(); m.std(); m.var(ddof=1); m.min(); m.max(); m.prod()
    m.ptp(); k.mean(0); k.sum(1); k.min(axis=0); k.count(axis=1); k.all(); k.any(axis=0); k.argmax(); k.argmin(axis=1); k.cumsum()
    k.cumprod(axis=1); k.anom(); k.astype(float).trace(); k.mean(axis=1, keepdims=True); np.ma.array([1., 2], mask=[1, 1]).mean()
    np.ma.median(k, axis=0); np.ma.median(m); np.ma.average(m, weights=[1, 2, 3, 4])
    np.ma.average(k, axis=1, weights=[1, 2, 3], returned=True); k.T; k.reshape(3, 2); k.ravel(); k.filled(); k.filled(-1); k.compressed()
    m[m > 1]; k[0]; k[:, 1]; k[0, 1]; k[1, 1]; k[k > 2]; k[:, ~k.mask.any(axis=0)]; m[::-1]; m.data[~m.mask]; m.filled(m.mean())
    np.ma.masked_where(k.data > 3, k); np.ma.masked_inside(k, 2, 4); np.ma.masked_outside(m, 2, 3)
    np.ma.masked_invalid([1, np.nan, np.inf]); np.ma.masked_values([1.5, 2, 1.5], 1.5); np.ma.masked_equal([1, 2, 1], 1)
    np.ma.fix_invalid([1., np.nan]).data; np.ma.sqrt(m - 2); np.ma.log([-1., 0, 1]); np.ma.divide([1., 2.], [0., 1.]); np.sqrt(m)
    np.mean(m); np.sum(k, axis=0); np.std(m, ddof=1); np.max(k, axis=1); np.isnan(m); np.any(m > 3); np.array([1., 2, 3, 4]) * m
    np.array([1, 2, 3, 4]) > m; (m + [1, 2, 3, 4]).data; (k / 0).data; np.ma.concatenate([m, m]); np.ma.vstack([k, k])
    np.ma.hstack([m, [1, 2]]); np.ma.append(m, [9]); np.ma.stack([m, m]); np.ma.diag(m); np.ma.where(m > 1, m, 0)
    np.ma.where(k > 2, k, -k); np.ma.where(m > 1); np.ma.where(m > 1, np.ma.masked, m); np.ma.choose([0, 1], [[1, 2], [3, 4]])
    np.ma.sort(m); np.ma.sort(k, axis=1); np.ma.sort(m, endwith=False); np.ma.argsort(m)
    np.ma.unique(np.ma.array([1, 1, 2], mask=[0, 0, 1])); np.ma.count_masked(k, axis=1); np.ma.clip(k, 2, 5); np.ma.round(m * 1.234, 1)
    np.ma.dot(k, k.T); np.ma.inner(m, m); np.ma.outer(m, [1, 2]); np.ma.cov(k.astype(float)); np.ma.diff(m); np.ma.ediff1d(m)
    np.ma.compress([1, 0, 1, 0], m); np.ma.take(m, [0, 1]); np.ma.repeat(m, 2); np.ma.mask_rows(k); np.ma.mask_cols(k)
    np.ma.compress_cols(np.ma.array([[1, 2], [3, 4]], mask=[[0, 1], [0, 0]])); np.ma.make_mask([0, 1])
    np.ma.mask_or(m.mask, np.array([True, False, False, False])); np.ma.allequal(m, [1, 7, 3, 4]); np.ma.allclose(m, [1, 7, 3, 5])
    np.ma.union1d(m, [1, 9]); np.ma.setdiff1d(m, [1]); np.ma.setxor1d(m, [1, 5]); np.ma.intersect1d(m, [1, 3])
    np.ma.flatnotmasked_edges(m); np.ma.nonzero(m); np.ma.getmaskarray([1, 2]); np.ma.maximum(m, 2)
    np.ma.polyfit([1, 2, 3, 4], m * m, 1); np.ma.zeros_like(k); m.tolist(); np.ma.maximum_fill_value(m); np.ma.minimum_fill_value(k)
    np.ma.is_masked(m[2:]); np.ma.resize(m, (2, 4)); list(k[0]); float(np.ma.masked); np.ma.masked + 1; np.ma.masked == 1
    changed(m, lambda m: m.__setitem__(0, np.ma.masked)); changed(k, lambda k: k.__setitem__(k > 3, 0))
    changed(m, lambda m: m[1:3].__setitem__(slice(0, 1), 7)); changed(m, lambda m: m[1:].__setitem__(1, np.ma.masked))
    changed(m, lambda m: m.sort()); changed(m, lambda m: m.__iadd__(np.ma.array([1, 2, 3, 4], mask=[0, 0, 1, 0])))
    changed(m, lambda m: m.__itruediv__([0, 1, 2, 3])); changed(m, lambda m: setattr(m, "mask", [True, False, False, False]))
    changed(m, lambda m: m.put([0, 1], [8, 9])).data
"""


def _changed(a, change):
    a = a.copy()
    change(a)
    return a


def _same(a, n):
    if isinstance(n, (tuple, list)):
        return type(a) is type(n) and len(a) == len(n) and all(map(_same, a, n))
    if isinstance(n, numpy.ma.MaskedArray):
        return repr(a) == repr(n)
    if n is None or isinstance(n, slice):
        return a == n
    a, n = numpy.asarray(a), numpy.asarray(n)
    return a.shape == n.shape and a.dtype.kind == n.dtype.kind and numpy.allclose(a, n, rtol=1e-14, atol=1e-13, equal_nan=True)


@pytest.mark.filterwarnings("ignore")
def test_masked_arrays():
    def found(np, text):
        m = np.ma.masked_array([1.0, 2, 3, 4], mask=[0, 1, 0, 0])
        k = np.ma.array([[1, 2, 3], [4, 50, 6]], mask=[[0, 1, 0], [0, 0, 1]])
        return eval(text, {"np": np, "m": m, "k": k, "changed": _changed})

    texts = [t.strip() for t in MASKED.replace("\n", ";").split(";") if t.strip()]
    assert [t for t in texts if not _same(found(np, t), found(numpy, t))] == [] and len(texts) > 150


def test_masks_are_not_lost():
    m = np.ma.array([1.0, 2], mask=[0, 1])
    for bad in (lambda: np.asarray(m), lambda: np.sort(m), lambda: numpy.asarray(m)):
        with pytest.raises(TypeError, match="filled"):
            bad()
    with pytest.raises(np.ma.MaskError, match="data size is 3, mask size is 2"):
        np.ma.array([1, 2, 3], mask=[0, 1])
    with pytest.raises(np.ma.MaskError):
        int(np.ma.masked)
    with pytest.raises(TypeError, match="same_kind"):
        np.ma.array([1, 2]).__itruediv__(2)
    for bad in (lambda: np.sum(m, where=[True, False]), lambda: np.max(m, initial=9), lambda: np.std(m, mean=1),
                lambda: np.mean(m, out=m.data)):
        with pytest.raises(NotImplementedError):
            bad()
    with pytest.raises(NotImplementedError, match="soft"):
        np.ma.array([1], hard_mask=True)
    with pytest.raises(AttributeError, match="records"):
        np.ma.mvoid


@pytest.mark.filterwarnings("ignore")
def test_quantiles_of_infinities_are_numpys():
    inf = np.inf
    for values in ([-inf, inf], [0.0, inf, inf], [-inf, 0.0, 1.0], [inf, inf], [-inf, -inf, 0.0], [0.0, 1.0, inf, inf]):
        assert numpy.array_equal(float(np.median(values)), numpy.median(values), equal_nan=True)
        for method in ("linear", "lower", "midpoint", "hazen", "weibull", "averaged_inverted_cdf"):
            for q in (0, 0.0, 0.25, 0.5, 0.75, 1, 1.0):
                mine, theirs = float(np.quantile(values, q, method=method)), numpy.quantile(values, q, method=method)
                assert numpy.array_equal(mine, theirs, equal_nan=True), (values, method, q)


@pytest.mark.filterwarnings("error")
def test_fits_warn_of_nothing():
    x = np.arange(5.0)
    for y, expected in ((2 * x + 1, [2, 1]), (np.stack([2 * x + 1, 3 - x], 1), [[2, -1], [1, 3]])):
        assert np.allclose(np.polyfit(x, y, 1), np.array(expected), atol=1e-9)
        c, covariance = np.polyfit(x, y, 1, w=x + 1, cov="unscaled")
        assert np.allclose(c, np.array(expected), atol=1e-9) and covariance.shape == (2, 2)
    for rowvar in (True, False):
        assert np.cov(x, rowvar=rowvar).item() == 2.5 and np.ma.cov(x, rowvar=rowvar).item() == 2.5


def test_polynomials():
    p, q = np.poly1d([1, 2, 3]), numpy.poly1d([1, 2, 3])
    assert str(p) == str(q) and p(2) == 11 and (p * p).coeffs.tolist() == (q * q).coeffs.tolist() and p.deriv().coeffs.tolist() == [2, 2]
    x = np.linspace(0, 1, 20)
    fit = np.polynomial.Polynomial.fit(x, 1 + 2 * x + 3 * x**2, 2).convert()
    assert np.allclose(fit.coef, [1, 2, 3]) and np.allclose(fit(x), 1 + 2 * x + 3 * x**2) and np.allclose(fit.deriv().coef, [2, 6])
    with pytest.raises(AttributeError, match="power series"):
        np.polynomial.Chebyshev  # noqa: B018


def test_runs_without_numpy():
    """In an interpreter that finds no NumPy; text and files need it, and say so."""
    program = ("import sys; sys.modules['numpy'] = None\n"
               "import arete.numpy as np\n"
               "a = np.arange(6.0).reshape(2, 3)\n"
               "assert a.dtype == 'float64' and {a.dtype: 1}[np.dtype('float64')] == 1\n"
               "assert repr(a.sum(axis=0)) == 'array([3., 5., 7.])', repr(a.sum(axis=0))\n"
               "try: np.str_\n"
               "except AttributeError as e: assert 'not installed' in str(e)\n"
               "else: raise SystemExit(1)\n")
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin"})


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("n", [5, 30, 1000, 70000])
def test_zeros_of_both_signs_keep_their_order(dtype, n, device):
    x = rng.choice(numpy.array([0.0, -0.0, 1.0, -1.0, numpy.nan, numpy.inf]), n).astype(dtype)
    own, order = np.array(x), numpy.argsort(x, kind="stable")
    assert np.asnumpy(np.argsort(own, kind="stable")).tolist() == order.tolist()
    assert (numpy.signbit(np.asnumpy(np.sort(own, kind="stable"))) == numpy.signbit(x[order])).all()
    assert np.asnumpy(np.lexsort([own, -own])).tolist() == numpy.lexsort([x, -x]).tolist()
    for descending in (False, True):
        found, at = arete.sort(own._tensor, stable=True, descending=descending)
        assert numpy.array_equal(np.asnumpy(np.ndarray(found)).view(f"u{x.itemsize}"), x[at.cpu().numpy()].view(f"u{x.itemsize}"))
        same = (found[1:] == found[:-1]) | (found[1:].isnan() & found[:-1].isnan())
        assert bool((at[1:] > at[:-1])[same].all())


def test_out_is_written_whatever_lies_where():
    """Results into arrays of the same layout, of others, and into the operands' own memory."""
    for n in (5, 3000):
        for make in (lambda m: m.arange(n, dtype=float), lambda m: m.arange(2 * n, dtype=float)[::2], lambda m: m.arange(n)):
            results = []
            for m in (np, numpy):
                a, out = make(m), m.zeros(n)
                m.multiply(a, a, out=out)
                m.add(out[1:], out[:-1], out=out[1:])
                m.sqrt(out, out=out)
                m.add(a, 1, out=out[::-1])
                results.append(m.add(a, out, out=out, where=a > 2))
            assert numpy.allclose(results[0].get(), results[1], rtol=1e-14)
    with pytest.raises(ValueError):
        np.add(np.ones(3), np.ones(3), out=np.ones(2))
    assert np.add(np.ones(3), 1, out=np.ones((2, 3))).tolist() == [[2, 2, 2], [2, 2, 2]]


def index_part(r, n):
    """Something that an axis of this size may be indexed with, now and then out of range."""
    def start():
        return r.choice([None, r.randrange(-n - 2, n + 2)])

    return r.choice([
        lambda: r.randrange(-n - 1, n + 1), lambda: slice(start(), start(), r.choice([None, 1, 2, -1, -2])), lambda: None, lambda: Ellipsis,
        lambda: [r.randrange(-n, n) for _ in range(r.choice([1, 2, 3]))], lambda: numpy.array([[r.randrange(-n, n)] for _ in range(2)]),
        lambda: numpy.array(r.randrange(-n, n)), lambda: numpy.array([r.random() < 0.5 for _ in range(n)]), lambda: slice(None)])()


@pytest.mark.parametrize("seed", [1, 2])
def test_indices(seed):
    """Indices of all kinds put together at random: what they give, what is written to them, and whether they are mistakes."""
    r = random.Random(seed)
    for _ in range(1500):
        shape = tuple(r.choice([2, 3, 4]) for _ in range(r.choice([1, 2, 3])))
        theirs = numpy.arange(numpy.prod(shape, dtype=int)).reshape(shape)
        ours = np.array(theirs)
        key = tuple(index_part(r, shape[min(i, len(shape) - 1)]) for i in range(r.choice([1, 2, 3])))
        a, b = (theirs[::-1], ours[::-1]) if r.random() < 0.3 else (theirs, ours)
        (e, error), (f, own) = outcome(a.__getitem__, (key,), {}), outcome(b.__getitem__, (to_own(key),), {})
        if error is not None or own is not None:
            # NumPy looks at indices into what is empty anyway, where nothing is taken.
            assert isinstance(error, IndexError) and (isinstance(own, IndexError) or f.size == 0), (shape, key, error, own)
            continue
        assert numpy.shape(e) == f.shape and numpy.array_equal(e, f.get()), (shape, key)
        a[key] = -1
        b[to_own(key)] = -1
        assert numpy.array_equal(theirs, ours.get()), (shape, key)


VIEWS = [
    lambda m, x: x.T, lambda m, x: x.mT if x.ndim > 1 else x, lambda m, x: x.transpose(*range(1, x.ndim), 0),
    lambda m, x: x.swapaxes(0, -1), lambda m, x: m.moveaxis(x, 0, -1), lambda m, x: m.rollaxis(x, x.ndim - 1), lambda m, x: list(x)[-1],
    lambda m, x: m.squeeze(x), lambda m, x: m.expand_dims(x, (0, -1)), lambda m, x: m.split(x, [1], -1)[1], lambda m, x: x.reshape(-1),
    lambda m, x: x.reshape(x.shape[0], -1), lambda m, x: x.reshape(*x.shape[:-1], 2, -1), lambda m, x: x.reshape(-1, order="F"),
    lambda m, x: x.view(), lambda m, x: m.asarray(x), lambda m, x: m.array(x, copy=None, ndmin=3), lambda m, x: m.ravel(x),
    lambda m, x: m.rot90(x) if x.ndim > 1 else x, lambda m, x: m.rot90(x, 3, (-1, 0)) if x.ndim > 1 else x, lambda m, x: m.flip(x),
    lambda m, x: m.rot90(x, 2) if x.ndim > 1 else x, lambda m, x: x.view("int64"), lambda m, x: m.atleast_3d(x), lambda m, x: x[::-2],
    lambda m, x: x[..., ::-1], lambda m, x: m.unstack(x, axis=-1)[0] if x.ndim > 1 else x,
    lambda m, x: m.lib.stride_tricks.sliding_window_view(x, 2, 0, writeable=True)[0],
    lambda m, x: m.broadcast_arrays(x, 1.0)[0]]


@pytest.mark.parametrize("seed", [1, 2])
def test_writes_to_views(seed):
    """Views of views, with negative steps among them: a write to the last is seen in the array exactly where NumPy sees it."""
    r, reversed_ones = random.Random(seed), 0
    for _ in range(400):
        shape = r.choice([(4,), (2, 4), (1, 2, 4), (2, 2, 4)])
        theirs = numpy.arange(numpy.prod(shape), dtype="float64").reshape(shape)
        ours = np.array(theirs)
        a, b = (theirs[::-1], ours[::-1]) if r.random() < 0.6 else (theirs, ours)
        chosen = [r.randrange(len(VIEWS)) for _ in range(r.choice([1, 2, 3]))]
        for k in chosen:
            (e, error), (f, own) = outcome(VIEWS[k], (numpy, a), {}), outcome(VIEWS[k], (np, b), {})
            assert (error is None) == (own is None), (shape, chosen, error, own)
            if error is None and e.size:
                a, b = e, f
        if not a.ndim:
            continue
        assert numpy.array_equal(a, b.get(), equal_nan=True), (shape, chosen)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            a[...] = b[...] = numpy.arange(a.size).reshape(a.shape) + 50
        assert numpy.array_equal(theirs, ours.get(), equal_nan=True), (shape, chosen)
        reversed_ones += type(b).__name__ == "Reversed"
    assert reversed_ones > 50
    x, y = numpy.zeros((2, 3)), np.zeros((2, 3))
    for m, z in ((numpy, x), (np, y)):
        m.add.at(z[::-1].T, (0, [0, 1, 1]), [1, 2, 3])
    assert numpy.array_equal(x, y.get())
    with pytest.raises(ValueError, match="negative step"):
        np.lib.stride_tricks.as_strided(y[::-1])
    numpy.asarray(y[::-1])[0, 0] = 9
    z = y[::-1].get()
    z[0] = y.get()[1] = -1
    assert y[::-1].tolist() == [[9, *x[1, 1:]], [*x[0]]] and np.array(x.T).get(order="F").flags.f_contiguous
    z = np.ones(3, dtype=complex)
    z[::-1].imag[0] = 7
    assert z.tolist() == [1, 1, 1 + 7j]


def test_views_of_read_only_arrays():
    a = np.ones(2)
    a.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        numpy.asarray(a)[0] = 2
    for k, view in enumerate(VIEWS):
        theirs = numpy.arange(8.0).reshape(2, 4)
        a = np.array(theirs)
        a.flags.writeable = False
        if numpy.shares_memory(view(numpy, theirs), theirs) and k != len(VIEWS) - 1:  # broadcast_arrays gives what it warns of
            with pytest.raises(ValueError, match="read-only"):
                view(np, a)[...] = 1
                pytest.fail(f"view {k} is written")
        assert numpy.array_equal(a.get(), theirs)


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "int64"])
def test_places_in_histograms_are_computed(dtype):
    # As GPUs have them; with values on the edges, too.
    random = numpy.random.default_rng(3)
    h = np._histograms
    for bins, (low, high) in ((10, (0, 1)), (7, (-0.3, 2.1)), (256, (0, 200)), (3, (1e6, 1e6 + 1)), (9000, (0, 3))):
        edges = numpy.linspace(low, high, bins + 1)
        x = numpy.concatenate([random.uniform(low - 0.1, high + 0.1, 3000), edges, [low, high]]).astype(dtype)
        want, edges = numpy.histogram(x, bins, (low, high))
        e = arete.tensor(edges.astype(dtype if dtype.startswith("f") else "float64"))
        computed = h._are_computed(arete.tensor(x), e, low, high)
        assert computed or (dtype == "float32" and low == 1e6)  # whose places f32 does not tell
        if not computed:
            continue
        found = h._interval_counts(arete.tensor(x), e, bins, low, high)[:bins]
        at = (numpy.searchsorted(e.numpy(), x, side="right") - 1)[(x >= e[0].item()) & (x <= e[-1].item())].clip(max=bins - 1)
        assert found.tolist() == numpy.bincount(at, minlength=bins).tolist(), (bins, low)
        assert dtype == "float32" or found.tolist() == want.tolist()


@pytest.mark.parametrize("kind", ["normal", "few", "sorted", "constant", "lost", "waves", "steps"])
def test_quantiles_of_long_rows(kind):
    # Chosen between elements of a sample, whatever that is like.
    n, random = 9001, numpy.random.default_rng(5)
    x = {"normal": lambda: random.normal(size=n).astype(numpy.float32), "few": lambda: random.integers(0, 5, n),
         "sorted": lambda: numpy.arange(float(n)), "constant": lambda: numpy.ones(n),
         "lost": lambda: numpy.where(numpy.arange(n) == 7, numpy.nan, random.normal(size=n)),
         "waves": lambda: numpy.arange(n) % 27 * 1.0, "steps": lambda: numpy.where(random.random(n) < 0.9999, 0.0, 1e300)}[kind]()
    a = np.array(x)
    for q, method in ((0.5, "linear"), (0.0, "nearest"), (1.0, "linear"), (0.0003, "lower"), ([[0.1], [0.9999]], "hazen")):
        found, want = np.quantile(a, q, method=method), numpy.quantile(x, q, method=method)
        assert numpy.allclose(found.get(), want, rtol=1e-6, atol=0, equal_nan=True), (q, method)
    assert numpy.allclose(np.nanmedian(a).get(), numpy.nanmedian(x), rtol=1e-6, atol=0)
    assert numpy.allclose(np.median(a).get(), numpy.median(x), equal_nan=True)


def _half(np):
    return np.array([1, 2049, 3.3, 100], dtype=np.float16)


def _changed_half(np):
    a = _half(np)
    a += 0.1
    a *= 0.3
    return a


def _written(np):
    a = np.arange(5)
    a[np.array([2**64 - 1], dtype=np.uint64)] = 7
    return a


WORDS = [
    # Python's numbers become float16 before they meet such elements.
    lambda np: _half(np) * 0.1,
    lambda np: 0.1 * _half(np),
    lambda np: _half(np) + 2049,
    lambda np: _half(np) + 1e5,
    lambda np: _half(np) == 3.3,
    lambda np: _half(np) < 3.3,
    lambda np: _half(np)**0.3,
    lambda np: _half(np) + 1.00048828125000022,  # to be rounded once
    lambda np: np.maximum(_half(np), 0.1),
    lambda np: np.multiply(_half(np), 0.1, dtype=np.float16),
    lambda np: np.where(np.array([True, False, True, True]), _half(np), 0.1),
    _changed_half,
    # Their neighbours.
    lambda np: np.spacing(np.array([0, -1, 1, 65504, -65504, np.inf, np.nan, 6e-8, 1000], dtype=np.float16)),
    lambda np: np.nextafter(np.array([1, 0, -0.0, np.inf, np.nan, 65504, -1, 5], dtype=np.float16),
                            np.array([2, 1, -1, 0, 0, np.inf, 0, 5], dtype=np.float16)),
    lambda np: np.nextafter(_half(np), np.float16(0)),
    lambda np: np.spacing(np.float32(1)),
    # The notation is that of the dtype's own arithmetic.
    lambda np: np.array([1, 0.1, 3.3, 100], dtype=np.float16),
    lambda np: np.array([1e-4, 1], dtype=np.float32),
    lambda np: np.array([1e-4, 1]),
    # Whole numbers that are no places.
    lambda np: np.arange(5)[np.uint64(2**63)],
    lambda np: np.arange(5)[np.uint64(2**64 - 1)],
    lambda np: np.arange(5)[np.uint64(3)],
    lambda np: np.arange(5)[np.array([2**63], dtype=np.uint64)],
    lambda np: np.arange(5)[np.array([2**64 - 1], dtype=np.uint64)],
    lambda np: np.arange(5)[2**63],
    _written,
    # Errors.
    lambda np: np.arange(5)[7],
    lambda np: np.zeros((2, 2))[0, 5],
    lambda np: np.arange(5)[[1, 9]],
    lambda np: np.array([1, 2, 3])["a"],
    lambda np: np.array([1, 2, 3])[1.5],
    lambda np: np.ones(3) + np.ones(4),
    lambda np: np.array([1, 2, 3]).reshape(2, 2),
    lambda np: np.array([1, 2, 3]).reshape(-1, 2),
    lambda np: np.array([1, 2, 3]).reshape(2),
    lambda np: np.concatenate([np.ones((2, 2)), np.ones(3)]),
    lambda np: np.vstack([np.ones(2), np.ones(3)]),
    lambda np: np.linalg.inv(np.ones((2, 3))),
    lambda np: np.linalg.inv(np.zeros((2, 2))),
    lambda np: np.linalg.cholesky(-np.eye(2)),
    lambda np: int(np.array([1, 2])),
    lambda np: float(np.array([1.5])),
    lambda np: np.zeros(-1),
    lambda np: np.full((2, -1), 3),
    lambda np: np.array([[1, 2], [3]]),
    lambda np: np.array([1, [2, 3]]),
    lambda np: np.array([[[1], [2]], [[3], [4, 5]]]),
    lambda np: np.array([np.ones(2), np.ones(3)]),
    # Numbers where NumPy has scalars.
    lambda np: np.unravel_index(7, (3, 4)),
    lambda np: list(np.arange(3)),
    lambda np: [float(v) for v in np.linspace(0, 1, 5)[::-2]],
]


@pytest.mark.skipif(tuple(map(int, numpy.__version__.split(".")[:2])) < (2, 4), reason="earlier versions have other words")
@pytest.mark.parametrize("case", range(len(WORDS)))
def test_words_are_numpys(case):
    """What is printed of a result, or the class and text of the error."""
    said = []
    for library in (numpy, np):
        try:
            with numpy.errstate(all="ignore"):
                said.append(repr(WORDS[case](library)))
        except Exception as e:
            said.append(f"{type(e).__name__}: {e}")
    assert said[0] == said[1]


OUTSIDE = [
    (lambda np: np.array([2**64 - 1], dtype=np.int64), OverflowError),
    (lambda np: np.array([2**63, -1], dtype=np.int64), OverflowError),
    (lambda np: np.array([-1.5], dtype=np.uint8), OverflowError),
    (lambda np: np.array([[1], [300.0]], dtype=np.int8), OverflowError),
    (lambda np: np.array([-1], dtype=np.uint64), OverflowError),
    (lambda np: np.array([np.inf], dtype=np.int64), OverflowError),
    (lambda np: np.array([np.nan], dtype=np.int64), ValueError),
    (lambda np: np.array([[1, np.nan]], dtype=np.int16), ValueError),
    (lambda np: np.array([[1j]], dtype=np.int64), TypeError),
    (lambda np: np.put(np.arange(3), [0], [2**64 - 1]), OverflowError),
    (lambda np: np.putmask(np.arange(3), np.ones(3, dtype=bool), 2**64 - 1), OverflowError),
    (lambda np: np.place(np.arange(3, dtype=np.int8), np.ones(3, dtype=bool), [300]), OverflowError),
    (lambda np: np.fill_diagonal(np.eye(2, dtype=np.int64), 2**63), OverflowError),
    (lambda np: np.insert(np.arange(3), 0, 2**63), OverflowError),
    (lambda np: np.pad(np.arange(3, dtype=np.int8), 1, constant_values=300), OverflowError),
    (lambda np: np.sum(np.arange(3), initial=2**64 - 1), OverflowError),
    (lambda np: np.max(np.arange(3), initial=2**64 - 1), OverflowError),
    (lambda np: np.take(np.arange(3), 2**64 - 1), OverflowError),
    (lambda np: np.add(2**63, 1), OverflowError),
    (lambda np: np.maximum(2**64 - 1, 1), OverflowError),
    (lambda np: np.random.default_rng(0).integers(0, 2**63 + 1), ValueError),
]


@pytest.mark.parametrize("case", range(len(OUTSIDE)))
def test_numbers_outside_of_a_dtype_are_refused(case):
    """They became others, silently."""
    call, error = OUTSIDE[case]
    for library in (numpy, np):
        with pytest.raises(error):
            call(library)


def test_errors_of_matrices_are_no_others():
    with pytest.raises(ValueError) as raised:
        np.zeros(-1)
    assert not isinstance(raised.value, np.linalg.LinAlgError)
    assert issubclass(np.linalg.LinAlgError, ValueError)


@pytest.mark.parametrize("n", [1, 3, 31, 32, 33, 100])
def test_few_elements_are_like_many(n):
    """The loops of few elements beside the operators of more: around the number where one ends."""
    rng = numpy.random.default_rng(n)
    x, i = rng.normal(size=n), rng.integers(-9, 9, n)
    x[rng.integers(n)], mask, at = numpy.nan, rng.random(n) < 0.5, rng.integers(-n, n, n)
    for theirs in (x, x.astype("f4"), i, i.astype("i4"), mask, x[::-1]):
        for f in (lambda np, a: a.copy(), lambda np, a: a[np.asarray(mask)], lambda np, a: a[np.asarray(at)],
                  lambda np, a: a.astype(np.float64), lambda np, a: a.astype(np.float32), lambda np, a: np.concatenate([a, a]),
                  lambda np, a: np.argmax(a), lambda np, a: np.argmin(a), lambda np, a: np.unique(a), lambda np, a: np.nonzero(a)[0],
                  lambda np, a: np.count_nonzero(a), lambda np, a: a + np.asarray(x), lambda np, a: np.asarray(i) * a,
                  lambda np, a: a > 0.5, lambda np, a: a / 3, lambda np, a: 2 - np.asarray(i), lambda np, a: a == np.asarray(i),
                  lambda np, a: a.reshape(n, 1).T[0, ::2], lambda np, a: np.arange(3, n), lambda np, a: np.ones(n), lambda np, a: list(a)):
            expected = f(numpy, theirs)
            got = f(np, np.asarray(theirs.copy()) if theirs.base is None else np.asarray(x.copy())[::-1])
            numpy.testing.assert_array_equal(numpy.asarray(got), numpy.asarray(expected))
            assert getattr(got, "dtype", None) == getattr(expected, "dtype", None)
    with pytest.raises(IndexError):
        np.asarray(x)[np.asarray([0, n])]


def test_a_vector_that_changes_while_it_is_read():
    a = np.arange(4)
    places = iter(a)
    assert next(places) == 0 and places.__length_hint__() == 3
    a[1] = 7
    assert [int(v) for v in places] == [7, 2, 3]
    assert next(places, None) is None


@pytest.mark.parametrize("n", [6, 33, 600])
def test_writes_from_the_same_memory(n, device):
    """a[i] op= b writes what it has read to where it is; rows, columns and blocks that overlap are read before they are written."""
    def program(np, a):
        a[2] += a[3]
        a[1, :4] *= 2
        a[:, 3] -= a[4]
        a[0] = a[:, 1]
        a[1:5, 1:5] = a[:4, :4]
        a[2:4, 2:] += a[1:3, 1:-1]
        a[5] = a[5]
        row = a[2]
        row -= a[2:3].reshape(-1)
        a[0] += a[0, 1]
        return a

    whole = numpy.arange(n * n).reshape(n, n) % 17
    for theirs in (whole, whole / 4, (whole * 1j + 2).astype("c8")):
        own = np.array(theirs)
        numpy.testing.assert_array_equal(np.asnumpy(program(np, own)), program(numpy, theirs.copy()))


def test_numbers_as_indices_make_views(device):
    a, b = np.zeros((2, 3, 4)), numpy.zeros((2, 3, 4))
    for m, xp in ((a, np), (b, numpy)):
        i = xp.array([1, -1])
        if m is b or device == "cpu":  # on a GPU an element is an array there
            m[i[0]][:] += 1
            m[0, i[1]][::2] = 5
            m[xp.int8(0)][0, 0] = 7
        else:
            m[1] += 1
            m[0, -1, ::2] = 5
            m[0, 0, 0] = 7
        assert m[i[0], :, 1].shape == (3,) and m[..., i[1]].shape == (2, 3) and float(m[i[0], 2, i[1]]) == 1
        for kind in ("u1", "i2", "u4", "i4", "u8"):
            at = xp.array([1, 0, 1], dtype=kind)
            assert m[at].shape == (3, 3, 4) and float(m[at].sum()) == float(m[[1, 0, 1]].sum())
            v = xp.arange(5.0)
            v[at] = 9
            assert v.tolist() == [9, 9, 2, 3, 4]
    assert numpy.array_equal(np.asnumpy(a), b)
    with pytest.raises(IndexError):
        float(a[np.array([0, 3], dtype="i4")].sum())  # a GPU tells of it when it is asked for values
    with pytest.raises(IndexError):
        a[np.int16(2)]


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "i8", "u8", "i2", "c16"])
def test_a_matrix_times_a_vector(dtype, device):
    """Rows, columns and vectors that lie side by side, apart, or in the opposite order; one and several blocks of each."""
    random = numpy.random.default_rng(3)
    for rows, columns in ((1, 1), (3, 5), (4, 17), (70, 50), (3, 9001), (9001, 3), (600, 700)):
        whole = numpy.asarray(random.integers(-4, 5, (2 * rows, 2 * columns)))
        m = (whole * (1j if dtype == "c16" else 1)).astype(dtype)
        v = numpy.asarray(random.integers(-4, 5, 2 * columns)).astype(dtype)
        own_m, own_v = np.array(m), np.array(v)
        for cut in (lambda x: x[:len(x) // 2], lambda x: x[::2], lambda x: x[::-2]):
            x, y = cut(v), cut(own_v)
            for theirs, own in ((m[:rows, :columns], own_m[:rows, :columns]), (m[:rows, ::2], own_m[:rows, ::2]),
                                (m.T.copy().T[::2, :columns], np.array(m.T.copy()).T[::2, :columns])):
                # Of small whole numbers, so that sums are exact in whatever order.
                numpy.testing.assert_array_equal(np.asnumpy(own @ y), theirs @ x)
                numpy.testing.assert_array_equal(np.asnumpy(y @ own.T), x @ theirs.T)
                assert (own @ y).dtype == dtype


def test_squares_of_complex_numbers(device):
    z = numpy.array([0, 1j, -2, 3 - 4j, 1e-200, 1e160 + 1j])
    with numpy.errstate(all="ignore"):
        numpy.testing.assert_allclose(np.asnumpy(np.array(z) ** 2), z ** 2, rtol=1e-15)
    own = np.array(z[:4])
    own **= 2
    assert own.tolist() == [0, -1, 4, -7 - 24j]
    t = arete.tensor([1 + 2j, 3 - 1j], dtype=arete.complex128, requires_grad=True)
    (t ** 2).abs().sum().backward()
    # d|z|^2 over the conjugate, in torch's convention: 2 z.
    assert arete.allclose(t.grad, 2 * t.detach())


def test_texts_beside_numbers(tmp_path):
    for m in (np, numpy):
        scaled = m.vectorize(lambda unit, x, to="m": x * {"km": 1000.0, "m": 1.0}[unit] / {"m": 1, "km": 1000}[to])
        assert scaled("km", m.array([1.0, 2.5])).tolist() == [1000, 2500] and scaled("m", m.array([[500.0]]), to="km").tolist() == [[0.5]]
    path = tmp_path / "table.csv"
    path.write_text("place,1,2\nOslo,3,4\nRome,5,6\n")
    names = np.genfromtxt(path, dtype=np.str_, delimiter=",", usecols=0)  # NumPy's own: the library has no texts
    counts = np.genfromtxt(path, dtype=np.int32, delimiter=",", usecols=(1, 2), skip_header=1)
    assert names.tolist() == ["place", "Oslo", "Rome"] and type(counts) is np.ndarray and counts.dtype == np.int32
    assert counts[names[1:] == "Rome"].tolist() == [[5, 6]]


def test_functions_for_tests():
    a = np.arange(4)
    np.testing.assert_equal(a.sum(), 6)
    np.testing.assert_equal({"a": [a, a[1]]}, {"a": [numpy.arange(4), 1]})
    np.testing.assert_array_almost_equal(actual=a / 3, desired=numpy.arange(4) / 3)
    for wrong in (lambda: np.testing.assert_equal(a[1], 2), lambda: np.testing.assert_allclose(a, a + 1),
                  lambda: np.testing.assert_array_less(a, a)):
        with pytest.raises(AssertionError):
            wrong()
    with np.testing.assert_raises(ValueError):
        a.reshape(3)
    with pytest.raises(AttributeError, match="arete.numpy.testing"):
        np.testing.assert_nothing
    assert "testing" in dir(np) and {"assert_allclose", "assert_raises"} <= set(dir(np.testing))
