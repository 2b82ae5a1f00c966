// Temporaries that are computed again instead of being kept.
#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "arete/compile/graph_internal.h"
#include "arete/compile/plan.h"
#include "arete/ops/activation_program_internal.h"
#include "arete/prim/recorder.h"

// Note [Recomputation]
// What a forward pass saves is there until the backward pass comes back to it. Where less memory is
// wanted (PlanOptions::memory_budget), temporaries that lie idle at the step with the most memory
// are given back after the last use before that, and the kernel that made them runs again before
// the next one: of those that read and write memory only (element by element, rows, copies), which
// leave the same bits (an activation one rounding), the one that moves the fewest bytes for those
// that it saves comes first. Products, convolutions, attention and sorts are never done again, nor
// is dropout; but activations that a product has on its way out are, where it stored what they were
// made of.
//  - Everything that is read is unchanged by then, and there anyway, or small.

namespace arete::compile {
namespace {

using prim::Access;
using prim::GemmArgs;
using prim::Primitive;
using prim::View;
using Call = std::unique_ptr<prim::RecordedCall>;

/// Results of a step that lie idle, until `next`.
struct Idle {
  std::vector<int> buffers{};
  size_t maker = 0, next = SIZE_MAX;                      // steps
  double cost = std::numeric_limits<double>::infinity();  // bytes moved for a byte that is saved
};

bool is_cheap(Primitive p) {
  return p == Primitive::pointwise || p == Primitive::fused || p == Primitive::copy ||
         p == Primitive::reduce;
}

/// What makes a step's results again, or that of an activation; null: nothing does.
Call again(const prim::RecordedCall& maker) {
  if (is_cheap(maker.primitive())) return maker.clone();
  if (maker.primitive() != Primitive::gemm) return nullptr;
  const auto& g = *static_cast<const GemmArgs*>(maker.args());
  if (g.activation == prim::Activation::none || !g.aux || g.differentiate ||
      g.out.dtype != g.aux.dtype)
    return nullptr;
  const prim::PointwiseArgs activate{.program = &ops::activation_program(g.activation, g.out.dtype),
                                     .inputs = {&g.aux, 1},
                                     .outputs = {&g.out, 1},
                                     .context = g.context};
  return as_recorded(maker.device(), activate);
}

class Recomputer {
 public:
  Recomputer(Steps steps, Buffers& buffers) : steps_(std::move(steps)), buffers_(buffers) {
    for (prim::RecordedCall* s : steps_) uses_.push_back(uses_of(*s, buffers));
    lives_ = lives_of(steps_, buffers);
    live_ = live_bytes(steps_, lives_, buffers);
    fullest_ = size_t(std::ranges::max_element(live_) - live_.begin());
  }
  size_t peak() const { return live_[fullest_]; }
  Idle best() const {
    Idle best;
    for (size_t s = 0; s < fullest_; ++s)
      if (Idle one = look_at(s); one.cost < best.cost) best = std::move(one);
    return best;
  }

 private:
  // The next use of a step's result that lies idle at the fullest step; 0: it does not.
  size_t next_use(int buffer, size_t maker) const;
  Idle look_at(size_t maker) const;

