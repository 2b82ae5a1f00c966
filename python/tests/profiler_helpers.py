"""What the tests of arete.profiler share."""
import pytest


@pytest.fixture(autouse=True)
def own_ceilings(tmp_path_factory, monkeypatch):
    """The machine's ceilings are measured once for all tests, and not kept for the user."""
    monkeypatch.setenv("ARETE_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))


def train_step(t, profile_function, record):
    """The same step under either library; returns the profiler."""
    t.manual_seed(0)
    net = t.nn.Sequential(t.nn.Linear(20, 30), t.nn.ReLU(), t.nn.Linear(30, 5))
    optimizer = t.optim.SGD(net.parameters(), lr=0.1)
    x, y = t.randn(8, 20), t.randn(8, 5)
    with profile_function() as p:
        with record("forward"):
            loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
    return p


def counts(p):
    return {e.key.removeprefix("aten::"): e.count for e in p.key_averages()}
