// The tensors of samples are written straight into host memory, so that they do not depend on the
// operators that they test.
#include "arete/ops/samples.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "arete/core/complex.h"
#include "arete/core/host_access.h"
#include "arete/ops/call.h"
#include "arete/prim/philox.h"

namespace arete::ops {

namespace {
std::map<std::string, RecordSamples, std::less<>>& attached() {
  static auto* all = new std::map<std::string, RecordSamples, std::less<>>;  // outlives all uses
  return *all;
}
}  // namespace

const RecordSamples& samples_of(const OpRecord& op) {
  static const RecordSamples none;
  const auto it = attached().find(op.full_name());
  return it == attached().end() ? none : it->second;
}

Attached attach(std::string_view record) {
  const auto [it, added] = attached().try_emplace(std::string(record));
  if (!added) ARETE_BUG(("samples are attached twice to " + it->first).c_str());
  return Attached(it->second);
}

Attached& Attached::samples(std::function<std::vector<Sample>(SampleMaker&)> f) {
  r_.samples = std::move(f);
  return *this;
}
Attached& Attached::errors(std::function<std::vector<ErrorSample>(SampleMaker&)> f) {
  r_.errors = std::move(f);
  return *this;
}
Attached& Attached::reference(Reference f) {
  r_.reference = std::move(f);
  return *this;
}
Attached& Attached::no_reference(std::string_view because) {
  r_.no_reference_because = because;
  return *this;
}
Attached& Attached::no_gradient_test() {
  r_.test_gradient = false;
  return *this;
}

namespace {

template <class T>
T sample_value(double v) {
  if constexpr (std::is_same_v<T, bool>)
    return v != 0;
  else if constexpr (std::is_integral_v<T> || std::is_same_v<T, double>)
    return static_cast<T>(v);
  else
    return T(float(v));
}
template <class T>
constexpr bool kIsComplex =
    std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

// A leaf over new memory of layout `l` (offset included) whose element i, row-major, is values[i];
// of complex ones the imaginary parts follow the real ones.
Tensor place(const std::vector<double>& values, const Layout& l, DType dtype, Device device,
             bool requires_grad) {
  const Tensor memory = empty_tensor({std::max<int64_t>(l.end(), 1)}, dtype, device);
  std::vector<std::byte> host(memory.nbytes());
  visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* p = reinterpret_cast<T*>(host.data());
    // What lies between the elements must not be read: a value that would show.
    const auto element = [&](double re, double im) {
      if constexpr (kIsComplex<T>)
        return T(std::complex<double>(re, im));
      else
        return sample_value<T>(re);
    };
    std::fill(p, p + memory.numel(), element(dtype == kBool ? 1 : 77, 77));
    const int rank = l.rank();
    Shape index(size_t(rank), 0);
    for (int64_t k = 0; k < l.numel(); ++k) {
      int64_t at = l.offset;
      for (int d = 0; d < rank; ++d) at += index[d] * l.strides[d];
      p[at] = element(values[size_t(k)], is_complex(dtype) ? values[size_t(k + l.numel())] : 0.0);
      for (int d = rank - 1; d >= 0; --d) {
        if (++index[d] < l.sizes[d]) break;
        index[d] = 0;
      }
    }
  });
  write_from_host(memory, host.data());
  Tensor t{IntrusivePtr<TensorImpl>(new TensorImpl(memory.storage(), l, dtype))};
  if (requires_grad && is_differentiable(dtype)) t.requires_grad_(true);
  return t;
}

// One number in [0, 1) for each element.
std::vector<double> units(Generator& generator, int64_t n) {
  const Generator::State s = generator.reserve(uint64_t(n + 1) / 2);
  std::vector<double> v;
  v.reserve(size_t(n));
  for (int64_t i = 0; i < n; ++i) {
    const prim::PhiloxBlock b = prim::philox_block(s.seed, s.offset + uint64_t(i / 2));
    v.push_back(prim::random_unit_f64(b.lane[i % 2 * 2], b.lane[i % 2 * 2 + 1]));
  }
  return v;
}

std::vector<double> uniform_values(Generator& generator, int64_t n, DType dtype, double low,
                                   double high) {
  std::vector<double> v = units(generator, is_complex(dtype) ? 2 * n : n);
  for (double& x : v) {
    if (dtype == kBool) {
      x = x < 0.5;
      continue;
    }
    x = low + x * (high - low);
    if (!is_integer(dtype)) continue;
    x = std::floor(x);
    if (is_unsigned(dtype)) x = std::abs(x);  // no negative numbers to wrap around
  }
  return v;
}

// Column-major with a gap before it; 1-d: every second element.
Layout strided_layout(IntList sizes) {
  Layout l;
  l.sizes = Shape(sizes);
  l.strides.resize(sizes.size());
  int64_t next = sizes.size() == 1 ? 2 : 1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    l.strides[d] = next;
    next *= std::max<int64_t>(sizes[d], 1);
  }
  l.offset = 1;
  return l;
}

}  // namespace

SampleMaker::SampleMaker(DType dtype_in, Device device_in, bool requires_grad_in, uint64_t seed)
    : dtype(dtype_in), device(device_in), requires_grad(requires_grad_in), generator_(seed) {}

Tensor SampleMaker::make(IntList sizes, double low, double high) {
  return place(uniform_values(generator_, numel_of(sizes), dtype, low, high), Layout(sizes), dtype,
               device, requires_grad);
}

Tensor SampleMaker::make_strided(IntList sizes, double low, double high) {
  return place(uniform_values(generator_, numel_of(sizes), dtype, low, high), strided_layout(sizes),
               dtype, device, requires_grad);
}

Tensor SampleMaker::make_distinct(IntList sizes, double gap) {
  const int64_t n = numel_of(sizes);
  std::vector<int64_t> rank(size_t(n), 0);
  std::iota(rank.begin(), rank.end(), 0);
  const std::vector<double> u = units(generator_, n);
  for (int64_t i = n - 1; i > 0; --i) std::swap(rank[i], rank[int64_t(u[i] * double(i + 1))]);
  std::vector<double> v;
  v.reserve(size_t(n));
  for (int64_t r : rank) {
    // Around zero but never zero itself, where many functions have their kink.
    if (dtype == kBool)
      v.push_back(double(r % 2));
    else if (is_integer(dtype))
      v.push_back(double(is_unsigned(dtype) ? r : r - n / 2));
    else
      v.push_back((double(r - n / 2) + 0.5) * gap);
  }
  if (is_complex(dtype)) v.insert(v.end(), u.begin(), u.end());
  return place(v, Layout(sizes), dtype, device, requires_grad);
}

Tensor SampleMaker::make_mask(IntList sizes) {
  return place(uniform_values(generator_, numel_of(sizes), kBool, 0, 1), Layout(sizes), kBool,
               device, false);
}

Tensor SampleMaker::make_index(IntList sizes, int64_t high) {
  return place(uniform_values(generator_, numel_of(sizes), kInt64, 0, double(high)), Layout(sizes),
               kInt64, device, false);
}

}  // namespace arete::ops
