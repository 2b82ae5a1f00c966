// PyTorch's C++ names for extensions, over Arete: tensors, options, checks, dispatch by dtype.
//
// torch::Tensor is arete::Tensor with the methods under the names that PyTorch's users write
// (data_ptr<T>(), scalar_type(), device().type()); what a method or function gives is one, too. It
// has no members of its own, so the one converts to the other.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "arete/base/error.h"
#include "arete/core/complex.h"
#include "arete/core/half.h"
#include "arete/core/modes.h"
#include "arete/core/scalar.h"
#include "arete/core/tensor.h"
#include "arete/ops/activation.h"
#include "arete/ops/aliases.h"
#include "arete/ops/conv.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/loss.h"
#include "arete/ops/matmul.h"
#include "arete/ops/nn.h"
#include "arete/ops/norm.h"
#include "arete/ops/numeric.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/pool.h"
#include "arete/ops/random.h"
#include "arete/ops/reduce.h"
#include "arete/ops/search.h"
#include "arete/ops/shape.h"
#include "arete/ops/softmax.h"
#include "arete/ops/sort.h"

namespace torch {

using arete::MemoryFormat;
using arete::Scalar;
using Half = arete::Half;
using BFloat16 = arete::BFloat16;
using IntArrayRef = arete::IntList;
template <class T>
using optional = std::optional<T>;
inline constexpr std::nullopt_t nullopt = std::nullopt;
using NoGradGuard = arete::NoGradGuard;
using AutoGradMode = arete::EnableGradGuard;

// ---- dtypes

/// arete::DType under PyTorch's names.
struct ScalarType {
  arete::DType value = arete::kFloat32;
  constexpr ScalarType() = default;
  constexpr ScalarType(arete::DType t) : value(t) {}
  constexpr operator arete::DType() const { return value; }
  std::string_view name() const { return arete::name_of(value); }
  size_t itemsize() const { return arete::size_of(value); }
  static const ScalarType Byte, Char, Short, Int, Long, Half, Float, Double, ComplexFloat,
      ComplexDouble, Bool, BFloat16;
};
inline constexpr ScalarType ScalarType::Byte = arete::kUInt8;
inline constexpr ScalarType ScalarType::Char = arete::kInt8;
inline constexpr ScalarType ScalarType::Short = arete::kInt16;
inline constexpr ScalarType ScalarType::Int = arete::kInt32;
inline constexpr ScalarType ScalarType::Long = arete::kInt64;
inline constexpr ScalarType ScalarType::Half = arete::kFloat16;
inline constexpr ScalarType ScalarType::Float = arete::kFloat32;
inline constexpr ScalarType ScalarType::Double = arete::kFloat64;
inline constexpr ScalarType ScalarType::ComplexFloat = arete::kComplex64;
inline constexpr ScalarType ScalarType::ComplexDouble = arete::kComplex128;
inline constexpr ScalarType ScalarType::Bool = arete::kBool;
inline constexpr ScalarType ScalarType::BFloat16 = arete::kBFloat16;
using Dtype = ScalarType;

inline constexpr ScalarType kByte = ScalarType::Byte, kUInt8 = ScalarType::Byte,
                            kChar = ScalarType::Char, kInt8 = ScalarType::Char,
                            kShort = ScalarType::Short, kInt16 = ScalarType::Short,
                            kInt = ScalarType::Int, kInt32 = ScalarType::Int,
                            kLong = ScalarType::Long, kInt64 = ScalarType::Long,
                            kHalf = ScalarType::Half, kFloat16 = ScalarType::Half,
                            kFloat = ScalarType::Float, kFloat32 = ScalarType::Float,
                            kDouble = ScalarType::Double, kFloat64 = ScalarType::Double,
                            kComplexFloat = ScalarType::ComplexFloat,
                            kComplexDouble = ScalarType::ComplexDouble, kBool = ScalarType::Bool,
                            kBFloat16 = ScalarType::BFloat16;

// ---- devices and options

enum class DeviceType : int8_t { CPU, CUDA, Meta };
inline constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA,
                            kMeta = DeviceType::Meta;

class Device {
 public:
  Device(DeviceType type, int index = -1) : type_(type), index_(index) {}
  Device(const std::string& text) : Device(arete::Device(std::string_view(text))) {}
  Device(const char* text) : Device(std::string(text)) {}
  Device(arete::Device d)
      : type_(d.is_cuda()   ? kCUDA
              : d.is_meta() ? kMeta
                            : kCPU),
        index_(d.is_cuda() ? d.index : -1) {}
  operator arete::Device() const {
    if (type_ == kCUDA) return arete::Device(arete::DeviceType::cuda, index_);
    return type_ == kMeta ? arete::kMeta : arete::kCPU;
  }
  DeviceType type() const { return type_; }
  int index() const { return index_; }
  bool has_index() const { return index_ >= 0; }
  bool is_cpu() const { return type_ == kCPU; }
  bool is_cuda() const { return type_ == kCUDA; }
  std::string str() const { return arete::Device(*this).to_string(); }
  bool operator==(const Device&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Device& d) { return out << d.str(); }

