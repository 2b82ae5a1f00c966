"""Settings that speak of kernels."""
from ._table import Done, Table, is_truth

TABLE = Table(
    # Kernels are kept on the disk, random numbers are those of eager code, and graphs are used where they help: results that are held are
    # never overwritten, so that there is nothing to switch off.
    met={
        "emulate_precision_casts": Done(False, is_truth, "True or False"), "fallback_random": False, "fx_graph_cache": True,
        "fx_graph_remote_cache": None, "triton.cudagraph_dynamic_shape_warn_limit": 50, "triton.cudagraph_skip_dynamic_graphs": False,
        "triton.cudagraph_support_input_mutation": True, "triton.cudagraph_trees": True, "triton.cudagraphs": False,
    },
    only={"force_disable_caches": (False, (False,), "an empty ARETE_KERNEL_CACHE in the environment keeps no kernels")},
    hints={
        "aggressive_fusion": False, "assert_indirect_indexing": True, "autotune_in_subproc": False, "benchmark_fusion": False,
        "benchmark_harness": True, "benchmark_kernel": False, "comment_origin": False, "compile_threads": None, "conv_1x1_as_mm": False,
        "coordinate_descent_check_all_directions": False, "coordinate_descent_search_radius": 1, "coordinate_descent_tuning": False,
        "cpp.enable_kernel_profile": False, "cpp.simdlen": None, "cpp.threads": -1, "cpp_wrapper": False, "debug": False,
        "debug_fusion": False, "disable_progress": True, "epilogue_fusion": True, "epilogue_fusion_first": False,
        "force_fuse_int_mm_with_mul": False, "freezing": False, "freezing_discard_parameters": False, "group_fusion": False,
        "implicit_fallbacks": True, "inplace_buffers": True, "keep_output_stride": True, "layout_optimization": True,
        "loop_ordering_after_fusion": True, "max_autotune": False, "max_autotune_gemm": False,
        "max_autotune_gemm_backends": "ATEN,TRITON,CPP", "max_autotune_pointwise": False, "max_fusion_size": 64, "memory_planning": False,
        "pattern_matcher": True, "permute_fusion": False, "profile_bandwidth": False, "realize_opcount_threshold": 30,
        "realize_reads_threshold": 4, "reorder_for_compute_comm_overlap": False, "reorder_for_locality": True,
        "reorder_for_peak_memory": True, "shape_padding": True, "size_asserts": True, "split_reductions": True, "trace.enabled": False,
        "trace.graph_diagram": False, "triton.autotune_at_compile_time": None, "triton.autotune_cublasLt": True,
        "triton.autotune_pointwise": True, "triton.dense_indexing": False, "triton.divisible_by_16": True, "triton.max_tiles": None,
        "triton.multi_kernel": 0, "triton.persistent_reductions": True, "triton.store_cubin": False,
        "triton.tiling_prevents_pointwise_fusion": True, "triton.unique_kernel_names": True, "unroll_reductions_threshold": 8,
        "use_mixed_mm": True, "verbose_progress": False, "worker_start_method": "subprocess",
    },
)
