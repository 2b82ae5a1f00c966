// The expression language for kernels that users write: arete/kernels.py traces Python functions
// with it, arete/_kernels.py snippets of C.
#include <deque>
#include <map>

#include "arete/expr/value.h"
#include "arete/ops/apply_matmul.h"
#include "arete/ops/call.h"
#include "arete/ops/rows.h"
#include "bindings.h"
#include "caster.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace arete::python {

namespace {

using expr::Value;

// Names live as long as the process, since history may show them at any time.
const char* lasting(const std::string& name) { return ops::program_record(name).name.c_str(); }

// A traced function is seldom new: what the last ones were compiled to stays.
template <class Program>
const Program& kept(const Program& program) {
  static auto* const recent = new std::deque<Program>;
  if (recent->size() == 256) recent->pop_front();
  recent->push_back(program);
  return program;
}

/// A program with the name that history and errors show.
struct ElementwiseProgram {
  expr::ProgramPtr program;
  const char* name;
};
struct RowsProgram {
  ops::RowProgramPtr program;
  const char* name;
};

std::vector<Tensor> as_list(const ops::Results& r) { return {r.begin(), r.end()}; }

// What a definition gives: values, with the dtypes to store them in.
using TypedValues = std::vector<std::pair<Value, DType>>;
TypedValues values_of(const nb::callable& definition, nb::object rows, std::span<const Value> v) {
  nb::list all;
  if (rows.is_valid()) all.append(rows);
  for (const Value& x : v) all.append(nb::cast(x));
  return nb::cast<TypedValues>(definition(*nb::tuple(all)));
}

Value of_number(double v, const Value& like) { return expr::constant_like(like, v); }

template <class F>
void binary(nb::class_<Value>& c, const char* name, const char* reversed, F f) {
  c.def(
      name, [f](const Value& a, const Value& b) { return f(a, b); }, nb::is_operator());
  c.def(
      name, [f](const Value& a, double b) { return f(a, of_number(b, a)); }, nb::is_operator());
  if (reversed)
    c.def(
        reversed, [f](const Value& a, double b) { return f(of_number(b, a), a); },
        nb::is_operator());
}

expr::Type computation_type(DType t) { return expr::compute_type(t); }

}  // namespace

