"""Drives PyTorch's operator database through arete: every entry, every dtype PyTorch has for it, every sample.

    python op_db.py [--device cuda] [--dtype float32,int64] [--filter REGEX] [--checks function,gradient] [--jobs N]
                    [--quick] [--verbose] [--json FILE]

The checks are those in CHECKS. What differs and is not in the table of op_db_differences.py is printed, and the exit status
is 1; so it is if an entry of that table does not differ any more. A result that is further from PyTorch's than the dtype's
tolerance also agrees if it is as close to PyTorch's result in float64. With --device cuda both libraries compute there."""
from __future__ import annotations

import argparse
import collections
import concurrent.futures
import json
import os
import re
import sys
import time
import warnings
import zlib

import torch

import arete

# These imports forbid setting the flags of torch.backends in this process, which programs in other tests do.
with torch.backends.__allow_nonbracketed_mutation():
    from torch.testing._internal.common_methods_invocations import op_db

from op_db_compare import DTYPES, Unsupported, compare, copied, counterpart, in_float64, tensors_in, to_arete, to_torch, translated
from op_db_differences import DIFFERENCES, INVARIANT, is_random, known

CHECKS = {
    "function": "results of the function, with all samples and PyTorch's reference inputs",
    "method": "the method of Tensor and other names of the function",
    "strided": "results with inputs that are not contiguous",
    "in place": "x_() and the operators that assign",
    "out": "out= of the right size, of none, of another, of other dtypes, on another device, with a gradient; the warning",
    "gradient": "which results have a gradient, and the gradients; in float64 those of the gradients, too",
    "error": "PyTorch's error inputs: the kind of exception",
}


def entry_name(op):
    return op.name + ("." + op.variant_test_name if op.variant_test_name else "")


class Outcome:
    """What a call gave: results, or an exception."""

    def __init__(self, call, warned=False):
        self.error = self.value = None
        with warnings.catch_warnings(record=warned) as given:
            if warned:
                warnings.simplefilter("always")
            try:
                self.value = call()
            except Unsupported:
                raise
            except Exception as e:  # noqa: BLE001
                self.error = e
        self.resized = any("An output with one or more elements was resized" in str(w.message) for w in given or ())


