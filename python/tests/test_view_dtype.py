"""Tensor.view(dtype): the same memory read as another type."""
import numpy as np
import pytest
from peer import peer

import arete

torch = peer()
NAMES = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "complex64"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("other", NAMES)
def test_every_pair(name, other):
    generator = np.random.default_rng(1)
    content = generator.integers(0, 256, size=2 * 3 * 16, dtype=np.uint8)

    def read(library):
        whole = library.from_numpy(content.copy()).view(2, 48).view(getattr(library, name)).view(getattr(library, other))
        window = library.from_numpy(content.copy()).view(6, 16).view(getattr(library, name))[1::2].view(getattr(library, other))
        return [(tuple(t.shape), t.stride(), t.storage_offset(), t.contiguous().view(library.uint8).numpy().tolist())
                for t in (whole, window)]

    assert read(arete) == read(torch)


def test_memory_is_shared_and_writes_count():
    x = arete.ones(2, 2)
    bits = x.view(arete.int32)
    version = x._version
    bits[0, 0] = 0
    assert x[0, 0] == 0 and x._version == bits._version == version + 1
    assert x.view(dtype=arete.int32).data_ptr() == x.data_ptr() and x.view(arete.float32).shape == (2, 2)
    y = arete.ones(2, requires_grad=True)
    z = y.exp()
    z.view(arete.int32).zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_without_history():
    x = arete.ones(2, 4, requires_grad=True)
    assert not x.view(arete.float16).requires_grad and not x.view(arete.complex64).requires_grad
    assert not (2 * x).view(arete.int32).requires_grad
    assert x.view(4, 2).requires_grad and x.view(-1).shape == (8,)


@pytest.mark.parametrize("make, text", [
    (lambda t: t.ones(2, 3, dtype=t.float16).view(t.float32), "self.size\\(-1\\) must be divisible by 2"),
    (lambda t: t.ones(()).view(t.uint8), "self.dim\\(\\) cannot be 0"),
    (lambda t: t.ones(4, 4).t().view(t.uint8), "self.stride\\(-1\\) must be 1"),
    (lambda t: t.ones(2, 4)[:, 1:3].view(t.float64), "self.storage_offset\\(\\) must be divisible by 2"),
    (lambda t: t.ones(3, 3)[:, :2].view(t.float64), "self.stride\\(0\\) must be divisible by 2"),
])
def test_refused(make, text):
    for library in (arete, torch):
        with pytest.raises(RuntimeError, match=text):
            make(library)


def test_packed_numbers_of_four_bits():
    """As programs with weights of four bits have them."""
    numbers = arete.arange(-8, 8, dtype=arete.int8).reshape(2, 8)
    bits = numbers.view(arete.uint8) & 0xF
    packed = bits[:, ::2] | (bits[:, 1::2] << 4)
    low, high = (packed & 0xF).to(arete.int8), (packed >> 4).to(arete.int8)
    unpacked = arete.stack([low, high], -1).view(2, 8)
    assert arete.equal((unpacked ^ 8) - 8, numbers)
