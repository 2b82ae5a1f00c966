// Operators on lists of tensors: arete/_operators/_foreach.py names them.
#include "arete/ops/foreach.h"

#include <deque>

#include "bindings.h"
#include "caster.h"

namespace nb = nanobind;

namespace arete::python {

namespace {

using Tensors = std::vector<Tensor>;

/// Python arguments as those of an operator on lists, which look into what is kept here.
class ListArgs {
 public:
  explicit ListArgs(const nb::args& args) {
    for (size_t i = 0; i < args.size(); ++i) all_.push_back(convert(args[i].ptr(), i));
  }
  std::span<const ops::ListArg> get() const { return all_; }

 private:
  ops::ListArg convert(PyObject* o, size_t position) {
    if (is_tensor(o)) return tensor_of(o);
    if (!PyList_Check(o) && !PyTuple_Check(o)) return number(o);
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
    PyObject** const items = PySequence_Fast_ITEMS(o);
    if (n > 0 && !is_tensor(items[0]) && position > 0) {
      std::vector<Scalar>& list = numbers_.emplace_back();
      for (Py_ssize_t i = 0; i < n; ++i) list.push_back(number(items[i]));
      return std::span<const Scalar>(list);
    }
    Tensors& list = tensors_.emplace_back();
    for (Py_ssize_t i = 0; i < n; ++i) {
      if (!is_tensor(items[i]))
        type_error("expected Tensor as element %zd in argument %zu, but got %s", i, position,
                   Py_TYPE(items[i])->tp_name);
      list.push_back(tensor_of(items[i]));
    }
    return std::span<const Tensor>(list);
  }
  static Scalar number(PyObject* o) {
    Scalar s;
    if (!to_scalar(o, s)) type_error("must be a number, not %s", Py_TYPE(o)->tp_name);
    return s;
  }

  std::deque<Tensors> tensors_;
  std::deque<std::vector<Scalar>> numbers_;
  std::vector<ops::ListArg> all_;
};

const ops::OpRecord& record_named(const std::string& name) {
  const ops::OpRecord* r = ops::find_record(name);
  if (!r) throw nb::key_error(name.c_str());
  return *r;
}

}  // namespace

void bind_foreach(nb::module_& m) {
  m.def("_foreach", [](const std::string& record, const nb::args& args) {
    const ListArgs given(args);
    const WithoutGil free;
    return ops::foreach_call(record_named(record), given.get());
  });
  m.def("_foreach_in_place", [](const std::string& record, const nb::args& args) {
    const ListArgs given(args);
    const WithoutGil free;
    ops::foreach_call_in_place(record_named(record), given.get());
  });
  m.def("_foreach_copy", [](const Tensors& self, const Tensors& src, bool non_blocking) {
    const WithoutGil free;
    ops::foreach_copy(self, src, non_blocking);
  });
  m.def("_foreach_zero", [](const Tensors& self) {
    const WithoutGil free;
    ops::foreach_zero(self);
  });
  m.def("_foreach_norm",
        [](const Tensors& self, double order, std::optional<DType> dtype, bool root) {
          const WithoutGil free;
          return ops::foreach_norm(self, order, dtype, root);
        });
  m.def("_foreach_max", [](const Tensors& self) {
    const WithoutGil free;
    return ops::foreach_max(self);
  });
}

}  // namespace arete::python
