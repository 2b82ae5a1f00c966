// TORCH_LIBRARY: operators that an extension defines, in torch.library.
#pragma once

#include "torch/python.h"

namespace torch {

/// A namespace of operators: Python's torch.library.Library.
class Library {
 public:
  Library(const char* space, const char* kind, const char* key) : key_(key) {
    const python::Owned m(python::checked(PyImport_ImportModule("arete.library")));
    const python::Owned cls(python::checked(PyObject_GetAttrString(m.get(), "Library")));
    object_ = python::checked(PyObject_CallFunction(
        cls.get(), "ss", space, kind));  // operators live as long as the process
  }
  /// A schema, or a name with a function, whose types are the schema.
  Library& def(const char* schema) {
    call("define", "s", schema);
    return *this;
  }
  template <class F>
  Library& def(const char* schema, F&& f) {
    std::string text = schema;
    const std::string name = text.substr(0, text.find('('));
    if (name == text) text += schema_of(std::function(f));
    call("define", "s", text.c_str());
    return impl(name.c_str(), std::forward<F>(f));
  }
  template <class F>
  Library& impl(const char* name, F&& f) {
    const python::Owned made(
        python::new_function(name, "", python::overload_of(std::function(std::forward<F>(f)), {})));
    call("impl", "sOs", name, made.get(), key_);
    return *this;
  }

 private:
  template <class R, class... A>
  static std::string schema_of(const std::function<R(A...)>&) {
    std::string text;
    [[maybe_unused]] size_t at = 0;
    ((text += (at ? ", " : "") + std::string(python::Value<python::HeldType<A>>::kSchema) + " arg" +
              std::to_string(at),
      ++at),
     ...);
    std::string result = "()";
    if constexpr (!std::is_void_v<R>) result = python::Value<std::remove_cvref_t<R>>::kSchema;
    return "(" + text + ") -> " + result;
  }
  template <class... A>
  void call(const char* method, const char* format, A... args) {
    const python::Owned bound(python::checked(PyObject_GetAttrString(object_, method)));
    const python::Owned result(
        python::checked(PyObject_CallFunction(bound.get(), format, args...)));
  }
  PyObject* object_;
  const char* key_;
};

namespace detail {
/// Runs when the extension is loaded. What goes wrong is told there, since loading has no way to
/// fail then.
struct LibraryInit {
  LibraryInit(const char* space, const char* kind, const char* key, void (*fill)(Library&)) {
    const python::gil_scoped_acquire gil;
    try {
      Library library(space, kind, key);
      fill(library);
    } catch (...) {
      try {
        python::set_error();
      } catch (...) {
      }
    }
    if (PyErr_Occurred()) PyErr_Print();
  }
};
}  // namespace detail

}  // namespace torch

#define ARETE_TORCH_CONCAT_(a, b) a##b
#define ARETE_TORCH_CONCAT(a, b) ARETE_TORCH_CONCAT_(a, b)
#define ARETE_TORCH_LIBRARY(space, kind, key, m, id)                                     \
  static void ARETE_TORCH_CONCAT(arete_library_, id)(::torch::Library&);                 \
  static const ::torch::detail::LibraryInit ARETE_TORCH_CONCAT(arete_library_init_, id)( \
      #space, kind, key, &ARETE_TORCH_CONCAT(arete_library_, id));                       \
  static void ARETE_TORCH_CONCAT(arete_library_, id)(::torch::Library & m)
#define TORCH_LIBRARY(space, m) \
  ARETE_TORCH_LIBRARY(space, "DEF", "CompositeImplicitAutograd", m, __COUNTER__)
#define TORCH_LIBRARY_FRAGMENT(space, m) \
  ARETE_TORCH_LIBRARY(space, "FRAGMENT", "CompositeImplicitAutograd", m, __COUNTER__)
#define TORCH_LIBRARY_IMPL(space, key, m) ARETE_TORCH_LIBRARY(space, "IMPL", #key, m, __COUNTER__)
