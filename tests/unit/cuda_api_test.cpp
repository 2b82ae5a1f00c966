// The public interface of GPUs: devices, streams, events, copies, graphs, memory. Without a GPU:
// clear reasons and zeros.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "arete/arete.h"
#include "arete/prim/backend.h"

namespace arete {
namespace {

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}
#define EXPECT_ERROR(statement, text)                                   \
  EXPECT_NE(error_of([&] { statement; }).find(text), std::string::npos) \
      << error_of([&] { statement; })

#define NEEDS_GPU() \
  if (!cuda::is_available()) GTEST_SKIP() << cuda::unavailable_reason()
#define NEEDS_NO_GPU() \
  if (cuda::is_available()) GTEST_SKIP() << "there is a GPU"

std::vector<float> count(int64_t n, float start = 0) {
  std::vector<float> v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), start);
  return v;
}

// ---- everywhere

TEST(CudnnSwitches, AreSetAndReadAnywhere) {
  EXPECT_TRUE(cuda::cudnn_enabled() && !cuda::cudnn_benchmark() && !cuda::cudnn_deterministic());
  cuda::set_cudnn_deterministic(true);
  EXPECT_TRUE(cuda::cudnn_deterministic() && !modes().deterministic);
  cuda::set_cudnn_deterministic(false);
  cuda::set_cudnn_enabled(false);
  EXPECT_FALSE(cuda::cudnn_enabled());
  EXPECT_FALSE(cuda::cudnn_benchmark());
  cuda::set_cudnn_benchmark(true);
  EXPECT_TRUE(cuda::cudnn_benchmark());
  cuda::set_cudnn_enabled(true);
  cuda::set_cudnn_benchmark(false);
  cuda::set_cudnn_benchmark_limit(0);
  EXPECT_EQ(cuda::cudnn_benchmark_limit(), 0);
  EXPECT_ERROR(cuda::set_cudnn_benchmark_limit(-1), "must not be negative");
  EXPECT_EQ(cuda::cudnn_benchmark_limit(), 0);
  cuda::set_cudnn_benchmark_limit(10);
}

TEST(Float32Precision, WhatIsCloserDecides) {
  using enum Float32Scope;
  using P = Float32Precision;
  struct Restore {
    std::array<P, kNumFloat32Scopes> before;
    Restore() {
      for (int i = 0; i < kNumFloat32Scopes; ++i)
        before[size_t(i)] = float32_precision_setting(Float32Scope(i));
    }
    ~Restore() {
      for (int i = 0; i < kNumFloat32Scopes; ++i)
        set_float32_precision(Float32Scope(i), before[size_t(i)]);
    }
  } restore;
  set_float32_precision(convolutions, P::tf32);  // as at the start of a program
  EXPECT_TRUE(float32_convolution_tf32());
  EXPECT_EQ(float32_matmul_precision(), MatmulPrecision::highest);
  EXPECT_EQ(float32_precision(products), P::none);
  set_float32_precision(all, P::tf32);
  EXPECT_EQ(float32_matmul_precision(), MatmulPrecision::high);
  set_float32_precision(gpu, P::ieee);
  EXPECT_EQ(float32_matmul_precision(), MatmulPrecision::highest);
  EXPECT_TRUE(float32_convolution_tf32());  // its own setting stays
  set_float32_precision(convolutions, P::none);
  EXPECT_FALSE(float32_convolution_tf32());
  set_float32_precision(gpu, P::none);
  EXPECT_TRUE(float32_convolution_tf32());
  set_float32_matmul_precision("medium");
  EXPECT_EQ(get_float32_matmul_precision(), "medium");
  set_float32_precision(products, P::tf32);
  EXPECT_EQ(get_float32_matmul_precision(), "high");
  set_float32_matmul_precision("highest");
  EXPECT_EQ(float32_matmul_precision(), MatmulPrecision::highest);
}

