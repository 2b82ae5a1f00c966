#include "arete/distributions/counts.h"

#include <cmath>

#include "arete/distributions/distribution_internal.h"
#include "arete/ops/activation.h"
#include "arete/ops/index.h"
#include "arete/ops/reduce.h"

namespace arete::distributions {

namespace {

// How many of `count` trials succeed, exactly, in f64. Large counts are split where one uniform
// number in the middle of the sorted ones is, a beta number: those on its one side are decided, the
// others are fewer trials of another probability. On a GPU each round waits for it.
Tensor successes(const Tensor& count, const Tensor& probs, const Shape& all) {
  constexpr int64_t kDirect = 32;
  Tensor n = count.to(kFloat64).expand(all), p = probs.to(kFloat64).expand(all);
  Tensor found = zeros_like(n.contiguous());
  while (n.numel() > 0 && n.max().item<double>() > kDirect) {
    const Tensor large = n > kDirect;
    const Tensor middle = where(large, ((n + 1) / 2).floor(), 1.0);
    const Tensor rest = where(large, n + 1 - middle, 1.0);
    const Tensor y = sigmoid(log_gamma_draws(middle, all) - log_gamma_draws(rest, all));
    const Tensor below = y <= p;
    found = found + where(logical_and(large, below), middle, 0.0);
    p = where(large, where(below, (p - y) / (1 - y), p / y), p);
    n = where(large, where(below, n - middle, middle - 1), n);
  }
  Shape trials = all;
  trials.push_back(kDirect);
  const Tensor hits = logical_and(rand(trials, n.options()) < p.unsqueeze(-1),
                                  arange(kDirect, n.options()) < n.unsqueeze(-1));
  return found + hits.sum({-1});
}

Tensor ways(const Tensor& n, const Tensor& k) {
  return (n + 1).lgamma() - (k + 1).lgamma() - (n - k + 1).lgamma();
}

// All counts of n trials in front of the batch's dimensions.
Tensor counts(int64_t n, const Tensor& like) {
  Shape sizes{n + 1};
  for (int64_t d = 0; d < like.dim(); ++d) sizes.push_back(1);
  return arange(n + 1, like.options()).view(sizes);
}

}  // namespace

Binomial::Binomial(const Tensor& total_count_in, const Tensor& probs_in)
    : total_count(total_count_in.to(probs_in.dtype())), probs(probs_in) {
  broadcast(total_count, probs, "Binomial");
  logits = logits_of(probs);
  batch_ = Shape(probs.sizes());
}
Binomial Binomial::from_logits(const Tensor& total_count, const Tensor& logits) {
  check_floating(logits, "Binomial");
  Binomial b(total_count, sigmoid(logits));
  b.logits = logits.expand(b.batch_);
  return b;
}
constinit const Formulas<Binomial> Binomial::formulas = {
    .name = "Binomial",
    .has_rsample = false,
    .draw =
        [](const Binomial& d, const Shape& all) {
          return successes(d.total_count, d.probs.detach(), all).to(d.probs.dtype());
        },
    .log_prob =
        [](const Binomial& d, const Tensor& value) {
          const Tensor k = value.to(d.probs.dtype());
          return ways(d.total_count, k) + k * d.logits - d.total_count * softplus(d.logits);
        },
    .entropy =
        [](const Binomial& d) {
          const int64_t most = int64_t(d.total_count.max().item<double>());
          if (!(d.total_count == most).all().item<bool>())
            d.refuse("the entropy of unequal total counts is not there");
          const Tensor log_p = d.log_prob(counts(most, d.probs));
          return -(log_p.exp() * log_p).sum({0});
        },
    .mean = [](const Binomial& d) { return d.total_count * d.probs; },
    .variance = [](const Binomial& d) { return d.total_count * d.probs * (1 - d.probs); }};

Multinomial::Multinomial(int64_t total_count_in, const Categorical& classes)
    : total_count(total_count_in), probs(classes.probs), logits(classes.logits) {
  ARETE_CHECK(total_count >= 0, ValueError("Multinomial", "total_count must not be negative")
                                    .got(std::to_string(total_count)));
  batch_ = classes.batch_shape();
  event_ = Shape{probs.size(-1)};
}
Multinomial::Multinomial(int64_t total_count_in, const Tensor& probs_in)
    : Multinomial(total_count_in, Categorical(probs_in)) {}
Multinomial Multinomial::from_logits(int64_t total_count, const Tensor& logits) {
  return {total_count, Categorical::from_logits(logits)};
}
constinit const Formulas<Multinomial> Multinomial::formulas = {
    .name = "Multinomial",
    .has_rsample = false,
    // Class after class: a share of the trials that are left, of the probability that is left.
    .draw =
        [](const Multinomial& d, const Shape& all) {
          const Shape each(IntList(all).subspan(0, all.size() - 1));
          const Tensor given = d.probs.detach().to(kFloat64);
          const Tensor p = given / given.sum({-1}, true);  // which are 1 up to their own rounding
          Tensor left = full(each, double(d.total_count), p.options()),
                 share = ones({}, p.options());
          std::vector<Tensor> found;
          for (int64_t k = 0; k < p.size(-1); ++k) {
            const Tensor own = p.select(-1, k);
            const bool last = k + 1 == p.size(-1);
            found.push_back(last ? left
                                 : successes(left, (own / share).clamp(0, 1).nan_to_num(), each));
            left = left - found.back();
            share = share - own;
          }
          return stack(found, -1).to(d.probs.dtype());
        },
    .log_prob =
        [](const Multinomial& d, const Tensor& value) {
          const Tensor x = value.to(d.probs.dtype());
          return (x.sum({-1}) + 1).lgamma() - (x + 1).lgamma().sum({-1}) +
                 where(x == 0, 0.0, x * d.logits).sum({-1});
        },
    // The mean of lgamma(x + 1) is a sum over binomial counts of each class.
    .entropy =
        [](const Multinomial& d) {
          const double n = double(d.total_count);
          const Tensor k = counts(d.total_count, d.probs);
          const Binomial one(full({}, n, d.probs.options()), d.probs);
          const Tensor weighed = one.log_prob(k).exp() * (k + 1).lgamma();
          return n * -(d.probs * d.logits).sum({-1}) - std::lgamma(n + 1) +
                 weighed.sum({0}).sum({-1});
        },
    .mean = [](const Multinomial& d) { return d.probs * double(d.total_count); },
    .variance =
        [](const Multinomial& d) { return d.probs * (1 - d.probs) * double(d.total_count); }};

}  // namespace arete::distributions
