"""What tools/clients.py runs: small programs of libraries that are made for PyTorch, generators of (stage, numbers)."""
from __future__ import annotations

import importlib.metadata
import os
import tempfile
import zlib


def weights_by_name(model, scale=0.2):
    """Parameters and buffers that are the same in both libraries, which draw different random numbers."""
    import numpy
    import torch

    rows = {name for name, p in model.named_parameters() if p.dim() == 1 and p.dtype.is_floating_point and (p != p[:1]).any()}
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if not isinstance(value, torch.Tensor):  # settings that some models keep among them
                continue
            value = torch.view_as_real(value) if value.is_complex() else value
            if name.endswith("bias"):
                value.zero_()
            random = value.dim() > 1 or name in rows  # vectors are ones, zeros or random
            if value.dtype.is_floating_point and "running_" not in name and random:
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




def diffusers_client():
    import diffusers as d
    import torch

    sizes = {"block_out_channels": (8, 16), "norm_num_groups": 4}
    net = weights_by_name(d.UNet2DModel(sample_size=8, in_channels=3, out_channels=3, layers_per_block=1, down_block_types=(
        "DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=8, **sizes), 0.1)
    noise, images, times = inputs(2, 3, 8, 8), inputs(2, 3, 8, 8, seed=3), torch.tensor([10, 500])
    scheduler = d.DDPMScheduler(num_train_timesteps=1000)
    noisy = scheduler.add_noise(images, noise, times)
    yield "UNet2DModel: training", steps(net, lambda m: torch.nn.functional.mse_loss(m(noisy, times).sample, noise))
    net = weights_by_name(net, 0.1).eval()
    for kind in ("DDIM", "EulerDiscrete", "DPMSolverMultistep", "UniPCMultistep", "HeunDiscrete"):
        scheduler = getattr(d, f"{kind}Scheduler")(num_train_timesteps=1000)
        scheduler.set_timesteps(5)
        x = noise * scheduler.init_noise_sigma
        with torch.no_grad():
            for t in scheduler.timesteps:
                x = scheduler.step(net(scheduler.scale_model_input(x, t), t).sample, t, x).prev_sample
        yield f"{kind}: samples", x
    net = weights_by_name(d.UNet2DConditionModel(
        sample_size=8, layers_per_block=1, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), cross_attention_dim=12, attention_head_dim=4, **sizes), 0.1)
    yield "UNet2DConditionModel", net(inputs(2, 4, 8, 8), times, inputs(2, 5, 12)).sample
    kl = weights_by_name(d.AutoencoderKL(down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
                                         latent_channels=4, **sizes), 0.1)
    yield "AutoencoderKL: training", steps(kl, lambda m: m(images).sample.square().mean())
    dit = weights_by_name(d.DiTTransformer2DModel(num_attention_heads=2, attention_head_dim=8, in_channels=4, num_layers=2, sample_size=8,
                                                  num_embeds_ada_norm=10, norm_num_groups=4), 0.1)
    yield "DiT", dit.eval()(inputs(2, 4, 8, 8), timestep=times, class_labels=torch.tensor([1, 2])).sample
    pipeline = d.DDIMPipeline(weights_by_name(d.UNet2DModel.from_config(
        {"sample_size": 8, "layers_per_block": 1, "down_block_types": ("DownBlock2D",) * 2, "up_block_types": ("UpBlock2D",) * 2, **sizes}),
        0.1), d.DDIMScheduler())
    pipeline.set_progress_bar_config(disable=True)
    with tempfile.TemporaryDirectory() as folder:
        pipeline.save_pretrained(folder)
        again = d.DDIMPipeline.from_pretrained(folder)
        yield "pipeline: from_pretrained", again.unet(noise, times).sample
    yield "pipeline: image", torch.tensor(float(pipeline(num_inference_steps=2, output_type="np").images.shape[1]))


def sentence_transformers_client():
    import sentence_transformers as s
    import torch
    import transformers as t
    from sentence_transformers import losses, util
    from sentence_transformers.models import Pooling, Transformer

    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "vocab.txt"), "w") as file:
            file.write("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"the a cat dog sat ran on mat in rain".split()]))
        t.BertTokenizer(os.path.join(folder, "vocab.txt")).save_pretrained(folder)
        weights_by_name(t.BertModel(t.BertConfig(vocab_size=15, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                                                 intermediate_size=32, hidden_dropout_prob=0, attention_probs_dropout_prob=0))
                        ).save_pretrained(folder)
        word = Transformer(folder)
        net = s.SentenceTransformer(modules=[word, Pooling(16)], device="cpu")
        texts = ["the cat sat on the mat", "a dog ran in rain", "the dog sat"]
        found = net.encode(texts, convert_to_tensor=True)
        yield "encode", found
        yield "cos_sim, search", [util.cos_sim(found, found), torch.tensor([h["corpus_id"] for h in util.semantic_search(found, found)[0]])]
        loss = losses.MultipleNegativesRankingLoss(net)
        features = [net.tokenize(texts), net.tokenize(texts[::-1])]
        yield "ranking loss: training", steps(net, lambda m: loss([dict(f) for f in features], None), 3, 1e-3)
        net.save(folder + "/saved")
        yield "saved", s.SentenceTransformer(folder + "/saved", device="cpu").encode(texts, convert_to_tensor=True)


def trl_client():
    import datasets
    import torch
    import transformers as t
    import trl

    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "vocab.txt"), "w") as file:
            file.write("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"the a cat dog sat ran on mat in rain".split()]))
        tokenizer = t.BertTokenizer(os.path.join(folder, "vocab.txt"))
        tokenizer.eos_token = "[SEP]"

        def model():
            config = t.GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=32, vocab_size=15, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
                                  bos_token_id=2, eos_token_id=3, pad_token_id=0)
            return weights_by_name(t.GPT2LMHeadModel(config))

        common = {"max_steps": 3, "per_device_train_batch_size": 4, "report_to": [], "save_strategy": "no", "logging_steps": 1,
                  "use_cpu": True, "bf16": False, "disable_tqdm": True, "learning_rate": 1e-3, "gradient_checkpointing": False}
        texts = ["the cat sat on the mat", "a dog ran in rain"] * 2  # one batch, in whatever order
        trainer = trl.SFTTrainer(model(), trl.SFTConfig(folder, max_length=16, dataset_text_field="text", **common),
                                 train_dataset=datasets.Dataset.from_dict({"text": texts}), processing_class=tokenizer)
        trainer.train()
        yield "SFTTrainer: training", [h["loss"] for h in trainer.state.log_history if "loss" in h]
        pairs = {"prompt": ["the cat", "a dog"] * 2, "chosen": ["sat on the mat", "ran"] * 2, "rejected": ["ran in rain", "the mat"] * 2}
        trainer = trl.DPOTrainer(model(), ref_model=model(), args=trl.DPOConfig(folder, max_length=16, **common),
                                 train_dataset=datasets.Dataset.from_dict(pairs), processing_class=tokenizer)
        trainer.train()
        yield "DPOTrainer: training", [h["loss"] for h in trainer.state.log_history if "loss" in h]
        trainer = trl.RewardTrainer(weights_by_name(t.GPT2ForSequenceClassification(t.GPT2Config(
            n_embd=16, n_layer=1, n_head=2, n_positions=32, vocab_size=15, num_labels=1, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
            pad_token_id=0))), trl.RewardConfig(folder, max_length=16, **common), train_dataset=datasets.Dataset.from_dict(
                {k: pairs[k] for k in ("chosen", "rejected")}), processing_class=tokenizer)
        trainer.train()
        yield "RewardTrainer: training", [h["loss"] for h in trainer.state.log_history if "loss" in h]


def open_clip_client():
    import open_clip
    import torch
    from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg

    net = weights_by_name(CLIP(16, CLIPVisionCfg(layers=2, width=32, head_width=16, patch_size=8, image_size=16),
                               CLIPTextCfg(context_length=8, vocab_size=50, width=32, heads=2, layers=2)))
    images, texts = inputs(3, 3, 16, 16), tokens(3, 8)
    loss = open_clip.ClipLoss()
    yield "CLIP: features", list(net.eval()(images, texts)[:2])
    yield "CLIP: training", steps(net.train(), lambda m: loss(*m(images, texts)), 3, 1e-3)
    yield "tokenizer", open_clip.get_tokenizer("ViT-B-32")(["a cat on a mat"])
    net = weights_by_name(CLIP(16, CLIPVisionCfg(layers=(1, 1, 1, 1), width=16, head_width=16, image_size=32),
                               CLIPTextCfg(context_length=8, vocab_size=50, width=32, heads=2, layers=2)), 0.05)
    yield "ResNet: image features", net.eval().encode_image(inputs(2, 3, 32, 32))


