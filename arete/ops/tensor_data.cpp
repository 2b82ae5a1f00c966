// Tensors made of host memory: literals, vectors, foreign memory.
#include <cstring>
#include <memory>

#include "arete/core/complex.h"
#include "arete/core/host_access.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"

namespace arete {
namespace {

template <class To>
To number_as(const Scalar& v) {
  if constexpr (std::is_same_v<To, bool>)
    return v.to_bool();
  else if constexpr (std::is_integral_v<To>)
    return std::is_same_v<To, uint64_t> ? To(v.to_bits()) : static_cast<To>(v.to_int64());
  else if constexpr (std::is_same_v<To, std::complex<float>> ||
                     std::is_same_v<To, std::complex<double>>)
    return To(to_complex(v));
  else if constexpr (std::is_same_v<To, double>)
    return v.to_double();
  else
    return To(float(v.to_double()));
}

// The host tensor as wanted: moved to the device and made a leaf.
Tensor finish(const Tensor& host, const TensorOptions& options) {
  Tensor t = host;
  if (!options.device_.is_cpu()) {
    t = ops::empty_tensor(host.sizes(), host.dtype(), options.device_);
    write_from_host(t, host.data_ptr());
  }
  if (options.requires_grad_) t.requires_grad_(true);
  return t;
}

}  // namespace

TensorData::TensorData(std::initializer_list<TensorData> list) {
  sizes_.push_back(int64_t(list.size()));
  const TensorData* first = list.begin();
  for (const TensorData& d : list) {
    ARETE_CHECK(d.sizes_ == first->sizes_,
                ValueError("tensor", "lists of one level must have equal shapes")
                    .got("shapes " + to_string(first->sizes_) + " and " + to_string(d.sizes_)));
    values_.insert(values_.end(), d.values_.begin(), d.values_.end());
  }
  if (list.size() > 0) sizes_.append(first->sizes_.begin(), first->sizes_.end());
}

DType TensorData::dtype() const {
  if (values_.empty()) return default_dtype();
  const Scalar* widest = &values_[0];
  for (const Scalar& v : values_)
    if (v.category() > widest->category()) widest = &v;
  return widest->dtype();
}

Tensor tensor(const TensorData& data, const TensorOptions& options) {
  const Tensor host = ops::empty_tensor(data.sizes(), options.dtype_.value_or(data.dtype()), kCPU);
  visit_dtype(host.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* p = static_cast<T*>(host.data_ptr());
    for (const Scalar& v : data.values()) *p++ = number_as<T>(v);
  });
  return finish(host, options);
}

Tensor tensor_from_host(const void* values, DType dtype, IntList sizes,
                        const TensorOptions& options) {
  const DType wanted = options.dtype_.value_or(dtype);
  const Tensor host = ops::empty_tensor(sizes, wanted, kCPU);
  const size_t n = size_t(host.numel());
  if (wanted == dtype) {
    if (n) std::memcpy(host.data_ptr(), values, host.nbytes());
    return finish(host, options);
  }
  visit_dtype(dtype, [&](auto from_tag) {
    using From = typename decltype(from_tag)::type;
    const From* from = static_cast<const From*>(values);
    visit_dtype(wanted, [&](auto to_tag) {
      using To = typename decltype(to_tag)::type;
      To* to = static_cast<To*>(host.data_ptr());
      for (size_t i = 0; i < n; ++i) {
        if constexpr (std::is_same_v<From, std::complex<float>>)
          to[i] = number_as<To>(Scalar(std::complex<double>(from[i])));
        else if constexpr (std::is_integral_v<From> || std::is_same_v<From, double> ||
                           std::is_same_v<From, std::complex<double>>)
          to[i] = number_as<To>(Scalar(from[i]));
        else
          to[i] = number_as<To>(Scalar(float(from[i])));
      }
    });
  });
  return finish(host, options);
}

namespace detail {
DType data_dtype(DType source, const TensorOptions& options) {
  if (options.dtype_) return *options.dtype_;
  if (is_integer(source)) return kInt64;
  if (source == kFloat32 || source == kFloat64) return default_dtype();
  return source;
}
}  // namespace detail

Tensor from_blob(void* data, IntList sizes, const TensorOptions& options,
                 std::function<void(void*)> deleter) {
  return from_blob(data, sizes, contiguous_strides(sizes), options, std::move(deleter));
}

Tensor from_blob(void* data, IntList sizes, IntList strides, const TensorOptions& options,
                 std::function<void(void*)> deleter) {
  ARETE_CHECK(sizes.size() == strides.size(),
              ValueError("from_blob", "sizes and strides must have the same length")
                  .got("sizes " + to_string(sizes) + " and strides " + to_string(strides)));
  for (int64_t s : strides)
    ARETE_CHECK(s >= 0, ValueError("from_blob", "strides must not be negative")
                            .argument("strides")
                            .got(to_string(strides)));
  const int64_t numel = numel_of(sizes);
  ARETE_CHECK(data || numel == 0, ValueError("from_blob", "the address is null")
                                      .argument("data")
                                      .got("shape " + to_string(sizes)));
  const DType dtype = options.dtype_.value_or(default_dtype());
  int64_t end = numel ? 1 : 0, bytes = 0;
  bool overflow = false;
  for (size_t d = 0; numel && d < sizes.size(); ++d) {
    int64_t reach = 0;
    overflow |= __builtin_mul_overflow(sizes[d] - 1, strides[d], &reach) ||
                __builtin_add_overflow(end, reach, &end);
  }
  overflow |= __builtin_mul_overflow(end, int64_t(size_of(dtype)), &bytes);
  ARETE_CHECK(!overflow,
              ValueError("from_blob", "the memory would be larger than the address space")
                  .got("sizes " + to_string(sizes) + " and strides " + to_string(strides)));
  Layout layout(sizes, strides);
  std::function<void()> release = [] {};
  if (deleter) release = [deleter = std::move(deleter), data] { deleter(data); };
  StoragePtr storage = Storage::adopt(options.device_, data, size_t(bytes), std::move(release));
  storage->mark_exported();
  Tensor t{IntrusivePtr<TensorImpl>(new TensorImpl(std::move(storage), std::move(layout), dtype))};
  if (options.requires_grad_) t.requires_grad_(true);
  return t;
}

}  // namespace arete
