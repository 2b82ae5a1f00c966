// Calls that work element by element, put together.
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

/// An operand of a program: a view that owns its sizes and strides.
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

/// A call that computes a program at each element of a space, and stores or reduces the values.
struct ElementCall {
  expr::ProgramPtr program;
  std::vector<Place> inputs;   // of the space's sizes, unless they are tables
  std::vector<Place> outputs;  // of the space's sizes; of a reduction none
  std::span<const expr::Literal> params;
  std::span<const prim::Slot> slots;
  Shape space;
  prim::Context context;
  const prim::ReduceArgs* reduce = nullptr;  // what it does with the program's one output
  std::vector<Use> results;                  // of a reduction
  std::vector<Use> numbers;                  // memory that parameters are read from
};

/// Calls that run as one, in the order in which they were added.
class Group {
 public:
  Group(std::unique_ptr<prim::RecordedCall> call, Buffers& buffers, const PlanOptions& options);

  const prim::RecordedCall& call() const { return *calls_.front(); }
  int calls() const { return int(calls_.size()); }
  const std::vector<Use>& uses() const { return uses_; }
  /// Whether it may end in an error because of values: what is written before and after stays so.
  bool may_refuse() const;
  /// How many of its calls look at what a buffer holds.
  int readers(int buffer) const { return int(std::ranges::count(read_, buffer)); }
  /// The buffers that each call looks at.
  const std::vector<int>& reads() const { return read_; }
  /// Takes the calls of `next` in, which runs right behind this group, if one kernel may run both
  /// and store the same bits. `is_read_elsewhere(use)`: whether other groups than these two look at
  /// what is written there.
  bool take(Group& next, const std::function<bool(const Use&)>& is_read_elsewhere);
  /// As one call that stores what is needed: null if nothing is. Once only.
  std::unique_ptr<prim::RecordedCall> build(const std::function<bool(const Use&)>& is_needed);

 private:
  std::vector<std::unique_ptr<prim::RecordedCall>> calls_;
  std::vector<ElementCall> elements_;  // one for each call; none of calls of other kinds
  std::vector<Use> uses_;
  std::vector<int> read_;
  bool exact_;
};

}  // namespace arete::compile
