// Products and log-sum-exp.
#include "arete/ops/autocast.h"
#include "arete/ops/complex.h"
#include "arete/ops/over.h"
#include "arete/ops/reduce_family.h"
#include "arete/ops/rows.h"

namespace arete::ops {

namespace {

using expr::Value;
using prim::Monoid;

// Each factor's gradient is the product of the others. Dividing by the factor gives that only
// where nothing is zero, so it is what is before a factor times what is after it.
Tensor product_of_others(const Tensor& flat) {
  const int64_t n = flat.size(-1);
  const Tensor one = ones_like(flat.narrow(-1, 0, 1));
  // What is used up makes room for the next.
  Tensor after = cat({flat.narrow(-1, 1, n - 1), one}, -1);
  after = after.flip({-1});
  after = after.cumprod(-1);
  after = after.flip({-1});
  Tensor before = cat({one, flat.narrow(-1, 0, n - 1)}, -1);
  before = before.cumprod(-1);
  return call_over(std::move(before), "mul", {after});
}

uint32_t product_dims(const Call& c) {
  const Tensor& x = c.tensor(0);
  if (!c.has(1)) return (1u << x.dim()) - 1;
  const int d = normalize_dim(c.integer(1), int(x.dim()), "prod");
  return x.dim() ? 1u << d : 0;
}

// Halves are multiplied until one row is left: as many products as there are factors.
Results complex_product(const Call& c) {
  const Tensor x = c.has(3) ? c.tensor(0).to(c[3].dtype()) : c.tensor(0);
  const bool whole = !c.has(1) || x.dim() == 0;
  const Tensor rows = whole ? x.reshape({-1}) : x.movedim(c.integer(1), -1);
  const Shape sizes = reduced_sizes(x.sizes(), product_dims(c), c.boolean(2));
  if (rows.size(-1) == 0) return {rows.sum(-1).add(Scalar(1)).reshape(sizes)};
  Tensor y = rows;
  while (y.size(-1) > 1) {
    const int64_t n = y.size(-1), half = n / 2;
    const Tensor z = y.narrow(-1, 0, half) * y.narrow(-1, half, half);
    y = n % 2 ? cat({z, y.narrow(-1, n - 1, 1)}, -1) : z;
  }
  return {y.reshape(sizes)};
}

const OpRecord& prod_op =
    define("prod(Tensor self, int? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor")
        .autocast(Autocast::f32)
        .doc("The product along dim, or of everything.")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          const DType t = c.has(3)                         ? c[3].dtype()
                          : is_integral_or_bool(x.dtype()) ? kInt64
                                                           : x.dtype();
          out.push_back({reduced_sizes(x.sizes(), product_dims(c), c.boolean(2)), t});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          Tensor x = c.tensor(0);
          if (x.dtype() != out[0].dtype()) x = plain(x, out[0].dtype());
          const uint32_t dims = product_dims(c);
          const prim::View in = view_of(x);
          p.reduce({Monoid::prod,
                    x.sizes(),
                    dims,
                    {&in, 1},
                    view_of(out[0], keepdim_layout(out[0], x.sizes(), dims)),
                    nullptr,
                    {},
                    nullptr,
                    {}});
        })
        .complex(complex_product)
        .grad(
            [](const GradCall& g) -> TensorList {
              const Tensor x = g.input(0).to(g.grad().dtype());
              if (x.numel() == 0) return {zeros(x.sizes(), g.input(0).options())};
              const bool whole = g.arg(1).is_none() || x.dim() == 0;
              const Tensor flat = whole ? x.reshape({-1}) : x.movedim(g.integer(1), -1);
              Tensor dy = g.grad();
              if (whole)
                dy = dy.reshape({});
              else if (g.boolean(2))
                dy = dy.squeeze(g.integer(1));
              const Tensor dx = call_over(product_of_others(flat), "mul", {dy.unsqueeze(-1)});
              return {(whole ? dx.reshape(x.sizes()) : dx.movedim(-1, g.integer(1)))
                          .to(g.input_dtype(0))};
            },
            1);

const OpRecord& logsumexp_op =
    define("logsumexp(Tensor input, int[] dim, bool keepdim=False) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("log(sum(exp(x))) without overflow.")
        .compose([](const Call& c) -> Results {
          const Tensor x = is_integral_or_bool(c.tensor(0).dtype())
                               ? c.tensor(0).to(default_dtype())
                               : c.tensor(0);
          const uint32_t dims = reduced_dims(c, 1);
          if (x.numel() == 0) return {x.exp().sum(c.ints(1), c.boolean(2)).log()};
          Shape list;
          for (int d = 0; d < int(x.dim()); ++d)
            if (dims >> d & 1) list.push_back(d);
          if (!is_complex(x.dtype())) {
            static auto* const cache = new RowProgramCache;
            const RowProgramPtr& program =
                cache->get(pack_key({int(x.dtype())}), {x.dtype()}, {}, {x.dtype()},
                           [](Rows& rows, std::span<const expr::Value> v) {
                             const expr::Value top = rows.reduce(prim::Monoid::max, v[0], false);
                             const expr::Value shift = where(is_inf(top), 0.0, top);
                             return std::vector{log(rows.sum(exp(v[0] - shift))) + shift};
                           });
            const Tensor y = apply_rows(program, {&x, 1}, {}, list, c.name())[0];
            return {c.boolean(2) ? y : y.view(reduced_sizes(x.sizes(), dims, false))};
          }
          // An infinite maximum must not give inf - inf.
          const Tensor top = real(x.detach()).amax(list, true);
          const Tensor shift = arete::where(top.isfinite(), top, 0);
          const Tensor y = (x - shift).exp().sum(list, true).log() + shift;
          return {c.boolean(2) ? y : y.reshape(reduced_sizes(x.sizes(), dims, false))};
        });

}  // namespace
}  // namespace arete::ops

namespace arete {
Tensor prod(const Tensor& self) {
  return ops::call(ops::prod_op, {self, std::nullopt, false, std::nullopt});
}
Tensor prod(const Tensor& self, int64_t dim, bool keepdim) {
  return ops::call(ops::prod_op, {self, dim, keepdim, std::nullopt});
}
Tensor logsumexp(const Tensor& self, IntList dims, bool keepdim) {
  return ops::call(ops::logsumexp_op, {self, dims, keepdim});
}
Tensor logsumexp(const Tensor& self, int64_t dim, bool keepdim) {
  return logsumexp(self, IntList{dim}, keepdim);
}
Tensor Tensor::prod() const { return arete::prod(*this); }
Tensor Tensor::prod(int64_t dim, bool keepdim) const { return arete::prod(*this, dim, keepdim); }
Tensor Tensor::logsumexp(IntList dims, bool keepdim) const {
  return arete::logsumexp(*this, dims, keepdim);
}
Tensor Tensor::logsumexp(int64_t dim, bool keepdim) const {
  return arete::logsumexp(*this, dim, keepdim);
}
}  // namespace arete

ARETE_FAMILY(product)
