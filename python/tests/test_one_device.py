"""Tensors of several devices in one call: an error or a right result, never memory that a device does not have."""
import subprocess
import sys
from pathlib import Path

PROGRAM = r"""
import sys, warnings
sys.path.insert(0, sys.argv[1])
warnings.filterwarnings("ignore")
from test_vmap import cases
from arete import _C

tried = refused = 0
for name in _C._record_names():
    for call, tensors in cases(name):
        for i in range(len(tensors)):
            given = [t.detach().to("meta") if i == k else t.detach().clone() for k, t in enumerate(tensors)]
            print(name, i, [tuple(t.shape) for t in given], file=sys.stderr)
            tried += len(given) > 1
            try:
                call(*given)
            except Exception:
                refused += len(given) > 1
print(tried, refused)
"""


def test_a_tensor_of_another_device_in_every_operator():
    run = subprocess.run([sys.executable, "-X", "faulthandler", "-c", PROGRAM, str(Path(__file__).parent)], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-1500:]
    tried, refused = map(int, run.stdout.split())
    assert tried > 1000 and refused > 0.9 * tried
