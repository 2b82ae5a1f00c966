"""Programs as people write them for NumPy that print what they find: test_arrays.py compares their output to the character."""

import contextlib
import copy
import functools
import io
import math
import pathlib
import pickle
import tempfile

TEXTS = []


def program(function):
    @functools.wraps(function)
    def printed(np):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            function(np)
        return text.getvalue()

    TEXTS.append(printed)
    return function


def of_python(np):
    return (
        math.sqrt(np.float64(4)),
        sum(np.array([1, 2, 3])),
        max(np.array([1, 5])),
        min(np.array([2.0, 1.0])),
        any(np.array([0, 1])),
        sorted(np.array([2, 1])),
        list(zip(np.array([1]), np.array([2.0]))),
        len(np.ones(3)),
        3 in np.array([1, 3]),
    )


@program
def runge_kutta(np):

    def f(t, y):
        return np.array([y[1], -np.sin(y[0]) - 0.1 * y[1]])

    y = np.array([1.0, 0.0])
    t = 0.0
    h = 0.1
    hist = []
    for _ in range(50):
        k1 = f(t, y)
        k2 = f(t + h / 2, y + h / 2 * k1)
        k3 = f(t + h / 2, y + h / 2 * k2)
        k4 = f(t + h, y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        t += h
        hist.append(y)
    H = np.array(hist)
    print(H[::10])
    print(H.shape, H.dtype, H.mean(axis=0), H.argmin(axis=0))


@program
def statistics(np):
    a = np.array([[3.0, 1, 4, 1, 5], [9, 2, 6, 5, 3], [5, 8, 9, 7, 9]])
    for f in ("mean", "std", "var", "median", "ptp", "sum", "prod", "min", "max", "argmax", "cumsum", "cumprod"):
        # All digits of one number depend on the order of additions, which both choose by the processor.
        print(f, np.round(getattr(np, f)(a), 12), getattr(np, f)(a, axis=0), getattr(np, f)(a, axis=1))
    print(np.percentile(a, [25, 50, 75], axis=1))
    print(np.quantile(a, 0.3, method="lower"), np.quantile(a, 0.3, method="midpoint"))
    print(np.corrcoef(a))
    print(np.cov(a, rowvar=False))
    print(np.average(a, axis=1, weights=[1, 2, 3, 4, 5]))
    print(np.nanmean(np.where(a > 8, np.nan, a), axis=0), np.histogram(a, bins=4), np.histogram(a, bins=[0, 3, 6, 9], density=True))
    print(np.bincount([1, 2, 2, 5], weights=[0.5, 1, 2, 3], minlength=8))
    print(np.unique(a, return_counts=True))


@program
def image(np):
    y, x = np.mgrid[0:8, 0:10]
    img = ((x * 7 + y * 13) % 16).astype(np.uint8)
    print(img)
    print(img[::-1, ::2])
    print(np.rot90(img, 3))
    print(np.fliplr(img)[0], np.flipud(img)[0])
    k = np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]])
    p = np.pad(img.astype(int), 1, mode="edge")
    w = np.lib.stride_tricks.sliding_window_view(p, (3, 3))
    print((w * k).sum(axis=(2, 3)))
    print(np.clip(img * 20, 0, 255))
    print(img.astype(float) / 15)
    g = np.gradient(img.astype(float))
    print(np.hypot(*g).round(3))
    h, e = np.histogram(img, bins=16, range=(0, 16))
    print(h, e)
    cdf = h.cumsum()
    print(np.interp(img.ravel()[:12], e[:-1], cdf))
    print(np.where(img > 7, 255, 0).astype("u1").tobytes()[:8])


@program
def masked(np):
    a = np.ma.masked_array([1.0, 2, 3, 4, 5], mask=[0, 1, 0, 0, 1])
    print(a, a.mean(), a.sum(), a.filled(-1), a.count())
    print(repr(a))
    b = np.ma.masked_greater(np.arange(6).reshape(2, 3), 3)
    print(b)
    print(repr(b))
    print(b.sum(axis=0), b.compressed(), (b * 2).filled(0))
    print(np.ma.masked_invalid([1, np.nan, np.inf]), np.ma.masked_where(np.arange(4) % 2 == 0, np.arange(4)))
    print(np.ma.median(b), np.ma.average(a), b.argmax(), np.ma.sort(a))
    print(a + 1, a[1] is np.ma.masked, a.max(), np.sqrt(a))


