"""Names of torch's that programs look for, most of them old: types of tensors, range(), small questions. Run with both
libraries."""
import contextlib
import importlib
import multiprocessing
import pickle

import pytest
from idiom_helpers import anywhere, on_the_cpu

import arete
import arete.linalg

TYPES = {"FloatTensor": "float32", "DoubleTensor": "float64", "HalfTensor": "float16", "BFloat16Tensor": "bfloat16",
         "ByteTensor": "uint8", "CharTensor": "int8", "ShortTensor": "int16", "IntTensor": "int32",
         "LongTensor": "int64",
         "BoolTensor": "bool"}


@anywhere
@pytest.mark.parametrize("name", TYPES)
def test_old_types(torch, device, name):
    kind, dtype = getattr(torch.cuda if device == "cuda" else torch, name), getattr(torch, TYPES[name])
    made = [kind(2, 3), kind(torch.Size([2, 3])), kind(size=(2, 3)), kind([[1, 0, 1], [0, 1, 0]]),
            kind(((1, 0, 1), [0, 1, 0])),
            kind(torch.ones(2, 3, dtype=dtype, device=device)), kind(data=[[1, 0, 1]] * 2), kind(2, 3, device=device)]
    for t in made:
        assert (t.shape, t.dtype, t.device.type, type(t)) == (torch.Size([2, 3]), dtype, device, torch.Tensor)
        assert isinstance(t, kind) and not isinstance(t.to(torch.complex64), kind)
        assert t.to(torch.int16).type(kind).dtype is dtype and t.type(kind) is t
        assert t.to(torch.complex64).abs().type(f"torch.{'cuda.' * (device == 'cuda')}{name}").dtype is dtype
    assert made[3].tolist() == [[1, 0, 1], [0, 1, 0]]
    assert [kind().shape, kind([]).shape, kind(3).shape] == [(0,), (0,), (3,)]
    other = torch.ones(2, dtype=dtype, device=device)
    assert kind(other).data_ptr() == other.data_ptr() and kind.dtype is dtype and kind.is_cuda == (device == "cuda")
    assert not isinstance(3, kind) and pickle.loads(pickle.dumps(kind)) is kind


@anywhere
def test_old_types_refuse(torch, device):
    kind = torch.cuda.LongTensor if device == "cuda" else torch.LongTensor
    other = torch.ones(2, device=device)
    for given, error in (((1.5,), "data must be a sequence .got float"), ((True,), "data must be a sequence .got bool"),
                         (("text",), "invalid data type 'str'"), ((2, [3]), "failed to unpack the object at pos 2"),
                         ((None,), "data must be a sequence .got NoneType"), ((other,), "expected"),
                         (({1},), "must be a sequence")):
        with pytest.raises(TypeError, match=error):
            kind(*given)
        with pytest.raises(TypeError, match=error):
            other.long().new(*given)
    with pytest.raises(TypeError):
        kind([1], dtype=torch.float64)
    with pytest.raises(RuntimeError, match="legacy constructor expects device type"):
        kind(2, device="cpu" if device == "cuda" else "cuda")
    with pytest.raises(RuntimeError, match="negative dimension"):
        kind(-1)
    with pytest.raises(ValueError, match="invalid type"):
        other.type("torch.SuchTensor")
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Own", (kind,), {})


@anywhere
def test_new(torch, device):
    x = torch.nn.Parameter(torch.ones(2, dtype=torch.float64, device=device))
    for t, shape in ((x.new(2, 3), (2, 3)), (x.new(torch.Size([3])), (3,)), (x.new(), (0,)), (x.new([1, 2]), (2,)),
                     (x.new(4), (4,))):
        assert (t.shape, t.dtype, t.device, type(t), t.requires_grad) == (shape, x.dtype, x.device, torch.Tensor, False)
    assert x.new([1, 2]).tolist() == [1, 2] and x.detach().new(x.detach()).data_ptr() == x.data_ptr()


