"""How torch's names map to records: an entry lists the overloads, each a record with the signature that Python's
users see (None: the record's own). Names that are not here and are records stand for themselves."""

SIGNATURES: dict[str, list[tuple[str, str | None]]] = {
    # reductions
    "amax": [("amax", "amax(Tensor input, int[]? dim=None, bool keepdim=False)")],
    "amin": [("amin", "amin(Tensor input, int[]? dim=None, bool keepdim=False)")],
    "logsumexp": [("logsumexp", "logsumexp(Tensor input, int[] dim, bool keepdim=False)")],
    "clamp_min": [("clamp_min", None), ("clamp_tensor", "clamp_min(Tensor self, Tensor min)")],
    "clamp_max": [("clamp_max", None), ("clamp_tensor", "clamp_max(Tensor self, Tensor max)")],
    "max": [("max", None), ("max_dim", "max(Tensor input, int dim, bool keepdim=False)"),
            ("maximum", "max(Tensor self, Tensor other)")],
    "min": [("min", None), ("min_dim", "min(Tensor input, int dim, bool keepdim=False)"),
            ("minimum", "min(Tensor self, Tensor other)")],
    "median": [("median", None), ("median_dim", None)],
    "nanmedian": [("nanmedian", None), ("nanmedian_dim", None)],
    "div": [("div", None), ("div_mode", None)],
    "round": [("round", None), ("round_decimals", None)],
    "clamp": [("clamp", None), ("clamp_tensor", None)],
    **{name: [(name, f"{name}(Tensor input, int[]? dim=None, *, float? correction=None, bool keepdim=False)"),
              (name, f"{name}(Tensor input, int[]? dim, bool unbiased=True, bool keepdim=False)"),
              (name, f"{name}(Tensor input, bool unbiased=True)")] for name in ("var", "std", "var_mean", "std_mean")},
    # order and search
    **{name: [(name, None), (name, f"{name}(Tensor self, Scalar q, int? dim=None, bool keepdim=False, *, "
                                   "str interpolation='linear')")] for name in ("quantile", "nanquantile")},
    "searchsorted": [("searchsorted", None),
                     ("searchsorted", "searchsorted(Tensor sorted_sequence, Scalar self, *, bool out_int32=False, "
                                      "bool right=False, str? side=None, Tensor? sorter=None)")],
    "bucketize": [("bucketize", None),
                  ("bucketize", "bucketize(Scalar self, Tensor boundaries, *, bool out_int32=False, bool right=False)")],
    "isin": [("isin", None),
             ("isin", "isin(Scalar elements, Tensor test_elements, *, bool assume_unique=False, bool invert=False)"),
             ("isin", "isin(Tensor elements, Scalar test_elements, *, bool assume_unique=False, bool invert=False)")],
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
    **{name: [(name, None), (name + "_padding", f"{name}(Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, "
                             "str padding='valid', int[] dilation=1, int groups=1)")]
       for name in ("conv1d", "conv2d", "conv3d")},
}

# Other names of the same function.
ALIASES = {
    "moveaxis": "movedim", "swapdims": "swapaxes", "concat": "cat", "concatenate": "cat",
    "row_stack": "vstack", "broadcast_to": "expand",
}
