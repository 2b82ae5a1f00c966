// Samples, references and errors of the records in ops/statistics.cpp.
#include <algorithm>
#include <cmath>

#include "arete/ops/index.h"
#include "arete/ops/numeric.h"
#include "arete/ops/sort.h"
#include "arete/ops/statistics.h"
#include "arete/samples/reduce_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

// Values in which NaN and ties do not matter.
std::vector<Sample> row_samples(SampleMaker& m) {
  return {{{m.make_distinct({3, 5}), -1, false}, "rows"},
          {{m.make_distinct({4, 3}), 0, true}, "columns, keepdim"},
          {{m.make_distinct({2, 3, 2}), 1, false}, "middle"},
          {{m.make_distinct({}), 0, false}, "0-d"}};
}

std::vector<ErrorSample> row_errors(SampleMaker& m) {
  return {{{m.make({2, 3}), 2, false}, ErrorKind::index, "Dimension out of range"},
          {{m.make({2, 0}), 1, false}, ErrorKind::index, "to have non-zero size"}};
}

Tensor with_nan(SampleMaker& m, IntList sizes) {
  return where(m.make_mask(sizes), Scalar(NAN), m.make_distinct(sizes).detach());
}

// f(row) -> position in it; the results are the value there and the position.
template <class F>
std::vector<Tensor> position_in_rows(const Tensor& x, int64_t dim, bool keepdim, F f) {
  if (x.dim() == 0) return {from_values(values_of(x), {}), from_values({0}, {}, kInt64)};
  const size_t d = size_t(normalize_dim(dim, int(x.dim()), "reference"));
  Shape kept(x.sizes());
  kept[d] = 1;
  std::vector<double> values, positions;
  for_each_index(kept, [&](const Shape& o) {
    std::vector<double> row;
    Shape i = o;
    for (i[d] = 0; i[d] < x.sizes()[d]; ++i[d]) row.push_back(at(x, i));
    const size_t p = f(row);
    values.push_back(row[p]);
    positions.push_back(double(p));
  });
  Shape sizes = kept;
  if (!keepdim) sizes.erase(sizes.begin() + int64_t(d));
  return {from_values(values, sizes, x.dtype() == kFloat64 ? kFloat64 : kInt64),
          from_values(positions, sizes, kInt64)};
}

size_t position_of_rank(const std::vector<double>& row, size_t rank) {
  std::vector<size_t> order(row.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::isnan(row[b]) ? !std::isnan(row[a]) : row[a] < row[b];
  });
  return order[rank];
}

size_t median_position(const std::vector<double>& row, bool skip_nan) {
  size_t valid = 0;
  for (double v : row) valid += !std::isnan(v);
  if (!skip_nan && valid < row.size()) return position_of_rank(row, valid);
  return position_of_rank(row, valid ? (valid - 1) / 2 : 0);
}

const Attached kthvalue_op =
    attach("kthvalue")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make_distinct({3, 5}), 2, -1, false}, "rows"},
                  {{m.make_distinct({4, 3}), 4, 0, true}, "columns, keepdim"},
                  {{m.make_distinct({}), 1, 0, false}, "0-d"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), 4, 1, false},
                   ErrorKind::value,
                   "selected number k out of range for dimension 1"}};
        })
        .reference([](const Call& c) {
          return position_in_rows(c.tensor(0), c.integer(2), c.boolean(3), [&](const auto& row) {
            return position_of_rank(row, size_t(c.integer(1) - 1));
          });
        });

const Attached select_ranks_op =
    attach("_select_ranks")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const auto ranks = [&](const std::vector<double>& v, IntList sizes) {
            return from_values(v, sizes, kInt64).to(m.device);
          };
          return {{{m.make_distinct({2, 5}), ranks({4, 0, 2, 2, 1, 1}, {2, 3}), -1}, "rows"},
                  {{m.make_distinct({4, 3}), ranks({0, 3, -1}, {1, 3}), 0}, "columns"},
                  {{m.make_distinct({3}), ranks({}, {0}), 0}, "none"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), m.make({2, 3}), 1},
                   ErrorKind::value,
                   "ranks must be int64, and lie as the rows do"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &x = c.tensor(0), &ranks = c.tensor(1);
          const size_t d = size_t(normalize_dim(c.integer(2), int(x.dim()), "reference"));
          std::vector<double> values, positions;
          for_each_index(ranks.sizes(), [&](const Shape& o) {
            std::vector<double> row;
            Shape i = o;
            for (i[d] = 0; i[d] < x.sizes()[d]; ++i[d]) row.push_back(at(x, i));
            const double rank = at(ranks, o);
            const size_t p =
                position_of_rank(row, size_t(rank < 0 ? rank + double(row.size()) : rank));
            values.push_back(row[p]);
            positions.push_back(double(p));
          });
          return {from_values(values, ranks.sizes(), x.dtype() == kFloat64 ? kFloat64 : kInt64),
                  from_values(positions, ranks.sizes(), kInt64)};
        });

template <bool kSkipNan>
std::vector<Tensor> median_reference(const Call& c) {
  return position_in_rows(c.tensor(0), c.integer(1), c.boolean(2),
                          [](const auto& row) { return median_position(row, kSkipNan); });
}

template <bool kSkipNan>
std::vector<Tensor> whole_median_reference(const Call& c) {
  const std::vector<double> v = values_of(c.tensor(0));
  return {from_values({v.empty() ? double(NAN) : v[median_position(v, kSkipNan)]}, {},
                      c.tensor(0).dtype() == kFloat64 ? kFloat64 : kInt64)};
}

