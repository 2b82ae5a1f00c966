"""Tensors and layers spread over processes: one process' results."""
import itertools

import fake_gpus
import pytest
from peer import peer
from test_distributed import needs_gloo
from test_sharding import run

import arete
import arete.distributed as dist
from arete import nn


@needs_gloo
def test_tensors_are_placed_and_gathered(tmp_path):
    run(tmp_path, 4, """
import copy, io, itertools, pickle
from arete.distributed.fsdp import fully_shard
from arete.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from arete.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, ones, rand
from arete.distributed.tensor.experimental import implicit_replication
mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
x = arange(35).reshape(5, 7)
places = list(itertools.product((Replicate(), Shard(0), Shard(1)), repeat=2))
for one in places:
    t = distribute_tensor(x + rank, mesh, one)
    assert t.placements == one and arete.equal(t.full_tensor(), x), one  # rank 0's values
    for other in places:
        u = t.redistribute(placements=other)
        assert u.placements == other and arete.equal(u.full_tensor(), x) and u.shape == x.shape, (one, other)
        assert arete.equal(u.to_local(), distribute_tensor(x, mesh, other).to_local())
terms = DTensor.from_local(x * (rank + 1), mesh, [Partial(), Partial("max")])
assert arete.equal(terms.full_tensor(), x * 6) and arete.equal(terms.redistribute(placements=[Shard(0), Shard(1)]).full_tensor(), x * 6)
assert arete.equal(terms.clone().mul_(2).full_tensor(), x * 12)
raises(NotImplementedError, "redistribute()d first", lambda: terms.add_(1))
line = dist.init_device_mesh("cpu", (4,))
part = DTensor.from_local(arange(3) + rank, line, [Shard(0)])
assert tuple(part.shape) == (12,) and part.full_tensor().tolist() == [float(r + i) for r in range(4) for i in range(3)]
assert ones(6, device_mesh=line, placements=[Shard(0)]).full_tensor().sum() == 6
# What is whole where others are in parts has the gradient of all of them.
for one, two in (((Shard(0), Shard(0)), (Replicate(), Replicate())), ((Shard(0), Replicate()), (Replicate(), Replicate())),
                 ((Shard(0), Shard(1)), (Replicate(), Shard(0)))):
    row = (arange(7) + 1).requires_grad_()
    factor = distribute_tensor(row, mesh, two).to_local().clone().detach().requires_grad_()
    y = distribute_tensor(x, mesh, one) * DTensor.from_local(factor, mesh, two, shape=row.shape)
    (y.full_tensor() * x.sin()).sum().backward()
    (x * row * x.sin()).sum().backward()
    assert arete.allclose(factor.grad, distribute_tensor(row.grad, mesh, two).to_local()), (one, two)
# Parts of parts: rows of what tensor parallelism has left.
net = nn.Sequential(nn.Linear(2, 8, bias=False))
with arete.no_grad():
    net[0].weight.copy_(arange(16).reshape(8, 2))
parallelize_module(net, mesh["b"], {"0": ColwiseParallel()})
fully_shard(net, mesh=mesh["a"])
w, rows = net.state_dict()["0.weight"], arange(16).reshape(8, 2)
for same_place in (w, w.clone(), w.cpu(), copy.deepcopy(w), w.double(), w.detach()):
    assert arete.equal(same_place.full_tensor().float(), rows)
late = distribute_tensor(rows, line, [Shard(0)]).requires_grad_()
(late * 2).sum().full_tensor().backward()
for one in (late, late.detach()):
    again, same_again = copy.deepcopy([one, one])
    assert again is same_again and again.requires_grad == one.requires_grad and again.placements == (Shard(0),)
    assert arete.equal(again.full_tensor(), rows) and (again.grad is None) == (one.grad is None)
again = copy.deepcopy(late)
assert again.grad is not late.grad and arete.equal(again.grad.full_tensor(), arete.full((8, 2), 2.0))
raises(RuntimeError, "graph leaves", lambda: copy.deepcopy(late * 2))
assert arete.equal((w * 2 + w).full_tensor(), 3 * rows)
assert arete.equal((w * 2).redistribute(placements=[Replicate()] * 2).to_local(), 2 * rows)
net(arange(2)).square().sum().backward()
assert arete.equal((net[0].weight.grad.clone() / 2).full_tensor(), net[0].weight.grad.full_tensor() / 2)
raises(NotImplementedError, "take full_tensor()", lambda: w.reshape(16))
raises(NotImplementedError, "take full_tensor()", lambda: w.transpose(0, 1))
arete.manual_seed(rank)
r = rand(5, device_mesh=line, placements=[Shard(0)]).full_tensor()
every = [None] * 4
dist.all_gather_object(every, r.tolist())
assert every[0] == every[3]
part.mul_(2)
assert part.to_local().tolist() == [2 * (rank + i) for i in range(3)]
assert abs(nn.utils.get_total_norm([part]) - part.full_tensor().norm()) < 1e-5
# What is drawn is what one process draws, whatever seeds there were before; equal parts of the results are equal everywhere.
F, whole = nn.functional, part.full_tensor()
two = distribute_tensor(x.sin(), mesh, [Shard(1), Replicate()])
for of, f in ((part, lambda t: F.dropout(t, 0.3)), (part, lambda t: arete.bernoulli(t / 20)), (two, arete.rand_like),
              (two, arete.randn_like),
              (two, lambda t: arete.randint_like(t, 9)), (two, lambda t: F.alpha_dropout(t, 0.5, True)),
              (two, lambda t: t.clone().normal_(1.0, 2.0)), (two, lambda t: t.clone().exponential_()),
              (two, lambda t: arete.normal(t, 1.0)),
              (two, lambda t: F.dropout1d(t, 0.4, True))):
    f(of)  # the mesh's generators agree now
    state = arete.get_rng_state()
    drawn = f(of)
    assert isinstance(drawn, DTensor) and (drawn.placements == of.placements or of is two), drawn
    arete.set_rng_state(state)
    assert arete.equal(drawn.full_tensor(), f(of.full_tensor()))
grows = part.clone().requires_grad_()
F.dropout(grows, 0.5).sum().backward()
assert set(grows.grad.full_tensor().tolist()) <= {0.0, 2.0}
# Writing in place, by element, of whole tensors, and to results of functions.
written, plain = part.clone() - 3, whole - 3
for write in ("t.relu_()", "t[0] = 7", "t[3:5] += 1", "t.add_(t, alpha=2)", "arete.cumsum(t, 0, out=t)", "t.masked_fill_(t > 9, 1)",
              "t -= 1", "t **= 2", "t.index_fill_(0, arete.tensor([1, 11]), -5.0)", "t.clamp_(-4, 30)",
              "arete.exp(t / 30, out=t)", "t.cumsum_(0)"):
    for t in (written, plain):
        exec(write, {"t": t, "arete": arete})
    assert written.placements == (Shard(0),) and arete.allclose(written.full_tensor(), plain, atol=1e-5), write
raises(ValueError, "is not written", lambda: arete.sum(part, 0, out=part))
raises(ValueError, "spread over processes", lambda: part.add_(arange(12)))
late = (leaf := (arange(3) + rank).requires_grad_()) * 1
late_part = DTensor.from_local(late, line, [Shard(0)])
late_part.mul_(2)
late_part.relu_().sum().backward()
assert leaf.grad.tolist() == [0.0 if rank == 0 and i == 0 else 2.0 for i in range(3)]
# Hooks and gradients of results, pickles and copies.
seen, leaf = [], distribute_tensor(x, mesh, [Shard(0), Replicate()]).requires_grad_()
y = leaf * 3
y.retain_grad()
y.register_hook(lambda g: seen.append(g))
y.register_hook(lambda g: g * 2)
(y @ distribute_tensor(x.T, mesh, [Replicate(), Shard(1)])).sum().backward()
assert not y.is_leaf and isinstance(seen[0], DTensor) and y.grad.placements == y.placements
assert arete.allclose(y.grad.full_tensor(), 2 * x.sum(0).expand(5, 7)) and arete.allclose(leaf.grad.full_tensor(), 3 * y.grad.full_tensor())
def load_again(t):
    file = io.BytesIO()
    arete.save({"t": t}, file)
    file.seek(0)
    return arete.load(file, weights_only=True)["t"]
for one in (leaf, leaf.detach(), terms):
    for again in (pickle.loads(pickle.dumps(one)), load_again(one)):
        assert type(again) is DTensor and again.placements == one.placements and again.device_mesh == mesh
        assert again.requires_grad == one.requires_grad and arete.equal(again.full_tensor(), one.full_tensor())
raises(RuntimeError, "without history", lambda: pickle.dumps(y))
raises(NotImplementedError, "is not pickled", lambda: pickle.dumps(w))
both = parallelize_module(nn.Sequential(nn.Linear(2, 8)), line, {"0": ColwiseParallel()})
for copied in (copy.deepcopy(both[0].weight), pickle.loads(pickle.dumps(both[0].weight))):
    assert isinstance(copied, nn.Parameter) and copied.placements == (Shard(0),) and copied.requires_grad
    assert arete.equal(copied.full_tensor(), both[0].weight.full_tensor())
    assert copied.to_local().data_ptr() != both[0].weight.to_local().data_ptr()
raises(NotImplementedError, "is not copied", lambda: copy.deepcopy(net[0].weight))
# Sizes, strides and gradients of parts that are given.
turned = DTensor.from_local(arange(6).reshape(2, 3).T, line, [Shard(1)])
assert turned.stride() == (1, 3) and turned.stride(1) == 3
assert DTensor.from_local(arange(6).reshape(3, 2), line, [Shard(1)]).stride() == (8, 1)
assert DTensor.from_local(arange(4), line, [Shard(0)], shape=(16,), stride=(1,)).shape == (16,)
raises(ValueError, "has strides", lambda: DTensor.from_local(arange(4), line, [Shard(0)], shape=(16,), stride=(2,)))
grows = arange(8).requires_grad_()
made = DTensor.from_local(grows, line, [Replicate()])
assert not made.is_leaf
(made * distribute_tensor(arange(8), line, [Shard(0)])).sum().backward()
assert grows.grad.tolist() == list(range(8))  # of all parts
raises(NotImplementedError, "comes summed up", lambda: DTensor.from_local(grows, line, [Replicate()], grad_placements=[Partial()]))
# Other dtypes on the way, and messages that nobody waits for here.
grows = distribute_tensor(arange(8) / 3, line, [Shard(0)]).requires_grad_()
low = grows.redistribute(placements=[Replicate()], forward_dtype=arete.bfloat16, async_op=True)
assert low.dtype == arete.bfloat16 and arete.equal(low.to_local(), (arange(8) / 3).bfloat16())
(low.float() / 3).sum().backward()
assert grows.grad.dtype == arete.float32 and grows.grad.placements == (Shard(0),)
low = grows.redistribute(placements=[Replicate()], backward_dtype=arete.bfloat16) * (arange(8) / 3)
grows.grad = None
low.sum().backward()
assert arete.equal(grows.grad.full_tensor(), (arange(8) / 3).bfloat16().float())
# Plain tensors that require gradients, where the program says that all processes have them.
scale = arete.ones(1, requires_grad=True)
with implicit_replication():
    (part * scale).sum().backward()
assert scale.grad.item() == part.full_tensor().sum().item()
# Functions that compute on parts: heads of features.
heads, width = arange(2 * 3 * 8).reshape(2, 3, 8).sin(), arange(2).cos()
def whole_and_parts(f, dim=2):
    a, b = heads.clone().requires_grad_(), heads.chunk(4, dim)[rank].clone().requires_grad_()
    y, z = f(a), f(DTensor.from_local(b, line, [Shard(dim)]))
    assert isinstance(z, DTensor) and z.shape == y.shape and arete.equal(z.full_tensor(), y), (z, y)
    y.backward(y.detach())
    z.to_local().backward(z.to_local().detach())
    assert (b.grad - a.grad.chunk(4, dim)[rank]).abs().max() < 1e-6
    return z.placements
split = lambda x: x.view(2, 3, 4, 2)
assert whole_and_parts(split) == (Shard(2),)
assert whole_and_parts(lambda x: split(x).transpose(1, 2) * width + 1) == (Shard(1),)
assert whole_and_parts(lambda x: (2 - split(x)).transpose(1, -2).exp().transpose(1, 2).reshape(2, 3, -1)) == (Shard(2),)
assert whole_and_parts(lambda x: arete.view_as_real(arete.view_as_complex(split(x)) * arete.polar(width[:1], width[:1]))) == (Shard(2),)
def attend(x):
    q = split(x).transpose(1, 2)
    return nn.functional.scaled_dot_product_attention(q, q * 2, q + 1, is_causal=True).transpose(1, 2).contiguous().view(2, 3, -1)
assert whole_and_parts(attend) == (Shard(2),)
spread = DTensor.from_local(arete.ones(4, 1), line, [Shard(1)])
assert (spread + arange(4) + DTensor.from_local(arange(4).reshape(1, 4), line, [Shard(0)])).full_tensor().tolist() == [
    [1.0 + 2 * i for i in range(4)]] * 4
raises(NotImplementedError, "has no gradient", lambda: spread * arete.ones(1, requires_grad=True))
assert spread.view(8, 2).placements == (Replicate(),) and spread.view(8, 2).shape == (8, 2)
raises(ValueError, "same length as `device_mesh.ndim`", lambda: distribute_tensor(x, mesh, [Shard(0)]))
for op, factor in (("sum", 2), ("avg", 1), ("max", 1)):
    terms = distribute_tensor(x + rank, mesh, [Partial(op), Shard(1)])
    assert terms.placements[0] == Partial(op) and arete.equal(terms.to_local() * factor, x.tensor_split(2, 1)[mesh.get_local_rank(1)])
    assert arete.equal(terms.full_tensor(), x)
raises(ValueError, "not known", lambda: distribute_tensor(x, mesh, [Partial("product"), Replicate()]))
from arete.distributed.checkpoint.state_dict import set_model_state_dict
loaded = nn.Linear(2, 2)
assert str(set_model_state_dict(loaded, loaded.state_dict())) == "<All keys matched successfully>"
import warnings
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    plan = {"no.such": dist.tensor.parallel.ColwiseParallel(), "0": dist.tensor.parallel.ColwiseParallel()}
    styled = dist.tensor.parallel.parallelize_module(nn.Sequential(nn.Linear(4, 4)), line, plan)
assert any("no module of the name 'no.such'" in str(w.message) for w in said) and styled[0].weight.placements == (Shard(0),)
raises(ValueError, "has sizes", lambda: DTensor.from_local(arange(3), line, [Shard(0)], shape=(13,)))
raises(IndexError, "dimensions", lambda: distribute_tensor(x, mesh, [Shard(2), Replicate()]))
""")


