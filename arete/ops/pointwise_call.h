// Calls of pointwise records: promotion, choice of program, broadcasting, history.
#pragma once

#include "arete/ops/call.h"

namespace arete::ops {

Results call_pointwise(const Call& call);
/// The same for one output, without the list.
Tensor call_pointwise_one(const Call& call);
/// Writes into `self` (checked by check_in_place) and records history if asked. False, and nothing
/// happened, if the call promotes to complex numbers: its result has to be copied.
bool call_pointwise_into(const Call& call, Tensor& self, bool record);
/// The same into a tensor that is no argument of the in-place kind: it is resized to the result's
/// shape by `fit`. False, too, for programs with several outputs.
bool call_pointwise_out(const Call& call, Tensor& out, void (*fit)(Tensor&, IntList, const char*));
/// A pointwise call without history as what runs, for a launch together with others.
struct PreparedCall {
  expr::ProgramPtr program;
  SmallVector<Tensor, 3> inputs;
  SmallVector<expr::Literal, 4> params;
  Tensor out;
};
/// Checks a call and prepares it, into `self` if there is one, else into a new tensor. None for
/// calls that go by themselves: of complex numbers, of several outputs, and those that would read
/// what is written in other places of memory.
std::optional<PreparedCall> prepare_pointwise(const Call& call, const Tensor* self);
/// Whether a tensor counts as a number beside tensors of another device (Note [Numbers in tensors
/// of the CPU]), and the device of a call's first n arguments, which is theirs.
bool is_host_number(const Tensor& t);
Device device_beside_numbers(const Call& call, int n);

/// Whether input i of halves, or parameter i - n_inputs, is one of them even if it is a number or a
/// 0-d tensor of a wider dtype: x == 0.1 is True where x is 0.1.
inline bool rounds_to_half(const PointwiseDef& def, DType compute, DType result, int i) {
  return (result == kBool || def.rounded_numbers >> i & 1) && is_reduced_float(compute);
}

/// Memory for a result: in the order of the first input of its shape that says one, which is dense,
/// or has gaps in row-major or channels-last order.
Tensor allocate_like(std::span<const Tensor> inputs, const Shape& space, DType dtype,
                     Device device);

/// A call of a record that works on the parts of complex numbers. Two outputs are the parts of one
/// complex result, in the memory order of the first of `like` that has its sizes.
Results call_on_parts(const Call& parts, std::span<const Tensor> like);

/// The variants of a record, none yet; made when the record is, so that calls need no lock to find
/// it.
std::shared_ptr<PointwiseDef::Cache> make_pointwise_cache();

}  // namespace arete::ops
