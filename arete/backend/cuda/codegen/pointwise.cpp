#include "arete/backend/cuda/codegen/pointwise.h"

#include <algorithm>
#include <bit>

#include "arete/backend/cuda/codegen/emit.h"
#include "arete/backend/cuda/codegen/index.h"
#include "arete/base/error.h"

namespace arete::cuda {

using expr::Instruction;
using expr::Op;
using expr::Type;

namespace {

using Kind = PointwiseShape::Kind;

std::string number(int64_t n) { return std::to_string(n); }

// Storage formats without conversion instructions of their own.
int conversion_weight(DType t) { return is_float8(t) ? 16 : 1; }

// Above this an element is a function call: the kernel's size no longer grows with the vectors.
constexpr int kInlineWeight = 250, kHeavyWeight = 128;

// "_add_mul": the last instructions, for profilers.
std::string operations(const expr::Program& program) {
  std::string text;
  int left = 4;
  const auto code = program.code();
  for (size_t i = code.size(); i-- > 0 && left > 0;) {
    if (code[i].op <= Op::constant) continue;
    text.insert(0, std::string("_") + expr::name_of(code[i].op));
    --left;
  }
  return text.empty() ? "_move" : text;
}

// The parameter list of `element`, and the call's arguments by a function of the operand.
template <class Operand>
std::string call_arguments(const ElementCode& code, Operand operand) {
  std::string text;
  const auto add = [&](const std::string& a) { text += (text.empty() ? "" : ", ") + a; };
  for (int k = 0; k < code.n_params; ++k) add("a.params[" + number(k) + "]");
  for (int k = 0; k < code.operands(); ++k) add(operand(k));
  return text;
}

std::string element_signature(const ElementCode& code) {
  std::string text;
  const auto add = [&](const std::string& a) { text += (text.empty() ? "" : ", ") + a; };
  for (int k = 0; k < code.n_params; ++k) add("ParamSlot q" + number(k));
  for (int k = 0; k < code.n_outputs; ++k) add(code.storage[size_t(k)] + "& y" + number(k));
  for (int k = code.n_outputs; k < code.operands(); ++k) {
    const std::string type = code.storage[size_t(k)];
    if (code.is_table(k)) {
      add("const " + type + "* x" + number(k - code.n_outputs));
      continue;
    }
    add((code.computes ? "compute_of<" + type + ">" : type) + " x" + number(k - code.n_outputs));
  }
  return "void element(" + text + ")";
}

const char* raw_type(int bytes) {
  switch (bytes) {
    case 1:
      return "u8";
    case 2:
      return "u16";
    case 4:
      return "u32";
    case 8:
      return "uint2";
    default:
      return "uint4";
  }
}

}  // namespace

int ElementCode::vector() const { return 16 / *std::max_element(bytes.begin(), bytes.end()); }

ElementCode element_code(const expr::Program& program) {
  ElementCode code;
  code.name = "pointwise" + operations(program);
  code.computes = true;
  code.n_outputs = int(program.outputs().size());
  code.n_params = int(program.params().size());
  code.weight = 0;
  const auto add_operand = [&](DType t) {
    code.storage.push_back(storage_name(t));
    code.bytes.push_back(int(size_of(t)));
    code.weight += conversion_weight(t);
  };
  for (const auto& o : program.outputs()) add_operand(o.dtype);
  for (const DType t : program.inputs()) add_operand(t);
  code.tables = program.tables();
  // They take no part in the choice of vectors.
  for (int k = 0; k < code.operands(); ++k)
    if (code.is_table(k)) code.bytes[size_t(k)] = 1;
  for (const Instruction& c : program.code()) {
    code.weight += weight_of(program, c);
    if (c.op == Op::round_to) code.weight += conversion_weight(DType(c.index));
  }

  std::string body;
  std::vector<std::string> inputs, params;
  for (size_t k = 0; k < program.inputs().size(); ++k) inputs.push_back("x" + number(int64_t(k)));
  for (size_t k = 0; k < program.params().size(); ++k) {
    const std::string name = "p" + number(int64_t(k));
    body += std::string("  const ") + compute_name(program.params()[k]) + " " + name + " = " +
            param_expression(program, k, "q" + number(int64_t(k))) + ";\n";
    params.push_back(name);
  }
  const std::vector<std::string> results = emit_program(body, program, inputs, params, "v", "  ");
  for (size_t k = 0; k < results.size(); ++k)
    body += "  y" + number(int64_t(k)) + " = " + results[k] + ";\n";
  code.function =
      std::string(code.weight > kInlineWeight ? "static __device__ __noinline__ " : "DEVICE ") +
      element_signature(code) + " {\n" + body + "}\n";
  code.heavy = code.weight >= kHeavyWeight;
  if (code.weight > kInlineWeight) code.weight = kInlineWeight / 4;
  return code;
}

ElementCode move_code(int bytes) {
  ElementCode code;
  code.name = "move" + number(8 * bytes);
  code.storage.assign(2, raw_type(bytes));
  code.bytes.assign(2, bytes);
  code.n_outputs = 1;
  code.function = "DEVICE " + element_signature(code) + " { y0 = x0; }\n";
  return code;
}

ElementCode fill_code(int bytes) {
  ElementCode code;
  code.name = "fill" + number(8 * bytes);
  code.storage.assign(1, raw_type(bytes));
  code.bytes.assign(1, bytes);
  code.n_outputs = 1;
  code.n_params = bytes == 16 ? 2 : 1;
  std::string value = std::string(raw_type(bytes)) + "(q0.i)";
  if (bytes >= 8) value = "make_uint2(u32(q0.i), u32(u64(q0.i) >> 32))";
  if (bytes == 16)
    value = "make_uint4(u32(q0.i), u32(u64(q0.i) >> 32), u32(q1.i), u32(u64(q1.i) >> 32))";
  code.function = "DEVICE " + element_signature(code) + " { y0 = " + value + "; }\n";
  return code;
}

int unroll_for(const ElementCode& code, const PointwiseShape& shape) {
  // Enough loads in flight to cover the memory's latency, in a kernel of moderate size.
  constexpr int kBytesInFlight = 64, kLargestText = 2500;
  if (code.heavy) return 1;
  int bytes = 0;
  for (int k = code.n_outputs; k < code.operands(); ++k)
    if (!(shape.uniform >> (k - code.n_outputs) & 1)) bytes += code.bytes[size_t(k)] * shape.vector;
  int unroll =
      bytes == 0 ? 2 : int(std::bit_floor(unsigned(std::clamp(kBytesInFlight / bytes, 1, 4))));
  while (unroll > 1 && unroll * shape.vector * code.weight > kLargestText) unroll /= 2;
  return unroll;
}

FastDivisor fast_divisor(uint32_t divisor) {
  // Granlund and Montgomery's method with the smallest power of two above the divisor.
  const uint32_t shift = uint32_t(std::bit_width(divisor - 1));
  const uint64_t magic = (uint64_t(1) << 32) * ((uint64_t(1) << shift) - divisor) / divisor + 1;
  return {uint32_t(magic), shift};
}

int multi_capacity(int operands, int n_params, bool long_table) {
  const int bytes = long_table ? 32764 : 4096, rest = 16;
  return std::max(0, (bytes - rest - 8 * n_params) / (8 * operands + 8 + 4));
}

namespace {

// Writes the text of one kernel.
class Writer {
 public:
  Writer(const ElementCode& code, const PointwiseShape& shape) : code_(code), shape_(shape) {
    name_ = code.name;
    switch (shape.kind) {
      case Kind::linear:
        name_ += "_linear";
        break;
      case Kind::strided:
        name_ += "_strided" + number(shape.rank) + (shape.paired ? "_pairs" : "");
        break;
      case Kind::multi:
        name_ += shape.long_table ? "_many" : "_multi";
        break;
      case Kind::counts:
        name_ += "_counts";
        break;
      case Kind::taps:
        name_ += "_taps";
        break;
      case Kind::tap_lists:
        name_ += "_tap_lists";
        break;
    }
    name_ += "_x" + number(shape.vector);
  }

