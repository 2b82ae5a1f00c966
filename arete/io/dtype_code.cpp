#include "arete/io/dtype_code.h"

#include "arete/io/checked.h"

namespace arete::io {
namespace {

struct ElementSize {
  std::string_view name;
  uint64_t size;
};

constexpr ElementSize kElementSizes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},   {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I16", 2},
    {"U16", 2},  {"F16", 2}, {"BF16", 2}, {"I32", 4},     {"U32", 4},     {"F32", 4},
    {"I64", 8},  {"U64", 8}, {"F64", 8},  {"C64", 8},     {"C128", 16},
};

}  // namespace

uint64_t dtype_code_size(std::string_view code) {
  for (const ElementSize& c : kElementSizes) {
    if (c.name == code) return c.size;
  }
  return 0;
}

uint64_t dense_bytes(std::span<const int64_t> shape, uint64_t item_size, bool* ok) {
  // An empty array may have other dimensions of any size, but strides are made from the product of
  // the others, so that has to fit too.
  uint64_t product = item_size;
  bool empty = false;
  *ok = false;
  for (const int64_t dim : shape) {
    if (dim < 0) return 0;
    if (dim == 0) {
      empty = true;
      continue;
    }
    if (!checked_mul(product, static_cast<uint64_t>(dim), &product)) return 0;
    if (product > static_cast<uint64_t>(INT64_MAX)) return 0;
  }
  *ok = true;
  return empty ? 0 : product;
}

}  // namespace arete::io
