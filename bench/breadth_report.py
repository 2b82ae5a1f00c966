"""What the breadth benchmark found, as text and as a page."""

from __future__ import annotations

import collections
import html
import json
import math
import statistics

GROWTH = 1.25  # an exponent above this, and above PyTorch's by a fifth, is faster than the input
STILL = 1e-4  # seconds below which a time says nothing of growth
FEWER = 0.8  # of the baseline's ratio: noise stays above it


def measured(table):
    """Rows with times, the worst first."""
    return sorted((r for r in table["rows"].values() if "ratio" in r), key=lambda r: r["ratio"])


def _pairs(table):
    """Rows that differ in size alone, the larger after the smaller."""
    groups = collections.defaultdict(list)
    for r in measured(table):
        groups[r["callable"], r["form"], r["dtype"], r["layout"], r["direction"]].append(r)
    for rows in groups.values():
        rows.sort(key=lambda r: r["elements"])
        for a, b in zip(rows, rows[1:]):
            if b["elements"] >= 2 * a["elements"]:
                yield a, b


def _exponent(a, b, figure):
    if a.get(figure, 0) <= 0 or b.get(figure, 0) <= 0:  # a peak may be below what was held before
        return 0.0
    return math.log(b[figure] / a[figure]) / math.log(b["elements"] / a["elements"])


def growing(table):
    """(exponent, PyTorch's, what grows, row) of what grows faster than the elements do, and than PyTorch's does."""
    found = []
    for a, b in _pairs(table):
        for what, ours, theirs, least in (
            ("time", "arete_us", "torch_us", 1e6 * STILL),
            ("memory", "arete_peak", "torch_peak", 1 << 20),
        ):
            if b[ours] < least:
                continue
            mine, peer = _exponent(a, b, ours), _exponent(a, b, theirs)
            if mine > GROWTH and mine > peer + 0.2:
                found.append((mine, peer, what, b["name"]))
    return sorted(found, reverse=True)


def more_launches(table):
    """(launches before, after, row) of what starts more kernels when the input grows."""
    found = [
        (a["launches"], b["launches"], b["name"])
        for a, b in _pairs(table)
        if "launches" in a and b.get("launches", 0) > a["launches"] + 1
    ]
    return sorted(found, key=lambda f: f[0] - f[1])


def _line(r):
    memory = f"{r['memory_ratio']:7.2f}x" if "memory_ratio" in r else f"{'':8s}"
    launches = f"{r['launches']:5d}" if "launches" in r else f"{'':5s}"
    times = f"{r['ratio']:8.3g}x {r['torch_us']:11.1f} {r['arete_us']:11.1f} us"
    return f"{times} {memory} {launches} {100 * r['roof']:6.1f}%  {r['name']}"


def _section(title, lines, most=40):
    if not lines:
        return []
    return [
        "",
        f"{title}: {len(lines)}",
        *(f"  {line}" for line in lines[:most]),
        *([f"  and {len(lines) - most} more"] if len(lines) > most else []),
    ]


def _summary(rows, title):
    ratios = sorted(r["ratio"] for r in rows)
    memory = [r["memory_ratio"] for r in rows if "memory_ratio" in r]
    share = lambda values, least: 100 * sum(v < least for v in values) / max(len(values), 1)  # noqa: E731
    return (
        f"{title:8s} {len(rows):6d} rows, median {statistics.median(ratios):5.2f}x, "
        f"tenth percentile {ratios[len(ratios) // 10]:5.2f}x, {share(ratios, 0.95):4.1f} % below 0.95x, "
        f"{share(ratios, 0.5):4.1f} % below 0.5x; memory above 1.1 of PyTorch's: {share(memory, 1 / 1.1):4.1f} %"
    )


