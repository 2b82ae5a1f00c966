// Samples, references and errors of the records in ops/shape_like.cpp.
#include <algorithm>

#include "arete/ops/creation.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

using Refs = std::vector<Tensor>;
const Attached view_as_op =
    attach("view_as")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 6}), m.make({3, 4})}, "usual"}, {{m.make({1}), m.make({})}, "0-d"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), m.make({4})},
                   ErrorKind::value,
                   "shape '[4]' is invalid for input of size 6"}};
        })
        .reference([](const Call& c) -> Refs {
          return {from_values(values_of(c.tensor(0)), c.tensor(1).sizes())};
        });
const Attached reshape_as_op =
    attach("reshape_as")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 6}), m.make({3, 4})}, "view"},
                  {{m.make_strided({4, 3}), m.make({6, 2})}, "copy"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), m.make({4})},
                   ErrorKind::value,
                   "shape '[4]' is invalid for input of size 6"}};
        })
        .reference([](const Call& c) -> Refs {
          return {from_values(values_of(c.tensor(0)), c.tensor(1).sizes())};
        });
const Attached expand_as_op =
    attach("expand_as")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 1}), m.make({2, 3, 2})}, "usual"},
                  {{m.make({}), m.make({2})}, "0-d"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), m.make({2})},
                   ErrorKind::value,
                   "The expanded size of the tensor (2) must match the existing size (3)"}};
        })
        .reference([](const Call& c) -> Refs {
          return {build_tensor(c.tensor(1).sizes(),
                               [&](const Shape& i) { return at(c.tensor(0), i); })};
        });
const Attached ravel_op = attach("ravel")
                              .samples([](SampleMaker& m) -> std::vector<Sample> {
                                return {{{m.make({2, 3})}, "view"},
                                        {{m.make_strided({2, 3})}, "copy"},
                                        {{m.make({})}, "0-d"},
                                        {{m.make({0, 2})}, "empty"}};
                              })
                              .reference([](const Call& c) -> Refs {
                                return {from_values(values_of(c.tensor(0)), {c.tensor(0).numel()})};
                              });
const Attached T_op = attach("T")
                          .samples([](SampleMaker& m) -> std::vector<Sample> {
                            return {{{m.make({2, 3})}, "matrix"},
                                    {{m.make_strided({2, 1, 3})}, "3-d"},
                                    {{m.make({})}, "0-d"}};
                          })
                          .reference([](const Call& c) -> Refs {
                            const Tensor& x = c.tensor(0);
                            Shape sizes(x.sizes());
                            std::reverse(sizes.begin(), sizes.end());
                            return {build_tensor(sizes, [&](Shape i) {
                              std::reverse(i.begin(), i.end());
                              return at(x, i);
                            })};
                          });

Refs flipped(const Call& c, size_t d) {
  const Tensor& x = c.tensor(0);
  return {build_tensor(x.sizes(), [&](Shape i) {
    i[d] = x.sizes()[d] - 1 - i[d];
    return at(x, i);
  })};
}

const Attached fliplr_op =
    attach("fliplr")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3})}, "matrix"}, {{m.make_strided({2, 3, 2})}, "3-d"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3})}, ErrorKind::value, "Input must be >= 2-d."}};
        })
        .reference([](const Call& c) { return flipped(c, 1); });
const Attached flipud_op =
    attach("flipud")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3})}, "matrix"}, {{m.make_strided({3})}, "vector"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({})}, ErrorKind::value, "Input must be >= 1-d."}};
        })
        .reference([](const Call& c) { return flipped(c, 0); });
const Attached repeat_interleave_counts_op =
    attach("repeat_interleave.Tensor")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const TensorOptions o(kInt64, m.device);
          return {{{tensor({2, 0, 1}, o), std::nullopt}},
                  {{tensor({1, 2, 0, 3}, o), 6}, "size given"},
                  {{zeros({0}, o), std::nullopt}, "none"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          const TensorOptions o(kInt64, m.device);
          return {
              {{tensor({1, -2}, o), std::nullopt}, ErrorKind::value, "repeats can not be negative"},
              {{tensor({1, 2}, o).reshape({1, 2}), std::nullopt},
               ErrorKind::value,
               "repeat_interleave only accept 1D vector as repeat"}};
        })
        .reference([](const Call& c) -> Refs {
          std::vector<double> numbers;
          const std::vector<double> counts = values_of(c.tensor(0));
          for (size_t i = 0; i < counts.size(); ++i)
            numbers.insert(numbers.end(), size_t(counts[i]), double(i));
          return {from_values(numbers, {int64_t(numbers.size())}, kInt64)};
        });
