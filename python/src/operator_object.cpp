#include "operator_object.h"

#include <structmember.h>

#include <cstring>
#include <memory>
#include <new>

#include "arete/core/modes.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/record.h"
#include "convert.h"
#include "tensor_object.h"

namespace arete::python {

using ops::Arg;
using ops::OpRecord;
using ops::OwnedArg;
using Kind = Arg::Kind;

namespace {

constexpr size_t kMostParameters = 24;

// Below this number of elements a call is too short to let other threads run meanwhile.
constexpr int64_t kLongCall = 1 << 15;

/// Up to N objects in place, made one by one.
template <class T, size_t N>
class Pool {
 public:
  ~Pool() {
    while (count_ > 0) at(--count_)->~T();
  }
  template <class... A>
  T& add(A&&... a) {
    if (count_ == N) type_error("too many arguments of one kind");
    return *new (at(count_++)) T(std::forward<A>(a)...);
  }

 private:
  T* at(size_t i) { return std::launder(reinterpret_cast<T*>(space_ + i * sizeof(T))); }
  size_t count_ = 0;
  alignas(T) std::byte space_[N * sizeof(T)];
};

/// What converted arguments point at.
struct Storage {
  Pool<Scalar, 8> scalars;
  Pool<Shape, 8> shapes;
  Pool<std::vector<double>, 4> reals;
  Pool<std::vector<Tensor>, 4> lists;
};

struct Parameter {
  PyObject* name = nullptr;   // interned
  PyObject* other = nullptr;  // a second name by which it may be given, or null
  Kind kind = Kind::none;
  size_t position = 0;  // among the record's arguments
  bool optional = false, list = false, keyword_only = false, has_default = false;
  OwnedArg fallback;
  std::string type;  // as written
};

struct Overload {
  const OpRecord* record = nullptr;
  std::vector<Parameter> parameters;
  std::vector<OwnedArg> defaults;  // of all arguments of the record
  size_t positional = 0;           // parameters that may be given by position
  bool numbers = false;            // numbers stand for tensors
  bool spread = false;             // the first list may be given as separate integers
  size_t spread_at = 0;
  bool returns_list = false;
  PyTypeObject* result_type = nullptr;  // of several results
  std::string text;                     // for error messages
};

struct OperatorObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* name;
  PyObject* dict;
  std::vector<Overload>* overloads;
  bool in_place;
};

OperatorObject* operator_in(PyObject* o) { return reinterpret_cast<OperatorObject*>(o); }

// ---- signatures

Kind kind_of(std::string_view type) {
  if (type == "Tensor") return Kind::tensor;
  if (type == "Tensor[]") return Kind::tensors;
  if (type == "bool") return Kind::boolean;
  if (type == "int") return Kind::integer;
  if (type == "float") return Kind::real;
  if (type == "Scalar") return Kind::scalar;
  if (type == "int[]") return Kind::ints;
  if (type == "float[]") return Kind::reals;
  if (type == "str") return Kind::string;
  if (type == "dtype") return Kind::dtype;
  if (type == "device") return Kind::device;
  if (type == "Generator") return Kind::generator;
  throw ValueError("Operator", "unknown type in a signature: " + std::string(type));
}

OwnedArg default_of(Kind kind, std::string_view text) {
  const std::string s(text);
  if (s == "None") return {};
  switch (kind) {
    case Kind::boolean:
      return s == "True";
    case Kind::integer:
      return int64_t(std::stoll(s));
    case Kind::real:
      return std::stod(s);
    case Kind::scalar:
      if (s == "True" || s == "False") return Scalar(s == "True");
      if (s.find_first_of(".e") != std::string::npos || s == "inf") return Scalar(std::stod(s));
      return Scalar(int64_t(std::stoll(s)));
    case Kind::string:
      return s.substr(1, s.size() - 2).c_str();
    case Kind::ints: {
      std::vector<int64_t> v;
      if (!s.starts_with('[')) return std::vector<int64_t>{std::stoll(s)};
      for (size_t i = 1; i + 1 < s.size();) {
        size_t end = s.find_first_of(",]", i);
        v.push_back(std::stoll(s.substr(i, end - i)));
        i = end + 1;
      }
      return v;
    }
    case Kind::tensors:
      return std::vector<Tensor>();
    default:
      return {};
  }
}

// torch's own second names.
const char* second_name(std::string_view name) {
  if (name == "self") return "input";
  if (name == "input") return "self";
  if (name == "dim") return "axis";
  if (name == "dims") return "dim";
  if (name == "keepdim") return "keepdims";
  if (name == "other") return "x2";
  return nullptr;
}

Overload make_overload(const OpRecord& record, const char* signature) {
  Overload o;
  o.record = &record;
  const ops::Schema& schema = ops::schema_of(record);
  // A signature is parsed as the schema of a record that nobody keeps.
  OpRecord shown;
  shown.schema = signature ? std::string(signature) + " -> Tensor" : record.schema;
  static std::vector<std::unique_ptr<OpRecord>> parsed;  // schema_of() remembers addresses
  parsed.push_back(std::make_unique<OpRecord>(shown));
  const ops::Schema& names = signature ? ops::schema_of(*parsed.back()) : schema;

  for (const ops::SchemaArg& a : schema.args) {
    std::string type = a.type;
    if (type.ends_with('?')) type.pop_back();
    if (type.ends_with("[]?")) type.resize(type.size() - 1);
    o.defaults.push_back(a.default_text.empty() ? OwnedArg()
                                                : default_of(kind_of(type), a.default_text));
  }
  bool keyword_only = false;
  for (const ops::SchemaArg& a : names.args) {
    Parameter p;
    std::string type = a.type;
    p.optional = type.ends_with('?');
    if (p.optional) type.pop_back();
    p.type = type;
    p.kind = kind_of(type);
    p.list = p.kind == Kind::ints;
    keyword_only = keyword_only || a.keyword_only;
    p.keyword_only = keyword_only;
    p.has_default = !a.default_text.empty();
    if (p.has_default) p.fallback = default_of(p.kind, a.default_text);
    p.name = checked(PyUnicode_InternFromString(a.name.c_str()));
    bool found = false;
    for (size_t i = 0; i < schema.args.size() && !found; ++i) {
      const std::string& n = schema.args[i].name;
      if (n == a.name || (a.name == "input" && n == "self") || (a.name == "self" && n == "input")) {
        p.position = i;
        found = true;
      }
    }
    if (!found)
      throw ValueError("Operator", "the record " + record.name + " has no argument " + a.name);
    if (const char* second = second_name(a.name)) {
      bool free = true;
      for (const ops::SchemaArg& b : names.args) free = free && b.name != second;
      if (free) p.other = checked(PyUnicode_InternFromString(second));
    }
    if (!keyword_only) ++o.positional;
    o.parameters.push_back(std::move(p));
  }
  if (o.parameters.size() > kMostParameters || o.defaults.size() > kMostParameters)
    throw ValueError("Operator", "too many parameters: " + record.name);
  o.numbers = record.takes_numbers || (record.pointwise && record.pointwise->n_inputs > 1);
  // view(2, 3): a list that is the last positional parameter, first or after a tensor.
  if (o.positional > 0 && o.positional <= 2) {
    const size_t last = o.positional - 1;
    o.spread = o.parameters[last].list && (last == 0 || o.parameters[0].kind == Kind::tensor);
    o.spread_at = last;
  }
  o.returns_list = schema.returns.size() == 1 && schema.returns[0].starts_with("Tensor[]");
  if (schema.returns.size() > 1 && schema.returns[0].find(' ') != std::string::npos) {
    auto* fields = new PyStructSequence_Field[schema.returns.size() + 1]();  // kept by the type
    for (size_t i = 0; i < schema.returns.size(); ++i) {
      auto* field = new std::string(schema.returns[i].substr(schema.returns[i].find(' ') + 1));
      fields[i].name = field->c_str();
    }
    auto* type_name = new std::string("arete.return_types." + record.name);
    PyStructSequence_Desc d{type_name->c_str(), nullptr, fields, int(schema.returns.size())};
    o.result_type = PyStructSequence_NewType(&d);
    checked(reinterpret_cast<PyObject*>(o.result_type));
  }
  const std::string& t = shown.schema;
  o.text = t.substr(t.find('('), t.rfind(" ->") - t.find('('));
  return o;
}

// ---- arguments

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
bool convert(const Overload& o, const Parameter& p, PyObject* x, Storage& s, Arg& out) {
  if (x == Py_None) {
    if (p.optional) {
      out = Arg();
      return true;
    }
    if (p.kind != Kind::generator) return false;
    out = Arg();
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
        out = Arg(x == Py_True);
        return true;
      }
      if (std::strcmp(Py_TYPE(x)->tp_name, "numpy.bool") != 0 &&
          std::strcmp(Py_TYPE(x)->tp_name, "numpy.bool_") != 0)
        return false;
      out = Arg(truth(x));
      return true;
    case Kind::integer: {
      int64_t v = 0;
      if (!to_int(x, v)) return false;
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
        // Its gradient would be lost: an overload with a tensor may follow.
        if (tensor_of(x).numel() != 1 || tensor_of(x).requires_grad()) return false;
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
      if (to_ints(x, v)) {
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

/// Keyword arguments that belong to no record.
struct Extras {
  PyObject* out = nullptr;
  bool requires_grad = false;
  bool pin_memory = false;
  DType dtype{};
  bool has_dtype = false;
};

bool same_text(PyObject* a, PyObject* b) { return a == b || PyUnicode_Compare(a, b) == 0; }

/// Why an overload does not fit, in the words of PyTorch.
struct Mismatch {
  std::string text;
};

/// Matches a call with one overload; false with the reason in `why`.
bool match(const Overload& o, PyObject* name_object, PyObject* const* args, size_t n,
           PyObject* kwnames, Storage& s, Arg* out, Extras& extras, Mismatch& why) {
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
      if (same_text(o.parameters[i].name, key) ||
          (o.parameters[i].other && same_text(o.parameters[i].other, key)))
        at = i;
    if (at < o.parameters.size()) {
      if (given[at]) {
        why.text = name() + "() got multiple values for argument '" + to_text(key) + "'";
        return false;
      }
      given[at] = value;
      continue;
    }
    const std::string k_text = to_text(key);
    if (k_text == "out") {
      extras.out = value == Py_None ? nullptr : value;
    } else if (k_text == "requires_grad") {
      extras.requires_grad = truth(value);
    } else if (k_text == "pin_memory") {
      extras.pin_memory = truth(value);
    } else if (k_text == "layout" || k_text == "memory_format") {
      // Dense row-major tensors are what there is; preserving layouts is what *_like does anyway.
    } else if (k_text == "dtype") {
      if (value == Py_None) continue;
      if (!to_dtype(value, extras.dtype)) {
        why.text =
            name() + "(): argument 'dtype' must be arete.dtype, not " + Py_TYPE(value)->tp_name;
        return false;
      }
      extras.has_dtype = true;
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
    if (convert(o, p, given[i], s, out[p.position])) continue;
    why.text = name() + "(): argument '" + to_text(p.name) + "' (position " +
               std::to_string(i + 1) + ") must be " + type_text(p) + ", not " +
               Py_TYPE(given[i])->tp_name;
    return false;
  }
  return true;
}

// ---- the call

bool is_long(std::span<const Arg> args) {
  for (const Arg& a : args) {
    if (a.kind() == Kind::tensor && a.tensor().numel() >= kLongCall) return true;
    if (a.kind() == Kind::tensors) return true;
  }
  return false;
}

PyObject* wrap_results(const Overload& o, ops::Results results) {
  if (results.size() == 1 && !o.returns_list) return wrap(std::move(results[0]));
  PyObject* r =
      o.result_type ? PyStructSequence_New(o.result_type) : PyTuple_New(Py_ssize_t(results.size()));
  if (!r) return nullptr;
  for (size_t i = 0; i < results.size(); ++i) {
    PyObject* t = wrap(std::move(results[i]));
    if (!t) {
      Py_DECREF(r);
      return nullptr;
    }
    if (o.result_type)
      PyStructSequence_SET_ITEM(r, Py_ssize_t(i), t);
    else
      PyTuple_SET_ITEM(r, Py_ssize_t(i), t);
  }
  return r;
}

/// out=: the result's values and shape.
void write_out(Tensor& out, const Tensor& result) {
  if (is_grad_enabled() && out.requires_grad())
    throw AutogradError("out",
                        "out=... arguments don't support automatic differentiation, but one "
                        "of the arguments requires grad.");
  const NoGradGuard no_grad;
  if (out.sizes().size() == result.sizes().size() &&
      std::equal(out.sizes().begin(), out.sizes().end(), result.sizes().begin())) {
    out.copy_(result);
    return;
  }
  const Tensor fitting = result.to(out.device(), out.dtype()).contiguous();
  out.impl()->storage = fitting.storage();
  out.impl()->layout = fitting.layout();
}

PyObject* finish(const Overload& o, ops::Results results, const Extras& extras) {
  if (results.empty()) return wrap_results(o, std::move(results));  // parts of nothing
  if (extras.out) {
    if (is_tensor(extras.out)) {
      write_out(tensor_of(extras.out), results[0]);
    } else if (PyTuple_Check(extras.out) || PyList_Check(extras.out)) {
      if (PySequence_Fast_GET_SIZE(extras.out) != Py_ssize_t(results.size()))
        type_error("argument 'out' must have %zu Tensors", results.size());
      for (size_t i = 0; i < results.size(); ++i) {
        PyObject* e = PySequence_Fast_GET_ITEM(extras.out, Py_ssize_t(i));
        if (!is_tensor(e)) type_error("out must be a tuple of Tensors");
        write_out(tensor_of(e), results[i]);
      }
    } else {
      type_error("argument 'out' must be Tensor, not %s", Py_TYPE(extras.out)->tp_name);
    }
    return Py_NewRef(extras.out);
  }
  if (extras.pin_memory) results[0] = results[0].pin_memory();
  if (extras.requires_grad) results[0].requires_grad_();
  return wrap_results(o, std::move(results));
}

PyObject* call_bound(OperatorObject* self, const Overload& o, Arg* args, const Extras& extras,
                     PyObject* first) {
  const std::span<const Arg> all(args, o.defaults.size());
  Tensor converted;
  if (extras.has_dtype && args[o.parameters[0].position].kind() == Kind::tensor) {
    converted = args[o.parameters[0].position].tensor().to(extras.dtype);
    args[o.parameters[0].position] = Arg(converted);
  }
  if (self->in_place) {
    Tensor& target = tensor_of(first);
    if (is_long(all)) {
      const WithoutGil free;
      ops::call_in_place(target, *o.record, all);
    } else {
      ops::call_in_place(target, *o.record, all);
    }
    return Py_NewRef(first);
  }
  if (is_long(all)) {
    ops::Results results;
    {
      const WithoutGil free;
      results = ops::call_all(*o.record, all);
    }
    return finish(o, std::move(results), extras);
  }
  return finish(o, ops::call_all(*o.record, all), extras);
}

PyObject* operator_vectorcall(PyObject* callable, PyObject* const* args, size_t nargsf,
                              PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    OperatorObject* const self = operator_in(callable);
    const size_t n = size_t(PyVectorcall_NARGS(nargsf));
    if (self->in_place && (n == 0 || !is_tensor(args[0])))
      type_error("%U(): the first argument must be Tensor", self->name);
    std::string reasons;
    const bool one = self->overloads->size() == 1;
    for (const Overload& o : *self->overloads) {
      Storage storage;
      Extras extras;
      Mismatch why;
      Arg bound[kMostParameters];
      if (match(o, self->name, args, n, kwnames, storage, bound, extras, why))
        return call_bound(self, o, bound, extras, n > 0 ? args[0] : nullptr);
      if (PyErr_Occurred()) return nullptr;
      reasons += (one ? "" : "\n * " + o.text + "\n      ") + why.text;
    }
    const std::string text =
        one ? reasons
            : to_text(self->name) +
                  "() received an invalid combination of arguments. It takes:" + reasons;
    PyErr_SetString(PyExc_TypeError, text.c_str());
    return nullptr;
  });
}

// ---- the classes

PyTypeObject* function_type;
PyTypeObject* method_type;

PyObject* operator_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"name", "overloads", "in_place", nullptr};
    PyObject *name = nullptr, *list = nullptr;
    int in_place = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "UO|p", const_cast<char**>(names), &name, &list,
                                     &in_place))
      return nullptr;
    auto overloads = std::make_unique<std::vector<Overload>>();
    const Ref items(checked(PySequence_Fast(list, "overloads must be a list")));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
      const char *record_name = nullptr, *signature = nullptr;
      if (!PyArg_ParseTuple(PySequence_Fast_GET_ITEM(items.get(), i), "sz", &record_name,
                            &signature))
        return nullptr;
      const OpRecord* record = ops::find_record(record_name);
      if (!record) {
        PyErr_Format(PyExc_KeyError, "there is no operator record '%s'", record_name);
        return nullptr;
      }
      overloads->push_back(make_overload(*record, signature));
    }
    PyObject* o = checked(type->tp_alloc(type, 0));
    operator_in(o)->vectorcall = operator_vectorcall;
    operator_in(o)->name = Py_NewRef(name);
    operator_in(o)->dict = nullptr;
    operator_in(o)->overloads = overloads.release();
    operator_in(o)->in_place = in_place;
    return o;
  });
}
void operator_dealloc(PyObject* o) {
  PyTypeObject* const type = Py_TYPE(o);
  Py_XDECREF(operator_in(o)->name);
  Py_XDECREF(operator_in(o)->dict);
  delete operator_in(o)->overloads;
  type->tp_free(o);
  Py_DECREF(type);
}
PyObject* operator_repr(PyObject* o) {
  return PyUnicode_FromFormat("<operator %U>", operator_in(o)->name);
}
PyObject* method_get(PyObject* o, PyObject* instance, PyObject*) {
  if (!instance || instance == Py_None) return Py_NewRef(o);
  return PyMethod_New(o, instance);
}
PyObject* operator_name(PyObject* o, void*) { return Py_NewRef(operator_in(o)->name); }
PyObject* operator_module(PyObject*, void*) { return PyUnicode_FromString("arete"); }
PyObject* operator_doc(PyObject* o, void*) {
  return guarded([&]() -> PyObject* {
    std::string text;
    for (const Overload& v : *operator_in(o)->overloads)
      text += to_text(operator_in(o)->name) + v.text + "\n";
    text += "\n" + (*operator_in(o)->overloads)[0].record->doc;
    return PyUnicode_FromStringAndSize(text.data(), Py_ssize_t(text.size()));
  });
}
PyObject* operator_records(PyObject* o, void*) {
  PyObject* list = PyList_New(0);
  for (const Overload& v : *operator_in(o)->overloads) {
    const Ref pair(Py_BuildValue("(ss)", v.record->name.c_str(), v.text.c_str()));
    if (!list || !pair || PyList_Append(list, pair.get()) < 0) return nullptr;
  }
  return list;
}
// Pickled as a name of the module, as functions are.
PyObject* operator_reduce(PyObject* o, PyObject*) { return Py_NewRef(operator_in(o)->name); }

