"""How operators take their arguments: torch's other names for them, numbers where tensors are wanted, None for a default."""
import pytest

import arete

X = arete.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize("call, same", [
    (lambda: arete.sum(a=X, axis=0, keepdims=True), lambda: arete.sum(X, 0, True)),
    (lambda: arete.add(x1=X, x2=X), lambda: X + X),
    (lambda: arete.mul(x=X, other=2), lambda: X * 2),
    (lambda: X.add(x2=X), lambda: X + X),
    (lambda: arete.matmul(x1=X, x2=X.T), lambda: X @ X.T),
    (lambda: arete.fft.fft(a=X, axis=0), lambda: arete.fft.fft(X, dim=0)),
    (lambda: arete.linalg.vector_norm(x=X, axis=0, keepdims=True), lambda: arete.linalg.vector_norm(X, dim=0, keepdim=True)),
    (lambda: arete.quantile(X, 0.5, axis=0, keepdims=True), lambda: arete.quantile(X, 0.5, 0, True)),
    (lambda: arete.var(X, axis=0, keepdims=True), lambda: arete.var(X, 0, keepdim=True)),
    (lambda: X.std(axis=1), lambda: X.std(1)),
    (lambda: arete.std_mean(X, axis=0)[1], lambda: X.mean(0)),
    (lambda: arete.gradient(X, axis=0)[0], lambda: arete.gradient(X, dim=0)[0]),
    (lambda: arete.where(X > 1, x=X, x2=0.0), lambda: arete.where(X > 1, X, 0.0)),
    (lambda: arete.tensordot(a=X, b=X.T, dims=1), lambda: X @ X.T),
    (lambda: arete.swapaxes(X, axis0=0, axis1=1), lambda: X.T),
    (lambda: arete.roll(X, 1, None), lambda: arete.roll(X, 1)),
])
def test_other_names(call, same):
    assert call().tolist() == same().tolist()


def test_a_name_given_twice():
    with pytest.raises(TypeError, match="multiple values"):
        arete.sum(X, dim=0, axis=0)
    with pytest.raises(TypeError, match="multiple values"):
        arete.gradient(X, dim=0, axis=0)


def test_forms_of_the_correction():
    biased = X.var(1, correction=0)
    assert arete.var(X, 1, False).tolist() == X.var(1, unbiased=False).tolist() == biased.tolist()
    assert arete.var(X, 1, False, True).shape == (2, 1)
    assert X.var(False).item() == X.var(correction=0).item()
    assert X.std(True).item() == X.std().item() == X.std(correction=None).item()
    assert arete.var_mean(X, False)[0].item() == X.var(correction=0).item()
    with pytest.raises(TypeError):
        X.var(1, unbiased=False, correction=0)


@pytest.mark.parametrize("call, value, dtype", [
    (lambda: arete.div(2, 4), 0.5, arete.float32),
    (lambda: arete.div(7, 2, rounding_mode="floor"), 3, arete.int64),
    (lambda: arete.add(2, 3), 5, arete.int64),
    (lambda: arete.add(2, 3, alpha=2), 8, arete.int64),
    (lambda: arete.add(2.0, 3), 5.0, arete.float32),
    (lambda: arete.mul(2, True), 2, arete.int64),
    (lambda: arete.add(True, True), True, arete.bool),
    (lambda: arete.mul(2j, 2), 4j, arete.complex64),
    (lambda: arete.floor_divide(7, 2), 3, arete.int64),
    (lambda: arete.remainder(-7, 2), 1, arete.int64),
])
def test_two_numbers(call, value, dtype):
    result = call()
    assert result.shape == () and result.dtype is dtype and result.item() == value


def test_isin_of_tensors_and_numbers():
    assert arete.isin(X, 2).tolist() == [[False, False, True], [False, False, False]]
    assert arete.isin(X, 2.5).any().item() is False
    assert arete.isin(2, X).item() is True
    assert arete.isin(element=7, test_elements=X).item() is False
    assert arete.isin(X.long(), test_element=2.0, invert=True).tolist() == [[True, True, False], [True, True, True]]
    assert arete.isin(arete.tensor([0.1], dtype=arete.float64), 0.1).item() is True  # not rounded to float32
    with pytest.raises(TypeError):
        arete.isin(2, 2)


def test_numbers_for_which_records_want_tensors():
    boundaries = arete.tensor([1, 3, 5])
    assert arete.searchsorted(boundaries, 3, right=True).item() == 2
    assert arete.searchsorted(boundaries, 2.5).item() == 1
    assert arete.bucketize(4, boundaries).item() == 2
    assert arete.quantile(X.double(), 0.1).item() == pytest.approx(0.5, rel=1e-15)


