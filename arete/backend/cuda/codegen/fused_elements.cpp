// The stages of fused kernels that walk the elements of a row: see Note [Rows on the GPU].
#include <algorithm>

#include "arete/backend/cuda/codegen/emit.h"
#include "arete/backend/cuda/codegen/fused_writer.h"
#include "arete/base/error.h"

namespace arete::cuda {
namespace {

using prim::FusedStage;
using Kind = FusedStage::Kind;
using Mapping = FusedVariant::Mapping;

std::string number(int64_t v) { return std::to_string(v); }
bool has(uint32_t bits, int i) { return bits >> i & 1; }
// A value before its rounding: in registers and in memory.
std::string compute_text(DType t) { return compute_name(expr::compute_type(t)); }
std::string memory_text(DType t) { return storage_name(expr::storage_type(expr::compute_type(t))); }

}  // namespace

// Where operands have chunk `c`: variables at<operand>.
void FusedWriter::inner_offsets(const std::vector<int>& operands, int depth) {
  if (operands.empty()) return;
  const int rank = v_.inner_rank;
  if (rank > 1) line(depth, "Count rest = Count(c);");
  for (int d = 0; d < rank && rank > 1; ++d) {
    const std::string size = "Count(a.sizes[" + number(d) + "])";
    line(depth,
         "const Index i" + number(d) + " = Index(rest" + (d + 1 < rank ? " % " + size : "") + ");");
    if (d + 1 < rank) line(depth, "rest /= " + size + ";");
  }
  for (int k : operands) {
    const int64_t chunk = chunk_step(k);
    if (chunk > 0 && rank == 1 && v_.resident && v_.exact) {
      // A pointer of the thread and constants: else each chunk's address is computed anew.
      line(depth, "const i64 at" + number(k) + " = i64(t) * " + number(chunk) + ";");
      line(depth, "const int from" + number(k) + " = k * (kThreads * " + number(chunk) + ");");
      continue;
    }
    const std::string step = chunk > 0 ? number(chunk) : "Index(" + stride(k, 0) + ")";
    std::string sum = (rank == 1 ? "c * " : "i0 * ") + step;
    for (int d = 1; d < rank; ++d) sum += " + i" + number(d) + " * Index(" + stride(k, d) + ")";
    if (v_.shifted) sum += " - shift * " + number(element_bytes(k));
    line(depth, "const Index at" + number(k) + " = " + sum + ";");
    line(depth, "constexpr int from" + number(k) + " = 0;");
  }
}

// Tensor inputs that a stage reads element by element.
std::vector<int> FusedWriter::element_inputs(const FusedStage& stage) const {
  std::vector<int> r;
  for (int i : stage.inputs)
    if (i >= 0 && !has(v_.uniform, i) && !inputs_[size_t(i)].is_table &&
        std::ranges::find(r, i) == r.end())
      r.push_back(i);
  return r;
}

// ---- walking a row

// What is done with one chunk. `sources`: for each of the stage's element inputs, the text of its
// Elements.
void FusedWriter::compute(const FusedStage& stage, int depth,
                          const std::vector<std::string>& sources, const Body& body) {
  const std::vector<int> inputs = element_inputs(stage);
  line(depth, "#pragma unroll");
  line(depth, "for (int j = 0; j < kVector; ++j) {");
  std::vector<std::string> expressions;
  for (int i : stage.inputs) {
    if (i < 0) {
      expressions.push_back(row_name(~i) + of_row());
    } else if (inputs_[size_t(i)].is_table) {
      expressions.push_back(table(i));
    } else if (has(v_.uniform, i)) {
      expressions.push_back(uniform(i) + of_row());
    } else {
      const size_t k = size_t(std::ranges::find(inputs, i) - inputs.begin());
      expressions.push_back("element_of(" + sources[k] + ", " + (has(v_.single, i) ? "0" : "j") +
                            ")");
    }
  }
  const bool for_sums = stage.kind != Kind::store;
  body.inside(values(*stage.program, expressions, depth + 1, for_sums), depth + 1);
  line(depth, "}");
  if (body.after) body.after(depth);
}

void FusedWriter::walk(const FusedStage& stage, int depth, const Body& body) {
  v_.resident ? walk_resident(stage, depth, body) : walk_streamed(stage, depth, body);
}

namespace {
// Chunk `c` to load: always one of the row, so that loads need no condition.
const char* resident_chunk(bool exact) {
  return exact ? "const Index c = t + k * kThreads;"
               : "const Index c = t + k * kThreads < end ? t + k * kThreads : end - 1;";
}
}  // namespace

void FusedWriter::load_resident(int depth, const std::string& prefix) {
  std::vector<int> operands;
  for (int i = 0; i < spec_.n_inputs; ++i)
    if (has(v_.cached, i)) operands.push_back(operand_of_input(i));
  if (operands.empty()) return;
  line(depth, "#pragma unroll");
  line(depth, "for (int k = 0; k < kCount; ++k) {");
  if (!v_.exact && !v_.shifted) line(depth + 1, "const Index end = Index(a.chunks);");
  line(depth + 1, resident_chunk(v_.exact));
  inner_offsets(operands, depth + 1);
  for (int k : operands)
    line(depth + 1, prefix + "x" + number(k - spec_.n_outputs) +
                        "[k] = " + load_chunk(k - spec_.n_outputs) + ";");
  line(depth, "}");
}

void FusedWriter::walk_resident(const FusedStage& stage, int depth, const Body& body) {
  const std::vector<int> inputs = element_inputs(stage);
  line(depth, "#pragma unroll");
  line(depth, "for (int k = 0; k < kCount; ++k) {");
  line(depth + 1, resident_chunk(v_.exact));
  std::vector<int> operands = body.stored;
  std::vector<std::string> sources;
  for (int i : inputs) {
    const bool own = is_register_cached(i);
    if (!own) operands.push_back(operand_of_input(i));
    sources.push_back(own ? "x" + number(i) + "[k]" : "y" + number(i));
  }
  inner_offsets(operands, depth + 1);
  for (int i : inputs)
    if (!is_register_cached(i))
      line(depth + 1, "const " + elements_type(i) + " y" + number(i) + " = " + load_chunk(i) + ";");
  const bool guarded = !v_.exact && !v_.shifted;
  if (guarded) line(depth + 1, "if (t + k * kThreads < end) {");
  compute(stage, depth + (guarded ? 2 : 1), sources, body);
  if (guarded) line(depth + 1, "}");
  line(depth, "}");
}

// Groups of `count` chunks that are on their way to shared memory: 128 bytes for each thread.
int FusedWriter::pipeline_depth(const FusedStage& stage) const {
  int bytes = 0;
  for (int i : element_inputs(stage))
    if (is_copied_async(i)) bytes += v_.count * chunk_bytes(i);
  return bytes == 0 ? 0 : std::clamp(128 / bytes, 2, 8);
}

// Starts the copies of the group of chunks from `ahead` on.
void FusedWriter::fetch(const FusedStage& stage, int depth) {
  line(depth, "#pragma unroll");
  line(depth, "for (int k = 0; k < kCount; ++k) {");
  line(depth + 1, "const Index c = ahead + k * kThreads;");
  line(depth + 1, std::string("if (c < ") + (v_.partial ? "held" : "end") + ") {");
  std::vector<int> operands;
  for (int i : element_inputs(stage))
    if (is_copied_async(i)) operands.push_back(operand_of_input(i));
  inner_offsets(operands, depth + 2);
  for (int k : operands) {
    const int i = k - spec_.n_outputs;
    line(depth + 2, "copy_async<" + storage(i) + ", " + number(width(i)) + ">(" + slot(i) + ", " +
                        at(k) + ");");
  }
  line(depth + 1, "}");
  line(depth, "}");
  line(depth, "copy_commit();");
  line(depth, "ahead += kCount * kThreads;");
}

void FusedWriter::walk_streamed(const FusedStage& stage, int depth, const Body& body) {
  const std::vector<int> inputs = element_inputs(stage);
  const bool shared = std::ranges::any_of(inputs, [&](int i) { return is_shared_cached(i); });
  const int pipeline = pipeline_depth(stage);
  if (pipeline > 0) {
    line(depth, "Index ahead = t;");
    line(depth, "#pragma unroll");
    line(depth, "for (int group = 0; group < " + number(pipeline) + "; ++group) {");
    fetch(stage, depth + 1);
    line(depth, "}");
  }
  const bool two_parts = shared && v_.partial;
  stream(stage, "begin", two_parts ? "held" : "end", shared, depth, body);
  for (int i : inputs) inputs_[size_t(i)].in_shared = true;
  if (two_parts) stream(stage, "held", "end", false, depth, body);
}

// The chunks in [first, last); `shared`: those of cached inputs are there or get there.
void FusedWriter::stream(const FusedStage& stage, const std::string& first, const std::string& last,
                         bool shared, int depth, const Body& body) {
  const std::vector<int> inputs = element_inputs(stage);
  const int pipeline = shared ? pipeline_depth(stage) : 0;
  const bool spans = bool(body.before_span);
  const bool backwards = v_.phase % 2 == 1;
  const std::string flip = backwards ? first + " + " + last + " - 1 - " : "";
  line(depth, "{");
  if (spans) {
    line(depth + 1, "constexpr Index kSpan = 64 * kCount * kThreads;");
    line(depth + 1, "#pragma unroll 1");
    line(depth + 1, "for (Index start = " + first + "; start < " + last + "; start += kSpan) {");
    line(depth + 2,
         "const Index stop = " + last + " - start < kSpan ? " + last + " : start + kSpan;");
    body.before_span(depth + 2);
  } else {
    line(depth + 1, "{");
    line(depth + 2, "const Index start = " + first + ", stop = " + last + ";");
  }
  int d = depth + 2;
  line(d, "#pragma unroll 1");
  line(d, "for (Index position = start + t; position < stop; position += kCount * kThreads) {");
  ++d;
  // From memory: all chunks before the first use.
  const auto direct = [&](int i) {
    return !(shared && is_shared_cached(i)) || (is_fresh(i) && !is_copied_async(i));
  };
  std::vector<int> operands;
  for (int i : inputs)
    if (direct(i)) {
      operands.push_back(operand_of_input(i));
      line(d, elements_type(i) + " x" + number(i) + "[kCount];");
    }
  if (!operands.empty()) {
    line(d, "#pragma unroll");
    line(d, "for (int k = 0; k < kCount; ++k) {");
    line(d + 1, "const Index next = position + k * kThreads;");
    line(d + 1,
         "const Index c = " + flip + (v_.exact ? "next;" : "(next < stop ? next : stop - 1);"));
    inner_offsets(operands, d + 1);
    for (int i : inputs)
      if (direct(i)) line(d + 1, "x" + number(i) + "[k] = " + load_chunk(i) + ";");
    line(d, "}");
  }
  if (pipeline > 0) line(d, "copy_wait<" + number(pipeline - 1) + ">();");
  line(d, "#pragma unroll");
  line(d, "for (int k = 0; k < kCount; ++k) {");
  line(d + 1, "const Index place = position + k * kThreads;");
  line(d + 1, v_.exact ? "{" : "if (place < stop) {");
  line(d + 2, "const Index c = " + flip + "place;");
  std::vector<std::string> sources;
  for (int i : inputs) {
    sources.push_back("x" + number(i) + (direct(i) ? "[k]" : ""));
    if (!direct(i))
      line(d + 2, "const " + elements_type(i) + " x" + number(i) + " = load_elements<" +
                      storage(i) + ", " + number(width(i)) + ", true>(" + slot(i) + ");");
    else if (shared && is_fresh(i))
      line(d + 2, "store_elements(" + slot(i) + ", x" + number(i) + "[k]);");
  }
  inner_offsets(body.stored, d + 2);
  compute(stage, d + 2, sources, body);
  line(d + 1, "}");
  line(d, "}");
  if (pipeline > 0) fetch(stage, d);
  --d;
  line(d, "}");
  if (spans) body.after_span(d);
  line(depth + 1, "}");
  line(depth, "}");
}

// ---- reduce

std::vector<std::string> FusedWriter::monoids(const FusedStage& stage) const {
  std::vector<std::string> r;
  for (const auto& o : stage.program->outputs())
    r.push_back(monoid_name(stage.monoid, expr::compute_type(o.dtype)));
  return r;
}

void FusedWriter::reduce(size_t s) {
  const FusedStage& stage = spec_.stages[s];
  const auto outputs = stage.program->outputs();
  const std::vector<std::string> m = monoids(stage);
  const auto acc = [](size_t k) { return "acc" + number(int64_t(k)); };
  const auto clear = [&](int depth) {
    for (size_t k = 0; k < outputs.size(); ++k) {
      line(depth, compute_text(outputs[k].dtype) + " " + acc(k) + "[kVector];");
      line(depth, "#pragma unroll");
      line(depth,
           "for (int j = 0; j < kVector; ++j) " + acc(k) + "[j] = " + m[k] + "::identity();");
    }
  };
  Body body;
  body.inside = [&](const std::vector<std::string>& r, int depth) {
    for (size_t k = 0; k < outputs.size(); ++k) {
      const std::string combined = m[k] + "::combine(" + acc(k) + "[j], " + r[k] + ")";
      // Not a branch: stages that compute alike would not find it.
      line(depth, acc(k) + "[j] = " +
                      (v_.shifted ? "chosen(" + inside() + " >> j & 1, " + combined + ", " +
                                        acc(k) + "[j])"
                                  : combined) +
                      ";");
    }
  };
  const bool ends_phase = v_.phase >= 0;
  if (!ends_phase) declare_rows(s);
  line(2, "{");
  ARETE_ASSERT(!v_.resident || !v_.bundles);
  if (v_.resident) {
    clear(3);
    walk(stage, 3, body);
    for (size_t k = 0; k < outputs.size(); ++k)
      line(3, compute_text(outputs[k].dtype) + " " + total(k) + " = fold<" + m[k] + ", kVector>(" +
                  acc(k) + ");");
  } else {
    // Sums of sums: the error of long rows stays small.
    declare_totals(stage, [](size_t) { return true; });
    body.before_span = clear;
    body.after_span = [&](int depth) {
      open_rows(depth);
      for (size_t k = 0; k < outputs.size(); ++k)
        line(depth,
             total(k) + of_row() + " = " + m[k] + "::combine(" + total(k) + of_row() + ", " +
                 (v_.bundles ? acc(k) + "[j]" : "fold<" + m[k] + ", kVector>(" + acc(k) + ")") +
                 ");");
      close_rows(depth);
    };
    walk(stage, 3, body);
  }
  across_threads(s, true);
  open_rows(3);
  for (size_t k = 0; k < outputs.size(); ++k) {
    const std::string type = memory_text(outputs[k].dtype);
    if (ends_phase)
      line(3, "if (live && t == 0) *reinterpret_cast<" + type + "*>(" +
                  cell(result_number(s) + int(k), "i64(blockIdx.y)") + ") = from_compute<" + type +
                  ">(" + total(k) + of_row() + ");");
    else
      line(3, row_name(first_row_[s] + int(k)) + of_row() + " = " +
                  rounded(total(k) + of_row(), outputs[k].dtype) + ";");
  }
  close_rows(3);
  line(2, "}");
}

// total<k> with the identity, for the results that are `wanted`.
void FusedWriter::declare_totals(const FusedStage& stage,
                                 const std::function<bool(size_t)>& wanted) {
  const auto outputs = stage.program->outputs();
  const std::vector<std::string> m = monoids(stage);
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (!wanted(k)) continue;
    const std::string type = compute_text(outputs[k].dtype);
    if (!v_.bundles) {
      line(3, type + " " + total(k) + " = " + m[k] + "::identity();");
      continue;
    }
    line(3, type + " " + total(k) + "[kVector];");
    open_rows(3);
    line(3, total(k) + "[j] = " + m[k] + "::identity();");
    close_rows(3);
  }
}

