// Samples, references and errors of the records in ops/fft.cpp.
#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/fft.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

// Real or complex on either side: the real sides of "half" transforms have n points and their
// complex sides n / 2 + 1.
enum class Kind : uint8_t { complex, to_half, from_half };

// Over which dimensions, in order, and how many points each has: arguments 2 and 1 of a call, of
// one dimension each or of several.
struct Axes {
  Shape dims, points;
};
Axes axes_of(const Call& c, Kind kind) {
  const Tensor& x = c.tensor(0);
  const auto list = [&](size_t i) {
    if (!c.has(i)) return Shape();
    return c[i].kind() == Arg::Kind::ints ? Shape(c.ints(i)) : Shape{c.integer(i)};
  };
  Axes a{list(2), list(1)};
  if (!c.has(2))
    for (int64_t d = c.has(1) ? x.dim() - int64_t(a.points.size()) : 0; d < x.dim(); ++d)
      a.dims.push_back(d);
  if (!c.has(1)) a.points = Shape(a.dims.size(), -1);
  for (size_t i = 0; i < a.dims.size(); ++i) {
    if (a.dims[i] < 0) a.dims[i] += x.dim();
    const int64_t n = x.size(a.dims[i]);
    const bool half = kind == Kind::from_half && i + 1 == a.dims.size();
    if (a.points[i] == -1) a.points[i] = half ? 2 * (n - 1) : n;
  }
  return a;
}

using Number = std::complex<double>;

struct Grid {
  Shape sizes;
  std::vector<Number> values;
};

Grid grid_of(const Tensor& t) {
  Grid g{Shape(t.sizes()), {}};
  if (is_complex(t.dtype())) {
    const auto* p = static_cast<const Number*>(t.data_ptr());
    g.values.assign(p, p + t.numel());
  } else {
    for (double v : values_of(t)) g.values.push_back(v);
  }
  return g;
}

// One dimension: out[k] = sum_j w(j) in[j] exp(+-2 pi i j k / n) for k < size; values from n on and
// beyond the input do not count.
template <class Weight>
Grid reference_axis(const Grid& in, size_t dim, int64_t n, int64_t size, bool forward, Weight w) {
  Grid out{in.sizes, {}};
  out.sizes[dim] = size;
  for_each_index(out.sizes, [&](const Shape& i) {
    Number sum = 0;
    Shape j = i;
    for (j[dim] = 0; j[dim] < std::min(in.sizes[dim], n); ++j[dim]) {
      const double a =
          (forward ? -2 : 2) * std::numbers::pi * double(i[dim] * j[dim] % n) / double(n);
      const Number v =
          in.values[size_t(flat_position(in.sizes, j))] * Number(std::cos(a), std::sin(a));
      sum += w(j[dim]) * v;
    }
    out.values.push_back(sum);
  });
  return out;
}

std::vector<Tensor> reference_of(const Call& c, Kind kind, bool forward) {
  const Axes axes = axes_of(c, kind);
  Grid g = grid_of(c.tensor(0));
  const auto one = [](int64_t) { return 1.0; };
  const size_t count = axes.dims.size();
  for (size_t i = 0; i < count; ++i) {
    const size_t dim = size_t(axes.dims[i]);
    const int64_t n = axes.points[i];
    const bool last = i + 1 == count;
    if (last && kind == Kind::from_half) {
      // The half that is not there are the conjugates: its real part counts twice.
      g = reference_axis(g, dim, n, n, forward, [n](int64_t k) {
        return k > n / 2 ? 0.0 : k == 0 || 2 * k == n ? 1.0 : 2.0;
      });
    } else {
      g = reference_axis(g, dim, n, last && kind == Kind::to_half ? n / 2 + 1 : n, forward, one);
    }
  }
  const std::string_view norm = c.has(3) ? c[3].string() : "backward";
  const double n = double(numel_of(axes.points));
  const double scale = norm == "ortho"                  ? 1 / std::sqrt(n)
                       : (norm == "forward") == forward ? 1 / n
                                                        : 1;
  if (kind == Kind::from_half) {
    std::vector<double> v;
    for (const Number& z : g.values) v.push_back(z.real() * scale);
    return {from_values(v, g.sizes)};
  }
  const Tensor out = empty_tensor(g.sizes, kComplex128, kCPU);
  for (size_t i = 0; i < g.values.size(); ++i)
    static_cast<Number*>(out.data_ptr())[i] = g.values[i] * scale;
  return {out};
}