PyMethodDef operator_methods[] = {{"__reduce__", operator_reduce, METH_NOARGS, nullptr},
                                  {nullptr, nullptr, 0, nullptr}};
PyGetSetDef operator_getset[] = {{"__name__", operator_name, nullptr, nullptr, nullptr},
                                 {"__qualname__", operator_name, nullptr, nullptr, nullptr},
                                 {"__module__", operator_module, nullptr, nullptr, nullptr},
                                 {"__doc__", operator_doc, nullptr, nullptr, nullptr},
                                 {"_records", operator_records, nullptr, nullptr, nullptr},
                                 {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMemberDef operator_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(OperatorObject, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(OperatorObject, dict), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
#define OPERATOR_SLOTS                                                                       \
  {Py_tp_new, reinterpret_cast<void*>(operator_new)},                                        \
      {Py_tp_dealloc, reinterpret_cast<void*>(operator_dealloc)},                            \
      {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},                              \
      {Py_tp_repr, reinterpret_cast<void*>(operator_repr)}, {Py_tp_getset, operator_getset}, \
      {Py_tp_members, operator_members}, {                                                   \
    Py_tp_methods, operator_methods                                                          \
  }
PyType_Slot function_slots[] = {OPERATOR_SLOTS, {0, nullptr}};
PyType_Slot method_slots[] = {
    OPERATOR_SLOTS, {Py_tp_descr_get, reinterpret_cast<void*>(method_get)}, {0, nullptr}};
#undef OPERATOR_SLOTS
PyType_Spec function_spec{"arete.Operator", sizeof(OperatorObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, function_slots};
PyType_Spec method_spec{
    "arete.OperatorMethod", sizeof(OperatorObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR, method_slots};

}  // namespace

bool init_operator_types(PyObject* module) {
  function_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&function_spec));
  method_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&method_spec));
  return function_type && method_type &&
         PyModule_AddObjectRef(module, "Operator", reinterpret_cast<PyObject*>(function_type)) ==
             0 &&
         PyModule_AddObjectRef(module, "OperatorMethod",
                               reinterpret_cast<PyObject*>(method_type)) == 0;
}

