// Cross entropy of logits and classes as one operator, with a fused gradient.
#include <numeric>

#include "arete/ops/call.h"
#include "arete/ops/fused_builder.h"
#include "arete/ops/nll_util.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/softmax.h"
#include "arete/ops/vmap_rules_internal.h"
#include "arete/prim/loop_nest.h"
#include "arete/prim/positions.h"

namespace arete {
namespace ops {

// ---- for batches (Note [Batching rules])

namespace vmaps {
namespace {
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
  Tensor total = ones({r.batch}, TensorOptions(work, *r.specs[2].device));
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
}  // namespace
}  // namespace vmaps
namespace {

using expr::Type;
using expr::Value;
using Values = FusedBuilder::Values;
using prim::Monoid;
using prim::ScratchView;
using prim::View;

Layout at_least_1d(const Layout& l) {
  return l.sizes.empty() ? Layout(IntList{1}, IntList{1}, l.offset) : l;
}

expr::Literal integer_literal(int64_t v) {
  expr::Literal l;
  l.i = v;
  return l;
}

struct Views {
  Layout x, rows, target;  // x with classes last; target and row values with a last size of 1
  DType work;
};

Views views_of(const Tensor& x, const Tensor& target) {
  Views v;
  v.x = dim_last(x.layout(), int64_t(class_dim(x)));
  if (x.dim() == 1) v.x = unsqueeze(v.x, 0);
  v.target = unsqueeze(at_least_1d(target.layout()), -1);
  v.rows = Layout(v.target.sizes);
  v.work = work_dtype(x.dtype());
  return v;
}

const prim::FusedSpec& lse_spec(DType in) {
  static SpecCache cache;
  return cache.get(pack_key({int(in)}), [&] {
    FusedBuilder b({in}, {work_dtype(in)});
    const int m = b.reduce(Monoid::max, {0}, [](Values v) { return std::vector{v[0]}; });
    const int s =
        b.reduce(Monoid::sum, {0, m}, [](Values v) { return std::vector{exp(v[0] - v[1])}; });
    b.store_row({m, s}, 0, 1, [](Values v) { return std::vector{v[0] + log(v[1])}; });
    return b.finish();
  });
}

// Sums of so few losses are one row of a kernel, more are divided among threads.
constexpr int64_t kFewTargets = 16384;

// in[.., target[.., 0]] with classes last: 0 where it is ignored.
void pick(prim::Primitives& p, const View& in, const View& target, int64_t ignore,
          const View& out) {
  prim::GatherArgs g{in, target, out, in.rank() - 1, "cross_entropy"};
  g.leaves_out = true;
  g.left_out = ignore;
  p.gather(g);
}

// Picks nothing: an error of the device where a target is out of range.
void check_classes(prim::Primitives& p, const View& target, int64_t classes, int64_t ignore) {
  Shape sizes(target.sizes), strides(target.strides);
  sizes.back() = classes, strides.back() = 0;
  View same = target;
  same.sizes = sizes, same.strides = strides;
  pick(p, same, target, ignore, ScratchView(p, kInt64, target.sizes));
}

// The weight of each target.
void weight_of(prim::Primitives& p, const Tensor& weight, const View& target, int64_t ignore,
               const View& out) {
  Shape sizes(target.sizes), strides(sizes.size(), 0);
  sizes.back() = weight.numel();
  strides.back() = weight.layout().strides[0];
  View in = view_of(weight);
  in.sizes = sizes, in.strides = strides;
  pick(p, in, target, ignore, out);
}

// Of a target, its row's lse, its logit[, its weight] and the class to ignore: its loss.
Value loss_of(Values v, bool weighted) {
  const Value loss = v[1] - v[2];
  return where(v[0] == v.back(), 0.0, weighted ? loss * v[3] : loss);
}

// Of a target[, its weight] and the class to ignore: what counts of it in a mean.
Value weight_in_mean(Values v, bool weighted, DType work) {
  const Value ignored = v[0] == v.back();
  return weighted ? where(ignored, 0.0, cast(v[1], work_type(work)))
                  : cast(!ignored, work_type(work));
}

// The sum of all targets, which are one row.
const prim::FusedSpec& weights_spec(const std::vector<DType>& inputs, DType work) {
  static SpecCache cache;
  const bool weighted = inputs.size() > 1;
  return cache.get(pack_key({int(work), weighted ? int(inputs[1]) : 31}), [&] {
    FusedBuilder b(inputs, {work}, {Type::i64});
    const std::vector<int> all = weighted ? std::vector{0, 1} : std::vector{0};
    const int sum = b.reduce(
        Monoid::sum, all, [&](Values v) { return std::vector{weight_in_mean(v, weighted, work)}; });
    b.store_row({sum}, 0, 1, [](Values v) { return std::vector{v[0]}; });
    return b.finish();
  });
}

// The same of losses, divided by the last input if there is one for a mean.
const prim::FusedSpec& losses_spec(const std::vector<DType>& inputs, DType result, bool weighted,
                                   bool mean) {
  static SpecCache cache;
  const std::vector key{int(inputs[2]), weighted ? int(inputs[3]) : 31, int(result), int(mean)};
  return cache.get(pack_key({key[0], key[1], key[2], key[3]}), [&] {
    FusedBuilder b(inputs, {result}, {Type::i64});
    std::vector<int> all{0, 1, 2};
    if (weighted) all.push_back(3);
    std::vector<int> sums{
        b.reduce(Monoid::sum, all, [&](Values v) { return std::vector{loss_of(v, weighted)}; })};
    if (mean) sums.push_back(int(all.size()));
    b.store_row(sums, 0, 1, [&](Values v) { return std::vector{mean ? v[0] / v[1] : v[0]}; });
    return b.finish();
  });
}

// Note [Few logits]
// A kernel that has a thread for each target, which sees its logits one by one, makes losses, their
// sum and gradients at once. That pays where there are so few that launches are most of the time;
// the logits are operands by themselves, so that there may be only as many as a kernel takes beside
// their gradients. On CPUs few more logits are more work than a kernel that goes along them. The
// targets are checked by a kernel of its own, which waits for nothing, and nothing for it.
constexpr int64_t kFewLogitTargets = 1024;
constexpr int64_t kFewClassesOnCpu = 4;
constexpr size_t kBesideLogits =
    4;  // target, loss, sum of weights, and lse or the incoming gradient

bool has_few_logits(const Tensor& x, const Tensor& target, bool weighted) {
  const size_t classes = size_t(x.sizes()[class_dim(x)]);
  return x.numel() > 0 && target.numel() <= kFewLogitTargets &&
         (!x.device().is_cpu() || int64_t(classes) <= kFewClassesOnCpu) &&
         2 * classes + kBesideLogits + size_t(weighted) <= size_t(prim::LoopNest::kMaxOperands);
}

// The logits of class `c`, or their gradients, of a view with classes last.
View of_class(const View& all, IntList rows, int64_t c) {
  View one = all;
  one.data += c * all.strides.back() * int64_t(size_of(all.dtype));
  one.sizes = rows;
  return one;
}

// One row of all targets, whose elements read the target's logits, the target[, its weight], and
// the class to ignore.
const prim::FusedSpec& few_logits_spec(DType x, int64_t classes, DType work, DType weight,
                                       DType result, bool weighted, bool mean) {
  static SpecCache cache;
  const std::vector key{int(x),      int(classes), int(work), weighted ? int(weight) : 31,
                        int(result), int(mean)};
  return cache.get(pack_key({key[0], key[1], key[2], key[3], key[4], key[5]}), [&] {
    const size_t n = size_t(classes);
    std::vector<DType> inputs(n, x);
    inputs.push_back(kInt64);
    if (weighted) inputs.push_back(weight);
    FusedBuilder b(inputs, mean ? std::vector{result, work, work} : std::vector{result, work},
                   {Type::i64});
    std::vector<int> all(inputs.size());
    std::iota(all.begin(), all.end(), 0);
    const auto lse = [=](Values v) {
      Value most = v[0];
      for (size_t c = 1; c < n; ++c) most = max(most, v[c]);
      Value sum = exp(v[0] - most);
      for (size_t c = 1; c < n; ++c) sum = sum + exp(v[c] - most);
      return cast(most + log(sum), work_type(work));
    };
    const int loss = b.reduce(Monoid::sum, all, [&](Values v) {
      Value picked = v[0];
      for (size_t c = 1; c < n; ++c) picked = where(v[n] == double(c), v[c], picked);
      std::vector<Value> of_loss{v[n], lse(v), picked}, of_weight{v[n]};
      if (weighted) of_loss.push_back(v[n + 1]), of_weight.push_back(v[n + 1]);
      of_loss.push_back(v.back()), of_weight.push_back(v.back());
      std::vector sums{loss_of(of_loss, weighted)};
      if (mean) sums.push_back(weight_in_mean(of_weight, weighted, work));
      return sums;
    });
    b.store(std::vector(all.begin(), all.begin() + classes), 1, 1,
            [&](Values v) { return std::vector{lse(v)}; });
    if (mean) {
      b.store_row({loss - 1}, 2, 1, [](Values v) { return std::vector{v[0]}; });
      b.store_row({loss, loss - 1}, 0, 1, [](Values v) { return std::vector{v[0] / v[1]}; });
    } else {
      b.store_row({loss}, 0, 1, [](Values v) { return std::vector{v[0]}; });
    }
    return b.finish();
  });
}

void softmax_nll_infer(const Call& call, OutputSpecs& out) {
  const Tensor &x = call.tensor(0), &target = call.tensor(1);
  check_targets("cross_entropy", x, target);
  if (call.has(2)) check_weight("cross_entropy", x, call.tensor(2));
  const DType work = work_dtype(x.dtype());
  out.push_back({call.integer(4) == kNone ? Shape(target.sizes()) : Shape(),
                 call.has(5) ? call[5].dtype() : x.dtype()});
  out.push_back({Shape(target.sizes()), work});
  out.push_back({Shape(), work});
}

void softmax_nll_lower(const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
  static ProgramCache loss_programs, weight_programs, divide_programs;
  const Tensor &x = call.tensor(0), &target = call.tensor(1);
  const Tensor weight = call.has(2) ? call.tensor(2) : Tensor();
  const int64_t ignore = call.integer(3), reduction = call.integer(4);
  check_range("cross_entropy", target, x.sizes()[class_dim(x)], ignore);
  const Views v = views_of(x, target);
  const View xv = view_of(x, v.x), tv = view_of(target, v.target);
  const View lse = view_of(out[1], v.rows);
  const bool few = reduction != kNone && has_few_logits(x, target, weight.defined());
  std::optional<ScratchView> picked;
  if (!few)
    picked.emplace(p, x.dtype(), v.rows.sizes);
  else if (!weight.defined())  // else looking for weights is a check
    check_classes(p, tv, v.x.sizes.back(), ignore);
  if (picked && x.numel() > 0) {
    p.fused({&lse_spec(x.dtype()), xv.sizes, xv.rank() - 1, {&xv, 1}, {&lse, 1}, {}});
    pick(p, xv, tv, ignore, *picked);
  }
  std::optional<ScratchView> weights;
  std::vector<DType> types{kInt64, v.work, x.dtype()};
  SmallVector<View, 5> inputs{tv, lse};
  if (picked) inputs.push_back(*picked);
  if (weight.defined()) {
    weight_of(p, weight, tv, ignore, weights.emplace(p, weight.dtype(), v.rows.sizes));
    types.push_back(weight.dtype());
    inputs.push_back(*weights);
  }
  const std::span<const View> all{inputs.data(), inputs.size()};
  const expr::Literal param = integer_literal(ignore);
  const Layout ones(Shape(v.rows.sizes.size(), 1));
  Layout at_loss = ones, at_total = ones;
  at_loss.offset = out[0].storage_offset();
  at_total.offset = out[2].storage_offset();
  const View total = view_of(out[2], at_total);

  const View loss = view_of(out[0], at_loss);
  SmallVector<View, 2> counted{tv};
  std::vector<DType> counted_types{kInt64};
  if (weights) {
    counted.push_back(*weights);
    counted_types.push_back(weight.dtype());
  }
  const std::span<const View> of_weights{counted.data(), counted.size()};
  expr::Literal one;
  one.f = 1;
  if (reduction != kMean) p.fill({total, one});
  if (few) {
    const int64_t classes = v.x.sizes.back();
    const bool mean = reduction == kMean;
    SmallVector<View, 16> read;
    for (int64_t c = 0; c < classes; ++c) read.push_back(of_class(xv, v.rows.sizes, c));
    read.push_back(tv);
    if (weights) read.push_back(*weights);
    const View written[3] = {loss, lse, total};
    return p.fused({&few_logits_spec(x.dtype(), classes, v.work, weights ? weight.dtype() : v.work,
                                     out[0].dtype(), bool(weights), mean),
                    v.rows.sizes,
                    0,
                    {read.data(), read.size()},
                    {written, size_t(mean ? 3 : 2)},
                    {&param, 1}});
  }
  // Gradients need the sum of weights, and may be made for some rows before the losses of others
  // are known (compile/bands.cpp): so it is not one call with the sum of losses.
  if (reduction != kNone && target.numel() > 0 && target.numel() <= kFewTargets) {
    const bool mean = reduction == kMean;
    if (mean) {
      p.fused({&weights_spec(counted_types, v.work),
               v.rows.sizes,
               0,
               of_weights,
               {&total, 1},
               {&param, 1}});
      types.push_back(v.work);
      inputs.push_back(total);
    }
    p.fused({&losses_spec(types, out[0].dtype(), bool(weights), mean),
             v.rows.sizes,
             0,
             {inputs.data(), inputs.size()},
             {&loss, 1},
             {&param, 1}});
    return;
  }
  const DType result = reduction == kNone ? out[0].dtype() : v.work;
  const int weight_type = weights ? int(weight.dtype()) : 31;
  const expr::Program& losses =
      loss_programs.get(pack_key({int(x.dtype()), weight_type, int(result)}), types, {Type::i64},
                        {result}, [&](Values u) { return std::vector{loss_of(u, bool(weights))}; });
  if (reduction == kNone) {
    Layout l = v.rows;
    l.offset = out[0].storage_offset();
    const View o = view_of(out[0], l);
    return p.pointwise({&losses, all, {&o, 1}, {&param, 1}});
  }
  const ScratchView sum(p, v.work, ones.sizes);
  prim::ReduceArgs r{};
  r.monoid = Monoid::sum;
  r.space = v.rows.sizes;
  r.reduced = (1u << v.rows.sizes.size()) - 1;
  r.inputs = all;
  r.out = sum;
  r.prologue = &losses;
  r.params = {&param, 1};
  p.reduce(r);
  if (reduction == kSum) return p.copy({loss, sum});
  r.inputs = of_weights;
  r.out = total;
  r.prologue = &weight_programs.get(
      pack_key({int(v.work), weight_type}), counted_types, {Type::i64}, {v.work},
      [&](Values u) { return std::vector{weight_in_mean(u, bool(weights), v.work)}; });
  p.reduce(r);
  const expr::Program& divide =
      divide_programs.get(pack_key({int(v.work), int(out[0].dtype())}), {v.work, v.work}, {},
                          {out[0].dtype()}, [](Values u) { return std::vector{u[0] / u[1]}; });
  const View parts[2] = {sum, total};
  p.pointwise({&divide, parts, {&loss, 1}, {}});
}

// What a row's gradient is scaled by. Of a target, the incoming gradient, the sum of weights[, its
// weight] and the class to ignore.
Value row_scale(Values v, bool weighted) {
  Value s = v[1] / v[2];
  if (weighted) s = s * v[3];
  return where(v[0] == v.back(), 0.0, s);
}

// Of so few that a kernel sees the logits of a target one by one: Note [Few logits].
const expr::Program& few_logits_gradient(DType x, int64_t classes, DType work, DType grad,
                                         DType weight, bool weighted) {
  static ProgramCache cache;
  std::vector<DType> types{kInt64, grad, work};
  if (weighted) types.push_back(weight);
  const size_t first = types.size() + 1, n = size_t(classes);
  types.push_back(work);
  types.insert(types.end(), n, x);
  return cache.get(
      pack_key({int(x), int(classes), int(work), int(grad), weighted ? int(weight) : 31}), types,
      {Type::i64}, std::vector<DType>(n, x), [&](Values v) {
        std::vector<Value> of_scale(v.begin(), v.begin() + std::ptrdiff_t(first - 1));
        of_scale.push_back(v.back());
        const Value scale = row_scale(of_scale, weighted), counts = v[0] != v.back();
        std::vector<Value> gradients;
        for (size_t c = 0; c < n; ++c) {
          const Value q = exp(v[first + c] - v[first - 1]);
          gradients.push_back(where((v[0] == double(c)) & counts, q - 1.0, q) * scale);
        }
        return gradients;
      });
}

// grad, input, target, weight, lse, total_weight, ignore_index, reduction
void softmax_nll_backward_lower(const Call& call, std::span<const Tensor> out,
                                prim::Primitives& p) {
  static ProgramCache scale_programs, grad_programs;
  const Tensor &grad = call.tensor(0), &x = call.tensor(1), &target = call.tensor(2);
  const Tensor weight = call.has(3) ? call.tensor(3) : Tensor();
  if (x.numel() == 0) return;
  const int64_t ignore = call.integer(6);
  const Views v = views_of(x, target);
  const View tv = view_of(target, v.target);
  std::optional<ScratchView> weights;
  if (weight.defined())
    weight_of(p, weight, tv, ignore, weights.emplace(p, weight.dtype(), v.rows.sizes));
  const Layout grad_layout =
      grad.dim() == 0 ? at_least_1d(grad.layout()) : unsqueeze(grad.layout(), -1);
  const Layout total_layout = at_least_1d(call.tensor(5).layout());
  SmallVector<View, 4> inputs{tv, view_of(grad, grad_layout),
                              view_of(call.tensor(5), total_layout)};
  std::vector<DType> types{kInt64, grad.dtype(), v.work};
  if (weights) {
    inputs.push_back(*weights);
    types.push_back(weight.dtype());
  }
  const expr::Literal param = integer_literal(ignore);
  const Layout lse_layout = unsqueeze(at_least_1d(call.tensor(4).layout()), -1);
  Layout out_layout = dim_last(out[0].layout(), int64_t(class_dim(x)));
  if (x.dim() == 1) out_layout = unsqueeze(out_layout, 0);
  const View xv = view_of(x, v.x), lse = view_of(call.tensor(4), lse_layout);
  const View o = view_of(out[0], out_layout);
  if (has_few_logits(x, target, bool(weights))) {
    SmallVector<View, 24> read;
    SmallVector<View, 16> written;
    read.append(inputs.begin(), inputs.end());
    read.push_back(lse);
    for (int64_t c = 0; c < o.sizes.back(); ++c) {
      read.push_back(of_class(xv, v.rows.sizes, c));
      written.push_back(of_class(o, v.rows.sizes, c));
    }
    return p.pointwise({&few_logits_gradient(x.dtype(), o.sizes.back(), v.work, grad.dtype(),
                                             weights ? weight.dtype() : v.work, bool(weights)),
                        {read.data(), read.size()},
                        {written.data(), written.size()},
                        {&param, 1}});
  }
  // For each target: what its row is scaled by, and the class (-1 where ignored) as i32.
  const ScratchView scale(p, v.work, v.rows.sizes), label(p, kInt32, v.rows.sizes);
  const expr::Program& prepare = scale_programs.get(
      pack_key({int(grad.dtype()), int(v.work), weights ? int(weight.dtype()) : 31}), types,
      {Type::i64}, {v.work, kInt32}, [&](Values u) {
        return std::vector{row_scale(u, bool(weights)),
                           where(u[0] == u.back(), -1.0, cast(u[0], Type::i32))};
      });
  const View prepared[2] = {scale, label};
  p.pointwise({&prepare, {inputs.data(), inputs.size()}, prepared, {&param, 1}});

  const prim::Positions columns(p, kInt32, v.x.sizes.back());
  const View all[5] = {xv, lse, scale, label, columns.all()};
  const expr::Program& program =
      grad_programs.get(pack_key({int(x.dtype()), int(v.work)}),
                        {x.dtype(), v.work, v.work, kInt32, kInt32}, {}, {x.dtype()}, [](Values u) {
                          const Value q = exp(u[0] - u[1]);
                          return std::vector{where(u[3] == u[4], q - 1.0, q) * u[2]};
                        });
  p.pointwise({&program, all, {&o, 1}, {}});
}

Tensor softmax_nll_backward(const Tensor& grad, const Tensor& x, const Tensor& target,
                            const Tensor& weight, const Tensor& lse, const Tensor& total,
                            int64_t ignore, int64_t reduction);

// The factor of each row's gradient but the incoming one, by operators.
Tensor row_factors(const Tensor& target, const Tensor& weight, const Tensor& total, int64_t ignore,
                   DType dtype) {
  const Tensor valid = ne(target, Scalar(ignore));
  Tensor f = valid.to(total.dtype());
  if (weight.defined()) {
    const Tensor safe = where(valid, target, Scalar(0));
    f = f.mul(weight.index_select(0, safe.reshape({safe.numel()})).view(safe.sizes()));
  }
  return f.div(total.detach()).to(dtype);  // which depends on targets and weights alone
}

// Gradient of softmax_nll_backward: with p = softmax(x), s = grad * factor by row,
// out = (p - onehot) * s.
TensorList softmax_nll_backward_grad(const GradCall& g) {
  const Tensor& h = g.grad();
  const Tensor grad = g.input(0), x = g.input(1), target = g.input(2), total = g.input(5);
  const Tensor weight = g.has_input(3) ? g.input(3) : Tensor();
  const int64_t dim = int64_t(class_dim(x));
  const Tensor factor = row_factors(target, weight, total, g.integer(6), x.dtype()).unsqueeze(dim);
  const Tensor p = softmax(x, dim);
  TensorList out(6);
  if (g.needs(0)) {
    const Tensor valid = ne(target, Scalar(g.integer(6)));
    const Tensor safe = where(valid, target, Scalar(0)).unsqueeze(dim);
    const Tensor per_row =
        h.mul(p).sum(dim, true).sub(h.gather(dim, safe)).mul(factor).squeeze(dim);
    out[0] = sum_to_size(per_row, g.input_sizes(0));
  }
  if (g.needs(1)) {
    const Tensor s = grad.dim() == 0 ? grad : grad.unsqueeze(dim);
    out[1] = softmax_backward(h.mul(factor).mul(s), p, dim);
  }
  return out;
}

const OpRecord& softmax_nll_op =
    define(
        "softmax_nll(Tensor input, Tensor target, Tensor? weight, int ignore_index, int reduction, "
        "dtype? dtype=None) -> "
        "(Tensor, Tensor, Tensor)")
        .doc(
            "Cross entropy of logits and classes, in `dtype`; also log(sum(exp)) of each row and "
            "the "
            "weight of all.")
        .surface(Surface::internal)
        .batched(vmaps::softmax_nll_rule)
        .infer(softmax_nll_infer)
        .lower(softmax_nll_lower)
        .grad(
            [](const GradCall& g) -> TensorList {
              TensorList out(3);
              if (g.needs(0))
                out[0] = softmax_nll_backward(g.grad(), g.input(0), g.input(1),
                                              g.has_input(2) ? g.input(2) : Tensor(), g.output(1),
                                              g.output(2), g.integer(3), g.integer(4));
              return out;
            },
            0b111, 0b110)
        .no_grad_outputs(0b110)
        .autocast(Autocast::f32);

const OpRecord& softmax_nll_backward_op =
    define(
        "softmax_nll_backward(Tensor grad, Tensor input, Tensor target, Tensor? weight, Tensor "
        "lse, "
        "Tensor total_weight, int ignore_index, int reduction) -> Tensor")
        .doc("Gradient of softmax_nll with respect to its input: (softmax - onehot) scaled by row.")
        .surface(Surface::internal)
        .batched(vmaps::softmax_nll_backward_rule)
        .infer([](const Call& call, OutputSpecs& out) {
          const Tensor& x = call.tensor(1);
          out.push_back({Shape(x.sizes()), x.dtype()});
        })
        .lower(softmax_nll_backward_lower)
        .grad(softmax_nll_backward_grad, 0b101111);

Tensor softmax_nll_backward(const Tensor& grad, const Tensor& x, const Tensor& target,
                            const Tensor& weight, const Tensor& lse, const Tensor& total,
                            int64_t ignore, int64_t reduction) {
  return call(softmax_nll_backward_op, {grad, x, target, weight, lse, total, ignore, reduction});
}

}  // namespace

const expr::Program& class_to_read() {
  static auto* const cache = new ProgramCache;
  return cache->get(0, {kInt64}, {Type::i64, Type::i64}, {kInt64}, [](Values v) {
    return std::vector{where(v[0] == v[1], 0.0, where(v[0] < 0.0, v[0] - v[2], v[0]))};
  });
}

Tensor softmax_nll(const Tensor& input, const Tensor& target, const Tensor& weight, int64_t ignore,
                   int reduction) {
  return std::move(call_all(softmax_nll_op, {input, target, weight, ignore, reduction})[0]);
}

}  // namespace ops
}  // namespace arete

ARETE_FAMILY(softmax_nll)
