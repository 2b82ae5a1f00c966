"""Extensions in C++ written for PyTorch: compiled against Arete, unchanged."""
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap

import pytest

import arete
from arete.utils import cpp_extension

COMPILER = shutil.which(os.environ.get("CXX", "c++"))
pytestmark = pytest.mark.skipif(COMPILER is None or not cpp_extension.get_compiler_abi_compatibility_and_version(COMPILER)[0],
                                reason="needs a compiler for C++20")

# One translation unit for all of it: it is the headers that take the time.
SOURCE = r"""
#include <ATen/ATen.h>
#include <torch/all.h>
#include <torch/library.h>

#include <vector>

// A cell with a gradient of its own, in operators.
torch::Tensor d_elu(torch::Tensor z, torch::Scalar alpha = 1.0) {
  auto e = z.exp();
  auto mask = (alpha * (e - 1)) < 0;
  return (z > 0).type_as(z) + mask.type_as(z) * (alpha * e);
}
std::vector<torch::Tensor> cell(torch::Tensor input, torch::Tensor weights, torch::Tensor bias, torch::Tensor h, torch::Tensor c) {
  auto x = torch::cat({h, input}, /*dim=*/1);
  auto gates = torch::addmm(bias, x, weights.transpose(0, 1)).chunk(3, /*dim=*/1);
  auto i = torch::sigmoid(gates[0]), o = torch::sigmoid(gates[1]), g = torch::elu(gates[2], /*alpha=*/1.0);
  auto new_c = c + g * i;
  auto new_h = torch::tanh(new_c) * o;
  auto s = gates[2].slice(/*dim=*/1, 0, 1).sum(/*dim=*/0, /*keepdim=*/true);
  return {new_h, new_c, x.t().mm(x), s, (1 - i) * i, d_elu(gates[2])};
}

// Elements by hand.
torch::Tensor cube(torch::Tensor x) {
  TORCH_CHECK(x.dim() == 2, "cube: two dimensions are wanted, not ", x.dim(), " of sizes ", x.sizes());
  TORCH_CHECK(x.device().type() == at::DeviceType::CPU);
  auto in = x.contiguous();
  auto out = torch::empty_like(in);
  AT_DISPATCH_ALL_TYPES(in.scalar_type(), "cube", ([&] {
    auto a = in.accessor<scalar_t, 2>();
    scalar_t* to = out.data_ptr<scalar_t>();
    for (int64_t i = 0; i < a.size(0); ++i)
      for (int64_t j = 0; j < a.size(1); ++j) *to++ = a[i][j] * a[i][j] * a[i][j];
  }));
  return out;
}

// An operator of torch.library, and one that writes.
namespace mine {
at::Tensor mymuladd_cpu(const at::Tensor& a, const at::Tensor& b, double c) {
  TORCH_CHECK(a.sizes() == b.sizes());
  TORCH_CHECK(a.dtype() == at::kFloat);
  TORCH_INTERNAL_ASSERT(b.device().type() == at::DeviceType::CPU);
  at::Tensor a_contig = a.contiguous(), b_contig = b.contiguous();
  at::Tensor result = torch::empty(a_contig.sizes(), a_contig.options());
  const float* a_ptr = a_contig.data_ptr<float>();
  const float* b_ptr = b_contig.data_ptr<float>();
  float* result_ptr = result.data_ptr<float>();
  for (int64_t i = 0; i < result.numel(); i++) result_ptr[i] = a_ptr[i] * b_ptr[i] + c;
  return result;
}
void myadd_out_cpu(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) { out.copy_(a + b); }
TORCH_LIBRARY(mine_ext, m) {
  m.def("mymuladd(Tensor a, Tensor b, float c) -> Tensor");
  m.def("myadd_out(Tensor a, Tensor b, Tensor(a!) out) -> ()");
}
TORCH_LIBRARY_IMPL(mine_ext, CPU, m) {
  m.impl("mymuladd", &mymuladd_cpu);
  m.impl("myadd_out", &myadd_out_cpu);
}
}  // namespace mine

std::tuple<torch::Tensor, int64_t, std::string> mixed(torch::Tensor x, int64_t n, bool twice, std::string text,
                                                      std::optional<torch::Tensor> other, std::vector<int64_t> sizes) {
  auto y = torch::zeros(sizes, torch::dtype(torch::kFloat64).device(torch::kCPU)) + x.view({-1, 1});
  if (other.has_value()) y = y + *other;
  return {twice ? y * 2 : y, n + 1, text + "!"};
}
double halved(double x) { return x / 2; }
int64_t halved_int(int64_t x) { return x / 2; }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("cell", &cell, "A cell");
  m.def("cube", &cube, py::call_guard<py::gil_scoped_release>());
  m.def("mixed", &mixed, py::arg("x"), py::arg("n") = 3, py::arg("twice") = false, py::arg("text") = "so",
        py::arg("other") = std::nullopt, py::arg("sizes") = std::vector<int64_t>{1});
  m.def("halved", &halved_int);
  m.def("halved", &halved);
  m.def("numbers", [](int n) { return std::vector<double>(n, 0.5); });
  m.def("fail", [](const std::string& kind) {
    if (kind == "index") throw std::out_of_range("too far");
    if (kind == "value") throw std::invalid_argument("no such thing");
    return torch::zeros({2, 3}).mm(torch::zeros({2, 3}));
  });
}
"""


