// Attention through cuDNN, or by our own kernels.
//
// Note [Which attention on the GPU]
// cuDNN has half types without masks and dropout. What it does not take or refuses goes to the
// kernels of device/attention_tiles.cuh: f32, masks, dropout, heads of any size up to 128. f64,
// larger heads, gradients of masks and calls that say how many scores to store are made of products
// and a softmax, in bands (Note [Attention in bands]).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "arete/backend/cuda/codegen/attention.h"
#include "arete/backend/cuda/codegen/random.h"
#include "arete/backend/cuda/kernel_memo.h"
#include "arete/backend/cuda/lib/cudnn_attention.h"
#include "arete/backend/cuda/lib/library_setup.h"
#include "arete/backend/cuda/stand_in.h"
#include "arete/base/error.h"
#include "arete/prim/cudnn_switches.h"

namespace arete::cuda {
namespace {

using cudnn::AttentionKey;
using cudnn::AttentionPlan;
using prim::AttentionArgs;
using prim::View;

// What cuDNN's kernels read at a time.
constexpr int64_t kBytes = 16;
constexpr int64_t kElements = kBytes / 2;
constexpr int64_t kLargestDim = 256;

bool is_aligned(const View& v) { return reinterpret_cast<uintptr_t>(v.data) % kBytes == 0; }

// Rows of `dim` without gaps that begin at multiples of 16 bytes, no row twice.
bool fits(const View& v) {
  if (!is_aligned(v) || v.strides[3] != 1) return false;
  for (size_t d = 0; d < 3; ++d)
    if (v.sizes[d] != 1 && (v.strides[d] <= 0 || v.strides[d] % kElements != 0)) return false;
  return true;
}
bool lse_fits(const View& v) { return is_aligned(v) && v.is_contiguous(); }

// Strides of the view, or of its stand-in. Those of dimensions of size 1 mean nothing, but cuDNN
// looks at them, and they would make different keys.
AttentionKey::Strides strides_of(const View& v) {
  const Shape dense = contiguous_strides(v.sizes);
  AttentionKey::Strides s;
  for (size_t d = 0; d < 4; ++d) s[d] = v.sizes[d] == 1 || !fits(v) ? dense[d] : v.strides[d];
  return s;
}

void check_args(const AttentionArgs& a) {
  const auto has = [](const View& v, IntList sizes) {
    return v && std::equal(v.sizes.begin(), v.sizes.end(), sizes.begin(), sizes.end());
  };
  ARETE_ASSERT(a.q.rank() == 4 && a.k.rank() == 4 && a.v.rank() == 4);
  const int64_t batch = a.q.sizes[0], heads = a.q.sizes[1], q_len = a.q.sizes[2],
                dim = a.q.sizes[3], kv_heads = a.k.sizes[1], kv_len = a.k.sizes[2],
                v_dim = a.v.sizes[3];
  ARETE_ASSERT(kv_heads > 0 && heads % kv_heads == 0);
  ARETE_ASSERT(has(a.k, {batch, kv_heads, kv_len, dim}));
  ARETE_ASSERT(has(a.v, {batch, kv_heads, kv_len, v_dim}));
  ARETE_ASSERT(has(a.out, {batch, heads, q_len, v_dim}));
  ARETE_ASSERT(!a.lse || (a.lse.dtype == kFloat32 && has(a.lse, {batch, heads, q_len})));
  for (const View* v : {&a.k, &a.v, &a.out}) ARETE_ASSERT(v->dtype == a.q.dtype);
  if (!a.backward) return;
  ARETE_ASSERT(a.lse && has(a.grad_out, a.out.sizes) && has(a.grad_q, a.q.sizes) &&
               has(a.grad_k, a.k.sizes) && has(a.grad_v, a.v.sizes));
  for (const View* v : {&a.grad_out, &a.grad_q, &a.grad_k, &a.grad_v})
    ARETE_ASSERT(v->dtype == a.q.dtype);
}

// What is worth asking cuDNN for. Its backward pass for Blackwell sums in a fixed order only with
// settings that the heuristics do not give.
bool is_eligible(const AttentionArgs& a, const DeviceLimits& limits) {
  const int64_t dim = a.q.sizes[3], v_dim = a.v.sizes[3];
  const auto is_good = [](int64_t d) { return d > 0 && d <= kLargestDim && d % kElements == 0; };
  return (a.q.dtype == kFloat16 || a.q.dtype == kBFloat16) && is_good(dim) && is_good(v_dim) &&
         !a.mask && a.dropout == 0 && a.q.numel() > 0 && a.k.numel() > 0 &&
         !(a.backward && a.context.library_deterministic && limits.major >= 10);
}

AttentionKey key_of(const AttentionArgs& a, int device) {
  AttentionKey key;
  key.batch = a.q.sizes[0], key.heads = a.q.sizes[1], key.q_len = a.q.sizes[2];
  key.dim = a.q.sizes[3], key.v_dim = a.v.sizes[3];
  key.kv_heads = a.k.sizes[1], key.kv_len = a.k.sizes[2];
  key.q = strides_of(a.q), key.k = strides_of(a.k), key.v = strides_of(a.v);
  key.out = strides_of(a.out);
  if (a.backward) {
    key.grad_out = strides_of(a.grad_out), key.grad_q = strides_of(a.grad_q);
    key.grad_k = strides_of(a.grad_k), key.grad_v = strides_of(a.grad_v);
  }
  key.dtype = a.q.dtype;
  key.backward = a.backward;
  key.causal = a.causal;
  // The forward pass has one order of summation anyway.
  key.deterministic = a.backward && a.context.library_deterministic;
  key.device = int8_t(device);
  return key;
}

// Numbers that the kernels get from the host; read when a plan runs.
struct HostNumbers {
  // Versions before 9.10 compute NaN from infinities.
  explicit HostNumbers(double s)
      : scale(float(s)),
        masked(cudnn::library().cudnnGetVersion() < 91000
                   ? std::numeric_limits<float>::lowest()
                   : -std::numeric_limits<float>::infinity()) {}
  float scale, masked, one = 1;
};

// The pointers of one run; only tensors that are in the graph may be bound.
class Bindings {
 public:
  void add(int64_t id, void* data) { list_[n_++] = {id, data}; }
  std::span<const cudnn::Binding> list() const { return {list_.data(), n_}; }

