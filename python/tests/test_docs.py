"""Every Python example of README.md and docs/ runs, and prints what its comments say."""
import contextlib
import io
import linecache
import pathlib
import re

import pytest

import arete

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = [(f"{file.name}:{number}", code) for file in FILES
            for number, code in enumerate(re.findall(r"^```python\n(.*?)^```", file.read_text(), re.M | re.S))]


@pytest.mark.parametrize("name,code", EXAMPLES, ids=[n for n, _ in EXAMPLES])
def test_example(name, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(arete.backends.cudnn, "benchmark", arete.backends.cudnn.benchmark)  # an example switches it on
    linecache.cache[name] = len(code), None, code.splitlines(True), name  # kernels of functions read their source
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, name, "exec"), {"__name__": "__main__"})
    printed = out.getvalue()
    for expected in re.findall(r"#\s*prints: (.*)", code):
        assert expected.strip() in printed, f"{expected!r} is not in {printed!r}"


def test_there_are_examples():
    assert any(name.startswith("README.md") for name, _ in EXAMPLES)
