// Pictures and tokens for arete.vision and arete.utils.data.
#include "arete/base/thread_pool.h"
#include "arete/data/image_folder.h"
#include "arete/data/token_dataset.h"
#include "arete/data/transforms.h"
#include "arete/io/image.h"
#include "bindings.h"
#include "caster.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace arete::python {

namespace {

using Range = std::array<double, 2>;

io::DecodeOptions decode_options(const std::string& mode, int64_t at_least) {
  io::DecodeOptions o;
  o.at_least = at_least;
  if (mode == "gray")
    o.mode = io::ImageMode::gray;
  else if (mode == "rgb")
    o.mode = io::ImageMode::rgb;
  else
    ARETE_CHECK(mode == "unchanged", ValueError("decode_image", "unknown mode")
                                         .argument("mode")
                                         .expected("unchanged, gray or rgb")
                                         .got(mode));
  return o;
}

nb::bytes to_bytes(const std::vector<std::byte>& v) { return nb::bytes(v.data(), v.size()); }

// An augmentation of one picture.
struct PictureTransform {
  data::Transform f;
  Tensor operator()(const Tensor& picture, nb::handle generator) const {
    Generator* g = to_generator(generator.ptr());
    if (!g) throw nb::type_error("the second argument must be a Generator");
    const WithoutGil free;
    return f({picture}, *g)[0];
  }
};

template <class D>
std::vector<Tensor> example(const D& dataset, int64_t i) {
  return dataset.get(i < 0 ? i + dataset.size() : i);
}

// The pictures of a batch, each changed by the transforms one after the other, stacked. All random
// numbers come from one generator, in the order in which single calls would draw them.
Tensor pictures(const data::ImageFolder& files, const std::vector<int64_t>& indices,
                const std::vector<const PictureTransform*>& transforms, nb::handle generator,
                bool pinned) {
  Generator* const g = to_generator(generator.ptr());
  if (!g) throw nb::type_error("the third argument must be a Generator");
  const WithoutGil free;
  const SerialRegion serial;  // the batch is one worker's share of the work
  const auto picture = [&](int64_t k) {
    data::Example e{example(files, indices[size_t(k)])[0]};
    for (const PictureTransform* t : transforms) e = t->f(std::move(e), *g);
    return e;
  };
  return data::collate(int64_t(indices.size()), picture, pinned)[0];
}

void bind_transforms(nb::module_& m) {
  namespace t = data::transforms;
  nb::class_<PictureTransform>(m, "_Transform").def("__call__", &PictureTransform::operator());
  m.def("_compose", [](const std::vector<const PictureTransform*>& parts) {
    std::vector<data::Transform> all;
    for (const PictureTransform* p : parts) all.push_back(p->f);
    return PictureTransform{t::compose(std::move(all))};
  });
  m.def("_resize", [](int64_t h, int64_t w) { return PictureTransform{t::resize(h, w)}; });
  m.def("_resize_shorter", [](int64_t n) { return PictureTransform{t::resize_shorter(n)}; });
  m.def("_center_crop",
        [](int64_t h, int64_t w) { return PictureTransform{t::center_crop(h, w)}; });
  m.def("_random_crop", [](int64_t h, int64_t w, int64_t padding) {
    return PictureTransform{t::random_crop(h, w, padding)};
  });
  m.def("_random_resized_crop", [](int64_t h, int64_t w, Range scale, Range ratio) {
    return PictureTransform{t::random_resized_crop(h, w, scale, ratio)};
  });
  m.def("_random_horizontal_flip",
        [](double p) { return PictureTransform{t::random_horizontal_flip(p)}; });
  m.def("_random_vertical_flip",
        [](double p) { return PictureTransform{t::random_vertical_flip(p)}; });
  m.def("_color_jitter", [](double brightness, double contrast, double saturation, double hue) {
    return PictureTransform{t::color_jitter(brightness, contrast, saturation, hue)};
  });
  m.def("_adjust_hue", &t::adjust_hue, nb::call_guard<nb::gil_scoped_release>());
  m.def("_random_grayscale", [](double p) { return PictureTransform{t::random_grayscale(p)}; });
  m.def("_random_erasing", [](double p, Range scale, Range ratio) {
    return PictureTransform{t::random_erasing(p, scale, ratio)};
  });
  m.def("_to_float", [] { return PictureTransform{t::to_float()}; });
  m.def("_normalize", [](std::vector<double> mean, std::vector<double> std) {
    return PictureTransform{t::normalize(std::move(mean), std::move(std))};
  });
}

}  // namespace

void bind_datasets(nb::module_& m) {
  m.def("_decode_image", [](nb::bytes bytes, const std::string& mode, int64_t at_least) {
    const io::DecodeOptions o = decode_options(mode, at_least);
    const auto* data = static_cast<const std::byte*>(bytes.data());
    const WithoutGil free;
    return io::decode_image({data, bytes.size()}, o);
  });
  m.def("_read_image", [](const std::string& path, const std::string& mode, int64_t at_least) {
    const io::DecodeOptions o = decode_options(mode, at_least);
    const WithoutGil free;
    return io::read_image(path, o);
  });
  m.def("_encode_png", [](const Tensor& t) { return to_bytes(io::encode_png(t)); });
  m.def("_encode_jpeg",
        [](const Tensor& t, int quality) { return to_bytes(io::encode_jpeg(t, quality)); });
  nb::class_<data::ImageFolder>(m, "_ImageFolder")
      .def(
          "__init__",
          [](data::ImageFolder* self, const std::string& root, const std::string& mode,
             int64_t at_least, std::optional<std::vector<std::string>> extensions) {
            data::ImageFolderOptions o{.decode = decode_options(mode, at_least)};
            if (extensions) o.extensions = std::move(*extensions);
            new (self) data::ImageFolder(root, std::move(o));
          },
          "root"_a, "mode"_a = "rgb", "at_least"_a = 0, "extensions"_a = nb::none())
      .def("__len__", &data::ImageFolder::size)
      .def("get", &example<data::ImageFolder>, nb::call_guard<nb::gil_scoped_release>())
      .def("get_batch", &pictures)
      .def_prop_ro("classes", &data::ImageFolder::classes)
      .def_prop_ro("samples", &data::ImageFolder::samples);
  nb::class_<data::TokenDataset>(m, "_TokenDataset")
      .def(nb::init<const std::string&, int64_t, int, int64_t>(), "path"_a, "length"_a,
           "bytes_per_token"_a = 2, "stride"_a = 0)
      .def("__len__", &data::TokenDataset::size)
      .def("tokens", &data::TokenDataset::tokens)
      .def("get", &example<data::TokenDataset>, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "get_batch",
          [](const data::TokenDataset& d, std::vector<int64_t> indices) {
            for (int64_t& i : indices) i += i < 0 ? d.size() : 0;
            return std::vector<Tensor>(d.get_batch(indices));
          },
          nb::call_guard<nb::gil_scoped_release>());
  bind_transforms(m);
}

}  // namespace arete::python
