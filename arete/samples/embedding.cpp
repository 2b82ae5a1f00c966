// Samples, references and errors of the records in ops/embedding.cpp.
#include <algorithm>
#include <cmath>

#include "arete/core/modes.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/pointwise.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

const Attached embedding_rows_op =
    attach("embedding_rows")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make_index({4}, 3), m.make({3, 2}), -1, false}},
                  {{m.make_index({2, 3}, 4), m.make_strided({4, 3}).detach(), 1, false}, "padding"},
                  {{m.make_index({}, 4), m.make({4, 3}), -1, false}},
                  {{m.make_index({0}, 4), m.make({4, 3}), -1, false}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make_index({2}, 3), m.make({3}), -1, false},
                   ErrorKind::value,
                   "'weight' must be 2-D"},
                  {{m.make({2}), m.make({3, 2}), -1, false},
                   ErrorKind::type,
                   "Expected tensor for argument #1 'indices'"},
                  {{m.make_index({2}, 1).add(Scalar(7)), m.make({3, 2}), -1, false},
                   ErrorKind::index,
                   "7"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &index = c.tensor(0), &w = c.tensor(1);
          Shape sizes(index.sizes());
          sizes.push_back(w.size(1));
          return {build_tensor(sizes, [&](const Shape& i) {
            const Shape row(i.begin(), i.end() - 1);
            return at(w, {int64_t(at(index, row)), i.back()});
          })};
        });
const Attached embedding_backward_op =
    attach("embedding_backward")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({4, 2}), m.make_index({4}, 3), 3, -1}},
                  {{m.make_strided({2, 3, 2}), m.make_index({2, 3}, 3), 4, 1}},
                  {{m.make({0, 2}), m.make_index({0}, 3), 3, -1}}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &g = c.tensor(0), &index = c.tensor(1);
          const int64_t width = g.size(-1);
          std::vector<double> out(size_t(c.integer(2) * width), 0.0);
          for_each_index(g.sizes(), [&](const Shape& i) {
            const int64_t row = int64_t(at(index, Shape(i.begin(), i.end() - 1)));
            if (row != c.integer(3)) out[size_t(row * width + i.back())] += at(g, i);
          });
          return {from_values(out, {c.integer(2), width})};
        });
const Attached embedding_bag_sums_op =
    attach("embedding_bag_sums")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {
              {{m.make({4, 3}), m.make_index({6}, 4), m.make_index({6}, 3), std::nullopt, 3, -1,
                -1}},
              {{m.make_strided({4, 2}), m.make_index({5}, 4), m.make_index({5}, 2), m.make({5}), 3,
                -1, 1},
               "factors"},
              {{m.make({4, 5}), m.make_index({7}, 4), m.make_index({7}, 4), std::nullopt, 4, 2, -1},
               "left out"},
              {{m.make({4, 3}), m.make_index({0}, 4), m.make_index({0}, 3), std::nullopt, 2, -1,
                -1},
               "nothing"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& src = c.tensor(0);
          const int64_t width = src.size(1), n = c.tensor(1).numel();
          std::vector<double> out(size_t(c.integer(4) * width), 0.0);
          for (int64_t i = 0; i < n; ++i)
            for (int64_t j = 0; j < width; ++j) {
              const int64_t from = int64_t(at(c.tensor(1), {i})),
                            to = int64_t(at(c.tensor(2), {i}));
              if (from != c.integer(5) && to != c.integer(6))
                out[size_t(to * width + j)] +=
                    at(src, {from, j}) * (c.has(3) ? at(c.tensor(3), {i}) : 1.0);
            }
          return {from_values(out, {c.integer(4), width})};
        });