def segmentation_models_pytorch_client():
    import segmentation_models_pytorch as smp
    import torch

    x, masks = inputs(2, 3, 64, 64), (inputs(2, 1, 64, 64, seed=5) > 0).float()
    for kind in ("Unet", "FPN", "DeepLabV3Plus", "Segformer"):
        net = weights_by_name(getattr(smp, kind)("resnet18", encoder_weights=None, classes=1), 0.05)
        yield f"{kind}: mask", net.eval()(x)
        if kind == "Unet":
            for loss in (smp.losses.DiceLoss("binary"), smp.losses.FocalLoss("binary"), smp.losses.LovaszLoss("binary")):
                yield f"{type(loss).__name__}: training", steps(weights_by_name(net, 0.05).train(), lambda m: loss(m(x), masks), 2, 1e-4)
    found = smp.metrics.get_stats((x[:, :1] > 0).long(), masks.long(), mode="binary")
    yield "metrics", smp.metrics.iou_score(*found, reduction="micro")


def kornia_client():
    import kornia as K
    import torch

    x = inputs(2, 3, 16, 16).sigmoid()
    for name, function in (
            ("filters", lambda v: K.filters.gaussian_blur2d(v, (3, 3), (1.0, 1.0)) + K.filters.sobel(v) + K.filters.median_blur(v, (3, 3))),
            ("canny", lambda v: K.filters.canny(v)[0]),
            ("color", lambda v: torch.cat([K.color.rgb_to_hsv(v), K.color.rgb_to_lab(v) / 100, K.color.rgb_to_ycbcr(v)], 1)),
            ("rotate", lambda v: K.geometry.rotate(v, torch.tensor([30.0, 45.0]))),
            ("warp_perspective", lambda v: K.geometry.warp_perspective(
                v, torch.tensor([[[1, 0.1, 0], [0, 1, 0.2], [0, 0.001, 1.0]]]).repeat(2, 1, 1), (16, 16))),
            ("features", lambda v: K.feature.harris_response(v[:, :1])),
            ("morphology", lambda v: K.morphology.dilation(v, torch.ones(3, 3)) - K.morphology.erosion(v, torch.ones(3, 3))),
            ("enhance", lambda v: K.enhance.equalize_clahe(v) + K.enhance.adjust_contrast(v, 0.7))):
        yield name, function(x)
    yield "losses", [K.losses.ssim_loss(x, x.flip(0), 5), K.losses.focal_loss(inputs(4, 3), torch.tensor([0, 1, 2, 1]), 0.5, 2.0, "mean"),
                     K.losses.total_variation(x).mean()]
    noise = inputs(2, 3, 16, 16).requires_grad_()
    K.losses.ssim_loss(K.filters.gaussian_blur2d(noise, (3, 3), (1.0, 1.0)), x, 5).backward()
    yield "gradient", noise.grad
    points = inputs(1, 8, 2)
    yield "homography", K.geometry.find_homography_dlt(points, points @ torch.tensor([[1.0, 0.2], [0.1, 0.9]]) + 0.3)
    yield "augmentation", torch.tensor(float(K.augmentation.RandomHorizontalFlip(p=1.0)(x).sum()))


def pytorch_metric_learning_client():
    import torch
    from pytorch_metric_learning import distances, losses, miners

    x, y = inputs(12, 6), torch.tensor([0, 1, 2] * 4)
    for loss in (losses.TripletMarginLoss(), losses.ContrastiveLoss(), losses.NTXentLoss(), losses.CircleLoss(), losses.SupConLoss(),
                 losses.MultiSimilarityLoss(), losses.LiftedStructureLoss(),
                 losses.TripletMarginLoss(distance=distances.CosineSimilarity())):
        net = weights_by_name(torch.nn.Linear(6, 4))
        yield f"{type(loss).__name__}, {type(loss.distance).__name__}: training", steps(net, lambda m: loss(m(x), y))
    loss = weights_by_name(losses.ArcFaceLoss(3, 4))
    net = weights_by_name(torch.nn.Linear(6, 4))
    yield "ArcFaceLoss: training", steps(net, lambda m: loss(m(x), y))
    yield "miner", torch.stack(miners.MultiSimilarityMiner()(x, y)[:2]).float().mean()


def torchdiffeq_client():
    import torch
    from torchdiffeq import odeint, odeint_adjoint, odeint_event

    class Field(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))

        def forward(self, t, y):
            return self.net(y) * torch.cos(t)

    y, t = inputs(4, 2), torch.linspace(0, 1, 5)
    for method in ("dopri5", "dopri8", "bosh3", "adaptive_heun", "rk4", "implicit_adams"):
        yield method, odeint(weights_by_name(Field()), y, t, method=method, options={"step_size": 0.1} if method in (
            "rk4", "implicit_adams") else None)
    yield "training", steps(weights_by_name(Field()), lambda m: odeint(m, y, t).square().mean())
    yield "adjoint: training", steps(weights_by_name(Field()), lambda m: odeint_adjoint(m, y, t).square().mean())
    fall = odeint_event(lambda t, s: torch.stack([s[1], -9.8 * torch.ones_like(s[1])]), torch.tensor([2.0, 0.0]), torch.tensor(0.0),
                        event_fn=lambda t, s: s[0])
    yield "event", fall[0]


def torchsde_client():
    import torch
    import torchsde

    class Process(torch.nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self):
            super().__init__()
            self.drift = torch.nn.Linear(2, 2)

        def f(self, t, y):
            return self.drift(y)

        def g(self, t, y):
            return 0.0 * y

    net, t = weights_by_name(Process()), torch.linspace(0, 1, 4)
    yield "sdeint", torchsde.sdeint(net, inputs(3, 2), t, dt=0.1)  # without noise: random numbers differ
    yield "training", steps(net, lambda m: torchsde.sdeint(m, inputs(3, 2), t, dt=0.1).square().mean())
    yield "adjoint: training", steps(weights_by_name(net), lambda m: torchsde.sdeint_adjoint(m, inputs(3, 2), t, dt=0.1, method="srk"
                                                                                           ).square().mean())


def gpytorch_client():
    import gpytorch
    import torch

    x = torch.linspace(0, 1, 20)
    y = torch.sin(6 * x) + 0.05 * inputs(20)

    class Process(gpytorch.models.ExactGP):
        def __init__(self, likelihood, kernel):
            super().__init__(x, y, likelihood)
            self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), gpytorch.kernels.ScaleKernel(kernel)

        def forward(self, v):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(v), self.covar_module(v))

    for kernel in (gpytorch.kernels.RBFKernel(), gpytorch.kernels.MaternKernel(nu=2.5), gpytorch.kernels.PeriodicKernel()):
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        net = Process(likelihood, kernel)
        marginal = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, net)
        yield f"{type(kernel).__name__}: training", steps(net.train(), lambda m: -marginal(m(x), y), 5, 0.1)
        net.eval(), likelihood.eval()
        with torch.no_grad(), gpytorch.settings.fast_pred_var():
            found = likelihood(net(torch.linspace(0, 1.2, 7)))
            yield f"{type(kernel).__name__}: prediction", [found.mean, found.variance]

    class Variational(gpytorch.models.ApproximateGP):
        def __init__(self):
            points = torch.linspace(0, 1, 5)[:, None]
            of_points = gpytorch.variational.CholeskyVariationalDistribution(5)
            super().__init__(gpytorch.variational.VariationalStrategy(self, points, of_points))
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, v):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(v), self.covar_module(v))

    net, likelihood = Variational(), gpytorch.likelihoods.GaussianLikelihood()
    net.variational_strategy.variational_params_initialized.fill_(1)
    elbo = gpytorch.mlls.VariationalELBO(likelihood, net, num_data=20)
    yield "variational: training", steps(net, lambda m: -elbo(m(x[:, None]), y), 4, 0.05)


def botorch_client():
    import botorch
    import torch
    from botorch.acquisition import LogExpectedImprovement, UpperConfidenceBound, qLogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
    from botorch.sampling import SobolQMCNormalSampler
    from gpytorch.mlls import ExactMarginalLogLikelihood

    x = inputs(10, 2).double().sigmoid()
    y = -(x - 0.4).square().sum(1, keepdim=True)
    net = SingleTaskGP(x, y)
    yield "posterior", [net.posterior(x[:3] + 0.1).mean, net.posterior(x[:3] + 0.1).variance]
    fit_gpytorch_mll(ExactMarginalLogLikelihood(net.likelihood, net))
    with torch.no_grad():
        yield "fit: training", net.posterior(x[:3] + 0.1).mean
    acquisition = LogExpectedImprovement(net, best_f=y.max())
    yield "LogExpectedImprovement", torch.exp(acquisition(x[:4, None] + 0.05)).clamp(max=1)
    yield "UpperConfidenceBound", UpperConfidenceBound(net, beta=0.2)(x[:4, None] + 0.05)
    torch.manual_seed(0)
    candidate, value = optimize_acqf(UpperConfidenceBound(net, beta=0.1), torch.stack([torch.zeros(2), torch.ones(2)]).double(), q=1,
                                     num_restarts=3, raw_samples=32)
    yield "optimize_acqf: training", value
    found = qLogExpectedImprovement(net, y.max(), sampler=SobolQMCNormalSampler(torch.Size([8]), seed=3))(x[None, :2])
    yield "qLogExpectedImprovement", torch.tensor(float(found.isfinite().all()))


