// Rules by which calls of records with infer and lower run for a whole batch.
//
// Note [Batching rules]
// Most follow from the schema: an operator that names dimensions works on those and leaves others
// alone, so the batch stands in front and the numbers of dimensions grow by one. The others are
// told apart by what they take as a batch of their own:
//   elementwise  any dimensions: the batch is one more
//   leading      any number of dimensions before the last two: the batch is one more of them
//   folded       the first dimension: the batch is folded into it
// Contractions, norms, look-ups by index and losses have rules of their own, below. Whatever has no
// rule is called once for each element: right, but no faster than a loop.
#include <algorithm>
#include <unordered_map>

#include "arete/core/generator.h"
#include "arete/ops/activation.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/fused_norm.h"
#include "arete/ops/matmul.h"
#include "arete/ops/nll_util.h"
#include "arete/ops/norm.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap_internal.h"

namespace arete::ops::vmaps {

namespace {

using Rule = Results (*)(const Rewriting&);

Shape with_front(int64_t front, IntList sizes) {
  Shape all{front};
  for (int64_t s : sizes) all.push_back(s);
  return all;
}
int64_t rank_of(const Operand& o) { return o.physical.dim() - o.is_mapped; }

// A call with other arguments, which it keeps.
class Changed {
 public:
  explicit Changed(const Rewriting& r)
      : op_(r.call.op), args_(r.call.args().begin(), r.call.args().end()) {
    tensors_.resize(args_.size());
    lists_.resize(args_.size());
    ints_.resize(args_.size());
    for (size_t i = 0; i < args_.size(); ++i)
      if (args_[i].kind() == Arg::Kind::tensor) set(i, r.at(i).physical);
  }
  void set(size_t i, Tensor t) {
    tensors_[i] = std::move(t);
    args_[i] = Arg(tensors_[i]);
  }
  void set(size_t i, std::vector<Tensor> t) {
    lists_[i] = std::move(t);
    args_[i] = Arg(lists_[i]);
  }
  void set(size_t i, Shape s) {
    ints_[i] = std::move(s);
    args_[i] = Arg(ints_[i]);
  }
  void set(size_t i, int64_t v) { args_[i] = Arg(v); }
  void set(size_t i, bool v) { args_[i] = Arg(v); }
  void clear(size_t i) { args_[i] = Arg(); }
  Results run() const { return call_all(op_, args_); }