def test_several_results_are_called_as_their_function():
    assert type(X.max(0)).__name__ == "max" and type(X.median(dim=0)).__name__ == "median"


def test_reversed():
    assert reversed(X).tolist() == [[3.0, 4.0, 5.0], [0.0, 1.0, 2.0]]
    assert reversed(arete.tensor(3)).item() == 3


@pytest.mark.parametrize("dtype, name", [
    ("float32", "Float"), ("bfloat16", "BFloat16"), ("int64", "Long"), ("uint8", "Byte"), ("bool", "Bool"), ("complex64", "ComplexFloat"),
    ("complex128", "ComplexDouble"), ("float8_e4m3fn", "Float8_e4m3fn")])
def test_older_names_of_tensors(dtype, name):
    assert arete.zeros(2).to(getattr(arete, dtype)).type() == f"torch.{name}Tensor"
    assert arete.zeros(2, device="meta").to(getattr(arete, dtype)).type() == f"torch.meta.{name}Tensor"


def test_einsum_of_numbers():
    batches = arete.arange(24.0).reshape(2, 3, 4)
    assert arete.equal(arete.einsum(X, [0, 1], X, [2, 1], [0, 2]), X @ X.T)
    assert arete.einsum(X, [27, 1], arete.ones(2), [27]).shape == (3,) and arete.einsum(X, [27, 1]).shape == (3, 2)  # in order of numbers
    assert arete.equal(arete.einsum(batches, [..., 0, 1], [..., 1, 0]), batches.mT)
    with pytest.raises(ValueError, match="not within the valid range"):
        arete.einsum(X, [0, 52])
    with pytest.raises(ValueError, match="must specify the equation string and at least one operand"):
        arete.einsum(X)


def test_out_has_the_dtype_and_device_of_the_result():
    x = arete.rand(3, 3)
    for call in (arete.inverse, arete.nonzero, lambda x, out: arete.linalg.multi_dot([x, x], out=out),
                 lambda x, out: arete.diff(x, out=out), lambda x, out: arete.tensordot(x, x, dims=1, out=out)):
        with pytest.raises(RuntimeError, match="Expected out tensor to have dtype"):
            call(x, out=arete.empty(0, dtype=arete.complex128))
    for call in (arete.inverse, arete.nonzero, arete.sin, arete.fft.fft, lambda x, out: arete.sum(x, 0, out=out),
                 lambda x, out: arete.tensordot(x, x, dims=1, out=out), lambda x, out: arete.mul(x * 1j, x, out=out)):
        with pytest.raises(RuntimeError, match="device"):
            call(x, out=arete.empty_like(call(x, out=None), device="meta"))
    with pytest.raises(TypeError, match="argument 'out' must be Tensor, not tuple"):
        arete.sin(x, out=(x,))


def test_out_of_another_dtype():
    """Bytes wrap as bytes, and norms of complex tensors are real."""
    a, b = arete.tensor([1, 2], dtype=arete.uint8), arete.tensor([3, 1], dtype=arete.uint8)
    for function in (arete.sub, arete.bitwise_left_shift, arete.mul):
        assert function(a, b, out=arete.zeros(2, dtype=arete.int64)).tolist() == function(a, b).tolist()
    assert arete.sub(a, b, out=arete.zeros(2, dtype=arete.int64)).tolist() == [254, 1]
    x = arete.tensor([3 + 4j, 0j])
    for norm in (arete.linalg.vector_norm, arete.linalg.norm):
        assert norm(x, out=arete.zeros(())).item() == 5
    wider = arete.fft.fft(x, out=arete.empty(0, dtype=arete.complex128))
    assert arete.equal(wider, arete.fft.fft(x).to(arete.complex128))


def test_other_names_of_two_tensors():
    assert arete.equal(x1=X, x2=X) is True and X.equal(x2=X) is True
    with pytest.raises(TypeError, match="must be Tensor, not list"):
        X.type_as([1.0])


def test_forms_in_place_take_their_tensor_by_name():
    x = arete.tensor([-1.0, 2.0])
    assert arete.abs_(input=x) is x and x.tolist() == [1, 2]
    assert arete.nn.functional.hardtanh_(min_val=0.0, input=x, max_val=1.5) is x and x.tolist() == [1, 1.5]
    for wrong in ({}, {"foo": x}):
        with pytest.raises(TypeError):
            arete.abs_(**wrong)


def test_copies_of_numbers():
    x = arete.zeros(2, requires_grad=True)
    y = x * 1
    assert y.copy_(2.5).tolist() == [2.5, 2.5] and arete.zeros(1, dtype=arete.int32).copy_(True).tolist() == [1]
    y.sum().backward()
    assert x.grad.tolist() == [0, 0]
    with pytest.raises(TypeError, match="must be Tensor, not list"):
        y.copy_([1, 2])