// Brings total<k> of each thread to that of the row, for all results or those this launch needs.
void FusedWriter::across_threads(size_t s, bool all) {
  if (v_.threads == 1) return;
  const FusedStage& stage = spec_.stages[s];
  const auto outputs = stage.program->outputs();
  const std::vector<std::string> m = monoids(stage);
  const auto wanted = [&](size_t k) { return all || needed_[size_t(first_row_[s]) + k]; };
  const auto shared = [&](size_t k) {
    return "shared" + number(first_row_[s] + int(k)) +
           (v_.rows > 1 ? " + r * (kThreads / 32)" : "");
  };
  const bool block = v_.mapping == Mapping::rows && v_.threads > 32;
  if (block) {
    uses_shared_ = true;
    for (size_t k = 0; k < outputs.size(); ++k)
      if (wanted(k))
        line(3, "leave_partial<" + m[k] + ">(" + total(k) + ", " + shared(k) + ", t);");
    line(3, "__syncthreads();");
  }
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (!wanted(k)) continue;
    if (block)
      line(3,
           total(k) + " = total_of_partials<" + m[k] + ", kThreads / 32>(" + shared(k) + ", t);");
    else if (v_.mapping == Mapping::columns) {
      open_rows(3);
      line(3, total(k) + of_row() + " = column_reduce<" + m[k] + ", kRows, kThreads>(" + total(k) +
                  of_row() + ", reinterpret_cast<" + compute_text(outputs[k].dtype) +
                  "*>(column_shared), r, t);");
      close_rows(3);
    } else
      line(3, total(k) + " = warp_reduce<" + m[k] + ", kThreads>(" + total(k) + ");");
  }
}

