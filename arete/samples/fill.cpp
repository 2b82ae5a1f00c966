// Samples, references and errors of the records in ops/fill.cpp.
#include "arete/ops/creation.h"
#include "arete/samples/index_reference.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

const Attached fill_tensor_op =
    attach("fill.Tensor")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), m.make({})}, "matrix"},
                  {{m.make_strided({3, 2}), m.make({})}, "strided"},
                  {{m.make({}), m.make({})}, "0-d"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2}), m.make({1})},
                   ErrorKind::value,
                   "fill only supports 0-dimension value tensor but got tensor with 1 dim"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {build_tensor(c.tensor(0).sizes(),
                               [&](const Shape&) { return values_of(c.tensor(1))[0]; })};
        });
const Attached masked_fill_tensor_op =
    attach("masked_fill.Tensor")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), m.make_mask({2, 3}), m.make({})}, "equal shapes"},
                  {{m.make_strided({2, 3}), m.make_mask({3}), m.make({})}, "broadcast mask"},
                  {{m.make({3}), m.make_mask({2, 1}), m.make({})}, "broadcast self"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2}), m.make_mask({2}), m.make({1})},
                   ErrorKind::value,
                   "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                   "1 dimension(s)."},
                  {{m.make({2}), m.make({2}), m.make({})},
                   ErrorKind::type,
                   "masked_fill_ only supports boolean masks"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Shape sizes =
              broadcast_shapes(c.tensor(0).sizes(), c.tensor(1).sizes(), "masked_fill");
          return {build_tensor(sizes, [&](const Shape& i) {
            return at(c.tensor(1), i) != 0 ? values_of(c.tensor(2))[0] : at(c.tensor(0), i);
          })};
        });
const Attached index_fill_tensor_op =
    attach("index_fill.int_Tensor")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({4, 3}), 0, m.make_index({2}, 4), m.make({})}, "rows"},
                  {{m.make_strided({2, 3}), -1, m.make_index({2}, 3), m.make({})}, "strided"},
                  {{m.make({}), 0, m.make_index({1}, 1), m.make({})}, "0-d"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2}), 0, m.make_index({1}, 2), m.make({1})},
                   ErrorKind::value,
                   "index_fill_ only supports a 0-dimensional value tensor"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& self = c.tensor(0);
          const double v = values_of(c.tensor(3))[0];
          if (self.dim() == 0) return {from_values({v}, {})};
          const int d = normalize_dim(c.integer(1), int(self.dim()), "index_fill");
          return {build_tensor(self.sizes(), [&](const Shape& i) {
            for (double k : values_of(c.tensor(2)))
              if (wrapped(k, self.size(d)) == i[size_t(d)]) return v;
            return at(self, i);
          })};
        });

}  // namespace
}  // namespace arete::ops
