#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "arete/autograd/engine.h"
#include "arete/autograd/function.h"
#include "arete/base/file.h"
#include "arete/base/gzip.h"
#include "arete/core/modes.h"
#include "arete/nn/linear.h"
#include "arete/ops/creation.h"
#include "arete/ops/matmul.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"
#include "arete/ops/reduce.h"
#include "arete/optim/sgd.h"
#include "arete/profile/profiler.h"

namespace arete {
namespace {

const Device kGpu(DeviceType::cuda, 0);

using profile::Action;
using profile::Event;
using profile::EventKind;
using profile::Profiler;
using profile::RecordFunction;
using profile::Trace;

template <class F>
Trace recorded(profile::Options options, F&& f) {
  Profiler p(options);
  p.start();
  f();
  p.stop();
  return p.trace();
}

std::vector<const Event*> named(const Trace& t, const std::string& name) {
  std::vector<const Event*> all;
  for (const Event& e : t.events)
    if (e.name == name) all.push_back(&e);
  return all;
}

const profile::Average& average(const std::vector<profile::Average>& all, const std::string& key) {
  for (const auto& a : all)
    if (a.key == key) return a;
  ADD_FAILURE() << "no row " << key;
  return all.front();
}

std::string temporary(const std::string& name) {
  return (std::filesystem::temp_directory_path() /
          (name + std::to_string(std::chrono::steady_clock::now().time_since_epoch().count())))
      .string();
}

TEST(Profiler, RecordsCallsWithShapesCostsAndNesting) {
  const Tensor a = ones({8, 20}), b = ones({20, 30});
  const Trace t = recorded({.record_shapes = true}, [&] {
    const RecordFunction range("block");
    mm(a, b).add_(1.0).exp();
  });
  const auto product = named(t, "mm");
  ASSERT_EQ(product.size(), 1u);
  EXPECT_EQ(product[0]->flops, 2.0 * 8 * 20 * 30);
  EXPECT_EQ(product[0]->bytes, 4 * (8 * 20 + 20 * 30 + 8 * 30));
  ASSERT_GE(product[0]->shapes.size(), 2u);
  EXPECT_EQ(product[0]->shapes[0], (std::vector<int64_t>{8, 20}));
  EXPECT_EQ(product[0]->dtypes[1], "float32");
  const auto exps = named(t, "exp");
  ASSERT_EQ(exps.size(), 1u);
  EXPECT_EQ(exps[0]->flops, 240);
  EXPECT_EQ(exps[0]->bytes, 2 * 4 * 240);
  EXPECT_EQ(named(t, "add_").size(), 1u);
  const auto blocks = named(t, "block");
  ASSERT_EQ(blocks.size(), 1u);
  EXPECT_EQ(blocks[0]->kind, EventKind::user);
  EXPECT_LT(blocks[0]->parent, 0);
  int64_t inner = 0;
  for (const Event& e : t.events) {
    EXPECT_LE(e.begin_ns, e.end_ns);
    if (e.parent < 0) continue;
    const Event& p = t.events[size_t(e.parent)];
    EXPECT_LE(p.begin_ns, e.begin_ns) << e.name;
    EXPECT_GE(p.end_ns, e.end_ns) << e.name;
    if (&p == blocks[0]) inner += e.duration_ns();
  }
  EXPECT_EQ(blocks[0]->child_ns, inner);
  EXPECT_EQ(blocks[0]->self_ns(), blocks[0]->duration_ns() - inner);
}

TEST(Profiler, TiesBackwardToForward) {
  const Tensor x = ones({4, 3}).requires_grad_();
  const Trace t = recorded({}, [&] { (x * x).exp().sum().backward(); });
  for (const auto& [forward, backward] : std::map<std::string, std::string>{
           {"mul", "MulBackward0"}, {"exp", "ExpBackward0"}, {"sum", "SumBackward0"}}) {
    const auto b = named(t, backward);
    ASSERT_EQ(b.size(), 1u) << backward;
    EXPECT_EQ(b[0]->kind, EventKind::backward);
    const auto f = named(t, forward);
    ASSERT_GE(f.size(), 1u) << forward;
    EXPECT_EQ(f[0]->sequence, b[0]->sequence) << forward;
    EXPECT_LE(f[0]->end_ns, b[0]->begin_ns);
  }
  EXPECT_EQ(named(t, "AccumulateGrad").size(), 1u);
  // What a gradient computes is known, too.
  const auto program = named(t, "exp_backward");
  ASSERT_EQ(program.size(), 1u);
  EXPECT_EQ(program[0]->kind, EventKind::call);
  EXPECT_EQ(program[0]->bytes, 4 * (1 + 12 + 12));  // the gradient of a sum is one number
  EXPECT_GE(program[0]->flops, 12);
  EXPECT_EQ(t.events[size_t(program[0]->parent)].name, "ExpBackward0");
}

TEST(Profiler, NamesStepsOfOptimizers) {
  nn::Linear layer(3, 2);
  optim::SGD sgd(layer.parameters(), {.lr = 0.1});
  const Trace t = recorded({}, [&] {
    layer(ones({4, 3})).sum().backward();
    sgd.step();
  });
  const auto steps = named(t, "Optimizer.step#SGD.step");
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0]->kind, EventKind::optimizer);
}

