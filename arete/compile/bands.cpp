// Large temporaries that are made and used row by row: some of their rows at a time.
#include <algorithm>
#include <deque>
#include <memory>
#include <span>

#include "arete/compile/graph_internal.h"
#include "arete/compile/plan.h"
#include "arete/prim/recorder.h"

// Note [Bands]
// The scores of a language model's head, and their gradients, are by far its largest tensors, and
// each lives for a few calls only: a product, the losses of its rows, the gradient of these, and
// the two products that take it back. What such calls make of a band of rows depends on no other
// rows, so they run for one band after the other, and memory is needed for one band. A product that
// sums over the rows (the gradient of a weight) adds what each band gives; of half types it is
// summed in f32.
//  - All calls that use the temporary are divided, or none. So are those that need one of them and
//    that another one needs. Other calls come before all bands, or after.
//  - Bands stand in each other's way nowhere: what one uses no other one writes, but for sums.

namespace arete::compile {
namespace {

using prim::Access;
using prim::GemmArgs;
using prim::Primitive;
using prim::View;
using Call = std::unique_ptr<prim::RecordedCall>;

constexpr int64_t kMostBands = 64;
// Of steps from the first to the last one that uses a temporary: it lives for a few calls only.
constexpr size_t kFewSteps = 64;

/// One of equal parts of the first dimension that has several elements.
class Part {
 public:
  Part(int64_t number, int64_t count) : number_(number), count_(count) {}
  int64_t number() const { return number_; }

  static int dim_of(IntList space) {
    return int(std::ranges::find_if(space, [](int64_t n) { return n != 1; }) - space.begin());
  }
  bool narrow(View& v, int dim) {
    if (dim >= v.rank() || v.sizes[size_t(dim)] % count_ != 0) return false;
    Shape& sizes = sizes_.emplace_back(v.sizes);
    const int64_t n = sizes[size_t(dim)] / count_;
    sizes[size_t(dim)] = n;
    v.data += number_ * n * v.strides[size_t(dim)] * int64_t(size_of(v.dtype));
    v.sizes = sizes;
    return true;
  }
  /// Of what broadcasts to `space`.
  bool narrow(View& v, IntList space) {
    const int dim = dim_of(space) - (int(space.size()) - v.rank());
    if (dim < 0 || v.sizes[size_t(dim)] == 1) return true;
    return narrow(v, dim);
  }
  bool narrow(std::vector<View>& views, IntList space) {
    return std::ranges::all_of(views, [&](View& v) { return narrow(v, space); });
  }
  /// The space of the part.
  IntList space(IntList whole) {
    Shape& sizes = sizes_.emplace_back(whole);
    sizes[size_t(dim_of(whole))] /= count_;
    return sizes;
  }

