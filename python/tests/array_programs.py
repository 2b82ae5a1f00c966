"""Programs as people write them for NumPy, each of which gives what test_arrays.py compares; the first ones are exercises that every
course has."""

import copy
import io
import pickle

PROGRAMS = []


def program(function):
    PROGRAMS.append(function)
    return function


@program
def program_1(np):
    z = np.zeros(10)
    z[4] = 1
    return z


@program
def program_2(np):
    z = np.arange(50)
    return z[::-1]


@program
def program_3(np):
    z = np.arange(9).reshape(3, 3)
    return z


@program
def program_4(np):
    return str(np.nonzero([1, 2, 0, 0, 4, 0])[0])


@program
def program_5(np):
    z = np.ones((5, 5))
    z[1:-1, 1:-1] = 0
    return z


@program
def program_6(np):
    z = np.ones((3, 3))
    return np.pad(z, pad_width=1, mode="constant", constant_values=0)


@program
def program_7(np):
    return (0 * np.nan, np.nan == np.nan, np.inf > np.nan, np.nan - np.nan, 0.3 == 3 * 0.1)


@program
def program_8(np):
    return np.diag(1 + np.arange(4), k=-1)


@program
def program_9(np):
    z = np.zeros((8, 8), dtype=int)
    z[1::2, ::2] = 1
    z[::2, 1::2] = 1
    return z


@program
def program_10(np):
    return str(tuple(int(i) for i in np.unravel_index(99, (6, 7, 8))))


@program
def program_11(np):
    return np.tile(np.array([[0, 1], [1, 0]]), (4, 4))


@program
def program_12(np):
    z = np.arange(25.0).reshape(5, 5)
    return (z - np.mean(z)) / np.std(z)


@program
def program_13(np):
    return np.dot(np.ones((5, 3)), np.ones((3, 2)))


@program
def program_14(np):
    z = np.arange(11)
    z[(3 < z) & (z < 8)] *= -1
    return z


@program
def program_15(np):
    return (sum(range(5), -1), int(np.sum(range(5), -1)))


@program
def program_16(np):
    z = np.arange(5)
    return (z**z, 2 << z >> 2, z < -z, (1j * z).imag, z / 1 / 1)


