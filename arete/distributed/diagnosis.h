// Who keeps the others waiting, found out from what all ranks say of themselves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace arete::distributed {

/// A call of a rank.
struct CallSummary {
  uint64_t sequence = 0;  ///< 0: it begins the group
  std::string operation, signature, detail;
  double seconds = 0;  ///< since it was made
  bool under_way = false, failed = false;
};

struct GroupSummary {
  std::string name;
  std::vector<int> ranks;
  uint64_t issued = 0, done = 0;   ///< sequences of the last collectives
  std::vector<CallSummary> calls;  ///< some of them, rising
};

struct RankSummary {
  enum class Status : uint8_t {
    absent,   ///< has not been heard of
    working,  ///< says what it does
    silent,   ///< no longer
    left,     ///< has ended its groups or its program
    gone,     ///< has ended without saying so
  };
  int rank = -1;
  std::string host;
  int64_t pid = 0;
  std::string place;
  Status status = Status::working;
  std::string why;           ///< of left and gone
  bool ends = false;         ///< of left: its process, which will not come again
  double silent_for = 0;     ///< seconds
  bool heard_since = false;  ///< after somebody was gone
  std::vector<GroupSummary> groups;
  std::vector<int> waits_for;  ///< the other ends of messages under way
};

struct Finding {
  enum class Kind : uint8_t { mismatch, gone, left, silent, behind, cycle };
  Kind kind;
  std::vector<int> culprits;
  std::string group;
  uint64_t sequence = 0;
  std::string text;       ///< one line, the culprit first
  bool hopeless = false;  ///< whoever waits will wait for ever

  bool is_like(const Finding& other) const {
    return kind == other.kind && culprits == other.culprits && group == other.group &&
           sequence == other.sequence;
  }
};

/// The first thing that is wrong, if any. `patience`: seconds that a call may wait for a rank that
/// does other things.
std::optional<Finding> diagnose(const std::vector<RankSummary>& ranks, double patience = 4);

/// Of a rank's flight_record(). ValueError for anything else, or more than a rank can have to say.
RankSummary read_flight_record(std::string_view text);

/// Reads all rank_N.json of a folder and says who is behind and where: several lines. IoError if
/// there is none.
std::string diagnose_folder(const std::string& folder);

/// "rank 1", "ranks 0-2, 5".
std::string names_of_ranks(std::vector<int> ranks);

}  // namespace arete::distributed
