// What makes the batches of a data set of the library, for Python.
#pragma once

#include "arete/data/batch_maker.h"

namespace arete::python {

/// Nothing in it belongs to Python: threads that make batches with it never wait for the
/// interpreter's lock. Indices may count from the end.
struct Maker {
  data::BatchMaker make;
  int64_t size = 0;
};
Maker maker_of(const data::DatasetPtr& dataset, data::Transform transform, bool pinned);

}  // namespace arete::python
