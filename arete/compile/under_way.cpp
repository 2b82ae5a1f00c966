#include "arete/compile/under_way_internal.h"

namespace arete::compile {

UnderWay::~UnderWay() {
  for (auto& [step, entry] : entries_) {
    try {
      entry.work->wait();
    } catch (...) {
      // The error that ended the run is on its way.
    }
  }
}

void UnderWay::make(size_t step, const prim::RecordedCall& call, bool at_once) {
  std::shared_ptr<PendingCopy> work = call.start(at_once);
  if (!work) return;
  Entry entry{std::move(work), {}, call.device().is_cpu()};
  const_cast<prim::RecordedCall&>(call).for_each_operand(
      [&](const prim::View& v, prim::Access access) {
        if (v.storage)
          entry.memory.emplace_back(const_cast<Storage*>(v.storage), access != prim::Access::read);
      });
  entries_.emplace(step, std::move(entry));
}

void UnderWay::wait_for(size_t step) {
  const auto at = entries_.find(step);
  if (at == entries_.end()) return;
  const Entry entry = std::move(at->second);
  entries_.erase(at);
  entry.work->wait();
}

void UnderWay::wait_for_all() {
  while (!entries_.empty()) wait_for(entries_.begin()->first);
}

void UnderWay::finish() {
  while (!entries_.empty()) {
    const auto first = entries_.begin();
    if (first->second.on_host) {
      wait_for(first->first);
      continue;
    }
    for (const auto& [memory, writes] : first->second.memory)
      memory->add_pending(first->second.work, writes);
    entries_.erase(first);
  }
}

}  // namespace arete::compile
