#include "arete/data/transforms.h"

#include <algorithm>
#include <cmath>

#include "arete/data/numbers_internal.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/random.h"
#include "arete/ops/resample_filter.h"
#include "arete/ops/shape.h"

namespace arete::data::transforms {

namespace {

// f of the picture, and a generator for its random choices.
template <class F>
Transform on_picture(const char* name, F f) {
  return [name, f](Example e, Generator& g) {
    ARETE_CHECK(
        !e.empty() && e[0].dim() == 3 && (e[0].dtype() == kUInt8 || e[0].dtype() == kFloat32),
        ValueError(name, "an example must begin with a picture (C, H, W) of uint8 or float32")
            .got(e.empty() ? "an empty example" : ops::describe(e[0])));
    e[0] = f(e[0], g);
    return e;
  };
}

void check_target(const char* name, int64_t height, int64_t width) {
  ARETE_CHECK(height > 0 && width > 0,
              ValueError(name, "height and width must be positive")
                  .got(std::to_string(height) + " x " + std::to_string(width)));
}
void check_probability(const char* name, double p) {
  ARETE_CHECK(p >= 0 && p <= 1,
              ValueError(name, "p must be in 0..1").argument("p").got(std::to_string(p)));
}
void check_range(const char* name, const char* argument, std::array<double, 2> r) {
  ARETE_CHECK(r[0] > 0 && r[0] <= r[1],
              ValueError(name, "a range must be positive and in order").argument(argument));
}

// Uniform in [0, 1).
double draw(Generator& g) { return Numbers(g).unit(); }
double draw(Generator& g, double low, double high) { return low + (high - low) * draw(g); }
// Uniform in [0, n].
int64_t draw_up_to(Generator& g, int64_t n) { return Numbers(g).below(n + 1); }

// A new picture with memory in the order (H, W, C), seen as (C, H, W).
Tensor new_picture(int64_t channels, int64_t height, int64_t width, DType dtype) {
  return empty({height, width, channels}, TensorOptions(dtype)).permute({2, 0, 1});
}
// The same picture with memory in that order.
Tensor interleaved(const Tensor& t) { return t.permute({1, 2, 0}).contiguous().permute({2, 0, 1}); }

// Part of a picture: rows [top, top + height), columns [left, left + width).
struct Box {
  int64_t top, left, height, width;
};
Tensor crop(const Tensor& t, const Box& b) {
  return t.narrow(1, b.top, b.height).narrow(2, b.left, b.width);
}

// interpolate's filter with antialias for `out` positions over `n` elements, in f32.
struct Filter {
  std::vector<int64_t> begin;
  std::vector<float> weights;  // `taps` for each position
  int64_t taps;
};
Filter make_filter(int64_t n, int64_t out) {
  ops::ResampleFilter f =
      ops::make_resample_filter(ops::FilterShape::triangle, n, out, double(n) / double(out));
  return {std::move(f.begin), {f.weights.begin(), f.weights.end()}, f.taps};
}

uint8_t to_pixel(float v, uint8_t) { return uint8_t(std::clamp(v + 0.5f, 0.0f, 255.0f)); }
float to_pixel(float v, float) { return v; }

// Rows first, so that the pass over columns touches only rows that count; sums in f32.
template <class T>
void resize_into(const Tensor& in, const Tensor& out) {
  const int64_t channels = in.size(0), height = in.size(1), width = in.size(2);
  const int64_t new_height = out.size(1), new_width = out.size(2), row = new_width * channels;
  const Filter across = make_filter(width, new_width), down = make_filter(height, new_height);
  const T* const source = in.data<T>();
  const IntList strides = in.strides();
  std::vector<float> rows(size_t(height * row));
  for (int64_t y = 0; y < height; ++y) {
    const T* const from = source + y * strides[1];
    float* to = rows.data() + y * row;
    for (int64_t x = 0; x < new_width; ++x) {
      const float* w = across.weights.data() + x * across.taps;
      const int64_t begin = across.begin[size_t(x)], taps = std::min(across.taps, width - begin);
      for (int64_t c = 0; c < channels; ++c) {
        const T* p = from + begin * strides[2] + c * strides[0];
        float sum = 0;
        for (int64_t k = 0; k < taps; ++k) sum += w[k] * float(p[k * strides[2]]);
        *to++ = sum;
      }
    }
  }
  T* to = out.data<T>();
  std::vector<float> sums(static_cast<size_t>(row));
  for (int64_t y = 0; y < new_height; ++y) {
    const float* w = down.weights.data() + y * down.taps;
    const int64_t begin = down.begin[size_t(y)], taps = std::min(down.taps, height - begin);
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (int64_t k = 0; k < taps; ++k) {
      if (w[k] == 0) continue;
      const float* from = rows.data() + (begin + k) * row;
      for (int64_t i = 0; i < row; ++i) sums[size_t(i)] += w[k] * from[i];
    }
    for (int64_t i = 0; i < row; ++i) *to++ = to_pixel(sums[size_t(i)], T());
  }
}

Tensor resized(const Tensor& t, int64_t height, int64_t width) {
  if (t.size(1) == height && t.size(2) == width) return t;
  const Tensor out = new_picture(t.size(0), height, width, t.dtype());
  if (t.dtype() == kUInt8)
    resize_into<uint8_t>(t, out);
  else
    resize_into<float>(t, out);
  return out;
}

void check_colour(const char* name, const char* argument, const std::vector<double>& colour,
                  const Tensor& t) {
  ARETE_CHECK(colour.size() == 1 || int64_t(colour.size()) == t.size(0),
              ValueError(name, "a colour is one number or one for each channel")
                  .argument(argument)
                  .got(std::to_string(colour.size()) + " numbers for " + ops::describe(t)));
}
void paint(Tensor t, const std::vector<double>& colour) {
  if (colour.size() == 1)
    t.fill_(Scalar(colour[0]));
  else
    for (size_t c = 0; c < colour.size(); ++c) t.select(0, int64_t(c)).fill_(Scalar(colour[c]));
}

// The box of `t`, which may reach beyond it: `colour` there.
Tensor crop_or_pad(const Tensor& t, const Box& b, const std::vector<double>& colour = {0}) {
  const int64_t top = std::max<int64_t>(b.top, 0), left = std::max<int64_t>(b.left, 0);
  const int64_t bottom = std::min(b.top + b.height, t.size(1)),
                right = std::min(b.left + b.width, t.size(2));
  if (bottom - top == b.height && right - left == b.width) return crop(t, b);
  Tensor out = new_picture(t.size(0), b.height, b.width, t.dtype());
  paint(out, colour);
  if (bottom > top && right > left)
    crop(out, {top - b.top, left - b.left, bottom - top, right - left})
        .copy_(crop(t, {top, left, bottom - top, right - left}));
  return out;
}

// A part of height x width whose area and ratio are drawn; false if ten attempts do not fit.
bool draw_box(Generator& g, int64_t height, int64_t width, std::array<double, 2> scale,
              std::array<double, 2> ratio, Box& box) {
  const double area = double(height * width);
  for (int i = 0; i < 10; ++i) {
    const double target = area * draw(g, scale[0], scale[1]);
    const double aspect = std::exp(draw(g, std::log(ratio[0]), std::log(ratio[1])));
    const auto w = int64_t(std::lround(std::sqrt(target * aspect)));
    const auto h = int64_t(std::lround(std::sqrt(target / aspect)));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    box = {draw_up_to(g, height - h), draw_up_to(g, width - w), h, w};
    return true;
  }
  return false;
}

// Every value of an interleaved copy through f, in its dtype.
template <class F>
Tensor with_pixels(const Tensor& t, F&& f) {
  Tensor out = interleaved(t);
  if (out.data_ptr() == t.data_ptr()) out = out.clone();  // others may hold the picture
  const int64_t channels = out.size(0), pixels = out.size(1) * out.size(2);
  const auto run = [&](auto* p) {
    using T = std::remove_pointer_t<decltype(p)>;
    for (int64_t i = 0; i < pixels; ++i, p += channels) {
      float v[4];
      for (int64_t c = 0; c < channels; ++c) v[c] = float(p[c]);
      f(v);
      for (int64_t c = 0; c < channels; ++c) p[c] = to_pixel(v[c], T());
    }
  };
  ARETE_CHECK(channels <= 4, ValueError("transforms", "at most 4 channels").got(ops::describe(t)));
  if (out.dtype() == kUInt8)
    run(out.data<uint8_t>());
  else
    run(out.data<float>());
  return out;
}

float luma(const float* v) { return 0.299f * v[0] + 0.587f * v[1] + 0.114f * v[2]; }

// Moves the hue by `shift` sixths of the circle. Value (the largest) and chroma (largest less
// smallest) stay, and with them the saturation.
void shift_hue(float* v, float shift) {
  const float value = std::max({v[0], v[1], v[2]}), chroma = value - std::min({v[0], v[1], v[2]});
  if (chroma <= 0) return;  // grey has no hue
  float hue;                // in sixths, red at 0
  if (value == v[0])
    hue = (v[1] - v[2]) / chroma;
  else if (value == v[1])
    hue = 2 + (v[2] - v[0]) / chroma;
  else
    hue = 4 + (v[0] - v[1]) / chroma;
  for (int c = 0; c < 3; ++c) {
    // A channel is full within a sixth of its own colour and none within a sixth of the opposite
    // one; `k` is the distance from where it is full for the last time, going up.
    float k = hue + shift + float(5 - 2 * c);
    k -= 6 * std::floor(k / 6);
    v[c] = value - chroma * std::clamp(std::min(k, 4 - k), 0.0f, 1.0f);
  }
}
Tensor with_hue(const Tensor& t, double shift) {
  if (t.size(0) < 3) return t;
  return with_pixels(t, [s = float(6 * shift)](float* v) { shift_hue(v, s); });
}

}  // namespace

Transform compose(std::vector<Transform> parts) {
  return [parts = std::move(parts)](Example e, Generator& g) {
    for (const Transform& t : parts) e = t(std::move(e), g);
    return e;
  };
}

Transform resize(int64_t height, int64_t width) {
  check_target("resize", height, width);
  return on_picture("resize",
                    [=](const Tensor& t, Generator&) { return resized(t, height, width); });
}

Transform resize_shorter(int64_t size, int64_t longest) {
  check_target("resize_shorter", size, size);
  ARETE_CHECK(longest == 0 || longest > size,
              ValueError("resize_shorter", "the longest side must be greater than the shorter one")
                  .got(std::to_string(longest) + " and " + std::to_string(size)));
  return on_picture("resize_shorter", [=](const Tensor& t, Generator&) {
    const int64_t h = t.size(1), w = t.size(2);
    int64_t shorter = size, longer = std::max<int64_t>(
                                size * std::max(h, w) / std::max<int64_t>(std::min(h, w), 1), 1);
    if (longest > 0 && longer > longest) {
      shorter = std::max<int64_t>(longest * shorter / longer, 1);
      longer = longest;
    }
    return h < w ? resized(t, shorter, longer) : resized(t, longer, shorter);
  });
}

Transform center_crop(int64_t height, int64_t width) {
  check_target("center_crop", height, width);
  return on_picture("center_crop", [=](const Tensor& t, Generator&) {
    const auto middle = [](int64_t n, int64_t part) {
      return int64_t(std::floor(double(n - part) / 2 + 0.5));
    };
    return crop_or_pad(t, {middle(t.size(1), height), middle(t.size(2), width), height, width});
  });
}

Transform random_crop(int64_t height, int64_t width, int64_t padding) {
  return random_crop(height, width, Padding{padding, padding, padding, padding});
}

Transform random_crop(int64_t height, int64_t width, Padding padding) {
  check_target("random_crop", height, width);
  ARETE_CHECK(std::min({padding.left, padding.top, padding.right, padding.bottom}) >= 0,
              ValueError("random_crop", "padding must not be negative"));
  return on_picture("random_crop", [=, p = std::move(padding)](const Tensor& t, Generator& g) {
    check_colour("random_crop", "fill", p.fill, t);
    int64_t down = t.size(1) + p.top + p.bottom - height,
            across = t.size(2) + p.left + p.right - width;
    ARETE_CHECK(p.if_needed || (down >= 0 && across >= 0),
                ValueError("random_crop", "Required crop size is larger than input image size")
                    .expected("at least " + std::to_string(height) + " x " + std::to_string(width))
                    .got(ops::describe(t)));
    const int64_t above = down < 0 ? -down : 0, before = across < 0 ? -across : 0;
    const int64_t top = draw_up_to(g, down + 2 * above), left = draw_up_to(g, across + 2 * before);
    return crop_or_pad(t, {top - p.top - above, left - p.left - before, height, width}, p.fill);
  });
}

Transform random_resized_crop(int64_t height, int64_t width, std::array<double, 2> scale,
                              std::array<double, 2> ratio) {
  check_target("random_resized_crop", height, width);
  check_range("random_resized_crop", "scale", scale);
  check_range("random_resized_crop", "ratio", ratio);
  return on_picture("random_resized_crop", [=](const Tensor& t, Generator& g) {
    const int64_t h = t.size(1), w = t.size(2);
    Box box{0, 0, h, w};
    if (!draw_box(g, h, w, scale, ratio, box)) {
      const double aspect = double(w) / double(h);
      if (aspect < ratio[0])
        box.height = std::min(h, int64_t(std::lround(double(w) / ratio[0])));
      else if (aspect > ratio[1])
        box.width = std::min(w, int64_t(std::lround(double(h) * ratio[1])));
      box.top = (h - box.height) / 2;
      box.left = (w - box.width) / 2;
    }
    return resized(crop(t, box), height, width);
  });
}

Transform random_horizontal_flip(double p) {
  check_probability("random_horizontal_flip", p);
  return on_picture("random_horizontal_flip",
                    [=](const Tensor& t, Generator& g) { return draw(g) < p ? t.flip({2}) : t; });
}

Transform random_vertical_flip(double p) {
  check_probability("random_vertical_flip", p);
  return on_picture("random_vertical_flip",
                    [=](const Tensor& t, Generator& g) { return draw(g) < p ? t.flip({1}) : t; });
}

Tensor adjust_hue(const Tensor& picture, double shift) {
  ARETE_CHECK(shift >= -0.5 && shift <= 0.5,
              ValueError("adjust_hue", "hue_factor is not in [-0.5, 0.5]")
                  .argument("hue_factor")
                  .got(std::to_string(shift)));
  Generator unused;
  return on_picture("adjust_hue", [shift](const Tensor& t, Generator&) {
    return with_hue(t, shift);
  })({picture}, unused)[0];
}

Transform color_jitter(double brightness, double contrast, double saturation, double hue) {
  ARETE_CHECK(brightness >= 0 && contrast >= 0 && saturation >= 0,
              ValueError("color_jitter", "factors must not be negative"));
  ARETE_CHECK(hue >= 0 && hue <= 0.5, ValueError("color_jitter", "hue must be in [0, 0.5]")
                                          .argument("hue")
                                          .got(std::to_string(hue)));
  const auto around_one = [](double x) { return std::array{std::max(0.0, 1 - x), 1 + x}; };
  return color_jitter(around_one(brightness), around_one(contrast), around_one(saturation),
                      std::array{-hue, hue});
}

Transform color_jitter(std::array<double, 2> brightness, std::array<double, 2> contrast,
                       std::array<double, 2> saturation, std::array<double, 2> hue) {
  for (const auto& r : {brightness, contrast, saturation})
    ARETE_CHECK(r[0] >= 0 && r[0] <= r[1],
                ValueError("color_jitter", "a range of factors must not be negative, and in order")
                    .got(std::to_string(r[0]) + ", " + std::to_string(r[1])));
  ARETE_CHECK(-0.5 <= hue[0] && hue[0] <= hue[1] && hue[1] <= 0.5,
              ValueError("color_jitter", "the range must be in [-0.5, 0.5], and in order")
                  .argument("hue")
                  .got(std::to_string(hue[0]) + ", " + std::to_string(hue[1])));
  return on_picture("color_jitter", [=](const Tensor& t, Generator& g) {
    const auto factor = [&](const std::array<double, 2>& r) { return float(draw(g, r[0], r[1])); };
    const float light = factor(brightness), spread = factor(contrast), colour = factor(saturation);
    const bool rgb = t.size(0) >= 3;
    const float top = t.dtype() == kUInt8 ? 255.0f : 1.0f;
    const auto limit = [top](float v) { return std::clamp(v, 0.0f, top); };
    const int64_t n = rgb ? 3 : 1;
    double sum = 0;  // of the luma after the first step, for the contrast
    const Tensor lit = with_pixels(t, [&](float* v) {
      for (int64_t c = 0; c < n; ++c) v[c] = limit(v[c] * light);
      sum += rgb ? luma(v) : v[0];
    });
    const auto mean = float(sum / double(std::max<int64_t>(t.size(1) * t.size(2), 1)));
    const float turn = hue[0] != 0 || hue[1] != 0 ? float(6 * draw(g, hue[0], hue[1])) : 0;
    return with_pixels(lit, [&](float* v) {
      for (int64_t c = 0; c < n; ++c) v[c] = limit(mean + (v[c] - mean) * spread);
      if (!rgb) return;
      const float y = luma(v);
      for (int64_t c = 0; c < n; ++c) v[c] = limit(y + (v[c] - y) * colour);
      if (turn != 0) shift_hue(v, turn);
    });
  });
}

Transform random_grayscale(double p) {
  check_probability("random_grayscale", p);
  return on_picture("random_grayscale", [=](const Tensor& t, Generator& g) {
    if (draw(g) >= p || t.size(0) < 3) return t;
    return with_pixels(t, [](float* v) { v[0] = v[1] = v[2] = luma(v); });
  });
}

Transform random_erasing(double p, std::array<double, 2> scale, std::array<double, 2> ratio,
                         std::vector<double> value) {
  check_probability("random_erasing", p);
  check_range("random_erasing", "scale", scale);
  check_range("random_erasing", "ratio", ratio);
  return on_picture("random_erasing", [=, value = std::move(value)](const Tensor& t, Generator& g) {
    if (!value.empty()) check_colour("random_erasing", "value", value, t);
    Box box;
    if (draw(g) >= p || !draw_box(g, t.size(1), t.size(2), scale, ratio, box)) return t;
    const Tensor out = t.clone();
    Tensor part = crop(out, box);
    if (!value.empty())
      paint(part, value);
    else if (t.dtype() == kUInt8)
      part.copy_(rand(part.sizes(), kFloat32, &g).mul(Scalar(256)).floor());
    else
      part.copy_(randn(part.sizes(), kFloat32, &g));
    return out;
  });
}

Transform to_float() {
  return on_picture("to_float", [](const Tensor& t, Generator&) {
    return t.dtype() == kFloat32 ? t : t.to(kFloat32).mul(Scalar(1.0 / 255));
  });
}

Transform normalize(std::vector<double> mean, std::vector<double> std) {
  ARETE_CHECK(!mean.empty() && !std.empty(),
              ValueError("normalize", "mean and std need one number or one for each channel"));
  for (double s : std)
    ARETE_CHECK(
        s > 0,
        ValueError("normalize", "std must be positive").argument("std").got(Scalar(s).to_string()));
  return on_picture("normalize", [=](const Tensor& t, Generator&) {
    const int64_t channels = t.size(0), height = t.size(1), width = t.size(2);
    const auto fits = [&](const std::vector<double>& v) {
      return v.size() == 1 || int64_t(v.size()) == channels;
    };
    ARETE_CHECK(fits(mean) && fits(std),
                ValueError("normalize", "mean and std need one number or one for each channel")
                    .got(ops::describe(t)));
    const Tensor out = empty({channels, height, width}, TensorOptions(kFloat32));
    const IntList strides = t.strides();
    const double unit = t.dtype() == kUInt8 ? 1.0 / 255 : 1;
    float* to = out.data<float>();
    for (int64_t c = 0; c < channels; ++c) {
      const double s = std[std.size() == 1 ? 0 : size_t(c)],
                   m = mean[mean.size() == 1 ? 0 : size_t(c)];
      const auto scale = float(unit / s), shift = float(-m / s);
      const auto run = [&](const auto* from) {
        for (int64_t y = 0; y < height; ++y)
          for (int64_t x = 0; x < width; ++x)
            *to++ = float(from[y * strides[1] + x * strides[2]]) * scale + shift;
      };
      if (t.dtype() == kUInt8)
        run(t.data<uint8_t>() + c * strides[0]);
      else
        run(t.data<float>() + c * strides[0]);
    }
    return out;
  });
}

}  // namespace arete::data::transforms
