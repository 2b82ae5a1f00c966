"""The scripts of the repository pytorch/examples, as tools/clients.py runs them: on tiny data that is made here, with the same random
numbers under both libraries. What is compared are the losses that go backward."""
from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import pathlib
import random
import runpy
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import types
import urllib.error
import urllib.request
import zipfile
import zlib

URL = "https://codeload.github.com/pytorch/examples/zip/refs/heads/main"

# name: (folder, script, arguments, the most backward passes; processes)
SCRIPTS = {
    "mnist": ("mnist", "main.py", "--epochs 1 --batch-size 16 --log-interval 1 --save-model", 6),
    "mnist_rnn": ("mnist_rnn", "main.py", "--epochs 1 --batch-size 16", 6),
    "mnist_hogwild": ("mnist_hogwild", "main.py", "--epochs 1 --batch-size 16 --num-processes 2", 0),
    "mnist_forward_forward": ("mnist_forward_forward", "main.py", "--epochs 4 --train_size 64 --test_size 32 --no_accel", 0),
    "vae": ("vae", "main.py", "--epochs 1 --batch-size 32", 0),
    "siamese_network": ("siamese_network", "main.py", "--epochs 1 --batch-size 8 --dry-run", 3),
    "regression": ("regression", "main.py", "", 40),
    "dcgan": ("dcgan", "main.py", "--dataset fake --batchSize 8 --ngf 8 --ndf 8 --nz 10 --workers 0 --manualSeed 1 --dry-run", 0),
    "imagenet": ("imagenet", "main.py", "-a resnet18 -b 4 -j 0 --epochs 1 --lr 0.001 --no-accel images", 4),
    "reinforce": ("reinforcement_learning", "reinforce.py", "", 8),
    "actor_critic": ("reinforcement_learning", "actor_critic.py", "", 8),
    "time_sequence_prediction": ("time_sequence_prediction", "train.py", "--steps 1", 3),
    "super_resolution": ("super_resolution", "main.py",
                         "--upscale_factor 4 --batchSize 2 --testBatchSize 2 --nEpochs 1 --lr 0.001 --threads 0", 0),
    "gcn": ("gcn", "main.py", "--epochs 4 --no-accel", 0),
    "gat": ("gat", "main.py", "--epochs 3 --no-accel --hidden-dim 8 --num-heads 2", 0),
    "fast_neural_style": ("fast_neural_style/neural_style", "neural_style.py",
                          "train --dataset pictures --style-image pictures/a/0.png --style-size 32 --image-size 32 --batch-size 2 "
                          "--epochs 1 --save-model-dir saved --content-weight 1 --style-weight 100", 2),
    **{f"word_language_model {kind}": ("word_language_model", "main.py", f"--model {kind} --epochs 1 --emsize 16 --nhid 16 --nlayers 1 "
                                       "--batch_size 4 --bptt 8 --dropout 0 --log-interval 1 --dry-run", 8)
       for kind in ("LSTM", "GRU", "RNN_TANH", "Transformer")},
    "word_language_model generate": ("word_language_model", "generate.py", "--words 20", 0),
    **{f"fx {name}": ("fx", f"{name}.py", "", 0)
       for name in ("invert", "module_tracer", "primitive_library", "profiling_tracer", "replace_op", "subgraph_rewriter_basic_use",
                    "wrap_output_dynamically", "inline_function", "proxy_based_graph_creation")},
    "tensor_parallel": ("distributed/tensor_parallelism", "tensor_parallel_example.py", "", 3, 2),
    "sequence_parallel": ("distributed/tensor_parallelism", "sequence_parallel_example.py", "", 3, 2),
}


def fetch(folder):
    """The repository's files in `folder`, from there or from GitHub; None where neither is to be had."""
    if (folder / "mnist" / "main.py").exists():
        return folder
    try:
        with urllib.request.urlopen(URL, timeout=60) as answer:
            archive = zipfile.ZipFile(io.BytesIO(answer.read()))
    except (urllib.error.URLError, OSError) as error:
        print(f"pytorch/examples cannot be had: {error}; --examples names a folder of it", file=sys.stderr)
        return None
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        archive.extractall(scratch)
        shutil.rmtree(folder, ignore_errors=True)
        next(pathlib.Path(scratch).iterdir()).rename(folder)
    return folder


# ---- data


