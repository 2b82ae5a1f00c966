"""Memory formats: what memory_format= makes, and which functions keep channels-last order, as PyTorch does."""
from __future__ import annotations

import pickle

import pytest
from peer import peer

import arete

torch = peer()
FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
LIKE = ("empty_like", "zeros_like", "ones_like", "rand_like", "randn_like")
CONVERSIONS = ("float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool", "cfloat", "cdouble")


def numbers(lib, *sizes, seed=0):
    """The same values for both libraries."""
    g = torch.Generator().manual_seed(seed)
    values = torch.randn(sizes, generator=g)
    return values if lib is torch else arete.from_numpy(values.numpy())


def last(lib, *sizes, seed=0):
    order = lib.channels_last if len(sizes) == 4 else lib.channels_last_3d
    return numbers(lib, *sizes, seed=seed).to(memory_format=order)


def compare(program, close=1e-5):
    """A program gives both libraries' tensors the same values and strides."""
    mine, theirs = program(arete), program(torch)
    mine, theirs = ((r,) if not isinstance(r, tuple) else r for r in (mine, theirs))
    for a, b in zip(mine, theirs, strict=True):
        assert tuple(a.shape) == tuple(b.shape)
        steps = [tuple(s for n, s in zip(t.shape, t.stride()) if n != 1) for t in (a, b)]  # others mean nothing
        assert steps[0] == steps[1]
        assert abs(a.detach().double().contiguous().numpy() - b.detach().double().numpy()).max(initial=0) <= close


def outcome(program, lib, asked=True):
    """Strides, or the text of the error. Those of sizes of 1 mean nothing, unless an order is asked for."""
    try:
        t = program(lib)
        return t.stride() if asked else tuple(s for n, s in zip(t.shape, t.stride()) if n != 1 and t.numel())
    except (RuntimeError, ValueError) as error:
        return str(error).split(" format")[0]


@pytest.mark.parametrize("order", FORMATS)
@pytest.mark.parametrize("sizes", [(2, 3), (2, 3, 4), (2, 3, 4, 5), (2, 3, 4, 5, 6), (2, 1, 4, 5), (2, 3, 1, 1), (0, 3, 4, 5)])
def test_formats(order, sizes):
    def check(program):
        asked = order.startswith("channels")
        assert outcome(program, arete, asked) == outcome(program, torch, asked)

    rank = len(sizes)
    sources = [lambda lib: lib.zeros(sizes), lambda lib: lib.zeros(sizes[1], sizes[0], *sizes[2:]).transpose(0, 1)]
    if rank in (4, 5):
        sources.append(lambda lib: lib.zeros(sizes).to(memory_format=lib.channels_last if rank == 4 else lib.channels_last_3d))
    if order != "preserve_format":
        check(lambda lib: lib.empty(sizes, memory_format=getattr(lib, order)))
        check(lambda lib: lib.empty(*sizes, memory_format=getattr(lib, order)))
    for source in sources:
        for name in LIKE:
            check(lambda lib: getattr(lib, name)(source(lib), memory_format=getattr(lib, order)))
        check(lambda lib: lib.full_like(source(lib), 3, memory_format=getattr(lib, order)))
        check(lambda lib: lib.randint_like(source(lib), 3, memory_format=getattr(lib, order)))
        check(lambda lib: source(lib).clone(memory_format=getattr(lib, order)))
        check(lambda lib: lib.clone(source(lib), memory_format=getattr(lib, order)))
        for name in ("half", "double", "long"):
            check(lambda lib: getattr(source(lib), name)(memory_format=getattr(lib, order)))
        check(lambda lib: source(lib).to(lib.float64, memory_format=getattr(lib, order)))
        if order.startswith("channels"):
            check(lambda lib: source(lib).to(memory_format=getattr(lib, order)))
            check(lambda lib: source(lib).float(memory_format=getattr(lib, order)))
            check(lambda lib: source(lib).cpu(memory_format=getattr(lib, order)))
            check(lambda lib: source(lib).contiguous(memory_format=getattr(lib, order)))
        for lib_order in FORMATS:
            a, b = (source(lib).is_contiguous(memory_format=getattr(lib, lib_order)) for lib in (arete, torch))
            assert a == b


