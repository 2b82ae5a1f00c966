// Samples, references and errors of the records in ops/product.cpp.
#include <cmath>

#include "arete/samples/reduce_samples.h"

namespace arete::ops {
namespace {

const Attached prod_op =
    attach("prod")
        .samples([](SampleMaker& m) {
          Tensor with_zeros = m.make({2, 3}, 0.5, 2);
          with_zeros.detach().select(0, 0).select(0, 1).zero_();
          return std::vector<Sample>{
              {{m.make({2, 3}, 0.5, 2), std::nullopt, false, std::nullopt}, "all"},
              {{m.make({2, 3}), 1, true, std::nullopt}, "keepdim"},
              {{m.make({2, 3, 2}), -2, false, std::nullopt}, "middle"},
              {{with_zeros, 1, false, std::nullopt}, "a zero"},
              {{m.make({}), std::nullopt, false, std::nullopt}, "0-d"},
              {{m.make({0, 2}), 0, false, std::nullopt}, "empty"}};
        })
        .reference([](const Call& c) {
          const Tensor& x = c.tensor(0);
          Shape dims;
          if (c.has(1)) dims.push_back(c.integer(1));
          const Arg args[] = {x, IntList(dims)};
          return std::vector<Tensor>{reduce_reference(
              Call(c.op, args), 1, c.boolean(2),
              [](const auto& v) {
                double s = 1;
                for (double e : v) s *= e;
                return s;
              },
              is_integral_or_bool(x.dtype()) ? kInt64 : kFloat64)};
        });
const Attached logsumexp_op =
    attach("logsumexp")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({3, 4}), {1}, false}, "rows"},
                                     {{m.make({2, 3, 2}), {0, 2}, true}, "two dims"},
                                     {{m.make({4}, 90, 100), {0}, false}, "large"},
                                     {{m.make({}), {0}, false}, "0-d"}};
        })
        .reference([](const Call& c) {
          return std::vector<Tensor>{reduce_reference(c, 1, c.boolean(2), [](const auto& v) {
            double top = -INFINITY, s = 0;
            for (double e : v) top = std::fmax(top, e);
            for (double e : v) s += std::exp(e - top);
            return top + std::log(s);
          })};
        });

}  // namespace
}  // namespace arete::ops
