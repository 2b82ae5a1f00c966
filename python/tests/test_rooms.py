"""The modules of the package import what they need from below: no circles, and no arrow up in the order of its rooms. And the one
width of lines of all Python files."""
import ast
import functools
import pathlib
import pickle
import re

import pytest

import arete
import arete.cuda
from arete.nn.utils.rnn import pack_sequence

SOURCES = pathlib.Path(__file__).resolve().parents[1] / "arete"

# A room is a module or package beside arete/__init__.py, or a part of one that is named here. Each line may import from the lines
# above it; rooms on one line do not know each other. The package itself ("") is above all of them, but for the two old addresses that
# only pickles know.
ORDER = """
    _C
    _absent_device _cache_artifacts _refused _settings _skip _threads _vmap futures torch_version
    _absent_dtypes _checks _guards _subclasses _tensor_str _symbolic compiler numa types
    _functorch _grad_mode _inductor _logging ao _streams explain _snippets amp backends mps mtia multiprocessing profiler random version xpu
    __config__ _cuda_streams cpu
    _operators
    multiprocessing.reductions _kernels
    _grouped _scaled autograd distributed fft functional kernels linalg quantization overrides return_types special
    signal sparse storage testing
    _library masked metrics nn
    _aten _dynamo _formats _torchaudio _torchvision _utils nested cuda distributions library optim utils
    _functorch.make_functional _functorch.vmap
    _custom_ops _higher_order_ops _program fx accelerator func numpy ops quasirandom serialization vision
    distributed.tensor fx.experimental
    _graph_backend distributed._tensor distributed.checkpoint distributed.elastic distributed.optim distributed.utils
    distributed.fsdp distributed.launcher distributed.run
    distributed._composable distributed.launch
    cupy export hub jit training distributed.pipelining
    cupyx onnx
    numba pycuda
    as_torch
"""
ADDRESSES = {"_functions", "_tensor"}
# Those that hand the whole package to texts of others: examples in documentation, statements that are timed.
WHOLE = {"arete._docs", "arete.utils.benchmark.utils.timer", "arete.utils.benchmark.utils.valgrind_wrapper._child"}

LEVELS = {room: level for level, line in enumerate(ORDER.split("\n")) for room in line.split()}


def modules_of(package):
    """The files of a package by the names of its modules."""
    found = {}
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


@functools.cache
def imports_in(text):
    """All import statements that run when `text` does or its functions do."""
    return list(statements(ast.parse(text).body))


def statements(body):
    """The import statements that run, in functions too; what only type checkers read does not."""
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            yield from statements(node.orelse)
        else:
            yield from statements(ast.iter_child_nodes(node))


def imports_of(name, file, files):
    """What a module imports of its package, as pairs of the module and the one that the statement names (a package, where it
    takes a module from it)."""
    top = name.partition(".")[0]
    home = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
    for node in imports_in(file.read_text()):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == top:
                    yield alias.name, alias.name
            continue
        named = ".".join((home[: len(home) - node.level + 1] if node.level else []) + [node.module] * bool(node.module))
        if named.partition(".")[0] == top:
            for alias in node.names:
                inner = f"{named}.{alias.name}"
                yield (inner if inner in files or inner == f"{top}._C" else named), named


def parents(name):
    """The packages around a module, which run before it."""
    parts = name.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]


def arrows(package):
    """For each module what runs, or must have run, when it is used: what it imports, and packages around that other than its own."""
    files = modules_of(package)
    found = {}
    for name, file in files.items():
        own = {name, *parents(name)}
        found[name] = set()
        for target, _ in imports_of(name, file, files):
            found[name] |= {target, *parents(target)} - own - {package.name} | {target} - {name}
    return found


def circles(graph):
    """Groups of modules that reach each other (Tarjan)."""
    number, lowest, stack, found = {}, {}, [], []

    def visit(name):
        number[name] = lowest[name] = len(number)
        stack.append(name)
        for other in sorted(graph.get(name, ())):
            if other not in number:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in stack:
                lowest[name] = min(lowest[name], number[other])
        if lowest[name] == number[name]:
            at = stack.index(name)
            group = sorted(stack[at:])
            del stack[at:]
            if len(group) > 1:
                found.append(group)

    for name in sorted(graph):
        if name not in number:
            visit(name)
    return found


