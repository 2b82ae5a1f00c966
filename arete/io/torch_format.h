// The structure of files that PyTorch's torch.save writes, without their tensors' memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace arete::io {

/// Bytes of a file, or their unpacked copy, that tensors lie in.
struct TorchStorage {
  std::string key;
  uint64_t offset = 0;  ///< in the file
  uint64_t bytes = 0;
};

/// A tensor over a storage: sizes, strides and offset are in elements, and all of them lie in it.
struct TorchTensor {
  size_t storage = 0;
  std::string dtype;  ///< a code of dtype_code.h
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
  bool requires_grad = false;
};

/// A value of the file. Values are numbered: one may stand in several containers.
struct TorchNode {
  enum class Kind : uint8_t { none, boolean, integer, real, text, tensor, list, dict };
  Kind kind = Kind::none;
  int64_t integer = 0;  ///< boolean, integer; of a tensor its number
  double real = 0;
  std::string text;           ///< texts and bytes
  std::vector<size_t> items;  ///< elements of lists, tuples and sets; keys and values of dicts
};

struct TorchFormat {
  std::vector<TorchNode> nodes;
  std::vector<TorchTensor> tensors;
  std::vector<TorchStorage> storages;
  size_t root = 0;
};

/// Reads a zip or legacy file that may be hostile. IoError says what is wrong with it, or names the
/// first class or function that is neither a tensor's nor a container's: none is ever called.
TorchFormat parse_torch(std::span<const std::byte> file, std::string_view file_name = "torch file");

}  // namespace arete::io