def test_values_in_a_format():
    x = arete.arange(120).reshape(2, 3, 4, 5).float()
    for name in CONVERSIONS:
        assert getattr(x, name)(memory_format=arete.channels_last).stride() == (60, 1, 15, 3), name
    assert x.half(memory_format=arete.channels_last).tolist() == x.tolist()
    assert x.to("cpu", arete.float64, memory_format=arete.channels_last).tolist() == x.tolist()
    y = x.to(memory_format=arete.channels_last)
    assert arete.ones_like(y, memory_format=arete.contiguous_format).view(-1).sum() == 120
    assert arete.full_like(y, 2, dtype=arete.int64, memory_format=arete.contiguous_format).view(-1).tolist() == [2] * 120
    assert y.to(memory_format=arete.contiguous_format).view(-1).tolist() == list(range(120))
    assert y.half(memory_format=arete.contiguous_format).view(-1).tolist() == list(range(120))
    assert x.clone().resize_(2, 3, 2, 2, memory_format=arete.channels_last).stride() == (12, 1, 6, 3)
    assert arete.ones(2, 3, 4, 5).resize_as_(y, memory_format=arete.preserve_format).stride() == y.stride()
    arete.manual_seed(3)
    drawn = arete.rand_like(y)
    arete.manual_seed(3)
    assert arete.equal(arete.rand_like(y.contiguous(), memory_format=arete.channels_last), drawn)
    leaf = arete.empty(1, 2, 3, 3, memory_format=arete.channels_last, requires_grad=True)
    assert leaf.requires_grad and leaf.is_leaf and leaf.is_contiguous(memory_format=arete.channels_last)


def test_refusals():
    x = arete.zeros(2, 3, 4, 5)
    with pytest.raises(RuntimeError, match="unsupported memory format Preserve"):
        arete.empty(2, 3, memory_format=arete.preserve_format)
    with pytest.raises(RuntimeError, match="'memory_format' argument is incompatible with 'out' tensor argument"):
        arete.empty(2, 3, 4, 5, memory_format=arete.channels_last, out=x)
    for function in (arete.zeros, arete.ones, arete.rand):
        with pytest.raises(TypeError, match="unexpected keyword argument 'memory_format'"):
            function(2, 3, 4, 5, memory_format=arete.channels_last)
    for call in (lambda f: x.clone(memory_format=f), lambda f: arete.empty_like(x, memory_format=f), lambda f: x.to(memory_format=f),
                 lambda f: x.half(memory_format=f), lambda f: x.is_contiguous(memory_format=f)):
        with pytest.raises(TypeError, match="argument 'memory_format' must be arete.memory_format, not str"):
            call("channels_last")


