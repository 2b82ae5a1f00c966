#include "arete/distributed/process_group.h"

#include <algorithm>
#include <cmath>

#include "arete/core/modes.h"
#include "arete/device/cuda.h"
#include "arete/distributed/call_internal.h"
#include "arete/distributed/communicators_internal.h"
#include "arete/distributed/environment.h"
#include "arete/distributed/group_effect_internal.h"
#include "arete/distributed/monitor.h"
#include "arete/distributed/process_group_internal.h"
#include "arete/distributed/store_internal.h"
#include "arete/distributed/stream_calls_internal.h"
#include "arete/ops/sparse.h"
#include "arete/prim/backend.h"
#include "arete/prim/recorder.h"

namespace arete::distributed {

using prim::CollectiveKind;

namespace {

// "cpu:gloo,cuda:nccl", or one name: that of tensors in host memory, and whether GPUs have NCCL.
std::pair<std::string, bool> parse_backend(const std::string& text) {
  if (text.empty() || text == "undefined") {
    // Whether there is NCCL is asked when a tensor of a GPU comes: it would start CUDA.
    return {"gloo", true};
  }
  std::pair<std::string, bool> found;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string entry = text.substr(at, end - at);
    const size_t colon = entry.find(':');
    const std::string device = colon == std::string::npos ? "" : entry.substr(0, colon);
    const std::string name = entry.substr(colon == std::string::npos ? 0 : colon + 1);
    ARETE_CHECK(
        !(name == "nccl" && device == "cpu") &&
            (device.empty() || device == "cpu" || device == "cuda"),
        ValueError("init_process_group", "there is no such backend for such a device").got(entry));
    if (name == "nccl")
      found.second = true;
    else if (device != "cuda")
      found.first = name;
    at = end + 1;
  }
  return found;
}

}  // namespace

ProcessGroup::ProcessGroup(std::string name, std::string backend, StorePtr store, int rank,
                           std::vector<int> ranks, Milliseconds timeout)
    : name_(std::move(name)),
      backend_(std::move(backend)),
      store_(std::make_shared<PrefixStore>(name_, std::move(store))),
      rank_(rank),
      ranks_(std::move(ranks)),
      timeout_(timeout),
      threads_(std::make_unique<Threads>()),
      failure_(std::make_shared<GroupFailure>()),
      effects_(std::make_shared<Effects>(*this)) {
  prim::make_calls_of_thread();  // others may have to make theirs before they come here
  check_rank("init_process_group", "rank", rank);
  std::tie(cpu_backend_, has_nccl_) = parse_backend(backend_);
  std::string problem;
  if (cpu_backend_.empty() && !prim::find_nccl(problem))
    throw DistributedError(Failure::backend, "init_process_group",
                           "Distributed package doesn't have NCCL built in: " + problem,
                           "tensors of GPUs go through host memory with the backend gloo");
  watch_ = GroupWatch::make(name_, backend_, rank_, ranks_);
  if (!cpu_backend_.empty())
    watch_->perform(watch_->enter(CallKind::init, -1, nullptr), [&] {
      communicator_ =
          make_communicator(cpu_backend_, watched(store_, watch_), rank_, size(), timeout_);
    });
  watch_->set_abort([this] {
    if (communicator_) communicator_->abort();
    for (const auto& streams : connected()) streams->end(last_report());
  });
  number_ = ops::add_group(*this);
}

ProcessGroup::~ProcessGroup() {
  ops::remove_group(number_);
  effects_->end();
  finish();
  watch_->set_abort(nullptr);
  threads_.reset();
  for (auto& streams : stream_calls_) streams.reset();
}

void ProcessGroup::finish(bool hurries) {
  for (const auto& streams : connected()) streams->finish(hurries);
  // Messages that were not waited for may be on their way.
  const auto now = std::chrono::steady_clock::now();
  const auto soon = now + std::chrono::seconds(2);
  const bool idle = threads_->collectives.wait_idle(hurries ? soon : now + timeout_) &&
                    threads_->transfers.wait_idle(soon);
  if (!idle && communicator_) communicator_->abort();
}

void ProcessGroup::check_rank(const char* op, const char* argument, int rank) const {
  ARETE_CHECK(rank >= 0 && rank < size(), ValueError(op, "there is no such rank")
                                              .argument(argument)
                                              .expected("0 to " + std::to_string(size() - 1))
                                              .got(std::to_string(rank)));
}