TEST(AttentionBackends, AreAskedByEachCall) {
  const Tensor q = randn({1, 2, 4, 8});
  const auto run = [&] { return scaled_dot_product_attention(q, q, q); };
  const Tensor exact = run();
  set_attention_backends({.flash = false, .mem_efficient = false, .cudnn = false});
  EXPECT_TRUE(attention_backends().math && !attention_backends().fused());
  EXPECT_TRUE(equal(run(), exact));
  set_attention_backends({.flash = false, .mem_efficient = false, .cudnn = false, .math = false});
  EXPECT_ERROR(run(), "No viable backend for scaled_dot_product_attention was found");
  set_attention_backends({.math = false});
  EXPECT_TRUE(equal(run(), exact));  // CPUs have one way only
  if (cuda::is_available()) {
    const Tensor there = q.to(kCUDA);  // cuDNN's is for half types
    EXPECT_ERROR(scaled_dot_product_attention(there, there, there), "No available kernel");
  }
  set_attention_backends({});
  EXPECT_TRUE(attention_backends().fused() && attention_backends().math);
}

TEST(CudnnSwitches, ConvolutionsAgree) {
  NEEDS_GPU();
  manual_seed(3);
  const Tensor x = randn({8, 16, 40, 40}), w = randn({32, 16, 3, 3});  // 1.1e8 products: not timed
  const Tensor large = randn({64, 16, 40, 40});                        // 9e8, 1.8e9 operations
  for (const Tensor& in : {x, large}) {
    const Tensor want = conv2d(in, w);
    const double bound = 1e-4 * want.abs().max().item<double>();
    for (bool enabled : {true, false})
      for (bool benchmark : {true, false}) {
        cuda::set_cudnn_enabled(enabled);
        cuda::set_cudnn_benchmark(benchmark);
        const Tensor got = conv2d(in.to(kCUDA), w.to(kCUDA)).to(kCPU);
        EXPECT_LE((got - want).abs().max().item<double>(), bound) << enabled << benchmark;
      }
  }
  cuda::set_cudnn_enabled(true);
  cuda::set_cudnn_benchmark(false);
}

TEST(CudaApi, AvailabilityAndReasonAgree) {
  EXPECT_EQ(cuda::is_available(), cuda::unavailable_reason().empty());
  EXPECT_EQ(cuda::is_available(), cuda::device_count() > 0);
  EXPECT_EQ(cuda::current_device(), 0);
}

TEST(CudaApi, WithoutGpuCountersAreZero) {
  NEEDS_NO_GPU();
  EXPECT_EQ(cuda::device_count(), 0);
  EXPECT_EQ(cuda::memory_allocated(), 0u);
  EXPECT_EQ(cuda::max_memory_allocated(), 0u);
  EXPECT_EQ(cuda::memory_reserved(), 0u);
  EXPECT_EQ(cuda::max_memory_reserved(), 0u);
  EXPECT_EQ(cuda::memory_stats().allocations, 0);
  EXPECT_FALSE(cuda::memory_summary().empty());
  EXPECT_TRUE(cuda::versions().empty());
  EXPECT_FALSE(cuda::is_current_stream_capturing());
  cuda::reset_peak_memory_stats();
  cuda::empty_cache();
  const cuda::nvtx::RangeGuard range("nothing");
}

TEST(CudaApi, WithoutGpuErrorsSayWhy) {
  NEEDS_NO_GPU();
  const std::string reason = cuda::unavailable_reason();
  ASSERT_FALSE(reason.empty());
  EXPECT_ERROR(zeros({2}, kCUDA), reason);
  EXPECT_ERROR(zeros({2}, kCUDA), "cuda:0 is not available");
  EXPECT_ERROR(zeros({2}).to(kCUDA), reason);
  EXPECT_ERROR(zeros({2}).pin_memory(), reason);
  EXPECT_ERROR(cuda::synchronize(), reason);
  EXPECT_ERROR(cuda::set_device(0), reason);
  EXPECT_ERROR(cuda::get_device_properties(), reason);
  EXPECT_ERROR(cuda::Stream(), reason);
  EXPECT_ERROR(cuda::current_stream(), reason);
  EXPECT_ERROR(cuda::mem_get_info(), reason);
  EXPECT_ERROR(cuda::GraphPool(), reason);
  cuda::Event event;  // holds nothing until it is recorded
  EXPECT_TRUE(event.query());
  EXPECT_ERROR(event.record(), reason);
  cuda::Graph graph;
  EXPECT_FALSE(graph.is_ready());
  EXPECT_ERROR(graph.replay(), "the graph holds nothing");
}

