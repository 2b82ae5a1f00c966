// Complex numbers as pairs of real ones, and the Fourier transform that all others are made of.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "arete/core/modes.h"
#include "arete/ops/call.h"
#include "arete/ops/complex_internal.h"
#include "arete/ops/fft.h"
#include "arete/ops/fft_internal.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap_rules_internal.h"
#include "arete/ops/window_util.h"

namespace arete {
namespace ops {

// ---- for batches (Note [Batching rules])

namespace vmaps {
namespace {
Results fourier_rule(const Rewriting& r) {
  if (r.is_mapped(1)) return one_by_one(r);
  Changed call(r);
  Shape dims;
  for (int64_t d : r.call.ints(3)) dims.push_back(d + 1);
  call.set(3, std::move(dims));
  return call.run();
}
}  // namespace
}  // namespace vmaps
namespace {

const OpRecord& view_as_real_copy_op =
    define("view_as_real_copy(Tensor self) -> Tensor")
        .doc("Complex numbers as pairs of real ones: (*) to (*, 2).")
        .surface(Surface::function)
        .batched(vmaps::elementwise)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          ARETE_CHECK(is_complex(x.dtype()),
                      TypeError(c.name(), "view_as_real is only supported for complex tensors")
                          .got(describe(x)));
          Shape sizes(x.sizes());
          sizes.push_back(2);
          out.push_back({std::move(sizes), real_of(x.dtype())});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor from = parts_in(c.tensor(0));
          p.copy({view_of(out[0]), view_of(from)});
        })
        .grad([](const GradCall& g) -> TensorList { return {view_as_complex_copy(g.grad())}; })
        .dtypes({kComplex64, kComplex128});

const OpRecord& view_as_complex_copy_op =
    define("view_as_complex_copy(Tensor self) -> Tensor")
        .doc("Pairs of real numbers as complex ones: (*, 2) to (*).")
        .surface(Surface::function)
        .batched(vmaps::elementwise)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          ARETE_CHECK(
              x.dtype() == kFloat32 || x.dtype() == kFloat64,
              TypeError(c.name(), "view_as_complex is only supported for float32 and float64")
                  .got(describe(x)));
          ARETE_CHECK(
              x.dim() > 0 && x.size(-1) == 2,
              ValueError(c.name(), "Tensor must have a last dimension of size 2").got(describe(x)));
          out.push_back({Shape(x.sizes().first(x.sizes().size() - 1)), complex_of(x.dtype())});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor to = parts_in(out[0]);
          p.copy({view_of(to), view_of(c.tensor(0))});
        })
        .grad([](const GradCall& g) -> TensorList { return {view_as_real_copy(g.grad())}; })
        .dtypes({kFloat32, kFloat64});

// ---- transforms ----

// The strides of a result on a GPU: the transformed dimensions are the innermost ones, wherever
// they stand, as cuFFT writes them best (Note [Transforms by cuFFT]); the others have the input's
// order.
Shape inner_strides(const Tensor& x, IntList dims, IntList sizes, bool complex) {
  Shape order(sizes.size());
  std::iota(order.begin(), order.end(), int64_t(0));
  const auto place = [&](int64_t d) {
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) return 0;
    return d == dims.back() && !complex ? 2 : 1;
  };
  std::stable_sort(order.begin(), order.end(), [&](int64_t d, int64_t e) {
    return place(d) != place(e) ? place(d) < place(e) : x.stride(d) > x.stride(e);
  });
  return strides_in_order(order, sizes);
}

FourierKind kind_of(int64_t kind) { return FourierKind(kind); }
bool from_reals(FourierKind k) { return k == FourierKind::to_half || k == FourierKind::from_real; }
bool to_reals(FourierKind k) { return k == FourierKind::from_half || k == FourierKind::to_real; }
FourierKind reversed(FourierKind k) {
  switch (k) {
    case FourierKind::complex:
      return FourierKind::complex;
    case FourierKind::to_half:
      return FourierKind::from_half;
    case FourierKind::from_half:
      return FourierKind::to_half;
    case FourierKind::from_real:
      return FourierKind::to_real;
    case FourierKind::to_real:
      return FourierKind::from_real;
  }
  __builtin_unreachable();
}

Tensor call_fourier(const Tensor& x, const Tensor& window, FourierKind kind, IntList dims,
                    IntList points, IntList sizes, bool forward, double scale, bool weighted,
                    bool window_after);

