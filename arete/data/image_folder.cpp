#include "arete/data/image_folder.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "arete/ops/creation.h"

namespace arete::data {

namespace {

namespace fs = std::filesystem;

IoError folder_error(const std::string& root, const std::string& why) {
  return IoError("ImageFolder", why).argument(root);
}

bool is_picture(const fs::path& path, const std::vector<std::string>& extensions) {
  std::string end = path.extension().string();
  std::transform(end.begin(), end.end(), end.begin(),
                 [](unsigned char c) { return char(std::tolower(c)); });
  return std::find(extensions.begin(), extensions.end(), end) != extensions.end();
}

}  // namespace

ImageFolder::ImageFolder(const std::string& root, ImageFolderOptions options)
    : options_(std::move(options)) {
  try {
    for (const fs::directory_entry& e : fs::directory_iterator(root))
      if (e.is_directory() && !e.is_symlink()) classes_.push_back(e.path().filename().string());
    std::sort(classes_.begin(), classes_.end());
    ARETE_CHECK(!classes_.empty(), folder_error(root, "Couldn't find any class folder")
                                       .hint("pictures are expected as FOLDER/class/name.jpg"));
    for (size_t label = 0; label < classes_.size(); ++label) {
      const fs::path folder = fs::path(root) / classes_[label];
      std::vector<std::string> paths;
      for (const fs::directory_entry& e : fs::recursive_directory_iterator(folder))
        if (e.is_regular_file() && is_picture(e.path(), options_.extensions))
          paths.push_back(e.path().string());
      std::string ends;
      for (const std::string& s : options_.extensions) ends += (ends.empty() ? "" : ", ") + s;
      ARETE_CHECK(
          !paths.empty(),
          folder_error(folder.string(), "Found no valid file for the class " + classes_[label])
              .expected("files that end with " + ends));
      std::sort(paths.begin(), paths.end());
      for (std::string& path : paths) samples_.emplace_back(std::move(path), int64_t(label));
    }
  } catch (const fs::filesystem_error& e) {
    throw folder_error(root, "the folder cannot be read: " + e.code().message());
  }
}

Example ImageFolder::get(int64_t index) const {
  ARETE_CHECK(index >= 0 && index < size(),
              IndexError("ImageFolder", "index " + std::to_string(index) + " is out of range for " +
                                            std::to_string(size()) + " examples"));
  const auto& [path, label] = samples_[size_t(index)];
  return {io::read_image(path, options_.decode), full({}, Scalar(label), TensorOptions(kInt64))};
}

}  // namespace arete::data
