#!/usr/bin/env python3
"""Draws the training steps of a small convolutional network on one CPU core under its roofs, docs/images/roofline.svg:

    python tools/draw_roofline.py docs/images/roofline.svg"""
from __future__ import annotations

import sys

import arete as torch
from arete import nn


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.GELU(),
                        nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1),
                        nn.Flatten(), nn.Linear(64 * 16 * 16, 128), nn.GELU(), nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(net.parameters())
    x, y = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()

    for _ in range(3):
        step()
    with torch.profiler.profile() as prof:
        for _ in range(3):
            step()
    prof.export_roofline(sys.argv[1])


if __name__ == "__main__":
    main()
