#!/usr/bin/env python3
"""Every public callable of Arete beside eager PyTorch, in one run on the same inputs.

    python bench/breadth.py [--device cuda] [--filter REGEX] [--processes N] [--seconds N] [--json FILE] [--html FILE]
                            [--resume FILE] [--ratios FILE] [--baseline FILE] [--sizes host,cache,memory] [--quick]

Functions, methods, layers, losses, optimizers and forms of indexing are found in the public namespaces and the operator
records (breadth_calls.py), their arguments in the samples of both libraries, which grow to three sizes
(breadth_scale.py). Rows: each form of a call, dtype, layout and direction; of each the results are compared, and time,
peak memory, on a GPU also launches and waits of the host, are measured (breadth_measure.py). A ratio above 1 is Arete's
advantage. The report (breadth_report.py) begins with the worst.

Processes share the device: they make inputs, compare results and compile side by side, and are stopped while one of
them times the rows that it has prepared. A row that kills its process, or takes longer than --row-seconds, is one that
failed, and the run goes on. --baseline names what got slower
since a stored table, and the exit status is 1 then."""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import multiprocessing.connection
import os
import re
import resource
import signal
import sys
import time
import zlib

PREPARING = 1.5  # seconds after which a process asks to time what it has prepared
MOST_HELD = {False: 1 << 28, True: 1 << 30}  # bytes of inputs that a process prepares, on a CPU and on a GPU

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "python", "tests"))  # for op_db_differences

import breadth_report

# ---- workers


def work(connection, options):
    """A process that measures subjects: receives (name, names of rows done) again and again, and sends what happens.
    Rows are timed a few at a time, when the parent says that nothing else runs: ("ready",) asks for it."""
    _limit_memory(options.device)
    import breadth_calls
    from breadth_measure import Device, Rows, bytes_of, prepare, time_row

    prepare(options)
    device = Device(options.device, options.block, options.rounds)
    found, _ = breadth_calls.subjects()
    prepared, since = [], time.monotonic()
    gc.collect()
    gc.freeze()  # what is looked at when a row's cycles are given back
    gc.disable()  # not within a measurement

    def failed(name, row_name, e):
        row = {"name": row_name, "callable": name, "status": "failed", "note": f"{type(e).__name__}: {e}"[:300]}
        connection.send(("row", row_name, row))

    def time_prepared():
        nonlocal since
        if prepared:
            connection.send(("ready",))
            connection.recv()
        while prepared:
            row, sides = prepared.pop()
            connection.send(("begin", row["name"]))
            try:
                time_row(device, row, sides, options.bandwidth)
                connection.send(("row", row["name"], row))
            except Exception as e:  # noqa: BLE001: a fault of the harness costs one row
                failed(row["callable"], row["name"], e)
            del sides
            gc.collect()
            device.tidy()  # after an error that the driver does not forgive this one fails too, and ends the process
        connection.send(("timed",))
        since = time.monotonic()

    while True:
        task = connection.recv()
        if task is None:
            time_prepared()
            continue
        name, done = task
        try:
            rows = Rows(found[name], found, device, options)
            keys = rows.keys()
            reason = None if rows.templates else rows.reason
        except Exception as e:  # noqa: BLE001: a fault of the harness costs one subject
            keys, reason = (), f"its inputs: {type(e).__name__}: {e}"[:200]
        if reason:
            connection.send(("reason", reason))
        for key in keys:
            row_name = rows.name(key)
            if row_name in done:
                continue
            if time.time() > options.deadline:
                connection.send(("late", row_name))
                continue
            connection.send(("begin", row_name))
            try:
                row, sides = rows.prepare(key)
                if sides is not None:
                    prepared.append((row, sides))
                else:
                    connection.send(("row", row_name, row))
            except Exception as e:  # noqa: BLE001
                failed(name, row_name, e)
            sides = None
            gc.collect()
            device.tidy()
            held = sum(bytes_of((s.args, s.kwargs)) for _, s in prepared)
            if held > MOST_HELD[device.on_gpu] or time.monotonic() - since > PREPARING:
                time_prepared()
        connection.send(("done",))


def _limit_memory(device):
    """A call that would take all memory gets an error instead. CUDA reserves more addresses than there is memory."""
    if device == "cpu":
        page, available = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_AVPHYS_PAGES")
        most = int(0.6 * page * available)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


