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
    EXPECT_GT(found_again_, 1000);
    EXPECT_TRUE(plain_ || c.model.aliases > 100);
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
    if (below(4) == 0 && last_freed_) {
      if (auto b = c.allocate_at(last_freed_, below(2) ? last_bytes_ : bytes, streams_[i], pool);
          b.p) {
        ++found_again_;
        live_.push_back(std::move(b));
        return;
      }
    }
    try {
      live_.push_back(c.allocate(bytes, streams_[i], pool));
    } catch (const OutOfMemoryError&) {
      ++out_of_memory_;
      if (capturing_ < 0 && !plain_) {
        // All that could be had was tried.
        EXPECT_EQ(c.model.unused_pages(), 0u);
        EXPECT_LT(c.model.capacity - c.model.used, (bytes + kChunk - 1) / kChunk * kChunk);
      }
      for (size_t n = live_.size() / 3; n-- > 0;) free_one(below(live_.size()));
    }
  }
  void free_one(size_t i) {
    std::swap(live_[i], live_.back());
    c.free(live_.back());
    last_freed_ = live_.back().p;
    last_bytes_ = live_.back().bytes;
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
      const CUstream stream = streams_[below(kStreams)];
      // What is captured uses other memory than its pool's when the graph is launched.
      if (capturing_ >= 0 && stream == streams_[capturing_] && b.pool != pools_.back())
        c.allocator->note_use(b.p, stream);
      else
        c.use(b, below(b.bytes), stream);
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
  char* last_freed_ = nullptr;
  size_t last_bytes_ = 0;
  int64_t out_of_memory_ = 0, found_again_ = 0, ticks_ = 0;
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
  /// Steps of these batch sizes in turn. After some repetitions nothing is mapped or unmapped.
  void repeat(int steps, const std::vector<size_t>& batches, const char* name) {
    const int settled = 20 * int(batches.size());
    int64_t mappings = 0;
    for (int i = 0; i < steps; ++i) {
      if (i == settled) mappings = c.model.mappings;
      step(batches[size_t(i) % batches.size()]);
    }
    EXPECT_GT(steps, settled);
    EXPECT_EQ(c.model.mappings, mappings) << name;
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
  // The last block is larger than everything that the layers keep.
  std::vector<size_t> logits(24, 2 * kMiB), logits_parameters(24, 8 * kMiB);
  logits.push_back(60 * kMiB);
  logits_parameters.push_back(64 * kMiB);
  for (const bool keep : {false, true}) {
    const auto run = [&](const char* name, const std::vector<size_t>& widths,
                         const std::vector<size_t>& parameters, size_t n) {
      Training t(widths, parameters, keep);
      const std::string title = std::string(name) + (keep ? ", gradients kept" : "");
      t.repeat(100, {n, n + 1}, title.c_str());
      t.finish(title.c_str());
    };
    run("equal layers", equal, equal_parameters, 32);
    run("convolutional", convolutional, convolutional_parameters, 32);
    run("mixed", mixed, mixed_parameters, 17);
    run("at the edge of small", edge, edge_parameters, 256);
    run("logits", logits, logits_parameters, 32);
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

/// Five batch sizes, and blocks of very different sizes: each kind of step needs most of the memory
/// in other pieces.
TEST(AllocatorFragmentation, few_large_blocks) {
  std::vector<size_t> widths, parameters;
  for (size_t k : {497,  18861, 1469, 69,   1526, 5131, 876,  2615, 3645, 44400, 521,  32356, 2794,
                   3333, 1836,  823,  3975, 1579, 2495, 3544, 3118, 3193, 2441,  2445, 905}) {
    widths.push_back(k * kKiB);
    parameters.push_back(7 * kMiB);
  }
  for (const bool keep : {false, true}) {
    Training t(widths, parameters, keep);
    t.repeat(150, {42, 39, 40, 35, 44}, "few large blocks");
    t.finish("few large blocks");
  }
}

TEST(AllocatorFragmentation, any_network_settles) {
  std::mt19937 random(7);
  for (int network = 0; network < 60; ++network) {
    std::vector<size_t> widths, parameters;
    const size_t layers = 5 + random() % 40, widest = (size_t(64) << random() % 7) * kKiB;
    for (size_t i = 0; i < layers; ++i) {
      const size_t large = random() % 8 == 0 ? 1 + random() % 16 : 1;
      widths.push_back((random() % widest + 1000) * large);
      parameters.push_back(random() % (16 * kMiB) + 100);
    }
    const size_t n = 8 + random() % 56;
    std::vector<size_t> batches;
    for (size_t i = 1 + random() % 4; i-- > 0;) batches.push_back(n + random() % n);
    Training t(widths, parameters, random() % 2);
    const std::string name = "network " + std::to_string(network);
    t.repeat(120, batches, name.c_str());
    // In less memory a few chunks are a larger part.
    if (t.c.peak_allocated > 512 * kMiB) t.finish(name.c_str());
  }
}

/// A language model of 124 million parameters: 12 layers, and scores over 50304 words in single and
/// half precision, each larger than all else in a layer.
TEST(AllocatorFragmentation, language_model) {
  constexpr size_t kTokens = 16 * 1024, kWidth = 768, kWords = 50304;
  constexpr size_t kHidden = kTokens * kWidth * 2, kScores = kTokens * kWords * 4;
  constexpr size_t kLayerParameters = 12 * kWidth * kWidth, kTable = kWords * kWidth;
  Checked c(64 * kGiB);
  const auto get = [&](size_t bytes) { return c.allocate(bytes, kMain); };
  std::vector<Checked::Block> state;
  for (int k = 0; k < 3; ++k) {  // parameters and moments
    for (int i = 0; i < 12; ++i) state.push_back(get(4 * kLayerParameters));
    state.push_back(get(4 * kTable));
  }
  uint64_t submitted_before = 0;
  const auto step = [&] {
    DeviceModel::Stream& stream = c.model.streams[kMain];
    stream.done = submitted_before;
    submitted_before = stream.submitted;
    std::vector<Checked::Block> saved, gradients;
    for (int i = 0; i < 12; ++i) {
      const auto weights = get(2 * kLayerParameters);  // in half precision
      for (size_t n : {1, 3, 1, 1, 1, 4, 4, 1}) {
        const auto product = get(n * kHidden);
        saved.push_back(get(n * kHidden));
        c.free(product);
        saved.push_back(get(kTokens * 4));
      }
      saved.push_back(weights);
    }
    const auto half_table = get(2 * kTable), half_scores = get(kScores / 2);
    const auto scores = get(kScores);
    c.free(half_scores);
    const auto logarithms = get(kScores);
    c.free(scores);
    const auto of_scores = get(kScores);
    c.free(logarithms);
    const auto half_of_scores = get(kScores / 2);
    c.free(of_scores);
    auto gradient = get(kHidden);
    const auto half_of_table = get(2 * kTable);
    gradients.push_back(get(4 * kTable));
    c.free(half_of_table);
    c.free(half_of_scores);
    c.free(half_table);
    for (int i = 0; i < 12; ++i) {
      c.free(saved.back());  // the weights
      saved.pop_back();
      for (size_t n : {1, 4, 4, 1, 1, 1, 3, 1}) {
        const auto of_input = get(n * kHidden);
        c.free(gradient);
        gradient = of_input;
        for (int k = 0; k < 2; ++k) {
          c.free(saved.back());
          saved.pop_back();
        }
      }
      gradients.push_back(get(4 * kLayerParameters));
    }
    c.free(gradient);
    for (const auto& g : gradients) c.free(g);
  };
  int64_t mappings = 0;
  for (int i = 0; i < 20; ++i) {
    if (i == 3) mappings = c.model.mappings;
    step();
  }
  EXPECT_EQ(c.model.mappings, mappings);
  const prim::MemoryStats s = c.allocator->stats();
  EXPECT_LE(double(s.peak_reserved), 1.05 * double(s.peak_allocated));
  EXPECT_EQ(c.model.synchronizations, 0);
}

}  // namespace
}  // namespace arete::cuda
