// How functions of extensions become functions of Python, in the words of pybind11: module_.def(),
// arg, gil_scoped_release. Functions of numbers, texts, tensors, dtypes, and lists, tuples and
// optionals of these; no classes. Within Python's limited interface, which extensions ask for.
#pragma once

#include <Python.h>

#include <functional>
#include <memory>

#include "torch/api.h"
#include "torch/types.h"

namespace torch::python {

/// Throws where a Python error is set already.
struct ErrorIsSet {};

inline const Api& api() {
  static const Api* const found = [] {
    auto* a = static_cast<const Api*>(PyCapsule_Import(Api::kName, 0));
    if (a && a->version != Api::kVersion) {
      PyErr_SetString(PyExc_ImportError,
                      "the extension was built for another version of Arete: build it again");
      a = nullptr;
    }
    return a;
  }();
  if (!found) throw ErrorIsSet{};
  return *found;
}

inline void set_error() noexcept {
  try {
    throw;
  } catch (const ErrorIsSet&) {
  } catch (const std::invalid_argument& e) {
    PyErr_SetString(PyExc_ValueError, e.what());
  } catch (const std::out_of_range& e) {
    PyErr_SetString(PyExc_IndexError, e.what());
  } catch (...) {
    api().set_error();
  }
}

inline PyObject* new_ref(PyObject* o) {
  Py_INCREF(o);
  return o;
}
inline PyObject* checked(PyObject* o) {
  if (!o) throw ErrorIsSet{};
  return o;
}

class Owned {
 public:
  explicit Owned(PyObject* o) : o_(o) {}
  Owned(Owned&& other) noexcept : o_(std::exchange(other.o_, nullptr)) {}
  ~Owned() { Py_XDECREF(o_); }
  PyObject* get() const { return o_; }
  PyObject* release() { return std::exchange(o_, nullptr); }

