// Matrix products on the CPU: which library or kernel computes which case.
#include <algorithm>
#include <array>
#include <complex>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "arete/backend/cpu/blas.h"
#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/gemm_blocked.h"
#include "arete/backend/cpu/kernels/select_table.h"
#include "arete/backend/cpu/onednn.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"
#include "arete/core/complex.h"
#include "arete/expr/value.h"
#include "arete/prim/checks.h"
#include "arete/prim/decompose/gemm_internal.h"

#include <cblas.h>
#include <dnnl.h>

// Note [Which product]
// Measured in GFLOP/s on 2 threads of an Emerald Rapids machine (oneDNN 2.6.3), f32:
//     m    n    k    dnnl_sgemm   oneDNN matmul
//     8    8    8         3.4          3.1     (0.30 us a call, matmul 0.33 us without cache
//     lookup)
//    32   32   32       112           38
//    64   64   64        96          193
//   128  128  128       333          298
//   512  512  512       436          382
//  2048 2048 2048       411          382
//     1 4096 4096        30           12
//     8 4096 4096       184           83
//    64  512  784       388          359
//  4096  768  768       414          416
// so single products go to dnnl_sgemm, whose calls also need no plan, but for those around 64^3,
// which it does not split between threads yet. Batches are one matmul primitive (96 x 256 x 256 x
// 64: 352, 1024 x 16^3: 186 GFLOP/s) unless all is tiny or the strides are unusual; then a loop. So
// are tiny matrices, however many there are (43008 x 8 x 3 x 2: 0.5 us a matrix there, 0.15 here).
// bf16 goes through the primitive (avx512_bf16: 512^3 224), f16 through f32 copies; f64 and
// integers through Note [Blocked product] (512^3: f64 148, i32 121 GFLOP/s).
// Bias and activation are a pass over the result: 4096 x 3072 x 768 takes 46.8 ms without a bias
// and 47.0 with; fused in the primitive its slower product would cost more, and its relu drops NaN.
namespace arete::cpu {

using prim::Activation;
using prim::GemmArgs;
using prim::ScratchView;
using prim::View;

void gemm_blocked(const BlockedGemm& problem) {
  static const auto f = ARETE_SELECT(::arete::cpu, gemm_blocked);
  f(problem);
}
void finish_row(const FinishRow& row) {
  static const auto f = ARETE_SELECT(::arete::cpu, finish_row);
  f(row);
}

namespace {

struct BatchDim {
  int64_t size, a, b, out, aux;  // strides in elements
};

// One matrix operand; strides in elements.
struct Matrix {
  std::byte* data;
  int64_t rows, cols, rs, cs;
};

/// A gemm with its dimensions named; batch dimensions innermost first.
struct Problem {
  DType dtype;
  int64_t m, n, k;
  Matrix a, b, out, aux;  // aux.data null: none
  SmallVector<BatchDim, 4> batch;
  const View* bias;  // data null: none
  double alpha, beta;
  Activation activation;

