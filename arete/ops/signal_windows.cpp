// The bells of signal processing.
#include <array>

#include "arete/expr/program_cache.h"
#include "arete/expr/special.h"
#include "arete/ops/call.h"
#include "arete/ops/count_positions.h"
#include "arete/ops/creation.h"
#include "arete/ops/filling.h"

namespace arete::ops {
namespace {

enum class Bell : uint8_t { cosines, kaiser, exponential, gaussian, sine, triangle };

struct BellInfo {
  std::string_view name;
  Bell bell;
  int numbers;  // -1: any, but at least one
};
constexpr std::array kBells{BellInfo{"general_cosine", Bell::cosines, -1},
                            BellInfo{"kaiser", Bell::kaiser, 1},
                            BellInfo{"exponential", Bell::exponential, 2},
                            BellInfo{"gaussian", Bell::gaussian, 2},
                            BellInfo{"cosine", Bell::sine, 0},
                            BellInfo{"bartlett", Bell::triangle, 0}};

const BellInfo& bell_of(const Call& c) {
  for (const BellInfo& b : kBells)
    if (b.name == c[0].string()) return b;
  throw ValueError(c.name(), "no such shape").argument("shape").got(std::string(c[0].string()));
}

// exp(-x) I0(x), for x >= 0.
double scaled_bessel_i0(double x) {
  static const auto& program = *new expr::ProgramPtr(expr::trace(
      [](std::span<const expr::Value> v) { return std::vector{expr::bessel_i0e(v[0])}; },
      std::array{kFloat64}, {}, std::array{kFloat64}));
  const expr::Literal input{.f = x};
  return expr::evaluate(*program, {&input, 1}, {})[0].f;
}

// In f64 whatever the result's dtype: windows are made once, and their tails are small differences.
const expr::Program& bell_program(Bell bell, DType out, size_t numbers) {
  using expr::Value;
  static auto& cache = *new expr::ProgramCache;
  // The last position, then numbers.
  const std::vector<expr::Type> params(numbers + 1, expr::Type::f64);
  return cache.get(uint64_t(numbers) << 20 | pack_key({int(bell), int(out)}),
                   {kCountedDType, kCountedDType}, params, {out}, [&](std::span<const Value> v) {
                     const Value k = counted_position(v, expr::Type::f64), last = v[2];
                     const Value* const a = v.data() + 3;
                     const double pi = std::numbers::pi;
                     Value y;
                     switch (bell) {
                       case Bell::cosines: {
                         const Value turn = k * (2 * pi / last);
                         y = a[0];
                         for (size_t i = 1; i < numbers; ++i) {
                           const Value wave = cos(turn * double(i)) * a[i];
                           y = i % 2 ? y - wave : y + wave;
                         }
                         break;
                       }
                       case Bell::kaiser: {
                         const Value x = a[0] * sqrt(max(1.0 - square(2.0 * k / last - 1.0), 0.0));
                         // Scaled by exp(-x), so that a large beta does not overflow. The second
                         // number is what scaled_bessel_i0() gives for it.
                         y = expr::bessel_i0e(x) / a[1] * exp(x - a[0]);
                         break;
                       }
                       case Bell::exponential:
                         y = exp(-abs(k - a[0]) / a[1]);
                         break;
                       case Bell::gaussian:
                         y = exp(-0.5 * square((k - a[0]) / a[1]));
                         break;
                       case Bell::sine:
                         y = sin((k + 0.5) * (pi / (last + 1.0)));
                         break;
                       case Bell::triangle:
                         y = 1.0 - abs(2.0 * k / last - 1.0);
                         break;
                     }
                     return std::vector{y};
                   });
}

const OpRecord& signal_window_op =
    define(
        "signal_window(str shape, int length, float last, float[] numbers, *, dtype? dtype=None, "
        "device? device=None) -> Tensor")
        .doc(
            "A window function at 0, 1, ..., length - 1, where the symmetric one ends at `last`: "
            "general_cosine (weights), kaiser (beta), exponential (center, tau), gaussian (center, "
            "standard deviation), cosine or bartlett.")
        .surface(Surface::internal)
        .infer([](const Call& c, OutputSpecs& out) {
          const BellInfo& b = bell_of(c);
          const DType dtype = c[4].is_none() ? default_dtype() : c[4].dtype();
          ARETE_CHECK(is_floating(dtype),
                      TypeError(c.name(), "window functions need a floating dtype")
                          .got(std::string(name_of(dtype))));
          ARETE_CHECK(c.integer(1) >= 0, ValueError(c.name(), "length must be non-negative")
                                             .got(std::to_string(c.integer(1))));
          const size_t n = c.reals(3).size();
          ARETE_CHECK(b.numbers < 0 ? n > 0 : n == size_t(b.numbers),
                      ValueError(c.name(), "wrong count of numbers for " + std::string(b.name))
                          .got(std::to_string(n)));
          out.push_back({Shape{c.integer(1)}, dtype, {}, c[5].is_none() ? kCPU : c[5].device()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const prim::View y = view_of(out[0]);
          const int64_t n = out[0].numel();
          if (n == 0) return;
          if (n == 1) return p.fill(filling(y, Scalar(1.0), c.name()));
          std::vector<expr::Literal> params{{.f = c.real(2)}};
          for (double number : c.reals(3)) params.push_back({.f = number});
          const Bell bell = bell_of(c).bell;
          if (bell == Bell::kaiser) params.push_back({.f = scaled_bessel_i0(c.reals(3)[0])});
          const expr::Program& program = bell_program(bell, y.dtype, params.size() - 1);
          count_positions(p, n, [&](std::span<const prim::View> at, Stretch& stretch) {
            const prim::View part = stretch.of(y);
            p.pointwise(
                {.program = &program, .inputs = at, .outputs = {&part, 1}, .params = params});
          });
        });

}  // namespace
}  // namespace arete::ops

ARETE_FAMILY(signal_windows)
