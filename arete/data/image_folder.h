// Pictures in folders, a folder for each class.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "arete/data/dataset.h"
#include "arete/io/image.h"

namespace arete::data {

struct ImageFolderOptions {
  io::DecodeOptions decode{.mode = io::ImageMode::rgb};
  /// Ends of names that count as pictures (small letters).
  std::vector<std::string> extensions{".jpg", ".jpeg", ".png"};
};

/// root/class/**/picture.jpg: examples are a picture of bytes, u8 (C, H, W), and an i64 label, the
/// class's place in the sorted list of folders. Pictures are decoded when asked for; a damaged one
/// is an IoError with its path. Links to folders are not followed.
class ImageFolder final : public Dataset {
 public:
  /// IoError if the folder cannot be read, holds no class folders or a class without pictures.
  explicit ImageFolder(const std::string& root, ImageFolderOptions options = {});
  int64_t size() const override { return int64_t(samples_.size()); }
  Example get(int64_t index) const override;
  bool is_slow() const override { return true; }

  const std::vector<std::string>& classes() const { return classes_; }
  /// Paths and labels, sorted by class and path.
  const std::vector<std::pair<std::string, int64_t>>& samples() const { return samples_; }

 private:
  ImageFolderOptions options_;
  std::vector<std::string> classes_;
  std::vector<std::pair<std::string, int64_t>> samples_;
};

}  // namespace arete::data
