// What the handles of arete/c_api.h are, and how its functions fail.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arete/c_api.h"
#include "arete/core/tensor.h"

struct arete_tensor {
  arete::Tensor value;
};

namespace arete::c_api {

/// The texts that a thread was given.
struct Texts {
  std::string error, reason;
};
Texts& texts();

/// To be called where an exception was caught: keeps its text, and gives its status.
arete_status failed() noexcept;

/// Runs what a function does; no exception leaves it.
template <class F>
arete_status guarded(F&& f) noexcept {
  try {
    std::forward<F>(f)();
    return ARETE_OK;
  } catch (...) {
    return failed();
  }
}

/// ValueError, naming the argument, for a null pointer.
template <class T>
T& given(T* p, const char* name) {
  ARETE_CHECK(p, ValueError("", std::string("'") + name + "' is null"));
  return *p;
}
/// The same for a list, whose address may be null where it is empty.
template <class T>
std::span<T> list_of(T* data, size_t count, const char* name) {
  if (count) given(data, name);
  return {data, count};
}
inline const Tensor& tensor_of(const arete_tensor* t, const char* name = "tensor") {
  return given(t, name).value;
}
/// The tensors of a list of handles; null is an undefined one where `gaps`.
std::vector<Tensor> tensors_of(const arete_tensor* const* handles, size_t count, const char* name,
                               bool gaps = false);
/// A device as users write it; null: `otherwise`.
Device device_of(const char* text, Device otherwise = kCPU);
/// TypeError for what is no dtype.
DType dtype_of_code(int64_t code);

/// Null for an undefined tensor.
arete_tensor* handle_of(Tensor t);
/// Gives results out, into `*count` places: all, or ValueError.
void give(std::span<const Tensor> tensors, arete_tensor** results, size_t* count);

}  // namespace arete::c_api
