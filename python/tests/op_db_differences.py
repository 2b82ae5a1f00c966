"""What op_db.py compares of results that are random or not unique, and where arete differs from PyTorch on purpose."""
from __future__ import annotations

import re
from dataclasses import dataclass

import torch

# ---- what can be compared of results that are random or not unique

# Entries whose results are random numbers, or memory without values: of them shapes and dtypes agree.
RANDOM = {
    "bernoulli", "cauchy", "empty", "empty_like", "empty_permuted", "empty_strided", "exponential", "geometric", "log_normal",
    "multinomial", "new_empty", "new_empty_strided", "nn.functional.alpha_dropout", "nn.functional.dropout", "nn.functional.dropout2d",
    "nn.functional.dropout3d", "nn.functional.feature_alpha_dropout", "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d", "nn.functional.rrelu", "normal", "pca_lowrank", "rand_like", "randint", "randint_like", "randn",
    "randn_like", "resize_", "resize_as_", "svd_lowrank", "uniform",
}


def is_random(op, sample):
    if op.name == "nn.functional.multi_head_attention_forward":
        return sample.args[9] > 0 and sample.kwargs.get("training", True)
    return op.name in RANDOM or sample.kwargs.get("dropout_p", 0) > 0


def _gram(t):
    return t.mH @ t


def _svd(results, _, adjoint):
    """A = U S V^H: of the vectors of equal or no singular values only the spaces are unique, and signs never are."""
    u, s, v = results
    if not u.numel() or not v.numel() or not bool(u.count_nonzero()):
        return [s, torch.zeros(u.shape), torch.zeros(v.shape)]
    v = v if adjoint else v.mH
    k = s.shape[-1]
    return [s, (u[..., :k] * s.unsqueeze(-2)) @ v[..., :k, :], _gram(u), _gram(v.mH)]


def _eigh(results, _):
    w, v = results
    return [w, (v * w.unsqueeze(-2)) @ v.mH, _gram(v)]


def _eig(results, sample):
    """A V = V diag(w), with eigenvalues in LAPACK's order and vectors of length 1."""
    w, v = (t.cpu() for t in results)
    return [w, sample.input.cpu().to(v.dtype) @ v - v * w.unsqueeze(-2), torch.linalg.vector_norm(v, dim=-2)]


def _qr(results, _):
    q, r = results
    return [q @ r, _gram(q), r.abs()] if q.dim() > 1 else [r.abs()]


def _positions(place, default=-1, alone=False):
    """Positions of elements among the results, as the elements that stand there: any of equal ones may.

    `alone`: they are the result."""

    def invariant(results, sample):
        dim = sample.kwargs.get("dim", sample.args[place] if len(sample.args) > place else default)
        x = sample.input.detach().cpu()
        if not isinstance(dim, int) or isinstance(dim, bool) or not x.dim() or alone == isinstance(results, (tuple, list)):
            return results
        results = list(results) if isinstance(results, (tuple, list)) else [results]

        def shown(r):
            if r.dtype is not torch.int64 or r.dim() not in (x.dim(), x.dim() - 1) or r is results[0] and len(results) > 1:
                return r
            at = r if r.dim() == x.dim() else r.unsqueeze(dim)
            return x.gather(dim, at.cpu()).reshape(r.shape)

        return [shown(r) for r in results]

    return invariant


def _mode(results, sample):
    """How often the values occur, and what stands at the positions: any of equally frequent ones may."""
    values, at = _positions(0)(results, sample) if isinstance(results, (tuple, list)) else (results, None)
    x = sample.input.detach().cpu()
    dim = sample.kwargs.get("dim", sample.args[0] if sample.args else -1)
    if at is None or not x.dim() or values.dim() not in (x.dim(), x.dim() - 1):
        return results
    often = (x == (values if values.dim() == x.dim() else values.unsqueeze(dim)).cpu()).sum(dim)
    return [often, at.cpu() == values.cpu()]


INVARIANT = {
    "linalg.svd": lambda r, s: _svd(r, s, True), "svd": lambda r, s: _svd(r, s, False), "linalg.eigh": _eigh, "linalg.eig": _eig,
    "linalg.qr": _qr, "qr": _qr, "argsort": _positions(0, alone=True), "sort": _positions(0), "topk": _positions(1),
    "kthvalue": _positions(1),
    "median": _positions(0), "nanmedian": _positions(0), "mode": _mode,
}


# ---- where arete differs on purpose


@dataclass(frozen=True)
class Difference:
    """Failures of these entries and checks in these dtypes (regular expressions that match the whole) whose text begins as
    `text` says. On `device` only, if it is given."""

    entries: str
    check: str
    text: str
    reason: str
    dtypes: str = ".*"
    device: str = ""

    def covers(self, failure):
        entry, dtype, check, text = failure
        return (re.fullmatch(self.entries, entry) and re.fullmatch(self.check, check) and re.fullmatch(self.dtypes, dtype)
                and re.match(self.text, text)) is not None

    def on(self, device):
        return self.device in ("", device.partition(":")[0])


