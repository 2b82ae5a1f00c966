// The expression language for kernels that users write: arete/_kernels.py traces C snippets with
// it.
#include "arete/autograd/function.h"
#include "arete/expr/value.h"
#include "arete/ops/call.h"
#include "bindings.h"
#include "caster.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace arete::python {

namespace {

using expr::Value;

/// A program with the name that history and errors show.
struct ElementwiseProgram {
  expr::ProgramPtr program;
  std::string name;
};

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
  // clang-format on
#undef FUNCTION
                      m.def("where", [](const Value& condition, const Value& a, const Value& b) {
                        return expr::where(condition, a, b);
                      });

  nb::class_<ElementwiseProgram>(m, "Program")
      .def("__call__", [](const ElementwiseProgram& p, const std::vector<Tensor>& inputs) {
        ops::Results r;
        {
          const WithoutGil free;
          autograd::note_uses(inputs);
          r = ops::apply_program(p.program, inputs, {}, p.name.c_str());
        }
        return std::vector<Tensor>(r.begin(), r.end());
      });
  // definition: a function from a list of Values to a list of Values.
  m.def("trace", [](nb::callable definition, const std::vector<DType>& inputs,
                    const std::vector<DType>& outputs, const std::string& name) {
    const expr::Definition d = [&](std::span<const Value> v) {
      nb::list all;
      for (const Value& x : v) all.append(nb::cast(x));
      return nb::cast<std::vector<Value>>(definition(all));
    };
    // Names live as long as the process, since history may show them at any time.
    return ElementwiseProgram{expr::trace(d, inputs, {}, outputs), name};
  });
}

}  // namespace arete::python
