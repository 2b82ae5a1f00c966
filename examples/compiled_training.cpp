// Trains a small network with and without compile(): the same losses, in fewer kernels.
#include <arete/arete.h>

#include <chrono>
#include <cstdio>
#include <vector>

using namespace arete;

namespace {

struct Run {
  std::vector<double> losses;
  double seconds;
};

// `wrap` gives the function that is called for each step.
template <class Wrap>
Run train(const Wrap& wrap) {
  manual_seed(0);
  nn::Sequential net(nn::Linear(32, 64), nn::GELU(), nn::LayerNorm(64), nn::Linear(64, 1));
  optim::AdamW optimizer(net.parameters(), {.lr = 1e-2});
  auto step = wrap([&](const Tensor& x, const Tensor& y) {
    optimizer.zero_grad();
    Tensor loss = mse_loss(net(x), y);
    loss.backward();
    nn::utils::clip_grad_norm_(net.parameters(), 1.0);
    optimizer.step();
    return loss.detach();
  });
  Run run;
  const auto begun = std::chrono::steady_clock::now();
  for (int k = 0; k < 200; ++k) {
    const Tensor x = randn({256, 32});
    const Tensor loss = step(x, x.square().mean(1, true));
    run.losses.push_back(loss.item<double>());
  }
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  return run;
}

}  // namespace

int main() {
  const Run eager = train([](auto step) { return step; });
  const Run compiled = train([](auto step) { return compile::compile(step, {.exact = true}); });
  std::printf(
      "loss %.4f -> %.4f, %s\n", eager.losses.front(), eager.losses.back(),
      eager.losses == compiled.losses ? "and the same when compiled" : "but others compiled");
  std::printf("eager %.1f ms, compiled %.1f ms\n", eager.seconds * 1e3, compiled.seconds * 1e3);
  return eager.losses == compiled.losses ? 0 : 1;
}
