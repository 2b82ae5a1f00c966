// The functional face of an operator: its record with the arguments that torch.nn.functional has
// besides. `inplace` chooses the record's in-place form, `return_indices` the record that gives
// positions too, `size_average` and `reduce` are the older words for `reduction`.
#pragma once

#include <Python.h>

#include <span>
#include <string>

#include "arete/ops/record.h"
#include "operator_match.h"
#include "operator_signature.h"

namespace arete::python {

/// Where the arguments of a face's record come from, and the face's own ones, by position in its
/// signature (-1: it has none).
struct Face {
  std::vector<int> places;              // of each argument of the record
  std::vector<ops::OwnedArg> defaults;  // of the record, where the place is -1
  const ops::OpRecord* with_indices = nullptr;
  int inplace = -1, return_indices = -1, size_average = -1, reduce = -1, out = -1;
  int reduction = -1, training = -1;  // of the record's own, in the record
};

/// The overload of a face. ValueError where the signature has an argument that is neither the
/// record's nor one of the above.
Overload make_face(const ops::OpRecord& record, const std::string& signature);

/// A call of a face as a call of a record.
struct FaceCall {
  const ops::OpRecord* record;
  ops::Arg args[kMostParameters];
  size_t count;
  bool in_place = false;
  bool idle = false;  // the in-place form of what does nothing
  Tensor out;         // where the result goes, if defined
};
/// Warns of the older arguments.
void bind_face(const Overload& o, const ops::Arg* bound, FaceCall& call);

}  // namespace arete::python
