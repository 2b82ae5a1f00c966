// interpolate (declared in nn.h).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numeric>
#include <utility>

#include "arete/core/modes.h"
#include "arete/expr/program_cache.h"
#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/index_util.h"
#include "arete/ops/nn.h"
#include "arete/ops/pool.h"
#include "arete/ops/pool_internal.h"
#include "arete/ops/resample_filter.h"
#include "arete/ops/target.h"
#include "arete/ops/vmap_rules_internal.h"
#include "arete/ops/window_util.h"

namespace arete {
namespace ops {
namespace {

enum class Mode : uint8_t { nearest, nearest_exact, linear, cubic, area };

struct ModeInfo {
  std::string_view name;
  Mode mode;
  int spatial;  // 0: any
};
constexpr ModeInfo kModes[] = {
    {"nearest", Mode::nearest, 0},  {"nearest-exact", Mode::nearest_exact, 0},
    {"linear", Mode::linear, 1},    {"bilinear", Mode::linear, 2},
    {"trilinear", Mode::linear, 3}, {"bicubic", Mode::cubic, 2},
    {"area", Mode::area, 0}};

ModeInfo mode_of(const char* op, std::string_view name) {
  for (const ModeInfo& m : kModes)
    if (m.name == name) return m;
  throw ValueError(op, "mode '" + std::string(name) + "' is not known")
      .argument("mode")
      .expected("nearest, nearest-exact, linear, bilinear, trilinear, bicubic or area");
}

// How outputs along one dimension are made of its inputs; `scale`: inputs per output.
ResampleFilter make_filter(Mode mode, int64_t n, int64_t out, double scale, bool align,
                           bool antialias) {
  if (align) scale = out > 1 ? double(n - 1) / double(out - 1) : 0;
  if (antialias)
    return make_resample_filter(mode == Mode::cubic ? FilterShape::cubic : FilterShape::triangle, n,
                                out, scale);
  const int64_t reach = mode == Mode::cubic ? 4 : mode == Mode::linear ? 2 : 1;
  ResampleFilter f;
  f.taps = std::min(reach, n);
  f.weights.resize(size_t(out * f.taps));
  for (int64_t i = 0; i < out; ++i) {
    if (reach == 1) {
      const double x = mode == Mode::nearest ? double(i) * scale : (double(i) + 0.5) * scale;
      // A quotient that should be whole may come out just below it.
      f.begin.push_back(std::clamp<int64_t>(int64_t(std::floor(x + 1e-9)), 0, n - 1));
      f.weights[size_t(i)] = 1;
      continue;
    }
    double x = align ? double(i) * scale : (double(i) + 0.5) * scale - 0.5;
    if (mode == Mode::linear) x = std::max(x, 0.0);
    const int64_t base = int64_t(std::floor(x)) - (mode == Mode::cubic ? 1 : 0);
    f.begin.push_back(std::clamp<int64_t>(base, 0, n - f.taps));
    // What lies beyond an end is as the end.
    for (int64_t k = 0; k < reach; ++k) {
      const double distance = x - double(base + k);
      const int64_t at = std::clamp<int64_t>(base + k, 0, n - 1) - f.begin.back();
      f.weights[size_t(i * f.taps + at)] +=
          mode == Mode::cubic ? cubic_weight(distance, -0.75) : 1 - std::fabs(distance);
    }
  }
  return f;
}

// The filter of the gradient: what each of n inputs gave to the outputs of `f`.
ResampleFilter transposed(const ResampleFilter& f, int64_t n) {
  const auto outputs = int64_t(f.begin.size());
  std::vector<int64_t> first(size_t(n), outputs), last(size_t(n), -1);
  const auto for_each = [&](auto&& visit) {
    for (int64_t o = 0; o < outputs; ++o)
      for (int64_t k = 0; k < f.taps; ++k)
        if (const double w = f.weights[size_t(o * f.taps + k)]; w != 0)
          visit(o, size_t(f.begin[size_t(o)] + k), w);
  };
  for_each([&](int64_t o, size_t i, double) {
    first[i] = std::min(first[i], o);
    last[i] = std::max(last[i], o);
  });
  ResampleFilter t;
  t.taps = 1;
  for (size_t i = 0; i < size_t(n); ++i) t.taps = std::max(t.taps, last[i] - first[i] + 1);
  for (size_t i = 0; i < size_t(n); ++i) t.begin.push_back(std::min(first[i], outputs - t.taps));
  t.weights.resize(size_t(n * t.taps));
  for_each([&](int64_t o, size_t i, double w) {
    t.weights[size_t(int64_t(i) * t.taps + o - t.begin[i])] += w;
  });
  return t;
}

struct Plan {
  ModeInfo mode;
  Shape sizes;
  std::vector<double> scales;  // input elements per output element
};

Plan plan_of(const char* op, const Tensor& x, std::optional<IntList> size,
             std::span<const double> factors, std::string_view mode_name, bool align,
             bool recompute, bool antialias) {
  Plan p{mode_of(op, mode_name), {}, {}};
  const int spatial = int(x.dim()) - 2;
  ARETE_CHECK(
      spatial >= 1 && spatial <= 3,
      NotImplementedError(op, "Input Error: Only 3D, 4D and 5D input Tensors supported (got " +
                                  std::to_string(x.dim()) +
                                  "D) for the modes: nearest | linear | bilinear | "
                                  "bicubic | trilinear | area | nearest-exact (got " +
                                  std::string(mode_name) + ")"));
  ARETE_CHECK(p.mode.spatial == 0 || p.mode.spatial == spatial,
              NotImplementedError(op, "Got " + std::to_string(x.dim()) + "D input, but " +
                                          std::string(mode_name) + " mode needs " +
                                          std::to_string(p.mode.spatial + 2) + "D input"));
  ARETE_CHECK(
      !align || p.mode.mode == Mode::linear || p.mode.mode == Mode::cubic,
      ValueError(
          op,
          "align_corners option can only be set with the interpolating modes: linear | bilinear | "
          "bicubic | trilinear"));
  ARETE_CHECK(
      !antialias || (spatial == 2 && (p.mode.mode == Mode::linear || p.mode.mode == Mode::cubic)),
      ValueError(op,
                 "Anti-alias option is restricted to bilinear and bicubic modes and "
                 "requires a 4-D tensor as input")
          .argument("antialias"));
  ARETE_CHECK(!(size && !factors.empty()),
              ValueError(op, "only one of size or scale_factor should be defined"));
  ARETE_CHECK(size || !factors.empty(),
              ValueError(op, "either size or scale_factor should be defined"));
  ARETE_CHECK(
      is_floating(x.dtype()) || p.mode.mode == Mode::nearest || p.mode.mode == Mode::nearest_exact,
      TypeError(op, "interpolating modes need a floating dtype").got(describe(x)));
  ARETE_CHECK(!is_complex(x.dtype()),
              NotImplementedError(op, "complex numbers are not resampled").got(describe(x)));
  for (int d = 0; d < spatial; ++d) {
    const int64_t n = x.size(d + 2);
    ARETE_CHECK(n > 0,
                ValueError(op, "Input and output sizes should be greater than 0").got(describe(x)));
    if (size) {
      ARETE_CHECK(size->size() == 1 || int(size->size()) == spatial,
                  ValueError(op,
                             "Input and output must have the same number of spatial dimensions, "
                             "but got input with "
                             "spatial dimensions of " +
                                 to_string(x.sizes().subspan(2)) + " and output size of " +
                                 to_string(*size)));
      p.sizes.push_back((*size)[size->size() == 1 ? 0 : size_t(d)]);
      p.scales.push_back(double(n) / double(std::max<int64_t>(p.sizes.back(), 1)));
    } else {
      ARETE_CHECK(
          factors.size() == 1 || int(factors.size()) == spatial,
          ValueError(op, "scale_factor needs one number, or one for each spatial dimension"));
      const double f = factors[factors.size() == 1 ? 0 : size_t(d)];
      ARETE_CHECK(f > 0, ValueError(op, "scale_factor must be positive").got(std::to_string(f)));
      p.sizes.push_back(int64_t(std::floor(double(n) * f)));
      p.scales.push_back(recompute ? double(n) / double(std::max<int64_t>(p.sizes.back(), 1))
                                   : 1 / f);
    }
    ARETE_CHECK(
        p.sizes.back() > 0,
        ValueError(op, "Input and output sizes should be greater than 0, but got input " +
                           to_string(x.sizes().subspan(2)) + " and output " + to_string(p.sizes)));
  }
  return p;
}

// Note [Resampling by tables]
// One program computes an output element from all the inputs that it is made of. Where they are and
// what they weigh is known before, for each position along each dimension by itself, and lies in a
// table on the device:
//   i64   0, 1, 2, ...    as many as the longest dimension has elements
// and for each dimension that is resampled, to n outputs:
//   i64   first[n]        the first input of each
//   i64   row[n]          where its weights are, in numbers of their type from the table's begin
//   f32 or f64            the rows of weights, each of one number of taps
// The program has first and row, or the position itself where a dimension stays as it is, as inputs
// that broadcast along the other dimensions, and loads weights and elements. A resampling that only
// chooses elements has no rows. Nor has the gradient of one on a CPU: there each element is added
// to the one that was chosen, whose positions are in the place of the first inputs.

// How a dimension of the result is made; `taps` 0: a choice of inputs, kSame: of itself.
struct Axis {
  int taps = kSame;
  int64_t first = 0;  // where its part begins in the table
  static constexpr int kSame = -1, kMostTaps = 28;
};

// Elements of the table that hold the weights of n outputs.
int64_t slots_of_weights(DType work, int64_t n, int64_t taps) {
  return (n * taps * int64_t(size_of(work)) + 7) / 8;
}

// A sum over the axes of at most kMostTaps taps each. Axes with more come in parts: `skip` taps are
// behind, and the program adds to what is there. `gaps`: weights of 0 say that an element is no
// part of an output.
const expr::Program& resample_program(DType in, DType out, std::span<const Axis> axes, bool gaps,
                                      bool adds) {
  using expr::Type;
  using expr::Value;
  static auto& cache = *new expr::ProgramCache;
  uint64_t key = pack_key({int(in), int(out), adds, gaps, int(axes.size())});
  for (const Axis& a : axes) key = key << 5 | uint64_t(a.taps - Axis::kSame);
  // Weights, elements, what is there; first and row of each axis. Strides and skip.
  std::vector<DType> inputs{expr::work_dtype(in), in};
  if (adds) inputs.push_back(out);
  const size_t head = inputs.size(), n = axes.size();
  for (const Axis& a : axes) inputs.insert(inputs.end(), a.taps > 0 ? 2 : 1, kInt64);
  const std::vector<Type> params(n + 1, Type::i64);
  return cache.get(
      key, inputs, params, {out},
      [&](std::span<const Value> v) {
        const Value* const strides = v.data() + inputs.size();
        const Value skip = strides[n];
        // Sums over the axes from d on, whose inputs begin at `i`, of the elements from `at` on.
        const auto sum = [&](auto& self, size_t d, size_t i, Value at) -> Value {
          if (d == n) return expr::load(v[1], at);
          const Value step = v[i] * strides[d], first = at.builder() ? at + step : step;
          if (axes[d].taps <= 0) return self(self, d + 1, i + 1, first);
          Value total;
          for (int k = 0; k < axes[d].taps; ++k) {
            const Value tap = skip + double(k), w = expr::load(v[0], v[i + 1] + tap);
            const Value x = self(self, d + 1, i + 2, first + tap * strides[d]);
            const Value part = w * expr::cast(x, w.type());
            const Value sum_so_far = total.builder() ? total + part : part;
            // What is no part may be infinite. (Chosen between sums, not added as 0 or a product:
            // so that the compiler has one way to fuse products and sums.)
            total = !gaps             ? sum_so_far
                    : total.builder() ? expr::where(w == 0.0, total, sum_so_far)
                                      : expr::where(w == 0.0, 0.0, part);
          }
          return total;
        };
        const Value result = sum(sum, 0, head, Value());
        return std::vector{adds ? v[2] + result : result};
      },
      0b11);
}

// The arguments of one program's run.
void run_axes(prim::Primitives& p, const prim::View& x, const prim::View& table,
              std::span<const Axis> axes, bool gaps, const prim::View& out, int64_t skip,
              bool adds) {
  const size_t n = axes.size();
  Shape sizes[kMaxRank], strides[kMaxRank];
  SmallVector<expr::Literal, 8> params;
  const DType work = expr::work_dtype(x.dtype);
  const int64_t units = table.numel() * int64_t(8 / size_of(work)), one = 1;
  SmallVector<prim::View, 12> inputs{
      prim::View(table.data, work, IntList(&units, 1), IntList(&one, 1), table.storage), x};
  if (adds) inputs.push_back(out);
  for (size_t d = 0; d < n; ++d) {
    sizes[d] = Shape(n, 1);
    strides[d] = Shape(n, 0);
    sizes[d][d] = out.sizes[d];
    strides[d][d] = 1;
    prim::View view = table;
    view.sizes = sizes[d];
    view.strides = strides[d];
    view.data += axes[d].first * int64_t(sizeof(int64_t));
    inputs.push_back(view);
    if (axes[d].taps > 0) {
      view.data += out.sizes[d] * int64_t(sizeof(int64_t));
      inputs.push_back(view);
    }
    params.push_back({.i = x.strides[d]});
  }
  params.push_back({.i = skip});
  p.pointwise({&resample_program(x.dtype, out.dtype, axes, gaps, adds), inputs, {&out, 1}, params});
}

// Along these axes, of which only one may have more than kMostTaps taps.
void resample_axes(prim::Primitives& p, const prim::View& x, const prim::View& table,
                   std::span<const Axis> axes, bool gaps, const prim::View& out) {
  Axis few[kMaxRank];
  std::copy(axes.begin(), axes.end(), few);
  const auto longest = std::max_element(
      few, few + axes.size(), [](const Axis& a, const Axis& b) { return a.taps < b.taps; });
  const int taps = longest->taps;
  if (taps <= Axis::kMostTaps) return run_axes(p, x, table, axes, gaps, out, 0, false);
  std::optional<prim::ScratchView> wide;
  if (out.dtype != expr::work_dtype(x.dtype)) wide.emplace(p, expr::work_dtype(x.dtype), out.sizes);
  const prim::View& sum = wide ? wide->view() : out;
  for (int skip = 0; skip < taps; skip += longest->taps) {
    longest->taps = std::min(Axis::kMostTaps, taps - skip);
    run_axes(p, x, table, {few, axes.size()}, gaps, sum, skip, skip > 0);
  }
  if (wide) p.copy({out, sum});
}

struct Resampling {
  Mode mode;
  Shape sizes;                 // of the result
  std::vector<double> scales;  // input elements per output element
  bool align, antialias;
  bool transposed = false;  // the gradient of the resampling from `sizes` on
};

// Rows of one length, none of which goes beyond the n inputs. Lengths are rounded up, so that there
// are not too many programs.
ResampleFilter fitted(const ResampleFilter& f, int64_t n) {
  ResampleFilter r;
  r.taps = std::min(n, f.taps > 4 ? (f.taps + 3) / 4 * 4 : f.taps);
  r.weights.resize(f.begin.size() * size_t(r.taps));
  for (size_t o = 0; o < f.begin.size(); ++o) {
    const int64_t begin = std::min(f.begin[o], n - r.taps);
    r.begin.push_back(begin);
    for (int64_t k = 0; k < f.taps; ++k)
      if (const double w = f.weights[o * size_t(f.taps) + size_t(k)]; w != 0)
        r.weights[o * size_t(r.taps) + size_t(f.begin[o] + k - begin)] = w;
  }
  return r;
}

bool chooses(const Resampling& r) {
  return !r.transposed && (r.mode == Mode::nearest || r.mode == Mode::nearest_exact);
}
// Whether x is the gradient of a choice and is added to what was chosen.
bool adds_to_chosen(const Tensor& x, const Resampling& r) {
  return r.transposed && (r.mode == Mode::nearest || r.mode == Mode::nearest_exact) &&
         x.device().is_cpu() && (x.dtype() == kFloat32 || x.dtype() == kFloat64);
}
// Along dimension d of the spatial ones, which has n elements.
ResampleFilter filter_along(const Resampling& r, size_t d, int64_t n) {
  const int64_t out = r.sizes[d];
  const auto make = [&](int64_t from, int64_t to) {
    return make_filter(r.mode, from, to, r.scales[d], r.align, r.antialias);
  };
  return fitted(r.transposed ? transposed(make(out, n), out) : make(n, out), n);
}

// Slices pay for themselves from so many elements on, so many of them beside each other in memory.
constexpr int64_t kLeastSlice = 1024, kLeastRun = 16;
constexpr int kMostSlices = 12;  // with as many weights they are the inputs of a program

bool has_slices(const prim::View& x, const prim::View& out, size_t d) {
  if (out.numel() < kLeastSlice * out.sizes[d]) return false;
  for (size_t k = 0; k < x.sizes.size(); ++k)
    if (k != d && x.strides[k] == 1 && out.strides[k] == 1)
      return std::min(x.strides[d], out.strides[d]) >= kLeastRun;
  return false;
}

// (elements, ..., weights, ...) -> the sum of their products; without weights a conversion.
const expr::Program& slices_program(DType in, DType out, size_t taps, bool weighs) {
  using expr::Value;
  static auto& cache = *new expr::ProgramCache;
  const DType work = expr::work_dtype(in);
  std::vector<DType> inputs(taps, in);
  if (weighs) inputs.insert(inputs.end(), taps, work);
  return cache.get(pack_key({int(in), int(out), int(taps), weighs}), inputs, {}, {out},
                   [&](std::span<const Value> v) {
                     const auto part = [&](size_t k) {
                       return weighs ? v[taps + k] * expr::cast(v[k], expr::compute_type(work))
                                     : v[k];
                     };
                     Value sum = part(0);
                     for (size_t k = 1; k < taps; ++k) sum = sum + part(k);
                     return std::vector{sum};
                   });
}

// Along dimension d, on a CPU: what an output position is made of are whole slices, one or a few,
// which vector instructions add faster than elements that are looked up one by one. All in as many
// launches as there are numbers of slices. `weights`: those of `f` in the table, or null.
void resample_slices(prim::Primitives& p, const prim::View& x, size_t d, const ResampleFilter& f,
                     std::byte* weights, bool gaps, const prim::View& out) {
  Shape sizes(out.sizes);
  sizes[d] = 1;
  const auto slice = [&](const prim::View& of, int64_t i) {
    return prim::View(of.data + i * of.strides[d] * int64_t(size_of(of.dtype)), of.dtype, sizes,
                      of.strides, of.storage);
  };
  const DType work = expr::work_dtype(x.dtype);
  std::vector<prim::View> inputs[kMostSlices + 1], outputs[kMostSlices + 1];
  for (int64_t o = 0; o < out.sizes[d]; ++o) {
    SmallVector<int64_t, kMostSlices> taken;
    for (int64_t k = 0; k < f.taps; ++k)
      if (!gaps || f.weights[size_t(o * f.taps + k)] != 0) taken.push_back(k);
    std::vector<prim::View>& all = inputs[taken.size()];
    for (int64_t k : taken) all.push_back(slice(x, f.begin[size_t(o)] + k));
    if (weights)
      for (int64_t k : taken)
        all.emplace_back(weights + (o * f.taps + k) * int64_t(size_of(work)), work, IntList(),
                         IntList());
    outputs[taken.size()].push_back(slice(out, o));
  }
  for (const prim::View& nothing : outputs[0]) p.fill(filling(nothing, 0, "resample"));
  for (size_t taps = 1; taps <= kMostSlices; ++taps)
    if (!outputs[taps].empty())
      p.multi_pointwise({&slices_program(x.dtype, out.dtype, taps, weights != nullptr),
                         int64_t(outputs[taps].size()),
                         inputs[taps],
                         outputs[taps],
                         {}});
}

// From positions along each spatial dimension to one: their sum, each times a parameter.
const expr::Program& flat_position_program(size_t spatial) {
  using expr::Value;
  static auto& cache = *new expr::ProgramCache;
  const std::vector<DType> inputs(spatial, kInt64);
  const std::vector<expr::Type> params(spatial, expr::Type::i64);
  return cache.get(spatial, inputs, params, {kInt64}, [&](std::span<const Value> v) {
    Value at = v[0] * v[spatial];
    for (size_t d = 1; d < spatial; ++d) at = at + v[d] * v[spatial + d];
    return std::vector{at};
  });
}

// (batch, channels, ...) as (batch, channels, all positions), of memory in order or with the
// channels last.
struct FlatImage {
  Shape sizes, strides;
  explicit FlatImage(const prim::View& v)
      : sizes{v.sizes[0], v.sizes[1], numel_of(v.sizes.subspan(2))},
        strides{v.strides[0], v.strides[1], v.strides.back()} {}
  static bool is_of(const prim::View& v) {
    for (size_t d = 2; d + 1 < v.sizes.size(); ++d)
      if (v.strides[d] != v.strides[d + 1] * v.sizes[d + 1]) return false;
    return true;
  }
  prim::View view(const prim::View& v) const {
    return {v.data, v.dtype, sizes, strides, v.storage};
  }
};

// `x` added to zeros, each element at the position that was chosen for it. Tables as those of
// resample_axes.
void add_to_chosen(prim::Primitives& p, const prim::View& x, const prim::View& table,
                   std::span<const Axis> axes, const prim::View& out) {
  for (const prim::View* v : {&x, &out}) {
    if (FlatImage::is_of(*v)) continue;
    const prim::ScratchView dense(p, v->dtype, v->sizes);
    if (v == &x) {
      p.copy({dense, x});
      return add_to_chosen(p, dense, table, axes, out);
    }
    add_to_chosen(p, x, table, axes, dense);
    return p.copy({out, dense});
  }
  const size_t spatial = axes.size() - 2;
  const prim::ScratchView places(p, kInt64, x.sizes.subspan(2));
  Shape ones[kMaxRank], strides[kMaxRank];
  SmallVector<prim::View, 3> along;
  SmallVector<expr::Literal, 3> steps;
  int64_t step = numel_of(out.sizes.subspan(2));
  for (size_t d = 0; d < spatial; ++d) {
    step /= out.sizes[d + 2];
    steps.push_back({.i = step});
    ones[d] = Shape(spatial, 1), strides[d] = Shape(spatial, 0);
    ones[d][d] = x.sizes[d + 2], strides[d][d] = 1;
    along.push_back({table.data + axes[d + 2].first * int64_t(sizeof(int64_t)), kInt64, ones[d],
                     strides[d], table.storage});
  }
  const prim::View to = places.view();
  p.pointwise({&flat_position_program(spatial), along, {&to, 1}, steps});
  p.fill(filling(out, 0, "resample"));
  const FlatImage from(x), sums(out);
  const Shape spread{0, 0, 1};
  p.scatter({sums.view(out), prim::View(to.data, kInt64, from.sizes, spread, to.storage),
             from.view(x), 2, prim::ScatterMode::add, "resample"});
}

Resampling resampling_of(const Call& c) {
  const std::span<const double> scales = c[4].reals();
  return {Mode(c.integer(5)), Shape(c.ints(2)), {scales.begin(), scales.end()},
          c.boolean(6),       c.boolean(7),     c.boolean(8)};
}

int64_t longest_dimension(IntList in, IntList spatial) {
  return std::max(*std::max_element(in.begin(), in.end()),
                  *std::max_element(spatial.begin(), spatial.end()));
}

// Nearest elements of k times as many along each dimension are every k-th of them, and the gradient
// puts them back there. False if it is something else.
bool copy_every_kth(prim::Primitives& p, const Tensor& x, const Tensor& out, const Resampling& r) {
  if ((r.mode != Mode::nearest && r.mode != Mode::nearest_exact) || x.numel() == 0) return false;
  const Tensor &few = r.transposed ? x : out, &many = r.transposed ? out : x;
  Layout kth = many.layout();
  for (size_t d = 2; d < few.sizes().size(); ++d) {
    const int64_t n = few.sizes()[d], k = many.sizes()[d] / n;
    if (many.sizes()[d] % n != 0 || std::fabs(r.scales[d - 2] / double(k) - 1) > 1e-12)
      return false;
    if (r.mode == Mode::nearest_exact) kth.offset += k / 2 * kth.strides[d];
    kth.sizes[d] = n;
    kth.strides[d] *= k;
  }
  if (r.transposed && kth.numel() < out.numel()) p.fill(filling(view_of(out), 0, "resample"));
  p.copy(r.transposed ? prim::CopyArgs{view_of(out, kth), view_of(x)}
                      : prim::CopyArgs{view_of(out), view_of(x, kth)});
  return true;
}

Tensor resample(const Tensor& x, const Resampling& r);

// Its table depends on the sizes of all dimensions.
Results batched_resample(const vmaps::Rewriting& r);

const OpRecord& resample_op =
    define(
        "resample(Tensor self, Tensor table, int[] sizes, int[] taps, float[] scales, int mode, "
        "bool align_corners, bool antialias, bool transposed) -> Tensor")
        .indexed({0})
        .doc("Weighted sums of elements along the spatial dimensions.")
        .surface(Surface::internal)
        .batched(batched_resample)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          Shape sizes{x.size(0), x.size(1)};
          for (int64_t n : c.ints(2)) sizes.push_back(n);
          auto strides = strides_like(x, sizes);
          out.push_back({std::move(sizes), x.dtype(), std::move(strides)});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (out[0].numel() == 0) return;
          const Tensor& x = c.tensor(0);
          if (x.device().is_cpu() && copy_every_kth(p, x, out[0], resampling_of(c))) return;
          std::optional<prim::ScratchView> dense;
          prim::View from = view_of(x);
          if (!x.layout().is_dense()) {
            dense.emplace(p, x.dtype(), x.sizes());
            p.copy({*dense, from});
            from = dense->view();
          }
          const IndexView table(p, c.tensor(1), true);
          const IntList taps = c.ints(3);
          const Resampling how = resampling_of(c);
          const bool gaps = how.antialias || how.transposed;
          const bool adds = adds_to_chosen(x, how);
          const size_t rank = size_t(x.dim());
          SmallVector<Axis, kMaxRank> axes;
          axes.resize(rank, Axis{});
          int64_t at = longest_dimension(x.sizes(), c.ints(2)), product = 1, resampled = 0;
          for (size_t d = 2; d < rank; ++d) {
            const int64_t t = taps[d - 2];
            if (t == Axis::kSame) continue;
            axes[d] = {int(t), at};
            const int64_t n = (adds ? x : out[0]).size(int64_t(d));
            at += t == 0 ? n : 2 * n + slots_of_weights(expr::work_dtype(x.dtype()), n, t);
            product *= std::max<int64_t>(t, 1);
            ++resampled;
          }
          if (adds) return add_to_chosen(p, from, table.view(), axes, view_of(out[0]));
          // Sums of many elements are made along one dimension after the other, first along those
          // that leave the fewest, and where two leave as many with the shortest runs for the
          // fewest. A GPU has the time for more, while it waits for memory; a CPU adds slices.
          const bool on_cpu = x.device().is_cpu(), in_slices = on_cpu && out[0].numel() >= 16384;
          const int64_t most = in_slices ? 0 : on_cpu ? 1 : 16;
          const auto weights_of = [&](const Axis& a, int64_t n) {
            return a.taps > 0 ? table.view().data + (a.first + 2 * n) * int64_t(sizeof(int64_t))
                              : nullptr;
          };
          const auto pass = [&](const prim::View& to, std::span<const Axis> along, size_t d) {
            if (in_slices && along[d].taps <= kMostSlices && has_slices(from, to, d))
              resample_slices(p, from, d, filter_along(how, d - 2, from.sizes[d]),
                              weights_of(along[d], to.sizes[d]), gaps, to);
            else
              resample_axes(p, from, table.view(), along, gaps, to);
          };
          const auto next_dimension = [&] {
            const auto order = [&](size_t d) {
              const double growth = double(out[0].size(int64_t(d))) / double(from.sizes[d]);
              return std::pair(growth, growth < 1 ? -from.strides[d] : from.strides[d]);
            };
            size_t next = 0;
            for (size_t d = 2; d < rank; ++d)
              if (axes[d].taps != Axis::kSame && (next == 0 || order(d) < order(next))) next = d;
            return next;
          };
          std::optional<prim::ScratchView> parts[3];
          Shape sizes[3], strides[3];
          for (int part = 0; resampled > 1 && product > most; ++part, --resampled) {
            const size_t next = next_dimension();
            SmallVector<Axis, kMaxRank> one;
            one.resize(rank, Axis{});
            std::swap(one[next], axes[next]);
            product /= std::max(one[next].taps, 1);
            sizes[part] = Shape(from.sizes);
            sizes[part][next] = out[0].size(int64_t(next));
            auto order = strides_like(x, sizes[part]);
            strides[part] = order ? *order : contiguous_strides(sizes[part]);
            parts[part].emplace(p, expr::work_dtype(x.dtype()), sizes[part]);
            prim::View to = parts[part]->view();
            to.sizes = sizes[part];
            to.strides = strides[part];
            pass(to, one, next);
            from = to;
          }
          pass(view_of(out[0]), axes, next_dimension());
        })
        .grad([](const GradCall& g) -> TensorList {
          const IntList sizes = g.input_sizes(0);
          const std::span<const double> scales = g.arg(4).reals();
          return {resample(g.grad(), {Mode(g.integer(5)),
                                      Shape(sizes.subspan(2)),
                                      {scales.begin(), scales.end()},
                                      g.boolean(6),
                                      g.boolean(7),
                                      !g.boolean(8)}),
                  Tensor()};
        });

// ---- whole numbers of the same element

const OpRecord& repeat_elements_op =
    define("repeat_elements(Tensor self, int[] factors) -> Tensor")
        .doc("Every element factors[d] times along spatial dimension d.")
        .surface(Surface::internal)
        .batched(vmaps::folded)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          Shape sizes(x.sizes());
          for (size_t d = 0; d < c.ints(1).size(); ++d) sizes[d + 2] *= c.ints(1)[d];
          auto strides = strides_like(x, sizes);
          out.push_back({std::move(sizes), x.dtype(), std::move(strides)});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          prim::View from = view_of(c.tensor(0)), to = view_of(out[0]);
          Shape sizes(from.sizes.first(2)), from_strides(from.strides.first(2)),
              to_strides(to.strides.first(2));
          for (size_t d = 2; d < from.sizes.size(); ++d) {
            const int64_t factor = c.ints(1)[d - 2];
            for (int64_t n : {from.sizes[d], factor}) sizes.push_back(n);
            for (int64_t s : {from.strides[d], int64_t{0}}) from_strides.push_back(s);
            for (int64_t s : {to.strides[d] * factor, to.strides[d]}) to_strides.push_back(s);
          }
          from.sizes = to.sizes = sizes;
          from.strides = from_strides;
          to.strides = to_strides;
          p.copy({to, from});
        })
        .grad([](const GradCall& g) -> TensorList {
          const Shape factors(g.ints(1));
          const PoolParams windows{factors, factors, Shape(factors.size(), 0),
                                   Shape(factors.size(), 1)};
          return {avg_pool(g.grad(), windows, true, 1)};
        });

