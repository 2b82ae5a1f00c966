// Autocast and loss scaling. On another device: ARETE_TEST_DEVICE=cuda.
#include <algorithm>
#include <cmath>
#include <thread>

#include "arete/core/tracing.h"
#include "arete/device/cuda.h"
#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "tests/support/test_device.h"
#include "tests/unit/nn_test_support.h"

namespace arete {
namespace {

using test::error_of;
using test::has;
using test::test_device;

Tensor random(IntList sizes, DType dtype = kFloat32) {
  return randn(sizes, {dtype, test_device()});
}

// Counts calls by the name of their operator.
class Counter : public tracing::ThreadListener {
 public:
  explicit Counter(std::string name) : name_(std::move(name)) {}
  void end_call(uint64_t, const ops::OpRecord& op, tracing::Items<ops::Arg>,
                tracing::Items<Tensor>) noexcept override {
    count += op.name == name_;
  }
  int count = 0;

 private:
  std::string name_;
};

TEST(Autocast, ChoosesDTypesByClass) {
  const Tensor a = random({4, 4});
  const amp::Autocast region(test_device(), kBFloat16);
  EXPECT_EQ(matmul(a, a).dtype(), kBFloat16);
  EXPECT_EQ(linear(a, a).dtype(), kBFloat16);
  EXPECT_EQ((a + a).dtype(), kFloat32);
  EXPECT_EQ(relu(matmul(a, a)).dtype(), kBFloat16);
  EXPECT_EQ(mse_loss(matmul(a, a), a).dtype(), kFloat32);
  EXPECT_EQ(matmul(a.to(kFloat64), a.to(kFloat64)).dtype(), kFloat64);
}

TEST(Autocast, NestsAndEnds) {
  const Tensor a = random({4, 4});
  {
    const amp::Autocast outer(test_device(), kFloat16);
    EXPECT_EQ(matmul(a, a).dtype(), kFloat16);
    {
      const amp::Autocast off(test_device(), {}, false);
      EXPECT_EQ(matmul(a, a).dtype(), kFloat32);
      const amp::Autocast on(test_device(), kBFloat16);
      EXPECT_EQ(matmul(a, a).dtype(), kBFloat16);
    }
    EXPECT_EQ(matmul(a, a).dtype(), kFloat16);
    EXPECT_THROW(
        {
          const amp::Autocast inner(test_device(), kBFloat16);
          matmul(a, random({3, 3}));
        },
        ValueError);
    EXPECT_EQ(matmul(a, a).dtype(), kFloat16);
    std::thread([&] { EXPECT_EQ(matmul(a, a).dtype(), kFloat32); }).join();
  }
  EXPECT_EQ(matmul(a, a).dtype(), kFloat32);
  EXPECT_EQ(modes().word, 0u);
}

TEST(Autocast, DefaultsDifferByDevice) {
  EXPECT_EQ(amp::autocast_dtype(kCPU), kBFloat16);
  EXPECT_EQ(amp::autocast_dtype(kCUDA), kFloat16);
  const Tensor a = random({2, 2});
  const Device other = test_device().is_cpu() ? kCUDA : kCPU;
  const amp::Autocast region(other);
  EXPECT_EQ(amp::is_autocast_enabled(other), other.is_cpu() || cuda::is_available());
  EXPECT_FALSE(amp::is_autocast_enabled(test_device()));
  EXPECT_EQ(matmul(a, a).dtype(), kFloat32);
}

TEST(Autocast, Errors) {
  EXPECT_TRUE(has(error_of([] { amp::Autocast region(kMeta); }),
                  "User specified an unsupported autocast device_type 'meta'"));
  EXPECT_TRUE(has(error_of([] { amp::Autocast region(kCPU, kInt32); }), "autocast only supports"));
  EXPECT_FALSE(amp::is_autocast_enabled(kCPU));
}

TEST(Autocast, ClassesDifferByDevice) {
  const auto class_of = [](const char* name, DeviceType d) {
    return ops::autocast_class(ops::find_record(name)->autocast, d);
  };
  using ops::Autocast;
  EXPECT_EQ(class_of("exp", DeviceType::cuda), Autocast::f32);
  EXPECT_EQ(class_of("exp", DeviceType::cpu), Autocast::none);
  EXPECT_EQ(class_of("quantile", DeviceType::cpu), Autocast::f32);
  EXPECT_EQ(class_of("mm", DeviceType::cpu), Autocast::lower);
  EXPECT_EQ(class_of("addcmul", DeviceType::cuda), Autocast::promote);
  EXPECT_EQ(class_of("binary_cross_entropy", DeviceType::cuda), ops::Autocast::banned);
  EXPECT_EQ(class_of("binary_cross_entropy", DeviceType::cpu), Autocast::f32);
  EXPECT_EQ(class_of("batch_norm", DeviceType::cuda), ops::Autocast::as_is);
}

TEST(Autocast, CastsAParameterOnceForTheOutermostRegion) {
  nn::Linear net(4, 4);
  net.to(test_device());
  const Tensor x = random({2, 4}, kBFloat16);
  const auto casts = [&](auto f) {
    Counter counter("to_copy");
    f();
    return counter.count;
  };
  {
    const amp::Autocast region(test_device(), kBFloat16);
    EXPECT_EQ(casts([&] { net(x); }), 2);  // weight and bias
    EXPECT_EQ(casts([&] { net(x); }), 0);
    {
      const amp::Autocast inner(test_device(), kBFloat16);
      EXPECT_EQ(casts([&] { net(x); }), 0);
    }
    EXPECT_EQ(casts([&] { net(x); }), 0);
    {
      const NoGradGuard no_grad;
      EXPECT_EQ(casts([&] { net(x); }), 2);
      net.weight.mul_(2.0);
      EXPECT_EQ(casts([&] { net(x); }), 1);
    }
    EXPECT_EQ(casts([&] { net(x); }), 2);
    net.weight.impl()->storage = net.weight.clone().storage();
    EXPECT_EQ(casts([&] { net(x); }), 1);
    amp::clear_autocast_cache();
    EXPECT_EQ(casts([&] { net(x); }), 2);
    const amp::Autocast without(test_device(), kBFloat16, true, false);
    EXPECT_EQ(casts([&] { net(x); }), 2);
  }
  const amp::Autocast region(test_device(), kBFloat16);
  EXPECT_EQ(casts([&] { net(x); }), 2);
}

TEST(Autocast, GradientsFlowThroughAKeptCast) {
  Tensor w = random({3, 3}).requires_grad_();
  const Tensor x = random({2, 3});
  {
    const amp::Autocast region(test_device(), kBFloat16);
    {
      const NoGradGuard no_grad;
      EXPECT_FALSE(matmul(x, w).requires_grad());
    }
    for (int i = 0; i < 2; ++i) matmul(x, w).sum().backward();
  }
  EXPECT_EQ(w.grad().dtype(), kFloat32);
  const Tensor want = x.to(kBFloat16).to(kFloat32).sum({0}).view({3, 1}).expand({3, 3}) * 2.0;
  // Each backward rounds to bf16.
  test::expect_values(w.grad().to(kBFloat16), want.to_vector<double>(), 2);
}

TEST(Autocast, CrossEntropyReadsHalfLogits) {
  const Tensor exact = random({8, 5}).requires_grad_(),
               target = randint(0, 5, {8}).to(test_device());
  Tensor logits = exact.detach().to(kBFloat16).requires_grad_();
  Tensor from = logits.detach().to(kFloat32).requires_grad_();
  Counter casts("to_copy");
  Tensor loss;
  {
    const amp::Autocast region(test_device(), kBFloat16);
    loss = cross_entropy(logits, target);
  }
  EXPECT_EQ(casts.count, 0);
  const Tensor want = cross_entropy(from, target);
  EXPECT_EQ(loss.dtype(), kFloat32);
  // On a GPU exponentials of half types are the hardware's (fused.cuh): the last bit of 12 % of the
  // losses differs (400 seeds on an H200), and no more.
  const double last_bit = test_device().is_cpu() ? 0 : 0x1p-23;
  EXPECT_NEAR(loss.item<double>(), want.item<double>(), last_bit * want.item<double>());
  loss.backward();
  want.backward();
  EXPECT_EQ(logits.grad().to_vector<double>(), from.grad().to(kBFloat16).to_vector<double>());
}

// ---- GradScaler

Tensor parameter(std::vector<double> values, DType dtype = kFloat32) {
  return tensor(values, kFloat64).to(test_device(), dtype).requires_grad_();
}
void set_gradient(const Tensor& p, std::vector<double> values) {
  p.set_grad(tensor(values, kFloat64).to(p.device(), p.dtype()));
}

TEST(GradScaler, FollowsTheRuleOfItsScale) {
  Tensor p = parameter({1, 2});
  optim::SGD optimizer({p}, {.lr = 0.5});
  amp::GradScaler scaler({.init_scale = 8, .growth_interval = 2, .min_scale = 3});
  double scale = 8, value = 1;
  int tracker = 0, skipped = 0;
  for (int step = 0; step < 12; ++step) {
    const bool overflow = step == 0 || (step >= 5 && step < 9);
    EXPECT_EQ(scaler.scale(p).to_vector<double>()[0], p.to_vector<double>()[0] * scale);
    set_gradient(p, {overflow ? INFINITY : 0.25 * scale, 0.25 * scale});
    scaler.step(optimizer);
    scaler.update();
    if (overflow) {
      scale = std::max(scale / 2, 3.0);
      tracker = 0;
      ++skipped;
    } else {
      value -= 0.125;
      if (++tracker == 2) {
        scale *= 2;
        tracker = 0;
      }
    }
    EXPECT_EQ(p.to_vector<double>()[0], value) << step;
    EXPECT_EQ(scaler.get_scale(), scale);
    EXPECT_EQ(scaler.get_growth_tracker(), tracker);
  }
  EXPECT_EQ(scaler.num_skipped(), skipped);
  EXPECT_EQ(scaler.num_steps(), 12 - skipped);
}

TEST(GradScaler, TheScaleDoesNotGrowToInfinity) {
  Tensor p = parameter({1});
  optim::SGD optimizer({p});
  amp::GradScaler scaler({.init_scale = 0x1p127, .growth_interval = 1});
  scaler.scale(p);
  set_gradient(p, {1});
  scaler.step(optimizer);
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 0x1p127);
}

// Bias corrections count the updates that took place; what is computed on the device for that is
// what the host computes.
TEST(GradScaler, LeavesOutStepsOfAdamAsIfTheyHadNotBeen) {
  for (DType dtype : {kFloat32, kFloat64}) {
    Tensor a = parameter({1, -2, 3}, dtype), b = parameter({1, -2, 3}, dtype);
    optim::AdamW scaled({a}, {.lr = 0.1}), plain({b}, {.lr = 0.1});
    amp::GradScaler scaler({.init_scale = 4});
    scaler.scale(a);
    for (int step = 1; step < 10; ++step) {
      const bool overflow = step % 3 == 1;
      const double g = std::sin(step), s = scaler.get_scale();
      set_gradient(a, {g * s, overflow ? NAN : 2 * s, -s});
      scaler.step(scaled);
      scaler.update();
      if (overflow) continue;
      set_gradient(b, {g, 2, -1});
      plain.step();
    }
    test::expect_values(a, b.to_vector<double>(), 64);
    EXPECT_EQ(scaled.state_dict().numbers.at("state.0.step"),
              plain.state_dict().numbers.at("state.0.step"));
    // The count survives saving, and a step without scaler goes on with it.
    optim::AdamW loaded({a}, {.lr = 0.1});
    loaded.load_state_dict(scaled.state_dict());
    set_gradient(a, {1, 1, 1});
    set_gradient(b, {1, 1, 1});
    loaded.step();
    plain.step();
    test::expect_values(a, b.to_vector<double>(), 64);
  }
}

TEST(GradScaler, UnscaledGradientsCanBeClipped) {
  Tensor p = parameter({0, 0});
  optim::SGD optimizer({p}, {.lr = 1});
  amp::GradScaler scaler;
  scaler.scale(p);
  set_gradient(p, {3 * 65536.0, 4 * 65536.0});
  scaler.unscale_(optimizer);
  EXPECT_EQ(p.grad().to_vector<double>(), (std::vector<double>{3, 4}));
  nn::utils::clip_grad_norm_({p}, 1.0);
  scaler.step(optimizer);
  scaler.update();
  test::expect_values(p, {-0.6, -0.8}, 64);
}

TEST(GradScaler, GradientsOfSeveralDTypesAndWithout) {
  Tensor f = parameter({1, 1}), h = parameter({1, 1}, kBFloat16), d = parameter({1}, kFloat64),
         none = parameter({5}), empty = zeros({0}, {kFloat32, test_device()}).requires_grad_();
  optim::SGD optimizer({f, h, d, none, empty}, {.lr = 0.5});
  amp::GradScaler scaler({.init_scale = 2});
  scaler.scale(f);
  for (bool overflow : {true, false}) {
    const double s = scaler.get_scale();
    set_gradient(f, {s, s});
    set_gradient(h, {s, s});
    set_gradient(d, {overflow ? -INFINITY : s});
    empty.set_grad(zeros_like(empty));
    scaler.step(optimizer);
    scaler.update();
    const double want = overflow ? 1 : 0.5;
    for (const Tensor& t : {f, h, d}) EXPECT_EQ(t.to_vector<double>()[0], want);
  }
  EXPECT_EQ(none.to_vector<double>()[0], 5);
}

TEST(GradScaler, Errors) {
  Tensor p = parameter({1, 2});
  optim::SGD optimizer({p});
  amp::GradScaler scaler;
  EXPECT_TRUE(has(error_of([&] { scaler.step(optimizer); }), "Attempted step but _scale is None."));
  scaler.scale(p);
  EXPECT_TRUE(has(error_of([&] { scaler.update(); }), "No inf checks were recorded prior"));
  EXPECT_TRUE(has(error_of([&] { scaler.step(optimizer); }),
                  "No inf checks were recorded for this optimizer."));
  set_gradient(p, {1, 1});
  scaler.unscale_(optimizer);
  EXPECT_TRUE(has(error_of([&] { scaler.unscale_(optimizer); }),
                  "unscale_() has already been called on this optimizer since the last update()."));
  scaler.step(optimizer);
  EXPECT_TRUE(has(error_of([&] { scaler.step(optimizer); }),
                  "step() has already been called since the last update()."));
  EXPECT_TRUE(has(error_of([&] { scaler.unscale_(optimizer); }),
                  "unscale_() is being called after step()."));
  EXPECT_TRUE(has(error_of([] { amp::GradScaler({.growth_factor = 1}); }), "must be > 1.0"));
  for (double scale : {0.0, -1.0, double(INFINITY), double(NAN)})
    EXPECT_TRUE(
        has(error_of([&] { amp::GradScaler({.init_scale = scale}); }), "must be a positive"));
  EXPECT_TRUE(has(error_of([] { amp::GradScaler({.backoff_factor = 1}); }), "must be < 1.0"));
  Tensor h = parameter({1}, kFloat16);
  set_gradient(h, {1});
  optim::SGD half({h}), masters({h}, {.master_weights = true});
  EXPECT_TRUE(
      has(error_of([&] { scaler.unscale_(half); }), "Attempting to unscale FP16 gradients."));
  EXPECT_TRUE(has(error_of([&] { scaler.step(half); }), "Attempting to unscale FP16 gradients."));
  scaler.unscale_(masters);
}

TEST(GradScaler, GradientsAreUnscaledAfterAStep) {
  Tensor p = parameter({1, 1}), q = parameter({1});
  optim::Adam adam({p});
  optim::NAdam nadam({q});  // waits for the device to say whether there is a step
  amp::GradScaler scaler({.init_scale = 8});
  scaler.scale(p);
  for (const double worst : {16.0, double(INFINITY)}) {
    set_gradient(p, {8, worst});
    set_gradient(q, {worst});
    scaler.step(adam);
    scaler.step(nadam);
    EXPECT_EQ(p.grad().to_vector<double>(), (std::vector{1, worst / 8}));
    EXPECT_EQ(q.grad().item<double>(), worst / 8);
    scaler.update(8);
  }
}

TEST(GradScaler, DisabledItPassesEverything) {
  Tensor p = parameter({1});
  optim::SGD optimizer({p}, {.lr = 1});
  amp::GradScaler scaler({.enabled = false});
  EXPECT_TRUE(scaler.scale(p).is_same(p));
  set_gradient(p, {1});
  scaler.unscale_(optimizer);
  scaler.step(optimizer);
  scaler.update();
  EXPECT_EQ(p.item<double>(), 0);
  EXPECT_EQ(scaler.get_scale(), 1);
}

TEST(GradScaler, ReportNamesWhatOverflowedFirst) {
  Tensor first = parameter({1, 2}), last = parameter({3});
  optim::SGD optimizer({first, last});
  amp::GradScaler scaler;
  scaler.scale(first);
  for (int step = 1; step <= 4; ++step) {
    set_gradient(first, {step == 2 ? INFINITY : 1, 1});
    set_gradient(last, {step == 2 ? NAN : 1});
    scaler.step(optimizer);
    scaler.update();
  }
  const std::string text = scaler.report({{"stem.weight", first}, {"head.bias", last}});
  EXPECT_TRUE(has(text, "1 of 4 steps skipped"));
  EXPECT_TRUE(has(text, "step 2, in the gradients of 2 of 2 parameters"));
  EXPECT_TRUE(has(text, "'head.bias' (" + ops::describe(last) + ")"));
  EXPECT_TRUE(has(text, "normal at the start"));
  EXPECT_TRUE(has(scaler.report(), "parameter 1"));
  nn::Linear net(1, 1);
  net.to(test_device());
  optim::SGD of_net(net.parameters());
  for (const Tensor& t : net.parameters()) t.set_grad(full_like(t, INFINITY));
  scaler.step(of_net);
  EXPECT_TRUE(has(scaler.report(net.named_parameters()), "'bias'"));
}

TEST(GradScaler, StateGoesIntoAnother) {
  amp::GradScaler a({.init_scale = 32, .growth_interval = 9}), b;
  a.load_state({4, 3, 0.25, 7, 5});
  b.load_state(a.state());
  EXPECT_EQ(b.get_scale(), 4);
  EXPECT_EQ(b.get_growth_tracker(), 5);
  EXPECT_EQ(b.options().growth_factor, 3);
  EXPECT_EQ(b.options().backoff_factor, 0.25);
  EXPECT_EQ(b.options().growth_interval, 7);
}

TEST(Autocast, WithoutAGpuARegionForGpusIsNone) {
  const amp::Autocast region(kCUDA);
  EXPECT_EQ(amp::is_autocast_enabled(kCUDA), cuda::is_available());
  EXPECT_FALSE(has(error_of([] { amp::set_autocast_dtype(kCPU, kFloat32); }), "torch."));
}

// ---- orders in memory

TEST(ChannelsLast, ANetworkIsLaidOutAnew) {
  nn::Sequential net(nn::Conv2d(3, 4, 3), nn::BatchNorm2d(4));
  net.to(test_device());
  const Tensor x = random({2, 3, 6, 6}), exact = net(x);
  const Tensor weight = net.parameters()[0];
  EXPECT_TRUE(weight.is_contiguous());
  net.to(MemoryFormat::channels_last);
  EXPECT_EQ(to_string(weight.strides()), to_string(Shape{27, 1, 9, 3}));
  const Tensor y = net(x.contiguous(MemoryFormat::channels_last));
  EXPECT_EQ(y.stride(1), 1);
  test::expect_values(y, exact.to_vector<double>(), 64);
  // The weights alone suffice, and their gradients lie as they do; so do ones of 1 x 1.
  EXPECT_EQ(net(x).stride(1), 1);
  net(x).sum().backward();
  EXPECT_EQ(to_string(weight.grad().strides()), to_string(Shape{27, 1, 9, 3}));
  nn::Conv2d small(3, 4, 1);
  small.to(test_device());
  small.to(MemoryFormat::channels_last);
  EXPECT_EQ(small(x).stride(1), 1);
}

// ---- master weights

TEST(MasterWeights, AddUpWhatHalfPrecisionLoses) {
  Tensor with = parameter({1, 1}, kBFloat16), without = parameter({1, 1}, kBFloat16);
  optim::SGD a({with}, {.lr = 1e-3, .master_weights = true}), b({without}, {.lr = 1e-3});
  for (int step = 0; step < 100; ++step) {
    for (const Tensor& p : {with, without}) set_gradient(p, {1, -1});
    a.step();
    b.step();
    if (step == 50) {
      const optim::State saved = a.state_dict();
      EXPECT_EQ(saved.tensors.at("state.0.master_param").dtype(), kFloat32);
      a.load_state_dict(saved);
    }
  }
  EXPECT_EQ(with.to_vector<double>(),
            tensor({0.9, 1.1}, kFloat64).to(kBFloat16).to_vector<double>());
  EXPECT_EQ(without.to_vector<double>()[0], 1);
}

TEST(MasterWeights, WhatIsWrittenToAParameterCounts) {
  Tensor p = parameter({0, 0}, kBFloat16);
  optim::SGD sgd({p}, {.lr = 1, .master_weights = true});
  const auto step = [&] {
    set_gradient(p, {1, 1});
    sgd.step();
    return p.to_vector<double>();
  };
  EXPECT_EQ(step(), (std::vector<double>{-1, -1}));
  p.detach().fill_(100);
  EXPECT_EQ(step(), (std::vector<double>{99, 99}));
  p.impl()->storage = full_like(p.detach(), 7).storage();
  EXPECT_EQ(step(), (std::vector<double>{6, 6}));
  const optim::State saved = sgd.state_dict();
  p.detach().fill_(50);
  sgd.load_state_dict(saved);  // a master whose rounding the parameter is not
  EXPECT_EQ(step(), (std::vector<double>{49, 49}));
}

TEST(MasterWeights, WritesToSomeParametersUnderAScaler) {
  Tensor p = parameter({0, 0}, kFloat16), q = parameter({0}, kFloat16);
  optim::Adam adam({p, q}, {.lr = 1, .master_weights = true});
  amp::GradScaler scaler({.init_scale = 2});
  scaler.scale(p);
  for (int step = 0; step < 6; ++step) {
    set_gradient(p, {2, step == 4 ? INFINITY : 2});
    set_gradient(q, {2});
    if (step % 2 == 0) q.detach().fill_(100 * step);
    scaler.step(adam);
    scaler.update(2);
  }
  // Equal gradients: each step that takes place goes down by lr.
  EXPECT_EQ(p.to_vector<double>(), (std::vector<double>{-5, -5}));
  EXPECT_EQ(q.item<double>(), 399);
}

TEST(MasterWeights, AStateWithoutThemStartsFromTheParameters) {
  Tensor p = parameter({1, 2}, kBFloat16);
  optim::Adam plain({p}), masters({p}, {.master_weights = true});
  set_gradient(p, {1, 1});
  plain.step();
  optim::State state = plain.state_dict();
  state.numbers["param_groups.0.master_weights"] = 1;
  masters.load_state_dict(state);
  const optim::State loaded = masters.state_dict();
  EXPECT_EQ(loaded.tensors.at("state.0.master_param").to_vector<double>(), p.to_vector<double>());
  EXPECT_EQ(loaded.tensors.at("state.0.exp_avg").dtype(), kFloat32);
}

}  // namespace
}  // namespace arete
