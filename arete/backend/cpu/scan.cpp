// Running sums, products, extrema and logic along a dimension.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdlib>
#include <limits>
#include <vector>

#include "arete/backend/cpu/combine.h"
#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/kernels/kernel_table.h"
#include "arete/backend/cpu/kernels/scan_table.h"
#include "arete/backend/cpu/kernels/select_table.h"
#include "arete/backend/cpu/walk.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"
#include "arete/core/complex.h"

namespace arete::cpu {
namespace {

using prim::Monoid;
using prim::ScanArgs;

const kernels::ScanTable& scan_table() {
  static const kernels::ScanTable& t = ARETE_SELECT_TABLE(scan_table);
  return t;
}

// What sums and products accumulate in.
template <class T>
using SumType = std::conditional_t<
    std::is_same_v<T, bool>, bool,
    std::conditional_t<std::is_integral_v<T>, int64_t,
                       std::conditional_t<is_complex(dtype_of<T>), std::complex<double>, double>>>;

template <class A, class T>
A widen(T v) {
  if constexpr (is_reduced_float(dtype_of<T>))
    return A(float(v));
  else
    return A(v);
}
template <class T, class A>
T narrow_to(A v) {
  if constexpr (is_reduced_float(dtype_of<T>))
    return T(float(v));
  else
    return T(v);
}

// The monoids for elements of type T: accumulator, identity, operation.
template <class T>
struct Sum {
  using Acc = SumType<T>;
  static Acc identity() { return Acc(0); }
  static Acc apply(Acc a, Acc b) { return wrapping_add(a, b); }
};
template <class T>
struct Product {
  using Acc = SumType<T>;
  static Acc identity() { return Acc(1); }
  static Acc apply(Acc a, Acc b) { return wrapping_mul(a, b); }
};
template <class T>
struct Minimum {
  using Acc = CombineType<T>;
  static Acc identity() {
    using L = std::numeric_limits<Acc>;
    return L::has_infinity ? L::infinity() : L::max();
  }
  static Acc apply(Acc a, Acc b) { return nan_min(a, b); }
};
template <class T>
struct Maximum {
  using Acc = CombineType<T>;
  static Acc identity() {
    using L = std::numeric_limits<Acc>;
    return L::has_infinity ? Acc(-L::infinity()) : L::lowest();
  }
  static Acc apply(Acc a, Acc b) { return nan_max(a, b); }
};

// What has vector kernels.
template <template <class> class M, class T>
inline constexpr bool kSumOrProduct =
    std::is_same_v<M<T>, Sum<T>> || std::is_same_v<M<T>, Product<T>>;
template <class T>
inline constexpr bool kVector =
    std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, int64_t>;
template <template <class> class M, class T>
const auto& functions() {
  const auto& pair = [&]() -> const auto& {
    if constexpr (kSumOrProduct<M, T> && sizeof(T) == 4)
      return scan_table().sum_prod_f32;
    else if constexpr (kSumOrProduct<M, T> && std::is_same_v<T, int64_t>)
      return scan_table().sum_prod_i64;
    else if constexpr (kSumOrProduct<M, T>)
      return scan_table().sum_prod_f64;
    else if constexpr (std::is_same_v<T, int64_t>)
      return scan_table().min_max_i64;
    else if constexpr (sizeof(T) == 4)
      return scan_table().min_max_f32;
    else
      return scan_table().min_max_f64;
  }
  ();
  constexpr bool kFirst = std::is_same_v<M<T>, Sum<T>> || std::is_same_v<M<T>, Minimum<T>>;
  return kFirst ? pair.first : pair.second;
}

// What vector kernels take: these, and narrow floats as f32, a block at a time.
template <class T>
inline constexpr bool kByVectors = kVector<T> || is_reduced_float(dtype_of<T>);
template <class T>
using VectorType = std::conditional_t<is_reduced_float(dtype_of<T>), float, T>;
constexpr int64_t kVectorBlock = 1024;

template <template <class> class M, class T>
auto fold(const T* in, int64_t n, int64_t stride) {
  using Acc = typename M<T>::Acc;
  Acc acc = M<T>::identity();
  if constexpr (kByVectors<T>)
    if (std::abs(stride) == 1) {
      if (stride < 0) in -= n - 1;
      if constexpr (kVector<T>) return Acc(functions<M, T>().fold(in, n));
      VectorType<T> values[kVectorBlock];
      for (int64_t i = 0; i < n; i += kVectorBlock) {
        const int64_t here = std::min(kVectorBlock, n - i);
        kernels::table().load[int(dtype_of<T>)](values, in + i, nullptr, nullptr, here);
        acc = M<T>::apply(acc, Acc(functions<M, VectorType<T>>().fold(values, here)));
      }
      return acc;
    }
  for (int64_t i = 0; i < n; ++i) acc = M<T>::apply(acc, widen<Acc>(in[i * stride]));
  return acc;
}

// A run forwards or backwards.
template <template <class> class M, class T>
void run_by_vectors(const T* in, T* out, int64_t n, bool backwards, typename M<T>::Acc carry) {
  const auto& run = functions<M, VectorType<T>>().run;
  const kernels::KernelTable& table = kernels::table();
  VectorType<T> values[kVectorBlock];
  T narrow[kVector<T> ? 1 : kVectorBlock];
  T* const own = kVector<T> ? reinterpret_cast<T*>(values) : narrow;
  for (int64_t i = 0; i < n; i += kVectorBlock) {
    const int64_t here = std::min(kVectorBlock, n - i), first = backwards ? 1 - i - here : i;
    const T* from = in + first;
    T* const to = backwards ? own : out + first;
    if (backwards) {
      table.reverse[sizeof(T)](own, from, nullptr, nullptr, here);
      from = own;
    }
    if constexpr (kVector<T>) {
      carry = typename M<T>::Acc(run(from, to, here, carry));
    } else {
      table.load[int(dtype_of<T>)](values, from, nullptr, nullptr, here);
      carry = typename M<T>::Acc(run(values, values, here, carry));
      table.store[int(dtype_of<T>)](to, values, nullptr, nullptr, here);
    }
    if (backwards) table.reverse[sizeof(T)](out + first, own, nullptr, nullptr, here);
  }
}

template <template <class> class M, class T>
void run(const T* in, T* out, int64_t n, int64_t si, int64_t so, typename M<T>::Acc carry) {
  using Acc = typename M<T>::Acc;
  if constexpr (kByVectors<T>)
    if (si == so && std::abs(si) == 1) return run_by_vectors<M>(in, out, n, si < 0, carry);
  for (int64_t i = 0; i < n; ++i) {
    carry = M<T>::apply(carry, widen<Acc>(in[i * si]));
    out[i * so] = narrow_to<T>(carry);
  }
}

template <template <class> class M, class T>
void columns(const T* in, T* out, int64_t rows, int64_t width, int64_t si, int64_t so) {
  using Acc = typename M<T>::Acc;
  if constexpr (kVector<T>) {
    functions<M, T>().columns(in, out, rows, width, si, so);
    return;
  }
  constexpr bool kSmall = is_reduced_float(dtype_of<T>);  // converted by vectors
  constexpr int64_t kTile = kSmall ? 256 : 64;
  Acc acc[kTile];
  float values[kSmall ? kTile : 1];
  for (int64_t c = 0; c < width; c += kTile) {
    const int64_t w = std::min(kTile, width - c);
    std::fill(acc, acc + kTile, M<T>::identity());
    for (int64_t r = 0; r < rows; ++r) {
      const T* from = in + c + r * si;
      T* to = out + c + r * so;
      if constexpr (kSmall) {
        kernels::table().load[int(dtype_of<T>)](values, from, nullptr, nullptr, w);
        for (int64_t k = 0; k < w; ++k)
          values[k] = float(acc[k] = M<T>::apply(acc[k], Acc(values[k])));
        kernels::table().store[int(dtype_of<T>)](to, values, nullptr, nullptr, w);
      } else {
        for (int64_t k = 0; k < w; ++k) {
          acc[k] = M<T>::apply(acc[k], widen<Acc>(from[k]));
          to[k] = narrow_to<T>(acc[k]);
        }
      }
    }
  }
}

// One long lane. Chunks are folded in parallel, then scanned in parallel, each from the total of
// those before. They do not depend on the number of threads, and so neither does the result. (That
// of integers does not depend on chunks either: one thread makes none.)
template <template <class> class M, class T>
void scan_long(const T* in, T* out, int64_t n, int64_t si, int64_t so) {
  using Acc = typename M<T>::Acc;
  constexpr int64_t kChunk = 1 << 15;
  if (std::is_integral_v<T> && num_threads() == 1)
    return run<M>(in, out, n, si, so, M<T>::identity());
  const int64_t chunks = (n + kChunk - 1) / kChunk;
  const auto length = [&](int64_t c) { return std::min(kChunk, n - c * kChunk); };
  struct Total {  // not the bare type: a vector of bool has no elements to write in parallel
    Acc value;
  };
  std::vector<Total> total(size_t(chunks), Total{M<T>::identity()});
  parallel_for(0, chunks - 1, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c)
      total[c + 1].value = fold<M>(in + c * kChunk * si, length(c), si);
  });
  for (int64_t c = 1; c < chunks; ++c)
    total[c].value = M<T>::apply(total[c - 1].value, total[c].value);
  parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c)
      run<M>(in + c * kChunk * si, out + c * kChunk * so, length(c), si, so, total[c].value);
  });
}