// How often each element is taken, if all are equally often.
std::optional<Shape> whole_factors(const Tensor& x, IntList sizes) {
  Shape factors;
  for (size_t d = 0; d < sizes.size(); ++d) {
    const int64_t n = x.sizes()[d + 2];
    if (n == 0 || sizes[d] < n || sizes[d] % n != 0) return std::nullopt;
    factors.push_back(sizes[d] / n);
  }
  return factors;
}
bool are_scales(IntList factors, const std::vector<double>& scales) {
  for (size_t d = 0; d < factors.size(); ++d)
    if (std::fabs(scales[d] * double(factors[d]) - 1) > 1e-12) return false;
  return true;
}

// A table of Note [Resampling by tables] on its device, and the axes' taps.
struct Table {
  Tensor numbers;
  Shape taps;
};

Table make_table(const Tensor& x, const Resampling& r, DType work) {
  std::vector<int64_t> table(size_t(longest_dimension(x.sizes(), r.sizes)));
  std::iota(table.begin(), table.end(), 0);
  Shape taps;
  for (size_t d = 0; d < r.sizes.size(); ++d) {
    const int64_t n = x.sizes()[d + 2], out = r.sizes[d];
    if (n == out && (r.align || r.scales[d] == 1)) {
      taps.push_back(Axis::kSame);
      continue;
    }
    const bool adds = adds_to_chosen(x, r), chosen = adds || chooses(r);
    const ResampleFilter f =
        adds ? make_filter(r.mode, out, n, r.scales[d], false, false) : filter_along(r, d, n);
    taps.push_back(chosen ? 0 : f.taps);
    table.insert(table.end(), f.begin.begin(), f.begin.end());
    if (chosen) continue;
    const int64_t rows = (int64_t(table.size()) + out) * int64_t(8 / size_of(work));
    for (int64_t o = 0; o < out; ++o) table.push_back(rows + o * f.taps);
    const size_t at = table.size();
    table.resize(at + size_t(slots_of_weights(work, out, f.taps)));
    if (work == kFloat64) {
      std::memcpy(table.data() + at, f.weights.data(), f.weights.size() * sizeof(double));
    } else {
      const std::vector<float> weights(f.weights.begin(), f.weights.end());
      std::memcpy(table.data() + at, weights.data(), weights.size() * sizeof(float));
    }
  }
  return {tensor_from_host(table.data(), kInt64, {int64_t(table.size())},
                           TensorOptions(kInt64, x.device())),
          std::move(taps)};
}

