#include "arete/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "arete/base/error.h"
#include "arete/data/numbers_internal.h"

namespace arete::data {

namespace {

void check_count(const char* who, int64_t n) {
  ARETE_CHECK(
      n >= 0,
      ValueError(who, "the number of examples must not be negative").got(std::to_string(n)));
}

// The numbers of one epoch: it takes the upper half of the counter.
Numbers numbers_of(uint64_t seed, int64_t epoch) { return {seed, uint64_t(epoch) << 32}; }

void shuffle(std::vector<int64_t>& v, uint64_t seed, int64_t epoch) {
  Numbers numbers = numbers_of(seed, epoch);
  for (size_t i = v.size(); i > 1; --i) std::swap(v[i - 1], v[size_t(numbers.below(int64_t(i)))]);
}

}  // namespace

std::vector<int64_t> permutation(int64_t n, uint64_t seed, int64_t epoch) {
  check_count("permutation", n);
  std::vector<int64_t> v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), int64_t(0));
  shuffle(v, seed, epoch);
  return v;
}

std::vector<int64_t> SequentialSampler::order(int64_t) const {
  check_count("SequentialSampler", n_);
  std::vector<int64_t> v(static_cast<size_t>(n_));
  std::iota(v.begin(), v.end(), int64_t(0));
  return v;
}

RandomSampler::RandomSampler(int64_t n, uint64_t seed, bool replacement, int64_t samples)
    : n_(n), samples_(samples > 0 ? samples : n), seed_(seed), replacement_(replacement) {
  check_count("RandomSampler", n);
  check_count("RandomSampler", samples);
  ARETE_CHECK(n > 0 || samples == 0,
              ValueError("RandomSampler", "there is nothing to draw from an empty data set"));
  ARETE_CHECK(replacement || samples <= n,
              ValueError("RandomSampler", "more samples than examples need replacement=true"));
}

std::vector<int64_t> RandomSampler::order(int64_t epoch) const {
  if (!replacement_) {
    std::vector<int64_t> v = permutation(n_, seed_, epoch);
    v.resize(static_cast<size_t>(samples_));
    return v;
  }
  Numbers numbers = numbers_of(seed_, epoch);
  std::vector<int64_t> v;
  for (int64_t i = 0; i < samples_; ++i) v.push_back(numbers.below(n_));
  return v;
}

std::vector<int64_t> SubsetRandomSampler::order(int64_t epoch) const {
  std::vector<int64_t> v = indices_;
  shuffle(v, seed_, epoch);
  return v;
}

WeightedRandomSampler::WeightedRandomSampler(std::vector<double> weights, int64_t samples,
                                             uint64_t seed)
    : samples_(samples), seed_(seed) {
  check_count("WeightedRandomSampler", samples);
  double total = 0;
  for (double w : weights) {
    ARETE_CHECK(w >= 0 && std::isfinite(w),
                ValueError("WeightedRandomSampler", "weights must be finite and not negative"));
    cumulative_.push_back(total += w);
  }
  ARETE_CHECK(std::isfinite(total),
              ValueError("WeightedRandomSampler", "the sum of the weights must be finite"));
  ARETE_CHECK(total > 0,
              ValueError("WeightedRandomSampler", "at least one weight must be positive"));
}

std::vector<int64_t> WeightedRandomSampler::order(int64_t epoch) const {
  Numbers numbers = numbers_of(seed_, epoch);
  std::vector<int64_t> v;
  for (int64_t i = 0; i < samples_; ++i) {
    const double x = numbers.unit() * cumulative_.back();
    // The last bound is left out: rounding may make x reach it.
    v.push_back(std::upper_bound(cumulative_.begin(), cumulative_.end() - 1, x) -
                cumulative_.begin());
  }
  return v;
}

DistributedSampler::DistributedSampler(int64_t n, int replicas, int rank, bool shuffle_in,
                                       uint64_t seed, bool drop_last)
    : n_(n),
      replicas_(replicas),
      rank_(rank),
      shuffle_(shuffle_in),
      drop_last_(drop_last),
      seed_(seed) {
  check_count("DistributedSampler", n);
  ARETE_CHECK(replicas > 0 && rank >= 0 && rank < replicas,
              ValueError("DistributedSampler", "Invalid rank " + std::to_string(rank) +
                                                   ", rank should be in the interval [0, " +
                                                   std::to_string(replicas - 1) + "]"));
}

int64_t DistributedSampler::size() const {
  return drop_last_ ? n_ / replicas_ : (n_ + replicas_ - 1) / replicas_;
}

std::vector<int64_t> DistributedSampler::order(int64_t epoch) const {
  const std::vector<int64_t> all =
      shuffle_ ? permutation(n_, seed_, epoch) : SequentialSampler(n_).order(epoch);
  std::vector<int64_t> mine;
  for (int64_t i = 0; i < size() && n_ > 0; ++i)
    mine.push_back(all[size_t((i * replicas_ + rank_) % n_)]);
  return mine;
}

}  // namespace arete::data
