// The thread-local state that changes what a call does. One struct, one word to test.
#pragma once

#include <cstdint>

namespace arete {

class Tensor;

namespace prim {
class Capture;
}
namespace tracing {
class ThreadListener;
}

/// Everything about the current thread that a call must know. Changed through RAII guards only.
struct Modes {
  enum : uint32_t {
    kAutocast = 1u << 0,  // for some device, see ops/autocast.h
    kCapture = 1u << 1,
    kObserve = 1u << 2,  // a listener of this thread's calls
    kAnomaly = 1u << 3,
    kInference = 1u << 4,
    kPutOff = 1u << 5,  // primitive calls wait until somebody looks (compile/queue.h)
  };
  uint32_t word = 0;  // zero: nothing special, the fast path
  bool grad_enabled = true;
  bool deterministic = false;
  prim::Capture* capture = nullptr;             // with kCapture or kPutOff
  tracing::ThreadListener* listener = nullptr;  // with kObserve
  // Memory for the result of the composition under way: who takes it sets the pointer behind this
  // one to null (Note [Results into given memory] in ops/call.cpp).
  const Tensor** destination = nullptr;
  // The operator called last, for errors and for statistics of memory; lives as long as the
  // process.
  const char* current_op = nullptr;
};

namespace detail {
// Note [Thread-local memory]
// Every call looks here several times. In a shared library that asks the loader for the address
// each time, unless the variable has its place in the part of a thread's memory that is laid out
// when it starts. Of that part little is left for libraries that are loaded later, as by Python:
// what is thread-local in libarete.so must fit into some hundred bytes (a test looks at its size).
extern thread_local constinit Modes thread_modes [[gnu::tls_model("initial-exec")]];
}  // namespace detail
inline Modes& modes() noexcept { return detail::thread_modes; }

/// Restores the thread's modes as they were when it was made.
class ModesGuard {
 public:
  ModesGuard() : saved_(modes()) {}
  ~ModesGuard() { modes() = saved_; }
  ModesGuard(const ModesGuard&) = delete;
  ModesGuard& operator=(const ModesGuard&) = delete;

 private:
  Modes saved_;
};

/// While it lives, calls record no history.
class NoGradGuard : ModesGuard {
 public:
  NoGradGuard() { modes().grad_enabled = false; }
};
/// While it lives, calls record history even inside a NoGradGuard.
class EnableGradGuard : ModesGuard {
 public:
  explicit EnableGradGuard(bool enabled = true) { modes().grad_enabled = enabled; }
};
/// As NoGradGuard; tensors made inside can never be used where history is recorded (an error
/// says so), in return for which views and in-place calls skip all bookkeeping.
class InferenceModeGuard : ModesGuard {
 public:
  InferenceModeGuard() {
    modes().grad_enabled = false;
    modes().word |= Modes::kInference;
  }
};
inline bool is_grad_enabled() noexcept { return modes().grad_enabled; }
inline bool is_inference_mode() noexcept { return modes().word & Modes::kInference; }

}  // namespace arete
