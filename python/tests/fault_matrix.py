"""Faults of ranks, and how long it takes until the culprit is named. `fault_matrix.py N [SEED]` runs N random ones and prints figures;
`fault_matrix.py rank ...` is one of their ranks."""
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

# What a report says of the culprit.
WORDS = {"kill": r"has ended without a word", "stop": r"has not been heard of", "order": r"calls? broadcast", "shape": r"of 12 elements",
         "dtype": r"float64", "late": r"has not come to", "sleep": r"has not entered", "raise": r"has ended by RuntimeError: on purpose",
         "exit": r"has ended its program"}
# Those that are only told of; and seconds in which the culprit is named, and calls of the others have failed, on an idle machine.
TOLD = ("stop", "late", "sleep")
LIMITS = {"stop": 5.0, "late": 5.0, "sleep": 5.0}
OTHERS = 1.0


def rank_program(kind, rank, size, culprit, steps, seed, folder):
    from datetime import timedelta

    import arete
    import arete.distributed as dist
    arete.set_num_threads(1)
    if kind == "late" and rank == culprit:
        time.sleep(1.5)  # the others have come
        print(f"FAULT {time.time()}", flush=True)
        time.sleep(8)
    dist.init_process_group("gloo", f"file://{folder}/store", timedelta(seconds=60), size, rank)

    def fault():
        print(f"FAULT {time.time()}", flush=True)
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif kind == "sleep":
            time.sleep(8)
        elif kind == "raise":
            raise RuntimeError("on purpose")
        elif kind == "exit":
            sys.exit(0)
        elif kind == "order":
            dist.broadcast(arete.ones(4), 0)
        elif kind == "shape":
            dist.all_reduce(arete.ones(12))
        elif kind == "dtype":
            dist.all_reduce(arete.ones(4, dtype=arete.float64))

    choose = random.Random(seed)
    try:
        for step in range(steps + 3):
            if step == steps and rank == culprit:
                fault()
            op = choose.randrange(4) if step != steps else 0
            if op == 0:
                dist.all_reduce(arete.ones(4))
            elif op == 1:
                dist.broadcast(arete.ones(3), choose.randrange(size))
            elif op == 2:
                dist.all_gather([arete.zeros(2) for _ in range(size)], arete.ones(2))
            else:
                dist.all_reduce(arete.ones(5), async_op=True).wait()
            if choose.randrange(3) == 0:
                time.sleep(0.05)
        print("FINE", flush=True)
    except dist.DistBackendError as e:
        print(f"FAILED {e}", flush=True)


def run_case(kind, size, culprit, steps, seed=0, patience=4.0):
    """Gives the seconds until the culprit was named, until the last of the others failed (None if they need not), and all that was
    said. AssertionError if something is missing."""
    with tempfile.TemporaryDirectory() as folder:
        lines, lock, started = [], threading.Lock(), time.time()
        program = [sys.executable, __file__, "rank", kind]
        ranks = [subprocess.Popen([*program, str(r), str(size), str(culprit), str(steps), str(seed), folder], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, env={**os.environ, "ARETE_MONITOR_PATIENCE": str(patience)})
                 for r in range(size)]

        # Two streams, that lines stay whole.
        def listen(rank, stream):
            for line in stream:
                with lock:
                    lines.append((time.time(), rank, line))

        listeners = [threading.Thread(target=listen, args=(r, s)) for r, p in enumerate(ranks) for s in (p.stdout, p.stderr)]
        for t in listeners:
            t.start()

        def find(pattern, rank=None):
            with lock:
                return [(at, line) for at, r, line in lines if re.search(pattern, line) and rank in (None, r)]

        named = rf"^arete: .*rank {culprit}\b.*" + WORDS[kind] + "|^arete: .*" + WORDS[kind] + rf".*rank {culprit}\b"
        others = [r for r in range(size) if r != culprit]
        end = time.time() + 60
        while time.time() < end:
            if find(named) and (kind in TOLD or all(ranks[r].poll() is not None for r in others)):
                break
            if all(p.poll() is not None for p in ranks):
                break
            time.sleep(0.01)
        # The culprit last: its death would be another fault.
        for r in [*others, culprit]:
            ranks[r].kill()
            ranks[r].wait()
        for t in listeners:
            t.join()
        said = "".join(f"{r}: {line}" for _, r, line in lines)
        # The one that gets more bytes than it asked for is ended by Gloo, and maybe the monitor with it.
        crashed = [r for r in others if find("terminate called", r)]
        if 0 in crashed and not find("^arete: "):
            named = rf"^FAILED .*rank {culprit}\b.*" + WORDS[kind] + "|^FAILED .*" + WORDS[kind] + rf".*rank {culprit}\b"
        else:
            assert len(find("^arete: ")) == 1, said
        assert find(named), said
        # What the program noticed itself may come before the call that failed.
        fault = find("^FAULT")  # one that is late may be named before it says so
        begin = float(fault[0][1].split()[1]) if fault else started
        released = None
        if kind not in TOLD:
            words = "|".join([WORDS[kind], *(rf"rank {r}\b.* has ended without a word" for r in crashed)])
            failed = [find(f"^FAILED .*({words})", r) for r in others]
            assert all(f or r in crashed for f, r in zip(failed, others)), said
            released = max((f[0][0] for f in failed if f), default=begin) - begin
        return find(named)[0][0] - begin, released, said


def random_case(seed):
    choose = random.Random(seed)
    size = choose.randrange(2, 5)
    return dict(kind=choose.choice(sorted(WORDS)), size=size, culprit=choose.randrange(size), steps=choose.randrange(0, 30), seed=seed)


def main(count, first):
    figures, wrong = {}, 0
    for seed in range(first, first + count):
        case = random_case(seed)
        try:
            named, released, said = run_case(**case)
        except AssertionError as e:
            wrong += 1
            print(f"seed {seed} {case}: not named\n{e}", flush=True)
            continue
        figures.setdefault(case["kind"], []).append((named, released))
        limit = LIMITS.get(case["kind"], OTHERS)
        if named > limit or (released or 0) > limit:
            print(f"seed {seed} {case}: named after {named:.2f} s, failed after {released or 0:.2f} s\n{said}", flush=True)
    for kind, all_of in sorted(figures.items()):
        released = [r for _, r in all_of if r is not None]
        print(f"{kind:6} {len(all_of):3} runs, named within {max(n for n, _ in all_of):.2f} s" +
              (f", calls of the others failed within {max(released):.2f} s" if released else ""))
    print(f"{sum(map(len, figures.values()))} of {count} named")
    return wrong


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        rank_program(sys.argv[2], *map(int, sys.argv[3:8]), sys.argv[8])
    else:
        sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0) > 0)
