// How nanobind passes tensors, dtypes and devices.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "convert.h"
#include "tensor_object.h"

namespace arete::python {

/// Tensors, undefined ones where Python has None.
struct TensorsOrNone : std::vector<Tensor> {
  using vector::vector;
};

}  // namespace arete::python

namespace nanobind::detail {

template <>
struct type_caster<arete::Tensor> {
  NB_TYPE_CASTER(arete::Tensor, const_name("arete.Tensor"))
  bool from_python(handle o, uint8_t, cleanup_list*) noexcept {
    if (o.is_none()) {
      value = {};
      return true;
    }
    if (!arete::python::is_tensor(o.ptr())) return false;
    value = arete::python::tensor_of(o.ptr());
    return true;
  }
  static handle from_cpp(const arete::Tensor& t, rv_policy, cleanup_list*) noexcept {
    return arete::python::wrap(t);
  }
};

// A list without None, unlike an argument: who looks into each tensor rarely asks first.
template <>
struct type_caster<std::vector<arete::Tensor>>
    : list_caster<std::vector<arete::Tensor>, arete::Tensor> {
  bool from_python(handle o, uint8_t flags, cleanup_list* cleanup) noexcept {
    return list_caster::from_python(o, flags, cleanup) &&
           std::ranges::all_of(value, &arete::Tensor::defined);
  }
};

template <>
struct type_caster<arete::python::TensorsOrNone>
    : list_caster<arete::python::TensorsOrNone, arete::Tensor> {};

template <>
struct type_caster<arete::DType> {
  NB_TYPE_CASTER(arete::DType, const_name("arete.dtype"))
  bool from_python(handle o, uint8_t, cleanup_list*) noexcept {
    return arete::python::to_dtype(o.ptr(), value);
  }
  static handle from_cpp(arete::DType t, rv_policy, cleanup_list*) noexcept {
    return arete::python::wrap(t);
  }
};

template <>
struct type_caster<arete::Device> {
  NB_TYPE_CASTER(arete::Device, const_name("arete.device"))
  bool from_python(handle o, uint8_t, cleanup_list*) noexcept {
    try {
      return arete::python::to_device(o.ptr(), value);
    } catch (...) {
      PyErr_Clear();
      return false;
    }
  }
  static handle from_cpp(arete::Device d, rv_policy, cleanup_list*) noexcept {
    return arete::python::wrap(d);
  }
};

template <>
struct type_caster<arete::Scalar> {
  NB_TYPE_CASTER(arete::Scalar, const_name("float"))
  bool from_python(handle o, uint8_t, cleanup_list*) noexcept {
    try {
      return arete::python::to_scalar(o.ptr(), value);
    } catch (...) {
      PyErr_Clear();
      return false;
    }
  }
  static handle from_cpp(const arete::Scalar& s, rv_policy, cleanup_list*) noexcept {
    return arete::python::wrap(s);
  }
};

}  // namespace nanobind::detail
