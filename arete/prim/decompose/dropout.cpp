// dropout: a mask of Bernoulli numbers in scratch memory, then a choice by it.
#include <array>
#include <map>
#include <mutex>

#include "arete/expr/value.h"
#include "arete/prim/backend.h"

namespace arete::prim {
namespace {

using expr::Value;

// mask ? x * scale : 0
const expr::Program& masked_scale(DType t) {
  static std::mutex mutex;
  static auto* const programs = new std::map<DType, expr::ProgramPtr>;
  const std::lock_guard lock(mutex);
  expr::ProgramPtr& p = (*programs)[t];
  if (!p) {
    const std::array<DType, 2> inputs{t, kBool};
    const std::array<expr::Type, 1> params{expr::compute_type(t)};
    const std::array<DType, 1> outputs{t};
    p = expr::trace(
        [](std::span<const Value> v) {
          return std::vector{expr::where(v[1], v[0] * v[2], expr::constant_like(v[0], 0))};
        },
        inputs, params, outputs);
  }
  return *p;
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