@program
def printing(np):
    print(np.arange(1200))
    print(np.arange(10000).reshape(100, 100))
    print(np.array([1e-10, 1, 10000000000.0]))
    print(np.array([1.5, np.nan, -np.inf]))
    print(np.array([1 + 2j, 3.5 - 1j]))
    print(np.array([True, False]))
    print(repr(np.float32(1.1)), repr(np.int8(3)), repr(np.array([], dtype="f4")), repr(np.zeros((0, 3))))
    with np.printoptions(precision=2, suppress=True):
        print(np.array([1.23456, 1e-05, 123.456]))
    with np.printoptions(threshold=5, edgeitems=2):
        print(np.arange(20))
        print(repr(np.arange(40.0).reshape(4, 10)))
    with np.printoptions(formatter={"float": lambda x: f"<{x:.1f}>"}):
        print(np.array([1.0, 2.0]))
    with np.printoptions(sign="+", floatmode="fixed", precision=3):
        print(np.array([1.0, -2.5]))
    with np.printoptions(linewidth=30):
        print(np.arange(20.0))
    print(
        np.array2string(np.arange(4.0) / 3, precision=3, separator=", ", prefix="abc"),
        np.array_str(np.ones(2)),
        np.array_repr(np.ones(2)),
        np.format_float_positional(3.14159, precision=3),
        np.format_float_scientific(12345.6, precision=2),
        np.base_repr(10, 2),
        np.binary_repr(-3, 8),
    )
    print(f"{np.float64(1.23456):.2f} {np.array([1.0, 2.0])} {np.int64(5):>4d}|{np.float32(2.5)}")
    print([np.float64(1.0), np.int32(2)], {np.float64(1): np.bool_(True)})
    print(np.array([[1, 2], [3, 4]]).tolist(), str(np.array(5)), repr(np.array(5.0)))
    print(
        np.array([1e300, 1e-300]),
        np.array([0.1, 0.12345678901234566]),
        np.array([100000000, 1]),
        np.array([1.0, 1000000.0, 1e16]),
        np.array([100000.0, 0.0001, 2.5]),
        np.float32([0.1, 0.2, 100000000.0]),
        np.float16([0.1, 65504]),
    )


@program
def files(np):
    with tempfile.TemporaryDirectory() as d:
        a = np.arange(6.0).reshape(2, 3)
        np.save(d + "/a.npy", a)
        print(np.load(d + "/a.npy"))
        np.savez(d + "/z.npz", x=a, y=np.arange(3))
        z = np.load(d + "/z.npz")
        print(sorted(z.files), z["x"], z["y"].dtype, "x" in z)
        np.savez_compressed(d + "/c.npz", a)
        print(np.load(d + "/c.npz")["arr_0"])
        np.savetxt(d + "/t.txt", a, fmt="%.3f", delimiter=",", header="a b c")
        print(pathlib.Path(d, "t.txt").read_text())
        print(np.loadtxt(d + "/t.txt", delimiter=","))
        print(np.genfromtxt(io.StringIO("1,2,3\n4,,6"), delimiter=","))
        print(np.loadtxt(io.StringIO("1 2\n3 4"), dtype=int, unpack=True))
        a.tofile(d + "/b.bin")
        print(np.fromfile(d + "/b.bin"))
        print(np.frombuffer(a.tobytes(), dtype=float)[:2], np.fromstring("1 2 3", sep=" "))
        m = np.memmap(d + "/m.dat", dtype="f4", mode="w+", shape=(2, 3))
        m[:] = np.arange(6).reshape(2, 3)
        m.flush()
        print(np.fromfile(d + "/m.dat", dtype="f4"))


