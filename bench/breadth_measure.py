"""One row of the breadth benchmark: a call of both libraries on the same inputs, its results compared, its time, peak
memory and launches."""

from __future__ import annotations

import contextlib
import functools
import math
import time
import types
import warnings
import zlib

import torch
from breadth_calls import MOST_FORMS, is_real, is_second_name, run, templates, to_arete, to_torch
from breadth_scale import LAYOUTS, elements, in_dtype, in_layout, is_layout_of, mapped, tensors_in
from op_db_differences import DIFFERENCES, INVARIANT, RANDOM, known

import arete
from arete.cuda.memory import GPUMemoryTracker

# Relative to the larger of 1 and the element; what differs more is judged by PyTorch's result in float64.
TOLERANCE = {
    torch.bfloat16: 3e-2,
    torch.float16: 2e-3,
    torch.float32: 1e-4,
    torch.complex64: 1e-4,
    torch.float64: 1e-9,
    torch.complex128: 1e-9,
}
HUGE = 1e30  # where some numbers are larger, rounding decides which of them overflow
SAME = 0.02  # by which times differ that agree
MOST_TIES = 1e-4  # of the elements may differ: which of equal ones comes first, or has the gradient, is a choice
LEAST_PEAK = 1 << 16  # bytes; below, what counts is how allocators round
MOST_KEPT = 2 << 30  # bytes of a GPU that a process keeps between rows
MOST_PRECISE = 1 << 23  # elements of calls that are computed once more in float64
FORWARD, BACKWARD = "forward", "forward + backward"


class Wrong(Exception):
    """The results of the two differ."""


class Device:
    """Clocks and counters of both libraries on one device. `seconds`: the length of a timed block, of which there are
    `rounds`."""

    def __init__(self, name, seconds, rounds):
        self.name, self.seconds, self.rounds = name, seconds, rounds
        self.on_gpu = name.startswith("cuda")

    def wait(self):
        if self.on_gpu:
            torch.cuda.synchronize()
            arete.cuda.synchronize()

    def tidy(self):
        """Waits for all that was started, and gives memory back that the other library or another process may need."""
        self.wait()
        if self.on_gpu and torch.cuda.memory_reserved() + arete.cuda.memory_reserved() > MOST_KEPT:
            torch.cuda.empty_cache()
            arete.cuda.empty_cache()

    def once(self, call):
        """(result, seconds) of a call that is warm, about."""
        call()
        self.wait()
        start = time.perf_counter()
        result = call()
        self.wait()
        return result, time.perf_counter() - start

    def block(self, call, count):
        self.wait()
        start = time.perf_counter()
        for _ in range(count):
            call()
        self.wait()
        return (time.perf_counter() - start) / count

    def times(self, calls):
        """Seconds of each call: the best of blocks that take turns, so that both see the same noise; of at least three,
        and until one agrees with the best."""
        counts, best = [], []
        for call in calls:
            t = self.block(call, 1)
            for _ in range(3):  # the first is not warm, and single calls are disturbed easily
                t = min(t, self.block(call, 1)) if t < 0.1 else t
            counts.append(max(1, int(self.seconds / t)))
            best.append(t)
        rounds = self.rounds if max(best) < 1.0 else 1
        for done in range(rounds):
            latest = [self.block(call, count) for call, count in zip(calls, counts)]
            same = done >= 2 and all(abs(t - b) <= SAME * b for t, b in zip(latest, best))
            best = [min(t, b) for t, b in zip(latest, best)]
            if same:
                break
        return best

    def peak(self, library, call):
        """The most bytes that a call holds at once, above what was held before."""
        if self.on_gpu:
            # PyTorch's threads of autograd let go of a call's gradients some time after it has returned: what was held
            # before would count them. The first call here gives them the time.
            with torch.autograd.set_multithreading_enabled(False):
                for _ in range(2):
                    self.wait()
                    before = library.cuda.memory_allocated()
                    library.cuda.reset_peak_memory_stats()
                    result = call()
                    del result
                    self.wait()
            return library.cuda.max_memory_allocated() - before
        if library is arete:
            with GPUMemoryTracker("cpu") as tracker:
                result = call()
            del result
            return tracker.peak
        with torch.autograd.profiler.profile(profile_memory=True) as profile:
            result = call()
        del result
        now = most = 0
        for event in profile.kineto_results.events():
            if event.name() == "[memory]":
                now += event.nbytes()
                most = max(most, now)
        return most

    def launches(self, call):
        """(kernels, copies and fills that a call of Arete's starts, waits of the host for the device within it)."""
        self.wait()
        with arete.profiler.profile() as profile:
            call()
        started = sum(e.device_type is arete.profiler.DeviceType.CUDA for e in profile.events())
        self.wait()
        return started, [f"{s.what} ({s.operator})" for s in profile.synchronizations() if s.blocking]

    def bandwidth(self):
        """Bytes a second of PyTorch's large copy, read and written."""
        x = torch.ones(1 << 26 if self.on_gpu else 1 << 24, device=self.name)
        y = torch.empty_like(x)
        (seconds,) = self.times([lambda: y.copy_(x)])
        return 2 * 4 * x.numel() / seconds


