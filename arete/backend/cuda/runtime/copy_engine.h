// Copies of plain bytes between the host and a device, through pinned memory where the host's is
// not.
#pragma once

#include <cuda.h>

#include <cstddef>

namespace arete::cuda {

class DeviceContext;

/// Note [Pageable copies]
/// A device reads and writes pinned host memory only, at the full speed of its link. Other host
/// memory goes through pinned buffers: small copies through one; large ones in chunks, for which
/// several threads fill (or empty) their own buffers while the device works on the others'. One
/// thread could not keep the link busy, least of all when it writes memory for the first time and
/// the system has to provide every page.

/// Returns when `src` may be reused; the copy itself may still be under way in `stream`.
void copy_to_device(DeviceContext& device, void* dst, const void* src, size_t bytes,
                    CUstream stream);
/// Returns when `dst` holds the bytes. Raises what kernels recorded.
void copy_to_host(DeviceContext& device, void* dst, const void* src, size_t bytes, CUstream stream);

}  // namespace arete::cuda