 private:
  std::array<cudnn::Binding, 16> list_{};
  size_t n_ = 0;
};

void run(CudaBackend& backend, const std::shared_ptr<AttentionPlan>& plan, const AttentionKey& key,
         const AttentionArgs& a, CUstream stream) {
  const auto operand = [&](const View& v, bool is_read) {
    return Operand(backend, v, fits(v), contiguous_strides(v.sizes), is_read);
  };
  HostNumbers numbers(a.scale);
  const Operand q = operand(a.q, true), k = operand(a.k, true), v = operand(a.v, true),
                out = operand(a.out, a.backward);
  const size_t rows = size_t(key.batch * key.heads * key.q_len);
  std::optional<Operand> lse;
  if (a.lse)
    lse.emplace(backend, a.lse, lse_fits(a.lse), contiguous_strides(a.lse.sizes), a.backward);
  const Scratch unwanted_lse(backend, lse ? 0 : rows * sizeof(float));

  Bindings b;
  b.add(cudnn::kAttentionQ, q.data());
  b.add(cudnn::kAttentionK, k.data());
  b.add(cudnn::kAttentionV, v.data());
  b.add(cudnn::kAttentionOut, out.data());
  b.add(cudnn::kAttentionLse, lse ? lse->data() : unwanted_lse.data());
  b.add(cudnn::kAttentionScale, &numbers.scale);
  if (a.causal) b.add(cudnn::kAttentionMasked, &numbers.masked);
  const auto execute = [&] {
    const Scratch workspace(backend, plan->plan->workspace_bytes());
    plan->plan->execute(cudnn::handle(key.device, stream), b.list(), workspace.data());
    if (!plan->is_kept) plan->is_kept = keep_if_captured(plan, stream);
  };
  if (!a.backward) {
    execute();
    out.store();
    if (lse) lse->store();
    return;
  }

  const Operand grad_out = operand(a.grad_out, true), grad_q = operand(a.grad_q, false),
                grad_k = operand(a.grad_k, false), grad_v = operand(a.grad_v, false);
  const Scratch row_sums(backend, rows * sizeof(float));
  std::optional<prim::ScratchView> sum_grad_q;
  b.add(cudnn::kAttentionOne, &numbers.one);
  b.add(cudnn::kAttentionGradOut, grad_out.data());
  b.add(cudnn::kAttentionGradQ, grad_q.data());
  b.add(cudnn::kAttentionGradK, grad_k.data());
  b.add(cudnn::kAttentionGradV, grad_v.data());
  b.add(cudnn::kAttentionRowSums, row_sums.data());
  if (!key.deterministic) {
    sum_grad_q.emplace(backend, kFloat32, a.q.sizes);
    // Before 9.6 cuDNN adds to what is there.
    if (cudnn::library().cudnnGetVersion() < 90600)
      backend.fill({.out = *sum_grad_q, .value = {.f = 0}});
    b.add(cudnn::kAttentionSumGradQ, sum_grad_q->view().data);
  }
  execute();
  for (const Operand* o : {&grad_q, &grad_k, &grad_v}) o->store();
}

// Forward passes of so little work that cuDNN's, which clears memory before its kernel, takes
// longer than ours, on the host too.
bool is_little(const AttentionArgs& a) {
  constexpr int64_t kDim = 64, kKeys = 128, kScores = 64 * 64 * kKeys;
  const int64_t rows = a.q.sizes[0] * a.q.sizes[1] * ((a.q.sizes[2] + 63) / 64 * 64);
  return !a.backward && a.q.sizes[3] <= kDim && a.v.sizes[3] <= kDim && a.k.sizes[2] <= kKeys &&
         rows * a.k.sizes[2] <= kScores;
}

// The call by cuDNN. False where it cannot.
bool run_in_library(CudaBackend& backend, const AttentionArgs& args) {
  if (!cudnn_enabled() || !is_eligible(args, backend.limits())) return false;
  check_args(args);
  if (!cudnn::problem().empty()) {
    cudnn::note_refusal(cudnn::problem());
    return false;
  }
  const CUstream stream = backend.enter(args);
  const AttentionKey key = key_of(args, backend.context().ordinal());
  const std::shared_ptr<AttentionPlan> plan = cudnn::attention_plans().get(key, [&] {
    return cudnn::make_attention_plan(
        key, {.handle = cudnn::handle(key.device, stream), .device_json = {}});
  });
  if (!plan->plan) return false;
  const std::lock_guard lock(plan->mutex);
  run(backend, plan, key, args, stream);
  return true;
}

// ---- our own kernels

// Lengths are 32 bits wide, with room for a tile beyond the end.
constexpr int64_t kLongest = int64_t(1) << 30;

// What is known without looking at memory.
AttentionKernel kernel_of(const AttentionArgs& a, const DeviceLimits& limits) {
  const auto padded = [](int64_t dim) { return int(dim + 15) / 16 * 16; };
  AttentionKernel k;
  k.dtype = a.q.dtype;
  k.most_shared = limits.shared_per_block;
  k.dim = padded(a.q.sizes[3]), k.value_dim = padded(a.v.sizes[3]);
  if (a.mask)
    k.mask =
        a.mask.dtype == kBool ? AttentionKernel::Mask::boolean : AttentionKernel::Mask::additive;
  k.causal = a.causal;
  k.tf32 = k.dtype == kFloat32 && a.context.precision != MatmulPrecision::highest;
  return k;
}

// Whether sums of queries' gradients may be made by atomics, in any order: four at a time, which
// Hopper has.
bool adds_in_any_order(const AttentionArgs& a, const DeviceLimits& limits) {
  return a.backward && size_of(a.q.dtype) == 2 && limits.major >= 9 &&
         !a.context.library_deterministic;
}
using Pass = AttentionKernel::Pass;
constexpr Pass kForward[] = {Pass::forward}, kForwardInParts[] = {Pass::forward, Pass::combine},
               kInOrder[] = {Pass::prepare, Pass::queries, Pass::keys},
               kInAnyOrder[] = {Pass::prepare, Pass::gradients, Pass::finish};
std::span<const Pass> passes_of(const AttentionArgs& a, const DeviceLimits& limits) {
  if (!a.backward) return kForward;
  return adds_in_any_order(a, limits) ? kInAnyOrder : kInOrder;
}

bool has_own_kernel(const AttentionArgs& a, const DeviceLimits& limits) {
  const int64_t dim = a.q.sizes[3], v_dim = a.v.sizes[3];
  const auto is_good = [](int64_t d) { return d > 0 && d <= AttentionKernel::kLargestDim; };
  // Scores of few products have a wide range, of which each exponential has the error again; and
  // tiles of eight elements would be padding.
  const int64_t smallest = a.q.dtype == kFloat32 ? 8 : 1;
  // Blocks have at least 64 rows.
  const int64_t longest = std::max(a.q.sizes[2], a.k.sizes[2]),
                blocks = a.q.sizes[0] * a.q.sizes[1] * (longest / 64 + 1);
  if (limits.major < 8 ||
      !(a.q.dtype == kFloat32 || a.q.dtype == kFloat16 || a.q.dtype == kBFloat16) ||
      !is_good(dim) || !is_good(v_dim) || dim < smallest || a.q.numel() == 0 || a.k.numel() == 0 ||
      longest > kLongest || blocks > INT32_MAX || a.grad_mask || a.band != 0 ||
      !(float(a.scale) >= std::numeric_limits<float>::min()))
    return false;
  AttentionKernel k = kernel_of(a, limits);
  return std::ranges::all_of(passes_of(a, limits), [&](Pass pass) {
    k.pass = pass;
    return k.shared_bytes() <= k.most_shared;
  });
}

AttentionMatrix matrix_of(const View& v, const void* data, IntList strides) {
  return {data, v.sizes[0] == 1 ? 0 : strides[0], v.sizes[1] == 1 ? 0 : strides[1],
          v.sizes[2] == 1 ? 0 : strides[2]};
}

class OwnAttention {
 public:
  OwnAttention(CudaBackend& backend, const AttentionArgs& a, CUstream stream)
      : backend_(backend), a_(a), stream_(stream) {}