  KernelSource source() {
    const char* header = "pointwise.cuh";
    std::string bounds = number(kPointwiseThreads);
    if (shape_.kind == Kind::counts) header = "count.cuh", bounds = number(kCountThreads) + ", 2";
    if (has_taps()) header = "taps.cuh";
    if (shape_.kind == Kind::tap_lists) bounds = number(indexing::kTapListThreads);
    text_ = std::string("#include \"") + header + "\"\n" + code_.function + "struct Args {\n";
    members();
    text_ += "};\nextern \"C\" __global__ void __launch_bounds__(" + bounds + ") " + name_ +
             "(const __grid_constant__ Args a) {\n";
    switch (shape_.kind) {
      case Kind::linear:
        linear();
        break;
      case Kind::strided:
        strided();
        break;
      case Kind::multi:
        multi();
        break;
      case Kind::counts:
        count();
        break;
      case Kind::taps:
      case Kind::tap_lists:
        taps();
        break;
    }
    text_ += "}\n";
    return {name_, std::move(text_)};
  }

 private:
  bool has_taps() const { return shape_.kind == Kind::taps || shape_.kind == Kind::tap_lists; }
  bool is_output(int k) const { return k < code_.n_outputs; }
  bool is_uniform(int k) const {
    return code_.is_table(k) || (!is_output(k) && (shape_.uniform >> (k - code_.n_outputs) & 1));
  }
  // What `element` takes of an input that is uniform, whose value has a name.
  std::string uniform_input(int k, const std::string& value) const {
    return code_.is_table(k) ? "static_cast<const " + type(k) + "*>(a.data[" + number(k) + "])"
                             : input(value);
  }
  const std::string& type(int k) const { return code_.storage[size_t(k)]; }
  std::string pack(int k) const { return "Pack<" + type(k) + ", " + number(shape_.vector) + ">"; }

