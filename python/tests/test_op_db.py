"""PyTorch's operator database through the package, a sample of each entry; op_db.py alone runs all of them."""
import re
import subprocess
import sys
from pathlib import Path

import pytest

import arete

pytest.importorskip("torch")
pytest.importorskip("expecttest")  # torch's database needs it


@pytest.mark.parametrize("device", ["cpu"] + ["cuda"] * arete.cuda.is_available())
def test_entries_agree(device, dtype="float32", least=635):
    script = Path(__file__).with_name("op_db.py")
    run = subprocess.run([sys.executable, script, "--device", device, "--dtype", dtype, "--most", "1"],
                         capture_output=True, text=True, timeout=600)  # fmt: skip
    last = run.stdout.strip().splitlines()[-1]
    print(last)
    agreed = re.match(rf"{dtype}: (\d+) of the (\d+) entries", last)
    assert agreed, run.stdout[-1000:] + run.stderr[-1000:]
    assert int(agreed[1]) >= least, last
