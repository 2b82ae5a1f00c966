// The path of a call (docs/architecture.md): check, autocast, infer, capture or run, record
// history, tell the observer.
#pragma once

#include <initializer_list>
#include <span>

#include "arete/ops/record.h"

namespace arete::ops {

/// Runs an operator. The number of results is that of the schema.
Results call_all(const OpRecord& op, std::span<const Arg> args);
inline Results call_all(const OpRecord& op, std::initializer_list<Arg> args) {
  return call_all(op, std::span<const Arg>(args.begin(), args.size()));
}
/// The same for operators with one result.
Tensor call(const OpRecord& op, std::span<const Arg> args);
inline Tensor call(const OpRecord& op, std::initializer_list<Arg> args) {
  return call(op, std::span<const Arg>(args.begin(), args.size()));
}
/// The in-place form: the result replaces the values of argument 0 (and its history).
Tensor& call_in_place(Tensor& self, const OpRecord& op, std::span<const Arg> args);
inline Tensor& call_in_place(Tensor& self, const OpRecord& op, std::initializer_list<Arg> args) {
  return call_in_place(self, op, std::span<const Arg>(args.begin(), args.size()));
}
/// torch's out=: writes the results into tensors that are given, one for each, without temporaries
/// where the memory fits (Note [Results into given memory]). An output of another shape is resized,
/// with a warning unless it was empty; AutogradError if history would be recorded. Where the call
/// leaves dtype or device open, those of the output decide.
void call_into(std::span<Tensor* const> outs, const OpRecord& op, std::span<const Arg> args);
Tensor& call_out(Tensor& out, const OpRecord& op, std::initializer_list<Arg> args);

/// A program applied to tensors, with broadcasting and history: what every pointwise record and
/// every user-made elementwise kernel comes down to. `inputs` have the dtypes of the program's
/// inputs. It is a call of program_record(name), and `name` lives as long as the process.
Results apply_program(const expr::ProgramPtr& program, std::span<const Tensor> inputs,
                      std::span<const Scalar> params, const char* name);
/// The anonymous records of what is called without one of its own, so that it goes the way of all
/// calls: of programs, "name(Program program, Tensor[] inputs) -> Tensor[]", and of functions that
/// call operators themselves, "name(Tensor[] inputs) -> Tensor[]". There is one for each name,
/// which lives as long as the process.
const OpRecord& program_record(std::string_view name);
const OpRecord& function_record(std::string_view name);
bool is_function_record(const OpRecord& op);

// ---- helpers for records
/// A tensor as a primitive's argument.
prim::View view_of(const Tensor& t);
/// Layout `l` over t's storage (l.offset absolute).
prim::View view_of(const Tensor& t, const Layout& l);
/// A new tensor without values. Strides default to row-major.
Tensor empty_tensor(IntList sizes, DType dtype, Device device);
Tensor empty_tensor(const OutputSpec& spec);
/// Whether t lies as a new tensor of this kind would.
bool may_hold(const Tensor& t, const OutputSpec& spec);
/// A tensor over the same storage; no history.
Tensor alias(const Tensor& t, Layout layout);
/// Sums `g` down to `sizes` (the reverse of broadcasting).
Tensor sum_to_size(const Tensor& g, IntList sizes);
/// "float32[2, 3]" for error texts.
std::string describe(const Tensor& t);
/// All defined tensors on one device: returns it, else DeviceError "Expected all tensors to be on
/// the same device, but found at least two devices, ...".
Device common_device(const Call& call);
/// DeviceError unless tensor arguments i and j of a call are on one device.
[[noreturn]] void refuse_devices(const char* name, Device a, size_t i, Device b, size_t j);
inline void check_same_device(const char* name, Device a, size_t i, Device b, size_t j) {
  if (a != b) [[unlikely]]
    refuse_devices(name, a, i, b, j);
}
/// PyTorch's rule of promotion: tensors with dimensions decide; 0-d tensors, and then numbers, only
/// where their category is higher.
class Promotion {
 public:
  void add(const Tensor& t);
  void add(const Scalar& s);
  DType result() const;

 private:
  std::optional<DType> dim_, zero_, number_;
};
/// The promoted dtype of tensors and wrapped numbers (0-d tensors count by category, as PyTorch).
DType result_type(std::span<const Tensor> tensors, std::span<const Scalar> scalars = {});
/// A number as a literal of a computation type.
expr::Literal literal(const Scalar& s, expr::Type type);
/// Row-major, of the given dtype; the tensor itself if it is so already. No history.
Tensor plain(const Tensor& t, DType dtype);

/// The dimension of the first tensor that argument `arg` names, counted from the end where it is
/// negative. IndexError.
inline int dim_of(const Call& c, size_t arg) {
  return normalize_dim(c.integer(arg), int(c.tensor(0).dim()), c.name());
}

}  // namespace arete::ops
