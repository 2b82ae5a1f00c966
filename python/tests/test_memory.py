"""Many calls hold memory flat, and nothing is left at the end of the process."""
import subprocess
import sys

PROGRAM = """
import resource
import arete as torch

def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()

a, b = torch.ones(16), torch.ones(16)
w = torch.ones(4, 4, requires_grad=True)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 1))

def calls(n):
    for _ in range(n):
        c = a + b
        c.view(4, 4)[1:, 0]
        c.add_(1.0)
        torch.add(a, b, alpha=2)
    for _ in range(n // 100):
        y = net(torch.ones(3, 4)).sum() + (w @ w).tanh().sum()
        y.backward()
        net.zero_grad()
        w.grad = None
        try:
            a + torch.ones(3)
        except ValueError:
            pass

calls(20000)
before = resident()
calls(250000)
print((resident() - before) // 1024)
"""


def test_a_million_calls_hold_memory_flat():
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert "leak" not in run.stderr, run.stderr
    assert int(run.stdout) < 2048, f"{run.stdout.strip()} KiB more after a million calls"
