// Samples, references and errors of the records in ops/conv.cpp.
#include "arete/ops/call.h"
#include "arete/ops/conv_internal.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

template <class F>
void for_each_product(IntList x, IntList w, IntList y, const ConvParams& c, F f) {
  const int64_t per_group = w[0] / std::max<int64_t>(c.groups, 1);
  for_each_index(y, [&](const Shape& iy) {
    for_each_index(w.subspan(1), [&](const Shape& iw1) {
      Shape iw = iw1, ix = iy;
      iw.insert(iw.begin(), iy[1]);
      ix[1] = iy[1] / per_group * w[1] + iw[1];
      for (size_t d = 0; d < c.stride.size(); ++d) {
        ix[d + 2] = iy[d + 2] * c.stride[d] - c.padding[d] + iw[d + 2] * c.dilation[d];
        if (ix[d + 2] < 0 || ix[d + 2] >= x[d + 2]) return;
      }
      f(size_t(flat_position(x, ix)), size_t(flat_position(w, iw)), size_t(flat_position(y, iy)));
    });
  });
}

std::vector<double> reference_forward(const Tensor& x, const Tensor& w, IntList y,
                                      const ConvParams& c) {
  std::vector<double> out(size_t(numel_of(y)), 0.0);
  const std::vector<double> xv = values_of(x), wv = values_of(w);
  for_each_product(x.sizes(), w.sizes(), y, c,
                   [&](size_t ix, size_t iw, size_t iy) { out[iy] += xv[ix] * wv[iw]; });
  return out;
}

std::vector<double> reference_dgrad(const Tensor& g, const Tensor& w, IntList x,
                                    const ConvParams& c) {
  std::vector<double> out(size_t(numel_of(x)), 0.0);
  const std::vector<double> gv = values_of(g), wv = values_of(w);
  for_each_product(x, w.sizes(), g.sizes(), c,
                   [&](size_t ix, size_t iw, size_t iy) { out[ix] += gv[iy] * wv[iw]; });
  return out;
}

std::vector<double> reference_wgrad(const Tensor& x, const Tensor& g, IntList w,
                                    const ConvParams& c) {
  std::vector<double> out(size_t(numel_of(w)), 0.0);
  const std::vector<double> xv = values_of(x), gv = values_of(g);
  for_each_product(x.sizes(), w, g.sizes(), c,
                   [&](size_t ix, size_t iw, size_t iy) { out[iw] += xv[ix] * gv[iy]; });
  return out;
}

void add_channels(std::vector<double>& y, IntList sizes, const Tensor& bias) {
  size_t k = 0;
  for_each_index(sizes, [&](const Shape& i) { y[k++] += at(bias, {i[1]}); });
}

using L = std::initializer_list<int64_t>;
const Attached convolution_op =
    attach("convolution")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 2, 3, 3}), m.make({2, 2, 2, 2}), m.make({2}), L{1, 1}, L{0, 0},
                    L{1, 1}, 1}},
                  {{m.make_strided({1, 2, 3, 4}), m.make_strided({2, 1, 2, 2}), m.make({2}),
                    L{2, 1}, L{1, 0}, L{1, 1}, 2},
                   "grouped"},
                  {{m.make({1, 2, 6}), m.make({3, 2, 2}), std::nullopt, L{1}, L{1}, L{2}, 1},
                   "dilated"},
                  {{m.make({1, 1, 2, 3, 2}), m.make({2, 1, 2, 2, 1}), m.make({2}), L{1, 1, 1},
                    L{0, 1, 0}, L{1, 1, 1}, 1}},
                  {{m.make({0, 2, 3, 3}), m.make({2, 2, 2, 2}), m.make({2}), L{1, 1}, L{0, 0},
                    L{1, 1}, 1},
                   "no batch"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({1, 3, 4, 4}), m.make({2, 2, 2, 2}), std::nullopt, L{1, 1}, L{0, 0},
                    L{1, 1}, 1},
                   ErrorKind::value,
                   "Given groups=1, weight of size [2, 2, 2, 2], expected input[1, 3, 4, 4] to "
                   "have 2 channels, but got "
                   "3 channels instead"},
                  {{m.make({1, 2, 2, 2}), m.make({2, 2, 3, 3}), std::nullopt, L{1, 1}, L{0, 0},
                    L{1, 1}, 1},
                   ErrorKind::value,
                   "Kernel size can't be greater than actual input size"},
                  {{m.make({1, 2, 4, 4}), m.make({2, 2, 3, 3}), m.make({3}), L{1, 1}, L{0, 0},
                    L{1, 1}, 1},
                   ErrorKind::value,
                   "expected bias to be 1-dimensional with 2 elements"},
                  {{m.make({1, 2, 4, 4}), m.make({2, 2, 3, 3}), std::nullopt, L{0, 1}, L{0, 0},
                    L{1, 1}, 1},
                   ErrorKind::value,
                   "non-positive stride is not supported"},
                  {{m.make({1, 2, 4, 4}).to(kInt64), m.make({2, 2, 3, 3}), std::nullopt, L{1, 1},
                    L{0, 0}, L{1, 1}, 1},
                   ErrorKind::type,
                   "Input type (int64) and weight type"}};
        })
        .reference([](const Call& call) -> std::vector<Tensor> {
          const ConvParams c = params_of(call, 3);
          const Shape y = result_sizes(call);
          std::vector<double> v = reference_forward(call.tensor(0), call.tensor(1), y, c);
          if (call.has(2)) add_channels(v, y, call.tensor(2));
          return {from_values(v, y)};
        });
