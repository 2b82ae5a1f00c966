// Matrices and their diagonals: diag, diag_embed, block_diag, positions of triangles.
#include <algorithm>

#include "arete/core/modes.h"
#include "arete/expr/program_cache.h"
#include "arete/ops/call.h"
#include "arete/ops/count_positions.h"
#include "arete/ops/creation.h"
#include "arete/ops/filling.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/ops/triangle_internal.h"

namespace arete {
namespace ops {
namespace {

const OpRecord& diag_embed_op =
    define("diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor")
        .doc("The last dimension as the diagonal of two new ones, zeros elsewhere.")
        .compose([](const Call& c) -> Results {
          const Tensor& self = c.tensor(0);
          const int64_t offset = c.integer(1);
          ARETE_CHECK(self.dim() >= 1,
                      ValueError(c.name(), "diag_embed(): expected a tensor of at least 1 dim"));
          const int rank = int(self.dim()) + 1;
          const int a = normalize_dim(c.integer(2), rank, c.name()),
                    b = normalize_dim(c.integer(3), rank, c.name());
          ARETE_CHECK(a != b, ValueError(c.name(), "diagonal dimensions cannot be identical " +
                                                       std::to_string(c.integer(2)) + ", " +
                                                       std::to_string(c.integer(3))));
          const int64_t n = self.size(-1) + std::abs(offset);
          Shape sizes(self.sizes());
          sizes.pop_back();
          sizes.insert(sizes.begin() + std::min(a, b), n);
          sizes.insert(sizes.begin() + std::max(a, b), n);
          const Layout place = diagonal(Layout(sizes), offset, a, b);
          return {embed_window(self, sizes, place.strides, place.offset)};
        });

const OpRecord& diag_op =
    define("diag(Tensor self, int diagonal=0) -> Tensor")
        .doc("The diagonal of a matrix as a copy, or a matrix with a vector as its diagonal.")
        .compose([](const Call& c) -> Results {
          const Tensor& self = c.tensor(0);
          ARETE_CHECK(self.dim() == 1 || self.dim() == 2,
                      ValueError(c.name(), "diag(): Supports 1D or 2D tensors. Got " +
                                               std::to_string(self.dim()) + "D"));
          if (self.dim() == 1) return {diag_embed(self, c.integer(1))};
          return {diagonal(self, c.integer(1)).clone(MemoryFormat::contiguous)};
        });

const OpRecord& diagflat_op = define("diagflat(Tensor self, int offset=0) -> Tensor")
                                  .doc("A matrix with the flattened tensor as its diagonal.")
                                  .compose([](const Call& c) -> Results {
                                    return {diag_embed(c.tensor(0).reshape({-1}), c.integer(1))};
                                  });

// Vectors are rows, numbers too.
Shape block_sizes(IntList sizes) {
  Shape block(sizes);
  while (block.size() < 2) block.insert(block.begin(), 1);
  return block;
}

const OpRecord& block_diag_op =
    define("block_diag(Tensor[] tensors) -> Tensor")
        .doc("Matrices along the diagonal of a larger one; vectors are rows.")
        .one_by_one("a block of each element lies elsewhere in the whole matrix")
        .infer([](const Call& c, OutputSpecs& out) {
          Shape sizes{0, 0};
          for (size_t k = 0; k < c.tensors(0).size(); ++k) {
            const Tensor& x = c.tensors(0)[k];
            ARETE_CHECK(x.dim() <= 2,
                        ValueError(c.name(),
                                   "torch.block_diag: Input tensors must have 2 or fewer "
                                   "dimensions. Input " +
                                       std::to_string(k) + " has " + std::to_string(x.dim()) +
                                       " dimensions"));
            const Shape block = block_sizes(x.sizes());
            sizes[0] += block[0];
            sizes[1] += block[1];
          }
          // torch's result for no tensors at all.
          if (c.tensors(0).empty()) return out.push_back({{1, 0}, default_dtype(), {}, kCPU});
          out.push_back({sizes, result_type(c.tensors(0))});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          p.fill(filling(view_of(out[0]), 0, c.name()));
          int64_t row = 0, column = 0;
          for (const Tensor& x : c.tensors(0)) {
            const Shape block = block_sizes(x.sizes());
            if (x.numel() > 0) {
              const Layout place =
                  narrow(narrow(out[0].layout(), 0, row, block[0]), 1, column, block[1]);
              p.copy({view_of(out[0], place), view_of(x, expand(x.layout(), block))});
            }
            row += block[0];
            column += block[1];
          }
        })
        .grad([](const GradCall& g) {
          TensorList result(g.input_count());
          int64_t row = 0, column = 0;
          for (size_t k = 0; k < result.size(); ++k) {
            const Shape block = block_sizes(g.input_sizes(k));
            if (g.needs(k))
              result[k] = g.grad()
                              .narrow(0, row, block[0])
                              .narrow(1, column, block[1])
                              .reshape(g.input_sizes(k))
                              .to(g.input_dtype(k));
            row += block[0];
            column += block[1];
          }
          return result;
        });

// ---- positions of triangles: (row, col, offset) -> int64 (2, n)

// How the rows of a triangle are counted, those of a lower one from the last: the first `whole` of
// them have as many elements as the next one, of `width`, and each after that one less.
struct Stairs {
  int64_t offset, whole, width, count;
  Stairs(int64_t rows, int64_t columns, int64_t given, bool lower)
      : offset(std::clamp(given, -rows, columns)) {
    width = lower ? std::clamp<int64_t>(rows + offset, 0, columns)
                  : columns - std::max<int64_t>(offset, 0);
    whole = std::clamp<int64_t>(lower ? rows + offset - columns : -offset, 0, rows);
    const int64_t falling = std::min(rows - whole, width);
    count = (whole + falling) * width - falling * (falling - 1) / 2;
  }
};

Stairs stairs_of(const Call& c, bool lower) {
  return Stairs(c.integer(0), c.integer(1), c.integer(2), lower);
}

template <bool lower>
void infer_places(const Call& c, OutputSpecs& out) {
  const int64_t rows = c.integer(0), columns = c.integer(1);
  ARETE_CHECK(
      rows >= 0,
      ValueError(c.name(), "row must be non-negative, got" + std::to_string(rows)).argument("row"));
  ARETE_CHECK(columns >= 0,
              ValueError(c.name(), "col must be non-negative, got" + std::to_string(columns))
                  .argument("col"));
  const DType dtype = c.has(3) ? c[3].dtype() : kInt64;
  ARETE_CHECK(
      dtype == kInt64 || dtype == kInt32,
      NotImplementedError(c.name(), "\"" + std::string(c.name()) + "\" not implemented for '" +
                                        std::string(name_of(dtype)) + "'"));
  out.push_back({{2, stairs_of(c, lower).count}, dtype, {}, c.has(4) ? c[4].device() : kCPU});
}

// Inputs: those of count_positions(). Parameters: whole and width of the stairs, the first column
// of an upper triangle, or the rows and the number of elements of a lower one.
const expr::Program& places_program(DType dtype, bool lower, bool has_whole) {
  using expr::Type;
  using expr::Value;
  static auto& cache = *new expr::ProgramCache;
  return cache.get(
      pack_key({int(dtype), lower, has_whole}), {kCountedDType, kCountedDType},
      std::vector<Type>(lower ? 4 : 3, Type::i64), {dtype, dtype}, [&](std::span<const Value> v) {
        const Value whole = v[2], width = v[3], given = counted_position(v, Type::i64);
        const Value k = lower ? v[5] - 1.0 - given : given;
        const TrianglePlace place(has_whole ? expr::max(k - whole * width, 0.0) : k, width);
        Value row = place.row, fallen = place.row, within = place.within;
        if (has_whole) {
          const Value is_whole = k < whole * width, of_whole = floor_div(k, width);
          row = expr::where(is_whole, of_whole, whole + row);
          fallen = expr::where(is_whole, 0.0, fallen);
          within = expr::where(is_whole, k - of_whole * width, within);
        }
        return lower ? std::vector{v[4] - 1.0 - row, width - fallen - 1.0 - within}
                     : std::vector{row, v[4] + fallen + within};
      });
}

// On the host, row by row.
template <class T>
void write_places(const Stairs& stairs, int64_t rows, int64_t columns, bool lower, T* row,
                  T* column) {
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t edge = std::clamp<int64_t>(r + stairs.offset + int64_t(lower), 0, columns),
                  first = lower ? 0 : edge, end = lower ? edge : columns;
    for (int64_t k = first; k < end; ++k) *row++ = T(r), *column++ = T(k);
  }
}

template <bool lower>
void lower_places(const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
  const Stairs stairs = stairs_of(c, lower);
  if (stairs.count == 0) return;
  if (out[0].device().is_cpu() && !(modes().word & Modes::kCapture)) {
    const auto write = [&](auto* to) {
      write_places(stairs, c.integer(0), c.integer(1), lower, to, to + stairs.count);
    };
    return out[0].dtype() == kInt64 ? write(out[0].data<int64_t>()) : write(out[0].data<int32_t>());
  }
  const Layout first = select(out[0].layout(), 0, 0), second = select(out[0].layout(), 0, 1);
  const prim::View rows = view_of(out[0], first), columns = view_of(out[0], second);
  const expr::Literal params[] = {{.i = stairs.whole},
                                  {.i = stairs.width},
                                  {.i = lower ? c.integer(0) : std::max<int64_t>(stairs.offset, 0)},
                                  {.i = stairs.count}};
  const expr::Program& program = places_program(out[0].dtype(), lower, stairs.whole > 0);
  count_positions(p, stairs.count, [&](std::span<const prim::View> at, Stretch& stretch) {
    const prim::View outputs[] = {stretch.of(rows), stretch.of(columns)};
    p.pointwise({&program, at, outputs, {params, lower ? size_t(4) : size_t(3)}});
  });
}

const OpRecord& tril_indices_op =
    define(
        "tril_indices(int row, int col, int offset=0, *, dtype? dtype=None, device? device=None) "
        "-> Tensor")
        .doc("Rows and columns of the lower triangle, in row-major order.")
        .infer(infer_places<true>)
        .lower(lower_places<true>)
        .dtypes({kInt64});
const OpRecord& triu_indices_op =
    define(
        "triu_indices(int row, int col, int offset=0, *, dtype? dtype=None, device? device=None) "
        "-> Tensor")
        .doc("Rows and columns of the upper triangle, in row-major order.")
        .infer(infer_places<false>)
        .lower(lower_places<false>)
        .dtypes({kInt64});

}  // namespace
}  // namespace ops

Tensor diag_embed(const Tensor& self, int64_t offset, int64_t dim1, int64_t dim2) {
  return ops::call(ops::diag_embed_op, {self, offset, dim1, dim2});
}
Tensor diag(const Tensor& self, int64_t diagonal) {
  return ops::call(ops::diag_op, {self, diagonal});
}
Tensor diagflat(const Tensor& self, int64_t offset) {
  return ops::call(ops::diagflat_op, {self, offset});
}
Tensor block_diag(const std::vector<Tensor>& tensors) {
  return ops::call(ops::block_diag_op, {tensors});
}
Tensor tril_indices(int64_t row, int64_t col, int64_t offset, const TensorOptions& o) {
  return ops::call(ops::tril_indices_op, {row, col, offset, o.dtype_, o.device_});
}
Tensor triu_indices(int64_t row, int64_t col, int64_t offset, const TensorOptions& o) {
  return ops::call(ops::triu_indices_op, {row, col, offset, o.dtype_, o.device_});
}

}  // namespace arete

ARETE_FAMILY(diagonal)
