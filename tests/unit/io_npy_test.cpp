#include "arete/io/npy_format.h"

#include "io_test_support.h"

namespace arete::io {
namespace {

using test::bytes_of;
using test::expect_error;

std::string file_of(const std::string& dict, size_t data_bytes, int version = 1) {
  std::string out = "\x93NUMPY";
  out += static_cast<char>(version);
  out += '\0';
  const size_t n = dict.size();
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) out += static_cast<char>(n >> (8 * i) & 255);
  return out + dict + std::string(data_bytes, 'd');
}

NpyHeader parse_npy(const std::string& file) { return parse_npy_header(bytes_of(file), "a.npy"); }

std::string dict_of(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
}

void expect_bad_npy(const std::string& file, std::initializer_list<std::string_view> parts) {
  SCOPED_TRACE(file.substr(0, 200));
  expect_error(ErrorKind::io, parts, [&] { parse_npy(file); });
  expect_error(ErrorKind::io, {"a.npy: "}, [&] { parse_npy(file); });
}

TEST(Npy, ReadsAllVersionsAndSpellings) {
  for (int version : {1, 2, 3}) {
    const auto h = parse_npy(file_of(dict_of("<f4", "(2, 3)") + "   \n", 24, version));
    EXPECT_EQ(h.dtype, "F32");
    EXPECT_EQ(h.shape, (std::vector<int64_t>{2, 3}));
    EXPECT_FALSE(h.fortran_order);
    EXPECT_EQ(h.data_bytes, 24u);
  }
  const auto h =
      parse_npy(file_of("  {  \"shape\":(4L,),'fortran_order' : True,\t'descr':'|u1'}", 4));
  EXPECT_TRUE(h.fortran_order);
  EXPECT_EQ(h.shape, (std::vector<int64_t>{4}));
  EXPECT_TRUE(parse_npy(file_of(dict_of("<c16", "()"), 16)).shape.empty());
  EXPECT_EQ(parse_npy(file_of(dict_of("<i8", "(0, 3)"), 0)).data_bytes, 0u);
  EXPECT_EQ(parse_npy(file_of(dict_of("<f2", "(1,2,3,)"), 12)).dtype, "F16");
  // One byte has no order.
  EXPECT_EQ(parse_npy(file_of(dict_of(">i1", "(2,)"), 2)).dtype, "I8");
}

TEST(Npy, RejectsDtypesWithAReason) {
  expect_bad_npy(file_of(dict_of(">f4", "(1,)"), 4), {"big-endian", "newbyteorder"});
  expect_bad_npy(file_of(dict_of("|O", "(1,)"), 8), {"Python objects", "never unpickled"});
  expect_bad_npy(file_of(dict_of("<U5", "(1,)"), 20), {"dtype that is not supported", "'<U5'"});
  expect_bad_npy(file_of(dict_of("<M8[ns]", "(1,)"), 8), {"not supported"});
  expect_bad_npy(file_of(dict_of("", "(1,)"), 8), {"not supported"});
  expect_bad_npy(file_of("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", 4),
                 {"records"});
}

TEST(Npy, RejectsWhatIsNotTheFormat) {
  expect_bad_npy("", {"not an .npy file"});
  expect_bad_npy("PK\3\4aaaaaaaaaaaa", {"not an .npy file", "npz"});
  expect_bad_npy("\x93NUMPY\x04" + std::string(20, '\0'), {"version", "4.0"});
  expect_bad_npy(std::string("\x93NUMPY\x02\0\x10\0", 10), {"truncated within the header"});
  // Twelve bytes that ask for four gigabytes.
  expect_bad_npy(std::string("\x93NUMPY\x02\0\xff\xff\xff\xff", 12), {"too long"});
  std::string cut = file_of(dict_of("<f4", "(1,)"), 0);
  cut.pop_back();
  expect_bad_npy(cut, {"truncated within the header"});
  const auto bad_dict = [](const std::string& dict, std::string_view part) {
    expect_bad_npy(file_of(dict, 4), {"header is wrong at character", part});
  };
  bad_dict("", "expected '{'");
  bad_dict("{", "expected a string");
  bad_dict("{}", "'descr' is missing");
  bad_dict("{'descr': '<f4', 'fortran_order': False}", "'shape' is missing");
  bad_dict("{'descr': '<f4', 'shape': (1,)}", "'fortran_order' is missing");
  bad_dict("{'descr': '<f4', 'descr': '<f4'}", "'descr' appears twice");
  bad_dict("{'other': 1}", "'other' is not one of");
  bad_dict("{'descr': '<f4' 'shape': (1,)}", "expected '}'");
  bad_dict("{'descr': '<f4", "does not end");
  bad_dict("{'descr': '\\x3cf4'}", "escapes");
  bad_dict("{'fortran_order': 1}", "expected True or False");
  bad_dict(dict_of("<f4", "(1,)") + " + 1", "after the closing brace");
  bad_dict(dict_of("<f4", "1"), "expected '('");
  bad_dict(dict_of("<f4", "(1)"), "not a tuple");
  bad_dict(dict_of("<f4", "(-1,)"), "negative");
  bad_dict(dict_of("<f4", "(1.0,)"), "expected ',' or ')'");
  bad_dict(dict_of("<f4", "(1 2)"), "expected ',' or ')'");
  bad_dict(dict_of("<f4", "(,)"), "whole number");
  bad_dict(dict_of("<f4", "(01,)"), "leading zero");
  bad_dict(dict_of("<f4", "(9223372036854775808,)"), "too large");
  bad_dict(dict_of("<f4", "(99999999999999999999999,)"), "too large");
  std::string many = "(";
  for (int i = 0; i < 65; ++i) many += "1,";
  bad_dict(dict_of("<f4", many + ")"), "more than 64 dimensions");
}

TEST(Npy, RejectsWrongSizes) {
  expect_bad_npy(file_of(dict_of("<f4", "(2, 3)"), 23), {"truncated", "24 bytes", "23 bytes"});
  expect_bad_npy(file_of(dict_of("<f4", "(2, 3)"), 25),
                 {"after the array", "24 bytes", "25 bytes"});
  expect_bad_npy(file_of(dict_of("<f8", "(4294967296, 4294967296)"), 0), {"too large"});
  expect_bad_npy(file_of(dict_of("<f8", "(0, 4294967296, 4294967296)"), 0), {"too large"});
}

TEST(Npy, WritesTheBytesOfNumPy) {
  // numpy.save of numpy.zeros((3, 5), 'float32'), version 2 of NumPy.
  const std::vector<int64_t> shape{3, 5};
  std::string expected("\x93NUMPY\x01\0\x76\0", 10);
  expected += "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 5), }";
  expected.append(127 - expected.size(), ' ');
  expected += '\n';
  EXPECT_EQ(write_npy_header("F32", shape), expected);
}

TEST(Npy, WritesWhatItReads) {
  const std::vector<std::vector<int64_t>> shapes = {{}, {3}, {2, 0}, {1, 2, 3, 4, 5}};
  for (const char* dtype : {"BOOL", "U8", "I16", "F16", "F64", "C64", "C128"}) {
    for (const auto& shape : shapes) {
      std::string file = write_npy_header(dtype, shape, shape.size() == 5);
      EXPECT_EQ(file.size() % 64, 0u);
      uint64_t elements = 1;
      for (const auto d : shape) elements *= static_cast<uint64_t>(d);
      const std::string_view d = dtype;
      const size_t item = d == "C128"                ? 16
                          : d == "F64" || d == "C64" ? 8
                          : d == "I16" || d == "F16" ? 2
                                                     : 1;
      file.append(elements * item, 'd');
      const auto header = parse_npy(file);
      EXPECT_EQ(header.dtype, dtype);
      EXPECT_EQ(header.shape, shape);
      EXPECT_EQ(header.fortran_order, shape.size() == 5);
    }
  }
  expect_error(ErrorKind::value, {"BF16", "safetensors"}, [] { write_npy_header("BF16", {}); });
  const std::vector<int64_t> negative{-1};
  expect_error(ErrorKind::value, {"[-1]"}, [&] { write_npy_header("F32", negative); });
}

}  // namespace
}  // namespace arete::io
