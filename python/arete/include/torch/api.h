// What extensions need of the Python package, which they cannot link with.
#pragma once

#include <Python.h>

#include "arete/core/device.h"
#include "arete/core/dtype.h"
#include "arete/core/scalar.h"
#include "arete/core/tensor.h"

namespace torch::python {

/// What arete._C gives to extensions, in a capsule of the name of `kName`.
struct Api {
  static constexpr const char* kName = "arete._C._extension_api";
  static constexpr int kVersion = 1;
  int version;
  const arete::Tensor* (*tensor_of)(PyObject*);  ///< null for what is no tensor
  PyObject* (*wrap)(const arete::Tensor&);       ///< a new reference
  bool (*to_dtype)(PyObject*, arete::DType&);
  PyObject* (*wrap_dtype)(arete::DType);
  bool (*to_device)(PyObject*, arete::Device&);
  bool (*to_scalar)(PyObject*, arete::Scalar&);
  void (*set_error)() noexcept;  ///< the Python error of the C++ exception being handled
};

}  // namespace torch::python
