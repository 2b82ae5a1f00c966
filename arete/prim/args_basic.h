// Argument structs of the primitives over elements, indices and random numbers (args.h has all of
// them).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "arete/expr/program.h"
#include "arete/prim/context.h"
#include "arete/prim/view.h"

namespace arete::prim {

/// What a call does with an operand's memory.
enum class Access : uint8_t {
  read,
  write,   ///< every element; old values are not looked at
  update,  ///< reads old values, or leaves some as they are
};

/// A number that changes while the call stays the same (it was recorded, or captured in a graph):
/// number `number` of a program's parameters is read from memory of the device when the call runs.
/// `value` is one element, f64 for floating parameters, i64 for others.
struct Slot {
  int number;
  View value;
};

/// Associative operations with an identity. `all` and `any` work on booleans.
enum class Monoid : uint8_t { sum, prod, min, max, all, any };

/// out[...] = value (converted to the dtype; `value` is an i64 for integers and booleans; `imag`
/// matters for complex outputs only).
struct FillArgs {
  View out;
  expr::Literal value;
  bool value_is_integer = false;
  double imag = 0;
  Context context{};

  static void describe(auto& a, auto&& v) { v(a.out, Access::write); }
};

/// out = in, any strides and any pair of dtypes; `in` broadcasts to out. Overlap is not allowed.
struct CopyArgs {
  View out, in;
  Context context{};

  static void describe(auto& a, auto&& v) {
    v(a.out, Access::write);
    v(a.in, Access::read);
  }
};

/// out[i] = start + i * step over a 1-d view.
struct IotaArgs {
  View out;
  double start = 0, step = 1;
  int64_t istart = 0, istep = 1;  // used instead for integer outputs
  Context context{};

  static void describe(auto& a, auto&& v) { v(a.out, Access::write); }
};

/// outputs = program(inputs, params) element by element. Outputs have one shape, inputs broadcast
/// to it, but for those that the program reads as tables: these are dense, of any shape with
/// at least one element. An input that is no table may be exactly one of the outputs (in place);
/// other overlap is not allowed.
struct PointwiseArgs {
  const expr::Program* program;
  std::span<const View> inputs;
  std::span<const View> outputs;
  std::span<const expr::Literal> params;
  std::span<const Slot> slots{};
  Context context{};

  static void describe(auto& a, auto&& v) {
    v(a.program, a.params, a.slots);
    v(a.inputs, Access::read);
    v(a.outputs, Access::write);
  }
};

/// The same program over many independent lists of tensors: element k of each list.
/// inputs and outputs hold n_tensors * (number of program inputs / outputs) views, tensor-major.
struct MultiPointwiseArgs {
  const expr::Program* program;
  int64_t n_tensors;
  std::span<const View> inputs;
  std::span<const View> outputs;
  std::span<const expr::Literal> params;
  std::span<const Slot> slots{};
  Context context{};

  static void describe(auto& a, auto&& v) {
    v(a.program, a.params, a.slots);
    v(a.inputs, Access::read);
    v(a.outputs, Access::write);
  }
};

/// out[k] = reduce of prologue(element) over tensor k; out is 1-d and contiguous with n_tensors
/// elements of the prologue's output type. The prologue has one input; params as in ReduceArgs.
struct MultiReduceArgs {
  Monoid monoid;
  const expr::Program* prologue;
  std::span<const View> inputs;  // one per tensor
  View out;
  std::span<const expr::Literal> params;
  std::span<const Slot> slots{};
  Context context{};

  static void describe(auto& a, auto&& v) {
    v(a.prologue, a.params, a.slots);
    v(a.inputs, Access::read);
    v(a.out, Access::write);
  }
};

/// out = epilogue(reduce(prologue(inputs))) over the dimensions of `space` where out has size 1
/// and space has not (and where `reduced` has a bit set). `out` has the rank of `space`.
/// prologue: inputs (tables as in PointwiseArgs) + params -> one value; null means the single input
/// itself. epilogue: one
/// value (+ epilogue_params) -> one value; null means identity. Sums of f32 and narrower
/// accumulate with error no worse than pairwise summation; integers accumulate in i64. Reducing
/// nothing gives the identity (min/max: the caller has checked).
struct ReduceArgs {
  Monoid monoid;
  IntList space;
  uint32_t reduced;  // bit d: dimension d of space is reduced
  std::span<const View> inputs;
  View out;
  const expr::Program* prologue = nullptr;
  std::span<const expr::Literal> params;
  const expr::Program* epilogue = nullptr;
  std::span<const expr::Literal> epilogue_params;
  std::span<const Slot> slots{}, epilogue_slots{};
  Context context{};

