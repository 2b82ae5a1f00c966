"""What snapshots of memory show: `python -m arete.cuda._memory_viz`, with the subcommands of torch's.

    python -m arete.cuda._memory_viz stats history.pickle
    python -m arete.cuda._memory_viz trace_plot history.pickle -o history.html

It reads the pickles that `arete.cuda.memory._dump_snapshot` writes, and torch's. Pictures and pages need nothing from the network.
"""
from __future__ import annotations

import argparse
import html
import io
import json
import pickle
import sys
from typing import Any, BinaryIO, Dict, Iterator, List, Optional, Tuple

from .. import _C

__all__ = ["format_flamegraph", "segments", "memory", "compare", "segsum", "trace", "trace_plot", "segment_plot"]

Snapshot = Dict[str, Any]


# ---- reading


class _Values(pickle.Unpickler):
    """Numbers, texts and containers; a snapshot holds nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"a snapshot of memory has no {module}.{name} in it")


def _read(f: BinaryIO) -> Snapshot:
    data = _Values(f).load()
    if isinstance(data, list):  # of segments alone: memory_snapshot()
        data = {"segments": data, "device_traces": []}
    if not isinstance(data, dict) or "segments" not in data:
        raise pickle.UnpicklingError("this pickle is no snapshot of memory")
    data.setdefault("device_traces", [])
    return data


def _bytes(n: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(n) < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.2f} {unit}"
        n /= 1024
    return f"{n:.2f} TiB"


def _device_name(snapshot: Snapshot, number: int) -> str:
    return "cpu" if snapshot.get("host_device") == number else f"cuda:{number}"


def _frames(block: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Innermost first. Older snapshots of torch keep them in a history."""
    return block.get("frames") or next((h.get("frames") or [] for h in block.get("history", [])), [])


def _frame(f: Dict[str, Any]) -> str:
    place = f["filename"].rsplit("/", 1)[-1]
    return f"{f['name']} ({place}:{f['line']})" if f["line"] else f["name"]


def _is_ours(f: Dict[str, Any]) -> bool:
    return any(part in f["filename"] for part in ("/arete/", "libarete", "/torch/", "libtorch", "libc10", "<frozen"))


def _place(block: Dict[str, Any]) -> str:
    """The line of the user's program."""
    frames = _frames(block)
    own = next((f for f in frames if f["line"] and not _is_ours(f)), frames[0] if frames else None)
    return _frame(own) if own else ""


# ---- flame graphs

_COLOURS = ("#e8743b", "#e8963b", "#d9a441", "#c96f4a", "#dd8a5f", "#e0b060")


def format_flamegraph(flamegraph_lines: str, title: str = "Memory") -> str:
    """A picture (SVG) of lines such as "outer;inner 1024": a bar for each name, as wide as its bytes, below the bar that it is in."""

    def node() -> Dict[str, Any]:
        return {"size": 0, "inside": {}}

    root = node()
    for line in flamegraph_lines.splitlines():
        path, _, size = line.rpartition(" ")
        at = root
        at["size"] += int(size)
        for name in path.split(";"):
            at = at["inside"].setdefault(name, node())
            at["size"] += int(size)
    width, row, bars, deepest = 1200.0, 18, [], 0

    def draw(name: str, at: Dict[str, Any], x: float, depth: int) -> None:
        nonlocal deepest
        wide = width * at["size"] / max(root["size"], 1)
        if wide < 0.3:
            return
        deepest = max(deepest, depth)
        text = f"{name}: {_bytes(at['size'])}, {100 * at['size'] / max(root['size'], 1):.1f} %"
        letters = int(wide / 6.6) - 1
        shown = name if len(name) <= letters else name[: max(letters - 1, 0)] + "…" if letters > 3 else ""
        colour = _COLOURS[sum(map(ord, name)) % len(_COLOURS)] if depth else "#8b95a5"
        bars.append(f'<g><title>{html.escape(text)}</title><rect x="{x:.1f}" y="{30 + row * depth}" width="{max(wide - 0.5, 0.3):.1f}" '
                    f'height="{row - 1}" fill="{colour}"/><text x="{x + 4:.1f}" y="{30 + row * depth + 13}">'
                    f'{html.escape(shown)}</text></g>')
        for inner, below in sorted(at["inside"].items(), key=lambda item: -item[1]["size"]):
            draw(inner, below, x, depth + 1)
            x += width * below["size"] / max(root["size"], 1)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 4000))  # as deep as the deepest stack
    try:
        draw(title, root, 0.0, 0)
    finally:
        sys.setrecursionlimit(limit)
    height = 40 + row * (deepest + 1)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1200 {height}" width="1200" height="{height}" '
            'font-family="monospace" font-size="11"><rect width="1200" height="100%" fill="#ffffff"/>'
            f'<text x="4" y="18" font-size="14">{html.escape(title)}: {_bytes(root["size"])}</text>' + "".join(bars) + "</svg>\n")


