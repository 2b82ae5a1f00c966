"""Groups over GPUs against expected numbers, by Arete or PyTorch, one rank a GPU:

    arete run --standalone --nproc-per-node 2 python/tests/nccl_program.py [arete|torch [PART,...]]

or by torchrun, or alone as the one rank of a group; with ARETE_PEER_COPIES=1 what is large goes by copies, with auto what DDP and FSDP
exchange. What a rank finds wrong it raises; at the end each says how much it has checked."""
import contextlib
import importlib
import os
import sys
import time
from datetime import timedelta

name = sys.argv[1] if len(sys.argv) > 1 else "arete"
torch = importlib.import_module(name)
dist = importlib.import_module(name + ".distributed")
checked = 0


def same(what, got, expected):
    global checked
    checked += 1
    got = got.cpu() if hasattr(got, "cpu") else got
    if hasattr(got, "dtype"):
        expected = expected.to(got.dtype)
        good = got.shape == expected.shape and torch.equal(got, expected)
    else:
        good = got == expected
    if not good:
        raise AssertionError(f"{what}: {got} instead of {expected}")


def refused(what, f, *kinds):
    global checked
    checked += 1
    try:
        f()
    except kinds:
        return
    raise AssertionError(f"{what} was not refused")


def values(rank, n=8, dtype=torch.float32, device="cpu"):
    x = (torch.arange(n) * (rank + 2) + rank) % 5
    return (x % 2 == 0 if dtype == torch.bool else x.to(dtype)).to(device)


def combined(op, size, dtype, n=8):
    every = [values(r, n, dtype) for r in range(size)]
    if dtype == torch.bool:
        stacked = torch.stack([e.to(torch.int64) for e in every])
        return (stacked.sum(0) > 0 if op in ("SUM", "MAX") else stacked.prod(0) > 0).to(torch.bool)
    wide = torch.stack([e.to(torch.complex128 if dtype.is_complex else torch.float64) for e in every])
    if op == "PRODUCT":
        total = wide[0]
        for e in wide[1:]:
            total = total * e
        return total
    return {"SUM": lambda: wide.sum(0), "AVG": lambda: wide.mean(0), "MIN": lambda: wide.amin(0), "MAX": lambda: wide.amax(0)}[op]()


def reductions(gpu, rank, size):
    whole = [torch.uint8, torch.int8, torch.int32, torch.int64]
    real = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
    for dtype in [*whole, *real, torch.bool, torch.complex64, torch.complex128]:
        for op in ["SUM"] + ["PRODUCT", "MIN", "MAX"] * (not dtype.is_complex) + ["AVG"] * (dtype in real or dtype.is_complex):
            if op == "AVG" and size not in (1, 2, 4) or op == "PRODUCT" and size > 3:
                continue  # not exact
            x = values(rank, dtype=dtype, device=gpu)
            dist.all_reduce(x, op=getattr(dist.ReduceOp, op))
            same(f"all_reduce {op} {dtype}", x, combined(op, size, dtype))
    for dtype in real:
        x = values(rank, dtype=dtype, device=gpu)
        dist.all_reduce(x, op=dist._make_nccl_premul_sum(0.5))
        same(f"premul {dtype}", x, combined("SUM", size, dtype) * 0.5)
    for bad in ("BAND", "BOR", "BXOR"):
        refused(bad, lambda: dist.all_reduce(values(0, dtype=torch.int32, device=gpu), op=getattr(dist.ReduceOp, bad)),
                RuntimeError, ValueError, TypeError)
    refused("bool avg", lambda: dist.all_reduce(values(0, dtype=torch.bool, device=gpu), op=dist.ReduceOp.AVG),
            RuntimeError, ValueError, TypeError)
    if name == "arete":
        refused("int16", lambda: dist.all_reduce(values(0, dtype=torch.int16, device=gpu)), TypeError)
        refused("host memory", lambda: dist.all_reduce(values(0), group=alone_on_gpus), RuntimeError)
    for n in (0, 1, 3, 1 << 20):
        x = values(rank, n, device=gpu)
        dist.all_reduce(x)
        same(f"all_reduce of {n}", x, combined("SUM", size, torch.float32, n))
    x = torch.tensor(float(rank), device=gpu)
    dist.all_reduce(x)
    same("number", x, torch.tensor(float(sum(range(size)))))
    for root in range(size):
        x = values(rank, device=gpu)
        dist.reduce(x, root)
        if rank == root:
            same("reduce", x, combined("SUM", size, torch.float32))
        x = values(rank, device=gpu)
        dist.broadcast(x, root)
        same("broadcast", x, values(root))
        part = torch.zeros(2, device=gpu)
        dist.reduce_scatter_tensor(part, values(rank, 2 * size, device=gpu))
        same("reduce_scatter_tensor", part, combined("SUM", size, torch.float32, 2 * size)[2 * rank:2 * rank + 2])
        lists = [t.clone() for t in values(rank, 2 * size, device=gpu).split(2)]
        dist.reduce_scatter(part, lists, op=dist.ReduceOp.MAX)
        same("reduce_scatter", part, combined("MAX", size, torch.float32, 2 * size)[2 * rank:2 * rank + 2])
    uneven = [values(rank, r + 1, device=gpu) for r in range(size)]
    part = torch.zeros(rank + 1, device=gpu)
    dist.reduce_scatter(part, uneven)
    same("uneven reduce_scatter", part, combined("SUM", size, torch.float32, rank + 1))


