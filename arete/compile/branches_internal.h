// What of a graph may run side by side.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "arete/compile/graph_internal.h"
#include "arete/prim/recorder.h"

namespace arete::compile {

// Note [Branches of a graph]
// A step of a graph waits for those before it that write what it uses, or use what it writes, and
// for no others: a device has room for several short steps at a time. So a graph is captured on
// several streams, its branches. The longest rows of steps that wait for each other stay on one,
// where kernels may begin early; another step goes to one where it finds time, or to a new one:
// each branch more costs a graph time to begin and to join. Which memory steps use is compared by
// address, so that temporaries that lie in each other's place, and what was made a result's, are as
// safe as values. What steps have for themselves while they run comes from their stream.

/// Which of some steps come before which others, in whatever order they may run: those that use the
/// same memory, unless both read it, and those before or behind such.
class Order {
 public:
  /// It is a bit for each two: of more steps it is not asked.
  static constexpr size_t kMostSteps = 1024;
  /// Of each step what it uses.
  explicit Order(std::span<const std::vector<Use>> steps);

  bool is_before(size_t a, size_t b) const { return before_[b][a]; }
  /// So are those before `a`.
  void put_before(size_t a, size_t b);
  /// What a step waits for, the last one first.
  const std::vector<size_t>& needs(size_t step) const { return needs_[step]; }
  /// Of each step how many wait for it, and for each other, in a row.
  std::vector<size_t> behind() const;
  /// Of each step the one that waits for it and has most steps behind it; SIZE_MAX: none.
  std::vector<size_t> heirs(const std::vector<size_t>& behind) const;
  /// Of each step the first place in a row that it can have.
  std::vector<size_t> rows() const;

 private:
  std::vector<std::vector<bool>> before_;
  std::vector<std::vector<size_t>> needs_;
};

/// Of one call: its branch, where it comes after the ones before it there, and the calls on other
/// branches that it waits for besides.
struct BranchStep {
  size_t branch = 0;
  std::vector<size_t> waits{};
};

/// For calls that are to run in this order, or as if; at most `most` branches, the first is 0.
std::vector<BranchStep> branches_of(std::span<prim::RecordedCall* const> calls, size_t most);

}  // namespace arete::compile
