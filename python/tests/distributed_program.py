"""All functions of groups, run by several ranks with Arete or PyTorch: `distributed_program.py arete|torch RANKS FOLDER`. Each rank
writes what it got, as JSON, to FOLDER/RANK."""
import importlib
import json
import os
import sys
import traceback
from datetime import timedelta


def collectives(torch, dist, rank, size, note):
    def values(dtype, n=6, of=rank):
        x = torch.arange(n) * (of + 1) % 5 + of
        return x.to(dtype) if dtype != torch.bool else x % 2 == 0

    real = [torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]
    for dtype in [*real, torch.complex64, torch.complex128]:
        for op in ["SUM", "PRODUCT"] + ["MIN", "MAX"] * (dtype in real):
            if dtype.is_complex and op == "PRODUCT":
                continue  # torch's Gloo multiplies parts
            x = values(dtype)
            dist.all_reduce(x, op=getattr(dist.ReduceOp, op))
            note(f"all_reduce {op} {dtype}", x)
    for op in ("BAND", "BOR", "BXOR"):
        x = values(torch.int32)
        dist.all_reduce(x, op=getattr(dist.ReduceOp, op))
        note(f"all_reduce {op}", x)
    for dtype in [*real, torch.complex64, torch.bool]:
        for root in range(size):
            x = values(dtype)
            dist.broadcast(x, root)
            note(f"broadcast {root} {dtype}", x)
        out = [torch.zeros(6, dtype=dtype) for _ in range(size)]
        dist.all_gather(out, values(dtype))
        note(f"all_gather {dtype}", *out)
        flat = torch.zeros(6 * size, dtype=dtype)
        dist.all_gather_into_tensor(flat, values(dtype))
        note(f"all_gather_into_tensor {dtype}", flat)
        if dtype in (torch.bfloat16, torch.complex64, torch.bool):
            continue  # torch's Gloo does not gather them
        out = [torch.zeros(6, dtype=dtype) for _ in range(size)] if rank == 1 else None
        dist.gather(values(dtype), out, dst=1)
        note(f"gather {dtype}", *(out or []))
        x = torch.zeros(6, dtype=dtype)
        dist.scatter(x, [values(dtype, of=r) for r in range(size)] if rank == 0 else None, src=0)
        note(f"scatter {dtype}", x)
    flat = torch.zeros(size * 2, 3)
    dist.all_gather_into_tensor(flat, values(torch.float32).reshape(2, 3))
    note("all_gather_into_tensor rows", flat)
    for op in ("SUM", "MAX"):
        x = values(torch.float32)
        dist.reduce(x, 1, op=getattr(dist.ReduceOp, op))
        note(f"reduce {op}", *([x] if rank == 1 else []))
        x = torch.zeros(2)
        dist.reduce_scatter(x, list(values(torch.float32, 2 * size).split(2)), op=getattr(dist.ReduceOp, op))
        note(f"reduce_scatter {op}", x)
        dist.reduce_scatter_tensor(x, values(torch.float32, 2 * size), op=getattr(dist.ReduceOp, op))
        note(f"reduce_scatter_tensor {op}", x)
    out = torch.zeros(2 * size, 3)
    dist.all_to_all_single(out, values(torch.float32, 6 * size).reshape(2 * size, 3))
    note("all_to_all_single", out)
    # Rank r sends s + 1 rows to rank s.
    out = torch.zeros(size * (rank + 1), 2)
    dist.all_to_all_single(out, values(torch.float32, size * (size + 1)).reshape(-1, 2), [rank + 1] * size, list(range(1, size + 1)))
    note("all_to_all_single uneven", out)
    x = torch.tensor(float(rank))
    dist.all_reduce(x)
    note("number", x)
    works = [dist.all_reduce(values(torch.float32).add_(i), async_op=True) for i in range(4)]
    x = values(torch.float32)
    work = dist.all_reduce(x, async_op=True)
    note("waited", work.wait() in (True, None), work.is_completed(), x)
    for work in works:
        work.wait()
    dist.barrier()
    dist.monitored_barrier()


