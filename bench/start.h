// What a fresh process does first, and the rows that time it.
#pragma once

#include <string>
#include <vector>

#include "bench/row.h"

namespace arete::bench {

/// What `arete-bench --first WHAT` does; ValueError naming the choices for anything else.
/// result: one sum on the GPU. training-step: a step and a test batch of the Fashion-MNIST CNN.
void do_first(const std::string& what);

/// Whole processes, from start to end, on one GPU.
std::vector<Row> start_rows();

}  // namespace arete::bench