@needs_gloo
def test_functions_of_spread_tensors_are_those_of_whole_ones(tmp_path):
    """Whatever lies where: results, gradients, and where results lie, of products and reductions; anything else is computed whole."""
    run(tmp_path, 4, """
import itertools
from arete.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
F = nn.functional
mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
line = mesh["b"]
def close(a, b):
    return a.shape == b.shape and (a.numel() == 0 or (a.double() - b.double()).abs().max() < 1e-5 * max(1, b.double().abs().max()))
def check(f, wholes, places, on=mesh):
    xs = [w.clone().requires_grad_() for w in wholes]
    y = f(*xs)
    parts = [distribute_tensor(w, on, p).to_local().clone().requires_grad_() for w, p in zip(wholes, places)]
    z = f(*[DTensor.from_local(t, on, p, shape=w.shape) for t, p, w in zip(parts, places, wholes)])
    assert isinstance(z, DTensor) and tuple(z.shape) == tuple(y.shape), (z.shape, y.shape)
    whole = z.full_tensor()
    assert close(whole, y), (places, whole, y)
    weight = arete.arange(y.numel(), dtype=arete.float32).reshape(y.shape).cos()
    (y * weight).sum().backward()
    (whole * weight).sum().backward()
    for x, t, p, w in zip(xs, parts, places, wholes):
        g = x.grad if x.grad is not None else arete.zeros_like(x)
        assert close(t.grad if t.grad is not None else arete.zeros_like(t), distribute_tensor(g, on, p).to_local()), (places, w.shape)
    return z.placements
def values(*sizes):
    return arange(int(arete.tensor(sizes).prod())).reshape(*sizes).sin()
either = lambda n: [Replicate()] + [Shard(d) for d in range(n)]
both = lambda n: list(itertools.product(either(n), repeat=2))
for p, q in itertools.product(both(2), both(2)):
    check(lambda a, b: a @ b, [values(4, 6), values(6, 5)], [p, q])
for sizes in (((3, 4, 6), (6, 5)), ((3, 4, 6), (3, 6, 5)), ((1, 4, 6), (3, 6, 2)), ((6,), (6, 5)), ((4, 6), (6,)), ((6,), (6,)),
              ((2, 3, 4, 6), (3, 6, 2))):
    for p, q in itertools.product(either(len(sizes[0])), either(len(sizes[1]))):
        check(arete.matmul, [values(*s) for s in sizes], [[p], [q]], line)
assert check(arete.mm, [values(4, 6), values(6, 5)], [[Shard(0)], [Replicate()]], line) == (Shard(0),)
assert check(arete.mm, [values(4, 6), values(6, 5)], [[Replicate()], [Shard(1)]], line) == (Shard(1),)
assert check(arete.mm, [values(4, 6), values(6, 5)], [[Shard(1)], [Replicate()]], line) == (Partial(),)
# A factor of terms is added up; what is linear keeps terms.
def term(w, on, n, op="sum"):
    return DTensor.from_local(w / (n if op == "sum" else 1) + (on.get_local_rank() - (n - 1) / 2), on, [Partial(op)])
for p in either(2):
    one, two = distribute_tensor(values(4, 6), line, [p]).requires_grad_(), values(4, 6).requires_grad_()
    for f in (lambda a, b: a @ b.mT, lambda a, b: b @ a.mT, lambda a, b: a.mT @ b, lambda a, b: F.linear(a, b),
              lambda a, b: F.linear(b, a)):
        y, z = f(one, term(values(4, 6) + 1, line, 2)), f(two, values(4, 6) + 1)
        assert close(y.full_tensor(), z)
        got, = arete.autograd.grad((y * y).sum(), one)
        assert close(got.full_tensor(), arete.autograd.grad((z * z).sum(), two)[0])
for op in ("sum", "avg"):
    given = term(values(4, 6), line, 2, op)
    for f in (lambda a: -a, lambda a: 2 * a, lambda a: a / 3, lambda a: a + a, lambda a: a.sub(a, alpha=3), lambda a: a.T,
              lambda a: a.square(), lambda a: a + 1, lambda a: 1 - a, lambda a: 1 / (a + 3), lambda a: a * a,
              lambda a: a.sum(1), lambda a: a.mean(0),
              lambda a: a.int(), lambda a: a * (a > 0)):
        assert close(f(given).full_tensor(), f(values(4, 6))), op
    assert [f(given).placements for f in (lambda a: -a, lambda a: 2 * a, lambda a: a + a, lambda a: a.T)] == [(Partial(op),)] * 4
    assert (given + 1).placements == (Replicate(),) and given.sum().placements == (Partial() if op == "sum" else Replicate(),)
x = distribute_tensor(values(4, 6), line, [Shard(0)]).requires_grad_()
assert x.mean().placements == (Partial("avg"),) and x.mean().item() == x.to_local().mean().item()
assert distribute_tensor(values(5, 6), line, [Shard(0)]).mean().placements == (Partial(),)
for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
    for reduction in ("mean", "sum", "none"):
        check(lambda a, b: getattr(F, name)(a, b, reduction=reduction), [values(4, 6), values(4, 6) * 2], [[Shard(0)], [Replicate()]], line)
for p, q, r in itertools.product(either(3), either(2), either(1)):
    check(F.linear, [values(2, 3, 6), values(5, 6), values(5)], [[p], [q], [r]], line)
    check(lambda x, a, b: arete.addmm(x, a, b, beta=0.5, alpha=2), [values(5), values(4, 6), values(6, 5)],
          [[r], [p if p != Shard(2) else Shard(1)], [q]], line)
for p in both(3):
    for dim in (None, 0, 1, 2, (0, 2), -1):
        for f in (lambda x: x.sum() if dim is None else x.sum(dim), lambda x: x.mean() if dim is None else x.mean(dim, keepdim=True)):
            check(f, [values(4, 3, 5)], [p])
        if dim is not None:
            check(lambda x: x.amax(dim, keepdim=True), [values(4, 3, 5)], [p])
            with arete.no_grad():
                t = distribute_tensor(values(4, 3, 5), mesh, p)
                assert close(t.amin(dim).full_tensor(), values(4, 3, 5).amin(dim))
    for f in (lambda x: x.softmax(1), lambda x: arete.log_softmax(x, -1), lambda x: F.layer_norm(x, (5,)), lambda x: x.var(0),
              lambda x: x[1:3, 0], lambda x: x.mT, lambda x: x.permute(2, 1, 0), lambda x: arete.cat([x, x * 2], 1), lambda x: x.cumsum(0),
              lambda x: x.permute(2, 0, 1), lambda x: x.unsqueeze(1), lambda x: arete.where(x > 0, x, -x), lambda x: x.clamp(-0.5, 0.5),
              lambda x: x.norm(), lambda x: x.max(), lambda x: arete.stack([x, x]), lambda x: arete.einsum("abc,abd->acd", x, x),
              lambda x: x.sort(1)[0], lambda x: x.std(),
              lambda x: (x.sum(0) + x.mean(0)) * x, lambda x: F.gelu(x) / (1 + x.exp())):
        check(f, [values(4, 3, 5)], [p])
for p, q, r in itertools.product(either(2), either(1), either(1)):
    check(lambda x, w, b: F.layer_norm(x, (6,), w, b), [values(4, 6), values(6), values(6) + 1], [[p], [q], [r]], line)
assert check(lambda x: F.rms_norm(x, (6,)), [values(4, 6)], [[Shard(0)]], line) == (Shard(0),)
x = distribute_tensor(values(4, 6), mesh, [Shard(0), Shard(1)])
assert abs(float(x.sum().full_tensor()) - float(values(4, 6).sum())) < 1e-5 and x.tolist() == values(4, 6).tolist() and bool((x == x).all())
assert x.argmax().item() == values(4, 6).argmax().item() and len(x.unbind(0)) == 4 and (x > 0).placements == x.placements
if rank == 0:
    assert f"{x}" == repr(x) and "Shard(dim=1)" in repr(x)
assert f"{x.sum().redistribute():.1f}" == f"{values(4, 6).sum():.1f}"
if rank == 0:  # a number is of what a process has, as in PyTorch: one may print alone
    assert x.sum().item() == float(x.sum()) == x.to_local().sum().item() and f"{x.sum():.1f}" == f"{x.to_local().sum():.1f}"
assert isinstance(x.data, DTensor) and x.T.placements == (Shard(1), Shard(0)) and tuple(x.T.shape) == (6, 4)
raises(RuntimeError, "", lambda: x @ x)
alias = x
alias += 1
alias *= 2
assert alias is x and x.tolist() == ((values(4, 6) + 1) * 2).tolist()
x.copy_(distribute_tensor(values(4, 6), mesh, [Replicate()] * 2))
raises(NotImplementedError, "no such operator on tensors that are spread over processes", lambda: x.record_stream(None))
half = distribute_tensor(arete.full((600, 30), 200.0).half(), line, [Shard(0)])
assert half.mean().item() == 200 and half.mean(0).dtype == arete.float16
raises(RuntimeError, "", lambda: half.int().mean())
nothing = arete.addmm(distribute_tensor(arete.full((4, 4), float("nan")), mesh, [Replicate()] * 2), x, x.T, beta=0)
assert close(nothing.full_tensor(), values(4, 6) @ values(4, 6).T)
assert close(arete.mm(x, mat2=x.T).full_tensor(), nothing.full_tensor()) and x.sum(axis=0).full_tensor().shape == (6,)
assert len(arete.where(x > 0)) == 2
raises(ValueError, "different meshes", lambda: x @ distribute_tensor(values(6, 2), line, [Replicate()]))
raises(NotImplementedError, "has no gradient", lambda: x @ values(6, 2).requires_grad_())
""")