@program
def program_17(np):
    return (np.array(0) // np.array(1), np.array([np.nan]).astype(float))


@program
def program_18(np):
    z = np.array([-4.2, 3.7, 0.1, -0.5])
    return np.copysign(np.ceil(np.abs(z)), z)


@program
def program_19(np):
    return np.sqrt(-1 + 0j) == np.emath.sqrt(-1)


@program
def program_20(np):
    a = np.ones(3)
    b = np.ones(3) * 2
    np.add(a, b, out=b)
    np.divide(a, 2, out=a)
    np.negative(a, out=a)
    np.multiply(a, b, out=a)
    return a


@program
def program_21(np):
    z = np.array([1.5, 2.7, -3.2])
    return (z - z % 1, z // 1, np.floor(z), z.astype(int), np.trunc(z))


@program
def program_22(np):
    z = np.zeros((5, 5))
    z += np.arange(5)
    return z


@program
def program_23(np):
    def g():
        for x in range(10):
            yield x

    return np.fromiter(g(), dtype=float, count=-1)


@program
def program_24(np):
    return np.linspace(0, 1, 11, endpoint=False)[1:]


@program
def program_25(np):
    z = np.array([3, 1, 2])
    z.sort()
    return z


@program
def program_26(np):
    return int(np.add.reduce(np.arange(10)))


@program
def program_27(np):
    return (np.allclose([1, 2], [1, 2.0]), np.array_equal([1], [1]))


@program
def program_28(np):
    z = np.zeros(10)
    z.flags.writeable = False
    z[0] = 1


@program
def program_29(np):
    z = np.arange(20.0).reshape(10, 2)
    x, y = z[:, 0], z[:, 1]
    r = np.sqrt(x**2 + y**2)
    th = np.arctan2(y, x)
    return (r, th)


@program
def program_30(np):
    z = np.array([1.0, 9, 2])
    z[z.argmax()] = 0
    return z


@program
def program_31(np):
    x = np.arange(8)
    y = x + 0.5
    c = 1.0 / np.subtract.outer(x, y)
    return round(float(np.linalg.det(c)), 6)


@program
def program_32(np):
    return [(np.iinfo(d).min, np.iinfo(d).max) for d in (np.int8, np.int32, np.int64)] + [float(np.finfo(np.float32).eps)]


@program
def program_33(np):
    z = np.arange(100)
    v = 33.3
    return (np.abs(z - v)).argmin()


@program
def program_34(np):
    z = np.array([[1.0, 2], [3, 4], [5, 7]])
    x, y = np.atleast_2d(z[:, 0], z[:, 1])
    return np.sqrt((x - x.T) ** 2 + (y - y.T) ** 2)


@program
def program_35(np):
    z = np.arange(10, dtype=np.float32)
    z = z.astype(np.int32, copy=False)
    return z


@program
def program_36(np):
    z = np.arange(9).reshape(3, 3)
    return [(i, int(v)) for i, v in np.ndenumerate(z)]


@program
def program_37(np):
    z = np.zeros((3, 3))
    np.put(z, [0, 4], 1)
    return z


@program
def program_38(np):
    x = np.arange(6.0).reshape(2, 3)
    return x - x.mean(axis=1, keepdims=True)


@program
def program_39(np):
    z = np.array([[3, 1], [1, 2], [2, 0]])
    return z[z[:, 1].argsort()]


@program
def program_40(np):
    z = np.array([[0, 1], [0, 2]])
    return (~z.any(axis=0)).any()


@program
def program_41(np):
    z = np.ones(10)
    i = np.array([1, 1, 2, 3])
    z += np.bincount(i, minlength=len(z))
    np.add.at(z, i, 1)
    return z


@program
def program_42(np):
    return np.bincount([1, 3, 9, 3, 4, 1], np.array([1, 2, 3, 4, 5, 6.0]))


@program
def program_43(np):
    a = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    return a.sum(axis=(-2, -1))


@program
def program_44(np):
    a = np.arange(9.0).reshape(3, 3)
    a[[0, 1]] = a[[1, 0]]
    return a


@program
def program_45(np):
    z = np.array([1, 2, 3, 4, 5])
    nz = 3
    z0 = np.zeros(len(z) + (len(z) - 1) * nz)
    z0[:: nz + 1] = z
    return z0


@program
def program_46(np):
    a = np.ones((5, 5, 3))
    b = 2 * np.ones((5, 5))
    return (a * b[:, :, None]).sum()


@program
def program_47(np):
    def moving(a, n=3):
        r = np.cumsum(a, dtype=float)
        r[n:] = r[n:] - r[:-n]
        return r[n - 1 :] / n

    return moving(np.arange(20))


@program
def program_48(np):
    z = np.array([True, False])
    np.logical_not(z, out=z)
    return z


@program
def program_49(np):
    z = np.arange(3.0)
    np.negative(z, out=z)
    return z


@program
def program_50(np):
    z = np.arange(1, 15, dtype=np.uint8)
    return z[:3] * 200


@program
def program_51(np):
    u, s, vh = np.linalg.svd(np.array([[1.0, 2], [3, 4], [5, 6]]))
    return (s.shape, int(np.sum(s > 1e-10)))


@program
def program_52(np):
    return np.bincount([1, 2, 1]).argmax()


@program
def program_53(np):
    z = np.arange(100)
    return z[np.argpartition(-z, 5)[:5]].sum()


@program
def program_54(np):
    x = np.array([[1, 2], [3, 4]])
    y = x
    y[0] = 9
    return x


@program
def program_55(np):
    a = np.arange(3)
    b = a[1:]
    b[0] = 99
    return a


@program
def program_56(np):
    a = np.arange(6).reshape(2, 3).T
    return (a.flags["C_CONTIGUOUS"], a.flags.f_contiguous, a.strides, a.nbytes, a.itemsize, a.size, a.ndim)


@program
def program_57(np):
    return [float(x) for x in np.array([1.5, 2.5])]


@program
def program_58(np):
    a = np.array([1, 2, 3])
    a[1:] += a[:-1]
    return a


@program
def program_59(np):
    a = np.arange(5.0)
    a[0], a[1] = a[1], a[0]
    return a


@program
def program_60(np):
    return f"{np.float64(3.14159):.2f} {np.array([1, 2, 3])} {np.mean([1, 2, 3.5])}"


@program
def program_61(np):
    a = np.arange(12).reshape(3, 4)
    return (a[1, 2], a[-1], a[:, 1], a[1:, ::2], a[..., 0], a[None].shape, a[[0, 2], [1, 3]], a[a > 5], a[np.ix_([0, 2], [1, 3])])


@program
def program_62(np):
    a = np.zeros((2, 3, 4))
    return (a[0, :, [1, 2]].shape, a[:, 0, [1, 2]].shape, a[[0, 1], :, [1, 2]].shape, a[0, ..., [0, 1, 1]].shape)


@program
def program_63(np):
    a = np.arange(5)
    a[[1, 1, 2]] += 1
    return a


@program
def program_64(np):
    a = np.arange(5)
    a[10]


@program
def program_65(np):
    a = np.arange(5)
    a[1.5]


@program
def program_66(np):
    np.zeros((2, 3)) + np.zeros((4,))


@program
def program_67(np):
    np.zeros((2, 3)).reshape(7)


@program
def program_68(np):
    np.zeros(3).sum(axis=2)


@program
def program_69(np):
    np.array([1, 2]) + "a"


@program
def program_70(np):
    bool(np.array([1, 2]))


@program
def program_71(np):
    a = np.array([1, 2])
    a += 1.5


@program
def program_72(np):
    int(np.array([1, 2]))


@program
def program_73(np):
    np.zeros(3, dtype="nope")


@program
def program_74(np):
    np.concatenate([np.zeros((2, 2)), np.zeros((3, 3))])


@program
def program_75(np):
    np.linalg.inv(np.zeros((2, 2)))


@program
def program_76(np):
    np.array([1, 2, 3])[np.array([True, False])]


@program
def program_77(np):
    return (np.array([1, 2, 3]) == None, np.array([1]) == "a", np.array([1, 2]).dtype == "int64")


@program
def program_78(np):
    return (5 in np.arange(6), np.arange(3).tolist(), list(np.arange(3.0)), len(np.zeros((4, 2))))


@program
def program_79(np):
    a = np.arange(4.0)
    b = pickle.loads(pickle.dumps(a))
    c = copy.deepcopy(a)
    a[0] = 9
    return (b, c)


@program
def program_80(np):
    return [
        np.float32(1) + 1,
        (np.float32(1) + np.arange(2)).dtype.name,
        (np.arange(2, dtype=np.float32) * 2.0).dtype.name,
        (np.arange(2) * 2.0).dtype.name,
        (np.arange(2, dtype="int8") + np.int64(1)).dtype.name,
        np.array([1, 2], dtype=np.int8).sum().dtype.name,
    ]


@program
def program_81(np):
    return np.array([1.123456789, 1e-10, 1e10])


@program
def program_82(np):
    return np.array([[1.5, np.nan], [np.inf, -2]])


@program
def program_83(np):
    with np.printoptions(precision=3, suppress=True):
        return str(np.array([1.123456, 1e-5]))


@program
def program_84(np):
    return (
        repr(np.array([1, 2], dtype=np.float32))
        + repr(np.zeros((0, 3)))
        + repr(np.array(5))
        + repr(np.array([True]))
        + repr(np.array([1j, 2.5]))
    )


@program
def program_85(np):
    return str(np.arange(2000)) + repr(np.arange(10000).reshape(100, 100))


@program
def program_86(np):
    return np.where(np.arange(5) > 2, 1, 0).dtype.name


@program
def program_87(np):
    a = np.array([[1, 2], [3, 4]])
    return (
        a @ a,
        a.T,
        a.dot(a),
        np.trace(a),
        a.max(0),
        a.argmin(),
        a.cumsum(),
        a.ravel(),
        a.flatten()[1],
        a.mean(),
        a.var(),
        a.std(ddof=1),
    )


@program
def program_88(np):
    a = np.arange(10)
    a[::2] = -1
    a[::-1][:2] = 7
    a[-2:] = [1, 2]
    return a


@program
def program_89(np):
    return np.vectorize(lambda x, y: x if x > y else y)([1, 5, 2], [3, 3, 3])


@program
def program_90(np):
    return (np.r_[1:4, 0, [5, 6]], np.c_[[1, 2], [3, 4]], np.mgrid[0:2, 0:3], np.ogrid[0:2, 0:3][1], np.s_[1:3])


@program
def program_91(np):
    a = np.arange(4.0).view(np.int64)
    return a.dtype.name


@program
def program_92(np):
    return [
        np.issubdtype(np.float32, np.floating),
        np.issubdtype(np.arange(2).dtype, np.integer),
        isinstance(np.arange(2)[0], np.integer),
        np.result_type(np.int8, np.float32).name,
        np.can_cast("i8", "f8"),
    ]


@program
def program_93(np):
    a = np.eye(3)
    a[np.diag_indices(3)] = 5
    a.flat[1] = 7
    return a


@program
def program_94(np):
    x = np.linspace(0, 1, 5)
    y = x**2
    return (np.trapezoid(y, x), np.interp(0.3, x, y), np.gradient(y, x), np.polyfit(x, y, 2).round(6))


@program
def program_95(np):
    m = np.ma.masked_array([1, 2, 3], mask=[0, 1, 0])
    return (float(m.sum()), float(m.mean()), str(m))


@program
def program_96(np):
    r = np.random.default_rng(0)
    return (r.normal(size=(2, 3)).shape, r.integers(0, 5, 10).max() < 5, r.choice(5, 3, replace=False).shape, r.permutation(5).sum())


@program
def program_97(np):
    return np.einsum("ij,jk->ik", np.eye(2), np.ones((2, 3)))


@program
def program_98(np):
    c = np.array([1 + 2j, 3])
    c.real = 0
    return (c, c.conj(), np.abs(c), np.angle(c))


@program
def program_99(np):
    total = 0
    for row in np.arange(6).reshape(2, 3):
        for v in row:
            total += v
    return int(total)


@program
def program_100(np):
    s = 0.0
    x = np.arange(3.0)
    s += x.sum()
    s += x
    return s


@program
def program_101(np):
    d = {}
    a = np.array([1, 1, 2])
    u, c = np.unique(a, return_counts=True)
    return dict(zip(u.tolist(), c.tolist()))


@program
def program_102(np):
    a = np.arange(6).reshape(2, 3)
    a.shape = (3, 2)
    return (a, a.swapaxes(0, 1), a.repeat(2), a.take([1, 2]), a.clip(1, 3), a.nonzero(), a.compress([1, 0], axis=1))


@program
def program_103(np):
    return (
        max(np.array([3, 5, 1])),
        min(np.array([3, 5, 1])),
        sum(np.array([3, 5, 1])),
        sorted(np.array([3, 5, 1]))[0],
        abs(np.array([-1])),
        round(np.float64(2.567), 1),
        divmod(np.array([7]), 2),
        pow(np.array([2]), 3),
    )


@program
def program_104(np):
    return (
        np.arange(3).__repr__(),
        str(np.int64(5)),
        repr(np.arange(3) * 1.0),
        str(np.array(2.5)),
        str(np.float32(0.1)),
        str(np.float32(1) / 3),
        str(np.bool_(True)),
    )


@program
def program_105(np):
    a = np.ones((2, 2))
    a[0, 0] = np.float32(3)
    a[:, 1] = np.arange(2)
    a[a == 1] = -1
    a[...] = a + 1
    return a


@program
def program_106(np):
    return np.lib.stride_tricks.sliding_window_view(np.arange(5), 3)


@program
def program_107(np):
    it = np.nditer(np.arange(3))
    return [int(x) for x in it]


@program
def program_108(np):
    a = np.arange(6.0).reshape(2, 3)
    np.random.shuffle(a)
    np.random.seed(0)
    return a.sum()


@program
def program_109(np):
    b = io.BytesIO()
    np.save(b, np.arange(3))
    b.seek(0)
    return np.load(b)


@program
def program_110(np):
    b = io.StringIO()
    np.savetxt(b, np.eye(2), fmt="%.1f")
    b.seek(0)
    return np.loadtxt(b)


@program
def game_of_life(np):

    def step(w):
        n = sum((np.roll(np.roll(w, i, 0), j, 1) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)))
        return (n == 3) | w & (n == 2)
    w = np.zeros((8, 8), dtype=bool)
    w[1, 2] = w[2, 3] = w[3, 1] = w[3, 2] = w[3, 3] = True
    for _ in range(20):
        w = step(w)
    return (w.astype(int), np.argwhere(w), w.sum(), np.count_nonzero(w, axis=0))


@program
def kmeans(np):
    pts = np.array([[1.0, 1.1], [0.9, 1.0], [5.0, 5.1], [5.2, 4.9], [9.0, 1.0], [9.1, 0.8], [1.1, 0.9]])
    c = pts[[0, 2, 4]].copy()
    for _ in range(5):
        d = np.linalg.norm(pts[:, np.newaxis] - c, axis=2)
        label = d.argmin(axis=1)
        c = np.array([pts[label == k].mean(axis=0) for k in range(3)])
    return (c.round(3), label, np.bincount(label), {int(k): int((label == k).sum()) for k in np.unique(label)})


@program
def populations(np):
    data = np.array([[1900, 30e3, 4e3, 48300], [1901, 47.2e3, 6.1e3, 48200], [1902, 70.2e3, 9.8e3, 41500], [1903, 77.4e3, 35.2e3, 38200]])
    year, hares, lynxes, carrots = data.T
    pop = data[:, 1:]
    species = ["H", "L", "C"]
    which = np.argmax(pop, axis=1)
    return (
        pop.mean(axis=0), pop.std(axis=0), year[np.argmax(pop, axis=0)], [species[i] for i in which],
        np.any(pop > 50000, axis=1), np.argsort(pop, axis=0)[:2], np.gradient(hares),
        np.corrcoef(np.gradient(hares), lynxes).round(6),
    )


@program
def image_filter(np):
    img = (np.arange(64).reshape(8, 8) * 37 % 256).astype(np.uint8)
    g = img.astype(float)
    pad = np.pad(g, 1, mode="edge")
    blur = sum((pad[i:i + 8, j:j + 8] for i in range(3) for j in range(3))) / 9
    edges = np.abs(np.diff(g, axis=0))[:, :-1] + np.abs(np.diff(g, axis=1))[:-1]
    view = np.lib.stride_tricks.sliding_window_view(g, (3, 3))
    out = np.clip(blur * 1.1, 0, 255).astype(np.uint8)
    return (
        blur.round(4), edges.max(), view.max(axis=(2, 3)), out, 255 - img, img[::2, ::2].dtype, np.rot90(img)[0],
        np.bincount(img.ravel(), minlength=256).max(),
    )


@program
def groupby(np):
    keys = np.array([3, 1, 2, 1, 3, 3, 2])
    vals = np.array([10.0, 20, 30, 40, 50, 60, 70])
    u, inv, cnt = np.unique(keys, return_inverse=True, return_counts=True)
    sums = np.bincount(inv, weights=vals)
    order = np.argsort(keys, kind="stable")
    splits = np.split(vals[order], np.flatnonzero(np.diff(keys[order])) + 1)
    acc = np.zeros(4)
    np.add.at(acc, keys, vals)
    d = {}
    for k, v in zip(keys, vals):
        d.setdefault(int(k), []).append(float(v))
    counts = {}
    for k in keys:
        counts[k] = counts.get(k, 0) + 1
    return (
        u, sums / cnt, [s.tolist() for s in splits], acc, d, sorted(((int(k), c) for k, c in counts.items())),
        np.lexsort((vals, keys)), 3 in keys, len(set(keys.tolist())),
    )


@program
def neural_net(np):
    X = np.array([[0, 0, 1], [0, 1, 1], [1, 0, 1], [1, 1, 1]])
    y = np.array([[0, 1, 1, 0]]).T
    W1 = np.sin(np.arange(12)).reshape(3, 4)
    W2 = np.cos(np.arange(4)).reshape(4, 1)
    sig = lambda z: 1 / (1 + np.exp(-z))
    for it in range(200):
        h = sig(X.dot(W1))
        o = sig(h.dot(W2))
        do = (y - o) * (o * (1 - o))
        dh = do.dot(W2.T) * (h * (1 - h))
        W2 += h.T.dot(do)
        W1 += X.T.dot(dh)
    onehot = np.eye(3)[[0, 2, 1]]
    logits = np.array([[1.0, 2, 3], [1, 1, 1]])
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return (np.round(o, 6), onehot, (e / e.sum(axis=1, keepdims=True)).round(7), -np.log(o[1, 0]).round(6))


@program
def markov(np):
    P = np.array([[0.2, 0.3, 0.5], [0.3, 0.3, 0.4], [0.1, 0.6, 0.3]])
    p = np.full(3, 1 / 3)
    for _ in range(50):
        p = p @ P
    w, v = np.linalg.eig(P.T)
    k = np.argmin(abs(w - 1))
    s = np.real(v[:, k])
    return (p.round(8), (s / s.sum()).round(8), np.linalg.matrix_power(P, 5).round(6), np.allclose(p, s / s.sum()))


@program
def loops_over_elements(np):
    a = np.arange(6).reshape(2, 3)
    total = 0
    for row in a:
        for v in row:
            total += v
    e = [(i, int(v)) for i, v in np.ndenumerate(a)]
    best, at = (-1, None)
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            if a[i, j] > best:
                best, at = (a[i, j], (i, j))
    s = sum(a[0])
    mx = max(a[1])
    so = sorted(a[1], reverse=True)
    acc = 0.0
    for i in range(3):
        acc += a[1, i] * 0.5
    l = list(a[1])
    l.append(9)
    w = [x for x in a.flat if x % 2]
    z = dict(zip(a[0], a[1]))
    return (
        total, e, best, at, s, mx, so, acc, l, w, z[1], z[a[0, 2]], list(map(int, a[0])), np.array(l), any(a[0] > 1),
        all((v >= 0 for v in a[1])), a[0].tolist().index(2), range(a[1, 0])[-1], "x" * a[0, 2], [10, 20, 30][a[0, 1]],
        a[1, 0] in (3, 4), a[1, 0] == 3 and "y", not a[0, 0], -a[0, 1], +a[0, 1], ~a[0, 1], a[0, 1] << 3, 2 ** a[0, 2],
        a[0, 2] ** 2, float(a[1, 2]) / 2, a[1, 2] / a[0, 2], a[1, 2] // a[0, 2], a[1, 2] % 3,
    )


@program
def dtype_tour(np):
    a = np.array([1, 2, 3], dtype=np.float32)
    r = [
        a.dtype, (a * 2).dtype, (a + np.float64(1)).dtype, (a + 1j).dtype, np.array([1, 2.5, 3]).dtype,
        np.array([True, 2]).dtype, a.astype(int).dtype, np.result_type(np.int8, np.float32), np.promote_types("i4", "f4"),
        np.can_cast(np.int64, np.float32), np.iinfo(np.int16).max, np.finfo(np.float32).eps,
        np.array([300, -1]).astype(np.uint8), np.array([1.7, -1.7]).astype(int), np.issubdtype(np.float32, np.floating),
        isinstance(a[0], np.float32), isinstance(a[0], np.floating), np.dtype("float32").itemsize, a.nbytes,
        np.int8(100) * 2 == 200, np.uint8(200) // 7, np.float32(0.1) + np.float32(0.2), np.bool_(True) & np.bool_(False),
        7 // np.int64(2), -7 % np.array([2, 3]), np.int64(7) / 2, divmod(np.int64(7), 2), np.float64(2) ** 0.5,
        round(np.float64(2.567), 2), int(np.ceil(2.1)), np.floor(-1.5), np.sign(-3), abs(np.int64(-3)), hash(np.int64(3)) == 3,
        np.float64(1.5).is_integer(), np.float64(0.1).hex(), np.int64(5).bit_count(), np.float64(3).real,
        np.float64(3).conjugate(), np.int64(3).item(),
    ]
    return r


@program
def edit_distance(np):
    a, b = ("kitten", "sitting")
    d = np.zeros((len(a) + 1, len(b) + 1), dtype=int)
    d[:, 0] = np.arange(len(a) + 1)
    d[0] = range(len(b) + 1)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + (a[i - 1] != b[j - 1]))
    return (d, d[-1, -1], int(d[-1][-1]))


