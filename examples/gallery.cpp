// The pictures of examples/gallery in C++: kernels in CUDA C++ and operators, on the GPU or, where
// there is none, on the CPU.
//
//     example_gallery [FOLDER [NAME ...]]
#include <arete/arete.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

using namespace arete;

namespace {

Device device() { return cuda::is_available() ? Device("cuda") : Device("cpu"); }
TensorOptions f32() { return TensorOptions().dtype(kFloat32).device(device()); }
TensorOptions i32() { return TensorOptions().dtype(kInt32).device(device()); }
unsigned blocks(int64_t n, int64_t threads) { return unsigned((n + threads - 1) / threads); }

/// A picture of values (rows, columns): dark blue, through red, to a light yellow.
void save(const std::filesystem::path& file, const Tensor& values) {
  Tensor v = values.to(kCPU).to(kFloat64);
  v = (v - v.min()) / (v.max() - v.min()).clamp(1e-30);
  const Tensor colours = stack({2.4 * v, 2.0 * v - 0.7, 0.35 + 0.5 * (5 * v).sin()});
  io::write_image(file.string(), (colours.clamp(0, 1) * 255).to(kUInt8));
}

/// Discs and stripes, with noise.
Tensor scene(int64_t n) {
  const Tensor y = arange(n, f32()).unsqueeze(1) / double(n), x = arange(n, f32()) / double(n);
  Tensor p = 0.5 + 0.3 * (40 * x).sin() * (y > 0.6).to(kFloat32);
  const double discs[3][4] = {{0.3, 0.3, 0.2, 0.9}, {0.9, 0.35, 0.25, 0.1}, {0.6, 0.5, 0.15, 0.7}};
  for (const auto& [cx, cy, r, value] : discs)
    p = where((x - cx) * (x - cx) + (y - cy) * (y - cy) < r * r, full({}, value, f32()), p);
  return p + 0.08 * randn({n, n}, f32());
}

Tensor mandelbrot() {
  const int n = 400;
  const cuda::RawKernel escape(R"(extern "C" __global__ void escape(int* steps, int n, int most) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n * n) return;
    const float re = -2.2f + 3.0f * (i % n) / (n - 1), im = -1.5f + 3.0f * (i / n) / (n - 1);
    float x = 0, y = 0;
    int k = 0;
    while (k < most && x * x + y * y < 4) {
      const float t = x * x - y * y + re;
      y = 2 * x * y + im;
      x = t;
      ++k;
    }
    steps[i] = k;
  })",
                               "escape");
  const Tensor steps = empty({n, n}, i32());
  escape({blocks(n * n, 128), 1, 1}, {128, 1, 1}, {steps, n, 100});
  return (steps + 1).to(kFloat32).log();
}

Tensor life() {
  const int n = 256;
  const cuda::RawKernel step(R"(extern "C" __global__ void step(const int* now, int* then, int n) {
    const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= n || j >= n) return;
    int alive = 0;
    for (int a = n - 1; a <= n + 1; ++a)
      for (int b = n - 1; b <= n + 1; ++b) alive += now[(i + a) % n * n + (j + b) % n];
    const int here = now[i * n + j];
    then[i * n + j] = alive == 3 || (alive == 4 && here) ? 1 : 0;
  })",
                             "step");
  Tensor now = (rand({n, n}, f32()) < 0.3).to(kInt32), then = empty_like(now);
  for (int k = 0; k < 50; ++k) {
    step({blocks(n, 32), blocks(n, 8), 1}, {32, 8, 1}, {now, then, n});
    std::swap(now, then);
  }
  return now;
}

