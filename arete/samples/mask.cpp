// Samples, references and errors of the records in ops/mask.cpp.
#include "arete/core/tracing.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

const Attached masked_fill_op =
    attach("masked_fill")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), m.make_mask({2, 3}), Scalar(1.5)}, "equal shapes"},
                  {{m.make({2, 3}), m.make_mask({3}), Scalar(-1)}, "broadcast mask"},
                  {{m.make_strided({3, 4}), m.make_mask({3, 1}), Scalar(0)}, "strided"},
                  {{m.make({}), m.make_mask({}), Scalar(2)}, "0-d"},
                  {{m.make({0, 3}), m.make_mask({3}), Scalar(2)}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), m.make_mask({4}), Scalar(1)},
                   ErrorKind::value,
                   "The size of tensor a (3) must match the size of tensor b (4)"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Shape sizes =
              broadcast_shapes(c.tensor(0).sizes(), c.tensor(1).sizes(), "masked_fill");
          return {build_tensor(sizes, [&](const Shape& i) {
            return at(c.tensor(1), i) != 0 ? c.scalar(2).to_double() : at(c.tensor(0), i);
          })};
        });
const Attached flat_nonzero_op = attach("flat_nonzero")
                                     .no_gradient_test()
                                     .samples([](SampleMaker& m) -> std::vector<Sample> {
                                       return {{{m.make({3, 4}, 0, 2)}, "matrix"},
                                               {{m.make_strided({2, 3, 2}, 0, 2)}, "strided"},
                                               {{m.make({5000}, 0, 2)}, "long"},
                                               {{m.make({0, 2})}, "empty"}};
                                     })
                                     .reference([](const Call& c) -> std::vector<Tensor> {
                                       const Tensor& x = c.tensor(0);
                                       std::vector<double> v;
                                       int64_t position = 0;
                                       for_each_index(x.sizes(), [&](const Shape& i) {
                                         if (at(x, i) != 0) v.push_back(double(position));
                                         ++position;
                                       });
                                       const int64_t n = int64_t(v.size());
                                       return {from_values(v, {n}, kInt64)};
                                     });
const Attached nonzero_op = attach("nonzero")
                                .no_gradient_test()
                                .samples([](SampleMaker& m) -> std::vector<Sample> {
                                  return {{{m.make({3, 4}, 0, 2)}, "matrix"},
                                          {{m.make_strided({2, 3, 2}, 0, 2)}, "strided"},
                                          {{m.make({6}, 0, 2)}, "vector"},
                                          {{m.make({})}, "0-d"},
                                          {{m.make({0, 2})}, "empty"}};
                                })
                                .reference([](const Call& c) -> std::vector<Tensor> {
                                  const Tensor& x = c.tensor(0);
                                  std::vector<double> v;
                                  int64_t n = 0;
                                  for_each_index(x.sizes(), [&](const Shape& i) {
                                    if (at(x, i) == 0) return;
                                    ++n;
                                    for (int64_t k : i) v.push_back(double(k));
                                  });
                                  return {from_values(v, {n, x.dim()}, kInt64)};
                                });
const Attached nonzero_static_op =
    attach("nonzero_static")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 4}, 0, 2), 4, -1}, "fewer"},
                  {{m.make_strided({2, 3}, 0, 2), 9, 7}, "more"},
                  {{m.make({6}, 0, 2), 0, -1}, "none"},
                  {{m.make({}), 2, -1}, "0-d"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), -1, -1}, ErrorKind::value, "nonzero_static: 'size' must be"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          std::vector<double> v;
          for_each_index(x.sizes(), [&](const Shape& i) {
            if (at(x, i) != 0)
              for (int64_t k : i) v.push_back(double(k));
          });
          v.resize(size_t(c.integer(1) * x.dim()), double(c.integer(2)));
          return {from_values(v, {c.integer(1), x.dim()}, kInt64)};
        });
const Attached nonzero_numpy_op =
    attach("nonzero_numpy")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 4}, 0, 2)}, "matrix"},
                  {{m.make_strided({2, 3, 2}, 0, 2)}, "strided"},
                  {{m.make({})}, "0-d"},
                  {{m.make({0, 2})}, "empty"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor x = c.tensor(0).dim() == 0 ? c.tensor(0).reshape({1}) : c.tensor(0);
          std::vector<std::vector<double>> v(size_t(x.dim()));
          for_each_index(x.sizes(), [&](const Shape& i) {
            if (at(x, i) != 0)
              for (size_t d = 0; d < i.size(); ++d) v[d].push_back(double(i[d]));
          });
          std::vector<Tensor> out;
          for (const auto& k : v) out.push_back(from_values(k, {int64_t(k.size())}, kInt64));
          return out;
        });
