#include "arete/io/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "arete/base/error.h"
#include "arete/base/file.h"
#include "arete/io/checked.h"
#include "arete/io/crc32c.h"
#include "arete/io/dtype_code.h"
#include "arete/io/safetensors_format.h"
#include "arete/ops/complex.h"
#include "arete/ops/creation.h"
#include "arete/ops/shape.h"

namespace arete::io {
namespace {

using Json = nlohmann::json;
constexpr uint64_t kMostIndex = uint64_t(1) << 30;
constexpr size_t kMostPieces = 4096;  // of a tensor
constexpr int kMostDepth = 8;

IoError bad(const std::string& path, const std::string& what) {
  return IoError("", path + ": " + what);
}

// JSON whose objects have no key twice.
Json parse(const std::string& path, std::span<const std::byte> bytes) {
  std::vector<std::set<std::string>> keys;
  std::string problem;
  const auto look = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > kMostDepth) problem = "nested too deeply";
    if (event == Json::parse_event_t::object_start) {
      keys.resize(size_t(depth) + 2);
      keys.back().clear();
    }
    if (event == Json::parse_event_t::key && problem.empty() &&
        !keys.at(size_t(depth)).insert(value.get<std::string>()).second)
      problem = "the key \"" + value.get<std::string>().substr(0, 200) + "\" occurs twice";
    return problem.empty();
  };
  const char* const text = reinterpret_cast<const char*>(bytes.data());
  Json json = Json::parse(text, text + bytes.size(), look, /*allow_exceptions=*/false);
  if (!problem.empty()) throw bad(path, problem);
  if (json.is_discarded() || !json.is_object()) throw bad(path, "this is no JSON object");
  return json;
}

const Json& member(const std::string& path, const Json& object, const char* name) {
  if (!object.is_object() || !object.contains(name))
    throw bad(path, std::string("\"") + name + "\" is missing");
  return object[name];
}

std::string text_of(const std::string& path, const Json& object, const char* name) {
  const Json& value = member(path, object, name);
  if (!value.is_string()) throw bad(path, std::string("\"") + name + "\" is no text");
  return value.get<std::string>();
}

uint64_t number_of(const std::string& path, const Json& value, const char* name) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t(INT64_MAX))
    throw bad(path, std::string("\"") + name + "\" is no number from 0 to 2^63 - 1");
  return value.get<uint64_t>();
}

std::vector<int64_t> numbers_of(const std::string& path, const Json& object, const char* name) {
  const Json& list = member(path, object, name);
  if (!list.is_array() || list.size() > size_t(kMaxRank))
    throw bad(path, std::string("\"") + name + "\" is no list of at most " +
                        std::to_string(kMaxRank) + " numbers");
  std::vector<int64_t> result;
  for (const Json& n : list) result.push_back(int64_t(number_of(path, n, name)));
  return result;
}

uint64_t volume(const std::vector<int64_t>& sizes) {
  uint64_t n = 1;
  for (const int64_t s : sizes) n *= uint64_t(s);
  return n;
}

bool overlap(const CheckpointPiece& a, const CheckpointPiece& b) {
  for (size_t d = 0; d < a.shape.size(); ++d)
    if (a.start[d] >= b.start[d] + b.shape[d] || b.start[d] >= a.start[d] + a.shape[d])
      return false;
  return volume(a.shape) > 0 && volume(b.shape) > 0;
}

