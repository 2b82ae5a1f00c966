// Reductions as CUDA C++ text; the bodies are in device/reduce.cuh.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "arete/backend/cuda/codegen/kernel_source.h"
#include "arete/backend/cuda/codegen/reduce_plan.h"
#include "arete/expr/program.h"
#include "arete/prim/args.h"

namespace arete::cuda {

/// What reductions accumulate in: each thread in `fast`, threads together in `wide`. As on the CPU,
/// but that f32 sums stay in f32 for some tens of additions before they go on in f64.
struct Accumulation {
  expr::Type fast, wide;
};
/// `narrow`: the values are integers of 16 bits at most.
Accumulation accumulation_of(prim::Monoid monoid, expr::Type value, bool narrow);

/// A reduction without its sizes.
struct ReduceKernel {
  prim::Monoid monoid;
  std::vector<DType> inputs;
  DType out;
  const expr::Program* prologue = nullptr;  // null: the input itself
  const expr::Program* epilogue = nullptr;
  /// The input holds partial results (the first of `inputs` is their storage type).
  bool combine = false;

  /// The type of the values that are accumulated, and their accumulation.
  expr::Type value_type() const;
  Accumulation accumulation() const;
};

/// The kernel for plans of this form, rank, vector width and index type; its arguments are
/// ReduceArguments<...> of device/reduce.cuh.
KernelSource reduce_source(const ReduceKernel& kernel, const ReducePlan& plan);

/// The members of a generated struct that follow from the plan alone: constants, Index, Arguments,
/// Loaded and load(). `inputs`: the types of stored elements; those of the bits `tables` are not
/// loaded.
std::string reduce_struct_head(const ReducePlan& plan, const std::vector<std::string>& inputs,
                               size_t n_params, uint32_t tables = 0);
/// The expression of element `v` of input k, in Loaded<V> `l`.
std::string loaded_element(const ReducePlan& plan, size_t k);
/// The same as the compute type.
std::string computed_element(const ReducePlan& plan, size_t k);
/// The kernel function around struct `Reduction`, with its name.
std::string reduce_entry(const ReducePlan& plan, const std::string& name);

/// The bytes of a kernel's arguments: header, pointers, sizes, strides and parameters.
std::vector<std::byte> reduce_arguments(const ReducePlan& plan,
                                        std::span<const expr::Literal> params,
                                        std::span<const expr::Literal> more_params = {});

/// What distinguishes kernels of one reduction, as a number.
uint64_t plan_key(const ReducePlan& plan);

}  // namespace arete::cuda
