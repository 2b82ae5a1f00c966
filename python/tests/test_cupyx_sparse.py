"""cupyx.scipy.sparse.linalg: eigenvalues and singular values beside NumPy's of the dense matrices."""
import numpy
import pytest
from device_helpers import device_of_arrays, on_devices_of_arrays  # noqa: F401

import arete
import arete.cupy as cp
from arete.cupyx.scipy import sparse
from arete.cupyx.scipy.sparse.linalg import LinearOperator, eigsh, svds

pytestmark = on_devices_of_arrays
RANDOM = numpy.random.default_rng(5)


def chain(n):
    """A chain of springs, whose least eigenvalues lie close together."""
    return 2 * numpy.eye(n) - numpy.eye(n, k=1) - numpy.eye(n, k=-1)


def some_of(n, share):
    x = RANDOM.normal(size=(n, n)) * (RANDOM.random((n, n)) < share)
    return x + x.T


@pytest.mark.parametrize("which", ["LM", "LA", "SA"])
@pytest.mark.parametrize("matrix", [chain(150), some_of(120, 0.05), some_of(40, 1.0) * 1e-8, some_of(120, 0.05).astype("f4")],
                         ids=["chain", "sparse", "small numbers", "float32"])
def test_eigenvalues(which, matrix):
    values, vectors = map(cp.asnumpy, eigsh(sparse.csr_matrix(cp.array(matrix)), 4, which=which))
    all_of = numpy.linalg.eigvalsh(matrix.astype("f8"))
    order = {"LM": abs(all_of), "LA": all_of, "SA": -all_of}[which].argsort()[-4:]
    accuracy = 200 * numpy.finfo(matrix.dtype).eps * abs(all_of).max()
    assert values.dtype == matrix.dtype and numpy.allclose(values, numpy.sort(all_of[order]), rtol=0, atol=accuracy)
    assert abs(matrix @ vectors - vectors * values).max() < accuracy
    assert numpy.allclose(vectors.T @ vectors, numpy.eye(4), rtol=0, atol=200 * numpy.finfo(matrix.dtype).eps)


def test_eigenvalues_that_are_many_complex_or_of_operators():
    half = RANDOM.normal(size=(30, 30)) + 1j * RANDOM.normal(size=(30, 30))
    matrix = half + half.conj().T
    values, vectors = map(cp.asnumpy, eigsh(cp.array(matrix), 3, which="SA", v0=cp.ones(30)))
    assert numpy.allclose(values, numpy.linalg.eigvalsh(matrix)[:3]) and numpy.allclose(matrix @ vectors, vectors * values)
    assert numpy.allclose(cp.asnumpy(eigsh(cp.eye(50), 3, return_eigenvectors=False)), 1)
    several = numpy.diag([5.0, 5, 5, 1, 1] + [0] * 60)
    assert numpy.allclose(cp.asnumpy(eigsh(cp.array(several), 4)[0]), [1, 5, 5, 5])
    weights = cp.arange(1.0, 101)
    assert numpy.allclose(cp.asnumpy(eigsh(LinearOperator((100, 100), lambda x: weights * x), 2, which="LA")[0]), [99, 100])
    for call, error in ((lambda: eigsh(cp.eye(5), 5), ValueError), (lambda: eigsh(cp.ones((2, 3)), 1), ValueError),
                        (lambda: eigsh(cp.eye(5), 2, which="SM"), ValueError), (lambda: eigsh(cp.eye(5), 2, ncv=2), ValueError),
                        (lambda: eigsh(cp.array(chain(300)), 4, which="SA", maxiter=50), RuntimeError)):
        with pytest.raises(error):
            call()