  static void describe(auto& a, auto&& v) {
    v(a.space);
    v(a.inputs, Access::read);
    v(a.out, Access::write);
    v(a.prologue, a.params, a.slots);
    v(a.epilogue, a.epilogue_params, a.epilogue_slots);
  }
};

/// States that follow from each other step by step: in each of `rows` independent rows, at each of
/// `steps` steps, the new state at every position of a row is
///   program(table of the row's states, position, step, row, inputs..., params)
/// where the table holds the states before the step, in the dtype of the program's first output,
/// any of which may be loaded, and the next three are i64. With a second output, what it says of
/// each state is what `out` gets, in place of the states themselves. `reverse`: from the last step
/// to the first. Row r takes part in the steps below lengths[r] only; at others its states stay,
/// and what else is written there is 0.
struct RecurrenceArgs {
  const expr::Program* program;
  int64_t steps, rows, states;
  View initial;                  // broadcasts to (rows, states); absent: zeros
  View lengths;                  // (rows), i64; absent: all have all steps
  std::span<const View> inputs;  // broadcast to (steps, rows, states); tables as in PointwiseArgs
  View out;  // (steps, rows, states), or (1, rows, states): the states after the last step
  bool reverse = false;
  std::span<const expr::Literal> params{};
  std::span<const Slot> slots{};
  Context context{};

  static void describe(auto& a, auto&& v) {
    v(a.program, a.params, a.slots);
    v(a.initial, Access::read);
    v(a.lengths, Access::read);
    v(a.inputs, Access::read);
    v(a.out, Access::write);
  }
};

/// Position (i64) of the first minimum / maximum along `dim`; NaN wins. out has size 1 there.
/// `values` (same shape as out, dtype of in), if present, receives the extremum too.
struct ArgReduceArgs {
  View in, out, values;
  int dim;
  bool largest;
  Context context{};

  static void describe(auto& a, auto&& v) {
    v(a.in, Access::read);
    v(a.out, Access::write);
    v(a.values, Access::write);
  }
};

/// Running monoid along `dim`, inclusive. out has in's shape and may be in. reverse: from the end.
/// Also, with
///   factors      (sum; in's shape and out's dtype, floating or complex) a result times its factor
///                is added to the next; on CPUs, times n <= 32 in a last dense dim to the next n
///   logarithmic  (sum; in and out floating) `in` holds the logarithms of what is summed, and out
///                gets those of the sums; infinities and NaN as log(sum(exp(in)))
///   indices      (min, max; in's shape, i64) at which step, counted from where the scan begins,
///                the last of the elements equal to the result so far was met; NaN is equal to NaN.
///                in and out have one dtype
struct ScanArgs {
  Monoid monoid;
  View in, out;
  int dim;
  bool reverse = false;
  View factors{}, indices{};
  bool logarithmic = false;
  Context context{};

  static void describe(auto& a, auto&& v) {
    v(a.in, Access::read);
    v(a.factors, Access::read);
    v(a.out, Access::write);
    v(a.indices, Access::write);
  }
};

/// Sorted copy along `dim` and the original positions (i64). Stable; NaN is the largest.
/// `indices` may be absent: equal values then come in any order, and NaN with any bits. So may
/// `values`, if there are indices.
struct SortArgs {
  View in, values, indices;
  int dim;
  bool descending = false;
  Context context{};

  static void describe(auto& a, auto&& v) {
    v(a.in, Access::read);
    v(a.values, Access::write);
    v(a.indices, Access::write);
  }
};

/// The k largest (smallest) along `dim`, sorted, ties by position. values/indices have size k.
struct TopkArgs {
  View in, values, indices;
  int dim;
  bool largest = true;
  Context context{};

