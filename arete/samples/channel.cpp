// Samples, references and errors of the records in ops/channel.cpp.
#include <cmath>

#include "arete/ops/pointwise.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

const Attached channel_shuffle_op =
    attach("channel_shuffle")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {
              {{m.make({2, 6, 2}), 3}},
              {{m.make_strided({1, 4, 2, 2}), 2}},
              {{m.make({2, 6, 2, 2}).contiguous(MemoryFormat::channels_last), 2}, "channels last"},
              {{m.make({1, 3, 1, 2}), 1}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 4}), 2}, ErrorKind::value, "channel_shuffle expects input with > 2"},
                  {{m.make({2, 4, 2}), 3},
                   ErrorKind::value,
                   "Number of channels must be divisible by groups"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          const int64_t groups = c.integer(1), each = x.size(1) / groups;
          return {build_tensor(x.sizes(), [&](Shape i) {
            i[1] = i[1] % groups * each + i[1] / groups;
            return at(x, i);
          })};
        });
const Attached response_norm_op =
    attach("response_norm")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), m.make({2, 3}, 0.5, 1.5), 0.5, 1.0, 0.75}},
                  {{m.make_strided({2, 3}), m.make({2, 3}, 0.5, 1.5), 0.1, 2.0, 0.5}}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {build_tensor(c.tensor(0).sizes(), [&](const Shape& i) {
            return at(c.tensor(0), i) /
                   std::pow(c.real(3) + c.real(2) * at(c.tensor(1), i), c.real(4));
          })};
        });

const Attached local_response_norm_op =
    attach("local_response_norm")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 4, 3}), 3, 0.5, 0.75, 1.0}},
                  {{m.make_strided({1, 5, 2, 2}), 2, 0.1, 0.5, 2.0}},
                  {{m.make({1, 2, 1, 2, 2}), 5, 1e-4, 0.75, 1.0}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), 2, 1e-4, 0.75, 1.0},
                   ErrorKind::value,
                   "Expected 3D or higher dimensionality input (got 2 dimensions)"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          const int64_t size = c.integer(1);
          return {build_tensor(x.sizes(), [&](const Shape& i) {
            double sum = 0;
            Shape j = i;
            for (j[1] = i[1] - size / 2; j[1] <= i[1] + (size - 1) / 2; ++j[1])
              if (j[1] >= 0 && j[1] < x.size(1)) sum += at(x, j) * at(x, j);
            return at(x, i) / std::pow(c.real(4) + c.real(2) * sum / double(size), c.real(3));
          })};
        });

}  // namespace
}  // namespace arete::ops