@needs_gloo
def test_layers_that_are_spread_train_as_one_process(tmp_path):
    run(tmp_path, 4, f"""
folder = "{tmp_path}/checkpoint"
""" + """
import arete.distributed.checkpoint as dcp
from arete.distributed.tensor import Replicate, Shard
from arete.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, PrepareModuleOutput, RowwiseParallel, SequenceParallel,
                                               loss_parallel, parallelize_module)
mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
dp, tp = mesh["dp"], mesh["tp"]
class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(11, 8), nn.LayerNorm(8)
        self.up, self.down, self.head = nn.Linear(8, 6), nn.Linear(6, 8), nn.Linear(8, 11)
    def forward(self, tokens):
        x = self.embed(tokens)
        x = x + self.down(nn.functional.gelu(self.up(self.norm(x))))
        return self.head(x)
whole_in = {"input_layouts": Replicate()}
plans = (
    {"embed": RowwiseParallel(**whole_in), "up": ColwiseParallel(), "down": RowwiseParallel(),
     "h*": ColwiseParallel(output_layouts=Replicate())},
    # The sequence is spread between layers.
    {"embed": RowwiseParallel(**whole_in, output_layouts=Shard(1)), "norm": SequenceParallel(),
     "up": ColwiseParallel(input_layouts=Shard(1)), "down": RowwiseParallel(output_layouts=Shard(1)),
     "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())},
    {"embed": ColwiseParallel(output_layouts=Replicate()), "up": ColwiseParallel(output_layouts=Replicate()),
     "norm": PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1)),
     "head": RowwiseParallel(**whole_in)},
)
def close(net, other, tol=2e-5):
    a, b = whole(net), whole(other)
    wrong = [(k, (a[k] - b[k]).abs().max()) for k in a if not (a[k] - b[k]).abs().max() < tol]
    assert a.keys() == b.keys() and not wrong, wrong
sgd = lambda net: arete.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
def trained(net, ranks):
    return train(net, 3, losses=lambda s: [loss(net, r, s) / len(ranks) for r in ranks], optimizer=sgd(net), clip=0.5)
alone, both = trained(filled(Small()), [0]), trained(filled(Small()), [0, 1])
for number, plan in enumerate(plans):
    def spread():
        net = parallelize_module(filled(Small()), tp, plan)
        if number == 2:  # a layer in the middle whose inputs and results are placed otherwise
            parallelize_module(net.norm, tp, SequenceParallel())
            parallelize_module(net.norm, tp, PrepareModuleOutput(output_layouts=Shard(1), desired_output_layouts=Replicate()))
        return net
    net = spread()
    assert net.embed.weight.to_local().numel() < net.embed.weight.numel() == 88
    close(trained(net, [0]), alone)
    # With data parallelism, and parameters spread over it.
    net = spread()
    for m in (net.up, net.down, net):
        fully_shard(m, mesh=dp)
    close(trained(net, [dp.get_local_rank()]), both)
    assert net.up.weight.placements == (Shard(0), Shard(0)) and net.up.weight.device_mesh == mesh
    dcp.save(net.state_dict(), checkpoint_id=folder)
    other = Small()
    state = other.state_dict()
    dcp.load(state, checkpoint_id=folder)
    close(net, other, 1e-9)
    again = spread()
    dcp.load(again.state_dict(), checkpoint_id=folder)
    close(again, other, 1e-9)
raises(ValueError, "mesh of one dimension", lambda: parallelize_module(Small(), mesh, ColwiseParallel()))
from arete.distributed.tensor.parallel.style import _move
assert _move(arete.ones(2, 3), tp, Replicate(), Shard(1)).shape[1] == 2 - tp.get_local_rank()
raises(ValueError, "size 3 of dimension 1 is not divisible by the 2 processes",
       lambda: _move(arete.ones(2, 3, 2), tp, Replicate(), Shard(1)))
raises(NotImplementedError, "only support nn.Linear", lambda: parallelize_module(nn.LayerNorm(2), tp, ColwiseParallel()))
raises(NotImplementedError, "", lambda: arete.distributed.tensor.zeros(2, device_mesh=tp, layout=arete.sparse_coo))
# Modules that say how their results are placed.
plan = {"embed": RowwiseParallel(**whole_in, output_layouts=Shard(1), use_local_output=False),
        "norm": SequenceParallel(use_local_output=False), "up": ColwiseParallel(use_local_output=False),
        "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
        "head": ColwiseParallel(use_local_output=False)}
class Line(Small):
    def forward(self, tokens):
        x = self.embed(tokens)
        assert isinstance(x, DTensor) and x.placements == (Shard(1),) and tuple(x.shape) == (*tokens.shape, 8)
        x = self.up(self.norm(x))
        assert x.placements == (Shard(2),) and x.shape[2] == 6
        return self.head(self.down(nn.functional.gelu(x.to_local()) if isinstance(x, DTensor) else x))
class Plain(Small):
    def forward(self, tokens):
        return self.head(self.down(nn.functional.gelu(self.up(self.norm(self.embed(tokens))))))
from arete.distributed.tensor import DTensor
tokens_ = tokens(0, 0)
net, one = parallelize_module(filled(Line()), tp, plan), filled(Plain())
weight = arange(11) * 0.1 + 0.5
for options in ({}, {"weight": weight}, {"reduction": "sum"}, {"ignore_index": 3, "weight": weight}, {"reduction": "none"}):
    for reshape in (lambda x: x.flatten(0, 1), lambda x: x.float().view(-1, x.shape[-1]), lambda x: x.reshape(-1, 11)):
        results = []
        for m in (net, one):
            m.zero_grad()
            with loss_parallel():
                l = nn.functional.cross_entropy(reshape(m(tokens_)), tokens(0, 1).flatten(), **options)
                l.mean().backward()
            results.append(l.full_tensor() if isinstance(l, DTensor) else l)
        assert (results[0] - results[1]).abs().max() < 1e-5 and results[0].shape == results[1].shape, (options, results)
        grads = {n: p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad for n, p in net.named_parameters()}
        assert all((grads[n] - p.grad).abs().max() < 1e-5 for n, p in one.named_parameters()), options
logits = net(tokens_)
assert logits.placements == (Shard(2),) and logits.to_local().shape[2] == (6, 5)[tp.get_local_rank()]
assert (logits.full_tensor() - one(tokens_)).abs().max() < 1e-5
net.zero_grad()
logits.redistribute(placements=[Replicate()]).to_local().square().sum().backward()
one.zero_grad()
one(tokens_).square().sum().backward()
assert (net.head.weight.grad.full_tensor() - one.head.weight.grad).abs().max() < 1e-4
# Classes before other dimensions, logits far from zero, half types.
x, t = (arange(2 * 5 * 3) * 0.9).sin().reshape(2, 5, 3) * 40, arete.tensor([[0, 4, 2], [1, 2, 3]])
for dtype, tol in ((arete.float32, 1e-5), (arete.float64, 1e-12), (arete.bfloat16, 0.3)):
    y = x.to(dtype).clone().requires_grad_()
    nn.functional.cross_entropy(y, t).backward()
    n, at = (3, 0) if tp.get_local_rank() == 0 else (2, 3)
    part = x.to(dtype)[:, at:at + n].clone().requires_grad_()
    with loss_parallel():
        l = nn.CrossEntropyLoss()(DTensor.from_local(part, tp, [Shard(1)], shape=(2, 5, 3)), t)
    l.backward()
    assert l.dtype == dtype and abs(l.full_tensor() - nn.functional.cross_entropy(x.to(dtype), t)) <= tol
    assert (part.grad - y.grad[:, at:at + n]).abs().max() <= tol
spread = DTensor.from_local(arete.ones(2, 3), tp, [Shard(1)])
ones = arete.zeros(2, dtype=arete.int64)
assert abs(nn.functional.cross_entropy(spread, ones, label_smoothing=0.1).item()
           - nn.functional.cross_entropy(spread.full_tensor(), ones, label_smoothing=0.1).item()) < 1e-6
import warnings
with loss_parallel():
    raises(NotImplementedError, "label_smoothing", lambda: nn.functional.cross_entropy(spread, ones, label_smoothing=0.1))
    for old in ({"size_average": False}, {"reduce": False}, {"size_average": True}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that these will go
            assert (nn.functional.cross_entropy(spread, ones, **old).full_tensor()
                    - nn.functional.cross_entropy(spread.full_tensor(), ones, **old)).abs().max() < 1e-6
    rows = DTensor.from_local(arete.ones(1, 3), tp, [Shard(0)])
    raises(ValueError, "along their classes", lambda: nn.functional.cross_entropy(rows, ones))
    raises(IndexError, "Target 7 is out of bounds", lambda: nn.functional.cross_entropy(spread, ones + 7))
    raises(ValueError, "do not fit", lambda: nn.functional.cross_entropy(spread, ones[:1]))
""")