@program
def viterbi(np):
    pi = np.array([0.6, 0.4])
    A = np.array([[0.7, 0.3], [0.4, 0.6]])
    B = np.array([[0.1, 0.4, 0.5], [0.6, 0.3, 0.1]])
    obs = [0, 1, 2, 2, 0]
    T = np.zeros((2, len(obs)))
    P = np.zeros((2, len(obs)), dtype=int)
    T[:, 0] = np.log(pi * B[:, obs[0]])
    for t in range(1, len(obs)):
        for s in range(2):
            trans = T[:, t - 1] + np.log(A[:, s])
            P[s, t] = np.argmax(trans)
            T[s, t] = trans[P[s, t]] + np.log(B[s, obs[t]])
    path = [np.argmax(T[:, -1])]
    for t in range(len(obs) - 1, 0, -1):
        path.insert(0, P[path[0], t])
    return ([int(p) for p in path], T.round(6), np.array(path))


@program
def simplex_gd(np):

    def f(x):
        return (x[0] - 1) ** 2 + 2 * (x[1] + 2) ** 2

    def grad(x, h=1e-05):
        g = np.zeros_like(x)
        for i in range(len(x)):
            e = np.zeros_like(x)
            e[i] = h
            g[i] = (f(x + e) - f(x - e)) / (2 * h)
        return g
    x = np.array([5.0, 5.0])
    hist = []
    while True:
        g = grad(x)
        x = x - 0.1 * g
        hist.append(f(x))
        if np.linalg.norm(g) < 0.0001 or len(hist) > 500:
            break
    return (x.round(5), len(hist), np.all(np.diff(hist) <= 0), min(hist) == hist[-1], np.array(hist)[:3].round(6))


