#include <cstring>
#include <nlohmann/json.hpp>

#include "arete/io/dtype_code.h"
#include "arete/io/safetensors_format.h"
#include "io_test_support.h"

namespace arete::io {
namespace {

using test::bytes_of;
using test::expect_error;

std::string safetensors_of(const std::string& json, size_t data_bytes) {
  std::string out(8, '\0');
  const uint64_t length = json.size();
  std::memcpy(out.data(), &length, 8);
  return out + json + std::string(data_bytes, 'd');
}

SafetensorsHeader parse(const std::string& json, size_t data_bytes) {
  return parse_safetensors_header(bytes_of(safetensors_of(json, data_bytes)), "model.safetensors");
}

void expect_bad_safetensors(const std::string& json, size_t data_bytes,
                            std::initializer_list<std::string_view> parts) {
  SCOPED_TRACE(json.substr(0, 200));
  expect_error(ErrorKind::io, parts, [&] { parse(json, data_bytes); });
  expect_error(ErrorKind::io, {"model.safetensors: "}, [&] { parse(json, data_bytes); });
}

// A header of one tensor "w" with the given fields.
std::string one(const std::string& fields) { return "{\"w\":{" + fields + "}}"; }
const std::string kGood = "\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]";

TEST(Safetensors, ReadsTensorsMetadataAndOrder) {
  const auto header = parse(
      R"({"b":{"dtype":"F16","shape":[],"data_offsets":[24,26]},"__metadata__":{"format":"pt","k":"ä"},)"
      R"("a":{"shape":[2,3],"data_offsets":[0,24],"dtype":"F32"},)"
      R"("empty":{"dtype":"I64","shape":[0,5],"data_offsets":[24,24]}}   )",
      26);
  ASSERT_EQ(header.entries.size(), 3u);
  EXPECT_EQ(header.entries[0].name, "a");
  EXPECT_EQ(header.entries[0].dtype, "F32");
  EXPECT_EQ(header.entries[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(header.entries[1].name, "empty");
  EXPECT_EQ(header.entries[2].name, "b");
  EXPECT_EQ(header.entries[2].begin, 24u);
  EXPECT_EQ(header.entries[2].end, 26u);
  EXPECT_EQ(header.metadata.at("k"), "ä");
  EXPECT_EQ(header.metadata.size(), 2u);
  EXPECT_TRUE(parse("{}", 0).entries.empty());
}

TEST(Safetensors, RejectsWrongLengths) {
  for (size_t n : {0, 1, 7})
    expect_error(ErrorKind::io, {"too short"},
                 [&] { parse_safetensors_header(bytes_of(std::string(n, 'x'))); });
  std::string file = safetensors_of(one(kGood), 24);
  const uint64_t beyond = file.size() - 7;
  std::memcpy(file.data(), &beyond, 8);
  expect_error(ErrorKind::io, {"longer than the file"},
               [&] { parse_safetensors_header(bytes_of(file)); });
  for (const uint64_t length : {kMaxSafetensorsHeader + 1, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    std::memcpy(file.data(), &length, 8);
    expect_error(ErrorKind::io, {"header is too long", "100000000"},
                 [&] { parse_safetensors_header(bytes_of(file)); });
  }
  EXPECT_EQ(parse_safetensors_header(bytes_of(safetensors_of(one(kGood), 24))).entries.size(), 1u);
  expect_bad_safetensors(one(kGood), 23, {"'w'", "beyond the end", "truncated"});
  expect_bad_safetensors(one(kGood), 25, {"1 bytes at the end of the file belong to no tensor"});
}

TEST(Safetensors, RejectsWhatIsNotTheFormat) {
  expect_bad_safetensors("", 0, {"does not begin with '{'"});
  expect_bad_safetensors("[]", 0, {"does not begin with '{'"});
  expect_bad_safetensors(" {}", 0, {"does not begin with '{'"});
  expect_bad_safetensors("{\"w\":", 0, {"not valid JSON at byte"});
  expect_bad_safetensors("{}x", 0, {"not valid JSON at byte 3"});
  expect_bad_safetensors(std::string("{}\0", 3), 0, {"not valid JSON"});
  expect_bad_safetensors("{\"\xff\":{}}", 0, {"not valid JSON"});
  expect_bad_safetensors("{\"w\":3}", 0, {"'w' is the number 3", "an object with dtype"});
  expect_bad_safetensors("{\"w\":null}", 0, {"'w' is null"});
  expect_bad_safetensors("{\"w\":[]}", 0, {"'w' is an array"});
  expect_bad_safetensors("{\"__metadata__\":{\"k\":1}}", 0, {"metadata 'k' is the number 1"});
  expect_bad_safetensors("{\"__metadata__\":{\"k\":{}}}", 0, {"metadata 'k' is an object"});
}

TEST(Safetensors, RejectsWrongFields) {
  expect_bad_safetensors(one("\"dtype\":\"F33\""), 0, {"'w'", "dtype 'F33'", "not known"});
  expect_bad_safetensors(one("\"dtype\":\"C128\""), 0, {"not known"});
  expect_bad_safetensors(one("\"dtype\":32"), 0, {"'w'", "as 'dtype'"});
  expect_bad_safetensors(one("\"shape\":[1],\"data_offsets\":[0,4]"), 4, {"'w' has no dtype"});
  expect_bad_safetensors(one("\"dtype\":\"F32\",\"data_offsets\":[0,4]"), 4, {"'w' has no shape"});
  expect_bad_safetensors(one("\"dtype\":\"F32\",\"shape\":[1]"), 4, {"'w' has no data_offsets"});
  expect_bad_safetensors(one(kGood + ",\"extra\":1"), 24, {"unknown field 'extra'"});
  expect_bad_safetensors(one(kGood + ",\"dtype\":\"F32\""), 24, {"field 'dtype' twice"});
  expect_bad_safetensors(one("\"shape\":[-1]"), 0, {"negative number -1", "as a dimension"});
  expect_bad_safetensors(one("\"shape\":[1.5]"), 0, {"'1.5'", "as a dimension"});
  expect_bad_safetensors(one("\"shape\":[[1]]"), 0, {"an array as a dimension"});
  expect_bad_safetensors(one("\"shape\":[18446744073709551615]"), 0,
                         {"dimension that is too large"});
  expect_bad_safetensors(one("\"shape\":[99999999999999999999]"), 0, {"as a dimension"});
  expect_bad_safetensors(one("\"data_offsets\":[0]"), 0, {"fewer than two"});
  expect_bad_safetensors(one("\"data_offsets\":[0,1,2]"), 0, {"more than two"});
  expect_bad_safetensors(one("\"data_offsets\":[0,-1]"), 0, {"as a data offset"});
  std::string many = "\"shape\":[1";
  for (int i = 0; i < 64; ++i) many += ",1";
  expect_bad_safetensors(one(many + "]"), 0, {"more than 64 dimensions"});
}

TEST(Safetensors, RejectsDuplicates) {
  expect_bad_safetensors("{\"w\":{" + kGood + "},\"w\":{" + kGood + "}}", 24,
                         {"'w' appears twice"});
  expect_bad_safetensors("{\"__metadata__\":{},\"__metadata__\":{}}", 0,
                         {"'__metadata__' appears twice"});
  expect_bad_safetensors("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0,
                         {"key 'k' appears twice"});
  // The same name written with an escape.
  expect_bad_safetensors("{\"w\":{" + kGood + "},\"\\u0077\":{" + kGood + "}}", 24,
                         {"'w' appears twice"});
}

TEST(Safetensors, RejectsWrongRanges) {
  auto two = [](const std::string& a, const std::string& b) {
    return "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" + a +
           "},\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" + b + "}}";
  };
  EXPECT_EQ(parse(two("[4,8]", "[0,4]"), 8).entries[0].name, "b");
  expect_bad_safetensors(two("[0,4]", "[2,6]"), 6, {"'b' overlaps the tensor 'a'"});
  expect_bad_safetensors(two("[0,4]", "[0,4]"), 4, {"'b' overlaps the tensor 'a'"});
  expect_bad_safetensors(two("[0,4]", "[6,10]"), 10, {"hole of 2 bytes before the tensor 'b'"});
  expect_bad_safetensors(two("[1,5]", "[5,9]"), 9, {"hole of 1 bytes before the tensor 'a'"});
  expect_bad_safetensors(two("[4,0]", "[4,8]"), 8, {"'a'", "wrong order"});
  expect_bad_safetensors(two("[0,5]", "[5,9]"), 9,
                         {"'a'", "do not fit its shape", "4 bytes", "5 bytes"});
  expect_bad_safetensors(two("[0,4]", "[18446744073709551612,18446744073709551615]"), 8,
                         {"'b'", "beyond"});
  expect_bad_safetensors(
      one("\"dtype\":\"F64\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]"), 0,
      {"'w'", "too large", "[4294967296, 4294967296]"});
  expect_bad_safetensors(
      one("\"dtype\":\"F64\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]"), 0,
      {"'w'", "too large"});
  // Zero elements do not excuse the other dimensions.
  expect_bad_safetensors(
      one("\"dtype\":\"F64\",\"shape\":[0,4611686018427387904,4],\"data_offsets\":[0,0]"), 0,
      {"'w'", "too large"});
}

TEST(Safetensors, DeepNestingIsRefusedAtOnce) {
  std::string deep = "{\"w\":";
  for (int i = 0; i < 100'000; ++i) deep += '[';
  expect_bad_safetensors(deep, 0, {"'w' is an array"});
}

TEST(Safetensors, WritesWhatItReads) {
  std::vector<TensorEntry> entries(5);
  entries[0] = {"z", "U8", {3}, 0, 0};
  entries[1] = {"b.\"quoted\"\n", "F32", {2, 2}, 0, 0};
  entries[2] = {"a", "F32", {}, 0, 0};
  entries[3] = {"none", "BF16", {0, 7}, 0, 0};
  entries[4] = {"wide", "F64", {1}, 0, 0};
  std::string file = write_safetensors_header(entries, {{"format", "pt"}, {"ä", "\"x\""}});
  EXPECT_EQ(file.size() % 8, 0u);
  EXPECT_EQ(file[8], '{');
  file += std::string(entries.back().end, 'd');
  EXPECT_EQ(entries[0].name, "wide");
  EXPECT_EQ(entries[1].name, "a");
  EXPECT_EQ(entries[2].begin, 12u);
  const auto header = parse_safetensors_header(bytes_of(file));
  EXPECT_EQ(header.metadata.at("ä"), "\"x\"");
  ASSERT_EQ(header.entries.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(header.entries[i].name, entries[i].name);
    EXPECT_EQ(header.entries[i].dtype, entries[i].dtype);
    EXPECT_EQ(header.entries[i].shape, entries[i].shape);
    EXPECT_EQ(header.entries[i].begin, entries[i].begin);
    EXPECT_EQ(header.entries[i].begin % dtype_code_size(entries[i].dtype), 0u);
  }
  // An independent reader agrees that it is JSON.
  const auto json = nlohmann::json::parse(file.substr(8, header.data_offset - 8));
  EXPECT_EQ(json.at("wide").at("data_offsets").at(1), 8);
}

TEST(Safetensors, WriterRefusesWhatCannotBeRead) {
  auto write = [](std::vector<TensorEntry> entries) { write_safetensors_header(entries); };
  expect_error(ErrorKind::value, {"'x'", "dtype"}, [&] { write({{"x", "F33", {}, 0, 0}}); });
  expect_error(ErrorKind::value, {"two tensors", "'x'"}, [&] {
    write({{"x", "F32", {}, 0, 0}, {"x", "F64", {}, 0, 0}});
  });
  expect_error(ErrorKind::value, {"__metadata__"}, [&] {
    write({{"__metadata__", "F32", {}, 0, 0}});
  });
  expect_error(ErrorKind::value, {"UTF-8"}, [&] { write({{"\xff", "F32", {}, 0, 0}}); });
  expect_error(ErrorKind::value, {"too large"}, [&] { write({{"x", "F32", {-1}, 0, 0}}); });
  expect_error(ErrorKind::value, {"too large"}, [&] {
    write({{"x", "F32", {int64_t{1} << 62}, 0, 0}});
  });
}

}  // namespace
}  // namespace arete::io