void bind_expressions(nb::module_& parent) {
  nb::module_ m = parent.def_submodule("_expr");
  nb::class_<Value> c(m, "Value");
  c.def("__neg__", [](const Value& a) { return -a; });
  c.def("__invert__", [](const Value& a) { return ~a; });
  c.def("logical_not", [](const Value& a) { return !a; });
  c.def_prop_ro("is_floating", &Value::is_floating);
  binary(c, "__pow__", "__rpow__", [](const Value& a, const Value& b) { return pow(a, b); });
  binary(c, "__mod__", "__rmod__", [](const Value& a, const Value& b) { return remainder(a, b); });
  binary(c, "__floordiv__", "__rfloordiv__",
         [](const Value& a, const Value& b) { return floor_div(a, b); });
  c.def("__abs__", [](const Value& a) { return abs(a); });
  c.def("__bool__", [](const Value&) -> bool {
    throw nb::type_error("a value of a kernel is known only when it runs: where() chooses");
  });
  c.def_prop_ro("dtype", [](const Value& a) { return expr::storage_type(a.type()); });
  c.def_prop_ro("is_boolean", [](const Value& a) { return a.type() == expr::Type::boolean; });
  c.def("cast", [](const Value& a, DType t) { return expr::cast(a, computation_type(t)); });
  c.def("constant", [](const Value& a, double v) { return expr::constant_like(a, v); });
  c.def("zero_as", [](const Value& a, double v, DType t) {
    return expr::cast(expr::constant_like(a, v), computation_type(t));
  });
#define BINARY(name, reversed, op) \
  binary(c, name, reversed, [](const Value& a, const Value& b) { return a op b; })
  BINARY("__add__", "__radd__", +);
  BINARY("__sub__", "__rsub__", -);
  BINARY("__mul__", "__rmul__", *);
  BINARY("__truediv__", "__rtruediv__", /);
  BINARY("__lt__", nullptr, <);
  BINARY("__le__", nullptr, <=);
  BINARY("__gt__", nullptr, >);
  BINARY("__ge__", nullptr, >=);
  BINARY("__eq__", nullptr, ==);
  BINARY("__ne__", nullptr, !=);
  BINARY("__and__", "__rand__", &);
  BINARY("__or__", "__ror__", |);
  BINARY("__xor__", "__rxor__", ^);
  BINARY("__lshift__", "__rlshift__", <<);
  BINARY("__rshift__", "__rrshift__", >>);
#undef BINARY
#define FUNCTION2(name, f)                                                           \
  m.def(name, [](const Value& a, const Value& b) { return expr::f(a, b); });         \
  m.def(name, [](const Value& a, double b) { return expr::f(a, of_number(b, a)); }); \
  m.def(name, [](double a, const Value& b) { return expr::f(of_number(a, b), b); });
  FUNCTION2("pow", pow)
  FUNCTION2("min", min)
  FUNCTION2("max", max)
  FUNCTION2("atan2", atan2)
  FUNCTION2("copysign", copysign)
  FUNCTION2("fmod", fmod)
  FUNCTION2("trunc_div", trunc_div)
#undef FUNCTION2
#define FUNCTION(f) m.def(#f, [](const Value& a) { return expr::f(a); });
  // clang-format off
  FUNCTION(abs) FUNCTION(sign) FUNCTION(floor) FUNCTION(ceil) FUNCTION(trunc)
  FUNCTION(round) FUNCTION(sqrt) FUNCTION(rsqrt) FUNCTION(exp) FUNCTION(exp2)
  FUNCTION(expm1) FUNCTION(log) FUNCTION(log2) FUNCTION(log10) FUNCTION(log1p)
  FUNCTION(sin) FUNCTION(cos) FUNCTION(tan) FUNCTION(asin) FUNCTION(acos)
  FUNCTION(atan) FUNCTION(sinh) FUNCTION(cosh) FUNCTION(tanh) FUNCTION(asinh)
  FUNCTION(acosh) FUNCTION(atanh) FUNCTION(erf) FUNCTION(erfc) FUNCTION(lgamma)
  FUNCTION(is_nan) FUNCTION(is_inf)
  FUNCTION(sigmoid) FUNCTION(square) FUNCTION(reciprocal) FUNCTION(erfinv) FUNCTION(digamma)
  // clang-format on
#undef FUNCTION
                              m.def("where",
                                    [](const Value& condition, const Value& a, const Value& b) {
                                      return expr::where(condition, a, b);
                                    });
  m.def("where", [](const Value& condition, double a, const Value& b) {
    return expr::where(condition, a, b);
  });
  m.def("where", [](const Value& condition, const Value& a, double b) {
    return expr::where(condition, a, b);
  });

  nb::class_<ElementwiseProgram>(m, "Program")
      .def_prop_ro("_output",
                   [](const ElementwiseProgram& p) { return p.program->outputs()[0].dtype; })
      .def(
          "__call__",
          [](const ElementwiseProgram& p, const std::vector<Tensor>& inputs,
             const std::vector<Scalar>& params) {
            const WithoutGil free;
            return as_list(ops::apply_program(p.program, inputs, params, p.name));
          },
          "inputs"_a, "params"_a = std::vector<Scalar>());
  // definition: a function of Values, one for each input, then parameter; its results are pairs of
  // a Value and the dtype to store it in.
  m.def(
      "trace",
      [](const nb::callable& definition, const std::vector<DType>& inputs,
         const std::vector<DType>& params, const std::string& name) {
        expr::Builder b;
        std::vector<Value> values, results;
        std::vector<DType> dtypes;
        for (const DType t : inputs) values.push_back(b.input(t));
        for (const DType t : params) values.push_back(b.param(computation_type(t)));
        for (const auto& [value, dtype] : values_of(definition, {}, values)) {
          results.push_back(value);
          dtypes.push_back(dtype);
        }
        return ElementwiseProgram{kept(b.build(results, dtypes)), lasting(name)};
      },
      "definition"_a, "inputs"_a, "params"_a, "name"_a);

  // A matrix's program, or none, with what it is given besides the matrix.
  using Part = std::tuple<const ElementwiseProgram*, std::vector<Tensor>, std::vector<Scalar>>;
  m.def(
      "apply_matmul",
      [](const Tensor& a, const Tensor& b, const Part& left, const Part& right, const Part& result,
         const std::string& name) {
        const auto part = [](const Part& p) {
          const auto& [program, inputs, params] = p;
          return ops::MatrixProgram{program ? program->program : nullptr, inputs, params};
        };
        const char* const lasts = lasting(name);
        const WithoutGil free;
        return ops::apply_matmul(a, b, part(left), part(right), part(result), lasts);
      },
      "a"_a, "b"_a, "left"_a, "right"_a, "result"_a, "name"_a);

  nb::class_<ops::Rows>(m, "Rows")
      .def("_reduce",
           [](ops::Rows& rows, const std::string& monoid, const Value& v, bool has_gradient) {
             static const std::map<std::string, prim::Monoid> monoids = {
                 {"sum", prim::Monoid::sum}, {"prod", prim::Monoid::prod},
                 {"min", prim::Monoid::min}, {"max", prim::Monoid::max},
                 {"all", prim::Monoid::all}, {"any", prim::Monoid::any}};
             return rows.reduce(monoids.at(monoid), v, has_gradient);
           })
      .def("_length", &ops::Rows::length);
  nb::class_<RowsProgram>(m, "RowProgram")
      .def(
          "__call__",
          [](const RowsProgram& p, const std::vector<Tensor>& inputs,
             const std::vector<Scalar>& params, const std::vector<int64_t>& dims) {
            const WithoutGil free;
            return as_list(ops::apply_rows(p.program, inputs, params, dims, p.name));
          },
          "inputs"_a, "params"_a, "dims"_a);
  // The same of rows, which are the first argument.
  m.def(
      "trace_rows",
      [](const nb::callable& definition, const std::vector<DType>& inputs,
         const std::vector<DType>& params, const std::string& name) {
        std::vector<expr::Type> types;
        for (const DType t : params) types.push_back(computation_type(t));
        std::vector<DType> dtypes;
        const auto run = [&](ops::Rows& rows, std::span<const Value> v) {
          std::vector<Value> results;
          for (const auto& [value, dtype] :
               values_of(definition, nb::cast(&rows, nb::rv_policy::reference), v)) {
            results.push_back(value);
            dtypes.push_back(dtype);
          }
          return results;
        };
        return RowsProgram{kept(ops::RowProgram::trace(run, inputs, types, dtypes)), lasting(name)};
      },
      "definition"_a, "inputs"_a, "params"_a, "name"_a);
}

}  // namespace arete::python