// The pieces are parts of the tensor, and have each of its elements once.
void check_pieces(const std::string& path, const std::string& name, const CheckpointTensor& t) {
  const auto wrong = [&](const std::string& what) {
    return bad(path, "tensor \"" + name.substr(0, 200) + "\": " + what);
  };
  uint64_t all = dtype_code_size(t.dtype);
  if (all == 0) throw wrong("the dtype \"" + t.dtype.substr(0, 40) + "\" is unknown");
  for (const int64_t s : t.shape)
    if (!checked_mul(all, uint64_t(std::max<int64_t>(s, 1)), &all) || all > uint64_t(INT64_MAX))
      throw wrong("the shape is too large");
  if (t.pieces.size() > kMostPieces) throw wrong("there are too many pieces");
  uint64_t found = 0;
  for (const CheckpointPiece& p : t.pieces) {
    if (p.start.size() != t.shape.size() || p.shape.size() != t.shape.size())
      throw wrong("a piece has another number of dimensions");
    for (size_t d = 0; d < t.shape.size(); ++d)
      if (p.start[d] > t.shape[d] || p.shape[d] > t.shape[d] - p.start[d])
        throw wrong("a piece reaches beyond the tensor");
    found += volume(p.shape);
  }
  if (found != volume(t.shape)) throw wrong("the pieces do not cover it");
  std::vector<const CheckpointPiece*> order;
  for (const CheckpointPiece& p : t.pieces) order.push_back(&p);
  const auto row = [](const CheckpointPiece* p) { return p->start.empty() ? 0 : p->start[0]; };
  std::ranges::sort(order, {}, row);
  for (size_t i = 0; i < order.size(); ++i)
    for (size_t k = i + 1; k < order.size(); ++k) {
      if (!t.shape.empty() && row(order[k]) >= row(order[i]) + order[i]->shape[0]) break;
      if (overlap(*order[i], *order[k])) throw wrong("pieces overlap");
    }
}

void check_file_name(const std::string& path, const std::string& name) {
  const bool good = name.size() < 256 && name.size() > 12 && name.ends_with(".safetensors") &&
                    name[0] != '.' && name.find('/') == std::string::npos &&
                    name.find('\0') == std::string::npos;
  if (!good) throw bad(path, "\"" + name.substr(0, 200) + "\" is no name of a file of pieces");
}

