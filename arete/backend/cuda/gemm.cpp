// Matrix products: what the vendor library computes, and what is made of it.
#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "arete/backend/cuda/codegen/gemm.h"
#include "arete/backend/cuda/cuda_backend.h"
#include "arete/backend/cuda/index_common.h"
#include "arete/backend/cuda/lib/gemm_layout.h"
#include "arete/backend/cuda/lib/gemm_plan.h"
#include "arete/base/error.h"
#include "arete/expr/program_cache.h"
#include "arete/prim/checks.h"
#include "arete/prim/decompose/gemm_internal.h"

// Note [Which product on the GPU]
// cuBLASLt computes products of f64, f32, f16, bf16, complex numbers, and f8 where both operands
// have their elements along k side by side; its epilogue scales f8, adds the bias, applies
// gelu_tanh or its derivative and sums the rows of an operand.
//  - Operands whose strides it does not know are copied (lib/gemm_layout.h says when).
//  - Its gelu is the tanh approximation, computed about as exactly as f16 is: for f16 and bf16
//  only.
//  - What its epilogue lacks, programs on the result included, is a pass over the result. A large
//    one is computed in bands of rows that fit in the L2 cache, so that the pass reads them there.
//  - relu is such a pass too: that the library's keeps NaN is not documented.
//  - f8 in, f8 out goes through f32, rounded once at the end.
//  - Small products of f32 it divides among kernels that take longer to begin than to run: these
//  are one kernel (device/short_gemm.cuh, Note [Short products]).
// Integers, empty inner dimensions and whatever the library refuses go to the kernel of
// device/gemm.cuh, which takes everything.
namespace arete::cuda {

using prim::Activation;
using prim::GemmArgs;
using prim::ScratchView;
using prim::View;

namespace {

void check_args(const GemmArgs& g) {
  prim::check(g);
  ARETE_ASSERT(g.a_dtype() == g.product_dtype() || !is_float8(g.product_dtype()));
  ARETE_CHECK(g.product_dtype() != kBool,
              TypeError("matmul", "\"addmm_cuda\" not implemented for 'Bool'")
                  .got("bool")
                  .hint("convert to an integer or floating dtype first"));
  ARETE_CHECK(!is_complex(g.out.dtype) || g.activation == Activation::none,
              TypeError("matmul", "activations are not defined for complex numbers"));
}

std::byte* advance(const View& v, int64_t elements) {
  return v.data == nullptr ? nullptr : v.data + elements * int64_t(size_of(v.dtype));
}

/// What a plan made one batch of may be memory of several tensors (Note [Siblings] in
/// compile/siblings.cpp), of which only the first is named.
void note_use_of_each(CudaBackend& backend, CUstream stream, const View& v) {
  if (v.rank() != 3 || !v.storage || !backend.several_streams()) return;
  const auto is_in_storage = [&](const std::byte* p) {
    return p >= v.storage->data() && p < v.storage->data() + v.storage->bytes();
  };
  for (int64_t i = v.sizes[0]; --i > 0;) {
    const std::byte* const matrix = advance(v, i * v.strides[0]);
    if (is_in_storage(matrix)) return;  // and so are those before it
    backend.note_use(matrix, stream);
  }
}

// ---- the kernel that takes everything

const Kernel& general_kernel(CudaBackend& backend, DType in, DType out) {
  static KernelTable<2 * kNumDTypes> kernels;
  const size_t number = size_t(in) + (in == out ? 0 : kNumDTypes);
  return kernels.get(backend, number, [&] { return gemm_source(in, out); });
}

void multiply_in_tiles(CudaBackend& backend, CUstream stream, const GemmArgs& g) {
  const GemmShape s = gemm_shape(g);
  GemmArguments k{};
  k.a = g.a.data, k.b = g.b.data, k.bias = g.bias.data;
  k.out = g.out.data, k.aux = g.aux.data;
  k.m = s.m, k.n = s.n, k.k = s.k;
  k.a_row = s.a.row, k.a_column = s.a.column;
  k.b_row = s.b.row, k.b_column = s.b.column;
  k.out_row = s.out.row, k.out_column = s.out.column;
  k.aux_row = s.aux.row, k.aux_column = s.aux.column;
  k.bias_stride = g.bias ? g.bias.strides.back() : 0;
  k.alpha = g.alpha, k.beta = g.beta;
  if (is_integer(g.out.dtype)) k.ialpha = int64_t(g.alpha), k.ibeta = int64_t(g.beta);
  k.activation = int32_t(g.activation);
  k.batches = s.batches();
  k.loops = s.loops;
  for (size_t d = 0; d < size_t(s.loops); ++d) {
    k.size[d] = s.loop[d].size;
    k.a_stride[d] = s.loop[d].a, k.b_stride[d] = s.loop[d].b;
    k.out_stride[d] = s.loop[d].out, k.aux_stride[d] = s.loop[d].aux;
  }
  const auto tiles = [](int64_t extent) { return (extent + kGemmTile - 1) / kGemmTile; };
  const int64_t blocks = std::min<int64_t>(tiles(s.m) * tiles(s.n) * k.batches, 1 << 20);
  // Without elements to multiply the type of the operands does not matter.
  const DType in = s.k == 0 ? g.out.dtype : g.a.dtype;
  backend.launch(general_kernel(backend, in, g.out.dtype), {unsigned(blocks), 1, 1},
                 {kGemmThreads, 1, 1}, 0, stream, k);
}

// ---- small products of f32

// Larger ones the library does as fast; of more terms it adds up parts in several blocks. Many
// results it stores sooner, unless it has rows to sum in another kernel.
constexpr int64_t kMostShortProducts = int64_t{1} << 24, kMostShortTerms = 1024;
constexpr int64_t kMostShortResults = int64_t{1} << 17,
                  kMostShortResultsWithSums = int64_t{1} << 18;
constexpr int64_t kFewestOfShort = 8, kMostOfShort = 8192;  // rows and columns

bool is_short(const GemmArgs& g, const GemmShape& s) {
  return g.out.dtype == kFloat32 && g.a.dtype == kFloat32 && g.b.dtype == kFloat32 &&
         g.context.precision == MatmulPrecision::highest && s.loops == 0 &&
         std::min(s.m, s.n) >= kFewestOfShort && std::max(s.m, s.n) <= kMostOfShort &&
         s.k <= kMostShortTerms && s.m * s.n * s.k <= kMostShortProducts &&
         s.m * s.n <= (g.a_sum ? kMostShortResultsWithSums : kMostShortResults) &&
         (g.activation == Activation::none || g.activation == Activation::relu) && !g.aux &&
         !g.differentiate && !g.a_scale && !g.b_scale && !g.has_programs() &&
         !prim::has_bias_of_each(g);
}

void multiply_short(CudaBackend& backend, CUstream stream, const GemmArgs& g, const GemmShape& s) {
  ShortGemm k{};
  k.a = g.a.data, k.b = g.b.data, k.bias = g.bias.data, k.out = g.out.data, k.a_sum = g.a_sum.data;
  k.a_row = s.a.row, k.a_column = s.a.column;
  k.b_row = s.b.row, k.b_column = s.b.column;
  k.out_row = s.out.row, k.out_column = s.out.column;
  k.bias_stride = g.bias ? g.bias.strides.back() : 0;
  k.sum_stride = g.a_sum ? g.a_sum.strides[0] : 0;
  k.alpha = float(g.alpha), k.beta = float(g.beta);
  k.m = int32_t(s.m), k.n = int32_t(s.n), k.k = int32_t(s.k);
  k.relu = g.activation == Activation::relu;
  const bool a_along_k = s.a.column == 1, b_along_k = s.b.row == 1;
  const auto has_lines = [](const View& v, int64_t within, int64_t between) {
    return within == 1 && between % 4 == 0 && reinterpret_cast<uintptr_t>(v.data) % 16 == 0;
  };
  k.a_lines = a_along_k ? has_lines(g.a, 1, s.a.row) : has_lines(g.a, s.a.row, s.a.column);
  k.b_lines = b_along_k ? has_lines(g.b, 1, s.b.column) : has_lines(g.b, s.b.column, s.b.row);
  // The largest tiles that are one for each multiprocessor, and filled.
  const auto tiles = [](int64_t extent, int64_t tile) { return (extent + tile - 1) / tile; };
  const auto are_few = [&](int64_t tile) {
    return tiles(s.m, tile) * tiles(s.n, tile) < backend.limits().multiprocessors;
  };
  int log = 6;
  while (log > 4 && (are_few(1 << log) || std::min(s.m, s.n) <= 1 << (log - 1))) --log;
  static KernelTable<12> kernels;
  const size_t number = size_t(log - 4) * 4 + size_t(a_along_k) * 2 + size_t(b_along_k);
  const Kernel& kernel = kernels.get(
      backend, number, [&] { return short_gemm_source(a_along_k, b_along_k, 1 << log); });
  const int shared =
      plan_short_gemm(k, a_along_k, b_along_k, 1 << log, backend.limits().shared_per_block);
  backend.launch(kernel, {unsigned(tiles(s.n, 1 << log)), unsigned(tiles(s.m, 1 << log)), 1},
                 {kShortGemmThreads, 1, 1}, size_t(shared), stream, k);
}

// ---- the library

/// A contiguous copy of `in`. `batch` (if not empty): the leading sizes it is expanded to, else
/// its broadcast dimensions stay broadcast.
class ContiguousCopy {
 public:
  ContiguousCopy(CudaBackend& backend, const View& in, IntList batch, bool fill)
      : sizes_(in.sizes), from_sizes_(in.sizes) {
    for (size_t d = 0; d + 2 < sizes_.size(); ++d) {
      if (!batch.empty())
        sizes_[d] = batch[d];
      else if (in.strides[d] == 0)
        sizes_[d] = from_sizes_[d] = 1;
    }
    scratch_.emplace(backend, in.dtype, sizes_);
    if (!fill) return;
    View from = in;
    from.sizes = from_sizes_;
    backend.copy({scratch_->view(), from});
  }
  const View& view() const { return *scratch_; }

