// The tensor handle. Methods that are operators are declared here and defined beside their records
// in ops/; each one's documentation stands with its free function in ops/*.h.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "arete/base/error.h"
#include "arete/base/intrusive_ptr.h"
#include "arete/core/device.h"
#include "arete/core/dtype.h"
#include "arete/core/layout.h"
#include "arete/core/scalar.h"
#include "arete/core/storage.h"

namespace arete {

class Node;
class Tensor;
struct AutogradMeta;
struct Index;

/// The body behind Tensor handles.
class TensorImpl final : public RefCounted {
 public:
  TensorImpl(StoragePtr s, Layout l, DType t);
  ~TensorImpl();
  void destroy() const noexcept;

  /// Another body over the same memory, without history, that counts writes with this one.
  IntrusivePtr<TensorImpl> alias(Layout l, DType t) const;
  IntrusivePtr<TensorImpl> alias() const { return alias(layout, dtype); }
  /// What saved tensors compare: the writes of this body and those that count with it.
  uint64_t version() const noexcept {
    return own_version ? own_version->version() : storage->version();
  }
  void bump_version() noexcept {
    if (!own_version) return storage->bump_version();
    own_version->bump();
    storage->note_write();
  }

  StoragePtr storage;
  Layout layout;
  DType dtype;
  bool inference = false;     // made in inference mode
  bool multi_output = false;  // a view that is one of several results: no in-place writes
  bool no_grad_view = false;  // a view made where history was not recorded
  std::unique_ptr<AutogradMeta> autograd;  // only where differentiation needs it

  // Views know the root they show (never a view itself), the operator that made them, and the
  // storage version for which their grad_fn is up to date.
  IntrusivePtr<TensorImpl> base;
  const char* made_by = nullptr;
  uint64_t view_version = 0;

  // In the place of the storage's, for writes that saved tensors shall not notice.
  IntrusivePtr<VersionCounter> own_version;
};

/// dtype, device and requires_grad for creation; absent dtype means default_dtype() (or what the
/// values suggest).
struct TensorOptions {
  std::optional<DType> dtype_;
  Device device_{};
  bool requires_grad_ = false;
  TensorOptions() = default;
  TensorOptions(DType t) : dtype_(t) {}
  TensorOptions(Device d) : device_(d) {}
  TensorOptions(DType t, Device d) : dtype_(t), device_(d) {}
  TensorOptions dtype(DType t) const {
    auto o = *this;
    o.dtype_ = t;
    return o;
  }
  TensorOptions device(Device d) const {
    auto o = *this;
    o.device_ = d;
    return o;
  }
  TensorOptions requires_grad(bool v = true) const {
    auto o = *this;
    o.requires_grad_ = v;
    return o;
  }
};

/// How a copy lays out its memory.
enum class MemoryFormat : uint8_t { contiguous, preserve, channels_last };

/// Python's slice a[start:stop:step].
struct Slice {
  std::optional<int64_t> start, stop;
  int64_t step = 1;
  Slice(std::optional<int64_t> start_in = {}, std::optional<int64_t> stop_in = {},
        int64_t step_in = 1)
      : start(start_in), stop(stop_in), step(step_in) {}
};
struct NewAxis {};
struct Ellipsis {};
inline constexpr NewAxis kNewAxis{};
inline constexpr Ellipsis kEllipsis{};

/// A handle to an n-dimensional array: cheap to copy, copies share the data. A default-made handle
/// is undefined; using it where a tensor is needed is an error. Distinct tensors may be used from
/// distinct threads freely; one tensor from several threads only for reading.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(IntrusivePtr<TensorImpl> impl) : impl_(std::move(impl)) {}

  // ---- what it is
  bool defined() const noexcept { return bool(impl_); }
  TensorImpl* impl() const noexcept { return impl_.get(); }
  bool is_same(const Tensor& o) const noexcept { return impl_ == o.impl_; }
  const Layout& layout() const { return impl_->layout; }
  IntList sizes() const { return {impl_->layout.sizes.data(), impl_->layout.sizes.size()}; }
  IntList strides() const { return {impl_->layout.strides.data(), impl_->layout.strides.size()}; }
  /// Size (stride) of a dimension, negative ones from the end; IndexError if out of range.
  int64_t size(int64_t dim) const;
  int64_t stride(int64_t dim) const;
  int64_t storage_offset() const { return impl_->layout.offset; }
  int64_t dim() const { return impl_->layout.rank(); }
  int64_t numel() const { return impl_->layout.numel(); }
  DType dtype() const { return impl_->dtype; }
  Device device() const { return impl_->storage->device(); }
  TensorOptions options() const { return {dtype(), device()}; }
  const StoragePtr& storage() const { return impl_->storage; }
  bool is_contiguous() const { return impl_->layout.is_contiguous(); }
  bool is_floating_point() const { return is_floating(dtype()); }
  size_t element_size() const { return size_of(dtype()); }
  size_t nbytes() const { return size_t(numel()) * element_size(); }
  bool is_meta() const { return device().is_meta(); }
  bool is_cuda() const { return device().is_cuda(); }
  bool is_inference() const { return impl_->inference; }
  uint64_t version() const { return impl_->version(); }
  /// To be called by whatever writes the values in place.
  void bump_version() const { impl_->bump_version(); }
  /// True for tensors that share their storage by a view operator and know their base.
  bool is_view() const;