const Attached repeat_interleave_tensor_op =
    attach("repeat_interleave.self_Tensor")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const TensorOptions o(kInt64, m.device);
          return {{{m.make({2, 3}), tensor({2, 0, 1}, o), 1, std::nullopt}, "columns"},
                  {{m.make_strided({2, 2}), tensor({1, 2, 0, 3}, o), std::nullopt, 6}, "flattened"},
                  {{m.make({3}), tensor({2}, o), -1, std::nullopt}, "one count"},
                  {{m.make({}), tensor({2}, o), 0, std::nullopt}, "0-d"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          const TensorOptions o(kInt64, m.device);
          return {{{m.make({3}), tensor({1, 2}, o), 0, std::nullopt},
                   ErrorKind::value,
                   "repeats must have the same size as input along dim"},
                  {{m.make({2}), tensor({1, -2}, o), 0, std::nullopt},
                   ErrorKind::value,
                   "repeats can not be negative"},
                  {{m.make({2}), m.make({2}), 0, std::nullopt},
                   ErrorKind::value,
                   "repeats must be 0-dim or 1-dim tensor of integers"}};
        })
        .reference([](const Call& c) -> Refs {
          Tensor x = c.tensor(0);
          if (!c.has(2) || x.dim() == 0) x = from_values(values_of(x), {x.numel()});
          const int d = c.has(2) ? normalize_dim(c.integer(2), int(x.dim()), "") : 0;
          const std::vector<double> counts = values_of(c.tensor(1));
          std::vector<int64_t> from;
          for (int64_t i = 0; i < x.size(d); ++i)
            from.insert(from.end(), size_t(counts[counts.size() == 1 ? 0 : size_t(i)]), i);
          Shape sizes(x.sizes());
          sizes[size_t(d)] = int64_t(from.size());
          return {build_tensor(sizes, [&](Shape i) {
            i[size_t(d)] = from[size_t(i[size_t(d)])];
            return at(x, i);
          })};
        });
const Attached narrow_tensor_op =
    attach("narrow.Tensor")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const TensorOptions o(kInt64, m.device);
          return {{{m.make({5, 2}), 0, tensor(1, o), 3}, "usual"},
                  {{m.make_strided({2, 5}), -1, tensor(-2, o), 2}, "negative"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), 0, m.make({}), 1},
                   ErrorKind::value,
                   "start must be an 0-dim integral Tensor."}};
        })
        .reference([](const Call& c) -> Refs {
          const Tensor& x = c.tensor(0);
          const size_t d = size_t(normalize_dim(c.integer(1), int(x.dim()), ""));
          Shape sizes(x.sizes());
          double start = values_of(c.tensor(2))[0];
          if (start < 0) start += double(sizes[d]);
          sizes[d] = c.integer(3);
          return {build_tensor(sizes, [&](Shape i) {
            i[d] += int64_t(start);
            return at(x, i);
          })};
        });
const Attached unravel_index_op =
    attach("unravel_index")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}, 0, 24), {2, 3, 4}}, "3-d"},
                  {{m.make_strided({4}, 0, 5), {5}}, "1-d"},
                  {{m.make({}, 0, 6), {2, 3}}, "0-d"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make_mask({2}), {2}}, ErrorKind::value, "expected 'indices' to be integer"},
                  {{m.make({2}), {-2}},
                   ErrorKind::value,
                   "'shape' cannot have negative values, but got [-2]"}};
        })
        .reference([](const Call& c) {
          Refs out;
          for (size_t d = 0; d < c.ints(1).size(); ++d)
            out.push_back(build_tensor(
                c.tensor(0).sizes(),
                [&](const Shape& i) {
                  int64_t k = int64_t(at(c.tensor(0), i));
                  for (size_t e = c.ints(1).size(); e-- > d + 1;) k /= c.ints(1)[e];
                  return k % c.ints(1)[d];
                },
                kInt64));
          return out;
        });

}  // namespace
}  // namespace arete::ops
