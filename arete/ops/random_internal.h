// What the records of random numbers share.
#pragma once

#include <initializer_list>
#include <span>
#include <type_traits>
#include <vector>

#include "arete/expr/program_cache.h"
#include "arete/ops/call.h"
#include "arete/prim/philox.h"

namespace arete::ops {

using Distribution = prim::RandomArgs::Distribution;

/// dropout by the random numbers of a given seed and offset (dropout.cpp).
Tensor seeded_dropout(const Tensor& input, double p, int64_t seed, int64_t offset);

/// Reserves what the call takes from the generator (null: the default one) and runs it.
inline void draw(prim::Primitives& p, prim::RandomArgs args, const Arg& generator) {
  Generator* g = generator.generator();
  const Generator::State s = (g ? *g : default_generator()).reserve(prim::random_blocks(args));
  args.seed = s.seed;
  args.offset = s.offset;
  p.random(args);
}
inline void draw(prim::Primitives& p, Distribution d, const prim::View& out, double a, double b,
                 const Arg& generator) {
  draw(p, prim::RandomArgs{d, out, 0, 0, a, b, 0, 0}, generator);
}

// out = f(inputs, params), where f holds nothing: a program for each set of dtypes. Inputs have one
// dtype but for the last, and params its type of computation.
template <class F>
void apply(prim::Primitives& p, F f, std::span<const prim::View> inputs, const prim::View& out,
           std::initializer_list<double> params = {}) {
  static_assert(std::is_empty_v<F>, "numbers are parameters: a new one makes no new program");
  static auto& cache = *new expr::ProgramCache;
  std::vector<DType> types;
  for (const prim::View& v : inputs) types.push_back(v.dtype);
  const std::vector<expr::Type> numbers(params.size(), expr::compute_type(types[0]));
  SmallVector<expr::Literal, 2> literals;
  for (double x : params) literals.push_back({.f = x});
  const expr::Program& program =
      cache.get(pack_key({int(types.front()), int(types.back()), int(out.dtype)}), types, numbers,
                {out.dtype}, [&](std::span<const expr::Value> v) {
                  return std::vector{expr::cast(f(v), expr::compute_type(out.dtype))};
                });
  p.pointwise({&program, inputs, {&out, 1}, {literals.data(), literals.size()}});
}

// What was there before a draw has no influence on the result.
inline TensorList no_random_gradient(const GradCall&) { return {}; }

}  // namespace arete::ops