 private:
  PyObject* o_;
};

// ---- values: take() is false for objects of another kind, give() is a new reference, kSchema what
// torch.library calls them

template <class T>
struct Value;

template <class T>
requires std::is_base_of_v<arete::Tensor, T>
struct Value<T> {
  static constexpr const char* kSchema = "Tensor";
  static bool take(PyObject* o, T& v) {
    if (o == Py_None) return true;  // an undefined tensor, as pybind11's caster of PyTorch
    const arete::Tensor* t = api().tensor_of(o);
    if (t) v = *t;
    return t;
  }
  static PyObject* give(const T& v) { return api().wrap(v); }
};
template <>
struct Value<bool> {
  static constexpr const char* kSchema = "bool";
  static bool take(PyObject* o, bool& v) {
    v = o == Py_True;
    return PyBool_Check(o);
  }
  static PyObject* give(bool v) { return PyBool_FromLong(v); }
};
template <std::integral T>
struct Value<T> {
  static constexpr const char* kSchema = "int";
  static bool take(PyObject* o, T& v) {
    if (PyFloat_Check(o) || !PyIndex_Check(o)) return false;
    const Owned number(checked(PyNumber_Index(o)));
    const long long i = PyLong_AsLongLong(number.get());
    if (i == -1 && PyErr_Occurred()) throw ErrorIsSet{};
    v = T(i);
    if ((long long)(v) != i) {
      PyErr_SetString(PyExc_OverflowError, "the number is too large");
      throw ErrorIsSet{};
    }
    return true;
  }
  static PyObject* give(T v) { return PyLong_FromLongLong((long long)(v)); }
};
template <std::floating_point T>
struct Value<T> {
  static constexpr const char* kSchema = "float";
  static bool take(PyObject* o, T& v) {
    if (!PyFloat_Check(o) && !PyIndex_Check(o)) return false;
    v = T(PyFloat_AsDouble(o));
    if (PyErr_Occurred()) throw ErrorIsSet{};
    return true;
  }
  static PyObject* give(T v) { return PyFloat_FromDouble(double(v)); }
};
template <>
struct Value<std::string> {
  static constexpr const char* kSchema = "str";
  static bool take(PyObject* o, std::string& v) {
    if (!PyUnicode_Check(o)) return false;
    const Owned bytes(checked(PyUnicode_AsUTF8String(o)));
    v.assign(PyBytes_AsString(bytes.get()), size_t(PyBytes_Size(bytes.get())));
    return true;
  }
  static PyObject* give(const std::string& v) {
    return PyUnicode_FromStringAndSize(v.data(), Py_ssize_t(v.size()));
  }
};
template <>
struct Value<arete::Scalar> {
  static constexpr const char* kSchema = "Scalar";
  static bool take(PyObject* o, arete::Scalar& v) { return api().to_scalar(o, v); }
};
template <>
struct Value<ScalarType> {
  static constexpr const char* kSchema = "ScalarType";
  static bool take(PyObject* o, ScalarType& v) { return api().to_dtype(o, v.value); }
  static PyObject* give(ScalarType v) { return api().wrap_dtype(v); }
};
template <>
struct Value<Device> {
  static constexpr const char* kSchema = "Device";
  static bool take(PyObject* o, Device& v) {
    arete::Device d;
    if (!api().to_device(o, d)) return false;
    v = d;
    return true;
  }
};
template <class T>
struct Value<std::optional<T>> {
  inline static const std::string kSchema = std::string(Value<T>::kSchema) + "?";
  static bool take(PyObject* o, std::optional<T>& v) {
    if (o == Py_None) return true;
    return Value<T>::take(o, v.emplace());
  }
  static PyObject* give(const std::optional<T>& v) {
    return v ? Value<T>::give(*v) : new_ref(Py_None);
  }
};
template <class T>
struct Value<std::vector<T>> {
  inline static const std::string kSchema = std::string(Value<T>::kSchema) + "[]";
  static bool take(PyObject* o, std::vector<T>& v) {
    if (!PyTuple_Check(o) && !PyList_Check(o)) return false;
    v.clear();
    for (Py_ssize_t i = 0; i < PySequence_Size(o); ++i) {
      T element{};
      const Owned item(checked(PySequence_GetItem(o, i)));
      if (!Value<T>::take(item.get(), element)) return false;
      v.push_back(std::move(element));
    }
    return true;
  }
  static PyObject* give(const std::vector<T>& v) {
    Owned list(checked(PyList_New(Py_ssize_t(v.size()))));
    for (size_t i = 0; i < v.size(); ++i)
      PyList_SetItem(list.get(), Py_ssize_t(i), checked(Value<T>::give(v[i])));
    return list.release();
  }
};
template <class... T>
struct Value<std::tuple<T...>> {
  inline static const std::string kSchema = [] {
    std::string text;
    ((text += (text.empty() ? "" : ", ") + std::string(Value<T>::kSchema)), ...);
    return "(" + text + ")";
  }();
  static PyObject* give(const std::tuple<T...>& v) {
    Owned all(checked(PyTuple_New(sizeof...(T))));
    [&]<size_t... I>(std::index_sequence<I...>) {
      (PyTuple_SetItem(all.get(), I, checked(Value<T>::give(std::get<I>(v)))), ...);
    }
    (std::index_sequence_for<T...>{});
    return all.release();
  }
};
template <class A, class B>
struct Value<std::pair<A, B>> : Value<std::tuple<A, B>> {
  static PyObject* give(const std::pair<A, B>& v) {
    return Value<std::tuple<A, B>>::give({v.first, v.second});
  }
};
// Lists of integers are borrowed from a vector during the call.
template <class T>
struct Held {
  using type = std::remove_cvref_t<T>;
};
template <>
struct Held<IntArrayRef> {
  using type = std::vector<int64_t>;
};
template <class T>
using HeldType = typename Held<std::remove_cvref_t<T>>::type;

// ---- functions

struct gil_scoped_release {
  PyThreadState* const state = PyEval_SaveThread();
  gil_scoped_release() = default;
  gil_scoped_release(const gil_scoped_release&) = delete;
  ~gil_scoped_release() { PyEval_RestoreThread(state); }
};
struct gil_scoped_acquire {
  const PyGILState_STATE state = PyGILState_Ensure();
  gil_scoped_acquire() = default;
  gil_scoped_acquire(const gil_scoped_acquire&) = delete;
  ~gil_scoped_acquire() { PyGILState_Release(state); }
};
template <class... T>
struct call_guard {};

/// The name of an argument, and with `=` its default.
struct arg {
  std::string name;
  std::shared_ptr<PyObject> fallback{};
  explicit arg(const char* n) : name(n) {}
  template <class T>
  arg operator=(T&& value) const {
    arg a = *this;
    PyObject* o = nullptr;
    if constexpr (std::is_same_v<std::remove_cvref_t<T>, std::nullopt_t>)
      o = new_ref(Py_None);
    else if constexpr (std::is_convertible_v<T, const char*>)
      o = PyUnicode_FromString(value);
    else
      o = Value<std::remove_cvref_t<T>>::give(value);
    a.fallback = {checked(o), [](PyObject* p) { Py_DECREF(p); }};
    return a;
  }
};

/// One function: takes a tuple and a dict, and gives a new reference, or nothing where they do not
/// fit.
struct Overload {
  std::function<PyObject*(PyObject* args, PyObject* kwargs, bool& fits)> call;
  std::string signature;
};
struct Function {
  std::string name, doc;
  std::vector<Overload> overloads;
  PyMethodDef definition{};
};

template <class T>
T empty_value() {
  if constexpr (std::is_same_v<T, Device>)
    return Device(kCPU);
  else
    return T{};
}

template <class R, class... A>
Overload overload_of(std::function<R(A...)> f, std::vector<arg> names, bool without_gil = false) {
  std::string signature;
  [[maybe_unused]] size_t at = 0;
  ((signature += (at ? ", " : "") +
                 (at < names.size() ? names[at].name : "arg" + std::to_string(at)) + ": " +
                 std::string(Value<HeldType<A>>::kSchema),
    ++at),
   ...);
  auto call = [f = std::move(f), names = std::move(names), without_gil](
                  PyObject* args, PyObject* kwargs, bool& fits) -> PyObject* {
    constexpr size_t n = sizeof...(A);
    const size_t given = size_t(PyTuple_Size(args));
    PyObject* objects[n + 1] = {};
    size_t used = 0;
    fits = given <= n;
    for (size_t i = 0; fits && i < n; ++i) {
      PyObject* named = nullptr;
      if (kwargs && i < names.size()) named = PyDict_GetItemString(kwargs, names[i].name.c_str());
      used += named != nullptr;
      if (i < given)
        objects[i] = PyTuple_GetItem(args, Py_ssize_t(i)), fits = !named;
      else
        objects[i] = named ? named : i < names.size() ? names[i].fallback.get() : nullptr;
      fits = fits && objects[i];
    }
    if (!fits || (kwargs && used != size_t(PyDict_Size(kwargs)))) {
      fits = false;
      return nullptr;
    }
    return [&]<size_t... I>(std::index_sequence<I...>)->PyObject* {
      std::tuple<HeldType<A>...> values{empty_value<HeldType<A>>()...};
      fits = (Value<HeldType<A>>::take(objects[I], std::get<I>(values)) && ...);
      if (!fits) return nullptr;
      const auto run = [&] { return f(std::forward<A>(std::get<I>(values))...); };
      std::optional<gil_scoped_release> free;
      if (without_gil) free.emplace();
      if constexpr (std::is_void_v<R>) {
        run();
        free.reset();
        return new_ref(Py_None);
      } else {
        auto&& result = run();
        free.reset();
        return checked(Value<std::remove_cvref_t<R>>::give(result));
      }
    }
    (std::index_sequence_for<A...>{});
  };
  return {std::move(call), "(" + signature + ")"};
}
inline PyObject* run(PyObject* self, PyObject* args, PyObject* kwargs) noexcept {
  try {
    auto* const f = static_cast<Function*>(PyCapsule_GetPointer(self, nullptr));
    std::string known;
    for (const Overload& o : f->overloads) {
      bool fits = false;
      PyObject* const result = o.call(args, kwargs, fits);
      if (fits) return result;
      known += "\n    " + f->name + o.signature;
    }
    PyErr_SetString(
        PyExc_TypeError,
        (f->name +
         "(): incompatible function arguments. The following argument types are supported:" + known)
            .c_str());
  } catch (...) {
    set_error();
  }
  return nullptr;
}

/// A Python function of one C++ function, to which others may be added. A new reference.
inline PyObject* new_function(const std::string& name, const std::string& doc, Overload first) {
  auto* const f = new Function{
      name, doc, {std::move(first)}, {}};  // as long as the process lives, as the extension does
  f->definition = {f->name.c_str(),
                   reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&run)),
                   METH_VARARGS | METH_KEYWORDS, f->doc.c_str()};
  const Owned self(checked(PyCapsule_New(f, nullptr, nullptr)));
  return checked(PyCFunction_New(&f->definition, self.get()));
}

