"""How torch's names map to records: an entry lists the overloads, each a record with the signature that Python's
users see (None: the record's own). Names that are not here and are records stand for themselves."""

SIGNATURES: dict[str, list[tuple[str, str | None]]] = {
    # reductions
    "amax": [("amax", "amax(Tensor input, int[]? dim=None, bool keepdim=False)")],
    "amin": [("amin", "amin(Tensor input, int[]? dim=None, bool keepdim=False)")],
    "logsumexp": [("logsumexp", "logsumexp(Tensor input, int[] dim, bool keepdim=False)")],
    "clamp_min": [("clamp_min", None), ("maximum", "clamp_min(Tensor self, Tensor other)")],
    "clamp_max": [("clamp_max", None), ("minimum", "clamp_max(Tensor self, Tensor other)")],
    "max": [("max", None), ("max_dim", "max(Tensor input, int dim, bool keepdim=False)"),
            ("maximum", "max(Tensor self, Tensor other)")],
    "min": [("min", None), ("min_dim", "min(Tensor input, int dim, bool keepdim=False)"),
            ("minimum", "min(Tensor self, Tensor other)")],
    "median": [("median", None), ("median_dim", None)],
    "nanmedian": [("nanmedian", None), ("nanmedian_dim", None)],
    "div": [("div", None), ("div_mode", None)],
    "round": [("round", None), ("round_decimals", None)],
    "clamp": [("clamp", None), ("clamp_tensor", None)],
    "gradient": [("gradient", None), ("gradient_coordinates", None)],
    "histogram": [("histogram_count", None), ("histogram", None)],
    "_var": [("var", "var(Tensor input, int[]? dim=None, *, float correction=1, bool keepdim=False)")],
    "_std": [("std", "std(Tensor input, int[]? dim=None, *, float correction=1, bool keepdim=False)")],
    # creation
    "arange": [("arange", "arange(Scalar end, *, Scalar start=0, dtype? dtype=None, device? device=None)"),
               ("arange", None)],
    "randint": [("randint", "randint(int high, int[] size, *, int low=0, dtype? dtype=None, device? device=None, "
                            "Generator? generator=None)"),
                ("randint", None)],
    # shapes
    "scatter": [("scatter", None),
                ("scatter_value", "scatter(Tensor self, int dim, Tensor index, Scalar value, *, str? reduce=None)")],
    "index_fill": [("index_fill", None),
                   ("index_fill_tensor", "index_fill(Tensor self, int dim, Tensor index, Tensor value)")],
    "masked_fill": [("masked_fill", None),
                    ("masked_fill_tensor", "masked_fill(Tensor self, Tensor mask, Tensor value)")],
    "fill": [("fill", None), ("fill_tensor", "fill(Tensor self, Tensor value)")],
    "narrow": [("narrow", None), ("narrow_tensor", "narrow(Tensor self, int dim, Tensor start, int length)")],
    "tensor_split": [("tensor_split", "tensor_split(Tensor self, int sections, int dim=0)"),
                     ("tensor_split_indices", "tensor_split(Tensor self, int[] indices, int dim=0)"),
                     ("tensor_split_tensor",
                      "tensor_split(Tensor self, Tensor tensor_indices_or_sections, int dim=0)")],
    "hsplit": [("hsplit", None), ("hsplit_indices", "hsplit(Tensor self, int[] indices)")],
    "vsplit": [("vsplit", None), ("vsplit_indices", "vsplit(Tensor self, int[] indices)")],
    "dsplit": [("dsplit", None), ("dsplit_indices", "dsplit(Tensor self, int[] indices)")],
    "repeat_interleave": [
        ("repeat_interleave", None),
        ("repeat_interleave_tensor",
         "repeat_interleave(Tensor self, Tensor repeats, int? dim=None, *, int? output_size=None)")],
    "normal": [
        ("normal_tensor_tensor", "normal(Tensor mean, Tensor std, *, Generator? generator=None)"),
        ("normal_tensor_float", "normal(Tensor mean, float std=1, *, Generator? generator=None)"),
        ("normal_float_tensor", "normal(float mean, Tensor std, *, Generator? generator=None)"),
        ("normal_sized", "normal(float mean, float std, int[] size, *, dtype? dtype=None, device? device=None, "
                         "Generator? generator=None)")],
    "bernoulli": [("bernoulli", None),
                  ("bernoulli_tensor", "bernoulli(Tensor self, Tensor p, *, Generator? generator=None)")],
    "swapaxes": [("transpose", "swapaxes(Tensor self, int dim0, int dim1)")],
    "logspace": [("logspace", None)],
    "linspace": [("linspace", None)],
    # linear algebra
    "linalg_norm": [("linalg_norm", None), ("linalg_norm_ord_str", None)],
    "linalg_matrix_norm": [("linalg_matrix_norm", None), ("linalg_matrix_norm_str_ord", None)],
    "linalg_cond": [("linalg_cond", None), ("linalg_cond_str", None)],
    "split": [("split", None), ("split_with_sizes", "split(Tensor self, int[] split_size, int dim=0)".replace(
        "split_size", "split_sizes"))],
    "permute": [("permute", "permute(Tensor input, int[] dims)")],
    "softmin": [("softmin", None)],
}

