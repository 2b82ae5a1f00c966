#include "arete/core/tensor.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>

#include "arete/core/complex.h"
#include "arete/core/history.h"
#include "arete/core/host_access.h"
#include "arete/core/modes.h"
#include "arete/core/tracing.h"

namespace arete {

TensorImpl::TensorImpl(StoragePtr s, Layout l, DType t)
    : storage(std::move(s)), layout(std::move(l)), dtype(t), inference(is_inference_mode()) {}
TensorImpl::~TensorImpl() = default;
void TensorImpl::destroy() const noexcept { delete this; }

IntrusivePtr<TensorImpl> TensorImpl::alias(Layout l, DType t) const {
  IntrusivePtr<TensorImpl> other(new TensorImpl(storage, std::move(l), t));
  other->own_version = own_version;
  other->inference = inference;  // of the memory, whatever the mode
  return other;
}

namespace {

void check_defined(const Tensor& t, const char* op) {
  ARETE_CHECK(t.defined(), ValueError(op, "the tensor is undefined")
                               .hint("a default-made Tensor holds nothing; assign a result to it "
                                     "first"));
}

// Between any two element types; complex numbers lose their imaginary part, floats their fraction.
template <class To, class From>
To convert(const From& v) {
  constexpr bool kFromComplex =
      std::is_same_v<From, std::complex<float>> || std::is_same_v<From, std::complex<double>>;
  constexpr bool kToComplex =
      std::is_same_v<To, std::complex<float>> || std::is_same_v<To, std::complex<double>>;
  if constexpr (std::is_same_v<To, From>) {
    return v;
  } else if constexpr (kFromComplex && kToComplex) {
    using Part = typename To::value_type;
    return To(Part(v.real()), Part(v.imag()));
  } else if constexpr (kFromComplex) {
    if constexpr (std::is_same_v<To, bool>)
      return v != From();
    else
      return convert<To>(v.real());
  } else if constexpr (kToComplex) {
    return To(convert<typename To::value_type>(v));
  } else if constexpr (!std::is_arithmetic_v<From>) {
    return convert<To>(float(v));
  } else if constexpr (!std::is_arithmetic_v<To>) {
    return To(float(v));
  } else {
    return static_cast<To>(v);
  }
}

}  // namespace

int64_t Tensor::size(int64_t dim) const {
  check_defined(*this, "size");
  const int d = normalize_dim(dim, int(this->dim()), "size");
  ARETE_CHECK(this->dim() > 0, IndexError("size", "Dimension specified as " + std::to_string(dim) +
                                                      " but tensor has no dimensions"));
  return impl_->layout.sizes[size_t(d)];
}

int64_t Tensor::stride(int64_t dim) const {
  check_defined(*this, "stride");
  const int d = normalize_dim(dim, int(this->dim()), "stride");
  ARETE_CHECK(this->dim() > 0,
              IndexError("stride", "Dimension specified as " + std::to_string(dim) +
                                       " but tensor has no dimensions"));
  return impl_->layout.strides[size_t(d)];
}

bool Tensor::is_view() const { return defined() && impl_->base; }

Tensor Tensor::variable_data() const {
  check_defined(*this, "variable_data");
  Tensor t(impl_->alias());
  t.impl_->own_version = IntrusivePtr<VersionCounter>(new VersionCounter(0));
  tracing::note_detached(*this, t);
  return t;
}

void* Tensor::data_ptr() const {
  check_defined(*this, "data_ptr");
  tracing::note_read(*this, /*address=*/true);
  std::byte* const base = impl_->storage->writable_data();
  if (!base || numel() == 0) return nullptr;
  return base + impl_->layout.offset * int64_t(element_size());
}

bool Tensor::is_pinned() const {
  check_defined(*this, "is_pinned");
  return impl_->storage->is_pinned();
}

void Tensor::check_data_access(DType wanted) const {
  check_defined(*this, "data");
  ARETE_CHECK(dtype() == wanted,
              TypeError("data", fmt::format("expected scalar type {} but found {}", name_of(wanted),
                                            name_of(dtype())))
                  .hint("to(dtype) converts"));
  ARETE_CHECK(device().is_cpu(),
              DeviceError("data", "the elements of a tensor on " + device().to_string() +
                                      " cannot be reached from the host")
                  .hint(is_meta() ? "meta tensors have no data" : "cpu() copies them"));
}

Scalar Tensor::item() const {
  check_defined(*this, "item");
  ARETE_CHECK(
      numel() == 1,
      ValueError("item",
                 fmt::format("a Tensor with {} elements cannot be converted to Scalar", numel()))
          .got("shape " + arete::to_string(sizes())));
  return visit_dtype(dtype(), [&](auto tag) -> Scalar {
    using T = typename decltype(tag)::type;
    alignas(16) std::byte buffer[sizeof(T)];
    read_to_host(*this, layout(), buffer);
    T v;
    std::memcpy(static_cast<void*>(&v), buffer, sizeof(T));
    if constexpr (std::is_same_v<T, bool> || std::is_integral_v<T>)
      return Scalar(v);
    else if constexpr (std::is_same_v<T, std::complex<float>> ||
                       std::is_same_v<T, std::complex<double>>)
      return Scalar(std::complex<double>(v));
    else
      return Scalar(convert<double>(v));
  });
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  check_defined(*this, "to_vector");
  const size_t n = size_t(numel());
  std::vector<T> out;
  if (n == 0) return out;
  const auto host = std::make_unique<std::byte[]>(n * element_size());
  read_to_host(*this, layout(), host.get());
  out.reserve(n);
  visit_dtype(dtype(), [&](auto tag) {
    using From = typename decltype(tag)::type;
    const From* p = reinterpret_cast<const From*>(host.get());
    for (size_t i = 0; i < n; ++i) out.push_back(convert<T>(p[i]));
  });
  return out;
}

#define ARETE_TO_VECTOR(T, e) template std::vector<T> Tensor::to_vector<T>() const;
ARETE_FOR_EACH_DTYPE(ARETE_TO_VECTOR)
#undef ARETE_TO_VECTOR

}  // namespace arete