// ---- scans of more than a monoid of numbers (ScanArgs): the state of a lane, and what the lane's
// next element makes of it, given that of the third operand

// A running sum of exponentials is sum * exp(top), with the largest exponent so far.
template <class T>
struct LogSumState {
  using Third = T;
  using Exact = std::conditional_t<std::is_same_v<T, double>, double, float>;
  double sum = 0;
  Exact top = -std::numeric_limits<Exact>::infinity();
  void next(const T& in, T& out, Third*) {
    const Exact v = Exact(in);
    if (v <= top) {
      sum += v == top ? Exact(1) : std::exp(v - top);
    } else {  // or NaN
      sum = sum * std::exp(top - v) + 1;
      top = v;
    }
    out = T(top + Exact(std::log(Exact(sum))));
  }
};

// carry[k]: what results so far add to the element k after the next. kOrder 0: any up to 32.
template <class T, int kOrder>
struct LinearState {
  using Third = const T;
  using Wide = SumType<T>;
  int64_t order = kOrder;
  Wide carry[kOrder ? kOrder : 32]{};
  void next(const T& in, T& out, Third* factors) {
    const Wide y = widen<Wide>(in) + carry[0];
    out = narrow_to<T>(y);
    const int64_t last = (kOrder ? kOrder : order) - 1;
    for (int64_t k = 0; k < last; ++k) carry[k] = y * widen<Wide>(factors[k]) + carry[k + 1];
    carry[last] = y * widen<Wide>(factors[last]);
  }
};

