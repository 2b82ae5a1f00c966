"""PyTorch's module tests through the package, the first case of each module; module_db.py alone runs all of them."""
import re
import subprocess
import sys
from pathlib import Path

import pytest

import arete

pytest.importorskip("torch")
pytest.importorskip("expecttest")  # torch's tests need it
CHECKS = "text,state,attributes,result,gradients,strided,copies,hooks,factories,options,inputs"


@pytest.mark.parametrize("device", ["cpu"] + ["cuda"] * arete.cuda.is_available())
def test_modules_agree(device):
    script = Path(__file__).with_name("module_db.py")
    run = subprocess.run([sys.executable, script, "--device", device, "--filter", r"/0( |$)", "--check", CHECKS],
                         capture_output=True, text=True, timeout=600)
    last = run.stdout.strip().splitlines()[-1]
    totals = re.match(rf"{device}: (\d+) cases, (\d+) checks: (\d+) differences", last)
    assert totals, run.stdout[-1000:] + run.stderr[-1000:]
    assert int(totals[1]) >= 120 and int(totals[2]) >= 1000, last
    assert int(totals[3]) == 0, run.stdout[-3000:]
