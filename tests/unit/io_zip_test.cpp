#include "arete/io/zip.h"

#include <zlib.h>

#include <cstring>

#include "arete/base/file.h"
#include "io_test_support.h"

namespace arete::io {
namespace {

using test::bytes_of;
using test::expect_error;
using test::TempDir;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

uint32_t crc_of(const std::string& s) {
  return static_cast<uint32_t>(
      ::crc32(0, reinterpret_cast<const Bytef*>(s.data()), static_cast<uInt>(s.size())));
}

// Builds archives by hand, with every field open to damage; shares no code with the library.
struct Entry {
  std::string name, packed;
  uint64_t size = 0;
  uint32_t crc = 0;
  uint16_t method = 0, flags = 0;
  bool zip64_local = false, zip64_central = false;
  int64_t offset = -1;       // a false place of the local header
  int64_t packed_size = -1;  // a false packed size, in both headers
  std::string local_name;    // another name in the local header
};

Entry stored(const std::string& name, const std::string& content) {
  Entry e;
  e.name = name;
  e.packed = content;
  e.size = content.size();
  e.crc = crc_of(content);
  return e;
}

Entry deflated(const std::string& name, const std::string& content) {
  Entry e = stored(name, content);
  e.packed = test::deflated(content, 9, -MAX_WBITS);
  e.method = 8;
  return e;
}

void le(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 255);
}

struct Archive {
  std::string text;
  size_t directory = 0, end = 0;
};

Archive archive_of(const std::vector<Entry>& entries, const std::string& comment = "",
                   bool zip64_end = false) {
  Archive a;
  std::string& out = a.text;
  std::vector<uint64_t> offsets;
  for (const Entry& e : entries) {
    const uint64_t packed =
        e.packed_size >= 0 ? static_cast<uint64_t>(e.packed_size) : e.packed.size();
    const std::string& name = e.local_name.empty() ? e.name : e.local_name;
    offsets.push_back(e.offset >= 0 ? static_cast<uint64_t>(e.offset) : out.size());
    le(out, 0x04034b50, 4), le(out, 20, 2), le(out, e.flags, 2), le(out, e.method, 2);
    le(out, 0, 4);
    const bool later = e.flags & 8;
    le(out, later ? 0 : e.crc, 4);
    le(out, later ? 0 : e.zip64_local ? 0xFFFFFFFF : packed, 4);
    le(out, later ? 0 : e.zip64_local ? 0xFFFFFFFF : e.size, 4);
    le(out, name.size(), 2), le(out, e.zip64_local ? 20 : 0, 2);
    out += name;
    if (e.zip64_local) le(out, 1, 2), le(out, 16, 2), le(out, e.size, 8), le(out, packed, 8);
    out += e.packed;
  }
  a.directory = out.size();
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& e = entries[i];
    const uint64_t packed =
        e.packed_size >= 0 ? static_cast<uint64_t>(e.packed_size) : e.packed.size();
    le(out, 0x02014b50, 4), le(out, 20, 2), le(out, 20, 2), le(out, e.flags, 2);
    le(out, e.method, 2), le(out, 0, 4), le(out, e.crc, 4);
    le(out, e.zip64_central ? 0xFFFFFFFF : packed, 4);
    le(out, e.zip64_central ? 0xFFFFFFFF : e.size, 4);
    le(out, e.name.size(), 2), le(out, e.zip64_central ? 5 + 28 : 0, 2), le(out, 0, 2);
    le(out, 0, 2), le(out, 0, 2), le(out, 0, 4);
    le(out, e.zip64_central ? 0xFFFFFFFF : offsets[i], 4);
    out += e.name;
    // Another field stands before the one that is looked for.
    if (e.zip64_central) {
      le(out, 0x7777, 2), le(out, 1, 2), out += 'x';
      le(out, 1, 2), le(out, 24, 2), le(out, e.size, 8), le(out, packed, 8), le(out, offsets[i], 8);
    }
  }
  const uint64_t size = out.size() - a.directory;
  if (zip64_end) {
    const uint64_t at = out.size();
    le(out, 0x06064b50, 4), le(out, 44, 8), le(out, 45, 2), le(out, 45, 2), le(out, 0, 4);
    le(out, 0, 4), le(out, entries.size(), 8), le(out, entries.size(), 8), le(out, size, 8);
    le(out, a.directory, 8);
    le(out, 0x07064b50, 4), le(out, 0, 4), le(out, at, 8), le(out, 1, 4);
  }
  a.end = out.size();
  le(out, 0x06054b50, 4), le(out, 0, 4);
  le(out, zip64_end ? 0xFFFF : entries.size(), 2), le(out, zip64_end ? 0xFFFF : entries.size(), 2);
  le(out, zip64_end ? 0xFFFFFFFF : size, 4), le(out, zip64_end ? 0xFFFFFFFF : a.directory, 4);
  le(out, comment.size(), 2);
  out += comment;
  return a;
}