TEST(CudaApi, HostTensorsAreNotPinned) {
  const Tensor t = zeros({3});
  EXPECT_FALSE(t.is_pinned());
  EXPECT_FALSE(t.storage()->has_pending_copies());
}

// A copy under way that the test ends by hand.
struct ModelCopy final : PendingCopy {
  explicit ModelCopy(const void* q) : in(q) {}
  bool is_done() const noexcept override { return done; }
  void wait() override {
    ++waits;
    done = true;
    if (fails) throw IndexError("model", "index out of range");
  }
  const void* queue() const noexcept override { return in; }
  const void* in;
  bool done = false, fails = false;
  int waits = 0;
};

TEST(CudaApi, ReadersWaitForCopiesThatWrite) {
  const Tensor t = arange(4, kFloat32);
  int queue = 0;
  const auto copy = std::make_shared<ModelCopy>(&queue);
  t.storage()->add_pending(copy, true);
  EXPECT_EQ(copy->waits, 0);
  EXPECT_EQ((t + 1).to_vector<float>(), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(copy->waits, 1);
  EXPECT_FALSE(t.storage()->has_pending_copies());
}

TEST(CudaApi, OnlyWritersWaitForCopiesThatRead) {
  Tensor t = arange(4, kFloat32);
  int queue = 0;
  const auto copy = std::make_shared<ModelCopy>(&queue);
  t.storage()->add_pending(copy, false);
  EXPECT_EQ(t.sum().item<float>(), 6);
  EXPECT_EQ(copy->waits, 0);
  t.add_(1);
  EXPECT_EQ(copy->waits, 1);
  t.storage()->add_pending(std::make_shared<ModelCopy>(&queue), false);
  const auto second = std::make_shared<ModelCopy>(&queue);
  t.storage()->add_pending(second, false);
  EXPECT_NE(t.data_ptr(), nullptr);  // may be written through
  EXPECT_EQ(second->waits, 1);
}

TEST(CudaApi, CopiesOfOneQueueNeedNotWaitForEachOther) {
  const Tensor t = zeros({4});
  int a = 0, b = 0;
  const auto first = std::make_shared<ModelCopy>(&a);
  t.storage()->wait_for_other_queues(&a, true);
  t.storage()->add_pending(first, true);
  t.storage()->wait_for_other_queues(&a, true);
  EXPECT_EQ(first->waits, 0);
  t.storage()->wait_for_other_queues(&b, false);
  EXPECT_EQ(first->waits, 1);
}

TEST(CudaApi, AnErrorOfACopyIsRaisedOnce) {
  const Tensor t = zeros({4});
  int queue = 0;
  const auto copy = std::make_shared<ModelCopy>(&queue);
  copy->fails = true;
  t.storage()->add_pending(copy, true);
  EXPECT_ERROR(t.sum(), "index out of range");
  EXPECT_EQ(t.sum().item<float>(), 0);
}

// ---- with a GPU

TEST(CudaGpu, Properties) {
  NEEDS_GPU();
  const DeviceProperties p = cuda::get_device_properties();
  EXPECT_FALSE(p.name.empty());
  EXPECT_GE(p.major, 8);
  EXPECT_GT(p.total_memory, size_t(1) << 30);
  EXPECT_GT(p.multi_processor_count, 0);
  EXPECT_FALSE(cuda::versions().empty());
  const MemoryInfo m = cuda::mem_get_info();
  EXPECT_LE(m.free, m.total);
  EXPECT_ERROR(cuda::get_device_properties(100), "CUDA error: invalid device ordinal");
  EXPECT_ERROR(zeros({1}, Device(DeviceType::cuda, 100)), "CUDA error: invalid device ordinal");
  EXPECT_ERROR(cuda::set_device(-2), "CUDA error: invalid device ordinal");
  EXPECT_EQ(cuda::current_device(), 0);
  EXPECT_FALSE(prim::backend_for(kCUDA).description().empty());
}

TEST(CudaGpu, CopiesOfAllSizesAndOrders) {
  NEEDS_GPU();
  for (const int64_t n : {1, 1000, 262144, 262145, 5000000, 40000001}) {
    const Tensor host = arange(n, kFloat32);
    const Tensor there = host.to(kCUDA), back = there.cpu();
    EXPECT_FALSE(back.is_pinned());
    ASSERT_EQ(std::memcmp(host.data_ptr(), back.data_ptr(), host.nbytes()), 0) << n;
  }
  const Tensor m = arange(24, kFloat32).reshape({2, 3, 4});
  EXPECT_EQ(m.transpose(0, 2).to(kCUDA).cpu().to_vector<float>(),
            m.transpose(0, 2).to_vector<float>());
  EXPECT_EQ(m.slice(2, 1, 4, 2).to(kCUDA).cpu().to_vector<float>(),
            m.slice(2, 1, 4, 2).to_vector<float>());
  EXPECT_EQ(m.to(kCUDA).slice(1, 1, 3).cpu().to_vector<float>(),
            m.slice(1, 1, 3).to_vector<float>());
  EXPECT_EQ(zeros({0, 3}).to(kCUDA).cpu().numel(), 0);
  EXPECT_EQ(tensor(3.5).to(kCUDA).item<double>(), 3.5);
}

TEST(CudaGpu, CopiesConvert) {
  NEEDS_GPU();
  const Tensor bytes = tensor(std::vector<int64_t>{0, 1, 200}).to(kUInt8);
  EXPECT_EQ(bytes.to(kCUDA, kFloat32).cpu().to_vector<float>(), (std::vector<float>{0, 1, 200}));
  const Tensor wide = tensor(std::vector<double>{0.5, -2.25}, kFloat64);
  EXPECT_EQ(wide.to(kCUDA, kFloat16).to(kCPU, kFloat64).to_vector<double>(),
            (std::vector<double>{0.5, -2.25}));
  Tensor target = zeros({2, 2}, TensorOptions(kFloat32, kCUDA));
  target.copy_(wide);
  EXPECT_EQ(target.cpu().to_vector<float>(), (std::vector<float>{0.5, -2.25, 0.5, -2.25}));
  Tensor host = zeros({2, 2});
  host.select(1, 1).copy_(target.select(1, 0));
  EXPECT_EQ(host.to_vector<float>(), (std::vector<float>{0, 0.5, 0, 0.5}));
}

TEST(CudaGpu, GradientsComeBackToTheirDevice) {
  NEEDS_GPU();
  Tensor x = ones({3});
  x.requires_grad_();
  (x.to(kCUDA, kFloat64) * 2).sum().backward();
  EXPECT_EQ(x.grad().device(), kCPU);
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{2, 2, 2}));
  Tensor y = ones({2, 3}, TensorOptions(kFloat32, kCUDA)) * 1;
  y.copy_(x);
  y.sum().backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{4, 4, 4}));
}

