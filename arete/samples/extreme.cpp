// Samples, references and errors of the records in ops/extreme.cpp.
#include <cmath>

#include "arete/samples/reduce_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

Reference extreme_reference(bool largest) {
  return [largest](const Call& c) {
    const DType t = c.tensor(0).dtype();
    return std::vector<Tensor>{reduce_reference(
        c, 1, c.boolean(2),
        [&](const auto& v) {
          double best = v[0];
          for (double e : v)
            if (std::isnan(e) || (!std::isnan(best) && (largest ? e > best : e < best))) best = e;
          return best;
        },
        t)};
  };
}

std::vector<Sample> extreme_samples(SampleMaker& m) { return reduce_samples(m, {}, true, false); }

std::vector<ErrorSample> extreme_errors(SampleMaker& m) {
  auto all = reduce_errors(m);
  all.push_back({{m.make({0, 3}), {0}, false},
                 ErrorKind::index,
                 "Expected reduction dim 0 to have non-zero"});
  return all;
}

const Attached amax_op = attach("amax")
                             .samples(extreme_samples)
                             .errors(extreme_errors)
                             .reference(extreme_reference(true));
const Attached amin_op = attach("amin")
                             .samples(extreme_samples)
                             .errors(extreme_errors)
                             .reference(extreme_reference(false));

std::vector<Sample> with_index_samples(SampleMaker& m) {
  return {{{m.make_distinct({3, 4}), 1, false}, "rows"},
          {{m.make_distinct({3, 4}), 0, true}, "columns, keepdim"},
          {{m.make_distinct({2, 3, 2}), -2, false}, "middle"},
          {{m.make_distinct({}), 0, false}, "0-d"}};
}

Reference with_index_reference(bool largest) {
  return [largest](const Call& c) {
    const int64_t dim = c.integer(1);
    Shape dims;
    if (c.tensor(0).dim()) dims.push_back(dim);
    const Arg args[] = {c[0], IntList(dims)};
    const Call inner(c.op, args);
    const auto best = [&](const std::vector<double>& v) {
      size_t at = 0;
      for (size_t i = 1; i < v.size(); ++i)
        if (largest ? v[i] > v[at] : v[i] < v[at]) at = i;
      return at;
    };
    return std::vector<Tensor>{
        reduce_reference(inner, 1, c.boolean(2), [&](const auto& v) { return v[best(v)]; }),
        reduce_reference(
            inner, 1, c.boolean(2), [&](const auto& v) { return best(v); }, kInt64)};
  };
}

std::vector<ErrorSample> with_index_errors(SampleMaker& m) {
  return {
      {{m.make({2, 3}), 2, false}, ErrorKind::index, "Dimension out of range"},
      {{m.make({2, 0}), 1, false}, ErrorKind::index, "Expected reduction dim 1 to have non-zero"}};
}

const Attached max_dim_op = attach("max.dim")
                                .samples(with_index_samples)
                                .errors(with_index_errors)
                                .reference(with_index_reference(true));
const Attached min_dim_op = attach("min.dim")
                                .samples(with_index_samples)
                                .errors(with_index_errors)
                                .reference(with_index_reference(false));

Reference position_reference(bool largest) {
  return [largest](const Call& c) {
    const Tensor& x = c.tensor(0);
    Shape dims;
    if (c.has(1) && x.dim()) dims.push_back(c.integer(1));
    const Arg args[] = {c[0], IntList(dims)};
    return std::vector<Tensor>{reduce_reference(
        Call(c.op, args), 1, c.boolean(2),
        [&](const auto& v) {
          size_t at = 0;
          for (size_t i = 1; i < v.size(); ++i)
            if (largest ? v[i] > v[at] : v[i] < v[at]) at = i;
          return at;
        },
        kInt64)};
  };
}

std::vector<Sample> position_samples(SampleMaker& m) {
  auto all = with_index_samples(m);
  all.push_back({{m.make_distinct({3, 4}), std::nullopt, false}, "flattened"});
  all.push_back(
      {{m.make_distinct({3, 4}).transpose(0, 1), std::nullopt, false}, "flattened, strided"});
  all.push_back({{m.make_distinct({3, 4}), std::nullopt, true}, "flattened, keepdim"});
  return all;
}

const Attached argmax_op = attach("argmax")
                               .samples(position_samples)
                               .errors(with_index_errors)
                               .reference(position_reference(true))
                               .no_gradient_test();
const Attached argmin_op = attach("argmin")
                               .samples(position_samples)
                               .errors(with_index_errors)
                               .reference(position_reference(false))
                               .no_gradient_test();

}  // namespace
}  // namespace arete::ops
