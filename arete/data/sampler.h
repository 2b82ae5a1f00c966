// The order in which a loader visits a data set. What is random in it an epoch draws from the
// loader's generator: with the generator's state at its beginning a run resumes in its middle.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "arete/core/generator.h"

namespace arete::data {

/// Note [Random numbers of an epoch]
/// An epoch begins with one number of 63 bits from the generator of its loader (the program's
/// default one, unless the loader has its own): the epoch's seed, from which each batch has a
/// stream of its own (stream_of_batch()). A sampler with a random order draws a second one, the
/// seed of a new generator for that order. So an epoch moves the loader's generator by one or two
/// blocks, whatever is drawn in it and whoever makes its batches, and a loop can be resumed with
/// the generator's state at the epoch's beginning and the number of batches that it got. Python's
/// loader and samplers do the same with the same functions.

/// Such a number. Takes one block of the generator.
uint64_t random_seed(Generator& generator);

/// A uniformly random order of 0..n-1: randperm() in the calling thread alone, because when an
/// epoch begins the workers of the last one may still have the processors.
std::vector<int64_t> permutation(int64_t n, Generator& generator);

/// Says which examples an epoch visits, in which order.
class Sampler {
 public:
  virtual ~Sampler() = default;
  /// The epoch's indices; a function of the epoch's number and the generator's state alone.
  virtual std::vector<int64_t> order(int64_t epoch, Generator& generator) const = 0;
  /// Length of every order.
  virtual int64_t size() const = 0;
};
using SamplerPtr = std::shared_ptr<const Sampler>;

/// 0, 1, ..., n-1.
class SequentialSampler final : public Sampler {
 public:
  explicit SequentialSampler(int64_t n) : n_(n) {}
  std::vector<int64_t> order(int64_t epoch, Generator& generator) const override;
  int64_t size() const override { return n_; }

 private:
  int64_t n_;
};

/// A new permutation each epoch, or its first `samples`; with replacement: `samples` independent
/// draws.
class RandomSampler final : public Sampler {
 public:
  explicit RandomSampler(int64_t n, bool replacement = false, int64_t samples = 0);
  std::vector<int64_t> order(int64_t epoch, Generator& generator) const override;
  int64_t size() const override { return samples_; }

 private:
  int64_t n_, samples_;
  bool replacement_;
};

/// A permutation of the given indices.
class SubsetRandomSampler final : public Sampler {
 public:
  explicit SubsetRandomSampler(std::vector<int64_t> indices) : indices_(std::move(indices)) {}
  std::vector<int64_t> order(int64_t epoch, Generator& generator) const override;
  int64_t size() const override { return int64_t(indices_.size()); }

 private:
  std::vector<int64_t> indices_;
};

/// `samples` draws with replacement, index i in proportion to weights[i] >= 0 (ValueError if any is
/// negative or not finite, or all are 0).
class WeightedRandomSampler final : public Sampler {
 public:
  WeightedRandomSampler(const std::vector<double>& weights, int64_t samples);
  std::vector<int64_t> order(int64_t epoch, Generator& generator) const override;
  int64_t size() const override { return samples_; }

 private:
  std::vector<double> cumulative_;
  int64_t samples_;
};

/// One of `replicas` equal shares of an epoch, for data-parallel processes: of a permutation that
/// seed and epoch decide, so that all have the same one, or of 0..n-1. Without drop_last the order
/// is extended from its start to a multiple of replicas.
class DistributedSampler final : public Sampler {
 public:
  DistributedSampler(int64_t n, int replicas, int rank, bool shuffle = true, uint64_t seed = 0,
                     bool drop_last = false);
  std::vector<int64_t> order(int64_t epoch, Generator& generator) const override;
  int64_t size() const override;

 private:
  int64_t n_;
  int replicas_, rank_;
  bool shuffle_, drop_last_;
  uint64_t seed_;
};

}  // namespace arete::data