class Worker:
    """One of the processes, and what it is at."""

    def __init__(self, options):
        self.options = options
        # Whose rows it may hold, the last of them, the row it is at.
        self.names, self.task, self.row = set(), None, None
        self.state = "idle"  # "working", "ready" for being timed, or "timing"
        self.holds = False  # rows that are not timed
        self._start()

    def _start(self):
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, self.options), daemon=True)
        self.process.start()
        theirs.close()
        self.stopped, self.heard = False, time.monotonic()

    def tell(self, message, state):
        self.state, self.heard = state, time.monotonic()
        self.connection.send(message)

    def give(self, name, done):
        self.names.add(name)
        self.task, self.row = name, None
        self.tell((name, done), "working")

    def stop(self, stopped):
        if stopped != self.stopped:
            os.kill(self.process.pid, signal.SIGSTOP if stopped else signal.SIGCONT)
            self.stopped, self.heard = stopped, time.monotonic()

    def hangs(self):
        at_it = self.state in ("working", "timing") and not self.stopped
        return at_it and time.monotonic() - self.heard > self.options.row_seconds

    def restart(self, hangs):
        """Another process for one that died or hangs; says why."""
        if hangs:
            self.process.kill()
        self.process.join()
        status = self.process.exitcode
        self.connection.close()
        self.names, self.task, self.row, self.state, self.holds = set(), None, None, "idle", False
        self._start()
        if hangs:
            return f"took longer than {self.options.row_seconds:g} s"
        return f"the process died ({f'signal {-status}' if status < 0 else f'exit status {status}'})"

    def end(self):
        self.process.kill()
        self.process.join()


# ---- the run


class Run:
    """All rows, and who measures them. While one process times what it has prepared all others are stopped."""

    def __init__(self, options, table):
        self.options, self.table = options, table
        self.late = 0  # rows and subjects left out
        self.saved = time.monotonic()

    def done(self, name):
        return {n for n, row in self.table["rows"].items() if row["callable"] == name} | set(
            self.table["absent"].get(name, ())
        )

    def go(self, names):
        self.waiting = sorted(names, key=lambda n: zlib.crc32(n.encode()))  # an order that a small budget cuts evenly
        self.workers = [Worker(self.options) for _ in range(min(self.options.processes, len(names)))]
        try:
            while self.waiting or any(w.state != "idle" or w.holds for w in self.workers):
                self._schedule()
                busy = [w for w in self.workers if w.state != "idle"]
                heard = multiprocessing.connection.wait([w.connection for w in busy], timeout=1.0)
                for w in busy:
                    if w.connection in heard:
                        self._hear(w)
                    elif w.hangs():
                        self._failed(w, hangs=True)
                self._progress()
        finally:
            for w in self.workers:
                w.end()

    def _schedule(self):
        if time.time() > self.options.deadline and self.waiting:
            self.late += len(self.waiting)
            measured = {r["callable"] for r in self.table["rows"].values()}
            self.table["late"] = sorted(set(self.waiting) - measured)
            self.waiting.clear()
        for w in self.workers:
            if w.state == "idle" and self.waiting:
                name = self.waiting.pop()
                w.give(name, self.done(name))
            elif w.state == "idle" and w.holds:  # there is no more to prepare
                w.tell(None, "working")
        if any(w.state == "timing" for w in self.workers):
            return
        ready = next((w for w in self.workers if w.state == "ready"), None)
        for w in self.workers:
            w.stop(ready not in (None, w))
        if ready:
            time.sleep(0.003)  # what the others started on the device ends
            ready.tell("time", "timing")

    def _hear(self, w):
        try:
            what, *values = w.connection.recv()
        except (EOFError, OSError):
            self._failed(w)
            return
        w.heard = time.monotonic()
        if what == "begin":
            w.row, w.holds = values[0], True
        elif what == "row":
            w.row = None
            row_name, row = values
            if row is None:
                self.table["absent"].setdefault(w.task, []).append(row_name)
            else:
                self.table["rows"][row_name] = row
        elif what == "reason":
            self.table["missing"][w.task] = values[0]
        elif what == "late":
            self.late += 1
        elif what == "ready":
            w.state = "ready"
        elif what == "timed":
            w.holds, w.state = False, "working" if w.task else "idle"
            w.names = {w.task} if w.task else set()
        elif what == "done":
            w.task, w.state = None, "idle"

    def _failed(self, w, hangs=False):
        """The row that a worker was at failed; the others that it held or had before it are done again."""
        names, task, row = w.names, w.task, w.row
        why = w.restart(hangs)
        if row:
            name = next(n for n in sorted(names, key=len, reverse=True) if row.startswith(n + " | "))
            self.table["rows"][row] = {"name": row, "callable": name, "status": "failed", "note": why}
        elif task:  # while it made inputs: nothing of this subject can be measured
            self.table["missing"][task] = f"its inputs: {why}"
            names = names - {task}
        self.waiting.extend(names)

    def _progress(self):
        if time.monotonic() - self.saved < 20:
            return
        self.saved = time.monotonic()
        save(self.table, self.options.json)
        print(f"{len(self.table['rows'])} rows, {len(self.waiting)} subjects to go", file=sys.stderr, flush=True)


