#include "arete/ops/pad_modes.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "arete/expr/program_cache.h"
#include "arete/ops/call.h"
#include "arete/ops/filling.h"
#include "arete/ops/vmap_rules_internal.h"
#include "arete/ops/window_parts_internal.h"
#include "arete/ops/window_util.h"
#include "arete/prim/positions.h"

// Note [Padding with what lies inside]
// On a GPU one program computes for each element of the result which element of the input it is,
// and for each element of a gradient which elements of the result it became: at most three along a
// dimension, of a repeated end as many as it is repeated. On a CPU, and where an end is repeated
// many times, the result is put together from bands instead: what lies before, on and after the
// input along each dimension is a copy of a part of it, backwards, or of one element again and
// again; gradients add them up. A result gets the input first, and then from itself what lies
// beside it along the last dimension, along the one before, and so on.

namespace arete::ops {
namespace {

using expr::Value;

// A dimension of the input: padded, or as it is.
struct PadAxis {
  int64_t n, before = 0, after = 0;
  bool padded() const { return before != 0 || after != 0; }
  int64_t out() const { return n + before + after; }
};
using PadAxes = SmallVector<PadAxis, kMaxRank>;

PadAxes pad_axes(IntList sizes, IntList pad) {
  PadAxes axes;
  for (int64_t n : sizes) axes.push_back({n});
  for (size_t k = 0; k < pad.size() / 2; ++k) {
    axes[sizes.size() - 1 - k].before = pad[2 * k];
    axes[sizes.size() - 1 - k].after = pad[2 * k + 1];
  }
  return axes;
}

// ---- bands

// `count` elements of the result from `to` on, made of those of the input from `from` on; `step` 0:
// of that one.
struct Band {
  int64_t from, to, count, step;
};
using Bands = SmallVector<Band, 3>;

Bands bands_of(const PadAxis& a, PadMode mode) {
  const int64_t n = a.n, out = a.out();
  Bands bands;
  const auto add = [&](Band b) {
    if (b.count > 0) bands.push_back(b);
  };
  const int64_t from = std::max<int64_t>(-a.before, 0), to = std::max<int64_t>(a.before, 0);
  const int64_t end = std::clamp<int64_t>(n + a.before, 0, out);
  add({from, to, std::min(n - from, out - to), 1});
  switch (mode) {
    case PadMode::reflect:
      add({a.before, 0, a.before, -1});
      add({n - 2, end, a.after, -1});
      break;
    case PadMode::circular:
      add({n - a.before, 0, a.before, 1});
      add({0, end, a.after, 1});
      break;
    case PadMode::replicate:
      add({0, 0, std::min(a.before, out), 0});
      add({n - 1, end, out - end, 0});
      break;
  }
  return bands;
}

// Calls f(part of `in`, the part of `out` made of it, dimensions along which it is one element).
template <class F>
void for_bands(const PadAxes& axes, PadMode mode, const prim::View& in, const prim::View& out,
               F&& f) {
  std::vector<Bands> bands;
  for (const PadAxis& a : axes) bands.push_back(bands_of(a, mode));
  Shape sizes(out.sizes), strides(in.strides);
  const auto visit = [&](auto& self, size_t d, int64_t from, int64_t to,
                         uint32_t repeated) -> void {
    if (d == axes.size()) {
      prim::View a = in, b = out;
      a.data += from * int64_t(size_of(in.dtype));
      b.data += to * int64_t(size_of(out.dtype));
      a.sizes = b.sizes = sizes;
      a.strides = strides;
      f(a, b, repeated);
      return;
    }
    for (const Band& b : bands[d]) {
      sizes[d] = b.count;
      strides[d] = in.strides[d] * b.step;
      self(self, d + 1, from + b.from * in.strides[d], to + b.to * out.strides[d],
           repeated | uint32_t(b.step == 0) << d);
    }
  };
  visit(visit, 0, 0, 0, 0);
}

void add_bands(prim::Primitives& p, const PadAxes& axes, PadMode mode, const prim::View& grad,
               const prim::View& out) {
  const DType work = is_floating(out.dtype) ? expr::work_dtype(out.dtype) : out.dtype;
  std::optional<prim::ScratchView> wide;
  prim::View sum = out;
  if (work != out.dtype) {
    wide.emplace(p, work, out.sizes);
    sum = *wide;
  }
  p.fill(filling(sum, 0, "pad_backward"));
  for_bands(axes, mode, sum, grad, [&](prim::View to, prim::View part, uint32_t repeated) {
    Shape one(part.sizes);
    std::optional<prim::ScratchView> total;
    if (repeated) {
      for (size_t d = 0; d < one.size(); ++d)
        if (repeated >> d & 1) one[d] = 1;
      total.emplace(p, work, one);
      p.reduce({.monoid = prim::Monoid::sum,
                .space = part.sizes,
                .reduced = repeated,
                .inputs = {&part, 1},
                .out = *total});
      part = *total;
      to.sizes = one;
    }
    add_into(p, to, part);
  });
  if (wide) p.copy({out, sum});
}

void copy_bands(prim::Primitives& p, const PadAxes& axes, PadMode mode, const prim::View& in,
                const prim::View& out) {
  // What is repeated may be no part of the result.
  for (const PadAxis& a : axes)
    if (a.before < 0 || a.after < 0)
      return for_bands(axes, mode, in, out,
                       [&](const prim::View& from, const prim::View& to, uint32_t) {
                         p.copy({to, from});
                       });
  prim::View done = out;
  for (size_t d = 0; d < axes.size(); ++d)
    done.data += axes[d].before * out.strides[d] * int64_t(size_of(out.dtype));
  Shape sizes(in.sizes), strides(out.strides);
  done.sizes = sizes;
  p.copy({done, in});
  for (size_t d = axes.size(); d-- > 0;) {
    const auto beside = [&](Band b) {
      if (b.count == 0) return;
      const int64_t step = out.strides[d] * int64_t(size_of(out.dtype));
      prim::View from = done, to = done;
      sizes[d] = b.count;
      strides[d] = out.strides[d] * b.step;
      from.strides = strides;
      from.data += b.from * step;
      to.data += (b.to - axes[d].before) * step;
      from.sizes = to.sizes = sizes;
      p.copy({to, from});
      strides[d] = out.strides[d];
    };
    if (!axes[d].padded()) continue;
    const Bands bands = bands_of(axes[d], mode);
    for (size_t k = 1; k < bands.size(); ++k) beside(bands[k]);
    sizes[d] = axes[d].out();
    done.data -= axes[d].before * out.strides[d] * int64_t(size_of(out.dtype));
    done.sizes = sizes;
  }
}

// ---- programs

// Dimensions that programs count as one.
struct PadGroup {
  size_t first, last;
  bool padded;
};
using PadGroups = SmallVector<PadGroup, kMaxRank>;

PadGroups pad_groups(const PadAxes& axes, const prim::View& table) {
  PadGroups groups;
  for (size_t d = 0; d < axes.size(); ++d) {
    const bool padded = axes[d].padded();
    if (!padded && d > 0 && !groups.back().padded &&
        table.strides[d - 1] == table.strides[d] * table.sizes[d])
      groups.back().last = d;
    else
      groups.push_back({d, d, padded});
  }
  return groups;
}

// How many elements of the result one of the input may be, along one dimension.
int64_t pad_taps(const PadAxis& a, PadMode mode) {
  if (mode != PadMode::replicate) return 3;
  return std::min(a.out(), a.n == 1 ? a.out() : std::max<int64_t>({1, a.before + 1, a.after + 1}));
}
// Looking at many is slower than a call for each band of a border, but of a small result.
constexpr int64_t kMostPadTaps = 27, kMostSmallPadTaps = 125, kSmallPad = 1 << 18;

// The number of the element that is looked at along a dimension, and whether there is one.
struct PadTap {
  Value at, exists;
};

Value pad_source(Value i, Value before, Value n, PadMode mode) {
  const Value at = i - before;
  switch (mode) {
    case PadMode::reflect:
      return (n - 1.0) - abs((n - 1.0) - abs(at));
    case PadMode::circular:
      return where(at < 0.0, at + n, where(at >= n, at - n, at));
    case PadMode::replicate:
      break;
  }
  return min(max(at, expr::constant_like(at, 0)), n - 1.0);
}

std::vector<PadTap> pad_results(Value i, Value before, Value n, Value out, PadMode mode,
                                int64_t taps) {
  const Value same = i + before;
  switch (mode) {
    case PadMode::reflect: {
      const Value low = before - i, high = (n - 1.0) + (n - 1.0) - i + before;
      return {{same, {}}, {low, (i >= 1.0) & (low >= 0.0)}, {high, (i < n - 1.0) & (high < out)}};
    }
    case PadMode::circular:
      return {{same, {}}, {same - n, same >= n}, {same + n, same + n < out}};
    case PadMode::replicate:
      break;
  }
  const Value zero = expr::constant_like(i, 0);
  const Value first = max(where(i == 0.0, zero, same), zero);
  const Value last = where(i == n - 1.0, out - 1.0, min(same, out - 1.0));
  std::vector<PadTap> all;
  for (int64_t t = 0; t < taps; ++t) {
    const Value at = first + double(t);
    all.push_back({at, at <= last});
  }
  return all;
}

// Of so many padded dimensions the numbers of taps fit in a key.
constexpr size_t kMostTapKeys = 5;

// Positions are sums over groups of numbers times strides. `taps`: of the gradient, for each padded
// group; none: of the result.
const expr::Program& pad_program(DType dtype, DType number, const PadGroups& groups, PadMode mode,
                                 std::span<const int64_t> taps) {
  static auto& cache = *new expr::ProgramCache;
  uint64_t key = pack_key({int(dtype), number == kInt64, int(mode), int(groups.size())});
  for (const PadGroup& g : groups) key = key << 1 | uint64_t(g.padded);
  key = key << 1 | uint64_t(taps.empty());
  for (int64_t t : taps) key = key << 5 | uint64_t(t);
  ARETE_ASSERT(taps.size() <= kMostTapKeys);
  std::vector<DType> inputs(1 + groups.size(), number);
  inputs[0] = dtype;
  const expr::Type type = expr::compute_type(number);
  // For each group the stride; of padded ones what lies before, elements of input and result.
  const std::vector<expr::Type> params(4 * groups.size(), type);
  return cache.get(
      key, inputs, params, {dtype},
      [&](std::span<const Value> v) {
        const Value* const numbers = v.data() + 1;
        const Value* const params_of = v.data() + inputs.size();
        const auto sum = [&](auto& self, size_t g, size_t k, Value at, Value exists) -> Value {
          if (g == groups.size()) {
            if (!exists.builder()) return expr::load(v[0], at);
            const Value value = expr::load(v[0], where(exists, at, expr::constant_like(at, 0)));
            return where(exists, value, expr::constant_like(value, 0));
          }
          const Value *const p = params_of + 4 * g, i = numbers[g];
          const auto along = [&](Value number) {
            const Value part = number * p[0];
            return at.builder() ? at + part : part;
          };
          if (!groups[g].padded) return self(self, g + 1, k, along(i), exists);
          if (taps.empty())
            return self(self, g + 1, k + 1, along(pad_source(i, p[1], p[2], mode)), exists);
          Value total;
          for (const PadTap& tap : pad_results(i, p[1], p[2], p[3], mode, taps[k])) {
            const Value both = !tap.exists.builder() ? exists
                               : exists.builder()    ? exists & tap.exists
                                                     : tap.exists;
            const Value part = self(self, g + 1, k + 1, along(tap.at), both);
            total = total.builder() ? total + part : part;
          }
          return total;
        };
        return std::vector{sum(sum, 0, 0, Value(), Value())};
      },
      1);
}

void run_pad_program(prim::Primitives& p, const PadAxes& axes, PadMode mode, prim::View table,
                     const prim::View& out, std::span<const int64_t> taps) {
  std::optional<prim::ScratchView> dense;
  if (!Layout(table.sizes, table.strides).is_dense()) {
    dense.emplace(p, table.dtype, table.sizes);
    p.copy({*dense, table});
    table = *dense;
  }
  const PadGroups groups = pad_groups(axes, table);
  const DType number = prim::position_dtype(std::max(table.numel(), out.numel()));
  int64_t longest = 1;
  for (const PadGroup& g : groups) {
    int64_t n = 1;
    for (size_t d = g.first; d <= g.last; ++d) n *= out.sizes[d];
    longest = std::max(longest, n);
  }
  prim::Positions positions(p, number, longest);
  SmallVector<prim::View, kMaxRank + 1> inputs{table};
  SmallVector<expr::Literal, 4 * kMaxRank> params;
  for (const PadGroup& g : groups) {
    inputs.push_back(positions.along(out.sizes, g.first, g.last));
    const PadAxis& a = axes[g.last];
    for (int64_t value : {table.strides[g.last], a.before, a.n, a.out()})
      params.push_back({.i = value});
  }
  p.pointwise({&pad_program(table.dtype, number, groups, mode, taps), inputs, {&out, 1}, params});
}

// ---- records

Tensor pad_by_backward(const Tensor& grad, IntList sizes, IntList pad, int64_t mode);

const OpRecord& pad_by_op =
    define("pad_by(Tensor self, int[] pad, int mode) -> Tensor")
        .doc("Padded with reflections, repetitions or cyclically.")
        .indexed({0})
        .surface(Surface::internal)
        .batched(vmaps::folded)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          Shape sizes;
          for (const PadAxis& a : pad_axes(x.sizes(), c.ints(1))) sizes.push_back(a.out());
          numel_of(sizes);
          auto strides = strides_like(x, sizes);
          out.push_back({std::move(sizes), x.dtype(), std::move(strides)});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (out[0].numel() == 0) return;
          const PartsView x(c.tensor(0)), y(out[0]);
          PadAxes axes = pad_axes(c.tensor(0).sizes(), c.ints(1));
          if (x.view().sizes.size() > axes.size()) axes.push_back({2});
          const PadMode mode = PadMode(c.integer(2));
          if (!out[0].device().is_cpu())
            return run_pad_program(p, axes, mode, x.view(), y.view(), {});
          copy_bands(p, axes, mode, x.view(), y.view());
        })
        .grad([](const GradCall& g) -> TensorList {
          return {pad_by_backward(g.grad(), g.input_sizes(0), g.ints(1), g.integer(2))};
        });

