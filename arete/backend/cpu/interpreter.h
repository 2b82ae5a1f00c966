// Programs as block code: each step runs one vector kernel over a block of elements.
//
// Note [Block code]
// A program is turned into steps over slots. A slot is a pointer: to an input's or output's memory
// (used in place where the storage type is a computation type), to a register (a block of values
// in the thread's arena) or to a cell (one value). Values that are the same for the whole block,
// which are constants, parameters, uniform inputs and what is computed from them only, live in
// cells: they are computed once by `once`, and the kernels of `body` take them as scalars. Which
// inputs are uniform and which outputs are in place depends on the call, so that a program has
// code for each combination met.
//
// Note [Narrow integers]
// Programs compute u8, i8 and i16 as i32. Where all its integers of that type come from or go to
// one of these, and none is compared, limited, converted or shifted by that the narrow type might
// not hold, a program is run on that type itself: what wraps there is what the last bits of i32
// are, and a vector has two or four times as many elements. Which parameters a call has decides
// whether they are held, so there can be code of both kinds.
//
// Note [Work for one arm]
// What only one arm of a selection needs is done for the elements that choose this arm, if it costs
// more than to bring these together: a step counts them, others compress the values that come from
// outside into registers, the steps of the arm run on as many elements, and the last one brings the
// result back to its places. Where no element chooses the arm its steps are jumped over; where most
// do they run on all, nothing is moved, and slots point to what would be. Functions made of pieces
// (elu, those of Bessel) so cost one piece for an element, as they do where elements are computed
// one by one.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "arete/backend/cpu/arena.h"
#include "arete/backend/cpu/kernels/kernel_table.h"
#include "arete/base/small_vector.h"
#include "arete/expr/program.h"

namespace arete::cpu {

/// What values of a kernel's type are stored as.
constexpr DType storage_type(kernels::KType t) {
  constexpr DType kStorage[] = {DType::boolean, DType::i32, DType::i64, DType::u64, DType::f32,
                                DType::f64,     DType::u8,  DType::i8,  DType::i16};
  static_assert(std::size(kStorage) == kernels::kNumKTypes);
  return kStorage[t];
}

/// Blocks never have more elements than this.
inline constexpr int64_t kMaxBlock = 4096;

/// What of a call the code of a program depends on.
struct CodeKey {
  uint32_t uniform = 0;           ///< bit k: input k is one value for the whole block
  uint64_t alias = ~uint64_t(0);  ///< 5 bits for each output: the input in its memory; 31: none
  bool values = false;            ///< leave results in registers, as computation types
  /// With `values`: what they are accumulated by. To sums products may be left as their two
  /// factors, squares of differences as what is subtracted, NaN to skip; to the least opposites as
  /// what they are of; to all of these f16 and bf16 as stored.
  kernels::KMonoid monoid = kernels::kNumKMonoids;
  bool narrow_params = false;  ///< parameters of type i32 are as has_narrow_params() says
  int16_t given = -1;          ///< an instruction that Frame::set_given() has the values of
  /// Bit k: input k is the same for many blocks, after whose first one or a change
  /// Frame::run_fixed() is called. Not for programs with arms.
  uint32_t fixed = 0;
  bool operator==(const CodeKey&) const = default;

  static constexpr size_t kMaxUniform = 32;  // inputs beyond have a value for each element
  static constexpr int kMaxAliased = 12;     // outputs beyond are never in place
  void set_alias(int output, int input) { alias &= ~(uint64_t(31 ^ input) << (5 * output)); }
  int alias_of(int output) const {
    return output < kMaxAliased ? int((alias >> (5 * output)) & 31) : 31;
  }
};

struct Code {
  struct Step {
    enum Kind : uint8_t {
      kernel,
      choose,
      enter,     ///< counts the elements of an arm; without any goes on `number` steps further
      compress,  ///< `number`: register of `out`
      leave,     ///< the same
    };
    kernels::Kernel run;
    kernels::ChooseKernel run_choose;
    uint16_t out, a, b, c, d;
    uint16_t number;
    Kind kind;
    // Of `enter`: what the condition is for the elements meant, and up to how many of 256 elements
    // it pays to bring these together; beyond, the steps run on all.
    bool wanted;
    uint16_t most_moved;
  };
  struct Register {
    uint16_t slot;
    uint32_t offset;  // in bytes, of blocks of `block` elements
  };
  struct Cell {
    uint16_t slot;
    int16_t param;   // -1: none
    bool in_memory;  // the parameter
    expr::Type type;
    uint64_t bits;  // the constant
  };
  struct Result {
    uint16_t slot;
    uint16_t factor;    // another, which the first is still to be multiplied by, or kNone
    bool squares;       // instead, the square of their difference is meant
    bool from_number;   // what is subtracted is one number
    bool numbers_only;  // what is NaN counts as 0
    bool opposites;     // the opposite is meant, -x or ~x
    DType halves;       // f16 or bf16: not converted yet; else f32
    kernels::KType type;
  };

