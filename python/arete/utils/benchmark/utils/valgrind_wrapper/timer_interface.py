"""Counts of instructions, by function, of statements that run under Valgrind."""
from __future__ import annotations

import ast
import collections
import dataclasses
import importlib
import io
import itertools
import os
import pathlib
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import types
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Union, overload

from ..... import _C
from .. import common

__all__ = ["FunctionCount", "FunctionCounts", "CallgrindStats", "CopyIfCallgrind"]


class FunctionCount(NamedTuple):
    """The instructions of one function.

    >>> arete.utils.benchmark.FunctionCount(120, "loop.c:sum")
    FunctionCount(count=120, function='loop.c:sum')
    """

    count: int  # type: ignore[assignment]  # tuples have a method of this name
    function: str


# CPython's look-ups of names: how often they collide depends on addresses and on the hash seed.
_NOISE = re.compile(r":(lookdict_unicode|unicodekeys_lookup_unicode)")


@dataclasses.dataclass(repr=False, frozen=True)
class FunctionCounts:
    """Functions and their counts, largest first. Sums, differences and multiples of them are such counts again; slices show
    all their rows.

    >>> b = arete.utils.benchmark
    >>> before = b.FunctionCounts((b.FunctionCount(70, "a.c:f"), b.FunctionCount(30, "a.c:g")), inclusive=False)
    >>> after = before + before.filter(lambda function: function.endswith(":g"))
    >>> list(after - before), after.sum()
    ([FunctionCount(count=30, function='a.c:g')], 130)
    """

    _data: Tuple[FunctionCount, ...]
    inclusive: bool
    truncate_rows: bool = True
    _linewidth: Optional[int] = None

    def __iter__(self) -> Iterator[FunctionCount]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    @overload
    def __getitem__(self, item: int) -> FunctionCount: ...
    @overload
    def __getitem__(self, item: slice) -> "FunctionCounts": ...
    def __getitem__(self, item: Union[int, slice]) -> Union[FunctionCount, "FunctionCounts"]:
        if isinstance(item, slice):
            return dataclasses.replace(self, _data=self._data[item], truncate_rows=False)
        return self._data[item]

    def __repr__(self) -> str:
        digits = max((len(str(c)) for c, _ in self), default=1)
        width = max((self._linewidth or _C._print_options()["linewidth"]) - digits - 4, 40)
        rows = [f"  {c:>{digits}}  {_shortened(function, width)}" for c, function in self]
        if self.truncate_rows and len(rows) > 18:
            rows[9:-9] = ["...".rjust(digits + 2)]
        if not self.inclusive:  # inclusive counts overlap: their sum says nothing
            rows += ["", f"Total: {self.sum()}"]
        return "\n".join([object.__repr__(self), *rows])

    def __add__(self, other: "FunctionCounts") -> "FunctionCounts":
        return self._merged(other, 1)

    def __sub__(self, other: "FunctionCounts") -> "FunctionCounts":
        return self._merged(other, -1)

    def __mul__(self, other: Union[int, float]) -> "FunctionCounts":
        return _counts(((int(c * other), function) for c, function in self), self.inclusive)

    def transform(self, map_fn: Callable[[str], str]) -> "FunctionCounts":
        """Counts under the names that `map_fn` gives; those of equal names are added up."""
        return _counts(((c, map_fn(function)) for c, function in self), self.inclusive)

    def filter(self, filter_fn: Callable[[str], bool]) -> "FunctionCounts":
        """The counts of the functions for whose names `filter_fn` is true."""
        return FunctionCounts(tuple(f for f in self if filter_fn(f.function)), self.inclusive)

    def sum(self) -> int:
        """All counts together; of use where they are not inclusive."""
        return sum(c for c, _ in self)

    def denoise(self) -> "FunctionCounts":
        """Without CPython's look-ups of names, which take a little more or less each time."""
        return self.filter(lambda function: _NOISE.search(function) is None)

    def _merged(self, other: "FunctionCounts", sign: int) -> "FunctionCounts":
        if not isinstance(other, FunctionCounts):
            return NotImplemented
        if self.inclusive != other.inclusive:
            raise ValueError("inclusive counts and exclusive ones can be neither added nor subtracted")
        return _counts(itertools.chain(self, ((sign * c, function) for c, function in other)), self.inclusive)


def _counts(pairs: Iterable[Tuple[int, str]], inclusive: bool) -> FunctionCounts:
    totals: Dict[str, int] = collections.defaultdict(int)
    for c, function in pairs:
        totals[function] += c
    return FunctionCounts(tuple(sorted((FunctionCount(c, f) for f, c in totals.items() if c), reverse=True)), inclusive)


def _shortened(text: str, width: int) -> str:
    left = (width - 5) // 2
    return text if len(text) <= width else f"{text[:left]} ... {text[left + 5 - width :]}"


_STANDARDIZED = [
    (re.compile(r"^.+/(?=(Python|Objects|Modules|Include|Parser|Programs)/[^:]*:)"), ""),  # CPython's folders
    (re.compile(r"^.+/(?=arete/\w+/[^:]*:)"), ""),
    (re.compile(r"\s\[.+\]$"), ""),  # the library
]


