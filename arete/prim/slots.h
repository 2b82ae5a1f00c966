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

#include <type_traits>
#include <vector>

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
    if constexpr (requires { args.epilogue; }) {
      put(args_.epilogue, args_.epilogue_params, epilogue_numbers_, args.epilogue_slots);
      args_.epilogue_slots = {};
    }
    if constexpr (requires { args.spec; }) {
      spec_ = *args.spec;
      for (FusedStage& s : spec_.stages) s.program = with_params_in_memory(*s.program, args.slots);
      args_.spec = &spec_;
      put_addresses(args_.params, numbers_, args.slots);
    } else if constexpr (requires { args.prologue; }) {
      put(args_.prologue, args_.params, numbers_, args.slots);
    } else {
      put(args_.program, args_.params, numbers_, args.slots);
    }
    args_.slots = {};
  }
  Addressed(const Addressed&) = delete;
  Addressed& operator=(const Addressed&) = delete;

  const Args& args() const { return args_; }

 private:
  using Numbers = SmallVector<expr::Literal, 8>;
  struct Nothing {};

  static void put_addresses(std::span<const expr::Literal>& params, Numbers& numbers,
                            std::span<const Slot> slots) {
    numbers.assign(params.begin(), params.end());
    for (const Slot& slot : slots)
      numbers[size_t(slot.number)] = {.i = int64_t(reinterpret_cast<intptr_t>(slot.value.data))};
    params = {numbers.data(), numbers.size()};
  }
  void put(const expr::Program*& program, std::span<const expr::Literal>& params, Numbers& numbers,
           std::span<const Slot> slots) {
    if (slots.empty()) return;
    programs_.push_back(with_params_in_memory(*program, slots));
    program = programs_.back().get();
    put_addresses(params, numbers, slots);
  }

  Args args_;
  Numbers numbers_, epilogue_numbers_;
  SmallVector<expr::ProgramPtr, 2> programs_;
  std::conditional_t<std::is_same_v<Args, FusedArgs>, FusedSpec, Nothing> spec_;
};

}  // namespace arete::prim
