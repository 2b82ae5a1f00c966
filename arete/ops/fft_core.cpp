// Complex numbers as pairs of real ones, and the transform of lines of such pairs.
#include "arete/ops/fft_internal.h"

#include <cmath>
#include <complex>
#include <numbers>

#include "arete/core/modes.h"
#include "arete/ops/call.h"
#include "arete/ops/complex_internal.h"
#include "arete/ops/creation.h"
#include "arete/ops/fft.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reference_util.h"
#include "arete/ops/shape.h"

namespace arete {
namespace ops {
namespace {

Tensor complex_sample(SampleMaker& m, IntList sizes, bool strided = false) {
  Shape parts(sizes);
  parts.push_back(2);
  SampleMaker reals(real_of(m.dtype), m.device, false, uint64_t(numel_of(parts)));
  const Tensor t = view_as_complex_copy(reals.make(parts));
  return strided && t.dim() > 1 ? t.transpose(0, -1).contiguous().transpose(0, -1) : t;
}

const OpRecord& view_as_real_copy_op =
    define("view_as_real_copy(Tensor self) -> Tensor")
        .doc("Complex numbers as pairs of real ones: (*) to (*, 2).")
        .surface(Surface::function)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          ARETE_CHECK(is_complex(x.dtype()),
                      TypeError(c.name(), "view_as_real is only supported for complex tensors")
                          .got(describe(x)));
          Shape sizes(x.sizes());
          sizes.push_back(2);
          out.push_back({std::move(sizes), real_of(x.dtype()), x.device(), {}});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor from = parts_in(c.tensor(0));
          p.copy({view_of(out[0]), view_of(from)});
        })
        .grad([](const GradCall& g) -> TensorList { return {view_as_complex_copy(g.grad())}; })
        .dtypes({kComplex64, kComplex128})
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{complex_sample(m, {2, 3})}},
                  {{complex_sample(m, {2, 3}, true)}, "strided"},
                  {{complex_sample(m, {})}, "0-d"},
                  {{complex_sample(m, {0, 2})}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{SampleMaker(kFloat32, m.device, false).make({2})},
                   ErrorKind::type,
                   "view_as_real is only supported for complex tensors"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          const auto* p = static_cast<const std::complex<double>*>(x.data_ptr());
          std::vector<double> v;
          for (int64_t i = 0; i < x.numel(); ++i) {
            v.push_back(p[i].real());
            v.push_back(p[i].imag());
          }
          Shape sizes(x.sizes());
          sizes.push_back(2);
          return {from_values(v, sizes)};
        });