  int64_t batches() const {
    int64_t n_batches = 1;
    for (const BatchDim& d : batch) n_batches *= d.size;
    return n_batches;
  }
  bool has_bias() const { return bias->data != nullptr; }
};

// How BLAS sees a matrix: row-major with `ld` elements a row, possibly of the transpose.
struct BlasLayout {
  bool transposed;
  int64_t ld;
};
std::optional<BlasLayout> blas_layout(const Matrix& m) {
  if ((m.cs == 1 || m.cols == 1) && (m.rows == 1 || m.rs >= m.cols))
    return BlasLayout{false, m.rows == 1 ? m.cols : m.rs};
  if ((m.rs == 1 || m.rows == 1) && (m.cols == 1 || m.cs >= m.rows))
    return BlasLayout{true, m.cols == 1 ? m.rows : m.cs};
  return std::nullopt;
}

bool needs_blas_layout(DType t) { return t == kFloat32 || is_complex(t) || t == kBFloat16; }

Matrix matrix_of(const View& v) {
  const int r = v.rank();
  return {v.data, v.sizes[r - 2], v.sizes[r - 1], v.strides[r - 2], v.strides[r - 1]};
}

// A batch dimension that only continues the rows is rows: x @ w with x of any rank.
bool fold_into_rows(Problem& p, const BatchDim& dim, bool aux) {
  const auto fold = [&](Matrix& m, int64_t stride) {
    if (m.rows != 1 && stride != m.rows * m.rs) return false;
    if (m.rows == 1) m.rs = stride;
    m.rows *= dim.size;
    return true;
  };
  Matrix a = p.a, out = p.out, kept = p.aux;
  if (!fold(a, dim.a) || !fold(out, dim.out) || (aux && !fold(kept, dim.aux))) return false;
  if (needs_blas_layout(p.dtype) && (!blas_layout(a) || !blas_layout(out))) return false;
  p.a = a, p.out = out, p.aux = kept;
  p.m = a.rows;
  return true;
}

Problem make_problem(const GemmArgs& g) {
  Problem p{g.out.dtype, 0,  0,       0,       matrix_of(g.a), matrix_of(g.b), matrix_of(g.out),
            {},          {}, &g.bias, g.alpha, g.beta,         g.activation};
  if (g.aux) p.aux = matrix_of(g.aux);
  const bool aux = p.aux.data != nullptr;
  p.m = p.out.rows, p.n = p.out.cols, p.k = p.a.cols;
  for (int d = g.out.rank() - 3; d >= 0; --d) {
    if (g.out.sizes[d] == 1) continue;
    BatchDim dim{g.out.sizes[d], g.a.sizes[d] == 1 ? 0 : g.a.strides[d],
                 g.b.sizes[d] == 1 ? 0 : g.b.strides[d], g.out.strides[d],
                 aux ? g.aux.strides[d] : 0};
    if (p.batch.empty() && dim.b == 0 && fold_into_rows(p, dim, aux)) continue;
    if (!p.batch.empty()) {
      BatchDim& inner = p.batch.back();
      if (dim.a == inner.a * inner.size && dim.b == inner.b * inner.size &&
          dim.out == inner.out * inner.size && dim.aux == inner.aux * inner.size) {
        inner.size *= dim.size;
        continue;
      }
    }
    p.batch.push_back(dim);
  }
  return p;
}

// Calls f(a offset, b offset, out offset, aux offset) for batches [first, last).
template <class F>
void for_batches(const Problem& p, int64_t first, int64_t last, F&& f) {
  for (int64_t i = first; i < last; ++i) {
    int64_t rest = i, a = 0, b = 0, out = 0, aux = 0;
    for (const BatchDim& d : p.batch) {
      const int64_t at = rest % d.size;
      rest /= d.size;
      a += at * d.a, b += at * d.b, out += at * d.out, aux += at * d.aux;
    }
    f(a, b, out, aux);
  }
}

// ---- the epilogue as a pass of its own ----

// prim::finish_gemm without a program's set-up, for what is no more than an addition and a
// comparison.
template <class T>
void finish_rows(const Problem& p, T* out, T* aux, int64_t rows) {
  const T* bias = p.bias->as<T>();
  const int64_t bs = bias == nullptr ? 1 : p.bias->strides[0], cs = p.out.cs;
  const bool relu = p.activation == Activation::relu;
  const bool dense = bs == 1 && cs == 1 && (aux == nullptr || p.aux.cs == 1);
  for (int64_t i = 0; i < rows; ++i) {
    T* to = out + i * p.out.rs;
    T* kept = aux == nullptr ? nullptr : aux + i * p.aux.rs;
    if constexpr (std::is_floating_point_v<T>) {
      if (dense) {
        finish_row({p.dtype, p.n, to, bias, kept, relu});
        continue;
      }
    }
    for (int64_t j = 0; j < p.n; ++j) {
      T v = to[j * cs];
      if (bias != nullptr) v = T(v + bias[j * bs]);
      if (kept != nullptr) kept[j * p.aux.cs] = v;
      if constexpr (std::is_arithmetic_v<T>) {
        if (relu && v < T(0)) v = T(0);
      }
      to[j * cs] = v;
    }
  }
}

template <class T>
void finish_in_rows(const Problem& p) {
  const int64_t rows = p.m * p.batches();
  parallel_for(0, rows, grain_for(8 * double(p.n)), [&](int64_t first, int64_t last) {
    while (first < last) {
      const int64_t batch = first / p.m, i = first % p.m;
      const int64_t count = std::min(p.m - i, last - first);
      for_batches(p, batch, batch + 1, [&](int64_t, int64_t, int64_t out, int64_t aux) {
        T* const kept = reinterpret_cast<T*>(p.aux.data);
        finish_rows(p, reinterpret_cast<T*>(p.out.data) + out + i * p.out.rs,
                    kept == nullptr ? nullptr : kept + aux + i * p.aux.rs, count);
      });
      first += count;
    }
  });
}

void finish_in_place(CpuBackend& backend, const GemmArgs& g, const Problem& p) {
  if (!p.has_bias() && p.aux.data == nullptr && p.activation == Activation::none) return;
  if (p.activation == Activation::gelu || p.activation == Activation::gelu_tanh ||
      is_reduced_float(p.dtype))
    return prim::finish_gemm(backend, g.out, g);
  visit_dtype(p.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (dtype_of<T> != kBool && !is_reduced_float(dtype_of<T>)) finish_in_rows<T>(p);
  });
}

// ---- kernels for one matrix; operands have a BLAS layout, out is row-major ----

template <class T>
T complex_or_real(double v) {
  return T(typename T::value_type(v));
}

void multiply_f32(const Matrix& a, BlasLayout la, const Matrix& b, BlasLayout lb, const Matrix& out,
                  int64_t ldc, float alpha, float beta) {
  const dnnl_status_t status =
      dnnl_sgemm(la.transposed ? 'T' : 'N', lb.transposed ? 'T' : 'N', a.rows, b.cols, a.cols,
                 alpha, reinterpret_cast<const float*>(a.data), std::max<int64_t>(la.ld, 1),
                 reinterpret_cast<const float*>(b.data), std::max<int64_t>(lb.ld, 1), beta,
                 reinterpret_cast<float*>(out.data), std::max<int64_t>(ldc, 1));
  if (status == dnnl_out_of_memory) throw OutOfMemoryError("matmul", "out of memory in oneDNN");
  ARETE_ASSERT(status == dnnl_success);
}

template <class T>
void multiply_complex(const Matrix& a, BlasLayout la, const Matrix& b, BlasLayout lb,
                      const Matrix& out, int64_t ldc, double alpha, double beta) {
  ARETE_CHECK(std::max({a.rows, a.cols, b.cols, la.ld, lb.ld, ldc}) <= INT32_MAX,
              NotImplementedError("matmul", "complex matrices with sides beyond 2^31 - 1"));
  const T scale = complex_or_real<T>(alpha), keep = complex_or_real<T>(beta);
  const auto f = std::is_same_v<T, std::complex<float>> ? cblas_cgemm : cblas_zgemm;
  f(CblasRowMajor, la.transposed ? CblasTrans : CblasNoTrans,
    lb.transposed ? CblasTrans : CblasNoTrans, int(a.rows), int(b.cols), int(a.cols), &scale,
    a.data, int(la.ld), b.data, int(lb.ld), &keep, out.data, int(ldc));
}

void multiply(DType dtype, Matrix a, Matrix b, Matrix out, double alpha, double beta) {
  if (dtype == kFloat64 || is_integer(dtype)) {
    // Rows of out contiguous: stores run along them.
    if (out.cs != 1 && out.rs == 1) {
      std::swap(a, b);
      for (Matrix* m : {&a, &b, &out}) std::swap(m->rows, m->cols), std::swap(m->rs, m->cs);
    }
    return gemm_blocked({dtype,
                         out.rows,
                         out.cols,
                         a.cols,
                         {a.data, a.rs, a.cs},
                         {b.data, b.rs, b.cs},
                         {out.data, out.rs, out.cs},
                         alpha,
                         beta});
  }
  BlasLayout lo = *blas_layout(out);
  if (lo.transposed) {
    std::swap(a, b);
    for (Matrix* m : {&a, &b, &out}) std::swap(m->rows, m->cols), std::swap(m->rs, m->cs);
    lo.transposed = false;
  }
  const BlasLayout la = *blas_layout(a), lb = *blas_layout(b);
  if (dtype == kFloat32)
    multiply_f32(a, la, b, lb, out, lo.ld, float(alpha), float(beta));
  else if (dtype == kComplex64)
    multiply_complex<std::complex<float>>(a, la, b, lb, out, lo.ld, alpha, beta);
  else if (dtype == kComplex128)
    multiply_complex<std::complex<double>>(a, la, b, lb, out, lo.ld, alpha, beta);
  else
    ARETE_BUG("dtype without a product");
}

// All batches as one oneDNN primitive; false where it has no fast code.
bool multiply_batched(CpuBackend& backend, const Problem& p, DType out_dtype, const void* bias) {
  if (p.batch.size() > 1) return false;
  for (const Matrix* m : {&p.a, &p.b})
    if (!blas_layout(*m)) return false;
  const auto lo = blas_layout(p.out);
  if (!lo || (lo->transposed && bias != nullptr)) return false;
  const BatchDim none{1, 0, 0, 0, 0};
  const BatchDim& d = p.batch.empty() ? none : p.batch[0];
  if (d.a < 0 || d.b < 0 || d.out <= 0) {
    if (d.size != 1) return false;
  }
  onednn::MatmulSpec s{p.dtype,
                       out_dtype,
                       d.size,
                       p.m,
                       p.n,
                       p.k,
                       {d.a, p.a.rs, p.a.cs},
                       {d.b, p.b.rs, p.b.cs},
                       {d.out, p.out.rs, p.out.cs},
                       bias != nullptr,
                       float(p.alpha),
                       float(p.beta)};
  if (!lo->transposed) return onednn::matmul(backend, s, p.a.data, p.b.data, p.out.data, bias);
  // oneDNN wants rows of the result contiguous: compute the transpose.
  std::swap(s.m, s.n);
  s.a_strides = {d.b, p.b.cs, p.b.rs};
  s.b_strides = {d.a, p.a.cs, p.a.rs};
  s.out_strides = {d.out, p.out.cs, p.out.rs};
  return onednn::matmul(backend, s, p.b.data, p.a.data, p.out.data, bias);
}

/// The most products of a matrix whose set-up in a library takes longer than a loop.
constexpr int64_t kTiny = 256;

/// One matrix of a batch of tiny ones, a row of the result at a time.
void multiply_tiny(const Matrix& a, const Matrix& b, const Matrix& out, float alpha, float beta) {
  const float *const x = reinterpret_cast<const float*>(a.data), *const y =
                                                                     reinterpret_cast<const float*>(
                                                                         b.data);
  float* const z = reinterpret_cast<float*>(out.data);
  float row[kTiny];
  for (int64_t i = 0; i < out.rows; ++i) {
    std::fill_n(row, out.cols, 0.0f);
    for (int64_t k = 0; k < a.cols; ++k) {
      const float factor = x[i * a.rs + k * a.cs];
      for (int64_t j = 0; j < out.cols; ++j) row[j] += factor * y[k * b.rs + j * b.cs];
    }
    for (int64_t j = 0; j < out.cols; ++j) {
      float& to = z[i * out.rs + j * out.cs];
      to = beta == 0 ? alpha * row[j] : alpha * row[j] + beta * to;
    }
  }
}

constexpr double kMatmulFrom = 150e3, kMatmulTo = 600e3;

void multiply_all(CpuBackend& backend, const Problem& p) {
  const int64_t batches = p.batches();
  if (batches == 1) {
    // Where dnnl_sgemm does not split the work yet although it would pay; see Note [Which product].
    const double work = double(p.m) * double(p.n) * double(p.k);
    if (p.dtype == kFloat32 && work >= kMatmulFrom && work < kMatmulTo && grain_for(work) == 1 &&
        multiply_batched(backend, p, kFloat32, nullptr))
      return;
    const onednn::ThreadScope threads(work);
    return multiply(p.dtype, p.a, p.b, p.out, p.alpha, p.beta);
  }
  const double work = double(p.m) * double(p.n) * double(p.k);
  if (p.dtype == kFloat32 && work <= kTiny) {
    // Rows are the longer side.
    const bool transposed = p.n < p.m;
    parallel_for(0, batches, grain_for(4 * work), [&](int64_t first, int64_t last) {
      for_batches(p, first, last, [&](int64_t a, int64_t b, int64_t out, int64_t) {
        Matrix ma = p.a, mb = p.b, mo = p.out;
        ma.data += a * 4, mb.data += b * 4, mo.data += out * 4;
        if (transposed) {
          std::swap(ma, mb);
          for (Matrix* m : {&ma, &mb, &mo}) std::swap(m->rows, m->cols), std::swap(m->rs, m->cs);
        }
        multiply_tiny(ma, mb, mo, float(p.alpha), float(p.beta));
      });
    });
    return;
  }
  // A plan's look-up and the primitive's own set-up cost as much as about ten tiny products.
  const bool tiny = double(batches) * (work + 1000) < 30000;
  if (!tiny && p.dtype == kFloat32 && multiply_batched(backend, p, kFloat32, nullptr)) return;
  const int64_t size = int64_t(size_of(p.dtype));
  const auto body = [&](int64_t first, int64_t last) {
    const onednn::ThreadScope threads(work);
    for_batches(p, first, last, [&](int64_t a, int64_t b, int64_t out, int64_t) {
      Matrix ma = p.a, mb = p.b, mo = p.out;
      ma.data += a * size, mb.data += b * size, mo.data += out * size;
      multiply(p.dtype, ma, mb, mo, p.alpha, p.beta);
    });
  };
  // Few large products are parallel inside, many small ones side by side.
  if (batches < 2 * num_threads() && work > 1e6)
    body(0, batches);
  else
    parallel_for(0, batches, grain_for(4 * work), body);
}

// ---- operands that no library takes as they are ----

// A contiguous copy of `in` (in `dtype`), without its broadcast dimensions.
class Packed {
 public:
  Packed(CpuBackend& backend, const View& in, DType dtype, bool fill)
      : strides_(in.strides), sizes_(in.sizes) {
    for (size_t d = 0; d < sizes_.size(); ++d)
      if (strides_[d] == 0 && d + 2 < sizes_.size()) sizes_[d] = 1;
    scratch_.emplace(backend, dtype, sizes_);
    if (fill) {
      View from = in;
      from.sizes = sizes_;
      backend.copy({scratch_->view(), from});
    }
  }
  const View& view() const { return *scratch_; }

