"""Programs that say `import torch`, run on Arete."""
import importlib.metadata
import os
import pathlib
import pickle
import subprocess
import sys

import pytest

import arete
import arete.as_torch

ROOT = str(pathlib.Path(arete.__file__).parents[1])


def run(*arguments, **environment):
    done = subprocess.run([sys.executable, "-m", "arete.as_torch", *map(str, arguments)], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": ROOT, **environment})
    return done.returncode, done.stdout, done.stderr


def names_are_the_modules_of_arete():
    with arete.as_torch.install() as module:
        import torch
        import torch.nn.functional as F
        from torch.utils.data import DataLoader

        assert torch is arete is module is sys.modules["torch"] and F is arete.nn.functional
        assert DataLoader is arete.utils.data.DataLoader and sys.modules["torch.utils.data"] is arete.utils.data
        assert torch.nn.__spec__.name == "arete.nn"
        with pytest.raises(ModuleNotFoundError, match="No module named 'torch.no_such_module'"):
            import torch.no_such_module  # noqa: F401
        with pytest.raises(ImportError, match="cannot import name 'no_such_name'"):
            from torch.nn import no_such_name  # noqa: F401
    assert not [name for name in sys.modules if name.partition(".")[0] == "torch"]


def texts():
    shown = [repr(arete.float32), repr(arete.Size([2])), repr(arete.ones(1, dtype=arete.float64)), repr(arete.strided),
             repr(arete.Tensor), repr(arete.nn.Linear), repr(arete.device), repr(arete.LongTensor), arete.__version__,
             arete.typename(arete.nn.Linear(1, 1))]
    with arete.as_torch.install() as torch:
        assert repr(torch.float32) == "torch.float32" and repr(torch.Size([2])) == "torch.Size([2])"
        assert repr(torch.ones(1, dtype=torch.float64)) == "tensor([1.], dtype=torch.float64)"
        assert repr(torch.strided) == "torch.strided" and repr(torch.Tensor) == "<class 'torch.Tensor'>"
        assert repr(torch.nn.Linear) == "<class 'torch.nn.modules.linear.Linear'>"
        assert repr(torch.device) == "<class 'torch.device'>" and repr(torch.LongTensor) == "<class 'torch.LongTensor'>"
        assert torch.__version__ == "2.11.0" and torch.__version__ >= (2, 9) and importlib.metadata.version("torch") == "2.11.0"
        assert torch.typename(torch.nn.Linear(1, 1)) == "torch.nn.modules.linear.Linear"
        layer = pickle.loads(pickle.dumps(torch.nn.Linear(2, 3)))
        assert type(layer) is torch.nn.Linear
        with torch.as_torch.install():  # inside of the other, it ends nothing
            pass
        assert repr(torch.float32) == "torch.float32"
    first, second = arete.as_torch.install(), arete.as_torch.install()
    first.remove()
    first.remove()
    assert repr(arete.float32) == "torch.float32" and "torch" in sys.modules  # the second's
    second.remove()
    assert "torch" not in sys.modules
    sys.path.append(arete.as_torch.PATH)
    with arete.as_torch.install():
        pass
    assert sys.path.pop() == arete.as_torch.PATH  # which was there before
    assert arete.utils.collect_env.get_env_info()["Arete version"] == arete.__version__
    assert [repr(arete.float32), repr(arete.Size([2])), repr(arete.ones(1, dtype=arete.float64)), repr(arete.strided),
            repr(arete.Tensor), repr(arete.nn.Linear), repr(arete.device), repr(arete.LongTensor), arete.__version__,
            arete.typename(arete.nn.Linear(1, 1))] == shown
    assert shown[0] == "arete.float32" and shown[5] == "<class 'arete.nn.modules.linear.Linear'>"


@pytest.mark.parametrize("check", [names_are_the_modules_of_arete, texts])
def test_installed(check):  # in a process of its own, since other tests import torch
    program = f"import {__name__} as tests; tests.{check.__name__}()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, cwd=pathlib.Path(__file__).parent,
                          env={**os.environ, "PYTHONPATH": ROOT})
    assert (done.returncode, done.stderr) == (0, "")


def test_torch_that_is_there_is_left_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", type(sys)("torch"))
    with pytest.raises(ImportError, match="Arete can stand for it only from the start"):
        arete.as_torch.install()