_LOW = "(bfloat16|float16)"
_COMPLEX = "(complex64|complex128)"
_NUMBERS = "numbers stand for tensors wherever one argument would be one: nothing else could be meant"
_INTERNAL = "internal operators of PyTorch, which programs do not call"
_RULES = "a matter of the order of checks: the same call is refused, with another kind of exception"

DIFFERENCES = [
    # What is left out.
    Difference(r"linalg\.ldl_.*", ".*", ".*complex numbers are not supported", "of complex matrices: programs take LU factors", _COMPLEX),
    Difference(r"linspace.*|logspace.*|logaddexp|logcumsumexp|.*softm(ax|in)\.with_dtype|nn\.functional\.rms_norm|"
               r"masked\.(var|std|logsumexp)", ".*", ".*(Error|differ|instead|missing|needs)",
               "no meaning or no use for complex numbers has been found", _COMPLEX),
    Difference("chalf|view_as_complex|complex", ".*", ".*(chalf|is only supported for|Expected both inputs to be)",
               "complex numbers have 64 or 128 bits"),
    Difference(r"sparse\..*", ".*", ".*Sparse CSR tensors do not have is_contiguous",
               "this comparison does not copy operands of layout sparse_csr; test_sparse.py has them"),
    Difference(r"_.*|torch\..*|slice|native_batch_norm|native_dropout_backward|max_pool2d_with_indices_backward", ".*",
               ".*(does not exist|no attribute)", _INTERNAL),
    Difference("jiterator_.*", "function|error", "does not exist",
               "their argument is CUDA source; arete.numpy.ElementwiseKernel is the counterpart"),
    Difference("hash_tensor", ".*", "does not exist", "its result is an unsigned 64-bit number"),
    Difference("matrix_exp", ".*", ".*Low precision dtypes not supported", "computed in float32 and float64 only", _LOW),
    Difference(r"nn\.functional\.(interpolate\.(bilinear|bicubic)|upsample_bilinear)", ".*",
               "DTypeError: interpolating modes need a floating dtype",
               "of bytes only on CPUs, in PyTorch, too; pictures are scaled by arete.vision", "uint8"),
    Difference("am(ax|in)|aminmax", "error", "(ArgumentError: )?tensors have at most 16 dimensions",
               "the sample has 65 dimensions"),
    # Where PyTorch's result is not what it says it is, or a choice.
    Difference("as_strided_scatter", "gradient", "gradient 0",
               "PyTorch gives elements that are overwritten a gradient; its own gradcheck refuses that"),
    Difference(r"special\.(airy_ai|bessel_[jy][01])", ".*", "", "PyTorch's is known to 1e-8, ours to 1e-15", "float64"),
    Difference("nn\\.functional\\.hardsigmoid", "gradient", "gradient 0", "PyTorch's 1/6 is a float32", "float64"),
    Difference("nn\\.functional\\.hards(igmoid|wish)", "function|strided|in place", "(result|in place): ",
               "PyTorch's 1/6 is a float32", "float64", "cuda"),
    Difference(r"fft\..*", ".*", ".*DTypeError: Unsupported dtype float16", "complex numbers have 64 or 128 bits", "float16", "cuda"),
    Difference("(special\\.)?polygamma.*", ".*", r".*\[(inf\]|inf, inf, inf)", "poles: PyTorch's are large numbers where pi x is rounded"),
    Difference(r"special\.airy_ai", "function", "result", "far from zero PyTorch's is right to three digits", "int(16|32|64)"),
    Difference(r"special\.(zeta|airy_ai)|signal\.windows\.kaiser", ".*", ".*instead of .*nan",
               "PyTorch's is NaN where arguments are large"),
    Difference("igammac?", ".*", ".*nan", "infinite arguments of which there is no limit"),
    Difference("gcd|nn\\.functional\\.softsign", "function|in place", "(result|in place): ", "PyTorch's of -128 overflow", "int8"),
    Difference("byte|char|short|int|long", "function", r"result: \[",
               "numbers that the integers do not hold: the nearest here, anything in C", "(b?float|complex).*"),
    Difference("__rdiv__|__rpow__|pow|float_power|ldexp|expm1|log1p|reciprocal|sinh?", "function|in place", ".*(nan|inf)",
               "complex numbers that are not finite: which of their parts are, and 1 for x**0", _COMPLEX),
    Difference("cov", "function|method|strided|gradient", "(result|gradient)", "weights in float32 are summed in float64",
               "float64|complex128"),
    Difference(r"linalg\.norm\.subgradients_at_zero|masked\.logaddexp", "gradient", "second gradient 0: .*instead of .*nan",
               "no slope has no slope: zeros, where PyTorch divides by zero", "float64"),
    Difference("istft", "gradient", "gradient 1: unexpected", "PyTorch leaves out the gradient of some windows", _COMPLEX),
    Difference("all|any", ".*", "result.*torch.bool instead of torch.uint8", "all and any answer yes or no", "uint8"),
    Difference(r"topk|mode|kthvalue|(scatter|index)_reduce\.am(ax|in)", "gradient", "gradient [01]",
               "ties: which of equal elements has the gradient, or how they share it", _LOW),
    Difference(r"linalg\.lstsq(\.grad_oriented)?", "gradient", "AutogradError: element 1",
               "PyTorch's empty residuals claim to have a gradient"),
    Difference("addbmm", "in place", "in place: ArgumentError: output with shape",
               "PyTorch's grows self; elsewhere that is refused, in PyTorch, too"),
    Difference("abs", "in place", "in place: no error", "abs_() of complex numbers leaves complex numbers with no imaginary part",
               _COMPLEX),
    # Rounding.
    Difference(r"cdist|cov|linalg\.cond|(linalg\.)?svd", "function|gradient", r"(result|gradient \d): \[",
               "differences of like numbers in float32, some ten times its precision", "float32"),
    Difference(r"nn\.functional\.grid_sample", "function", r"result: \[",
               "differences of like numbers in float32, some ten times its precision", "float32"),
    Difference(r"nn\.functional\.(scaled_dot_product_attention|multi_head_attention_forward|normalize|batch_norm|conv3d|grid_sample|"
               r"interpolate\.bi(cubic|linear)|upsample_bilinear)|grid_sampler_[23]d|addr|gradient|masked\.cumprod",
               "function|strided|method|gradient", r"(result|gradient \d: \[)", "rounded to half precision at other places", _LOW),
    # Calls.
    Difference(r"__r(mod|pow|sub|div)__", "function", "TypeError: descriptor", "PyTorch's are functions, which take numbers for self, too"),
    Difference("float_power", "in place", "in place: AttributeError", _RULES),
    # Results into out=.
    Difference(".*", "out", "out with a gradient: AutogradError", "out= with a gradient is refused by operators without one, too"),
    Difference(".*", "out", "out of another size: a warning of a change", "every operator warns when it changes the size of out="),
    Difference(".*", "out", "out of (float64|int64): no error instead of (RuntimeError|NotImplementedError): ",
               "a wider dtype of out= takes the result"),
    Difference("bernoulli|normal.*|lu|nanmean|logsumexp", "out", "out of (int64|float64): DTypeError",
               "fractions are not written to integers"),
    Difference("matmul|nn\\.functional\\.linear|fft\\.ihfftn", "out", ".*: no warning of a change", "PyTorch changes the size on its way"),
    Difference("normal.*", "out", "empty out: no error", "out= is resized, as elsewhere"),
    Difference("geqrf|linalg\\.(matrix_rank|pinv)(\\.hermitian)?", "out", "out of float64: DTypeError", "out= has the dtype of the result"),
    Difference("cumprod|cumsum|mean|nansum|nanmean", "out", "out of (float64|int64): DTypeError: result type complex(64|128) can't be cast",
               "the imaginary part would be lost"),
    Difference("mean|histc", "out", "out of int64: DTypeError", "fractions are not written to integers", device="cuda"),
    Difference("narrow_copy", "out", ".*no error instead of NotImplementedError", "PyTorch's has no out= on GPUs", device="cuda"),
    Difference("nonzero", "out", "out of the right size: no error instead of TypeError", "a tuple of one tensor is taken for it"),
    Difference(".*", "out", "out on another device: DeviceError", "PyTorch writes to meta tensors of some operators: nothing"),
    # Errors.
    Difference(".*", "error", "error: no error instead of (TypeError: .*(must be Tensor, not (int|float)|invalid combination)|"
               "AttributeError: 'int')", _NUMBERS),
    Difference("linspace.*|logspace.*|am(ax|in)|narrow|narrow_copy|gather|scatter|scatter_add|nn\\.functional\\.multi(label)?_margin_loss",
               "error",
               "error: .*Error: .*instead of", _RULES),
    Difference(r"nn\.functional\.(max_pool1d|max_pool3d|prelu)", "error", "error: no error",
               "nothing is wrong with these: an empty batch, a number"),
    Difference("multinomial|complex|gather|am(ax|in)|aminmax", "error",
               "error: no error instead of RuntimeError: .*(xpect|scalar type|dtype)",
               "a wider dtype of out= takes the result"),
    Difference("masked_fill", "error", "error: no error", "a number may lie on any device", device="cuda"),
    Difference("histogramdd", "error", "error: ArgumentError", "PyTorch has none on GPUs", device="cuda"),
    Difference("median", "error", "error: .*tensors have at most 16 dimensions|tensors have at most 16", "the sample has 25 dimensions",
               device="cuda"),
    Difference("multinomial", "error", "error: no error", "probabilities are looked at on the device only: a check would wait for it",
               device="cuda"),
    Difference("index_select", "error", "error: no error", "out= that overlaps itself: the last of the values written stays"),
]


def known(failure, device):
    """The number of the entry of the table that covers a failure, or None."""
    for i, d in enumerate(DIFFERENCES):
        if d.on(device) and d.covers(failure):
            return i
    return None
