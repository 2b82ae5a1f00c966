"""Attention over pictures and words, and the mixer, which has none."""
from __future__ import annotations

import math

import numpy as np

from .task import Task, adamw, classifier, drop_path, model, normal, uniform


@model
def vit(torch, full, rng):
    """ViT-B/16 (Dosovitskiy et al. 2020, https://arxiv.org/abs/2010.11929), of torch's own encoder layers."""
    nn = torch.nn
    batch, size, patch, classes = (64, 224, 16, 1000) if full else (2, 32, 8, 10)
    width, depth, heads = (768, 12, 12) if full else (32, 2, 4)

    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, width, patch, patch)
            self.token = nn.Parameter(torch.zeros(1, 1, width))
            self.places = nn.Parameter(torch.empty(1, (size // patch) ** 2 + 1, width))
            nn.init.trunc_normal_(self.places, std=0.02)
            layer = nn.TransformerEncoderLayer(
                width, heads, 4 * width, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
            )
            self.encoder = nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(width), enable_nested_tensor=False)
            self.head = nn.Linear(width, classes)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1) + self.places
            return self.head(self.encoder(x)[:, 0])

    return classifier(torch, ViT(), normal(rng, batch, 3, size, size), classes, rng, adamw(torch), smoothing=0.1)


@model
def swin(torch, full, rng):
    """Swin-T (Liu et al. 2021, https://arxiv.org/abs/2103.14030): shifted windows, relative bias, merged patches."""
    nn, F = torch.nn, torch.nn.functional
    batch, size, patch, window, width, classes = (64, 224, 4, 7, 96, 1000) if full else (2, 32, 2, 4, 16, 10)
    depths, heads = ((2, 2, 6, 2), (3, 6, 12, 24)) if full else ((2, 2), (2, 4))

    def windows(x):
        """(batch, height, width, channels) as (batch * windows, places of a window, channels)."""
        b, h, w, c = x.shape
        x = x.view(b, h // window, window, w // window, window, c)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, window * window, c)

    class Attention(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.bias = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
            nn.init.trunc_normal_(self.bias, std=0.02)
            axis = torch.arange(window)
            places = torch.stack(torch.meshgrid(axis, axis, indexing="ij")).flatten(1)
            gap = (places[:, :, None] - places[:, None, :]) + window - 1
            self.register_buffer("index", gap[0] * (2 * window - 1) + gap[1], persistent=False)

        def forward(self, x, mask):
            n, places, width = x.shape
            q, k, v = self.qkv(x).reshape(n, places, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
            scores = q * (width // self.heads) ** -0.5 @ k.transpose(-2, -1)
            scores = scores + self.bias[self.index].permute(2, 0, 1)
            if mask is not None:
                scores = scores.view(-1, len(mask), self.heads, places, places) + mask[:, None]
                scores = scores.view(n, self.heads, places, places)
            return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, places, width))

    class Block(nn.Module):
        def __init__(self, width, heads, side, shift, drop):
            super().__init__()
            self.shift = shift
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attention = Attention(width, heads)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            self.drop = drop_path(torch, drop)
            mask = None
            if shift:  # places that the roll brought together from different regions do not see each other
                region = torch.zeros(1, side, side, 1)
                parts = slice(0, -window), slice(-window, -shift), slice(-shift, None)
                for i, rows in enumerate(parts):
                    for j, columns in enumerate(parts):
                        region[:, rows, columns] = 3 * i + j
                region = windows(region).squeeze(-1)
                mask = torch.zeros(len(region), window**2, window**2)
                mask.masked_fill_(region[:, None] != region[:, :, None], -100.0)
            self.register_buffer("mask", mask, persistent=False)

        def forward(self, x):
            b, h, w, c = x.shape
            y = torch.roll(self.norm1(x), (-self.shift, -self.shift), dims=(1, 2)) if self.shift else self.norm1(x)
            y = self.attention(windows(y), self.mask)
            y = y.view(b, h // window, w // window, window, window, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
            if self.shift:
                y = torch.roll(y, (self.shift, self.shift), dims=(1, 2))
            x = x + self.drop(y)
            return x + self.drop(self.mlp(self.norm2(x)))

    class Merge(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm, self.reduce = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

        def forward(self, x):
            parts = [x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]]
            return self.reduce(self.norm(torch.cat(parts, -1)))

    class Swin(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches, self.norm = nn.Conv2d(3, width, patch, patch), nn.LayerNorm(width)
            blocks, inner, side = [], width, size // patch
            for i, (depth, h) in enumerate(zip(depths, heads)):
                if i:
                    blocks.append(Merge(inner))
                    inner, side = 2 * inner, side // 2
                for j in range(depth):
                    shift = window // 2 if j % 2 and side > window else 0
                    blocks.append(Block(inner, h, side, shift, 0.2 * len(blocks) / sum(depths)))
            self.blocks = nn.Sequential(*blocks, nn.LayerNorm(inner))
            self.head = nn.Linear(inner, classes)

        def forward(self, x):
            x = self.norm(self.patches(x).permute(0, 2, 3, 1))
            return self.head(self.blocks(x).mean((1, 2)))

    return classifier(torch, Swin(), normal(rng, batch, 3, size, size), classes, rng, adamw(torch), smoothing=0.1)


@model
def mixer(torch, full, rng):
    """MLP-Mixer B/16 (Tolstikhin et al. 2021, https://arxiv.org/abs/2105.01601)."""
    nn = torch.nn
    batch, size, patch, width, depth, classes = (64, 224, 16, 768, 12, 1000) if full else (2, 32, 8, 32, 2, 10)

    def mlp(outer, inner):
        return nn.Sequential(nn.Linear(outer, inner), nn.GELU(), nn.Linear(inner, outer))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.places, self.channels = mlp((size // patch) ** 2, width // 2), mlp(width, 4 * width)

        def forward(self, x):
            x = x + self.places(self.norm1(x).transpose(1, 2)).transpose(1, 2)
            return x + self.channels(self.norm2(x))

    class Mixer(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, width, patch, patch)
            self.blocks = nn.Sequential(*(Block() for _ in range(depth)), nn.LayerNorm(width))
            self.head = nn.Linear(width, classes)

        def forward(self, x):
            return self.head(self.blocks(self.patches(x).flatten(2).transpose(1, 2)).mean(1))

    return classifier(torch, Mixer(), normal(rng, batch, 3, size, size), classes, rng, adamw(torch))


@model
def bert(torch, full, rng):
    """BERT base with its masked words (Devlin et al. 2018, https://arxiv.org/abs/1810.04805), of MultiheadAttention."""
    nn, F = torch.nn, torch.nn.functional
    batch, length, words, width, depth, heads = (16, 256, 30522, 768, 12, 12) if full else (2, 16, 64, 32, 2, 4)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(width, heads, dropout=0.1, batch_first=True)
            self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            self.dropout = nn.Dropout(0.1)

        def forward(self, x, padding):
            y, _ = self.attention(x, x, x, key_padding_mask=padding, need_weights=False)
            x = self.norm1(x + self.dropout(y))
            return self.norm2(x + self.dropout(self.mlp(x)))

    class Bert(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(words, width, padding_idx=0), nn.Embedding(length, width)
            self.segments = nn.Embedding(2, width)
            self.norm, self.dropout = nn.LayerNorm(width, eps=1e-12), nn.Dropout(0.1)
            self.layers = nn.ModuleList(Layer() for _ in range(depth))
            self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width, eps=1e-12))
            self.decoder = nn.Linear(width, words)
            self.apply(self.start)
            self.decoder.weight = self.words.weight

        @staticmethod
        def start(m):
            if isinstance(m, (nn.Linear, nn.Embedding)):
                nn.init.normal_(m.weight, std=0.02)
            if isinstance(m, nn.Linear):
                nn.init.zeros_(m.bias)

        def forward(self, x, segment):
            h = self.words(x) + self.places(torch.arange(x.shape[1], device=x.device)) + self.segments(segment)
            h, padding = self.dropout(self.norm(h)), x == 0
            for layer in self.layers:
                h = layer(h, padding)
            return h

    def loss(net, d):
        """Over the hidden words only."""
        h = net(d.x, d.segment)[d.masked]
        return F.cross_entropy(net.decoder(net.transform(h)), d.label[d.masked])

    label = rng.integers(2, words, (batch, length))
    masked = uniform(rng, batch, length) < 0.15
    masked[:, 1] = True
    x = np.where(masked, 1, label)
    used = np.arange(length) < rng.integers(length // 2, length + 1, (batch, 1))
    data = {
        "x": np.where(used, x, 0),
        "label": label,
        "masked": masked & used,
        "segment": np.broadcast_to(np.arange(length) // (length // 2), x.shape).copy(),
    }
    return Task(Bert(), data, {"": loss}, lambda net, d: net(d.x, d.segment), adamw(torch, weight_decay=0.01))


@model
def t5(torch, full, rng):
    """T5 small (Raffel et al. 2019, https://arxiv.org/abs/1910.10683): relative bias in buckets, one for all layers."""
    nn, F = torch.nn, torch.nn.functional
    batch, source, target, words = (16, 256, 64, 32128) if full else (2, 24, 12, 64)
    width, inner, depth, heads, buckets = (512, 2048, 6, 8, 32) if full else (32, 64, 2, 4, 8)

    class Norm(nn.Module):
        """The root of the mean square, no mean and no bias."""

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))

        def forward(self, x):
            return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6))

    class RelativeBias(nn.Module):
        def __init__(self, both):
            super().__init__()
            self.both, self.table = both, nn.Embedding(buckets, heads)

        def forward(self, queries, keys, device):
            gap = torch.arange(keys, device=device)[None, :] - torch.arange(queries, device=device)[:, None]
            count, bucket = buckets, torch.zeros_like(gap)
            if self.both:
                count //= 2
                bucket = bucket + (gap > 0).long() * count
                gap = gap.abs()
            else:
                gap = -torch.minimum(gap, torch.zeros_like(gap))
            exact = count // 2
            far = exact + (torch.log(gap.float() / exact) / math.log(128 / exact) * (count - exact)).long()
            far = torch.minimum(far, torch.full_like(far, count - 1))
            bucket = bucket + torch.where(gap < exact, gap, far)
            return self.table(bucket).permute(2, 0, 1)[None]

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
            nn.init.normal_(self.q.weight, std=(width * width // heads) ** -0.5)  # in place of scaled scores
            self.dropout = nn.Dropout(0.1)

        def forward(self, x, memory, bias):
            split = lambda y: y.view(y.shape[0], y.shape[1], heads, -1)
            scores = torch.einsum("bqhd,bkhd->bhqk", split(self.q(x)), split(self.k(memory)))
            if bias is not None:
                scores = scores + bias
            weights = self.dropout(F.softmax(scores, dim=-1))
            y = torch.einsum("bhqk,bkhd->bqhd", weights, split(self.v(memory)))
            return self.o(y.reshape(x.shape))

    class Layer(nn.Module):
        def __init__(self, cross):
            super().__init__()
            self.norm1, self.attention = Norm(), Attention()
            if cross:
                self.norm2, self.cross = Norm(), Attention()
            self.norm3 = Norm()
            self.mlp = nn.Sequential(
                nn.Linear(width, inner, bias=False), nn.ReLU(), nn.Dropout(0.1), nn.Linear(inner, width, bias=False)
            )
            self.dropout = nn.Dropout(0.1)

        def forward(self, x, bias, memory=None):
            y = self.norm1(x)
            x = x + self.dropout(self.attention(y, y, bias))
            if memory is not None:
                x = x + self.dropout(self.cross(self.norm2(x), memory, None))
            return x + self.dropout(self.mlp(self.norm3(x)))

    class T5(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(words, width)
            self.encoder = nn.ModuleList(Layer(False) for _ in range(depth))
            self.decoder = nn.ModuleList(Layer(True) for _ in range(depth))
            self.encoder_bias, self.decoder_bias = RelativeBias(True), RelativeBias(False)
            self.encoder_norm, self.decoder_norm = Norm(), Norm()

        def forward(self, x, y):
            h, bias = self.words(x), self.encoder_bias(x.shape[1], x.shape[1], x.device)
            for layer in self.encoder:
                h = layer(h, bias)
            memory, h = self.encoder_norm(h), self.words(y)
            n = y.shape[1]
            hidden = torch.ones(n, n, dtype=torch.bool, device=y.device).triu(1)
            bias = self.decoder_bias(n, n, y.device).masked_fill(hidden, float("-inf"))
            for layer in self.decoder:
                h = layer(h, bias, memory)
            return F.linear(self.decoder_norm(h) * width**-0.5, self.words.weight)

    def loss(net, d):
        return F.cross_entropy(net(d.x, F.pad(d.y[:, :-1], (1, 0))).flatten(0, 1), d.y.flatten())

    data = {"x": rng.integers(1, words, (batch, source)), "y": rng.integers(1, words, (batch, target))}
    adafactor = lambda parameters: torch.optim.Adafactor(parameters, lr=1e-2)
    return Task(T5(), data, {"": loss}, lambda net, d: net(d.x, d.y), adafactor)


@model
def llama(torch, full, rng):
    """Llama blocks (Touvron et al. 2023, https://arxiv.org/abs/2302.13971, https://arxiv.org/abs/2307.09288): root mean
    square norm, rotary places, grouped queries, SwiGLU."""
    nn, F = torch.nn, torch.nn.functional
    batch, length, words, width, inner = (4, 1024, 32000, 1024, 2816) if full else (2, 16, 64, 32, 88)
    depth, heads, groups = (4, 16, 4) if full else (2, 4, 2)

    def rotate(x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-b, a], dim=-1) * sin

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            size = width // heads
            self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
            self.k, self.v = (nn.Linear(width, groups * size, bias=False) for _ in range(2))

        def forward(self, x, cos, sin):
            b, s, _ = x.shape
            q, k, v = (m(x).view(b, s, -1, width // heads).transpose(1, 2) for m in (self.q, self.k, self.v))
            q, k = rotate(q, cos, sin).type_as(v), rotate(k, cos, sin).type_as(v)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            return self.o(y.transpose(1, 2).reshape(b, s, -1))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
            self.attention = Attention()
            self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
            self.down = nn.Linear(inner, width, bias=False)

        def forward(self, x, cos, sin):
            x = x + self.attention(self.norm1(x), cos, sin)
            y = self.norm2(x)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(words, width)
            self.blocks = nn.ModuleList(Block() for _ in range(depth))
            self.norm, self.head = nn.RMSNorm(width, eps=1e-5), nn.Linear(width, words, bias=False)
            size = width // heads
            rate = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
            angle = torch.outer(torch.arange(length, dtype=torch.float32), rate).repeat(1, 2)
            self.register_buffer("cos", angle.cos(), persistent=False)
            self.register_buffer("sin", angle.sin(), persistent=False)

        def forward(self, x):
            h = self.words(x)
            for block in self.blocks:
                h = block(h, self.cos, self.sin)
            return self.head(self.norm(h))

    x = rng.integers(0, words, (batch, length + 1))
    loss = lambda net, d: F.cross_entropy(net(d.x).flatten(0, 1), d.y.flatten())
    optimizer = adamw(torch, betas=(0.9, 0.95), weight_decay=0.1)
    return Task(Llama(), {"x": x[:, :-1].copy(), "y": x[:, 1:].copy()}, {"": loss}, lambda net, d: net(d.x), optimizer)
