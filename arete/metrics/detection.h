// Mean average precision of detected boxes.
#pragma once

#include <map>
#include <span>

#include "arete/metrics/metric.h"

namespace arete::metrics {

/// The boxes of one picture, (N, 4) as (x0, y0, x1, y1), with N labels, and N scores where they are
/// detections.
struct Boxes {
  Tensor boxes, labels, scores = {};
};

/// COCO's mean average precision: for IoU thresholds 0.5, 0.55, ..., 0.95, 101 points of recall and
/// at most 100 detections a picture. Boxes are kept as they come; compute() works on the host.
class MeanAveragePrecision : public Metric {
 public:
  MeanAveragePrecision();
  using Metric::update;
  /// One of each for every picture. ValueError for others.
  void update(std::span<const Boxes> preds, std::span<const Boxes> target);
  /// "map" alone; -1 without any target, as COCO.
  Tensor compute() const override;
  /// "map", "map_50", "map_75", "mar_1", "mar_10", "mar_100"; -1 where there are no targets.
  std::map<std::string, double> details() const;
};

}  // namespace arete::metrics
