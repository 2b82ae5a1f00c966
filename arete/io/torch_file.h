// Files that PyTorch's torch.save writes (.pt, .pth), without Python.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arete/io/tensor_io.h"

namespace arete::io {

/// A value of such a file: None, a number, a text (also bytes, and the names of dtypes and
/// classes), a tensor, a list (also a tuple or a set) or a dictionary.
struct TorchValue {
  enum class Kind : uint8_t { none, boolean, integer, real, text, tensor, list, dict };
  Kind kind = Kind::none;
  int64_t integer = 0;  ///< boolean, integer
  double real = 0;      ///< also an integer that 64 bits do not hold
  std::string text;
  Tensor tensor;
  std::vector<TorchValue> items;                           ///< of a list
  std::vector<std::pair<TorchValue, TorchValue>> entries;  ///< of a dictionary, in its order

  TorchValue();  // not inline: whether it exists is part of what a pair of values is

  /// What a dictionary has under a text, or null.
  const TorchValue* find(std::string_view key) const;
};

/// Reads a zip file or a legacy one, which may be hostile: nothing in it is executed, and IoError
/// says what is wrong with it or names what it holds besides the above (a whole module, an
/// optimizer object; their state_dict() is what can be read). Tensors are on the CPU; those that
/// shared memory share it, and parameters require gradients. Attributes of dictionaries (the
/// versions that a state_dict() carries) are not part of the value. TypeError for dtypes that Arete
/// has not.
TorchValue load_torch(const std::string& path);
/// The same of a file that lies in memory.
TorchValue read_torch(std::span<const std::byte> bytes, const std::string& file_name);

/// The tensors of a value with their names: the keys and positions that lead to them, joined by
/// dots ("model.fc.weight"). What a state dictionary is loaded from.
NamedTensors named_tensors(const TorchValue& value);

}  // namespace arete::io
