"""Networks that go through words or time step by step."""
from __future__ import annotations

import math

import numpy as np

from .task import Task, adamw, classifier, model, normal


@model
def mamba(torch, full, rng):
    """Mamba (Gu and Dao 2023, https://arxiv.org/abs/2312.00752), the selective scan as a loop over time."""
    nn, F = torch.nn, torch.nn.functional
    batch, length, words, width, state, depth = (8, 128, 8192, 512, 16, 2) if full else (2, 12, 32, 16, 4, 2)
    inner, rank = 2 * width, math.ceil(width / 16)

    class Mixer(nn.Module):
        def __init__(self):
            super().__init__()
            self.project = nn.Linear(width, 2 * inner, bias=False)
            self.conv = nn.Conv1d(inner, inner, 4, padding=3, groups=inner)
            self.select = nn.Linear(inner, rank + 2 * state, bias=False)
            self.step = nn.Linear(rank, inner)
            self.log_a = nn.Parameter(torch.log(torch.arange(1.0, state + 1).repeat(inner, 1)))
            self.skip = nn.Parameter(torch.ones(inner))
            self.out = nn.Linear(inner, width, bias=False)

        def scan(self, x):
            """h_t = exp(dt A) h_(t-1) + dt B x_t; y_t = C h_t."""
            step, b, c = self.select(x).split([rank, state, state], dim=-1)
            step = F.softplus(self.step(step))[..., None]
            decay, drive = torch.exp(step * -self.log_a.exp()), step * b[:, :, None] * x[..., None]
            h, outputs = torch.zeros_like(drive[:, 0]), []
            for t in range(x.shape[1]):
                h = decay[:, t] * h + drive[:, t]
                outputs.append((h * c[:, t, None]).sum(-1))
            return torch.stack(outputs, dim=1) + self.skip * x

        def forward(self, x):
            x, gate = self.project(x).chunk(2, dim=-1)
            x = F.silu(self.conv(x.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
            return self.out(self.scan(x) * F.silu(gate))

    class Mamba(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(words, width)
            self.norms = nn.ModuleList(nn.RMSNorm(width, eps=1e-5) for _ in range(depth))
            self.mixers = nn.ModuleList(Mixer() for _ in range(depth))
            self.head = nn.Sequential(nn.RMSNorm(width, eps=1e-5), nn.Linear(width, words, bias=False))

        def forward(self, x):
            h = self.words(x)
            for norm, mixer in zip(self.norms, self.mixers):
                h = h + mixer(norm(h))
            return self.head(h)

    x = rng.integers(0, words, (batch, length + 1))
    loss = lambda net, d: F.cross_entropy(net(d.x).transpose(1, 2), d.y)
    data = {"x": x[:, :-1].copy(), "y": x[:, 1:].copy()}
    return Task(Mamba(), data, {"": loss}, lambda net, d: net(d.x), adamw(torch))


@model
def lstm(torch, full, rng):
    """The medium LSTM language model of Zaremba et al. (2014, https://arxiv.org/abs/1409.2329), its state kept."""
    nn, F = torch.nn, torch.nn.functional
    batch, length, words, width = (20, 35, 10000, 650) if full else (3, 10, 50, 16)

    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.dropout = nn.Embedding(words, width), nn.Dropout(0.5)
            self.body, self.head = nn.LSTM(width, width, num_layers=2, dropout=0.5), nn.Linear(width, words)
            for p in self.parameters():
                nn.init.uniform_(p, -0.05, 0.05)

        def forward(self, x, state):
            h, state = self.body(self.dropout(self.words(x)), state)
            return self.head(self.dropout(h)), state

    def predict(net, d):
        logits, (h, c) = net(d.x, (d.h, d.c))
        return logits, h, c

    loss = lambda net, d: F.cross_entropy(net(d.x, (d.h, d.c))[0].view(-1, words), d.y.view(-1))
    x = rng.integers(0, words, (length + 1, batch))
    data = {name: 0.1 * normal(rng, 2, batch, width) for name in "hc"} | {"x": x[:-1].copy(), "y": x[1:].copy()}
    return Task(Language(), data, {"": loss}, predict, lambda parameters: torch.optim.SGD(parameters, lr=1.0))


@model
def seq2seq(torch, full, rng):
    """Translation with additive attention (Bahdanau et al. 2014, https://arxiv.org/abs/1409.0473): a bidirectional GRU
    over packed sentences, a GRU cell as decoder, the right words fed to it."""
    nn, F = torch.nn, torch.nn.functional
    batch, source, target, words, embedding, width = (64, 30, 30, 10000, 256, 512) if full else (3, 8, 6, 40, 12, 16)
    utils = nn.utils.rnn

    class Translator(nn.Module):
        def __init__(self):
            super().__init__()
            self.source = nn.Embedding(words, embedding, padding_idx=0)
            self.target = nn.Embedding(words, embedding, padding_idx=0)
            self.encoder = nn.GRU(embedding, width, batch_first=True, bidirectional=True)
            self.bridge = nn.Linear(width, width)
            self.key, self.query = nn.Linear(2 * width, width, bias=False), nn.Linear(width, width, bias=False)
            self.energy = nn.Linear(width, 1, bias=False)
            self.cell = nn.GRUCell(embedding + 2 * width, width)
            self.dropout, self.head = nn.Dropout(0.2), nn.Linear(embedding + 3 * width, words)

        def forward(self, x, lengths, y):
            packed = utils.pack_padded_sequence(
                self.dropout(self.source(x)), lengths.cpu(), batch_first=True, enforce_sorted=False
            )
            packed, last = self.encoder(packed)
            memory, _ = utils.pad_packed_sequence(packed, batch_first=True, total_length=x.shape[1])
            h, keys, padding = torch.tanh(self.bridge(last[1])), self.key(memory), x == 0
            outputs = []
            for word in self.dropout(self.target(y)).unbind(1):
                scores = self.energy(torch.tanh(keys + self.query(h)[:, None])).squeeze(2)
                weights = scores.masked_fill(padding, float("-inf")).softmax(1)
                context = torch.bmm(weights[:, None], memory).squeeze(1)
                h = self.cell(torch.cat([word, context], 1), h)
                outputs.append(torch.cat([word, context, h], 1))
            return self.head(torch.stack(outputs, 1))

    def loss(net, d):
        return F.cross_entropy(net(d.x, d.lengths, d.y[:, :-1]).flatten(0, 1), d.y[:, 1:].flatten(), ignore_index=0)

    def sentences(length):
        lengths = rng.integers(length // 2, length + 1, batch)
        lengths[0] = length
        return rng.integers(1, words, (batch, length)) * (np.arange(length) < lengths[:, None]), lengths

    (x, lengths), (y, _) = sentences(source), sentences(target + 1)
    predict = lambda net, d: net(d.x, d.lengths, d.y[:, :-1])
    optimizer = lambda parameters: torch.optim.Adadelta(parameters, rho=0.95, eps=1e-6)
    return Task(Translator(), {"x": x, "lengths": lengths, "y": y}, {"": loss}, predict, optimizer)


@model
def node(torch, full, rng):
    """A neural ODE as classifier (Chen et al. 2018, https://arxiv.org/abs/1806.07366), steps of Runge and Kutta."""
    nn = torch.nn
    batch, size, width, steps = (128, 28, 64, 4) if full else (4, 12, 8, 2)
    groups = width // 2

    class Slope(nn.Module):
        """dh / dt; the time is one more channel."""

        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList(nn.GroupNorm(groups, width) for _ in range(3))
            self.convs = nn.ModuleList(nn.Conv2d(width + 1, width, 3, padding=1) for _ in range(2))

        def forward(self, t, h):
            time = torch.ones_like(h[:, :1]) * t
            for norm, conv in zip(self.norms, self.convs):
                h = conv(torch.cat([torch.relu(norm(h)), time], 1))
            return self.norms[2](h)

    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.slope = Slope()

        def forward(self, h):
            dt = 1 / steps
            for i in range(steps):
                t = i * dt
                k1 = self.slope(t, h)
                k2 = self.slope(t + dt / 2, h + dt / 2 * k1)
                k3 = self.slope(t + dt / 2, h + dt / 2 * k2)
                k4 = self.slope(t + dt, h + dt * k3)
                h = h + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            return h

    def down(inner):
        return [nn.Conv2d(inner, width, 4, 2, 1), nn.GroupNorm(groups, width), nn.ReLU(inplace=True)]

    net = nn.Sequential(*down(1), *down(width), Flow(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
    return classifier(torch, net, normal(rng, batch, 1, size, size), 10, rng, adamw(torch, 1e-3))
