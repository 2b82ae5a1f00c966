#!/usr/bin/env python3
"""Enforces the include arrows of the house over arete/, and a few rules that keep public headers light.

Checked, each with file and line:
  - a folder under arete/ includes only the folders its arrows allow; a backend includes only prim and below;
  - our headers are included by their full name ("arete/base/error.h") and exist;
  - no file outside arete/backend/cuda includes a CUDA header;
  - installed headers include no third-party header, none of the heavy standard ones, and none that is not installed;
  - examples and the command line program include public headers only;
  - every `Note [Title]` that a comment names exists as a block (its title alone on a comment line);
  - the table of folders in docs/architecture.md says the same as ARROWS.
"""

import argparse
import pathlib
import re
import sys
import tempfile

_CORE = ["base", "core", "expr", "prim", "device", "ops", "autograd", "compile"]


def _below(name):
    return _CORE[: _CORE.index(name)]


# Folder -> folders that it may include, besides itself.
ARROWS = {name: _below(name) for name in _CORE}
ARROWS.update(
    {
        "samples": _below("autograd"),
        "amp": _CORE,
        "profile": _CORE,
        "io": _CORE,
        "distributions": _CORE,
        "nn": _CORE + ["amp", "io"],
        "program": _CORE + ["amp", "io", "nn"],
        "c_api": _CORE + ["amp", "io", "nn", "program"],
        "optim": _CORE + ["amp", "io", "nn"],
        "data": _CORE + ["io"],
        "distributed": _CORE + ["amp", "io", "nn", "optim", "data"],
        "metrics": _CORE + ["amp", "io", "nn", "optim", "data", "distributed"],
        "training": _CORE + ["amp", "io", "nn", "optim", "data", "distributed", "metrics"],
        "models": _CORE + ["amp", "io", "nn", "optim", "data", "profile", "distributed"],
    }
)
BACKENDS = ["backend/cpu", "backend/cuda", "backend/gloo"]
BACKEND_ARROWS = ["base", "core", "expr", "prim"]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CUDA = re.compile(r"^(cuda|cublas|cudnn|cusolver|cufft|curand|cusparse|nvrtc|nvml|nccl|nvToolsExt|cub/|thrust/)")
HEAVY = re.compile(
    r"^(fmt/|nlohmann/|CLI/|dnnl|oneapi/|cblas\.h|lapacke|openblas|sleef|xxhash|zlib\.h|omp\.h|gtest/|gmock/"
    r"|benchmark/|rapidcheck|gloo/|immintrin\.h|iostream$|regex$)"
)
NOTE = re.compile(r"\bNote \[([^\]]+)\]")
NOTE_BLOCK = re.compile(r"^\s*(?://+|/?\*+|#+|\"\"\")?\s*Note \[([^\]]+)\]\s*[:.]?\s*$")
TEXT_SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".py", ".cmake", ".md", ".sh"}


def is_internal(path):
    """Not installed."""
    return path.endswith("_internal.h") or path.startswith(("arete/backend/", "arete/samples/"))


def is_private(path):
    """Not for users to include; installed all the same where a public header includes it, unless internal."""
    return "/detail/" in path or path.endswith((".inl.h", ".inc.h")) or is_internal(path)


def folder_of(path):
    """The folder that the arrows speak of: "core", "backend/cpu", or "" for arete/arete.h itself."""
    if path == "arete/c_api.h":
        return "c_api"
    parts = path.split("/")[1:-1]
    if parts[:1] == ["backend"]:
        return "/".join(parts[:2])
    return parts[0] if parts else ""


def allowed(source, target):
    if source == target:
        return True
    if source == "":  # the umbrella header
        return not target.startswith("backend")
    if source.startswith("backend/"):
        return target in BACKEND_ARROWS
    return target in ARROWS.get(source, [])


def check_include(root, path, quote, name):
    """The reason why this include is wrong, or None."""
    in_library = path.startswith("arete/")
    installed = in_library and path.endswith(".h") and not is_internal(path)
    if path.startswith("arete/backend/cuda/device/"):
        # NVRTC compiles these: it knows its own names and the files beside them, by their bare names.
        if quote == '"' and "/" not in name and (root / path).with_name(name).is_file():
            return None
        return f"includes {name}; sources of kernels include the files beside them only"
    # What extensions with kernels of their own include is compiled by their nvcc.
    if CUDA.match(name) and not path.startswith(("arete/backend/cuda/", "python/arete/include/c10/cuda/")):
        return f"includes the CUDA header {name}; only arete/backend/cuda may"
    if installed and HEAVY.match(name):
        return f"is an installed header and includes {name}, which users would have to compile; move it to the .cpp"
    if not name.startswith("arete/"):
        if in_library and quote == '"':
            return f'includes "{name}"; write our headers by their full name, "arete/...", and others in <>'
        return None
    if not (root / name).is_file():
        return f"includes {name}, which does not exist"
    if installed and is_internal(name):
        return f"is an installed header and includes {name}, which is not installed"
    if path.startswith(("cli/", "examples/")) and is_private(name):
        return f"includes the private header {name}"
    if not in_library:
        return None
    source, target = folder_of(path), folder_of(name)
    if source not in ARROWS and source != "" and not source.startswith("backend/"):
        return f"is in arete/{source}, which has no arrows in tools/check_includes.py"
    if not allowed(source, target):
        may = BACKEND_ARROWS if source.startswith("backend/") else ARROWS[source]
        return f"includes {name}: {source} may include only {', '.join(may) or 'itself'}"
    return None