TEST(CudaGpu, PinnedCopiesWithImmediateReads) {
  NEEDS_GPU();
  const int64_t n = 3000000;
  const Tensor pinned = arange(n, kFloat32).pin_memory();
  EXPECT_TRUE(pinned.is_pinned());
  EXPECT_TRUE(pinned.pin_memory().is_same(pinned));
  for (int i = 0; i < 5; ++i) {
    const Tensor there = pinned.to(kCUDA, true) + float(i);
    const Tensor back = there.to(kCPU, true);
    EXPECT_TRUE(back.is_pinned());
    EXPECT_EQ(back[n - 1].item<float>(), float(n - 1) + float(i));  // waits
    EXPECT_EQ(there.to(kCPU, true).data<float>()[7], float(7 + i));
    EXPECT_EQ((there.to(kCPU, true) * 0).sum().item<float>(), 0);
  }
}

TEST(CudaGpu, PinnedMemoryIsNotReusedWhileItIsCopied) {
  NEEDS_GPU();
  const int64_t n = 1000000;
  std::vector<Tensor> there;
  for (int i = 0; i < 8; ++i)
    there.push_back(full({n}, float(i), kFloat32).pin_memory().to(kCUDA, true));
  for (int i = 0; i < 8; ++i) {
    const auto v = there[size_t(i)].to_vector<float>();
    EXPECT_EQ(v[0], float(i));
    EXPECT_EQ(v[size_t(n - 1)], float(i));
  }
  // Writing the host memory waits for a copy that still reads it.
  Tensor buffer = zeros({n}).pin_memory();
  std::vector<Tensor> batches;
  for (int i = 0; i < 8; ++i) {
    buffer.fill_(i);
    batches.push_back(buffer.to(kCUDA, true));
  }
  for (int i = 0; i < 8; ++i) EXPECT_EQ(batches[size_t(i)][n - 1].item<float>(), float(i));
}

