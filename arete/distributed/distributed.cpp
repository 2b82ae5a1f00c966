#include "arete/distributed/distributed.h"

#include <pthread.h>

#include <algorithm>
#include <list>
#include <map>
#include <numeric>

#include "arete/base/error.h"
#include "arete/distributed/environment.h"
#include "arete/distributed/monitor.h"
#include "arete/distributed/store_internal.h"

namespace arete::distributed {
namespace {

// Never destroyed: at the end of a process that forgot to end them, groups are under way.
struct Groups {
  std::mutex mutex;
  ProcessGroupPtr world;
  StorePtr store;
  std::vector<ProcessGroupPtr> others;
  // Counted, since a store may have the keys of earlier ones.
  int64_t worlds = 0, made = 0;
  std::map<std::string, int64_t> among;  // of groups that their members alone make, by these
};
Groups& groups() {
  static auto* const all = new Groups;
  return *all;
}

/// A process that is forked has the memory of groups and none of the threads that they wait for at
/// their end: there they have none.
ProcessGroupPtr endless_in_forks(ProcessGroupPtr group) {
  struct Living {
    std::weak_ptr<ProcessGroup> group;
    ProcessGroupPtr kept;
  };
  static auto* const mutex = new std::mutex;
  static auto* const all = new std::list<Living>;
  static const int watches = pthread_atfork([] { mutex->lock(); }, [] { mutex->unlock(); },
                                            [] {
                                              for (Living& l : *all) l.kept = l.group.lock();
                                              mutex->unlock();
                                            });
  ARETE_ASSERT(watches == 0);
  const std::lock_guard lock(*mutex);
  std::erase_if(*all, [](const Living& l) { return l.group.expired(); });
  all->push_back({group, nullptr});
  return group;
}

ProcessGroupPtr group_or_world(const ProcessGroupPtr& group) { return group ? group : world(); }

int rank_in(const ProcessGroup& group, int global_rank) {
  return global_rank < 0 ? global_rank : get_group_rank(group, global_rank);
}

std::string small_letters(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) { return char(std::tolower(c)); });
  return text.empty() ? "undefined" : text;
}

}  // namespace

ProcessGroupPtr init_process_group(const InitOptions& options) {
  Groups& all = groups();
  ARETE_CHECK(
      !is_initialized(),
      ValueError("init_process_group", "trying to initialize the default process group twice!"));
  ARETE_CHECK(!options.store || options.init_method.empty(),
              ValueError("init_process_group", "Cannot specify both init_method and store."));
  ARETE_CHECK(options.timeout.count() > 0,
              ValueError("init_process_group", "the timeout must be positive"));
  const std::string backend = small_letters(options.backend);
  Meeting meeting{options.store, options.rank, options.world_size};
  if (options.store || backend == "fake") {
    ARETE_CHECK(options.world_size > 0,
                ValueError("init_process_group", "world_size must be positive if using store"));
    ARETE_CHECK(options.rank >= 0,
                ValueError("init_process_group", "rank must be non-negative if using store"));
    if (!meeting.store) meeting.store = std::make_shared<HashStore>();
  } else {
    meeting = rendezvous(options.init_method.empty() ? "env://" : options.init_method, options.rank,
                         options.world_size, options.timeout);
  }
  std::vector<int> ranks(meeting.world_size);
  std::iota(ranks.begin(), ranks.end(), 0);
  meeting.store->set_timeout(options.timeout);
  std::string name;
  {
    const std::lock_guard lock(all.mutex);
    name = "default_pg_" + std::to_string(all.worlds++);
  }
  if (backend != "fake") start_monitor(meeting.store, meeting.rank, meeting.world_size);
  ProcessGroupPtr group;
  try {
    group = endless_in_forks(std::make_shared<ProcessGroup>(
        name, backend, meeting.store, meeting.rank, std::move(ranks), options.timeout));
    if (options.device) group->connect(options.device->resolved());
  } catch (...) {
    stop_monitor("could not begin its group");
    throw;
  }
  const std::lock_guard lock(all.mutex);
  all.world = group;
  all.store = meeting.store;
  all.made = 0;
  all.among.clear();
  return group;
}

