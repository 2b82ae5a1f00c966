"""Memory that processes share, over a fork and through pickles; and CUDA in processes that were forked."""
import copy
import gc
import io
import multiprocessing
import os
import pickle
import signal
import sys

import numpy as np
import pytest
from fake_gpus import run

import arete
import arete.multiprocessing as mp

START = ["fork", "spawn", "forkserver"]


def in_child(function):
    """Runs it in a forked process, which must end well."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(100)
        try:
            function()
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


# ---- one tensor


def test_a_fork_shares():
    shared, plain = arete.zeros(4).share_memory_(), arete.zeros(4)
    in_child(lambda: (shared.add_(1), plain.add_(1)))
    assert shared.tolist() == [1] * 4 and plain.tolist() == [0] * 4
    shared.fill_(5)
    seen = arete.zeros(1).share_memory_()
    in_child(lambda: seen.fill_(shared.sum()))
    assert seen.item() == 20


def test_it_moves_in_place():
    x = arete.arange(6.0)
    view, address = x[2:], x.data_ptr()
    assert not x.is_shared() and x.share_memory_() is x
    assert x.is_shared() and view.is_shared() and x.untyped_storage().is_shared() and x[1:].is_shared()
    assert x.tolist() == [0, 1, 2, 3, 4, 5] and view.tolist() == [2, 3, 4, 5]
    assert x.data_ptr() != address and view.data_ptr() == x.data_ptr() + 8
    again = x.data_ptr()
    assert x.share_memory_().data_ptr() == again  # once is enough
    view.fill_(7)
    assert x.tolist() == [0, 1, 7, 7, 7, 7]
    assert not (x + 1).is_shared() and not x.clone().is_shared()


@pytest.mark.parametrize("make", [lambda: arete.zeros(0), lambda: arete.tensor(3.0), lambda: arete.zeros(3, 4).T,
                                  lambda: arete.ones(2, 2)[:, :1],
                                  lambda: arete.tensor([True, False]), lambda: arete.randn(4).to(arete.bfloat16),
                                  lambda: arete.tensor([1 + 2j])])
def test_any_tensor(make):
    x = make()
    before = x.tolist()
    x.share_memory_()
    assert x.is_shared() and x.tolist() == before
    y = through_a_pipe(x)
    assert y.tolist() == before and y.dtype is x.dtype and y.stride() == x.stride()


def test_arrays_that_were_given_out_stay_valid():
    x = arete.arange(1000.0)
    array, capsule = x.numpy(), arete.arange(5.0)
    before = np.from_dlpack(capsule)
    x.share_memory_()
    capsule.share_memory_()
    del x, capsule
    gc.collect()
    arete.zeros(1000).fill_(-1)  # would take the memory over
    assert array.sum() == 499500 and before.sum() == 10
    foreign = np.zeros(3)
    y = arete.from_numpy(foreign).share_memory_()
    y.fill_(4)
    assert foreign.sum() == 0 and y.sum() == 12


def test_training_in_shared_memory():
    net = arete.nn.Linear(3, 2)
    net.register_buffer("seen", arete.zeros(1))
    assert net.share_memory() is net
    assert all(p.is_shared() for p in net.parameters()) and net.seen.is_shared() and isinstance(net.weight, arete.nn.Parameter)

    def step():
        optimizer = arete.optim.SGD(net.parameters(), lr=0.5)
        net(arete.ones(4, 3)).sum().backward()
        optimizer.step()
        net.seen.add_(1)

    before = net.weight.detach().clone()
    in_child(step)
    assert arete.allclose(net.weight, before - 0.5 * 4) and net.seen.item() == 1 and net.weight.grad is None


def test_lazy_parameters_have_nothing_to_share():
    with pytest.raises(RuntimeError, match="uninitialized parameter"):
        arete.nn.LazyLinear(3).share_memory()


def test_meta_is_refused():
    with pytest.raises(RuntimeError, match="only memory of the host and of GPUs is shared"):
        arete.zeros(2, device="meta").share_memory_()


# ---- memory of GPUs: what a process sends stays until nobody uses it. On GPUs that are none, and on real ones.

ON_GPUS = """
import copy, gc, sys, tempfile, warnings
import arete.multiprocessing as mp
from arete.multiprocessing.reductions import rebuild_cuda_tensor, reduce_tensor
warnings.simplefilter("error")

def held():
    gc.collect()
    torch.cuda.ipc_collect()
    return torch.cuda.memory_allocated()
