// Records of calls, who is to blame by them, and the server that compares those of all ranks.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include <nlohmann/json.hpp>

#include "arete/arete.h"
#include "arete/distributed/distributed.h"
#include "arete/distributed/monitor.h"
#include "arete/distributed/monitor_messages_internal.h"

namespace arete::distributed {
namespace {

using nlohmann::json;
using std::chrono::steady_clock;
using Status = RankSummary::Status;
using namespace std::chrono_literals;

// ---- the flight recorder

json entries_of(const std::string& group) {
  json found = json::array();
  const json record = json::parse(flight_record({.place = false}));
  for (const json& e : record.at("entries"))
    if (e.at("process_group").at(0) == group) found.push_back(e);
  return found;
}

TEST(FlightRecorder, keeps_what_a_group_did) {
  ProcessGroup group("recorded", "fake", std::make_shared<HashStore>(), 1, {0, 1, 2}, 1s);
  group.all_reduce(ones({2, 3}, kFloat32));
  {
    const CallLabel label(std::make_shared<const std::string>("bucket 1 of 2"));
    group.broadcast(ones({4}, kInt64), 2);
  }
  group.send(ones({5}, kFloat64), 2);
  group.barrier();
  const json all = entries_of("recorded");
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[0].at("operation"), "init_process_group");
  EXPECT_EQ(all[1].at("signature"), "all_reduce SUM float32 of 6 elements");
  EXPECT_EQ(all[1].at("collective_seq_id"), 1);
  EXPECT_EQ(all[1].at("input_sizes"), json::parse("[[2,3]]"));
  EXPECT_EQ(all[1].at("profiling_name"), "fake:all_reduce");
  EXPECT_EQ(all[2].at("signature"), "broadcast int64 of 4 elements root 2");
  EXPECT_EQ(all[2].at("detail"), "int64[4], bucket 1 of 2");
  EXPECT_EQ(all[3].at("is_p2p"), true);
  EXPECT_EQ(all[3].at("p2p_seq_id"), 1);
  EXPECT_EQ(all[4].at("collective_seq_id"), 3);
  for (const json& e : all) {
    EXPECT_EQ(e.at("state"), "completed");
    EXPECT_GE(e.at("time_discovered_completed_ns"), e.at("time_created_ns"));
  }
  const RankSummary read = read_flight_record(flight_record({.recent = 2}));
  const auto g = std::ranges::find(read.groups, "recorded", &GroupSummary::name);
  ASSERT_NE(g, read.groups.end());
  EXPECT_EQ(g->issued, 3u);
  EXPECT_EQ(g->done, 3u);
  EXPECT_EQ(g->ranks, (std::vector{0, 1, 2}));
  ASSERT_EQ(g->calls.size(), 1u);  // the other one is a message
  EXPECT_EQ(g->calls[0].operation, "barrier");
}

TEST(FlightRecorder, forgets_the_oldest_and_is_cheap) {
  const auto watch = GroupWatch::make("cheap", "fake", 0, {0, 1});
  const std::vector<int64_t> sizes{3, 4}, strides{4, 1};
  const prim::View view(nullptr, kFloat32, sizes, strides);
  const prim::CollectiveArgs args{
      .kind = prim::CollectiveKind::all_reduce, .in = {&view, 1}, .out = {&view, 1}};
  double least = 1e9;
  for (int round = 0; round < 20; ++round) {
    constexpr int kCalls = 1000;
    const auto begin = steady_clock::now();
    for (int i = 0; i < kCalls; ++i) watch->perform(watch->enter(args), [] {});
    least = std::min(
        least,
        std::chrono::duration<double, std::micro>(steady_clock::now() - begin).count() / kCalls);
  }
  std::printf("a recorded call costs %.3f us\n", least);
  RecordProperty("microseconds", std::to_string(least));
#ifdef NDEBUG
  EXPECT_LT(least, 1);
#endif
  const json all = json::parse(flight_record({.place = false})).at("entries");
  EXPECT_EQ(all.size(), GroupWatch::kRecorded);
  EXPECT_EQ(all.back().at("collective_seq_id"), 20000);
  // One that the ring has lost is left without harm.
  const uint64_t old = watch->enter(args);
  for (size_t i = 0; i < GroupWatch::kRecorded; ++i) watch->leave(watch->enter(args));
  watch->start(old);
  watch->leave(old);
  EXPECT_EQ(entries_of("cheap").back().at("state"), "completed");
}

TEST(FlightRecorder, knows_what_failed) {
  const auto watch = GroupWatch::make("failing", "fake", 0, {0, 1});
  const prim::CollectiveArgs args{.kind = prim::CollectiveKind::barrier};
  EXPECT_THROW(watch->perform(watch->enter(args), [] { throw ValueError("x", "wrong"); }),
               ValueError);
  EXPECT_THROW(watch->perform(watch->enter(args), [] { throw 3; }), int);
  EXPECT_THROW(
      watch->perform(watch->enter(args),
                     [] { throw DistributedError(DistributedError::Failure::backend, "x", "y"); }),
      DistributedError);
  for (const json& e : entries_of("failing")) EXPECT_EQ(e.at("state"), "failed");
  EXPECT_FALSE(are_calls_under_way({}));
  const uint64_t call = watch->enter(args);
  EXPECT_TRUE(are_calls_under_way({1}));
  EXPECT_FALSE(are_calls_under_way({2}));
  bool aborted = false;
  watch->set_abort([&] { aborted = true; });
  for (const auto& g : watched_groups({0})) g->abort();
  EXPECT_TRUE(aborted);
  watch->leave(call, true);
}

// ---- the diagnosis

RankSummary rank_in(int rank, uint64_t sequence, const std::string& signature, double seconds,
                    bool under_way = true) {
  RankSummary r{.rank = rank, .host = "b", .pid = 800 + rank};
  r.groups = {{.name = "dp",
               .ranks = {0, 1, 2, 3},
               .issued = sequence,
               .done = sequence - (under_way ? 1 : 0)}};
  r.groups[0].calls = {{.sequence = sequence,
                        .operation = signature.substr(0, signature.find(' ')),
                        .signature = signature,
                        .detail = "float32[8]",
                        .seconds = seconds,
                        .under_way = under_way}};
  return r;
}

TEST(Diagnosis, names_who_is_late) {
  std::vector<RankSummary> ranks;
  for (int r = 0; r < 4; ++r)
    ranks.push_back(rank_in(r, r == 3 ? 411 : 412, "all_reduce SUM", 4.1, r != 3));
  ranks[3].place = "DataLoader.__next__, train.py:88 in main";
  const auto f = diagnose(ranks);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->kind, Finding::Kind::behind);
  EXPECT_EQ(f->culprits, std::vector{3});
  EXPECT_FALSE(f->hopeless);
  EXPECT_EQ(
      f->text.substr(0, f->text.rfind("since")),
      "rank 3 (node b, pid 803) has not entered all_reduce #412 of group dp (float32[8]); it is in "
      "DataLoader.__next__, train.py:88 in main, for 4.1 s; ranks 0-2 wait ");
  for (RankSummary& r : ranks) r.groups[0].calls[0].seconds = 3.9;
  EXPECT_FALSE(diagnose(ranks));
  EXPECT_TRUE(diagnose(ranks, 1));
  // One that never began.
  ranks[3] = {.rank = 3, .status = Status::absent};
  EXPECT_EQ(diagnose(ranks, 1)->text.substr(0, 19), "rank 3 has not come");
}

