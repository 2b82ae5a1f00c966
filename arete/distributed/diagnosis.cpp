#include "arete/distributed/diagnosis.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <nlohmann/json.hpp>

#include "arete/base/error.h"

namespace arete::distributed {
namespace {

using nlohmann::json;
using Status = RankSummary::Status;

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", seconds);
  return text;
}

std::string clock_text(double seconds_ago) {
  const std::time_t then = std::chrono::system_clock::to_time_t(
      std::chrono::system_clock::now() -
      std::chrono::milliseconds(int64_t(std::clamp(seconds_ago, 0.0, 1e9) * 1e3)));
  std::tm parts{};
  localtime_r(&then, &parts);
  char text[16];
  std::strftime(text, sizeof text, "%H:%M:%S", &parts);
  return text;
}

std::string who(const RankSummary& r) {
  std::string text = "rank " + std::to_string(r.rank);
  if (r.pid) text += " (node " + r.host + ", pid " + std::to_string(r.pid) + ")";
  return text;
}

// "all_reduce #412 of group dp (float32[1048576])"
std::string call_text(const GroupSummary& group, const CallSummary& call, bool with_detail = true) {
  std::string text = call.operation;
  if (call.sequence) text += " #" + std::to_string(call.sequence);
  text += " of group " + group.name;
  if (with_detail && !call.detail.empty()) text += " (" + call.detail + ")";
  return text;
}

const CallSummary* call_of(const GroupSummary& group, uint64_t sequence) {
  const auto at = std::ranges::find(group.calls, sequence, &CallSummary::sequence);
  return at == group.calls.end() ? nullptr : &*at;
}

const GroupSummary* group_of(const RankSummary& rank, const std::string& name) {
  const auto at = std::ranges::find(rank.groups, name, &GroupSummary::name);
  return at == rank.groups.end() ? nullptr : &*at;
}

bool includes(const std::vector<int>& list, int value) {
  return std::ranges::find(list, value) != list.end();
}

// Those who wait in one call.
struct Wait {
  const GroupSummary* group;  // as one of them sees it
  const CallSummary* call;
  std::vector<int> ranks;
  double seconds = 0;        // the longest
  bool failed = false;       // one of them waits no longer
  bool heard_since = false;  // one of them said so after somebody was gone
};

using Key = std::pair<std::string, uint64_t>;

class Diagnosis {
 public:
  Diagnosis(const std::vector<RankSummary>& ranks, double patience)
      : ranks_(ranks), patience_(patience) {
    for (const RankSummary& r : ranks) {
      by_rank_[r.rank] = &r;
      if (r.status == Status::left || r.status == Status::gone) continue;
      for (const GroupSummary& g : r.groups) {
        const auto at = std::ranges::find_if(
            g.calls, [](const CallSummary& c) { return c.under_way || c.failed; });
        if (at == g.calls.end()) continue;
        Wait& w = waits_[{g.name, at->sequence}];
        if (w.ranks.empty()) w.group = &g, w.call = &*at;
        w.ranks.push_back(r.rank);
        w.seconds = std::max(w.seconds, at->seconds);
        w.failed |= at->failed;
        w.heard_since |= r.heard_since;
      }
    }
  }

  std::optional<Finding> find() {
    for (auto rule :
         {&Diagnosis::mismatch, &Diagnosis::ended, &Diagnosis::silent, &Diagnosis::behind})
      if (auto finding = (this->*rule)()) return finding;
    return std::nullopt;
  }

 private:
  const RankSummary& of(int rank) const {
    static const RankSummary& none = *new RankSummary;
    const auto at = by_rank_.find(rank);
    return at == by_rank_.end() ? none : *at->second;
  }

  std::string who_is(int rank) const {
    const auto at = by_rank_.find(rank);
    return at == by_rank_.end() ? "rank " + std::to_string(rank) : who(*at->second);
  }