// Whose communicator takes a tensor.
Device ProcessGroup::home_of(const char* op, const Tensor& t) const {
  ARETE_CHECK(!is_sparse(t), NotImplementedError(op, "sparse tensors are not exchanged")
                                 .hint("exchange to_dense() of it"));
  ARETE_CHECK(!t.is_meta() || cpu_backend_ == "fake",
              DeviceError(op, "tensors on meta have nothing to exchange"));
  std::string problem;
  if (t.device().is_cuda() && has_nccl_) {
    if (prim::find_nccl(problem)) return t.device();
    if (backend_ != "undefined") throw DistributedError(Failure::backend, op, problem);
  }
  ARETE_CHECK(communicator_, DeviceError(op, "No backend type associated with device type cpu")
                                 .hint("the group has nccl alone; cpu:gloo,cuda:nccl has both"));
  return kCPU;
}

bool ProcessGroup::uses_nccl(Device device) const {
  std::string problem;
  return device.is_cuda() && has_nccl_ && prim::find_nccl(problem);
}

Device ProcessGroup::home() const {
  if (communicator_) return kCPU;
  {
    const std::lock_guard lock(stream_calls_mutex_);
    for (const auto& streams : stream_calls_)
      if (streams) return streams->device();
  }
  const Device current = Device(DeviceType::cuda).resolved();
  const int count = cuda::device_count();
  // The first one is everybody's who has not chosen, while each process has a GPU of its own.
  if (current.index != 0 || cuda::has_chosen_device() || count == 0) return current;
  return {DeviceType::cuda, environment_local_rank().value_or(ranks_[size_t(rank_)]) % count};
}

std::vector<std::shared_ptr<StreamCalls>> ProcessGroup::connected() {
  const std::lock_guard lock(stream_calls_mutex_);
  std::vector<std::shared_ptr<StreamCalls>> found;
  for (const auto& streams : stream_calls_)
    if (streams) found.push_back(streams);
  return found;
}

StreamCalls& ProcessGroup::stream_calls(Device device, bool beside) {
  {
    // Others may have to make theirs before they come here.
    std::unique_lock lock(stream_calls_mutex_);
    const bool is_connected = stream_calls_[beside] != nullptr;
    lock.unlock();
    if (!is_connected) prim::make_calls_of_thread();
  }
  const std::lock_guard connecting(connect_mutex_);
  if (connect_error_) std::rethrow_exception(connect_error_);
  auto& streams = stream_calls_[beside];
  if (!streams) {
    std::string problem;
    const prim::StreamLibrary* const nccl = prim::find_nccl(problem);
    if (!nccl || !has_nccl_)
      throw DistributedError(Failure::backend, "init_process_group",
                             nccl ? "the group has no backend for GPUs" : problem);
    ARETE_CHECK(
        !prim::backend_for(device).is_capturing(),
        DeviceError("",
                    "a group connects its GPUs at the first call, which cannot be part of a graph")
            .hint("call a collective before the capture, or give init_process_group device_id"));
    StorePtr store = watched(store_, watch_);
    if (beside) store = std::make_shared<PrefixStore>("beside", std::move(store));
    const auto where = rendezvous_over(*store);
    std::shared_ptr<StreamCalls> made;
    try {
      watch_->perform(watch_->enter(CallKind::init, -1, nullptr), [&] {
        made = std::make_shared<StreamCalls>(
            device, nccl->make(device.resolved().index, *where, rank_, size(), timeout_), watch_,
            rank_, failure_);
      });
    } catch (...) {
      connect_error_ = std::current_exception();
      throw;
    }
    const std::lock_guard lock(stream_calls_mutex_);
    streams = std::move(made);
  }
  ARETE_CHECK(streams->device() == device, DeviceError("", "a group has one GPU in each process")
                                               .expected(streams->device().to_string())
                                               .got(device.to_string()));
  return *streams;
}

std::vector<std::string> ProcessGroup::recorded_calls() const {
  return communicator_ ? fake_calls(*communicator_) : std::vector<std::string>();
}

// ---- one call