template <class T, bool kLargest>
struct PlacedState {
  using Third = int64_t;
  using Extreme = std::conditional_t<kLargest, Maximum<T>, Minimum<T>>;
  CombineType<T> best = Extreme::identity();  // no first element is beaten by it
  int64_t at = 0, position = 0;
  void next(const T& in, T& out, Third* index) {
    const auto v = CombineType<T>(in);
    const bool takes = int(v != v) | int(kLargest ? v >= best : v <= best);
    best = takes ? v : best;
    at = takes ? position : at;
    ++position;
    out = T(best);
    *index = at;
  }
};

template <class State, class T>
void scan_states(const ScanArgs& a, const prim::View& third, const State& initial = {}) {
  using Third = typename State::Third;
  const bool scalar = a.in.rank() == 0;
  const int64_t n = scalar ? 1 : a.in.sizes[a.dim];
  const auto along = [&](const prim::View& v) {  // bytes
    return scalar ? 0 : v.strides[a.dim] * int64_t(size_of(v.dtype));
  };
  const int64_t bi = along(a.in), bo = along(a.out), bt = along(third);
  const Walk<3> walk(a.in.sizes, a.dim, {&a.in, &a.out, &third});
  if (n == 0 || walk.count() == 0) return;
  const auto at = [](const auto& view, const Walk<3>& w, int k) {
    return reinterpret_cast<char*>(view.data) + w.offset(k);
  };
  // Lanes go together where their elements do, and a few elsewhere: steps of one lane wait for each
  // other.
  constexpr int64_t kTile = 64;
  using One = std::integral_constant<int64_t, 1>;
  using Few = std::integral_constant<int64_t, 4>;
  const int64_t grain = grain_of_steps(8 * n);
  parallel_for(0, walk.count(), grain, [&](int64_t begin, int64_t end) {
    for_each_run(walk, begin, end, [&](const Walk<3>& w, int64_t lanes) {
      const int64_t li = w.stride(0), lo = w.stride(1), lt = w.stride(2);
      std::vector<State> states;
      const auto group = [&](int64_t first, auto width) {
        const char* in = at(a.in, w, 0) + first * li;
        char *out = at(a.out, w, 1) + first * lo, *more = at(third, w, 2) + first * lt;
        const int64_t begin = a.reverse ? n - 1 : 0, sign = a.reverse ? -1 : 1;
        in += begin * bi, out += begin * bo, more += begin * bt;
        const auto next = [&](State& state, int64_t k) {
          state.next(*reinterpret_cast<const T*>(in + k * li), *reinterpret_cast<T*>(out + k * lo),
                     reinterpret_cast<Third*>(more + k * lt));
        };
        constexpr bool kOne = std::is_same_v<decltype(width), One>;
        constexpr bool kFew = std::is_same_v<decltype(width), Few>;
        State s0 = initial, s1 = initial, s2 = initial, s3 = initial;  // in registers
        if constexpr (!kOne && !kFew) states.assign(size_t(width), initial);
        for (int64_t step = 0; step < n; ++step) {
          if constexpr (kOne) {
            next(s0, 0);
          } else if constexpr (kFew) {
            next(s0, 0), next(s1, 1), next(s2, 2), next(s3, 3);
          } else {
            for (int64_t k = 0; k < width; ++k) next(states[size_t(k)], k);
          }
          in += sign * bi, out += sign * bo, more += sign * bt;
        }
      };
      const bool beside = lanes > 1 && std::abs(li) < std::abs(bi);
      int64_t first = 0;
      if (!beside) {
        for (; first + Few::value <= lanes; first += Few::value) group(first, Few());
        for (; first < lanes; ++first) group(first, One());
      }
      for (; first < lanes; first += kTile) group(first, std::min(kTile, lanes - first));
    });
  });
}