"""
on_gpus = pytest.mark.parametrize("gpus", ["fake"] + ["real"] * arete.cuda.is_available())


def on(gpus, program):
    return run(ON_GPUS + program, gpus=gpus)


@on_gpus
def test_gpu_tensors_are_shared(gpus, tmp_path):
    (tmp_path / "workers.py").write_text(WORKERS)
    on(gpus, f"""
sys.path.insert(0, {str(tmp_path)!r})
import workers

context = mp.get_context("spawn")
there, back = context.SimpleQueue(), context.SimpleQueue()
process = context.Process(target=workers.changes, args=(there, back))
process.start()
before = held()
x = torch.arange(12.0, device="cuda").reshape(3, 4)
view, leaf = x.t()[1:], torch.nn.Parameter(torch.ones(3, device="cuda"))
x.add_(0)  # what was given to the GPU is waited for
there.put((x, view, leaf))
assert back.get() == "changed", "the other process failed"
assert x.is_shared() and x.tolist() == [[7.0, 7, 2, 3]] + [[7.0] + [5.0 + i, 6.0 + i, 7.0 + i] for i in (0, 4)], x
assert view[0].tolist() == x[:, 1].tolist() and leaf.tolist() == [3, 3, 3]
address = x.data_ptr()
there.put(x)  # it stays where it is
assert back.get() == [7.0, 7, 2, 3] and x.data_ptr() == address
# The memory is the other process's as long as it has a tensor.
there.put("keep")
there.put(torch.full((1000,), 4.0, device="cuda"))
assert back.get() == 4000
assert held() - before >= 4000
there.put("forget")
assert back.get() == "forgotten"
del x, view, leaf
assert held() == before, (held(), before)
there.put("keep")
there.put(torch.full((1000,), 4.0, device="cuda"))
assert back.get() == 4000 and held() - before >= 4000
process.kill()  # and with the process it goes
process.join()
assert held() == before
""")


@on_gpus
def test_events_of_two_processes(gpus, tmp_path):
    """A tensor that both have changes hands by events: neither process waits on the host for what the other gives to the GPU."""
    (tmp_path / "workers.py").write_text(WORKERS)
    on(gpus, f"""
sys.path.insert(0, {str(tmp_path)!r})
import workers

context = mp.get_context("spawn")
there, back = context.SimpleQueue(), context.SimpleQueue()
process = context.Process(target=workers.waits, args=(there, back))
process.start()
x = torch.zeros(1 << 20, device="cuda")
event = torch.cuda.Event(interprocess=True)
assert event.query() and event.device is None
handle = event.ipc_handle()
assert isinstance(handle, bytes) and event.device == torch.device("cuda", 0)
there.put((x, handle, event))  # by its handle, and pickled
assert copy.copy(event)._event is event._event, "a copy is of this process"
assert back.get() == "opened", "the other process failed"
a = torch.rand(2048, 2048, device="cuda")
for _ in range(20):
    a = (a @ a).clamp_(0, 1)
x.fill_(3)
event.record()
there.put("recorded")
others = back.get()
assert isinstance(others, torch.cuda.Event) and others.cuda_event and others.device == event.device
others.wait()
assert x.sum().item() == 7 * (1 << 20)
event.synchronize()
there.put("done")
process.join()
assert process.exitcode == 0
for make in (lambda: torch.cuda.Event(enable_timing=True, interprocess=True), lambda: torch.cuda.Event().ipc_handle()):
    try:
        make()
    except ValueError as error:
        assert "interprocess" in str(error)
    else:
        raise AssertionError("an event of several processes has no times, and others have no handle")
for wrong in (b"x", b"x" * 64):
    try:
        torch.cuda.Event.from_ipc_handle("cuda", wrong)
    except (RuntimeError, ValueError):
        pass
    else:
        raise AssertionError("no handle of an event was opened")
try:
    event.elapsed_time(others)
except ValueError as error:
    assert "enable_timing" in str(error)
""")


def test_copies_of_events_are_of_this_process():
    for interprocess in (False, True):
        event = arete.cuda.Event(interprocess=interprocess)
        event.mark = 3
        assert copy.copy(event)._event is event._event and copy.copy(event).mark == 3
        with pytest.raises(TypeError):
            pickle.dumps(event)


def test_events_of_the_cpu_are_of_one_process():
    with pytest.raises(NotImplementedError, match="interprocess"):
        arete.Event("cpu", interprocess=True)


WORKERS = """
import arete as torch

