"""Settings that speak of the backward pass."""
from ._table import Done, Table, is_part

TABLE = Table(
    # Plans of backward passes are kept as those of forward passes are, and what is computed again draws the same random numbers.
    met={
        "activation_memory_budget": Done(1.0, is_part, "a number from 0 to 1"), "autograd_cache_allow_custom_autograd_functions": False,
        "enable_autograd_cache": True, "enable_remote_autograd_cache": None, "functionalize_rng_ops": False,
        "treat_parameters_as_free_to_save": True,
    },
    only={},
    hints={
        "activation_memory_budget_runtime_estimator": "flops", "activation_memory_budget_solver": "dp", "aggressive_recomputation": False,
        "ban_recompute_not_in_allowlist": True, "ban_recompute_reductions": True, "donated_buffer": True, "recompute_views": False,
        "view_replay_for_aliased_outputs": True,
    },
)
