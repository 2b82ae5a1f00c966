// What groups of sharded parameters share: memory, their order, and passes backward.
#include <algorithm>
#include <utility>

#include "arete/autograd/engine.h"
#include "arete/core/modes.h"
#include "arete/distributed/flight_recorder.h"
#include "arete/distributed/sharding_internal.h"
#include "arete/prim/backend.h"
#include "arete/prim/recorder.h"

namespace arete::distributed {

bool is_under_way(uint64_t pass) {
  const std::vector<uint64_t> passes = autograd::passes_under_way();
  return std::ranges::find(passes, pass) != passes.end();
}

ShardedNetwork::ShardedNetwork() = default;
ShardedNetwork::~ShardedNetwork() = default;

void ShardedNetwork::begin_forward() {
  if (!began_.empty()) expected_ = std::exchange(began_, {});
  ended_.clear();
}

StoragePtr ShardedNetwork::take(Device device, size_t bytes) {
  const void* const stream = prim::backend_for(device).current_stream();
  for (size_t i = 0; i < free_.size(); ++i) {
    const Block& b = free_[i];
    if (b.stream != stream || b.memory->bytes() != bytes || b.memory->device() != device) continue;
    StoragePtr memory = b.memory;
    free_.erase(free_.begin() + int64_t(i));
    return memory;
  }
  return new_memory(device, bytes);
}

// Whoever has it next comes after what the current stream was given until now.
void ShardedNetwork::give(StoragePtr memory) {
  const void* const stream = prim::backend_for(memory->device()).current_stream();
  free_.push_back({std::move(memory), stream});
}

// A pass backward has come to a group.
void ShardedNetwork::note_pass() {
  if (pass_ != 0 && is_under_way(pass_)) return;
  pass_ = autograd::passes_under_way().back();
  used_.clear();
  // A pass that fails forgets what it was to do at its end.
  struct End {
    ShardedNetwork* network;
    uint64_t pass;
    bool done = false;
    ~End() {
      if (done || network->pass_ != pass) return;
      network->reductions_.clear();
      try {
        for (const auto& weak : network->used_)
          if (const auto g = weak.lock()) {
            g->finish_pass();
            std::ranges::fill(g->sums_, Tensor());
          }
      } catch (...) {
        // The error that ended the pass is on its way.
      }
      network->pass_ = 0;
    }
  };
  const auto end = std::make_shared<End>(this, pass_);
  autograd::at_end_of_pass([end] {
    end->network->end_pass();
    end->done = true;
  });
}

// All but the last `most` leave their memory to the next, which waits for them.
void ShardedNetwork::keep_reductions(size_t most) {
  size_t n = size_t(std::ranges::count_if(reductions_, [](auto& r) { return r->in.defined(); }));
  const bool puts_off = prim::putting_off();
  for (const auto& r : reductions_) {
    if (puts_off) {
      // A plan sees to it when its memory is used again.
      if (r->in.defined()) r->go_on();
      continue;
    }
    if (n <= most) return;
    if (!r->in.defined()) continue;
    --n;
    r->in.storage()->writable_data();
    give(r->in.storage());
    r->go_on();
  }
}

// What comes after the sums over those who have the other rows.
void ShardedNetwork::Reduction::go_on() {
  in = Tensor();
  if (of->waits_for_replicas()) return;
  if (of->partial_.defined()) out.add_(std::exchange(of->partial_, Tensor()));
  if (!of->options.replicas) return;
  const CallLabel told(label);
  work = of->options.replicas->all_reduce(out, kSum, true);
}

void ShardedNetwork::end_pass() {
  const NoGradGuard no_grad;
  for (size_t i = 0; i < used_.size(); ++i)
    if (const auto g = used_[i].lock(); g && g->pass_ && g->missing_ > 0) {
      g->missing_ = 0;  // gradients that did not come after all
      g->complete();
    }
  for (const auto& r : reductions_)
    if (r->in.defined()) r->go_on();
  for (const auto& weak : used_)
    if (const auto g = weak.lock()) g->finish_pass();
  std::vector<Tensor> trained;
  while (!reductions_.empty()) {
    Reduction& r = *reductions_.front();
    if (r.work) r.work->wait_unless_readers_do();
    for (Tensor& t : r.of->give_gradients(r.out, r.unsure)) trained.push_back(std::move(t));
    reductions_.pop_front();
  }
  // Those that were gathered ahead for nothing, too.
  for (const auto& weak : ended_)
    if (const auto g = weak.lock(); g && g->reshard_after_backward) g->drop();
  free_.clear();  // others need memory most when the next pass begins
  pass_ = 0;
  for (const Tensor& t : trained) autograd::call_post_accumulate_hooks(t);
}

}  // namespace arete::distributed