OPERANDS = {
    "broadcast, dense": lambda lib: (lib.ones(1, 3, 1, 5).expand(2, 3, 4, 5).transpose(1, 3), lib.ones(2, 5, 4, 3)),
    "dense, broadcast": lambda lib: (lib.ones(2, 5, 4, 3), lib.ones(1, 3, 1, 5).expand(2, 3, 4, 5).transpose(1, 3)),
    "both decide": lambda lib: (lib.ones(2, 3, 1).permute(2, 1, 0).expand(4, 3, 2), lib.ones(4, 3, 2)),
    "smaller, dense": lambda lib: (lib.ones(5, 4).t().unsqueeze(1), lib.ones(2, 4, 3, 5)),
    "smaller, smaller": lambda lib: (lib.ones(5, 3).t(), lib.ones(2, 1, 5)),
    "vector, turned": lambda lib: (lib.ones(3), lib.ones(3, 4).t()),
    "two turned": lambda lib: (lib.ones(3, 4, 5).permute(2, 0, 1), lib.ones(4, 5, 3).permute(1, 2, 0)),
    "overlapping": lambda lib: (lib.arange(9.0).as_strided((3, 4), (1, 1)), lib.ones(())),
    "channels": lambda lib: (lib.ones(2, 3, 4, 5).to(memory_format=lib.channels_last), lib.ones(3, 1, 1)),
    "channels behind": lambda lib: (lib.ones(3, 1, 1), lib.ones(2, 3, 4, 5).to(memory_format=lib.channels_last)),
    "of one channel": lambda lib: (lib.ones(2, 1, 4, 5).to(memory_format=lib.channels_last), lib.ones(2, 3, 4, 5)),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_operands_decide_the_order_of_results_together(name):
    for f in (lambda lib, x, y: x + y, lambda lib, x, y: x > y, lambda lib, x, y: lib.where(x > 0, x, y),
              lambda lib, x, y: lib.addcmul(y, x, y) if y.dim() == x.dim() else x * y):
        assert f(arete, *OPERANDS[name](arete)).stride() == f(torch, *OPERANDS[name](torch)).stride()


FOUR, FIVE = (2, 4, 6, 8), (2, 4, 6, 4, 5)
KEEPS = {
    **{f"cat {d}": lambda lib, F, x, d=d: lib.cat([x, x + 1, x], d) for d in range(4)},
    "cat of both orders": lambda lib, F, x: lib.cat([x, x.contiguous()], 1),
    **{f"flip {d}": lambda lib, F, x, d=d: x.flip(d) for d in range(4)},
    "flip two": lambda lib, F, x: x.flip(2, 3),
    "rows": lambda lib, F, x: x[lib.tensor([1, 0, 1])],
    "index_select": lambda lib, F, x: x.index_select(2, lib.tensor([1, 0, 1])),
    "columns": lambda lib, F, x: x[:, lib.tensor([1, 0, 1])],
    "slice then pool": lambda lib, F, x: F.max_pool2d(x[:, :2], 2),
    "nearest": lambda lib, F, x: F.interpolate(x, scale_factor=2),
    "nearest-exact": lambda lib, F, x: F.interpolate(x, size=(5, 11), mode="nearest-exact"),
    "bilinear": lambda lib, F, x: F.interpolate(x, size=(9, 5), mode="bilinear"),
    "bilinear corners": lambda lib, F, x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
    "bicubic": lambda lib, F, x: F.interpolate(x, size=(9, 5), mode="bicubic"),
    "antialias": lambda lib, F, x: F.interpolate(x, size=(3, 3), mode="bilinear", antialias=True),
    "area": lambda lib, F, x: F.interpolate(x, size=(4, 3), mode="area"),
    "pad": lambda lib, F, x: F.pad(x, (1, 2, 0, 1), value=3.0),
    "pad one": lambda lib, F, x: F.pad(x, (1, 2)),
    "pad channels": lambda lib, F, x: F.pad(x, (0, 0, 0, 0, 1, 1)),
    "crop": lambda lib, F, x: F.pad(x, (-1, 2, -1, 0)),
    "reflect": lambda lib, F, x: F.pad(x, (1, 2, 3, 1), mode="reflect"),
    "replicate": lambda lib, F, x: F.pad(x, (1, 2, 3, 1), mode="replicate"),
    "adaptive_avg": lambda lib, F, x: F.adaptive_avg_pool2d(x, (4, 3)),
    "adaptive_avg even": lambda lib, F, x: F.adaptive_avg_pool2d(x, (3, 4)),
    "adaptive_max": lambda lib, F, x: F.adaptive_max_pool2d(x, (4, 3), return_indices=True),
    "adaptive_max even": lambda lib, F, x: F.adaptive_max_pool2d(x, (3, 4)),
    "avg_pool": lambda lib, F, x: F.avg_pool2d(x, 3, 2, 1),
    "max_pool": lambda lib, F, x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
    "max_unpool": lambda lib, F, x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
    **{f"sort {d}": lambda lib, F, x, d=d: lib.sort(x, d, descending=d == 2) for d in range(4)},
    "sort with gaps": lambda lib, F, x: lib.sort(x[:, :2], 1),
    "sort a transpose": lambda lib, F, x: lib.sort(x.transpose(1, 2), 0),
    "msort": lambda lib, F, x: lib.msort(x),
    **{f"kthvalue {d}": lambda lib, F, x, d=d: lib.kthvalue(x, 2, d, keepdim=True) for d in range(4)},
    **{f"index_fill {d}": lambda lib, F, x, d=d: x.index_fill(d, lib.tensor([1, 0]), 3.0) for d in range(4)},
    "index_fill of a tensor": lambda lib, F, x: x.index_fill(2, lib.tensor([1]), lib.tensor(3.0)),
    "index_put": lambda lib, F, x: x.index_put((lib.tensor([1, 1]),), lib.tensor(3.0), accumulate=True),
    "put": lambda lib, F, x: x.put(lib.tensor([1, 70]), lib.tensor([3.0, 4.0])),
    **{f"glu {d}": lambda lib, F, x, d=d: F.glu(x, d) for d in range(4)},
    "pixel_shuffle": lambda lib, F, x: F.pixel_shuffle(lib.cat([x, x + 1], 1), 2),
    "pixel_unshuffle": lambda lib, F, x: F.pixel_unshuffle(x, 2),
    "channel_shuffle": lambda lib, F, x: F.channel_shuffle(x, 2),
    "channels apart": lambda lib, F, x: x[:, ::2] * 2,
    "columns apart": lambda lib, F, x: x[..., ::2].sigmoid(),
    "both orders with gaps": lambda lib, F, x: x[:, :2] * x.contiguous()[:, 1:3],
    "both with gaps, rows first": lambda lib, F, x: x.contiguous()[:, 1:3] * x[:, :2],
}
KEEPS_3D = {
    "cat": lambda lib, F, x: lib.cat([x, x], 1),
    "flip": lambda lib, F, x: x.flip(2, 4),
    "nearest": lambda lib, F, x: F.interpolate(x, scale_factor=2),
    "trilinear": lambda lib, F, x: F.interpolate(x, size=(5, 6, 7), mode="trilinear"),
    "pad": lambda lib, F, x: F.pad(x, (1, 1, 1, 1, 1, 1)),
    "reflect": lambda lib, F, x: F.pad(x, (1, 2, 1, 1, 2, 2), mode="reflect"),
    "replicate": lambda lib, F, x: F.pad(x, (1, 2, 1, 1, 2, 2), mode="replicate"),
    "max_pool": lambda lib, F, x: F.max_pool3d(x, 2),
    "max_unpool": lambda lib, F, x: F.max_unpool3d(*F.max_pool3d(x, 2, return_indices=True), 2, output_size=x.shape),
    "sort": lambda lib, F, x: lib.sort(x, 1),
    "index_fill": lambda lib, F, x: x.index_fill(3, lib.tensor([1]), 3.0),
    "glu": lambda lib, F, x: F.glu(x, 1),
    "channel_shuffle": lambda lib, F, x: F.channel_shuffle(x, 2),
    "gaps": lambda lib, F, x: x[:, :, ::2] + 1,
}


@pytest.mark.parametrize("name", KEEPS)
@pytest.mark.parametrize("order", ["contiguous", "channels_last"])
def test_results_keep_the_order(name, order):
    make = last if order == "channels_last" else numbers
    compare(lambda lib: KEEPS[name](lib, lib.nn.functional, make(lib, *FOUR)))


@pytest.mark.parametrize("name", KEEPS_3D)
@pytest.mark.parametrize("order", ["contiguous", "channels_last"])
def test_results_keep_the_order_in_3d(name, order):
    make = last if order == "channels_last" else numbers
    compare(lambda lib: KEEPS_3D[name](lib, lib.nn.functional, make(lib, *FIVE)))


@pytest.mark.parametrize("name", [n for n in KEEPS if n not in ("cat of both orders",)])
def test_their_gradients(name):
    def gradient(lib):
        x = last(lib, *FOUR).requires_grad_()
        y = KEEPS[name](lib, lib.nn.functional, x)
        y = y[0] if isinstance(y, tuple) else y
        (y * y).sum().backward()
        return x.grad.contiguous()

    compare(gradient, close=1e-4)


CONVOLUTIONS = {
    "3 x 3": (4, 5, 3, {}),
    "1 x 1": (4, 5, 1, {}),
    "stride, no bias": (4, 6, 3, {"stride": 2, "padding": 1, "bias": False}),
    "groups": (4, 6, 3, {"groups": 2}),
    "depthwise": (4, 4, 3, {"groups": 4, "padding": 1}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("x_last", [False, True])
@pytest.mark.parametrize("w_last", [False, True])
@pytest.mark.parametrize("loss", ["sum", "weighted"])
def test_convolutions(name, x_last, w_last, loss):
    inputs, outputs, kernel, options = CONVOLUTIONS[name]

    def program(lib):
        conv = lib.nn.Conv2d(inputs, outputs, kernel, **options)
        with lib.no_grad():
            for i, p in enumerate(conv.parameters()):
                p.copy_(numbers(lib, *p.shape, seed=i))
        if w_last:
            conv = conv.to(memory_format=lib.channels_last)
        x = (last if x_last else numbers)(lib, 2, inputs, 7, 6, seed=9).requires_grad_()
        y = conv(x)
        (y.sum() if loss == "sum" else (y * y).sum()).backward()
        # A contiguous input with channels-last weights: PyTorch copies the input's gradient into its order.
        gradient = x.grad if x_last == w_last or x_last else x.grad.contiguous()
        return y, conv.weight, conv.weight.grad, gradient

    compare(program, close=1e-3)


@pytest.mark.parametrize("x_last", [False, True])
@pytest.mark.parametrize("w_last", [False, True])
def test_transposed_and_3d_convolutions(x_last, w_last):
    def transposed(lib):
        x, w = numbers(lib, 2, 4, 5, 6), numbers(lib, 4, 3, 3, 3, seed=1)
        x = x.to(memory_format=lib.channels_last) if x_last else x
        w = w.to(memory_format=lib.channels_last) if w_last else w
        return lib.nn.functional.conv_transpose2d(x, w, stride=2)

    def spatial(lib):
        x, w = numbers(lib, 2, 4, 5, 6, 4), numbers(lib, 3, 4, 3, 3, 3, seed=1)
        x = x.to(memory_format=lib.channels_last_3d) if x_last else x
        w = w.to(memory_format=lib.channels_last_3d) if w_last else w
        return lib.nn.functional.conv3d(x, w)

    compare(transposed, close=1e-4)
    compare(spatial, close=1e-4)


def test_a_network_stays_channels_last():
    nn = arete.nn
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Upsample(scale_factor=2),
                        nn.ReflectionPad2d(1), nn.Conv2d(8, 8, 1), nn.AdaptiveAvgPool2d((3, 5))).to(
                            memory_format=arete.channels_last)
    x = arete.randn(2, 3, 8, 8)
    for layer in net:
        x = layer(x)
        assert x.is_contiguous(memory_format=arete.channels_last) and not x.is_contiguous(), layer
    x.sum().backward()
    assert net[0].weight.grad.stride() == net[0].weight.stride()


@pytest.mark.parametrize("tensor, stride", [
    (arete.arange(24.0).view(2, 3, 4).permute(2, 0, 1), (1, 12, 4)), (arete.zeros(2, 3, 4, 5).to(memory_format=arete.channels_last), None),
    (arete.arange(6.0).view(2, 3)[:, ::2], (2, 1)), (arete.tensor(3.0), ())])
def test_pickles_keep_the_order_of_memory(tensor, stride):
    again = pickle.loads(pickle.dumps(tensor))
    assert arete.equal(again, tensor) and again.stride() == (tensor.stride() if stride is None else stride)


SPARSE_SOURCES = {
    "every second": lambda lib: lib.zeros(10, 8).t()[::2, ::2],
    "three": lambda lib: lib.zeros(4, 6, 8)[:, ::2, ::2].permute(2, 0, 1),
    "broadcast": lambda lib: lib.zeros(3, 1, 4).permute(2, 1, 0).expand(4, 5, 3),
    "broadcast first": lambda lib: lib.zeros(3, 4).t().expand(2, 4, 3),
    "size of 1": lambda lib: lib.zeros(4, 1, 6)[::2].permute(2, 1, 0),
    "channels last": lambda lib: lib.zeros(2, 3, 4, 10).to(memory_format=lib.channels_last)[..., ::2],
}


@pytest.mark.parametrize("source", SPARSE_SOURCES.values(), ids=SPARSE_SOURCES)
def test_results_keep_the_order_of_what_has_gaps(source):
    for program in (lambda lib, x: x.clone(), lambda lib, x: x + 1, lambda lib, x: x.exp(), lambda lib, x: x == x,
                    lambda lib, x: x.double(), lambda lib, x: lib.zeros_like(x), lambda lib, x: lib.rand_like(x),
                    lambda lib, x: lib.where(x > 0, x, 0.0),
                    lambda lib, x: x * lib.ones(x.shape[-1]), lambda lib, x: lib.ones(()) - x):
        ours, theirs = (outcome(lambda lib: program(lib, source(lib)), lib, False) for lib in (arete, torch))
        assert ours == theirs