def pyro_client():
    import pyro
    import pyro.distributions as dist
    import torch
    from pyro.infer import MCMC, NUTS, SVI, Trace_ELBO, TraceEnum_ELBO, config_enumerate
    from pyro.infer.autoguide import AutoDelta, AutoNormal
    from pyro.optim import Adam

    data = inputs(20) + 2

    def model(values):
        loc = pyro.sample("loc", dist.Normal(0.0, 10.0))
        scale = pyro.sample("scale", dist.LogNormal(0.0, 1.0))
        with pyro.plate("data", len(values)):
            return pyro.sample("obs", dist.Normal(loc, scale), obs=values)

    pyro.clear_param_store()
    svi = SVI(model, AutoDelta(model, init_loc_fn=pyro.infer.autoguide.init_to_value(values={
        "loc": torch.tensor(0.5), "scale": torch.tensor(1.5)})), Adam({"lr": 0.05}), Trace_ELBO())
    yield "SVI, AutoDelta: training", [svi.step(data) for _ in range(5)]
    yield "trace: log_prob", pyro.poutine.trace(pyro.poutine.condition(model, data={"loc": torch.tensor(1.0), "scale": torch.tensor(2.0)})
                                                ).get_trace(data).log_prob_sum()
    pyro.clear_param_store()
    svi = SVI(model, AutoNormal(model), Adam({"lr": 0.05}), Trace_ELBO(num_particles=2))
    yield "SVI, AutoNormal", torch.tensor(float(all(abs(svi.step(data)) < 1e6 for _ in range(5))))

    @config_enumerate
    def mixture(values):
        weights = pyro.param("weights", torch.tensor([0.4, 0.6]), constraint=dist.constraints.simplex)
        locs = pyro.param("locs", torch.tensor([0.0, 3.0]))
        with pyro.plate("data", len(values)):
            kind = pyro.sample("kind", dist.Categorical(weights))
            pyro.sample("obs", dist.Normal(locs[kind], 1.0), obs=values)

    pyro.clear_param_store()
    svi = SVI(mixture, lambda values: None, Adam({"lr": 0.05}), TraceEnum_ELBO(max_plate_nesting=1))
    yield "SVI, enumeration: training", [svi.step(data) for _ in range(4)]
    pyro.set_rng_seed(1)
    mcmc = MCMC(NUTS(model, jit_compile=False), num_samples=20, warmup_steps=20, disable_progbar=True)
    mcmc.run(data)
    yield "NUTS", torch.tensor(float(abs(mcmc.get_samples()["loc"].mean() - data.mean()) < 0.5))


def torch_geometric_client():
    import torch
    import torch_geometric as g
    from torch_geometric import nn
    from torch_geometric.data import Batch, Data, HeteroData
    from torch_geometric.loader import DataLoader

    edges = torch.tensor([[0, 1, 1, 2, 3, 0, 4], [1, 0, 2, 1, 0, 3, 2]])
    data = Data(x=inputs(5, 4), edge_index=edges, y=torch.tensor([0, 1, 0, 1, 1]))
    for kind, options in (("GCNConv", {}), ("SAGEConv", {}), ("GATConv", {}), ("GATv2Conv", {"heads": 2, "concat": False}),
                          ("TransformerConv", {}), ("ChebConv", {"K": 2}), ("GraphConv", {}), ("SGConv", {}), ("TAGConv", {}),
                          ("ARMAConv", {})):
        net = weights_by_name(getattr(nn, kind)(4, 2, **options))
        yield f"{kind}: training", steps(net, lambda m: torch.nn.functional.cross_entropy(m(data.x, data.edge_index), data.y))
    net = weights_by_name(nn.GIN(4, 8, 2, 2))
    batch = Batch.from_data_list([data, data])
    yield "GIN, pooling", nn.global_mean_pool(net.eval()(batch.x, batch.edge_index), batch.batch)
    yield "loader", next(iter(DataLoader([data] * 4, batch_size=3))).edge_index
    yield "transforms", [g.transforms.AddSelfLoops()(data.clone()).edge_index, g.utils.degree(edges[0], 5),
                         g.utils.to_dense_adj(edges)[0]]
    hetero = HeteroData()
    hetero["a"].x, hetero["b"].x = inputs(3, 4), inputs(2, 4, seed=3)
    hetero["a", "to", "b"].edge_index = torch.tensor([[0, 1, 2], [0, 1, 1]])
    conv = weights_by_name(nn.HeteroConv({("a", "to", "b"): nn.SAGEConv((4, 4), 3)}))
    yield "HeteroConv", conv(hetero.x_dict, hetero.edge_index_dict)["b"]


def captum_client():
    import captum.attr as a
    import torch

    net = weights_by_name(torch.nn.Sequential(torch.nn.Conv2d(1, 3, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(),
                                              torch.nn.Linear(27, 2))).eval()
    x = inputs(2, 1, 8, 8)
    for kind, options in (("IntegratedGradients", {}), ("Saliency", {}), ("DeepLift", {}), ("InputXGradient", {}), ("GuidedBackprop", {}),
                          ("Deconvolution", {}), ("Occlusion", {"sliding_window_shapes": (1, 4, 4)}), ("FeatureAblation", {})):
        yield kind, getattr(a, kind)(net).attribute(x.clone().requires_grad_(), target=1, **options)
    for kind in ("LayerGradCam", "LayerConductance", "LayerActivation", "LayerIntegratedGradients"):
        options = {} if kind == "LayerActivation" else {"target": 1}
        yield kind, getattr(a, kind)(net, net[0]).attribute(x, **options)


def skorch_client():
    import numpy
    import torch
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from skorch import NeuralNetClassifier, NeuralNetRegressor
    from skorch.callbacks import EpochScoring, LRScheduler

    class Net(torch.nn.Sequential):
        def __init__(self):
            super().__init__(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
            weights_by_name(self)

    x = inputs(40, 6).numpy()
    y = (x[:, 0] > 0).astype(numpy.int64)
    net = NeuralNetClassifier(Net, criterion=torch.nn.CrossEntropyLoss, max_epochs=3, lr=0.1, verbose=0, train_split=None, callbacks=[
        EpochScoring("accuracy"), LRScheduler("StepLR", step_size=1)])
    net.fit(x, y)
    yield "fit: training", net.history[:, "train_loss"]
    yield "predict_proba", torch.tensor(net.predict_proba(x[:5]))
    yield "cross_val_score", list(cross_val_score(make_pipeline(StandardScaler(), net), x, y, cv=2))
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "net.pt")
        net.save_params(file)
        again = NeuralNetClassifier(Net).initialize()
        again.load_params(file)
        yield "load_params", torch.tensor(again.predict(x[:5]))
    net = NeuralNetRegressor(Net, max_epochs=2, verbose=0, train_split=None).fit(x, x[:, :2])
    yield "regressor: training", net.history[:, "train_loss"]


def fastai_client():
    import fastai.callback.schedule  # noqa: F401  (gives Learner its fit_one_cycle)
    import torch
    from fastai.basics import DataLoader, DataLoaders, Learner
    from fastai.callback.training import GradientClip
    from fastai.metrics import accuracy

    x, y = inputs(32, 6), torch.tensor([0, 1] * 16)
    pairs = list(zip(x, y))
    data = DataLoaders(DataLoader(pairs, bs=8), DataLoader(pairs, bs=8), device=torch.device("cpu"))
    net = weights_by_name(torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)))
    with tempfile.TemporaryDirectory() as folder:
        learner = Learner(data, net, loss_func=torch.nn.functional.cross_entropy, metrics=accuracy, cbs=[GradientClip], path=folder)
        with learner.no_bar(), learner.no_logging():
            learner.fit_one_cycle(2, 0.01)
        yield "fit_one_cycle: training", [v for row in learner.recorder.values for v in row]
        with learner.no_bar():
            yield "get_preds", learner.get_preds()[0]
        learner.save("net")
        learner.load("net")
        yield "load", learner.model(x[:4])