TEST(CudaGpu, CopyIntoPinnedMemory) {
  NEEDS_GPU();
  Tensor host = zeros({1000}).pin_memory();
  const Tensor a = full({1000}, 3.0, TensorOptions(kFloat32, kCUDA));
  host.copy_(a, true);
  host.copy_(a + 1, true);
  EXPECT_EQ(host.sum().item<float>(), 4000);
  host.copy_(a, true);
  host.add_(1);
  EXPECT_EQ(host[999].item<float>(), 4);
}

TEST(CudaGpu, StreamsAndEvents) {
  NEEDS_GPU();
  const cuda::Stream s, high(-1);
  EXPECT_EQ(s.device(), 0);
  EXPECT_FALSE(s == high);
  EXPECT_FALSE(s == cuda::default_stream());
  EXPECT_TRUE(cuda::current_stream() == cuda::default_stream());
  cuda::Event begin(true), end(true);
  {
    const cuda::StreamGuard guard(s);
    EXPECT_TRUE(cuda::current_stream() == s);
    begin.record();
    Tensor x = ones({1 << 20}, TensorOptions(kFloat32, kCUDA));
    for (int i = 0; i < 20; ++i) x = x + 1;
    end.record();
    EXPECT_EQ(x[5].item<float>(), 21);
  }
  EXPECT_TRUE(cuda::current_stream() == cuda::default_stream());
  EXPECT_GT(begin.elapsed_time(end), 0);
  EXPECT_TRUE(end.query());
  s.synchronize();
  EXPECT_TRUE(s.query());
  EXPECT_ERROR(cuda::Event().elapsed_time(end), "enable_timing");
  std::thread([&] { EXPECT_TRUE(cuda::current_stream() == cuda::default_stream()); }).join();
}

TEST(CudaGpu, TensorsCrossStreamsWithoutCallsOfTheUser) {
  NEEDS_GPU();
  const cuda::Stream side;
  const TensorOptions o(kFloat32, kCUDA);
  const int64_t n = 1 << 20;
  for (int round = 0; round < 50; ++round) {
    Tensor a = full({n}, float(round), o);
    side.wait_stream(cuda::current_stream());
    Tensor b;
    {
      const cuda::StreamGuard guard(side);
      b = a + 1;
      b = b * a;
    }
    a = Tensor();                                 // freed while the side stream may still read it
    const Tensor other = full({n}, -1000.0f, o);  // must not get its memory before that
    cuda::current_stream().wait_stream(side);
    const float want = float(round + 1) * float(round);
    EXPECT_EQ(b[0].item<float>(), want);
    EXPECT_EQ(b[n - 1].item<float>(), want);
    EXPECT_EQ(other[n - 1].item<float>(), -1000.0f);
  }
}

TEST(CudaGpu, GraphReplaysWhileOthersAllocate) {
  NEEDS_GPU();
  const TensorOptions o(kFloat32, kCUDA);
  const int64_t n = 10000;
  Tensor x = zeros({n}, o);
  const auto step = [&] {
    const Tensor y = x * 2 + 1;
    return y * y - x;
  };
  step();  // kernels are compiled outside the capture, though they need not be
  cuda::synchronize();
  cuda::Graph graph;
  Tensor y;
  {
    cuda::GraphCapture capture(graph);
    EXPECT_TRUE(cuda::is_current_stream_capturing());
    y = step();
    EXPECT_ERROR(y.item(), "");
    EXPECT_ERROR(y.cpu(), "operation not permitted when stream is capturing");
    EXPECT_ERROR(cuda::synchronize(), "operation not permitted when stream is capturing");
    capture.end();
  }
  EXPECT_FALSE(cuda::is_current_stream_capturing());
  ASSERT_TRUE(graph.is_ready());
  std::vector<Tensor> others;
  for (int i = 0; i < 10; ++i) {
    x.copy_(tensor(count(n, float(i))));
    others.push_back(full({n}, float(i), o));
    graph.replay();
    others.push_back(full({n}, float(i), o));
    const float v = float(i + 5);
    EXPECT_EQ(y[5].item<float>(), (2 * v + 1) * (2 * v + 1) - v);
  }
  for (size_t i = 0; i < others.size(); ++i)
    EXPECT_EQ(others[i].max().item<float>(), float(i / 2)) << i;
  graph.reset();
  EXPECT_ERROR(graph.replay(), "the graph holds nothing");
}

