#include "arete/ops/grid_sampling.h"

#include <array>
#include <span>
#include <vector>

namespace arete::ops {
namespace {

struct Moved {
  expr::Value at, slope;
};
// A position moved inside as the padding mode says. `n`: elements of the dimension, in the type of
// computation.
Moved moved_inside(const expr::Value& x, const expr::Value& n, GridOutside outside, bool align) {
  const expr::Value one = expr::constant_like(x, 1), zero = expr::constant_like(x, 0);
  if (outside == GridOutside::zeros) return {x, one};
  const expr::Value last = n - 1.0;
  expr::Value y = x, slope = one;
  if (outside == GridOutside::reflection) {
    const double low = align ? 0 : -0.5;
    const expr::Value span = align ? last : n, from_low = abs(x - low);
    const expr::Value turns = floor(from_low / span), rest = from_low - turns * span;
    const expr::Value even = remainder(turns, expr::constant_like(turns, 2)) == 0.0;
    const expr::Value none = span == 0.0;
    y = where(none, x * 0.0, where(even, rest, span - rest) + low);
    slope = where(none, zero, where(even ^ (x < low), one, -one));
  }
  // At the borders, too, positions have no slope: what lies beyond is not there to be compared
  // with.
  return {min(max(y, zero), last), where((y > 0.0) & (y < last), slope, zero)};
}

// One element beside each position along one dimension: its index, made safe but not cast, its
// weight, and whether there is one.
struct Tap {
  expr::Value index, weight, exists;
};

// The derivative of a polynomial, its coefficients from that of x^3 on.
expr::Value polynomial(const expr::Value& x, std::array<double, 4> c, int64_t order) {
  for (; order > 0; --order) c = {0, 3 * c[0], 2 * c[1], c[2]};
  expr::Value sum = expr::constant_like(x, c[0]);
  for (size_t k = 1; k < 4; ++k) sum = sum * x + c[k];
  return sum;
}

std::vector<Tap> taps_of(const expr::Value& position, const expr::Value& n, const GridSampling& s,
                         int64_t order) {
  using expr::Value;
  const Value scale = (s.align ? n - 1.0 : n) * 0.5;
  const Value at = s.align ? (position + 1.0) * scale : ((position + 1.0) * n - 1.0) * 0.5;
  std::vector<Tap> taps;
  const auto add = [&](const Value& place, Value weight, const Value& slope) {
    const Value last = n - 1.0, zero = expr::constant_like(place, 0);
    for (int64_t k = 0; k < order; ++k) weight = weight * slope;
    // Bounded before it becomes a whole number, and NaN 0.
    const Value index = min(max(where(place == place, place, zero), zero), last);
    taps.push_back({index, weight, (place >= zero) & (place <= last)});
  };
  if (s.mode == GridMode::bicubic) {
    // The elements around the position itself; each is then moved inside by itself.
    constexpr double a = -0.75;
    const std::array<double, 4> near{a + 2, -(a + 3), 0, 1}, far{a, -5 * a, 8 * a, -4 * a};
    const Value base = floor(at), t = at - base;
    const Value distances[] = {t + 1.0, t, 1.0 - t, 2.0 - t};
    for (size_t k = 0; k < 4; ++k)
      add(round(moved_inside(base + (double(k) - 1), n, s.outside, s.align).at),
          polynomial(distances[k], k == 0 || k == 3 ? far : near, order), k < 2 ? scale : -scale);
    return taps;
  }
  const auto [inside, turn] = moved_inside(at, n, s.outside, s.align);
  if (s.mode == GridMode::nearest) {
    add(round(inside), expr::constant_like(inside, 1), turn);
    return taps;
  }
  const Value base = floor(inside), beyond = inside - base, one = expr::constant_like(inside, 1);
  const Value slope = turn * scale;
  add(base, order ? -one : 1.0 - beyond, slope);
  add(base + 1.0, order ? one : beyond, slope);
  return taps;
}
// Note [Taps by points]
// All channels of a point share its taps. Sampling is thus a fused kernel whose rows are points and
// whose elements are channels: a first stage makes row values of the taps along each dimension,
// their places and their weights, and what is done for each channel is only to read and to add up.
// Places of taps that are not there are so far below 0 that no other part makes up for it, and
// three of them are still numbers of their type (positions_of_image).
double nowhere(const expr::Value& place) {
  return -double(int64_t{1} << (place.type() == expr::Type::i32 ? 29 : 60));
}

class TapRows {
 public:
  /// Of each dimension the places come first, then the weights, then those of its slopes if there
  /// are any (see GridSampling::along). `positions` to `steps`: what the first stage reads.
  TapRows(const GridSampling& s, bool slopes) : spatial_(s.orders.size()) {
    per_dim_ = size_t(s.taps_per_dim());
    for (size_t d = 0; d < spatial_; ++d)
      has_slopes_[d] = slopes && !s.along(spatial_ - 1 - d).is_zero();
  }
  bool has_slopes(size_t d) const { return has_slopes_[d]; }

