// Calls that work element by element, or row by row, put together.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "arete/compile/graph_internal.h"
#include "arete/compile/plan.h"

namespace arete::compile {

// Note [Stages of a group]
// Calls that may be put together are seen as stages over one space, some of whose dimensions may
// be reduced: those of a row. Operands are places, all seen over the whole space; one with a
// value for each row has strides of 0 along the row, and one with a value for each position in
// the rows has strides of 0 from row to row. What a reduction hands to the stages behind it is a
// place that nothing else has. So whatever one stage writes and another one reads is found by
// comparing places, and a group is built from values: what is read was made by the last stage
// before that wrote there, or lies in memory when the call begins.

/// An operand of a stage: a view that owns its sizes and strides.
struct Place {
  std::byte* data;
  DType dtype;
  Layout layout;
  const Storage* storage;
  Use use;
  bool is_table = false;

  prim::View view() const { return {data, dtype, layout.sizes, layout.strides, storage}; }
  /// The same elements in the same positions of a space.
  bool operator==(const Place& o) const;
};

struct Stage {
  enum class Kind : uint8_t {
    elements,  ///< the program at each element
    reduce,    ///< of its values in each row, before they are rounded, to outputs for rows
    rows,      ///< the program once for each row, of what is the same in all of it
    columns,   ///< its values at each position in the rows, reduced over all rows
  } kind;
  expr::ProgramPtr program;
  std::vector<Place> inputs, outputs;
  std::span<const expr::Literal> params;
  std::vector<prim::Slot> slots;  // of these
  prim::Monoid monoid = prim::Monoid::sum;
};

/// A call as stages.
struct StagedCall {
  std::vector<Stage> stages;
  Shape space;
  uint32_t reduced = 0;  // dimensions of rows
  prim::Context context;
  std::vector<Use> numbers;                  // memory that parameters are read from
  const prim::ReduceArgs* reduce = nullptr;  // the call, if it is one
};

/// Empty if it is no such call, or one that has to stay as it is.
std::optional<StagedCall> stages_of(const prim::RecordedCall& call, Buffers& buffers,
                                    const PlanOptions& options);

/// The stages with each position along a dimension of few elements by itself, and without that
/// dimension; what was a reduction of these elements is computed of all of them at once. Empty if
/// it is not the only dimension of rows, or something is reduced over all rows.
std::optional<StagedCall> one_by_one(const StagedCall& of, int dim);

/// The stages as one call that stores what is needed. With `reduce` two are those of that call; the
/// ones before work element by element, and those behind make something else of each result.
std::unique_ptr<prim::RecordedCall> call_of(Device device, const StagedCall& staged,
                                            const std::function<bool(const Use&)>& is_needed,
                                            bool exact);

/// Functions that take many instructions.
int functions_of(const expr::Program& program);

/// Calls that run as one, in the order in which they were added.
class Group {
 public:
  Group(std::unique_ptr<prim::RecordedCall> call, Buffers& buffers, const PlanOptions& options);

  const prim::RecordedCall& call() const { return *calls_.front(); }
  int calls() const { return int(calls_.size()); }
  /// The recorded calls that it does, by their numbers, for people.
  std::vector<int> numbers;
  /// Null if it is none that others can be put together with.
  const StagedCall* staged() const { return staged_ ? &*staged_ : nullptr; }
  const std::vector<Use>& uses() const { return uses_; }
  /// Whether it may end in an error because of values: what is written before and after stays so.
  bool may_refuse() const;
  /// How many of its calls look at what a buffer holds.
  int readers(int buffer) const { return int(std::ranges::count(read_, buffer)); }
  /// The buffers that each call looks at.
  const std::vector<int>& reads() const { return read_; }
  /// Takes the calls of `next` in, which runs right behind this group, if one kernel may run both
  /// and store the same bits (`exact`) or numbers. Else it gives the reason.
  /// `is_read_elsewhere(use)`: whether other groups than these two look at what is written there.
  const char* take(Group& next, const std::function<bool(const Use&)>& is_read_elsewhere);
  /// Whether nothing of it is needed.
  bool may_be_left_out(const std::function<bool(const Use&)>& is_needed) const;
  /// As one call that stores what is needed: null if nothing is. Once only.
  std::unique_ptr<prim::RecordedCall> build(const std::function<bool(const Use&)>& is_needed);

 private:
  std::vector<std::unique_ptr<prim::RecordedCall>> calls_;
  std::optional<StagedCall> staged_;
  std::vector<Use> uses_;
  std::vector<int> read_;
  bool has_row_call_ = false;  // one of the calls works on rows, which kernels for rows are good at
  bool exact_;
};

/// How many groups' calls look at each buffer.
std::vector<int> readers_of(const std::vector<std::unique_ptr<Group>>& groups,
                            const Buffers& buffers);

/// Of groups of one call each: who reads a temporary that is a narrower operand converted to a
/// wider type reads the operand, and converts it himself, if all its readers can. Sums of rows
/// beside a product that are only converted become calls of their own.
void read_before_casts(std::vector<std::unique_ptr<Group>>& groups, Buffers& buffers,
                       const PlanOptions& options);

}  // namespace arete::compile
