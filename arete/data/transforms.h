// Augmentation: changes of the picture that an example begins with. Pictures are (C, H, W), bytes
// as decode_image gives them or f32; other tensors of the example pass through.
#pragma once

#include <array>
#include <vector>

#include "arete/data/dataset.h"

namespace arete::data::transforms {

/// One after the other.
Transform compose(std::vector<Transform> parts);

/// To height x width by a triangle filter as wide as the spacing of the new pixels, in the
/// picture's dtype. ValueError for sizes that are not positive.
Transform resize(int64_t height, int64_t width);
/// The shorter side becomes `size`, the sides keep their ratio. If the longer one would then exceed
/// `longest`, it becomes that many instead; 0: it never does.
Transform resize_shorter(int64_t size, int64_t longest = 0);
/// The middle height x width pixels; zeros where the picture is smaller.
Transform center_crop(int64_t height, int64_t width);
/// height x width pixels at a random place of the picture with `padding` zeros on every side;
/// ValueError if it is smaller even so.
Transform random_crop(int64_t height, int64_t width, int64_t padding = 0);
struct Padding {
  int64_t left = 0, top = 0, right = 0, bottom = 0;
  /// Pictures that are too small even so get what they lack on both sides.
  bool if_needed = false;
  /// What is around the picture: one number, or one for each channel.
  std::vector<double> fill{0};
};
Transform random_crop(int64_t height, int64_t width, Padding padding);
/// A random part with an area of scale[0] to scale[1] of the picture's and a ratio of its sides
/// from ratio[0] to ratio[1] (uniform in its logarithm), resized to height x width. After ten
/// attempts that do not fit: the largest part in the middle with a ratio that is allowed.
Transform random_resized_crop(int64_t height, int64_t width,
                              std::array<double, 2> scale = {0.08, 1.0},
                              std::array<double, 2> ratio = {3.0 / 4, 4.0 / 3});
/// Mirrored with probability p.
Transform random_horizontal_flip(double p = 0.5);
Transform random_vertical_flip(double p = 0.5);
/// Brightness, contrast and saturation times random factors from [max(0, 1 - x), 1 + x], in this
/// order, then the hue moved by a random part from [-hue, hue] of the circle; hue in [0, 0.5].
Transform color_jitter(double brightness, double contrast = 0, double saturation = 0,
                       double hue = 0);
/// The same with ranges for the factors, and for the part of the circle one within [-0.5, 0.5].
Transform color_jitter(std::array<double, 2> brightness, std::array<double, 2> contrast,
                       std::array<double, 2> saturation, std::array<double, 2> hue);
/// The picture with its hue moved by a part of the circle of colours (hue, saturation, value):
/// `shift` in [-0.5, 0.5]. One of fewer than three channels stays.
Tensor adjust_hue(const Tensor& picture, double shift);
/// All channels become the luma (ITU-R BT.601) with probability p.
Transform random_grayscale(double p = 0.1);
/// A random rectangle of scale[0] to scale[1] of the area becomes `value`, with probability p: one
/// number, one for each channel, or if it is empty noise: normal, or for bytes uniform.
Transform random_erasing(double p = 0.5, std::array<double, 2> scale = {0.02, 0.33},
                         std::array<double, 2> ratio = {0.3, 3.3}, std::vector<double> value = {0});
/// Bytes become f32 in [0, 1]; f32 stays.
Transform to_float();
/// to_float(), then (x - mean[c]) / std[c]. One number stands for all channels. ValueError if some
/// std is not positive.
Transform normalize(std::vector<double> mean, std::vector<double> std);

}  // namespace arete::data::transforms