void destroy_process_group(const ProcessGroupPtr& group, const std::string& why, bool failed) {
  Groups& all = groups();
  std::vector<ProcessGroupPtr> gone;
  std::unique_lock lock(all.mutex);
  const bool is_all = !group || group == all.world;
  if (is_all) {
    ARETE_CHECK(all.world, ValueError("destroy_process_group", "Invalid process group specified"));
    gone = std::move(all.others);
    gone.push_back(std::move(all.world));
    all.others.clear();
    all.world = nullptr;
    all.store = nullptr;
  } else {
    const auto at = std::ranges::find(all.others, group);
    ARETE_CHECK(at != all.others.end(),
                ValueError("destroy_process_group", "Invalid process group specified"));
    gone.push_back(std::move(*at));
    all.others.erase(at);
  }
  lock.unlock();
  if (is_all && failed) stop_monitor(why);
  // Others may keep them; the monitor is needed until nothing is under way.
  for (const ProcessGroupPtr& g : gone) g->finish(failed);
  gone.clear();
  if (is_all && !failed) stop_monitor(why);
}

ProcessGroupPtr new_group(std::vector<int> ranks, std::optional<Milliseconds> timeout,
                          const std::string& backend, std::optional<Device> device,
                          bool among_members) {
  const ProcessGroupPtr whole = world();
  Groups& all = groups();
  if (ranks.empty()) ranks = whole->ranks();
  std::vector<int> sorted = ranks;
  std::ranges::sort(sorted);
  ARETE_CHECK(sorted.front() >= 0 && sorted.back() < whole->size(),
              ValueError("new_group",
                         "The new group's rank should be within the world_size set by "
                         "init_process_group"));
  ARETE_CHECK(std::ranges::adjacent_find(sorted) == sorted.end(),
              ValueError("new_group", "a rank is named twice"));
  std::string name;
  StorePtr store;
  {
    const std::lock_guard lock(all.mutex);
    if (among_members) {  // others count other groups
      std::string members;
      for (const int r : ranks) members += "_" + std::to_string(r);
      name = whole->name() + "/members" + members + "/" + std::to_string(all.among[members]++);
    } else {
      name = whole->name() + "/group_" + std::to_string(all.made++);
    }
    store = all.store;
  }
  const auto at = std::ranges::find(ranks, whole->rank());
  if (at == ranks.end()) return nullptr;
  auto group = endless_in_forks(std::make_shared<ProcessGroup>(
      name, backend.empty() ? whole->backend() : small_letters(backend), store,
      int(at - ranks.begin()), ranks, timeout.value_or(whole->timeout())));
  if (device) group->connect(device->resolved());
  const std::lock_guard lock(all.mutex);
  all.others.push_back(group);
  return group;
}

bool is_initialized() noexcept {
  Groups& all = groups();
  const std::lock_guard lock(all.mutex);
  return all.world != nullptr;
}

int group_count() noexcept {
  Groups& all = groups();
  const std::lock_guard lock(all.mutex);
  return int(all.others.size()) + (all.world ? 1 : 0);
}

bool is_gloo_available() {
  std::string problem;
  return prim::find_gloo(problem) != nullptr;
}

bool is_nccl_available() {
  std::string problem;
  return prim::find_nccl(problem) != nullptr;
}

int nccl_version() {
  std::string problem;
  const prim::StreamLibrary* const nccl = prim::find_nccl(problem);
  if (!nccl) throw DistributedError(Failure::backend, "nccl.version", problem);
  return nccl->version(problem);
}

ProcessGroupPtr world() {
  Groups& all = groups();
  const std::lock_guard lock(all.mutex);
  ARETE_CHECK(all.world, ValueError("",
                                    "Default process group has not been initialized, please make "
                                    "sure to call init_process_group."));
  return all.world;
}

int get_rank(const ProcessGroupPtr& group) { return group_or_world(group)->rank(); }
int get_world_size(const ProcessGroupPtr& group) { return group_or_world(group)->size(); }

int get_group_rank(const ProcessGroup& group, int global_rank) {
  const auto at = std::ranges::find(group.ranks(), global_rank);
  ARETE_CHECK(at != group.ranks().end(),
              ValueError("", "Global rank " + std::to_string(global_rank) +
                                 " is not part of group " + group.name()));
  return int(at - group.ranks().begin());
}