// Programs resample the same sizes again and again, and on a GPU making the table and waiting for
// its copy takes longer than using it: those used last are kept. Not what a capture would hold on
// to, and no tensors of inference, which no other mode may use.
Table table_for(const Tensor& x, const Resampling& r) {
  using Key = std::vector<double>;
  constexpr size_t kMost = 16;
  constexpr int64_t kLargest = int64_t{1} << 16;  // elements
  static auto& mutex = *new std::mutex;
  static auto& recent = *new std::vector<std::pair<Key, Table>>;  // the last one in front
  const DType work = expr::work_dtype(x.dtype());
  if (x.is_meta() || is_capturing(x.device()) ||
      modes().word & (Modes::kCapture | Modes::kPutOff | Modes::kInference))
    return make_table(x, r, work);
  Key key{double(x.device().type),
          double(x.device().index),
          double(work),
          double(r.mode),
          double(r.align),
          double(r.antialias),
          double(r.transposed),
          double(adds_to_chosen(x, r)),
          double(longest_dimension(x.sizes(), r.sizes))};
  for (size_t d = 0; d < r.sizes.size(); ++d)
    for (double v : {double(x.sizes()[d + 2]), double(r.sizes[d]), r.scales[d]}) key.push_back(v);
  {
    const std::lock_guard lock(mutex);
    const auto at =
        std::find_if(recent.begin(), recent.end(), [&](const auto& e) { return e.first == key; });
    if (at != recent.end()) {
      std::rotate(recent.begin(), at, at + 1);
      return recent.front().second;
    }
  }
  Table made = make_table(x, r, work);
  if (made.numbers.numel() > kLargest) return made;
  const std::lock_guard lock(mutex);
  if (recent.size() == kMost) recent.pop_back();
  recent.emplace(recent.begin(), std::move(key), made);
  return made;
}

