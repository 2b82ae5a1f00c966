// The clock by which loaders measure how long somebody waited.
#pragma once

#include <chrono>

namespace arete::data {

/// Seconds since some point of time; it never goes back.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace arete::data
