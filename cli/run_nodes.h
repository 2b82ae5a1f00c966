// The launchers of several machines, which agree on what they do.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "arete/distributed/tcp_store.h"
#include "cli/run.h"

namespace arete::cli {

// Note [Rounds]
// Launchers with numbers of their own begin each attempt together: as many as there are. Those that
// get numbers as they come meet before each attempt, which is a round then. The one that has the
// store opens a round and is node 0 of it; the others join, and those that are there when it closes
// the round are its members: when the most have come, or all that it knows of, or, some time after
// the least have, whoever is there. Who comes later joins, too, and so says that he waits; if there
// is room the members end their ranks and a new round begins. So it is when a member is told to
// end; one that is silent for too long is a failure. Who is told to end while it waits withdraws,
// which holds unless the round was closed with it: a member's key says which of the two came first.
// What ends an attempt is said under one key, by who says it first: a failure, a change of
// machines, or that all are done. All of this is in the store under keys that have the round's
// number.

/// One launcher's view of all. The store that the ranks use is in that of node 0. Everything that
/// waits gives up, with false, when `is_stopped` says so.
class Nodes {
 public:
  Nodes(const RunOptions& options, int local_size, std::function<bool()> is_stopped);
  /// All others have heard how it ended, or some time has passed: the store is no longer needed.
  ~Nodes();

  int count() const { return count_; }
  int node() const { return node_; }
  const std::string& host() const { return host_; }
  int port() const { return store_->port(); }
  int world_size() const { return world_size_; }
  int first_rank() const { return first_rank_; }

  /// Who takes part in the next attempt is known. False, too, where the work was done without this
  /// machine.
  bool meet();
  /// After an attempt, or a meet() that said no: whether the work was done.
  bool is_done() const { return is_done_; }
  /// The attempt's number, from 0.
  int attempt() const { return attempt_; }
  /// How often ranks have been started again because some had failed.
  int restarts() const { return meets_ ? restarts_ : attempt_; }
  /// All are ready to start ranks, or one has failed already.
  bool begin();
  distributed::StorePtr store_of_ranks() const;
  /// A rank of this machine failed, so that all others are to be ended. `final`: and not started
  /// again.
  void fail(const std::string& text, bool final);
  /// This launcher was told to end. The others start again without it, if they are enough.
  void leave();
  struct Failure {
    std::string text;
    bool final;
    bool is_change = false;  ///< nobody failed: a machine has come or gone
  };
  /// What another said so. To be asked again and again: it also says that this one is there.
  std::optional<Failure> failure();
  /// Says that this one is there, while it does not ask. Throws nothing.
  void keep_alive() noexcept;
  /// The ranks of this machine have done their work.
  void done();
  bool are_all_done();

 private:
  std::string key(const char* what) const {
    return prefix_ + what + "/" + std::to_string(attempt_);
  }
  bool wait_for(const std::function<bool()>& condition, const char* what);
  /// What ends an attempt, as the store has it.
  enum class End : char {
    failure = '0',
    final_failure = '1',  ///< after which nobody starts again
    change = '2',         ///< a machine has come or gone
    all_done = '3',
  };
  bool say(End end, const std::string& text);
  bool is_time_to_beat();
  void beat();
  void look_after_members();
  int waiting();
  bool open_round();
  bool join_round();
  void withdraw(const std::string& member, const std::string& text);
  void take_part(const std::string& members);
  const int least_, most_, local_size_, max_restarts_;
  bool meets_ = false;      // Note [Rounds]
  bool has_store_ = false;  // which others ask; always node 0
  int count_ = 1, node_ = 0, world_size_ = 0, first_rank_ = 0, attempt_ = -1, restarts_ = 0;
  std::string host_, prefix_, id_ = "0";
  std::chrono::seconds patience_{600}, last_call_{30}, beats_{5};
  int missed_beats_ = 3;
  bool is_done_ = false;
  std::function<bool()> is_stopped_;
  std::shared_ptr<distributed::TCPStore> store_;
  struct Heard {
    std::string beat;
    std::chrono::steady_clock::time_point at;
  };
  std::map<std::string, Heard> heard_;  // of members, in node 0
  std::chrono::steady_clock::time_point beaten_;
};

}  // namespace arete::cli
