"""What a report of an error should say of the machine: python -m arete.utils.collect_env"""
from __future__ import annotations

import os
import platform
import sys

from .. import _C, version

__all__ = ["get_env_info", "get_pretty_env_info", "main"]


def get_env_info() -> dict:
    """Versions of what runs, by their names."""
    return {"Arete version": version.__version__, "Python version": sys.version.replace("\n", " "), "OS": platform.platform(),
            "CPU": platform.processor() or platform.machine(), "Number of CPUs": os.cpu_count(),
            **{f"CUDA {name}": its for name, its in dict(_C._cuda.versions()).items()}}


def get_pretty_env_info() -> str:
    """get_env_info() as lines of text."""
    return "\n".join(f"{name}: {value}" for name, value in get_env_info().items())


def main() -> None:
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
