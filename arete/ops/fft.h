// Discrete Fourier transforms, with torch.fft's names and conventions.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "arete/core/tensor.h"

namespace arete {

/// A complex tensor as real numbers (*, 2), and the reverse (float32 or float64 only): copies, with
/// gradients. The gradient of a real loss with respect to a + bi is d/da + i d/db.
Tensor view_as_real_copy(const Tensor& self);
Tensor view_as_complex_copy(const Tensor& self);

// Everywhere: `n` (or s[i], -1: as it is) is the transformed dimension's length, to which the input
// is cut or filled up with zeros; norm "backward" (the default) divides inverse transforms by the
// number of points, "forward" the forward ones, "ortho" both by its square root. Real inputs become
// complex, integers in default_dtype(); half types are a TypeError. All have gradients of any
// order.
// Errors: ValueError "Invalid number of data points (0) specified", "Invalid normalization mode",
// IndexError for dimensions.
namespace fft {

using Lengths = std::optional<std::vector<int64_t>>;

/// sum over j of self[j] exp(-2 pi i j k / n), or with + for the inverse.
Tensor fft(const Tensor& self, std::optional<int64_t> n = {}, int64_t dim = -1,
           std::optional<std::string_view> norm = {});
Tensor ifft(const Tensor& self, std::optional<int64_t> n = {}, int64_t dim = -1,
            std::optional<std::string_view> norm = {});
/// fft of real input: the first n / 2 + 1 values, of which the others are conjugates.
Tensor rfft(const Tensor& self, std::optional<int64_t> n = {}, int64_t dim = -1,
            std::optional<std::string_view> norm = {});
/// Its inverse: real, of length n (default 2 (m - 1) for m values).
Tensor irfft(const Tensor& self, std::optional<int64_t> n = {}, int64_t dim = -1,
             std::optional<std::string_view> norm = {});
/// fft of a signal with conjugate symmetry, given by its first half: real. And its inverse.
Tensor hfft(const Tensor& self, std::optional<int64_t> n = {}, int64_t dim = -1,
            std::optional<std::string_view> norm = {});
Tensor ihfft(const Tensor& self, std::optional<int64_t> n = {}, int64_t dim = -1,
             std::optional<std::string_view> norm = {});

/// The same over several dimensions: those named, else as many last ones as `s` has lengths, else
/// all (the 2-d forms: the last two). Real and symmetric ones halve the last of them.
#define ARETE_FFT_N(name)                                                                    \
  Tensor name##n(const Tensor& self, const Lengths& s = {}, const Lengths& dim = {},         \
                 std::optional<std::string_view> norm = {});                                 \
  Tensor name##2(const Tensor& self, const Lengths& s = {}, const Lengths& dim = {{-2, -1}}, \
                 std::optional<std::string_view> norm = {});
ARETE_FFT_N(fft)
ARETE_FFT_N(ifft)
ARETE_FFT_N(rfft)
ARETE_FFT_N(irfft)
ARETE_FFT_N(hfft)
ARETE_FFT_N(ihfft)
#undef ARETE_FFT_N

/// The frequencies of fft's results for samples at distance d: [0, 1, ..., -2, -1] / (d n).
Tensor fftfreq(int64_t n, double d = 1, const TensorOptions& options = {});
/// Those of rfft's: [0, 1, ..., n / 2] / (d n).
Tensor rfftfreq(int64_t n, double d = 1, const TensorOptions& options = {});
/// Moves the frequency 0 from the start to the middle of the dimensions (default: all), and back.
Tensor fftshift(const Tensor& self, const Lengths& dim = {});
Tensor ifftshift(const Tensor& self, const Lengths& dim = {});

}  // namespace fft

/// Fourier transforms of frames of a real signal (L) or (B, L): of n_fft elements, times `window`
/// (win_length <= n_fft, in the middle; default ones), every hop_length (default n_fft / 4).
/// `center` pads the signal by n_fft / 2 on both sides. -> (B, frequencies, frames), complex, or
/// real with a last dimension of 2 unless return_complex; onesided: the first n_fft / 2 + 1
/// frequencies.
Tensor stft(const Tensor& self, int64_t n_fft, std::optional<int64_t> hop_length = {},
            std::optional<int64_t> win_length = {}, const Tensor& window = {}, bool center = true,
            std::string_view pad_mode = "reflect", bool normalized = false, bool onesided = true,
            bool return_complex = true);
/// The signal of which stft gives `self` (complex, (frequencies, frames) or with a batch):
/// overlapping frames added and divided by the sum of the squares of the windows. `length` cuts it
/// or fills it up. ValueError where the windows leave a gap (looked at on the CPU only).
Tensor istft(const Tensor& self, int64_t n_fft, std::optional<int64_t> hop_length = {},
             std::optional<int64_t> win_length = {}, const Tensor& window = {}, bool center = true,
             bool normalized = false, bool onesided = true, std::optional<int64_t> length = {});

}  // namespace arete
