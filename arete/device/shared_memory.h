// Memory of GPUs that several processes use: what one of them shares the others open by its
// description.
#pragma once

#include <cstddef>
#include <string>

#include "arete/core/storage.h"

namespace arete::cuda {

/// What another process opens the memory by; its texts are bytes. Whoever was given one opens it
/// once, while the process that made it runs.
struct SharedMemory {
  int device = 0;
  std::string handle;  // the driver's
  size_t offset = 0;   // from the beginning of what the handle names
  size_t bytes = 0;
  std::string counter;  // of the file that tells who uses the memory: process, number, key
};

/// Moves the bytes to memory that other processes can open, if they are not there already.
/// Addresses taken before are not valid any more. DeviceError where memory is not moved, with the
/// reason: others were given its address, graphs were recorded, or the driver does not share
/// memory.
void move_to_shared_memory(const StoragePtr& memory);

/// move_to_shared_memory(), and what another process opens it by. DeviceError for memory that was
/// opened and is not this process' own. Waits for all that the device was given, so that whoever
/// opens it sees the values. The memory stays until everyone that opened it has let go of it or has
/// ended, and until each description has been opened once: one that nobody opens keeps the memory
/// while this process runs.
SharedMemory share_memory(const StoragePtr& memory);

/// The memory of a description, which must be one that share_memory() made: the driver has no means
/// to tell how much memory is there. IoError if the process that made it is gone, or if as many as
/// there are descriptions were opened.
StoragePtr open_shared_memory(const SharedMemory& description);

/// Frees memory that no other process uses any more. It is done now and then without it.
void collect_shared_memory();

}  // namespace arete::cuda
