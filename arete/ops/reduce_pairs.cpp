// Reductions made of others: extremes of everything, and the reverse of broadcasting.
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
}  // namespace arete

ARETE_FAMILY(reduce_pairs)
