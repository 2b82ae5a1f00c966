#include "arete/io/torch_file.h"

#include "arete/base/file.h"
#include "arete/io/zip.h"
#include "io_test_support.h"

namespace arete::io {
namespace {

using test::expect_error;
using test::TempDir;
using test::write_text;

// Pickles by hand: protocol 2, as torch.save writes them.
std::string text(const std::string& s) {
  std::string out = "X";
  for (int i = 0; i < 4; ++i) out += char(s.size() >> (8 * i));
  return out + s;
}
std::string number(int v) { return {'K', char(v)}; }
std::string tuple(const std::vector<std::string>& items) {
  std::string out = "(";
  for (const std::string& s : items) out += s;
  return out + "t";
}
std::string dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string out = "}(";
  for (const auto& [k, v] : items) out += text(k) + v;
  return out + "u";
}
std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
std::string storage(const std::string& type, const std::string& key, int count) {
  return tuple({text("storage"), global("torch", type), text(key), text("cpu"), number(count)}) +
         "Q";
}
std::string tensor(const std::string& of, int offset, const std::vector<int>& sizes,
                   const std::vector<int>& strides, bool grad = false) {
  std::vector<std::string> s, t;
  for (int n : sizes) s.push_back(number(n));
  for (int n : strides) t.push_back(number(n));
  return global("torch._utils", "_rebuild_tensor_v2") +
         tuple({of, number(offset), tuple(s), tuple(t), grad ? "\x88" : "\x89",
                global("collections", "OrderedDict") + ")R"}) +
         "R";
}
std::string pickle(const std::string& value) { return "\x80\x02" + value + "."; }

std::string bytes_of_floats(const std::vector<float>& v) {
  return {reinterpret_cast<const char*>(v.data()), v.size() * sizeof(float)};
}

// A zip file of torch.save.
std::string zip_file(const TempDir& folder, const std::string& value,
                     const std::vector<std::pair<std::string, std::string>>& storages) {
  const std::string path = folder / "file.pt";
  AtomicFile file(path);
  ZipWriter zip(file);
  const auto add = [&](const std::string& name, const std::string& content) {
    zip.add("archive/" + name, std::as_bytes(std::span(content)));
  };
  add("data.pkl", pickle(value));
  add("byteorder", "little");
  for (const auto& [key, content] : storages) add("data/" + key, content);
  zip.finish();
  file.commit();
  return path;
}

std::string legacy_file(const TempDir& folder, const std::string& value, const std::string& keys,
                        const std::string& storages) {
  using namespace std::string_literals;
  const std::string path = folder / "legacy.pt";
  const std::string magic = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."s;
  const std::string protocol = "\x80\x02M\xe9\x03."s;
  write_text(path, magic + protocol + pickle(dict({{"little_endian", "\x88"}})) + pickle(value) +
                       pickle(keys) + storages);
  return path;
}

const std::vector<float> kSix{0, 1, 2, 3, 4, 5};

TEST(TorchFile, ContainersNumbersAndTensorsThatShareMemory) {
  const TempDir folder;
  const std::string s = storage("FloatStorage", "0", 6);
  const TorchValue v =
      load_torch(zip_file(folder,
                          dict({{"model", dict({{"weight", tensor(s, 0, {2, 3}, {3, 1}, true)},
                                                {"turned", tensor(s, 0, {3, 2}, {1, 3})},
                                                {"row", tensor(s, 3, {3}, {1})}})},
                                {"epoch", number(7)},
                                {"note", text("ab")},
                                {"nothing", "N"},
                                {"list", "](" + number(1) + "\x88" + "e"},
                                {"lr", std::string("G\x3f\xd0\0\0\0\0\0\0", 9)}}),
                          {{"0", bytes_of_floats(kSix)}}));
  EXPECT_EQ(v.find("epoch")->integer, 7);
  EXPECT_EQ(v.find("note")->text, "ab");
  EXPECT_EQ(v.find("lr")->real, 0.25);
  EXPECT_EQ(v.find("nothing")->kind, TorchValue::Kind::none);
  EXPECT_EQ(v.find("list")->items.size(), 2u);
  EXPECT_EQ(v.find("other"), nullptr);
  const NamedTensors all = named_tensors(v);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].first, "model.weight");
  EXPECT_TRUE(all[0].second.requires_grad());
  EXPECT_EQ(all[0].second.to_vector<float>(), kSix);
  EXPECT_EQ(all[1].second.to_vector<float>(), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(all[1].second.storage(), all[2].second.storage());
  EXPECT_EQ(all[2].second.to_vector<float>(), (std::vector<float>{3, 4, 5}));
}

