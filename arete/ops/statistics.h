// Order statistics and histograms. NaN counts as the largest value, and wins where noted.
#pragma once

#include <optional>
#include <string_view>
#include <tuple>

#include "arete/core/tensor.h"

namespace arete {

/// The k-th smallest value (k from 1) along `dim` and its position.
std::tuple<Tensor, Tensor> kthvalue(const Tensor& self, int64_t k, int64_t dim = -1,
                                    bool keepdim = false);
/// The lower median of everything, or along `dim` with its position; NaN wins.
Tensor median(const Tensor& self);
std::tuple<Tensor, Tensor> median(const Tensor& self, int64_t dim, bool keepdim = false);
/// The same of what is not NaN.
Tensor nanmedian(const Tensor& self);
std::tuple<Tensor, Tensor> nanmedian(const Tensor& self, int64_t dim, bool keepdim = false);
/// The most frequent value along `dim`, the smallest of several, and its last position.
std::tuple<Tensor, Tensor> mode(const Tensor& self, int64_t dim = -1, bool keepdim = false);
/// The q-quantiles (q in [0, 1], 0-d or 1-d: then the first dimension of the result) along `dim` or
/// of everything; NaN wins. Between two values by `interpolation`: "linear", "lower", "higher",
/// "midpoint" or "nearest". float32 and float64 only.
Tensor quantile(const Tensor& self, const Tensor& q, std::optional<int64_t> dim = {},
                bool keepdim = false, std::string_view interpolation = "linear");
Tensor quantile(const Tensor& self, double q, std::optional<int64_t> dim = {}, bool keepdim = false,
                std::string_view interpolation = "linear");
/// The same of what is not NaN.
Tensor nanquantile(const Tensor& self, const Tensor& q, std::optional<int64_t> dim = {},
                   bool keepdim = false, std::string_view interpolation = "linear");
Tensor nanquantile(const Tensor& self, double q, std::optional<int64_t> dim = {},
                   bool keepdim = false, std::string_view interpolation = "linear");

/// How many values lie in each of `bins` equal intervals of [min, max] (both 0: the data's range);
/// in the dtype of self. Values outside and NaN are left out.
Tensor histc(const Tensor& self, int64_t bins = 100, Scalar min = 0, Scalar max = 0);
/// Counts (or sums of weights, or densities whose integral is 1) between edges, and the edges:
/// `bins` is a rising 1-d tensor of them, or how many equal intervals of [min, max] (default: the
/// data's range). The last interval includes its end.
std::tuple<Tensor, Tensor> histogram(const Tensor& self, const Tensor& bins,
                                     const Tensor& weight = {}, bool density = false);
std::tuple<Tensor, Tensor> histogram(const Tensor& self, int64_t bins,
                                     std::optional<double> min = {}, std::optional<double> max = {},
                                     const Tensor& weight = {}, bool density = false);
/// The same for points (the last dimension of self) and a grid: edges for each of their elements.
Tensor histogramdd(const Tensor& self, const std::vector<Tensor>& bins, const Tensor& weight = {},
                   bool density = false);

}  // namespace arete