const Attached bag_sizes_op =
    attach("bag_sizes")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const auto begins = [&](std::vector<int64_t> v, DType t) {
            return tensor_from_host(v.data(), kInt64, {int64_t(v.size())},
                                    TensorOptions(kInt64, m.device))
                .to(t);
          };
          return {{{begins({0, 2, 2, 7}, kInt64), 9}},
                  {{begins({0, 5}, kInt32), 5}, "int32, an empty one"},
                  {{begins({0}, kInt64), 3}, "one"},
                  {{begins({}, kInt64), 0}, "none"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), 3}, ErrorKind::type, "expected integers of one dimension"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const int64_t bags = c.tensor(0).numel();
          std::vector<double> sizes;
          for (int64_t i = 0; i < bags; ++i)
            sizes.push_back((i + 1 < bags ? at(c.tensor(0), {i + 1}) : double(c.integer(1))) -
                            at(c.tensor(0), {i}));
          return {from_values(sizes, {bags})};
        });
const Attached embedding_bag_rows_op =
    attach("embedding_bag_rows")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const auto begins = [&](std::vector<int64_t> v) {
            return tensor_from_host(v.data(), kInt64, {int64_t(v.size())},
                                    TensorOptions(kInt64, m.device));
          };
          return {{{m.make({4, 3}), m.make_index({6}, 4), begins({0, 2, 2}), std::nullopt, 3, -1,
                    false, false}},
                  {{m.make_strided({4, 2}), m.make_index({5}, 4), begins({0, 0, 3, 5}),
                    m.make_strided({5}), 4, 1, false, false},
                   "factors, padding, empty bags"},
                  {{m.make({4, 5}), m.make_index({7}, 4), begins({0, 4}), std::nullopt, 2, -1, true,
                    false},
                   "means"},
                  {{m.make({4, 16}), m.make_index({40}, 4), begins({0, 34, 35}), std::nullopt, 3, 0,
                    true, false},
                   "means, padding"},
                  {{m.make({4, 2}), m.make_index({6}, 4), std::nullopt, m.make({6}), 2, -1, false,
                    false},
                   "rows, factors"},
                  {{m.make({4, 8}), m.make_index({6}, 4), std::nullopt, std::nullopt, 3, 2, true,
                    false},
                   "rows, means, padding"},
                  {{m.make({4, 3}), m.make_index({0}, 4), begins({0, 0}), std::nullopt, 2, -1, true,
                    false},
                   "nothing"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& src = c.tensor(0);
          const int64_t width = src.size(1), n = c.tensor(1).numel(), bags = c.integer(4);
          std::vector<double> out(size_t(bags * width), 0.0), counts(size_t(bags), 0.0);
          for (int64_t i = 0, bag = 0; i < n; ++i) {
            if (c.has(2))
              while (bag + 1 < bags && int64_t(at(c.tensor(2), {bag + 1})) <= i) ++bag;
            else
              bag = i / (n / bags);
            const int64_t from = int64_t(at(c.tensor(1), {i}));
            if (from == c.integer(5)) continue;
            ++counts[size_t(bag)];
            for (int64_t j = 0; j < width; ++j)
              out[size_t(bag * width + j)] +=
                  at(src, {from, j}) * (c.has(3) ? at(c.tensor(3), {i}) : 1.0);
          }
          if (c.boolean(6))
            for (size_t k = 0; k < out.size(); ++k)
              out[k] /= std::max(1.0, counts[k / size_t(width)]);
          return {from_values(out, {bags, width})};
        });
