#include "arete/ops/schema_values.h"

#include <algorithm>
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

bool takes(const OpRecord& op, size_t position, std::string_view type, Arg::Kind kind) {
  using Kind = Arg::Kind;
  const auto is_number = [](Kind k) {
    return k == Kind::boolean || k == Kind::integer || k == Kind::real || k == Kind::scalar;
  };
  if (type == "Program") return kind == Kind::program;
  const Kind wanted = kind_of(type);
  if (kind == wanted) return true;
  if (wanted == Kind::tensor && is_number(kind)) {
    // A signature with a number in this place says that the operator takes one.
    const auto has_number = [&](std::string_view face) {
      const std::optional<Schema> s = parse_schema(face);
      return s && position < s->args.size() && s->args[position].type == "Scalar";
    };
    return op.pointwise || op.takes_numbers || std::ranges::any_of(op.faces, has_number);
  }
  if (wanted == Kind::scalar) return is_number(kind);
  return wanted == Kind::real && (kind == Kind::integer || kind == Kind::scalar);
}

bool may_be_named(const OpRecord& op) {
  return op.surface != Surface::internal || op.pointwise || op.for_files;
}

}  // namespace arete::ops
