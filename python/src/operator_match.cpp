#include "operator_match.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "arete/autograd/forward_mode.h"
#include "arete/ops/creation.h"
#include "arete/ops/vmap.h"
#include "tensor_object.h"

namespace arete::python {

using ops::Arg;
using Kind = Arg::Kind;

namespace {

const char* type_text(const Parameter& p) {
  switch (p.kind) {
    case Kind::tensor:
      return "Tensor";
    case Kind::tensors:
      return "tuple of Tensors";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::scalar:
      return "Number";
    case Kind::ints:
      return "tuple of ints";
    case Kind::reals:
      return "tuple of floats";
    case Kind::string:
      return "str";
    case Kind::dtype:
      return "arete.dtype";
    case Kind::device:
      return "arete.device";
    default:
      return "arete.Generator";
  }
}

/// False: the object is not of the parameter's type.
bool convert(const Overload& o, const Parameter& p, bool strict, PyObject* x, ArgStorage& s,
             Arg& out) {
  if (x == Py_None) {
    if (!p.optional && !p.none_is_default && p.kind != Kind::generator) return false;
    out = p.none_is_default ? p.fallback.borrow() : Arg();
    return true;
  }
  switch (p.kind) {
    case Kind::tensor: {
      if (is_tensor(x)) {
        out = Arg(tensor_of(x));
        return true;
      }
      if (!o.numbers) return false;
      Scalar& v = s.scalars.add();
      if (!to_scalar(x, v)) return false;
      out = Arg(v);
      return true;
    }
    case Kind::tensors: {
      std::vector<Tensor>& v = s.lists.add();
      if (is_tensor(x)) {  // iterated over its first dimension
        const Tensor& t = tensor_of(x);
        if (t.dim() == 0) return false;
        for (int64_t i = 0; i < t.size(0); ++i) v.push_back(t.select(0, i));
      } else if (!to_tensors(x, v)) {
        return false;
      }
      out = Arg(v);
      return true;
    }
    case Kind::boolean:
      if (PyBool_Check(x)) {
        out = p.as_real ? Arg(x == Py_True ? 1.0 : 0.0) : Arg(x == Py_True);
        return true;
      }
      if (std::strcmp(Py_TYPE(x)->tp_name, "numpy.bool") != 0 &&
          std::strcmp(Py_TYPE(x)->tp_name, "numpy.bool_") != 0)
        return false;
      out = Arg(truth(x));
      return true;
    case Kind::integer: {
      int64_t v = 0;
      if ((p.plain && is_tensor(x)) || !to_int(x, v)) return false;
      out = Arg(v);
      return true;
    }
    case Kind::real: {
      double v = 0;
      if (!to_real(x, v)) return false;
      out = Arg(v);
      return true;
    }
    case Kind::scalar: {
      Scalar& v = s.scalars.add();
      if (is_tensor(x)) {
        // Its gradient, or its batch, would be lost, and its dtype where an overload has a tensor.
        if ((strict && p.plain) || tensor_of(x).dim() != 0 || tensor_of(x).requires_grad() ||
            is_batched(tensor_of(x)) || autograd::tangent_of(tensor_of(x)).defined())
          return false;
        v = tensor_of(x).item();
      } else if (!to_scalar(x, v)) {
        return false;
      }
      out = Arg(v);
      return true;
    }
    case Kind::ints: {
      Shape& v = s.shapes.add();
      int64_t one = 0;
      if (p.plain && is_tensor(x)) {
        return false;
      } else if (to_ints(x, v)) {
      } else if (to_int(x, one)) {
        v.push_back(one);
      } else {
        return false;
      }
      out = Arg(IntList(v));
      return true;
    }
    case Kind::reals: {
      std::vector<double>& v = s.reals.add();
      double one = 0;
      if (to_reals(x, v)) {
      } else if (to_real(x, one)) {
        v.assign(1, one);
      } else {
        return false;
      }
      out = Arg(v);
      return true;
    }
    case Kind::string: {
      if (int64_t v = 0; p.reduction && PyLong_CheckExact(x) && to_int(x, v) && v >= 0 && v < 3) {
        static constexpr const char* kWords[] = {"none", "mean", "sum"};
        out = Arg(kWords[v]);
        return true;
      }
      Py_ssize_t n = 0;
      const char* text = PyUnicode_Check(x) ? PyUnicode_AsUTF8AndSize(x, &n) : nullptr;
      if (!text) return false;
      out = Arg(std::string_view(text, size_t(n)));
      return true;
    }
    case Kind::dtype: {
      DType t{};
      if (!to_dtype(x, t)) return false;
      out = Arg(t);
      return true;
    }
    case Kind::device: {
      Device d;
      if (!to_device(x, d)) return false;
      out = Arg(d);
      return true;
    }
    case Kind::generator: {
      Generator* g = to_generator(x);
      if (!g) return false;
      out = Arg(g);
      return true;
    }
    default:
      return false;
  }
}

bool has_name(const Parameter& p, PyObject* key) {
  const auto is_key = [key](PyObject* name) {
    return name == key || PyUnicode_Compare(name, key) == 0;
  };
  return is_key(p.name) || std::any_of(p.others.begin(), p.others.end(), is_key);
}

// Lists of numbers for which the record wants a tensor become one, and numbers 0-d ones beside the
// call's tensors, with their dtype where that is floating. Where all are numbers, the first of them
// becomes a tensor.
void make_tensors_of_numbers(const Overload& o, ArgStorage& s, Arg* out) {
  const Tensor* model = nullptr;
  for (const Parameter& p : o.parameters) {
    const Arg& a = out[p.position];
    if (!model && a.kind() == Kind::tensor && a.tensor().defined()) model = &a.tensor();
  }
  if (model && !o.has_as_tensor) return;
  for (const Parameter& p : o.parameters) {
    Arg& a = out[p.position];
    if (a.kind() == Kind::ints && p.as_tensor) {
      a = Arg(s.tensors.add(tensor(std::vector<int64_t>(a.ints().begin(), a.ints().end()))));
      continue;
    }
    if (a.kind() != Kind::scalar || !(p.as_tensor || (!model && p.kind == Kind::tensor))) continue;
    const Scalar number = a.scalar();
    const bool follows = model && is_floating(model->dtype()) && !number.is_complex();
    const TensorOptions options(follows ? model->dtype() : number.dtype(),
                                model ? model->device() : Device(kCPU));
    a = Arg(s.tensors.add(full({}, number, options)));
    if (!p.as_tensor) return;
  }
}

}  // namespace

bool match_arguments(const Overload& o, bool strict, PyObject* name_object, bool in_place,
                     PyObject* const* args, size_t n, PyObject* kwnames, ArgStorage& s, Arg* out,
                     Extras& extras, Mismatch& why) {
  PyObject* given[kMostParameters] = {};
  Ref spread_list;
  const auto name = [name_object] { return to_text(name_object); };
  size_t used = n;
  if (n > o.positional ||
      (o.spread && n > o.spread_at && n > o.spread_at + 1 && PyLong_Check(args[o.spread_at]))) {
    // Integers one by one: all that are left belong to the list.
    int64_t ignored = 0;
    if (!o.spread || n <= o.spread_at) {
      why.text = name() + "() takes " + std::to_string(o.positional) + " positional argument" +
                 (o.positional == 1 ? "" : "s") + " but " + std::to_string(n) + " were given";
      return false;
    }
    bool all = true;
    for (size_t i = o.spread_at; i < n && all; ++i) all = to_int(args[i], ignored);
    if (all && (n > o.positional || o.positional == o.spread_at + 1 || n > o.spread_at + 1)) {
      spread_list = Ref(PyTuple_New(Py_ssize_t(n - o.spread_at)));
      for (size_t i = o.spread_at; i < n; ++i)
        PyTuple_SET_ITEM(spread_list.get(), Py_ssize_t(i - o.spread_at), Py_NewRef(args[i]));
      used = o.spread_at;
      given[o.spread_at] = spread_list.get();
    } else if (n > o.positional) {
      why.text = name() + "() takes " + std::to_string(o.positional) +
                 " positional arguments but " + std::to_string(n) + " were given";
      return false;
    }
  }
  for (size_t i = 0; i < used; ++i) given[i] = args[i];
  const Py_ssize_t n_keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  for (Py_ssize_t k = 0; k < n_keywords; ++k) {
    PyObject* const key = PyTuple_GET_ITEM(kwnames, k);
    PyObject* const value = args[n + size_t(k)];
    size_t at = o.parameters.size();
    for (size_t i = 0; i < o.parameters.size() && at == o.parameters.size(); ++i)
      if (o.parameters[i].name == key) at = i;
    for (size_t i = 0; i < o.parameters.size() && at == o.parameters.size(); ++i)
      if (has_name(o.parameters[i], key)) at = i;
    if (at < o.parameters.size()) {
      if (given[at]) {
        why.text = name() + "() got multiple values for argument '" + to_text(key) + "'";
        return false;
      }
      given[at] = value;
      continue;
    }
    const std::string k_text = to_text(key);
    if (k_text == "out" && !in_place) {
      extras.out = value == Py_None ? nullptr : value;
    } else if (k_text == "requires_grad" && o.makes) {
      extras.requires_grad = truth(value);
    } else if (k_text == "pin_memory" && o.makes) {
      extras.pin_memory = truth(value);
    } else if (k_text == "layout" && o.makes) {
      if (value == Py_None) continue;
      if (std::strcmp(Py_TYPE(value)->tp_name, "_Layout") != 0) {
        why.text =
            name() + "(): argument 'layout' must be arete.layout, not " + Py_TYPE(value)->tp_name;
        return false;
      }
      const Ref kind(checked(PyObject_GetAttrString(value, "_name")));
      if (to_text(kind.get()) != "strided") extras.layout = value;
    } else if (k_text == "memory_format" && o.record->takes_memory_format) {
      extras.memory_format = value == Py_None ? nullptr : value;
    } else {
      why.text = name() + "() got an unexpected keyword argument '" + k_text + "'";
      return false;
    }
  }
  for (size_t i = 0; i < o.defaults.size(); ++i) out[i] = o.defaults[i].borrow();
  for (size_t i = 0; i < o.parameters.size(); ++i) {
    const Parameter& p = o.parameters[i];
    if (!given[i]) {
      if (!p.has_default && !(p.optional && p.keyword_only)) {
        why.text = name() + "() missing 1 required " +
                   (p.keyword_only ? "keyword-only" : "positional") + " argument: \"" +
                   to_text(p.name) + "\"";
        return false;
      }
      if (p.has_default) out[p.position] = p.fallback.borrow();
      continue;
    }
    if (p.keyword_only && i < used) {
      why.text = name() + "() takes fewer positional arguments";
      return false;
    }
    if (convert(o, p, strict, given[i], s, out[p.position])) continue;
    why.text = name() + "(): argument '" + to_text(p.name) + "' (position " +
               std::to_string(i + 1) + ") must be " + type_text(p) + ", not " +
               Py_TYPE(given[i])->tp_name;
    return false;
  }
  if (o.numbers || o.has_as_tensor) make_tensors_of_numbers(o, s, out);
  if (o.device_at < o.defaults.size() && out[o.device_at].is_none() && default_device)
    out[o.device_at] = Arg(*default_device);
  return true;
}

}  // namespace arete::python
