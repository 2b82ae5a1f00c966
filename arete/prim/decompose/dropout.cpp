// dropout: a mask of Bernoulli numbers in scratch memory, then a choice by it.
#include <array>

#include "arete/expr/program_cache.h"
#include "arete/prim/backend.h"

namespace arete::prim {
namespace {

using expr::Value;

// mask ? x * scale : 0
const expr::Program& masked_scale(DType t) {
  static auto& cache = *new expr::ProgramCache;  // used until exit
  return cache.get(
      pack_key({int(t)}), {t, kBool}, {expr::compute_type(t)}, {t}, [](std::span<const Value> v) {
        return std::vector{expr::where(v[1], v[0] * v[2], expr::constant_like(v[0], 0))};
      });
}

}  // namespace

void Primitives::dropout(const DropoutArgs& a) {
  if (a.in.numel() == 0) return;
  const ScratchView mask(*this, kBool, a.in.sizes);
  random({.distribution = RandomArgs::Distribution::bernoulli,
          .out = mask,
          .seed = a.seed,
          .offset = a.offset,
          .a = a.keep,
          .state = a.state});
  const std::array<View, 2> inputs{a.in, mask.view()};
  const expr::Literal scale{.f = a.scale};
  pointwise({&masked_scale(a.in.dtype), inputs, {&a.out, 1}, {&scale, 1}});
}

}  // namespace arete::prim
