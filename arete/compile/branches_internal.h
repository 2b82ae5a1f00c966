// What of a graph may run side by side.
#pragma once

#include <span>
#include <vector>

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

/// Of one call: its branch, where it comes after the ones before it there, and the calls on other
/// branches that it waits for besides.
struct BranchStep {
  size_t branch = 0;
  std::vector<size_t> waits{};
};

/// For calls that are to run in this order, or as if; at most `most` branches, the first is 0.
std::vector<BranchStep> branches_of(std::span<prim::RecordedCall* const> calls, size_t most);

}  // namespace arete::compile