  std::string waiting_text(const Wait& w) const {
    std::string text = "; " + names_of_ranks(w.ranks) + (w.ranks.size() == 1 ? " waits" : " wait") +
                       " since " + clock_text(w.seconds);
    for (const int r : w.ranks)
      if (const std::string& place = of(r).place; !place.empty())
        return text + " (" + (w.ranks.size() == 1 ? "" : "rank " + std::to_string(r) + " ") +
               "in " + place + ")";
    return text;
  }

  // Ranks whose calls of the same number differ.
  std::optional<Finding> mismatch() {
    std::set<Key> keys;
    for (const RankSummary& r : ranks_)
      for (const GroupSummary& g : r.groups)
        for (const CallSummary& c : g.calls) keys.insert({g.name, c.sequence});
    for (const Key& key : keys) {
      std::map<std::string, std::vector<int>> said;
      for (const RankSummary& r : ranks_)
        if (const GroupSummary* g = group_of(r, key.first))
          if (const CallSummary* c = call_of(*g, key.second)) said[c->signature].push_back(r.rank);
      if (said.size() < 2) continue;
      // The many are right; of two it cannot be told.
      std::vector<std::pair<std::string, std::vector<int>>> sides(said.begin(), said.end());
      std::ranges::sort(sides, [](const auto& a, const auto& b) {
        return std::pair(a.second.size(), -a.second[0]) < std::pair(b.second.size(), -b.second[0]);
      });
      Finding f{.kind = Finding::Kind::mismatch,
                .group = key.first,
                .sequence = key.second,
                .hopeless = true};
      const bool alike = sides[0].second.size() == sides.back().second.size();
      for (size_t i = 0; i < sides.size(); ++i) {
        const std::vector<int>& side = sides[i].second;
        if (i + 1 < sides.size() || alike)
          f.culprits.insert(f.culprits.end(), side.begin(), side.end());
        f.text += i == 0 ? "" : i == 1 ? ", but " : ", and ";
        f.text += side.size() == 1 ? who_is(side[0]) : names_of_ranks(side);
        f.text += (side.size() == 1 ? " calls " : " call ") + sides[i].first;
        const RankSummary& one = of(side[0]);
        const CallSummary* c = call_of(*group_of(one, key.first), key.second);
        if (!c->detail.empty()) f.text += " (" + c->detail + ")";
        if (!one.place.empty() && (c->under_way || c->failed)) f.text += " in " + one.place;
      }
      f.text += ": call #" + std::to_string(key.second) + " of group " + key.first +
                " must be the same on all ranks";
      std::ranges::sort(f.culprits);
      return f;
    }
    return std::nullopt;
  }

  // Ranks that have ended and will not do what others wait for.
  std::optional<Finding> ended() {
    for (const auto& [key, w] : waits_)
      for (const int r : w.group->ranks) {
        const RankSummary& other = of(r);
        const bool gone = other.status == Status::gone;
        if (!gone && other.status != Status::left) continue;
        const GroupSummary* g = group_of(other, key.first);
        const bool begun = g && g->issued >= key.second && key.second > 0;
        // What others said before it ended may be of another time.
        if (!w.failed && !w.heard_since) continue;
        // What one that is gone said last is old. One that only left a group may come to another.
        const bool in_group = g && key.second > 0;
        const bool did_its_part = gone         ? in_group && g->done >= key.second
                                  : other.ends ? in_group && begun
                                               : !in_group || begun;
        if (did_its_part) continue;
        return Finding{.kind = gone ? Finding::Kind::gone : Finding::Kind::left,
                       .culprits = {r},
                       .group = key.first,
                       .sequence = key.second,
                       .text = who_is(r) + " " + other.why + (begun ? " in " : " before ") +
                               call_text(*w.group, *w.call) +
                               (other.place.empty() ? "" : ", " + other.place) + waiting_text(w),
                       .hopeless = true};
      }
    // Messages wait, too.
    for (const RankSummary& r : ranks_)
      for (const int peer : r.waits_for) {
        const RankSummary& other = of(peer);
        if (r.status != Status::working || other.status != Status::gone || !r.heard_since) continue;
        return Finding{.kind = Finding::Kind::gone,
                       .culprits = {peer},
                       .text = who_is(peer) + " " + other.why + "; rank " + std::to_string(r.rank) +
                               " waits for a message between both" +
                               (r.place.empty() ? "" : " in " + r.place),
                       .hopeless = true};
      }
    return std::nullopt;
  }