@program
def nditer(np):
    a = np.arange(6).reshape(2, 3)
    print([int(x) for x in np.nditer(a)])
    print([(i, int(v)) for i, v in np.ndenumerate(a)])
    print(list(np.ndindex(2, 2)))
    print([int(x) for x in a.flat], a.flat[3])
    a.flat[1] = 9
    print(a)
    it = np.nditer(a, flags=["multi_index"])
    out = []
    while not it.finished:
        out.append((it.multi_index, int(it[0])))
        it.iternext()
    print(out)
    with np.nditer(a, op_flags=["readwrite"]) as it:
        for x in it:
            x[...] = 2 * x
    print(a)
    print(
        [tuple(map(int, p)) for p in np.broadcast(np.array([1, 2, 3]), np.array([[1], [2]]))],
        np.broadcast(np.ones(3), np.ones((2, 1))).shape,
    )


@program
def apply(np):
    a = np.arange(12).reshape(3, 4)
    print(np.apply_along_axis(lambda v: v[::-1], 1, a), np.apply_along_axis(np.sum, 0, a), np.apply_over_axes(np.sum, a, [0, 1]))
    print(np.piecewise(np.arange(6.0), [np.arange(6) < 2, np.arange(6) >= 4], [-1, lambda x: x * 10, 0.5]))
    print(np.select([a < 3, a > 8], [a, a * 10], default=-1))
    print(np.choose([0, 1, 2, 0], [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]))
    print(np.fromfunction(lambda i, j: i * 10 + j, (2, 3)), np.fromiter((x * x for x in range(4)), float))
    print(np.compress([True, False, True], a, axis=0), np.extract(a % 5 == 0, a), np.place(a, a > 9, [0]), a)
    np.put(a, [0, 1], [7, 8])
    np.putmask(a, a == 7, 70)
    print(a)
    np.copyto(a, 0, where=a > 5)
    print(a)


@program
def shapes(np):
    a = np.arange(24).reshape(2, 3, 4)
    print(
        a.T.shape,
        np.swapaxes(a, 0, 2).shape,
        np.moveaxis(a, 0, -1).shape,
        np.rollaxis(a, 2).shape,
        np.expand_dims(a, 1).shape,
        a.squeeze().shape,
        np.transpose(a, (1, 0, 2)).strides,
        a.ravel("F")[:5],
        a.reshape(-1, 6, order="F")[:2],
    )
    print(
        np.roll(a, 1, axis=2)[0],
        np.roll(np.arange(5), -2),
        np.repeat([1, 2], [2, 3]),
        np.tile([[1, 2]], (2, 2)),
        np.concatenate([a, a], axis=1).shape,
        np.stack([a, a], -1).shape,
        np.hstack([[1], [2]]),
        np.vstack([[1], [2]]),
        np.dstack([[1], [2]]),
        np.column_stack([[1, 2], [3, 4]]),
    )
    print(
        np.split(np.arange(6), 3),
        np.array_split(np.arange(5), 2),
        np.hsplit(np.arange(4).reshape(2, 2), 2),
        np.delete(np.arange(5), [1, 3]),
        np.insert([1, 2, 3], 1, [9, 8]),
        np.append([1], [2]),
        np.resize([1, 2, 3], (2, 2)),
        np.atleast_2d(1),
        np.flip(a[0], 0),
        np.rot90(a[0]),
    )
    print(
        np.broadcast_to([1, 2], (2, 2)),
        [x.shape for x in np.broadcast_arrays([1, 2], [[1], [2]])],
        np.broadcast_shapes((1, 2), (3, 1)),
        a.flags.c_contiguous,
        a.T.flags.f_contiguous,
        a.nbytes,
        a.itemsize,
    )
    for mode in ("constant", "edge", "linear_ramp", "maximum", "mean", "median", "minimum", "reflect", "symmetric", "wrap", "empty"):
        r = np.pad(np.array([1, 2, 3, 5]), (2, 3), mode=mode)
        print(mode, r if mode != "empty" else r.shape)
    print(np.pad([[1, 2], [3, 4]], ((1, 0), (0, 2)), constant_values=((9, 9), (8, 7))))


