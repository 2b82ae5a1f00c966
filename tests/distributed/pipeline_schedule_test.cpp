// Schedules of pipelines: complete, without circles, within their memory, and with the bubbles that
// are known of them.
#include "arete/distributed/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "arete/base/error.h"

namespace arete::distributed {
namespace {

using Kind = PipelineAction::Kind;

PipelineCosts equal_costs(const PipelineSchedule& s, double transfer = 0) {
  const std::vector<double> one(size_t(s.stages()), 1.0);
  return {one, one, one, transfer};
}
double bubble(const std::string& name, int ranks, int stages, int microbatches) {
  const PipelineSchedule s = pipeline_schedule(name, ranks, stages, microbatches);
  return simulate_schedule(s, equal_costs(s)).bubble();
}
int most(const std::vector<int>& all) { return *std::max_element(all.begin(), all.end()); }
std::string text_of(const PipelineSchedule& s, int rank, bool transfers = false) {
  std::string text;
  for (const PipelineAction& a : s.ranks[size_t(rank)])
    if (a.computes() || transfers) text += (text.empty() ? "" : " ") + to_string(a);
  return text;
}

TEST(PipelineSchedules, KnownOrders) {
  const auto order = [](const char* name, int rank, int stages, int microbatches) {
    return text_of(pipeline_schedule(name, 2, stages, microbatches), rank);
  };
  EXPECT_EQ(order("GPipe", 0, 2, 3), "F0.0 F0.1 F0.2 B0.0 B0.1 B0.2");
  EXPECT_EQ(order("1F1B", 0, 2, 3), "F0.0 F0.1 B0.0 F0.2 B0.1 B0.2");
  EXPECT_EQ(order("1F1B", 1, 2, 3), "F1.0 B1.0 F1.1 B1.1 F1.2 B1.2");
  EXPECT_EQ(order("Interleaved1F1B", 1, 4, 2), "F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 B1.0 B1.1");
  EXPECT_EQ(text_of(pipeline_schedule("1F1B", 2, 2, 1), 0, true), "F0.0 SEND_F0.0 RECV_B0.0 B0.0");
  EXPECT_EQ(text_of(pipeline_schedule("1F1B", 2, 2, 2, false), 1, true),
            "RECV_F1.0 F1.0 RECV_F1.1 F1.1");
}

TEST(PipelineSchedules, AllAreCompleteWithoutCirclesAndWithinMemory) {
  for (const std::string& name : pipeline_schedule_names())
    for (const int ranks : {1, 2, 3, 4, 7, 8})
      for (const int chunks : {1, 2, 3})
        for (const int microbatches : {1, 2, 3, 4, 5, 8, 13, 16, 32}) {
          PipelineSchedule s;
          try {
            s = pipeline_schedule(name, ranks, chunks * ranks, microbatches);
          } catch (const ValueError&) {
            continue;  // sizes that it cannot have
          }
          SCOPED_TRACE(name + " " + std::to_string(ranks) + " " + std::to_string(chunks) + " " +
                       std::to_string(microbatches));
          const std::vector<int> held = check_schedule(s);
          const PipelineSchedule forward =
              pipeline_schedule(name, ranks, chunks * ranks, microbatches, false);
          check_schedule(forward, false);
          if (name == "1F1B") {
            for (int r = 0; r < ranks; ++r)
              EXPECT_EQ(held[size_t(r)], std::min(microbatches, ranks - r));
          }
          if (name == "InterleavedZeroBubble" && chunks == 1) {
            EXPECT_LE(most(held), ranks);
          }
          if (name == "ZBVZeroBubble") {
            EXPECT_LE(most(held), 2 * ranks);
          }
        }
}

// With steps of equal time; a microbatch's backward pass is two of them.
TEST(PipelineSchedules, BubblesAreThoseOfTheory) {
  for (const int n : {2, 4, 8})
    for (const int m : {8, 16, 64}) {
      SCOPED_TRACE(std::to_string(n) + " " + std::to_string(m));
      const double one = double(n - 1) / (m + n - 1);
      EXPECT_NEAR(bubble("GPipe", n, n, m), one, 1e-9);
      EXPECT_NEAR(bubble("1F1B", n, n, m), one, 1e-9);
      EXPECT_NEAR(bubble("Interleaved1F1B", n, 2 * n, m), (n - 1) / 2. / (m + (n - 1) / 2.), 1e-9);
      // Zero bubbles with the memory of 1F1B: a third of its waiting time.
      EXPECT_LE(bubble("InterleavedZeroBubble", n, n, m), double(n - 1) / (3 * m + n - 1) + 1e-9);
      EXPECT_LT(bubble("InterleavedZeroBubble", n, 2 * n, m),
                bubble("Interleaved1F1B", n, 2 * n, m));
      // Two processes wait for the first microbatch alone in either case.
      EXPECT_LE(bubble("ZBVZeroBubble", n, 2 * n, m),
                bubble("InterleavedZeroBubble", n, n, m) * (n == 2 ? 1 : 0.9));
    }
}

TEST(PipelineSchedules, FourThousandProcesses) {
  const PipelineSchedule s = pipeline_schedule("1F1B", 4096, 4096, 8);
  EXPECT_EQ(most(check_schedule(s)), 8);
  EXPECT_NEAR(simulate_schedule(s, equal_costs(s)).total, 3 * (8 + 4095), 1e-6);
  check_schedule(pipeline_schedule("ZBVZeroBubble", 256, 512, 32));
}

TEST(PipelineSchedules, CostsOfStagesAndTransfers) {
  const PipelineSchedule s = pipeline_schedule("GPipe", 2, 2, 2);
  const PipelineTimes t = simulate_schedule(s, {{1, 2}, {1, 2}, {1, 2}, 0.5});
  // F0.0 F1.0 F1.1 B1.0 B1.1 B0.1 in line, and two transfers.
  EXPECT_DOUBLE_EQ(t.total, 1 + 0.5 + 2 + 2 + 4 + 4 + 0.5 + 2);
  EXPECT_EQ(t.busy, (std::vector<double>{6, 12}));
  EXPECT_THROW(simulate_schedule(s, {{1}, {1, 2}, {1, 2}, 0}), ValueError);
}

TEST(PipelineSchedules, WrongOnesAreNamed) {
  const PipelineSchedule good = pipeline_schedule("1F1B", 2, 2, 2);
  const auto wrong = [&](auto&& change) {
    PipelineSchedule s = good;
    change(s);
    try {
      check_schedule(s);
    } catch (const ValueError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const auto take = [](auto& order, const PipelineAction& a) {
    order.erase(std::find(order.begin(), order.end(), a));
  };
  using Text = std::string;
  const auto has = [](const Text& text, const char* part) { return text.find(part) != Text::npos; };
  EXPECT_PRED2(has, wrong([&](auto& s) {
                 take(s.ranks[1], {Kind::recv_forward, 1, 0});
               }),
               "F1.0 of process 1 comes before its inputs");
  EXPECT_PRED2(has, wrong([&](auto& s) {
                 s.ranks[0].push_back({Kind::backward, 0, 1});
               }),
               "B0.1 of process 0 is there twice");
  EXPECT_PRED2(has, wrong([&](auto& s) { take(s.ranks[0], {Kind::send_forward, 0, 1}); }), "waits");
  EXPECT_PRED2(has, wrong([&](auto& s) { take(s.ranks[0], {Kind::backward, 0, 1}); }), "missing");
  EXPECT_PRED2(has, wrong([&](auto& s) {
                 s.ranks[0].push_back({Kind::forward, 1, 0});
               }),
               "another process' stage");
  EXPECT_PRED2(has, wrong([&](auto& s) {
                 s.ranks[0].push_back({Kind::forward, 0, 7});
               }),
               "of no stage or microbatch");
  // Each sends first what the other wants last.
  EXPECT_PRED2(has, wrong([&](auto& s) {
                 auto& order = s.ranks[0];
                 const auto send = std::find(order.begin(), order.end(),
                                             PipelineAction{Kind::send_forward, 0, 0});
                 std::rotate(send, send + 1, order.end());
               }),
               "waits for a process that waits");
  for (const auto& [name, ranks, stages, microbatches] : {std::tuple("1F1B", 2, 4, 2),
                                                          {"Interleaved1F1B", 2, 3, 2},
                                                          {"Interleaved1F1B", 4, 8, 9},
                                                          {"ZBVZeroBubble", 2, 2, 2},
                                                          {"Magic", 2, 2, 2},
                                                          {"GPipe", 2, 2, 0}})
    EXPECT_THROW(pipeline_schedule(name, ranks, stages, microbatches), ValueError) << name;
}

}  // namespace
}  // namespace arete::distributed
