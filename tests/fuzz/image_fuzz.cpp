// Any bytes must give a picture of a size that was allowed, or an arete::Error.
#include <cstdint>
#include <cstdlib>

#include "arete/base/error.h"
#include "arete/io/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace arete::io;
  const auto bytes = std::as_bytes(std::span(data, size));
  for (const ImageMode mode : {ImageMode::unchanged, ImageMode::gray, ImageMode::rgb}) {
    try {
      const arete::Tensor t =
          decode_image(bytes, {.mode = mode, .at_least = 4, .max_pixels = 1 << 16});
      if (t.dim() != 3 || t.size(1) * t.size(2) > 1 << 16) std::abort();
      if (mode == ImageMode::gray && t.size(0) != 1) std::abort();
      if (mode == ImageMode::rgb && t.size(0) != 3) std::abort();
    } catch (const arete::Error&) {
    }
  }
  return 0;
}
