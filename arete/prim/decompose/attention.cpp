// attention: products around a softmax, band by band of the scores.
//
// Note [Attention in bands]
// The scores of a band are in scratch memory: those of a range of rows (queries) of one or several
// heads, as many as Primitives::band_bytes() says. Forward a band is the product of its scores, one
// fused kernel (mask, softmax, dropout) that gives weights and the logarithm of each row's sum, and
// the product with the values. Backward it computes the scores again, makes the weights from the
// saved logarithms, and adds to the gradients of keys and values: bands of one head run in order,
// so sums have one order. With a causal mask a band takes the keys up to its last row only.
// Dropout's numbers are those that a mask of all scores would have at the same positions, for any
// bands. Heads of q that share one of k are taken one after the other: no key is copied.
#include "arete/prim/decompose/attention_internal.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "arete/base/error.h"
#include "arete/expr/program_cache.h"
#include "arete/prim/decompose/layout_view_internal.h"

namespace arete::prim {
namespace {

using expr::Type;
using expr::Value;
using expr::work_dtype, expr::work_type;
using Values = std::span<const Value>;
using Kind = FusedStage::Kind;

// What programs depend on.
struct Form {
  DType dtype, position;  // of operands; of positions
  bool mask, boolean, causal, dropout;
  uint64_t key() const {
    return pack_key({int(dtype), int(position), mask, boolean, causal, dropout});
  }
};

// The score where the key counts, else -inf. v: score [, mask] [, position of query, of key].
Value masked(Values v, const Form& f) {
  Value x = v[0];
  size_t i = 1;
  if (f.mask) {
    x = f.boolean ? expr::where(v[i], x, -INFINITY) : x + v[i];
    ++i;
  }
  return f.causal ? expr::where(v[i + 1] <= v[i], x, -INFINITY) : x;
}

struct Kernels {
  FusedSpec softmax;  // score..., [kept] -> weight, logarithm of the sum
  expr::ProgramPtr
      gradients;             // score..., lse, weight's gradient, delta, [kept] -> weight, gradient
  expr::ProgramPtr product;  // a, b -> a * b
  expr::ProgramPtr widened;  // a -> a
  expr::ProgramPtr sum;      // sum so far, a -> sum
};

std::unique_ptr<Kernels> make_kernels(const Form& f) {
  auto k = std::make_unique<Kernels>();
  const DType t = f.dtype, w = work_dtype(t);
  const std::vector<DType> out{t}, out_work{w};
  std::vector<DType> score{w};
  if (f.mask) score.push_back(f.boolean ? kBool : t);
  if (f.causal) score.insert(score.end(), {f.position, f.position});
  std::vector<int> reads;
  for (size_t i = 0; i < score.size(); ++i) reads.push_back(int(i));
  const size_t n = score.size();
  std::vector<Type> scale;
  if (f.dropout) scale.push_back(work_type(t));

  FusedSpec& s = k->softmax;
  s.n_inputs = int(n) + f.dropout;
  s.n_outputs = 2;
  const auto stage = [&](Kind kind, std::vector<int> of_scores, std::initializer_list<int> more,
                         const std::vector<DType>& outputs, const expr::Definition& body,
                         Monoid monoid = Monoid::sum, int first = 0) {
    std::vector<DType> types;
    of_scores.insert(of_scores.end(), more);
    for (int r : of_scores) types.push_back(r < 0 ? w : size_t(r) < n ? score[size_t(r)] : kBool);
    const bool scaled = kind == Kind::store && f.dropout;
    s.stages.push_back({kind,
                        expr::trace(body, types, scaled ? scale : std::vector<Type>(), outputs),
                        std::move(of_scores), monoid, first});
  };
  stage(
      Kind::reduce, reads, {}, out_work, [=](Values v) { return std::vector{masked(v, f)}; },
      Monoid::max);
  // A row without any key has weights 0, not NaN.
  stage(Kind::row, {}, {~0}, out_work,
        [](Values v) { return std::vector{expr::where(v[0] == -INFINITY, 0.0, v[0])}; });
  stage(Kind::reduce, reads, {~1}, out_work,
        [=](Values v) { return std::vector{expr::exp(masked(v, f) - v[n])}; });
  stage(Kind::row, {}, {~2}, out_work, [](Values v) {
    return std::vector{expr::where(v[0] == 0.0, 0.0, expr::reciprocal(v[0]))};
  });
  const auto weight = [=](Values v) { return expr::exp(masked(v, f) - v[n]) * v[n + 1]; };
  if (f.dropout)
    stage(Kind::store, reads, {~1, ~3, int(n)}, out,
          [=](Values v) { return std::vector{expr::where(v[n + 2], weight(v) * v[n + 3], 0.0)}; });
  else
    stage(Kind::store, reads, {~1, ~3}, out, [=](Values v) { return std::vector{weight(v)}; });
  stage(
      Kind::store_row, {}, {~1, ~2}, out_work,
      [](Values v) { return std::vector{v[0] + expr::log(v[1])}; }, Monoid::sum, 1);

  std::vector<DType> gradient = score;
  gradient.insert(gradient.end(), {w, w, w});
  if (f.dropout) gradient.push_back(kBool);
  k->gradients = expr::trace(
      [=](Values v) {
        // Of a row without any key the logarithm is -inf, as its scores are.
        const Value lse = expr::where(v[n] == -INFINITY, 0.0, v[n]);
        const Value p = expr::exp(masked(v, f) - lse);
        const auto kept = [&](const Value& x) {
          return f.dropout ? expr::where(v[n + 3], x * v[n + 4], 0.0) : x;
        };
        return std::vector{kept(p), p * (kept(v[n + 1]) - v[n + 2])};
      },
      gradient, scale, std::vector<DType>{t, t});
  k->product = expr::trace(
      [=](Values v) {
        return std::vector{expr::cast(v[0], work_type(t)) * expr::cast(v[1], work_type(t))};
      },
      std::vector<DType>{t, t}, {}, out_work);
  k->widened = expr::trace([=](Values v) { return std::vector{v[0]}; }, out, {}, out_work);
  k->sum = expr::trace([=](Values v) { return std::vector{v[0] + v[1]}; }, std::vector<DType>{w, w},
                       {}, out_work);
  return k;
}

const Kernels& kernels(const Form& f) {
  static auto& cache = *new KeyedCache<Kernels>;  // used until exit
  return cache.get(f.key(), [&] { return make_kernels(f); });
}

// A range of a dimension.
struct Part {
  int64_t first, count, step = 1;
};
using Parts = std::array<Part, 4>;

// Part of a view of four dimensions, or of three, which get a last one. Dimensions of size 1 stay:
// they have one element, or broadcast.
Layout layout_of(const View& v, const Parts& parts) {
  Layout l = layout_of(v);
  if (l.sizes.size() == 3) {
    l.sizes.push_back(1);
    l.strides.push_back(1);
  }
  for (size_t d = 0; d < 4; ++d) {
    if (l.sizes[d] == 1) continue;
    l.offset += parts[d].first * l.strides[d];
    l.sizes[d] = parts[d].count;
    l.strides[d] *= parts[d].step;
  }
  return l;
}
LayoutView part_of(const View& v, const Parts& parts) { return LayoutView(v, layout_of(v, parts)); }

LayoutView transposed(const View& v) {
  Layout l = layout_of(v);
  const size_t n = l.sizes.size();
  std::swap(l.sizes[n - 1], l.sizes[n - 2]);
  std::swap(l.strides[n - 1], l.strides[n - 2]);
  return LayoutView(v, std::move(l));
}

// Scratch memory for the matrices of one kind of all bands, in turn.
class Matrices {
 public:
  Matrices(Primitives& p, DType t, int64_t most) : all_(p, t, {most}) {}
  LayoutView of(const Shape& sizes) const { return LayoutView(all_, Layout(sizes)); }