Tensor sample_of(SampleMaker& m, IntList sizes) {
  if (!is_complex(m.dtype)) return m.make(sizes);
  Shape parts(sizes);
  parts.push_back(2);
  SampleMaker reals(m.dtype == kComplex64 ? kFloat32 : kFloat64, m.device, false,
                    uint64_t(numel_of(parts)));
  return view_as_complex_copy(reals.make(parts));
}

// ---- the transform all others are made of ----

const Attached fourier_op =
    attach("fourier_transform")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          using Ints = std::vector<int64_t>;
          const std::nullopt_t none = std::nullopt;
          std::vector<Sample> all;
          if (is_complex(m.dtype)) {
            for (int64_t n : {1, 2, 6, 7}) {
              all.push_back({{sample_of(m, {2, n}), none, 0, Ints{1}, Ints{n}, Ints{n}, n != 6, 0.5,
                              false, false}});
              all.push_back({{sample_of(m, {2, n / 2 + 1}), none, 2, Ints{1}, Ints{n}, Ints{n},
                              n != 6, 0.5, n == 7, true}});
            }
            all.push_back({{sample_of(m, {3, 2, 4}), none, 0, Ints{2, 0}, Ints{5, 2}, Ints{4, 3},
                            true, 1.0, false, false},
                           "cut and filled"});
            all.push_back({{sample_of(m, {3, 2, 4}), none, 4, Ints{0, 1}, Ints{3, 2}, Ints{3, 2},
                            true, 1.0, false, true},
                           "to real"});
            SampleMaker reals(m.dtype == kComplex64 ? kFloat32 : kFloat64, m.device, false, 3);
            all.push_back({{sample_of(m, {2, 4}), reals.make({4}).detach(), 0, Ints{1}, Ints{5},
                            Ints{3}, true, 0.5, false, false},
                           "window"});
            all.push_back({{sample_of(m, {2, 4}), reals.make({3}).detach(), 0, Ints{1}, Ints{5},
                            Ints{3}, false, 0.5, false, true},
                           "window behind"});
            all.push_back({{sample_of(m, {2, 3}), reals.make({4}).detach(), 2, Ints{1}, Ints{5},
                            Ints{4}, false, 0.5, false, true},
                           "window behind, real"});
            all.push_back({{sample_of(m, {2, 3}), none, 4, Ints{0}, Ints{2}, Ints{20}, false, 1.0,
                            false, false},
                           "many zeros"});
            return all;
          }
          for (int64_t n : {1, 2, 6, 7})
            all.push_back({{m.make({2, n}), none, 1, Ints{1}, Ints{n}, Ints{n / 2 + 1}, n != 6, 0.5,
                            n == 7, false}});
          const Tensor window = m.make({4}).detach();  // whose gradient is not this record's
          all.push_back({{m.make_strided({4, 3}), window, 1, Ints{0}, Ints{6}, Ints{4}, true, 1.0,
                          true, false},
                         "window"});
          all.push_back({{m.make({2, 3}), none, 3, Ints{0, 1}, Ints{2, 5}, Ints{2, 5}, false, 1.0,
                          false, false},
                         "from real"});
          all.push_back(
              {{m.make({3, 2}), none, 3, Ints{1}, Ints{2}, Ints{30}, false, 1.0, false, false},
               "many zeros"});
          all.push_back(
              {{m.make({0, 4}), none, 1, Ints{1}, Ints{4}, Ints{3}, true, 1.0, false, false},
               "empty"});
          return all;
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          using Ints = std::vector<int64_t>;
          return {
              {{m.make({2, 3}), m.make({2}), 1, Ints{1}, Ints{3}, Ints{2}, true, 1.0, false, false},
               ErrorKind::value,
               "expected a window of 3 real numbers"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const int64_t kind = c.integer(2);
          const bool to_half = kind == 1, from_half = kind == 2, weighted = c.boolean(8);
          Grid g = grid_of(c.tensor(0));
          const IntList dims = c.ints(3), points = c.ints(4), sizes = c.ints(5);
          const size_t count = dims.size();
          const auto apply_window = [&] {
            const std::vector<double> w = values_of(c.tensor(1));
            size_t at = 0;
            for_each_index(g.sizes, [&](const Shape& i) {
              g.values[at++] *= w[size_t(i[size_t(dims.back())])];
            });
          };
          if (c.has(1) && !c.boolean(9)) apply_window();
          for (size_t k = 0; k < count; ++k) {
            const size_t i = from_half ? k : count - 1 - k;
            const int64_t n = points[i];
            const bool half = i + 1 == count;
            const auto weight = [&, n](int64_t j) {
              if (!half || !from_half) return 1.0;
              return j > n / 2 ? 0.0 : j == 0 || 2 * j == n || weighted ? 1.0 : 2.0;
            };
            const int64_t valid = half && to_half ? n / 2 + 1 : n;
            g = reference_axis(g, size_t(dims[i]), n, sizes[i], c.boolean(6), weight);
            size_t at = 0;
            for_each_index(g.sizes, [&](const Shape& index) {
              const int64_t j = index[size_t(dims[i])];
              Number& v = g.values[at++];
              if (j >= valid) v = 0;
              if (half && to_half && weighted && j != 0 && 2 * j != n) v *= 2.0;
              if (half && from_half) v = v.real();
            });
          }
          if (c.has(1) && c.boolean(9)) apply_window();
          for (Number& v : g.values) v *= c.real(7);
          if (from_half || kind == 4) {
            std::vector<double> v;
            for (const Number& z : g.values) v.push_back(z.real());
            return {from_values(v, g.sizes)};
          }
          const Tensor out = empty_tensor(g.sizes, kComplex128, kCPU);
          std::copy(g.values.begin(), g.values.end(), static_cast<Number*>(out.data_ptr()));
          return {out};
        });