  std::vector<expr::Value> make(std::span<const expr::Value> positions,
                                std::span<const expr::Value> sizes,
                                std::span<const expr::Value> steps, const GridSampling& s) const {
    std::vector<expr::Value> all;
    for (size_t d = 0; d < spatial_; ++d) {
      const auto taps = taps_of(positions[d], sizes[d], s, s.orders[d]);
      const auto weights = [&](const std::vector<Tap>& of) {
        for (size_t k = 0; k < per_dim_; ++k)
          all.push_back(where(taps[k].exists, of[k].weight, 0.0));
      };
      for (const Tap& t : taps) {
        const expr::Value place = cast(t.index, steps[d].type()) * steps[d];
        all.push_back(where(t.exists, place, nowhere(place)));
      }
      weights(taps);
      if (has_slopes_[d]) weights(taps_of(positions[d], sizes[d], s, s.orders[d] + 1));
    }
    return all;
  }

  /// The sum over all taps of the elements of `image` from `begin` on, then its slopes along the
  /// dimensions that have any. `rows`: what make() gave.
  std::vector<expr::Value> sums(const expr::Value& image, const expr::Value& begin,
                                std::span<const expr::Value> rows) const {
    std::vector<Row> of(spatial_);
    for (size_t d = 0; d < spatial_; ++d) {
      of[d].places = rows.first(per_dim_);
      of[d].weights = rows.subspan(per_dim_, per_dim_);
      rows = rows.subspan(2 * per_dim_);
      if (!has_slopes_[d]) continue;
      of[d].slopes = rows.first(per_dim_);
      rows = rows.subspan(per_dim_);
    }
    return sums_from(image, begin, of, 0, expr::constant_like(begin, 0));
  }
  size_t count() const {
    size_t n = 0;
    for (size_t d = 0; d < spatial_; ++d) n += (has_slopes_[d] ? 3 : 2) * per_dim_;
    return n;
  }

 private:
  struct Row {
    std::span<const expr::Value> places, weights, slopes;
  };
  // Of dimension d and those after it: the sum and, for each of them with slopes, its slope.
  // `place`: that of the dimensions before. What does not depend on the channel stays apart from
  // `begin`, so that a compiler computes it once for all channels.
  std::vector<expr::Value> sums_from(const expr::Value& image, const expr::Value& begin,
                                     std::span<const Row> of, size_t d,
                                     const expr::Value& place) const {
    using expr::Value;
    if (d == spatial_) {
      const Value x = expr::load(image, begin + max(place, expr::constant_like(place, 0)));
      return {where(place >= 0.0, cast(x, of[0].weights[0].type()), 0.0)};
    }
    std::vector<Value> all;
    for (size_t k = 0; k < per_dim_; ++k) {
      const auto parts = sums_from(image, begin, of, d + 1, place + of[d].places[k]);
      std::vector<Value> terms{parts[0] * of[d].weights[k]};
      if (has_slopes_[d]) terms.push_back(parts[0] * of[d].slopes[k]);
      for (size_t i = 1; i < parts.size(); ++i) terms.push_back(parts[i] * of[d].weights[k]);
      if (k == 0)
        all = std::move(terms);
      else
        for (size_t i = 0; i < terms.size(); ++i) all[i] = all[i] + terms[i];
    }
    return all;
  }

  size_t spatial_, per_dim_;
  std::array<bool, 3> has_slopes_{};
};

struct SamplingStages {
  TapRows taps;
  std::vector<int> rows;