 private:
  DeviceType type_;
  int index_;
};

class TensorOptions : public arete::TensorOptions {
 public:
  TensorOptions() = default;
  TensorOptions(const arete::TensorOptions& o) : arete::TensorOptions(o) {}
  TensorOptions(ScalarType t) : arete::TensorOptions(arete::DType(t)) {}
  TensorOptions(arete::DType t) : arete::TensorOptions(t) {}
  TensorOptions(const Device& d) : arete::TensorOptions(arete::Device(d)) {}
  TensorOptions(DeviceType t) : TensorOptions(Device(t)) {}
  TensorOptions dtype(ScalarType t) const { return arete::TensorOptions::dtype(t); }
  ScalarType dtype() const { return dtype_.value_or(arete::default_dtype()); }
  TensorOptions device(const Device& d) const { return arete::TensorOptions::device(d); }
  TensorOptions device(DeviceType t, int index = -1) const { return device(Device(t, index)); }
  Device device() const { return device_; }
  TensorOptions requires_grad(bool on = true) const {
    return arete::TensorOptions::requires_grad(on);
  }
};
inline TensorOptions dtype(ScalarType t) { return TensorOptions(t); }
inline TensorOptions device(const Device& d) { return TensorOptions(d); }
inline TensorOptions requires_grad(bool on = true) { return TensorOptions().requires_grad(on); }

// ---- elements in host memory

/// What TensorAccessor shows of one dimension: a number, or the dimensions that follow.
template <class T, size_t N>
class TensorAccessor {
 public:
  TensorAccessor(T* data, const int64_t* sizes, const int64_t* strides)
      : data_(data), sizes_(sizes), strides_(strides) {}
  decltype(auto) operator[](int64_t i) const {
    if constexpr (N == 1)
      return (data_[i * strides_[0]]);
    else
      return TensorAccessor<T, N - 1>(data_ + i * strides_[0], sizes_ + 1, strides_ + 1);
  }
  int64_t size(int64_t dim) const { return sizes_[dim]; }
  int64_t stride(int64_t dim) const { return strides_[dim]; }
  T* data() const { return data_; }