const Attached embedding_bag_maxima_op =
    attach("embedding_bag_maxima")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const auto begins = [&](std::vector<int64_t> v) {
            return tensor_from_host(v.data(), kInt64, {int64_t(v.size())},
                                    TensorOptions(kInt64, m.device));
          };
          return {
              {{m.make_distinct({4, 3}), m.make_index({6}, 4), begins({0, 2, 2}), 3, -1, true},
               "an empty bag"},
              {{m.make_distinct({4, 2}), m.make_index({5}, 4), begins({0, 0, 3, 5}), 4, 1, true},
               "padding, empty bags"},
              {{m.make_distinct({4, 8}), m.make_index({6}, 4), std::nullopt, 3, -1, false},
               "rows, no positions"},
              {{m.make_distinct({4, 5}), m.make_index({600}, 4), begins({0, 1, 300}), 3, -1, true},
               "long bags"},
              {{m.make_distinct({4, 3}), m.make_index({0}, 4), begins({0, 0}), 2, -1, true},
               "nothing"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make_index({3, 2}, 4), m.make_index({6}, 3), std::nullopt, 3, -1, true},
                   ErrorKind::type,
                   "maxima are of rows of floating numbers"},
                  {{m.make({3, 2}), m.make_index({6}, 1).add(Scalar(5)), std::nullopt, 3, -1, true},
                   ErrorKind::index,
                   "5"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& src = c.tensor(0);
          const int64_t width = src.size(1), n = c.tensor(1).numel(), bags = c.integer(3);
          std::vector<double> out(size_t(bags * width), 0.0), rows(out.size(), -1.0);
          for (int64_t i = 0, bag = 0; i < n; ++i) {
            if (c.has(2))
              while (bag + 1 < bags && int64_t(at(c.tensor(2), {bag + 1})) <= i) ++bag;
            else
              bag = i / (n / bags);
            const int64_t from = int64_t(at(c.tensor(1), {i}));
            if (from == c.integer(4)) continue;
            for (int64_t j = 0; j < width; ++j) {
              const size_t to = size_t(bag * width + j);
              if (rows[to] >= 0 && out[to] >= at(src, {from, j})) continue;
              out[to] = at(src, {from, j});
              rows[to] = double(from);
            }
          }
          if (!c.boolean(5)) return {from_values(out, {bags, width}), from_values({}, {0})};
          return {from_values(out, {bags, width}), from_values(rows, {bags, width})};
        });
const Attached row_dots_op =
    attach("row_dots")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {
              {{m.make({4, 3}), m.make({2, 3}), m.make_index({6}, 4), m.make_index({6}, 2), -1,
                -1}},
              {{m.make_strided({3, 5}), m.make_strided({4, 5}), m.make_index({7}, 3),
                m.make_index({7}, 4), 1, 2},
               "left out"},
              {{m.make({3, 0}), m.make({4, 0}), m.make_index({2}, 3), m.make_index({2}, 4), -1, -1},
               "no columns"},
              {{m.make({3, 2}), m.make({4, 2}), m.make_index({0}, 3), m.make_index({0}, 4), -1, -1},
               "nothing"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &a = c.tensor(0), &b = c.tensor(1);
          return {build_tensor({c.tensor(2).numel()}, [&](const Shape& i) {
            const int64_t row_a = int64_t(at(c.tensor(2), i)), row_b = int64_t(at(c.tensor(3), i));
            double sum = 0;
            if (row_a != c.integer(4) && row_b != c.integer(5))
              for (int64_t j = 0; j < a.size(1); ++j) sum += at(a, {row_a, j}) * at(b, {row_b, j});
            return sum;
          })};
        });
