// Short-time Fourier transforms (declared in fft.h).
#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

#include "arete/core/modes.h"
#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/complex.h"
#include "arete/ops/creation.h"
#include "arete/ops/fft.h"
#include "arete/ops/fft_internal.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reference_util.h"
#include "arete/ops/shape.h"

namespace arete {
namespace ops {
namespace {

bool flag(const Call& c, size_t i, bool otherwise) { return c.has(i) ? c.boolean(i) : otherwise; }

// Arguments 1 to 4 of both: n_fft, hop_length, win_length, window.
struct Frames {
  int64_t n, hop, window;
};
Frames frames_of(const Call& c) {
  const int64_t n = c.integer(1);
  ARETE_CHECK(n > 0, ValueError(c.name(), std::string(c.name()) +
                                              ": expected n_fft > 0, but got "
                                              "n_fft=" +
                                              std::to_string(n)));
  const Frames f{n, c.has(2) ? c.integer(2) : n / 4, c.has(3) ? c.integer(3) : n};
  ARETE_CHECK(f.hop > 0, ValueError(c.name(), std::string(c.name()) +
                                                  ": expected hop_length > 0, but got hop_length=" +
                                                  std::to_string(f.hop)));
  ARETE_CHECK(f.window > 0 && f.window <= n,
              ValueError(c.name(), std::string(c.name()) +
                                       ": expected 0 < win_length <= n_fft, but got win_length=" +
                                       std::to_string(f.window)));
  ARETE_CHECK(!c.has(4) || (c.tensor(4).dim() == 1 && c.tensor(4).numel() == f.window),
              ValueError(c.name(), "expected a 1D window tensor of size equal to win_length=" +
                                       std::to_string(f.window) + ", but got window with size " +
                                       to_string(c.has(4) ? c.tensor(4).sizes() : IntList())));
  return f;
}
// The window in the middle of n_fft elements.
Tensor window_of(const Call& c, const Frames& f, const TensorOptions& o) {
  const Tensor w = c.has(4) ? c.tensor(4) : ones({f.window}, o);
  const int64_t left = (f.n - f.window) / 2;
  return f.window == f.n ? w : pad(w, {left, f.n - f.window - left});
}
bool of_complex(const Call& c) {
  return is_complex(c.tensor(0).dtype()) || (c.has(4) && is_complex(c.tensor(4).dtype()));
}
double window_at(const Call& c, const Frames& f, int64_t k) {
  const int64_t i = k - (f.n - f.window) / 2;
  if (i < 0 || i >= f.window) return 0;
  return c.has(4) ? at(c.tensor(4), {i}) : 1;
}

const OpRecord& stft_op =
    define(
        "stft(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? "
        "window=None, bool center=True, str pad_mode=\"reflect\", bool normalized=False, bool? "
        "onesided=None, bool? return_complex=None) -> Tensor")
        .autocast(autocast_on_cpu(Autocast::f32))
        .doc("Fourier transforms of windowed frames of a signal.")
        .compose([](const Call& c) -> Results {
          const Tensor& signal = c.tensor(0);
          const Frames f = frames_of(c);
          ARETE_CHECK(
              signal.dtype() == kFloat32 || signal.dtype() == kFloat64 ||
                  is_complex(signal.dtype()),
              TypeError(c.name(), "stft: expected a tensor of floating point or complex values")
                  .expected("float32, float64 or complex")
                  .got(describe(signal)));
          const bool complex = of_complex(c), onesided = flag(c, 8, !complex);
          ARETE_CHECK(
              !onesided || !complex,
              ValueError(c.name(), "Cannot have onesided output if window or input is complex"));
          ARETE_CHECK(
              signal.dim() == 1 || signal.dim() == 2,
              ValueError(c.name(), "stft: expected a 1D or 2D tensor").got(describe(signal)));
          ARETE_CHECK(c.has(9) || complex,
                      ValueError(c.name(),
                                 "stft requires the return_complex parameter be given for real "
                                 "inputs, and will further require that return_complex=True in a "
                                 "future PyTorch release."));
          const bool batched = signal.dim() == 2;
          Tensor x = batched ? signal : signal.unsqueeze(0);
          if (c.boolean(5)) x = pad(x.unsqueeze(1), {f.n / 2, f.n / 2}, c[6].string()).squeeze(1);
          ARETE_CHECK(
              f.n <= x.size(1),
              ValueError(c.name(), "stft: expected 0 < n_fft <= " + std::to_string(x.size(1)) +
                                       ", but got n_fft=" + std::to_string(f.n)));
          const Tensor frames = x.unfold(1, f.n, f.hop).mul(window_of(c, f, signal.options()));
          const double scale = c.boolean(7) ? 1 / std::sqrt(double(f.n)) : 1;
          Tensor parts = transform_lines(
              complex ? view_as_real_copy(frames) : pad(frames.unsqueeze(-1), {0, 1}), true, scale);
          if (onesided) parts = parts.narrow(2, 0, f.n / 2 + 1);
          parts = parts.transpose(1, 2);
          if (!batched) parts = parts.squeeze(0);
          return {flag(c, 9, true) ? view_as_complex_copy(parts) : parts.contiguous()};
        })
        .dtypes({kFloat32, kFloat64})
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const std::nullopt_t none = std::nullopt;
          return {
              {{m.make({2, 9}), 4, none, none, m.make({4}, 0.5, 1), true, "reflect", false, none,
                true}},
              {{m.make({8}), 5, 2, 3, m.make({3}, 0.5, 1), false, "reflect", true, false, true}},
              {{m.make({7}), 4, 3, none, none, true, "constant", false, true, false}, "real"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          const std::nullopt_t none = std::nullopt;
          return {{{m.make({3}), 4, none, none, none, false, "reflect", false, none, true},
                   ErrorKind::value,
                   "stft: expected 0 < n_fft <= 3"},
                  {{m.make({8}), 4, none, none, m.make({3}), false, "reflect", false, none, true},
                   ErrorKind::value,
                   "expected a 1D window tensor of size equal to win_length=4"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& signal = c.tensor(0);
          const Frames f = frames_of(c);
          const int64_t length = signal.size(-1), margin = c.boolean(5) ? f.n / 2 : 0;
          const int64_t frames = (length + 2 * margin - f.n) / f.hop + 1;
          const bool reflect = c[6].string() == "reflect";
          Shape sizes(signal.sizes());
          sizes.back() = flag(c, 8, true) ? f.n / 2 + 1 : f.n;
          sizes.push_back(frames);
          sizes.push_back(2);
          const double scale = c.boolean(7) ? 1 / std::sqrt(double(f.n)) : 1;
          const Tensor parts = build_tensor(sizes, [&](const Shape& i) {
            const size_t d = sizes.size() - 3;
            double sum = 0;
            for (int64_t k = 0; k < f.n; ++k) {
              int64_t p = i[d + 1] * f.hop + k - margin;
              if (reflect) p = std::abs(p), p = p >= length ? 2 * (length - 1) - p : p;
              if (p < 0 || p >= length) continue;
              Shape at_p(IntList(i).first(d));
              at_p.push_back(p);
              const double a = -2 * std::numbers::pi * double(k * i[d] % f.n) / double(f.n);
              sum += at(signal, at_p) * window_at(c, f, k) * (i.back() ? std::sin(a) : std::cos(a));
            }
            return sum * scale;
          });
          return {c.boolean(9) ? view_as_complex_copy(parts) : parts};
        });

// Frames (B, T, n) added up where they overlap: (B, n + hop (T - 1)).
Tensor overlap_add(const Tensor& frames, int64_t hop) {
  if (is_complex(frames.dtype()))
    return complex(overlap_add(real(frames), hop), overlap_add(imag(frames), hop));
  const int64_t total = frames.size(2) + hop * (frames.size(1) - 1);
  return embed_window(frames, {frames.size(0), total}, {total, hop, 1}, 0);
}

const OpRecord& istft_op =
    define(
        "istft(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? "
        "window=None, bool center=True, bool normalized=False, bool? onesided=None, int? "
        "length=None, bool return_complex=False) -> Tensor")
        .doc("The signal whose short-time Fourier transform is given.")
        .compose([](const Call& c) -> Results {
          const Tensor& z = c.tensor(0);
          const Frames f = frames_of(c);
          ARETE_CHECK(
              is_complex(z.dtype()),
              TypeError(c.name(), "istft requires a complex-valued input tensor").got(describe(z)));
          ARETE_CHECK((z.dim() == 2 || z.dim() == 3) && z.numel() > 0,
                      ValueError(c.name(), "istft: expected a tensor with 2 or 3 dimensions")
                          .got(describe(z)));
          const bool complex = c.boolean(9);
          ARETE_CHECK(
              complex || !c.has(4) || !is_complex(c.tensor(4).dtype()),
              ValueError(c.name(), "Complex windows are incompatible with return_complex=False"));
          const bool batched = z.dim() == 3, center = c.boolean(5);
          // Without a word the number of frequencies says whether they are one-sided.
          const bool onesided = flag(c, 7, z.size(-2) != f.n || f.n == f.n / 2 + 1);
          ARETE_CHECK(
              !onesided || !complex,
              ValueError(c.name(), "Cannot have onesided output if window or input is complex"));
          const int64_t wanted = onesided ? f.n / 2 + 1 : f.n;
          ARETE_CHECK(z.size(-2) == wanted,
                      ValueError(c.name(), "istft: expected the frequency dimension to be " +
                                               std::to_string(wanted) + ", but got " +
                                               std::to_string(z.size(-2))));
          Tensor parts = view_as_real_copy(z);
          if (!batched) parts = parts.unsqueeze(0);
          parts = parts.transpose(1, 2);
          if (!complex) {  // of a real signal, of which the first half says everything
            if (!onesided) parts = parts.narrow(2, 0, f.n / 2 + 1);
            parts = completed(parts, 2, f.n);
          }
          const double scale = 1 / (c.boolean(6) ? std::sqrt(double(f.n)) : double(f.n));
          parts = transform_lines(parts, false, scale);
          const Tensor frames = complex ? view_as_complex_copy(parts) : parts.select(-1, 0);
          const Tensor window = window_of(c, f, frames.options());
          const int64_t steps = frames.size(1), total = f.n + f.hop * (steps - 1);
          const Tensor sum = overlap_add(frames.mul(window), f.hop);
          const Tensor weight =
              overlap_add(window.square().unsqueeze(0).unsqueeze(0).expand({1, steps, f.n}), f.hop);
          const int64_t begin = center ? f.n / 2 : 0;
          int64_t end = center ? total - f.n / 2 : total;
          if (c.has(8)) end = begin + c.integer(8);
          ARETE_CHECK(end > begin, ValueError(c.name(), "istft: the signal would be empty"));
          const int64_t have = std::max<int64_t>(std::min(end, total) - begin, 0);
          const Tensor used = weight.narrow(1, begin, have);
          if (used.device().is_cpu() && !(modes().word & Modes::kCapture) && have > 0)
            ARETE_CHECK(used.detach().abs().min().item<double>() > 1e-11,
                        ValueError(c.name(), "window overlap add min: 1")
                            .hint("some elements are covered by no window"));
          Tensor y = sum.narrow(1, begin, have).div(used);
          if (end - begin > have) y = pad(y, {0, end - begin - have});
          return {batched ? y : y.squeeze(0)};
        })
        .dtypes({kComplex64, kComplex128})
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const std::nullopt_t none = std::nullopt;
          SampleMaker reals(m.dtype == kComplex64 ? kFloat32 : kFloat64, m.device, false, 5);
          const auto complex = [&](Shape sizes) {
            sizes.push_back(2);
            return view_as_complex_copy(reals.make(sizes));
          };
          return {
              {{complex({2, 3, 4}), 4, none, none, reals.make({4}, 0.5, 1), true, false, none, none,
                false}},
              {{complex({5, 3}), 5, 2, none, reals.make({5}, 0.5, 1), true, true, false, 9, false},
               "filled up"},
              {{complex({1, 3, 3}), 4, 3, none, none, false, false, true, 8, false}, "cut"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          const std::nullopt_t none = std::nullopt;
          SampleMaker reals(kFloat32, m.device, false);
          return {{{reals.make({3, 4}), 4, none, none, none, true, false, none, none, false},
                   ErrorKind::type,
                   "istft requires a complex-valued input tensor"},
                  {{view_as_complex_copy(reals.make({4, 4, 2})), 5, none, none, none, true, false,
                    none, none, false},
                   ErrorKind::value,
                   "istft: expected the frequency dimension to be 3, but got 4"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& z = c.tensor(0);
          const Frames f = frames_of(c);
          const int64_t frequencies = z.size(-2), steps = z.size(-1),
                        total = f.n + f.hop * (steps - 1), batch = z.dim() == 3 ? z.size(0) : 1;
          const auto* values = static_cast<const std::complex<double>*>(z.data_ptr());
          const int64_t begin = c.boolean(5) ? f.n / 2 : 0;
          const int64_t length =
              c.has(8) ? c.integer(8) : total - (c.boolean(5) ? 2 * (f.n / 2) : 0);
          std::vector<double> out;
          for (int64_t b = 0; b < batch; ++b)
            for (int64_t p = begin; p < begin + length; ++p) {
              double sum = 0, weight = 0;
              for (int64_t t = 0; t < steps; ++t) {
                const int64_t k = p - t * f.hop;
                if (k < 0 || k >= f.n) continue;
                double v = 0;
                for (int64_t q = 0; q < f.n / 2 + 1; ++q) {
                  const double a = 2 * std::numbers::pi * double(k * q % f.n) / double(f.n);
                  const double twice = q > 0 && 2 * q != f.n ? 2 : 1;
                  v += twice *
                       (values[(b * frequencies + q) * steps + t] * std::polar(1.0, a)).real();
                }
                const double w = window_at(c, f, k);
                sum += v * w / (c.boolean(6) ? std::sqrt(double(f.n)) : double(f.n));
                weight += w * w;
              }
              out.push_back(p < total ? sum / weight : 0);
            }
          return {from_values(out, z.dim() == 3 ? Shape{batch, length} : Shape{length})};
        });

}  // namespace
}  // namespace ops

Tensor stft(const Tensor& self, int64_t n_fft, std::optional<int64_t> hop_length,
            std::optional<int64_t> win_length, const Tensor& window, bool center,
            std::string_view pad_mode, bool normalized, bool onesided, bool return_complex) {
  return ops::call(ops::stft_op, {self, n_fft, hop_length, win_length, window, center, pad_mode,
                                  normalized, onesided, return_complex});
}
Tensor istft(const Tensor& self, int64_t n_fft, std::optional<int64_t> hop_length,
             std::optional<int64_t> win_length, const Tensor& window, bool center, bool normalized,
             bool onesided, std::optional<int64_t> length) {
  return ops::call(ops::istft_op, {self, n_fft, hop_length, win_length, window, center, normalized,
                                   onesided, length, false});
}

}  // namespace arete

ARETE_FAMILY(stft)
