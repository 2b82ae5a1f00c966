// Any bytes must give a header that describes the rest of the file exactly, or an arete::Error.
#include <cstdint>
#include <cstdlib>

#include "arete/base/error.h"
#include "arete/io/dtype_code.h"
#include "arete/io/npy_format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace arete::io;
  NpyHeader header;
  try {
    header = parse_npy_header(std::as_bytes(std::span(data, size)));
  } catch (const arete::Error&) {
    return 0;
  }
  bool ok = false;
  if (dense_bytes(header.shape, dtype_code_size(header.dtype), &ok) != header.data_bytes || !ok)
    std::abort();
  if (header.data_offset + header.data_bytes != size) std::abort();
  std::string again = write_npy_header(header.dtype, header.shape, header.fortran_order);
  if (again.size() % 64 != 0) std::abort();
  again.append(header.data_bytes, '\0');
  const NpyHeader reread = parse_npy_header(std::as_bytes(std::span(again.data(), again.size())));
  if (reread.shape != header.shape || reread.dtype != header.dtype ||
      reread.fortran_order != header.fortran_order)
    std::abort();
  return 0;
}
