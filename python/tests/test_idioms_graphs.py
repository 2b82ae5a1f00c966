"""CUDA graphs as people write them."""
import copy
import itertools

import pytest
from idiom_helpers import on_a_gpu, same, seeds_and_switches, the_data, the_net, values  # noqa: F401 -- the fixture


def _warmed_up(torch, function, times=3):
    """Graphs want what is done once to be done: on a side stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(times):
            function()
    torch.cuda.current_stream().wait_stream(side)


@on_a_gpu
def test_graphs_of_some_calls(torch, device):
    place = torch.empty((5,), device=device).fill_(1.0)
    _warmed_up(torch, lambda: place * 2 + 1)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        assert torch.cuda.is_current_stream_capturing()
        result = place * 2 + 1
    for value in (3.0, 4.0):
        place.copy_(torch.full((5,), value, device=device))
        g.replay()
        assert result.tolist() == [2 * value + 1] * 5


@on_a_gpu
def test_graphs_of_a_whole_step(torch, device):
    batches = the_data(torch, device, batches=10)

    def start():
        torch.manual_seed(5)
        net = the_net(torch, device)
        return net, torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)

    def step(net, optimizer, x, y):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    net, optimizer = start()
    x, y = (t.clone() for t in batches[0])
    _warmed_up(torch, lambda: step(net, optimizer, x, y))
    g = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)  # so that backward() makes gradients from the graph's own memory
    with torch.cuda.graph(g):
        loss = step(net, optimizer, x, y)
    losses = []
    for data, target in batches[1:]:
        x.copy_(data)
        y.copy_(target)
        g.replay()
        losses.append(loss.item())
    twin, its = start()
    expected = [step(twin, its, *batches[0]) for _ in range(3)]
    expected = [step(twin, its, *batch).item() for batch in batches[1:]]
    assert losses == pytest.approx(expected, rel=1e-3)
    assert same(values(net.parameters()), values(twin.parameters()), 1e-3)


@on_a_gpu
def test_graphs_of_parts(torch, device):
    nn = torch.nn
    first, positive, negative = (m.to(device) for m in (nn.Linear(8, 8), nn.Linear(8, 1), nn.Linear(8, 1)))
    parts = [first, positive, negative]
    plain_parts = [copy.deepcopy(m) for m in parts]
    x, h = torch.randn(32, 8, device=device), torch.randn(32, 8, device=device, requires_grad=True)
    graphed = [torch.cuda.make_graphed_callables(m, (sample,)) for m, sample in zip(parts, (x, h, h))]

    def step(parts, data):
        hidden = parts[0](data)
        out = parts[1](hidden) if hidden.sum().item() > 0 else parts[2](hidden)  # decided by data: no graph can
        out.sum().backward()
        return out.detach().clone()

    optimizer = torch.optim.SGD(itertools.chain(*(m.parameters() for m in parts)), lr=0.1)
    for data in (x, -x, torch.randn(32, 8, device=device)):
        optimizer.zero_grad(set_to_none=True)
        for m in plain_parts:
            m.zero_grad()
        assert same(values([step(graphed, data)]), values([step(plain_parts, data)]), 1e-4)
        for ours, theirs in zip(parts, plain_parts):
            for p, q in zip(ours.parameters(), theirs.parameters()):
                assert q.grad is None or same(values([p.grad]), values([q.grad]), 1e-4)


@on_a_gpu
def test_graphs_with_a_scaler(torch, device):
    net, batches = the_net(torch, device), the_data(torch, device, batches=8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler(device, init_scale=128.0)
    x, y = (t.clone() for t in batches[0])

    def backward():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=torch.float16, cache_enabled=False):
            loss = torch.nn.functional.mse_loss(net(x), y)
        scaler.scale(loss).backward()
        return loss

    _warmed_up(torch, backward)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        loss = backward()
    losses = []
    for data, target in batches * 8:
        x.copy_(data)
        y.copy_(target)
        g.replay()
        scaler.step(optimizer)  # outside: it may have to leave the step out
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0] and scaler.get_scale() == 128


@on_a_gpu
def test_graphs_with_several_streams(torch, device):
    x, side = torch.ones(1000, device=device), torch.cuda.Stream()
    _warmed_up(torch, lambda: (x + 1) * (x + 2))
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        a = x + 1
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            b = x + 2
        torch.cuda.current_stream().wait_stream(side)
        c = a * b
    x.fill_(2.0)
    g.replay()
    assert c.sum().item() == 12_000


@on_a_gpu
def test_graphs_that_share_memory(torch, device):
    x = torch.ones(1 << 16, device=device)
    _warmed_up(torch, lambda: (x + 1).exp())
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        a = x + 1
    with torch.cuda.graph(second, pool=first.pool()):
        b = a * 3
    x.fill_(4.0)
    first.replay()  # in the order of their captures
    second.replay()
    assert a[0].item() == 5 and b[-1].item() == 15