 private:
  ScratchView all_;
};

// Rows [row, row + rows) of heads h + i of k, of batches b + j, and of those of q that are number
// `member` among the `group` of each; of which `keys` count.
struct Band {
  Part batches, heads;
  int64_t member, group, row, rows, keys;

  Part q_heads() const { return {heads.first * group + member, heads.count, group}; }
  Shape space() const { return {batches.count, heads.count, rows, keys}; }
  Parts queries(int64_t width) const { return {{batches, q_heads(), {row, rows}, {0, width}}}; }
  Parts positions() const { return queries(keys); }
};

// All positions below are numbers of f32, which compare faster than integers.
constexpr int64_t kExactFloats = int64_t(1) << 24;

class Attention {
 public:
  Attention(Primitives& p, const AttentionArgs& a)
      : p_(p),
        a_(a),
        dtype_(a.q.dtype),
        work_(work_dtype(dtype_)),
        group_(a.k.sizes[1] ? a.q.sizes[1] / a.k.sizes[1] : 1),
        queries_(a.q.sizes[2]),
        keys_(a.k.sizes[2]),
        form_{dtype_,       std::max(queries_, keys_) <= kExactFloats ? kFloat32 : kInt64,
              bool(a.mask), a.mask && a.mask.dtype == kBool,
              a.causal,     a.dropout != 0},
        kernel_(kernels(form_)),
        at_most_(scores_at_a_time(p, a)) {
    // Products of fewer rows would read keys and values too often.
    constexpr int64_t kFewestRows = 32, kFewestCausalRows = 128, kCausalBands = 8;
    const int64_t fewest = a.band ? 1 : kFewestRows;
    rows_ = std::clamp(at_most_ / keys_, std::min(fewest, queries_), queries_);
    // More bands, which leave more keys out.
    if (a.causal && !a.band)
      rows_ = std::min(rows_, std::max(kFewestCausalRows, (queries_ - 1) / kCausalBands + 1));
    if (a.causal) {
      positions_.emplace(p, form_.position, Shape{std::max(queries_, keys_)});
      p.iota({.out = *positions_});
    }
  }

