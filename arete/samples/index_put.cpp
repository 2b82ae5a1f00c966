// Samples, references and errors of the records in ops/index_put.cpp.
#include "arete/core/modes.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/pointwise.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

const Attached flat_index_op =
    attach("flat_index")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const auto pair = [](Tensor a, Tensor b) {
            return std::vector<Tensor>{std::move(a), std::move(b)};
          };
          return {{{pair(m.make_index({4}, 3), m.make_index({4}, 5)), {3, 5}, {5, 1}, {0, 1}},
                   "vectors"},
                  {{pair(m.make_index({2, 3}, 3).sub(Scalar(3)), m.make_index({2, 3}, 5)),
                    {3, 5},
                    {2, 30},
                    {1, 3}},
                   "matrices, from the end"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          const std::vector<Tensor> pair{m.make_index({2}, 3), m.make_index({2}, 1).add(Scalar(5))};
          return {{{pair, {3, 4}, {4, 1}, {0, 2}},
                   ErrorKind::index,
                   "index 5 is out of bounds for dimension 2 with size 4"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {build_tensor(
              c.tensors(0)[0].sizes(),
              [&](const Shape& i) {
                double flat = 0;
                for (size_t k = 0; k < c.ints(1).size(); ++k) {
                  const double n = double(c.ints(1)[k]), j = at(c.tensors(0)[k], i);
                  flat += (j < 0 ? j + n : j) * double(c.ints(2)[k]);
                }
                return flat;
              },
              kInt64)};
        });
const Attached index_op =
    attach("index")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          using List = std::vector<Tensor>;
          return {{{m.make({3, 4}), List{m.make_index({2}, 3)}}, "rows"},
                  {{m.make({3, 4}), List{Tensor(), m.make_index({2, 2}, 4)}}, "columns"},
                  {{m.make({3, 4}), List{m.make_index({3}, 3), m.make_index({2, 1}, 4)}}, "both"},
                  {{m.make_strided({2, 3, 2}),
                    List{m.make_index({2}, 2), Tensor(), m.make_index({2}, 2)}},
                   "apart"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          using List = std::vector<Tensor>;
          return {{{m.make({3}), List{m.make_index({1}, 3), m.make_index({1}, 3)}},
                   ErrorKind::index,
                   "too many indices for tensor of dimension 1"},
                  {{m.make({3}), List{m.make({1})}},
                   ErrorKind::index,
                   "tensors used as indices must be long, int, byte or bool tensors"}};
        })
        .no_reference("the tests of index expressions check it");
const Attached index_put_op =
    attach("index_put")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          using List = std::vector<Tensor>;
          const Tensor rows = tensor({2, 0}, TensorOptions(kInt64, m.device));
          return {{{m.make({3, 4}), List{rows}, m.make({2, 4}), false}, "rows"},
                  {{m.make_strided({3, 4}), List{rows, rows}, m.make({}), false}, "elements"},
                  {{m.make({3, 4}), List{Tensor(), rows}, m.make({3, 2}), false}, "columns"},
                  {{m.make({3}), List{m.make_index({5}, 3)}, m.make({5}), true}, "accumulate"},
                  {{m.make({2, 3}), List{m.make_mask({2, 3})}, m.make({1}), true}, "mask"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          using List = std::vector<Tensor>;
          return {{{m.make({3}), List{m.make_index({2}, 3)}, m.make({3}), false},
                   ErrorKind::value,
                   "shape mismatch: value tensor of shape [3] cannot be broadcast to indexing "
                   "result of shape [2]"},
                  {{m.make({3}), List{m.make_index({2}, 3)}, m.make_mask({2}), false},
                   ErrorKind::type,
                   "Expected self.dtype to be equal to src.dtype"}};
        })
        .no_reference("the tests of index expressions check it");

}  // namespace
}  // namespace arete::ops
