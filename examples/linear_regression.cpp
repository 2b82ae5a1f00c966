// Fits a line to noisy points: tensors, a gradient and an optimizer, nothing else.
#include <arete/arete.h>

#include <cmath>
#include <cstdio>

using namespace arete;

int main() {
  manual_seed(0);
  const Tensor x = rand({200, 1}) * 10;
  const Tensor y = 3 * x - 5 + randn({200, 1});

  Tensor slope = zeros({1}, TensorOptions().requires_grad());
  Tensor offset = zeros({1}, TensorOptions().requires_grad());
  optim::SGD optimizer({slope, offset}, {.lr = 0.02, .momentum = 0.9});
  for (int step = 0; step < 300; ++step) {
    optimizer.zero_grad();
    const Tensor loss = mse_loss(x * slope + offset, y);
    loss.backward();
    optimizer.step();
    if (step % 100 == 0) std::printf("step %3d  loss %.3f\n", step, loss.item<double>());
  }
  std::printf("y = %.2f x %+.2f\n", slope.item<double>(), offset.item<double>());
  return std::fabs(slope.item<double>() - 3) < 0.1 && std::fabs(offset.item<double>() + 5) < 0.5
             ? 0
             : 1;
}
