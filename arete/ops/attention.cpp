// scaled_dot_product_attention (declared in nn.h): two products around a masked softmax.
#include "arete/ops/attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include "arete/expr/program_cache.h"
#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/matmul.h"
#include "arete/ops/nn.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random_internal.h"
#include "arete/ops/softmax.h"
#include "arete/ops/vmap_rules_internal.h"

namespace arete {

namespace {
constinit std::atomic<unsigned> allowed_backends{0b1111};
}

AttentionBackends attention_backends() noexcept {
  const unsigned b = allowed_backends.load(std::memory_order_relaxed);
  return {(b & 1) != 0, (b & 2) != 0, (b & 4) != 0, (b & 8) != 0};
}
void set_attention_backends(const AttentionBackends& b) noexcept {
  allowed_backends.store(unsigned(b.flash) | unsigned(b.mem_efficient) << 1 |
                             unsigned(b.cudnn) << 2 | unsigned(b.math) << 3,
                         std::memory_order_relaxed);
}

namespace ops {

// ---- for batches (Note [Batching rules])
// (B, H, L, D), and masks that broadcast.

namespace vmaps {
namespace {
Results attention_rule_at(const Rewriting& r, size_t first, size_t mask,
                          std::initializer_list<size_t> beside) {
  if (r.batch == 0) return one_by_one(r);
  Changed call(r);
  const int64_t rows = r.call.tensor(first).size(0);
  for (size_t i = first; i < first + 3; ++i) call.set(i, fold(r.whole(i)));
  for (size_t i : beside) call.set(i, fold(r.whole(i)));
  const bool mask_gradient = first == 1 && r.call.boolean(7);
  if (r.call.has(mask)) {
    const Tensor& m = r.call.tensor(mask);
    if (r.is_mapped(mask) || m.size(0) != 1 || mask_gradient) {
      if (mask_gradient && m.size(0) != rows) return one_by_one(r);
      Tensor whole = r.whole(mask);
      Shape sizes(whole.sizes());
      sizes[1] = rows;
      call.set(mask, fold(whole.expand(sizes)));
    }
  }
  Results results = call.run();
  for (size_t i = 0; i < results.size(); ++i)
    results[i] = results[i].numel() || i < 3 ? unfold(results[i], r.batch)
                                             : empty_tensor(with_front(r.batch, r.specs[i].sizes),
                                                            r.specs[i].dtype, *r.specs[i].device);
  return results;
}
Results attention_rule(const Rewriting& r) {
  if (r.call.real(6) > 0 && r.randomness == Randomness::same) return one_by_one(r);
  return attention_rule_at(r, 0, 3, {});
}
Results attention_backward_rule(const Rewriting& r) {
  if (r.call.real(10) > 0 && r.randomness == Randomness::same) return one_by_one(r);
  return attention_rule_at(r, 1, 4, {0, 5, 6});
}
}  // namespace
}  // namespace vmaps
namespace {

Tensor causal_mask(int64_t rows, int64_t columns, Device device) {
  const TensorOptions o(kInt32, device);
  return ge(arange(Scalar(rows), o).unsqueeze(1), arange(Scalar(columns), o));
}

// ---- without storing the scores ----

// The memory order of `like`: heads of queries that are parts of one tensor's rows give such rows
// again, which what follows reads as a matrix.
OutputSpec spec_like(const Tensor& like, Shape sizes) {
  OutputSpec spec{std::move(sizes), like.dtype()};
  const Layout& l = like.layout();
  if (l.is_dense() && l.sizes == spec.sizes) spec.strides = l.strides;
  if (spec.strides || l.strides.back() != 1) return spec;
  for (size_t d = 0; d < l.sizes.size(); ++d)
    if (l.sizes[d] > 1 && l.strides[d] == 0) return spec;  // one element for several
  std::vector<size_t> order(l.sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // The last one stays the inner one, also where it has one element and another one its stride.
  std::ranges::rotate(order, order.end() - 1);
  std::ranges::stable_sort(order.begin() + 1, order.end(), {},
                           [&](size_t d) { return l.strides[d]; });
  spec.strides = Shape(spec.sizes);
  int64_t step = 1;
  for (const size_t d : order) {
    (*spec.strides)[d] = step;
    step *= std::max<int64_t>(1, spec.sizes[d]);
  }
  return spec;
}

// What both records end with; `i` is the first of them.
#define ARETE_ATTENTION_NUMBERS \
  "float scale, bool is_causal, float dropout_p=0.0, int seed=0, int offset=0, int band=0"
prim::AttentionArgs numbers_of(const Call& c, size_t i) {
  prim::AttentionArgs a{};
  a.scale = c.real(i), a.causal = c.boolean(i + 1), a.dropout = c.real(i + 2);
  a.seed = uint64_t(c.integer(i + 3)), a.offset = uint64_t(c.integer(i + 4));
  a.band = c.integer(i + 5);
  return a;
}

const OpRecord& fused_attention_backward_op =
    define(
        "fused_attention_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor? "
        "mask, Tensor output, Tensor lse, bool mask_grad, " ARETE_ATTENTION_NUMBERS
        ") -> (Tensor, Tensor, Tensor, Tensor)")
        .doc(
            "Gradients of fused_attention with respect to query, key and value, and with mask_grad "
            "to the mask (else an empty tensor).")
        .surface(Surface::internal)
        .batched(vmaps::attention_backward_rule)
        .infer([](const Call& c, OutputSpecs& out) {
          for (size_t i : {1, 2, 3})
            out.push_back(spec_like(c.tensor(i), Shape(c.tensor(i).sizes())));
          const bool mask = c.boolean(7);
          out.push_back({mask ? Shape(c.tensor(4).sizes()) : Shape{0}, c.tensor(1).dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          prim::AttentionArgs a = numbers_of(c, 8);
          a.backward = true;
          a.q = view_of(c.tensor(1)), a.k = view_of(c.tensor(2)), a.v = view_of(c.tensor(3));
          if (c.has(4)) a.mask = view_of(c.tensor(4));
          a.out = view_of(c.tensor(5)), a.lse = view_of(c.tensor(6));
          a.grad_out = view_of(c.tensor(0));
          a.grad_q = view_of(out[0]), a.grad_k = view_of(out[1]), a.grad_v = view_of(out[2]);
          if (c.boolean(7)) a.grad_mask = view_of(out[3]);
          p.attention(a);
        });

// The same gradients in operators, to be differentiated again: the scores are stored.
TensorList composed_attention_gradients(const GradCall& g) {
  const Tensor q = g.input(0), gy = g.grad();
  Tensor k = g.input(1), v = g.input(2), mask = g.has_input(3) ? g.input(3) : Tensor();
  const double p = g.real(6);
  const int64_t group = q.size(1) / k.size(1);
  if (group > 1) k = k.repeat_interleave(group, 1), v = v.repeat_interleave(group, 1);
  if (g.boolean(5)) {
    const Tensor causal = causal_mask(q.size(2), k.size(2), q.device());
    mask = !mask.defined()         ? causal
           : mask.dtype() == kBool ? logical_and(mask, causal)
                                   : where(causal, mask, Scalar(-INFINITY));
  }
  const auto kept = [&](const Tensor& x) {
    return p == 0 ? x : seeded_dropout(x, p, g.integer(7), g.integer(8));
  };
  const auto of_groups = [&](const Tensor& x) {
    if (group == 1) return x;
    return x.reshape({x.size(0), x.size(1) / group, group, x.size(2), x.size(3)}).sum(2);
  };
  const Tensor weights = masked_softmax(matmul_scaled(q, k.mT(), g.real(4)), mask);
  const Tensor scores = softmax_backward(kept(matmul(gy, v.mT())), weights, -1);
  TensorList out(4);
  if (g.needs(0)) out[0] = matmul_scaled(scores, k, g.real(4));
  if (g.needs(1)) out[1] = of_groups(matmul_scaled(scores.mT(), q, g.real(4)));
  if (g.needs(2)) out[2] = of_groups(matmul(kept(weights).mT(), gy));
  if (g.needs(3)) out[3] = sum_to_size(scores, g.input_sizes(3));
  return out;
}

const OpRecord& fused_attention_op =
    define(
        "fused_attention(Tensor query, Tensor key, Tensor value, Tensor? "
        "mask, " ARETE_ATTENTION_NUMBERS ") -> (Tensor, Tensor)")
        .doc(
            "scaled_dot_product_attention of (B, H, L, D) tensors without storing all scores, and "
            "the logarithm of each row's sum of exponentials. The mask has four dimensions. band: "
            "how many scores to have at one time (0: as the device likes).")
        .surface(Surface::internal)
        .batched(vmaps::attention_rule)
        .seeded([](const Call& c) { return c.real(6) > 0; })
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor &q = c.tensor(0), &k = c.tensor(1), &v = c.tensor(2);
          ARETE_CHECK(q.dim() == 4 && k.dim() == 4 && v.dim() == 4 && q.size(0) == k.size(0) &&
                          q.size(3) == k.size(3) && k.size(0) == v.size(0) &&
                          k.size(1) == v.size(1) && k.size(2) == v.size(2) && k.size(1) > 0 &&
                          q.size(1) % k.size(1) == 0,
                      ValueError(c.name(), "query, key and value do not fit together")
                          .expected("(B, H, Lq, D), (B, Hk, Lk, D) and (B, Hk, Lk, Dv)")
                          .got(describe(q) + ", " + describe(k) + ", " + describe(v)));
          if (c.has(3)) {
            const Tensor& mask = c.tensor(3);
            bool fits = mask.dim() == 4 && (mask.dtype() == kBool || mask.dtype() == q.dtype());
            const int64_t scores[] = {q.size(0), q.size(1), q.size(2), k.size(2)};
            for (int d = 0; fits && d < 4; ++d)
              fits = mask.size(d) == 1 || mask.size(d) == scores[d];
            ARETE_CHECK(fits, ValueError(c.name(), "the mask does not fit the scores")
                                  .expected("bool or " + std::string(name_of(q.dtype())) +
                                            ", broadcasting to " + to_string(IntList(scores)))
                                  .got(describe(mask)));
          }
          Shape sizes(q.sizes());
          sizes[3] = v.size(3);
          out.push_back(spec_like(q, sizes));
          sizes.pop_back();
          out.push_back({sizes, q.dtype() == kFloat64 ? kFloat64 : kFloat32});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          prim::AttentionArgs a = numbers_of(c, 4);
          a.q = view_of(c.tensor(0)), a.k = view_of(c.tensor(1)), a.v = view_of(c.tensor(2));
          if (c.has(3)) a.mask = view_of(c.tensor(3));
          a.out = view_of(out[0]), a.lse = view_of(out[1]);
          p.attention(a);
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              if (is_grad_enabled()) return composed_attention_gradients(g);
              const Tensor mask = g.has_input(3) ? g.input(3) : Tensor();
              const bool mask_grad = g.has_input(3) && g.needs(3);
              Results r = call_all(fused_attention_backward_op,
                                   {g.grad(), g.input(0), g.input(1), g.input(2), mask, g.output(0),
                                    g.output(1), mask_grad, g.real(4), g.boolean(5), g.real(6),
                                    g.integer(7), g.integer(8), g.integer(9)});
              return {r[0], r[1], r[2], mask_grad ? r[3] : Tensor()};
            },
            0b1111, 0b11)
        .no_grad_outputs(0b10)
        // The logarithms are f32 where the scores may have been rounded to half: tested with those
        // through scaled_dot_product_attention.
        .dtypes({kFloat32, kFloat64})
        .autocast(Autocast::lower)
        .flops([](const Call& c) {
          const Tensor& q = c.tensor(0);
          const double all = 2.0 * double(q.numel()) * double(c.tensor(1).size(2)) *
                             (1 + double(c.tensor(2).size(3)) / double(q.size(3)));
          return c.boolean(5) ? all / 2 : all;
        });
#undef ARETE_ATTENTION_NUMBERS

// Whether the device has a kernel for these elements, not only one in bands.
bool has_kernel(const Tensor& q) {
  const prim::Backend* backend = q.is_meta() ? nullptr : prim::find_backend(q.device());
  return backend && backend->has_own(prim::Primitive::attention, q.dtype());
}
// Whether it is a library's, as far as the sizes tell: half types, as many heads in query as in
// key, not none.
bool is_of_library(const Tensor& q, const Tensor& k, const Tensor& v) {
  return q.dim() == 4 && k.dim() == 4 && v.dim() == 4 && size_of(q.dtype()) == 2 &&
         q.size(0) == k.size(0) && k.size(0) == v.size(0) && k.size(1) == v.size(1) &&
         q.size(1) == k.size(1) && q.size(1) != 0;
}
// Whether our own kernels take heads of these sizes, with masks, dropout and shared heads too. They
// give no gradient of a mask.
bool is_own_size(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) {
  constexpr int64_t kLargest = 128;
  const int64_t smallest = q.dtype() == kFloat32 ? 8 : 1;  // as has_own_kernel() of the backend
  return q.size(-1) >= smallest && q.size(-1) <= kLargest && v.size(-1) <= kLargest &&
         q.numel() != 0 && k.numel() != 0 && v.numel() != 0 &&
         !(mask.defined() && will_record(mask));
}

// Whether to compute in bands. A few scores are cheaper to keep for the backward pass than to
// compute again: on a CPU, measured, below 8 MiB. Bands of a causal mask leave half of them out.
bool has_many_scores(const Tensor& q, const Tensor& k, bool causal) {
  const prim::Backend* backend = prim::find_backend(q.device());
  if (!backend || q.numel() == 0 || k.numel() == 0) return false;
  const int64_t batch =
      std::max(q.numel() / q.size(-2) / q.size(-1), k.numel() / k.size(-2) / k.size(-1));
  const double bytes = double(batch) * double(q.size(-2)) * double(k.size(-2)) *
                       double(size_of(expr::work_dtype(q.dtype())));
  return bytes * (causal ? 2 : 1) >= double(std::max<int64_t>(backend->band_bytes(), 8 << 20));
}

// A call of scaled_dot_product_attention in four dimensions.
struct Heads {
  Tensor q, k, v, mask;
  Shape lead;  // dimensions before the last two of the result
};

// In four dimensions without copies of scores or masks, if that can be.
std::optional<Heads> heads_of(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                              const Tensor& mask, bool grouped) {
  const auto lead_of = [](const Tensor& t) { return t.sizes().first(size_t(t.dim()) - 2); };
  Heads h{q, k, v, mask, Shape(lead_of(q))};
  const bool shared = grouped && q.size(-3) != k.size(-3);
  if (shared) {
    // Heads of q that share one of k stay that: of batches of one shape.
    if (q.dim() > 4 || k.dim() != q.dim() || v.dim() != q.dim() ||
        (q.dim() == 4 && (q.size(0) != k.size(0) || q.size(0) != v.size(0))))
      return std::nullopt;
  } else {
    h.lead = broadcast_shapes(broadcast_shapes(lead_of(q), lead_of(k), op), lead_of(v), op);
  }
  const int64_t rank = int64_t(h.lead.size()) + 2;
  if (mask.defined()) {
    if (mask.dim() > rank || (rank > 4 && mask.dim() > 2)) return std::nullopt;
    while (h.mask.dim() < 4) h.mask = h.mask.unsqueeze(0);
  }
  for (Tensor* t : {&h.q, &h.k, &h.v}) {
    if (!shared) {
      Shape sizes = h.lead;
      for (int64_t d : {-2, -1}) sizes.push_back(t->size(d));
      *t = t->expand(sizes);
      if (rank > 4) *t = t->flatten(0, rank - 4);
    }
    while (t->dim() < 4) *t = t->unsqueeze(0);
  }
  const int64_t scores[] = {h.q.size(0), h.q.size(1), h.q.size(2), h.k.size(2)};
  for (int d = 0; mask.defined() && d < 4; ++d)
    if (h.mask.size(d) != 1 && h.mask.size(d) != scores[d]) return std::nullopt;
  return h;
}

// query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
Tensor attention(const Call& c) {
  const char* op = c.name();
  const Tensor& q = c.tensor(0);
  Tensor k = c.tensor(1), v = c.tensor(2), mask = c.has(3) ? c.tensor(3) : Tensor();
  const bool causal = c.boolean(5);
  ARETE_CHECK(
      q.dim() >= 2 && k.dim() >= 2 && v.dim() >= 2,
      ValueError(
          op,
          "scaled_dot_product_attention: Expected query, key, and value to all be at least 2 "
          "dimensional, but got " +
              std::to_string(q.dim()) + ", " + std::to_string(k.dim()) + " and " +
              std::to_string(v.dim()) + " dimensions"));
  ARETE_CHECK(
      q.dtype() == k.dtype() && q.dtype() == v.dtype(),
      TypeError(op, "Expected query, key, and value to have the same dtype, but got query.dtype: " +
                        std::string(name_of(q.dtype())) +
                        " key.dtype: " + std::string(name_of(k.dtype())) +
                        " and value.dtype: " + std::string(name_of(v.dtype())) + " instead."));
  ARETE_CHECK(!causal || !mask.defined(),
              ValueError(op,
                         "scaled_dot_product_attention: Explicit attn_mask should not be set when "
                         "is_causal=True"));
  ARETE_CHECK(
      q.size(-1) == k.size(-1) && k.size(-2) == v.size(-2),
      ValueError(
          op,
          "scaled_dot_product_attention: query and key must have one last size, key and value one "
          "length")
          .got(describe(q) + ", " + describe(k) + ", " + describe(v)));
  const bool grouped = c.boolean(7);
  ARETE_CHECK(
      !grouped || (q.dim() >= 3 && k.dim() >= 3 && v.dim() >= 3 && k.size(-3) > 0 &&
                   q.size(-3) % k.size(-3) == 0 && k.size(-3) == v.size(-3)),
      ValueError(op, "Number of heads in key and value must divide the number of heads in query")
          .got(describe(q) + ", " + describe(k) + ", " + describe(v)));
  const double p = c.real(4), scale = c.has(6) ? c.real(6) : 1 / std::sqrt(double(q.size(-1)));
  const AttentionBackends allowed = attention_backends();
  ARETE_CHECK(allowed.fused() || allowed.math,
              DeviceError(op,
                          "No viable backend for scaled_dot_product_attention was found. This is "
                          "likely due to turning off both the math kernel and the fused kernels."));
  const bool same_device = q.device() == k.device() && q.device() == v.device();
  const bool only_fused = q.device().is_cuda() && !allowed.math;
  if (mask.defined() && mask.dtype() != kBool && is_floating(mask.dtype()))
    mask = mask.to(q.dtype());
  const bool is_mask = !mask.defined() || mask.dtype() == kBool || is_floating(mask.dtype());
  const bool is_kernel = allowed.fused() && same_device && has_kernel(q);
  const bool takes_kernel = is_kernel && !mask.defined() && p == 0 && is_of_library(q, k, v);
  // Drawing weights again for the backward pass costs more than products of half types do.
  const bool is_cheap = p == 0 || q.dtype() == kFloat32;
  if ((q.device().is_cuda() ? allowed.mem_efficient : allowed.fused()) && same_device &&
      !takes_kernel && is_mask && is_floating(q.dtype()) && !is_float8(q.dtype()) && p >= 0 &&
      p <= 1 &&
      (only_fused || (is_kernel && is_cheap && is_own_size(q, k, v, mask)) ||
       has_many_scores(q, k, causal))) {
    if (const std::optional<Heads> h = heads_of(op, q, k, v, mask, grouped)) {
      Generator::State s{};
      if (p > 0 && p < 1)
        s = default_generator().reserve(
            uint64_t(h->q.size(0) * h->q.size(1) * h->q.size(2) * h->k.size(2) + 3) / 4);
      const Tensor out = call_all(fused_attention_op, {h->q, h->k, h->v, h->mask, scale, causal, p,
                                                       int64_t(s.seed), int64_t(s.offset), 0})[0];
      if (h->lead.size() == 2) return out;
      Shape sizes = h->lead;
      for (int64_t d : {q.size(-2), v.size(-1)}) sizes.push_back(d);
      return out.reshape(sizes);
    }
  }
  if (grouped && q.size(-3) != k.size(-3)) {
    const int64_t repeats = q.size(-3) / k.size(-3);
    k = k.repeat_interleave(repeats, k.dim() - 3);
    v = v.repeat_interleave(repeats, v.dim() - 3);
  }
  if (takes_kernel)
    return call_all(fused_attention_op, {q, k, v, {}, scale, causal, 0.0, 0, 0, 0})[0];
  ARETE_CHECK(!only_fused,
              DeviceError(op, "No available kernel. Aborting execution.")
                  .got(describe(q))
                  .expected("float16 or bfloat16 in four dimensions, as many heads in query as in "
                            "key, no mask, no dropout")
                  .hint("the math and mem_efficient backends, which are turned off, can do it"));
  const Tensor scores = matmul_scaled(q, k.mT(), scale),
               weights = causal ? causal_softmax(scores) : masked_softmax(scores, mask);
  return matmul(dropout(weights, p, p > 0), v);
}

const OpRecord& attention_op =
    define(
        "scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? "
        "attn_mask=None, "
        "float dropout_p=0.0, bool is_causal=False, *, float? scale=None, bool enable_gqa=False) "
        "-> Tensor")
        .autocast(Autocast::lower)
        .doc("softmax(scale * query @ key^T + mask) @ value.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results { return {attention(c)}; });

}  // namespace
}  // namespace ops

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask, double dropout_p, bool is_causal,
                                    std::optional<double> scale, bool enable_gqa) {
  return ops::call(ops::attention_op,
                   {query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa});
}

}  // namespace arete

ARETE_FAMILY(attention)
