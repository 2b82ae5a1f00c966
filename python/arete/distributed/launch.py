"""`python -m arete.distributed.launch`: the older name of `arete.distributed.run`."""
from __future__ import annotations

from .run import main

if __name__ == "__main__":
    main()