TEST(Profiler, SeesEveryThread) {
  std::atomic<bool> go{false}, end{false};
  // One thread that is older than the recording, and one that is younger and ends within it.
  std::thread old([&] {
    ones({2}).neg();
    while (!go) std::this_thread::yield();
    for (int i = 0; i < 3; ++i) ones({2}).abs();
    end = true;
  });
  const Trace t = recorded({}, [&] {
    go = true;
    std::thread([] { ones({2}).sin(); }).join();
    ones({2}).cos();
    while (!end) std::this_thread::yield();
  });
  old.join();
  ASSERT_EQ(named(t, "abs").size(), 3u);
  ASSERT_EQ(named(t, "sin").size(), 1u);
  ASSERT_EQ(named(t, "cos").size(), 1u);
  EXPECT_NE(named(t, "abs")[0]->thread, named(t, "cos")[0]->thread);
  EXPECT_NE(named(t, "sin")[0]->thread, named(t, "cos")[0]->thread);
  EXPECT_NE(named(t, "sin")[0]->thread, named(t, "abs")[0]->thread);
}

TEST(Profiler, ThreadsThatGoOnDoNotDisturbStartAndStop) {
  std::atomic<bool> end{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      while (!end) {
        const RecordFunction range("outer");
        ones({16}).exp().sum();
      }
    });
  for (int i = 0; i < 50; ++i) {
    const Trace t = recorded({.record_shapes = true, .profile_memory = true}, [] {
      for (int k = 0; k < 20; ++k) ones({4}).neg();
    });
    EXPECT_EQ(named(t, "neg").size(), 20u);
    for (const Event& e : t.events)
      if (e.name == "exp") {
        ASSERT_EQ(e.shapes.size(), 1u);
        EXPECT_EQ(e.shapes[0], std::vector<int64_t>{16});
      }
  }
  end = true;
  for (std::thread& t : threads) t.join();
}

TEST(Profiler, RangesMayCrossStartAndStop) {
  Profiler p;
  auto before = std::make_unique<RecordFunction>("before");
  p.start();
  auto across = std::make_unique<RecordFunction>("across");
  ones({2}).neg();
  before.reset();
  p.stop();
  across.reset();
  EXPECT_EQ(named(p.trace(), "neg").size(), 1u);
  EXPECT_TRUE(named(p.trace(), "before").empty());
  EXPECT_TRUE(named(p.trace(), "across").empty());
  // Ends that do not nest: the inner range ends with the outer one.
  const Trace t = recorded({}, [] {
    auto outer = std::make_unique<RecordFunction>("outer");
    auto inner = std::make_unique<RecordFunction>("inner");
    outer.reset();
    inner.reset();
    ones({2}).neg();
  });
  EXPECT_EQ(named(t, "outer").size(), 1u);
  EXPECT_EQ(named(t, "inner").size(), 1u);
  EXPECT_LT(named(t, "neg")[0]->parent, 0);
}

TEST(Profiler, IdleCostsNothing) {
  EXPECT_TRUE(tracing::is_plain());
  {
    const RecordFunction range("range");
    EXPECT_EQ(current_name_scope(), "") << "nobody asks for it";
  }
  std::atomic<int> phase = 0;
  bool before = false, within = true, after = false;
  std::thread other([&] {  // has no modes of its own, and must notice all the same
    before = tracing::is_plain();
    phase = 1;
    while (phase != 2) std::this_thread::yield();
    within = tracing::is_plain();
    ones({2}).neg_();
    phase = 3;
    while (phase != 4) std::this_thread::yield();
    after = tracing::is_plain();
  });
  while (phase != 1) std::this_thread::yield();
  const Trace t = recorded({}, [&] {
    phase = 2;
    while (phase != 3) std::this_thread::yield();
  });
  phase = 4;
  other.join();
  EXPECT_TRUE(before && !within && after);
  EXPECT_EQ(named(t, "neg_").size(), 1u);
  const InferenceModeGuard inference;
  EXPECT_FALSE(tracing::is_plain());
}