void expect_bad_zip(const std::string& archive, std::initializer_list<std::string_view> parts,
                    const ZipLimits& limits = {}) {
  expect_error(ErrorKind::io, parts, [&] { ZipReader r(bytes_of(archive), "a.npz", limits); });
}

const std::string kLong = [] {
  std::string s;
  for (int i = 0; i < 200'000; ++i) s += static_cast<char>('a' + int64_t{i} * i % 7);
  return s;
}();

TEST(Zip, ReadsStoredDeflatedAndZip64) {
  for (const bool end64 : {false, true}) {
    std::vector<Entry> entries{stored("a.npy", "hello"), deflated("dir/b.npy", kLong),
                               stored("empty", ""), deflated("none", "")};
    entries[0].zip64_local = entries[1].zip64_central = true;
    entries[1].flags = 8;
    const std::string archive = archive_of(entries, "a comment", end64).text;
    const ZipReader zip(bytes_of(archive));
    ASSERT_EQ(zip.entries().size(), 4u);
    EXPECT_EQ(text_of(zip.read(*zip.find("a.npy"))), "hello");
    EXPECT_EQ(text_of(zip.view(*zip.find("a.npy"))), "hello");
    EXPECT_EQ(text_of(zip.read(*zip.find("dir/b.npy"))), kLong);
    EXPECT_TRUE(zip.read(*zip.find("empty")).empty());
    EXPECT_TRUE(zip.read(*zip.find("none")).empty());
    EXPECT_EQ(zip.find("other"), nullptr);
    expect_error(ErrorKind::io, {"compressed", "mapped"},
                 [&] { zip.view(*zip.find("dir/b.npy")); });
  }
  const std::string nothing = archive_of({}).text;
  EXPECT_TRUE(ZipReader(bytes_of(nothing)).entries().empty());
}

TEST(Zip, RejectsHostileNames) {
  for (const char* name : {"/etc/passwd", "../up", "a/../../b", "a/..", "..", "C:/x", "a\\b"})
    expect_bad_zip(archive_of({stored(name, "x")}).text, {"the entry", "its name"});
  expect_bad_zip(archive_of({stored("", "x")}).text, {"no name"});
  expect_bad_zip(archive_of({stored(std::string("a\0b", 3), "x")}).text, {"zero byte"});
  expect_bad_zip(archive_of({stored("a", "x"), stored("a", "y")}).text, {"'a'", "appears twice"});
  const std::string fine = archive_of({stored("a..b/...c", "x")}).text;
  EXPECT_EQ(ZipReader(bytes_of(fine)).entries().size(), 1u);
}

TEST(Zip, RejectsOverlaps) {
  // Two names for one place: the heart of the overlapping bombs.
  Entry second = stored("b", "hello");
  second.offset = 0;
  expect_bad_zip(archive_of({stored("a", "hello"), second}).text, {"local header contradicts"});
  // An entry whose data swallows the next one.
  Entry whole = stored("a", "hello");
  const Archive plain = archive_of({whole, stored("b", "world")});
  Entry swallow = whole;
  swallow.packed_size = static_cast<int64_t>(plain.directory - 31);
  swallow.size = plain.directory - 31;
  expect_bad_zip(archive_of({swallow, stored("b", "world")}).text, {"'a'", "overlaps"});
  // And one that reaches into the directory.
  Entry last = stored("b", "world");
  last.packed_size = 20;
  last.size = 20;
  expect_bad_zip(archive_of({stored("a", "hello"), last}).text, {"'b'", "overlaps"});
}

TEST(Zip, RejectsBombsBeforeUnpacking) {
  Entry bomb = deflated("bomb", kLong);
  bomb.size = uint64_t{4000} << 20;
  expect_bad_zip(archive_of({bomb}).text, {"'bomb'", "which deflate cannot"});
  const std::string zeros(10 << 20, '\0');
  const std::string honest = archive_of({deflated("z", zeros)}).text;
  EXPECT_EQ(ZipReader(bytes_of(honest)).read(*ZipReader(bytes_of(honest)).find("z")).size(),
            zeros.size());
  ZipLimits limits;
  limits.max_total_size = 10 << 20;
  expect_bad_zip(archive_of({deflated("z", zeros), stored("y", "1")}).text, {"unpack to more than"},
                 limits);
  limits.max_entries = 1;
  expect_bad_zip(archive_of({stored("a", ""), stored("b", "")}).text, {"2 entries; the limit is 1"},
                 limits);
  // A claim of many entries in a small file.
  Archive many = archive_of({stored("a", "")});
  many.text[many.end + 8] = many.text[many.end + 10] = '\x60';
  expect_bad_zip(many.text, {"claims 96 entries"});
}

TEST(Zip, RejectsWrongContent) {
  auto read_bad = [](const Entry& e, std::string_view part) {
    const std::string archive = archive_of({e}).text;
    const ZipReader zip(bytes_of(archive), "a.npz");
    expect_error(ErrorKind::io, {"a.npz: the entry 'x'", part},
                 [&] { zip.read(zip.entries()[0]); });
  };
  Entry e = stored("x", "hello");
  e.crc ^= 1;
  read_bad(e, "CRC differs");
  e = deflated("x", kLong);
  e.crc ^= 1;
  read_bad(e, "CRC differs");
  e = deflated("x", kLong);
  e.packed.pop_back();
  read_bad(e, "ends too early");
  e = deflated("x", kLong);
  e.packed[e.packed.size() / 2] = static_cast<char>(e.packed[e.packed.size() / 2] ^ 0x55);
  expect_error(ErrorKind::io, {"the entry 'x'", "get or write the file again"}, [&] {
    const std::string archive = archive_of({e}).text;
    ZipReader zip(bytes_of(archive));
    zip.read(zip.entries()[0]);
  });
  e = deflated("x", kLong);
  e.packed += "more";
  read_bad(e, "bytes after its compressed data");
  e = deflated("x", kLong);
  e.size -= 1;
  read_bad(e, "more bytes than it says");
  e.size += 2;
  read_bad(e, "fewer bytes than it says");
}

TEST(Zip, RejectsWrongStructure) {
  expect_bad_zip("", {"too short"});
  expect_bad_zip(std::string(100, 'x'), {"no end record"});
  const Archive good = archive_of({stored("a", "hello")});
  for (size_t n = 0; n < good.text.size(); ++n) expect_bad_zip(good.text.substr(0, n), {"a.npz: "});
  expect_bad_zip(good.text + "x", {"no end record"});
  expect_bad_zip("prefix" + good.text, {"not where the end record says"});
  Entry e = stored("a", "hello");
  e.flags = 1;
  expect_bad_zip(archive_of({e}).text, {"encrypted"});
  e = stored("a", "hello");
  e.method = 12;
  expect_bad_zip(archive_of({e}).text, {"method 12"});
  e = stored("a", "hello");
  e.size = 6;
  expect_bad_zip(archive_of({e}).text, {"two sizes differ"});
  e = stored("a", "hello");
  e.local_name = "b";
  expect_bad_zip(archive_of({e}).text, {"local header contradicts"});
  e = stored("a", "hello");
  e.offset = 3;
  expect_bad_zip(archive_of({e}).text, {"not where the directory says"});
  e.offset = 0x7fffffff;
  expect_bad_zip(archive_of({e}).text, {"beyond its end"});
  std::string disks = good.text;
  disks[good.end + 4] = 1;
  expect_bad_zip(disks, {"several parts"});
  const Archive wide = archive_of({stored("a", "hello")}, "", true);
  std::string lie = wide.text;
  lie[wide.end + 8] = lie[wide.end + 10] = 2;
  lie[wide.end + 9] = lie[wide.end + 11] = 0;
  expect_bad_zip(lie, {"contradict each other"});
}

TEST(Zip, WritesWhatItReads) {
  TempDir dir;
  {
    AtomicFile file(dir / "a.npz");
    ZipWriter zip(file);
    zip.add("a.npy", bytes_of("hello"));
    const std::span<const std::byte> parts[] = {bytes_of("wo"), {}, bytes_of("rld")};
    zip.add("folder/b.npy", parts);
    zip.add("empty", std::span<const std::byte>());
    expect_error(ErrorKind::value, {"'a.npy' twice"}, [&] { zip.add("a.npy", bytes_of("")); });
    expect_error(ErrorKind::value, {"absolute"}, [&] { zip.add("/a", bytes_of("")); });
    expect_error(ErrorKind::value, {"'..'"}, [&] { zip.add("../a", bytes_of("")); });
    zip.finish();
    file.commit();
  }
  const MappedFile file(dir / "a.npz");
  const ZipReader zip(file.bytes());
  ASSERT_EQ(zip.entries().size(), 3u);
  EXPECT_EQ(text_of(zip.view(zip.entries()[0])), "hello");
  EXPECT_EQ(text_of(zip.view(*zip.find("folder/b.npy"))), "world");
  EXPECT_EQ(zip.find("empty")->size, 0u);
}

TEST(Zip, ManyEntriesNeedZip64) {
  TempDir dir;
  constexpr int kCount = 66'000;
  {
    AtomicFile file(dir / "many");
    ZipWriter zip(file);
    for (int i = 0; i < kCount; ++i) zip.add(std::to_string(i), bytes_of("x"));
    zip.finish();
    file.commit();
  }
  const MappedFile file(dir / "many");
  EXPECT_EQ(ZipReader(file.bytes()).entries().size(), static_cast<size_t>(kCount));
}

}  // namespace
}  // namespace arete::io
