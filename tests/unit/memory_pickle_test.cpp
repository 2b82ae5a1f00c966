// The pickle of a history, read back by the rules of the format, for memory of a GPU that is put
// together by hand.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include <nlohmann/json.hpp>

#include "arete/profile/memory_history.h"

namespace arete::memory {
namespace {

const Device kGpu(DeviceType::cuda, 0);

using Json = nlohmann::json;

/// Reads what the writer may write; anything else is an error.
class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}

  Json read() {
    if (take(2) != std::string("\x80\x02")) throw std::runtime_error("protocol");
    for (;;) {
      const char op = take(1)[0];
      switch (op) {
        case ']':
          stack_.push_back(Json::array());
          break;
        case '}':
          stack_.push_back(Json::object());
          break;
        case '(':
          marks_.push_back(stack_.size());
          break;
        case 'e':
          close([](Json& list, std::vector<Json> items) {
            for (Json& i : items) list.push_back(std::move(i));
          });
          break;
        case 'u':
          close([](Json& dict, std::vector<Json> items) {
            for (size_t i = 0; i + 1 < items.size(); i += 2)
              dict[items[i].get<std::string>()] = items[i + 1];
          });
          break;
        case 'X':
          stack_.push_back(take(number<uint32_t>()));
          break;
        case 'J':
          stack_.push_back(number<int32_t>());
          break;
        case '\x8a':
          EXPECT_EQ(take(1)[0], 8);
          stack_.push_back(number<int64_t>());
          break;
        case '\x88':
        case '\x89':
          stack_.push_back(op == '\x88');
          break;
        case '\x86': {
          Json second = pop(), first = pop();
          stack_.push_back(Json::array({first, second}));
          break;
        }
        case 'r':
          kept_[number<uint32_t>()] = stack_.back();
          break;
        case 'j':
          stack_.push_back(kept_.at(number<uint32_t>()));
          break;
        case '.':
          EXPECT_EQ(at_, bytes_.size());
          EXPECT_EQ(stack_.size(), 1u);
          return pop();
        default:
          throw std::runtime_error("an operation that is not written");
      }
    }
  }

 private:
  std::string take(size_t n) {
    at_ += n;
    return bytes_.substr(at_ - n, n);
  }
  template <class T>
  T number() {
    T v{};
    std::memcpy(&v, take(sizeof(T)).data(), sizeof(T));
    return v;
  }
  Json pop() {
    Json j = std::move(stack_.back());
    stack_.pop_back();
    return j;
  }
  template <class F>
  void close(F&& f) {
    const auto mark = stack_.begin() + ptrdiff_t(marks_.back());
    marks_.pop_back();
    std::vector<Json> items(mark, stack_.end());
    stack_.erase(mark, stack_.end());
    f(stack_.back(), std::move(items));
  }

  const std::string bytes_;
  size_t at_ = 0;
  std::vector<Json> stack_;
  std::vector<size_t> marks_;
  std::map<uint32_t, Json> kept_;
};

Entry entry(MemoryEvent::Action action, uintptr_t address, size_t bytes, Device device = kGpu,
            StackId stack = 0) {
  Entry e;
  e.event.action = action;
  e.event.device = device;
  e.event.address = address;
  e.event.bytes = bytes;
  e.event.requested = bytes - 1;
  e.stack = stack;
  return e;
}

TEST(MemoryPickle, SegmentsOfAGpu) {
  using Action = MemoryEvent::Action;
  constexpr uintptr_t kBase = uintptr_t(1) << 40;
  Snapshot s;
  s.stacks = {{}, {{"file.py", "f", 3}}};
  s.events = {
      entry(Action::segment_map, kBase, 4096),
      entry(Action::segment_map, kBase + 4096, 4096),  // joins the first
      entry(Action::alloc, kBase, 1024, kGpu, 1),
      entry(Action::alloc, kBase + 1024, 1024),
      entry(Action::alloc, kBase + 2048, 512, kGpu, 1),
      entry(Action::free, kBase + 1024, 1024),
      entry(Action::segment_unmap, kBase + 6144, 2048),  // the end of the second
      entry(Action::segment_alloc, 64, 256),
      entry(Action::segment_free, 64, 0),
      entry(Action::out_of_memory, 0, 1 << 30),
      entry(Action::alloc, 7777, 100, kCPU),
  };
  s.live = replay(s);
  const Json j = Reader(to_pickle(s)).read();

  ASSERT_EQ(j["device_traces"].size(), 2u);  // a GPU and the CPU
  std::vector<std::string> actions;
  for (const Json& e : j["device_traces"][0]) actions.push_back(e["action"]);
  EXPECT_EQ(actions,
            (std::vector<std::string>{"segment_map", "segment_map", "alloc", "alloc", "alloc",
                                      "free_requested", "free_completed", "segment_unmap",
                                      "segment_alloc", "segment_free", "oom"}));
  EXPECT_EQ(j["device_traces"][0][2]["frames"][0]["filename"], "file.py");
  EXPECT_EQ(j["device_traces"][0][4]["frames"][0]["line"], 3);
  EXPECT_EQ(j["device_traces"][0][3]["frames"].size(), 0u);
  EXPECT_EQ(j["device_traces"][1].size(), 2u);

  ASSERT_EQ(j["segments"].size(), 2u);
  const Json& gpu = j["segments"][0];
  EXPECT_EQ(gpu["address"], kBase);
  EXPECT_EQ(gpu["total_size"], 6144);
  EXPECT_EQ(gpu["allocated_size"], 1536);
  EXPECT_EQ(gpu["requested_size"], 1534);
  EXPECT_EQ(gpu["is_expandable"], true);
  EXPECT_EQ(gpu["segment_pool_id"], Json::array({0, 0}));
  std::vector<std::pair<std::string, int>> blocks;
  for (const Json& b : gpu["blocks"]) blocks.emplace_back(b["state"], b["size"]);
  EXPECT_EQ(blocks, (std::vector<std::pair<std::string, int>>{{"active_allocated", 1024},
                                                              {"inactive", 1024},
                                                              {"active_allocated", 512},
                                                              {"inactive", 3584}}));
  EXPECT_EQ(j["segments"][1]["device"], 1);
  EXPECT_EQ(j["segments"][1]["total_size"], 100);
}

}  // namespace
}  // namespace arete::memory
