// Options of layers from Python.
#pragma once

#include <nanobind/nanobind.h>

#include "arete/nn/layer_record_internal.h"

namespace arete::python {

/// The value of a layer's option of this position. TypeError if it is of a wrong type.
nn::Option layer_option(nanobind::handle value, const nn::LayerRecord& layer, size_t i);

}  // namespace arete::python