@needs_gloo
def test_sequences_that_are_spread_have_one_process_attention(tmp_path):
    run(tmp_path, 4, """
from arete.distributed.tensor.experimental import context_parallel
from arete.distributed.tensor.experimental._attention import _cp_options, context_parallel_unshard, set_rotate_method
F = nn.functional
mesh = dist.init_device_mesh("cpu", (4,))
arete.manual_seed(0)
def made(heads, length=16, features=6):
    return arete.randn(2, heads, length, features)
for kv_heads, causal, balanced, dtype in ((4, True, True, arete.float32), (4, False, True, arete.float64), (4, True, False, arete.float32),
                                          (2, True, True, arete.float32), (4, False, False, arete.float32),
                                          (8, True, True, arete.bfloat16)):
    _cp_options.enable_load_balance = balanced
    q, k, v, g = (x.to(dtype) for x in (made(8 if kv_heads == 8 else 4), made(kv_heads), made(kv_heads), made(8 if kv_heads == 8 else 4)))
    options = dict(is_causal=causal, enable_gqa=kv_heads == 2, scale=0.3)
    whole = [x.clone().requires_grad_() for x in (q, k, v)]
    wanted = F.scaled_dot_product_attention(*whole, **options)
    wanted.backward(g)
    tol = {arete.float32: 2e-6, arete.float64: 1e-14, arete.bfloat16: 0.05}[dtype]
    for method in ("allgather", "alltoall", "heads"):
        if method == "heads" and kv_heads == 2:
            continue
        set_rotate_method(method)
        parts, slope = [x.clone().requires_grad_() for x in (q, k, v)], g.clone()
        with context_parallel(mesh, buffers=[*parts, slope], buffer_seq_dims=[2] * 4):
            assert parts[0].shape[2] == 4 and parts[0].requires_grad and parts[0].is_leaf
            y = F.scaled_dot_product_attention(*parts, **options)
            assert y.shape == parts[0].shape and y.dtype == dtype
            y.backward(slope)
            full, *grads = context_parallel_unshard(mesh, [y, *(p.grad for p in parts)], [2] * 4)
            for p in parts:
                p.grad = None
        assert parts[0].shape == q.shape and arete.equal(parts[1], k)
        for a, b in zip((full, *grads), (wanted, *(w.grad for w in whole))):
            assert (a - b).abs().max() <= tol * max(1, b.abs().max().item()), (method, causal, balanced, dtype, (a - b).abs().max())
_cp_options.enable_load_balance = True
# A network: positions and targets are parts, too, and gradients of all parts together are those of one process.
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.attention, self.head = nn.Embedding(11, 8), nn.MultiheadAttention(8, 4, batch_first=True), nn.Linear(8, 11)
        self.register_buffer("positions", (arange(16 * 8) * 0.3).cos().reshape(16, 8))
    def forward(self, tokens):
        x = self.embed(tokens) + self.positions
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.head(x + self.attention(x, x, x, need_weights=False, attn_mask=mask, is_causal=True)[0])
tokens, targets = (arete.arange(32) * 5 % 11).reshape(2, 16), (arete.arange(32) * 7 % 11).reshape(2, 16)
one, net = filled(Net()), filled(Net())
F.cross_entropy(one(tokens).flatten(0, 1), targets.flatten()).backward()
for method in ("allgather", "alltoall", "heads"):
    set_rotate_method(method)
    net.zero_grad()
    inputs, labels = tokens.clone(), targets.clone()
    with context_parallel(mesh, buffers=[inputs, labels, net.positions], buffer_seq_dims=[1, 1, 0], no_restore_buffers={inputs}):
        F.cross_entropy(net(inputs).flatten(0, 1), labels.flatten()).backward()
    assert net.positions.shape[0] == 16 and inputs.shape[1] == 4 and labels.shape[1] == 16
    for p, q in zip(net.parameters(), one.parameters()):
        dist.all_reduce(p.grad, dist.ReduceOp.AVG)
        assert (p.grad - q.grad).abs().max() < 1e-6
# One process has all of it.
alone = dist.DeviceMesh.from_group([dist.new_group([r]) for r in range(4)][rank], "cpu")
set_rotate_method("alltoall")
q = made(2).requires_grad_()
F.scaled_dot_product_attention(q, q, q, is_causal=True).square().sum().backward()
wanted, q.grad = q.grad, None
with context_parallel(alone):
    F.scaled_dot_product_attention(q, q, q, is_causal=True).square().sum().backward()
assert arete.allclose(q.grad, wanted)
x = arete.ones(1, 4, 4, 2)
set_rotate_method("heads")
with context_parallel(mesh):
    raises(NotImplementedError, "attn_mask and dropout_p", lambda: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5))
    raises(NotImplementedError, "of one sequence", lambda: F.scaled_dot_product_attention(x, x[:, :, :2], x[:, :, :2]))
    raises(ValueError, "not divided among 4", lambda: F.scaled_dot_product_attention(x[:, :2], x[:, :2], x[:, :2]))
raises(NotImplementedError, "Unknown rotate method", lambda: set_rotate_method("x"))
raises(ValueError, "not divisible by 8", lambda: context_parallel(mesh, buffers=[x], buffer_seq_dims=[2]).__enter__())
""")


