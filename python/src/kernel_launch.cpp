// Launches of kernels that users write: their arguments, and calls that are prepared once.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "arete/core/tracing.h"
#include "arete/device/cuda.h"
#include "arete/device/cuda_kernel.h"
#include "arete/ops/creation.h"
#include "arete/ops/in_place.h"
#include "arete/ops/shape.h"
#include "bindings.h"
#include "caster.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace arete::python {

namespace {

using cuda::KernelArgument;

// Note [Prepared launches]
// A call of a user's kernel asks much before it knows what to launch: which types its parameters
// stand for, what broadcasts to which shape, which dimensions lie together, what is compiled for
// that. All of it follows from the kinds of the arguments: types, dtypes, devices, ranks and,
// unless the kernel is told sizes when it runs, layouts; of numbers only their types. So the first
// call of a kind makes a LaunchPlan in Python (arete/_kernels), which says where each argument of
// the launch comes from, or, where operators do the work, a function of tensors and numbers, which
// takes any sizes; a table of plans (Launches) finds it by a key made of the arguments. A call that
// was seen before never enters the rest of Python's part, and one that was not runs the same plan.
//
// Kernels of elements, and reductions of all of them, have a third kind of plan, for the calls that
// most programs make: what has elements is contiguous and of one shape, raw arrays are contiguous.
// Such a plan is for any number of elements, which alone decides the grid (Spread) and is in the
// place of the sizes.

/// What a call hands to a kernel: an array or a number.
struct Given {
  nb::object held;  // the tensor of an array
  const Tensor* tensor = nullptr;
  char kind = 0;  // of a number, as in Python's struct
};

// The kind of a scalar type of NumPy's, which are as static as NumPy; 0: another type.
char numpy_kind(PyTypeObject* type) {
  static auto& known = *new std::unordered_map<PyTypeObject*, char>;
  if (const auto at = known.find(type); at != known.end()) return at->second;
  static constexpr std::pair<std::string_view, char> kinds[] = {
      {"numpy.bool", '?'},    {"numpy.bool_", '?'},    {"numpy.int8", 'b'},
      {"numpy.uint8", 'B'},   {"numpy.int16", 'h'},    {"numpy.uint16", 'H'},
      {"numpy.int32", 'i'},   {"numpy.uint32", 'I'},   {"numpy.int64", 'q'},
      {"numpy.uint64", 'Q'},  {"numpy.longlong", 'q'}, {"numpy.ulonglong", 'Q'},
      {"numpy.float32", 'f'}, {"numpy.float64", 'd'}};
  for (const auto& [name, kind] : kinds)
    if (name == type->tp_name && !(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return known[type] = kind;
  return 0;
}

// Whether arrays of the type are their tensor: those with a negative step are a copy of it.
bool has_plain_tensors(PyTypeObject* type) {
  static auto& known = *new std::vector<nb::object>;  // types of arrays, which thereby stay
  for (const nb::object& k : known)
    if (k.ptr() == reinterpret_cast<PyObject*>(type)) return true;
  if (PyObject_HasAttrString(reinterpret_cast<PyObject*>(type), "_axes") ||
      !PyObject_HasAttrString(reinterpret_cast<PyObject*>(type), "_tensor"))
    return false;
  known.push_back(nb::borrow(reinterpret_cast<PyObject*>(type)));
  return true;
}

/// False for what only Python knows how to take. `narrow`: Python's ints are 32 bits wide where
/// they fit, and its floats are.
bool classify(PyObject* o, bool narrow, Given& g) {
  if (is_tensor(o)) {
    g.tensor = &tensor_of(o);
    return true;
  }
  if (PyBool_Check(o)) {
    g.kind = '?';
  } else if (PyLong_CheckExact(o)) {
    g.kind = 'q';
    if (narrow) {
      int overflow = 0;
      const long long v = PyLong_AsLongLongAndOverflow(o, &overflow);
      if (!overflow && std::in_range<int32_t>(v)) g.kind = 'i';
    }
  } else if (PyFloat_CheckExact(o)) {
    g.kind = narrow ? 'f' : 'd';
  } else {
    g.kind = numpy_kind(Py_TYPE(o));
  }
  if (g.kind) return true;
  if (!has_plain_tensors(Py_TYPE(o))) return false;
  static PyObject* const name = PyUnicode_InternFromString("_tensor");
  g.held = nb::steal(checked(PyObject_GetAttr(o, name)));
  if (!is_tensor(g.held.ptr())) return false;
  g.tensor = &tensor_of(g.held.ptr());
  return true;
}

// int(o), which a parameter of the type must be able to hold.
template <class T>
T whole(PyObject* o) {
  const nb::object n = nb::steal(checked(PyNumber_Long(o)));
  if constexpr (std::is_same_v<T, uint64_t>) {
    const unsigned long long v = PyLong_AsUnsignedLongLong(n.ptr());
    if (PyErr_Occurred()) throw PythonError{};
    return v;
  } else {
    const long long v = PyLong_AsLongLong(n.ptr());
    if (v == -1 && PyErr_Occurred()) throw PythonError{};
    if (!std::in_range<T>(v)) {
      PyErr_Format(PyExc_OverflowError, "%lld is no %s integer of %d bits, which the kernel takes",
                   v, std::is_signed_v<T> ? "signed" : "unsigned", int(sizeof(T) * 8));
      throw PythonError{};
    }
    return T(v);
  }
}

double real(PyObject* o) {
  const double v = PyFloat_AsDouble(o);
  if (v == -1 && PyErr_Occurred()) throw PythonError{};
  return v;
}

KernelArgument number(char kind, PyObject* o) {
  switch (kind) {
    case '?':
      return truth(o);
    case 'b':
      return whole<int8_t>(o);
    case 'B':
      return whole<uint8_t>(o);
    case 'h':
      return whole<int16_t>(o);
    case 'H':
      return whole<uint16_t>(o);
    case 'i':
      return whole<int32_t>(o);
    case 'I':
      return whole<uint32_t>(o);
    case 'q':
      return whole<int64_t>(o);
    case 'Q':
      return whole<uint64_t>(o);
    case 'f':
      return float(real(o));
    case 'd':
      return real(o);
    default:
      type_error("unknown kind of kernel argument: %c", kind);
  }
}

char kind_of(nb::handle text) { return nb::cast<std::string>(text).at(0); }

/// Sizes along x, y and z: a number, or one to three of them.
cuda::Dim dim_of(nb::handle o) {
  cuda::Dim d = {1, 1, 1};
  const auto fail = [&]() {
    PyErr_Format(PyExc_ValueError, "grid and block are one to three sizes, not %R", o.ptr());
    throw PythonError{};
  };
  const auto size = [&](PyObject* v) {
    const auto n = whole<int64_t>(v);
    if (!std::in_range<uint32_t>(n)) fail();
    return uint32_t(n);
  };
  if (PyIndex_Check(o.ptr())) {
    d[0] = size(o.ptr());
    return d;
  }
  const nb::object all =
      nb::steal(checked(PySequence_Fast(o.ptr(), "grid and block are one to three sizes")));
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(all.ptr());
  if (n < 1 || n > 3) fail();
  for (Py_ssize_t i = 0; i < n; ++i) d[size_t(i)] = size(PySequence_Fast_GET_ITEM(all.ptr(), i));
  return d;
}

/// Where an argument of a launch comes from.
struct Source {
  enum class From : uint8_t { constant, made, array, extents, number, counters, count } from;
  KernelArgument value = 0;  // of a constant
  size_t index = 0;  // of an argument of the call, or of what is made; the number of counters
  char kind = 0;     // of a number
};

/// What a launch makes: results first, then memory of its own.
struct Made {
  std::vector<int64_t> sizes;
  DType dtype;
};

/// The grid of any number of elements: along x or y as many blocks as each has `per` of them, but
/// no more than `most`. Along x what is made has the sizes of the elements.
struct Spread {
  bool along_x = true;
  int64_t per = 1, most = 1;
  cuda::Dim grid(int64_t count) const {
    const auto blocks =
        unsigned(std::clamp<int64_t>((count + per - 1) / per, along_x ? 0 : 1, most));
    return along_x ? cuda::Dim{blocks, 1, 1} : cuda::Dim{1, blocks, 1};
  }
};

/// A call that was prepared.
struct LaunchPlan {
  const cuda::RawKernel* kernel;
  nb::object kept;  // the Python object of the kernel
  Device device = kCPU;
  cuda::Dim grid{}, block{};
  size_t shared = 0;
  std::vector<Source> sources;
  std::vector<Made> made;
  std::vector<size_t> written;
  nb::object wrap;               // makes a result of a tensor, or None
  std::optional<Spread> spread;  // of a plan for any number of elements
  int64_t count = 0;             // of the call that made it
  size_t results = 0;            // so many of what is made are what the call gives
  bool one = true;               // a single result is no tuple
};

// Counts a write that went past the operators; who listens to calls hears of it.
void count_write(const Tensor& t) {
  if (t.is_inference()) return;
  if (modes().word == 0 && tracing::is_plain())
    t.bump_version();
  else
    t.detach().as_strided({0}, {1}).zero_();  // writes nothing
}

// Zeros that the last block of a launch leaves as zeros: those of a stream serve all its launches.
// A graph that is being recorded has its own.
Tensor counters(Device device, size_t count) {
  const auto make = [&](size_t n) {
    return zeros({int64_t(n)}, TensorOptions().dtype(DType::i32).device(device));
  };
  if (!device.is_cuda() || cuda::is_current_stream_capturing()) return make(count);
  static auto& all = *new std::map<std::pair<int, void*>, Tensor>;  // under the GIL
  Tensor& found = all[{device.index, cuda::current_stream(device.index).native_handle()}];
  if (!found.defined() || size_t(found.numel()) < count)
    found = make(std::max<size_t>(count, 1056));
  return found;
}

void append_extents(const Tensor& t, std::vector<KernelArgument>& arguments) {
  arguments.emplace_back(t.numel());
  const int64_t item = int64_t(size_of(t.dtype()));
  for (int64_t d = 0; d < t.dim(); ++d) {
    arguments.emplace_back(t.size(d));
    arguments.emplace_back(t.stride(d) * item);
  }
}

/// Elements of a call; `sizes` are those of what the launch makes.
struct Elements {
  int64_t count = 0;
  Shape sizes;
};

nb::object run(const LaunchPlan& p, std::span<const Given> given, PyObject* const* objects,
               cuda::Dim grid, cuda::Dim block, size_t shared, const Elements* elements = nullptr) {
  std::vector<Tensor> made;
  made.reserve(p.made.size());
  for (const Made& m : p.made)
    made.push_back(
        empty(elements && p.spread->along_x ? IntList(elements->sizes) : IntList(m.sizes),
              TensorOptions().dtype(m.dtype).device(p.device)));
  const int64_t count = elements ? elements->count : p.count;
  std::vector<KernelArgument> arguments;
  arguments.reserve(p.sources.size() + 8);
  for (const Source& s : p.sources) switch (s.from) {
      case Source::From::constant:
        arguments.push_back(s.value);
        break;
      case Source::From::made:
        arguments.emplace_back(made[s.index]);
        break;
      case Source::From::array:
        arguments.emplace_back(*given[s.index].tensor);
        break;
      case Source::From::extents:
        append_extents(*given[s.index].tensor, arguments);
        break;
      case Source::From::number:
        arguments.push_back(number(s.kind, objects[s.index]));
        break;
      case Source::From::counters:
        arguments.emplace_back(counters(p.device, s.index));
        break;
      case Source::From::count:
        arguments.emplace_back(count);
        break;
    }
  {
    const WithoutGil free;
    (*p.kernel)(grid, block, std::move(arguments), shared);
  }
  for (const size_t k : p.written) count_write(*given[k].tensor);
  if (p.results == 0) return nb::none();
  const auto result = [&](size_t k) -> nb::object {
    const nb::object t = nb::steal(wrap(std::move(made[k])));
    return p.wrap.is_none() ? t : p.wrap(t);
  };
  if (p.results == 1 && p.one) return result(0);
  nb::list all;
  for (size_t k = 0; k < p.results; ++k) all.append(result(k));
  return nb::tuple(all);
}

Source source_of(nb::handle o) {
  using From = Source::From;
  if (is_tensor(o.ptr())) return {.from = From::constant, .value = tensor_of(o.ptr())};
  const nb::tuple t = nb::cast<nb::tuple>(o);
  const auto what = nb::cast<std::string>(t[0]);
  if (what.size() == 1)
    return {.from = From::constant, .value = number(what[0], nb::object(t[1]).ptr())};
  if (what == "count") return {.from = From::count};
  const auto index = nb::cast<size_t>(t[1]);
  if (what == "array") return {.from = From::array, .index = index};
  if (what == "extents") return {.from = From::extents, .index = index};
  if (what == "made") return {.from = From::made, .index = index};
  if (what == "counters") return {.from = From::counters, .index = index};
  ARETE_ASSERT(what == "number");
  return {.from = From::number, .index = index, .kind = kind_of(nb::object(t[2]))};
}

/// The plans of a kernel by the kinds of the arguments.
class Launches {
 public:
  /// `raw`: which arguments are raw, of a kernel of elements, whose first option is their number
  /// where all are, or of a reduction, whose first option is an axis.
  Launches(bool by_layout, bool narrow, std::vector<bool> raw)
      : by_layout_(by_layout), narrow_(narrow), raw_(std::move(raw)) {}

  /// The call with a plan that is known, else NotImplemented.
  nb::object call(nb::tuple arguments, nb::handle options, nb::handle grid, nb::handle block,
                  size_t shared) {
    std::string key;
    std::vector<Given> given(arguments.size());
    if (!key_of(arguments, options, key, given)) return not_implemented();
    const std::optional<Elements> elements = elements_of(given, options);
    auto at = plans_.find(kind_key(key, options, elements));
    if (at == plans_.end() && by_layout_) {
      at = plans_.find(layout_key(key, options, given));
      if (at == plans_.end()) return not_implemented();
    } else if (at == plans_.end()) {
      return not_implemented();
    }
    const nb::object plan = at->second;
    if (nb::isinstance<LaunchPlan>(plan)) {
      const auto& p = nb::cast<const LaunchPlan&>(plan);
      if (!p.spread) return launch(p, arguments, given, grid, block, shared);
      return run(p, given, &PyTuple_GET_ITEM(arguments.ptr(), 0), p.spread->grid(elements->count),
                 p.block, p.shared, &*elements);
    }
    nb::list bound;
    for (size_t i = 0; i < given.size(); ++i) bound.append(plain(given[i], arguments[i]));
    return plan(*nb::tuple(bound));
  }
  /// Runs a plan with arguments that are tensors and numbers.
  nb::object run_plan(const LaunchPlan& plan, nb::tuple bound, nb::handle grid, nb::handle block,
                      size_t shared) {
    std::vector<Given> given(bound.size());
    for (size_t i = 0; i < given.size(); ++i)
      classify(PyTuple_GET_ITEM(bound.ptr(), Py_ssize_t(i)), narrow_, given[i]);
    return launch(plan, bound, given, grid, block, shared);
  }
  /// Keeps a plan for calls with arguments like these.
  void keep(nb::tuple arguments, nb::handle options, nb::object plan) {
    std::string key;
    std::vector<Given> given(arguments.size());
    if (!key_of(arguments, options, key, given)) return;
    if (plans_.size() >= 512) plans_.clear();
    const std::optional<Elements> elements = elements_of(given, options);
    const LaunchPlan* const prepared =
        nb::isinstance<LaunchPlan>(plan) ? &nb::cast<const LaunchPlan&>(plan) : nullptr;
    // Of very many elements, or of a number of them that is no plain int, each call is prepared.
    if (prepared && prepared->spread && !elements) return;
    if (by_layout_ && prepared && !prepared->spread)
      plans_[layout_key(key, options, given)] = std::move(plan);
    else
      plans_[kind_key(key, options, elements)] = std::move(plan);
  }

 private:
  static nb::object not_implemented() { return nb::borrow(Py_NotImplemented); }

  static nb::object launch(const LaunchPlan& p, nb::tuple arguments, std::span<const Given> given,
                           nb::handle grid, nb::handle block, size_t shared) {
    PyObject* const* const objects = &PyTuple_GET_ITEM(arguments.ptr(), 0);
    if (grid.is_none()) return run(p, given, objects, p.grid, p.block, p.shared);
    return run(p, given, objects, dim_of(grid), dim_of(block), shared);
  }

  // A tensor, or a number of Python's.
  static nb::object plain(const Given& g, nb::object o) {
    if (g.tensor) return g.held ? g.held : o;
    if (g.kind == '?') return nb::bool_(truth(o.ptr()));
    const bool is_real = g.kind == 'f' || g.kind == 'd';
    return nb::steal(checked(is_real ? PyNumber_Float(o.ptr()) : PyNumber_Long(o.ptr())));
  }

  template <class T>
  static void put(std::string& key, T v) {
    key.append(reinterpret_cast<const char*>(&v), sizeof(v));
  }

  // Options of a call: None, integers and tuples of them.
  static bool put_option(std::string& key, PyObject* o) {
    if (o == Py_None) {
      key += 'n';
    } else if (PyLong_Check(o)) {
      int overflow = 0;
      key += 'i';
      put(key, PyLong_AsLongLongAndOverflow(o, &overflow));
      return overflow == 0;
    } else if (PyTuple_CheckExact(o)) {
      key += '(';
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i)
        if (!put_option(key, PyTuple_GET_ITEM(o, i))) return false;
      key += ')';
    } else {
      return false;
    }
    return true;
  }

  void put_tensor(std::string& key, const Tensor& t) const {
    put(key, modes().grad_enabled && t.requires_grad());
    put(key, t.dtype());
    put(key, t.device().type);
    put(key, t.device().index);
    put(key, int(t.dim()));
    key += t.is_contiguous() ? 'c' : 's';
  }

  /// What a plan for any number of elements needs; none: the call is no such one.
  std::optional<Elements> elements_of(std::span<const Given> given, nb::handle options) const {
    if (raw_.empty() || given.size() > raw_.size() || !PyTuple_CheckExact(options.ptr())) return {};
    Elements e;
    const Tensor* first = nullptr;
    for (size_t i = 0; i < given.size(); ++i) {
      if (!given[i].tensor) continue;
      const Tensor& t = *given[i].tensor;
      if (!t.is_contiguous()) return {};
      if (raw_[i]) continue;
      if (t.dim() == 0 || (first && !std::ranges::equal(t.sizes(), first->sizes()))) return {};
      first = &t;
    }
    PyObject* const size = PyTuple_GET_ITEM(options.ptr(), 0);
    if (first && size == Py_None) {
      e.count = first->numel();
      e.sizes = Shape(first->sizes().begin(), first->sizes().end());
    } else if (!first && PyLong_CheckExact(size)) {
      e.count = PyLong_AsLongLong(size);
      if (e.count < 0) {
        PyErr_Clear();
        return {};
      }
      e.sizes = {e.count};
    } else {
      return {};
    }
    // As many as 32 bits count with a grid's last block (_SHORT in _elementwise.py).
    return e.count <= (int64_t(1) << 31) - 1024 ? std::optional(std::move(e)) : std::nullopt;
  }
  static std::string kind_key(std::string key, nb::handle options,
                              const std::optional<Elements>& elements) {
    key += elements ? 'e' : 'g';
    if (!elements) {
      put_option(key, options.ptr());
      return key;
    }
    key += PyTuple_GET_ITEM(options.ptr(), 0) == Py_None ? 'n' : 's';
    for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(options.ptr()); ++i)
      put_option(key, PyTuple_GET_ITEM(options.ptr(), i));
    return key;
  }
  static std::string layout_key(std::string key, nb::handle options, std::span<const Given> given) {
    key += 'l';
    for (const Given& g : given)
      for (int64_t d = 0; g.tensor && d < g.tensor->dim(); ++d) {
        put(key, g.tensor->size(d));
        put(key, g.tensor->stride(d));
      }
    put_option(key, options.ptr());
    return key;
  }

  bool key_of(nb::tuple arguments, nb::handle options, std::string& key,
              std::span<Given> given) const {
    key.reserve(256);
    put(key, default_dtype());  // numbers may decide what a letter stands for
    bool has_array = false;
    for (size_t i = 0; i < given.size(); ++i) {
      PyObject* const o = PyTuple_GET_ITEM(arguments.ptr(), Py_ssize_t(i));
      if (!classify(o, narrow_, given[i])) return false;
      key += given[i].kind ? given[i].kind : 'A';
      if (given[i].kind) {
        // A letter that stands for Python's floats is the default dtype, for NumPy's their own.
        key += PyFloat_CheckExact(o) ? 'p' : ' ';
        continue;
      }
      has_array = true;
      put(key, given[i].held ? Py_TYPE(o) : nullptr);
      put_tensor(key, *given[i].tensor);
    }
    std::string unused;
    return has_array && put_option(unused, options.ptr());
  }

  bool by_layout_, narrow_;
  std::vector<bool> raw_;
  std::unordered_map<std::string, nb::object> plans_;
};

}  // namespace