# ---- results


# What of results can be compared that are not unique; here without the order of eigenvalues, which depends on LAPACK's
# version.
UNIQUE = {
    **INVARIANT,
    "linalg.eig": lambda results, sample: results[0].sum(-1),
    "linalg.eigvals": lambda results, sample: results.sum(-1),
}


def _allowed(exact, tolerance):
    size = exact.abs().nan_to_num(nan=0.0, posinf=0.0)
    return tolerance * (size.clamp(min=1.0) + (size.max() / 16 if size.numel() else 0.0))


def _apart(a, b):
    """Distances of elements, 0 where they are the same number, both infinite or both not numbers."""
    if a.is_complex():
        return _apart(torch.view_as_real(a), torch.view_as_real(b)).amax(-1)
    return torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, (a - b).abs()).nan_to_num(nan=math.inf, posinf=math.inf)


def _wide(t):
    return t.detach().resolve_conj().resolve_neg().to(torch.complex128 if t.is_complex() else torch.float64)


def flattened(results):
    """Tensors and numbers of results in order."""
    if isinstance(results, (tuple, list)):
        return [e for r in results for e in flattened(r)]
    return [results]


def agree(ours, theirs, precise, what="result"):
    """Raises Wrong where ours are not PyTorch's, nor about as close to those in float64, which precise() computes."""
    ours, theirs = flattened(ours), flattened(theirs)
    if len(ours) != len(theirs):
        raise Wrong(f"{len(ours)} results instead of {len(theirs)}")
    for i, (a, b) in enumerate(zip(ours, theirs)):
        label = f"gradient {i}" if what == "gradient" else what if len(theirs) == 1 else f"{what}[{i}]"
        if not isinstance(b, torch.Tensor):
            if isinstance(b, (int, float)) and not math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-4):
                raise Wrong(f"{label}: {a} instead of {b}")
            continue
        a, b = (t if not isinstance(t, torch.Tensor) or t.layout is torch.strided else t.to_dense() for t in (a, b))
        if not isinstance(a, torch.Tensor) or a.shape != b.shape or a.dtype != b.dtype:
            raise Wrong(
                f"{label}: {tuple(getattr(a, 'shape', ()))} {getattr(a, 'dtype', type(a).__name__)} instead of "
                f"{tuple(b.shape)} {b.dtype}"
            )
        if not b.numel():
            continue
        tolerance = TOLERANCE.get(b.dtype, 0.0)
        if torch.allclose(a, b, tolerance, tolerance, equal_nan=True) if tolerance else torch.equal(a, b):
            continue
        wide = _wide(b)
        if bool((wide.abs().nan_to_num(posinf=0.0) > HUGE).any()):
            continue
        wrong = _apart(_wide(a), wide) > _allowed(wide, tolerance)
        if bool(wrong.any()) and tolerance and b.dtype not in (torch.float64, torch.complex128):
            exact = flattened(precise())
            if len(exact) == len(theirs) and exact[i].shape == b.shape:
                c = _wide(exact[i])
                off = _apart(wide, c)
                room = 10 * (off + off[off.isfinite()].mean().nan_to_num()) + _allowed(c, tolerance)
                wrong &= _apart(_wide(a), c) > room
        if int(wrong.sum()) > MOST_TIES * wrong.numel():
            raise Wrong(
                f"{label}: {a[wrong][:3].tolist()} instead of {b[wrong][:3].tolist()}, "
                f"{int(wrong.sum())} of {wrong.numel()} elements"
            )


