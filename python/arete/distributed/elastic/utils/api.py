"""Variables and sockets of launchers."""
from __future__ import annotations

import os
import socket
import string
from typing import Any

__all__ = ["get_env_variable_or_raise", "get_socket_with_port", "macros"]


def get_env_variable_or_raise(env_name: str) -> str:
    """The variable of the environment; ValueError where there is none.

    >>> arete.distributed.elastic.utils.get_env_variable_or_raise("NO_SUCH_VARIABLE")
    Traceback (most recent call last):
    ValueError: Environment variable NO_SUCH_VARIABLE expected, but not set
    """
    if env_name not in os.environ:
        raise ValueError(f"Environment variable {env_name} expected, but not set")
    return os.environ[env_name]


def get_socket_with_port() -> socket.socket:
    """A socket that listens on a free port of this machine, which its owner closes."""
    for family, kind, protocol, _, _ in socket.getaddrinfo("localhost", None, type=socket.SOCK_STREAM):
        found = None
        try:
            found = socket.socket(family, kind, protocol)
            found.bind(("localhost", 0))
            found.listen(0)
            return found
        except OSError:
            if found is not None:
                found.close()
    raise RuntimeError("no socket could be made on localhost")


class macros:  # noqa: N801, torch's name
    """Words in a program's arguments for what only its launcher knows.

    >>> arete.distributed.elastic.utils.macros.substitute(["--rank", "${local_rank}"], "3")
    ['--rank', '3']
    """

    local_rank = "${local_rank}"

    @staticmethod
    def substitute(args: list[Any], local_rank: str) -> list[Any]:
        """The arguments with the rank in their place."""
        return [string.Template(a).safe_substitute(local_rank=local_rank) if isinstance(a, str) else a for a in args]