def waits(there, back):
    x, handle, pickled = there.get()
    event = torch.cuda.Event.from_ipc_handle(0, handle)
    assert event.device == torch.device("cuda", 0) and event.cuda_event and pickled.cuda_event and pickled.device == event.device
    back.put("opened")
    assert there.get() == "recorded"
    event.wait()
    pickled.wait(torch.cuda.current_stream())
    x += 4
    own = torch.cuda.Event(interprocess=True)
    own.record()
    back.put(own)
    assert there.get() == "done"

def changes(there, back):
    x, view, leaf = there.get()
    assert x.device.type == "cuda" and type(leaf) is torch.nn.Parameter and leaf.is_leaf and leaf.requires_grad
    assert view.stride() == (1, 4) and view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    x[:, 0] = 7
    view[0, 0] = 7
    leaf.data.add_(2)
    torch.cuda.synchronize()
    del x, view, leaf
    back.put("changed")
    back.put(there.get()[0].tolist())
    kept = []
    while True:
        if there.get() == "keep":
            kept.append(there.get())
            back.put(kept[-1].sum().item())
        else:
            kept.clear()
            back.put("forgotten")
"""


@on_gpus
def test_gpu_tensors_by_ways_of_a_programs_own(gpus):
    on(gpus, """
import pickle
x = torch.arange(6.0, device="cuda")[2:]
before = held()
function, args = pickle.loads(pickle.dumps(reduce_tensor(x)))
assert function is rebuild_cuda_tensor and args[6] == 0 and args[1] == (4,) and args[3] == 2 and len(args) == 15
y = function(*args)  # here, too
assert y.tolist() == [2, 3, 4, 5] and y.data_ptr() == x.data_ptr()
y.fill_(1)
assert x.tolist() == [1] * 4
del x
assert held() > 0 and y.tolist() == [1] * 4
del y
assert held() < before
file = tempfile.NamedTemporaryFile()
file.write(b"some bytes of somebody else")
file.flush()
for wrong in (args[:1] + ((40,),) + args[2:], args[:11] + (b"/proc/1/fd/1234567",) + args[12:],
              args[:11] + (file.name.encode(),) + args[12:], args[:6] + (99,) + args[7:], args[:3] + (-1,) + args[4:]):
    try:
        function(*wrong)
    except (RuntimeError, ValueError, OSError) as e:
        pass
    else:
        raise AssertionError(wrong)
assert open(file.name, "rb").read() == b"some bytes of somebody else"  # is no file of users of memory
""")


@on_gpus
def test_gpu_tensors_move_when_all_streams_are_done(gpus):
    on(gpus, f"""
side, factors = torch.cuda.Stream(), torch.zeros(2, *[{4096 if gpus == "real" else 8}] * 2, device="cuda")
x = torch.zeros(1 << 20, device="cuda")
torch.cuda.synchronize()
with torch.cuda.stream(side):
    for _ in range(100):
        torch.bmm(factors, factors)
    x.fill_(7)
address = x.data_ptr()
x.share_memory_()  # where nothing waits for the other stream
assert x.data_ptr() != address and (x == 7).all()
with torch.cuda.stream(side):  # which knows of the new memory
    x.add_(1)
side.synchronize()
assert (x == 8).all()
""")


@pytest.mark.skipif(not arete.cuda.is_available(), reason="no GPU")
def test_gpu_tensors_move_where_the_cache_is_in_the_way():
    on("real", """
