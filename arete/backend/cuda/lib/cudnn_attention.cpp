#include "arete/backend/cuda/lib/cudnn_attention.h"

#include "arete/base/error.h"

namespace arete::cuda::cudnn {
namespace {

// Note [Attention graphs]
// cuDNN recognises attention by the operations it consists of, so the graphs below must keep to
// the forms its engines know:
//   forward   s = q @ k^T * scale, masked;  m = max(s);  e = exp(s - m);  z = sum(e)
//             lse = m + log(z);  out = (e / z) @ v
//   backward  p = exp(s - lse);             grad_v = p^T @ grad_out
//             row = sum(grad_out * out);    g = p * (grad_out @ v^T - row) * scale
//             grad_k = g^T @ q;             grad_q = g @ k
// The backward engine asks for `row` (multiplied by one, where dropout would scale it) and, unless
// all scores' gradients may lie in its workspace, for the f32 sum of grad_q in memory.
class Builder {
 public:
  Builder(const AttentionKey& key, Graph& graph)
      : a(key),
        g(graph),
        type(*data_type(key.dtype)),
        scores_sizes{a.batch, a.heads, a.q_len, a.kv_len} {}

  void forward();
  void backward();

 private:
  static constexpr cudnnDataType_t f32 = CUDNN_DATA_FLOAT;

  Tensor memory(int64_t id, IntList sizes, const AttentionKey::Strides& strides) {
    return g.tensor(id, type, sizes, strides);
  }
  // The last two dimensions exchanged: the same memory read as a transpose.
  Tensor transposed_memory(int64_t id, IntList sizes, const AttentionKey::Strides& strides) {
    return g.tensor(id, type, {sizes[0], sizes[1], sizes[3], sizes[2]},
                    {strides[0], strides[1], strides[3], strides[2]});
  }
  Tensor scores(cudnnDataType_t t = f32) { return g.intermediate(t, scores_sizes); }
  Tensor transposed_scores() {
    return g.intermediate(type, {a.batch, a.heads, a.kv_len, a.q_len},
                          {a.heads * a.q_len * a.kv_len, a.q_len * a.kv_len, 1, a.kv_len});
  }
  Shape row_sizes() const { return {a.batch, a.heads, a.q_len, 1}; }
  Tensor rows() { return g.intermediate(f32, row_sizes()); }
  Tensor rows_in_memory(int64_t id) {
    const Shape sizes = row_sizes();
    return g.tensor(id, f32, sizes, contiguous_strides(sizes));
  }
  Shape q_sizes() const { return {a.batch, a.heads, a.q_len, a.dim}; }
  Shape k_sizes() const { return {a.batch, a.kv_heads, a.kv_len, a.dim}; }
  Shape v_sizes() const { return {a.batch, a.kv_heads, a.kv_len, a.v_dim}; }
  Shape out_sizes() const { return {a.batch, a.heads, a.q_len, a.v_dim}; }

  Tensor unary(cudnnPointwiseMode_t mode, Tensor x, Tensor y) {
    g.pointwise(mode, f32, y, x);
    return y;
  }
  Tensor binary(cudnnPointwiseMode_t mode, Tensor x, Tensor b, Tensor y) {
    g.pointwise(mode, f32, y, x, b);
    return y;
  }
  Tensor masked(Tensor s);
  // The gradient of k or v: `rows`^T @ `values`, summed over the heads that share one of k or v.
  void gradient(Tensor scores_like, Tensor values, int64_t id, IntList sizes,
                const AttentionKey::Strides& strides);