@pytest.fixture(scope="module")
def extension(tmp_path_factory):
    folder = tmp_path_factory.mktemp("extension")
    source = folder / "mine.cpp"
    source.write_text("#include <torch/extension.h>\n" + SOURCE)
    options = {"extra_cflags": ["-O0"], "build_directory": str(folder)}
    built = cpp_extension.load("mine", [str(source)], **options)
    before = {file: file.stat().st_mtime_ns for file in folder.glob("*.so")}
    again = cpp_extension.load("mine", str(source), is_python_module=False, **options)  # nothing has changed
    assert {file: file.stat().st_mtime_ns for file in folder.glob("*.so")} == before == {pathlib.Path(again): before[pathlib.Path(again)]}
    return built


def test_operators(extension):
    arete.manual_seed(0)
    tensors = [arete.randn(*s) for s in ((2, 3), (12, 7), (12,), (2, 4), (2, 4))]
    h, c, product, s, slope, d = extension.cell(*tensors)
    x = arete.cat([tensors[3], tensors[0]], 1)
    i, o, g = arete.addmm(tensors[2], x, tensors[1].t()).chunk(3, 1)
    new_c = tensors[4] + arete.nn.functional.elu(g) * i.sigmoid()
    for a, b in ((c, new_c), (h, new_c.tanh() * o.sigmoid()), (product, x.t() @ x), (s, g[:, :1].sum(0, keepdim=True)),
                 (slope, i.sigmoid() * (1 - i.sigmoid())), (d, arete.where(g > 0, arete.ones_like(g), g.exp()))):
        assert a.shape == b.shape and arete.allclose(a, b, atol=1e-6)
    weights = tensors[1].requires_grad_()
    extension.cell(*tensors)[0].sum().backward()  # calls of operators are recorded as those of Python
    assert weights.grad.shape == weights.shape and extension.cell.__doc__ == "A cell"


def test_elements_and_checks(extension):
    for dtype in (arete.float32, arete.float64, arete.int64, arete.uint8):
        x = arete.tensor([[1, 2, 3], [0, 1, 2]], dtype=dtype).t()
        assert arete.equal(extension.cube(x), x**3) and extension.cube(x).dtype is dtype
    with pytest.raises(RuntimeError, match=r"cube: two dimensions are wanted, not 1 of sizes \[3\]"):
        extension.cube(arete.ones(3))
    with pytest.raises(RuntimeError, match="Expected x.device.*CPU to be true, but got false"):
        extension.cube(arete.ones(1, 1, device="meta"))
    with pytest.raises(RuntimeError, match="\"cube\" not implemented for 'float16'"):
        extension.cube(arete.ones(1, 1, dtype=arete.float16))