Results batched_resample(const vmaps::Rewriting& r) {
  if (r.batch == 0) return vmaps::one_by_one(r);
  const Tensor x = vmaps::fold(r.whole(0));
  vmaps::Changed changed(r);
  changed.set(0, x);
  changed.set(1, table_for(x, resampling_of(r.call)).numbers);
  return {vmaps::unfold(changed.run()[0], r.batch)};
}

Tensor resample(const Tensor& x, const Resampling& r) {
  if (chooses(r))
    if (const auto factors = whole_factors(x, r.sizes); factors && are_scales(*factors, r.scales))
      return call(repeat_elements_op, {x, *factors});
  const Table table = table_for(x, r);
  return call(resample_op, {x, table.numbers, r.sizes, table.taps, r.scales, int64_t(r.mode),
                            r.align, r.antialias, r.transposed});
}

Tensor run_plan(const Tensor& x, const Plan& p, bool align, bool antialias) {
  if (p.mode.mode == Mode::area) {
    if (const auto factors = whole_factors(x, p.sizes); factors && is_floating(x.dtype()))
      return call(repeat_elements_op, {x, *factors});  // means of one element each
    if (p.sizes.size() == 1) return adaptive_avg_pool1d(x, p.sizes);
    return p.sizes.size() == 2 ? adaptive_avg_pool2d(x, p.sizes) : adaptive_avg_pool3d(x, p.sizes);
  }
  bool same = true;
  for (size_t d = 0; d < p.sizes.size(); ++d)
    same = same && x.sizes()[d + 2] == p.sizes[d] && (align || p.scales[d] == 1);
  return same ? x : resample(x, {p.mode.mode, p.sizes, p.scales, align, antialias});
}

