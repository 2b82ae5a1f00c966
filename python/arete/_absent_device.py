"""What modules of devices answer that no machine has here: none, nothing in use, and an error for what needs one."""
from __future__ import annotations

from typing import Any

_QUESTIONS: dict[str, Any] = {
    "is_available": False, "is_initialized": False, "is_bf16_supported": False, "is_current_stream_capturing": False,
    "_is_in_bad_fork": False,
    "device_count": 0, "memory_allocated": 0, "max_memory_allocated": 0, "memory_reserved": 0, "max_memory_reserved": 0,
    "current_allocated_memory": 0, "driver_allocated_memory": 0, "recommended_max_memory": 0, "memory_stats": {}, "get_arch_list": [],
    "get_rng_state_all": [],
    # What is of all devices is of none.
    "empty_cache": None, "manual_seed": None, "manual_seed_all": None, "seed": None, "seed_all": None, "set_rng_state_all": None,
}
_ACTIONS = ("current_device", "set_device", "get_device_name", "get_device_properties", "get_device_capability", "synchronize",
            "mem_get_info",
            "get_rng_state", "set_rng_state", "reset_peak_memory_stats", "current_stream", "set_stream", "stream", "device", "Stream",
            "Event",
            "init", "set_per_process_memory_fraction")


def questions(module: str, kind: str) -> dict[str, Any]:
    """The functions of such a module."""

    def answering(name: str, answer: Any) -> Any:
        def function(*args: Any, **kwargs: Any) -> Any:
            return type(answer)(answer) if isinstance(answer, (dict, list)) else answer

        function.__doc__ = f"{answer!r}, since there are no such devices."
        return function

    def refusing(name: str) -> Any:
        def function(*args: Any, **kwargs: Any) -> Any:
            raise RuntimeError(f"{module}.{name}(): there are no devices of the kind '{kind}', which Arete does not support")

        function.__doc__ = "RuntimeError: there are no such devices."
        return function

    made = {**{name: answering(name, answer) for name, answer in _QUESTIONS.items()}, **{name: refusing(name) for name in _ACTIONS}}
    for name, function in made.items():
        function.__name__ = function.__qualname__ = name
        function.__module__ = module
    return {**made, "__all__": sorted(name for name in made if not name.startswith("_"))}