def test_arguments_and_errors(extension):
    y, n, text = extension.mixed(arete.tensor([1.0, 2.0], dtype=arete.float64))
    assert y.tolist() == [[1], [2]] and (n, text) == (4, "so!")
    y, n, text = extension.mixed(arete.ones(1), n=7, twice=True, other=arete.ones(2, 1), sizes=(1, 2), text="é")
    assert y.tolist() == [[4, 4], [4, 4]] and (n, text) == (8, "é!") and y.dtype is arete.float64
    assert extension.halved(5) == 2 and extension.halved(5.0) == 2.5 and extension.numbers(2) == [0.5, 0.5]
    for call in (lambda: extension.cube(), lambda: extension.cube(1), lambda: extension.cube(arete.ones(1, 1), 2),
                 lambda: extension.mixed(arete.ones(1), m=1), lambda: extension.mixed(arete.ones(1), x=1)):
        with pytest.raises(TypeError, match="incompatible function arguments"):
            call()
    with pytest.raises(OverflowError):
        extension.numbers(2**40)
    for kind, error in (("index", IndexError), ("value", ValueError), ("operator", arete.ArgumentError)):
        with pytest.raises(error):
            extension.fail(kind)


def test_operators_of_library(extension):
    a, b = arete.tensor([1.0, 2.0], requires_grad=True), arete.tensor([3.0, 4.0])
    op = arete.ops.mine_ext.mymuladd
    assert op(a.detach(), b, 0.5).tolist() == [3.5, 8.5] and op.default(a.detach(), b, 1).tolist() == [4, 9]
    out = arete.empty(2)
    arete.ops.mine_ext.myadd_out(a.detach(), b, out)
    assert out.tolist() == [4, 6]

    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[1], gradient * ctx.saved_tensors[0], None

    arete.library.register_autograd("mine_ext::mymuladd", backward,
                                    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0], inputs[1]))
    op(a, b, 0.5).sum().backward()
    assert a.grad.tolist() == [3, 4]
    with pytest.raises(RuntimeError, match="Expected a.sizes.*to be true"):
        op(arete.ones(2), arete.ones(3), 1.0)


def test_sources_as_texts(tmp_path):
    """The compiler's words name the line of the text; nothing is left that would pass for a library."""
    folder = str(tmp_path)
    source = "torch::Tensor twice(torch::Tensor x) {\n  return x * 2 + missing;\n}\n"
    with pytest.raises(RuntimeError, match=r"(?s)Error building extension 'texts'.*texts.cpp:2:\d+: error: .*missing"):
        cpp_extension.load_inline("texts", source, functions=["twice"], extra_cflags=["-O0"], build_directory=folder)
    assert not list(tmp_path.glob("*.so"))


def test_what_has_changed_is_built_again(tmp_path):
    """Also in the process that has imported what was there before, and where only a header that lies elsewhere has changed."""
    (tmp_path / "headers").mkdir()
    (tmp_path / "it.cpp").write_text('#include "number.h"\n#include <Python.h>\n'
                                     'PyObject* number(PyObject*, PyObject*) { return PyLong_FromLong(NUMBER); }\n'
                                     'PyMethodDef methods[] = {{"number", number, METH_NOARGS, nullptr}, {}};\n'
                                     'PyModuleDef module = {PyModuleDef_HEAD_INIT, "it", nullptr, -1, methods};\n'
                                     'extern "C" __attribute__((visibility("default"))) PyObject* PyInit_it() '
                                     '{ return PyModule_Create(&module); }\n')
    for number in (3, 3, 4):
        if number == 4 or not (tmp_path / "headers" / "number.h").exists():
            (tmp_path / "headers" / "number.h").write_text(f"#define NUMBER {number}\n")
        module = cpp_extension.load("it", str(tmp_path / "it.cpp"), extra_include_paths=[tmp_path / "headers"],
                                    build_directory=str(tmp_path))
        assert module.number() == number and len(list(tmp_path.glob("*.so"))) == 1


