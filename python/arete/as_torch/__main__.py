"""python -m arete.as_torch [options of python] (program.py | -m module | -c code) arguments"""
from __future__ import annotations

import os
import subprocess
import sys

from . import PATH

if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
    sys.exit(f"usage: {__doc__}")
if sys.flags.ignore_environment:
    sys.exit("arete.as_torch hands its folder on by PYTHONPATH, which this interpreter is told to ignore (-E or -I)")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (PATH, os.environ.get("PYTHONPATH"))))
arguments = [sys.executable, *subprocess._args_from_interpreter_flags(), *sys.argv[1:]]  # type: ignore[attr-defined]
sys.stdout.flush()
os.execv(sys.executable, arguments)