const OpRecord& fourier_op =
    define(
        "fourier_transform(Tensor self, Tensor? window, int kind, int[] dim, int[] points, int[] "
        "size, bool forward, float scale, bool weighted, bool window_after) -> Tensor")
        .doc("Fourier transforms over several dimensions, of real or complex numbers.")
        .surface(Surface::internal)
        .batched(vmaps::fourier_rule)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          const FourierKind kind = kind_of(c.integer(2));
          ARETE_CHECK(from_reals(kind) ? x.dtype() == kFloat32 || x.dtype() == kFloat64
                                       : is_complex(x.dtype()),
                      TypeError(c.name(), from_reals(kind) ? "expected float32 or float64"
                                                           : "expected complex64 or complex128")
                          .got(describe(x)));
          const IntList dims = c.ints(3), points = c.ints(4), size = c.ints(5);
          ARETE_CHECK(!dims.empty() && points.size() == dims.size() && size.size() == dims.size(),
                      ValueError(c.name(), "expected as many points and sizes as dimensions"));
          Shape sizes(x.sizes());
          for (size_t i = 0; i < dims.size(); ++i) sizes[size_t(dims[i])] = size[i];
          if (c.has(1)) {
            const Tensor& window = c.tensor(1);
            const int64_t n = c.boolean(9) ? size.back() : x.size(dims.back());
            ARETE_CHECK(dims.size() == 1 && window.dim() == 1 && window.numel() == n &&
                            window.dtype() == real_of(x.dtype()),
                        ValueError(c.name(), "expected a window of " + std::to_string(n) +
                                                 " real numbers, as precise as the input")
                            .got(describe(window)));
            // Its gradient would need the input: callers multiply by such a window themselves.
            ARETE_ASSERT(!will_record(window));
          }
          std::optional<Shape> strides;
          if (x.device().is_cuda())
            strides = inner_strides(x, dims, sizes, kind == FourierKind::complex);
          out.push_back({std::move(sizes),
                         to_reals(kind) ? real_of(x.dtype()) : complex_of(x.dtype()),
                         std::move(strides)});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          using Kind = prim::FftArgs::Kind;
          const FourierKind kind = kind_of(c.integer(2));
          const auto side = [](const Tensor& t) { return is_complex(t.dtype()) ? parts_in(t) : t; };
          const Tensor in = side(c.tensor(0)), to = side(out[0]);
          const Tensor window = c.has(1) ? plain(c.tensor(1), c.tensor(1).dtype()) : Tensor();
          p.fft({kind == FourierKind::to_half     ? Kind::to_half
                 : kind == FourierKind::from_half ? Kind::from_half
                                                  : Kind::complex,
                 view_of(in), view_of(to), c.ints(3), c.ints(4), c.boolean(6), c.real(7),
                 c.boolean(8), window.defined() ? view_of(window) : prim::View(), c.boolean(9)});
        })
        // As maps of real numbers transforms are symmetric up to the sign of the exponent.
        .grad(
            [](const GradCall& g) -> TensorList {
              const FourierKind kind = reversed(kind_of(g.integer(2)));
              const bool half = kind == FourierKind::to_half || kind == FourierKind::from_half;
              Shape sizes;
              for (int64_t d : g.ints(3)) sizes.push_back(g.input_sizes(0)[size_t(d)]);
              return {call_fourier(g.grad(), g.has_input(1) ? g.input(1) : Tensor(), kind,
                                   g.ints(3), g.ints(4), sizes, !g.boolean(6), g.real(7),
                                   half && !g.boolean(8), !g.boolean(9)),
                      Tensor()};
            },
            0b10)
        .flops([](const Call& c) {
          double points = 1, sizes = 1;
          for (int64_t n : c.ints(4)) points *= double(n);
          for (int64_t d : c.ints(3)) sizes *= double(std::max<int64_t>(c.tensor(0).size(d), 1));
          const bool complex = kind_of(c.integer(2)) == FourierKind::complex;
          return (complex ? 5 : 2.5) * double(c.tensor(0).numel()) / sizes * points *
                 std::log2(std::max(points, 2.0));
        })
        .dtypes({kFloat32, kFloat64, kComplex64, kComplex128});

Tensor call_fourier(const Tensor& x, const Tensor& window, FourierKind kind, IntList dims,
                    IntList points, IntList sizes, bool forward, double scale, bool weighted,
                    bool window_after) {
  return call(fourier_op, {x, window, int64_t(kind), dims, points, sizes, forward, scale, weighted,
                           window_after});
}

}  // namespace

Tensor fourier_transform(const Tensor& x, FourierKind kind, IntList dims, IntList points,
                         bool forward, double scale, const Tensor& window) {
  Shape sizes(points);
  if (kind == FourierKind::to_half) sizes.back() = sizes.back() / 2 + 1;
  const bool after = to_reals(kind) || (kind == FourierKind::complex && !forward);
  if (window.defined()) {
    const bool fits = !will_record(window) && window.dtype() == real_of(x.dtype()) &&
                      window.device() == x.device();
    if (!fits && !after)
      return fourier_transform(x.mul(window), kind, dims, points, forward, scale, {});
    if (!fits) return fourier_transform(x, kind, dims, points, forward, scale, {}).mul(window);
  }
  return call_fourier(x, window, kind, dims, points, sizes, forward, scale, false, after);
}

}  // namespace ops

Tensor view_as_real_copy(const Tensor& self) {
  return ops::call(ops::view_as_real_copy_op, {self});
}
Tensor view_as_complex_copy(const Tensor& self) {
  return ops::call(ops::view_as_complex_copy_op, {self});
}

}  // namespace arete

ARETE_FAMILY(fft_core)
