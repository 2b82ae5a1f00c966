"""Tensors and layers spread over processes: one process' results."""
from test_distributed import needs_gloo
from test_sharding import run


@needs_gloo
def test_tensors_are_placed_and_gathered(tmp_path):
    run(tmp_path, 4, """
import itertools
from arete.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, ones, rand
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
line = dist.init_device_mesh("cpu", (4,))
part = DTensor.from_local(arange(3) + rank, line, [Shard(0)])
assert tuple(part.shape) == (12,) and part.full_tensor().tolist() == [float(r + i) for r in range(4) for i in range(3)]
assert ones(6, device_mesh=line, placements=[Shard(0)]).full_tensor().sum() == 6
arete.manual_seed(rank)
r = rand(5, device_mesh=line, placements=[Shard(0)]).full_tensor()
every = [None] * 4
dist.all_gather_object(every, r.tolist())
assert every[0] == every[3]
part.mul_(2)
assert part.to_local().tolist() == [2 * (rank + i) for i in range(3)]
assert abs(nn.utils.get_total_norm([part]) - part.full_tensor().norm()) < 1e-5
for f in (lambda: part + 1, lambda: part.sum(), lambda: arete.exp(part), lambda: part[0]):
    raises(NotImplementedError, "no operators on tensors that are spread over processes", f)
raises(ValueError, "same length as `device_mesh.ndim`", lambda: distribute_tensor(x, mesh, [Shard(0)]))
raises(ValueError, "has sizes", lambda: DTensor.from_local(arange(3), line, [Shard(0)], shape=(13,)))
raises(IndexError, "dimensions", lambda: distribute_tensor(x, mesh, [Shard(2), Replicate()]))
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
raises(ValueError, "no module of the name 'x.y'", lambda: parallelize_module(Small(), tp, {"x.y": ColwiseParallel()}))
raises(ValueError, "mesh of one dimension", lambda: parallelize_module(Small(), mesh, ColwiseParallel()))
from arete.distributed.tensor.parallel import _move
assert _move(arete.ones(2, 3), tp, Replicate(), Shard(1)).shape[1] == 2 - tp.get_local_rank()
raises(ValueError, "size 3 of dimension 1 is not divisible by the 2 processes",
       lambda: _move(arete.ones(2, 3, 2), tp, Replicate(), Shard(1)))
raises(NotImplementedError, "only support nn.Linear", lambda: parallelize_module(nn.LayerNorm(2), tp, ColwiseParallel()))
for refused in (lambda: ColwiseParallel(use_local_output=False), loss_parallel,
                lambda: arete.distributed.tensor.zeros(2, device_mesh=tp, layout=arete.sparse_coo)):
    raises(NotImplementedError, "", refused)
""")
