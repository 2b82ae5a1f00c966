// Batches that are divided among GPUs, which are none here.
#include "arete/distributed/replicas.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <thread>

#include "arete/arete.h"
#include "tests/support/fake_gpus.h"
#include "tests/support/gpu.h"

namespace arete::distributed {
namespace {

struct Seen {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::set<std::string> modes;
};

struct WatchedNet : nn::Module {
  explicit WatchedNet(Seen* s) : seen(s) {}
  nn::Linear first = child("first", nn::Linear(4, 8));
  nn::BatchNorm1d norm = child("norm", nn::BatchNorm1d(8));
  nn::Linear last = child("last", nn::Linear(8, 2));
  Seen* seen;
  Tensor forward(const Tensor& x) override {
    const std::lock_guard lock(seen->mutex);
    seen->threads.insert(std::this_thread::get_id());
    seen->modes.insert(x.device().to_string() + " " + std::to_string(cuda::current_device()) +
                       (is_grad_enabled() ? " grad " : " ") + std::to_string(x.size(0)));
    if (x.size(0) == 1) throw ValueError("WatchedNet", "a part is too small");
    return last(relu(norm(first(x))));
  }
};

struct Replicas : testing::Test {
  void SetUp() override {
    NEEDS_NO_GPU();
    prim::register_provider(DeviceType::cuda, &test::fake_gpus(2));
  }
  void TearDown() override {
    if (IsSkipped()) return;
    for (int i = 0; i < 2; ++i) prim::register_backend({DeviceType::cuda, i}, nullptr);
    prim::register_provider(DeviceType::cuda, nullptr);
  }
};

TEST_F(Replicas, ComputeTheirPartsWithTheNetworksWeights) {
  Seen seen;
  WatchedNet net(&seen);
  net.cuda(0);
  const WatchedNet alone = nn::clone(net);
  const Tensor x = sin(arange(20, kFloat32)).reshape({5, 4}).to(Device(DeviceType::cuda, 0));
  for (int pass = 1; pass < 3; ++pass) {
    seen.threads.clear();
    seen.modes.clear();
    const Tensor y = data_parallel(net, x);
    EXPECT_EQ(seen.threads.size(), 2u);
    EXPECT_EQ(seen.modes, (std::set<std::string>{"cuda:0 0 grad 3", "cuda:1 1 grad 2"}));
    EXPECT_EQ(y.device(), Device(DeviceType::cuda, 0));
    const Tensor expected = cat({alone(x.narrow(0, 0, 3)), alone(x.narrow(0, 3, 2))});
    EXPECT_TRUE(allclose(y, expected));
    y.square().sum().backward();
    expected.square().sum().backward();
    for (size_t i = 0; i < net.parameters().size(); ++i)
      EXPECT_TRUE(allclose(net.parameters()[i].grad(), alone.parameters()[i].grad(), 1e-4, 1e-5));
    EXPECT_EQ(net.norm.num_batches_tracked.item<int64_t>(), pass) << "of the first device";
  }
  {
    const NoGradGuard guard;
    seen.modes.clear();
    EXPECT_FALSE(
        data_parallel(net, x, {net.first.weight.device(), {DeviceType::cuda, 1}}).requires_grad());
    EXPECT_EQ(seen.modes, (std::set<std::string>{"cuda:0 0 3", "cuda:1 1 2"}));
  }
  EXPECT_THROW(data_parallel(net, x.narrow(0, 0, 3)), ValueError);  // of a thread
  net.cuda(1);
  EXPECT_THROW(data_parallel(net, x), ValueError);
  EXPECT_EQ(data_parallel(net, x.cuda(1), {{DeviceType::cuda, 1}}).size(0), 5);
}

}  // namespace
}  // namespace arete::distributed
