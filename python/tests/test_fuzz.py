"""Every public function with random wrong arguments: exceptions are fine, a crash of the interpreter is not."""
import os
import subprocess
import sys

import pytest

PROGRAM = r"""
import inspect, random, resource, signal, sys, time, warnings
import numpy
import arete as torch
import arete.numpy
import arete.nn.functional as F

warnings.filterwarnings("ignore")
seconds, seed, log = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
random.seed(seed)

# Arguments ask for too much memory: that has to be an error, too. The library's threads are made before the limit, since
# OpenMP ends a process that cannot make one.
torch.linalg.svd(torch.rand(200, 200))
torch.rand(1 << 20).exp()
resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))

SKIP = {"set_num_threads", "set_default_dtype", "set_device", "set_grad_enabled", "manual_seed", "save", "load", "seed",
        "use_deterministic_algorithms", "set_detect_anomaly", "detect_anomaly", "inference_mode", "no_grad",
        "enable_grad", "test", "apply_", "share_memory_", "set_printoptions", "annotations", "_set_override_handler"}
functions = []  # (numpy.test() runs the whole of its tests)
for module in (torch, F, torch.linalg, torch.fft, torch.special, torch.numpy, torch.autograd, torch._C):
    for name in dir(module):
        f = getattr(module, name, None)
        if name in SKIP or not callable(f) or inspect.isclass(f) and module is not torch._C or name.startswith("__"):
            continue
        if inspect.isclass(f) and issubclass(f, BaseException):
            continue
        functions.append((f"{module.__name__}.{name}", f))
for name in dir(torch.Tensor):
    f = getattr(torch.Tensor, name, None)
    if callable(f) and name not in SKIP and name not in ("__class__", "__init_subclass__", "__subclasshook__", "__del__"):
        functions.append((f"Tensor.{name}", f))

def tensor():
    shape = random.choice([(), (0,), (1,), (3,), (2, 3), (3, 3), (2, 3, 4), (2, 0, 3), (1, 2, 5, 5), (2, 3, 2, 4, 3)])
    dtype = random.choice([torch.float32] * 4 + [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32,
                                                 torch.uint8, torch.bool, torch.complex64, torch.float8_e5m2])
    t = torch.randint(-3, 4, shape).to(dtype)
    if random.random() < 0.3 and len(shape) > 1:
        t = t.transpose(0, -1)
    if random.random() < 0.2 and dtype.is_floating_point:
        t = t.detach().requires_grad_()
    return t.to("meta") if random.random() < 0.03 else t

class Strange:
    def __index__(self): raise RuntimeError("no index")
    def __float__(self): raise RuntimeError("no float")
    def __len__(self): return -1
    def __getitem__(self, i): raise KeyError(i)

def value(depth=0):
    r = random.random()
    if r < 0.45:
        return tensor()
    if r < 0.6:
        return random.choice([0, 1, -1, 2, 3, 7, 2**63, -2**63, 2**70])
    if r < 0.68:
        return random.choice([0.0, 1.5, -2.5, float("nan"), float("inf"), 1e300])
    if r < 0.75:
        return random.choice([None, True, False, ..., "mean", "sum", "none", "reflect", "", "\ud800", b"x", "cpu", "ij,jk"])
    if r < 0.8:
        return random.choice([torch.float32, torch.int64, torch.bool, torch.device("cpu"), torch.Size([2, 3]), int, object])
    if r < 0.84:
        return random.choice([numpy.ones(3), numpy.float32(1), numpy.array(["a"]), numpy.zeros((2, 0)), Strange(), object(), lambda *a: a])
    if r < 0.94 and depth < 2:
        return random.choice([tuple, list])(value(depth + 1) for _ in range(random.randint(0, 4)))
    return random.choice([{}, {"a": 1}, set(), range(3), slice(1, None), slice("a"), [1, 2], (0, 1), (2, -1)])

# Python loops as often as it is asked to (svd_lowrank(niter=2**63)); native code that never comes back is a fault, and
# the alarm does not reach it.
class TooLong(Exception):
    pass

def stop(*_):
    raise TooLong

signal.signal(signal.SIGALRM, stop)

KEYS = ["dim", "keepdim", "out", "dtype", "input", "other", "self", "size", "device", "nonsense", "p", "reduction"]
calls = 0
end = time.time() + seconds
with open(log, "w") as file:
    while time.time() < end:
        name, f = random.choice(functions)
        args = [value() for _ in range(random.choice([0, 1, 1, 2, 2, 3, 4]))]
        if name.startswith("Tensor.") and random.random() < 0.9:
            args = [tensor()] + args[:3]
        kwargs = {random.choice(KEYS): value() for _ in range(random.choice([0, 0, 0, 1, 2]))}
        file.seek(0)
        file.truncate()
        try:
            file.write(f"{name}\n{[getattr(a, 'shape', None) if isinstance(a, torch.Tensor) else repr(a)[:60] for a in args]}\n"
                       f"{[getattr(a, 'dtype', None) for a in args]}\n{list(kwargs)}\n")
        except UnicodeError:
            pass
        file.flush()
        try:
            signal.setitimer(signal.ITIMER_REAL, 2)
            f(*args, **kwargs)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException:
            pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        while torch._C._in_vmap():
            torch._C._exit_vmap()
        torch._C._set_grad_enabled(True)
        torch._C._set_inference_mode(False)
        torch._C._set_anomaly(False)
        torch._C._set_default_device(None)
        torch._C._let_mode_look(False)
        calls += 1
print(calls)
"""


def test_wrong_arguments_never_crash(tmp_path):
    seconds = float(os.environ.get("ARETE_FUZZ_SECONDS", "20"))
    seed = int(os.environ.get("ARETE_FUZZ_SEED", "1"))  # the same calls in the same order each time; a hunt takes others
    log = tmp_path / "last_call"
    try:
        run = subprocess.run([sys.executable, "-X", "faulthandler", "-c", PROGRAM, str(seconds), str(seed), str(log)],
                             capture_output=True, text=True, timeout=60 + 4 * seconds, cwd=tmp_path)
    except subprocess.TimeoutExpired:
        pytest.fail(f"seed {seed}: never came back from\n{log.read_text()}")
    last = log.read_text() if log.exists() else ""
    assert run.returncode == 0, f"seed {seed}: exit {run.returncode} in\n{last}\n{run.stderr[-3000:]}"
    assert int(run.stdout.split()[-1]) > 50 * seconds
