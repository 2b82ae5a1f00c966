#include "arete/ops/matmul.h"

#include "arete/expr/program_cache.h"
#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/complex.h"
#include "arete/ops/complex_internal.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/matmul_internal.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/vmap_rules_internal.h"

namespace arete {
namespace ops {

// ---- for batches (Note [Batching rules])

namespace vmaps {
Tensor product(const Operand& a, const Operand& b) {
  const int64_t rank_a = rank_of(a), rank_b = rank_of(b);
  const Tensor &x = a.physical, &y = b.physical;
  // One product with what all share.
  if (a.is_mapped && !b.is_mapped && rank_b <= 2) return matmul(x, y);
  if (!a.is_mapped && rank_a == 2 && rank_b == 1) return matmul(y, x.mT());
  if (!a.is_mapped && rank_a == 1 && rank_b == 1) return matmul(y, x);
  const int64_t rank = std::max<int64_t>({rank_a, rank_b, 2});
  // Matrices with the batch, if they have it, in front of all.
  const auto matrices = [&](const Operand& o, bool is_left) {
    Tensor t = o.physical;
    const int64_t own = rank_of(o);
    if (own == 1) t = t.unsqueeze(is_left ? -2 : -1);
    return o.is_mapped ? t.reshape(with_ones(t.sizes(), rank - std::max<int64_t>(own, 2))) : t;
  };
  Tensor made = matmul(matrices(a, true), matrices(b, false));
  if (rank_b == 1) made = made.squeeze(-1);
  if (rank_a == 1) made = made.squeeze(rank_b == 1 ? -1 : -2);
  return made;
}

namespace {
Results product_rule(const Rewriting& r) { return {product(r.at(0), r.at(1))}; }
Results matmul_scaled_rule(const Rewriting& r) {
  return {scaled(product(r.at(0), r.at(1)), Scalar(r.call.real(2)))};
}
Results addmm_rule(const Rewriting& r) {
  const Tensor made = scaled(product(r.at(1), r.at(2)), r.call.scalar(4));
  const int64_t rank = int64_t(r.specs[0].sizes.size());
  if (r.call.scalar(3) == Scalar(0)) return {made};
  return {scaled(raised(r.at(0), rank), r.call.scalar(3)) + made};
}
}  // namespace
}  // namespace vmaps
namespace {

void check_factor_dtypes(const Call& call, const Tensor& a, const Tensor& b) {
  ARETE_CHECK(a.dtype() == b.dtype(),
              TypeError(call.name(), "expected m1 and m2 to have the same dtype, but got: " +
                                         std::string(name_of(a.dtype())) +
                                         " != " + std::string(name_of(b.dtype())))
                  .hint("convert one with .to(dtype)"));
}

void check_inner(const Call& call, const Tensor& a, const Tensor& b, int64_t k1, int64_t k2) {
  ARETE_CHECK(k1 == k2, ValueError(call.name(), "mat1 and mat2 shapes cannot be multiplied (" +
                                                    shape_text(a.sizes()) + " and " +
                                                    shape_text(b.sizes()) + ")")
                            .expected("equal inner sizes")
                            .got(std::to_string(k1) + " and " + std::to_string(k2)));
}

void check_rank(const Call& call, const Tensor& t, int64_t rank, const char* text) {
  ARETE_CHECK(t.dim() == rank, ValueError(call.name(), text).got(describe(t)));
}

// ---- the product of operands of any rank, as one gemm ----

Shape matmul_sizes(const Call& call, const Tensor& a, const Tensor& b) {
  ARETE_CHECK(a.dim() > 0 && b.dim() > 0,
              ValueError(call.name(),
                         "both arguments to matmul need to be at least 1D, but they are " +
                             std::to_string(a.dim()) + "D and " + std::to_string(b.dim()) + "D"));
  check_factor_dtypes(call, a, b);
  const int64_t k1 = a.sizes().back(), k2 = b.dim() == 1 ? b.sizes()[0] : b.size(-2);
  ARETE_CHECK(k1 == k2 || a.dim() > 1 || b.dim() > 1,
              ValueError(call.name(), "inconsistent tensor size, expected tensor [" +
                                          std::to_string(k1) + "] and src [" + std::to_string(k2) +
                                          "] to have the same number of elements, but got " +
                                          std::to_string(k1) + " and " + std::to_string(k2) +
                                          " elements respectively"));
  check_inner(call, a, b, k1, k2);
  const IntList as = a.sizes(), bs = b.sizes();
  Shape out;
  if (as.size() > 2 || bs.size() > 2) {
    out = broadcast_shapes(as.first(as.size() - std::min<size_t>(as.size(), 2)),
                           bs.first(bs.size() - std::min<size_t>(bs.size(), 2)), call.name());
  }
  if (as.size() > 1) out.push_back(as[as.size() - 2]);
  if (bs.size() > 1) out.push_back(bs.back());
  return out;
}

/// out = alpha * a @ b + beta * out + bias, with vectors as rows (a) and columns (b).
void run_gemm(const Tensor& a, const Tensor& b, const Tensor& out, prim::Primitives& p,
              double alpha = 1, double beta = 0, const Tensor& bias = {},
              bool transpose_b = false) {
  Layout la = a.layout(), lb = b.layout(), lo = out.layout();
  if (transpose_b) lb = transpose(lb, -1, -2);
  if (b.dim() == 1) {
    lb = unsqueeze(lb, 1);
    lo = unsqueeze(lo, -1);
  }
  if (a.dim() == 1) {
    la = unsqueeze(la, 0);
    lo = unsqueeze(lo, -2);
  }
  const size_t rank = lo.sizes.size();
  pad_front(la, rank);
  pad_front(lb, rank);
  prim::GemmArgs g;
  g.a = view_of(a, la);
  g.b = view_of(b, lb);
  g.out = view_of(out, lo);
  g.alpha = alpha;
  g.beta = beta;
  if (bias.defined()) g.bias = view_of(bias);
  p.gemm(g);
}

double matmul_flops(const Call& call) {
  const Tensor &a = call.tensor(0), &b = call.tensor(1);
  double n = 2;
  for (int64_t s : a.sizes()) n *= double(s);
  if (b.dim() > 1) n *= double(b.sizes().back());
  for (int64_t d = 0; d < b.dim() - 2; ++d)
    if (b.dim() - d > a.dim() || a.size(d - b.dim()) == 1) n *= double(b.sizes()[size_t(d)]);
  return n;
}

TensorList matmul_grads(const GradCall& g, double alpha) {
  const Tensor& grad = g.grad();
  const bool row = g.input_sizes(0).size() == 1, column = g.input_sizes(1).size() == 1;
  Tensor g2 = column ? grad.unsqueeze(-1) : grad;
  if (row) g2 = g2.unsqueeze(-2);
  TensorList out(2);
  const auto product = [&](const Tensor& x, const Tensor& y) {
    return alpha == 1 ? matmul(x, y) : matmul_scaled(x, y, alpha);
  };
  if (g.needs(0)) {
    const Tensor b = g.input(1);
    const Tensor b2 = column ? b.unsqueeze(1) : b;
    Tensor ga = product(g2, adjoint(b2));
    const IntList sizes = g.input_sizes(0);
    out[0] = row ? sum_to_size(ga, {1, sizes[0]}).squeeze(0) : sum_to_size(ga, sizes);
  }
  if (g.needs(1)) {
    const Tensor a = g.input(0);
    const Tensor a2 = row ? a.unsqueeze(0) : a;
    const IntList sizes = g.input_sizes(1);
    const int64_t k = a2.sizes().back();
    if (sizes.size() <= 2 && a2.dim() > 2) {  // one product over all rows instead of a sum of many
      const int64_t n = g2.sizes().back();
      int64_t rows = 1;
      for (int64_t d = 0; d + 1 < a2.dim(); ++d) rows *= a2.sizes()[size_t(d)];
      const Tensor gb = product(adjoint(a2.reshape({rows, k})), g2.reshape({rows, n}));
      out[1] = column ? gb.squeeze(1) : gb;
    } else {
      const Tensor gb = product(adjoint(a2), g2);
      out[1] = column ? sum_to_size(gb, {k, 1}).squeeze(1) : sum_to_size(gb, sizes);
    }
  }
  return out;
}

void product_infer(const Call& call, OutputSpecs& out) {
  out.push_back({matmul_sizes(call, call.tensor(0), call.tensor(1)), call.tensor(0).dtype()});
}
// The sum of the products of vectors, which no library computes faster than a reduction does.
void dot_lower(const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
  const Tensor &a = call.tensor(0), &b = call.tensor(1);
  const DType t = a.dtype();
  if (is_complex(t) || t == kBool) return run_gemm(a, b, out[0], p);
  static auto& cache = *new expr::ProgramCache;  // used until exit
  const DType product = is_floating(t) ? expr::work_dtype(t) : kInt64;
  const expr::Program& times =
      cache.get(pack_key({int(t)}), {t, t}, {}, {product}, [&](std::span<const expr::Value> v) {
        const expr::Type type = expr::compute_type(product);
        return std::vector{cast(v[0], type) * cast(v[1], type)};
      });
  const prim::View inputs[] = {view_of(a), view_of(b)};
  p.reduce({.monoid = prim::Monoid::sum,
            .space = a.sizes(),
            .reduced = 1,
            .inputs = inputs,
            .out = view_of(out[0], Layout(IntList{1}, IntList{1}, out[0].storage_offset())),
            .prologue = &times});
}

void product_lower(const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
  if (call.tensor(0).dim() == 1 && call.tensor(1).dim() == 1) return dot_lower(call, out, p);
  run_gemm(call.tensor(0), call.tensor(1), out[0], p);
}
TensorList product_grad(const GradCall& g) { return matmul_grads(g, 1); }

const OpRecord& matmul_op = define("matmul(Tensor self, Tensor other) -> Tensor")
                                .doc("Matrix product with broadcast batch dimensions and vectors.")
                                .batched(vmaps::product_rule)
                                .infer(product_infer)
                                .lower(product_lower)
                                .grad(product_grad, 0b11)
                                .autocast(Autocast::lower)
                                .flops(matmul_flops);

const OpRecord& matmul_scaled_op =
    define("matmul_scaled(Tensor self, Tensor other, float alpha) -> Tensor")
        .doc("alpha * matmul(self, other).")
        .surface(Surface::internal)
        .batched(vmaps::matmul_scaled_rule)
        .infer(product_infer)
        .lower([](const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
          run_gemm(call.tensor(0), call.tensor(1), out[0], p, call.real(2));
        })
        .grad([](const GradCall& g) { return matmul_grads(g, g.real(2)); }, 0b11)
        .autocast(Autocast::lower)
        .flops(matmul_flops);

const OpRecord& mm_op = define("mm(Tensor self, Tensor mat2) -> Tensor")
                            .doc("Product of two matrices.")
                            .batched(vmaps::product_rule)
                            .infer([](const Call& call, OutputSpecs& out) {
                              const Tensor &a = call.tensor(0), &b = call.tensor(1);
                              check_rank(call, a, 2, "self must be a matrix");
                              check_rank(call, b, 2, "mat2 must be a matrix");
                              check_factor_dtypes(call, a, b);
                              check_inner(call, a, b, a.sizes()[1], b.sizes()[0]);
                              out.push_back({Shape{a.sizes()[0], b.sizes()[1]}, a.dtype()});
                            })
                            .lower(product_lower)
                            .grad(product_grad, 0b11)
                            .autocast(Autocast::lower)
                            .flops(matmul_flops);

const OpRecord& bmm_op =
    define("bmm(Tensor self, Tensor mat2) -> Tensor")
        .doc("Products of two batches of matrices.")
        .batched(vmaps::product_rule)
        .infer([](const Call& call, OutputSpecs& out) {
          const Tensor &a = call.tensor(0), &b = call.tensor(1);
          check_rank(call, a, 3, "batch1 must be a 3D tensor");
          check_rank(call, b, 3, "batch2 must be a 3D tensor");
          check_factor_dtypes(call, a, b);
          const IntList as = a.sizes(), bs = b.sizes();
          ARETE_CHECK(
              as[0] == bs[0] && as[2] == bs[1],
              ValueError(call.name(),
                         "Expected size for first two dimensions of batch2 tensor to be: [" +
                             std::to_string(as[0]) + ", " + std::to_string(as[2]) + "] but got: [" +
                             std::to_string(bs[0]) + ", " + std::to_string(bs[1]) + "]."));
          out.push_back({Shape{as[0], as[1], bs[2]}, a.dtype()});
        })
        .lower(product_lower)
        .grad(product_grad, 0b11)
        .autocast(Autocast::lower)
        .flops(matmul_flops);

const OpRecord& mv_op =
    define("mv(Tensor self, Tensor vec) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::lower))
        .doc("Matrix times vector.")
        .batched(vmaps::product_rule)
        .infer([](const Call& call, OutputSpecs& out) {
          const Tensor &a = call.tensor(0), &b = call.tensor(1);
          ARETE_CHECK(a.dim() == 2 && b.dim() == 1,
                      ValueError(call.name(), "vector + matrix @ vector expected, got " +
                                                  std::to_string(a.dim()) + ", " +
                                                  std::to_string(b.dim())));
          check_factor_dtypes(call, a, b);
          ARETE_CHECK(a.sizes()[1] == b.sizes()[0],
                      ValueError(call.name(), "size mismatch, got input (" + shape_text(a.sizes()) +
                                                  "), vec (" + shape_text(b.sizes()) + ")"));
          out.push_back({Shape{a.sizes()[0]}, a.dtype()});
        })
        .lower(product_lower)
        .grad(product_grad, 0b11)
        .flops(matmul_flops);

const OpRecord& dot_op =
    define("dot(Tensor self, Tensor tensor) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::promote))
        .doc("Dot product of two vectors.")
        .batched(vmaps::product_rule)
        .infer([](const Call& call, OutputSpecs& out) {
          const Tensor &a = call.tensor(0), &b = call.tensor(1);
          ARETE_CHECK(
              a.dim() == 1 && b.dim() == 1,
              ValueError(call.name(), "1D tensors expected, but got " + std::to_string(a.dim()) +
                                          "D and " + std::to_string(b.dim()) + "D tensors"));
          ARETE_CHECK(
              a.dtype() == b.dtype(),
              TypeError(call.name(), "dot : expected both vectors to have same dtype, but found " +
                                         std::string(name_of(a.dtype())) + " and " +
                                         std::string(name_of(b.dtype()))));
          out.push_back({matmul_sizes(call, a, b), a.dtype()});
        })
        .lower(dot_lower)
        .grad(
            [](const GradCall& g) -> TensorList {
              TensorList out(2);
              if (g.needs(0)) out[0] = g.grad() * conj(g.input(1));
              if (g.needs(1)) out[1] = g.grad() * conj(g.input(0));
              return out;
            },
            0b11)
        .flops(matmul_flops);

const OpRecord& outer_op =
    define("outer(Tensor self, Tensor vec2) -> Tensor")
        .doc("All products of the elements of two vectors.")
        .compose([](const Call& call) -> Results {
          const Tensor &a = call.tensor(0), &b = call.tensor(1);
          ARETE_CHECK(
              a.dim() == 1 && b.dim() == 1,
              ValueError(call.name(), "outer: Expected 1-D argument self, but got " +
                                          std::to_string(a.dim() == 1 ? b.dim() : a.dim()) + "-D"));
          return {a.unsqueeze(1).mul(b)};
        });

// ---- with an addend ----

void add_product_infer(const Call& call, OutputSpecs& out, int rank) {
  const Tensor &self = call.tensor(0), &a = call.tensor(1), &b = call.tensor(2);
  check_rank(call, a, rank, rank == 2 ? "mat1 must be a matrix" : "batch1 must be a 3D tensor");
  check_rank(call, b, rank, rank == 2 ? "mat2 must be a matrix" : "batch2 must be a 3D tensor");
  check_factor_dtypes(call, a, b);
  ARETE_CHECK(self.dtype() == a.dtype(),
              TypeError(call.name(), "self and mat2 must have the same dtype, but got " +
                                         std::string(name_of(self.dtype())) + " and " +
                                         std::string(name_of(a.dtype()))));
  check_inner(call, a, b, a.size(-1), b.size(-2));
  for (size_t i : {3, 4})
    ARETE_CHECK(!call.scalar(i).is_complex() || is_complex(a.dtype()),
                TypeError(call.name(), "value cannot be converted to type " +
                                           std::string(name_of(a.dtype())) + " without overflow")
                    .argument(i == 3 ? "beta" : "alpha"));
  Shape sizes;
  if (rank == 3) {
    ARETE_CHECK(a.size(0) == b.size(0),
                ValueError(call.name(), "batch1 and batch2 must have same number of batches, got " +
                                            std::to_string(a.size(0)) + " and " +
                                            std::to_string(b.size(0))));
    sizes.push_back(a.size(0));
  }
  sizes.push_back(a.size(-2));
  sizes.push_back(b.size(-1));
  expand(self.layout(), sizes);  // its errors are ours
  out.push_back({sizes, a.dtype()});
}

void add_product_lower(const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
  const Tensor &self = call.tensor(0), &a = call.tensor(1), &b = call.tensor(2);
  const double beta = call.real(3), alpha = call.real(4);
  if (call.scalar(3).is_complex() || call.scalar(4).is_complex()) {  // factors that gemm has not
    const PlainCalls guard;
    const Tensor product = empty_tensor(out[0].sizes(), out[0].dtype(), out[0].device());
    run_gemm(a, b, product, p);
    p.copy({view_of(out[0]), view_of(self.expand(out[0].sizes()).mul(call.scalar(3)) +
                                     product.mul(call.scalar(4)))});
    return;
  }
  if (call.in_place() || beta == 0) return run_gemm(a, b, out[0], p, alpha, beta);
  const Layout full = expand(self.layout(), out[0].sizes());
  const size_t rank = full.sizes.size();
  bool is_bias = beta == 1;
  for (size_t d = 0; d + 1 < rank; ++d)
    is_bias = is_bias && (full.strides[d] == 0 || full.sizes[d] == 1);
  if (is_bias) {
    const Layout last(IntList{full.sizes.back()}, IntList{full.strides.back()}, full.offset);
    return run_gemm(a, b, out[0], p, alpha, 0, alias(self, last));
  }
  p.copy({view_of(out[0]), view_of(self, full)});
  run_gemm(a, b, out[0], p, alpha, beta);
}

TensorList add_product_grad(const GradCall& g) {
  Tensor grad = g.grad();
  const Scalar beta = g.scalar(3), factor = g.scalar(4);
  TensorList out(3);
  if (g.needs(0)) {
    out[0] = sum_to_size(grad, g.input_sizes(0));
    if (!(beta == Scalar(1))) out[0] = out[0].mul(conjugate(beta));
  }
  if (factor.is_complex()) grad = grad.mul(conjugate(factor));
  const double alpha = factor.is_complex() ? 1 : factor.to_double();
  if (g.needs(1)) out[1] = matmul_scaled(grad, adjoint(g.input(2)), alpha);
  if (g.needs(2)) out[2] = matmul_scaled(adjoint(g.input(1)), grad, alpha);
  return out;
}

double add_product_flops(const Call& call) {
  return 2 * double(call.tensor(1).numel()) * double(call.tensor(2).size(-1));
}

const OpRecord& addmm_op =
    define(
        "addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor")
        .doc("beta * self + alpha * mat1 @ mat2.")
        .batched(vmaps::addmm_rule)
        .infer([](const Call& call, OutputSpecs& out) { add_product_infer(call, out, 2); })
        .lower(add_product_lower)
        .grad(add_product_grad, 0b110)
        .in_place()
        .autocast(Autocast::lower)
        .flops(add_product_flops);

const OpRecord& baddbmm_op =
    define(
        "baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> "
        "Tensor")
        .doc("beta * self + alpha * batch1 @ batch2.")
        .batched(vmaps::addmm_rule)
        .infer([](const Call& call, OutputSpecs& out) { add_product_infer(call, out, 3); })
        .lower(add_product_lower)
        .grad(add_product_grad, 0b110)
        .in_place()
        .autocast(Autocast::lower)
        .flops(add_product_flops);

}  // namespace

std::string shape_text(IntList sizes) {
  std::string s;
  for (size_t i = 0; i < sizes.size(); ++i) s += (i ? "x" : "") + std::to_string(sizes[i]);
  return s;
}

void pad_front(Layout& l, size_t rank) {
  while (l.sizes.size() < rank) {
    l.sizes.insert(l.sizes.begin(), 1);
    l.strides.insert(l.strides.begin(), 0);
  }
}

void run_product(const Tensor& a, const Tensor& b, const Tensor& out, prim::Primitives& p,
                 const Tensor& bias, bool transpose_b) {
  run_gemm(a, b, out, p, 1, 0, bias, transpose_b);
}

}  // namespace ops

Tensor mm(const Tensor& self, const Tensor& mat2) { return ops::call(ops::mm_op, {self, mat2}); }
Tensor bmm(const Tensor& self, const Tensor& mat2) { return ops::call(ops::bmm_op, {self, mat2}); }
Tensor matmul(const Tensor& self, const Tensor& other) {
  return ops::call(ops::matmul_op, {self, other});
}
Tensor matmul_scaled(const Tensor& self, const Tensor& other, double alpha) {
  return ops::call(ops::matmul_scaled_op, {self, other, alpha});
}
Tensor mv(const Tensor& self, const Tensor& vec) { return ops::call(ops::mv_op, {self, vec}); }
Tensor dot(const Tensor& self, const Tensor& tensor) {
  return ops::call(ops::dot_op, {self, tensor});
}
Tensor outer(const Tensor& self, const Tensor& vec2) {
  return ops::call(ops::outer_op, {self, vec2});
}
Tensor addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, Scalar beta,
             Scalar alpha) {
  return ops::call(ops::addmm_op, {self, mat1, mat2, beta, alpha});
}
Tensor baddbmm(const Tensor& self, const Tensor& batch1, const Tensor& batch2, Scalar beta,
               Scalar alpha) {
  return ops::call(ops::baddbmm_op, {self, batch1, batch2, beta, alpha});
}

Tensor Tensor::mm(const Tensor& other) const { return arete::mm(*this, other); }
Tensor Tensor::bmm(const Tensor& other) const { return arete::bmm(*this, other); }
Tensor Tensor::matmul(const Tensor& other) const { return arete::matmul(*this, other); }
Tensor Tensor::mv(const Tensor& vec) const { return arete::mv(*this, vec); }
Tensor Tensor::dot(const Tensor& other) const { return arete::dot(*this, other); }
Tensor Tensor::outer(const Tensor& other) const { return arete::outer(*this, other); }
Tensor Tensor::addmm(const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) const {
  return arete::addmm(*this, a, b, beta, alpha);
}
Tensor Tensor::baddbmm(const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) const {
  return arete::baddbmm(*this, a, b, beta, alpha);
}

}  // namespace arete

ARETE_FAMILY(matmul)
