#include "arete/profile/memory_history.h"
#include "arete/profile/profiler.h"

#include <gtest/gtest.h>

#include <map>
#include <thread>

#include <nlohmann/json.hpp>

#include "arete/autograd/engine.h"
#include "arete/base/error.h"
#include "arete/core/saved_tensor_hooks.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"
#include "arete/ops/reduce.h"
#include "arete/profile/memory_tracker.h"

namespace arete::memory {
namespace {

class MemoryHistory : public testing::Test {
 protected:
  void TearDown() override { stop_history(); }
};

std::map<uintptr_t, size_t> live_of(const std::vector<Entry>& entries) {
  std::map<uintptr_t, size_t> live;
  for (const Entry& e : entries) live[e.event.address] = e.event.requested;
  return live;
}

TEST_F(MemoryHistory, replays_to_the_live_set) {
  record_history();
  std::map<uintptr_t, size_t> expected;
  std::vector<Tensor> kept;
  for (int i = 1; i < 40; ++i) {
    const Tensor x = ones({i * 10});
    Tensor y = x.exp();
    if (i % 3 == 0) {
      expected[uintptr_t(y.data_ptr())] = y.nbytes();
      kept.push_back(y);
    }
  }
  const Snapshot s = snapshot();
  EXPECT_EQ(live_of(s.live), expected);
  EXPECT_EQ(live_of(replay(s)), expected);
  EXPECT_EQ(s.dropped, 0u);
  kept.clear();
  EXPECT_TRUE(snapshot().live.empty());
  EXPECT_TRUE(replay(snapshot()).empty());
}

TEST_F(MemoryHistory, says_who) {
  record_history();
  Tensor y;
  {
    const NameScope outer("outer");
    const profile::RecordFunction inner("inner");  // what profilers see is a scope, too
    y = ones({100}).exp();
  }
  EXPECT_EQ(current_name_scope(), "");
  const Snapshot s = snapshot();
  ASSERT_EQ(s.live.size(), 1u);
  EXPECT_EQ(s.live[0].operator_name, "exp");
  EXPECT_EQ(s.live[0].scope, "outer/inner");
  EXPECT_EQ(s.live[0].event.requested, 400u);
  ASSERT_GT(s.live[0].stack, 0u);
  bool in_library = false;
  for (const Frame& f : s.stacks[s.live[0].stack])
    in_library = in_library || f.function.find("arete::") != std::string::npos;
  EXPECT_TRUE(in_library);
}

TEST_F(MemoryHistory, options) {
  HistoryOptions o;
  o.context = Context::none;
  o.max_entries = 3;
  record_history(o);
  const Tensor x = ones({10});
  for (int i = 0; i < 5; ++i) ones({10});
  Snapshot s = snapshot();
  EXPECT_EQ(s.events.size(), 3u);
  EXPECT_EQ(s.dropped, 8u);
  EXPECT_EQ(s.live.size(), 1u);
  for (const Entry& e : s.events) EXPECT_EQ(e.stack, 0u);
  o.events = false;
  o.clear = true;
  record_history(o);
  const Tensor y = ones({20});
  s = snapshot();
  EXPECT_TRUE(s.events.empty());
  ASSERT_EQ(s.live.size(), 1u);
  EXPECT_EQ(s.live[0].event.address, uintptr_t(y.data_ptr()));
  stop_history();
  EXPECT_FALSE(is_recording_history());
  EXPECT_TRUE(snapshot().live.empty());
}

TEST_F(MemoryHistory, threads) {
  HistoryOptions o;
  o.native_frames = false;
  record_history(o);
  std::vector<Tensor> kept(4);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&kept, i] {
      for (int k = 0; k < 300; ++k) ones({50 + i}).exp();
      kept[size_t(i)] = ones({1000 + i});
    });
  for (std::thread& t : threads) t.join();
  std::map<uintptr_t, size_t> expected;
  for (const Tensor& t : kept) expected[uintptr_t(t.data_ptr())] = t.nbytes();
  const Snapshot s = snapshot();
  EXPECT_EQ(live_of(s.live), expected);
  EXPECT_EQ(live_of(replay(s)), expected);
}