  SamplingStages(FusedBuilder& b, DType dtype, const GridSampling& s, bool slopes)
      : taps(s, slopes) {
    const size_t spatial = s.orders.size();
    std::vector<int> reads{1};
    for (size_t d = 0; d < spatial; ++d) reads.push_back(3 + int(d));
    const int first = b.row(reads, [&](FusedBuilder::Values v) {
      const expr::Value image = v[0];
      std::vector<expr::Value> positions;
      for (size_t d = 0; d < spatial; ++d)
        positions.push_back(cast(v[1 + d], expr::work_type(dtype)));
      const auto params = v.subspan(1 + spatial);
      std::vector<expr::Value> all =
          taps.make(positions, params.first(spatial), params.subspan(spatial, spatial), s);
      all.push_back(image * params[2 * spatial]);
      return all;
    });
    rows = {0, 2};
    for (int k = 0; k <= int(taps.count()); ++k) rows.push_back(first - k);
  }
  /// TapRows::sums in a stage that reads `rows` first.
  std::vector<expr::Value> sums(FusedBuilder::Values v) const {
    const size_t n = taps.count();
    const expr::Value channel = v[1] * v.back();
    return taps.sums(v[0], v[2 + n] + channel, v.subspan(2, n));
  }
  static std::vector<expr::Type> params(DType dtype, DType positions, size_t spatial) {
    std::vector<expr::Type> all(spatial, expr::work_type(dtype));
    all.insert(all.end(), spatial, expr::compute_type(positions));
    return all;
  }
  // What the specs have besides: the elements from image to image and from channel to channel.
  static std::vector<expr::Type> all_params(DType dtype, DType positions, size_t spatial) {
    std::vector<expr::Type> all = params(dtype, positions, spatial);
    all.insert(all.end(), 2, expr::compute_type(positions));
    return all;
  }
};

}  // namespace

DType positions_of_image(int64_t elements) { return elements < 1 << 29 ? kInt32 : kInt64; }

const prim::FusedSpec& sampling_spec(DType dtype, DType positions, const GridSampling& s) {
  static auto& cache = *new SpecCache;  // used until exit
  return cache.get(s.key(dtype) << 1 | uint64_t(positions == kInt32), [&] {
    const size_t spatial = s.orders.size();
    std::vector<DType> inputs{dtype, positions, positions};
    inputs.insert(inputs.end(), spatial, dtype);
    FusedBuilder b(inputs, {dtype}, SamplingStages::all_params(dtype, positions, spatial), 0b1);
    const SamplingStages stages(b, dtype, s, false);
    b.store(stages.rows, 0, 1, [&](FusedBuilder::Values v) { return stages.sums(v); });
    return b.finish();
  });
}

const prim::FusedSpec& slopes_spec(DType dtype, DType positions, const GridSampling& s) {
  static auto& cache = *new SpecCache;  // used until exit
  return cache.get(s.key(dtype) << 1 | uint64_t(positions == kInt32), [&] {
    const size_t spatial = s.orders.size();
    std::vector<DType> inputs{dtype, positions, positions};
    inputs.insert(inputs.end(), spatial + 1, dtype);
    const TapRows taps(s, true);
    std::vector<DType> outputs;
    for (size_t d = 0; d < spatial; ++d)
      if (taps.has_slopes(d)) outputs.push_back(dtype);
    FusedBuilder b(inputs, outputs, SamplingStages::all_params(dtype, positions, spatial), 0b1);
    SamplingStages stages(b, dtype, s, true);
    const size_t factor = stages.rows.size();
    stages.rows.push_back(3 + int(spatial));
    const int sums = b.reduce(prim::Monoid::sum, stages.rows, [&](FusedBuilder::Values v) {
      std::vector<expr::Value> all = stages.sums(v);
      all.erase(all.begin());
      for (expr::Value& x : all) x = x * cast(v[factor], x.type());
      return all;
    });
    for (int k = 0; k < int(outputs.size()); ++k)
      b.store_row({sums - k}, k, 1, [](FusedBuilder::Values v) { return std::vector{v[0]}; });
    return b.finish();
  });
}

const expr::Program& taps_program(DType dtype, DType positions, const GridSampling& s) {
  using expr::Type;
  using expr::Value;
  static auto& cache = *new expr::ProgramCache;  // used until exit
  const size_t spatial = s.orders.size();
  int64_t count = 1;
  for (size_t d = 0; d < spatial; ++d) count *= s.taps_per_dim();
  const bool by_number = count > kMostTaps;
  if (by_number) count /= s.taps_per_dim();
  std::vector<Type> params = SamplingStages::params(dtype, positions, spatial);
  if (by_number) params.push_back(Type::i64);
  std::vector<DType> results;
  for (int64_t k = 0; k < count; ++k)
    results.insert(results.end(), {kInt64, expr::work_dtype(dtype)});
  return cache.get(
      s.key(dtype) << 1 | uint64_t(positions == kInt32), std::vector<DType>(spatial, dtype), params,
      results, [&](std::span<const Value> v) {
        const auto sizes = v.subspan(spatial, spatial), steps = v.subspan(2 * spatial, spatial);
        struct Part {
          Value place, weight;
        };
        std::vector<Part> all;
        for (size_t d = 0; d < spatial; ++d) {
          std::vector<Part> along;
          for (const Tap& t : taps_of(cast(v[d], expr::work_type(dtype)), sizes[d], s, s.orders[d]))
            along.push_back(
                {cast(t.index, steps[d].type()) * steps[d], where(t.exists, t.weight, 0.0)});
          if (d == 0 && by_number) {
            for (size_t k = 1; k < along.size(); ++k) {
              const Value here = v.back() == double(k);
              along[0] = {where(here, along[k].place, along[0].place),
                          where(here, along[k].weight, along[0].weight)};
            }
            along.resize(1);
          }
          if (d == 0) {
            all = std::move(along);
            continue;
          }
          std::vector<Part> products;
          for (const Part& a : all)
            for (const Part& b : along)
              products.push_back({a.place + b.place, a.weight * b.weight});
          all = std::move(products);
        }
        std::vector<Value> taps;
        for (const Part& t : all) {
          taps.push_back(cast(t.place, Type::i64));
          taps.push_back(t.weight);
        }
        return taps;
      });
}

}  // namespace arete::ops