  void run(int64_t first, int64_t last) {
    const int64_t heads = a_.k.sizes[1], most = std::max<int64_t>(1, at_most_ / (rows_ * keys_));
    if (!has_independent_heads(a_)) {
      grad_sum_.emplace(p_, work_, a_.grad_mask.sizes);
      p_.fill({.out = *grad_sum_, .value = {.f = 0}});
    }
    while (first < last) {
      Band band{{first / heads, 1}, {first % heads, 1}, 0, group_, 0, rows_, keys_};
      if (band.heads.first == 0 && most >= heads && last - first >= heads) {
        band.heads.count = heads;
        band.batches.count = std::min(most, last - first) / heads;
      } else {
        band.heads.count = std::min({most, heads - band.heads.first, last - first});
      }
      if (a_.backward)
        backward(band);
      else
        forward(band);
      first += band.batches.count * band.heads.count;
    }
    if (grad_sum_) p_.copy({.out = a_.grad_mask, .in = *grad_sum_});
  }

 private:
  // Calls f(band) for all rows of all members of the groups, the last rows first: they see all keys
  // that any row of a causal mask sees.
  template <class F>
  void for_bands(Band band, F&& f) {
    for (band.member = 0; band.member < group_; ++band.member)
      for (int64_t end = queries_; end > 0; end -= band.rows) {
        band.rows = std::min((end - 1) % rows_ + 1, end);
        band.row = end - band.rows;
        band.keys = a_.causal ? std::min(keys_, end) : keys_;
        f(band);
      }
  }

  int64_t largest(const Band& b) const { return b.batches.count * b.heads.count * rows_ * keys_; }

  // Inputs of the programs that say which scores count, from the score on.
  struct ScoreInputs {
    ScoreInputs(const Attention& self, const Band& b, const View& scores) {
      list.push_back(scores);
      if (self.a_.mask)
        list.push_back(mask.emplace(self.a_.mask, layout_of(self.a_.mask, b.positions())));
      if (!self.positions_) return;
      const View& all = *self.positions_;
      Layout of_rows(Shape{b.rows, 1});
      of_rows.offset = b.row;
      list.push_back(rows.emplace(all, of_rows));
      list.push_back(columns.emplace(all, Layout(Shape{1, b.keys})));
    }
    std::optional<LayoutView> mask, rows, columns;
    SmallVector<View, 8> list;
  };

