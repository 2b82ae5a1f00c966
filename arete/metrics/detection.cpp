#include "arete/metrics/detection.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "arete/core/modes.h"
#include "arete/ops/creation.h"
#include "arete/ops/shape.h"

namespace arete::metrics {

namespace {

constexpr int kThresholds = 10, kRecalls = 101, kMost = 100;

struct Box {
  double x0, y0, x1, y1;
  double area() const { return (x1 - x0) * (y1 - y0); }
};
double iou(const Box& a, const Box& b) {
  const double w = std::min(a.x1, b.x1) - std::max(a.x0, b.x0),
               h = std::min(a.y1, b.y1) - std::max(a.y0, b.y0);
  if (w <= 0 || h <= 0) return 0;
  return w * h / (a.area() + b.area() - w * h);
}

struct Detection {
  Box box;
  double score;
};

struct Evaluated {
  double score;
  uint32_t hits;  // bit t: it matches a target at threshold t
};

// What one picture has of one class.
struct Group {
  std::vector<Detection> found;
  std::vector<Box> wanted;
};

// A detection takes the target that it covers best of those that are left; better ones choose
// first.
std::vector<Evaluated> match(Group& g) {
  std::ranges::stable_sort(g.found, std::greater<>(), &Detection::score);
  if (g.found.size() > kMost) g.found.resize(kMost);
  std::vector<Evaluated> all;
  std::vector<uint32_t> taken(g.wanted.size());
  for (const Detection& d : g.found) {
    Evaluated e{d.score, 0};
    for (int t = 0; t < kThresholds; ++t) {
      double best = std::min(0.5 + 0.05 * t, 1 - 1e-10);
      int at = -1;
      for (size_t k = 0; k < g.wanted.size(); ++k)
        if (!(taken[k] >> t & 1))
          if (const double overlap = iou(d.box, g.wanted[k]); overlap >= best)
            best = overlap, at = int(k);
      if (at >= 0) taken[size_t(at)] |= 1u << t, e.hits |= 1u << t;
    }
    all.push_back(e);
  }
  return all;
}

// The mean precision at 101 points of recall.
double average_precision(const std::vector<Evaluated>& all, int threshold, size_t wanted) {
  std::vector<double> precision, recall;
  double right = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    right += all[i].hits >> threshold & 1;
    precision.push_back(right / double(i + 1));
    recall.push_back(right / double(wanted));
  }
  for (size_t i = precision.size(); i-- > 1;)
    precision[i - 1] = std::max(precision[i - 1], precision[i]);
  double sum = 0;
  size_t at = 0;
  for (int r = 0; r < kRecalls; ++r) {
    while (at < recall.size() && recall[at] < 0.01 * r) ++at;
    if (at < recall.size()) sum += precision[at];
  }
  return sum / kRecalls;
}

void check_boxes(const Boxes& b, bool has_scores) {
  const auto count = [&](const Tensor& t) {
    return t.defined() && t.dim() == 1 && t.size(0) == b.boxes.size(0);
  };
  ARETE_CHECK(b.boxes.defined() && b.boxes.dim() == 2 && b.boxes.size(1) == 4 && count(b.labels) &&
                  (!has_scores || count(b.scores)),
              ValueError("MeanAveragePrecision",
                         "a picture has boxes (N, 4) and labels (N); detections scores (N), too"));
}

}  // namespace

MeanAveragePrecision::MeanAveragePrecision() {
  add_list("detections", {6}, kFloat64);  // label, score, box
  add_list("targets", {5}, kFloat64);
  // How many of both each picture has: pictures of several processes have no numbers.
  add_list("counts", {2}, kInt64);
}

