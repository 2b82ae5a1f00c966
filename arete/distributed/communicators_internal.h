// Communicators that need no library.
#pragma once

#include "arete/distributed/store.h"
#include "arete/prim/communicator.h"

namespace arete::distributed {

/// By its name; DistributedError saying why there is none.
std::unique_ptr<prim::Communicator> make_communicator(const std::string& backend, StorePtr store,
                                                      int rank, int size, Milliseconds timeout);

/// What a fake communicator was asked for, in words; nothing of another one.
std::vector<std::string> fake_calls(prim::Communicator& communicator);
/// A store as communicators want it.
std::unique_ptr<prim::Rendezvous> rendezvous_over(Store& store);

}  // namespace arete::distributed
