// The order in which a loader visits a data set. An order is a function of the epoch's number
// alone, so that a run resumes in the middle of an epoch by making the same order again.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace arete::data {

/// A uniformly random order of 0..n-1, decided by seed and epoch (Fisher-Yates over Philox
/// numbers; the same on every machine).
std::vector<int64_t> permutation(int64_t n, uint64_t seed, int64_t epoch);

/// Says which examples an epoch visits, in which order.
class Sampler {
 public:
  virtual ~Sampler() = default;
  virtual std::vector<int64_t> order(int64_t epoch) const = 0;
  /// Length of every order.
  virtual int64_t size() const = 0;
};
using SamplerPtr = std::shared_ptr<const Sampler>;

/// 0, 1, ..., n-1.
class SequentialSampler final : public Sampler {
 public:
  explicit SequentialSampler(int64_t n) : n_(n) {}
  std::vector<int64_t> order(int64_t epoch) const override;
  int64_t size() const override { return n_; }

 private:
  int64_t n_;
};

/// A new permutation each epoch; with replacement: `samples` independent draws.
class RandomSampler final : public Sampler {
 public:
  RandomSampler(int64_t n, uint64_t seed, bool replacement = false, int64_t samples = 0);
  std::vector<int64_t> order(int64_t epoch) const override;
  int64_t size() const override { return samples_; }

 private:
  int64_t n_, samples_;
  uint64_t seed_;
  bool replacement_;
};

/// A permutation of the given indices.
class SubsetRandomSampler final : public Sampler {
 public:
  SubsetRandomSampler(std::vector<int64_t> indices, uint64_t seed)
      : indices_(std::move(indices)), seed_(seed) {}
  std::vector<int64_t> order(int64_t epoch) const override;
  int64_t size() const override { return int64_t(indices_.size()); }

 private:
  std::vector<int64_t> indices_;
  uint64_t seed_;
};

/// `samples` draws with replacement, index i in proportion to weights[i] >= 0 (ValueError if any is
/// negative or not finite, or all are 0).
class WeightedRandomSampler final : public Sampler {
 public:
  WeightedRandomSampler(std::vector<double> weights, int64_t samples, uint64_t seed);
  std::vector<int64_t> order(int64_t epoch) const override;
  int64_t size() const override { return samples_; }

 private:
  std::vector<double> cumulative_;
  int64_t samples_;
  uint64_t seed_;
};

/// One of `replicas` equal shares of an epoch (a permutation if shuffling), for data-parallel
/// processes. Without drop_last the order is extended from its start to a multiple of replicas.
class DistributedSampler final : public Sampler {
 public:
  DistributedSampler(int64_t n, int replicas, int rank, bool shuffle = true, uint64_t seed = 0,
                     bool drop_last = false);
  std::vector<int64_t> order(int64_t epoch) const override;
  int64_t size() const override;

 private:
  int64_t n_;
  int replicas_, rank_;
  bool shuffle_, drop_last_;
  uint64_t seed_;
};

}  // namespace arete::data