TEST(Diagnosis, names_the_cause_of_causes) {
  // Rank 1 is late in dp since it waits in tp, for rank 3.
  std::vector<RankSummary> ranks;
  for (int r = 0; r < 4; ++r)
    ranks.push_back(rank_in(r, r % 2 ? 6 : 7, "all_reduce SUM", 9, r % 2 == 0));
  for (const int r : {1, 3})
    ranks[size_t(r)].groups.push_back({.name = "tp", .ranks = {1, 3}, .issued = r == 1 ? 1u : 0u});
  ranks[1].groups[1].calls = {{.sequence = 1,
                               .operation = "barrier",
                               .signature = "barrier",
                               .seconds = 9,
                               .under_way = true}};
  const auto f = diagnose(ranks);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->culprits, std::vector{3});
  // And if that waits in another group for rank 1, nobody can go on.
  ranks[3].groups.push_back({.name = "pp", .ranks = {1, 3}, .issued = 1});
  ranks[3].groups[2].calls = {{.sequence = 1,
                               .operation = "barrier",
                               .signature = "barrier",
                               .seconds = 9,
                               .under_way = true}};
  ranks[1].groups.push_back({.name = "pp", .ranks = {1, 3}});
  const auto cycle = diagnose(ranks);
  ASSERT_TRUE(cycle);
  EXPECT_EQ(cycle->kind, Finding::Kind::cycle);
  EXPECT_NE(cycle->text.find("rank 1 waits in barrier #1 of group tp"), std::string::npos)
      << cycle->text;
}

