// Expected values of programs, one element at a time, and how to compare with them.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "arete/expr/program.h"
#include "arete/expr/value.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/tolerance.h"

namespace arete::test {

/// The element as the program sees it.
inline expr::Literal literal_of(const GuardedBuffer& t, IntList index) {
  expr::Literal l;
  if (expr::is_float(expr::compute_type(t.dtype()))) {
    l.f = t.get(index);
  } else {
    l.i = size_of(t.dtype()) == 8 ? t.at<int64_t>(index) : int64_t(t.get(index));
  }
  return l;
}

/// The index of a broadcast operand for an index of the space.
inline Shape broadcast_index(const Layout& operand, IntList index) {
  Shape out;
  const size_t skip = index.size() - operand.sizes.size();
  for (size_t d = 0; d < operand.sizes.size(); ++d)
    out.push_back(operand.sizes[d] == 1 ? 0 : index[skip + d]);
  return out;
}

inline double as_double(expr::Literal l, DType dtype) {
  if (dtype == kUInt64) return double(uint64_t(l.i));
  return expr::is_float(expr::compute_type(dtype)) ? l.f : double(l.i);
}

/// "" if `got` is close enough to `want`.
inline std::string mismatch(double got, double want, DType dtype, int64_t length = 1,
                            double magnitude = 0) {
  if (std::isnan(want) && std::isnan(got)) return "";
  if (got == want) return "";
  const double bound = tolerance(dtype, length, std::max(magnitude, std::fabs(want)));
  if (std::fabs(got - want) <= bound) return "";
  return std::to_string(got) + " instead of " + std::to_string(want) + " (tolerance " +
         std::to_string(bound) + ")";
}

/// A layout of these sizes for an output: any order of dimensions, gaps, either direction.
inline Layout random_layout(std::mt19937_64& rng, const Shape& sizes) {
  std::vector<size_t> order(sizes.size());
  for (size_t d = 0; d < order.size(); ++d) order[d] = d;
  const uint64_t kind = rng() % 4;
  if (kind >= 2) std::shuffle(order.begin(), order.end(), rng);
  Layout l{sizes};
  int64_t step = kind == 3 ? 1 + int64_t(rng() % 3) : 1;
  for (size_t k = order.size(); k-- > 0;) {
    const size_t d = order[k];
    l.strides[d] = (kind == 3 && rng() % 3 == 0) ? -step : step;
    step *= std::max<int64_t>(sizes[d], 1);
    if (kind == 3) step += int64_t(rng() % 3);
  }
  return l;
}

/// A layout that broadcasts to `space`: some dimensions of size 1 or missing, some of stride 0.
inline Layout random_input_layout(std::mt19937_64& rng, const Shape& space) {
  Shape sizes = space;
  if (rng() % 3 == 0)
    for (int64_t& s : sizes)
      if (rng() % 2) s = std::min<int64_t>(s, 1) == 0 ? s : 1;
  if (rng() % 4 == 0) {
    const size_t drop = rng() % (sizes.size() + 1);
    sizes = Shape(sizes.begin() + drop, sizes.end());
  }
  Layout l = random_layout(rng, sizes);
  if (rng() % 4 == 0)
    for (int64_t& s : l.strides)
      if (rng() % 2) s = 0;
  return l;
}

inline Shape random_shape(std::mt19937_64& rng, int max_rank, int64_t max_numel) {
  Shape sizes;
  const int rank = int(rng() % uint64_t(max_rank + 1));
  int64_t room = max_numel;
  for (int d = 0; d < rank; ++d) {
    int64_t s = 1 + int64_t(rng() % 9);
    if (rng() % 4 == 0) s = 1 + int64_t(rng() % 300);
    if (rng() % 40 == 0) s = 0;
    s = std::min(s, std::max<int64_t>(1, room));
    sizes.push_back(s);
    room /= std::max<int64_t>(s, 1);
  }
  return sizes;
}

/// Values that all types can hold, mostly small, spread over [-3, 3] in floating types.
inline void fill_values(GuardedBuffer& t, std::mt19937_64& rng) {
  const bool floating = is_floating(t.dtype());
  t.fill([&](IntList) {
    if (t.dtype() == kBool) return double(rng() % 2);
    if (t.dtype() == kUInt8) return double(rng() % 7);
    if (!floating) return double(int64_t(rng() % 13) - 6);
    return double(int64_t(rng() % 6001) - 3000) / 1000;
  });
}

}  // namespace arete::test
