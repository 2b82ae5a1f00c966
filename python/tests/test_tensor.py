"""Tensors as Python objects: attributes, numbers, indexing, conversions, identity, pickles, errors."""
import copy
import gc
import pickle
import threading
import weakref

import numpy as np
import pytest

import arete as torch


def test_attributes():
    x = torch.zeros(2, 3, dtype=torch.float64)
    assert x.shape == (2, 3) and isinstance(x.shape, torch.Size) and x.shape.numel() == 6
    assert x.size() == x.shape and x.size(-1) == 3 and x.stride() == (3, 1) and x.stride(0) == 3
    assert x.dtype is torch.float64 is torch.double and x.device == torch.device("cpu")
    assert (x.ndim, x.dim(), x.numel(), x.nbytes, x.itemsize) == (2, 2, 6, 48, 8)
    assert x.is_leaf and not x.requires_grad and x.grad is None and x.grad_fn is None
    assert x.T.shape == (3, 2) and x.mT.shape == (3, 2) and not x.is_cuda and x.is_cpu
    assert len(x) == 2 and [r.shape for r in x] == [(3,), (3,)]
    assert x.shape[1:] == (3,) and isinstance(x.shape[1:], torch.Size) and repr(x.shape) == "arete.Size([2, 3])"


def test_numbers_and_operators():
    x = torch.tensor([1.0, 2.0])
    for result, expected in [
        (x + 1, [2, 3]), (1 + x, [2, 3]), (1 - x, [0, -1]), (2 / x, [2, 1]), (x**2, [1, 4]), (2**x, [2, 4]),
        (-x, [-1, -2]), (abs(-x), [1, 2]), (x // 2, [0, 1]), (x % 2, [1, 0]), (x * np.float64(3), [3, 6]),
        (x + np.int64(1), [2, 3]),
    ]:
        assert result.tolist() == expected
        assert result.dtype is torch.float32
    i = torch.tensor([5, 6])
    assert (i & 4).tolist() == [4, 4] and (i | 1).tolist() == [5, 7] and (i ^ 1).tolist() == [4, 7]
    assert (~torch.tensor([True, False])).tolist() == [False, True] and (i << 1).tolist() == [10, 12]
    assert (i / 2).dtype is torch.float32 and (i // 2).dtype is torch.int64 and (i * 1.5).dtype is torch.float32
    assert (x > 1).tolist() == [False, True] and (x == 2).dtype is torch.bool
    assert (torch.eye(2) @ torch.ones(2, 1)).shape == (2, 1)
    x += 1
    x *= 2
    x -= torch.ones(2)
    x /= 3
    assert x.tolist() == [1.0, pytest.approx(5 / 3)]
    assert float(torch.tensor(2.5)) == 2.5 and int(torch.tensor(7)) == 7 and bool(torch.tensor(True))
    assert [10, 20, 30][torch.tensor(1)] == 20 and f"{torch.tensor(1.2345):.2f}" == "1.23"
    assert f"{torch.tensor(2.5, requires_grad=True)} {torch.tensor(3)} {torch.ones(1)}" == "2.5 3 tensor([1.])"
    assert 2.0 in torch.tensor([1.0, 2.0]) and 3.0 not in torch.tensor([1.0, 2.0])
    with pytest.raises(RuntimeError, match="Boolean value of Tensor with more than one value is ambiguous"):
        bool(torch.ones(2))
    with pytest.raises(TypeError):
        torch.ones(2) + "a"


INDEXES = [
    0, -1, slice(None), slice(1, None), slice(None, None, 2), None, ..., (0, 1), (slice(None), 1), (..., 0),
    (None, 0, ..., None), (slice(1, 3), slice(None), 0), [0, 2], [[0, 1], [2, 0]], (slice(None), [0, 2]),
    ([0, 1], [1, 2]), ([0, 1], slice(None), [1, 3]), (0, [1, 2]), (slice(None), slice(None), slice(0, 4, 3)),
    np.array([2, 0]), (np.array([True, False, True]),), range(2), True, False, (1, None, slice(0, 2)),
]


@pytest.mark.parametrize("index", INDEXES, ids=[str(i)[:40] for i in range(len(INDEXES))])
def test_indexing_like_numpy(index):
    a = np.arange(36, dtype=np.float32).reshape(3, 3, 4)
    t = torch.from_numpy(a.copy())
    as_numpy = list(index) if isinstance(index, range) else index
    expected = a[as_numpy]
    found = t[index]
    assert found.shape == expected.shape
    assert np.array_equal(found.numpy(), expected)
    t[index] = -1
    a[as_numpy] = -1
    assert np.array_equal(t.numpy(), a)


def test_assignment():
    x = torch.zeros(3, 4)
    x[1] = torch.arange(4)
    x[:, 0] = 5
    x[x > 4] = 7.5
    x[0, 1:3] = [8, 9]
    x[torch.tensor([0, 2]), 3] = torch.tensor([1.0, 2.0])
    assert x.tolist() == [[7.5, 8, 9, 1], [7.5, 1, 2, 3], [7.5, 0, 0, 2]]
    y = torch.zeros(3, requires_grad=True)
    z = y * 1
    z[0] = 3
    z.sum().backward()
    assert y.grad.tolist() == [0, 1, 1]
    for index in [3, -4, (0, 4)]:
        with pytest.raises(IndexError):
            x[index]
    with pytest.raises(IndexError, match="too many indices"):
        x[0, 0, 0]
    with pytest.raises((TypeError, IndexError)):
        x["a"]
    with pytest.raises(IndexError):
        x[torch.tensor([0, 3])]


def test_tensor_from_data():
    assert torch.tensor([1, 2]).dtype is torch.int64 and torch.tensor([1, 2.0]).dtype is torch.float32
    assert torch.tensor([True]).dtype is torch.bool and torch.tensor(3).shape == () and torch.tensor([]).shape == (0,)
    assert torch.tensor([[1, 2], [3, 4]], dtype=torch.float16).dtype is torch.float16
    assert torch.tensor(np.float64(2)).dtype is torch.float64 and torch.tensor(np.ones((2, 2))).dtype is torch.float64
    assert torch.tensor([torch.tensor(1.0), torch.tensor(2.0)]).tolist() == [1, 2]
    assert torch.tensor([np.arange(3), np.arange(3)]).shape == (2, 3)
    assert torch.tensor(range(3)).tolist() == [0, 1, 2] and torch.tensor([[], []]).shape == (2, 0)
    assert torch.tensor([1.0], requires_grad=True).requires_grad
    with pytest.raises(ValueError, match="expected sequence of length 2 at dim 1"):
        torch.tensor([[1, 2], [3]])
    for bad in ["ab", [1, "a"], object(), [[1], 2], {1: 2}]:
        with pytest.raises((TypeError, ValueError)):
            torch.tensor(bad)
    with pytest.raises((TypeError, ValueError)):
        nested = []
        nested.append(nested)
        torch.tensor(nested)


def test_numpy_shares_memory():
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    t = torch.from_numpy(a)
    t[0, 0] = 10
    a[1, 1] = 20
    assert a[0, 0] == 10 and t[1, 1].item() == 20
    n = t.t().numpy()
    assert n.shape == (3, 2) and n[0, 0] == 10
    n[0, 0] = 1
    assert t[0, 0].item() == 1
    assert np.asarray(t) is not a and np.array_equal(np.asarray(t), a) and np.sum(t.numpy()) == a.sum()
    assert torch.from_numpy(a[:, ::2]).stride() == (3, 2) and torch.from_numpy(np.array(1.0)).shape == ()
    del a
    gc.collect()
    assert t[1, 1].item() == 20
    for kind in [np.bool_, np.uint8, np.int8, np.int16, np.int32, np.int64, np.float16, np.float64, np.complex64]:
        back = torch.from_numpy(np.ones(2, kind)).numpy()
        assert back.dtype == kind
    with pytest.raises(ValueError, match="negative"):
        torch.from_numpy(np.arange(3)[::-1])
    with pytest.raises(TypeError):
        torch.from_numpy(np.array(["a"]))
    with pytest.raises(RuntimeError, match="requires grad"):
        torch.ones(2, requires_grad=True).numpy()
    with pytest.raises(TypeError):
        torch.ones(2, dtype=torch.bfloat16).numpy()


def test_dlpack():
    a = np.arange(4.0)
    t = torch.from_dlpack(a)
    t[0] = 9
    assert a[0] == 9
    b = np.from_dlpack(torch.ones(2, 3).t())
    assert b.shape == (3, 2) and b.sum() == 6
    capsule = torch.arange(3).__dlpack__()
    assert torch.from_dlpack(capsule).tolist() == [0, 1, 2]
    with pytest.raises(TypeError):
        torch.from_dlpack(capsule)  # used already
    assert torch.ones(1).__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError):
        torch.ones(1, requires_grad=True).__dlpack__()
    for _ in range(3):
        torch.ones(1000).__dlpack__(max_version=(1, 0))  # dropped without a consumer


def test_frombuffer():
    data = bytearray(range(8))
    t = torch.frombuffer(data, dtype=torch.int16, count=2, offset=2)
    t[0] = 0
    assert data[2:4] == b"\0\0" and t.shape == (2,)
    for options in [dict(count=5), dict(offset=9), dict(offset=1), dict(count=0)]:
        with pytest.raises(ValueError):
            torch.frombuffer(data, dtype=torch.int16, **options)


def test_conversions():
    x = torch.tensor([1.6, -2.4])
    assert x.to(torch.int32).tolist() == [1, -2] and x.long().dtype is torch.int64 and x.half().dtype is torch.float16
    assert x.to(x) is x and x.to("cpu") is x and x.to(torch.float32) is x and x.to(torch.float32, copy=True) is not x
    assert x.to("cpu", torch.float64).dtype is torch.float64 and x.to(dtype=torch.bool).dtype is torch.bool
    assert x.type() == "torch.FloatTensor" and x.type(torch.int8).dtype is torch.int8
    assert x.to("meta").device.type == "meta" and x.double().type_as(x).dtype is torch.float32
    assert torch.as_tensor(x) is x and torch.as_tensor([1]).dtype is torch.int64
    with pytest.raises(TypeError):
        x.to(3.5)


def test_identity_and_attributes():
    x = torch.ones(2, requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad is x.grad
    x.note = "kept"
    assert x.note == "kept" and x.__dict__ == {"note": "kept"}
    w = weakref.ref(x)
    del x
    gc.collect()
    assert w() is None

    class Sub(torch.Tensor):
        pass

    s = torch.Tensor._make_subclass(Sub, torch.ones(2), True)
    assert type(s) is Sub and s.requires_grad and isinstance(s + 1, torch.Tensor)
    assert hash(s) == hash(s) and s in {s: 1}


def test_copies_and_pickles():
    x = torch.arange(6.0).reshape(2, 3).t().requires_grad_()
    x.tag = [1]
    for y in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert y is not x and y.tolist() == x.tolist() and y.requires_grad and y.tag == [1] and y.tag is not x.tag
    both = copy.deepcopy([x, x])
    assert both[0] is both[1]
    for value in (torch.float16, torch.device("cuda:1"), torch.Size([1, 2]), torch.zeros(0, 3)):
        again = pickle.loads(pickle.dumps(value))
        assert again is value or (again.shape == value.shape if isinstance(value, torch.Tensor) else again == value)
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(x * 2)


def test_devices_and_dtypes():
    assert torch.device("cuda:1") == torch.device("cuda", 1) and torch.device("cuda").index is None
    assert str(torch.device("cpu")) == "cpu" and repr(torch.device("cuda", 0)) == "device(type='cuda', index=0)"
    assert torch.device(torch.device("cpu")).type == "cpu" and hash(torch.device("cpu")) == hash(torch.device("cpu"))
    for bad in ["gpu", "cuda:x", -1, "cuda:-1"]:
        with pytest.raises((RuntimeError, ValueError)):
            torch.device(bad)
    assert torch.finfo(torch.float16).max == 65504 and torch.finfo(torch.bfloat16).eps == 2**-7
    assert torch.iinfo(torch.int8).min == -128 and torch.iinfo(torch.uint8).max == 255
    assert torch.promote_types(torch.int32, torch.float16) is torch.float16
    assert torch.result_type(torch.tensor([1]), 1.0) is torch.float32
    assert repr(torch.float32) == "arete.float32" and torch.float32.itemsize == 4 and torch.int8.is_signed


def test_out_and_keyword_names():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    out = torch.empty(0)
    assert torch.add(x, x, out=out) is out and out.tolist() == [[2, 4], [6, 8]]
    assert torch.sum(input=x, dim=0).tolist() == torch.sum(x, axis=0).tolist() == [4, 6]
    assert x.sum(dim=1, keepdim=True).shape == (2, 1) and x.max(1).indices.tolist() == [1, 1]
    values, indices = x.sort(descending=True)
    assert values[0].tolist() == [2, 1] and x.max(dim=0)[0].tolist() == [3, 4]
    assert torch.zeros(2, 3).shape == torch.zeros((2, 3)).shape == torch.zeros(size=(2, 3)).shape
    assert x.view(-1).shape == (4,) and x.reshape(1, 4).shape == x.reshape((1, 4)).shape == (1, 4)
    assert x.permute(1, 0).shape == (2, 2) and x.expand(3, -1, -1).shape == (3, 2, 2) and x.repeat(2, 1).shape == (4, 2)
    assert torch.ones(2, requires_grad=True).requires_grad
    for call, text in [
        (lambda: torch.add(x), "missing 1 required positional argument"),
        (lambda: torch.add(x, x, x, x), "takes"),
        (lambda: torch.relu(x, foo=1), "unexpected keyword argument 'foo'"),
        (lambda: torch.add(x, x, other=x), "multiple values"),
        (lambda: torch.mm(x, 2), "must be Tensor, not int"),
        (lambda: torch.max(x, "a"), "invalid combination"),
        (lambda: torch.sum(x, dim=1.5), "must be tuple of ints, not float"),
    ]:
        with pytest.raises(TypeError, match=text):
            call()
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        torch.ones(2, 3) @ torch.ones(2, 3)
    with pytest.raises(IndexError, match="Dimension out of range"):
        x.sum(2)


def test_grad_modes():
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        assert not (x * 2).requires_grad
        with torch.enable_grad():
            assert (x * 2).requires_grad

    @torch.no_grad()
    def f():
        return x * 2

    @torch.inference_mode
    def g():
        return x * 2

    assert not f().requires_grad and g().is_inference() and torch.is_grad_enabled()
    with torch.set_grad_enabled(False):
        assert not torch.is_grad_enabled()
    with pytest.raises(ZeroDivisionError):
        with torch.no_grad():
            raise ZeroDivisionError
    assert torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    assert not torch.is_grad_enabled()
    torch.set_grad_enabled(True)


def test_threads():
    results = [None] * 4

    def work(i):
        x = torch.full((200, 200), float(i), requires_grad=True)
        for _ in range(20):
            (x @ x).sum().backward()
        results[i] = x.grad.sum().item()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [pytest.approx(20 * 2 * 200 * 200 * 200 * i) for i in range(4)]


def test_memory_is_flat():
    x = torch.ones(16)

    def resident():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * 4096

    for _ in range(20000):
        y = x + 1
    before = resident()
    for _ in range(200000):
        y = (x + 1).view(4, 4)[0]
    del y
    assert resident() - before < 2 << 20


def test_graphs_check_their_arguments():
    graph = torch.cuda.CUDAGraph()  # without a GPU, too
    with pytest.raises(ValueError, match="Unknown capture error mode.*got 'strict'"):
        torch.cuda.graph(graph, capture_error_mode="strict")
    with pytest.raises(TypeError, match="stream must be an arete.cuda.Stream, not int"):
        torch.cuda.graph(graph, stream=7)
    for mode in ("global", "thread_local", "relaxed"):
        torch.cuda.graph(graph, capture_error_mode=mode)


@pytest.mark.parametrize("shape, wrap, ones", [((3, 3), False, 3), ((2, 5), True, 2), ((7, 3), False, 3), ((7, 3), True, 6),
                                               ((4, 3), True, 3), ((2, 2, 2), False, 2), ((5, 0), True, 0), ((5, 1), True, 3)])
def test_fill_diagonal(shape, wrap, ones):
    x = torch.zeros(shape)
    assert x.fill_diagonal_(1, wrap) is x and x.sum().item() == ones
    same = np.zeros(shape)
    if same.size:
        np.fill_diagonal(same, 1, wrap)
    assert x.tolist() == same.tolist()


def test_fill_diagonal_refuses():
    for shape in ((3,), (2, 3, 2)):
        with pytest.raises(RuntimeError, match="dimensions"):
            torch.zeros(shape).fill_diagonal_(1)
