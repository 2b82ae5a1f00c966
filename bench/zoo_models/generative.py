"""Networks that make pictures."""
from __future__ import annotations

import math

import numpy as np

from .task import Task, adamw, model, normal, uniform


@model
def dcgan(torch, full, rng):
    """DCGAN (Radford et al. 2015, https://arxiv.org/abs/1511.06434): a step of the discriminator, one of the other."""
    nn, F = torch.nn, torch.nn.functional
    batch, size, latent, width, channels = (128, 64, 100, 64, 3) if full else (4, 16, 8, 8, 3)

    class Gan(nn.Module):
        def __init__(self):
            super().__init__()
            steps = size.bit_length() - 4  # doublings between 4x4 and half of the size
            out = width << steps
            layers = [nn.ConvTranspose2d(latent, out, 4, bias=False), nn.BatchNorm2d(out), nn.ReLU(True)]
            for _ in range(steps):
                out //= 2
                layers += [nn.ConvTranspose2d(2 * out, out, 4, 2, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(True)]
            self.generator = nn.Sequential(*layers, nn.ConvTranspose2d(out, channels, 4, 2, 1, bias=False), nn.Tanh())
            layers = [nn.Conv2d(channels, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, True)]
            for _ in range(steps):
                out *= 2
                layers += [nn.Conv2d(out // 2, out, 4, 2, 1, bias=False), nn.BatchNorm2d(out), nn.LeakyReLU(0.2, True)]
            self.discriminator = nn.Sequential(*layers, nn.Conv2d(out, 1, 4, bias=False), nn.Flatten(0))
            for m in self.modules():
                if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
                    nn.init.normal_(m.weight, 0.0, 0.02)
                elif isinstance(m, nn.BatchNorm2d):
                    nn.init.normal_(m.weight, 1.0, 0.02)

    def judge(net, pictures, real):
        logits = net.discriminator(pictures)
        target = torch.ones_like(logits) if real else torch.zeros_like(logits)
        return F.binary_cross_entropy_with_logits(logits, target)

    losses = {
        "discriminator": lambda net, d: judge(net, d.real, True) + judge(net, net.generator(d.z).detach(), False),
        "generator": lambda net, d: judge(net, net.generator(d.z), True),
    }
    data = {"real": np.tanh(normal(rng, batch, channels, size, size)), "z": normal(rng, batch, latent, 1, 1)}
    optimizer = lambda parameters: torch.optim.Adam(parameters, lr=2e-4, betas=(0.5, 0.999))
    return Task(Gan(), data, losses, lambda net, d: net.generator(d.z), optimizer)


@model
def vae(torch, full, rng):
    """Variational autoencoder (Kingma and Welling 2013, https://arxiv.org/abs/1312.6114)."""
    nn, F = torch.nn, torch.nn.functional
    batch, size, hidden, latent = (128, 784, 500, 20) if full else (8, 64, 32, 4)

    class Vae(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(size, hidden), nn.Tanh())
            self.mean, self.log_variance = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
            self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.Tanh(), nn.Linear(hidden, size))

        def forward(self, x, noise):
            h = self.encoder(x)
            mean, log_variance = self.mean(h), self.log_variance(h)
            return self.decoder(mean + noise * torch.exp(0.5 * log_variance)), mean, log_variance

    def loss(net, d):
        logits, mean, log_variance = net(d.x, d.noise)
        likelihood = F.binary_cross_entropy_with_logits(logits, d.x, reduction="sum")
        divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        return (likelihood + divergence) / len(d.x)

    data = {"x": uniform(rng, batch, size), "noise": normal(rng, batch, latent)}
    optimizer = lambda parameters: torch.optim.Adagrad(parameters, lr=0.01)
    return Task(Vae(), data, {"": loss}, lambda net, d: net(d.x, d.noise)[0].sigmoid(), optimizer)


@model
def diffusion(torch, full, rng):
    """The U-Net of denoising diffusion (Ho et al. 2020, https://arxiv.org/abs/2006.11239), at CIFAR-10's size."""
    nn, F = torch.nn, torch.nn.functional
    batch, size, width, factors, groups = (64, 32, 128, (1, 2, 2, 2), 32) if full else (2, 16, 8, (1, 2), 4)
    blocks, steps, attended = 2, 1000, size // 2

    class Time(nn.Module):
        """Sines and cosines of the step, then an MLP."""

        def __init__(self):
            super().__init__()
            half = width // 2
            rate = torch.exp(-math.log(10000.0) * torch.arange(half) / (half - 1))
            self.register_buffer("rate", rate, persistent=False)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, 4 * width))

        def forward(self, t):
            angle = t[:, None] * self.rate
            return self.mlp(torch.cat([angle.sin(), angle.cos()], dim=1))

    class Residual(nn.Module):
        def __init__(self, inner, out):
            super().__init__()
            self.first = nn.Sequential(nn.GroupNorm(groups, inner), nn.SiLU(), nn.Conv2d(inner, out, 3, padding=1))
            self.time = nn.Sequential(nn.SiLU(), nn.Linear(4 * width, out))
            self.second = nn.Sequential(
                nn.GroupNorm(groups, out), nn.SiLU(), nn.Dropout(0.1), nn.Conv2d(out, out, 3, padding=1)
            )
            self.shortcut = nn.Conv2d(inner, out, 1) if inner != out else nn.Identity()

        def forward(self, x, time):
            return self.shortcut(x) + self.second(self.first(x) + self.time(time)[:, :, None, None])

    class Attention(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm = nn.GroupNorm(groups, width)
            self.qkv, self.out = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

        def forward(self, x, time):
            b, c, h, w = x.shape
            q, k, v = self.qkv(self.norm(x)).flatten(2).chunk(3, dim=1)
            weights = torch.softmax(torch.einsum("bcq,bck->bqk", q, k) * c**-0.5, dim=-1)
            return x + self.out(torch.einsum("bqk,bck->bcq", weights, v).view(b, c, h, w))

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.time, self.start = Time(), nn.Conv2d(3, width, 3, padding=1)
            self.down, self.up = nn.ModuleList(), nn.ModuleList()
            inner, skips, side = width, [width], size
            for i, factor in enumerate(factors):
                for _ in range(blocks):
                    self.down.append(self.level(inner, factor * width, side))
                    inner = factor * width
                    skips.append(inner)
                if i + 1 < len(factors):
                    self.down.append(nn.Conv2d(inner, inner, 3, 2, 1))
                    skips.append(inner)
                    side //= 2
            self.middle = nn.ModuleList([Residual(inner, inner), Attention(inner), Residual(inner, inner)])
            for i, factor in reversed(list(enumerate(factors))):
                for _ in range(blocks + 1):
                    self.up.append(self.level(inner + skips.pop(), factor * width, side))
                    inner = factor * width
                if i:
                    self.up.append(nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(inner, inner, 3, padding=1)))
                    side *= 2
            self.head = nn.Sequential(nn.GroupNorm(groups, inner), nn.SiLU(), nn.Conv2d(inner, 3, 3, padding=1))

        @staticmethod
        def level(inner, out, side):
            return nn.ModuleList([Residual(inner, out)] + ([Attention(out)] if side == attended else []))

        def forward(self, x, t):
            time, x = self.time(t), self.start(x)
            skips = [x]
            for layer in self.down:
                if isinstance(layer, nn.ModuleList):
                    for m in layer:
                        x = m(x, time)
                else:
                    x = layer(x)
                skips.append(x)
            for m in self.middle:
                x = m(x, time)
            for layer in self.up:
                if isinstance(layer, nn.ModuleList):
                    x = torch.cat([x, skips.pop()], dim=1)
                    for m in layer:
                        x = m(x, time)
                else:
                    x = layer(x)
            return self.head(x)

    def loss(net, d):
        share = torch.cumprod(1 - torch.linspace(1e-4, 0.02, steps, device=d.x.device), 0)[d.t][:, None, None, None]
        return F.mse_loss(net(share.sqrt() * d.x + (1 - share).sqrt() * d.noise, d.t), d.noise)

    data = {
        "x": 2 * uniform(rng, batch, 3, size, size) - 1,
        "noise": normal(rng, batch, 3, size, size),
        "t": rng.integers(0, steps, batch),
    }
    return Task(UNet(), data, {"": loss}, lambda net, d: net(d.noise, d.t), adamw(torch, 2e-4))