  Steps steps_;
  Buffers& buffers_;
  std::vector<std::vector<Use>> uses_;
  std::vector<Life> lives_;
  std::vector<size_t> live_;
  size_t fullest_;
};

size_t Recomputer::next_use(int b, size_t maker) const {
  if (b < 0 || !buffers_[b].temporary || !buffers_[b].storage) return 0;
  const Life& life = lives_[size_t(b)];
  if (life.first != maker || life.last <= fullest_) return 0;
  size_t next = 0;
  for (size_t s = life.first; s <= life.last; ++s)
    for (const Use& u : uses_[s]) {
      if (u.buffer != b) continue;
      if (s == fullest_ || (u.access != Access::read) != (s == maker)) return 0;
      if (s > fullest_ && next == 0) next = s;
    }
  return next;
}

Idle Recomputer::look_at(size_t maker) const {
  const prim::RecordedCall& was = *steps_[maker];
  if (!is_cheap(was.primitive()) && was.primitive() != Primitive::gemm) return {};
  Idle idle{.maker = maker};
  // What is kept longer than otherwise over the fullest step, and behind it only.
  double saved = 0, kept = 0, kept_later = 0, dropped = 0;
  const Call call = again(was);
  if (!call) return {};
  const std::vector<Use> uses = uses_of(*call, buffers_);
  for (const Use& out : uses) {
    if (out.access == Access::read) continue;
    if (out.buffer < 0 || !buffers_[out.buffer].storage) return {};
    const size_t next = next_use(out.buffer, maker);
    if (next == 0) {
      dropped += double(buffers_[out.buffer].storage->bytes());
    } else if (std::ranges::find(idle.buffers, out.buffer) == idle.buffers.end()) {
      idle.buffers.push_back(out.buffer);
      idle.next = std::min(idle.next, next);
      saved += double(lives_[size_t(out.buffer)].bytes);
    }
  }
  if (saved < double(peak()) / 1024) return {};
  for (const Use& in : uses) {
    if (in.access != Access::read) continue;
    if (in.buffer < 0 || !buffers_[in.buffer].storage) return {};
    for (size_t s = maker; s < idle.next; ++s)
      for (const Use& u : uses_[s])
        // (An activation's input is stored by the product itself.)
        if (u.access != Access::read && overlap(u, in) &&
            !(s == maker && call->primitive() != was.primitive()))
          return {};
    const Life& its = lives_[size_t(in.buffer)];
    if (buffers_[in.buffer].temporary && its.last < idle.next)
      (its.last < fullest_ ? kept : kept_later) += double(its.bytes);
  }
  if (kept > saved / 4 || kept + kept_later > saved ||
      double(std::max(live_[idle.next - 1], live_[idle.next])) + dropped > double(peak()))
    return {};
  idle.cost = double(bytes_of(*call)) / (saved - kept);
  return idle;
}

}  // namespace

void Plan::recompute(Buffers& buffers, double budget) {
  const auto calls = [&] {
    Steps all;
    for (const Step& step : steps_) all.push_back(step.call.get());
    return all;
  };
  if (steps_.empty() || budget >= 1) return;
  const double wanted = budget * double(Recomputer(calls(), buffers).peak());
  for (size_t most = steps_.size(); most-- > 0;) {
    const Recomputer now(calls(), buffers);
    if (double(now.peak()) <= wanted) return;
    const Idle idle = now.best();
    if (idle.buffers.empty()) return;
    Call call = again(*steps_[idle.maker].call);
    // It writes into memory of its own, which those who come later read. What else it makes is
    // dropped.
    struct Moved {
      StoragePtr memory;
      std::ptrdiff_t distance;
    };
    std::map<int, Moved> moved;
    const auto move = [&](View& v) {
      const Moved& its = moved.at(buffers.of(v));
      v.data += its.distance, v.storage = its.memory.get();
    };
    call->for_each_operand([&](View& v, Access access) {
      if (access == Access::read) return;
      const int b = buffers.of(v);
      if (!moved.contains(b)) {
        const Storage& was = *buffers[b].storage;
        const StoragePtr memory = buffers.add_temporary(was.device(), was.bytes());
        moved[b] = {memory, memory->data() - was.data()};
      }
      move(v);
    });
    for (size_t s = idle.next; s < steps_.size(); ++s)
      steps_[s].call->for_each_operand([&](View& v, Access) {
        if (std::ranges::find(idle.buffers, buffers.of(v)) != idle.buffers.end()) move(v);
      });
    const int group = steps_[idle.maker].group;
    steps_.insert(steps_.begin() + std::ptrdiff_t(idle.next), Step{std::move(call), 0, {}, group});
    ++stats_.recomputed;
  }
}

}  // namespace arete::compile
