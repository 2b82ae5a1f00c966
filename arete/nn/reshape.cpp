#include "arete/nn/reshape.h"

#include "arete/nn/layer_internal.h"
#include "arete/ops/nn.h"

namespace arete::nn {

std::string Unflatten::extra_repr() const {
  return "dim=" + text_of(dim_) + ", unflattened_size=" + tuple_text(sizes_);
}

Upsample::Upsample(const UpsampleOptions& options)
    : size_(options.size),
      scale_(options.scale_factor),
      mode_(options.mode),
      align_corners_(options.align_corners) {
  ARETE_CHECK(size_.empty() != scale_.empty(),
              ValueError("Upsample", "only one of size or scale_factor should be defined"));
}

Tensor Upsample::forward(const Tensor& x) {
  return interpolate(x, size_.empty() ? std::nullopt : std::optional<Extent>(size_), scale_, mode_,
                     align_corners_);
}

std::string Upsample::extra_repr() const {
  std::string text = size_.empty() ? "scale_factor=" : "size=" + tuple_text(size_);
  if (scale_.size() == 1) text += text_of(scale_[0]);
  if (scale_.size() > 1) {
    text += "(";
    for (size_t i = 0; i < scale_.size(); ++i) text += (i ? ", " : "") + text_of(scale_[i]);
    text += ")";
  }
  return text + ", mode='" + mode_ + "'";
}

PixelShuffle::PixelShuffle(int64_t upscale_factor) : factor_(upscale_factor) {
  check_sizes("PixelShuffle", {{"upscale_factor", upscale_factor}});
}
Tensor PixelShuffle::forward(const Tensor& x) { return pixel_shuffle(x, factor_); }

PixelUnshuffle::PixelUnshuffle(int64_t downscale_factor) : factor_(downscale_factor) {
  check_sizes("PixelUnshuffle", {{"downscale_factor", downscale_factor}});
}
Tensor PixelUnshuffle::forward(const Tensor& x) { return pixel_unshuffle(x, factor_); }

}  // namespace arete::nn
