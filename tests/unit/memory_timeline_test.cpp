// What memory was held for, told from a recording (Note [Categories of memory]).
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "arete/base/error.h"
#include "arete/base/file.h"
#include "arete/base/gzip.h"
#include "arete/profile/memory_timeline.h"

namespace arete {
namespace {

const Device kGpu(DeviceType::cuda, 0);

using profile::Event;
using profile::EventKind;
using profile::Trace;

// See Note [Categories of memory].
TEST(MemoryTimeline, TellsWhatMemoryIsHeldFor) {
  Trace t;
  t.begin_ns = 1000;
  t.wall_begin_us = 5;
  t.with_memory = true;
  t.memory_before = {{kGpu, 1000}};
  const auto event = [&](EventKind kind, const char* name, uint64_t id, uint64_t parent,
                         int64_t begin, int64_t end, int64_t sequence = -1) {
    Event e;
    e.kind = kind;
    e.name = name;
    e.id = id;
    e.parent = int64_t(parent);
    e.thread = 1;
    e.begin_ns = begin;
    e.end_ns = end;
    e.sequence = sequence;
    t.events.push_back(e);
  };
  event(EventKind::call, "randn", 1, 0, 1100, 1200);
  event(EventKind::call, "linear", 2, 0, 2000, 3000);
  event(EventKind::call, "mm", 3, 2, 2100, 2900, 7);
  event(EventKind::user, "backward", 4, 0, 4000, 8000);
  event(EventKind::backward, "MeanBackward0", 5, 4, 4100, 5000, 8);
  event(EventKind::backward, "MmBackward0", 6, 4, 5100, 7000, 7);
  event(EventKind::call, "mm", 9, 6, 5200, 6000);
  event(EventKind::optimizer, "step", 10, 0, 9000, 9900);
  event(EventKind::call, "zeros", 11, 10, 9100, 9200);
  event(EventKind::backward, "NegBackward0", 12, 0, 20000, 21000, 9);  // another pass
  using profile::MemoryCategory;
  std::map<uint64_t, MemoryCategory> expected;
  const auto memory = [&](MemoryCategory category, uint64_t within, int64_t begin, int64_t end) {
    const uint64_t address = 100 + expected.size();
    t.memory.push_back({begin, 1, kGpu, address, 8, 0, int64_t(within)});
    if (end >= 0) t.memory.push_back({end, 1, kGpu, address, -8, 0, 0});
    expected[address] = category;
  };
  memory(MemoryCategory::unknown, 1, 1150, -1);            // an input
  memory(MemoryCategory::unknown, 0, 1210, 1220);          // nobody's
  memory(MemoryCategory::temporary, 1, 1155, 1160);        // within the call
  memory(MemoryCategory::temporary, 3, 2200, 2950);        // within the outer call
  memory(MemoryCategory::activation, 3, 2300, 5500);       // given back by the backward pass
  memory(MemoryCategory::activation, 3, 2350, -1);         // a result
  memory(MemoryCategory::autograd_detail, 5, 4200, 6999);  // for the next function
  memory(MemoryCategory::temporary, 9, 5300, 5400);
  memory(MemoryCategory::gradient, 9, 5301, 30000);
  memory(MemoryCategory::gradient, 6, 6500, 7001);  // held when the last function has ended
  memory(MemoryCategory::temporary, 11, 9150, 9160);
  memory(MemoryCategory::temporary, 11, 9151, 9300);  // until the step is over
  memory(MemoryCategory::optimizer_state, 11, 9152, 9901);
  memory(MemoryCategory::gradient, 12, 20001, -1);
  // Two that were there before, on another device, too.
  t.memory.push_back({1300, 1, kGpu, 7, -600, 0, 0});
  t.memory.push_back({1301, 1, kCPU, 7, -40, 0, 0});
  t.finish();

  int64_t before = 0;
  size_t told = 0;
  for (const profile::MemoryLife& l : memory_lives(t)) {
    if (l.begin_ns < 0) {
      EXPECT_EQ(l.category, MemoryCategory::unknown);
      if (l.device == kGpu) before += l.bytes;
      continue;
    }
    EXPECT_EQ(l.category, expected.at(l.address))
        << l.address << ": " << name_of(l.category) << ", not " << name_of(expected.at(l.address));
    ++told;
  }
  EXPECT_EQ(told, expected.size());
  EXPECT_EQ(before, 1000) << "600 were given back, 400 stayed";

  const std::string path = testing::TempDir() + "timeline";
  export_memory_timeline(t, path + ".json", kGpu);
  const auto j = nlohmann::json::parse(std::ifstream(path + ".json"));
  ASSERT_EQ(j[0].size(), j[1].size());
  // Before the recording, at 1.150, 1.155 and so on: microseconds since 1970, where it began at 5.
  EXPECT_EQ(j[0][0], 5);
  EXPECT_EQ(j[1][0], nlohmann::json({0, 0, 0, 0, 0, 0, 0, 0, 1000}));
  EXPECT_EQ(j[1][1], nlohmann::json({0, 0, 0, 0, 0, 0, 0, 0, 408}));
  EXPECT_EQ(j[0].back(), 34);
  EXPECT_EQ(j[1].back(), nlohmann::json({0, 0, 0, 0, 0, 8, 8, 0, 408}));
  export_memory_timeline(t, path + ".raw.json.gz", kCPU);
  const std::vector<std::byte> packed = io::read_file(path + ".raw.json.gz", 1000);
  const std::vector<uint8_t> text = io::gunzip(packed, 1000);
  EXPECT_EQ(nlohmann::json::parse(text.begin(), text.end()),
            nlohmann::json({{-1, 1, 40, 7}, {5301, 4, -40, 7}}));
  EXPECT_THROW(export_memory_timeline(t, path + ".png", kGpu), ValueError);
  t.with_memory = false;
  EXPECT_THROW(export_memory_timeline(t, path + ".json", kGpu), ValueError);
}

}  // namespace
}  // namespace arete
