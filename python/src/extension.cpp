// What extensions of programs (arete.utils.cpp_extension) get from the package.
#include "../arete/include/torch/api.h"

#include "bindings.h"
#include "convert.h"
#include "tensor_object.h"

namespace nb = nanobind;

namespace arete::python {

void bind_extension(nb::module_& m) {
  static const torch::python::Api api{
      torch::python::Api::kVersion,
      [](PyObject* o) -> const Tensor* { return is_tensor(o) ? &tensor_of(o) : nullptr; },
      [](const Tensor& t) { return wrap(t); },
      to_dtype,
      [](DType t) { return wrap(t); },
      to_device,
      to_scalar,
      set_python_error};
  m.attr("_extension_api") = nb::capsule(&api, torch::python::Api::kName, [](void*) noexcept {});
}

}  // namespace arete::python