const OpRecord& view_as_complex_copy_op =
    define("view_as_complex_copy(Tensor self) -> Tensor")
        .doc("Pairs of real numbers as complex ones: (*, 2) to (*).")
        .surface(Surface::function)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          ARETE_CHECK(
              x.dtype() == kFloat32 || x.dtype() == kFloat64,
              TypeError(c.name(), "view_as_complex is only supported for float32 and float64")
                  .got(describe(x)));
          ARETE_CHECK(
              x.dim() > 0 && x.size(-1) == 2,
              ValueError(c.name(), "Tensor must have a last dimension of size 2").got(describe(x)));
          out.push_back({Shape(x.sizes().first(x.sizes().size() - 1)),
                         complex_of(x.dtype()),
                         x.device(),
                         {}});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor to = parts_in(out[0]);
          p.copy({view_of(to), view_of(c.tensor(0))});
        })
        .grad([](const GradCall& g) -> TensorList { return {view_as_real_copy(g.grad())}; })
        .dtypes({kFloat32, kFloat64})
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3, 2})}},
                  {{m.make_strided({3, 2})}},
                  {{m.make({2})}, "0-d"},
                  {{m.make({0, 2})}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {
              {{m.make({2, 3})}, ErrorKind::value, "Tensor must have a last dimension of size 2"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          const std::vector<double> v = values_of(x);
          const Tensor out = empty_tensor(x.sizes().first(x.sizes().size() - 1), kComplex128, kCPU);
          auto* p = static_cast<std::complex<double>*>(out.data_ptr());
          for (size_t i = 0; i < v.size() / 2; ++i) p[i] = {v[2 * i], v[2 * i + 1]};
          return {out};
        });

// ---- lines ----

const OpRecord& transform_lines_op =
    define("transform_lines(Tensor self, bool forward, float scale) -> Tensor")
        .doc("Fourier transforms of lines of pairs (real, imaginary): (..., n, 2).")
        .surface(Surface::internal)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          ARETE_CHECK(x.dim() >= 2 && x.size(-1) == 2 && x.size(-2) > 0,
                      ValueError(c.name(), "expected lines of pairs (..., n, 2)").got(describe(x)));
          ARETE_CHECK(x.dtype() == kFloat32 || x.dtype() == kFloat64,
                      TypeError(c.name(), "expected float32 or float64").got(describe(x)));
          out.push_back({Shape(x.sizes()), x.dtype(), x.device(), {}});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor in = plain(c.tensor(0), out[0].dtype());
          p.fft({view_of(in), view_of(out[0]), c.boolean(1), c.real(2)});
        })
        // As a map of real numbers the transform is symmetric up to the sign of the exponent.
        .grad([](const GradCall& g) -> TensorList {
          return {transform_lines(g.grad(), !g.boolean(1), g.real(2))};
        })
        .flops([](const Call& c) {
          const Tensor& x = c.tensor(0);
          return 2.5 * double(x.numel()) * std::log2(double(std::max<int64_t>(x.size(-2), 2)));
        })
        .dtypes({kFloat32, kFloat64})
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          std::vector<Sample> out;
          for (int64_t n : {1, 2, 3, 4, 5, 7, 12, 30, 37})
            out.push_back({{m.make({2, n, 2}), n % 2 == 0, 1.0}});
          out.push_back({{m.make_strided({3, 6, 2}), false, 0.5}});
          out.push_back({{m.make({0, 4, 2}), true, 1.0}, "empty"});
          return out;
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), true, 1.0}, ErrorKind::value, "expected lines of pairs"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          const int64_t n = x.size(-2);
          return {build_tensor(x.sizes(), [&](const Shape& i) {
            Shape j = i;
            double sum = 0;
            for (int64_t k = 0; k < n; ++k) {
              j[i.size() - 2] = k;
              const double a = (c.boolean(1) ? -2 : 2) * std::numbers::pi *
                               double(i[i.size() - 2] * k % n) / double(n);
              j.back() = 0;
              const double re = at(x, j);
              j.back() = 1;
              const double im = at(x, j);
              sum += i.back() ? re * std::sin(a) + im * std::cos(a)
                              : re * std::cos(a) - im * std::sin(a);
            }
            return sum * c.real(2);
          })};
        });

}  // namespace

Tensor transform_lines(const Tensor& parts, bool forward, double scale) {
  return call(transform_lines_op, {parts, forward, scale});
}

Tensor with_size(const Tensor& parts, int64_t dim, int64_t n) {
  const int64_t have = parts.size(dim);
  if (have == n) return parts;
  if (have > n) return parts.narrow(dim, 0, n);
  Shape padding(size_t(2 * (parts.dim() - dim)), 0);
  padding.back() = n - have;
  return pad(parts, padding);
}
Tensor completed(const Tensor& parts, int64_t dim, int64_t n) {
  const int64_t half = n / 2 + 1;
  const Tensor first = with_size(parts, dim, half);
  if (n == half) return first;
  const double signs[] = {1, -1};
  const Tensor conjugate =
      tensor_from_host(signs, kFloat64, {2}, TensorOptions(parts.dtype(), parts.device()));
  return cat({first, first.narrow(dim, 1, n - half).flip({dim}).mul(conjugate)}, dim);
}

}  // namespace ops

Tensor view_as_real_copy(const Tensor& self) {
  return ops::call(ops::view_as_real_copy_op, {self});
}
Tensor view_as_complex_copy(const Tensor& self) {
  return ops::call(ops::view_as_complex_copy_op, {self});
}

}  // namespace arete

ARETE_FAMILY(fft_core)
