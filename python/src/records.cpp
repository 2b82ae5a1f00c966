// What Python's files know of the operator records: names, where they are shown, and what
// documentation is made of.
#include <dlfcn.h>

#include <map>

#include "arete/ops/aliases.h"
#include "arete/ops/samples.h"
#include "bindings.h"
#include "caster.h"
#include "operator_names.h"
#include "operator_signature.h"

namespace nb = nanobind;

namespace arete::python {

namespace {

using ops::OpRecord;

const char* name_of(ops::Surface s) {
  switch (s) {
    case ops::Surface::method:
      return "method";
    case ops::Surface::function:
      return "function";
    case ops::Surface::functional:
      return "functional";
    case ops::Surface::internal:
      break;
  }
  return "internal";
}

const OpRecord& record_named(const std::string& name) {
  const OpRecord* r = ops::find_record(name);
  if (!r) throw nb::key_error(name.c_str());
  return *r;
}

nb::object owned(PyObject* o) {
  if (!o) nb::raise_python_error();
  return nb::steal(o);
}

nb::object to_python(const ops::OwnedArg& a) {
  using Kind = ops::Arg::Kind;
  switch (a.kind) {
    case Kind::tensor:
      return nb::cast(a.tensor);
    case Kind::tensors:
      return nb::cast(a.tensors);
    case Kind::boolean:
      return nb::cast(a.scalar.to_bool());
    case Kind::integer:
    case Kind::real:
    case Kind::scalar:
      return owned(wrap(a.scalar));
    case Kind::ints:
      return nb::cast(a.ints);
    case Kind::reals:
      return nb::cast(a.reals);
    case Kind::string:
      return nb::cast(a.text);
    case Kind::dtype:
      return owned(wrap(a.dtype));
    case Kind::device:
      return owned(wrap(a.device));
    case Kind::none:
    case Kind::generator:
    case Kind::program:
      break;
  }
  return nb::none();
}

std::string gradient_of(const OpRecord& r) {
  if (r.once_differentiable) return "once";
  if (r.compose || r.grad || r.view || r.views) return "any order";
  if (!r.pointwise || r.pointwise->result == ops::PointwiseDef::Result::boolean) return "none";
  const uint32_t inputs = (1u << r.pointwise->n_inputs) - 1;
  return (r.pointwise->non_differentiable & inputs) == inputs ? "none" : "any order";
}

// The dtype that examples have: float32 where it is among those of the record.
DType example_dtype(const OpRecord& r) {
  for (DType t : r.dtypes)
    if (t == kFloat32) return t;
  return r.dtypes.front();
}

// What documentation and stubs are made of.
nb::dict describe(const std::string& name) {
  const OpRecord& r = record_named(name);
  nb::dict d;
  d["schema"] = r.schema;
  d["in_place"] = r.has_in_place;
  d["surface"] = name_of(r.surface);
  return d;
}

// What documentation says besides.
nb::dict facts(const std::string& name) {
  const OpRecord& r = record_named(name);
  nb::dict d;
  d["doc"] = r.doc;
  d["pointwise"] = bool(r.pointwise);
  d["random"] = r.random || r.uninitialized;
  d["gradient"] = gradient_of(r);
  nb::list dtypes;
  for (DType t : r.dtypes) dtypes.append(owned(wrap(t)));
  d["dtypes"] = dtypes;
  d["complex"] = r.compose_complex || (r.pointwise && r.pointwise->complex);
  return d;
}

// Samples are no part of the library: the first who asks loads theirs, which attaches them.
const ops::RecordSamples& loaded_samples_of(const OpRecord& r) {
  static const bool loaded = [] {
    if (dlopen("libarete_samples.so", RTLD_NOW | RTLD_LOCAL)) return true;
    throw std::runtime_error(std::string("the samples of operators cannot be loaded: ") +
                             dlerror());
  }();
  static_cast<void>(loaded);
  return ops::samples_of(r);
}

// The arguments of the record's samples, each a list in the order of the schema.
nb::list samples(const std::string& name) {
  const OpRecord& r = record_named(name);
  nb::list all;
  const auto& samples = loaded_samples_of(r).samples;
  if (!samples) return all;
  ops::SampleMaker maker(example_dtype(r), kCPU, false);
  for (const ops::Sample& s : samples(maker)) {
    nb::list args;
    for (const ops::OwnedArg& a : s.args) args.append(to_python(a));
    all.append(args);
  }
  return all;
}

// Pairs of an exception and how its text begins, of calls that must fail.
nb::list errors(const std::string& name) {
  const OpRecord& r = record_named(name);
  nb::list all;
  const auto& errors = loaded_samples_of(r).errors;
  if (!errors) return all;
  ops::SampleMaker maker(example_dtype(r), kCPU, false);
  for (const ops::ErrorSample& s : errors(maker))
    all.append(nb::make_tuple(nb::borrow(class_of(s.kind)), s.text));
  return all;
}

}  // namespace

void bind_records(nb::module_& m) {
  m.def("_record_names", [] {
    std::vector<std::string> names;
    for (const OpRecord* r : ops::all_records()) names.push_back(r->full_name());
    return names;
  });
  // (name, in place, a function, a method of tensors) of every operator.
  m.def("_operators", [] {
    nb::list all;
    for (const PublicName& n : public_names())
      all.append(nb::make_tuple(n.name, n.in_place, n.function, n.method));
    return all;
  });
  m.def("_functional_operators", &functional_names);
  m.def("_aliases", [] {
    std::map<std::string, std::string> names;
    for (const ops::Alias& a : ops::all_aliases())
      names.emplace(std::string(a.name), std::string(a.record));
    return names;
  });
  m.def("_other_names", [](const std::string& name) { return other_names(name); });
  m.def("_record", &describe);
  m.def("_record_facts", &facts);
  m.def("_record_samples", &samples);
  m.def("_record_errors", &errors);
}

}  // namespace arete::python