// See Note [Random numbers in graphs].
TEST(CudaGpu, ReplaysDrawNewNumbers) {
  NEEDS_GPU();
  const TensorOptions o(kFloat32, kCUDA);
  const Tensor ones_in = ones({100000}, o);
  const auto step = [&] {
    Tensor x = ones_in.detach().requires_grad_();
    const Tensor dropped = dropout(x, 0.25, true);
    dropped.backward(ones_in);
    return std::vector<Tensor>{rand({1000}, o),
                               randint(0, 1000, {1000}, TensorOptions(kInt64, kCUDA)),
                               dropped.detach(), x.grad()};
  };
  step();
  manual_seed(3);
  cuda::Graph graph;
  std::vector<Tensor> drawn;
  {
    cuda::GraphCapture capture(graph);
    drawn = step();
    capture.end();
  }
  const auto replay = [&] {
    graph.replay();
    std::vector<Tensor> r;
    for (const Tensor& t : drawn) r.push_back(t.cpu());
    return r;
  };
  const std::vector<Tensor> first = replay(), second = replay();
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_FALSE(equal(first[i], second[i])) << i;
    EXPECT_EQ(i < 2, !equal(first[i], first[2])) << i;  // the backward pass has the same mask
  }
  for (const auto& r : {first, second}) {
    EXPECT_NEAR(r[0].mean().item<double>(), 0.5, 0.05);
    EXPECT_NEAR(r[2].eq(Scalar(0)).to(kFloat64).mean().item<double>(), 0.25, 0.01);
  }
  manual_seed(7);
  const std::vector<Tensor> again = replay();
  manual_seed(7);
  const std::vector<Tensor> same = replay();
  for (size_t i = 0; i < again.size(); ++i) EXPECT_TRUE(equal(again[i], same[i])) << i;
  // What the same calls draw outside of the graph in its place, and after it.
  const Tensor next = rand({10}, o);
  manual_seed(7);
  const std::vector<Tensor> eager = step();
  for (size_t i = 0; i < again.size(); ++i) EXPECT_TRUE(equal(again[i], eager[i].cpu())) << i;
  EXPECT_TRUE(equal(next, rand({10}, o)));
}

TEST(CudaGpu, BackwardInAGraphOfItsOwnDrawsTheMaskAgain) {
  NEEDS_GPU();
  const TensorOptions o(kFloat32, kCUDA);
  const cuda::GraphPool pool;
  cuda::Graph forward, backward;
  Tensor x = ones({1000}, o);
  x.requires_grad_();
  const Tensor ones_in = ones({1000}, o);
  dropout(x, 0.25, true).backward(ones_in);
  manual_seed(3);
  Tensor y, g;
  {
    cuda::GraphCapture capture(forward, pool);
    y = dropout(x, 0.25, true);
    capture.end();
  }
  {
    cuda::GraphCapture capture(backward, pool);
    g = autograd::grad(std::span(&y, 1), std::span(&x, 1), std::span(&ones_in, 1))[0];
    capture.end();
  }
  manual_seed(11);
  for (int i = 0; i < 3; ++i) {
    forward.replay();
    backward.replay();
    EXPECT_TRUE(equal(y.detach(), g)) << i;
  }
  const Tensor last = y.detach().cpu();
  manual_seed(11);
  for (int i = 0; i < 3; ++i) y = dropout(x, 0.25, true);
  EXPECT_TRUE(equal(y.detach().cpu(), last));
}