class module_ {
 public:
  explicit module_(PyObject* m) : m_(m) {}
  PyObject* ptr() const { return m_; }

  /// Makes `f` a function of the module; extras are its documentation, names of arguments, a guard.
  template <class F, class... Extra>
  module_& def(const char* name, F&& f, const Extra&... extras) {
    std::vector<arg> names;
    std::string doc;
    bool without_gil = false;
    (note(extras, names, doc, without_gil), ...);
    Overload o = overload_of(std::function(std::forward<F>(f)), std::move(names), without_gil);
    PyObject* const before =
        PyObject_HasAttrString(m_, name) ? PyObject_GetAttrString(m_, name) : nullptr;
    const Owned known(before);
    if (before && PyCFunction_Check(before) && PyCFunction_GetSelf(before) &&
        PyCapsule_CheckExact(PyCFunction_GetSelf(before))) {
      static_cast<Function*>(PyCapsule_GetPointer(PyCFunction_GetSelf(before), nullptr))
          ->overloads.push_back(std::move(o));
      return *this;
    }
    const Owned made(new_function(name, doc, std::move(o)));
    if (PyObject_SetAttrString(m_, name, made.get()) < 0) throw ErrorIsSet{};
    return *this;
  }

 private:
  static void note(const arg& a, std::vector<arg>& names, std::string&, bool&) {
    names.push_back(a);
  }
  static void note(const char* text, std::vector<arg>&, std::string& doc, bool&) { doc = text; }
  template <class... T>
  static void note(const call_guard<T...>&, std::vector<arg>&, std::string&, bool& without_gil) {
    without_gil = (std::is_same_v<T, gil_scoped_release> || ...);
  }
  PyObject* m_;
};
using module = module_;