def test_layers_that_draw_or_are_recurrent():
    """What draws nothing is done; recurrent layers, which would compute with this process' part alone, say so."""
    dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = dist.init_device_mesh("cpu", (1,))
        x = dist.tensor.distribute_tensor(arete.randn(2, 3, 4), mesh, [dist.tensor.Shard(0)])
        F = nn.functional
        for f in (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout):
            for settings in ((0.5, False), (0.0, True)):
                assert f(x, *settings).full_tensor().equal(x.full_tensor())
            assert isinstance(f(x.unsqueeze(0) if f is F.dropout3d else x, 0.5, True), dist.tensor.DTensor)
        assert isinstance(F.alpha_dropout(x, 0.5), dist.tensor.DTensor)  # not in training, unless it is told
        with arete.no_grad():
            y = nn.TransformerEncoderLayer(4, 2, 8).eval()(x)
            assert isinstance(y, dist.tensor.DTensor) and y.shape == x.shape
            for kind in (nn.LSTM, nn.GRU, nn.RNN):
                with pytest.raises(NotImplementedError, match=f"{kind.__name__}: .*spread over processes"):
                    kind(4, 5, 2, dropout=0.5)(x)
            for kind in (nn.LSTMCell, nn.GRUCell, nn.RNNCell):
                with pytest.raises(NotImplementedError, match=f"{kind.__name__}: .*spread over processes"):
                    kind(4, 5)(dist.tensor.distribute_tensor(arete.randn(3, 4), mesh))
    finally:
        dist.destroy_process_group()


@needs_gloo
def test_parameters_made_of_spread_tensors(tmp_path):
    """Beside rank_programs.own_parameters, which PyTorch runs, too: what it refuses, or leaves as it was."""
    run(tmp_path, 2, """
from arete.distributed.fsdp import fully_shard
from arete.distributed.tensor import Replicate, Shard, distribute_module, distribute_tensor
mesh = dist.init_device_mesh("cpu", (2,))
full = arange(8).reshape(4, 2)
def make(*places):
    return nn.Parameter(distribute_tensor(full, mesh, places or [Shard(0)]))
p = make()
p.data = distribute_tensor(full * 2, mesh, [Shard(1)])
assert p.placements == (Shard(1),) and p.is_leaf and arete.equal(p.detach().full_tensor(), full * 2)
p.square().sum().backward()
assert p.grad.placements == (Shard(1),) and arete.equal(p.grad.full_tensor(), full * 4)
raises(RuntimeError, "not of a plain tensor", lambda: setattr(p, "data", full))
p = make()
p.grad = distribute_tensor(full, mesh, [Shard(1)])
assert p.grad.placements == (Shard(0),) and arete.equal(p.grad.full_tensor(), full)
for place in (Shard(0), Replicate()):
    layer = nn.Linear(2, 4, bias=False)
    layer.weight = make(place)
    y = layer(full)  # a plain tensor is the same in all processes
    assert arete.equal(y.full_tensor(), full @ full.T)
    y.sum().backward()
    assert arete.equal(layer.weight.grad.full_tensor(), full.sum(0).expand(4, 2)), layer.weight.grad
    layer.double()
    assert layer.weight.dtype == arete.float64 and layer.weight.placements == (place,) and layer.weight.sum().full_tensor() == full.sum()
    layer.load_state_dict({"weight": full.double() * 3})
    assert layer.weight.sum().full_tensor() == full.sum() * 3 and layer.weight.placements == (place,)
layer = nn.Linear(2, 4, bias=False)
layer.weight = make()
raises(NotImplementedError, "weight was made of a DTensor that is in parts", lambda: fully_shard(layer, mesh=mesh))
sharded = fully_shard(nn.Linear(2, 4), mesh=mesh)
raises(ValueError, "placed as", lambda: setattr(sharded.weight, "data", distribute_tensor(full, mesh, [Replicate()])))
raises(NotImplementedError, "is_grads_batched", lambda: arete.autograd.grad(p.sum(), p, full, is_grads_batched=True))
p = make()
raises(RuntimeError, "scalar outputs", lambda: (p * 2)[:2].backward())
meshes = []
distribute_module(nn.Sequential(nn.Linear(2, 2)), None, lambda name, module, mesh: meshes.append(mesh),
                  lambda *a: meshes.append(a[2]) or a[1], lambda *a: meshes.append(a[2]) or a[1])(full)
assert len(meshes) == 4 and all(m is meshes[0] for m in meshes)
distribute_module(nn.ReLU(), None, None, lambda module, inputs, mesh: meshes.append(mesh))(full)
assert meshes[-1].size() == 2
""")


def test_a_module_is_distributed_over_a_mesh_of_its_own_device():
    fake_gpus.run("""
import arete
import arete.distributed as dist
from arete import nn
dist.init_process_group("fake", rank=0, world_size=1)
meshes = []
with arete.device("cuda"):
    net = nn.Sequential(nn.Linear(2, 2))
dist.tensor.distribute_module(net, None, lambda name, module, mesh: meshes.append(mesh))
assert [m.device_type for m in meshes] == ["cuda", "cuda"], meshes
assert all(p.device_mesh is meshes[0] for p in net.parameters())
""")


@needs_gloo
def test_operators_on_lists(tmp_path):
    """What torch has no rule for, too: of tensors that lie otherwise than each other, parts without elements, half types, parameters."""
    run(tmp_path, 3, """
from arete.distributed.fsdp import fully_shard
from arete.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
line = dist.init_device_mesh("cpu", (3,))
plain = [arange(12).reshape(4, 3).sin(), arange(7).cos(), arange(6).reshape(2, 3) - 3]
others = [x * 2 + 1 for x in plain]
def spread(values, *places):
    return [distribute_tensor(x, line, [p]) for x, p in zip(values, places)]
a, b = spread(plain, Shard(0), Shard(0), Shard(1)), spread(others, Shard(1), Replicate(), Shard(0))
def same(results, wanted):
    assert len(results) == len(wanted)
    for y, x in zip(results, wanted):
        assert isinstance(y, DTensor) and y.shape == x.shape and y.dtype == x.dtype
        assert arete.allclose(y.full_tensor(), x, rtol=1e-6), (y, x)
for name, *more in (("add",), ("maximum",), ("div",), ("lerp", 0.3), ("lerp", [0.1, 0.2, 0.3])):
    f = getattr(arete, "_foreach_" + name)
    same(f(a, b, *more), f(plain, others, *more))
same(arete._foreach_pow(arete._foreach_abs(a), b), arete._foreach_pow([x.abs() for x in plain], others))
same(arete._foreach_pow(2.0, a), arete._foreach_pow(2.0, plain))
same(arete._foreach_mul(a, distribute_tensor(arete.tensor(3.0), line, [Replicate()])), [3 * x for x in plain])
assert arete._foreach_add(a, b)[1].placements == (Shard(0),)
# The last rank has no row of the first tensor, and there is a number for it all the same.
assert a[0].to_local().numel() == (6, 6, 0)[rank]
for order in (0, 1, 2, 3.5, float("inf"), float("-inf")):
    same(arete._foreach_norm(a, order), arete._foreach_norm(plain, order))
    if order:
        same(arete._foreach_powsum(a, abs(min(order, 5))), arete._foreach_powsum(plain, abs(min(order, 5))))
same(arete._foreach_max(a), arete._foreach_max(plain))
same(arete._foreach_max(spread([x.to(arete.int32) for x in plain], *[Shard(0)] * 3)), [x.to(arete.int32).max() for x in plain])
halves = [x.bfloat16() for x in plain]
same(arete._foreach_norm(spread(halves, *[Shard(0)] * 3)), arete._foreach_norm(halves))
same(arete._foreach_norm(a, 2, arete.float64), arete._foreach_norm(plain, 2, arete.float64))
mixed = arete._foreach_norm([a[0], plain[1]])
assert isinstance(mixed[0], DTensor) and not isinstance(mixed[1], DTensor) and arete.allclose(mixed[0].full_tensor(), plain[0].norm())
# Terms of sums, in place, copies.
terms = DTensor.from_local(plain[1] * (rank + 1), line, [Partial()])
same(arete._foreach_add([terms], [a[1]]), [plain[1] * 7])
raises(NotImplementedError, "redistribute()d first", lambda: arete._foreach_add_([terms], 1))
c = spread(plain, Shard(0), Shard(0), Shard(1))
assert arete._foreach_sub_(c, b, alpha=0.5) is c
same(c, [x - y * 0.5 for x, y in zip(plain, others)])
arete._foreach_copy_(c, b)
same(c, others)
assert c[2].placements == (Shard(1),)
for f in (lambda: arete._foreach_add(a, plain), lambda: arete._foreach_add_(plain, a)):
    raises(ValueError, "spread over processes", f)
raises(ValueError, "shapes", lambda: arete._foreach_add(a, [a[0], a[1], a[1]]))
# Parameters, whichever way they are spread, and gradients.
w = [nn.Parameter(x) for x in spread(plain, Shard(0), Shard(0), Replicate())]
sum(x.sum() for x in arete._foreach_mul(arete._foreach_exp(w), w)).backward()
for p, x in zip(w, plain):
    x = x.clone().requires_grad_()
    (x.exp() * x).sum().backward()
    assert arete.allclose(p.grad.full_tensor(), x.grad)
net = nn.Linear(3, 4)
rows = net.weight.detach().clone()
fully_shard(net)
dist.broadcast(rows, 0)
with arete.no_grad():
    net.weight.copy_(rows)
    same(arete._foreach_norm(list(net.parameters())[:1]), [rows.norm()])
    arete._foreach_mul_([net.weight], 2.0)
assert arete.equal(net.weight.full_tensor(), 2 * rows)
""")