  void line(int indent, const std::string& s) {
    text_.append(size_t(2 * indent), ' ');
    text_ += s;
    text_ += '\n';
  }

  void members() {
    const std::string k = number(code_.operands()), r = number(shape_.rank);
    const bool multi = shape_.kind == Kind::multi;
    const std::string capacity =
        number(multi_capacity(code_.operands(), code_.n_params, shape_.long_table));
    line(1, "void* data" + (multi ? "[" + capacity + "]" : std::string()) + "[" + k + "];");
    if (shape_.kind == Kind::linear || shape_.kind == Kind::counts) line(1, "i64 vectors, n;");
    if (multi) line(1, "i64 n[" + capacity + "];");
    if (code_.n_params > 0) line(1, "ParamSlot params[" + number(code_.n_params) + "];");
    if (shape_.kind == Kind::strided) {
      line(1, "u32 total, size[" + r + "], magic[" + r + "], shift[" + r + "];");
      line(1, "i32 stride[" + k + "][" + r + "];");
    }
    if (multi) line(1, "u32 first[" + capacity + "], used, chunk;");
    if (shape_.kind == Kind::counts) line(1, "CountTarget target;");
    if (has_taps()) {
      line(1, "i64 step[" + number(code_.operands() - code_.n_outputs) + "][2];");
      line(1, "TapTarget target;");
    }
  }

  // Pointers to the operands but tables, `base` elements on: d0, d1, ...
  void pointers(int indent, const std::string& data, const std::string& base) {
    for (int k = 0; k < code_.operands(); ++k)
      if (!code_.is_table(k))
        line(indent, type(k) + "* const d" + number(k) + " = static_cast<" + type(k) + "*>(" +
                         data + "[" + number(k) + "])" +
                         (is_uniform(k) || base.empty() ? "" : " + " + base) + ";");
  }

  // Loads `unroll` vectors of the inputs into s<k>[u]; `address(k)` may use u.
  template <class Address>
  void loads(int indent, const std::string& setup, Address address) {
    for (int k = code_.n_outputs; k < code_.operands(); ++k)
      if (!is_uniform(k))
        line(indent, pack(k) + " s" + number(k) + "[" + number(shape_.unroll) + "];");
    line(0, "#pragma unroll");
    line(indent, "for (int u = 0; u < " + number(shape_.unroll) + "; ++u) {");
    line(indent + 1, setup);
    for (int k = code_.n_outputs; k < code_.operands(); ++k)
      if (!is_uniform(k))
        line(indent + 1, "s" + number(k) + "[u] = load_pack<" + type(k) + ", " +
                             number(shape_.vector) + ">(" + address(k) + ");");
    line(indent, "}");
  }

  // A stored element as `element` takes it.
  std::string input(const std::string& stored) const {
    return code_.computes ? "to_compute(" + stored + ")" : stored;
  }

  // Computes the vector r<k> of each output from s<k>[u] and uniform(k).
  template <class Uniform>
  void compute(int indent, Uniform uniform) {
    for (int k = 0; k < code_.n_outputs; ++k) line(indent, pack(k) + " r" + number(k) + ";");
    line(0, "#pragma unroll");
    line(indent, "for (int e = 0; e < " + number(shape_.vector) + "; ++e)");
    line(indent + 1, "element(" + call_arguments(code_, [&](int k) {
                       if (is_output(k)) return "r" + number(k) + ".v[e]";
                       if (is_uniform(k)) return uniform_input(k, uniform(k));
                       const std::string pack = "s" + number(k) + "[u]";
                       return code_.computes ? "element_of(" + pack + ", e)" : pack + ".v[e]";
                     }) + ");");
  }

