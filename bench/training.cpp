// Rows of whole training steps: forward, cross entropy, backward, Adam.
#include "arete/models/classifier.h"
#include "arete/nn/activation.h"
#include "arete/nn/container.h"
#include "arete/nn/linear.h"
#include "arete/nn/transformer.h"
#include "arete/ops/loss.h"
#include "arete/ops/random.h"
#include "arete/optim/adam.h"
#include "bench/row.h"

namespace arete::bench {
namespace {

/// A transformer that classifies by its first position.
class Encoder : public nn::Module {
 public:
  Tensor forward(const Tensor& x) override { return head_(body_(x).select(1, 0)); }

 private:
  nn::TransformerEncoder body_ = child(
      "body",
      nn::TransformerEncoder(
          nn::TransformerEncoderLayer(256, 4, {.dim_feedforward = 1024, .batch_first = true}), 4));
  nn::Linear head_ = child("head", nn::Linear(256, 10));
};

template <class Net>
std::function<void()> training_step(const Net& net, Tensor input, Tensor target) {
  auto adam = std::make_shared<optim::Adam>(net.parameters(), optim::AdamOptions{.lr = 1e-3});
  return [net, adam, input = std::move(input), target = std::move(target)] {
    adam->zero_grad();
    cross_entropy(net(input), target).backward();
    adam->step();
  };
}

Row training_row(std::string name, Unit unit, double samples, double flops, double ratio,
                 std::function<std::function<void()>()> prepare) {
  Row row{.name = std::move(name), .unit = unit, .amount = samples};
  row.flops = flops;
  row.repetitions = 15;
  row.goal = times_the_peer(ratio);
  row.prepare = std::move(prepare);
  return row;
}

}  // namespace

std::vector<Row> training_rows() {
  std::vector<Row> rows;
  // FLOPs of the products: twice forward and backward each weight, and the gradient of the input
  // everywhere but in the first layer.
  const double mlp_flops = 2.0 * 64 * (2 * 784 * 256 + 3 * 256 * 10);
  rows.push_back(training_row("mlp_784_256_10_b64", Unit::images_per_s, 64, mlp_flops, 2, [] {
    nn::Sequential net(nn::Linear(784, 256), nn::ReLU(), nn::Linear(256, 10));
    return training_step(net, randn({64, 784}), randint(10, {64}));
  }));
  const double cnn_flops =
      2.0 * 64 * (2 * 28 * 28 * 9 * 1 * 32 + 3 * 14 * 14 * 9 * 32 * 64 + 3 * 3136 * 10);
  rows.push_back(training_row("cnn_fmnist_b64", Unit::images_per_s, 64, cnn_flops, 1.3, [] {
    return training_step(models::cnn(), randn({64, 1, 28, 28}), randint(10, {64}));
  }));
  const double tokens = 16 * 128;
  const double weights = 4 * 256 * 256 + 2 * 256 * 1024, scores = 2 * 128 * 256;
  const double encoder_flops = 2 * tokens * 4 * 3 * (weights + scores);
  rows.push_back(training_row(
      "transformer4_d256_s128_b16_train", Unit::sequences_per_s, 16, encoder_flops, 1.2, [] {
        return training_step(Encoder(), randn({16, 128, 256}), randint(10, {16}));
      }));
  return rows;
}

}  // namespace arete::bench