bool flag(const Call& c, size_t i) { return c.has(i) && c.boolean(i); }
// Arguments 1 and 2 of a call: size and scale_factor.
Tensor resized(const Call& c, std::string_view mode, bool align, bool recompute,
               bool antialias = false) {
  const Plan p =
      plan_of(c.name(), c.tensor(0), c.has(1) ? std::optional(c.ints(1)) : std::nullopt,
              c.has(2) ? c.reals(2) : std::span<const double>(), mode, align, recompute, antialias);
  return run_plan(c.tensor(0), p, align, antialias);
}

const OpRecord& interpolate_op =
    define(
        "interpolate(Tensor input, int[]? size=None, float[]? scale_factor=None, str "
        "mode=\"nearest\", bool? align_corners=None, bool? recompute_scale_factor=None, bool "
        "antialias=False) -> Tensor")
        .autocast(autocast_by_device(Autocast::as_is, Autocast::f32))
        .doc("Resizes the spatial dimensions to a size or by factors.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          ARETE_CHECK(!(flag(c, 5) && c.has(1)),
                      ValueError(c.name(),
                                 "recompute_scale_factor is not meaningful with an "
                                 "explicit size."));
          return {resized(c, c[3].string(), flag(c, 4), flag(c, 5), c.boolean(6))};
        });

