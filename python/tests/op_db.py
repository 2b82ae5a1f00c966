"""Drives PyTorch's operator database against arete: every sample of every entry, results and gradients.

    python op_db.py [--device cuda] [--dtype float32,int64] [--filter REGEX] [--verbose] [--json FILE]

Prints agreed / samples for each entry and the number of entries of which all samples agree. Needs torch (its CPU
results are the reference); samples whose arguments arete cannot represent (sparse, complex, ...) count as skipped."""
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
        span = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride())) if t.numel() else 0
        # The same strides, so that views and layouts are tested, too.
        flat = torch.as_strided(t, (span,), (1,)).contiguous() if span else t.reshape(-1)
        dtype = DTYPES[x.dtype]
        if x.dtype is torch.bfloat16:
            a = arete.from_numpy(flat.float().numpy()).to(dtype)
        elif flat.numel() == 0:
            a = arete.empty(0, dtype=dtype)
        else:
            a = arete.from_numpy(flat.numpy()).clone()
        a = a.as_strided(tuple(t.shape), tuple(t.stride())) if span else arete.empty(tuple(t.shape), dtype=dtype)
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
    for prefix in ("linalg.", "fft.", "special.", "signal.windows."):
        if name.startswith(prefix):
            module = arete
            for part in prefix[:-1].split("."):
                module = getattr(module, part, None)
                if module is None:
                    return None
            return getattr(module, name[len(prefix):], None)
    if name.startswith("__"):
        if name == "__getitem__":
            return lambda x, index: x[tuple(index) if isinstance(index, list) else index]
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


def compare(ours, theirs, what):
    if isinstance(theirs, torch.Tensor):
        if not isinstance(ours, torch.Tensor):
            raise AssertionError(f"{what}: {type(ours).__name__} instead of a tensor")
        if tuple(ours.shape) != tuple(theirs.shape):
            raise AssertionError(f"{what}: shape {tuple(ours.shape)} instead of {tuple(theirs.shape)}")
        if ours.dtype is not theirs.dtype:
            raise AssertionError(f"{what}: {ours.dtype} instead of {theirs.dtype}")
        t = tolerance(theirs.dtype)
        torch.testing.assert_close(ours, theirs.detach().contiguous(), rtol=t, atol=t, equal_nan=True)
    elif isinstance(theirs, (tuple, list)):
        if not isinstance(ours, (tuple, list)) or len(ours) != len(theirs):
            raise AssertionError(f"{what}: {ours!r} instead of a sequence of {len(theirs)}")
        for i, (a, b) in enumerate(zip(ours, theirs)):
            compare(a, b, f"{what}[{i}]")
    elif isinstance(theirs, float):
        if not (abs(ours - theirs) <= 1e-4 * max(1, abs(theirs)) or ours != ours and theirs != theirs):
            raise AssertionError(f"{what}: {ours} instead of {theirs}")
    elif isinstance(theirs, torch.dtype) or not isinstance(theirs, (int, bool, str, type(None))):
        pass
    elif ours != theirs:
        raise AssertionError(f"{what}: {ours} instead of {theirs}")


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
    compare(ours, theirs, "result")
    if not gradients:
        return
    leaves = [t for t in tensors_in((args, sample.kwargs)) if t.requires_grad]
    our_leaves = [t for t in tensors_in((ours_args, ours_kwargs)) if t.requires_grad]
    out = [t for t in tensors_in(theirs) if t.requires_grad]
    our_out = [t for t in tensors_in(result) if t.requires_grad]
    if not leaves or not out:
        return
    if len(out) != len(our_out):
        raise AssertionError(f"{len(our_out)} results with history instead of {len(out)}")
    weights = [torch.linspace(0.5, 1.5, o.numel(), dtype=torch.float64).to(o.dtype).reshape(o.shape) for o in out]
    expected = torch.autograd.grad(out, leaves, weights, allow_unused=True)
    found = arete.autograd.grad(our_out, our_leaves, [to_arete(w, device) for w in weights], allow_unused=True)
    for i, (a, b) in enumerate(zip(found, expected)):
        if b is None or a is None:
            given = a if b is None else b
            if given is not None and bool((given != 0).any()):
                raise AssertionError(f"gradient {i}: {'missing' if a is None else 'unexpected'}")
            continue
        compare(to_torch(a), b, f"gradient {i}")


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--filter", default="")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--most", type=int, default=0, help="samples of an entry (0: all)")
    parser.add_argument("--no-gradients", action="store_true")
    options = parser.parse_args(argv)
    torch.manual_seed(0)
    table = {}
    for op in op_db:
        name = op.name + ("." + op.variant_test_name if op.variant_test_name else "")
        if options.filter and not re.search(options.filter, name):
            continue
        row = table.setdefault(name, {"agreed": 0, "samples": 0, "skipped": 0, "why": "", "exists": True})
        function = WRAPPED.get(name) or resolve(op.name, op.variant_test_name)
        if function is None:
            row.update(exists=False, why="does not exist")
            continue
        for dtype_name in options.dtype.split(","):
            dtype = getattr(torch, dtype_name)
            if dtype not in op.supported_dtypes("cpu"):
                continue
            with_grad = (not options.no_gradients and op.supports_autograd and dtype.is_floating_point
                         and dtype in op.supported_backward_dtypes("cpu"))
            try:
                samples = op.sample_inputs("cpu", dtype, requires_grad=with_grad)
                for i, sample in enumerate(samples):
                    if options.most and i >= options.most:
                        break
                    assert isinstance(sample, SampleInput)
                    try:
                        run_sample(op, function, sample, options.device, with_grad)
                        row["agreed"] += 1
                    except Unsupported:
                        row["skipped"] += 1
                        continue
                    except Exception as e:  # noqa: BLE001
                        if not row["why"] or options.verbose:
                            text = f"{type(e).__name__}: {str(e).strip()}"
                            row["why"] = " ".join(text.split())[:300]
                            if options.verbose:
                                print(f"{name} [{dtype_name}] {sample.summary()[:300]}\n    {text[:600]}")
                    row["samples"] += 1
            except Exception as e:  # noqa: BLE001
                row["why"] = row["why"] or f"samples: {type(e).__name__}: {e}"[:200]
    full = [n for n, r in table.items() if r["exists"] and r["samples"] and r["agreed"] == r["samples"]]
    for name, r in sorted(table.items()):
        if name not in full:
            print(f"{name:50s} {r['agreed']:4d}/{r['samples']:<4d} {r['why'][:170]}")
    agreed, total = sum(r["agreed"] for r in table.values()), sum(r["samples"] for r in table.values())
    print(f"{len(full)} of {len(table)} entries agree on all samples, "
          f"{sum(r['exists'] for r in table.values())} exist; samples: {agreed} / {total}")  # fmt: skip
    if options.json:
        with open(options.json, "w") as f:
            json.dump(table, f, indent=1, sort_keys=True)
    return table


if __name__ == "__main__":
    main()
    sys.exit(0)
