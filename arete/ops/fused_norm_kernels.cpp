#include <optional>
#include <vector>

#include "arete/base/error.h"
#include "arete/ops/fused_builder.h"
#include "arete/ops/fused_norm_internal.h"
#include "arete/ops/moments.h"
#include "arete/ops/pointwise_family.h"

namespace arete::ops {
namespace {

using expr::Value;
using Values = FusedBuilder::Values;
using prim::Monoid;

struct Statistics {
  int mean, rstd;  // row values
  int variance;    // another, if it is centred
};
Statistics centered(FusedBuilder& b, int pivots) {
  const Moments m = add_moments(b, pivots);
  return {m.mean, b.row({m.variance}, [](Values v) { return std::vector{rsqrt(v[0] + v[2])}; }),
          m.variance};
}
Statistics uncentered(FusedBuilder& b) {
  const int squares =
      b.reduce(Monoid::sum, {0}, [](Values v) { return std::vector{square(v[0])}; });
  const int mean = b.row({squares}, [](Values v) { return std::vector{v[0] * 0.0}; });
  return {mean, b.row({squares}, [](Values v) { return std::vector{rsqrt(v[0] * v[1] + v[2])}; }),
          squares};
}

uint64_t key_of(const NormKernel& k, int first, int second = 0) {
  return pack_key({int(k.x), int(k.weight), int(k.bias), k.has_weight, k.has_bias, k.has_residual,
                   k.center, k.relu, k.tracks, int(k.running), first, second});
}

}  // namespace

const prim::FusedSpec& norm_forward_spec(const NormKernel& k, bool one_pass) {
  static SpecCache cache;
  return cache.get(key_of(k, one_pass), [&] {
    const DType work = work_dtype(k.x);
    std::vector<DType> inputs{k.x};
    if (k.has_weight) inputs.push_back(k.weight);
    if (k.has_bias) inputs.push_back(k.bias);
    if (k.has_residual) inputs.push_back(k.x);
    const int operands = int(inputs.size());
    if (one_pass) inputs.insert(inputs.end(), {k.x, k.x, k.x});
    const int running = int(inputs.size());
    std::vector<DType> outputs{k.x, work, work};
    std::vector<expr::Type> params(2, work_type(k.x));
    if (k.tracks) {
      inputs.insert(inputs.end(), {k.running, k.running});
      outputs.insert(outputs.end(), {k.running, k.running});
      params.insert(params.end(), {work_type(k.x), work_type(k.x)});
    }
    FusedBuilder b(inputs, outputs, params);
    const Statistics s = k.center ? centered(b, one_pass ? operands : -1) : uncentered(b);
    std::vector<int> reads{0, s.mean, s.rstd};
    for (int i = 1; i < operands; ++i) reads.push_back(i);
    b.store(reads, 0, 1, [k](Values v) {
      size_t next = 3;
      Value y = (v[0] - v[1]) * v[2];
      if (k.has_weight) y = y * v[next++];
      if (k.has_bias) y = y + v[next++];
      if (k.has_residual) y = y + v[next++];
      return std::vector{k.relu ? where(y < 0.0, 0.0, y) : y};  // NaN stays
    });
    b.store_row({s.mean, s.rstd}, 1, 2, [](Values v) { return std::vector{v[0], v[1]}; });
    if (k.tracks)
      b.store_row({running, s.mean, running + 1, s.variance}, 3, 2, [](Values v) {
        return std::vector{lerp(v[0], v[1], v[6]), lerp(v[2], v[3] * v[7], v[6])};
      });
    return b.finish();
  });
}

const prim::FusedSpec& norm_backward_spec(const NormKernel& k, DType g, WeightSums weight_sums) {
  static SpecCache cache;
  return cache.get(key_of(k, int(g), int(weight_sums)), [&] {
    const bool rows = weight_sums == WeightSums::rows;
    const bool by_output = k.relu && k.has_residual;
    const bool reads_bias = k.relu && !k.has_residual && k.has_bias;
    const DType work = work_dtype(k.x);
    std::vector<DType> inputs{g, k.x, work, work};
    if (k.has_weight) inputs.push_back(k.weight);
    if (by_output || reads_bias) inputs.push_back(by_output ? k.x : k.bias);
    std::vector<int> reads;
    for (int i = 0; i < int(inputs.size()); ++i) reads.push_back(i);
    const size_t after = reads.size();  // where further values of a program begin

    // What every program begins with: the gradient behind the relu, the normalized element and the
    // weight.
    struct Element {
      Value grad, xhat;
      std::optional<Value> weight;
    };
    const auto element = [k, by_output, reads_bias](Values v) {
      Element e{v[0], (v[1] - v[2]) * v[3], {}};
      size_t next = 4;
      if (k.has_weight) e.weight = v[next++];
      if (!k.relu) return e;
      Value y = e.xhat;
      if (by_output) {
        y = v[next];
      } else {
        if (e.weight) y = y * *e.weight;
        if (reads_bias) y = y + v[next];
      }
      e.grad = where(y <= 0.0, 0.0, e.grad);
      return e;
    };

    std::vector<DType> outputs{k.x};
    if (k.has_residual) outputs.push_back(k.x);
    const int weights = int(outputs.size());
    const DType sums_dtype = !rows ? work : k.has_weight ? k.weight : k.x;
    if (weight_sums != WeightSums::none) outputs.insert(outputs.end(), {sums_dtype, sums_dtype});
    FusedBuilder b(inputs, outputs, {work_type(k.x)});
    // s1 = sum(g w), s2 = sum(g w xhat); with `rows` w is one number for the row, applied after.
    const FusedBuilder::Body unweighted = [](Values v) {
      return std::vector{v[0], v[0] * ((v[1] - v[2]) * v[3])};
    };
    const FusedBuilder::Body weighted = [=](Values v) {
      const Element e = element(v);
      const Value u = e.weight && !rows ? e.grad * *e.weight : e.grad;
      return std::vector{u, u * e.xhat};
    };
    const int sums = rows && !k.relu ? b.reduce(Monoid::sum, {0, 1, 2, 3}, unweighted)
                                     : b.reduce(Monoid::sum, reads, weighted);
    const int means = b.row({sums, sums - 1}, [k](Values v) {
      return std::vector{k.center ? v[0] * v[2] : v[0] * 0.0, v[1] * v[2]};
    });
    std::vector<int> with_means = reads;
    with_means.insert(with_means.end(), {means, means - 1});
    b.store(with_means, 0, weights, [=](Values v) {
      const Element e = element(v);
      const Value u = e.weight && !rows ? e.grad * *e.weight : e.grad;
      const Value scale = e.weight && rows ? v[3] * *e.weight : v[3];
      std::vector<Value> out{(u - v[after] - e.xhat * v[after + 1]) * scale};
      if (k.has_residual) out.push_back(e.grad);
      return out;
    });
    if (rows)
      b.store_row({sums - 1, sums}, weights, 2, [](Values v) { return std::vector{v[0], v[1]}; });
    if (weight_sums == WeightSums::columns) {
      ARETE_ASSERT(!k.relu);
      b.reduce_columns(Monoid::sum, {0, 1, 2, 3}, weights, 1,
                       [](Values v) { return std::vector{v[0] * ((v[1] - v[2]) * v[3])}; });
      b.reduce_columns(Monoid::sum, {0}, weights + 1, 1,
                       [](Values v) { return std::vector{v[0]}; });
    }
    return b.finish();
  });
}

}  // namespace arete::ops