// Copies the common part of two boxes of elements, each of which lies in order.
void copy_common(std::byte* to, const std::vector<int64_t>& to_start, IntList to_sizes,
                 const std::byte* from, const CheckpointPiece& piece, size_t element) {
  const size_t rank = piece.shape.size();
  std::vector<int64_t> first(rank), sizes(rank), at(rank);
  for (size_t d = 0; d < rank; ++d) {
    first[d] = std::max(to_start[d], piece.start[d]);
    sizes[d] = std::min(to_start[d] + to_sizes[d], piece.start[d] + piece.shape[d]) - first[d];
    if (sizes[d] <= 0) return;
  }
  // Dimensions at the end that are whole in both are one run.
  size_t run_from = rank;
  int64_t run = 1;
  while (run_from > 0) {
    run *= sizes[--run_from];
    if (sizes[run_from] != to_sizes[run_from] || sizes[run_from] != piece.shape[run_from]) break;
  }
  for (;;) {
    int64_t t = 0, f = 0;
    for (size_t d = 0; d < rank; ++d) {
      t = t * to_sizes[d] + first[d] + at[d] - to_start[d];
      f = f * piece.shape[d] + first[d] + at[d] - piece.start[d];
    }
    std::memcpy(to + size_t(t) * element, from + size_t(f) * element, size_t(run) * element);
    size_t d = run_from;
    for (; d > 0; --d) {
      if (++at[d - 1] < sizes[d - 1]) break;
      at[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

std::string joined(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

}  // namespace

class Checkpoint::File {
 public:
  File(const std::string& path, uint64_t bytes)
      : mapped_(path), header_(parse_safetensors_header(mapped_.bytes(), path)) {
    if (mapped_.size() != bytes)
      throw bad(path, "the file has " + std::to_string(mapped_.size()) + " bytes, the index says " +
                          std::to_string(bytes));
    for (const TensorEntry& e : header_.entries) entries_[e.name] = &e;
  }
  const TensorEntry* find(const std::string& key) const {
    const auto at = entries_.find(key);
    return at == entries_.end() ? nullptr : at->second;
  }
  std::span<const std::byte> bytes(const TensorEntry& e) const {
    mapped_.check_not_truncated();
    return mapped_.bytes().subspan(header_.data_offset + e.begin, e.end - e.begin);
  }

 private:
  MappedFile mapped_;
  SafetensorsHeader header_;
  std::map<std::string, const TensorEntry*> entries_;
};

Checkpoint::Checkpoint(std::string folder) : folder_(std::move(folder)) {
  const std::string path = joined(folder_, kCheckpointIndex);
  const Json index = parse(path, read_file(path, kMostIndex));
  if (text_of(path, index, "format") != "arete.checkpoint")
    throw bad(path, "this is no index of a checkpoint");
  if (number_of(path, member(path, index, "version"), "version") != 1)
    throw bad(path, "a newer version wrote it");
  objects_ = text_of(path, index, "objects");
  const Json& files = member(path, index, "files");
  if (!files.is_object()) throw bad(path, "\"files\" is no object");
  for (const auto& [name, bytes] : files.items()) {
    check_file_name(path, name);
    files_[name] = number_of(path, bytes, "files");
  }
  const Json& tensors = member(path, index, "tensors");
  if (!tensors.is_object()) throw bad(path, "\"tensors\" is no object");
  for (const auto& [name, value] : tensors.items()) {
    CheckpointTensor t{text_of(path, value, "dtype"), numbers_of(path, value, "shape"), {}};
    const Json& pieces = member(path, value, "pieces");
    if (!pieces.is_array()) throw bad(path, "\"pieces\" is no list");
    for (const Json& p : pieces) {
      CheckpointPiece piece{text_of(path, p, "file"), text_of(path, p, "key"),
                            numbers_of(path, p, "start"), numbers_of(path, p, "shape"),
                            uint32_t(number_of(path, member(path, p, "crc32c"), "crc32c"))};
      if (!files_.contains(piece.file))
        throw bad(path, "\"" + piece.file.substr(0, 200) + "\" is not among the files");
      t.pieces.push_back(std::move(piece));
    }
    check_pieces(path, name, t);
    tensors_[name] = std::move(t);
  }
}

Checkpoint::~Checkpoint() = default;

const Checkpoint::File& Checkpoint::file(const std::string& name) const {
  std::unique_ptr<File>& f = open_[name];
  if (!f) f = std::make_unique<File>(joined(folder_, name), files_.at(name));
  return *f;
}

std::span<const std::byte> Checkpoint::bytes_of(const CheckpointTensor& tensor,
                                                const CheckpointPiece& piece) const {
  const File& f = file(piece.file);
  const TensorEntry* const e = f.find(piece.key);
  const bool pairs = tensor.dtype == "C128";  // see write_pieces()
  std::vector<int64_t> shape = piece.shape;
  if (pairs) shape.push_back(2);
  if (!e || e->dtype != (pairs ? "F64" : tensor.dtype) || e->shape != shape)
    throw bad(joined(folder_, piece.file),
              "it has no piece \"" + piece.key.substr(0, 200) + "\" as the index describes it");
  return f.bytes(*e);
}

Tensor Checkpoint::read(const std::string& name, IntList start, IntList sizes) const {
  const auto at = tensors_.find(name);
  ARETE_CHECK(at != tensors_.end(),
              ValueError("", joined(folder_, kCheckpointIndex) + ": there is no tensor \"" + name +
                                 "\" in the checkpoint"));
  const CheckpointTensor& t = at->second;
  const std::vector<int64_t> first(start.begin(), start.end());
  bool within = start.size() == t.shape.size() && sizes.size() == t.shape.size();
  for (size_t d = 0; within && d < t.shape.size(); ++d)
    within = start[d] >= 0 && sizes[d] >= 0 && start[d] <= t.shape[d] &&
             sizes[d] <= t.shape[d] - start[d];
  ARETE_CHECK(within,
              ValueError("", "the tensor \"" + name + "\" of the checkpoint has other sizes")
                  .expected(to_string(t.shape))
                  .got(to_string(sizes) + " from " + to_string(start)));
  const Tensor result =
      empty(sizes,
            TensorOptions(dtype_of_code(t.dtype, "tensor '" + name + "' of the checkpoint"), kCPU));
  if (result.numel() == 0) return result;
  auto* const to = static_cast<std::byte*>(result.data_ptr());
  for (const CheckpointPiece& p : t.pieces) {
    const CheckpointPiece box{.start = first, .shape = {sizes.begin(), sizes.end()}};
    if (overlap(p, box))
      copy_common(to, first, sizes, bytes_of(t, p).data(), p, result.element_size());
  }
  return result;
}

Tensor Checkpoint::read(const std::string& name) const {
  const auto at = tensors_.find(name);
  const std::vector<int64_t> shape =
      at == tensors_.end() ? std::vector<int64_t>() : at->second.shape;
  return read(name, std::vector<int64_t>(shape.size(), 0), shape);
}

void Checkpoint::verify() const {
  for (const auto& [name, t] : tensors_)
    for (const CheckpointPiece& p : t.pieces)
      if (crc32c(bytes_of(t, p)) != p.crc)
        throw bad(joined(folder_, p.file),
                  "the bytes of \"" + p.key + "\" are not those that were written");
}

std::vector<uint32_t> write_pieces(const std::string& path, const NamedTensors& pieces) {
  NamedTensors host;
  std::vector<uint32_t> sums;
  for (const auto& [key, t] : pieces) {
    const Tensor whole = t.detach().cpu().contiguous();
    // The format has no complex128: its pieces are pairs of float64.
    host.emplace_back(key, whole.dtype() == kComplex128 ? view_as_real(whole) : whole);
    const Tensor& h = host.back().second;
    sums.push_back(crc32c({static_cast<const std::byte*>(h.data_ptr()), h.nbytes()}));
  }
  save_safetensors(path, host);
  return sums;
}

void write_checkpoint_index(const std::string& folder,
                            const std::map<std::string, CheckpointTensor>& tensors,
                            const std::map<std::string, uint64_t>& files,
                            const std::string& objects) {
  Json index = {{"format", "arete.checkpoint"},
                {"version", 1},
                {"files", Json::object()},
                {"objects", objects},
                {"tensors", Json::object()}};
  for (const auto& [name, bytes] : files) index["files"][name] = bytes;
  for (const auto& [name, t] : tensors) {
    Json& entry = index["tensors"][name];
    entry = {{"dtype", t.dtype}, {"shape", t.shape}, {"pieces", Json::array()}};
    for (const CheckpointPiece& p : t.pieces)
      entry["pieces"].push_back({{"file", p.file},
                                 {"key", p.key},
                                 {"start", p.start},
                                 {"shape", p.shape},
                                 {"crc32c", p.crc}});
  }
  AtomicFile file(joined(folder, kCheckpointIndex));
  file.write(index.dump(-1, ' ', false, Json::error_handler_t::replace));
  file.commit();
}

int64_t merge_checkpoint(const std::string& folder, const std::string& out,
                         const std::string& prefix, uint64_t most_bytes) {
  const Checkpoint from(folder);
  std::vector<std::vector<std::string>> files(1);
  uint64_t bytes = 0, total = 0;
  for (const auto& [name, t] : from.tensors()) {
    if (!name.starts_with(prefix)) continue;
    const uint64_t own = volume(t.shape) * dtype_code_size(t.dtype);
    if (!files.back().empty() && bytes + own > most_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    files.back().push_back(name);
    bytes += own;
    total += own;
  }
  ARETE_CHECK(!files[0].empty(),
              ValueError("ckpt merge", "no tensor's name begins with \"" + prefix + "\""));
  make_directories(out);
  Json map = Json::object();
  int64_t count = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    char numbers[32];
    std::snprintf(numbers, sizeof numbers, "-%05zu-of-%05zu", i + 1, files.size());
    const std::string name =
        "model" + (files.size() > 1 ? std::string(numbers) : std::string()) + ".safetensors";
    NamedTensors tensors;
    for (const std::string& t : files[i]) {
      tensors.emplace_back(t.substr(prefix.size()), from.read(t));
      map[t.substr(prefix.size())] = name;
      ++count;
    }
    save_safetensors(joined(out, name), tensors, {{"format", "pt"}});
  }
  if (files.size() > 1) {
    AtomicFile file(joined(out, "model.safetensors.index.json"));
    file.write(Json{{"metadata", {{"total_size", total}}}, {"weight_map", map}}.dump(2));
    file.commit();
  }
  return count;
}

int64_t split_checkpoint(const std::string& source, const std::string& out,
                         const std::string& prefix, int64_t pieces) {
  ARETE_CHECK(pieces >= 1 && pieces <= int64_t(kMostPieces),
              ValueError("ckpt split", "there must be 1 to 4096 pieces"));
  std::vector<std::string> sources;
  if (std::filesystem::is_directory(source)) {
    for (const auto& e : std::filesystem::directory_iterator(source))
      if (e.path().extension() == ".safetensors") sources.push_back(e.path().string());
    std::ranges::sort(sources);
    ARETE_CHECK(!sources.empty(),
                IoError("ckpt split", source + ": there are no safetensors files"));
  } else {
    sources = {source};
  }
  make_directories(out);
  std::map<std::string, CheckpointTensor> tensors;
  std::map<std::string, uint64_t> files;
  std::vector<NamedTensors> parts{size_t(pieces)};
  for (const std::string& path : sources)
    for (const auto& [name, t] : load_safetensors(path).tensors) {
      const std::string key = prefix + name;
      ARETE_CHECK(!tensors.contains(key),
                  IoError("ckpt split", path + ": a tensor \"" + name + "\" was in another file"));
      CheckpointTensor& entry = tensors[key];
      entry.dtype = code_of(t.dtype());
      entry.shape.assign(t.sizes().begin(), t.sizes().end());
      const int64_t rows = t.dim() == 0 ? 1 : t.size(0), each = (rows + pieces - 1) / pieces;
      for (int64_t i = 0; i < pieces; ++i) {
        const int64_t first = std::min(i * each, rows), n = std::min(each, rows - first);
        if (n == 0) break;
        CheckpointPiece piece;
        piece.key = key;
        piece.start.assign(entry.shape.size(), 0);
        piece.shape = entry.shape;
        if (t.dim() > 0) {
          piece.start[0] = first;
          piece.shape[0] = n;
        }
        parts[size_t(i)].emplace_back(key, t.dim() == 0 ? t : t.narrow(0, first, n));
        piece.file = std::to_string(i);  // until it is written
        entry.pieces.push_back(std::move(piece));
      }
    }
  std::vector<std::map<std::string, uint32_t>> sums(parts.size());
  std::vector<std::string> names(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].empty()) continue;
    names[i] = "split-" + std::to_string(i) + ".safetensors";
    const std::vector<uint32_t> found = write_pieces(joined(out, names[i]), parts[i]);
    for (size_t k = 0; k < found.size(); ++k) sums[i][parts[i][k].first] = found[k];
    files[names[i]] = std::filesystem::file_size(joined(out, names[i]));
  }
  for (auto& [name, t] : tensors)
    for (CheckpointPiece& p : t.pieces) {
      const size_t i = size_t(std::stoll(p.file));
      p.file = names[i];
      p.crc = sums[i].at(p.key);
    }
  write_checkpoint_index(out, tensors, files, "{}");
  return int64_t(tensors.size());
}

}  // namespace arete::io