  void run() {
    Arguments q(*this, a_.q, true), k(*this, a_.k, true), v(*this, a_.v, true),
        out(*this, a_.out, a_.backward);
    AttentionArguments args{};
    args.q = q.matrix, args.k = k.matrix, args.v = v.matrix, args.out = out.matrix;
    args.lse = reinterpret_cast<float*>(a_.lse.data);
    if (a_.lse)
      args.lse_batch = a_.lse.strides[0], args.lse_head = a_.lse.strides[1],
      args.lse_row = a_.lse.strides[2];
    if (a_.mask) set_mask(args);
    args.heads = int32_t(a_.q.sizes[1]), args.group = int32_t(a_.q.sizes[1] / a_.k.sizes[1]);
    args.queries = int32_t(a_.q.sizes[2]), args.keys = int32_t(a_.k.sizes[2]);
    args.dim = int32_t(a_.q.sizes[3]), args.value_dim = int32_t(a_.v.sizes[3]);
    args.scale = float(a_.scale);
    args.parts = 1;

    AttentionKernel kernel = kernel_of(a_, backend_.limits());
    if (a_.dropout != 0) set_dropout(args, kernel);

    if (!a_.backward) {
      // Heads that share keys become the rows of one.
      if (args.queries == 1 && args.group > 1 && !a_.causal && a_.dropout == 0) share_keys(args);
      kernel.few = blocks_of(kernel, args) < backend_.limits().multiprocessors ||
                   2 * args.queries <= kernel.rows();
      run_in_parts(kernel, args);
      return out.operand.store();
    }
    const Arguments grad_out(*this, a_.grad_out, true), grad_q(*this, a_.grad_q, false),
        grad_k(*this, a_.grad_k, false), grad_v(*this, a_.grad_v, false);
    args.grad_out = grad_out.matrix, args.grad_q = grad_q.matrix;
    args.grad_k = grad_k.matrix, args.grad_v = grad_v.matrix;
    const int64_t heads = a_.q.sizes[0] * a_.q.sizes[1];
    const Scratch numbers(backend_, size_t(heads * args.queries) * 2 * sizeof(float));
    args.numbers = reinterpret_cast<float*>(numbers.data());
    std::optional<Scratch> sums;
    if (adds_in_any_order(a_, backend_.limits())) {
      const int64_t padded = (args.queries + 15) / 16 * 16;
      sums.emplace(backend_, size_t(heads * padded * kernel.dim) * sizeof(float));
      args.sums = reinterpret_cast<float*>(sums->data());
    }
    launch(kernel, args, passes_of(a_, backend_.limits()));
    for (const Arguments* g : {&grad_q, &grad_k, &grad_v}) g->operand.store();
  }

