// Parts of complex tensors, and complex tensors made of parts.
#include "arete/ops/complex.h"

#include "arete/expr/program_cache.h"
#include "arete/ops/autocast.h"
#include "arete/ops/complex_form.h"
#include "arete/ops/complex_internal.h"
#include "arete/ops/creation.h"
#include "arete/ops/fft.h"
#include "arete/ops/numeric.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/pointwise_family.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap_rules_internal.h"

namespace arete {
namespace ops {
namespace {

void check_complex(const Call& c, const char* name) {
  ARETE_CHECK(is_complex(c.tensor(0).dtype()),
              TypeError(c.name(), std::string(name) + " is only supported for complex tensors")
                  .got(describe(c.tensor(0))));
}

Layout view_as_real_layout(const Call& c) {
  check_complex(c, "view_as_real");
  return layout_of_parts(c.tensor(0).layout());
}

Layout view_as_complex_layout(const Call& c) {
  const Tensor& x = c.tensor(0);
  ARETE_CHECK(x.dtype() == kFloat32 || x.dtype() == kFloat64,
              TypeError(c.name(), "view_as_complex is only supported for floating point tensors")
                  .expected("float32 or float64")
                  .got(describe(x)));
  ARETE_CHECK(x.dim() > 0, ValueError(c.name(), "Input tensor must have one or more dimensions"));
  ARETE_CHECK(x.size(-1) == 2,
              ValueError(c.name(), "Tensor must have a last dimension of size 2").got(describe(x)));
  Layout l = x.layout();
  ARETE_CHECK(l.strides.back() == 1,
              ValueError(c.name(), "Tensor must have a last dimension with stride 1")
                  .hint("make it contiguous()"));
  l.sizes.pop_back();
  l.strides.pop_back();
  for (size_t d = 0; d < l.strides.size(); ++d) {
    ARETE_CHECK(l.strides[d] % 2 == 0 || l.sizes[d] <= 1,
                ValueError(c.name(),
                           "Tensor must have a stride divisible by 2 for all but last "
                           "dimension")
                    .hint("make it contiguous()"));
    l.strides[d] /= 2;
  }
  ARETE_CHECK(
      l.offset % 2 == 0,
      ValueError(c.name(), "Tensor must have a storage_offset divisible by 2").hint("clone() it"));
  l.offset /= 2;
  return l;
}

std::vector<Layout> complex_part_layouts(const Call& c) {
  check_complex(c, "complex_parts");
  const Tensor& t = c.tensor(0);
  return {part_of(t, 0).layout(), part_of(t, 1).layout()};
}

using expr::Value;
using Result = PointwiseDef::Result;

const std::vector<DType> kComplexes{kComplex64, kComplex128};
const std::vector<DType> kReals{kFloat32, kFloat64, kBFloat16, kFloat16, kInt32, kInt64};

// ---- views of parts

const OpRecord& view_as_real_op =
    define("view_as_real(Tensor self) -> Tensor")
        .doc("Complex numbers seen as pairs of real ones: (*) to (*, 2), in the same memory.")
        .surface(Surface::function)
        .view(view_as_real_layout)
        .view_dtype(real_of)
        .grad([](const GradCall& g) -> TensorList {
          const Tensor& grad = g.grad();
          return {grad.is_contiguous() ? view_as_complex(grad) : view_as_complex_copy(grad)};
        })
        .dtypes(kComplexes);

const OpRecord& view_as_complex_op =
    define("view_as_complex(Tensor self) -> Tensor")
        .autocast(autocast_on_cpu(Autocast::f32))
        .doc("Pairs of real numbers seen as complex ones: (*, 2) to (*), in the same memory.")
        .surface(Surface::function)
        .view(view_as_complex_layout)
        .view_dtype(complex_of)
        .grad([](const GradCall& g) -> TensorList { return {view_as_real(g.grad())}; })
        .dtypes({kFloat32, kFloat64});

const OpRecord& complex_parts_op =
    define("complex_parts(Tensor self) -> (Tensor real, Tensor imag)")
        .doc("The real and imaginary parts, views.")
        .surface(Surface::internal)
        .views(complex_part_layouts)
        .view_dtype(real_of)
        .grad([](const GradCall& g) -> TensorList {
          const Tensor &re = g.grad(0), &im = g.grad(1);
          const Tensor none = re.defined() && im.defined()
                                  ? Tensor()
                                  : zeros(g.input_sizes(0), (re.defined() ? re : im).options());
          return {complex(re.defined() ? re : none, im.defined() ? im : none)};
        })
        .dtypes(kComplexes);

// ---- of two real tensors

void complex_infer(const Call& c, OutputSpecs& out) {
  const Tensor &re = c.tensor(0), &im = c.tensor(1);
  const auto fits = [](DType t) { return t == kFloat32 || t == kFloat64; };
  ARETE_CHECK(fits(re.dtype()) && fits(im.dtype()),
              TypeError(c.name(), "Expected both inputs to be Float or Double tensors")
                  .got(describe(re) + " and " + describe(im)));
  ARETE_CHECK(re.dtype() == im.dtype(),
              TypeError(c.name(), "Expected object of scalar type " +
                                      std::string(name_of(re.dtype())) + " but got " +
                                      std::string(name_of(im.dtype())) + " for second argument"));
  out.push_back({broadcast_shapes(re.sizes(), im.sizes(), c.name()), complex_of(re.dtype())});
}
// The parts in one kernel: they lie in each other.
template <bool kPolar>
void complex_lower(const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
  static auto& cache = *new expr::ProgramCache;
  const DType t = c.tensor(0).dtype();
  const Tensor re = part_of(out[0], 0), im = part_of(out[0], 1);
  const Layout from[] = {expand(c.tensor(0).layout(), re.sizes()),
                         expand(c.tensor(1).layout(), re.sizes())};
  const prim::View inputs[] = {view_of(c.tensor(0), from[0]), view_of(c.tensor(1), from[1])},
                   outputs[] = {view_of(re), view_of(im)};
  p.pointwise({&cache.get(uint64_t(t), {t, t}, {}, {t, t},
                          [](std::span<const Value> v) {
                            return kPolar ? std::vector{v[0] * cos(v[1]), v[0] * sin(v[1])}
                                          : std::vector{v[0], v[1]};
                          }),
               inputs,
               outputs,
               {}});
}

const OpRecord& complex_op =
    define("complex(Tensor real, Tensor imag) -> Tensor")
        .doc("Complex numbers with the given parts.")
        .surface(Surface::function)
        .batched(vmaps::elementwise)
        .infer(complex_infer)
        .lower(complex_lower<false>)
        .grad([](const GradCall& g) -> TensorList {
          const Results both = parts_of(g.grad());
          return {sum_to_size(both[0], g.input_sizes(0)), sum_to_size(both[1], g.input_sizes(1))};
        })
        .dtypes({kFloat32, kFloat64});

const OpRecord& polar_op =
    define("polar(Tensor abs, Tensor angle) -> Tensor")
        .autocast(autocast_on_cpu(Autocast::f32))
        .doc("Complex numbers with the given sizes and angles.")
        .surface(Surface::function)
        .batched(vmaps::elementwise)
        .infer(complex_infer)
        .lower(complex_lower<true>)
        .grad(
            [](const GradCall& g) -> TensorList {
              const Results both = parts_of(g.grad());
              const Tensor cosine = g.input(1).cos(), sine = g.input(1).sin();
              TensorList r(2);
              if (g.needs(0))
                r[0] = sum_to_size(both[0] * cosine + both[1] * sine, g.input_sizes(0));
              if (g.needs(1))
                r[1] =
                    sum_to_size(g.input(0) * (both[1] * cosine - both[0] * sine), g.input_sizes(1));
              return r;
            },
            0b11)
        .dtypes({kFloat32, kFloat64});

// ---- of any tensor

Tensor part(const Tensor& t, int64_t which) { return view_as_real(t).select(-1, which); }

const OpRecord& real_op = define("real(Tensor self) -> Tensor")
                              .doc("The real part, a view; real tensors themselves.")
                              .surface(Surface::function)
                              .compose([](const Call& c) -> Results {
                                const Tensor& t = c.tensor(0);
                                return {is_complex(t.dtype()) ? part(t, 0) : t};
                              })
                              .dtypes(kReals);

const OpRecord& imag_op =
    define("imag(Tensor self) -> Tensor")
        .doc("The imaginary part, a view.")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results {
          ARETE_CHECK(
              is_complex(c.tensor(0).dtype()),
              TypeError(c.name(), "imag is not implemented for tensors with non-complex dtypes.")
                  .got(describe(c.tensor(0))));
          return {part(c.tensor(0), 1)};
        })
        .dtypes(kComplexes);

const OpRecord& conjugate_op = define("conjugate(Tensor self) -> Tensor")
                                   .doc("The conjugate numbers, in new memory.")
                                   .surface(Surface::internal)
                                   .unary([](Value x) { return x; }, Result::promote)
                                   .complex(of_complex([](Complex z) { return conj(z); }))
                                   .dtypes(kReals);

const OpRecord& conj_physical_op =
    define("conj_physical(Tensor self) -> Tensor")
        .doc("The conjugate numbers, in new memory; real tensors themselves.")
        .compose([](const Call& c) -> Results {
          const Tensor& t = c.tensor(0);
          return {is_complex(t.dtype()) ? call(conjugate_op, {t}) : t};
        })
        .in_place([](Tensor& self, const Call&) {
          if (is_complex(self.dtype()))
            call_in_place(self, conjugate_op, {self});
          else
            self.bump_version();
        })
        .dtypes(kReals);

const OpRecord& conj_op = define("conj(Tensor self) -> Tensor")
                              .doc("The conjugate numbers; real tensors themselves.")
                              .compose([](const Call& c) -> Results {
                                const Tensor& t = c.tensor(0);
                                return {is_complex(t.dtype()) ? call(conjugate_op, {t}) : t};
                              })
                              .dtypes(kReals);

const OpRecord& resolve_conj_op =
    define("resolve_conj(Tensor self) -> Tensor")
        .doc("The tensor itself: conjugates are never delayed.")
        .compose([](const Call& c) -> Results { return {c.tensor(0)}; })
        .dtypes(kReals);

const OpRecord& isreal_op =
    define("isreal(Tensor self) -> Tensor")
        .doc("True where the imaginary part is zero: everywhere for real dtypes.")
        .compose([](const Call& c) -> Results {
          const Tensor& t = c.tensor(0);
          if (is_complex(t.dtype())) return {part(t.detach(), 1).eq(0)};
          return {ones(t.sizes(), TensorOptions(kBool, t.device()))};
        })
        .dtypes(kReals);

}  // namespace

Results parts_of(const Tensor& t) { return call_all(complex_parts_op, {t}); }

}  // namespace ops

Tensor view_as_real(const Tensor& self) { return ops::call(ops::view_as_real_op, {self}); }
Tensor view_as_complex(const Tensor& self) { return ops::call(ops::view_as_complex_op, {self}); }
Tensor real(const Tensor& self) { return ops::call(ops::real_op, {self}); }
Tensor imag(const Tensor& self) { return ops::call(ops::imag_op, {self}); }
Tensor conj(const Tensor& self) { return ops::call(ops::conj_op, {self}); }
Tensor conj_physical(const Tensor& self) { return ops::call(ops::conj_physical_op, {self}); }
Tensor resolve_conj(const Tensor& self) { return ops::call(ops::resolve_conj_op, {self}); }
Tensor complex(const Tensor& real, const Tensor& imag) {
  return ops::call(ops::complex_op, {real, imag});
}
Tensor polar(const Tensor& abs, const Tensor& angle) {
  return ops::call(ops::polar_op, {abs, angle});
}
Tensor isreal(const Tensor& self) { return ops::call(ops::isreal_op, {self}); }

}  // namespace arete

ARETE_FAMILY(complex)