@needs_gloo
def test_tensors_that_require_gradients(tmp_path):
    run(tmp_path, 4, """
from arete.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor
from arete.distributed.tensor.parallel import ColwiseParallel, parallelize_module
mesh = dist.init_device_mesh("cpu", (4,))
x = arange(24).reshape(8, 3)
for places in ([Shard(0)], [Shard(1)], [Replicate()]):
    t = distribute_tensor(x.clone().requires_grad_(), mesh, places)
    assert arete.equal(t._local_tensor, t.to_local()) and not t._local_tensor.requires_grad and not hasattr(t, "nothing")
    assert t.is_leaf and t.requires_grad and t.grad is None and not distribute_tensor(x, mesh, places).requires_grad
    y = t * t
    assert not y.is_leaf and y.requires_grad
    y.sum().full_tensor().backward()
    assert isinstance(t.grad, DTensor) and t.grad.placements == tuple(places) and arete.equal(t.grad.full_tensor(), 2 * x)
    optimizer = arete.optim.SGD([t], lr=0.5)
    optimizer.step()
    assert arete.equal(t.full_tensor().detach(), arete.zeros(8, 3))
    optimizer.zero_grad()
    assert t.grad is None
    (t * x).redistribute(placements=[Replicate()]).backward(distribute_tensor(arete.ones(8, 3), mesh, [Replicate()]))
    assert arete.equal(t.grad.full_tensor(), x)
    late = distribute_tensor(x, mesh, places).requires_grad_()
    (late * 3).sum().full_tensor().backward()
    assert arete.equal(late.grad.full_tensor(), arete.full((8, 3), 3.0))
    assert not late.requires_grad_(False).requires_grad
# Gradients of parts that are terms of a sum, or whole.
for places in ([Shard(0)], [Replicate()]):
    t = distribute_tensor(x, mesh, places).requires_grad_()
    whole_one = t.full_tensor(grad_placements=[Partial()])
    (whole_one * (rank + 1)).sum().backward()
    assert arete.equal(t.grad.full_tensor(), arete.full((8, 3), 10.0))
    t.grad = None
    (t.full_tensor() * 2).sum().backward()
    assert arete.equal(t.grad.full_tensor(), arete.full((8, 3), 2.0))
t = distribute_tensor(x, mesh, [Replicate()]).requires_grad_()
(t.to_local(grad_placements=[Partial()]) * (rank + 1)).sum().backward()
assert arete.equal(t.grad.full_tensor(), arete.full((8, 3), 10.0))
# What is not given a mesh has that of the block.
line = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))["b"]
with mesh, line:
    assert distribute_tensor(x).device_mesh == line
    net = parallelize_module(nn.Linear(2, 4), parallelize_plan=ColwiseParallel())
    assert net.weight.device_mesh == line
# The innermost block's, of equal ones, too, and of this thread.
twin = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))["b"]
assert twin == line and twin is not line
with line, mesh:
    with twin:
        pass
    assert distribute_tensor(x).device_mesh is mesh
    with mesh, line, twin:
        assert distribute_tensor(x).device_mesh is twin
    import threading
    seen = []
    thread = threading.Thread(target=lambda: seen.append(type(line)._innermost()))
    thread.start()
    thread.join()
    assert seen == [None]
assert distribute_tensor(x, placements=[Shard(0)]).device_mesh.size() == 4
raises(ValueError, "mesh is missing", lambda: parallelize_module(nn.Linear(2, 4), parallelize_plan=ColwiseParallel()))
# Functions of older programs, which do not get the module.
net = distribute_module(filled(nn.Linear(3, 2)), mesh, input_fn=lambda inputs, m: DTensor.from_local(inputs[0], m, [Shard(0)]),
                        output_fn=lambda out, m: out.to_local())
assert arete.allclose(net(x[rank:rank + 1]), filled(nn.Linear(3, 2))(x[rank:rank + 1]))
""")


@needs_gloo
def test_sharded_modules_may_give_tensors_of_several_processes(tmp_path):
    run(tmp_path, 2, """
from arete.distributed.tensor import DTensor, Replicate, Shard
mesh = dist.init_device_mesh("cpu", (2,))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)
    def forward(self, x):
        return DTensor.from_local(self.b(self.a(x).tanh()), mesh, [Shard(0)])
net = filled(Net())
fully_shard(net.a, reshard_after_forward=True)
fully_shard(net, reshard_after_forward=True)
x = arange(6).reshape(2, 3) * (rank + 1)
net(x).square().sum().full_tensor().backward()
plain = filled(Net())
plain = DDP(plain)
plain(x).square().sum().full_tensor().backward()
for p, q in zip(net.parameters(), plain.parameters()):
    assert arete.allclose(p.grad.full_tensor(), q.grad)
""")


@needs_gloo
def test_what_looks_into_spread_tensors(tmp_path):
    """Beside rank_programs' looking_in and spread_functions, which PyTorch runs, too: what is not there in it or differs."""
    run(tmp_path, 2, """
import contextlib, io, json
from arete.distributed.fsdp import fully_shard
from arete.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, zeros
from arete.distributed.tensor._utils import compute_local_shape_and_global_offset
from arete.distributed.tensor.debug import CommDebugMode, visualize_sharding
from arete.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, SequenceParallel, parallelize_module
mesh = dist.init_device_mesh("cpu", (2,))
# Collectives of the library's own engines, by modules.
ops, mode = arete.ops, CommDebugMode()
net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
for layer in net:
    fully_shard(layer)
fully_shard(net)
with mode:
    net(arete.ones(3, 4)).sum().backward()
    assert mode.get_comm_counts()[ops.c10d._reduce_scatter_base_] >= 2  # while it is open, too
assert mode.get_total_counts() == sum(mode.get_comm_counts().values())
both = mode.comm_module_counts["Global"]
assert sum(both["forward"].values()) + sum(both["backward"].values()) == mode.get_total_counts() >= 4
mode.generate_json_dump("FOLDER/log.json" + str(rank), noise_level=1)
said = json.load(open("FOLDER/log.json" + str(rank)))
assert [c["fqn"] for c in said["children"]] == ["FSDPSequential"] and len(said["children"][0]["children"]) == 2
# A mode that only looks on changes no result, of DTensors neither.
class Looks(arete.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))
x = distribute_tensor(arange(12).reshape(4, 3), mesh, [Shard(0)])
row = distribute_tensor(arange(4).reshape(4, 1), mesh, [Replicate()])
with Looks():
    y = x + row
assert isinstance(y, DTensor) and arete.equal(y.full_tensor(), x.full_tensor() + row.full_tensor())
# Hooks of modules get DTensors, and the history stays.
seen = []
norm = parallelize_module(nn.LayerNorm(3, elementwise_affine=False), mesh, SequenceParallel(sequence_dim=0))
norm.register_full_backward_hook(lambda m, i, o: seen.append((i, o)))
leaf = x.detach().requires_grad_()
(norm(leaf) * x).sum().backward()
plain = arange(12).reshape(4, 3).requires_grad_()
(nn.functional.layer_norm(plain, (3,)) * plain.detach()).sum().backward()
assert arete.allclose(leaf.grad.full_tensor(), plain.grad, atol=1e-5)
assert seen[0][1][0].placements == (Shard(0),) and arete.allclose(seen[0][0][0], plain.grad[2 * rank:][:2], atol=1e-5)
class Own(arete.autograd.Function):
    forward = staticmethod(lambda ctx, t: t * 2)
    backward = staticmethod(lambda ctx, g: g * 2)
raises(NotImplementedError, "local_map", lambda: Own.apply(leaf))
# Inputs are DTensors, unless a style says otherwise.
class Shows(nn.Module):
    def forward(self, t, *, mask=None):
        self.got = t, mask
        return t
for local in (False, True):
    shows = parallelize_module(Shows(), mesh, PrepareModuleInput(
        input_layouts=Shard(0), desired_input_layouts=Replicate(), input_kwarg_layouts={"mask": Replicate()},
        desired_input_kwarg_layouts={"mask": Shard(1)}, use_local_output=local))
    shows(arange(2) + 2 * rank, mask=arange(6).reshape(2, 3))
    t, mask = shows.got
    assert isinstance(t, DTensor) == isinstance(mask, DTensor) == (not local)
    if local:
        assert t.tolist() == [0, 1, 2, 3] and tuple(mask.shape) == (2, 2 - rank)
    else:
        assert t.placements == (Replicate(),) and tuple(t.shape) == (4,) and mask.placements == (Shard(1),) and tuple(mask.shape) == (2, 3)
        assert mask.full_tensor().tolist() == [[0, 1, 2], [3, 4, 5]]
# Tables, and which part a process has.
text = io.StringIO()
with contextlib.redirect_stdout(text):
    visualize_sharding(zeros(5, 2, device_mesh=mesh, placements=[Shard(0)]), header="rows")
    visualize_sharding(zeros(3, device_mesh=mesh))
lines = text.getvalue().splitlines()
assert rank or (lines[0] == "rows" and lines[3].split() == ["Row", "0-2", "cpu:0"] and lines[4].split() == ["Row", "3-4", "cpu:1"]
                and "cpu:0,1" in lines[-1]), lines
assert rank == 0 or not lines
raises(RuntimeError, "1D or 2D", lambda: visualize_sharding(zeros(1, 1, 1, device_mesh=mesh)))
assert compute_local_shape_and_global_offset((5, 2), mesh, [Shard(0)]) == (((3, 2), (0, 0)) if rank == 0 else ((2, 2), (3, 0)))
# Processes that are not in the mesh have the sizes, and no elements.
one = dist.DeviceMesh("cpu", [0])
t = distribute_tensor(arange(6).reshape(2, 3), one, [Shard(0)])
u = (t * 2 + t).t()
u += 1
assert tuple(u.shape) == (3, 2) and u.to_local().numel() == (6 if rank == 0 else 0)
assert tuple(t.redistribute(placements=[Replicate()]).to_local().shape) == ((2, 3) if rank == 0 else (0,))
assert DTensor.from_local(arange(3), one, [Replicate()]).to_local().numel() == (3 if rank == 0 else 0)
""".replace("FOLDER", str(tmp_path)))