const OpRecord& pad_by_backward_op =
    define("pad_by_backward(Tensor grad, int[] input_size, int[] pad, int mode) -> Tensor")
        .doc("Sums of what each element of the input became.")
        .indexed({0})
        .surface(Surface::internal)
        .batched(vmaps::folded)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& g = c.tensor(0);
          Shape sizes(c.ints(1));
          auto strides = strides_like(g, sizes);
          out.push_back({std::move(sizes), g.dtype(), std::move(strides)});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (out[0].numel() == 0) return;
          if (c.tensor(0).numel() == 0) return p.fill(filling(view_of(out[0]), 0, c.name()));
          const PartsView grad(c.tensor(0)), x(out[0]);
          PadAxes axes = pad_axes(c.ints(1), c.ints(2));
          if (x.view().sizes.size() > axes.size()) axes.push_back({2});
          const PadMode mode = PadMode(c.integer(3));
          SmallVector<int64_t, kMaxRank> taps;
          int64_t product = 1;
          for (const PadAxis& a : axes)
            if (a.padded()) {
              taps.push_back(pad_taps(a, mode));
              product = std::min(product * taps.back(), kMostSmallPadTaps + 1);
            }
          const int64_t most = out[0].numel() <= kSmallPad ? kMostSmallPadTaps : kMostPadTaps;
          if (out[0].device().is_cpu() || product > most || taps.size() > kMostTapKeys)
            add_bands(p, axes, mode, grad.view(), x.view());
          else
            run_pad_program(p, axes, mode, grad.view(), x.view(), taps);
        })
        .grad([](const GradCall& g) -> TensorList {
          return {pad_by(g.grad(), g.ints(2), PadMode(g.integer(3)))};
        });

Tensor pad_by_backward(const Tensor& grad, IntList sizes, IntList pad, int64_t mode) {
  return call(pad_by_backward_op, {grad, sizes, pad, mode});
}

}  // namespace

Tensor pad_by(const Tensor& x, IntList pad, PadMode mode) {
  return call(pad_by_op, {x, pad, int64_t(mode)});
}

}  // namespace arete::ops

ARETE_FAMILY(pad_modes)
