#include "arete/core/generator.h"

#include <mutex>
#include <random>
#include <utility>

#include "arete/core/thread_generator.h"

namespace arete {

namespace {
thread_local constinit Generator* of_thread = nullptr;
}

struct Generator::Guarded {
  std::mutex mutex;
  State state;
};

Generator::Generator(uint64_t seed) : guarded_(new Guarded{{}, {seed, 0}}) {}
Generator::~Generator() = default;

void Generator::manual_seed(uint64_t seed) { set_state({seed, 0}); }

Generator::State Generator::state() const {
  const std::lock_guard lock(guarded_->mutex);
  return guarded_->state;
}

void Generator::set_state(State s) {
  const std::lock_guard lock(guarded_->mutex);
  guarded_->state = s;
}

Generator::State Generator::reserve(uint64_t blocks) {
  const std::lock_guard lock(guarded_->mutex);
  const State before = guarded_->state;
  guarded_->state.offset += blocks;
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
