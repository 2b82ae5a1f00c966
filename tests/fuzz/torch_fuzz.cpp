// Any bytes must give a description whose tensors lie in their storages and whose storages lie in
// the file, or an arete::Error.
#include <cstdint>
#include <cstdlib>

#include "arete/base/error.h"
#include "arete/io/dtype_code.h"
#include "arete/io/torch_format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace arete::io;
  TorchFormat f;
  try {
    f = parse_torch(std::as_bytes(std::span(data, size)));
  } catch (const arete::Error&) {
    return 0;
  }
  if (f.root >= f.nodes.size()) std::abort();
  for (const TorchNode& n : f.nodes) {
    for (const size_t i : n.items)
      if (i >= f.nodes.size()) std::abort();
    if (n.kind == TorchNode::Kind::dict && n.items.size() % 2 != 0) std::abort();
    if (n.kind == TorchNode::Kind::tensor && size_t(n.integer) >= f.tensors.size()) std::abort();
  }
  for (const TorchStorage& s : f.storages)
    if (s.offset > size || s.bytes > size - s.offset) std::abort();
  for (const TorchTensor& t : f.tensors) {
    const uint64_t element = dtype_code_size(t.dtype);
    if (element == 0 || t.storage >= f.storages.size() || t.sizes.size() != t.strides.size())
      std::abort();
    __int128 last = t.offset;
    bool empty = false;
    for (size_t d = 0; d < t.sizes.size(); ++d) {
      empty = empty || t.sizes[d] == 0;
      last += __int128(t.sizes[d] - 1) * t.strides[d];
    }
    if (!empty && (t.offset < 0 || (last + 1) * __int128(element) > f.storages[t.storage].bytes))
      std::abort();
  }
  return 0;
}
