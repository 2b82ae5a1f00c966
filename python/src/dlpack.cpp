// DLPack's capsules.
#include "arete/ops/dlpack.h"

#include "arete/core/modes.h"
#include "convert.h"
#include "tensor_data.h"

namespace arete::python {

namespace {

template <class Managed>
PyObject* capsule_of(Managed* m, const char* name) {
  return PyCapsule_New(m, name, [](PyObject* capsule) {
    // Consumers rename the capsules they take over.
    const char* own = std::is_same_v<Managed, DLManagedTensor> ? "dltensor" : "dltensor_versioned";
    if (PyCapsule_IsValid(capsule, own))
      release_dlpack(static_cast<Managed*>(PyCapsule_GetPointer(capsule, own)));
  });
}

template <class Managed>
Tensor take_over(PyObject* capsule, const char* name, const char* used) {
  auto* m = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  Tensor t = arete::from_dlpack(m, [](Managed* managed) {
    if (!Py_IsInitialized()) return;
    const WithGil gil;  // deleters of Python's libraries may need it
    release_dlpack(managed);
  });
  PyCapsule_SetName(capsule, used);
  return t;
}

}  // namespace

PyObject* to_dlpack(const Tensor& t, bool versioned, bool copied) {
  if (is_grad_enabled() && t.requires_grad()) {
    PyErr_SetString(PyExc_BufferError,
                    "Can't export tensors that require gradient, use tensor.detach()");
    throw PythonError{};
  }
  return versioned ? capsule_of(arete::to_dlpack_versioned(t, copied), "dltensor_versioned")
                   : capsule_of(arete::to_dlpack(t), "dltensor");
}

Tensor from_dlpack(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
    return take_over<DLManagedTensorVersioned>(capsule, "dltensor_versioned",
                                               "used_dltensor_versioned");
  if (PyCapsule_IsValid(capsule, "dltensor"))
    return take_over<DLManagedTensor>(capsule, "dltensor", "used_dltensor");
  type_error("from_dlpack: expected a DLPack capsule that was not used before, not %s",
             Py_TYPE(capsule)->tp_name);
}

}  // namespace arete::python