def text(table):
    rows, every = measured(table), list(table["rows"].values())
    lines = []
    if rows:
        lines += [_summary(rows, "all")]
        for size in ("host", "cache", "memory"):
            part = [r for r in rows if r["size"] == size]
            lines += [_summary(part, size)] if part else []
        lines += [
            "",
            f"{'ratio':>9s} {'PyTorch':>11s} {'Arete':>11s} {'memory':>11s} {'kernels':>5s} {'roof':>5s}  the slowest",
        ]
        lines += [_line(r) for r in rows[:60]]
    heavy = sorted((r for r in rows if r.get("memory_ratio", 1) < 1 / 1.1), key=lambda r: r["memory_ratio"])
    lines += _section(
        "More memory than PyTorch's",
        [
            f"{r['memory_ratio']:8.2g}x {r['torch_peak'] / 2**20:9.2f} {r['arete_peak'] / 2**20:9.2f} MiB  "
            f"{r['name']}"
            for r in heavy
        ],
    )
    lines += _section(
        "Growing faster than the input (exponent, PyTorch's)",
        [f"{mine:5.2f} {peer:5.2f} {what:6s} {name}" for mine, peer, what, name in growing(table)],
    )
    lines += _section(
        "More launches for more input", [f"{a:5d} to {b:5d}  {name}" for a, b, name in more_launches(table)]
    )
    lines += _section(
        "Waits of the host", [f"{', '.join(sorted(set(r['waits'])))}: {r['name']}" for r in rows if r.get("waits")]
    )
    for status, title in (
        ("wrong", "Wrong results"),
        ("error", "Errors where PyTorch has none"),
        ("failed", "Rows that failed"),
        ("meant", "Errors that are meant"),
        ("not measured", "Rows that were not measured"),
    ):
        lines += _section(title, [f"{r['name']}: {r['note']}" for r in every if r["status"] == status])
    names = {r["callable"] for r in every}
    refused = {n: "PyTorch refuses it in the dtypes and sizes of the rows" for n in table["absent"] if n not in names}
    reasons = collections.defaultdict(list)
    for name, why in {**refused, **table["missing"]}.items():
        reasons[why].append(name)
    lines += ["", f"Not measured: {sum(map(len, reasons.values()))} names"]
    lines += [
        f"  {why} ({len(names)}): {', '.join(sorted(names))}"
        for why, names in sorted(reasons.items(), key=lambda p: -len(p[1]))
    ]
    if table.get("late"):
        lines += [f"  out of time ({len(table['late'])}): {', '.join(table['late'])}"]
    lines += [f"  records without a name of their own ({len(table['internal'])}): {', '.join(table['internal'])}"]
    lines += [
        "",
        f"{len(every)} rows of {len(names)} of {table['callables']} callables of both libraries, {table['machine']}",
    ]
    return "\n".join(lines)


def ratios(table):
    """What a later run is compared with: the ratios alone, small enough to be kept."""
    figures = ("ratio", "memory_ratio")
    rows = {r["name"]: {f: round(r[f], 3) for f in figures if f in r} for r in measured(table)}
    return {"machine": table["machine"], "rows": rows}


def slower_than(table, before):
    """Rows whose advantage over PyTorch, in time or memory, shrank by a fifth or more since the table of before."""
    found = []
    for name, old in before["rows"].items():
        new = table["rows"].get(name)
        for figure in ("ratio", "memory_ratio"):
            if new and figure in old and new.get(figure, math.inf) < FEWER * old[figure]:
                found.append(
                    (new[figure] / old[figure], f"{figure} {new[figure]:.2f}x, was {old[figure]:.2f}x: {name}")
                )
        if new and "ratio" in old and "ratio" not in new:
            found.append((0.0, f"{new['status']} ({new.get('note')}): {name}"))
    return [line for _, line in sorted(found)]


def write_page(table, path):
    """One page that needs nothing else: a dot for each row over its rank, and the rows in a table."""
    keep = (
        "name",
        "ratio",
        "memory_ratio",
        "torch_us",
        "arete_us",
        "torch_peak",
        "arete_peak",
        "launches",
        "roof",
        "size",
        "direction",
        "status",
    )
    rows = [{k: round(r[k], 4) if isinstance(r.get(k), float) else r.get(k) for k in keep} for r in measured(table)]
    data = json.dumps(rows).replace("</", "<\\/")
    title = (
        f"Arete beside PyTorch {table['machine']['torch']}, {table['machine']['device']}, {table['machine']['date']}"
    )
    with open(path, "w", encoding="utf-8") as file:
        file.write(
            PAGE.replace("@TITLE@", html.escape(title))
            .replace("@REPORT@", html.escape(text(table)))
            .replace("@ROWS@", data)
        )


PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Breadth</title>
<style>
  body { font: 14px/1.4 system-ui, sans-serif; margin: 1.5em; color: #222; }
  canvas { width: 100%; height: 420px; border: 1px solid #ccc; display: block; }
  #tip { position: fixed; background: #fffff0; border: 1px solid #999; padding: .4em .6em; display: none;
         pointer-events: none; max-width: 60em; white-space: pre-wrap; }
  pre { font-size: 12px; overflow-x: auto; }
  .host { color: #c60 } .cache { color: #084 } .memory { color: #05c }
</style>
<h1>@TITLE@</h1>
<p>One dot a row: how many times as fast as PyTorch (above 1: Arete is faster), by rank, log scale.
<b class="host">&#9679; host-bound</b> <b class="cache">&#9679; cache</b> <b class="memory">&#9679; memory-bound</b>
&ensp;<label>figure <select id="figure">
  <option value="ratio">time</option><option value="memory_ratio">peak memory</option>
</select></label>
<label>names with <input id="filter" placeholder="regular expression"></label> <span id="count"></span></p>
<canvas id="plot"></canvas><div id="tip"></div>
<h2>Report</h2><pre>@REPORT@</pre>
<script>
const rows = @ROWS@;
const canvas = document.getElementById('plot'), tip = document.getElementById('tip');
const figure = document.getElementById('figure'), filter = document.getElementById('filter');
const color = {host: '#c60', cache: '#084', memory: '#05c'};
let dots = [];
function draw() {
  let wanted;
  try { wanted = new RegExp(filter.value, 'i'); } catch (e) { return; }
  const key = figure.value;
  const shown = rows.filter(r => r[key] != null && wanted.test(r.name)).sort((a, b) => a[key] - b[key]);
  document.getElementById('count').textContent = shown.length + ' rows';
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = width * scale; canvas.height = height * scale;
  const c = canvas.getContext('2d');
  c.scale(scale, scale);
  c.font = '12px sans-serif';
  const least = Math.min(0.1, ...shown.slice(0, 1).map(r => r[key]));
  const most = Math.max(10, ...shown.slice(-1).map(r => r[key]));
  const low = Math.floor(Math.log10(least)), high = Math.ceil(Math.log10(most));
  const y = v => height - 15 - (Math.log10(v) - low) / (high - low) * (height - 30);
  const x = i => 50 + (width - 60) * (i + 0.5) / shown.length;
  for (let p = low; p <= high; p++) {
    c.strokeStyle = p ? '#ddd' : '#333';
    c.beginPath(); c.moveTo(45, y(10 ** p)); c.lineTo(width, y(10 ** p)); c.stroke();
    c.fillStyle = '#333'; c.fillText(10 ** p + 'x', 4, y(10 ** p) + 4);
  }
  dots = shown.map((r, i) => ({x: x(i), y: y(r[key]), r}));
  for (const d of dots) {
    c.fillStyle = color[d.r.size];
    c.globalAlpha = d.r.status == 'ok' ? 0.6 : 1;
    c.fillRect(d.x - 2, d.y - 2, 4, 4);
  }
}
canvas.onmousemove = e => {
  const box = canvas.getBoundingClientRect(), mx = e.clientX - box.left, my = e.clientY - box.top;
  let best = null, distance = 200;
  for (const d of dots) {
    const apart = (d.x - mx) ** 2 + (d.y - my) ** 2;
    if (apart < distance) { distance = apart; best = d.r; }
  }
  tip.style.display = best ? 'block' : 'none';
  if (!best) return;
  const mib = b => b == null ? '?' : (b / 1048576).toFixed(2) + ' MiB';
  tip.textContent = best.name + '\\n' + best.ratio + 'x: PyTorch ' + best.torch_us + ' us, Arete ' + best.arete_us
    + ' us\\npeak memory: PyTorch ' + mib(best.torch_peak) + ', Arete ' + mib(best.arete_peak)
    + (best.launches == null ? '' : '\\n' + best.launches + ' launches')
    + '\\n' + (100 * best.roof).toFixed(1) + ' % of the roof' + (best.status == 'ok' ? '' : '\\n' + best.status);
  tip.style.left = Math.min(e.clientX + 12, window.innerWidth - 420) + 'px';
  tip.style.top = e.clientY + 12 + 'px';
};
canvas.onmouseleave = () => tip.style.display = 'none';
figure.onchange = filter.oninput = window.onresize = draw;
draw();
</script>
</html>
"""
