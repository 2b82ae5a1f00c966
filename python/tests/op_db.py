"""Drives PyTorch's operator database against arete: every sample of every entry, results and gradients.

    python op_db.py [--device cuda] [--dtype float32,int64] [--filter REGEX] [--verbose] [--json FILE]

Prints agreed / samples for each entry and, for each dtype, of how many of the entries that PyTorch has for it all
samples agree. Needs torch (its CPU results are the reference); samples whose arguments arete cannot represent (sparse,
complex, ...) count as skipped. A result that is further from torch's than that dtype's tolerance also agrees if it is as
close to torch's result in float64. Gradients are those of what torch's own gradient tests look at: behind
output_process_fn_grad (only solutions of lstsq, ...) and gradcheck_wrapper (triangular inputs of operators that read one
triangle, ...)."""
from __future__ import annotations

import argparse
import json
import re
import sys
import warnings

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import SampleInput

import arete

warnings.filterwarnings("ignore")
# The import forbids torch.backends.cudnn.allow_tf32 = ... in the whole process, which programs in other tests say.
torch.backends.disable_global_flags.__globals__["__allow_nonbracketed_mutation_flag"] = True

DTYPES = {getattr(torch, n): getattr(arete, n) for n in (
    "float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool", "complex64",
    "complex128")}  # fmt: skip
BACK = {v: k for k, v in DTYPES.items()}


class Unsupported(Exception):
    """The sample needs something that arete leaves out on purpose."""


def to_arete(x, device):
    if isinstance(x, torch.Tensor):
        if x.layout is not torch.strided or x.dtype not in DTYPES:
            raise Unsupported(f"{x.layout} {x.dtype}")
        t = x.detach()
        if t.is_conj() or t.is_neg():
            raise Unsupported("lazy conjugate")
        # The whole memory with the same strides, so that views and layouts are tested, too.
        span = t.untyped_storage().nbytes() // t.element_size() if t.numel() else 0
        flat = torch.as_strided(t, (span,), (1,), 0).contiguous() if span else t.reshape(-1)
        dtype = DTYPES[x.dtype]
        if x.dtype is torch.bfloat16:
            a = arete.from_numpy(flat.float().numpy()).to(dtype)
        elif flat.numel() == 0:
            a = arete.empty(0, dtype=dtype)
        else:
            a = arete.from_numpy(flat.numpy()).clone()
        a = (a.as_strided(tuple(t.shape), tuple(t.stride()), t.storage_offset()) if span
             else arete.empty(tuple(t.shape), dtype=dtype))
        a = a.detach().to(device)
        return a.requires_grad_(x.requires_grad) if x.requires_grad else a
    if isinstance(x, torch.dtype):
        if x not in DTYPES:
            raise Unsupported(str(x))
        return DTYPES[x]
    if isinstance(x, torch.device):
        return arete.device(device)
    if isinstance(x, torch.memory_format):
        return getattr(arete, str(x).split(".")[1])
    if isinstance(x, torch.layout):
        if x is not torch.strided:
            raise Unsupported(str(x))
        return arete.strided
    if isinstance(x, torch.Size):
        return arete.Size(x)
    if isinstance(x, (complex,)):
        raise Unsupported("complex numbers")
    if isinstance(x, torch.Generator):
        raise Unsupported("generator")
    if isinstance(x, torch.nn.PairwiseDistance):
        return arete.nn.PairwiseDistance(x.norm, x.eps, x.keepdim)
    if isinstance(x, tuple):
        return tuple(to_arete(e, device) for e in x)
    if isinstance(x, list):
        return [to_arete(e, device) for e in x]
    if isinstance(x, dict):
        return {k: to_arete(v, device) for k, v in x.items()}
    if callable(x) and not isinstance(x, type):
        name = getattr(x, "__name__", "")
        module = getattr(x, "__module__", "") or ""
        if module.startswith("torch") or name in dir(torch):
            found = resolve(name, None)
            if found is not None:
                return found
        raise Unsupported(f"function argument {name}")
    return x


