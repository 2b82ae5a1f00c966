// What a function was called with: Note [Skipped functions] in skip.cpp.
#pragma once

#include <Python.h>

#include <vector>

#include "arete/core/tensor.h"
#include "convert.h"

namespace arete::python::skip {

/// What an object is, among the arguments or the results of a call.
enum class Kind : uint8_t { tensor, constant, object, tuple, list, dict };

bool is_constant(PyObject* o);
bool is_equal_constant(PyObject* a, PyObject* b);

struct Argument {
  Kind kind;
  PyTypeObject* type = nullptr;  // of a tensor
  Ref constant{};                // or a key of a dict
  PyObject* object = nullptr;    // borrowed
  size_t size = 0;
  // Of a tensor:
  Layout layout{};
  DType dtype = kFloat32;
  Device device{};
  size_t bytes = 0;  // of its memory
  bool requires_grad = false, inference = false, is_view = false;
};

/// What a function was called with: its tensors may be others of their kind. Borrows objects.
class Arguments {
 public:
  Arguments(PyObject* args, PyObject* kwargs) {
    add(args, 0);
    add(kwargs, 0);
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;
  const std::vector<PyObject*>& tensors() const { return tensors_; }
  const std::vector<Argument>& all() const { return all_; }
  /// Those that have to be the same ones.
  const std::vector<PyObject*>& objects() const { return objects_; }
  /// "" or why calls with such are not skipped.
  const char* why() const { return why_; }
  /// Whether a call with these does the same; `tensors` are then theirs.
  bool fit(PyObject* args, PyObject* kwargs, std::vector<PyObject*>& tensors) const;

 private:
  void add(PyObject* o, int depth);
  bool fits(PyObject* o, size_t& at, std::vector<PyObject*>& tensors) const;
  const char* why_ = "";
  std::vector<Argument> all_;
  std::vector<PyObject*> tensors_, objects_;
};

}  // namespace arete::python::skip
