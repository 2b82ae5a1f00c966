#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "arete/core/modes.h"
#include "arete/data/dataset.h"
#include "arete/io/idx.h"
#include "arete/ops/creation.h"

namespace arete::data {

namespace {

namespace fs = std::filesystem;

// The file, packed or not.
std::string find_file(const std::string& folder, const std::string& name) {
  std::error_code ignored;
  for (const char* suffix : {".gz", ""}) {
    const std::string path = folder + "/" + name + suffix;
    if (fs::exists(path, ignored)) return path;
  }
  throw IoError("MNIST", "the data set file " + name + "[.gz] is missing")
      .argument(folder)
      .hint(
          "on Debian: apt-get install dataset-fashion-mnist; elsewhere put the four files of the "
          "data set there, or name their folder with --data");
}

}  // namespace

MNIST::MNIST(const std::string& folder, bool train, double mean, double std) {
  ARETE_CHECK(std > 0, ValueError("MNIST", "std must be positive").got(Scalar(std).to_string()));
  const std::string prefix = train ? "train" : "t10k";
  const io::IdxArray images =
      io::read_idx(find_file(folder, prefix + "-images-idx3-ubyte"),
                   {io::kIdxUint8, {-1, 28, 28}, "images of 28 x 28 bytes"}, 1u << 28);
  const std::string labels_path = find_file(folder, prefix + "-labels-idx1-ubyte");
  const io::IdxArray labels =
      io::read_idx(labels_path, {io::kIdxUint8, {-1}, "one label byte per image"}, 1u << 28);
  ARETE_CHECK(images.shape[0] == labels.shape[0],
              IoError("MNIST", "the numbers of images and labels differ")
                  .argument(folder)
                  .expected(std::to_string(images.shape[0]) + " labels")
                  .got(std::to_string(labels.shape[0]))
                  .hint("one of the files belongs to another split"));
  count_ = images.shape[0];
  images_ = empty({count_, 28, 28}, kUInt8);
  labels_ = empty({count_}, kInt64);
  if (count_ > 0) std::memcpy(images_.data_ptr(), images.bytes.data(), images.bytes.size());
  for (int64_t i = 0; i < count_; ++i) {
    const uint8_t label = labels.bytes[size_t(i)];
    ARETE_CHECK(label < 10, IoError("MNIST", "label " + std::to_string(label) + " of image " +
                                                 std::to_string(i) + " is not in 0..9")
                                .argument(labels_path));
    labels_.data<int64_t>()[i] = label;
  }
  for (int v = 0; v < 256; ++v) value_of_.push_back(float((v / 255.0 - mean) / std));
}

Batch MNIST::get_batch(IntList indices) const {
  const int64_t n = int64_t(indices.size());
  Tensor x = empty({n, 1, 28, 28}, kFloat32), y = empty({n}, kInt64);
  float* out = x.data<float>();
  const uint8_t* bytes = images_.data<uint8_t>();
  const int64_t* labels = labels_.data<int64_t>();
  for (int64_t k = 0; k < n; ++k) {
    const int64_t i = indices[size_t(k)];
    ARETE_CHECK(i >= 0 && i < count_,
                IndexError("MNIST::get", "index " + std::to_string(i) + " is out of range for " +
                                             std::to_string(count_) + " examples"));
    const uint8_t* in = bytes + i * 784;
    for (int p = 0; p < 784; ++p) *out++ = value_of_[in[p]];
    y.data<int64_t>()[k] = labels[i];
  }
  return {x, y};
}

Example MNIST::get(int64_t index) const {
  const Batch b = get_batch({index});
  return {b[0].select(0, 0), b[1].select(0, 0)};
}

const std::vector<std::string>& MNIST::class_names() {
  static const std::vector<std::string> names{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
  return names;
}

const std::vector<std::string>& FashionMNIST::class_names() {
  static const std::vector<std::string> names{"T-shirt/top", "Trouser",   "Pullover", "Dress",
                                              "Coat",        "Sandal",    "Shirt",    "Sneaker",
                                              "Bag",         "Ankle boot"};
  return names;
}

std::string FashionMNIST::find_folder(const std::string& folder) {
  std::error_code ignored;
  if (!folder.empty()) {
    ARETE_CHECK(fs::is_directory(folder, ignored),
                IoError("FashionMNIST", "the data folder does not exist: " + folder)
                    .hint("name the folder that holds train-images-idx3-ubyte.gz"));
    return folder;
  }
  std::vector<std::string> places;
  if (const char* root = std::getenv("ARETE_DATA"))
    places.push_back(std::string(root) + "/fashion-mnist");
  places.push_back("/usr/share/datasets/fashion-mnist");
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache)
    places.push_back(std::string(cache) + "/arete/fashion-mnist");
  else if (const char* home = std::getenv("HOME"))
    places.push_back(std::string(home) + "/.cache/arete/fashion-mnist");
  std::string looked;
  for (const std::string& p : places) {
    if (fs::is_directory(p, ignored)) return p;
    looked += (looked.empty() ? "" : ", ") + p;
  }
  throw IoError("FashionMNIST", "the Fashion-MNIST images were not found")
      .expected("a folder with train-images-idx3-ubyte.gz in one of: " + looked)
      .hint(
          "./dev demo fetches them; on Debian: apt-get install dataset-fashion-mnist; or name "
          "their folder with --data");
}

}  // namespace arete::data