def test_eigenvalues_beside_the_space_of_the_first_vector():
    matrix, first = cp.array(numpy.diag(numpy.arange(1.0, 101))), numpy.zeros(100)
    first[:10] = 1  # the space is whole after as many steps as the basis has
    state = [arete.get_rng_state(), *([arete.cuda.get_rng_state()] if arete.cuda.is_available() else [])]
    assert numpy.allclose(cp.asnumpy(eigsh(matrix, 2, which="LA", ncv=10, v0=cp.array(first))[0]), [99, 100])
    ones, first = numpy.diag([3.0, 2] + [1] * 48), numpy.eye(50)[0]
    assert numpy.allclose(cp.asnumpy(eigsh(cp.array(ones), 3, ncv=5, v0=cp.array(first))[0]), [1, 2, 3])
    assert numpy.allclose(cp.asnumpy(eigsh(cp.zeros((50, 50)), 2)[0]), 0)
    after = [arete.get_rng_state(), *([arete.cuda.get_rng_state()] if arete.cuda.is_available() else [])]
    assert all(arete.equal(a, b) for a, b in zip(state, after))


def test_the_look_for_more_eigenvalues_ends_with_the_doubt():
    """What is beside the greatest value is dense: it is known to be less long before it is known exactly."""
    weights, done = cp.linspace(0, 1, 3000), []
    weights[-1] = 10
    operator = LinearOperator((3000, 3000), lambda x: done.append(1) or weights * x, dtype=weights.dtype)
    for maxiter in (None, 33):
        done.clear()
        assert cp.asnumpy(eigsh(operator, 1, which="LA", maxiter=maxiter)[0]) == pytest.approx([10]) and len(done) < 70
    weights[-1] = 1
    first = cp.zeros(3000)
    first[-1] = 1  # is found at once, and what is beside it not before the products are spent
    done.clear()
    value, vector = eigsh(operator, 1, which="LA", maxiter=33, v0=first)
    assert cp.asnumpy(value) == pytest.approx([1]) and abs(float(vector[-1, 0])) == pytest.approx(1) and 66 <= len(done) <= 100


@pytest.mark.parametrize("which", ["LM", "LA", "SA"])
@pytest.mark.parametrize("spare", [1, 2, 5, 33])
def test_equal_eigenvalues_are_found_as_often_as_they_are_there(which, spare):
    for seed in range(4):
        numbers = numpy.random.default_rng(seed)
        values = numpy.where(numpy.arange(40) < 20, numbers.integers(-3, 4, 40), numbers.uniform(-2, 2, 40))
        turned, _ = numpy.linalg.qr(numbers.normal(size=(40, 40)))
        matrix = turned * values @ turned.T
        k = 1 + seed
        measure = {"LM": abs(values), "LA": values, "SA": -values}[which]
        found, vectors = map(cp.asnumpy, eigsh(cp.array(matrix), k, which=which, ncv=k + spare, maxiter=5000))
        wanted = sorted(measure, reverse=True)[:k]
        assert numpy.allclose(sorted({"LM": abs(found), "LA": found, "SA": -found}[which], reverse=True), wanted, atol=1e-8)
        assert numpy.allclose(matrix @ vectors, vectors * found, atol=1e-7) and numpy.allclose(vectors.T @ vectors, numpy.eye(k))


@pytest.mark.parametrize("shape", [(60, 35), (35, 60)])
@pytest.mark.parametrize("number", [1.0, 1 + 0.5j])
def test_singular_values(shape, number):
    matrix = RANDOM.normal(size=shape) * (RANDOM.random(shape) < 0.3) * number
    u, s, vh = map(cp.asnumpy, svds(sparse.csr_matrix(cp.array(matrix)), 5))
    assert numpy.allclose(s, numpy.linalg.svd(matrix, compute_uv=False)[4::-1])
    assert numpy.allclose(u.conj().T @ u, numpy.eye(5)) and numpy.allclose(vh @ vh.conj().T, numpy.eye(5))
    assert numpy.allclose(matrix @ vh.conj().T, u * s)
    assert numpy.allclose(cp.asnumpy(svds(cp.array(matrix), 2, return_singular_vectors=False)), s[-2:])
    low = numpy.outer(RANDOM.normal(size=shape[0]), RANDOM.normal(size=shape[1]))
    u, s, vh = map(cp.asnumpy, svds(cp.array(low), 2))
    assert numpy.allclose((u * s) @ vh, low) and numpy.allclose(u.T @ u, numpy.eye(2)) and s[0] < 1e-6 * s[1]
    with pytest.raises(ValueError, match="rmatvec"):
        svds(LinearOperator(shape, lambda x: x), 1)
