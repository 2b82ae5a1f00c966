// A GPU that is named without a number is the calling thread's current one; and processes that are
// forked while CUDA is in use. On fake GPUs, where there are no real ones.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "arete/arete.h"
#include "arete/base/thread_pool.h"
#include "arete/device/shared_memory.h"
#include "arete/profile/memory_tracker.h"
#include "tests/support/errors.h"
#include "tests/support/fake_gpus.h"
#include "tests/support/gpu.h"

namespace arete {
namespace {

const Device kFirst(DeviceType::cuda, 0), kSecond(DeviceType::cuda, 1);

/// Two GPUs while it lives.
class TwoGpus {
 public:
  TwoGpus() { prim::register_provider(DeviceType::cuda, &test::fake_gpus(2)); }
  ~TwoGpus() {
    set_current_ordinal(0);
    for (const Device& d : {kFirst, kSecond}) prim::register_backend(d, nullptr);
    prim::register_provider(DeviceType::cuda, nullptr);
  }
};

TEST(CurrentDevice, NamesWithoutANumber) {
  EXPECT_EQ(kCUDA.index, -1);
  EXPECT_EQ(Device("cuda"), kCUDA);
  EXPECT_EQ(Device("cuda").to_string(), "cuda");
  EXPECT_EQ(Device("cuda:0"), kFirst);
  EXPECT_FALSE(kCUDA == kFirst);
  EXPECT_EQ(kCUDA.resolved(), kFirst);
  EXPECT_EQ(kSecond.resolved(), kSecond);
  EXPECT_EQ(Device(DeviceType::cpu), kCPU);
  EXPECT_EQ(kCPU.resolved(), kCPU);
  EXPECT_EQ(kMeta.resolved(), kMeta);
}

TEST(CurrentDevice, IsWhereTensorsAreMadeAndMoved) {
  NEEDS_NO_GPU();
  const TwoGpus gpus;
  const Tensor host = ones({2, 3});
  EXPECT_EQ(zeros({2}, kCUDA).device(), kFirst);
  EXPECT_EQ(host.cuda().device(), kFirst);
  cuda::set_device(1);
  EXPECT_EQ(cuda::current_device(), 1);
  EXPECT_EQ(zeros({2}, kCUDA).device(), kSecond);
  EXPECT_EQ(zeros({2}, Device("cuda")).device(), kSecond);
  EXPECT_EQ(zeros({2}, Device("cuda:0")).device(), kFirst);
  EXPECT_EQ(arange(3, TensorOptions(kInt64, kCUDA)).device(), kSecond);
  EXPECT_EQ(tensor({1, 2}, kCUDA).device(), kSecond);
  EXPECT_EQ(rand({2}, kCUDA).device(), kSecond);
  EXPECT_EQ(empty_like(host, {}, kCUDA).device(), kSecond);
  EXPECT_EQ(host.to(kCUDA).device(), kSecond);
  EXPECT_EQ(host.to(kCUDA, kFloat64).device(), kSecond);
  EXPECT_EQ(host.cuda().device(), kSecond);
  EXPECT_EQ(host.cuda(0).device(), kFirst);
  // A tensor on another GPU moves; one that is there already stays itself.
  const Tensor first = host.cuda(0), second = host.cuda(1);
  EXPECT_EQ(first.to(kCUDA).device(), kSecond);
  EXPECT_TRUE(second.to(kCUDA).is_same(second));
  float memory[2] = {1, 2};
  EXPECT_EQ(from_blob(memory, {2}, TensorOptions(kFloat32, kCUDA)).device(), kSecond);
  EXPECT_EQ(prim::backend_for(kCUDA).device(), kSecond);
  EXPECT_EQ((first + 1).device(), kFirst);  // operators run where their operands are
  {
    const cuda::DeviceGuard guard(0);
    EXPECT_EQ(ones({1}, kCUDA).device(), kFirst);
  }
  EXPECT_EQ(ones({1}, kCUDA).device(), kSecond);
  {
    const cuda::Stream stream(0, 0);
    const cuda::StreamGuard guard(stream);
    EXPECT_EQ(ones({1}, kCUDA).device(), kFirst);
  }
  EXPECT_EQ(cuda::Stream().device(), 1);
  std::thread([] { EXPECT_EQ(ones({1}, kCUDA).device(), kFirst); }).join();
}

TEST(CurrentDevice, IsWhereModulesLoadersAndTrackersWork) {
  NEEDS_NO_GPU();
  const TwoGpus gpus;
  cuda::set_device(1);
  nn::Linear a(2, 3), b(2, 3);
  a.to(kCUDA);
  b.cuda();
  EXPECT_EQ(a.parameters()[0].device(), kSecond);
  EXPECT_EQ(b.parameters()[0].device(), kSecond);
  const GPUMemoryTracker tracker;
  EXPECT_EQ(tracker.device(), kSecond);
  auto dataset = std::make_shared<data::TensorDataset>(std::vector<Tensor>{ones({4, 2})});
  data::DataLoader loader(dataset, {.batch_size = 2, .device = kCUDA});
  cuda::set_device(0);
  for (const data::Batch& batch : loader) EXPECT_EQ(batch[0].device(), kSecond);
}

TEST(CurrentDevice, GradientsStayOnTheirGpu) {
  NEEDS_NO_GPU();
  const TwoGpus gpus;
  cuda::set_device(1);
  const Tensor x = ones({3}, TensorOptions(kFloat32, kCUDA).requires_grad());
  const Tensor y = (x * 2).sum();
  cuda::set_device(0);
  y.backward();
  EXPECT_EQ(x.grad().device(), kSecond);
}

// ---- processes

/// What `f` throws in a forked process, or "nothing".
template <class F>
std::string error_in_child(F&& f) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    std::string text = "nothing";
    try {
      f();
    } catch (const std::exception& e) {
      text = e.what();
    }
    const bool written = write(ends[1], text.data(), text.size()) == ssize_t(text.size());
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[256];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, size_t(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? text : "the child ended with status " + std::to_string(status);
}

TEST(ForkedProcess, SaysThatItWasForked) {
  NEEDS_NO_GPU();
  const TwoGpus gpus;
  const Tensor x = ones({3}, kCUDA);
  const std::string expected =
      "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must "
      "use the 'spawn' start method";
  const auto refuses = [&](auto&& f) {
    const std::string text = error_in_child(f);
    EXPECT_EQ(text.substr(0, expected.size()), expected);
    EXPECT_NE(text.find("before the fork"), std::string::npos) << text;
  };
  refuses([] { zeros({1}, kCUDA); });
  refuses([] { zeros({1}, kSecond); });  // not used before
  refuses([&] { x + 1; });
  refuses([&] { x.sum().item(); });
  refuses([] { cuda::synchronize(); });
  refuses([] { cuda::current_stream(); });
  refuses([] { cuda::get_device_properties(); });
  refuses([] { cuda::init(); });
  EXPECT_EQ(error_in_child([&] {
              const bool fine = cuda::is_in_bad_fork() && !cuda::is_initialized() &&
                                cuda::memory_allocated() == 0;
              if (!fine) throw ValueError("", "wrong");
              if ((ones({3}) + 1).sum().item<float>() != 6) throw ValueError("", "the CPU");
              Tensor copy = x;  // let go of there
            }),
            "nothing");
  EXPECT_FALSE(cuda::is_in_bad_fork());
  EXPECT_TRUE(cuda::is_initialized());
  EXPECT_EQ((x + 1).sum().item<float>(), 6);
}

TEST(ForkedProcess, ComputesOnTheCpu) {
  // With the threads of its parent gone, it does so on one.
  const auto work = [] {
    const Tensor a = randn({200, 200}), x = randn({2, 4, 32, 32}), w = randn({8, 4, 3, 3});
    return (matmul(a, a).sum() + conv2d(x, w).sum() + randn({1 << 18}).exp().sum()).item<double>();
  };
  work();
  const int before = num_threads();
  set_num_threads(2);
  work();
  EXPECT_EQ(error_in_child([&] {
              alarm(60);
              work();
              if (num_threads() != 1) throw ValueError("", "several threads");
            }),
            "nothing");
  EXPECT_NE(error_in_child([] { set_num_threads(2); }).find("forked from one with threads"),
            std::string::npos);
  set_num_threads(before);
}

TEST(CurrentDevice, ScopesTakeMemoryFromTheirPools) {
  NEEDS_NO_GPU();
  const TwoGpus gpus;
  const auto live = [](const cuda::MemPool& pool) {
    size_t bytes = 0;
    for (const prim::PoolSegment& s : pool.snapshot())
      for (const auto& b : s.blocks)
        if (b.state == prim::PoolSegment::Block::State::live) bytes += b.bytes;
    return bytes;
  };
  const cuda::MemPool pool, second(1);
  EXPECT_EQ(pool.use_count(), 1);
  Tensor x, y, z;
  {
    const cuda::MemPoolGuard scope(pool);
    EXPECT_EQ(pool.use_count(), 2);
    x = ones({100}, kCUDA);
    y = ones({100}, kSecond);
    {
      const cuda::MemPoolGuard inner(second);
      z = ones({100}, kSecond);
    }
    std::thread([] { EXPECT_EQ(ones({100}, kFirst).sum().item<float>(), 100); }).join();
  }
  EXPECT_EQ(pool.use_count(), 1);
  EXPECT_EQ(live(pool), 400u);
  EXPECT_EQ(live(second), 400u);
  x = ones({100}, kFirst);
  EXPECT_EQ(live(pool), 0u);
}

TEST(CurrentDevice, MemoryIsSharedUntilNobodyUsesIt) {
  NEEDS_NO_GPU();
  const TwoGpus gpus;
  const size_t before = cuda::memory_allocated(0);
  Tensor x = arange(4).to(kFloat32).to(kFirst);
  EXPECT_FALSE(x.storage()->is_shared());
  const cuda::SharedMemory told = cuda::share_memory(x.storage());
  EXPECT_TRUE(x.storage()->is_shared());
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{0, 1, 2, 3}));
  const void* const address = x.data_ptr();
  x = Tensor();
  EXPECT_GT(cuda::memory_allocated(0), before);  // somebody was told of it
  StoragePtr opened = cuda::open_shared_memory(told);
  EXPECT_EQ(opened->bytes(), 16u);
  EXPECT_EQ(opened->data(), address);
  cuda::collect_shared_memory();
  EXPECT_GT(cuda::memory_allocated(0), before);
  opened.reset();
  cuda::collect_shared_memory();
  EXPECT_EQ(cuda::memory_allocated(0), before);
  EXPECT_ERROR(cuda::open_shared_memory(told), "the process that shared the memory is gone");
  EXPECT_ERROR(cuda::share_memory(ones({2}).storage()), "memory of a GPU is expected");
}

