// Normalization layers.
#pragma once

#include <optional>
#include <string_view>

#include "arete/nn/layer.h"

namespace arete::nn {

struct BatchNormOptions {
  double eps = 1e-5;
  /// How far running statistics move towards those of a batch; absent: they are the plain average
  /// over all batches so far.
  std::optional<double> momentum = 0.1;
  bool affine = true;
  bool track_running_stats = true;
};

/// What batch and instance normalization share: parameters weight and bias (if affine); buffers
/// running_mean, running_var, num_batches_tracked (if tracked).
class NormBase : public DescribedLayer {
 public:
  void reset_parameters();
  void reset_running_stats();

  Parameter weight, bias;
  Buffer running_mean, running_var, num_batches_tracked;

 protected:
  NormBase(std::string_view layer, int64_t num_features, const BatchNormOptions& options);
  void check_rank(const Tensor& input, int least, int most) const;

  int64_t num_features_;
  BatchNormOptions settings_;
};

/// Batch normalization; use BatchNorm1d, 2d or 3d, which check the rank of their inputs. In eval
/// mode, and only if tracked, the running statistics are used.
class BatchNorm : public NormBase {
 public:
  Tensor forward(const Tensor& input) override;
  /// relu(forward(input) + residual) in one pass; `residual` (like input) may be undefined. What a
  /// Sequential does with a BatchNorm before a ReLU.
  Tensor forward_relu(const Tensor& input, const Tensor& residual = {});

 protected:
  BatchNorm(std::string_view layer, int64_t num_features, const BatchNormOptions& options,
            int least_rank, int most_rank)
      : NormBase(layer, num_features, options), least_(least_rank), most_(most_rank) {}

 private:
  Tensor run(const Tensor& input, bool rectified, const Tensor& residual);
  int least_, most_;
};
/// (N, C) or (N, C, L).
class BatchNorm1d : public BatchNorm {
 public:
  BatchNorm1d(int64_t num_features, const BatchNormOptions& options = {})
      : BatchNorm("BatchNorm1d", num_features, options, 2, 3) {}
};
/// (N, C, H, W).
class BatchNorm2d : public BatchNorm {
 public:
  BatchNorm2d(int64_t num_features, const BatchNormOptions& options = {})
      : BatchNorm("BatchNorm2d", num_features, options, 4, 4) {}
};
/// (N, C, D, H, W).
class BatchNorm3d : public BatchNorm {
 public:
  BatchNorm3d(int64_t num_features, const BatchNormOptions& options = {})
      : BatchNorm("BatchNorm3d", num_features, options, 5, 5) {}
};

struct InstanceNormOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  ///< absent: running statistics stay as they are
  bool affine = false;
  bool track_running_stats = false;
};
/// Normalizes each channel of each sample over its N spatial dimensions; the batch may be missing.
template <int N>
class InstanceNormNd : public NormBase {
 public:
  explicit InstanceNormNd(int64_t num_features, const InstanceNormOptions& o = {})
      : NormBase(numbered("InstanceNorm", N), num_features,
                 {o.eps, o.momentum, o.affine, o.track_running_stats}) {}
  Tensor forward(const Tensor& input) override;
};
using InstanceNorm1d = InstanceNormNd<1>;
using InstanceNorm2d = InstanceNormNd<2>;
using InstanceNorm3d = InstanceNormNd<3>;
extern template class InstanceNormNd<1>;
extern template class InstanceNormNd<2>;
extern template class InstanceNormNd<3>;

/// The sizes of the last dimensions: nn::LayerNorm(64) or nn::LayerNorm({8, 8}).
class NormalizedShape {
 public:
  NormalizedShape(int size) : sizes{size} {}
  NormalizedShape(int64_t size) : sizes{size} {}
  NormalizedShape(std::initializer_list<int64_t> s) : sizes(s.begin(), s.end()) {}
  NormalizedShape(IntList s) : sizes(s) {}
  Shape sizes;
};

struct LayerNormOptions {
  double eps = 1e-5;
  bool elementwise_affine = true;
  bool bias = true;
};
/// Normalizes over the last dimensions. Parameters weight (ones) and bias (zeros) of their sizes.
class LayerNorm : public DescribedLayer {
 public:
  explicit LayerNorm(const NormalizedShape& normalized_shape, const LayerNormOptions& options = {});
  Tensor forward(const Tensor& input) override;

  Parameter weight, bias;

 private:
  Shape sizes_;
  double eps_;
};

struct RMSNormOptions {
  std::optional<double> eps = {};  ///< absent: that of the input's dtype
  bool elementwise_affine = true;
};
/// x / sqrt(mean(x^2) + eps) * weight over the last dimensions.
class RMSNorm : public DescribedLayer {
 public:
  explicit RMSNorm(const NormalizedShape& normalized_shape, const RMSNormOptions& options = {});
  Tensor forward(const Tensor& input) override;

  Parameter weight;

 private:
  Shape sizes_;
  std::optional<double> eps_;
};

struct GroupNormOptions {
  double eps = 1e-5;
  bool affine = true;
};
/// Normalizes num_groups groups of channels of each sample; (N, num_channels, ...).
class GroupNorm : public DescribedLayer {
 public:
  GroupNorm(int64_t num_groups, int64_t num_channels, const GroupNormOptions& options = {});
  Tensor forward(const Tensor& input) override;

  Parameter weight, bias;

 private:
  int64_t groups_;
  double eps_;
};

struct LocalResponseNormOptions {
  double alpha = 1e-4;
  double beta = 0.75;
  double k = 1;
};
/// x / (k + alpha * mean of the squares of `size` neighbouring channels)^beta.
class LocalResponseNorm : public OperatorLayer {
 public:
  explicit LocalResponseNorm(int64_t size, const LocalResponseNormOptions& o = {})
      : OperatorLayer("LocalResponseNorm",
                      {{"size", size}, {"alpha", o.alpha}, {"beta", o.beta}, {"k", o.k}}) {}
};

}  // namespace arete::nn