template <class T>
void scan_linear(const ScanArgs& a) {
  const prim::View& factors = a.factors;
  const int64_t order = factors.rank() > a.in.rank() ? factors.sizes[a.in.rank()] : 1;
  ARETE_ASSERT(order >= 1 && order <= 32 && (order == 1 || factors.strides[a.in.rank()] == 1));
  switch (order) {
    case 1:
      return scan_states<LinearState<T, 1>, T>(a, factors);
    case 2:
      return scan_states<LinearState<T, 2>, T>(a, factors);
    default:
      return scan_states<LinearState<T, 0>, T>(a, factors, {.order = order});
  }
}

template <template <class> class M, class T>
void scan_as(const ScanArgs& a) {
  constexpr int64_t kSize = sizeof(T);
  const bool scalar = a.in.rank() == 0;
  const int64_t n = scalar ? 1 : a.in.sizes[a.dim];
  int64_t si = scalar ? 1 : a.in.strides[a.dim], so = scalar ? 1 : a.out.strides[a.dim];
  const Walk<2> walk(a.in.sizes, a.dim, {&a.in, &a.out});
  if (n == 0 || walk.count() == 0) return;
  const T* in = a.in.as<T>();
  T* out = a.out.as<T>();
  if (a.reverse) {
    in += (n - 1) * si;
    out += (n - 1) * so;
    si = -si;
    so = -so;
  }
  const auto input = [&](const Walk<2>& w) { return in + w.offset(0) / kSize; };
  const auto output = [&](const Walk<2>& w) { return out + w.offset(1) / kSize; };

  if (n >= (1 << 16) && walk.count() < 2 * num_threads()) {
    for_each_run(walk, 0, walk.count(), [&](const Walk<2>& w, int64_t lanes) {
      for (int64_t l = 0; l < lanes; ++l)
        scan_long<M>(input(w) + l * w.stride(0) / kSize, output(w) + l * w.stride(1) / kSize, n, si,
                     so);
    });
    return;
  }
  // Grains in multiples of a tile keep neighbouring lanes together.
  const int64_t grain = std::max<int64_t>(grain_of_steps(n), std::abs(si) == 1 ? 1 : 64);
  parallel_for(0, walk.count(), grain, [&](int64_t begin, int64_t end) {
    for_each_run(walk, begin, end, [&](const Walk<2>& w, int64_t lanes) {
      if (w.stride(0) == kSize && w.stride(1) == kSize && lanes > 1) {
        columns<M>(input(w), output(w), n, lanes, si, so);
        return;
      }
      for (int64_t l = 0; l < lanes; ++l)
        run<M>(input(w) + l * w.stride(0) / kSize, output(w) + l * w.stride(1) / kSize, n, si, so,
               M<T>::identity());
    });
  });
}

}  // namespace

