// How a process learns which one of how many it is.
#pragma once

#include <optional>
#include <string>

#include "arete/distributed/store.h"

namespace arete::distributed {

/// What a launcher says: torchrun's and `arete run`'s RANK, WORLD_SIZE and LOCAL_RANK, or those of
/// Slurm, Open MPI, MPICH and PMIx.
std::optional<int> environment_rank();
std::optional<int> environment_world_size();
std::optional<int> environment_local_rank();

/// The first of a list of hosts as Slurm writes them: "a[07-09,12],b" has a07.
std::string first_host(std::string_view nodes);

struct Meeting {
  StorePtr store;
  int rank, world_size;
};
/// Where processes meet: "env://" (MASTER_ADDR and MASTER_PORT; without them the first host of a
/// Slurm step, or this machine if MPI's launcher has all ranks here), "tcp://host:port" or
/// "file:///path", with "?rank=0&world_size=2" where the arguments (-1) do not say it. Rank 0 is
/// the server, unless its launcher is.
Meeting rendezvous(const std::string& init_method, int rank, int world_size, Milliseconds timeout);

}  // namespace arete::distributed
