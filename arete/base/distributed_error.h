// The error of processes that work together.
#pragma once

#include "arete/base/error.h"

namespace arete {

/// Another process did not do its part: it is gone, late, or says something else than was agreed.
class DistributedError : public Error {
 public:
  enum class Failure : uint8_t {
    store,        ///< a key did not come in time, or a store is not what it should be
    network,      ///< no connection, or it broke
    backend,      ///< tensors could not be exchanged
    empty_queue,  ///< there is nothing in a queue of a store
  };
  DistributedError(Failure failure, std::string_view op, std::string_view message,
                   std::string_view hint = {})
      : Error(ErrorKind::io, op, message), failure_(failure) {
    set(hint_, hint);
  }
  Failure failure() const noexcept { return failure_; }

 private:
  Failure failure_;
};

}  // namespace arete
