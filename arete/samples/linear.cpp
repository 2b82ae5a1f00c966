// Samples, references and errors of the records in ops/linear.cpp.
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

const Attached linear_op =
    attach("linear")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {
              {{m.make({2, 3}), m.make({4, 3}), m.make({4})}},
              {{m.make({2, 3}), m.make({4, 3}), std::nullopt}},
              {{m.make({3}), m.make({4, 3}), m.make({4})}, "one row"},
              {{m.make({2, 2, 3}), m.make({2, 3}), m.make({2})}},
              {{m.make_strided({2, 2, 3}), m.make_strided({2, 3}), m.make({2})}},
              {{m.make({3, 2, 4}).transpose(0, 1), m.make({5, 4}), m.make({5})}, "scattered rows"},
              {{m.make({2, 3}), m.make({3}), m.make({1})}, "weight is a vector"},
              {{m.make({0, 3}), m.make({4, 3}), m.make({4})}, "no rows"},
              {{m.make({2, 0}), m.make({4, 0}), m.make({4})}, "no inputs"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), m.make({5, 4}), std::nullopt},
                   ErrorKind::value,
                   "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"},
                  {{m.make({2, 3}), m.make({4, 3}), m.make({3})},
                   ErrorKind::value,
                   "linear(): bias does not fit weight"},
                  {{m.make({2, 3}).to(kInt64), m.make({4, 3}), std::nullopt},
                   ErrorKind::type,
                   "mat1 and mat2 must have the same dtype, but got int64 and"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &x = c.tensor(0), &w = c.tensor(1);
          const bool vector = w.dim() == 1;
          Shape sizes(x.sizes().first(x.sizes().size() - 1));
          const size_t batch = sizes.size();
          if (!vector) sizes.push_back(w.size(0));
          return {build_tensor(sizes, [&](const Shape& i) {
            double sum = 0;
            Shape ix(i.begin(), i.begin() + batch);
            ix.push_back(0);
            for (int64_t k = 0; k < x.size(-1); ++k) {
              ix[batch] = k;
              sum += at(x, ix) * (vector ? at(w, {k}) : at(w, {i[batch], k}));
            }
            if (c.has(2)) sum += at(c.tensor(2), {vector ? 0 : i[batch]});
            return sum;
          })};
        });
const Attached bilinear_op =
    attach("bilinear")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), m.make({2, 2}), m.make({2, 3, 2}), m.make({2})}},
                  {{m.make({3}), m.make({2}), m.make({2, 3, 2}), std::nullopt}},
                  {{m.make({2, 1, 2}), m.make({2, 1, 2}), m.make({1, 2, 2}), m.make({1})}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), m.make({3, 2}), m.make({2, 3, 2}), std::nullopt},
                   ErrorKind::value,
                   "bilinear(): input batch dimensions do not match at dim 0"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &x1 = c.tensor(0), &x2 = c.tensor(1), &w = c.tensor(2);
          Shape sizes(x1.sizes().first(x1.sizes().size() - 1));
          const size_t batch = sizes.size();
          sizes.push_back(w.size(0));
          return {build_tensor(sizes, [&](const Shape& i) {
            double sum = c.has(3) ? at(c.tensor(3), {i[batch]}) : 0;
            Shape a = i, b = i;
            for (a[batch] = 0; a[batch] < w.size(1); ++a[batch])
              for (b[batch] = 0; b[batch] < w.size(2); ++b[batch])
                sum += at(x1, a) * at(w, {i[batch], a[batch], b[batch]}) * at(x2, b);
            return sum;
          })};
        });

}  // namespace
}  // namespace arete::ops
