#include "arete/ops/schema_values.h"

#include <string>
#include <vector>

namespace arete::ops {

Arg::Kind kind_of(std::string_view type) {
  if (type == "Tensor") return Arg::Kind::tensor;
  if (type == "Tensor[]") return Arg::Kind::tensors;
  if (type == "bool") return Arg::Kind::boolean;
  if (type == "int") return Arg::Kind::integer;
  if (type == "float") return Arg::Kind::real;
  if (type == "Scalar") return Arg::Kind::scalar;
  if (type.starts_with("int[")) return Arg::Kind::ints;
  if (type.starts_with("float[")) return Arg::Kind::reals;
  if (type == "str") return Arg::Kind::string;
  if (type == "dtype") return Arg::Kind::dtype;
  if (type == "device") return Arg::Kind::device;
  if (type == "Generator") return Arg::Kind::generator;
  throw ValueError("schema", "unknown type in a signature: " + std::string(type));
}

OwnedArg default_of(Arg::Kind kind, std::string_view text) {
  const std::string s(text);
  if (s == "None") return {};
  switch (kind) {
    case Arg::Kind::boolean:
      return s == "True";
    case Arg::Kind::integer:
      return int64_t(std::stoll(s));
    case Arg::Kind::real:
      return std::stod(s);
    case Arg::Kind::scalar:
      if (s == "True" || s == "False") return Scalar(s == "True");
      if (s.find_first_of(".e") != std::string::npos || s == "inf") return Scalar(std::stod(s));
      return Scalar(int64_t(std::stoll(s)));
    case Arg::Kind::string:
      return s.substr(1, s.size() - 2).c_str();
    case Arg::Kind::ints: {
      std::vector<int64_t> v;
      if (!s.starts_with('[')) return std::vector<int64_t>{std::stoll(s)};
      for (size_t i = 1; i + 1 < s.size();) {
        const size_t end = s.find_first_of(",]", i);
        v.push_back(std::stoll(s.substr(i, end - i)));
        i = end + 1;
      }
      return v;
    }
    case Arg::Kind::tensors:
      return std::vector<Tensor>();
    default:
      return {};
  }
}

}  // namespace arete::ops
