// A function with a gradient of its own: rounding whose gradient passes straight through, used to
// train weights that take only the values -1, 0 and 1.
#include <arete/arete.h>

#include <cstdio>

using namespace arete;

struct RoundStraightThrough : autograd::Function<RoundStraightThrough> {
  static constexpr const char* name = "RoundStraightThrough";
  static std::vector<Tensor> forward(autograd::Context& context,
                                     const std::vector<Tensor>& inputs) {
    context.save_for_backward({inputs[0]});
    return {inputs[0].clamp(-1, 1).round()};
  }
  static std::vector<Tensor> backward(autograd::Context& context,
                                      const std::vector<Tensor>& grads) {
    // The gradient of the clamp is kept, that of the rounding is taken to be 1.
    const Tensor inside = context.saved_tensors()[0].abs() <= 1;
    return {grads[0] * inside.to(grads[0].dtype())};
  }
};

int main() {
  manual_seed(0);
  const Tensor hidden = tensor({1.0, 0.0, -1.0, -1.0, 0.0, 1.0, 1.0, 0.0});
  const Tensor x = randn({256, 8});
  const Tensor y = x.mv(hidden);

  Tensor weight = (rand({8}) - 0.5).requires_grad_();
  optim::Adam optimizer({weight}, {.lr = 0.02});
  for (int step = 0; step < 200; ++step) {
    optimizer.zero_grad();
    mse_loss(x.mv(RoundStraightThrough::apply({weight})[0]), y).backward();
    optimizer.step();
  }
  const Tensor found = RoundStraightThrough::apply({weight.detach()})[0];
  std::printf("%s\n", found.to_string().c_str());
  return equal(found, hidden) ? 0 : 1;
}
