// What the records of random numbers share.
#pragma once

#include <initializer_list>
#include <span>
#include <type_traits>
#include <vector>

#include "arete/expr/program_cache.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
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

// The program of f(inputs, params) for a set of dtypes, where f holds nothing. Params have the
// first input's type of computation.
template <class F>
const expr::Program& program_of(F f, const std::vector<DType>& inputs, size_t n_params, DType out) {
  static_assert(std::is_empty_v<F>, "numbers are parameters: a new one makes no new program");
  static auto& cache = *new expr::ProgramCache;
  const std::vector<expr::Type> numbers(n_params, expr::compute_type(inputs[0]));
  uint64_t key = uint64_t(out);
  for (DType t : inputs) key = key << 5 | uint64_t(t);
  return cache.get(key, inputs, numbers, {out}, [&](std::span<const expr::Value> v) {
    return std::vector{expr::cast(f(v), expr::compute_type(out))};
  });
}

/// The dtype in which numbers for results of `out` are drawn.
inline DType drawn_dtype(DType out) {
  return is_floating(out) && out != kFloat64 ? kFloat32 : kFloat64;
}

/// Half of what lies between the uniform numbers that are drawn for results of `out`.
inline double half_a_step(DType out) { return drawn_dtype(out) == kFloat64 ? 0x1p-54 : 0x1p-25; }

/// out = f(numbers, inputs, params), the numbers drawn from [a, b) or with mean a and deviation b.
template <class F>
void draw_through(prim::Primitives& p, F f, DType drawn, Distribution d, double a, double b,
                  const Arg& generator, const prim::View& out,
                  std::initializer_list<double> params = {},
                  std::initializer_list<prim::View> inputs = {}) {
  std::vector<DType> types{drawn};
  for (const prim::View& v : inputs) types.push_back(v.dtype);
  SmallVector<expr::Literal, 4> literals;
  for (double x : params) literals.push_back({.f = x});
  draw(p,
       {.distribution = d,
        .out = out,
        .seed = 0,
        .offset = 0,
        .a = a,
        .b = b,
        .program = &program_of(f, types, params.size(), out.dtype),
        .inputs = {inputs.begin(), inputs.size()},
        .params = {literals.data(), literals.size()}},
       generator);
}
template <class F>
void draw_through(prim::Primitives& p, F f, Distribution d, double a, double b,
                  const Arg& generator, const prim::View& out,
                  std::initializer_list<double> params = {},
                  std::initializer_list<prim::View> inputs = {}) {
  draw_through(p, f, drawn_dtype(out.dtype), d, a, b, generator, out, params, inputs);
}

// What was there before a draw has no influence on the result.
inline TensorList no_random_gradient(const GradCall&) { return {}; }

/// Numbers are what they were drawn as, whatever their parameters are.
inline TensorList zero_gradients(const GradCall& g) {
  TensorList zeros(g.input_count());
  for (size_t i = 0; i < zeros.size(); ++i)
    if (g.needs(i))
      zeros[i] =
          zeros_to_copy(g.input_sizes(i), TensorOptions(g.input_dtype(i), g.input_device(i)));
  return zeros;
}

}  // namespace arete::ops
