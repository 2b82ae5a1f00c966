// Samples, references and errors of the records in ops/polynomial.cpp.
#include <cmath>

#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/samples/pointwise_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

// p_0 = 1, p_1 = first(x), p_(k+1) = next(x, k, p_k, p_(k-1)).
struct Family {
  const char* name;
  double (*first)(double x);
  double (*next)(double x, double k, double p, double before);
};
#define ARETE_NEXT(NEXT)                                      \
  [](double x, double k, double p, double before) -> double { \
    static_cast<void>(k);                                     \
    return NEXT;                                              \
  }
const Family kFamilies[] = {
    {"special_chebyshev_polynomial_t", [](double x) -> double { return x; },
     ARETE_NEXT(2 * x * p - before)},
    {"special_chebyshev_polynomial_u", [](double x) -> double { return 2 * x; },
     ARETE_NEXT(2 * x * p - before)},
    {"special_chebyshev_polynomial_v", [](double x) -> double { return 2 * x - 1; },
     ARETE_NEXT(2 * x * p - before)},
    {"special_chebyshev_polynomial_w", [](double x) -> double { return 2 * x + 1; },
     ARETE_NEXT(2 * x * p - before)},
    {"special_shifted_chebyshev_polynomial_t", [](double x) -> double { return 2 * x - 1; },
     ARETE_NEXT((4 * x - 2) * p - before)},
    {"special_shifted_chebyshev_polynomial_u", [](double x) -> double { return 4 * x - 2; },
     ARETE_NEXT((4 * x - 2) * p - before)},
    {"special_shifted_chebyshev_polynomial_v", [](double x) -> double { return 4 * x - 3; },
     ARETE_NEXT((4 * x - 2) * p - before)},
    {"special_shifted_chebyshev_polynomial_w", [](double x) -> double { return 4 * x - 1; },
     ARETE_NEXT((4 * x - 2) * p - before)},
    {"special_hermite_polynomial_h", [](double x) -> double { return 2 * x; },
     ARETE_NEXT(2 * x * p - 2 * k * before)},
    {"special_hermite_polynomial_he", [](double x) -> double { return x; },
     ARETE_NEXT(x* p - k * before)},
    {"special_laguerre_polynomial_l", [](double x) -> double { return 1 - x; },
     ARETE_NEXT(((2 * k + 1 - x) * p - k * before) / (k + 1))},
    {"special_legendre_polynomial_p", [](double x) -> double { return x; },
     ARETE_NEXT(((2 * k + 1) * x * p - k * before) / (k + 1))},
};
#undef ARETE_NEXT

std::vector<Tensor> polynomial_reference(const Call& c, const Family& family) {
  return {build_tensor(broadcast_args(c, 2), [&](const Shape& i) {
    const double x = at_arg(c[0], i), n = std::trunc(at_arg(c[1], i));
    if (n <= 0 || !std::isfinite(n)) return n == 0 ? 1.0 : 0.0;
    double before = 1, p = family.first(x);
    for (int k = 1; k < int(n); ++k) {
      const double next = family.next(x, k, p, before);
      before = p;
      p = next;
    }
    return p;
  })};
}

std::vector<Sample> polynomial_samples(SampleMaker& m) {
  const auto degree = [&](IntList sizes, int64_t high) { return m.make_index(sizes, high); };
  return {{{m.make({2, 3}, -1, 1), degree({2, 3}, 5)}, "equal shapes"},
          {{m.make({3, 1}, -1, 1), degree({4}, 4)}, "broadcast"},
          {{m.make_strided({3, 4}, 0.1, 1), Scalar(3)}, "a number"},
          {{m.make({4}, 0.1, 1), degree({4}, 3).sub(Scalar(1))}, "negative degrees"},
          {{m.make({}, -1, 1), Scalar(2)}, "0-d"},
          {{m.make({3}, -1, 1),
            tensor({3.0, HUGE_VAL, NAN},
                   TensorOptions(is_floating(m.dtype) ? m.dtype : kFloat32, m.device))},
           "degrees that are no numbers"},
          {{m.make({0}, -1, 1), degree({0}, 3)}, "empty"}};
}

const bool polynomial_attached = [] {
  for (const Family& family : kFamilies)
    attach(family.name)
        .samples(polynomial_samples)
        .errors(binary_errors())
        .reference([&family](const Call& c) { return polynomial_reference(c, family); });
  return true;
}();

}  // namespace
}  // namespace arete::ops
