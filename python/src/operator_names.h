// Which records stand behind the public names of operators, and with which arguments: made from
// what the records say of themselves.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "arete/ops/record.h"

namespace arete::python {

/// One signature of an operator: "sum(Tensor input, int[]? dim=None, ...)", a schema without
/// results. Empty: the record's own schema.
struct Shown {
  const ops::OpRecord* record;
  std::string signature;
};

/// The overloads of a name in the order in which they are tried: "max", "relu_" where `in_place`, a
/// record that is not shown, an alias. Empty if there is none.
std::vector<Shown> overloads_of(std::string_view name, bool in_place);

/// Those of a name in nn.functional, where "relu_" is a form in place.
std::vector<Shown> functional_overloads(std::string_view name);

/// A public name and where it is shown.
struct PublicName {
  std::string name;
  bool in_place;
  bool function, method;
};
std::vector<PublicName> public_names();
std::vector<std::string> functional_names();

}  // namespace arete::python
