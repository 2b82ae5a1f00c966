"""Storages as objects, and files as memory, beside PyTorch's."""
import copy
import pickle

import numpy as np
import pytest
from idiom_helpers import LIBRARIES

import arete

pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
both = pytest.mark.parametrize("torch", LIBRARIES, ids=lambda library: library.__name__)


@both
def test_bytes(torch):
    x = torch.zeros(4, dtype=torch.uint8)
    s = x.untyped_storage()
    s[1] = 7
    s[2:] = 5
    part = s[1:3]
    part[0] = 9
    assert x.tolist() == [0, 9, 5, 5] == list(s) == s.tolist()
    assert (s[1], s[-1], len(s), s.nbytes(), s.size(), s.element_size()) == (9, 5, 4, 4, 4, 1)
    assert len(part) == 2 and part.data_ptr() - s.data_ptr() == 1
    other = s.clone()
    assert other.data_ptr() != s.data_ptr() and other.fill_(1).tolist() == [1] * 4 and other.copy_(s).tolist() == s.tolist()
    with pytest.raises((IndexError, RuntimeError)):
        s[4]
    assert torch.UntypedStorage(3).nbytes() == 3 and torch.UntypedStorage([1, 2]).tolist() == [1, 2] and torch.UntypedStorage().size() == 0
    assert isinstance(s, torch.storage.UntypedStorage) and torch.is_storage(s) and not torch.is_storage(x)
    y = torch.ones(2, 3)
    assert y[1:].untyped_storage().data_ptr() == y.data_ptr() and y[1:].untyped_storage().nbytes() == 24
    assert s.resize_(4).nbytes() == 4
    ones = y.untyped_storage()[8:12]
    assert torch.asarray(ones, dtype=torch.uint8).view(torch.float32).item() == 1
    odd = torch.arange(5, dtype=torch.uint8)
    assert odd[:4].view(torch.float32).untyped_storage().tolist() == odd.tolist()


