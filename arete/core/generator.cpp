#include "arete/core/generator.h"

#include <random>
#include <utility>

#include "arete/core/thread_generator.h"

namespace arete {

namespace {
thread_local constinit Generator* of_thread = nullptr;
}

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
  if (of_thread) return *of_thread;
  static Generator generator([] {
    std::random_device device;
    return (uint64_t(device()) << 32) | device();
  }());
  return generator;
}

Generator* set_thread_generator(Generator* generator) {
  return std::exchange(of_thread, generator);
}

void manual_seed(uint64_t seed) { default_generator().manual_seed(seed); }

}  // namespace arete
