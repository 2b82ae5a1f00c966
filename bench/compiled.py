"""Functions that are called, and the same ones compiled, in Arete or PyTorch: milliseconds of a call, peak memory, seconds of the first.

    python bench/compiled.py [--library arete|torch] [--device cpu|cuda] [--threads 2] [--kernels N]
                             [--options JSON] [--mode MODE] [ROW ...]

`--kernels` also lists, of a step on a GPU, the N kernels that take longest; `--options` and `--mode` are compile's. In PyTorch the
network is compiled and the optimizer called, which is what its programs do; in Arete the whole step is.
"""
from __future__ import annotations

import argparse
import collections
import gc
import importlib
import json
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import models


def rows_of(torch, device: str, compiles_steps: bool) -> dict:
    """Rows by name: a function of `wrap` (what compiles, or nothing) that gives a call without arguments, and how often to repeat it."""
    nn, F = torch.nn, torch.nn.functional

    def data(*shape, classes=0):
        return torch.randint(0, classes, shape, device=device) if classes else torch.randn(*shape, device=device)

    def chain(wrap, dtype, elements):
        p, q = data(elements).to(dtype), data(elements).to(dtype)
        f = wrap(lambda p, q: F.gelu(1.5 * p + q) * torch.sigmoid(q) - torch.tanh(p))
        return lambda: f(p, q)

    def trainer(wrap, net, x, y, loss=F.cross_entropy, amp=False):
        net = net.to(device)
        optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
        called = net if compiles_steps else wrap(net)

        def step(x, y):
            optimizer.zero_grad()
            with torch.autocast(device, torch.bfloat16, enabled=amp):
                value = loss(called(x), y)
            value.backward()
            optimizer.step()
            return value.detach()

        f = wrap(step) if compiles_steps else step
        return lambda: f(x, y)

    def convolutional(wrap, batch, side, amp=device == "cuda"):
        layers = []
        for channels, out, stride in ((3, 64, 1), (64, 128, 2), (128, 128, 1)):
            layers += [nn.Conv2d(channels, out, 3, stride=stride, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
        net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
        return trainer(wrap, net, data(batch, 3, side, side), data(batch, classes=10), amp=amp)

    def encoder(wrap, batch, length):
        layer = nn.TransformerEncoderLayer(256, 4, 1024, 0.1, "gelu", batch_first=True, norm_first=True)
        x, y = data(batch, length, 256), data(batch, length, 256)
        return trainer(wrap, nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), x, y, F.mse_loss, amp=device == "cuda")

    def tiny(wrap):
        return trainer(wrap, nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10)), data(8, 16), data(8, classes=10))

    def perceptron(wrap):
        return trainer(wrap, nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)), data(64, 784), data(64, classes=10))

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            b, t, d = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
            x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class LanguageModel(nn.Module):
        def __init__(self, width=768, heads=12, layers=12, words=50304, length=1024):
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

        def forward(self, i):
            return self.head(self.norm(self.blocks(self.words(i) + self.places(torch.arange(i.shape[1], device=i.device)))))

    def language_model(wrap, batch):
        i = data(batch, 1024, classes=50257)

        def loss(out, y):
            return F.cross_entropy(out.view(-1, out.shape[-1]).float(), y.view(-1))

        return trainer(wrap, LanguageModel(), i, i, loss, amp=True)

    def pictures(wrap, batch):
        if compiles_steps:
            return wrap(models.image_step(torch, device, 50, batch, 224, "float16"))
        return models.image_step(torch, device, 50, batch, 224, "float16", wrap)

    class Layer(nn.Module):
        """Of BERT: norms behind the sums."""

        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.norm1, self.norm2 = nn.LayerNorm(width, 1e-12), nn.LayerNorm(width, 1e-12)

        def forward(self, x):
            b, t, d = x.shape
            q, k, v = (p(x).view(b, t, self.heads, d // self.heads).transpose(1, 2) for p in (self.q, self.k, self.v))
            x = self.norm1(self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)) + x)
            return self.norm2(self.down(F.gelu(self.up(x))) + x)

    class Bert(nn.Module):
        def __init__(self, width=1024, heads=16, layers=24, words=30522):
            super().__init__()
            self.words, self.places, self.kinds = nn.Embedding(words, width), nn.Embedding(512, width), nn.Embedding(2, width)
            self.norm, self.layers = nn.LayerNorm(width, 1e-12), nn.Sequential(*[Layer(width, heads) for _ in range(layers)])
            self.pool = nn.Linear(width, width)

        def forward(self, i):
            x = self.words(i) + self.places(torch.arange(i.shape[1], device=i.device)) + self.kinds(torch.zeros_like(i))
            x = self.layers(self.norm(x))
            return x, torch.tanh(self.pool(x[:, 0]))

    def sentences(wrap, batch, length):
        f, i = wrap(Bert().to(device).half().eval()), data(batch, length, classes=30522)

        def call():
            with torch.inference_mode():
                return f(i)

        return call

    def bodies(wrap, n):
        places = torch.rand(n, 3, device=device)

        def step(p):
            d = p[None] - p[:, None]
            inverse = (d.pow(2).sum(-1) + 1e-4).rsqrt()
            return (d * (inverse**3)[..., None]).sum(1)

        f = wrap(step)
        return lambda: f(places)

    def circle(wrap, n):
        def points():
            u, v = torch.rand(n, device=device), torch.rand(n, device=device)
            return 4.0 * ((u**2 + v**2) <= 1.0).float().mean()

        return wrap(points)

    if device == "cpu":
        return {
            "chain6 f32 16M": (lambda w: chain(w, torch.float32, 1 << 24), 1),
            "tiny b8": (tiny, 200),
            "perceptron b64": (perceptron, 20),
            "convolutional b32": (lambda w: convolutional(w, 32, 32), 1),
            "encoder 4x256 b8": (lambda w: encoder(w, 8, 64), 1),
        }
    return {
        "chain6 f32 64M": (lambda w: chain(w, torch.float32, 1 << 26), 20),
        "chain6 bf16 64M": (lambda w: chain(w, torch.bfloat16, 1 << 26), 20),
        "perceptron b64": (perceptron, 200),
        "convolutional b128": (lambda w: convolutional(w, 128, 64), 20),
        "convolutional b128 f32": (lambda w: convolutional(w, 128, 64, amp=False), 20),
        "encoder 4x256 b32": (lambda w: encoder(w, 32, 128), 20),
        "GPT-2 124M b8": (lambda w: language_model(w, 8), 10),
        "GPT-2 124M b32": (lambda w: language_model(w, 32), 5),
        "ResNet-50 f16 b64": (lambda w: pictures(w, 64), 10),
        "ResNet-50 f16 b256": (lambda w: pictures(w, 256), 5),
        "BERT-Large f16 b32x128": (lambda w: sentences(w, 32, 128), 10),
        "BERT-Large f16 b32x384": (lambda w: sentences(w, 32, 384), 5),
        "BERT-Large f16 b1x128": (lambda w: sentences(w, 1, 128), 20),
        "N-body 16384": (lambda w: bodies(w, 16384), 5),
        "pi 100M": (lambda w: circle(w, 100_000_000), 10),
    }


