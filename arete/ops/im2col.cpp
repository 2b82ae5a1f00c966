// Windows of images as columns and back: torch.nn.functional's unfold and fold (declared in nn.h).
#include "arete/ops/call.h"
#include "arete/ops/nn.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/ops/window_util.h"

namespace arete {
namespace ops {
namespace {

// The windows of images (.., height, width) and how many there are in each direction.
struct Windows {
  Shape kernel, dilation, padding, stride, counts;
  Shape padded;  // image sizes with padding
};

// `first`: the position of kernel_size among the arguments; dilation, padding and stride follow.
Windows windows_of(const Call& c, size_t first, IntList image) {
  const char* op = c.name();
  Windows w{spread(c.ints(first), 2, op, "kernel_size"),
            spread(c.ints(first + 1), 2, op, "dilation"),
            spread(c.ints(first + 2), 2, op, "padding"),
            spread(c.ints(first + 3), 2, op, "stride"),
            {},
            {}};
  for (size_t d = 0; d < 2; ++d) {
    ARETE_CHECK(
        w.kernel[d] > 0,
        ValueError(op, "kernel size should be greater than zero, but got " + to_string(w.kernel)));
    ARETE_CHECK(w.dilation[d] > 0, ValueError(op, "dilation should be greater than zero, but got " +
                                                      to_string(w.dilation)));
    ARETE_CHECK(w.stride[d] > 0, ValueError(op, "stride should be greater than zero, but got " +
                                                    to_string(w.stride)));
    ARETE_CHECK(w.padding[d] >= 0,
                ValueError(op, "padding should be non-negative, but got " + to_string(w.padding)));
    w.padded.push_back(image[d] + 2 * w.padding[d]);
    const int64_t room = w.padded[d] - w.dilation[d] * (w.kernel[d] - 1) - 1;
    w.counts.push_back(room < 0 ? 0 : room / w.stride[d] + 1);
  }
  ARETE_CHECK(
      w.counts[0] > 0 && w.counts[1] > 0,
      ValueError(op, "Given image with spatial size " + to_string(image) + ", kernel_size=" +
                         to_string(w.kernel) + ", dilation=" + to_string(w.dilation) +
                         ", padding=" + to_string(w.padding) + ", stride=" + to_string(w.stride) +
                         ", calculated shape of the array of sliding blocks as " +
                         to_string(w.counts) + ", but its components must be at least one."));
  return w;
}
// Sizes (N, C, kh, kw, rows, columns) of the windows and their strides in a padded image.
Shape window_sizes(const Windows& w, int64_t batch, int64_t channels) {
  return {batch, channels, w.kernel[0], w.kernel[1], w.counts[0], w.counts[1]};
}
Shape window_strides(const Windows& w, int64_t channels) {
  const int64_t row = w.padded[1], plane = w.padded[0] * row;
  return {channels * plane,  plane,      w.dilation[0] * row, w.dilation[1],
          w.stride[0] * row, w.stride[1]};
}

const OpRecord& unfold_op =
    define(
        "unfold_im2col(Tensor input, int[] kernel_size, int[] dilation=1, int[] padding=0, int[] "
        "stride=1) -> Tensor")
        .functional({"unfold"})
        .doc("The windows of images as columns: (N, C, H, W) to (N, C kh kw, windows).")
        .surface(Surface::internal)
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          ARETE_CHECK(x.dim() == 3 || x.dim() == 4,
                      ValueError(c.name(),
                                 "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size "
                                 "and other non-zero dimensions for input, but got: " +
                                     to_string(x.sizes())));
          const bool batched = x.dim() == 4;
          const Tensor images = batched ? x : x.unsqueeze(0);
          const int64_t batch = images.size(0), channels = images.size(1);
          const Windows w = windows_of(c, 1, images.sizes().subspan(2));
          const bool pads = w.padding[0] || w.padding[1];
          const Tensor padded =
              pads ? pad(images, {w.padding[1], w.padding[1], w.padding[0], w.padding[0]})
                         .contiguous()
                   : images.contiguous();
          const Tensor columns = as_strided(padded, window_sizes(w, batch, channels),
                                            window_strides(w, channels), padded.storage_offset())
                                     .reshape({batch, channels * w.kernel[0] * w.kernel[1],
                                               w.counts[0] * w.counts[1]});
          return {batched ? columns : columns.squeeze(0)};
        });

const OpRecord& fold_op =
    define(
        "fold(Tensor input, int[] output_size, int[] kernel_size, int[] dilation=1, int[] "
        "padding=0, int[] stride=1) -> Tensor")
        .doc(
            "Adds the windows that columns hold up to images: (N, C kh kw, windows) to "
            "(N, C, H, W).")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          ARETE_CHECK(x.dim() == 2 || x.dim() == 3,
                      ValueError(c.name(),
                                 "Expected 2D or 3D (batch mode) tensor for input with possibly 0 "
                                 "batch size and non-zero dimensions for input, but got: " +
                                     to_string(x.sizes())));
          const Shape image = spread(c.ints(1), 2, c.name(), "output_size");
          const Windows w = windows_of(c, 2, image);
          const bool batched = x.dim() == 3;
          const Tensor columns = batched ? x : x.unsqueeze(0);
          const int64_t taps = w.kernel[0] * w.kernel[1], windows = w.counts[0] * w.counts[1];
          ARETE_CHECK(columns.size(1) % taps == 0,
                      ValueError(c.name(),
                                 "Expected size of input's dimension 1 to be divisible by the "
                                 "product of kernel_size, but got input.size(1)=" +
                                     std::to_string(columns.size(1)) +
                                     " and kernel_size=" + to_string(w.kernel) + "."));
          ARETE_CHECK(
              columns.size(2) == windows,
              ValueError(c.name(), "Given output_size=" + to_string(image) + ", kernel_size=" +
                                       to_string(w.kernel) + ", dilation=" + to_string(w.dilation) +
                                       ", padding=" + to_string(w.padding) +
                                       ", stride=" + to_string(w.stride) +
                                       ", expected size of input's dimension 2 to match the "
                                       "calculated number of sliding blocks " +
                                       std::to_string(windows) + ", but got input.size(2)=" +
                                       std::to_string(columns.size(2)) + "."));
          const int64_t batch = columns.size(0), channels = columns.size(1) / taps;
          const Tensor padded = embed_window(columns.reshape(window_sizes(w, batch, channels)),
                                             {batch, channels, w.padded[0], w.padded[1]},
                                             window_strides(w, channels), 0);
          const Tensor images = padded.narrow(2, w.padding[0], image[0])
                                    .narrow(3, w.padding[1], image[1])
                                    .contiguous();
          return {batched ? images : images.squeeze(0)};
        });

}  // namespace
}  // namespace ops

Tensor im2col(const Tensor& input, const Extent& kernel_size, const Extent& dilation,
              const Extent& padding, const Extent& stride) {
  return ops::call(ops::unfold_op, {input, IntList(kernel_size), IntList(dilation),
                                    IntList(padding), IntList(stride)});
}
Tensor fold(const Tensor& input, const Extent& output_size, const Extent& kernel_size,
            const Extent& dilation, const Extent& padding, const Extent& stride) {
  return ops::call(ops::fold_op, {input, IntList(output_size), IntList(kernel_size),
                                  IntList(dilation), IntList(padding), IntList(stride)});
}

}  // namespace arete

ARETE_FAMILY(im2col)
