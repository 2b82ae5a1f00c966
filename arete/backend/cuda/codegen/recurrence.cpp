#include "arete/backend/cuda/codegen/recurrence.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "arete/backend/cuda/codegen/emit.h"
#include "arete/expr/value.h"
#include "arete/prim/recurrence.h"

namespace arete::cuda {

using prim::RecurrenceArgs;
using prim::View;

namespace {

class RecurrenceWriter {
 public:
  RecurrenceWriter(const expr::Program& program, const RecurrencePlan& plan)
      : program_(program),
        plan_(plan),
        state_(storage_name(program.outputs()[0].dtype)),
        out_(storage_name(program.outputs().back().dtype)),
        emits_(program.outputs().size() == 2) {}

  KernelSource source() {
    const std::string n = std::to_string(std::max<size_t>(1, inputs())),
                      p = std::to_string(std::max<size_t>(1, program_.params().size()));
    text_ =
        "#include \"pointwise.cuh\"\n"
        "struct Args {\n"
        "  i64 steps, rows, states;\n"
        "  const char* initial;\n"
        "  i64 initial_row, initial_state;\n"
        "  const i64* lengths;\n"
        "  i64 length_row;\n"
        "  char* out;\n"
        "  i64 out_step, out_row, out_state;\n"
        "  const char* data[" +
        n +
        "];\n"
        "  i64 stride[" +
        n +
        "][3];\n"
        "  ParamSlot params[" +
        p +
        "];\n"
        "};\n"
        "extern \"C\" __global__ void __launch_bounds__(" +
        std::string(plan_.wide ? "1024" : "256") +
        ") recurrence(const __grid_constant__ Args a) {\n"
        "  extern __shared__ __align__(16) char memory[];\n"
        "  const i32 states = i32(a.states);\n"
        "  " +
        state_ + "* now = reinterpret_cast<" + state_ +
        "*>(memory) + threadIdx.y * 2 * states;\n"
        "  " +
        state_ +
        "* next = now + states;\n"
        "  const i64 number = i64(blockIdx.x) * blockDim.y + threadIdx.y;\n"
        "  const bool is_row = number < a.rows;\n"
        // Threads without a row of their own go through the last one, and store nothing.
        "  const i64 row = min(number, a.rows - 1);\n";
    lengths();
    for (size_t k = 0; k < inputs(); ++k)
      text_ += "  const char* const d" + std::to_string(k) + " = a.data[" + std::to_string(k) +
               "]" + (is_table(k) ? "" : " + row * a.stride[" + std::to_string(k) + "][1]") + ";\n";
    text_ += "  char* const out = a.out + row * a.out_row;\n";
    each_state("    now[place] = " +
               (plan_.initial ? "*reinterpret_cast<const " + state_ +
                                    "*>(a.initial + row * a.initial_row + place * a.initial_state)"
                              : zero(state_)) +
               ";\n");
    barrier("  ");
    if (plan_.reverse) beyond();
    plan_.single ? single() : several();
    if (!plan_.reverse) beyond();
    if (!plan_.every)
      each_state("    if (is_row) " + element(out_, "out + place * a.out_state", false) +
                 " = now[place];\n");
    text_ += "}\n";
    return {"recurrence", std::move(text_)};
  }

