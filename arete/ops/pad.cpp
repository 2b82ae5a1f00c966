// Triangles, padding and grids.
#include <algorithm>

#include "arete/base/warn.h"
#include "arete/expr/program_cache.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/filling.h"
#include "arete/ops/pad_modes.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap_rules_internal.h"
#include "arete/ops/window_parts_internal.h"
#include "arete/ops/window_util.h"
#include "arete/prim/positions.h"

namespace arete {
namespace ops {
namespace {

// ---- triangles

void infer_triangle(const Call& c, OutputSpecs& out) {
  const Tensor& x = c.tensor(0);
  ARETE_CHECK(x.dim() >= 2,
              ValueError(c.name(),
                         std::string(c.name()) + ": input tensor must have at least 2 dimensions"));
  out.push_back({Shape(x.sizes()), x.dtype()});
}

// Keeps elements whose (column - row) is <= k (lower) or >= k.
void lower_triangle(const Call& c, const Tensor& out, prim::Primitives& p, bool lower) {
  if (out.numel() == 0) return;
  const PartsView x(c.tensor(0)), y(out);
  const prim::View result = y.view();
  const size_t rank = size_t(out.dim());
  const DType dtype = result.dtype;
  const int64_t longest = std::max(out.size(-2), out.size(-1));
  const DType number = prim::position_dtype(longest);
  prim::Positions positions(p, number, longest);
  using expr::Value;
  const auto keeps = [lower](const Value& row, const Value& column, const Value& k) {
    return lower ? column - row <= k : column - row >= k;
  };
  const expr::Literal k{.i = std::clamp(c.integer(1), -longest, longest)};
  const expr::Type type = expr::compute_type(number);
  if (out.device().is_cpu() && out.numel() > out.size(-2) * out.size(-1)) {
    // Many matrices share a mask: positions would be spread anew for each of them.
    static auto &masks = *new expr::ProgramCache, &choices = *new expr::ProgramCache;
    const Layout matrix(result.sizes.subspan(rank - 2));
    const prim::ScratchView mask(p, kBool, matrix.sizes);
    const prim::View at[] = {positions.along(matrix.sizes, 0, 0),
                             positions.along(matrix.sizes, 1, 1)},
                     made = mask.view();
    p.pointwise(
        {&masks.get(pack_key({int(number), lower}), {number, number}, {type}, {kBool},
                    [&](std::span<const Value> v) { return std::vector{keeps(v[0], v[1], v[2])}; }),
         at,
         {&made, 1},
         {&k, 1}});
    const Layout all = expand(matrix, result.sizes);
    const prim::View in[] = {prim::View(made.data, kBool, all.sizes, all.strides, made.storage),
                             x.view()};
    return p.pointwise(
        {&choices.get(uint64_t(dtype), {kBool, dtype}, {}, {dtype},
                      [](std::span<const Value> v) { return std::vector{where(v[0], v[1], 0.0)}; }),
         in,
         {&result, 1},
         {}});
  }
  const prim::View in[] = {x.view(), positions.along(result.sizes, rank - 2, rank - 2),
                           positions.along(result.sizes, rank - 1, rank - 1)};
  static auto& cache = *new expr::ProgramCache;
  const expr::Program& program =
      cache.get(pack_key({int(dtype), int(number), lower}), {dtype, number, number}, {type},
                {dtype}, [&](std::span<const Value> v) {
                  return std::vector{where(keeps(v[1], v[2], v[3]), v[0], 0.0)};
                });
  p.pointwise({&program, in, {&result, 1}, {&k, 1}});
}

const OpRecord& tril_op =
    define("tril(Tensor self, int diagonal=0) -> Tensor")
        .doc("The lower triangle of the last two dimensions, else zero.")
        .batched(vmaps::leading)
        .infer(infer_triangle)
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          lower_triangle(c, out[0], p, true);
        })
        .grad([](const GradCall& g) -> TensorList { return {tril(g.grad(), g.integer(1))}; })
        .in_place();

const OpRecord& triu_op =
    define("triu(Tensor self, int diagonal=0) -> Tensor")
        .doc("The upper triangle of the last two dimensions, else zero.")
        .batched(vmaps::leading)
        .infer(infer_triangle)
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          lower_triangle(c, out[0], p, false);
        })
        .grad([](const GradCall& g) -> TensorList { return {triu(g.grad(), g.integer(1))}; })
        .in_place();

// ---- padding

// pad[2 k], pad[2 k + 1] belong to dimension rank - 1 - k.
void check_pad(const Call& c, int64_t rank, IntList pad) {
  ARETE_CHECK(pad.size() % 2 == 0, ValueError(c.name(), "Padding length must be divisible by 2")
                                       .argument("pad")
                                       .got(to_string(pad)));
  ARETE_CHECK(int64_t(pad.size()) <= 2 * rank,
              ValueError(c.name(),
                         "Padding length should be less than or equal to two times the input "
                         "dimension but got padding length " +
                             std::to_string(pad.size()) + " and input of dimension " +
                             std::to_string(rank)));
}

