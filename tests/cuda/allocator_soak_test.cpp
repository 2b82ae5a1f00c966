// Long runs of the caching allocator: random programs against the model, and programs that fragment
// memory.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "allocator_model.h"

namespace arete::cuda {
namespace {

// The soak test ---------------------------------------------------------------------------------

class Soak {
 public:
  Soak(bool plain, uint64_t seed) : c(4 * kGiB, plain), plain_(plain), random_(seed) {
    for (int i = 0; i < kStreams; ++i) streams_[i] = stream_of(next_stream_++);
  }
  void run(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFatalFailure(); ++i) {
      step();
      if (i % 1000 == 0) c.check_stats();
    }
    while (!live_.empty()) free_one(live_.size() - 1);
    end_capture();
    c.model.finish_all();
    c.allocator->empty_cache();
    c.check_stats();
    EXPECT_EQ(c.allocator->stats().pending, 0u);
    EXPECT_GT(out_of_memory_, 0);
    EXPECT_TRUE(plain_ || c.model.moves > 100);
  }

 private:
  static constexpr int kStreams = 4;
  uint64_t below(uint64_t n) { return random_() % n; }
  size_t random_size() {
    if (below(8) == 0) return (below(64) + 1) * kMiB + below(kMiB);
    if (below(64) == 0) return below(500 * kMiB) + 1;
    return size_t(std::exp2(double(below(2100)) / 100.0)) + below(16);  // to 2 MiB
  }
  void allocate_one() {
    const int i = int(below(kStreams));
    const size_t bytes = random_size();
    const uint64_t pool = capturing_ == i ? pools_.back() : 0;
    try {
      live_.push_back(c.allocate(bytes, streams_[i], pool));
    } catch (const OutOfMemoryError&) {
      ++out_of_memory_;
      if (capturing_ < 0 && !plain_) {
        // All that could be had was tried.
        EXPECT_EQ(c.model.unused_chunks(), 0u);
        EXPECT_LT(c.model.capacity - c.model.used, (bytes + kChunk - 1) / kChunk * kChunk);
      }
      for (size_t n = live_.size() / 3; n-- > 0;) free_one(below(live_.size()));
    }
  }
  void free_one(size_t i) {
    std::swap(live_[i], live_.back());
    c.free(live_.back());
    live_.pop_back();
  }
  void end_capture() {
    if (capturing_ < 0) return;
    c.model.capturing = 0;
    c.allocator->end_pool(streams_[capturing_]);
    capturing_ = -1;
  }
  void capture() {
    if (capturing_ >= 0) return end_capture();
    if (pools_.size() > 3) {
      c.model.release_pool(pools_[0]);
      // Replays of its graph may be under way on any stream.
      c.allocator->release_pool(pools_[0]);
      pools_.erase(pools_.begin());
    }
    capturing_ = int(below(kStreams));
    pools_.push_back(c.allocator->create_pool());
    c.allocator->begin_pool(pools_.back(), streams_[capturing_]);
    c.model.capturing = 1;
  }
  void replace_stream() {
    const int i = int(below(kStreams));
    if (capturing_ == i) return;
    const CUstream old = streams_[i];
    c.allocator->forget_stream(old);
    c.model.destroyed.insert(old);
    for (auto& b : live_) std::erase(b.uses, old);
    streams_[i] = stream_of(next_stream_++);
  }
  void step() {
    const uint64_t what = below(1000);
    // The number of live blocks swings, so that memory is sometimes short and sometimes free.
    const bool growing = ticks_++ / 5000 % 2 == 0;
    if (what < (growing ? 470u : 400u)) {
      allocate_one();
    } else if (what < 870) {
      if (!live_.empty()) free_one(below(live_.size()));
    } else if (what < 950) {
      if (live_.empty()) return;
      Checked::Block& b = live_[below(live_.size())];
      c.use(b, below(b.bytes), streams_[below(kStreams)]);
    } else if (what < 998) {
      DeviceModel::Stream& s = c.model.streams[streams_[below(kStreams)]];
      s.done += below(s.submitted - s.done + 1);
    } else if (below(40) == 0) {
      replace_stream();
    } else if (below(20) == 0) {
      capture();
    } else if (below(20) == 0) {
      c.allocator->empty_cache();
    }
  }

  Checked c;
  bool plain_;
  std::mt19937_64 random_;
  CUstream streams_[kStreams];
  int next_stream_ = 0;
  int capturing_ = -1;
  std::vector<uint64_t> pools_;
  std::vector<Checked::Block> live_;
  int64_t out_of_memory_ = 0, ticks_ = 0;
};

TEST(AllocatorSoak, a_million_operations_on_expandable_segments) { Soak(false, 1).run(1000000); }
TEST(AllocatorSoak, plain_segments) { Soak(true, 2).run(300000); }

// Fragmentation ---------------------------------------------------------------------------------

/// Training steps as an allocator sees them. `width` bytes of activations per layer and sample.
struct Training {
  Checked c{64 * kGiB};
  bool keep_gradients;
  uint64_t submitted_before = 0;
  std::vector<Checked::Block> parameters, gradients, moments;
  std::vector<size_t> parameter_sizes, widths;

