"""Programs in the manner of CuPy's user guide, and cupyx.scipy.sparse beside arrays."""
import numpy
import nvrtc
import pytest
from device_helpers import device_of_arrays, on_devices_of_arrays  # noqa: F401

import arete
import arete.cupy as cp
from arete import cupyx
from arete.cupyx import jit
from arete.cupyx.profiler import benchmark, time_range
from arete.cupyx.scipy import sparse

pytestmark = on_devices_of_arrays
D = numpy.array([[1.0, 0, 2], [0, 0, 3], [4, 5, 0]])


def test_either_library():
    def softplus(x):
        xp = cp.get_array_module(x)
        return xp.maximum(0, x) + xp.log1p(xp.exp(-abs(x)))

    a = numpy.linspace(-3, 3, 7)
    assert numpy.allclose(softplus(cp.asarray(a)).get(), softplus(a)) and isinstance(softplus(a), numpy.ndarray)
    assert cp.get_array_module(cp.ones(2)) is cp and isinstance(cp.asnumpy(cp.ones(2)), numpy.ndarray)


def test_kernels_of_the_guide():
    x, y = cp.arange(10, dtype="f").reshape(2, 5), cp.arange(5, dtype="f")
    squared = cp.ElementwiseKernel("T x, T y", "T z", "z = (x - y) * (x - y)", "squared")
    assert numpy.allclose(squared(x, y).get(), (x.get() - y.get())**2) and squared(x, 5).dtype == numpy.float32
    reverse = cp.ElementwiseKernel("T x, raw T y", "T z", "z = x + y[_ind.size() - i - 1]", "add_reverse")
    assert reverse(y, y).tolist() == [4] * 5
    l2norm = cp.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "l2norm")
    assert numpy.allclose(l2norm(x, axis=1).get(), numpy.linalg.norm(x.get(), axis=1))

    @cp.fuse()
    def difference(x, y):
        return (x - y)**2

    assert difference(y, 2).tolist() == [4, 1, 0, 1, 4]
    a = cp.zeros(4)
    cupyx.scatter_add(a, cp.array([0, 1, 1]), cp.array([1.0, 2, 3]))
    cp.add.at(a, [3, 3], 1)
    assert a.tolist() == [1, 5, 0, 2]


def test_modules_templates_and_types_of_the_guide():
    x, y = cp.arange(10, dtype="f").reshape(2, 5), cp.arange(5, dtype="f")
    squared = cp.ElementwiseKernel("X x, Y y", "Z z", "z = (x - y) * (x - y)", "squared")
    z = cp.empty((2, 5))
    assert squared(x, y, z) is z and z[1].tolist() == [25.0] * 5
    module = cp.RawModule(code="""
        extern "C" {
        __global__ void sum(const float* x1, const float* x2, float* y, unsigned int n) {
          unsigned int tid = blockDim.x * blockIdx.x + threadIdx.x;
          if (tid < n) y[tid] = x1[tid] + x2[tid];
        }
        __global__ void multiply(const float* x1, const float* x2, float* y, unsigned int n) {
          unsigned int tid = blockDim.x * blockIdx.x + threadIdx.x;
          if (tid < n) y[tid] = x1[tid] * x2[tid];
        }
        }""")
    out = cp.zeros(5, dtype="f")
    for name, f in (("sum", numpy.add), ("multiply", numpy.multiply)):
        module.get_function(name)((1,), (8,), (y, y, out, y.size))
        assert numpy.array_equal(out.get(), f(y.get(), y.get()))
    names = ["thrice<float>", "thrice<double>"]
    module = cp.RawModule(code="template <typename T>\n__global__ void thrice(T* a, int n) {\n"
                          "  int tid = blockIdx.x * blockDim.x + threadIdx.x;\n  if (tid < n) a[tid] = a[tid] * 3;\n}",
                          options=("--std=c++11",), name_expressions=names)
    for name, dtype in zip(names, ("f", "d")):
        a = cp.ones(10, dtype=dtype)
        module.get_function(name)((1,), (10,), (a, 10))
        assert a.tolist() == [3.0] * 10

    @cp.fuse()
    def sum_of_products(x, y):
        return cp.sum(x * y, axis=-1)

    assert sum_of_products(x, y).tolist() == [30, 80]