def to_torch(x):
    if isinstance(x, arete.Tensor):
        t = x.detach().cpu()
        if t.dtype is arete.bfloat16:
            return torch.from_numpy(t.float().numpy().copy()).to(torch.bfloat16)
        return torch.from_numpy(t.numpy().copy()) if t.numel() else torch.empty(tuple(t.shape), dtype=BACK[t.dtype])
    if isinstance(x, (tuple, list)):
        return [to_torch(e) for e in x]
    if isinstance(x, arete.dtype):
        return BACK[x]
    return x


def resolve(name, variant):
    """The arete counterpart of an entry's function."""
    if name.startswith("nn.functional."):
        nn = getattr(arete, "nn", None)
        return getattr(nn.functional, name[14:], None) if nn else None
    for prefix in ("linalg.", "fft.", "special.", "masked.", "signal.windows."):
        if name.startswith(prefix):
            module = arete
            for part in prefix[:-1].split("."):
                module = getattr(module, part, None)
                if module is None:
                    return None
            return getattr(module, name[len(prefix):], None)
    if name.startswith("__"):
        if name == "__getitem__":
            return lambda x, index: x[index]
        return getattr(arete.Tensor, name, None)
    if "." in name:
        return None
    function = getattr(arete, name, None)
    if function is None or not callable(function) or isinstance(function, (arete.dtype, type)):
        method = getattr(arete.Tensor, name, None)
        if callable(method):
            return method
        if method is not None and hasattr(method, "__get__"):
            return lambda t: getattr(t, name)
        return None
    return function


# Entries whose function takes its arguments in another order than torch's function of that name.
WRAPPED = {
    "where": lambda self, condition, other: arete.where(condition, self, other),
    "einsum": lambda tensors, equation: arete.einsum(equation, *tensors),
    "nn.functional.embedding": lambda weight, indices, **options: arete.nn.functional.embedding(
        indices, weight, **options),
    "normal.in_place": lambda self, *args, **options: self.clone().normal_(*args, **options),
    "normal.number_mean": lambda std, mean, *args, **options: arete.normal(mean, std, *args, **options),
    "zero_": lambda self: self.clone().zero_(),
    "uniform": lambda self, *args, **options: self.clone().uniform_(*args, **options),
    "cauchy": lambda self, *args, **options: self.clone().cauchy_(*args, **options),
    "exponential": lambda self, *args, **options: self.clone().exponential_(*args, **options),
    "geometric": lambda self, *args, **options: self.clone().geometric_(*args, **options),
    "log_normal": lambda self, *args, **options: self.clone().log_normal_(*args, **options),
    "resize_": lambda self, *args, **options: self.clone().resize_(*args, **options),
    "resize_as_": lambda self, *args, **options: self.clone().resize_as_(*args, **options),
    "item": lambda self: self.item(),
    "fill": lambda self, value: arete.fill(self, value),
    **{f"{prefix}polygamma.{special}polygamma_n_{n}": lambda x, n, **options: arete.polygamma(n, x, **options)
       for n in range(5) for prefix, special in (("", ""), ("special.", "special_"))},
    "unravel_index": lambda self, shape: arete.unravel_index(self, shape),
    "linalg.lstsq.grad_oriented": lambda a, b, driver: arete.linalg.lstsq(a, b, driver=driver)[:2],
    "linalg.pinv.singular": lambda a, b: arete.linalg.pinv(a @ b.mT),
    "svd_lowrank": lambda a, b, **options: arete.svd_lowrank(a @ b.mT, **options),
    "pca_lowrank": lambda a, b, **options: arete.pca_lowrank(a @ b.mT, **options),
}


def tensors_in(x):
    if isinstance(x, (torch.Tensor, arete.Tensor)):
        yield x
    elif isinstance(x, (tuple, list)):
        for e in x:
            yield from tensors_in(e)
    elif isinstance(x, dict):
        for e in x.values():
            yield from tensors_in(e)


def tolerance(dtype):
    return {torch.float16: 2e-2, torch.bfloat16: 5e-2, torch.float64: 1e-7, torch.complex128: 1e-7}.get(dtype, 1e-4)


