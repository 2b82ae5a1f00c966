// Matching the arguments of a Python call with a signature.
#pragma once

#include <Python.h>

#include <cstddef>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "arete/ops/record.h"
#include "convert.h"
#include "operator_signature.h"

namespace arete::python {

/// Up to N objects in place, made one by one.
template <class T, size_t N>
class Pool {
 public:
  ~Pool() {
    while (count_ > 0) at(--count_)->~T();
  }
  template <class... A>
  T& add(A&&... a) {
    if (count_ == N) type_error("too many arguments of one kind");
    return *new (at(count_++)) T(std::forward<A>(a)...);
  }

 private:
  T* at(size_t i) { return std::launder(reinterpret_cast<T*>(space_ + i * sizeof(T))); }
  size_t count_ = 0;
  alignas(T) std::byte space_[N * sizeof(T)];
};

/// What converted arguments point at.
struct ArgStorage {
  Pool<Scalar, 8> scalars;
  Pool<Shape, 8> shapes;
  Pool<std::vector<double>, 4> reals;
  Pool<std::vector<Tensor>, 4> lists;
  Pool<Tensor, 2> tensors;  // made of numbers
};

/// Keyword arguments that belong to no record. All but `out` are those of records that make tensors
/// where a device is named.
struct Extras {
  PyObject* out = nullptr;  // of what is not in place
  bool requires_grad = false;
  bool pin_memory = false;
  PyObject* memory_format = nullptr;  // of records that make tensors and take one
  PyObject* layout = nullptr;         // of such, one that is not strided
};

/// Why an overload does not fit, in the words of PyTorch.
struct Mismatch {
  std::string text;
};

/// Matches a vectorcall of the operator `name` with one overload: fills `out`, as many arguments as
/// the record has, and `extras`. `out` points into `storage`, the overload and the objects given.
/// `strict`: a 0-d tensor is no number where another overload has a tensor. False with the reason
/// in `why`, or with a Python error set.
bool match_arguments(const Overload& o, bool strict, PyObject* name, bool in_place,
                     PyObject* const* args, size_t n, PyObject* kwnames, ArgStorage& storage,
                     ops::Arg* out, Extras& extras, Mismatch& why);

}  // namespace arete::python