  std::optional<Finding> silent() {
    for (const auto& [key, w] : waits_) {
      std::vector<int> culprits;
      for (const int r : w.group->ranks)
        if (of(r).status == Status::silent) culprits.push_back(r);
      if (culprits.empty()) continue;
      const RankSummary& first = of(culprits[0]);
      const GroupSummary* g = group_of(first, key.first);
      const bool begun = g && g->issued >= key.second && key.second > 0;
      Wait others = w;
      std::erase_if(others.ranks, [&](int r) { return includes(culprits, r); });
      if (others.ranks.empty()) continue;
      std::string text =
          culprits.size() == 1 ? who_is(culprits[0]) + " has" : names_of_ranks(culprits) + " have";
      return Finding{.kind = Finding::Kind::silent,
                     .culprits = culprits,
                     .group = key.first,
                     .sequence = key.second,
                     .text = text + " not been heard of for " + seconds_text(first.silent_for) +
                             (first.why.empty() ? "" : " (" + first.why + ")") + ", " +
                             (begun ? "in " : "before ") + call_text(*w.group, *w.call) +
                             waiting_text(others)};
    }
    return std::nullopt;
  }

  std::optional<Finding> behind() {
    std::set<int> late;
    const auto lags = [&](int r, const Key& key) {
      const RankSummary& other = of(r);
      const GroupSummary* g = group_of(other, key.first);
      return (!g && key.second == 0) || (g && g->issued < key.second) ||
             (!g && other.status == Status::absent);
    };
    // Who waits for nobody who is late is slow: what he waits for is on its way.
    const auto is_held_up = [&](int r) {
      return std::ranges::any_of(waits_, [&](const auto& entry) {
        const auto& [key, w] = entry;
        return includes(w.ranks, r) && std::ranges::any_of(w.group->ranks, [&](int other) {
                 return !includes(w.ranks, other) && lags(other, key);
               });
      });
    };
    for (const auto& [key, w] : waits_) {
      if (w.seconds < patience_) continue;
      for (const int r : w.group->ranks)
        if (!includes(w.ranks, r) && lags(r, key)) late.insert(r);
    }
    if (late.empty()) return std::nullopt;
    std::set<int> roots;
    for (const int r : late)
      if (!is_held_up(r)) roots.insert(r);
    if (roots.empty()) return cycle();
    for (const auto& [key, w] : waits_) {
      std::vector<int> culprits;
      for (const int r : w.group->ranks)
        if (roots.contains(r) && !includes(w.ranks, r) && lags(r, key)) culprits.push_back(r);
      if (culprits.empty() || w.seconds < patience_) continue;
      const RankSummary& first = of(culprits[0]);
      std::string text = culprits.size() == 1 ? who_is(culprits[0]) : names_of_ranks(culprits);
      text += culprits.size() == 1 ? " has" : " have";
      text += first.status == Status::absent ? " not come to " : " not entered ";
      text += call_text(*w.group, *w.call);
      if (!first.place.empty())
        text += (culprits.size() == 1 ? "; it is in "
                                      : "; rank " + std::to_string(first.rank) + " is in ") +
                first.place;
      text += ", for " + seconds_text(w.seconds);
      return Finding{.kind = Finding::Kind::behind,
                     .culprits = culprits,
                     .group = key.first,
                     .sequence = key.second,
                     .text = text + waiting_text(w)};
    }
    return std::nullopt;
  }

