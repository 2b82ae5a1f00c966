// Samples, references and errors of the records in ops/conv_functions.cpp.
#include <algorithm>

#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

using L = std::initializer_list<int64_t>;

// Plain loops for one convolution under any of the conventions: padding on the left `left`.
Tensor reference_conv(const Call& c, int spatial, IntList left_in, IntList stride, IntList dilation,
                      int64_t groups, bool same) {
  const Tensor &x = c.tensor(0), &w = c.tensor(1);
  const bool batch = x.dim() == spatial + 2;
  const size_t lead = batch ? 2 : 1;
  const auto pick = [&](IntList l, int d) { return l.size() == 1 ? l[0] : l[size_t(d)]; };
  Shape out;
  if (batch) out.push_back(x.size(0));
  out.push_back(w.size(0));
  Shape left;
  for (int d = 0; d < spatial; ++d) {
    const int64_t span = pick(dilation, d) * (w.size(d + 2) - 1), n = x.sizes()[lead + size_t(d)];
    left.push_back(same ? span / 2 : pick(left_in, d));
    out.push_back(same ? n : (n + 2 * left.back() - span - 1) / pick(stride, d) + 1);
  }
  const int64_t per_group = w.size(0) / groups;
  return build_tensor(out, [&](const Shape& i) {
    const int64_t o = i[lead - 1];
    double sum = c.has(2) ? at(c.tensor(2), {o}) : 0;
    for_each_index(w.sizes().subspan(1), [&](const Shape& k) {
      Shape ix = i, iw = k;
      iw.insert(iw.begin(), o);
      ix[lead - 1] = o / per_group * w.size(1) + k[0];
      for (int d = 0; d < spatial; ++d) {
        int64_t& v = ix[lead + size_t(d)];
        v = v * pick(stride, d) - left[size_t(d)] + k[size_t(d) + 1] * pick(dilation, d);
        if (v < 0 || v >= x.sizes()[lead + size_t(d)]) return;
      }
      sum += at(x, ix) * at(w, iw);
    });
    return sum;
  });
}

template <int spatial>
void attach_conv(std::string_view name) {
  attach(name)
      .samples([](SampleMaker& m) -> std::vector<Sample> {
        const auto sizes = [](int64_t a, int64_t b, int64_t s) {
          Shape out{a, b};
          for (int d = 0; d < spatial; ++d)
            out.push_back(d + 1 == spatial ? s : std::min<int64_t>(s, 2));
          return out;
        };
        const Shape batched_x = sizes(1, 2, 4), kernel = sizes(2, 2, 2);
        return {{{m.make(batched_x), m.make(kernel), m.make({2}), L{1}, L{0}, L{1}, 1}},
                {{m.make(IntList(batched_x).subspan(1)), m.make(kernel), std::nullopt, L{2}, L{1},
                  L{1}, 1},
                 "no batch"}};
      })
      .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
        Shape kernel{2, 2};
        for (int d = 0; d < spatial; ++d) kernel.push_back(2);
        return {{{m.make({2}), m.make(kernel), std::nullopt, L{1}, L{0}, L{1}, 1},
                 ErrorKind::value,
                 "Expected " + std::to_string(spatial + 1) + "D (unbatched) or"},
                {{m.make({1, 2, 4, 4}), m.make({2, 2}), std::nullopt, L{1}, L{0}, L{1}, 1},
                 ErrorKind::value,
                 "weight should have " + std::to_string(spatial + 2) + " dimensions"}};
      })
      .reference([](const Call& c) -> std::vector<Tensor> {
        return {reference_conv(c, spatial, c.ints(4), c.ints(3), c.ints(5), c.integer(6), false)};
      });
}