class Entry:
    """The checks of one entry in one dtype."""

    def __init__(self, op, dtype, options):
        self.op, self.dtype, self.options, self.device = op, dtype, options, options.device
        self.name = entry_name(op)
        self.counts = collections.Counter()
        self.skipped = collections.Counter()
        self.failures = []

    def failed(self, check, sample, text):
        self.failures.append((self.name, str(self.dtype)[6:], check, " ".join(text.split())[:300]))
        if self.options.verbose:
            print(f"{self.name} [{self.dtype}] {check}: {sample}\n    {text[:800]}", flush=True)

    def attempt(self, check, sample, function):
        if check not in self.options.checks:
            return
        try:
            function()
        except Unsupported as e:
            self.skipped[str(e)] += 1
            return
        except AssertionError as e:
            self.failed(check, _summary(sample), str(e))
        except Exception as e:  # noqa: BLE001
            self.failed(check, _summary(sample), f"{type(e).__name__}: {e}")
        self.counts[check] += 1

    # ---- samples

    def samples(self, requires_grad=False):
        """PyTorch's samples and, where they are not the same, its reference inputs."""
        most = 3 if self.options.quick else 1 << 30
        for i, sample in enumerate(self.op.sample_inputs(self.device, self.dtype, requires_grad=requires_grad)):
            if i >= most:
                return
            yield sample
        if self.op.reference_inputs_func is None or requires_grad or self.options.quick:
            return
        yield from self.op.reference_inputs(self.device, self.dtype)

    def run(self):
        torch.manual_seed(0)
        op = self.op
        try:
            self.function = counterpart(op)
        except AttributeError as e:
            self.failed("function", "", f"does not exist: {e}")
            return self
        torch.manual_seed(zlib.crc32(self.name.encode()))
        try:
            for i, sample in enumerate(self.samples()):
                self.attempt("function", sample, lambda: self.check_function(sample))
                if i < 8:
                    self.attempt("strided", sample, lambda: self.check_function(sample.noncontiguous()))
                    self.attempt("method", sample, lambda: self.check_names(sample))
                    self.attempt("out", sample, lambda: self.check_out(sample))
                self.attempt("in place", sample, lambda: self.check_in_place(sample))
            if op.supports_autograd and self.dtype in op.supported_backward_dtypes(_kind(self.device)) and (
                    self.dtype.is_floating_point or self.dtype.is_complex):
                for sample in self.samples(requires_grad=True):
                    self.attempt("gradient", sample, lambda: self.check_gradient(sample))
        except Exception as e:  # noqa: BLE001
            self.skipped[f"samples: {type(e).__name__}: {e}"[:200]] += 1
        return self

    # ---- checks

    def arguments(self, sample):
        args, kwargs = to_arete((sample.input, *sample.args)), to_arete(sample.kwargs)
        return args, kwargs

    def same(self, ours, theirs, what, precise=None):
        if any(t.layout is not torch.strided or t.dtype not in DTYPES for t in tensors_in(theirs)):
            raise Unsupported("results that are sparse or of a dtype that arete does not have")
        if isinstance(theirs, (tuple, list)):
            theirs = list(theirs)
        compare(to_torch(ours), theirs, what, precise)

    def check_function(self, sample, function=None, original=None):
        function, original = function or self.function, original or self.op.op
        args, kwargs = self.arguments(sample)
        torch.manual_seed(0)
        try:
            theirs = original(*copied((sample.input, *sample.args)), **copied(sample.kwargs))
        except Exception as e:  # noqa: BLE001
            raise Unsupported(f"PyTorch itself fails: {type(e).__name__}") from None
        ours = function(*args, **kwargs)
        invariant = _invariant(self.op, sample)
        if invariant:
            ours, theirs = invariant(to_torch(ours), sample), invariant(to_torch_like(theirs), sample)

        def precise():
            result = original(*in_float64((sample.input, *sample.args)), **in_float64(sample.kwargs))
            return invariant(to_torch_like(result), sample) if invariant else result

        if not invariant:
            for a, b in zip(tensors_in(ours), tensors_in(theirs)):
                if str(a.device).partition(":")[0] != str(b.device).partition(":")[0]:
                    raise AssertionError(f"result on {a.device} instead of {b.device}")
        self.same(ours, theirs, "result", precise)

    def check_names(self, sample):
        op = self.op
        variants = [op.method_variant, op.operator_variant, *(a.op for a in op.aliases), *(a.method_variant for a in op.aliases)]
        for variant in variants:
            if variant is None or variant is op.op:
                continue
            theirs = Outcome(lambda: variant(*copied((sample.input, *sample.args)), **copied(sample.kwargs)))
            if theirs.error is None:
                try:
                    ours = translated(variant)
                except AttributeError as e:
                    raise AssertionError(f"does not exist: {e}") from None
                self.check_function(sample, ours, variant)

    def check_in_place(self, sample):
        for variant in (self.op.inplace_variant, self.op.inplace_operator_variant):
            if variant is None:
                continue
            try:
                function = translated(variant)
            except AttributeError as e:
                raise AssertionError(f"does not exist: {e}") from None
            theirs_input = sample.input.detach().clone() if isinstance(sample.input, torch.Tensor) else sample.input
            args, kwargs = self.arguments(sample)
            args = (args[0].clone() if isinstance(args[0], arete.Tensor) else args[0], *args[1:])
            torch.manual_seed(0)
            theirs = Outcome(lambda: variant(theirs_input, *copied(sample.args), **copied(sample.kwargs)))
            ours = Outcome(lambda: function(*args, **kwargs))
            if _compare_errors(ours, theirs, "in place"):
                continue
            if not isinstance(theirs.value, torch.Tensor):
                continue
            if theirs.value is theirs_input and ours.value is not args[0]:
                raise AssertionError("in place: the result is another tensor")
            invariant = _invariant(self.op, sample)
            if invariant:
                self.same(invariant(to_torch(ours.value), sample), invariant(theirs.value, sample), "in place")
                continue
            self.same(args[0], theirs_input, "in place", lambda variant=variant: variant(
                in_float64(sample.input.detach()), *in_float64(sample.args), **in_float64(sample.kwargs)))

    def check_out(self, sample):
        op = self.op
        if not op.supports_out or isinstance(sample.input, (list, tuple)) and not sample.input or "out" in sample.kwargs:
            return
        expected = op.op(*copied((sample.input, *sample.args)), **copied(sample.kwargs))
        single = isinstance(expected, torch.Tensor)
        if not single and not (isinstance(expected, (tuple, list)) and all(isinstance(t, torch.Tensor) for t in expected)):
            return
        if any(t.layout is not torch.strided or t.dtype not in DTYPES for t in tensors_in(expected)):
            raise Unsupported("results that are sparse or of a dtype that arete does not have")
        results = [expected] if single else list(expected)
        another = {"out of the right size": lambda r: torch.full_like(r, 1), "empty out": lambda r: r.new_empty(0),
                   "strided out": lambda r: torch.full_like(r.unsqueeze(-1).expand(*r.shape, 2), 1).contiguous()[..., 0],
                   "out of another size": lambda r: r.new_zeros((*r.shape, 2)),
                   "out of int64": lambda r: torch.zeros(r.shape, dtype=torch.int64, device=r.device),
                   "out of float64": lambda r: torch.zeros(r.shape, dtype=torch.float64, device=r.device),
                   "out on another device": lambda r: torch.empty_like(r, device="meta"),
                   "out with a gradient": lambda r: torch.zeros_like(r, requires_grad=r.is_floating_point() or r.is_complex())}
        for what, make in another.items():
            outs = [make(r) for r in results]
            ours_outs = [to_arete(o) for o in outs]
            given, ours_given = (outs[0], ours_outs[0]) if single else (tuple(outs), tuple(ours_outs))
            args, kwargs = self.arguments(sample)
            torch.manual_seed(0)
            theirs = Outcome(lambda: op.op(*copied((sample.input, *sample.args)), **copied(sample.kwargs), out=given), True)
            ours = Outcome(lambda: self.function(*args, **kwargs, out=ours_given), True)
            if _compare_errors(ours, theirs, what):
                continue
            if ours.resized != theirs.resized:
                raise AssertionError(f"{what}: {'a' if ours.resized else 'no'} warning of a change of size")
            if single and ours.value is not ours_given or not single and any(
                    a is not b for a, b in zip(ours.value, ours_given)):
                raise AssertionError(f"{what}: another tensor is returned")
            invariant = _invariant(op, sample)
            if invariant:
                compare(invariant(to_torch(ours_outs[0] if single else ours_outs), sample),
                        invariant(given if single else list(given), sample), what)
                continue
            for a, b in zip(ours_outs, outs):
                if a.dtype is not DTYPES[b.dtype]:
                    raise AssertionError(f"{what}: it became one of {a.dtype}")
            if not outs[0].is_meta:
                self.same_out(to_torch(ours_outs), outs, results, what, lambda: list(tensors_in(
                    op.op(*in_float64((sample.input, *sample.args)), **in_float64(sample.kwargs)))))

    def same_out(self, ours, theirs, results, what, precise):
        """The same as PyTorch's out, or as the function's results: those without out, in out's dtype. PyTorch's are sometimes computed
        in another dtype, or left in a shape of as many elements."""
        for i, (a, b, r) in enumerate(zip(ours, theirs, results)):
            try:
                compare(a, b, f"{what}[{i}]")
            except AssertionError:
                if a.dtype is not r.dtype and not (a.is_floating_point() and r.is_floating_point()):
                    r = r.to(a.dtype)
                compare(a.to(r.dtype), r, f"{what}[{i}]", lambda i=i, r=r: precise()[i].to(_wide_dtype(r)))

    def check_gradient(self, sample):
        if is_random(self.op, sample):
            return
        args, kwargs = self.arguments(sample)
        theirs_args = (sample.input, *sample.args)
        # What PyTorch's gradient tests look at: solutions of lstsq only, one triangle of what reads one, ...
        wrapper, process = self.op.gradcheck_wrapper, sample.output_process_fn_grad
        our_wrapper, our_process = translated(wrapper), translated(process)
        try:
            ours, our_leaves = _differentiated(our_wrapper(self.function, *args, **kwargs), our_process, (args, kwargs))
        except AttributeError:  # written with what is private in PyTorch
            wrapper = process = our_wrapper = our_process = None
            ours, our_leaves = _differentiated(self.function(*args, **kwargs), None, (args, kwargs))

        def original(args, kwargs):
            return wrapper(self.op.op, *args, **kwargs) if wrapper else self.op.op(*args, **kwargs)

        theirs, leaves = _differentiated(original(theirs_args, sample.kwargs), process, (theirs_args, sample.kwargs))
        if len(ours) != len(theirs):
            raise AssertionError(f"{len(ours)} results instead of {len(theirs)}")
        for i, (a, b) in enumerate(zip(ours, theirs)):
            if a.requires_grad != b.requires_grad and b.numel():
                raise AssertionError(f"result {i} {'needs no' if b.requires_grad else 'needs a'} gradient")
        weights = [_weight(o) if o.requires_grad else None for o in theirs]
        if not leaves or all(w is None for w in weights):
            return
        second = self.dtype is torch.float64 and self.op.supports_gradgrad and not self.options.quick
        expected = _gradients(torch.autograd, theirs, leaves, weights, second)
        found = _gradients(arete.autograd, ours, our_leaves, [None if w is None else to_arete(w) for w in weights],
                           second)

        def precise():
            wide = in_float64((theirs_args, sample.kwargs))
            wide_out, wide_leaves = _differentiated(original(*wide), process, wide)
            return _gradients(torch.autograd, wide_out, wide_leaves, [
                None if w is None else w.to(o.dtype) for w, o in zip(weights, wide_out)], False)

        _compare_gradients(found, expected, "gradient", precise)
        if not second:
            return
        pairs = [(a, b) for a, b in zip(found, expected) if b is not None and b.requires_grad]
        if not pairs:
            return
        theirs, weights = [b for _, b in pairs], [_weight(b) for _, b in pairs]
        try:
            expected = _gradients(torch.autograd, theirs, leaves, weights, False)
        except (RuntimeError, NotImplementedError) as e:
            raise Unsupported(f"PyTorch itself fails: {type(e).__name__}, second gradient") from None
        # A gradient without history is constant: what it would give is zero.
        pairs = [(a, w) for (a, _), w in zip(pairs, weights) if a is not None and a.requires_grad]
        found = (_gradients(arete.autograd, [a for a, _ in pairs], our_leaves, [to_arete(w) for _, w in pairs], False)
                 if pairs else [None] * len(leaves))
        _compare_gradients(found, expected, "second gradient", None)

    def run_errors(self):
        """The entry's error inputs, whose dtypes they choose themselves."""
        op = self.op
        if op.error_inputs_func is None or "error" not in self.options.checks:
            return self
        try:
            self.function = counterpart(op)
            inputs = list(op.error_inputs(self.device))
        except Exception as e:  # noqa: BLE001
            self.skipped[f"error inputs: {type(e).__name__}: {e}"[:200]] += 1
            return self
        for given in inputs:
            self.attempt("error", given.sample_input, lambda: self.check_error(given.sample_input))
        return self

    def check_error(self, sample):
        theirs = Outcome(lambda: self.op.op(*copied((sample.input, *sample.args)), **copied(sample.kwargs)))
        if theirs.error is None:
            return
        args, kwargs = self.arguments(sample)
        ours = Outcome(lambda: self.function(*args, **kwargs))
        _compare_errors(ours, theirs, "error")


