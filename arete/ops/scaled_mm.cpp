// scaled_mm: products of float8 matrices with their scales.
#include "arete/ops/call.h"
#include "arete/ops/matmul.h"

namespace arete {
namespace ops {
namespace {

// One number, or one for each row (or column): (rows, 1) or (1, columns).
void check_scale(const Call& c, size_t i, int64_t rows, int64_t columns) {
  const Tensor& s = c.tensor(i);
  ARETE_CHECK(s.dtype() == kFloat32,
              TypeError(c.name(), "scales must be float32").got(describe(s)));
  const bool fits = s.numel() == 1 || (s.dim() == 2 && s.size(0) == rows && s.size(1) == columns);
  ARETE_CHECK(fits, ValueError(c.name(), "a scale does not fit its matrix")
                        .argument(i == 2 ? "scale_a" : "scale_b")
                        .expected("one number or " + to_string(Shape{rows, columns}))
                        .got(describe(s)));
}

// A scale as a matrix that broadcasts to the result.
Layout scale_layout(const Tensor& s) {
  if (s.numel() == 1) return Layout(IntList{1, 1}, IntList{0, 0}, s.storage_offset());
  return s.layout();
}

const OpRecord& scaled_mm_op =
    define(
        "scaled_mm(Tensor self, Tensor mat2, Tensor scale_a, Tensor scale_b, *, Tensor? bias=None, "
        "dtype? out_dtype=None) -> Tensor")
        .doc("(self * scale_a) @ (mat2 * scale_b) + bias of float8 matrices.")
        .surface(Surface::internal)
        .one_by_one("it takes matrices only, and a scale for each")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor &a = c.tensor(0), &b = c.tensor(1);
          ARETE_CHECK(is_float8(a.dtype()) && is_float8(b.dtype()),
                      TypeError(c.name(), "expected two float8 matrices")
                          .got(describe(a) + " and " + describe(b)));
          ARETE_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0),
                      ValueError(c.name(), "mat1 and mat2 shapes cannot be multiplied")
                          .got(describe(a) + " and " + describe(b)));
          check_scale(c, 2, a.size(0), 1);
          check_scale(c, 3, 1, b.size(1));
          const DType dtype = c.has(5) ? c[5].dtype() : kBFloat16;
          ARETE_CHECK(dtype == kBFloat16 || dtype == kFloat16 || dtype == kFloat32,
                      TypeError(c.name(), "out_dtype must be bfloat16, float16 or float32")
                          .got(std::string(name_of(dtype))));
          ARETE_CHECK(
              !c.has(4) || (c.tensor(4).dim() == 1 && c.tensor(4).size(0) == b.size(1) &&
                            c.tensor(4).dtype() == dtype),
              ValueError(c.name(), "bias must have one element of out_dtype for each column")
                  .got(describe(c.tensor(4))));
          out.push_back({{a.size(0), b.size(1)}, dtype});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Layout a_scale = scale_layout(c.tensor(2)), b_scale = scale_layout(c.tensor(3));
          prim::GemmArgs g;
          g.a = view_of(c.tensor(0)), g.b = view_of(c.tensor(1)), g.out = view_of(out[0]);
          g.a_scale = view_of(c.tensor(2), a_scale), g.b_scale = view_of(c.tensor(3), b_scale);
          if (c.has(4)) g.bias = view_of(c.tensor(4));
          p.gemm(g);
        })
        .flops([](const Call& c) {
          return 2.0 * double(c.tensor(0).numel()) * double(c.tensor(1).size(-1));
        })
        .dtypes({kFloat32});

}  // namespace
}  // namespace ops

Tensor scaled_mm(const Tensor& self, const Tensor& mat2, const Tensor& scale_a,
                 const Tensor& scale_b, const Tensor& bias, std::optional<DType> out_dtype) {
  return ops::call(ops::scaled_mm_op, {self, mat2, scale_a, scale_b, bias, out_dtype});
}

}  // namespace arete

ARETE_FAMILY(scaled_mm)