def exchanges(gpu, rank, size):
    small = [getattr(torch, f) for f in ("float8_e4m3fn", "float8_e5m2")]
    for dtype in [torch.float32, torch.bool, torch.int16, torch.complex64, *small]:
        if dtype == torch.int16 and name == "torch":
            continue

        def known(r, n=4):
            return values(r, n).to(dtype) if dtype in small else values(r, n, dtype)

        def plain(x):
            return x.to(torch.float32) if dtype in small else x

        out = [known(0).to(gpu) for _ in range(size)]
        dist.all_gather(out, known(rank).to(gpu))
        for r in range(size):
            same(f"all_gather {dtype}", plain(out[r]), plain(known(r)))
        x = known(rank).to(gpu)
        dist.broadcast(x, size - 1)
        same(f"broadcast {dtype}", plain(x), plain(known(size - 1)))
    flat = torch.zeros(4 * size, device=gpu)
    dist.all_gather_into_tensor(flat, values(rank, 4, device=gpu))
    same("all_gather_into_tensor", flat, torch.cat([values(r, 4) for r in range(size)]))
    flat[4 * rank:4 * rank + 4] = values(rank + 1, 4, device=gpu)
    dist.all_gather_into_tensor(flat, flat[4 * rank:4 * rank + 4])
    same("in place", flat, torch.cat([values(r + 1, 4) for r in range(size)]))
    out = [torch.zeros(r, device=gpu) for r in range(size)]
    dist.all_gather(out, values(rank, rank, device=gpu))
    for r in range(size):
        same("uneven all_gather", out[r], values(r, r))
    out = [torch.zeros(2, device=gpu) for _ in range(size)]
    dist.all_to_all(out, [values(rank * size + r, 2, device=gpu) for r in range(size)])
    for r in range(size):
        same("all_to_all", out[r], values(r * size + rank, 2))
    got = torch.zeros(size * (rank + 1), 2, device=gpu)
    sent = values(rank, size * (size + 1), device=gpu).reshape(-1, 2)
    dist.all_to_all_single(got, sent, [rank + 1] * size, list(range(1, size + 1)))
    begin = rank * (rank + 1) // 2
    same("all_to_all_single", got, torch.cat([values(r, size * (size + 1)).reshape(-1, 2)[begin:begin + rank + 1] for r in range(size)]))
    for root in range(size):
        out = [torch.zeros(3, device=gpu) for _ in range(size)] if rank == root else None
        dist.gather(values(rank, 3, device=gpu), out, dst=root)
        for r in range(size if rank == root else 0):
            same("gather", out[r], values(r, 3))
        x = torch.zeros(3, device=gpu)
        dist.scatter(x, [values(r, 3, device=gpu) for r in range(size)] if rank == root else None, src=root)
        same("scatter", x, values(rank, 3))
    if name == "arete":  # torch refuses what has gaps
        wide = torch.zeros(4, 6, device=gpu)
        wide[:, ::2] = values(rank, 12, device=gpu).reshape(4, 3)
        dist.all_reduce(wide[:, ::2])
        expected = torch.zeros(4, 6)
        expected[:, ::2] = combined("SUM", size, torch.float32, 12).reshape(4, 3).to(torch.float32)
        same("with gaps", wide, expected)
        dist.all_reduce(wide[:, ::2], async_op=True)
        expected[:, ::2] *= size
        same("with gaps, async", wide, expected)


