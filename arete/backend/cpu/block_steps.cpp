#include "arete/backend/cpu/block_steps.h"

#include <algorithm>
#include <array>

#include "arete/base/error.h"

namespace arete::cpu {

using expr::Op;
using expr::Type;
using kernels::Kernel;

void BlockSteps::join_half_arithmetic() {
  if (body_.size() < 3) return;
  const Step last = body_.back(), middle = body_[body_.size() - 2];
  const auto variant = half_arithmetic(last, middle);
  if (!variant) return;
  const auto [kernel, d] = *variant;
  std::array<int, 3> in{middle.in[0], middle.in[1], -1};
  for (int& v : in) {
    if (v < 0 || uniform(v)) continue;
    const auto load = std::ranges::find(body_, v, &Step::out);
    if (load == body_.end() || load->kernel != table_.load[int(d)]) return;
    v = load->in[0];
  }
  // Nothing but the loads, which nobody else needs then.
  const size_t loads =
      size_t(in[0] != middle.in[0]) + size_t(in[1] != middle.in[1] && middle.in[1] != middle.in[0]);
  if (body_.size() != loads + 2) return;
  body_.clear();
  emit(kernel, last.out, in);
}

/// Nothing if the step is none.
std::optional<BlockSteps::Arithmetic> BlockSteps::arithmetic_on(int operand,
                                                                const Step& step) const {
  if (step.kind != Code::Step::kernel) return std::nullopt;
  const auto [a, b, c, d] = step.in;
  const bool first = a == operand;
  if (!first && b != operand) return std::nullopt;
  const int other = first ? b : a;
  constexpr std::pair<Op, std::array<kernels::KArithmetic, 2>> kOps[] = {
      {Op::add, {kernels::a_add, kernels::a_add}},
      {Op::sub, {kernels::a_sub, kernels::a_sub_from}},
      {Op::mul, {kernels::a_mul, kernels::a_mul}},
      {Op::div, {kernels::a_div, kernels::kNumArithmetics}}};
  for (kernels::KType t : {kernels::t_f32, kernels::t_f64}) {
    if (step.kernel == table_.unary[int(Op::abs)][t]) return Arithmetic{kernels::a_abs, t, -1};
    for (const auto& [op, meant] : kOps)
      for (int v = 0; v < kernels::kNumVariants; ++v)
        if (step.kernel == table_.binary[int(op)][t][v] &&
            meant[first ? 0 : 1] < kernels::kNumArithmetics)
          return Arithmetic{op == Op::mul && a == b ? kernels::a_square : meant[first ? 0 : 1], t,
                            other};
  }
  return std::nullopt;
}

void BlockSteps::put_first(const std::vector<int>& inputs, uint32_t fixed) {
  code_.fixed = fixed;
  std::vector<bool> is_fixed(values_.size(), false);
  for (size_t k = 0; k < inputs.size() && k < 32; ++k) is_fixed[size_t(inputs[k])] = fixed >> k & 1;
  // Numbers that are computed may be of what is not fixed.
  const auto is_known = [&](int v) {
    return v < 0 || is_fixed[size_t(v)] ||
           (uniform(v) && std::ranges::find(inputs, v) == inputs.end() &&
            std::ranges::find(once_, v, &Step::out) == once_.end());
  };
  const auto rest = std::ranges::stable_partition(body_, [&](const Step& s) {
    const Value& made = values_[size_t(s.out)];
    const bool first = made.slot < 0 && !made.result && std::ranges::all_of(s.in, is_known);
    if (first) is_fixed[size_t(s.out)] = true;
    return first;
  });
  code_.n_fixed = size_t(rest.begin() - body_.begin());
  for (const Step& s : rest)
    for (int v : s.in)
      if (v >= 0 && is_fixed[size_t(v)]) values_[size_t(v)].result = true;
}

void BlockSteps::join_arithmetic() {
  for (size_t k = code_.n_fixed + 1; k < body_.size(); ++k)
    for (int v : {body_[k].in[0], body_[k].in[1]})
      if (v >= 0 && !uniform(v) && join_with_operand(k, v)) {
        --k;
        break;
      }
}

/// Joins the step at `position` with the one that makes the operand, if that can be.
bool BlockSteps::join_with_operand(size_t position, int operand) {
  const Value& made = values_[size_t(operand)];
  if (made.result || made.slot >= 0) return false;
  const auto second = arithmetic_on(operand, body_[position]);
  if (!second || (second->other == operand && second->op != kernels::a_square)) return false;
  size_t from = position;
  while (from-- > 0 && body_[from].out != operand) {
    // What is read later must be there still: outputs may be in the memory of inputs.
    const int out = body_[from].out;
    if (out < 0 || values_[size_t(out)].slot >= 0) return false;
  }
  if (from >= position) return false;
  const Step inner = body_[from];
  const int a = uniform(inner.in[0]) ? inner.in[1] : inner.in[0];
  const auto first = a < 0 || uniform(a) ? std::nullopt : arithmetic_on(a, inner);
  if (!first || first->op == kernels::a_abs || first->type != second->type) return false;
  for (size_t s = from + 1; s < body_.size(); ++s)
    if (s != position && std::ranges::count(body_[s].in, operand) > 0) return false;
  const bool alone = second->op == kernels::a_square || second->op == kernels::a_abs;
  const int b = first->other, c = alone ? -1 : second->other;
  const auto op = first->op == kernels::a_square ? kernels::a_mul : first->op;
  const int scalars = int(uniform(b)) | int(c >= 0 && uniform(c)) << 1;
  const Kernel kernel = table_.joined[op][second->op][first->type][scalars];
  if (!kernel) return false;
  body_[position].kernel = kernel;
  body_[position].in = {a, b, c, -1};
  body_.erase(body_.begin() + int64_t(from));
  return true;
}

/// The kernel on halves for `arithmetic` and a step that stores what it gives, and their dtype.
std::optional<std::pair<Kernel, DType>> BlockSteps::half_arithmetic(const Step& store,
                                                                    const Step& arithmetic) const {
  if (store.in[0] != arithmetic.out || arithmetic.kind != Code::Step::kernel) return std::nullopt;
  for (DType d : {DType::f16, DType::bf16})
    for (Op op : {Op::add, Op::sub, Op::mul, Op::div, Op::min, Op::max})
      for (int v = 0; v < kernels::kNumVariants; ++v)
        if (store.kernel == table_.store[int(d)] && table_.half_binary[int(op)][int(d)][v] &&
            arithmetic.kernel == table_.binary[int(op)][int(Type::f32)][v])
          return std::pair(table_.half_binary[int(op)][int(d)][v], d);
  return std::nullopt;
}

void BlockSteps::leave_to_accumulation(kernels::KMonoid monoid) {
  for (Result& r : results_) {
    auto step = step_for_result(r);
    if (monoid == kernels::m_min && step != body_.end() && is_opposite(*step)) {
      r.opposites = true;
      r.value = step->in[0];
      body_.erase(step);
      values_[size_t(r.value)].result = true;
      step = step_for_result(r);
    }
    if (step == body_.end() || monoid == kernels::kNumKMonoids) continue;
    for (DType d : {DType::f16, DType::bf16})
      if (step->kernel == table_.load[int(d)] && table_.half_rows[monoid][int(d)]) r.halves = d;
    if (r.halves != DType::f32) {
      r.value = step->in[0];
      body_.erase(step);
      continue;
    }
    if (monoid != kernels::m_sum) continue;
    const auto [a, b, c, d] = step->in;
    const auto arithmetic = arithmetic_on(a, *step);
    const bool is_product =
        arithmetic && (arithmetic->op == kernels::a_square ||
                       (arithmetic->op == kernels::a_mul && !uniform(a) && !uniform(b)));
    bool is_number = false;
    for (Type t : {Type::f32, Type::f64})
      is_number |= step->kind == Code::Step::choose &&
                   step->choose == table_.choose[kernels::compare_eq][int(t)][8];
    is_number &= a == b && a == c && is_zero(d);
    if (!is_product && !is_number) continue;
    r = {a, is_product ? b : -1, is_number};
    body_.erase(step);
    if (is_product && a == b) leave_difference(r);
    values_[size_t(r.value)].result = true;
    if (is_product) values_[size_t(r.factor)].result = true;
  }
}

/// The step that makes what only this result is; the end if there is none.
std::vector<BlockSteps::Step>::iterator BlockSteps::step_for_result(const Result& r) {
  if (is_read(r.value) || std::ranges::count(results_, r.value, &Result::value) > 1)
    return body_.end();
  return std::ranges::find(body_, r.value, &Step::out);
}

bool BlockSteps::is_read(int value) const {
  return std::ranges::any_of(body_,
                             [&](const Step& s) { return std::ranges::count(s.in, value) > 0; });
}

bool BlockSteps::is_opposite(const Step& s) const {
  if (s.kind != Code::Step::kernel) return false;
  for (int t = 0; t < kernels::kNumKTypes; ++t) {
    const Op op = t == kernels::t_f32 || t == kernels::t_f64 ? Op::neg : Op::bit_not;
    if (table_.opposite_rows[t] && s.kernel == table_.unary[int(op)][t]) return true;
  }
  return false;
}

/// Of a square: of a difference that nobody else reads. That from a number may be one of halves as
/// they are stored.
void BlockSteps::leave_difference(Result& r) {
  const auto step = std::ranges::find(body_, r.value, &Step::out);
  if (step == body_.end()) return;
  const int operand = uniform(step->in[0]) ? step->in[1] : step->in[0];
  const auto difference = operand < 0 ? std::nullopt : arithmetic_on(operand, *step);
  if (!difference || is_read(r.value) ||
      (difference->op != kernels::a_sub && difference->op != kernels::a_sub_from) ||
      std::ranges::any_of(results_, [&](const Result& other) {
        return &other != &r && (other.value == r.value || other.factor == r.value);
      }))
    return;
  r.value = operand, r.factor = difference->other, r.squares = true;
  r.from_number = uniform(r.factor);
  body_.erase(step);
  if (!r.from_number || is_read(operand)) return;
  const auto load = std::ranges::find(body_, operand, &Step::out);
  if (load == body_.end()) return;
  for (DType d : {DType::f16, DType::bf16})
    if (load->kernel == table_.load[int(d)] && table_.half_deviation_rows[int(d)]) r.halves = d;
  if (r.halves == DType::f32) return;
  r.value = load->in[0];
  body_.erase(load);
}

bool BlockSteps::is_zero(int value) const {
  return uniform(value) && std::ranges::any_of(code_.cells, [&](const Code::Cell& cell) {
           return cell.slot == values_[size_t(value)].slot && cell.param < 0 && cell.bits == 0 &&
                  std::ranges::find(once_, value, &Step::out) == once_.end();
         });
}

}  // namespace arete::cpu