// The number of a reduce stage's first result among those of all.
int FusedWriter::result_number(size_t stage) const {
  int n = 0;
  for (size_t s = 0; s < stage; ++s)
    if (spec_.stages[s].kind == Kind::reduce) n += int(spec_.stages[s].program->outputs().size());
  return n;
}
std::string FusedWriter::cell(int result, const std::string& split) const {
  const std::string cells = "(" + number(result) + " * a.splits + " + split + ") * a.rows + row";
  return "a.partials + (" + (v_.bundles ? "(" + cells + ") * kVector + j" : cells) + ") * 8";
}

// A reduction of an earlier launch.
void FusedWriter::combine_partials(size_t s) {
  const FusedStage& stage = spec_.stages[s];
  const auto outputs = stage.program->outputs();
  const std::vector<std::string> m = monoids(stage);
  const auto wanted = [&](size_t k) { return bool(needed_[size_t(first_row_[s]) + k]); };
  bool any = false;
  for (size_t k = 0; k < outputs.size(); ++k) any |= wanted(k);
  if (!any) return;
  declare_rows(s);
  line(2, "{");
  declare_totals(stage, wanted);
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (!wanted(k)) continue;
    open_rows(3);
    line(3, total(k) + of_row() + " = combine_loads<" + m[k] + ", 8>(" + total(k) + of_row() +
                ", t, a.splits, kThreads, [&](i64 split) {");
    line(4, "return to_compute(*reinterpret_cast<const " + memory_text(outputs[k].dtype) + "*>(" +
                cell(result_number(s) + int(k), "split") + "));");
    line(3, "});");
    close_rows(3);
  }
  across_threads(s, false);
  open_rows(3);
  for (size_t k = 0; k < outputs.size(); ++k)
    if (wanted(k))
      line(3, row_name(first_row_[s] + int(k)) + of_row() + " = " +
                  rounded(total(k) + of_row(), outputs[k].dtype) + ";");
  close_rows(3);
  line(2, "}");
}

