// The signatures of operators as Python's users see them.
#pragma once

#include <Python.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "arete/ops/record.h"

namespace arete::python {

/// The most parameters of a signature, and arguments of a record.
inline constexpr size_t kMostParameters = 24;

struct Parameter {
  PyObject* name = nullptr;       // interned
  std::vector<PyObject*> others;  // other names by which it may be given, interned
  ops::Arg::Kind kind = ops::Arg::Kind::none;
  size_t position = 0;  // among the record's arguments
  bool optional = false, list = false, keyword_only = false, has_default = false;
  bool none_is_default = false;  // None stands for the default
  bool plain = false;            // another overload has a tensor here
  bool as_tensor = false;        // numbers here, a tensor for the record
  bool as_real = false;          // a boolean here, 1 or 0 for the record
  bool reduction = false;        // 0, 1 and 2 stand for "none", "mean" and "sum"
  ops::OwnedArg fallback;
  std::string type;  // as written
};

struct Face;

/// A record behind one signature.
struct Overload {
  const ops::OpRecord* record = nullptr;
  std::vector<Parameter> parameters;
  std::vector<ops::OwnedArg> defaults;  // of all arguments of the record
  size_t positional = 0;                // parameters that may be given by position
  bool numbers = false;                 // numbers stand for tensors, of which one is needed
  bool has_as_tensor = false;  // some parameter is a number that the record wants as tensor
  bool spread = false;         // the first list may be given as separate integers
  size_t spread_at = 0;
  size_t device_at = size_t(-1);  // the argument that says where a tensor is made of numbers alone
  size_t device_option_at = 0;    // the same, of those that make one like a tensor, too: if `makes`
  bool makes = false;             // a tensor on a device that an argument names
  bool returns_list = false;
  PyTypeObject* result_type = nullptr;  // of several results
  std::string text;                     // for error messages
  std::shared_ptr<const Face> face;     // of functional faces: see operator_face.h
};

/// torch's other names for an argument, most of them NumPy's: "axis" for "dim".
std::vector<const char*> other_names(std::string_view name);

/// Types of results with several tensors by the operators' public names, of those made so far.
extern PyObject* const return_types;

/// Reads a signature, "sum(Tensor input, int[]? dim=None, ...)"; empty is the record's own schema.
/// Its arguments are those of the record by name, or else by position and type, in the order and
/// with the defaults of Python's users. ValueError if it has one that the record does not have.
/// `shown_as` is the operator's public name.
Overload make_overload(const ops::OpRecord& record, const std::string& signature,
                       std::string_view shown_as);

/// What overloads of one operator must know of each other: where one of them takes a tensor, a 0-d
/// tensor is no integer and no list of another one, and a number only if no overload takes the call
/// otherwise. max(x, t) is the maximum of both, max(x, 1) along dim 1.
void separate(std::vector<Overload>& overloads);

}  // namespace arete::python
