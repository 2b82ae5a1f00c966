"""A network on two GPUs, whose tensors move from one to the other by `.to`: forward, backward, steps, split batches, checkpoints."""
from fake_gpus import run


def test_networks_on_two_gpus_train_as_on_the_host():
    out = run("""
import io
from arete import nn

class Net(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second
        self.embed, self.a = nn.Embedding(11, 8).to(first), nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16)).to(first)
        self.b, self.head = nn.Sequential(nn.Linear(16, 8), nn.Tanh()).to(second), nn.Linear(8, 11).to(second)
    def front(self, x):
        return self.a(self.embed(x.to(self.first)))
    def forward(self, x, split=None):
        if split is None:
            return self.head(self.b(self.front(x).to(self.second)))
        # The second GPU works on a part while the first one goes on with the next.
        parts = iter(x.split(split))
        before, results = self.front(next(parts)).to(self.second), []
        for part in parts:
            results.append(self.head(self.b(before)))
            before = self.front(part).to(self.second)
        results.append(self.head(self.b(before)))
        return torch.cat(results)

def filled(net):
    with torch.no_grad():
        for k, p in enumerate(net.parameters()):
            p.copy_((torch.arange(p.numel()).float() * 1.3 + k).sin().reshape(p.shape) * 0.5)
    return net

def train(net, split=None, scaler=None, clip=None):
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    for step in range(3):
        x = (torch.arange(24).reshape(6, 4) * 5 + step) % 11
        optimizer.zero_grad()
        y = net(x, split)
        loss = nn.functional.cross_entropy(y.flatten(0, 1), ((x * 3) % 11).flatten().to(y.device))
        (scaler.scale(loss) if scaler else loss).backward()
        if scaler:
            scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        scaler.step(optimizer) if scaler else optimizer.step()
        scaler and scaler.update()
    return net

def close(a, b):
    return all((p.cpu() - q.cpu()).abs().max() < 1e-5 for p, q in zip(a.parameters(), b.parameters()))

host = train(filled(Net("cpu", "cpu")))
for split, scaler in ((None, None), (2, None), (None, torch.amp.GradScaler("cuda"))):
    net = train(filled(Net("cuda:0", "cuda:1")), split, scaler)
    assert [p.device.index for p in (net.embed.weight, net.head.weight, net.head.weight.grad)] == [0, 1, 1]
    assert close(net, host), (split, scaler)
file = io.BytesIO()
torch.save(net.state_dict(), file)
file.seek(0)
other = Net("cuda:1", "cuda:0")
other.load_state_dict(torch.load(file))
assert close(other, host) and other.embed.weight.device.index == 1
try:
    net.b(net.front(torch.zeros(1, 4, dtype=torch.int64)))
except RuntimeError as e:
    assert "cuda:0" in str(e) and "cuda:1" in str(e), e
else:
    raise AssertionError("tensors of two GPUs in one operator")
print("done")
""")
    assert out == "done\n"