TEST(Profiler, CallsThatFailAreMarked) {
  const Trace t = recorded({}, [] { EXPECT_ANY_THROW(matmul(ones({2, 3}), ones({2, 3}))); });
  bool failed = false;
  for (const Event& e : t.events) failed = failed || e.failed;
  EXPECT_TRUE(failed);
}

TEST(Profiler, MemoryAddsUp) {
  const Trace t = recorded({.profile_memory = true}, [] {
    const RecordFunction range("block");
    const Tensor kept = ones({1000});
    (kept + 1.0).sum();
  });
  ASSERT_FALSE(t.memory.empty());
  int64_t total = 0;
  std::map<uint64_t, int64_t> alive;
  for (const auto& c : t.memory) {
    total += c.bytes;
    EXPECT_EQ(c.total, total);
    EXPECT_EQ(alive[c.address] += c.bytes, std::max<int64_t>(c.bytes, 0));
  }
  EXPECT_EQ(total, 0);  // everything was given back
  const auto block = named(t, "block");
  ASSERT_EQ(block.size(), 1u);
  const auto add = named(t, "add");
  ASSERT_EQ(add.size(), 1u);
  EXPECT_EQ(add[0]->cpu_memory, 4000);
}

TEST(Profiler, OtherObserversGoOnHearing) {
  // A checkpoint finds the tensors that its function holds with an observer of calls.
  const Tensor x = ones({3}).requires_grad_(), w = full({3}, 2.0).requires_grad_();
  const Trace t = recorded({}, [&] {
    const auto f = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
      return {(in[0] * w).exp()};
    };
    autograd::checkpoint(f, {x})[0].sum().backward();
  });
  EXPECT_TRUE(w.grad().defined());
  EXPECT_EQ(named(t, "exp").size(), 2u);  // computed again in the backward pass
}

TEST(Profiler, OneAtATime) {
  Profiler a, b;
  a.start();
  EXPECT_THROW(b.start(), ValueError);
  EXPECT_THROW(a.start(), ValueError);
  EXPECT_THROW(a.trace(), ValueError);
  a.stop();
  a.stop();  // nothing happens
  b.start();
  b.stop();
  EXPECT_EQ(tracing::listener(), nullptr);
}

