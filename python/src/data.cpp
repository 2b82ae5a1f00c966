// Pictures and tokens for arete.vision and arete.utils.data.
#include <algorithm>
#include <array>
#include <atomic>
#include <memory>

#include "arete/base/thread_pool.h"
#include "arete/data/image_folder.h"
#include "arete/data/token_dataset.h"
#include "arete/data/transforms.h"
#include "arete/data/worker_pool.h"
#include "arete/io/image.h"
#include "arete/ops/creation.h"
#include "arete/ops/random.h"
#include "batch_feed.h"
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

// A data set of the library that Python and makers of batches share.
template <class D>
struct Shared {
  std::shared_ptr<const D> data;
  const D* operator->() const { return data.get(); }
};
using Folder = Shared<data::ImageFolder>;
using Tokens = Shared<data::TokenDataset>;

template <class D>
std::vector<Tensor> example(const D& dataset, int64_t i) {
  return dataset.get(i < 0 ? i + dataset.size() : i);
}

// The pictures of a batch, each changed by the transforms one after the other, stacked. All random
// numbers come from one generator, in the order in which single calls would draw them; decoding,
// most of the work, needs none and is shared.
Tensor pictures(const data::ImageFolder& files, IntList indices,
                const std::vector<data::Transform>& transforms, Generator& generator, bool pinned,
                const data::ForEach& for_each) {
  const SerialRegion serial;  // the batch is one worker's share of the work
  // Few enough at a time that large pictures neither fill memory nor leave the cache.
  constexpr int64_t kTogether = 32;
  std::array<Tensor, kTogether> decoded;
  const auto picture = [&](int64_t k) {
    if (k % kTogether == 0)
      for_each(std::min(kTogether, int64_t(indices.size()) - k),
               [&](int64_t j) { decoded[size_t(j)] = example(files, indices[size_t(k + j)])[0]; });
    data::Example e{std::move(decoded[size_t(k % kTogether)])};
    for (const data::Transform& f : transforms) e = f(std::move(e), generator);
    return e;
  };
  return data::collate(int64_t(indices.size()), picture, pinned)[0];
}

void one_by_one(int64_t n, const std::function<void(int64_t)>& f) {
  for (int64_t i = 0; i < n; ++i) f(i);
}

std::vector<data::Transform> functions(const std::vector<const PictureTransform*>& transforms) {
  std::vector<data::Transform> all;
  for (const PictureTransform* t : transforms) all.push_back(t->f);
  return all;
}

data::Batch tokens(const data::TokenDataset& file, IntList indices) {
  std::vector<int64_t> from_front(indices.begin(), indices.end());
  for (int64_t& i : from_front) i += i < 0 ? file.size() : 0;
  return file.get_batch(from_front);
}

// What a loader's own threads make batches with. Nothing in it belongs to Python: they never wait
// for the interpreter's lock.
struct Maker {
  data::BatchMaker make;
};

data::Batch finished(data::Batch batch, bool pinned) {
  if (pinned)
    for (Tensor& t : batch) t = t.pin_memory();
  return batch;
}

// None if there are labels that are no plain integers.
std::optional<Maker> picture_maker(const Folder& files,
                                   const std::vector<const PictureTransform*>& transforms,
                                   nb::list labels, bool pinned) {
  std::vector<int64_t> numbers(labels.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    PyObject* const label = PyList_GET_ITEM(labels.ptr(), Py_ssize_t(i));
    int overflow = 0;
    if (PyLong_CheckExact(label)) numbers[i] = PyLong_AsLongLongAndOverflow(label, &overflow);
    if (!PyLong_CheckExact(label) || overflow) return std::nullopt;
  }
  return Maker{[files = files.data, all = functions(transforms), numbers = std::move(numbers),
                pinned](IntList indices, Generator& g, const data::ForEach& for_each) {
    Tensor rows = pictures(*files, indices, all, g, pinned, for_each);
    std::vector<int64_t> chosen;
    chosen.reserve(indices.size());
    for (int64_t i : indices) {
      if (i < 0) i += int64_t(numbers.size());
      if (i < 0 || i >= int64_t(numbers.size())) throw nb::index_error("list index out of range");
      chosen.push_back(numbers[size_t(i)]);
    }
    data::Batch batch = finished({tensor(chosen)}, pinned);
    batch.insert(batch.begin(), std::move(rows));
    return batch;
  }};
}

Maker row_maker(std::vector<Tensor> tensors, int64_t size, bool pinned) {
  return Maker{[tensors = std::move(tensors), size, pinned](IntList indices, Generator&,
                                                            const data::ForEach&) {
    for (const int64_t i : indices)
      if (i < -size || i >= size)
        throw nb::index_error(
            ("index " + std::to_string(i) + " of a dataset of " + std::to_string(size) + " items")
                .c_str());
    const Tensor rows = tensor(std::vector<int64_t>(indices.begin(), indices.end()));
    data::Batch batch;
    for (const Tensor& t : tensors) batch.push_back(t.index({rows}));
    return finished(std::move(batch), pinned);
  }};
}

// Seconds that the workers waited in one epoch; outlives the pool.
struct Waited {
  std::shared_ptr<const std::atomic<double>> seconds;
};