// ---- torch's ----

std::vector<ErrorSample> common_errors(SampleMaker& m, OwnedArg dim) {
  return {
      {{m.make({4}), std::nullopt, dim, "unitary"}, ErrorKind::value, "Invalid normalization mode"},
      {{SampleMaker(kFloat16, m.device, false).make({4}), std::nullopt, dim, std::nullopt},
       ErrorKind::type,
       "Unsupported dtype"}};
}

template <Kind kind, bool forward>
void attach_one(std::string_view name) {
  attach(name)
      .samples([](SampleMaker& m) -> std::vector<Sample> {
        const std::nullopt_t none = std::nullopt;
        return {{{sample_of(m, {2, 5}), none, -1, none}},
                {{sample_of(m, {4, 3}), none, 0, "ortho"}},
                {{sample_of(m, {2, 6}), 4, 1, "forward"}, "cut"},
                {{sample_of(m, {5}), 8, 0, "backward"}, "filled up"},
                {{sample_of(m, {2, 3, 2}), 5, 1, none}},
                {{sample_of(m, {2}), 1, 0, none}, "one point"}};
      })
      .errors([](SampleMaker& m) {
        auto e = common_errors(m, OwnedArg(-1));
        e.push_back({{m.make({4}), std::nullopt, 1, std::nullopt},
                     ErrorKind::index,
                     "Dimension out of range"});
        e.push_back({{m.make({4}), 0, -1, std::nullopt},
                     ErrorKind::value,
                     "Invalid number of data points (0) specified"});
        if (kind == Kind::to_half)
          e.push_back(
              {{SampleMaker(kComplex64, m.device, false).make({4}), std::nullopt, -1, std::nullopt},
               ErrorKind::type,
               "expects a real input tensor"});
        return e;
      })
      .reference([](const Call& c) { return reference_of(c, kind, forward); });
}

template <Kind kind, bool forward>
void attach_many(std::string_view name) {
  attach(name)
      .samples([](SampleMaker& m) -> std::vector<Sample> {
        const std::nullopt_t none = std::nullopt;
        const std::vector<int64_t> last_two{-2, -1};
        return {{{sample_of(m, {2, 3, 4}), none, last_two, none}},
                {{sample_of(m, {3, 2, 3}), std::vector<int64_t>{4, -1}, std::vector<int64_t>{2, 0},
                  "ortho"}},
                {{sample_of(m, {2, 5}), std::vector<int64_t>{3, 4}, last_two, "forward"}},
                {{sample_of(m, {2, 2, 3}), none, none, "backward"}, "all"},
                {{sample_of(m, {2, 4}), std::vector<int64_t>{3}, none, none}, "the last"}};
      })
      .errors([](SampleMaker& m) {
        auto e = common_errors(m, OwnedArg());
        e.push_back({{m.make({2, 2}), std::nullopt, std::vector<int64_t>{1, -1}, std::nullopt},
                     ErrorKind::value,
                     "FFT dims must be unique"});
        e.push_back(
            {{m.make({2, 2}), std::vector<int64_t>{2}, std::vector<int64_t>{0, 1}, std::nullopt},
             ErrorKind::value,
             "When given, dim and shape arguments must have the same length"});
        return e;
      })
      .reference([](const Call& c) { return reference_of(c, kind, forward); });
}

