// Writes one fused kernel. Internal to codegen/fused*.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "arete/backend/cuda/codegen/fused.h"

namespace arete::cuda {

/// The stages of a launch: those in [begin, end), after the reductions before `begin`.
struct PhaseRange {
  size_t begin, end;
};
PhaseRange range_of(const prim::FusedSpec& spec, int phase);

class FusedWriter {
 public:
  FusedWriter(const prim::FusedSpec& spec, const FusedVariant& variant);
  KernelSource write();

 private:
  using Stage = prim::FusedStage;
  struct Input {
    DType dtype = kFloat32;
    bool is_table = false;
    bool in_shared = false;  // an earlier stage has put it there
  };
  /// What a stage does with elements. `inside`: with the program's values for element j of a chunk;
  /// `after`: after a chunk. `before_span` and `after_span`: around each of the parts that streamed
  /// rows are walked in, if set.
  struct Body {
    std::function<void(const std::vector<std::string>& values, int depth)> inside;
    std::function<void(int depth)> after, before_span, after_span;
    std::vector<int> stored;  // operands
  };

  // fused.cpp: the frame, and stages over rows
  std::string name() const;
  void find_needed_rows();
  void open_kernel();
  void declare_shared();
  void outer_offsets(int depth);
  void addresses(int depth);
  void declare_row_data(int depth, const std::string& prefix);
  void load_row_data(int depth, const std::string& prefix);
  void take_next_row(int depth);
  void row(size_t s);
  void store_row(size_t s);
  void declare_rows(size_t s);
  std::vector<std::string> row_inputs(const Stage& stage) const;
  std::vector<std::string> values(const expr::Program& program,
                                  const std::vector<std::string>& inputs, int depth,
                                  bool for_sums = false);
  std::string rounded(const std::string& value, DType t) const;

  // fused_elements.cpp: stages over elements
  void load_resident(int depth, const std::string& prefix);
  void reduce(size_t s);
  void combine_partials(size_t s);
  void store(size_t s);
  void declare_columns();
  void reduce_columns(size_t s);
  void leave_columns();
  void declare_totals(const Stage& stage, const std::function<bool(size_t)>& wanted);
  void across_threads(size_t s, bool all);
  void walk(const Stage& stage, int depth, const Body& body);
  void walk_resident(const Stage& stage, int depth, const Body& body);
  void walk_streamed(const Stage& stage, int depth, const Body& body);
  void stream(const Stage& stage, const std::string& first, const std::string& last, bool shared,
              int depth, const Body& body);
  void fetch(const Stage& stage, int depth);
  void compute(const Stage& stage, int depth, const std::vector<std::string>& sources,
               const Body& body);
  void inner_offsets(const std::vector<int>& operands, int depth);
  std::vector<int> element_inputs(const Stage& stage) const;
  std::vector<std::string> monoids(const Stage& stage) const;
  std::string cell(int result, const std::string& split) const;
  int result_number(size_t stage) const;
  int pipeline_depth(const Stage& stage) const;
  int column_number(size_t stage) const;

  // names and types in the text
  void line(int depth, const std::string& s);
  std::string base(int operand) const;
  std::string at(int operand) const;
  std::string stride(int operand, int dim) const;
  std::string uniform(int i) const;
  std::string table(int i) const;
  std::string row_name(int k) const;
  std::string of_row() const;  // "[j]" with bundles
  void open_rows(int depth);   // a loop over the rows of a bundle
  void close_rows(int depth);
  std::string row_address(int operand) const;  // of row j
  std::string total(size_t k) const;
  std::string storage(int i) const;
  std::string elements_type(int i) const;
  std::string load(int i, int elements, const std::string& address) const;
  std::string load_chunk(int i) const;
  std::string slot(int i) const;
  int operand_of_input(int i) const { return spec_.n_outputs + i; }
  int width(int i) const;
  int chunk_bytes(int i) const;
  int64_t chunk_step(int operand) const;
  int element_bytes(int operand) const;
  int main_operand() const;
  std::string inside() const;
  bool is_register_cached(int i) const;
  bool is_shared_cached(int i) const;
  bool is_fresh(int i) const;  // cached in shared memory, but not there yet
  bool is_copied_async(int i) const;

  const prim::FusedSpec& spec_;
  const FusedVariant& v_;
  const PhaseRange range_;
  std::vector<Input> inputs_;
  std::vector<DType> output_dtypes_;
  std::vector<int> first_row_;  // of each stage: the number of its first row value
  std::vector<DType> row_dtypes_;
  std::vector<bool> needed_;  // of each row value: does this launch read it?
  bool uses_shared_ = false;
  std::string head_, text_;
};

}  // namespace arete::cuda
