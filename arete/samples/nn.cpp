// Samples, references and errors of the records in ops/nn.cpp.
#include <algorithm>
#include <cmath>

#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

const Attached one_hot_op =
    attach("one_hot")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make_index({4}, 3), -1}},
                  {{m.make_index({2, 2}, 3), 5}},
                  {{m.make_index({}, 3), 3}},
                  {{m.make_index({0}, 3), 3}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make_index({3}, 1).add(Scalar(4)), 3},
                   ErrorKind::value,
                   "Class values must be smaller than num_classes."},
                  {{m.make_index({3}, 1).sub(Scalar(1)), 3},
                   ErrorKind::value,
                   "Class values must be non-negative."}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          int64_t classes = c.integer(1);
          if (classes == -1)
            for (double v : values_of(x)) classes = std::max(classes, int64_t(v) + 1);
          Shape sizes(x.sizes());
          sizes.push_back(classes);
          return {build_tensor(
              sizes,
              [&](const Shape& i) {
                return at(x, Shape(i.begin(), i.end() - 1)) == double(i.back());
              },
              kInt64)};
        });
const Attached pixel_shuffle_op =
    attach("pixel_shuffle")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {
              {{m.make({1, 8, 2, 1}), 2}},
              {{m.make_strided({4, 2, 3}), 2}},
              {{m.make({2, 8, 2, 3}).contiguous(MemoryFormat::channels_last), 2}, "channels last"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({1, 3, 2, 2}), 2},
                   ErrorKind::value,
                   "pixel_shuffle expects its input's 'channel' dimension"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          const int64_t r = c.integer(1);
          Shape out(x.sizes());
          const size_t n = out.size();
          out[n - 3] /= r * r;
          out[n - 2] *= r;
          out[n - 1] *= r;
          return {build_tensor(out, [&](Shape i) {
            i[n - 3] = i[n - 3] * r * r + i[n - 2] % r * r + i[n - 1] % r;
            i[n - 2] /= r;
            i[n - 1] /= r;
            return at(x, i);
          })};
        });
const Attached pixel_unshuffle_op =
    attach("pixel_unshuffle")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {
              {{m.make({1, 2, 2, 4}), 2}},
              {{m.make_strided({2, 2, 2}), 2}},
              {{m.make({2, 2, 4, 2}).contiguous(MemoryFormat::channels_last), 2}, "channels last"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({1, 3, 3, 2}), 2},
                   ErrorKind::value,
                   "pixel_unshuffle expects height and width"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          const int64_t r = c.integer(1);
          Shape out(x.sizes());
          const size_t n = out.size();
          out[n - 3] *= r * r;
          out[n - 2] /= r;
          out[n - 1] /= r;
          return {build_tensor(out, [&](Shape i) {
            const int64_t k = i[n - 3] % (r * r);
            i[n - 3] /= r * r;
            i[n - 2] = i[n - 2] * r + k / r;
            i[n - 1] = i[n - 1] * r + k % r;
            return at(x, i);
          })};
        });
const Attached normalize_op = attach("normalize")
                                  .samples([](SampleMaker& m) -> std::vector<Sample> {
                                    using L = std::initializer_list<int64_t>;
                                    return {{{m.make({2, 3}, 0.5, 2), 2.0, L{1}, 1e-12}},
                                            {{m.make_strided({2, 3}, 0.5, 2), 1.0, L{0}, 1e-12}},
                                            {{m.make({2, 3, 2}, 0.5, 2), 2.0, L{0, 2}, 1e-12}},
                                            {{m.make({4}, 0.5, 2), 3.0, L{0}, 1e-6}}};
                                  })
                                  .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
                                    return {{{m.make({2, 3}), 2.0, std::vector<int64_t>{2}, 1e-12},
                                             ErrorKind::index,
                                             "Dimension out of range"}};
                                  })
                                  .reference([](const Call& c) -> std::vector<Tensor> {
                                    const Tensor& x = c.tensor(0);
                                    Shape group;  // the sizes that are summed over
                                    for (int64_t d : c.ints(2)) group.push_back(x.size(d));
                                    return {build_tensor(x.sizes(), [&](const Shape& i) {
                                      const double v = at(x, i);
                                      double sum = 0;
                                      for_each_index(group, [&](const Shape& g) {
                                        Shape j = i;
                                        for (size_t k = 0; k < g.size(); ++k)
                                          j[size_t(c.ints(2)[k])] = g[k];
                                        sum += std::pow(std::fabs(at(x, j)), c.real(1));
                                      });
                                      return v / std::max(std::pow(sum, 1 / c.real(1)), c.real(3));
                                    })};
                                  });

}  // namespace
}  // namespace arete::ops
