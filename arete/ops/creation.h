// Making tensors: of one value, of ranges, of the values of a program, of foreign memory.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <vector>

#include "arete/core/tensor.h"

namespace arete {

// `options` gives dtype, device and requires_grad; a dtype left out is default_dtype() unless a
// function says otherwise. Negative sizes are a ValueError, requires_grad for integers an
// AutogradError, everywhere.

/// A row-major tensor whose values are not set.
Tensor empty(IntList sizes, const TensorOptions& options = {});
/// The same with given strides (in elements, not negative).
Tensor empty_strided(IntList sizes, IntList strides, const TensorOptions& options = {});
/// All zeros.
Tensor zeros(IntList sizes, const TensorOptions& options = {});
/// All ones.
Tensor ones(IntList sizes, const TensorOptions& options = {});
/// All `value`; a dtype left out is that of the number: bool, int64, default_dtype(), complex.
Tensor full(IntList sizes, Scalar value, const TensorOptions& options = {});

/// Without values, like `self` in sizes and, unless given, dtype and device. The strides are those
/// of `self` where its memory is dense, else row-major (all *_like functions).
Tensor empty_like(const Tensor& self, std::optional<DType> dtype = {},
                  std::optional<Device> device = {});
Tensor zeros_like(const Tensor& self, std::optional<DType> dtype = {},
                  std::optional<Device> device = {});
Tensor ones_like(const Tensor& self, std::optional<DType> dtype = {},
                 std::optional<Device> device = {});
Tensor full_like(const Tensor& self, Scalar value, std::optional<DType> dtype = {},
                 std::optional<Device> device = {});

/// start, start + step, ... below (for negative steps: above) end. 1-d. Without a dtype: int64 if
/// all numbers are integers, else default_dtype(). Errors: step 0, or of the wrong sign.
Tensor arange(Scalar end, const TensorOptions& options = {});
Tensor arange(Scalar start, Scalar end, const TensorOptions& options = {});
Tensor arange(Scalar start, Scalar end, Scalar step, const TensorOptions& options = {});
/// `steps` values at equal distances from start to end, both included.
Tensor linspace(Scalar start, Scalar end, int64_t steps, const TensorOptions& options = {});
/// base to the power of linspace(start, end, steps).
Tensor logspace(Scalar start, Scalar end, int64_t steps, double base = 10,
                const TensorOptions& options = {});
/// n x m (m left out: n x n) with ones on the diagonal.
Tensor eye(int64_t n, const TensorOptions& options = {});
Tensor eye(int64_t n, int64_t m, const TensorOptions& options = {});

/// Rows and columns of the positions j - i <= offset (>= offset) of a row x col matrix in row-major
/// order: int64 (or int32) of shape (2, n).
Tensor tril_indices(int64_t row, int64_t col, int64_t offset = 0,
                    const TensorOptions& options = {});
Tensor triu_indices(int64_t row, int64_t col, int64_t offset = 0,
                    const TensorOptions& options = {});
/// Without values: dimension physical_layout[k] is the k-th slowest in memory.
Tensor empty_permuted(IntList sizes, IntList physical_layout, const TensorOptions& options = {});
/// A 0-d tensor; a dtype left out is default_dtype(), whatever the number.
Tensor scalar_tensor(Scalar value, const TensorOptions& options = {});

/// Values as they stand in a program: a number or lists of lists of numbers,
/// `tensor({{1, 2}, {3, 4}})`. Lists of one level must have equal sizes and shapes.
class TensorData {
 public:
  /// An empty list.
  TensorData() : sizes_{0} {}
  TensorData(bool v) : values_{Scalar(v)} {}
  TensorData(int v) : values_{Scalar(v)} {}
  TensorData(int64_t v) : values_{Scalar(v)} {}
  TensorData(float v) : values_{Scalar(v)} {}
  TensorData(double v) : values_{Scalar(v)} {}
  template <ComplexNumber T>
  TensorData(const T& v) : values_{Scalar(v)} {}
  TensorData(Scalar v) : values_{v} {}
  /// ValueError for lists of unequal shapes.
  TensorData(std::initializer_list<TensorData> list);

  IntList sizes() const { return sizes_; }
  const std::vector<Scalar>& values() const { return values_; }
  /// The dtype of the widest category among the values; default_dtype() if there are none.
  DType dtype() const;

 private:
  Shape sizes_;
  std::vector<Scalar> values_;
};

/// A tensor of the given values. Without a dtype: bool, int64 or default_dtype(), by the values.
Tensor tensor(const TensorData& data, const TensorOptions& options = {});
/// 1-d. Without a dtype: integers become int64, float and double default_dtype().
template <class T>
Tensor tensor(const std::vector<T>& values, const TensorOptions& options = {});
/// Row-major host values of `sizes`, converted to the wanted dtype (default: `dtype`) and device.
Tensor tensor_from_host(const void* values, DType dtype, IntList sizes,
                        const TensorOptions& options = {});

/// A tensor over foreign memory on the options' device, which must outlive it; `deleter` is called
/// with `data` when the last view is gone. Without strides: row-major.
Tensor from_blob(void* data, IntList sizes, const TensorOptions& options = {},
                 std::function<void(void*)> deleter = {});
Tensor from_blob(void* data, IntList sizes, IntList strides, const TensorOptions& options = {},
                 std::function<void(void*)> deleter = {});

namespace ops {
/// Zeros of these sizes that take no memory: for operators whose result begins as a copy of them.
inline Tensor zeros_to_copy(IntList sizes, const TensorOptions& options) {
  return zeros({}, options).expand(sizes);
}
}  // namespace ops

namespace detail {
/// The dtype of a tensor made from host numbers of type `source`.
DType data_dtype(DType source, const TensorOptions& options);
}  // namespace detail

template <class T>
Tensor tensor(const std::vector<T>& values, const TensorOptions& options) {
  const int64_t n = int64_t(values.size());
  const TensorOptions o = options.dtype(detail::data_dtype(dtype_of<T>, options));
  if constexpr (std::is_same_v<T, bool>) {
    std::vector<uint8_t> bytes(values.begin(), values.end());
    return tensor_from_host(bytes.data(), kBool, {n}, o);
  } else {
    return tensor_from_host(values.data(), dtype_of<T>, {n}, o);
  }
}

}  // namespace arete
