// What a call of a function does besides calling operators: see Note [Skipped functions] in
// skip.cpp.
#pragma once

#include <Python.h>

namespace arete {
class Tensor;
}

namespace arete::python {

/// Makes the step of an optimizer again.
class Stepper {
 public:
  virtual ~Stepper() = default;
  /// With the GIL, while calls are put off.
  virtual void step_again(PyObject* owner) = 0;
};

/// Hears of the thread's calls, of which nobody else tells.
class CallWatcher {
 public:
  virtual ~CallWatcher() = default;
  virtual void zero_grad(PyObject* params, bool set_to_none) noexcept = 0;
  /// `plain`: the history is freed, and all leaves get gradients.
  virtual void backward(const Tensor& root, bool plain) noexcept = 0;
  /// `plain`: no GradScaler has a part in it.
  /// `native`: whose `stepper` is, null if that is not known.
  virtual void begin_step(PyObject* owner, PyObject* native, Stepper& stepper,
                          bool plain) noexcept = 0;
  virtual void end_step() noexcept = 0;
  /// Null: nobody watches.
  static CallWatcher* of_thread() noexcept;
};

}  // namespace arete::python