TEST(Profiler, ScheduleSaysWhatEachStepDoes) {
  const auto s = profile::schedule(2, 1, 2, 2, 1);
  using enum Action;
  const Action expected[] = {none, none, none,   warmup, record,          record_and_save,
                             none, none, warmup, record, record_and_save, none,
                             none, none};
  for (size_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(s(int64_t(i)), expected[i]) << i;
  const auto early = profile::schedule(2, 1, 1, 0, 0, true);
  EXPECT_EQ(early(0), warmup);
  EXPECT_EQ(early(1), record_and_save);
  EXPECT_EQ(early(2), none);
  EXPECT_THROW(profile::schedule(1, 1, 0), ValueError);
  EXPECT_THROW(profile::schedule(-1, 1, 1), ValueError);
}

TEST(Profiler, RecordsTheStepsOfItsSchedule) {
  std::vector<std::vector<std::string>> saved;
  Profiler p({}, profile::schedule(1, 1, 2, 2), [&](Profiler& self) {
    saved.emplace_back();
    for (const Event& e : self.trace().events)
      if (e.kind == EventKind::user) saved.back().push_back(e.name);
    EXPECT_EQ(named(self.trace(), "neg").size(), 2u);
  });
  p.start();
  for (int i = 0; i < 10; ++i) {
    ones({2}).neg();
    p.step();
  }
  p.stop();
  EXPECT_EQ(saved, (std::vector<std::vector<std::string>>{{"ProfilerStep#2", "ProfilerStep#3"},
                                                          {"ProfilerStep#6", "ProfilerStep#7"}}));
  // Stopped within a cycle: what there is of its active steps is handed over.
  int calls = 0;
  Profiler half({}, profile::schedule(0, 0, 5), [&](Profiler&) { ++calls; });
  half.start();
  ones({2}).neg();
  half.step();
  half.stop();
  EXPECT_EQ(calls, 1);
  Profiler waiting({}, profile::schedule(3, 1, 1), [&](Profiler&) { ++calls; });
  waiting.start();
  waiting.step();
  waiting.stop();
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(waiting.has_trace());
}

TEST(Profiler, AveragesByNameShapeAndTable) {
  const Trace t = recorded({.record_shapes = true, .profile_memory = true, .with_flops = true}, [] {
    const Tensor a = ones({8, 8}), b = ones({16, 16});
    for (int i = 0; i < 3; ++i) mm(a, a);
    mm(b, b);
  });
  const auto by_name = t.key_averages();
  EXPECT_EQ(average(by_name, "mm").count, 4);
  EXPECT_EQ(average(by_name, "mm").flops, 2.0 * (3 * 512 + 4096));
  int rows = 0;
  for (const auto& a : t.key_averages(true))
    if (a.key == "mm") ++rows;
  EXPECT_EQ(rows, 2);
  double self = 0, flops = 0;
  for (const auto& a : by_name) {
    self += a.self_cpu_time_total;
    flops += a.flops;
  }
  EXPECT_EQ(t.total_average().flops, flops);
  EXPECT_NEAR(t.total_average().self_cpu_time_total, self, 1e-6 * self);
  double top = 0;
  for (const Event& e : t.events)
    if (e.parent < 0) top += double(e.duration_ns()) / 1e3;
  EXPECT_NEAR(self, top, 1e-6 * top);
  const std::string text =
      t.table(t.key_averages(true), {.sort_by = "self_cpu_time_total", .row_limit = 5});
  for (const char* column : {"Name", "Self CPU %", "CPU total", "CPU time avg", "# of Calls",
                             "Input Shapes", "CPU Mem", "Self CPU time total: "})
    EXPECT_NE(text.find(column), std::string::npos) << column << "\n" << text;
  EXPECT_EQ(text.find("CUDA"), std::string::npos) << text;
  EXPECT_THROW(t.table(by_name, {.sort_by = "beauty"}), ValueError);
}

TEST(Profiler, TraceFileFollowsTheFormat) {
  const Tensor x = rand({32, 32}).requires_grad_();
  const Trace t = recorded({.record_shapes = true, .profile_memory = true}, [&] {
    const RecordFunction range("step \"one\"\n");
    matmul(x, x).sum().backward();
  });
  const std::string path = temporary("trace") + ".json.gz";
  t.export_chrome_trace(path);
  const auto packed = io::read_file(path, 1 << 24);
  ASSERT_TRUE(io::is_gzip(packed));
  const auto text = io::gunzip(packed, 1 << 26);
  std::filesystem::remove(path);
  const auto j = nlohmann::json::parse(text.begin(), text.end());
  std::map<std::string, int> phases;
  std::map<std::pair<std::string, int64_t>, int> begins, ends;
  std::map<int64_t, std::vector<std::pair<double, double>>> slices;
  for (const auto& e : j.at("traceEvents")) {
    const std::string phase = e.at("ph");
    ++phases[phase];
    EXPECT_TRUE(e.contains("name") && e.contains("pid") && e.contains("tid"));
    EXPECT_GE(e.at("ts").get<double>(), 0);
    if (phase == "X") {
      EXPECT_GE(e.at("dur").get<double>(), 0);
      slices[e.at("tid")].emplace_back(e.at("ts"),
                                       e.at("ts").get<double>() + e.at("dur").get<double>());
    }
    if (phase == "s") ++begins[{e.at("cat"), e.at("id")}];
    if (phase == "f") ++ends[{e.at("cat"), e.at("id")}];
  }
  EXPECT_EQ(size_t(phases["X"]), t.events.size());
  EXPECT_GT(phases["C"], 0);
  EXPECT_GT(phases["i"], 0);
  EXPECT_GT(phases["M"], 0);
  EXPECT_GE(begins.size(), 2u);
  EXPECT_EQ(begins, ends);
  for (auto& [tid, all] : slices) {
    // Slices of a thread lie within each other or side by side, up to the rounding of the file.
    std::vector<double> open;
    for (const auto& [begin, end] : all) {
      while (!open.empty() && open.back() <= begin + 0.002) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(end, open.back() + 0.002);
      }
      open.push_back(end);
    }
  }
}