TEST(CurrentDevice, DescriptionsOfSharedMemoryAreOpenedOnce) {
  NEEDS_NO_GPU();
  const TwoGpus gpus;
  Tensor x = ones({4}, kFirst);
  const cuda::SharedMemory one = cuda::share_memory(x.storage());
  const cuda::SharedMemory two = cuda::share_memory(x.storage());
  cuda::open_shared_memory(one).reset();
  cuda::open_shared_memory(one).reset();  // it has taken the place of the other
  EXPECT_ERROR(cuda::open_shared_memory(two), "every description of the memory was opened before");
  EXPECT_ERROR(cuda::open_shared_memory(one), "every description of the memory was opened before");
  // A count that is used up does not hide a description that comes later.
  const size_t shared = cuda::memory_allocated(0);
  const cuda::SharedMemory three = cuda::share_memory(x.storage());
  x = Tensor();
  cuda::collect_shared_memory();
  EXPECT_EQ(cuda::memory_allocated(0), shared);
  cuda::open_shared_memory(three).reset();
  cuda::collect_shared_memory();
  EXPECT_LT(cuda::memory_allocated(0), shared);
}

// In a capture nothing is waited for, so that nobody knows whether kernels use the memory.
TEST(CurrentDevice, SharedMemoryThatIsLetGoOfInACaptureIsHeldUntilItsEnd) {
  NEEDS_NO_GPU();
  const TwoGpus gpus;
  Tensor x = ones({4}, kSecond);
  StoragePtr opened = cuda::open_shared_memory(cuda::share_memory(x.storage()));
  const size_t shared = cuda::memory_allocated(1);
  {
    const cuda::DeviceGuard guard(1);
    cuda::Graph graph;
    cuda::GraphCapture capture(graph);
    opened.reset();
    x = Tensor();
    cuda::collect_shared_memory();
    EXPECT_EQ(cuda::memory_allocated(1), shared);
    capture.end();
  }
  cuda::collect_shared_memory();
  EXPECT_LT(cuda::memory_allocated(1), shared);
}

