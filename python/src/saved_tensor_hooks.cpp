// Python functions that decide what is kept for backward.
#include "arete/core/saved_tensor_hooks.h"

#include "arete/autograd/save_on_cpu.h"
#include "bindings.h"
#include "caster.h"

namespace nb = nanobind;

namespace arete::python {

namespace {

/// A reference that C++ may drop on any thread.
class Held {
 public:
  explicit Held(nb::object o) : object_(o.release().ptr()) {}
  ~Held() {
    if (!Py_IsInitialized()) return;
    const WithGil gil;
    Py_DECREF(object_);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  nb::handle get() const { return object_; }

 private:
  PyObject* const object_;
};

class PackedByPython final : public PackedTensor {
 public:
  PackedByPython(nb::object value, std::shared_ptr<Held> unpack)
      : value_(std::move(value)), unpack_(std::move(unpack)) {}
  Tensor unpack() override {
    const WithGil gil;
    const nb::object t =
        nb::steal(checked(PyObject_CallOneArg(unpack_->get().ptr(), value_.get().ptr())));
    if (!is_tensor(t.ptr()))
      type_error(
          "Output of saved tensor unpack_hook expected to be a Tensor but got result of type %s",
          Py_TYPE(t.ptr())->tp_name);
    return tensor_of(t.ptr());
  }

 private:
  const Held value_;
  const std::shared_ptr<Held> unpack_;
};

class PythonHooks final : public SavedTensorHooks {
 public:
  PythonHooks(nb::object pack, nb::object unpack)
      : pack_(std::move(pack)), unpack_(std::make_shared<Held>(std::move(unpack))) {}
  IntrusivePtr<PackedTensor> pack(const Tensor& t) override {
    const WithGil gil;
    const nb::object argument = nb::steal(checked(wrap(t)));
    nb::object kept = nb::steal(checked(PyObject_CallOneArg(pack_.get().ptr(), argument.ptr())));
    return IntrusivePtr<PackedTensor>(new PackedByPython(std::move(kept), unpack_));
  }

 private:
  const Held pack_;
  const std::shared_ptr<Held> unpack_;
};

// The contexts that this thread is in.
thread_local std::vector<std::unique_ptr<SavedTensorHooksGuard>> entered;

void enter(std::shared_ptr<SavedTensorHooks> hooks) {
  entered.push_back(std::make_unique<SavedTensorHooksGuard>(std::move(hooks)));
}

}  // namespace

void bind_saved_tensor_hooks(nb::module_& m) {
  m.def("_enter_saved_tensors_hooks", [](nb::object pack, nb::object unpack) {
    enter(std::make_shared<PythonHooks>(std::move(pack), std::move(unpack)));
  });
  m.def("_enter_save_on_cpu",
        [](bool pin_memory) { enter(std::make_shared<autograd::SaveOnCpu>(pin_memory)); });
  m.def("_exit_saved_tensors_hooks", [] {
    if (!entered.empty()) entered.pop_back();
  });
}

}  // namespace arete::python
