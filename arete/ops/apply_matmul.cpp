#include "arete/ops/apply_matmul.h"

#include <array>
#include <vector>

#include "arete/core/history.h"
#include "arete/core/modes.h"
#include "arete/core/tracing.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/matmul.h"
#include "arete/ops/matmul_internal.h"
#include "arete/ops/program_arguments.h"
#include "arete/ops/program_node.h"
#include "arete/ops/shape.h"
#include "arete/ops/target.h"

namespace arete::ops {
namespace {

// A matrix with what its program reads besides it.
struct Part {
  const expr::Program* program;
  std::span<const Tensor> inputs;
  std::span<const expr::Literal> params;
  const char* name;

  DType dtype_of(const Tensor& matrix) const {
    return program ? program->outputs()[0].dtype : matrix.dtype();
  }
  bool wants_gradient() const {
    for (const Tensor& t : inputs)
      if (t.requires_grad() && is_differentiable(t.dtype())) return true;
    return false;
  }
  // As a call of its own.
  Tensor operator()(const Tensor& matrix) const {
    if (!program) return matrix;
    std::vector<Tensor> all{matrix};
    all.insert(all.end(), inputs.begin(), inputs.end());
    return call_program({name, program->shared_from_this(), all, params})[0];
  }
  void check(const char* which, IntList sizes, Device device) const {
    for (const Tensor& t : inputs) {
      ARETE_CHECK(Shape(broadcast_shapes(sizes, t.sizes(), name)) == Shape(sizes),
                  ValueError(name, std::string("an input of the program of ") + which +
                                       " does not broadcast to the matrix")
                      .expected("sizes that broadcast to " + to_string(sizes))
                      .got(describe(t)));
      check_same_device(name, device, 0, t.device(), 1);
    }
  }
};

Shape batches(const Tensor& a, const Tensor& b, const char* name) {
  return broadcast_shapes(a.sizes().first(size_t(a.dim() - 2)),
                          b.sizes().first(size_t(b.dim() - 2)), name);
}

Tensor run(const Tensor& a, const Tensor& b, const Tensor& out, const Part& left, const Part& right,
           const Part& result) {
  if (out.is_meta() || out.numel() == 0) return out;
  Layout la = a.layout(), lb = b.layout();
  pad_front(la, size_t(out.dim()));
  pad_front(lb, size_t(out.dim()));
  SmallVector<prim::View, 8> views;
  for (const Part* p : {&left, &right, &result})
    for (const Tensor& t : p->inputs) views.push_back(view_of(t));
  size_t next = 0;
  const auto program = [&](const Part& p) {
    const size_t first = next;
    next += p.inputs.size();
    return prim::ElementProgram{p.program, {views.data() + first, p.inputs.size()}, p.params, {}};
  };
  prim::GemmArgs g;
  g.a = view_of(a, la), g.b = view_of(b, lb), g.out = view_of(out);
  g.a_program = program(left);
  g.b_program = program(right);
  g.result_program = program(result);
  target(out.device()).gemm(g);
  return out;
}

Tensor apply(const Tensor& a, const Tensor& b, const Part& left, const Part& right,
             const Part& result) {
  const char* const name = left.name;
  modes().current_op = name;
  ARETE_CHECK(a.dim() >= 2 && b.dim() >= 2,
              ValueError(name, "both operands must be matrices, or batches of them")
                  .got(describe(a) + " and " + describe(b)));
  check_same_device(name, a.device(), 0, b.device(), 1);
  ARETE_CHECK(a.size(-1) == b.size(-2),
              ValueError(name, "mat1 and mat2 shapes cannot be multiplied (" +
                                   shape_text(a.sizes()) + " and " + shape_text(b.sizes()) + ")"));
  const DType dtype = left.dtype_of(a);
  ARETE_CHECK(
      dtype == right.dtype_of(b) && !is_complex(dtype) && dtype != kBool,
      TypeError(name, "both operands must have one real dtype behind their programs")
          .got(std::string(name_of(dtype)) + " and " + std::string(name_of(right.dtype_of(b)))));
  ARETE_CHECK(!result.program || result.program->inputs()[0] == dtype,
              TypeError(name, "the result's program must read the dtype of the operands")
                  .expected(std::string(name_of(dtype)))
                  .got(std::string(name_of(result.program->inputs()[0]))));
  Shape sizes = batches(a, b, name);
  sizes.push_back(a.size(-2));
  sizes.push_back(b.size(-1));
  left.check("the left operand", a.sizes(), a.device());
  right.check("the right operand", b.sizes(), a.device());
  result.check("the result", sizes, a.device());

  const auto wanted = [](const Tensor& t) {
    return t.requires_grad() && is_differentiable(t.dtype());
  };
  if (modes().grad_enabled && (wanted(a) || wanted(b) || left.wants_gradient() ||
                               right.wants_gradient() || result.wants_gradient())) {
    // The programs say in which dtypes to compute.
    const ModesGuard guard;
    modes().word &= ~uint32_t(Modes::kAutocast);
    return result(matmul(left(a), right(b)));
  }
  const DType out = result.program ? result.program->outputs()[0].dtype : dtype;
  return run(a, b, empty_tensor(sizes, out, a.device()), left, right, result);
}

double flops(const Call& c) {
  const Tensor &a = c.tensor(0), &b = c.tensor(1);
  double n = 2.0 * double(a.size(-2)) * double(a.size(-1)) * double(b.size(-1));
  for (const int64_t batch : batches(a, b, c.name())) n *= double(batch);
  return n;
}

}  // namespace

Tensor apply_matmul(const Tensor& a, const Tensor& b, const MatrixProgram& left,
                    const MatrixProgram& right, const MatrixProgram& result, const char* name) {
  std::array<SmallVector<expr::Literal, 4>, 3> params;
  std::array<Part, 3> parts;
  const std::array<const MatrixProgram*, 3> given{&left, &right, &result};
  for (size_t k = 0; k < 3; ++k) {
    const MatrixProgram& m = *given[k];
    parts[k] = {m.program.get(), m.inputs, {}, name};
    ARETE_CHECK(m.program || (m.inputs.empty() && m.params.empty()),
                ValueError(name, "there are inputs of a program that is not there"));
    if (!m.program) continue;
    ARETE_CHECK(
        m.program->outputs().size() == 1 && !m.program->inputs().empty() &&
            m.program->tables() == 0,
        ValueError(name, "the program of a matrix has one output, and the matrix as input"));
    const std::span<const DType> dtypes = m.program->inputs();
    if (k < 2) check_program_inputs(dtypes.first(1), {k == 0 ? &a : &b, 1}, name);
    check_program_inputs(dtypes.subspan(1), m.inputs, name);
    params[k] = program_numbers(m.program->params(), m.params, name);
    parts[k].params = {params[k].data(), params[k].size()};
  }
  if (tracing::is_plain()) [[likely]]
    return apply(a, b, parts[0], parts[1], parts[2]);
  static auto* const records = new AnonymousRecords([](OpRecord& r) {
    r.schema = r.name +
               "(Tensor a, Tensor b, Program left, Tensor[] left_inputs, Program right, "
               "Tensor[] right_inputs, Program result, Tensor[] result_inputs) -> Tensor";
    r.apply = [](const Call& c) {
      const auto part = [&](size_t k) {
        return Part{c[k].program().program, c.tensors(k + 1), c[k].program().params, c.name()};
      };
      return Results{apply(c.tensor(0), c.tensor(1), part(2), part(4), part(6))};
    };
    r.flops = flops;
  });
  std::array<AppliedProgram, 3> programs;
  for (size_t k = 0; k < 3; ++k) programs[k] = {parts[k].program, nullptr, parts[k].params};
  return call_all(records->find(name),
                  {Arg(a), Arg(b), Arg(programs[0]), Arg(parts[0].inputs), Arg(programs[1]),
                   Arg(parts[1].inputs), Arg(programs[2]), Arg(parts[2].inputs)})[0];
}

}  // namespace arete::ops
