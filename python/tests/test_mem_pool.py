"""Memory of a program's parts: cuda.MemPool and use_mem_pool, on GPUs that are none and on real ones."""
import pytest
from fake_gpus import run

import arete

on_gpus = pytest.mark.parametrize("gpus", ["fake"] + ["real"] * arete.cuda.is_available())


def live(program):
    return """
import gc, threading
from torch.cuda import MemPool, use_mem_pool

def live(pool):
    return sum(b["size"] for s in pool.snapshot() for b in s["blocks"] if b["state"] == "active_allocated")

def inside(pool, x):
    return any(s["address"] <= x.data_ptr() < s["address"] + s["total_size"] for s in pool.snapshot())
""".replace("from torch.cuda import", "from arete.cuda import") + program


@on_gpus
def test_what_a_scope_allocates_is_the_pools(gpus):
    run(live("""
pool, other = MemPool(), MemPool()
assert pool.id != other.id and len(pool.id) == 2 and pool.allocator is None
assert pool.snapshot() == [] and pool.use_count() == 1
outside = torch.ones(1000, device="cuda")
with use_mem_pool(pool):
    assert pool.use_count() == 2
    x = torch.ones(1000, device="cuda")
    with use_mem_pool(other):
        y = x + 1
    z = x * 2
    thread = threading.Thread(target=lambda: globals().update(t=torch.ones(1000, device="cuda")))
    thread.start()
    thread.join()
late = torch.ones(1000, device="cuda")
assert pool.use_count() == 1
assert inside(pool, x) and inside(pool, z) and inside(other, y)
assert not any(inside(p, a) for p in (pool, other) for a in (outside, late, t)) and not inside(pool, y)
assert live(pool) >= 8000 and 4000 <= live(other) < 8000
for s in pool.snapshot():
    assert s["segment_pool_id"] == pool.id and s["device"] == 0
    assert s["allocated_size"] == sum(b["size"] for b in s["blocks"] if b["state"] == "active_allocated")
assert torch.cuda.memory_snapshot(pool.id) == pool.snapshot()
del z
assert 4000 <= live(pool) < 8000
assert torch.equal(x.cpu() + 1, y.cpu())
try:
    with use_mem_pool(pool):
        raise KeyError
except KeyError:
    pass
assert not inside(pool, torch.ones(1000, device="cuda"))  # a scope ends with an error, too
# The pool goes; its tensors stay.
del pool
gc.collect()
assert x.tolist() == [1] * 1000
"""), gpus=gpus)


@on_gpus
def test_graphs_take_pools_and_their_ids(gpus):
    run(live("""
pool = MemPool()
x, results = torch.ones(1000, device="cuda"), []
for given in (pool, pool.id, torch.cuda.graph_pool_handle()):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g, pool=given):
        results.append(x + len(results))
    g.replay()
    assert results[-1].tolist() == [len(results)] * 1000
    assert pool.use_count() == 1 + (given in (pool, pool.id))
assert torch.cuda.graph(g, pool=(0, 12345)).__enter__ is not None
try:
    torch.cuda.graph(g, pool=(0, 12345)).__enter__()
except ValueError as e:
    assert "no MemPool with the id (0, 12345)" in str(e)
else:
    raise AssertionError("found")
"""), gpus=gpus)


def test_a_pool_of_several_devices():
    run(live("""
pool = MemPool()
with use_mem_pool(pool, 1):
    x, y = torch.ones(10, device="cuda:1"), torch.ones(10, device="cuda:0")
assert inside(pool, x) and not inside(pool, y)
assert [s["device"] for s in pool.snapshot()] == [1]
with use_mem_pool(pool, torch.device("cuda", 0)):
    z = torch.ones(10, device="cuda:0")
assert inside(pool, z)
"""), gpus="fake")


@on_gpus
def test_what_pools_refuse(gpus):
    run("""
for text, arguments in (("from the driver", dict(allocator=print)), ("no_split", dict(no_split=True))):
    try:
        torch.cuda.MemPool(**arguments)
    except NotImplementedError as e:
        assert text in str(e), e
    else:
        raise AssertionError(text)
lends = torch.cuda.MemPool(use_on_oom=True)
try:
    torch.cuda.graph(torch.cuda.CUDAGraph(), pool=lends).__enter__()
except ValueError as e:
    assert "graphs do not take memory from" in str(e)
else:
    raise AssertionError("a graph took it")
assert not torch.cuda.is_current_stream_capturing()
try:
    torch.cuda.memory_snapshot((0, 12345))
except ValueError as e:
    assert "no MemPool" in str(e)
else:
    raise AssertionError("found")
""", gpus=gpus)


@pytest.mark.skipif(not arete.cuda.is_available(), reason="needs a GPU")
def test_memory_of_a_pool_is_given_back_and_lent():
    run(live("""
free, total = torch.cuda.mem_get_info()
pool = MemPool()
with use_mem_pool(pool):
    x = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
address, reserved = x.data_ptr(), torch.cuda.memory_reserved()
del x
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() >= 256 << 20  # the pool keeps it
with use_mem_pool(pool):
    x = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
assert x.data_ptr() == address
del x, pool
gc.collect()
assert torch.cuda.memory_reserved() <= reserved - (256 << 20)
torch.cuda.set_per_process_memory_fraction((512 << 20) / total)
for lends in (False, True):
    pool = MemPool(use_on_oom=lends)
    with use_mem_pool(pool):
        x = torch.empty(300 << 20, dtype=torch.uint8, device="cuda")
    del x
    try:
        x = torch.empty(300 << 20, dtype=torch.uint8, device="cuda")
        assert lends and inside(pool, x)
        del x
    except torch.cuda.OutOfMemoryError:
        assert not lends
    del pool
    gc.collect()
"""), gpus="real")


def test_no_gpu():
    run("""
try:
    torch.cuda.MemPool()
except RuntimeError as e:
    assert "CUDA is not available" in str(e), e
else:
    raise AssertionError("made")
""", gpus=False)
