// Functions of arrays with few elements.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "arete/core/modes.h"
#include "arete/ops/call.h"
#include "array_object.h"

namespace arete::python {

// Note [Few elements]
// What a call of an operator costs on the host is more than the work on a handful of elements:
// shapes are inferred, kernels looked up, tiles planned. Where such elements lie one after another
// in host memory, functions whose results do not depend on how they are computed (no sums, whose
// order matters, and no transcendental functions) are loops here. All else is left to the
// operators.

namespace {

constexpr int64_t kFew = 32;

template <class T>
const T* few_elements(const Tensor& t) {
  return reinterpret_cast<const T*>(t.storage()->readable_data()) + t.layout().offset;
}
template <class T>
T* few_to_fill(const Tensor& t) {
  return reinterpret_cast<T*>(t.storage()->data());
}
Tensor new_few(IntList sizes, DType dtype) { return ops::empty_tensor(sizes, dtype, Device()); }
bool same_sizes(const Tensor& a, const Tensor& b) {
  return std::ranges::equal(a.sizes(), b.sizes());
}

/// f(from, to) with pointers to the elements' types; false for other dtypes.
template <class F>
bool of_few_type(DType t, F&& f) {
  switch (t) {
    case kBool:
      return f(bool());
    case kInt32:
      return f(int32_t());
    case kInt64:
      return f(int64_t());
    case kFloat32:
      return f(float());
    case kFloat64:
      return f(double());
    default:
      return false;
  }
}

/// Elements as those of another type, in `buffer` where they are not of it; null: not exactly.
template <class To>
const To* read_as(const FewOperand& o, int64_t n, To* buffer) {
  if (!o.tensor) {
    std::fill_n(buffer, n,
                std::is_same_v<To, double> ? To(o.value.to_double()) : To(o.value.to_int64()));
    return buffer;
  }
  const Tensor& t = *o.tensor;
  if (t.dtype() == dtype_of<To>) return few_elements<To>(t);
  const bool done = of_few_type(t.dtype(), [&](auto tag) {
    using From = decltype(tag);
    if constexpr (std::is_floating_point_v<From> && !std::is_floating_point_v<To>) {
      return false;
    } else {
      std::copy_n(few_elements<From>(t), n, buffer);
      return true;
    }
  });
  return done ? buffer : nullptr;
}

template <class T>
Tensor compute_few(int operation, const T* a, const T* b, IntList sizes, int64_t n) {
  using A = Arithmetic;
  // Whole numbers go round as NumPy's do.
  using Work = std::conditional_t<std::is_same_v<T, int64_t>, uint64_t, T>;
  const auto each = [&](DType dtype, auto f) {
    const Tensor r = new_few(sizes, dtype);
    auto* const out = few_to_fill<decltype(f(T(), T()))>(r);
    for (int64_t i = 0; i < n; ++i) out[i] = f(a[i], b[i]);
    return r;
  };
  switch (operation) {
    case A::add:
      return each(dtype_of<T>, [](T x, T y) { return T(Work(x) + Work(y)); });
    case A::subtract:
      return each(dtype_of<T>, [](T x, T y) { return T(Work(x) - Work(y)); });
    case A::multiply:
      return each(dtype_of<T>, [](T x, T y) { return T(Work(x) * Work(y)); });
    case A::divide:
      if constexpr (std::is_same_v<T, double>)
        return each(kFloat64, [](T x, T y) { return x / y; });
      return {};
    case A::less:
      return each(kBool, [](T x, T y) { return x < y; });
    case A::less_equal:
      return each(kBool, [](T x, T y) { return x <= y; });
    case A::equal:
      return each(kBool, [](T x, T y) { return x == y; });
    case A::not_equal:
      return each(kBool, [](T x, T y) { return x != y; });
    case A::greater:
      return each(kBool, [](T x, T y) { return x > y; });
    case A::greater_equal:
      return each(kBool, [](T x, T y) { return x >= y; });
    default:
      return {};
  }
}

}  // namespace

bool is_plain(const Tensor& t) { return modes().word == 0 && !t.requires_grad(); }

bool is_few(const Tensor& t) {
  return t.numel() <= kFew && is_at_hand(t) && t.is_contiguous() && !modes().destination;
}

Tensor few_results(int operation, const FewOperand& a, const FewOperand& b, DType dtype) {
  if ((a.tensor && !is_few(*a.tensor)) || (b.tensor && !is_few(*b.tensor)) ||
      (a.tensor && b.tensor && !same_sizes(*a.tensor, *b.tensor)))
    return {};
  const Tensor& shaped = a.tensor ? *a.tensor : *b.tensor;
  const int64_t n = shaped.numel();
  const auto in_type = [&](auto tag) -> Tensor {
    using T = decltype(tag);
    T buffers[2][kFew];
    const T *const x = read_as(a, n, buffers[0]), *const y = read_as(b, n, buffers[1]);
    return x && y ? compute_few(operation, x, y, shaped.sizes(), n) : Tensor();
  };
  return dtype == kFloat64 ? in_type(double()) : dtype == kInt64 ? in_type(int64_t()) : Tensor();
}

Tensor few_equal(IntList sizes, double value) {
  if (numel_of(sizes) > kFew || !array_device.is_cpu() || modes().word != 0 || modes().destination)
    return {};
  Tensor r = new_few(sizes, kFloat64);
  std::fill_n(few_to_fill<double>(r), r.numel(), value);
  return r;
}

Tensor few_copied(const Tensor& t) {
  if (!is_few(t)) return {};
  Tensor r = new_few(t.sizes(), t.dtype());
  if (const size_t bytes = t.nbytes())
    std::memcpy(few_to_fill<std::byte>(r),
                t.storage()->readable_data() + t.layout().offset * int64_t(t.element_size()),
                bytes);
  return r;
}

Tensor few_converted(const Tensor& t, DType dtype) {
  if (t.dtype() == dtype) return few_copied(t);
  if (!is_few(t)) return {};
  Tensor r;
  of_few_type(t.dtype(), [&](auto from) {
    using From = decltype(from);
    return of_few_type(dtype, [&](auto to) {
      using To = decltype(to);
      // What others become needs care.
      if constexpr (std::is_floating_point_v<From> ? !std::is_floating_point_v<To>
                                                   : sizeof(To) < sizeof(From)) {
        return false;
      } else {
        r = new_few(t.sizes(), dtype);
        std::transform(few_elements<From>(t), few_elements<From>(t) + t.numel(), few_to_fill<To>(r),
                       [](From v) { return To(v); });
        return true;
      }
    });
  });
  return r;
}

Tensor few_joined(std::span<const Tensor> parts) {
  int64_t n = 0;
  for (const Tensor& t : parts) {
    if (t.dim() != 1 || t.dtype() != parts[0].dtype() || !is_few(t)) return {};
    n += t.numel();
  }
  Tensor r = new_few({n}, parts[0].dtype());
  auto* to = few_to_fill<std::byte>(r);
  for (const Tensor& t : parts) {
    if (const size_t bytes = t.nbytes())
      std::memcpy(to, t.storage()->readable_data() + t.layout().offset * int64_t(t.element_size()),
                  bytes);
    to += t.nbytes();
  }
  return r;
}

Tensor few_counted(int64_t start, int64_t step, int64_t n) {
  if (n > kFew || modes().word != 0 || modes().destination) return {};
  Tensor r = new_few({n}, kInt64);
  auto* const out = few_to_fill<int64_t>(r);
  for (int64_t i = 0; i < n; ++i) out[i] = start + i * step;
  return r;
}

Tensor few_picked(const Tensor& t, const Tensor& at) {
  if (t.dim() != 1 || at.dim() != 1 || !is_few(t) || !is_few(at)) return {};
  const int64_t n = t.numel();
  int64_t places[kFew], count = 0;
  if (at.dtype() == kBool) {
    if (at.numel() != n) return {};
    const auto* const mask = few_elements<bool>(at);
    for (int64_t i = 0; i < n; ++i) {
      places[count] = i;
      count += mask[i];
    }
  } else if (at.dtype() == kInt64) {
    for (const int64_t i : std::span(few_elements<int64_t>(at), size_t(at.numel()))) {
      places[count] = i < 0 ? i + n : i;
      if (places[count] < 0 || places[count] >= n) return {};
      ++count;
    }
  } else {
    return {};
  }
  Tensor r = new_few({count}, t.dtype());
  const auto pick = [&](auto tag) {
    const auto* const from = few_elements<decltype(tag)>(t);
    auto* const to = few_to_fill<decltype(tag)>(r);
    for (int64_t k = 0; k < count; ++k) to[k] = from[places[k]];
    return r;
  };
  switch (t.element_size()) {
    case 1:
      return pick(uint8_t());
    case 4:
      return pick(uint32_t());
    case 8:
      return pick(uint64_t());
    default:
      return {};
  }
}

int64_t few_position(const Tensor& t, bool largest) {
  int64_t at = -1;
  if (t.numel() > 0 && is_few(t))
    of_few_type(t.dtype(), [&](auto tag) {
      const auto* const v = few_elements<decltype(tag)>(t);
      at = 0;
      for (int64_t i = 1; i < t.numel() && v[at] == v[at]; ++i)
        if ((largest ? v[i] > v[at] : v[i] < v[at]) || v[i] != v[i]) at = i;
      return true;
    });
  return at;
}

Tensor few_true(const Tensor& mask) {
  if (mask.dim() != 1 || mask.dtype() != kBool || !is_few(mask)) return {};
  const std::span given(few_elements<bool>(mask), size_t(mask.numel()));
  Tensor r = new_few({std::ranges::count(given, true)}, kInt64);
  auto* out = few_to_fill<int64_t>(r);
  for (size_t i = 0; i < given.size(); ++i)
    if (given[i]) *out++ = int64_t(i);
  return r;
}

Tensor few_different(const Tensor& t) {
  if (!is_few(t)) return {};
  Tensor r;
  of_few_type(t.dtype(), [&](auto tag) {
    using T = decltype(tag);
    T values[kFew];
    T* end = std::copy_n(few_elements<T>(t), t.numel(), values);
    if (std::any_of(values, end, [](T v) { return v != v; })) return false;
    std::stable_sort(values, end);
    end = std::unique(values, end);
    r = new_few({end - values}, t.dtype());
    std::copy(values, end, few_to_fill<T>(r));
    return true;
  });
  return r;
}

}  // namespace arete::python
