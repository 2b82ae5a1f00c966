"""Recommendation, graphs, and agents."""
from __future__ import annotations

import numpy as np

from .task import Task, adamw, model, normal, sgd, uniform


@model
def dlrm(torch, full, rng):
    """DLRM (Naumov et al. 2019, https://arxiv.org/abs/1906.00091): bags of embeddings and their products in pairs."""
    nn, F = torch.nn, torch.nn.functional
    batch, tables, rows, width = (2048, 26, 20000, 64) if full else (8, 4, 30, 8)
    bottom, top, numbers, most = ((512, 256), (512, 256), 13, 4) if full else ((16,), (16,), 5, 3)

    def mlp(*widths):
        pairs = zip(widths, widths[1:])
        return nn.Sequential(*(m for a, b in pairs for m in (nn.Linear(a, b), nn.ReLU())))

    class Dlrm(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
            self.bottom = mlp(numbers, *bottom, width)
            pairs = (tables + 1) * tables // 2
            self.top = nn.Sequential(mlp(width + pairs, *top), nn.Linear(top[-1], 1))

        def forward(self, numbers, indices, offsets):
            dense = self.bottom(numbers)
            bags = [table(i, o) for table, i, o in zip(self.tables, indices, offsets)]
            vectors = torch.stack([dense, *bags], dim=1)
            products = torch.bmm(vectors, vectors.transpose(1, 2))
            i, j = torch.tril_indices(tables + 1, tables + 1, offset=-1, device=products.device)
            return self.top(torch.cat([dense, products[:, i, j]], dim=1)).squeeze(1)

    counts = rng.integers(0, most, (tables, batch))
    counts[:, -1] += batch * most - counts.sum(1)  # the bags differ in size, the tables have the same number of indices
    data = {
        "numbers": np.log1p(np.abs(normal(rng, batch, numbers))),
        "indices": rng.integers(0, rows, (tables, batch * most)),
        "offsets": np.cumsum(counts, 1) - counts,
        "click": (uniform(rng, batch) < 0.3).astype(np.float32),
    }
    predict = lambda net, d: net(d.numbers, d.indices, d.offsets).sigmoid()
    loss = lambda net, d: F.binary_cross_entropy_with_logits(net(d.numbers, d.indices, d.offsets), d.click)
    return Task(Dlrm(), data, {"": loss}, predict, sgd(torch, 0.1))


def citations(rng, nodes, edges, features, classes):
    """A random graph with loops and edges both ways, whose first nodes have labels."""
    pairs = rng.integers(0, nodes, (2, edges))
    loops = np.tile(np.arange(nodes), (2, 1))
    used = np.zeros(nodes, np.bool_)
    used[: nodes // 4] = True
    return {
        "x": (uniform(rng, nodes, features) < 0.05).astype(np.float32),
        "edges": np.concatenate([pairs, pairs[::-1], loops], 1),
        "label": rng.integers(0, classes, nodes),
        "used": used,
    }


@model
def gcn(torch, full, rng):
    """Graph convolution (Kipf and Welling 2016, https://arxiv.org/abs/1609.02907), sums over edges by index_add."""
    nn, F = torch.nn, torch.nn.functional
    nodes, count, features, width, classes = (20000, 100000, 500, 256, 16) if full else (40, 80, 30, 16, 4)

    class Layer(nn.Module):
        def __init__(self, inner, out):
            super().__init__()
            self.linear, self.bias = nn.Linear(inner, out, bias=False), nn.Parameter(torch.zeros(out))

        def forward(self, x, edges):
            source, target = edges
            x = self.linear(x)
            degree = x.new_zeros(len(x)).scatter_add_(0, target, x.new_ones(len(target)))
            scale = degree.pow(-0.5)
            messages = x[source] * (scale[source] * scale[target])[:, None]
            return torch.zeros_like(x).index_add(0, target, messages.to(x.dtype)) + self.bias

    class Gcn(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.dropout = Layer(features, width), Layer(width, classes), nn.Dropout(0.5)

        def forward(self, x, edges):
            return self.second(self.dropout(F.relu(self.first(self.dropout(x), edges))), edges)

    loss = lambda net, d: F.nll_loss(F.log_softmax(net(d.x, d.edges), 1)[d.used], d.label[d.used])
    data = citations(rng, nodes, count, features, classes)
    optimizer = lambda parameters: torch.optim.Adam(parameters, lr=0.01, weight_decay=5e-4)
    return Task(Gcn(), data, {"": loss}, lambda net, d: net(d.x, d.edges), optimizer)


@model
def gat(torch, full, rng):
    """Graph attention (Velickovic et al. 2017, https://arxiv.org/abs/1710.10903), a softmax over each node's edges."""
    nn, F = torch.nn, torch.nn.functional
    nodes, count, features, width, heads, classes = (20000, 100000, 500, 32, 8, 16) if full else (40, 80, 30, 4, 2, 4)

    class Layer(nn.Module):
        def __init__(self, inner, out, heads):
            super().__init__()
            self.linear, self.heads = nn.Linear(inner, heads * out, bias=False), heads
            self.source, self.target = (nn.Parameter(torch.empty(heads, out)) for _ in range(2))
            nn.init.xavier_uniform_(self.source)
            nn.init.xavier_uniform_(self.target)
            self.dropout = nn.Dropout(0.6)

        def forward(self, x, edges):
            source, target = edges
            x = self.linear(self.dropout(x)).view(len(x), self.heads, -1)
            score = (x * self.source).sum(-1)[source] + (x * self.target).sum(-1)[target]
            score = F.leaky_relu(score, 0.2)
            index = target[:, None].expand_as(score)
            top = score.new_zeros(len(x), self.heads).scatter_reduce(0, index, score, "amax", include_self=False)
            weight = torch.exp(score - top[target])
            total = weight.new_zeros(len(x), self.heads).index_add(0, target, weight)
            messages = x[source] * self.dropout(weight / total[target])[..., None]
            return torch.zeros_like(messages[: len(x)]).index_add(0, target, messages)

    class Gat(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Layer(features, width, heads), Layer(heads * width, classes, 1)

        def forward(self, x, edges):
            return self.second(F.elu(self.first(x, edges).flatten(1)), edges).mean(1)

    loss = lambda net, d: F.cross_entropy(net(d.x, d.edges)[d.used], d.label[d.used])
    data = citations(rng, nodes, count, features, classes)
    optimizer = lambda parameters: torch.optim.Adam(parameters, lr=0.005, weight_decay=5e-4)
    return Task(Gat(), data, {"": loss}, lambda net, d: net(d.x, d.edges), optimizer)


def atari(torch, size, outputs):
    """The trunk of Mnih et al. (2015) for stacks of four frames."""
    nn = torch.nn
    layers = nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1), nn.ReLU()
    side = ((size - 8) // 4 + 1 - 4) // 2 + 1 - 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * side * side, outputs), nn.ReLU())


@model
def dqn(torch, full, rng):
    """Deep Q learning (Mnih et al. 2015, https://doi.org/10.1038/nature14236): Huber loss against a frozen target."""
    nn, F = torch.nn, torch.nn.functional
    batch, size, hidden, actions = (32, 84, 512, 6) if full else (4, 36, 32, 3)

    class Agent(nn.Module):
        def __init__(self):
            super().__init__()
            make = lambda: nn.Sequential(atari(torch, size, hidden), nn.Linear(hidden, actions))
            self.online, self.target = make(), make()
            self.target.load_state_dict(self.online.state_dict())
            self.target.requires_grad_(False)

    def loss(net, d):
        value = net.online(d.state / 255).gather(1, d.action[:, None]).squeeze(1)
        with torch.no_grad():
            best = net.target(d.after / 255).max(1).values
            target = d.reward + 0.99 * best * (1 - d.done)
        return F.huber_loss(value, target)

    data = {name: np.floor(256 * uniform(rng, batch, 4, size, size)) for name in ("state", "after")} | {
        "action": rng.integers(0, actions, batch),
        "reward": np.sign(normal(rng, batch)),
        "done": (uniform(rng, batch) < 0.1).astype(np.float32),
    }
    optimizer = lambda parameters: torch.optim.RMSprop(parameters, lr=2.5e-4, alpha=0.95, eps=0.01)
    return Task(Agent(), data, {"online": loss}, lambda net, d: net.online(d.state / 255), optimizer)


@model
def ppo(torch, full, rng):
    """Proximal policies (Schulman et al. 2017, https://arxiv.org/abs/1707.06347): clipped objective, advantages by
    generalised estimation (Schulman et al. 2015, https://arxiv.org/abs/1506.02438) over all steps of the actors."""
    nn, F = torch.nn, torch.nn.functional
    steps, actors, size, hidden, actions = (128, 8, 84, 512, 6) if full else (6, 2, 36, 32, 3)

    class Agent(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = atari(torch, size, hidden)
            self.policy, self.value = nn.Linear(hidden, actions), nn.Linear(hidden, 1)
            nn.init.orthogonal_(self.policy.weight, 0.01)
            nn.init.orthogonal_(self.value.weight, 1.0)

        def forward(self, x):
            h = self.trunk(x.flatten(0, 1) / 255)
            logits, value = self.policy(h), self.value(h)
            return logits.view(*x.shape[:2], actions), value.view(x.shape[:2])

    def advantages(values, d):
        found, last = torch.zeros_like(d.reward), 0.0
        for t in reversed(range(steps)):
            alive = 1 - d.done[t]
            after = values[t + 1] if t + 1 < steps else d.bootstrap
            last = d.reward[t] + 0.99 * after * alive - values[t] + 0.99 * 0.95 * alive * last
            found[t] = last
        return found

    def loss(net, d):
        logits, values = net(d.state)
        policy = torch.distributions.Categorical(logits=logits)
        gain = advantages(values.detach(), d)
        returns = gain + values.detach()
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        ratio = torch.exp(policy.log_prob(d.action) - d.log_prob)
        surrogate = torch.min(ratio * gain, ratio.clamp(0.9, 1.1) * gain).mean()
        return -surrogate + 0.5 * F.mse_loss(values, returns) - 0.01 * policy.entropy().mean()

    data = {
        "state": np.floor(256 * uniform(rng, steps, actors, 4, size, size)),
        "action": rng.integers(0, actions, (steps, actors)),
        "log_prob": 0.1 * normal(rng, steps, actors) - np.float32(np.log(actions)),
        "reward": np.sign(normal(rng, steps, actors)),
        "done": (uniform(rng, steps, actors) < 0.02).astype(np.float32),
        "bootstrap": normal(rng, actors),
    }
    return Task(Agent(), data, {"": loss}, lambda net, d: net(d.state), adamw(torch, 2.5e-4))
