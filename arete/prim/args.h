// The argument structs of the primitives (docs/architecture.md). Outputs are always allocated by
// the caller.
//
// Note [Calls that describe themselves]
// Arguments are borrowed: views, lists and programs need to live during the call only, and making a
// call costs no allocation. Each struct says what it borrows in describe(args, visitor), which
// calls
//   visitor(view, access)               for each operand, and for each list of operands
//   visitor(program, params, slots)     for each program, or the spec of a fused call, in the order
//                                       in which they run, with its numbers
//   visitor(sizes)                      for lists of sizes
// with references, so that a visitor may replace them. From this one declaration come: copies that
// own everything (Kept), recorders, the uses of memory on streams, calls on copies of the operands
// (the CPU for a device without a library, the tests of a device in host memory), the checks of
// aliasing, and the printed form.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "arete/prim/args_basic.h"
#include "arete/prim/args_library.h"

namespace arete::prim {

// Note [Fused kernels]
// A FusedSpec is one loop nest over rows: the outer dimensions of a space are rows, the inner ones
// the elements of a row. Its stages run in order for each row while the row is in cache:
//   reduce     program(elements, row values) -> new row values, one per output, by `monoid`
//   row        program(row values)           -> new row values
//   store      program(elements, row values) -> elements of outputs
//   store_row  program(row values)           -> outputs with inner sizes 1
//   reduce_columns  program(elements)   -> outputs with outer sizes 1, by `monoid` over all rows
// Where row values are read, so are inputs with one element for a row. A reduce_columns program
// reads tensor inputs only, so that a backend may also run such a stage by itself, before or after
// the others; its results are converted to the dtypes of the outputs.
// Softmax, the norms and cross entropy are such specs, forward and backward; pointwise and reduce
// are those of one stage (fused_forms.h).
struct FusedStage {
  enum class Kind : uint8_t { reduce, row, store, store_row, reduce_columns } kind;
  expr::ProgramPtr program;
  /// What each program input reads: >= 0: tensor input of that number; < 0: row value ~k.
  /// Row values are numbered in order of creation and have the dtype of the program output that
  /// made them (use f32, f64, i64 or boolean).
  std::vector<int> inputs;
  Monoid monoid = Monoid::sum;  // reduce and reduce_columns only
  int first_output = 0;         // others: the program's outputs go to tensor outputs from here on
};
struct FusedSpec {
  std::vector<FusedStage> stages;
  int n_inputs = 0, n_outputs = 0;
};

/// Inputs broadcast to `space`, but for those that programs read as tables, which are as in
/// PointwiseArgs and read so by all of them; outputs have the sizes of `space`, or 1 in the inner
/// dimensions when written by store_row, or 1 in the outer ones when written by reduce_columns. An
/// output may be exactly one of the inputs only if every stage reading that input precedes or is
/// the store (and no reduce_columns stage reads it). params: shared by all programs, by position
/// (each program declares a prefix).
struct FusedArgs {
  const FusedSpec* spec;
  IntList space;
  int outer_rank;
  std::span<const View> inputs;
  std::span<const View> outputs;
  std::span<const expr::Literal> params;
  std::span<const Slot> slots{};
  Context context{};

  static void describe(auto& a, auto&& v) {
    v(a.spec, a.params, a.slots);
    v(a.space);
    v(a.inputs, Access::read);
    v(a.outputs, Access::write);
  }
};

/// The primitives and their arguments, the mandatory ones first: X(name, Args) for each.
#define ARETE_PRIMITIVES(X)              \
  X(fill, FillArgs)                      \
  X(copy, CopyArgs)                      \
  X(iota, IotaArgs)                      \
  X(pointwise, PointwiseArgs)            \
  X(reduce, ReduceArgs)                  \
  X(arg_reduce, ArgReduceArgs)           \
  X(scan, ScanArgs)                      \
  X(sort, SortArgs)                      \
  X(gather, GatherArgs)                  \
  X(scatter, ScatterArgs)                \
  X(compact, CompactArgs)                \
  X(random, RandomArgs)                  \
  X(gemm, GemmArgs)                      \
  X(topk, TopkArgs)                      \
  X(select, SelectArgs)                  \
  X(take_rows, TakeRowsArgs)             \
  X(add_rows, AddRowsArgs)               \
  X(conv, ConvArgs)                      \
  X(pool, PoolArgs)                      \
  X(multi_pointwise, MultiPointwiseArgs) \
  X(multi_reduce, MultiReduceArgs)       \
  X(dropout, DropoutArgs)                \
  X(attention, AttentionArgs)            \
  X(fused, FusedArgs)                    \
  X(recurrence, RecurrenceArgs)          \
  X(fft, FftArgs)                        \
  X(linalg, LinalgArgs)

namespace detail {
template <class F>
struct OperandVisitor {
  F& f;
  void operator()(const View& view, Access access) {
    if (view) f(view, access);
  }
  void operator()(std::span<const View> views, Access access) {
    for (const View& view : views) f(view, access);
  }
  void operator()(auto&, auto&, std::span<const Slot> slots) {
    for (const Slot& slot : slots) f(slot.value, Access::read);
  }
  void operator()(IntList) {}
};
template <class F>
struct ProgramVisitor {
  F& f;
  void operator()(auto& program, auto& params, auto& slots) { f(program, params, slots); }
  void operator()(auto&, Access) {}
  void operator()(auto&) {}
};
}  // namespace detail

/// Calls f(view, access) for every operand that is there.
template <class Args, class F>
void for_each_operand(const Args& args, F&& f) {
  Args::describe(args, detail::OperandVisitor<F>{f});
}
/// Calls f(program or spec, params, slots) for each of a call, with references; one may be null.
template <class Args, class F>
void for_each_program(Args& args, F&& f) {
  Args::describe(args, detail::ProgramVisitor<F>{f});
}

/// The types of a program's parameters; none if there is no program.
inline std::span<const expr::Type> params_of(const expr::Program* program) {
  return program ? program->params() : std::span<const expr::Type>();
}
/// Each program of a spec declares a prefix of them.
inline std::span<const expr::Type> params_of(const FusedSpec* spec) {
  std::span<const expr::Type> all;
  for (const FusedStage& s : spec->stages)
    if (const auto its = s.program->params(); its.size() > all.size()) all = its;
  return all;
}

}  // namespace arete::prim