def make_data(root):
    """MNIST, pictures in folders, a graph of papers and texts, all tiny and random, where the scripts look for them."""
    import numpy
    from PIL import Image

    numbers = numpy.random.RandomState(0)
    for place in (root / "data", root / "mnist_forward_forward" / "data"):
        raw = place / "MNIST" / "raw"
        raw.mkdir(parents=True)
        for part, count in (("train", 96), ("t10k", 32)):
            images, labels = numbers.randint(0, 256, (count, 28, 28)).astype("uint8"), (numpy.arange(count) % 10).astype("uint8")
            (raw / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 2051, count, 28, 28) + images.tobytes())
            (raw / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 2049, count) + labels.tobytes())

    def pictures(folder, count, size):
        folder.mkdir(parents=True)
        for i in range(count):
            Image.fromarray(numbers.randint(0, 256, (size, size, 3)).astype("uint8")).save(folder / f"{i}.png")

    for part in ("train", "val"):
        for kind in ("cat", "dog"):
            pictures(root / "imagenet" / "images" / part / kind, 4, 40)
    for part in ("train", "test"):
        pictures(root / "super_resolution" / "dataset" / "BSDS300" / "images" / part, 4, 256)
    pictures(root / "fast_neural_style" / "neural_style" / "pictures" / "a", 4, 32)
    for folder in ("gcn", "gat"):
        papers = numpy.arange(100, 100 + 1700)
        (root / folder / "cora").mkdir()
        (root / folder / "cora" / "cora.content").write_text("".join(
            f"{paper}\t" + "\t".join(map(str, numbers.randint(0, 2, 12))) + f"\tkind{paper % 5}\n" for paper in papers))
        pairs = {tuple(pair) for pair in numbers.choice(papers, (2000, 2)).tolist() if pair[0] != pair[1]}
        (root / folder / "cora" / "cora.cites").write_text("".join(f"{a}\t{b}\n" for a, b in sorted(pairs)))
        with tarfile.open(root / folder / "cora.tgz", "w:gz") as archive:
            archive.add(root / folder / "cora", "cora")
    words = "the a cat dog sat ran on mat in rain under tree".split()
    texts = root / "word_language_model" / "data" / "wikitext-2"
    texts.mkdir(parents=True, exist_ok=True)
    for part in ("train", "valid", "test"):
        (texts / f"{part}.txt").write_text("".join(" ".join(numbers.choice(words, 9)) + "\n" for _ in range(60)))
    (root / "vae" / "results").mkdir(exist_ok=True)


# ---- a script under the same random numbers


class Numbers:
    """Random numbers of NumPy for torch's functions: what a call gives depends on the function, the shape and how many calls of
    the two there have been, so that numbers a library draws by itself, for weights, change nothing."""

    def __init__(self):
        self.counts = {}

    def draw(self, name, shape):
        import numpy

        shape = tuple(int(n) for n in shape)
        at = self.counts[name, shape] = self.counts.get((name, shape), -1) + 1
        return numpy.random.RandomState(zlib.crc32(f"{name} {shape} {at}".encode()))

    def install(self):
        import torch
        from torch import nn
        from torch.utils.data import RandomSampler

        def tensor(values, options, dtype=None):
            made = torch.as_tensor(values).to(options.get("dtype") or dtype or torch.get_default_dtype())
            return made.to(options.get("device") or "cpu").requires_grad_(bool(options.get("requires_grad")))

        def sizes(args, options):
            shape = options["size"] if "size" in options else args
            return tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else tuple(shape)

        def randn(*args, **options):
            shape = sizes(args, options)
            return tensor(self.draw("randn", shape).standard_normal(shape), options)

        def rand(*args, **options):
            shape = sizes(args, options)
            return tensor(self.draw("rand", shape).uniform(0, 1, shape), options)

        def randint(*args, **options):
            low, high = (0, args[0]) if len(args) < 2 or not isinstance(args[1], int) else args[:2]
            shape = options["size"] if "size" in options else args[-1]
            return tensor(self.draw("randint", shape).randint(low, high, tuple(shape)), options, torch.int64)

        def multinomial(p, count, replacement=False, **options):
            chance = self.draw("multinomial", p.shape).uniform(0, 1, (*p.shape[:-1], count)) if count == 1 else None
            assert chance is not None, "one number at a time"
            sums = p.detach().double().cumsum(-1)
            return (sums / sums[..., -1:] < torch.as_tensor(chance).to(p.device)).sum(-1, keepdim=True)

        def dropout(x, p=0.5, training=True, channels=False):
            if not training or p == 0:
                return x
            shape = (*x.shape[:2], *[1] * (x.dim() - 2)) if channels else tuple(x.shape)
            kept = torch.as_tensor(self.draw("dropout", shape).uniform(0, 1, shape) >= p).to(x.dtype).to(x.device)
            return x * kept / (1 - p)

        def uniform_(self_, low=0.0, high=1.0, **options):
            values = self.draw("uniform_", self_.shape).uniform(low, high, tuple(self_.shape))
            with torch.no_grad():
                return self_.copy_(torch.as_tensor(values))

        def normal_(self_, mean=0.0, std=1.0, **options):
            values = self.draw("normal_", self_.shape).standard_normal(tuple(self_.shape)) * std + mean
            with torch.no_grad():
                return self_.copy_(torch.as_tensor(values))

        torch.randn, torch.rand, torch.randint, torch.multinomial = randn, rand, randint, multinomial
        torch.randn_like = lambda x, **options: randn(*x.shape, **{"dtype": x.dtype, "device": x.device, **options})
        torch.rand_like = lambda x, **options: rand(*x.shape, **{"dtype": x.dtype, "device": x.device, **options})
        torch.randperm = lambda n, **options: tensor(self.draw("randperm", (n,)).permutation(n), {}, torch.int64)
        torch.Tensor.uniform_, torch.Tensor.normal_ = uniform_, normal_
        nn.functional.dropout = lambda x, p=0.5, training=True, inplace=False: dropout(x, p, training)
        nn.Dropout.forward = lambda module, x: dropout(x, module.p, module.training)
        nn.Dropout2d.forward = lambda module, x: dropout(x, module.p, module.training, True)
        RandomSampler.__iter__ = lambda sampler: iter(self.draw("sampler", (len(sampler),)).permutation(len(sampler)).tolist())

        def sample(it, shape=()):
            assert not shape
            return multinomial(it.probs, 1)[..., 0]

        torch.distributions.Categorical.sample = sample
        filled = {}

        def fill(module, inputs):
            """The same weights, when a module is called first; those of a module inside it are among its own."""
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0  # its numbers are drawn inside of kernels
            for parameter in module.parameters():
                if id(parameter) in filled:
                    continue
                filled[id(parameter)] = parameter  # kept, so that nothing else gets its number
                whole = tuple(parameter.shape)
                with torch.no_grad():
                    if parameter.dim() > 1 and not hasattr(parameter, "placements"):
                        values = self.draw("weight", whole).standard_normal(whole) * (2.0 / (parameter.numel() / whole[0])) ** 0.5
                        parameter.copy_(torch.as_tensor(values).to(parameter.dtype))
                    elif not hasattr(parameter, "placements") and (parameter != 1).any():
                        parameter.zero_()

        nn.modules.module.register_module_forward_pre_hook(fill)


