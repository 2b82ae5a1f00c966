"""uint16, uint32 and uint64: what torch has of them, as torch has it, and the arithmetic of unsigned integers beyond that, as NumPy's."""
from __future__ import annotations

import copy
import itertools
import operator
import pickle

import numpy
import pytest
from peer import peer

import arete
from arete import numpy as np

torch = peer()

NAMES = ["uint16", "uint32", "uint64"]
OTHERS = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
          "float8_e4m3fn", *NAMES]
TOP = {"uint16": 2**16 - 1, "uint32": 2**32 - 1, "uint64": 2**64 - 1}


def own(name):
    return getattr(arete, name)


def numbers(name, n=64):
    """Numbers of all sizes, the largest and the smallest among them."""
    rng = numpy.random.default_rng(3)
    bits = rng.integers(0, 8 * numpy.dtype(name).itemsize + 1, n)
    a = numpy.array([int(rng.integers(0, 2**63)) * 2 + 1 >> (64 - int(b)) if b else 0 for b in bits], dtype=name)
    a[:3] = 0, 1, TOP[name]
    return a


def outcome(function, *args):
    try:
        return function(*args), None
    except (RuntimeError, TypeError, ValueError, NotImplementedError, OverflowError) as e:
        return None, e


@pytest.mark.parametrize("name", NAMES)
def test_what_the_dtype_is(name):
    t, d = own(name), getattr(torch, name)
    assert repr(t) == f"arete.{name}" and t.itemsize == d.itemsize and not t.is_signed and not t.is_floating_point
    assert (arete.iinfo(t).max, arete.iinfo(t).min, arete.iinfo(t).bits) == (torch.iinfo(d).max, 0, 8 * d.itemsize)
    assert arete.zeros(1, dtype=t).type() == torch.zeros(1, dtype=d).type()


@pytest.mark.parametrize("name", NAMES)
def test_promotion(name):
    for other in OTHERS:
        for a, b in ((name, other), (other, name)):
            expected, error = outcome(torch.promote_types, getattr(torch, a), getattr(torch, b))
            found, mine = outcome(arete.promote_types, own(a), own(b))
            assert str(found).rpartition(".")[2] == str(expected).rpartition(".")[2], (a, b)
            if error:
                assert str(mine).startswith(str(error).partition(", attempted")[0])
    t = arete.ones(2, dtype=own(name))
    assert arete.result_type(t, 3) is own(name) and arete.result_type(t, 2.5) is arete.float32
    assert (t * arete.tensor(2)).dtype is own(name)  # a number in a tensor only says of what kind it is
    with pytest.raises(TypeError, match="Promotion for uint16, uint32, uint64 types is not supported"):
        arete.cat([t, arete.ones(2, dtype=arete.int64)])
    for cast in ((t.dtype, arete.int64), (arete.int64, t.dtype), (t.dtype, arete.float32)):
        assert arete.can_cast(*cast)
    assert not arete.can_cast(arete.float32, t.dtype)


