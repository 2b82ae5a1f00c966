// Samples, references and errors of the records in ops/scaled_mm.cpp.
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

const Attached scaled_mm_op =
    attach("scaled_mm")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const auto f8 = [&](IntList sizes, DType dtype = kFloat8E4M3) {
            return m.make(sizes).detach().to(dtype);
          };
          const auto scale = [&](IntList sizes) { return m.make(sizes, 0.5, 2).detach(); };
          return {
              {{f8({3, 4}), f8({4, 5}), scale({}), scale({}), std::nullopt, kFloat32}},
              {{f8({3, 4}), f8({5, 4}).t(), scale({1}), scale({1}), m.make({5}).detach(), kFloat32},
               "bias"},
              {{f8({3, 4}, kFloat8E5M2), f8({4, 5}), scale({3, 1}), scale({1, 5}), std::nullopt,
                kFloat32},
               "a scale for each row and column"},
              // Tensor cores keep 14 bits of sums of f8 products: more than bf16 shows.
              {{f8({16, 32}), f8({48, 32}).t(), scale({}), scale({}), std::nullopt, std::nullopt},
               "library layout"},
              {{f8({2, 0}), f8({0, 3}), scale({}), scale({}), std::nullopt, kFloat32},
               "no inner dimension"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          const Tensor one = m.make({}).detach(), a = m.make({2, 3}).detach().to(kFloat8E4M3);
          return {{{m.make({2, 3}), m.make({3, 2}), one, one, std::nullopt, std::nullopt},
                   ErrorKind::type,
                   "expected two float8 matrices"},
                  {{a, a, one, one, std::nullopt, std::nullopt},
                   ErrorKind::value,
                   "mat1 and mat2 shapes cannot be multiplied"},
                  {{a, a.t(), m.make({3}).detach(), one, std::nullopt, std::nullopt},
                   ErrorKind::value,
                   "a scale does not fit its matrix"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const std::vector<double> a = values_of(c.tensor(0)), b = values_of(c.tensor(1)),
                                    sa = values_of(c.tensor(2)), sb = values_of(c.tensor(3));
          const int64_t k = c.tensor(0).size(1), n = c.tensor(1).size(1);
          return {build_tensor(Shape{c.tensor(0).size(0), n}, [&](const Shape& i) {
            double sum = 0;
            for (int64_t p = 0; p < k; ++p)
              sum += a[size_t(i[0] * k + p)] * b[size_t(p * n + i[1])];
            sum *= sa[sa.size() > 1 ? size_t(i[0]) : 0] * sb[sb.size() > 1 ? size_t(i[1]) : 0];
            return sum + (c.has(4) ? at(c.tensor(4), {i[1]}) : 0);
          })};
        });

}  // namespace
}  // namespace arete::ops
