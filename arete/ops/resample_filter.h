// The filters of antialiased resampling, for pictures on the host and for interpolate.
#pragma once

#include <cstdint>
#include <vector>

namespace arete::ops {

enum class FilterShape : uint8_t { triangle, cubic };

/// The weight of an element at distance t, in units of the spacing; `a` is the slope at 1.
double cubic_weight(double t, double a);

/// For each of a number of outputs along one dimension: the first input it is made of, and weights
/// of `taps` inputs from there on, 0 for those past the end of the filter or of the input.
struct ResampleFilter {
  std::vector<int64_t> begin;
  std::vector<double> weights;  // [output][tap]
  int64_t taps = 0;
};
/// Filters as wide as the spacing of the outputs (`scale` inputs), at least as that of the inputs,
/// as Pillow's resize has them; cubic ones with a = -0.5. Weights of an output add up to 1.
ResampleFilter make_resample_filter(FilterShape shape, int64_t inputs, int64_t outputs,
                                    double scale);

}  // namespace arete::ops
