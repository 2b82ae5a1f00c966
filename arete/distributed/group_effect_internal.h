// Collectives of a group that compiled functions put off (prim/effect.h).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "arete/distributed/process_group.h"
#include "arete/prim/effect.h"

namespace arete::distributed {

// What groups do that was put off. Those of one group which are the same are one object, until the
// group ends.
class ProcessGroup::Effects : public std::enable_shared_from_this<Effects> {
 public:
  using Key = std::tuple<prim::CollectiveKind, int, prim::ReduceKind, bool, std::string>;
  explicit Effects(ProcessGroup& its) : group_(&its) {}
  std::shared_ptr<const prim::Effect> find(const prim::CollectiveArgs& args, bool beside);
  /// The group; null: it has ended.
  ProcessGroup* group() const {
    const std::lock_guard lock(mutex_);
    return group_;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    group_ = nullptr;
    all_.clear();
  }

 private:
  mutable std::mutex mutex_;
  ProcessGroup* group_;
  std::map<Key, std::shared_ptr<const prim::Effect>> all_;
};

}  // namespace arete::distributed