TEST_F(MemoryHistory, json_and_page) {
  record_history();
  const Tensor x = ones({100});
  const Snapshot s = snapshot();
  const auto j = nlohmann::json::parse(to_json(s));
  ASSERT_EQ(j["live"].size(), 1u);
  EXPECT_EQ(j["live"][0]["device"], "cpu");
  EXPECT_EQ(j["live"][0]["addr"], uintptr_t(x.data_ptr()));
  EXPECT_EQ(j["stacks"].size(), s.stacks.size());
  EXPECT_NE(to_html(s).find("<!doctype html>"), std::string::npos);
  EXPECT_NE(to_html(Snapshot()).find("\"rows\":[]"), std::string::npos);
  EXPECT_EQ(to_pickle(Snapshot()).back(), '.');
  EXPECT_THROW(dump_snapshot("history"), ValueError);
}

TEST(MemoryTracker, nests) {
  GPUMemoryTracker outer(kCPU);
  const Tensor a = empty({1 << 10});
  {
    GPUMemoryTracker inner(kCPU);
    { const Tensor b = empty({1 << 12}); }
    EXPECT_EQ(inner.peak(), 1 << 14);
    EXPECT_EQ(inner.delta(), 0);
    EXPECT_EQ(inner.allocations(), 1);
  }
  EXPECT_EQ(outer.peak(), (1 << 14) + (1 << 12));
  EXPECT_EQ(outer.delta(), 1 << 12);
  outer.stop();
  const Tensor c = empty({100});
  EXPECT_EQ(outer.allocations(), 2);
  EXPECT_EQ(outer.report(), "peak +20.00 KiB, now +4.00 KiB, 2 allocations of 20.00 KiB on cpu");
}

class Negated final : public SavedTensorHooks {
 public:
  class Packed final : public PackedTensor {
   public:
    explicit Packed(Tensor t) : values(std::move(t)) {}
    Tensor unpack() override { return values.neg(); }
    const Tensor values;
  };
  IntrusivePtr<PackedTensor> pack(const Tensor& t) override {
    EXPECT_FALSE(t.requires_grad());
    ++packed;
    if (t.numel() < 3) return nullptr;
    return IntrusivePtr<PackedTensor>(new Packed(t.neg()));
  }
  int packed = 0;
};

TEST(SavedTensorHooks, gradients_are_the_same) {
  for (const int64_t n : {2, 5}) {
    const Tensor x = randn({n}, kFloat64).requires_grad_();
    const auto hooks = std::make_shared<Negated>();
    const auto loss = [&] { return x.mul(x.exp()).mul(x.sigmoid()).sum(); };
    const Tensor plain = autograd::grad(loss(), x, true)[0];
    const Tensor second = autograd::grad(plain.sum(), x)[0];
    Tensor hooked_loss;
    {
      const SavedTensorHooksGuard guard(hooks);
      hooked_loss = loss();
      const SavedTensorHooksGuard none(nullptr);
      const int before = hooks->packed;
      x.exp();
      EXPECT_EQ(hooks->packed, before);
    }
    EXPECT_GT(hooks->packed, 0);
    const Tensor hooked = autograd::grad(hooked_loss, x, true)[0];
    const Tensor hooked_second = autograd::grad(hooked.sum(), x)[0];
    EXPECT_EQ(hooked.to_vector<double>(), plain.to_vector<double>());
    EXPECT_EQ(hooked_second.to_vector<double>(), second.to_vector<double>());
  }
}

TEST(SavedTensorHooks, must_not_write) {
  class Writes final : public SavedTensorHooks {
    IntrusivePtr<PackedTensor> pack(const Tensor& t) override {
      Tensor(t).zero_();
      return nullptr;
    }
  };
  const SavedTensorHooksGuard guard(std::make_shared<Writes>());
  const Tensor x = ones({3}).requires_grad_();
  EXPECT_THROW(x.exp(), AutogradError);
}

}  // namespace
}  // namespace arete::memory
