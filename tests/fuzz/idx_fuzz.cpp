// Any bytes, packed or plain, must give an array whose size fits its shape, or an arete::Error.
#include <cstdint>
#include <cstdlib>

#include "arete/base/error.h"
#include "arete/base/gzip.h"
#include "arete/io/idx.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace arete::io;
  const auto bytes = std::as_bytes(std::span(data, size));
  constexpr uint64_t kMaxBytes = 4 << 20;
  try {
    const IdxArray array = parse_idx(bytes, {}, "fuzz", kMaxBytes);
    uint64_t elements = 1;
    for (const int64_t dim : array.shape) elements *= static_cast<uint64_t>(dim);
    if (array.bytes.size() > kMaxBytes) std::abort();
    if (elements == 0 ? !array.bytes.empty() : array.bytes.size() % elements != 0) std::abort();
  } catch (const arete::Error&) {
  }
  try {
    if (gunzip(bytes, kMaxBytes).size() > kMaxBytes) std::abort();
  } catch (const arete::Error&) {
  }
  return 0;
}
