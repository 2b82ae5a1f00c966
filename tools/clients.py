#!/usr/bin/env python3
"""Runs libraries that are made for PyTorch on Arete, unchanged, and compares what they compute with PyTorch:

    tools/clients.py --build build/release/python --torch SITE-PACKAGES-OF-PYTORCH [--venv DIR] [--write] [NAME ...]

Each client (tools/client_programs.py) trains a tiny model with set weights, once under arete.as_torch and once under PyTorch, in processes
of their own; stages are compared number by number. `pytorch_examples` are the scripts of the repository pytorch/examples, from the folder
--examples or from GitHub (tools/example_scripts.py). Nothing else is downloaded but the packages, into a virtual environment (--venv). With
--write the table goes into docs/compatibility.md.
"""
from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys

import client_programs
import example_scripts

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- made: clients -->", "<!-- /made -->"

# Clients, and what is installed of them without its dependencies, so that PyTorch does not come along; `NEEDED` are those dependencies.
PACKAGES = {
    "einops": "einops", "torchmetrics": "torchmetrics", "safetensors": "safetensors", "timm": "timm", "transformers": "transformers",
    "accelerate": "accelerate", "peft": "peft", "lightning": "lightning", "stable_baselines3": "stable-baselines3",
    "torchvision": "torchvision==0.26.0", "torchaudio": "torchaudio==2.11.0", "diffusers": "diffusers",
    "sentence_transformers": "sentence-transformers", "trl": "trl", "open_clip": "open_clip_torch",
    "segmentation_models_pytorch": "segmentation-models-pytorch", "ultralytics": "ultralytics", "kornia": "kornia", "monai": "monai",
    "compressai": "compressai", "vit_pytorch": "vit-pytorch", "x_transformers": "x-transformers", "mambapy": "mambapy",
    "pytorch_metric_learning": "pytorch-metric-learning", "torchdiffeq": "torchdiffeq", "torchsde": "torchsde", "gpytorch": "gpytorch",
    "botorch": "botorch", "pyro": "pyro-ppl", "nflows": "nflows", "normflows": "normflows", "e3nn": "e3nn",
    "torch_geometric": "torch-geometric", "captum": "captum", "skorch": "skorch", "fastai": "fastai", "ignite": "pytorch-ignite",
    "pytorch_tabnet": "pytorch-tabnet", "speechbrain": "speechbrain", "torchinfo": "torchinfo",
    "optimizers": "lion-pytorch", "torchrl": "torchrl", "vector_quantize_pytorch": "vector-quantize-pytorch",
    "denoising_diffusion_pytorch": "denoising-diffusion-pytorch", "piq": "piq", "lpips": "lpips", "pytorch_optimizer": "pytorch_optimizer",
    "local_attention": "local-attention", "entmax": "entmax", "zuko": "zuko", "opacus": "opacus", "tensorly": "tensorly",
    "auraloss": "auraloss", "torchcde": "torchcde", "neuralop": "neuraloperator", "torch_pruning": "torch-pruning",
    "flow_matching": "flow_matching", "nnAudio": "nnaudio", "pytorch_tcn": "pytorch-tcn", "attentions": "perceiver-pytorch",
}
NEEDED = ["numpy", "packaging", "pyyaml", "requests", "tqdm", "filelock", "fsspec", "regex", "psutil", "typing_extensions",
          "huggingface_hub", "tokenizers", "gymnasium", "cloudpickle", "pandas", "matplotlib", "pillow", "jinja2", "setuptools<80", "scipy",
          "scikit-learn", "joblib", "sympy", "networkx", "ftfy", "pyarrow", "dill", "xxhash", "multiprocess", "aiohttp", "httpx", "orjson",
          "multipledispatch", "pyre-extensions", "opencv-python-headless", "polars", "rich", "beartype", "sentencepiece", "frozendict",
          "loguru", "wcwidth", "tabulate", "six", "termcolor"]
ALONE = ["lightning-utilities", "pytorch-lightning", "datasets", "kornia_rs", "linear_operator", "jaxtyping", "wadler-lindig", "pyro-api",
         "opt_einsum", "opt_einsum_fx", "torchsummary", "fastcore", "fastprogress<1.1", "fasttransform", "fastdownload",
         "plum-dispatch<2.10", "trampoline", "boltons", "einx", "rotary-embedding-torch", "ema-pytorch", "torch-einops-utils",
         "ultralytics-thop", "pytorch-msssim", "hyperpyyaml", "ruamel.yaml", "schedulefree", "prodigyopt", "tensordict", "pyvers",
         "hoptorch", "hyper-connections", "tensorly-torch", "performer-pytorch", "axial-positional-embedding", "product-key-memory",
         "CoLT5-attention"]

CLIENTS = {name: getattr(client_programs, f"{name}_client") for name in PACKAGES}
SCRIPTS = "pytorch_examples"  # a client of another kind: see example_scripts


# ---- running them


def plain(value):
    """Numbers of a stage as nested lists."""
    if hasattr(value, "detach"):
        return value.detach().double().tolist()
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else float(value)


