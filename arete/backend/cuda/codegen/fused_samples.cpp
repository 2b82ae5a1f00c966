// Fused kernels that stand for all that can be generated.
#include "arete/backend/cuda/codegen/fused.h"
#include "arete/expr/value.h"

namespace arete::cuda {
namespace {

using expr::Type;
using expr::Value;
using prim::FusedSpec;
using prim::FusedStage;
using prim::Monoid;
using Kind = FusedStage::Kind;
using Mapping = FusedVariant::Mapping;
using Values = std::vector<Value>;

FusedStage stage(Kind kind, std::vector<int> inputs, std::vector<DType> in, std::vector<DType> out,
                 const expr::Definition& definition, Monoid monoid = Monoid::sum,
                 int first_output = 0) {
  FusedStage s;
  s.kind = kind;
  const Type params[] = {Type::f32, Type::f64, Type::i64};
  s.program = expr::trace(definition, in, params, out);
  s.inputs = std::move(inputs);
  s.monoid = monoid;
  s.first_output = first_output;
  return s;
}

/// Softmax with log(sum(exp)) of each row.
FusedSpec softmax(DType t) {
  const DType w = t == kFloat64 ? kFloat64 : kFloat32;
  FusedSpec spec;
  spec.n_inputs = 1;
  spec.n_outputs = 2;
  spec.stages.push_back(stage(
      Kind::reduce, {0}, {t}, {w}, [](auto v) { return Values{v[0]}; }, Monoid::max));
  spec.stages.push_back(
      stage(Kind::reduce, {0, ~0}, {t, w}, {w}, [](auto v) { return Values{exp(v[0] - v[1])}; }));
  spec.stages.push_back(
      stage(Kind::row, {~1}, {w}, {w}, [](auto v) { return Values{reciprocal(v[0])}; }));
  spec.stages.push_back(stage(Kind::store, {0, ~0, ~2}, {t, w, w}, {t},
                              [](auto v) { return Values{exp(v[0] - v[1]) * v[2]}; }));
  spec.stages.push_back(stage(
      Kind::store_row, {~0, ~1}, {w, w}, {w}, [](auto v) { return Values{v[0] + log(v[1])}; },
      Monoid::sum, 1));
  return spec;
}

/// The gradient of layer norm: inputs of two types, uniform ones, a weight, two sums at once.
FusedSpec norm_gradient(DType t) {
  const DType w = kFloat32;
  FusedSpec spec;
  spec.n_inputs = 5;  // gradient, x, mean, reciprocal deviation, weight
  spec.n_outputs = 1;
  spec.stages.push_back(stage(Kind::reduce, {0, 4, 1, 2, 3}, {t, w, t, w, w}, {w, w}, [](auto v) {
    const Value gw = v[0] * v[1];
    return Values{gw, gw * ((v[2] - v[3]) * v[4])};
  }));
  spec.stages.push_back(stage(Kind::row, {~0, ~1}, {w, w}, {w, w}, [](auto v) {
    return Values{v[0] * v[2], v[1] * v[3]};
  }));
  spec.stages.push_back(stage(
      Kind::store, {0, 4, 1, 2, 3, ~2, ~3}, {t, w, t, w, w, w, w}, {t},
      [](auto v) { return Values{(v[0] * v[1] - v[5] - (v[2] - v[3]) * v[4] * v[6]) * v[4]}; }));
  return spec;
}

/// The same with the gradients of weight and bias: sums over rows.
FusedSpec whole_norm_gradient(DType t) {
  const DType w = kFloat32;
  FusedSpec spec = norm_gradient(t);
  spec.n_outputs = 3;
  spec.stages.push_back(stage(
      Kind::reduce_columns, {0, 1, 2, 3}, {t, t, w, w}, {w},
      [](auto v) { return Values{v[0] * ((v[1] - v[2]) * v[3])}; }, Monoid::sum, 1));
  spec.stages.push_back(stage(
      Kind::reduce_columns, {0}, {t}, {w}, [](auto v) { return Values{to_float(v[0])}; },
      Monoid::sum, 2));
  return spec;
}

/// Sums of what positions name in a table, for elements and rows.
FusedSpec lookup(DType t) {
  const DType w = kFloat32;
  FusedSpec spec;
  spec.n_inputs = 3;  // positions, table, positions of rows
  spec.n_outputs = 2;
  const auto with_table = [&](Kind kind, std::vector<int> inputs, std::vector<DType> in, DType out,
                              uint32_t tables, const expr::Definition& definition) {
    FusedStage s{kind, expr::trace(definition, in, {}, {{out}}, tables), std::move(inputs)};
    s.first_output = kind == Kind::store_row;
    spec.stages.push_back(std::move(s));
  };
  with_table(Kind::reduce, {0, 1}, {kInt64, t}, w, 2,
             [](auto v) { return Values{load(v[1], v[0])}; });
  with_table(Kind::row, {1, 2, ~0}, {t, kInt32, w}, w, 1,
             [](auto v) { return Values{load(v[0], v[1]) + v[2]}; });
  with_table(Kind::store, {0, 1, ~1}, {kInt64, t, w}, t, 2,
             [](auto v) { return Values{load(v[1], v[0]) * v[2]}; });
  with_table(Kind::store_row, {1, 2}, {t, kInt32}, w, 1,
             [](auto v) { return Values{load(v[0], v[1])}; });
  return spec;
}

/// Cross entropy of ten classes with its gradient: one row of all targets, as many operands as a
/// kernel has.
FusedSpec few_logits(DType t) {
  constexpr size_t kClasses = 10;
  const DType w = kFloat32;
  FusedSpec spec;
  spec.n_inputs = kClasses + 2;  // the logits, the target, its logit
  spec.n_outputs = kClasses + 1;
  std::vector<int> logits;
  for (int c = 0; c < int(kClasses); ++c) logits.push_back(c);
  std::vector<DType> types(kClasses, t);
  types.insert(types.end(), {kInt64, t});
  const auto lse = [](auto v) {
    Value most = v[0], sum = constant_like(most, 0.0);
    for (size_t c = 1; c < kClasses; ++c) most = max(most, v[c]);
    for (size_t c = 0; c < kClasses; ++c) sum = sum + exp(v[c] - most);
    return most + log(sum);
  };
  std::vector<int> all = logits;
  all.insert(all.end(), {int(kClasses), int(kClasses) + 1});
  spec.stages.push_back(stage(Kind::reduce, all, types, {w, w}, [&](auto v) {
    const Value counts = v[kClasses] != v.back();
    return Values{where(counts, lse(v) - v[kClasses + 1], 0.0), cast(counts, Type::f32)};
  }));
  std::vector<int> reads = logits;
  reads.insert(reads.end(), {int(kClasses), ~1});
  types.back() = w;
  spec.stages.push_back(
      stage(Kind::store, reads, types, std::vector<DType>(kClasses, t), [&](auto v) {
        const Value of_row = lse(v), scale = 1.0 / v[kClasses + 1];
        Values gradients;
        for (size_t c = 0; c < kClasses; ++c) {
          const Value q = exp(v[c] - of_row);
          gradients.push_back(where(v[kClasses] == double(c), q - 1.0, q) * scale);
        }
        return gradients;
      }));
  spec.stages.push_back(stage(
      Kind::store_row, {~0, ~1}, {w, w}, {w}, [](auto v) { return Values{v[0] / v[1]}; },
      Monoid::sum, kClasses));
  return spec;
}

/// Every monoid over every type of row value, and a row value narrower than it is computed.
FusedSpec many_monoids(DType t, DType row, Monoid monoid) {
  FusedSpec spec;
  spec.n_inputs = 2;
  spec.n_outputs = 2;
  spec.stages.push_back(stage(
      Kind::reduce, {0, 1}, {t, t}, {row, row},
      [](auto v) {
        return Values{v[0], v[1]};
      },
      monoid));
  spec.stages.push_back(stage(Kind::store, {0, 1, ~0}, {t, t, row}, {t},
                              [](auto v) { return Values{where(v[2] == v[0], v[0], v[1])}; }));
  spec.stages.push_back(stage(
      Kind::store_row, {~0, ~1}, {row, row}, {row}, [](auto v) { return Values{v[0]}; },
      Monoid::sum, 1));
  return spec;
}

class Samples {
 public:
  void add(const FusedSpec& spec, const FusedVariant& v) { all_.push_back(fused_source(spec, v)); }
  void add_phases(const FusedSpec& spec, FusedVariant v) {
    v.resident = v.exact = v.partial = false;
    v.cached = 0;
    const int phases = reductions_of(spec).stages + 1;
    for (v.phase = 0; v.phase < phases; ++v.phase) add(spec, v);
  }
  void add_totals(const FusedSpec& spec, const std::vector<DType>& dtypes) {
    all_.push_back(fused_totals_source(spec, dtypes));
  }
  std::vector<KernelSource> take() { return std::move(all_); }

