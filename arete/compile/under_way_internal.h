// Effects of a run that go on beside its steps.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "arete/prim/recorder.h"

namespace arete::compile {

/// The effects of one run that may be under way (prim/effect.h), by their steps.
class UnderWay {
 public:
  UnderWay() = default;
  /// Waits for all: memory of theirs may go now.
  ~UnderWay();
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;

  /// Makes a call, whatever it is. `at_once`: the next step waits for it.
  void make(size_t step, const prim::RecordedCall& call, bool at_once);
  void wait_for(size_t step);
  void wait_for_all();
  /// At the end of the steps: the host waits here; other devices' streams do where somebody uses
  /// the memory.
  void finish();

 private:
  struct Entry {
    std::shared_ptr<PendingCopy> work;
    std::vector<std::pair<StoragePtr, bool>> memory;  // and whether it is written
    bool on_host;
  };
  std::map<size_t, Entry> entries_;
};

}  // namespace arete::compile