// Two kernels and a copy, as a tracing library of a device reports them.
TEST(Profiler, WorkOfDevicesBelongsToOperators) {
  Trace t;
  t.begin_ns = 1000;
  t.thread_names = {"", "main 1"};
  const auto event = [&](const char* name, uint64_t id, int64_t parent, int64_t begin,
                         int64_t end) {
    Event e;
    e.name = name;
    e.id = id;
    e.parent = parent;
    e.thread = 1;
    e.begin_ns = begin;
    e.end_ns = end;
    e.device = kGpu;
    t.events.push_back(e);
  };
  event("linear", 11, 0, 2000, 9000);
  event("mm", 12, 11, 3000, 8000);
  const auto work = [&](const char* name, uint64_t range, uint32_t number, int64_t begin,
                        int64_t end, int64_t call) {
    prim::DeviceActivity a;
    a.name = name;
    a.range = range;
    a.correlation = number;
    a.device = kGpu;
    a.stream = 7;
    a.begin_ns = begin;
    a.end_ns = end;
    a.call_ns = call;
    t.activities.push_back(a);
  };
  work("gemm_kernel", 12, 1, 10000, 30000, 4000);
  work("bias_kernel", 11, 2, 30000, 35000, 8500);
  work("stray_kernel", 0, 3, 35000, 36000, 0);
  t.device_times = profile::DeviceTimes::traced;
  t.finish();
  EXPECT_EQ(t.activity_events, (std::vector<int64_t>{1, 0, -1}));
  EXPECT_EQ(t.events[1].self_device_ns, 20000);
  EXPECT_EQ(t.events[0].self_device_ns, 5000);
  EXPECT_EQ(t.events[0].device_ns, 25000);
  const auto averages = t.key_averages();
  EXPECT_EQ(average(averages, "linear").device_time_total, 25);
  EXPECT_TRUE(average(averages, "gemm_kernel").on_device);
  EXPECT_EQ(t.total_average().self_device_time_total, 25);
  const std::string text = t.table(averages, {.sort_by = "cuda_time_total"});
  for (const char* part : {"Self CUDA", "CUDA total", "CUDA time avg", "bias_kernel",
                           "Self CUDA time total: 26.000us"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const auto j = nlohmann::json::parse(t.chrome_trace());
  std::map<int64_t, std::map<std::string, nlohmann::json>> arrows;
  int kernels = 0;
  for (const auto& e : j.at("traceEvents")) {
    if (e.at("cat") == "ac2g") arrows[e.at("id")][e.at("ph")] = e;
    if (e.at("cat") == "kernel") {
      ++kernels;
      EXPECT_EQ(e.at("pid"), 0);
      EXPECT_EQ(e.at("tid"), 7);
    }
  }
  EXPECT_EQ(kernels, 3);
  ASSERT_EQ(arrows.size(), 2u);  // what no operator started has none
  EXPECT_EQ(arrows[1]["s"].at("ts"), 3.0);
  EXPECT_EQ(arrows[1]["s"].at("tid"), 1);
  EXPECT_EQ(arrows[1]["f"].at("ts"), 9.0);
  EXPECT_EQ(arrows[1]["f"].at("tid"), 7);
  EXPECT_EQ(arrows[2]["s"].at("ts"), 7.5);
  // Where GPUs alone were asked for, their work is all there is to see.
  t.with_cpu = false;
  const auto alone = t.key_averages();
  ASSERT_EQ(alone.size(), 3u);
  for (const auto& a : alone) EXPECT_TRUE(a.on_device);
  EXPECT_EQ(t.total_average().self_device_time_total, 26);
  EXPECT_NE(t.table(alone).find("Self CUDA time total: 26.000us"), std::string::npos);
  // One piece of it as a row, and as an event.
  const auto row = t.row_of(t.activities[0]);
  EXPECT_EQ(row.key, "gemm_kernel");
  EXPECT_EQ(row.device_time_total, 20);
  EXPECT_EQ(row.cpu_time_total, 0);
  const Event one = Trace::event_of(t.activities[0]);
  EXPECT_EQ(one.device_ns, 20000);
  EXPECT_EQ(one.device, kGpu);
}

TEST(Profiler, TimesBetweenEventsAreSaidToBeSuch) {
  Trace t;
  Event outer, inner;
  outer.name = "norm";
  outer.id = 1;
  outer.end_ns = 100;
  outer.self_device_ns = 9000;
  inner.name = "sum";
  inner.id = 2;
  inner.parent = 1;
  inner.begin_ns = 10;
  inner.end_ns = 50;
  inner.self_device_ns = 4000;
  t.events = {outer, inner};
  t.device_times = profile::DeviceTimes::events;
  t.device_times_problem = "no libcupti.so";
  t.finish();
  EXPECT_EQ(t.events[0].self_device_ns, 5000);
  EXPECT_EQ(t.events[0].device_ns, 9000);
  const std::string text = t.table(t.key_averages());
  EXPECT_NE(text.find("between CUDA events"), std::string::npos) << text;
  EXPECT_NE(text.find("no libcupti.so"), std::string::npos) << text;
}

TEST(Profiler, TensorBoardHandlerWritesAFile) {
  const std::string folder = temporary("profile_folder");
  Profiler p({}, {}, profile::tensorboard_trace_handler(folder, "worker", true));
  p.start();
  ones({2}).neg();
  p.stop();
  int files = 0;
  for (const auto& f : std::filesystem::directory_iterator(folder)) {
    const std::string name = f.path().filename().string();
    EXPECT_EQ(name.rfind("worker.", 0), 0u) << name;
    EXPECT_TRUE(name.ends_with(".pt.trace.json.gz")) << name;
    ++files;
  }
  EXPECT_EQ(files, 1);
  std::filesystem::remove_all(folder);
}

TEST(Profiler, StacksOfTheProgram) {
  const Trace t = recorded({.with_stack = true}, [] { ones({2}).neg(); });
  const auto n = named(t, "neg");
  ASSERT_EQ(n.size(), 1u);
  EXPECT_FALSE(n[0]->stack.empty());
  const std::string path = temporary("stacks");
  const Trace without = recorded({}, [] {});
  EXPECT_THROW(without.export_stacks(path, "self_cpu_time_total"), ValueError);
}

// Waits and copies, as a backend of a device would bring them about.
TEST(Profiler, ListsWaitsAndCopies) {
  using Kind = tracing::HostEvent::Kind;
  const Trace t = recorded({}, [] {
    const RecordFunction range("loop");
    { const tracing::HostScope item({Kind::to_host, "item", kGpu, 4, true}); }
    { const tracing::HostScope wait({Kind::synchronize, "synchronize", kGpu, 0, true}); }
    { const tracing::HostScope copy({Kind::from_host, "to", kGpu, 4096, false}); }
  });
  const auto all = t.synchronizations();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].what, "item");
  EXPECT_EQ(all[0].kind, "to host");
  EXPECT_EQ(all[0].bytes, 4u);
  EXPECT_EQ(all[0].operator_name, "loop");
  EXPECT_EQ(all[1].kind, "wait");
  EXPECT_EQ(all[2].device, "cuda:0");
  EXPECT_FALSE(all[2].blocking);
  EXPECT_FALSE(all[0].source.empty());
  const std::string text = t.synchronization_table();
  EXPECT_NE(text.find("The host waited 2 times"), std::string::npos) << text;
  EXPECT_NE(text.find("4.00 KB"), std::string::npos) << text;
}