@program
def signal(np):
    for m in ("full", "same", "valid"):
        print(m, np.convolve([1, 2, 3], [0, 1, 0.5], m), np.correlate([1, 2, 3], [0, 1, 0.5], m))
    print(
        np.unwrap([0, 3, 6.5, 10]),
        np.unwrap([0, 1, 2, -1], period=4),
        np.diff([1, 4, 9], n=2),
        np.ediff1d([1, 2, 4], to_begin=0),
        np.gradient([1, 4, 9, 16.0]),
        np.interp([1.5, 9], [1, 2], [10, 20], right=-1),
        np.hanning(5),
        np.hamming(4),
        np.blackman(4),
        np.bartlett(4),
        np.kaiser(4, 2),
        np.angle([1j, -1]),
        np.deg2rad(180),
        np.trapezoid([1, 2, 3]),
    )
    print(
        np.cumulative_sum([1, 2, 3], include_initial=True),
        np.cross([[1, 0, 0]], [[0, 1, 0]]),
        np.real_if_close([1 + 1e-20j]),
        np.nan_to_num([np.nan, np.inf, -np.inf]),
        np.around([0.5, 1.5, 2.567], 1),
        np.fix([-1.5, 1.5]),
        np.trunc(-1.7),
        np.rint(2.5),
        np.ceil(1.2),
    )


@program
def life(np):
    g = np.zeros((8, 8), dtype=bool)
    g[[1, 2, 3, 3, 3], [2, 3, 1, 2, 3]] = True
    for _ in range(4):
        n = sum((np.roll(np.roll(g, i, 0), j, 1).astype(int) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)))
        g = (n == 3) | g & (n == 2)
    print("\n".join(("".join((".#"[int(c)] for c in r)) for r in g)))
    print(g.sum(), np.argwhere(g))


@program
def kmeans(np):
    x = np.array([[0, 0], [0, 1], [1, 0], [9, 9], [9, 10], [10, 9.0]])
    c = x[[0, 3]].copy()
    for _ in range(5):
        d = ((x[:, None] - c) ** 2).sum(-1)
        l = d.argmin(1)
        c = np.array([x[l == k].mean(0) for k in range(2)])
    print(l, c, np.sqrt(d.min(1)).round(4))
    e = x - x.mean(0)
    u, s, vt = np.linalg.svd(e, full_matrices=False)
    print(s.round(6), (s**2 / (len(x) - 1)).round(6), np.abs(vt).round(6))


@program
def heat(np):
    u = np.zeros((6, 6))
    u[0] = 100
    for i in range(200):
        v = u.copy()
        v[1:-1, 1:-1] = 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2])
        if np.abs(v - u).max() < 1e-06:
            break
        u = v
    print(i, u.round(3))
    print(u)


@program
def randoms(np):
    r = np.random.default_rng(5)
    print(
        r.random(3).shape,
        r.integers(0, 10, 5).dtype,
        r.normal(size=(2, 2)).shape,
        r.choice(5, 3, replace=False).shape,
        r.permutation(4).sum(),
    )
    np.random.seed(0)
    a = np.random.rand(2, 2)
    np.random.seed(0)
    print(np.array_equal(a, np.random.rand(2, 2)), np.random.randint(5, size=3).dtype, np.random.uniform(1, 2, 3).min() >= 1)
    for n in (
        "beta",
        "binomial",
        "chisquare",
        "exponential",
        "gamma",
        "geometric",
        "gumbel",
        "laplace",
        "logistic",
        "lognormal",
        "poisson",
        "rayleigh",
        "standard_t",
        "triangular",
        "vonmises",
        "wald",
        "weibull",
        "zipf",
        "power",
        "pareto",
        "multinomial",
        "dirichlet",
        "multivariate_normal",
        "hypergeometric",
        "negative_binomial",
        "noncentral_chisquare",
        "f",
        "logseries",
        "standard_cauchy",
        "standard_gamma",
    ):
        args = {
            "beta": (1, 2),
            "binomial": (5, 0.5),
            "chisquare": (2,),
            "gamma": (2,),
            "geometric": (0.3,),
            "standard_t": (3,),
            "triangular": (0, 1, 2),
            "vonmises": (0, 1),
            "wald": (1, 1),
            "weibull": (2,),
            "zipf": (2,),
            "power": (2,),
            "pareto": (2,),
            "multinomial": (5, [0.5, 0.5]),
            "dirichlet": ([1, 2],),
            "multivariate_normal": ([0, 0], [[1, 0], [0, 1]]),
            "hypergeometric": (5, 5, 3),
            "negative_binomial": (3, 0.5),
            "noncentral_chisquare": (2, 1),
            "f": (2, 3),
            "logseries": (0.5,),
            "standard_gamma": (2,),
        }.get(n, ())
        try:
            v = getattr(r, n)(*args, size=4)
            print(n, v.shape, v.dtype)
        except Exception as e:
            print(n, type(e).__name__, e)


