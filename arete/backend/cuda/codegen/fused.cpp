#include "arete/backend/cuda/codegen/fused.h"

#include <algorithm>
#include <string>
#include <utility>

#include "arete/backend/cuda/codegen/emit.h"
#include "arete/backend/cuda/codegen/fused_writer.h"
#include "arete/base/small_vector.h"

namespace arete::cuda {
namespace {

using prim::FusedSpec;
using prim::FusedStage;
using Kind = FusedStage::Kind;
using Mapping = FusedVariant::Mapping;

std::string number(int64_t v) { return std::to_string(v); }
bool has(uint32_t bits, int i) { return bits >> i & 1; }
bool by_element(const FusedStage& s) { return s.kind == Kind::reduce || s.kind == Kind::store; }

bool uses_exp(const expr::Program& program) {
  return std::ranges::any_of(program.code(), [](const auto& c) { return c.op == expr::Op::exp; });
}

// Whether exponentials need be no better than 16-bit elements show: they occur in stages over
// elements only, and each of those stages reads 16-bit tensors only.
bool short_exp_is_enough(const FusedSpec& spec) {
  for (const FusedStage& s : spec.stages) {
    if (!uses_exp(*s.program)) continue;
    bool reads = false;
    for (size_t k = 0; k < s.inputs.size(); ++k) {
      if (s.inputs[k] < 0) continue;
      const DType t = s.program->inputs()[k];
      if (t != kFloat16 && t != kBFloat16) return false;
      reads = true;
    }
    if (!by_element(s) || !reads) return false;
  }
  return true;
}

}  // namespace

PhaseRange range_of(const FusedSpec& spec, int phase) {
  const size_t n = spec.stages.size();
  PhaseRange r{0, n};
  if (phase < 0) return r;
  int reduces = 0;
  for (size_t k = 0; k < n; ++k) {
    if (spec.stages[k].kind != Kind::reduce) continue;
    if (reduces == phase) {
      r.end = k + 1;
      break;
    }
    if (++reduces == phase) r.begin = k + 1;
  }
  return r;
}

FusedWriter::FusedWriter(const FusedSpec& spec, const FusedVariant& variant)
    : spec_(spec), v_(variant), range_(range_of(spec, variant.phase)) {
  inputs_.resize(size_t(spec.n_inputs));
  output_dtypes_.resize(size_t(spec.n_outputs), kFloat32);
  for (const FusedStage& stage : spec.stages) {
    for (size_t k = 0; k < stage.inputs.size(); ++k)
      if (stage.inputs[k] >= 0)
        inputs_[size_t(stage.inputs[k])] = {stage.program->inputs()[k], stage.program->is_table(k)};
    if (stage.kind == Kind::store)
      for (size_t k = 0; k < stage.program->outputs().size(); ++k)
        output_dtypes_[size_t(stage.first_output) + k] = stage.program->outputs()[k].dtype;
    first_row_.push_back(int(row_dtypes_.size()));
    if (stage.kind == Kind::reduce || stage.kind == Kind::row)
      for (const auto& o : stage.program->outputs()) row_dtypes_.push_back(o.dtype);
  }
  find_needed_rows();
}

KernelSource FusedWriter::write() {
  open_kernel();
  for (size_t s = 0; s < range_.end; ++s) {
    const bool before = s < range_.begin;
    switch (spec_.stages[s].kind) {
      case Kind::reduce:
        before ? combine_partials(s) : reduce(s);
        break;
      case Kind::row:
        row(s);
        break;
      case Kind::store:
        if (!before) store(s);
        break;
      case Kind::store_row:
        if (!before) store_row(s);
        break;
      case Kind::reduce_columns:
        if (v_.columns) reduce_columns(s);
        break;
    }
  }
  if (v_.ahead) take_next_row(2);
  // The next row uses the same shared memory.
  if (uses_shared_) line(2, "if (first + i64(gridDim.x) * kRows < a.rows) __syncthreads();");
  line(1, "}");
  if (v_.columns) leave_columns();
  line(0, "}");
  return {.name = name(), .text = head_ + text_, .is_long = !v_.resident};
}

std::string FusedWriter::name() const {
  std::string n = v_.mapping == Mapping::rows ? "fused_rows" : "fused_columns";
  n += v_.resident ? "_resident" : "_streamed";
  if (v_.shifted) n += "_shifted";
  if (v_.columns) n += "_columns";
  if (v_.phase >= 0) n += "_phase" + number(v_.phase);
  return n;
}

// Row values that this launch reads, directly or through others. One launch has them all.
void FusedWriter::find_needed_rows() {
  needed_.assign(row_dtypes_.size(), v_.phase < 0);
  if (v_.phase < 0) return;
  for (size_t s = range_.end; s-- > 0;) {
    const FusedStage& stage = spec_.stages[s];
    bool runs = s >= range_.begin;
    if (!runs && stage.kind == Kind::row)
      for (size_t k = 0; k < stage.program->outputs().size(); ++k)
        runs |= needed_[size_t(first_row_[s]) + k];
    if (!runs) continue;
    for (int i : stage.inputs)
      if (i < 0) needed_[size_t(~i)] = true;
  }
}

// ---- names and types

void FusedWriter::line(int depth, const std::string& s) {
  text_ += std::string(size_t(2 * depth), ' ') + s + "\n";
}
std::string FusedWriter::base(int operand) const { return "p" + number(operand); }
std::string FusedWriter::at(int operand) const {
  return base(operand) + " + at" + number(operand) + " + from" + number(operand);
}
std::string FusedWriter::stride(int operand, int dim) const {
  return "a.operands[" + number(operand) + "].strides[" + number(dim) + "]";
}
std::string FusedWriter::uniform(int i) const { return "uniform" + number(i); }
std::string FusedWriter::table(int i) const {
  return "Table<" + storage(i) + ", " + (has(v_.written, i) ? "true" : "false") + ">{a.operands[" +
         number(operand_of_input(i)) + "].data}";
}
std::string FusedWriter::row_name(int k) const { return "row" + number(k); }
std::string FusedWriter::of_row() const { return v_.bundles ? "[j]" : ""; }
void FusedWriter::open_rows(int depth) {
  if (!v_.bundles) return;
  line(depth, "#pragma unroll");
  line(depth, "for (int j = 0; j < kVector; ++j) {");
}
void FusedWriter::close_rows(int depth) {
  if (v_.bundles) line(depth, "}");
}
std::string FusedWriter::row_address(int operand) const {
  if (!v_.bundles) return base(operand);
  return base(operand) + " + j * (" + stride(operand, v_.inner_rank) + " / kVector)";
}
std::string FusedWriter::total(size_t k) const { return "total" + number(int64_t(k)); }
std::string FusedWriter::storage(int i) const { return storage_name(inputs_[size_t(i)].dtype); }
std::string FusedWriter::elements_type(int i) const {
  return "Elements<" + storage(i) + ", " + number(width(i)) + ">";
}
int FusedWriter::width(int i) const { return has(v_.single, i) ? 1 : v_.vector; }
int FusedWriter::chunk_bytes(int i) const {
  return width(i) * int(size_of(inputs_[size_t(i)].dtype));
}
// Bytes from one chunk of an operand to the next where that is known: neighbouring chunks of
// several elements have no gap between them. Else 0.
int64_t FusedWriter::chunk_step(int operand) const {
  if (v_.vector == 1 || v_.bundles) return 0;
  const int i = operand - spec_.n_outputs;
  if (i < 0) return v_.vector * int64_t(size_of(output_dtypes_[size_t(operand)]));
  return has(v_.single, i) ? 0 : chunk_bytes(i);
}
int FusedWriter::element_bytes(int operand) const {
  const int i = operand - spec_.n_outputs;
  return int(size_of(i < 0 ? output_dtypes_[size_t(operand)] : inputs_[size_t(i)].dtype));
}
// The bits of a chunk's elements that are the row's.
std::string FusedWriter::inside() const {
  return v_.resident ? "inside[k]" : "bits_within<kVector>(c * kVector - shift, length)";
}
// An operand with rows of its own.
int FusedWriter::main_operand() const {
  for (const FusedStage& stage : spec_.stages) {
    if (stage.kind == Kind::store) return stage.first_output;
    if (stage.kind != Kind::reduce) continue;
    for (int i : element_inputs(stage))
      if (!has(v_.shared, i)) return operand_of_input(i);
  }
  return 0;
}
std::string FusedWriter::load(int i, int elements, const std::string& address) const {
  return "load_elements<" + storage(i) + ", " + number(elements) + ", " +
         (has(v_.written, i) ? "true" : "false") + ">(" + address + ")";
}
std::string FusedWriter::load_chunk(int i) const {
  if (has(v_.shared, i))
    return "load_within<" + storage(i) + ", kVector, " + (has(v_.written, i) ? "true" : "false") +
           ">(" + base(operand_of_input(i)) + ", c * kVector - shift, length)";
  return load(i, width(i), at(operand_of_input(i)));
}
std::string FusedWriter::slot(int i) const {
  return "cache" + number(i) + " + c * (kRows * " + number(chunk_bytes(i)) + ")";
}
bool FusedWriter::is_register_cached(int i) const { return v_.resident && has(v_.cached, i); }
bool FusedWriter::is_shared_cached(int i) const { return !v_.resident && has(v_.cached, i); }
bool FusedWriter::is_fresh(int i) const {
  return is_shared_cached(i) && !inputs_[size_t(i)].in_shared;
}
bool FusedWriter::is_copied_async(int i) const { return is_fresh(i) && chunk_bytes(i) >= 4; }

// The values of a program's outputs, as the compute types of the outputs' dtypes.
std::vector<std::string> FusedWriter::values(const expr::Program& program,
                                             const std::vector<std::string>& inputs, int depth,
                                             bool for_sums) {
  std::vector<std::string> params;
  for (size_t k = 0; k < program.params().size(); ++k) {
    const std::string at = number(int64_t(k));
    const std::string slot = program.has_in_memory(k) ? "number" + at : "a.params[" + at + "]";
    params.push_back(number_expression(program.params()[k], slot));
  }
  std::vector<std::string> r = emit_values(text_, program, inputs, params, "v",
                                           std::string(size_t(2 * depth), ' '), for_sums);
  for (size_t k = 0; k < r.size(); ++k) {
    const auto& o = program.outputs()[k];
    const expr::Type wanted = expr::compute_type(o.dtype);
    if (program.code()[size_t(o.value)].type != wanted)
      r[k] = std::string("op_cast<") + compute_name(wanted) + ">(" + r[k] + ")";
  }
  return r;
}

// A row value of dtype `t` after its one rounding.
std::string FusedWriter::rounded(const std::string& value, DType t) const {
  if (expr::storage_type(expr::compute_type(t)) == t) return value;
  return std::string("to_compute(from_compute<") + storage_name(t) + ">(" + value + "))";
}

// ---- the kernel's frame

void FusedWriter::open_kernel() {
  const int rank = v_.inner_rank + v_.outer_rank, block = v_.block();
  const int operands = spec_.n_outputs + spec_.n_inputs;
  head_ = "#include \"fused.cuh\"\n";
  if (short_exp_is_enough(spec_)) head_ += "#define op_exp short_exp\n";
  head_ += v_.wide ? "typedef i64 Index;\ntypedef u64 Count;\n"
                   : "typedef i32 Index;\ntypedef u32 Count;\n";
  head_ += "struct Operand {\n  u8* data;\n  i64 strides[" + number(rank) + "];\n};\n";
  head_ += "struct Arguments {\n  i64 rows, chunks, splits, span;\n  u8* partials;\n  i64 held;\n";
  head_ += "  i64 cache[" + number(std::max(1, spec_.n_inputs)) + "];\n";
  head_ += "  i64 sizes[" + number(rank) + "];\n";
  head_ += "  Operand operands[" + number(operands) + "];\n";
  head_ += "  FusedParameter params[" + number(int64_t(std::max<size_t>(1, parameters_of(spec_)))) +
           "];\n};\n";

  // Threads of a multiprocessor, which bounds the registers of one. Two rows in registers, or one
  // of doubles, with what is computed from them, need more than 64; 32 elements, or the places that
  // are looked up, a few more.
  int words = 0;
  for (int i = 0; i < spec_.n_inputs; ++i)
    if (is_register_cached(i)) words += size_of(inputs_[size_t(i)].dtype) == 8 ? 2 : 1;
  const bool many = block <= 128 && v_.vector * v_.count >= 32;
  const bool looks_up = std::ranges::any_of(
      spec_.stages, [](const FusedStage& s) { return s.program->tables() != 0; });
  const int resident = words > 1 ? 640 : looks_up ? 768 : many ? 896 : 1024;
  text_ += "extern \"C\" __global__ void __launch_bounds__(" + number(block) + ", " +
           number(v_.columns ? v_.resident_blocks() : std::clamp(resident / block, 1, 16)) + ")\n" +
           name() + "(const __grid_constant__ Arguments a) {\n";
  line(1, "constexpr int kThreads = " + number(v_.threads) + ", kRows = " + number(v_.rows) +
              ", kVector = " + number(v_.vector) + ", kCount = " + number(v_.count) + ";");
  line(1, v_.mapping == Mapping::columns
              ? "const int t = int(threadIdx.x) / kRows, r = int(threadIdx.x) % kRows;"
              : "const int t = int(threadIdx.x) % kThreads, r = int(threadIdx.x) / kThreads;");
  // Numbers in memory are fetched once, and are from then on what arguments are.
  uint64_t fetched = 0;
  for (const FusedStage& s : spec_.stages) fetched |= s.program->params_in_memory();
  for (int64_t k = 0; k < 64; ++k)
    if (fetched >> k & 1) {
      line(1, "FusedParameter number" + number(k) + ";");
      line(1, "number" + number(k) + ".i = __ldg(reinterpret_cast<const i64*>(a.params[" +
                  number(k) + "].i));");
    }
  declare_shared();
  if (v_.columns) declare_columns();
  if (v_.ahead) {
    declare_row_data(1, "");
    line(1, "if (i64(blockIdx.x) * kRows < a.rows) {");
    line(2, "const i64 first = i64(blockIdx.x) * kRows;");
    line(2, "const i64 row = first + r < a.rows ? first + r : a.rows - 1;");
    addresses(2);
    load_row_data(2, "");
    line(1, "}");
  }
  line(1, "for (i64 first = i64(blockIdx.x) * kRows; first < a.rows;");
  line(1, "     first += i64(gridDim.x) * kRows) {");
  // Threads without a row work on the last one, and store nothing.
  line(2, "const bool live = first + r < a.rows;");
  line(2, "const i64 row = live ? first + r : a.rows - 1;");
  addresses(2);
  const char* chunks = "a.chunks";
  if (v_.shifted) {
    const int main = main_operand();
    line(2, "const Index length = Index(a.chunks);");
    line(2, "const Index shift = Index(u64(" + base(main) + ") / " + number(element_bytes(main)) +
                " % kVector);");
    line(2, "const Index chunks = (shift + length + kVector - 1) / kVector;");
    chunks = "chunks";
  }
  if (v_.resident) {
    if (!v_.exact) line(2, std::string("const Index end = Index(") + chunks + ");");
  } else if (v_.phase < 0) {
    line(2, std::string("const Index begin = 0, end = Index(") + chunks + ");");
  } else {
    line(2, std::string("const i64 all = ") + chunks + ", from = i64(blockIdx.y) * a.span;");
    line(2, "const Index begin = Index(from < all ? from : all);");
    line(2, "const Index end = Index(all - begin < a.span ? all : begin + a.span);");
  }
  if (v_.shifted && v_.resident) {
    // A row has two incomplete chunks, the first and the last, and may have one less than others;
    // where the count is rounded up it has a few less.
    const int whole = v_.count - (v_.count > 8 ? 5 : 2);
    line(2, "u32 inside[kCount];");
    line(2, "#pragma unroll");
    line(2, "for (int k = 0; k < kCount; ++k)");
    line(3, "inside[k] = k > 0 && k < " + number(whole) + " ? (1u << kVector) - 1");
    line(3, "            : bits_within<kVector>((t + k * kThreads) * kVector - shift, length);");
  }
  if (v_.ahead) {
    declare_row_data(2, "next_");
    line(2, "{");
    line(3, "const i64 ahead = first + i64(gridDim.x) * kRows + r;");
    line(3, "const i64 row = ahead < a.rows ? ahead : a.rows - 1;");
    addresses(3);
    load_row_data(3, "next_");
    line(2, "}");
    return;
  }
  declare_row_data(2, "");
  load_row_data(2, "");
}

// The operands' addresses of `row`.
void FusedWriter::addresses(int depth) {
  for (int k = 0; k < spec_.n_outputs + spec_.n_inputs; ++k)
    line(depth, "u8* " + base(k) + " = a.operands[" + number(k) + "].data;");
  outer_offsets(depth);
}

// What is kept of a row: its uniform inputs and, in registers, its cached ones.
void FusedWriter::declare_row_data(int depth, const std::string& prefix) {
  for (int i = 0; i < spec_.n_inputs; ++i) {
    if (has(v_.uniform, i))
      line(depth, std::string(compute_name(expr::compute_type(inputs_[size_t(i)].dtype))) + " " +
                      prefix + uniform(i) + (v_.bundles ? "[kVector];" : ";"));
    if (is_register_cached(i))
      line(depth, elements_type(i) + " " + prefix + "x" + number(i) + "[kCount];");
  }
}
void FusedWriter::load_row_data(int depth, const std::string& prefix) {
  for (int i = 0; i < spec_.n_inputs; ++i) {
    if (!has(v_.uniform, i)) continue;
    open_rows(depth);
    line(depth, prefix + uniform(i) + of_row() + " = to_compute(" +
                    load(i, 1, row_address(operand_of_input(i))) + ".v[0]);");
    close_rows(depth);
  }
  if (v_.resident) load_resident(depth, prefix);
}
void FusedWriter::take_next_row(int depth) {
  for (int i = 0; i < spec_.n_inputs; ++i) {
    if (has(v_.uniform, i)) line(depth, uniform(i) + " = next_" + uniform(i) + ";");
    if (!is_register_cached(i)) continue;
    line(depth, "#pragma unroll");
    line(depth,
         "for (int k = 0; k < kCount; ++k) x" + number(i) + "[k] = next_x" + number(i) + "[k];");
  }
}

void FusedWriter::declare_shared() {
  // For reductions across threads; rows of up to a warp need none.
  if (v_.mapping == Mapping::columns) {
    if (v_.threads > 1) line(1, "__shared__ u64 column_shared[kThreads * kRows];");
  } else if (v_.threads > 32) {
    for (size_t s = 0; s < range_.end; ++s) {
      if (spec_.stages[s].kind != Kind::reduce) continue;
      const auto outputs = spec_.stages[s].program->outputs();
      for (size_t k = 0; k < outputs.size(); ++k)
        line(1, std::string("__shared__ ") + compute_name(expr::compute_type(outputs[k].dtype)) +
                    " shared" + number(first_row_[s] + int(k)) + "[kRows * kThreads / 32];");
    }
  }
  if (v_.resident || v_.cached == 0) return;
  // The rows' data. A thread uses its own slots only, so no barrier is needed.
  line(1, "extern __shared__ uint4 dynamic_shared[];");
  for (int i = 0; i < spec_.n_inputs; ++i)
    if (is_shared_cached(i))
      line(1, "u8* const cache" + number(i) +
                  " = reinterpret_cast<u8*>(dynamic_shared) + a.cache[" + number(i) + "] + r * " +
                  number(chunk_bytes(i)) + ";");
  if (v_.partial) line(1, "const Index held = Index(a.held);");
}

// Moves the operands' addresses to the row.
void FusedWriter::outer_offsets(int depth) {
  const int rank = v_.outer_rank, operands = spec_.n_outputs + spec_.n_inputs;
  if (rank == 0) return;
  line(depth, "{");
  line(depth + 1, "Count rest = Count(row);");
  for (int d = 0; d < rank; ++d) {
    const int dim = v_.inner_rank + d;
    const std::string i = "i" + number(d), size = "Count(a.sizes[" + number(dim) + "])";
    line(depth + 1,
         "const Index " + i + " = Index(rest" + (d + 1 < rank ? " % " + size : "") + ");");
    if (d + 1 < rank) line(depth + 1, "rest /= " + size + ";");
    for (int k = 0; k < operands; ++k) {
      // What all rows share has the same address in all threads of a warp.
      if (d == 0 && v_.bundles && k >= spec_.n_outputs && has(v_.single, k - spec_.n_outputs))
        continue;
      line(depth + 1, base(k) + " += i64(" + i + ") * i64(Index(" + stride(k, dim) + "));");
    }
  }
  line(depth, "}");
}

// ---- stages over rows

void FusedWriter::declare_rows(size_t s) {
  const auto outputs = spec_.stages[s].program->outputs();
  for (size_t k = 0; k < outputs.size(); ++k)
    line(2, std::string(compute_name(expr::compute_type(outputs[k].dtype))) + " " +
                row_name(first_row_[s] + int(k)) + (v_.bundles ? "[kVector];" : ";"));
}

std::vector<std::string> FusedWriter::row_inputs(const FusedStage& stage) const {
  std::vector<std::string> r;
  for (int i : stage.inputs) {
    if (i < 0)
      r.push_back(row_name(~i) + of_row());
    else if (inputs_[size_t(i)].is_table)
      r.push_back(table(i));
    else if (has(v_.uniform, i))
      r.push_back(uniform(i) + of_row());
    else
      r.push_back("to_compute(" + load(i, 1, row_address(operand_of_input(i))) + ".v[0])");
  }
  return r;
}

void FusedWriter::row(size_t s) {
  const FusedStage& stage = spec_.stages[s];
  const auto outputs = stage.program->outputs();
  bool any = false;
  for (size_t k = 0; k < outputs.size(); ++k) any |= needed_[size_t(first_row_[s]) + k];
  if (!any) return;
  declare_rows(s);
  line(2, "{");
  open_rows(3);
  const std::vector<std::string> r = values(*stage.program, row_inputs(stage), 3);
  for (size_t k = 0; k < outputs.size(); ++k)
    line(3, row_name(first_row_[s] + int(k)) + of_row() + " = " + rounded(r[k], outputs[k].dtype) +
                ";");
  close_rows(3);
  line(2, "}");
}

void FusedWriter::store_row(size_t s) {
  const FusedStage& stage = spec_.stages[s];
  const auto outputs = stage.program->outputs();
  // All threads must have read what one of them is about to write over.
  if (v_.written != 0 && v_.threads > 1) line(2, "__syncthreads();");
  line(2, v_.phase < 0 ? "if (live && t == 0) {" : "if (live && t == 0 && blockIdx.y == 0) {");
  open_rows(3);
  const std::vector<std::string> r = values(*stage.program, row_inputs(stage), 3);
  for (size_t k = 0; k < outputs.size(); ++k) {
    const std::string type = storage_name(outputs[k].dtype);
    line(3, "*reinterpret_cast<" + type + "*>(" + row_address(stage.first_output + int(k)) +
                ") = from_compute<" + type + ">(" + r[k] + ");");
  }
  close_rows(3);
  line(2, "}");
}

// ---- facts about specs

FusedReductions reductions_of(const FusedSpec& spec) {
  FusedReductions r;
  for (const FusedStage& s : spec.stages) {
    if (s.kind != Kind::reduce) continue;
    ++r.stages;
    r.results += int(s.program->outputs().size());
  }
  return r;
}

std::vector<FusedColumn> columns_of(const FusedSpec& spec) {
  std::vector<FusedColumn> r;
  for (const FusedStage& s : spec.stages) {
    if (s.kind != Kind::reduce_columns) continue;
    const auto outputs = s.program->outputs();
    for (size_t k = 0; k < outputs.size(); ++k)
      r.push_back({s.monoid, expr::compute_type(outputs[k].dtype), s.first_output + int(k)});
  }
  return r;
}

size_t column_bytes(const std::vector<FusedColumn>& columns) {
  size_t bytes = 0;
  for (const FusedColumn& c : columns) bytes = std::max(bytes, size_of(expr::storage_type(c.type)));
  return bytes;
}

bool phase_has_elements(const FusedSpec& spec, int phase) {
  const PhaseRange r = range_of(spec, phase);
  return std::any_of(spec.stages.begin() + ptrdiff_t(r.begin),
                     spec.stages.begin() + ptrdiff_t(r.end), by_element);
}

bool phase_is_empty(const FusedSpec& spec, int phase) {
  const PhaseRange r = range_of(spec, phase);
  return std::all_of(
      spec.stages.begin() + ptrdiff_t(r.begin), spec.stages.begin() + ptrdiff_t(r.end),
      [](const FusedStage& s) { return s.kind == Kind::row || s.kind == Kind::reduce_columns; });
}

size_t parameters_of(const FusedSpec& spec) {
  size_t n = 0;
  for (const FusedStage& s : spec.stages) n = std::max(n, s.program->params().size());
  return n;
}

KernelSource fused_source(const FusedSpec& spec, const FusedVariant& variant) {
  return FusedWriter(spec, variant).write();
}

KernelSource fused_totals_source(const FusedSpec& spec, const std::vector<DType>& dtypes) {
  const std::vector<FusedColumn> columns = columns_of(spec);
  std::string text = "#include \"fused.cuh\"\nstruct Arguments {\n  u8* partials;\n";
  text += "  i64 blocks, columns;\n  u8* outputs[" + number(int64_t(columns.size())) + "];\n};\n";
  text += "extern \"C\" __global__ void __launch_bounds__(" + number(kTotalsBlock) +
          ")\nfused_totals(const __grid_constant__ Arguments a) {\n";
  text += "  const u8* p = a.partials + i64(blockIdx.y) * a.blocks * a.columns * " +
          number(int64_t(column_bytes(columns))) + ";\n";
  text += "  switch (blockIdx.y) {\n";
  for (size_t k = 0; k < columns.size(); ++k)
    text += "    case " + number(int64_t(k)) + ":\n      total_of_blocks<" +
            monoid_name(columns[k].monoid, columns[k].type) + ", " + compute_name(columns[k].type) +
            ", " + storage_name(dtypes[k]) + ">(p, a.blocks, a.columns, a.outputs[" +
            number(int64_t(k)) + "]);\n      break;\n";
  text += "  }\n}\n";
  return {"fused_totals", text};
}

Hash128 fused_key(const FusedSpec& spec, const FusedVariant& v, int device) {
  SmallVector<uint64_t, 64> words;
  words.push_back(uint64_t(v.mapping) | uint64_t(v.resident) << 1 | uint64_t(v.exact) << 2 |
                  uint64_t(v.wide) << 3 | uint64_t(v.inner_rank) << 4 |
                  uint64_t(v.outer_rank) << 10 | uint64_t(v.partial) << 16 |
                  uint64_t(v.phase + 1) << 17 | uint64_t(v.bundles) << 30 |
                  uint64_t(v.columns) << 31 | uint64_t(v.ahead) << 29 | uint64_t(v.shifted) << 28 |
                  uint64_t(device) << 32);
  words.push_back(uint64_t(v.threads) | uint64_t(v.rows) << 16 | uint64_t(v.vector) << 32 |
                  uint64_t(v.count) << 48);
  words.push_back(uint64_t(v.uniform) | uint64_t(v.single) << 32);
  words.push_back(uint64_t(v.cached) | uint64_t(v.written) << 32);
  words.push_back(v.shared);
  words.push_back(uint64_t(spec.n_inputs) | uint64_t(spec.n_outputs) << 32);
  for (const FusedStage& s : spec.stages) {
    words.push_back(s.program->hash().low);
    words.push_back(s.program->hash().high);
    words.push_back(uint64_t(s.kind) | uint64_t(s.monoid) << 8 | uint64_t(s.first_output) << 16 |
                    uint64_t(s.inputs.size()) << 32);
    uint64_t packed = 0;
    for (size_t k = 0; k < s.inputs.size(); ++k) {
      packed = packed << 16 | uint16_t(s.inputs[k]);
      if (k % 4 == 3 || k + 1 == s.inputs.size()) words.push_back(std::exchange(packed, 0));
    }
  }
  return hash_bytes(words.data(), words.size() * sizeof(uint64_t));
}

}  // namespace arete::cuda
