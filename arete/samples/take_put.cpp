// Samples, references and errors of the records in ops/take_put.cpp.
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/pointwise.h"
#include "arete/samples/index_reference.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

const Attached take_op =
    attach("take")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 4}), m.make_index({2, 3}, 12)}, "matrix"},
                  {{m.make_strided({2, 3}), m.make_index({4}, 6).sub(Scalar(6))}, "from the end"},
                  {{m.make({3}), m.make_index({}, 3)}, "0-d index"},
                  {{m.make({}), m.make_index({2}, 1)}, "0-d"},
                  {{m.make({0}), m.make_index({0, 2}, 1)}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), m.make_mask({2})},
                   ErrorKind::type,
                   "take(): Expected a long tensor for index"},
                  {{m.make({0}), m.make_index({2}, 1)},
                   ErrorKind::index,
                   "take(): tried to take from an empty tensor"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const std::vector<double> x = values_of(c.tensor(0));
          return {build_tensor(c.tensor(1).sizes(), [&](const Shape& i) {
            return x[size_t(wrapped(at(c.tensor(1), i), int64_t(x.size())))];
          })};
        });
const Attached put_op =
    attach("put")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const Tensor distinct = tensor({{3, 0}, {-1, 4}}, TensorOptions(kInt64, m.device));
          return {{{m.make({2, 3}), distinct, m.make({2, 2}), false}, "matrix"},
                  {{m.make_strided({2, 3}), distinct, m.make({4}), false}, "strided"},
                  {{m.make({2, 3}), m.make_index({5}, 6), m.make({5}), true}, "accumulate"},
                  {{m.make({}), m.make_index({1}, 1), m.make({}), true}, "0-d"},
                  {{m.make({2}), m.make_index({0}, 1), m.make({0}), false}, "nothing"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), m.make_index({2}, 3), m.make({3}), false},
                   ErrorKind::value,
                   "Expected source and index to have the same number of elements, but got "
                   "source.numel() = 3, index.numel() = 2"},
                  {{m.make({3}), m.make_mask({2}), m.make({2}), false},
                   ErrorKind::type,
                   "put(): Expected a long tensor for index"},
                  {{m.make({3}), m.make_index({2}, 3), m.make_mask({2}), false},
                   ErrorKind::type,
                   "Expected self.dtype to be equal to src.dtype"},
                  {{m.make({0}), m.make_index({1}, 3), m.make({1}), false},
                   ErrorKind::index,
                   "tried to put elements into an empty tensor"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          std::vector<double> v = values_of(c.tensor(0));
          const std::vector<double> k = values_of(c.tensor(1)), s = values_of(c.tensor(2));
          for (size_t i = 0; i < k.size(); ++i) {
            double& old = v[size_t(wrapped(k[i], int64_t(v.size())))];
            old = c.boolean(3) ? old + s[i] : s[i];
          }
          return {from_values(v, c.tensor(0).sizes())};
        });
const Attached take_along_dim_op =
    attach("take_along_dim")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 4}), m.make_index({2, 1}, 3), 0}, "index broadcast"},
                  {{m.make_strided({1, 3}), m.make_index({2, 5}, 3), -1}, "self broadcast"},
                  {{m.make({2, 3}), m.make_index({2, 2}, 6), std::nullopt}, "flattened"},
                  {{m.make({}), m.make_index({}, 1), 0}, "0-d"},
                  {{m.make({2, 3}), m.make_index({2, 0}, 3), 1}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), m.make_index({2}, 3), 0},
                   ErrorKind::value,
                   "torch.take_along_dim(): input and indices should have the same number of "
                   "dimensions, but got 2 dimensions for input, and 1 dimensions for indices"},
                  {{m.make({2}), m.make_mask({2}), 0},
                   ErrorKind::type,
                   "torch.take_along_dim(): dtype of indices should be Long"},
                  {{m.make({2, 3}), m.make_index({3, 2}, 3), 1},
                   ErrorKind::value,
                   "The size of tensor a (2) must match the size of tensor b (3)"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &x = c.tensor(0), &index = c.tensor(1);
          if (!c.has(2)) {
            const std::vector<double> v = values_of(x);
            return {build_tensor({index.numel()}, [&](const Shape& i) {
              return v[size_t(wrapped(values_of(index)[size_t(i[0])], int64_t(v.size())))];
            })};
          }
          if (x.dim() == 0) return {from_values(values_of(x), {})};
          const int d = normalize_dim(c.integer(2), int(x.dim()), "take_along_dim");
          Shape sizes;
          for (int e = 0; e < int(x.dim()); ++e)
            sizes.push_back(e == d               ? index.size(e)
                            : index.size(e) == 1 ? x.size(e)
                                                 : index.size(e));
          return {build_tensor(sizes, [&](const Shape& i) {
            Shape from = i;
            from[size_t(d)] = wrapped(at(index, i), x.size(d));
            return at(x, from);
          })};
        });

}  // namespace
}  // namespace arete::ops
