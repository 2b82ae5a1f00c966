// How a call is to run.
#pragma once

#include <utility>

#include "arete/core/matmul_precision.h"
#include "arete/core/modes.h"
#include "arete/prim/cudnn_switches.h"

namespace arete::prim {

struct Context;
namespace detail {
// Note [Thread-local memory] in core/modes.h.
extern thread_local constinit const Context* kept_context [[gnu::tls_model("initial-exec")]];
}  // namespace detail

/// What the thread and the process ask for besides the result, as it was when the call was made: a
/// call that is kept means the same later, and so do the calls that it is made of (ContextScope).
/// Backends read these here only.
struct Context {
  /// Where a kept call was recorded. Backends work on their current stream: who runs the call again
  /// makes it this one.
  void* stream = nullptr;
  /// The same bits in every run.
  bool deterministic;
  /// The same, asked of the vendor's convolutions and attention alone.
  bool library_deterministic;
  /// How exactly f32 operands are read by products, and by convolutions.
  MatmulPrecision precision;
  bool convolution_tf32;
  /// The call is one of a plan, which comes again and again: finding out how it is quickest may
  /// take some milliseconds.
  bool repeated = false;

  Context() noexcept {
    if (detail::kept_context) [[unlikely]] {
      *this = *detail::kept_context;
      return;
    }
    deterministic = modes().deterministic;
    library_deterministic = deterministic || cuda::cudnn_deterministic();
    precision = float32_matmul_precision();
    convolution_tf32 = float32_convolution_tf32();
  }
};

/// Gives a context to all calls that the thread makes meanwhile, whatever is asked for by then.
class ContextScope {
 public:
  explicit ContextScope(const Context& context) noexcept
      : outer_(std::exchange(detail::kept_context, &context)) {}
  ~ContextScope() { detail::kept_context = outer_; }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const Context* outer_;
};

}  // namespace arete::prim
