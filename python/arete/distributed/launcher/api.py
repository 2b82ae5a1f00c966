"""Functions in several processes of this machine, with the environment that init_process_group() reads."""
from __future__ import annotations

import os
import pickle
import subprocess
import tempfile
import uuid
from dataclasses import dataclass, field
from typing import Any, Callable, Optional, Sequence, Union

from ...multiprocessing import start_processes
from ...multiprocessing.spawn import ProcessException
from ..elastic.multiprocessing.errors import ChildFailedError
from ..elastic.utils.distributed import get_free_port

__all__ = ["LaunchConfig", "elastic_launch", "launch_agent"]


@dataclass
class LaunchConfig:
    """How many processes elastic_launch() starts, and how. `rdzv_endpoint` "host:port" is where rank 0 listens; without a port, or with
    port 0, a free one is taken for each start. Nobody has to be found on one machine, so no limit of a search, `rdzv_timeout` or one of
    `rdzv_configs`, is ever met, and processes are watched without a pause, whatever `monitor_interval` says. NotImplementedError for
    several machines (`arete run` starts programs there), and for what this package has not: log files, metrics, events, filters of
    output and processors for processes."""

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    logs_specs: Any = None
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "c10d"
    rdzv_configs: dict = field(default_factory=dict)
    rdzv_timeout: int = -1
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_line_prefix_template: Optional[str] = None
    metrics_cfg: dict = field(default_factory=dict)
    local_addr: Optional[str] = None
    event_log_handler: str = "null"
    numa_options: Any = None
    signals_to_handle: str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    duplicate_stdout_filters: Optional[list] = None
    duplicate_stderr_filters: Optional[list] = None
    virtual_local_rank: bool = False

    def __post_init__(self) -> None:
        if (self.min_nodes, self.max_nodes) != (1, 1):
            raise NotImplementedError("LaunchConfig: functions are started on one machine (min_nodes = max_nodes = 1); `arete run` starts "
                                      "programs on several")
        if self.nproc_per_node < 1 or self.max_restarts < 0:
            raise ValueError("LaunchConfig: nproc_per_node must be positive and max_restarts not negative")
        if self.rdzv_backend not in ("c10d", "static"):
            raise NotImplementedError(f"LaunchConfig: there is no rendezvous backend '{self.rdzv_backend}', but c10d and static")
        for name, value in self.rdzv_configs.items():
            if "timeout" not in name and (name, value) != ("rank", 0):
                raise NotImplementedError(f"LaunchConfig: rdzv_configs may hold limits of time and the rank 0 of one machine, not '{name}'")
        self._refuse("logs_specs", "log_line_prefix_template", "metrics_cfg", "duplicate_stdout_filters", "duplicate_stderr_filters",
                     "virtual_local_rank")
        if self.event_log_handler != "null" or self.signals_to_handle != LaunchConfig.signals_to_handle:
            raise NotImplementedError("LaunchConfig: event_log_handler and signals_to_handle keep their defaults")

    def _refuse(self, *names: str) -> None:
        for name in names:
            if getattr(self, name):
                raise NotImplementedError(f"LaunchConfig: {name} is not supported: leave its default")


def _address(config: LaunchConfig) -> tuple:
    host, _, port = config.rdzv_endpoint.rpartition(":") if ":" in config.rdzv_endpoint else (config.rdzv_endpoint, "", "")
    host = host or config.local_addr or "127.0.0.1"
    if port and int(port):
        return host, int(port)
    return host, get_free_port()


def _work(rank: int, environment: dict, entrypoint: Union[Callable, str], args: Sequence[Any], folder: str) -> None:
    os.environ.update(environment, RANK=str(rank), LOCAL_RANK=str(rank), ROLE_RANK=str(rank))
    if isinstance(entrypoint, str):
        code = subprocess.run([entrypoint, *map(str, args)], check=False).returncode
        if code:
            raise SystemExit(code if code > 0 else 128 - code)
        return
    value = entrypoint(*args)
    with open(os.path.join(folder, str(rank)), "wb") as file:
        pickle.dump(value, file)


def launch_agent(config: LaunchConfig, entrypoint: Union[Callable, str, None], args: Sequence[Any]) -> dict:
    """Calls the function, or runs the program, in `nproc_per_node` processes and gives what each rank returned (None of programs).
    Where one fails, the others are ended and all are started anew, `max_restarts` times; then it is a ChildFailedError."""
    if entrypoint is None:
        raise ValueError("elastic_launch: expected a function or the path of a program")
    config._refuse("numa_options")  # accelerate makes a config with them and takes them out
    count, name = config.nproc_per_node, entrypoint if isinstance(entrypoint, str) else entrypoint.__name__
    run_id = config.run_id or uuid.uuid4().hex
    for attempt in range(config.max_restarts + 1):
        host, port = _address(config)
        environment = {
            "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1",
            "ROLE_NAME": config.role, "ROLE_WORLD_SIZE": str(count), "MASTER_ADDR": host, "MASTER_PORT": str(port),
            # Rank 0 has the store: there is no server here.
            "TORCHELASTIC_USE_AGENT_STORE": "False", "TORCHELASTIC_RESTART_COUNT": str(attempt),
            "TORCHELASTIC_MAX_RESTARTS": str(config.max_restarts), "TORCHELASTIC_RUN_ID": run_id}
        with tempfile.TemporaryDirectory() as folder:
            try:
                start_processes(_work, (environment, entrypoint, args, folder), count, start_method=config.start_method)
            except ProcessException as error:
                if attempt == config.max_restarts:
                    raise ChildFailedError(name, {error.error_index: error}) from error
                continue
            if isinstance(entrypoint, str):
                return dict.fromkeys(range(count))
            results = {}
            for rank in range(count):
                with open(os.path.join(folder, str(rank)), "rb") as file:
                    results[rank] = pickle.load(file)
            return results
    raise AssertionError("not reached")


class elastic_launch:
    """elastic_launch(config, function)(*args) is what function(*args) returns in each of the processes, by rank; a program's path and
    its arguments run that. With the start method "spawn" the function is one of a module.

    >>> from arete.distributed.launcher import LaunchConfig, elastic_launch
    >>> def work(x):
    ...     import os
    ...     return x + int(os.environ["RANK"])
    >>> elastic_launch(LaunchConfig(1, 1, 2, start_method="fork"), work)(10)
    {0: 10, 1: 11}
    """

    def __init__(self, config: LaunchConfig, entrypoint: Union[Callable, str, None]) -> None:
        self._config, self._entrypoint = config, entrypoint

    def __call__(self, *args: Any) -> dict:
        return launch_agent(self._config, self._entrypoint, args)