 private:
  std::vector<KernelSource> all_;
};

FusedVariant variant(Mapping mapping, bool resident, int threads, int rows, int vector, int count) {
  FusedVariant v;
  v.mapping = mapping;
  v.resident = resident;
  v.threads = threads;
  v.rows = rows;
  v.vector = vector;
  v.count = count;
  v.outer_rank = 1;
  return v;
}

}  // namespace

std::vector<KernelSource> fused_samples() {
  Samples samples;
  for (DType t : {kFloat32, kBFloat16, kFloat16, kFloat64, kFloat8E4M3}) {
    const FusedSpec spec = softmax(t);
    const int vector = t == kFloat64 ? 2 : t == kFloat32 ? 4 : 8;
    const int wide = t == kFloat64 ? 16 : 32;  // elements of a thread
    for (bool exact : {true, false})
      for (const auto& [threads, rows] :
           {std::pair{1, 128}, {8, 16}, {32, 4}, {128, 1}, {1024, 1}}) {
        if (t != kFloat32 && t != kBFloat16 && threads != 32) continue;
        FusedVariant v =
            variant(Mapping::rows, true, threads, rows, vector, threads < 32 ? 2 : wide / vector);
        v.exact = exact;
        v.cached = 1;
        samples.add(spec, v);
        if (exact) continue;
        v.shifted = true;
        samples.add(spec, v);
      }
    FusedVariant scalar = variant(Mapping::rows, true, 1024, 1, 1, 16);
    scalar.cached = scalar.written = 1;
    scalar.inner_rank = 2;
    scalar.outer_rank = 3;
    samples.add(spec, scalar);
    for (int threads : {512, 1024}) {
      FusedVariant v = variant(Mapping::rows, false, threads, 1, vector, 2);
      v.cached = 1;
      samples.add(spec, v);
      v.wide = v.partial = true;
      v.inner_rank = 3;
      samples.add(spec, v);
      if (threads == 512) samples.add_phases(spec, v);
    }
    for (const auto& [threads, rows, count] : {std::tuple{1, 128, 8}, {4, 32, 8}, {32, 32, 16}}) {
      FusedVariant v = variant(Mapping::columns, true, threads, rows, 1, count);
      v.cached = 1;
      v.outer_rank = 2;
      samples.add(spec, v);
      v.resident = false;
      v.count = 8;
      samples.add(spec, v);
      if (threads == 4) samples.add_phases(spec, v);
      v.exact = true;
      samples.add(spec, v);
    }
  }
  for (DType t : {kFloat32, kBFloat16}) {
    const FusedSpec spec = norm_gradient(t);
    const int vector = t == kFloat32 ? 4 : 8;
    for (const auto& [threads, count] : {std::pair{64, 16 / vector}, {512, 16 / vector}}) {
      FusedVariant v = variant(Mapping::rows, true, threads, 1, vector, count);
      v.cached = 0b00011;
      v.uniform = 0b01100;
      samples.add(spec, v);
      v.shifted = true;
      v.shared = 0b10000;
      samples.add(spec, v);
      v.cached |= v.shared;  // groups of rows share it
      v.outer_rank = 2;
      samples.add(spec, v);
    }
    FusedVariant v = variant(Mapping::rows, false, 512, 1, vector, 2);
    v.inner_rank = 2;
    v.uniform = 0b01100;
    v.single = 0b10000;
    samples.add_phases(spec, v);
    samples.add(spec, v);
    v.cached = 0b00011;
    v.count = 1;
    samples.add(spec, v);
    v.outer_rank = 0;
    v.written = 0b00010;
    samples.add(spec, v);
    FusedVariant bundles = variant(Mapping::columns, false, 16, 32, t == kFloat32 ? 2 : 4, 4);
    bundles.bundles = true;
    bundles.uniform = 0b11100;
    samples.add(spec, bundles);
    samples.add_phases(spec, bundles);
    bundles.uniform = 0b01100;
    bundles.single = 0b10000;
    FusedVariant alone = bundles;
    alone.threads = 32;
    alone.exact = true;
    samples.add(spec, alone);
    bundles.outer_rank = 2;
    samples.add_phases(spec, bundles);
  }
  for (DType t : {kFloat32, kBFloat16, kFloat16}) {
    const FusedSpec spec = whole_norm_gradient(t);
    const int vector = t == kFloat32 ? 4 : 8;
    for (const auto& [threads, rows] :
         {std::pair{4, 32}, {64, 4}, {128, 1}, {128, 2}, {512, 1}, {1024, 1}}) {
      FusedVariant v = variant(Mapping::rows, true, threads, rows, vector, 8 / vector);
      v.cached = 0b00011;
      v.uniform = 0b01100;
      v.columns = true;
      v.exact = threads == 128;
      v.wide = threads == 512;
      samples.add(spec, v);
    }
    samples.add_totals(spec, {t, kFloat32});
  }
  for (DType t : {kFloat32, kBFloat16})
    for (const bool resident : {true, false}) {
      FusedVariant v = variant(Mapping::rows, resident, 64, 1, 2, 2);
      v.cached = 0b001;
      v.uniform = 0b100;
      samples.add(lookup(t), v);
      if (!resident) samples.add_phases(lookup(t), v);
      v.mapping = Mapping::columns;
      v.rows = 32, v.threads = 4, v.vector = 1;
      samples.add(lookup(t), v);
      if (resident) continue;
      v.rows = 1024, v.threads = 1, v.vector = t == kFloat32 ? 2 : 4;
      v.bundles = true;
      samples.add(lookup(t), v);
    }
  for (DType t : {kFloat32, kBFloat16}) {
    FusedVariant v = variant(Mapping::rows, true, 32, 4, 1, 2);
    v.cached = 0b011111111111;
    samples.add(few_logits(t), v);
    v.resident = false;
    v.threads = 512, v.rows = 1;
    samples.add(few_logits(t), v);
  }
  for (Monoid m : {Monoid::sum, Monoid::prod, Monoid::min, Monoid::max})
    for (const auto& [t, row] :
         {std::pair{kInt64, kInt64}, {kInt32, kFloat64}, {kUInt8, kInt32}, {kFloat32, kFloat16}}) {
      FusedVariant v = variant(Mapping::rows, true, 64, 1, 2, 2);
      v.cached = 0b11;
      samples.add(many_monoids(t, row, m), v);
    }
  {
    FusedVariant v = variant(Mapping::columns, false, 16, 32, 8, 2);
    v.bundles = true;
    samples.add_phases(many_monoids(kUInt8, kInt32, Monoid::max), v);
    v.cached = 0b11;
    samples.add(many_monoids(kUInt8, kInt32, Monoid::max), v);
  }
  for (Monoid m : {Monoid::all, Monoid::any}) {
    FusedVariant v = variant(Mapping::columns, false, 16, 32, 1, 8);
    v.cached = 0b11;
    samples.add(many_monoids(kBool, kBool, m), v);
    samples.add_phases(many_monoids(kBool, kBool, m), v);
    samples.add(many_monoids(kBool, kBool, m), variant(Mapping::rows, true, 256, 1, 8, 2));
  }
  return samples.take();
}

}  // namespace arete::cuda
