"""Functions under vmap, of arete.func and torch.func: milliseconds of one call, and the largest difference of results.

    python bench/vmap.py [--lib arete,torch] [--device cpu] [--batch 256] [--repeats 5]
"""
import argparse
import importlib
import time

import numpy as np


def numbers(*sizes, seed=0):
    return np.random.default_rng(seed).standard_normal(sizes).astype("float32")


def convolutions(lib):
    nn = lib.nn
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.MaxPool2d(2),
                        nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 7 * 7, 10))
    for i, p in enumerate(net.parameters()):
        p.data.copy_(lib.from_numpy(numbers(*p.shape, seed=i) / 8))
    return net


def rows(lib, device, batch):
    """Calls by name."""
    tensor = lambda *sizes, seed=0: lib.from_numpy(numbers(*sizes, seed=seed)).to(device)  # noqa: E731
    func, loss_of = lib.func, lib.nn.functional.cross_entropy
    net = convolutions(lib).to(device)
    parameters = {k: v.detach() for k, v in net.named_parameters()}
    x, y = tensor(batch, 1, 28, 28), lib.from_numpy(np.arange(batch) % 10).to(device)
    a, b, v = tensor(64, 64, seed=1) / 8, tensor(64, 64, seed=2) / 8, tensor(64, seed=3)
    f = lambda x: lib.tanh(x @ a) @ b  # noqa: E731
    sample = lambda p, x, y: loss_of(func.functional_call(net, p, (x.unsqueeze(0),)), y.unsqueeze(0))  # noqa: E731
    models = [lib.nn.Sequential(lib.nn.Linear(32, 64), lib.nn.ReLU(), lib.nn.Linear(64, 10)).to(device) for _ in range(16)]
    for i, m in enumerate(models):
        for k, p in enumerate(m.parameters()):
            p.data.copy_(lib.from_numpy(numbers(*p.shape, seed=8 * i + k)))
    stacked, _ = func.stack_module_state(models)
    inputs = tensor(100, 32, seed=5)
    return {
        f"gradients by sample, CNN, batch {batch}": lambda: func.vmap(func.grad(sample), in_dims=(None, 0, 0))(parameters, x, y),
        "jacrev, 64 to 64": lambda: func.jacrev(f)(v),
        "jacfwd, 64 to 64": lambda: func.jacfwd(f)(v),
        "hessian of 64": lambda: func.hessian(lambda x: f(x).square().sum())(v),
        "16 networks of 32-64-10": lambda: func.vmap(lambda p: func.functional_call(models[0], p, (inputs,)))(stacked),
    }


def flat(result):
    return [result] if hasattr(result, "detach") else [t for k in result for t in flat(result[k] if isinstance(result, dict) else k)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lib", default="arete")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    results = {}
    for name in given.lib.split(","):
        lib = importlib.import_module(name)
        wait = lib.cuda.synchronize if given.device.startswith("cuda") else lambda: None
        for row, call in rows(lib, given.device, given.batch).items():
            times, result = [], call()
            for _ in range(given.repeats):
                wait()
                begin = time.perf_counter()
                call()
                wait()
                times.append(time.perf_counter() - begin)
            results.setdefault(row, []).append([t.detach().cpu().numpy() for t in flat(result)])
            print(f"{name:6} {row:40} {1e3 * min(times):10.3f} ms", flush=True)
    for row, found in results.items():
        for other in found[1:]:
            print(f"{row:47} {max(float(np.abs(a - b).max()) for a, b in zip(found[0], other)):.1e} apart")


if __name__ == "__main__":
    main()
