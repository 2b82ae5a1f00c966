// Batches of a loader's threads, and their way to a device.
#pragma once

#include <nanobind/nanobind.h>

#include "arete/data/worker_pool.h"

namespace arete::python {

/// Waits like a queue of Python's: what signals have to say is heard. The number of a batch that is
/// ready; -1 after `timeout` seconds (0: never) without any batch, -2 if the epoch is over.
int64_t wait_for(const data::WorkerPool& pool, int64_t epoch, int64_t number, double timeout);

}  // namespace arete::python