# Calls that torch's CPU library has for these dtypes: of tensors x and y, a matrix m and indices i.
CALLS = """x * y; x * 3; x == y; x != 3; x & y; x | y; x ^ y; x / y; x / 3; torch.sqrt(x); torch.exp(x / 70000.0)
x + 1.5; x + torch.ones(64)
x.sum(); x.sum(dtype=torch.float64); x.prod(); x.all(); x.any(); m.all(0); m.sum(1)
x[i]; x[2:9:3]; m.t(); m.flip([0]); torch.roll(x, 3); torch.cat([x, y]); torch.stack([x, y]); torch.diag(x[:4]); x.clone(); x.positive()
x.float(); x.double(); x.long(); x.int(); x.to(torch.uint8); x.to(torch.uint16); x.to(torch.uint32); x.to(torch.uint64); x.bool(); x.half()
torch.argsort(x, stable=True); torch.sort(x)[0]; torch.sort(x, descending=True)[0]; torch.unique(y); torch.unique(y, return_counts=True)
torch.unique_consecutive(y); torch.isfinite(x); torch.isnan(x); torch.equal(x, y); torch.allclose(x, x); torch.isclose(x, y)
x.repeat_interleave(2); torch.nn.functional.pad(x, (1, 2)); m.expand(2, 8, 8); torch.kron(x[:3], y[:2]); torch.msort(x); x.view(torch.uint8)
torch.full((2,), 7, dtype=x.dtype); torch.zeros(2, dtype=x.dtype); torch.ones_like(x); torch.full_like(x, 3); x.new_tensor([1, 2])
x.clone().fill_(-1); x.clone().zero_()
torch.tensor([1.5, 2.0]).to(x.dtype); torch.tensor([-1.0]).to(x.dtype); torch.tensor([-1]).to(x.dtype)
x.tolist(); x[2].item(); int(x[1]); bool(x[0]); str(x); str(m[0]); repr(x[:3]); float(x[3])
torch.tensor([[1, 2], [3, 4]], dtype=x.dtype); torch.as_tensor([5], dtype=x.dtype); torch.empty(3, dtype=x.dtype).shape
torch.arange(3).to(x.dtype); torch.meshgrid(x[:2], y[:3], indexing="ij"); x.unsqueeze(0).repeat(2, 1); torch.where(x == y)[0]
torch.tensor(70000, dtype=torch.uint16); torch.tensor([-1.5], dtype=x.dtype); torch.full((1,), 2**64 - 1, dtype=x.dtype)"""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("call", [c.strip() for line in CALLS.splitlines() for c in line.split(";")])
def test_as_torch(call, name):
    def run(library):
        a = numbers(name)
        x = library.from_numpy(a.copy())
        y = library.from_numpy(numpy.roll(a, 1) // 2 * (numpy.arange(64, dtype=name) % 2))
        names = {"torch": library, "x": x, "y": y, "m": x.reshape(8, 8), "i": library.tensor([3, 0, 3, 2])}
        return eval(call, names)  # noqa: S307

    expected, error = outcome(run, torch)
    found, mine = outcome(run, arete)
    if error is not None:
        assert mine is not None, f"torch: {error}"
        return
    assert mine is None, repr(mine)
    for e, f in zip(*(v if isinstance(v, (tuple, list)) and v and hasattr(v[0], "dtype") else [v] for v in (expected, found))):
        if not isinstance(e, torch.Tensor):
            assert f == e or str(f).replace("arete.", "torch.") == str(e)
            continue
        assert str(f.dtype)[6:] == str(e.dtype)[6:] and tuple(f.shape) == tuple(e.shape)
        numpy.testing.assert_allclose(f.double().numpy() if f.dtype.is_floating_point else f.numpy(),
                                      e.double().numpy() if e.dtype.is_floating_point else e.numpy(), rtol=1e-6)


BINARY = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.and_, operator.or_, operator.xor,
          operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


@pytest.mark.parametrize("name", NAMES)
def test_arithmetic_that_torch_has_not(name):
    """Results wrap around in the dtype, and comparisons, quotients and orders know numbers that no signed integer of the size has."""
    a, b = numbers(name), numpy.roll(numbers(name), 7)
    b[b == 0] = 1
    x, y = arete.from_numpy(a), arete.from_numpy(b)
    for f in BINARY:
        assert numpy.array_equal(f(x, y).numpy(), f(a, b)), f
        # with numbers, vectors that are not full, and steps
        assert numpy.array_equal(f(x[:7], 5).numpy(), f(a[:7], a.dtype.type(5))), f
        assert numpy.array_equal(f(x[::3], y[::3]).numpy(), f(a[::3], b[::3])), f
    bits = 8 * a.dtype.itemsize
    shift = numpy.arange(64, dtype=name) % (bits - 1)
    for f in (operator.lshift, operator.rshift):
        assert numpy.array_equal(f(x, arete.from_numpy(shift)).numpy(), f(a, shift)), f
    assert (x >> bits).tolist() == [0] * 64 and (x << bits).tolist() == [0] * 64
    for mine, theirs in ((arete.maximum(x, y), numpy.maximum(a, b)), (arete.minimum(x, y), numpy.minimum(a, b)), (~x, ~a), (-x, -a),
                         (x.abs(), a), (x.sign(), numpy.sign(a)), (x.max(), a.max()), (x.min(), a.min()), (x.amax(), a.max()),
                         (x.reshape(8, 8).amax(0), a.reshape(8, 8).max(0)), (x.reshape(8, 8).amin(1), a.reshape(8, 8).min(1)),
                         (x.argmax(), a.argmax()), (x.argmin(), a.argmin()), (arete.gcd(x, y), numpy.gcd(a, b)), (x.pow(3), a**3),
                         (x.cummax(0)[0], numpy.maximum.accumulate(a)), (x.cumsum(0, dtype=x.dtype), a.cumsum(dtype=name)),
                         (x.sum(dtype=x.dtype), a.sum(dtype=name)), (x.clamp(3, 1000), a.clip(3, 1000)),
                         (x.topk(5)[0], numpy.sort(a)[::-1][:5]), (arete.where(x > y, x, y), numpy.maximum(a, b)),
                         (x.index_select(0, arete.tensor([2, 1])), a[[2, 1]]), (x.masked_fill(x > 9, 7), numpy.where(a > 9, 7, a)),
                         (x.reshape(8, 8) @ y.reshape(8, 8), a.reshape(8, 8) @ b.reshape(8, 8)),
                         (arete.eye(3, dtype=x.dtype), numpy.eye(3, dtype=name)),
                         (arete.arange(5, dtype=x.dtype), numpy.arange(5, dtype=name)),
                         (x.reshape(8, 8).tril(), numpy.tril(a.reshape(8, 8))),
                         (x.scatter_add(0, arete.zeros(64, dtype=arete.int64), x)[0], a[0] + a.sum(dtype=name))):
        assert numpy.array_equal(mine.numpy(), theirs), (mine, theirs)
        assert mine.numpy().dtype == theirs.dtype
    # many rows at once, where sums and extrema are taken by columns
    wide = numpy.resize(a, (37, 129))
    t = arete.from_numpy(wide)
    for dim in (0, 1):
        assert numpy.array_equal(t.amax(dim).numpy(), wide.max(dim)) and numpy.array_equal(t.amin(dim).numpy(), wide.min(dim))
        assert numpy.array_equal(t.sum(dim, dtype=t.dtype).numpy(), wide.sum(dim, dtype=name))
        assert numpy.array_equal(t.sort(dim, descending=True)[0].numpy(), -numpy.sort(-wide.astype(object), dim))


def test_uint64_numbers():
    top = 2**64 - 1
    t = arete.tensor([top, 5], dtype=arete.uint64)
    assert t.tolist() == [top, 5] and t[0].item() == top and int(t[0]) == top
    assert repr(t) == "tensor([18446744073709551615,                    5], dtype=arete.uint64)"
    t[1] = 2**63
    assert t.tolist() == [top, 2**63] and (t == 2**63).tolist() == [False, True] and (t > 2**63 - 1).all()
    assert t.float().tolist() == [float(2**64), float(2**63)] and arete.full((1,), 2**63, dtype=arete.uint64).item() == 2**63
    assert (t * 3).tolist() == [top * 3 % 2**64, 3 * 2**63 % 2**64]
    assert arete.tensor([0.0, -1.0, 1e30, float("nan"), 2.0**63, -1e30]).to(arete.uint64).tolist() == [0, top, top, 0, 2**63, 2**63]
    for bad in (lambda: arete.tensor([-1], dtype=arete.uint64), lambda: arete.tensor([2**64], dtype=arete.uint64)):
        with pytest.raises(OverflowError):
            bad()
    for bad in (lambda: arete.tensor([2**63]), lambda: arete.tensor([1]).fill_(2**63), lambda: arete.tensor([1]) + 2**63,
                lambda: arete.full((1,), 2**64 - 1, dtype=arete.uint32), lambda: arete.arange(2**63),
                lambda: arete.tensor([70000], dtype=arete.uint16), lambda: t.fill_(-1.5)):
        with pytest.raises((ValueError, RuntimeError, OverflowError), match="overflow|too large"):
            bad()


@pytest.mark.parametrize("name", NAMES)
def test_exchange(name, tmp_path):
    a = numbers(name)
    t = arete.from_numpy(a)
    assert t.data_ptr() == a.ctypes.data and t.numpy().ctypes.data == a.ctypes.data and t.numpy().dtype == name
    assert memoryview(t).format == memoryview(a).format and numpy.from_dlpack(t).dtype == name
    assert torch.from_dlpack(t).dtype is getattr(torch, name) and arete.from_dlpack(torch.from_numpy(a)).dtype is own(name)
    assert arete.tensor([a[3], a[2]]).dtype is own(name) and arete.tensor(a[2]).item() == int(a[2])
    arete.save({"t": t, "half": t[::2]}, tmp_path / "t.pt")
    theirs = torch.load(tmp_path / "t.pt", weights_only=True)
    assert theirs["t"].numpy().dtype == name and numpy.array_equal(theirs["t"].numpy(), a)
    assert numpy.array_equal(theirs["half"].numpy(), a[::2])
    torch.save({"t": torch.from_numpy(a)}, tmp_path / "theirs.pt")
    arete.save({"t": t}, tmp_path / "t.safetensors")
    numpy.save(tmp_path / "t.npy", a)
    for back in (arete.load(tmp_path / "theirs.pt")["t"], arete.load(tmp_path / "t.safetensors")["t"], arete.load(tmp_path / "t.npy"),
                 pickle.loads(pickle.dumps(t)), copy.deepcopy(t)):
        assert back.dtype is own(name) and arete.equal(back, t)


@pytest.mark.parametrize("name", NAMES)
def test_compiled(name):
    """In fused programs unsigned integers wrap as they do from call to call."""
    x, y = arete.from_numpy(numbers(name)), arete.from_numpy(numpy.roll(numbers(name), 3) | 1)

    def steps(x, y):
        z = (x - y) * x // y
        return arete.maximum(z, x) % y, (z > x).sum(), z.amax(), z.to(arete.float64)

    for mine, theirs in zip(arete.compile(steps)(x, y), steps(x, y)):
        assert arete.equal(mine, theirs)


def test_arrays():
    """Whole numbers that int64 has not, and comparisons across signs, as NumPy has them."""
    for given in ([2**63], [2**64 - 1, 0], 2**63, [2**63, -1], [[2**63 + 1]]):
        assert np.array(given).dtype == numpy.array(given).dtype and numpy.array_equal(numpy.asarray(np.array(given)), numpy.array(given))
    a, b = numpy.array([2**63, 5, 0, 2**64 - 1], "uint64"), numpy.array([-1, 5, -(2**63), 7])
    for f, (p, q) in itertools.product(BINARY[8:], ((a, b), (b, a), (a, b.astype("int32")))):
        assert numpy.array_equal(numpy.asarray(f(np.array(p), np.array(q))), f(p, q)), f
    assert np.array(a).sum() == a.sum() and np.uint64(7).dtype == "uint64" and np.iinfo("uint64").max == 2**64 - 1
    for name in ("uint", "uintp", "uintc", "ushort", "ulong", "ulonglong", "H", "I", "L", "Q", "u2", "u4", "u8"):
        assert np.dtype(name) == numpy.dtype(name)
    with pytest.raises(OverflowError):
        np.array([1], "uint16") + 70000
    for name in ("uint8", *NAMES):
        c = numpy.array([3, numpy.iinfo(name).max, 5], name)
        assert np.array(c).sum().dtype == np.array(c).sum(axis=0).dtype == np.array(c).sum(keepdims=True).dtype == "uint64"
        assert int(np.array(c).sum()) == int(c.sum()) and int(np.array(c)[1]) == int(c[1]) == np.array(c)[1].__index__()
        assert hex(np.array(c)[1]) == hex(int(c[1])) and f"{np.array(c)[1]:d}" == f"{c[1]:d}"
        assert np.array(c).tolist() == c.tolist() and np.array(c).astype("float64").tolist() == c.astype("float64").tolist()
        assert (np.array(c) + np.array([1, 1, 1])).tolist() == (c + numpy.array([1, 1, 1])).tolist()