// The parts of in and out that are the same elements, and whether there are any.
bool shared_part(Layout& in, Layout& out, IntList pad) {
  const int rank = in.rank();
  for (size_t k = 0; k < pad.size() / 2; ++k) {
    const int d = rank - 1 - int(k);
    const int64_t before = pad[2 * k];
    const int64_t from = std::max<int64_t>(-before, 0), to = std::max<int64_t>(before, 0);
    const int64_t n = std::min(in.sizes[d] - from, out.sizes[d] - to);
    if (n <= 0) return false;
    in = arete::narrow(in, d, from, n);
    out = arete::narrow(out, d, to, n);
  }
  return in.numel() > 0;
}

constexpr int64_t kManyPadded = 1 << 14;

// What lies around the shared part: of each dimension the slabs before and after it.
void fill_borders(const Call& c, const Tensor& y, const Scalar& value, prim::Primitives& p) {
  Layout inside = y.layout();
  const auto fill = [&](int64_t dim, int64_t start, int64_t length) {
    if (length > 0)
      p.fill(filling(view_of(y, narrow(inside, dim, start, length)), value, c.name()));
  };
  for (size_t k = 0; k < c.ints(1).size() / 2; ++k) {
    const int64_t dim = y.dim() - 1 - int64_t(k), n = inside.sizes[size_t(dim)],
                  before = std::max<int64_t>(c.ints(1)[2 * k], 0),
                  after = std::max<int64_t>(c.ints(1)[2 * k + 1], 0);
    fill(dim, 0, before);
    fill(dim, n - after, after);
    inside = narrow(inside, dim, before, n - before - after);
  }
}

const OpRecord& constant_pad_nd_op =
    define("constant_pad_nd(Tensor self, int[] pad, Scalar value=0) -> Tensor")
        .doc("Padded with a number (cropped where negative), last dimension first.")
        .surface(Surface::function)
        .batched(vmaps::leading_of_rows)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          check_pad(c, x.dim(), c.ints(1));
          OutputSpec s{Shape(x.sizes()), x.dtype()};
          for (size_t k = 0; k < c.ints(1).size() / 2; ++k) {
            int64_t& n = s.sizes[size_t(x.dim()) - 1 - k];
            const int64_t padded = n + c.ints(1)[2 * k] + c.ints(1)[2 * k + 1];
            ARETE_CHECK(padded >= 0,
                        ValueError(c.name(), "The input size " + std::to_string(n) +
                                                 ", plus negative padding " +
                                                 std::to_string(c.ints(1)[2 * k]) + " and " +
                                                 std::to_string(c.ints(1)[2 * k + 1]) +
                                                 " resulted in a negative output size"));
            n = padded;
          }
          numel_of(s.sizes);
          s.strides = strides_like(x, s.sizes);
          out.push_back(s);
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor &x = c.tensor(0), &y = out[0];
          const Scalar value = c.scalar(2);
          Layout from = x.layout(), to = y.layout();
          const bool shares = shared_part(from, to, c.ints(1));
          // On the CPU what is copied is not filled before; elsewhere a call costs more than that.
          if (shares && y.device().is_cpu() && y.numel() >= kManyPadded)
            fill_borders(c, y, value, p);
          else
            p.fill(filling(view_of(y), value, c.name()));
          if (shares) p.copy({view_of(y, to), view_of(x, from)});
        })
        .grad([](const GradCall& g) -> TensorList {
          Shape back(g.ints(1));
          for (int64_t& n : back) n = -n;
          return {pad(g.grad(), back)};
        });

PadMode pad_mode(const Call& c) {
  const std::string_view mode = c[2].string();
  if (mode == "reflect") return PadMode::reflect;
  if (mode == "replicate") return PadMode::replicate;
  if (mode == "circular") return PadMode::circular;
  throw NotImplementedError(c.name(), "Unrecognised padding mode " + std::string(mode))
      .argument("mode")
      .expected("constant, reflect, replicate or circular");
}

