// The tree of a kernel that runs in lanes: see Note [Lanes].
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "arete/base/error.h"
#include "arete/device/lane_program_internal.h"
#include "arete/device/lane_tokens_internal.h"

namespace arete::lanes {

/// What numbers are in memory.
enum class Num : uint8_t {
  none,
  boolean,
  i8,
  u8,
  i16,
  u16,
  i32,
  u32,
  i64,
  u64,
  f16,
  bf16,
  f32,
  f64
};
/// What they are in registers: smaller integers are ints, half types floats.
enum class Reg : uint8_t { i32, u32, i64, u64, f32, f64 };

/// f() of a number of what a register holds.
template <class F>
auto visit_reg(Reg r, F&& f) {
  switch (r) {
    case Reg::i32:
      return f(int32_t());
    case Reg::u32:
      return f(uint32_t());
    case Reg::i64:
      return f(int64_t());
    case Reg::u64:
      return f(uint64_t());
    case Reg::f32:
      return f(float());
    case Reg::f64:
      return f(double());
  }
  ARETE_BUG("a register without a type");
}

Reg reg_of(Num n);
int bytes_of(Num n);
const char* name_of(Num n);

/// A type of an expression: a number, a pointer to numbers, or an array of them.
struct Type {
  Num num = Num::none;
  bool pointer = false;
  std::vector<int> dims;  // of an array

  bool is_memory() const { return pointer || !dims.empty(); }
  Reg reg() const { return is_memory() ? Reg::i64 : reg_of(num); }
  /// Bytes that one step of a pointer or of an array's first index moves.
  int step() const;
};

using Map1 = void (*)(void* d, const void* a, int n);
using Map2 = void (*)(void* d, const void* a, const void* b, int n);
using Map3 = void (*)(void* d, const void* a, const void* b, const void* c, int n);

/// All of which lanes of one warp see of each other.
enum class Warp : uint8_t { shfl, up, down, exchange, ballot, any, all, active };
enum class Atomic : uint8_t { add, sub, min, max, exch, cas, and_, or_, xor_, inc, dec };

enum class Op : uint8_t {
  variable,  // the register `slot`
  map1,      // function(a)
  map2,      // function(a, b)
  map3,      // function(a, b, c)
  index,     // the address a + b * imm; b must be in [0, limit) where limit > 0
  bounded,   // a, which must be in [0, b)
  load,      // the number at address a
  store,     // the number b to address a; its value is b
  assign,    // b into the variable `slot`
  post,      // the same, but its value is what the variable was
  select,    // a ? b : c, each arm for its lanes
  both,      // a && b
  either,    // a || b
  comma,     // a, then b
  call,      // statement `body`, then the variable `slot`
  atomic,    // at address a, with b (and c)
  warp,      // of a (and b)
  fence,
};

struct Statement;

struct Node {
  Op op;
  Type type;
  Num stored = Num::none;  // what a load or a store finds in memory
  int line = 0;
  Node *a = nullptr, *b = nullptr, *c = nullptr;
  int slot = -1;
  int base = -1;  // which memory an address is in: an index of Program::memory, -1: any
  int64_t imm = 0, limit = 0;
  union {
    Map1 map1 = nullptr;
    Map2 map2;
    Map3 map3;
    Warp warp;
    Atomic atomic;
  };
  Statement* body = nullptr;
  const std::string* name = nullptr;  // of what is indexed, for errors
  bool checked = false;               // the address is known to be right
};

enum class Do : uint8_t { nothing, block, expression, branch, loop, leave, next, give, print };

/// What printf() writes: the value in its conversion, behind text that has none.
struct Printed {
  std::string text, conversion;
  Node* value = nullptr;  // i64, u64 or f64; null: there is no conversion
};

struct Statement {
  Do what = Do::nothing;
  std::vector<Statement*> list;  // block
  Node* value = nullptr;         // expression; condition of a branch or loop; what `give` returns
  Statement *first = nullptr, *second = nullptr;  // arms; body and step of a loop
  bool after = false;  // the condition is asked for after the body: do-while
  bool once = false;   // a switch, which `break` leaves and `continue` does not mean
  int slot = -1;       // of what a function returns
  std::vector<Printed> printed;
};

/// A register that is filled when a batch, or a worker, begins.
struct Preset {
  enum What : uint8_t {
    constant,
    parameter,
    thread,
    block_index,
    block_dim,
    grid_dim,
    memory
  } what;
  int slot;
  Reg reg;
  int64_t bits = 0;  // the constant's; the parameter's, axis', or memory's number
  int offset = 0;    // of a struct's member in the parameter, and what it is there
  Num member = Num::none;
};

/// A piece of memory that pointers point to.
struct Memory {
  enum Where : uint8_t { argument, local, shared, dynamic, global } where;
  std::string name;
  Num num;
  int64_t bytes = 0;                             // of local, shared and global ones
  int parameter = -1;                            // of an argument
  std::shared_ptr<std::vector<std::byte>> data;  // of a global one
};

struct Parameter {
  std::string name;
  Type type;
  int bytes = 0;  // of a struct, else 0
};

struct Program {
  std::string name;
  Lines lines;
  std::vector<Parameter> parameters;
  std::vector<Preset> presets;
  std::vector<Memory> memory;
  int slots = 0;
  int64_t work = 0;     // about how many instructions a thread runs, loops taken for 16 rounds
  bool shares = false;  // threads of a block work together
  Statement* body = nullptr;
  std::deque<Node> nodes;
  std::deque<Statement> statements;
  std::deque<std::string> names;
};

// ---- lane_maps.cpp: functions over arrays

Map1 conversion(Reg from, Reg to);
/// To what a number of this kind holds: ints to chars and back.
Map1 narrowing(Num to);
/// Of '+', "<=", ...; null where there is none.
Map2 operation(const std::string& op, Reg reg);
Map1 negation(const std::string& op, Reg reg);
Map1 function1(const std::string& name, Reg reg);
Map2 function2(const std::string& name, Reg reg);
Map3 function3(const std::string& name, Reg reg);

}  // namespace arete::lanes
