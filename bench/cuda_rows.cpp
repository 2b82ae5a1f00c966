// Rows of one operator (and the small training step) on one GPU, under the peers' keys.
#include <benchmark/benchmark.h>

#include <array>
#include <cmath>

#include "arete/base/error.h"
#include "arete/core/matmul_precision.h"
#include "arete/core/modes.h"
#include "arete/expr/value.h"
#include "arete/nn/activation.h"
#include "arete/nn/container.h"
#include "arete/nn/linear.h"
#include "arete/nn/utils.h"
#include "arete/ops/activation.h"
#include "arete/ops/call.h"
#include "arete/ops/conv.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/loss.h"
#include "arete/ops/matmul.h"
#include "arete/ops/nn.h"
#include "arete/ops/norm.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/ops/softmax.h"
#include "arete/ops/sort.h"
#include "arete/optim/adam.h"
#include "arete/prim/cudnn_switches.h"
#include "bench/row.h"
#include "bench/start.h"

namespace arete::bench {
namespace {

using Prepare = std::function<std::function<void()>()>;

TensorOptions gpu(DType t = kFloat32) { return TensorOptions(t, kCUDA); }
std::string suffix(DType t) { return t == kFloat32 ? "f32" : t == kBFloat16 ? "bf16" : "f16"; }

/// As dropping, without history.
template <class F>
std::function<void()> plain(F f) {
  return [f = std::move(f)] {
    NoGradGuard guard;
    auto result = f();
    benchmark::DoNotOptimize(result);
  };
}

class Rows {
 public:
  Row& add(std::string name, Unit unit, double amount, Goal goal, Prepare prepare) {
    Row row{.name = std::move(name), .unit = unit, .amount = amount, .prepare = std::move(prepare)};
    row.timing = Timing::device;
    row.repetitions = 30;
    row.goal = goal;
    rows_.push_back(std::move(row));
    return rows_.back();
  }
  void host(std::string name, Goal goal, Prepare prepare, int calls = 2000) {
    Row& row = add(std::move(name), Unit::us, 0, goal, std::move(prepare));
    row.timing = Timing::host;
    row.calls = calls;
    row.repetitions = 7;
  }
  std::vector<Row> take() { return std::move(rows_); }

