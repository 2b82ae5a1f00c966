// Layers that rearrange or resample.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arete/nn/module.h"

namespace arete::nn {

/// Joins dimensions start_dim to end_dim; by default everything but the batch.
class Flatten : public Module {
 public:
  explicit Flatten(int64_t start_dim = 1, int64_t end_dim = -1)
      : start_(start_dim), end_(end_dim) {}
  Tensor forward(const Tensor& input) override { return input.flatten(start_, end_); }
  std::string extra_repr() const override {
    return "start_dim=" + std::to_string(start_) + ", end_dim=" + std::to_string(end_);
  }

 private:
  int64_t start_, end_;
};

/// Splits a dimension into `sizes` (one may be -1).
class Unflatten : public Module {
 public:
  Unflatten(int64_t dim, IntList sizes) : dim_(dim), sizes_(sizes) {}
  Tensor forward(const Tensor& input) override { return input.unflatten(dim_, sizes_); }
  std::string extra_repr() const override;

 private:
  int64_t dim_;
  Shape sizes_;
};

struct UpsampleOptions {
  std::vector<int64_t> size = {};         ///< of the output; or
  std::vector<double> scale_factor = {};  ///< one number, or one for each spatial dimension
  std::string_view mode = "nearest";      ///< or "linear", "bilinear", "bicubic", "trilinear"
  bool align_corners = false;
};
/// Resizes the spatial dimensions: Upsample({.scale_factor = {2}, .mode = "bilinear"}).
class Upsample : public Module {
 public:
  explicit Upsample(const UpsampleOptions& options);
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

 private:
  std::vector<int64_t> size_;
  std::vector<double> scale_;
  std::string mode_;
  bool align_corners_;
};

/// (*, C r^2, H, W) -> (*, C, H r, W r).
class PixelShuffle : public Module {
 public:
  explicit PixelShuffle(int64_t upscale_factor);
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override { return "upscale_factor=" + std::to_string(factor_); }

 private:
  int64_t factor_;
};

/// (*, C, H r, W r) -> (*, C r^2, H, W).
class PixelUnshuffle : public Module {
 public:
  explicit PixelUnshuffle(int64_t downscale_factor);
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override { return "downscale_factor=" + std::to_string(factor_); }

 private:
  int64_t factor_;
};

}  // namespace arete::nn
