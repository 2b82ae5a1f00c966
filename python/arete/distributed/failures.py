"""What is known of calls when they do not end."""
from __future__ import annotations

import json
from typing import Any, Optional

from .. import _C

_d = _C._distributed


def flight_record(recent: Optional[int] = None) -> dict[str, Any]:
    """The last 2048 calls of this process' groups, under the names of PyTorch's flight recorder; `recent`: of each group only so many,
    the first that are under way. Beside `entries` there are rank, host, pid, groups and the place where the program is.

    >>> dist = arete.distributed
    >>> dist.init_process_group("fake", rank=0, world_size=2)
    >>> dist.all_reduce(arete.ones(2, 3))
    >>> last = dist.flight_record()["entries"][-1]
    >>> last["signature"], last["input_sizes"], last["state"]
    ('all_reduce SUM float32 of 6 elements', [[2, 3]], 'completed')
    >>> dist.destroy_process_group()
    """
    if recent is not None and recent < 1:
        raise ValueError("flight_record: recent must be positive")
    return json.loads(_d.flight_record(recent or 0))


def write_flight_record(folder: str) -> None:
    """Writes it to `folder`/rank_N.json, which `arete run --diagnose` reads. With the environment variable ARETE_FLIGHT_DIR each process
    does so when something goes wrong.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     arete.distributed.write_flight_record(folder)
    ...     os.listdir(folder)
    ['rank_0.json']
    """
    _d.write_flight_record(str(folder))


def last_report() -> str:
    """What the monitor said last of ranks that keep others waiting; "" if nothing.

    >>> arete.distributed.last_report()
    ''
    """
    return _d.last_report()