TEST(CudaGpu, GraphsShareAPoolAndKeepConstants) {
  NEEDS_GPU();
  const TensorOptions o(kFloat32, kCUDA);
  cuda::GraphPool pool;
  cuda::Graph first, second;
  Tensor a, b;
  const Tensor x = ones({100}, o);
  {
    cuda::GraphCapture capture(first, pool);
    a = x + tensor(count(100)).to(kCUDA);
    capture.end();
  }
  {
    const cuda::GraphCapture capture(second, pool);
    b = a * 2;
  }
  first.replay();
  second.replay();
  EXPECT_EQ(b[99].item<float>(), 200);
}

TEST(CudaGpu, CapturesOnAGivenStream) {
  NEEDS_GPU();
  const TensorOptions o(kFloat32, kCUDA);
  const cuda::Stream s, other;
  const cuda::GraphPool pool;
  const Tensor x = ones({100}, o);
  cuda::Graph first, second;
  Tensor a, b;
  {
    cuda::GraphCapture capture(first, pool, s);
    EXPECT_TRUE(cuda::current_stream() == s);
    EXPECT_TRUE(cuda::is_current_stream_capturing());
    a = x * 2;
    other.wait_stream(s);  // as users of the stream do: `other` joins the capture
    {
      const cuda::StreamGuard guard(other);
      EXPECT_TRUE(cuda::is_current_stream_capturing());
      b = a + 1;
    }
    s.wait_stream(other);
    cuda::Graph third;
    EXPECT_ERROR(cuda::GraphCapture(third, pool, cuda::Stream()), "already being captured");
    {
      const cuda::StreamGuard guard(cuda::default_stream());
      EXPECT_ERROR(cuda::GraphCapture(third, pool, s), "already being captured");
      EXPECT_TRUE(cuda::current_stream() == cuda::default_stream());
    }
    EXPECT_TRUE(cuda::current_stream() == s);
    capture.end();
  }
  EXPECT_TRUE(cuda::current_stream() == cuda::default_stream());
  EXPECT_FALSE(cuda::is_current_stream_capturing());
  {
    const cuda::StreamGuard guard(s);  // it is the current one already
    cuda::GraphCapture capture(second, s);
    b.add_(a);
    capture.end();
    EXPECT_TRUE(cuda::current_stream() == s);
  }
  first.replay();
  second.replay();
  EXPECT_EQ(b[99].item<float>(), 5);
  // The stream is as good as it was.
  const cuda::StreamGuard guard(s);
  EXPECT_EQ((x + 3)[99].item<float>(), 4);
  cuda::Graph none;
  EXPECT_ERROR(cuda::GraphCapture(none, cuda::default_stream()),
               "CUDA graphs must be captured on a non-default stream");
  EXPECT_FALSE(none.is_ready());
}

TEST(CudaGpu, AnErrorDuringACaptureDiscardsIt) {
  NEEDS_GPU();
  const TensorOptions o(kFloat32, kCUDA);
  cuda::Graph graph;
  const Tensor x = ones({4}, o);
  EXPECT_THROW(
      {
        const cuda::GraphCapture capture(graph);
        const Tensor y = x + 1;
        throw std::runtime_error("stop");
      },
      std::runtime_error);
  EXPECT_FALSE(graph.is_ready());
  EXPECT_FALSE(cuda::is_current_stream_capturing());
  EXPECT_EQ((x + 1)[3].item<float>(), 2);
}

TEST(CudaGpu, IndexErrorsAreRaisedAtTheNextWait) {
  NEEDS_GPU();
  const Tensor table = arange(12, TensorOptions(kFloat32, kCUDA)).reshape({3, 4});
  const Tensor index = tensor(std::vector<int64_t>{1, 7}).to(kCUDA);
  const Tensor rows = table.index_select(0, index);
  EXPECT_ERROR(cuda::synchronize(), "index 7 is out of bounds for dimension 0 with size 3");
  cuda::synchronize();  // once
  EXPECT_EQ(table.sum().item<float>(), 66);
  EXPECT_EQ(table.index_select(0, tensor(std::vector<int64_t>{2}).to(kCUDA))[0][3].item<float>(),
            11);
}

