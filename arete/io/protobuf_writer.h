// The protobuf wire format, as far as writing messages needs it.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "arete/io/checked.h"

namespace arete::io {

/// Builds one message field by field, in the order of the calls. A nested message is built by a
/// writer of its own and added with bytes().
class ProtobufWriter {
 public:
  /// An int32, int64, uint32, uint64, bool or enum field.
  ProtobufWriter& integer(uint32_t field, int64_t value) {
    tag(field, 0);
    varint(static_cast<uint64_t>(value));
    return *this;
  }
  ProtobufWriter& real64(uint32_t field, double value) {
    tag(field, 1);
    return fixed(std::bit_cast<uint64_t>(value));
  }
  ProtobufWriter& real32(uint32_t field, float value) {
    tag(field, 5);
    return fixed(std::bit_cast<uint32_t>(value));
  }
  /// A string, bytes or nested message field.
  ProtobufWriter& bytes(uint32_t field, std::string_view value) {
    tag(field, 2);
    varint(value.size());
    out_ += value;
    return *this;
  }

  const std::string& message() const { return out_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_ += static_cast<char>(value | 0x80);
    out_ += static_cast<char>(value);
  }
  void tag(uint32_t field, uint32_t wire_type) { varint(uint64_t{field} << 3 | wire_type); }
  template <typename T>
  ProtobufWriter& fixed(T value) {
    char buffer[sizeof(T)];
    store_le<T>(value, buffer);
    out_.append(buffer, sizeof(T));
    return *this;
  }
  std::string out_;
};

}  // namespace arete::io