def _lines(prefix: str, blocks: List[Dict[str, Any]]) -> Iterator[str]:
    for b in blocks:
        names = [_frame(f).replace(";", ",") for f in reversed(_frames(b))]
        state = [b["state"]] if b["state"] != "active_allocated" else []
        own = b.get("requested_size", b["size"]) if not state else b["size"]
        yield ";".join([prefix, *state, *(names or ([] if state else ["(no stack)"]))]) + f" {own}"
        if own < b["size"]:
            yield f"{prefix};(rounded up) {b['size'] - own}"


def segments(snapshot: Snapshot, format_flamegraph: Any = format_flamegraph) -> str:
    """What is in each segment of the allocator."""
    return format_flamegraph("\n".join(line for s in snapshot["segments"]
                                       for line in _lines(f"stream_{s['stream']};seg_{s['address']:#x}", s["blocks"])))


def memory(snapshot: Snapshot, format_flamegraph: Any = format_flamegraph) -> str:
    """Which places of the program hold how much."""
    return format_flamegraph("\n".join(line for s in snapshot["segments"] for line in _lines(f"stream_{s['stream']}", s["blocks"])))


def compare(before: Any, after: Any, format_flamegraph: Any = format_flamegraph) -> str:
    """What is in the segments that only one of two snapshots has."""
    lists = [s["segments"] if isinstance(s, dict) else s for s in (before, after)]
    keys = [{(s["address"], s["total_size"]) for s in segments} for segments in lists]
    lines = []
    for name, own, other in (("only_before", lists[0], keys[1]), ("only_after", lists[1], keys[0])):
        for s in own:
            if (s["address"], s["total_size"]) not in other:
                lines += _lines(f"{name};stream_{s['stream']};seg_{s['address']:#x}", s["blocks"])
    return format_flamegraph("\n".join(lines))


# ---- texts


def segsum(data: Snapshot) -> str:
    """How the segments are filled: a line for each, with a letter for every 60th part of it."""
    cells, out = 60, io.StringIO()
    total = {"reserved": 0, "allocated": 0, "rounded up": 0, "free": 0}
    for s in sorted(data["segments"], key=lambda s: -s["total_size"]):
        filled, at, held = [0.0] * cells, 0, 0
        for b in s["blocks"]:
            if b["state"] == "active_allocated":
                held += b["size"]
                total["rounded up"] += b["size"] - b.get("requested_size", b["size"])
                first, last = at * cells / s["total_size"], (at + b["size"]) * cells / s["total_size"]
                for i in range(int(first), min(cells, int(last) + 1)):
                    filled[i] += max(0.0, min(last, i + 1) - max(first, i))
            at += b["size"]
        picture = "".join(" " if f < 0.05 else "#" if f > 0.95 else str(int(f * 10)) for f in filled)
        total["reserved"] += s["total_size"]
        total["allocated"] += held
        total["free"] += s["total_size"] - held
        device = _device_name(data, s.get("device", 0))
        out.write(f"{device} {s['address']:#x} [{picture}] {_bytes(s['total_size'])}, {_bytes(s['total_size'] - held)} free"
                  f"{'' if not s['stream'] else ', stream ' + hex(s['stream'])}\n")
    out.write(f"\n{len(data['segments'])} segments\n")
    for name, n in total.items():
        out.write(f"{name + ':':12} {_bytes(n)}\n")
    out.write("\n[]: a segment; #: full, 0 to 9: so many tenths of it, blank: free\n")
    return out.getvalue()


def trace(data: Snapshot) -> str:
    """The events, one a line."""
    out = io.StringIO()
    for number, events in enumerate(data["device_traces"]):
        if not events:
            continue
        out.write(f"{_device_name(data, number)}: {len(events)} events\n")
        begin, held = events[0].get("time_us", 0), 0
        for e in events:
            if e["action"] in ("alloc", "free_completed"):
                held += e["size"] if e["action"] == "alloc" else -e["size"]
            who = " ".join(filter(None, (e.get("compile_context"), _place(e))))
            out.write(f"{(e.get('time_us', begin) - begin) / 1e3:12.3f} ms  {e['action']:14} {e.get('addr', 0):#16x} "
                      f"{_bytes(e['size']):>12}  now {_bytes(held):>12}  {who}\n".rstrip(" ").replace("  \n", "\n"))
    return out.getvalue()


# ---- pages