 private:
  size_t inputs() const { return program_.inputs().size() - 4; }
  bool is_table(size_t k) const { return program_.is_table(4 + k); }
  bool is_fixed(size_t k) const { return k < 32 && plan_.fixed >> k & 1; }
  static std::string zero(const std::string& type) {
    return "from_compute<" + type + ">(compute_of<" + type + ">(0))";
  }
  static std::string element(const std::string& type, const std::string& address,
                             bool constant = true) {
    return "*reinterpret_cast<" + std::string(constant ? "const " : "") + type + "*>(" + address +
           ")";
  }
  std::string input_type(size_t k) const { return storage_name(program_.inputs()[4 + k]); }
  std::string table(size_t k) const {
    return "reinterpret_cast<const " + input_type(k) + "*>(d" + std::to_string(k) + ")";
  }
  void barrier(const std::string& indent) {
    text_ += indent + (plan_.warp ? "__syncwarp();\n" : "__syncthreads();\n");
  }
  void each_state(const std::string& statement) {
    text_ += "  for (i32 place = threadIdx.x; place < states; place += blockDim.x) {\n" +
             statement + "  }\n";
  }
  // `steps`: those of the longest of the rows that wait for each other.
  void lengths() {
    if (!plan_.lengths) {
      text_ += "  const i64 steps = a.steps;\n";
      return;
    }
    text_ +=
        "  const i64 length = a.lengths[row * a.length_row];\n"
        "  i64 steps = max(i64(0), min(length, a.steps));\n";
    if (plan_.warp)
      text_ +=
          "  for (u32 lane = blockDim.x; lane < 32; lane *= 2)\n"
          "    steps = max(steps, i64(__shfl_xor_sync(0xffffffffu, steps, lane)));\n";
  }
  // What is at later steps waits for nothing.
  void beyond() {
    if (!plan_.lengths || !plan_.every) return;
    each_state("    const " + out_ + " stays = " + (emits_ ? zero(out_) : "now[place]") +
               ";\n    for (i64 step = steps; is_row && step < a.steps; ++step)\n      " +
               at_step(out_) + " = stays;\n");
  }
  static std::string at_step(const std::string& type) {
    return element(type, "out + step * a.out_step + place * a.out_state", false);
  }
  // Input k at a step and place.
  std::string read(size_t k, const std::string& step) const {
    const std::string n = std::to_string(k);
    return element(input_type(k),
                   "d" + n + (is_fixed(k) ? "" : " + " + step + " * a.stride[" + n + "][0]") +
                       " + place * a.stride[" + n + "][2]");
  }
  void begin_step() {
    text_ += "  for (i64 k = 0; k < steps; ++k) {\n    const i64 step = " +
             std::string(plan_.reverse ? "steps - 1 - k" : "k") + ";\n";
  }
  void end_step() {
    barrier("    ");
    text_ += "    " + state_ + "* const before = now;\n    now = next;\n    next = before;\n  }\n";
  }
  // The results of the program, or what a row has at steps beyond its length.
  void results(const std::vector<std::string>& values, const std::string& indent) {
    text_ += indent + state_ + " value = " + values[0] + ";\n";
    if (emits_) text_ += indent + out_ + " shown = " + values[1] + ";\n";
    if (plan_.lengths)
      text_ += indent + "if (step >= length) {\n" + indent + "  value = now[place];\n" +
               (emits_ ? indent + "  shown = " + zero(out_) + ";\n" : "") + indent + "}\n";
  }
  void store(const std::string& condition, const std::string& indent) {
    if (plan_.every)
      text_ += indent + "if (" + condition + ") " + at_step(out_) + " = " +
               (emits_ ? "shown" : "value") + ";\n";
  }

  void several() {
    begin_step();
    text_ += "    for (i32 place = threadIdx.x; place < states; place += blockDim.x) {\n";
    std::vector<std::string> in{"now", "i64(place)", "step", "row"};
    for (size_t k = 0; k < inputs(); ++k)
      in.push_back(is_table(k) ? table(k) : "to_compute(" + read(k, "step") + ")");
    results(
        emit_program(text_, program_, in, param_expressions(program_, "a.params"), "v", "      "),
        "      ");
    text_ += "      next[place] = value;\n";
    store("is_row", "      ");
    text_ += "    }\n";
    end_step();
  }

  void single() {
    const prim::SplitProgram parts = prim::split_by_state(program_);
    const std::vector<std::string> params = param_expressions(program_, "a.params");
    text_ +=
        "  const i32 place = min(i32(threadIdx.x), states - 1);\n"
        "  const bool is_state = threadIdx.x < states;\n";
    for (size_t k = 0; k < inputs(); ++k)
      if (!is_table(k) && is_fixed(k))
        text_ +=
            "  const " + input_type(k) + " c" + std::to_string(k) + " = " + read(k, "") + ";\n";

    const auto known = parts.ahead->outputs();
    text_ += "  struct Ahead {\n";
    for (size_t k = 0; k < known.size(); ++k)
      text_ +=
          std::string("    ") + storage_name(known[k].dtype) + " x" + std::to_string(k) + ";\n";
    text_ += "  };\n  const auto look_ahead = [&](i64 step) {\n    Ahead known;\n";
    std::vector<std::string> in{"now", "i64(place)", "step", "row"};
    for (size_t k = 0; k < inputs(); ++k)
      in.push_back(is_table(k)
                       ? table(k)
                       : "to_compute(" + (is_fixed(k) ? "c" + std::to_string(k) : read(k, "step")) +
                             ")");
    const std::vector<std::string> ahead =
        emit_program(text_, *parts.ahead, in, params, "v", "    ");
    for (size_t k = 0; k < ahead.size(); ++k)
      text_ += "    known.x" + std::to_string(k) + " = " + ahead[k] + ";\n";
    text_ += "    return known;\n  };\n  if (steps > 0) {\n  Ahead known = look_ahead(" +
             std::string(plan_.reverse ? "steps - 1" : "0") + ");\n";

    begin_step();
    text_ += "    const Ahead coming = look_ahead(" +
             std::string(plan_.reverse ? "max(step - 1, i64(0))" : "min(step + 1, steps - 1)") +
             ");\n";
    std::vector<std::string> rest{"now", "i64(place)", "step", "row"};
    for (size_t k = 0; k < inputs(); ++k)
      if (is_table(k)) rest.push_back(table(k));
    for (size_t k = 0; k < known.size(); ++k)
      rest.push_back("to_compute(known.x" + std::to_string(k) + ")");
    results(emit_program(text_, *parts.rest, rest, params, "w", "    "), "    ");
    text_ += "    if (is_state) next[place] = value;\n";
    store("is_row && is_state", "    ");
    text_ += "    known = coming;\n";
    end_step();
    text_ += "  }\n";
  }

