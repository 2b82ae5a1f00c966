"""Pinned memory and loading as people write it."""
from idiom_helpers import anywhere, on_a_gpu, pytorch, same, seeds_and_switches, values  # noqa: F401 -- the fixture


def _median(torch, command, **names):
    timer = torch.utils.benchmark.Timer(command, globals=names)
    return timer.adaptive_autorange(min_run_time=0.005, max_run_time=0.2).median


@anywhere
def test_pinned_memory_is_timed(torch, device):
    pageable = torch.ones(1 << 18)
    commands = {"pageable": ("x.to(device)", pageable), "pageable, not blocking": ("x.to(device, non_blocking=True)", pageable)}
    if torch.cuda.is_available():
        pinned = torch.ones(1 << 18, pin_memory=True)
        assert pinned.is_pinned() and not pageable.is_pinned()
        commands |= {"pinned": ("x.to(device)", pinned), "pinned, not blocking": ("x.to(device, non_blocking=True)", pinned),
                     "pinned on the way": ("x.pin_memory().to(device, non_blocking=True)", pageable)}
    medians = {name: _median(torch, command, x=x, device=device) for name, (command, x) in commands.items()}
    assert all(0 < m < 1 for m in medians.values()) and len(medians) == (5 if torch.cuda.is_available() else 2)


@on_a_gpu
def test_pinned_memory_copies_beside_computing(torch, device):
    x = torch.randn(1 << 20)
    pinned = x.pin_memory()
    assert pinned.is_pinned() and pinned.data_ptr() != x.data_ptr() and pinned.pin_memory().data_ptr() == pinned.data_ptr()
    there = pinned.to(device, non_blocking=True)  # what follows on the stream sees it
    result = there * 2
    assert same(values([result]), values([x * 2]))
    back = torch.empty(1 << 20, pin_memory=True)
    back.copy_(result, non_blocking=True)
    torch.cuda.synchronize()  # the host does not see what the stream sees
    assert same(values([back]), values([x * 2]))
    host = result.to("cpu", non_blocking=True)
    torch.cuda.synchronize()
    assert same(values([host]), values([back]))


@anywhere
def test_pinned_memory_lists_of_tensors(torch, device):
    tensors = [torch.full((100,), float(i)) for i in range(50)]

    def one_by_one(*tensors):
        return [t.to(device) for t in tensors]

    def together(*tensors):
        result = [t.to(device, non_blocking=True) for t in tensors]
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return result

    assert same(values(one_by_one(*tensors)), values(together(*tensors)))
    for function in (one_by_one, together):
        assert _median(torch, "copy(*tensors)", copy=function, tensors=tensors) > 0


@anywhere
def test_pinned_memory_from_a_loader(torch, device):
    data = torch.utils.data.TensorDataset(torch.arange(100).float(), torch.arange(100) % 7)
    # PyTorch's workers are forked processes, for which this one has too many threads.
    workers = {} if torch is pytorch else {"num_workers": 2, "prefetch_factor": 2, "persistent_workers": True}
    loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True, drop_last=False,
                                         pin_memory=torch.cuda.is_available(), **workers)
    seen = []
    for x, label in loader:
        assert x.is_pinned() == label.is_pinned() == torch.cuda.is_available()
        x, label = x.to(device, non_blocking=True), label.to(device, non_blocking=True)
        assert x.device.type == device and (x.long() % 7 == label).all()
        seen += x.tolist()
    assert sorted(seen) == list(range(100)) and seen != sorted(seen) and len(loader) == 7


@anywhere
def test_pinned_memory_of_a_batch_of_its_own_type(torch, device):
    class Batch:
        def __init__(self, items):
            self.x = torch.stack([item[0] for item in items])

        def pin_memory(self):
            self.x = self.x.pin_memory()
            return self

    data = torch.utils.data.TensorDataset(torch.ones(6, 3))
    use = torch.cuda.is_available()
    for batch in torch.utils.data.DataLoader(data, batch_size=2, collate_fn=Batch, pin_memory=use):
        assert isinstance(batch, Batch) and batch.x.is_pinned() == use
        assert batch.x.to(device, non_blocking=True).sum().item() == 6