 private:
  Shape strides_, sizes_;
  std::optional<ScratchView> scratch_;
};

// Empty inner dimension: out = activation(beta * out + bias).
void empty_product(CpuBackend& backend, const GemmArgs& g) {
  expr::Literal zero{.f = 0};
  if (is_integral_or_bool(g.out.dtype)) zero.i = 0;
  if (g.beta == 0) {
    backend.fill({g.out, zero, is_integral_or_bool(g.out.dtype)});
  } else if (g.beta != 1) {
    const DType dtype = g.out.dtype;
    const expr::Type type = is_integer(dtype)   ? expr::Type::i64
                            : dtype == kFloat64 ? expr::Type::f64
                                                : expr::Type::f32;
    const auto program = expr::trace(
        [&](std::span<const expr::Value> in) { return std::vector<expr::Value>{in[0] * in[1]}; },
        std::array{dtype}, std::array{type}, std::array{dtype});
    expr::Literal beta{.f = g.beta};
    if (is_integer(dtype)) beta.i = int64_t(g.beta);
    backend.pointwise({program.get(), {&g.out, 1}, {&g.out, 1}, {&beta, 1}});
  }
  finish_in_place(backend, g, make_problem(g));
}

// f16, f8, bf16 where oneDNN cannot, and results wider than the operands: multiply in f32 and round
// once, at the end.
void gemm_through_f32(CpuBackend& backend, const GemmArgs& g) {
  const Packed a(backend, g.a, kFloat32, true), b(backend, g.b, kFloat32, true);
  const ScratchView out(backend, kFloat32, g.out.sizes);
  if (g.beta != 0) backend.copy({out, g.out});
  GemmArgs wide;
  wide.a = a.view(), wide.b = b.view(), wide.out = out;
  wide.alpha = g.alpha, wide.beta = g.beta;
  backend.gemm(wide);
  prim::finish_gemm(backend, out, g);
}

// A product of bf16 in f32, which oneDNN sums in anyway.
bool gemm_bf16_to_f32(CpuBackend& backend, const GemmArgs& g) {
  if (!onednn::has_bf16() || g.a.dtype != kBFloat16 || g.out.dtype != kFloat32 || g.bias || g.aux ||
      g.activation != Activation::none)
    return false;
  Problem p = make_problem(g);
  p.dtype = kBFloat16;  // of the operands
  return multiply_batched(backend, p, kFloat32, nullptr);
}

// bf16 in oneDNN, which accumulates in f32. An activation needs the f32 value, so that it is
// rounded once; without one the result is stored directly.
bool gemm_bf16(CpuBackend& backend, const GemmArgs& g) {
  if (!onednn::has_bf16()) return false;
  if (g.activation == Activation::none && !g.aux &&
      (!g.bias || (g.bias.strides[0] == 1 && g.alpha == 1)))
    return multiply_batched(backend, make_problem(g), kBFloat16, g.bias.data);
  const ScratchView out(backend, kFloat32, g.out.sizes);
  if (g.beta != 0) backend.copy({out, g.out});
  GemmArgs wide = g;
  wide.out = out;
  wide.bias = wide.aux = View{};
  wide.activation = Activation::none;
  if (!gemm_bf16_to_f32(backend, wide)) return false;
  prim::finish_gemm(backend, out, g);
  return true;
}

}  // namespace