class Enough(SystemExit):
    pass


def run_script(path, limit, ranks, arguments):
    """Runs a script, and writes the losses that go backward to the file EXAMPLE_LOSSES names."""
    import numpy
    import PIL.Image
    import requests
    import torch

    random.seed(0)
    numpy.random.seed(0)
    Numbers().install()
    losses, backward = [], torch.Tensor.backward

    def watched(self, *args, **options):
        losses.append(float(self.detach().double().sum()))
        backward(self, *args, **options)
        if limit and len(losses) >= limit and not ranks:
            raise Enough(0)

    torch.Tensor.backward = watched
    if ranks:  # the scripts ask for accelerators: here CPUs are
        torch.accelerator.is_available = lambda: True
        torch.accelerator.device_count = lambda: ranks
        torch.accelerator.current_accelerator = lambda *args, **options: torch.device("cpu")
        torch.accelerator.set_device_index = lambda index: None
        torch.set_num_threads(1)
    requests.get = lambda *args, **options: contextlib.nullcontext(types.SimpleNamespace(raw=open("cora.tgz", "rb")))
    PIL.Image.ANTIALIAS = PIL.Image.LANCZOS  # gone from Pillow, a script has it still
    # A script loads an array of NumPy, which torch.load reads of files that are trusted only.
    torch.serialization.add_safe_globals([numpy.ndarray, numpy.dtype, type(numpy.dtype("float64")), numpy._core.multiarray._reconstruct])
    try:
        import torchvision.models

        known = torchvision.models.vgg16  # of its weights nobody has the file
        torchvision.models.vgg16 = lambda weights=None, **options: known(weights=None, num_classes=2, **options)
    except ImportError:
        pass
    sys.argv = [path, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
    finally:
        if int(os.environ.get("RANK", 0)) == 0:
            pathlib.Path(os.environ["EXAMPLE_LOSSES"]).write_text(json.dumps(losses))


def client(folder):
    """Stages: each script, with its losses, or 0 of one that has none but its end."""
    failed = []
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch, "examples")
        shutil.copytree(folder, root, ignore=shutil.ignore_patterns(".git", "cpp", "*.ipynb", "cora", "MNIST"))
        make_data(root)
        for name, (place, script, arguments, limit, *ranks) in SCRIPTS.items():
            if name == "time_sequence_prediction":
                subprocess.run([sys.executable, "generate_sine_wave.py"], cwd=root / place, check=False, capture_output=True)
            losses = pathlib.Path(scratch, "losses.json")
            losses.unlink(missing_ok=True)
            command = [sys.executable]
            if ranks:
                command += ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks[0]), "--master-port", "29713"]
            command += [__file__, str(limit), str(ranks[0] if ranks else 0), script, *arguments.split()]
            try:
                done = subprocess.run(command, cwd=root / place, capture_output=True, text=True, timeout=300,
                                      env={**os.environ, "EXAMPLE_LOSSES": str(losses), "OMP_NUM_THREADS": "1" if ranks else
                                           os.environ.get("OMP_NUM_THREADS", "2"), "MPLBACKEND": "agg"})
                code, said = done.returncode, done.stdout + done.stderr
            except subprocess.TimeoutExpired as error:
                code, said = 1, str(error)
            if code or not losses.exists():
                failed.append(name)
                print(f"---- {name}\n{said[-3000:]}", file=sys.stderr)
                continue
            found = json.loads(losses.read_text())
            yield f"{name}: training" if found else name, found or 0.0
    if failed:
        raise RuntimeError(f"scripts that ended with an error: {', '.join(failed)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("limit", type=int)
    parser.add_argument("ranks", type=int)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    run_script(given.script, given.limit, given.ranks, given.arguments)
