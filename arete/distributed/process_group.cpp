#include "arete/distributed/process_group.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "arete/core/modes.h"
#include "arete/distributed/communicators_internal.h"
#include "arete/distributed/monitor.h"
#include "arete/distributed/store_internal.h"
#include "arete/distributed/threads_internal.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/shape.h"
#include "arete/prim/backend.h"
#include "arete/prim/recorder.h"

namespace arete::distributed {

using prim::CollectiveKind;

// ---- Work

bool Work::is_completed() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

void Work::wait(std::optional<Milliseconds> timeout) {
  std::unique_lock lock(mutex_);
  if (!timeout) {
    finished_.wait(lock, [&] { return done_; });
  } else if (!finished_.wait_for(lock, *timeout, [&] { return done_; })) {
    throw_late(*timeout);
  }
  if (error_) std::rethrow_exception(error_);
}

void Work::throw_late(Milliseconds timeout) {
  throw DistributedError(
      Failure::backend, "",
      "Operation timed out! It did not complete within " + std::to_string(timeout.count()) + " ms");
}

bool Work::wait_done(Milliseconds most) {
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

// ---- the parts of a call

namespace {

void check_tensor(const char* op, const Tensor& t) {
  ARETE_CHECK(t.defined(), TypeError(op, "a tensor is undefined"));
}

// Waits for those who use the memory, but for the calls of a queue: they go before this one anyway.
void settle(const Tensor& t, const void* queue, bool writes) {
  const Storage& memory = *t.storage();
  if (memory.promiser()) memory.readable_data();
  memory.wait_for_other_queues(queue, writes);
}

// A tensor as one in host memory, in order: itself, or a copy. Those on meta stay there.
Tensor host_form(const Tensor& t, const void* queue, bool writes) {
  if (t.is_meta()) return t;
  if (t.device().is_cpu() && t.is_contiguous()) {
    settle(t, queue, writes);
    return t;
  }
  return t.detach().cpu().contiguous();
}

// A tensor over the same memory that waits for nobody there once those before it are done: who
// copies a result back is one whom others wait for, and would wait for itself, or those behind it.
Tensor unwatched(const Tensor& t, const void* queue) {
  if (t.is_meta()) return t.detach();
  settle(t, queue, true);
  if (!t.device().is_cpu()) {
    // Another thread copies, in a stream of its own.
    prim::Backend& device = prim::backend_for(t.device());
    device.synchronize_stream(device.current_stream());
    return t.detach();
  }
  const StoragePtr memory = t.storage();
  StoragePtr same = Storage::adopt(memory->device(), memory->data(), memory->bytes(), [memory] {});
  return Tensor{IntrusivePtr<TensorImpl>(new TensorImpl(std::move(same), t.layout(), t.dtype()))};
}

}  // namespace

struct ProcessGroup::Threads {
  std::mutex one_at_a_time;  // collective
  TaskThreads collectives{1};
  TaskThreads transfers{std::numeric_limits<size_t>::max()};
};

// What a call keeps until it is done.
struct ProcessGroup::Call {
  prim::CollectiveArgs args;
  std::vector<Tensor> in, out;                         // in host memory
  std::vector<std::pair<Tensor, Tensor>> copied_back;  // (to, from)
  std::vector<prim::View> in_views, out_views;

  void add_out(const Tensor& t, const void* queue) {
    out.push_back(host_form(t, queue, true));
    if (!out.back().is_same(t)) copied_back.emplace_back(unwatched(t, queue), out.back());
    t.bump_version();
  }
  // Parts of one size are one message, wherever they are: all ranks speak alike. Those that do not
  // follow each other in host memory are copied there.
  void gather_into(const std::vector<Tensor>& outputs, const void* queue) {
    const Tensor& first = outputs[0];
    const auto at = [](const Tensor& t) {
      return t.storage()->data() + size_t(t.storage_offset()) * t.element_size();
    };
    bool same_size = true, in_order = true;
    for (size_t r = 0; r < outputs.size(); ++r) {
      same_size &= outputs[r].numel() == first.numel();
      in_order &= outputs[r].device().is_cpu() && outputs[r].is_contiguous() &&
                  at(outputs[r]) == at(first) + r * first.nbytes();
    }
    if (!same_size || in_order || first.is_meta()) {
      for (const Tensor& t : outputs) add_out(t, queue);
      return;
    }
    const NoGradGuard guard;
    const Tensor flat =
        empty({int64_t(outputs.size()), first.numel()}, TensorOptions(first.dtype()));
    for (size_t r = 0; r < outputs.size(); ++r) {
      out.push_back(flat.narrow(0, int64_t(r), 1).reshape(outputs[r].sizes()));
      copied_back.emplace_back(unwatched(outputs[r], queue), out.back());
      outputs[r].bump_version();
    }
  }
  void make_views() {
    for (const Tensor& t : in) in_views.push_back(ops::view_of(t));
    for (const Tensor& t : out) out_views.push_back(ops::view_of(t));
    args.in = in_views;
    args.out = out_views;
  }
  void copy_back() {
    const NoGradGuard guard;
    for (auto& [to, from] : copied_back) to.copy_(from);
    prim::make_calls_of_thread();  // others know the memory by another name
    // Whoever waits for the call uses another stream than this thread.
    for (auto& [to, from] : copied_back)
      if (!to.device().is_cpu()) {
        prim::Backend& device = prim::backend_for(to.device());
        device.synchronize_stream(device.current_stream());
      }
  }
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
      threads_(std::make_unique<Threads>()) {
  check_rank("init_process_group", "rank", rank);
  watch_ = GroupWatch::make(name_, backend_, rank_, ranks_);
  watch_->perform(watch_->enter(CallKind::init, -1, nullptr), [&] {
    communicator_ = make_communicator(backend_, watched(store_, watch_), rank_, size(), timeout_);
  });
  watch_->set_abort([this] { communicator_->abort(); });
}

ProcessGroup::~ProcessGroup() {
  // Messages that were not waited for may be on their way.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  const bool idle = threads_->collectives.wait_idle(until) && threads_->transfers.wait_idle(until);
  watch_->set_abort(nullptr);
  if (!idle && communicator_) communicator_->abort();
  threads_.reset();
}

void ProcessGroup::check_rank(const char* op, const char* argument, int rank) const {
  ARETE_CHECK(rank >= 0 && rank < size(), ValueError(op, "there is no such rank")
                                              .argument(argument)
                                              .expected("0 to " + std::to_string(size() - 1))
                                              .got(std::to_string(rank)));
}

void ProcessGroup::check_device(const char* op, const Tensor& t) const {
  ARETE_CHECK(!t.is_meta() || backend_ == "fake",
              DeviceError(op, "tensors on meta have nothing to exchange"));
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
                          const std::vector<Tensor>& out, int root, ReduceOp op, bool async) {
  const char* const name = prim::name_of(kind);
  check_rank(name,
             kind == CollectiveKind::broadcast || kind == CollectiveKind::scatter ? "src" : "dst",
             root);
  std::optional<DType> dtype;
  for (const auto* list : {&in, &out})
    for (const Tensor& t : *list) {
      check_tensor(name, t);
      check_device(name, t);
      ARETE_CHECK(t.dtype() == dtype.value_or(t.dtype()),
                  TypeError(name, "output tensor must have the same type as input tensor")
                      .expected(std::string(name_of(*dtype)))
                      .got(std::string(name_of(t.dtype()))));
      dtype = t.dtype();
    }
  const bool reduces = kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce ||
                       kind == CollectiveKind::reduce_scatter;
  if (reduces) prim::reduce_function(op.kind, *dtype);

  const auto call = std::make_shared<Call>();
  call->args = {
      .kind = kind, .root = root, .reduce = op.kind, .factor = op.factor, .timeout = timeout_};
  const void* const queue = threads_.get();
  if (kind == CollectiveKind::all_gather)
    call->gather_into(out, queue);
  else
    for (const Tensor& t : out) call->add_out(t, queue);
  for (const Tensor& t : in) {
    // One that is written, too, is copied once; but where parts are gathered for all, what stands
    // for the output has no values yet.
    const auto same =
        kind == CollectiveKind::all_gather
            ? out.end()
            : std::ranges::find_if(out, [&](const Tensor& o) { return o.is_same(t); });
    call->in.push_back(same == out.end() ? host_form(t, queue, false)
                                         : call->out[size_t(same - out.begin())]);
  }
  call->make_views();
  const uint64_t number = watch_->enter(call->args);
  const auto perform = [this, call, number] {
    const std::lock_guard lock(threads_->one_at_a_time);
    watch_->perform(number, [&] {
      prim::run_collective(*communicator_, call->args);
      call->copy_back();
    });
  };
  // Calls that wait are next if nothing else is under way.
  if (!async && threads_->collectives.is_idle()) {
    perform();
    return nullptr;
  }
  const auto work = std::make_shared<Work>(queue);
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

WorkPtr ProcessGroup::barrier(bool async) {
  return run(CollectiveKind::barrier, {}, {}, 0, {}, async);
}

void ProcessGroup::monitored_barrier(std::optional<Milliseconds> limit, bool wait_all_ranks) {
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
      throw failed("Rank 0");
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

WorkPtr ProcessGroup::message(const Tensor& tensor, int peer, uint32_t tag, bool sends, bool async,
                              int* source) {
  const char* const name = sends ? "send" : "recv";
  check_tensor(name, tensor);
  check_device(name, tensor);
  if (sends || peer >= 0) check_rank(name, sends ? "dst" : "src", peer);
  ARETE_CHECK(peer != rank_, ValueError(name, sends ? "Invalid destination rank: destination rank "
                                                      "should not be the same as the rank of the "
                                                      "current process."
                                                    : "Invalid source rank: source rank should not "
                                                      "be the same as the rank of the current "
                                                      "process."));
  ARETE_CHECK(tag < prim::kFirstOwnTag, ValueError(name, "the tag is too large").argument("tag"));
  const auto call = std::make_shared<Call>();
  if (sends)
    call->in.push_back(host_form(tensor, nullptr, false));
  else
    call->add_out(tensor, nullptr);
  call->make_views();
  const uint64_t number = watch_->enter(sends ? CallKind::send : CallKind::recv, peer,
                                        sends ? &call->in_views[0] : &call->out_views[0]);
  // Under way at once, whoever waits for it: two that send to each other first do not block.
  std::shared_ptr<prim::Transfer> transfer;
  try {
    transfer = sends ? communicator_->send(call->in_views[0], peer, tag)
                     : communicator_->recv(call->out_views[0], peer, tag);
  } catch (...) {
    watch_->leave(number, true);
    throw;
  }
  const auto complete = [this, call, transfer, number, timeout = timeout_] {
    int other = -1;
    watch_->perform(number, [&] {
      other = transfer->wait(timeout);
      call->copy_back();
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
  return message(tensor, dst, tag, true, async, nullptr);
}

WorkPtr ProcessGroup::recv(const Tensor& tensor, int src, uint32_t tag, bool async, int* source) {
  return message(tensor, src, tag, false, async, source);
}

}  // namespace arete::distributed