def monai_client():
    import torch
    from monai import losses, metrics, transforms
    from monai.inferers import sliding_window_inference
    from monai.networks import nets

    x, y = inputs(1, 1, 16, 16, 16), (inputs(1, 1, 16, 16, 16, seed=4) > 0).float()
    net = weights_by_name(nets.UNet(3, 1, 1, channels=(4, 8), strides=(2,), num_res_units=1), 0.1)
    for loss in (losses.DiceLoss(sigmoid=True), losses.FocalLoss(), losses.TverskyLoss(sigmoid=True)):
        yield f"UNet, {type(loss).__name__}: training", steps(weights_by_name(net, 0.1), lambda m: loss(m(x), y))
    net.eval()
    yield "sliding_window_inference", sliding_window_inference(x, (8, 8, 8), 2, net, overlap=0.5, mode="gaussian")
    for name, other in (("DenseNet121", lambda: nets.DenseNet121(2, 1, 2, init_features=8, growth_rate=4)),
                        ("SegResNet", lambda: nets.SegResNet(2, 8, 1, 1)),
                        ("UNETR", lambda: nets.UNETR(1, 1, (16, 16, 16), 4, 16, 32, 2)),
                        ("SwinUNETR", lambda: nets.SwinUNETR(1, 1, feature_size=12, spatial_dims=2))):
        value = {"UNETR": x, "SwinUNETR": inputs(1, 1, 64, 64)}.get(name, inputs(1, 1, 32, 32))
        yield name, weights_by_name(other(), 0.05).eval()(value)
    metric = metrics.DiceMetric()
    metric((x > 0).float(), y)
    yield "DiceMetric", metric.aggregate()
    chain = transforms.Compose([transforms.ScaleIntensity(), transforms.Resize((8, 8, 8)), transforms.Rotate90(spatial_axes=(0, 1)),
                                transforms.NormalizeIntensity(), transforms.Flip(0)])
    yield "transforms", chain(x[0])


def e3nn_client():
    import torch
    from e3nn import nn, o3

    x = inputs(4, 3)
    yield "spherical_harmonics", o3.spherical_harmonics([0, 1, 2, 3], x, normalize=True)
    yield "wigner_3j, D", [o3.wigner_3j(1, 2, 3), o3.wigner_D(2, torch.tensor(0.3), torch.tensor(0.5), torch.tensor(0.7))]
    a, b = o3.Irreps("4x0e + 2x1o"), o3.Irreps("2x0e + 1x1o")
    product = o3.FullyConnectedTensorProduct(a, b, "3x0e + 2x1o")
    linear = o3.Linear(a, b)
    with torch.no_grad():
        for parameter in (product.weight, linear.weight):
            parameter.copy_(inputs(*parameter.shape) * 0.3)
    yield "tensor product: training", steps(product, lambda m: m(inputs(5, a.dim), inputs(5, b.dim, seed=2)).square().mean())
    yield "Norm", o3.Norm(a)(inputs(5, a.dim))
    yield "Extract", nn.Extract("3x0e + 2x0e + 2x1o", ["3x0e", "2x1o"], [(0,), (2,)])(inputs(4, 11))[1]
    yield "Linear", linear(inputs(3, a.dim))


def nflows_client():
    import torch
    from nflows import distributions, flows, transforms

    def flow(kinds):
        return weights_by_name(flows.Flow(transforms.CompositeTransform(kinds), distributions.StandardNormal([4])))

    for name, kinds in (
            ("MAF", [transforms.ReversePermutation(4), transforms.MaskedAffineAutoregressiveTransform(4, 8)]),
            ("splines", [transforms.MaskedPiecewiseRationalQuadraticAutoregressiveTransform(4, 8, tails="linear", tail_bound=3.0)]),
            ("LU", [transforms.LULinear(4), transforms.ActNorm(4)])):
        net = flow(kinds)
        yield f"{name}: training", steps(net, lambda m: -m.log_prob(inputs(8, 4)).mean(), 3, 1e-3)
        yield f"{name}: inverse", weights_by_name(net)._transform.inverse(inputs(3, 4, seed=2))[0]


def normflows_client():
    import normflows

    layers = []
    for i in range(2):
        layers += [normflows.flows.AffineCouplingBlock(normflows.nets.MLP([1, 8, 2])), normflows.flows.Permute(2, mode="swap"),
                   normflows.flows.ActNorm(2)]
    net = weights_by_name(normflows.NormalizingFlow(normflows.distributions.DiagGaussian(2), layers))
    yield "RealNVP: training", steps(net, lambda m: m.forward_kld(inputs(8, 2)), 3, 1e-3)
    yield "inverse", net.inverse(inputs(3, 2))
    spline = weights_by_name(normflows.NormalizingFlow(normflows.distributions.DiagGaussian(2), [
        normflows.flows.AutoregressiveRationalQuadraticSpline(2, 1, 8)]))
    yield "spline: training", steps(spline, lambda m: m.forward_kld(inputs(8, 2)), 3, 1e-3)


