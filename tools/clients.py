#!/usr/bin/env python3
"""Runs libraries that are made for PyTorch on Arete, unchanged, and compares what they compute with PyTorch:

    tools/clients.py --build build/release/python --torch SITE-PACKAGES-OF-PYTORCH [--venv DIR] [--write] [NAME ...]

Each client trains a tiny model with set weights, once under arete.as_torch and once under PyTorch, in processes of their own; stages are
compared number by number. Nothing is downloaded but the packages, into a virtual environment (--venv). With --write the table goes into
docs/compatibility.md.
"""
from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- made: clients -->", "<!-- /made -->"

# What is installed without its dependencies, so that PyTorch does not come along; `NEEDED` are those dependencies.
PACKAGES = {"einops": "einops", "torchmetrics": "torchmetrics", "safetensors": "safetensors", "timm": "timm",
            "transformers": "transformers",
            "accelerate": "accelerate", "peft": "peft", "lightning": "lightning", "stable_baselines3": "stable-baselines3"}
NEEDED = ["numpy", "packaging", "pyyaml", "requests", "tqdm", "filelock", "fsspec", "regex", "psutil", "typing_extensions",
          "huggingface_hub", "tokenizers",
          "gymnasium", "cloudpickle", "pandas", "matplotlib", "pillow", "jinja2", "setuptools<80"]
ALONE = ["lightning-utilities", "pytorch-lightning"]


# ---- the clients: generators of (stage, numbers). They run under both libraries.


def weights_by_name(model, scale=0.2):
    """Parameters and buffers that are the same in both libraries, which draw different random numbers."""
    import numpy
    import torch

    with torch.no_grad():
        for name, value in model.state_dict().items():
            if name.endswith("bias"):
                value.zero_()
            if value.dtype.is_floating_point and "running_" not in name and value.dim() > 1:
                numbers = numpy.random.RandomState(zlib.crc32(name.encode())).standard_normal(tuple(value.shape))
                value.copy_(torch.tensor(numbers * scale, dtype=value.dtype))
    return model


def inputs(*shape, seed=0):
    import numpy
    import torch

    return torch.tensor(numpy.random.RandomState(seed).standard_normal(shape), dtype=torch.float32)


def tokens(*shape, top=50):
    import numpy
    import torch

    return torch.tensor(numpy.random.RandomState(1).randint(3, top, shape))


