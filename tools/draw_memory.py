#!/usr/bin/env python3
"""Draws the memory of two training steps as an SVG image, docs/images/memory.svg:

    python tools/draw_memory.py docs/images/memory.svg [history.json]

The history is that of a small network on the CPU, or one that arete.cuda.memory._dump_snapshot() wrote as JSON."""
from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import defaultdict

from svg_colours import colours, style

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, MOST = 900, 440, 74, 204, 78, 42, 9
COLOURS = ["#2563eb", "#d9480f", "#0f8a6d", "#9333b8", "#b7791f", "#0e7fa8", "#be2a5b", "#5f7d2a", "#7a5c45", "#8b95a5"]
STYLE = style("""
.mp{font:12px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}.mp .b{fill:var(--bg)}
.mp text{fill:var(--soft)}.mp .t{fill:var(--ink);font-size:16px;font-weight:600}.mp .n{fill:var(--ink)}
.mp .g{stroke:var(--grid)}.mp .p{stroke:var(--ink);stroke-dasharray:4 3}
""", light=colours("--bg:#fff;--ink:#1c2330;--soft:#5b6575;--grid:#e9ecf1"),
              dark=colours("--bg:#1a1f28;--ink:#e6e9ef;--soft:#98a2b3;--grid:#272d38"))


def record() -> tuple[str, list]:
    """Two steps of a small convolutional network; what it shows, and the events."""
    import arete as torch
    from arete import nn
    from arete.cuda import memory

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
            self.middle = nn.Sequential(nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU())
            self.top = nn.Sequential(nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.BatchNorm2d(128), nn.ReLU())
            self.head = nn.Sequential(nn.Flatten(), nn.Linear(128 * 8 * 8, 64), nn.ReLU(), nn.Linear(64, 10))

        def forward(self, x):
            return self.head(self.top(self.middle(self.stem(x))))

    memory._record_memory_history(context=None)
    with memory.name_scope("parameters"):
        net = Net()
        optimizer = torch.optim.Adam(net.parameters())
    for _ in range(2):
        with memory.name_scope("batch"):
            x, label = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
        loss = nn.functional.cross_entropy(net(x), label)
        with memory.name_scope("backward"):
            loss.backward()
        with memory.name_scope("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "history.json")
        memory._dump_snapshot(file)
        memory._record_memory_history(None)
        with open(file) as f:
            return "Two training steps of a small convolutional network", json.load(f)["events"]


def size_text(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.3g} {unit}"
        size /= 1024
    raise AssertionError


def draw(title: str, events: list) -> str:
    """Memory by the first two names of the scope that allocated it, event by event."""
    owner, held, peak, most = {}, [defaultdict(int)], 0, 0
    highest: dict[str, int] = defaultdict(int)
    for event in events:
        now = held[-1].copy()
        if event["action"] == "alloc":
            name = "/".join(event["scope"].split("/")[:2]) or "elsewhere"
            owner[event["device"], event["addr"]] = name, event["size"]
            now[name] += event["size"]
            highest[name] = max(highest[name], now[name])
        elif event["action"] == "free":
            name, size = owner.pop((event["device"], event["addr"]), ("", 0))
            now[name] -= size
        held.append(now)
        if sum(now.values()) > most:
            most, peak = sum(now.values()), len(held) - 1
    # Those that begin first lie at the bottom.
    seen = [n for n in highest if highest[n] > most / 300]
    order = sorted(sorted(seen, key=lambda n: -highest[n])[:MOST], key=list(highest).index)
    rest = set(highest) - set(order)

    tick = 4 ** 5
    while most / tick > 6:
        tick *= 2
    right, base = WIDTH - RIGHT, HEIGHT - BOTTOM

    def x(i: int) -> int:
        return round(LEFT + (right - LEFT) * i / (len(held) - 1))

    def y(size: float) -> int:
        return round(base - (base - TOP) * size / most)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" class="mp" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
           f'role="img"><style>{STYLE}</style><rect width="{WIDTH}" height="{HEIGHT}" class="b"/>',
           f'<text x="{LEFT}" y="24" class="t">{title}</text>',
           f'<text x="{LEFT}" y="43">memory of tensors by the scope that allocated it; {len(events)} allocations and frees in '
           f'their order</text>']
    for size in range(0, most + 1, tick):
        out.append(f'<line x1="{LEFT}" x2="{right}" y1="{y(size)}" y2="{y(size)}" class="g"/>'
                   f'<text x="{LEFT - 8}" y="{y(size) + 4}" text-anchor="end">{size_text(size)}</text>')
    # Each area reaches down to the axis; the lower ones are painted over it.
    for k in range(len(order) + bool(rest) - 1, -1, -1):
        below = [sum(h[n] for n in order[: k + 1]) + (sum(h[n] for n in rest) if k == len(order) else 0) for h in held]
        path, at = f"M{LEFT} {base}", (LEFT, base)
        for i, size in enumerate(below):
            if y(size) != at[1]:
                path += (f"h{x(i) - at[0]}" if x(i) != at[0] else "") + f"v{y(size) - at[1]}"
                at = x(i), y(size)
        out.append(f'<path fill="{COLOURS[k]}" d="{path}H{right}V{base}z"/>')
    out.append(f'<line x1="{x(peak)}" x2="{x(peak)}" y1="{TOP - 20}" y2="{base}" class="p"/>')
    left_of = x(peak) > (LEFT + right) / 2
    out.append(f'<text x="{x(peak) + (-6 if left_of else 6)}" y="{TOP - 9}" class="n" text-anchor="{"end" if left_of else "start"}">'
               f"peak {size_text(most)}</text>")
    names = order + [f"{len(rest)} others"] * bool(rest)
    at_peak = [held[peak][n] for n in order] + [sum(held[peak][n] for n in rest)] * bool(rest)
    out.append(f'<text x="{right + 18}" y="{TOP + 4}">at the peak</text>')
    for k in range(len(names) - 1, -1, -1):
        row = TOP + 26 + 20 * (len(names) - 1 - k)
        out.append(f'<rect x="{right + 18}" y="{row - 10}" width="11" height="11" rx="2" fill="{COLOURS[k]}"/>'
                   f'<text x="{right + 36}" y="{row}"><tspan class="n">{names[k]}</tspan> {size_text(at_peak[k])}</text>')
    for i in range(0, len(held), max(1, len(held) // 5 // 10 * 10)):
        out.append(f'<text x="{x(i)}" y="{base + 20}" text-anchor="middle">{i}</text>')
    return "\n".join(out) + "\n</svg>\n"


def main() -> None:
    if len(sys.argv) > 2:
        with open(sys.argv[2]) as f:
            title, events = "Memory", json.load(f)["events"]
    else:
        title, events = record()
    with open(sys.argv[1], "w") as f:
        f.write(draw(title, events))


if __name__ == "__main__":
    main()
