// Copies that are left out: what they would copy is made where they would put it.
#include <algorithm>

#include "arete/compile/graph_internal.h"
#include "arete/compile/plan.h"
#include "arete/compile/relayout_internal.h"
#include "arete/expr/value.h"

namespace arete::compile {
namespace {

using prim::Access;
using prim::Primitive;
using prim::View;

// How equally a temporary and its copy have to lie, in bytes: kernels choose by alignment.
constexpr int64_t kSameAlignment = 64;
// Of so many elements in one run neither more nor fewer bytes are fetched than of others.
constexpr int64_t kLongRun = 16;

// What kernels of products and attention read and write at once, in bytes.
constexpr uintptr_t kVector = 16;

bool is_aligned(const std::byte* data) { return reinterpret_cast<uintptr_t>(data) % kVector == 0; }

/// Whether a call of this kind is as quick on an operand that lies so, instead of as it did.
bool takes(Primitive p, const View& was, const std::byte* data, const Shape& strides) {
  const size_t rank = was.sizes.size();
  if ((p == Primitive::gemm || p == Primitive::attention) && is_aligned(was.data) &&
      !is_aligned(data))
    return false;
  const auto runs = [&](size_t d) { return was.sizes[d] == 1 || strides[d] == 1; };
  if (p == Primitive::gemm) return rank >= 2 && (runs(rank - 1) || runs(rank - 2));
  for (size_t d = 0; d < rank; ++d)
    if (was.sizes[d] >= kLongRun && was.strides[d] == 1 && strides[d] != 1) return false;
  switch (p) {
    case Primitive::fill:
    case Primitive::copy:
    case Primitive::pointwise:
    case Primitive::fused:
      return true;
    case Primitive::attention:
      return rank == 4 && runs(3);
    default:
      return false;
  }
}

/// A call that copies several tensors, as copies of one each; none of another call, or where
/// nothing is a temporary.
std::vector<std::unique_ptr<prim::RecordedCall>> copies_of(const prim::RecordedCall& call,
                                                           Buffers& buffers) {
  std::vector<std::unique_ptr<prim::RecordedCall>> copies;
  if (call.primitive() != Primitive::multi_pointwise) return copies;
  const auto& m = *static_cast<const prim::MultiPointwiseArgs*>(call.args());
  const DType dtype = m.outputs[0].dtype;
  if (m.program != expr::conversion(dtype, dtype).get() ||
      std::ranges::none_of(m.inputs, [&](const View& v) {
        const int b = buffers.of(v);
        return b >= 0 && buffers[b].temporary;
      }))
    return copies;
  for (size_t k = 0; k < m.outputs.size(); ++k)
    copies.push_back(prim::as_recorded(
        call.device(),
        prim::CopyArgs{.out = m.outputs[k], .in = m.inputs[k], .context = m.context}));
  return copies;
}

/// Copies within one dtype as one call.
template <class Steps>
std::unique_ptr<prim::RecordedCall> copies_together(const Steps& steps) {
  std::vector<View> from, to;
  const auto& first = *static_cast<const prim::CopyArgs*>(steps.front().call->args());
  for (const auto& step : steps) {
    const auto& copy = *static_cast<const prim::CopyArgs*>(step.call->args());
    from.push_back(copy.in);
    to.push_back(copy.out);
  }
  return prim::as_recorded(
      steps.front().call->device(),
      prim::MultiPointwiseArgs{.program = expr::conversion(first.out.dtype, first.out.dtype).get(),
                               .n_tensors = int64_t(to.size()),
                               .inputs = from,
                               .outputs = to,
                               .params = {},
                               .context = first.context});
}

bool lies_alike(const View& a, const View& b) { return std::ranges::equal(a.strides, b.strides); }

}  // namespace

// A temporary whose last use is to be copied lies where the copy would go. Copies of several
// tensors in one call, as gradients are packed, are looked at one by one; those that stay are one
// call again.
void Plan::leave_out_copies(Buffers& buffers, const PlanOptions& options) {
  std::vector<Step> all;
  for (Step& step : steps_) {
    auto copies = copies_of(*step.call, buffers);
    if (copies.empty()) all.push_back(std::move(step));
    for (auto& copy : copies)
      all.push_back({std::move(copy), step.calls, step.numbers, step.group});
  }
  steps_ = std::move(all);
  std::vector<std::vector<Use>> uses;
  for (const Step& step : steps_) uses.push_back(uses_of(*step.call, buffers));
  for (size_t k = 0; k < steps_.size(); ++k) {
    if (steps_[k].call->primitive() != Primitive::copy || uses[k].size() != 2) continue;
    const auto& copy = *static_cast<const prim::CopyArgs*>(steps_[k].call->args());
    const Use to = uses[k][0], from = uses[k][1];
    if (copy.in.dtype != copy.out.dtype || !std::ranges::equal(copy.in.sizes, copy.out.sizes) ||
        to.buffer == from.buffer || !buffers[from.buffer].temporary || !buffers[to.buffer].storage)
      continue;
    // How something is summed may depend on where it lies.
    const bool same = lies_alike(copy.in, copy.out) && from.is_whole &&
                      (to.first - from.first) % kSameAlignment == 0;
    const Relayout relayout(copy.in, copy.out);
    if (!same && (options.exact || !relayout.is_valid())) continue;
    // Between the first use of the temporary and the copy nobody else may need the place, nor may
    // there be an error that leaves what others see as it was: of values, not of a collective,
    // since gradients are often made before the bucket in front of theirs is exchanged.
    const bool is_seen = !buffers[to.buffer].temporary;
    bool may = true, began = false;
    for (size_t j = 0; j < steps_.size() && may; ++j) {
      const auto its = [&](const Use& u) { return u.buffer == from.buffer; };
      began = began || std::ranges::any_of(uses[j], its);
      if (is_seen && began && j < k && steps_[j].call)
        may = may && (is_effect(*steps_[j].call) || !may_refuse(*steps_[j].call));
      for (const Use& u : uses[j]) {
        if (its(u)) may = may && j <= k && from.first <= u.first && u.last <= from.last;
        if (began && j < k) may = may && !overlap(u, to);
      }
      if (same || j >= k || !may || !steps_[j].call || !std::ranges::any_of(uses[j], its)) continue;
      steps_[j].call->for_each_operand([&](View& v, Access) {
        if (!may || buffers.of(v) != from.buffer) return;
        Shape strides;
        const auto data = relayout.map(v, strides);
        may = data && takes(steps_[j].call->primitive(), v, *data, strides);
      });
    }
    if (!may) continue;
    for (size_t j = 0; j < k; ++j) {
      if (!steps_[j].call) continue;
      bool moved = false;
      steps_[j].call->for_each_operand([&](View& v, Access) {
        if (buffers.of(v) != from.buffer) return;
        moved = true;
        if (same) {
          v.data += copy.out.data - copy.in.data;
        } else {
          Shape& strides = *strides_.emplace_back(std::make_unique<Shape>());
          v.data = *relayout.map(v, strides);
          v.strides = strides;
        }
        v.storage = copy.out.storage;
      });
      if (moved) uses[j] = uses_of(*steps_[j].call, buffers);
    }
    uses[k].clear();
    steps_[k].call.reset();
  }
  std::erase_if(steps_, [](const Step& s) { return !s.call; });
  for (size_t first = 0, last; first < steps_.size(); first = last) {
    for (last = first + 1; last < steps_.size() && steps_[last].group == steps_[first].group;)
      ++last;
    const std::span<Step> of_one{&steps_[first], last - first};
    if (of_one.size() > 1) {
      steps_[first].call = copies_together(of_one);
      steps_.erase(steps_.begin() + std::ptrdiff_t(first) + 1,
                   steps_.begin() + std::ptrdiff_t(last));
      last = first + 1;
    }
  }
}

}  // namespace arete::compile
