// Operators over lists of tensors, each of which is one launch, or one for each device and dtype:
// programs, reductions, and pointwise operators under PyTorch's names `_foreach_*`.
#pragma once

#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "arete/ops/record.h"
#include "arete/prim/args.h"

namespace arete::ops {

/// Applies a program in place: inputs and outputs as those of a pointwise primitive, all on one
/// device. It is a call of program_record(name) without history; versions of what is written move
/// on. Nothing happens on the meta device.
void run_program(const char* name, const expr::Program& program, Device device,
                 std::span<const prim::View> inputs, std::span<const prim::View> outputs,
                 std::span<const expr::Literal> params = {});
/// The same for `n` independent sets of operands, one after the other in `inputs` and `outputs`.
void run_programs(const char* name, const expr::Program& program, Device device, int64_t n,
                  std::span<const prim::View> inputs, std::span<const prim::View> outputs,
                  std::span<const expr::Literal> params = {});

/// Reduces program(element) over each of some tensors of one device and dtype, none of which is
/// empty: 1-d, of the dtype of the program's output, one number for each. No history.
Tensor reduce_each(const char* name, prim::Monoid monoid, const expr::Program& program,
                   std::span<const Tensor> tensors, std::span<const expr::Literal> params = {});

/// What the norms of an order come from, for each of some tensors of one device and dtype, none of
/// which is empty: the sum of |x|^order, the number of elements that are not 0 for order 0, for
/// infinite orders the largest or smallest |x|. 1-d, of `dtype`, in which it is computed.
Tensor powers_of_each(std::span<const Tensor> tensors, double order, DType dtype);
/// The norms themselves, from such numbers or from sums of them.
Tensor root_of_powers(const Tensor& powers, double order);
/// What to reduce such numbers by.
prim::Monoid monoid_of_order(double order);

/// The positions of tensors that one launch can take together: of one device and dtype.
std::vector<std::vector<size_t>> by_device_and_dtype(std::span<const Tensor> tensors);
/// The tensors at some positions.
std::vector<Tensor> at_positions(std::span<const Tensor> tensors, std::span<const size_t> where);

}  // namespace arete::ops
