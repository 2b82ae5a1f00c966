#include "arete/distributed/stream_calls_internal.h"

#include <algorithm>
#include <utility>

#include "arete/distributed/monitor.h"
#include "arete/distributed/store_internal.h"
#include "arete/prim/backend.h"
#include "arete/prim/recorder.h"

namespace arete::distributed {
namespace {

constexpr Milliseconds kLook(100);         // how often the watcher looks
constexpr std::chrono::seconds kHurry(2);  // for what is under way when the program has failed
constexpr size_t kManyCalls = 256;

uint64_t enter(GroupWatch& watch, const prim::CollectiveArgs& args) {
  using prim::CollectiveKind;
  if (args.kind == CollectiveKind::send) return watch.enter(CallKind::send, args.root, &args.in[0]);
  if (args.kind == CollectiveKind::recv)
    return watch.enter(CallKind::recv, args.root, &args.out[0]);
  return watch.enter(args);
}

}  // namespace

StreamCalls::StreamCalls(Device device, std::unique_ptr<prim::StreamCommunicator> communicator,
                         std::shared_ptr<GroupWatch> watch, int rank,
                         std::shared_ptr<GroupFailure> failure)
    : device_(device),
      watch_(std::move(watch)),
      rank_(rank),
      failure_(std::move(failure)),
      communicator_(std::move(communicator)),
      watcher_([this] { this->watch(); }) {}

StreamCalls::~StreamCalls() {
  finish();
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    more_.notify_all();
  }
  watcher_.join();
}

// What does not end by itself the watcher ends, or the monitor.
void StreamCalls::finish(bool hurries) {
  std::unique_lock lock(mutex_);
  const auto until = std::chrono::steady_clock::now() + kHurry;
  while (forget_ended(lock), !under_way_.empty()) {
    if (hurries && std::chrono::steady_clock::now() > until) {
      fail(lock, describe(under_way_.front()) + " was under way when the group was destroyed");
      return;
    }
    lock.unlock();
    std::this_thread::sleep_for(Milliseconds(1));
    lock.lock();
  }
}

WorkPtr StreamCalls::run(const std::vector<std::shared_ptr<Call>>& calls, bool async,
                         bool is_barrier) {
  const std::lock_guard order(order_);
  if (const auto why = failure_->why()) end(*why);
  {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
  }
  prim::Backend& gpu = prim::backend_for(device_);
  const prim::StreamHandle current = gpu.current_stream();
  const prim::StreamHandle stream = async ? communicator_->stream() : current;
  if (async) communicator_->mark(current)->hold(stream);
  std::vector<prim::CollectiveArgs> args;
  std::vector<uint64_t> watched;
  bool copies_back = false;
  for (const auto& call : calls) {
    args.push_back(call->args);
    copies_back |= !call->copied_back.empty();
    watched.push_back(enter(*watch_, call->args));
    watch_->start(watched.back());
  }
  {
    // The library may wait for others already when it is called.
    std::unique_lock lock(mutex_);
    if (under_way_.size() >= kManyCalls) forget_ended(lock);
    const auto& first = *calls.front();
    const auto& views = first.args.in.empty() ? first.args.out : first.args.in;
    under_way_.push_back({nullptr,
                          {},
                          std::chrono::steady_clock::now(),
                          first.args.timeout,
                          first.args.kind,
                          views.empty() ? std::nullopt : std::optional(views[0].dtype),
                          views.empty() ? 0 : views[0].numel(),
                          std::move(watched)});
    if (idle_) more_.notify_all();
  }
  std::shared_ptr<prim::StreamPoint> end;
  try {
    ToldCall told("nccl", *calls.front(), calls.size());
    communicator_->run(args, stream);
    if (copies_back) {
      // Copies are made by operators, which from now on say what streams they use.
      if (async) gpu.adopt_stream(stream);
      const prim::StreamScope scope(gpu, stream);
      for (const auto& call : calls) call->copy_back();
    }
    end = communicator_->mark(stream);
    told.end();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    leave(under_way_.back(), true);
    under_way_.pop_back();
    throw;
  }
  WorkPtr work;
  if (async) {
    std::vector<StoragePtr> memory;
    const auto keep = [&](const Tensor& t) {
      if (std::ranges::find(memory, t.storage()) == memory.end()) memory.push_back(t.storage());
    };
    for (const auto& call : calls) {
      std::ranges::for_each(call->in, keep);
      std::ranges::for_each(call->out, keep);
      memory.insert(memory.end(), call->memory.begin(), call->memory.end());
    }
    work = std::make_shared<Work>(device_, stream, end, is_barrier, std::move(memory), current);
  }
  {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    under_way_.back().end = end;
    under_way_.back().work = work;
  }
  if (!async) return nullptr;
  // Whoever uses the tensors comes after the call, without being told to.
  for (const auto& call : calls) {
    for (const Tensor& t : call->out) t.storage()->add_pending(work, true);
    for (const auto& [to, from] : call->copied_back) to.storage()->add_pending(work, true);
    for (const Tensor& t : call->in) t.storage()->add_pending(work, false);
  }
  return work;
}