@on_the_cpu
def test_default_type(torch, device):
    try:
        with pytest.warns(UserWarning, match="set_default_tensor_type.. is deprecated"):
            torch.set_default_tensor_type("torch.DoubleTensor")
        assert torch.ones(1).dtype is torch.float64
        for wrong in (torch.LongTensor, torch.float32, 3):
            with pytest.raises(TypeError, match="only floating-point types are supported as the default type"):
                torch.set_default_tensor_type(wrong)
    finally:
        with pytest.warns() if torch is arete else contextlib.nullcontext():  # PyTorch says it once
            torch.set_default_tensor_type(torch.FloatTensor)
    assert torch.ones(1).dtype is torch.float32


@anywhere
@pytest.mark.filterwarnings("ignore:torch.range")
def test_range(torch, device):
    at = {"device": device}
    assert torch.range(1, 4, **at).tolist() == [1, 2, 3, 4] and torch.range(1, 4, **at).dtype is torch.float32
    assert torch.range(4, 1, -1.5, **at).tolist() == [4, 2.5, 1] and torch.range(0, 3, 2, **at).tolist() == [0, 2]
    assert torch.range(0, 1, 0.1, **at).shape == (11,)
    assert torch is not arete and device != "cpu" or torch.range(0.0, 0.3, 0.1, **at).shape == (3,)  # PyTorch has 4 on a GPU
    assert torch.range(0, 3.5, dtype=torch.int64, **at).tolist() == [0, 1, 2, 3]
    assert torch.range(torch.tensor(1.0), torch.tensor(3), dtype=torch.float16, **at).tolist() == [1, 2, 3]
    assert torch.range(5, 5, requires_grad=True, **at).requires_grad
    out = torch.empty(0, dtype=torch.float64, device=device)
    assert torch.range(1, 3, out=out) is out and out.tolist() == [1, 2, 3]
    for given, error in (((2, 1), "bound and lower bound inconsistent"), ((1, 2, 0), "step must be nonzero"),
                         ((0, float("inf")), "unsupported range"), ((0, float("nan")), "unsupported range")):
        with pytest.raises(RuntimeError, match=error):
            torch.range(*given, **at)
    for dtype in (torch.bool, torch.complex64):
        with pytest.raises(RuntimeError, match="not implemented for"):
            torch.range(0, 1, dtype=dtype, **at)


@on_the_cpu
def test_range_warns(torch, device):
    with pytest.warns(UserWarning, match="inconsistent with Python's range builtin. Instead, use torch.arange"):
        torch.range(1, 2)


@anywhere
def test_questions(torch, device):
    assert torch.ones(1, 1, device=device).is_nonzero() and not torch.zeros((), device=device).is_nonzero()
    for shape, error in (((2,), "more than one value is ambiguous"), ((0,), "no values is ambiguous")):
        with pytest.raises(RuntimeError, match=error):
            torch.ones(shape, device=device).is_nonzero()
    x = torch.ones(2, dtype=torch.complex64, device=device)
    for t in (x, x.real, x.conj().resolve_conj()):
        assert not (t.is_conj() or torch.is_conj(t) or t.is_neg() or torch.is_neg(t))
    with pytest.raises(TypeError, match="must be Tensor, not int"):
        torch.is_conj(3)


def test_conjugates_are_values():
    x = arete.tensor([1 + 2j])
    assert not x.conj().is_conj() and not x.conj().imag.is_neg() and x.conj().data_ptr() != x.data_ptr()


@anywhere
@pytest.mark.parametrize("function", [
    "inv(z)", "cholesky(n)", "solve(z, z)", "solve_ex(z, z, check_errors=True)", "inv_ex(z, check_errors=True)",
    "matrix_power(z, -1)",
    "cholesky_ex(n, check_errors=True)", "tensorinv(z, ind=1)", "tensorsolve(z, z[0])"])
def test_errors_of_factorizations(torch, device, function):
    z, n = torch.zeros(2, 2, device=device), -torch.eye(2, device=device)
    with pytest.raises(torch.linalg.LinAlgError):
        eval(f"torch.linalg.{function}")
    assert issubclass(torch.linalg.LinAlgError, RuntimeError)


@on_the_cpu
def test_threads_of_programs(torch, device):
    assert torch.get_num_interop_threads() > 0
    for wrong in (0, -1, 1.5, True, "2"):
        with pytest.raises(RuntimeError, match="set_num_interop_threads expects"):
            torch.set_num_interop_threads(wrong)