def child(name, examples):
    """Runs a client and prints a line of JSON for each stage, its time in seconds, and one of the error that ends it."""
    import time
    import traceback
    import warnings

    warnings.simplefilter("ignore")
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no part of the protocol
    start = time.monotonic()
    try:
        for stage, value in example_scripts.client(examples) if name == SCRIPTS else CLIENTS[name]():
            out.write(json.dumps([stage, plain(value), time.monotonic() - start]) + "\n")
            out.flush()
            start = time.monotonic()
    except BaseException as error:
        traceback.print_exc()
        out.write(json.dumps([None, f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}", 0]) + "\n")
    out.close()


def run(python, name, path, examples, module=()):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "",
                   "TORCHDYNAMO_DISABLE": "1"}
    done = subprocess.run([python, *module, __file__, "--child", name, "--examples", str(examples)], capture_output=True, text=True,
                          env=environment, timeout=1800)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    error = next((value for stage, value, _ in lines if stage is None), None)
    if error is None and done.returncode:
        error = f"the process ended with {done.returncode}"
    done_in = sum(took for _, _, took in lines[1:])  # the first stage imports the library
    return {stage: value for stage, value, _ in lines if stage is not None}, error, done.stderr, done_in


def differs(a, b):
    """The largest difference of two nested lists of numbers, relative to what is large; infinite if their shapes differ."""
    if isinstance(a, list) != isinstance(b, list):
        return math.inf
    if not isinstance(a, list):
        if a == b or math.isnan(a) and math.isnan(b):
            return 0.0
        return abs(a - b) / (1 + abs(b)) if math.isfinite(a) and math.isfinite(b) else math.inf
    return math.inf if len(a) != len(b) else max((differs(x, y) for x, y in zip(a, b)), default=0.0)


def prepare(venv):
    if not (venv / "bin" / "python").exists():
        subprocess.check_call([sys.executable, "-m", "venv", venv])
        pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "-q"]
        subprocess.check_call([*pip, *NEEDED])
        subprocess.check_call([*pip, "--no-deps", *PACKAGES.values(), *ALONE])
    return str(venv / "bin" / "python")


def version_of(name, versions, examples):
    if name == SCRIPTS:
        commit = subprocess.run(["git", "-C", str(examples), "log", "-1", "--format=%cs"], capture_output=True, text=True, check=False)
        return commit.stdout.strip() or "main"
    package = PACKAGES[name].partition("=")[0].lower()
    return next((v for known, v in versions.items() if known.lower().replace("_", "-") == package.replace("_", "-")), "?")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(CLIENTS)} and {SCRIPTS}; all without any")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release" / "python", help="the folder of the package arete")
    parser.add_argument("--torch", help="the folder of PyTorch's package; without it nothing is compared")
    parser.add_argument("--venv", type=pathlib.Path, default=ROOT / "build" / "clients")
    parser.add_argument("--examples", type=pathlib.Path, default=ROOT / "build" / "examples", help="a folder of pytorch/examples")
    parser.add_argument("--write", action="store_true", help="write the rows of the table in docs/compatibility.md")
    parser.add_argument("--errors", action="store_true", help="show the tracebacks")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        return child(given.child, given.examples)
    if given.write and not given.torch:
        parser.error("--write needs --torch: the table says what has been compared")
    python = prepare(given.venv)
    versions = dict(line.split("==") for line in subprocess.check_output([python, "-m", "pip", "freeze"], text=True).splitlines()
                    if "==" in line)
    rows, wrong = [], 0
    for name in given.names or [*CLIENTS, SCRIPTS]:
        if name == SCRIPTS and not example_scripts.fetch(given.examples):
            wrong += 1
            continue
        own, error, said, seconds = run(python, name, [str(given.build)], given.examples, ("-m", "arete.as_torch"))
        if error and given.errors:
            print(said, file=sys.stderr)
        peer, peer_error, peer_said, peer_seconds = run(python, name, [given.torch], given.examples) if given.torch else (own, None, "", 0)
        if peer_error:
            print(f"{name} under PyTorch: {peer_error}\n{peer_said}", file=sys.stderr)
        # AdamW makes much of little: its first steps are as long where a gradient is nearly zero.
        far = {stage: differs(own[stage], peer[stage]) for stage in own if stage in peer}
        bad = [f"{stage} ({by:.1e})" for stage, by in far.items() if by > (1e-3 if "training" in stage else 1e-4)]
        if not error:  # else `reached` says that some are missing
            bad += [f"{stage} (of one library only)" for stage in [*own, *peer] if (stage in own) != (stage in peer)]
        reached = f"all {len(own)} stages" if error is None else f"{len(own)} of {max(len(peer), len(own) + 1)} stages, then {error}"
        wrong += bool(error or bad or peer_error)
        rows.append(f"| {name} | {version_of(name, versions, given.examples)} | {', '.join(own)} | "
                    f"{reached}{'; other numbers: ' + ', '.join(bad) if bad else ''} | {seconds:.1f} | {peer_seconds:.1f} |")
        print(rows[-1], flush=True)
    if given.write:
        text = PAGE.read_text()
        start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
        known = {line.split(" | ")[0]: line for line in [*text[start:end].splitlines(), *rows] if line.startswith("| ")}
        lines = [known[f"| {name}"] for name in [*CLIENTS, SCRIPTS] if f"| {name}" in known]
        table = ["| client | version | stages | reached | Arete, s | PyTorch, s |", "|---|---|---|---|---:|---:|", *lines]
        PAGE.write_text("\n".join([text[:start], *table, text[end:]]))
    return wrong


if __name__ == "__main__":
    sys.exit(main())