const Attached convolution_dgrad_op =
    attach("convolution_dgrad")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 2, 2, 2}), m.make({2, 2, 2, 2}), L{2, 2, 3, 3}, L{1, 1}, L{0, 0},
                    L{1, 1}, 1}},
                  {{m.make_strided({1, 2, 2, 3}), m.make({2, 1, 2, 2}), L{1, 2, 3, 4}, L{2, 1},
                    L{1, 0}, L{1, 1}, 2}},
                  {{m.make({1, 2, 3}), m.make({2, 2, 2}), L{1, 2, 6}, L{2}, L{0}, L{1}, 1}},
                  {{m.make({2, 2, 2, 2}), m.make({2, 2, 2, 2}), L{2, 2, 3, 3}, L{1, 1}, L{0, 0},
                    L{1, 1}, 1, true},
                   "channels last"}};
        })
        .reference([](const Call& call) -> std::vector<Tensor> {
          const ConvParams c = params_of(call, 3);
          return {from_values(reference_dgrad(call.tensor(0), call.tensor(1), call.ints(2), c),
                              call.ints(2))};
        });

std::vector<Sample> wgrad_samples(SampleMaker& m) {
  return {
      {{m.make({2, 2, 3, 3}), m.make({2, 2, 2, 2}), L{2, 2, 2, 2}, L{1, 1}, L{0, 0}, L{1, 1}, 1}},
      {{m.make_strided({1, 2, 3, 4}), m.make({1, 2, 2, 3}), L{2, 1, 2, 2}, L{2, 1}, L{1, 0},
        L{1, 1}, 2}},
      {{m.make({1, 2, 6}), m.make({1, 2, 3}), L{2, 2, 2}, L{2}, L{0}, L{1}, 1}},
      {{m.make({2, 2, 3, 3}), m.make({2, 2, 2, 2}), L{2, 2, 2, 2}, L{1, 1}, L{0, 0}, L{1, 1}, 1,
        true},
       "channels last"}};
}

const Attached convolution_wgrad_op =
    attach("convolution_wgrad")
        .samples(wgrad_samples)
        .reference([](const Call& call) -> std::vector<Tensor> {
          return {from_values(
              reference_wgrad(call.tensor(0), call.tensor(1), call.ints(2), params_of(call, 3)),
              call.ints(2))};
        });
const Attached convolution_wgrad_bias_op =
    attach("convolution_wgrad_bias")
        .samples(wgrad_samples)
        .reference([](const Call& call) -> std::vector<Tensor> {
          const Tensor& g = call.tensor(1);
          std::vector<double> bias(size_t(call.ints(2)[0]), 0.0);
          for_each_index(g.sizes(), [&](const Shape& i) { bias[size_t(i[1])] += at(g, i); });
          return {from_values(reference_wgrad(call.tensor(0), g, call.ints(2), params_of(call, 3)),
                              call.ints(2)),
                  from_values(bias, {int64_t(bias.size())})};
        });

}  // namespace
}  // namespace arete::ops
