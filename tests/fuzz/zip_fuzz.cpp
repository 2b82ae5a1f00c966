// Any bytes must give entries that lie inside the file, apart from each other, or an arete::Error.
#include <cstdint>
#include <cstdlib>

#include "arete/base/error.h"
#include "arete/io/npy_format.h"
#include "arete/io/zip.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace arete::io;
  ZipLimits limits;
  limits.max_total_size = 16 << 20;
  try {
    const ZipReader zip(std::as_bytes(std::span(data, size)), "fuzz", limits);
    uint64_t packed = 0;
    for (const ZipEntry& entry : zip.entries()) {
      packed += entry.compressed_size;
      if (entry.name.empty() || entry.name[0] == '/') std::abort();
      if (zip.find(entry.name) != &entry) std::abort();
      try {
        const auto bytes = zip.read(entry);
        if (bytes.size() != entry.size) std::abort();
        parse_npy_header(bytes, entry.name);
      } catch (const arete::Error&) {
      }
    }
    if (packed > size) std::abort();
  } catch (const arete::Error&) {
  }
  return 0;
}