  static void describe(auto& a, auto&& v) {
    v(a.in, Access::read);
    v(a.values, Access::write);
    v(a.indices, Access::write);
  }
};

/// Elements of each row along `dim` by their place in its order (that of SortArgs, ascending) and
/// their positions (i64). in has at least one dimension and, where there are outputs, elements
/// along `dim`; outputs have one element for each row, or the sizes of `ranks`.
///   rank       the place `rank`, counted from 0
///   ranks      those that `ranks` (i64) names, as gather's index: one outside is an IndexError
///   median     the lower median; of floats the first NaN, if there is one
///   nanmedian  the lower median of what is not NaN; where there is nothing else, the first NaN
struct SelectArgs {
  enum class Place : uint8_t { rank, ranks, median, nanmedian };
  View in, values, indices;
  int dim;
  Place place = Place::rank;
  int64_t rank = 0;
  View ranks{};
  const char* op = "select";
  Context context{};

  static void describe(auto& a, auto&& v) {
    v(a.in, Access::read);
    v(a.ranks, Access::read);
    v(a.values, Access::write);
    v(a.indices, Access::write);
  }
};

/// out[.., i, ..] = in[.., index[.., i, ..], ..] along `dim`; index (i64) has out's shape, in's
/// other dimensions are at least as long. Negative indices count from the end. An index out of
/// range is an IndexError naming `op`, the index and the size (CUDA: at the next sync).
/// leaves_out: where the index is `left_out`, in range or not, out is 0, and other negative indices
/// are out of range.
struct GatherArgs {
  View in, index, out;
  int dim;
  const char* op = "gather";
  Context context{};
  bool leaves_out = false;
  int64_t left_out = 0;

  static void describe(auto& a, auto&& v) {
    v(a.in, Access::read);
    v(a.index, Access::read);
    v(a.out, Access::write);
  }
};

enum class ScatterMode : uint8_t { set, add, mul, min, max };
/// out[.., index[.., i, ..], ..] op= src[.., i, ..]; out holds the initial values. `set` with
/// repeated indices keeps the last one when deterministic.
/// factors (optional; `add` and dtypes of real numbers that computing is done in only: f32, f64):
/// what is added is the product with them. They have the dtype of out and lie as index does, with
/// its strides; what a factor of 0 belongs to is left out.
/// places (optional; `add`, without factors): there is no index, which is what this program gives
/// of `inputs`. If out and src have one dimension, one i64 of [0, elements of out), and inputs are
/// vectors as long as src, or tables as in PointwiseArgs. If they have three, out (images,
/// channels, elements) and src (images, channels, points), both contiguous and of f32 or f64, then
/// dim is 2, inputs are (images, points), and it gives for some taps, at most 8, an i64 of [0,
/// elements) and a factor in out's dtype each: out[i, c, place] += src[i, c, point] * factor, if
/// that is not 0.
struct ScatterArgs {
  View out, index, src;
  int dim;
  ScatterMode mode;
  const char* op = "scatter";
  Context context{};
  View factors{};
  const expr::Program* places = nullptr;
  std::span<const View> inputs{};
  std::span<const expr::Literal> params{};
  std::span<const Slot> slots{};

  static void describe(auto& a, auto&& v) {
    v(a.out, Access::update);
    v(a.index, Access::read);
    v(a.src, Access::read);
    v(a.factors, Access::read);
    v(a.places, a.params, a.slots);
    v(a.inputs, Access::read);
  }
};

/// out[i, :] = table[index[i], :]; table (rows, width), index i64 of any shape taken as 1-d
/// contiguous, out (n, width). Index errors as in gather.
struct TakeRowsArgs {
  View table, index, out;
  const char* op = "index_select";
  Context context{};

