#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "arete/io/crc32c.h"
#include "arete/io/event_writer.h"
#include "arete/io/protobuf_writer.h"
#include "io_test_support.h"

namespace arete::io {
namespace {

using test::bytes_of;
using test::expect_error;
using test::read_text;
using test::TempDir;

// A decoder that shares nothing with the writer: bitwise CRC, and fields by their wire types.
uint32_t slow_crc32c(std::string_view text) {
  uint32_t crc = ~0u;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78u : crc >> 1;
  }
  return ~crc;
}

uint32_t slow_masked(std::string_view text) {
  const uint32_t crc = slow_crc32c(text);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

template <typename T>
T number_at(std::string_view text, size_t at) {
  T value;
  EXPECT_LE(at + sizeof(T), text.size());
  std::memcpy(&value, text.data() + at, sizeof(T));
  return value;
}

struct Field {
  uint64_t number = 0;
  std::string_view bytes;
};

std::map<int, Field> decode_message(std::string_view text) {
  std::map<int, Field> fields;
  size_t at = 0;
  auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0; at < text.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(text[at++]);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (!(byte & 0x80)) break;
    }
    return value;
  };
  while (at < text.size()) {
    const uint64_t tag = varint();
    Field& field = fields[static_cast<int>(tag >> 3)];
    switch (tag & 7) {
      case 0:
        field.number = varint();
        break;
      case 1:
        field.number = number_at<uint64_t>(text, at);
        at += 8;
        break;
      case 2: {
        const uint64_t n = varint();
        EXPECT_LE(at + n, text.size());
        field.bytes = text.substr(at, n);
        at += n;
        break;
      }
      case 5:
        field.number = number_at<uint32_t>(text, at);
        at += 4;
        break;
      default:
        ADD_FAILURE() << "unknown wire type";
        return fields;
    }
  }
  return fields;
}

std::vector<std::string> decode_records(const std::string& file) {
  std::vector<std::string> records;
  for (size_t at = 0; at < file.size();) {
    const auto length = number_at<uint64_t>(file, at);
    EXPECT_EQ(number_at<uint32_t>(file, at + 8), slow_masked(file.substr(at, 8)));
    const std::string data = file.substr(at + 12, length);
    EXPECT_EQ(number_at<uint32_t>(file, at + 12 + length), slow_masked(data));
    records.push_back(data);
    at += 16 + length;
  }
  return records;
}

TEST(Crc32c, KnownValuesAndBothPaths) {
  // RFC 3720, appendix B.4.
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\0'))), 0x8a9136aau);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\xff'))), 0x62a8ab43u);
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c({}), 0u);
  std::string text;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(crc32c(bytes_of(text)), slow_crc32c(text));
    EXPECT_EQ(detail::crc32c_table(bytes_of(text), 0), slow_crc32c(text));
    const std::string_view whole = text;
    EXPECT_EQ(crc32c(bytes_of(whole.substr(i / 3)), crc32c(bytes_of(whole.substr(0, i / 3)))),
              slow_crc32c(text));
    text += static_cast<char>(i * 37);
  }
}

TEST(ProtobufWriter, WireBytes) {
  EXPECT_EQ(ProtobufWriter().integer(1, 150).message(), "\x08\x96\x01");
  EXPECT_EQ(ProtobufWriter().bytes(2, "testing").message(), "\x12\x07testing");
  EXPECT_EQ(ProtobufWriter().integer(1, -1).message(), "\x08" + std::string(9, '\xff') + "\x01");
  EXPECT_EQ(ProtobufWriter().integer(300, 0).message(), std::string("\xe0\x12\0", 3));
  EXPECT_EQ(ProtobufWriter().real32(1, 1.0f).message(), std::string("\x0d\0\0\x80\x3f", 5));
  EXPECT_EQ(ProtobufWriter().real64(1, 1.0).message(), std::string("\x09\0\0\0\0\0\0\xf0\x3f", 9));
}

TEST(EventWriter, WritesWhatADecoderReads) {
  TempDir dir;
  EventWriter writer(dir / "runs/a", 7);
  writer.scalar("loss/train", 0.5, 7);
  writer.scalar("loss/train", std::nan(""), 300);
  writer.scalar("acc", 1e-3, -1);
  writer.flush();
  const std::string name = std::filesystem::path(writer.path()).filename();
  EXPECT_EQ(name.rfind("events.out.tfevents.", 0), 0u);
  EXPECT_NE(name.find("." + std::to_string(::getpid())), std::string::npos);
  const auto records = decode_records(read_text(writer.path()));
  ASSERT_EQ(records.size(), 5u);
  auto first = decode_message(records[0]);
  EXPECT_EQ(first.at(3).bytes, "brain.Event:2");
  EXPECT_GT(std::bit_cast<double>(first.at(1).number), 1.6e9);
  auto start = decode_message(records[1]);
  EXPECT_EQ(start.at(2).number, 7u);
  EXPECT_EQ(decode_message(start.at(7).bytes).at(1).number, 1u);
  auto value_of = [&](const std::string& record) {
    return decode_message(decode_message(decode_message(record).at(5).bytes).at(1).bytes);
  };
  EXPECT_EQ(decode_message(records[2]).at(2).number, 7u);
  EXPECT_EQ(value_of(records[2]).at(1).bytes, "loss/train");
  auto real = [&](const std::string& record) {
    return std::bit_cast<float>(static_cast<uint32_t>(value_of(record).at(2).number));
  };
  EXPECT_EQ(real(records[2]), 0.5f);
  EXPECT_TRUE(std::isnan(real(records[3])));
  EXPECT_EQ(decode_message(records[3]).at(2).number, 300u);
  EXPECT_EQ(real(records[4]), 1e-3f);
  EXPECT_EQ(static_cast<int64_t>(decode_message(records[4]).at(2).number), -1);
}

TEST(EventWriter, SeparateFilesAndFlushAtTheEnd) {
  TempDir dir;
  std::string path;
  {
    EventWriter a(dir.path()), b(dir.path());
    EXPECT_NE(a.path(), b.path());
    for (int i = 0; i < 5000; ++i) a.scalar("x", i, i);
    path = a.path();
  }
  EXPECT_EQ(decode_records(read_text(path)).size(), 5001u);
}

TEST(EventWriter, NamesTheFolderThatCannotBeMade) {
  TempDir dir;
  test::write_text(dir / "file", "");
  expect_error(ErrorKind::io, {"/file' exists and is not a folder"},
               [&] { EventWriter w(dir / "file/runs"); });
}

}  // namespace
}  // namespace arete::io