// The indices of a batch; nothing if they are no list, tuple or tensor of integers.
std::optional<std::vector<int64_t>> plain_indices(nb::handle batch) {
  PyObject* const o = batch.ptr();
  if (is_tensor(o)) {
    const Tensor& t = tensor_of(o);
    if (t.dim() != 1 || t.numel() == 0 || t.dtype() != kInt64 || !t.device().is_cpu())
      return std::nullopt;
    return t.to_vector<int64_t>();
  }
  if (!PyList_CheckExact(o) && !PyTuple_CheckExact(o)) return std::nullopt;
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
  if (n == 0) return std::nullopt;
  std::vector<int64_t> indices(static_cast<size_t>(n));
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* const index = PySequence_Fast_GET_ITEM(o, i);
    if (is_tensor(index) && tensor_of(index).dim() > 0) return std::nullopt;
    if (!to_int(index, indices[size_t(i)])) return std::nullopt;
  }
  return indices;
}

// randperm() in the calling thread alone: when an epoch begins the workers of the last one may
// still have the processors.
Tensor serial_randperm(int64_t n, nb::handle generator) {
  Generator* const g = generator.is_none() ? nullptr : to_generator(generator.ptr());
  if (!g && !generator.is_none()) throw nb::type_error("generator must be a Generator");
  const WithoutGil free;
  const SerialRegion serial;
  return randperm(n, {}, g);
}

void bind_workers(nb::module_& m) {
  m.def("_serial_randperm", &serial_randperm, "n"_a, "generator"_a.none());
  m.def("_seed_for_batch", [](nb::handle generator, uint64_t seed, int64_t number) {
    Generator* const g = to_generator(generator.ptr());
    if (!g) throw nb::type_error("the first argument must be a Generator");
    g->set_state(data::stream_of_batch(seed, number));
  });
  nb::class_<Maker>(m, "_BatchMaker");
  m.def("_row_maker", &row_maker);
  nb::class_<Waited>(m, "_Waited").def("__call__", [](const Waited& w) {
    return w.seconds->load();
  });
  nb::class_<data::WorkerPool>(m, "_WorkerPool")
      .def(nb::init<int>())
      .def("start", [](data::WorkerPool& p, const Maker& maker,
                       uint64_t seed) { return p.start(maker.make, seed); })
      .def("waited", [](const data::WorkerPool& p) { return Waited{p.waited()}; })
      .def("submit",
           [](data::WorkerPool& p, int worker, int64_t number, nb::handle batch) {
             auto indices = plain_indices(batch);
             if (indices) p.submit(worker, number, std::move(*indices));
             return indices.has_value();
           })
      .def("submit_all",
           [](data::WorkerPool& p, const Tensor& order, int64_t size, int64_t ahead,
              int64_t first) { p.submit_all(order.to_vector<int64_t>(), size, ahead, first); })
      .def("wait", &wait_for)
      .def("is_ready",
           [](const data::WorkerPool& p, int64_t epoch, int64_t number) {
             return p.wait(epoch, number, 0) != data::WorkerPool::State::pending;
           })
      .def("take",
           [](data::WorkerPool& p, int64_t number) { return std::vector<Tensor>(p.take(number)); })
      .def("close", &data::WorkerPool::close, nb::call_guard<nb::gil_scoped_release>());
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
  nb::class_<Folder>(m, "_ImageFolder")
      .def(
          "__init__",
          [](Folder* self, const std::string& root, const std::string& mode, int64_t at_least,
             std::optional<std::vector<std::string>> extensions) {
            data::ImageFolderOptions o{.decode = decode_options(mode, at_least)};
            if (extensions) o.extensions = std::move(*extensions);
            new (self) Folder{std::make_shared<data::ImageFolder>(root, std::move(o))};
          },
          "root"_a, "mode"_a = "rgb", "at_least"_a = 0, "extensions"_a = nb::none())
      .def("__len__", [](const Folder& f) { return f->size(); })
      .def(
          "get", [](const Folder& f, int64_t i) { return example(*f.data, i); },
          nb::call_guard<nb::gil_scoped_release>())
      .def("get_batch",
           [](const Folder& f, const std::vector<int64_t>& indices,
              const std::vector<const PictureTransform*>& transforms, nb::handle generator,
              bool pinned) {
             Generator* const g = to_generator(generator.ptr());
             if (!g) throw nb::type_error("the third argument must be a Generator");
             const WithoutGil free;
             return pictures(*f.data, indices, functions(transforms), *g, pinned, one_by_one);
           })
      .def("maker", &picture_maker)
      .def_prop_ro("classes", [](const Folder& f) { return f->classes(); })
      .def_prop_ro("samples", [](const Folder& f) { return f->samples(); });
  nb::class_<Tokens>(m, "_TokenDataset")
      .def(
          "__init__",
          [](Tokens* self, const std::string& path, int64_t length, int bytes, int64_t stride) {
            new (self) Tokens{std::make_shared<data::TokenDataset>(path, length, bytes, stride)};
          },
          "path"_a, "length"_a, "bytes_per_token"_a = 2, "stride"_a = 0)
      .def("__len__", [](const Tokens& t) { return t->size(); })
      .def("tokens", [](const Tokens& t) { return t->tokens(); })
      .def(
          "get", [](const Tokens& t, int64_t i) { return example(*t.data, i); },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "get_batch",
          [](const Tokens& t, const std::vector<int64_t>& indices) {
            return std::vector<Tensor>(tokens(*t.data, indices));
          },
          nb::call_guard<nb::gil_scoped_release>())
      .def("maker", [](const Tokens& t, bool pinned) {
        return Maker{[file = t.data, pinned](IntList indices, Generator&, const data::ForEach&) {
          return finished(tokens(*file, indices), pinned);
        }};
      });
  bind_transforms(m);
  bind_workers(m);
  bind_batch_feed(m);
}

}  // namespace arete::python