# ---- pieces


def _wide_dtype(t):
    return torch.complex128 if t.is_complex() else torch.float64


def to_torch_like(x):
    return list(x) if isinstance(x, (tuple, list)) else x


def _kind(device):
    return device.partition(":")[0]


def _summary(sample):
    try:
        return sample.summary()[:300]
    except Exception:  # noqa: BLE001
        return "?"


def _invariant(op, sample):
    """What of random results, or of those that are not unique, can be compared."""
    name = entry_name(op)
    if name in INVARIANT or op.name in INVARIANT:
        return INVARIANT.get(name) or INVARIANT[op.name]
    if is_random(op, sample):
        return lambda results, _: [torch.zeros(t.shape, dtype=t.dtype) for t in tensors_in(results)]
    return None


def _compare_errors(ours, theirs, what):
    """True if PyTorch's call failed, and ours in the same way."""
    if theirs.error is None:
        if ours.error is not None:
            raise AssertionError(f"{what}: {type(ours.error).__name__}: {ours.error}")
        return False
    if ours.error is None:
        raise AssertionError(f"{what}: no error instead of {type(theirs.error).__name__}: {theirs.error}")
    if not isinstance(ours.error, type(theirs.error)):
        raise AssertionError(f"{what}: {type(ours.error).__name__}: {ours.error} --- instead of "
                             f"{type(theirs.error).__name__}: {theirs.error}")
    return True


