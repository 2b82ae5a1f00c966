// The launchers of several machines, which agree on what they do.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "arete/distributed/tcp_store.h"
#include "cli/run.h"

namespace arete::cli {

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

  /// All are ready to start ranks for this attempt.
  bool begin(int attempt);
  /// For ranks of this attempt.
  distributed::StorePtr store_of_ranks(int attempt) const;
  /// A rank of this machine failed, so that all others are to be ended. `final`: and not started
  /// again.
  void fail(int attempt, const std::string& text, bool final);
  struct Failure {
    std::string text;
    bool final;
  };
  /// What another said so.
  std::optional<Failure> failure(int attempt);
  /// The ranks of this machine have done their work.
  void done(int attempt);
  bool are_all_done(int attempt);

 private:
  std::string key(const char* what, int attempt) const {
    return prefix_ + what + "/" + std::to_string(attempt);
  }
  bool wait_for(const std::function<bool()>& condition, const char* what);
  int count_ = 1, node_ = 0, world_size_ = 0, first_rank_ = 0;
  std::string host_, prefix_;
  std::chrono::seconds patience_{600};
  std::function<bool()> is_stopped_;
  std::shared_ptr<distributed::TCPStore> store_;
};

}  // namespace arete::cli