  // All who are late wait themselves: for each other.
  std::optional<Finding> cycle() {
    Finding f{.kind = Finding::Kind::cycle};
    for (const auto& [key, w] : waits_) {
      f.text += f.text.empty() ? "" : ", ";
      f.text += names_of_ranks(w.ranks) + (w.ranks.size() == 1 ? " waits" : " wait") + " in " +
                call_text(*w.group, *w.call);
      if (const std::string& place = of(w.ranks[0]).place; !place.empty()) f.text += " in " + place;
      f.culprits.insert(f.culprits.end(), w.ranks.begin(), w.ranks.end());
    }
    f.text += ": each for the others, so groups are used in another order on some ranks";
    std::ranges::sort(f.culprits);
    f.culprits.erase(std::unique(f.culprits.begin(), f.culprits.end()), f.culprits.end());
    return f;
  }

  const std::vector<RankSummary>& ranks_;
  const double patience_;
  std::map<int, const RankSummary*> by_rank_;
  std::map<Key, Wait> waits_;
};

// ---- records

constexpr size_t kMostGroups = 1024, kMostCalls = 4096, kMostRanks = 1 << 20, kMostText = 4096;

[[noreturn]] void throw_wrong(const std::string& why) {
  throw ValueError("read_flight_record", "this is not the record of a rank: " + why);
}

std::string text_in(const json& j, const char* key) {
  const auto at = j.find(key);
  if (at == j.end() || at->is_null()) return "";
  if (!at->is_string()) throw_wrong(std::string(key) + " is no text");
  std::string text = at->get<std::string>();
  if (text.size() > kMostText) throw_wrong(std::string(key) + " is too long");
  // It goes to terminals.
  for (char& c : text)
    if (uint8_t(c) < 0x20 || c == 0x7f) c = ' ';
  return text;
}

int64_t number_in(const json& j, const char* key, int64_t least, int64_t most) {
  const auto at = j.find(key);
  if (at == j.end() || !at->is_number_integer()) throw_wrong(std::string(key) + " is no number");
  if (at->is_number_unsigned() && at->get<uint64_t>() > uint64_t(INT64_MAX))
    throw_wrong(std::string(key) + " is too large");
  const auto value = at->get<int64_t>();
  if (value < least || value > most) throw_wrong(std::string(key) + " is out of range");
  return value;
}

const json& list_in(const json& j, const char* key, size_t most) {
  const auto at = j.find(key);
  if (at == j.end() || !at->is_array() || at->size() > most)
    throw_wrong(std::string(key) + " is no list, or too long a one");
  return *at;
}

CallSummary call_from(const json& e) {
  if (!e.is_object()) throw_wrong("an entry is no object");
  const std::string state = text_in(e, "state");
  const auto duration = e.find("duration_ms");
  if (duration == e.end() || !duration->is_number()) throw_wrong("duration_ms is no number");
  return {.sequence = uint64_t(number_in(e, "collective_seq_id", 0, INT64_MAX)),
          .operation = text_in(e, "operation"),
          .signature = text_in(e, "signature"),
          .detail = text_in(e, "detail"),
          .seconds = std::clamp(duration->get<double>() / 1e3, 0.0, 1e9),
          .under_way = state == "scheduled" || state == "started",
          .failed = state == "failed"};
}

}  // namespace

std::optional<Finding> diagnose(const std::vector<RankSummary>& ranks, double patience) {
  return Diagnosis(ranks, patience).find();
}

