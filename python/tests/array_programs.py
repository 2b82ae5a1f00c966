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
