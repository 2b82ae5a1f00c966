#include "arete/backend/cpu/complex_pairs.h"

#include <algorithm>
#include <array>
#include <vector>

#include "arete/backend/cpu/kernels/kernel_table.h"
#include "arete/base/thread_pool.h"
#include "arete/expr/value.h"

namespace arete::cpu {
namespace {

using expr::ProgramPtr;
using expr::Type;
using expr::Value;
using prim::View;

/// The programs that are known; there is one object of each.
struct PairPrograms {
  explicit PairPrograms(DType dtype) {
    const auto program = [dtype](int n_inputs, int n_params, auto definition) {
      return expr::trace([=](std::span<const Value> v) { return definition(v); },
                         std::vector<DType>(size_t(n_inputs), dtype),
                         std::vector<Type>(size_t(n_params), expr::compute_type(dtype)),
                         std::vector<DType>(2, dtype));
    };
    const auto product = [](Value a, Value b, Value c, Value d) {
      return std::vector<Value>{a * c - b * d, a * d + b * c};
    };
    const auto of_two = [=](std::span<const Value> v) { return product(v[0], v[1], v[2], v[3]); };
    multiply = program(4, 0, of_two);
    multiply_by_number = program(2, 2, of_two);
    square =
        program(2, 0, [=](std::span<const Value> v) { return product(v[0], v[1], v[0], v[1]); });
    conjugate = program(2, 0, [](std::span<const Value> v) { return std::vector{v[0], -v[1]}; });
  }
  ProgramPtr multiply, multiply_by_number, square, conjugate;
};

const PairPrograms& programs_of(DType dtype) {
  static const PairPrograms single(kFloat32), twice(kFloat64);
  return dtype == kFloat32 ? single : twice;
}

/// Whether the parts are complex numbers one after the other.
bool is_run_of_pairs(const View& re, const View& im) {
  if (im.data - re.data != int64_t(size_of(re.dtype))) return false;
  int64_t step = 2;
  for (int d = re.rank() - 1; d >= 0; --d) {
    if (re.sizes[d] == 1) continue;
    if (im.sizes[d] != re.sizes[d] || re.strides[d] != step || im.strides[d] != step) return false;
    step *= re.sizes[d];
  }
  return true;
}

/// A factor: numbers in memory, or one.
struct Factor {
  const std::byte* data = nullptr;
  bool is_number = false;
  std::array<double, 2> number{};

  /// False if it is neither.
  bool set(const View& re, const View& im, int64_t n) {
    if (re.numel() == 1 && im.numel() == 1) {
      std::copy_n(re.data, size_of(re.dtype), bytes());
      std::copy_n(im.data, size_of(re.dtype), bytes() + size_of(re.dtype));
      return is_number = true;
    }
    data = re.data;
    return re.numel() == n && is_run_of_pairs(re, im);
  }
  void set(double re, double im, DType dtype) {
    is_number = true;
    number = {re, im};
    if (dtype != kFloat32) return;
    const float parts[] = {float(re), float(im)};
    std::copy_n(reinterpret_cast<const std::byte*>(parts), sizeof(parts), bytes());
  }
  const void* at(int64_t bytes_on) const {
    return is_number ? static_cast<const void*>(number.data()) : data + bytes_on;
  }

 private:
  std::byte* bytes() { return reinterpret_cast<std::byte*>(number.data()); }
};

}  // namespace

bool run_on_pairs(const prim::PointwiseArgs& args) {
  if (args.outputs.size() != 2 || args.inputs.size() < 2 || args.inputs.size() > 4) return false;
  const View &re = args.outputs[0], &im = args.outputs[1];
  if (re.dtype != im.dtype || (re.dtype != kFloat32 && re.dtype != kFloat64)) return false;
  const PairPrograms& known = programs_of(re.dtype);
  const expr::Program* const program = args.program;
  const bool conjugates = program == known.conjugate.get();
  if (!conjugates && program != known.multiply.get() && program != known.square.get() &&
      program != known.multiply_by_number.get())
    return false;
  const int64_t n = re.numel();
  if (!is_run_of_pairs(re, im)) return false;
  Factor a, b;
  if (!a.set(args.inputs[0], args.inputs[1], n)) return false;
  if (args.inputs.size() == 4) {
    if (!b.set(args.inputs[2], args.inputs[3], n)) return false;
  } else if (program == known.multiply_by_number.get()) {
    b.set(expr::number_of(*program, args.params, 0).f, expr::number_of(*program, args.params, 1).f,
          re.dtype);
  } else {
    b = a;
  }
  if (a.is_number && (b.is_number || conjugates)) return false;
  const kernels::KernelTable& table = kernels::table();
  const auto type = re.dtype == kFloat32 ? kernels::t_f32 : kernels::t_f64;
  const kernels::Kernel kernel = conjugates    ? table.conjugate[type]
                                 : b.is_number ? table.complex_product[type][kernels::vs]
                                 : a.is_number ? table.complex_product[type][kernels::sv]
                                               : table.complex_product[type][kernels::vv];
  const int64_t pair = 2 * int64_t(size_of(re.dtype));
  parallel_for(0, n, grain_for(8), [&](int64_t first, int64_t last) {
    kernel(re.data + first * pair, a.at(first * pair), b.at(first * pair), nullptr, last - first);
  });
  return true;
}

}  // namespace arete::cpu