 private:
  const int64_t number_, count_;
  std::deque<Shape> sizes_;
};

Call part_of(Device device, prim::PointwiseArgs a, Part& part) {
  const IntList space = a.outputs[0].sizes;
  std::vector<View> in(a.inputs.begin(), a.inputs.end()), out(a.outputs.begin(), a.outputs.end());
  if (a.program->tables() || !part.narrow(in, space) || !part.narrow(out, space)) return nullptr;
  a.inputs = in, a.outputs = out;
  return as_recorded(device, a);
}

Call part_of(Device device, prim::FusedArgs a, Part& part) {
  const int dim = Part::dim_of(a.space);
  if (dim >= a.outer_rank) return nullptr;
  for (const prim::FusedStage& s : a.spec->stages)
    if (s.program->tables() || s.kind == prim::FusedStage::Kind::reduce_columns) return nullptr;
  std::vector<View> in(a.inputs.begin(), a.inputs.end()), out(a.outputs.begin(), a.outputs.end());
  if (!part.narrow(in, a.space) || !part.narrow(out, a.space)) return nullptr;
  a.inputs = in, a.outputs = out, a.space = part.space(a.space);
  return as_recorded(device, a);
}

Call part_of(Device device, prim::ReduceArgs a, Part& part) {
  const int dim = Part::dim_of(a.space);
  if ((a.prologue && a.prologue->tables()) || a.reduced >> dim & 1) return nullptr;
  std::vector<View> in(a.inputs.begin(), a.inputs.end());
  if (!part.narrow(in, a.space) || !part.narrow(a.out, dim)) return nullptr;
  a.inputs = in, a.space = part.space(a.space);
  return as_recorded(device, a);
}

Call part_of(Device device, prim::CopyArgs a, Part& part) {
  const IntList space = a.out.sizes;
  if (!part.narrow(a.in, space) || !part.narrow(a.out, space)) return nullptr;
  return as_recorded(device, a);
}

Call part_of(Device device, prim::GatherArgs a, Part& part) {
  const int dim = Part::dim_of(a.index.sizes);
  if (a.dim == dim || dim >= a.index.rank() ||
      a.in.sizes[size_t(dim)] != a.index.sizes[size_t(dim)])
    return nullptr;
  if (!part.narrow(a.in, dim) || !part.narrow(a.index, dim) || !part.narrow(a.out, dim))
    return nullptr;
  return as_recorded(device, a);
}

bool is_bare(const GemmArgs& g) {
  return !g.has_programs() && !g.a_sum && !g.a_scale && !g.b_scale;
}

/// Some rows of a product, or some products of a batch.
Call part_of(Device device, GemmArgs g, Part& part) {
  const IntList space = g.out.sizes;
  const int dim = Part::dim_of(space), rows = g.out.rank() - 2;
  if (!is_bare(g) || dim > rows || !part.narrow(g.a, space)) return nullptr;
  if (dim < rows && !part.narrow(g.b, space)) return nullptr;
  if (dim < rows && g.bias.rank() > 1 && !part.narrow(g.bias, space)) return nullptr;
  if (g.aux && !part.narrow(g.aux, space)) return nullptr;
  if (!part.narrow(g.out, space)) return nullptr;
  return as_recorded(device, g);
}

/// What some of the rows that a product of matrices sums over add to `out`.
Call summand_of(Device device, GemmArgs g, const View& out, Part& part) {
  g.out = out;
  if (part.number() > 0) g.beta = 1;
  if (!part.narrow(g.a, 1) || !part.narrow(g.b, 0)) return nullptr;
  return as_recorded(device, g);
}

bool may_be_summed(const GemmArgs& g) {
  return is_bare(g) && !g.bias && !g.aux && g.activation == prim::Activation::none && g.beta == 0 &&
         g.out.rank() == 2;
}

Call part_of(const prim::RecordedCall& call, Part& part) {
  const auto of = [&](const auto* args) { return part_of(call.device(), *args, part); };
  switch (call.primitive()) {
    case Primitive::pointwise:
      return of(static_cast<const prim::PointwiseArgs*>(call.args()));
    case Primitive::fused:
      return of(static_cast<const prim::FusedArgs*>(call.args()));
    case Primitive::reduce:
      return of(static_cast<const prim::ReduceArgs*>(call.args()));
    case Primitive::copy:
      return of(static_cast<const prim::CopyArgs*>(call.args()));
    case Primitive::gather:
      return of(static_cast<const prim::GatherArgs*>(call.args()));
    case Primitive::gemm:
      return of(static_cast<const GemmArgs*>(call.args()));
    default:
      return nullptr;
  }
}

/// Steps of a plan as bands.
class Bands {
 public:
  Bands(const Steps& steps, const std::vector<std::vector<Use>>& uses, Buffers& buffers)
      : steps_(steps), uses_(uses), buffers_(buffers) {}

  /// Chooses the calls that use these buffers, and orders the others: false if that cannot be.
  bool choose(std::span<const int> banded);
  /// Divides them: false if that cannot be. Once only.
  bool divide(const std::vector<int>& banded, int64_t count);

  /// A step of the plan, one of its bands, or what converts sums.
  struct Step {
    size_t step;
    Call band{};
    bool is_first = true;  // of the step's
  };
  /// All steps, in their new order.
  std::vector<Step> take_steps();

  const std::vector<size_t>& divided() const { return divided_; }
  bool uses(int buffer) const {
    return std::ranges::any_of(divided_, [&](size_t s) { return uses_any(s, {&buffer, 1}); });
  }

 private:
  bool uses_any(size_t step, std::span<const int> banded) const {
    return std::ranges::any_of(uses_[step], [&](const Use& u) {
      return std::ranges::find(banded, u.buffer) != banded.end();
    });
  }
  bool make(size_t step, std::span<const int> banded, int64_t count);
  bool are_apart(std::span<const int> banded, int64_t count);
  void widen_sums(int64_t count);