void CpuBackend::scan(const ScanArgs& args) {
  if (args.in.dtype != args.out.dtype) {  // convert first, then scan in place
    copy({args.out, args.in});
    ScanArgs in_place = args;
    in_place.in = args.out;
    return scan(in_place);
  }
  const bool logic = args.monoid == Monoid::all || args.monoid == Monoid::any;
  ARETE_ASSERT(!logic || args.out.dtype == kBool);
  if (args.factors || args.logarithmic || args.indices) {
    visit_dtype(args.out.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      if (args.factors) {
        if constexpr (is_floating(dtype_of<T>) || is_complex(dtype_of<T>))
          return scan_linear<T>(args);
      } else if (args.logarithmic) {
        if constexpr (is_floating(dtype_of<T>))
          return scan_states<LogSumState<T>, T>(args, args.in);
      } else if constexpr (!is_complex(dtype_of<T>)) {
        return args.monoid == Monoid::max
                   ? scan_states<PlacedState<T, true>, T>(args, args.indices)
                   : scan_states<PlacedState<T, false>, T>(args, args.indices);
      }
      throw NotImplementedError("scan", "not for this dtype").got(name_of(args.out.dtype));
    });
    return;
  }
  visit_dtype(args.out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    switch (args.monoid) {
      case Monoid::any:
      case Monoid::sum:
        return scan_as<Sum, T>(args);
      case Monoid::all:
      case Monoid::prod:
        return scan_as<Product, T>(args);
      case Monoid::min:
      case Monoid::max:
        if constexpr (is_complex(dtype_of<T>)) {
          throw NotImplementedError("scan", "complex numbers have no order")
              .got(name_of(args.out.dtype));
        } else {
          return args.monoid == Monoid::min ? scan_as<Minimum, T>(args) : scan_as<Maximum, T>(args);
        }
    }
  });
}

}  // namespace arete::cpu
