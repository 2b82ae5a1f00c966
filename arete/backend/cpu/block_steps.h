// The steps of block code while it is being made, and what is done to them as a whole.
#pragma once

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "arete/backend/cpu/interpreter.h"
#include "arete/base/error.h"

namespace arete::cpu {

/// Steps over values, which get their registers at the end.
class BlockSteps {
 protected:
  struct Value {
    bool uniform;
    int size;                         // bytes of an element
    int slot;                         // -1: not placed yet
    int defined = -1, last_use = -1;  // in steps of the body
    bool result = false;              // needed after the body
    bool moved = false;               // its slot may point elsewhere: never another's
  };
  /// What the caller accumulates.
  struct Result {
    int value, factor;
    bool numbers_only = false, squares = false, from_number = false, opposites = false;
    DType halves = DType::f32;
  };
  using Operands = std::array<int, 4>;
  struct Step {
    kernels::Kernel kernel;
    kernels::ChooseKernel choose;
    int out;
    Operands in{-1, -1, -1, -1};
    int number = 0;
    Code::Step::Kind kind = Code::Step::kernel;
    bool wanted = true;
    int most_moved = 0;
  };

  int add_value(bool uniform, int size, int slot = -1) {
    values_.push_back({uniform, size, slot});
    return int(values_.size()) - 1;
  }
  int add_cell(int size) {
    const int slot = code_.n_slots++;
    code_.cells.push_back({uint16_t(slot), -1, false, expr::Type::i64, 0});
    return add_value(true, size, slot);
  }

  void emit(kernels::Kernel kernel, int out, std::array<int, 3> in) {
    ARETE_ASSERT(kernel != nullptr);
    std::vector<Step>& steps = values_[size_t(out)].uniform ? once_ : body_;
    if (!values_[size_t(out)].uniform) values_[size_t(out)].defined = int(body_.size());
    steps.push_back({kernel, nullptr, out, {in[0], in[1], in[2], -1}});
  }
  /// A new value computed by `kernel`; uniform if all operands are.
  int compute(kernels::Kernel kernel, int size, std::array<int, 3> in) {
    bool uniform = true;
    for (int v : in) uniform &= v < 0 || values_[size_t(v)].uniform;
    const int out = uniform ? add_cell(size) : add_value(false, size);
    emit(kernel, out, in);
    return out;
  }
  bool uniform(int value) const { return values_[size_t(value)].uniform; }

  /// Leaves products, squares of differences, selections of what is not NaN, opposites, and
  /// conversions of halves, that are results only to who accumulates them.
  void leave_to_accumulation(kernels::KMonoid monoid);
  /// Where the last step stores halves which the one before computes of halves or numbers: one step
  /// on halves as they are stored. Not for bodies with arms.
  void join_half_arithmetic();
  /// Moves steps that depend on nothing but some of the inputs, those of the bits of `fixed`, to
  /// the beginning: Code::n_fixed. Not for bodies with arms.
  void put_first(const std::vector<int>& inputs, uint32_t fixed);
  /// Makes one step of two of arithmetic, of which only the second reads what the first gives: it
  /// stays in a register. Not for bodies with arms.
  void join_arithmetic();

  const kernels::KernelTable& table_ = kernels::table();
  Code code_;
  std::vector<Value> values_;
  std::vector<Result> results_;
  std::vector<Step> once_, body_;

 private:
  /// A step as arithmetic on one of its operands and another.
  struct Arithmetic {
    kernels::KArithmetic op;
    kernels::KType type;
    int other;  // the other operand
  };
  std::optional<Arithmetic> arithmetic_on(int operand, const Step& step) const;
  bool join_with_operand(size_t position, int operand);
  std::optional<std::pair<kernels::Kernel, DType>> half_arithmetic(const Step& store,
                                                                   const Step& arithmetic) const;
  std::vector<Step>::iterator step_for_result(const Result& r);
  bool is_read(int value) const;
  bool is_opposite(const Step& s) const;
  void leave_difference(Result& r);
  bool is_zero(int value) const;
};

}  // namespace arete::cpu
