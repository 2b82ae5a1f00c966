// What nodes of history show of the tensors that they keep for their backward.
#pragma once

#include <string>
#include <vector>

#include "arete/core/history.h"

namespace arete::ops {

struct OpRecord;

/// A tensor that a node keeps: `name` is that of an argument or a result in the record's schema,
/// "result" (with a number if there are several) where the schema names none.
struct SavedValue {
  std::string name;
  Tensor tensor;
  bool in_list = false;  ///< one of a list of tensors
};

/// A node of a call of a record or of a program.
class CallNode : public Node {
 public:
  /// The kept tensors, with their history. AutogradError if the graph was freed, or one was
  /// modified in place since.
  virtual std::vector<SavedValue> saved() = 0;
};

/// What result i of so many is called; null: a record has none.
std::string result_name(const OpRecord* record, size_t i, size_t count);

}  // namespace arete::ops