RankSummary read_flight_record(std::string_view text) {
  const json all = json::parse(text, nullptr, false);
  if (!all.is_object()) throw_wrong("it is no JSON object");
  RankSummary r;
  r.rank = int(number_in(all, "rank", 0, int64_t(kMostRanks) - 1));
  r.host = text_in(all, "host");
  r.pid = number_in(all, "pid", 0, INT64_MAX);
  r.place = text_in(all, "place");
  std::map<int64_t, size_t> at_id;
  for (const json& g : list_in(all, "groups", kMostGroups)) {
    if (!g.is_object()) throw_wrong("a group is no object");
    GroupSummary group;
    group.name = text_in(g, "name");
    for (const json& rank : list_in(g, "ranks", kMostRanks)) {
      if (!rank.is_number_integer() || rank.get<int64_t>() < 0 ||
          rank.get<int64_t>() >= int64_t(kMostRanks))
        throw_wrong("a rank is no number");
      group.ranks.push_back(rank.get<int>());
    }
    group.issued = uint64_t(number_in(g, "issued", 0, INT64_MAX));
    group.done = uint64_t(number_in(g, "done", 0, INT64_MAX));
    at_id[number_in(g, "id", 0, UINT32_MAX)] = r.groups.size();
    r.groups.push_back(std::move(group));
  }
  for (const json& e : list_in(all, "entries", kMostCalls)) {
    CallSummary call = call_from(e);
    const auto at = at_id.find(number_in(e, "pg_id", 0, UINT32_MAX));
    if (at == at_id.end()) continue;  // of a group that has ended
    GroupSummary& group = r.groups[at->second];
    if (e.value("is_p2p", json(false)) == true) {
      if (!call.under_way) continue;
      const auto peer = e.contains("root") ? number_in(e, "root", 0, int64_t(kMostRanks)) : -1;
      if (peer >= 0 && size_t(peer) < group.ranks.size())
        r.waits_for.push_back(group.ranks[size_t(peer)]);
    } else {
      group.calls.push_back(std::move(call));
    }
  }
  return r;
}

std::string diagnose_folder(const std::string& folder) {
  std::vector<RankSummary> ranks;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("rank_") || !name.ends_with(".json")) continue;
    std::ifstream file(entry.path());
    std::stringstream text;
    text << file.rdbuf();
    ARETE_CHECK(file, IoError("diagnose", name + " cannot be read"));
    ranks.push_back(read_flight_record(text.str()));
  }
  ARETE_CHECK(!error && !ranks.empty(),
              IoError("diagnose", folder + " has no records rank_N.json of ranks")
                  .hint("`arete run --diagnose DIR prog.py` writes them when a rank fails"));
  std::ranges::sort(ranks, {}, &RankSummary::rank);
  // Who should have written one, too, has had no time for it.
  std::set<int> all;
  for (const RankSummary& r : ranks)
    for (const GroupSummary& g : r.groups) all.insert(g.ranks.begin(), g.ranks.end());
  std::vector<int> missing;
  for (const int r : all)
    if (!std::ranges::binary_search(ranks, r, {}, &RankSummary::rank)) missing.push_back(r);
  std::string text;
  std::vector<RankSummary> known = ranks;
  for (const int r : missing)
    known.push_back({.rank = r,
                     .status = Status::gone,
                     .why = "has left no record: it ended or was stopped",
                     .heard_since = false});
  for (RankSummary& r : known) r.heard_since = true;
  if (const auto finding = diagnose(known, 0))
    text += finding->text + "\n";
  else
    text += "no rank is behind the others\n";
  for (const RankSummary& r : ranks) {
    for (const GroupSummary& g : r.groups) {
      text += who(r) + ": group " + g.name + ", " + std::to_string(g.done) + " of " +
              std::to_string(g.issued) + " collectives done";
      const auto at = std::ranges::find_if(
          g.calls, [](const CallSummary& c) { return c.under_way || c.failed; });
      if (at != g.calls.end())
        text += (at->failed ? ", failed in " : ", in ") + at->operation + " #" +
                std::to_string(at->sequence) + (at->detail.empty() ? "" : " (" + at->detail + ")") +
                (at->under_way ? " for " : " after ") + seconds_text(at->seconds);
      text += r.place.empty() ? "\n" : ", " + r.place + "\n";
    }
  }
  if (!missing.empty()) text += names_of_ranks(missing) + ": no record\n";
  return text;
}

std::string names_of_ranks(std::vector<int> ranks) {
  std::ranges::sort(ranks);
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
    if (end - i > 1) text += (end - i > 2 ? "-" : ", ") + std::to_string(ranks[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace arete::distributed