@program
def rolling(np):
    x = np.array([1.0, 3, 2, 5, 4, 6, 8, 7])
    c = np.cumsum(np.insert(x, 0, 0))
    ma = (c[3:] - c[:-3]) / 3
    w = np.lib.stride_tricks.sliding_window_view(x, 3)
    ewm = [x[0]]
    for v in x[1:]:
        ewm.append(0.5 * v + 0.5 * ewm[-1])
    dd = (x / np.maximum.accumulate(x) - 1).min()
    return (
        ma, np.allclose(w.mean(1), ma), np.array(ewm), dd, np.diff(x, n=2), np.ediff1d(x),
        np.where(np.diff(np.sign(np.diff(x))) < 0)[0] + 1, np.interp([0.5, 2.5], np.arange(8), x), np.trapezoid(x),
        np.delete(x, [0, 1]), np.append(x, 9), np.flip(x)[:2], np.resize(x, 3),
    )


@program
def scalars_as_keys(np):
    a = np.array([3, 1, 3, 2, 1, 3])
    from collections import Counter, defaultdict
    c = Counter(a.tolist())
    d = defaultdict(int)
    for x in a:
        d[x] += 1
    s = {x for x in a}
    st = set(np.array([1.5, 2.5, 1.5]))
    lut = {np.int64(3): "c", 1: "a", 2: "b"}
    x = np.array([1.5, 2.5])
    m = x.max()
    n = m
    m += 1
    i = np.int64(5)
    i += 2
    i *= 2
    f = np.float32(1.5)
    g = f
    f -= 0.5
    best = np.inf
    for v in x:
        if v < best:
            best = v
    return (
        c.most_common(1), d[3], len(s), len(st), [lut[k] for k in a], m, n, i, type(i) is type(np.int64(1)), f, g, best,
        float(best), np.isscalar(best), sorted(s), max(d, key=d.get), a[d[1]], [7, 8, 9][a[3]], np.int64(3) == 3,
        hash(np.float64(2.0)) == hash(2), round(m), int(m), m // 1, divmod(i, 4), i % 4, -i, abs(-m), pow(np.int64(2), 5),
        bool(np.bool_(False)), m > n, not m > n, m > n and "yes", np.float64(1e+300) * 10000000000.0, np.int64(7) // 2,
        np.float64(7) // 2, np.float64(-7) % 3, np.int64(-7) % 3,
    )


