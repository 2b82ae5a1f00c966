// Bytes of tensors to and from host memory: what printing, item() and literals need. Declared here
// because handles need them; defined in ops/, which knows the backends.
#pragma once

#include "arete/core/tensor.h"

namespace arete {

/// Writes the elements of layout `l` (absolute offset) over t's storage into `dst`, row-major, in
/// t's dtype. DeviceError for meta tensors; ValueError while a capture is being recorded, when
/// values do not exist yet.
void read_to_host(const Tensor& t, const Layout& l, void* dst);

/// Fills `t` (contiguous) from host bytes of its own dtype. Meta tensors ignore it.
void write_from_host(const Tensor& t, const void* src);

}  // namespace arete
