// Joining, repeating and reordering: what needs a copy.
#include <algorithm>

#include "arete/core/host_access.h"
#include "arete/core/modes.h"
#include "arete/expr/program_cache.h"
#include "arete/expr/value.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap_rules_internal.h"
#include "arete/ops/window_util.h"

namespace arete {
namespace ops {

// ---- for batches (Note [Batching rules])

namespace vmaps {
namespace {
Results roll_rule(const Rewriting& r) {
  Changed call(r);
  call.set(0, r.whole(0));
  call.set(1, with_front(0, r.call.ints(1)));
  return call.run();
}
}  // namespace
}  // namespace vmaps
namespace {

// ---- parts

// Elements of x that go to a place of the result.
struct Part {
  Layout to;
  const Tensor* x;
  Layout from;
};

// On a CPU: two parts whose elements alternate in `out` go there together, by vectors. False if
// they are no such parts.
bool interleave_parts(const Tensor& out, const std::vector<Part>& parts, prim::Primitives& p) {
  constexpr int64_t kLeast = 256;
  const size_t size = size_of(out.dtype());
  if (parts.size() != 2 || size > 8 || !out.device().is_cpu() || modes().capture) return false;
  const Layout &first = parts[0].to, &second = parts[1].to;
  if (first.numel() < kLeast || !std::ranges::equal(first.sizes, second.sizes) ||
      second.offset != first.offset + 1)
    return false;
  for (size_t d = 0; d < first.sizes.size(); ++d)
    if (first.sizes[d] > 1 && first.strides[d] % 2 != 0) return false;
  constexpr DType kOfSize[] = {kUInt8, kUInt8, kInt16, kInt16, kInt32,
                               kInt32, kInt32, kInt32, kInt64};
  const DType t = kOfSize[size];
  SmallVector<prim::View, 2> inputs, outputs;
  for (const Part& part : parts) {
    if (part.x->dtype() != out.dtype()) return false;
    inputs.push_back(view_of(*part.x, part.from));
    outputs.push_back(view_of(out, part.to));
    inputs.back().dtype = outputs.back().dtype = t;
  }
  static auto& cache = *new expr::ProgramCache;
  p.pointwise({&cache.get(uint64_t(t), {t, t}, {}, {t, t},
                          [](std::span<const expr::Value> v) {
                            return std::vector{v[0], v[1]};
                          }),
               inputs,
               outputs,
               {}});
  return true;
}

// On a GPU, where small copies are nothing but launches, many of them are one.
void copy_parts(const Tensor& out, const std::vector<Part>& parts, prim::Primitives& p) {
  const DType t = out.dtype();
  const bool joined =
      out.device().is_cuda() && parts.size() > 1 && !is_complex(t) && !modes().capture &&
      std::all_of(parts.begin(), parts.end(), [&](const Part& k) { return k.x->dtype() == t; });
  if (!joined) {
    if (interleave_parts(out, parts, p)) return;
    for (const Part& k : parts) p.copy({view_of(out, k.to), view_of(*k.x, k.from)});
    return;
  }
  constexpr size_t kMost = 32;
  for (size_t begin = 0; begin < parts.size(); begin += kMost) {
    SmallVector<prim::View, kMost> inputs, outputs;
    for (size_t k = begin; k < std::min(begin + kMost, parts.size()); ++k) {
      inputs.push_back(view_of(*parts[k].x, parts[k].from));
      outputs.push_back(view_of(out, parts[k].to));
    }
    p.multi_pointwise({expr::conversion(t, t).get(),
                       int64_t(inputs.size()),
                       {inputs.data(), inputs.size()},
                       {outputs.data(), outputs.size()},
                       {}});
  }
}

// ---- cat, stack

// 1-d tensors without elements are ignored whatever the others look like.
bool ignored(IntList sizes) { return sizes.size() == 1 && sizes[0] == 0; }

int cat_rank(std::span<const Tensor> tensors) {
  for (const Tensor& x : tensors)
    if (!ignored(x.sizes())) return int(x.dim());
  return 1;
}

void infer_cat(const Call& c, OutputSpecs& out) {
  const std::span<const Tensor> tensors = c.tensors(0);
  ARETE_CHECK(!tensors.empty(), ValueError(c.name(), "expected a non-empty list of Tensors"));
  for (size_t k = 0; k < tensors.size(); ++k)
    ARETE_CHECK(tensors[k].dim() > 0,
                ValueError(c.name(), "zero-dimensional tensor (at position " + std::to_string(k) +
                                         ") cannot be concatenated")
                    .hint("stack() joins along a new dimension"));
  const int d = normalize_dim(c.integer(1), cat_rank(tensors), c.name());
  const Tensor* first = nullptr;
  OutputSpec spec{{}, result_type(tensors)};
  for (size_t k = 0; k < tensors.size(); ++k) {
    const Tensor& x = tensors[k];
    if (ignored(x.sizes())) continue;
    if (!first) {
      first = &x;
      spec.sizes = Shape(x.sizes());
      continue;
    }
    ARETE_CHECK(
        x.dim() == first->dim(),
        ValueError(c.name(), "Tensors must have same number of dimensions: got " +
                                 std::to_string(first->dim()) + " and " + std::to_string(x.dim())));
    for (int e = 0; e < int(x.dim()); ++e)
      ARETE_CHECK(e == d || x.size(e) == first->size(e),
                  ValueError(c.name(), "Sizes of tensors must match except in dimension " +
                                           std::to_string(d) + ". Expected size " +
                                           std::to_string(first->size(e)) + " but got size " +
                                           std::to_string(x.size(e)) + " for tensor number " +
                                           std::to_string(k) + " in the list."));
    spec.sizes[d] += x.size(d);
  }
  if (!first) spec.sizes = {0};
  numel_of(spec.sizes);
  const auto asks = [](const Tensor& x) { return ignored(x.sizes()) || prefers_channels_last(x); };
  if (first && std::all_of(tensors.begin(), tensors.end(), asks))
    spec.strides = strides_like(*first, spec.sizes);
  out.push_back(spec);
}

const OpRecord& cat_op =
    define("cat(Tensor[] tensors, int dim=0) -> Tensor")
        .converts_out()
        .doc("Joins along an existing dimension.")
        .surface(Surface::function)
        .infer(infer_cat)
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const int d = normalize_dim(c.integer(1), int(out[0].dim()), c.name());
          int64_t start = 0;
          std::vector<Part> parts;
          parts.reserve(c.tensors(0).size());
          for (const Tensor& x : c.tensors(0)) {
            if (ignored(x.sizes())) continue;
            const int64_t n = x.size(d);
            if (x.numel() > 0)
              parts.push_back({arete::narrow(out[0].layout(), d, start, n), &x, x.layout()});
            start += n;
          }
          copy_parts(out[0], parts, p);
        })
        .grad([](const GradCall& g) {
          const int rank = int(g.grad().dim());
          const int d = normalize_dim(g.integer(1), rank, "cat");
          TensorList result(g.input_count());
          int64_t start = 0;
          for (size_t k = 0; k < result.size(); ++k) {
            const IntList sizes = g.input_sizes(k);
            if (ignored(sizes)) {
              if (g.needs(k)) result[k] = zeros(sizes, g.grad().options().dtype(g.input_dtype(k)));
              continue;
            }
            const int64_t n = sizes[size_t(d)];
            if (g.needs(k)) result[k] = narrow(g.grad(), d, start, n).to(g.input_dtype(k));
            start += n;
          }
          return result;
        });

const OpRecord& stack_op =
    define("stack(Tensor[] tensors, int dim=0) -> Tensor")
        .doc("Joins equal shapes along a new dimension.")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results {
          const std::span<const Tensor> tensors = c.tensors(0);
          ARETE_CHECK(!tensors.empty(),
                      ValueError(c.name(), "stack expects a non-empty TensorList"));
          const int d = normalize_dim(c.integer(1), int(tensors[0].dim()) + 1, c.name());
          // Along the first dimension one follows the other, in whatever shape. (Of four dimensions
          // the order in memory can be another one, which the result has not got.) A tensor that is
          // given for the result takes what is joined, not a view of that.
          const bool follows =
              d == 0 && tensors[0].dim() >= 1 && tensors[0].dim() <= 3 && !modes().destination;
          std::vector<Tensor> parts;
          parts.reserve(follows ? 0 : tensors.size());
          for (size_t k = 0; k < tensors.size(); ++k) {
            ARETE_CHECK(
                std::ranges::equal(tensors[k].sizes(), tensors[0].sizes()),
                ValueError(c.name(), "stack expects each tensor to be equal size, but got " +
                                         to_string(tensors[0].sizes()) + " at entry 0 and " +
                                         to_string(tensors[k].sizes()) + " at entry " +
                                         std::to_string(k)));
            if (!follows) parts.push_back(unsqueeze(tensors[k], d));
          }
          if (!follows) return {arete::cat(parts, d)};
          Shape sizes{int64_t(tensors.size())};
          sizes.append(tensors[0].sizes().begin(), tensors[0].sizes().end());
          return {reshape(arete::cat({tensors.begin(), tensors.end()}, 0), sizes)};
        });

