"""Settings that speak of the translation of Python, which is not translated here: all of a function runs."""
from ._table import Table

TABLE = Table(
    # No number of shapes or functions is too many, sizes may change, the calls of all modules run, and the backward pass and the exchange
    # of gradients belong to plans.
    met={
        "accumulated_cache_size_limit": 256, "accumulated_recompile_limit": 256, "allow_rnn": False, "allow_unspec_int_on_nn_module": False,
        "assume_static_by_default": True, "automatic_dynamic_shapes": True, "cache_size_limit": 8, "compiled_autograd": False,
        "dynamic_shapes": True, "fail_on_cache_limit_hit": False, "fail_on_recompile_limit_hit": False,
        "force_nn_module_property_static_shapes": True, "force_parameter_static_shapes": True, "guard_nn_modules": True,
        "guard_nn_modules_using_dict_tags": True, "inline_inbuilt_nn_modules": True, "optimize_ddp": True, "recompile_limit": 8,
        "skip_fsdp_guards": True, "skip_nnmodule_hook_guards": True, "specialize_float": False, "specialize_int": False,
        "suppress_errors": False,
    },
    only={"error_on_recompile": (False, (False,), "another plan is made in milliseconds where calls differ, and that is no error")},
    hints={
        "capture_dynamic_output_shape_ops": False, "capture_scalar_outputs": False, "enable_compiler_collectives": False,
        "log_file_name": None, "log_level": None, "optimize_user_defined_triton_kernels": True, "repro_after": None, "repro_level": 2,
        "report_guard_failures": True, "verbose": False,
    },
)
