"""Networks that speak."""
from __future__ import annotations

import numpy as np

from .task import Task, adamw, model, normal


@model
def tacotron(torch, full, rng):
    """After Tacotron 2 (Shen et al. 2017, https://arxiv.org/abs/1712.05884): letters to mel frames by an attention that
    knows where it was; two frames a step."""
    nn, F = torch.nn, torch.nn.functional
    batch, letters, frames, width, mels, kernel = (32, 80, 120, 512, 80, 31) if full else (2, 10, 8, 16, 6, 5)
    reduce, symbols = 2, 40

    def conv(inner, out, kernel, activation):
        layers = nn.Conv1d(inner, out, kernel, padding=kernel // 2), nn.BatchNorm1d(out), activation, nn.Dropout(0.5)
        return nn.Sequential(*layers)

    class Attention(nn.Module):
        """Location-sensitive (Chorowski et al. 2015): scores look at the sum of the weights so far, too."""

        def __init__(self):
            super().__init__()
            self.query, self.key = nn.Linear(2 * width, width // 4), nn.Linear(width, width // 4, bias=False)
            self.location = nn.Conv1d(2, 8, kernel, padding=kernel // 2, bias=False)
            self.place, self.energy = nn.Linear(8, width // 4, bias=False), nn.Linear(width // 4, 1)

        def forward(self, query, keys, weights, total, padding):
            place = self.place(self.location(torch.stack([weights, total], 1)).transpose(1, 2))
            scores = self.energy(torch.tanh(self.query(query)[:, None] + keys + place)).squeeze(-1)
            return F.softmax(scores.masked_fill(padding, float("-inf")), dim=1)

    class Tacotron(nn.Module):
        def __init__(self):
            super().__init__()
            self.letters = nn.Embedding(symbols, width, padding_idx=0)
            self.convs = nn.Sequential(*(conv(width, width, 5, nn.ReLU()) for _ in range(3)))
            self.encoder = nn.LSTM(width, width // 2, batch_first=True, bidirectional=True)
            half = width // 2
            self.prenet = nn.Sequential(
                nn.Linear(mels, half), nn.ReLU(), nn.Dropout(0.5), nn.Linear(half, half), nn.ReLU(), nn.Dropout(0.5)
            )
            self.attention = Attention()
            self.first, self.second = nn.LSTMCell(half + width, 2 * width), nn.LSTMCell(3 * width, 2 * width)
            self.frame, self.stop = nn.Linear(3 * width, reduce * mels), nn.Linear(3 * width, reduce)
            middle = [conv(width, width, 5, nn.Tanh()) for _ in range(3)]
            self.postnet = nn.Sequential(conv(mels, width, 5, nn.Tanh()), *middle, conv(width, mels, 5, nn.Identity()))

        def forward(self, text, mel):
            """The frames before the last net, those after it, and the logits that the sound ends."""
            padding = text == 0
            memory, _ = self.encoder(self.convs(self.letters(text).transpose(1, 2)).transpose(1, 2))
            keys = self.attention.key(memory)
            inputs = self.prenet(F.pad(mel[:, reduce - 1 : -1 : reduce], (0, 0, 1, 0)))
            b = len(text)
            weights = total = memory.new_zeros(b, text.shape[1])
            context, h = memory.new_zeros(b, width), memory.new_zeros(b, 2 * width)
            first = second = (h, h)
            outputs = []
            for x in inputs.unbind(1):
                first = self.first(torch.cat([x, context], 1), first)
                weights = self.attention(first[0], keys, weights, total, padding)
                total = total + weights
                context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
                second = self.second(torch.cat([first[0], context], 1), second)
                outputs.append(torch.cat([second[0], context], 1))
            h = torch.stack(outputs, 1)
            coarse = self.frame(h).view(b, -1, mels)
            return coarse, coarse + self.postnet(coarse.transpose(1, 2)).transpose(1, 2), self.stop(h).view(b, -1)

    def loss(net, d):
        coarse, fine, stop = net(d.text, d.mel)
        ends = F.binary_cross_entropy_with_logits(stop, d.stop, pos_weight=d.weight)
        return F.mse_loss(coarse, d.mel) + F.l1_loss(fine, d.mel) + ends

    lengths = rng.integers(letters // 2, letters + 1, (batch, 1))
    data = {
        "text": rng.integers(1, symbols, (batch, letters)) * (np.arange(letters) < lengths),
        "mel": normal(rng, batch, frames, mels),
        "stop": np.tile((np.arange(frames) >= frames - 4).astype(np.float32), (batch, 1)),
        "weight": np.full(1, 5, np.float32),
    }
    return Task(Tacotron(), data, {"": loss}, lambda net, d: net(d.text, d.mel), adamw(torch, 1e-3, weight_decay=1e-6))


@model
def wavenet(torch, full, rng):
    """WaveNet (van den Oord et al. 2016, https://arxiv.org/abs/1609.03499): gated, dilated, causal convolutions."""
    nn, F = torch.nn, torch.nn.functional
    batch, length, residual, skip, depth, stacks = (4, 8192, 64, 256, 10, 2) if full else (2, 64, 8, 16, 3, 2)
    levels = 256

    class Layer(nn.Module):
        def __init__(self, dilation):
            super().__init__()
            self.dilation = dilation
            self.conv = nn.Conv1d(residual, 2 * residual, 2, dilation=dilation)
            self.skip, self.out = nn.Conv1d(residual, skip, 1), nn.Conv1d(residual, residual, 1)

        def forward(self, x):
            filtered, gate = self.conv(F.pad(x, (self.dilation, 0))).chunk(2, dim=1)
            y = torch.tanh(filtered) * torch.sigmoid(gate)
            return x + self.out(y), self.skip(y)

    class WaveNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.levels = nn.Embedding(levels, residual)
            self.layers = nn.ModuleList(Layer(1 << i) for _ in range(stacks) for i in range(depth))
            self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(skip, skip, 1), nn.ReLU(), nn.Conv1d(skip, levels, 1))

        def forward(self, x):
            """Logits of the level of each sample; it sees those before."""
            x = F.pad(self.levels(x).transpose(1, 2)[..., :-1], (1, 0))
            total = 0
            for layer in self.layers:
                x, y = layer(x)
                total = total + y
            return self.head(total)

    wave = np.sin(np.arange(length) * rng.uniform(0.01, 0.3, (batch, 1)))
    mu = levels - 1
    coded = np.sign(wave) * np.log1p(mu * np.abs(wave)) / np.log1p(mu)
    data = {"x": ((coded + 1) / 2 * mu + 0.5).astype(np.int64)}
    loss = lambda net, d: F.cross_entropy(net(d.x), d.x)
    return Task(WaveNet(), data, {"": loss}, lambda net, d: net(d.x), adamw(torch))
