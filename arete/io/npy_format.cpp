#include "arete/io/npy_format.h"

#include <cstring>

#include "arete/base/error.h"
#include "arete/base/text.h"
#include "arete/io/checked.h"
#include "arete/io/dtype_code.h"

namespace arete::io {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr uint64_t kMaxHeader = 1 << 20;

struct Descr {
  std::string_view numpy;
  std::string_view code;
};

constexpr Descr kDescrs[] = {
    {"b1", "BOOL"}, {"u1", "U8"},  {"i1", "I8"},  {"u2", "U16"},   {"i2", "I16"},
    {"f2", "F16"},  {"u4", "U32"}, {"i4", "I32"}, {"f4", "F32"},   {"u8", "U64"},
    {"i8", "I64"},  {"f8", "F64"}, {"c8", "C64"}, {"c16", "C128"},
};

// A parser of the one Python expression that a header holds: a dict with three known keys.
class LiteralParser {
 public:
  LiteralParser(std::string_view text, std::string prefix)
      : text_(text), prefix_(std::move(prefix)) {}

  NpyHeader parse() {
    bool has_descr = false, has_order = false, has_shape = false;
    auto first_time = [&](bool* seen, std::string_view key) {
      if (*seen) fail("the key " + quote_text(key) + " appears twice");
      *seen = true;
    };
    expect('{');
    while (!accept('}')) {
      const std::string key = string_literal();
      expect(':');
      if (key == "descr") {
        first_time(&has_descr, key);
        header_.dtype = descr();
      } else if (key == "fortran_order") {
        first_time(&has_order, key);
        header_.fortran_order = boolean();
      } else if (key == "shape") {
        first_time(&has_shape, key);
        shape();
      } else {
        fail("the key " + quote_text(key, 40) + " is not one of descr, fortran_order, shape");
      }
      if (accept(',')) continue;
      expect('}');
      break;
    }
    skip_space();
    if (at_ != text_.size()) fail("there is text after the closing brace");
    if (!has_descr) fail("the key 'descr' is missing");
    if (!has_order) fail("the key 'fortran_order' is missing");
    if (!has_shape) fail("the key 'shape' is missing");
    return std::move(header_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw IoError("",
                  prefix_ + "its header is wrong at character " + std::to_string(at_) + ": " + what)
        .expected("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }");
  }

  void skip_space() {
    while (at_ < text_.size() && std::strchr(" \t\n\r\f", text_[at_]) && text_[at_] != '\0') ++at_;
  }

  bool accept(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (accept(c)) return;
    const std::string got = at_ < text_.size() ? quote_text(text_.substr(at_, 1)) : "the end";
    fail(std::string("expected '") + c + "', found " + got);
  }

  bool accept_word(std::string_view word) {
    skip_space();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  std::string string_literal() {
    skip_space();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"'))
      fail("expected a string in quotes");
    const char quote = text_[at_++];
    std::string out;
    while (at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] == '\\' || text_[at_] == '\n') fail("a string with escapes or line breaks");
      out += text_[at_++];
    }
    if (at_ >= text_.size()) fail("a string does not end");
    ++at_;
    return out;
  }

  bool boolean() {
    if (accept_word("True")) return true;
    if (accept_word("False")) return false;
    fail("expected True or False");
  }

  void shape() {
    expect('(');
    bool comma = true;
    while (!accept(')')) {
      if (!comma) fail("expected ',' or ')' in the shape");
      header_.shape.push_back(dimension());
      if (header_.shape.size() > kMaxFileDims)
        fail("more than " + std::to_string(kMaxFileDims) + " dimensions");
      comma = accept(',');
    }
    // In Python "(3)" is a number and "(3,)" a tuple.
    if (header_.shape.size() == 1 && !comma) fail("the shape (n) is not a tuple; (n,) is");
  }

  int64_t dimension() {
    skip_space();
    if (at_ < text_.size() && text_[at_] == '-') fail("a dimension is negative");
    uint64_t value = 0;
    const size_t start = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      const auto digit = static_cast<uint64_t>(text_[at_] - '0');
      if (!checked_mul(value, 10, &value) || !checked_add(value, digit, &value) ||
          value > static_cast<uint64_t>(INT64_MAX))
        fail("a dimension is too large");
      ++at_;
    }
    if (at_ == start) fail("expected a whole number as dimension");
    if (at_ - start > 1 && text_[start] == '0') fail("a dimension with a leading zero");
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // written by Python 2
    return static_cast<int64_t>(value);
  }

  std::string descr() {
    skip_space();
    if (at_ < text_.size() && text_[at_] == '[')
      throw IoError("", prefix_ + "it holds records (a structured dtype), which are not supported")
          .hint("save each field as an array of its own");
    const std::string text = string_literal();
    auto unsupported = [&](const std::string& what, const std::string& hint) {
      return IoError("", prefix_ + what + " (dtype " + quote_text(text, 40) + ")").hint(hint);
    };
    const char order = text.empty() ? '\0' : text[0];
    const std::string_view kind =
        std::strchr("<>|=", order) && order ? std::string_view(text).substr(1) : text;
    if (kind.substr(0, 1) == "O")
      throw unsupported("it holds Python objects, which are never unpickled",
                        "in Python, convert the array to numbers and save it with "
                        "allow_pickle=False");
    for (const Descr& d : kDescrs) {
      if (kind != d.numpy) continue;
      if (order == '>' && dtype_code_size(d.code) > 1)
        throw unsupported("its numbers are big-endian, which is not supported",
                          "in NumPy: numpy.save(path, a.astype(a.dtype.newbyteorder('<')))");
      return std::string(d.code);
    }
    throw unsupported("it has a dtype that is not supported",
                      "supported: bool, int8-64, uint8-64, float16/32/64, complex64/128");
  }