// ---- store

void FusedWriter::store(size_t s) {
  const FusedStage& stage = spec_.stages[s];
  const auto outputs = stage.program->outputs();
  const auto z = [](size_t k) { return "z" + number(int64_t(k)); };
  Body body;
  for (size_t k = 0; k < outputs.size(); ++k) body.stored.push_back(stage.first_output + int(k));
  body.inside = [&](const std::vector<std::string>& r, int depth) {
    for (size_t k = 0; k < outputs.size(); ++k)
      line(depth,
           z(k) + ".v[j] = from_compute<" + storage_name(outputs[k].dtype) + ">(" + r[k] + ");");
  };
  body.after = [&](int depth) {
    for (size_t k = 0; k < outputs.size(); ++k)
      line(depth, "if (live) " +
                      (v_.shifted ? "store_within(" + at(body.stored[k]) + ", " + z(k) + ", " +
                                        inside() + ");"
                                  : "store_elements(" + at(body.stored[k]) + ", " + z(k) + ");"));
  };
  line(2, "{");
  for (size_t k = 0; k < outputs.size(); ++k)
    line(3, std::string("Elements<") + storage_name(outputs[k].dtype) + ", kVector> " + z(k) + ";");
  walk(stage, 3, body);
  line(2, "}");
}

// ---- reduce_columns

