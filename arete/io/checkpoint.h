// Checkpoints that many processes write: a folder of safetensors files, which hold pieces of
// tensors, and an index that says where each piece belongs.
//
// Note [Folders of checkpoints]
// Files have names that no other save has used; the index is written last, by renaming, so whoever
// is killed while he writes leaves the checkpoint that was there before. The index is JSON:
//   {"format": "arete.checkpoint", "version": 1, "files": {NAME: BYTES}, "objects": TEXT,
//    "tensors": {NAME: {"dtype": "F32", "shape": [..],
//                       "pieces": [{"file": NAME, "key": KEY, "start": [..], "shape": [..],
//                                   "crc32c": NUMBER}]}}}
// The pieces of a tensor cover it, each element once; those of dtype C128, which safetensors files
// do not have, are of F64 with a last dimension of 2, which "shape" does not tell. "objects" is
// what is no tensor, as the writer has put it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "arete/core/tensor.h"
#include "arete/io/tensor_io.h"

namespace arete::io {

inline constexpr const char* kCheckpointIndex = "index.json";

struct CheckpointPiece {
  std::string file, key;
  std::vector<int64_t> start, shape;
  uint32_t crc = 0;  ///< of its bytes, as crc32c() has it
};
struct CheckpointTensor {
  std::string dtype;  ///< a dtype code
  std::vector<int64_t> shape;
  std::vector<CheckpointPiece> pieces;
};

/// A folder that may be hostile: IoError names what is wrong with its index or a file.
class Checkpoint {
 public:
  explicit Checkpoint(std::string folder);
  ~Checkpoint();
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  const std::map<std::string, CheckpointTensor>& tensors() const { return tensors_; }
  const std::map<std::string, uint64_t>& files() const { return files_; }
  const std::string& objects() const { return objects_; }
  /// Those elements of a tensor, in host memory; only pieces that have some are looked at.
  /// ValueError for an unknown name and for elements that it has not.
  Tensor read(const std::string& name, IntList start, IntList sizes) const;
  /// All of it.
  Tensor read(const std::string& name) const;
  /// Reads everything; IoError for the first piece whose bytes are not those that were written.
  void verify() const;

 private:
  class File;
  const File& file(const std::string& name) const;
  std::span<const std::byte> bytes_of(const CheckpointTensor& tensor,
                                      const CheckpointPiece& piece) const;
  std::string folder_;
  std::map<std::string, uint64_t> files_;
  std::string objects_;
  std::map<std::string, CheckpointTensor> tensors_;
  mutable std::map<std::string, std::unique_ptr<File>> open_;
};

/// Writes a file of pieces under their keys, durably, and gives the crc of each. Keys as those of
/// save_safetensors().
std::vector<uint32_t> write_pieces(const std::string& path, const NamedTensors& pieces);
/// Makes the index of a folder, which replaces the one that is there.
void write_checkpoint_index(const std::string& folder,
                            const std::map<std::string, CheckpointTensor>& tensors,
                            const std::map<std::string, uint64_t>& files,
                            const std::string& objects);

/// Writes the tensors of a checkpoint whose names begin with `prefix`, without it, as Hugging
/// Face's libraries read them: OUT/model.safetensors, or files of at most `most_bytes` (unless one
/// tensor is larger) with their index. Gives the number of tensors. ValueError if there are none.
int64_t merge_checkpoint(const std::string& folder, const std::string& out,
                         const std::string& prefix, uint64_t most_bytes);
/// The other way: of a safetensors file, or a folder of such, a checkpoint of `pieces` files, each
/// of which has as many rows of each tensor, under names that begin with `prefix`.
int64_t split_checkpoint(const std::string& source, const std::string& out,
                         const std::string& prefix, int64_t pieces);

}  // namespace arete::io