template <int spatial>
void attach_conv_mode(std::string_view name) {
  attach(name)
      .samples([](SampleMaker& m) -> std::vector<Sample> {
        Shape x{1, 2}, even{2, 2}, odd{2, 1};
        for (int d = 0; d < spatial; ++d) {
          x.push_back(d + 1 == spatial ? 4 : 2);
          even.push_back(2);
          odd.push_back(d + 1 == spatial ? 3 : 1);
        }
        return {{{m.make(x), m.make(even), m.make({2}), L{1}, "same", L{1}, 1}, "uneven padding"},
                {{m.make(x), m.make(odd), m.make({2}), L{1}, "same", L{1}, 2}},
                {{m.make(x), m.make(even), std::nullopt, L{1}, "valid", L{1}, 1}}};
      })
      .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
        Shape x{1, 2}, kernel{2, 2};
        for (int d = 0; d < spatial; ++d) {
          x.push_back(3);
          kernel.push_back(2);
        }
        return {{{m.make(x), m.make(kernel), std::nullopt, L{2}, "same", L{1}, 1},
                 ErrorKind::value,
                 "padding='same' is not supported for strided convolutions"},
                {{m.make(x), m.make(kernel), std::nullopt, L{1}, "full", L{1}, 1},
                 ErrorKind::value,
                 "Invalid padding string: 'full'"}};
      })
      .reference([](const Call& c) -> std::vector<Tensor> {
        return {reference_conv(c, spatial, {0}, c.ints(3), c.ints(5), c.integer(6),
                               c[4].string() == "same")};
      });
}

template <int spatial>
void attach_conv_transpose(std::string_view name) {
  attach(name)
      .samples([](SampleMaker& m) -> std::vector<Sample> {
        Shape x{1, 2}, w{2, 1}, grouped{2, 1};
        for (int d = 0; d < spatial; ++d) {
          x.push_back(d + 1 == spatial ? 3 : 2);
          w.push_back(2);
          grouped.push_back(d + 1 == spatial ? 3 : 1);
        }
        return {{{m.make(x), m.make(w), m.make({1}), L{1}, L{0}, L{0}, 1, L{1}}},
                {{m.make(x), m.make(w), std::nullopt, L{2}, L{1}, L{1}, 1, L{1}}, "output padding"},
                {{m.make(x), m.make(grouped), m.make({2}), L{1}, L{0}, L{0}, 2, L{2}},
                 "grouped and dilated"},
                {{m.make(IntList(x).subspan(1)), m.make(w), m.make({1}), L{1}, L{0}, L{0}, 1, L{1}},
                 "no batch"}};
      })
      .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
        Shape x{1, 2}, w{2, 1}, wrong{3, 1};
        for (int d = 0; d < spatial; ++d) {
          x.push_back(3);
          w.push_back(2);
          wrong.push_back(2);
        }
        return {{{m.make(x), m.make(w), std::nullopt, L{1}, L{0}, L{1}, 1, L{1}},
                 ErrorKind::value,
                 "output padding must be smaller than either stride or dilation"},
                {{m.make(x), m.make(wrong), std::nullopt, L{1}, L{0}, L{0}, 1, L{1}},
                 ErrorKind::value,
                 "Given transposed=1, weight of size"}};
      })
      .reference([](const Call& c) -> std::vector<Tensor> {
        const Tensor &x = c.tensor(0), &w = c.tensor(1);
        const bool batch = x.dim() == spatial + 2;
        const size_t lead = batch ? 2 : 1;
        const auto pick = [&](size_t i, int d) {
          return c.ints(i).size() == 1 ? c.ints(i)[0] : c.ints(i)[size_t(d)];
        };
        Shape out;
        if (batch) out.push_back(x.size(0));
        out.push_back(w.size(1) * c.integer(6));
        for (int d = 0; d < spatial; ++d)
          out.push_back((x.sizes()[lead + size_t(d)] - 1) * pick(3, d) - 2 * pick(4, d) +
                        pick(7, d) * (w.size(d + 2) - 1) + pick(5, d) + 1);
        std::vector<double> y(size_t(numel_of(out)), 0.0);
        const int64_t per_group = w.size(0) / c.integer(6);
        for_each_index(x.sizes(), [&](const Shape& i) {
          const int64_t in = i[lead - 1];
          for_each_index(w.sizes().subspan(1), [&](const Shape& k) {
            Shape io = i, iw = k;
            iw.insert(iw.begin(), in);
            io[lead - 1] = in / per_group * w.size(1) + k[0];
            for (int d = 0; d < spatial; ++d) {
              int64_t& v = io[lead + size_t(d)];
              v = v * pick(3, d) - pick(4, d) + k[size_t(d) + 1] * pick(7, d);
              if (v < 0 || v >= out[lead + size_t(d)]) return;
            }
            y[size_t(flat_position(out, io))] += at(x, i) * at(w, iw);
          });
        });
        size_t n = 0;
        for_each_index(
            out, [&](const Shape& i) { y[n++] += c.has(2) ? at(c.tensor(2), {i[lead - 1]}) : 0; });
        return {from_values(y, out)};
      });
}

