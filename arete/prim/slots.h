// Note [Numbers that change]
// A call that is run again, recorded or in a graph, has its numbers fixed: literals. Those that
// shall move (a learning rate, a scale, a step) are slots instead: the call names memory of its
// device that holds them when it runs. Three kinds of numbers exist:
//  - Parameters of programs: `slots` of the argument structs. A backend sees to them by handing
//    itself Addressed(args): the programs know then which parameters are in memory, and the
//    parameters are addresses, so that kernels load a number where they had it as an argument.
//  - Where random calls begin: `state` of RandomArgs and DropoutArgs.
//  - The factor of a product: its operand a_scale, of one element.
// Eager calls have literals only, and pay one comparison with nothing.
#pragma once

#include <array>

#include "arete/base/small_vector.h"
#include "arete/prim/args.h"

namespace arete::prim {

/// The program with the parameters of slots in memory; it may have fewer than the slots name.
expr::ProgramPtr with_params_in_memory(const expr::Program& program, std::span<const Slot> slots);

/// A call without slots that computes the same: its programs take the numbers from memory.
template <class Args>
class Addressed {
 public:
  explicit Addressed(const Args& args) : args_(args) {
    for_each_program(args_, [&](auto& program, auto& params, std::span<const Slot>& slots) {
      if (slots.empty()) return;
      put_in_memory(program, slots);
      Numbers& numbers = numbers_[programs_.empty() ? 0 : programs_.size() - 1];
      numbers.assign(params.begin(), params.end());
      for (const Slot& slot : slots)
        numbers[size_t(slot.number)] = {.i = int64_t(reinterpret_cast<intptr_t>(slot.value.data))};
      params = {numbers.data(), numbers.size()};
      slots = {};
    });
  }
  Addressed(const Addressed&) = delete;
  Addressed& operator=(const Addressed&) = delete;

  const Args& args() const { return args_; }

 private:
  using Numbers = SmallVector<expr::Literal, 8>;

  void put_in_memory(const expr::Program*& program, std::span<const Slot> slots) {
    programs_.push_back(with_params_in_memory(*program, slots));
    program = programs_.back().get();
  }
  void put_in_memory(const FusedSpec*& spec, std::span<const Slot> slots) {
    spec_ = *spec;
    for (FusedStage& s : spec_.stages) s.program = with_params_in_memory(*s.program, slots);
    spec = &spec_;
  }

  Args args_;
  std::array<Numbers, 3> numbers_;  // of each program
  SmallVector<expr::ProgramPtr, 3> programs_;
  FusedSpec spec_;
};

}  // namespace arete::prim
