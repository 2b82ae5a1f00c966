#include "arete/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "arete/base/error.h"
#include "arete/base/thread_pool.h"
#include "arete/data/numbers_internal.h"
#include "arete/ops/random.h"

namespace arete::data {

namespace {

void check_count(const char* who, int64_t n) {
  ARETE_CHECK(
      n >= 0,
      ValueError(who, "the number of examples must not be negative").got(std::to_string(n)));
}

std::vector<int64_t> iota(const char* who, int64_t n) {
  check_count(who, n);
  std::vector<int64_t> v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), int64_t(0));
  return v;
}

}  // namespace

uint64_t random_seed(Generator& generator) { return Numbers(generator).bits64() >> 1; }

std::vector<int64_t> permutation(int64_t n, Generator& generator) {
  const SerialRegion serial;
  return randperm(n, TensorOptions(kInt64, kCPU), &generator).to_vector<int64_t>();
}

std::vector<int64_t> SequentialSampler::order(int64_t, Generator&) const {
  return iota("SequentialSampler", n_);
}

RandomSampler::RandomSampler(int64_t n, bool replacement, int64_t samples)
    : n_(n), samples_(samples > 0 ? samples : n), replacement_(replacement) {
  check_count("RandomSampler", n);
  check_count("RandomSampler", samples);
  ARETE_CHECK(n > 0 || samples == 0,
              ValueError("RandomSampler", "there is nothing to draw from an empty data set"));
  ARETE_CHECK(replacement || samples <= n,
              ValueError("RandomSampler", "more samples than examples need replacement=true"));
}

std::vector<int64_t> RandomSampler::order(int64_t, Generator& generator) const {
  Generator own(random_seed(generator));
  if (!replacement_) {
    std::vector<int64_t> v = permutation(n_, own);
    v.resize(static_cast<size_t>(samples_));
    return v;
  }
  // Few at a time, as Python's sampler draws them, whose loops may be endless.
  constexpr int64_t kTogether = 32;
  std::vector<int64_t> v;
  while (int64_t(v.size()) < samples_) {
    const int64_t n = std::min(kTogether, samples_ - int64_t(v.size()));
    const Tensor drawn = randint(0, n_, {n}, TensorOptions(kInt64, kCPU), &own);
    v.insert(v.end(), drawn.data<int64_t>(), drawn.data<int64_t>() + n);
  }
  return v;
}

std::vector<int64_t> SubsetRandomSampler::order(int64_t, Generator& generator) const {
  Generator own(random_seed(generator));
  std::vector<int64_t> v = permutation(size(), own);
  for (int64_t& i : v) i = indices_[size_t(i)];
  return v;
}

WeightedRandomSampler::WeightedRandomSampler(const std::vector<double>& weights, int64_t samples)
    : samples_(samples) {
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

std::vector<int64_t> WeightedRandomSampler::order(int64_t, Generator& generator) const {
  Numbers numbers(random_seed(generator), 0);
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

std::vector<int64_t> DistributedSampler::order(int64_t epoch, Generator&) const {
  Generator shared(seed_ + uint64_t(epoch));
  const std::vector<int64_t> all =
      shuffle_ ? permutation(n_, shared) : iota("DistributedSampler", n_);
  std::vector<int64_t> mine;
  for (int64_t i = 0; i < size() && n_ > 0; ++i)
    mine.push_back(all[size_t((i * replicas_ + rank_) % n_)]);
  return mine;
}

}  // namespace arete::data
