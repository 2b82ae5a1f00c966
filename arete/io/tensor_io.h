// Tensors in files: safetensors, .npy and .npz.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arete/core/tensor.h"

namespace arete::io {

/// The code of a dtype in files (dtype_code.h).
std::string code_of(DType dtype);
/// TypeError, which names `what` has it, for one that Arete has not.
DType dtype_of_code(std::string_view code, const std::string& what);

/// Named tensors in a fixed order.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// What a safetensors file holds.
struct SafetensorsFile {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

/// Writes tensors of any dtype but complex128 (copied to the host, made contiguous; of tensors
/// that share memory each is written whole). The file appears complete or not at all. ValueError
/// for repeated names, IoError where the folder or the disk refuse.
void save_safetensors(const std::string& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata = {});
/// Reads a file that may be hostile: IoError names what is wrong with it. Tensors are CPU copies.
/// TypeError for dtypes that Arete has not (U16, U32, U64).
SafetensorsFile load_safetensors(const std::string& path);

/// The same of a file that lies in memory.
SafetensorsFile read_safetensors(std::span<const std::byte> bytes, const std::string& file_name);

/// What save_safetensors() writes, for files that hold such a file.
class SafetensorsImage {
 public:
  explicit SafetensorsImage(const NamedTensors& tensors,
                            const std::map<std::string, std::string>& metadata = {});
  /// One after another they are the file. They live as long as this object.
  std::vector<std::span<const std::byte>> parts() const;

 private:
  std::string header_;
  std::vector<Tensor> tensors_;  // on the host, in the order of the file
};

/// One array in NumPy's format. bfloat16 and f8 have no NumPy dtype (TypeError).
void save_npy(const std::string& path, const Tensor& t);
Tensor load_npy(const std::string& path);
/// Several arrays, uncompressed, as numpy.savez writes them; load_npz reads compressed ones too.
void save_npz(const std::string& path, const NamedTensors& tensors);
std::map<std::string, Tensor> load_npz(const std::string& path);

}  // namespace arete::io