// Memory that a copy from a device still writes to: its first reader waits.
TEST(Profiler, SeesReadersWaitForCopies) {
  struct Copy final : PendingCopy {
    bool is_done() const noexcept override { return done; }
    void wait() override { done = true; }
    const void* queue() const noexcept override { return this; }
    bool done = false;
  };
  const Tensor t = ones({4});
  t.storage()->add_pending(std::make_shared<Copy>(), true);
  const Trace trace = recorded({}, [&] { EXPECT_EQ(t[1].item<float>(), 1); });
  const auto all = trace.synchronizations();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].what, "end of a non_blocking copy");
  EXPECT_EQ(all[0].kind, "wait");
}

// A bound wide enough for machines that do other things, too; a profiler that took locks of all
// threads or resolved names in a call would not keep it.
TEST(Profiler, OverheadIsBounded) {
  const Tensor x = rand({64, 256}), w = rand({256, 256});
  const auto step = [&] {
    Tensor h = x;
    for (int i = 0; i < 10; ++i) h = matmul(h, w).tanh();
  };
  const auto least = [&] {
    double best = 1e9;
    for (int i = 0; i < 12; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      step();
      best = std::min(
          best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    return best;
  };
  step();
  // A machine that turns to something else in a round says nothing of the profiler: the least of
  // as many rounds as it takes, for both.
  double on = 1e9, off = 1e9;
  for (int round = 0; round < 8; ++round) {
    off = std::min(off, least());
    Profiler p;
    p.start();
    on = std::min(on, least());
    p.stop();
    if (on < 1.5 * off + 1e-4) return;
  }
  ADD_FAILURE() << "a step takes " << on << " s under the profiler and " << off << " s without";
}

}  // namespace
}  // namespace arete
