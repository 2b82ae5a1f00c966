"""Shared set-up of the Python tests."""
import os
import pathlib

import pytest

# Threads of NumPy's OpenBLAS spin while they wait, and take the processors from what is tested; arete's has as many as ever.
with pytest.MonkeyPatch.context() as _patch:
    _patch.setenv("OPENBLAS_NUM_THREADS", "1")
    import numpy  # noqa: F401

import arete

# References are of float32, not of the TF32 that convolutions on GPUs have by default.
arete.backends.cudnn.allow_tf32 = False

SHARDS, SHARD = (int(os.environ.get(f"ARETE_TEST_{name}", default)) for name, default in (("SHARDS", "1"), ("SHARD", "0")))
FILES = sorted(pathlib.Path(__file__).parent.glob("test_*.py"))


def pytest_ignore_collect(collection_path):
    """Of ARETE_TEST_SHARDS shards, ARETE_TEST_SHARD (from 0) has every so many-th of the files, as cards are dealt: those whose names
    begin alike, and which take alike long, are in different ones."""
    if collection_path in FILES and FILES.index(collection_path) % SHARDS != SHARD:
        return True
    return None


@pytest.fixture(autouse=True)
def _fresh_state():
    """Every test starts with the same random numbers and modes."""
    arete.manual_seed(0)
    yield
    assert arete.is_grad_enabled(), "a test left gradients switched off"
    assert arete.get_default_dtype() is arete.float32, "a test left another default dtype"
