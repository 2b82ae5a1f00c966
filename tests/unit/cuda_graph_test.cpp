// Graphs on a GPU: what they replay, random numbers in them, pools, streams, errors.
#include <gtest/gtest.h>

#include <numeric>
#include <span>
#include <stdexcept>
#include <vector>

#include "arete/arete.h"
#include "tests/support/errors.h"
#include "tests/support/gpu.h"

namespace arete {
namespace {

std::vector<float> count(int64_t n, float start = 0) {
  std::vector<float> v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), start);
  return v;
}

TEST(CudaGraphs, GraphReplaysWhileOthersAllocate) {
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
TEST(CudaGraphs, ReplaysDrawNewNumbers) {
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

TEST(CudaGraphs, BackwardInAGraphOfItsOwnDrawsTheMaskAgain) {
  NEEDS_GPU();
  const TensorOptions o(kFloat32, kCUDA);
  const cuda::MemPool pool;
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

TEST(CudaGraphs, GraphsShareAPoolAndKeepConstants) {
  NEEDS_GPU();
  const TensorOptions o(kFloat32, kCUDA);
  cuda::MemPool pool;
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

TEST(CudaGraphs, CapturesOnAGivenStream) {
  NEEDS_GPU();
  const TensorOptions o(kFloat32, kCUDA);
  const cuda::Stream s, other;
  const cuda::MemPool pool;
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

// See Note [Early starts]: from Hopper on the last kernel is placed beside those of the slow
// branch.
TEST(CudaGraphs, AKernelWhereBranchesJoinWaitsForTheSlowOne) {
  NEEDS_GPU();
  const TensorOptions o(kFloat32, kCUDA);
  const int64_t n = int64_t{1} << 20;
  Tensor x = zeros({n}, o);
  const cuda::Stream s, other;
  cuda::Graph graph;
  Tensor slow, quick, both;
  {
    cuda::GraphCapture capture(graph, s);
    const Tensor begin = x + 1;
    other.wait_stream(s);
    {
      const cuda::StreamGuard guard(other);
      slow = begin;
      for (int k = 0; k < 8; ++k) slow = slow.cumsum(0) / float(n) + begin;
    }
    quick = begin.slice(0, n - 4, n) * 2;
    s.wait_stream(other);
    both = slow.slice(0, n - 4, n) - quick;
    capture.end();
  }
  for (int i = 0; i < 300; ++i) {
    x.fill_(float(i % 7));
    graph.replay();
    const Tensor got = both.cpu();  // before any other kernel
    EXPECT_TRUE(equal(got, (slow.slice(0, n - 4, n) - quick).cpu())) << i;
    EXPECT_EQ(quick[3].item<float>(), float(2 * (i % 7 + 1))) << i;
    // Means of means: the sum of 1 / k!, about e.
    EXPECT_NEAR(slow[n - 1].item<float>() / float(i % 7 + 1), 2.71828, 1e-2) << i;
  }
}

// Also a block that is new at the address of the one before.
TEST(CudaGraphs, EachLaunchKeepsWhatItUsesFromOtherStreams) {
  NEEDS_GPU();
  const TensorOptions o(kFloat32, kCUDA);
  const int64_t n = int64_t{1} << 22;
  const cuda::Stream side;
  const auto on_side = [&](double value) {
    const cuda::StreamGuard guard(side);
    return full({n}, value, o);
  };
  const Tensor w = eye(4096, o);
  Tensor x = on_side(1), y, busy = w;
  const void* const at = x.data_ptr();
  cuda::synchronize();
  cuda::Graph graph;
  {
    cuda::GraphCapture capture(graph);
    y = x * 2;
    capture.end();
  }
  for (int k = 1; k <= 4; ++k) {
    x = Tensor();
    cuda::synchronize();
    x = on_side(k);
    std::vector<Tensor> elsewhere;
    while (x.data_ptr() != at && elsewhere.size() < 8) {
      elsewhere.push_back(x);
      x = on_side(k);
    }
    ASSERT_EQ(x.data_ptr(), at) << k;
    cuda::current_stream().wait_stream(side);
    for (int i = 0; i < 20; ++i) busy = matmul(busy, w);  // some milliseconds
    graph.replay();
    x = Tensor();
    const Tensor other = on_side(-1);
    EXPECT_NE(other.data_ptr(), at) << k;
    EXPECT_EQ(y[n - 1].item<float>(), float(2 * k));
  }
}

TEST(CudaGraphs, AGraphKeepsPlansOfTransformsThatOthersTakeThePlaceOf) {
  NEEDS_GPU();
  const Tensor x = randn({4, 2310}, TensorOptions(kComplex64, kCUDA));
  const Tensor before = fft::fft(x).cpu();
  cuda::Graph graph;
  Tensor y;
  {
    cuda::GraphCapture capture(graph);
    y = fft::fft(x);
    capture.end();
  }
  for (int64_t n = 2; n < 400; ++n) (void)fft::fft(x.slice(1, 0, n));
  y.zero_();
  graph.replay();
  EXPECT_TRUE(equal(y.cpu(), before));
}

TEST(CudaGraphs, AnErrorDuringACaptureDiscardsIt) {
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

}  // namespace
}  // namespace arete
