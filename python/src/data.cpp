// Pictures and tokens for arete.vision and arete.utils.data.
#include <nanobind/stl/shared_ptr.h>

#include <array>
#include <memory>

#include "arete/data/image_folder.h"
#include "arete/data/token_dataset.h"
#include "arete/data/transforms.h"
#include "arete/io/image.h"
#include "arete/ops/creation.h"
#include "batch_maker.h"
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

std::vector<data::Transform> functions(const std::vector<const PictureTransform*>& transforms) {
  std::vector<data::Transform> all;
  for (const PictureTransform* t : transforms) all.push_back(t->f);
  return all;
}

// The library's data sets are shared by Python and those who make batches of them.
using Folder = std::shared_ptr<const data::ImageFolder>;
using Tokens = std::shared_ptr<const data::TokenDataset>;

template <class D>
std::vector<Tensor> example(const D& dataset, int64_t i) {
  return dataset.get(i < 0 ? i + dataset.size() : i);
}

// A folder's pictures with the labels that Python has for them, or with none.
class Pictures final : public data::Dataset {
 public:
  Pictures(Folder files, std::optional<std::vector<int64_t>> labels)
      : files_(std::move(files)), labels_(std::move(labels)) {}
  int64_t size() const override { return files_->size(); }
  data::Example get(int64_t i) const override {
    data::Example e{files_->get(i)[0]};
    if (labels_) {
      ARETE_CHECK(i < int64_t(labels_->size()), IndexError("", "list index out of range"));
      e.push_back(tensor((*labels_)[size_t(i)]));
    }
    return e;
  }
  bool is_slow() const override { return true; }

 private:
  Folder files_;
  std::optional<std::vector<int64_t>> labels_;
};

// None if there are labels that are no plain integers.
std::optional<Maker> picture_maker(const Folder& files,
                                   const std::vector<const PictureTransform*>& transforms,
                                   std::optional<nb::list> labels, bool pinned) {
  std::optional<std::vector<int64_t>> numbers;
  if (labels) numbers.emplace();
  for (size_t i = 0; labels && i < labels->size(); ++i) {
    PyObject* const label = PyList_GET_ITEM(labels->ptr(), Py_ssize_t(i));
    int overflow = 0;
    if (!PyLong_CheckExact(label)) return std::nullopt;
    numbers->push_back(PyLong_AsLongLongAndOverflow(label, &overflow));
    if (overflow) return std::nullopt;
  }
  return maker_of(std::make_shared<Pictures>(files, std::move(numbers)),
                  data::transforms::compose(functions(transforms)), pinned);
}

void bind_transforms(nb::module_& m) {
  namespace t = data::transforms;
  nb::class_<PictureTransform>(m, "_Transform").def("__call__", &PictureTransform::operator());
  m.def("_compose", [](const std::vector<const PictureTransform*>& parts) {
    return PictureTransform{t::compose(functions(parts))};
  });
  m.def("_resize", [](int64_t h, int64_t w) { return PictureTransform{t::resize(h, w)}; });
  m.def("_resize_shorter",
        [](int64_t n, int64_t longest) { return PictureTransform{t::resize_shorter(n, longest)}; });
  m.def("_center_crop",
        [](int64_t h, int64_t w) { return PictureTransform{t::center_crop(h, w)}; });
  m.def("_random_crop", [](int64_t h, int64_t w, std::array<int64_t, 4> sides, bool if_needed,
                           std::vector<double> fill) {
    t::Padding padding{sides[0], sides[1], sides[2], sides[3], if_needed, std::move(fill)};
    return PictureTransform{t::random_crop(h, w, std::move(padding))};
  });
  m.def("_random_resized_crop", [](int64_t h, int64_t w, Range scale, Range ratio) {
    return PictureTransform{t::random_resized_crop(h, w, scale, ratio)};
  });
  m.def("_random_horizontal_flip",
        [](double p) { return PictureTransform{t::random_horizontal_flip(p)}; });
  m.def("_random_vertical_flip",
        [](double p) { return PictureTransform{t::random_vertical_flip(p)}; });
  m.def("_color_jitter", [](Range brightness, Range contrast, Range saturation, Range hue) {
    return PictureTransform{t::color_jitter(brightness, contrast, saturation, hue)};
  });
  m.def("_adjust_hue", &t::adjust_hue, nb::call_guard<nb::gil_scoped_release>());
  m.def("_random_grayscale", [](double p) { return PictureTransform{t::random_grayscale(p)}; });
  m.def("_random_erasing", [](double p, Range scale, Range ratio, std::vector<double> value) {
    return PictureTransform{t::random_erasing(p, scale, ratio, std::move(value))};
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
      .def(nb::new_([](const std::string& root, const std::string& mode, int64_t at_least,
                       std::optional<std::vector<std::string>> extensions) {
             data::ImageFolderOptions o{.decode = decode_options(mode, at_least)};
             if (extensions) o.extensions = std::move(*extensions);
             return std::make_shared<data::ImageFolder>(root, std::move(o));
           }),
           "root"_a, "mode"_a = "rgb", "at_least"_a = 0, "extensions"_a = nb::none())
      .def("__len__", &data::ImageFolder::size)
      .def("get", &example<data::ImageFolder>, nb::call_guard<nb::gil_scoped_release>())
      .def("maker", &picture_maker, "transforms"_a, "labels"_a.none(), "pinned"_a)
      .def_prop_ro("classes", &data::ImageFolder::classes)
      .def_prop_ro("samples", &data::ImageFolder::samples);
  nb::class_<data::TokenDataset>(m, "_TokenDataset")
      .def(nb::new_([](const std::string& path, int64_t length, int bytes, int64_t stride) {
             return std::make_shared<data::TokenDataset>(path, length, bytes, stride);
           }),
           "path"_a, "length"_a, "bytes_per_token"_a = 2, "stride"_a = 0)
      .def("__len__", &data::TokenDataset::size)
      .def("tokens", &data::TokenDataset::tokens)
      .def("get", &example<data::TokenDataset>, nb::call_guard<nb::gil_scoped_release>())
      .def("maker",
           [](const Tokens& file, bool pinned) { return maker_of(file, nullptr, pinned); });
  bind_transforms(m);
  bind_loader(m);
}

}  // namespace arete::python
