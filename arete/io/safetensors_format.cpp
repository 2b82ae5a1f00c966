#include "arete/io/safetensors_format.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "arete/base/error.h"
#include "arete/base/text.h"
#include "arete/io/checked.h"
#include "arete/io/dtype_code.h"

namespace arete::io {
namespace {

constexpr std::string_view kMetadataKey = "__metadata__";

// Receives the events of the JSON parser. The format has three levels and nothing may be deeper, so
// the place in the document is a small enum instead of a stack, and no tree is ever built.
class HeaderReader {
 public:
  HeaderReader(std::string_view file_name, SafetensorsHeader* header)
      : file_(file_name), header_(header) {}

  bool null() { return unexpected("null"); }
  bool boolean(bool) { return unexpected("a boolean"); }
  bool number_integer(int64_t value) {
    return unexpected("the negative number " + std::to_string(value));
  }
  bool number_float(double, const std::string& text) {
    return unexpected("the number " + quote_text(text, 40));
  }
  bool binary(nlohmann::json::binary_t&) { return unexpected("binary data"); }

  bool number_unsigned(uint64_t value) {
    if (place_ == Place::shape) {
      if (entry_.shape.size() >= kMaxFileDims)
        fail("has more than " + std::to_string(kMaxFileDims) + " dimensions");
      if (value > static_cast<uint64_t>(INT64_MAX))
        fail("has a dimension that is too large: " + std::to_string(value));
      entry_.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (place_ == Place::offsets) {
      if (offsets_seen_ >= 2) fail("has more than two numbers in data_offsets");
      (offsets_seen_ == 0 ? entry_.begin : entry_.end) = value;
      ++offsets_seen_;
      return true;
    }
    return unexpected("the number " + std::to_string(value));
  }

  bool string(std::string& value) {
    if (place_ == Place::metadata) {
      header_->metadata.insert_or_assign(field_, std::move(value));
      return true;
    }
    if (place_ == Place::tensor && field_ == "dtype") {
      if (dtype_code_size(value) == 0 || value == "C128")
        fail("has the dtype " + quote_text(value, 40) + ", which is not known");
      entry_.dtype = std::move(value);
      return true;
    }
    return unexpected("the string " + quote_text(value, 40));
  }

  bool key(std::string& key) {
    if (place_ == Place::top) {
      if (!names_.insert(key).second)
        throw IoError("", prefix() + "the name " + quote_text(key) + " appears twice")
            .hint("the file was made by a faulty or hostile program: get it again");
      entry_ = TensorEntry{};
      entry_.name = std::move(key);
    } else if (place_ == Place::metadata) {
      if (header_->metadata.count(key))
        throw IoError("", prefix() + "the metadata key " + quote_text(key) + " appears twice");
      field_ = std::move(key);
      header_->metadata.emplace(field_, "");
    } else {
      unsigned bit = 0;
      if (key == "dtype") bit = 1;
      if (key == "shape") bit = 2;
      if (key == "data_offsets") bit = 4;
      if (bit == 0) fail("has the unknown field " + quote_text(key, 40));
      if (seen_ & bit) fail("has the field " + quote_text(key, 40) + " twice");
      seen_ |= bit;
      field_ = std::move(key);
    }
    return true;
  }

  bool start_object(size_t) {
    if (place_ == Place::outside) {
      place_ = Place::top;
    } else if (place_ == Place::top) {
      place_ = entry_.name == kMetadataKey ? Place::metadata : Place::tensor;
      seen_ = 0;
      offsets_seen_ = 0;
      field_.clear();
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool end_object() {
    if (place_ == Place::tensor) {
      if (!(seen_ & 1)) fail("has no dtype");
      if (!(seen_ & 2)) fail("has no shape");
      if (!(seen_ & 4)) fail("has no data_offsets");
      header_->entries.push_back(std::move(entry_));
      place_ = Place::top;
    } else if (place_ == Place::metadata) {
      place_ = Place::top;
    } else {
      place_ = Place::outside;
    }
    return true;
  }

  bool start_array(size_t) {
    if (place_ == Place::tensor && field_ == "shape") {
      place_ = Place::shape;
    } else if (place_ == Place::tensor && field_ == "data_offsets") {
      place_ = Place::offsets;
    } else {
      return unexpected("an array");
    }
    return true;
  }

  bool end_array() {
    if (place_ == Place::offsets && offsets_seen_ != 2)
      fail("has fewer than two numbers in data_offsets");
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& error) {
    std::string reason = error.what();
    const auto colon = reason.rfind(": ");
    if (colon != std::string::npos) reason.erase(0, colon + 2);
    throw IoError("", prefix() + "its header is not valid JSON at byte " +
                          std::to_string(position) + " of the header (" + quote_text(reason) + ")")
        .hint("the file is damaged or not a safetensors file");
  }

 private:
  enum class Place { outside, top, metadata, tensor, shape, offsets };

  std::string prefix() const { return std::string(file_) + ": "; }

  [[noreturn]] void fail(const std::string& what) const {
    throw IoError("", prefix() + "the tensor " + quote_text(entry_.name) + " " + what);
  }

  bool unexpected(const std::string& what) const {
    switch (place_) {
      case Place::outside:
        throw IoError("", prefix() + "its header is not a JSON object");
      case Place::top:
        throw IoError("", prefix() + "the entry " + quote_text(entry_.name) + " is " + what)
            .expected("an object with dtype, shape and data_offsets");
      case Place::metadata:
        throw IoError("", prefix() + "the metadata " + quote_text(field_) + " is " + what)
            .expected("a string");
      case Place::tensor:
        fail("has " + what + " as " + quote_text(field_, 40));
      case Place::shape:
        fail("has " + what + " as a dimension");
      case Place::offsets:
        fail("has " + what + " as a data offset");
    }
    return false;
  }

  std::string_view file_;
  SafetensorsHeader* header_;
  Place place_ = Place::outside;
  TensorEntry entry_;
  std::string field_;
  unsigned seen_ = 0;
  unsigned offsets_seen_ = 0;
  std::unordered_set<std::string> names_;
};

void check_ranges(SafetensorsHeader& header, uint64_t data_size, const std::string& prefix) {
  auto& entries = header.entries;
  for (const TensorEntry& e : entries) {
    const std::string name = prefix + "the tensor " + quote_text(e.name);
    const std::string range = "[" + std::to_string(e.begin) + ", " + std::to_string(e.end) + ")";
    bool ok = false;
    const uint64_t bytes = dense_bytes(e.shape, dtype_code_size(e.dtype), &ok);
    ARETE_CHECK(ok, IoError("", name + " has a shape that is too large: " + shape_text(e.shape)));
    ARETE_CHECK(e.begin <= e.end,
                IoError("", name + " has data_offsets in the wrong order: " + range));
    ARETE_CHECK(e.end <= data_size,
                IoError("", name + " reaches beyond the end of the file")
                    .expected("data_offsets within " + std::to_string(data_size) + " bytes of data")
                    .got(range)
                    .hint("the file is truncated (an interrupted download?) or damaged"));
    ARETE_CHECK(
        e.end - e.begin == bytes,
        IoError("", name + " has data_offsets that do not fit its shape")
            .expected(std::to_string(bytes) + " bytes for " + e.dtype + " " + shape_text(e.shape))
            .got(std::to_string(e.end - e.begin) + " bytes, " + range));
  }
  std::sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    if (a.begin != b.begin) return a.begin < b.begin;
    if (a.end != b.end) return a.end < b.end;
    return a.name < b.name;
  });
  uint64_t covered = 0;
  const std::string* before = nullptr;
  for (const TensorEntry& e : entries) {
    ARETE_CHECK(e.begin >= covered, IoError("", prefix + "the tensor " + quote_text(e.name) +
                                                    " overlaps the tensor " + quote_text(*before)));
    ARETE_CHECK(e.begin == covered,
                IoError("", prefix + "there is a hole of " + std::to_string(e.begin - covered) +
                                " bytes before the tensor " + quote_text(e.name)));
    covered = e.end;
    before = &e.name;
  }
  ARETE_CHECK(covered == data_size,
              IoError("", prefix + std::to_string(data_size - covered) +
                              " bytes at the end of the file belong to no tensor"));
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file_bytes,
                                           std::string_view file_name) {
  const std::string prefix = std::string(file_name) + ": ";
  ARETE_CHECK(file_bytes.size() >= 8, IoError("", prefix + "too short for a safetensors file")
                                          .expected("at least 8 bytes")
                                          .got(std::to_string(file_bytes.size()) + " bytes")
                                          .hint("the file is truncated or not a safetensors file"));
  const auto length = load_le<uint64_t>(file_bytes.data());
  ARETE_CHECK(length <= kMaxSafetensorsHeader,
              IoError("", prefix + "its header is too long")
                  .expected("at most " + std::to_string(kMaxSafetensorsHeader) + " bytes")
                  .got(std::to_string(length) + " bytes")
                  .hint("this is probably not a safetensors file"));
  ARETE_CHECK(length <= file_bytes.size() - 8,
              IoError("", prefix + "its header is longer than the file")
                  .expected("at most " + std::to_string(file_bytes.size() - 8) + " bytes")
                  .got(std::to_string(length) + " bytes")
                  .hint("the file is truncated or not a safetensors file"));
  const auto* text = reinterpret_cast<const char*>(file_bytes.data()) + 8;
  ARETE_CHECK(length >= 2 && text[0] == '{',
              IoError("", prefix + "its header does not begin with '{'")
                  .hint("the file is damaged or not a safetensors file"));
  // The JSON parser takes a zero byte for the end of the text: what follows would go unseen.
  ARETE_CHECK(std::memchr(text, 0, length) == nullptr,
              IoError("", prefix + "its header is not valid JSON: it holds a zero byte")
                  .hint("the file is damaged or not a safetensors file"));
  SafetensorsHeader header;
  header.data_offset = 8 + length;
  HeaderReader reader(file_name, &header);
  nlohmann::json::sax_parse(text, text + length, &reader);
  check_ranges(header, file_bytes.size() - header.data_offset, prefix);
  return header;
}

std::string write_safetensors_header(std::vector<TensorEntry>& entries,
                                     const std::map<std::string, std::string>& metadata) {
  std::unordered_set<std::string_view> names;
  for (const TensorEntry& e : entries) {
    ARETE_CHECK(dtype_code_size(e.dtype) != 0 && e.dtype != "C128",
                ValueError("save_safetensors", "the tensor " + quote_text(e.name) +
                                                   " has a dtype that the format does not know")
                    .got(quote_text(e.dtype, 40)));
    ARETE_CHECK(e.name != kMetadataKey,
                ValueError("save_safetensors", "a tensor cannot be called '__metadata__'"));
    ARETE_CHECK(names.insert(e.name).second,
                ValueError("save_safetensors", "two tensors have the name " + quote_text(e.name)));
    ARETE_CHECK(e.shape.size() <= kMaxFileDims,
                ValueError("save_safetensors",
                           "the tensor " + quote_text(e.name) + " has too many dimensions"));
    for (size_t i = 0; i < e.name.size();) {
      const size_t step = utf8_sequence_length(std::string_view(e.name).substr(i));
      ARETE_CHECK(step != 0,
                  ValueError("save_safetensors",
                             "the tensor name " + quote_text(e.name) + " is not valid UTF-8"));
      i += step;
    }
  }
  std::sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    const uint64_t x = dtype_code_size(a.dtype), y = dtype_code_size(b.dtype);
    return x != y ? x > y : a.name < b.name;
  });
  std::string json = "{";
  auto separate = [&json] {
    if (json.size() > 1) json += ',';
  };
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    bool first = true;
    for (const auto& [key, value] : metadata) {
      if (!first) json += ',';
      first = false;
      json += json_string(key) + ":" + json_string(value);
    }
    json += '}';
  }
  uint64_t offset = 0;
  for (TensorEntry& e : entries) {
    bool ok = false;
    const uint64_t bytes = dense_bytes(e.shape, dtype_code_size(e.dtype), &ok);
    e.begin = offset;
    ARETE_CHECK(ok && checked_add(offset, bytes, &offset),
                ValueError("save_safetensors",
                           "the tensor " + quote_text(e.name) +
                               " has a shape that is too large: " + shape_text(e.shape)));
    e.end = offset;
    separate();
    json += json_string(e.name) + ":{\"dtype\":\"" + e.dtype + "\",\"shape\":[";
    for (size_t i = 0; i < e.shape.size(); ++i) {
      if (i) json += ',';
      json += std::to_string(e.shape[i]);
    }
    json += "],\"data_offsets\":[" + std::to_string(e.begin) + "," + std::to_string(e.end) + "]}";
  }
  json += '}';
  json.append((8 - json.size() % 8) % 8, ' ');
  ARETE_CHECK(json.size() <= kMaxSafetensorsHeader,
              ValueError("save_safetensors",
                         "the header would have " + std::to_string(json.size()) + " bytes")
                  .expected("at most " + std::to_string(kMaxSafetensorsHeader))
                  .hint("split the tensors over several files"));
  std::string out(8, '\0');
  store_le<uint64_t>(json.size(), out.data());
  return out + json;
}

}  // namespace arete::io
