// Tells the ranks of a job who keeps them waiting.
//
// Note [The monitor]
// A thread of each rank tells a server, in the launcher or in rank 0, twice a second what its calls
// are (flight_record() of the last ones). The server compares them (diagnose()) and reports what is
// wrong: once, to all ranks, and to whoever made it. A report is hopeless if whoever waits will
// wait for ever: a rank is gone, or another call than the others'. Then ranks end what is under
// way, and each such call fails with the report's text. Otherwise it is only told: a rank that does
// something else may still come. A call that fails by itself asks the server for the reason first,
// since libraries know of their connections only. Messages are lines of JSON; what a server takes
// is bounded, and the first line must have the job's token.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "arete/base/distributed_error.h"
#include "arete/distributed/diagnosis.h"
#include "arete/distributed/flight_recorder.h"
#include "arete/distributed/store.h"

namespace arete::distributed {

struct MonitorServerOptions {
  std::string host = "127.0.0.1";  ///< loopback: nobody else can connect; else all who reach it
  std::string token;               ///< empty: any text, made at random
  int size = 1;                    ///< ranks there will be
  double patience = 4;             ///< see diagnose()
  std::string name;                ///< of whom it runs in: "the launcher", or empty for rank 0
  std::function<void(const Finding&)> report;  ///< called by its thread
};

/// Listens at a free port until it is destroyed.
class MonitorServer {
 public:
  explicit MonitorServer(const MonitorServerOptions& options);
  ~MonitorServer();
  uint16_t port() const;
  /// What ranks find under kMonitorKey in their store.
  std::string address() const;
  /// For a launcher: the process of a rank has ended so ("was ended by signal SIGKILL").
  void process_ended(int rank, const std::string& how);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

inline constexpr const char* kMonitorKey = "arete_monitor";

/// Watches this process' groups from now on. `store` is where the ranks met; rank 0 starts a server
/// if nobody did. Not if ARETE_MONITOR is 0.
void start_monitor(const StorePtr& store, int rank, int size);
/// This process leaves the others. `why` is told to those who wait for it, if it will not come
/// again: "has ended its program".
void stop_monitor(const std::string& why = "") noexcept;
/// The last report to this process; empty if there was none.
std::string last_report();

// For GroupWatch.
/// Throws the report that makes calls of this group hopeless, if there is one.
void check_verdict(const GroupWatch& watch);
/// Throws `error` again, which is being handled, of a call that was made at `since`: with the name
/// of who is to blame if that is known, or becomes known soon.
[[noreturn]] void explain_failure(const GroupWatch& watch, const DistributedError& error,
                                  std::chrono::steady_clock::time_point since);

/// What the monitor says of a call that failed by itself, or soon will; empty if nothing.
std::string reason_of_failure(const GroupWatch& watch, std::chrono::steady_clock::time_point since);

/// A store in which waiting ends when it is hopeless; used while a group begins.
StorePtr watched(StorePtr store, std::shared_ptr<GroupWatch> watch);

}  // namespace arete::distributed