def steps(model, loss_of, count=3, rate=1e-2):
    """The losses of some steps of AdamW."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def einops_client():
    import torch
    from einops import einsum, rearrange, reduce, repeat
    from einops.layers.torch import Rearrange, Reduce

    x = inputs(2, 3, 8, 8)
    yield "rearrange", rearrange(x, "b c (h p) (w q) -> b (h w) (p q c)", p=2, q=4)
    yield "reduce, repeat", torch.cat([reduce(x, "b c h w -> b c", "max").flatten(), repeat(x[:, :, 0, 0], "b c -> b c r", r=2).flatten()])
    yield "einsum", einsum(x, inputs(8, 5), "b c h w, w k -> b c h k")
    net = torch.nn.Sequential(Rearrange("b c h w -> b (h w) c"), torch.nn.Linear(3, 4), Reduce("b n c -> b c", "mean"))
    yield "layers, training", steps(weights_by_name(net), lambda m: m(x).square().mean())


def torchmetrics_client():
    import torch
    import torchmetrics
    from torchmetrics import classification, regression

    scores, classes = inputs(64, 5).softmax(-1), tokens(64, top=8) % 5
    for name in ("Accuracy", "F1Score", "AUROC", "ConfusionMatrix", "AveragePrecision"):
        metric = getattr(torchmetrics, name)(task="multiclass", num_classes=5)
        for part in range(4):
            metric.update(scores[part * 16 : part * 16 + 16], classes[part * 16 : part * 16 + 16])
        yield name, metric.compute()
    both = torchmetrics.MetricCollection([regression.MeanSquaredError(), regression.PearsonCorrCoef(), regression.R2Score()])
    yield "collection", list(both(inputs(32), inputs(32) + 0.3 * inputs(32, seed=2)).values())
    yield "calibration", classification.MulticlassCalibrationError(num_classes=5)(scores, classes)
    yield "PSNR, SSIM", [torchmetrics.image.PeakSignalNoiseRatio(data_range=1.0)(scores, scores.flip(0)),
                         torchmetrics.image.StructuralSimilarityIndexMeasure(data_range=4.0)(inputs(1, 3, 16, 16), inputs(1, 3, 16, 16)
                                                                                             + 0.1)]
    yield "sync of no group", torch.tensor(float(torchmetrics.MeanMetric()(classes.float())))


def safetensors_client():
    import safetensors.torch
    import torch
    from safetensors import safe_open

    net = weights_by_name(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)))
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "net.safetensors")
        safetensors.torch.save_file(net.state_dict(), file, {"format": "pt"})
        yield "save_file, load_file", [v for _, v in sorted(safetensors.torch.load_file(file).items())]
        with safe_open(file, framework="pt") as opened:
            yield "safe_open", [opened.get_tensor("0.weight"), opened.get_slice("0.weight")[1:, :2]]
        other = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
        safetensors.torch.load_model(other, file)
        yield "load_model", other[0].weight
    packed = safetensors.torch.save({"h": inputs(3).half(), "b": inputs(3).bfloat16(), "i": tokens(3)})
    yield "save, load", [v for _, v in sorted(safetensors.torch.load(packed).items())]


def timm_client():
    import timm
    import torch

    x, y = inputs(2, 3, 32, 32), torch.tensor([0, 3])
    for name, options in (("resnet18", {}), ("vit_tiny_patch16_224", {"img_size": 32}), ("convnext_atto", {}), ("efficientnet_b0", {})):
        net = weights_by_name(timm.create_model(name, num_classes=5, drop_rate=0.0, **options), 0.05)
        yield f"{name}: eval", net.eval()(x)
        if name in ("resnet18", "vit_tiny_patch16_224"):
            yield f"{name}: training", steps(net.train(), lambda m: torch.nn.functional.cross_entropy(m(x), y), 2, 1e-3)
    net = weights_by_name(timm.create_model("resnet18", features_only=True), 0.05)
    yield "features_only", [f.mean() for f in net.eval()(x)]


def transformers_client():
    import torch
    import transformers as t

    ids = tokens(2, 9)
    small = {"vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    bert = weights_by_name(t.BertForSequenceClassification(t.BertConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, hidden_dropout_prob=0,
        attention_probs_dropout_prob=0, **small)))
    yield "BERT: logits", bert.eval()(ids).logits
    yield "BERT: training", steps(bert.train(), lambda m: m(ids, labels=torch.tensor([0, 1])).loss)
    gpt = weights_by_name(t.GPT2LMHeadModel(t.GPT2Config(n_embd=16, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
                                                         **small)))
    yield "GPT-2: training", steps(gpt.train(), lambda m: m(ids, labels=ids).loss)
    yield "GPT-2: generate", gpt.eval().generate(ids, max_new_tokens=8, do_sample=False)
    yield "GPT-2: beams", gpt.generate(ids, max_new_tokens=6, num_beams=3, do_sample=False)
    config = t.LlamaConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=32, **small)
    llama = weights_by_name(t.LlamaForCausalLM(config))
    yield "Llama: logits", llama.eval()(ids).logits
    yield "Llama: generate", llama.generate(ids, max_new_tokens=8, do_sample=False)
    yield "Llama: no cache", llama.generate(ids, max_new_tokens=8, do_sample=False, use_cache=False)
    with tempfile.TemporaryDirectory() as folder:
        llama.save_pretrained(folder)
        yield "Llama: from_pretrained", t.LlamaForCausalLM.from_pretrained(folder)(ids).logits
        if importlib.metadata.version("accelerate"):
            gpt = weights_by_name(gpt)
            arguments = t.TrainingArguments(folder, max_steps=4, per_device_train_batch_size=2, report_to=[], save_strategy="steps",
                                            save_steps=4, logging_steps=1,
                                            use_cpu=True, disable_tqdm=True, learning_rate=1e-3)
            data = [{"input_ids": row, "labels": row} for row in ids]
            trainer = t.Trainer(gpt, arguments, train_dataset=data)
            trainer.train()
            yield "Trainer", [h["loss"] for h in trainer.state.log_history if "loss" in h]


def accelerate_in_two(file):
    import torch
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    net = weights_by_name(torch.nn.Linear(4, 1))
    net, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1))
    accelerator.backward(net(inputs(8, 4, seed=accelerator.process_index)).square().mean())
    optimizer.step()
    if accelerator.is_main_process:
        torch.save(accelerator.unwrap_model(net).state_dict(), file)


def accelerate_client():
    import accelerate
    import torch
    from accelerate import Accelerator
    from torch.utils.data import DataLoader, TensorDataset

    for launch, options in ((accelerate.debug_launcher, {}), (accelerate.notebook_launcher, {"mixed_precision": "no"})):
        with tempfile.TemporaryDirectory() as folder:
            launch(accelerate_in_two, (os.path.join(folder, "net.pt"),), num_processes=2, **options)
            yield launch.__name__, torch.load(os.path.join(folder, "net.pt"))["weight"]
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    net = weights_by_name(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)))
    loader = DataLoader(TensorDataset(inputs(8, 4), inputs(8, 1)), batch_size=2)
    net, optimizer, loader = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1), loader)
    losses = []
    for _ in range(2):
        for x, y in loader:
            with accelerator.accumulate(net):
                loss = torch.nn.functional.mse_loss(net(x), y)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather(loss).item())
    yield "training", losses
    with tempfile.TemporaryDirectory() as folder:
        accelerator.save_state(folder)
        accelerator.load_state(folder)
    yield "save_state, load_state", net(inputs(1, 4))


def peft_client():
    import peft
    import transformers as t

    ids = tokens(2, 9)
    gpt = weights_by_name(t.GPT2LMHeadModel(t.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=50, resid_pdrop=0, embd_pdrop=0,
                                                         attn_pdrop=0)))
    net = weights_by_name(peft.get_peft_model(gpt, peft.LoraConfig(r=4, target_modules=["c_attn"], task_type="CAUSAL_LM")))
    yield "LoRA: training", steps(net, lambda m: m(input_ids=ids, labels=ids).loss)
    with tempfile.TemporaryDirectory() as folder:
        net.save_pretrained(folder)
        base = weights_by_name(t.GPT2LMHeadModel(gpt.config))
        yield "LoRA: from_pretrained", peft.PeftModel.from_pretrained(base, folder).eval()(input_ids=ids).logits
    yield "LoRA: merged", net.merge_and_unload().eval()(ids).logits


def fabric_in_two(fabric, file):
    import torch
    from lightning.fabric.plugins.collectives import TorchCollective

    net = weights_by_name(torch.nn.Linear(4, 1))
    net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
    fabric.backward(net(inputs(8, 4, seed=fabric.global_rank)).square().mean())
    optimizer.step()
    collective = TorchCollective().setup().create_group(ranks=[0, 1])
    ranks = [torch.zeros(1) for _ in range(2)]
    collective.all_gather(ranks, torch.tensor([float(fabric.global_rank)]))
    collective.teardown()
    fabric.save(file, {"weight": net.weight.detach(), "ranks": torch.cat(ranks)})


def lightning_client():
    import lightning
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "net.pt")
        lightning.Fabric(accelerator="cpu", devices=2, strategy="ddp_fork").launch(fabric_in_two, file)
        yield "Fabric: two processes", list(torch.load(file).values())
    losses = []

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = weights_by_name(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))

        def training_step(self, batch, number):
            loss = torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])
            losses.append(loss.item())
            self.log("loss", loss)
            return loss

        def validation_step(self, batch, number):
            self.log("val", torch.nn.functional.mse_loss(self.net(batch[0]), batch[1]))

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=1e-2)

    loader = DataLoader(TensorDataset(inputs(8, 4), inputs(8, 1)), batch_size=2)
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False, default_root_dir=folder,
                                    enable_model_summary=True, gradient_clip_val=1.0)
        net = Net()
        trainer.fit(net, loader, loader)
        yield "fit", losses
        yield "validate", list(trainer.validate(net, loader, verbose=False)[0].values())
        file = os.path.join(folder, "net.ckpt")
        trainer.save_checkpoint(file)
        yield "load_from_checkpoint", Net.load_from_checkpoint(file).net(inputs(1, 4))


def stable_baselines3_client():
    import torch
    from stable_baselines3 import DQN, PPO

    for kind, options in ((PPO, {"n_steps": 64, "batch_size": 32}), (DQN, {"learning_starts": 20, "buffer_size": 100})):
        agent = kind("MlpPolicy", "CartPole-v1", seed=1, device="cpu", verbose=0, **options)
        agent.learn(128)
        yield f"{kind.__name__}: learns", torch.tensor(float(agent.num_timesteps))
        weights_by_name(agent.policy)
        observations = inputs(16, 4).numpy()
        yield f"{kind.__name__}: predicts", torch.tensor(agent.predict(observations, deterministic=True)[0])
        with tempfile.TemporaryDirectory() as folder:
            agent.save(os.path.join(folder, "agent"))
            again = kind.load(os.path.join(folder, "agent"), device="cpu")
            yield f"{kind.__name__}: saved", torch.tensor(again.predict(observations, deterministic=True)[0])


CLIENTS = {name: globals()[f"{name}_client"] for name in PACKAGES}


# ---- running them


def plain(value):
    """Numbers of a stage as nested lists."""
    if hasattr(value, "detach"):
        return value.detach().double().tolist()
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else float(value)


def child(name):
    """Runs a client and prints a line of JSON for each stage, and one of the error that ends it."""
    import traceback
    import warnings

    warnings.simplefilter("ignore")
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no part of the protocol
    try:
        for stage, value in CLIENTS[name]():
            out.write(json.dumps([stage, plain(value)]) + "\n")
            out.flush()
    except BaseException as error:
        traceback.print_exc()
        out.write(json.dumps([None, f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"]) + "\n")
    out.close()


def run(python, name, path, module=()):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "",
                   "TORCHDYNAMO_DISABLE": "1"}
    done = subprocess.run([python, *module, __file__, "--child", name], capture_output=True, text=True, env=environment, timeout=600)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    error = next((value for stage, value in lines if stage is None), None)
    if error is None and done.returncode:
        error = f"the process ended with {done.returncode}"
    return {stage: value for stage, value in lines if stage is not None}, error, done.stderr


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(CLIENTS)}; all without any")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release" / "python", help="the folder of the package arete")
    parser.add_argument("--torch", help="the folder of PyTorch's package; without it nothing is compared")
    parser.add_argument("--venv", type=pathlib.Path, default=ROOT / "build" / "clients")
    parser.add_argument("--write", action="store_true", help="write the rows of the table in docs/compatibility.md")
    parser.add_argument("--errors", action="store_true", help="show the tracebacks")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        return child(given.child)
    if given.write and not given.torch:
        parser.error("--write needs --torch: the table says what has been compared")
    python = prepare(given.venv)
    versions = dict(line.split("==") for line in subprocess.check_output([python, "-m", "pip", "freeze"], text=True).splitlines()
                    if "==" in line)
    rows, wrong = [], 0
    for name in given.names or CLIENTS:
        own, error, said = run(python, name, [str(given.build)], ("-m", "arete.as_torch"))
        if error and given.errors:
            print(said, file=sys.stderr)
        peer, peer_error, peer_said = run(python, name, [given.torch]) if given.torch else (own, None, "")
        if peer_error:
            print(f"{name} under PyTorch: {peer_error}\n{peer_said}", file=sys.stderr)
        # AdamW makes much of little: its first steps are as long where a gradient is nearly zero.
        far = {stage: differs(own[stage], peer[stage]) for stage in own if stage in peer}
        bad = [f"{stage} ({by:.1e})" for stage, by in far.items() if by > (1e-3 if "training" in stage else 1e-4)]
        if not error:  # else `reached` says that some are missing
            bad += [f"{stage} (of one library only)" for stage in [*own, *peer] if (stage in own) != (stage in peer)]
        reached = f"all {len(own)} stages" if error is None else f"{len(own)} of {max(len(peer), len(own) + 1)} stages, then {error}"
        version = versions.get(PACKAGES[name], versions.get(PACKAGES[name].replace("-", "_"), "?"))
        wrong += bool(error or bad or peer_error)
        rows.append(f"| {name} | {version} | {', '.join(own)} | {reached}{'; other numbers: ' + ', '.join(bad) if bad else ''} |")
        print(rows[-1], flush=True)
    if given.write:
        text = PAGE.read_text()
        start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
        known = {line.split(" | ")[0]: line for line in [*text[start:end].splitlines(), *rows] if line.startswith("| ")}
        lines = [known[f"| {name}"] for name in CLIENTS if f"| {name}" in known]
        table = ["| client | version | stages | reached |", "|---|---|---|---|", *lines]
        PAGE.write_text("\n".join([text[:start], *table, text[end:]]))
    return wrong


if __name__ == "__main__":
    sys.exit(main())