  template <class Address>
  void stores(int indent, Address address) {
    if (shape_.paired) {
      const std::string twice = type(0) + ", " + number(2 * shape_.vector);
      line(indent, "Pack<" + twice + "> pairs;");
      line(0, "#pragma unroll");
      line(indent, "for (int e = 0; e < " + number(shape_.vector) +
                       "; ++e) pairs.v[2 * e] = r0.v[e], pairs.v[2 * e + 1] = r1.v[e];");
      line(indent, "store_pack<" + twice + ">(" + address(0) + ", pairs);");
      return;
    }
    for (int k = 0; k < code_.n_outputs; ++k)
      line(indent, "store_pack<" + type(k) + ", " + number(shape_.vector) + ">(" + address(k) +
                       ", r" + number(k) + ");");
  }

  // `room` vectors, at least one, from the pointers d<k> on; this thread's are `step` apart. What
  // becomes of the results keep(indent) says; by itself they are stored.
  void run_of_vectors(int indent, const std::string& room, const std::string& step) {
    run_of_vectors(indent, room, step, [&](int in) {
      stores(in, [&](int k) {
        return "d" + number(k) + " + u * " + step + " * " + number(shape_.vector);
      });
    });
  }
  template <class Keep>
  void run_of_vectors(int indent, const std::string& room, const std::string& step, Keep keep) {
    const std::string n = number(shape_.vector);
    // Vectors beyond the end read the last one again and are not stored: cheaper than branches.
    loads(indent, "const u32 at = min(u * " + step + ", " + room + " - 1) * " + n + ";",
          [](int k) { return "d" + number(k) + " + at"; });
    line(0, "#pragma unroll");
    line(indent, "for (int u = 0; u < " + number(shape_.unroll) + "; ++u) {");
    compute(indent + 1, [](int k) { return "c" + number(k); });
    line(indent + 1, "if (u * " + step + " < " + room + ") {");
    keep(indent + 2);
    line(indent + 1, "}");
    line(indent, "}");
  }

  void uniforms(int indent) {
    for (int k = code_.n_outputs; k < code_.operands(); ++k)
      if (is_uniform(k) && !code_.is_table(k))
        line(indent, "const " + type(k) + " c" + number(k) + " = *d" + number(k) + ";");
  }

  // The results r<k> of one element at the pointers d<k>.
  void single_result(int indent, const std::string& at) {
    for (int k = 0; k < code_.n_outputs; ++k) line(indent, type(k) + " r" + number(k) + ";");
    line(indent, "element(" + call_arguments(code_, [&](int k) {
                   if (is_output(k)) return "r" + number(k);
                   if (is_uniform(k)) return uniform_input(k, "c" + number(k));
                   return input("d" + number(k) + "[" + at + "]");
                 }) + ");");
  }
  void single_element(int indent, const std::string& at) {
    single_result(indent, at);
    for (int k = 0; k < code_.n_outputs; ++k)
      line(indent, "d" + number(k) + "[" + at + "] = r" + number(k) + ";");
  }

  void linear() {
    const std::string n = number(shape_.vector), u = number(shape_.unroll);
    line(1, "const i64 first = i64(blockIdx.x) * (" + u + " * blockDim.x) + threadIdx.x;");
    line(1, "if (first < a.vectors) {");
    line(2, "const u32 room = u32(min(a.vectors - first, i64(1) << 30));");
    pointers(2, "a.data", "first * " + n);
    uniforms(2);
    run_of_vectors(2, "room", "blockDim.x");
    line(1, "}");
    if (shape_.vector == 1) return;
    line(1, "if (blockIdx.x == gridDim.x - 1 && a.vectors * " + n + " + threadIdx.x < a.n) {");
    pointers(2, "a.data", "a.vectors * " + n);
    uniforms(2);
    single_element(2, "threadIdx.x");
    line(1, "}");
  }

  void count() {
    const std::string n = number(shape_.vector), step = number(shape_.unroll) + " * blockDim.x";
    line(1, "__shared__ u32 shared[kCountSlots];");
    line(1, "const PlaceCounter counter(a.target, shared);");
    line(1, "for (i64 first = i64(blockIdx.x) * (" + step + ") + threadIdx.x; first < a.vectors;");
    line(1, "     first += i64(gridDim.x) * (" + step + ")) {");
    line(2, "const u32 room = u32(min(a.vectors - first, i64(1) << 30));");
    pointers(2, "a.data", "first * " + n);
    uniforms(2);
    run_of_vectors(2, "room", "blockDim.x", [&](int indent) {
      line(0, "#pragma unroll");
      line(indent, "for (int e = 0; e < " + n + "; ++e) counter.add(r0.v[e]);");
    });
    line(1, "}");
    if (shape_.vector > 1) {
      line(1, "if (blockIdx.x == gridDim.x - 1 && a.vectors * " + n + " + threadIdx.x < a.n) {");
      pointers(2, "a.data", "a.vectors * " + n);
      uniforms(2);
      single_result(2, "threadIdx.x");
      line(2, "counter.add(r0);");
      line(1, "}");
    }
    line(1, "counter.finish();");
  }

