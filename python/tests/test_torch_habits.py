"""What torch refuses, and warns of: beside it, where it is installed."""
import warnings

import pytest
from fake_gpus import run
from idiom_helpers import LIBRARIES

import arete

both = pytest.mark.parametrize("torch", LIBRARIES, ids=lambda library: library.__name__)


@both
def test_masks_are_boolean(torch):
    x = torch.ones(3)
    for mask in ([1, 0, 1], [1.0, 0.0, 1.0]):
        for call in (lambda m: x.masked_fill(m, 2.0), lambda m: x.clone().masked_fill_(m, 2),
                     lambda m: x.masked_fill(m, torch.tensor(2.0))):
            with pytest.raises(RuntimeError, match="only supports boolean masks, but got mask with dtype"):
                call(torch.tensor(mask))
    assert x.masked_fill(torch.tensor([True, False, True]), 2.0).tolist() == [2, 1, 2]


@both
def test_probabilities(torch):
    for p in (2.0, -1.0, float("nan")):
        with pytest.raises(RuntimeError, match="Expected p_in >= 0 && p_in <= 1"):
            torch.bernoulli(torch.tensor([0.5, p]))
        if p == p:
            with pytest.raises(RuntimeError, match="expects? p to be in"):
                torch.empty(2).bernoulli_(p)
    assert torch.bernoulli(torch.tensor([0.0, 1.0])).tolist() == [0, 1]
    assert torch.bernoulli(torch.empty(0)).tolist() == []
    if torch is arete:  # what compiled functions put off is not waited for
        for p, expected in ((0.0, 0), (1.0, 1)):
            assert arete.compile(lambda x, p=p: torch.bernoulli(x * p), fullgraph=True)(torch.ones(3)).tolist() == [expected] * 3


WARNINGS = {
    "To copy construct from a tensor": lambda t: t.tensor(t.ones(2)),
    "torch.meshgrid: in an upcoming release": lambda t: t.meshgrid(t.ones(2), t.ones(2)),
    "A window was not provided": lambda t: t.stft(t.ones(64), 16, return_complex=True),
    "on tensors of dimension other than 2": lambda t: t.ones(1, 2, 3).T,
    r"std\(\): degrees of freedom is <= 0": lambda t: t.ones(1).std(),
    r"var\(\): degrees of freedom is <= 0": lambda t: t.ones(3, 1).var(1),
    r"std_mean\(\): degrees of freedom is <= 0": lambda t: t.std_mean(t.ones(1)),
}
SILENT = {
    "meshgrid": lambda t: t.meshgrid(t.ones(2), t.ones(2), indexing="ij"),
    "stft": lambda t: t.stft(t.ones(64), 16, window=t.ones(16), return_complex=True),
    "T": lambda t: t.ones(2, 3).T,
    "mT": lambda t: t.ones(1, 2, 3).mT,
    "var": lambda t: (t.ones(1).var(correction=0), t.ones(3, 2).var(1), t.ones(0, 1).var(1)),
}


def test_warnings():
    torch = arete  # PyTorch gives some of them once for a process
    for text, call in WARNINGS.items():
        with pytest.warns(UserWarning, match=text):
            call(torch)
    for call in SILENT.values():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            call(torch)


@both
def test_transposed_conjugates_are_of_matrices(torch):
    for x in (torch.ones(1, 2, 3), torch.ones(2)):
        with pytest.raises(RuntimeError, match="only supported on matrices"):
            x.H
    assert torch.ones(2, 3).H.shape == (3, 2)


@both
def test_overridable_functions(torch):
    found = torch.overrides.get_overridable_functions()
    assert torch.add in found[torch] and torch.linalg.svd in found[torch.linalg] and torch.Tensor.add in found[torch.Tensor]
    assert all(callable(f) for functions in found.values() for f in functions)
    assert torch.overrides.is_tensor_method_or_property(torch.Tensor.add)
    assert not torch.overrides.is_tensor_method_or_property(torch.add)
    assert torch.overrides.resolve_name(torch.Tensor.add).endswith("Tensor.add")
    assert torch.overrides.resolve_name(torch.add).endswith(".add")
    assert torch.overrides.resolve_name(print) is None


def test_overridable_functions_ask():
    class Asked(arete.Tensor):
        calls: list = []

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.calls.append(func)
            return None

    x = arete.ones(2).as_subclass(Asked)
    for function in (arete.exp, arete.nn.functional.softplus, arete.linalg.norm, arete.fft.fft, arete.special.erf, arete.Tensor.sum):
        assert any(function in functions for functions in arete.overrides.get_overridable_functions().values()), function
        before = len(Asked.calls)
        assert (x.sum() if function is arete.Tensor.sum else function(x)) is None and len(Asked.calls) == before + 1


