// Reductions made of others: extremes and moments in pairs, extremes of everything, and the reverse
// of broadcasting.
#include "arete/ops/reduce_family.h"

namespace arete {
namespace ops {
namespace {

const std::vector<DType> kReal{kFloat32, kFloat64, kBFloat16, kFloat16, kInt32, kInt64};

IntList dims_of(const Call& c, size_t i) { return c.has(i) ? c.ints(i) : IntList(); }

// The extreme value of the elements.
double extreme(const std::vector<double>& v, bool largest) {
  double best = v[0];
  for (double e : v)
    if (std::isnan(e) || (largest ? e > best : e < best)) best = e;
  return best;
}

const OpRecord& max_op =
    define("max(Tensor self) -> Tensor")
        .doc("The largest element; NaN wins.")
        .compose([](const Call& c) -> Results { return {max(c.tensor(0))}; })
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make_distinct({3, 4})}, "matrix"},
                                     {{m.make_distinct({})}, "0-d"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({0})}, ErrorKind::value, "Expected reduction dim to be specified"}};
        })
        .reference([](const Call& c) {
          return std::vector<Tensor>{
              from_values({extreme(values_of(c.tensor(0)), true)}, {}, c.tensor(0).dtype())};
        })
        .dtypes(kReal);

const OpRecord& min_op =
    define("min(Tensor self) -> Tensor")
        .doc("The smallest element; NaN wins.")
        .compose([](const Call& c) -> Results { return {min(c.tensor(0))}; })
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make_distinct({3, 4})}, "matrix"},
                                     {{m.make_distinct({})}, "0-d"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({0})}, ErrorKind::value, "Expected reduction dim to be specified"}};
        })
        .reference([](const Call& c) {
          return std::vector<Tensor>{
              from_values({extreme(values_of(c.tensor(0)), false)}, {}, c.tensor(0).dtype())};
        })
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
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make_distinct({3, 4}), std::nullopt, false}, "all"},
                                     {{m.make_distinct({3, 4}), 1, false}, "rows"},
                                     {{m.make_distinct({3, 4}), 0, true}, "columns, keepdim"},
                                     {{m.make_distinct({}), 0, false}, "0-d"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({0}), std::nullopt, false},
               ErrorKind::value,
               "aminmax(): cannot compute aminmax over an empty dimension"},
              {{m.make({2}), 1, false}, ErrorKind::index, "Dimension out of range"}};
        })
        .reference([](const Call& c) {
          const Tensor& x = c.tensor(0);
          Shape dims;
          if (c.has(1) && x.dim()) dims.push_back(c.integer(1));
          const Arg args[] = {x, IntList(dims)};
          const auto part = [&](bool largest) {
            return reduce_reference(
                Call(c.op, args), 1, c.boolean(2),
                [&](const auto& v) { return extreme(v, largest); }, x.dtype());
          };
          return std::vector<Tensor>{part(false), part(true)};
        })
        .dtypes(kReal);

// Samples (self, dims, correction, keepdim).
std::vector<Sample> moment_samples(SampleMaker& m) {
  return {{{m.make({3, 4}), std::nullopt, 1.0, false}, "all"},
          {{m.make({3, 4}), {1}, 0.0, false}, "rows, biased"},
          {{m.make_strided({4, 3}), {0}, 1.0, true}, "columns, keepdim"},
          {{m.make({2, 3, 2}), {0, 2}, 1.0, false}, "two dims"}};
}
Reference moment_reference(bool root) {
  return [root](const Call& c) {
    const auto mean = [](const std::vector<double>& v) {
      double s = 0;
      for (double e : v) s += e;
      return s / double(v.size());
    };
    const auto spread = [&](const std::vector<double>& v) {
      const double middle = mean(v);
      double s = 0;
      for (double e : v) s += (e - middle) * (e - middle);
      s /= std::max(0.0, double(v.size()) - c.real(2));
      return root ? std::sqrt(s) : s;
    };
    return std::vector<Tensor>{reduce_reference(c, 1, c.boolean(3), spread),
                               reduce_reference(c, 1, c.boolean(3), mean)};
  };
}

const OpRecord& var_mean_op =
    define(
        "var_mean(Tensor self, int[]? dim=None, *, float correction=1, bool keepdim=False) -> "
        "(Tensor var, Tensor mean)")
        .doc("Variance and mean over dimensions.")
        .compose([](const Call& c) -> Results {
          const IntList dims = dims_of(c, 1);
          return {var(c.tensor(0), dims, c.real(2), c.boolean(3)),
                  mean(c.tensor(0), dims, c.boolean(3))};
        })
        .samples(moment_samples)
        .reference(moment_reference(false));

const OpRecord& std_mean_op =
    define(
        "std_mean(Tensor self, int[]? dim=None, *, float correction=1, bool keepdim=False) -> "
        "(Tensor std, Tensor mean)")
        .doc("Standard deviation and mean over dimensions.")
        .compose([](const Call& c) -> Results {
          const IntList dims = dims_of(c, 1);
          return {c.tensor(0).std(dims, c.real(2), c.boolean(3)),
                  mean(c.tensor(0), dims, c.boolean(3))};
        })
        .samples(moment_samples)
        .reference(moment_reference(true));

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
        })
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({}), std::vector<int64_t>{}}, "0-d"},
                                     {{m.make({2, 3, 4}), {3, 1}}, "leading and last"},
                                     {{m.make({2, 3}), {2, 3}}, "nothing"},
                                     {{m.make_strided({3, 4}), {1, 4}}, "first"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({2, 3}), {2, 2}}, ErrorKind::value, "is not expandable to size"}};
        })
        .reference([](const Call& c) {
          const Tensor& x = c.tensor(0);
          const IntList sizes = c.ints(1);
          std::vector<double> sums(size_t(numel_of(sizes)), 0);
          for_each_index(x.sizes(), [&](const Shape& i) {
            sums[size_t(flat_position(sizes, i))] += at(x, i);
          });
          return std::vector<Tensor>{from_values(sums, sizes)};
        });

}  // namespace
}  // namespace ops

std::tuple<Tensor, Tensor> var_mean(const Tensor& self, IntList dims, double correction,
                                    bool keepdim) {
  const auto r = ops::call_all(ops::var_mean_op, {self, dims, correction, keepdim});
  return {r[0], r[1]};
}
std::tuple<Tensor, Tensor> std_mean(const Tensor& self, IntList dims, double correction,
                                    bool keepdim) {
  const auto r = ops::call_all(ops::std_mean_op, {self, dims, correction, keepdim});
  return {r[0], r[1]};
}
std::tuple<Tensor, Tensor> aminmax(const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  const auto r = ops::call_all(ops::aminmax_op, {self, dim, keepdim});
  return {r[0], r[1]};
}

}  // namespace arete

ARETE_FAMILY(reduce_pairs)