std::vector<Sample> frequency_samples(SampleMaker& m) {
  return {
      {{5, 1.0, m.dtype, m.device}}, {{4, 0.5, m.dtype, m.device}}, {{1, 2.0, m.dtype, m.device}}};
}

std::vector<Tensor> frequency_reference(const Call& c, bool half) {
  const int64_t n = c.integer(0);
  return {build_tensor({half ? n / 2 + 1 : n}, [&](const Shape& i) {
    const int64_t k = half || i[0] < (n + 1) / 2 ? i[0] : i[0] - n;
    return double(k) / (double(n) * c.real(1));
  })};
}

const Attached fftfreq_op =
    attach("fft_fftfreq")
        .samples(frequency_samples)
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{3, 1.0, kInt64, m.device}, ErrorKind::type, "requires a floating point dtype"}};
        })
        .reference([](const Call& c) { return frequency_reference(c, false); });
const Attached rfftfreq_op =
    attach("fft_rfftfreq")
        .samples(frequency_samples)
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{3, 1.0, kInt64, m.device}, ErrorKind::type, "requires a floating point dtype"}};
        })
        .reference([](const Call& c) { return frequency_reference(c, true); });

// By half of each dimension, rounded down (back: up).
int64_t shift_of(int64_t n, bool back) { return back ? (n + 1) / 2 : n / 2; }

template <bool back>
void attach_shift(std::string_view name) {
  attach(name)
      .samples([](SampleMaker& m) -> std::vector<Sample> {
        return {{{sample_of(m, {5}), std::nullopt}},
                {{sample_of(m, {2, 3}), std::nullopt}},
                {{sample_of(m, {3, 4}), std::vector<int64_t>{-1}}},
                {{sample_of(m, {}), std::nullopt}, "0-d"}};
      })
      .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
        return {
            {{m.make({3}), std::vector<int64_t>{1}}, ErrorKind::index, "Dimension out of range"}};
      })
      .reference([](const Call& c) -> std::vector<Tensor> {
        const Tensor& x = c.tensor(0);
        Shape dims = c.has(1) ? Shape(c.ints(1)) : Shape();
        for (int64_t d = 0; !c.has(1) && d < x.dim(); ++d) dims.push_back(d);
        for (int64_t& d : dims) d += d < 0 ? x.dim() : 0;
        const Tensor out = empty_tensor(x.sizes(), x.dtype(), kCPU);
        const size_t bytes = x.element_size();
        for_each_index(x.sizes(), [&](const Shape& i) {
          Shape to = i;
          for (int64_t d : dims)
            to[size_t(d)] = (to[size_t(d)] + shift_of(x.size(d), back)) % x.size(d);
          const auto* from = static_cast<const std::byte*>(x.data_ptr());
          std::copy_n(from + size_t(flat_position(x.sizes(), i)) * bytes, bytes,
                      static_cast<std::byte*>(out.data_ptr()) +
                          size_t(flat_position(x.sizes(), to)) * bytes);
        });
        return {out};
      });
}

const bool fft_attached = [] {
  attach_one<Kind::complex, true>("fft_fft");
  attach_many<Kind::complex, true>("fft_fft2");
  attach_many<Kind::complex, true>("fft_fftn");
  attach_one<Kind::complex, false>("fft_ifft");
  attach_many<Kind::complex, false>("fft_ifft2");
  attach_many<Kind::complex, false>("fft_ifftn");
  attach_one<Kind::to_half, true>("fft_rfft");
  attach_many<Kind::to_half, true>("fft_rfft2");
  attach_many<Kind::to_half, true>("fft_rfftn");
  attach_one<Kind::from_half, false>("fft_irfft");
  attach_many<Kind::from_half, false>("fft_irfft2");
  attach_many<Kind::from_half, false>("fft_irfftn");
  attach_one<Kind::from_half, true>("fft_hfft");
  attach_many<Kind::from_half, true>("fft_hfft2");
  attach_many<Kind::from_half, true>("fft_hfftn");
  attach_one<Kind::to_half, false>("fft_ihfft");
  attach_many<Kind::to_half, false>("fft_ihfft2");
  attach_many<Kind::to_half, false>("fft_ihfftn");
  attach_shift<false>("fft_fftshift");
  attach_shift<true>("fft_ifftshift");
  return true;
}();

}  // namespace
}  // namespace arete::ops