Tensor heat() {
  const int n = 128;
  const cuda::RawKernel spread(
      R"(extern "C" __global__ void spread(const float* u, float* v, int n) {
    const int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r >= n || c >= n) return;
    const int i = r * n + c;
    v[i] = u[i];
    if (r > 0 && c > 0 && r < n - 1 && c < n - 1)
      v[i] = u[i] + 0.2f * (u[i - n] + u[i + n] + u[i - 1] + u[i + 1] - 4 * u[i]);
  })",
      "spread");
  Tensor u = zeros({n, n}, f32()), v = empty_like(u);
  u.select(0, 0).fill_(1);
  u.select(1, 0).copy_(linspace(1, 0, n, f32()));
  for (int k = 0; k < 200; ++k) {
    spread({blocks(n, 32), blocks(n, 8), 1}, {32, 8, 1}, {u, v, n});
    std::swap(u, v);
  }
  return u;
}

Tensor histogram() {
  const int bins = 256, n = 100000, high = 200;
  const cuda::RawKernel count(
      R"(extern "C" __global__ void count(const float* x, int n, int* counts) {
    __shared__ int mine[256];
    mine[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
      atomicAdd(&mine[min(max((int)(x[i] * 256), 0), 255)], 1);
    __syncthreads();
    atomicAdd(&counts[threadIdx.x], mine[threadIdx.x]);
  })",
      "count");
  const Tensor x = (0.5 + 0.12 * randn({n}, f32())).clamp(0, 1), counts = zeros({bins}, i32());
  count({64, 1, 1}, {unsigned(bins), 1, 1}, {x, n, counts});
  const Tensor bars = counts.to(kFloat32) * (0.95 * high) / counts.max().to(kFloat32);
  return (high - arange(high, f32()).unsqueeze(1) <= bars).to(kFloat32);
}

Tensor bandwidth() {
  const int n = 1 << 20, high = 200, bar = 40;
  const cuda::RawKernel taken(
      R"(extern "C" __global__ void taken(const float* x, float* y, int n, unsigned step) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[(unsigned)i * step % (unsigned)n];
  })",
      "taken");
  const Tensor x = rand({n}, f32()), y = empty_like(x);
  const auto wait = [] {
    if (cuda::is_available()) cuda::synchronize();
  };
  std::vector<double> rates;
  for (unsigned step = 1; step <= 32; step *= 2) {
    double best = 1e9;
    for (int round = 0; round < 5; ++round) {
      wait();
      const auto begin = std::chrono::steady_clock::now();
      taken({blocks(n, 256), 1, 1}, {256, 1, 1}, {x, y, n, step});
      wait();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      best = std::min(best, took.count());
    }
    rates.push_back(8e-9 * n / best);
    std::printf("every %u. element: %.1f GB/s\n", step, rates.back());
    if (!equal(y,
               x.index_select(0, arange(n, TensorOptions().device(device())) * int64_t(step) % n)))
      throw ValueError("bandwidth", "the copy is none");
  }
  const Tensor tall = tensor(rates).to(kFloat32).to(device()).repeat_interleave(bar);
  return (high - arange(high, f32()).unsqueeze(1) <= tall * (0.95 * high) / tall.max())
      .to(kFloat32);
}

Tensor product() {
  const int n = 200;
  const cuda::RawKernel tiled(R"(
  #define TILE 16
  extern "C" __global__ void tiled(const float* a, const float* b, float* c, int n) {
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    const int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float sum = 0;
    for (int t = 0; t < n; t += TILE) {
      left[ty][tx] = row < n && t + tx < n ? a[row * n + t + tx] : 0.0f;
      right[ty][tx] = t + ty < n && col < n ? b[(t + ty) * n + col] : 0.0f;
      __syncthreads();
      for (int j = 0; j < TILE; ++j) sum += left[ty][j] * right[j][tx];
      __syncthreads();
    }
    if (row < n && col < n) c[row * n + col] = sum;
  })",
                              "tiled");
  const Tensor a = randn({n, n}, f32()), b = randn({n, n}, f32()), c = empty({n, n}, f32());
  tiled({blocks(n, 16), blocks(n, 16), 1}, {16, 16, 1}, {a, b, c, n});
  if (!allclose(c, a.matmul(b), 1e-3, 1e-3)) throw ValueError("product", "it is not the product");
  return c;
}

