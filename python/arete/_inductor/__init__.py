"""Names of torch._inductor that programs use beside torch.compile (arete.compiler has what they are about)."""
from __future__ import annotations

from typing import Any

from ..compiler import cudagraph_mark_step_begin as cudagraph_mark_step_begin
from . import config as config


def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> dict[str, Any]:
    """What a mode of arete.compile() stands for, by the names of modes; of one mode, its options.

    >>> arete._inductor.list_mode_options("reduce-overhead")
    {'skip': True}
    """
    options: dict[str, dict[str, Any]] = {
        "default": {}, "reduce-overhead": {"skip": True}, "max-autotune-no-cudagraphs": {}, "max-autotune": {}}
    if mode is None:
        return options
    if mode not in options:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(options)}")
    return options[mode]


def list_options() -> list[str]:
    """The names of torch's options of kernels that arete.compile() takes beside its own; most are hints to which nothing answers.

    >>> "max_autotune" in arete._inductor.list_options()
    True
    """
    return sorted(config.get_config_copy())