def save(table, path):
    if path:
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump(table, file, indent=0)
        os.replace(path + ".part", path)


def measure(options, table):
    """Fills the table."""
    from breadth_measure import Device, prepare
    import breadth_calls
    import torch

    import arete

    prepare(options)
    device = Device(options.device, options.block, options.rounds)
    options.bandwidth = device.bandwidth()
    device.tidy()
    found, missing = breadth_calls.subjects()
    table["missing"] = {n: why for n, why in missing.items() if re.search(options.filter, n)}
    table["internal"] = breadth_calls.internal_records()
    table["machine"] = {
        "device": torch.cuda.get_device_name() if device.on_gpu else f"CPU, {options.threads} threads",
        "torch": torch.__version__,
        "arete": arete.__version__,
        "bandwidth": options.bandwidth,
        "date": time.strftime("%Y-%m-%d %H:%M"),
    }
    names = [n for n in found if re.search(options.filter, n)]
    table["callables"] = len(names)
    run = Run(options, table)
    run.go(names)
    if run.late:
        print(f"Out of time: {run.late} rows and subjects were left out.", file=sys.stderr)


def slower_twice(options, table):
    """Lines on rows that are slower than in the baseline, also when they are measured again."""
    before = read(options.baseline)
    slower = breadth_report.slower_than(table, before)
    if slower and not options.report:
        print(f"{len(slower)} rows look slower than in {options.baseline} and are measured again.", file=sys.stderr)
        callables = {table["rows"][name]["callable"] for name in slower}
        again = argparse.Namespace(**vars(options))
        again.filter, again.json = "^(" + "|".join(map(re.escape, callables)) + ")$", None
        again.deadline = max(options.deadline, time.time() + 60)
        kept = {n: r for n, r in table["rows"].items() if n not in slower}
        second = {"rows": kept, "absent": table["absent"]}
        measure(again, second)
        still = breadth_report.slower_than(second, before)
        slower = {name: line for name, line in still.items() if name in slower}
    return slower.values()


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument(
        "--filter", default="", help="subjects whose names (torch.sum, Tensor.add_, nn.Linear, ...) it is found in"
    )
    parser.add_argument("--processes", type=int, help="1 on a CPU, 8 on a GPU (or as many as there are processors)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of both libraries on a CPU")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no row begins later than this")
    parser.add_argument("--row-seconds", type=float, default=90.0, help="a row that takes longer has failed")
    parser.add_argument("--json", help="where all rows go; written while it runs, too")
    parser.add_argument("--ratios", metavar="FILE", help="where the ratios alone go, for a later --baseline")
    parser.add_argument("--html", help="where the page goes")
    parser.add_argument("--resume", metavar="FILE", help="rows in this table are not measured again")
    parser.add_argument("--baseline", metavar="FILE", help="a table of before, with which rows are compared")
    parser.add_argument("--sizes", default="host,cache,memory")
    parser.add_argument(
        "--quick", action="store_true", help="the first form of each call, smaller, and fewer measurements"
    )
    parser.add_argument("--report", metavar="FILE", help="measures nothing: reports on this table")
    options = parser.parse_args()
    wanted, known = options.sizes.split(","), ("host", "cache", "memory")
    if not set(known).issuperset(wanted):
        parser.error("--sizes: there are host, cache and memory")
    options.sizes = [s for s in known if s in wanted]
    if options.processes is None:
        options.processes = min(8, os.cpu_count() or 1) if options.device == "cuda" else 1
    options.block, options.rounds = (0.001, 5) if options.quick else (0.002, 8)
    options.scale, options.longest = (0.25, 0.5) if options.quick else (1.0, 1.0)  # of sizes and of times
    options.deadline = time.time() + options.seconds
    return options


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # so that workers end, too
    options = parse()
    if options.report:
        table = read(options.report)
    else:
        table = {"rows": {}, "absent": {}}
        if options.resume:
            before = read(options.resume)
            table = {"rows": before["rows"], "absent": before["absent"]}
        measure(options, table)
        save(table, options.json)
    print(breadth_report.text(table))
    if options.html:
        breadth_report.write_page(table, options.html)
    if options.ratios:
        breadth_report.write_ratios(table, options.ratios)
    if options.baseline:
        slower = slower_twice(options, table)
        print("\n".join([f"\nSlower than in {options.baseline}: {len(slower)}", *slower]))
        return 1 if slower else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