 private:
  Shape sizes_, from_sizes_;
  std::optional<ScratchView> scratch_;
};

void multiply_copies(CudaBackend& backend, const GemmArgs& g, const LibraryPlan& plan) {
  GemmArgs fixed = g;
  std::optional<ContiguousCopy> a, b, out;
  const IntList sizes = g.out.sizes;
  const IntList batch = plan.expand ? IntList(sizes.first(sizes.size() - 2)) : IntList();
  if (plan.copy_a) fixed.a = a.emplace(backend, g.a, batch, true).view();
  if (plan.copy_b) fixed.b = b.emplace(backend, g.b, batch, true).view();
  if (plan.copy_out) fixed.out = out.emplace(backend, g.out, batch, g.beta != 0).view();
  backend.gemm(fixed);
  if (plan.copy_out) backend.copy({g.out, fixed.out});
}

/// One product as the library is asked for it.
struct Request {
  CudaBackend& backend;
  CUstream stream;
  const GemmArgs& g;
  const GemmShape& shape;
  const LibraryPlan& plan;
};

/// All calls of a plan for the rows [first, first + rows) of out (all of them unless the plan is
/// one product row by row). False, and nothing was done, where the library cannot.
bool call_library(const Request& r, const GemmOptions& options, int64_t first, int64_t rows) {
  const GemmArgs& g = r.g;
  LibraryGemm call = r.plan.call;
  if (rows != r.shape.m) call.n = rows;
  View a = g.a, out = g.out, aux = g.aux;
  a.data = advance(a, first * r.shape.a.row);
  out.data = advance(out, first * r.shape.out.row);
  aux.data = advance(aux, first * r.shape.aux.row);
  const auto pointers_at = [&](const BatchLoop& at) {
    GemmPointers p{advance(a, at.a),
                   advance(g.b, at.b),
                   advance(out, at.out),
                   g.bias.data,
                   options.aux ? advance(aux, at.aux) : nullptr,
                   g.a_sum.data,
                   g.a_scale.data,
                   g.b_scale.data};
    if (call.swapped) {
      std::swap(p.a, p.b);
      std::swap(p.a_scale, p.b_scale);
    }
    return p;
  };
  std::array<uint64_t, 4> offsets{};
  const int64_t calls = r.plan.calls();
  for (int d = 0; d < r.plan.outer_loops; ++d) {
    const BatchLoop& loop = r.plan.outer[size_t(d)];
    offsets[0] |= uint64_t(loop.a) * size_of(a.dtype);
    offsets[1] |= uint64_t(loop.b) * size_of(g.b.dtype);
    offsets[2] |= uint64_t(loop.out) * size_of(out.dtype);
    offsets[3] |= uint64_t(loop.aux) * size_of(out.dtype);
  }
  if (call.swapped) std::swap(offsets[0], offsets[1]);
  const DType left = call.swapped ? g.b.dtype : g.a.dtype,
              right = call.swapped ? g.a.dtype : g.b.dtype;
  const GemmPointers base = pointers_at({});
  GemmKey key = gemm_key(r.backend.context().ordinal(), call, left, right, out.dtype, options, base,
                         g.beta != 0, offsets);
  if (options.bias && prim::has_bias_of_each(g)) {
    key.batch_stride_bias = g.bias.strides[0];
    key.log_align_bias = log_alignment(uint64_t(reinterpret_cast<uintptr_t>(g.bias.data)) |
                                       uint64_t(g.bias.strides[0]) * size_of(g.bias.dtype));
  }
  const std::shared_ptr<GemmPlan> plan = find_gemm_plan(r.backend, key, base);
  if (!plan->is_supported()) return false;
  for (int64_t i = 0; i < calls; ++i) {
    BatchLoop at{};
    int64_t rest = i;
    for (int d = 0; d < r.plan.outer_loops; ++d) {
      const BatchLoop& loop = r.plan.outer[size_t(d)];
      const int64_t step = rest % loop.size;
      rest /= loop.size;
      at.a += step * loop.a, at.b += step * loop.b;
      at.out += step * loop.out, at.aux += step * loop.aux;
    }
    plan->run(r.backend, r.stream, pointers_at(at), g.alpha, g.beta, g.context.deterministic);
  }
  return true;
}

bool takes_gelu(Activation activation, DType dtype) {
  return activation == Activation::gelu_tanh && (dtype == kFloat16 || dtype == kBFloat16);
}
bool takes_relu(Activation activation, DType dtype) {
  return activation == Activation::relu &&
         (dtype == kFloat16 || dtype == kBFloat16 || dtype == kFloat32);
}

bool is_aligned(const void* p, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % uint64_t(bytes) == 0;
}

/// What of the epilogue the library can do for these types and layouts.
GemmOptions library_options(const GemmArgs& g, const GemmShape& shape, const LibraryPlan& plan) {
  const LibraryGemm& call = plan.call;
  const DType dtype = g.out.dtype;
  const bool half = (dtype == kFloat16 || dtype == kBFloat16) && g.a.dtype == dtype;
  GemmOptions o;
  o.tf32 = g.a.dtype == kFloat32 && g.context.precision != MatmulPrecision::highest;
  o.repeated = g.context.repeated;
  const auto is_number = [](const View& v) { return !v || v.numel() == 1; };
  o.scales = is_float8(g.a.dtype) && (g.a_scale || g.b_scale) && is_number(g.a_scale) &&
             is_number(g.b_scale);
  const bool scales_are_done = o.scales || !(g.a_scale || g.b_scale);
  o.bias = g.bias && scales_are_done && call.swapped &&
           (g.bias.strides.back() == 1 || g.bias.sizes.back() == 1) &&
           (dtype == kFloat32 || dtype == kFloat16 || dtype == kBFloat16);
  // Biases of their own are as far apart as the products of one batch.
  if (prim::has_bias_of_each(g))
    o.bias &= g.bias.rank() == 3 && plan.outer_loops == 0 && call.batch > 1;
  const bool bias_is_done = scales_are_done && (!g.bias || o.bias);
  const bool aux_fits =
      !g.aux || (plan.outer_loops == 0 && call.ld_aux > 0 && call.ld_aux % 8 == 0 &&
                 call.batch_stride_aux % 8 == 0 && is_aligned(g.aux.data, 16));
  o.gelu_tanh = takes_gelu(g.activation, dtype) && bias_is_done && aux_fits && half;
  o.relu = takes_relu(g.activation, dtype) && bias_is_done && g.a.dtype == dtype && !g.aux &&
           !g.differentiate;
  o.aux = o.gelu_tanh && g.aux;
  o.derivative = o.aux && g.differentiate;
  // Where rows of half types do not begin at whole 16 bytes the library has sums only in a kernel
  // that takes fifty times as long.
  const auto is_aligned_half = [&](const View& v, int64_t ld) {
    return ld % 8 == 0 && is_aligned(v.data, 16);
  };
  const bool fast_sums = !half || (is_aligned_half(g.a, call.swapped ? call.ldb : call.lda) &&
                                   is_aligned_half(g.b, call.swapped ? call.lda : call.ldb) &&
                                   is_aligned_half(g.out, call.ldd));
  if (g.a_sum && fast_sums && shape.loops == 0 && dtype == g.a.dtype && !g.bias &&
      (half || dtype == kFloat32) && (g.a_sum.strides[0] == 1 || g.a_sum.sizes[0] == 1))
    o.sums = call.swapped ? GemmOptions::Sums::b : GemmOptions::Sums::a;
  return o;
}

/// What the library leaves to be done.
GemmArgs rest_of(const GemmArgs& g, const GemmOptions& done) {
  GemmArgs rest = g;
  if (done.bias) rest.bias = View{};
  if (done.aux) rest.aux = View{};
  if (done.scales) rest.a_scale = rest.b_scale = View{};
  if (done.gelu_tanh || done.relu) {
    rest.activation = Activation::none;
    rest.differentiate = false;
  }
  return rest;
}

/// The rows of a band, if it pays to compute the result in bands: see Note [Which product on the
/// GPU]. Else all rows.
int64_t band_rows(const Request& r) {
  const int64_t m = r.shape.m;
  const int64_t bytes = m * r.shape.n * int64_t(size_of(r.g.out.dtype));
  const int64_t l2 = r.backend.limits().l2_bytes;
  // What a program reads lies as the result does, not as one with its batches folded into rows.
  const IntList sizes = r.g.out.sizes;
  const bool folded = m != sizes[sizes.size() - 2] || r.shape.n != sizes[sizes.size() - 1];
  // Without tensor cores the product is what takes time, and one of fewer rows has smaller tiles.
  const bool is_slow =
      r.g.a.dtype == kFloat64 ||
      (r.g.a.dtype == kFloat32 && r.g.context.precision == MatmulPrecision::highest);
  // With beta, bands already done could not be done again should the library refuse the last one.
  if (is_slow || r.shape.loops > 0 || !r.plan.call.swapped || r.g.beta != 0 || l2 == 0 ||
      bytes <= l2 / 2 || (folded && !r.g.result_program.inputs.empty()))
    return m;
  const int64_t bands = (bytes + l2 / 3 - 1) / (l2 / 3);
  const int64_t rows = ((m + bands - 1) / bands + 255) / 256 * 256;  // whole tiles
  return std::min(rows, m);
}

/// The rows [first, first + count) of matrices that broadcast to a result without batches.
class RowsOf {
 public:
  RowsOf(std::span<const View> matrices, int64_t first, int64_t count) {
    sizes_.reserve(matrices.size());
    for (View v : matrices) {
      if (v.rank() > 2) {  // batches of one
        const size_t skip = size_t(v.rank()) - 2;
        v.sizes = v.sizes.subspan(skip), v.strides = v.strides.subspan(skip);
      }
      if (const size_t r = size_t(v.rank()); r >= 2 && v.sizes[r - 2] != 1) {
        v.data = advance(v, first * v.strides[r - 2]);
        sizes_.push_back(Shape(v.sizes));
        sizes_.back()[r - 2] = count;
        v.sizes = sizes_.back();
      }
      views_.push_back(v);
    }
  }
  std::span<const View> views() const { return {views_.data(), views_.size()}; }