 private:
  std::vector<Row> rows_;
};

void add_overhead(Rows& rows) {
  rows.host("libtorch/add", at_most(4.2), [] {
    return plain([a = randn({16}, gpu()), b = randn({16}, gpu())] { return a + b; });
  });
  rows.host("libtorch/add_", {}, [] {
    return [a = randn({16}, gpu()), b = randn({16}, gpu())]() mutable {
      NoGradGuard guard;
      a.add_(b);
    };
  });
  rows.host("libtorch/mm16", {}, [] {
    return plain([m = randn({16, 16}, gpu())] { return mm(m, m); });
  });
  rows.host("libtorch/view", at_most(0.08), [] {
    return plain([m = randn({16, 16}, gpu())] { return m.view({256}); });
  });
  rows.host("libtorch/empty", at_most(0.2),
            [] { return plain([] { return empty({1024}, gpu()); }); });
  rows.host("libtorch/sum", {}, [] {
    return plain([m = randn({16, 16}, gpu())] { return m.sum(); });
  });
  rows.host("libtorch/add_autograd", {}, [] {
    Tensor a = randn({16}, gpu());
    a.requires_grad_();
    return dropping([a, b = randn({16}, gpu())] { return a + b; });
  });
  rows.host(
      "libtorch/fwd_bwd_4ops", at_most(45),
      [] {
        Tensor r = randn({16}, gpu());
        r.requires_grad_();
        return [r, a = randn({16}, gpu()), b = randn({16}, gpu())] {
          relu(r * b + a).sum().backward();
          r.set_grad({});
        };
      },
      300);
}

expr::ProgramPtr chain_program(DType t) {
  const std::array<DType, 2> inputs{t, t};
  const std::array<DType, 1> outputs{t};
  return expr::trace(
      [](std::span<const expr::Value> v) -> std::vector<expr::Value> {
        const expr::Value p = v[0], q = v[1], x = p * 1.5 + q;
        const expr::Value gelu = 0.5 * x * (1.0 + erf(x * 0.70710678118654752440));
        return {gelu * sigmoid(q) - tanh(p)};
      },
      inputs, {}, outputs);
}

void add_bandwidth(Rows& rows, DType t) {
  constexpr int64_t n = int64_t(1) << 28;
  const double bytes = double(n) * double(size_of(t));
  const std::string s = suffix(t);
  const Unit rate = Unit::gb_per_s;
  rows.add("bw/copy_" + s, rate, 2 * bytes, times_the_peer(0.98), [t] {
    return [x = randn({n}, gpu(t)), o = empty({n}, gpu(t))]() mutable { o.copy_(x); };
  });
  rows.add("bw/add_" + s, rate, 3 * bytes, {}, [t] {
    return plain([x = randn({n}, gpu(t)), y = randn({n}, gpu(t))] { return x + y; });
  });
  rows.add("bw/gelu_" + s, rate, 2 * bytes, at_least(4000),
           [t] { return plain([x = randn({n}, gpu(t))] { return gelu(x); }); });
  rows.add("bw/sum_all_" + s, rate, bytes, at_least(4000),
           [t] { return plain([x = randn({n}, gpu(t))] { return x.sum(); }); });
  rows.add("bw/chain6_eager_" + s, Unit::ms, 0, {}, [t] {
    return plain([p = randn({n}, gpu(t)), q = randn({n}, gpu(t))] {
      return gelu(p * 1.5 + q) * sigmoid(q) - tanh(p);
    });
  });
  rows.add("bw/chain6_compile_" + s, rate, 3 * bytes, at_least(4000), [t] {
    return plain(
        [in = std::array<Tensor, 2>{randn({n}, gpu(t)), randn({n}, gpu(t))},
         program = chain_program(t)] { return ops::apply_program(program, in, {}, "chain6"); });
  });
  const auto matrix = [t] { return randn({16384, n / 16384}, gpu(t)); };
  rows.add("bw/sum_dim0_" + s, rate, bytes, at_least(3900),
           [=] { return plain([x = matrix()] { return x.sum(0); }); });
  rows.add("bw/sum_dim1_" + s, rate, bytes, at_least(3900),
           [=] { return plain([x = matrix()] { return x.sum(1); }); });
  rows.add("bw/transpose_contig_" + s, rate, 2 * bytes, at_least(t == kFloat32 ? 3400 : 3000),
           [=] { return plain([x = matrix()] { return x.t().contiguous(); }); });
  rows.add("bw/cumsum_" + s, rate, 2 * bytes, at_least(t == kFloat32 ? 3400 : 3000),
           [t] { return plain([x = randn({n}, gpu(t))] { return x.cumsum(0); }); })
      .repetitions = 10;
}

void add_rows_of_rows(Rows& rows, DType t) {
  const std::string s = suffix(t);
  const bool f32 = t == kFloat32;
  constexpr int64_t vocabulary = 50304;
  const double logits = 8192.0 * vocabulary * double(size_of(t));
  const auto make_logits = [t] { return randn({8192, vocabulary}, gpu(t)); };
  const auto make_target = [] { return randint(vocabulary, {8192}, gpu(kInt64)); };
  rows.add("row/softmax50304_" + s, Unit::gb_per_s, 2 * logits, at_least(3700),
           [=] { return plain([x = make_logits()] { return softmax(x, -1); }); });
  rows.add("row/cross_entropy_fwd_" + s, Unit::ms, 0, {}, [=] {
    return plain([x = make_logits(), y = make_target()] { return cross_entropy(x, y); });
  });
  rows.add("row/cross_entropy_fwdbwd_" + s, Unit::ms, 0, at_most(f32 ? 1.3 : 0.68), [=] {
    Tensor x = make_logits();
    x.requires_grad_();
    return [x, y = make_target()] {
      x.set_grad({});
      cross_entropy(x, y).backward();
    };
  });
  const double hidden = 32768.0 * 1024 * double(size_of(t));
  const auto make_hidden = [t] { return randn({32768, 1024}, gpu(t)); };
  rows.add("row/layer_norm1024_" + s, Unit::gb_per_s, 2 * hidden, at_least(3700), [=] {
    return plain([x = make_hidden(), w = ones({1024}, gpu(t)), b = zeros({1024}, gpu(t))] {
      return layer_norm(x, {1024}, w, b);
    });
  });
  rows.add("row/layer_norm1024_fwdbwd_" + s, Unit::ms, 0, at_most(f32 ? 0.19 : 0.11), [=] {
    Tensor x = make_hidden(), w = ones({1024}, gpu(t)), b = zeros({1024}, gpu(t));
    for (Tensor* p : {&x, &w, &b}) p->requires_grad_();
    return [x, w, b, g = make_hidden()] {
      for (const Tensor& p : {x, w, b}) p.set_grad({});
      layer_norm(x, {1024}, w, b).backward(g);
    };
  });
  rows.add("row/dropout_" + s, Unit::gb_per_s, 2 * hidden, at_least(3700),
           [=] { return plain([x = make_hidden()] { return dropout(x, 0.1); }); });
}

void add_embedding(Rows& rows) {
  rows.add("row/embedding_fwdbwd_f32", Unit::ms, 0, at_most(0.55), [] {
    Tensor w = randn({50304, 1024}, gpu());
    w.requires_grad_();
    return [w, i = randint(50304, {65536}, gpu(kInt64)), g = randn({65536, 1024}, gpu())] {
      w.set_grad({});
      embedding(i, w).backward(g);
    };
  });
}

void add_products(Rows& rows) {
  const auto product = [&](DType t, const std::string& name, int64_t n, Goal goal) {
    rows.add("mm/" + name + "_" + std::to_string(n), Unit::tflop_per_s, 2 * std::pow(double(n), 3),
             goal,
             [=] {
               return plain(
                   [p = randn({n, n}, gpu(t)), q = randn({n, n}, gpu(t)), high = name == "tf32"] {
                     if (!high) return mm(p, q);
                     const std::string before = get_float32_matmul_precision();
                     set_float32_matmul_precision("high");
                     Tensor r = mm(p, q);
                     set_float32_matmul_precision(before);
                     return r;
                   });
             })
        .repetitions = 10;
  };
  for (int64_t n : {2048, 8192}) {
    const Goal goal = n == 8192 ? times_the_peer(0.98) : Goal{};
    product(kFloat64, "f64", n, goal);
    product(kFloat32, "f32", n, goal);
    product(kFloat32, "tf32", n, goal);
  }
  for (int64_t n : {512, 768, 1024, 1536, 2048, 8192})
    product(kFloat16, "f16", n, times_the_peer(n == 8192 ? 0.98 : 1.1));
  for (int64_t n : {2048, 4096, 8192})
    product(kBFloat16, "bf16", n, n == 8192 ? times_the_peer(0.98) : Goal{});
  rows.add("mm/fp8_8192", Unit::tflop_per_s, 2 * std::pow(8192.0, 3), times_the_peer(0.98),
           [] {
             const auto f8 = [] { return randn({8192, 8192}, gpu()).to(kFloat8E4M3); };
             return plain([x = f8(), w = f8().t(), one = ones({}, gpu())] {
               return scaled_mm(x, w, one, one);
             });
           })
      .repetitions = 10;
  rows.add("mm/linear_gelu_eager_bf16", Unit::ms, 0, at_most(0.23), [] {
    nn::Linear linear(1024, 4096);
    linear.to(kCUDA, kBFloat16);
    return plain([linear, x = randn({16384, 1024}, gpu(kBFloat16))] { return gelu(linear(x)); });
  });
  rows.add(
      "mm/bmm512x256_bf16", Unit::tflop_per_s, 2.0 * 512 * 256 * 256 * 256, times_the_peer(1), [] {
        return plain(
            [b = randn({512, 256, 256}, gpu(kBFloat16))] { return bmm(b, b.transpose(1, 2)); });
      });
}

void add_attention(Rows& rows) {
  for (int64_t d : {64, 128}) {
    const double flops = 4.0 * 8 * 16 * 4096 * 4096 * double(d) / 2;
    const auto make = [d] {
      std::array<Tensor, 3> t;
      for (Tensor& x : t) {
        x = randn({8, 16, 4096, d}, gpu(kBFloat16));
        x.requires_grad_();
      }
      return t;
    };
    rows.add("attn/causal_fwd_d" + std::to_string(d), Unit::tflop_per_s, flops,
             times_the_peer(1.15), [=] {
               return dropping([t = make()] {
                 return scaled_dot_product_attention(t[0], t[1], t[2], {}, 0, true);
               });
             });
    rows.add("attn/causal_fwdbwd_d" + std::to_string(d), Unit::tflop_per_s, 3.5 * flops,
             times_the_peer(1.15), [=] {
               return [t = make(), g = randn({8, 16, 4096, d}, gpu(kBFloat16))] {
                 for (const Tensor& x : t) x.set_grad({});
                 scaled_dot_product_attention(t[0], t[1], t[2], {}, 0, true).backward(g);
               };
             });
  }
}

void add_convolution(Rows& rows) {
  const double flops = 2.0 * 256 * 28 * 28 * 128 * 128 * 9;
  const struct {
    DType dtype;
    const char* name;
    bool tf32, timed;  // whether the fastest of cuDNN's engines is looked for
  } kinds[] = {{kFloat16, "f16", false, true},
               {kFloat16, "f16_not_timed", false, false},
               {kFloat32, "f32", false, true},
               {kFloat32, "tf32", true, true},
               {kFloat32, "tf32_not_timed", true, false}};
  for (const auto& k : kinds) {
    const DType t = k.dtype;
    const Goal goal = t == kFloat16 && k.timed ? times_the_peer(1) : Goal{};
    const auto make = [k, t] {
      cuda::set_cudnn_benchmark(k.timed);
      set_float32_convolution_tf32(k.tf32);
      std::array<Tensor, 2> r{
          randn({256, 128, 28, 28}, gpu(t)).contiguous(MemoryFormat::channels_last),
          (randn({128, 128, 3, 3}, gpu(t)) * 0.03).contiguous(MemoryFormat::channels_last)};
      for (Tensor& x : r) x.requires_grad_();
      return r;
    };
    rows.add(std::string("conv/3x3_128_fwd_") + k.name, Unit::tflop_per_s, flops, goal,
             [=] { return dropping([r = make()] { return conv2d(r[0], r[1], {}, 1, 1); }); });
    rows.add(std::string("conv/3x3_128_fwdbwd_") + k.name, Unit::tflop_per_s, 3 * flops, goal, [=] {
      const auto r = make();
      return [r, g = randn({256, 128, 28, 28}, gpu(t)).contiguous(MemoryFormat::channels_last)] {
        for (const Tensor& x : r) x.set_grad({});
        conv2d(r[0], r[1], {}, 1, 1).backward(g);
      };
    });
  }
  const auto bn_relu = [](bool fused) {
    const auto make = [] {
      return randn({256, 128, 56, 56}, gpu(kFloat16)).contiguous(MemoryFormat::channels_last);
    };
    Tensor x = make(), w = ones({128}, gpu()), b = zeros({128}, gpu());
    for (Tensor* p : {&x, &w, &b}) p->requires_grad_();
    return [x, w, b, fused, g = make(), mean = zeros({128}, gpu()), var = ones({128}, gpu())] {
      for (const Tensor& p : {x, w, b}) p.set_grad({});
      const Tensor y = fused ? batch_norm_relu(x, mean, var, w, b, true, 0.1, 1e-5)
                             : relu(batch_norm(x, mean, var, w, b, true, 0.1, 1e-5));
      y.backward(g);
    };
  };
  // As a Sequential runs them, and as two calls.
  rows.add("conv/bn_relu_fwdbwd_f16", Unit::ms, 0, at_most(0.47), [=] { return bn_relu(true); });
  rows.add("conv/bn_then_relu_fwdbwd_f16", Unit::ms, 0, {}, [=] { return bn_relu(false); });
}

std::vector<Tensor> gpt2_parameters() {
  std::vector<Shape> shapes{{50304, 768}, {1024, 768}};
  for (int layer = 0; layer < 12; ++layer)
    for (const Shape& s :
         {Shape{768}, Shape{768}, Shape{2304, 768}, Shape{2304}, Shape{768, 768}, Shape{768},
          Shape{768}, Shape{768}, Shape{3072, 768}, Shape{3072}, Shape{768, 3072}, Shape{768}})
      shapes.push_back(s);
  shapes.push_back({768});
  shapes.push_back({768});
  std::vector<Tensor> parameters;
  for (const Shape& s : shapes) {
    Tensor p = randn(s, gpu());
    p.requires_grad_();
    p.set_grad(randn(s, gpu()));
    parameters.push_back(p);
  }
  return parameters;
}

void add_optimizer(Rows& rows) {
  rows.add("optim/adamw_124M_fused", Unit::ms, 0, at_most(0.92), [] {
    auto adam = std::make_shared<optim::AdamW>(gpt2_parameters(), optim::AdamWOptions{.lr = 1e-4});
    return [adam] { adam->step(); };
  });
  rows.add("optim/clip_grad_norm_124M", Unit::ms, 0, at_most(0.40), [] {
    return dropping([p = gpt2_parameters()] { return nn::utils::clip_grad_norm_(p, 1.0); });
  });
}

void add_transfers(Rows& rows) {
  for (int64_t mb : {1, 10, 100, 1000}) {
    const double bytes = double(mb << 20);
    const std::string s = std::to_string(mb) + "MB";
    const auto host = [mb] { return full({mb << 20}, 1, kUInt8); };
    const auto device = [mb] { return empty({mb << 20}, gpu(kUInt8)); };
    const Goal pageable = mb == 1000 ? at_least(25) : Goal{};
    const Goal pinned = mb == 100 ? times_the_peer(0.98) : Goal{};
    const auto add = [&](const char* name, Goal goal, Prepare prepare) {
      rows.add(std::string("xfer/") + name + "_" + s, Unit::gb_per_s, bytes, goal, prepare)
          .repetitions = 8;
    };
    add("h2d_pageable", pageable,
        [=] { return [h = host(), d = device()]() mutable { d.copy_(h); }; });
    add("h2d_pinned", pinned,
        [=] { return [h = host().pin_memory(), d = device()]() mutable { d.copy_(h, true); }; });
    add("d2h_pageable", pageable,
        [=] { return [h = host(), d = device()]() mutable { h.copy_(d); }; });
    add("d2h_pinned", pinned,
        [=] { return [h = host().pin_memory(), d = device()]() mutable { h.copy_(d, true); }; });
  }
}

void add_arrays(Rows& rows) {
  constexpr int64_t n = 100'000'000;
  const auto uniform = [] { return rand({n}, gpu()); };
  rows.add("array/sum_100M", Unit::gb_per_s, 4.0 * n, {},
           [=] { return plain([x = uniform()] { return x.sum(); }); });
  rows.add("array/sort_f32_100M", Unit::ms, 0, times_the_peer(1),
           [=] { return plain([x = uniform()] { return x.sort(); }); })
      .repetitions = 5;
  rows.add("array/topk100_100M", Unit::ms, 0, times_the_peer(1 / 0.4),
           [=] { return plain([x = uniform()] { return x.topk(100); }); })
      .repetitions = 5;
  rows.add("array/rand_100M", Unit::gb_per_s, 4.0 * n, at_least(3700),
           [] { return plain([] { return rand({n}, gpu()); }); });
  rows.add("array/randn_100M", Unit::gb_per_s, 4.0 * n, at_least(3000),
           [] { return plain([] { return randn({n}, gpu()); }); });
  rows.add("array/gather_50M", Unit::ms, 0, {},
           [=] {
             return plain([x = uniform(), i = randint(n, {n / 2}, gpu(kInt64))] {
               return x.index_select(0, i);
             });
           })
      .repetitions = 5;
  rows.add("array/conv5x5_4k_f32", Unit::ms, 0, at_most(0.05), [] {
    cuda::set_cudnn_benchmark(true);
    set_float32_convolution_tf32(false);
    return plain([x = rand({1, 1, 2160, 3840}, gpu()), w = rand({1, 1, 5, 5}, gpu())] {
      return conv2d(x, w, {}, 1, 2);
    });
  });
}

void add_training(Rows& rows) {
  Row& row = rows.add("train/mlp_784_256_10_b64", Unit::us, 0, at_most(150), [] {
    nn::Sequential net(nn::Linear(784, 256), nn::ReLU(), nn::Linear(256, 10));
    net.to(kCUDA);
    auto adam = std::make_shared<optim::Adam>(net.parameters(), optim::AdamOptions{.lr = 1e-3});
    return [net, adam, x = randn({64, 784}, gpu()), y = randint(10, {64}, gpu(kInt64))] {
      adam->zero_grad();
      cross_entropy(net(x), y).backward();
      adam->step();
    };
  });
  row.timing = Timing::host_and_device;
  row.calls = 200;
  row.repetitions = 7;
}

}  // namespace

std::vector<Row> cuda_rows() {
  Rows rows;
  add_overhead(rows);
  for (DType t : {kFloat32, kBFloat16}) add_bandwidth(rows, t);
  for (DType t : {kFloat32, kBFloat16}) add_rows_of_rows(rows, t);
  add_embedding(rows);
  add_products(rows);
  add_attention(rows);
  add_convolution(rows);
  add_optimizer(rows);
  add_transfers(rows);
  add_arrays(rows);
  add_training(rows);
  std::vector<Row> all = start_rows();
  for (Row& row : rows.take()) all.push_back(std::move(row));
  return all;
}

}  // namespace arete::bench