const OpRecord& hstack_op =
    define("hstack(Tensor[] tensors) -> Tensor")
        .doc("Joins along dimension 1; 1-d tensors along dimension 0.")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results {
          ARETE_CHECK(!c.tensors(0).empty(),
                      ValueError(c.name(), "hstack expects a non-empty TensorList"));
          std::vector<Tensor> parts;
          for (const Tensor& x : c.tensors(0)) parts.push_back(x.dim() ? x : unsqueeze(x, 0));
          return {arete::cat(parts, parts[0].dim() == 1 ? 0 : 1)};
        });

const OpRecord& vstack_op =
    define("vstack(Tensor[] tensors) -> Tensor")
        .doc("Joins rows.")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results {
          ARETE_CHECK(!c.tensors(0).empty(),
                      ValueError(c.name(), "vstack expects a non-empty TensorList"));
          std::vector<Tensor> parts;
          for (const Tensor& x : c.tensors(0)) parts.push_back(x.dim() >= 2 ? x : atleast_2d(x));
          return {arete::cat(parts, 0)};
        });

// ---- repeat

const OpRecord& repeat_op =
    define("repeat(Tensor self, int[] repeats) -> Tensor")
        .doc("The whole tensor several times along each dimension.")
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const IntList repeats = c.ints(1);
          ARETE_CHECK(
              int64_t(repeats.size()) >= x.dim(),
              ValueError(c.name(),
                         "Number of dimensions of repeat dims can not be smaller than "
                         "number of dimensions of tensor")
                  .got("repeats " + to_string(repeats) + " for shape " + to_string(x.sizes())));
          // A size-1 dimension before each one, expanded to the count; the copy joins the pairs.
          const size_t lead = repeats.size() - size_t(x.dim());
          Shape apart, expanded, joined;
          for (size_t d = 0; d < repeats.size(); ++d) {
            ARETE_CHECK(repeats[d] >= 0,
                        ValueError(c.name(), "Trying to create tensor with negative dimension")
                            .argument("repeats")
                            .got(to_string(repeats)));
            const int64_t n = d < lead ? 1 : x.sizes()[d - lead];
            joined.push_back(n * repeats[d]);
            if (repeats[d] != 1) {
              apart.push_back(1);
              expanded.push_back(repeats[d]);
            }
            if (d < lead) continue;
            apart.push_back(n);
            expanded.push_back(n);
          }
          // Also where nothing is repeated the result is a copy.
          return {reshape(
              arete::expand(reshape(x, apart), expanded).clone(MemoryFormat::contiguous), joined)};
        });

