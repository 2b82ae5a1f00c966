"""How long threads look for work, which OpenMP's runtime reads as the library is loaded."""
import os
import re
import subprocess
import sys

import pytest


def spin_count(program, **environment):
    """What GNU's runtime says in a new process, and what the program prints."""
    plain = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    ran = subprocess.run([sys.executable, "-c", program], env={**plain, "OMP_DISPLAY_ENV": "verbose", **environment}, capture_output=True,
                         text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    said = re.search(r"GOMP_SPINCOUNT = '(\d+)'", ran.stderr)
    return said and int(said[1]), ran.stdout.strip()


def test_threads_without_work_sleep_soon():
    shows = "import os, arete; arete.ones(100000).sum(); print(os.environ.get('GOMP_SPINCOUNT'), os.environ.get('OMP_WAIT_POLICY'))"
    if spin_count(shows, GOMP_SPINCOUNT="77") != (77, "77 None"):
        pytest.skip("the library does not use GNU's OpenMP")
    assert spin_count(shows) == (1000, "None None")  # and programs that are started from there are not told
    assert spin_count(shows, OMP_WAIT_POLICY="passive") == (0, "None passive")
    assert spin_count(shows, OMP_WAIT_POLICY="active")[0] > 10**9
    assert spin_count("import arete.numpy as np; np.ones(3)")[0] == 1000
