// Tokens of a text in a file, mapped into memory.
#pragma once

#include <string>

#include "arete/base/file.h"
#include "arete/data/dataset.h"

namespace arete::data {

/// Windows over a file of unsigned 16- or 32-bit token numbers (little-endian, nothing else in it),
/// as tools for training language models write them. Example i is the tokens
/// [i * stride, i * stride + length) and the same shifted by one: two i64 tensors (length). The
/// file is mapped: it may be larger than memory, and opening it takes no time.
class TokenDataset final : public Dataset {
 public:
  /// stride 0: windows follow each other. ValueError for bytes_per_token other than 2 and 4 or a
  /// length below 1; IoError if the file is missing, cut off inside a token or too short for one
  /// window.
  TokenDataset(const std::string& path, int64_t length, int bytes_per_token = 2,
               int64_t stride = 0);
  int64_t size() const override { return count_; }
  /// Tokens in the file.
  int64_t tokens() const { return tokens_; }
  Example get(int64_t index) const override;
  Batch get_batch(IntList indices) const override;

 private:
  void read(int64_t index, int64_t* input, int64_t* target) const;
  io::MappedFile file_;
  int64_t length_, stride_, tokens_, count_;
  int bytes_;
};

}  // namespace arete::data