def distance(a, b):
    """The largest difference; infinities and NaN must be the same."""
    a, b = a.double(), b.double()
    same = (a == b) | (a.isnan() & b.isnan())
    return float(torch.where(same, 0.0, (a - b).abs()).nan_to_num(nan=float("inf")).max())


def compare(ours, theirs, what, precise=None):
    """`precise` is torch's result in float64, or what computes it."""
    if isinstance(theirs, torch.Tensor):
        if not isinstance(ours, torch.Tensor):
            raise AssertionError(f"{what}: {type(ours).__name__} instead of a tensor")
        if tuple(ours.shape) != tuple(theirs.shape):
            raise AssertionError(f"{what}: shape {tuple(ours.shape)} instead of {tuple(theirs.shape)}")
        if ours.dtype is not theirs.dtype:
            raise AssertionError(f"{what}: {ours.dtype} instead of {theirs.dtype}")
        t = tolerance(theirs.dtype)
        theirs = theirs.detach().contiguous()
        try:
            torch.testing.assert_close(ours, theirs, rtol=t, atol=t, equal_nan=True)
        except AssertionError:
            exact = precise() if callable(precise) else precise
            if (not isinstance(exact, torch.Tensor) or exact.shape != theirs.shape
                    or not theirs.dtype.is_floating_point
                    or not distance(ours, exact.detach()) <= distance(theirs, exact.detach())):
                raise
    elif isinstance(theirs, (tuple, list)):
        if not isinstance(ours, (tuple, list)) or len(ours) != len(theirs):
            raise AssertionError(f"{what}: {ours!r} instead of a sequence of {len(theirs)}")
        for i, (a, b) in enumerate(zip(ours, theirs)):
            compare(a, b, f"{what}[{i}]", precise and (lambda i=i: (precise() if callable(precise) else precise)[i]))
    elif isinstance(theirs, float):
        if not (abs(ours - theirs) <= 1e-4 * max(1, abs(theirs)) or ours != ours and theirs != theirs):
            raise AssertionError(f"{what}: {ours} instead of {theirs}")
    elif isinstance(theirs, torch.dtype) or not isinstance(theirs, (int, bool, str, type(None))):
        pass
    elif ours != theirs:
        raise AssertionError(f"{what}: {ours} instead of {theirs}")


def in_float64(x):
    """The same arguments with all that is float of less precision in float64, as new leaves."""
    if isinstance(x, torch.Tensor):
        narrow = x.dtype in (torch.float16, torch.bfloat16, torch.float32)
        t = x.detach().to(torch.float64) if narrow else x.detach().clone()
        return t.requires_grad_() if x.requires_grad else t
    if isinstance(x, torch.dtype):
        return torch.float64 if x.is_floating_point else x
    if isinstance(x, (list, tuple)) and not isinstance(x, torch.Size):
        return type(x)(in_float64(e) for e in x) if not hasattr(x, "_fields") else x
    return {k: in_float64(v) for k, v in x.items()} if isinstance(x, dict) else x


# Results that are random, or memory without values: only shape and dtype can agree.
RANDOM = {"bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "rand_like",
          "randint", "randint_like", "randn", "randn_like", "uniform", "empty", "empty_like", "empty_permuted",
          "empty_strided", "new_empty", "new_empty_strided", "nn.functional.alpha_dropout",
          "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
          "nn.functional.feature_alpha_dropout", "nn.functional.rrelu", "nn.functional.fractional_max_pool2d",
          "nn.functional.fractional_max_pool3d", "pca_lowrank", "svd_lowrank", "resize_", "resize_as_"}  # fmt: skip
# Factors that are unique only up to signs: their products are compared where they are used, here their sizes.
UP_TO_SIGN = {"linalg.svd", "svd", "linalg.eigh", "linalg.eig", "linalg.qr", "qr", "geqrf",
              "nn.functional.multi_head_attention_forward"}  # fmt: skip


