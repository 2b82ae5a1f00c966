#include "arete/distributed/data_parallel.h"

#include <algorithm>
#include <map>

#include "arete/core/modes.h"
#include "arete/distributed/distributed.h"
#include "arete/nn/embedding.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/foreach.h"
#include "arete/ops/multi.h"
#include "arete/ops/shape.h"

namespace arete::distributed {

void broadcast_coalesced(ProcessGroup& group, std::span<const Tensor> tensors, int src) {
  constexpr int64_t kMost = int64_t(250) << 20, kAlignment = 16;
  const NoGradGuard no_grad;
  std::map<std::string, std::vector<Tensor>> by_device;
  for (const Tensor& t : tensors)
    if (t.numel() > 0) by_device[t.device().to_string()].push_back(t.detach());
  for (const auto& [device, all] : by_device)
    for (size_t from = 0; from < all.size();) {
      std::vector<Tensor> some;
      std::vector<int64_t> offsets;
      int64_t bytes = 0;
      for (; from < all.size() && (some.empty() || bytes < kMost); ++from) {
        some.push_back(all[from]);
        offsets.push_back(bytes);
        bytes += (int64_t(all[from].nbytes()) + kAlignment - 1) / kAlignment * kAlignment;
      }
      if (some.size() == 1) {
        group.broadcast(some[0], src);
        continue;
      }
      const Tensor message = ops::empty_tensor({bytes}, kUInt8, some[0].device());
      std::vector<Tensor> parts;  // tensors of each dtype over the message
      for (size_t i = 0; i < some.size(); ++i) {
        Layout layout(some[i].sizes());
        layout.offset = offsets[i] / int64_t(some[i].element_size());
        parts.emplace_back(IntrusivePtr<TensorImpl>(
            new TensorImpl(message.storage(), std::move(layout), some[i].dtype())));
      }
      if (group.rank() == src) ops::foreach_copy(parts, some, false);
      group.broadcast(message, src);
      if (group.rank() != src) ops::foreach_copy(some, parts, false);
    }
}

void check_same_parameters(ProcessGroup& group, std::span<const Tensor> parameters) {
  if (group.backend() == "fake") return;  // nobody answers
  constexpr const char* kName = "DistributedDataParallel";
  const Device device = parameters.empty() ? Device(kCPU) : parameters[0].device();
  const NoGradGuard no_grad;
  // One after the other: dtype, number of dimensions, sizes.
  std::vector<int64_t> own;
  for (const Tensor& p : parameters) {
    own.push_back(int64_t(p.dtype()));
    own.push_back(p.dim());
    own.insert(own.end(), p.sizes().begin(), p.sizes().end());
  }
  const auto gather = [&](const std::vector<int64_t>& numbers) {
    const int64_t n = int64_t(numbers.size());
    const Tensor all = ops::empty_tensor({group.size() * n}, kInt64, device);
    group.all_gather_into_tensor(all, tensor(numbers).to(device));
    return all.cpu().to_vector<int64_t>();
  };
  const std::vector<int64_t> counts = gather({int64_t(parameters.size()), int64_t(own.size())});
  int64_t longest = 0;
  for (int r = 0; r < group.size(); ++r) {
    ARETE_CHECK(counts[size_t(2 * r)] == counts[0],
                ValueError(kName, "DDP expects same model across all ranks, but Rank 0 has " +
                                      std::to_string(counts[0]) + " params, while rank " +
                                      std::to_string(r) + " has inconsistent " +
                                      std::to_string(counts[size_t(2 * r)]) + " params."));
    longest = std::max(longest, counts[size_t(2 * r + 1)]);
  }
  if (longest == 0) return;
  own.resize(size_t(longest), -1);
  const std::vector<int64_t> all = gather(own);
  for (int r = 1; r < group.size(); ++r) {
    const int64_t* const zero = all.data();
    const int64_t* const other = zero + r * longest;
    int64_t at = 0;
    for (int64_t p = 0; p < counts[0]; ++p) {
      const auto text = [&](const int64_t* of) {
        return to_string(IntList(of + at + 2, size_t(of[at + 1])));
      };
      const int64_t n = 2 + zero[at + 1];
      ARETE_CHECK(std::equal(zero + at + 1, zero + at + n, other + at + 1),
                  ValueError(kName, "[" + std::to_string(r) + "]: params[" + std::to_string(p) +
                                        "] in this process with sizes " + text(other) +
                                        " appears not to match sizes of the same param in process "
                                        "0.")
                      .expected(text(zero)));
      ARETE_CHECK(zero[at] == other[at],
                  ValueError(kName, "[" + std::to_string(r) + "]: params[" + std::to_string(p) +
                                        "] in this process has another dtype than in process 0")
                      .expected(std::string(name_of(DType(zero[at]))))
                      .got(std::string(name_of(DType(other[at])))));
      at += n;
    }
  }
}

namespace {

// The tables of a network whose gradients are sparse.
std::vector<Tensor> sparse_tables(nn::Module& network) {
  std::vector<Tensor> found;
  for (nn::Module* const m : network.modules()) {
    if (const auto* const table = m->as<nn::Embedding>(); table && table->is_sparse())
      found.push_back(table->weight);
    if (const auto* const table = m->as<nn::EmbeddingBag>(); table && table->is_sparse())
      found.push_back(table->weight);
  }
  return found;
}

}  // namespace

DataParallel::DataParallel(nn::Module& network, const DataParallelOptions& options)
    : state_(std::make_shared<State>()) {
  const ProcessGroupPtr group = options.group ? options.group : world();
  std::vector<Tensor> trained;
  std::vector<std::string> names;
  ReducerOptions reducer = options.reducer;
  const std::vector<Tensor> tables = sparse_tables(network);
  const auto is_table = [&](const Tensor& p) {
    return std::ranges::any_of(tables, [&](const Tensor& t) { return t.is_same(p); });
  };
  for (const auto& [name, p] : network.named_parameters()) {
    if (!p.requires_grad()) {
      reducer.frozen.push_back(p);
      continue;
    }
    if (is_table(p) && !std::ranges::count(reducer.sparse, trained.size()))
      reducer.sparse.push_back(trained.size());
    trained.push_back(p);
    names.push_back(name);
  }
  ARETE_CHECK(!trained.empty(),
              ValueError("DistributedDataParallel",
                         "DistributedDataParallel is not needed when a module doesn't have any "
                         "parameters that require a gradient."));
  if (options.init_sync) {
    check_same_parameters(*group, trained);
    std::vector<Tensor> all = network.parameters();
    for (const Tensor& b : network.buffers()) all.push_back(b);
    broadcast_coalesced(*group, all);
  }
  if (options.broadcast_buffers) state_->buffers = network.buffers();
  state_->first = trained[0];
  state_->reducer = Reducer::make(std::move(trained), std::move(names), group, reducer);
}

void DataParallel::prepare(const Tensor& first) const {
  State& state = *state_;
  ARETE_CHECK(first.is_same(state.first),
              ValueError("DistributedDataParallel",
                         "nobody reduces the gradients of a clone; wrap a clone of the module"));
  if (is_grad_enabled()) state.reducer->prepare(state.sync);
  if (state.stale && !state.buffers.empty())
    broadcast_coalesced(*state.reducer->group(), state.buffers);
  state.stale = state.sync && is_grad_enabled();
}

}  // namespace arete::distributed