namespace {
std::string column(int result) { return "column" + number(result); }
}  // namespace

// The number of a reduce_columns stage's first result among those of all.
int FusedWriter::column_number(size_t stage) const {
  int n = 0;
  for (size_t s = 0; s < stage; ++s)
    if (spec_.stages[s].kind == Kind::reduce_columns)
      n += int(spec_.stages[s].program->outputs().size());
  return n;
}

// What a thread's chunks have come to so far: column<result>[chunk][element].
void FusedWriter::declare_columns() {
  const std::vector<FusedColumn> columns = columns_of(spec_);
  if (v_.rows > 1) line(1, "__shared__ u64 columns_shared[kThreads * kRows];");
  for (size_t n = 0; n < columns.size(); ++n) {
    line(1,
         std::string(compute_name(columns[n].type)) + " " + column(int(n)) + "[kCount][kVector];");
    line(1, "#pragma unroll");
    line(1, "for (int k = 0; k < kCount; ++k) {");
    line(2, "#pragma unroll");
    line(2, "for (int j = 0; j < kVector; ++j) " + column(int(n)) +
                "[k][j] = " + monoid_name(columns[n].monoid, columns[n].type) + "::identity();");
    line(1, "}");
  }
}

void FusedWriter::reduce_columns(size_t s) {
  const FusedStage& stage = spec_.stages[s];
  const std::vector<std::string> m = monoids(stage);
  const int first = column_number(s);
  Body body;
  body.inside = [&](const std::vector<std::string>& r, int depth) {
    for (size_t k = 0; k < r.size(); ++k) {
      const std::string own = column(first + int(k)) + "[k][j]";
      line(depth, own + " = " + m[k] + "::combine(" + own + ", " + r[k] + ");");
    }
  };
  line(2, v_.rows > 1 ? "if (live) {" : "{");
  walk(stage, 3, body);
  line(2, "}");
}