  void taps() {
    const bool lists = shape_.kind == Kind::tap_lists;
    const std::string count = number(code_.n_outputs / 2), factor = type(1);
    if (lists) line(1, "extern __shared__ __align__(16) char shared[];");
    line(1, "const auto find = [&](i64 image, i64 point, i64(&place)[" + count + "], " + factor +
                "(&factor)[" + count + "]) {");
    line(2, "element(" + call_arguments(code_, [&](int k) {
              if (is_output(k)) return (k % 2 ? "factor[" : "place[") + number(k / 2) + "]";
              const std::string step = "a.step[" + number(k - code_.n_outputs) + "]";
              return input("*at_byte<const " + type(k) + ">(u64(a.data[" + number(k) +
                           "]), image * " + step + "[0] + point * " + step + "[1])");
            }) + ");");
    line(1, "};");
    line(1, std::string(lists ? "sum" : "add") + "_at_taps<" + factor + ", " + count +
                ">(a.target, find" + (lists ? ", shared" : "") + ");");
  }

  void strided() {
    const std::string k = number(code_.operands()), r = number(shape_.rank),
                      u = number(shape_.unroll);
    line(1, "const u32 first = blockIdx.x * (" + u + " * blockDim.x) + threadIdx.x;");
    line(1, "i32 at[" + u + "][" + k + "];");
    for (int o = code_.n_outputs; o < code_.operands(); ++o)
      if (is_uniform(o) && !code_.is_table(o)) line(1, type(o) + " c" + number(o) + "[" + u + "];");
    std::string setup =
        "find_offsets<" + r + ", " + k + ">(min(first + u * blockDim.x, a.total - 1), a, at[u]);";
    for (int o = code_.n_outputs; o < code_.operands(); ++o)
      if (is_uniform(o) && !code_.is_table(o))
        setup += "\n    c" + number(o) + "[u] = *" + strided_address(o) + ";";
    loads(1, setup, [&](int o) { return strided_address(o); });
    line(0, "#pragma unroll");
    line(1, "for (int u = 0; u < " + u + "; ++u) {");
    compute(2, [](int o) { return "c" + number(o) + "[u]"; });
    line(2, "if (first + u * blockDim.x < a.total) {");
    stores(3, [&](int o) { return strided_address(o); });
    line(2, "}");
    line(1, "}");
  }
  std::string strided_address(int k) const {
    return "at_offset<" + type(k) + ">(a.data[" + number(k) + "], at[u][" + number(k) + "])";
  }

  void multi() {
    const std::string n = number(shape_.vector), u = number(shape_.unroll);
    line(1, "u32 t = 0, above = a.used;");
    line(1, "while (above - t > 1) {");
    line(2, "const u32 middle = (t + above) / 2;");
    line(2, "if (a.first[middle] <= blockIdx.x) t = middle; else above = middle;");
    line(1, "}");
    line(1, "const i64 begin = i64(blockIdx.x - a.first[t]) * a.chunk;");
    line(1, "const u32 count = u32(min(a.n[t] - begin, i64(a.chunk)));");
    pointers(1, "a.data[t]", "begin");
    uniforms(1);
    line(1, "const u32 vectors = count / " + n + ";");
    line(1, "for (u32 v = threadIdx.x; v < vectors; v += " + u + " * blockDim.x) {");
    // The pointers of this round take the names of the outer ones.
    for (int k = 0; k < code_.operands(); ++k)
      if (!is_uniform(k))
        line(2, type(k) + "* const b" + number(k) + " = d" + number(k) + " + v * " + n + ";");
    line(2, "{");
    for (int k = 0; k < code_.operands(); ++k)
      if (!is_uniform(k)) line(3, type(k) + "* const d" + number(k) + " = b" + number(k) + ";");
    run_of_vectors(3, "(vectors - v)", "blockDim.x");
    line(2, "}");
    line(1, "}");
    if (shape_.vector == 1) return;
    line(1, "const u32 rest = vectors * " + n + " + threadIdx.x;");
    line(1, "if (rest < count) {");
    single_element(2, "rest");
    line(1, "}");
  }

  const ElementCode& code_;
  const PointwiseShape& shape_;
  std::string name_, text_;
};

}  // namespace

KernelSource pointwise_source(const ElementCode& code, const PointwiseShape& shape) {
  return Writer(code, shape).source();
}

}  // namespace arete::cuda