TEST(TorchFile, LegacyFiles) {
  const TempDir folder;
  const std::string s = storage("FloatStorage", "94", 6), count("\6\0\0\0\0\0\0\0", 8);
  const std::string path = legacy_file(folder, dict({{"w", tensor(s, 1, {2}, {2})}}),
                                       "]" + text("94") + "a", count + bytes_of_floats(kSix));
  EXPECT_EQ(named_tensors(load_torch(path))[0].second.to_vector<float>(),
            (std::vector<float>{1, 3}));
  for (const std::string& bad : {count, count + bytes_of_floats(kSix) + "x",
                                 std::string("\7\0\0\0\0\0\0\0", 8) + bytes_of_floats(kSix)})
    EXPECT_THROW(load_torch(legacy_file(folder, dict({{"w", tensor(s, 1, {2}, {2})}}),
                                        "]" + text("94") + "a", bad)),
                 IoError);
}

TEST(TorchFile, OtherDTypesSayTheirOwn) {
  const TempDir folder;
  const std::string bytes = tuple({text("storage"), global("torch.storage", "UntypedStorage"),
                                   text("0"), text("cpu"), number(2)}) +
                            "Q";
  const std::string value =
      global("torch._utils", "_rebuild_tensor_v3") +
      tuple({bytes, number(0), tuple({number(2)}), tuple({number(1)}), "\x89",
             global("collections", "OrderedDict") + ")R", global("torch", "float8_e5m2")}) +
      "R";
  const TorchValue v = load_torch(zip_file(folder, value, {{"0", "\x3c\xc0"}}));
  EXPECT_EQ(v.tensor.dtype(), kFloat8E5M2);
  EXPECT_EQ(v.tensor.to_vector<float>(), (std::vector<float>{1, -2}));
}

TEST(TorchFile, NothingIsExecutedOrReadBeyondStorages) {
  const TempDir folder;
  const auto refused = [&](const std::string& value, const std::string& what,
                           const std::string& content = bytes_of_floats(kSix)) {
    expect_error(ErrorKind::io, {what}, [&] {
      load_torch(zip_file(folder, value, {{"0", content}}));
    });
  };
  const std::string s = storage("FloatStorage", "0", 6);
  refused(global("os", "system") + tuple({text("true")}) + "R", "object of 'os.system'");
  refused(global("__main__", "Net") + ")\x81", "object of '__main__.Net'");
  refused(tensor(s, 1, {2, 3}, {3, 1}), "beyond its storage");
  refused(tensor(s, 0, {2, 3}, {200, 1}), "beyond its storage");
  refused(tensor(s, 0, {2, 3}, {3, 1}), "smaller than the tensors say", "1234");
  refused(tensor(storage("FloatStorage", "5", 6), 0, {1}, {1}), "is missing");
  refused(tensor(storage("QInt8Storage", "0", 6), 0, {1}, {1}), "QInt8Storage");
  refused("](" + number(1), "more or less than one value");
  refused("h\x05", "has not put away");
  refused(
      "]q\x01h\x01"
      "a",
      "nested too deeply");  // a list in itself
  // Few bytes that ask for many copies: of a list of pairs, of a text, and of a text in many
  // places.
  const auto repeated = [](int n, const std::string& part) {
    std::string all;
    for (int i = 0; i < n; ++i) all += part;
    return all;
  };
  const std::string pairs = "](" + repeated(200, "K\1K\1\x86") + "eq\1",
                    calls = repeated(1000, "h\2h\1\x85R"), end = "e";
  refused("](" + pairs + global("collections", "OrderedDict") + "q\2" + calls + end,
          "copied too often");
  refused("](" + text(std::string(400, 'a')) + "q\1" + global("_codecs", "encode") + "q\2" + calls +
              end,
          "copied too often");
  refused("](" + text(std::string(1 << 20, 'a')) + "q\1" + repeated(300, "h\1") + end,
          "too many places");
  write_text(folder / "none.pt", "not a file");
  expect_error(ErrorKind::io, {"neither a zip archive"}, [&] { load_torch(folder / "none.pt"); });
}

}  // namespace
}  // namespace arete::io