 private:
  T* data_;
  const int64_t *sizes_, *strides_;
};

// ---- tensors

class Tensor;

// What functions of Arete give, as PyTorch's types.
Tensor as_torch(const arete::Tensor& t);
Tensor as_torch(arete::Tensor&& t);
inline std::vector<Tensor> as_torch(const std::vector<arete::Tensor>& all);
template <class... T>
auto as_torch(const std::tuple<T...>& all) {
  return std::apply([](const auto&... t) { return std::make_tuple(as_torch(t)...); }, all);
}
template <class T>
requires(!std::is_convertible_v<T, arete::Tensor>) T as_torch(T other) { return other; }

// Methods by name. What begins with a list of integers is there once more, since braces have no
// type.
#define ARETE_TORCH_METHOD(name)                                                           \
  template <class... A>                                                                    \
  auto name(A&&... a) const {                                                              \
    return as_torch(static_cast<const arete::Tensor&>(*this).name(std::forward<A>(a)...)); \
  }
#define ARETE_TORCH_LIST_METHOD(name)                                                            \
  ARETE_TORCH_METHOD(name)                                                                       \
  template <class... A>                                                                          \
  auto name(IntArrayRef list, A&&... a) const {                                                  \
    return as_torch(static_cast<const arete::Tensor&>(*this).name(list, std::forward<A>(a)...)); \
  }
#define ARETE_TORCH_IN_PLACE(name)              \
  template <class... A>                         \
  Tensor& name(A&&... a) {                      \
    arete::Tensor::name(std::forward<A>(a)...); \
    return *this;                               \
  }
#define ARETE_TORCH_FUNCTION(name)                       \
  template <class... A>                                  \
  auto name(A&&... a) {                                  \
    return as_torch(arete::name(std::forward<A>(a)...)); \
  }
#define ARETE_TORCH_LIST_FUNCTION(name)                           \
  ARETE_TORCH_FUNCTION(name)                                      \
  template <class... A>                                           \
  auto name(const arete::Tensor& t, IntArrayRef list, A&&... a) { \
    return as_torch(arete::name(t, list, std::forward<A>(a)...)); \
  }
// clang-format off
#define ARETE_TORCH_UNARY(X) \
  X(neg) X(abs) X(sign) X(floor) X(ceil) X(trunc) X(round) X(frac) X(sqrt) X(rsqrt) X(square) X(reciprocal) X(exp) X(exp2) X(expm1) \
  X(log) X(log2) X(log10) X(log1p) X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(tanh) X(erf) X(erfc) X(lgamma) \
  X(digamma) X(sigmoid) X(relu) X(logical_not) X(bitwise_not) X(isnan) X(isinf) X(isfinite)
#define ARETE_TORCH_BINARY(X) \
  X(add) X(sub) X(mul) X(div) X(pow) X(floor_divide) X(fmod) X(remainder) X(atan2) X(eq) X(ne) X(lt) X(le) X(gt) X(ge) X(logical_and) \
  X(logical_or) X(bitwise_and) X(bitwise_or) X(bitwise_xor) X(maximum) X(minimum) X(clamp) X(lerp) X(addcmul) X(addcdiv)
#define ARETE_TORCH_REDUCED(X) X(sum) X(mean) X(var) X(std) X(amin) X(amax) X(logsumexp) X(any) X(all) X(count_nonzero)
#define ARETE_TORCH_SHAPED(X) \
  X(view) X(reshape) X(permute) X(squeeze) X(expand) X(broadcast_to) X(repeat) X(tile) X(roll) X(flip) X(split)
#define ARETE_TORCH_OTHER(X) \
  X(prod) X(argmin) X(argmax) X(cumsum) X(cumprod) X(mm) X(bmm) X(matmul) X(mv) X(dot) X(outer) X(addmm) X(baddbmm) \
  X(transpose) X(t) X(unsqueeze) X(flatten) X(unflatten) X(narrow) X(select) X(slice) X(as_strided) X(diagonal) X(chunk) X(unbind) \
  X(repeat_interleave) X(tril) X(triu) X(gather) X(scatter) X(scatter_add) X(index_select) X(index_add) X(masked_fill) \
  X(masked_select) X(nonzero) X(sort) X(argsort) X(topk) X(softmax) X(log_softmax) X(min) X(max) X(norm)
// clang-format on

class Tensor : public arete::Tensor {
 public:
  Tensor() = default;
  Tensor(const arete::Tensor& t) : arete::Tensor(t) {}
  Tensor(arete::Tensor&& t) noexcept : arete::Tensor(std::move(t)) {}

  ScalarType dtype() const { return arete::Tensor::dtype(); }
  ScalarType scalar_type() const { return dtype(); }
  Device device() const { return arete::Tensor::device(); }
  int64_t get_device() const { return is_cuda() ? device().index() : -1; }
  bool is_cpu() const { return device().is_cpu(); }
  TensorOptions options() const { return arete::Tensor::options(); }
  int64_t ndimension() const { return dim(); }
  size_t itemsize() const { return element_size(); }
  IntArrayRef sizes() const { return arete::Tensor::sizes(); }
  void* data_ptr() const { return arete::Tensor::data_ptr(); }
  /// Null for what has no elements. RuntimeError for another dtype.
  template <class T>
  T* data_ptr() const {
    using Plain = std::remove_const_t<T>;
    if (arete::dtype_of<Plain> != arete::Tensor::dtype())
      throw arete::TypeError("data_ptr", "expected scalar type " +
                                             std::string(arete::name_of(arete::dtype_of<Plain>)) +
                                             " but found " +
                                             std::string(arete::name_of(arete::Tensor::dtype())));
    return static_cast<T*>(arete::Tensor::data_ptr());
  }
  template <class T>
  T* mutable_data_ptr() const {
    return data_ptr<T>();
  }
  template <class T>
  const T* const_data_ptr() const {
    return data_ptr<T>();
  }
  /// Elements of host memory by their indices. The tensor must outlive it.
  template <class T, size_t N>
  TensorAccessor<T, N> accessor() const {
    if (dim() != int64_t(N))
      throw arete::ValueError("accessor", "TensorAccessor expected " + std::to_string(N) +
                                              " dims but tensor has " + std::to_string(dim()));
    return {arete::Tensor::data<std::remove_const_t<T>>(), arete::Tensor::sizes().data(),
            strides().data()};
  }
  Scalar item() const { return arete::Tensor::item(); }
  template <class T>
  T item() const {
    return arete::Tensor::item<T>();
  }

