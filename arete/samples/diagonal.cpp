// Samples, references and errors of the records in ops/diagonal.cpp.
#include <algorithm>

#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

using Refs = std::vector<Tensor>;
const Attached diag_embed_op =
    attach("diag_embed")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3}), 0, -2, -1}, "vector"},
                  {{m.make_strided({2, 3}), 1, 0, 2}, "batch, above"},
                  {{m.make({2, 3}), -2, -1, 0}, "batch, below, swapped"},
                  {{m.make({0}), 1, 0, 1}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2}), 0, 1, -1},
                   ErrorKind::value,
                   "diagonal dimensions cannot be identical 1, -1"},
                  {{m.make({2}), 0, 2, 0}, ErrorKind::index, "Dimension out of range"}};
        })
        .reference([](const Call& c) -> Refs {
          const Tensor& x = c.tensor(0);
          const int64_t rank = x.dim() + 1, k = c.integer(1);
          const size_t a = size_t((c.integer(2) + rank) % rank),
                       b = size_t((c.integer(3) + rank) % rank);
          Shape sizes(size_t(rank), x.size(-1) + std::abs(k));
          size_t next = 0;
          for (size_t d = 0; d < sizes.size(); ++d)
            if (d != a && d != b) sizes[d] = x.size(int64_t(next++));
          return {build_tensor(sizes, [&](const Shape& i) {
            if (i[b] - i[a] != k) return 0.0;
            Shape from;
            for (size_t d = 0; d < i.size(); ++d)
              if (d != a && d != b) from.push_back(i[d]);
            from.push_back(std::min(i[a], i[b]));
            return at(x, from);
          })};
        });
const Attached diag_op =
    attach("diag")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3}), 0}, "vector"},
                  {{m.make({2}), -1}, "vector, below"},
                  {{m.make_strided({3, 4}), 1}, "matrix, above"},
                  {{m.make({4, 2}), -2}, "matrix, below"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 2, 2}), 0},
                   ErrorKind::value,
                   "diag(): Supports 1D or 2D tensors. Got 3D"}};
        })
        .reference([](const Call& c) -> Refs {
          const Tensor& x = c.tensor(0);
          const int64_t k = c.integer(1), row = std::max<int64_t>(-k, 0),
                        column = std::max<int64_t>(k, 0);
          if (x.dim() == 1) {
            const int64_t n = x.size(0) + row + column;
            return {build_tensor({n, n}, [&](const Shape& i) {
              return i[1] - i[0] == k ? at(x, {i[0] - row}) : 0.0;
            })};
          }
          std::vector<double> v;
          for (int64_t i = 0; row + i < x.size(0) && column + i < x.size(1); ++i)
            v.push_back(at(x, {row + i, column + i}));
          return {from_values(v, {int64_t(v.size())})};
        });
const Attached diagflat_op =
    attach("diagflat")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make_strided({2, 2}), 0}, "matrix"},
                  {{m.make({2}), 1}, "above"},
                  {{m.make({}), -1}, "0-d"}};
        })
        .reference([](const Call& c) -> Refs {
          const std::vector<double> v = values_of(c.tensor(0));
          const int64_t k = c.integer(1), n = int64_t(v.size()) + std::abs(k);
          return {build_tensor({n, n}, [&](const Shape& i) {
            return i[1] - i[0] == k ? v[size_t(std::min(i[0], i[1]))] : 0.0;
          })};
        });
const Attached block_diag_op =
    attach("block_diag")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          using List = std::vector<Tensor>;
          return {{{List{m.make({2, 3}), m.make_strided({1, 2})}}, "matrices"},
                  {{List{m.make({2}), m.make({}), m.make({2, 1})}}, "all ranks"},
                  {{List{m.make({0, 2}), m.make({2, 2})}}, "no rows"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{std::vector<Tensor>{m.make({1, 1, 1})}},
                   ErrorKind::value,
                   "torch.block_diag: Input tensors must have 2 or fewer dimensions. Input 0 has 3 "
                   "dimensions"}};
        })
        .reference([](const Call& c) -> Refs {
          int64_t rows = 0, columns = 0;
          const auto height = [](const Tensor& x) { return x.dim() == 2 ? x.size(0) : 1; };
          const auto width = [](const Tensor& x) { return x.dim() ? x.size(-1) : 1; };
          for (const Tensor& x : c.tensors(0)) {
            rows += height(x);
            columns += width(x);
          }
          std::vector<double> v(size_t(rows * columns), 0);
          int64_t row = 0, column = 0;
          for (const Tensor& x : c.tensors(0)) {
            const std::vector<double> b = values_of(x);
            for (int64_t i = 0; i < height(x); ++i)
              for (int64_t j = 0; j < width(x); ++j)
                v[size_t((row + i) * columns + column + j)] = b[size_t(i * width(x) + j)];
            row += height(x);
            column += width(x);
          }
          return {from_values(v, {rows, columns})};
        });

Refs triangle_reference(const Call& c, bool lower) {
  std::vector<double> r, k;
  for (int64_t i = 0; i < c.integer(0); ++i)
    for (int64_t j = 0; j < c.integer(1); ++j)
      if (lower ? j - i <= c.integer(2) : j - i >= c.integer(2)) {
        r.push_back(double(i));
        k.push_back(double(j));
      }
  const int64_t n = int64_t(r.size());
  r.insert(r.end(), k.begin(), k.end());
  return {from_values(r, {2, n}, kInt64)};
}

std::vector<Sample> triangle_samples(SampleMaker& m) {
  return {{{3, 4, 0, kInt64, m.device}, "wide"},
          {{4, 2, 1, std::nullopt, m.device}, "tall, above"},
          {{3, 3, -2, std::nullopt, m.device}, "below"},
          {{7, 3, -2, std::nullopt, m.device}, "tall, below"},
          {{3, 7, 2, std::nullopt, m.device}, "wide, above"},
          {{2, 0, 0, std::nullopt, m.device}, "no columns"},
          {{2, 3, -9, std::nullopt, m.device}, "far below"},
          {{2, 3, 9, std::nullopt, m.device}, "far above"},
          {{0, 3, 0, std::nullopt, m.device}, "empty"}};
}

std::vector<ErrorSample> triangle_errors(SampleMaker& m) {
  return {{{-1, 2, 0, std::nullopt, m.device}, ErrorKind::value, "row must be non-negative"},
          {{2, 2, 0, kFloat32, m.device}, ErrorKind::not_implemented, "not implemented for"}};
}

const Attached tril_indices_op =
    attach("tril_indices")
        .samples(triangle_samples)
        .errors(triangle_errors)
        .reference([](const Call& c) { return triangle_reference(c, true); });
const Attached triu_indices_op =
    attach("triu_indices")
        .samples(triangle_samples)
        .errors(triangle_errors)
        .reference([](const Call& c) { return triangle_reference(c, false); });

}  // namespace
}  // namespace arete::ops