def _standardized(function: str) -> str:
    for pattern, by in _STANDARDIZED:
        function = pattern.sub(by, function)
    return function


@dataclasses.dataclass(repr=False, frozen=True)
class CallgrindStats:
    """What Timer.collect_callgrind counted: instructions by function, of the statement and of `pass` in its place (the baseline).
    Functions are named `file:function [library]`, with `???` for what the library does not say."""

    task_spec: common.TaskSpec
    number_per_run: int
    built_with_debug_symbols: bool
    baseline_inclusive_stats: FunctionCounts
    baseline_exclusive_stats: FunctionCounts
    stmt_inclusive_stats: FunctionCounts
    stmt_exclusive_stats: FunctionCounts
    stmt_callgrind_out: Optional[str] = None

    def __repr__(self) -> str:
        base, threads = self.baseline_exclusive_stats, self.task_spec.num_threads
        text = "\n".join([
            object.__repr__(self),
            self.task_spec.summarize().rstrip("\n"),
            f"{'All':>30}{'Noisy symbols removed':>31}",
            f"    Instructions: {self.counts():>12}{self.counts(denoise=True):>27}",
            f"    Baseline:     {base.sum():>12}{base.denoise().sum():>27}",
            f"{self.number_per_run} runs per measurement, {threads} thread{'s' if threads > 1 else ''}",
        ])
        if not self.built_with_debug_symbols:
            text += "\nWarning: Arete was built without debug symbols: functions have no source files. Build it with -g to see them."
        return text

    def stats(self, inclusive: bool = False) -> FunctionCounts:
        """Counts by function. `inclusive` ones have what a function called in them, which shows where the work is done;
        the others compare better."""
        return self.stmt_inclusive_stats if inclusive else self.stmt_exclusive_stats

    def counts(self, *, denoise: bool = False) -> int:
        """All instructions of the runs; `denoise`: without those that FunctionCounts.denoise leaves out."""
        return (self.stmt_exclusive_stats.denoise() if denoise else self.stmt_exclusive_stats).sum()

    def delta(self, other: "CallgrindStats", inclusive: bool = False) -> FunctionCounts:
        """What this has more (or, negative, less) than `other`, by function."""
        return self.stats(inclusive) - other.stats(inclusive)

    def as_standardized(self) -> "CallgrindStats":
        """Without libraries and the folders that sources lay in, so that the counts of two builds cancel in `delta`."""
        kinds = ("baseline_inclusive_stats", "baseline_exclusive_stats", "stmt_inclusive_stats", "stmt_exclusive_stats")
        # The names are no longer those of the file.
        return dataclasses.replace(self, stmt_callgrind_out=None, **{k: getattr(self, k).transform(_standardized) for k in kinds})


class CopyIfCallgrind:
    """A global of a Timer, which sees `value` itself; collect_callgrind takes a copy of it along, after `setup` ran there (an import
    or a class that the copy needs).

    >>> t = arete.utils.benchmark.Timer("n + 1", globals={"n": arete.utils.benchmark.CopyIfCallgrind(1)})
    >>> t.timeit(2).number_per_run
    2
    """

    def __init__(self, value: Any, *, setup: Optional[str] = None) -> None:
        self.value, self.setup = value, setup

    @staticmethod
    def unwrap_all(globals: Dict[str, Any]) -> Dict[str, Any]:
        return {k: v.value if isinstance(v, CopyIfCallgrind) else v for k, v in globals.items()}


class _Pickler(pickle.Pickler):
    """Modules by their names; nothing by reference to this program's __main__, which the other process has not."""

    def __init__(self, file: Any, has_main: bool) -> None:
        super().__init__(file)
        self._has_main = has_main

    def reducer_override(self, value: Any) -> Any:
        main = getattr(value, "__module__", None) == "__main__" and isinstance(value, (type, types.FunctionType))
        if (main and not self._has_main) or (isinstance(value, types.ModuleType) and value.__name__ == "__main__"):
            raise pickle.PicklingError(f"{getattr(value, '__qualname__', 'the module')!r} is in __main__, which the other process has not")
        return (importlib.import_module, (value.__name__,)) if isinstance(value, types.ModuleType) else NotImplemented


def _pickled(globals: Dict[str, Any], code: str) -> List[Tuple[str, str, bytes]]:
    """Name, setup and copy of each global that the code mentions."""
    mentioned = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    found = []
    for name in [n for n in globals if n in mentioned]:
        value = globals[name]
        wrapped = value if isinstance(value, CopyIfCallgrind) else CopyIfCallgrind(value)
        file = io.BytesIO()
        try:
            _Pickler(file, wrapped.setup is not None).dump(wrapped.value)
        except Exception as e:
            raise TypeError(f"collect_callgrind runs the statement in another process, to which the global {name!r} "
                            f"({type(wrapped.value).__name__}) cannot be taken: {e}. Make it in `setup` instead.") from e
        found.append((name, common.dedented(wrapped.setup or ""), file.getvalue()))
    return found


