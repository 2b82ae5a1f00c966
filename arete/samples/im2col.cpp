// Samples, references and errors of the records in ops/im2col.cpp.
#include "arete/ops/pointwise.h"
#include "arete/ops/window_util.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

using L = std::initializer_list<int64_t>;

// Geometry from argument `first` on, and the number of windows in each dimension.
struct Windows {
  Shape kernel, dilation, padding, stride, counts;
};
Windows windows_of(const Call& c, size_t first, IntList image) {
  const auto pair = [&](size_t i) { return spread(c.ints(first + i), 2, "", ""); };
  Windows w{pair(0), pair(1), pair(2), pair(3), {}};
  for (size_t d = 0; d < 2; ++d)
    w.counts.push_back(
        (image[d] + 2 * w.padding[d] - w.dilation[d] * (w.kernel[d] - 1) - 1) / w.stride[d] + 1);
  return w;
}

const Attached unfold_op =
    attach("unfold_im2col")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 2, 3, 4}), L{2}, L{1}, L{0}, L{1}}},
                  {{m.make_strided({1, 2, 4, 3}), L{2, 3}, L{2, 1}, L{1, 2}, L{1, 2}}},
                  {{m.make({2, 3, 3}), L{2}, L{1}, L{1}, L{2}}, "no batch"},
                  {{m.make({0, 2, 3, 3}), L{2}, L{1}, L{0}, L{1}}, "nothing"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 2}), L{2}, L{1}, L{0}, L{1}},
                   ErrorKind::value,
                   "Expected 3D or 4D (batch mode) tensor"},
                  {{m.make({1, 2, 2, 2}), L{3}, L{1}, L{0}, L{1}},
                   ErrorKind::value,
                   "calculated shape of the array of sliding blocks as"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          const size_t lead = x.sizes().size() - 3;
          const IntList image = x.sizes().subspan(lead + 1);
          const Windows w = windows_of(c, 1, image);
          const int64_t taps = w.kernel[0] * w.kernel[1];
          Shape out(x.sizes().first(lead));
          out.push_back(x.sizes()[lead] * taps);
          out.push_back(w.counts[0] * w.counts[1]);
          return {build_tensor(out, [&](const Shape& i) {
            const int64_t tap = i[lead] % taps, window = i[lead + 1];
            Shape ix(IntList(i).first(lead));
            ix.push_back(i[lead] / taps);
            ix.push_back(window / w.counts[1] * w.stride[0] + tap / w.kernel[1] * w.dilation[0] -
                         w.padding[0]);
            ix.push_back(window % w.counts[1] * w.stride[1] + tap % w.kernel[1] * w.dilation[1] -
                         w.padding[1]);
            const int64_t row = ix[lead + 1], column = ix[lead + 2];
            const bool inside = row >= 0 && row < image[0] && column >= 0 && column < image[1];
            return inside ? at(x, ix) : 0.0;
          })};
        });
const Attached fold_op =
    attach("fold")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 8, 6}), L{3, 4}, L{2}, L{1}, L{0}, L{1}}},
                  {{m.make_strided({1, 6, 12}), L{4, 3}, L{2, 3}, L{2, 1}, L{1, 2}, L{1, 2}}},
                  {{m.make({4, 4}), L{3}, L{2}, L{1}, L{1}, L{2}}, "no batch"},
                  {{m.make({1, 10, 5}), L{1, 7}, L{1, 5}, L{1}, L{0, 3}, L{1, 2}}, "overlap"},
                  {{m.make({2, 4, 4}), L{4}, L{2}, L{1}, L{0}, L{2}}, "no overlap"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({1, 7, 6}), L{3, 4}, L{2}, L{1}, L{0}, L{1}},
                   ErrorKind::value,
                   "Expected size of input's dimension 1 to be divisible by"},
                  {{m.make({1, 8, 5}), L{3, 4}, L{2}, L{1}, L{0}, L{1}},
                   ErrorKind::value,
                   "expected size of input's dimension 2 to match the calculated number of sliding "
                   "blocks 6"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          const size_t lead = x.sizes().size() - 2;
          const Shape image = spread(c.ints(1), 2, c.name(), "output_size");
          const Windows w = windows_of(c, 2, image);
          const int64_t taps = w.kernel[0] * w.kernel[1];
          Shape out(x.sizes().first(lead));
          out.push_back(x.sizes()[lead] / taps);
          out.append(image.begin(), image.end());
          std::vector<double> values(size_t(numel_of(out)), 0.0);
          for_each_index(x.sizes(), [&](const Shape& i) {
            const int64_t tap = i[lead] % taps, window = i[lead + 1];
            const int64_t row = window / w.counts[1] * w.stride[0] +
                                tap / w.kernel[1] * w.dilation[0] - w.padding[0];
            const int64_t column = window % w.counts[1] * w.stride[1] +
                                   tap % w.kernel[1] * w.dilation[1] - w.padding[1];
            if (row < 0 || row >= image[0] || column < 0 || column >= image[1]) return;
            Shape to(IntList(i).first(lead));
            for (int64_t v : {i[lead] / taps, row, column}) to.push_back(v);
            values[size_t(flat_position(out, to))] += at(x, i);
          });
          return {from_values(values, out)};
        });

}  // namespace
}  // namespace arete::ops
