// Samples, references and errors of the records in ops/norm.cpp.
#include <algorithm>
#include <cmath>

#include "arete/core/modes.h"
#include "arete/ops/pointwise.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

Tensor optional_tensor(const Call& c, size_t i) { return c.has(i) ? c.tensor(i) : Tensor(); }

// Normalizes groups of elements: key(index) names the group, channel(index) the weight's element.
template <class K, class W>
Tensor reference_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                      bool center, K key, W channel) {
  std::vector<double> sum, squares, count;
  for_each_index(x.sizes(), [&](const Shape& i) {
    const size_t k = key(i);
    if (k >= sum.size()) {
      sum.resize(k + 1);
      count.resize(k + 1);
    }
    sum[k] += center ? at(x, i) : 0;
    count[k] += 1;
  });
  squares.resize(sum.size());
  for_each_index(x.sizes(), [&](const Shape& i) {
    const size_t k = key(i);
    const double d = at(x, i) - sum[k] / count[k];
    squares[k] += d * d;
  });
  const std::vector<double> w = weight.defined() ? values_of(weight) : std::vector<double>();
  const std::vector<double> b = bias.defined() ? values_of(bias) : std::vector<double>();
  return build_tensor(x.sizes(), [&](const Shape& i) {
    const size_t k = key(i), c = channel(i);
    const double v = (at(x, i) - sum[k] / count[k]) / std::sqrt(squares[k] / count[k] + eps);
    return v * (w.empty() ? 1 : w[c]) + (b.empty() ? 0 : b[c]);
  });
}

Tensor reference_last(const Tensor& x, int64_t n, const Tensor& w, const Tensor& b, double eps,
                      bool center) {
  const auto flat = [&](const Shape& i) { return size_t(flat_position(x.sizes(), i)); };
  return reference_norm(
      x, w, b, eps, center, [&](const Shape& i) { return flat(i) / size_t(n); },
      [&](const Shape& i) { return flat(i) % size_t(n); });
}

using L = std::initializer_list<int64_t>;
const Attached layer_norm_op =
    attach("layer_norm")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 4}), L{4}, m.make({4}), m.make({4}), 1e-3}},
                  {{m.make_strided({2, 2, 3}), L{2, 3}, m.make({2, 3}), m.make({2, 3}), 1e-3}},
                  {{m.make({2, 4}), L{4}, std::nullopt, std::nullopt, 1e-3}},
                  {{m.make({2, 4}), L{4}, m.make({4}), std::nullopt, 1e-3}},
                  {{m.make({0, 4}), L{4}, m.make({4}), m.make({4}), 1e-3}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), L{4}, std::nullopt, std::nullopt, 1e-5},
                   ErrorKind::value,
                   "Given normalized_shape=[4], expected input with shape [*, 4], but got input of "
                   "size[2, 3]"},
                  {{m.make({2, 3}), L{3}, m.make({2}), std::nullopt, 1e-5},
                   ErrorKind::value,
                   "Expected weight to be of same shape as normalized_shape"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {reference_last(c.tensor(0), numel_of(c.ints(1)), optional_tensor(c, 2),
                                 optional_tensor(c, 3), c.real(4), true)};
        });
const Attached native_layer_norm_op =
    attach("native_layer_norm")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 4}), L{4}, m.make({4}), m.make({4}), 1e-3}},
                  {{m.make_strided({2, 2, 3}), L{2, 3}, std::nullopt, m.make({2, 3}), 1e-3}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), L{4}, std::nullopt, std::nullopt, 1e-5},
                   ErrorKind::value,
                   "Given normalized_shape=[4]"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          const int64_t n = numel_of(c.ints(1)), rows = x.numel() / n;
          std::vector<double> means, scales;
          const std::vector<double> values = values_of(x);
          for (int64_t r = 0; r < rows; ++r) {
            double mean = 0, square = 0;
            for (int64_t i = 0; i < n; ++i) mean += values[size_t(r * n + i)] / double(n);
            for (int64_t i = 0; i < n; ++i)
              square += std::pow(values[size_t(r * n + i)] - mean, 2) / double(n);
            means.push_back(mean);
            scales.push_back(1 / std::sqrt(square + c.real(4)));
          }
          Shape sizes(x.sizes());
          for (size_t d = sizes.size() - c.ints(1).size(); d < sizes.size(); ++d) sizes[d] = 1;
          return {
              reference_last(x, n, optional_tensor(c, 2), optional_tensor(c, 3), c.real(4), true),
              from_values(means, sizes, x.dtype()), from_values(scales, sizes, x.dtype())};
        });
const Attached rms_norm_op =
    attach("rms_norm")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 4}), L{4}, m.make({4}), 1e-3}},
                  {{m.make_strided({2, 2, 3}), L{2, 3}, std::nullopt, 1e-2}},
                  {{m.make({2, 4}, 0.5, 2), L{4}, m.make({4}), std::nullopt}, "eps of the dtype"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), L{4}, std::nullopt, std::nullopt},
                   ErrorKind::value,
                   "Given normalized_shape=[4]"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {reference_last(c.tensor(0), numel_of(c.ints(1)), optional_tensor(c, 2), Tensor(),
                                 c.has(3) ? c.real(3) : 0, false)};
        });