# Which of the three tables of names a line's key refers to.
_TABLES = {"ob": "ob", "cob": "ob", "fl": "fl", "fi": "fl", "fe": "fl", "cfi": "fl", "cfl": "fl", "fn": "fn", "cfn": "fn"}


def _parsed(text: str) -> Tuple[FunctionCounts, FunctionCounts]:
    """The inclusive and the exclusive counts of a file in Callgrind's format."""
    names: Dict[Tuple[str, str], str] = {}
    now = {"ob": "???", "fl": "???", "fn": "???"}
    positions, instructions = 1, 0
    function, callee, inside_call = "", ("", ""), False
    own: Dict[str, int] = collections.defaultdict(int)
    below: Dict[str, int] = collections.defaultdict(int)
    for line in text.splitlines():
        if line[:1].isdigit() or line[:1] in ("+", "-", "*"):
            # Positions, relative or not, then costs; those at the end that are 0 may be missing.
            costs = line.split()[positions:]
            cost = int(costs[instructions]) if instructions < len(costs) else 0
            if not inside_call:
                own[function] += cost
            elif callee != (now["ob"], now["fn"]):  # a call of itself is in the call from outside already
                below[function] += cost
            inside_call = False
        elif (match := re.match(r"(\w+)= *(?:(\(\d+\)) *)?(.*)$", line)) and match[1] in _TABLES:
            key, number, name = match.groups()
            table = _TABLES[key]
            if number:  # a name is written once, later only its number
                name = names.setdefault((table, number), name) if name else names[table, number]
            if key == "cob":
                callee = name, callee[1]
            elif key == "cfn":
                callee = callee[0] or now["ob"], name
            elif key not in ("cfi", "cfl"):
                now[table] = name
                if key == "fn":
                    # Lines of functions that were put inline follow under other files; they are part of this function.
                    function, callee = f"{now['fl']}:{name} [{now['ob']}]", ("", "")
        elif line.startswith("calls="):
            inside_call = True
        elif line.startswith("positions:"):
            positions = len(line.split()) - 1
        elif line.startswith("events:"):
            events = line.split()[1:]
            instructions = events.index("Ir")
    total = sum(own.values())
    # Functions that call themselves through others would be counted several times.
    inclusive = ((min(own[f] + below[f], total), f) for f in {**own, **below})
    return _counts(inclusive, True), _counts(((c, f) for f, c in own.items()), False)


_OURS = re.compile(r"/(libarete\.so|arete/_C\.)[^/]*\]$")


def collect_callgrind(task_spec: common.TaskSpec, globals: Dict[str, Any], number: int, repeats: int, collect_baseline: bool,
                      retain_out_file: bool) -> Tuple[CallgrindStats, ...]:
    """`repeats` times the counts of `number` runs."""
    copies = _pickled(globals, f"{task_spec.setup}\n{task_spec.stmt}")
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise OSError("collect_callgrind needs Valgrind, which is not in PATH: install the package `valgrind` (apt-get install valgrind)")
    task = {"path": sys.path, "globals": copies, "setup": task_spec.setup, "stmt": task_spec.stmt, "number": number,
            "repeats": repeats, "baselines": int(collect_baseline), "num_threads": task_spec.num_threads}
    with tempfile.TemporaryDirectory(prefix="callgrind") as name:
        folder = pathlib.Path(name)
        (folder / "task").write_bytes(pickle.dumps(task))
        # The same hashes each time. Threads that wait must not be counted.
        env = {"PYTHONHASHSEED": "0", "OMP_WAIT_POLICY": "passive", **os.environ}
        child = [sys.executable, str(pathlib.Path(__file__).with_name("_child.py")), name]
        done = subprocess.run([valgrind, "--tool=callgrind", f"--callgrind-out-file={folder / 'out'}",
                               "--dump-before=arete_callgrind_mark", *child],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, check=False)
        error = folder / "error"
        # Files are numbered from 1, two for each block; a warm-up comes first of the statement and of the baseline.
        blocks = [2 * (b + 1) for b in range(1, repeats + 1)] + [2 * (repeats + 3)] * collect_baseline
        files = [folder / f"out.{b}" for b in blocks]
        if done.returncode or error.exists() or not all(f.exists() for f in files):
            report = error.read_text() if error.exists() else done.stdout.decode(errors="replace")
            raise ChildProcessError(f"collect_callgrind: the statement failed in the process under Valgrind:\n{report}")
        texts = [f.read_text() for f in files]
    counts = [_parsed(t) for t in texts]
    baseline = counts.pop() if collect_baseline else (FunctionCounts((), True), FunctionCounts((), False))
    ours = [f for c in counts for _, f in c[1] if _OURS.search(f)]
    return tuple(CallgrindStats(task_spec, number, any(not f.startswith("???") for f in ours), *baseline, *c,
                                text if retain_out_file else None)
                 for c, text in zip(counts, texts))