def is_random(call):
    """Whether a call of PyTorch's gives another result the second time, beyond rounding."""
    first = call()
    for _ in range(2 if elements(first) > 1 << 10 else 6):  # few numbers may be the same by chance
        second = call()
        if not all(torch.equal(a, b) for a, b in zip(tensors_in(first), tensors_in(second))):
            with contextlib.suppress(Wrong):
                agree(first, second, lambda: [])
                continue
            return True
    return False


# ---- rows


class Sides:
    """A call of both libraries on the same inputs: `theirs` and `ours`, functions without arguments."""

    def __init__(self, subject, args, kwargs, backward):
        self.subject, self.args, self.kwargs, self.backward = subject, args, kwargs, backward
        self.weights = self.state = None
        self.theirs = self.bound(torch, args, kwargs)

    @functools.cached_property
    def ours(self):
        return self.bound(arete, to_arete(self.args), to_arete(self.kwargs))

    def bound(self, library, args, kwargs):
        call, leaves, self.state = self.subject.bind(library, args, kwargs, self.state)
        if not self.backward:
            return call
        for t in leaves:
            t.requires_grad_()
        weights = []

        def both():
            result = call()
            outputs = (
                [result] if isinstance(result, library.Tensor) else [t for t in tensors_in(result) if t.requires_grad]
            )
            if not outputs:
                raise TypeError("nothing that comes out has a gradient")
            if not weights:
                weights.extend(self.weights_of(library, outputs))
            return library.autograd.grad(outputs, leaves, weights, allow_unused=True)

        return both

    def weights_of(self, library, outputs):
        """What backward begins with: the same for both, of PyTorch's first outputs."""
        if self.weights is None:
            self.weights = [torch.rand_like(o.detach()) + 0.5 for o in outputs]
        if library is arete:
            return to_arete(self.weights)
        return [w.to(o.dtype) for w, o in zip(self.weights, outputs)]

    def precise(self):
        """PyTorch's results in float64."""
        if elements((self.args, self.kwargs)) > MOST_PRECISE:
            return []
        wide = [in_float64(x) for x in (self.args, self.kwargs)]
        return self.bound(torch, *wide)()


def in_float64(x):
    """The same arguments with all that is of less precision in float64 or complex128, as new tensors."""

    def leaf(t, *_):
        if isinstance(t, torch.Tensor):
            return _wide(t).clone() if is_real(t) or t.is_complex() else t
        return torch.float64 if isinstance(t, torch.dtype) and t.is_floating_point else t

    return mapped(x, leaf)