const Attached embedding_op =
    attach("embedding")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const std::nullopt_t none = std::nullopt;
          return {{{m.make_index({4}, 3), m.make({3, 2}), none, none, 2.0, false, false}},
                  {{m.make_index({2, 3}, 4), m.make_strided({4, 3}).detach(), -3, none, 2.0, false,
                    false},
                   "padding"},
                  {{m.make_index({5}, 4), m.make({4, 3}).detach(), none, none, 2.0, true, false},
                   "frequency"},
                  {{m.make_index({3}, 4), m.make({4, 3}).detach(), none, 0.5, 1.0, false, true},
                   "max_norm"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          const std::nullopt_t none = std::nullopt;
          return {{{m.make_index({2}, 3), m.make({3, 2}), 3, none, 2.0, false, false},
                   ErrorKind::value,
                   "Padding_idx must be within num_embeddings"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          // A table limited in place is limited already: the call came first.
          const Tensor &index = c.tensor(0), &w = c.tensor(1);
          Shape sizes(index.sizes());
          sizes.push_back(w.size(1));
          return {build_tensor(sizes, [&](const Shape& i) {
            return at(w, {int64_t(at(index, Shape(i.begin(), i.end() - 1))), i.back()});
          })};
        });

std::vector<Tensor> bag_reference(const Call& c) {
  const Tensor &index = c.tensor(0), &w = c.tensor(1);
  const bool rows_are_bags = index.dim() == 2;
  const int64_t rows = w.size(0), width = w.size(1);
  const std::vector<double> ids = values_of(index);
  int64_t bags = rows_are_bags ? index.size(0) : c.tensor(2).numel() - (c.boolean(9) ? 1 : 0);
  const std::string_view mode = c[6].string();
  return {build_tensor({bags, width}, [&](const Shape& i) {
    int64_t begin = i[0] * (rows_are_bags ? index.size(1) : 0), end = begin;
    if (rows_are_bags) {
      end = begin + index.size(1);
    } else {
      begin = int64_t(at(c.tensor(2), {i[0]}));
      end = i[0] + 1 < c.tensor(2).numel() ? int64_t(at(c.tensor(2), {i[0] + 1}))
                                           : int64_t(ids.size());
    }
    double sum = 0, top = -INFINITY, n = 0;
    for (int64_t k = begin; k < end; ++k) {
      const int64_t row = int64_t(ids[size_t(k)]);
      if (c.has(10) && row == (c.integer(10) + rows) % rows) continue;
      const double v = at(w, {row, i[1]});
      n += 1;
      sum += v * (c.has(8) ? values_of(c.tensor(8))[size_t(k)] : 1);
      top = std::max(top, v);
    }
    if (mode == "max") return n > 0 ? top : 0;
    return mode == "mean" ? sum / std::max(n, 1.0) : sum;
  })};
}

const Attached embedding_bag_op =
    attach("embedding_bag")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const std::nullopt_t none = std::nullopt;
          const auto offsets = [&](std::vector<int64_t> v) {
            return tensor_from_host(v.data(), kInt64, {int64_t(v.size())},
                                    TensorOptions(kInt64, m.device));
          };
          std::vector<Sample> out;
          for (const char* mode : {"sum", "mean", "max"}) {
            out.push_back({{m.make_index({3, 2}, 4), m.make_distinct({4, 3}), none, none, 2.0,
                            false, mode, false, none, false, 1},
                           "rows"});
            out.push_back({{m.make_index({6}, 4), m.make_distinct({4, 3}), offsets({0, 2, 2, 5}),
                            none, 2.0, false, mode, false, none, false, none},
                           "an empty bag"});
          }
          out.push_back({{m.make_index({5}, 4), m.make_strided({4, 2}), offsets({0, 3, 5}), none,
                          2.0, false, "sum", false, m.make({5}), true, none},
                         "weights, last offset"});
          out.push_back({{m.make_index({5}, 4), m.make({4, 2}).detach(), offsets({0, 3}), 0.7, 2.0,
                          true, "mean", true, none, false, none},
                         "max_norm, frequency"});
          out.push_back({{m.make_index({0}, 4), m.make({4, 2}), offsets({0, 0}), none, 2.0, false,
                          "sum", false, none, false, none},
                         "nothing"});
          return out;
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          const std::nullopt_t none = std::nullopt;
          return {{{m.make_index({4}, 3), m.make({3, 2}), none, none, 2.0, false, "sum", false,
                    none, false, none},
                   ErrorKind::value,
                   "offsets has to be a 1D Tensor"},
                  {{m.make_index({2, 2}, 3), m.make({3, 2}), none, none, 2.0, false, "median",
                    false, none, false, none},
                   ErrorKind::value,
                   "mode has to be one of sum, mean or max"},
                  {{m.make_index({2, 2}, 3), m.make({3, 2}), none, none, 2.0, false, "mean", false,
                    m.make({2, 2}), false, none},
                   ErrorKind::not_implemented,
                   "per_sample_weights is only supported for mode='sum'"}};
        })
        .reference(bag_reference);

}  // namespace
}  // namespace arete::ops