// Sums over taps of products, (T, N, C) with (k, C, O).
Tensor reference_taps(const Tensor& x, const Tensor& w, const Tensor& bias, int64_t pad) {
  return build_tensor({x.size(0) + 2 * pad - w.size(0) + 1, x.size(1), w.size(2)},
                      [&](const Shape& i) {
                        double sum = bias.defined() ? at(bias, {i[2]}) : 0;
                        for (int64_t k = 0; k < w.size(0); ++k) {
                          const int64_t t = i[0] + k - pad;
                          for (int64_t c = 0; c < x.size(2) && t >= 0 && t < x.size(0); ++c)
                            sum += at(x, {t, i[1], c}) * at(w, {k, c, i[2]});
                        }
                        return sum;
                      });
}

const Attached tap_products_op =
    attach("tap_products")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({5, 2, 3}), m.make({3, 3, 2}), m.make({2}), 0}},
                  {{m.make_strided({2, 1, 2}), m.make({3, 2, 3}), std::nullopt, 2}, "padded"},
                  {{m.make({3, 2, 1}), m.make_strided({2, 1, 2}), std::nullopt, 3}, "padded far"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 1, 2}), m.make({3, 2, 1}), std::nullopt, 0},
                   ErrorKind::value,
                   "more taps than steps"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {reference_taps(c.tensor(0), c.tensor(1), c.has(2) ? c.tensor(2) : Tensor(),
                                 c.integer(3))};
        });
const Attached tap_weights_op =
    attach("tap_weights")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({4, 2, 2}), m.make({3, 2, 3}), 2, 0}},
                  {{m.make_strided({2, 1, 2}), m.make({4, 1, 1}), 3, 2}, "padded"},
                  {{m.make({1, 1, 2}), m.make({6, 1, 1}), 2, 3}, "padded far"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &x = c.tensor(0), &g = c.tensor(1);
          return {build_tensor({c.integer(2), x.size(2), g.size(2)}, [&](const Shape& i) {
            double sum = 0;
            for (int64_t t = 0; t < g.size(0); ++t) {
              const int64_t from = t + i[0] - c.integer(3);
              for (int64_t n = 0; n < x.size(1) && from >= 0 && from < x.size(0); ++n)
                sum += at(x, {from, n, i[1]}) * at(g, {t, n, i[2]});
            }
            return sum;
          })};
        });
const Attached conv_tbc_op =
    attach("conv_tbc")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({5, 2, 3}), m.make({3, 3, 2}), m.make({2}), 0}},
                  {{m.make_strided({4, 1, 2}), m.make({3, 2, 3}), m.make({3}), 2}, "padded"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({4, 1, 2}), m.make({3, 3, 2}), m.make({2}), 0},
                   ErrorKind::value,
                   "channels of input, weight and bias do not fit"},
                  {{m.make({4, 2}), m.make({3, 2, 2}), m.make({2}), 0},
                   ErrorKind::value,
                   "Input must have 3 dims"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {reference_taps(c.tensor(0), c.tensor(1), c.tensor(2), c.integer(3))};
        });

const bool conv_functions_attached = [] {
  attach_conv<1>("conv1d");
  attach_conv_mode<1>("conv1d.padding");
  attach_conv_transpose<1>("conv_transpose1d");
  attach_conv<2>("conv2d");
  attach_conv_mode<2>("conv2d.padding");
  attach_conv_transpose<2>("conv_transpose2d");
  attach_conv<3>("conv3d");
  attach_conv_mode<3>("conv3d.padding");
  attach_conv_transpose<3>("conv_transpose3d");
  return true;
}();

}  // namespace
}  // namespace arete::ops
