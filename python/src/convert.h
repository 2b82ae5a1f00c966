// Between Python objects and the values of C++ interfaces.
#pragma once

#include <Python.h>
#include <atomic>

#include <optional>
#include <string>

#include "arete/core/device.h"
#include "arete/core/dtype.h"
#include "arete/core/generator.h"
#include "arete/core/modes.h"
#include "arete/core/scalar.h"
#include "arete/core/tensor.h"

namespace arete::python {

/// Thrown where a Python error is set already.
struct PythonError {};
/// Sets a TypeError and throws PythonError.
[[noreturn]] void type_error(const char* format, ...);
/// `o` if it is not null, else throws PythonError.
inline PyObject* checked(PyObject* o) {
  if (!o) throw PythonError{};
  return o;
}

/// bool(o).
inline bool truth(PyObject* o) {
  const int r = PyObject_IsTrue(o);
  if (r < 0) throw PythonError{};
  return r == 1;
}

/// The Python class of a kind of error.
PyObject* class_of(ErrorKind kind);
/// Makes Python's exception classes known: arete.Error and its subclasses (module `module`).
bool init_errors(PyObject* module);
/// Sets the Python error that belongs to the C++ exception being handled.
void set_python_error() noexcept;

/// Runs `f` and turns exceptions into Python errors; returns f's result or `failed`.
template <class R, class F>
R guarded(R failed, F&& f) noexcept {
  try {
    return f();
  } catch (...) {
    set_python_error();
    return failed;
  }
}
template <class F>
PyObject* guarded(F&& f) noexcept {
  return guarded(static_cast<PyObject*>(nullptr), std::forward<F>(f));
}

/// While a history of memory is recorded: keeps the calling thread's frames, which nobody can ask
/// for without the GIL, until they are forgotten (memory.cpp).
extern std::atomic<bool> remembers_frames;
void remember_frames() noexcept;
void forget_frames() noexcept;

/// While calls are put off: keeps the line that the calling thread is at for who asks without the
/// GIL, and gives the one of before (compile.cpp).
std::string remember_place();
void restore_place(std::string before) noexcept;

/// Releases the GIL while it lives.
class WithoutGil {
 public:
  WithoutGil() {
    if (modes().word & Modes::kPutOff) [[unlikely]] {
      place_before_ = remember_place();
      has_place_ = true;
    }
    if (remembers_frames.load(std::memory_order_relaxed)) [[unlikely]] {
      remember_frames();
      remembered_ = true;
    }
    state_ = PyEval_SaveThread();
  }
  ~WithoutGil() {
    PyEval_RestoreThread(state_);
    if (remembered_) forget_frames();
    if (has_place_) [[unlikely]]
      restore_place(std::move(place_before_));
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
  std::string place_before_;
  bool has_place_ = false;
  bool remembered_ = false;
};
/// Releases the GIL while it lives where a look at the values of a tensor may wait: for a device,
/// or for calls that are under way or put off, among them those of other processes, whose threads
/// here may want the GIL.
class WithoutGilToLook {
 public:
  explicit WithoutGilToLook(const Tensor& t) {
    if (!t.device().is_cpu() || modes().word & Modes::kPutOff || t.storage()->promiser() ||
        t.storage()->has_pending_copies())
      free_.emplace();
  }

 private:
  std::optional<WithoutGil> free_;
};
/// Holds the GIL while it lives.
class WithGil {
 public:
  WithGil() : state_(PyGILState_Ensure()) {}
  ~WithGil() { PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  PyGILState_STATE state_;
};

/// Owns a reference.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : o_(owned) {}
  static Ref borrow(PyObject* o) {
    Py_XINCREF(o);
    return Ref(o);
  }
  Ref(Ref&& r) noexcept : o_(std::exchange(r.o_, nullptr)) {}
  Ref& operator=(Ref r) noexcept {
    std::swap(o_, r.o_);
    return *this;
  }
  ~Ref() { Py_XDECREF(o_); }
  PyObject* get() const { return o_; }
  PyObject* release() { return std::exchange(o_, nullptr); }
  explicit operator bool() const { return o_ != nullptr; }

 private:
  PyObject* o_ = nullptr;
};

// ---- dtype, device, Size, Generator: small classes of their own
bool init_value_types(PyObject* module);
/// arete.float32 and so on; a new reference.
PyObject* wrap(DType t);
PyObject* wrap(Device d);
/// arete.Size; a new reference.
PyObject* wrap_size(IntList sizes);
bool is_size(PyObject* o);
/// A Python number.
PyObject* wrap(const Scalar& s);
bool is_dtype(PyObject* o);
/// A dtype, or one of the types float, int, bool, complex.
bool to_dtype(PyObject* o, DType& t);
/// A device, a text such as "cuda:1", or a number (of a GPU).
bool to_device(PyObject* o, Device& d);
bool is_device(PyObject* o);
/// Where tensors are made that are given no device: `with arete.device(...)` and
/// set_default_device() of this thread; none: in host memory.
extern constinit thread_local std::optional<Device> default_device;
/// The class Generator and the module's default_generator.
bool init_generator_type(PyObject* module);
Generator* to_generator(PyObject* o);

/// Python numbers (bool, int, float, complex, NumPy's scalars); false for anything else.
bool to_scalar(PyObject* o, Scalar& s);
/// Integers, what has __index__, and one-element integer tensors; no bool, no float.
bool to_int(PyObject* o, int64_t& v);
bool to_real(PyObject* o, double& v);
/// A tuple or list of integers.
bool to_ints(PyObject* o, Shape& v);
bool to_reals(PyObject* o, std::vector<double>& v);
/// A tuple or list of tensors.
bool to_tensors(PyObject* o, std::vector<Tensor>& v);
std::string to_text(PyObject* o);

}  // namespace arete::python