def checked(sides, theirs):
    """Runs Arete's side once and compares with PyTorch's results: raises Wrong, or what Arete raises."""
    subject, ours = sides.subject, to_torch(sides.ours())
    invariant = UNIQUE.get(subject.name.removeprefix("torch.").removeprefix("Tensor."))
    if invariant and sides.backward:
        return shapes_agree(ours, theirs)
    if invariant and torch.is_tensor(sides.args[0]):
        sample = types.SimpleNamespace(input=sides.args[0], args=sides.args[1:], kwargs=sides.kwargs)
        listed = [list(r) if isinstance(r, (tuple, list)) else r for r in (ours, theirs)]
        return agree(*(invariant(r, sample) for r in listed), lambda: invariant(sides.precise(), sample))
    if sides.backward:  # no gradient is a gradient of zeros
        pairs = list(zip(flattened(ours), flattened(theirs)))
        ours = [torch.zeros_like(b) if a is None and b is not None else a for a, b in pairs]
        theirs = [torch.zeros_like(a) if b is None and a is not None else b for a, b in pairs]
    try:
        agree(ours, theirs, sides.precise, "gradient" if sides.backward else "result")
    except Wrong:
        if subject.kind == "optimizer":  # a step changes what the next one finds
            raise
        if subject.name.removeprefix("torch.").removeprefix("Tensor.") not in RANDOM and not is_random(sides.theirs):
            raise
        shapes_agree(ours, theirs)


def shapes_agree(ours, theirs):
    a, b = ([(tuple(t.shape), t.dtype) for t in tensors_in(r)] for r in (ours, theirs))
    if a != b:
        raise Wrong(f"{a} instead of {b}")


def bytes_of(x):
    def held(t):
        if t.layout is not torch.strided:
            return t._nnz() * t.element_size()
        return min(t.numel() * t.element_size(), t.untyped_storage().nbytes())

    return sum(held(t) for t in tensors_in(x))


def quiet(direction):
    """No gradients in either library where a row is forward alone."""
    stack = contextlib.ExitStack()
    for library in (torch, arete) if direction == FORWARD else ():
        stack.enter_context(library.no_grad())
    return stack


def time_row(device, row, sides, bandwidth):
    """Times and peaks of a row that is prepared. Nothing else runs on the device or its host meanwhile."""
    with quiet(row["direction"]):
        device.wait()
        theirs, ours = device.times([sides.theirs, sides.ours])
        peaks = [device.peak(library, call) for library, call in ((torch, sides.theirs), (arete, sides.ours))]
    row.update(torch_us=1e6 * theirs, arete_us=1e6 * ours, ratio=theirs / ours, roof=row["bytes"] / ours / bandwidth)
    row.update(torch_peak=peaks[0], arete_peak=peaks[1])
    if max(peaks) > LEAST_PEAK:
        row["memory_ratio"] = max(peaks[0], LEAST_PEAK) / max(peaks[1], LEAST_PEAK)


