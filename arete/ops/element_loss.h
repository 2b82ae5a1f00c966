// Losses of elements, reduced in the kernel that computes them (in loss.cpp).
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>

#include "arete/expr/program_cache.h"
#include "arete/ops/rows.h"

namespace arete::ops {

/// A function of real tensors of any dtypes, which broadcast, and of numbers. Forward and backward
/// are one kernel each, whatever the reduction. For static objects that are used until exit.
class ElementLoss {
 public:
  /// Of the inputs and then the numbers, all of the type that is computed in.
  using Body = expr::Value (*)(std::span<const expr::Value>);
  ElementLoss(size_t inputs, size_t numbers, Body body)
      : inputs_(inputs), numbers_(numbers), body_(body) {}

  /// In the dtype that the inputs promote to, by "mean", "sum" or "none". `op`: for errors.
  Tensor operator()(std::initializer_list<Tensor> inputs, std::initializer_list<double> numbers,
                    std::string_view reduction, const char* op);

 private:
  expr::Value value(std::span<const expr::Value> v, expr::Type work) const;

  size_t inputs_, numbers_;
  Body body_;
  expr::ProgramCache each_;
  RowProgramCache reduced_;
};

}  // namespace arete::ops