def test_what_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", None)
    with pytest.raises(RuntimeError, match="need nvcc, which is not here"):
        cpp_extension.load_inline("kernels", "", cuda_sources="__global__ void f() {}", build_directory=str(tmp_path))
    with pytest.raises(RuntimeError, match="need nvcc, which is not here"):
        cpp_extension.CUDAExtension("kernels", ["f.cu"])
    for refused in (lambda: cpp_extension.load("p", [], is_standalone=True), lambda: cpp_extension.load("p", [], with_sycl=True),
                    lambda: cpp_extension.SyclExtension("p", [])):
        with pytest.raises(NotImplementedError, match="cpp_extension"):
            refused()


KERNEL = r"""
template <typename scalar_t>
__global__ void square_kernel(const scalar_t* __restrict__ in, scalar_t* __restrict__ out, int64_t n) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) out[i] = in[i] * in[i];
}
torch::Tensor square(torch::Tensor x) {
  TORCH_CHECK(x.device().is_cuda(), "x must be a CUDA tensor");
  auto in = x.contiguous();
  auto out = torch::empty_like(in);
  const int64_t n = in.numel();
  if (n == 0) return out;
  AT_DISPATCH_FLOATING_TYPES(in.scalar_type(), "square", ([&] {
    square_kernel<scalar_t><<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        in.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), n);
  }));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
"""


@pytest.mark.skipif(not arete.cuda.is_available() or cpp_extension.CUDA_HOME is None, reason="needs a GPU and nvcc")
def test_kernels(tmp_path):
    built = cpp_extension.load_inline("kernels", "torch::Tensor square(torch::Tensor x);", cuda_sources=KERNEL, functions=["square"],
                                      extra_cflags=["-O0"], build_directory=str(tmp_path))
    x = arete.randn(1000, 3, device="cuda").t()
    for given in (x, x.double(), x[:, :0]):
        assert arete.equal(built.square(given), given * given)
    with arete.cuda.stream(arete.cuda.Stream()):
        y = built.square(x)
        assert arete.equal(y, x * x)
    with pytest.raises(RuntimeError, match="x must be a CUDA tensor"):
        built.square(arete.ones(2))


def test_setuptools(tmp_path):
    """build_ext --inplace of a package, in the name of torch."""
    pytest.importorskip("setuptools")
    (tmp_path / "own.cpp").write_text("#include <Python.h>\n#ifndef OWN\n#error no OWN\n#endif\n#include <torch/api.h>\n"
                                      "static PyModuleDef d{PyModuleDef_HEAD_INIT, \"own\"};\n"
                                      "PyMODINIT_FUNC ARETE_NAME() { return PyModule_Create(&d); }\n")
    (tmp_path / "setup.py").write_text(textwrap.dedent("""
        from setuptools import setup
        from torch.utils.cpp_extension import BuildExtension, CppExtension
        setup(name="own", ext_modules=[CppExtension("own", ["own.cpp"], extra_compile_args={
            "cxx": ["-O0", "-DOWN", "-DARETE_NAME=PyInit_own"]})], cmdclass={"build_ext": BuildExtension.with_options(use_ninja=False)})
    """))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-m", "arete.as_torch", "setup.py", "build_ext", "--inplace"], cwd=tmp_path, env=environment,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert subprocess.run([sys.executable, "-c", "import own; print(own.__name__)"], cwd=tmp_path, env=environment, capture_output=True,
                          text=True, check=True).stdout == "own\n"