 private:
  std::vector<Shape> sizes_;
  SmallVector<View, 4> views_;
};

/// The library's product, then what it left of the epilogue. False where the library cannot.
bool multiply_in_library(const Request& r) {
  const GemmArgs& g = r.g;
  GemmOptions options = library_options(g, r.shape, r.plan);
  for (;;) {
    GemmArgs rest = rest_of(g, options);
    const bool passes = rest.bias || rest.aux || rest.a_scale || rest.b_scale ||
                        rest.activation != Activation::none || rest.result_program;
    const int64_t rows = passes ? band_rows(r) : r.shape.m;
    bool done = true;
    for (int64_t first = 0; first < r.shape.m && done; first += rows) {
      const int64_t count = std::min(rows, r.shape.m - first);
      done = call_library(r, options, first, count);
      if (!done || !passes) continue;
      if (rows == r.shape.m) {
        prim::finish_gemm(r.backend, g.out, rest);
        continue;
      }
      const int64_t sizes[2] = {count, r.shape.n};
      const int64_t out_strides[2] = {r.shape.out.row, r.shape.out.column};
      const int64_t aux_strides[2] = {r.shape.aux.row, r.shape.aux.column};
      GemmArgs band = rest;
      band.out.data = advance(g.out, first * r.shape.out.row);
      band.out.sizes = IntList(sizes, 2), band.out.strides = IntList(out_strides, 2);
      band.aux.data = advance(rest.aux, first * r.shape.aux.row);
      band.aux.sizes = IntList(sizes, 2), band.aux.strides = IntList(aux_strides, 2);
      const RowsOf inputs(rest.result_program.inputs, first, count);
      band.result_program.inputs = inputs.views();
      const View scales[] = {rest.a_scale, rest.b_scale};
      const RowsOf of_scales(scales, first, count);
      band.a_scale = of_scales.views()[0], band.b_scale = of_scales.views()[1];
      prim::finish_gemm(r.backend, band.out, band);
    }
    if (done) {
      if (g.a_sum && options.sums == GemmOptions::Sums::none)
        prim::sum_rows(r.backend, g.a, g.a_sum);
      return true;
    }
    // Once more with nothing but the product.
    if (!options.bias && !options.gelu_tanh && !options.relu &&
        options.sums == GemmOptions::Sums::none)
      return false;
    options.bias = options.gelu_tanh = options.relu = options.aux = options.derivative = false;
    options.sums = GemmOptions::Sums::none;
  }
}

/// Columns times rows: a pass over the result, which the library's kernels are made for no more
/// than for vectors.
void multiply_outer(CudaBackend& backend, const GemmArgs& g) {
  static auto& cache = *new expr::ProgramCache;
  const DType t = g.out.dtype;
  const expr::Program& program = cache.get(
      pack_key({int(g.a.dtype), int(t)}), {g.a.dtype, g.a.dtype}, {expr::compute_type(t)}, {t},
      [](std::span<const expr::Value> v) { return std::vector{v[0] * v[1] * v[2]}; });
  const expr::Literal alpha{.f = g.alpha};
  const View inputs[] = {g.a, g.b};
  backend.pointwise({&program, inputs, {&g.out, 1}, {&alpha, 1}, {}, g.context});
}

/// With operands of type `operands` (none: as they are) and a result of type `wide`, rounded once.
void multiply_widened(CudaBackend& backend, const GemmArgs& g, std::optional<DType> operands,
                      DType wide) {
  GemmArgs inner = g;
  std::optional<ScratchView> a, b;
  if (operands) {
    backend.copy({a.emplace(backend, *operands, g.a.sizes), g.a});
    backend.copy({b.emplace(backend, *operands, g.b.sizes), g.b});
    inner.a = *a, inner.b = *b;
  }
  if (wide == g.out.dtype) return backend.gemm(inner);
  const ScratchView out(backend, wide, g.out.sizes);
  if (g.beta != 0) backend.copy({out, g.out});
  inner.out = out;
  inner.bias = inner.aux = View{};
  inner.activation = Activation::none;
  backend.gemm(inner);
  prim::finish_gemm(backend, out, g);
}

/// Complex numbers have no programs: the bias becomes the result's old value.
void multiply_complex(CudaBackend& backend, CUstream stream, const GemmArgs& g) {
  if (!g.bias) {  // only aux
    GemmArgs inner = g;
    inner.aux = View{};
    backend.gemm(inner);
    return backend.copy({g.aux, g.out});
  }
  if (g.beta != 0) return multiply_in_tiles(backend, stream, g);
  View bias = g.bias;
  Shape strides(g.out.sizes.size(), 0);
  Shape sizes(g.out.sizes.size(), 1);
  strides.back() = g.bias.strides[0], sizes.back() = g.bias.sizes[0];
  bias.sizes = sizes, bias.strides = strides;
  backend.copy({g.out, bias});
  GemmArgs inner = g;
  inner.bias = View{};
  inner.beta = 1;
  backend.gemm(inner);
}

/// f8 operands as the library wants them: elements along k side by side in both.
bool is_f8_layout(const LibraryPlan& plan) {
  return plan.fits() && plan.call.transpose_a && !plan.call.transpose_b;
}

}  // namespace

bool CudaBackend::has_epilogue(Activation activation, DType dtype) const {
  return takes_gelu(activation, dtype) || takes_relu(activation, dtype);
}

void CudaBackend::gemm(const GemmArgs& g) {
  check_args(g);
  const CUstream stream = enter(g);
  if (g.out.numel() == 0 && !g.a_sum) return;
  note_use_of_each(*this, stream, g.b);
  note_use_of_each(*this, stream, g.bias);
  const DType dtype = g.out.dtype;
  const bool in_parts = prim::has_parts(g);
  const bool is_empty = g.a.numel() == 0 || g.out.numel() == 0;
  if (in_parts && (is_empty || is_integer(dtype) || is_complex(dtype) || is_float8(dtype) ||
                   (g.has_programs() && !prim::is_finished_in_place(g))))
    return prim::gemm_in_parts(*this, g);
  if (g.a.sizes[size_t(g.a.rank() - 1)] == 0 || is_integer(dtype))
    return multiply_in_tiles(*this, stream, g);
  if (is_complex(dtype) && (g.bias || g.aux)) return multiply_complex(*this, stream, g);
  if (is_float8(dtype)) return multiply_widened(*this, g, std::nullopt, kFloat32);

  if (g.a.sizes.back() == 1 && g.beta == 0 && !in_parts && !g.bias && !g.aux &&
      g.activation == Activation::none && !is_complex(dtype) && !is_float8(g.a.dtype))
    return multiply_outer(*this, g);
  const GemmShape shape = gemm_shape(g);
  if (is_short(g, shape)) return multiply_short(*this, stream, g, shape);
  const LibraryPlan plan = plan_library_gemm(shape, bool(g.bias), int64_t(size_of(dtype)));
  const Request request{*this, stream, g, shape, plan};
  if (is_float8(g.a.dtype)) {
    if (is_f8_layout(plan) && multiply_in_library(request)) return;
    if (in_parts) return prim::gemm_in_parts(*this, g);
    // bf16 holds every value of both kinds of f8.
    return multiply_widened(*this, g, kBFloat16, dtype == kFloat16 ? kFloat32 : dtype);
  }
  if (!plan.fits()) return multiply_copies(*this, g, plan);
  if (multiply_in_library(request)) return;
  if (in_parts) return prim::gemm_in_parts(*this, g);
  multiply_in_tiles(*this, stream, g);
}

}  // namespace arete::cuda