 private:
  static void share_keys(AttentionArguments& args) {
    const int64_t group = args.group;
    for (AttentionMatrix* m : {&args.q, &args.out}) m->row = m->head, m->head *= group;
    args.lse_row = args.lse_head, args.lse_head *= group;
    args.mask_query = args.mask_head, args.mask_head *= group;
    args.heads /= args.group;
    args.queries = args.group;
    args.group = 1;
  }

  // The forward pass, with the keys in parts where the rows are too few for all multiprocessors.
  void run_in_parts(AttentionKernel& kernel, AttentionArguments& args) {
    // Steps over the keys that pay for another block and for putting its sums to the others'.
    constexpr int64_t kLeast = 4;
    const AttentionKernel::Layout layout = kernel.layout();
    const int64_t rows = a_.q.sizes[0] * a_.q.sizes[1] * a_.q.sizes[2],
                  room = int64_t(backend_.limits().multiprocessors) * layout.blocks,
                  steps = (args.keys + layout.columns - 1) / layout.columns,
                  parts = std::min(room / blocks_of(kernel, args), steps / kLeast);
    if (parts < 2) return launch(kernel, args, kForward);
    args.parts = int32_t(parts);
    args.all_heads = int32_t(a_.q.sizes[0] * args.heads);
    const Scratch numbers(backend_, size_t(rows * parts) * 2 * sizeof(float)),
        sums(backend_, size_t(rows * parts * kernel.value_dim) * sizeof(float));
    args.numbers = reinterpret_cast<float*>(numbers.data());
    args.sums = reinterpret_cast<float*>(sums.data());
    launch(kernel, args, kForwardInParts);
  }