  void multiply_scores(const Band& b, const View& scores) {
    const LayoutView q = part_of(a_.q, b.queries(a_.q.sizes[3])), k = keys_of(a_.k, b),
                     kt = transposed(k);
    p_.gemm({.a = q, .b = kt, .out = scores, .alpha = a_.scale});
  }
  LayoutView keys_of(const View& v, const Band& b) const {
    return part_of(v, {{b.batches, b.heads, {0, b.keys}, {0, v.sizes[3]}}});
  }

  void forward(const Band& group) {
    const bool in_place = dtype_ == work_;
    const Matrices all_scores(p_, work_, largest(group));
    std::optional<Matrices> all_weights;
    if (!in_place) all_weights.emplace(p_, dtype_, largest(group));
    std::optional<Matrices> no_lse;
    if (!a_.lse) no_lse.emplace(p_, work_, largest(group) / keys_);
    const Draw draw(*this, group);
    for_bands(group, [&](const Band& b) {
      const LayoutView scores = all_scores.of(b.space());
      const LayoutView weights = in_place ? all_scores.of(b.space()) : all_weights->of(b.space());
      Shape rows = b.space();
      rows[3] = 1;
      const LayoutView lse = a_.lse ? part_of(a_.lse, b.queries(1)) : no_lse->of(rows);
      multiply_scores(b, scores);
      ScoreInputs inputs(*this, b, scores);
      const std::optional<LayoutView> kept = draw.draw(b);
      if (kept) inputs.list.push_back(*kept);
      const View outputs[]{weights, lse};
      p_.fused({.spec = &kernel_.softmax,
                .space = scores.view().sizes,
                .outer_rank = 3,
                .inputs = {inputs.list.data(), inputs.list.size()},
                .outputs = outputs,
                .params = draw.params()});
      const LayoutView v = keys_of(a_.v, b), out = part_of(a_.out, b.queries(a_.out.sizes[3]));
      p_.gemm({.a = weights, .b = v, .out = out});
    });
  }

  void backward(const Band& group) {
    const bool in_place = dtype_ == work_;
    const Matrices all_scores(p_, work_, largest(group)), all_grads(p_, work_, largest(group)),
        all_deltas(p_, work_, largest(group) / keys_);
    std::optional<Matrices> all_weights, all_results;
    if (!in_place) {
      all_weights.emplace(p_, dtype_, largest(group));
      all_results.emplace(p_, dtype_, largest(group));
    }
    const Draw draw(*this, group);
    const Sum grad_k(*this, group, a_.grad_k), grad_v(*this, group, a_.grad_v);
    if (a_.grad_mask && !grad_sum_ && a_.causal) {  // some scores are in no band
      const LayoutView all =
          part_of(a_.grad_mask, {{group.batches,
                                  {group.heads.first * group_, group.heads.count * group_},
                                  {0, queries_},
                                  {0, keys_}}});
      p_.fill({.out = all, .value = {.f = 0}});
    }
    bool is_first = true;
    for_bands(group, [&](const Band& b) {
      const Shape space = b.space();
      const LayoutView scores = all_scores.of(space), grads = all_grads.of(space);
      // Both are made in place of what they are made of, where dtypes allow.
      const LayoutView weights = in_place ? all_scores.of(space) : all_weights->of(space),
                       results = in_place ? all_grads.of(space) : all_results->of(space);
      multiply_scores(b, scores);
      const LayoutView g = part_of(a_.grad_out, b.queries(a_.out.sizes[3])),
                       out = part_of(a_.out, b.queries(a_.out.sizes[3])), v = keys_of(a_.v, b),
                       vt = transposed(v);
      p_.gemm({.a = g, .b = vt, .out = grads});
      // Of the scores: weight * (its gradient - sum of output * its gradient).
      const LayoutView delta = all_deltas.of({space[0], space[1], space[2], 1}),
                       lse = part_of(a_.lse, b.queries(1));
      const View of_delta[]{g, out};
      p_.reduce({.monoid = Monoid::sum,
                 .space = g.view().sizes,
                 .reduced = 1u << 3,
                 .inputs = of_delta,
                 .out = delta,
                 .prologue = kernel_.product.get()});
      ScoreInputs inputs(*this, b, scores);
      for (const View* more : {&lse.view(), &grads.view(), &delta.view()})
        inputs.list.push_back(*more);
      const std::optional<LayoutView> kept = draw.draw(b);
      if (kept) inputs.list.push_back(*kept);
      const View outputs[]{weights, results};
      p_.pointwise({.program = kernel_.gradients.get(),
                    .inputs = {inputs.list.data(), inputs.list.size()},
                    .outputs = outputs,
                    .params = draw.params()});
      if (a_.grad_mask) add_to_mask(b, results);
      const LayoutView k = keys_of(a_.k, b), q = part_of(a_.q, b.queries(a_.q.sizes[3])),
                       gq = part_of(a_.grad_q, b.queries(a_.q.sizes[3]));
      p_.gemm({.a = results, .b = k, .out = gq, .alpha = a_.scale});
      const LayoutView of_k = transposed(results), of_v = transposed(weights);
      grad_k.add(b, is_first, of_k, q, a_.scale);
      grad_v.add(b, is_first, of_v, g, 1);
      is_first = false;
    });
    grad_k.finish();
    grad_v.finish();
  }