  static void describe(auto& a, auto&& v) {
    v(a.table, Access::read);
    v(a.index, Access::read);
    v(a.out, Access::write);
  }
};
/// out[index[i], :] += src[i, :] (in index order: deterministic).
/// Optional, of one element for each entry i, contiguous (for dtypes of floating numbers):
/// source (i64): row source[i] of src is added instead, negative ones counted from the end; with it
/// rows `left_out` of src count nothing (-1: none), and with factors (dtype of out) what is added
/// is multiplied with factors[i] first. sorted: the caller knows that index is ascending and not
/// negative.
/// With a source the entries may also come in runs, one for each row of out, in place of an index:
/// run r begins at begins[r] (i64, contiguous, ascending) and ends where the next one does or with
/// the entries, or each is of `run` entries. out is written then, and not added to. mean: divided
/// by the number of a run's entries that count, if that is not 0. max (real numbers, no factors):
/// the largest instead of the sum, NaN if there is one, and 0 of nothing; top (optional, i64,
/// contiguous, of the sizes of out) gets the rows of src that these are from, of equal ones the
/// first entry's, and -1 where there is none.
struct AddRowsArgs {
  enum class Runs : uint8_t { sum, mean, max };
  View out, index, src;
  const char* op = "index_add";
  Context context{};
  View source{}, factors{};
  int64_t left_out = -1;
  bool sorted = false;
  View begins{};
  int64_t run = 0;
  Runs what = Runs::sum;
  View top{};

  bool in_runs() const { return !index; }

  static void describe(auto& a, auto&& v) {
    v(a.out, Access::update);
    v(a.index, Access::read);
    v(a.src, Access::read);
    v(a.source, Access::read);
    v(a.factors, Access::read);
    v(a.begins, Access::read);
    v(a.top, Access::write);
  }
};

/// Where true elements of `mask` are, ascending, into `out` (i64): row-major positions, contiguous,
/// or (rank, room) coordinates. It has room for all elements, or for the n that are true, known
/// before; absent, on the CPU alone: they are counted. Returns n, the one data-dependent size.
struct CompactArgs {
  View mask, out;
  Context context{};

  static void describe(auto& a, auto&& v) {
    v(a.mask, Access::read);
    v(a.out, Access::update);
  }
};

/// Philox4x32-10 numbers: element i (row-major position in `out`) takes lane i % 4 of block
/// (offset + i / 4) under `seed`, the same on every backend; 64-bit results take two lanes.
/// See Note [Random numbers] in prim/philox.h for the exact mapping of each distribution.
/// state (optional, two i64 in the device's memory): what the bits of `seed` are changed by (xor),
/// and what is added to `offset`, for calls that are run again and shall draw other numbers.
/// program (optional): the numbers are its first input, of f32 or f64, and drawn as into an output
/// of that dtype; `inputs` are the others, which broadcast to `out`, its one result; one may be
/// exactly `out`.
struct RandomArgs {
  enum class Distribution : uint8_t {
    uniform,    ///< [a, b)
    normal,     ///< mean a, standard deviation b
    integers,   ///< [ia, ib)
    bernoulli,  ///< 1 with probability a
  } distribution;
  View out;
  uint64_t seed, offset;
  double a = 0, b = 1;
  int64_t ia = 0, ib = 0;
  View state{};
  const expr::Program* program = nullptr;
  std::span<const View> inputs{};
  std::span<const expr::Literal> params{};
  std::span<const Slot> slots{};
  Context context{};

  static void describe(auto& a, auto&& v) {
    v(a.program, a.params, a.slots);
    v(a.out, Access::write);
    v(a.inputs, Access::read);
    v(a.state, Access::read);
  }
};

/// out[i] = in[i] * scale where number i of the Bernoulli(keep) stream of RandomArgs is 1, else 0;
/// i is the row-major position. Drawing the same numbers again is what the backward pass does
/// instead of keeping a mask. Sizes are equal, strides any, one floating dtype. `out` may be `in`.
struct DropoutArgs {
  View in, out;
  uint64_t seed, offset;
  double keep, scale;
  View state{};  // as in RandomArgs
  Context context{};

  static void describe(auto& a, auto&& v) {
    v(a.in, Access::read);
    v(a.out, Access::write);
    v(a.state, Access::read);
  }
};

}  // namespace arete::prim