Tensor nbody() {
  const int n = 300, steps = 40, size = 300;
  const cuda::RawKernel attract(R"(
  extern "C" __global__ void attract(const float* x, float* force, int n) {
    __shared__ float tile[3][128];
    const int i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x;
    const float px = i < n ? x[i] : 0.0f, py = i < n ? x[n + i] : 0.0f;
    float fx = 0, fy = 0;
    for (int start = 0; start < n; start += 128) {
      for (int k = 0; k < 3; ++k) tile[k][t] = start + t < n ? x[k * n + start + t] : 0.0f;
      __syncthreads();
      for (int j = 0; j < 128; ++j) {
        const float dx = tile[0][j] - px, dy = tile[1][j] - py;
        const float r = rsqrtf(dx * dx + dy * dy + 0.01f), w = tile[2][j] * r * r * r;
        fx += dx * w;
        fy += dy * w;
      }
      __syncthreads();
    }
    if (i < n) force[i] = fx, force[n + i] = fy;
  })",
                                "attract");
  const Tensor x = cat({randn({2, n}, f32()), full({1, n}, 1.0 / n, f32())});
  Tensor v = 0.5 * stack({-x.select(0, 1), x.select(0, 0)});
  const Tensor force = empty({2, n}, f32());
  Tensor places = x.narrow(0, 0, 2);
  Tensor seen = zeros({size * size}, f32());
  for (int k = 0; k < steps; ++k) {
    attract({blocks(n, 128), 1, 1}, {128, 1, 1}, {x, force, n});
    v = v + 0.01 * force;
    places.add_(0.01 * v);
    const Tensor at = ((places + 3) / 6 * size).clamp(0, size - 1).to(kInt64);
    seen = seen.index_add(0, at.select(0, 1) * size + at.select(0, 0), ones({n}, f32()));
  }
  return (seen + 1).log().view({size, size});
}

Tensor monte_carlo() {
  const int n = 1 << 20, size = 200;
  const Tensor x = rand({n}, f32()), y = rand({n}, f32());
  const Tensor inside = (x * x + y * y < 1).to(kFloat32);
  const double pi = 4 * inside.mean().item<float>();
  // A European call beside the formula of Black and Scholes.
  const double s0 = 100, strike = 105, rate = 0.03, volatility = 0.2;
  const Tensor ends =
      s0 * ((rate - volatility * volatility / 2) + volatility * randn({n}, f32())).exp();
  const double price = std::exp(-rate) * (ends - strike).clamp(0).mean().item<float>();
  const double d = (std::log(s0 / strike) + rate + volatility * volatility / 2) / volatility;
  const auto normal = [](double v) { return 0.5 * std::erfc(-v / std::sqrt(2.0)); };
  const double exact = s0 * normal(d) - strike * std::exp(-rate) * normal(d - volatility);
  std::printf("pi %.4f, price %.3f (%.3f)\n", pi, price, exact);
  if (std::abs(pi - M_PI) > 0.02 || std::abs(price - exact) > 0.2)
    throw ValueError("monte_carlo", "the numbers are far from what they are");
  const Tensor at =
      (y.narrow(0, 0, 20000) * size).to(kInt64) * size + (x.narrow(0, 0, 20000) * size).to(kInt64);
  Tensor drawn = zeros({size * size}, f32());
  return drawn.index_put_({at}, 1 + inside.narrow(0, 0, 20000)).view({size, size});
}

Tensor kmeans() {
  const int n = 3000, k = 8, size = 300;
  const Tensor points = 0.5 * randn({n, 2}, f32()) + randint(-2, 3, {n, 2}, f32());
  Tensor centers = points.narrow(0, 0, k).clone(), group;
  for (int step = 0; step < 10; ++step) {
    group = (points.unsqueeze(1) - centers).square().sum({2}).argmin(1);
    const Tensor member =
        (group.unsqueeze(1) == arange(k, TensorOptions().device(device()))).to(kFloat32);
    centers = member.t().matmul(points) / member.sum({0}).clamp(1).unsqueeze(1);
  }
  const Tensor at = ((points + 4) / 8 * size).clamp(0, size - 1).to(kInt64);
  Tensor drawn = zeros({size * size}, f32());
  drawn.index_put_({at.select(1, 1) * size + at.select(1, 0)}, (group + 1).to(kFloat32));
  return drawn.view({size, size});
}