TEST(Diagnosis, who_gets_what_others_have_sent_is_slow) {
  // Rank 0 comes out of a call in dp after ranks 1 and 2 do, which are in the next one; rank 3
  // waits for all of them elsewhere.
  std::vector<RankSummary> ranks;
  for (int r = 0; r < 4; ++r) {
    ranks.push_back(rank_in(r, r == 0 ? 126 : 127, "all_gather", 5, r != 3));
    ranks.back().groups[0].ranks = {0, 1, 2};
    ranks.back().groups.push_back(
        {.name = "world", .ranks = {0, 1, 2, 3}, .issued = r == 3 ? 2u : 1u, .done = 1});
  }
  ranks[3].groups.erase(ranks[3].groups.begin());
  ranks[3].groups[0].calls = {{.sequence = 2,
                               .operation = "barrier",
                               .signature = "barrier",
                               .seconds = 5,
                               .under_way = true}};
  const auto f = diagnose(ranks);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->kind, Finding::Kind::behind) << f->text;
  EXPECT_EQ(f->culprits, std::vector{0}) << f->text;
}

TEST(Diagnosis, names_calls_that_differ) {
  std::vector<RankSummary> ranks;
  for (int r = 0; r < 4; ++r)
    ranks.push_back(rank_in(r, 5, r == 2 ? "broadcast root 0" : "all_reduce SUM", 0.1));
  const auto f = diagnose(ranks);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->kind, Finding::Kind::mismatch);
  EXPECT_EQ(f->culprits, std::vector{2});
  EXPECT_TRUE(f->hopeless);
  EXPECT_EQ(f->text,
            "rank 2 (node b, pid 802) calls broadcast root 0 (float32[8]), but ranks 0, 1, 3 call "
            "all_reduce SUM (float32[8]): call #5 of group dp must be the same on all ranks");
  ranks.resize(2);
  ranks[1] = rank_in(1, 5, "all_reduce MAX", 0.1);
  EXPECT_EQ(diagnose(ranks)->culprits, (std::vector{0, 1}));
}

TEST(Diagnosis, names_who_has_ended) {
  std::vector<RankSummary> ranks;
  for (int r = 0; r < 4; ++r)
    ranks.push_back(rank_in(r, r == 1 ? 2 : 3, "all_reduce SUM", 0.1, r != 1));
  ranks[1].status = Status::gone;
  ranks[1].why = "was ended by signal SIGKILL";
  EXPECT_FALSE(diagnose(ranks)) << "what others said before does not count";
  for (RankSummary& r : ranks) r.heard_since = true;
  const auto f = diagnose(ranks);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->kind, Finding::Kind::gone);
  EXPECT_TRUE(f->hopeless);
  EXPECT_EQ(f->text.substr(0, f->text.rfind("since")),
            "rank 1 (node b, pid 801) was ended by signal SIGKILL before all_reduce #3 of group dp "
            "(float32[8]); ranks 0, 2, 3 wait ");
  ranks[1].groups[0].done = ranks[1].groups[0].issued = 3;
  EXPECT_FALSE(diagnose(ranks)) << "it has done its part";
  ranks[1].status = Status::left;
  EXPECT_FALSE(diagnose(ranks));
  ranks[1].groups[0].done = ranks[1].groups[0].issued = 2;
  EXPECT_EQ(diagnose(ranks)->kind, Finding::Kind::left);
  // One that has left only this group may still come to another, and one that ends will not.
  const std::vector<GroupSummary> groups = std::exchange(ranks[1].groups, {});
  EXPECT_FALSE(diagnose(ranks));
  ranks[1].ends = true;
  EXPECT_EQ(diagnose(ranks)->kind, Finding::Kind::left);
  ranks[1].groups = groups;
  ranks[1].status = Status::silent;
  ranks[1].silent_for = 2.5;
  EXPECT_EQ(diagnose(ranks)->kind, Finding::Kind::silent);
  EXPECT_FALSE(diagnose(ranks)->hopeless);
  for (RankSummary& r : ranks) r.groups[0].calls[0].under_way = false;
  EXPECT_FALSE(diagnose(ranks)) << "nobody waits";
}