# Operators with positions of elements among their results. Where elements are equal, any of them may stand there.
POSITIONS = {"argsort": -1, "sort": -1, "topk": -1, "kthvalue": -1, "median": -1, "nanmedian": -1, "mode": -1, "msort": -1}


def values_at(op, sample, results):
    """The results with positions replaced by the elements that stand there."""
    place = 1 if op.name in ("topk", "kthvalue") else 0
    dim = sample.kwargs.get("dim", sample.args[place] if len(sample.args) > place else POSITIONS[op.name])
    x = sample.input.detach()
    if not isinstance(dim, int) or isinstance(dim, bool) or x.dim() == 0:
        return results

    def shown(r):
        if not isinstance(r, torch.Tensor) or r.dtype is not torch.int64 or r is results:
            return r
        at = r if r.dim() == x.dim() else r.unsqueeze(dim)
        return x.gather(dim, at).reshape(r.shape)

    if isinstance(results, torch.Tensor):
        return shown(results) if op.name == "argsort" else results
    return [results[0], shown(results[1])] if len(results) == 2 else results


def shapes_only(x):
    if isinstance(x, torch.Tensor):
        return torch.zeros(x.shape, dtype=x.dtype)
    return [shapes_only(e) for e in x] if isinstance(x, (tuple, list)) else x


def run_sample(op, function, sample, device, gradients):
    args = (sample.input, *sample.args)
    ours_args, ours_kwargs = to_arete(args, device), to_arete(sample.kwargs, device)
    if "device" in ours_kwargs:
        ours_kwargs["device"] = device
    theirs = op.op(*args, **sample.kwargs)
    if any(t.layout is not torch.strided or t.dtype not in DTYPES for t in tensors_in(theirs)):
        raise Unsupported("the result is sparse or of another dtype")
    result = function(*ours_args, **ours_kwargs)
    ours = to_torch(result)
    loose = op.name in RANDOM or op.name in UP_TO_SIGN or sample.kwargs.get("dropout_p", 0) > 0
    if loose:
        compare(shapes_only(ours), shapes_only(theirs), "result")
        return

    def precise():
        return op.op(*in_float64(args), **in_float64(sample.kwargs))

    if op.name in POSITIONS:
        listed = list(theirs) if isinstance(theirs, (tuple, list)) else theirs
        compare(values_at(op, sample, ours), values_at(op, sample, listed), "result")
    else:
        compare(ours, theirs, "result", precise)
    if not gradients:
        return

    def call(f, a, k):
        return op.gradcheck_wrapper(f, *a, **k)

    try:
        theirs, result = call(op.op, args, sample.kwargs), call(function, ours_args, ours_kwargs)
    except Exception:  # noqa: BLE001 -- a wrapper that is written for torch's tensors only
        def call(f, a, k):
            return f(*a, **k)

    def differentiated(x, inputs):
        try:
            x = sample.output_process_fn_grad(x)
        except Exception:  # noqa: BLE001, S110 -- written for torch's tensors only
            pass
        return list(tensors_in(x)), [t for t in tensors_in(inputs) if t.requires_grad]

    out, leaves = differentiated(theirs, (args, sample.kwargs))
    our_out, our_leaves = differentiated(result, (ours_args, ours_kwargs))
    if len(out) != len(our_out):
        raise AssertionError(f"{len(our_out)} results instead of {len(out)}")
    weights = [torch.linspace(0.5, 1.5, o.numel(), dtype=torch.float64).to(o.dtype).reshape(o.shape)
               if o.requires_grad else None for o in out]
    if not leaves or not any(w is not None for w in weights):
        return

    def gradients_of(out, leaves, weights):
        pairs = [(o, w) for o, w in zip(out, weights) if w is not None]
        return torch.autograd.grad([o for o, _ in pairs], leaves, [w.to(o.dtype) for o, w in pairs], allow_unused=True)

    expected = gradients_of(out, leaves, weights)
    # A result without history is a constant: its gradients are zeros.
    pairs = [(o, to_arete(w, device)) for o, w in zip(our_out, weights) if w is not None and o.requires_grad]
    found = (arete.autograd.grad([o for o, _ in pairs], our_leaves, [w for _, w in pairs], allow_unused=True)
             if pairs else [None] * len(leaves))

    def exact(i):
        a, k = in_float64(args), in_float64(sample.kwargs)
        return gradients_of(*differentiated(call(op.op, a, k), (a, k)), weights)[i]

    for i, (a, b) in enumerate(zip(found, expected)):
        if b is None or a is None:
            given = a if b is None else b
            if given is not None and bool((given != 0).any()):
                raise AssertionError(f"gradient {i}: {'missing' if a is None else 'unexpected'}")
            continue
        compare(to_torch(a), b, f"gradient {i}", lambda i=i: exact(i))