PROGRAM = """
import importlib.metadata, multiprocessing, sys

def child(queue, x):
    import torch
    queue.put((torch.__version__, repr(x.dtype)))

if __name__ == "__main__":
    assert importlib.metadata.version("torch") == "2.11.0"
    import torch
    import torch.nn as nn
    assert "arete" in torch.__file__ and __name__ == "__main__" and sys.argv[1:] == ["-a", "--b=1"], sys.argv
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue, torch.ones(2)))
    process.start()
    print(*queue.get(), sys.modules[nn.Linear.__module__].__name__)
    process.join()
    sys.exit(3)
"""


def test_modules_of_torch_that_are_programs(tmp_path):
    program = pathlib.Path(ROOT).parent / "bin" / "arete"
    if not program.exists():
        pytest.skip("the program arete is not beside the package")
    script = tmp_path / "prog.py"
    script.write_text("import os, torch\nprint(torch.__spec__.name, torch.__name__, os.environ['RANK'], os.environ['WORLD_SIZE'])")
    for name in ("run", "launch"):
        code, out, err = run("-m", f"torch.distributed.{name}", "--standalone", "--nproc-per-node", "1", script, ARETE_PROGRAM=str(program))
        assert code == 0 and out.endswith("arete torch 0 1\n"), (out, err)


def test_programs(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    assert run(file, "-a", "--b=1") == (3, "2.11.0 torch.float32 arete.nn.modules.linear\n", "")
    assert run("-m", "program", "-a", "--b=1", PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path}")[:2] == (
        3, "2.11.0 torch.float32 arete.nn.modules.linear\n")
    status, _, error = run()
    assert status == 1 and "usage" in error
    # Modules of torch as programs; the processes that they start see torch, too.
    file.write_text("import os, torch\nprint(torch.__version__, os.environ['RANK'])\n")
    status, out, error = run("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 1, file)
    assert (status, out) == (0, "[0] 2.11.0 0\n"), error


@pytest.mark.parametrize("versions", ["1.8 < 2.0", "2.11.0rc1 < 2.11.0", "2.11.0a0 < 2.11.0b1", "2.11 < 2.11.0.post1", "2.9 < 2.11"])
def test_versions(versions):
    lower, higher = map(arete.torch_version.TorchVersion, versions.split(" < "))
    assert lower < higher and lower <= str(higher) and higher > lower and higher >= lower and lower != higher
    assert lower == lower + "+cpu" and hash(lower) == hash(str(lower)) and lower != "no version"
    with pytest.raises(ValueError, match="is no version"):
        lower < "no version"  # noqa: B015


def test_operators_of_torchvision():
    """Its Python finds the operators of its C++ library without the library."""
    program = """
import random, torch
torch.ops.load_library("/somewhere/torchvision/_C.so")
assert torch.ops.torchvision._cuda_version() == -1
r = random.Random(0)
corners = torch.tensor([[r.random() * 50, r.random() * 50] for _ in range(700)])
boxes = torch.cat([corners, corners + torch.tensor([[r.random() * 30, r.random() * 30] for _ in range(700)])], 1)
scores = torch.tensor([r.random() for _ in range(700)])
def overlap(a, b):
    w, h = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    both = max(w, 0) * max(h, 0)
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)
kept, all_boxes = [], boxes.tolist()
for i in sorted(range(700), key=lambda i: -scores[i].item()):
    if all(overlap(all_boxes[i], all_boxes[k]) <= 0.4 for k in kept):
        kept.append(i)
assert torch.ops.torchvision.nms(boxes, scores, 0.4).tolist() == kept and 100 < len(kept) < 600
assert torch.ops.torchvision.nms(boxes[:0], scores[:0], 0.4).shape == (0,)
for name, error in (("nms", RuntimeError), ("roi_pool", NotImplementedError)):
    try:
        getattr(torch.ops.torchvision, name)(boxes, scores[:3], *[1, 1, 1][:1 if name == "nms" else 3])
    except error as e:
        assert "boxes and scores" in str(e) or "there are nms and roi_align" in str(e), e
    else:
        raise AssertionError(name)
try:
    torch.ops.load_library("/somewhere/other.so")
except OSError:
    print("all right")
"""
    code, out, error = run("-c", program)
    assert code == 0 and out.strip() == "all right", error
