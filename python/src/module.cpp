// The extension arete._C: Tensor, operators, and what stands behind arete's Python files.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <limits>

#include "arete/base/thread_pool.h"
#include "arete/base/warn.h"
#include "arete/core/modes.h"
#include "arete/core/print.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "array_object.h"
#include "bindings.h"
#include "caster.h"
#include "numpy_data.h"
#include "operator_object.h"
#include "tensor_data.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace arete::python {

namespace {

void bind_data(nb::module_& m) {
  m.def(
      "tensor",
      [](nb::handle data, std::optional<DType> dtype, std::optional<Device> device,
         bool requires_grad, bool pin_memory) {
        if (is_tensor(data.ptr()) &&
            PyErr_WarnEx(PyExc_UserWarning,
                         "To copy construct from a tensor, it is recommended to use "
                         "sourceTensor.detach().clone() or "
                         "sourceTensor.detach().clone().requires_grad_(True), rather than "
                         "tensor(sourceTensor).",
                         1) < 0)
          throw PythonError{};
        // A copy of a tensor stays where that is.
        const Device beside = is_tensor(data.ptr()) ? tensor_of(data.ptr()).device()
                                                    : default_device.value_or(Device());
        Tensor t = tensor_from(data.ptr(), dtype, device.value_or(beside));
        if (pin_memory) t = t.pin_memory();
        if (requires_grad) t.requires_grad_();
        return t;
      },
      "data"_a.none(), nb::kw_only(), "dtype"_a = nb::none(), "device"_a = nb::none(),
      "requires_grad"_a = false, "pin_memory"_a = false,
      R"(A new tensor of numbers, nested sequences or an array; the dtype is read off if not given.

ValueError for sequences of different lengths; TypeError for arrays of other elements, and RuntimeError for what is no number.

>>> arete.tensor([[1, 2], [3, 4]])
tensor([[1, 2],
        [3, 4]])
)");
  m.def("_is_numpy_array", [](nb::handle o) { return is_numpy_array(o.ptr()); });
  m.def("_over_array", [](nb::handle o) { return tensor_over_array(o.ptr()); });
  m.def("_map_shared", [](int file, size_t bytes, DType dtype, const std::vector<int64_t>& sizes,
                          const std::vector<int64_t>& strides, int64_t offset) {
    StoragePtr storage = Storage::map_shared(file, bytes);
    Layout layout(IntList(sizes.data(), sizes.size()), IntList(strides.data(), strides.size()),
                  offset);
    ARETE_CHECK(offset >= 0 && size_t(layout.end()) * size_of(dtype) <= bytes,
                ValueError("_map_shared", "the tensor reaches beyond its memory"));
    return Tensor(
        IntrusivePtr<TensorImpl>(new TensorImpl(std::move(storage), std::move(layout), dtype)));
  });
  m.def(
      "frombuffer",
      [](nb::handle buffer, DType dtype, int64_t count, int64_t offset, bool requires_grad) {
        Tensor t = tensor_over_bytes(buffer.ptr(), dtype, count, offset);
        if (requires_grad) t.requires_grad_();
        return t;
      },
      "buffer"_a, nb::kw_only(), "dtype"_a, "count"_a = -1, "offset"_a = 0,
      "requires_grad"_a = false,
      R"(A 1-d tensor over the memory of a buffer (bytes, bytearray, array); nothing is copied.

`count` elements (-1: all) from byte `offset`; ValueError if the buffer is too short.

>>> arete.frombuffer(bytearray(b"abc"), dtype=arete.uint8)
tensor([97, 98, 99], dtype=arete.uint8)
)");
  m.def("_from_dlpack", [](nb::handle capsule) { return from_dlpack(capsule.ptr()); });
  m.def("_empty_strided", [](const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                             DType t, Device d) {
    return empty_strided(IntList(sizes.data(), sizes.size()),
                         IntList(strides.data(), strides.size()), TensorOptions(t, d));
  });
  m.def("_over_address", [](uintptr_t address, const std::vector<int64_t>& sizes,
                            const std::vector<int64_t>& strides, DType dtype, Device device,
                            nb::object owner) {
    PyObject* kept = owner.release().ptr();
    static std::byte nothing;
    return from_blob(address ? reinterpret_cast<void*>(address) : &nothing,
                     IntList(sizes.data(), sizes.size()), IntList(strides.data(), strides.size()),
                     TensorOptions(dtype, device), [kept](void*) {
                       if (!Py_IsInitialized()) return;
                       const WithGil gil;
                       Py_DECREF(kept);
                     });
  });
}

void bind_settings(nb::module_& m) {
  m.def("get_default_dtype", &default_dtype, R"(The dtype of floating tensors made without one.

>>> arete.get_default_dtype()
arete.float32
)");
  m.def("set_default_dtype", &set_default_dtype, "d"_a);
  m.def("_default_device",
        [] { return default_device ? std::optional(default_device->resolved()) : std::nullopt; });
  m.def(
      "_set_default_device", [](std::optional<Device> d) { default_device = d; },
      "device"_a.none());
  m.def("promote_types", &promote_types, "type1"_a, "type2"_a,
        R"(The smallest dtype that holds the values of both.

>>> arete.promote_types(arete.int32, arete.float16)
arete.float16
)");
  m.def("_result_type", [](const std::vector<Tensor>& tensors, const std::vector<Scalar>& scalars) {
    return ops::result_type(tensors, scalars);
  });
  m.def("manual_seed", [](int64_t seed) { manual_seed(uint64_t(seed)); });
  m.def("is_grad_enabled", &is_grad_enabled, R"(Whether operators record history on this thread.

>>> with arete.no_grad(): arete.is_grad_enabled()
False
)");
  // In C, so that who looks at the code of modules (compiled functions) need not look behind it.
  m.def("_note_place",
        [](nb::object error) { nb::module_::import_("arete.nn._places").attr("note")(error); });
  m.def("_set_grad_enabled", [](bool on) { modes().grad_enabled = on; });
  m.def("is_inference_mode_enabled", &is_inference_mode,
        R"(Whether this thread is in inference mode.

>>> arete.is_inference_mode_enabled()
False
)");
  m.def("_set_inference_mode", [](bool on) {
    modes().word = on ? modes().word | Modes::kInference : modes().word & ~Modes::kInference;
  });
  m.def("_deterministic", [](std::optional<bool> on) {
    if (on) modes().deterministic = *on;
    return modes().deterministic;
  });
  m.def(
      "set_printoptions",
      [](std::optional<int> precision, std::optional<double> threshold,
         std::optional<int64_t> edgeitems, std::optional<int> linewidth,
         const std::optional<std::string>& profile, std::optional<bool> sci_mode) {
        constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
        PrintOptions options = print_options();
        if (profile) {
          options = {.package = options.package};
          if (*profile == "short") {
            options.precision = options.edge_items = 2;
          } else if (*profile == "full") {
            options.threshold = kAll;
          } else if (*profile != "default") {
            throw ValueError("set_printoptions", "there is no such profile")
                .argument("profile")
                .expected("'default', 'short' or 'full'")
                .got("'" + *profile + "'");
          }
        }
        if (precision) options.precision = *precision;
        // As a float, because "all" is infinity.
        if (threshold)
          options.threshold = *threshold < 0x1p62 ? int64_t(std::max(*threshold, -1.0)) : kAll;
        if (edgeitems) options.edge_items = *edgeitems;
        if (linewidth) options.line_width = *linewidth;
        options.scientific = sci_mode;
        set_print_options(options);
      },
      "precision"_a = nb::none(), "threshold"_a = nb::none(), "edgeitems"_a = nb::none(),
      "linewidth"_a = nb::none(), "profile"_a = nb::none(), "sci_mode"_a = nb::none(),
      R"(Sets how tensors are printed.

`precision` digits behind the point; of tensors with more than `threshold` elements only `edgeitems` at each end of a dimension;
lines of `linewidth` columns; `sci_mode`: always (True) or never (False) as 1.0000e-05, and by the values if it is not given.
`profile` "default", "short" or "full" (all elements) is where the others start from, what is set already if it is not given.

>>> arete.set_printoptions(precision=2)
>>> arete.tensor([1.12345])
tensor([1.12])
>>> arete.set_printoptions(profile="default")
>>> arete.tensor([1.12345])
tensor([1.1235])
)");
  m.def("_values_to_string", &values_to_string);
  m.def("_print_options", [] {
    const PrintOptions options = print_options();
    nb::dict found;
    found["precision"] = options.precision;
    found["threshold"] = options.threshold;
    found["edgeitems"] = options.edge_items;
    found["linewidth"] = options.line_width;
    found["sci_mode"] = options.scientific;
    return found;
  });
  m.def("_print_package", [](const std::string& package) {
    PrintOptions options = print_options();
    options.package = package;
    set_print_options(options);
  });
  m.def(
      "get_num_threads", [] { return num_threads(); }, R"(How many threads an operator uses.

>>> arete.get_num_threads() > 0
True
)");
  m.def("_threads_are_openmp", &threads_are_openmp);
  m.def(
      "set_num_threads", [](int n) { set_num_threads(n); },
      R"(Sets how many threads an operator uses.

>>> arete.set_num_threads(arete.get_num_threads())
)");
}

// How many calls it is from here to a line that is not the package's own.
Py_ssize_t depth_of_caller() {
  Py_ssize_t depth = 1;
  PyFrameObject* frame = PyEval_GetFrame();
  for (Py_XINCREF(frame); frame; ++depth) {
    const Ref held(reinterpret_cast<PyObject*>(frame));
    const Ref globals(PyObject_GetAttrString(held.get(), "f_globals"));
    PyObject* const name =
        globals.get() ? PyDict_GetItemString(globals.get(), "__name__") : nullptr;
    const char* const text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
    PyErr_Clear();
    if (!text ||
        (std::string_view(text) != "arete" && !std::string_view(text).starts_with("arete.")))
      return depth;
    frame = PyFrame_GetBack(frame);
  }
  return 1;
}

// Where the library warns, warnings.warn() does, of the line that called the package; a filter may
// make that an error.
void warn_in_python(std::string_view text) {
  const WithGil gil;
  if (PyErr_WarnEx(PyExc_UserWarning, std::string(text).c_str(), depth_of_caller()) < 0)
    throw PythonError{};
}

}  // namespace

}  // namespace arete::python

