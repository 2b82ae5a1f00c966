#!/usr/bin/env python3
"""Every public callable of Arete beside eager PyTorch, in one run on the same inputs.

    python bench/breadth.py [--device cuda] [--filter REGEX] [--processes N] [--seconds N] [--json FILE] [--html FILE]
                            [--resume FILE] [--ratios FILE] [--baseline FILE] [--sizes host,cache,memory] [--quick]

Functions, methods, layers, losses, optimizers and forms of indexing are found in the public namespaces and the operator
records (breadth_calls.py), their arguments in the samples of both libraries, which grow to three sizes
(breadth_scale.py). Rows: each form of a call, dtype, layout and direction; of each the results are compared, and time,
peak memory, on a GPU also launches and waits of the host, are measured (breadth_measure.py). A ratio above 1 is Arete's
advantage. The report (breadth_report.py) begins with the worst.

Processes share the device by a lock: one measures at a time while others make inputs and compile. A row that kills its
process, or takes longer than --row-seconds, is one that failed, and the run goes on. --baseline names what got slower
since a stored table, and the exit status is 1 then."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import multiprocessing.connection
import os
import re
import resource
import signal
import sys
import tempfile
import time
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "python", "tests"))  # for op_db_differences

import breadth_report

# ---- workers


def work(connection, options):
    """A process that measures subjects: receives (name, names of rows done) again and again, and sends what happens."""
    _limit_memory(options.device)
    import breadth_calls
    from breadth_measure import Device, Rows, prepare

    prepare(options)
    tell = lambda what: connection.send((what,))  # noqa: E731
    device = Device(options.device, options.block, options.rounds, options.lock, tell)
    found, _ = breadth_calls.subjects()
    while True:
        name, done = connection.recv()
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
                row = rows.measure(key)
            except Exception as e:  # noqa: BLE001: a fault of the harness costs one row
                row = {"name": row_name, "callable": name, "status": "failed", "note": f"{type(e).__name__}: {e}"[:300]}
            connection.send(("row", row_name, row))
            device.wait()  # after an error that the driver does not forgive this one fails too, and ends the process
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
        self.task, self.row, self.began = None, None, False  # what it was given, which row it is at, whether it had any
        self.waits = False  # for its turn, and not for long by its own fault
        self._start()

    def _start(self):
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, self.options), daemon=True)
        self.process.start()
        theirs.close()
        self.heard = time.monotonic()

    def give(self, task):
        self.task, self.row, self.began, self.waits, self.heard = task, None, False, False, time.monotonic()
        self.connection.send(task)

    def restart(self, hangs):
        """Another process for one that died or hangs; says why."""
        if hangs:
            self.process.kill()
        self.process.join()
        status = self.process.exitcode
        self.connection.close()
        self._start()
        if hangs:
            return f"took longer than {self.options.row_seconds:g} s"
        return f"the process died ({f'signal {-status}' if status < 0 else f'exit status {status}'})"

    def end(self):
        self.process.kill()
        self.process.join()


# ---- the run


class Run:
    """All rows, and who measures them."""

    def __init__(self, options, table):
        self.options, self.table = options, table
        self.late = 0
        self.saved = time.monotonic()

    def done(self, name):
        return {n for n, row in self.table["rows"].items() if row["callable"] == name} | set(
            self.table["absent"].get(name, ())
        )

    def go(self, names):
        waiting = sorted(names, key=lambda n: zlib.crc32(n.encode()))  # an order that a small budget cuts evenly
        workers = [Worker(self.options) for _ in range(min(self.options.processes, len(waiting)))]
        try:
            while waiting or any(w.task for w in workers):
                for w in workers:
                    if not w.task and waiting and not self._is_late(waiting):
                        name = waiting.pop()
                        w.give((name, self.done(name)))
                ready = multiprocessing.connection.wait([w.connection for w in workers if w.task], timeout=1.0)
                for w in workers:
                    if w.connection in ready:
                        self._hear(w)
                    elif w.task and not w.waits and time.monotonic() - w.heard > self.options.row_seconds:
                        self._failed(w, hangs=True)
                self._progress(len(waiting))
        finally:
            for w in workers:
                w.end()

    def _is_late(self, waiting):
        if time.time() < self.options.deadline:
            return False
        self.late += len(waiting)
        self.table["late"] = sorted(
            set(waiting) - {r["callable"] for r in self.table["rows"].values()}
        )
        waiting.clear()
        return True

    def _hear(self, w):
        try:
            what, *values = w.connection.recv()
        except (EOFError, OSError):
            self._failed(w)
            return
        w.heard = time.monotonic()
        name = w.task[0]
        w.waits = what == "waiting"
        if what == "begin":
            w.row, w.began = values[0], True
        elif what == "row":
            w.row = None
            row_name, row = values
            if row is None:
                self.table["absent"].setdefault(name, []).append(row_name)
            else:
                self.table["rows"][row_name] = row
        elif what == "reason":
            self.table["missing"][name] = values[0]
        elif what == "late":
            self.late += 1
        elif what == "done":
            w.task = None

    def _failed(self, w, hangs=False):
        """The row that a worker was at failed; the others of its task are measured by its successor."""
        name, _ = w.task
        row = w.row
        why = w.restart(hangs)
        if row is None and not w.began:  # while it made inputs: nothing of this subject can be measured
            self.table["missing"][name] = f"its inputs: {why}"
            w.task = None
            return
        if row:
            self.table["rows"][row] = {"name": row, "callable": name, "status": "failed", "note": why}
        w.give((name, self.done(name)))

    def _progress(self, waiting):
        if time.monotonic() - self.saved < 20:
            return
        self.saved = time.monotonic()
        save(self.table, self.options.json)
        print(f"{len(self.table['rows'])} rows, {waiting} subjects to go", file=sys.stderr, flush=True)


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
    device = Device(options.device, options.block, options.rounds, options.lock)
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
    options.block, options.rounds = (0.001, 3) if options.quick else (0.002, 6)
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
        with tempfile.NamedTemporaryFile(prefix="breadth", suffix=".lock") as lock:
            options.lock = lock.name
            measure(options, table)
        save(table, options.json)
    print(breadth_report.text(table))
    if options.html:
        breadth_report.write_page(table, options.html)
    if options.ratios:
        save(breadth_report.ratios(table), options.ratios)
    if options.baseline:
        slower = breadth_report.slower_than(table, read(options.baseline))
        print("\n".join([f"\nSlower than in {options.baseline}: {len(slower)}", *slower]))
        return 1 if slower else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