def messages(torch, dist, rank, size, note):
    after, before = (rank + 1) % size, (rank - 1) % size
    x, y = torch.full((3,), float(rank)), torch.zeros(3)
    ops = [dist.P2POp(dist.irecv, y, before), dist.P2POp(dist.isend, x, after)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    note("batch", y)
    if rank == 0:
        sources = []
        for _ in range(size - 1):
            sources.append(dist.recv(y, tag=5))
            assert y[0].item() == sources[-1]
        note("from anybody", sorted(sources))
        dist.send(torch.ones(3), 1)
    else:
        dist.send(x, 0, tag=5)
        if rank == 1:
            note("recv", dist.recv(y, 0), y)


def objects(torch, dist, rank, size, note):
    every = [None] * size
    dist.all_gather_object(every, {"rank": rank, "text": "x" * rank})
    note("all_gather_object", every)
    some = [None] * size if rank == 1 else None
    dist.gather_object([rank] * rank, some, dst=1)
    note("gather_object", some)
    both = ["a", rank] if rank == 0 else [None, None]
    dist.broadcast_object_list(both, src=0)
    note("broadcast_object_list", both)
    one = [None]
    dist.scatter_object_list(one, [f"for {r}" for r in range(size)] if rank == 0 else None, src=0)
    note("scatter_object_list", one)


def groups(torch, dist, rank, size, note):
    note("world", dist.get_rank(), dist.get_world_size(), dist.get_backend(), dist.is_initialized())
    last = dist.new_group([0, size - 1])
    x = torch.tensor([float(rank)])
    if rank in (0, size - 1):
        dist.all_reduce(x, group=last)
        dist.broadcast(x, size - 1, group=last)
        note("ranks", dist.get_rank(last), dist.get_world_size(last), dist.get_process_group_ranks(last),
             dist.get_global_rank(last, 1), dist.get_group_rank(last, size - 1))
    else:
        note("outside", dist.get_rank(last), dist.get_world_size(last))
    note("part", x)
    y = torch.tensor([rank])
    dist.broadcast(y, group=dist.new_group(), group_src=1)
    note("group_src", y)


def functional(torch, dist, rank, size, note):
    """Collectives with gradients. Each rank's loss has weights of its own."""
    F = importlib.import_module(f"{torch.__name__}.distributed.nn.functional")
    fc = importlib.import_module(f"{torch.__name__}.distributed._functional_collectives")
    world = dist.group.WORLD

    def leaf(*shape):
        n = 1
        for m in shape:
            n *= m
        return (torch.arange(n, dtype=torch.float32).reshape(shape) * (rank + 1) % 7).requires_grad_()

    def weights(like):
        return torch.arange(like.numel(), dtype=torch.float32).reshape(like.shape) % 3 + rank

    def graded(name, leaves, results):
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        sum((r * weights(r)).sum() for r in results).backward()
        note(name, *[r.detach() for r in results], *[x.grad for x in leaves])

    x = leaf(2, 3)
    graded("F.all_reduce", [x], F.all_reduce(x * 2))
    x = leaf(2, 3)
    y = F.all_reduce(x)
    graded("twice", [x], F.all_reduce(y * y))
    for root in range(size):
        x = leaf(2, 3)
        graded("F.broadcast", [x], F.broadcast(x, root))
        x = leaf(3)
        y = F.reduce(x, root)
        graded("F.reduce", [x], y if rank == root else y * 0)
        x = leaf(2)
        graded("F.gather", [x], F.gather(x, root))
        xs = [leaf(2) for _ in range(size)]
        graded("F.scatter", xs, F.scatter(xs, root))
    x = leaf(2, 2)
    graded("F.all_gather", [x], F.all_gather(x))
    xs = [leaf(3) for _ in range(size)]
    graded("F.reduce_scatter", xs, F.reduce_scatter(torch.zeros(3), xs))
    xs = [leaf(2) for _ in range(size)]
    graded("F.all_to_all", xs, F.all_to_all([torch.zeros(2) for _ in range(size)], xs))
    x = leaf(size * (size + 1) // 2, 2)
    out = torch.zeros(size * (rank + 1), 2)
    graded("F.all_to_all_single", [x], F.all_to_all_single(out, x, [rank + 1] * size, list(range(1, size + 1))))
    x = leaf(2, size)
    note("functional", fc.wait_tensor(fc.all_reduce(x.detach(), "max", world)), fc.all_gather_tensor(x.detach(), 1, world),
         fc.reduce_scatter_tensor(x.detach(), "sum", 1, world), fc.all_to_all_single(x.detach().t().contiguous(), None, None, world),
         fc.broadcast(x.detach(), 1, world))
    graded("all_gather_tensor", [x], fc.all_gather_tensor_autograd(x, 1, world))
    x = leaf(2, size)
    graded("reduce_scatter_tensor", [x], fc.reduce_scatter_tensor_autograd(x, "sum", 1, world))
    x = leaf(size, 2)
    graded("all_to_all_single", [x], fc.all_to_all_single_autograd(x, None, None, world))
    with torch.no_grad():
        note("max", F.all_reduce(leaf(3).detach(), dist.ReduceOp.MAX))


def mesh(torch, dist, rank, size, note):
    line = dist.init_device_mesh("cpu", (size,), mesh_dim_names=("all",))
    x = torch.ones(1)
    dist.all_reduce(x, group=line.get_group())
    note("mesh", x, line.get_local_rank(), line["all"].size(), line.get_coordinate()[0], repr(line), line.mesh)
    two = dist.init_device_mesh("cpu", (1, size), mesh_dim_names=("a", "b"))
    y = torch.full((1,), float(rank))
    dist.all_reduce(y, group=two["b"].get_group())
    dist.all_reduce(x, group=two.get_group("a"))
    note("mesh of two", x, y, two["b"].mesh, [g.size() for g in two.get_all_groups()])


def mistakes(torch, dist, rank, size, note):
    def fails(name, f):
        try:
            f()
            note(name, "nothing")
        except Exception as e:
            note(name, [c.__name__ for c in (ValueError, TypeError, RuntimeError) if isinstance(e, c)][:1])

    x = torch.zeros(2)
    fails("no tensor", lambda: dist.all_reduce([1]))
    fails("no list", lambda: dist.all_gather(x, x))
    fails("twice", lambda: dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1))
    fails("gather_list", lambda: dist.gather(x, None if rank == 0 else [x]))
    fails("both roots", lambda: dist.broadcast(x, 0, group_src=0))
    fails("to itself", lambda: dist.send(x, rank))
    fails("group", lambda: dist.new_group([size]))


def program(torch, dist, rank, size, folder, note):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size, timeout=timedelta(seconds=90))
    for part in (collectives, messages, objects, groups, functional, mesh, mistakes):
        part(torch, dist, rank, size, note)
    dist.barrier()
    dist.destroy_process_group()
    note("end", dist.is_initialized())


def shown(v):
    return [str(v.dtype).split(".")[-1], list(v.shape), str(v.tolist())] if hasattr(v, "tolist") else v


def run(name, rank, size, folder, program, shown):
    torch = importlib.import_module(name)
    dist = importlib.import_module(f"{name}.distributed")
    torch.set_num_threads(1)
    results = []
    try:
        program(torch, dist, rank, size, folder,
                lambda what, *values: results.append([what.replace(f"{name}.", ""), [*map(shown, values)]]))
    except BaseException:
        results.append(["raised", traceback.format_exc()])
    with open(f"{folder}/{rank}", "w") as file:
        json.dump(results, file)


def main(program, shown):
    """Runs program(torch, distributed, rank, size, folder, note) in as many processes as the command line says; shown(value) is what is
    written of a value that it notes."""
    name, size, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    importlib.import_module(name)  # once for all ranks
    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            run(name, rank, size, folder, program, shown)
            os._exit(0)
        children.append(child)
    sys.exit(any(os.waitpid(child, 0)[1] for child in children))


if __name__ == "__main__":
    main(program, shown)
