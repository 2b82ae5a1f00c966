// Steps in another order, where less memory is needed so.
#include <algorithm>
#include <utility>

#include "arete/compile/graph_internal.h"
#include "arete/compile/plan.h"
#include "arete/prim/recorder.h"

// Note [Order at the fullest step]
// Of two steps side by side that have nothing to do with each other the one goes first that leaves
// less memory in use: the product for a weight's gradient, which is the last to read what the
// forward pass saved, before that for the input's gradient. Looked at is the step where temporaries
// take most, again and again, as long as that helps.

namespace arete::compile {

void Plan::lower_peak(Buffers& buffers) {
  // Lives are looked through for each: of long plans only the worst places are worth that.
  constexpr int kMostMoves = 16;
  const auto look = [&] {
    Steps calls;
    for (const Step& step : steps_) calls.push_back(step.call.get());
    return live_bytes(calls, lives_of(calls, buffers), buffers);
  };
  const auto may_swap = [&](size_t k) {
    prim::RecordedCall &a = *steps_[k].call, &b = *steps_[k + 1].call;
    return !is_effect(a) && !is_effect(b) && !may_refuse(a) && !may_refuse(b) &&
           !collide(uses_of(a, buffers), uses_of(b, buffers));
  };
  if (steps_.size() < 2) return;
  std::vector<size_t> live = look();
  for (int moves = 0; moves < kMostMoves; ++moves) {
    const size_t fullest = size_t(std::ranges::max_element(live) - live.begin());
    const auto swap_helps = [&](size_t k) {
      if (k + 1 >= steps_.size() || !may_swap(k)) return false;
      std::swap(steps_[k], steps_[k + 1]);
      std::vector<size_t> after = look();
      if (std::max(after[k], after[k + 1]) < std::max(live[k], live[k + 1])) {
        live = std::move(after);
        return true;
      }
      std::swap(steps_[k], steps_[k + 1]);
      return false;
    };
    if (!swap_helps(fullest) && !(fullest > 0 && swap_helps(fullest - 1))) return;
  }
}

}  // namespace arete::compile