  const expr::Program& program_;
  const RecurrencePlan& plan_;
  const std::string state_, out_;
  const bool emits_;
  std::string text_;
};

}  // namespace

RecurrencePlan plan_recurrence(const RecurrenceArgs& args, int multiprocessors) {
  RecurrencePlan plan;
  plan.warp = args.states <= 32;
  plan.single = args.states <= 1024;
  if (plan.warp) {
    plan.width = std::bit_ceil(unsigned(args.states));
    // Whole warps; as many of them to a block as leaves a block for each multiprocessor.
    const int64_t most = 256 / plan.width, least = 32 / plan.width;
    plan.rows = unsigned(
        std::clamp((args.rows / multiprocessors + least - 1) / least * least, least, most));
  } else {
    plan.width = unsigned(std::min<int64_t>(1024, (args.states + 31) / 32 * 32));
  }
  plan.wide = plan.width * plan.rows > 256;
  plan.shared = size_t(plan.rows) * 2 * size_t(args.states) * size_of(args.program->inputs()[0]);
  plan.grid = unsigned((args.rows + plan.rows - 1) / plan.rows);
  plan.initial = bool(args.initial);
  plan.lengths = bool(args.lengths);
  plan.every = args.out.sizes[0] == args.steps;
  plan.reverse = args.reverse;
  for (size_t k = 0; k < args.inputs.size() && k < 32; ++k)
    if (!args.program->is_table(4 + k) && prim::strides_of(args, args.inputs[k])[0] == 0)
      plan.fixed |= uint32_t(1) << k;
  return plan;
}

KernelSource recurrence_source(const expr::Program& program, const RecurrencePlan& plan) {
  return RecurrenceWriter(program, plan).source();
}

std::vector<std::byte> recurrence_arguments(const RecurrenceArgs& args) {
  const size_t n = std::max<size_t>(1, args.inputs.size()),
               p = std::max<size_t>(1, args.params.size());
  std::vector<int64_t> words;
  words.reserve(12 + 4 * n + p);
  const auto address = [](const std::byte* at) { return int64_t(reinterpret_cast<intptr_t>(at)); };
  words.insert(words.end(), {args.steps, args.rows, args.states});
  const auto initial = prim::strides_of(args, args.initial), out = prim::strides_of(args, args.out);
  words.insert(words.end(), {address(args.initial.data), initial[1], initial[2]});
  const bool has_stride = args.lengths && args.lengths.sizes[0] != 1;
  words.insert(words.end(), {address(args.lengths.data), has_stride ? args.lengths.strides[0] : 0});
  words.insert(words.end(), {address(args.out.data), out[0], out[1], out[2]});
  for (const View& v : args.inputs) words.push_back(address(v.data));
  words.resize(12 + n);
  for (size_t k = 0; k < args.inputs.size(); ++k) {
    const auto s = args.program->is_table(4 + k) ? std::array<int64_t, 3>{}
                                                 : prim::strides_of(args, args.inputs[k]);
    words.insert(words.end(), s.begin(), s.end());
  }
  words.resize(12 + 4 * n);
  for (const expr::Literal& l : args.params) words.push_back(l.i);
  words.resize(12 + 4 * n + p);
  std::vector<std::byte> bytes(words.size() * sizeof(int64_t));
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}

std::vector<KernelSource> recurrence_samples() {
  std::vector<KernelSource> all;
  for (const DType dtype : {kFloat32, kBFloat16, kInt64})
    for (const bool shows : {false, true}) {
      const DType in[] = {dtype, kInt64, kInt64, kInt64, dtype, kFloat32, kInt32};
      std::vector<DType> out{dtype};
      if (shows) out.push_back(kBool);
      const expr::Type param[] = {expr::Type::f64};
      const expr::ProgramPtr program = expr::trace(
          [shows](std::span<const expr::Value> v) {
            const expr::Value before = expr::load(v[0], expr::max(v[1] + -1.0, 0.0)),
                              seen = expr::load(v[5], v[2] + v[6]) * v[7],
                              at_state = expr::load(v[5], expr::cast(before, expr::Type::i64));
            // A condition that is known ahead, and one that is not.
            const expr::Value sum =
                expr::where(v[2] == 0.0, seen, before * v[4] + seen + at_state + v[3]);
            std::vector<expr::Value> results{expr::where((v[1] >= 2.0) & (before > 0.0), sum,
                                                         expr::constant_like(sum, double(NAN)))};
            if (shows) results.push_back(before > v[4]);
            return results;
          },
          in, param, out, 0b100001);
      for (const int flags : {0, 3, 5, 14, 31, 18, 63}) {
        RecurrencePlan plan;
        plan.single = flags & 1;
        plan.warp = flags & 2;
        plan.initial = flags & 4;
        plan.lengths = flags & 8;
        plan.reverse = flags & 16;
        plan.wide = flags & 32;
        plan.every = shows || !(flags & 4);
        plan.fixed = flags & 2 ? 0b100 : 0;
        all.push_back(recurrence_source(*program, plan));
      }
    }
  return all;
}

}  // namespace arete::cuda
