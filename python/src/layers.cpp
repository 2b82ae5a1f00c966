// The table of layers for Python's layers: options, calls and texts, what users can get wrong, and
// the arithmetic of padding.
#include "layers.h"
#include "arete/nn/layer_record_internal.h"
#include "arete/ops/conv_internal.h"
#include "bindings.h"
#include "caster.h"

namespace nb = nanobind;

namespace arete::python {

namespace {

std::vector<int64_t> ints_of(nb::handle values) {
  std::vector<int64_t> list;
  if (PyIndex_Check(values.ptr())) return {nb::cast<int64_t>(nb::int_(values))};
  for (nb::handle v : values) list.push_back(nb::cast<int64_t>(nb::int_(v)));
  return list;
}

std::vector<double> reals_of(nb::handle values) {
  if (PyNumber_Check(values.ptr())) return {nb::cast<double>(nb::float_(values))};
  std::vector<double> list;
  for (nb::handle v : values) list.push_back(nb::cast<double>(nb::float_(v)));
  return list;
}

bool are_ints(nb::handle values) {
  if (!nb::isinstance<nb::sequence>(values)) return PyIndex_Check(values.ptr());
  for (nb::handle v : values)
    if (!PyIndex_Check(v.ptr())) return false;
  return true;
}

Padding padding_of(nb::handle v) {
  static const std::string same = "same", valid = "valid";
  if (!nb::isinstance<nb::str>(v)) return Padding(ints_of(v));
  return Padding(std::string_view(nb::cast<std::string>(v) == same ? same : valid));
}

nb::list described(const nn::LayerRecord& r) {
  nb::list options, shown;
  for (const ops::SchemaArg& a : r.options)
    options.append(nb::make_tuple(a.name, a.type, a.default_text));
  for (const nn::LayerRecord::Shown& s : r.text)
    shown.append(nb::make_tuple(r.options[s.option].name, s.named, s.quoted, s.unless_default));
  nb::list all;
  all.append(r.schema);
  all.append(options);
  all.append(r.call);
  all.append(shown);
  all.append(r.check != nullptr);
  return all;
}

}  // namespace

nn::Option layer_option(nb::handle value, const nn::LayerRecord& layer, size_t i) {
  const ops::SchemaArg& a = layer.options[i];
  PyObject* const o = value.ptr();
  const bool list = a.type.find('[') != std::string::npos;
  if (value.is_none() && (a.type.ends_with('?') || a.default_text == "None")) return {};
  if (a.type.starts_with("Tensor") && is_tensor(o)) return tensor_of(o);
  if (a.type.starts_with("bool")) return PyObject_IsTrue(o) == 1;
  if (PyUnicode_Check(o) && (list || a.type.starts_with("str")))
    return std::string_view(nb::cast<std::string>(value));
  if (a.type.starts_with("float")) {
    if (list) return reals_of(value);
    if (PyNumber_Check(o)) return nb::cast<double>(nb::float_(value));
  }
  if (a.type.starts_with("int") && are_ints(value)) {
    if (list) return ints_of(value);
    return nb::cast<int64_t>(nb::int_(value));
  }
  throw TypeError(layer.name, layer.name + "(): argument '" + a.name + "' must be " + a.type +
                                  ", not " + Py_TYPE(o)->tp_name);
}

void bind_layers(nb::module_& m) {
  // {name: [schema, [(option, type, default)], call, [(option, named, quoted, unless default)],
  // whether it has a check]}
  m.def("_layers", [] {
    nb::dict all;
    for (const nn::LayerRecord& r : nn::all_layers()) all[r.name.c_str()] = described(r);
    return all;
  });
  m.def("_check_layer", [](const std::string& name, const nb::args& values) {
    const nn::LayerRecord& r = nn::layer_record(name);
    std::vector<nn::Option> options;
    for (size_t i = 0; i < values.size(); ++i) options.push_back(layer_option(values[i], r, i));
    r.check(nn::LayerOptions(r, std::move(options)));
  });
  m.def("_conv_edges", [](nb::handle padding, const std::vector<int64_t>& kernel,
                          const std::vector<int64_t>& dilation) {
    const Shape edges = ops::explicit_padding(padding_of(padding), kernel, dilation);
    return std::vector<int64_t>(edges.begin(), edges.end());
  });
  m.def("_conv_output_padding",
        [](const Tensor& input, const std::vector<int64_t>& output_size,
           const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
           const std::vector<int64_t>& kernel, const std::vector<int64_t>& dilation) {
          const Shape extra = ops::output_padding_for(input.sizes(), output_size, stride, padding,
                                                      kernel, dilation);
          return std::vector<int64_t>(extra.begin(), extra.end());
        });
}

}  // namespace arete::python
