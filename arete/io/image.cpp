#include "arete/io/image.h"

#include <spng.h>
#include <turbojpeg.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "arete/base/file.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/shape.h"

namespace arete::io {

namespace {

IoError damaged(std::string_view name, const std::string& why) {
  return IoError("decode_image", why).argument(std::string(name));
}

// Bytes in the order (H, W, C), seen as (C, H, W).
Tensor new_image(int64_t height, int64_t width, int64_t channels) {
  return empty({height, width, channels}, TensorOptions(kUInt8));
}
Tensor channels_first(const Tensor& rows) { return rows.permute({2, 0, 1}); }

void check_size(std::string_view name, uint64_t width, uint64_t height, uint64_t max_pixels) {
  ARETE_CHECK(width > 0 && height > 0,
              damaged(name, "the file is damaged: the image has no pixels"));
  ARETE_CHECK(width <= max_pixels / height,
              damaged(name, "the image is larger than allowed")
                  .expected("at most " + std::to_string(max_pixels) + " pixels")
                  .got(std::to_string(width) + " x " + std::to_string(height)));
}

// Y = 0.299 R + 0.587 G + 0.114 B, in fixed point.
void to_gray(const uint8_t* rgb, uint8_t* gray, int64_t pixels) {
  for (int64_t i = 0; i < pixels; ++i, rgb += 3)
    gray[i] = uint8_t((19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2] + 32768) >> 16);
}

// ---- JPEG

struct JpegDeleter {
  void operator()(void* handle) const { tjDestroy(handle); }
};
using Jpeg = std::unique_ptr<void, JpegDeleter>;

// The strongest reduction that leaves the shorter side large enough.
tjscalingfactor reduction(int width, int height, int64_t at_least) {
  tjscalingfactor best{1, 1};
  if (at_least <= 0) return best;
  for (const int denominator : {2, 4, 8}) {
    const tjscalingfactor f{1, denominator};
    if (std::min(TJSCALED(width, f), TJSCALED(height, f)) >= at_least) best = f;
  }
  return best;
}

Tensor decode_jpeg(std::span<const std::byte> bytes, const DecodeOptions& o,
                   std::string_view name) {
  const Jpeg jpeg(tjInitDecompress());
  ARETE_CHECK(jpeg, damaged(name, "the JPEG decoder could not be started"));
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  const auto size = static_cast<unsigned long>(bytes.size());
  int width = 0, height = 0, subsampling = 0, space = 0;
  const auto fail = [&] {
    return damaged(name, std::string("the JPEG file is damaged: ") + tjGetErrorStr2(jpeg.get()));
  };
  if (tjDecompressHeader3(jpeg.get(), data, size, &width, &height, &subsampling, &space) != 0)
    throw fail();
  check_size(name, uint64_t(std::max(width, 0)), uint64_t(std::max(height, 0)), o.max_pixels);
  ARETE_CHECK(space != TJCS_CMYK && space != TJCS_YCCK,
              damaged(name, "JPEG files in CMYK are not supported").hint("save it as RGB"));
  const bool gray =
      o.mode == ImageMode::gray || (o.mode == ImageMode::unchanged && space == TJCS_GRAY);
  const tjscalingfactor scale = reduction(width, height, o.at_least);
  width = TJSCALED(width, scale);
  height = TJSCALED(height, scale);
  const Tensor out = new_image(height, width, gray ? 1 : 3);
  // Truncated files give what there is of the picture and a warning, which counts as damage.
  if (tjDecompress2(jpeg.get(), data, size, out.data<uint8_t>(), width, 0, height,
                    gray ? TJPF_GRAY : TJPF_RGB, 0) != 0)
    throw fail();
  return channels_first(out);
}

// ---- PNG

struct PngDeleter {
  void operator()(spng_ctx* c) const { spng_ctx_free(c); }
};
using Png = std::unique_ptr<spng_ctx, PngDeleter>;

Tensor decode_png(std::span<const std::byte> bytes, const DecodeOptions& o, std::string_view name) {
  const Png png(spng_ctx_new(0));
  ARETE_CHECK(png, damaged(name, "the PNG decoder could not be started"));
  const auto check = [&](int code) {
    ARETE_CHECK(code == 0,
                damaged(name, std::string("the PNG file is damaged: ") + spng_strerror(code)));
  };
  constexpr size_t kChunkLimit = size_t(64)
                                 << 20;  // of text, profiles and such, which nobody reads
  check(spng_set_chunk_limits(png.get(), kChunkLimit, kChunkLimit));
  check(spng_set_png_buffer(png.get(), bytes.data(), bytes.size()));
  spng_ihdr header{};
  check(spng_get_ihdr(png.get(), &header));
  check_size(name, header.width, header.height, o.max_pixels);
  spng_trns transparent{};
  const bool alpha = header.color_type == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA ||
                     header.color_type == SPNG_COLOR_TYPE_TRUECOLOR_ALPHA ||
                     spng_get_trns(png.get(), &transparent) == 0;
  const bool grays = header.color_type == SPNG_COLOR_TYPE_GRAYSCALE && header.bit_depth <= 8;
  const bool colours = header.color_type != SPNG_COLOR_TYPE_GRAYSCALE &&
                       header.color_type != SPNG_COLOR_TYPE_GRAYSCALE_ALPHA;
  const auto decode = [&](int format, int64_t channels) {
    const Tensor t = new_image(header.height, header.width, channels);
    size_t size = 0;
    check(spng_decoded_image_size(png.get(), format, &size));
    ARETE_CHECK(size == size_t(t.numel()), damaged(name, "the PNG file's sizes do not agree"));
    check(spng_decode_image(png.get(), t.data<uint8_t>(), size, format,
                            format == SPNG_FMT_RGBA8 ? SPNG_DECODE_TRNS : 0));
    return t;
  };
  if (o.mode == ImageMode::unchanged && alpha) return channels_first(decode(SPNG_FMT_RGBA8, 4));
  const bool gray = o.mode == ImageMode::gray || (o.mode == ImageMode::unchanged && !colours);
  if (gray && grays) return channels_first(decode(SPNG_FMT_G8, 1));
  const Tensor rgb = decode(SPNG_FMT_RGB8, 3);
  if (!gray) return channels_first(rgb);
  const Tensor out = new_image(header.height, header.width, 1);
  to_gray(rgb.data<uint8_t>(), out.data<uint8_t>(), out.numel());
  return channels_first(out);
}

// ---- encoding

// The picture's bytes in the order (H, W, C).
Tensor rows_of(const char* op, const Tensor& image, bool alpha_too) {
  ARETE_CHECK(image.dtype() == kUInt8,
              TypeError(op, "expected a tensor of bytes (uint8)").got(ops::describe(image)));
  ARETE_CHECK(image.dim() == 3 && image.numel() > 0 &&
                  (image.size(0) == 1 || image.size(0) == 3 || (alpha_too && image.size(0) == 4)),
              ValueError(op, std::string("expected a picture of sizes (C, H, W) with 1") +
                                 (alpha_too ? ", 3 or 4" : " or 3") + " channels")
                  .got(ops::describe(image)));
  return image.to(kCPU).permute({1, 2, 0}).contiguous();
}

std::vector<std::byte> copy_of(const void* data, size_t size) {
  const auto* p = static_cast<const std::byte*>(data);
  return {p, p + size};
}

}  // namespace