  // The gradient of keys or values, to which the bands of a head add. Not in half types, if there
  // are several.
  class Sum {
   public:
    Sum(const Attention& self, const Band& group, const View& result)
        : p_(self.p_),
          result_(part_of(result,
                          {{group.batches, group.heads, {0, self.keys_}, {0, result.sizes[3]}}})) {
      if (self.work_ != result.dtype && (self.group_ > 1 || self.rows_ < self.queries_))
        wide_.emplace(p_, self.work_, result_.view().sizes);
    }
    void add(const Band& b, bool is_first, const View& matrix, const View& rows,
             double alpha) const {
      const View& all = wide_ ? wide_->view() : result_.view();
      const Part width{0, all.sizes[3]};
      const auto keys = [&](int64_t first, int64_t last) {
        return part_of(all,
                       {{{0, b.batches.count}, {0, b.heads.count}, {first, last - first}, width}});
      };
      const int64_t length = all.sizes[2];
      if (is_first && b.keys < length) {
        const LayoutView unseen = keys(b.keys, length);
        p_.fill({.out = unseen, .value = {.f = 0}});
      }
      const LayoutView seen = keys(0, b.keys);
      p_.gemm({.a = matrix, .b = rows, .out = seen, .alpha = alpha, .beta = is_first ? 0.0 : 1.0});
    }
    void finish() const {
      if (wide_) p_.copy({.out = result_, .in = *wide_});
    }

   private:
    Primitives& p_;
    LayoutView result_;
    std::optional<ScratchView> wide_;
  };

  // Which weights dropout keeps.
  class Draw {
   public:
    Draw(const Attention& self, const Band& group) : self_(self) {
      if (!self.form_.dropout) return;
      const double keep = 1 - self.a_.dropout;
      scale_.f = 1 / keep;
      // Heads whose rows follow each other are drawn in one go.
      in_one_ = group_is_dense(group);
      const int64_t n = group.batches.count * group.heads.count;
      count_ = (in_one_ ? n : 1) * self.rows_ * self.keys_;
      stride_ = (count_ + 6) / 4 * 4;
      memory_.emplace(self.p_, kBool, Shape{stride_ * (in_one_ ? 1 : n)});
    }
    std::span<const expr::Literal> params() const { return {&scale_, size_t(self_.form_.dropout)}; }
    std::optional<LayoutView> draw(const Band& b) const {
      if (!memory_) return std::nullopt;
      const AttentionArgs& a = self_.a_;
      const int64_t keys = self_.keys_, of_head = self_.queries_ * keys;
      const int64_t batches = in_one_ ? 1 : b.batches.count, heads = in_one_ ? 1 : b.heads.count;
      const int64_t count = in_one_ ? b.batches.count * b.heads.count * of_head : b.rows * keys;
      // Numbers come in blocks of four. What is drawn begins at one, and the weights of a head
      // where they happen to: three elements from there at most.
      const Part q_heads = b.q_heads();
      int64_t lead = -1;
      for (int64_t i = 0; i < batches * heads; ++i) {
        const int64_t batch = b.batches.first + i / heads,
                      head = q_heads.first + i % heads * q_heads.step;
        const int64_t at = (batch * a.q.sizes[1] + head) * of_head + b.row * keys;
        if (lead < 0) lead = batches * heads == 1 || of_head % 4 == 0 ? at % 4 : 3;
        Layout l(Shape{at % 4 + count});
        l.offset = i * stride_ + lead - at % 4;
        const LayoutView to(*memory_, l);
        self_.p_.random({.distribution = RandomArgs::Distribution::bernoulli,
                         .out = to,
                         .seed = a.seed,
                         .offset = a.offset + uint64_t(at / 4),
                         .a = 1 - a.dropout,
                         .state = a.state});
      }
      const int64_t next_head = in_one_ ? of_head : stride_;
      return std::optional<LayoutView>(
          std::in_place, *memory_,
          Layout(b.space(), Shape{b.heads.count * next_head, next_head, keys, 1}, lead));
    }