// After the last row: the block's results.
void FusedWriter::leave_columns() {
  const std::vector<FusedColumn> columns = columns_of(spec_);
  for (size_t n = 0; n < columns.size(); ++n) {
    const std::string type = compute_name(columns[n].type);
    line(1, "#pragma unroll");
    line(1, "for (int k = 0; k < kCount; ++k) {");
    line(2, "const i64 c = t + k * kThreads;");
    line(2, "Elements<" + type + ", kVector> e;");
    line(2, "#pragma unroll");
    line(2, "for (int j = 0; j < kVector; ++j)");
    std::string value = column(int(n)) + "[k][j]";
    if (v_.rows > 1)
      value = "column_reduce<" + monoid_name(columns[n].monoid, columns[n].type) +
              ", kThreads, kRows>(" + value + ", reinterpret_cast<" + type +
              "*>(columns_shared), t, r)";
    line(3, "e.v[j] = " + value + ";");
    line(2, "const i64 before = i64(" + number(int64_t(n)) +
                ") * gridDim.x * (a.chunks * kVector) * " + number(int64_t(column_bytes(columns))) +
                ";");
    line(2, "const i64 at = i64(blockIdx.x) * (a.chunks * kVector) + c * kVector;");
    line(2, "if (r == 0 && c < a.chunks)");
    line(3, "store_elements(a.partials + before + at * i64(sizeof(" + type + ")), e);");
    line(1, "}");
  }
}

}  // namespace arete::cuda
