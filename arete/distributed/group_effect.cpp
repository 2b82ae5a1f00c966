#include "arete/distributed/call_internal.h"
#include "arete/distributed/group_effect_internal.h"
#include "arete/distributed/stream_calls_internal.h"

namespace arete::distributed {

using prim::CollectiveKind;

class GroupEffect final : public prim::Effect {
 public:
  GroupEffect(std::shared_ptr<ProcessGroup::Effects> of, const prim::CollectiveArgs& args,
              bool beside)
      : of_(std::move(of)),
        kind_(args.kind),
        root_(args.root),
        reduce_(args.reduce),
        beside_(beside),
        label_(CallLabel::current()) {}
  const char* name() const override { return prim::name_of(kind_); }
  std::shared_ptr<PendingCopy> start(std::span<const prim::View> in,
                                     std::span<const prim::View> out, double factor,
                                     bool at_once) const override {
    const auto of = of_.lock();
    ProcessGroup* const group = of ? of->group() : nullptr;
    ARETE_CHECK(group, ValueError(name(),
                                  "the group of processes was destroyed before a call of "
                                  "it that had been put off was made"));
    // Several that gather are one piece of work.
    const size_t n = kind_ == CollectiveKind::all_gather ? in.size() : 1;
    std::vector<std::shared_ptr<Call>> calls;
    for (size_t k = 0; k < n; ++k) {
      Call& call = *calls.emplace_back(std::make_shared<Call>());
      call.args = {.kind = kind_,
                   .root = root_,
                   .reduce = reduce_,
                   .factor = factor,
                   .overlaps = label_ != nullptr,
                   .timeout = group->timeout()};
      const auto own = [&](std::span<const prim::View> all, std::vector<prim::View>& views) {
        const auto its = all.subspan(k * (all.size() / n), all.size() / n);
        views.assign(its.begin(), its.end());
        for (const prim::View& v : its) {
          if (!v.storage) continue;
          call.home = v.storage->device();
          call.memory.emplace_back(const_cast<Storage*>(v.storage));
        }
        return std::span<const prim::View>(views);
      };
      call.args.in = own(in, call.in_views);
      call.args.out = own(out, call.out_views);
    }
    const CallLabel label(label_);
    // The second communicator has a stream of its own only.
    return group->start(calls, {}, !at_once || beside_, beside_);
  }

 private:
  const std::weak_ptr<ProcessGroup::Effects> of_;
  const CollectiveKind kind_;
  const int root_;
  const prim::ReduceKind reduce_;
  const bool beside_;
  const std::shared_ptr<const std::string> label_;
};

std::shared_ptr<const prim::Effect> ProcessGroup::Effects::find(const prim::CollectiveArgs& args,
                                                                bool beside) {
  const auto label = CallLabel::current();
  const std::lock_guard lock(mutex_);
  auto& effect = all_[{args.kind, args.root, args.reduce, beside, label ? *label : ""}];
  if (!effect) effect = std::make_shared<const GroupEffect>(shared_from_this(), args, beside);
  return effect;
}

}  // namespace arete::distributed
