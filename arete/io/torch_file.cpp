#include "arete/io/torch_file.h"

#include <cstring>
#include <unordered_map>

#include "arete/base/error.h"
#include "arete/base/file.h"
#include "arete/core/modes.h"
#include "arete/io/torch_format.h"
#include "arete/ops/creation.h"
#include "arete/ops/shape.h"

namespace arete::io {

namespace {

/// Containers of containers: deeper ones, and values that stand in so many places that they are
/// more than a file means, are refused.
constexpr int kMaxDepth = 100;
constexpr size_t kMaxValues = 10'000'000, kMaxText = size_t{1} << 28;  // bytes

class Builder {
 public:
  Builder(const TorchFormat& format, std::span<const std::byte> file, const std::string& name)
      : format_(format), file_(file), name_(name), bytes_(format.storages.size()) {}

  TorchValue value(size_t at, int depth = 0) {
    if (depth > kMaxDepth || ++count_ > kMaxValues)
      throw IoError("load_torch", name_ + ": its values are nested too deeply, or in themselves");
    const TorchNode& n = format_.nodes[at];
    TorchValue v;
    v.kind = TorchValue::Kind(n.kind);
    v.integer = n.integer;
    v.real = n.real;
    text_ += n.text.size();
    if (text_ > file_.size() + kMaxText)
      throw IoError("load_torch", name_ + ": its texts stand in too many places");
    v.text = n.text;
    if (n.kind == TorchNode::Kind::tensor) v.tensor = tensor(format_.tensors[size_t(n.integer)]);
    if (n.kind == TorchNode::Kind::list)
      for (const size_t i : n.items) v.items.push_back(value(i, depth + 1));
    if (n.kind == TorchNode::Kind::dict) entries(n, v, depth);
    return v;
  }

 private:
  // A key that comes twice has its last value, at its first place.
  void entries(const TorchNode& n, TorchValue& v, int depth) {
    std::unordered_map<std::string, size_t> places;
    for (size_t i = 0; i + 1 < n.items.size(); i += 2) {
      TorchValue key = value(n.items[i], depth + 1), content = value(n.items[i + 1], depth + 1);
      if (key.kind == TorchValue::Kind::text) {
        const auto [it, added] = places.try_emplace(key.text, v.entries.size());
        if (!added) {
          v.entries[it->second].second = std::move(content);
          continue;
        }
      }
      v.entries.emplace_back(std::move(key), std::move(content));
    }
  }

  Tensor tensor(const TorchTensor& t) {
    const DType dtype = dtype_of_code(t.dtype, "a tensor of " + name_);
    const Tensor& bytes = storage(t.storage);
    const int64_t size = int64_t(size_of(dtype)), whole = bytes.numel() / size * size;
    Tensor result =
        as_strided(view_dtype(narrow(bytes, 0, 0, whole), dtype), t.sizes, t.strides, t.offset)
            .detach();
    if (t.requires_grad) result.requires_grad_(true);
    return result;
  }

  // Copied once, however many tensors lie in it.
  const Tensor& storage(size_t i) {
    const TorchStorage& s = format_.storages[i];
    if (!bytes_[i].defined()) {
      bytes_[i] = empty({int64_t(s.bytes)}, kUInt8);
      if (s.bytes > 0) std::memcpy(bytes_[i].data_ptr(), file_.data() + s.offset, size_t(s.bytes));
    }
    return bytes_[i];
  }

  const TorchFormat& format_;
  std::span<const std::byte> file_;
  const std::string& name_;
  std::vector<Tensor> bytes_;
  size_t count_ = 0, text_ = 0;
};

void collect(const TorchValue& v, const std::string& name, NamedTensors& out) {
  if (v.kind == TorchValue::Kind::tensor) out.emplace_back(name, v.tensor);
  const std::string prefix = name.empty() ? "" : name + ".";
  for (size_t i = 0; i < v.items.size(); ++i) collect(v.items[i], prefix + std::to_string(i), out);
  for (const auto& [key, content] : v.entries)
    collect(content,
            prefix + (key.kind == TorchValue::Kind::text ? key.text : std::to_string(key.integer)),
            out);
}

}  // namespace

TorchValue::TorchValue() = default;

const TorchValue* TorchValue::find(std::string_view key) const {
  for (const auto& [k, content] : entries)
    if (k.kind == Kind::text && k.text == key) return &content;
  return nullptr;
}

TorchValue read_torch(std::span<const std::byte> bytes, const std::string& file_name) {
  const NoGradGuard no_grad;
  const TorchFormat format = parse_torch(bytes, file_name);
  return Builder(format, bytes, file_name).value(format.root);
}

TorchValue load_torch(const std::string& path) {
  const MappedFile file(path);
  file.check_not_truncated();
  return read_torch(file.bytes(), path);
}

NamedTensors named_tensors(const TorchValue& value) {
  NamedTensors all;
  collect(value, "", all);
  return all;
}

}  // namespace arete::io
