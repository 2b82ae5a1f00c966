// Writing and combining elements at computed positions.
#include <algorithm>
#include <cstdlib>
#include <type_traits>

#include "arete/backend/cpu/combine.h"
#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/indexing.h"
#include "arete/backend/cpu/kernels/kernel_table.h"
#include "arete/backend/cpu/walk.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"
#include "arete/core/complex.h"
#include "arete/prim/decompose/scatter_internal.h"

namespace arete::cpu {
namespace {

using prim::ScatterArgs;
using prim::ScatterMode;

// Lanes along the dimension are independent and go to different threads; within a lane elements
// are taken in order. That makes every mode deterministic (set: the last one stays).
// `whole`: what does it for n neighbours, if there is anything faster than one by one.
template <class T, class Op>
void scatter_lanes(const ScatterArgs& a, IndexCheck& check, Op op,
                   kernels::Kernel whole = nullptr) {
  const bool scalar = a.out.rank() == 0;
  const int64_t n = scalar ? 1 : a.index.sizes[a.dim];
  const int64_t so = scalar ? 0 : a.out.strides[a.dim], si = scalar ? 0 : a.index.strides[a.dim],
                ss = scalar ? 0 : a.src.strides[a.dim];
  const Walk<3> walk(a.index.sizes, a.dim, {&a.out, &a.index, &a.src});
  const Positions positions(a.index, a.dim, walk.count(), check);
  parallel_for(0, walk.count(), grain_of_steps(n * 2), [&](int64_t begin, int64_t end) {
    for_each_run(walk, begin, end, [&](const Walk<3>& w, int64_t run) {
      T* out = reinterpret_cast<T*>(a.out.data + w.offset(0));
      const int64_t* index = reinterpret_cast<const int64_t*>(a.index.data + w.offset(1));
      const T* src = reinterpret_cast<const T*>(a.src.data + w.offset(2));
      const int64_t lo = w.stride(0) / int64_t(sizeof(T)), li = w.stride(1) / 8,
                    ls = w.stride(2) / int64_t(sizeof(T));
      // The inner loop goes where the source is closest together, or as close and for longer.
      if (run > 1 && (std::abs(ls) < std::abs(ss) || (ls == ss && run > n))) {
        for (int64_t i = 0; i < n; ++i) {
          const T* const from = src + i * ss;
          if (li == 0) {  // the same index for the whole run
            const int64_t k = check.resolve(index[i * si]);
            if (k < 0) continue;
            T* const to = out + k * so;
            if (whole && lo == 1 && ls == 1)
              whole(to, to, from, nullptr, run);
            else
              for (int64_t l = 0; l < run; ++l) op(to[l * lo], from[l * ls]);
            continue;
          }
          positions.visit(index + i * si, li, [&](auto position) {
            for (int64_t l = 0; l < run; ++l)
              if (const int64_t k = position(l); k >= 0) op(out[l * lo + k * so], from[l * ls]);
          });
        }
        return;
      }
      for (int64_t l = 0; l < run; ++l) {
        T* const to = out + l * lo;
        const T* const from = src + l * ls;
        positions.visit(index + l * li, si, [&](auto position) {
          if (so == 1 && ss == 1) {
            for (int64_t i = 0; i < n; ++i)
              if (const int64_t k = position(i); k >= 0) op(to[k], from[i]);
          } else if (ss == 0 && n > 0) {  // the same for all, which is not read again
            const T value = *from;
            for (int64_t i = 0; i < n; ++i)
              if (const int64_t k = position(i); k >= 0) op(to[k * so], value);
          } else {
            for (int64_t i = 0; i < n; ++i)
              if (const int64_t k = position(i); k >= 0) op(to[k * so], from[i * ss]);
          }
        });
      }
    });
  });
}

// Products with factors, which lie as the index does; a factor of zero adds nothing, whatever it is
// of: -0, which leaves -0 as it is, too. No branch: which factors are zero cannot be guessed. Nor
// may an index beside one be out of range. Where many lie side by side products are made by
// vectors, some of them ahead.
template <class T>
void scatter_products(const ScatterArgs& a, IndexCheck& check) {
  const int64_t n = a.index.sizes[a.dim], so = a.out.strides[a.dim], si = a.index.strides[a.dim],
                ss = a.src.strides[a.dim];
  constexpr int64_t kMany = 32;  // that calls of kernels pay for
  constexpr int kType = sizeof(T) == 4 ? kernels::t_f32 : kernels::t_f64;
  const kernels::Kernel multiply = kernels::table().binary[kernels::op_mul][kType][kernels::vv];
  const kernels::ChooseKernel without = kernels::table().choose[kernels::compare_eq][kType][0b0110];
  const Walk<3> walk(a.index.sizes, a.dim, {&a.out, &a.index, &a.src});
  parallel_for(0, walk.count(), grain_of_steps(n * 2), [&](int64_t begin, int64_t end) {
    for_each_run(walk, begin, end, [&](const Walk<3>& w, int64_t run) {
      for (int64_t l = 0; l < run; ++l) {
        const int64_t at = (w.offset(1) + l * w.stride(1)) / 8;
        T* out = reinterpret_cast<T*>(a.out.data + w.offset(0) + l * w.stride(0));
        const int64_t* index = a.index.as<int64_t>() + at;
        const T* factors = a.factors.as<T>() + at;
        const T* src = reinterpret_cast<const T*>(a.src.data + w.offset(2) + l * w.stride(2));
        if (n >= kMany && so == 1 && si == 1 && ss == 1) {
          constexpr int64_t kAhead = 512;
          constexpr T kZero = 0, kNothing = -0.0;
          T products[kAhead];
          for (int64_t from = 0; from < n; from += kAhead) {
            const int64_t count = std::min(kAhead, n - from);
            multiply(products, factors + from, src + from, nullptr, count);
            without(products, factors + from, &kZero, &kNothing, products, count);
            for (int64_t i = 0; i < count; ++i)
              if (const int64_t k = check.resolve(index[from + i]); k >= 0) [[likely]]
                out[k] += products[i];
          }
          continue;
        }
        const auto add = [&](int64_t of_out, int64_t of_index, int64_t of_src) {
          for (int64_t i = 0; i < n; ++i) {
            const T f = factors[i * of_index], product = f * src[i * of_src];
            if (const int64_t k = check.resolve(index[i * of_index]); k >= 0) [[likely]]
              out[k * of_out] += f == 0 ? T(-0.0) : product;
          }
        };
        so == 1 && si == 1 && ss == 1 ? add(1, 1, 1) : add(so, si, ss);
      }
    });
  });
}

template <class T>
void scatter_combine(const ScatterArgs& a, IndexCheck& check) {
  using C = CombineType<T>;
  switch (a.mode) {
    case ScatterMode::add: {
      kernels::Kernel sum = nullptr;
      if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>)
        sum =
            kernels::table().binary[kernels::op_add]
                                   [sizeof(T) == 4 ? kernels::t_f32 : kernels::t_f64][kernels::vv];
      return scatter_lanes<T>(
          a, check, [](T& o, T s) { o = T(wrapping_add(C(o), C(s))); }, sum);
    }
    case ScatterMode::mul:
      return scatter_lanes<T>(a, check, [](T& o, T s) { o = T(wrapping_mul(C(o), C(s))); });
    case ScatterMode::min:
    case ScatterMode::max:
      if constexpr (is_complex(dtype_of<T>)) {
        throw NotImplementedError(a.op, "complex numbers have no order").argument("reduce");
      } else if (a.mode == ScatterMode::min) {
        return scatter_lanes<T>(a, check, [](T& o, T s) { o = T(nan_min(C(o), C(s))); });
      } else {
        return scatter_lanes<T>(a, check, [](T& o, T s) { o = T(nan_max(C(o), C(s))); });
      }
    case ScatterMode::set:
      break;
  }
  ARETE_BUG("scatter mode");
}

}  // namespace

