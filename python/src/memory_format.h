// The objects contiguous_format, preserve_format, channels_last and channels_last_3d.
#pragma once

#include <Python.h>

#include "arete/core/tensor.h"

namespace arete::python {

/// A memory format and the rank that it needs: 4 for channels_last, 5 for channels_last_3d, else 0.
struct Format {
  MemoryFormat order;
  int rank = 0;
};

/// Of the argument memory_format of the function `name`; none given, or None: `otherwise`.
/// TypeError for an object of another kind.
Format format_from(PyObject* o, MemoryFormat otherwise, const char* name);
/// ValueError "required rank 4 tensor to use channels_last format" where it cannot be.
void check_rank(const Format& format, int64_t rank, const char* name);
/// Whether the tensor lies so: the order without gaps, for the rank that the format needs.
bool lies_as(const Tensor& t, const Format& format);

}  // namespace arete::python
