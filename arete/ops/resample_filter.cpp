#include "arete/ops/resample_filter.h"

#include <algorithm>
#include <cmath>

namespace arete::ops {

double cubic_weight(double t, double a) {
  t = std::fabs(t);
  if (t <= 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
  return t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

ResampleFilter make_resample_filter(FilterShape shape, int64_t inputs, int64_t outputs,
                                    double scale) {
  const bool cubic = shape == FilterShape::cubic;
  const double stretch = std::max(scale, 1.0), support = (cubic ? 2 : 1) * stretch;
  ResampleFilter f;
  f.taps = int64_t(std::ceil(support)) * 2 + 1;
  f.begin.reserve(size_t(outputs));
  f.weights.resize(size_t(outputs * f.taps));
  for (int64_t i = 0; i < outputs; ++i) {
    const double center = scale * (double(i) + 0.5);
    const int64_t begin = std::max<int64_t>(int64_t(center - support + 0.5), 0);
    const int64_t end = std::min(int64_t(center + support + 0.5), inputs);
    double* const w = f.weights.data() + i * f.taps;
    double sum = 0;
    for (int64_t k = begin; k < end; ++k) {
      const double distance = (double(k) - center + 0.5) / stretch;
      w[k - begin] = cubic ? cubic_weight(distance, -0.5) : std::max(0.0, 1 - std::fabs(distance));
      sum += w[k - begin];
    }
    for (int64_t k = begin; k < end; ++k) w[k - begin] /= sum;
    f.begin.push_back(begin);
  }
  return f;
}

}  // namespace arete::ops
