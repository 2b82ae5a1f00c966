// What the stores share.
#pragma once

#include <span>
#include <string>

#include "arete/base/distributed_error.h"
#include "arete/distributed/store.h"

namespace arete::distributed {

using Failure = DistributedError::Failure;

/// In torch's words, which programs look for.
[[noreturn]] inline void throw_store_timeout(std::span<const std::string> keys,
                                             Milliseconds timeout) {
  std::string names;
  for (const std::string& key : keys) names += (names.empty() ? "" : ", ") + key;
  throw DistributedError(
      Failure::store, "",
      "wait timeout after " + std::to_string(timeout.count()) + "ms, keys: " + names);
}

[[noreturn]] inline void throw_empty_queue(const std::string& key) {
  throw DistributedError(Failure::empty_queue, "", "queue is empty: " + key);
}

}  // namespace arete::distributed