def optimizers_client():
    import lion_pytorch
    import prodigyopt
    import schedulefree
    import torch

    for name, make in (("Lion", lambda p: lion_pytorch.Lion(p, lr=1e-3, weight_decay=0.1)),
                       ("Prodigy", lambda p: prodigyopt.Prodigy(p, lr=1.0)),
                       ("AdamWScheduleFree", lambda p: schedulefree.AdamWScheduleFree(p, lr=0.01)),
                       ("SGDScheduleFree", lambda p: schedulefree.SGDScheduleFree(p, lr=0.1)),
                       ("RAdamScheduleFree", lambda p: schedulefree.RAdamScheduleFree(p, lr=0.01))):
        net = weights_by_name(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
        optimizer = make(net.parameters())
        if hasattr(optimizer, "train"):
            optimizer.train()
        losses = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = net(inputs(8, 4)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        yield f"{name}: training", losses


def x_transformers_client():
    import torch
    from rotary_embedding_torch import RotaryEmbedding
    from x_transformers import AutoregressiveWrapper, Decoder, Encoder, TransformerWrapper, XTransformer

    ids = tokens(2, 12)
    for name, options in (("rotary", {"rotary_pos_emb": True}), ("alibi, GLU", {"alibi_pos_bias": True, "ff_glu": True}),
                          ("RMSNorm, grouped", {"use_rmsnorm": True, "attn_kv_heads": 1}), ("flash", {"attn_flash": True}),
                          ("T5 bias", {"rel_pos_bias": True})):
        net = weights_by_name(TransformerWrapper(num_tokens=50, max_seq_len=16, attn_layers=Decoder(
            dim=16, depth=2, heads=2, attn_dim_head=8, **options)))
        yield f"{name}: training", steps(AutoregressiveWrapper(net), lambda m: m(ids))
    yield "generate", AutoregressiveWrapper(weights_by_name(net)).generate(ids[:, :3], 6, temperature=0.0)
    encoder = weights_by_name(TransformerWrapper(num_tokens=50, max_seq_len=16, attn_layers=Encoder(dim=16, depth=1, heads=2,
                                                                                                     attn_dim_head=8)))
    yield "encoder", encoder(ids, mask=ids > 10)
    both = weights_by_name(XTransformer(dim=16, enc_num_tokens=50, enc_depth=1, enc_heads=2, enc_max_seq_len=16, dec_num_tokens=50,
                                        dec_depth=1, dec_heads=2, dec_max_seq_len=16))
    yield "encoder, decoder: training", steps(both, lambda m: m(ids, ids))
    yield "rotary_embedding_torch", RotaryEmbedding(dim=8).rotate_queries_or_keys(inputs(1, 2, 5, 8))


def vit_pytorch_client():
    import torch
    from ema_pytorch import EMA
    from vit_pytorch import SimpleViT, ViT
    from vit_pytorch.cait import CaiT
    from vit_pytorch.cct import CCT

    x = inputs(2, 3, 32, 32)
    sizes = {"image_size": 32, "num_classes": 5, "dim": 16, "heads": 2, "mlp_dim": 32}
    for net in (ViT(patch_size=8, depth=2, **sizes), SimpleViT(patch_size=8, depth=2, **sizes),
                CaiT(patch_size=8, depth=1, cls_depth=1, **sizes), CCT(img_size=32, embedding_dim=16, n_conv_layers=1, num_layers=1,
                                                                       num_heads=2, mlp_ratio=2.0, num_classes=5)):
        net = weights_by_name(net)
        yield f"{type(net).__name__}: training", steps(net.eval(), lambda m: torch.nn.functional.cross_entropy(m(x), torch.tensor([0, 3])))
    net = weights_by_name(ViT(patch_size=8, depth=1, **sizes))
    ema = EMA(net, beta=0.5, update_after_step=0, update_every=1)
    for _ in range(3):
        steps(net.eval(), lambda m: m(x).square().mean(), 1)
        ema.update()
    yield "EMA: training", ema.ema_model.eval()(x)


def mambapy_client():
    from mambapy.mamba import Mamba, MambaConfig

    for parallel in (True, False):
        net = Mamba(MambaConfig(d_model=8, n_layers=2, d_state=4, pscan=parallel))
        weights_by_name(net)
        yield f"{'parallel' if parallel else 'sequential'} scan: training", steps(net, lambda m: m(inputs(2, 10, 8)).square().mean())


def ultralytics_client():
    import torch
    from ultralytics.nn.tasks import ClassificationModel, DetectionModel, PoseModel, SegmentationModel
    from ultralytics.utils import DEFAULT_CFG
    from ultralytics.utils.nms import non_max_suppression

    x = inputs(1, 3, 64, 64).sigmoid()
    net = weights_by_name(DetectionModel("yolov8n.yaml", nc=3, verbose=False), 0.05)
    net.args = DEFAULT_CFG
    batch = {"img": x, "batch_idx": torch.zeros(2), "cls": torch.tensor([[0.0], [2.0]]),
             "bboxes": torch.tensor([[0.5, 0.5, 0.4, 0.4], [0.3, 0.6, 0.2, 0.3]])}
    yield "YOLOv8: training", steps(net.train(), lambda m: m(dict(batch))[0].sum(), 2, 1e-4)
    found = weights_by_name(net, 0.05).eval()(x)[0]
    yield "YOLOv8: prediction", found
    boxes = torch.cat([inputs(1, 4, 30).abs() * 20 + 10, inputs(1, 3, 30, seed=4).sigmoid()], 1)
    yield "NMS", non_max_suppression(boxes, 0.3, 0.5, max_det=5)[0]
    yield "fuse", net.fuse(verbose=False)(x)[0]
    for name, kind in (("yolo11n.yaml", DetectionModel), ("yolov8n-seg.yaml", SegmentationModel), ("yolov8n-pose.yaml", PoseModel),
                       ("yolov8n-cls.yaml", ClassificationModel)):
        found = weights_by_name(kind(name, verbose=False), 0.05).eval()(x)
        yield name.partition(".")[0], found[0] if isinstance(found, tuple) else found


def compressai_client():
    import torch
    from compressai.losses import RateDistortionLoss
    from compressai.models import FactorizedPrior, JointAutoregressiveHierarchicalPriors, ScaleHyperprior

    x = inputs(1, 3, 64, 64).sigmoid()
    for kind in (FactorizedPrior, ScaleHyperprior, JointAutoregressiveHierarchicalPriors):
        net = weights_by_name(kind(8, 12), 0.1).eval()
        found = net(x)
        yield kind.__name__, [found["x_hat"], found["likelihoods"]["y"]]
        yield f"{kind.__name__}: training", steps(net, lambda m: RateDistortionLoss()(m(x), x)["loss"], 2, 1e-4)


def speechbrain_client():
    import torch
    from speechbrain.lobes.features import MFCC, Fbank
    from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN
    from speechbrain.nnet.losses import ctc_loss
    from speechbrain.nnet.RNN import LSTM

    waves = inputs(2, 4000) * 0.1
    features = Fbank(n_mels=16)(waves)
    yield "Fbank", features
    yield "MFCC", MFCC(n_mels=16, n_mfcc=8)(waves)
    net = weights_by_name(ECAPA_TDNN(16, channels=[8] * 4 + [16], kernel_sizes=[3] * 5, dilations=[1] * 5, attention_channels=4,
                                     lin_neurons=6, res2net_scale=2, se_channels=4))
    yield "ECAPA_TDNN: training", steps(net, lambda m: m(features).square().mean())
    lstm = weights_by_name(LSTM(6, (2, 10, 16)))
    yield "LSTM, CTC: training", steps(lstm, lambda m: ctc_loss(m(features)[0].log_softmax(-1), tokens(2, 4, top=6) % 5 + 1, torch.ones(2),
                                                                torch.ones(2), 0))


def torchaudio_client():
    import torch
    import torchaudio
    from torchaudio import functional, models, transforms

    x = inputs(2, 2000) * 0.1
    yield "MelSpectrogram, MFCC", [transforms.MelSpectrogram(n_fft=128, n_mels=16)(x),
                                   transforms.MFCC(n_mfcc=8, melkwargs={"n_fft": 128, "n_mels": 16})(x)]
    yield "Resample, PitchShift", [transforms.Resample(16000, 12000)(x), functional.speed(x, 16000, 1.2)[0]]
    yield "GriffinLim", transforms.GriffinLim(n_fft=128, rand_init=False, n_iter=4)(transforms.Spectrogram(n_fft=128)(x))
    a, b = torch.tensor([1.0, -1.6, 0.9]).requires_grad_(), torch.tensor([1.0, 0.2, 0.3])
    y = functional.lfilter(x, a, b, clamp=False)
    y.square().mean().backward()
    yield "lfilter, gradient", [y, a.grad]
    yield "effects", [functional.overdrive(x), functional.phaser(x, 16000), functional.lowpass_biquad(x, 16000, 300.0),
                      functional.flanger(x[None], 16000)]
    yield "forced_align", list(functional.forced_align(inputs(1, 30, 6).log_softmax(-1), torch.tensor([[1, 2, 2, 3, 5]])))
    joint = torch.nn.Parameter(inputs(2, 7, 5, 4))
    lengths = torch.tensor([7, 6], dtype=torch.int32), torch.tensor([4, 3], dtype=torch.int32)
    targets = torch.tensor([[1, 2, 1, 1], [2, 1, 1, 0]], dtype=torch.int32)
    loss = functional.rnnt_loss(joint, targets, *lengths, blank=0)
    loss.backward()
    yield "rnnt_loss, gradient", [loss, joint.grad]
    yield "kaldi", torchaudio.compliance.kaldi.fbank(x, num_mel_bins=16, dither=0.0)
    net = weights_by_name(models.Conformer(16, 2, 32, 1, 3))
    yield "Conformer: training", steps(net.eval(), lambda m: m(inputs(2, 9, 16), torch.tensor([9, 7]))[0].square().mean())
    net = weights_by_name(models.wav2vec2_model(
        "group_norm", [(8, 10, 5), (8, 3, 2)], False, 16, 0.0, 3, 2, 1, 2, 0.0, 32, 0.0, 0.0, False, 0.0, 5))
    yield "wav2vec2", net.eval()(x)[0]


def torchvision_client():
    import torch
    import torchvision
    from torchvision import ops
    from torchvision.models.feature_extraction import create_feature_extractor
    from torchvision.transforms import v2

    x = inputs(2, 3, 64, 64).sigmoid()
    for name in ("resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5", "squeezenet1_1", "regnet_y_400mf", "swin_t"):
        yield f"{name}: scores", weights_by_name(torchvision.models.get_model(name, num_classes=5), 0.03).eval()(x)
    net = torchvision.models.VisionTransformer(image_size=64, patch_size=16, num_classes=5, hidden_dim=16, num_heads=2, num_layers=2,
                                               mlp_dim=32)
    yield "ViT: scores", weights_by_name(net).eval()(x)
    net = weights_by_name(torchvision.models.resnet18(num_classes=5), 0.05)
    yield "resnet18: training", steps(net.train(), lambda m: torch.nn.functional.cross_entropy(m(x), torch.tensor([1, 4])), 2, 1e-4)
    boxes, scores = inputs(6, 4).abs() + torch.tensor([0, 0, 2.0, 2.0]), inputs(6)
    yield "ops", [ops.nms(boxes, scores, 0.3), ops.box_iou(boxes, boxes), ops.roi_align(x, [boxes[:2] * 5, boxes[2:4] * 5], 3),
                  ops.generalized_box_iou_loss(boxes, boxes.flip(0))]
    chain = v2.Compose([v2.Resize(48), v2.CenterCrop(32), v2.RandomHorizontalFlip(1.0), v2.Normalize([0.5] * 3, [0.2] * 3)])
    yield "transforms", [chain(x), v2.functional.rotate(x, 30.0), v2.functional.gaussian_blur(x, 3), v2.functional.adjust_hue(x, 0.1)]
    features = create_feature_extractor(weights_by_name(torchvision.models.resnet18(), 0.03).eval(), ["layer2", "layer4"])
    yield "feature extraction", list(features(x).values())
    net = weights_by_name(torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None, weights_backbone=None, num_classes=3, min_size=64, max_size=64), 0.03)
    yield "Faster R-CNN: boxes", torch.tensor(float(len(net.eval()(list(x))[0])))
    yield "deeplab: scores", weights_by_name(torchvision.models.segmentation.lraspp_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=3), 0.03).eval()(x)["out"]


