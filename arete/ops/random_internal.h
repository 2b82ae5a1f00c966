// What the records of random numbers share.
#pragma once

#include <vector>

#include "arete/expr/value.h"
#include "arete/ops/call.h"
#include "arete/prim/philox.h"

namespace arete::ops {

using Distribution = prim::RandomArgs::Distribution;

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

// One program of scratch numbers: outputs[0] = f(inputs).
inline void apply(prim::Primitives& p, const expr::Definition& f,
                  std::span<const prim::View> inputs, const prim::View& out) {
  std::vector<DType> types;
  for (const prim::View& v : inputs) types.push_back(v.dtype);
  const DType outputs[] = {out.dtype};
  const expr::ProgramPtr program = expr::trace(
      [&](std::span<const expr::Value> v) {
        return std::vector{expr::cast(f(v)[0], expr::compute_type(out.dtype))};
      },
      types, {}, outputs);
  p.pointwise({program.get(), inputs, {&out, 1}, {}});
}

// What was there before a draw has no influence on the result.
inline TensorList no_random_gradient(const GradCall&) { return {}; }

}  // namespace arete::ops