   private:
    bool group_is_dense(const Band&) const {
      return self_.group_ == 1 && self_.rows_ == self_.queries_;
    }
    const Attention& self_;
    expr::Literal scale_{};
    bool in_one_ = false;
    int64_t count_ = 0, stride_ = 0;
    std::optional<ScratchView> memory_;
  };

  // The gradient of an additive mask: sums over what it broadcasts to.
  void add_to_mask(const Band& b, const View& results) {
    if (!grad_sum_) {
      const LayoutView to = part_of(a_.grad_mask, b.positions());
      return p_.copy({.out = to, .in = results});
    }
    const LayoutView sum = part_of(*grad_sum_, b.positions());
    const ScratchView of_band(p_, work_, sum.view().sizes);
    uint32_t reduced = 0;
    for (size_t d = 0; d < 4; ++d)
      if (sum.view().sizes[d] != results.sizes[d]) reduced |= 1u << d;
    p_.reduce({.monoid = Monoid::sum,
               .space = results.sizes,
               .reduced = reduced,
               .inputs = {&results, 1},
               .out = of_band,
               .prologue = kernel_.widened.get()});
    const View inputs[]{sum, of_band};
    p_.pointwise({.program = kernel_.sum.get(),
                  .inputs = inputs,
                  .outputs = {&sum.view(), 1},
                  .params = {}});
  }

  Primitives& p_;
  const AttentionArgs& a_;
  DType dtype_, work_;
  int64_t group_, queries_, keys_;
  Form form_;
  const Kernels& kernel_;
  int64_t at_most_, rows_ = 0;
  std::optional<ScratchView> positions_, grad_sum_;
};

}  // namespace

int64_t scores_at_a_time(const Primitives& p, const AttentionArgs& a) {
  return a.band ? a.band : p.band_bytes() / int64_t(size_of(work_dtype(a.q.dtype)));
}

bool has_independent_heads(const AttentionArgs& a) {
  return !a.grad_mask ||
         (a.grad_mask.sizes[0] == a.q.sizes[0] && a.grad_mask.sizes[1] == a.q.sizes[1] &&
          a.grad_mask.sizes[2] == a.q.sizes[2] && a.grad_mask.sizes[3] == a.k.sizes[2]);
}

void attention_of_heads(Primitives& p, const AttentionArgs& a, int64_t first, int64_t last) {
  Attention(p, a).run(first, last);
}

void Primitives::attention(const AttentionArgs& a) {
  const int64_t heads = a.k.sizes[0] * a.k.sizes[1];
  const auto zero = [&](const View& v, double value = 0) {
    if (v && v.numel() != 0) fill({.out = v, .value = {.f = value}});
  };
  if (heads != 0 && a.q.sizes[2] != 0 && a.k.sizes[2] != 0)
    return attention_of_heads(*this, a, 0, heads);
  if (a.backward) {
    for (const View* v : {&a.grad_q, &a.grad_k, &a.grad_v, &a.grad_mask}) zero(*v);
  } else {
    zero(a.out);
    zero(a.lse, -INFINITY);
  }
}

}  // namespace arete::prim
