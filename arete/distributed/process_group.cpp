#include "arete/distributed/process_group.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <thread>

#include "arete/core/modes.h"
#include "arete/device/cuda.h"
#include "arete/distributed/call_internal.h"
#include "arete/distributed/communicators_internal.h"
#include "arete/distributed/environment.h"
#include "arete/distributed/group_effect_internal.h"
#include "arete/distributed/monitor.h"
#include "arete/distributed/store_internal.h"
#include "arete/distributed/stream_calls_internal.h"
#include "arete/distributed/threads_internal.h"
#include "arete/ops/creation.h"
#include "arete/ops/shape.h"
#include "arete/ops/sparse.h"
#include "arete/prim/backend.h"
#include "arete/prim/recorder.h"

namespace arete::distributed {

using prim::CollectiveKind;

namespace {

void check_no_capture(prim::Backend& gpu) {
  ARETE_CHECK(!gpu.is_capturing(),
              DeviceError("", "the host cannot wait for a call while a graph is captured")
                  .hint("barrier() and wait(timeout) belong before or after the capture"));
}

}  // namespace

// ---- Work

// What was put off is done then, or has failed.
void Work::make() const {
  if (put_off_) put_off_->writable_data();
}

bool Work::is_completed() const {
  make();
  const std::lock_guard lock(mutex_);
  return done_ || (end_ && end_->is_done());
}

void Work::wait(std::optional<Milliseconds> timeout) {
  if (put_off_) {
    const prim::Capture* const capture = prim::putting_off();
    if (timeout || !capture || put_off_->promiser() != capture->promiser()) make();
    return;
  }
  if (end_) {
    if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
    prim::Backend& gpu = prim::backend_for(device_);
    const bool waits = timeout || on_host_;
    if (waits) check_no_capture(gpu);
    const prim::StreamHandle current = gpu.current_stream();
    end_->hold(current);
    if (current == owner_) let_go();
    if (!waits) return;
    if (!wait_done(timeout.value_or(Milliseconds::max()))) throw_late(*timeout);
    if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
    return;
  }
  std::unique_lock lock(mutex_);
  if (!timeout) {
    finished_.wait(lock, [&] { return done_; });
  } else if (!finished_.wait_for(lock, *timeout, [&] { return done_; })) {
    throw_late(*timeout);
  }
  if (error_) std::rethrow_exception(error_);
}

void Work::wait_unless_readers_do() {
  if (!is_for_stream() || put_off_ || prim::backend_for(device_).is_capturing()) wait(std::nullopt);
}

void Work::throw_late(Milliseconds timeout) {
  throw DistributedError(
      Failure::backend, "",
      "Operation timed out! It did not complete within " + std::to_string(timeout.count()) + " ms");
}

bool Work::wait_done(Milliseconds most) {
  make();
  if (end_) {
    check_no_capture(prim::backend_for(device_));
    const auto begun = std::chrono::steady_clock::now();
    while (!is_completed()) {
      // In milliseconds: the most of them are more than a clock's ticks can say.
      if (std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - begun) >=
          most)
        return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return true;
  }
  std::unique_lock lock(mutex_);
  return finished_.wait_for(lock, most, [&] { return done_; });
}

std::exception_ptr Work::exception() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

int Work::source_rank() const {
  const std::lock_guard lock(mutex_);
  return source_;
}

void Work::finish(std::exception_ptr error, int source) {
  const std::lock_guard lock(mutex_);
  done_ = true;
  error_ = std::move(error);
  source_ = source;
  finished_.notify_all();
}

void Work::let_go() noexcept {
  std::vector<StoragePtr> memory;
  const std::lock_guard lock(mutex_);
  memory.swap(memory_);
}

// ---- the parts of a call

namespace {

void check_tensor(const char* op, const Tensor& t) {
  ARETE_CHECK(t.defined(), TypeError(op, "a tensor is undefined"));
}

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

struct ProcessGroup::Threads {
  std::mutex one_at_a_time;  // collective
  TaskThreads collectives{1};
  TaskThreads transfers{std::numeric_limits<size_t>::max()};
};

// ---- ProcessGroup

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

void ProcessGroup::check_count(const char* op, const char* argument, size_t count) const {
  ARETE_CHECK(count == size_t(size()),
              ValueError(op, "there must be one tensor for each rank of the group")
                  .argument(argument)
                  .expected(std::to_string(size()))
                  .got(std::to_string(count)));
}

// The rows of a tensor that belong to each rank; `each` empty: equally many.
std::vector<Tensor> ProcessGroup::rows(const char* op, const Tensor& whole,
                                       std::vector<int64_t> each) const {
  check_tensor(op, whole);
  ARETE_CHECK(whole.is_contiguous(), ValueError(op, "Tensors must be contiguous"));
  ARETE_CHECK(whole.dim() > 0, ValueError(op, "a tensor of one number has no parts"));
  const int64_t all = whole.size(0), n = size();
  if (each.empty()) {
    ARETE_CHECK(all % n == 0,
                ValueError(op, "Tensor's dim 0 does not divide equally across group size")
                    .got(std::to_string(all) + " rows for " + std::to_string(n) + " ranks"));
    each.assign(n, all / n);
  }
  ARETE_CHECK(int64_t(each.size()) == n,
              ValueError(op, "Number of tensor splits not equal to group size"));
  ARETE_CHECK(std::ranges::all_of(each, [](int64_t r) { return r >= 0; }) &&
                  std::accumulate(each.begin(), each.end(), int64_t(0)) == all,
              ValueError(op, "Split sizes doesn't match total dim 0 size"));
  const NoGradGuard guard;
  std::vector<Tensor> result;
  int64_t row = 0;
  for (const int64_t r : each) {
    result.push_back(whole.detach().narrow(0, row, r));
    row += r;
  }
  return result;
}

// The elements of a tensor that belong to each rank, which are equally many.
std::vector<Tensor> ProcessGroup::equal_parts(const char* op, const Tensor& whole) const {
  ARETE_CHECK(whole.is_contiguous(), ValueError(op, "Tensors must be contiguous"));
  const NoGradGuard guard;
  return rows(op, whole.detach().reshape({size(), whole.numel() / size()}), {});
}

WorkPtr ProcessGroup::run(CollectiveKind kind, const std::vector<Tensor>& in,
                          const std::vector<Tensor>& out, int root, ReduceOp op, bool async,
                          bool beside) {
  const char* const name = prim::name_of(kind);
  check_rank(name,
             kind == CollectiveKind::broadcast || kind == CollectiveKind::scatter ? "src" : "dst",
             root);
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
  };
  // Calls that wait are next if nothing else is under way.
  if (!async && threads_->collectives.is_idle()) {
    perform();
    return nullptr;
  }
  const auto work = std::make_shared<Work>(call->queue);
  for (const Tensor& t : out)
    if (t.device().is_cpu()) t.storage()->add_pending(work, true);
  for (const Tensor& t : call->in) t.storage()->add_pending(work, false);
  try {
    threads_->collectives.submit([work, perform]() mutable {
      std::exception_ptr error;
      try {
        perform();
      } catch (...) {
        error = std::current_exception();
      }
      work->finish(std::move(error));
    });
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

void ProcessGroup::perform(CollectiveKind kind, std::span<const Tensor> in,
                           std::span<const Tensor> out, int root, prim::ReduceKind reduce,
                           double factor) {
  run(kind, {in.begin(), in.end()}, {out.begin(), out.end()}, root, {reduce, factor}, false);
}

WorkPtr ProcessGroup::all_reduce(const Tensor& tensor, ReduceOp op, bool async) {
  return run(CollectiveKind::all_reduce, {tensor}, {tensor}, 0, op, async);
}

WorkPtr ProcessGroup::reduce(const Tensor& tensor, int dst, ReduceOp op, bool async) {
  std::vector<Tensor> out;
  if (rank_ == dst) out = {tensor};
  return run(CollectiveKind::reduce, {tensor}, out, dst, op, async);
}

WorkPtr ProcessGroup::broadcast(const Tensor& tensor, int src, bool async) {
  return run(CollectiveKind::broadcast, {}, {tensor}, src, {}, async);
}

WorkPtr ProcessGroup::all_gather(const std::vector<Tensor>& outputs, const Tensor& input,
                                 bool async) {
  check_count("all_gather", "tensor_list", outputs.size());
  check_tensor("all_gather", input);
  ARETE_CHECK(outputs[rank_].defined() && outputs[rank_].numel() == input.numel(),
              ValueError("all_gather", "the tensor for this rank has another size than its input"));
  return run(CollectiveKind::all_gather, {input}, outputs, 0, {}, async);
}

WorkPtr ProcessGroup::all_gather_into_tensor(const Tensor& output, const Tensor& input,
                                             bool async) {
  check_tensor("all_gather_into_tensor", input);
  check_tensor("all_gather_into_tensor", output);
  ARETE_CHECK(output.numel() == input.numel() * size(),
              ValueError("all_gather_into_tensor",
                         "output tensor size must be equal to world_size times input tensor size")
                  .expected(std::to_string(input.numel() * size()) + " elements")
                  .got(std::to_string(output.numel())));
  return run(CollectiveKind::all_gather, {input}, equal_parts("all_gather_into_tensor", output), 0,
             {}, async);
}

WorkPtr ProcessGroup::all_gather_in_place(const std::vector<Tensor>& tensors, bool async) {
  constexpr const char* kName = "all_gather";
  if (!tensors.empty()) {
    const Device home = home_of(kName, tensors[0]);
    if (may_be_put_off(home, {tensors})) {
      const ModesGuard guard;
      modes().current_op = kName;
      Call call;
      call.args = {.kind = CollectiveKind::all_gather, .timeout = timeout_};
      call.home = home;
      call.is_put_off = true;
      for (const Tensor& whole : tensors) {
        const std::vector<Tensor> parts = equal_parts(kName, whole);
        call.add_in(parts[size_t(rank_)]);
        for (const Tensor& part : parts) call.add_out(part);
      }
      call.make_views();
      put_off(call, false);
      return async ? std::make_shared<Work>(tensors[0].storage()) : nullptr;
    }
  }
  std::vector<std::shared_ptr<Call>> together;
  StreamCalls* streams = nullptr;
  WorkPtr last;
  for (const Tensor& whole : tensors) {
    const std::vector<Tensor> parts = equal_parts(kName, whole);
    const Device home = home_of(kName, whole);
    if (home.is_cpu() || whole.device() != home) {
      last = run(CollectiveKind::all_gather, {parts[size_t(rank_)]}, parts, 0, {}, async);
      continue;
    }
    streams = &stream_calls(home);
    const MadeNow now(kName, {parts});
    auto call = std::make_shared<Call>();
    call->args = {.kind = CollectiveKind::all_gather,
                  .overlaps = CallLabel::current() != nullptr,
                  .timeout = timeout_};
    call->home = home;
    call->queue = async ? streams->queue() : nullptr;
    call->gather_into(parts);
    call->in.push_back(call->out[size_t(rank_)]);
    call->make_views();
    together.push_back(std::move(call));
  }
  if (streams) last = streams->run(together, async);
  return last;
}

WorkPtr ProcessGroup::reduce_scatter(const Tensor& output, const std::vector<Tensor>& inputs,
                                     ReduceOp op, bool async) {
  check_count("reduce_scatter", "input_list", inputs.size());
  check_tensor("reduce_scatter", inputs[rank_]);
  check_tensor("reduce_scatter", output);
  ARETE_CHECK(
      inputs[rank_].numel() == output.numel(),
      ValueError("reduce_scatter", "the input for this rank has another size than its output"));
  return run(CollectiveKind::reduce_scatter, inputs, {output}, 0, op, async);
}

WorkPtr ProcessGroup::reduce_scatter_tensor(const Tensor& output, const Tensor& input, ReduceOp op,
                                            bool async) {
  check_tensor("reduce_scatter_tensor", input);
  check_tensor("reduce_scatter_tensor", output);
  ARETE_CHECK(input.numel() == output.numel() * size(),
              ValueError("reduce_scatter_tensor",
                         "input tensor must be the same size as output size times world size")
                  .expected(std::to_string(output.numel() * size()) + " elements")
                  .got(std::to_string(input.numel())));
  return run(CollectiveKind::reduce_scatter, equal_parts("reduce_scatter_tensor", input), {output},
             0, op, async);
}

WorkPtr ProcessGroup::reduce_scatter_beside(const Tensor& output, const Tensor& input) {
  return run(CollectiveKind::reduce_scatter, equal_parts("reduce_scatter_tensor", input), {output},
             0, kSum, true, true);
}

WorkPtr ProcessGroup::all_to_all(const std::vector<Tensor>& outputs,
                                 const std::vector<Tensor>& inputs, bool async) {
  check_count("all_to_all", "output_tensor_list", outputs.size());
  check_count("all_to_all", "input_tensor_list", inputs.size());
  check_tensor("all_to_all", outputs[rank_]);
  check_tensor("all_to_all", inputs[rank_]);
  ARETE_CHECK(
      outputs[rank_].numel() == inputs[rank_].numel(),
      ValueError("all_to_all", "the output from this rank has another size than its input"));
  return run(CollectiveKind::all_to_all, inputs, outputs, 0, {}, async);
}

WorkPtr ProcessGroup::all_to_all_single(const Tensor& output, const Tensor& input,
                                        const std::vector<int64_t>& output_splits,
                                        const std::vector<int64_t>& input_splits, bool async) {
  return all_to_all(rows("all_to_all_single", output, output_splits),
                    rows("all_to_all_single", input, input_splits), async);
}

WorkPtr ProcessGroup::gather(const Tensor& input, const std::vector<Tensor>& outputs, int dst,
                             bool async) {
  if (rank_ != dst) {
    ARETE_CHECK(outputs.empty(), ValueError("gather",
                                            "Argument ``gather_list`` must NOT be specified on "
                                            "non-destination ranks."));
  } else {
    check_count("gather", "gather_list", outputs.size());
    check_tensor("gather", input);
    check_tensor("gather", outputs[rank_]);
    ARETE_CHECK(outputs[rank_].numel() == input.numel(),
                ValueError("gather", "the tensor for this rank has another size than its input"));
  }
  return run(CollectiveKind::gather, {input}, outputs, dst, {}, async);
}

WorkPtr ProcessGroup::scatter(const Tensor& output, const std::vector<Tensor>& inputs, int src,
                              bool async) {
  if (rank_ != src) {
    ARETE_CHECK(inputs.empty(), ValueError("scatter",
                                           "Argument ``scatter_list`` must NOT be specified on "
                                           "non-source ranks."));
  } else {
    check_count("scatter", "scatter_list", inputs.size());
    check_tensor("scatter", output);
    check_tensor("scatter", inputs[rank_]);
    ARETE_CHECK(inputs[rank_].numel() == output.numel(),
                ValueError("scatter", "the tensor for this rank has another size than its output"));
  }
  return run(CollectiveKind::scatter, inputs, {output}, src, {}, async);
}

std::vector<std::string> ProcessGroup::recorded_calls() const {
  return communicator_ ? fake_calls(*communicator_) : std::vector<std::string>();
}

WorkPtr ProcessGroup::barrier(bool async) {
  if (!communicator_) {
    // One number, for which the host waits.
    StreamCalls& streams = stream_calls(home());
    check_no_capture(prim::backend_for(streams.device()));
    const MadeNow now("barrier", {});
    const auto call = std::make_shared<Call>();
    call->args = {.kind = CollectiveKind::all_reduce, .timeout = timeout_};
    call->home = streams.device();
    call->queue = streams.queue();
    const Tensor one = zeros({1}, TensorOptions(kFloat32, call->home));
    call->add_out(one);
    call->in = call->out;
    call->make_views();
    const WorkPtr work = streams.run({call}, true, true);
    if (async) return work;
    work->wait();
    return nullptr;
  }
  return run(CollectiveKind::barrier, {}, {}, 0, {}, async);
}

void ProcessGroup::monitored_barrier(std::optional<Milliseconds> limit, bool wait_all_ranks) {
  const MadeNow now("monitored_barrier", {});
  const Milliseconds timeout = limit.value_or(timeout_);
  const auto until = std::chrono::steady_clock::now() + timeout;
  const std::string name = "monitored_barrier/" + std::to_string(barriers_++);
  const auto key = [&](int rank) { return name + "/" + std::to_string(rank); };
  const auto failed = [&](const std::string& who) {
    return DistributedError(Failure::backend, "",
                            "[Rank " + std::to_string(rank_) + "]: " + who +
                                " failed to pass monitoredBarrier in " +
                                std::to_string(timeout.count()) + " ms");
  };
  if (rank_ != 0) {
    store_->set(key(rank_), "here");
    const std::string go = key(0);
    try {
      store_->wait({&go, 1}, timeout);
    } catch (const DistributedError& e) {
      if (e.failure() != Failure::store) throw;
      throw DistributedError(Failure::backend, "",
                             "Rank " + std::to_string(rank_) +
                                 " successfully reached monitoredBarrier, but received errors "
                                 "while waiting for send/recv from rank 0. " +
                                 failed("Rank 0").what());
    }
    return;
  }
  std::vector<int> missing;
  for (int r = 1; r < size(); ++r) {
    const std::string other = key(r);
    const auto left = std::chrono::ceil<Milliseconds>(until - std::chrono::steady_clock::now());
    try {
      store_->wait({&other, 1}, std::max(left, Milliseconds(1)));
      store_->delete_key(other);
    } catch (const DistributedError& e) {
      if (e.failure() != Failure::store) throw;
      missing.push_back(r);
      if (!wait_all_ranks) break;
    }
  }
  if (!missing.empty()) {
    std::string who = missing.size() > 1 ? "Ranks " : "Rank ";
    for (const int r : missing) who += (r == missing[0] ? "" : ", ") + std::to_string(r);
    throw failed(who);
  }
  store_->set(key(0), "go");
}

// ---- messages

Device ProcessGroup::check_message(const Message& m, bool in_batch) const {
  const char* const name = m.sends ? "send" : "recv";
  check_tensor(name, m.tensor);
  const Device home = home_of(name, m.tensor);
  if (m.sends || m.peer >= 0) check_rank(name, m.sends ? "dst" : "src", m.peer);
  // NCCL matches what a process sends to itself within one piece of work.
  ARETE_CHECK(m.peer != rank_ || (in_batch && !home.is_cpu()),
              ValueError(name, m.sends ? "Invalid destination rank: destination rank should not be "
                                         "the same as the rank of the current process."
                                       : "Invalid source rank: source rank should not be the same "
                                         "as the rank of the current process."));
  ARETE_CHECK(m.tag < prim::kFirstOwnTag, ValueError(name, "the tag is too large").argument("tag"));
  ARETE_CHECK(m.peer >= 0 || home.is_cpu(),
              NotImplementedError(name, "NCCL receives from no unknown rank").argument("src"));
  return home;
}

std::shared_ptr<Call> ProcessGroup::call_of(const Message& m, Device home,
                                            const void* queue) const {
  auto call = std::make_shared<Call>();
  call->args = {.kind = m.sends ? CollectiveKind::send : CollectiveKind::recv,
                .root = m.peer,
                .timeout = timeout_};
  call->home = home;
  call->queue = queue;
  if (m.sends)
    call->add_in(m.tensor);
  else
    call->add_out(m.tensor);
  call->make_views();
  return call;
}

WorkPtr ProcessGroup::message(const Message& m, bool async, int* source) {
  const Device home = check_message(m);
  const MadeNow now(m.sends ? "send" : "recv", {{&m.tensor, 1}});
  if (!home.is_cpu()) {
    if (source) *source = m.peer;
    StreamCalls& streams = stream_calls(home);
    return streams.run({call_of(m, home, async ? streams.queue() : nullptr)}, async);
  }
  const std::shared_ptr<Call> call = call_of(m, home, nullptr);
  const uint64_t number = watch_->enter(m.sends ? CallKind::send : CallKind::recv, m.peer,
                                        m.sends ? &call->in_views[0] : &call->out_views[0]);
  // Under way at once, whoever waits for it: two that send to each other first do not block.
  std::shared_ptr<prim::Transfer> transfer;
  try {
    transfer = m.sends ? communicator_->send(call->in_views[0], m.peer, m.tag)
                       : communicator_->recv(call->out_views[0], m.peer, m.tag);
  } catch (...) {
    watch_->leave(number, true);
    throw;
  }
  const auto complete = [this, call, transfer, number, timeout = timeout_] {
    int other = -1;
    watch_->perform(number, [&] {
      ToldCall told(cpu_backend_, *call);
      other = transfer->wait(timeout);
      call->copy_back();
      told.end();
    });
    return other;
  };
  if (!async) {
    const int other = complete();
    if (source) *source = other;
    return nullptr;
  }
  const auto work = std::make_shared<Work>(nullptr);
  try {
    threads_->transfers.submit([work, complete] {
      std::exception_ptr error;
      int other = -1;
      try {
        other = complete();
      } catch (...) {
        error = std::current_exception();
      }
      work->finish(std::move(error), other);
    });
  } catch (...) {
    // Nobody would wait for the message, which uses the tensor's memory.
    communicator_->abort();
    watch_->leave(number, true);
    throw;
  }
  return work;
}

WorkPtr ProcessGroup::send(const Tensor& tensor, int dst, uint32_t tag, bool async) {
  return message({tensor, dst, tag, true}, async, nullptr);
}

WorkPtr ProcessGroup::recv(const Tensor& tensor, int src, uint32_t tag, bool async, int* source) {
  return message({tensor, src, tag, false}, async, source);
}

std::vector<WorkPtr> ProcessGroup::start_messages(const std::vector<Message>& messages) {
  std::vector<WorkPtr> works;
  std::vector<std::shared_ptr<Call>> together;
  StreamCalls* streams = nullptr;
  for (const Message& m : messages) {
    const Device home = check_message(m, true);
    if (home.is_cpu()) {
      works.push_back(message(m, true, nullptr));
      continue;
    }
    streams = &stream_calls(home);
    const MadeNow now("batch_isend_irecv", {{&m.tensor, 1}});
    together.push_back(call_of(m, home, streams->queue()));
  }
  if (streams) works.push_back(streams->run(together, true));
  return works;
}

}  // namespace arete::distributed
