"""`python -m arete.distributed.run` is `arete run`, with the Python that runs it."""
from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from typing import Any, Optional, Sequence

from .elastic.multiprocessing.errors import ChildFailedError

# Options of torchrun that `arete run` has, with torch's defaults, and those that it has not.
_OPTIONS: dict[str, Any] = {
    "nnodes": "1:1", "nproc_per_node": "1", "rdzv_backend": "static", "rdzv_endpoint": "", "rdzv_id": "none", "rdzv_conf": "",
    "standalone": False, "max_restarts": 0, "monitor_interval": 0.1, "start_method": "spawn", "role": "default", "module": False,
    "no_python": False, "log_dir": None, "redirects": "0", "tee": "0", "local_ranks_filter": "", "node_rank": 0, "master_addr": "127.0.0.1",
    "master_port": 29500, "numa_binding": None,
}
_ABSENT: dict[str, Any] = {
    "event_log_handler": "null", "run_path": False, "local_addr": None, "logs_specs": None, "duplicate_stdout_filters": [],
    "duplicate_stderr_filters": [], "signals_to_handle": "SIGTERM,SIGINT,SIGHUP,SIGQUIT", "virtual_local_rank": False,
}
_SHORT = {"module": "-m", "redirects": "-r", "tee": "-t"}


def _program() -> str:
    here = os.path.dirname(os.path.abspath(__file__))
    for path in (os.environ.get("ARETE_PROGRAM"), os.path.join(here, "..", "..", "..", "bin", "arete"), shutil.which("arete")):
        if path and os.access(path, os.X_OK):
            return path
    raise FileNotFoundError("the program `arete` is not in PATH: install it, or name it by ARETE_PROGRAM")


def get_args_parser() -> argparse.ArgumentParser:
    """A parser of torchrun's options. Environment variables PET_NNODES and so on are other defaults, as for torchrun.

    >>> arete.distributed.run.get_args_parser().parse_args(["--nproc-per-node=2", "train.py", "--lr", "1"]).training_script_args
    ['--lr', '1']
    """
    parser = argparse.ArgumentParser(description="Starts the processes of a distributed program: see `arete run --help`.")
    for name, default in {**_OPTIONS, **_ABSENT}.items():
        words = [_SHORT[name]] if name in _SHORT else []
        words += dict.fromkeys((f"--{name.replace('_', '-')}", f"--{name}"))
        given = os.environ.get(f"PET_{name.upper()}")
        if isinstance(default, bool):
            parser.add_argument(*words, dest=name, action="store_true", default=default if given is None else given != "0")
        elif isinstance(default, list):
            parser.add_argument(*words, dest=name, nargs="+", default=default)
        else:
            kind = str if default is None else type(default)
            parser.add_argument(*words, dest=name, type=kind, default=default if given is None else kind(given))
    parser.add_argument("training_script")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return parser


def parse_args(args: Optional[Sequence[str]]) -> argparse.Namespace:
    """What get_args_parser() makes of these words, or of the command line."""
    return get_args_parser().parse_args(args)


def _words(args: argparse.Namespace) -> list[str]:
    """The words of `arete run` that say what `args` holds."""
    for name, default in _ABSENT.items():
        if getattr(args, name, default) not in (default, None):
            raise NotImplementedError(f"run: {name} is not supported: leave its default")
    words = []
    for name, default in _OPTIONS.items():
        value = getattr(args, name, default)
        if value is None or value == default:
            continue
        words += [f"--{name.replace('_', '-')}"] if value is True else [f"--{name.replace('_', '-')}={value}"]
    return [*words, args.training_script, *args.training_script_args]


def run(args: argparse.Namespace) -> None:
    """`arete run` with parsed options, until all processes have ended. ChildFailedError if one has failed; NotImplementedError for
    options that `arete run` has not."""
    code = subprocess.call([_program(), "run", "--python", sys.executable, *_words(args)])
    if code:
        raise ChildFailedError(args.training_script, {0: RuntimeError(f"`arete run` ended with exit code {code}")})


def main(args: Optional[Sequence[str]] = None) -> None:
    """Becomes `arete run` with these arguments, or those of the command line."""
    program = _program()
    os.execv(program, [program, "run", "--python", sys.executable, *(sys.argv[1:] if args is None else args)])


if __name__ == "__main__":
    main()
