// Any bytes must give a header whose promises hold, or an arete::Error.
#include <cstdint>
#include <cstdlib>

#include "arete/base/error.h"
#include "arete/io/dtype_code.h"
#include "arete/io/safetensors_format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace arete::io;
  SafetensorsHeader header;
  try {
    header = parse_safetensors_header(std::as_bytes(std::span(data, size)));
  } catch (const arete::Error&) {
    return 0;
  }
  uint64_t covered = 0;
  for (const TensorEntry& e : header.entries) {
    bool ok = false;
    if (e.begin != covered || e.end < e.begin) std::abort();
    if (dense_bytes(e.shape, dtype_code_size(e.dtype), &ok) != e.end - e.begin || !ok) std::abort();
    covered = e.end;
  }
  if (header.data_offset + covered != size) std::abort();
  // What was read can be written, and reads the same.
  auto entries = header.entries;
  std::string again = write_safetensors_header(entries, header.metadata);
  if (again.size() % 8 != 0) std::abort();
  again.append(covered, '\0');
  const auto reread =
      parse_safetensors_header(std::as_bytes(std::span(again.data(), again.size())));
  if (reread.entries.size() != header.entries.size() || reread.metadata != header.metadata)
    std::abort();
  return 0;
}