void CpuBackend::scatter(const ScatterArgs& args) {
  if (args.places) return prim::scatter_to_stored_places(*this, args);
  ARETE_ASSERT(args.index.dtype == kInt64 && args.src.dtype == args.out.dtype);
  ARETE_ASSERT(args.out.rank() == args.index.rank() && args.src.rank() == args.index.rank());
  IndexCheck check(args.out.rank() == 0 ? 1 : args.out.sizes[args.dim]);
  if (args.factors) {
    ARETE_ASSERT(args.mode == ScatterMode::add && args.factors.dtype == args.out.dtype &&
                 args.out.rank() > 0);
    ARETE_ASSERT(args.out.dtype == kFloat32 || args.out.dtype == kFloat64);
    ARETE_ASSERT(std::ranges::equal(args.factors.sizes, args.index.sizes) &&
                 std::ranges::equal(args.factors.strides, args.index.strides));
    args.out.dtype == kFloat64 ? scatter_products<double>(args, check)
                               : scatter_products<float>(args, check);
  } else if (args.mode == ScatterMode::set) {
    visit_size(size_of(args.out.dtype), [&](auto tag) {
      using T = typename decltype(tag)::type;
      scatter_lanes<T>(args, check, [](T& o, T s) { o = s; });
    });
  } else {
    visit_dtype(args.out.dtype,
                [&](auto tag) { scatter_combine<typename decltype(tag)::type>(args, check); });
  }
  check.raise(args.op, args.dim);
}

}  // namespace arete::cpu