def ignite_client():
    import torch
    from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
    from ignite.handlers import Checkpoint, DiskSaver, PiecewiseLinear
    from ignite.metrics import Accuracy, ConfusionMatrix, Loss, Precision, Recall

    x, y = inputs(24, 4), torch.tensor([0, 1, 2] * 8)
    batches = [(x[i:i + 8], y[i:i + 8]) for i in range(0, 24, 8)]
    net = weights_by_name(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)))
    optimizer, losses = torch.optim.Adam(net.parameters(), lr=1e-2), []
    criterion = torch.nn.CrossEntropyLoss()
    trainer = create_supervised_trainer(net, optimizer, criterion)
    trainer.add_event_handler(Events.ITERATION_STARTED, PiecewiseLinear(optimizer, "lr", [(0, 0.01), (5, 0.001)]))
    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda engine: losses.append(engine.state.output))
    with tempfile.TemporaryDirectory() as folder:
        saver = Checkpoint({"net": net, "optimizer": optimizer}, DiskSaver(folder, require_empty=False), n_saved=1)
        trainer.add_event_handler(Events.EPOCH_COMPLETED, saver)
        trainer.run(batches, max_epochs=2)
        yield "training", losses
        other = weights_by_name(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)))
        Checkpoint.load_objects({"net": other}, {"net": torch.load(os.path.join(folder, saver.last_checkpoint))["net"]})
        yield "checkpoint", other(x[:2])
    evaluator = create_supervised_evaluator(net, {"accuracy": Accuracy(), "loss": Loss(criterion), "matrix": ConfusionMatrix(3),
                                                  "precision": Precision(), "recall": Recall()})
    found = evaluator.run(batches).metrics
    yield "metrics", [torch.as_tensor(found[k]).float() for k in ("accuracy", "loss", "matrix", "precision", "recall")]


def pytorch_tabnet_client():
    import numpy
    import torch
    from pytorch_tabnet.tab_model import TabNetClassifier
    from pytorch_tabnet.tab_network import TabNet

    x = inputs(64, 5)
    net = weights_by_name(TabNet(5, 2, n_d=4, n_a=4, n_steps=2, group_attention_matrix=torch.eye(5)))
    yield "TabNet: training", steps(net, lambda m: torch.nn.functional.cross_entropy(m(x)[0], (x[:, 0] > 0).long()), 3, 1e-3)
    model = TabNetClassifier(n_d=4, n_a=4, n_steps=2, verbose=0, device_name="cpu")
    model.fit(x.numpy(), (x[:, 0] > 0).numpy().astype(numpy.int64), max_epochs=2, batch_size=32, virtual_batch_size=16)
    yield "TabNetClassifier", torch.tensor(model.predict_proba(x.numpy()).sum(1))


def torchinfo_client():
    import torch
    import torchinfo
    import torchsummary

    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(),
                              torch.nn.Linear(8 * 36, 10))
    found = torchinfo.summary(net, (2, 3, 8, 8), verbose=0, col_names=("input_size", "output_size", "num_params", "mult_adds"))
    yield "torchinfo", [float(found.total_params), float(found.total_mult_adds), float(found.total_output_bytes), float(len(str(found)))]
    torchsummary.summary(net, (3, 8, 8), device="cpu")
    yield "torchsummary", torch.tensor(1.0)