void CpuBackend::gemm(const GemmArgs& g) {
  prim::check(g);
  ARETE_CHECK(g.product_dtype() != kBool,
              TypeError("matmul", "\"addmm_impl_cpu_\" not implemented for 'Bool'")
                  .got("bool")
                  .hint("convert to an integer or floating dtype first"));
  if (g.out.numel() == 0 && !g.a_sum) return;
  if (prim::has_parts(g)) return prim::gemm_in_parts(*this, g);
  if (g.a.sizes[g.a.rank() - 1] == 0) return empty_product(*this, g);
  const DType dtype = g.out.dtype;
  if (is_complex(dtype)) {
    prepare_blas();
    ARETE_CHECK(g.activation == Activation::none,
                TypeError("matmul", "activations are not defined for complex numbers"));
  }

  if (g.a.dtype != dtype) {
    if (!gemm_bf16_to_f32(*this, g)) gemm_through_f32(*this, g);
    return;
  }
  if (needs_blas_layout(dtype)) {
    const bool a_fits = bool(blas_layout(matrix_of(g.a))),
               b_fits = bool(blas_layout(matrix_of(g.b)));
    const bool out_fits = bool(blas_layout(matrix_of(g.out)));
    if (!a_fits || !b_fits || !out_fits) {
      GemmArgs fixed = g;
      std::optional<Packed> a, b, out;
      if (!a_fits) fixed.a = a.emplace(*this, g.a, dtype, true).view();
      if (!b_fits) fixed.b = b.emplace(*this, g.b, dtype, true).view();
      if (!out_fits) fixed.out = out.emplace(*this, g.out, dtype, g.beta != 0).view();
      gemm(fixed);
      if (!out_fits) copy({g.out, fixed.out});
      return;
    }
  }
  if (is_reduced_float(dtype)) {
    if (dtype != kBFloat16 || !gemm_bf16(*this, g)) gemm_through_f32(*this, g);
    return;
  }
  const Problem p = make_problem(g);
  multiply_all(*this, p);
  finish_in_place(*this, g, p);
}

}  // namespace arete::cpu
