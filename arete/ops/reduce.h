// Reductions over any dimensions. Without dims: over all of them. `keepdim` keeps reduced
// dimensions with size 1. Dimensions may be negative (from the end) and must be in range
// (IndexError) and different (ValueError).
#pragma once

#include <optional>
#include <tuple>

#include "arete/core/tensor.h"

namespace arete {

/// The sum; integers and bool give int64 unless `dtype` says otherwise. Nothing sums to 0.
Tensor sum(const Tensor& self, std::optional<DType> dtype = {});
Tensor sum(const Tensor& self, IntList dims, bool keepdim = false, std::optional<DType> dtype = {});
Tensor sum(const Tensor& self, int64_t dim, bool keepdim = false);
/// The mean; floating only, unless `dtype` is (TypeError). The mean of nothing is NaN.
Tensor mean(const Tensor& self, std::optional<DType> dtype = {});
Tensor mean(const Tensor& self, IntList dims, bool keepdim = false,
            std::optional<DType> dtype = {});
Tensor mean(const Tensor& self, int64_t dim, bool keepdim = false);
/// The product; integers and bool give int64. Nothing multiplies to 1.
Tensor prod(const Tensor& self);
Tensor prod(const Tensor& self, int64_t dim, bool keepdim = false);
/// Variance with `correction` taken off the count (1: the unbiased estimate). Floating only.
Tensor var(const Tensor& self, IntList dims = {}, double correction = 1, bool keepdim = false);
/// Square root of var(); the gradient at 0 is 0.
Tensor std(const Tensor& self, IntList dims = {}, double correction = 1, bool keepdim = false);
/// Variance and mean.
std::tuple<Tensor, Tensor> var_mean(const Tensor& self, IntList dims = {}, double correction = 1,
                                    bool keepdim = false);
/// Standard deviation and mean.
std::tuple<Tensor, Tensor> std_mean(const Tensor& self, IntList dims = {}, double correction = 1,
                                    bool keepdim = false);
/// Sum and mean of what is not NaN.
Tensor nansum(const Tensor& self, IntList dims = {}, bool keepdim = false);
Tensor nanmean(const Tensor& self, IntList dims = {}, bool keepdim = false);
/// The extreme values; NaN wins. Of nothing: ValueError. The gradient is shared among ties.
Tensor amin(const Tensor& self, IntList dims = {}, bool keepdim = false);
Tensor amax(const Tensor& self, IntList dims = {}, bool keepdim = false);
Tensor min(const Tensor& self);
Tensor max(const Tensor& self);
/// Extreme values along one dimension and their (first) positions, int64. The gradient goes to
/// that position.
std::tuple<Tensor, Tensor> min(const Tensor& self, int64_t dim, bool keepdim = false);
std::tuple<Tensor, Tensor> max(const Tensor& self, int64_t dim, bool keepdim = false);
/// Smallest and largest value, over all elements or along one dimension.
std::tuple<Tensor, Tensor> aminmax(const Tensor& self, std::optional<int64_t> dim = {},
                                   bool keepdim = false);
/// The first position of the extreme value along `dim`, or in the flattened tensor; int64.
Tensor argmin(const Tensor& self, std::optional<int64_t> dim = {}, bool keepdim = false);
Tensor argmax(const Tensor& self, std::optional<int64_t> dim = {}, bool keepdim = false);
/// Whether some (all) elements are not zero; bool. any of nothing is false, all of nothing true.
Tensor any(const Tensor& self);
Tensor any(const Tensor& self, IntList dims, bool keepdim = false);
Tensor all(const Tensor& self);
Tensor all(const Tensor& self, IntList dims, bool keepdim = false);
/// (sum |x|^p)^(1/p); p may be 0 (the number of elements that are not zero), inf and -inf.
Tensor norm(const Tensor& self, double p = 2, IntList dims = {}, bool keepdim = false);
/// log(sum(exp(x))) without overflow.
Tensor logsumexp(const Tensor& self, IntList dims, bool keepdim = false);
Tensor logsumexp(const Tensor& self, int64_t dim, bool keepdim = false);
/// Summed over leading dimensions and those of size 1 in `sizes`: the reverse of broadcasting.
/// ValueError if self's sizes do not come from `sizes` by broadcasting.
namespace ops {
Tensor sum_to_size(const Tensor& g, IntList sizes);
/// The p-norm of a - b + eps along the last dimension; the two broadcast, and f32 and f64 take no
/// memory for their differences.
Tensor norm_of_difference(const Tensor& a, const Tensor& b, double p, double eps = 0);
/// The p-norms of the differences of all pairs of rows of a matrix of f32 or f64: of rows 0 and 1,
/// 0 and 2, ..., 1 and 2, ....
Tensor pair_norms(const Tensor& x, double p);
}  // namespace ops
using ops::sum_to_size;
/// How many elements are not zero; int64.
Tensor count_nonzero(const Tensor& self, IntList dims = {});

}  // namespace arete