 private:
  const OpRecord& op_;
  std::vector<Arg> args_;
  std::vector<Tensor> tensors_;
  std::vector<std::vector<Tensor>> lists_;
  std::vector<Shape> ints_;
};

bool is_tensor_at(const Rewriting& r, size_t i) { return r.call[i].kind() == Arg::Kind::tensor; }
bool is_list_at(const Rewriting& r, size_t i) { return r.call[i].kind() == Arg::Kind::tensors; }

// ---- whatever has no rule

Results one_by_one(const Rewriting& r) {
  std::vector<std::vector<Tensor>> parts(r.specs.size());
  Generator* generator = &default_generator();
  for (const Arg& a : r.call.args())
    if (a.generator()) generator = a.generator();
  const Generator::State state = generator->state();
  for (int64_t b = 0; b < r.batch; ++b) {
    if (r.randomness == Randomness::same && b > 0 && !(generator->state() == state))
      generator->set_state(state);
    const auto one = [&](const Operand& o) {
      return o.is_mapped ? o.physical.select(0, b) : o.physical;
    };
    Changed call(r);
    for (size_t i = 0; i < r.tensors.size(); ++i) {
      if (is_tensor_at(r, i)) call.set(i, one(r.at(i)));
      if (is_list_at(r, i)) {
        std::vector<Tensor> list;
        for (const Operand& o : r.tensors[i]) list.push_back(one(o));
        call.set(i, std::move(list));
      }
    }
    const Results results = call.run();
    for (size_t k = 0; k < results.size(); ++k) parts[k].push_back(results[k]);
  }
  Results all;
  for (size_t k = 0; k < parts.size(); ++k)
    all.push_back(parts[k].empty() ? empty_tensor(with_front(0, r.specs[k].sizes), r.specs[k].dtype,
                                                  r.specs[k].device)
                                   : stack(parts[k], 0));
  return all;
}

// ---- classes

// The batch in front of all tensors, and ranks made equal behind it.
Results elementwise(const Rewriting& r) {
  Changed call(r);
  int64_t rank = 0;
  for (size_t i = 0; i < r.tensors.size(); ++i)
    for (const Operand& o : r.tensors[i])
      if (o.physical.defined()) rank = std::max(rank, rank_of(o));
  const auto given = [&](const Operand& o) {
    const Tensor t = r.whole(o);
    return t.defined() && rank_of(o) < rank ? t.reshape(with_ones(t.sizes(), rank - rank_of(o)))
                                            : t;
  };
  for (size_t i = 0; i < r.tensors.size(); ++i) {
    if (is_tensor_at(r, i)) call.set(i, given(r.at(i)));
    if (is_list_at(r, i)) {
      std::vector<Tensor> list;
      for (const Operand& o : r.tensors[i]) list.push_back(given(o));
      call.set(i, std::move(list));
    }
  }
  return call.run();
}

bool names_dimensions(const SchemaArg& a) {
  return a.name.starts_with("dim") && a.type.starts_with("int");
}

// Operators that name the dimensions they work on.
Results by_dimensions(const Rewriting& r) {
  const std::vector<SchemaArg>& schema = schema_of(r.call.op).args;
  Changed call(r);
  bool flat = false;  // all dimensions as one, where there is room for one number only
  for (size_t i = 0; i < schema.size() && i < r.call.size(); ++i)
    flat = flat || (names_dimensions(schema[i]) && schema[i].type == "int?" && r.call[i].is_none());
  const auto given = [&](const Operand& o) {
    const Tensor t = r.whole(o);
    if (!t.defined()) return t;
    if (flat) return t.reshape({r.batch, numel_of(IntList(t.sizes()).subspan(1))});
    return rank_of(o) == 0 ? t.unsqueeze(-1) : t;
  };
  int64_t rank = -1;
  for (size_t i = 0; i < r.tensors.size(); ++i) {
    if (is_tensor_at(r, i)) {
      if (rank < 0) rank = rank_of(r.at(i));
      call.set(i, given(r.at(i)));
    }
    if (is_list_at(r, i)) {
      std::vector<Tensor> list;
      for (const Operand& o : r.tensors[i]) rank = std::max(rank, rank_of(o));
      for (const Operand& o : r.tensors[i]) {
        // Empty vectors are left out of cat(), whatever the rank of the others.
        if (rank == 1 || rank_of(o) != 1 || o.physical.size(-1) != 0) list.push_back(given(o));
      }
      call.set(i, std::move(list));
    }
  }
  rank = std::max<int64_t>(rank, 1);
  for (size_t i = 0; i < schema.size() && i < r.call.size(); ++i) {
    if (!names_dimensions(schema[i])) continue;
    const Arg& a = r.call[i];
    if (a.kind() == Arg::Kind::integer) {
      call.set(i, int64_t(normalize_dim(a.integer(), int(rank), r.call.name()) + 1));
    } else if (flat) {
      call.set(i, int64_t(1));
    } else {
      Shape dims;
      if (a.is_none() || (a.ints().empty() && schema[i].type == "int[]?"))
        for (int64_t d = 0; d < rank; ++d) dims.push_back(d + 1);
      else
        for (int64_t d : a.ints()) dims.push_back(normalize_dim(d, int(rank), r.call.name()) + 1);
      call.set(i, std::move(dims));
    }
  }
  return call.run();
}

// Operators on matrices, with any dimensions before.
Results leading(const Rewriting& r) {
  Changed call(r);
  const std::vector<SchemaArg>& schema = schema_of(r.call.op).args;
  for (size_t i = 0; i < r.tensors.size(); ++i) {
    if (is_list_at(r, i)) return one_by_one(r);
    if (!is_tensor_at(r, i)) continue;
    // A vector, with the batch in front, would be taken for a matrix.
    const bool is_row = schema[i].name.ends_with("pivots") || schema[i].name == "tau";
    if (!is_row && rank_of(r.at(i)) < 2) return one_by_one(r);
    if (rank_of(r.at(i)) != rank_of(r.at(0)) - is_row) return one_by_one(r);
    call.set(i, r.whole(i));
  }
  return call.run();
}
// Operators on the last dimension, with any dimensions before.
Results leading_of_rows(const Rewriting& r) {
  Changed call(r);
  for (size_t i = 0; i < r.tensors.size(); ++i) {
    if (!is_tensor_at(r, i)) continue;
    if (rank_of(r.at(i)) < 1 || rank_of(r.at(i)) != rank_of(r.at(0))) return one_by_one(r);
    call.set(i, r.whole(i));
  }
  return call.run();
}

Tensor fold(const Tensor& t) {
  Shape sizes{t.sizes()[0] * t.sizes()[1]};
  for (int64_t s : t.sizes().subspan(2)) sizes.push_back(s);
  return t.reshape(sizes);
}
Tensor unfold(const Tensor& t, int64_t batch) {
  Shape sizes{batch, batch ? t.sizes()[0] / batch : 0};
  for (int64_t s : t.sizes().subspan(1)) sizes.push_back(s);
  return t.reshape(sizes);
}

// Operators that work on each element of the first dimension of their tensors, but for those in
// `beside` (bit i: argument i), which the batch must share.
Results folded_beside(const Rewriting& r, uint32_t beside) {
  Changed call(r);
  const std::vector<SchemaArg>& schema = schema_of(r.call.op).args;
  if (r.batch == 0) return one_by_one(r);
  for (size_t i = 0; i < r.call.size(); ++i) {
    if (is_list_at(r, i)) return one_by_one(r);
    if (is_tensor_at(r, i)) {
      if (beside >> i & 1) {
        if (r.is_mapped(i)) return one_by_one(r);
        continue;
      }
      if (rank_of(r.at(i)) < 1) return one_by_one(r);
      call.set(i, fold(r.whole(i)));
    } else if (schema[i].name == "input_size") {
      Shape sizes(r.call.ints(i));
      sizes[0] *= r.batch;
      call.set(i, std::move(sizes));
    }
  }
  Results results = call.run();
  for (Tensor& t : results) t = unfold(t, r.batch);
  return results;
}
Results along_first(const Rewriting& r) {
  const Tensor x = r.whole(0);
  if (rank_of(r.at(0)) == 0) return {x.clone()};
  Changed call(r);
  call.set(0, x.movedim(0, 1));
  return {call.run()[0].movedim(1, 0)};
}
Results folded(const Rewriting& r) { return folded_beside(r, 0); }

// ---- sizes and counts by dimension

Results roll_rule(const Rewriting& r) {
  Changed call(r);
  call.set(0, r.whole(0));
  call.set(1, with_front(0, r.call.ints(1)));
  return call.run();
}

Results fourier_rule(const Rewriting& r) {
  if (r.is_mapped(1)) return one_by_one(r);
  Changed call(r);
  Shape dims;
  for (int64_t d : r.call.ints(3)) dims.push_back(d + 1);
  call.set(3, std::move(dims));
  return call.run();
}

// ---- random numbers

// Records that make a tensor of a size.
Results random_of_size(const Rewriting& r) {
  Changed call(r);
  const std::vector<SchemaArg>& schema = schema_of(r.call.op).args;
  for (size_t i = 0; i < schema.size(); ++i)
    if (schema[i].name == "size") call.set(i, with_front(r.batch, r.call.ints(i)));
  return call.run();
}
// Records that draw an element for each of a tensor's.
Results random_elementwise(const Rewriting& r) {
  return r.randomness == Randomness::same ? one_by_one(r) : elementwise(r);
}
Results random_dropout(const Rewriting& r) {
  if (r.randomness == Randomness::different) return elementwise(r);
  // One mask, which is what it makes of ones.
  Changed mask(r);
  const Tensor x = r.whole(0);
  mask.set(0, ones(x.sizes().subspan(1), x.options()));
  return {x * mask.run()[0]};
}

// ---- products

Tensor product(const Operand& a, const Operand& b) {
  const int64_t rank_a = rank_of(a), rank_b = rank_of(b);
  const Tensor &x = a.physical, &y = b.physical;
  // One product with what all share.
  if (a.is_mapped && !b.is_mapped && rank_b <= 2) return matmul(x, y);
  if (!a.is_mapped && rank_a == 2 && rank_b == 1) return matmul(y, x.mT());
  if (!a.is_mapped && rank_a == 1 && rank_b == 1) return matmul(y, x);
  const int64_t rank = std::max<int64_t>({rank_a, rank_b, 2});
  // Matrices with the batch, if they have it, in front of all.
  const auto matrices = [&](const Operand& o, bool is_left) {
    Tensor t = o.physical;
    const int64_t own = rank_of(o);
    if (own == 1) t = t.unsqueeze(is_left ? -2 : -1);
    return o.is_mapped ? t.reshape(with_ones(t.sizes(), rank - std::max<int64_t>(own, 2))) : t;
  };
  Tensor made = matmul(matrices(a, true), matrices(b, false));
  if (rank_b == 1) made = made.squeeze(-1);
  if (rank_a == 1) made = made.squeeze(rank_b == 1 ? -1 : -2);
  return made;
}
Results product_rule(const Rewriting& r) { return {product(r.at(0), r.at(1))}; }

Tensor scaled(const Tensor& t, const Scalar& factor) {
  return factor == Scalar(1) ? t : mul(t, factor);
}
// A tensor with the batch in front and so many dimensions behind it.
Tensor raised(const Operand& o, int64_t rank) {
  const Tensor& t = o.physical;
  return o.is_mapped && rank_of(o) < rank ? t.reshape(with_ones(t.sizes(), rank - rank_of(o))) : t;
}

Results matmul_scaled_rule(const Rewriting& r) {
  return {scaled(product(r.at(0), r.at(1)), Scalar(r.call.real(2)))};
}
Results addmm_rule(const Rewriting& r) {
  const Tensor made = scaled(product(r.at(1), r.at(2)), r.call.scalar(4));
  const int64_t rank = int64_t(r.specs[0].sizes.size());
  if (r.call.scalar(3) == Scalar(0)) return {made};
  return {scaled(raised(r.at(0), rank), r.call.scalar(3)) + made};
}

Operand transposed(const Operand& o) {
  return rank_of(o) < 2 ? o : Operand{o.physical.mT(), o.is_mapped};
}
Results linear_rule(const Rewriting& r) {
  const bool has_bias = r.call.has(2);
  if (!r.is_mapped(1) && !(has_bias && r.is_mapped(2))) {
    Changed call(r);
    return call.run();
  }
  Tensor made = product(r.at(0), transposed(r.at(1)));
  const int64_t rank = int64_t(r.specs[0].sizes.size());
  if (has_bias) made = made + raised(r.at(2), rank);
  return {made};
}
Results feed_forward_rule(const Rewriting& r) {
  for (size_t i = 1; i < 5; ++i)
    if (r.is_mapped(i)) return one_by_one(r);
  return Changed(r).run();
}
Results linear_weight_grad_rule(const Rewriting& r) {
  const Tensor g = r.whole(0), x = r.whole(1);
  const Tensor rows = g.reshape({r.batch, -1, g.size(-1)}),
               inputs = x.reshape({r.batch, rows.size(1), x.size(-1)});
  return {matmul(rows.mT(), inputs), rows.sum({1})};
}

// ---- convolutions: what has weights of its own becomes a group

Tensor groups_of(const Tensor& t) {  // (B, N, C, ...) to (N, B * C, ...)
  const Tensor m = t.movedim(0, 1);
  Shape sizes{m.sizes()[0], m.sizes()[1] * m.sizes()[2]};
  for (int64_t s : m.sizes().subspan(3)) sizes.push_back(s);
  return m.reshape(sizes);
}
Tensor from_groups(const Tensor& t, int64_t batch) {
  Shape sizes{t.sizes()[0], batch, t.sizes()[1] / batch};
  for (int64_t s : t.sizes().subspan(2)) sizes.push_back(s);
  return t.reshape(sizes).movedim(1, 0);
}
Shape scaled_size(IntList sizes, size_t d, int64_t factor) {
  Shape all(sizes);
  all[d] *= factor;
  return all;
}

Results convolution_rule(const Rewriting& r) {
  if (r.batch == 0) return one_by_one(r);
  const bool has_bias = r.call.has(2);
  if (!r.is_mapped(1) && !(has_bias && r.is_mapped(2))) return folded_beside(r, 0b110);
  Changed call(r);
  if (!r.is_mapped(1)) {
    call.set(0, fold(r.whole(0)));
    call.clear(2);
    const Tensor made = unfold(call.run()[0], r.batch);
    Shape sizes(size_t(made.dim()), 1);
    sizes[0] = r.batch;
    sizes[2] = r.at(2).physical.size(-1);
    return {made + r.at(2).physical.reshape(sizes)};
  }
  call.set(0, groups_of(r.whole(0)));
  call.set(1, fold(r.whole(1)));
  if (has_bias) call.set(2, r.whole(2).reshape({-1}));
  call.set(6, r.call.integer(6) * r.batch);
  return {from_groups(call.run()[0], r.batch)};
}
Results convolution_dgrad_rule(const Rewriting& r) {
  if (r.batch == 0) return one_by_one(r);
  if (!r.is_mapped(1)) return folded_beside(r, 0b10);
  Changed call(r);
  call.set(0, groups_of(r.whole(0)));
  call.set(1, fold(r.whole(1)));
  call.set(2, scaled_size(r.call.ints(2), 1, r.batch));
  call.set(6, r.call.integer(6) * r.batch);
  return {from_groups(call.run()[0], r.batch)};
}
Results convolution_wgrad_rule(const Rewriting& r) {
  if (r.batch == 0) return one_by_one(r);
  Changed call(r);
  call.set(0, groups_of(r.whole(0)));
  call.set(1, groups_of(r.whole(1)));
  call.set(2, scaled_size(r.call.ints(2), 0, r.batch));
  call.set(6, r.call.integer(6) * r.batch);
  Results results = call.run();
  for (Tensor& t : results) t = unfold(t, r.batch);
  return results;
}

// ---- norms (Note [One norm] in fused_norm.h)

// What a weight of the norm is in the norm's space.
Tensor weight_in(const Rewriting& r, const Operand& w, IntList shape, IntList weight_shape) {
  Shape sizes{w.is_mapped ? r.batch : 1};
  for (size_t d = weight_shape.size(); d < shape.size(); ++d) sizes.push_back(1);
  for (int64_t s : weight_shape) sizes.push_back(s);
  return w.physical.reshape(sizes);
}
Shape shifted(IntList dims) {
  Shape all;
  for (int64_t d : dims) all.push_back(d + 1);
  return all;
}

// Whether a norm writes statistics of each element; those that all share are written once.
bool has_own_statistics(const Rewriting& r, size_t running, bool once) {
  if (r.is_mapped(running) && r.is_mapped(running + 1)) return true;
  ARETE_CHECK(
      once && !r.is_mapped(running) && !r.is_mapped(running + 1),
      AutogradError(
          "batch_norm",
          "Batch norm got a batched tensor as input while the running_mean or running_var, "
          "which will be updated in place, were not batched.")
          .hint("map over the statistics, too, use a norm without them (GroupNorm), or eval()"));
  return false;
}

Results fused_norm_residual_rule(const Rewriting& r) {
  if (r.call.has(4)) has_own_statistics(r, 4, false);
  return one_by_one(r);
}
Results fused_norm_rule(const Rewriting& r) {
  constexpr size_t kRunning = 3, kShape = 5, kDims = 6, kWeightShape = 7, kRelu = 10;
  const bool tracks = r.call.has(kRunning);
  if (tracks && has_own_statistics(r, kRunning, !r.is_mapped(0))) return one_by_one(r);
  const IntList shape = r.call.ints(kShape), weights = r.call.ints(kWeightShape);
  const bool own_weights = r.is_mapped(1) || r.is_mapped(2);
  Changed call(r);
  if (!tracks) {
    call.set(0, r.whole(0));
    call.set(kShape, with_front(r.batch, shape));
    call.set(kDims, shifted(r.call.ints(kDims)));
  }
  const bool relu = r.call.boolean(kRelu);
  if (!own_weights && !relu) return call.run();
  call.set(kRelu, false);
  call.clear(1);
  call.clear(2);
  Results results = call.run();
  Tensor y = results[0].reshape(with_front(tracks ? 1 : r.batch, shape));
  if (r.call.has(1)) y = y * weight_in(r, r.at(1), shape, weights);
  if (r.call.has(2)) y = y + weight_in(r, r.at(2), shape, weights);
  if (relu) y = arete::relu(y);
  results[0] = y.to(r.specs[0].dtype).reshape(with_front(r.batch, r.specs[0].sizes));
  return results;
}

Results fused_norm_backward_rule(const Rewriting& r) {
  constexpr size_t kOutput = 6, kShape = 7, kDims = 8, kWeightShape = 9, kCenter = 10, kEps = 11,
                   kRelu = 12;
  if (r.call.boolean(kRelu) || r.call.has(kOutput)) return one_by_one(r);
  const Shape shape = with_front(r.batch, r.call.ints(kShape));
  const IntList weights = r.call.ints(kWeightShape);
  const Tensor x = r.whole(1), mean = r.whole(4).detach(), rstd = r.whole(5).detach();
  Tensor g = r.whole(0).reshape(shape);
  Changed call(r);
  Results results{Tensor(), Tensor(), Tensor(), Tensor()};
  Shape sums{r.batch};  // of the weights' gradients
  for (size_t d = weights.size() + 1; d < shape.size(); ++d) sums.push_back(1);
  for (int64_t s : weights) sums.push_back(s);
  const DType work = mean.dtype();
  if (numel_of(r.specs[1].sizes) > 0) {
    // Mean and deviation have no history: where there is one, they are computed again with it.
    Tensor normal;
    if (will_record(x)) {
      normal = std::get<0>(fused_norm(x, {}, {},
                                      {shape, shifted(r.call.ints(kDims)), Shape(weights),
                                       r.call.boolean(kCenter), r.call.real(kEps)}));
      normal = normal.reshape(shape).to(work);
    } else {
      normal = x.reshape(shape).to(work);
      if (r.call.boolean(kCenter))
        normal = normal - mean.reshape(with_front(r.batch, r.call.tensor(4).sizes()));
      normal = normal * rstd.reshape(with_front(r.batch, r.call.tensor(5).sizes()));
    }
    results[1] = sum_to_size(g.to(work) * normal, sums).to(r.specs[1].dtype);
  }
  if (numel_of(r.specs[2].sizes) > 0)
    results[2] = sum_to_size(g.to(work), sums).to(r.specs[2].dtype);
  if (r.call.has(2))
    g = (g.to(work) * weight_in(r, r.at(2), r.call.ints(kShape), weights)).to(g.dtype());
  call.set(0, g.reshape(x.sizes()));
  call.set(1, x);
  call.clear(2);
  call.clear(3);
  call.set(4, mean);
  call.set(5, rstd);
  call.set(kShape, shape);
  call.set(kDims, shifted(r.call.ints(kDims)));
  const Results of_input = call.run();
  results[0] = of_input[0];
  for (size_t i = 1; i < results.size(); ++i)
    if (!results[i].defined())
      results[i] = zeros(with_front(r.batch, r.specs[i].sizes),
                         TensorOptions(r.specs[i].dtype, r.specs[i].device));
  return results;
}

// ---- look-ups by index

// index (B, K) for dimension d of tensors of that rank whose other sizes are those of `like`: what
// gather and scatter take.
Tensor spread_index(const Tensor& index, IntList like, int64_t d) {
  Shape sizes(like.size(), 1), whole(like);
  sizes[0] = index.sizes()[0], sizes[size_t(d)] = index.sizes()[1];
  whole[size_t(d)] = index.sizes()[1];
  return index.reshape(sizes).expand(whole);
}

// index_select, index_add, index_copy and index_fill: (self, dim, index [, source or value]).
Results index_rule(const Rewriting& r) {
  if (rank_of(r.at(0)) == 0) return one_by_one(r);
  const int64_t d = normalize_dim(r.call.integer(1), int(rank_of(r.at(0))), r.call.name()) + 1;
  const bool has_source = r.call.size() > 3 && is_tensor_at(r, 3);
  if (has_source && rank_of(r.at(3)) != rank_of(r.at(0))) return one_by_one(r);
  if (!r.is_mapped(2)) {
    Changed call(r);
    call.set(0, r.whole(0));
    call.set(1, d);
    if (has_source) call.set(3, r.whole(3));
    return call.run();
  }
  const Tensor self = r.whole(0),
               index =
                   spread_index(r.whole(2).to(kInt64).reshape({r.batch, r.call.tensor(2).numel()}),
                                self.sizes(), d);
  const std::string& name = r.call.op.name;
  if (name == "index_select") return {self.gather(d, index)};
  if (name == "index_fill") return {self.scatter(d, index, r.call.scalar(3))};
  if (name == "index_copy") return {self.scatter(d, index, r.whole(3))};
  return {self.scatter_add(d, index, scaled(r.whole(3), r.call.scalar(4)))};
}

Results embedding_rows_rule(const Rewriting& r) {
  if (!r.is_mapped(1)) return Changed(r).run();
  const Tensor weight = r.whole(1),
               index = r.whole(0).to(kInt64).reshape({r.batch, r.call.tensor(0).numel()});
  const Tensor rows = weight.gather(1, spread_index(index, weight.sizes(), 1));
  const int64_t padding = r.call.integer(2);
  if (padding < 0 || !will_record(weight)) return {rows};
  return {where(index.eq(Scalar(padding)).unsqueeze(-1), rows.detach(), rows)};
}
Results embedding_backward_rule(const Rewriting& r) {
  const int64_t rows = r.call.integer(2), padding = r.call.integer(3);
  const int64_t count = r.call.tensor(1).numel();
  const Tensor index = r.whole(1).to(kInt64).reshape({r.batch, count}),
               g = r.whole(0).reshape({r.batch, count, r.call.tensor(0).size(-1)});
  const Tensor none = zeros({r.batch, rows, g.size(2)}, g.options());
  const Tensor made = none.scatter_add(1, spread_index(index, none.sizes(), 1), g);
  if (padding < 0) return {made};
  const Tensor row = arange(rows, TensorOptions(kInt64, made.device())).unsqueeze(-1);
  return {made.masked_fill(row.eq(Scalar(padding)), Scalar(0))};
}

// ---- attention: (B, H, L, D), and masks that broadcast

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
                                                            r.specs[i].dtype, r.specs[i].device);
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

// ---- cross entropy

// One row of logits for each target, without a reduction.
struct Targets {
  Tensor x, target;
  bool is_single;  // the logits of one target have no dimension of targets
};
Targets targets_of(const Rewriting& r, size_t x, size_t target) {
  const bool is_single = rank_of(r.at(x)) == 1;
  const Tensor logits = r.whole(x), classes = r.whole(target);
  return {is_single ? logits : fold(logits), is_single ? classes : fold(classes), is_single};
}
// Of each element, what the weights of its targets add up to.
Tensor total_weight(const Rewriting& r, const Targets& t, size_t weight, int64_t ignore,
                    DType work) {
  Tensor counted = ne(t.target, Scalar(ignore)).to(work);
  if (r.call.has(weight)) {
    const Tensor safe = t.target.clamp(Scalar(0), Scalar(r.at(weight).physical.size(0) - 1));
    counted =
        counted *
        r.at(weight).physical.index_select(0, safe.reshape({-1})).reshape(counted.sizes()).to(work);
  }
  return counted.reshape({r.batch, -1}).sum({1});
}

Results softmax_nll_rule(const Rewriting& r) {
  if (r.batch == 0 || r.is_mapped(2)) return one_by_one(r);
  const int64_t ignore = r.call.integer(3), reduction = r.call.integer(4);
  const Targets t = targets_of(r, 0, 1);
  Changed call(r);
  call.set(0, t.x);
  call.set(1, t.target);
  call.set(4, int64_t(kNone));
  Results results = call.run();
  const DType work = r.specs[2].dtype;
  Tensor total = ones({r.batch}, TensorOptions(work, r.specs[2].device));
  if (reduction == kMean) total = total_weight(r, t, 2, ignore, work);
  if (reduction != kNone) {
    results[0] = results[0].to(work).reshape({r.batch, -1}).sum({1});
    if (reduction == kMean) results[0] = results[0] / total;
    results[0] = results[0].to(r.specs[0].dtype);
  }
  results[2] = total;
  return results;
}
Results softmax_nll_backward_rule(const Rewriting& r) {
  if (r.batch == 0 || r.is_mapped(3)) return one_by_one(r);
  const int64_t reduction = r.call.integer(7);
  const Targets t = targets_of(r, 1, 2);
  Tensor g = r.whole(0);
  Shape for_each(size_t(rank_of(r.at(2))) + 1, 1);
  for_each[0] = r.batch;
  if (reduction != kNone)
    g = g.reshape(for_each).expand(with_front(r.batch, r.call.tensor(2).sizes()));
  // What it is divided by has no gradient.
  g = (g.to(r.call.tensor(5).dtype()) / r.whole(5).detach().reshape(for_each)).to(g.dtype());
  Changed call(r);
  call.set(0, t.is_single ? g : fold(g));
  call.set(1, t.x);
  call.set(2, t.target);
  const Tensor lse = r.whole(4);
  call.set(4, t.is_single ? lse : fold(lse));
  call.set(5, ones({}, r.at(5).physical.options()));
  call.set(7, int64_t(kNone));
  return call.run();
}

Results search_rule(const Rewriting& r) {
  if (rank_of(r.at(0)) == 1 && !r.is_mapped(0)) {
    Changed call(r);
    return call.run();
  }
  if (rank_of(r.at(0)) == 1) {
    Changed call(r);
    call.set(0, r.whole(0));
    call.set(1, r.whole(1).reshape({r.batch, -1}));
    return call.run();
  }
  return leading_of_rows(r);
}

// ---- which rule

const std::unordered_map<std::string_view, Rule>& rules() {
  static const auto* const all = [] {
    auto* m = new std::unordered_map<std::string_view, Rule>;
    const auto are = [m](Rule rule, std::initializer_list<std::string_view> names) {
      for (std::string_view name : names) m->emplace(name, rule);
    };
    are(elementwise, {"complex", "copy", "empty_like", "fill", "flat_index", "frexp", "full_like",
                      "ones_like", "polar", "polygamma", "powers", "to_copy",
                      "view_as_complex_copy", "view_as_real_copy", "zeros_like"});
    are(leading, {"_linalg_eigh",
                  "_linalg_eigvals",
                  "_linalg_solve_ex",
                  "_linalg_svd",
                  "causal_softmax",
                  "cholesky_inverse",
                  "cholesky_solve",
                  "linalg_cholesky_ex",
                  "linalg_det",
                  "linalg_eig",
                  "geqrf",
                  "linalg_inv_ex",
                  "linalg_ldl_factor_ex",
                  "linalg_ldl_solve",
                  "linalg_lu_factor_ex",
                  "linalg_matrix_exp",
                  "linalg_pinv",
                  "linalg_qr",
                  "linalg_slogdet",
                  "linalg_solve_triangular",
                  "lu_solution",
                  "matrix_exp_change",
                  "reflector_columns",
                  "tril",
                  "triu"});
    are(leading_of_rows, {"constant_pad_nd", "lu_permutation"});
    are(folded, {"avg_pool", "avg_pool_backward", "fold", "max_pool", "max_pool_backward",
                 "max_pool_values", "pad_by", "pad_by_backward", "repeat_elements", "sample_grid",
                 "unfold_im2col"});
    are([](const Rewriting& r) { return folded_beside(r, 0b10); }, {"mm_activation_grad"});
    are(roll_rule, {"_roll_dims"});
    are(random_of_size, {"normal.float_float", "rand", "randint.low", "randn"});
    are(random_elementwise, {"bernoulli", "cauchy", "exponential", "geometric", "log_normal",
                             "normal_functional", "normal_numbers", "poisson_numbers", "rand_like",
                             "randn_like", "random_functional", "uniform"});
    are(random_dropout, {"seeded_dropout"});
    are(product_rule, {"bmm", "dot", "matmul", "mm", "mv"});
    are(matmul_scaled_rule, {"matmul_scaled"});
    are(addmm_rule, {"addmm", "baddbmm"});
    are(linear_rule, {"linear"});
    are(feed_forward_rule, {"feed_forward"});
    are(linear_weight_grad_rule, {"linear_weight_grad"});
    are(convolution_rule, {"convolution"});
    are(convolution_dgrad_rule, {"convolution_dgrad"});
    are(convolution_wgrad_rule, {"convolution_wgrad", "convolution_wgrad_bias"});
    are(fused_norm_rule, {"fused_norm"});
    are(fused_norm_backward_rule, {"fused_norm_backward"});
    are(index_rule, {"index_add", "index_copy", "index_fill", "index_select"});
    are(embedding_rows_rule, {"embedding_rows"});
    are(embedding_backward_rule, {"embedding_backward"});
    are(attention_rule, {"fused_attention"});
    are(attention_backward_rule, {"fused_attention_backward"});
    are(softmax_nll_rule, {"softmax_nll"});
    are(softmax_nll_backward_rule, {"softmax_nll_backward"});
    are(fourier_rule, {"fourier_transform"});
    are(search_rule, {"insertion_points"});
    // Their tensors have more to do with each other than the dimensions that they name; the table
    // of a resampling is made for the first dimension, too.
    are(along_first, {"sorted_values"});
    are(fused_norm_residual_rule, {"fused_norm_residual"});
    are(one_by_one, {"ordered_select", "resample"});
    return m;
  }();
  return *all;
}

Rule rule_of(const OpRecord& op) {
  const auto found = rules().find(op.full_name());
  if (found != rules().end()) return found->second;
  if (op.random) return one_by_one;
  return std::ranges::any_of(schema_of(op).args, names_dimensions) ? by_dimensions : one_by_one;
}

}  // namespace

Results rewritten(const Rewriting& r) { return rule_of(r.call.op)(r); }

}  // namespace arete::ops::vmaps