  // A matrix of the call; a copy where its rows have gaps between elements.
  struct Arguments {
    Arguments(OwnAttention& self, const View& v, bool is_read)
        : strides(contiguous_strides(v.sizes)),
          fits(v.sizes[3] == 1 || v.strides[3] == 1),
          operand(self.backend_, v, fits, strides, is_read),
          matrix(matrix_of(v, operand.data(), fits ? v.strides : IntList(strides))) {
      const int64_t unit = 16 / int64_t(size_of(v.dtype));
      for (int64_t n : {matrix.batch, matrix.head, matrix.row, v.sizes[3]})
        self.are_vectors_ &= n % unit == 0;
      self.are_vectors_ &= reinterpret_cast<uintptr_t>(matrix.data) % 16 == 0;
    }
    Shape strides;
    bool fits;
    Operand operand;
    AttentionMatrix matrix;
  };

  void set_mask(AttentionArguments& args) {
    const View& m = a_.mask;
    const auto stride = [&](size_t d) { return m.sizes[d] == 1 ? 0 : m.strides[d]; };
    args.mask = m.data;
    args.mask_batch = stride(0), args.mask_head = stride(1), args.mask_query = stride(2),
    args.mask_key = stride(3);
    args.mask_vectors = args.mask_key == 1 && reinterpret_cast<uintptr_t>(m.data) % 16 == 0;
    for (int64_t n : {args.mask_batch, args.mask_head, args.mask_query, m.sizes[3]})
      args.mask_vectors &= n * int64_t(size_of(m.dtype)) % 16 == 0;
  }

