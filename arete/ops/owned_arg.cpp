#include "arete/ops/record.h"

namespace arete::ops {

OwnedArg::OwnedArg() = default;
OwnedArg::OwnedArg(const OwnedArg&) = default;
OwnedArg::OwnedArg(OwnedArg&&) noexcept = default;
OwnedArg& OwnedArg::operator=(const OwnedArg&) = default;
OwnedArg& OwnedArg::operator=(OwnedArg&&) noexcept = default;
OwnedArg::~OwnedArg() = default;
OwnedArg::OwnedArg(Tensor t)
    : kind(t.defined() ? Arg::Kind::tensor : Arg::Kind::none), tensor(std::move(t)) {}
OwnedArg::OwnedArg(std::vector<Tensor> t) : kind(Arg::Kind::tensors), tensors(std::move(t)) {}
OwnedArg::OwnedArg(bool v) : kind(Arg::Kind::boolean), scalar(v) {}
OwnedArg::OwnedArg(int v) : OwnedArg(int64_t(v)) {}
OwnedArg::OwnedArg(int64_t v) : kind(Arg::Kind::integer), scalar(v) {}
OwnedArg::OwnedArg(double v) : kind(Arg::Kind::real), scalar(v) {}
OwnedArg::OwnedArg(Scalar v) : kind(Arg::Kind::scalar), scalar(v) {}
OwnedArg::OwnedArg(std::initializer_list<int64_t> v) : kind(Arg::Kind::ints), ints(v) {}
OwnedArg::OwnedArg(std::vector<int64_t> v) : kind(Arg::Kind::ints), ints(std::move(v)) {}
OwnedArg::OwnedArg(std::vector<double> v) : kind(Arg::Kind::reals), reals(std::move(v)) {}
OwnedArg::OwnedArg(const char* v) : kind(Arg::Kind::string), text(v) {}
OwnedArg::OwnedArg(DType v) : kind(Arg::Kind::dtype), dtype(v) {}
OwnedArg::OwnedArg(Device v) : kind(Arg::Kind::device), device(v) {}

Arg OwnedArg::borrow() const {
  switch (kind) {
    case Arg::Kind::tensor:
      return Arg(tensor);
    case Arg::Kind::tensors:
      return Arg(tensors);
    case Arg::Kind::boolean:
      return Arg(scalar.to_bool());
    case Arg::Kind::integer:
      return Arg(scalar.to_int64());
    case Arg::Kind::real:
      return Arg(scalar.to_double());
    case Arg::Kind::scalar:
      return Arg(scalar);
    case Arg::Kind::ints:
      return Arg(IntList(ints.data(), ints.size()));
    case Arg::Kind::reals:
      return Arg(reals);
    case Arg::Kind::string:
      return Arg(std::string_view(text));
    case Arg::Kind::dtype:
      return Arg(dtype);
    case Arg::Kind::device:
      return Arg(device);
    case Arg::Kind::none:
    case Arg::Kind::generator:
    case Arg::Kind::program:
      return Arg();
  }
  __builtin_unreachable();
}

}  // namespace arete::ops