def messages(gpu, rank, size):
    if size == 1:
        return
    after, before = (rank + 1) % size, (rank - 1) % size
    x, y = values(rank, device=gpu), torch.zeros(8, device=gpu)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, after), dist.P2POp(dist.irecv, y, before)]):
        work.wait()
    same("batch", y, values(before))
    if rank == 0:
        dist.send(x, 1)
        dist.recv(y, 1)
        same("recv", y, values(1) * 2)
    elif rank == 1:
        dist.recv(y, 0)
        same("recv", y, values(0))
        dist.send(x * 2, 0)


def streams(gpu, rank, size):
    n = 1 << 22
    expected = float(sum(range(1, size + 1)))
    # Work before and after in the same stream, without any wait of the host.
    for async_op in (False, True):
        for _ in range(20):
            x = torch.full((n,), 0.0, device=gpu)
            x += rank + 1
            work = dist.all_reduce(x, async_op=async_op)
            if work is not None:
                work.wait()
            y = x * 2
            same(f"order, async {async_op}", y[::n // 4 + 1].cpu(), torch.full((4,), 2 * expected))
    # Tensors are released at once; their memory must not serve others before the call is done.
    works, kept = [], torch.full((n,), 1.0, device=gpu)
    for _ in range(20):
        x = torch.full((n,), float(rank + 1), device=gpu)
        works.append(dist.all_reduce(x, async_op=True))
        del x
        spoiler = torch.full((n,), -1e9, device=gpu)
        del spoiler
    work = dist.all_reduce(kept, async_op=True)
    works[-1].wait()
    work.wait()
    same("released", kept[::n // 4 + 1].cpu(), torch.full((4,), float(size)))
    gathered = []
    for k in range(20):
        x = torch.full((1 << 18,), float(10 * k + rank), device=gpu)
        gathered.append(torch.empty(size << 18, device=gpu))
        works.append(dist.all_gather_into_tensor(gathered[-1], x, async_op=True))
        del x
        spoiler = torch.full((1 << 18,), -1e9, device=gpu)
        del spoiler
    for k, out in enumerate(gathered):
        works[k - 20].wait()
        same("released inputs", out[::1 << 18].cpu(), torch.tensor([float(10 * k + r) for r in range(size)]))
    if name == "arete":
        for _ in range(20):  # nobody waits, but who reads
            x = torch.full((n,), float(rank + 1), device=gpu)
            dist.all_reduce(x, async_op=True)
            same("unwaited", (x + 1)[::n // 4 + 1].cpu(), torch.full((4,), expected + 1))
            dist.all_reduce(x, async_op=True)
            same("unwaited, by a copy", x.cpu()[::n // 4 + 1], torch.full((4,), expected * size))
            x = torch.full((n,), float(rank + 1), device=gpu)
            dist.all_reduce(x, async_op=True)
            x.zero_()
            same("unwaited, written", x[::n // 4 + 1].cpu(), torch.zeros(4))
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        x = torch.full((n,), float(rank + 1), device=gpu)
        dist.all_reduce(x)
        y = x + 1
    torch.cuda.current_stream().wait_stream(side)
    same("another stream", y[::n // 4 + 1].cpu(), torch.full((4,), expected + 1))
    work = dist.all_reduce(torch.ones(n, device=gpu), async_op=True)
    work.wait(timedelta(seconds=30))
    same("completed", work.is_completed(), True)
    torch.cuda.synchronize()
    same("success", work.is_success(), True)


def groups(gpu, rank, size):
    every = [dist.new_group(list(range(r + 1))) for r in range(size)]
    for r, group in enumerate(every):
        if rank <= r:
            x = torch.ones(3, device=gpu)
            dist.all_reduce(x, group=group)
            same(f"group of {r + 1}", x, torch.full((3,), float(r + 1)))
    works = []
    for r, group in enumerate(every):
        if rank <= r:
            x = torch.full((1 << 20,), 1.0, device=gpu)
            works.append((r, x, dist.all_reduce(x, group=group, async_op=True)))
    for r, x, work in works:
        work.wait()
        same("groups at once", x[:2].cpu(), torch.full((2,), float(r + 1)))
    both = [None] * size
    dist.all_gather_object(both, {"rank": rank})
    same("objects", both, [{"rank": r} for r in range(size)])
    dist.all_gather_object(both, "x" * rank, group=alone_on_gpus)
    same("objects by NCCL", both, ["x" * r for r in range(size)])
    one = ["a"] if rank == 0 else [None]
    dist.broadcast_object_list(one, src=0, group=alone_on_gpus)
    same("an object by NCCL", one, ["a"])
    dist.barrier()
    dist.barrier(group=alone_on_gpus)
    x = torch.ones(2)
    dist.all_reduce(x)
    same("host memory", x, torch.full((2,), float(size)))


def graphs(gpu, rank, size):
    for async_op in (False, True):
        x, gathered = torch.ones(1 << 16, device=gpu), torch.zeros(size << 4, device=gpu)

        def step():
            y = x * 2
            work = dist.all_reduce(y, async_op=async_op)
            if work is not None:
                work.wait()
            dist.all_gather_into_tensor(gathered, y[:16])
            return y + 1

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = step()
        for i in range(1, 4):
            x.fill_(float(i * (rank + 1)))
            graph.replay()
            total = 2.0 * i * sum(range(1, size + 1))
            same(f"graph, async {async_op}", y[:3].cpu(), torch.full((3,), total + 1))
            same("gathered in a graph", gathered.cpu(), torch.full((size << 4,), total))
        z = torch.ones(4, device=gpu)
        dist.all_reduce(z)
        same("after a graph", z, torch.full((4,), float(size)))
        torch.cuda.synchronize()
        del graph


def compiled(gpu, rank, size):
    """Calls as parts of plans, between graphs: the bits of eager steps, whatever shapes each rank sees."""
    if name == "torch":
        return
    nn = torch.nn

    def wrapped(**options):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(16, 65), nn.GELU(), nn.Linear(65, 32), nn.Tanh(), nn.Linear(32, 4)).to(gpu)
        return nn.parallel.DistributedDataParallel(net, bucket_cap_mb=2e-3, **options)

    def step_of(net):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def step(x):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            mean = loss.detach().clone()
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            return mean
        return step

    def batch(k, rows=8):
        return torch.cos(torch.arange(16.0 * rows) + 7 * rank + k).reshape(rows, 16).to(gpu)

    for options in ({}, {"deterministic": True}, {"gradient_as_bucket_view": True}):
        for rows in (lambda k: 8, lambda k: 8 + (k * (rank + 1)) // 6 % 3):
            nets = [wrapped(**options) for _ in range(2)]
            eager, called = step_of(nets[0]), torch.compile(step_of(nets[1]), options={"exact": True})
            for k in range(30):
                x = batch(k, rows(k))
                same(f"a compiled step {k} {options}", called(x), eager(x).cpu())
            for p, q in zip(nets[0].parameters(), nets[1].parameters()):
                same("its parameters", q.detach(), p.detach().cpu())
            same("breaks", called.stats()["breaks"], 0)
            if rows(1) == rows(29):
                same("graphs", "one graph" in called.explain(), True)
            last = dist.flight_record()["entries"][-1]["operation"]
            same("the last call", last, "all_reduce")
    # The optimizer outside: calls may be under way when it begins.
    nets = [wrapped(), wrapped()]
    networks = [nets[0], torch.compile(nets[1], options={"exact": True})]
    optimizers = [torch.optim.AdamW(net.parameters(), lr=0.01) for net in nets]
    for k in range(30):
        for net, optimizer in zip(networks, optimizers):
            optimizer.zero_grad()
            net(batch(k)).square().mean().backward()
            optimizer.step()
    for p, q in zip(nets[0].parameters(), nets[1].parameters()):
        same("parameters of a compiled network", q.detach(), p.detach().cpu())
    # Parameters that are whole while they are used.
    nets = []
    for _ in range(2):
        torch.manual_seed(0)
        net = nn.Sequential(*[nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 16)) for _ in range(3)], nn.Linear(16, 4)).to(gpu)
        for block in net[:3]:
            dist.fsdp.fully_shard(block)
        nets.append(dist.fsdp.fully_shard(net))
    eager, plain = (step_of(net) for net in nets)
    same("a sharded step", plain(batch(0)), eager(batch(0)).cpu())  # which connects the second communicator
    called = torch.compile(plain, options={"exact": True})
    for k in range(30):
        same(f"a sharded step {k}", called(batch(k)), eager(batch(k)).cpu())
    for p, q in zip(nets[0].parameters(), nets[1].parameters()):
        same("shards", q.to_local().detach(), p.to_local().detach().cpu())
    same("breaks", called.stats()["breaks"], 0)
    # Memory that is used again while a call is under way.
    big = 1 << 22

    def sums(x):
        results = []
        for k in range(4):
            y = x * float(k + rank)
            dist.all_reduce(y, async_op=True)
            z = torch.ones(big, device=gpu) * float(k)
            results.append((z * z).sum())
            if k % 2 == 0:
                results.append(y.sum())
        return torch.stack(results)

    called = torch.compile(sums, options={"exact": True})
    x = torch.ones(big, device=gpu)
    for _ in range(12):
        same("under way", called(x), sums(x).cpu())


def large(gpu, rank, size):
    """Calls that ARETE_PEER_COPIES=1 makes by copies: of sizes around what its rooms hold, one after the other, in streams and graphs."""

    def known(r, n, dtype):
        return ((torch.arange(n, device=gpu) * (r + 2) + r) % 5).to(dtype)

    real = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
    for n in ((1 << 20) + 1, (1 << 23) + 5, (1 << 24) + 3):
        for dtype in real:
            for op, factor in (("SUM", 1), ("AVG", 1 / size), (dist._make_nccl_premul_sum(0.5), 0.5)):
                whole = known(rank, n + 1, dtype)
                x = whole[1:] if op == "AVG" else whole[:n]  # of any alignment
                dist.all_reduce(x, op=getattr(dist.ReduceOp, op) if isinstance(op, str) else op)
                every = sum(known(r, n + 1, torch.float64) for r in range(size)) * factor
                if size in (1, 2, 4):
                    same(f"all_reduce {op} of {n} {dtype}", torch.equal(x, (every[1:] if op == "AVG" else every[:n]).to(dtype)), True)
            part = torch.empty(n, dtype=dtype, device=gpu)
            dist.reduce_scatter_tensor(part, known(rank, n * size, dtype))
            every = sum(known(r, n * size, torch.float64) for r in range(size))
            same(f"reduce_scatter of {n} {dtype}", torch.equal(part, every[rank * n:(rank + 1) * n].to(dtype)), True)
            whole = torch.empty(n * size, dtype=dtype, device=gpu)
            dist.all_gather_into_tensor(whole, known(rank, n, dtype))
            same(f"all_gather of {n} {dtype}", torch.equal(whole, torch.cat([known(r, n, dtype) for r in range(size)])), True)
    uneven = [torch.empty((1 << 19) + 3 * r, device=gpu) for r in range(size)]
    dist.all_gather(uneven, known(rank, (1 << 19) + 3 * rank, torch.float32))
    for r in range(size):
        same("uneven all_gather", torch.equal(uneven[r], known(r, (1 << 19) + 3 * r, torch.float32)), True)
    x, y = torch.empty(1 << 19, device=gpu), torch.empty((1 << 22) + 1, device=gpu)
    wrong = torch.zeros((), device=gpu)
    for k in range(1000):  # in two streams by turns, which only the calls' order holds together
        y.fill_(float(rank + 1 + k % 13))
        work = dist.all_reduce(y, async_op=True)
        x.fill_(float(rank + k % 11))
        dist.all_reduce(x)
        wrong += (x - float(sum(r + k % 11 for r in range(size)))).abs().max()
        work.wait()
        wrong += (y - float(sum(r + 1 + k % 13 for r in range(size)))).abs().max()
    same("again and again", wrong.item(), 0.0)
    x.fill_(float(rank))
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = x * 2 + 1
        dist.all_reduce(y)
        z = y * 3
        work = dist.all_reduce(z, op=dist.ReduceOp.AVG, async_op=True)
        other = y + 1
        work.wait()
        z += other
    for k in range(200):
        x.fill_(float(rank + k % 7))
        g.replay()
        if k % 3 == 0:
            dist.all_reduce(torch.ones(1 << 19, device=gpu))
        total = sum(2 * (r + k % 7) + 1 for r in range(size))
        if k % 20 == 0:
            same("in a graph", (z.min().item(), z.max().item()), (total * 4.0 + 1, total * 4.0 + 1))
    del g
    # Two graphs, and calls beside them, by turns in several streams: only the calls' order holds them together.
    buffers, captured = [torch.empty(n, device=gpu) for n in ((1 << 19) + 1, (1 << 23) + 5)], []
    for buffer in buffers:
        captured.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(captured[-1]):
            buffer += 1
            dist.all_reduce(buffer, op=dist.ReduceOp.AVG)
            dist.all_reduce(buffer)
    torch.cuda.synchronize()
    own, wrong = [torch.cuda.Stream() for _ in range(3)], torch.zeros(3, device=gpu)
    beside = torch.empty((1 << 20) + 3, device=gpu)
    torch.cuda.synchronize()
    for k in range(300):
        for i in range(2):
            with torch.cuda.stream(own[i]):
                buffers[i].fill_(float(size * (k % 9 + i)))
                captured[i].replay()
                wrong[i] += (buffers[i] - float(size * (size * (k % 9 + i) + 1))).abs().max()
        with torch.cuda.stream(own[2]):
            beside.fill_(float(rank + k % 5))
            dist.all_reduce(beside)
            wrong[2] += (beside - float(sum(r + k % 5 for r in range(size)))).abs().max()
    torch.cuda.synchronize()
    same("two graphs and calls by turns", wrong.tolist(), [0.0, 0.0, 0.0])
    # One rank replays what the others call.
    for k in range(20):
        buffers[1].fill_(float(size * k))
        if rank == k % size:
            captured[1].replay()
        else:
            buffers[1] += 1
            dist.all_reduce(buffers[1], op=dist.ReduceOp.AVG)
            dist.all_reduce(buffers[1])
        same("replayed by one rank", (buffers[1].min().item(), buffers[1].max().item()), (float(size * (size * k + 1)),) * 2)
    torch.cuda.synchronize()
    captured.clear()
    # What DDP and FSDP exchange: the gradients of weights 1/1024 are four times the inputs, exactly.
    if name == "torch" or size not in (1, 2, 4, 8):
        return
    for wrap in (torch.nn.parallel.DistributedDataParallel, dist.fsdp.fully_shard):
        net = torch.nn.Sequential(torch.nn.Linear(1024, 1030, bias=False), torch.nn.Linear(1030, 1024, bias=False)).to(gpu)
        for p in net.parameters():
            p.data.fill_(1 / 1024)
        net = wrap(net)
        for k in range(3):
            net.zero_grad()
            net(torch.full((4, 1024), float(rank + k), device=gpu)).sum().backward()
            mean = sum(r + k for r in range(size)) / size
            for p in net.parameters():
                g = p.grad.to_local() if hasattr(p.grad, "to_local") else p.grad
                same(f"gradients by {wrap.__name__}", torch.equal(g, torch.full_like(g, 4 * mean)), True)


def together(gpu, rank, size):
    """Calls of several groups in one graph, in branches that know nothing of each other, and what the groups do beside it."""
    if name == "torch":
        return
    other = dist.new_group(backend="nccl")
    x, y = torch.empty((1 << 19) + 1, device=gpu), torch.empty((1 << 23) + 5, device=gpu)
    dist.all_reduce(torch.zeros(1 << 19, device=gpu), group=other)
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        side.wait_stream(torch.cuda.current_stream())
        a = x * 2
        for k in range(4):
            with torch.cuda.stream(side):
                b = (y if k == 0 else b) + 1
                dist.all_reduce(b, dist.ReduceOp.AVG, other)
            dist.all_reduce(a, dist.ReduceOp.AVG)
            a += 1
        torch.cuda.current_stream().wait_stream(side)
        difference = b[:a.numel()] - a
    torch.cuda.synchronize()
    own, wrong = torch.cuda.Stream(), torch.zeros(3, device=gpu)
    mean, beside = (size - 1) / 2, torch.empty((1 << 20) + 3, device=gpu)
    for k in range(100):
        x.fill_(float(size * (rank + k % 7)))
        y.fill_(float(size * (rank + k % 5)))
        graph.replay()
        wrong[0] += (difference - size * (mean + k % 5 - 2 * (mean + k % 7))).abs().max()
        for i, group in enumerate((dist.group.WORLD, other)):
            with torch.cuda.stream(own):
                beside.fill_(float(rank + k % 3))
                dist.all_reduce(beside, group=group)
                wrong[1 + i] += (beside - float(sum(r + k % 3 for r in range(size)))).abs().max()
    torch.cuda.synchronize()
    same("two groups in a graph, and beside it", wrong.tolist(), [0.0, 0.0, 0.0])
    del graph
    # A compiled step of layers that are spread: gathers and reductions have communicators of their own.
    nets = []
    for compiles in (False, True):
        net = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024, bias=False, device=gpu) for _ in range(3)])
        for i, p in enumerate(net.parameters()):
            p.data.copy_((torch.arange(p.numel(), device=gpu) % (61 + i)).reshape(p.shape) / 4096)
        for layer in net:
            dist.fsdp.fully_shard(layer)
        dist.fsdp.fully_shard(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

        def step(batch, net=net, optimizer=optimizer):
            loss = net(batch).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        step = torch.compile(step) if compiles else step
        for k in range(12):
            step(torch.full((64, 1024), (rank + 1 + k) / 64, device=gpu)).item()
        nets.append([p.full_tensor() for p in net.parameters()])
    for p, q in zip(*nets):
        same("a compiled step", torch.allclose(p, q, rtol=1e-4, atol=1e-6), True)


def late(gpu, rank, size):
    """A rank that does not come: the others hear of it in time, by name, and go on. Last, since the group is of no use then."""
    if size == 1 or name == "torch":
        return
    group = dist.new_group(timeout=timedelta(seconds=20), backend="nccl")
    x = torch.ones(1 << 20 if os.environ.get("ARETE_PEER_COPIES") == "1" else 4, device=gpu)
    dist.all_reduce(x, group=group)
    torch.cuda.synchronize()
    group._set_timeout(timedelta(seconds=3))
    begun = time.monotonic()
    if rank != 0:
        time.sleep(8)
        return
    dist.all_reduce(x, group=group)
    try:
        torch.cuda.synchronize()
    except dist.DistBackendError as e:
        assert "all_reduce #" in str(e) and "3000 ms" in str(e), e
    else:
        raise AssertionError("the call that nobody else made has ended")
    same("in time", time.monotonic() - begun < 7, True)
    refused("a group that failed", lambda: dist.all_reduce(x, group=group), dist.DistBackendError)
    same("the GPU goes on", (torch.ones(2, device=gpu) + 1).cpu(), torch.full((2,), 2.0))


if __name__ == "__main__":
    if "RANK" not in os.environ:
        os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29571")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    gpu = torch.device("cuda", local)
    begun = time.monotonic()
    where = os.environ.get("ARETE_TEST_MEETING", "env://")
    dist.init_process_group("cpu:gloo,cuda:nccl", where, timedelta(seconds=120), int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"]),
                            device_id=gpu)
    ready = time.monotonic() - begun
    rank, size = dist.get_rank(), dist.get_world_size()
    alone_on_gpus = dist.new_group(backend="nccl")
    parts = [reductions, exchanges, messages, streams, groups, graphs, compiled, large, together, late]
    for part in parts:
        if len(sys.argv) < 3 or part.__name__ in sys.argv[2].split(","):
            part(gpu, rank, size)
    torch.cuda.synchronize()
    with contextlib.suppress(Exception):
        version = ".".join(map(str, torch.cuda.nccl.version()))
    print(f"rank {rank} of {size}: {checked} checks passed, NCCL {version}, group ready in {ready:.2f} s", flush=True)
    if name == "torch" or size == 1:
        dist.destroy_process_group()
    else:
        dist.barrier()
        begun = time.monotonic()
        dist.destroy_process_group()
        same("the end is quick", time.monotonic() - begun < 12, True)
