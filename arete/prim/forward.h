// Doing the same with every primitive.
#pragma once

#include <type_traits>

#include "arete/prim/backend.h"

namespace arete::prim {

/// What primitive P returns.
template <Primitive P>
using ResultOf = std::conditional_t<P == Primitive::compact, int64_t, void>;

/// Calls primitive P.
template <Primitive P, class Args>
ResultOf<P> run_primitive(Primitives& on, const Args& args) {
#define ARETE_RUN_PRIMITIVE(name, Its) \
  if constexpr (P == Primitive::name)  \
    return on.name(args);              \
  else
  ARETE_PRIMITIVES(ARETE_RUN_PRIMITIVE)
  static_assert(P < Primitive::fill, "no primitive");
#undef ARETE_RUN_PRIMITIVE
}

/// Primitives that are all Derived::pass<P>(args), which returns ResultOf<P>: recorders, mirrors.
/// Base is Primitives or Backend.
template <class Base, class Derived>
class Forwarding : public Base {
 public:
#define ARETE_FORWARD_PRIMITIVE(name, Args)                                   \
  ResultOf<Primitive::name> name(const Args& args) override {                 \
    return static_cast<Derived*>(this)->template pass<Primitive::name>(args); \
  }
  ARETE_PRIMITIVES(ARETE_FORWARD_PRIMITIVE)
#undef ARETE_FORWARD_PRIMITIVE
};

}  // namespace arete::prim