  std::string_view text_;
  std::string prefix_;
  size_t at_ = 0;
  NpyHeader header_;
};

}  // namespace

NpyHeader parse_npy_header(std::span<const std::byte> file_bytes, std::string_view file_name) {
  const std::string prefix = std::string(file_name) + ": ";
  const auto* bytes = reinterpret_cast<const char*>(file_bytes.data());
  const uint64_t size = file_bytes.size();
  ARETE_CHECK(size >= 10 && std::string_view(bytes, 6) == kMagic,
              IoError("", prefix + "not an .npy file")
                  .expected("the bytes \\x93NUMPY at its start")
                  .got(quote_text(std::string_view(bytes, size < 6 ? size : 6)))
                  .hint("an .npz archive is read with the npz functions"));
  const unsigned major = static_cast<unsigned char>(bytes[6]);
  const unsigned minor = static_cast<unsigned char>(bytes[7]);
  ARETE_CHECK(major >= 1 && major <= 3 && minor == 0,
              IoError("", prefix + "it has an .npy version that is not known")
                  .expected("1.0, 2.0 or 3.0")
                  .got(std::to_string(major) + "." + std::to_string(minor)));
  const uint64_t start = major == 1 ? 10 : 12;
  ARETE_CHECK(size >= start, IoError("", prefix + "it is truncated within the header"));
  const uint64_t length = major == 1 ? load_le<uint16_t>(bytes + 8) : load_le<uint32_t>(bytes + 8);
  ARETE_CHECK(length <= kMaxHeader,
              IoError("", prefix + "its header is too long")
                  .expected("at most " + std::to_string(kMaxHeader) + " bytes")
                  .got(std::to_string(length) + " bytes"));
  ARETE_CHECK(length <= size - start,
              IoError("", prefix + "it is truncated within the header")
                  .expected(std::to_string(start + length) + " bytes or more")
                  .got(std::to_string(size) + " bytes"));
  NpyHeader header = LiteralParser(std::string_view(bytes + start, length), prefix).parse();
  header.data_offset = start + length;
  bool ok = false;
  header.data_bytes = dense_bytes(header.shape, dtype_code_size(header.dtype), &ok);
  ARETE_CHECK(ok, IoError("", prefix + "its shape is too large: " + shape_text(header.shape)));
  const uint64_t available = size - header.data_offset;
  const std::string expected = std::to_string(header.data_bytes) + " bytes of data for " +
                               header.dtype + " " + shape_text(header.shape);
  ARETE_CHECK(available >= header.data_bytes, IoError("", prefix + "it is truncated")
                                                  .expected(expected)
                                                  .got(std::to_string(available) + " bytes")
                                                  .hint("get or write the file again"));
  ARETE_CHECK(available == header.data_bytes,
              IoError("", prefix + "there are bytes after the array")
                  .expected(expected)
                  .got(std::to_string(available) + " bytes")
                  .hint("to keep several arrays in one file, write an .npz"));
  return header;
}

std::string write_npy_header(std::string_view dtype, std::span<const int64_t> shape,
                             bool fortran_order) {
  std::string descr;
  for (const Descr& d : kDescrs) {
    if (d.code == dtype) {
      descr = (dtype_code_size(dtype) == 1 ? "|" : "<");
      descr += d.numpy;
    }
  }
  ARETE_CHECK(!descr.empty(),
              ValueError("save_npy", "NumPy has no dtype " + quote_text(dtype, 40))
                  .hint("convert the tensor to float32 first, or save it as safetensors"));
  bool ok = false;
  dense_bytes(shape, dtype_code_size(dtype), &ok);
  ARETE_CHECK(ok && shape.size() <= kMaxFileDims,
              ValueError("save_npy", "the shape cannot be written: " + shape_text(shape)));
  std::string dict = "{'descr': '" + descr + "', 'fortran_order': ";
  dict += fortran_order ? "True" : "False";
  dict += ", 'shape': (";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i) dict += ", ";
    dict += std::to_string(shape[i]);
  }
  dict += shape.size() == 1 ? ",), }" : "), }";
  // At most 64 dimensions of 20 characters: version 1.0 always suffices.
  const size_t used = 10 + dict.size() + 1;
  dict.append((64 - used % 64) % 64, ' ');
  dict += '\n';
  std::string out(kMagic);
  out += '\x01';
  out += '\0';
  char length[2];
  store_le<uint16_t>(static_cast<uint16_t>(dict.size()), length);
  out.append(length, 2);
  return out + dict;
}

}  // namespace arete::io