const OpRecord& tile_op = define("tile(Tensor self, int[] dims) -> Tensor")
                              .doc("repeat with missing leading counts of 1.")
                              .compose([](const Call& c) -> Results {
                                Shape counts(c.ints(1));
                                while (int64_t(counts.size()) < c.tensor(0).dim())
                                  counts.insert(counts.begin(), 1);
                                return {arete::repeat(c.tensor(0), counts)};
                              });

const OpRecord& repeat_interleave_op =
    define(
        "repeat_interleave(Tensor self, int repeats, int? dim=None, *, int? output_size=None) -> "
        "Tensor")
        .doc("Every element several times in a row.")
        .compose([](const Call& c) -> Results {
          const int64_t n = c.integer(1);
          ARETE_CHECK(n >= 0, ValueError(c.name(), "repeats can not be negative")
                                  .argument("repeats")
                                  .got(std::to_string(n)));
          const Tensor x = c.has(2) && c.tensor(0).dim() > 0 ? c.tensor(0) : ravel(c.tensor(0));
          const int d = normalize_dim(c.has(2) ? c.integer(2) : 0, int(x.dim()), c.name());
          Shape expanded(x.sizes()), joined(x.sizes());
          expanded.insert(expanded.begin() + d + 1, n);
          joined[d] *= n;
          return {
              reshape(arete::expand(unsqueeze(x, d + 1), expanded).clone(MemoryFormat::contiguous),
                      joined)};
        });

