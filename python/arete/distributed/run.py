"""`python -m arete.distributed.run` is `arete run`, with the Python that runs it."""
from __future__ import annotations

import os
import shutil
import sys
from typing import Optional, Sequence


def _program() -> str:
    here = os.path.dirname(os.path.abspath(__file__))
    for path in (os.environ.get("ARETE_PROGRAM"), os.path.join(here, "..", "..", "..", "bin", "arete"), shutil.which("arete")):
        if path and os.access(path, os.X_OK):
            return path
    raise FileNotFoundError("the program `arete` is not in PATH: install it, or name it by ARETE_PROGRAM")


def main(args: Optional[Sequence[str]] = None) -> None:
    """Becomes `arete run` with these arguments, or those of the command line."""
    program = _program()
    os.execv(program, [program, "run", "--python", sys.executable, *(sys.argv[1:] if args is None else args)])


if __name__ == "__main__":
    main()
