// Trains a small network on several processes:
//   arete run --no-python --standalone --nproc-per-node 2
//   build/release/examples/example_data_parallel
#include <cstdio>

#include "arete/arete.h"
#include "arete/distributed/data_parallel.h"
#include "arete/distributed/distributed.h"

using namespace arete;

struct Net : nn::Module {
  nn::Linear first = child("first", nn::Linear(8, 64));
  nn::Linear second = child("second", nn::Linear(64, 1));
  Tensor forward(const Tensor& x) override { return second(gelu(first(x))); }
};

int main() {
  const auto group = distributed::init_process_group();
  distributed::DistributedDataParallel<Net> net(Net{});  // rank 0's weights
  optim::AdamW optimizer(net.parameters(), {.lr = 1e-2});
  manual_seed(uint64_t(group->rank()));  // each process draws batches of its own
  for (int step = 0; step <= 100; ++step) {
    const Tensor x = randn({32, 8});
    optimizer.zero_grad();
    Tensor loss = mse_loss(net(x), sin(x).sum({1}, true));
    loss.backward();  // gradients travel meanwhile
    optimizer.step();
    loss = loss.detach();
    group->all_reduce(loss, distributed::kAvg);
    if (step % 25 == 0 && group->rank() == 0)
      std::printf("step %d: loss %.4f\n", step, loss.item<double>());
  }
  distributed::destroy_process_group();
}
