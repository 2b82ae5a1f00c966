"""Programs run where there are two GPUs that are none: their memory is the host's (tests/support/fake_gpus.h)."""
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

import arete


def plugin():
    """The plug-in that brings them."""
    built = pathlib.Path(arete._C.__file__).resolve().parents[2] / "lib" / "libarete_fake_gpus.so"
    path = os.environ.get("ARETE_FAKE_GPUS", str(built))
    if not os.path.exists(path):
        pytest.skip("the library of fake GPUs is not built")
    return path


def run(program, gpus=True):
    """What the program prints; the test fails if it does. With fake GPUs, none, or "real" ones."""
    environment = dict(os.environ)
    if gpus != "real":
        environment["ARETE_CUDA_PLUGIN"] = plugin() if gpus else "/nowhere"
    done = subprocess.run([sys.executable, "-c", "import arete as torch\n" + textwrap.dedent(program)], capture_output=True, text=True,
                          timeout=300, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