@program
def reductions_tour(np):
    a = np.arange(24).reshape(2, 3, 4) * 1.5
    return (
        a.sum(), a.sum(0), a.sum(axis=(0, 2)), a.mean(axis=-1, keepdims=True), a.max(1), a.argmax(2), a.cumsum(1)[1],
        a.prod(0)[0], np.all(a >= 0), np.any(a > 30, axis=0), a.ptp(0) if hasattr(a, "ptp") else np.ptp(a, 0), a.std(),
        a.var(2), np.median(a, axis=1), a.min(initial=-5), a.sum(where=a > 10), np.nansum(a),
        np.logical_and.reduce(a > -1, axis=None), np.maximum.reduce(a, axis=2), np.trace(a[0]), np.diagonal(a, 0, 1, 2),
        np.amax(a), a.T.shape, np.moveaxis(a, 0, -1).shape, a.swapaxes(0, 1).shape, np.einsum("ijk->ki", a).shape,
        np.count_nonzero(a > 3), a[..., ::-1][0, 0], a[:, 1, ::2], a[1, ..., 0], a[a > 33], a.ravel("F")[:4],
        a.transpose(2, 0, 1).shape, a.squeeze().shape, a[:, :, None].shape, a.reshape(-1, 4).shape, a.flatten()[5], a.item(3),
        a.take([0, 5]), a.nonzero()[0][:3], a.clip(3, 9)[0, 1], a.round(0)[0, 0], a.repeat(2, 0).shape,
        np.array_equal(a, a.copy()), a.compress([1, 0], axis=0).shape, a.any(), a.dot(np.ones(4)), a.astype("i4").dtype,
        a.view().base is a, a.tolist()[1][2],
    )