@both
def test_copies(torch):
    s = torch.arange(4.0)[1:].untyped_storage()
    assert s.cpu() is s
    t = torch.LongStorage([1, 2])
    pickled = [pickle.loads(pickle.dumps(s))] if torch is arete else []  # torch writes it, and cannot read it
    for made in (s.clone(), copy.copy(s), copy.deepcopy(s), *pickled):
        assert type(made) is torch.UntypedStorage and made.tolist() == s.tolist() and made.data_ptr() != s.data_ptr()
    for made in (t.clone(), copy.copy(t), copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
        assert isinstance(made, torch.TypedStorage) and made.dtype == torch.int64 and made.tolist() == [1, 2]
        assert made.data_ptr() != t.data_ptr()
    assert torch.UntypedStorage(16).copy_(t.untyped()).tolist()[::8] == [1, 2]
    assert torch.DoubleStorage(2).copy_(t).untyped().tolist() == t.untyped().tolist()
    assert torch.UntypedStorage.from_buffer(b"abc", dtype=torch.uint8).tolist() == [97, 98, 99]
    assert torch.ShortStorage.from_buffer(b"abcdef", "little", 2, 1).tolist() == [0x6362, 0x6564]
    if torch is arete:
        with pytest.raises(NotImplementedError, match="lowest byte"):
            torch.ShortStorage.from_buffer(b"abcd", "big")


@both
def test_elements(torch):
    x = torch.arange(4.0)
    s = x[1:].storage()
    assert s.tolist() == [0, 1, 2, 3] and (s[2], len(s), s.size(), s.nbytes(), s.element_size(), s.dtype) == (2, 4, 4, 16, 4, torch.float32)
    s[0] = 5
    s[2:] = 7
    with pytest.raises(RuntimeError, match="slices"):
        s[1:]
    assert x.tolist() == [5, 1, 7, 7] and s.untyped().nbytes() == 16 and torch.is_storage(s)
    assert torch.FloatStorage([1.0, 2.0]).tolist() == [1, 2] and torch.LongStorage(3).size() == 3 and torch.ByteStorage([1, 2])[1] == 2
    assert torch.TypedStorage([1, 2], dtype=torch.float64).dtype == torch.float64 and s.pickle_storage_type() == "FloatStorage"


@both
def test_tensors_over_storages(torch):
    x = torch.arange(6.0)
    for source in (x.untyped_storage(), x.storage(), x):
        y = torch.empty(0).set_(source, 1, (2, 2), (2, 1))
        assert y.tolist() == [[1, 2], [3, 4]] and y.data_ptr() == x.data_ptr() + 4
        assert torch.empty(0).set_(source, 2, (3,)).tolist() == [2, 3, 4]
    assert torch.empty(0).set_(x.untyped_storage()).tolist() == x.tolist()
    assert torch.empty(0, dtype=torch.int32).set_(x.untyped_storage(), storage_offset=1, size=(1,)).view(torch.float32).item() == 1
    with pytest.raises(RuntimeError):
        torch.empty(0).set_(x.storage().untyped()[:8], -1, (2,))


@both
def test_files(torch, tmp_path):
    path = tmp_path / "numbers"
    np.arange(10, dtype=np.float32).tofile(path)
    name = str(path)
    alone = torch.from_file(name, size=10, dtype=torch.float32)
    alone[0] = 9
    assert alone.tolist() == [9, *range(1, 10)] and np.fromfile(path, np.float32)[0] == 0
    x = torch.tensor([], dtype=torch.float32).set_(torch.UntypedStorage.from_file(name, shared=True, nbytes=40))
    x[1] = 8
    assert np.fromfile(path, np.float32)[1] == 8
    new = torch.from_file(str(tmp_path / "new"), shared=True, size=3, dtype=torch.int16)
    new.fill_(4)
    assert torch.UntypedStorage.from_file(name, False, 8).nbytes() == 8
    assert torch.FloatStorage.from_file(name, False, 3).tolist() == [0, 8, 2]
    assert np.fromfile(tmp_path / "new", np.int16).tolist() == [4, 4, 4]
    for missing, size in ((str(tmp_path / "missing"), 1), (name, 11)):
        with pytest.raises(RuntimeError):
            torch.from_file(missing, size=size, dtype=torch.float32)
    with open(name, "rb") as other:  # the number of an open file is no name: the file would be closed
        with pytest.raises(TypeError):
            torch.from_file(other.fileno(), size=1, dtype=torch.float32)
        assert len(other.read(1)) == 1


@both
def test_resized_tensors_show_memory_in_its_order(torch):
    x = torch.arange(6.0).view(2, 3)
    assert x.t().resize_(6).tolist() == [0, 1, 2, 3, 4, 5] and x.t().resize_(2, 2).tolist() == [[0, 1], [2, 3]]
    assert x.t().resize_(3, 2).stride() == (1, 3) and x.t().resize_as_(x.t()).stride() == (1, 3)
    part = x[0, 1:].resize_(4)  # more of the memory that is there
    part.fill_(9)
    assert x.tolist() == [[0, 9, 9], [9, 9, 5]]
    assert x[1].resize_(4)[:3].tolist() == [9, 9, 5]  # beyond it


def test_memory_keeps_its_size():
    with pytest.raises(NotImplementedError, match="keeps its size"):
        arete.ones(2).untyped_storage().resize_(0)
    with pytest.raises(NotImplementedError, match="plain host memory"):
        arete.from_file("x", size=1, pin_memory=True)


@both
def test_shallow_copies_share_memory(torch):
    w = torch.nn.Parameter(torch.ones(2))
    v = copy.copy(w)
    assert type(v) is torch.nn.Parameter and v is not w and v.data_ptr() == w.data_ptr() and v.requires_grad and v.is_leaf
    assert copy.copy(torch.ones(2)).requires_grad is False


@both
def test_small_values(torch):
    assert type(torch.Size([2, 3]) * 2) is torch.Size and 2 * torch.Size([1]) == (1, 1)
    assert torch.device(type="cpu") == torch.device("cpu") and torch.device(type="cuda", index=1) == torch.device("cuda:1")
    with pytest.raises(TypeError):
        torch.device()
    g = torch.Generator().manual_seed(3)
    torch.rand(5, generator=g)
    h = g.clone_state()
    assert torch.equal(torch.rand(2, generator=g), torch.rand(2, generator=h))
    one = torch.ones(2)
    assert torch.tensor([1.0, 2]).map_(one, lambda x, y: x + y).tolist() == [2, 3] and one[0]._is_view() and not one._is_view()
    assert torch.tensor([1.0, 2]).map2_(one, one, lambda x, y, z: x + y + z).tolist() == [3, 4]
