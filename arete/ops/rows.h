// Kernels over rows that users write: arithmetic of scalars, and reductions of the row they are in.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "arete/base/keyed_cache.h"
#include "arete/expr/program_cache.h"
#include "arete/ops/record.h"
#include "arete/prim/args.h"

namespace arete::ops {

class RowProgram;
using RowProgramPtr = std::shared_ptr<const RowProgram>;

/// What the definition of a RowProgram has besides arithmetic: values that all elements of a row
/// share.
class Rows {
 public:
  /// The reduction of `v` over its row. Integers and booleans are reduced as i64 (all and any: as
  /// booleans), floats in their own type. With `has_gradient` false it counts as a constant where
  /// the program is differentiated: for a maximum that is only taken off to avoid overflow.
  /// Equal minima and maxima share their gradient evenly; a product has none.
  expr::Value reduce(prim::Monoid monoid, expr::Value v, bool has_gradient = true);
  expr::Value sum(expr::Value v) { return reduce(prim::Monoid::sum, v); }
  expr::Value max(expr::Value v) { return reduce(prim::Monoid::max, v); }
  expr::Value min(expr::Value v) { return reduce(prim::Monoid::min, v); }
  expr::Value mean(expr::Value v);
  /// The number of elements of a row, as f64.
  expr::Value length() const { return length_; }

 private:
  friend class RowProgram;
  explicit Rows(expr::Value length) : length_(length) {}
  struct Reduction {
    prim::Monoid monoid;
    bool has_gradient;
    expr::Value body, value;
  };
  expr::Value length_;
  std::vector<Reduction> reductions_;
};

// Note [Programs of rows]
// A definition is run once, on symbols. What it reduces becomes an output of an ordinary program,
// and the row's value that it goes on with an input of the same program. From this come
//  - the kernel: the reductions, those that do not wait for each other together, then the elements
//    (Note [Fused kernels] in prim/args.h); arithmetic on nothing but rows' values is done once a
//    row;
//  - the derivative, a program of rows, too, and so of any order. In the derivative of the
//    ordinary program a row's value has a gradient in each element that reads it: the sum of these
//    over the row, computed for the last reduction first, is the gradient of what was reduced.
/// Immutable. Programs that do the same are one object, which has its kernels and derivatives.
class RowProgram : public std::enable_shared_from_this<RowProgram> {
 public:
  /// Arguments: the rows, then the values of the inputs and of the parameters.
  using Definition =
      std::function<std::vector<expr::Value>(Rows& rows, std::span<const expr::Value>)>;

  /// Runs `definition` on inputs of the given storage types (at least one) and parameters of the
  /// given types; outputs have the dtypes `outputs`, which is read when the definition has run and
  /// may be filled by it.
  static RowProgramPtr trace(const Definition& definition, std::span<const DType> inputs,
                             std::span<const expr::Type> params, const std::vector<DType>& outputs);

  std::span<const DType> inputs() const { return {program_->inputs().data(), n_inputs_}; }
  std::span<const expr::Type> params() const {
    return program_->params().first(program_->params().size() - 1);
  }
  size_t n_outputs() const { return program_->outputs().size() - reductions_.size(); }
  DType output(size_t k) const { return program_->outputs()[k].dtype; }
  /// Whether output k has one value for a row.
  bool is_row(size_t k) const { return is_row_[k] != 0; }
  /// Whether something is reduced that has no value for rows without elements.
  bool needs_elements() const { return needs_elements_; }

  /// What runs. The programs' parameters are params(), then the length of a row as f64.
  const prim::FusedSpec& spec() const { return spec_; }

  /// The gradients of the inputs with wanted[i] set, from what `inputs` says: inputs, and
  /// gradients of outputs (floating ones; zeros where none came).
  struct Derivative {
    RowProgramPtr program;
    std::vector<expr::DerivativeInput> inputs;
  };
  /// Made once. NotImplementedError where a gradient passes a product or an operation without one.
  const Derivative& derivative(uint32_t wanted) const;

 private:
  class Planner;
  struct Reduction {
    prim::Monoid monoid;
    bool has_gradient;
  };
  RowProgram() = default;
  void drop_unneeded();
  std::vector<expr::Value> pull_back(Rows& rows, std::span<const expr::Value> values,
                                     uint32_t wanted) const;
  Derivative differentiate(uint32_t wanted) const;

  // Inputs: elements, then the value of each reduction. Outputs: results, then what each reduces.
  // Parameters: those of the definition, then the length of a row.
  expr::ProgramPtr program_;
  size_t n_inputs_ = 0;
  std::vector<Reduction> reductions_;
  std::vector<char> is_row_;  // of outputs
  bool needs_elements_ = false;
  prim::FusedSpec spec_;
  mutable std::mutex mutex_;
  mutable std::vector<std::pair<uint32_t, std::unique_ptr<Derivative>>> derivatives_;
};

/// Programs of rows that are traced once for each key. May be used by several threads; as a static
/// that is used until exit: made by new.
class RowProgramCache {
 public:
  /// The program with this key (pack_key), which must say all that the others depend on.
  template <class Body>
  const RowProgramPtr& get(uint64_t key, expr::BorrowedList<DType> inputs,
                           expr::BorrowedList<expr::Type> params, const std::vector<DType>& outputs,
                           const Body& body) {
    return cache_.get(key, [&] {
      return std::make_unique<RowProgramPtr>(RowProgram::trace(
          [&](Rows& rows, std::span<const expr::Value> v) { return body(rows, v); }, inputs, params,
          outputs));
    });
  }

 private:
  KeyedCache<RowProgramPtr> cache_;
};

/// A program of rows applied to tensors, with broadcasting and history: one kernel forward, one
/// backward. A row is what lies along `dims` (none given: all). Results have the sizes that the
/// inputs broadcast to, those that are one value for a row with size 1 along `dims`. `inputs` have
/// the dtypes of the program's. `name` is for history and errors; it must stay alive.
Results apply_rows(const RowProgramPtr& program, std::span<const Tensor> inputs,
                   std::span<const Scalar> params, IntList dims, const char* name);

/// The value of a program (one output) reduced over `dims` (none given: all), in one kernel, with
/// history. Sums and products of integers are i64, all and any are boolean, others have the dtype
/// of the program's output, floats narrower than f32 being summed in f32.
Tensor apply_reduce(const expr::ProgramPtr& program, prim::Monoid monoid,
                    std::span<const Tensor> inputs, std::span<const Scalar> params, IntList dims,
                    bool keepdim, const char* name);

}  // namespace arete::ops