NB_MODULE(_C, m) {
  using namespace arete::python;
#ifdef NDEBUG
  // What lives in a script's globals to the end is no news for its user.
  nb::set_leak_warnings(false);
#endif
  arete::set_warning_handler(&warn_in_python);
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const nb::python_error&) {
      throw;
    } catch (const nb::builtin_exception&) {
      throw;
    } catch (...) {
      set_python_error();
    }
  });
  PyObject* const module = m.ptr();
  if (!init_errors(module) || !init_value_types(module) || !init_tensor_type(module) ||
      !init_operator_types(module) || !init_array_type(module))
    nb::raise_python_error();
  bind_data(m);
  bind_settings(m);
  bind_records(m);
  bind_datasets(m);
  bind_amp(m);
  bind_autograd(m);
  bind_extension(m);
  bind_benchmark(m);
  bind_compile(m);
  bind_skip(m);
  bind_sparse(m);
  bind_memory(m);
  bind_saved_tensor_hooks(m);
  bind_expressions(m);
  bind_foreach(m);
  bind_metrics(m);
  bind_optim(m);
  bind_program(m);
  bind_layers(m);
  bind_cpp_layers(m);
  bind_rnn(m);
  bind_cuda(m);
  bind_profiler(m);
  bind_distributed(m);
}
