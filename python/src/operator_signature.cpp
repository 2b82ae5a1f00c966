#include "operator_signature.h"

#include <structmember.h>

#include <map>
#include <memory>
#include <string_view>

#include "arete/ops/schema_values.h"
#include "convert.h"
#include "tensor_object.h"

namespace arete::python {

using ops::Arg;
using ops::default_of;
using ops::kind_of;
using ops::OpRecord;
using ops::OwnedArg;
using Kind = Arg::Kind;

std::vector<const char*> other_names(std::string_view name) {
  if (name == "self") return {"input", "x", "a", "x1"};
  if (name == "input") return {"self", "x", "a", "x1"};
  if (name == "dim") return {"axis"};
  if (name == "dims") return {"dim"};
  if (name == "split_size") return {"split_size_or_sections"};
  if (name == "split_sizes") return {"split_size_or_sections", "split_size"};
  if (name == "keepdim") return {"keepdims"};
  if (name == "other") return {"x2"};
  if (name == "elements") return {"element"};
  if (name == "test_elements") return {"test_element"};
  if (name == "dim0") return {"axis0"};
  if (name == "dim1") return {"axis1"};
  return {};
}

PyObject* const return_types = PyDict_New();

// The type of an operator's results: one for its function and its method, so that it can be
// pickled.
static PyTypeObject* result_type(std::string_view shown_as, PyStructSequence_Field* fields,
                                 int count) {
  std::string names;
  for (int i = 0; i < count; ++i) names += std::string(" ") + fields[i].name;
  static std::map<std::string, PyTypeObject*> made;
  PyTypeObject*& type = made[std::string(shown_as) + names];
  if (type) return type;
  const Ref package(
      checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(tensor_type), "__module__")));
  auto* full_name = new std::string(PyUnicode_AsUTF8(package.get()));  // kept by the type
  *full_name += ".return_types." + std::string(shown_as);
  PyStructSequence_Desc d{full_name->c_str(), nullptr, fields, count};
  type = PyStructSequence_NewType(&d);
  PyObject* const object = checked(reinterpret_cast<PyObject*>(type));
  const std::string name(shown_as);
  if (!PyDict_GetItemString(return_types, name.c_str()))
    PyDict_SetItemString(return_types, name.c_str(), object);
  return type;
}

Overload make_overload(const OpRecord& record, const std::string& signature,
                       std::string_view shown_as) {
  Overload o;
  o.record = &record;
  const ops::Schema& schema = ops::schema_of(record);
  // A signature is parsed as the schema of a record that nobody keeps.
  OpRecord shown;
  shown.schema = signature.empty() ? record.schema : signature + " -> Tensor";
  static std::vector<std::unique_ptr<OpRecord>> parsed;  // schema_of() remembers addresses
  parsed.push_back(std::make_unique<OpRecord>(shown));
  const ops::Schema& names = signature.empty() ? schema : ops::schema_of(*parsed.back());

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
    p.reduction = p.kind == Kind::string && a.name == "reduction";
    keyword_only = keyword_only || a.keyword_only;
    p.keyword_only = keyword_only;
    p.has_default = !a.default_text.empty();
    p.name = checked(PyUnicode_InternFromString(a.name.c_str()));
    bool found = false;
    for (size_t i = 0; i < schema.args.size() && !found; ++i) {
      const std::string& n = schema.args[i].name;
      // torch's older name of a correction of 1 or 0 is "unbiased".
      p.as_real = a.name == "unbiased" && n == "correction";
      if (n == a.name || (a.name == "input" && n == "self") || (a.name == "self" && n == "input") ||
          p.as_real) {
        p.position = i;
        found = true;
      }
    }
    if (const size_t i = o.parameters.size();
        !found && i < schema.args.size() && schema.args[i].type == a.type) {
      p.position = i;
      found = true;
    }
    if (!found)
      throw ValueError("Operator",
                       "the record " + record.full_name() + " has no argument " + a.name);
    for (const char* other : other_names(a.name)) {
      bool free = true;
      for (const ops::SchemaArg& b : names.args) free = free && b.name != other;
      if (free) p.others.push_back(checked(PyUnicode_InternFromString(other)));
    }
    const ops::SchemaArg& own = schema.args[p.position];
    p.none_is_default =
        a.default_text == "[]" || (p.optional && p.has_default && !own.type.ends_with('?'));
    if (p.as_real)
      p.fallback = OwnedArg(a.default_text == "True" ? 1.0 : 0.0);
    else if (p.has_default)
      p.fallback =
          default_of(p.kind, p.none_is_default && a.default_text == "None" ? own.default_text
                                                                           : a.default_text);
    p.as_tensor = (p.kind == Kind::scalar || p.kind == Kind::ints) && own.is_tensor();
    o.has_as_tensor = o.has_as_tensor || p.as_tensor;
    if (!keyword_only) ++o.positional;
    o.parameters.push_back(std::move(p));
  }
  if (o.parameters.size() > kMostParameters || o.defaults.size() > kMostParameters)
    throw ValueError("Operator", "too many parameters: " + record.full_name());
  o.numbers = record.takes_numbers || (record.pointwise && record.pointwise->n_inputs > 1);
  // view(2, 3): a list that is the last positional parameter, first or after a tensor.
  if (o.positional > 0 && o.positional <= 2) {
    const size_t last = o.positional - 1;
    o.spread = o.parameters[last].list && !o.parameters[last].has_default &&
               (last == 0 || o.parameters[0].kind == Kind::tensor);
    o.spread_at = last;
  }
  bool of_tensors = false;
  for (const Parameter& p : o.parameters)
    of_tensors = of_tensors || p.kind == Kind::tensor || p.kind == Kind::tensors;
  for (size_t i = 0; i < schema.args.size(); ++i)
    if (schema.args[i].name == "device" && schema.args[i].type == "device?") {
      o.makes = true;
      o.device_option_at = i;
      if (!of_tensors) o.device_at = i;
    }
  o.returns_list = schema.returns.size() == 1 && schema.returns[0].starts_with("Tensor[]");
  if (schema.returns.size() > 1 && schema.returns[0].find(' ') != std::string::npos) {
    auto* fields = new PyStructSequence_Field[schema.returns.size() + 1]();  // kept by the type
    for (size_t i = 0; i < schema.returns.size(); ++i) {
      auto* field = new std::string(schema.returns[i].substr(schema.returns[i].find(' ') + 1));
      fields[i].name = field->c_str();
    }
    o.result_type = result_type(shown_as, fields, int(schema.returns.size()));
  }
  const std::string& t = shown.schema;
  o.text = t.substr(t.find('('), t.rfind(" ->") - t.find('('));
  return o;
}

void separate(std::vector<Overload>& overloads) {
  for (Overload& o : overloads)
    for (size_t i = 0; i < o.positional; ++i)
      for (const Overload& other : overloads)
        if (i < other.positional && other.parameters[i].kind == Kind::tensor)
          o.parameters[i].plain = true;
}

}  // namespace arete::python
