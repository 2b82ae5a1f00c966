// Samples, references and errors of the records in ops/stft.cpp.
#include <cmath>
#include <complex>
#include <numbers>

#include "arete/core/modes.h"
#include "arete/ops/complex.h"
#include "arete/ops/creation.h"
#include "arete/ops/fft.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

bool flag(const Call& c, size_t i, bool otherwise) { return c.has(i) ? c.boolean(i) : otherwise; }

struct Frames {
  int64_t n, hop, window;
};
Frames frames_of(const Call& c) {
  const int64_t n = c.integer(1);
  return {n, c.has(2) ? c.integer(2) : n / 4, c.has(3) ? c.integer(3) : n};
}

double window_at(const Call& c, const Frames& f, int64_t k) {
  const int64_t i = k - (f.n - f.window) / 2;
  if (i < 0 || i >= f.window) return 0;
  return c.has(4) ? at(c.tensor(4), {i}) : 1;
}

const Attached stft_op =
    attach("stft")
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
const Attached istft_op =
    attach("istft")
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
              {{complex({1, 3, 3}), 4, 3, none, none, false, false, true, 8, false}, "cut"},
              {{complex({2, 4, 3}), 4, none, 3, reals.make({3}, 0.5, 1), true, false, none, none,
                true},
               "complex"}};
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
          const bool complex = c.boolean(9);
          std::vector<double> out;
          for (int64_t b = 0; b < batch; ++b)
            for (int64_t p = begin; p < begin + length; ++p) {
              std::complex<double> sum = 0;
              double weight = 0;
              for (int64_t t = 0; t < steps; ++t) {
                const int64_t k = p - t * f.hop;
                if (k < 0 || k >= f.n) continue;
                std::complex<double> v = 0;
                for (int64_t q = 0; q < (complex ? f.n : f.n / 2 + 1); ++q) {
                  const double a = 2 * std::numbers::pi * double(k * q % f.n) / double(f.n);
                  const double twice = q > 0 && 2 * q != f.n ? 2 : 1;
                  const std::complex<double> part =
                      values[(b * frequencies + q) * steps + t] * std::polar(1.0, a);
                  v += complex ? part : twice * part.real();
                }
                const double w = window_at(c, f, k);
                sum += v * w / (c.boolean(6) ? std::sqrt(double(f.n)) : double(f.n));
                weight += w * w;
              }
              if (p >= total) sum = 0, weight = 1;
              out.push_back(sum.real() / weight);
              if (complex) out.push_back(sum.imag() / weight);
            }
          Shape sizes{length};
          if (z.dim() == 3) sizes.insert(sizes.begin(), batch);
          if (!complex) return {from_values(out, sizes)};
          sizes.push_back(2);
          return {view_as_complex_copy(from_values(out, sizes))};
        });

}  // namespace
}  // namespace arete::ops
