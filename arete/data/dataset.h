// Collections of examples.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "arete/core/generator.h"
#include "arete/core/tensor.h"

namespace arete::data {

/// The tensors of one example, e.g. image and label.
using Example = std::vector<Tensor>;

/// The tensors of several examples, stacked along a new first dimension.
class Batch : public std::vector<Tensor> {
 public:
  using std::vector<Tensor>::vector;
  Batch(std::vector<Tensor> tensors) : std::vector<Tensor>(std::move(tensors)) {}
  /// The first and second tensor, as most data sets have them.
  const Tensor& input() const { return at(0); }
  const Tensor& target() const { return at(1); }
};

/// Random access to examples. get() is called from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  /// Example `index` in [0, size()); IndexError outside.
  virtual Example get(int64_t index) const = 0;
  /// Several examples stacked; data sets that hold tensors override it with something faster.
  virtual Batch get_batch(IntList indices) const;
  /// True if get() takes long and draws no random numbers: a loader's workers then share the
  /// examples of a batch.
  virtual bool is_slow() const { return false; }
};
using DatasetPtr = std::shared_ptr<const Dataset>;

/// Changes one example (augmentation). Draws from the generator only: then what a loader gives does
/// not depend on the number of its workers.
using Transform = std::function<Example(Example, Generator&)>;

/// Stacks examples tensor by tensor. ValueError if their numbers of tensors or sizes differ.
Batch collate(const std::vector<Example>& examples);

/// make(0) to make(n - 1), called in this order, stacked as above; each goes to its place as soon
/// as it is made, so that a batch of pictures is copied once and while it is in the cache.
/// `pinned`: to page-locked memory, for which there must be a GPU.
Batch collate(int64_t n, const std::function<Example(int64_t)>& make, bool pinned = false);

/// Rows of tensors with equal first sizes (ValueError otherwise).
class TensorDataset final : public Dataset {
 public:
  explicit TensorDataset(std::vector<Tensor> tensors);
  int64_t size() const override { return tensors_[0].size(0); }
  Example get(int64_t index) const override;
  Batch get_batch(IntList indices) const override;

 private:
  std::vector<Tensor> tensors_;
};

/// Some examples of another data set, in the order given.
class Subset final : public Dataset {
 public:
  Subset(DatasetPtr base, std::vector<int64_t> indices);
  int64_t size() const override { return int64_t(indices_.size()); }
  Example get(int64_t index) const override;
  Batch get_batch(IntList indices) const override;
  bool is_slow() const override { return base_->is_slow(); }

 private:
  DatasetPtr base_;
  std::vector<int64_t> indices_;
};

/// Data sets one after another.
class ConcatDataset final : public Dataset {
 public:
  explicit ConcatDataset(std::vector<DatasetPtr> parts);
  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  Example get(int64_t index) const override;
  bool is_slow() const override;

 private:
  std::vector<DatasetPtr> parts_;
  std::vector<int64_t> ends_;
};

/// Splits at random (seeded) into parts of the given lengths, which must add up to the size. The
/// parts are those of Python's random_split with a generator of that seed.
std::vector<DatasetPtr> random_split(const DatasetPtr& dataset, IntList lengths, uint64_t seed = 0);

/// Images of the MNIST family in IDX files, plain or .gz, kept as bytes. Examples are an f32 image
/// (1, 28, 28) with values in [0, 1], or normalised to (value - mean) / std, and an i64 label.
class MNIST : public Dataset {
 public:
  /// `folder` holds train-images-idx3-ubyte[.gz] and so on. IoError names the file that is
  /// missing, damaged or not what its name says (also labels out of 0..9 and a different number of
  /// images and labels).
  MNIST(const std::string& folder, bool train, double mean = 0, double std = 1);
  int64_t size() const override { return count_; }
  Example get(int64_t index) const override;
  Batch get_batch(IntList indices) const override;
  /// (N, 28, 28) u8 and (N) i64.
  const Tensor& images() const { return images_; }
  const Tensor& labels() const { return labels_; }
  static const std::vector<std::string>& class_names();

 private:
  Tensor images_, labels_;
  int64_t count_ = 0;
  std::vector<float> value_of_;  // for each byte
};

/// The same files with other pictures.
class FashionMNIST final : public MNIST {
 public:
  using MNIST::MNIST;
  static const std::vector<std::string>& class_names();
  /// Where the images are found: `folder` if not empty, else ARETE_DATA/fashion-mnist, the Debian
  /// package's folder, or the user's cache. IoError says where it looked and how to get them.
  static std::string find_folder(const std::string& folder = "");
};

}  // namespace arete::data
