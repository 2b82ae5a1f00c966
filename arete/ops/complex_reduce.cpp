// Reductions of complex tensors, composed of those of real ones.
#include <map>

#include "arete/ops/complex_internal.h"
#include "arete/ops/reduce_family.h"

namespace arete::ops {

namespace {

// The operator itself, of another first argument.
Tensor again(const Call& c, const Tensor& self) {
  SmallVector<Arg, 8> args(c.args().begin(), c.args().end());
  args[0] = Arg(self);
  return call(c.op, std::span<const Arg>(args.data(), args.size()));
}

Results mean(const Call& c) {
  const Tensor& x = c.tensor(0);
  const uint32_t dims = reduced_dims(c, 1);
  double n = 1;
  for (int d = 0; d < int(x.dim()); ++d)
    if (dims >> d & 1) n *= double(x.sizes()[size_t(d)]);
  return {call(*find_record("sum"), c.args()).div(Scalar(n))};
}

// E|x - mean|^2: the sum of the parts' variances.
Tensor variance(const Call& c) {
  const OpRecord& var = *find_record("var");
  const Results parts = parts_of(c.tensor(0));
  return again(Call(var, c.args()), parts[0]) + again(Call(var, c.args()), parts[1]);
}

// The last of the running products.
Results product(const Call& c) {
  const Tensor x = c.has(3) ? c.tensor(0).to(c[3].dtype()) : c.tensor(0);
  const bool whole = !c.has(1) || x.dim() == 0;
  const Tensor rows = whole ? x.reshape({-1}) : x.movedim(c.integer(1), -1);
  const uint32_t dims =
      whole ? (1u << x.dim()) - 1 : 1u << normalize_dim(c.integer(1), int(x.dim()), c.name());
  const Shape sizes = reduced_sizes(x.sizes(), dims, c.boolean(2));
  if (rows.size(-1) == 0) return {ones(sizes, x.options())};
  return {rows.cumprod(-1).select(-1, -1).reshape(sizes)};
}

Results of_truth(const Call& c) { return {again(c, c.tensor(0).ne(Scalar(0)))}; }

const std::map<std::string_view, Composition>& compositions() {
  static const std::map<std::string_view, Composition> all{
      {"mean", mean},
      {"var", [](const Call& c) -> Results { return {variance(c)}; }},
      {"std", [](const Call& c) -> Results { return {variance(c).sqrt()}; }},
      {"prod", product},
      {"norm", [](const Call& c) -> Results { return {again(c, c.tensor(0).abs())}; }},
      {"any", of_truth},
      {"all", of_truth},
      {"count_nonzero", of_truth},
  };
  return all;
}

}  // namespace

Composition complex_composition(std::string_view name) {
  const auto it = compositions().find(name);
  return it == compositions().end() ? nullptr : it->second;
}

}  // namespace arete::ops