def room(name):
    parts = name.split(".")
    part = ".".join(parts[1:3])
    return part if part in LEVELS else (parts + [""])[1]


def upward(package):
    """"module -> module" of each import of the package itself from below, and of each from a room that is not below."""
    files = modules_of(package)
    found = []
    for name, file in files.items():
        if name == package.name or name in WHOLE or room(name) in ADDRESSES:
            continue
        for target, _ in imports_of(name, file, files):
            here, there = room(name), room(target)
            if here != there and (there not in LEVELS or here not in LEVELS or LEVELS[there] >= LEVELS[here]):
                found.append(f"{name} -> {target}")
    return found


def test_no_circles():
    graph = arrows(SOURCES)
    for name in WHOLE:
        graph[name].discard("arete")
    assert circles(graph) == []


def test_no_arrow_up():
    assert upward(SOURCES) == []


def test_every_room_has_a_place():
    rooms = {room(name) for name in modules_of(SOURCES)} - {"", "_docs"} | {"_C"}
    assert rooms == LEVELS.keys() | ADDRESSES


def test_pickles_keep_their_addresses():
    for thing, address in ((arete.ones(1), b"arete._tensor"), (arete.float32, b"arete._tensor"), (arete.einsum, b"arete._functions"),
                           (arete.channels_last, b"arete\n"), (arete.cuda.Stream, b"arete.cuda\n"),
                           (pack_sequence([arete.ones(1)]), b"arete.nn.utils.rnn")):
        text = pickle.dumps(thing, 0)  # in which names end with a line
        assert address in text and b"arete._operators" not in text, text
        assert type(pickle.loads(text)) is type(thing)


def test_operators_have_one_way_in():
    files = modules_of(SOURCES)
    inside = [f"{name} -> {named}" for name, file in files.items() if room(name) not in {"_operators"} | ADDRESSES
              for _, named in imports_of(name, file, files) if named.startswith("arete._operators.")]
    assert inside == []


@pytest.mark.parametrize("files, wrong", [
    ({"nn": "from . import optim", "optim": "from . import linalg", "linalg": ""}, ["arete.nn -> arete.optim"]),
    ({"nn": "import arete"}, ["arete.nn -> arete"]),
    ({"nn": "from arete import Tensor"}, ["arete.nn -> arete"]),
    ({"nn": "def f():\n    from . import zeros"}, ["arete.nn -> arete"]),
    ({"nn": "from . import masked", "masked": ""}, ["arete.nn -> arete.masked"]),
    ({"nn": "from ._C import Tensor\nfrom . import linalg", "linalg": "", "optim": "from .nn import Module"}, []),
])
def test_wrong_trees(tmp_path, files, wrong):
    package = tmp_path / "arete"
    package.mkdir()
    for name, text in {"__init__": "", **files}.items():
        (package / f"{name}.py").write_text(text)
    assert upward(package) == wrong


@pytest.mark.parametrize("files, wrong", [
    ({"a": "from . import b", "b": "def f():\n    from .a import x"}, [["p.a", "p.b"]]),
    ({"a": "from .c.d import x", "c/__init__": "from ..a import y", "c/d": ""}, [["p.a", "p.c"]]),
    ({"a": "from . import b", "b": "if TYPE_CHECKING:\n    from . import a"}, []),
    ({"__init__": "from . import a", "a": "import p"}, [["p", "p.a"]]),
    ({"__init__": "from . import a", "a": "from . import b", "b": ""}, []),
])
def test_circles_are_found(tmp_path, files, wrong):
    package = tmp_path / "p"
    for name, text in {"__init__": "", **files}.items():
        file = package / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert circles(arrows(package)) == wrong


def test_lines_have_one_width():
    root = SOURCES.parents[1]
    width = int(re.search(r"^line-length = (\d+)$", (root / "pyproject.toml").read_text(), re.M)[1])
    folders = [root / name for name in ("bench", "cmake", "docs", "examples", "python", "tests", "tools")]
    files = [file for folder in folders for file in folder.rglob("*.py")]
    wrong = [f"{file.relative_to(root)}:{number}" for file in files
             for number, line in enumerate(file.read_text().splitlines(), 1)
             if len(line) > width or "fmt: " + "skip" in line or "fmt: " + "off" in line]
    assert len(files) > 200 and wrong == []