@jit.rawkernel()
def total(x, y, size):
    tid = jit.threadIdx.x
    ntid = jit.blockDim.x
    value = cp.float32(0)
    for i in range(tid, size, ntid):
        value += x[i]
    shared = jit.shared_memory(cp.float32, 1024)
    shared[tid] = value
    jit.syncthreads()
    if tid == cp.uint32(0):
        value = cp.float32(0)
        for i in range(ntid):
            value += shared[i]
        y[0] = value


def test_a_sum_of_the_guide_in_python():
    x, y = cp.ones(2**12, dtype="f"), cp.empty(1, dtype="f")
    total((1,), (256,), (x, y, cp.uint32(2**12)))
    assert y.item() == 2**12
    total[1, 1024](x[:100], y, cp.uint32(100))
    assert y.item() == 100


COMPLEX = """#include <cupy/complex.cuh>
extern "C" __global__ void rotated(const complex<float>* x1, const complex<float>* x2, complex<float>* y, float a) {
  int tid = blockDim.x * blockIdx.x + threadIdx.x;
  y[tid] = x1[tid] + a * x2[tid] * exp(complex<float>(0, 1)) / (2 - x1[tid]) + pow(x1[tid], 2) + tanh(sqrt(x2[tid]));
}"""


def test_complex_numbers_of_the_guide(device):
    kernel = cp.RawKernel(COMPLEX, "rotated")
    random = numpy.random.default_rng(1)
    a, b = ((random.normal(size=25) + 1j * random.normal(size=25)).astype("F") for _ in range(2))
    y = cp.empty(25, dtype="F")
    if device == "cpu":
        with pytest.raises(NotImplementedError, match="line 2: a kernel of complex numbers cannot run on the CPU"):
            kernel((5,), (5,), (cp.asarray(a), cp.asarray(b), y, cp.float32(2)))
    else:
        kernel((5,), (5,), (cp.asarray(a), cp.asarray(b), y, cp.float32(2)))
        assert numpy.allclose(y.get(), a + 2 * b * numpy.exp(1j) / (2 - a) + a**2 + numpy.tanh(numpy.sqrt(b)), rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(nvrtc.opened() is None, reason="no NVRTC")
def test_complex_numbers_compile_for_gpus():
    both = COMPLEX.replace("cupy/", "") + """
extern "C" __global__ void others(complex<double>* x, complex<float> z) {
  x[0] += z * complex<double>(1.5, 2) + log(x[1]) * log10(x[2]) - sin(x[3]) / cos(conj(x[4])) * tan(x[5]) + polar(1.0, arg(x[6]));
  if (x[1] == 2 || abs(x[2]) < norm(x[3]) || x[4] != real(x[5])) x[1] = -cosh(x[1]) + sinh(+x[2]) * imag(x[3]);
  z = complex<float>(x[0]);
  x[2] = z;
}"""
    assert nvrtc.problems(both) == ""
    assert "complex<float> = complex<double>" in nvrtc.problems(both.replace("complex<float>(x[0])", "x[0]"))


def test_sparse_parts():
    m = sparse.csr_matrix(cp.asarray(D))
    assert m.getnnz() == 5 and m.getnnz(0).tolist() == [2, 1, 2] and m.getnnz(axis=1).tolist() == [2, 1, 2]
    whole = slice(None)
    for key, same in [(1, [1]), (-1, [2]), (slice(0, 2), slice(0, 2)), (slice(None, None, -1), slice(None, None, -1)), ([0, 2], [0, 2]),
                      ([2, 2, 0], [2, 2, 0]), ((whole, 1), (whole, [1])), ((1, whole), ([1], whole)),
                      ((-1, slice(1, 3)), ([2], slice(1, 3))),
                      ((slice(1, 3), slice(0, 2)), (slice(1, 3), slice(0, 2))), (([2, 0], slice(1, None)), ([2, 0], slice(1, None))),
                      ((whole, [2, 0, 2]), (whole, [2, 0, 2]))]:
        for own in (m, m.tocsc()):
            found = own[key if not isinstance(key, list) else cp.array(key)]
            assert numpy.array_equal(found.toarray().get(), D[same]) and found.format == own.format and found.shape == D[same].shape, key
            assert numpy.array_equal((found @ cp.eye(found.shape[1])).get(), D[same])
    assert numpy.array_equal(m[cp.array([True, False, True])].toarray().get(), D[[0, 2]])
    assert float(m[0, 2]) == 2 and float(m[1, 1]) == 0 and m.getrow(2).toarray().tolist() == [[4, 5, 0]]
    assert m.getcol(1).toarray().tolist() == [[0], [0], [5]] and [v.tolist() for v in m.nonzero()] == [[0, 0, 1, 2, 2], [0, 2, 2, 0, 1]]
    with pytest.raises(IndexError):
        m[3]
    with pytest.raises(IndexError):
        m[cp.array([0, 3])]
    with pytest.raises(TypeError):
        m.tocoo()[0]
    z = sparse.csr_matrix((cp.array([0.0, 1.0]), (cp.array([0, 1]), cp.array([0, 1]))), shape=(2, 2))
    z.eliminate_zeros()
    assert z.nnz == 1 and (z @ cp.ones(2)).tolist() == [0, 1]
    assert sparse.isspmatrix_csr(m) and not sparse.isspmatrix_csc(m) and sparse.isspmatrix_coo(m.tocoo())


def test_sparse_functions():
    m = sparse.csr_matrix(cp.asarray(D))
    for name, (own, expected) in {
            "mean": (m.mean(0), D.mean(0, keepdims=True)), "mean all": (m.mean(), D.mean()), "max": (m.max(), 5.0),
            "min": ((-m).min(), -5.0),
            "max of a full one": (sparse.csr_matrix(cp.full((2, 2), -1.0)).max(), -1.0),
            "max of none": (sparse.csr_matrix((2, 2)).max(), 0.0),
            "max 1": (m.max(axis=1), D.max(1, keepdims=True)), "sqrt": (m.sqrt(), numpy.sqrt(D)), "sin": (m.sin(), numpy.sin(D)),
            "pow": (m**3, numpy.linalg.matrix_power(D, 3)), "pow 0": (m**0, numpy.eye(3)), "maximum": (m.maximum(-m), abs(D)),
            "minimum": (m.minimum(2), numpy.minimum(D, 2)), "vstack": (sparse.vstack([m, m]), numpy.vstack([D, D])),
            "hstack": (sparse.hstack([m, m], "csc"), numpy.hstack([D, D])),
            "bmat": (sparse.bmat([[m, None], [None, m]], format="csr"), numpy.kron(numpy.eye(2), D)),
            "kron": (sparse.kron(m, sparse.eye(2)), numpy.kron(D, numpy.eye(2))), "tril": (sparse.tril(m), numpy.tril(D)),
            "triu": (sparse.triu(m, 1), numpy.triu(D, 1))}.items():
        own = own.toarray() if sparse.issparse(own) else own
        assert numpy.allclose(own.get(), expected) and own.shape == numpy.shape(expected), name
    assert [v.tolist() for v in sparse.find(m)] == [[0, 0, 1, 2, 2], [0, 2, 2, 0, 1], [1, 2, 3, 4, 5]]
    with pytest.raises(ValueError):
        sparse.vstack([m, sparse.eye(2)])


def test_benchmark(device):
    calls = []
    r = benchmark(calls.append, (1,), n_repeat=5, n_warmup=2)
    assert len(calls) == 7 and r.cpu_times.shape == (5,) and str(r).startswith("append") and "CPU:" in str(r)
    assert len(benchmark(lambda: None, n_repeat=10**9, max_duration=0.01).cpu_times) > 0

    @time_range("work")
    def work():
        return 3

    assert work() == 3
