// Writing fused kernels (see Note [Fused kernels] in prim/args.h) stage by stage.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "arete/expr/program_cache.h"
#include "arete/ops/call.h"
#include "arete/prim/args.h"

namespace arete::ops {

/// Builds a FusedSpec. Tensor inputs have the numbers 0, 1, ... in the order of `inputs`; row
/// values are referred to by what reduce() and row() return. Every program may use all parameters.
class FusedBuilder {
 public:
  using Values = std::span<const expr::Value>;
  /// Arguments of a stage's lambda: the values it reads in order, then the parameters.
  using Body = std::function<std::vector<expr::Value>(Values)>;

  /// tables: bit i: tensor input i is a table, which programs read by expr::load().
  FusedBuilder(std::vector<DType> inputs, std::vector<DType> outputs,
               std::vector<expr::Type> params = {}, uint32_t tables = 0)
      : inputs_(std::move(inputs)),
        outputs_(std::move(outputs)),
        params_(std::move(params)),
        tables_(tables) {
    spec_.n_inputs = int(inputs_.size());
    spec_.n_outputs = int(outputs_.size());
  }

  /// Reductions of a row; returns the reference of the first one (the next is one lower).
  int reduce(prim::Monoid monoid, const std::vector<int>& reads, const Body& body) {
    add(prim::FusedStage::Kind::reduce, reads, body, {}, 0);
    spec_.stages.back().monoid = monoid;
    return new_rows();
  }
  /// New row values from row values.
  int row(const std::vector<int>& reads, const Body& body) {
    add(prim::FusedStage::Kind::row, reads, body, {}, 0);
    return new_rows();
  }
  /// Elements of the outputs from `first_output` on.
  void store(const std::vector<int>& reads, int first_output, int count, const Body& body) {
    add(prim::FusedStage::Kind::store, reads, body, out_types(first_output, count), first_output);
  }
  /// Row values into outputs whose inner sizes are 1.
  void store_row(const std::vector<int>& reads, int first_output, int count, const Body& body) {
    add(prim::FusedStage::Kind::store_row, reads, body, out_types(first_output, count),
        first_output);
  }
  /// Reductions over all rows into outputs whose outer sizes are 1. Reads tensor inputs only.
  void reduce_columns(prim::Monoid monoid, const std::vector<int>& reads, int first_output,
                      int count, const Body& body) {
    add(prim::FusedStage::Kind::reduce_columns, reads, body, out_types(first_output, count),
        first_output);
    spec_.stages.back().monoid = monoid;
  }
  std::unique_ptr<prim::FusedSpec> finish() {
    return std::make_unique<prim::FusedSpec>(std::move(spec_));
  }

 private:
  std::vector<DType> out_types(int first, int count) const {
    return {outputs_.begin() + first, outputs_.begin() + first + count};
  }
  void add(prim::FusedStage::Kind kind, const std::vector<int>& reads, const Body& body,
           const std::vector<DType>& outs, int first_output) {
    std::vector<DType> types;
    uint32_t tables = 0;
    for (int r : reads) {
      if (r >= 0 && tables_ >> r & 1) tables |= uint32_t{1} << types.size();
      types.push_back(r >= 0 ? inputs_[size_t(r)] : rows_[size_t(~r)]);
    }
    prim::FusedStage stage{};
    stage.kind = kind;
    stage.program = expr::trace(body, types, params_, outs, tables);
    stage.inputs = reads;
    stage.first_output = first_output;
    spec_.stages.push_back(std::move(stage));
  }
  int new_rows() {
    const int first = ~int(rows_.size());
    for (const auto& o : spec_.stages.back().program->outputs()) rows_.push_back(o.dtype);
    return first;
  }

  std::vector<DType> inputs_, outputs_, rows_;
  std::vector<expr::Type> params_;
  uint32_t tables_;
  prim::FusedSpec spec_;
};

/// A layout with dimension `dim` moved to the end (0-d becomes one element).
inline Layout dim_last(const Layout& l, int64_t dim) {
  if (l.sizes.empty()) return Layout(IntList{1}, IntList{1}, l.offset);
  Layout r = l;
  const size_t d = size_t(dim);
  const int64_t size = r.sizes[d], stride = r.strides[d];
  r.sizes.erase(r.sizes.begin() + d);
  r.strides.erase(r.strides.begin() + d);
  r.sizes.push_back(size);
  r.strides.push_back(stride);
  return r;
}

/// Specs made once for each key (pack_key) and kept for the process.
using SpecCache = KeyedCache<prim::FusedSpec>;
using expr::ProgramCache, expr::work_dtype, expr::work_type;

}  // namespace arete::ops