TEST(Diagnosis, names_of_ranks) {
  EXPECT_EQ(names_of_ranks({4}), "rank 4");
  EXPECT_EQ(names_of_ranks({7, 0, 1, 2, 9, 8}), "ranks 0-2, 7-9");
  EXPECT_EQ(names_of_ranks({0, 1, 3}), "ranks 0, 1, 3");
}

TEST(Diagnosis, reads_the_records_of_a_folder) {
  const auto watch = GroupWatch::make("of a folder", "gloo", 0, {0, 1});
  const uint64_t call = watch->enter({.kind = prim::CollectiveKind::barrier});
  const std::string folder = testing::TempDir() + "records_" + std::to_string(getpid());
  EXPECT_THROW(diagnose_folder(folder), IoError);
  set_process_rank(0);
  write_flight_record(folder);
  watch->leave(call);
  const std::string text = diagnose_folder(folder);
  EXPECT_NE(text.find("rank 1 has left no record"), std::string::npos) << text;
  EXPECT_NE(text.find("before barrier #1 of group of a folder"), std::string::npos) << text;
  EXPECT_NE(text.find("group of a folder, 0 of 1 collectives done, in barrier #1"),
            std::string::npos)
      << text;
  std::ofstream(folder + "/rank_1.json") << "{}";
  EXPECT_THROW(diagnose_folder(folder), ValueError);
  std::filesystem::remove_all(folder);
  EXPECT_THROW(write_flight_record("/proc/none"), IoError);
}

// ---- the server

// A rank that says what it is told.
class Rank {
 public:
  Rank(const MonitorServer& server, int rank, int size, const std::string& token)
      : connection_(connect_to("127.0.0.1", server.port(), 10s), kMostLine) {
    say({{"token", token}, {"rank", rank}, {"size", size}});
  }
  void say(const json& message) { say_text(message.dump()); }
  void say_text(const std::string& text) {
    connection_.send(text);
    connection_.flush();
  }
  // The next report; "" if the server closed the connection, or none came.
  std::string report(std::chrono::milliseconds most = 10s) {
    for (const auto until = steady_clock::now() + most; steady_clock::now() < until;) {
      for (std::string text; connection_.next(text);) {
        const json message = json::parse(text);
        if (message.contains("report")) return message.at("report");
      }
      // What was said may not have fitted into the socket at once.
      if (!connection_.flush() || !connection_.receive()) return "";
      std::this_thread::sleep_for(2ms);
    }
    return "late";
  }
  // The same while it says this again and again, as ranks do.
  std::string report_on(const json& message) {
    std::string text = "late";
    for (int i = 0; i < 100 && text == "late"; ++i) {
      say(message);
      text = report(50ms);
    }
    return text;
  }
  // Whether the server closes the connection.
  bool is_refused() { return report(10s).empty(); }

 private:
  LineConnection connection_;
};

json record_of(int rank, uint64_t issued, const std::string& signature, double milliseconds) {
  json calls = json::array();
  if (!signature.empty())
    calls.push_back({{"pg_id", 1},
                     {"collective_seq_id", issued},
                     {"operation", "all_reduce"},
                     {"signature", signature},
                     {"detail", ""},
                     {"state", "started"},
                     {"duration_ms", milliseconds}});
  return {{"record",
           {{"rank", rank},
            {"host", "b"},
            {"pid", 1},
            {"groups",
             {{{"id", 1},
               {"name", "g"},
               {"ranks", {0, 1}},
               {"issued", issued},
               {"done", signature.empty() ? issued : issued - 1}}}},
            {"entries", calls}}}};
}

TEST(MonitorServer, compares_ranks) {
  std::mutex mutex;
  std::vector<Finding> reports;
  MonitorServer server({.token = "secret", .size = 2, .report = [&](const Finding& f) {
                          const std::lock_guard lock(mutex);
                          reports.push_back(f);
                        }});
  EXPECT_EQ(json::parse(server.address()).at("token"), "secret");
  Rank a(server, 0, 2, "secret"), b(server, 1, 2, "secret");
  a.say(record_of(0, 1, "all_reduce SUM", 5000));
  b.say(record_of(1, 0, "", 0));
  const std::string late = a.report();
  EXPECT_EQ(late.find("rank 1 (node b, pid 1) has not entered all_reduce #1 of group g"), 0u)
      << late;
  EXPECT_EQ(b.report(), late);
  b.say(record_of(1, 1, "all_reduce MAX", 100));
  const std::string differs = b.report();
  EXPECT_NE(differs.find("rank 1 (node b, pid 1) calls all_reduce MAX"), std::string::npos)
      << differs;
  EXPECT_EQ(a.report(), differs);
  const std::lock_guard lock(mutex);
  ASSERT_EQ(reports.size(), 2u) << "each is told once";
  EXPECT_EQ(reports[1].text, differs);
}

