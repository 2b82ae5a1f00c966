"""The type stubs are those of the records, and the examples pass a type checker with them."""
import pathlib
import re
import subprocess
import sys

import pytest

import arete

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_stubs_are_up_to_date():
    run = subprocess.run([sys.executable, str(ROOT / "tools" / "make_stubs.py"), "--check"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_stubs_name_everything():
    text = (ROOT / "python" / "arete" / "__init__.pyi").read_text()
    missing = [n for n in dir(arete) if not n.startswith("_") and callable(getattr(arete, n, None)) and not re.search(rf"\b{n}\b", text)]
    assert missing == []


def test_examples_have_types(tmp_path):
    pytest.importorskip("mypy")
    examples = []
    for file in [ROOT / "README.md", ROOT / "docs" / "python.md"]:
        for i, code in enumerate(re.findall(r"^```python\n(.*?)^```", file.read_text(), re.M | re.S)):
            example = tmp_path / f"example_{file.stem}_{i}.py"
            example.write_text(code)
            examples.append(str(example))
    assert examples
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", "--ignore-missing-imports", "--cache-dir", str(tmp_path / "cache"),
         "--no-error-summary", *examples],
        capture_output=True, text=True, env={"MYPYPATH": str(ROOT / "python"), "PATH": "/usr/bin:/bin"}, cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import arete\nx: str = arete.relu(arete.ones(2))\narete.relu(3)\n")
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", "--ignore-missing-imports", "--cache-dir", str(tmp_path / "cache"),
         str(wrong)],
        capture_output=True, text=True, env={"MYPYPATH": str(ROOT / "python"), "PATH": "/usr/bin:/bin"}, cwd=tmp_path)
    assert run.returncode == 1 and run.stdout.count("error:") == 2, run.stdout