def _device_of(data: Snapshot, device: Optional[int]) -> int:
    if device is not None:
        if not 0 <= device < len(data["device_traces"]):
            raise ValueError(f"the snapshot has no device {device}: it has {len(data['device_traces'])}")
        return device
    some = [i for i, events in enumerate(data["device_traces"]) if events]
    if not some:
        raise ValueError("the snapshot has no events: record them with _record_memory_history()")
    if len(some) > 1:
        raise ValueError(f"several devices have events, say which one: {', '.join(map(str, some))}")
    return some[0]


def _lives(data: Snapshot, device: int, of_segments: bool) -> List[Tuple[str, Dict[str, Any]]]:
    """Pairs ("alloc" or "free", event): what was there when the events began is the first of them."""
    begins = ("segment_alloc", "segment_map") if of_segments else ("alloc",)
    ends = ("segment_free", "segment_unmap") if of_segments else ("free_completed",)
    found = [("alloc" if e["action"] in begins else "free", e) for e in data["device_traces"][device] if e["action"] in begins + ends]
    made, before = set(), []
    for kind, e in found:
        if kind == "alloc":
            made.add(e["addr"])
        elif e["addr"] not in made:
            before.append(("alloc", {**e, "frames": [], "time_us": found[0][1].get("time_us", 0)}))
    last = {e["addr"]: kind for kind, e in found}
    for s in data["segments"]:
        if s.get("device", 0) != device:
            continue
        at, inside = s["address"], []
        for b in s["blocks"]:
            if b["state"] == "active_allocated":
                inside.append({"addr": b.get("address", at), "size": b["size"], "frames": _frames(b)})
            at += b["size"]
        for e in [{"addr": s["address"], "size": s["total_size"], "frames": []}] if of_segments else inside:
            if e["addr"] not in last:
                before.append(("alloc", {**e, "time_us": found[0][1].get("time_us", 0) if found else 0}))
    return before + found


def trace_plot(data: Snapshot, device: Optional[int] = None, plot_segments: bool = False, filter_freed: bool = False) -> str:
    """A page: memory over time by operator, scope or place in the program, and what was live at any moment. `plot_segments`: what the
    allocator takes from the driver instead of what tensors take. `filter_freed`: only what was never freed."""
    device = _device_of(data, device)
    events = _lives(data, device, plot_segments)
    if filter_freed:
        open_at: Dict[int, int] = {}
        gone = set()
        for i, (kind, e) in enumerate(events):
            if kind == "alloc":
                open_at[e["addr"]] = i
            elif e["addr"] in open_at:
                gone |= {open_at.pop(e["addr"]), i}
        events = [pair for i, pair in enumerate(events) if i not in gone]
    stacks: List[List[Tuple[str, str, int]]] = [[]]
    number: Dict[Tuple, int] = {(): 0}
    rows = []
    for kind, e in events:
        key = tuple((f["filename"], f["name"], f["line"]) for f in _frames(e))
        if key not in number:
            number[key] = len(stacks)
            stacks.append(list(key))
        rows.append((kind == "alloc", e["addr"], e["size"], e.get("time_us", 0), e.get("compile_context") or "",
                     str(e.get("user_metadata") or ""), number[key]))
    return _C._memory.page(_device_name(data, device), rows, stacks)