def run_entry(op, name, dtype, options):
    """What became of the samples of an entry in one dtype."""
    row = {"agreed": 0, "samples": 0, "skipped": 0, "why": "", "exists": True}
    function = WRAPPED.get(name) or resolve(op.name, op.variant_test_name)
    if function is None:
        return {**row, "exists": False, "why": "does not exist"}
    with_grad = (not options.no_gradients and op.supports_autograd and dtype.is_floating_point
                 and dtype in op.supported_backward_dtypes("cpu"))
    try:
        for i, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=with_grad)):
            if options.most and i >= options.most:
                break
            assert isinstance(sample, SampleInput)
            try:
                run_sample(op, function, sample, options.device, with_grad)
                row["agreed"] += 1
            except Unsupported as e:
                row["skipped"] += 1
                row["why"] = row["why"] or f"skipped: {e}"
                continue
            except Exception as e:  # noqa: BLE001
                text = f"{type(e).__name__}: {str(e).strip()}"
                if not row["why"] or row["why"].startswith("skipped"):
                    row["why"] = " ".join(text.split())[:300]
                if options.verbose:
                    print(f"{name} [{dtype}] {sample.summary()[:300]}\n    {text[:600]}")
            row["samples"] += 1
    except Exception as e:  # noqa: BLE001
        row["why"] = row["why"] or f"samples: {type(e).__name__}: {e}"[:200]
    return row


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", help="one or more, separated by commas")
    parser.add_argument("--filter", default="")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--most", type=int, default=0, help="samples of an entry (0: all)")
    parser.add_argument("--no-gradients", action="store_true")
    options = parser.parse_args(argv)
    tables = {}
    for dtype_name in options.dtype.split(","):
        dtype = getattr(torch, dtype_name)
        torch.manual_seed(0)
        table = tables[dtype_name] = {}
        for op in op_db:
            name = op.name + ("." + op.variant_test_name if op.variant_test_name else "")
            if re.search(options.filter, name) and dtype in op.supported_dtypes("cpu"):
                row = run_entry(op, name, dtype, options)
                if name in table:  # an entry that stands twice in the database
                    for key in ("agreed", "samples", "skipped"):
                        row[key] += table[name][key]
                    row["why"] = table[name]["why"] or row["why"]
                table[name] = row
        full = [n for n, r in table.items() if r["exists"] and r["samples"] and r["agreed"] == r["samples"]]
        for name, r in sorted(table.items()):
            if name not in full:
                print(f"{name:50s} {r['agreed']:4d}/{r['samples']:<4d} {r['why'][:170]}")
        agreed, total = sum(r["agreed"] for r in table.values()), sum(r["samples"] for r in table.values())
        skipped = [n for n, r in table.items() if r["exists"] and not r["samples"] and r["skipped"]]
        print(f"{dtype_name}: {len(full)} of the {len(table)} entries that PyTorch has agree on all samples; "
              f"{sum(not r['exists'] for r in table.values())} do not exist, of {len(skipped)} all samples were skipped; "
              f"samples: {agreed} / {total}", flush=True)  # fmt: skip
    if options.json:
        with open(options.json, "w") as f:
            json.dump(tables, f, indent=1, sort_keys=True)
    return tables


if __name__ == "__main__":
    main()
    sys.exit(0)