TEST(CudaGpu, MemoryCounters) {
  NEEDS_GPU();
  cuda::synchronize();
  const size_t before = cuda::memory_allocated();
  cuda::reset_peak_memory_stats();
  {
    const Tensor x = empty({1 << 20}, TensorOptions(kFloat32, kCUDA));
    EXPECT_GE(cuda::memory_allocated(), before + (size_t(4) << 20));
  }
  EXPECT_EQ(cuda::memory_allocated(), before);
  EXPECT_GE(cuda::max_memory_allocated(), before + (size_t(4) << 20));
  EXPECT_GE(cuda::memory_reserved(), cuda::memory_allocated());
  EXPECT_GE(cuda::max_memory_reserved(), cuda::memory_reserved());
  EXPECT_FALSE(cuda::memory_summary().empty());
  cuda::empty_cache();
  EXPECT_ERROR(empty({int64_t(1) << 45}, TensorOptions(kFloat32, kCUDA)), "memory");
  EXPECT_EQ(ones({2}, TensorOptions(kFloat32, kCUDA)).sum().item<float>(), 2);
}

TEST(CudaGpu, WithoutANumberItIsTheCurrentOne) {
  NEEDS_GPU();
  if (cuda::device_count() < 2) GTEST_SKIP() << "one GPU";
  const Device first(DeviceType::cuda, 0), second(DeviceType::cuda, 1);
  const Tensor host = tensor({1.0f, 2.0f, 3.0f});
  EXPECT_EQ(host.cuda().device(), first);
  const cuda::DeviceGuard guard(1);
  const size_t before = cuda::memory_allocated();
  const Tensor x = host.cuda(), y = full({3}, 2, TensorOptions(kFloat32, kCUDA));
  EXPECT_EQ(x.device(), second);
  EXPECT_EQ((x * y).to_vector<float>(), (std::vector<float>{2, 4, 6}));
  EXPECT_GT(cuda::memory_allocated(), before);
  EXPECT_EQ(host.cuda(0).to(kCUDA).device(), second);
  EXPECT_EQ(cuda::current_stream().device(), 1);
  cuda::Graph graph;
  Tensor z;
  {
    cuda::GraphCapture capture(graph);
    z = x + y;
    capture.end();
  }
  graph.replay();
  EXPECT_EQ(z.device(), second);
  EXPECT_EQ(z.to_vector<float>(), (std::vector<float>{3, 4, 5}));
}

TEST(CudaGpu, TensorsOnTwoDevicesDoNotMix) {
  NEEDS_GPU();
  EXPECT_ERROR(ones({2}) + ones({2}, TensorOptions(kFloat32, kCUDA)),
               "Expected all tensors to be on the same device");
}

TEST(CudaGpu, CopiesBetweenGpus) {
  NEEDS_GPU();
  if (cuda::device_count() < 2) GTEST_SKIP() << "there is one GPU";
  const Device one(DeviceType::cuda, 1);
  const Tensor host = arange(1000000, kFloat32);
  const Tensor a = host.to(kCUDA) + 1, b = a.to(one) * 2, c = b.to(kCUDA) - 1;
  EXPECT_EQ(b.device(), one);
  EXPECT_EQ(c[99].item<float>(), 199);
  EXPECT_EQ(c[999999].item<float>(), 2 * 1000000 - 1);
  Tensor d = zeros({2, 3}, TensorOptions(kFloat64, one));
  d.copy_(ones({3}, TensorOptions(kFloat32, kCUDA)));
  EXPECT_EQ(d.sum().item<double>(), 6);
  const cuda::DeviceGuard guard(1);
  EXPECT_EQ(cuda::current_stream().device(), 1);
  EXPECT_FALSE(cuda::can_device_access_peer(1, 1));
}

TEST(CudaGpu, ThreadsCopyAtTheSameTime) {
  NEEDS_GPU();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      const cuda::Stream stream;
      const cuda::StreamGuard guard(stream);
      for (int i = 0; i < 5; ++i) {
        const Tensor host = full({700000}, float(10 * t + i), kFloat32);
        EXPECT_EQ(host.to(kCUDA).cpu().data<float>()[699999], float(10 * t + i));
        EXPECT_EQ(host.pin_memory().to(kCUDA, true).to(kCPU, true).data<float>()[1],
                  float(10 * t + i));
      }
    });
  for (std::thread& t : threads) t.join();
}

}  // namespace
}  // namespace arete