# Of a tensor of (4, 6): arguments that say of a whole tensor what they would not say of a part, and dimensions in all places.
OF_WHOLE_TENSORS = ["x.flip(0, 1)", "x.flip(1, 0)", "x.flip(1)", "torch.flip(x, (0, 1))", "x.flip(dims=[1])", "x.median()",
                    "torch.median(x)", "x.median(1).values", "x.median(dim=0).indices", "x.mode(0).values", "x.topk(2).indices",
                    "x.sort(dim=0, descending=True).values", "x.sort(1).indices",
                    "x.split([4], 0)[0]", "x.split([6], dim=1)[0]", "x.split([1, 3])[1]", "x.split(4)[0]", "x.split(4, 1)[1]",
                    "x.tensor_split([4], 0)[0]", "x.tensor_split(1, dim=1)[0]", "x.narrow(dim=0, start=0, length=4)",
                    "x.narrow(1, 0, length=6)", "x.narrow(-1, 1, 4)", "x.expand(size=(2, 4, 6))", "x.cumsum(0)",
                    "(x / 7).sum(0).to(torch.int64)", "(x / 7).sum(1).to(torch.int64)", "x.sum(0).to(torch.float64)",
                    "(x - x).sum().to(torch.bool)", "x.sum(0).neg_()", "x.sum(1).mul_(-2).div_(4)", "x.sum(0).add_(x.sum(0), alpha=3)",
                    "x.mean(0).sub_(x.mean(0))", "x.sum(0).lerp_(x.sum(0), 0.25)", "x.amax(0).zero_()", "x.amax(0).mul_(2)",
                    "x.amin(1).div_(4)"]


def test_what_becomes_of_functions_is_kept_by_all_that_it_depends_on():
    from arete.distributed.tensor import Replicate, Shard, distribute_tensor
    F = arete.nn.functional
    dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = dist.init_device_mesh("cpu", (1,))
        whole = arete.arange(24.0).cos().reshape(4, 6)
        functions = [
            *(lambda x, y, d=d: F.smooth_l1_loss(x, y, beta=d) for d in (1.0, 0.1)), *(lambda x, y, n=n: x * n for n in (2, 3, 2.5, 0.5)),
            *(lambda x, y, d=d: F.huber_loss(x, y, delta=d) for d in (1.0, 0.1)), *(lambda x, y, d=d: x.softmax(d) for d in (1, 0)),
            *(lambda x, y, d=d: x.sum(d) for d in (0, 1, [0, 1])), *(lambda x, y, k=k: x.mean(1, keepdim=k) for k in (False, True)),
            *(lambda x, y, e=e: F.layer_norm(x, (6,), eps=e) for e in (0, 1)),
            *(lambda x, y, i=i: x[i] for i in (slice(0, 2), slice(1, 3), (slice(None), 1), 1)), lambda x, y: x.transpose(0, 1),
            lambda x, y: x.transpose(0, 0), lambda x, y: x @ y.T, lambda x, y: x.T @ y, lambda x, y: x.amax(1), lambda x, y: x.amax(0)]
        for places, dtype in itertools.product(([Shard(0)], [Replicate()], [Shard(1)]), (arete.float32, arete.float64)):
            x, y = (distribute_tensor(t.to(dtype), mesh, places) for t in (whole, whole.sin() * 2))
            for k, f in enumerate((*functions, *functions)):
                got, wanted = f(x, y), f(whole.to(dtype), (whole.sin() * 2).to(dtype))
                assert got.dtype == dtype and got.shape == wanted.shape and arete.allclose(got.full_tensor(), wanted), (places, k)
                trained, plain = x.detach().requires_grad_(), whole.to(dtype).clone().requires_grad_()
                f(trained, y).sum().backward()
                f(plain, y.full_tensor()).sum().backward()
                assert arete.allclose(trained.grad.full_tensor(), plain.grad), (places, k)
        kept = len(mesh._plans)
        for n in range(3, 50):
            x * n, n - x, x * (n + 0.5)
        assert len(mesh._plans) <= kept + 6  # any number is as good
    finally:
        dist.destroy_process_group()


@needs_gloo
def test_parts_take_no_arguments_of_whole_tensors(tmp_path):
    """Beside PyTorch's values of one process, of which its own DTensors have no rules for most of these."""
    torch = peer()
    try:
        x = torch.arange(24.0).remainder(7).reshape(4, 6)
        theirs = [eval(f, {"x": x, "torch": torch}).tolist() for f in OF_WHOLE_TENSORS]
    except pytest.skip.Exception:
        theirs = None
    run(tmp_path, 2, f"""
from arete.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
torch, functions, theirs = arete, {OF_WHOLE_TENSORS}, {theirs}
""" + """
mesh = dist.init_device_mesh("cpu", (2,))
whole = (arange(24) % 7).reshape(4, 6)
for k, f in enumerate(functions):
    wanted = eval(f, {"x": whole, "torch": arete})
    assert theirs is None or wanted.tolist() == theirs[k], (f, wanted, theirs[k])
    for place in (Shard(0), Shard(1), Replicate()):
        y = eval(f, {"x": distribute_tensor(whole, mesh, [place]), "torch": arete})
        assert isinstance(y, DTensor) and tuple(y.shape) == tuple(wanted.shape) and y.dtype == wanted.dtype, (f, place, y)
        assert y.full_tensor().tolist() == wanted.tolist(), (f, place, y.full_tensor(), wanted)
# What is done to sums is not done to other terms, nor what is no linear function of sums.
x = distribute_tensor(whole, mesh, [Shard(0)])
assert x.amax(0).placements == (Partial("max"),) and x.sum(0).placements == (Partial(),)
terms = x.sum(0)
for f in (lambda: x.amax(0).neg_(), lambda: x.amax(0).mul_(-1), lambda: x.amax(0).mul_(0), lambda: x.amin(0).div_(-2.0),
          lambda: x.amax(0).add_(x.amax(0)), lambda: x.amin(0).lerp_(x.amin(0), 0.5),
          lambda: x.sum(0).div_(5, rounding_mode="floor"), lambda: x.sum(0).lerp_(x.sum(0), x.sum(0)), lambda: x.sum(0).add_(1),
          lambda: x.sum(0).copy_(1), lambda: x.to(arete.int64).sum(0).copy_(terms)):
    raises(NotImplementedError, "terms of a sum are redistribute()d first", f)
# What is whole, or in parts, is written to terms of a sum by shares.
def of_terms(op="sum"):
    return DTensor.from_local(whole * (rank + 1), mesh, [Partial(op)])
for op, place in ((o, p) for o in ("sum", "avg") for p in (Replicate(), Shard(0), Shard(1))):
    other, row = distribute_tensor(whole + 1, mesh, [place]), distribute_tensor(arange(6) + 1, mesh, [Replicate()])
    for f in (lambda t, y, r: t.add_(y, alpha=2), lambda t, y, r: t.sub_(y), lambda t, y, r: t.mul_(y), lambda t, y, r: t.div_(y),
              lambda t, y, r: t.copy_(y), lambda t, y, r: t.lerp_(y, 0.25), lambda t, y, r: t.__iadd__(r), lambda t, y, r: t.mul_(other=r)):
        got, t = f(of_terms(op), other, row), of_terms(op).full_tensor()
        assert got.placements == (Partial(op),) and arete.allclose(got.full_tensor(), f(t, whole + 1, arange(6) + 1)), (op, place)
trained = distribute_tensor(whole, mesh, [Replicate()]).requires_grad_()
for f in (lambda: of_terms().add_(trained), lambda: of_terms("max").add_(other), lambda: of_terms().pow_(other),
          lambda: of_terms().lerp_(other, other), lambda: x.to(arete.int64).sum(0).add_(row.int())):
    raises(NotImplementedError, "terms of a sum are redistribute()d first", f)
average = DTensor.from_local(arete.ones(3) * (rank + 1), mesh, [Partial("avg")])
assert average.mul_(2).full_tensor().tolist() == [3, 3, 3]
assert x.amin(0).copy_(x.amin(0)).full_tensor().tolist() == whole.amin(0).tolist()
assert terms.full_tensor().tolist() == whole.sum(0).tolist()  # nobody has written to it
for f in (lambda: arete.cumsum(x, 1, out=arete.zeros(4, 6)), lambda: arete.flip(x, (1,), out=arete.zeros(4, 6)),
          lambda: arete.var(x, 1, out=arete.zeros(4))):
    raises((NotImplementedError, TypeError), "out", f)
""")