Tensor fft_filter() {
  const int64_t n = 256;
  const Tensor x = scene(n), rows = fft::fftfreq(n, 1, f32()).unsqueeze(1),
               columns = fft::rfftfreq(n, 1, f32());
  const Tensor kept = (rows.square() + columns.square() < 0.01).to(kFloat32);
  return cat({x, fft::irfft2(fft::rfft2(x) * kept, {{n, n}})}, 1);
}

Tensor filters() {
  const int n = 256;
  const cuda::RawKernel bilateral(R"(
  extern "C" __global__ void bilateral(const float* x, float* y, int n, int reach, float near, float alike) {
    const int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r >= n || c >= n) return;
    float sum = 0, weights = 0;
    for (int a = max(r - reach, 0); a <= min(r + reach, n - 1); ++a)
      for (int b = max(c - reach, 0); b <= min(c + reach, n - 1); ++b) {
        const float d = x[a * n + b] - x[r * n + c];
        const float w = expf(-((a - r) * (a - r) + (b - c) * (b - c)) * near - d * d * alike);
        sum += w * x[a * n + b];
        weights += w;
      }
    y[r * n + c] = sum / weights;
  })",
                                  "bilateral");
  const Tensor x = scene(n), smooth = empty_like(x);
  bilateral({blocks(n, 32), blocks(n, 8), 1}, {32, 8, 1}, {x, smooth, n, 2, 1 / 4.5f, 12.5f});
  const Tensor image = x.view({1, 1, n, n}), d = arange(-8, 9, f32());
  const Tensor bell = (-0.125 * d.square()).exp(), weights = bell / bell.sum();
  const Tensor blurred = conv2d(conv2d(image, weights.view({1, 1, -1, 1}), {}, {1, 1}, {8, 0}),
                                weights.view({1, 1, 1, -1}), {}, {1, 1}, {0, 8});
  const Tensor sobel = tensor({1.0, 2.0, 1.0}).to(device()).to(kFloat32).unsqueeze(1) *
                       tensor({-1.0, 0.0, 1.0}).to(device()).to(kFloat32);
  const auto along = [&](const Tensor& w) {
    return conv2d(image, w.contiguous().view({1, 1, 3, 3}), {}, {1, 1}, {1, 1});
  };
  const Tensor edges = hypot(along(sobel), along(sobel.t())).view({n, n});
  return cat({x, blurred.view({n, n}), edges / edges.max(), smooth}, 1);
}

}  // namespace

int main(int count, char** words) {
  const std::filesystem::path folder = count > 1 ? words[1] : ".";
  const std::map<std::string, Tensor (*)()> programs = {
      {"bandwidth", ::bandwidth}, {"fft_filter", ::fft_filter}, {"filters", ::filters},
      {"heat", ::heat},           {"histogram", ::histogram},   {"kmeans", ::kmeans},
      {"life", ::life},           {"mandelbrot", ::mandelbrot}, {"monte_carlo", ::monte_carlo},
      {"nbody", ::nbody},         {"product", ::product}};
  const std::vector<std::string> wanted(words + std::min(count, 2), words + count);
  manual_seed(0);
  for (const auto& [name, program] : programs) {
    if (!wanted.empty() && std::ranges::find(wanted, name) == wanted.end()) continue;
    const auto begin = std::chrono::steady_clock::now();
    save(folder / (name + ".png"), program());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("%-12s %7.1f ms\n", name.c_str(), took.count() * 1e3);
  }
  return 0;
}
