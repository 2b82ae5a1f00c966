"""Each fault of a rank once: the culprit is named, and calls of the others fail with its name. fault_matrix.py has random ones."""
from concurrent.futures import ThreadPoolExecutor

import fault_matrix
import pytest

import arete.distributed as dist

needs_gloo = pytest.mark.skipif(not dist.is_gloo_available(), reason="built without Gloo")


@needs_gloo
def test_the_culprit_of_each_fault_is_named():
    cases = [dict(kind="stop", size=3, culprit=1), dict(kind="stop", size=2, culprit=0), dict(kind="sleep", size=3, culprit=2),
             dict(kind="late", size=3, culprit=1), dict(kind="kill", size=4, culprit=2), dict(kind="kill", size=2, culprit=0),
             dict(kind="order", size=3, culprit=1), dict(kind="shape", size=3, culprit=2), dict(kind="dtype", size=3, culprit=1),
             dict(kind="raise", size=3, culprit=0), dict(kind="exit", size=2, culprit=1)]
    # Times are those of a busy machine; fault_matrix.py prints them.
    with ThreadPoolExecutor(3) as threads:
        for case, (named, released, said) in zip(cases, threads.map(
                lambda case: fault_matrix.run_case(**case, steps=3, seed=1, patience=2.0), cases)):
            assert named < 30 and (released or 0) < 30, (case, said)
            if case["kind"] in ("sleep", "order"):
                assert "fault_matrix.py:" in said, (case, "the place in the program", said)