// ---- other orders

const OpRecord& flip_op =
    define("flip(Tensor self, int[] dims) -> Tensor")
        .doc("Reversed along the dimensions.")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          normalize_dims(c.ints(1), int(x.dim()), c.name(), false);
          out.push_back({Shape(x.sizes()), x.dtype(), strides_like(x)});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor& x = c.tensor(0);
          if (x.numel() == 0) return;
          // The last element first: negative strides.
          Layout reversed = x.layout();
          for (int64_t d : normalize_dims(c.ints(1), int(x.dim()), c.name(), false)) {
            reversed.offset += (reversed.sizes[size_t(d)] - 1) * reversed.strides[size_t(d)];
            reversed.strides[size_t(d)] *= -1;
          }
          p.copy({view_of(out[0]), view_of(x, reversed)});
        })
        .grad([](const GradCall& g) -> TensorList { return {flip(g.grad(), g.ints(1))}; });

// The parts of x, of which what lies behind position n - shift of a dimension goes to its front,
// from dimension d on.
void find_rolled(const Tensor& x, const Layout& to, const Layout& from, const Shape& shifts, int d,
                 std::vector<Part>& parts) {
  while (d < int(shifts.size()) && shifts[size_t(d)] == 0) ++d;
  if (d == int(shifts.size())) return parts.push_back({to, &x, from});
  const int64_t shift = shifts[size_t(d)], rest = from.sizes[size_t(d)] - shift;
  find_rolled(x, arete::narrow(to, d, shift, rest), arete::narrow(from, d, 0, rest), shifts, d + 1,
              parts);
  find_rolled(x, arete::narrow(to, d, 0, shift), arete::narrow(from, d, rest, shift), shifts, d + 1,
              parts);
}

const OpRecord& roll_dims_op =
    define("_roll_dims(Tensor self, int[] shifts) -> Tensor")
        .doc("Shifted cyclically, by one number for each dimension, from 0 to its size.")
        .surface(Surface::internal)
        .batched(vmaps::roll_rule)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          out.push_back({Shape(x.sizes()), x.dtype(), strides_like(x, x.sizes())});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor& x = c.tensor(0);
          if (x.numel() == 0) return;
          std::vector<Part> parts;
          find_rolled(x, out[0].layout(), x.layout(), Shape(c.ints(1)), 0, parts);
          copy_parts(out[0], parts, p);
        })
        .grad([](const GradCall& g) -> TensorList {
          Shape back;
          for (size_t d = 0; d < g.ints(1).size(); ++d) {
            const int64_t shift = g.ints(1)[d];
            back.push_back(shift ? g.input_sizes(0)[d] - shift : 0);
          }
          return {call(roll_dims_op, {g.grad(), IntList(back)})};
        });

