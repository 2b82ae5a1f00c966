#include "arete/io/idx.h"

#include <cstring>

#include "arete/base/gzip.h"
#include "io_test_support.h"

namespace arete::io {
namespace {

using test::bytes_of;
using test::expect_error;
using test::gzip;
using test::TempDir;
using test::write_text;

std::string idx(uint8_t type, const std::vector<uint32_t>& dims, const std::string& data) {
  std::string out{'\0', '\0', static_cast<char>(type), static_cast<char>(dims.size())};
  for (const uint32_t d : dims)
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(d >> shift & 255);
  return out + data;
}

IdxArray parse(const std::string& s, const IdxExpectation& e = {}, uint64_t max = kMaxIdxBytes) {
  return parse_idx(bytes_of(s), e, "train.gz", max);
}

// Plain and packed data must fail alike.
void expect_bad_idx(const std::string& s, std::initializer_list<std::string_view> parts,
                    const IdxExpectation& e = {}, uint64_t max = kMaxIdxBytes) {
  expect_error(ErrorKind::io, parts, [&] { parse(s, e, max); });
  expect_error(ErrorKind::io, parts, [&] { parse(gzip(s), e, max); });
  expect_error(ErrorKind::io, {"train.gz: "}, [&] { parse(s, e, max); });
}

TEST(Idx, ReadsPlainAndPacked) {
  std::string pixels;
  for (int i = 0; i < 24; ++i) pixels += static_cast<char>(i * 11);
  const std::string file = idx(kIdxUint8, {2, 3, 4}, pixels);
  for (const std::string& f : {file, gzip(file)}) {
    const IdxArray a = parse(f, {kIdxUint8, {-1, 3, 4}, "images"});
    EXPECT_EQ(a.type, kIdxUint8);
    EXPECT_EQ(a.shape, (std::vector<int64_t>{2, 3, 4}));
    EXPECT_EQ(std::string(a.bytes.begin(), a.bytes.end()), pixels);
  }
  EXPECT_TRUE(parse(idx(kIdxUint8, {0, 28, 28}, "")).bytes.empty());
}

TEST(Idx, TurnsBigEndianNumbers) {
  const IdxArray a = parse(idx(kIdxInt32, {2}, std::string("\0\0\1\2\xff\xff\xff\xfe", 8)));
  int32_t values[2];
  ASSERT_EQ(a.bytes.size(), sizeof(values));
  std::memcpy(values, a.bytes.data(), sizeof(values));
  EXPECT_EQ(values[0], 258);
  EXPECT_EQ(values[1], -2);
  const IdxArray b = parse(idx(kIdxFloat64, {1}, std::string("\x3f\xf8\0\0\0\0\0\0", 8)));
  double d;
  std::memcpy(&d, b.bytes.data(), 8);
  EXPECT_EQ(d, 1.5);
}

TEST(Idx, NoticesSwappedFiles) {
  const std::string labels = idx(kIdxUint8, {5}, "abcde");
  expect_bad_idx(
      labels,
      {"not the expected", "(images of 28 x 28)", "[any, 28, 28]", "Got: shape [5]", "swapped"},
      {kIdxUint8, {-1, 28, 28}, "images of 28 x 28"});
  expect_bad_idx(labels, {"[60000]", "[5]"}, {kIdxUint8, {60000}, ""});
  expect_bad_idx(labels, {"element type 0x0d", "0x08"}, {kIdxFloat32, {}, ""});
  EXPECT_EQ(parse(labels, {0, {-1}, ""}).shape[0], 5);
}

TEST(Idx, RejectsWrongHeaders) {
  expect_bad_idx("", {"too short"});
  expect_bad_idx(std::string("\0\0\x08", 3), {"too short"});
  expect_bad_idx("PNG.....", {"not an IDX file", "0x50 0x4e"});
  expect_bad_idx(std::string("\0\0\x07\1\0\0\0\0", 8), {"not an IDX file", "0x07"});
  expect_bad_idx(std::string("\0\0\x08\0", 4), {"number of dimensions is 0"});
  expect_bad_idx(std::string("\0\0\x08\x21", 4) + std::string(200, 'x'),
                 {"number of dimensions is 33"});
  expect_bad_idx(std::string("\0\0\x08\3\0\0\0\1", 8), {"truncated within its header"});
}

TEST(Idx, RejectsWrongSizes) {
  expect_bad_idx(idx(kIdxUint8, {2, 3}, "12345"), {"truncated", "[2, 3]"});
  const std::string longer = idx(kIdxUint8, {2, 3}, "1234567");
  expect_error(ErrorKind::io, {"bytes after the array"}, [&] { parse(longer); });
  expect_error(ErrorKind::io, {"more than 18 bytes"}, [&] { parse(gzip(longer)); });
  expect_bad_idx(idx(kIdxFloat64, std::vector<uint32_t>(8, 0xFFFFFFFF), ""), {"too large"});
  expect_bad_idx(idx(kIdxUint8, {101}, std::string(101, 'x')), {"too large", "at most 100"}, {},
                 100);
}

TEST(Idx, RejectsDamagedGzip) {
  std::string content;
  for (int i = 0; i < 5000; ++i) content += static_cast<char>(i * i % 251);
  const std::string good = gzip(idx(kIdxUint8, {5000}, content));
  EXPECT_EQ(parse(good).bytes.size(), 5000u);
  for (const size_t n : {size_t{3}, size_t{12}, good.size() / 2, good.size() - 1})
    expect_error(ErrorKind::io, {"train.gz: its gzip data ends too early", "interrupted"},
                 [&] { parse(good.substr(0, n)); });
  std::string bad = good;
  bad[bad.size() - 8] = static_cast<char>(bad[bad.size() - 8] ^ 1);
  expect_error(ErrorKind::io, {"is damaged (incorrect data check)"}, [&] { parse(bad); });
  bad = good;
  bad[bad.size() - 4] = static_cast<char>(bad[bad.size() - 4] ^ 1);
  expect_error(ErrorKind::io, {"is damaged (incorrect length check)"}, [&] { parse(bad); });
  bad = good;
  bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 0x10);
  expect_error(ErrorKind::io, {"gzip data"}, [&] { parse(bad); });
  expect_error(ErrorKind::io, {"followed by 4 bytes that do not belong"},
               [&] { parse(good + "junk"); });
}

TEST(Gzip, JoinsMembersAndStopsBombs) {
  const auto out = gunzip(bytes_of(gzip("one ") + gzip("") + gzip("two")), 100);
  EXPECT_EQ(std::string(out.begin(), out.end()), "one two");
  const std::string bomb = gzip(std::string(50 << 20, '\0'));
  EXPECT_LT(bomb.size(), 100'000u);
  expect_error(ErrorKind::io, {"more than 1000 bytes"}, [&] { gunzip(bytes_of(bomb), 1000); });
  EXPECT_EQ(gunzip_prefix(bytes_of(bomb), 10).size(), 10u);
  EXPECT_EQ(gunzip(bytes_of(bomb), 50 << 20).size(), size_t{50} << 20);
}

TEST(Idx, ReadsFiles) {
  TempDir dir;
  write_text(dir / "labels.gz", gzip(idx(kIdxUint8, {3}, "abc")));
  EXPECT_EQ(read_idx(dir / "labels.gz").bytes.size(), 3u);
  expect_error(ErrorKind::io, {"/none'", "No such file"}, [&] { read_idx(dir / "none"); });
  write_text(dir / "large", std::string(10'000, 'x'));
  expect_error(ErrorKind::io, {"/large'", "too large"}, [&] { read_idx(dir / "large", {}, 100); });
}

}  // namespace
}  // namespace arete::io
