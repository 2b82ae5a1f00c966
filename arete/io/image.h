// Images: JPEG and PNG to tensors of bytes and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arete/core/tensor.h"

namespace arete::io {

/// What a decoded image's channels are.
enum class ImageMode : uint8_t {
  unchanged,  ///< those of the file: 1 (grey), 3 (RGB) or 4 (RGB and alpha)
  gray,       ///< 1, by the luma of ITU-R BT.601 where the file has colours
  rgb,        ///< 3; an alpha channel is dropped
};

struct DecodeOptions {
  ImageMode mode = ImageMode::unchanged;
  /// JPEG only: the picture may come out smaller by 2, 4 or 8, as long as its shorter side keeps at
  /// least so many pixels: much faster where the next step makes it smaller anyway. 0: full size.
  int64_t at_least = 0;
  /// Larger pictures are refused before memory is taken.
  uint64_t max_pixels = uint64_t(1) << 28;
};

/// The picture as bytes, u8 (C, H, W) over memory in the order (H, W, C). 16 bits become 8,
/// palettes colours. `name` is what errors call it. IoError for what is neither JPEG nor PNG, or
/// damaged.
Tensor decode_image(std::span<const std::byte> bytes, const DecodeOptions& options = {},
                    std::string_view name = "image");
/// The same from a file.
Tensor read_image(const std::string& path, const DecodeOptions& options = {});

/// u8 (C, H, W) with 1, 3 or 4 channels as PNG; with 1 or 3 as JPEG of a quality from 1 to 100.
/// TypeError or ValueError for other tensors.
std::vector<std::byte> encode_png(const Tensor& image);
std::vector<std::byte> encode_jpeg(const Tensor& image, int quality = 90);
/// Writes PNG or JPEG by the end of the name (.png, .jpg, .jpeg; ValueError for others).
void write_image(const std::string& path, const Tensor& image, int quality = 90);

}  // namespace arete::io