const Attached group_norm_op =
    attach("group_norm")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 4, 2}), 2, m.make({4}), m.make({4}), 1e-3}},
                  {{m.make_strided({1, 4, 2, 2}), 4, std::nullopt, std::nullopt, 1e-3}},
                  {{m.make({2, 4}), 1, m.make({4}), m.make({4}), 1e-3}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 4}), 3, std::nullopt, std::nullopt, 1e-5},
                   ErrorKind::value,
                   "Expected number of channels in input to be divisible by num_groups"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          const int64_t groups = c.integer(1), per = x.size(1) / groups;
          return {reference_norm(
              x, optional_tensor(c, 2), optional_tensor(c, 3), c.real(4), true,
              [&](const Shape& i) { return size_t(i[0] * groups + i[1] / per); },
              [](const Shape& i) { return size_t(i[1]); })};
        });

std::vector<Tensor> channel_reference(const Call& c, bool by_instance) {
  const Tensor& x = c.tensor(0);
  const Tensor w = optional_tensor(c, 3), b = optional_tensor(c, 4);
  if (c.boolean(5))
    return {reference_norm(
        x, w, b, c.real(7), true,
        [&](const Shape& i) { return size_t(by_instance ? i[0] * x.size(1) + i[1] : i[1]); },
        [](const Shape& i) { return size_t(i[1]); })};
  return {build_tensor(x.sizes(), [&](const Shape& i) {
    const double v =
        (at(x, i) - at(c.tensor(1), {i[1]})) / std::sqrt(at(c.tensor(2), {i[1]}) + c.real(7));
    return v * (w.defined() ? at(w, {i[1]}) : 1) + (b.defined() ? at(b, {i[1]}) : 0);
  })};
}

std::vector<Sample> channel_samples(SampleMaker& m) {
  const auto stat = [&](double low, double high) { return m.make({2}, low, high).detach(); };
  return {
      {{m.make({3, 2, 2}), stat(-1, 1), stat(0.5, 2), m.make({2}), m.make({2}), true, 0.1, 1e-3}},
      {{m.make_strided({2, 2, 2, 2}), std::nullopt, std::nullopt, std::nullopt, std::nullopt, true,
        0.1, 1e-3}},
      {{m.make({3, 2, 2}), stat(-1, 1), stat(0.5, 2), m.make({2}), m.make({2}), false, 0.1, 1e-3},
       "running"},
      {{m.make({2, 2, 1, 3}), stat(-1, 1), stat(0.5, 2), std::nullopt, std::nullopt, false, 0.1,
        1e-3},
       "running"}};
}

const Attached batch_norm_op =
    attach("batch_norm")
        .samples([](SampleMaker& m) {
          auto s = channel_samples(m);
          s.push_back({{m.make({4, 2}), std::nullopt, std::nullopt, m.make({2}), m.make({2}), true,
                        0.1, 1e-3}});
          s.push_back({{m.make({0}), m.make({0}).detach(), m.make({0}).detach(), std::nullopt,
                        std::nullopt, false, 0.1, 1e-3},
                       "no channels"});
          return s;
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 2}), std::nullopt, std::nullopt, std::nullopt, std::nullopt, true,
                    0.1, 0.0},
                   ErrorKind::value,
                   "batch_norm eps must be positive, but got 0"},
                  {{m.make({1, 2}), std::nullopt, std::nullopt, std::nullopt, std::nullopt, true,
                    0.1, 1e-5},
                   ErrorKind::value,
                   "Expected more than 1 value per channel when training, got input size [1, 2]"},
                  {{m.make({3, 2}), m.make({3}), m.make({2}), std::nullopt, std::nullopt, false,
                    0.1, 1e-5},
                   ErrorKind::value,
                   "running_mean should contain 2 elements not 3"}};
        })
        .reference([](const Call& c) { return channel_reference(c, false); });
const Attached batch_norm_relu_op =
    attach("batch_norm_relu")
        .samples([](SampleMaker& m) {
          auto all = channel_samples(m);
          for (size_t i = 0, n = all.size(); i < n; ++i) {
            Sample with = all[i];
            all[i].args.push_back(std::nullopt);
            with.args.push_back(m.make(with.args[0].tensor.sizes()));
            with.note += with.note.empty() ? "residual" : ", residual";
            all.push_back(with);
          }
          return all;
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3, 2}), std::nullopt, std::nullopt, std::nullopt, std::nullopt, true,
                    0.1, 1e-5, m.make({3, 1})},
                   ErrorKind::value,
                   "residual must be like input"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor y = channel_reference(c, false)[0];
          return {build_tensor(y.sizes(), [&](const Shape& i) {
            return std::max(at(y, i) + (c.has(8) ? at(c.tensor(8), i) : 0), 0.0);
          })};
        });
const Attached instance_norm_op =
    attach("instance_norm")
        .samples(channel_samples)
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3, 2, 1}), std::nullopt, std::nullopt, std::nullopt, std::nullopt, true,
                    0.1, 1e-5},
                   ErrorKind::value,
                   "Expected more than 1 spatial element when training"}};
        })
        .reference([](const Call& c) { return channel_reference(c, true); });

}  // namespace
}  // namespace arete::ops
