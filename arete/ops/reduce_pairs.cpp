// Reductions made of others: extremes in pairs and of everything, and the reverse of broadcasting.
#include "arete/ops/reduce_family.h"

namespace arete {
namespace ops {
namespace {

const std::vector<DType> kReal{kFloat32, kFloat64, kBFloat16, kFloat16, kInt32, kInt64};

const OpRecord& max_op = define("max(Tensor self) -> Tensor")
                             .doc("The largest element; NaN wins.")
                             .compose([](const Call& c) -> Results { return {max(c.tensor(0))}; })
                             .dtypes(kReal);

const OpRecord& min_op = define("min(Tensor self) -> Tensor")
                             .doc("The smallest element; NaN wins.")
                             .compose([](const Call& c) -> Results { return {min(c.tensor(0))}; })
                             .dtypes(kReal);

const OpRecord& aminmax_op =
    define("aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)")
        .doc("Smallest and largest value, of everything or along dim; NaN wins.")
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          Shape dims;
          if (c.has(1)) {
            const int d = normalize_dim(c.integer(1), int(x.dim()), c.name());
            if (x.dim()) dims.push_back(d);
            ARETE_CHECK(
                x.dim() == 0 || x.size(d) > 0,
                IndexError(c.name(), "aminmax: Expected reduction dim " +
                                         std::to_string(c.integer(1)) + " to have non-zero size."));
          } else {
            ARETE_CHECK(x.numel() > 0,
                        ValueError(c.name(),
                                   "aminmax(): cannot compute aminmax over an empty dimension as "
                                   "the operation has no identity."));
          }
          return {amin(x, dims, c.boolean(2)), amax(x, dims, c.boolean(2))};
        })
        .dtypes(kReal);

const OpRecord& sum_to_size_op =
    define("sum_to_size(Tensor self, int[] size) -> Tensor")
        .doc("Summed down to sizes from which self's come by broadcasting.")
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const IntList sizes = c.ints(1);
          bool fits = int64_t(sizes.size()) <= x.dim();
          for (size_t k = 0; fits && k < sizes.size(); ++k) {
            const int64_t have = x.sizes()[size_t(x.dim()) - sizes.size() + k];
            fits = sizes[k] == have || sizes[k] == 1;
          }
          ARETE_CHECK(fits, ValueError(c.name(), "size {" + to_string(sizes) +
                                                     "} is not expandable to size {" +
                                                     to_string(x.sizes()) + "}."));
          return {sizes.empty() ? x.sum() : sum_to_size(x, sizes)};
        });

}  // namespace
}  // namespace ops

std::tuple<Tensor, Tensor> aminmax(const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  const auto r = ops::call_all(ops::aminmax_op, {self, dim, keepdim});
  return {r[0], r[1]};
}

}  // namespace arete

ARETE_FAMILY(reduce_pairs)
