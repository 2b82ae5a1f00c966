// What stands among the primitive calls of a list that was put off, and is none.
#pragma once

#include <memory>
#include <span>

#include "arete/prim/args_basic.h"
#include "arete/prim/backend.h"

namespace arete::prim {

// Note [Effects]
// Some of what a program does with memory is no computation of one device: what processes do
// together. Where primitive calls are put off (Capture::take) it has its place among them as a call
// with operands. It is made each time that the list is, whoever wants its results, and comes after
// those before it. It may go on while others are made that do not use its operands: who runs the
// list waits before the first one that does. Two effects never change places, since other processes
// rely on the order.

class Effect : public std::enable_shared_from_this<Effect> {
 public:
  virtual ~Effect() = default;
  /// For people; lives as long as this.
  virtual const char* name() const = 0;
  /// Begins it, after what the device's current stream was given. What it gives is to be waited for
  /// before the operands' memory is used; null: nothing is. `at_once`: the next call uses it.
  virtual std::shared_ptr<PendingCopy> start(std::span<const View> in, std::span<const View> out,
                                             double factor, bool at_once) const = 0;
};

/// Effects are the same if they are one object; whoever keeps the arguments keeps it.
struct EffectArgs {
  const Effect* effect;
  std::span<const View> in, out;
  bool updates = false;  // what is written is read before
  double factor = 1;
  Context context{};

  static void describe(auto& a, auto&& v) {
    v(a.in, Access::read);
    v(a.out, a.updates ? Access::update : Access::write);
  }
};

/// What calls of them say that they are.
inline constexpr Primitive kEffect = Primitive(kNumPrimitives);

}  // namespace arete::prim