  void set_dropout(AttentionArguments& args, AttentionKernel& kernel) {
    // lane * 2^-32 < keep
    const double bound = std::ceil(std::ldexp(1 - a_.dropout, 32));
    args.any = bound >= 1 ? ~0u : 0;
    args.last = args.any ? uint32_t(uint64_t(bound) - 1) : 0;
    args.kept_scale = a_.dropout == 1 ? 0 : float(1 / (1 - a_.dropout));  // of sums of nothing
    args.block = a_.offset;
    args.state = backend_.random_state(a_, stream_);
    philox_keys(a_.seed, args.seed);
    kernel.dropout = args.state ? AttentionKernel::Dropout::moved : AttentionKernel::Dropout::fixed;
  }

  int64_t blocks_of(const AttentionKernel& kernel, const AttentionArguments& args) const {
    const bool by_keys = kernel.has_key_rows();
    const int64_t rows = by_keys ? args.keys : args.queries,
                  heads = by_keys ? args.heads / args.group : args.heads;
    return (rows + kernel.rows() - 1) / kernel.rows() * a_.q.sizes[0] * heads;
  }

  void launch(AttentionKernel& kernel, const AttentionArguments& args,
              std::span<const Pass> passes) {
    kernel.vector = are_vectors_;
    for (Pass pass : passes) {
      kernel.pass = pass;
      if (pass == Pass::combine) kernel = kernel.for_combine();
      static thread_local KernelMemo memo;
      const uint64_t words[] = {kernel.number(), uint64_t(backend_.context().ordinal())};
      const Kernel& k = memo.get(backend_, hash_bytes(words, sizeof words),
                                 [&] { return attention_source(kernel); });
      const int warps = kernel.layout().warps;
      const int64_t blocks = pass == Pass::combine
                                 ? (int64_t(args.all_heads) * args.queries + warps - 1) / warps
                             : pass == Pass::forward ? blocks_of(kernel, args) * args.parts
                                                     : blocks_of(kernel, args);
      backend_.launch(k, {unsigned(blocks)}, {unsigned(kernel.threads())},
                      size_t(kernel.shared_bytes()), stream_, args);
    }
  }

  CudaBackend& backend_;
  const AttentionArgs& a_;
  CUstream stream_;
  bool are_vectors_ = true;
};

}  // namespace

void CudaBackend::attention(const AttentionArgs& args) {
  const bool is_ours = is_little(args) && has_own_kernel(args, limits());
  if (!is_ours && run_in_library(*this, args)) return;
  if (!is_ours && !has_own_kernel(args, limits())) return Primitives::attention(args);
  check_args(args);
  OwnAttention(*this, args, enter(args)).run();
}

}  // namespace arete::cuda
