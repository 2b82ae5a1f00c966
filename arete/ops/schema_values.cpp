#include "arete/ops/schema_values.h"

#include <string>
#include <vector>

namespace arete::ops {

using Kind = Arg::Kind;

Kind kind_of(std::string_view type) {
  if (type == "Tensor") return Kind::tensor;
  if (type == "Tensor[]") return Kind::tensors;
  if (type == "bool") return Kind::boolean;
  if (type == "int") return Kind::integer;
  if (type == "float") return Kind::real;
  if (type == "Scalar") return Kind::scalar;
  if (type.starts_with("int[")) return Kind::ints;
  if (type.starts_with("float[")) return Kind::reals;
  if (type == "str") return Kind::string;
  if (type == "dtype") return Kind::dtype;
  if (type == "device") return Kind::device;
  if (type == "Generator") return Kind::generator;
  throw ValueError("schema", "unknown type in a signature: " + std::string(type));
}

OwnedArg default_of(Kind kind, std::string_view text) {
  const std::string s(text);
  if (s == "None") return {};
  switch (kind) {
    case Kind::boolean:
      return s == "True";
    case Kind::integer:
      return int64_t(std::stoll(s));
    case Kind::real:
      return std::stod(s);
    case Kind::scalar:
      if (s == "True" || s == "False") return Scalar(s == "True");
      if (s.find_first_of(".e") != std::string::npos || s == "inf") return Scalar(std::stod(s));
      return Scalar(int64_t(std::stoll(s)));
    case Kind::string:
      return s.substr(1, s.size() - 2).c_str();
    case Kind::ints: {
      std::vector<int64_t> v;
      if (!s.starts_with('[')) return std::vector<int64_t>{std::stoll(s)};
      for (size_t i = 1; i + 1 < s.size();) {
        const size_t end = s.find_first_of(",]", i);
        v.push_back(std::stoll(s.substr(i, end - i)));
        i = end + 1;
      }
      return v;
    }
    case Kind::tensors:
      return std::vector<Tensor>();
    default:
      return {};
  }
}

}  // namespace arete::ops
