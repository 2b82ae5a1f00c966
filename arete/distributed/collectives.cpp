// Collectives of a group: what their tensors have to be, and which parts of them belong to whom.
#include <algorithm>
#include <chrono>
#include <numeric>

#include "arete/core/modes.h"
#include "arete/distributed/call_internal.h"
#include "arete/distributed/process_group.h"
#include "arete/distributed/store_internal.h"
#include "arete/distributed/stream_calls_internal.h"
#include "arete/ops/creation.h"
#include "arete/ops/shape.h"
#include "arete/ops/sparse.h"
#include "arete/prim/backend.h"

namespace arete::distributed {

using prim::CollectiveKind;

void ProcessGroup::check_count(const char* op, const char* argument, size_t count) const {
  ARETE_CHECK(count == size_t(size()),
              ValueError(op, "there must be one tensor for each rank of the group")
                  .argument(argument)
                  .expected(std::to_string(size()))
                  .got(std::to_string(count)));
}

// A tensor for each rank, of which that for this one is as large as the tensor it is exchanged
// with.
void ProcessGroup::check_list(const char* op, const char* argument, std::span<const Tensor> list,
                              const Tensor& other) const {
  check_count(op, argument, list.size());
  const Tensor& own = list[size_t(rank_)];
  check_tensor(op, own);
  check_tensor(op, other);
  ARETE_CHECK(
      own.numel() == other.numel(),
      ValueError(op, "the tensor for this rank has another size than what it is exchanged with")
          .argument(argument)
          .expected(std::to_string(other.numel()) + " elements")
          .got(std::to_string(own.numel())));
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

void ProcessGroup::perform(CollectiveKind kind, std::span<const Tensor> in,
                           std::span<const Tensor> out, int root, prim::ReduceKind reduce,
                           double factor) {
  run(kind, {in.begin(), in.end()}, {out.begin(), out.end()}, root, {reduce, factor}, false);
}

WorkPtr ProcessGroup::all_reduce(const Tensor& tensor, ReduceOp op, bool async) {
  if (is_sparse(tensor)) return add_sparse(tensor, op, async);
  return run(CollectiveKind::all_reduce, {tensor}, {tensor}, 0, op, async);
}

// How many elements there are depends on all processes, so each waits for their numbers. Elements
// are added in the order of ranks, everywhere the same.
WorkPtr ProcessGroup::add_sparse(const Tensor& tensor, ReduceOp op, bool async) {
  constexpr const char* kName = "all_reduce";
  ARETE_CHECK(
      op.kind == prim::ReduceKind::sum,
      NotImplementedError(kName, "elements of sparse tensors are added up, by ReduceOp.SUM"));
  const NoGradGuard guard;
  const Tensor indices = sparse_parts(tensor)->indices.contiguous();
  const Tensor values = sparse_parts(tensor)->values.detach().contiguous();
  if (backend() == "fake") return all_reduce(values, op, async);
  const int64_t dims = indices.size(0);
  const Tensor counts = ops::empty_tensor({size(), 3}, kInt64, values.device());
  all_gather_into_tensor(counts,
                         arete::tensor(std::vector<int64_t>{indices.size(1), dims, tensor.numel()})
                             .to(values.device()));
  const std::vector<int64_t> numbers = counts.cpu().to_vector<int64_t>();
  std::vector<Tensor> places, parts;
  for (size_t r = 0; r < numbers.size(); r += 3) {
    ARETE_CHECK(numbers[r + 1] == dims && numbers[r + 2] == tensor.numel(),
                ValueError(kName,
                           "sparse tensors of all ranks have the same sizes, and as many "
                           "dimensions that are sparse"));
    Shape sizes(values.sizes().begin(), values.sizes().end());
    sizes[0] = numbers[r];
    places.push_back(ops::empty_tensor({dims, numbers[r]}, kInt64, values.device()));
    parts.push_back(ops::empty_tensor(sizes, values.dtype(), values.device()));
  }
  all_gather(places, indices);
  WorkPtr work = all_gather(parts, values, async);
  if (work) work->wait();
  replace_parts(
      tensor,
      *sparse_parts(ops::coalesce(sparse_tensor({cat(places, 1), cat(parts, 0)}, tensor.sizes()))));
  return work;
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
  check_list("all_gather", "tensor_list", outputs, input);
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
  check_list("reduce_scatter", "input_list", inputs, output);
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
  check_count("all_to_all", "input_tensor_list", inputs.size());
  check_list("all_to_all", "output_tensor_list", outputs, inputs[size_t(rank_)]);
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
    check_list("gather", "gather_list", outputs, input);
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
    check_list("scatter", "scatter_list", inputs, output);
  }
  return run(CollectiveKind::scatter, inputs, {output}, src, {}, async);
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

}  // namespace arete::distributed