@program
def objects(np):

    class Q:

        def __init__(s, x):
            s.x = np.asarray(x, dtype=float)

        def __array__(s, dtype=None, copy=None):
            return s.x if dtype is None else s.x.astype(dtype)

    print(np.add(Q([1, 2]), 1), np.sum(Q([[1, 2], [3, 4]]), axis=0))

    a = np.arange(6).reshape(2, 3)[:, ::2]
    b = pickle.loads(pickle.dumps(a))
    print(b, b.flags.c_contiguous, copy.deepcopy(a))
    a = a.copy()
    a += 1
    a *= 2
    a //= 3
    a %= 5
    a **= 2
    a <<= 1
    a |= 1
    a &= 7
    a ^= 2
    print(a)
    print(
        a.astype(float).__divmod__(2),
        -a,
        ~a,
        abs(-a),
        a == 3,
        a != 3,
        3 - a,
        2**a,
        7 // np.array([2, 3]),
        7 % np.array([2, 3]),
        a > 2,
        not a[0, 0],
        a.any(),
        a.all(),
    )
    print(
        a.item(0),
        a.tolist(),
        a.max(1),
        a.view("u8").dtype,
        a.nonzero(),
        a.cumsum(1),
        a.argsort(axis=0),
        a.clip(1, 3),
        a.round(),
        a.conj(),
        a.trace(),
        a.diagonal(),
        a.dot(a.T),
        a.repeat(2),
        a.take([0]),
        a.swapaxes(0, 1),
        a.var(),
        a.compress([1, 0], axis=0),
        a.dumps()[:1],
    )
    print(
        isinstance(a, np.ndarray),
        type(a).__name__,
        a.dtype.kind,
        a.dtype.char,
        a.dtype.str,
        repr(a.dtype),
        a.dtype,
        np.dtype("float32") == np.float32,
        hash(np.float64(2)) == hash(2.0),
        {1: 2}[np.int64(1)],
        [10, 20][np.int64(1)],
        range(np.int64(2)),
        "ab" * np.int64(2),
        round(np.float64(1.567), 1),
        divmod(np.int64(7), 2),
        np.float64(1.5).is_integer(),
        complex(np.complex128(1j)),
        np.float64(0.1) + 0.2,
        int(np.float64(3.9)),
        np.float64(2) ** 0.5,
        of_python(np),
    )


@program
def views(np):
    a = np.arange(20).reshape(4, 5)
    b = a[1:3, ::-2]
    b[:] = 0
    print(a)
    a[a % 2 == 0] *= -1
    print(a)
    a[[0, 1], [1, 2]] += 100
    print(a)
    a[..., 0] = 7
    a[:, None, 1]
    print(
        a[None].shape,
        a[-1, -2:],
        a[::-1][0],
        a[1, ...],
        a[[True, False, True, False]],
        a[:, [0, -1]],
        a[[0, 3]][:, [1, 2]],
        a[np.array([[0, 1], [2, 3]]), 0],
        a.base is not None,
    )
    c = np.lib.stride_tricks.as_strided(np.arange(5), (3, 3), (8, 8))
    print(c)
    t = a.T
    t[0] = -5
    print(a[:, 0])
    r = np.ravel(a)
    r[0] = 99
    print(a[0, 0], a.flatten()[0])
    x = np.arange(10)
    x[1:] = x[:-1]
    print(x)
    x[::2], x[1::2] = (1, 2)
    print(x)
    x[x > 1] = np.arange(5)
    print(x)
    y = np.zeros((3, 3))
    y[np.diag_indices(3)] = [1, 2, 3]
    y[1] += y[0]
    print(y)
    print(np.take_along_axis(a, np.argsort(a, axis=1), axis=1))
    np.put_along_axis(y, np.array([[0], [1], [2]]), 9, axis=1)
    print(y)
    print(np.shares_memory(a, a[0]), np.may_share_memory(a, a.copy()))