Tensor decode_image(std::span<const std::byte> bytes, const DecodeOptions& options,
                    std::string_view name) {
  constexpr unsigned char kPng[] = {0x89, 'P', 'N', 'G'}, kJpeg[] = {0xff, 0xd8};
  const auto begins_with = [&](std::span<const unsigned char> magic) {
    return bytes.size() >= magic.size() &&
           std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
  };
  if (begins_with(kPng)) return decode_png(bytes, options, name);
  if (begins_with(kJpeg)) return decode_jpeg(bytes, options, name);
  throw damaged(name, "neither a JPEG nor a PNG file");
}

Tensor read_image(const std::string& path, const DecodeOptions& options) {
  constexpr uint64_t kLargestFile = uint64_t(1) << 30;
  return decode_image(read_file(path, kLargestFile), options, path);
}

std::vector<std::byte> encode_png(const Tensor& image) {
  const Tensor rows = rows_of("encode_png", image, true);
  const Png png(spng_ctx_new(SPNG_CTX_ENCODER));
  ARETE_CHECK(png, IoError("encode_png", "the PNG encoder could not be started"));
  const auto check = [](int code) {
    ARETE_CHECK(code == 0, IoError("encode_png", spng_strerror(code)));
  };
  check(spng_set_option(png.get(), SPNG_ENCODE_TO_BUFFER, 1));
  spng_ihdr header{};
  header.height = uint32_t(rows.size(0));
  header.width = uint32_t(rows.size(1));
  header.bit_depth = 8;
  header.color_type = uint8_t(rows.size(2) == 1   ? SPNG_COLOR_TYPE_GRAYSCALE
                              : rows.size(2) == 3 ? SPNG_COLOR_TYPE_TRUECOLOR
                                                  : SPNG_COLOR_TYPE_TRUECOLOR_ALPHA);
  check(spng_set_ihdr(png.get(), &header));
  check(spng_encode_image(png.get(), rows.data<uint8_t>(), size_t(rows.numel()), SPNG_FMT_PNG,
                          SPNG_ENCODE_FINALIZE));
  size_t size = 0;
  int code = 0;
  const std::unique_ptr<void, decltype(&std::free)> data(
      spng_get_png_buffer(png.get(), &size, &code), &std::free);
  check(code);
  return copy_of(data.get(), size);
}

std::vector<std::byte> encode_jpeg(const Tensor& image, int quality) {
  ARETE_CHECK(
      quality >= 1 && quality <= 100,
      ValueError("encode_jpeg", "Image quality should be a positive number between 1 and 100")
          .argument("quality")
          .got(std::to_string(quality)));
  const Tensor rows = rows_of("encode_jpeg", image, false);
  const bool gray = rows.size(2) == 1;
  const Jpeg jpeg(tjInitCompress());
  unsigned char* data = nullptr;
  unsigned long size = 0;
  const int code = tjCompress2(jpeg.get(), rows.data<uint8_t>(), int(rows.size(1)), 0,
                               int(rows.size(0)), gray ? TJPF_GRAY : TJPF_RGB, &data, &size,
                               gray ? TJSAMP_GRAY : TJSAMP_420, quality, 0);
  const std::unique_ptr<unsigned char, decltype(&tjFree)> owner(data, &tjFree);
  ARETE_CHECK(code == 0, IoError("encode_jpeg", tjGetErrorStr2(jpeg.get())));
  return copy_of(data, size);
}

void write_image(const std::string& path, const Tensor& image, int quality) {
  const bool png = path.ends_with(".png");
  ARETE_CHECK(png || path.ends_with(".jpg") || path.ends_with(".jpeg"),
              ValueError("write_image", "the name must end with .png, .jpg or .jpeg")
                  .argument("path")
                  .got(path));
  const std::vector<std::byte> bytes = png ? encode_png(image) : encode_jpeg(image, quality);
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

}  // namespace arete::io