std::vector<Sample> median_samples(SampleMaker& m) {
  auto all = row_samples(m);
  if (is_floating(m.dtype)) all.push_back({{with_nan(m, {4, 3}), 0, false}, "NaN"});
  return all;
}

std::vector<Sample> whole_median_samples(SampleMaker& m) {
  std::vector<Sample> all{{{m.make_distinct({3, 5})}, "odd"},
                          {{m.make_distinct({4, 3})}, "even"},
                          {{m.make_distinct({})}, "0-d"}};
  if (is_floating(m.dtype)) {
    all.push_back({{with_nan(m, {4, 3})}, "NaN"});
    all.push_back({{m.make({0, 3}).detach()}, "empty"});
  }
  return all;
}

const Attached median_op =
    attach("median").samples(whole_median_samples).reference(whole_median_reference<false>);
const Attached nanmedian_op =
    attach("nanmedian").samples(whole_median_samples).reference(whole_median_reference<true>);
const Attached median_dim_op = attach("median.dim")
                                   .samples(median_samples)
                                   .errors(row_errors)
                                   .reference(median_reference<false>);
const Attached nanmedian_dim_op = attach("nanmedian.dim")
                                      .samples(median_samples)
                                      .errors(row_errors)
                                      .reference(median_reference<true>);
const Attached mode_op =
    attach("mode")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const Tensor repeated = m.make({4, 7}).detach().round();
          auto all = row_samples(m);
          all.push_back({{repeated, -1, false}, "repeated"});
          all.push_back({{repeated, 0, true}, "repeated, columns"});
          return all;
        })
        .errors(row_errors)
        .reference([](const Call& c) {
          return position_in_rows(c.tensor(0), c.integer(1), c.boolean(2), [](const auto& row) {
            size_t best = 0, most = 0;
            for (size_t i = 0; i < row.size(); ++i) {
              const size_t n = size_t(std::count(row.begin(), row.end(), row[i]));
              if (n > most || (n == most && row[i] <= row[best])) {
                most = n;
                best = i;
              }
            }
            return best;
          });
        });

std::vector<Tensor> quantile_reference(const Call& c, bool skip_nan) {
  const Tensor& x = c.tensor(0);
  const bool number = c[1].kind() != Arg::Kind::tensor;
  const std::vector<double> q = number ? std::vector{c.real(1)} : values_of(c.tensor(1));
  Shape dims;
  if (c.has(2) && x.dim()) dims.push_back(c.integer(2));
  std::vector<double> values;
  Shape sizes;
  for (double at_q : q) {
    const Arg args[] = {x, IntList(dims)};
    const Tensor part = reduce_reference(Call(c.op, args), 1, c.boolean(3), [&](auto v) {
      const size_t all = v.size();
      std::erase_if(v, [](double e) { return std::isnan(e); });
      if (v.empty() || (!skip_nan && v.size() < all)) return double(NAN);
      std::sort(v.begin(), v.end());
      const double rank = at_q * double(v.size() - 1);
      const double low = v[size_t(std::floor(rank))], high = v[size_t(std::ceil(rank))];
      const std::string_view mode = c[4].string();
      if (mode == "lower") return low;
      if (mode == "higher") return high;
      if (mode == "nearest") return v[size_t(std::nearbyint(rank))];
      return mode == "midpoint" ? (low + high) / 2 : low + (high - low) * (rank - std::floor(rank));
    });
    sizes = Shape(part.sizes());
    for (double v : values_of(part)) values.push_back(v);
  }
  if (!number && c.tensor(1).dim()) sizes.insert(sizes.begin(), int64_t(q.size()));
  return {from_values(values, sizes)};
}

std::vector<Sample> quantile_samples(SampleMaker& m) {
  const Tensor q = tensor({0.13, 0.37, 0.92}, TensorOptions(m.dtype, m.device));
  std::vector<Sample> all{{{m.make_distinct({3, 5}), 0.3, std::nullopt, false, "linear"}, "all"},
                          {{m.make_distinct({3, 5}), q, 1, false, "linear"}, "rows"},
                          {{m.make_distinct({4, 3}), q, 0, true, "linear"}, "columns, keepdim"},
                          {{m.make_distinct({4, 3}), 0.6, std::nullopt, true, "linear"}, "keepdim"},
                          {{with_nan(m, {4, 6}), q, 1, false, "linear"}, "NaN"},
                          {{m.make_distinct({}), 0.6, 0, false, "linear"}, "0-d"}};
  for (const char* mode : {"lower", "higher", "midpoint", "nearest"})
    all.push_back({{m.make_distinct({4, 6}), q, -1, false, mode}, mode});
  return all;
}

std::vector<ErrorSample> quantile_errors(SampleMaker& m) {
  return {{{m.make({0}), 0.5, std::nullopt, false, "linear"},
           ErrorKind::value,
           "input tensor must be non-empty"},
          {{m.make({3}), 1.5, std::nullopt, false, "linear"},
           ErrorKind::value,
           "q values must be in the range [0, 1]"},
          {{m.make({3}), 0.5, std::nullopt, false, "cubic"},
           ErrorKind::value,
           "interpolation must be one of linear, lower, higher, midpoint or nearest, but got "
           "cubic"}};
}

const Attached quantile_op =
    attach("quantile")
        .samples(quantile_samples)
        .errors(quantile_errors)
        .reference([](const Call& c) { return quantile_reference(c, false); });
const Attached nanquantile_op =
    attach("nanquantile")
        .samples(quantile_samples)
        .errors(quantile_errors)
        .reference([](const Call& c) { return quantile_reference(c, true); });

}  // namespace
}  // namespace arete::ops
