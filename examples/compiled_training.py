"""Trains a small network with and without arete.compile(): the same losses, in fewer kernels."""
import time

import arete
from arete import nn


def train(wrap):
    """Losses and seconds of 200 steps; `wrap` gives the function that is called for each."""
    arete.manual_seed(0)
    net = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 1))
    optimizer = arete.optim.AdamW(net.parameters(), lr=1e-2)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    step, losses, begun = wrap(step), [], time.perf_counter()
    for _ in range(200):
        x = arete.randn(256, 32)
        losses.append(step(x, x.square().mean(1, keepdim=True)).item())
    return losses, time.perf_counter() - begun


eager, seconds = train(lambda step: step)
compiled, compiled_seconds = train(lambda step: arete.compile(step, options={"exact": True}))
print(f"loss {eager[0]:.4f} -> {eager[-1]:.4f}, {'and the same when compiled' if eager == compiled else 'but others compiled'}")
print(f"eager {seconds * 1e3:.1f} ms, compiled {compiled_seconds * 1e3:.1f} ms")
assert eager == compiled