_SEGMENT_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Segments over time</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<style>body{font:14px system-ui,sans-serif;margin:24px;max-width:1240px}svg{width:100%;border:1px solid #dfe3ea}
input{width:100%}p{color:#5b6575}</style></head><body><h1>Segments of the allocator</h1>
<input id="at" type="range" min="0"><p id="what"></p><svg id="map" viewBox="0 0 1200 10"></svg><p id="who">Point at a block.</p><script>
const D=__DATA__;'use strict';
const $=id=>document.getElementById(id),bytes=n=>{const u=['B','KiB','MiB','GiB','TiB'];let i=0;while(n>=1024&&i<4){n/=1024;i++}
return (i?n.toFixed(2):n)+' '+u[i]};
const svg=(name,a)=>{const e=document.createElementNS('http://www.w3.org/2000/svg',name);for(const k in a)e.setAttribute(k,a[k]);return e};
const colours=['#2563eb','#d9480f','#0f8a6d','#9333b8','#b7791f','#0e7fa8','#be2a5b','#5f7d2a'];
// The state after the first n events, in each of which one segment or block comes or goes.
function state(n){const s=new Map(),b=new Map();for(let i=0;i<n;i++){const [kind,begins,addr,size,who]=D.events[i];const m=kind?b:s;
if(begins)m.set(addr,[size,who]);else m.delete(addr)}return [s,b]}
function draw(){const n=+$('at').value,[segments,blocks]=state(n),map=$('map'),row=22;map.replaceChildren();
let list=[...segments].sort((x,y)=>x[0]-y[0]);const joined=[];
for(const [a,[size]] of list){const l=joined[joined.length-1];if(l&&l[0]+l[1]===a)l[1]+=size;else joined.push([a,size])}
let most=Math.max(1,...joined.map(s=>s[1])),held=0,y=2;const x=v=>1200*v/most;
const all=[...blocks].sort((p,q)=>p[0]-q[0]);let i=0;
for(const [a,size] of joined){map.append(svg('rect',{x:0,y,width:x(size),height:row-4,fill:'#e9ecf1'}));
while(i<all.length&&all[i][0]<a)i++;
for(;i<all.length&&all[i][0]<a+size;i++){const [p,[bytesOf,who]]=all[i];held+=bytesOf;
const r=svg('rect',{x:x(p-a),y,width:Math.max(x(bytesOf)-.5,.5),height:row-4,fill:colours[p/512%colours.length|0]});
r.addEventListener('mouseover',()=>$('who').textContent=bytes(bytesOf)+' at 0x'+p.toString(16)+(D.names[who]?': '+D.names[who]:''));
map.append(r)}y+=row}
map.setAttribute('viewBox','0 0 1200 '+Math.max(y,10));
$('what').textContent='After '+n+' of '+D.events.length+' events: '+bytes(held)+' in '+blocks.size+' blocks, '+
bytes(joined.reduce((t,s)=>t+s[1],0))+' in '+joined.length+' segments'}
$('at').max=D.events.length;$('at').value=D.events.length;$('at').addEventListener('input',draw);draw();
</script></body></html>
"""


def segment_plot(data: Snapshot, device: Optional[int] = None) -> str:
    """A page: how blocks lie in the allocator's segments at each point of a trace."""
    device = _device_of(data, device)
    names: Dict[str, int] = {}
    known = {id(e): i for i, e in enumerate(data["device_traces"][device])}
    both = [(known.get(id(e), -1), kind == "alloc", is_block, e) for is_block in (False, True)
            for kind, e in _lives(data, device, not is_block)]
    both.sort(key=lambda entry: entry[0])  # as they happened, what was there before first
    events = [[int(is_block), begins, e["addr"], e["size"], names.setdefault(_place(e), len(names))] for _, begins, is_block, e in both]
    content = json.dumps({"events": events, "names": list(names)}).replace("<", "\\u003c")
    return _SEGMENT_PAGE.replace("__DATA__", content)


# ---- the program


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m arete.cuda._memory_viz",
        description="Shows snapshots of memory: the pickles of arete.cuda.memory._dump_snapshot(), and torch's")
    actions = parser.add_subparsers(dest="action", required=True)

    def action(name: str, text: str, *inputs: str, output: str = "") -> argparse.ArgumentParser:
        p = actions.add_parser(name, help=text, description=text)
        for i in inputs or ("input",):
            p.add_argument(i, help="the snapshot, - for the standard input")
        if output:
            p.add_argument("-o", "--output", default=output, help=f"the file to write (default: {output})")
        return p

    action("stats", "prints how the allocator's segments are filled")
    action("trace", "prints the events")
    action("segments", "draws what is in each segment", output="output.svg")
    action("memory", "draws which places of the program hold how much", output="output.svg")
    action("compare", "draws what is in segments that only one of two snapshots has", "before", "after", output="output.svg")
    for name, text in (("trace_plot", "makes a page: memory over time, and what was live when"),
                       ("segment_plot", "makes a page: how blocks lie in segments at each point of the trace")):
        p = action(name, text, output="output.html")
        p.add_argument("-d", "--device", type=int, default=None, help="the number of the device (default: the only one with events)")
        if name == "trace_plot":
            p.add_argument("-s", "--segments", action="store_true", help="segments instead of allocations")
            p.add_argument("-f", "--filter_freed", action="store_true", help="only what was not freed")
    args = parser.parse_args(arguments)

    def read(path: str) -> Snapshot:
        if path == "-":
            return _read(sys.stdin.buffer)
        with open(path, "rb") as f:
            return _read(f)

    try:
        if args.action == "compare":
            text = compare(read(args.before), read(args.after))
        elif args.action == "trace_plot":
            text = trace_plot(read(args.input), args.device, args.segments, args.filter_freed)
        elif args.action == "segment_plot":
            text = segment_plot(read(args.input), args.device)
        else:
            text = {"stats": segsum, "trace": trace, "segments": segments, "memory": memory}[args.action](read(args.input))
    except (OSError, ValueError, KeyError, EOFError, pickle.UnpicklingError) as e:
        print(f"{parser.prog}: {e}", file=sys.stderr)
        return 1
    if not hasattr(args, "output"):
        print(text, end="")
        return 0
    with open(args.output, "w", encoding="utf-8") as f:
        f.write(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
