// Memory of the CPU backend.
#pragma once

#include <cstddef>

namespace arete::cpu {

/// 64-byte aligned memory; OutOfMemoryError. 0 bytes: null. Freed blocks are kept for reuse, up to
/// a limit: fresh pages cost more than filling them.
void* allocate_cached(size_t bytes);
/// `bytes` as allocated. Null is fine.
void release_cached(void* p, size_t bytes) noexcept;
/// Gives what is kept by this process back to the system (not what other threads keep for
/// themselves, which is little).
void trim_cached() noexcept;

}  // namespace arete::cpu
