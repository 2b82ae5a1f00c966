// Complex numbers as pairs of real ones, and the transform of lines of such pairs.
#include <cmath>

#include "arete/core/modes.h"
#include "arete/ops/call.h"
#include "arete/ops/complex_internal.h"
#include "arete/ops/creation.h"
#include "arete/ops/fft.h"
#include "arete/ops/fft_internal.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"

namespace arete {
namespace ops {
namespace {

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
        .dtypes({kComplex64, kComplex128});

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
        .dtypes({kFloat32, kFloat64});

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
        .dtypes({kFloat32, kFloat64});

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