void MeanAveragePrecision::update(std::span<const Boxes> preds, std::span<const Boxes> target) {
  const NoGradGuard no_grad;
  ARETE_CHECK(preds.size() == target.size(),
              ValueError("MeanAveragePrecision",
                         "Expected argument `preds` and `target` to have the same length")
                  .got(std::to_string(preds.size()) + " and " + std::to_string(target.size())));
  for (const Boxes& b : preds) check_boxes(b, true);
  for (const Boxes& b : target) check_boxes(b, false);
  for (size_t i = 0; i < preds.size(); ++i) {
    follow(preds[i].boxes);
    const auto column = [&](const Tensor& t) {
      return t.detach().to(device(), kFloat64).unsqueeze(1);
    };
    const auto boxes = [&](const Boxes& b) { return b.boxes.detach().to(device(), kFloat64); };
    add(0, cat({column(preds[i].labels), column(preds[i].scores), boxes(preds[i])}, 1));
    add(1, cat({column(target[i].labels), boxes(target[i])}, 1));
    add(2, tensor(std::vector<int64_t>{preds[i].boxes.size(0), target[i].boxes.size(0)},
                  TensorOptions(kInt64, device()))
               .unsqueeze(0));
  }
}

std::map<std::string, double> MeanAveragePrecision::details() const {
  const auto found = state(0).to_vector<double>(), wanted = state(1).to_vector<double>();
  const auto counts = state(2).to_vector<int64_t>();
  struct Class {
    std::vector<Evaluated> all;
    std::array<double, 3 * kThresholds> recalled{};  // with 1, 10, 100 detections
    size_t wanted = 0;
  };
  std::map<double, Class> classes;
  size_t d = 0, w = 0;
  for (size_t picture = 0; picture + 1 < counts.size(); picture += 2) {
    std::map<double, Group> groups;
    for (int64_t i = 0; i < counts[picture]; ++i, d += 6) {
      const double* row = &found[d];
      groups[row[0]].found.push_back({{row[2], row[3], row[4], row[5]}, row[1]});
    }
    for (int64_t i = 0; i < counts[picture + 1]; ++i, w += 5) {
      const double* row = &wanted[w];
      groups[row[0]].wanted.push_back({row[1], row[2], row[3], row[4]});
    }
    for (auto& [label, group] : groups) {
      Class& c = classes[label];
      c.wanted += group.wanted.size();
      const auto evaluated = match(group);
      for (size_t i = 0; i < evaluated.size(); ++i)
        for (int t = 0; t < kThresholds; ++t)
          for (int m = 0; m < 3; ++m)
            if (double(i) < std::array{1, 10, kMost}[size_t(m)] && evaluated[i].hits >> t & 1)
              c.recalled[size_t(m * kThresholds + t)] += 1;
      c.all.insert(c.all.end(), evaluated.begin(), evaluated.end());
    }
  }
  // Means over the classes that have targets.
  std::array<double, kThresholds> precision{};
  std::array<double, 3> recall{};
  int n = 0;
  for (auto& [label, c] : classes) {
    if (c.wanted == 0) continue;
    ++n;
    std::ranges::stable_sort(c.all, std::greater<>(), &Evaluated::score);
    for (int t = 0; t < kThresholds; ++t) {
      precision[size_t(t)] += average_precision(c.all, t, c.wanted);
      for (int m = 0; m < 3; ++m)
        recall[size_t(m)] +=
            c.recalled[size_t(m * kThresholds + t)] / double(c.wanted) / kThresholds;
    }
  }
  const auto mean = [&](double sum) { return n ? sum / n : -1.0; };
  return {{"map", mean(std::accumulate(precision.begin(), precision.end(), 0.0) / kThresholds)},
          {"map_50", mean(precision[0])},
          {"map_75", mean(precision[5])},
          {"mar_1", mean(recall[0])},
          {"mar_10", mean(recall[1])},
          {"mar_100", mean(recall[2])}};
}

Tensor MeanAveragePrecision::compute() const {
  return full({}, details().at("map"), TensorOptions(kFloat32, device()));
}

}  // namespace arete::metrics
