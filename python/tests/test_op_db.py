"""PyTorch's operator database through the package, some samples of each entry; op_db.py alone runs all of them."""
import subprocess
import sys
from pathlib import Path

import pytest

import arete

pytest.importorskip("torch")
pytest.importorskip("expecttest")  # torch's database needs it

DTYPES = "float32,int64,complex128"


@pytest.mark.parametrize("device", ["cpu"] + ["cuda"] * arete.cuda.is_available())
def test_what_differs_is_in_the_table(device):
    script = Path(__file__).with_name("op_db.py")
    run = subprocess.run([sys.executable, script, "--device", device, "--quick", "--dtype", DTYPES],
                         capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-1000:]
