"""Data, tensor and pipeline parallelism together train as processes without the first two."""
import pathlib
import subprocess
import sys

from test_distributed import needs_gloo

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "hybrid_parallel.py"

PROGRAM = """
import argparse, importlib.util, os, sys
import arete, arete.multiprocessing as mp
import arete.distributed as dist
spec = importlib.util.spec_from_file_location("hybrid", sys.argv[1])
hybrid = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hybrid)
folder = sys.argv[2]

def work(rank, sizes, results):
    arete.set_num_threads(1)
    ranks = sizes[0] * sizes[1] * sizes[2]
    dist.init_process_group("gloo", f"file://{folder}/{ranks}", rank=rank, world_size=ranks)
    values = dict(zip(("dp", "tp", "pp"), sizes), layers=4, width=16, heads=4, batch=8, microbatches=4, length=8, steps=5)
    means = hybrid.train(argparse.Namespace(**values))
    if means:
        results[rank] = arete.tensor(means)
    dist.destroy_process_group()

for sizes in ((2, 2, 2), (1, 1, 2)):
    ranks = sizes[0] * sizes[1] * sizes[2]
    results = arete.zeros(ranks, 5).share_memory_()
    mp.start_processes(work, (sizes, results), nprocs=ranks, start_method="fork")
    print("result", *results[results[:, 0] > 0].amax(0).tolist())
    assert (results[results[:, 0] > 0] == results[results[:, 0] > 0][0]).all(), results
"""


@needs_gloo
def test_example(tmp_path):
    done = subprocess.run([sys.executable, "-c", PROGRAM, EXAMPLE, tmp_path], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    eight, two = ([float(x) for x in line.split()[1:]] for line in done.stdout.splitlines() if line.startswith("result"))
    assert max(abs(a - b) for a, b in zip(eight, two)) < 1e-4, (eight, two)
    assert eight[-1] < eight[0] - 0.1