// Takes from x what negative padding crops, and the padding of dimension d along with it. Of what
// is repeated, the ends are those of all of x, even where they are cropped.
Tensor cropped(const Call& c, const Tensor& x, int d, int64_t& before, int64_t& after,
               PadMode mode) {
  const int64_t n = x.size(d), crop = std::max<int64_t>(-before, 0) + std::max<int64_t>(-after, 0);
  if (mode == PadMode::replicate) {
    ARETE_CHECK(
        (n > 0 || (before == 0 && after == 0)) && n + before + after >= 0,
        ValueError(c.name(), n > 0 ? "negative padding crops more than there is"
                                   : "replicate padding needs at least one element to repeat")
            .got("padding " + to_string(c.ints(1)) + " of input " + to_string(x.sizes())));
    return x;
  }
  ARETE_CHECK(crop <= n, ValueError(c.name(), "negative padding crops more than there is")
                             .argument("pad")
                             .got(to_string(c.ints(1))));
  const Tensor kept = crop > 0 ? narrow(x, d, std::max<int64_t>(-before, 0), n - crop) : x;
  before = std::max<int64_t>(before, 0);
  after = std::max<int64_t>(after, 0);
  const int64_t room = kept.size(d) - (mode == PadMode::reflect ? 1 : 0);
  ARETE_CHECK(
      (before == 0 && after == 0) || (before <= room && after <= room),
      ValueError(c.name(),
                 (mode == PadMode::reflect
                      ? "Padding size should be less than the corresponding input dimension, but "
                        "got: padding ("
                      : "Padding value causes wrapping around more than once: padding (") +
                     std::to_string(before) + ", " + std::to_string(after) + ") at dimension " +
                     std::to_string(d) + " of input " + to_string(kept.sizes())));
  return kept;
}

const OpRecord& pad_op =
    define("pad(Tensor self, int[] pad, str mode=\"constant\", float? value=None) -> Tensor")
        .doc("Padded with a number, reflections, repetitions or cyclically.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          check_pad(c, x.dim(), c.ints(1));
          if (c[2].string() == "constant")
            return {call(constant_pad_nd_op, {x, c.ints(1), c.has(3) ? c[3] : Arg(0)})};
          const PadMode mode = pad_mode(c);
          ARETE_CHECK(!c.ints(1).empty(),
                      NotImplementedError(c.name(), "Padding size 0 is not supported for " +
                                                        std::to_string(x.dim()) + "D input tensor")
                          .argument("pad")
                          .expected("two numbers for each padded dimension"));
          ARETE_CHECK(!c.has(3) || c.real(3) == 0,
                      ValueError(c.name(), "Padding mode \"" + std::string(c[2].string()) +
                                               "\" doesn't take in value argument"));
          Tensor kept = x;
          Shape pad(c.ints(1));
          bool pads = false;
          for (size_t k = 0; k < pad.size() / 2; ++k) {
            kept = cropped(c, kept, int(x.dim()) - 1 - int(k), pad[2 * k], pad[2 * k + 1], mode);
            pads = pads || pad[2 * k] != 0 || pad[2 * k + 1] != 0;
          }
          return {pads ? pad_by(kept, pad, mode) : kept.clone()};
        });

const OpRecord& meshgrid_op =
    define("meshgrid(Tensor[] tensors, str? indexing=None) -> Tensor[]")
        .doc("Coordinate grids of 1-d tensors.")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results {
          const std::span<const Tensor> tensors = c.tensors(0);
          if (!c.has(1))
            warn(
                "torch.meshgrid: in an upcoming release, it will be required to pass the indexing "
                "argument. It is \"ij\" meanwhile.");
          const std::string_view indexing = c.has(1) ? c[1].string() : "ij";
          ARETE_CHECK(!tensors.empty(),
                      ValueError(c.name(), "meshgrid expects a non-empty TensorList"));
          ARETE_CHECK(indexing == "ij" || indexing == "xy",
                      ValueError(c.name(),
                                 "meshgrid: indexing must be one of \"xy\" or \"ij\", but "
                                 "received: " +
                                     std::string(indexing)));
          const bool swapped = indexing == "xy" && tensors.size() >= 2;
          Shape sizes;
          for (const Tensor& x : tensors) {
            ARETE_CHECK(x.dim() <= 1, ValueError(c.name(),
                                                 "meshgrid: Expected 0D or 1D tensor in the "
                                                 "tensor list but got: " +
                                                     describe(x)));
            sizes.push_back(x.numel());
          }
          if (swapped) std::swap(sizes[0], sizes[1]);
          Results out;
          for (size_t k = 0; k < tensors.size(); ++k) {
            Shape apart(sizes.size(), 1);
            apart[swapped && k < 2 ? 1 - k : k] = tensors[k].numel();
            out.push_back(expand(reshape(tensors[k], apart), sizes));
          }
          return out;
        });

}  // namespace
}  // namespace ops

Tensor tril(const Tensor& self, int64_t diagonal) {
  return ops::call(ops::tril_op, {self, diagonal});
}
Tensor triu(const Tensor& self, int64_t diagonal) {
  return ops::call(ops::triu_op, {self, diagonal});
}
Tensor pad(const Tensor& self, IntList pad, std::string_view mode, double value) {
  return ops::call(ops::pad_op, {self, pad, mode, value});
}
std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors, std::string_view indexing) {
  const ops::Results grids = ops::call_all(ops::meshgrid_op, {tensors, indexing});
  return {grids.begin(), grids.end()};
}

Tensor Tensor::tril(int64_t diagonal) const { return arete::tril(*this, diagonal); }
Tensor Tensor::triu(int64_t diagonal) const { return arete::triu(*this, diagonal); }

}  // namespace arete

ARETE_FAMILY(pad)