  Training(std::vector<size_t> widths, std::vector<size_t> parameter_sizes, bool keep_gradients)
      : keep_gradients(keep_gradients), parameter_sizes(parameter_sizes), widths(widths) {
    for (size_t n : parameter_sizes) parameters.push_back(c.allocate(n, kMain));
  }
  void step(size_t batch) {
    // The device runs one step behind.
    DeviceModel::Stream& stream = c.model.streams[kMain];
    stream.done = submitted_before;
    submitted_before = stream.submitted;
    std::vector<Checked::Block> saved;
    const auto input = c.allocate(batch * widths[0], kMain);
    for (size_t w : widths) {
      const auto linear = c.allocate(batch * w, kMain);
      const auto workspace = c.allocate(batch * w / 3 + 1, kMain);
      const auto statistics = c.allocate(batch * 64, kMain);
      const auto activation = c.allocate(batch * w, kMain);
      c.free(workspace);
      c.free(linear);
      saved.push_back(activation);
      saved.push_back(statistics);
    }
    auto gradient = c.allocate(batch * widths.back(), kMain);
    const bool fresh = gradients.empty();
    for (size_t i = widths.size(); i-- > 0;) {
      const auto of_weight = c.allocate(parameter_sizes[i], kMain);
      const auto of_input = c.allocate(batch * widths[i], kMain);
      c.free(gradient);
      gradient = of_input;
      for (int k = 0; k < 2; ++k) {
        c.free(saved.back());
        saved.pop_back();
      }
      if (fresh)
        gradients.push_back(of_weight);
      else
        c.free(of_weight);  // added to the one that is there
    }
    c.free(gradient);
    c.free(input);
    if (moments.empty())
      for (size_t n : parameter_sizes)
        for (int k = 0; k < 2; ++k) moments.push_back(c.allocate(n, kMain));
    if (!keep_gradients) {
      for (const auto& g : gradients) c.free(g);
      gradients.clear();
    }
  }
  /// Checks the ratio of reserved memory to the peak of what was in use.
  void finish(const char* name) {
    const prim::MemoryStats s = c.allocator->stats();
    const double ratio = double(s.peak_reserved) / double(s.peak_allocated);
    EXPECT_LE(ratio, 1.05) << name;
    EXPECT_EQ(c.model.synchronizations, 0) << name;
    c.check_stats();
  }
};

TEST(AllocatorFragmentation, alternating_batch_sizes) {
  std::mt19937 random(1);
  std::vector<size_t> equal(24, 3 * kMiB), equal_parameters(24, 28 * kMiB);
  std::vector<size_t> convolutional, convolutional_parameters;
  for (int i = 0; i < 50; ++i) {
    convolutional.push_back((size_t(3) * kMiB) >> (i / 12));
    convolutional_parameters.push_back(size_t(36 * kKiB) << 2 * (i / 12));
  }
  std::vector<size_t> mixed, mixed_parameters;
  for (int i = 0; i < 60; ++i) {
    mixed.push_back(random() % (4 * kMiB) + 1000);
    mixed_parameters.push_back(random() % (16 * kMiB) + 100);
  }
  // At batch 256 these are exactly 1 MiB, where the arenas for small and large blocks part.
  std::vector<size_t> edge(400, 4096), edge_parameters(400, 100 * kKiB);
  for (const bool keep : {false, true}) {
    const auto run = [&](const char* name, const std::vector<size_t>& widths,
                         const std::vector<size_t>& parameters, size_t n) {
      Training t(widths, parameters, keep);
      for (int i = 0; i < 100; ++i) t.step(n + size_t(i % 2));
      t.finish((std::string(name) + (keep ? ", gradients kept" : "")).c_str());
    };
    run("equal layers", equal, equal_parameters, 32);
    run("convolutional", convolutional, convolutional_parameters, 32);
    run("mixed", mixed, mixed_parameters, 17);
    run("at the edge of small", edge, edge_parameters, 256);
  }
}

TEST(AllocatorFragmentation, random_batch_sizes) {
  std::mt19937 random(1);
  std::vector<size_t> widths, parameters;
  for (int i = 0; i < 40; ++i) {
    widths.push_back(random() % (2 * kMiB) + 1000);
    parameters.push_back(random() % (16 * kMiB) + 100);
  }
  for (const bool keep : {false, true}) {
    Training t(widths, parameters, keep);
    for (int i = 0; i < 200; ++i) t.step(16 + random() % 48);
    t.finish("random batch sizes");
  }
}

}  // namespace
}  // namespace arete::cuda