@program
def misc(np):
    print(
        np.ndim(3),
        np.shape([[1, 2]]),
        np.size([1, 2]),
        np.array(3.0)[()],
        np.asarray([1, 2], dtype="c8"),
        np.asfortranarray([[1, 2], [3, 4]]).flags.f_contiguous,
        np.ascontiguousarray([1]).flags.c_contiguous,
        np.asarray_chkfinite([1, 2]),
        np.full((2, 2), 7),
        np.full_like([1.5, 2], 3),
        np.zeros_like([1, 2], dtype=float),
        np.empty((0,)).size,
        np.copy([1, 2]),
        np.require([1, 2], float, "C"),
    )
    print(
        np.lib.stride_tricks.sliding_window_view(np.arange(5), 3),
        np.array_split([1, 2, 3], 2),
        np.iterable(3),
        np.nanargmax([np.nan, 1, 3]),
        np.nanstd([1, np.nan, 3]),
        np.nanmedian([1, np.nan, 3]),
        np.nancumsum([1, np.nan]),
        np.nanpercentile([1, np.nan, 3], 50),
        np.mask_indices(3, np.triu),
        np.tril_indices_from(np.ones((2, 2))),
        np.rollaxis(np.ones((1, 2, 3)), 2).shape,
        np.vecdot([1, 2], [3, 4]),
        np.matvec([[1, 2], [3, 4]], [1, 1]),
        np.matrix_transpose(np.ones((2, 3))).shape,
        np.linalg.vector_norm([3, 4]),
        np.astype(np.ones(2), int),
        np.concat([[1], [2]]),
        np.permute_dims(np.ones((1, 2)), (1, 0)).shape,
        np.pow(2, 3),
        np.acos(1.0),
        np.unstack(np.ones((2, 1))),
        np.isdtype(np.dtype("f4"), "real floating"),
        np.unique_values([2, 1, 2]),
    )
    print(np.vectorize(lambda a, b: a + b, otypes=[float])([1, 2], 3), np.vectorize(np.mean, signature="(n)->()")([[1, 2], [3, 4]]))
    print(np.array([3, 1, 2]).__repr__(), np.__version__.split(".")[0], np.inf, -np.inf, np.e, np.pi, np.newaxis)
    print(np.set_printoptions(precision=3), np.array([np.pi]), np.get_printoptions()["precision"], np.set_printoptions(precision=8))
    print(
        np.isposinf([np.inf, -np.inf]),
        np.isneginf([np.inf, -np.inf]),
        np.isfinite([1, np.nan]),
        np.any([[0, 1], [0, 0]], axis=0),
        np.all([[1, 1], [0, 1]], axis=1, keepdims=True),
        np.logical_xor([1, 0], [1, 1]),
        np.maximum([1, np.nan], 2),
        np.fmax([1, np.nan], 2),
        np.amax([1, 2]),
        np.real([1 + 2j]),
        np.imag(3),
        np.conj(1j),
        np.absolute(-3 + 4j),
        np.square(3),
        np.reciprocal(2.0),
        np.exp2(3),
        np.expm1(1e-10),
        np.log1p(1e-10),
        np.log2(8),
        np.log10(1000),
        np.tanh(1.0),
        np.arctan2(1, -1),
        np.degrees(np.pi),
        np.hypot(3, 4),
    )