# Records that are building blocks of others and no names of torch's.
INTERNAL = {
    "absolute_error", "squared_error", "smooth_l1", "huber", "bce", "bce_logits", "bce_logits_weighted",
    "kl_div_point", "kl_div_log_point", "fused_attention", "fused_attention_backward", "fused_norm",
    "fused_norm_backward", "masked_softmax", "softmax_nll", "softmax_nll_backward", "softmax_backward",
    "log_softmax_backward", "seeded_dropout", "masked_scale", "scatter_combine", "scatter_value", "flat_index",
    "embed_window", "embedding_backward", "convolution_dgrad", "convolution_wgrad", "convolution_wgrad_bias",
    "max_pool", "max_pool_values", "max_pool_backward", "avg_pool", "avg_pool_backward", "sigmoid_gate",
    "gelu_erf", "gelu_tanh", "prelu_kernel", "matmul_scaled", "reverse_cumsum", "to_copy", "normal_sized",
    "max_dim", "min_dim", "m", "copy", "fill", "embedding_rows", "transform_lines", "unfold_im2col",
}  # fmt: skip

# Records of torch.nn.functional: no attributes of `arete` itself and no methods.
FUNCTIONAL = {
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "cross_entropy", "nll_loss", "binary_cross_entropy",
    "kl_div", "linear", "scaled_dot_product_attention", "one_hot", "pad", "interpolate", "leaky_relu", "elu",
    "silu", "mish", "softplus", "softsign", "hardtanh", "relu6", "hardsigmoid", "hardswish", "logsigmoid",
    "tanhshrink", "softshrink", "glu", "normalize", "gelu",
    "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool2d", "adaptive_max_pool3d", "avg_pool2d",
    "avg_pool3d", "feature_dropout", "soft_margin_loss", "multi_margin_loss", "multilabel_margin_loss",
    "multilabel_soft_margin_loss", "gaussian_nll_loss", "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_unpool1d",
    "max_unpool2d", "max_unpool3d", "fractional_max_pool2d", "fractional_max_pool3d", "grid_sample", "affine_grid",
    "fold", "local_response_norm", "gumbel_softmax", "dropout1d", "dropout2d", "dropout3d", "upsample_nearest",
    "upsample_bilinear",
}  # fmt: skip

# Not methods of Tensor, though their first argument is a tensor.
NOT_METHODS = {
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "batch_norm",
    "layer_norm", "group_norm", "instance_norm", "rms_norm", "embedding", "dropout", "alpha_dropout", "bilinear",
    "cosine_similarity", "pairwise_distance", "cat", "stack", "hstack", "vstack", "meshgrid", "einsum",
    "searchsorted", "rand_like", "randn_like", "zeros_like", "ones_like", "empty_like", "full_like", "where",
    "pixel_shuffle", "pixel_unshuffle", "constant_pad_nd", "binary_cross_entropy_with_logits",
    "triplet_margin_loss", "margin_ranking_loss", "cosine_embedding_loss", "hinge_embedding_loss",
    "max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "adaptive_avg_pool1d", "adaptive_max_pool1d",
    "embedding_bag", "channel_shuffle", "rrelu", "feature_alpha_dropout", "poisson_nll_loss", "view_as_real_copy",
    "view_as_complex_copy",
}  # fmt: skip

# Other names of the same function.
ALIASES = {
    "moveaxis": "movedim", "swapdims": "swapaxes", "concat": "cat", "concatenate": "cat",
    "row_stack": "vstack", "broadcast_to": "expand", "adjoint": "mT",
}