TEST(CurrentDevice, OtherFilesAreNotTakenForThatOfTheUsersOfSharedMemory) {
  NEEDS_NO_GPU();
  const TwoGpus gpus;
  const Tensor x = ones({4}, kFirst);
  cuda::SharedMemory told = cuda::share_memory(x.storage());
  const std::string true_counter = told.counter;
  const std::string process = std::to_string(getpid()) + " ";
  const std::string key = true_counter.substr(true_counter.rfind(' '));
  const std::string text = "sixteen bytes!!!";  // as large as that of the users
  const int file = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  const int named_alike = memfd_create("arete_users", MFD_CLOEXEC);
  for (const int f : {file, named_alike}) {
    ASSERT_EQ(write(f, text.data(), text.size()), ssize_t(text.size()));
    told.counter = process + std::to_string(f) + key;
    EXPECT_ERROR(cuda::open_shared_memory(told), "the process that shared the memory is gone");
    std::string now(text.size(), ' ');
    ASSERT_EQ(pread(f, now.data(), now.size(), 0), ssize_t(now.size()));
    EXPECT_EQ(now, text);
    close(f);
  }
  for (const std::string& none :
       {std::string(), std::string("/proc/self/fd/0"), process, true_counter + "0"}) {
    told.counter = none;
    EXPECT_ERROR(cuda::open_shared_memory(told), "the process that shared the memory is gone");
  }
  told.counter = true_counter;
  EXPECT_EQ(cuda::open_shared_memory(told)->data(), x.storage()->data());
}

}  // namespace
}  // namespace arete