// The names of old.
template <bool bilinear>
const OpRecord& define_upsample(const char* schema) {
  return define(schema)
      .autocast(autocast_by_device(Autocast::as_is, Autocast::f32))
      .doc(bilinear ? "interpolate with mode \"bilinear\" and align_corners."
                    : "interpolate with mode \"nearest\".")
      .surface(Surface::functional)
      .compose([](const Call& c) -> Results {
        return {resized(c, bilinear ? "bilinear" : "nearest", bilinear, false)};
      });
}
const OpRecord* const upsample_ops[] = {
    &define_upsample<false>(
        "upsample_nearest(Tensor input, int[]? size=None, float[]? scale_factor=None) -> Tensor"),
    &define_upsample<true>(
        "upsample_bilinear(Tensor input, int[]? size=None, float[]? scale_factor=None) -> Tensor")};

}  // namespace
}  // namespace ops

Tensor interpolate(const Tensor& input, std::optional<Extent> size,
                   const std::vector<double>& scale_factor, std::string_view mode,
                   bool align_corners, bool antialias) {
  const std::optional<IntList> sizes = size ? std::optional<IntList>(IntList(*size)) : std::nullopt;
  return ops::call(ops::interpolate_op,
                   {input, sizes, scale_factor.empty() ? ops::Arg() : ops::Arg(scale_factor), mode,
                    align_corners, std::nullopt, antialias});
}

}  // namespace arete

ARETE_FAMILY(interpolate)