TEST(MonitorServer, hears_of_deaths) {
  MonitorServer server({.token = "secret", .size = 2, .name = "the launcher"});
  auto a = std::make_unique<Rank>(server, 0, 2, "secret");
  Rank b(server, 1, 2, "secret");
  a->say(record_of(0, 3, "", 0));
  b.say(record_of(1, 4, "all_reduce SUM", 1));
  a = nullptr;
  server.process_ended(0, "was ended by signal SIGSEGV");
  const auto begin = steady_clock::now();
  const std::string text = b.report_on(record_of(1, 4, "all_reduce SUM", 1));
  EXPECT_EQ(
      text.find(
          "rank 0 (node b, pid 1) was ended by signal SIGSEGV before all_reduce #4 of group g"),
      0u)
      << text;
  EXPECT_LT(steady_clock::now() - begin, 4s);
}

TEST(MonitorServer, refuses_strangers) {
  MonitorServer server({.token = "secret", .size = 2});
  EXPECT_TRUE(Rank(server, 0, 2, "secres").is_refused());
  EXPECT_TRUE(Rank(server, 0, 2, "").is_refused());
  EXPECT_TRUE(Rank(server, 2, 2, "secret").is_refused());
  EXPECT_TRUE(Rank(server, -1, 2, "secret").is_refused());
  EXPECT_TRUE(Rank(server, 0, 1 << 30, "secret").is_refused());
  Rank a(server, 0, 2, "secret");
  EXPECT_EQ(Rank(server, 0, 2, "secret").report().substr(0, 21), "rank 0 is there twice");
  Rank wrong(server, 1, 2, "secret");
  wrong.say({{"record", 3}});
  EXPECT_TRUE(wrong.is_refused());
  Rank endless(server, 1, 2, "secret");
  endless.say_text(std::string(kMostLine + (1 << 20), 'x'));
  for (int i = 0; i < 100; ++i) endless.say_text("");
  EXPECT_TRUE(endless.is_refused());
  // Before the token, less is taken.
  LineConnection stranger(connect_to("127.0.0.1", server.port(), 10s), kMostLine);
  stranger.send(std::string(kMostHello + (128 << 10), '{'));
  const auto until = steady_clock::now() + 10s;
  while (stranger.flush() && stranger.receive() && steady_clock::now() < until)
    std::this_thread::sleep_for(2ms);
  EXPECT_LT(steady_clock::now(), until);
  EXPECT_NE(a.report_on(record_of(0, 1, "all_reduce SUM", 5000)).find("rank 1 "), std::string::npos)
      << "it still works";
}

// Bytes that are nearly right are more dangerous than noise.
TEST(MonitorServer, survives_random_bytes) {
  MonitorServer server({.token = "secret", .size = 2});
  std::mt19937 random(7);
  const std::string good = record_of(0, 3, "all_reduce SUM", 5).dump();
  const auto until = steady_clock::now() + 1s;
  int rounds = 0;
  for (; steady_clock::now() < until; ++rounds) {
    std::string text = good;
    for (int i = int(random() % 4); i >= 0; --i) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = char(random());
          break;
        case 1:
          text.erase(at, random() % 40);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), random() % 40));
          break;
        default:
          text.insert(at, std::string(random() % 2000, random() % 2 ? '[' : '9'));
      }
      if (text.empty()) text = "{";
    }
    try {
      read_flight_record(text);
    } catch (const ValueError&) {
    }
    try {
      const json parsed = json::parse(text, nullptr, false);
      if (parsed.is_object() && parsed.contains("record"))
        read_flight_record(parsed.at("record").dump());
    } catch (const Error&) {
    } catch (const json::exception&) {  // of dump(), here: bytes that are no UTF-8
    }
    if (rounds % 20 == 0) {
      Rank rank(server, rounds / 20 % 2, 2, random() % 4 ? "secret" : "?");
      rank.say_text(text);
      rank.say_text(text);
    }
  }
  EXPECT_GT(rounds, 20);
  // It goes on. What is wrong with these ranks it may have said already, and says once.
  EXPECT_TRUE(Rank(server, 0, 2, "secres").is_refused());
}

}  // namespace
}  // namespace arete::distributed
