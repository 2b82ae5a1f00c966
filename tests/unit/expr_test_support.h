// Small helpers of the expression tests.
#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "arete/expr/program.h"

namespace arete::expr::test {

inline Literal real(double v) {
  Literal l;
  l.f = v;
  return l;
}
inline Literal integer(int64_t v) {
  Literal l;
  l.i = v;
  return l;
}

/// Evaluates with numbers in and out, whatever the types.
inline std::vector<double> run(const Program& p, std::span<const double> inputs,
                               std::span<const double> params) {
  auto literal = [](Type t, double v) { return is_float(t) ? real(v) : integer(int64_t(v)); };
  std::vector<Literal> in, scalars;
  for (size_t i = 0; i < inputs.size(); ++i)
    in.push_back(literal(compute_type(p.inputs()[i]), inputs[i]));
  for (size_t i = 0; i < params.size(); ++i) scalars.push_back(literal(p.params()[i], params[i]));
  const auto results = evaluate(p, in, scalars);
  std::vector<double> out;
  for (size_t i = 0; i < results.size(); ++i)
    out.push_back(is_floating(p.outputs()[i].dtype) ? results[i].f : double(results[i].i));
  return out;
}

/// What a few roundings in `t` of numbers as large as `scale` may add up to.
inline double tolerance(DType t, double scale) {
  return 16 * epsilon_of(t) * std::fmax(scale, 1e-3);
}

/// What a central difference with step h of a function as large as `scale` may be off: the third
/// derivative times h^2 and the cancelled digits over h, for h = eps^(1/3).
inline double difference_step() { return std::cbrt(epsilon_of(kFloat64)); }
inline double difference_tolerance(double scale) {
  const double h = difference_step();
  return 100 * h * h * std::fmax(scale, 1);
}

}  // namespace arete::expr::test