@program
def views_and_copies(np):
    a = np.arange(12).reshape(3, 4)
    x = np.arange(10)
    y = x[1:3]
    z = x[[1, 2]]
    c = x.view()
    s = a[:, 1:3]
    r = x.reshape(2, 5)
    y[...] = [10, 11]
    c[0] = 99
    return (
        y.base is x, z.base is None, c.base is x, c is x, r.base is x, s.base is a, x, np.shares_memory(x, y),
        np.may_share_memory(x, z), x[::-1].base is x, x.T.base is x, y[:1].base is x, a.ravel().flags.owndata,
        a.flatten().base is None, np.asarray(x) is x, np.array(x) is x,
    )


@program
def knapsack_and_floyd(np):
    w, v, W = ([1, 3, 4, 5], [1, 4, 5, 7], 7)
    K = np.zeros((5, W + 1), dtype=np.int64)
    for i in range(1, 5):
        for j in range(W + 1):
            K[i, j] = K[i - 1, j] if w[i - 1] > j else max(K[i - 1, j], K[i - 1, j - w[i - 1]] + v[i - 1])
    D = np.full((4, 4), np.inf)
    np.fill_diagonal(D, 0)
    for i, j, c in [(0, 1, 3), (1, 2, -2), (2, 3, 2), (3, 0, 1), (0, 2, 5)]:
        D[i, j] = c
    for k in range(4):
        D = np.minimum(D, D[:, k, None] + D[k])
    return (K[-1], D, np.isinf(D).any(), K.dtype, str(K[4, 7]), "%d items" % K[4, 7], f"{K[4, 7]:>5}|{D[0, 1]:.2f}")