PyObject* binary_operator(const OpRecord& record, PyObject* a, PyObject* b, bool in_place) {
  return guarded([&]() -> PyObject* {
    Scalar sa, sb;
    Arg args[3];
    if (is_tensor(a))
      args[0] = Arg(tensor_of(a));
    else if (to_scalar(a, sa))
      args[0] = Arg(sa);
    else
      return Py_NewRef(Py_NotImplemented);
    if (is_tensor(b))
      args[1] = Arg(tensor_of(b));
    else if (to_scalar(b, sb))
      args[1] = Arg(sb);
    else
      return Py_NewRef(Py_NotImplemented);
    static const Scalar one(1);
    size_t n = 2;
    if (record.pointwise && record.pointwise->n_params == 1) args[n++] = Arg(one);  // alpha
    const std::span<const Arg> all(args, n);
    if (in_place) {
      if (is_long(all)) {
        const WithoutGil free;
        ops::call_in_place(tensor_of(a), record, all);
      } else {
        ops::call_in_place(tensor_of(a), record, all);
      }
      return Py_NewRef(a);
    }
    if (is_long(all)) {
      Tensor r;
      {
        const WithoutGil free;
        r = ops::call(record, all);
      }
      return wrap(std::move(r));
    }
    return wrap(ops::call(record, all));
  });
}

}  // namespace arete::python
