"""What the tests in test_idioms_*.py share.

How people write it: the usual programs for mixed precision, CUDA, pinned memory, profiling and benchmarking, each as a short
function of `torch`. The same text runs with `import arete as torch` and, where PyTorch is installed, with PyTorch itself, which
shows that the program is a right one. On a machine without a GPU those that cannot do without one are skipped."""
import pytest

import arete

try:
    import torch as pytorch
    import torch.utils.benchmark  # noqa: F401
except ImportError:
    pytorch = None

LIBRARIES = [arete] + [pytorch] * (pytorch is not None)


def cases(*devices):
    return [pytest.param(library, device, id=f"{library.__name__}-{device}",
                         marks=[pytest.mark.skipif(not library.cuda.is_available(), reason="no GPU")] * (device == "cuda"))
            for library in LIBRARIES for device in devices]


anywhere = pytest.mark.parametrize("torch,device", cases("cpu", "cuda"))
on_the_cpu = pytest.mark.parametrize("torch,device", cases("cpu"))
on_a_gpu = pytest.mark.parametrize("torch,device", cases("cuda"))


@pytest.fixture(autouse=True)
def seeds_and_switches():
    for library in LIBRARIES:
        library.manual_seed(0)
    yield
    for library in LIBRARIES:
        library.use_deterministic_algorithms(False)
        library.set_float32_matmul_precision("highest")


def the_net(torch, device):
    nn = torch.nn
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)).to(device)


def the_data(torch, device, batches=1, rows=64):
    """Inputs, and a sum that a net can learn."""
    inputs = [torch.randn(rows, 8, device=device) for _ in range(batches)]
    return [(x, x[:, :4].sum(1, keepdim=True)) for x in inputs]


def values(tensors):
    return [t.detach().float().cpu().numpy().copy() for t in tensors]


def same(a, b, tolerance=0.0):
    return all(abs(x - y).max() <= tolerance * max(abs(x).max(), abs(y).max()) for x, y in zip(a, b, strict=True))


def plain(key):
    """The name of an operator, without PyTorch's namespace."""
    return key.removeprefix("aten::")