WorkPtr ProcessGroup::run(CollectiveKind kind, const std::vector<Tensor>& in,
                          const std::vector<Tensor>& out, int root, ReduceOp op, bool async,
                          bool beside) {
  const char* const name = prim::name_of(kind);
  check_rank(name,
             kind == CollectiveKind::broadcast || kind == CollectiveKind::scatter ? "src" : "dst",
             root);
  ARETE_CHECK(std::isfinite(op.factor), ValueError(name, "PREMUL_SUM has no factor")
                                            .hint("_make_nccl_premul_sum(factor) gives it one"));
  std::optional<DType> dtype;
  std::optional<Device> device;
  for (const auto* list : {&in, &out})
    for (const Tensor& t : *list) {
      check_tensor(name, t);
      const Device home = home_of(name, t);
      ARETE_CHECK(home == device.value_or(home),
                  DeviceError(name, "Expected all tensors to be on the same device")
                      .got(device->to_string() + " and " + home.to_string()));
      device = home;
      ARETE_CHECK(t.dtype() == dtype.value_or(t.dtype()),
                  TypeError(name, "output tensor must have the same type as input tensor")
                      .expected(std::string(name_of(*dtype)))
                      .got(std::string(name_of(t.dtype()))));
      dtype = t.dtype();
    }
  const Device home = device.value_or(kCPU);
  const bool reduces = kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce ||
                       kind == CollectiveKind::reduce_scatter;
  if (reduces && home.is_cpu()) prim::reduce_function(op.kind, *dtype);
  beside = beside && async;
  StreamCalls* const streams = home.is_cpu() ? nullptr : &stream_calls(home, beside);

  std::optional<MadeNow> now;
  const ModesGuard guard;
  const auto call = std::make_shared<Call>();
  call->is_put_off = may_be_put_off(home, {in, out});
  if (!call->is_put_off) now.emplace(name, std::initializer_list<std::span<const Tensor>>{in, out});
  modes().current_op = name;
  call->args = {.kind = kind,
                .root = root,
                .reduce = op.kind,
                .factor = op.factor,
                .overlaps = CallLabel::current() != nullptr,
                .timeout = timeout_};
  call->home = home;
  call->queue = !streams ? threads_.get() : async ? streams->queue() : nullptr;
  if (kind == CollectiveKind::all_gather)
    call->gather_into(out);
  else
    for (const Tensor& t : out) call->add_out(t);
  if (kind == CollectiveKind::reduce_scatter && streams) {
    call->gather_from(in);
  } else {
    for (const Tensor& t : in) {
      // One that is written, too, is copied once; but where parts are gathered for all, what stands
      // for the output has no values yet.
      const auto same =
          kind == CollectiveKind::all_gather
              ? out.end()
              : std::ranges::find_if(out, [&](const Tensor& o) { return o.is_same(t); });
      if (same == out.end())
        call->add_in(t);
      else
        call->in.push_back(call->out[size_t(same - out.begin())]);
    }
  }
  call->make_views();
  if (!call->is_put_off) return start({call}, out, async, beside);
  put_off(*call, beside);
  call->copy_back();
  return async ? std::make_shared<Work>((out.empty() ? in : out).front().storage()) : nullptr;
}

// Calls whose views are made. `out`: what others wait for. The last one of host memory ends last.
WorkPtr ProcessGroup::start(const std::vector<std::shared_ptr<Call>>& calls,
                            std::span<const Tensor> out, bool async, bool beside) {
  const Device home = calls.front()->home;
  if (!home.is_cpu()) return stream_calls(home, beside).run(calls, async);
  WorkPtr last;
  for (const auto& call : calls) last = start_on_host(call, out, async);
  return last;
}

void submit(TaskThreads& threads, WorkPtr work, std::function<int()> task) {
  threads.submit([work = std::move(work), task = std::move(task)] {
    std::exception_ptr error;
    int source = -1;
    try {
      source = task();
    } catch (...) {
      error = std::current_exception();
    }
    work->finish(std::move(error), source);
  });
}

WorkPtr ProcessGroup::start_on_host(const std::shared_ptr<Call>& call, std::span<const Tensor> out,
                                    bool async) {
  const uint64_t number = watch_->enter(call->args);
  const auto perform = [this, call, number] {
    const std::lock_guard lock(threads_->one_at_a_time);
    watch_->perform(number, [&] {
      ToldCall told(cpu_backend_, *call);
      prim::run_collective(*communicator_, call->args);
      call->copy_back();
      told.end();
    });
    return -1;
  };
  // Calls that wait are next if nothing else is under way.
  if (!async && threads_->collectives.is_idle()) {
    perform();
    return nullptr;
  }
  const auto work = std::make_shared<Work>(call->queue);
  for (const Tensor& t : out) t.storage()->add_pending(work, true);
  for (const Tensor& t : call->in) t.storage()->add_pending(work, false);
  try {
    submit(threads_->collectives, work, perform);
  } catch (...) {
    work->finish(nullptr);  // nothing is under way
    watch_->leave(number, true);
    throw;
  }
  if (async) return work;
  work->wait();
  return nullptr;
}

// One whose views are made: among the calls that the thread puts off.
void ProcessGroup::put_off(const Call& call, bool beside) {
  const auto effect = effects_->find(call.args, beside);
  prim::putting_off()->take(
      call.home, {.effect = effect.get(),
                  .in = call.args.in,
                  .out = call.args.out,
                  .updates = call.args.kind == CollectiveKind::broadcast && rank_ == call.args.root,
                  .factor = call.args.factor});
}

}  // namespace arete::distributed
