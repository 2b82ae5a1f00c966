// What the Python of a compiled function reads besides its arguments, and whether it is still the
// same: Note [Skipped functions] in skip.cpp.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "arete/core/tensor.h"
#include "convert.h"

namespace arete::python::skip {

/// Whether this Python tells who writes, and start_watching() may be called.
extern const bool kCanWatch;
/// False if this Python tells nobody.
bool start_watching();
/// Whether a debugger or a profiler follows the thread's Python.
bool is_traced();

bool has_hooks(const AutogradMeta& meta);
/// Whether the object of a tensor has hooks, or attributes that somebody set.
bool has_attributes(PyObject* o);
bool requires_grad_itself(const TensorImpl& t);
/// A leaf that nothing hangs on, in memory that others do not see.
bool is_plain(const TensorImpl& t);
/// Null: it has none.
const Tensor* grad_of(const Tensor& t);

/// A tensor that Python reads, which stays what it is.
struct KnownTensor {
  PyObject* object;
  const TensorImpl* impl;
  const Storage* storage;
  Layout layout;
  DType dtype;
  bool requires_grad;
  bool is_same() const;
};

/// All that the Python of a function may read, but for its arguments. Borrows: who has it keeps the
/// objects alive.
class Watches {
 public:
  using Names = std::unordered_set<PyObject*>;  // interned
  Watches() = default;
  Watches(const Watches&) = delete;
  Watches& operator=(const Watches&) = delete;
  /// `names`: the keys that count; None: all. `text`: what precedes a key where it says what().
  bool dict(nanobind::handle o, const nanobind::object& names, const std::string& text);
  bool type(nanobind::handle o, const std::string& text);
  void function(nanobind::handle o, const std::string& text);
  /// What is in it, which has to be kept.
  nanobind::tuple cell(nanobind::handle o);
  nanobind::tuple list(nanobind::handle o);
  /// Its class and its dict stay the same ones.
  void instance(nanobind::handle o);
  /// "" or why it cannot be.
  std::string tensor(nanobind::handle o);

  /// What was written; "": nothing.
  const std::string& what() const { return *written_; }
  bool is_unchanged() const;
  const std::vector<KnownTensor>& tensors() const { return tensors_; }
  /// Whether these tensors share memory neither with known ones nor with each other.
  bool are_apart(const std::vector<PyObject*>& tensors) const;

 private:
  struct Instance {
    PyObject* object;
    PyTypeObject* type;
    PyObject* attributes;
  };
  struct List {
    PyObject* object;
    std::vector<PyObject*> items;
  };
  const std::shared_ptr<std::string> written_ = std::make_shared<std::string>();
  std::unordered_map<PyObject*, std::shared_ptr<Names>> names_;
  std::vector<Ref> kept_;  // names, and sets of them
  std::vector<Instance> instances_;
  std::vector<std::pair<PyObject*, PyObject*>> cells_;
  std::vector<List> lists_;
  std::vector<KnownTensor> tensors_;
  std::unordered_set<const Storage*> memory_;  // of them
};

}  // namespace arete::python::skip