def _differentiated(results, process, inputs):
    return list(tensors_in(process(results) if process else results)), [t for t in tensors_in(inputs) if t.requires_grad]


def _weight(o):
    return torch.linspace(0.5, 1.5, o.numel(), dtype=torch.float64).to(o.dtype).reshape(o.shape).to(o.device)


def _gradients(autograd, out, leaves, weights, create_graph):
    pairs = [(o, w) for o, w in zip(out, weights) if w is not None]
    return autograd.grad([o for o, _ in pairs], leaves, [w for _, w in pairs], allow_unused=True, create_graph=create_graph)


def _compare_gradients(found, expected, what, precise):
    exact = []

    def nth(i):
        if not exact:
            exact.append(precise())
        return exact[0][i]

    for i, (a, b) in enumerate(zip(found, expected)):
        if a is None or b is None:
            # Without a gradient optimizers leave a parameter alone, so zeros are not none; the other way round zeros are right.
            if b is not None and (what == "gradient" or bool((b != 0).any())):
                raise AssertionError(f"{what} {i}: missing")
            if a is not None and bool((a != 0).any()):
                raise AssertionError(f"{what} {i}: unexpected")
            continue
        compare(to_torch(a), b.detach(), f"{what} {i}", precise and (lambda i=i: nth(i)))


