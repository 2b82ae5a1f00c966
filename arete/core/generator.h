// Counter-based random state: the same seed gives the same numbers on every device.
#pragma once

#include <cstdint>
#include <memory>

#include "arete/core/device.h"

namespace arete {

/// The state of a Philox stream: a seed and a counter of 4-lane blocks already used. Thread-safe.
class Generator {
 public:
  explicit Generator(uint64_t seed = 0);
  ~Generator();
  struct State {
    uint64_t seed = 0, offset = 0;
    bool operator==(const State&) const = default;
  };
  void manual_seed(uint64_t seed);
  State state() const;
  void set_state(State s);
  /// Reserves `blocks` counter values and returns the state before.
  State reserve(uint64_t blocks);

 private:
  struct Guarded;  // <mutex> is slow to compile
  const std::unique_ptr<Guarded> guarded_;
};

/// The generator used where none is given. One for all devices, so that a program draws the same
/// numbers wherever it runs; seeded from the system at start.
Generator& default_generator();
/// Seeds the default generator.
void manual_seed(uint64_t seed);

}  // namespace arete
