// Checkpoints that many processes write, behind distributed.checkpoint.
#include "arete/io/checkpoint.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "caster.h"
#include "convert.h"
#include "data_parallel.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace arete::python {
namespace {

using Released = nb::call_guard<WithoutGil>;
using Sizes = std::vector<int64_t>;
// File, key, start, shape, crc.
using Piece = std::tuple<std::string, std::string, Sizes, Sizes, uint32_t>;

}  // namespace

void bind_checkpoint(nb::module_& m) {
  nb::class_<io::Checkpoint>(m, "Checkpoint", "A folder of pieces with an index.")
      .def(nb::init<std::string>(), "folder"_a, Released())
      .def_prop_ro("objects", &io::Checkpoint::objects)
      .def_prop_ro("tensors",
                   [](const io::Checkpoint& c) {
                     std::map<std::string, std::pair<std::string, Sizes>> result;
                     for (const auto& [name, t] : c.tensors()) result[name] = {t.dtype, t.shape};
                     return result;
                   })
      .def_prop_ro("pieces",
                   [](const io::Checkpoint& c) {
                     std::map<std::string, std::vector<std::pair<Sizes, Sizes>>> result;
                     for (const auto& [name, t] : c.tensors()) {
                       auto& pieces = result[name];
                       for (const io::CheckpointPiece& p : t.pieces)
                         pieces.emplace_back(p.start, p.shape);
                     }
                     return result;
                   })
      .def_prop_ro("files", &io::Checkpoint::files)
      .def(
          "read",
          [](const io::Checkpoint& c, const std::string& name, const Sizes& start,
             const Sizes& sizes) { return c.read(name, start, sizes); },
          Released())
      .def("verify", &io::Checkpoint::verify, Released());
  m.def(
      "write_pieces",
      [](const std::string& path, const std::vector<std::string>& keys,
         const std::vector<Tensor>& tensors) {
        io::NamedTensors pieces;
        for (size_t i = 0; i < keys.size(); ++i) pieces.emplace_back(keys[i], tensors.at(i));
        return io::write_pieces(path, pieces);
      },
      Released());
  m.def("dtype_code", [](const Tensor& t) { return io::code_of(t.dtype()); });
  m.def(
      "write_checkpoint_index",
      [](const std::string& folder,
         const std::map<std::string, std::tuple<std::string, Sizes, std::vector<Piece>>>& tensors,
         const std::map<std::string, uint64_t>& files, const std::string& objects) {
        std::map<std::string, io::CheckpointTensor> index;
        for (const auto& [name, value] : tensors) {
          const auto& [dtype, shape, pieces] = value;
          io::CheckpointTensor& t = index[name];
          t.dtype = dtype;
          t.shape = shape;
          for (const auto& [file, key, start, sizes, crc] : pieces)
            t.pieces.push_back({file, key, start, sizes, crc});
        }
        io::write_checkpoint_index(folder, index, files, objects);
      },
      Released());
}

}  // namespace arete::python
