// Pointwise calls that promote to complex numbers.
#include <memory>
#include <mutex>
#include <unordered_map>

#include "arete/core/complex.h"
#include "arete/core/modes.h"
#include "arete/ops/complex.h"
#include "arete/ops/complex_internal.h"
#include "arete/ops/pointwise_call.h"
#include "arete/ops/vmap_internal.h"

// Note [Complex tensors]
// Programs and kernels know real numbers only. A pointwise call whose inputs promote to a complex
// dtype becomes a call of a second, hidden record: each complex input is two real tensors, views of
// its parts, a real input or a number is itself and an imaginary part of 0, and the two outputs are
// written into the parts of the result. So a complex operator is one kernel over strided memory,
// and its derivative is that of the real program: the gradient of a real loss with respect to
// a + bi is d/da + i d/db, which is PyTorch's convention. Where the symbolic derivative of the
// parts would be long or wrong at a point (0, branch cuts), the form says it: for a holomorphic f
// it is grad * conj(f'(z)).

namespace arete::ops {

DType real_of(DType t) { return t == kComplex64 ? kFloat32 : t == kComplex128 ? kFloat64 : t; }
DType complex_of(DType t) { return t == kFloat64 || t == kComplex128 ? kComplex128 : kComplex64; }

Layout layout_of_parts(const Layout& l) {
  Layout parts = l;
  for (int64_t& s : parts.strides) s *= 2;
  parts.sizes.push_back(2);
  parts.strides.push_back(1);
  parts.offset *= 2;
  return parts;
}

Tensor parts_in(const Tensor& t) {
  return alias(t, layout_of_parts(t.layout()), real_of(t.dtype()));
}

Tensor part_of(const Tensor& t, int part) {
  Layout l = t.layout();
  for (int64_t& s : l.strides) s *= 2;
  l.offset = 2 * l.offset + part;
  return alias(t, std::move(l), real_of(t.dtype()));
}

Tensor alias(const Tensor& t, Layout layout, DType dtype) {
  return Tensor(t.impl()->alias(std::move(layout), dtype));
}

namespace {

// The hidden record of an operator's parts.
struct PartsRecord {
  OpRecord record;
  uint32_t pairs;
};

std::string parts_schema(const OpRecord& op, const ComplexForm& form) {
  const Schema& schema = schema_of(op);
  std::string text = op.name + "(";
  const size_t n = size_t(op.pointwise->n_inputs);
  for (size_t i = 0; i < n + size_t(op.pointwise->n_params); ++i) {
    const std::string type = i < n ? "Tensor " : "Scalar ", name = schema.args[i].name;
    text += (i ? ", " : "") + type + name;
    if (i >= n || form.pairs >> i & 1) text += ", " + type + name + "_imag";
  }
  return text + ") -> Tensor";
}

std::unique_ptr<PartsRecord> make_record(const OpRecord& op, const ComplexForm& form) {
  auto made = std::make_unique<PartsRecord>();
  OpRecord& r = made->record;
  r.schema = parts_schema(op, form);
  r.name = op.name;
  made->pairs = form.pairs;
  PointwiseDef d;
  d.n_inputs = 0;
  for (int i = 0; i < op.pointwise->n_inputs; ++i) {
    if (op.pointwise->non_differentiable >> i & 1) d.non_differentiable |= 1u << d.n_inputs;
    d.n_inputs += form.pairs >> i & 1 ? 2 : 1;
  }
  d.n_params = 2 * op.pointwise->n_params;
  d.definition = form.definition;
  d.gradient = form.gradient;
  d.compute_promoted = op.pointwise->compute_promoted;
  d.result = op.pointwise->result == PointwiseDef::Result::boolean ? PointwiseDef::Result::boolean
                                                                   : PointwiseDef::Result::floating;
  d.cache = make_pointwise_cache();
  r.pointwise = std::make_shared<PointwiseDef>(std::move(d));
  return made;
}

const PartsRecord* parts_record(const OpRecord& op) {
  static std::mutex mutex;
  // Used until exit.
  static auto* const records =
      new std::unordered_map<const OpRecord*, std::unique_ptr<PartsRecord>>;
  const std::lock_guard lock(mutex);
  auto& slot = (*records)[&op];
  if (!slot)
    if (const auto& form = op.pointwise->complex) slot = make_record(op, *form);
  return slot.get();
}

}  // namespace

Results by_parts(const Call& call, DType promoted) {
  if (vmaps::may_be() && vmaps::level_of(call)) return {};
  SmallVector<Tensor, 4> parts;
  SmallVector<Arg, 4> args;
  parts.reserve(call.size());
  for (size_t i = 0; i < call.size(); ++i) {
    if (i >= size_t(call.op.pointwise->n_inputs)) {
      if (call.scalar(i).is_complex()) return {};
      args.push_back(call[i]);
      continue;
    }
    if (call[i].kind() != Arg::Kind::tensor) return {};
    const Tensor& t = call.tensor(i);
    if (t.dtype() != promoted || is_host_number(t) || will_record(t)) return {};
    parts.push_back(parts_in(t));
    args.push_back(parts.back());
  }
  Tensor made = call_pointwise(Call(call.op, {args.data(), args.size()}))[0];
  if (made.layout().strides.back() != 1) made = made.contiguous();
  Layout l = made.layout();
  l.sizes.pop_back();
  l.strides.pop_back();
  for (int64_t& stride : l.strides) stride /= 2;
  l.offset /= 2;
  return {alias(made, std::move(l), promoted)};
}

Results call_complex(const Call& call, DType promoted) {
  const OpRecord& op = call.op;
  if (op.pointwise->complex && op.pointwise->complex->shortcut)
    if (Results made = op.pointwise->complex->shortcut(call, promoted); made.size()) return made;
  const PartsRecord* parts = parts_record(op);
  ARETE_CHECK(parts,
              NotImplementedError(
                  op.name, "\"" + op.name + "\" not implemented for '" +
                               (promoted == kComplex64 ? "ComplexFloat" : "ComplexDouble") + "'"));
  // Owners of what the new arguments borrow.
  SmallVector<Tensor, 8> tensors;
  SmallVector<Scalar, 12> numbers;
  SmallVector<Tensor, 4> like;
  const size_t n = call.size();
  tensors.reserve(2 * n);
  numbers.reserve(2 * n);
  SmallVector<Arg, 12> args;
  const auto number = [&](double v) {
    numbers.push_back(Scalar(v));
    args.push_back(Arg(numbers.back()));
  };
  const auto tensor = [&](Tensor t) {
    tensors.push_back(std::move(t));
    args.push_back(Arg(tensors.back()));
  };
  const Device device = device_beside_numbers(call, op.pointwise->n_inputs);
  for (size_t i = 0; i < n; ++i) {
    const Arg& a = call[i];
    const bool pair = i >= size_t(op.pointwise->n_inputs) || parts->pairs >> i & 1;
    if (a.kind() != Arg::Kind::tensor) {
      const std::complex<double> value = to_complex(a.scalar());
      number(value.real());
      if (pair) number(value.imag());
      continue;
    }
    const Tensor t = is_host_number(a.tensor()) ? a.tensor().to(device) : a.tensor();
    if (t.dim() > 0 || like.empty()) like.push_back(t);
    if (!pair) {
      ARETE_CHECK(!is_complex(t.dtype()),
                  TypeError(op.name, op.name + ": a condition cannot be complex").got(describe(t)));
      tensor(t);
    } else if (!is_complex(t.dtype())) {
      // There are no complex numbers of half precision.
      tensor(is_reduced_float(t.dtype()) ? t.to(kFloat32) : t);
      number(0);
    } else if (will_record(t)) {
      const Results both = parts_of(t);
      tensor(both[0]);
      tensor(both[1]);
    } else {
      tensor(part_of(t, 0));
      tensor(part_of(t, 1));
    }
  }
  return call_on_parts(Call(parts->record, {args.data(), args.size()}), {like.data(), like.size()});
}

}  // namespace arete::ops
