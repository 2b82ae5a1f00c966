// How a plan came to be, for those who ask (explain.h).
#pragma once

#include <cstddef>
#include <vector>

namespace arete::compile {

struct PlanNotes {
  struct Step {
    std::vector<int> calls;    // recorded ones, by their numbers
    std::vector<int> buffers;  // of its operands; -1: no elements
    int group = -1;            // that it was made of
  };
  struct Memory {
    size_t bytes;
    bool temporary;
  };
  /// Groups of calls that use the same memory and were not put together.
  struct Apart {
    int earlier, later;
    const char* why;
  };
  std::vector<Step> steps;
  std::vector<Memory> memory;  // by buffer
  std::vector<Apart> apart;
  std::vector<bool> is_alone;  // groups that no others can be put together with, whatever they use
  int left_out = 0;            // calls that no step does
  bool several_streams = false;
};

}  // namespace arete::compile
