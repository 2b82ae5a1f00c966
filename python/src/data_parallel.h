// The part of arete.distributed's extension that reduces gradients.
#pragma once

#include <nanobind/nanobind.h>

namespace arete::python {

void bind_data_parallel(nanobind::module_& distributed);
void bind_sharding(nanobind::module_& distributed);    // sharding.cpp
void bind_checkpoint(nanobind::module_& distributed);  // checkpoint.cpp
void bind_pipeline(nanobind::module_& distributed);    // distributed_pipeline.cpp

}  // namespace arete::python