  const Steps& steps_;
  const std::vector<std::vector<Use>>& uses_;
  Buffers& buffers_;
  // Of the steps from the first to the last divided one.
  std::vector<size_t> before_, divided_, after_;
  std::vector<std::vector<Call>> bands_;  // of each divided one
  std::vector<char> sums_;                // whether it adds them up
  std::vector<Step> conversions_;
};

bool Bands::choose(std::span<const int> banded) {
  size_t first = steps_.size(), last = 0;
  std::vector<char> is_divided(steps_.size(), 0);
  for (size_t s = 0; s < steps_.size(); ++s)
    if (uses_any(s, banded)) {
      first = std::min(first, s), last = s;
      is_divided[s] = 1;
    }
  if (first >= last || last - first > kFewSteps) return false;
  const auto collides = [&](size_t a, size_t b) { return collide(uses_[a], uses_[b]); };
  // A divided step may need another one by steps between them.
  std::vector<char> is_needed(steps_.size(), 0), needs(steps_.size(), 0);
  for (size_t s = last; s-- > first;)
    for (size_t t = s + 1; t <= last && !is_needed[s]; ++t)
      is_needed[s] = (is_divided[t] || is_needed[t]) && collides(s, t);
  for (size_t s = first + 1; s <= last; ++s)
    for (size_t t = first; t < s && !needs[s]; ++t)
      needs[s] = (is_divided[t] || needs[t]) && collides(t, s);
  bool refuses = false, writes = false, effect_after = false;
  for (size_t s = first; s <= last; ++s) {
    if (is_divided[s] || (is_needed[s] && needs[s]))
      divided_.push_back(s);
    else
      (is_needed[s] ? before_ : after_).push_back(s);
    if (is_effect(*steps_[s])) {
      if (is_needed[s] && effect_after) return false;
      effect_after = effect_after || !is_needed[s];
    }
    refuses = refuses || may_refuse(*steps_[s]);
    writes = writes || std::ranges::any_of(uses_[s], [&](const Use& u) {
               return u.access != Access::read && !buffers_[u.buffer].temporary;
             });
  }
  // An error that comes before results are written is to come before them.
  return !(refuses && writes);
}

bool Bands::make(size_t step, std::span<const int> banded, int64_t count) {
  const prim::RecordedCall& call = *steps_[step];
  const GemmArgs* const g =
      call.primitive() == Primitive::gemm ? static_cast<const GemmArgs*>(call.args()) : nullptr;
  // Operands of matrices whose rows, which lie one behind the other, are summed over.
  const auto is_summed = [&](const View& v, int dim) {
    return std::ranges::find(banded, buffers_.of(v)) != banded.end() && v.rank() == 2 &&
           v.strides[size_t(dim)] >= v.strides[size_t(1 - dim)];
  };
  const bool sums = g && may_be_summed(*g) && (is_summed(g->a, 1) || is_summed(g->b, 0));
  std::vector<Call>& parts = bands_.emplace_back();
  sums_.push_back(sums);
  for (int64_t k = 0; k < count; ++k) {
    Part part(k, count);
    parts.push_back(sums ? summand_of(call.device(), *g, g->out, part) : part_of(call, part));
    if (!parts.back()) return false;
  }
  return true;
}

// Whether each band has its own part of what is divided, and bands may follow each other.
bool Bands::are_apart(std::span<const int> banded, int64_t count) {
  std::vector<std::vector<std::vector<Use>>> uses(divided_.size());
  for (size_t s = 0; s < divided_.size(); ++s)
    for (int64_t k = 0; k < count; ++k) {
      uses[s].push_back(uses_of(*bands_[s][size_t(k)], buffers_));
      for (const Use& u : uses[s].back()) {
        if (std::ranges::find(banded, u.buffer) == banded.end()) continue;
        const Storage& memory = *buffers_[u.buffer].storage;
        const int64_t begin = reinterpret_cast<intptr_t>(memory.data());
        const int64_t size = int64_t(memory.bytes()) / count;
        if (u.first < begin + k * size || u.last > begin + (k + 1) * size) return false;
      }
    }
  for (size_t s = 0; s < divided_.size(); ++s)
    for (size_t t = 0; t <= s; ++t)
      for (size_t k = 0; k + 1 < size_t(count); ++k)
        for (size_t l = k + 1; l < size_t(count); ++l)
          // Band l of the earlier step now comes after band k of the later one.
          if (!(s == t && sums_[s]) && collide(uses[t][l], uses[s][k])) return false;
  return true;
}

void Bands::widen_sums(int64_t count) {
  for (size_t s = 0; s < divided_.size(); ++s) {
    const prim::RecordedCall& call = *steps_[divided_[s]];
    if (!sums_[s]) continue;
    const auto& g = *static_cast<const GemmArgs*>(call.args());
    if (!is_half(g.out.dtype)) continue;
    const Layout layout{Shape(g.out.sizes)};
    const size_t bytes = size_t(g.out.numel()) * sizeof(float);
    const StoragePtr memory = buffers_.add_temporary(call.device(), bytes);
    const View sum(memory->data(), kFloat32, layout.sizes, layout.strides, memory.get());
    for (int64_t k = 0; k < count; ++k) {
      Part part(k, count);
      bands_[s][size_t(k)] = summand_of(call.device(), g, sum, part);
    }
    conversions_.push_back(
        {divided_[s], as_recorded(call.device(), prim::CopyArgs{g.out, sum, g.context}), false});
  }
}

bool Bands::divide(const std::vector<int>& banded, int64_t count) {
  for (const size_t s : divided_)
    if (!make(s, banded, count)) return false;
  if (!are_apart(banded, count)) return false;
  widen_sums(count);
  // All bands lie where the first one does.
  for (std::vector<Call>& parts : bands_)
    for (size_t k = 1; k < parts.size(); ++k)
      parts[k]->for_each_operand([&](View& v, Access) {
        const int b = buffers_.of(v);
        if (std::ranges::find(banded, b) != banded.end())
          v.data -= int64_t(k) * (int64_t(buffers_[b].storage->bytes()) / count);
      });
  return true;
}

std::vector<Bands::Step> Bands::take_steps() {
  std::vector<Step> all;
  const auto add = [&](size_t s) { all.push_back({s}); };
  for (size_t s = 0; s < divided_.front(); ++s) add(s);
  std::ranges::for_each(before_, add);
  for (size_t k = 0; k < bands_[0].size(); ++k)
    for (size_t s = 0; s < divided_.size(); ++s)
      all.push_back({divided_[s], std::move(bands_[s][k]), k == 0});
  std::ranges::move(conversions_, std::back_inserter(all));
  std::ranges::for_each(after_, add);
  for (size_t s = divided_.back() + 1; s < steps_.size(); ++s) add(s);
  return all;
}

}  // namespace

void Plan::divide_into_bands(Buffers& buffers, size_t band) {
  std::vector<int> large;
  for (int b = 0; b < buffers.size(); ++b)
    if (buffers[b].temporary && buffers[b].storage && buffers[b].storage->bytes() >= band)
      large.push_back(b);
  const auto bytes = [&](int b) { return buffers[b].storage->bytes(); };
  std::ranges::stable_sort(large, std::ranges::greater(), bytes);
  if (large.empty()) return;
  Steps calls;
  std::vector<std::vector<Use>> uses;
  const auto look = [&] {
    calls.clear(), uses.clear();
    for (const Step& step : steps_) {
      calls.push_back(step.call.get());
      uses.push_back(uses_of(*step.call, buffers));
    }
  };
  look();
  while (!large.empty()) {
    const int64_t least = std::max<int64_t>(2, int64_t((bytes(large[0]) + band - 1) / band));
    std::vector<int> banded{large[0]};
    int64_t count = least;
    std::unique_ptr<Bands> best;
    bool may = true;
    const auto attempt = [&](const std::vector<int>& all) {
      auto one = std::make_unique<Bands>(calls, uses, buffers);
      may = one->choose(all);
      if (!may || !one->divide(all, count)) return false;
      best = std::move(one);
      return true;
    };
    while (!attempt(banded) && may && count < std::min(kMostBands, 4 * least)) ++count;
    // Few large ones (of a batch of few) are better than none.
    if (!best) count = least;
    while (!best && may && count > 2) {
      --count;
      attempt(banded);
    }
    large.erase(large.begin());
    if (!best) continue;
    // The more of what these calls use is divided, the better.
    std::erase_if(large, [&](int b) {
      if (!best->uses(b)) return false;
      banded.push_back(b);
      if (attempt(banded)) return true;
      banded.pop_back();
      return false;
    });
    std::vector<Bands::Step> order = best->take_steps();
    Steps next;
    for (const Bands::Step& s : order) next.push_back(s.band ? s.band.get() : calls[s.step]);
    if (peak_of(next, buffers) + band / 2 > peak_of(calls, buffers)) continue;
    std::vector<Step> steps;
    for (Bands::Step& s : order) {
      Step& was = steps_[s.step];
      if (!s.band)
        steps.push_back(std::move(was));
      else
        steps.push_back({std::move(s.band), s.is_first ? was.calls : 0,
                         s.is_first ? was.numbers : std::vector<int>(), was.group});
    }
    steps_ = std::move(steps);
    look();
  }
}

}  // namespace arete::compile
