// Short-time Fourier transforms (declared in fft.h).
#include <algorithm>
#include <cmath>

#include "arete/base/warn.h"
#include "arete/core/modes.h"
#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/complex.h"
#include "arete/ops/complex_internal.h"
#include "arete/ops/creation.h"
#include "arete/ops/fft.h"
#include "arete/ops/fft_internal.h"
#include "arete/ops/nn.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap.h"

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
// The window in the middle of n_fft elements; undefined if it is ones.
Tensor window_of(const Call& c, const Frames& f, const TensorOptions& o) {
  if (!c.has(4) && f.window == f.n) return {};
  const Tensor w = c.has(4) ? c.tensor(4) : ones({f.window}, o);
  const int64_t left = (f.n - f.window) / 2;
  return f.window == f.n ? w : pad(w, {left, f.n - f.window - left});
}
bool has_complex_signal(const Call& c) {
  return is_complex(c.tensor(0).dtype()) || (c.has(4) && is_complex(c.tensor(4).dtype()));
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
          if (!c.has(4))
            warn(
                "A window was not provided. A rectangular window will be applied, which is known "
                "to "
                "cause spectral leakage: pass hann_window(n_fft), or ones(n_fft) if it is meant.");
          ARETE_CHECK(
              signal.dtype() == kFloat32 || signal.dtype() == kFloat64 ||
                  is_complex(signal.dtype()),
              TypeError(c.name(), "stft: expected a tensor of floating point or complex values")
                  .expected("float32, float64 or complex")
                  .got(describe(signal)));
          const bool complex = has_complex_signal(c), onesided = flag(c, 8, !complex);
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
          const Tensor frames = x.unfold(1, f.n, f.hop);
          const double scale = c.boolean(7) ? 1 / std::sqrt(double(f.n)) : 1;
          const Tensor window = window_of(c, f, signal.options());
          const FourierKind kind = complex    ? FourierKind::complex
                                   : onesided ? FourierKind::to_half
                                              : FourierKind::from_real;
          Tensor y = fourier_transform(frames, kind, {2}, {f.n}, true, scale, window);
          y = y.transpose(1, 2);
          if (!batched) y = y.squeeze(0);
          return {flag(c, 9, true) ? y : view_as_real(y)};
        })
        .dtypes({kFloat32, kFloat64});

// Frames (B, T, n) added up where they overlap: `count` numbers (B, count) from `begin` on.
Tensor overlap_add(const Tensor& frames, int64_t hop, int64_t begin, int64_t count) {
  const int64_t n = frames.size(2), total = n + hop * (frames.size(1) - 1);
  // As rows of images, without as much at either end if the same frames reach into what is left.
  const bool centered = count + 2 * begin >= total && count + 2 * begin < total + hop;
  const int64_t size = centered ? count : total;
  const Tensor sum =
      fold(frames.transpose(1, 2), {1, size}, {1, n}, 1, {0, centered ? begin : 0}, {1, hop});
  const Tensor rows = sum.reshape({frames.size(0), size});
  return centered ? rows : rows.narrow(1, begin, count);
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
          const Tensor lines = (batched ? z : z.unsqueeze(0)).transpose(1, 2);
          const double scale = 1 / (c.boolean(6) ? std::sqrt(double(f.n)) : double(f.n));
          Tensor window = window_of(c, f, TensorOptions(real_of(z.dtype()), z.device()));
          // Of a real signal the first half says everything.
          const Tensor frames =
              fourier_transform(lines, complex ? FourierKind::complex : FourierKind::from_half, {2},
                                {f.n}, false, scale, window);
          if (!window.defined())
            window = ones({f.n}, TensorOptions(real_of(z.dtype()), z.device()));
          const int64_t steps = frames.size(1), total = f.n + f.hop * (steps - 1);
          const int64_t begin = center ? f.n / 2 : 0;
          int64_t end = center ? total - f.n / 2 : total;
          if (c.has(8)) end = begin + c.integer(8);
          ARETE_CHECK(end > begin, ValueError(c.name(), "istft: the signal would be empty"));
          const int64_t have = std::max<int64_t>(std::min(end, total) - begin, 0);
          const Tensor used =
              overlap_add(window.square().unsqueeze(0).unsqueeze(0).expand({1, steps, f.n}), f.hop,
                          begin, have);
          if (used.device().is_cpu() && !(modes().word & Modes::kCapture) && have > 0)
            ARETE_CHECK(all_values(used).abs().min().item<double>() > 1e-11,
                        ValueError(c.name(), "window overlap add min: 1")
                            .hint("some elements are covered by no window"));
          Tensor y = overlap_add(frames, f.hop, begin, have).div(used);
          if (end - begin > have) y = pad(y, {0, end - begin - have});
          return {batched ? y : y.squeeze(0)};
        })
        .dtypes({kComplex64, kComplex128});

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