void StreamCalls::end(const std::string& why) {
  std::unique_lock lock(mutex_);
  if (!error_) fail(lock, why);
}

void StreamCalls::leave(const UnderWay& call, bool failed) noexcept {
  for (const uint64_t number : call.watched) watch_->leave(number, failed);
}

// What they kept is released without the lock, since others may be told of it.
void StreamCalls::forget_ended(std::unique_lock<std::mutex>& lock) {
  std::vector<WorkPtr> ended;
  while (!under_way_.empty() && under_way_.front().end && under_way_.front().end->is_done()) {
    leave(under_way_.front(), false);
    if (WorkPtr work = under_way_.front().work.lock()) ended.push_back(std::move(work));
    under_way_.pop_front();
  }
  if (ended.empty()) return;
  lock.unlock();
  for (const WorkPtr& work : ended) work->let_go();
  ended.clear();
  lock.lock();
}

std::string StreamCalls::describe(const UnderWay& call) const {
  std::string text = prim::name_of(call.kind);
  const uint64_t number = watch_->sequence_of(call.watched.front());
  if (number) text += " #" + std::to_string(number);
  text += " of " + watch_->name();
  if (call.dtype)
    text += " (" + std::string(name_of(*call.dtype)) + "[" + std::to_string(call.elements) + "])";
  return text + " on rank " + std::to_string(rank_);
}

void StreamCalls::fail(std::unique_lock<std::mutex>& lock, const std::string& why) {
  error_ = std::make_exception_ptr(DistributedError(
      Failure::backend, "", why, "this group is of no use any more: end it, or the process"));
  failure_->set(why);
  std::vector<WorkPtr> ended;
  for (const UnderWay& call : under_way_) {
    if (const WorkPtr work = call.work.lock()) {
      work->finish(error_);
      ended.push_back(work);
    }
    leave(call, true);
  }
  under_way_.clear();
  lock.unlock();
  communicator_->abort(why);
  for (const WorkPtr& work : ended) work->let_go();
  ended.clear();
  lock.lock();
}

void StreamCalls::watch() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    idle_ = under_way_.empty();
    if (idle_)
      more_.wait(lock, [&] { return ends_ || !under_way_.empty(); });
    else
      more_.wait_for(lock, kLook, [&] { return ends_; });
    idle_ = false;
    forget_ended(lock);
    if (ends_ || under_way_.empty()) continue;
    if (const auto other = failure_->why(); other && !error_) {
      fail(lock, *other);
      continue;
    }
    const UnderWay& first = under_way_.front();
    const std::string problem = communicator_->problem();
    std::string why;
    if (!problem.empty())
      why = describe(first) + " failed: " + problem;
    else if (std::chrono::steady_clock::now() - first.begun > first.timeout)
      why = describe(first) + " did not complete within " + std::to_string(first.timeout.count()) +
            " ms: another rank has not come to it, or called something else";
    if (why.empty()) continue;
    const auto begun = first.begun;
    lock.unlock();
    const std::string report = reason_of_failure(*watch_, begun);
    lock.lock();
    // The monitor may have ended the calls, too.
    if (error_ || (forget_ended(lock), under_way_.empty()) || under_way_.front().begun != begun)
      continue;
    fail(lock, report.empty() ? why : report + " [" + why + "]");
  }
}

}  // namespace arete::distributed
