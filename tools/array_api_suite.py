"""The array API standard's own test suite over arete.numpy and over NumPy, one after the other, with the same examples.

    python tools/array_api_suite.py --suite DIR [--examples 20] [--tests TEXT] [--modules arete.numpy numpy]

DIR is a checkout of github.com/data-apis/array-api-tests with its submodule. Needs NumPy, pytest, pytest-json-report, hypothesis and
ndindex. Prints how many tests fail with each module, and those that only the first one fails; ends with 1 where there is one.
`--tests` takes what pytest's -k takes.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile


def outcomes(suite: pathlib.Path, module: str, examples: int, tests: str) -> tuple[dict[str, str], dict[str, int]]:
    """What the failed tests of a module say, by their names, and the counts of all."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        command = [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "--tb=line", "-p", "no:cacheprovider", "array_api_tests",
                   "--max-examples", str(examples), "--derandomize", "--disable-deadline", "--json-report",
                   f"--json-report-file={report}", *(["-k", tests] if tests else [])]
        # Python finds the library where this process does, wherever the suite is; what is drawn follows the order of sets, too.
        env = {**os.environ, "PYTHONHASHSEED": "0", "ARRAY_API_TESTS_MODULE": module,
               "PYTHONPATH": os.pathsep.join(filter(None, sys.path[1:]))}
        ran = subprocess.run(command, cwd=suite, env=env, capture_output=True, text=True)
        if ran.returncode not in (0, 1) or not report.exists():
            sys.exit(f"the suite did not run over {module}:\n{ran.stdout[-3000:]}{ran.stderr[-3000:]}")
        said = json.loads(report.read_text(encoding="utf-8"))
    failed = {}
    for test in said["tests"]:
        if test["outcome"] in ("failed", "error"):
            stage = next(test[s] for s in ("setup", "call", "teardown") if test.get(s, {}).get("outcome") == "failed")
            failed[test["nodeid"]] = stage.get("crash", {}).get("message", "").split("\n")[0]
    return failed, said["summary"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", type=pathlib.Path, required=True)
    parser.add_argument("--examples", type=int, default=20, help="a test draws, the same ones each time")
    parser.add_argument("--tests", default="", help="a part of the suite")
    parser.add_argument("--modules", nargs=2, default=["arete.numpy", "numpy"])
    given = parser.parse_args()

    failed = []
    for module in given.modules:
        found, counts = outcomes(given.suite, module, given.examples, given.tests)
        print(f"{module:14}{counts.get('passed', 0):6} passed, {len(found)} failed, {counts.get('skipped', 0)} skipped", flush=True)
        failed.append(found)
    own, peer = failed
    for name in own.keys() - peer.keys():
        print(f"only {given.modules[0]} fails {name}: {own[name]}")
    sys.exit(bool(own.keys() - peer.keys()))


if __name__ == "__main__":
    main()
