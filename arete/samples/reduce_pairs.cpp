// Samples, references and errors of the records in ops/reduce_pairs.cpp.
#include <algorithm>
#include <cmath>

#include "arete/samples/reduce_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

// The extreme value of the elements.
double extreme(const std::vector<double>& v, bool largest) {
  double best = v[0];
  for (double e : v)
    if (std::isnan(e) || (largest ? e > best : e < best)) best = e;
  return best;
}

std::vector<Sample> extreme_samples(SampleMaker& m) {
  return {{{m.make_distinct({3, 4})}, "matrix"}, {{m.make_distinct({})}, "0-d"}};
}
std::vector<ErrorSample> extreme_errors(SampleMaker& m) {
  return {{{m.make({0})}, ErrorKind::value, "Expected reduction dim to be specified"}};
}
template <bool largest>
std::vector<Tensor> extreme_reference(const Call& c) {
  return {from_values({extreme(values_of(c.tensor(0)), largest)}, {}, c.tensor(0).dtype())};
}

const Attached max_op = attach("max")
                            .samples(extreme_samples)
                            .errors(extreme_errors)
                            .reference(extreme_reference<true>);
const Attached min_op = attach("min")
                            .samples(extreme_samples)
                            .errors(extreme_errors)
                            .reference(extreme_reference<false>);
const Attached aminmax_op =
    attach("aminmax")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make_distinct({3, 4}), std::nullopt, false}, "all"},
                                     {{m.make_distinct({3, 4}), 1, false}, "rows"},
                                     {{m.make_distinct({3, 4}), 0, true}, "columns, keepdim"},
                                     {{m.make_distinct({3, 37, 5}), 1, false}, "middle"},
                                     {{m.make_distinct({}), 0, false}, "0-d"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({0}), std::nullopt, false},
               ErrorKind::value,
               "aminmax(): cannot compute aminmax over an empty dimension"},
              {{m.make({2}), 1, false}, ErrorKind::index, "Dimension out of range"}};
        })
        .reference([](const Call& c) {
          const Tensor& x = c.tensor(0);
          Shape dims;
          if (c.has(1) && x.dim()) dims.push_back(c.integer(1));
          const Arg args[] = {x, IntList(dims)};
          const auto part = [&](bool largest) {
            return reduce_reference(
                Call(c.op, args), 1, c.boolean(2),
                [&](const auto& v) { return extreme(v, largest); }, x.dtype());
          };
          return std::vector<Tensor>{part(false), part(true)};
        });

// Samples (self, dims, correction, keepdim).
std::vector<Sample> moment_samples(SampleMaker& m) {
  return {{{m.make({3, 4}), std::nullopt, 1.0, false}, "all"},
          {{m.make({3, 4}), {1}, 0.0, false}, "rows, biased"},
          {{m.make_strided({4, 3}), {0}, 1.0, true}, "columns, keepdim"},
          {{m.make({}), std::nullopt, 0.0, false}, "0-d"},
          {{m.make({2, 3, 2}), {0, 2}, 1.0, false}, "two dims"}};
}

Reference moment_reference(bool root) {
  return [root](const Call& c) {
    const auto mean = [](const std::vector<double>& v) {
      double s = 0;
      for (double e : v) s += e;
      return s / double(v.size());
    };
    const auto spread = [&](const std::vector<double>& v) {
      const double middle = mean(v);
      double s = 0;
      for (double e : v) s += (e - middle) * (e - middle);
      s /= std::max(0.0, double(v.size()) - c.real(2));
      return root ? std::sqrt(s) : s;
    };
    return std::vector<Tensor>{reduce_reference(c, 1, c.boolean(3), spread),
                               reduce_reference(c, 1, c.boolean(3), mean)};
  };
}

const Attached var_mean_op =
    attach("var_mean").samples(moment_samples).reference(moment_reference(false));
const Attached std_mean_op =
    attach("std_mean").samples(moment_samples).reference(moment_reference(true));
const Attached sum_to_size_op =
    attach("sum_to_size")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({}), std::vector<int64_t>{}}, "0-d"},
                                     {{m.make({2, 3, 4}), {3, 1}}, "leading and last"},
                                     {{m.make({2, 3}), {2, 3}}, "nothing"},
                                     {{m.make_strided({3, 4}), {1, 4}}, "first"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({2, 3}), {2, 2}}, ErrorKind::value, "is not expandable to size"}};
        })
        .reference([](const Call& c) {
          const Tensor& x = c.tensor(0);
          const IntList sizes = c.ints(1);
          std::vector<double> sums(size_t(numel_of(sizes)), 0);
          for_each_index(x.sizes(), [&](const Shape& i) {
            sums[size_t(flat_position(sizes, i))] += at(x, i);
          });
          return std::vector<Tensor>{from_values(sums, sizes)};
        });

}  // namespace
}  // namespace arete::ops