  const AttentionKey& a;
  Graph& g;
  const cudnnDataType_t type;
  const Shape scores_sizes;
};

Tensor Builder::masked(Tensor s) {
  if (!a.causal) return s;
  const Tensor row = scores(CUDNN_DATA_INT32), column = scores(CUDNN_DATA_INT32),
               is_seen = scores(CUDNN_DATA_BOOLEAN), out = scores();
  g.pointwise(CUDNN_POINTWISE_GEN_INDEX, f32, row, s, nullptr, nullptr, 2);
  g.pointwise(CUDNN_POINTWISE_GEN_INDEX, f32, column, s, nullptr, nullptr, 3);
  g.pointwise(CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, is_seen, row, column);
  g.pointwise(CUDNN_POINTWISE_BINARY_SELECT, f32, out, s, g.scalar(kAttentionMasked, f32, 4),
              is_seen);
  return out;
}

void Builder::forward() {
  const Tensor q = memory(kAttentionQ, q_sizes(), a.q),
               k = transposed_memory(kAttentionK, k_sizes(), a.k),
               v = memory(kAttentionV, v_sizes(), a.v),
               out = memory(kAttentionOut, out_sizes(), a.out);
  const Tensor product = scores();
  g.matmul(f32, q, k, product);
  const Tensor s =
      masked(binary(CUDNN_POINTWISE_MUL, product, g.scalar(kAttentionScale, f32, 4), scores()));
  const Tensor top = rows(), sum = rows();
  g.reduction(CUDNN_REDUCE_TENSOR_MAX, f32, s, top);
  const Tensor e =
      unary(CUDNN_POINTWISE_EXP, binary(CUDNN_POINTWISE_SUB, s, top, scores()), scores());
  g.reduction(CUDNN_REDUCE_TENSOR_ADD, f32, e, sum);
  // Without this cuDNN 9.19 does not know the graph.
  binary(CUDNN_POINTWISE_ADD, top, unary(CUDNN_POINTWISE_LOG, sum, rows()),
         rows_in_memory(kAttentionLse));
  g.matmul(f32, binary(CUDNN_POINTWISE_DIV, e, sum, scores(type)), v, out);
}

void Builder::gradient(Tensor scores_like, Tensor values, int64_t id, IntList sizes,
                       const AttentionKey::Strides& strides) {
  const Tensor transposed = transposed_scores(), out = memory(id, sizes, strides);
  g.reshape(scores_like, transposed);
  if (a.heads == a.kv_heads) return g.matmul(f32, transposed, values, out);
  const Tensor per_head = g.intermediate(type, {sizes[0], a.heads, sizes[2], sizes[3]});
  g.matmul(f32, transposed, values, per_head);
  g.reduction(CUDNN_REDUCE_TENSOR_ADD, f32, per_head, out);
}

void Builder::backward() {
  const Tensor q = memory(kAttentionQ, q_sizes(), a.q),
               k = transposed_memory(kAttentionK, k_sizes(), a.k),
               v = transposed_memory(kAttentionV, v_sizes(), a.v),
               out = memory(kAttentionOut, out_sizes(), a.out),
               grad_out = memory(kAttentionGradOut, out_sizes(), a.grad_out),
               lse = rows_in_memory(kAttentionLse), scale = g.scalar(kAttentionScale, f32, 4);

  const Tensor row_sum = rows(), row = rows_in_memory(kAttentionRowSums);
  const Tensor product_out = binary(
      CUDNN_POINTWISE_MUL, grad_out, out,
      g.intermediate(f32, out_sizes(),
                     {a.heads * a.q_len * a.v_dim, a.q_len * a.v_dim, a.heads * a.v_dim, 1}));
  g.reduction(CUDNN_REDUCE_TENSOR_ADD, f32, product_out, row_sum);
  binary(CUDNN_POINTWISE_MUL, row_sum, g.scalar(kAttentionOne, f32, 4), row);

  const Tensor product = scores();
  g.matmul(f32, q, k, product);
  const Tensor s = binary(CUDNN_POINTWISE_MUL, product, scale, scores());
  const Tensor p =
      unary(CUDNN_POINTWISE_EXP, masked(binary(CUDNN_POINTWISE_SUB, s, lse, scores())), scores());
  gradient(p, grad_out, kAttentionGradV, v_sizes(), a.grad_v);

  const Tensor grad_p = scores();
  g.matmul(f32, grad_out, v, grad_p);
  const Tensor centred = binary(CUDNN_POINTWISE_SUB, grad_p, row, scores());
  const Tensor grad_s = binary(CUDNN_POINTWISE_MUL,
                               binary(CUDNN_POINTWISE_MUL, centred, p, scores()), scale, scores());
  gradient(grad_s, q, kAttentionGradK, k_sizes(), a.grad_k);

  const Tensor k_again = g.intermediate(type, k_sizes(), a.k),
               grad_q = memory(kAttentionGradQ, q_sizes(), a.grad_q);
  g.reshape(k, k_again);
  if (a.deterministic) return g.matmul(f32, grad_s, k_again, grad_q);
  const Shape sizes = q_sizes();
  const Tensor sum = g.tensor(kAttentionSumGradQ, f32, sizes, contiguous_strides(sizes));
  g.matmul(f32, grad_s, k_again, sum);
  unary(CUDNN_POINTWISE_IDENTITY, sum, grad_q);
}

}  // namespace

std::string AttentionKey::to_string() const {
  const auto text = [](const Strides& s) { return arete::to_string(IntList(s)); };
  std::string s = std::string(backward ? "backward pass of attention" : "attention") + " in " +
                  std::string(name_of(dtype)) + ", q " +
                  arete::to_string({batch, heads, q_len, dim}) + " with strides " + text(q) +
                  ", k " + arete::to_string({batch, kv_heads, kv_len, dim}) + " with strides " +
                  text(k) + ", v " + arete::to_string({batch, kv_heads, kv_len, v_dim}) +
                  " with strides " + text(v) + ", out with strides " + text(out);
  if (backward)
    s += ", gradients of out, q, k and v with strides " + text(grad_out) + ", " + text(grad_q) +
         ", " + text(grad_k) + ", " + text(grad_v);
  return s + (causal ? ", causal" : "") + (deterministic ? ", deterministic" : "") +
         ", cuda:" + std::to_string(device);
}

std::unique_ptr<AttentionPlan> make_attention_plan(const AttentionKey& key, const Target& target) {
  auto result = std::make_unique<AttentionPlan>();
  std::string why = "no engine";
  try {
    const auto graph = std::make_shared<Graph>();
    Builder builder(key, *graph);
    if (key.backward)
      builder.backward();
    else
      builder.forward();
    graph->finish(target);
    for (Candidate& c : graph->candidates(CUDNN_HEUR_MODE_A, &why)) {
      if (result->plan) break;
      if (key.deterministic && c.notes.nondeterministic) {
        why = "engine " + std::to_string(c.engine) + " is nondeterministic";
        continue;
      }
      result->plan = Plan::make(graph, std::move(c), &why);
    }
  } catch (const DeviceError& e) {
    why = e.message();
  }
  if (!result->plan)
    note_refusal(key.to_string() + ": " + why);
  else if (logging())
    log(key.to_string() + ": " + result->plan->to_string());
  return result;
}

prim::PlanCache<AttentionKey, AttentionPlan>& attention_plans() {
  static auto* const cache = new prim::PlanCache<AttentionKey, AttentionPlan>(256);
  return *cache;
}

}  // namespace arete::cuda::cudnn
