"""What the breadth benchmark found, as text and as a page."""

from __future__ import annotations

import collections
import html
import json
import math
import statistics

from breadth_reasons import memory_reason_of, reason_of

GROWTH = 1.25  # an exponent above this, and above PyTorch's by a fifth, is faster than the input
STILL = 1e-4  # seconds below which a time says nothing of growth
FIGURES = ("ratio", "memory_ratio")
FEWER = 0.8  # of the baseline's ratio: noise stays above it
NOISE = 0.85  # the same once more where the host, or the threads of two autograd engines, are what is timed


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


def least_ratio(table):
    """What no row may be below without a reason: GPUs and CPUs have goals of their own."""
    return 0.9 if table["machine"]["device"].startswith("CPU") else 0.95


def _counted(reasons):
    """(reason, how often), the most frequent first; without those that are None."""
    return collections.Counter(r for r in reasons if r).most_common()


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
    slow = [r for r in rows if r["ratio"] < least_ratio(table)]
    reasons = {r["name"]: reason_of(r["name"], table["machine"]["device"]) for r in slow}
    unexplained = [r for r in slow if reasons[r["name"]] is None]
    lines += _section(
        f"Below {least_ratio(table)}x for a reason that is written down (bench/breadth_reasons.py)",
        [f"{n:4d} rows: {why}" for why, n in _counted(reasons[r["name"]] for r in slow)],
    )
    lines += _section(f"Below {least_ratio(table)}x without a reason", [_line(r) for r in unexplained], 20)
    heavy = sorted((r for r in rows if r.get("memory_ratio", 1) < 1 / 1.1), key=lambda r: r["memory_ratio"])
    whys = {r["name"]: memory_reason_of(r["name"], table["machine"]["device"]) for r in heavy}
    lines += _section(
        "More memory than PyTorch's for a reason that is written down",
        [f"{n:4d} rows: {why}" for why, n in _counted(whys.values())],
    )
    lines += _section(
        "More memory than PyTorch's without a reason",
        [
            f"{r['memory_ratio']:8.2g}x {r['torch_peak'] / 2**20:9.2f} {r['arete_peak'] / 2**20:9.2f} MiB  "
            f"{r['name']}"
            for r in heavy
            if whys[r["name"]] is None
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
    """What a later run is compared with: the ratios alone, of time and of memory, small enough to be kept. Rows of one
    form of a call stand together."""
    forms = collections.defaultdict(dict)
    for r in sorted(measured(table), key=lambda r: r["name"]):
        form, row = _split(r["name"])
        forms[form][row] = [float(f"{r[f]:.3g}") for f in FIGURES if f in r]
    return {"machine": table["machine"], "forms": forms}


def write_ratios(table, path):
    """The ratios as a file with one form of a call on each line."""
    found = ratios(table)
    forms = [f"{json.dumps(form)}: {json.dumps(rows)}" for form, rows in sorted(found["forms"].items())]
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'{{"machine": {json.dumps(found["machine"])},\n"forms": {{\n' + ",\n".join(forms) + "\n}}\n")


def _split(name):
    """("callable | form", "size | dtype | layout | direction") of a row's name."""
    *form, size, dtype, layout, direction = name.split(" | ")
    return " | ".join(form), " | ".join((size, dtype, layout, direction))


def slower_than(table, before):
    """{row: line} of rows whose advantage over PyTorch, in time or memory, shrank since the table of before by more
    than noise can do, the worst first."""
    found = []
    for form, rows in before["forms"].items():
        for row, old in rows.items():
            name = f"{form} | {row}"
            new = table["rows"].get(name)
            if new is None:
                continue
            if "ratio" not in new:
                found.append((0.0, name, f"{new['status']} ({new.get('note')}): {name}"))
                continue
            noisy = ("host" in row) + ("backward" in row)
            least = FEWER * NOISE**noisy
            for figure, was, share in zip(FIGURES, old, (least, FEWER)):
                now = new.get(figure, math.inf)
                if now < share * was:
                    found.append((now / was, name, f"{figure} {now:.2f}x, was {was:.2f}x: {name}"))
    return {name: line for _, name, line in sorted(found)}


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