@program
def whole_numbers_of_any_size(np):
    r = []
    for x in (np.float64(1.5), np.array([1.5, -2.0]), np.array([1.0], dtype=np.float32), np.array([1j]), np.array([1, 2]), np.uint8(7)):
        for n in (-(2**511), 2**63, 2**64, 2**53 + 1):
            r += [x >= n, x == n, n < x]
            r += [x + n, x * n, np.maximum(x, n)] if x.dtype.kind in "fc" else []
    return r, np.full(2, 2**64 + 1, dtype=float)


@program
def whole_numbers_of_any_size_among_others(np):
    even = np.arange(3) % 2 == 0
    r = [np.array([2**70, 0], dtype=bool), np.array([2**70, 2**63], dtype=complex), np.isclose(np.ones(2), 2**70)]
    for d in (float, "f4", complex):
        for n in (2**70, -(2**70), 2**63, 2**64 - 1):
            x = np.ones((3, 3), dtype=d)
            np.put(x, [0], [n])
            np.putmask(x[1], even, n)
            np.place(x[2], even, [n])
            y = np.zeros((2, 2), dtype=d)
            np.fill_diagonal(y, n)
            np.add.at(y, ([0], [1]), n)
            r += [x, y, np.pad(x, 1, constant_values=n), np.insert(x[0], 1, n), np.sum(x, initial=n), np.select([even], [x[1]], n)]
            r += [np.clip(x, 0, n), np.clip(x, n, None), np.max(x, initial=n)] if d is not complex else []
            r.append(np.nan_to_num(np.array([np.nan, 1], dtype=d), nan=n))
    return r, np.result_type(2**63), np.hypot(2**63, 1), np.true_divide(2**63, 2)


@program
def drawn_up_to_the_ends_of_their_dtype(np):
    r = np.random.default_rng(3)
    drawn = [r.integers(low, high, 1000, endpoint=closed) for low, high, closed in (
        (0, 2**63, False), (-(2**63), 2**63, False), (-(2**63), 2**63 - 1, True), (2**63 - 3, 2**63, False), (5, 2**63 - 1, True))]
    return [(x.dtype, x.min() >= 0, x.max() > 2**62, len(np.unique(x)) > 500) for x in drawn], np.unique(drawn[3])


@program
def masks_without_elements(np):
    r = []
    for shape, mask in (((1,), (0,)), ((2, 3), (0,)), ((2, 3), (0, 0)), ((1, 3), (1, 0)), ((2, 1), (0, 1)), ((2, 3, 4), (0, 3))):
        x = np.ones(shape)
        found = x[np.zeros(mask, dtype=bool)]
        x[np.zeros(mask, dtype=bool)] = 5
        r += [found.shape, x.sum()]
    return r, np.ones((4, 2))[:, np.zeros(0, dtype=bool)].shape