@needs_gloo
def test_rules_of_operators_that_programs_define(tmp_path):
    run(tmp_path, 4, """
from arete.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from arete.distributed.tensor.experimental import register_sharding
shapes = []
@arete.library.custom_op("own::scaled", mutates_args=())
def scaled(x: arete.Tensor, w: arete.Tensor, by: float = 1.0) -> arete.Tensor:
    shapes.append((tuple(x.shape), tuple(w.shape)))
    return (x * x) @ w * by
@scaled.register_fake
def _(x, w, by=1.0):
    return x.new_empty(x.shape[0], w.shape[1])
def setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:2])
    ctx.by = inputs[2]
def backward(ctx, g):
    x, w = ctx.saved_tensors
    return 2 * x * (g @ w.t()) * ctx.by, (x * x).t() @ g * ctx.by, None
scaled.register_autograd(backward, setup_context=setup)
@register_sharding(arete.ops.own.scaled.default)
def rule(x, w, *rest):
    assert x.ndim == 2 and tuple(w.shape) == (6, 5)
    none = [None] * len(rest)
    return [([Replicate()], [Replicate(), Replicate(), *none]), ([Shard(0)], [Shard(0), Replicate(), *none]),
            ([Shard(1)], [Replicate(), Shard(1), *none]), ([Partial()], [Shard(1), Shard(0), *none])]
mesh = dist.init_device_mesh("cpu", (2, 2))
x, w, weight = arange(48).reshape(8, 6).sin(), arange(30).reshape(6, 5).cos(), arange(40).reshape(8, 5).sin()
for given, wanted, part in (
        ((Shard(0), Shard(0)), (Replicate(), Replicate()), (2, 5)),
        ((Replicate(), Replicate()), (Shard(1), Replicate()), (8, 3 - rank // 2)),
        ((Shard(1), Shard(0)), (Shard(0), Replicate()), (4, 5)), ((Replicate(), Shard(0)), (Shard(1), Replicate()), (4, 3 - rank // 2)),
        ((Replicate(), Replicate()), (Replicate(), Replicate()), (8, 5))):
    a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
    ((a * a) @ b * 0.5 * weight).sum().backward()
    c, d = (distribute_tensor(t, mesh, p).requires_grad_() for t, p in ((x, given), (w, wanted)))
    y = scaled(c, d, 0.5)
    assert tuple(y.to_local().shape) == part and tuple(y.shape) == (8, 5), (given, y.to_local().shape, y.placements)
    assert arete.allclose(y.full_tensor(), (a * a) @ b * 0.5, atol=1e-5)
    (y.full_tensor() * weight).sum().backward()
    assert arete.allclose(c.grad.full_tensor(), a.grad, atol=1e-5) and arete.allclose(d.grad.full_tensor(), b.grad, atol=1e-5), given
assert scaled(c, w).placements == (Replicate(), Replicate())  # what is plain is the same in all
y = scaled(distribute_tensor(x, mesh, [Shard(1), Replicate()]), distribute_tensor(w, mesh, [Shard(0), Replicate()]))
assert y.placements == (Partial(), Replicate()) and shapes[-1] == ((8, 3), (3, 5))
# The fewest bytes: three rows for all, or 48 numbers.
line = dist.init_device_mesh("cpu", (4,))
assert scaled(distribute_tensor(x, line, [Shard(0)]), distribute_tensor(w, line, [Shard(1)])).placements == (Shard(0),)
assert tuple(scaled(x, w).shape) == (8, 5) and not isinstance(scaled(x, w), DTensor)
@arete.library.custom_op("own::both", mutates_args=())
def both(xs: list[arete.Tensor]) -> tuple[arete.Tensor, arete.Tensor]:
    return xs[0] + xs[1], xs[0].sum(0)
@register_sharding([arete.ops.own.both.default])
def rule(xs):
    return [([Shard(0), Partial()], [Shard(0), Shard(0)])]
s, t = both([distribute_tensor(x, line, [Shard(0)]), distribute_tensor(x, line, [Shard(1)])])
assert arete.equal(s.full_tensor(), 2 * x) and s.placements == (Shard(0),) and arete.allclose(t.full_tensor(), x.sum(0), atol=1e-5)
raises(NotImplementedError, "register_fake() alone", lambda: both([distribute_tensor(w, line, [Shard(0)])] * 2))
register_sharding(arete.ops.own.both.default)(lambda xs: [([Shard(0), Partial()], [Shard(0)])])
raises(ValueError, "one for each tensor", lambda: both([s, s]))
register_sharding(arete.ops.own.both.default)(lambda xs: [([Shard(0)], [Shard(0), Shard(0)])])
raises(ValueError, "it has 2 results", lambda: both([s, s]))
raises(NotImplementedError, "no operator that arete.library has defined", lambda: register_sharding(arete.ops.aten._softmax.default))
# A result that is whole beside one that is in parts, or in terms.
@arete.library.custom_op("own::two", mutates_args=())
def two(x: arete.Tensor, w: arete.Tensor) -> tuple[arete.Tensor, arete.Tensor]:
    return x * x, (x * x) @ w
def setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs)
def backward(ctx, g, h):
    x, w = ctx.saved_tensors
    return 2 * x * (g + h @ w.t()), (x * x).t() @ h
two.register_autograd(backward, setup_context=setup)
register_sharding(arete.ops.own.two.default)(lambda x, w: [([Replicate(), Shard(1)], [Replicate(), Shard(1)]),
                                                           ([Replicate(), Replicate()], [Replicate(), Replicate()])])
x, w, weight = (f(arange(64).reshape(8, 8)) for f in (arete.sin, arete.cos, arete.tanh))
a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
((a * a).sum() + ((a * a) @ b * weight).sum()).backward()
for spread, placements in ((line, [Shard(1)]), (mesh, [Shard(1), Replicate()]), (mesh, [Replicate(), Replicate()])):
    c = distribute_tensor(x, spread, [Replicate()] * spread.ndim).requires_grad_()
    d = distribute_tensor(w, spread, placements).requires_grad_()
    y, z = two(c, d)
    y.register_hook(lambda g: seen.append(g.full_tensor() if isinstance(g, DTensor) else g))
    seen = []
    (y.full_tensor().sum() + (z.full_tensor() * weight).sum()).backward()
    assert z.placements == tuple(placements) and arete.equal(seen[0], arete.ones(8, 8))
    assert arete.allclose(c.grad.full_tensor(), a.grad, atol=1e-5) and arete.allclose(d.grad.full_tensor(), b.grad, atol=1e-5), placements
# What is written in place has to lie as the rule says.
@arete.library.custom_op("own::fill", mutates_args=("x",))
def fill(x: arete.Tensor, y: arete.Tensor, k: float) -> None:
    x.copy_(y * k)
register_sharding(arete.ops.own.fill.default)(lambda x, y, k: [([], [p, p, None]) for p in (Replicate(), Shard(1))])
for placement in (Replicate(), Shard(1)):
    z = distribute_tensor(arete.zeros(8, 8), line, [placement])
    fill(z, distribute_tensor(x, line, [Shard(0)]), k=2.0)
    assert arete.equal(z.full_tensor(), 2 * x), placement
z = distribute_tensor(arete.zeros(8, 8), line, [Shard(0)])
raises(ValueError, "it writes to x, and its rule has no placements", lambda: fill(z, distribute_tensor(x, line, [Shard(0)]), k=2.0))
assert arete.equal(z.full_tensor(), arete.zeros(8, 8))
""")


@needs_gloo
def test_a_mode_that_has_not_seen_all_calls_ends(tmp_path):
    """The flight recorder remembers 2048 calls."""
    run(tmp_path, 1, """
from arete.distributed._functional_collectives import watching
from arete.distributed.tensor.debug import CommDebugMode
one, mode = arete.ones(1), CommDebugMode()
def many():
    with mode:
        for k in range(2100):
            dist.all_reduce(one)
raises(RuntimeError, "more than 2048 collectives", many)
assert watching == []
nn.Linear(1, 1)(one)  # is not looked at any more
assert mode.get_total_counts() == 0
with mode:
    dist.all_reduce(one)
assert mode.get_total_counts() == 1
""")
