"""Shared set-up of the Python tests."""
import pytest

import arete

# References are of float32, not of the TF32 that convolutions on GPUs have by default.
arete.backends.cudnn.allow_tf32 = False


@pytest.fixture(autouse=True)
def _fresh_state():
    """Every test starts with the same random numbers and modes."""
    arete.manual_seed(0)
    yield
    assert arete.is_grad_enabled(), "a test left gradients switched off"
    assert arete.get_default_dtype() is arete.float32, "a test left another default dtype"