const Attached masked_select_op =
    attach("masked_select")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 4}), m.make_mask({3, 4})}, "equal shapes"},
                  {{m.make({4}), m.make_mask({3, 1})}, "broadcast"},
                  {{m.make_strided({2, 3}), m.make_mask({3})}, "strided"},
                  {{m.make({}), m.make_mask({})}, "0-d"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), m.make_index({3}, 2)},
                   ErrorKind::type,
                   "masked_select: expected BoolTensor for mask"},
                  {{m.make({3}), m.make_mask({2})},
                   ErrorKind::value,
                   "The size of tensor a (3) must match"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Shape sizes =
              broadcast_shapes(c.tensor(0).sizes(), c.tensor(1).sizes(), "masked_select");
          std::vector<double> v;
          for_each_index(sizes, [&](const Shape& i) {
            if (at(c.tensor(1), i) != 0) v.push_back(at(c.tensor(0), i));
          });
          return {from_values(v, {int64_t(v.size())})};
        });
const Attached masked_replace_op =
    attach("masked_replace")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), m.make_mask({2, 3}), m.make({7})}, "more than are needed"},
                  {{m.make_strided({2, 3}), m.make_mask({2, 3}).logical_or(Scalar(true)),
                    m.make_strided({6})},
                   "all"},
                  {{m.make({5}), zeros({5}, TensorOptions(kBool, m.device)), m.make({1})}, "none"},
                  {{m.make({0, 2}), m.make_mask({0, 2}), m.make({1})}, "nothing"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), m.make_mask({3}).logical_or(Scalar(true)), m.make({2})},
                   ErrorKind::index,
                   "3"},
                  {{m.make({3}), m.make_mask({3}), m.make({0})},
                   ErrorKind::value,
                   "expected elements in one dimension"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const std::vector<double> source = values_of(c.tensor(2));
          size_t next = 0;
          return {build_tensor(c.tensor(0).sizes(), [&](const Shape& i) {
            return at(c.tensor(1), i) != 0 ? source[next++] : at(c.tensor(0), i);
          })};
        });
const Attached masked_pack_op =
    attach("masked_pack")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), m.make_mask({2, 3}), 6}, "as many as elements"},
                  {{m.make_strided({3, 4}), m.make_mask({3, 4}), 15}, "more"},
                  {{m.make({5}), zeros({5}, TensorOptions(kBool, m.device)), 3}, "none"},
                  {{m.make({5}), ones({5}, TensorOptions(kBool, m.device)), 5}, "all"},
                  {{m.make({2, 2}), zeros({2, 2}, TensorOptions(kBool, m.device)), 0}, "no room"},
                  {{m.make({0, 2}), m.make_mask({0, 2}), 2}, "nothing"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &x = c.tensor(0), &mask = c.tensor(1);
          std::vector<double> packed;
          for_each_index(x.sizes(), [&](const Shape& i) {
            if (at(mask, i) != 0) packed.push_back(at(x, i));
          });
          packed.resize(size_t(c.integer(2)));
          return {from_values(packed, {c.integer(2)})};
        });
const Attached masked_scatter_op =
    attach("masked_scatter")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), m.make_mask({2, 3}), m.make({7})}, "equal shapes"},
                  {{m.make_strided({2, 3}), m.make_mask({3}), m.make({3, 2})}, "broadcast mask"},
                  {{m.make({3}), m.make_mask({2, 3}), m.make({8})}, "broadcast self"},
                  {{m.make({4}), m.make_mask({4}).logical_and(Scalar(false)), m.make({2})},
                   "nothing is replaced"},
                  {{m.make({0, 2}), m.make_mask({2}), m.make({2})}, "no elements"},
                  {{m.make({}), m.make_mask({}), m.make({1})}, "0-d"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {
              {{m.make({3}), m.make_mask({3}).logical_or(Scalar(true)), m.make({2})},
               m.device.is_cpu() ? ErrorKind::value : ErrorKind::index,
               m.device.is_cpu() ? "masked_scatter: expected self and source to have same dtypes "
                                   "and source enough"
                                 : "3"},
              {{m.make({3}), m.make_mask({3}), m.make_index({3}, 2)},
               ErrorKind::type,
               "Expected self.dtype to be equal to src.dtype"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Shape sizes =
              broadcast_shapes(c.tensor(0).sizes(), c.tensor(1).sizes(), "masked_scatter");
          const std::vector<double> source = values_of(c.tensor(2));
          size_t next = 0;
          return {build_tensor(sizes, [&](const Shape& i) {
            return at(c.tensor(1), i) != 0 ? source[next++] : at(c.tensor(0), i);
          })};
        });

}  // namespace
}  // namespace arete::ops