def kernels_of(torch, call, most: int) -> list[str]:
    """Lines: microseconds of a step, how often a kernel runs, its name."""
    profiler = torch.profiler
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA]) as seen:
        for _ in range(3):
            call()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        seen.export_chrome_trace(f"{folder}/trace.json")
        with open(f"{folder}/trace.json", encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
    times: dict = collections.defaultdict(list)
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            times[event["name"]].append(event["dur"])
    lines = [f"{sum(map(sum, times.values())) / 3:10.1f} us in all"]
    for name, its in sorted(times.items(), key=lambda item: -sum(item[1]))[:most]:
        lines.append(f"{sum(its) / 3:10.1f} us {len(its) / 3:6.1f}x {name[:100]}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", default="arete", choices=("arete", "torch"))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kernels", type=int, default=0)
    parser.add_argument("--options", type=json.loads, default=None)
    parser.add_argument("--mode", default=None)
    parser.add_argument("rows", nargs="*")
    options = parser.parse_args()
    torch = importlib.import_module(options.library)
    torch.set_num_threads(options.threads)
    on_gpu = options.device == "cuda"
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    rows = rows_of(torch, options.device, options.library == "arete")
    wraps = {"called": lambda f: f, "compiled": lambda f: torch.compile(f, options=options.options, mode=options.mode)}
    if options.library == "arete":
        wraps["exact"] = lambda f: torch.compile(f, options={"exact": True})
    for row in options.rows or rows:
        make, repeats = rows[row]
        for kind, wrap in wraps.items():
            torch.manual_seed(0)
            gc.collect()
            if on_gpu:
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            begun = time.perf_counter()
            call = make(wrap)
            call()
            wait()
            first, best = time.perf_counter() - begun, float("inf")
            for _ in range(5):
                call()
            for _ in range(5):
                wait()
                begun = time.perf_counter()
                for _ in range(repeats):
                    call()
                wait()
                best = min(best, (time.perf_counter() - begun) / repeats)
            peak = f"{torch.cuda.max_memory_allocated() / 2**20:7.0f} MiB" if on_gpu else ""
            print(f"{options.library:6s} {row:20s} {kind:9s} {best * 1e3:10.4f} ms {peak}  first {first:.2f} s", flush=True)
            if on_gpu and options.kernels:
                print(*kernels_of(torch, call, options.kernels), sep="\n", flush=True)
            del call


if __name__ == "__main__":
    main()
