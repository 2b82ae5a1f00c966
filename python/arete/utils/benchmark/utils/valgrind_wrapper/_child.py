"""The program that Timer.collect_callgrind runs under Valgrind, with a folder: it reads `task` there, and writes `error` if it fails.

Valgrind writes a file at every call of callgrind_mark. Two such calls enclose a block of runs, so that every second file counts one
block: the warm-up, the repeats, then the same for the baseline."""
import ast
import gc
import itertools
import pathlib
import pickle
import sys
import traceback

# What is put in is syntax, not text: strings of several lines keep their indentation. The names are as unlikely as those of timeit.
_BLOCKS = """
def _blocks(_each, _collect, _mark):
    SETUP
    for _runs in _each:
        _collect()
        _mark()
        for _run in _runs:
            STATEMENT
        _mark()
"""


def _compiled(setup, stmt, names):
    tree = ast.parse(_BLOCKS)
    function = tree.body[0]
    function.body[:1] = ast.parse(setup).body
    function.body[-1].body[2].body = ast.parse(stmt).body or [ast.Pass()]
    exec(compile(ast.fix_missing_locations(tree), "<statement>", "exec"), names)
    return names.pop("_blocks")


def _run(task):
    sys.path[:] = task["path"]
    import arete

    arete.set_num_threads(task["num_threads"])
    # The names of __main__, so that a class which `setup` of CopyIfCallgrind defines is found by pickle.
    names = vars(sys.modules["__main__"])
    names["arete"] = names["torch"] = arete
    for name, setup, pickled in task["globals"]:
        exec(setup, names)
        try:
            names[name] = pickle.loads(pickled)
        except Exception as e:
            raise TypeError(f"the global {name!r} cannot be read in another process: {e}") from e
    number, mark = task["number"], arete._C._benchmark.callgrind_mark
    gc.disable()  # as timeit does: when it would run depends on all that ran before
    for setup, stmt, repeats in (task["setup"], task["stmt"], task["repeats"]), ("pass", "pass", task["baselines"]):
        sizes = [min(number, 10)] + [number] * repeats
        _compiled(setup, stmt, names)([itertools.repeat(None, n) for n in sizes], gc.collect, mark)


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    try:
        _run(pickle.loads((folder / "task").read_bytes()))
    except BaseException:
        (folder / "error").write_text(traceback.format_exc())
        sys.exit(1)