  Tensor contiguous() const { return arete::Tensor::contiguous(); }
  Tensor clone() const { return arete::Tensor::clone(); }
  Tensor detach() const { return arete::Tensor::detach(); }
  Tensor cpu() const { return arete::Tensor::cpu(); }
  Tensor cuda() const { return arete::Tensor::cuda(); }
  Tensor to(ScalarType t, bool /*non_blocking*/ = false, bool copy = false) const {
    return arete::Tensor::to(arete::DType(t), copy);
  }
  Tensor to(const Device& d, bool non_blocking = false, bool copy = false) const {
    return arete::Tensor::to(arete::Device(d), non_blocking, copy);
  }
  Tensor to(const Device& d, ScalarType t, bool non_blocking = false, bool copy = false) const {
    return arete::Tensor::to(arete::Device(d), arete::DType(t), non_blocking, copy);
  }
  Tensor to(const TensorOptions& o) const {
    return arete::Tensor::to(static_cast<const arete::TensorOptions&>(o));
  }
  Tensor type_as(const arete::Tensor& o) const { return arete::Tensor::to(o.device(), o.dtype()); }
  Tensor toType(ScalarType t) const { return to(t); }
  Tensor view_as(const arete::Tensor& o) const { return arete::Tensor::view_as(o); }
  Tensor expand_as(const arete::Tensor& o) const { return arete::Tensor::expand_as(o); }
  Tensor grad() const { return arete::Tensor::grad(); }
  Tensor operator-() const { return arete::Tensor::operator-(); }
  Tensor operator[](int64_t i) const { return arete::Tensor::select(0, i); }
  Tensor& copy_(const arete::Tensor& src, bool non_blocking = false) {
    arete::Tensor::copy_(src, non_blocking);
    return *this;
  }
  ARETE_TORCH_UNARY(ARETE_TORCH_METHOD)
  ARETE_TORCH_BINARY(ARETE_TORCH_METHOD)
  ARETE_TORCH_REDUCED(ARETE_TORCH_LIST_METHOD)
  ARETE_TORCH_SHAPED(ARETE_TORCH_LIST_METHOD)
  ARETE_TORCH_OTHER(ARETE_TORCH_METHOD)
  // clang-format off: it takes lines without a semicolon for one expression.
  ARETE_TORCH_IN_PLACE(fill_)
  ARETE_TORCH_IN_PLACE(zero_)
  ARETE_TORCH_IN_PLACE(add_)
  ARETE_TORCH_IN_PLACE(sub_)
  ARETE_TORCH_IN_PLACE(mul_)
  ARETE_TORCH_IN_PLACE(div_)
  ARETE_TORCH_IN_PLACE(clamp_)
  ARETE_TORCH_IN_PLACE(relu_)
  ARETE_TORCH_IN_PLACE(sigmoid_)
  ARETE_TORCH_IN_PLACE(tanh_)
  ARETE_TORCH_IN_PLACE(exp_)
  ARETE_TORCH_IN_PLACE(requires_grad_)
  ARETE_TORCH_IN_PLACE(masked_fill_)
  ARETE_TORCH_IN_PLACE(index_add_)
  ARETE_TORCH_IN_PLACE(scatter_add_)
  ARETE_TORCH_IN_PLACE(uniform_)
  ARETE_TORCH_IN_PLACE(normal_)
  // clang-format on
};

using TensorList = std::vector<Tensor>;
inline Tensor as_torch(const arete::Tensor& t) { return t; }
inline Tensor as_torch(arete::Tensor&& t) { return std::move(t); }
inline std::vector<Tensor> as_torch(const std::vector<arete::Tensor>& all) {
  return {all.begin(), all.end()};
}

/// Whether two lists of sizes are the same.
inline bool equal_sizes(IntArrayRef a, IntArrayRef b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

// clang-format off: it takes lines without a semicolon for one expression.
// ---- functions

ARETE_TORCH_UNARY(ARETE_TORCH_FUNCTION)
ARETE_TORCH_BINARY(ARETE_TORCH_FUNCTION)
ARETE_TORCH_REDUCED(ARETE_TORCH_LIST_FUNCTION)
ARETE_TORCH_FUNCTION(cumsum)
ARETE_TORCH_FUNCTION(mm)
ARETE_TORCH_FUNCTION(bmm)
ARETE_TORCH_FUNCTION(matmul)
ARETE_TORCH_FUNCTION(dot)
ARETE_TORCH_FUNCTION(addmm)
ARETE_TORCH_FUNCTION(baddbmm)
ARETE_TORCH_FUNCTION(linear)
ARETE_TORCH_FUNCTION(transpose)
ARETE_TORCH_FUNCTION(elu)
ARETE_TORCH_FUNCTION(gelu)
ARETE_TORCH_FUNCTION(silu)
ARETE_TORCH_FUNCTION(leaky_relu)
ARETE_TORCH_FUNCTION(softplus)
ARETE_TORCH_FUNCTION(softmax)
ARETE_TORCH_FUNCTION(log_softmax)
ARETE_TORCH_FUNCTION(dropout)
ARETE_TORCH_FUNCTION(layer_norm)
ARETE_TORCH_FUNCTION(conv1d)
ARETE_TORCH_FUNCTION(conv2d)
ARETE_TORCH_FUNCTION(embedding)
ARETE_TORCH_FUNCTION(gather)
ARETE_TORCH_FUNCTION(index_select)
ARETE_TORCH_FUNCTION(masked_select)
ARETE_TORCH_FUNCTION(nonzero)
ARETE_TORCH_FUNCTION(sort)
ARETE_TORCH_FUNCTION(topk)
ARETE_TORCH_FUNCTION(argmax)
ARETE_TORCH_FUNCTION(argmin)
ARETE_TORCH_FUNCTION(chunk)
ARETE_TORCH_FUNCTION(unbind)
ARETE_TORCH_FUNCTION(where)
ARETE_TORCH_FUNCTION(max)
ARETE_TORCH_FUNCTION(min)
ARETE_TORCH_FUNCTION(prod)
ARETE_TORCH_FUNCTION(arange)
ARETE_TORCH_FUNCTION(eye)
ARETE_TORCH_FUNCTION(linspace)
ARETE_TORCH_FUNCTION(randperm)
inline Tensor cat(const std::vector<Tensor>& all, int64_t dim = 0) {
  return arete::cat(std::vector<arete::Tensor>(all.begin(), all.end()), dim);
}
inline Tensor stack(const std::vector<Tensor>& all, int64_t dim = 0) {
  return arete::stack(std::vector<arete::Tensor>(all.begin(), all.end()), dim);
}
inline Tensor empty(IntArrayRef sizes, const TensorOptions& o = {}) {
  return arete::empty(sizes, o);
}
inline Tensor zeros(IntArrayRef sizes, const TensorOptions& o = {}) {
  return arete::zeros(sizes, o);
}
inline Tensor ones(IntArrayRef sizes, const TensorOptions& o = {}) { return arete::ones(sizes, o); }
inline Tensor full(IntArrayRef sizes, Scalar value, const TensorOptions& o = {}) {
  return arete::full(sizes, value, o);
}
inline Tensor rand(IntArrayRef sizes, const TensorOptions& o = {}) { return arete::rand(sizes, o); }
inline Tensor randn(IntArrayRef sizes, const TensorOptions& o = {}) {
  return arete::randn(sizes, o);
}
inline Tensor empty(int64_t size, const TensorOptions& o = {}) {
  return empty(IntArrayRef(&size, 1), o);
}
inline Tensor zeros(int64_t size, const TensorOptions& o = {}) {
  return zeros(IntArrayRef(&size, 1), o);
}
inline Tensor ones(int64_t size, const TensorOptions& o = {}) {
  return ones(IntArrayRef(&size, 1), o);
}
inline Tensor from_blob(void* data, IntArrayRef sizes, const TensorOptions& o = kFloat) {
  return arete::from_blob(data, sizes, o);
}
template <class T>
Tensor tensor(const std::vector<T>& values, const TensorOptions& o = {}) {
  return arete::tensor(values, o);
}
template <class T>
Tensor tensor(std::initializer_list<T> values, const TensorOptions& o = {}) {
  return arete::tensor(std::vector<T>(values), o);
}
inline Tensor empty_like(const Tensor& t) { return arete::empty_like(t); }
inline Tensor zeros_like(const Tensor& t) { return arete::zeros_like(t); }
inline Tensor ones_like(const Tensor& t) { return arete::ones_like(t); }
inline Tensor full_like(const Tensor& t, Scalar value) { return arete::full_like(t, value); }
inline Tensor empty_like(const Tensor& t, const TensorOptions& o) {
  return arete::empty_like(t, o.dtype_, o.device_);
}
inline Tensor zeros_like(const Tensor& t, const TensorOptions& o) {
  return arete::zeros_like(t, o.dtype_, o.device_);
}
inline Tensor ones_like(const Tensor& t, const TensorOptions& o) {
  return arete::ones_like(t, o.dtype_, o.device_);
}

#define ARETE_TORCH_OPERATOR(sign)                                                         \
  inline Tensor operator sign(const Tensor& a, const Tensor& b) {                          \
    return static_cast<const arete::Tensor&>(a) sign static_cast<const arete::Tensor&>(b); \
  }                                                                                        \
  inline Tensor operator sign(const Tensor& a, Scalar b) {                                 \
    return static_cast<const arete::Tensor&>(a) sign b;                                    \
  }                                                                                        \
  inline Tensor operator sign(Scalar a, const Tensor& b) {                                 \
    return a sign static_cast<const arete::Tensor&>(b);                                    \
  }
ARETE_TORCH_OPERATOR(+)
ARETE_TORCH_OPERATOR(-)
ARETE_TORCH_OPERATOR(*)
ARETE_TORCH_OPERATOR(/)
#define ARETE_TORCH_COMPARISON(sign, name)                                                    \
  inline Tensor operator sign(const Tensor& a, const Tensor& b) { return arete::name(a, b); } \
  inline Tensor operator sign(const Tensor& a, Scalar b) { return arete::name(a, b); }
ARETE_TORCH_COMPARISON(==, eq)
ARETE_TORCH_COMPARISON(!=, ne)
ARETE_TORCH_COMPARISON(<, lt)
ARETE_TORCH_COMPARISON(<=, le)
ARETE_TORCH_COMPARISON(>, gt)
ARETE_TORCH_COMPARISON(>=, ge)
#undef ARETE_TORCH_METHOD
#undef ARETE_TORCH_LIST_METHOD
#undef ARETE_TORCH_IN_PLACE
#undef ARETE_TORCH_FUNCTION
#undef ARETE_TORCH_LIST_FUNCTION
#undef ARETE_TORCH_UNARY
#undef ARETE_TORCH_BINARY
#undef ARETE_TORCH_REDUCED
#undef ARETE_TORCH_SHAPED
#undef ARETE_TORCH_OTHER
#undef ARETE_TORCH_OPERATOR
#undef ARETE_TORCH_COMPARISON
// clang-format on

// ---- checks

template <class... T>
std::string str(const T&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}
[[noreturn]] inline void check_failed(const std::string& text) { throw std::runtime_error(text); }
template <class... T>
[[noreturn]] void check_failed_with(const char* condition, const T&... parts) {
  if constexpr (sizeof...(T) == 0)
    check_failed(std::string("Expected ") + condition + " to be true, but got false.");
  else
    check_failed(str(parts...));
}

}  // namespace torch

namespace arete {
/// Sizes are compared as PyTorch's are.
inline bool operator==(const IntList& a, const IntList& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}
inline std::ostream& operator<<(std::ostream& out, const IntList& list) {
  out << '[';
  for (size_t i = 0; i < list.size(); ++i) out << (i ? ", " : "") << list[i];
  return out << ']';
}
inline std::ostream& operator<<(std::ostream& out, const Tensor& t) { return out << t.to_string(); }
}  // namespace arete

namespace at = torch;
namespace c10 = torch;

#define TORCH_CHECK(condition, ...)                                                      \
  do {                                                                                   \
    if (!(condition)) ::torch::check_failed_with(#condition __VA_OPT__(, ) __VA_ARGS__); \
  } while (false)
#define TORCH_INTERNAL_ASSERT(condition, ...) TORCH_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#define AT_ASSERTM(condition, ...) TORCH_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#define AT_ASSERT(condition) TORCH_CHECK(condition)
#define AT_ERROR(...) ::torch::check_failed(::torch::str(__VA_ARGS__))

// ---- code for the dtype of a tensor: a lambda in which `scalar_t` is its C++ type

#define AT_DISPATCH_CASE(enum_type, ...)                  \
  case ::arete::DType(enum_type): {                       \
    using scalar_t = ::torch::detail::CppType<enum_type>; \
    return __VA_ARGS__();                                 \
  }
#define AT_DISPATCH_SWITCH(type, what, ...)                                         \
  [&] {                                                                             \
    switch (::arete::DType(type)) {                                                 \
      __VA_ARGS__                                                                   \
      default:                                                                      \
        ::torch::check_failed(::torch::str('"', what, "\" not implemented for '",   \
                                           ::torch::ScalarType(type).name(), "'")); \
    }                                                                               \
  }()
#define ARETE_DISPATCH_FLOATS(...)                           \
  AT_DISPATCH_CASE(::torch::ScalarType::Double, __VA_ARGS__) \
  AT_DISPATCH_CASE(::torch::ScalarType::Float, __VA_ARGS__)
#define ARETE_DISPATCH_INTEGERS(...)                       \
  AT_DISPATCH_CASE(::torch::ScalarType::Byte, __VA_ARGS__) \
  AT_DISPATCH_CASE(::torch::ScalarType::Char, __VA_ARGS__) \
  AT_DISPATCH_CASE(::torch::ScalarType::Int, __VA_ARGS__)  \
  AT_DISPATCH_CASE(::torch::ScalarType::Long, __VA_ARGS__) \
  AT_DISPATCH_CASE(::torch::ScalarType::Short, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES(type, name, ...) \
  AT_DISPATCH_SWITCH(type, name, ARETE_DISPATCH_FLOATS(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(type, name, ...) \
  AT_DISPATCH_FLOATING_TYPES_AND(::torch::ScalarType::Half, type, name, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES_AND(more, type, name, ...) \
  AT_DISPATCH_SWITCH(type, name,                              \
                     ARETE_DISPATCH_FLOATS(__VA_ARGS__) AT_DISPATCH_CASE(more, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND2(more, again, type, name, ...)                       \
  AT_DISPATCH_SWITCH(type, name,                                                            \
                     ARETE_DISPATCH_FLOATS(__VA_ARGS__) AT_DISPATCH_CASE(more, __VA_ARGS__) \
                         AT_DISPATCH_CASE(again, __VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES(type, name, ...) \
  AT_DISPATCH_SWITCH(type, name, ARETE_DISPATCH_INTEGERS(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES(type, name, ...) \
  AT_DISPATCH_SWITCH(type, name,               \
                     ARETE_DISPATCH_FLOATS(__VA_ARGS__) ARETE_DISPATCH_INTEGERS(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND(more, type, name, ...)                                     \
  AT_DISPATCH_SWITCH(type, name,                                                             \
                     ARETE_DISPATCH_FLOATS(__VA_ARGS__) ARETE_DISPATCH_INTEGERS(__VA_ARGS__) \
                         AT_DISPATCH_CASE(more, __VA_ARGS__))

namespace torch::detail {
template <arete::DType>
struct OfDType;
#define ARETE_TORCH_OF(T, e)        \
  template <>                       \
  struct OfDType<arete::DType::e> { \
    using type = T;                 \
  };
using arete::Float8E4M3;
using arete::Float8E5M2;
ARETE_FOR_EACH_DTYPE(ARETE_TORCH_OF)
#undef ARETE_TORCH_OF
template <arete::DType t>
using CppType = typename OfDType<t>::type;
}  // namespace torch::detail