WorkPtr all_reduce(const Tensor& tensor, ReduceOp op, const ProcessGroupPtr& group, bool async) {
  return group_or_world(group)->all_reduce(tensor, op, async);
}
WorkPtr broadcast(const Tensor& tensor, int src, const ProcessGroupPtr& group, bool async) {
  const ProcessGroupPtr g = group_or_world(group);
  return g->broadcast(tensor, rank_in(*g, src), async);
}
WorkPtr reduce(const Tensor& tensor, int dst, ReduceOp op, const ProcessGroupPtr& group,
               bool async) {
  const ProcessGroupPtr g = group_or_world(group);
  return g->reduce(tensor, rank_in(*g, dst), op, async);
}
WorkPtr all_gather(const std::vector<Tensor>& tensors, const Tensor& tensor,
                   const ProcessGroupPtr& group, bool async) {
  return group_or_world(group)->all_gather(tensors, tensor, async);
}
WorkPtr all_gather_into_tensor(const Tensor& output, const Tensor& input,
                               const ProcessGroupPtr& group, bool async) {
  return group_or_world(group)->all_gather_into_tensor(output, input, async);
}
WorkPtr reduce_scatter(const Tensor& output, const std::vector<Tensor>& inputs, ReduceOp op,
                       const ProcessGroupPtr& group, bool async) {
  return group_or_world(group)->reduce_scatter(output, inputs, op, async);
}
WorkPtr reduce_scatter_tensor(const Tensor& output, const Tensor& input, ReduceOp op,
                              const ProcessGroupPtr& group, bool async) {
  return group_or_world(group)->reduce_scatter_tensor(output, input, op, async);
}
WorkPtr all_to_all(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                   const ProcessGroupPtr& group, bool async) {
  return group_or_world(group)->all_to_all(outputs, inputs, async);
}
WorkPtr all_to_all_single(const Tensor& output, const Tensor& input,
                          const std::vector<int64_t>& output_splits,
                          const std::vector<int64_t>& input_splits, const ProcessGroupPtr& group,
                          bool async) {
  return group_or_world(group)->all_to_all_single(output, input, output_splits, input_splits,
                                                  async);
}
WorkPtr gather(const Tensor& tensor, const std::vector<Tensor>& tensors, int dst,
               const ProcessGroupPtr& group, bool async) {
  const ProcessGroupPtr g = group_or_world(group);
  return g->gather(tensor, tensors, rank_in(*g, dst), async);
}
WorkPtr scatter(const Tensor& tensor, const std::vector<Tensor>& tensors, int src,
                const ProcessGroupPtr& group, bool async) {
  const ProcessGroupPtr g = group_or_world(group);
  return g->scatter(tensor, tensors, rank_in(*g, src), async);
}
void send(const Tensor& tensor, int dst, const ProcessGroupPtr& group, uint32_t tag) {
  const ProcessGroupPtr g = group_or_world(group);
  g->send(tensor, rank_in(*g, dst), tag);
}
int recv(const Tensor& tensor, int src, const ProcessGroupPtr& group, uint32_t tag) {
  const ProcessGroupPtr g = group_or_world(group);
  int source = -1;
  g->recv(tensor, rank_in(*g, src), tag, false, &source);
  return source < 0 ? source : g->ranks()[size_t(source)];
}
WorkPtr isend(const Tensor& tensor, int dst, const ProcessGroupPtr& group, uint32_t tag) {
  const ProcessGroupPtr g = group_or_world(group);
  return g->send(tensor, rank_in(*g, dst), tag, true);
}
WorkPtr irecv(const Tensor& tensor, int src, const ProcessGroupPtr& group, uint32_t tag) {
  const ProcessGroupPtr g = group_or_world(group);
  return g->recv(tensor, rank_in(*g, src), tag, true);
}
WorkPtr barrier(const ProcessGroupPtr& group, bool async) {
  return group_or_world(group)->barrier(async);
}
void monitored_barrier(const ProcessGroupPtr& group, std::optional<Milliseconds> timeout,
                       bool wait_all_ranks) {
  group_or_world(group)->monitored_barrier(timeout, wait_all_ranks);
}

}  // namespace arete::distributed
