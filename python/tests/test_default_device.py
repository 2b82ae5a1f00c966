"""Where tensors are made that are given no device."""
from __future__ import annotations

import threading

import pytest

import arete

try:
    import torch as pytorch
except ImportError:
    pytorch = None

either = pytest.mark.parametrize("torch", [arete] + [pytorch] * (pytorch is not None), ids=lambda lib: lib.__name__)


@pytest.fixture(autouse=True)
def as_before():
    yield
    arete.set_default_device(None)
    if pytorch is not None:
        pytorch.set_default_device(None)


def makers(torch):
    return {
        "empty": lambda: torch.empty(2), "zeros": lambda: torch.zeros(2, 3), "ones": lambda: torch.ones((2,)),
        "full": lambda: torch.full((2,), 1.0), "rand": lambda: torch.rand(2), "randn": lambda: torch.randn(2),
        "randint": lambda: torch.randint(3, (2,)), "randperm": lambda: torch.randperm(3), "arange": lambda: torch.arange(3),
        "linspace": lambda: torch.linspace(0, 1, 3), "logspace": lambda: torch.logspace(0, 1, 3), "eye": lambda: torch.eye(2),
        "tensor": lambda: torch.tensor([1.0]), "as_tensor": lambda: torch.as_tensor([1.0]), "asarray": lambda: torch.asarray([1]),
        "scalar_tensor": lambda: torch.scalar_tensor(1.0), "empty_strided": lambda: torch.empty_strided((2,), (1,)),
        "tril_indices": lambda: torch.tril_indices(2, 2), 
        "fftfreq": lambda: torch.fft.fftfreq(3), "None": lambda: torch.ones(2, device=None),
        "Linear": lambda: torch.nn.Linear(2, 2).weight, "LSTM": lambda: torch.nn.LSTM(2, 2).weight_ih_l0,
        "BatchNorm2d": lambda: torch.nn.BatchNorm2d(2).running_mean,
    }


@either
def test_all_functions_that_make_tensors(torch):
    for name, make in makers(torch).items():
        assert make().device == torch.device("cpu"), name
        with torch.device("meta"):
            assert make().device == torch.device("meta"), name
        torch.set_default_device("meta")
        assert make().device == torch.device("meta"), name
        torch.set_default_device(None)


@either
def test_what_has_a_device_keeps_it(torch):
    x = torch.ones(2)
    with torch.device("meta"):
        assert torch.zeros_like(x).device == x.new_ones(3).device == x.device
        assert torch.ones(2, device="cpu").device == x.device
        assert (x + 1).device == x.clone().device == x.device
        assert torch.as_tensor(x).device == torch.device("meta")
        assert torch.from_numpy(x.numpy()).device == x.device


@either
def test_nesting(torch):
    with torch.device("meta"):
        with torch.device("cpu"):
            assert torch.empty(2).device == torch.device("cpu")
        assert torch.empty(2).device == torch.device("meta")
    with pytest.raises(KeyError):
        with torch.device("meta"):
            raise KeyError
    assert torch.empty(2).device == torch.device("cpu") == torch.get_default_device()
    torch.set_default_device("meta")
    assert torch.get_default_device() == torch.device("meta")
    with torch.device("cpu"):
        assert torch.empty(2).device == torch.device("cpu") == torch.get_default_device()
    again = torch.device("cpu")
    with again, torch.device("meta"), again:
        assert torch.empty(2).device == again
    assert torch.empty(2).device == torch.device("meta")
    with pytest.raises((RuntimeError, ValueError)):
        torch.set_default_device("nonsense")
    with pytest.raises(TypeError):
        torch.set_default_device(3.5)


@either
def test_each_thread_has_its_own(torch):
    found = []
    with torch.device("meta"):
        thread = threading.Thread(target=lambda: found.append(torch.empty(2).device))
        thread.start()
        thread.join()
    assert found == [torch.device("cpu")]


@either
def test_version(torch):
    assert torch.version.__version__ == torch.__version__
    assert torch.version.cuda is None or torch.version.cuda.count(".") == 1
