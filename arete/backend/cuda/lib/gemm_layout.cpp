#include "arete/backend/cuda/lib/gemm_layout.h"

#include <algorithm>
#include <utility>

namespace arete::cuda {
namespace {

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// How far apart the columns of a matrix without gaps in its columns are; 0: it is not one.
int64_t leading_dimension(int64_t rows, int64_t columns, int64_t row_stride,
                          int64_t column_stride) {
  if (rows != 1 && row_stride != 1) return 0;
  if (columns == 1) return round_up(rows, 16);
  return column_stride >= rows ? column_stride : 0;
}

// A batch dimension goes on where `extent` steps of the inner one end.
bool continues(int64_t extent, int64_t inner, int64_t outer) {
  return extent == 1 || outer == inner * extent;
}

bool fold_into_rows(GemmShape& s, const BatchLoop& d) {
  if (d.b != 0 || !continues(s.m, s.a.row, d.a) || !continues(s.m, s.out.row, d.out) ||
      (s.has_aux && !continues(s.m, s.aux.row, d.aux)))
    return false;
  GemmShape folded = s;
  if (s.m == 1) folded.a.row = d.a, folded.out.row = d.out, folded.aux.row = d.aux;
  folded.m = s.m * d.size;
  // A batch of products may have a layout where the product of all rows has none.
  if (!stored_matrix(folded.m, folded.k, folded.a) ||
      !stored_matrix(folded.m, folded.n, folded.out))
    return false;
  s = folded;
  return true;
}

bool fold_into_columns(GemmShape& s, const BatchLoop& d) {
  if (d.a != 0 || !continues(s.n, s.b.column, d.b) || !continues(s.n, s.out.column, d.out) ||
      (s.has_aux && !continues(s.n, s.aux.column, d.aux)))
    return false;
  GemmShape folded = s;
  if (s.n == 1) folded.b.column = d.b, folded.out.column = d.out, folded.aux.column = d.aux;
  folded.n = s.n * d.size;
  if (!stored_matrix(folded.k, folded.n, folded.b) ||
      !stored_matrix(folded.m, folded.n, folded.out))
    return false;
  s = folded;
  return true;
}

int64_t stride_of(const prim::View& v, int dim) {
  return v.sizes[size_t(dim)] == 1 ? 0 : v.strides[size_t(dim)];
}

MatrixStrides matrix_strides(const prim::View& v) {
  const size_t r = v.sizes.size();
  return {v.strides[r - 2], v.strides[r - 1]};
}

}  // namespace

GemmShape gemm_shape(const prim::GemmArgs& g) {
  const int rank = g.out.rank();
  GemmShape s;
  s.m = g.out.sizes[size_t(rank - 2)], s.n = g.out.sizes[size_t(rank - 1)];
  s.k = g.a.sizes[size_t(rank - 1)];
  s.a = matrix_strides(g.a), s.b = matrix_strides(g.b), s.out = matrix_strides(g.out);
  s.has_aux = bool(g.aux);
  if (s.has_aux) s.aux = matrix_strides(g.aux);
  for (int d = rank - 3; d >= 0; --d) {
    if (g.out.sizes[size_t(d)] == 1) continue;
    const BatchLoop dim{g.out.sizes[size_t(d)], stride_of(g.a, d), stride_of(g.b, d),
                        stride_of(g.out, d), s.has_aux ? stride_of(g.aux, d) : 0};
    if (s.loops == 0 && g.bias.rank() <= 1 && fold_into_rows(s, dim)) continue;
    // More columns would need more elements of the bias.
    if (s.loops == 0 && !g.bias && fold_into_columns(s, dim)) continue;
    if (s.loops > 0) {
      BatchLoop& inner = s.loop[size_t(s.loops - 1)];
      if (dim.a == inner.a * inner.size && dim.b == inner.b * inner.size &&
          dim.out == inner.out * inner.size && dim.aux == inner.aux * inner.size) {
        inner.size *= dim.size;
        continue;
      }
    }
    s.loop[size_t(s.loops++)] = dim;
  }
  return s;
}

std::optional<StoredMatrix> stored_matrix(int64_t rows, int64_t columns, MatrixStrides strides) {
  StoredMatrix m;
  // A single row is best seen as one column.
  m.transposed = rows == 1 && strides.column == 1;
  for (int attempt = 0; attempt < 2; ++attempt, m.transposed = !m.transposed) {
    m.ld = m.transposed ? leading_dimension(columns, rows, strides.column, strides.row)
                        : leading_dimension(rows, columns, strides.row, strides.column);
    if (m.ld > 0) return m;
  }
  return std::nullopt;
}

namespace {

// Launching one more product, and copying: microseconds, and bytes read and written in one.
constexpr double kCallTime = 5, kCopyTime = 4, kCopyBytesPerMicrosecond = 2.5e6;

// One stride walks all loops of an operand.
bool is_one_walk(const GemmShape& s, int64_t BatchLoop::*stride) {
  for (int d = 0; d < s.loops; ++d) {
    const BatchLoop& loop = s.loop[size_t(d)];
    if (loop.*stride < 0) return false;
    if (d == 0) continue;
    const BatchLoop& inner = s.loop[size_t(d - 1)];
    if (loop.*stride != inner.*stride * inner.size) return false;
  }
  return true;
}

bool is_batch(const BatchLoop& loop, bool has_aux) {
  return loop.a >= 0 && loop.b >= 0 && loop.out > 0 && (!has_aux || loop.aux > 0) &&
         loop.size <= INT32_MAX;
}

// Chooses the loop that becomes the batch of a call; the others stay around it. Unless copies that
// make one loop of them all take less time.
void plan_batches(LibraryPlan& plan, const GemmShape& s, int64_t element_size) {
  int batch = -1;
  for (int d = 0; d < s.loops; ++d) {
    const BatchLoop& loop = s.loop[size_t(d)];
    if (is_batch(loop, s.has_aux) && (batch < 0 || loop.size > s.loop[size_t(batch)].size))
      batch = d;
  }
  for (int d = 0; d < s.loops; ++d)
    if (d != batch) plan.outer[size_t(plan.outer_loops++)] = s.loop[size_t(d)];
  if (plan.outer_loops > 0) {
    const bool a = !is_one_walk(s, &BatchLoop::a), b = !is_one_walk(s, &BatchLoop::b),
               out = !is_one_walk(s, &BatchLoop::out);
    const auto copy_time = [&](double rows, double columns) {
      return kCopyTime + 2 * rows * columns * double(s.batches()) * double(element_size) /
                             kCopyBytesPerMicrosecond;
    };
    const double copies = (a ? copy_time(double(s.m), double(s.k)) : 0) +
                          (b ? copy_time(double(s.k), double(s.n)) : 0) +
                          (out ? copy_time(double(s.m), double(s.n)) : 0);
    if ((a || b || out) && double(plan.calls() - 1) * kCallTime > copies) {
      plan.copy_a = a, plan.copy_b = b, plan.copy_out = out, plan.expand = true;
      return;
    }
  }
  if (batch < 0) return;
  const BatchLoop& loop = s.loop[size_t(batch)];
  LibraryGemm& call = plan.call;
  call.batch = loop.size;
  call.batch_stride_a = call.swapped ? loop.b : loop.a;
  call.batch_stride_b = call.swapped ? loop.a : loop.b;
  call.batch_stride_d = loop.out;
  call.batch_stride_aux = loop.aux;
}

}  // namespace

LibraryPlan plan_library_gemm(const GemmShape& s, bool by_rows, int64_t element_size) {
  LibraryPlan plan;
  LibraryGemm& call = plan.call;
  const std::optional<StoredMatrix> a = stored_matrix(s.m, s.k, s.a),
                                    b = stored_matrix(s.k, s.n, s.b),
                                    out = stored_matrix(s.m, s.n, s.out);
  plan.copy_a = !a, plan.copy_b = !b, plan.copy_out = !out;
  if (!plan.fits()) return plan;

  // Where out is a vector both orders are possible.
  const int64_t ld_by_rows = leading_dimension(s.n, s.m, s.out.column, s.out.row);
  call.swapped = by_rows ? ld_by_rows > 0 : out->transposed;
  call.ldd = call.swapped ? ld_by_rows : leading_dimension(s.m, s.n, s.out.row, s.out.column);
  call.m = s.m, call.n = s.n, call.k = s.k;
  // op() undoes what stored_matrix says; the transpose of an operand is stored the other way round.
  call.transpose_a = a->transposed, call.transpose_b = b->transposed;
  call.lda = a->ld, call.ldb = b->ld;
  if (s.has_aux)
    call.ld_aux = call.swapped ? leading_dimension(s.n, s.m, s.aux.column, s.aux.row)
                               : leading_dimension(s.m, s.n, s.aux.row, s.aux.column);
  if (call.swapped) {
    std::swap(call.m, call.n);
    call.transpose_a = !b->transposed, call.transpose_b = !a->transposed;
    std::swap(call.lda, call.ldb);
  }
  plan_batches(plan, s, element_size);
  return plan;
}

}  // namespace arete::cuda