def torchrl_client():
    import torch
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule
    from torchrl.data import LazyTensorStorage, ReplayBuffer, SamplerWithoutReplacement
    from torchrl.envs import Compose, GymEnv, RewardSum, StepCounter, TransformedEnv
    from torchrl.modules import MLP, NormalParamExtractor, ProbabilisticActor, QValueActor, TanhNormal, ValueOperator
    from torchrl.objectives import ClipPPOLoss, DQNLoss, SoftUpdate, TD3Loss
    from torchrl.objectives.value import GAE

    data = TensorDict({"a": inputs(4, 3), "b": {"c": inputs(4, 2)}}, batch_size=[4])
    yield "TensorDict", [torch.stack([data, data * 2], 1)["b", "c"], data.apply(torch.exp)["a"], data.view(2, 2).transpose(0, 1)["a"],
                         torch.cat([data, data[data["a"][:, 0] > 0]])["a"], data.select(("b", "c")).to(torch.float64).flatten_keys()["b.c"]]
    env = TransformedEnv(GymEnv("CartPole-v1", device="cpu"), Compose(RewardSum(), StepCounter()))
    env.set_seed(0)
    network = weights_by_name(MLP(in_features=4, out_features=2, num_cells=[8]))
    actor = QValueActor(network, spec=env.action_spec, in_keys=["observation"])
    with torch.no_grad():
        rollout = env.rollout(20, actor)
    yield "rollout", [rollout["observation"], rollout["next", "episode_reward"], rollout["action"].float(), rollout["chosen_action_value"]]
    loss = DQNLoss(actor, action_space=env.action_spec, delay_value=True)
    loss.make_value_estimator(gamma=0.9)
    update = SoftUpdate(loss, eps=0.5)
    losses = []
    for _ in range(3):
        losses += steps(loss, lambda m: m(rollout)["loss"], 1)
        update.step()
    yield "DQNLoss, SoftUpdate: training", losses
    buffer = ReplayBuffer(storage=LazyTensorStorage(40), sampler=SamplerWithoutReplacement(shuffle=False), batch_size=4)
    buffer.extend(rollout)
    yield "replay buffer", [buffer.sample()["observation"] for _ in range(2)]
    value = ValueOperator(weights_by_name(MLP(in_features=4, out_features=1, num_cells=[8])), in_keys=["observation"])
    yield "GAE", GAE(gamma=0.9, lmbda=0.8, value_network=value)(rollout.clone())["advantage"]
    body = torch.nn.Sequential(weights_by_name(MLP(in_features=4, out_features=4, num_cells=[8])), NormalParamExtractor())
    policy = ProbabilisticActor(TensorDictModule(body, ["observation"], ["loc", "scale"]), in_keys=["loc", "scale"],
                                distribution_class=TanhNormal, return_log_prob=True)
    batch = TensorDict({"observation": inputs(16, 4), "action": inputs(16, 2, seed=1).tanh() * 0.9, "action_log_prob": inputs(16, seed=2),
                        "next": {"observation": inputs(16, 4, seed=3), "reward": inputs(16, 1, seed=4),
                                 "done": torch.arange(16)[:, None] % 5 == 4, "terminated": torch.arange(16)[:, None] % 5 == 4}}, [16])
    advantage = GAE(gamma=0.9, lmbda=0.8, value_network=value)
    ppo = ClipPPOLoss(policy, value, entropy_bonus=False)
    yield "ClipPPOLoss: training", steps(ppo, lambda m: sum(m(advantage(batch.clone()))[k] for k in ("loss_objective", "loss_critic")))
    mean = TensorDictModule(weights_by_name(torch.nn.Sequential(MLP(in_features=4, out_features=2, num_cells=[8]), torch.nn.Tanh())),
                            ["observation"], ["action"])

    class Q(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = MLP(in_features=6, out_features=1, num_cells=[8])

        def forward(self, observation, action):
            return self.net(torch.cat([observation, action], -1))

    critic = ValueOperator(Q(), in_keys=["observation", "action"])
    td3 = weights_by_name(TD3Loss(mean, critic, bounds=(-1.0, 1.0), policy_noise=0.0, num_qvalue_nets=2))
    td3.make_value_estimator(gamma=0.9)
    yield "TD3Loss: training", steps(td3, lambda m: sum(m(batch.clone())[k] for k in ("loss_actor", "loss_qvalue")))


def vector_quantize_pytorch_client():
    import torch
    from vector_quantize_pytorch import FSQ, LFQ, ResidualVQ, SimVQ, VectorQuantize

    x = inputs(2, 12, 8)
    for name, net in (("VectorQuantize", VectorQuantize(dim=8, codebook_size=16, learnable_codebook=True, ema_update=False)),
                      ("ResidualVQ", ResidualVQ(dim=8, codebook_size=16, num_quantizers=2, learnable_codebook=True, ema_update=False)),
                      ("SimVQ", SimVQ(dim=8, codebook_size=16, rotation_trick=True))):
        net = weights_by_name(net)
        found, indices, _ = net.eval()(x)
        yield name, [found, indices.float()]
        yield f"{name}: training", steps(net.train(), lambda m: m(x)[2].sum() + m(x)[0].square().mean())
    yield "FSQ", weights_by_name(FSQ([8, 5, 5], dim=8))(x)[0]
    yield "LFQ", weights_by_name(LFQ(codebook_size=16, dim=8))(x)[0]


def denoising_diffusion_pytorch_client():
    import torch
    from denoising_diffusion_pytorch import GaussianDiffusion, GaussianDiffusion1D, Unet, Unet1D

    x, noise, t = inputs(2, 3, 16, 16).sigmoid(), inputs(2, 3, 16, 16, seed=1), torch.tensor([3, 40])
    for objective in ("pred_v", "pred_noise", "pred_x0"):
        net = weights_by_name(Unet(dim=8, dim_mults=(1, 2), flash_attn=False), 0.1)
        model = GaussianDiffusion(net, image_size=16, timesteps=50, objective=objective, auto_normalize=False)
        yield f"{objective}: training", steps(model, lambda m: m.p_losses(x, t, noise=noise), 2, 1e-3)
    weights_by_name(net, 0.1)
    with torch.no_grad():
        yield "predictions", list(model.model_predictions(x, t))
        yield "q_posterior", list(model.q_posterior(x, noise, t))
    line = weights_by_name(Unet1D(dim=8, dim_mults=(1, 2), channels=3), 0.1)
    model = GaussianDiffusion1D(line, seq_length=32, timesteps=50, auto_normalize=False)
    yield "Unet1D: training", steps(model, lambda m: m.p_losses(inputs(2, 3, 32), t, noise=inputs(2, 3, 32, seed=1)), 2, 1e-3)


def piq_client():
    import piq

    x, y = inputs(1, 3, 176, 176).sigmoid(), (inputs(1, 3, 176, 176) + 0.3 * inputs(1, 3, 176, 176, seed=1)).sigmoid()
    for name in ("psnr", "ssim", "multi_scale_ssim", "vif_p", "fsim", "gmsd", "multi_scale_gmsd", "haarpsi", "vsi", "mdsi", "srsim", "dss",
                 "information_weighted_ssim"):
        exact = name == "information_weighted_ssim"  # which is sensitive to roundings
        yield name, getattr(piq, name)(x.double() if exact else x, y.double() if exact else y, data_range=1.0)
    yield "total_variation", piq.total_variation(x)
    z = x.clone().requires_grad_()
    (1 - piq.ssim(z, y, data_range=1.0) + piq.GMSDLoss()(z, y) + piq.HaarPSILoss()(z, y)).backward()
    yield "gradient", z.grad


def lpips_client():
    import lpips

    x, y = inputs(1, 3, 64, 64).tanh(), inputs(1, 3, 64, 64, seed=1).tanh()
    for name in ("alex", "vgg", "squeeze"):
        net = weights_by_name(lpips.LPIPS(net=name, pretrained=False, pnet_rand=True, verbose=False), 0.05).eval()
        z = x.clone().requires_grad_()
        found = net(z, y)
        found.sum().backward()
        yield f"{name}, gradient", [found, z.grad / z.grad.abs().max()]


def pytorch_optimizer_client():
    import pytorch_optimizer
    import torch

    for name in ("AdaBelief", "AdaBound", "Adan", "AdaPNM", "AdamP", "ADOPT", "CAME", "DAdaptAdam", "DiffGrad", "Lamb", "LARS", "MADGRAD",
                 "Muon", "NovoGrad", "QHAdam", "RAdam", "Ranger21", "SGDW", "SOAP", "ScalableShampoo", "Tiger", "Yogi"):
        net = weights_by_name(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
        options = {"num_iterations": 5} if name == "Ranger21" else {}
        if name == "Muon":
            groups = [{"params": [p for p in net.parameters() if p.dim() == 2], "use_muon": True},
                      {"params": [p for p in net.parameters() if p.dim() < 2], "use_muon": False}]
        else:
            groups = list(net.parameters())
        optimizer = getattr(pytorch_optimizer, name)(groups, **options)
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = net(inputs(8, 4)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        yield f"{name}: training", losses


def local_attention_client():
    import torch
    from local_attention import LocalAttention, LocalTransformer

    q, k, v = (inputs(2, 4, 32, 8, seed=s) for s in range(3))
    for name, options in (("causal", {"causal": True, "look_forward": 0}), ("both sides", {"look_forward": 1}),
                          ("exact window", {"causal": True, "look_forward": 0, "exact_windowsize": True})):
        yield name, LocalAttention(dim=8, window_size=8, look_backward=1, **options)(q, k, v, mask=torch.arange(32)[None] < 27)
    net = weights_by_name(LocalTransformer(num_tokens=50, dim=16, depth=2, max_seq_len=32, local_attn_window_size=8, causal=True, heads=2,
                                           dim_head=8))
    yield "LocalTransformer: training", steps(net, lambda m: m(tokens(2, 32), return_loss=True))


def entmax_client():
    import entmax
    import torch

    x = inputs(4, 6).requires_grad_()
    for name in ("sparsemax", "entmax15", "sparsemax_bisect"):
        x.grad = None
        found = getattr(entmax, name)(x, dim=-1)
        (found * inputs(4, 6, seed=1)).sum().backward()
        yield f"{name}, gradient", [found, x.grad]
    alpha = torch.tensor(1.3, requires_grad=True)
    found = entmax.entmax_bisect(x, alpha)
    (found * inputs(4, 6, seed=1)).sum().backward()
    yield "entmax_bisect, gradient", [found, alpha.grad]
    for name in ("SparsemaxLoss", "Entmax15Loss"):
        net = weights_by_name(torch.nn.Linear(6, 5))
        yield f"{name}: training", steps(net, lambda m: getattr(entmax, name)()(m(inputs(4, 6)), torch.tensor([0, 1, 2, 4])))


def zuko_client():
    import zuko

    x, c = inputs(8, 3), inputs(8, 2, seed=1)
    for kind in ("MAF", "NSF", "NICE", "SOSPF", "UNAF", "CNF", "GF", "BPF"):
        flow = weights_by_name(getattr(zuko.flows, kind)(3, 2, **({"transforms": 2} if kind != "CNF" else {}), hidden_features=(8,)
                               if kind != "UNAF" else (8, 8)), 0.3)
        yield f"{kind}: training", steps(flow, lambda m: -m(c).log_prob(x).mean(), 2, 1e-3)
    flow = weights_by_name(zuko.flows.NSF(3, 2, transforms=2, hidden_features=(8,)))
    yield "NSF: inverse", flow(c).transform.inv(x)


def opacus_client():
    import torch
    from opacus import GradSampleModule, PrivacyEngine
    from opacus.accountants import RDPAccountant
    from opacus.layers import DPLSTM
    from opacus.validators import ModuleValidator
    from torch.utils.data import DataLoader, TensorDataset

    x, y = inputs(8, 3, 8, 8), torch.tensor([0, 1] * 4)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(),
                              torch.nn.Linear(144, 2))
    net = weights_by_name(ModuleValidator.fix(net))
    samples = GradSampleModule(net)
    torch.nn.functional.cross_entropy(samples(x), y).backward()
    yield "GradSampleModule", [p.grad_sample for p in samples.parameters()]
    net = weights_by_name(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    engine = PrivacyEngine()
    net, optimizer, loader = engine.make_private(module=net, optimizer=optimizer, data_loader=DataLoader(TensorDataset(
        inputs(16, 4), torch.arange(16) % 2), batch_size=4), noise_multiplier=0.0, max_grad_norm=0.5, poisson_sampling=False)
    losses = []
    for _ in range(2):
        for a, b in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(a), b)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    yield "PrivacyEngine: training", losses
    accountant = RDPAccountant()
    for _ in range(10):
        accountant.step(noise_multiplier=1.0, sample_rate=0.1)
    yield "RDPAccountant", torch.tensor(accountant.get_epsilon(1e-5))
    lstm = GradSampleModule(weights_by_name(DPLSTM(4, 6, batch_first=True)))
    lstm(inputs(3, 5, 4))[0].square().mean().backward()
    yield "DPLSTM", [p.grad_sample for p in lstm.parameters()]


def tensorly_client():
    import tensorly as tl
    import torch
    from tensorly.decomposition import non_negative_parafac, parafac, tensor_train, tucker

    tl.set_backend("pytorch")
    x = inputs(4, 5, 6)
    yield "unfold, mode_dot", [tl.unfold(x, 1), tl.tenalg.mode_dot(x, inputs(3, 5), 1), tl.tenalg.khatri_rao([inputs(4, 3), inputs(5, 3)])]
    yield "parafac", parafac(x, 3, init="svd", n_iter_max=10).to_tensor()
    yield "tucker", tl.tucker_to_tensor(tucker(x, [2, 3, 3], n_iter_max=5))
    yield "tensor_train", tl.tt_to_tensor(tensor_train(x, [1, 3, 3, 1]))
    yield "non_negative_parafac", non_negative_parafac(x.abs(), 2, init="svd", n_iter_max=10).to_tensor()
    z = x.clone().requires_grad_()
    tl.norm(tl.tenalg.multi_mode_dot(z, [inputs(2, 4), inputs(2, 5), inputs(2, 6)])).backward()
    yield "gradient", z.grad


def auraloss_client():
    import auraloss

    x, y = inputs(1, 1, 4096) * 0.1, inputs(1, 1, 4096, seed=1) * 0.1
    for name, loss in (("STFTLoss", auraloss.freq.STFTLoss()), ("MultiResolutionSTFTLoss", auraloss.freq.MultiResolutionSTFTLoss(
            fft_sizes=[256, 512], hop_sizes=[64, 128], win_lengths=[256, 512])), ("ESRLoss", auraloss.time.ESRLoss()),
            ("SISDRLoss", auraloss.time.SISDRLoss()), ("LogCoshLoss", auraloss.time.LogCoshLoss()), ("SNRLoss", auraloss.time.SNRLoss())):
        z = x.clone().requires_grad_()
        found = loss(z, y)
        found.backward()
        yield f"{name}, gradient", [found, z.grad]


def torchcde_client():
    import torch
    import torchcde

    t, x = torch.linspace(0, 1, 10), inputs(2, 10, 3)
    coefficients = torchcde.hermite_cubic_coefficients_with_backward_differences(x, t)
    yield "coefficients", [coefficients, torchcde.natural_cubic_coeffs(x, t), torchcde.linear_interpolation_coeffs(x, t)]

    class Field(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(4, 12)

        def forward(self, t, z):
            return self.net(z).tanh().reshape(2, 4, 3)

    path = torchcde.CubicSpline(coefficients, t)
    yield "path", [path.evaluate(torch.tensor(0.33)), path.derivative(torch.tensor(0.33))]
    field = weights_by_name(Field())
    for adjoint in (False, True):
        yield f"cdeint, adjoint {adjoint}: training", steps(field, lambda m: torchcde.cdeint(
            path, m, inputs(2, 4), t[[0, -1]], adjoint=adjoint, method="rk4", options={"step_size": 0.1})[:, -1].square().mean(), 2)
    yield "logsig windows", torchcde.linear_interpolation_coeffs(x, rectilinear=0)


def neuralop_client():
    import torch
    from neuralop.losses import H1Loss, LpLoss
    from neuralop.models import FNO, TFNO

    x, y = inputs(2, 1, 16, 16), inputs(2, 1, 16, 16, seed=1)
    for name, net in (("FNO", FNO(n_modes=(6, 6), hidden_channels=8, in_channels=1, out_channels=1, n_layers=2)),
                      ("TFNO", TFNO(n_modes=(6, 6), hidden_channels=8, in_channels=1, out_channels=1, n_layers=2, rank=0.5))):
        net = weights_by_name(net, 0.5)
        yield name, net(x)
        yield f"{name}: training", steps(net, lambda m: LpLoss(d=2, p=2)(m(x), y) + H1Loss(d=2)(m(x), y), 2, 1e-3)


def torch_pruning_client():
    import torch
    import torch_pruning
    import torchvision

    x = inputs(1, 3, 64, 64)
    net = weights_by_name(torchvision.models.resnet18(num_classes=5), 0.05).eval()
    yield "count", [float(v) for v in torch_pruning.utils.count_ops_and_params(net, x)]
    graph = torch_pruning.DependencyGraph().build_dependency(net, example_inputs=x)
    group = graph.get_pruning_group(net.conv1, torch_pruning.prune_conv_out_channels, idxs=[2, 6, 9])
    kinds = torch.nn.Conv2d, torch.nn.BatchNorm2d  # a group has operators of the recording, too, which are named otherwise
    yield "group", torch.tensor([float(len(channels)) for dependency, channels in group if isinstance(dependency.target.module, kinds)])
    group.prune()
    yield "pruned", net(x)
    pruner = torch_pruning.pruner.MagnitudePruner(net, x, importance=torch_pruning.importance.MagnitudeImportance(p=2), pruning_ratio=0.5,
                                                  ignored_layers=[net.fc])
    pruner.step()
    yield "MagnitudePruner", [net(x), torch.tensor([float(m.out_channels) for m in net.modules() if isinstance(m, torch.nn.Conv2d)])]
    yield "training", steps(net, lambda m: m(x).square().mean(), 2, 1e-4)


def flow_matching_client():
    import torch
    from flow_matching.path import AffineProbPath, MixtureDiscreteProbPath
    from flow_matching.path.scheduler import CondOTScheduler, PolynomialConvexScheduler
    from flow_matching.solver import ODESolver
    from flow_matching.utils import ModelWrapper

    class Velocity(ModelWrapper):
        def __init__(self):
            super().__init__(torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)))

        def forward(self, x, t, **extras):
            return self.model(torch.cat([x, t.reshape(-1, 1).expand(len(x), 1)], -1))

    net = weights_by_name(Velocity())
    path = AffineProbPath(CondOTScheduler())
    sample = path.sample(x_0=inputs(8, 2), x_1=inputs(8, 2, seed=1), t=torch.linspace(0.1, 0.9, 8))
    yield "path", [sample.x_t, sample.dx_t]
    yield "training", steps(net, lambda m: (m(sample.x_t, sample.t) - sample.dx_t).square().mean())
    solver = ODESolver(velocity_model=net)
    for method in ("midpoint", "dopri5"):
        yield method, solver.sample(x_init=inputs(4, 2), method=method, step_size=0.1 if method == "midpoint" else None)
    yield "likelihood", list(solver.compute_likelihood(x_1=inputs(4, 2), method="midpoint", step_size=0.25, exact_divergence=True,
                                                       log_p0=lambda x: -x.square().sum(-1) / 2))


def nnAudio_client():
    from nnAudio import features

    x = inputs(2, 8000) * 0.1
    for name, layer in (("STFT", features.STFT(n_fft=256, verbose=False)), ("MelSpectrogram", features.MelSpectrogram(
            sr=8000, n_fft=256, n_mels=16, verbose=False)), ("MFCC", features.MFCC(sr=8000, n_mfcc=8, n_fft=256, n_mels=16, verbose=False)),
            ("CQT1992v2", features.CQT1992v2(sr=8000, fmin=110, n_bins=24, verbose=False)),
            ("CQT2010v2", features.CQT2010v2(sr=8000, fmin=110, n_bins=24, verbose=False)),
            ("Gammatonegram", features.Gammatonegram(sr=8000, n_fft=256, n_bins=16, verbose=False))):
        z = x.clone().requires_grad_()
        found = layer(z)
        found.square().mean().backward()
        yield f"{name}, gradient", [found, z.grad]


def pytorch_tcn_client():
    import torch
    from pytorch_tcn import TCN

    x = inputs(2, 3, 20)
    for causal, norm, connections in ((True, "weight_norm", True), (False, "layer_norm", False), (True, "batch_norm", False)):
        net = weights_by_name(TCN(num_inputs=3, num_channels=[4, 4, 6], kernel_size=3, dropout=0.0, causal=causal, use_norm=norm,
                                  use_skip_connections=connections))
        yield f"{norm}: training", steps(net, lambda m: m(x).square().mean())
    net = weights_by_name(TCN(num_inputs=3, num_channels=[4, 4], kernel_size=3, dropout=0.0)).eval()
    net.reset_buffers()
    with torch.no_grad():
        yield "streaming", [net(x[:1, :, i : i + 5], inference=True) for i in range(0, 20, 5)]


def attentions_client():
    import torch
    from perceiver_pytorch import Perceiver, PerceiverIO
    from performer_pytorch import PerformerLM
    from product_key_memory import PKM

    net = weights_by_name(Perceiver(input_channels=3, input_axis=2, num_freq_bands=2, max_freq=4.0, depth=2, num_latents=6, latent_dim=16,
                                    cross_heads=1, latent_heads=2, cross_dim_head=8, latent_dim_head=8, num_classes=5))
    yield "Perceiver: training", steps(net, lambda m: torch.nn.functional.cross_entropy(m(inputs(2, 8, 8, 3)), torch.tensor([0, 3])))
    net = weights_by_name(PerceiverIO(dim=8, queries_dim=8, logits_dim=5, depth=1, num_latents=6, latent_dim=16, cross_heads=1,
                                      latent_heads=2, cross_dim_head=8, latent_dim_head=8))
    yield "PerceiverIO", net(inputs(2, 10, 8), queries=inputs(4, 8, seed=1))
    net = weights_by_name(PerformerLM(num_tokens=50, max_seq_len=16, dim=16, depth=2, heads=2, dim_head=8, nb_features=16, causal=False))
    yield "Performer: training", steps(net.eval(), lambda m: torch.nn.functional.cross_entropy(m(tokens(2, 16)).transpose(1, 2),
                                                                                               tokens(2, 16)))
    net = weights_by_name(PKM(dim=16, heads=2, num_keys=8, topk=4, dim_head=8))
    yield "product keys: training", steps(net.eval(), lambda m: m(inputs(2, 5, 16)).square().mean())
