// Sums of rows that are added to something else: added up there.
#include <algorithm>
#include <unordered_map>

#include "arete/compile/graph_internal.h"
#include "arete/compile/plan.h"
#include "arete/prim/recorder.h"

namespace arete::compile {
namespace {

using prim::Access;
using prim::PointwiseArgs;
using prim::Primitive;
using prim::View;

/// The call, if it adds two operands that lie alike, without gaps, and have its result's dtype.
const PointwiseArgs* sum_of_two(const prim::RecordedCall& call) {
  if (call.primitive() != Primitive::pointwise) return nullptr;
  const auto& p = *static_cast<const PointwiseArgs*>(call.args());
  if (p.inputs.size() != 2 || p.outputs.size() != 1) return nullptr;
  const View& out = p.outputs[0];
  const auto code = p.program->code();
  const expr::Instruction& last = code[size_t(p.program->outputs()[0].value)];
  const auto is_input = [&](int32_t at, int32_t which) {
    return code[size_t(at)].op == expr::Op::input && code[size_t(at)].index == which;
  };
  const bool adds = last.op == expr::Op::add && is_input(last.operand[0], 0) &&
                    is_input(last.operand[1], 1) && !p.program->tables();
  const auto lies_as_result = [&](const View& v) {
    return v.dtype == out.dtype && v.is_contiguous() && std::ranges::equal(v.sizes, out.sizes);
  };
  return adds && (out.dtype == kFloat32 || out.dtype == kFloat64) && out.is_contiguous() &&
                 std::ranges::all_of(p.inputs, lies_as_result)
             ? &p
             : nullptr;
}

}  // namespace

// The gradient of an embedding is zeros, to which rows are added; where its table has another
// gradient, too, the sum of both is another pass over memory. The rows are added to that one
// instead, which then is the sum.
void Plan::add_up_in_place(Buffers& buffers, const std::vector<bool>& zeros) {
  std::vector<std::vector<Use>> uses;
  for (const Step& step : steps_) uses.push_back(uses_of(*step.call, buffers));
  const auto is_zero = [&](const Step& step) {
    return step.call && step.call->primitive() == Primitive::fill && step.numbers.size() == 1 &&
           zeros[size_t(step.numbers[0])];
  };
  // The first step that uses a buffer: zeros, of those that are looked for.
  std::unordered_map<int, size_t> first_use;
  for (size_t j = 0; j < uses.size(); ++j)
    for (const Use& u : uses[j]) first_use.emplace(u.buffer, j);
  for (size_t k = 0; k < steps_.size(); ++k) {
    const PointwiseArgs* const sum = steps_[k].call ? sum_of_two(*steps_[k].call) : nullptr;
    for (size_t side = 0; sum && side < 2; ++side) {
      const View rows = sum->inputs[side], other = sum->inputs[1 - side], out = sum->outputs[0];
      const int b = buffers.of(rows), a = buffers.of(other);
      if (a < 0 || b < 0 || a == b || !buffers[a].temporary || !buffers[b].temporary) continue;
      const auto begins = first_use.find(b);
      if (begins == first_use.end() || !is_zero(steps_[begins->second])) continue;
      // Zeros, rows that are added, the sum; and the other one is there before.
      size_t fill = SIZE_MAX, first = SIZE_MAX;
      std::vector<size_t> added;
      bool may = true;
      for (size_t j = 0; j < steps_.size() && may; ++j) {
        if (j == k || !steps_[j].call) continue;
        bool uses_rows = false;
        int64_t views = 0;
        steps_[j].call->for_each_operand([&](View& v, Access access) {
          const int its = buffers.of(v);
          if (its == a) may = may && first == SIZE_MAX && j < k;
          if (its != b) return;
          uses_rows = true;
          ++views;
          may = may && access != Access::read && v.data == rows.data && v.is_contiguous() &&
                v.numel() == rows.numel();
        });
        if (!uses_rows || !may) continue;
        if (fill == SIZE_MAX) {
          fill = j;
          may = is_zero(steps_[j]) && j < k;
        } else {
          first = std::min(first, j);
          added.push_back(j);
          may = j < k && views == 1 && steps_[j].call->primitive() == Primitive::add_rows &&
                !static_cast<const prim::AddRowsArgs*>(steps_[j].call->args())->in_runs();
        }
      }
      // What both are, a call would add to itself.
      const auto reads_other = [&](size_t j) {
        return std::ranges::any_of(uses[j], [&](const Use& u) { return u.buffer == a; });
      };
      if (!may || added.empty() || std::ranges::any_of(added, reads_other)) continue;
      for (const size_t j : added) {
        steps_[j].call->for_each_operand([&](View& v, Access) {
          if (buffers.of(v) != b) return;
          v.data = other.data;
          v.storage = other.storage;
        });
        uses[j] = uses_of(*steps_[j].call, buffers);
      }
      steps_[fill].call.reset();
      uses[fill].clear();
      const Device device = steps_[k].call->device();
      const prim::Context context = sum->context;
      steps_[k].call = out.data == other.data
                           ? nullptr
                           : prim::as_recorded(device, prim::CopyArgs{out, other, context});
      uses[k] = steps_[k].call ? uses_of(*steps_[k].call, buffers) : std::vector<Use>();
      break;
    }
  }
  std::erase_if(steps_, [](const Step& s) { return !s.call; });
}

}  // namespace arete::compile