  static constexpr uint16_t kNone = 0xffff;
  static constexpr int kMaxDepth = 8;  // of arms in arms

  std::vector<Step> once, body;  // `once` has kernels only
  std::vector<Register> registers;
  std::vector<Cell> cells;
  std::vector<Result> results;  // one per output if the key says `values`
  int n_inputs = 0, n_outputs = 0, n_slots = 0;
  uint16_t given = kNone;  // the slot of what is given
  uint32_t fixed = 0;      // of the key
  size_t n_fixed = 0;  // steps at the beginning of `body` that depend on nothing but fixed inputs
  size_t register_bytes = 0;
  int64_t block = kMaxBlock;  ///< elements that one run may have at most
  uint32_t reads = 0;         ///< bit k & 31: input k may be read
  double cost = 1;            ///< of one element, in additions
};

/// Rough costs in additions of f32.
double cost_of(expr::Op op);
/// The bits of a number as kernels read it from a cell.
uint64_t cell_bits(expr::Type type, expr::Literal v);

/// The code of `program` for `key`, made at the first request. Thread-safe.
const Code& code_for(const expr::Program& program, const CodeKey& key);

/// Whether all parameters of type i32 are numbers that the narrow integers of the program hold.
bool has_narrow_params(const expr::Program& program, std::span<const expr::Literal> params);

/// One execution of a code by one thread.
class Frame {
 public:
  /// `registers` must have code.register_bytes bytes.
  Frame(const Code& code, std::span<const expr::Literal> params, std::byte* registers);
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  void set_input(int k, const void* p) { slots_[size_t(k)] = const_cast<void*>(p); }
  void set_output(int k, void* p) { slots_[size_t(code_.n_inputs + k)] = p; }
  void** input_slot(int k) { return &slots_[size_t(k)]; }
  void** output_slot(int k) { return &slots_[size_t(code_.n_inputs + k)]; }
  /// The values of the instruction that the key calls given.
  void set_given(const void* p) { slots_[code_.given] = const_cast<void*>(p); }
  /// Where result k, which must be computed and not left to who accumulates it, is put instead of a
  /// register.
  void set_result(int k, void* p) { slots_[code_.results[size_t(k)].slot] = p; }
  const void* result(int k) const { return slots_[code_.results[size_t(k)].slot]; }
  /// What the result is still to be multiplied by, or `squares` says how; or null.
  const void* factor(int k) const {
    const uint16_t slot = code_.results[size_t(k)].factor;
    return slot == Code::kNone ? nullptr : slots_[slot];
  }
  const void* input(int k) const { return slots_[size_t(k)]; }

  /// Computes the cells; after setting uniform inputs.
  void run_once() {
    for (const Code::Step& s : code_.once)
      s.run(slots_[s.out], slots_[s.a], slots_[s.b], slots_[s.c], 1);
  }
  /// Runs the steps that depend on fixed inputs only.
  void run_fixed(int64_t n) {
    run_steps(0, code_.n_fixed, n, [](int64_t) {});
  }
  /// Runs the body on n <= code.block elements; calls before(step) before each of its steps, if it
  /// does not leave that out.
  template <class F>
  void run(int64_t n, F&& before) {
    run_steps(code_.n_fixed, code_.body.size(), n, before);
  }
  void run(int64_t n) {
    run(n, [](int64_t) {});
  }
  const Code& code() const { return code_; }

 private:
  template <class F>
  void run_steps(size_t first, size_t last, int64_t n, F&& before) {
    const Code::Step *s = code_.body.data() + first, *const end = code_.body.data() + last;
    for (; s != end; ++s) {
      before(int64_t(s - code_.body.data()));
      if (s->kind == Code::Step::kernel)
        s->run(slots_[s->out], slots_[s->a], slots_[s->b], slots_[s->c], n);
      else if (s->kind == Code::Step::choose)
        s->run_choose(slots_[s->out], slots_[s->a], slots_[s->b], slots_[s->c], slots_[s->d], n);
      else
        s = run_arm(s, n);
    }
  }
  /// Runs a step of an arm's border; returns it, or the one to go on behind.
  const Code::Step* run_arm(const Code::Step* s, int64_t& n);

  const Code& code_;
  std::byte* const registers_;
  int depth_ = 0;
  std::array<int64_t, Code::kMaxDepth> outer_;  // elements outside of the arms entered
  SmallVector<void*, 48> slots_;
  SmallVector<uint64_t, 16> cells_;
};

}  // namespace arete::cpu