def files(root):
    for top in ("arete", "cli", "examples", "bench", "tests", "tools", "python", "cmake"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in TEXT_SUFFIXES and path.is_file():
                yield path


def check(root):
    problems, blocks, references = [], set(), []
    for file in files(root):
        path = file.relative_to(root).as_posix()
        own = path == "tools/check_includes.py"
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            include = INCLUDE.match(line) if file.suffix in {".h", ".cpp", ".cu", ".cuh"} else None
            if include:
                reason = check_include(root, path, *include.groups())
                if reason:
                    problems.append(f"{path}:{number}: {reason}")
            elif not own and "Note [" in line:
                block = NOTE_BLOCK.match(line)
                if block:
                    blocks.add(block.group(1))
                else:
                    references += [(path, number, title) for title in NOTE.findall(line)]
    for path, number, title in references:
        if title not in blocks:
            problems.append(f"{path}:{number}: refers to Note [{title}], which no file has")
    return problems + check_table(root)


def described(folder):
    """What a folder may include, as docs/architecture.md says it: the last of the chain, which stands for those before it, and others."""
    may = BACKEND_ARROWS if folder.startswith("backend/") else ARROWS[folder]
    chain = [f for f in may if f in _CORE]
    return ", ".join(chain[-1:] + [f for f in may if f not in _CORE])


def check_table(root):
    page = root / "docs" / "architecture.md"
    if not page.is_file():
        return []
    rows = dict(re.findall(r"^\| `([a-z_/]+)` \|.*\| *([a-z, ]*?) *\|$", page.read_text(), re.MULTILINE))
    folders = [*ARROWS, *BACKENDS]
    problems = [f"docs/architecture.md: the table names {f}, which has no arrows" for f in rows if f not in folders]
    return problems + [f"docs/architecture.md: the table does not say that {f} may include: {described(f) or 'nothing'}"
                       for f in folders if rows.get(f) != described(f)]


def self_test():
    """Each rule must turn a broken tree red, and leave a right one green."""
    table = "".join(f"| `{f}` | text | {described(f)} |\n" for f in [*ARROWS, *BACKENDS])
    right = {
        "docs/architecture.md": table,
        "arete/base/error.h": "#pragma once\n#include <string>\n// Note [Errors]\n// text\n",
        "arete/core/tensor.h": '#include "arete/base/error.h"\n// See Note [Errors].\n',
        "arete/backend/cpu/gemm.cpp": '#include <dnnl.hpp>\n#include "arete/core/tensor.h"\n',
        "arete/nn/module.h": '#include "arete/core/tensor.h"\n',
        "arete/arete.h": '#include "arete/nn/module.h"\n',
        "arete/backend/cuda/device/dtype.cuh": "#pragma once\n",
        "arete/backend/cuda/device/math.cuh": '#include "dtype.cuh"\n',
        "examples/a.cpp": '#include "arete/arete.h"\n',
    }
    wrong = {
        "upward arrow": ("arete/base/up.h", '#include "arete/core/tensor.h"\n'),
        "backend above prim": ("arete/backend/cpu/x.cpp", '#include "arete/nn/module.h"\n'),
        "library includes backend": ("arete/nn/x.cpp", '#include "arete/backend/cpu/gemm.h"\n'),
        "umbrella includes backend": ("arete/arete.h", '#include "arete/backend/cpu/gemm.h"\n'),
        "a kernel including the host's headers": ("arete/backend/cuda/device/a.cuh", '#include "arete/base/error.h"\n'),
        "CUDA above the backend": ("arete/core/stream.cpp", "#include <cuda_runtime.h>\n"),
        "fmt in a public header": ("arete/base/log.h", "#include <fmt/format.h>\n"),
        "iostream in a public header": ("arete/base/log.h", "#include <iostream>\n"),
        "short name": ("arete/base/log.cpp", '#include "log.h"\n'),
        "missing header": ("arete/base/log.cpp", '#include "arete/base/none.h"\n'),
        "internal header in a public one": ("arete/nn/y.h", '#include "arete/nn/y_internal.h"\n'),
        "private header in an example": ("examples/b.cpp", '#include "arete/backend/cpu/gemm.h"\n'),
        "note without a block": ("arete/base/log.cpp", "// See Note [Nothing].\n"),
        "folder without arrows": ("arete/strange/x.cpp", '#include "arete/base/error.h"\n'),
        "another arrow in the table": ("docs/architecture.md", table.replace("| ops |", "| prim |")),
        "a folder that is missing in the table": ("docs/architecture.md", table.replace("`nn`", "nn")),
    }
    failed = []
    for name, change in [("a right tree", None), *wrong.items()]:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            tree = dict(right, **{"arete/backend/cpu/gemm.h": "", "arete/nn/y_internal.h": ""})
            if change:
                tree[change[0]] = change[1]
            for path, text in tree.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            if bool(check(root)) != bool(change):
                failed.append(name)
    for name in failed:
        print(f"self-test failed: {name}")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return 1 if self_test() else 0
    problems = check(arguments.root)
    print("\n".join(problems) if problems else "include arrows: all right")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