# ---- the run


def _run_entry(task):
    index, dtype_name, options = task
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    for library in (torch, arete):
        library.backends.cuda.matmul.allow_tf32 = library.backends.cudnn.allow_tf32 = False
    op = op_db[index]
    start = time.perf_counter()
    if dtype_name == "errors":
        entry = Entry(op, torch.float32, options).run_errors()
    else:
        entry = Entry(op, getattr(torch, dtype_name), options).run()
    return dict(entry.counts), dict(entry.skipped), entry.failures, time.perf_counter() - start, entry.name


def run(options):
    """(failures, counts of checks, counts of what was skipped, seconds of entries)."""
    tasks = []
    for dtype_name in [*options.dtypes, "errors"]:
        for i, op in enumerate(op_db):
            if re.search(options.filter, entry_name(op)) and (
                    dtype_name == "errors" or getattr(torch, dtype_name) in op.supported_dtypes(_kind(options.device))):
                tasks.append((i, dtype_name, options))
    counts, skipped, seconds = collections.Counter(), collections.Counter(), collections.Counter()
    failures = []

    def take(result):
        counts.update(result[0])
        skipped.update(result[1])
        failures.extend(result[2])
        seconds[result[4]] += result[3]

    if options.jobs <= 1:
        for task in tasks:
            take(_run_entry(task))
    else:
        import multiprocessing

        with concurrent.futures.ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
            for result in pool.map(_run_entry, tasks, chunksize=4):
                take(result)
    return failures, counts, skipped, seconds


def parse(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default=",".join(str(t)[6:] for t in DTYPES))
    parser.add_argument("--filter", default="")
    parser.add_argument("--checks", default=",".join(CHECKS))
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 8))
    parser.add_argument("--quick", action="store_true", help="3 samples of each entry")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--slowest", type=int, default=0)
    options = parser.parse_args(argv)
    options.dtypes, options.checks = options.dtype.split(","), options.checks.split(",")
    return options


def main(argv=None):
    options = parse(argv)
    start = time.perf_counter()
    failures, counts, skipped, seconds = run(options)
    unknown, used = collections.defaultdict(list), set()
    for failure in failures:
        entry = known(failure, options.device)
        if entry is None:
            unknown[failure[0], failure[2]].append(failure)
        else:
            used.add(entry)
    for (name, check), found in sorted(unknown.items()):
        dtypes = list(dict.fromkeys(f[1] for f in found))
        print(f"{name} ({check}; {', '.join(dtypes)}; {len(found)}): {found[0][3]}")
    complete = not options.filter and not options.quick and len(options.dtypes) == len(DTYPES) and len(options.checks) == len(CHECKS)
    stale = [d for i, d in enumerate(DIFFERENCES) if i not in used and d.on(options.device)] if complete else []
    for d in stale:
        print(f"does not differ any more: {d.entries} ({d.check}; {d.dtypes})")
    for text, n in sorted(skipped.items(), key=lambda p: -p[1]):
        print(f"skipped {n}: {text}")
    for name, s in seconds.most_common(options.slowest):
        print(f"{s:8.2f} s {name}")
    print(f"{options.device}: {sum(counts.values())} checks in {time.perf_counter() - start:.0f} s ("
          + ", ".join(f"{check} {counts[check]}" for check in options.checks)
          + f"); {len(failures)} differ, {sum(map(len, unknown.values()))} of them in {len(unknown)} rows are not in the table; "
          f"{len(stale)} entries of the table are out of date", flush=True)
    if options.json:
        with open(options.json, "w") as f:
            json.dump(failures, f, indent=0)
    return 1 if unknown or stale else 0


if __name__ == "__main__":
    sys.exit(main())