class Rows:
    """The rows of one subject: prepare(key) for each of keys()."""

    def __init__(self, subject, known, device, options):
        self.subject, self.device, self.options = subject, device, options
        self.second = is_second_name(subject, known)
        most = 1 if self.second or options.quick else MOST_FORMS
        self.templates, self.reason = templates(subject, most)
        self.sizes = options.sizes[:1] if self.second else options.sizes
        kept = []
        for t in self.templates:
            try:
                with torch.no_grad():
                    t.find_factors(
                        functools.partial(run, subject),
                        device.once,
                        device.name,
                        self.sizes,
                        options.scale,
                        options.longest,
                    )
                kept.append(t)
            except Exception as e:  # noqa: BLE001: PyTorch does not have it on this device
                self.reason = f"PyTorch fails: {first_line(e)}"
        self.templates = kept

    def keys(self):
        """(number of the template, size, dtype, layout, direction) of each: the sizes of the first form, then, unless
        the run is a quick one, other dtypes and layouts, and other forms at the largest size."""
        keys = []
        for number, t in enumerate(self.templates):
            sizes = self.sizes
            distinct = [s for i, s in enumerate(sizes) if not i or t.factors[s] != t.factors[sizes[i - 1]]]
            large, directions = distinct[-1], (FORWARD, BACKWARD)
            keys += [
                (number, s, "float32", "contiguous", d)
                for s in (distinct[-1:] if number else distinct)
                for d in directions
            ]
            x = (t.args, t.kwargs)
            if number or self.second or self.options.quick or not any(map(is_real, tensors_in(x))):
                continue
            keys += [(0, large, "bfloat16", "contiguous", d) for d in directions]
            keys += [(0, large, dtype, "contiguous", FORWARD) for dtype in ("float64", "int64")]
            layouts = [layout for layout in LAYOUTS if is_layout_of(x, layout)]
            keys += [(0, large, "float32", layout, d) for layout in layouts for d in directions]
        return keys

    def name(self, key):
        number, size, dtype, layout, direction = key
        return " | ".join((self.subject.name, self.templates[number].form, size, dtype, layout, direction))

    def prepare(self, key):
        """(row, Sides) of a row that is checked, has its kernels, and is to be timed; (row, None) of one that is not;
        (None, None) where PyTorch has no such call."""
        number, size, dtype, layout, direction = key
        template, device = self.templates[number], self.device
        seed = zlib.crc32(self.name(key).encode()) & 0x7FFFFFFF
        row = {
            "name": self.name(key),
            "callable": self.subject.name,
            "form": template.form,
            "size": size,
            "dtype": dtype,
            "layout": layout,
            "direction": direction,
            "factor": template.factors[size],
        }

        def sides(factor):
            args, kwargs = template.at(factor, seed, device.name)
            if dtype != "float32":
                args, kwargs = in_dtype((args, kwargs), getattr(torch, dtype))
            if layout != "contiguous":
                args, kwargs = in_layout((args, kwargs), layout)
            return Sides(self.subject, args, kwargs, direction == BACKWARD)

        with quiet(direction):
            try:
                full = sides(template.factors[size])
                result = full.theirs()
            except Exception as e:  # noqa: BLE001
                try:
                    sides(1).theirs()
                except Exception:  # noqa: BLE001: PyTorch has no such call
                    return None, None
                row.update(status="not measured", note=f"PyTorch fails at this size: {first_line(e)}")
                return row, None
            self._check(row, full, result)
        return row, full if row["status"] in ("ok", "wrong") else None

    def _check(self, row, sides, result):
        """The status of a row, and with it, while others measure, all kernels compiled and counted."""
        device, given = self.device, (sides.args, sides.kwargs)
        row["shapes"] = [tuple(t.shape) for t in tensors_in(given)][:6]
        row.update(status="ok", elements=elements((given, result)), bytes=bytes_of(given) + bytes_of(result))
        try:
            checked(sides, result)
        except Exception as e:  # noqa: BLE001
            wrong = isinstance(e, Wrong)
            text = str(e)[:300] if wrong else f"{type(e).__name__}: {first_line(e)}"
            meant = self.meant(row, text)
            row.update(status="ok" if wrong and meant else "meant" if meant else "wrong" if wrong else "error")
            row["note"] = f"{text} (meant: {meant})" if meant else text
            if not wrong:
                return
        if device.on_gpu and (row["dtype"], row["layout"]) == ("float32", "contiguous") and row["size"] != "host":
            row["launches"], row["waits"] = device.launches(sides.ours)

    def meant(self, row, text):
        """Why this differs from PyTorch on purpose, if it does; op_db.py's table says."""
        entry = self.subject.name.removeprefix("torch.").removeprefix("Tensor.").removesuffix("_")
        check = "gradient" if row["direction"] == BACKWARD else "function"
        found = known((entry, row["dtype"], check, text), self.device.name)
        return None if found is None else DIFFERENCES[found].reason


def first_line(e):
    return next((line for line in str(e).splitlines() if line.strip()), "")[:200]


def prepare(options):
    """Settings of a process that measures."""
    warnings.filterwarnings("ignore")
    for library in (torch, arete):
        library.set_num_threads(options.threads)