@anywhere
def test_increment_version(torch, device):
    increment = torch.autograd.graph.increment_version
    tensors = [torch.ones(2, 3, device=device).t()[1:], torch.ones((), device=device, requires_grad=True),
               torch.ones(0, device=device),
               torch.ones(1, device=device).expand(5)]
    before = [t._version for t in tensors]
    for t in tensors:
        increment(t)
    increment(tensors)
    increment(t for t in tensors)
    assert [t._version for t in tensors] == [v + 3 for v in before] and tensors[1].item() == 1
    x = torch.ones(2, device=device, requires_grad=True)
    y = x.exp()
    increment(y.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    with torch.inference_mode():
        increment([torch.ones(2, device=device)])
    for wrong in (3, [3]):
        with pytest.raises(RuntimeError, match="increment_version expect"):
            increment(wrong)


@on_the_cpu
def test_contexts_of_data_loaders(torch, device):
    loader = importlib.import_module(torch.__name__ + ".utils.data").DataLoader
    for context in ("spawn", multiprocessing.get_context("spawn"), None):
        loader([1, 2], num_workers=1, multiprocessing_context=context)
    with pytest.raises(ValueError, match="a valid start method in .*, but got multiprocessing_context='x'"):
        loader([1, 2], num_workers=1, multiprocessing_context="x")
    for wrong in (3, multiprocessing.Process):
        with pytest.raises(TypeError, match="should be a valid context object or a string specifying the start method"):
            loader([1, 2], num_workers=1, multiprocessing_context=wrong)


@on_the_cpu
def test_scaler_of_the_package(torch, device):
    assert torch.GradScaler is torch.amp.GradScaler and "GradScaler" in dir(torch)


def test_number_of_threads_of_programs():
    before = arete.get_num_interop_threads()
    for n in (3, before):
        arete.set_num_interop_threads(n)
        assert arete.get_num_interop_threads() == n


def test_numbers_before_tensors():
    """As optimizers of 2019 have them, which torch still takes with a warning."""
    one, two = arete.ones(3), arete.full((3,), 2.0)
    assert arete.ones(3).add_(-0.5, two).tolist() == [0, 0, 0] and arete.ones(3).sub_(0.5, two).tolist() == [0, 0, 0]
    assert arete.ones(3).addcmul_(3, one, two).tolist() == [7, 7, 7] and arete.ones(3).addcdiv_(-2, one, two).tolist() == [0, 0, 0]
    assert arete.ones(3).add_(2, alpha=2).tolist() == [5, 5, 5] and arete.ones(3).addcmul_(one, two, value=3).tolist() == [7, 7, 7]
    with pytest.raises(TypeError, match="It takes"):
        arete.ones(3).add_(1, 2, 3)


@on_the_cpu
@pytest.mark.parametrize("kind", ["mps", "xpu", "hpu", "mtia", "privateuseone"])
def test_kinds_of_devices_that_are_not_there(torch, device, kind):
    one = torch.device(kind)
    assert (one.type, one.index, str(one), repr(one)) == (kind, None, kind, f"device(type='{kind}')")
    second = torch.device(kind, 1)
    assert (second.type, second.index, str(second), repr(second)) == (kind, 1, kind + ":1", f"device(type='{kind}', index=1)")
    assert second == torch.device(kind + ":1") != one and torch.device(one) == one
    assert one not in {torch.device(d) for d in ("cpu", "cuda", "meta", "vulkan")} and one in {torch.device(kind): 1}
    assert second != torch.device("cuda", 1) and pickle.loads(pickle.dumps([one, second])) == [one, second]
    for use in (lambda: torch.ones(2, device=kind), lambda: torch.ones(2).to(one), lambda: torch.empty(2, device=second)):
        with pytest.raises((RuntimeError, AssertionError, ModuleNotFoundError), match=(
                f"there are no devices of the kind '{kind}'" if torch is arete else None)):
            use()
    for bad in (":x", ":-1", ":"):
        with pytest.raises(RuntimeError, match="Invalid device string: '" + kind + bad):
            torch.device(kind + bad)