@both
def test_opcheck(torch):
    library, name = torch.library, f"habits_{torch.__name__}"

    @library.custom_op(f"{name}::good", mutates_args=())
    def good(x: torch.Tensor, by: float = 2.0) -> torch.Tensor:
        return x * by

    @good.register_fake
    def _(x, by=2.0):
        return torch.empty_like(x)

    good.register_autograd(lambda ctx, g: (g * ctx.by, None), setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1]))

    @library.custom_op(f"{name}::aliases", mutates_args=())
    def aliases(x: torch.Tensor) -> torch.Tensor:
        return x.view(-1)

    @library.custom_op(f"{name}::changes", mutates_args=())
    def changes(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2).clone()

    @library.custom_op(f"{name}::wrong_fake", mutates_args=())
    def wrong_fake(x: torch.Tensor) -> torch.Tensor:
        return x.sum(0)

    @wrong_fake.register_fake
    def _(x):
        return torch.empty_like(x)

    @library.custom_op(f"{name}::in_place", mutates_args=("x",))
    def in_place(x: torch.Tensor) -> None:
        x.mul_(2)

    x = torch.arange(6.0).view(2, 3)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    for args in ((x,), (x.clone().requires_grad_(), 3.0)):
        assert library.opcheck(good, args, test_utils=tests) == dict.fromkeys(tests, "SUCCESS")
    for op, test in ((aliases, "test_schema"), (changes, "test_schema"), (wrong_fake, "test_faketensor")):
        with pytest.raises(Exception):
            library.opcheck(op, (x.clone(),), test_utils=test)
        assert isinstance(library.opcheck(op, (x.clone(),), test_utils=test, raise_exception=False)[test], Exception)
    assert library.opcheck(in_place, (x.clone(),), test_utils="test_schema") == {"test_schema": "SUCCESS"}
    if torch is arete:
        assert library.opcheck(good, (x.clone().requires_grad_(),)) == dict.fromkeys(
            (*tests, "test_aot_dispatch_dynamic"), "SUCCESS")
        with pytest.raises(ValueError, match="test_utils are some of"):
            library.opcheck(good, (x,), test_utils="test_everything")


@pytest.mark.filterwarnings("error", "ignore:Sparse")
def test_vectors_times_sparse_matrices_warn_of_nothing():
    x, m = arete.arange(3.0), arete.arange(6.0).view(3, 2)
    assert arete.equal(x @ m.to_sparse(), x @ m)
    assert arete.equal(arete.nn.functional.linear(x, m.t().to_sparse()), x @ m)
    assert arete.equal(x[None] @ m.to_sparse(), x[None] @ m)


# ---- where the host waits for GPUs


WAITS = """
    import warnings
    warnings.simplefilter("always")
    assert torch.cuda.get_sync_debug_mode() == 0
    x = torch.arange(4.0, device="cuda")
    pinned = torch.empty(4, pin_memory=True)
    waits = {
        "item": lambda: x[0].item(), "bool": lambda: bool(x[0] > 1), "tolist": lambda: x.tolist(), "nonzero": lambda: x.nonzero(),
        "masked": lambda: x[x > 1], "cpu": lambda: x.cpu(), "cuda": lambda: torch.ones(3).cuda(),
        "tensor": lambda: torch.tensor([1.0], device="cuda"),
        "first look": lambda: x.to("cpu", non_blocking=True).tolist(),
    }
    silent = {
        "work": lambda: (x * 2).sum(), "pinned": lambda: pinned.cuda(non_blocking=True), "synchronize": torch.cuda.synchronize,
        "host": lambda: torch.ones(3).tolist(),
    }
    torch.cuda.set_sync_debug_mode("warn")
    assert torch.cuda.get_sync_debug_mode() == 1
    for name, call in waits.items():
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            call()
        assert seen and all("called a synchronizing CUDA operation" in str(w.message) for w in seen) or name == "first look", name
        assert all(w.filename == "<string>" for w in seen), [w.filename for w in seen]
    for name, call in silent.items():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            call()
    torch.cuda.set_sync_debug_mode(2)
    for name, call in waits.items():
        if name == "first look":
            continue
        try:
            call()
        except RuntimeError as error:
            assert "called a synchronizing CUDA operation" in str(error), error
        else:
            raise AssertionError(name)
    for call in silent.values():
        call()
    torch.cuda.set_sync_debug_mode("default")
    assert x[1].item() == 1
    for wrong in ("loud", 3):
        try:
            torch.cuda.set_sync_debug_mode(wrong)
        except RuntimeError as error:
            assert "expected" in str(error)
        else:
            raise AssertionError(wrong)
"""


def test_waits_are_told():
    run(WAITS)