  // ---- data
  /// The address of the first element; null for meta and empty tensors. Waits for copies that a
  /// non_blocking call left under way in host memory.
  void* data_ptr() const;
  /// True for host memory that a GPU reaches by itself (pin_memory).
  bool is_pinned() const;
  /// The same, typed; TypeError if T is not the dtype's C++ type, DeviceError if not on the host.
  template <class T>
  T* data() const {
    check_data_access(dtype_of<T>);
    return static_cast<T*>(data_ptr());
  }
  /// The value of a one-element tensor; ValueError otherwise.
  Scalar item() const;
  template <class T>
  T item() const {
    const Scalar s = item();
    if constexpr (std::is_same_v<T, bool>)
      return s.to_bool();
    else if constexpr (std::is_integral_v<T>)
      return std::is_unsigned_v<T> ? T(s.to_bits()) : T(s.to_int64());
    else if constexpr (ComplexNumber<T>)
      return T(s.real(), s.imag());
    else
      return T(s.to_double());
  }
  /// All elements in row-major order, converted to T (double, float, int64_t, ...).
  template <class T>
  std::vector<T> to_vector() const;
  /// PyTorch's way of printing: aligned, summarised beyond 1000 elements.
  std::string to_string() const;

  // ---- differentiation
  bool requires_grad() const;
  /// Leaves of floating or complex dtype only (AutogradError).
  Tensor& requires_grad_(bool value = true);
  bool is_leaf() const;
  IntrusivePtr<Node> grad_fn() const;
  /// The accumulated gradient; undefined if there is none.
  Tensor grad() const;
  void set_grad(const Tensor& g) const;
  /// Keeps the gradient of a non-leaf, too.
  void retain_grad() const;
  /// Accumulates d self / d leaf in every leaf. `gradient` may be left out for one element.
  /// Errors: nothing requires grad ("element 0 of tensors does not require grad ..."), the graph
  /// was freed by an earlier pass, shape mismatch of `gradient`.
  void backward(const Tensor& gradient = {}, bool retain_graph = false,
                bool create_graph = false) const;
  /// Called with the gradient of this tensor when it is known; may return a replacement.
  /// Returns an id for remove_hook.
  uint64_t register_hook(std::function<Tensor(const Tensor&)> hook) const;
  void remove_hook(uint64_t id) const;
  /// The same data without history; in-place writes to it are seen by the version check.
  Tensor detach() const;
  /// The same, but in-place writes to it are not seen: Python's `.data`.
  Tensor variable_data() const;
  Tensor& detach_();

  // ---- conversion and copies
  // non_blocking: the call returns before a copy between pinned host memory and a GPU is done; the
  // result of to(kCPU) is then pinned. What reads or changes the host memory waits for it, so that
  // no one sees half of a copy.
  Tensor to(DType t, bool copy = false) const;
  Tensor to(Device d, bool non_blocking = false, bool copy = false) const;
  Tensor to(Device d, DType t, bool non_blocking = false, bool copy = false) const;
  Tensor to(const TensorOptions& o) const;
  Tensor cpu() const { return to(kCPU); }
  /// On the current GPU, or that of the ordinal.
  Tensor cuda(int index = -1) const { return to(Device(DeviceType::cuda, index)); }
  Tensor clone(MemoryFormat f = MemoryFormat::preserve) const;
  Tensor contiguous(MemoryFormat f = MemoryFormat::contiguous) const;
  Tensor& copy_(const Tensor& src, bool non_blocking = false);
  /// A copy in pinned host memory (itself if it is pinned), without history; DeviceError without a
  /// GPU.
  Tensor pin_memory() const;
  Tensor& fill_(Scalar value);
  Tensor& zero_();
  Tensor half() const { return to(kFloat16); }
  Tensor bfloat16() const { return to(kBFloat16); }

  // ---- indexing: x.index({1, Slice(0, 3), kEllipsis, kNewAxis, mask, index_tensor})
  Tensor index(std::initializer_list<Index> indices) const;
  Tensor index(const std::vector<Index>& indices) const;
  Tensor operator[](int64_t i) const;
  /// x[indices] = value, broadcast.
  Tensor& index_put_(const std::vector<Index>& indices, const Tensor& value,
                     bool accumulate = false);
  Tensor& index_put_(std::initializer_list<Index> indices, const Tensor& value,
                     bool accumulate = false);
  Tensor& index_put_(std::initializer_list<Index> indices, Scalar value);

#include "arete/core/tensor_methods.inc.h"

 private:
  void check_data_access(DType wanted) const;
  IntrusivePtr<TensorImpl> impl_;
};

/// One entry of an index expression.
struct Index {
  enum class Kind : uint8_t { number, slice, new_axis, ellipsis, tensor };
  Index(int i) : Index(int64_t(i)) {}
  Index(int64_t i) : kind(Kind::number), number(i) {}
  Index(Slice s) : kind(Kind::slice), slice(s) {}
  Index(NewAxis) : kind(Kind::new_axis) {}
  Index(Ellipsis) : kind(Kind::ellipsis) {}
  Index(Tensor t) : kind(Kind::tensor), tensor(std::move(t)) {}

  // The one that is of this kind.
  Kind kind;
  int64_t number = 0;
  Slice slice;
  Tensor tensor;
};

}  // namespace arete