free = torch.cuda.mem_get_info()[0]
x = torch.full((free // 4,), 3, dtype=torch.uint8, device="cuda")
cached = torch.empty(free * 6 // 10, dtype=torch.uint8, device="cuda")
del cached
assert torch.cuda.mem_get_info()[0] < x.nbytes
x.share_memory_()
assert x.is_shared() and x[0] == 3 and x[-1] == 3
assert torch.cuda.mem_get_info()[0] > free // 4  # the cache was given back
""")


@on_gpus
def test_gpu_tensors_that_cannot_be_shared_go_by_value(gpus):
    on(gpus, """
receive, send = mp.Pipe(duplex=False)

def by_value(x, reason):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        send.send(x)
        y = receive.recv()
    assert y.tolist() == x.tolist() and y.device == x.device and y.data_ptr() != x.data_ptr()
    assert [reason in str(w.message) for w in told] == [True], [str(w.message) for w in told]

empty = torch.zeros(0, 2, device="cuda")
send.send(empty)
assert receive.recv().shape == (0, 2)
given = torch.ones(3, device="cuda")
given.__dlpack__()
by_value(given, "other code has")
g = torch.cuda.CUDAGraph()
x = torch.ones(3, device="cuda")
shared = torch.ones(2, device="cuda").share_memory_()
assert shared.is_shared() and not x.is_shared()
with torch.cuda.graph(g):
    y = x + 1
address = x.data_ptr()
by_value(x, "graphs were recorded")
assert x.data_ptr() == address
send.send(shared)  # was moved before
assert receive.recv().data_ptr() == shared.data_ptr()
needs = torch.ones(2, device="cuda", requires_grad=True) * 2
try:
    send.send(needs)
except RuntimeError as e:
    assert "Cowardly refusing to serialize non-leaf tensor" in str(e)
else:
    raise AssertionError("sent")
""")


def test_memory_is_given_back():
    def mapped():
        with open("/proc/self/maps") as f:
            return sum("memfd:arete" in line for line in f), len(os.listdir("/proc/self/fd"))

    gc.collect()
    before = mapped()
    for _ in range(50):
        x = arete.zeros(10000).share_memory_()
        y = through_a_pipe(x)
    assert mapped()[0] <= before[0] + 4
    del x, y
    gc.collect()
    assert mapped() == before


# ---- other processes


def through_a_pipe(x):
    receive, send = multiprocessing.Pipe(duplex=False)
    with receive, send:
        send.send(x)
        return receive.recv()


def test_what_is_received_shares():
    x = arete.arange(6.0).reshape(2, 3)
    y = through_a_pipe(x.T)
    assert x.is_shared() and y.is_shared() and y.shape == (3, 2) and y.stride() == (1, 3)
    y[0, 1] = 70
    assert x[1, 0] == 70
    p = arete.nn.Parameter(arete.ones(2))
    p.note = "mine"
    q = through_a_pipe(p)
    assert type(q) is arete.nn.Parameter and q.requires_grad and q.note == "mine"
    with arete.no_grad():
        q.fill_(3)
    assert p.tolist() == [3, 3]
    leaf = through_a_pipe(arete.ones(2, requires_grad=True))
    assert leaf.requires_grad and leaf.is_leaf
    with pytest.raises(RuntimeError, match="^Cowardly refusing to serialize non-leaf tensor which requires_grad"):
        through_a_pipe(leaf * 2)
    net = arete.nn.Linear(2, 2)
    other = through_a_pipe(net)
    with arete.no_grad():
        other.weight.fill_(9)
    assert net.weight.tolist() == [[9, 9], [9, 9]]


def test_other_pickles_hold_values():
    x = arete.zeros(3)
    y = pickle.loads(pickle.dumps(x))
    y.fill_(1)
    assert x.tolist() == [0, 0, 0] and not x.is_shared() and not y.is_shared()
    shared = arete.ones(3).share_memory_()
    copy = pickle.loads(pickle.dumps(shared))
    copy.fill_(5)
    assert shared.tolist() == [1, 1, 1]
    file = io.BytesIO()
    arete.save(shared, file)
    file.seek(0)
    assert not arete.load(file).is_shared()


def work(index, x, queue):
    x[index] += index + 1
    queue.put((index, arete.full((2,), float(index)), x.is_shared()))
    queue.close()
    queue.join_thread()
    while x[-1] == 0:  # what is in the queue goes with this process
        pass


@pytest.mark.parametrize("method", START)
def test_processes_and_queues(method):
    context = mp.get_context(method)
    x, queue = arete.zeros(3), context.Queue()
    x.share_memory_()
    processes = [context.Process(target=work, args=(i, x, queue)) for i in range(2)]
    for p in processes:
        p.start()
    got = sorted((queue.get(timeout=100) for _ in processes), key=lambda entry: entry[0])
    x[-1] = 1
    for p in processes:
        p.join(100)
    assert [p.exitcode for p in processes] == [0, 0]
    assert x.tolist() == [1, 2, 1] and [(i, t.tolist(), s) for i, t, s in got] == [(0, [0, 0], True), (1, [1, 1], True)]


def double(x):
    return x * 2


def test_a_pool():
    with mp.get_context("fork").Pool(2) as pool:
        assert [t.tolist() for t in pool.map(double, [arete.ones(2), arete.arange(3)])] == [[2, 2], [0, 2, 4]]


def raises(index, x):
    x[index] = 1
    if index == 1:
        raise ValueError("a reason")
    import time

    time.sleep(100)


def exits(index):
    sys.exit(3)


def is_killed(index):
    os.kill(os.getpid(), signal.SIGKILL)


def test_spawn():
    x = arete.zeros(3).share_memory_()
    message = "-- Process 1 terminated with the following error:\n(.|\n)*ValueError: a reason"
    with pytest.raises(mp.ProcessRaisedException, match=message) as caught:
        mp.start_processes(raises, (x,), nprocs=3, start_method="fork")
    assert caught.value.error_index == 1 and x[1] == 1 and pickle.loads(pickle.dumps(caught.value)).error_index == 1
    with pytest.raises(mp.ProcessExitedException, match="process 0 terminated with exit code 3") as caught:
        mp.start_processes(exits, nprocs=1, start_method="fork")
    assert caught.value.exit_code == 3
    with pytest.raises(mp.ProcessExitedException, match="process 0 terminated with signal SIGKILL") as caught:
        mp.start_processes(is_killed, nprocs=1, start_method="fork")
    assert caught.value.signal_name == "SIGKILL"
    context = mp.spawn(double_in_place, (x,), nprocs=1, join=False)
    assert len(context.pids()) == 1
    while not context.join(timeout=100):
        pass
    assert x.tolist() == [2, 2, 2]


def double_in_place(index, x):
    x.fill_(2)


def test_sharing_strategies():
    assert mp.get_sharing_strategy() in mp.get_all_sharing_strategies()
    mp.set_sharing_strategy(mp.get_sharing_strategy())
    with pytest.raises(NotImplementedError, match="ulimit"):
        mp.set_sharing_strategy("file_system")
    with pytest.raises(ValueError):
        mp.set_sharing_strategy("telepathy")


# ---- forks


def test_a_forked_process_computes():
    """Also if its parent has threads that are gone there."""
    before = arete.get_num_threads()
    arete.set_num_threads(2)
    a, image, weight = arete.randn(300, 300), arete.randn(2, 3, 40, 40), arete.randn(4, 3, 3, 3)
    expected = [(a @ a).sum(), arete.nn.functional.conv2d(image, weight).sum(), a.exp().sum(), a.sort()[0][0].sum()]

    def compute():
        got = [(a @ a).sum(), arete.nn.functional.conv2d(image, weight).sum(), a.exp().sum(), a.sort()[0][0].sum()]
        assert all(arete.allclose(x, y, rtol=1e-3) for x, y in zip(expected, got))
        assert arete.get_num_threads() == 1
        arete.set_num_threads(1)
        with pytest.raises(RuntimeError, match="forked from one with threads"):
            arete.set_num_threads(2)

    in_child(compute)
    arete.set_num_threads(before)


FORKED = """
import os, sys
def child(function):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            function()
        except RuntimeError as e:
            print(e)
        except BaseException as e:
            print("another error", repr(e))
        else:
            print("no error")
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""


def test_cuda_after_a_fork_says_so():
    out = run(FORKED + """
child(lambda: torch.zeros(2, device="cuda"))          # not used before: fine
assert not torch.cuda.is_initialized()
x = torch.ones(2, device="cuda")
assert torch.cuda.is_initialized() and not torch.cuda._is_in_bad_fork()
for f in (lambda: torch.zeros(2, device="cuda"), lambda: x + 1, lambda: x.cpu(), lambda: torch.ones(2).cuda(1), torch.cuda.synchronize,
          torch.cuda.current_stream, torch.cuda.get_device_name, torch.cuda.init, lambda: torch.cuda.Stream()):
    child(f)
def fine():
    assert torch.cuda._is_in_bad_fork() and not torch.cuda.is_initialized()
    assert torch.cuda.memory_allocated() == 0 and torch.ones(2).sum() == 2
child(fine)
""").splitlines()
    assert out[0] == "no error" and out[-1] == "no error" and len(out) == 11
    for text in out[1:-1]:
        assert text.startswith("Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the "
                               "'spawn' start method")
        assert "get_context('spawn')" in text and "before the fork" in text


@pytest.mark.skipif(not arete.cuda.is_available(), reason="needs a GPU")
def test_a_real_gpu_after_a_fork():
    x = arete.ones(3, device="cuda")

    def use():
        for f in (lambda: arete.zeros(2, device="cuda"), lambda: x + 1, lambda: x.cpu(), arete.cuda.synchronize):
            with pytest.raises(RuntimeError, match="^Cannot re-initialize CUDA in forked subprocess"):
                f()

    in_child(use)
    assert (x + 1).sum().item() == 6