const OpRecord& roll_op =
    define("roll(Tensor self, int[] shifts, int[] dims=[]) -> Tensor")
        .doc("Shifted cyclically.")
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const IntList shifts = c.ints(1), dims = c.ints(2);
          ARETE_CHECK(!shifts.empty(), ValueError(c.name(), "`shifts` required"));
          if (dims.empty()) {
            ARETE_CHECK(shifts.size() == 1,
                        ValueError(c.name(), "shifts and dimensions must align. shifts: " +
                                                 std::to_string(shifts.size()) + ", dims:0"));
            return {reshape(arete::roll(ravel(x), shifts, {0}), x.sizes())};
          }
          ARETE_CHECK(shifts.size() == dims.size(),
                      ValueError(c.name(), "shifts and dimensions must align. shifts: " +
                                               std::to_string(shifts.size()) +
                                               ", dims:" + std::to_string(dims.size())));
          Shape total(size_t(x.dim()), 0);
          for (size_t k = 0; k < dims.size(); ++k) {
            ARETE_CHECK(x.dim() > 0,
                        IndexError(c.name(), "Dimension specified as " + std::to_string(dims[k]) +
                                                 " but tensor has no dimensions"));
            const size_t d = size_t(normalize_dim(dims[k], int(x.dim()), c.name()));
            if (const int64_t n = x.size(int64_t(d)))
              total[d] = ((total[d] + shifts[k] % n) % n + n) % n;
          }
          return {call(roll_dims_op, {x, IntList(total)})};
        });

const OpRecord& rot90_op =
    define("rot90(Tensor self, int k=1, int[] dims=[0,1]) -> Tensor")
        .doc("Rotated by 90 degrees k times.")
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const IntList dims = c.ints(2);
          ARETE_CHECK(dims.size() == 2, ValueError(c.name(),
                                                   "expected total rotation dims == 2, but got "
                                                   "dims = " +
                                                       std::to_string(dims.size())));
          ARETE_CHECK(x.dim() >= 2,
                      ValueError(c.name(), "expected total dims >= 2, but got total dims = " +
                                               std::to_string(x.dim())));
          const int a = normalize_dim(dims[0], int(x.dim()), c.name()),
                    b = normalize_dim(dims[1], int(x.dim()), c.name());
          ARETE_CHECK(a != b, ValueError(c.name(),
                                         "expected rotation dims to be different, but got dim0 "
                                         "= " +
                                             std::to_string(dims[0]) +
                                             " and dim1 = " + std::to_string(dims[1])));
          switch (((c.integer(1) % 4) + 4) % 4) {
            case 1:
              return {transpose(arete::flip(x, {b}), a, b)};
            case 2:
              return {arete::flip(x, {a, b})};
            case 3:
              return {transpose(arete::flip(x, {a}), a, b)};
            default:
              return {x.clone(MemoryFormat::contiguous)};
          }
        });

}  // namespace
}  // namespace ops

Tensor cat(const std::vector<Tensor>& tensors, int64_t dim) {
  return ops::call(ops::cat_op, {tensors, dim});
}
Tensor stack(const std::vector<Tensor>& tensors, int64_t dim) {
  return ops::call(ops::stack_op, {tensors, dim});
}
Tensor hstack(const std::vector<Tensor>& tensors) { return ops::call(ops::hstack_op, {tensors}); }
Tensor vstack(const std::vector<Tensor>& tensors) { return ops::call(ops::vstack_op, {tensors}); }
Tensor repeat(const Tensor& self, IntList repeats) {
  return ops::call(ops::repeat_op, {self, repeats});
}
Tensor tile(const Tensor& self, IntList repeats) {
  return ops::call(ops::tile_op, {self, repeats});
}
Tensor repeat_interleave(const Tensor& self, int64_t repeats, std::optional<int64_t> dim) {
  return ops::call(ops::repeat_interleave_op, {self, repeats, dim});
}
Tensor flip(const Tensor& self, IntList dims) { return ops::call(ops::flip_op, {self, dims}); }
Tensor roll(const Tensor& self, IntList shifts, IntList dims) {
  return ops::call(ops::roll_op, {self, shifts, dims});
}
Tensor rot90(const Tensor& self, int64_t k, IntList dims) {
  return ops::call(ops::rot90_op, {self, k, dims});
}

Tensor Tensor::repeat(IntList repeats) const { return arete::repeat(*this, repeats); }
Tensor Tensor::tile(IntList repeats) const { return arete::tile(*this, repeats); }
Tensor Tensor::repeat_interleave(int64_t repeats, std::optional<int64_t> dim) const {
  return arete::repeat_interleave(*this, repeats, dim);
}
Tensor Tensor::roll(IntList shifts, IntList dims) const { return arete::roll(*this, shifts, dims); }
Tensor Tensor::flip(IntList dims) const { return arete::flip(*this, dims); }

}  // namespace arete

ARETE_FAMILY(shape_copy)