/// Extensions have functions only.
template <class T, class...>
class class_ {
  static_assert(sizeof(T) == 0, "extensions for Arete have functions only: no py::class_");
};

/// PyInit of an extension.
template <class F>
PyObject* make_module(PyModuleDef& definition, F&& fill) noexcept {
  try {
    const Owned core(checked(PyImport_ImportModule("arete._C")));
    api();
    Owned m(checked(PyModule_Create(&definition)));
    module_ shown(m.get());
    fill(shown);
    return m.release();
  } catch (...) {
    try {
      set_error();
    } catch (...) {  // Arete itself is missing, and the error says so
    }
  }
  return nullptr;
}

}  // namespace torch::python

namespace pybind11 = torch::python;
namespace py = torch::python;

#define ARETE_STRING_OF_(x) #x
#define ARETE_STRING_OF(x) ARETE_STRING_OF_(x)
#define PYBIND11_MODULE(name, m) ARETE_EXTENSION_MODULE(name, m)
#define ARETE_EXTENSION_MODULE(name, m)                                         \
  static void arete_fill_##name(::torch::python::module_&);                     \
  extern "C" __attribute__((visibility("default"))) PyObject* PyInit_##name() { \
    static PyModuleDef definition{PyModuleDef_HEAD_INIT,                        \
                                  ARETE_STRING_OF(name),                        \
                                  nullptr,                                      \
                                  -1,                                           \
                                  nullptr,                                      \
                                  nullptr,                                      \
                                  nullptr,                                      \
                                  nullptr,                                      \
                                  nullptr};                                     \
    return ::torch::python::make_module(definition, arete_fill_##name);         \
  }                                                                             \
  static void arete_fill_##name(::torch::python::module_& m)