@program
def printed_polynomials(np):
    P = np.polynomial.Polynomial
    r = []
    for c in ([1, 2, 3], [0.1 + 0.2, -1e-9, 1e9, -3], [1], [0, 0, 1e-3], [1j, 2 + 1j, -3], [np.nan, np.inf, -np.inf], list(range(1, 25))):
        for options in ({}, {"domain": [0, 1]}, {"domain": [0, 4], "window": [0, 1]}, {"domain": [-2, 2]}, {"symbol": "z"}):
            p = P(c, **options)
            r += [str(p), f"{p:ascii}", format(p, "unicode")]
    np.polynomial.set_default_printstyle("ascii")
    r.append(str(P([1, 2, 3])))
    np.polynomial.set_default_printstyle("unicode")
    for options in ({"precision": 3}, {"linewidth": 20}, {"floatmode": "fixed", "precision": 2, "sign": "+"}):
        with np.printoptions(**options):
            r.append(str(P([1.23456, 2.3456789, 3, 4])))
    for wrong in (lambda: format(P([1]), "x"), lambda: np.polynomial.set_default_printstyle("a")):
        try:
            wrong()
        except ValueError as e:
            r.append(str(e))
    return r


@program
def numbers_from_texts_and_limits(np):
    r = [np.float64("nan"), np.float32("1.5"), np.int64("5"), np.float64(b"2"), np.complex128("1+2j"), np.float64("-1e3"), np.uint8("7")]
    r += [bool(np.bool_("")), bool(np.bool_("a"))]
    for wrong in (lambda: np.float64("x"), lambda: np.int64("1.5"), lambda: np.take([1, 2], 5), lambda: np.ones((2, 2)).transpose(0, 0),
                  lambda: np.linalg.solve(np.eye(3), np.ones(4)), lambda: np.linalg.solve(np.eye(3), np.ones((4, 2)))):
        try:
            wrong()
        except (ValueError, IndexError) as e:
            r.append(str(e))
    r += [str(np.finfo(d)) for d in ("f4", "f8", "c8")] + [str(np.iinfo(d)) for d in ("i1", "u2", "i8")]
    r += [repr(np.linspace(0, 1, n, retstep=True)[1]) for n in (0, 1, 5)] + [np.linspace([0, 1], 2, 3, retstep=True)]
    return r, np.trim_zeros([0, 1, 0]), np.trim_zeros((0, 1, 0)), np.trim_zeros(np.array([0, 1, 0])), np.trim_zeros([0, 0])


@program
def slopes(np):
    x = np.array([[1.0, 4.0, 9.0, 16.0], [2.0, 3.0, 5.0, 7.0]])
    r = [np.gradient(x), np.gradient(x, 0.5, axis=1), np.gradient(x, 2.0, 0.1), np.gradient(x[0], edge_order=2)]
    r.append(np.gradient(x[:, ::-1], axis=1))
    return r, np.gradient(x[0, :2]), np.gradient(x.astype("f2"), axis=1), np.gradient(np.arange(5)), np.gradient(x.T, axis=0)


@program
def formats_and_addresses(np):
    x = (np.float32(0.1), np.float16(0.1), np.float64(0.1) + 0.2, np.int8(5), np.bool_(True), np.complex64(1.1j))
    r = [f"{v}|{v!s}|{v!r}" for v in x]
    r += [f"{np.array(0.1, dtype='f4')}", f"{np.array(3)}", f"{np.array([0.5, 1])}", f"{np.float32(0.1):.3f}", f"{np.uint8(7):03d}"]
    a = np.arange(6.0)
    return r, [np.dtype(d).byteorder for d in ("?", "i1", "u1", "i2", "f8")], a[2:].ctypes.data - a.ctypes.data, a.ctypes.shape[0]


@program
def places_out_of_bounds(np):
    a, r = np.arange(6).reshape(2, 3), []
    for wrong in (lambda: np.put_along_axis(a, np.array([[9]]), 1, 1), lambda: np.put_along_axis(a, np.array([[-4]]), 1, 1),
                  lambda: np.take_along_axis(a, np.array([[9]]), 1), lambda: np.put(a, [1, 9], 1), lambda: np.put(a, -7, 1),
                  lambda: np.unravel_index([1, 10], (2, 2)), lambda: np.take(a, 9), lambda: np.delete(a, 9), lambda: np.stack([]),
                  lambda: np.dot(a, a), lambda: np.swapaxes(a, 0, 5), lambda: np.moveaxis(a, 0, 9), lambda: np.moveaxis(a, -3, 0),
                  lambda: np.broadcast_to(np.ones(3), (2, 2))):
        try:
            r.append(wrong())
        except (ValueError, IndexError) as e:
            r.append(str(e))
    np.put_along_axis(a, np.array([[-1]]), 7, 1)
    return r, a


@program
def words_of_booleans_and_products(np):
    r = []
    for wrong in (lambda: -np.array([True]), lambda: np.array([True]) - np.array([False]),
                  lambda: np.inner(np.ones((2, 3)), np.ones((2, 2)))):
        try:
            r.append(wrong())
        except (ValueError, TypeError) as e:
            r.append(str(e))
    return r
