#include "arete/core/generator.h"

#include <random>

namespace arete {

void Generator::manual_seed(uint64_t seed) { set_state({seed, 0}); }

Generator::State Generator::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void Generator::set_state(State s) {
  const std::lock_guard lock(mutex_);
  state_ = s;
}

Generator::State Generator::reserve(uint64_t blocks) {
  const std::lock_guard lock(mutex_);
  const State before = state_;
  state_.offset += blocks;
  return before;
}

Generator& default_generator() {
  static Generator generator([] {
    std::random_device device;
    return (uint64_t(device()) << 32) | device();
  }());
  return generator;
}

void manual_seed(uint64_t seed) { default_generator().manual_seed(seed); }

}  // namespace arete