void bind_kernels(nb::module_& parent) {
  parent.def("_count_write", &count_write);
  parent.def("_check_inference", &ops::check_inference);
  nb::module_ m = nb::cast<nb::module_>(parent.attr("_cuda"));
  nb::class_<cuda::RawKernel>(m, "RawKernel")
      .def(nb::init<std::string, std::string, std::vector<std::string>>(), "source"_a, "name"_a,
           "options"_a = std::vector<std::string>())
      .def("compile",
           [](const cuda::RawKernel& k) {
             const WithoutGil free;
             k.compile();
           })
      // By the number of a prim::KernelFact.
      .def("fact",
           [](const cuda::RawKernel& k, int which) { return k.fact(prim::KernelFact(which)); })
      .def("set", [](const cuda::RawKernel& k, int which,
                     int value) { k.set(prim::KernelFact(which), value); })
      .def("resident_blocks", &cuda::RawKernel::resident_blocks, "threads"_a, "shared_bytes"_a = 0)
      // The bytes of a variable of the source.
      .def("variable",
           [](const cuda::RawKernel& k, const std::string& name) {
             const prim::KernelVariable v = k.variable(name);
             const Device device = cuda::is_available()
                                       ? Device(DeviceType::cuda, cuda::current_device())
                                       : Device(kCPU);
             return from_blob(v.data, {int64_t(v.bytes)},
                              TensorOptions().dtype(DType::u8).device(device));
           })
      .def_prop_ro("native_handle",
                   [](const cuda::RawKernel& k) { return uintptr_t(k.native_handle()); })
      // Arguments as they come; `other` makes a tensor or (kind, number) of those that are neither
      // arrays of the library, with dimensions, nor numbers, or bytes of a struct, or ("P",
      // memory): it gets the argument and its place.
      .def(
          "launch",
          [](const cuda::RawKernel& k, nb::handle grid, nb::handle block, nb::handle arguments,
             size_t shared, const nb::callable& other) {
            std::vector<KernelArgument> all;
            size_t place = 0;
            for (nb::handle a : arguments) {
              Given g;
              const size_t k = place++;
              if (!classify(a.ptr(), false, g) || (g.tensor && g.tensor->dim() == 0)) {
                const nb::object made = other(a, k);
                if (is_tensor(made.ptr())) {
                  all.emplace_back(tensor_of(made.ptr()));
                } else if (PyBytes_Check(made.ptr())) {
                  all.push_back(KernelArgument::of_bytes(PyBytes_AS_STRING(made.ptr()),
                                                         size_t(PyBytes_GET_SIZE(made.ptr()))));
                } else {
                  const nb::tuple t = nb::cast<nb::tuple>(made);
                  if (const nb::object o = t[1]; is_tensor(o.ptr()))
                    all.push_back(KernelArgument::of_memory(tensor_of(o.ptr())));
                  else
                    all.push_back(number(kind_of(nb::object(t[0])), nb::object(t[1]).ptr()));
                }
              } else if (g.tensor) {
                all.emplace_back(*g.tensor);
              } else {
                all.push_back(number(g.kind, a.ptr()));
              }
            }
            const cuda::Dim blocks = dim_of(grid), threads = dim_of(block);
            const WithoutGil free;
            k(blocks, threads, std::move(all), shared);
          },
          "grid"_a, "block"_a, "arguments"_a, "shared"_a, "other"_a);

  // sources: tensors and (kind, number), which are part of the plan; ("array", k), ("extents", k)
  // and
  // ("number", k, kind) of the call's argument k; ("made", k); ("counters", how many); ("count",).
  // spread: (along x, elements of a block, most blocks) of a plan for any number of elements, of
  // which the call that makes it has `count`.
  nb::class_<LaunchPlan>(m, "LaunchPlan")
      .def(
          "__init__",
          [](LaunchPlan* p, nb::object kernel, Device device, cuda::Dim grid, cuda::Dim block,
             const nb::list& sources,
             const std::vector<std::pair<std::vector<int64_t>, DType>>& made,
             std::vector<size_t> written, nb::object wrap, size_t results, bool one,
             std::optional<std::tuple<bool, int64_t, int64_t>> spread, int64_t count) {
            new (p) LaunchPlan{.kernel = &nb::cast<const cuda::RawKernel&>(kernel),
                               .kept = kernel,
                               .device = device,
                               .grid = grid,
                               .block = block,
                               .written = std::move(written),
                               .wrap = std::move(wrap),
                               .count = count,
                               .results = results,
                               .one = one};
            if (spread)
              p->spread = {std::get<0>(*spread), std::get<1>(*spread), std::get<2>(*spread)};
            for (nb::handle s : sources) p->sources.push_back(source_of(s));
            for (const auto& [sizes, dtype] : made) p->made.push_back({sizes, dtype});
          },
          "kernel"_a, "device"_a, "grid"_a, "block"_a, "sources"_a, "made"_a, "written"_a,
          "wrap"_a = nb::none(), "results"_a = 0, "one"_a = true, "spread"_a = nb::none(),
          "count"_a = 0);
  nb::class_<Launches>(m, "Launches")
      .def(nb::init<bool, bool, std::vector<bool>>(), "by_layout"_a, "narrow"_a,
           "raw"_a = std::vector<bool>())
      .def("call", &Launches::call, "arguments"_a, "options"_a, "grid"_a = nb::none(),
           "block"_a = nb::none(), "shared"_a = 0)
      .def("run", &Launches::run_plan, "plan"_a, "bound"_a, "grid"_a = nb::none(),
           "block"_a = nb::none(), "shared"_a = 0)
      .def("keep", &Launches::keep, "arguments"_a, "options"_a, "plan"_a);
}

}  // namespace arete::python
