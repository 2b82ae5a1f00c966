// Distances between the rows of two tensors.
#pragma once

#include "arete/nn/layer.h"

namespace arete::nn {

struct CosineSimilarityOptions {
  int64_t dim = 1;
  double eps = 1e-8;  ///< least product of the norms
};
/// The cosine of the angle between vectors along `dim`.
class CosineSimilarity : public PairLayer {
 public:
  explicit CosineSimilarity(const CosineSimilarityOptions& o = {})
      : PairLayer("CosineSimilarity", {{"dim", o.dim}, {"eps", o.eps}}) {}
};

struct PairwiseDistanceOptions {
  double p = 2;
  double eps = 1e-6;  ///< added to the differences
  bool keepdim = false;
};
/// The p-norm of differences along the last dimension.
class PairwiseDistance : public PairLayer {
 public:
  explicit PairwiseDistance(const PairwiseDistanceOptions& o = {})
      : PairLayer("PairwiseDistance", {{"p", o.p}, {"eps", o.eps}, {"keepdim", o.keepdim}}) {}
};

}  // namespace arete::nn
